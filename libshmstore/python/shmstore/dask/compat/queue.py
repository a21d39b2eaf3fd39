# SPDX-License-Identifier: Apache-2.0
"""The scheduler's queue, where Dask has root tasks wait until a worker has a thread for them. It is in order of priority. To 2026.8:

    is_rootish                             whether a task that may run goes through the queue, or to a worker at once
    idle_task_count                        the workers that get something out of the queue
    decide_worker_rootish_queuing_enabled  which of them gets the next task
    stimulus_queue_slots_maybe_opened      gives them what waits
    _add_to_processing                     gives a task to a worker; newer ones refuse one whose inputs are larger than the worker's memory limit
    WORKER_SATURATION                      infinite: there is no queue
"""

from __future__ import annotations

import math
from typing import Any

from . import asking
from .probe import QUEUE, missing_of

#: Hooks that this Dask lacks.
missing_hooks = [*missing_of(QUEUE), *asking.missing_hooks]


class Queue:
    """A scheduler's, by rules (`queueing.Queueing`, which never raise), from here on. Root tasks that they say nothing of are given out as ever. On the scheduler's event loop."""

    def __init__(self, scheduler: Any, rules: Any) -> None:
        self._scheduler = scheduler
        self._rules = rules
        self._next: Any = None  # the task that waits by our rules, for which a worker is asked for
        self._is_rootish = scheduler.is_rootish
        self._decide = scheduler.decide_worker_rootish_queuing_enabled
        self._add = scheduler._add_to_processing
        scheduler._add_to_processing = self.add
        scheduler.is_rootish = self.is_rootish
        scheduler.decide_worker_rootish_queuing_enabled = self.decide
        scheduler.stimulus_queue_slots_maybe_opened = self.give

    def is_rootish(self, task: Any) -> bool:
        """In place of the scheduler's: Dask asks for the task's worker right after this."""
        self._next = self._ours(task)
        return self._next is not None or bool(self._is_rootish(task))

    def decide(self) -> Any:
        """In place of the scheduler's."""
        task, self._next = self._next, None
        if task is None:
            return self._decide()
        takers = self._takers()
        if not takers and not self._scheduler.validate:  # else it is an error to Dask that a task waits where a worker could have more
            return None
        return (self._rules.choose(task, takers) if takers else None) or self._decide()

    def give(self, *, stimulus_id: str) -> None:
        """In place of the scheduler's, which counts for how many tasks there is room before it gives the first."""
        scheduler = self._scheduler
        while scheduler.queued and scheduler.idle_task_count:
            task, goes_on = scheduler.queued.peek(), "processing"
            if not all(dep.who_has for dep in task.dependencies):  # 2022.12 does not see to it where a worker dies
                goes_on = "waiting"
            elif (ours := self._ours(task)) is not None and not self._takers():
                return
            else:
                self._next = ours
            scheduler.transitions({task.key: goes_on}, stimulus_id)
            if task.state == "queued":
                return

    def add(self, task: Any, worker: Any, *args: Any, **kwargs: Any) -> Any:
        """In place of the scheduler's."""
        limit, inputs = worker.memory_limit, sum(dep.nbytes for dep in task.dependencies)
        if not limit or inputs <= limit or inputs - self._rules.linked(task) > limit:
            return self._add(task, worker, *args, **kwargs)
        worker.memory_limit = 0  # for the moment in which Dask compares
        try:
            return self._add(task, worker, *args, **kwargs)
        finally:
            worker.memory_limit = limit

    def _ours(self, task: Any) -> Any:
        """The task, if it waits by our rules."""
        return task if may_wait(task) and self._rules.waits(task) else None

    def _takers(self) -> list[Any]:
        return self._rules.takers(self._scheduler.idle_task_count)


def has_queue(scheduler: Any) -> bool:
    """Whether there is one."""
    return not math.isinf(scheduler.WORKER_SATURATION)


def may_wait(task: Any) -> bool:
    """Whether any worker will do for a task, whatever is queued."""
    restricted = task.worker_restrictions or task.host_restrictions or task.resource_restrictions
    return not restricted and not task.actor and getattr(task, "_queueable", True)


def n_running(worker: Any) -> int:
    """How many tasks a worker has that want a thread."""
    return len(worker.processing) - len(worker.long_running)


def average_size(task: Any) -> float | None:
    """Bytes of a result of the task's group; None: none was made yet."""
    group = task.group
    if not group.nbytes_total:
        return None
    states = group.states
    return float(group.nbytes_total / max(1, states["memory"] + states["released"] + states["forgotten"]))
