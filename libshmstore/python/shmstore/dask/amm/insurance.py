# SPDX-License-Identifier: Apache-2.0
"""Insurance: values that are costly to make again outlive their worker."""

from __future__ import annotations

import sys
import time
from typing import Any

from dask.utils import parse_bytes, parse_timedelta

from ..compat.manager import holders
from .conductor import Suggestions
from .policy import Policy

_BREATH = 256


class Insurance(Policy):
    """Keeps every key above a size, or of a kind that takes long to compute, in n stores and on n hosts.

    size    bytes from which on a key is insured; null: none for its size
    cost    seconds that keys of its kind take on average from which on one is insured; null: none for its cost
    stores  workers that are to have it: on one host a second one is a link, which costs nothing. Where a worker dies Dask takes the other's
    hosts   hosts that are to have it: what outlives a host is a copy
    check   seconds between two looks at all keys; those just made, and all after a worker went, are looked at as they come
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
            raise ValueError(f"Insurance: stores and hosts must be 1 or more, not {stores} and {hosts}")
        self._made: dict[Any, Any] = {}  # key -> task, since the last run
        self._look_at_all = 0.0  # when

    def insures(self, task: Any) -> bool:
        """Whether it is to outlive its worker."""
        if self.size is not None and task.nbytes >= self.size:
            return True
        return self.cost is not None and (task.prefix.duration_average or 0) >= self.cost

    def insured(self, task: Any) -> bool:
        """Whether it has all that it is to have, on workers that run."""
        has = [worker for worker in holders(task) if worker in self.scheduler.running]
        return self.insures(task) and len(has) >= self.stores and len(self.hosts.units(task, has)) >= self.n_hosts

    def keeps(self, task: Any) -> tuple[int, int] | None:
        """As many as it makes."""
        return (self.n_hosts, self.stores) if self.insures(task) else None

    def in_memory(self, task: Any) -> bool:
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
        enough = self.stores if self.n_hosts == 1 else sys.maxsize  # holders: where they are does not matter
        for tasks in self.keys_from(least):
            yield None
            yield from self._look([task for task in tasks if len(task.who_has or ()) < enough])

    def _look(self, tasks: list[Any]) -> Suggestions:
        for i, task in enumerate(tasks):
            if not i % _BREATH:
                yield None
            if task.state != "memory" or task.actor or not self.insures(task):
                continue
            if len(holders(task)) < self.stores or self.n_hosts > 1:
                yield from self.ensure(task, self.n_hosts, self.stores)

    def __repr__(self) -> str:
        return f"Insurance(size={self.size}, cost={self.cost}, stores={self.stores}, hosts={self.n_hosts})"
