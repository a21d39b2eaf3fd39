# SPDX-License-Identifier: Apache-2.0
"""Where all workers share one partition, tasks with large results wait at the scheduler and go to
workers by priority; all others are stock's."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import fcntl
import logging
import os
import signal
import sys

import dask
import distributed
import numpy as np
import pytest
import tasks
from conftest import PREFIX, cluster, on_workers, wait_until, workers
from dask.utils import typename
from distributed import wait

import shmstore.dask
from shmstore.dask import hosts
from shmstore.dask.compat.scheduler import Queue
from shmstore.dask.config import Fallbacks, Guard
from shmstore.dask.handle import Handle
from shmstore.dask.hosts import Queueing

MIB = 1 << 20


# -- the rules, for what looks like Dask's


class Looks:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def worker(address, partition="p", used=0, processing=0, occupancy=0.0, **metrics):
    common = {"size": 100, "min-size": 64 << 10, "private-types": ["pandas.core.frame.DataFrame"]}
    ours = {"partition": partition, "used": used, **common, **metrics} if partition else None
    return Looks(address=address, metrics={"shmstore": ours}, processing=range(processing),
                 long_running=(), occupancy=occupancy, nthreads=1)


def task(*inputs, nbytes=-1, kind="numpy.ndarray", on=(), made=(), waiters=2, wanted=()):
    """made: sizes of the results that there were of its group. waiters: how
    many tasks still need it."""
    group = Looks(nbytes_total=sum(made), states=collections.Counter(memory=len(made)))
    return Looks(dependencies=inputs, nbytes=nbytes, type=kind, who_has=set(on), group=group,
                 waiters=range(waiters), who_wants=wanted)


def rules(*cluster):
    return Queueing(Looks(workers={each.address: each for each in cluster}))


LARGE, SMALL, PRIVATE = task(nbytes=4 * MIB), task(nbytes=100), task(
    nbytes=4 * MIB, kind="pandas.core.frame.DataFrame")
GROWS = task(LARGE, LARGE, made=[2 * MIB, 3 * MIB])


def test_large_results_of_inputs_that_stay_wait():
    ours, last = rules(worker("a"), worker("b")), task(nbytes=4 * MIB, waiters=1)
    assert ours.waits(GROWS) and ours.waits(task(LARGE, LARGE)), (
        "nothing is known of its kind: it may be as large as its inputs")
    assert ours.waits(task(LARGE, task(nbytes=4 * MIB, waiters=1, wanted=("client",)),
                           made=[4 * MIB])), "a client still has that input"
    assert (not ours.waits(task(LARGE, LARGE, made=[100, 100])) and
            not ours.waits(task(LARGE, LARGE, made=[2 * MIB]))), "it takes little"
    assert (not ours.waits(task(LARGE, made=[1.5 * MIB])) and
            not ours.waits(task(LARGE, SMALL))), "a cut"
    assert not ours.waits(task(last, last, LARGE, made=[8 * MIB])), (
        "a join, which makes its inputs free")
    assert not ours.waits(task(SMALL)) and not ours.waits(task(made=[MIB])), (
        "a root, which Dask's own queue is for")


def test_what_has_to_be_sent_stays_where_it_is():
    ours = rules(worker("a"), worker("b"))
    text, shared = task(nbytes=4 * MIB, kind="bytes"), task(nbytes=4 * MIB, kind=typename(Handle))
    assert ours.waits(task(shared, LARGE)), "as Dask knows a result that its worker shared at once"
    assert (not ours.waits(task(PRIVATE, LARGE, LARGE, made=[2 * MIB])) and
            not ours.waits(task(text, LARGE, LARGE, made=[2 * MIB])))


def test_inputs_are_links_also_where_the_partition_is_full():
    """A task that is larger than a worker's limit runs all the same: its inputs take
    no memory of the worker's."""
    ours = rules(worker("a"), worker("b", used=90))
    assert not ours.waits(GROWS) and ours.linked(task(LARGE, LARGE, PRIVATE)) == 8 * MIB
    assert rules(worker("a"), worker("b", "another")).linked(task(LARGE, LARGE)) == 0


