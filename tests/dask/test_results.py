# SPDX-License-Identifier: Apache-2.0
"""Results that tasks have just made."""

from __future__ import annotations

import asyncio
import os
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor as Plain
from types import SimpleNamespace

import dask
import dask.array
import numpy as np
import tasks
from conftest import cluster, workers
from distributed.threadpoolexecutor import ThreadPoolExecutor

from shmstore.dask.config import Fallbacks, Guard
from shmstore.dask.memory import Bound
from shmstore.dask.values import Born, lend_context, pays

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from arraymaps import file_of  # noqa: E402

MIB = 1 << 20
SIZE = 8 * MIB


def test_only_huge_pages_are_made_in_one_go(place):
    assert pays(place.partition) is place.mounted


def test_jobs_are_right(place):
    with cluster(place, 3) as client:
        x = (dask.array.random.default_rng(1).random((1500, 1500), chunks=(750, 750))
             if hasattr(dask.array.random, "default_rng") else None)
        if x is None:
            x = dask.array.random.RandomState(1).random_sample((1500, 1500), chunks=(750, 750))
        got = (x @ x.T + x.sum(axis=0)).compute()
        with dask.config.set(scheduler="synchronous"):
            expected = (x @ x.T + x.sum(axis=0)).compute(scheduler="synchronous")
        assert np.allclose(got, expected)


def test_a_task_that_writes_into_what_it_returned_changes_nobody_elses(place):
    with cluster(place, 2) as client:
        a, b = workers(client)

        def make():
            made = np.full(SIZE, 3, np.uint8)
            # a task that keeps its result for itself
            tasks.HELD = made  # type: ignore[attr-defined]
            return made

        def scribble():
            tasks.HELD[:] = 9
            return int(tasks.HELD[0])

        result = client.submit(make, workers=[a])
        assert client.submit(lambda value: int(value[-1]), result, workers=[b]).result() == 3
        assert client.submit(scribble, workers=[a], pure=False).result() == 9
        assert client.submit(lambda value: (int(value.min()), int(value.max())), result,
                             workers=[b], pure=False).result() == (3, 3)


def test_a_killed_worker_leaves_nothing(place):
    with cluster(place, 2) as client:
        a, _ = workers(client)
        results = client.map(lambda i: np.full(SIZE, i, np.uint8), range(6), workers=[a],
                             allow_other_workers=True)
        client.gather([client.submit(lambda value: int(value[0]), result) for result in results])
        client.run(lambda: os._exit(1), workers=[a], on_error="ignore")
        assert client.gather([client.submit(lambda value: int(value[-1]), result)
                              for result in results]) == list(range(6))
    place.partition.gc()
    usage = place.partition.usage(full=True)
    assert usage.inflight == 0 and usage.ghosts == 0 and usage.residual == 0


async def _nothing():
    await asyncio.sleep(0)


def test_a_coroutine_is_a_task_as_ever(place):
    with cluster(place, 1) as client:
        assert client.submit(_nothing).result() is None


def born_in(store, much, room=1 << 40):
    """Of tasks "small-1" and "large-1", whose inputs are SIZE and two of it."""
    def task(*sizes):
        return SimpleNamespace(dependencies=[SimpleNamespace(nbytes=size) for size in sizes])

    exchange = SimpleNamespace(store=store, guard=Guard(Fallbacks(60)),
                               bounds=lambda limits: [Bound(room, 0)])
    return Born(exchange, {"small-1": task(SIZE), "large-1": task(SIZE, SIZE)}, much)


def made_by(born, executor, key):
    """Whether the array that a key's task makes in a thread is in a file."""
    async def execute():
        return file_of(executor.submit(np.full, SIZE, 5, dtype=np.uint8).result())[1]

    return asyncio.run(born.run(key, execute))


def test_only_what_no_worker_could_keep_is_made_in_the_partition(place):
    with place.partition.open("mine") as store:
        ours, plain = ThreadPoolExecutor(1), Plain(1)
        try:
            for executor in (ours, ours, plain):
                lend_context(executor)
            born = born_in(store, SIZE)
            assert made_by(born, ours, "large-1") and not made_by(born, ours, "small-1")
            assert not made_by(born, ours, "unknown-1") and not made_by(born, plain, "large-1")
            assert not made_by(born_in(store, 2 * SIZE), ours, "large-1")
            assert not made_by(born_in(store, SIZE, room=2 * SIZE), ours, "large-1"), "no room"
            assert file_of(ours.submit(np.full, SIZE, 5, dtype=np.uint8).result())[1] is False, (
                "the thread is as it was before")
        finally:
            ours.shutdown()
            plain.shutdown()
    assert not made_by(born, Plain(1), "large-1"), "the store is closed"
