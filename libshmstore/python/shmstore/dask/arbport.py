# SPDX-License-Identifier: Apache-2.0
"""A worker's port to the host daemon's memory arbiter, by a store.

A **scope** is one task of the arbiter with the one context that waits for it; it ends with all that it holds. `Port` is all that the rest of
this package knows of the arbiter; tests put one of their own in its place.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

PARTITION = 1  #: the pool that is the store's partition


class Outcome(enum.IntEnum):
    """As in shmstore/arbiter.h."""

    OK = 0
    PENDING = 1
    RETRY = 2
    SPLIT = 3
    NOMEM = 4
    TOOBIG = 5
    AGAIN = 6
    TIMEDOUT = 7
    CANCELED = 8
    REMOVED = 9
    DOWN = 10
    ERROR = 11


class Answer(NamedTuple):
    """How a call ended."""

    outcome: Outcome
    held: tuple[Any, ...] = ()  #: reservations, in the order in which they were asked for
    why: str = ""  #: the daemon's sentence


class Done(NamedTuple):
    """How a call that was pending ended."""

    scope: Any
    answer: Answer


class Port(Protocol):
    """All may be called by any thread, the calls of one scope one after the other. Nobody raises for want of memory; OSError, where the daemon is lost."""

    def available(self) -> bool:
        """Whether there is an arbiter behind the store now."""

    def pool(self, name: str, capacity: int) -> int:
        """Makes a private pool."""

    def resize_pool(self, pool: int, capacity: int) -> None: ...

    def begin(self, priority: int | None, label: str, service: bool) -> Any:
        """A scope. priority: larger is served first, None: by arrival. service: it works for many, and is served before all others."""

    def loose(self) -> Any:
        """A scope of nobody's work, that never waits: whoever looks for a deadlock does not see it."""

    def end(self, scope: Any) -> None:
        """Gives back what it holds. Its waiting call ends with REMOVED."""

    def reserve(self, scope: Any, wants: Sequence[tuple[int, int]], timeout: float | None, wait: bool, spill: bool) -> Answer:
        """(pool, bytes) each, all or nothing. PENDING: `next` will say. Without wait: OK or AGAIN. spill: of one pool, never waits."""

    def ready(self, scope: Any, timeout: float | None) -> Answer:
        """After RETRY or SPLIT, with all given back: may it begin again? PENDING: `next` will say."""

    def resize(self, scope: Any, held: Any, nbytes: int) -> bool:
        """Less, or more where there is room for it now. Whether it has that size."""

    def yielding(self, held: Any) -> None:
        """From here on `evict` may be asked to give it up."""

    def release(self, held: Any) -> None: ...

    def commit(self, held: Any, nbytes: int) -> None:
        """The reservation has become memory of the partition: the kernel counts it."""

    def fd(self) -> int:
        """Readable when `next` has something."""

    def next(self) -> Done | None:
        """Never waits."""

    def listen(self, evict: Callable[[int], int], pressure: Callable[[int, int], None]) -> None:
        """evict(bytes) of what was said to be yielding, returns bytes; pressure(pool, level). Called by the thread that serves."""

    def serve(self) -> None:
        """Up-calls, until `hush`. Waits."""

    def hush(self) -> None: ...
