# SPDX-License-Identifier: Apache-2.0
"""How policies are run: by rank, each once in a pass, in slices, over a simulated cluster
with Dask's own manager."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from argparse import Namespace
from importlib.machinery import SourceFileLoader

import dask
import pytest
from conftest import HERE, PREFIX
from distributed.active_memory_manager import (ActiveMemoryManagerExtension, ReduceReplicas,
                                               RetireWorker, Suggestion)

from shmstore.dask import amm
from shmstore.dask.amm.conductor import Conductor

BENCH = os.path.join(HERE, "..", "..", "bench")
sys.path.insert(0, BENCH)
bench = SourceFileLoader("bench_amm", os.path.join(BENCH, "bench_amm")).load_module()


class Noted(amm.Policy):
    """Notes when it runs; takes its time."""

    def __init__(self, log, name, rank, n=1, period=0, pause=0.0):
        super().__init__(period)
        self.log, self.name, self.rank, self.n, self.pause = log, name, rank, n, pause

    def suggest(self):
        for i in range(self.n):
            time.sleep(self.pause)
            self.log.append((self.name, i))
            yield None


def manager_of(*policies, n_tasks=100):
    scheduler = bench.Scheduler(n_tasks, 8, 2, 1)
    manager = ActiveMemoryManagerExtension(scheduler, set(), measure="optimistic", register=False,
                                           start=False, interval=2.0)
    for policy in policies:
        manager.add_policy(policy)
    return manager


def rest(manager):
    """One pass, to its end."""
    manager.run_once()
    while Conductor.of(manager)._pass:
        manager.run_once()


def test_by_rank_and_before_dasks_own():
    log = []

    class Stock(ReduceReplicas):
        def run(self):
            log.append(("stock", 0))
            yield from ()

    manager = manager_of(Stock(), *(Noted(log, f"{rank}", rank) for rank in (30, 10, 70)))
    rest(manager)
    assert [name for name, _ in log if name != "stock"] == ["10", "30", "70"] and log[0][0] == "10"


def test_each_once_in_a_pass_and_in_slices():
    log = []
    slow = Noted(log, "slow", 20, n=5, pause=0.015)
    manager = manager_of(Noted(log, "first", 10), slow, Noted(log, "last", 30))
    runs = 0
    while Conductor.of(manager)._pass or not runs:
        manager.run_once()
        assert len(log) <= 4 * (runs + 1), "a slice is 20 ms, and what one step takes"
        runs += 1
    assert runs >= 3 and slow.state == "idle" and slow.runs == 1
    assert [entry for entry in log if entry[0] != "slow"] == [("first", 0), ("last", 0)], (
        "nobody runs twice in one pass")
    assert [i for name, i in log if name == "slow"] == list(range(5))


def test_the_rest_of_a_pass_is_asked_for_at_once():
    log = []
    manager = manager_of(Noted(log, "slow", 20, n=10, pause=0.015))

    async def go():
        manager.run_once()
        await asyncio.sleep(1)

    asyncio.run(go())
    assert len(log) == 10


def test_candidates_of_any_kind_and_a_suggestion_that_makes_no_sense():
    """Dask's manager would trip over them, and no policy would run."""
    log = []

    class Users(amm.Policy):
        def __init__(self, *suggestions):
            super().__init__(0)
            self.suggestions, self.answers = suggestions, []

        def suggest(self):
            for suggestion in self.suggestions:
                self.answers.append((yield suggestion(self.scheduler)))

    def first(scheduler):
        return next(iter(scheduler.tasks.values()))

    def others(scheduler):
        return [worker for worker in scheduler.workers.values() if worker not in first(
            scheduler).who_has]

    listed = Users(
        lambda scheduler: Suggestion("replicate", first(scheduler), others(scheduler)),
        lambda scheduler: ("replicate", first(scheduler), iter(others(scheduler)[:1])),
        lambda scheduler: ("drop", first(scheduler), list(scheduler.workers.values())),
    )
    wrong = [
        Users(lambda scheduler: ("replicate", first(scheduler), 5)),
        Users(lambda scheduler: ("move", first(scheduler), None)),
        Users(lambda scheduler: ("drop", "a key", None)),
        Users(lambda scheduler: 7),
    ]
    manager = manager_of(listed, *wrong, Noted(log, "last", 900))
    rest(manager)
    assert (log == [("last", 0)] and listed.failures == 0 and
            [policy.failures for policy in wrong] == [1] * 4)
    assert listed.answers[0] is not None


