# SPDX-License-Identifier: Apache-2.0
"""Private memory behind mapped values: counted, and given back when the
process is over its target."""

from __future__ import annotations

import mmap
import os
import subprocess
import weakref

import numpy as np
import pytest
import tasks
from conftest import PREFIX, cluster, on_workers, workers
from distributed import wait
from tasks import MIB
from together import together

from shmstore.dask.memory import private_memory
from shmstore.dask.memory import written_bytes

SETTINGS = {"distributed.worker.memory.monitor-interval": "50ms"}


@pytest.mark.parametrize("tier", [True, False], ids=["tier", "no-tier"])
@pytest.mark.parametrize("kind", ["written", "strings"])
def test_more_private_memory_behind_maps_than_the_limit(place, kind, tier):
    """Each worker takes over inputs, which all live on, that cost it more private memory than it
    may have. It must not stay paused."""
    make, use, n = ((tasks.make_strings, tasks.last_string, 40) if kind == "strings"
                    else (tasks.make_64, tasks.add_in_place, 12))
    settings = {**SETTINGS, f"{PREFIX}.tier.enabled": tier}
    with cluster(place, 2, memory_limit="400 MiB", settings=settings) as client:
        a, b = workers(client)
        pids = client.run(lambda dask_worker: dask_worker.monitor.proc.pid)
        chunks, results = [], []
        for i in range(n):
            chunks.append(client.submit(make, i, workers=[(a, b)[i % 2]], key=f"chunk-{i}"))
            results.append(client.submit(use, chunks[i], i, workers=[(b, a)[i % 2]], pure=False))
            results[-1].result(timeout=60)
        assert client.run(lambda dask_worker: dask_worker.monitor.proc.pid) == pids, (
            "a worker was restarted")
        again = [client.submit(use, chunks[i], i, workers=[(b, a)[i % 2]], pure=False)
                 for i in range(n)]
        wait(again, timeout=60)
        if kind == "strings":
            assert [f.result() for f in again] == [f.result() for f in results]


def test_what_is_unpickled_beside_the_buffers_counts_as_private(place):
    async def job(client, a, b):
        x = client.submit(tasks.make_strings, 1, workers=[a.address], key="x")
        await client.submit(tasks.last_string, x, 0, workers=[b.address])
        entry = b.data.shared["x"]
        buffers = 4 * 8 * tasks.ROWS
        assert (entry.unpickled == pytest.approx(entry.nbytes - buffers, rel=0.01) and
                entry.unpickled > 8 * MIB)
        assert b.data.private_weight == pytest.approx(b.data.fast.total_weight + entry.unpickled)
        assert b.data.spilled_total.memory == entry.nbytes - entry.unpickled
        sheds = entry.unpickled
        assert b.data.shed(1) == sheds and entry.value is None
        assert b.data.private_weight == b.data.fast.total_weight
        assert b.data.spilled_total.memory == entry.nbytes

    together(place, job)


def test_maps_that_were_written_to_go_and_others_stay(place):
    async def job(client, a, b):
        xs = [client.submit(tasks.make, i, workers=[a.address], key=f"x{i}") for i in range(3)]
        await client.submit(tasks.total, *xs, workers=[b.address])
        first = await client.submit(tasks.add_in_place, xs[1], 1.0, workers=[b.address])
        assert first == pytest.approx(tasks.make(1)[0] + 1)
        b.data.hold(["x1"])
        assert b.data.shed(1) == 0, "it is in use"
        b.data.let_go(["x1"])
        b.data._next_look = 0
        assert b.data.shed(1) >= 4 * MIB
        assert [b.data.shared[f"x{i}"].value is None for i in range(3)] == [False, True, False]

    together(place, job)


def test_written_bytes_are_those_of_the_map():
    with open("/proc/self/exe", "rb") as file:
        with mmap.mmap(file.fileno(), 1 << 20, access=mmap.ACCESS_COPY) as one:
            address = np.frombuffer(one, "u1").ctypes.data
            before = written_bytes([address, 0])
            one[: 64 << 10] = bytes(64 << 10)
            assert before == [0, 0] and written_bytes([address + 5, 1]) == [64 << 10, 0]


def test_private_memory_is_small_afterwards(place):
    with cluster(place, 2, memory_limit="400 MiB", settings=SETTINGS) as client:
        a, b = workers(client)
        for i in range(8):
            x = client.submit(tasks.make_64, i, workers=[a], key=f"x{i}")
            client.submit(tasks.add_in_place, x, 1, workers=[b], pure=False).result(timeout=60)
            client.submit(tasks.total, x, workers=[b], pure=False).result(timeout=60)
            assert on_workers(client, tasks.private_bytes)[b] < 330 * MIB


def test_private_memory_is_what_no_file_is_behind(place):
    size = 128 * MIB  # the other threads of this process want some, too
    before = private_memory()
    with open(os.path.join(place.path, "file"), "w+b") as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as shared:
            shared[:] = bytes(size)
            assert abs(private_memory() - before) < size // 4
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as written:
            written[: size // 2] = b"x" * (size // 2)
            assert size // 4 < private_memory() - before < 3 * size // 4
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert private_memory(child.pid) == 0, "it has ended"
    child.wait()
    with pytest.raises(OSError):
        private_memory(child.pid)


def test_a_value_that_was_found_private_and_is_not_stored_goes(place):
    """Its key was cancelled while the task ran."""
    async def job(client, a):
        value = tasks.make(1)
        a.data.unshareable("cancelled", value)
        gone = weakref.ref(value)
        del value
        assert gone() is None
        a.data["x"], a.data["y"] = tasks.make(2), (value := tasks.make(3))
        assert a.data.private("x") is not None and a.data.private("y")[0] is value
        a.data.unshareable("y", value)
        a.data["y"] = value
        assert a.data.private("y") is None, "it is not looked into again"

    together(place, job, n=1)
