# SPDX-License-Identifier: Apache-2.0
"""Memory is reserved before it is taken: who does not fit waits, gives way, or does less
at a time, instead of failing.

>>> arbiter = store.arbiter                            # None: no daemon, or its arbiter is off
>>> with arbiter.task(priority=5, label="join"):       # this thread works for it
...     with arbiter.reserve(64 << 20) as r:           # waits until it is there
...         store.put_buffers("x", b"", [data])
...     for part in arbiter.with_retry([frame], join, split=halves):
...         ...

A **task** is a scope of work with a priority: larger is served first. A **context** is what waits:
the calling thread, or one of your own, for a coroutine or a key of a scheduler. A **pool** is where
bytes are: the store's partition, or a budget of this process. A **reservation** releases itself at
the end of its block, or of its life.

A call whose bytes are not given ends with an exception: `Retry` (give back what this attempt took,
begin again), `Split` (the same with less at a time), `NoMemory`, `TooBig`, `TimedOut`, `Canceled`,
`Removed`, `Down`. `Arbiter.with_retry` deals with the first two. All are `shmstore.Error`; `why`
says who held what. docs/arbiter.md has the rules.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from . import _shmstore
from .awaiting import Awaiting, Loops
from .errors import (Again, Canceled, Down, Error, Injected, NoMemory, Outcome, Removed, Retry,
                     Split, TimedOut, TooBig)
from .pools import PARTITION, Pool, PoolLike, Reservation, Task, TaskLike, pool_number, task_number
from .records import ContextState, PoolState, TaskStats
from .retrying import Doner, Restorer, Saver, Splitter, Target, each_result

if TYPE_CHECKING:
    from .store import Store

__all__ = [
    "Again", "Arbiter", "Awaiting", "Canceled", "Context", "ContextState", "Down", "Injected",
    "NoMemory", "Outcome", "Pool", "PoolState", "Removed", "Reservation", "Retry", "Split",
    "Target", "Task", "TaskStats", "TimedOut", "TooBig",
]

_NONBLOCK, _SPILL = 1, 2
_ARRIVAL = -(2**63)  # the priority of a task that has none
_TASKS_MAX = 64  # that one context serves
_YEAR = 366 * 86400.0  # seconds: for ever
_WAITS = {"pool": 1, "task": 2, "external": 3}
_INJECTIONS = {"retry": 1, "split": 2, "error": 3, "toobig": 4, "timedout": 5}

Item = TypeVar("Item")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def milliseconds(seconds: float | None) -> int:
    """Of a wait or a timeout; 0: it is None."""
    if seconds is None:
        return 0
    if not seconds > 0:  # NaN neither
        raise ValueError(f"wait or timeout must be more than 0 seconds, or None, not {seconds!r}")
    return math.ceil(1000 * min(seconds, _YEAR))


def _flags(wait: bool, spill: bool) -> int:
    return (0 if wait else _NONBLOCK) | (_SPILL if spill else 0)


def _numbers(tasks: Iterable[TaskLike]) -> bytes:
    numbers = array("I", map(task_number, tasks))
    if len(numbers) > _TASKS_MAX:
        raise ValueError(f"a context serves at most {_TASKS_MAX} tasks, not {len(numbers)}")
    return numbers.tobytes()


def _one_of(words: dict[str, int], word: str, what: str) -> int:
    if word not in words:
        raise ValueError(f"{what} is one of {', '.join(words)}, not {word!r}")
    return words[word]


class Context(_shmstore.ArbContext, contextlib.AbstractContextManager["Context", None]):
    """A waiter for memory: one of your own (`Arbiter.context`), or the
    calling thread (`Arbiter.thread`).

    One call at a time, but for `cancel` and `state`. A context manager that closes it.
    """

    arbiter: Arbiter

    def __new__(cls, arbiter: Arbiter, own: bool = True) -> Context:
        self = super().__new__(cls, arbiter.store, own)
        self.arbiter = arbiter
        self._own = own
        self._made = []
        return self

    _own: bool
    _made: list[list[Reservation]]

    @property
    def _attempts(self) -> list[list[Reservation]]:
        """Reservations of each attempt in progress, the innermost last."""
        return self._made if self._own else self.arbiter._attempts()

    # -- whom it works for

    def bind(self, task: TaskLike) -> None:
        """Dedicated to one task: what it waits for, the task waits for. Bound to
        another one before, it moves."""
        self._bind(task_number(task))

    def bind_helper(self, tasks: Iterable[TaskLike], service: bool = False) -> None:
        """A helper of some tasks; service: works for many, and is served before all tasks."""
        self._bind_helper(_numbers(tasks), service)

    def unbind(self, tasks: Iterable[TaskLike] = ()) -> None:
        """From these tasks, or from all. A waiting call ends with `Removed`."""
        self._unbind(_numbers(tasks))

    # -- reservations

    def reserve(
        self, bytes: int, pool: PoolLike = PARTITION, timeout: float | None = None,
        wait: bool = True, spill: bool = False,
    ) -> Reservation:
        """Waits until bytes of the pool are this context's task's.

        timeout  seconds; None: as long as the daemon lets anybody wait. Then `TimedOut`.
        wait     False: `Again` where it does not fit now.
        spill    on the spill path: never waits, and may use the pool's spill reserve.
        """
        into = Reservation(self.arbiter.store, pool_number(pool))
        self._reserve(into, into.pool, bytes, _flags(wait, spill), milliseconds(timeout))
        self._note(into)
        return into

    def reserve_many(
        self, wanted: Sequence[tuple[PoolLike, int]], timeout: float | None = None,
        wait: bool = True,
    ) -> tuple[Reservation, ...]:
        """Bytes of several pools, all or none: nobody holds the one while waiting for the other."""
        into = tuple(Reservation(self.arbiter.store, pool_number(pool), bytes)
                     for pool, bytes in wanted)
        self._reserve_many(into, _flags(wait, False), milliseconds(timeout))
        for reservation in into:
            self._note(reservation)
        return into

    def resize(self, reservation: Reservation, bytes: int, timeout: float | None = None,
               wait: bool = True) -> None:
        """To less: at once. To more: as `reserve` of the difference."""
        self._resize(reservation, bytes, _flags(wait, False), milliseconds(timeout))

    def pin(self, reservation: Reservation, timeout: float | None = None) -> None:
        """Undoes `Reservation.unpin`; where it was evicted, waits for its bytes again."""
        self._pin(reservation, 0, milliseconds(timeout))

    def _note(self, reservation: Reservation) -> None:
        if self._attempts:
            self._attempts[-1].append(reservation)

    # -- roll back

    def ready(self, timeout: float | None = None) -> None:
        """After `Retry` or `Split`, when all is given back: waits until the
        attempt may begin again."""
        self._ready(0, milliseconds(timeout))

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """One attempt of a block of your own. Where it raises, what was reserved in it is released.

        Then `ready()`, outside of it, and the next one. `with_retry` is made of this.
        """
        made: list[Reservation] = []
        ok = False
        self._retry_begin()
        self._attempts.append(made)
        try:
            with self.used():
                yield
            ok = True
        finally:
            self._attempts.pop()
            if not ok:
                for reservation in made:
                    reservation.release()
            elif self._attempts:
                self._attempts[-1] += made  # the attempt around this one may fail yet
            # what has ended has ended, also for a daemon that is gone
            with contextlib.suppress(Error):
                self._retry_end(ok)

    def with_retry(
        self, items: Iterable[Item], attempt: Callable[[Item], Result],
        split: Splitter[Item] = None, save: Saver = None,
        restore: Restorer = None, done: Doner[Item] = None,
    ) -> list[Result]:
        """Calls attempt(item) for each item in turn and deals with `Retry` and
        `Split`. The results, in order.

        attempt  must be repeatable from its item. Bytes that it reserved and neither committed nor
                 released are released where it raises: before the next attempt, or for good. An
                 error that was raised because of a Retry or a Split counts as that.
        split    smaller items in place of one, in their order, each with a result of its own; None
                 or nothing: it cannot be split, and Split, naming the item, is raised. Takes the
                 item over. Its own reservations are not retried.
        save     called before an item's first attempt; what it returns is given to
        restore  which is called after an attempt that was told to roll
                 back, before anything else is.
        done     called with an item that has ended, and None or what ended it; also for
                 what is left of a split when a part of it fails. Items not taken from
                 the iterable are the caller's.

        Blocks may be nested: each deals with what its own attempt is told.
        """
        return list(self.each_retry(items, attempt, split, save, restore, done))

    def each_retry(
        self, items: Iterable[Item], attempt: Callable[[Item], Result],
        split: Splitter[Item] = None, save: Saver = None,
        restore: Restorer = None, done: Doner[Item] = None,
    ) -> Iterator[Result]:
        """As `with_retry`, but an iterator: an item is begun when its result is asked for."""
        return each_result(self, items, attempt, split, save, restore, done)

    # -- marks

    @contextlib.contextmanager
    def used(self) -> Iterator[Context]:
        """Within the block this thread's calls without a context, and its puts, creates and
        promotions, are this context's.

        For contexts that go from thread to thread. Not across an await.
        """
        outer = self.arbiter._used()
        before = outer[-1] if outer else self.arbiter.thread
        self._use()
        outer.append(self)
        try:
            yield self
        finally:
            outer.pop()
            with contextlib.suppress(Error):
                before._use()

    @contextlib.contextmanager
    def waiting(self, kind: str = "external", task: TaskLike | None = None) -> Iterator[None]:
        """Around anything that blocks while bytes are held, so that it is not taken for work.

        kind: "pool" (for a helper of its own task), "task" (for another one,
        if it is known), "external".
        """
        self._wait_begin(_one_of(_WAITS, kind, "a wait's kind"), 0 if task is None
                         else task_number(task))
        try:
            yield
        finally:
            with contextlib.suppress(Error):
                self._wait_end()

    @contextlib.contextmanager
    def spilling(self) -> Iterator[None]:
        """Around moving data out of a pool: what is reserved meanwhile is no
        footprint of the task's."""
        self._spill(True)
        try:
            yield
        finally:
            with contextlib.suppress(Error):
                self._spill(False)

    # -- event loops

    def reserve_async(
        self, bytes: int, pool: PoolLike = PARTITION, timeout: float | None = None,
        spill: bool = False,
    ) -> Awaiting[Reservation]:
        """As `reserve`, but does not wait: ``r = await context.reserve_async(n)``.
        Contexts of one's own only."""
        into = Reservation(self.arbiter.store, pool_number(pool))

        def start(flags: int) -> bool:
            return self._reserve(into, into.pool, bytes, flags | _flags(True, spill),
                                 milliseconds(timeout))

        return self.arbiter._loops.begin(self, into, start, lambda: self._note(into))

    def reserve_many_async(self, wanted: Sequence[tuple[PoolLike, int]],
                           timeout: float | None = None) -> Awaiting[tuple[Reservation, ...]]:
        """As `reserve_many`, but does not wait: ``a, b = await
        context.reserve_many_async(...)``."""
        into = tuple(Reservation(self.arbiter.store, pool_number(pool), bytes)
                     for pool, bytes in wanted)

        def granted() -> None:
            for reservation in into:
                self._note(reservation)

        return self.arbiter._loops.begin(self, into, lambda flags: self._reserve_many(
            into, flags, milliseconds(timeout)), granted)

    def ready_async(self, timeout: float | None = None) -> Awaiting[None]:
        """As `ready`, but does not wait: ``await context.ready_async()``."""
        return self.arbiter._loops.begin(self, None, lambda flags: self._ready(
            flags, milliseconds(timeout)))

    # -- inspection and tests

    def state(self) -> ContextState:
        """Its state, since when, and what its tasks hold and need. By any thread."""
        return ContextState._make(self._state())

    def inject(self, kind: str, count: int = 1, skip: int = 0,
               pool: PoolLike | None = None) -> None:
        """After skip reserves the next count of this context end so: "retry", "split",
        "error", "toobig", "timedout".

        count 0 clears. For tests of a program's own roll back.
        """
        self._inject(_one_of(_INJECTIONS, kind, "an injection"), count, skip, 0 if pool is None
                     else pool_number(pool))

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (f"<shmstore.arbiter.Context {self.id}>" if self._own
                else "<shmstore.arbiter.Context of the thread>")


