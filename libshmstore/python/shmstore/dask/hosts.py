# SPDX-License-Identifier: Apache-2.0
"""The cluster as the scheduler sees it: which workers share a partition. One partition is one host,
and one host is one replica.

Workers say with each heartbeat which partition they use and how full it is (`metrics["shmstore"]`).
A worker that says nothing shares nothing, and is a host of its own. Nothing here asks Dask: workers
are any objects with `address`, `metrics` and `nbytes`.

`Queueing`: where all workers share one partition, tasks with large results that make nothing free
run in the order of their priorities.

Dask orders a graph so that few results are there at once. But it gives each task to a worker as
soon as it may run, to one that has most of its inputs, and each worker keeps to the order within
what it was given: one is far ahead of the others then, and what it makes waits for theirs. Where
inputs are links, any worker will do. So these tasks wait at the scheduler, in one queue, and
whoever has a free thread gets the first of them.

Such tasks have several large inputs that others need too: products of a matrix's blocks. Tasks that
free memory go at once: sums, and parts of a rechunk (1.8 times the memory if they wait).
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .compat.scheduler import Queue, average_size, missing_for_queue, n_running
from .config import Fallbacks, Guard, logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed.scheduler import Scheduler

    from .compat.scheduler import TaskState, WorkerState
    from .worker import Worker


@dataclass(eq=False, repr=False, slots=True)
class Host:
    """Workers among which a replica is a hard link; or one worker that shares nothing."""

    name: str
    shared: bool
    workers: list[WorkerState] = field(default_factory=list)
    size: int = 0  #: bytes of the partition
    used: int = 0  #: of them
    private: int = 0  #: bytes of its workers' processes
    min_size: int = 0  #: bytes from which on its workers share values
    #: of large values that its workers found not to be shareable
    types: frozenset[str] = frozenset()
    pressed: bool = False  #: the partition is nearly full

    @property
    def memory(self) -> int:
        """Bytes that its workers take, each page once."""
        return self.used + self.private

    @property
    def fill(self) -> float:
        """The share of the partition that is in use, from 0 to 1."""
        return self.used / self.size if self.size else 0.0

    def links(self, task: TaskState) -> bool:
        """Whether another replica of a task's value on this host is a link."""
        return self.shared and task.nbytes >= self.min_size and task.type not in self.types

    def __repr__(self) -> str:
        return (f"<Host {self.name} workers={len(self.workers)} used={self.used} "
                f"of={self.size}{' pressed' if self.pressed else ''}>")


class Hosts:
    """All of them. `update` is called before each use; what is pressed is remembered in between."""

    def __init__(self, high: float = 0.8, low: float = 0.7) -> None:
        self.high = high  #: a partition is pressed from this share of use on, ...
        self.low = low  #: ... down to this one
        self.by_name: dict[str, Host] = {}
        self._of: dict[WorkerState, Host] = {}

    def update(self, workers: Iterable[WorkerState]) -> None:
        """Reads what the workers said last."""
        before = {name for name, host in self.by_name.items() if host.pressed}
        hosts: dict[str, Host] = {}
        self._of = of = {}
        for worker in workers:
            ours = worker.metrics.get("shmstore") or {}
            partition = ours.get("partition")
            host = hosts.get(partition or worker.address)
            if host is None:
                name = partition or worker.address
                host = hosts[name] = Host(name, partition is not None)
            host.workers.append(worker)
            host.private += worker.metrics.get("memory") or 0
            if partition is not None:
                used, size = ours.get("used") or 0, ours.get("size") or 0
                # heartbeats are of different moments: the fuller one
                if not host.size or used * host.size > host.used * size:
                    host.used, host.size = used, size
                host.min_size = max(host.min_size, ours.get("min-size") or 0)
                types = ours.get("private-types")
                if types:
                    host.types = host.types.union(types)
            of[worker] = host
        for host in hosts.values():
            host.pressed = host.fill >= (self.low if host.name in before else self.high)
        self.by_name = hosts

    def __iter__(self) -> Iterator[Host]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def of(self, worker: WorkerState) -> Host:
        """The host of a worker."""
        host = self._of.get(worker)
        if host is None:  # it came after the update: alone until it says something
            host = self._of[worker] = Host(worker.address, False)
            host.workers.append(worker)
        return host

    def linked(self, task: TaskState, workers: Iterable[WorkerState]) -> bool:
        """Whether all of a task's replicas are links of one host that has room: then there
        is nothing to gain. Quick."""
        of, host = self._of, None
        for worker in workers:
            other = of.get(worker)
            if other is not host:
                if host is not None or other is None:
                    return False
                host = other
        return host is not None and not host.pressed and host.links(task)

    def units(self, task: TaskState,
              workers: Iterable[WorkerState]) -> dict[Host | WorkerState, list[WorkerState]]:
        """Replicas of a task by unit: a host whose replicas of it are links is one, each other
        worker is one of its own."""
        units: dict[Host | WorkerState, list[WorkerState]] = {}
        for worker in workers:
            host = self.of(worker)
            units.setdefault(host if host.links(task) else worker, []).append(worker)
        return units


