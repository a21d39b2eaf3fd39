# SPDX-License-Identifier: Apache-2.0
"""Retire: what a worker has goes to its siblings when it is retired."""

from __future__ import annotations

import time
from typing import Any

from ..compat.manager import holders, retiring
from .conductor import Suggestions
from .policy import Policy

_BREATH = 64
_REMEMBERED = 1000


class Retire(Policy):
    """Where Dask retires workers (`retire_workers`, adaptive scale-down), has siblings of the same host link what only those have. Values cross
    the network only where the whole host goes away, or what is left of it is paused.

    Dask's own RetireWorker, which `retire_workers` adds for each worker, decides when a worker may go; it finds replicas on their way and asks
    for no others. The manager must be started (`active-memory-manager.start`, Dask's default): what is not is not asked.
    """

    rank = 10

    def __init__(self, period: float | str = 0) -> None:
        super().__init__(period)
        self._since: dict[str, float] = {}  # address -> when its retirement was seen first
        self.seconds: list[float] = []  #: how long retirements took, the last ones
        self.seconds_sum = 0.0  #: of all of them
        self.retired = 0

    def suggest(self) -> Suggestions:
        """One run."""
        leaving = retiring(self.manager)
        self.took_leave({worker.address for worker in leaving})
        running = self.scheduler.running
        for worker in leaving:
            for i, task in enumerate(list(worker.has_what)):
                if not i % _BREATH:
                    yield None
                has = holders(task)
                if task.actor or not has or any(holder in running for holder in has):
                    continue
                coming = self.coming(task) & running
                yield self.remind(task, coming) if coming else self.replicate(task, self.links_of(task) or None)

    def took_leave(self, leaving: set[str]) -> None:
        """Takes note of who began to go and who is gone."""
        now = time.monotonic()
        for address in [address for address in self._since if address not in leaving]:
            self.retired += 1
            seconds = now - self._since.pop(address)
            self.seconds_sum += seconds
            self.seconds = [*self.seconds[-_REMEMBERED:], seconds]
        for address in leaving:
            self._since.setdefault(address, now)

    def in_memory(self, task: Any) -> bool:
        """A task of a leaving worker ended: its result has to go, too."""
        return bool(self._since) and any(worker.address in self._since for worker in holders(task))
