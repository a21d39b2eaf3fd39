# SPDX-License-Identifier: Apache-2.0
"""Wishes: replicas that users asked for. They are kept as long as somebody holds the future."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..compat.manager import holders
from .conductor import Suggestions
from .policy import Policy

_BREATH = 64


class Wish(NamedTuple):
    """Of one key."""

    stores: int
    hosts: int
    on: frozenset[str]  #: names, addresses or hosts of the workers that may have it; empty: all


class Wishes(Policy):
    """What `client.shmstore.replicate(…)` asks for. It is added with the first wish, and removes itself with the last."""

    rank = 18

    def __init__(self, period: float | str = 0) -> None:
        super().__init__(period)
        self.wishes: dict[Any, Wish] = {}

    def wish(self, keys: Iterable[Any], stores: int, hosts: int, on: Iterable[str]) -> None:
        """From now on these keys are to be in so many stores on so many hosts. A later wish takes the place of an earlier one."""
        wish = Wish(max(stores, hosts), hosts, frozenset(on))
        self.wishes.update((key, wish) for key in keys)
        self.urgent = True

    def withdraw(self, keys: Iterable[Any]) -> int:
        """How many there were."""
        return sum(self.wishes.pop(key, None) is not None for key in keys)

    def keeps(self, task: Any) -> tuple[int, int] | None:
        """As many as were wished for."""
        wish = self.wishes.get(task.key)
        return None if wish is None else (wish.hosts, wish.stores)

    def in_memory(self, task: Any) -> bool:
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

    def _on(self, names: frozenset[str]) -> set[Any] | None:
        if not names:
            return None
        return {worker for worker in self.scheduler.running if names & {worker.address, str(worker.name), worker.host}}

    def __repr__(self) -> str:
        return f"Wishes({len(self.wishes)})"
