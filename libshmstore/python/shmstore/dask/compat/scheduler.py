# SPDX-License-Identifier: Apache-2.0
"""The scheduler's side of Dask: its queue, its Active Memory Manager, its HTTP server. To 2026.8:

    is_rootish                             whether a task that may run goes through the queue, where
                                           it waits in order of priority, or to a worker at once
    idle_task_count                        the workers that get something out of the queue
    decide_worker_rootish_queuing_enabled  which of them gets the next task
    stimulus_queue_slots_maybe_opened      gives them what waits
    _add_to_processing                     gives a task to a worker; newer ones refuse one whose
                                           inputs are larger than the worker's memory limit
    WORKER_SATURATION                      infinite: there is no queue
    remove_worker                          of the scheduler, `unregister` from a worker: takes
                                           `safe` to 2023, `expected` since
    who_has, waiters                       of a task: sets; from 2023 on None where there is nothing
    policies                               of the manager: a set, run in whatever order;
                                           `in_order` has ours go first, by rank
    heartbeat_worker                       among the scheduler's handlers: its answer to a worker
                                           that it does not know is the status "missing"
    pending                                of the manager: a new dict in each of its runs, by which
                                           one run is told from the next
    /metrics                               shows what prometheus_client's registry has; where that
                                           package is missing it shows nothing, of ours neither
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import pickle
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

import distributed.core
from distributed.client import Client
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import Scheduler
from tornado.web import RequestHandler

from .probe import ASKING, QUEUE, missing_of

if TYPE_CHECKING:
    from dask.typing import Key as Key
    from distributed.active_memory_manager import ActiveMemoryManagerExtension
    from distributed.scheduler import TaskState as TaskState, WorkerState as WorkerState

    from ..config import Guard
    from ..hosts import Queueing

try:
    from distributed.active_memory_manager import (ActiveMemoryManagerPolicy, RetireWorker,
                                                   Suggestion)
except ImportError:  # nobody asks for them then
    ActiveMemoryManagerPolicy = RetireWorker = Suggestion = object  # type: ignore[assignment, misc]

__all__ = ["ActiveMemoryManagerPolicy", "Status", "Suggestion"]  # of Dask's own

logger = logging.getLogger("distributed.scheduler.shmstore")
_WATCH = "shmstore-amm"
_TOLD = {"memory": "in_memory", "waiting": "waits"}  # what is told of a task's new state
_HEARTBEAT = 1.0  # seconds until the next one of a worker that is about to end
#: Hooks that this Dask lacks.
missing_for_queue = [*missing_of(QUEUE), *missing_of(ASKING)]
_taken = (inspect.signature(Scheduler.remove_worker).parameters
          if hasattr(Scheduler, "remove_worker") else ())
UNSUSPECTED = {"safe" if "safe" in _taken else "expected": True}


# -- the queue


class Queue:
    """A scheduler's, by rules, from here on. Root tasks that they say nothing of are given out as
    ever. On the scheduler's event loop."""

    def __init__(self, scheduler: Any, rules: Queueing, guard: Guard) -> None:
        self._scheduler = scheduler  # methods of which are replaced
        self._rules, self._guard = rules, guard
        # the task that waits by our rules, for which a worker is asked for
        self._next: TaskState | None = None
        self._is_rootish = scheduler.is_rootish
        self._decide = scheduler.decide_worker_rootish_queuing_enabled
        self._add = scheduler._add_to_processing
        scheduler._add_to_processing = self.add
        scheduler.is_rootish = self.is_rootish
        scheduler.decide_worker_rootish_queuing_enabled = self.decide
        scheduler.stimulus_queue_slots_maybe_opened = self.give

    def is_rootish(self, task: TaskState) -> bool:
        """In place of the scheduler's: Dask asks for the task's worker right after this."""
        self._next = self._ours(task)
        return self._next is not None or bool(self._is_rootish(task))

    def decide(self) -> WorkerState | None:
        """In place of the scheduler's."""
        task, self._next = self._next, None
        if task is None:
            return self._decide()  # type: ignore[no-any-return]
        takers = self._takers()
        # else it is an error to Dask that a task waits where a worker could have more
        if not takers and not self._scheduler.validate:
            return None
        return ((self._guard.call("queue", self._rules.choose, task, takers) if takers else None) or
                self._decide())

    def give(self, *, stimulus_id: str) -> None:
        """In place of the scheduler's, which counts for how many tasks there is room
        before it gives the first."""
        scheduler = self._scheduler
        while scheduler.queued and scheduler.idle_task_count:
            task, goes_on = scheduler.queued.peek(), "processing"
            # 2022.12 does not see to it where a worker dies
            if not all(dep.who_has for dep in task.dependencies):
                goes_on = "waiting"
            elif (ours := self._ours(task)) is not None and not self._takers():
                return
            else:
                self._next = ours
            scheduler.transitions({task.key: goes_on}, stimulus_id)
            if task.state == "queued":
                return

    def add(self, task: TaskState, worker: WorkerState, *args: object, **kwargs: object) -> object:
        """In place of the scheduler's."""
        limit, inputs = worker.memory_limit, sum(dep.nbytes for dep in task.dependencies)
        if (not limit or inputs <= limit or
            inputs - (self._guard.call("queue", self._rules.linked, task) or 0) > limit):
            return self._add(task, worker, *args, **kwargs)
        worker.memory_limit = 0  # for the moment in which Dask compares
        try:
            return self._add(task, worker, *args, **kwargs)
        finally:
            worker.memory_limit = limit

    def _ours(self, task: TaskState) -> TaskState | None:
        """The task, if it waits by our rules."""
        return (task if may_wait(task) and self._guard.call("queue", self._rules.waits, task)
                else None)

    def _takers(self) -> list[WorkerState]:
        workers = list(self._scheduler.idle_task_count)
        takers = self._guard.call("queue", self._rules.takers, workers)
        return workers if takers is None else takers


