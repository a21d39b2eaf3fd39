# SPDX-License-Identifier: Apache-2.0
"""One worker's dealings with the memory arbiter of the host daemon.

A thread sends requests in order, so that the event loop never waits; late answers come by a
descriptor. A second thread hears up-calls. While not `active`, nothing is called.

The daemon's ledger of the private pool has the reservations of keys, and one for all private
values, which can be evicted. Keys that found room without asking make the pool smaller.
"""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from .. import Error, Store
from .. import arbiter as daemon
from ..arbiter import Awaiting, Context, Pool, Reservation, Task
from ..pools import PARTITION
from .budget import Budget
from .fallback import Fallbacks
from .offloading import run_in

_STEP = 1 << 20  # bytes by which the books may differ from the values
_EVICT_PATIENCE = 20.0  # seconds for one eviction that the daemon asks for


class Outcome(enum.IntEnum):
    """As in shmstore/arbiter.h."""

    OK = 0
    RETRY = 2
    SPLIT = 3
    NOMEM = 4
    TOOBIG = 5
    AGAIN = 6
    TIMEDOUT = 7
    CANCELED = 8
    REMOVED = 9
    DOWN = 10
    ERROR = 11


class Answer(NamedTuple):
    """How a call ended."""

    outcome: Outcome
    held: tuple[Reservation, ...] = ()  #: in the order in which they were asked for
    why: str = ""  #: the daemon's sentence


class Claim:
    """One key's (or service's) standing with the arbiter: a task with the one context that waits for it. Used by the event loop; ends once."""

    def __init__(self, arbiter: Arbiter, task: Task, context: Context) -> None:
        self.why = ""  #: what the daemon said last
        self._arbiter = arbiter
        self._task = task
        self._context = context
        self._held: list[tuple[int, Reservation, int]] = []  # (pool, reservation, bytes)

    async def reserve(self, private: int, partition: int, timeout: float | None = None, spill: bool = False) -> Outcome:
        """All or nothing: a refusal changes nothing. spill: to be rid of something; never waits."""
        wants = [(pool, nbytes) for pool, nbytes in ((self._arbiter.pool, private), (PARTITION, partition)) if nbytes]
        if not wants:
            return Outcome.OK
        answer = await self._arbiter.call(self._context, lambda: self._reserve(wants, timeout, spill))
        if answer.outcome is Outcome.OK:
            self._held += [(pool, held, nbytes) for (pool, nbytes), held in zip(wants, answer.held)]
        self.why = answer.why
        return answer.outcome

    async def ready(self, timeout: float | None = None) -> Outcome:
        """After RETRY."""
        answer = await self._arbiter.call(self._context, lambda: self._context.ready_async(timeout))
        self.why = answer.why
        return answer.outcome

    def release(self) -> None:
        """All that it holds; it may reserve again."""
        for _, held, _ in self._held:
            self._arbiter.post(held.release)
        self._held.clear()

    def keep_partition(self, nbytes: int) -> None:
        """Of what it holds in the partition so much only: the rest is memory there by now, or was not needed."""
        left: list[tuple[int, Reservation, int]] = []
        for pool, held, has in self._held:
            if pool != PARTITION or has <= nbytes:
                left.append((pool, held, has))
            elif nbytes:
                self._arbiter.post(_resize, self._context, held, nbytes)
                left.append((pool, held, nbytes))
            else:
                self._arbiter.post(held.commit, has)
        self._held = left

    def end(self) -> None:
        self.release()
        self._arbiter.forget(self._task, self._context)

    def _reserve(self, wants: list[tuple[int, int]], timeout: float | None, spill: bool) -> Any:
        pool, nbytes = wants[0]
        if spill:
            return self._context.reserve(nbytes, pool, spill=True)
        if len(wants) > 1:
            return self._context.reserve_many_async(wants, timeout)
        return self._context.reserve_async(nbytes, pool, timeout)


