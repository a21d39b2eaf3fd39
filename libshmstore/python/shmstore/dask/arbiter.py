# SPDX-License-Identifier: Apache-2.0
"""A worker under the memory arbiter of the host daemon: `Arbitration`, by
what `Arbiter` and claim.py do.

A thread sends requests in order, so that the event loop never waits; late answers come by a
descriptor. A second thread hears up-calls. While not `active`, nothing is called.

The daemon's ledger of the private pool has the reservations of keys, and one for all private
values, which can be evicted. Keys that found room without asking make the pool smaller.

Transfers have a service's standing: a value that is put into the partition for a peer, or comes
from somebody who is none, is reserved before all keys. A refused transfer goes the ordinary way.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

import dask.config
from distributed import Reschedule
from tornado.ioloop import PeriodicCallback

from .. import Error, Store
from .. import arbiter as daemon
from ..arbiter import Awaiting, Context, Pool, Reservation, Task
from ..pools import PARTITION
from .claim import Admission, Grant, NoRoom, Outcome, Pieces, Slots, Unwanted
from .compat.worker import (ExecuteSuccessEvent, RescheduleEvent, UnpauseEvent, call_of,
                            execute_failed)
from .config import Fallbacks, Result, logger, run_in
from .handle import Handle
from .inputs import Input, Needs, splitter_of, splitters
from .memory import Budget
from .residence import SharedBuffer

if TYPE_CHECKING:
    from .compat.worker import Key, StateMachineEvent, TaskState
    from .worker import Worker

_STEP = 1 << 20  # bytes by which the books may differ from the values
_EVICT_PATIENCE = 20.0  # seconds for one eviction that the daemon asks for


class Answer(NamedTuple):
    """How a call ended."""

    outcome: Outcome
    held: tuple[Reservation, ...] = ()  #: in the order in which they were asked for
    why: str = ""  #: the daemon's sentence


class Claim:
    """One key's (or service's) standing with the arbiter: a task with the one context that waits
    for it. Used by the event loop; ends once."""

    def __init__(self, arbiter: Arbiter, task: Task, context: Context) -> None:
        self.why = ""  #: what the daemon said last
        self._arbiter = arbiter
        self._task = task
        self._context = context
        self._held: list[tuple[int, Reservation, int]] = []  # (pool, reservation, bytes)

    async def reserve(self, private: int, partition: int, timeout: float | None = None,
                      spill: bool = False) -> Outcome:
        """All or nothing: a refusal changes nothing. spill: to be rid of something; never waits."""
        wants = [(pool, nbytes) for pool, nbytes in ((self._arbiter.pool, private),
                                                     (PARTITION, partition)) if nbytes]
        if not wants:
            return None
        answer = await self._arbiter.call(self._context,
                                          lambda: self._reserve(wants, timeout, spill))
        if answer.outcome is None:
            self._held += [(pool, held, nbytes) for (pool, nbytes), held in zip(wants, answer.held)]
        self.why = answer.why
        return answer.outcome

    async def obtain(self, private: int, partition: int, timeout: float | None = None,
                     roll_back: Callable[[], None] = lambda: None) -> Outcome:
        """As `reserve`, but Retry is dealt with: after roll_back it waits until it may try again.
        timeout: of each wait."""
        outcome = await self.reserve(private, partition, timeout)
        while outcome is daemon.Retry:
            roll_back()
            answer = await self._arbiter.call(self._context,
                                              lambda: self._context.ready_async(timeout))
            self.why, outcome = answer.why, answer.outcome
            if outcome is None:
                outcome = await self.reserve(private, partition, timeout)
        return outcome

    def release(self) -> None:
        """All that it holds; it may reserve again."""
        for _, held, _ in self._held:
            self._arbiter.post(held.release)
        self._held.clear()

    def keep_partition(self, nbytes: int) -> None:
        """Of what it holds in the partition so much only: the rest is memory there
        by now, or was not needed."""
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

    def _reserve(self, wants: list[tuple[int, int]], timeout: float | None,
                 spill: bool) -> Reservation | Awaiting[Any]:
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
        evict: Callable[[int], Coroutine[None, None, int]],
        relieve: Callable[[], None],
    ) -> None:
        self.budget = budget
        self.fallbacks = fallbacks
        self.active = False
        self.pool = 0
        self.evict = evict
        self._relieve = relieve
        self._store = store
        self._daemon: daemon.Arbiter | None = None  # as the store's life
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shmstore-arbiter")
        self._server: threading.Thread | None = None
        self._waits: dict[Context, asyncio.Future[Answer]] = {}
        self._private: Pool | None = None  # the one of that number
        # works for no task and never waits: whoever looks for a deadlock does not see it
        self._nobody: Context | None = None
        self._values: Reservation | None = None  # for private values
        self._booked = 0  # its bytes
        self._capacity = 0  # of the private pool, as the daemon knows it
        self._closed = False

    # -- set up and close

    async def look(self, name: str) -> bool:
        """Looks for the arbiter, once a second or so; brings the books up to
        date. Whether it is there."""
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
        """Whether the daemon says that it has one. It may hang: this takes as long
        as the store waits for it."""
        return bool(await self._run(self._available))

    async def close(self) -> None:
        """Before the store is."""
        self._closed = True
        self._lost()
        if self._loop is not None and self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1
        if self._daemon is not None:
            with suppress(OSError, ValueError):
                await run_in(self._thread, self._daemon.upcalls)
        self._thread.shutdown(wait=False)
        if self._server is not None:
            await run_in(None, self._server.join, 10)

    # -- for keys

    async def begin(self, key: Key, priority: int | None = None,
                    service: bool = False) -> Claim | None:
        """None: there is no arbiter any more."""
        try:
            return Claim(self, *await self._run(self._begin, priority, str(key)[:100], service))
        except (OSError, ValueError) as e:
            self._lost(e)
            return None

    def forget(self, task: Task, context: Context) -> None:
        """Ends a task with all that it holds, and tells its waiter."""
        future = self._waits.pop(context, None)
        if future is not None and not future.done():
            future.set_result(Answer(daemon.Removed))
        self.post(_end, task, context)

    async def call(self, context: Context, start: Callable[[], object]) -> Answer:
        """The answer to a call, for which start returns an `Awaiting`, or reservations at once. The
        end of its task ends a call that is given up."""
        assert self._loop is not None
        # before the call: the answer may overtake it
        future = self._waits[context] = self._loop.create_future()
        try:
            answer = await self._run(self._start, start) or await future
        except (OSError, ValueError) as e:
            self._lost(e)
            answer = Answer(daemon.Down, (), str(e))
        finally:
            if self._waits.get(context) is future:
                del self._waits[context]
        return answer

    def settle(self, coming: int = 0) -> None:
        """Brings the books of the pool up to date, in the thread. coming: bytes of values
        that are about to be stored."""
        if self.active:
            values, capacity = self.budget.values + coming, self.pool_size()
            if abs(values - self._booked) >= _STEP or abs(capacity - self._capacity) >= _STEP:
                self.post(self._settle, values, capacity)

    def post(self, function: Callable[..., object], *args: object) -> None:
        """function(*args) in the thread, after what was posted before it; nobody waits for it."""

        def run() -> None:
            try:
                function(*args)
            except (OSError, ValueError):
                pass  # the daemon is gone, and with it what this was about
            except Exception as e:  # nobody waits who could hear of it
                self.fallbacks.note("failed-post", e, trace=True)

        with suppress(RuntimeError):  # closed
            self._thread.submit(run)

    def pool_size(self) -> int:
        """Bytes of the private pool: for those who ask, and for values, which can leave."""
        return max(0, self.budget.capacity - self.budget.unasked)

    # -- private

    async def _run(self, function: Callable[..., Result], *args: object) -> Result:
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
            self._server = threading.Thread(target=self._serve, name="shmstore-upcalls",
                                            daemon=True)
            self._server.start()
        self.active = True

    def _lost(self, error: BaseException | None = None) -> None:
        if error is not None and self.active and not self._closed:
            self.fallbacks.note("arbiter-lost", error, then="keys run without reservations")
        self.active = False
        waits, self._waits = self._waits, {}
        for future in waits.values():
            if not future.done():
                future.set_result(Answer(daemon.Down))

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

    def _begin(self, priority: int | None, label: str, service: bool) -> tuple[Task, Context]:
        """priority: larger is served first, None: by arrival. service: it works for many, and is
        served before all others."""
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

    def _start(self, start: Callable[[], object]) -> Answer | None:
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
            future = asyncio.run_coroutine_threadsafe(self.evict(nbytes), self._loop)
        except RuntimeError:  # the loop has ended
            return 0
        try:
            future.result(_EVICT_PATIENCE)
        except Exception as e:
            future.cancel()
            self.fallbacks.note("evict-failed", e, then="values stay in memory")
        with suppress(OSError, ValueError, RuntimeError):
            self._thread.submit(self._settle, self.budget.values, self.pool_size()).result(
                _EVICT_PATIENCE)
        return max(0, before - self._booked)

    def _on_pressure(self, pool: int, level: int) -> None:
        if pool == PARTITION and level and self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._relieve)


def _answer(call: Callable[[], object]) -> Answer | None:
    """How a call ended; None: it has not."""
    try:
        value = call()
        if isinstance(value, Awaiting):
            if not value.done:
                return None
            value = value.result()
    except daemon.Outcome as e:
        return Answer(type(e), (), e.why)
    return Answer(None, value if isinstance(value, tuple) else () if value is None else (value,))


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


_INTERVAL = 500  # ms between two looks for the arbiter, and at our own memory
_TRANSFER_PATIENCE = 5.0  # seconds that a transfer waits for room
_EVICT_PART = 8  # of the budget one part in so many leaves at least, when something has to


class Arbitration:
    """Of one worker's event loop."""

    def __init__(self, worker: Worker) -> None:
        manager = worker.memory_manager
        self.worker = worker
        assert isinstance(worker._residence, SharedBuffer)
        self.residence = worker._residence
        target = manager.memory_target_fraction or manager.memory_spill_fraction
        terminate = dask.config.get("distributed.worker.memory.terminate")
        self.budget = Budget(
            manager.memory_limit or 0,
            target,
            terminate,
            values=lambda: self.residence.private_weight,
            measure=lambda: worker.monitor.get_process_memory(),
        )
        self.arbiter = Arbiter(worker._exchange.store, self.budget, worker._exchange.fallbacks,
                               self._evict, self._relieve)
        self.needs = Needs(worker._exchange, self.residence, worker._habits, worker._tier)
        self.admission = Admission(
            self.arbiter, self.budget,
            Slots(worker.state, lambda: worker.handle_stimulus(
                UnpauseEvent(stimulus_id=f"shmstore-slot-{time()}"))),
            self.needs, worker._habits, worker._exchange.settings.arbitrate_size
        )
        self.pieces: dict[Key, Pieces] = {}  #: of keys that are done in pieces
        self._target = self.residence.n  # as configured
        self.callback = PeriodicCallback(self._look, _INTERVAL)

    async def close(self) -> None:
        """Before the store is."""
        self.callback.stop()
        await self.arbiter.close()

    @property
    def active(self) -> bool:
        return self.arbiter.active

    # -- keys

    async def run(self, key: Key,
                  execute: Callable[[Grant | None],
                                    Awaitable[StateMachineEvent]]) -> StateMachineEvent:
        """Runs execute with the grant of a key, and returns its event; or the event of a key
        that is not to run here now. While there is no arbiter there is no grant, either."""
        if not self.active:
            return await execute(None)
        guard = self.worker._guard
        grant = await guard.wait("admit", self.admit, key, key=key)
        if grant is not None and not isinstance(grant, Grant):
            return grant
        event = None
        try:
            event = await execute(grant)
            return event
        finally:
            if grant is not None:
                guard.call("done", self.done, grant, key, event, key=key)

    async def admit(self, key: Key) -> Grant | StateMachineEvent:
        """A Grant; or the event of a key that is not to run here now."""
        task = self.worker.state.tasks[key]
        try:
            pieces = await self._plan(key, task)
            grant = await self.admission.admit(key, task, pieces is not None)
        except (Reschedule, Unwanted) as e:
            if isinstance(e, Reschedule):
                logger.info("shmstore: no room for key %r here, handed back to the scheduler", key)
            return RescheduleEvent(key=key, stimulus_id=f"shmstore-no-room-{time()}")
        except NoRoom as e:
            logger.warning("shmstore: %s", e)
            return execute_failed(task, MemoryError(*e.args), "shmstore-no-memory")
        if grant.in_pieces and pieces is not None:
            self.pieces[key] = pieces
        return grant

    def done(self, grant: Grant, key: Key, event: StateMachineEvent | None) -> None:
        """The key has run, or failed to (event None)."""
        self.pieces.pop(key, None)
        nbytes = 0
        if isinstance(event, ExecuteSuccessEvent):
            self.admission.habits.of(key).sizes.append(event.nbytes)
            nbytes = 0 if isinstance(event.value, Handle) else event.nbytes
        grant.done(nbytes)

    # -- transfers

    @asynccontextmanager
    async def transfer(self, what: str, private: int = 0, partition: int = 0,
                       spill: bool = False) -> AsyncIterator[bool]:
        """Within, there is room for it. Yields whether there is; if not, it goes the ordinary way.
        spill: which does not wait."""
        if (not self.active or
            private + partition < self.worker._exchange.settings.arbitrate_size or
            self._at_hand(private, partition)):
            yield True
            return
        claim = await self.arbiter.begin(what, service=True)
        if claim is None:
            yield True
            return
        try:
            outcome = await (claim.reserve(private, partition, spill=True) if spill
                             else claim.obtain(private, partition, _TRANSFER_PATIENCE))
            yield outcome is None
            if outcome is None:
                claim.keep_partition(0)
        finally:
            claim.end()

    # -- private

    async def _plan(self, key: Key, task: TaskState) -> Pieces | None:
        """How the key would be done in pieces, where a splitter is there for it."""
        if not splitters or task.run_spec is None or not self._in_threads(task):
            return None
        inputs = {dep.key: Input(dep.key, dep.nbytes or 0) for dep in task.dependencies}
        try:
            call = await call_of(self.worker, task, inputs)
        except Exception:  # as stock says it, when it runs
            return None
        splitter = splitter_of(key, call.function)
        if splitter is None:
            return None
        return Pieces(self.worker, self.admission, task, call, splitter)

    def _in_threads(self, task: TaskState) -> bool:
        executor = self.worker.executors.get((task.annotations or {}).get("executor", "default"))
        return "ThreadPoolExecutor" in str(type(executor))

    def _at_hand(self, private: int, partition: int) -> bool:
        return ((not private or self.budget.fits(private)) and
                (not partition or self.needs.relaxed(partition)))

    async def _look(self) -> None:
        active = await self.arbiter.look(f"dask-worker {os.getpid()}")
        # Values leave on their own where they are over this; room for what runs is asked for.
        self.residence.n = min(self._target, self.budget.capacity) if active else self._target

    async def _evict(self, nbytes: int) -> int:
        """Private values to the partition, or to disk."""
        nbytes = max(nbytes, self.budget.whole // _EVICT_PART)
        shed = self.residence.shed(nbytes)
        if shed >= nbytes:
            return shed
        if self.worker._tier is not None:
            return shed + await self.worker._tier.settling.free(nbytes - shed)
        freed = shed
        while freed < nbytes and self.residence.fast:
            weight = self.residence.evict()
            if weight == -1:
                break
            freed += weight
        return freed

    def _relieve(self) -> None:
        if self.worker._tier is not None:
            self.worker._tier.inputs.relieve()