def may_wait(task: TaskState) -> bool:
    """Whether any worker will do for a task, whatever is queued."""
    restricted = task.worker_restrictions or task.host_restrictions or task.resource_restrictions
    return not restricted and not task.actor and getattr(task, "_queueable", True)


def n_running(worker: WorkerState) -> int:
    """How many tasks a worker has that want a thread."""
    return len(worker.processing) - len(worker.long_running)


def average_size(task: TaskState) -> float | None:
    """Bytes of a result of the task's group; None: none was made yet."""
    group = task.group
    if not group.nbytes_total:
        return None
    states = group.states
    return float(group.nbytes_total / max(1, states["memory"] + states["released"] +
                                          states["forgotten"]))


# -- the manager


def worker_runs_nothing(dask_worker: distributed.Worker) -> bool:
    """Whether a worker that is to go runs nothing, and begins nothing more. It is sent there."""
    state = dask_worker.state
    return (dask_worker.status == Status.closing_gracefully and
            not (state.executing or state.long_running))


def holders(task: TaskState) -> Collection[WorkerState]:
    """The workers that have a key's value."""
    return task.who_has or ()


def waiters(task: TaskState) -> Collection[TaskState]:
    """The tasks that still need a key's value."""
    return task.waiters or ()


def busy_on(task: TaskState) -> set[WorkerState | None]:
    """The workers on which tasks that need the value run or are queued: the
    manager drops nothing there."""
    return {waiter.processing_on for waiter in waiters(task)} - {None}


def retiring(manager: ActiveMemoryManagerExtension) -> list[WorkerState]:
    """The workers that Dask was asked to retire."""
    workers = manager.scheduler.workers
    found = (workers.get(policy.address) for policy in manager.policies
             if isinstance(policy, RetireWorker))
    return [worker for worker in found if worker is not None]


class _Ordered(set["ActiveMemoryManagerPolicy"]):
    """A set of policies that is run through in the order of their ranks; those
    that have none come last."""

    def __iter__(self) -> Iterator[ActiveMemoryManagerPolicy]:
        return iter(sorted(super().__iter__(), key=lambda policy: getattr(policy, "rank", 1000)))


def in_order(manager: ActiveMemoryManagerExtension) -> None:
    """From here on the manager runs policies that have a rank before Dask's own."""
    if not isinstance(manager.policies, _Ordered):
        manager.policies = _Ordered(manager.policies)


class Watch(SchedulerPlugin):
    """Hears what becomes of keys and workers."""

    name = _WATCH

    def __init__(self, scheduler: Scheduler, tell: Callable[..., None]) -> None:
        """tell: called with "in_memory" or "waits" and a task, or "workers_changed"."""
        self._tasks, self._tell = scheduler.tasks, tell
        scheduler.add_plugin(self, name=_WATCH, idempotent=True)

    def transition(self, key: Key, start: str, finish: str, *args: object,
                   **kwargs: object) -> None:
        """A task is somewhere else than it was."""
        told = _TOLD.get(finish)
        if told is not None and (task := self._tasks.get(key)) is not None:
            self._tell(told, task)

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """One more."""
        self._tell("workers_changed")

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: object) -> None:
        """One less."""
        self._tell("workers_changed")


