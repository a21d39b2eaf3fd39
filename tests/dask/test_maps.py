# SPDX-License-Identifier: Apache-2.0
"""Which workers see what a task writes into its input, and which memory counts."""

from __future__ import annotations

import dask
import pytest
import tasks
from conftest import PREFIX, cluster, on_workers, wait_until, workers
from tasks import MIB


def test_writes_are_seen_on_the_same_worker_and_nowhere_else(place, memory_limit):
    with cluster(place, 3, memory_limit=memory_limit) as client:
        a, b, c = workers(client)
        x = client.submit(tasks.make, 1, workers=[a], key="x")
        first = float(tasks.make(1)[0])
        for address in (b, c):
            client.submit(tasks.total, x, workers=[address], pure=False).result()
        assert client.submit(tasks.add_in_place, x, 5, workers=[b],
                             pure=False).result() == pytest.approx(first + 5)
        see = {w: client.submit(lambda v: float(v[0]), x, workers=[w], pure=False).result()
               for w in (a, b, c)}
        assert see == {a: pytest.approx(first), b: pytest.approx(first + 5),
                       c: pytest.approx(first)}
        # The donor, too, has a private view of what it handed on.
        client.submit(tasks.add_in_place, x, 7, workers=[a], pure=False).result()
        see = {w: client.submit(lambda v: float(v[0]), x, workers=[w], pure=False).result()
               for w in (a, b, c)}
        assert see == {a: pytest.approx(first + 7), b: pytest.approx(first + 5),
                       c: pytest.approx(first)}


def test_what_was_written_to_is_put_anew_when_it_is_returned(place):
    with cluster(place, 2) as client:
        a, b = workers(client)
        x = client.submit(tasks.make, 1, workers=[a], key="x")
        y = client.submit(_changed, x, workers=[b], key="y")
        assert client.submit(lambda v: float(v[0]), y, workers=[a], pure=False).result() == 42
        assert client.submit(lambda v: float(v[0]), x, workers=[a], pure=False).result() == float(
            tasks.make(1)[0])


def _changed(a):
    a[0] = 42
    return a


def test_read_only_maps_refuse_writes(place, memory_limit):
    with cluster(place, 2, memory_limit=memory_limit, settings={f"{PREFIX}.map": "ro"}) as client:
        a, b = workers(client)
        x = client.submit(tasks.make, 1, workers=[a], key="x")
        assert client.submit(tasks.total, x, workers=[b], pure=False).result() == pytest.approx(
            tasks.make(1).sum())
        with pytest.raises(ValueError, match="read-only"):
            client.submit(tasks.add_in_place, x, 1, workers=[b], pure=False).result()


def test_mapped_memory_counts_for_no_worker(place):
    """600 MiB mapped under a limit of 400: no pause, no restart, and the figures say why. The
    limits of four more workers leave room for it."""
    settings = {"distributed.worker.memory.monitor-interval": "50ms"}
    with cluster(place, 6, memory_limit="400 MiB", settings=settings) as client:
        a, b, *_ = workers(client)
        pids = client.run(lambda dask_worker: dask_worker.monitor.proc.pid)
        chunks = []
        for i in range(10):  # one at a time: each is private until it is handed over
            chunks.append(client.submit(tasks.make, i, 60 * MIB, workers=[(a, b)[i % 2]],
                                        key=f"chunk-{i}"))
            client.gather([client.submit(tasks.total, chunks[-1], workers=[w], pure=False)
                           for w in (a, b)])
        # of the scheduler, see docs/dask.md: the nannies have theirs
        with dask.config.set({"distributed.worker.memory.terminate": False}):
            totals = client.gather([client.submit(tasks.total, *chunks, workers=[w], pure=False)
                                    for w in (a, b)])
        assert totals[0] == pytest.approx(totals[1])
        assert all(on_workers(client, tasks.resident_bytes)[w] > 600 * MIB for w in (a, b))
        wait_until(lambda: all(n < 320 * MIB for n in on_workers(
            client, tasks.private_bytes).values()), "private memory is small")
        assert client.run(lambda dask_worker: dask_worker.monitor.proc.pid) == pids, (
            "a worker was restarted")
        assert set(client.run(lambda dask_worker: dask_worker.status.name).values()) == {"running"}


def test_short_memory_spills_into_the_partition_not_to_disk(place):
    settings = {"distributed.worker.memory.target": 0.3, "distributed.worker.memory.pause": 0.97,
                "distributed.worker.memory.monitor-interval": "50ms"}
    with cluster(place, 1, memory_limit="400 MiB", settings=settings) as client:
        client.run(tasks.wait_for_settling)  # on a busy machine, too
        chunks = [client.submit(tasks.make, i, 40 * MIB, key=f"chunk-{i}") for i in range(10)]
        totals = client.gather([client.submit(tasks.total, chunk) for chunk in chunks])
        assert totals == pytest.approx([tasks.make(i, 40 * MIB).sum() for i in range(10)])
        assert list(client.run(lambda dask_worker: len(dask_worker.data.slow)).values()) == [0]
        assert place.partition.usage().n_objects >= 7
        assert list(on_workers(client, tasks.kind_of_data).values()) == ["SharedBuffer"]