class Arbiter:
    """Of one event loop, on which all of it is used.

    evict     moves private values out until so many bytes are; returns how many were
    relieve   somebody waits for room in the partition: lets go of what nobody needs
    """

    def __init__(
        self,
        store: Store,
        budget: Budget,
        fallbacks: Fallbacks,
        evict: Callable[[int], Awaitable[int]],
        relieve: Callable[[], None],
    ) -> None:
        self.budget = budget
        self.fallbacks = fallbacks
        self.active = False
        self.pool = 0
        self.level = 0  #: of the partition: 0 nobody waits, 1 somebody does, 2 somebody was rolled back
        self.counts: dict[str, int] = {}  #: outcomes that were not OK, by name
        self._evict = evict
        self._relieve = relieve
        self._store = store
        self._daemon: daemon.Arbiter | None = None  # as the store's life
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shmstore-arbiter")
        self._server: threading.Thread | None = None
        self._waits: dict[Context, asyncio.Future[Answer]] = {}
        self._private: Pool | None = None  # the one of that number
        self._nobody: Context | None = None  # works for no task and never waits: whoever looks for a deadlock does not see it
        self._values: Reservation | None = None  # for private values
        self._booked = 0  # its bytes
        self._capacity = 0  # of the private pool, as the daemon knows it
        self._closed = False

    # -- set up and close

    async def look(self, name: str) -> bool:
        """Looks for the arbiter, once a second or so; brings the books up to date. Whether it is there."""
        if self._closed:
            return False
        try:
            if not await self.available():
                self._lost(ConnectionError("shmstored is away") if self.active else None)
                return False
            self.budget.look()
            if not self.active:
                await self._open(name)
            else:
                self.settle()
        except (OSError, ValueError) as e:  # it went meanwhile, or the store is closed
            self._lost(e)
        return self.active

    async def available(self) -> bool:
        """Whether the daemon says that it has one. It may hang: this takes as long as the store waits for it."""
        return bool(await self._run(self._available))

    async def close(self) -> None:
        """Before the store is."""
        self._closed = True
        self._lost()
        if self._loop is not None and self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1
        with suppress(OSError, ValueError):
            await run_in(self._thread, self._hush)
        self._thread.shutdown(wait=False)
        if self._server is not None:
            await run_in(None, self._server.join, 10)

    # -- for keys

    async def begin(self, key: str, priority: int | None = None, service: bool = False) -> Claim | None:
        """None: there is no arbiter any more."""
        try:
            return Claim(self, *await self._run(self._begin, priority, key[:100], service))
        except (OSError, ValueError) as e:
            self._lost(e)
            return None

    def forget(self, task: Task, context: Context) -> None:
        """Ends a task with all that it holds, and tells its waiter."""
        future = self._waits.pop(context, None)
        if future is not None and not future.done():
            future.set_result(Answer(Outcome.REMOVED))
        self.post(_end, task, context)

    async def call(self, context: Context, start: Callable[[], Any]) -> Answer:
        """What start returns: an `Awaiting`, or what is given at once. The end of its task ends a call that is given up."""
        assert self._loop is not None
        future = self._waits[context] = self._loop.create_future()  # before the call: the answer may overtake it
        try:
            answer = await self._run(self._start, start) or await future
        except (OSError, ValueError) as e:
            self._lost(e)
            answer = Answer(Outcome.DOWN, (), str(e))
        finally:
            if self._waits.get(context) is future:
                del self._waits[context]
        if answer.outcome is not Outcome.OK:
            self.counts[answer.outcome.name] = self.counts.get(answer.outcome.name, 0) + 1
        return answer

    async def make_room(self, nbytes: int) -> Outcome:
        """Values leave without being asked by the daemon. AGAIN: none could."""
        return Outcome.OK if await self._evict(nbytes) > 0 else Outcome.AGAIN

    def settle(self, coming: int = 0) -> None:
        """Brings the books of the pool up to date, in the thread. coming: bytes of values that are about to be stored."""
        if self.active:
            values, capacity = self.budget.values + coming, self.pool_size()
            if abs(values - self._booked) >= _STEP or abs(capacity - self._capacity) >= _STEP:
                self.post(self._settle, values, capacity)

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        """function(*args) in the thread, after what was posted before it; nobody waits for it."""

        def run() -> None:
            with suppress(OSError, ValueError):  # the daemon is gone, and with it what this was about
                function(*args)

        with suppress(RuntimeError):  # closed
            self._thread.submit(run)

    def pool_size(self) -> int:
        """Bytes of the private pool: for those who ask, and for values, which can leave."""
        return max(0, self.budget.capacity - self.budget.unasked)

    # -- private

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
        except RuntimeError as e:  # closed
            raise ValueError(str(e)) from e

    async def _open(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._capacity = self.pool_size()
        await self._run(self._make, name)
        self._values, self._booked = None, 0
        if self._fd < 0:
            self._fd = await self._run(self._there.fd)
            self._loop.add_reader(self._fd, self._hear)
        if self._server is None or not self._server.is_alive():
            await self._run(self._there.upcalls, self._on_evict, self._on_pressure)
            self._server = threading.Thread(target=self._serve, name="shmstore-upcalls", daemon=True)
            self._server.start()
        self.active = True

    def _lost(self, error: BaseException | None = None) -> None:
        if error is not None and self.active and not self._closed:
            self.fallbacks.note("arbiter-lost", error, then="keys run without reservations")
        self.active, self.level = False, 0
        waits, self._waits = self._waits, {}
        for future in waits.values():
            if not future.done():
                future.set_result(Answer(Outcome.DOWN))

    def _hear(self) -> None:
        try:
            while (awaiting := self._there.next()) is not None:
                answer, future = _answer(awaiting.result), self._waits.get(awaiting.context)
                if answer is not None and future is not None and not future.done():
                    future.set_result(answer)
                else:  # given up meanwhile
                    for held in answer.held if answer is not None else ():
                        self.post(held.release)
        except (OSError, ValueError) as e:
            self._lost(e)

    # -- the thread that sends

    @property
    def _there(self) -> daemon.Arbiter:
        """The daemon's. Only once it was there."""
        assert self._daemon is not None
        return self._daemon

    def _available(self) -> bool:
        if self._daemon is None and not self._store.closed:
            self._daemon = self._store.arbiter
        return self._daemon is not None and self._daemon.available

    def _make(self, name: str) -> None:
        self._private = self._there.pool(name, self._capacity)
        self.pool, self._nobody = self._private.id, self._there.context()

    def _hush(self) -> None:
        if self._daemon is not None:
            self._daemon.upcalls()

    def _begin(self, priority: int | None, label: str, service: bool) -> tuple[Task, Context]:
        """priority: larger is served first, None: by arrival. service: it works for many, and is served before all others."""
        task = self._there.task(priority, label, bind=False)
        try:
            context = self._there.context()
            if service:
                context.bind_helper([task], service=True)
            else:
                context.bind(task)
        except BaseException:
            with suppress(Error):
                task.end()
            raise
        return task, context

    def _start(self, start: Callable[[], Any]) -> Answer | None:
        """None: `next` will say."""
        self._settle(self.budget.values, self.pool_size())
        return _answer(start)

    def _settle(self, values: int, capacity: int) -> None:
        if not self.active:
            return
        assert self._nobody is not None and self._private is not None
        if values < self._booked and self._values is not None:
            if _resize(self._nobody, self._values, values):
                self._booked = values
        elif values > self._booked + _STEP // 4:
            self._book(self._nobody, values)
        # Values beyond the pool's room are not to be given away.
        capacity = max(0, capacity - max(0, values - self._booked))
        if capacity != self._capacity:
            self._private.resize(capacity)
            self._capacity = capacity

    def _book(self, nobody: Context, values: int) -> None:
        if self._values is None:
            try:
                (self._values,) = nobody.reserve_many([(self.pool, values)], wait=False)
            except daemon.Outcome:
                return
            self._booked = values
            self._values.unpin()  # from here on the daemon may ask for it
        elif _resize(nobody, self._values, values):
            self._booked = values

    # -- the thread that serves

    def _serve(self) -> None:
        with suppress(OSError, ValueError):
            while True:
                self._there.serve()

    def _on_evict(self, pool: int, nbytes: int, reservation: int) -> int:
        assert self._loop is not None
        before = self._booked
        try:
            future = asyncio.run_coroutine_threadsafe(self._evict(nbytes), self._loop)
        except RuntimeError:  # the loop has ended
            return 0
        try:
            future.result(_EVICT_PATIENCE)
        except Exception as e:
            future.cancel()
            self.fallbacks.note("evict-failed", e, then="values stay in memory")
        with suppress(OSError, ValueError, RuntimeError):
            self._thread.submit(self._settle, self.budget.values, self.pool_size()).result(_EVICT_PATIENCE)
        return max(0, before - self._booked)

    def _on_pressure(self, pool: int, level: int) -> None:
        if pool == PARTITION and self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._pressed, level)

    def _pressed(self, level: int) -> None:
        self.level = level
        if level:
            self._relieve()


def _answer(call: Callable[[], Any]) -> Answer | None:
    """How a call ended; None: it has not."""
    try:
        value = call()
        if isinstance(value, Awaiting):
            if not value.done:
                return None
            value = value.result()
    except daemon.Outcome as e:
        return Answer(Outcome(e.outcome), (), e.why)
    return Answer(Outcome.OK, value if isinstance(value, tuple) else () if value is None else (value,))


def _resize(context: Context, held: Reservation, nbytes: int) -> bool:
    """Less, or more where there is room for it now. Whether it has that size."""
    try:
        context.resize(held, nbytes, wait=False)
    except daemon.Outcome:
        return False
    return True


def _end(task: Task, context: Context) -> None:
    try:
        task.end()
    finally:
        context.close()