@contextmanager
def unmissed(scheduler: Scheduler, address: str) -> Iterator[None]:
    """Within, the worker of that address is not told that the scheduler does not know it any more:
    it would end, and its nanny with it."""
    heard = scheduler.handlers["heartbeat_worker"]

    def hear(*args: object, **kwargs: Any) -> object:
        answer = heard(*args, **kwargs)
        if answer["status"] == "missing" and scheduler.coerce_address(kwargs["address"]) == address:
            return {"status": "OK", "time": time(), "heartbeat-interval": _HEARTBEAT}
        return answer

    scheduler.handlers["heartbeat_worker"] = hear
    try:
        yield
    finally:
        scheduler.handlers["heartbeat_worker"] = heard


async def restart(scheduler: Scheduler, worker: WorkerState, timeout: float) -> str:
    """Has a worker's nanny start a new process for it; what it had not begun runs elsewhere.
    Returns '', or why it failed. OSError."""
    with unmissed(scheduler, worker.address):
        restarting = asyncio.ensure_future(scheduler.rpc(worker.nanny).restart(timeout=timeout))
        await asyncio.sleep(0)  # it is under way
        await scheduler.remove_worker(worker.address, stimulus_id=f"shmstore-cycle-{time()}",
                                      close=False, **UNSUSPECTED)
        answer = await restarting
    return "" if answer == "OK" else f"its nanny says {answer!r}"


async def runs_nothing(scheduler: Scheduler, address: str) -> bool | None:
    """Whether a worker that is to go runs nothing, and begins nothing more. None: it cannot be
    asked, as it knows nothing of us. OSError."""
    try:
        # Not by the scheduler's own connections: what it is sent by them it
        # passes on, and reads none of it.
        async with distributed.core.rpc(address,
                                        connection_args=scheduler.connection_args) as worker:
            answer = await worker.run(function=pickle.dumps(worker_runs_nothing))
    except ImportError:
        return None
    return (bool(answer["result"]) if isinstance(answer, dict) and answer.get("status") == "OK"
            else None)


def resume(scheduler: Scheduler, worker: WorkerState) -> None:
    """A worker that was to go takes tasks again."""
    if (scheduler.workers.get(worker.address) is worker and
        worker.status == Status.closing_gracefully):
        change = {"op": "worker-status-change", "status": "running",
                  "stimulus_id": f"shmstore-cycle-{time()}"}
        scheduler.stream_comms[worker.address].send(change)


def give_clients(proxy: Callable[[Client], object]) -> None:
    """Every client of this process has an attribute `shmstore`."""
    if not hasattr(Client, "shmstore"):
        setattr(Client, "shmstore", property(proxy))


# -- the HTTP server


class Family(NamedTuple):
    """A metric."""

    name: str
    counts: bool  #: it is a counter, and `_total` is added to its name; else a gauge
    meaning: str
    labels: tuple[str, ...]
    samples: Sequence[tuple[tuple[str, ...], float]]  #: values of the labels, and the value


class _Page(RequestHandler):
    def initialize(self, scheduler: Scheduler, page: Callable[[Scheduler], str]) -> None:
        """Called by Tornado."""
        self.scheduler, self.page = scheduler, page

    def get(self) -> None:
        """The page."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        self.write(self.page(self.scheduler))


class _Collector:
    """Of the scheduler that came last: a process has more than one in tests only."""

    def __init__(self) -> None:
        self.scheduler: Callable[[], Scheduler | None] = lambda: None
        self.families: Callable[[Scheduler], Iterable[Family]] = lambda scheduler: ()
        self.registered = self._failed = False

    def describe(self) -> list[object]:
        """Nothing that the registry has to know before there is anything."""
        return []

    def collect(self) -> Iterator[object]:
        """For the registry, when it is asked."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        scheduler = self.scheduler()
        if scheduler is None or scheduler.status != Status.running:
            return
        try:
            found = list(self.families(scheduler))
        except Exception:  # Dask's own metrics are to be there all the same
            if not self._failed:
                logger.exception("shmstore: metrics of the policies failed; Dask's own are not "
                                 "touched")
            self._failed = True
            return
        for family in found:
            kind = CounterMetricFamily if family.counts else GaugeMetricFamily
            metric = kind(family.name, family.meaning, labels=family.labels)
            for labels, value in family.samples:
                metric.add_metric(labels, value)
            yield metric


_collector = _Collector()


def add_page(scheduler: Scheduler, path: str, page: Callable[[Scheduler], str],
             families: Callable[[Scheduler], Iterable[Family]]) -> None:
    """Adds a page to a scheduler's server, under whatever prefix it has, and metrics to Dask's.
    page, families: called with the scheduler."""
    application = getattr(scheduler, "http_application", None)
    if application is None:  # it has no such server
        return
    application.add_handlers(".*", [(f"/(?:.*/)?{path}", _Page,
                                     {"scheduler": scheduler, "page": page})])
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return
    _collector.scheduler, _collector.families = weakref.ref(scheduler), families
    if not _collector.registered:
        _collector.registered = True
        REGISTRY.register(_collector)
