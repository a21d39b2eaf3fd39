# SPDX-License-Identifier: Apache-2.0
"""The target of managed memory, by itself: what looks at the memory of the process is off."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import tasks
import zict
from conftest import PREFIX
from distributed import wait
from tasks import MIB
from together import together

from shmstore.dask.residence import SharedBuffer

N, SIZE, LIMIT = 12, 4 * MIB, 64 * MIB
TARGET = 0.25  # of it: four values and no more
SETTINGS = {"distributed.worker.memory.target": TARGET, "distributed.worker.memory.spill": False,
            "distributed.worker.memory.pause": False}


def make_heavy(i):
    return tasks.make(i, int(LIMIT * TARGET) + SIZE)


@pytest.mark.parametrize("tier", [True, False], ids=["tier", "no-tier"])
def test_what_is_over_the_target_leaves_private_memory(place, tier):
    async def job(client, worker):
        data = worker.data
        assert data.n == LIMIT * TARGET, (
            "the target is the configuration's, whatever the data mapping keeps")
        futures = []
        for i in range(N):
            futures.append(client.submit(tasks.make, i, SIZE, key=f"x{i}"))
            await futures[-1]
            assert data.fast.total_weight <= data.n
        assert len(data.shared) >= N - 4 and len(data.shared) + len(data.fast) == N
        for i, value in enumerate(await client.gather(futures)):
            assert np.array_equal(value, tasks.make(i, SIZE))

    together(place, job, n=1, memory_limit=LIMIT,
             settings={**SETTINGS, f"{PREFIX}.tier.enabled": tier})


@pytest.mark.parametrize("tier", [True, False], ids=["tier", "no-tier"])
def test_a_value_that_is_more_than_the_target_does_not_stay(place, tier):
    async def job(client, worker):
        heavy = client.submit(make_heavy, 1, key="heavy")
        await heavy
        while "heavy" not in worker.data.shared:  # with a tier it leaves beside the event loop
            await asyncio.sleep(0.01)
        assert worker.data.fast.total_weight == 0
        assert np.array_equal(await heavy, make_heavy(1))

    together(place, job, n=1, memory_limit=LIMIT,
             settings={**SETTINGS, f"{PREFIX}.tier.enabled": tier})


@pytest.mark.parametrize("tier", [True, False], ids=["tier", "no-tier"])
def test_what_cannot_be_shared_spills_as_on_stock(place, tier):
    async def job(client, worker):
        texts = [client.submit(lambda i: str(i) * SIZE, i, key=f"t{i}") for i in range(N)]
        for text in texts:
            await text
        assert worker.data.fast.total_weight <= worker.data.n and not worker.data.shared
        assert len(worker.data.disk) >= N - 4
        assert await client.gather(texts) == [str(i) * SIZE for i in range(N)]

    together(place, job, n=1, memory_limit=LIMIT,
             settings={**SETTINGS, f"{PREFIX}.tier.enabled": tier})


class NotToBePickled:
    def __sizeof__(self):
        return LIMIT

    def __getstate__(self):
        raise ValueError("it stays where it is")


def make_not_to_be_pickled():
    return NotToBePickled()


@pytest.mark.skipif(hasattr(zict.LRU(1, {}), "heap"), reason="zict 2 keeps no list of what alone "
                                                             "is more than the target")
@pytest.mark.parametrize("tier", [True, False], ids=["tier", "no-tier"])
def test_more_than_the_target_that_cannot_be_pickled_is_an_error_of_its_task(place, tier):
    async def job(client, worker):
        kept = client.submit(tasks.make, 1, SIZE, key="kept")
        await kept
        failed = client.submit(make_not_to_be_pickled, key="failed")
        with pytest.raises(TypeError, match="Failed to pickle"):
            await failed
        assert "failed" not in worker.data and worker.data.fast.total_weight <= worker.data.n
        assert np.array_equal(await kept, tasks.make(1, SIZE))

    together(place, job, n=1, memory_limit=LIMIT,
             settings={**SETTINGS, f"{PREFIX}.tier.enabled": tier})


@pytest.mark.parametrize("way", ["made", "fetched"])
def test_values_leave_where_other_memory_brings_the_process_to_its_limit(place, way, monkeypatch):
    """Stock looks at the memory of the process five times a second: that is too late for large
    values that come faster, though they add up to less than the target."""
    base, peak, store = LIMIT * 6 // 10, 0, SharedBuffer.__setitem__

    def store_and_look(data, key, value):
        nonlocal peak
        store(data, key, value)
        if data is watched and key.startswith("x"):
            peak = max(peak, base + data.fast.total_weight)

    async def job(client, a, b):
        nonlocal watched
        watched = b.data
        for worker in (a, b):
            worker.periodic_callbacks["memory_monitor"].stop()
            worker.monitor.get_process_memory = lambda: base + b.data.fast.total_weight
        parts = [client.submit(tasks.make, i, SIZE, key=f"x{i}",
                               workers=[(b if way == "made" else a).address]) for i in range(8)]
        firsts = client.submit(lambda *values: [v[0] for v in values], *parts, workers=[b.address])
        assert await firsts == [tasks.make(i, SIZE)[0] for i in range(8)]
        assert LIMIT * 0.7 < peak <= LIMIT * 0.7 + SIZE

    watched = None
    monkeypatch.setattr(SharedBuffer, "__setitem__", store_and_look)
    # as where the partition is full: values go over the network, and to the disk
    together(place, job, memory_limit=LIMIT, settings={
        f"{PREFIX}.min-size": "1 GiB", "distributed.worker.memory.pause": False})


def test_links_beside_a_small_value_move_nothing_out(place):
    async def job(client, a, b):
        mine = [client.submit(tasks.make, i, SIZE, key=f"mine{i}", workers=[b.address])
                for i in range(3)]
        await wait(mine)
        links = [client.submit(tasks.make, i, SIZE, key=f"x{i}", workers=[a.address])
                 for i in range(6)]
        small = client.submit(int, 5, key="small", workers=[a.address])
        total = client.submit(lambda *values: len(values), *links, small, workers=[b.address])
        assert await total == 7
        assert all(future.key in b.data.fast for future in mine)

    together(place, job, memory_limit=LIMIT,
             settings={**SETTINGS, "distributed.worker.memory.transfer": False})
