# SPDX-License-Identifier: Apache-2.0
"""Turns: one large value of a host at a time goes from private memory into the partition.

While it does, the host has it twice. Eight workers that do so at once would have eight values twice, and as many as run
tasks on theirs would keep them so: so the turn lasts until the private value is gone, or for a moment at most.

The turn is a flock on the partition's stores directory: it ends with the process however that ends.
"""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from typing import Any

_MIN = 16 << 20  # bytes from which a value waits for its turn
_HOLD_MIN = 32 << 20  # bytes from which the turn lasts until the private value is gone
_HOLD = 0.05  # seconds for which it lasts at most


class Turn:
    """A turn for a value of a size; a context manager whose end ends it, unless `until_gone` was asked for within."""

    def __init__(self, partition: str, size: int) -> None:
        self._fd = -1
        self._size = size
        self._partition = partition
        self._kept = False
        self._lock = threading.Lock()

    def __enter__(self) -> Turn:
        """Waits."""
        if self._size >= _MIN:
            path = os.path.join(self._partition, "stores")
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._kept or exc[0] is not None:
            self.end()

    def end(self) -> None:
        """Lets the next one go. Any thread, any number of times."""
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def until_gone(self, value: Any) -> None:
        """Ends when nobody has the value any more, or after a moment. Arrays only: frames may lie in cycles of references."""
        if self._fd < 0 or self._size < _HOLD_MIN or type(value).__module__ != "numpy":
            return
        try:
            weakref.finalize(value, self.end).atexit = False
        except TypeError:  # nobody will tell
            return
        self._kept = True
        timer = threading.Timer(_HOLD, self.end)
        timer.daemon = True
        timer.start()
