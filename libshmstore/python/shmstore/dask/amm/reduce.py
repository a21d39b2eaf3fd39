# SPDX-License-Identifier: Apache-2.0
"""HostReduceReplicas: in place of Dask's ReduceReplicas."""

from __future__ import annotations

from typing import Any

from ..compat.manager import busy_on, holders, waiters
from .conductor import Suggestions
from .policy import Policy
from .surplus import surplus

_BREATH = 64  # tasks between two looks at the clock
_MANY = 20  # waiting tasks from which on it is not counted for how many hosts they are


class HostReduceReplicas(Policy):
    """Drops replicas that free memory when they go, and nothing else.

    Links of one host stay while there is room: they cost nothing, and dropping one frees nothing. Of hosts that have a value one stays, and
    one for each host on which tasks wait for it. Where a partition is nearly full (amm.high) its links of a value go together if another host
    has it; else all but one, so that the object may be moved to the disk tier. What Insurance and users want stays.
    """

    rank = 70

    def suggest(self) -> Suggestions:
        """One run."""
        hosts, running = self.hosts, self.scheduler.running
        for i, task in enumerate(list(self.scheduler.replicated_tasks)):
            if not i % _BREATH:
                yield None
                hosts = self.hosts
            units = hosts.units(task, holders(task))
            if len(units) < 2 and not any(getattr(unit, "pressed", False) for unit in units):
                continue
            assert self.conductor is not None
            n_hosts, n_stores = self.conductor.floor(task)
            for group in surplus(units, running, busy_on(task), n_hosts, n_stores, self._demand(task)):
                for worker in group:
                    yield self.drop(task, {worker})

    def _demand(self, task: Any) -> int:
        waiting = waiters(task)
        if len(waiting) >= _MANY:
            return len(waiting)
        return len({self.hosts.of(waiter.processing_on) if waiter.processing_on else waiter for waiter in waiting})
