# SPDX-License-Identifier: Apache-2.0
"""Newcomers: a worker that has just come gets what it will be asked to work on."""

from __future__ import annotations

from typing import Any

from dask.utils import parse_bytes

from ..compat.manager import holders, waiters
from .conductor import Suggestions
from .policy import Policy

_BREATH = 256


class Newcomers(Policy):
    """Has new workers link the keys of their siblings for which tasks wait, and pull some from workers of other hosts that have more tasks than
    threads. Those for which most tasks wait come first.

    size   bytes below which a key is left alone
    links  keys that a new worker links at most
    pull   bytes that it copies at most
    """

    rank = 55

    def __init__(self, size: int | str = "1 MiB", links: int = 1000, pull: int | str = "256 MiB", period: float | str = 0) -> None:
        super().__init__(period)
        self.size, self.links, self.pull = int(parse_bytes(size)), int(links), int(parse_bytes(pull))
        self._known: set[Any] = set()
        self._first = True  # whoever was there at first is no newcomer

    def workers_changed(self) -> bool:
        """Maybe one more."""
        return True

    def suggest(self) -> Suggestions:
        """One run."""
        new = [worker for worker in self.scheduler.running if worker not in self._known]
        self._known.intersection_update(self.scheduler.workers.values())
        self._known.update(new)
        if self._first:
            self._first = False
            return
        for worker in new:
            yield from self._welcome(worker)

    def _welcome(self, worker: Any) -> Suggestions:
        host = self.hosts.of(worker)
        linked, pulled = self.links, self.pull
        beside, elsewhere = [], []
        for other in [other for other in self.scheduler.workers.values() if other is not worker]:
            yield None
            here = self.hosts.of(other) is host
            if not here and len(other.processing) <= other.nthreads:
                continue
            for i, task in enumerate(list(other.has_what)):
                if not i % _BREATH:
                    yield None
                if task.nbytes < self.size or not waiters(task) or task.actor or (here and not host.links(task)):
                    continue
                (beside if here else elsewhere).append(task)
        for task in dict.fromkeys(sorted(beside, key=_demand)):
            if linked <= 0:
                break
            if worker in self.scheduler.running and (yield self.replicate(task, {worker})) is not None:
                linked -= 1
        for task in dict.fromkeys(sorted(elsewhere, key=_demand)):
            there = {self.hosts.of(holder) for holder in holders(task)} | {self.hosts.of(other) for other in self.coming(task)}
            if task.nbytes > pulled or (host.shared and host in there) or host.pressed:
                continue
            if worker in self.scheduler.running and (yield self.replicate(task, {worker})) is not None:
                pulled -= task.nbytes


def _demand(task: Any) -> int:
    return -len(waiters(task))
