# SPDX-License-Identifier: Apache-2.0
"""Values in spill files: used where they lie, back into the partition for a peer, and out of
private memory when nothing else helps."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
import types

import numpy as np
import pandas as pd
import pytest
import tasks
from conftest import PREFIX, Place, cluster, on_workers, wait_until, workers
from distributed import wait
from distributed.core import Status
from distributed.spill import Slow
from tasks import MIB

from shmstore.dask.config import Fallbacks, Guard
from shmstore.dask.pressure import Listening
from shmstore.dask.memory import private_memory
from shmstore.dask.values import SpillFiles

SIZE = 16 * MIB

VALUES = {
    "array": tasks.make(1, MIB),
    "fortran": np.asfortranarray(tasks.make(2, MIB).reshape(256, -1)),
    "slice": tasks.make(3, MIB)[::2],
    "dates": np.arange(100_000).astype("M8[s]"),
    "read-only": np.frombuffer(bytes(range(256)) * 1024, "u1"),
    "frame": tasks.make_frame(4),
    "list": [tasks.make(5, MIB), tasks.make(6, MIB)[:1001], tasks.make(7, MIB)],
}


def same(a, b) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return (a.equals(b) if isinstance(a, pd.DataFrame) else a.dtype == b.dtype and
            a.shape == b.shape and bool((a == b).all()))


@pytest.fixture
def files(tmp_path):
    exchange = types.SimpleNamespace(
        candidate=lambda value: not isinstance(value, str),
        settings=types.SimpleNamespace(min_size=64 << 10),
        guard=Guard(Fallbacks(60)),
    )
    return SpillFiles(Slow(str(tmp_path)), exchange)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_the_same_read_and_mapped(files, name):
    slow, value = files._slow, VALUES[name]
    slow["a/b"] = value
    files.wrote("a/b")
    assert files.mappable("a/b") and same(slow["a/b"], value) and same(files.map("a/b"), value)
    for array in files.map("a/b") if name == "list" else [files.map("a/b")]:
        if isinstance(array, np.ndarray):
            assert (array.flags.aligned and array.flags.writeable == (name != "read-only") and
                    tasks.address_of(array) % 64 == 0)
    total = slow.total_weight
    del slow["a/b"]
    assert (total.disk >= total.memory / 2 and tuple(slow.total_weight) == (0, 0) and
            not files.mappable("a/b"))


def test_what_is_mapped_is_its_own(files):
    files._slow["x"] = VALUES["array"]
    files.wrote("x")
    one, two = files.map("x"), files.map("x")
    one[0] = 7
    assert two[0] == VALUES["array"][0] == files.map("x")[0]
    del files._slow["x"]
    assert one[0] == 7 and (two == VALUES["array"]).all()


@pytest.mark.parametrize("value", ["x" * MIB, np.ones(10), np.array([None] * 20_000)],
                         ids=["text", "small", "objects"])
def test_other_values_are_written_as_on_stock(files, value):
    stock = Slow(files._slow.d.directory + ".stock")
    for slow in (stock, files._slow):
        slow["x"] = value
    files.wrote("x")
    assert not files.mappable("x") and files._slow.d["x"] == stock.d["x"]
    assert np.array_equal(files._slow["x"], value)


# -- on a worker


@pytest.fixture(scope="module")
def client():
    """Of one worker with a disk tier. Each test leaves it empty."""
    if os.geteuid() != 0:
        pytest.skip("needs a tmpfs of its own")
    place = Place(size=128 * MIB)
    try:
        with tempfile.TemporaryDirectory(prefix="shmstore-dask-spill-", dir="/var/tmp") as disk:
            with cluster(place, 1, settings={"temporary-directory": disk,
                                             f"{PREFIX}.daemon": "off"}) as client:
                yield client
    finally:
        place.remove()


def make_all(client, *keys):
    """Futures of values of that size that lie in private memory."""
    futures = [client.submit(tasks.make, ord(key), SIZE, key=key) for key in keys]
    wait(futures)
    return futures


def all_gone(client):
    wait_until(lambda: on_workers(client, _n_values_and_files) == dict.fromkeys(
        workers(client), (0, 0)), "files go with their keys")


def test_a_spilled_value_takes_no_private_memory(client):
    """Neither on its way to a task, nor to a peer; and none is read that is dropped."""
    futures = make_all(client, "x", "y", "z")
    (found,) = client.run(_use_spilled).values()
    took = found.pop("took")
    assert found == {"spilled": 3, "to read": 0, "right": True, "same": True, "still": True,
                     "shared": True}
    assert took < SIZE / 2, f"{took} bytes of private memory for {2 * SIZE} in spill files"
    del futures
    all_gone(client)
    assert set(on_workers(client, _n_read).values()) == {0}


async def _use_spilled(dask_worker):
    data = dask_worker.data
    sums = {key: float(tasks.make(ord(key), SIZE).sum()) for key in data.fast}
    while data.fast:
        data.evict_to_disk()
    found = {"spilled": len(data.disk), "to read": sum(map(data.spilled_size, sums))}
    before = private_memory()
    x, y = data["x"], data["y"]
    found["right"] = [float(x.sum()), float(y.sum())] == [sums["x"], sums["y"]]
    found["took"] = private_memory() - before
    x[0] = 5
    found["same"] = data["x"] is x and data["x"][0] == 5
    found["still"] = len(data.disk) == 3 and not data.fast
    del x, y
    await dask_worker._export(["y"])
    found["shared"] = data.entry("y") is not None and float(data["y"].sum()) == sums["y"]
    return found


def _n_values_and_files(worker):
    return len(worker.data), len(os.listdir(worker.data._slow_uncached.d.directory))


def _n_read(worker):
    counted = getattr(worker.data, "cumulative_metrics", None)  # 2023.3.2 and later
    return (worker.data._slow_uncached.metrics.read_count_total if counted is None
            else counted["disk-read", "count"])


def test_private_values_leave_when_the_partition_takes_none(client):
    """The process is on its way to its limit, and a value on its way into the partition does not
    arrive: others go to disk, not that one."""
    futures = make_all(client, "x", "y", "z")
    (found,) = client.run(_press).values()
    assert found == {"first": -1, "later": 1, "pending": 1, "right one": True, "paused": 1}
    del futures
    all_gone(client)


class _Paused:
    status = Status.paused

    def __init__(self, worker):
        self._worker = worker

    def __getattr__(self, name):
        return getattr(self._worker, name)


async def _press(dask_worker):
    data, exchange, settling = dask_worker.data, dask_worker._exchange, dask_worker._tier.settling
    gate, put = threading.Event(), exchange.put

    def put_late(*args, **kwargs):
        gate.wait(60)
        return put(*args, **kwargs)

    exchange.put = put_late
    try:
        found = {"first": data.evict()}
        deadline = time.monotonic() + 30
        while (weight := data.evict()) == -1 and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        found["later"], found["pending"] = weight // SIZE, len(dask_worker._pending)
        found["right one"] = len(data.fast) == 2 and set(dask_worker._pending) < set(data.fast)
        settling._worker = _Paused(dask_worker)
        settling._urged = 0.0  # another shortage
        found["paused"] = data.evict() // SIZE
        return found
    finally:
        gate.set()
        exchange.put, settling._worker = put, dask_worker


def test_what_is_stored_does_not_wait_for_what_is_given_back(client):
    """The daemon asks for memory, and somebody else evicts at the moment,
    which a demotion waits for."""
    futures = make_all(client, "x")
    assert list(client.run(_store_meanwhile).values()) == [True]
    del futures
    all_gone(client)


async def _store_meanwhile(dask_worker):
    gate = threading.Event()
    dask_worker._exchange.demote = lambda *args: gate.wait(60) and 0
    giving = asyncio.ensure_future(Listening(dask_worker._exchange, dask_worker.data,
                                             dask_worker._tier)._demote(MIB))
    try:
        await asyncio.sleep(0)
        await asyncio.wait_for(dask_worker._export(["x"]), 30)
        return dask_worker.data.entry("x") is not None and not giving.done()
    finally:
        gate.set()
        await giving
        del dask_worker._exchange.demote