@pytest.mark.parametrize(
    "others", [(), (worker("b", "another"),), (worker("b", None),), (worker("b", used=80),)],
    ids=["alone", "two-hosts", "shares-nothing", "full"]
)
def test_nothing_waits_where_workers_do_not_share_one_partition_with_room(others):
    ours = rules(worker("a"), *others)
    busy = worker("a", processing=1, occupancy=10)
    assert (not ours.waits(GROWS) and ours.takers([busy]) == [busy] and
            ours.choose(GROWS, [busy]) is None)


def test_a_worker_has_one_task_for_each_thread_or_short_ones():
    ours = rules(worker("a"), worker("b"))
    free, busy, nearly_free = worker("c", occupancy=10), worker(
        "d", processing=1, occupancy=10), worker("e", processing=1, occupancy=0.01)
    waiting = worker("f", processing=2, occupancy=10)
    waiting.long_running = range(2)
    assert ours.takers([free, busy, nearly_free, waiting]) == [free, nearly_free, waiting], (
        "it takes a round trip to get the next; and those that run for long have left their thread"
    )


def test_a_free_thread_goes_before_inputs_that_are_there():
    ours = rules(worker("a"), worker("b"))
    free, has_inputs, busy = worker("a"), worker("b"), worker("c", processing=1)
    wanted = task(task(nbytes=4 * MIB, on=[has_inputs, busy]), task(nbytes=8 * MIB, on=[busy]))
    assert ours.choose(wanted, [free, has_inputs]) is has_inputs
    assert ours.choose(wanted, [free, busy]) is free
    assert ours.choose(wanted, [busy]) is busy


def test_inputs_that_are_links_do_not_count_for_a_memory_limit():
    crowd = [worker("a"), worker("b")]
    ours = rules(*crowd)
    assert ours.linked(task(LARGE, PRIVATE, SMALL)) == LARGE.nbytes
    assert rules(worker("a")).linked(task(LARGE)) == 0


def test_an_error_of_ours_leaves_it_to_dask():
    free = dict.fromkeys(("worker_restrictions", "host_restrictions", "resource_restrictions",
                          "actor"))
    broken, crowd = Looks(group=None, dependencies=None,
                          **free), [Looks(address="broken", memory_limit=0)]
    dask = Looks(
        is_rootish=lambda task: False, decide_worker_rootish_queuing_enabled=lambda: "as ever",
        _add_to_processing=lambda task, worker: "as ever",
        idle_task_count=crowd, validate=False,
    )  # fmt: skip
    queue = Queue(dask, rules(worker("a"), worker("b")), Guard(Fallbacks(3600)))
    assert not queue.is_rootish(broken) and queue._takers() == crowd
    queue._next = broken
    assert queue.decide() == "as ever"


# -- in clusters


def grow(a, i, gate=None, b=None):
    """A result as large as its input; when the gate is open."""
    if gate is not None:
        with open(gate) as file:
            fcntl.flock(file, fcntl.LOCK_SH)
    return a + i