def test_a_policy_says_its_arguments_and_the_managers_period():
    class Pinned(amm.Policy):
        def __init__(self, prefix, copies=2, period=0):
            super().__init__(period)
            self.prefix, self.copies = prefix, copies

        def suggest(self):
            yield None

    theirs, own = Pinned("model"), Pinned("late", copies=3, period="5s")
    manager = manager_of(theirs, own, amm.InDemand(waiters=7))
    manager.interval = 2.5
    assert [(p.describe().policy, p.describe().period) for p in (theirs, own)] == [
        ("Pinned(prefix='model', copies=2)", 2.5), ("Pinned(prefix='late', copies=3)", 5.0)]
    assert {repr(p).split(", ")[0] for p in manager.policies} > {"InDemand(waiters=7"}


def test_periods_and_failures():
    log = []

    class Broken(amm.Policy):
        rank = 5

        def suggest(self):
            yield None
            raise ValueError("broken on purpose")

    broken, often, rarely = Broken(), Noted(log, "often", 10), Noted(log, "rarely", 20, period="1h")
    manager = manager_of(broken, often, rarely)
    for _ in range(3):
        rest(manager)
    assert ([name for name, _ in log] == ["often", "rarely", "often", "often"] and
            broken.failures == 3)


def test_what_is_under_way_is_not_asked_for_twice_and_dasks_own_retirement_is_told():
    # Dask's own retirement runs in the same run of the manager: Retire comes to all of it before,
    # also where its slice of time is over.
    with dask.config.set({f"{PREFIX}.amm.slice": "10us"}):
        manager = manager_of(amm.Retire(), amm.Insurance(size=0, check=0))
    scheduler, asked = manager.scheduler, []
    # and it takes time
    scheduler.request_acquire_replicas = lambda address, keys, *, stimulus_id: asked.extend(
        (address, key) for key in keys)
    leaving = next(iter(scheduler.workers.values()))
    leaving.status = bench.Status.closing_gracefully
    scheduler.running.discard(leaving)
    retirement = RetireWorker(leaving.address)
    manager.add_policy(retirement)
    alone = [task for task in leaving.has_what if len(task.who_has) == 1]
    rest(manager)
    first = list(asked)
    host = Conductor.of(manager).hosts.of(leaving)
    siblings = {worker.address for worker in host.workers} - {leaving.address}
    for task in alone:
        took = [address for address, key in first if key == task.key]
        assert took and took[0] in siblings, "to siblings"
    asked.clear()
    rest(manager)
    before = {key for _, key in first}
    assert not {(address, key) for address, key in asked if key in before} - set(first), (
        "nobody else is asked, though nothing has arrived")


def test_a_retirement_goes_before_a_pass_that_began():
    class Slow(amm.Policy):
        rank = 50

        def suggest(self):
            for _ in range(1000):
                yield None

    slow = Slow()
    with dask.config.set({f"{PREFIX}.amm.slice": "10us"}):
        manager = manager_of(amm.Retire(), slow)
    manager.run_once()
    assert slow.state == "running", "its pass has begun"
    scheduler, asked = manager.scheduler, []
    scheduler.request_acquire_replicas = lambda address, keys, *, stimulus_id: asked.append(address)
    leaving = next(iter(scheduler.workers.values()))
    leaving.status = bench.Status.closing_gracefully
    scheduler.running.discard(leaving)
    manager.add_policy(RetireWorker(leaving.address))
    siblings = {worker.address for worker in Conductor.of(manager).hosts.of(leaving).workers}
    manager.run_once()
    assert slow.state == "running", "its pass goes on"
    assert asked and set(asked) < siblings


def test_policies_share_one_look_at_all_keys():
    found = []

    class Looks(amm.Policy):
        def looks_at_all(self):
            return True

        def suggest(self):
            found.append(set())
            for tasks in self.keys_from(bench.MIB):
                found[-1].update(tasks)
                yield None

    manager = manager_of(Looks(), Looks(), n_tasks=30_000)
    workers, looks = list(manager.scheduler.workers.values()), 0

    class Counted(dict):
        def __iter__(self):
            nonlocal looks
            looks += 1
            return super().__iter__()

    for worker in workers:
        worker.has_what = Counted(worker.has_what)
    for passes in (1, 2):
        rest(manager)
        assert looks == passes * len(workers), "one look for both, and a new one in each pass"
        assert not Conductor.of(manager).keys_from, "no task is kept beyond the pass"
    assert (len(found) == 4 and all(tasks == {task for task in manager.scheduler.tasks.values()
                                              if task.nbytes >= bench.MIB} for tasks in found))


