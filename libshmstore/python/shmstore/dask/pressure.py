# SPDX-License-Identifier: Apache-2.0
"""Keys under the host's memory pressure: each is a task of the daemon's gate before it runs, and
gives way where memory is short.

    admission    a key waits at the gate until what is expected of its kind, by the profile, fits.
                 In the order of the daemon's line
    level        annotation ``shmstore_preempt``: never to always, or auto. Without one: auto where
                 retries are allowed, else never. Never on a worker that has actors of Dask's
    profile      what each key took is told to the daemon, by kind: the key's prefix
    preemption   the worker has a notice; its keys cannot be stopped within a thread, so they run
                 on. Where the daemon then ends the process (SIGTERM), the worker tells the others
                 which keys it had, and leaves in order: the scheduler runs them elsewhere, and
                 does not hold it against them.
                 A worker that gets one waits out its delay before they ask the gate

One key of the configuration switches it on (``pressure``); with no daemon, or one that does not
watch memory, everybody is let in at once. Each decision is logged with its reason: those that made
a key wait, or ended one, as INFO, the others as DEBUG.

`Listening` hears the daemon as soon as it says something, and gives memory back when it asks.
Where the daemon is away the store goes on alone; it is looked for once a second, in a thread,
as the look may take a while.

`watch_memory` has Dask's own look at a worker's memory count private bytes alone.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from dask.utils import key_split
from tornado.ioloop import PeriodicCallback

from .. import ClosedError, Error
from ..preempting import Preemption
from ..profiling import Admitted, NotAdmitted
from .compat.scheduler import UNSUSPECTED
from .compat.worker import ExecuteSuccessEvent, execute_failed
from .config import logger, look_first, offload, run_in
from .exchange import Exchange
from .handle import Handle
from .memory import private_memory
from .residence import Residence, SharedBuffer
from .tier import Tier

if TYPE_CHECKING:
    from .compat.worker import Key, StateMachineEvent
    from .worker import Worker

_INTERVAL = 1000  # ms


def watch_memory(worker: Worker) -> None:
    """Has a worker measure its private memory alone, and give back the private bytes of idle maps
    before stock's look at the memory would pause it."""
    reference = weakref.ref(worker)

    async def memory_monitor() -> None:
        worker = reference()
        if worker is not None:
            worker._guard.call("shed", shed, worker)
            await worker.memory_manager.memory_monitor(worker)

    setattr(worker.monitor, "get_process_memory", private_memory)
    if isinstance(worker._residence, SharedBuffer):
        look_first(worker, lambda stock: memory_monitor)


def shed(worker: Worker) -> None:
    """Gives back private bytes of idle maps above the target, if there is one."""
    residence, target = worker._residence, worker._target_bytes()
    if target and isinstance(residence, SharedBuffer) and residence.maps_any():
        residence.shed(int(worker.monitor.get_process_memory() - target))


class Listening:
    """Of one worker's event loop, on which everything here runs."""

    def __init__(self, exchange: Exchange, residence: Residence, tier: Tier | None = None) -> None:
        self.exchange = exchange
        self.residence = residence
        self.tier = tier
        self.given = 0  #: bytes moved to disk because the daemon asked
        self._giving: asyncio.Future[int] | None = None
        self.callback = PeriodicCallback(self._look, _INTERVAL)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd: int | None = None

    def close(self) -> None:
        """Before the store is closed, whose descriptor it is."""
        self.callback.stop()
        if self._loop is not None and self._fd is not None:
            self._loop.remove_reader(self._fd)
        self._loop = self._fd = None

    async def _look(self) -> None:
        store = self.exchange.store
        try:
            if await offload(store.daemon_dispatch):
                self._watch(store.daemon_fd())
                self._give()
        except (OSError, ValueError) as e:  # closed meanwhile
            self.exchange.fallbacks.note("daemon-failed", e, then="goes on alone")

    def _watch(self, fd: int | None) -> None:
        # The descriptor stays the same for the store's life, whatever becomes of the connection.
        if self._fd is None and fd is not None and not self.exchange.store.closed:
            self._loop, self._fd = asyncio.get_running_loop(), fd
            self._loop.add_reader(fd, self._hear)

    def _hear(self) -> None:
        try:
            self.exchange.store.daemon_dispatch()
            self._give()
        except (OSError, ValueError):  # closed meanwhile
            self.close()

    def _give(self) -> None:
        asked = self.exchange.store.asked()
        if asked and self.tier is not None:
            if self._giving is None or self._giving.done():
                self._giving = asyncio.ensure_future(self._demote(asked))
            return
        # of a dict the user wants nothing on disk
        if asked and isinstance(self.residence, SharedBuffer):
            self.given += self.residence.evict_shared(asked)

    async def _demote(self, asked: int) -> int:
        """Into the disk tier, what nobody needs now first. Bytes of memory that this gave back."""
        assert isinstance(self.residence, SharedBuffer) and self.tier is not None
        self.residence.unmap_idle()
        given = await run_in(self.tier.giver, self.exchange.demote, self.residence.idle_names(),
                             asked)
        self.given += given
        return given


