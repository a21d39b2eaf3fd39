# SPDX-License-Identifier: Apache-2.0
"""The partition's disk tier as one worker uses it: what replaces spill files for values that lie in the partition.

A thread moves values out when the partition passes its high watermark. It runs beside the host daemon and the other workers' threads: who
comes first does it (the library lets one at a time work for each user). All that may wait for the disk - maps of values that may lie there,
puts into a partition that may be full, deletes - runs in threads of this module, never on the event loop.

The tier belongs to the partition, not to a worker: a tier that is there already, the operator's or another cluster's, is used as it is.
Of one that workers made, they set the limit: max-spill for each worker of this host.
"""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .. import Error, Partition
from .config import TierSettings
from .exchange import Entry, Exchange

_LOOK = 0.5  # seconds between two looks at the partition where nobody reports that it grew
_AGAIN = 5.0  # seconds until a tier that failed, or a full disk, is tried again
_EASE = 2.0  # seconds for which memory was not short, after which it is not expected to be
_SOON = 0.02  # seconds until the thread looks again where more is to be freed
_DIRECTORY = "shmstore-tier"


class Tier:
    """One worker's use of the disk tier. `start` may fail to find one: `active` is False then, and all goes on without."""

    def __init__(self, exchange: Exchange, settings: TierSettings, local_directory: str, max_spill: Any, n_threads: int) -> None:
        self.exchange = exchange
        self.settings = settings
        self.active = False
        self.evicted = 0  #: objects that this worker's thread moved out
        self._max_spill = int(max_spill) if max_spill else 0
        self._own = settings.path or os.path.join(os.path.dirname(os.path.realpath(local_directory)), _DIRECTORY)
        self.directory: str | None = None  #: of the tier that is in use
        self._partition_path = exchange.partition.path
        self.low = self._high = 0  #: bytes of the partition
        self._pressed_at = -_EASE
        self.packed = False  #: tier files are compressed
        # Puts may wait until maps are let go, so they have a thread of their own.
        self._n_readers = max(2, min(8, 2 * n_threads))
        self._readers = ThreadPoolExecutor(self._n_readers, thread_name_prefix="shmstore-read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="shmstore-write")
        self._giver = ThreadPoolExecutor(1, thread_name_prefix="shmstore-give")
        self._later: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._under_pressure: Callable[[], None] | None = None

    # -- set up and close

    def start(self) -> bool:
        """Finds or makes the tier. Whether there is one."""
        try:
            self._settle_config()
        except (OSError, ValueError) as e:
            self.exchange.fallbacks.note("no-tier", e, self._own, "a full partition sends values to disk as on stock")
            return False
        self.active = True
        for pool, n in ((self._readers, self._n_readers), (self._writer, 1), (self._giver, 1)):
            _start_threads(pool, n)
        for work in (self._evict, self._clear):
            thread = threading.Thread(target=work, name=f"shmstore{work.__name__}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return True

    def close(self) -> None:
        """Ends the threads; before the store is closed."""
        self._closing.set()
        self._wake.set()
        self._later.put(None)
        for thread in self._threads:
            thread.join(10)
        for pool in (self._readers, self._writer, self._giver):
            pool.shutdown(wait=False, cancel_futures=True)

    def withdraw(self) -> None:
        """After the store is closed, in a thread. A tier that workers made below temporary-directory goes with the last of them: nobody else knows
        of it, and whoever empties that directory would leave the partition with a tier that is away."""
        if self.settings.path is not None or self.directory is None:
            return
        try:
            partition = Partition(self._partition_path)
            found = partition.tier()
            if found is None or found.directory != os.path.realpath(self._own) or self._in_use(partition):
                return
            partition.set_tier(None)
            os.rmdir(self._own)
        except (OSError, ValueError):  # objects lie there, of a kept store perhaps: it stays
            pass

    @staticmethod
    def _in_use(partition: Partition) -> bool:
        return any(store.alive and store.label == "dask-worker" for store in partition.stores())

    def when_pressed(self, call: Callable[[], None]) -> None:
        """call, from a thread, as long as memory is short and what is mapped keeps it from being freed."""
        self._under_pressure = call

    # -- the event loop's side

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """function(*args), which may wait for the disk, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, function, *args)

    async def store(self, function: Callable[..., Any], *args: Any) -> Any:
        """function(*args), which may wait for room in the partition, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, function, *args)

    async def give(self, function: Callable[..., Any], *args: Any) -> Any:
        """function(*args), which makes room in the partition and may wait for who just does so too; what is stored does not wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._giver, function, *args)

    def later(self, function: Callable[..., Any], *args: Any) -> None:
        """function(*args) in a thread, in order: deleting a large object takes its time."""
        self._later.put((function, *args))

    def dispose(self, values: list[Any]) -> None:
        """Drops the references of a list in a thread: unmapping takes its time, too. They are the last ones only where the caller has no other."""
        self._later.put((values.clear,))

    def grew(self) -> None:
        """Something was stored or brought back."""
        if self.used() > self._high:
            self._wake.set()

    def pressed(self) -> bool:
        """Whether memory is short: what is not in use is better not kept mapped, as that could not be moved out."""
        pressed = self.used() > self.low
        if pressed:
            self._pressed_at = time.monotonic()
        return pressed

    def at_ease(self) -> bool:
        """Whether memory has not been short for a while: what lies in memory now is there in a moment, too, and nobody is moving anything."""
        return not self.pressed() and time.monotonic() - self._pressed_at >= _EASE

    def used_where_it_lies(self) -> bool:
        """Whether values on the disk are mapped there: memory is short, and they are not compressed. That takes no room of the partition."""
        return not self.packed and self.pressed()

    def used(self) -> int:
        """Bytes of the partition that are in use. One system call."""
        try:
            return self.exchange.space()[1]
        except OSError:
            return 0

    def has(self, entry: Entry) -> bool:
        """Whether that object lies on the disk, and not in memory. A few system calls."""
        try:
            return self.exchange.store.locate(entry.name) == "tier"
        except (OSError, ValueError):
            return False

    def share(self) -> int:
        """Bytes that one worker may keep mapped while memory is short."""
        return self.low // self.exchange.n_siblings

    # -- the tier itself

    def _settle_config(self) -> None:
        """Uses the tier that the partition has; makes one where it has none, or where its directory is gone."""
        partition = self.exchange.partition
        try:
            found = partition.tier()
        except Error as e:
            if e.errno != errno.ENOENT:
                raise
            found = None
        if found is None or found.directory == os.path.realpath(self._own):
            os.makedirs(self._own, mode=0o700, exist_ok=True)
            limit = self._limit()
            if found is None or found.max != limit:
                s = self.settings
                partition.set_tier(self._own, limit, s.min_free, s.level, s.fsync, s.high, s.low)
                found = partition.tier()
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "the partition has no tier", self._own)
        self.directory = found.directory
        size = partition.info().bytes_size or sys.maxsize  # a file system without a limit is never short
        self._high, self.low = size * found.high // 100, size * found.low // 100
        self.packed = found.level > 0

    def _limit(self) -> int:
        """Bytes on disk: what all workers of this host may spill; 0 = no limit."""
        if self.settings.max is not None:
            return self.settings.max
        return self._max_spill * self.exchange.count_siblings() if self._max_spill else 0

    # -- the threads

    def _evict(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(_LOOK)
            self._wake.clear()
            self.exchange.look()
            if self.pressed() and self._under_pressure is not None:
                self._under_pressure()
            if self.used() > self._high and not self._closing.is_set():
                self._closing.wait(self._evict_once())

    def _evict_once(self) -> float:
        """Down to the low watermark. Seconds until it is to be tried again."""
        try:
            report = self.exchange.partition.evict(watermarks=True, threads=1, progress=lambda _: self._closing.is_set())
        except (OSError, ValueError) as e:
            report = getattr(e, "report", None)
            if getattr(e, "errno", None) != errno.ENOSPC or report is None or report.disk_full:
                self.exchange.fallbacks.note("evict-failed", e, then="values stay in memory")
                return _AGAIN
        self.evicted += report.n_objects
        return _SOON

    def _clear(self) -> None:
        while (item := self._later.get()) is not None:
            function, *args = item
            try:
                function(*args)
            except Exception as e:
                self.exchange.fallbacks.note("tier-failed", e)
            del item, function, args


def _start_threads(pool: ThreadPoolExecutor, n: int) -> None:
    """All of a pool's now. Whoever has one started waits until it runs, which takes tens of milliseconds where processors are short: later that
    would be the event loop."""
    all_there = threading.Barrier(n)
    try:
        for _ in range(n):
            pool.submit(all_there.wait)
    except RuntimeError:  # no more threads: as many as there are do it all
        all_there.abort()
