# SPDX-License-Identifier: Apache-2.0
"""Requests of clients. Each function runs on the scheduler, by `client.run_on_scheduler`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .conductor import Conductor
from .retire import Retire
from .wishes import Wishes

_TIMES = 20


def describe(dask_scheduler: Any = None) -> dict[str, Any]:
    """{"policies": [PolicyState as a dict], "figures": {…}, "hosts": [{…}]}; Dask's own policies are named in "stock"."""
    manager = dask_scheduler.extensions.get("amm")
    conductor = Conductor.known(manager)
    if conductor is None:
        return {"policies": [], "stock": sorted(map(repr, manager.policies)) if manager is not None else [], "figures": {}, "hosts": []}
    ours = conductor.policies()
    figures: dict[str, Any] = {**conductor.ledger.counters.as_dict(), "coming": len(conductor.ledger), "longest_slice": conductor.longest}
    for policy in ours:
        if isinstance(policy, Retire):
            seconds = policy.seconds[-_TIMES:]
            figures.update(retired=policy.retired, retire_seconds_sum=round(policy.seconds_sum, 4), retire_seconds=[round(s, 4) for s in seconds])
    hosts = [
        {
            "host": host.name,
            "shared": host.shared,
            "workers": len(host.workers),
            "replicas": sum(len(worker.has_what) for worker in host.workers),
            "used": host.used,
            "size": host.size,
            "private": host.private,
            "pressed": host.pressed,
        }
        for host in conductor.hosts
    ]
    stock = sorted(repr(policy) for policy in manager.policies if policy not in ours)
    return {"policies": [policy.describe()._asdict() for policy in ours], "stock": stock, "figures": figures, "hosts": hosts}


def replicate(keys: list[Any], stores: int, hosts: int, on: Iterable[str], dask_scheduler: Any = None) -> None:
    """Keeps the wish. RuntimeError where nobody would fulfil it."""
    manager = dask_scheduler.extensions.get("amm")
    if manager is None or not manager.running:
        raise RuntimeError(
            "the scheduler's memory manager is not started: configure distributed.scheduler.active-memory-manager.start: true, or call client.amm.start()"
        )
    wishes = _wishes(manager)
    if wishes is None:
        wishes = Wishes()
        manager.add_policy(wishes)
    wishes.wish(keys, stores, hosts, on)
    assert wishes.conductor is not None
    wishes.conductor.kick(0.0)


def withdraw(keys: list[Any], dask_scheduler: Any = None) -> int:
    """How many wishes there were."""
    wishes = _wishes(dask_scheduler.extensions.get("amm"))
    return wishes.withdraw(keys) if wishes is not None else 0


def _wishes(manager: Any) -> Wishes | None:
    return next((policy for policy in getattr(manager, "policies", ()) if isinstance(policy, Wishes)), None)