_LARGE = 1 << 20  # bytes of a result for which a task waits
_PART = 4  # a result of one part in so many of its inputs, or less, takes little memory
# seconds of work for each thread that a worker has beforehand, as it takes
# a round trip to get the next
_AHEAD = 0.1
_FRESH = 1.0  # seconds for which a view of the cluster is good
_BUFFERS = {  # types whose values are links, unless a worker found otherwise
    "numpy.ndarray",
    "pandas.core.frame.DataFrame",
    "pandas.core.series.Series",
    "pyarrow.lib.Table",
    "shmstore.dask.handle.Handle",  # of results that were shared at once
}
_NAME = "_shmstore_queueing"


class Queueing:
    """The rules of one scheduler's queue."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._hosts = Hosts()
        self._host: Host | None = None  # of all workers
        self._stale = 0.0  # when it is looked at anew

    def linked(self, task: TaskState) -> int:
        """Bytes of a task's inputs that any worker maps where they are,
        whatever its memory limit."""
        host = self._one_host()
        links = (dep.nbytes for dep in task.dependencies if host is not None and
                 dep.type in _BUFFERS and host.links(dep))
        return sum(links)

    def waits(self, task: TaskState) -> bool:
        """Whether a task's result takes memory, and each worker can have its inputs for nothing."""
        host, size = self._shared_by_all(), average_size(task)
        if host is None or (size is not None and size < _LARGE):
            return False
        if any(dep.nbytes >= host.min_size and not (dep.type in _BUFFERS and host.links(dep))
               for dep in task.dependencies):
            return False
        stay = [dep for dep in task.dependencies if dep.nbytes >= _LARGE and
                (len(dep.waiters or ()) > 1 or dep.who_wants)]
        return (len(stay) > 1 and
                (size is None or size * _PART > sum(dep.nbytes for dep in task.dependencies)))

    def takers(self, workers: Iterable[WorkerState]) -> list[WorkerState]:
        """Of those workers the ones that have nothing for one of their threads, or soon will."""
        if self._shared_by_all() is None:
            return list(workers)
        return [worker for worker in workers if n_running(worker) < worker.nthreads or
                worker.occupancy < _AHEAD * worker.nthreads]

    def choose(self, task: TaskState, workers: Iterable[WorkerState]) -> WorkerState | None:
        """Of the workers with a free thread the one that has most of the inputs."""
        if self._shared_by_all() is None:
            return None
        here: Counter[WorkerState] = Counter()
        for dep in task.dependencies:
            here.update(dict.fromkeys(dep.who_has or (), dep.nbytes))

        def price(worker: WorkerState) -> tuple[bool, int, float]:
            running = n_running(worker)
            return running >= worker.nthreads, -here[worker], running / worker.nthreads

        return min(workers, key=price)

    # -- private

    def _one_host(self) -> Host | None:
        """The host of all workers, where they share a partition."""
        now = time.monotonic()
        if now >= self._stale:
            self._stale = now + _FRESH
            self._hosts.update(self._scheduler.workers.values())
            host = next(iter(self._hosts), None) if len(self._hosts) == 1 else None
            self._host = (host if host is not None and host.shared and len(host.workers) > 1
                          else None)
        return self._host

    def _shared_by_all(self) -> Host | None:
        """That host, while its partition has room: where it has none, tasks go where
        their inputs are mapped."""
        host = self._one_host()
        return None if host is None or host.pressed else host


def begin_queueing(scheduler: Scheduler) -> str:
    """Has a scheduler queue so from here on; once. Returns why it does not: '' where it does."""
    if hasattr(scheduler, _NAME):
        return ""
    if missing_for_queue:
        return f"this Dask lacks {', '.join(missing_for_queue)}"
    if math.isinf(scheduler.WORKER_SATURATION):
        return "distributed.scheduler.worker-saturation is infinite: there is no queue"
    setattr(scheduler, _NAME, Queue(scheduler, Queueing(scheduler),
                                    Guard(Fallbacks(60.0, "scheduler"))))
    return ""


async def bring_queueing(worker: Worker) -> None:
    """Has a worker's scheduler do so, or says why it does not. Raises what it answers with."""

    def begin_there(dask_scheduler: Scheduler) -> str:
        """It goes there by value, as a scheduler may know nothing of us."""
        try:
            from shmstore.dask.hosts import begin_queueing
        except ImportError:
            return "shmstore is not installed where the scheduler runs"
        return begin_queueing(dask_scheduler)

    from .compat.worker import ask_scheduler  # a scheduler may lack what workers need

    if why := await ask_scheduler(worker, begin_there):
        logger.info("shmstore: worker=%s its scheduler gives tasks to workers as on stock: %s",
                    worker.address, why)
