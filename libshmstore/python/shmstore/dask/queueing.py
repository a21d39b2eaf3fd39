# SPDX-License-Identifier: Apache-2.0
"""Where all workers share one partition: tasks with large results that make nothing free run in the order of their priorities.

Dask orders a graph so that few results are there at once. But it gives each task to a worker as soon as it may run, to one that has most of its
inputs, and each worker keeps to the order within what it was given: one is far ahead of the others then, and what it makes waits for theirs. Where
inputs are links, any worker will do. So these tasks wait at the scheduler, in one queue, and whoever has a free thread gets the first of them.

Such tasks have several large inputs that others need too: products of a matrix's blocks. Tasks that
free memory go at once: sums, and parts of a rechunk (1.8 times the memory if they wait).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from dask.utils import typename

from .amm.hosts import Host, Hosts
from .compat.scheduler import Queue, average_size, has_queue, missing_for_queue, n_running
from .compat.worker import ask_scheduler
from .config import logger
from .fallback import Fallbacks
from .guard import Guard
from .handle import Handle

_LARGE = 1 << 20  # bytes of a result for which a task waits
_PART = 4  # a result of one part in so many of its inputs, or less, takes little memory
_AHEAD = 0.1  # seconds of work for each thread that a worker has beforehand, as it takes a round trip to get the next
_FRESH = 1.0  # seconds for which a view of the cluster is good
_BUFFERS = {  # types whose values are links, unless a worker found otherwise
    "numpy.ndarray",
    "pandas.core.frame.DataFrame",
    "pandas.core.series.Series",
    "pyarrow.lib.Table",
    typename(Handle),  # of results that were shared at once
}
_NAME = "_shmstore_queueing"


class Queueing:
    """The rules of one scheduler's queue."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._guard = Guard(Fallbacks(60.0, "scheduler"))
        self._hosts = Hosts()
        self._host: Host | None = None  # of all workers
        self._stale = 0.0  # when it is looked at anew

    def waits(self, task: Any) -> bool:
        """Whether a task's result takes memory, and each worker can have its inputs for nothing."""
        return bool(self._guard.call("queue", self._waits, task, otherwise=False))

    def takers(self, workers: Iterable[Any]) -> list[Any]:
        """Of those workers the ones that have nothing for one of their threads, or soon will."""
        workers = list(workers)
        return list(self._guard.call("queue", self._takers, workers, otherwise=workers))

    def choose(self, task: Any, workers: Iterable[Any]) -> Any:
        """Of the workers with a free thread the one that has most of the inputs."""
        return self._guard.call("queue", self._choose, task, workers)

    def linked(self, task: Any) -> int:
        """Bytes of a task's inputs that any worker maps where they are, whatever its memory limit."""
        return int(self._guard.call("queue", self._linked, task, otherwise=0))

    # -- private

    def _linked(self, task: Any) -> int:
        host = self._one_host()
        links = (dep.nbytes for dep in task.dependencies if host is not None and dep.type in _BUFFERS and host.links(dep))
        return sum(links)

    def _waits(self, task: Any) -> bool:
        host, size = self._shared_by_all(), average_size(task)
        if host is None or (size is not None and size < _LARGE):
            return False
        if any(dep.nbytes >= host.min_size and not (dep.type in _BUFFERS and host.links(dep)) for dep in task.dependencies):
            return False
        stay = [dep for dep in task.dependencies if dep.nbytes >= _LARGE and (len(dep.waiters or ()) > 1 or dep.who_wants)]
        return len(stay) > 1 and (size is None or size * _PART > sum(dep.nbytes for dep in task.dependencies))

    def _takers(self, workers: list[Any]) -> list[Any]:
        if self._shared_by_all() is None:
            return workers
        return [worker for worker in workers if n_running(worker) < worker.nthreads or worker.occupancy < _AHEAD * worker.nthreads]

    def _choose(self, task: Any, workers: Iterable[Any]) -> Any:
        if self._shared_by_all() is None:
            return None
        here: Counter[Any] = Counter()
        for dep in task.dependencies:
            here.update(dict.fromkeys(dep.who_has or (), dep.nbytes))

        def price(worker: Any) -> tuple[bool, int, float]:
            running = n_running(worker)
            return running >= worker.nthreads, -here[worker], running / worker.nthreads

        return min(workers, key=price)

    def _one_host(self) -> Host | None:
        """The host of all workers, where they share a partition."""
        now = time.monotonic()
        if now >= self._stale:
            self._stale = now + _FRESH
            self._hosts.update(self._scheduler.workers.values())
            host = next(iter(self._hosts), None) if len(self._hosts) == 1 else None
            self._host = host if host is not None and host.shared and len(host.workers) > 1 else None
        return self._host

    def _shared_by_all(self) -> Host | None:
        """That host, while its partition has room: where it has none, tasks go where their inputs are mapped."""
        host = self._one_host()
        return None if host is None or host.pressed else host


def begin(scheduler: Any) -> str:
    """Has a scheduler queue so from here on; once. Returns why it does not: '' where it does."""
    if hasattr(scheduler, _NAME):
        return ""
    if missing_for_queue:
        return f"this Dask lacks {', '.join(missing_for_queue)}"
    if not has_queue(scheduler):
        return "distributed.scheduler.worker-saturation is infinite: there is no queue"
    setattr(scheduler, _NAME, Queue(scheduler, Queueing(scheduler)))
    return ""


async def bring(worker: Any) -> None:
    """Has a worker's scheduler do so, or says why it does not. Raises what it answers with."""

    def begin_there(dask_scheduler: Any) -> str:
        """It goes there by value, as a scheduler may know nothing of us."""
        try:
            from shmstore.dask import queueing
        except ImportError:
            return "shmstore is not installed where the scheduler runs"
        return queueing.begin(dask_scheduler)

    if why := await ask_scheduler(worker, begin_there):
        logger.info("shmstore: worker=%s its scheduler gives tasks to workers as on stock: %s", worker.address, why)
