# SPDX-License-Identifier: Apache-2.0
"""The scheduler's queue, where Dask has root tasks wait until a worker has a thread for them. It is in order of priority. To 2026.8:

    is_rootish                             whether a task that may run goes through the queue, or to a worker at once
    check_idle_saturated                   brings up to date idle_task_count, the workers that get something out of the queue
    decide_worker_rootish_queuing_enabled  which of them gets the next task
    stimulus_queue_slots_maybe_opened      gives them what waits
    WORKER_SATURATION                      infinite: there is no queue
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Protocol

from . import asking
from .probe import QUEUE, missing_of

#: What this Dask lacks of it.
missing_hooks = [*missing_of(QUEUE), *asking.missing_hooks]


class Rules(Protocol):
    """What `Queue` asks. Each is called for each task: quick. None of them raises."""

    def waits(self, task: Any) -> bool:
        """Whether a task that Dask would give to a worker at once goes through the queue."""

    def has_enough(self, worker: Any) -> bool:
        """Whether a worker that may have more gets nothing out of the queue now."""

    def choose(self, task: Any, workers: Iterable[Any]) -> Any:
        """Which of those workers, at least one, gets a task; None: the one that Dask takes."""


class Queue:
    """A scheduler's, by rules, from here on. On its event loop."""

    def __init__(self, scheduler: Any, rules: Rules) -> None:
        self._scheduler = scheduler
        self._rules = rules
        self._next: Any = None  # the task for which a worker is asked for
        self._is_rootish = scheduler.is_rootish
        self._check = scheduler.check_idle_saturated
        self._decide = scheduler.decide_worker_rootish_queuing_enabled
        scheduler.is_rootish = self.is_rootish
        scheduler.check_idle_saturated = self.check_idle_saturated
        scheduler.decide_worker_rootish_queuing_enabled = self.decide
        scheduler.stimulus_queue_slots_maybe_opened = self.give

    def is_rootish(self, task: Any) -> bool:
        """In place of the scheduler's: Dask asks for the task's worker right after this."""
        waits = bool(self._is_rootish(task)) or (may_wait(task) and self._rules.waits(task))
        self._next = task if waits else None
        return waits

    def check_idle_saturated(self, worker: Any, *args: Any, **kwargs: Any) -> None:
        """In place of the scheduler's."""
        self._check(worker, *args, **kwargs)
        if worker in self._scheduler.idle_task_count and self._rules.has_enough(worker):
            self._scheduler.idle_task_count.discard(worker)

    def decide(self) -> Any:
        """In place of the scheduler's."""
        task, self._next = self._next, None
        workers = self._scheduler.idle_task_count
        chosen = self._rules.choose(task, workers) if task is not None and workers else None
        return self._decide() if chosen is None else chosen

    def give(self, *, stimulus_id: str) -> None:
        """In place of the scheduler's, which counts for how many tasks there is room before it gives the first."""
        scheduler = self._scheduler
        while scheduler.queued and scheduler.idle_task_count:
            self._next = task = scheduler.queued.peek()
            scheduler.transitions({task.key: "processing"}, stimulus_id)
            if task.state == "queued":
                return


def has_queue(scheduler: Any) -> bool:
    """Whether there is one."""
    return not math.isinf(scheduler.WORKER_SATURATION)


def may_wait(task: Any) -> bool:
    """Whether any worker will do for a task: what is in the queue has no say in it."""
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
