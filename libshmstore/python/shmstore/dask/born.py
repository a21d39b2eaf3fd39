# SPDX-License-Identifier: Apache-2.0
"""Results that are born shared: while a task runs, NumPy makes large arrays in the partition (`Store.born_shared`). A result that is such an
array is there already when a peer asks for it, or memory runs short: its put is a link.

What a task makes and frees again is made in the same memory the next time (the store keeps some of it). Where the partition has no
room, arrays are made as ever. The memory is the partition's, not the process's: what no object is made of yet is counted for the worker here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from distributed.threadpoolexecutor import ThreadPoolExecutor

from .. import Error, Partition, Store
from .compat import tasks
from .exchange import Exchange, pays
from .memory import private_memory


class Born:
    """Of one worker."""

    def __init__(self, partition: Partition, store: Store) -> None:
        self._partition = partition
        self._store = store

    @classmethod
    def of(cls, worker: Any, exchange: Exchange) -> Born | None:
        """A worker's, in force from here on; None where it is not wanted."""
        wanted = exchange.settings.born
        if wanted is False or (wanted is None and not pays(exchange.partition)):
            return None
        born = cls(exchange.partition, exchange.store)
        if not tasks.NODES:
            born.around(worker.executors["default"])
        worker.monitor.get_process_memory = born.memory
        return born

    def within(self) -> ExitStack:
        """To 2023.7 of a thread, later of the coroutine that runs a task: its thread has the coroutine's context."""
        scope = ExitStack()
        if "numpy" in sys.modules:  # else there are no arrays, or those of its first task, which imports it
            with suppress(Error, ImportError, RuntimeError):  # the store is closed, or NumPy is too old
                scope.enter_context(self._store.born_shared())
        return scope

    def around(self, executor: Any) -> bool:
        """What is submitted to an executor runs within, from here on. False: it is not one of Dask's own, or another worker's already."""
        if type(executor) is not ThreadPoolExecutor or "submit" in vars(executor):
            return False
        submit = executor.submit

        def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            return submit(self.run, function, *args, **kwargs)

        executor.submit = run
        return True

    def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """function(*args, **kwargs), whose large arrays are made in the partition."""
        with self.within():
            return function(*args, **kwargs)

    def memory(self) -> int:
        """Bytes of the process's private memory, and of arrays that are in the partition but no object's yet."""
        return private_memory() + self.unpublished()

    def unpublished(self) -> int:
        """Bytes of those arrays, and of what is kept for the next ones: all that the store has reserved."""
        return sum(each.counters.reserved_bytes for each in self._partition.stores() if each.name == self._store.name)
