# SPDX-License-Identifier: Apache-2.0
"""Turns: one large value of a host at a time goes from private memory into the partition.

While it does, the host has it twice. Eight workers that do so at once would have eight values twice, and as many as run
tasks on theirs would keep them so: so the turn lasts until the private value is gone, or for a moment at most.

The turn is a flock on the partition's stores directory: it ends with the process however that ends. A process that was stopped keeps it:
who has waited in vain goes on without, and as long as it stays taken nobody here waits for it again. Memory is saved where it can be; no
value is held up for it for long.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import weakref
from typing import Any

_MIN = 16 << 20  # bytes from which a value waits for its turn
_HOLD_MIN = 32 << 20  # bytes from which the turn lasts until the private value is gone
_RATE = 1 << 30  # bytes per second: a value that is not gone in the time that its copying may take is one that its producer keeps
_HOLD = 0.05  # seconds for which it is waited for at most
_WAIT = 0.5  # seconds that one waits at most
_LOOK = 0.001  # seconds between two tries, at first
_LOOK_MAX = 0.004


class Turns:
    """Of one partition, as one process sees them. Any thread."""

    def __init__(self, partition: str) -> None:
        self.path = os.path.join(partition, "stores")
        self.missed = 0  #: turns that were not waited for, or in vain
        self._taken = False  # for longer than anybody should: not waited for until it is free
        self._kept = 0  # how often in a row a private value was not gone in time

    def turn(self, size: int, wait: bool) -> Turn:
        """For a value of that size. wait: not on an event loop."""
        return Turn(self, size, wait)

    def take(self, wait: bool) -> int:
        """The lock's descriptor; -1 where it could not be had."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # whoever puts will say it
            return -1
        started = time.monotonic()
        pause = _LOOK
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._taken = False
                return fd
            except OSError:
                waited = time.monotonic() - started
            if not wait or self._taken or waited >= _WAIT:
                break
            time.sleep(pause)
            pause = min(2 * pause, _LOOK_MAX)
        os.close(fd)
        self.missed += 1
        self._taken = self._taken or wait
        return -1

    def hold_time(self, size: int) -> float:
        """Seconds for which a turn lasts at most after its value was stored. 0 where values were kept all the same lately, but for one in
        eight, which finds out whether that is still so."""
        return min(_HOLD, size / _RATE) if self._kept < 2 or self._kept % 8 == 0 else 0.0

    def note(self, gone: bool) -> None:
        self._kept = 0 if gone else self._kept + 1


class Turn:
    """A turn for a value of a size; a context manager whose end ends it, unless `until_gone` was asked for within."""

    def __init__(self, turns: Turns, size: int, wait: bool) -> None:
        self._turns = turns
        self._fd = -1
        self._size = size
        self._wait = wait
        self._kept = False
        self._lock = threading.Lock()

    def __enter__(self) -> Turn:
        """Waits, for a moment at most."""
        if self._size >= _MIN:
            self._fd = self._turns.take(self._wait)
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._kept or exc[0] is not None:
            self.end()

    def end(self) -> bool:
        """Lets the next one go. Any thread, any number of times. Whether it was still to be ended."""
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        return fd >= 0

    def until_gone(self, value: Any) -> None:
        """Ends when nobody has the value any more, or after a moment. Arrays only: frames may lie in cycles of references."""
        if self._fd < 0 or self._size < _HOLD_MIN or type(value).__module__ != "numpy":
            return
        hold = self._turns.hold_time(self._size)
        if not hold:
            self._turns.note(gone=False)
            return
        try:
            weakref.finalize(value, self._gone).atexit = False
        except TypeError:  # nobody will tell
            return
        self._kept = True
        timer = threading.Timer(hold, self._expired)
        timer.daemon = True
        timer.start()

    def _gone(self) -> None:
        if self.end():
            self._turns.note(gone=True)

    def _expired(self) -> None:
        if self.end():
            self._turns.note(gone=False)
