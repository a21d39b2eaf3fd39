# SPDX-License-Identifier: Apache-2.0
"""Open requests of the policies to workers: none is made twice, and refusals are counted.

A worker answers neither a request to acquire nor one to remove a replica. `who_has` tells: an
acquisition arrived when the worker is a holder; a removal was refused when it is again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_REFUSED = 1.0  # seconds within which a worker that refuses to remove a replica has said so


@dataclass
class Counters:
    """Since the scheduler's start."""

    links: int = 0  #: replicas made by hard link
    copies: int = 0  #: replicas made over the network
    bytes_linked: int = 0  #: bytes that links did not copy
    bytes_copied: int = 0
    lost: int = 0  #: acquisitions that did not arrive in time
    drops: int = 0
    bytes_dropped: int = 0  #: bytes of the values whose replicas went; what the partition gets back is less where links stay
    drops_refused: int = 0  #: by workers
    suggestions_refused: int = 0  #: by the manager

    def as_dict(self) -> dict[str, int]:
        """For people and for metrics."""
        return asdict(self)


class Ledger:
    """Of one scheduler. `in_flight`: seconds after which an acquisition is given up."""

    def __init__(self, in_flight: float = 60.0) -> None:
        self.in_flight = in_flight
        self.counters = Counters()
        self._coming: dict[Any, dict[Any, tuple[float, bool]]] = {}  # key -> worker -> until when, whether it is a link
        self._going: list[tuple[Any, Any, float]] = []  # key, worker, when

    def acquire(self, task: Any, worker: Any, link: bool, now: float) -> None:
        """A worker was asked to acquire a replica."""
        self._coming.setdefault(task.key, {})[worker] = now + self.in_flight, link

    def remove(self, task: Any, worker: Any, now: float) -> None:
        """A worker was asked to remove one."""
        self._going.append((task.key, worker, now))
        self.counters.drops += 1
        self.counters.bytes_dropped += task.nbytes

    def coming(self, key: Any) -> set[Any]:
        """The workers to which a replica is under way."""
        return set(self._coming.get(key, ()))

    def __len__(self) -> int:
        return sum(map(len, self._coming.values()))

    def settle(self, tasks: Mapping[Any, Any], workers: Mapping[str, Any], now: float) -> None:
        """Compares with what is there now."""
        counters = self.counters
        for key in list(self._coming):
            task, coming = tasks.get(key), self._coming[key]
            for worker, (until, link) in list(coming.items()):
                if task is not None and worker in (task.who_has or ()):
                    counters.links += link
                    counters.copies += not link
                    counters.bytes_linked += task.nbytes if link else 0
                    counters.bytes_copied += 0 if link else task.nbytes
                elif task is None or task.state != "memory" or worker.address not in workers:
                    pass  # nobody wants it any more, or can take it
                elif now < until:
                    continue
                else:
                    counters.lost += 1
                del coming[worker]
            if not coming:
                del self._coming[key]
        still = []
        for key, worker, when in self._going:
            task = tasks.get(key)
            if task is not None and worker in (task.who_has or ()):
                counters.drops_refused += 1
            elif now < when + _REFUSED:
                still.append((key, worker, when))
        self._going = still
