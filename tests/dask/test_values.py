# SPDX-License-Identifier: Apache-2.0
"""Values of kinds that are not simply shared: as large, as writable and as
often pickled as on stock."""

from __future__ import annotations

import asyncio
import threading

import distributed
import numpy as np
import pandas as pd
import pytest
import tasks
from conftest import PREFIX
from tasks import MIB
from together import together

from shmstore.dask.exchange import Entry, Exchange, Kept

WIDE = 1 << 34  # elements of a broadcast array: 128 GiB if they were written out


def broadcast():
    return (np.broadcast_to(np.float64(3), (WIDE,)), np.arange(MIB // 8.0))


def windows():
    return [np.lib.stride_tricks.sliding_window_view(np.arange(MIB // 8.0), 50_000)]


@pytest.mark.parametrize("share", ["auto", "eager"])
def test_arrays_that_show_memory_more_than_once_are_not_written_out(place, share):
    async def job(client, a, b):
        x = client.submit(broadcast, workers=[a.address], key="x")
        y = client.submit(windows, workers=[a.address], key="y")
        shapes = client.submit(lambda x, y: [v.shape for v in (*x, *y)], x, y, workers=[b.address])
        n = MIB // 8
        assert await shapes == [(WIDE,), (n,), (n - 50_000 + 1, 50_000)]
        one, two = b.data["x"][0], b.data["y"][0]
        assert (one[5] == one[-1] == 3 and (two[7] == np.arange(7.0, 50_007)).all() and
                (two[-1][-1] == n - 1))
        assert place.partition.usage().linked < 4 * MIB

    together(place, job, settings={f"{PREFIX}.share": share})


class Counted:
    """Its pickle has no buffers."""

    times = 0

    def __init__(self, n: int = 200_000) -> None:
        self.text = [f"text {i}" for i in range(n)]

    def __reduce__(self):
        type(self).times += 1
        return _counted, (self.text,)

    def __sizeof__(self):
        return 16 * MIB


def _counted(text):
    counted = Counted(0)
    counted.text = text
    return counted


@pytest.mark.parametrize("share", ["auto", "eager"])
def test_what_cannot_be_shared_is_pickled_once(place, share):
    async def job(client, a, b):
        Counted.times = 0
        x = client.submit(Counted, workers=[a.address], key="x")
        assert await client.submit(lambda v: v.text[-1], x, workers=[b.address]) == "text 199999"
        return Counted.times

    assert together(place, job, settings={f"{PREFIX}.share": share}) <= (
        1 if share == "auto" else 2)


def test_what_cannot_be_shared_is_pickled_once_where_it_is_spilled(place):
    async def job(client, a):
        Counted.times = 0
        x = client.submit(Counted, key="x")
        await distributed.wait([x])
        assert a.data.evict() > 0 and "x" in a.data.slow
        assert Counted.times == 1
        assert await client.submit(lambda v: v.text[-1], x) == "text 199999"

    together(place, job, n=1, settings={f"{PREFIX}.tier.enabled": False})


def read_only():
    array = np.arange(MIB // 8.0)
    array.setflags(write=False)
    return {"locked": array, "open": np.arange(MIB // 8.0)}


def writable(value):
    return [value[name].flags.writeable for name in ("locked", "open")]


@pytest.mark.parametrize("share", ["auto", "eager"])
def test_read_only_arrays_stay_read_only(place, share):
    async def job(client, a, b, c):
        x = client.submit(read_only, workers=[a.address], key="x")
        for w in (a, b, a, c):
            assert await client.submit(writable, x, workers=[w.address], pure=False) == [
                False, True], w.name
        again = client.submit(lambda v: v, x, workers=[b.address], key="again")
        assert await client.submit(writable, again, workers=[c.address], pure=False) == [
            False, True]
        assert place.partition.usage().linked < 3 * MIB, "a second name is a link"

    together(place, job, n=3, settings={f"{PREFIX}.share": share})


class Model:
    """As Dask sees it: 48 bytes."""

    def __init__(self) -> None:
        self.weights = np.arange(MIB / 2)
        self.name = "model"


def test_instances_of_users_classes_are_shared(place):
    async def job(client, a, b):
        x = client.submit(Model, workers=[a.address], key="x")
        assert await client.submit(lambda m: float(m.weights.sum()), x,
                                   workers=[b.address]) == np.arange(MIB / 2).sum()
        assert "x" in a.data.shared and "x" in b.data.shared
        assert place.partition.usage().n_objects == 2

    together(place, job)


def test_small_arrays_in_containers_do_not_keep_a_whole_object(place):
    async def job(client, a, b):
        x = client.submit(tasks.make, 1, workers=[a.address], key="x")
        part = client.submit(lambda v: [v[:10], {"a": (v[5:7],)}], x, workers=[b.address],
                             key="part")
        got = await part
        assert (got[0] == tasks.make(1)[:10]).all() and (got[1]["a"][0] == tasks.make(1)[5:7]).all()
        x.release()
        while place.partition.usage().n_objects:
            await asyncio.sleep(0.01)
        while place.partition.usage(full=True).ghosts:
            await asyncio.sleep(0.01)

    together(place, job)


@pytest.mark.parametrize("tier", [True, False])
def test_a_put_that_is_cancelled_leaves_no_object(place, tier, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    put = Exchange.put

    def slow_put(self, *args, **kwargs):
        begun.set()
        assert go_on.wait(30)
        return put(self, *args, **kwargs)

    async def job(client, a, b):
        x = client.submit(tasks.make, 1, workers=[a.address], key="x")
        await x
        monkeypatch.setattr(Exchange, "put", slow_put)
        exporting = asyncio.ensure_future(a._export(["x"]))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        exporting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exporting
        done, loop = asyncio.Event(), asyncio.get_running_loop()
        delete = a._exchange.delete

        def deleted(entry: Entry) -> None:
            delete(entry)
            loop.call_soon_threadsafe(done.set)

        monkeypatch.setattr(a._exchange, "delete", deleted)
        go_on.set()
        await asyncio.wait_for(done.wait(), 20)
        assert place.partition.usage().n_objects == 0
        monkeypatch.setattr(Exchange, "put", put)
        assert await client.submit(tasks.total, x, workers=[b.address]) == pytest.approx(
            tasks.make(1).sum())
        assert "x" in a.data.shared

    together(place, job, settings={f"{PREFIX}.tier.enabled": tier})


class Device:
    """Stand-in for an array on a device, with the attributes of one."""

    __cuda_array_interface__ = {"shape": (MIB,), "typestr": "|u1", "data": (0, False), "version": 3}
    reduced = 0
    nbytes = MIB

    def __reduce__(self):
        Device.reduced += 1
        return Device, ()


def test_arrays_on_a_device_are_left_to_dask(place):
    async def job(client, a, b):
        Device.reduced = 0
        assert not a._exchange.candidate(Device())
        assert (a._exchange.put("y", [np.zeros(MIB), Device()]) is Kept.FOR_GOOD and
                Device.reduced == 0)
        assert not any(a._exchange.fallbacks.counts.values())
        x = client.submit(Device, workers=[a.address], key="x")
        await client.submit(lambda v: v.nbytes, x, workers=[b.address])
        assert Device.reduced == 1

    together(place, job)


def test_what_a_handle_stands_for_is_what_dask_is_told(place):
    """Neither the bandwidth nor the types that the scheduler hears of are those of handles."""

    async def job(client, a, b):
        b.periodic_callbacks["heartbeat"].stop()  # it forgets what it has told
        before = b.bandwidth
        xs = [client.submit(tasks.make, i, workers=[a.address], key=f"x{i}") for i in range(3)]
        f = client.submit(tasks.make_frame, 1, workers=[a.address], key="f")
        await client.submit(lambda *values: len(values), *xs, f, workers=[b.address])
        assert "x0" in b.data.shared and "f" in b.data.shared
        assert 0 < b.bandwidth <= before and set(b.bandwidth_types) <= {np.ndarray, pd.DataFrame}
        assert a.address in b.bandwidth_workers
        assert b.state.tasks["x0"].type is np.ndarray and b.state.tasks["f"].type is pd.DataFrame
        types = await client.run(lambda dask_worker: {
            k: type(v).__name__ for k, v in dask_worker.data.items()}, workers=[b.address])
        assert set(types[b.address].values()) <= {"ndarray", "DataFrame", "int"}
        assert b.transfer_incoming_log[-1]["total"] > 0

    together(place, job)


class Tensor:
    """Pickles as torch's tensors on the CPU do: no buffers, all of it in the pickle."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self):
        return Tensor, (self.data,)


def test_what_is_not_shared_is_said_once_for_each_type(place, caplog):
    """Frames of strings, arrays of objects, tensors: one line says why,
    none of them is a fallback."""
    n = 40_000
    values = {
        "DataFrame": lambda: pd.DataFrame(
            {"text": pd.Series([f"text {i}" for i in range(n)], dtype=object)}),
        "ndarray": lambda: np.array([f"text {i}" for i in range(n)], dtype=object),
        "Tensor": lambda: Tensor(bytes(MIB)),
    }

    async def job(client, a, b):
        for name, make in values.items():
            for i in range(2):
                await client.submit(lambda v: None,
                                    client.submit(make, workers=[a.address], key=f"{name}-{i}"),
                                    workers=[b.address])
        assert not any(a._exchange.fallbacks.counts.values())

    with caplog.at_level("INFO", logger="distributed.worker.shared"):
        together(place, job)
    said = [r.getMessage() for r in caplog.records if "go as on stock" in r.getMessage() and
            r.levelname == "INFO"]
    for name in values:
        assert len([line for line in said if f".{name} " in line]) == 1, said
