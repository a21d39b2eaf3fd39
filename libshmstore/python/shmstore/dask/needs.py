# SPDX-License-Identifier: Apache-2.0
"""A key's need of memory, as far as it is known before it runs, and the maps that can go for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .admission import Need
from .buffer import SharedBuffer
from .exchange import Exchange
from .habits import Habits
from .inputs import Inputs
from .tier import Tier

_NONE: frozenset[Any] = frozenset()


class Needs:
    """Of one worker's event loop. Without a disk tier nothing is ever asked of the partition."""

    def __init__(self, exchange: Exchange, residence: SharedBuffer, habits: Habits, tier: Tier | None, inputs: Inputs | None) -> None:
        self.exchange = exchange
        self.residence = residence
        self.habits = habits
        self.tier = tier
        self.inputs = inputs

    def of(self, task: Any, result: int, promote_most: int | None) -> tuple[Need, frozenset[Any]]:
        """Of a key, with the inputs that are to be read where they lie: those beyond promote_most (None: no such bound); all of them where
        memory is short (inputs.py)."""
        need, aside = self.of_keys((dep.key for dep in task.dependencies), result, promote_most)
        share = self.exchange.settings.share
        stores = self.tier is not None and promote_most != 0 and result >= self.exchange.settings.min_size
        if stores and (share == "eager" or (share == "auto" and self.habits.leaves(task.key))):
            need = need._replace(store=result)
        return need, aside

    def of_keys(self, keys: Iterable[Any], result: int, promote_most: int | None) -> tuple[Need, frozenset[Any]]:
        """The same of a piece: its result stays private."""
        unspill = pinned = 0
        away: list[tuple[int, Any]] = []
        for key in keys:
            entry = self.residence.entry(key)
            if entry is None:
                unspill += self.residence.spilled_size(key)
            elif entry.value is None and self.tier is not None and self.tier.has(entry):
                away.append((entry.nbytes, key))
            else:
                pinned += entry.nbytes
        promote = sum(nbytes for nbytes, _ in away)
        aside = _NONE
        if away and self.tier is not None and self.tier.used_where_it_lies():
            promote_most = 0
        if promote_most is not None and promote > promote_most:
            promote, aside = self._part(away, promote_most)
            if self.tier is not None and self.tier.packed:  # compressed values cannot be mapped
                unspill += sum(nbytes for nbytes, key in away if key in aside)
        return Need(unspill, result, promote, 0, pinned), aside

    def relaxed(self, nbytes: int) -> bool:
        """Whether the partition has so much to spare that nobody needs to be asked for it."""
        return self.tier is None or self.tier.used() + nbytes <= self.tier.low

    def let_go(self) -> None:
        """Unmaps values that are not in use."""
        if self.inputs is not None:
            self.inputs.close()
            self.residence.unmap_idle()

    # -- private

    @staticmethod
    def _part(away: list[tuple[int, Any]], most: int) -> tuple[int, frozenset[Any]]:
        """As much as fits, the small ones first; the others are aside."""
        promote, aside = 0, set()
        for nbytes, key in sorted(away, key=lambda item: item[0]):
            if promote + nbytes <= most:
                promote += nbytes
            else:
                aside.add(key)
        return promote, frozenset(aside)
