# SPDX-License-Identifier: Apache-2.0
"""One worker's dealings with the memory arbiter of the host daemon.

A thread sends requests in order, so that the event loop never waits; late answers come by a
descriptor. A second thread hears up-calls. While not `active`, nothing is called.

The daemon's ledger of the private pool has the reservations of keys, and one for all private
values, which can be evicted. Keys that found room without asking make the pool smaller.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from .arbport import PARTITION, Answer, Outcome, Port
from .budget import Budget
from .fallback import Fallbacks
from .offloading import run_in

_STEP = 1 << 20  # bytes by which the books may differ from the values
_EVICT_PATIENCE = 20.0  # seconds for one eviction that the daemon asks for


class Claim:
    """One key's (or service's) standing with the arbiter. Used by the event loop; ends once."""

    def __init__(self, arbiter: Arbiter, key: str, scope: Any) -> None:
        self.key = key
        self.why = ""  #: what the daemon said last
        self._arbiter = arbiter
        self._scope = scope
        self._held: list[tuple[int, Any, int]] = []  # (pool, reservation, bytes)

    async def reserve(self, private: int, partition: int, timeout: float | None = None, spill: bool = False) -> Outcome:
        """All or nothing: a refusal changes nothing. spill: to be rid of something; never waits."""
        wants = [(pool, nbytes) for pool, nbytes in ((self._arbiter.pool, private), (PARTITION, partition)) if nbytes]
        if not wants:
            return Outcome.OK
        answer = await self._arbiter.call(self._scope, self._arbiter.port.reserve, self._scope, wants, timeout, not spill, spill)
        if answer.outcome is Outcome.OK:
            self._held += [(pool, held, nbytes) for (pool, nbytes), held in zip(wants, answer.held)]
        self.why = answer.why
        return answer.outcome

    async def ready(self, timeout: float | None = None) -> Outcome:
        """After RETRY."""
        answer = await self._arbiter.call(self._scope, self._arbiter.port.ready, self._scope, timeout)
        self.why = answer.why
        return answer.outcome

    def release(self) -> None:
        """All that it holds; it may reserve again."""
        for _, held, _ in self._held:
            self._arbiter.post(self._arbiter.port.release, held)
        self._held.clear()

    def keep_partition(self, nbytes: int) -> None:
        """Of what it holds in the partition so much only: the rest is memory there by now, or was not needed."""
        left: list[tuple[int, Any, int]] = []
        for pool, held, has in self._held:
            if pool != PARTITION or has <= nbytes:
                left.append((pool, held, has))
            elif nbytes:
                self._arbiter.post(self._arbiter.port.resize, self._scope, held, nbytes)
                left.append((pool, held, nbytes))
            else:
                self._arbiter.post(self._arbiter.port.commit, held, has)
        self._held = left

    def end(self) -> None:
        self.release()
        self._arbiter.forget(self._scope)


class Arbiter:
    """Of one event loop, on which all of it is used.

    evict     moves private values out until so many bytes are; returns how many were
    relieve   somebody waits for room in the partition: lets go of what nobody needs
    """

    def __init__(
        self,
        port: Port,
        budget: Budget,
        fallbacks: Fallbacks,
        evict: Callable[[int], Awaitable[int]],
        relieve: Callable[[], None],
    ) -> None:
        self.port = port
        self.budget = budget
        self.fallbacks = fallbacks
        self.active = False
        self.pool = 0
        self.level = 0  #: of the partition: 0 nobody waits, 1 somebody does, 2 somebody was rolled back
        self.counts: dict[str, int] = {}  #: outcomes that were not OK, by name
        self._evict = evict
        self._relieve = relieve
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shmstore-arbiter")
        self._server: threading.Thread | None = None
        self._waits: dict[Any, asyncio.Future[Answer]] = {}  # by scope
        self._values_scope: Any = None
        self._values: Any = None  # the reservation for private values
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
        return bool(await self._run(self.port.available))

    async def close(self) -> None:
        """Before the store is."""
        self._closed = True
        self._lost()
        if self._loop is not None and self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1
        with suppress(OSError, ValueError):
            await run_in(self._thread, self.port.hush)
        self._thread.shutdown(wait=False)
        if self._server is not None:
            await run_in(None, self._server.join, 10)

    # -- for keys

    async def begin(self, key: str, priority: int | None = None, service: bool = False) -> Claim | None:
        """None: there is no arbiter any more."""
        try:
            return Claim(self, key, await self._run(self.port.begin, priority, key[:100], service))
        except (OSError, ValueError) as e:
            self._lost(e)
            return None

    def forget(self, scope: Any) -> None:
        """Ends a scope, and tells its waiter."""
        future = self._waits.pop(scope, None)
        if future is not None and not future.done():
            future.set_result(Answer(Outcome.REMOVED))
        self.post(self.port.end, scope)

    async def call(self, scope: Any, function: Callable[..., Answer], *args: Any) -> Answer:
        """A call that may be pending. The end of its scope ends a call that is given up."""
        assert self._loop is not None
        future = self._waits[scope] = self._loop.create_future()  # before the call: the answer may overtake it
        try:
            answer = await self._run(self._up_to_date, function, *args)
            if answer.outcome is Outcome.PENDING:
                answer = await future
        except (OSError, ValueError) as e:
            self._lost(e)
            answer = Answer(Outcome.DOWN, (), str(e))
        finally:
            if self._waits.get(scope) is future:
                del self._waits[scope]
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
        self.pool = await self._run(self.port.pool, name, self._capacity)
        self._values_scope = await self._run(self.port.loose)
        self._values, self._booked = None, 0
        if self._fd < 0:
            self._fd = await self._run(self.port.fd)
            self._loop.add_reader(self._fd, self._hear)
        if self._server is None or not self._server.is_alive():
            await self._run(self.port.listen, self._on_evict, self._on_pressure)
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
            while (done := self.port.next()) is not None:
                future = self._waits.get(done.scope)
                if future is not None and not future.done():
                    future.set_result(done.answer)
                else:  # given up meanwhile
                    for held in done.answer.held:
                        self.post(self.port.release, held)
        except (OSError, ValueError) as e:
            self._lost(e)

    # -- the thread that sends

    def _up_to_date(self, function: Callable[..., Answer], *args: Any) -> Answer:
        self._settle(self.budget.values, self.pool_size())
        return function(*args)

    def _settle(self, values: int, capacity: int) -> None:
        if not self.active:
            return
        if values < self._booked and self._values is not None:
            if self.port.resize(self._values_scope, self._values, values):
                self._booked = values
        elif values > self._booked + _STEP // 4:
            self._book(values)
        # Values beyond the pool's room are not to be given away.
        capacity = max(0, capacity - max(0, values - self._booked))
        if capacity != self._capacity:
            self.port.resize_pool(self.pool, capacity)
            self._capacity = capacity

    def _book(self, values: int) -> None:
        if self._values is None:
            answer = self.port.reserve(self._values_scope, [(self.pool, values)], None, False, False)
            if answer.outcome is Outcome.OK:
                (self._values,) = answer.held
                self._booked = values
                self.port.yielding(self._values)
        elif self.port.resize(self._values_scope, self._values, values):
            self._booked = values

    # -- the thread that serves

    def _serve(self) -> None:
        with suppress(OSError, ValueError):
            self.port.serve()

    def _on_evict(self, nbytes: int) -> int:
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
