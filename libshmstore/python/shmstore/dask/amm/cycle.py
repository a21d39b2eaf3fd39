# SPDX-License-Identifier: Apache-2.0
"""Cycle: worker processes are replaced one at a time, and nothing is lost or computed again."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from dask.utils import parse_bytes, parse_timedelta

from ..compat import manager as dask_manager
from .conductor import Suggestions
from .policy import Policy

logger = logging.getLogger("distributed.scheduler.shmstore")

_LOOK = 0.05  # seconds between two looks at whether a worker still runs something
_REMEMBERED = 1000
_RESTART = 60.0  # seconds that a nanny may take


class Cycle(Policy):
    """Has nannies replace their workers' processes: those that are old, or have grown by what is no value (leaks, fragmentation).

    age       seconds after which a process is replaced; null: never for its age
    growth    bytes of unmanaged private memory that a process may take more than at first; null: any
    patience  seconds that the tasks of a worker which is to go may still run; then it stays, and is tried again

    One worker at a time: it gets no more tasks, those that run end, its values go to siblings (Retire) or to other hosts, its nanny starts a
    new process. Tasks that it had not begun run elsewhere. A worker without a nanny, with actors, or without another one that runs, stays.
    """

    rank = 15

    def __init__(
        self,
        age: float | str | None = None,
        growth: int | str | None = "1 GiB",
        patience: float | str = "10m",
        period: float | str = "5s",
    ) -> None:
        super().__init__(period)
        self.age = None if age is None else float(parse_timedelta(age, default="s"))
        self.growth = None if growth is None else int(parse_bytes(growth))
        self.patience = float(parse_timedelta(patience, default="s"))
        self.cycled = 0  #: processes that were replaced
        self.failed = 0  #: that were to be, and were not
        self.seconds: list[float] = []  #: for how long the last ones took no tasks
        self._began: dict[Any, tuple[float, int]] = {}  # worker -> since when, memory then
        self._not_before: dict[Any, float] = {}
        self._replacing: asyncio.Future[None] | None = None

    def suggest(self) -> Suggestions:
        """One run: it suggests nothing to the manager, values are moved by Dask's retire_workers."""
        yield None
        now = time.monotonic()
        there = set(self.scheduler.workers.values())
        self._not_before = {worker: when for worker, when in self._not_before.items() if worker in there}
        self._began = {worker: at_first for worker, at_first in self._began.items() if worker in there}
        for worker in there:
            if worker not in self._began and worker.metrics.get("memory"):
                self._began[worker] = now, worker.memory.unmanaged_old
        if self._replacing is not None and not self._replacing.done():
            return
        worker = self.next(now)
        if worker is not None:
            self._replacing = asyncio.ensure_future(self._replace(worker))

    def next(self, now: float) -> Any:
        """The worker that is to be replaced first; None where none is."""
        running = self.scheduler.running
        due = [
            worker
            for worker in running
            if len(running) > 1 and worker.nanny and not worker.actors and self._not_before.get(worker, 0.0) <= now and self._is_due(worker, now)
        ]
        return min(due, key=lambda worker: self._began[worker][0]) if due else None

    def _is_due(self, worker: Any, now: float) -> bool:
        if worker not in self._began:
            return False
        began, memory = self._began[worker]
        if self.age is not None and now - began >= self.age:
            return True
        return self.growth is not None and worker.memory.unmanaged_old - memory >= self.growth

    async def _replace(self, worker: Any) -> None:
        scheduler, address, started = self.scheduler, worker.address, time.monotonic()
        try:
            why = await self._empty(worker)
            if not why:
                why = await dask_manager.restart(scheduler, worker, _RESTART)
        except Exception as e:
            logger.exception("shmstore: worker %s could not be replaced", address)
            why = str(e) or type(e).__name__
        if why:
            self.failed += 1
            self._not_before[worker] = time.monotonic() + max(60.0, 10 * self.period)
            logger.warning("shmstore: worker %s is not replaced: %s; it is tried again later", address, why)
            dask_manager.resume(scheduler, worker)
            return
        self.cycled += 1
        seconds = time.monotonic() - started
        self.seconds = [*self.seconds[-_REMEMBERED:], seconds]
        logger.info("shmstore: the process of worker %s was replaced in %.2f s", address, seconds)
        self.urgent = True

    async def _empty(self, worker: Any) -> str:
        """Nothing runs on the worker and nothing is only there: ''. Else why not."""
        scheduler, address = self.scheduler, worker.address
        until = time.monotonic() + self.patience
        while True:
            gone = await scheduler.retire_workers([address], close_workers=False, remove=False)
            if address not in gone:
                return "no other worker takes its values"
            while not await self._is_idle(worker):
                if scheduler.workers.get(address) is not worker:
                    return "it is gone"
                if time.monotonic() > until:
                    return f"its tasks still run after {self.patience:.0f} s: " + ", ".join(str(task.key) for task in list(worker.executing)[:3])
                await asyncio.sleep(_LOOK)
            running = scheduler.running
            if all(any(holder in running for holder in dask_manager.holders(task)) for task in worker.has_what):
                return ""

    async def _is_idle(self, worker: Any) -> bool:
        """Asks the worker; without shmstore there, waits for two heartbeats: one may be old."""
        idle = await dask_manager.runs_nothing(self.scheduler, worker.address)
        if idle is None:
            for _ in range(2):
                seen, until = worker.last_seen, time.monotonic() + self.patience
                while worker.last_seen == seen and time.monotonic() < until:
                    await asyncio.sleep(_LOOK)
            idle = not worker.executing
        return idle
