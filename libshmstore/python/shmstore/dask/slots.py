# SPDX-License-Identifier: Apache-2.0
"""Slots of the worker's own state machine, for keys that wait.

Dask starts as many keys as the worker has threads. A key that waits for memory needs none: while it does, one more may start. As
many threads as ever run tasks.
"""

from __future__ import annotations

from typing import Any

_MOST = 4  # keys that wait with a slot of their own, per thread


class Slots:
    """Of one worker. start: has it start what may be started now."""

    PATIENCE = 0.01  # seconds that a key keeps its own slot: most waits are shorter

    def __init__(self, state: Any, start: Any) -> None:
        self.lent = 0
        self._state = state
        self._start = start
        self._most = _MOST * state.nthreads

    def lend(self) -> bool:
        """For one that waits. False: too many do."""
        if self.lent >= self._most:
            return False
        self.lent += 1
        self._state.nthreads += 1
        if self._state.running:
            self._start()
        return True

    def give_back(self) -> None:
        self.lent -= 1
        self._state.nthreads -= 1
