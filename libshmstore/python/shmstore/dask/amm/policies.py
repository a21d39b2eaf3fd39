# SPDX-License-Identifier: Apache-2.0
"""The policies that make replicas or move values, in the order in which they run (reduce.py
has the one that drops them):

    Retire      what a worker has goes to its siblings when it is retired
    Cycle       worker processes are replaced one at a time, and nothing is lost or computed again
    Wishes      replicas that users asked for
    Insurance   values that are costly to make again outlive their worker
    Offload     a worker short of private memory moves values to who has room,
                before it writes them to its disk
    Newcomers   a worker that has just come gets what it will be asked to work on
    InDemand    what many tasks wait for is where they will run before they ask for it
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from dask.utils import parse_bytes, parse_timedelta

from ..compat.scheduler import (busy_on, holders, logger, restart, resume, retiring, runs_nothing,
                                waiters)
from .conductor import Policy, Suggestions

if TYPE_CHECKING:
    from ..compat.scheduler import Key, TaskState, WorkerState

_BREATH = 64  # tasks between two looks at the clock, ...
_LONG_BREATH = 256  # ... and where little is done with each
_REMEMBERED = 1000  # times
_LOOK = 0.05  # seconds between two looks at whether a worker still runs something
_RESTART = 60.0  # seconds that a nanny may take


class Retire(Policy):
    """Where Dask retires workers (`retire_workers`, adaptive scale-down), has siblings of the same
    host link what only those have. Values cross the network only where the whole host goes away, or
    what is left of it is paused.

    Dask's own RetireWorker, which `retire_workers` adds for each worker, decides when a worker may
    go; it finds replicas on their way and asks for no others. The manager must be started
    (`active-memory-manager.start`, Dask's default): what is not is not asked.
    """

    rank = 10
    at_once = True  # Dask's, in the same run, would have any worker copy what this has not come to

    def __init__(self, period: float | str = 0) -> None:
        super().__init__(period)
        self._since: dict[str, float] = {}  # address -> when its retirement was seen first
        self.seconds: list[float] = []  #: how long retirements took, the last ones
        self.seconds_sum = 0.0  #: of all of them
        self.retired = 0

    def suggest(self) -> Suggestions:
        """One run."""
        leaving = retiring(self.manager)
        self._take_leave({worker.address for worker in leaving})
        running = self.scheduler.running
        for worker in leaving:
            for task in list(worker.has_what):
                has = holders(task)
                if task.actor or not has or any(holder in running for holder in has):
                    continue
                coming = self.coming(task) & running
                yield (self.remind(task, coming) if coming
                       else self.replicate(task, self.links_of(task) or None))

    def _take_leave(self, leaving: set[str]) -> None:
        now = time.monotonic()
        for address in self._since.keys() - leaving:
            self.retired += 1
            seconds = now - self._since.pop(address)
            self.seconds_sum += seconds
            self.seconds = [*self.seconds[-_REMEMBERED:], seconds]
        for address in leaving:
            self._since.setdefault(address, now)

    def in_memory(self, task: TaskState) -> bool:
        """A task of a leaving worker ended: its result has to go, too."""
        return bool(self._since) and any(worker.address in self._since for worker in holders(task))


class Cycle(Policy):
    """Has nannies replace their workers' processes: those that are old, or have grown by what is no
    value (leaks, fragmentation).

    age       seconds after which a process is replaced; null: never for its age
    growth    bytes of unmanaged private memory that a process may take
              more than at first; null: any
    patience  seconds that the tasks of a worker which is to go may still run; then
              it stays, and is tried again

    One worker at a time: it gets no more tasks, those that run end, its values go to siblings
    (Retire) or to other hosts, its nanny starts a new process. Tasks that it had not begun run
    elsewhere. A worker without a nanny, with actors, or without another one that runs, stays.
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
        self._began: dict[WorkerState, tuple[float, int]] = {}  # worker -> since when, memory then
        self._not_before: dict[WorkerState, float] = {}
        self._replacing: asyncio.Future[None] | None = None

    def suggest(self) -> Suggestions:
        """One run: it suggests nothing to the manager, values are moved by Dask's
        retire_workers."""
        yield None
        now = time.monotonic()
        there = set(self.scheduler.workers.values())
        self._not_before = {worker: when for worker, when in self._not_before.items()
                            if worker in there}
        self._began = {worker: at_first for worker, at_first in self._began.items()
                       if worker in there}
        for worker in there:
            if worker not in self._began and worker.metrics.get("memory"):
                self._began[worker] = now, worker.memory.unmanaged_old
        if self._replacing is not None and not self._replacing.done():
            return
        if (due := self.next(now)) is not None:
            self._replacing = asyncio.ensure_future(self._replace(due))

    def next(self, now: float) -> WorkerState | None:
        """The worker that is to be replaced first; None where none is."""
        running = self.scheduler.running
        due = [
            worker
            for worker in running
            if len(running) > 1 and worker.nanny and not worker.actors and
            self._not_before.get(worker, 0.0) <= now and self._is_due(worker, now)
        ]
        return min(due, key=lambda worker: self._began[worker][0]) if due else None

    def _is_due(self, worker: WorkerState, now: float) -> bool:
        if worker not in self._began:
            return False
        began, memory = self._began[worker]
        if self.age is not None and now - began >= self.age:
            return True
        return self.growth is not None and worker.memory.unmanaged_old - memory >= self.growth

    async def _replace(self, worker: WorkerState) -> None:
        scheduler, address, started = self.scheduler, worker.address, time.monotonic()
        try:
            why = await self._empty(worker)
            if not why:
                why = await restart(scheduler, worker, _RESTART)
        except Exception as e:
            logger.exception("shmstore: worker %s could not be replaced", address)
            why = str(e) or type(e).__name__
        if why:
            self.failed += 1
            self._not_before[worker] = time.monotonic() + max(60.0, 10 * self.period)
            logger.warning("shmstore: worker %s is not replaced: %s; it is tried again later",
                           address, why)
            resume(scheduler, worker)
            return
        self.cycled += 1
        seconds = time.monotonic() - started
        self.seconds = [*self.seconds[-_REMEMBERED:], seconds]
        logger.info("shmstore: the process of worker %s was replaced in %.2f s", address, seconds)
        self.urgent = True

    async def _empty(self, worker: WorkerState) -> str:
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
                    return (f"its tasks still run after {self.patience:.0f} s: " +
                            ", ".join(str(task.key) for task in list(worker.executing)[:3]))
                await asyncio.sleep(_LOOK)
            running = scheduler.running
            if all(any(holder in running for holder in holders(task)) for task in worker.has_what):
                return ""

    async def _is_idle(self, worker: WorkerState) -> bool:
        """Asks the worker; without shmstore there, waits for two heartbeats: one may be old."""
        idle = await runs_nothing(self.scheduler, worker.address)
        if idle is None:
            for _ in range(2):
                seen, until = worker.last_seen, time.monotonic() + self.patience
                while worker.last_seen == seen and time.monotonic() < until:
                    await asyncio.sleep(_LOOK)
            idle = not worker.executing
        return idle


class Wish(NamedTuple):
    """Of one key."""

    stores: int
    hosts: int
    on: frozenset[str]  #: names, addresses or hosts of the workers that may have it; empty: all


class Wishes(Policy):
    """Makes the replicas that `client.shmstore.replicate(…)` asks for. It is added with the first
    wish, and removes itself with the last."""

    rank = 18

    def __init__(self, period: float | str = 0) -> None:
        super().__init__(period)
        self.wishes: dict[Key, Wish] = {}

    def wish(self, keys: Iterable[Key], stores: int, hosts: int, on: Iterable[str]) -> None:
        """From now on these keys are to be in so many stores on so many hosts. A later wish takes
        the place of an earlier one."""
        wish = Wish(max(stores, hosts), hosts, frozenset(on))
        self.wishes.update((key, wish) for key in keys)
        self.urgent = True

    def withdraw(self, keys: Iterable[Key]) -> int:
        """How many there were."""
        return sum(self.wishes.pop(key, None) is not None for key in keys)

    def keeps(self, task: TaskState) -> tuple[int, int] | None:
        """As many as were wished for."""
        wish = self.wishes.get(task.key)
        return None if wish is None else (wish.hosts, wish.stores)

    def in_memory(self, task: TaskState) -> bool:
        """Wished for before it was made."""
        return task.key in self.wishes

    def workers_changed(self) -> bool:
        """There may be a replica less, or a place more."""
        return True

    def suggest(self) -> Suggestions:
        """One run."""
        for i, (key, wish) in enumerate(list(self.wishes.items())):
            if not i % _BREATH:
                yield None
            task = self.scheduler.tasks.get(key)
            if task is None or not task.who_wants:  # the future is gone
                self.wishes.pop(key, None)
            elif task.state == "memory":
                on = self._on(wish.on)
                if len(holders(task)) < wish.stores or wish.hosts > 1 or on is not None:
                    yield from self.ensure(task, wish.hosts, wish.stores, on)
        if not self.wishes:
            self.finish()

    def _on(self, names: frozenset[str]) -> set[WorkerState] | None:
        if not names:
            return None
        return {worker for worker in self.scheduler.running
                if names & {worker.address, str(worker.name), worker.host}}

    def __repr__(self) -> str:
        return f"Wishes({len(self.wishes)})"


class Insurance(Policy):
    """Keeps every key above a size, or of a kind that takes long to
    compute, in n stores and on n hosts.

    size    bytes from which on a key is insured; null: none for its size
    cost    seconds that keys of its kind take on average from which on one is
            insured; null: none for its cost
    stores  workers that are to have it: on one host a second one is a link, which costs nothing.
            Where a worker dies Dask takes the other's
    hosts   hosts that are to have it: what outlives a host is a copy
    check   seconds between two looks at all keys; those just made, and all after a worker
            went, are looked at as they come
    """

    rank = 20

    def __init__(
        self,
        size: int | str | None = "1 MiB",
        cost: float | str | None = None,
        stores: int = 2,
        hosts: int = 1,
        check: float | str = "30s",
        period: float | str = 0,
    ) -> None:
        super().__init__(period)
        self.size = None if size is None else int(parse_bytes(size))
        self.cost = None if cost is None else float(parse_timedelta(cost, default="s"))
        self.stores, self.n_hosts = int(stores), int(hosts)
        self.check = float(parse_timedelta(check, default="s"))
        if self.stores < 1 or self.n_hosts < 1:
            raise ValueError(f"Insurance: stores and hosts must be 1 or more, not {stores} and "
                             f"{hosts}")
        self._made: dict[Key, TaskState] = {}  # key -> task, since the last run
        self._look_at_all = 0.0  # when

    def insures(self, task: TaskState) -> bool:
        """Whether it is to outlive its worker."""
        if self.size is not None and task.nbytes >= self.size:
            return True
        return self.cost is not None and (task.prefix.duration_average or 0) >= self.cost

    def keeps(self, task: TaskState) -> tuple[int, int] | None:
        """As many as it makes."""
        return (self.n_hosts, self.stores) if self.insures(task) else None

    def in_memory(self, task: TaskState) -> bool:
        """Made just now."""
        if not self.insures(task):
            return False
        self._made[task.key] = task
        return True

    def workers_changed(self) -> bool:
        """The worker's values have one store less, or there is a place more."""
        self._look_at_all = 0.0
        return True

    def looks_at_all(self) -> bool:
        """After a worker came or went, and once in `check`."""
        return time.monotonic() >= self._look_at_all

    def suggest(self) -> Suggestions:
        """One run."""
        now = time.monotonic()
        made, self._made = self._made, {}
        if now < self._look_at_all:
            yield from self._look(list(made.values()))
            return
        self._look_at_all = now + self.check
        least = self.size if self.size is not None and self.cost is None else 0
        # holders: where they are does not matter
        enough = self.stores if self.n_hosts == 1 else sys.maxsize
        for tasks in self.keys_from(least):
            yield None
            yield from self._look([task for task in tasks if len(task.who_has or ()) < enough])

    def _look(self, tasks: list[TaskState]) -> Suggestions:
        for i, task in enumerate(tasks):
            if not i % _LONG_BREATH:
                yield None
            if task.state != "memory" or task.actor or not self.insures(task):
                continue
            if len(holders(task)) < self.stores or self.n_hosts > 1:
                yield from self.ensure(task, self.n_hosts, self.stores)

    def __repr__(self) -> str:
        return (f"Insurance(size={self.size}, cost={self.cost}, stores={self.stores}, "
                f"hosts={self.n_hosts})")


class Offload(Policy):
    """Moves the largest keys of workers that are short of memory: to siblings whose partition has
    room by link, to other hosts where the network takes less time than the disk would.

    high   share of a worker's memory limit from which on it is short; less than Dask's `target`,
           from which on it writes to disk
    low    share down to which it is relieved, and below which a worker must stay that receives
    disk   bytes per second that the workers' disks write and read again

    A move is a replica now, and a drop when it has arrived.
    """

    rank = 50

    def __init__(self, high: float = 0.55, low: float = 0.45, disk: int | str = "150 MiB",
                 period: float | str = 0) -> None:
        super().__init__(period)
        if not 0 < low < high <= 1:
            raise ValueError(f"Offload: low must be less than high, both from 0 to 1, not {low} "
                             f"and {high}")
        self.high, self.low, self.disk = float(high), float(low), int(parse_bytes(disk))
        self._moving: dict[Key, WorkerState] = {}  # key -> the worker that it leaves

    def suggest(self) -> Suggestions:
        """One run."""
        workers = self.scheduler.workers
        for key, worker in list(self._moving.items()):
            task = self.scheduler.tasks.get(key)
            if (task is None or worker not in holders(task) or
                workers.get(worker.address) is not worker):
                del self._moving[key]
            elif len(holders(task)) > 1:
                if (yield self.drop(task, {worker})) is not None:
                    del self._moving[key]
            elif not self.coming(task):
                del self._moving[key]  # it did not arrive: anew, if need be
        memory = self.manager.workers_memory
        for worker in list(workers.values()):
            limit = worker.memory_limit
            if (not limit or memory.get(worker, 0) < self.high * limit or
                self._has_room_beside(worker)):
                continue
            excess = memory[worker] - self.low * limit - sum(
                self.scheduler.tasks[key].nbytes for key, other in self._moving.items()
                if other is worker and key in self.scheduler.tasks
            )
            yield from self._relieve(worker, excess)

    def _has_room_beside(self, worker: WorkerState) -> bool:
        """Values that its partition takes leave its private memory by themselves."""
        host = self.hosts.of(worker)
        return host.shared and not host.pressed

    def _relieve(self, worker: WorkerState, excess: float) -> Suggestions:
        own = [task for task in worker.has_what if not task.actor and len(holders(task)) == 1 and
               task.key not in self._moving]
        for i, task in enumerate(sorted(own, key=lambda task: -task.nbytes)):
            if excess <= 0:
                return
            if not i % _BREATH:
                yield None
            if worker in busy_on(task) or self.coming(task):
                continue
            candidates = {other for other in self.scheduler.running if other is not worker and
                          self._takes(worker, other, task)}
            if not candidates:
                continue
            if (yield self.replicate(task, candidates)) is not None:
                self._moving[task.key] = worker
                excess -= task.nbytes

    def _takes(self, donor: WorkerState, other: WorkerState, task: TaskState) -> bool:
        host = self.hosts.of(other)
        if host is self.hosts.of(donor) and host.shared:
            return False  # its partition is short: there is no more room by another name
        memory = self.manager.workers_memory.get(other, 0)
        if (other.memory_limit and memory + task.nbytes > self.low * other.memory_limit and
            not (host.shared and not host.pressed)):
            return False
        return task.nbytes / self._bandwidth(donor, other) <= 2 * task.nbytes / self.disk

    def _bandwidth(self, donor: WorkerState, other: WorkerState) -> float:
        """Bytes per second between two workers, as Dask measured it; else
        as over the whole cluster."""
        measured = self.scheduler.bandwidth_workers
        return float(measured.get((other.address, donor.address)) or self.scheduler.bandwidth or
                     1.0)


class Newcomers(Policy):
    """Has new workers link the keys of their siblings for which tasks wait, and pull
    some from workers of other hosts that have more tasks than threads. Those for
    which most tasks wait come first.

    size   bytes below which a key is left alone
    links  keys that a new worker links at most
    pull   bytes that it copies at most
    """

    rank = 55

    def __init__(self, size: int | str = "1 MiB", links: int = 1000, pull: int | str = "256 MiB",
                 period: float | str = 0) -> None:
        super().__init__(period)
        self.size, self.links, self.pull = int(parse_bytes(size)), int(links), int(
            parse_bytes(pull))
        self._known: set[WorkerState] = set()
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

    def _welcome(self, worker: WorkerState) -> Suggestions:
        host = self.hosts.of(worker)
        linked, pulled = self.links, self.pull
        beside: list[TaskState] = []
        elsewhere: list[TaskState] = []
        for other in [other for other in self.scheduler.workers.values() if other is not worker]:
            yield None
            here = self.hosts.of(other) is host
            if not here and len(other.processing) <= other.nthreads:
                continue
            for i, task in enumerate(list(other.has_what)):
                if not i % _LONG_BREATH:
                    yield None
                if (task.nbytes < self.size or not waiters(task) or task.actor or
                    (here and not host.links(task))):
                    continue
                (beside if here else elsewhere).append(task)
        for task in dict.fromkeys(sorted(beside, key=lambda task: -len(waiters(task)))):
            if linked <= 0:
                break
            if (worker in self.scheduler.running and (yield self.replicate(task, {worker})) is
                not None):
                linked -= 1
        for task in dict.fromkeys(sorted(elsewhere, key=lambda task: -len(waiters(task)))):
            there = ({self.hosts.of(holder) for holder in holders(task)} | {
                self.hosts.of(other) for other in self.coming(task)})
            if task.nbytes > pulled or (host.shared and host in there) or host.pressed:
                continue
            if (worker in self.scheduler.running and (yield self.replicate(task, {worker})) is
                not None):
                pulled -= task.nbytes


class InDemand(Policy):
    """Links a key for which many tasks wait to its workers' siblings, and copies it to other hosts:
    once to each, from where it is linked on.

    waiters  tasks that wait from which on a key is in demand
    size     bytes below which it is left alone: a request is as quick
    """

    rank = 60

    def __init__(self, waiters: int = 4, size: int | str = "1 MiB",
                 period: float | str = 0) -> None:
        super().__init__(period)
        self.waiters = int(waiters)
        self.size = int(parse_bytes(size))
        if self.waiters < 1:
            raise ValueError(f"InDemand: waiters must be 1 or more, not {waiters}")
        self._hot: dict[Key, TaskState] = {}  # key -> task
        self._look_at_all = True  # what was there before we were told of anything

    def wanted(self, task: TaskState) -> bool:
        """Whether it is in demand."""
        return len(waiters(task)) >= self.waiters and task.nbytes >= self.size

    def in_memory(self, task: TaskState) -> bool:
        """Made just now."""
        if not self.wanted(task):
            return False
        self._hot[task.key] = task
        return True

    def waits(self, task: TaskState) -> bool:
        """One more that may wait for what is there."""
        found = [other for other in task.dependencies if other.state == "memory" and
                 self.wanted(other)]
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
                self._hot.update((task.key, task) for task in tasks if len(task.waiters or ()) >=
                                 self.waiters)
        on_their_way = False
        for i, (key, task) in enumerate(list(self._hot.items())):
            if not i % _BREATH:
                yield None
            if task.state != "memory" or not self.wanted(task):
                self._hot.pop(key, None)
                continue
            running = self.scheduler.running
            coming = self.coming(task)
            for worker in sorted(self.links_of(task) - coming,
                                 key=lambda worker: len(worker.processing))[: len(waiters(task))]:
                yield self.replicate(task, {worker})
            there = set(self.hosts.units(task, {*holders(task), *coming}))
            for host in list(self.hosts):
                if host in there or not host.links(task) or host.pressed:
                    continue
                if (yield self.replicate(task, running & set(host.workers))) is not None:
                    on_their_way = True
            on_their_way = (on_their_way or any(not self.hosts.of(worker).links(task)
                                                for worker in coming))
        self.urgent = on_their_way  # to link what arrives
