# SPDX-License-Identifier: Apache-2.0
"""The memory that tasks of one kind used so far, and so the next one will; and whether it may
begin now: docs/governor.md.

>>> with store.profiled("join", group="Tables") as task:     # the daemon looks at this process
...     table = join(parts)
...     task.created(table.nbytes)
>>> store.estimate("join", group="Tables").private           # bytes
>>> with store.admitted("join", group="Tables"):             # waits for memory; is profiled
...     table = join(parts)

Where no daemon is, or it keeps no profiles, tasks run as they would without, and an estimate is
None. Where none watches the host's memory all tasks are let in at once.
"""

from __future__ import annotations

import contextlib
import errno
import math
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .errors import Error
from .preempting import Preempted, Preemption
from .richtext import size

if TYPE_CHECKING:
    from .store import Store

__all__ = ["Admitted", "Estimate", "NotAdmitted", "Profiled"]

_HOW = {"done": 0, "killed": 1, "preempted": 2, "dropped": 3}


class Estimate(NamedTuple):
    """The expected use of the next task of a kind."""

    private: int  #: bytes of private memory
    shared: int  #: bytes that it creates in the store
    cpu_ms: int  #: processor time
    n: int  #: of so many tasks it is known; 0: what was declared, or the daemon's default


@contextlib.contextmanager
def unless(*codes: int) -> Iterator[None]:
    """An Error with one of these errnos is no failure: the daemon, the store or the task has
    ended, or there is none."""
    try:
        yield
    except Error as error:
        if error.errno not in codes:
            raise


# nobody keeps profiles, or knows the task any more; the store is closed
_GONE = (errno.ENOTSUP, errno.ENOENT, errno.EBADF)


def _how(kind: type[BaseException] | None) -> str:
    return ("done" if kind is None else "killed" if issubclass(kind, MemoryError) else "preempted"
            if issubclass(kind, Preempted) else "dropped")


class Profiled(contextlib.AbstractContextManager["Profiled", None]):
    """A task that runs. As a context manager it ends with its block: with an exception as
    ``dropped``, with a MemoryError as ``killed``."""

    def __init__(self, store: Store, lang: str, func: str, group: str) -> None:
        self._store = store
        self._task = 0
        self._shared = 0
        self._thread = threading.get_ident()
        self._cpu_ns = time.thread_time_ns()
        with unless(*_GONE):
            self._task = store._profile_begin(lang, func, group)

    @property
    def known(self) -> bool:
        """Whether a daemon profiles it."""
        return self._task != 0

    def sample(self, private: int) -> None:
        """It has so many bytes now, where that is more than what the
        kernel tells of this process."""
        if self._task:
            with unless(*_GONE):
                self._store._profile_sample(self._task, private)

    def created(self, shared: int) -> None:
        """So many more bytes of the store are its work."""
        self._shared += shared

    def end(self, how: str = "done", private: int | None = None) -> None:
        """It has ended: ``done``, ``killed`` (for want of memory), ``preempted``, or ``dropped``:
        nothing is learned. Once; more often is no error."""
        task, self._task = self._task, 0
        number = _HOW[how]
        if not task:
            return
        # The time of another thread says nothing.
        cpu_ms = ((time.thread_time_ns() - self._cpu_ns) // 1_000_000 if threading.get_ident() ==
                  self._thread else None)
        with unless(*_GONE):
            self._store._profile_end(task, number, private, self._shared, cpu_ms)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end(_how(kind))


_LEVELS = {"never": 0, "low": 1, "med": 2, "high": 3, "always": 4, "auto": 5}
_REASONS = {1: "progress", 2: "fits", 3: "off", 4: "gate", 5: "full", 6: "toobig"}
_OUTCOMES = {1: "refused", 2: "timed-out", 3: "too-big"}


class NotAdmitted(Exception):
    """A task may not begin. Nothing was changed: it may ask again later, unless it is too big."""

    def __init__(self, outcome: str, reason: str, reserve: int, waited: float) -> None:
        #: ``refused`` (it was not to wait), ``timed-out``, or ``too-big``: it
        # declared more than ever may be used
        self.outcome = outcome
        #: ``gate``: memory is short; ``full``: what runs leaves no room; ``toobig``
        self.reason = reason
        self.reserve = reserve  #: bytes that were expected of it
        self.waited = waited  #: seconds
        super().__init__(f"the task was not let in ({outcome}, {reason}): {size(reserve)} are "
                         f"expected of it, and it waited {waited:.3f} s")


class Admitted(contextlib.AbstractContextManager["Admitted", None]):
    """A task that was let in, and, where its kind was named, is profiled. As a context manager it
    ends with its block, as `Profiled` does."""

    def __init__(self, store: Store, kind: tuple[str, str, str], declared: int, wait: float | None,
                 level: str | int, retriable: bool, parent: int, worker: bool) -> None:
        number = _LEVELS.get(level.lower(), -1) if isinstance(level, str) else level
        if number not in _LEVELS.values():
            raise ValueError(f"there is no level {level!r}: one of {', '.join(_LEVELS)}")
        if wait is not None and not wait >= 0:
            raise ValueError(f"a wait is a number of seconds from 0 on, or None, not {wait!r}")
        self._store = store
        outcome, self.task, self.reserve, waited_ms, reason = store._task_admit(
            *kind, declared, None if wait is None else math.ceil(1000 * min(wait, 1e15)), number,
            retriable, parent, worker)
        #: ``fits``, ``progress`` (nothing else ran), or ``off``: nobody holds tasks back
        self.reason = _REASONS.get(reason, "?")
        self.waited = waited_ms / 1000  #: seconds
        if outcome:
            raise NotAdmitted(_OUTCOMES[outcome], self.reason, self.reserve, self.waited)
        self._notice: Preemption | None = None
        self._profiled: Profiled | None = None
        store._told.watch(self)
        try:
            if kind[1]:
                self._profiled = Profiled(store, *kind)
        except BaseException:
            self.done()
            raise

    def _told(self, told: Preemption) -> None:
        self._notice = told if told.what == "notice" else None

    @property
    def notice(self) -> Preemption | None:
        """That it is to end, as long as that holds. Looks, and waits for
        nothing: a system call or two."""
        if self.task:
            self._store._told.take(self._store)
        return self._notice

    def check(self) -> None:
        """Raises `Preempted` if it is to end. To be called often enough: the grace counts
        from the daemon's decision."""
        notice = self.notice
        if notice is not None:
            raise Preempted(notice)

    def created(self, shared: int) -> None:
        """So many more bytes of the store are its work."""
        if self._profiled is not None:
            self._profiled.created(shared)

    def done(self, how: str = "done") -> None:
        """It has ended, as `Profiled.end` says. More often than once is no error; nor is it if the
        daemon was started anew meanwhile."""
        if self._profiled is not None:
            self._profiled.end(how)
        task, self.task = self.task, 0
        with unless(*_GONE):
            self._store._task_done(task)

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        self.done(_how(kind))
