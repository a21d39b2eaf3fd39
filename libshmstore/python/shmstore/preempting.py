# SPDX-License-Identifier: Apache-2.0
"""Messages to a store where memory is short and the daemon preempts: docs/governor.md "Preemption".

>>> with store.admitted("join", level="auto", retriable=True) as task:
...     for part in parts:
...         task.check()    # Preempted: end it now, and try again after error.delay
...         table = join(table, part)

A program that started tasks in other processes (``parent=task.task`` there)
asks for what became of them:

>>> told = store.preempted(timeout=1.0)
>>> if told and told.what == "lost" and told.retry:
...     begin_again(told.task, after=told.delay)
"""

from __future__ import annotations

import select
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .profiling import Admitted
    from .store import Store

__all__ = ["Preempted", "Preemption"]

_LOOK = 1.0  # seconds between two looks for a daemon that has come
_KEPT = 1024  # that nobody asked for


class Preemption(NamedTuple):
    """A message about a task, or about an idle worker."""

    #: ``notice``: end it within `grace`; ``spared``: its process goes on;
    # ``lost``: its process has ended
    what: str
    task: int  #: as `Admitted.task`; 0: this worker is idle, and should give memory back
    parent: int  #: the task that started it; 0: none
    bytes: int  #: private ones that it had when it was chosen
    grace: float  #: seconds, of a notice
    delay: float  #: seconds to wait before it is tried again
    retry: bool  #: it may be tried again
    asked_only: bool  #: memory is not so short, so far, that a process is ended for it


class Preempted(Exception):
    """The task is to give way: its process is ended unless it ends within `grace`."""

    def __init__(self, told: Preemption) -> None:
        self.task = told.task  #: its number
        self.retry = told.retry  #: it may be tried again
        self.delay = told.delay  #: after so many seconds
        self.bytes = told.bytes  #: private ones that it had
        self.grace = told.grace  #: seconds that it had
        super().__init__(f"memory is short: task {told.task}, which has {told.bytes} bytes, is to "
                         f"end within {told.grace:.1f} s"
                         + (f" and may be tried again after {told.delay:.1f} s" if told.retry
                            else ""))


class Told:
    """Messages to a store: to tasks that run here, and all to its callers. Keeps no store alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: weakref.WeakValueDictionary[int, Admitted] = weakref.WeakValueDictionary()
        self._kept: deque[Preemption] = deque(maxlen=_KEPT)

    def watch(self, task: Admitted) -> None:
        """It is told what is said of it."""
        if task.task:
            with self._lock:
                self._tasks[task.task] = task

    def take(self, store: Store) -> None:
        """Takes what was said so far."""
        with self._lock:
            while (said := store._preempt_next()) is not None:
                told = Preemption._make(said)
                running = self._tasks.get(told.task)
                if running is not None:
                    running._told(told)
                self._kept.append(told)

    def next(self, store: Store, timeout: float) -> Preemption | None:
        """As `Store.preempted`."""
        until = time.monotonic() + timeout
        while True:
            self.take(store)
            with self._lock:
                if self._kept:
                    return self._kept.popleft()
            left = until - time.monotonic()
            if left <= 0:
                return None
            poll = select.poll()
            poll.register(store._preempt_fd(), select.POLLIN)
            poll.poll(min(left, _LOOK) * 1000)
