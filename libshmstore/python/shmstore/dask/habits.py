# SPDX-License-Identifier: Apache-2.0
"""Which kinds of results leave the worker that made them.

A result that no other worker asks for should cost nothing. One that will be asked for is best put into the partition when
it is made: then no task holds the private value any more, and there is no time at which the host has it twice. The worker is
not told which is which, but tasks of one kind (of one key prefix) mostly share their fate.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from dask.utils import key_split

_KINDS_MAX = 1000


class Habits:
    """What became of the results of one worker. Used by its event loop only."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[str, list[int]] = OrderedDict()  # kind -> [made, left], oldest first

    def made(self, key: Any) -> None:
        """A result that might be shared was made."""
        self._kind(key)[0] += 1

    def left(self, key: Any) -> None:
        """A result was handed to another worker for the first time."""
        self._kind(key)[1] += 1

    def leaves(self, key: Any) -> bool:
        """Whether a result of this key will likely be handed on: half of its kind were."""
        made, left = self._kind(key)
        return left > 0 and 2 * left >= made

    def _kind(self, key: Any) -> list[int]:
        name = key_split(key)
        counts = self._kinds.get(name)
        if counts is None:
            counts = self._kinds[name] = [0, 0]
            if len(self._kinds) > _KINDS_MAX:
                self._kinds.popitem(last=False)
        return counts