@contextlib.contextmanager
def closed(path):
    """Within, who comes to the gate waits there."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield str(path)


def states(client):
    """{state: number of tasks} at the scheduler."""
    return client.run_on_scheduler(lambda dask_scheduler: dict(collections.Counter(
        each.state for each in dask_scheduler.tasks.values())))


def ours_queue(client):
    return client.run_on_scheduler(lambda dask_scheduler: hasattr(dask_scheduler, hosts._NAME))


def begin(client, **options):
    """Inputs that are in memory, so many that Dask takes no task that reads one for a root task;
    one was read by a task of that kind."""
    sources = client.map(tasks.make, range(6), key=[f"make-{i}" for i in range(6)], **options)
    wait([*sources, client.submit(grow, sources[0], 0, key="grow-0", **options)])
    return sources


def go_on(client, sources, gate, n, name="grow"):
    """So many tasks with large results, behind a gate."""
    return [client.submit(grow, sources[i % len(sources)], i, gate, sources[(i + 1) % len(sources)],
                          key=f"{name}-{i}") for i in range(1, 1 + n)]


def check(slow):
    """The tasks have the right results."""
    assert [each.result(timeout=60)[0] for each in slow] == pytest.approx(
        [tasks.make(i % 6)[0] + i for i in range(1, 1 + len(slow))])


def test_they_wait_until_a_worker_is_free(place, tmp_path):
    with cluster(place, 2) as client:
        wait_until(lambda: ours_queue(client), "the scheduler was asked")
        sources = begin(client)
        # its kind, while there is one of it
        known = client.submit(tasks.total, sources[0], key="total-0")
        wait(known)
        with closed(tmp_path / "gate") as gate:
            slow = go_on(client, sources, gate, 8)
            wait_until(lambda: states(client).get("queued", 0) >= 4, "most of them wait")
            before = states(client)
            assert before["processing"] == 8 - before["queued"]
            quick = client.submit(tasks.total, sources[1], key="total-1")
            wait_until(lambda: states(client)["processing"] > before["processing"],
                       "what is small is a worker's at once")
            assert states(client)["queued"] == before["queued"]
        assert quick.result() == pytest.approx(float(tasks.make(1).sum()))
        check(slow)


@pytest.mark.parametrize("settings", [{f"{PREFIX}.queue": False},
                                      {"distributed.scheduler.worker-saturation": "inf"}],
                         ids=["off", "no-queue"])
def test_as_on_stock(place, tmp_path, settings):
    with cluster(place, 2, settings=settings) as client:
        sources = begin(client)
        with closed(tmp_path / "gate") as gate:
            slow = go_on(client, sources, gate, 8)
            wait_until(lambda: states(client).get("processing", 0) == 8, "each is a worker's")
            assert not ours_queue(client)
        check(slow)


def test_a_worker_that_dies_takes_nothing_along(place, tmp_path):
    """Neither the input of what waits at the scheduler, nor what the worker was given."""
    with cluster(place, 3, settings={"distributed.scheduler.allowed-failures": 10}) as client:
        wait_until(lambda: ours_queue(client), "the scheduler was asked")
        a, *_ = workers(client)
        sources = begin(client, workers=[a], allow_other_workers=True)
        with closed(tmp_path / "gate") as gate:
            slow = go_on(client, sources, gate, 12)
            wait_until(lambda: states(client).get("queued", 0) >= 4, "some wait")
            os.kill(on_workers(client, process)[a], signal.SIGKILL)
            wait_until(lambda: a not in workers(client), "it is gone")
        check(slow)


def test_a_result_that_is_larger_than_a_workers_memory_limit(place):
    """As where a collection is computed: its inputs are maps, and it is made in the partition.
    Stock refuses the task, or its worker is killed for it."""
    with cluster(place, 2, memory_limit="256 MiB",
                 settings={"distributed.scheduler.allowed-failures": 0}) as client:
        wait_until(lambda: ours_queue(client), "the scheduler was asked")
        client.run(tasks.make, 0)
        parts = client.map(tasks.make, range(10), [32 * MIB] * 10)
        whole = client.submit(np.concatenate, parts)
        assert whole.result(60).nbytes == 320 * MIB
        assert (whole.result()[:: 4 * MIB] == [tasks.make(i, 32 * MIB)[0] for i in range(10)]).all()


def process(worker):
    return os.getpid()


def test_a_scheduler_that_does_not_know_us_is_left_as_it_is(place, caplog, monkeypatch):
    async def go():
        async with distributed.Scheduler(dashboard_address=None, port=0) as scheduler:
            async with shmstore.dask.Worker(scheduler.address, nthreads=1,
                                            memory_limit="1 GiB") as worker:
                await asyncio.gather(*worker._starting)
                return hasattr(scheduler, hosts._NAME)

    monkeypatch.setitem(sys.modules, "shmstore.dask.hosts", None)  # where it is imported
    monkeypatch.delattr(shmstore.dask, "hosts")
    with dask.config.set({f"{PREFIX}.partition": place.path}), caplog.at_level(
            logging.INFO, logger="distributed.worker.shared"):
        assert not asyncio.run(go())
    assert [r for r in caplog.records if "shmstore is not installed where the scheduler runs" in
            r.getMessage()]