_ANNOTATION = "shmstore_preempt"
_OP = "shmstore_preempted"  # message among workers, through the scheduler
_PATIENCE = 0.4  # seconds in which others hear of a worker that leaves, ...
_LEAVE = 10.0  # ... and in which the scheduler does, unless the daemon's SIGKILL comes before
_HELD_BACK_MAX = 10_000  # keys that are remembered as preempted
_NEVER = ("never", 0)
_AT_ONCE = 256  # keys of a worker that wait at the gate


def level_of(annotations: Mapping[str, Any] | None) -> tuple[str | int, bool]:
    """A key's level, and whether it can be tried again."""
    said = annotations or {}
    retriable = bool(said.get("retries"))
    level = said.get(_ANNOTATION)
    if level is None:
        return ("auto" if retriable else "never"), retriable
    if isinstance(level, bool):
        level = "always" if level else "never"
    # A key that may be preempted may be tried again: the scheduler does so whatever its retries.
    return level, retriable or level not in ("never", "auto", 0)


class Running(NamedTuple):
    """A key that was let in."""

    key: Key
    admitted: Admitted

    def end(self, how: str, shared: int) -> None:
        """In a thread: two round trips."""
        self.admitted.created(shared)
        self.admitted.done(how)


class Pressure:
    """Of one worker's event loop."""

    def __init__(self, worker: Worker, exchange: Exchange) -> None:
        self.counts: Counter[str] = Counter()  #: decisions, by reason
        self._worker = worker
        self._store = exchange.store
        self._guard = exchange.guard
        # a thread for each key that waits, made when one does
        self._executor = ThreadPoolExecutor(_AT_ONCE, "shmstore-gate")
        self._running: dict[int, Running] = {}  # by the daemon's number
        self._noticed: dict[int, Preemption] = {}
        self._held_back: OrderedDict[str, float] = OrderedDict()  # until when
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1
        self._leaving: asyncio.Future[None] | None = None

    def start(self) -> None:
        """On the event loop, when the worker listens."""
        self._loop = asyncio.get_running_loop()
        self._fd = self._store._preempt_fd()
        self._loop.add_reader(self._fd, self._hear)
        self._worker.handlers[_OP] = self.preempted
        # In a process of its own only, which is its nanny's to start again; and where nobody
        # else has a use for the signal.
        mine = (threading.current_thread() is threading.main_thread() and
                signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        if mine and self._worker.nanny is not None:
            self._loop.add_signal_handler(signal.SIGTERM, self._told_to_end)

    def close(self) -> None:
        """Before the store is: ends the waits at the gate."""
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
        self._executor.shutdown(wait=False)

    # -- keys

    async def run(self, key: Key,
                  execute: Callable[[], Awaitable[StateMachineEvent]]) -> StateMachineEvent:
        """The event of a key, which waits until it is let in."""
        running = await self._guard.wait("gate", self._admit, key, key=key)
        if running is not None and not isinstance(running, Running):
            return running  # it may not run
        event = None
        try:
            event = await execute()
            return event
        finally:
            if running is not None:
                await self._guard.wait("gate", self._done, running, event, key=key)

    async def preempted(self, keys: list[str], delay: float) -> str:
        """Another worker had to give these up: whichever of them come here wait for so long."""
        for key in keys:
            self._held_back[key] = time.monotonic() + delay
            self._held_back.move_to_end(key)
        while len(self._held_back) > _HELD_BACK_MAX:
            self._held_back.popitem(last=False)
        return "OK"

    # -- private

    async def _admit(self, key: Key) -> Running | StateMachineEvent:
        """A Running; or the event of a key that is not to run."""
        task = self._worker.state.tasks[key]
        kind = key_split(key)
        level, retriable = level_of(task.annotations)
        if self._worker.state.actors and level not in _NEVER:
            self.counts["actors"] += 1
            level = "never"  # Dask's actors are lost with the process
        await self._wait_out(key)
        try:
            running = Running(key, await run_in(self._executor, partial(
                self._store.admitted, kind, level=level, retriable=retriable)))
        except NotAdmitted as e:
            self.counts[e.reason] += 1
            logger.warning("shmstore: key %r may not run: %s", key, e)
            return execute_failed(task, MemoryError(f"{key!r}: {e}"), "shmstore-too-big")
        except ValueError as e:  # the annotation
            return execute_failed(task, e, "shmstore-level")
        self._let_in(key, kind, level, running.admitted)
        if running.admitted.task:
            self._running[running.admitted.task] = running
        return running

    async def _done(self, running: Running, event: StateMachineEvent | None) -> None:
        """The key has run, or failed to (event None)."""
        self._running.pop(running.admitted.task, None)
        self._noticed.pop(running.admitted.task, None)
        success = isinstance(event, ExecuteSuccessEvent)
        shared = (event.nbytes if isinstance(event, ExecuteSuccessEvent) and
                  isinstance(event.value, Handle) else 0)
        with suppress(ClosedError):
            await offload(running.end, "done" if success else "dropped", shared)

    async def _wait_out(self, key: Key) -> None:
        until = self._held_back.pop(str(key), 0.0)
        left = until - time.monotonic()
        if left > 0:
            self.counts["held-back"] += 1
            logger.info("shmstore: key %r was preempted elsewhere, and waits %.1f s before it is "
                        "tried again", key, left)
            await asyncio.sleep(left)

    def _let_in(self, key: Key, kind: str, level: str | int, admitted: Admitted) -> None:
        self.counts[admitted.reason] += 1
        waited = admitted.waited >= 0.1
        logger.log(
            logging.INFO if waited else logging.DEBUG,
            "shmstore: key %r was let in: reason=%s kind=%s level=%s reserve=%d waited=%.3f "
            "task=%d",
            key, admitted.reason, kind, level, admitted.reserve, admitted.waited, admitted.task,
        )

    def _hear(self) -> None:
        try:
            while (told := self._store.preempted()) is not None:
                self._take(told)
        except (Error, ClosedError):
            pass  # it is being closed, or no daemon is there; the next one is found by others

    def _take(self, told: Preemption) -> None:
        running = self._running.get(told.task)
        if running is None:
            return
        self.counts[told.what] += 1
        logger.info(
            "shmstore: preemption %s: key %r task=%d bytes=%d grace=%.1f delay=%.1f retry=%s "
            "asked_only=%s",
            told.what, running.key, told.task, told.bytes, told.grace, told.delay, told.retry,
            told.asked_only,
        )
        if told.what != "notice":
            self._noticed.pop(told.task, None)
            return
        self._noticed[told.task] = told
        with suppress(OSError, AttributeError):  # glibc's: pages that are free already
            ctypes.CDLL(None).malloc_trim(0)

    def _told_to_end(self) -> None:
        self._hear()
        noticed = [told for task, told in self._noticed.items() if task in self._running]
        if not noticed or self._leaving is not None:
            if self._leaving is None:  # somebody else's, and meant as ever
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)
            return
        self._leaving = asyncio.ensure_future(self._leave(max(told.delay for told in noticed)))

    async def _leave(self, delay: float) -> None:
        """The process ends in any case: by this, or, if it takes too long, by SIGKILL."""
        worker, keys = self._worker, [str(running.key) for running in self._running.values()]
        logger.warning("shmstore: worker %s is ended for want of memory; its keys %s are run "
                       "elsewhere, after %.1f s", worker.address, keys, delay)
        with suppress(Exception):
            told = worker.scheduler.broadcast(msg={"op": _OP, "keys": keys, "delay": delay},
                                              on_error="ignore")
            await asyncio.wait_for(told, _PATIENCE)
        with suppress(Exception):
            stimulus = f"shmstore-preempted-{time.time()}"
            left = worker.scheduler.unregister(address=worker.address, close=False,
                                               stimulus_id=stimulus, **UNSUSPECTED)
            await asyncio.wait_for(left, _LEAVE)
        os._exit(128 + signal.SIGTERM)