def test_what_no_later_policy_asks_for_is_not_kept():
    kept = []

    class Looks(amm.Policy):
        def suggest(self):
            for tasks in self.keys_from(bench.MIB):
                yield None
            kept.append(dict(self.conductor.keys_from))

    rest(manager_of(Looks(), Looks()))
    assert kept == [{}, {}]


@pytest.mark.skipif(gc.is_tracked({1: 2}), reason="this Python's collector goes through dicts of "
                                                  "numbers, too")
def test_pythons_collector_does_not_go_through_what_is_settled():
    policy = amm.HostReduceReplicas(linger=0)
    manager = manager_of(policy, n_tasks=2000)
    rest(manager)
    assert sum(map(len, policy._settled)) == len(manager.scheduler.replicated_tasks) > 300
    assert not any(map(gc.is_tracked, policy._settled))
    assert max(map(len, policy._settled)) < len(manager.scheduler.replicated_tasks) / 2, "in parts"
    rest(manager)
    policy.workers_changed()
    looked = []
    policy._demand = lambda task, enough: looked.append(task) or enough
    rest(manager)
    assert len(looked) >= 100, "what was settled is looked at anew where workers came or went"


def test_a_link_that_moved_to_another_host_is_seen():
    manager = manager_of(amm.HostReduceReplicas(linger=0), n_tasks=20)
    rest(manager)
    task = on_two_hosts(manager.scheduler)
    for _ in range(10):
        rest(manager)
    assert len(task.who_has) == 1, "two copies on two hosts, and nobody waits"


def on_two_hosts(scheduler):
    """A task of two links on one host: now of a copy on each of two."""
    task = scheduler.tasks["x-0"]
    first, second = task.who_has
    scheduler.remove(task, first)
    scheduler.add(task, next(worker for worker in scheduler.workers.values()
                             if worker.host != second.host))
    return task


def test_a_hosts_copy_lingers_while_there_is_room():
    manager = manager_of(amm.HostReduceReplicas(linger=0.5), n_tasks=20)
    task = on_two_hosts(manager.scheduler)

    def runs(seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            rest(manager)
            time.sleep(0.02)
        return len(task.who_has)

    assert runs(0.3) == 2, "a task that needs it may come"
    task.waiters.add(bench.Bag(processing_on=None))
    assert runs(0.3) == 2, "one came: the time begins anew"
    task.waiters.clear()
    assert runs(0.3) == 2
    assert runs(0.4) == 1
    has = next(iter(task.who_has))
    manager.scheduler.add(task, next(worker for worker in manager.scheduler.workers.values()
                                     if worker.host != has.host))
    assert runs(0.1) == 2
    for worker in manager.scheduler.workers.values():
        if worker.host == has.host:
            worker.metrics["shmstore"] = {**worker.metrics["shmstore"], "used": 63 << 30}
    assert runs(0.4) == 1 and has not in task.who_has, (
        "a host that is short of room keeps nothing that another has")


class Dropping(amm.Policy):
    """Drops the replicas of these workers, as it decided before the slice ended."""

    def __init__(self, *workers):
        super().__init__()
        self.workers = workers

    def suggest(self):
        for worker in self.workers:
            yield self.drop(self.scheduler.tasks["x-0"], {worker})


def test_the_last_replica_of_workers_that_stay_is_not_dropped():
    """A worker that was asked to go meanwhile has another one, and Dask's manager counts that."""
    manager = manager_of(n_tasks=20)
    scheduler = manager.scheduler
    task = scheduler.tasks["x-0"]
    first, second = task.who_has
    third = next(worker for worker in scheduler.workers.values() if worker not in task.who_has)
    scheduler.add(task, third)
    scheduler.running.discard(third)
    manager.add_policy(Dropping(first, second))
    rest(manager)
    assert len({first, second} & task.who_has) == 1 and third in task.who_has
    scheduler.running.add(third)
    rest(manager)
    assert task.who_has == {third}


@pytest.mark.parametrize("n_tasks", [20_000])
def test_a_large_cluster_comes_to_rest(n_tasks):
    results = asyncio.run(bench.measure(Namespace(tasks=n_tasks, workers=50, hosts=4, seed=1)))
    assert results["first"]["removed"] == 0 and results["steady"]["acquired"] >= 10
