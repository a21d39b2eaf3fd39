# SPDX-License-Identifier: Apache-2.0
"""A worker's measure of the network, by which the scheduler places tasks, where handles came in: they cross no network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def kept(worker: Any) -> Iterator[float]:
    """Forgets measurements within. Yields the bandwidth, in bytes per second."""
    bandwidth, by_worker, by_type = worker.bandwidth, dict(worker.bandwidth_workers), dict(worker.bandwidth_types)
    yield bandwidth
    worker.bandwidth = bandwidth
    for current, before in ((worker.bandwidth_workers, by_worker), (worker.bandwidth_types, by_type)):
        current.clear()
        current.update(before)


def count(worker: Any, donor: str, kinds: set[Any], rate: float) -> None:
    """As stock does: a transfer from a donor of values of those types."""
    worker.bandwidth = worker.bandwidth * 0.95 + rate * 0.05
    for rates, what in [(worker.bandwidth_workers, donor), *((worker.bandwidth_types, kind) for kind in kinds if len(kinds) == 1 and kind)]:
        total, n = rates[what]
        rates[what] = (total + rate, n + 1)
