# SPDX-License-Identifier: Apache-2.0
"""Keeps a worker's private memory below its target where the partition has a disk tier: what is over moves into the partition.

Stock Dask, and this package without a tier, does so where a value is stored: on the event loop. With a tier a put may wait for the
disk, so it happens beside the loop: a task that finds no room for its result waits for it, which also keeps the worker from running
ahead of its disk; for what comes otherwise a pass is started. Values that cannot be shared spill as on stock; so do the others where a
pass does not come on, while the process is on its way to its limit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from .buffer import SharedBuffer


class Settling:
    """Of one worker's event loop.

    export   puts the private value of a key into the partition, if it can
    paused   whether the worker is: process memory is near its limit
    digest   the worker's digest_metric: what stock says of a slow write when a value is stored is said here, where it is written
    """

    SLOW = 0.005  # seconds, from which on stock says it
    STUCK = 0.3  # seconds in which a pass should have got something out
    EPISODE = 1.0  # seconds after which a new shortage is another one

    def __init__(
        self,
        residence: SharedBuffer,
        export: Callable[[list[Any]], Awaitable[None]],
        paused: Callable[[], bool],
        digest: Callable[[Any, float], None],
    ) -> None:
        self.residence = residence
        self._export = export
        self._paused = paused
        self._digest = digest
        self._lock = asyncio.Lock()
        self._pass: asyncio.Task[None] | None = None
        self._wanted = 0  # values to move whatever the target says: process memory is short
        self._urged = self._waited_from = 0.0  # when process memory was short last, and since when nothing has left meanwhile

    def start(self) -> None:
        """Something has to leave: a pass over what is private, unless one is under way."""
        self._wanted = 1
        if self._pass is None or self._pass.done():
            self._pass = asyncio.ensure_future(self.room(0))

    def urge(self) -> bool:
        """Process memory is short. Whether it can be left to a pass; False: that is too slow."""
        now = time.monotonic()
        if now - self._urged > self.EPISODE:
            self._waited_from = now
        self._urged = now
        self.start()
        return not self._paused() and now - self._waited_from < self.STUCK

    def close(self) -> None:
        if self._pass is not None:
            self._pass.cancel()

    async def room(self, nbytes: int) -> None:
        """Until nbytes more are below the target, or nothing can leave."""
        if not self.residence.over(nbytes) and not self._wanted:
            return
        async with self._lock:
            while self.residence.over(nbytes) or self._wanted:
                self._wanted = max(0, self._wanted - 1)
                if not await self._move_one():
                    break

    async def free(self, nbytes: int) -> int:
        """Moves private values, least recently used first, until so many bytes are freed or nothing can leave. Bytes that were."""
        async with self._lock:
            before = self.residence.fast.total_weight
            while (freed := before - self.residence.fast.total_weight) < nbytes:
                # Without room in the partition values go to disk at once: private memory is wanted
                if not await self._move_one() and (not self.residence.fast or self.residence.evict_to_disk() == -1):
                    break
        return int(freed)

    async def _move_one(self) -> bool:
        if not self.residence.fast:
            return False
        key = self.residence.oldest()
        if key is None:
            return self._spill_one()
        if self.residence.tier is not None:
            await self.residence.tier.below_low()  # so that memory never has both, what leaves and what makes room for it
        await self._export([key])
        if key in self.residence.fast and self.residence.private(key) is not None:
            return self._spill_one(to_disk=True)  # there is no room for it
        self._waited_from = time.monotonic()
        return True  # it has gone, or is known not to be shareable and spills the next time round

    def _spill_one(self, to_disk: bool = False) -> bool:
        started = time.monotonic()
        spilled = (self.residence.evict_to_disk() if to_disk else self.residence.evict()) != -1
        duration = time.monotonic() - started
        if spilled and duration > self.SLOW:
            self._digest("disk-write-target-duration", duration)
        return spilled
