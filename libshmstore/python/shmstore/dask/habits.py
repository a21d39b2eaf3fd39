# SPDX-License-Identifier: Apache-2.0
"""Habits of kinds of results: which leave the worker that made them, and which are arrays.

A result that no other worker asks for should cost nothing. Others are best put into the partition
when they are made: no task holds the private value any more, and the host never has it twice.
Nobody tells the worker which is which, but tasks of a kind (a key prefix) mostly share their fate.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from dask.utils import key_split

_KINDS_MAX = 1000


class _Kind:
    __slots__ = ("made", "left", "arrays")

    def __init__(self) -> None:
        self.made = self.left = 0
        self.arrays = True  # its last result was one, or there was none yet


class Habits:
    """The fate of one worker's results, by kind. Used by its event loop only."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[str, _Kind] = OrderedDict()  # oldest first

    def made(self, key: Any) -> None:
        """A result that might be shared was made."""
        self._kind(key).made += 1

    def left(self, key: Any) -> None:
        """A result was handed to another worker for the first time."""
        self._kind(key).left += 1

    def leaves(self, key: Any) -> bool:
        """Whether a result of this key will likely be handed on: half of its kind were."""
        kind = self._kind(key)
        return kind.left > 0 and 2 * kind.left >= kind.made

    def returned(self, key: Any, array: bool) -> None:
        """A result of this key is, or is not, a large array."""
        self._kind(key).arrays = array

    def returns_arrays(self, key: Any) -> bool:
        """Whether a result of this key is likely a large array, or may be: its kind is new."""
        return self._kind(key).arrays

    def _kind(self, key: Any) -> _Kind:
        name = key_split(key)
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _Kind()
            if len(self._kinds) > _KINDS_MAX:
                self._kinds.popitem(last=False)
        return kind
