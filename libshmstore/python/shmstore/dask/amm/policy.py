# SPDX-License-Identifier: Apache-2.0
"""The base class of all policies here, and of users' own."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from inspect import signature
from typing import Any, NamedTuple

from dask.utils import parse_timedelta

from ..compat import manager as dask_manager
from ..compat.manager import ActiveMemoryManagerPolicy, Suggestion
from .conductor import Conductor, Suggestions
from .hosts import Hosts

_CHUNK = 2048  # keys that are looked at between two looks at the clock: by a list comprehension, less than a millisecond


class PolicyState(NamedTuple):
    """What a policy does, for people."""

    policy: str
    rank: int  #: policies run in this order; what a lower one keeps a higher one does not drop
    state: str  #: waiting, running (its pass goes on), idle, or done: it has removed itself
    period: float  #: seconds; the manager's where it has none of its own
    runs: int
    accepted: int  #: suggestions that the manager took, in all runs
    failures: int
    took: float  #: seconds of the scheduler's event loop, in its last run


class Policy(ActiveMemoryManagerPolicy):  # type: ignore[misc]
    """A policy that knows hosts. Derive from it, say `suggest`, and name the class in `active-memory-manager.policies`.

    period   seconds between two runs; 0: in each run of the manager (`active-memory-manager.interval`)

    `suggest` is a generator of suggestions (`self.replicate`, `self.drop`), each yielded for the worker that the manager chose or None, and of
    None: a place where it may be interrupted for the event loop's sake. It yields one at least every hundred tasks or so, and looks at
    snapshots (`list(…)`), as the cluster changes meanwhile. What it raises is logged, and it runs again in its next period.
    """

    rank = 50

    def __init__(self, period: float | str = 0) -> None:
        self.period = float(parse_timedelta(period, default="s") or 0)
        self.state = "idle"
        self.due = 0.0
        self.urgent = False  #: it is to run whatever its period
        self.runs = self.accepted = self.failures = 0
        self.took = 0.0
        self.said = 0.0  # when its last failure was logged
        self.conductor: Conductor | None = None

    # -- for derived classes to say

    def suggest(self) -> Suggestions:
        """One run."""
        raise NotImplementedError

    def keeps(self, task: Any) -> tuple[int, int] | None:
        """(hosts, stores) that this policy wants a task's value to be on; None: it does not mind. Asked before replicas are dropped."""
        return None

    def in_memory(self, task: Any) -> bool:
        """A task's value has just been made. Whether the policy is to run soon. Called for each of them: quick."""
        return False

    def waits(self, task: Any) -> bool:
        """A task begins to wait for its inputs, some of which may be there. Whether the policy is to run soon. Called for each of them: quick."""
        return False

    def workers_changed(self) -> bool:
        """A worker came or went. Whether the policy is to run soon."""
        return False

    def looks_at_all(self) -> bool:
        """Whether its next run goes through all keys (`keys_from`). What is found for it before is kept for it."""
        return False

    # -- for derived classes to use

    @property
    def scheduler(self) -> Any:
        """Dask's."""
        return self._manager.scheduler

    @property
    def hosts(self) -> Hosts:
        """Which workers share a partition."""
        assert self.conductor is not None
        return self.conductor.hosts

    def replicate(self, task: Any, candidates: set[Any] | None = None) -> Suggestion:
        """To be yielded: one more replica, on one of these workers (None: any that runs). Where one is under way to a worker it is no candidate."""
        return Suggestion("replicate", task, candidates)

    def remind(self, task: Any, candidates: set[Any]) -> Suggestion:
        """To be yielded: tells the manager of a replica that is under way already, so that policies which are not of ours ask for none."""
        return Suggestion("remind", task, candidates)

    def drop(self, task: Any, candidates: set[Any] | None = None) -> Suggestion:
        """To be yielded: one replica less. The manager drops no last one, and none that a task of its worker waits for."""
        return Suggestion("drop", task, candidates)

    def coming(self, task: Any) -> set[Any]:
        """The workers to which a replica is under way."""
        assert self.conductor is not None
        return self.conductor.ledger.coming(task.key)

    def links_of(self, task: Any) -> set[Any]:
        """Running workers without a replica of a task on whose hosts one is a hard link."""
        found = set()
        for holder in dask_manager.holders(task):
            host = self.hosts.of(holder)
            if host.links(task):
                found.update(host.workers)
        return (found & self.scheduler.running) - set(dask_manager.holders(task))

    def keys_from(self, nbytes: int) -> Iterator[list[Any]]:
        """The tasks in memory of at least so many bytes, some at a time: a place to be interrupted is between two lists. One of several workers
        comes more than once, and one that comes may be in memory no more. Policies that ask for the same size share one look at all keys, where
        those that come later have said that they will (`looks_at_all`)."""
        assert self.conductor is not None
        known = self.conductor.keys_from.get(nbytes)
        if known is not None:
            yield from known
            return
        shared = self.conductor.others_look_at_all(self)
        found: list[list[Any]] = []  # not one list: the collector of garbage would go through it at once
        for worker in list(self.scheduler.workers.values()):  # by workers: one list of all keys would hold the event loop for long
            tasks = list(worker.has_what)
            for i in range(0, len(tasks), _CHUNK):
                large = [task for task in tasks[i : i + _CHUNK] if task.nbytes >= nbytes]
                if shared:
                    found.append(large)
                yield large
        if shared:
            self.conductor.keys_from[nbytes] = found

    def ensure(self, task: Any, n_hosts: int, n_stores: int, on: set[Any] | None = None) -> Suggestions:
        """For `yield from`: asks for what a key lacks of so many hosts and stores. on: workers that may get it; None: all."""
        running = self.scheduler.running if on is None else self.scheduler.running & on
        has = {worker for worker in dask_manager.holders(task) if worker in running} | self.coming(task)
        there = set(self.hosts.units(task, has))
        while len(there) < n_hosts:
            taken = {worker for unit in there for worker in getattr(unit, "workers", (unit,))}
            worker = yield self.replicate(task, running - taken - has)
            if worker is None:
                break
            has.add(worker)
            there.add(next(iter(self.hosts.units(task, (worker,)))))
        while len(has) < n_stores:
            worker = yield self.replicate(task, (self.links_of(task) & running) - has or running - has)
            if worker is None:
                break
            has.add(worker)

    def finish(self) -> None:
        """The policy is done with: removes it."""
        self._manager.policies.discard(self)
        self.state = "done"

    def __repr__(self) -> str:
        """Its arguments as far as it keeps them under their names."""
        said = [name for name in signature(type(self)).parameters if name != "period" and name in vars(self)]
        return f"{type(self).__name__}({', '.join(f'{name}={vars(self)[name]!r}' for name in said)})"

    # -- the manager's side

    @property
    def manager(self) -> Any:
        """Dask's."""
        return self._manager

    @manager.setter
    def manager(self, manager: Any) -> None:
        self._manager = manager
        self.conductor = Conductor.of(manager)
        dask_manager.in_order(manager)

    def run(self) -> Generator[Suggestion, Any, None]:
        """Dask calls it."""
        assert self.conductor is not None
        return self.conductor.turn()

    def ended(self, now: float) -> None:
        """A run has ended."""
        self.runs += 1
        self.due = now + self.period
        if self.state != "done":
            self.state = "idle"

    def describe(self) -> PolicyState:
        """What it does."""
        period = self.period or float(self._manager.interval)
        return PolicyState(repr(self), self.rank, self.state, period, self.runs, self.accepted, self.failures, self.took)
