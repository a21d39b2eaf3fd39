# SPDX-License-Identifier: Apache-2.0
"""Results that NumPy makes in the partition (`born`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor as Plain
from types import SimpleNamespace

import dask
import dask.array
import numpy as np
import pytest
import tasks
from conftest import PREFIX, on_workers, wait_until, workers
from conftest import cluster as any_cluster
from distributed.threadpoolexecutor import ThreadPoolExecutor

import shmstore
from shmstore._shmstore import _born_end
from shmstore.dask.config import Fallbacks, Guard
from shmstore.dask.memory import Bound
from shmstore.dask.values import Born, Habits, lend_context, pays

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from arraymaps import file_of  # noqa: E402

MIB = 1 << 20
SIZE = 8 * MIB


@pytest.fixture(params=[True, False], ids=["born", "plain"])
def born(request):
    with dask.config.set({f"{PREFIX}.born": request.param}):
        yield request.param


@contextlib.contextmanager
def cluster(place, n):
    """Its workers have NumPy: before a task has imported it no array is made anywhere."""
    with any_cluster(place, n) as client:
        client.run(_import_numpy)
        yield client


def _import_numpy():
    return np.ones(1).sum()


def inodes(dask_worker):
    store = dask_worker._exchange.store
    return [os.stat(entry.path).st_ino for entry in os.scandir(os.path.join(store.path, "objects"))]


def test_a_result_is_published_as_it_was_made(place, born):
    with cluster(place, 2) as client:
        a, b = workers(client)

        def make():
            made = np.full(SIZE, 3, np.uint8)
            return made, file_of(made)

        result = client.submit(make, workers=[a])
        address = client.submit(lambda value: value[1], result, workers=[a]).result()
        assert address[1] is born
        before = place.partition.usage(full=True)
        total = client.submit(lambda value: int(value[0].astype(np.int64).sum()), result,
                              workers=[b]).result()
        assert total == 3 * SIZE
        if born:
            assert address[0] in client.run(inodes)[a], "copied"
            assert before.inflight >= SIZE and before.residual == 0
        else:
            assert address[0] not in client.run(inodes)[a]
        assert place.partition.usage(full=True).residual == 0
        del result
        wait_until(lambda: not any(client.run(inodes).values()), "its objects to go")
        assert place.partition.usage(full=True).residual == 0
    assert place.partition.usage(full=True).inflight == 0


def test_jobs_are_right(place, born):
    with cluster(place, 3) as client:
        x = (dask.array.random.default_rng(1).random((1500, 1500), chunks=(750, 750))
             if hasattr(dask.array.random, "default_rng") else None)
        if x is None:
            x = dask.array.random.RandomState(1).random_sample((1500, 1500), chunks=(750, 750))
        got = (x @ x.T + x.sum(axis=0)).compute()
        with dask.config.set(scheduler="synchronous"):
            expected = (x @ x.T + x.sum(axis=0)).compute(scheduler="synchronous")
        assert np.allclose(got, expected)


def test_a_task_that_writes_into_what_it_returned_changes_nobody_elses(place, born):
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


def test_what_is_no_object_yet_is_memory_of_the_worker(place, born):
    def memory(dask_worker):
        return dask_worker.monitor.get_process_memory()

    with cluster(place, 1) as client:
        before = sum(on_workers(client, memory).values())
        results = client.map(lambda i: np.full(8 * SIZE, i, np.uint8), range(3))
        client.gather([client.submit(lambda value: int(value[0]), result) for result in results])
        assert sum(on_workers(client, memory).values()) - before > 2.5 * 8 * SIZE


def test_a_killed_worker_leaves_nothing(place, born):
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


@contextlib.contextmanager
def within(born, key):
    """As the key's coroutine is, while its task runs."""
    token = born.begin(key)
    try:
        yield
    finally:
        if token is not None:
            _born_end(*token)


def exchange_of(place, store, born=True, share="auto"):
    return SimpleNamespace(partition=place.partition, store=store, space=lambda: Bound(2, 0),
                           settings=SimpleNamespace(born=born, share=share))


@pytest.mark.parametrize(("wanted", "share", "all_kinds"),
                         [(None, "auto", False), (True, "auto", True), (None, "eager", True)])
def test_by_itself_only_kinds_that_others_ask_for(place, wanted, share, all_kinds):
    """What stays with its worker would take more memory than on stock, as what was freed is
    kept for the next arrays."""
    with place.partition.open("mine") as store:
        habits = Habits()
        born = Born(exchange_of(place, store, wanted, share), habits)
        for left in (False, True):
            with within(born, "make-1"):
                made = np.ones(SIZE, dtype=np.uint8)
            assert file_of(made)[1] is (all_kinds or left)
            habits.of("make-1").made += 1
            habits.of("make-1").left += 1


def test_books_that_cannot_be_read_take_nothing_from_the_measure(place):
    guard = Guard(Fallbacks(60))
    with place.partition.open("mine") as store:
        born = Born(SimpleNamespace(**vars(exchange_of(place, store)), guard=guard), Habits())
        born._partition = SimpleNamespace(stores=lambda: 1 / 0)
        assert born.memory() > 0, "Dask asks it of the monitor, which stops where that raises"
    assert guard.fallbacks.counts["failed-born"] == 1


def test_threads_of_an_executor_have_the_context_of_who_submits(place):
    assert pays(place.partition) is place.mounted
    with place.partition.open("mine") as store:
        born = Born(exchange_of(place, store), Habits())
        ours, plain = ThreadPoolExecutor(1), Plain(1)
        try:
            for executor in (ours, ours, plain):
                lend_context(executor)
            with within(born, "make-1"):
                made = ours.submit(np.full, SIZE, 5, dtype=np.uint8).result()
                assert (file_of(made)[1] and
                        not file_of(plain.submit(np.full, SIZE, 5, dtype=np.uint8).result())[1])
            assert not file_of(ours.submit(np.full, SIZE, 5, dtype=np.uint8).result())[1], (
                "the thread is as it was before")
            assert born.unpublished() >= SIZE
            store["k"] = made
            wait_until(lambda: born.unpublished() == 0, "a look at the books")
            with pytest.raises(ZeroDivisionError):
                ours.submit(lambda: 1 // 0).result()
        finally:
            ours.shutdown()
            plain.shutdown()
    with within(born, "make-1"):
        assert np.full(10, 1).sum() == 10, "the store is closed"


def test_tasks_whose_kind_returns_no_arrays_make_theirs_in_private_memory(place, born):
    def where():
        return file_of(np.full(SIZE, 3, np.uint8))[1]

    def make():
        made = np.full(SIZE, 3, np.uint8)
        made[0] = file_of(made)[1]
        return made

    with cluster(place, 1) as client:
        assert [client.submit(where, key=f"where-{i}").result() for i in range(3)] == [
            born, False, False], "its kind is new at first"
        results = [client.submit(make, key=f"make-{i}") for i in range(3)]
        assert client.gather(client.map(lambda made: bool(made[0]), results)) == [born] * 3


async def _nothing():
    await asyncio.sleep(0)


def test_a_coroutine_is_a_task_as_ever(place, born):
    with cluster(place, 1) as client:
        assert client.submit(_nothing).result() is None
        assert isinstance(place.partition, shmstore.Partition)
