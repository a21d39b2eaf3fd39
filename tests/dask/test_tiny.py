# SPDX-License-Identifier: Apache-2.0
"""The cost of sharing where there is nothing to share: tasks with small private values make none of
our looks at the partition or at memory."""

from __future__ import annotations

import threading
from collections import Counter

import tasks
from together import together

import shmstore.dask.worker as ours
from shmstore.dask.inputs import Inputs
from shmstore.dask.pressure import shed
from shmstore.dask.tier import Tier

N = 50


def count(monkeypatch, counts, owner, name):
    """Counts the calls of the event loop's thread."""
    function, loop = getattr(owner, name), threading.get_ident()

    def counted(*args, **kwargs):
        counts[name] += threading.get_ident() == loop
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)


def inc(x):
    return x + 1


def test_small_private_inputs_are_not_looked_at(place, monkeypatch):
    async def job(client, a, b):
        assert a._tier is not None
        counts: Counter[str] = Counter()
        count(monkeypatch, counts, Tier, "spare")
        count(monkeypatch, counts, Inputs, "_mapped")
        count(monkeypatch, counts, Inputs, "_map_now")
        count(monkeypatch, counts, ours.Worker, "_export_one")
        ones = client.map(inc, range(N), workers=[a.address], pure=False)
        twos = client.map(inc, ones, workers=[a.address], pure=False)
        assert await client.submit(sum, twos, workers=[b.address]) == sum(range(2, N + 2))
        assert counts["_mapped"] == counts["_map_now"] == 0, (
            "no asyncio task for an input that is private, nor a look at it")
        assert counts["_export_one"] == 0, "nor for one that is too small to be handed on"
        # A grown partition is looked at after a transfer, not after each task.
        assert counts["spare"] < N
        x = client.submit(tasks.make, 1, workers=[a.address])
        assert await client.submit(tasks.total, x, workers=[b.address]) == tasks.total(
            tasks.make(1))
        assert counts["_mapped"] + counts["_map_now"] == 1 and counts["_export_one"] == 1

    together(place, job)


def test_memory_is_not_measured_for_maps_that_there_are_not(place, monkeypatch):
    async def job(client, a, b):
        measured = []
        monkeypatch.setattr(a.monitor, "get_process_memory", lambda: measured.append(1) or 1 << 40)
        x = client.submit(tasks.make, 1, workers=[b.address])
        await client.submit(tasks.total, x, workers=[b.address])
        a.memory_manager.memory_limit = 1 << 30
        shed(a)
        assert not measured
        await client.submit(tasks.total, x, workers=[a.address], pure=False)
        measured.clear()
        shed(a)
        assert measured == [1]

    settings = {"distributed.worker.memory.spill": False, "distributed.worker.memory.pause": False,
                "distributed.admin.system-monitor.interval": "1h"}
    together(place, job, settings=settings)
