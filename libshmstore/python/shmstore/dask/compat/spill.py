# SPDX-License-Identifier: Apache-2.0
"""Stock's data mapping: SpillBuffer, which is zict's Buffer, which is an LRU of private values over what spills.

    SpillBuffer.get_metrics    to 2023.3.1; cumulative_metrics took its place
    LRU.heap                   zict 2; `heavy` and `order` since zict 3 (distributed 2023.9)
    Buffer.n                   zict 2: a number beside fast.n. zict 3: fast.n itself
    File                       zict 2 names a file by its key. zict 3 keeps a table, as a name has a counter
    pop                        raises NotImplementedError since 2023.9
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

from distributed.spill import Slow, SpillBuffer, SpilledSize

try:
    from zict.file import _safe_key  # zict 2
except ImportError:
    _safe_key = None

__all__ = ["Slow", "SpillBuffer", "SpilledSize", "file_of", "keep_all", "metrics", "oldest", "pop", "slow_of"]

_ABSENT = object()


def keep_all(data: SpillBuffer, at_once: Callable[[Any], bool]) -> None:
    """From here on no value leaves private memory by itself; the target `n` stays. From zict 3 on a
    value above the target goes at once if at_once(key), and fails there if it cannot be pickled.
    """
    fast: Any = data.fast
    if hasattr(fast, "heap"):
        fast.n = math.inf
    else:
        fast.evict_until_below_target = partial(_evict_heavy, fast, at_once)


def _evict_heavy(fast: Any, at_once: Callable[[Any], bool], n: float | None = None) -> None:
    for key in [key for key in fast.heavy if at_once(key)]:
        fast.evict(key)


def oldest(data: SpillBuffer) -> Any:
    """The key that evict() would take. Only where `fast` is not empty."""
    fast: Any = data.fast
    if hasattr(fast, "heap"):
        return fast.heap.peekitem()[0]
    return next(iter(fast.heavy or fast.order))


def metrics(data: SpillBuffer) -> dict[str, float]:
    """Bytes in memory and on disk, as stock counted them once."""
    get = getattr(SpillBuffer, "get_metrics", None)
    if get is not None:
        return dict(get(data))
    fast: Any = data.fast
    slow = data._slow_uncached
    return {
        "memory_count": len(fast),
        "memory_bytes": fast.total_weight,
        "disk_count": len(slow.weight_by_key),
        "disk_bytes": slow.total_weight.disk,
    }


def pop(data: SpillBuffer, key: Any, *default: Any) -> Any:
    """As of any mapping."""
    return MutableMapping.pop(data, key, *default)


def slow_of(data: SpillBuffer) -> Slow | None:
    """The mapping that writes and reads spill files; None where that is not as we know it."""
    cache: Any = data.slow
    slow = getattr(cache, "data", None)
    if not isinstance(slow, Slow) or not hasattr(cache, "cache") or not hasattr(slow.d, "directory"):
        return None
    return slow if _safe_key is not None or hasattr(slow.d, "filenames") else None


def file_of(slow: Slow, key: Any) -> str:
    """The file in which the value of a key lies."""
    files: Any = slow.d
    name = _safe_key(key) if _safe_key is not None else files.filenames[key]
    return os.path.join(files.directory, name)
