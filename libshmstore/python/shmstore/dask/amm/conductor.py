# SPDX-License-Identifier: Apache-2.0
"""Runs the policies of one manager: in the order of their ranks, in slices of time,
over one view of the cluster. With the base class of all policies, and the ledger of
what they have asked of workers.

Dask's manager runs each policy to its end, in any order, on the event loop. Ours hand it a common
generator instead. Within it a pass over all policies that are due goes on from where it stopped;
when the slice is used up the rest waits for the manager's next run, which is asked for at once. The
first policy of ours that the manager comes to does this for all.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, NamedTuple

from dask.utils import parse_timedelta

from ..compat.scheduler import (ActiveMemoryManagerPolicy, Status, Suggestion, Watch, holders,
                                in_order, logger)
from ..config import ManagerSettings
from ..hosts import Hosts

if TYPE_CHECKING:
    from distributed.active_memory_manager import ActiveMemoryManagerExtension as Manager
    from distributed.scheduler import Scheduler

    from ..compat.scheduler import Key, TaskState, WorkerState

# seconds between two slices: a coroutine that waits for a timer or a message needs
# two rounds of the event loop
_BREATH = 0.001
_FRESH = 0.25  # seconds for which a view of the cluster is good
_SAY = 60.0  # seconds between two lines about a policy that fails
# keys that are looked at between two looks at the clock: by a list
# comprehension, less than a millisecond
_CHUNK = 2048
_REFUSED = 1.0  # seconds within which a worker that refuses to remove a replica has said so
_conductors: weakref.WeakKeyDictionary[Manager, Conductor] = weakref.WeakKeyDictionary()

Suggestions = Generator["Suggestion | None", "WorkerState | None", None]


@dataclass
class Counters:
    """Since the scheduler's start."""

    links: int = 0  #: replicas made by hard link
    copies: int = 0  #: replicas made over the network
    bytes_linked: int = 0  #: bytes that links did not copy
    bytes_copied: int = 0
    lost: int = 0  #: acquisitions that did not arrive in time
    drops: int = 0
    #: bytes of the values whose replicas went; what the partition gets
    # back is less where links stay
    bytes_dropped: int = 0
    drops_refused: int = 0  #: by workers
    suggestions_refused: int = 0  #: by the manager


class Ledger:
    """Open requests of the policies of one scheduler to workers: none is made
    twice, and refusals are counted.

    A worker answers neither a request to acquire nor one to remove a replica. `who_has` tells: an
    acquisition arrived when the worker is a holder; a removal was refused when it is again.
    in_flight: seconds after which an acquisition is given up.
    """

    def __init__(self, in_flight: float = 60.0) -> None:
        self.in_flight = in_flight
        self.counters = Counters()
        # key -> worker -> until when, whether it is a link
        self._coming: dict[Key, dict[WorkerState, tuple[float, bool]]] = {}
        self._going: list[tuple[Key, WorkerState, float]] = []  # key, worker, when

    def acquire(self, task: TaskState, worker: WorkerState, link: bool, now: float) -> None:
        """A worker was asked to acquire a replica."""
        self._coming.setdefault(task.key, {})[worker] = now + self.in_flight, link

    def remove(self, task: TaskState, worker: WorkerState, now: float) -> None:
        """A worker was asked to remove one."""
        self._going.append((task.key, worker, now))
        self.counters.drops += 1
        self.counters.bytes_dropped += task.nbytes

    def coming(self, key: Key) -> set[WorkerState]:
        """The workers to which a replica is under way."""
        return set(self._coming.get(key, ()))

    def __len__(self) -> int:
        return sum(map(len, self._coming.values()))

    def settle(self, tasks: Mapping[Key, TaskState], workers: Mapping[str, WorkerState],
               now: float) -> None:
        """Compares with what is there now."""
        counters = self.counters
        for key in list(self._coming):
            task, coming = tasks.get(key), self._coming[key]
            for worker, (until, link) in list(coming.items()):
                if task is not None and worker in (task.who_has or ()):
                    counters.links += link
                    counters.copies += not link
                    counters.bytes_linked += task.nbytes if link else 0
                    counters.bytes_copied += 0 if link else task.nbytes
                elif task is None or task.state != "memory" or worker.address not in workers:
                    pass  # nobody wants it any more, or can take it
                elif now < until:
                    continue
                else:
                    counters.lost += 1
                del coming[worker]
            if not coming:
                del self._coming[key]
        still = []
        for key, worker, when in self._going:
            task = tasks.get(key)
            if task is not None and worker in (task.who_has or ()):
                counters.drops_refused += 1
            elif now < when + _REFUSED:
                still.append((key, worker, when))
        self._going = still


