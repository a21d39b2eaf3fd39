# SPDX-License-Identifier: Apache-2.0
"""Offload: a worker short of private memory moves values to who has room, before it writes them to its disk."""

from __future__ import annotations

from typing import Any

from dask.utils import parse_bytes

from ..compat.manager import busy_on, holders
from .conductor import Suggestions
from .policy import Policy

_BREATH = 64


class Offload(Policy):
    """Moves the largest keys of workers that are short of memory: to siblings whose partition has room by link, to other hosts where the network
    takes less time than the disk would.

    high   share of a worker's memory limit from which on it is short; less than Dask's `target`, from which on it writes to disk
    low    share down to which it is relieved, and below which a worker must stay that receives
    disk   bytes per second that the workers' disks write and read again

    A move is a replica now, and a drop when it has arrived.
    """

    rank = 50

    def __init__(self, high: float = 0.55, low: float = 0.45, disk: int | str = "150 MiB", period: float | str = 0) -> None:
        super().__init__(period)
        if not 0 < low < high <= 1:
            raise ValueError(f"Offload: low must be less than high, both from 0 to 1, not {low} and {high}")
        self.high, self.low, self.disk = float(high), float(low), int(parse_bytes(disk))
        self._moving: dict[Any, Any] = {}  # key -> the worker that it leaves

    def suggest(self) -> Suggestions:
        """One run."""
        workers = self.scheduler.workers
        for key, worker in list(self._moving.items()):
            task = self.scheduler.tasks.get(key)
            if task is None or worker not in holders(task) or workers.get(worker.address) is not worker:
                del self._moving[key]
            elif len(holders(task)) > 1:
                if (yield self.drop(task, {worker})) is not None:
                    del self._moving[key]
            elif not self.coming(task):
                del self._moving[key]  # it did not arrive: anew, if need be
        memory = self.manager.workers_memory
        for worker in list(workers.values()):
            limit = worker.memory_limit
            if not limit or memory.get(worker, 0) < self.high * limit or self._has_room_beside(worker):
                continue
            excess = memory[worker] - self.low * limit - sum(
                self.scheduler.tasks[key].nbytes for key, other in self._moving.items() if other is worker and key in self.scheduler.tasks
            )
            yield from self._relieve(worker, excess)

    def _has_room_beside(self, worker: Any) -> bool:
        """Values that its partition takes leave its private memory by themselves."""
        host = self.hosts.of(worker)
        return host.shared and not host.pressed

    def _relieve(self, worker: Any, excess: float) -> Suggestions:
        own = [task for task in worker.has_what if not task.actor and len(holders(task)) == 1 and task.key not in self._moving]
        for i, task in enumerate(sorted(own, key=lambda task: -task.nbytes)):
            if excess <= 0:
                return
            if not i % _BREATH:
                yield None
            if worker in busy_on(task) or self.coming(task):
                continue
            candidates = {other for other in self.scheduler.running if other is not worker and self._takes(worker, other, task)}
            if not candidates:
                continue
            if (yield self.replicate(task, candidates)) is not None:
                self._moving[task.key] = worker
                excess -= task.nbytes

    def _takes(self, donor: Any, other: Any, task: Any) -> bool:
        host = self.hosts.of(other)
        if host is self.hosts.of(donor) and host.shared:
            return False  # its partition is short: there is no more room by another name
        memory = self.manager.workers_memory.get(other, 0)
        if other.memory_limit and memory + task.nbytes > self.low * other.memory_limit and not (host.shared and not host.pressed):
            return False
        return task.nbytes / self._bandwidth(donor, other) <= 2 * task.nbytes / self.disk

    def _bandwidth(self, donor: Any, other: Any) -> float:
        """Bytes per second between two workers, as Dask measured it; else as over the whole cluster."""
        measured = self.scheduler.bandwidth_workers
        return float(measured.get((other.address, donor.address)) or self.scheduler.bandwidth or 1.0)
