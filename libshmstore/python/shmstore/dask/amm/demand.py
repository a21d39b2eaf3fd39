# SPDX-License-Identifier: Apache-2.0
"""InDemand: what many tasks wait for is where they will run before they ask for it."""

from __future__ import annotations

from typing import Any

from dask.utils import parse_bytes

from ..compat.manager import holders, waiters
from .conductor import Suggestions
from .policy import Policy

_BREATH = 64


class InDemand(Policy):
    """Links a key for which many tasks wait to its workers' siblings, and copies it to other hosts: once to each, from where it is linked on.

    waiters  tasks that wait from which on a key is in demand
    size     bytes below which it is left alone: a request is as quick
    """

    rank = 60

    def __init__(self, waiters: int = 4, size: int | str = "1 MiB", period: float | str = 0) -> None:
        super().__init__(period)
        self.waiters = int(waiters)
        self.size = int(parse_bytes(size))
        if self.waiters < 1:
            raise ValueError(f"InDemand: waiters must be 1 or more, not {waiters}")
        self._hot: dict[Any, Any] = {}  # key -> task
        self._look_at_all = True  # what was there before we were told of anything

    def wanted(self, task: Any) -> bool:
        """Whether it is in demand."""
        return len(waiters(task)) >= self.waiters and task.nbytes >= self.size

    def in_memory(self, task: Any) -> bool:
        """Made just now."""
        if not self.wanted(task):
            return False
        self._hot[task.key] = task
        return True

    def waits(self, task: Any) -> bool:
        """One more that may wait for what is there."""
        found = [other for other in task.dependencies if other.state == "memory" and self.wanted(other)]
        self._hot.update((other.key, other) for other in found)
        return bool(found)

    def looks_at_all(self) -> bool:
        """In its first run."""
        return self._look_at_all

    def suggest(self) -> Suggestions:
        """One run."""
        if self._look_at_all:
            self._look_at_all = False
            for tasks in self.keys_from(self.size):
                yield None
                self._hot.update((task.key, task) for task in tasks if len(task.waiters or ()) >= self.waiters)
        on_their_way = False
        for i, (key, task) in enumerate(list(self._hot.items())):
            if not i % _BREATH:
                yield None
            if task.state != "memory" or not self.wanted(task):
                self._hot.pop(key, None)
                continue
            running = self.scheduler.running
            coming = self.coming(task)
            for worker in sorted(self.links_of(task) - coming, key=lambda worker: len(worker.processing))[: len(waiters(task))]:
                yield self.replicate(task, {worker})
            there = set(self.hosts.units(task, {*holders(task), *coming}))
            for host in list(self.hosts):
                if host in there or not host.links(task) or host.pressed:
                    continue
                if (yield self.replicate(task, running & set(host.workers))) is not None:
                    on_their_way = True
            on_their_way = on_their_way or any(not self.hosts.of(worker).links(task) for worker in coming)
        self.urgent = on_their_way  # to link what arrives