class Conductor:
    """Of one manager. On the scheduler's event loop."""

    def __init__(self, manager: Manager) -> None:
        self._manager = weakref.ref(manager)
        settings = self.settings = ManagerSettings()
        self.hosts = Hosts(settings.high, settings.low)
        self.ledger = Ledger(settings.in_flight)
        self.longest = 0.0  #: seconds of the longest slice
        self._watch: Watch | None = None
        self._stale = 0.0  # when the view is taken anew
        self._seen: object = None  # the manager's run that was served
        self._pass: deque[tuple[Policy, Suggestions]] = deque()
        self._entered: set[Policy] = set()  # into the pass: no policy runs twice in one
        #: what policies found in this pass: bytes -> tasks of at least so many
        self.keys_from: dict[int, list[list[TaskState]]] = {}
        self._kicked: asyncio.TimerHandle | None = None  # a timer
        self._ours: list[Policy] = []  # as of the last run
        self._listeners: dict[str, list[Policy]] = {}  # of them: who is to be told of what

    @classmethod
    def of(cls, manager: Manager) -> Conductor:
        """The one of a manager; made when it is first asked for."""
        conductor = _conductors.get(manager)
        if conductor is None:
            conductor = _conductors[manager] = cls(manager)
        return conductor

    @classmethod
    def known(cls, manager: Manager | None) -> Conductor | None:
        """The one of a manager that has policies of ours."""
        return _conductors.get(manager) if manager is not None else None

    @property
    def manager(self) -> Manager:
        """Dask's."""
        manager = self._manager()
        assert manager is not None, "a policy outlived its manager"
        return manager

    @property
    def scheduler(self) -> Scheduler:
        """Dask's."""
        return self.manager.scheduler

    def policies(self) -> list[Policy]:
        """Ours, in the order in which they run."""
        return [policy for policy in self.manager.policies if isinstance(policy, Policy)]

    def turn(self) -> Generator[Suggestion, WorkerState | None, None]:
        """For the policies: what each of them does in a run of the manager."""
        manager = self.manager
        if manager.pending is self._seen:
            return
        self._seen = manager.pending
        started = time.monotonic()
        self._begin()
        try:
            yield from self._go_on(started + self.settings.slice)
        finally:
            self.longest = max(self.longest, time.monotonic() - started)
            if self._pass:
                self.kick(_BREATH)
            else:
                self.keys_from.clear()
                if any(policy.urgent for policy in self._ours):
                    self.kick()

    def _begin(self) -> None:
        manager, scheduler, now = self.manager, self.scheduler, time.monotonic()
        if self._watch is None:
            self._watch = Watch(scheduler, self._tell)
            self._publish()
        if not self._pass or now >= self._stale:  # what heartbeats say is as old in the next slices
            self._stale = now + _FRESH
            self.hosts.update(scheduler.workers.values())
            self.ledger.settle(scheduler.tasks, scheduler.workers, now)
        self._pass = deque(entry for entry in self._pass if entry[0] in manager.policies)
        if not self._pass:
            self._entered.clear()
        self._ours = self.policies()
        self._listeners = {what: [policy for policy in self._ours
                                  if getattr(type(policy), what) is not getattr(Policy, what)]
                           for what in ("in_memory", "waits", "workers_changed")}
        for policy in self._ours:
            if ((policy.urgent or now >= policy.due) and policy.state != "waiting" and
                (policy.at_once or policy not in self._entered)):
                self._entered.add(policy)
                self._enter(policy)

    def _publish(self) -> None:
        from .serving import publish  # which asks conductors

        # not one that Dask has made for a single retirement
        if self.known(self.scheduler.extensions.get("amm")) is self:
            publish(self.scheduler)

    def _enter(self, policy: Policy) -> None:
        """Into the pass, behind those of its rank."""
        at = sum(1 for other, _ in self._pass if other.rank <= policy.rank)
        policy.state, policy.answer = "waiting", None
        self._pass.insert(at, (policy, policy.suggest()))

    def _go_on(self, deadline: float) -> Generator[Suggestion, WorkerState | None, None]:
        while self._pass:
            policy, suggestions = self._pass[0]
            began = time.monotonic()
            if policy.state != "running":
                policy.state, policy.took, policy.urgent = "running", 0.0, False
            answer, policy.answer = policy.answer, None
            ended = False
            try:
                suggestion = suggestions.send(answer)
                if suggestion is not None:
                    policy.answer = yield from self._suggest(policy, suggestion)
            except StopIteration:
                ended = True
            except GeneratorExit:
                raise
            except Exception:
                policy.failures += 1
                if policy.failures == 1 or began >= policy.said + _SAY:
                    policy.said = began
                    logger.exception("shmstore: policy %r failed, %d times so far; it is run again "
                                     "in its next period", policy, policy.failures)
                ended = True
            now = time.monotonic()
            policy.took += now - began
            if ended:
                self._pass.popleft()
                policy.runs, policy.due = policy.runs + 1, now + policy.period
                if policy.state != "done":
                    policy.state = "idle"
            # A policy begins with a list of what it looks at: not at the end of a slice.
            if policy.at_once:
                deadline += now - began  # the others have their slice all the same
            elif now >= (deadline - self.settings.slice / 2 if ended else deadline):
                return

    def _suggest(self, policy: Policy,
                 suggestion: Suggestion) -> Generator[Suggestion, WorkerState | None,
                                                      WorkerState | None]:
        """Hands a suggestion to the manager and books its answer. Raises what is wrong with it:
        what the manager trips over ends its run, for all."""
        op, task, candidates = suggestion
        candidates = None if candidates is None else set(candidates)
        if op not in ("replicate", "remind", "drop") or not hasattr(task, "who_has"):
            raise ValueError(f"{policy!r} must suggest replicate, remind or drop of a task of the "
                             f"scheduler, not {op!r} of {task!r}")
        now = time.monotonic()
        if op == "remind":  # type: ignore[comparison-overlap]
            return (yield Suggestion("replicate", task, candidates))
        if op == "replicate":
            coming = self.ledger.coming(task.key)
            if coming:
                candidates = (self.scheduler.running if candidates is None else candidates) - coming
            if candidates is not None and not candidates:
                return None
            if not holders(task):  # forgotten since the slice before
                return None
            worker = yield Suggestion(op, task, candidates)
            if worker is not None:
                host = self.hosts.of(worker)
                link = (host.links(task) and any(self.hosts.of(holder) is host
                                                 for holder in holders(task)))
                self.ledger.acquire(task, worker, link, now)
        else:
            # Dask's manager takes the replica of a worker that is about to go for one that stays,
            # and policies decide before a slice ends what they suggest after it.
            pending = self.manager.pending.get(task, ((), ()))[1]
            stay = (set(holders(task)) & self.scheduler.running).difference(pending)
            may = {worker for worker in (holders(task) if candidates is None else candidates)
                   if stay - {worker}}
            worker = yield Suggestion(op, task, may)
            if worker is not None:
                self.ledger.remove(task, worker, now)
        if worker is None:
            self.ledger.counters.suggestions_refused += 1
        else:
            policy.accepted += 1
        return worker

    def floor(self, task: TaskState) -> tuple[int, int]:
        """(hosts, stores) that a task's value is to have, whatever comes, by all policies."""
        hosts = stores = 1
        for policy in self._ours:
            wanted = policy.keeps(task)
            if wanted is not None:
                hosts, stores = max(hosts, wanted[0]), max(stores, wanted[1])
        return hosts, stores

    # -- soon

    def kick(self, delay: float | None = None) -> None:
        """Has the manager run before its period ends. delay: seconds; None: as configured, so that
        what comes meanwhile is dealt with at once."""
        if self._kicked is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # run by hand, by who asks again
            return
        self._kicked = loop.call_later(self.settings.delay if delay is None else delay, self._run)

    def _run(self) -> None:
        self._kicked = None
        manager = self._manager()
        # A pass that began is brought to its end, also where the manager
        # runs when it is told to only.
        if (manager is not None and (manager.running or self._pass) and
            manager.scheduler.status == Status.running):
            manager.run_once()

    def _tell(self, what: str, *task: TaskState) -> None:
        """Asks each policy that has a method of that name whether it is to run soon."""
        for policy in self._listeners.get(what, ()):
            if getattr(policy, what)(*task):
                policy.urgent = True
                self.kick()


