# SPDX-License-Identifier: Apache-2.0
"""HostReduceReplicas: in place of Dask's ReduceReplicas."""

from __future__ import annotations

from typing import Any

from ..compat.manager import busy_on, waiters
from .conductor import Suggestions
from .policy import Policy
from .surplus import surplus

_BREATH = 64  # tasks between two looks at the clock
_ANEW = 10  # of so many runs one takes nothing for settled: what tasks run where may be another than before
_MANY = 20  # waiting tasks from which on it is not counted for how many hosts they are


class HostReduceReplicas(Policy):
    """Drops replicas that free memory when they go, and nothing else.

    Links of one host stay while there is room: they cost nothing, and dropping one frees nothing. Of hosts that have a value one stays, and
    one for each host on which tasks wait for it. Where a partition is nearly full (amm.high) its links of a value go together if another host
    has it; else all but one, so that the object may be moved to the disk tier. What Insurance and users want stays.
    """

    rank = 70

    def __init__(self, period: float | str = 0) -> None:
        super().__init__(period)
        # Keys of several hosts of which nothing was to go, with how many had and how many wanted them. While that is so they are not looked at.
        self._settled: dict[Any, tuple[int, int]] = {}

    def workers_changed(self) -> bool:
        """All is to be looked at anew."""
        self._settled = {}
        return False

    def suggest(self) -> Suggestions:
        """One run."""
        assert self.conductor is not None
        hosts, running = self.hosts, self.scheduler.running
        old: dict[Any, tuple[int, int]] = {}
        if self.runs % _ANEW and not any(host.pressed for host in hosts):
            old = self._settled
        self._settled = settled = {}
        for i, task in enumerate(list(self.scheduler.replicated_tasks)):
            if not i % _BREATH:
                yield None
            has = task.who_has
            if not has or hosts.linked(task, has):
                continue
            state = len(has), len(task.waiters or ())
            if old.get(task) == state:
                settled[task] = state
                continue
            units = hosts.units(task, has)
            demand = self._demand(task, len(units))
            if len(units) <= max(1, demand) and not any(getattr(unit, "pressed", False) for unit in units):
                settled[task] = state
                continue
            n_hosts, n_stores = self.conductor.floor(task)
            for group in surplus(units, running, busy_on(task), n_hosts, n_stores, demand):
                for worker in group:
                    yield self.drop(task, {worker})

    def _demand(self, task: Any, enough: int) -> int:
        waiting = waiters(task)
        if len(waiting) < enough or len(waiting) >= _MANY:
            return len(waiting)
        return len({self.hosts.of(waiter.processing_on) if waiter.processing_on else waiter for waiter in waiting})
