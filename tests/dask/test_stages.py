# SPDX-License-Identifier: Apache-2.0
"""Stages of a job: a real daemon divides the workers' memory for shuffles, rechunks and maps, as docs/stages.md says, and their private budget follows."""

from __future__ import annotations

import os
import pathlib
import sys

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from conftest import PREFIX, Place, cluster, on_workers, wait_until
from distributed import wait
from stagetasks import budget_now, numbers, texts

from shmstore.dask.compat import p2p, stages as compat
from shmstore.dask.stages import objects_in

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
from daemon import Daemon  # noqa: E402

MIB = 1 << 20
CONFIG = """stage {{ enabled = {enabled}
 private = 100MiB
 shared = 40MiB
 cap = 1GiB
 total = 8GiB
 mn-threshold = 4
 desc-bytes = 65536 }}
http {{ enabled = no }}
partition "{path}" {{ }}
"""
SETTINGS = {
    f"{PREFIX}.stages": True,
    "dataframe.convert-string": False,
    "dataframe.shuffle.method": "tasks",
    "dataframe.shuffle.algorithm": "tasks",
    "array.rechunk.method": "tasks",
    "optimization.fuse.active": False,
}


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        ("simple-shuffle-c26cee87", "shuffle"),
        ("taskshuffle-f9105e88", "shuffle"),
        ("p2pshuffle-2f529d70", "shuffle"),
        ("shuffle-p2p-85bcdf5f", "shuffle"),
        ("split-simple-shuffle-c26cee87", "pieces"),
        ("group-taskshuffle-f9105e88", "pieces"),
        ("shuffle-transfer-2f529d70", "pieces"),
        ("shuffle-barrier", "pieces"),
        ("rechunk-merge-2915f2a9", "rechunk"),
        ("rechunk-split-2915f2a9", "pieces"),
        ("func-0f5f7818", "map"),
    ],
)
def test_what_a_group_is(group, kind):
    assert compat.kind_of(group) == kind


def test_parts_of_collections():
    for key in (("x-12ab34cd", 3), "('x-12ab34cd', 3)"):
        assert compat.is_part(key) and compat.group_of(key) == "x-12ab34cd"
    assert not compat.is_part("add-12ab34cd")


def test_what_consists_of_objects():
    mixed = pd.DataFrame({"t": pd.Series([f"{i:0100}" for i in range(1000)], dtype=object), "n": np.zeros(1000)})
    objects, total = objects_in(mixed)
    assert 100_000 < objects < total and total - objects < 20_000
    assert objects_in(mixed[["n"]])[0] == 0
    objects, total = objects_in(mixed["t"])
    assert objects == total > 100_000
    assert objects_in(np.zeros(10)) == (0, 80)
    assert objects_in(np.array(["a", None], dtype=object))[0] > 0
    assert objects_in([1, 2]) is None and objects_in("text") is None


class Host:
    """A partition and its daemon."""

    def __init__(self, enabled: bool) -> None:
        self.place = Place(256 * MIB)
        self.daemon = Daemon(config=CONFIG.format(enabled="yes" if enabled else "no", path=self.place.path), http=False)

    def close(self) -> None:
        try:
            self.daemon.close()
        finally:
            self.place.remove()


@pytest.fixture
def make_host(monkeypatch):
    made = []

    def make(enabled: bool = True) -> Host:
        made.append(Host(enabled))
        monkeypatch.setenv("SHMSTORE_SOCKET", made[-1].daemon.socket)
        return made[-1]

    yield make
    for host in made:
        host.close()


def counts(client) -> dict[str, int]:
    """Of all workers."""
    totals: dict[str, int] = {}
    for each in on_workers(client, _counts).values():
        for name, n in each.items():
            totals[name] = totals.get(name, 0) + n
    return totals


def _counts(worker):
    return dict(worker._stages.counts)


def budgets(client):
    return set(on_workers(client, _budget).values())


def _budget(worker):
    return worker._arbitration.budget.whole


def frame():
    return dd.from_pandas(pd.DataFrame({"i": np.arange(8)}), npartitions=4)


def test_off_by_default(place):
    with cluster(place, 1) as client:
        assert set(on_workers(client, lambda worker: worker._stages is None).values()) == {True}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file system of its own")
def test_maps_of_objects_have_more_private_memory_and_others_do_not(make_host):
    host = make_host()
    with cluster(host.place, 2, settings=SETTINGS) as client:
        (base,) = budgets(client)
        of_text = frame().map_partitions(texts, meta=pd.DataFrame({"t": ["x"]})).persist()
        of_numbers = frame().map_partitions(numbers, meta=pd.DataFrame({"n": [0.5]})).persist()
        wait([of_text, of_numbers])
        seen = of_numbers.map_partitions(budget_now, meta=("b", "i8")).compute()
        assert set(seen) == {base}, "nothing of it are objects: the base, which is the worker's own"
        seen = of_text.map_partitions(budget_now, meta=("b", "i8")).compute()
        assert set(seen) == {200 * MIB}, "no byte can be shared: twice the base's private memory"
        assert counts(client)["whole"] >= 1
        wait_until(lambda: budgets(client) == {base}, "it is over")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file system of its own")
@pytest.mark.parametrize("method", ["tasks", pytest.param("p2p", marks=pytest.mark.skipif(bool(p2p.missing_hooks), reason="P2P is not of this form here"))])
def test_readers_of_shuffles_and_rechunks_have_room_for_their_index(make_host, method):
    host = make_host()
    methods = {name: method for name in SETTINGS if name.endswith((".method", ".algorithm"))}
    with cluster(host.place, 2, settings=SETTINGS) as client:
        (base,) = budgets(client)
        shuffled = frame().map_partitions(numbers, meta=pd.DataFrame({"n": [0.5]})).persist()
        wait(shuffled)
        with dask.config.set(methods):
            wait(shuffled.shuffle("n").persist())
        assert counts(client)["shuffle"] >= 1, "4 x 4 blocks"
        wait_until(lambda: budgets(client) == {base}, "it is over")
        before = counts(client)["shuffle"]
        x = da.ones((40, 40), chunks=(10, 40)).persist()
        wait(x)
        with dask.config.set(methods):
            wait(x.rechunk((40, 10)).persist())
        assert counts(client)["shuffle"] > before, "4 x 4 blocks; by P2P 1 x 4, as it puts small chunks together first"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file system of its own")
def test_where_the_daemon_has_no_stages_all_is_the_base(make_host):
    host = make_host(enabled=False)
    with cluster(host.place, 1, settings=SETTINGS) as client:
        (base,) = budgets(client)
        of_text = frame().map_partitions(texts, meta=pd.DataFrame({"t": ["x"]})).persist()
        wait(of_text)
        assert set(of_text.map_partitions(budget_now, meta=("b", "i8")).compute()) == {base}
        assert set(counts(client)) <= {"base", "within-another"}


def test_without_a_daemon_jobs_run_as_ever(place):
    with cluster(place, 1, settings=SETTINGS) as client:
        assert frame().map_partitions(len).compute().sum() == 8
        assert set(counts(client)) <= {"no-daemon", "within-another"}
