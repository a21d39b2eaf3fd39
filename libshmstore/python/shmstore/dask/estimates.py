# SPDX-License-Identifier: Apache-2.0
"""How large the result of a key will be: what four of five of the last results of its kind (one key prefix) did not exceed."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

from dask.utils import key_split

_KINDS_MAX = 1000
_LAST = 32  # results of a kind that are remembered


class Estimates:
    """Of the results of one worker. Used by its event loop only."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[str, deque[int]] = OrderedDict()  # oldest kind first

    def made(self, key: Any, nbytes: int) -> None:
        """A result was made, with that sizeof."""
        kind = key_split(key)
        sizes = self._kinds.get(kind)
        if sizes is None:
            sizes = self._kinds[kind] = deque(maxlen=_LAST)
            if len(self._kinds) > _KINDS_MAX:
                self._kinds.popitem(last=False)
        sizes.append(nbytes)

    def of(self, key: Any) -> int:
        """Bytes; 0 of a kind that is not known yet."""
        sizes = self._kinds.get(key_split(key))
        if not sizes:
            return 0
        if len(sizes) == 1:
            return sizes[0]
        return sorted(sizes)[(len(sizes) * 4 - 1) // 5]
