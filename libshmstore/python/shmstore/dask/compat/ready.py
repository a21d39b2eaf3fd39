# SPDX-License-Identifier: Apache-2.0
"""The tasks that a worker may run: in WorkerState.ready, a HeapSet by priority, of which the state machine pops the next one to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from distributed.collections import HeapSet

__all__ = ["Ready", "choose_next"]


class Ready(HeapSet[Any]):
    """The same set. next_of: of its tasks, by priority, the one that is to be popped; None for the first one."""

    def __init__(self, tasks: HeapSet[Any], next_of: Callable[[Iterator[Any]], Any]) -> None:
        super().__init__(key=tasks.key)
        for task in tasks.sorted():
            self.add(task)
        self.next_of = next_of

    def in_order(self) -> Iterator[Any]:
        """As `sorted`, but it costs nothing as long as the first one only is wanted. Not of an empty set."""
        yield self.peek()
        yield from islice(self.sorted(), 1, None)

    def pop(self) -> Any:
        task = self.next_of(self.in_order()) if len(self) > 1 else None
        if task is None:
            return super().pop()
        self.discard(task)
        return task


def choose_next(state: Any, next_of: Callable[[Iterator[Any]], Any]) -> Ready | None:
    """From here on next_of chooses the task that runs next. None where the state machine keeps its tasks in another way."""
    if type(getattr(state, "ready", None)) is not HeapSet:
        return None
    state.ready = Ready(state.ready, next_of)
    return state.ready
