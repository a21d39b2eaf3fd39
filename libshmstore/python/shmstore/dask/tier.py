# SPDX-License-Identifier: Apache-2.0
"""The partition's disk tier as one worker uses it, in place of spill files, for shared values.

A thread moves values out when the partition passes its high watermark. It runs beside the host
daemon and the other workers' threads: who comes first does it (the library lets one at a time work
for each user). All that may wait for the disk - maps of values that may lie there, puts into a
partition that may be full, deletes - runs in threads of this module, never on the event loop.

The tier belongs to the partition, not to a worker: a tier that is there already, the operator's
or another cluster's, is used as it is. Of one that workers made, they set the limit: max-spill
for each worker of this host.

`Settling` keeps a worker's private memory below its target where the partition has a disk tier:
what is over moves into the partition.

Stock Dask, and this package without a tier, does so where a value is stored: on the event loop.
With a tier a put may wait for the disk, so it happens beside the loop: a task that finds no room
for its result waits for it, which also keeps the worker from running ahead of its disk; for what
comes otherwise a pass is started. Values that cannot be shared spill as on stock; so do the others
where a pass does not come on, while the process is on its way to its limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Literal

from distributed.core import Status

from .. import Error, Partition
from .config import PREFIX, TierSettings, logger, run_in
from .exchange import Entry, Exchange
from .inputs import Inputs
from .memory import Bound
from .residence import SharedBuffer

if TYPE_CHECKING:
    from .worker import Worker

_LOOK = 0.5  # seconds between two looks at the partition where nobody reports that it grew
_AGAIN = 5.0  # seconds until a tier that failed, or a full disk, is tried again
_EASE = 2.0  # seconds for which memory was not short, after which it is not expected to be
_SOON = 0.02  # seconds until the thread looks again where more is to be freed
_DIRECTORY = "shmstore-tier"
_LARGE = 1 << 20  # bytes of a value for which process memory is looked at
_TINY = 64 << 20  # bytes of a partition, and ...
# ... one part in so many of what a worker may keep privately, below which what came into it
# would go to the disk at once
_TINY_SHARE = 4


def tiny(exchange: Exchange, settings: TierSettings, budget: int) -> socket.socket | None:
    """A partition that nobody made large, as a container's own /dev/shm of 64 MiB, is used while it
    has room, and without a disk tier, unless one was asked for. The first worker of the host says
    so, once for as long as it keeps open what this returns.

    budget: bytes that the worker may keep privately. None: it is not tiny. OSError.
    """
    size = exchange.bounds()[0].size
    if settings.path is not None or size > min(_TINY, budget // _TINY_SHARE):
        return None
    try:
        if exchange.partition.tier() is not None:
            return None
    except Error:  # its directory is gone: it is made anew
        return None
    exchange.fallbacks.full_is_no_news()
    first = socket.socket(socket.AF_UNIX)  # ends with the process
    try:
        first.bind(f"\0shmstore-tiny-{exchange.identity}")
    except OSError:  # another worker has said it
        return first
    logger.warning(
        "shmstore: the partition %s has %d MiB: values go by link while it has room, and as on "
        "stock otherwise. Make it larger (in a container: docker run --shm-size=…), or name a "
        "larger tmpfs by %s.partition", exchange.partition.path, size >> 20, PREFIX)
    return first


class Tier:
    """One worker's use of the disk tier."""

    def __init__(self, exchange: Exchange, settings: TierSettings, local_directory: str,
                 max_spill: int | Literal[False] | None, n_threads: int) -> None:
        self.exchange = exchange
        self.settings = settings
        self._max_spill = int(max_spill) if max_spill else 0
        #: where a tier is made, the first of them that will do: nobody asked for one below
        #: /var/tmp, but a tmpfs cannot have one
        beside = os.path.join(os.path.dirname(os.path.realpath(local_directory)), _DIRECTORY)
        self._own = ([settings.path] if settings.path
                     else [beside, f"/var/tmp/{_DIRECTORY}-{os.geteuid()}"])
        self.directory: str | None = None  #: of the tier that is in use
        self._partition_path = exchange.partition.path
        self._watermarks = (0, 0)  #: high and low, in percent of what the partition may have
        self._pressed_at = -_EASE
        self.packed = False  #: tier files are compressed
        self._n_readers = max(2, min(8, 2 * n_threads))
        #: for calls that may wait for the disk, ...
        self.readers = ThreadPoolExecutor(self._n_readers, thread_name_prefix="shmstore-read")
        #: ... for puts, which may wait until maps are let go, ...
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="shmstore-write")
        #: ... for what makes room, for which puts do not wait
        self.giver = ThreadPoolExecutor(1, thread_name_prefix="shmstore-give")
        self._later: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        # called by a thread as long as memory is short and what is mapped keeps it from being freed
        self._under_pressure: Callable[[], None] | None = None
        self.inputs: Inputs
        self.settling: Settling

    # -- set up and close

    @classmethod
    def of(cls, worker: Worker, settings: TierSettings) -> Tier | None:
        """A worker's, whose values may lie in it from here on: inputs are mapped beforehand, and
        what is over the target settles beside the loop. None where there is no tier."""
        residence, manager = worker._residence, worker.memory_manager
        assert isinstance(residence, SharedBuffer)
        tier = cls(worker._exchange, settings, worker.local_directory, manager.max_spill,
                   worker.state.nthreads)
        if not tier.find():
            return None
        tier.exchange.later = tier.later
        tier.exchange.room.limit_workers(  # type: ignore[union-attr]
            int((manager.memory_pause_fraction or 0) * (manager.memory_limit or 0)))
        tier.settling = Settling(worker, residence)
        residence.use(tier, worker._pending)
        tier.inputs = Inputs(tier.exchange, residence, tier, worker.state)
        tier._under_pressure = partial(worker.loop.add_callback, tier.inputs.relieve)
        worker._when_closed += tier.settling.close, tier.inputs.close
        tier._start()
        return tier

    def find(self) -> bool:
        """Finds or makes the tier. Whether there is one."""
        try:
            self._settle_config()
        except (OSError, ValueError) as e:
            if self.settings.path:
                self.exchange.fallbacks.note("no-tier", e, self.settings.path,
                                             "a full partition sends values to disk as on stock")
            else:
                logger.info("shmstore: no disk tier: %s", e)
            return False
        return True

    def _start(self) -> None:
        """Starts the threads, when nothing is left that could fail."""
        for pool, n in ((self.readers, self._n_readers), (self.writer, 1), (self.giver, 1)):
            _start_threads(pool, n)
        for work in (self._evict, self._clear):
            thread = threading.Thread(target=work, name=f"shmstore{work.__name__}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Ends the threads; before the store is closed."""
        self._closing.set()
        self._wake.set()
        self._later.put(None)
        for thread in self._threads:
            thread.join(10)
        for pool in (self.readers, self.writer, self.giver):
            pool.shutdown(wait=False, cancel_futures=True)

    def withdraw(self) -> None:
        """After the store is closed, in a thread. A tier that workers made for themselves goes with
        the last of them: nobody else knows of it, and whoever empties that directory would leave
        the partition with a tier that is away."""
        if self.settings.path is not None or self.directory is None:
            return
        try:
            partition = Partition(self._partition_path)
            found = partition.tier()
            if found is None or not self._is_own(found.directory):
                return
            if any(store.alive and store.label == "dask-worker" for store in partition.stores()):
                return
            partition.set_tier(None)
            os.rmdir(found.directory)
        except (OSError, ValueError):  # objects lie there, of a kept store perhaps: it stays
            pass

    # -- the event loop's side

    def later(self, function: Callable[..., object], *args: object) -> None:
        """function(*args) in a thread, in order."""
        self._later.put(partial(function, *args))

    def grew(self) -> None:
        """Something was stored or brought back."""
        if self._over():
            self._wake.set()

    def pressed(self) -> bool:
        """Whether memory is short: idle maps should go, as mapped values cannot be moved out."""
        pressed = self.spare() < 0
        if pressed:
            self._pressed_at = time.monotonic()
        return pressed

    def at_ease(self) -> bool:
        """Whether memory has not been short for a while: nobody is moving values out."""
        return not self.pressed() and time.monotonic() - self._pressed_at >= _EASE

    def used_where_it_lies(self) -> bool:
        """Whether values on the disk are mapped there: memory is short, and they are not
        compressed. That takes no room of the partition."""
        return not self.packed and self.pressed()

    def spare(self) -> int:
        """Bytes that the partition may have more until memory is short; below 0 where it is, and so
        many have to move out."""
        return min(size * self._watermarks[1] // 100 - used for size, used in self._bounds())

    @property
    def low(self) -> int:
        """Bytes of the partition down to which values are moved out."""
        return self._bounds()[0].used + self.spare()

    def _over(self) -> bool:
        return any(used > size * self._watermarks[0] // 100 for size, used in self._bounds())

    def _bounds(self) -> list[Bound]:
        try:
            return self.exchange.bounds()
        except OSError:
            return [Bound(sys.maxsize, 0)]

    def has(self, entry: Entry) -> bool:
        """Whether that object lies on the disk, and not in memory. A few system calls."""
        try:
            return self.exchange.store.locate(entry.name) == "tier"
        except (OSError, ValueError):
            return False

    # -- the tier itself

    def _settle_config(self) -> None:
        """Uses the tier that the partition has; makes one where it has none, or
        where its directory is gone."""
        partition = self.exchange.partition
        try:
            found = partition.tier()
        except Error as e:
            if e.errno != errno.ENOENT:
                raise
            found = None
        if found is None:
            self._make()
        elif self._is_own(found.directory) and found.max != self._limit():
            self._set(found.directory)
        found = partition.tier()
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "the partition has no tier", self._own[0])
        self.directory = found.directory
        self._watermarks = found.high, found.low
        self.packed = found.level > 0

    def _is_own(self, directory: str) -> bool:
        return directory in map(os.path.realpath, self._own)

    def _make(self) -> None:
        """A tier in the first directory that is not in memory itself.
        Raises what the last one said."""
        *others, last = self._own
        for directory in others:
            try:
                return self._set(directory)
            except OSError as e:
                if e.errno != errno.ENOTSUP:
                    raise
                with contextlib.suppress(OSError):
                    os.rmdir(directory)  # made in vain
        return self._set(last)

    def _set(self, directory: str) -> None:
        s = self.settings
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if os.stat(directory, follow_symlinks=False).st_uid != os.geteuid() and not s.path:
            # /var/tmp is everybody's
            raise PermissionError(errno.EPERM, "made by another user", directory)
        self.exchange.partition.set_tier(directory, self._limit(), s.min_free, s.level, s.fsync,
                                         s.high, s.low)

    def _limit(self) -> int:
        """Bytes on disk that all workers of this host may spill; 0 = no limit."""
        if self.settings.max is not None:
            return self.settings.max
        return self._max_spill * len(self.exchange.siblings().pids) if self._max_spill else 0

    # -- the threads

    def _evict(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(_LOOK)
            self._wake.clear()
            self._closing.wait(self.exchange.guard.call("evict", self._evict_if_over) or 0)

    def _evict_if_over(self) -> float:
        """Seconds until it is to be tried again."""
        self.exchange.look()
        if self.pressed() and self._under_pressure is not None:
            self._under_pressure()
        return self._evict_once() if self._over() and not self._closing.is_set() else 0

    def _evict_once(self) -> float:
        """Down to the low watermark. Seconds until it is to be tried again."""
        try:
            self.exchange.partition.evict(to=max(0, self.low), wait=True,
                                          progress=lambda _: self._closing.is_set())
        except (OSError, ValueError) as e:
            report = getattr(e, "report", None)
            if getattr(e, "errno", None) != errno.ENOSPC or report is None or report.disk_full:
                self.exchange.fallbacks.note("evict-failed", e, then="values stay in memory")
                return _AGAIN
        return _SOON

    def _clear(self) -> None:
        while (item := self._later.get()) is not None:
            try:
                item()
            except Exception as e:
                self.exchange.fallbacks.note("tier-failed", e)
            del item


def _start_threads(pool: ThreadPoolExecutor, n: int) -> None:
    """Starts all threads of a pool now: each start waits until the thread runs, tens of
    milliseconds on a busy host, and would hold up the event loop later."""
    all_there = threading.Barrier(n)
    try:
        for _ in range(n):
            pool.submit(all_there.wait)
    except RuntimeError:  # no more threads: as many as there are do it all
        all_there.abort()


class Settling:
    """Of one worker's event loop."""

    SLOW = 0.005  # seconds, from which on stock says it
    STUCK = 0.3  # seconds in which a pass should have got something out
    EPISODE = 1.0  # seconds after which a new shortage is another one

    def __init__(self, worker: Worker, residence: SharedBuffer) -> None:
        self.residence = residence
        self._worker = worker
        self._lock = asyncio.Lock()
        self._pass: asyncio.Task[None] | None = None
        self._wanted = 0  # values to move whatever the target says: process memory is short
        # when process memory was short last, and since when nothing has left meanwhile
        self._urged = self._waited_from = 0.0

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
        return self._worker.status != Status.paused and now - self._waited_from < self.STUCK

    def close(self) -> None:
        if self._pass is not None:
            self._pass.cancel()

    async def room(self, nbytes: int) -> None:
        """Until nbytes more, which are in process memory already, are below the target, or nothing
        can leave. Of large values several come between two of stock's looks at process memory."""
        if nbytes >= _LARGE and self._short():
            self._wanted = max(1, self._wanted)
        if not self.residence.over(nbytes) and not self._wanted:
            return
        async with self._lock:
            while self.residence.over(nbytes) or self._wanted:
                self._wanted = max(0, self._wanted - 1)
                if not await self._move_one():
                    break

    async def free(self, nbytes: int) -> int:
        """Moves private values, least recently used first, until so many bytes are freed or nothing
        can leave. Bytes that were."""
        async with self._lock:
            before = self.residence.fast.total_weight
            while (freed := before - self.residence.fast.total_weight) < nbytes:
                # Without room in the partition values go to disk at once: private memory is wanted
                if (not await self._move_one() and
                    (not self.residence.fast or self.residence.evict_to_disk() == -1)):
                    break
        return int(freed)

    async def _move_one(self) -> bool:
        if not self.residence.fast:
            return False
        key = self.residence.oldest()
        if key is None:
            return self._spill_one()
        tier = self.residence.tier
        if tier is not None and tier.pressed():
            # so that memory never has both, what leaves and what makes room for it
            await run_in(tier.giver, tier._evict_once)
        await self._worker._export([key], spill=True)
        if key in self.residence.fast and self.residence.private(key) is not None:
            return self._spill_one(to_disk=True)  # there is no room for it
        self._waited_from = time.monotonic()
        return True  # it has gone, or is known not to be shareable and spills the next time round

    def _short(self) -> bool:
        """Whether stock's next look at process memory would have values leave it."""
        manager = self._worker.memory_manager
        most = (manager.memory_spill_fraction or 0) * (manager.memory_limit or 0)
        return 0 < most < self._worker.monitor.get_process_memory()

    def _spill_one(self, to_disk: bool = False) -> bool:
        started = time.monotonic()
        spilled = (self.residence.evict_to_disk() if to_disk else self.residence.evict()) != -1
        duration = time.monotonic() - started
        if spilled and duration > self.SLOW:  # as stock says it where a value is stored
            self._worker.digest_metric("disk-write-target-duration", duration)
        return spilled
