# SPDX-License-Identifier: Apache-2.0
"""Results that are born shared: while a task runs, NumPy makes large arrays in the partition (`Store.born_shared`). A result that is such an
array is there already when a peer asks for it, or memory runs short: its put is a link.

Arrays that a task frees again leave their memory for the next ones (the store keeps some). Kinds of
tasks whose last result was no large array, or is not asked for by others, make theirs in private
memory, and so do all if the partition is full. Arrays that are no object yet count for the worker.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, suppress
from contextvars import copy_context
from typing import Any

from distributed.threadpoolexecutor import ThreadPoolExecutor

from .. import Error
from .compat.worker import NODES
from .exchange import Exchange, pays
from .habits import Habits
from .memory import private_memory

_LARGE = 2 << 20  # bytes from which on arrays are made in the partition: below, the faults of a new file cost more than a copy
_LOOK_SHARE = 20  # a look at the books, which read a page of each store, takes one part in so many of the time at most


class Born:
    """Of one worker."""

    def __init__(self, exchange: Exchange, habits: Habits) -> None:
        self._exchange = exchange
        self._partition = exchange.partition
        self._store = exchange.store
        self._habits = habits
        self._all_kinds = exchange.settings.born is True or exchange.settings.share == "eager"
        self._tasks: Any = {}
        self._much = 0  # bytes of inputs from which on a result may be more than the worker may keep privately; 0: it may keep all
        self._unpublished = 0
        self._next_look = 0.0

    @classmethod
    def of(cls, worker: Any, exchange: Exchange, habits: Habits) -> Born | None:
        """A worker's, in force from here on; None where it is not wanted."""
        wanted = exchange.settings.born
        if wanted is False or (wanted is None and not pays(exchange.partition)):
            return None
        born = cls(exchange, habits)
        born._tasks, born._much = worker.state.tasks, worker._target_bytes() // 2
        if not NODES:
            lend_context(worker.executors["default"])
        worker.monitor.get_process_memory = born.memory
        return born

    def within(self, key: Any) -> ExitStack:
        """Of the coroutine that runs the task of that key: its thread has the coroutine's context."""
        scope = ExitStack()
        if "numpy" in sys.modules and self._pays(key) and self._has_room(key):  # without NumPy there are no arrays, or those of the task that imports it
            with suppress(Error, ImportError, RuntimeError):  # the store is closed, or NumPy is too old
                scope.enter_context(self._store.born_shared(_LARGE))
        return scope

    def _pays(self, key: Any) -> bool:
        """Whether a result is likely a large array that is put: what stays with its worker would take the partition's memory, and what is kept of that, for
        nothing."""
        return self._habits.returns_arrays(key) and (self._all_kinds or self._habits.leaves(key) or self._takes_much(key))

    def _takes_much(self, key: Any) -> bool:
        """Whether a result, if it is as large as the task's inputs, is more than half of what the worker may keep privately."""
        return bool(self._much) and self._inputs(key) > self._much

    def _inputs(self, key: Any) -> int:
        task = self._tasks.get(key)
        return sum(dep.nbytes or 0 for dep in task.dependencies) if task is not None else 0

    def _has_room(self, key: Any) -> bool:
        """Half of the partition's bound is for such arrays; one too large to be private may take as much as its inputs do of all memory there is."""
        with suppress(OSError):
            size, used = self._exchange.space()
            if used < size // 2 or not self._takes_much(key):
                return used < size // 2
            return all(used + self._inputs(key) < size for size, used in self._exchange.bounds(limits=False))
        return False

    def made(self, key: Any, value: Any) -> None:
        """The result of a task."""
        numpy = sys.modules.get("numpy")
        self._habits.returned(key, numpy is not None and isinstance(value, numpy.ndarray) and value.nbytes >= _LARGE)

    def memory(self) -> int:
        """Bytes of the process's private memory, and of arrays that are in the partition but no object's yet."""
        return private_memory() + self.unpublished()

    def unpublished(self) -> int:
        """Bytes of those arrays, and of what is kept for the next ones: all that the store has reserved."""
        now = time.monotonic()
        if now >= self._next_look:
            self._unpublished = sum(each.counters.reserved_bytes for each in self._partition.stores() if each.name == self._store.name)
            ended = time.monotonic()
            self._next_look = ended + _LOOK_SHARE * (ended - now)
        return self._unpublished


def lend_context(executor: Any) -> None:
    """Makes Dask's executor run calls in the submitter's context: to 2023.7 it did not."""
    if type(executor) is not ThreadPoolExecutor or "submit" in vars(executor):
        return
    submit = executor.submit

    def submit_in_context(*args: Any, **kwargs: Any) -> Any:
        return submit(copy_context().run, *args, **kwargs)

    executor.submit = submit_in_context
