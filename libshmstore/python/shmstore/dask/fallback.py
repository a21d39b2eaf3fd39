# SPDX-License-Identifier: Apache-2.0
"""The log of fallbacks: one line of fields for each time a value goes the ordinary way though it might have been shared.

The same reason is logged at most once per interval, with the number of lines left out meanwhile. A full partition is said
once, until something could be stored again.
"""

from __future__ import annotations

import errno
import logging
import threading
import time

from dask.utils import typename

logger = logging.getLogger("distributed.worker.shared")
_KEPT_MAX = 20  # reasons that are counted apart: they go out with each heartbeat


class Fallbacks:
    """One worker's or client's fallbacks. May be used by many threads."""

    def __init__(self, interval: float, who: str = "") -> None:
        self.interval = interval
        self.who = who
        self.counts: dict[str, int] = {}  #: by reason, logged or not
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}
        self._left_out: dict[str, int] = {}
        self._full = self._full_is_no_news = False
        self._unshared: dict[type, str] = {}  # why
        self._kept: dict[str, list[int]] = {}  # why -> values, bytes
        self._shared: set[type] = set()

    def unshared(self, kind: type, why: str) -> None:
        """Large values of a type go as on stock, always: said once for each type. No fallback, and not counted as one."""
        with self._lock:
            if kind in self._unshared:
                return
            self._unshared[kind] = why
        logger.info("shmstore: values of type %s.%s go as on stock: %s worker=%s", kind.__module__, kind.__qualname__, why, self.who)

    def note(self, reason: str, error: BaseException | None = None, key: object = None, then: str = "", trace: bool = False) -> None:
        """Logs one fallback: why (reason, errno), of which key, and what happens now. trace: with the error's traceback."""
        code = getattr(error, "errno", None)
        with self._lock:
            self.counts[reason] = self.counts.get(reason, 0) + 1
            now = time.monotonic()
            if reason in self._said and now - self._said[reason] < self.interval:
                self._left_out[reason] = self._left_out.get(reason, 0) + 1
                return
            self._said[reason] = now
            left_out = self._left_out.pop(reason, 0)
        logger.warning(
            "shmstore fallback: reason=%s key=%r errno=%s error=%r then=%r worker=%s suppressed=%d",
            reason,
            key,
            errno.errorcode.get(code, code) if code is not None else None,
            str(error) if error is not None else None,
            then,
            self.who,
            left_out,
            exc_info=error if trace else None,
        )

    def kept(self, nbytes: int, kind: type | None = None, why: str = "") -> None:
        """A value of so many bytes was not shared: because of what `unshared` said of its type, or why."""
        with self._lock:
            if kind is not None:
                why = f"{typename(kind)}: {self._unshared.get(kind, why)}"
            if why not in self._kept and len(self._kept) >= _KEPT_MAX:
                why = "others"
            counts = self._kept.setdefault(why, [0, 0])
            counts[0] += 1
            counts[1] += nbytes

    def not_shared(self) -> dict[str, list[int]]:
        """Why values were not shared: how many, and their bytes."""
        with self._lock:
            return {why: list(counts) for why, counts in self._kept.items()}

    def full_is_no_news(self) -> None:
        """A full partition is counted, and not said any more."""
        self._full = self._full_is_no_news = True

    def full(self, error: BaseException, key: object) -> None:
        """The partition or the quota is full: said once, until `stored`."""
        with self._lock:
            said, self._full = self._full, True
            if said:
                self.counts["partition-full"] = self.counts.get("partition-full", 0) + 1
                return
            self._said.pop("partition-full", None)
        self.note("partition-full", error, key, "values stay private until there is room again")

    def stored(self, kind: type) -> None:
        """A value of that type could be stored: a partition that fills up from here on is news."""
        self._full = self._full_is_no_news
        self._shared.add(kind)

    def private_types(self) -> list[str]:
        """Names, as the scheduler has them, of the types of which large values were met and none could be shared."""
        with self._lock:
            return sorted(typename(kind) for kind in self._unshared.keys() - self._shared)
