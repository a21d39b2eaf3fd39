# SPDX-License-Identifier: Apache-2.0
"""A Dask that lacks something the plug-in needs of it: it says what, and works as stock Dask."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import dask
from distributed import Client, LocalCluster

from conftest import HERE, PREFIX

JOB = sum(range(10)) + 64 * 64


def test_each_hook_that_is_missing_is_named_and_the_job_runs_as_stock(place):
    env = {**os.environ, "SHMSTORE_PARTITION": place.path, "DASK_DISTRIBUTED__WORKER__MEMORY__SHARED__DAEMON": "off"}
    program = [sys.executable, os.path.join(HERE, "hookless.py")]
    done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    whole, *others = [json.loads(line) for line in done.stdout.splitlines()]
    assert whole["missing"] == [] and whole["shares"] and not whole["stock"] and whole["total"] == JOB, whole
    assert len(others) > 40
    for found in others:
        assert found["hook"] in found["missing"], found
        assert found["stock"] and not found["shares"] and found["total"] == JOB, found
        said = [line for line in found["said"] if "lacks what shmstore.dask needs of it" in line]
        assert len(said) == 1 and found["hook"] in said[0], found


def test_a_worker_process_that_preloads_us_goes_on_without(place, tmp_path):
    (tmp_path / "no_replicate.py").write_text(
        textwrap.dedent(
            """
            import distributed.client
            if hasattr(distributed.client.Client, "_replicate"):
                del distributed.client.Client._replicate
            def dask_setup(server):
                pass
            """
        )
    )
    config = {"distributed.worker.preload": [str(tmp_path / "no_replicate.py"), "shmstore.dask"], f"{PREFIX}.partition": place.path}
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with dask.config.set(config), LocalCluster(**options) as cluster, Client(cluster) as client:
        assert client.submit(sum, range(10)).result() == 45
        kinds = client.run(lambda dask_worker: (type(dask_worker).__module__, sys.modules["shmstore.dask"].missing_hooks))
    assert [found[0] for found in kinds.values()] == ["distributed.worker"] * 2
    assert all(name.startswith("distributed.client.Client._replicate") for found in kinds.values() for name in found[1])
    assert place.stores() == []
