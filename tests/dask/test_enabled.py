# SPDX-License-Identifier: Apache-2.0
"""The switch `enabled`, misspelt keys, the line that a worker says at its
start, and what a run leaves."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import dask
import distributed
import pytest
import tasks
from conftest import PREFIX, cluster, wait_until, workers

import shmstore
import shmstore.dask
from shmstore.dask import config
from shmstore.dask.config import Settings


def shares(client):
    return client.run(lambda dask_worker: getattr(dask_worker, "_exchange", None) is not None)


def test_false_turns_it_off_whatever_is_named(place):
    for value in (False, "false"):
        with cluster(place, 1, settings={f"{PREFIX}.enabled": value}) as client:
            assert list(shares(client).values()) == [False]
            assert client.submit(tasks.total, tasks.make(1)).result() == pytest.approx(
                tasks.make(1).sum())
    assert place.stores() == []


def test_true_turns_it_on_where_nothing_is_named(place, tmp_path):
    script = f"""
import dask, shmstore.dask
from distributed import Client, LocalCluster
if __name__ == "__main__":
    with dask.config.set({{"{PREFIX}.partition": {place.path!r}}}):
        with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None,
                          memory_limit="1 GiB") as c, Client(c) as client:
            print(client.run(lambda dask_worker:
                             getattr(dask_worker, "_exchange", None) is not None))
"""
    for value, expected in (("true", "True"), ("True", "True"), ("false", "False"), ("", "False")):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        env.pop("DASK_DISTRIBUTED__WORKER__MEMORY__SHARED__ENABLED", None)
        if value:
            env["DASK_DISTRIBUTED__WORKER__MEMORY__SHARED__ENABLED"] = value
        path = tmp_path / "script.py"  # a file: the workers' processes import it
        path.write_text(script)
        run = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True,
                             timeout=120, check=False)
        assert expected in run.stdout, (value, run.stdout, run.stderr)


@pytest.mark.parametrize("settings", [{f"{PREFIX}.enabled": True}, {PREFIX: True},
                                      {PREFIX: "true"}], ids=str)
@pytest.mark.parametrize("processes", [True, False])
def test_true_after_the_import_turns_it_on(place, settings, processes, monkeypatch):
    monkeypatch.setenv("SHMSTORE_PARTITION", place.path)
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": processes,
               "dashboard_address": None}
    for config, expected in ((settings, True), ({}, False)):
        with dask.config.set(config), distributed.LocalCluster(
                **options) as cluster, distributed.Client(cluster) as client:
            assert list(shares(client).values()) == [expected]


@pytest.mark.parametrize("word", ["true", "True", "false"])
def test_the_tree_itself_may_be_the_switch(place, word):
    """`distributed.worker.memory.shared: true`, in the environment as in a file that
    is read before the import."""
    script = f"""
import dask
dask.config.set({{"{PREFIX}": {word!r}}})
import shmstore.dask
from shmstore.dask.config import Settings, enabled
print(enabled(), Settings().enabled, Settings().min_size)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True,
                         timeout=60, check=True)
    on = word.lower() == "true"
    assert run.stdout.split() == [str(on), str(on), "65536"], run.stderr


def test_no_private_memory_is_eager():
    """A target of 0 bytes of private memory shares all results; none at all does not."""
    for target, share in ((0, "eager"), (0.0, "eager"), (False, "auto"), (0.6, "auto")):
        with dask.config.set({"distributed.worker.memory.target": target}):
            assert Settings().share == share
    with dask.config.set({"distributed.worker.memory.target": 0, f"{PREFIX}.share": "lazy"}):
        assert Settings().share == "lazy"


def test_misspelt_keys_are_said_once_with_the_right_one(caplog):
    with caplog.at_level(logging.WARNING, logger="distributed.worker.shared"):
        with dask.config.set({f"{PREFIX}.min_sizes": 5, f"{PREFIX}.tier.hihg": 0.9,
                              f"{PREFIX}.max-maps": 8192}):
            config._warned.clear()
            Settings()
            Settings()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert any("min-sizes" in s and f"{PREFIX}.min-size?" in s for s in said)
    assert any("tier.hihg" in s and f"{PREFIX}.tier.high?" in s for s in said)


def test_keys_of_other_systems_are_answered_with_ours(caplog):
    keys = set(config._flat(config._defaults["distributed"]["worker"]["memory"]["shared"]))
    assert set(config._ELSEWHERE.values()) <= keys and not keys & set(config._ELSEWHERE)
    with dask.config.set({f"{PREFIX}.object_store_memory": 1}), caplog.at_level(
            logging.WARNING, logger="distributed.worker.shared"):
        config.warn_of_unknown()
    assert (f"{PREFIX}.object-store-memory: it does nothing; did you mean {PREFIX}.max?" in
            caplog.text)


def test_words_of_the_environment_are_switches():
    for text, value in (("true", True), ("False", False)):
        with dask.config.set({f"{PREFIX}.enabled": text, f"{PREFIX}.tier.fsync": text}):
            settings = Settings()
            assert settings.enabled is value and settings.tier.fsync is value


def test_a_worker_says_at_its_start_what_it_shares_by(place, tmp_path, caplog):
    import asyncio

    async def go():
        settings = {f"{PREFIX}.partition": place.path, "temporary-directory": str(tmp_path)}
        with dask.config.set(settings):
            async with distributed.Scheduler(dashboard_address=None, port=0) as s:
                async with shmstore.dask.Worker(s.address, nthreads=1,
                                                memory_limit="1 GiB") as worker:
                    await asyncio.gather(*worker._starting)
                    return worker._exchange.store.name

    with caplog.at_level(logging.INFO, logger="distributed.worker.shared"):
        name = asyncio.run(go())
    (line,) = [r.getMessage() for r in caplog.records if "partition=" in r.getMessage()]
    for part in (f"partition={place.path}", f"store={name}", "daemon=none", "arbiter=", "tier="):
        assert part in line


def test_no_partition_says_where_it_was_looked_for(monkeypatch, caplog):
    import asyncio

    monkeypatch.setenv("SHMSTORE_PARTITION", "/nonexistent/partition")

    async def go():
        async with distributed.Scheduler(dashboard_address=None, port=0) as s:
            async with shmstore.dask.Worker(s.address, nthreads=1, memory_limit="1 GiB") as worker:
                assert worker._exchange is None

    with caplog.at_level(logging.WARNING, logger="distributed.worker.shared"):
        asyncio.run(go())
    (line,) = [r.getMessage() for r in caplog.records if "no-store" in r.getMessage()]
    assert "None" not in line.replace("errno=None", "") and "/nonexistent/partition" in line


def test_a_run_leaves_no_tier_in_a_temporary_directory(place, tmp_path):
    with cluster(place, 2, settings={"temporary-directory": str(tmp_path)}) as client:
        assert len(workers(client)) == 2
        assert place.partition.tier() is not None
        futures = client.map(tasks.make, range(3))
        assert client.submit(sum, client.map(tasks.total, futures)).result()
    wait_until(lambda: place.partition.tier() is None, "the tier is withdrawn")
    assert [p for p in os.listdir(tmp_path) if "tier" in p] == []
    wait_until(lambda: place.stores() == [], "the stores are gone")