class PolicyState(NamedTuple):
    """A policy's work, described for people."""

    policy: str
    rank: int  #: policies run in this order; what a lower one keeps a higher one does not drop
    state: str  #: waiting, running (its pass goes on), idle, or done: it has removed itself
    period: float  #: seconds; the manager's where it has none of its own
    runs: int
    accepted: int  #: suggestions that the manager took, in all runs
    failures: int
    took: float  #: seconds of the scheduler's event loop, in its last run


class Policy(ActiveMemoryManagerPolicy):
    """A policy that knows hosts. Derive from it, say `suggest`, and name the class in
    `active-memory-manager.policies`.

    period   seconds between two runs; 0: in each run of the manager
             (`active-memory-manager.interval`)

    `suggest` is a generator of suggestions (`self.replicate`, `self.drop`), each yielded for the
    worker that the manager chose or None, and of
    None: a place where it may be interrupted for the event loop's sake. It yields one at least
    every hundred tasks or so, and looks at snapshots (`list(…)`), as the cluster changes meanwhile.
    An exception that it raises is logged, and it runs again in its next period.
    """

    rank = 50
    #: it runs in each run of the manager, also amid a pass, and is never interrupted
    at_once = False
    conductor: Conductor  #: its manager's, from when it has one

    def __init__(self, period: float | str = 0) -> None:
        self.period = float(parse_timedelta(period, default="s") or 0)
        self.state = "idle"
        self.due = 0.0
        self.urgent = False  #: it is to run whatever its period
        self.runs = self.accepted = self.failures = 0
        self.took = 0.0
        self.said = 0.0  # when its last failure was logged
        self.answer: WorkerState | None = None  # the manager's, to the last suggestion

    # -- for derived classes to say

    def suggest(self) -> Suggestions:
        """One run."""
        raise NotImplementedError

    def keeps(self, task: TaskState) -> tuple[int, int] | None:
        """(hosts, stores) that this policy wants a task's value to be on; None: it does not mind.
        Asked before replicas are dropped."""
        return None

    def in_memory(self, task: TaskState) -> bool:
        """A task's value has just been made. Whether the policy is to run soon. Called
        for each of them: quick."""
        return False

    def waits(self, task: TaskState) -> bool:
        """A task begins to wait for its inputs, some of which may be there. Whether the policy is
        to run soon. Called for each of them: quick."""
        return False

    def workers_changed(self) -> bool:
        """A worker came or went. Whether the policy is to run soon."""
        return False

    def looks_at_all(self) -> bool:
        """Whether its next run goes through all keys (`keys_from`). Keys that are found for it
        before that run are kept for it."""
        return False

    # -- for derived classes to use

    @property
    def scheduler(self) -> Scheduler:
        """Dask's."""
        return self._manager.scheduler

    @property
    def hosts(self) -> Hosts:
        """The workers, by the partition that they share."""
        return self.conductor.hosts

    def replicate(self, task: TaskState, candidates: set[WorkerState] | None = None) -> Suggestion:
        """To be yielded: one more replica, on one of these workers (None: any that runs). Where one
        is under way to a worker it is no candidate."""
        return Suggestion("replicate", task, candidates)

    def remind(self, task: TaskState, candidates: set[WorkerState]) -> Suggestion:
        """To be yielded: tells the manager of a replica that is under way already, so that policies
        which are not of ours ask for none."""
        return Suggestion("remind", task, candidates)  # type: ignore[arg-type]

    def drop(self, task: TaskState, candidates: set[WorkerState] | None = None) -> Suggestion:
        """To be yielded: one replica less. The manager drops no last one, and none that a task
        of its worker waits for."""
        return Suggestion("drop", task, candidates)

    def coming(self, task: TaskState) -> set[WorkerState]:
        """The workers to which a replica is under way."""
        return self.conductor.ledger.coming(task.key)

    def links_of(self, task: TaskState) -> set[WorkerState]:
        """Running workers without a replica of a task on whose hosts one is a hard link."""
        found: set[WorkerState] = set()
        for holder in holders(task):
            host = self.hosts.of(holder)
            if host.links(task):
                found.update(host.workers)
        return (found & self.scheduler.running) - set(holders(task))

    def keys_from(self, nbytes: int) -> Iterator[list[TaskState]]:
        """The tasks in memory of at least so many bytes, some at a time: a place to be interrupted
        is between two lists. One of several workers comes more than once, and one that comes may be
        in memory no more. Policies that ask for the same size share one look at all keys, where
        those that come later have said that they will (`looks_at_all`)."""
        known = self.conductor.keys_from.get(nbytes)
        if known is not None:
            yield from known
            return
        shared = any(other.looks_at_all() for other, _ in self.conductor._pass
                     if other is not self)
        # not one list: the collector of garbage would go through it at once
        found: list[list[TaskState]] = []
        # by workers: one list of all keys would hold the event loop for long
        for worker in list(self.scheduler.workers.values()):
            tasks = list(worker.has_what)
            for i in range(0, len(tasks), _CHUNK):
                large = [task for task in tasks[i : i + _CHUNK] if task.nbytes >= nbytes]
                if shared:
                    found.append(large)
                yield large
        if shared:
            self.conductor.keys_from[nbytes] = found

    def ensure(self, task: TaskState, n_hosts: int, n_stores: int,
               on: set[WorkerState] | None = None) -> Suggestions:
        """For `yield from`: asks for what a key lacks of so many hosts and stores. on: workers
        that may get it; None: all."""
        running = self.scheduler.running if on is None else self.scheduler.running & on
        has = {worker for worker in holders(task) if worker in running} | self.coming(task)
        there = set(self.hosts.units(task, has))
        while len(there) < n_hosts:
            taken = {worker for unit in there for worker in getattr(unit, "workers", (unit,))}
            worker = yield self.replicate(task, running - taken - has)
            if worker is None:
                break
            has.add(worker)
            there.add(next(iter(self.hosts.units(task, (worker,)))))
        while len(has) < n_stores:
            worker = yield self.replicate(task, (self.links_of(task) & running) - has or
                                          running - has)
            if worker is None:
                break
            has.add(worker)

    def finish(self) -> None:
        """The policy is done with: removes it."""
        self._manager.policies.discard(self)
        self.state = "done"

    def __repr__(self) -> str:
        """Its arguments as far as it keeps them under their names."""
        said = [name for name in signature(type(self)).parameters if name != "period" and
                name in vars(self)]
        arguments = ", ".join(f"{name}={vars(self)[name]!r}" for name in said)
        return f"{type(self).__name__}({arguments})"

    # -- the manager's side

    @property
    def manager(self) -> Manager:
        """Dask's."""
        return self._manager

    @manager.setter
    def manager(self, manager: Manager) -> None:
        self._manager = manager
        self.conductor = Conductor.of(manager)
        in_order(manager)

    def run(self) -> Generator[Suggestion, WorkerState | None, None]:
        """Dask calls it."""
        return self.conductor.turn()

    def describe(self) -> PolicyState:
        """The policy's work."""
        period = self.period or float(self._manager.interval)
        return PolicyState(repr(self), self.rank, self.state, period, self.runs, self.accepted,
                           self.failures, self.took)
