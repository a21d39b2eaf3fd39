# SPDX-License-Identifier: Apache-2.0
"""The cluster as the policies see it: which workers share a partition. One partition is one host, and one host is one replica.

Workers say with each heartbeat which partition they use and how full it is (`metrics["shmstore"]`). A worker that says nothing shares
nothing, and is a host of its own. Nothing here asks Dask: workers are any objects with `address`, `metrics` and `nbytes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Host:
    """Workers among which a replica is a hard link; or one worker that shares nothing."""

    __slots__ = ("name", "shared", "workers", "size", "used", "private", "min_size", "types", "pressed")

    def __init__(self, name: str, shared: bool) -> None:
        self.name = name
        self.shared = shared
        self.workers: list[Any] = []
        self.size = 0  #: bytes of the partition
        self.used = 0  #: of them
        self.private = 0  #: bytes of its workers' processes
        self.min_size = 0  #: bytes from which on its workers share values
        self.types: frozenset[str] = frozenset()  #: of large values that its workers found not to be shareable
        self.pressed = False  #: the partition is nearly full

    @property
    def memory(self) -> int:
        """Bytes that its workers take, each page once."""
        return self.used + self.private

    @property
    def fill(self) -> float:
        """The share of the partition that is in use, from 0 to 1."""
        return self.used / self.size if self.size else 0.0

    def links(self, task: Any) -> bool:
        """Whether another replica of a task's value on this host is a link."""
        return self.shared and task.nbytes >= self.min_size and task.type not in self.types

    def __repr__(self) -> str:
        return f"<Host {self.name} workers={len(self.workers)} used={self.used} of={self.size}{' pressed' if self.pressed else ''}>"


class Hosts:
    """All of them. `update` is called before each use; what is pressed is remembered in between."""

    def __init__(self, high: float = 0.8, low: float = 0.7) -> None:
        self.high = high  #: a partition is pressed from this share of use on, ...
        self.low = low  #: ... down to this one
        self.by_name: dict[str, Host] = {}
        self._of: dict[Any, Host] = {}

    def update(self, workers: Iterable[Any]) -> None:
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
                if not host.size or used * host.size > host.used * size:  # heartbeats are of different moments: the fuller one
                    host.used, host.size = used, size
                host.min_size = max(host.min_size, ours.get("min-size") or 0)
                types = ours.get("private-types")
                if types:
                    host.types = host.types.union(types)
            of[worker] = host
        for host in hosts.values():
            host.pressed = host.fill >= (self.low if host.name in before else self.high)
        self.by_name = hosts

    def __iter__(self) -> Any:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def of(self, worker: Any) -> Host:
        """The host of a worker."""
        host = self._of.get(worker)
        if host is None:  # it came after the update: alone until it says something
            host = self._of[worker] = Host(worker.address, False)
            host.workers.append(worker)
        return host

    def siblings(self, worker: Any) -> set[Any]:
        """The other workers that share a worker's partition."""
        return {other for other in self.of(worker).workers if other is not worker}

    def linked(self, task: Any, workers: Iterable[Any]) -> bool:
        """Whether all of a task's replicas are links of one host that has room: then there is nothing to gain. Quick."""
        of, host = self._of, None
        for worker in workers:
            other = of.get(worker)
            if other is not host:
                if host is not None or other is None:
                    return False
                host = other
        return host is not None and not host.pressed and host.links(task)

    def units(self, task: Any, workers: Iterable[Any]) -> dict[Any, list[Any]]:
        """Replicas of a task by unit: a host whose replicas of it are links is one, each other worker is one of its own."""
        units: dict[Any, list[Any]] = {}
        for worker in workers:
            host = self.of(worker)
            units.setdefault(host if host.links(task) else worker, []).append(worker)
        return units
