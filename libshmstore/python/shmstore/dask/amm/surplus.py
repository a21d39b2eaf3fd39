# SPDX-License-Identifier: Apache-2.0
"""Which replicas of a key may go: a decision of values alone.

    units that are more than anybody wants     whole: all links of a host, as one of them alone frees nothing
    links of a host whose partition is full    all but one, so that the object may be moved to the disk tier; all, where another host has it
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import Any

from .hosts import Host


def surplus(
    units: dict[Any, list[Any]],
    running: Container[Any],
    busy: Collection[Any],
    hosts: int = 1,
    stores: int = 1,
    demand: int = 0,
) -> list[list[Any]]:
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
    groups: list[list[Any]] = []
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
        free = sorted((worker for worker in workers if worker not in busy), key=lambda worker: worker not in running)
        extra = free[max(0, keep - len(needed)) :]
        if extra:
            groups.append(extra)
    return groups


def _pressed(unit: Any) -> bool:
    return isinstance(unit, Host) and unit.pressed


def _memory(unit: Any) -> int:
    return unit.memory if isinstance(unit, Host) else int(unit.metrics.get("memory") or 0)
