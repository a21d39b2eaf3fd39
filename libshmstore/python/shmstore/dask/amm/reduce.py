# SPDX-License-Identifier: Apache-2.0
"""HostReduceReplicas, in place of Dask's ReduceReplicas; and which replicas of a key may
go, a decision of values alone:

    units that are more than anybody wants     whole: all links of a host, as one of them alone
                                               frees nothing
    links of a host whose partition is full    all but one, so that the object may be moved to the
                                               disk tier; all, where another host has it
"""

from __future__ import annotations

import time
from collections.abc import Collection, Container
from typing import TYPE_CHECKING

from dask.utils import parse_timedelta

from ..compat.scheduler import busy_on, waiters
from ..hosts import Host
from .conductor import Policy, Suggestions

if TYPE_CHECKING:
    from ..compat.scheduler import Key, TaskState, WorkerState


def surplus(
    units: dict[Host | WorkerState, list[WorkerState]], running: Container[WorkerState],
    busy: Collection[WorkerState | None], hosts: int = 1, stores: int = 1, demand: int = 0,
) -> list[list[WorkerState]]:
    """The workers whose replicas may go, in groups: each group all or nothing.

    units    the replicas' workers by unit (Hosts.units)
    running  workers that stay; replicas elsewhere count for nothing
    busy     workers whose tasks need the value now: what they have stays
    hosts    units that are to stay whatever comes
    stores   replicas that are to stay whatever comes
    demand   units for which tasks wait: they stay where memory is not short
    """
    sure = [unit for unit, workers in units.items() if any(worker in running for worker in workers)]
    if not sure:
        return []
    left = len(sure)
    replicas = sum(worker in running for workers in units.values() for worker in workers)
    groups: list[list[WorkerState]] = []
    dropped = set()
    # Units that are about to go come first, then those short of memory, then the largest.
    order = sorted(units, key=lambda unit: (unit in sure, not _pressed(unit), -_memory(unit)))
    for unit in order if len(units) > max(1, hosts) else ():
        workers = units[unit]
        if any(worker in busy for worker in workers):
            continue
        counts = unit in sure
        floor = max(1, hosts, 0 if _pressed(unit) else demand)
        if left - counts < floor or replicas - len(workers) * counts < stores:
            continue
        groups.append(workers)
        dropped.add(unit)
        left -= counts
        replicas -= len(workers) * counts
    for unit, workers in units.items():
        if unit in dropped or not _pressed(unit) or len(workers) < 2:
            continue
        keep = max(1, stores - (replicas - len(workers)))
        needed = [worker for worker in workers if worker in busy]
        free = sorted((worker for worker in workers if worker not in busy),
                      key=lambda worker: worker not in running)
        extra = free[max(0, keep - len(needed)) :]
        if extra:
            groups.append(extra)
    return groups


def _pressed(unit: Host | WorkerState) -> bool:
    return isinstance(unit, Host) and unit.pressed


def _memory(unit: Host | WorkerState) -> int:
    return unit.memory if isinstance(unit, Host) else int(unit.metrics.get("memory") or 0)


_BREATH = 256  # tasks between two looks at the clock
# of the keys: in each run one of them takes nothing for settled, as what tasks run
# where may be another than before
_PARTS = 7
_MANY = 20  # waiting tasks from which on it is not counted for how many hosts they are


class HostReduceReplicas(Policy):
    """Drops replicas that free memory when they go, and nothing else.

    Links of one host stay while there is room: they cost nothing, and dropping one frees
    nothing. Of hosts that have a value one stays, and one for each host on which tasks wait for
    it. Where a partition is nearly full (amm.high) its links of a value go together if another
    host has it; else all but one, so that the object may be moved to the disk tier. Replicas
    that Insurance and users want stay.

    linger  seconds that a host's links stay after the last change of who waits for the key, while
            its partition has room: a client submits one task after the other, and those to come may
            run there; what went would cross the network again
    """

    rank = 70

    def __init__(self, linger: float | str = "10s", period: float | str = 0) -> None:
        super().__init__(period)
        self.linger = float(parse_timedelta(linger, default="s") or 0)
        # keys with replicas that may go: how many tasks wait, and since when so many
        self._idle: dict[Key, tuple[int, float]] = {}
        # Of tasks (their ids) of which nothing was to go, how many workers had and how many tasks
        # wanted them: while that is so they are not looked at. Dicts of numbers, as Python's
        # collector of garbage does not go through these: one of 200,000 tasks held the event loop
        # for 13 ms at a time. In parts, as one that grows is copied at once.
        self._settled: list[dict[int, int]] = [{} for _ in range(_PARTS)]
        self._epoch = 0  # what was settled in an earlier one is not

    def workers_changed(self) -> bool:
        """All is to be looked at anew."""
        self._epoch += 1
        return False

    def suggest(self) -> Suggestions:
        """One run."""
        hosts, running = self.hosts, self.scheduler.running
        room = not any(host.pressed for host in hosts)
        now = time.monotonic()
        before, self._idle = self._idle, {}
        if not room:
            self._epoch += 1
        settled = self._settled
        settled[self.runs % _PARTS] = {}
        tasks = list(self.scheduler.replicated_tasks)
        while tasks:
            yield None
            some = tasks[-_BREATH:]
            # a bit at a time: to give all up at once would hold the event loop
            del tasks[-_BREATH:]
            for task in some:
                has = task.who_has
                if not has:
                    continue
                n_has, n_waiting = len(has), len(task.waiters or ())
                state = self._epoch << 56 | n_has << 32 | n_waiting
                # that of one that is gone may come again: it is looked at anew soon
                name = id(task)
                known = settled[(name >> 4) % _PARTS]
                if known.get(name) == state:
                    continue
                if (hosts.linked(task, has) or (room and n_has <= n_waiting and
                                                n_has <= self._demand(task, n_has))):
                    known[name] = state
                    continue
                units = hosts.units(task, has)
                demand = self._demand(task, len(units))
                if (len(units) <= max(1, demand) and
                    not any(getattr(unit, "pressed", False) for unit in units)):
                    known[name] = state
                    continue
                n_hosts, n_stores = self.conductor.floor(task)
                groups = surplus(units, running, busy_on(task), n_hosts, n_stores, demand)
                if self.linger and groups:
                    waiting, since = before.get(task.key, (n_waiting, now))
                    since = since if waiting == n_waiting else now
                    self._idle[task.key] = n_waiting, since
                    if now < since + self.linger:
                        groups = [group for group in groups if not self._lingers(task, group[0])]
                for group in groups:
                    for worker in group:
                        yield self.drop(task, {worker})

    def _lingers(self, task: TaskState, worker: WorkerState) -> bool:
        host = self.hosts.of(worker)
        return host.links(task) and not host.pressed and worker in self.scheduler.running

    def _demand(self, task: TaskState, enough: int) -> int:
        """For how many hosts tasks wait, at least: more than enough are as good."""
        waiting = waiters(task)
        if len(waiting) < enough or len(waiting) >= _MANY:
            return len(waiting)
        of, wanting = self.hosts.of, set()
        for waiter in waiting:
            wanting.add(of(waiter.processing_on) if waiter.processing_on else waiter)
            if len(wanting) >= enough:
                break
        return len(wanting)
