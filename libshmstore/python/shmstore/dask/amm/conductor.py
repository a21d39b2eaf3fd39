# SPDX-License-Identifier: Apache-2.0
"""Runs the policies of one manager: in the order of their ranks, in slices of time, over one view of the cluster.

Dask's manager runs each policy to its end, in any order, on the event loop. Ours hand it a common generator instead. Within it a pass over all
policies that are due goes on from where it stopped; when the slice is used up the rest waits for the manager's next run, which is asked for at
once. The first policy of ours that the manager comes to does this for all.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..compat import manager as dask_manager
from ..compat.manager import Suggestion
from ..config import ManagerSettings
from .hosts import Hosts
from .ledger import Ledger

if TYPE_CHECKING:
    from .policy import Policy

logger = logging.getLogger("distributed.scheduler.shmstore")
_BREATH = 0.001  # seconds between two slices: a coroutine that waits for a timer or a message needs two rounds of the event loop
_FRESH = 0.25  # seconds for which a view of the cluster is good
_SAY = 60.0  # seconds between two lines about a policy that fails
_conductors: weakref.WeakKeyDictionary[Any, Conductor] = weakref.WeakKeyDictionary()

Suggestions = Generator["Suggestion | None", Any, None]


class Conductor:
    """Of one manager. On the scheduler's event loop."""

    def __init__(self, manager: Any) -> None:
        self._manager = weakref.ref(manager)
        settings = self.settings = ManagerSettings.read()
        self.hosts = Hosts(settings.high, settings.low)
        self.ledger = Ledger(settings.in_flight)
        self.longest = 0.0  #: seconds of the longest slice
        self._watch: Any = None
        self._stale = 0.0  # when the view is taken anew
        self._seen: Any = None  # the manager's run that was served
        self._pass: deque[tuple[Policy, Suggestions]] = deque()
        self._entered: set[Policy] = set()  # into the pass: no policy runs twice in one
        self.keys_from: dict[int, list[list[Any]]] = {}  #: what policies found in this pass: bytes -> tasks of at least so many
        self._answer: Any = None
        self._kicked: Any = None  # a timer
        self._ours: list[Policy] = []  # as of the last run

    @classmethod
    def of(cls, manager: Any) -> Conductor:
        """The one of a manager; made when it is first asked for."""
        conductor = _conductors.get(manager)
        if conductor is None:
            conductor = _conductors[manager] = cls(manager)
        return conductor

    @classmethod
    def known(cls, manager: Any) -> Conductor | None:
        """The one of a manager that has policies of ours."""
        return _conductors.get(manager) if manager is not None else None

    @property
    def manager(self) -> Any:
        """Dask's."""
        manager = self._manager()
        assert manager is not None, "a policy outlived its manager"
        return manager

    @property
    def scheduler(self) -> Any:
        """Dask's."""
        return self.manager.scheduler

    def policies(self) -> list[Policy]:
        """Ours, in the order in which they run."""
        return [policy for policy in self.manager.policies if getattr(policy, "conductor", None) is self]

    def turn(self) -> Generator[Suggestion, Any, None]:
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
            dask_manager.in_order(manager)
            self._watch = dask_manager.Watch(scheduler, self._in_memory, self._waits, self._workers_changed)
            self._publish()
        if not self._pass or now >= self._stale:  # what heartbeats say is as old in the next slices
            self._stale = now + _FRESH
            self.hosts.update(scheduler.workers.values())
            self.ledger.settle(scheduler.tasks, scheduler.workers, now)
        if self._pass and self._pass[0][0] not in manager.policies:
            self._answer = None
        self._pass = deque(entry for entry in self._pass if entry[0] in manager.policies)
        if not self._pass:
            self._entered.clear()
        self._ours = self.policies()
        for policy in self._ours:
            if policy not in self._entered and (policy.urgent or now >= policy.due):
                self._entered.add(policy)
                self._enter(policy)

    def _publish(self) -> None:
        from .page import publish  # which asks conductors

        if self.known(self.scheduler.extensions.get("amm")) is self:  # not one that Dask has made for a single retirement
            publish(self.scheduler)

    def _enter(self, policy: Policy) -> None:
        """Into the pass, behind those of its rank."""
        at = sum(1 for i, (other, _) in enumerate(self._pass) if other.rank <= policy.rank or (i == 0 and other.state == "running"))
        policy.state = "waiting"
        self._pass.insert(at, (policy, policy.suggest()))

    def _go_on(self, deadline: float) -> Generator[Suggestion, Any, None]:
        while self._pass:
            policy, suggestions = self._pass[0]
            began = time.monotonic()
            if policy.state != "running":
                policy.state, policy.took, policy.urgent = "running", 0.0, False
            answer, self._answer = self._answer, None
            ended = False
            try:
                suggestion = suggestions.send(answer)
                if suggestion is not None:
                    self._answer = yield from self._suggest(policy, suggestion)
            except StopIteration:
                ended = True
            except GeneratorExit:
                raise
            except Exception:
                policy.failures += 1
                if policy.failures == 1 or began >= policy.said + _SAY:
                    policy.said = began
                    logger.exception("shmstore: policy %r failed, %d times so far; it is run again in its next period", policy, policy.failures)
                ended = True
            now = time.monotonic()
            policy.took += now - began
            if ended:
                self._pass.popleft()
                self._answer = None
                policy.ended(now)
            # A policy begins with a list of what it looks at: not at the end of a slice.
            if now >= (deadline - self.settings.slice / 2 if ended else deadline):
                return

    def _suggest(self, policy: Policy, suggestion: Suggestion) -> Generator[Suggestion, Any, Any]:
        """Hands a suggestion to the manager and books its answer. Raises what is wrong with it: what the manager trips over ends its run, for all."""
        op, task, candidates = suggestion
        candidates = None if candidates is None else set(candidates)
        if op not in ("replicate", "remind", "drop") or not hasattr(task, "who_has"):
            raise ValueError(f"{policy!r} must suggest replicate, remind or drop of a task of the scheduler, not {op!r} of {task!r}")
        now = time.monotonic()
        if op == "remind":
            return (yield Suggestion("replicate", task, candidates))
        if op == "replicate":
            coming = self.ledger.coming(task.key)
            if coming:
                candidates = (self.scheduler.running if candidates is None else candidates) - coming
            if candidates is not None and not candidates:
                return None
            if not dask_manager.holders(task):  # forgotten since the slice before
                return None
            worker = yield Suggestion(op, task, candidates)
            if worker is not None:
                host = self.hosts.of(worker)
                link = host.links(task) and any(self.hosts.of(holder) is host for holder in dask_manager.holders(task))
                self.ledger.acquire(task, worker, link, now)
        else:
            worker = yield Suggestion(op, task, candidates)
            if worker is not None:
                self.ledger.remove(task, worker, now)
        if worker is None:
            self.ledger.counters.suggestions_refused += 1
        else:
            policy.accepted += 1
        return worker

    def floor(self, task: Any) -> tuple[int, int]:
        """(hosts, stores) that a task's value is to have, whatever comes, by all policies."""
        hosts = stores = 1
        for policy in self._ours:
            wanted = policy.keeps(task)
            if wanted is not None:
                hosts, stores = max(hosts, wanted[0]), max(stores, wanted[1])
        return hosts, stores

    def others_look_at_all(self, policy: Policy) -> bool:
        """Whether one that has yet to run in this pass will go through all keys."""
        return any(other.looks_at_all() for other, _ in self._pass if other is not policy)

    # -- soon

    def kick(self, delay: float | None = None) -> None:
        """Has the manager run before its period ends. delay: seconds; None: as configured, so that what comes meanwhile is dealt with at once."""
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
        # A pass that began is brought to its end, also where the manager runs when it is told to only.
        if manager is not None and (manager.running or self._pass) and manager.scheduler.status == dask_manager.Status.running:
            with suppress(AssertionError):  # it is running
                manager.run_once()

    def _in_memory(self, task: Any) -> None:
        for policy in self._ours:
            if policy.in_memory(task):
                self._wants_to_run(policy)

    def _waits(self, task: Any) -> None:
        for policy in self._ours:
            if policy.waits(task):
                self._wants_to_run(policy)

    def _workers_changed(self) -> None:
        for policy in self._ours:
            if policy.workers_changed():
                self._wants_to_run(policy)

    def _wants_to_run(self, policy: Policy) -> None:
        policy.urgent = True
        self.kick()