def _of_thread(method: Callable[Concatenate[Context, Arguments],
                                Result]) -> Callable[Concatenate[Arbiter, Arguments], Result]:
    """That of the calling thread's context."""

    @functools.wraps(method)
    def call(self: Arbiter, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return method(self.current, *args, **kwargs)

    return call


class Arbiter:
    """The arbiter behind a store: `Store.arbiter`. Its calls without a context
    are of the calling thread."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._contexts: weakref.WeakSet[Context] = weakref.WeakSet()
        self._local = threading.local()
        self._loops = Loops(store)
        self._evict: Callable[[int, int, int], int | None] | None = None
        self._pressure: Callable[[int, int], object] | None = None

    def _attempts(self) -> list[list[Reservation]]:
        """Of the calling thread."""
        return self._local.__dict__.setdefault("attempts", [])  # type: ignore[no-any-return]

    def _used(self) -> list[Context]:
        """Contexts that the calling thread uses, the innermost last."""
        return self._local.__dict__.setdefault("used", [])  # type: ignore[no-any-return]

    @property
    def available(self) -> bool:
        """Whether the daemon is still there, with its arbiter."""
        return not self.store.closed and self.store._arb_available()

    # -- tasks, contexts, pools

    @property
    def thread(self) -> Context:
        """The calling thread's own context; each thread that uses it means itself."""
        return Context(self, own=False)

    @property
    def current(self) -> Context:
        """The context of calls that name none: `thread`, or the one within whose
        `used()` this thread is."""
        used = self._used()
        return used[-1] if used else self.thread

    def task(
        self,
        priority: int | None = None,
        label: str | None = None,
        inherit: TaskLike | None = None,
        context: Context | None = None,
        bind: bool = True,
    ) -> Task:
        """Begins a task, and binds the calling thread, or the context, to it.

        priority  larger is served first; None: earlier is, below every explicit one.
        label     shown to operators.
        inherit   a task whose priority it takes over.
        """
        task = Task(self, self.store._arb_task_begin(
            _ARRIVAL if priority is None else priority, label,
            0 if inherit is None else task_number(inherit)), label)
        try:
            if bind:
                (context or self.current).bind(task)
        except BaseException:
            task.end()
            raise
        return task

    def context(self, task: TaskLike | None = None) -> Context:
        """A context that is no thread, bound to a task if one is given."""
        context = Context(self)
        self._contexts.add(context)
        if task is not None:
            context.bind(task)
        return context

    @property
    def partition(self) -> Pool:
        """The pool of the store's partition."""
        return Pool(self, PARTITION, "partition")

    def pool(self, name: str, capacity: int, spill_reserve: int = 0) -> Pool:
        """Makes a private pool: a budget of this process, shown to operators by its name.

        spill_reserve: the part of it that only reservations with `spill` may use. A program that
        wants to be asked for room calls `upcalls`.
        """
        return Pool(self, self.store._arb_pool_create(name, capacity, spill_reserve), name)

    # -- of the calling thread

    reserve = _of_thread(Context.reserve)
    reserve_many = _of_thread(Context.reserve_many)
    ready = _of_thread(Context.ready)
    attempt = _of_thread(Context.attempt)
    waiting = _of_thread(Context.waiting)
    spilling = _of_thread(Context.spilling)
    state = _of_thread(Context.state)
    inject = _of_thread(Context.inject)
    with_retry = _of_thread(Context.with_retry)
    each_retry = _of_thread(Context.each_retry)

    def stats(self, task: TaskLike | None = None, pool: PoolLike | None = None,
              reset: bool = False) -> TaskStats:
        """The statistics of a task in a pool, or in all; without a task, of the one that the
        calling thread works for."""
        number = 0 if task is None else task_number(task)
        return TaskStats._make(self.store._arb_stats(number, 0 if pool is None else pool_number(
            pool), reset))

    # -- event loops

    def fd(self) -> int:
        """Readable when `next` may have something; the library's own, for the store's life.
        Coroutines that await need none of it."""
        return self.store._arb_fd()

    def next(self) -> Awaiting[Any] | None:
        """A call that has completed, of those that do not wait (`Context.reserve_async`); None:
        nothing has. Never waits."""
        return self._loops.next()

    # -- up-calls

    def upcalls(
        self, evict: Callable[[int, int, int], int | None] | None = None,
        pressure: Callable[[int, int], object] | None = None,
    ) -> None:
        """Says the functions that `serve` calls. With neither: nobody, and the channel is closed.

        evict     evict(pool, bytes, reservation): make room in that private pool, by releasing, or
                  by moving what was unpinned elsewhere and telling `Reservation.spilled`; returns
                  the bytes that left it. reservation: the id of the one chosen first, 0 = any.
        pressure  pressure(PARTITION, level): 0 nobody waits in the partition, 1 somebody does, 2
                  somebody was rolled back there lately.
        """
        self._evict, self._pressure = evict, pressure
        self.store._arb_listen(evict is not None or pressure is not None)

    def serve(self, timeout: float | None = None) -> int:
        """Makes the up-calls that have come, in this thread; waits for the first, up to timeout
        seconds (None: until `upcalls()`).

        How many there were. An exception of a call-back is raised here. One thread at a time; Error
        (ENOTSUP) where the channel is closed.
        """
        ms = -1 if timeout is None else min(math.ceil(timeout * 1000), 2**31 - 1)
        return self.store._arb_serve(ms, self._evict, self._pressure)

    def serve_fd(self) -> int:
        """For event loops: readable when ``serve(0)`` has something to do."""
        return self.store._arb_serve_fd()

    # -- end

    def _close(self) -> None:
        """Ends what waits, so that the store can close: up-calls, and the
        contexts that are no threads."""
        with contextlib.suppress(Error):
            if self._evict or self._pressure:
                self.upcalls()
        for context in list(self._contexts):
            with contextlib.suppress(Error):
                context.cancel()
        self._loops.close()

    def __repr__(self) -> str:
        return f"<shmstore.arbiter.Arbiter of {self.store!r}>"
