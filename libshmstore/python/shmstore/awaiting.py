# SPDX-License-Identifier: Apache-2.0
"""Waiting for memory in an event loop: calls of the arbiter that return at once,
and what they will return."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .errors import ClosedError, Error

if TYPE_CHECKING:
    import asyncio

    from .arbiter import Context
    from .store import Store

Result = TypeVar("Result")
_ASYNC = 4


class Awaiting(Generic[Result]):
    """A call of the arbiter that may not have ended: ``await`` it, or ask
    `Arbiter.next` until it is `done`.

    A task that is cancelled while it awaits ends the wait, and what was
    granted all the same is released.
    """

    def __init__(self, loops: Loops, context: Context, value: Result,
                 granted: Callable[[], object] | None) -> None:
        self.context = context
        self.done = False  #: it has ended
        self._loops = loops
        self._value = value
        self._granted = granted
        self._error: BaseException | None = None
        self._abandoned = False
        self._waiters: list[asyncio.Future[None]] = []
        self._lock = threading.Lock()

    def result(self) -> Result:
        """The result of the call, or its error raised. Only once it is done."""
        if not self.done:
            raise RuntimeError("it has not ended; await it, or see Arbiter.next()")
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> None:
        """Ends the wait: it completes with `Canceled`, or has been granted already."""
        if not self.done:
            self.context.cancel()

    def __await__(self) -> Generator[object, None, Result]:
        if not self.done:
            yield from self._wait().__await__()
        return self.result()

    async def _wait(self) -> None:
        import asyncio  # who awaits has it; the import takes longer than this package's

        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        with self._lock:
            if self.done:
                return
            self._waiters.append(waiter)
        self._loops.watch(loop)
        try:
            await waiter
        except asyncio.CancelledError:
            with self._lock:
                self._abandoned = not self.done
            if self.done and self._error is None:
                self._give_back()
            with contextlib.suppress(Error):
                self.cancel()
            raise

    def _give_back(self) -> None:
        held: Any = self._value if isinstance(self._value, tuple) else (self._value,)
        for reservation in held:
            if reservation is not None:
                reservation.release()

    def _complete(self, error: BaseException | None) -> None:
        with self._lock:
            self._error = error
            self.done = True
            abandoned, waiters = self._abandoned, self._waiters
            self._waiters = []
        if error is None and abandoned:
            self._give_back()
        elif error is None and self._granted:
            self._granted()
        for waiter in waiters:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                waiter.get_loop().call_soon_threadsafe(self._loops.wake, waiter)


class Loops:
    """Awaited calls of one store, and the event loops that poll for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._awaiting: dict[int, Awaiting[Any]] = {}  # by the context's address
        self._pending: dict[int, object] = {}  # the reservations that are to be filled, by the same
        # how many wait there, and the descriptor
        self._watching: dict[asyncio.AbstractEventLoop, list[int]] = {}

    def begin(
        self, context: Context, value: Result, start: Callable[[int], bool],
        granted: Callable[[], object] | None = None,
    ) -> Awaiting[Result]:
        """Starts a call; start(flags) says whether it is still to come. granted is
        called when it ends well."""
        awaiting = Awaiting(self, context, value, granted)
        address = context._address
        with self._lock:
            if address in self._awaiting:
                raise RuntimeError("the context waits already; give each coroutine its own")
            # Before the call: another thread may hear of its end first.
            self._awaiting[address] = awaiting
            self._pending[address] = value
        try:
            ended = not start(_ASYNC)
        except BaseException:
            self._forget(address)
            raise
        if ended:
            self._forget(address)
            awaiting._complete(None)
        return awaiting

    def _forget(self, address: int) -> Awaiting[Any] | None:
        with self._lock:
            self._pending.pop(address, None)
            return self._awaiting.pop(address, None)

    def next(self) -> Awaiting[Any] | None:
        """See `Arbiter.next`."""
        while True:
            with self._lock:
                answer = self._store._arb_next(self._pending)
                awaiting = self._forget(answer[0]) if answer else None
            if not answer:
                return None
            if awaiting:
                awaiting._complete(answer[1])
                return awaiting

    def _dispatch(self) -> None:
        while self.next():
            pass

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Lets the loop look for completions, until as many are woken as have called this."""
        if loop not in self._watching:
            self._watching[loop] = [0, self._store._arb_fd()]
            loop.add_reader(self._watching[loop][1], self._dispatch)
        self._watching[loop][0] += 1

    def wake(self, waiter: asyncio.Future[None]) -> None:
        """In the waiter's loop: it has ended."""
        loop = waiter.get_loop()
        watch = self._watching[loop]
        watch[0] -= 1
        if watch[0] == 0:
            del self._watching[loop]
            loop.remove_reader(watch[1])
        if not waiter.done():
            waiter.set_result(None)

    def close(self) -> None:
        """The store closes: pending calls will not complete."""
        with self._lock:
            left = list(self._awaiting.values())
            self._awaiting.clear()
            self._pending.clear()
        for awaiting in left:
            awaiting._complete(ClosedError(errno.EBADF, f"store {self._store.name!r} was closed "
                                                        f"while memory was awaited"))
