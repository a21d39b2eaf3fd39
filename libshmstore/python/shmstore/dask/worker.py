# SPDX-License-Identifier: Apache-2.0
"""The worker: stock Dask's, whose values go from hand to hand in the partition where
both hands are on this host.

    donor     get_data: is the one who asks a peer? Then what it asks for is put into the
              partition (once) and a handle goes out in place of the value. Everything else
              about the request is stock's.
    receiver  gather_dep, update_data: a handle is adopted as soon as it is here. If that fails, the
              value is asked for once more, the ordinary way.
    task      execute: with a disk tier its inputs are mapped, and room for its result is
              made, before stock's part of it.

The preload turns a worker that exists already into one of these, by changing its class.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import (Awaitable, Callable, Collection, Container, Iterable, Mapping,
                             MutableMapping)
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, cast

import distributed
from distributed.core import Status

from .. import default_path
from .arbiter import Arbitration
from .compat.worker import (
    NODES, QUIET, UNLIMITED, ComputeTaskEvent, ExecuteSuccessEvent, GatherDepBusyEvent,
    GatherDepFailureEvent, GatherDepSuccessEvent, NoInputs, SpillBuffer, UpdateDataEvent,
    ask_worker, ask_workers, close_when_orphaned, run_as,
)
from .config import (PREFIX, Fallbacks, Settings, leave_libraries_out, logger,
                     make_room_for_descriptors, offload, run_in)
from .exchange import HAS_NO_MEMORY, Entry, Exchange, sweeping
from .handle import Crossings, Handing, Handle, can_carry, handing_now, received
from .hosts import bring_queueing
from .p2p import Shards
from .pressure import Listening, Pressure, shed, watch_memory
from .residence import DictResidence, SharedBuffer
from .tier import Tier, tiny
from .values import Born, Habits, Kept, Pickled, lend_context, own_small_arrays

if TYPE_CHECKING:
    from distributed.comm.core import Comm
    from distributed.diagnostics.plugin import WorkerPlugin

    from .claim import Grant, Pieces
    from .compat.worker import Key, StateMachineEvent, TaskState
    from .residence import Residence

    Run = Callable[..., Awaitable[StateMachineEvent]]  #: runs a key

# bytes up to which a value is copied on the event loop: the way to a thread and back costs more
_INLINE = 256 << 10
_INLINE_ROOMY = 2 << 20  # the same where memory is not short, so that a put waits for nothing
# the defaults of distributed.worker.transfer.message-bytes-limit
_STOCK_MESSAGE_BYTES = (50_000_000, 50 << 20)
# bytes of inputs from which on a task may have written to so much of them that it matters
_MUCH = 1 << 20
# within Worker.gather
_unadopted: ContextVar[set[Key] | None] = ContextVar("shmstore_unadopted", default=None)


class Worker(distributed.Worker):
    """distributed.Worker over shared memory: naming it sets `distributed.worker.memory.shared`."""

    _exchange: Exchange = None  # type: ignore[assignment]  # None: works as stock
    _residence: Residence = None  # type: ignore[assignment]
    # each way to run a key around the one before; none: as stock
    _around: list[Callable[[Key, Run], Awaitable[StateMachineEvent]]] = []
    # None: values that leave private memory and do not fit into the partition spill as on stock
    _tier: Tier | None = None
    _crossings: Crossings | None = None  # None: each worker fetches what it needs itself
    _arbitration: Arbitration | None = None  # None: keys run whatever memory there is
    _pieces: Mapping[Key, Pieces] = {}  # of keys that are done in pieces
    _pressure: Pressure | None = None  # None: keys ask no gate
    _shards: Shards | None = None  # None: P2P shuffles are stock's
    _ending: asyncio.Future[None] | None = None  # _end_sharing()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._share()

    # -- set up and close

    def _share(self) -> None:
        """Opens a store and puts the shared tier into place, or says why the worker is stock's."""
        settings = Settings()
        if not settings.enabled:
            logger.info("shmstore: worker=%s shares nothing: %s.enabled is false", self.name,
                        PREFIX)
            return
        stock = self.memory_manager.data
        if type(stock) not in (SpillBuffer, dict) or len(stock):
            Fallbacks(0).note("custom-data", key=type(stock).__name__, then="worker shares nothing")
            return
        try:
            self._exchange = Exchange(settings, "dask-worker", self.local_directory)
        except (OSError, ValueError) as e:
            Fallbacks(0).note("no-store", e, settings.partition or default_path(),
                              "worker shares nothing")
            return
        self._guard = self._exchange.guard
        close_when_orphaned(self._exchange)
        self._guard.call("settle", make_room_for_descriptors)
        try:
            self._set_up(settings, stock)
        except Exception as e:
            self._guard.failed("set-up", e)
            if self._tier is not None:
                self._guard.call("close", self._tier.close)
            for name in [name for name in self.periodic_callbacks if name.startswith("shmstore-")]:
                del self.periodic_callbacks[name]
            self._exchange.close()
            self._exchange = self._residence = None  # type: ignore[assignment]
            self._tier = self._arbitration = self._pressure = None
            self._around = []
            self.memory_manager.data = self.state.data = stock

    def _set_up(self, settings: Settings, stock: MutableMapping[Key, object]) -> None:
        """Puts the shared tier into place."""
        manager, exchange = self.memory_manager, self._exchange
        exchange.bound(self._target_bytes())
        self._habits = Habits()
        self._pending: dict[Key, asyncio.Future[None]] = {}
        self._starting: list[asyncio.Future[None]] = []  # steps that run beside its start
        # what ends before the store does; what hears of results
        self._when_closed: list[Callable[[], object]] = []
        self._around = [self._run]
        if isinstance(stock, SpillBuffer):
            storage = os.path.join(self.local_directory, "storage")
            self._residence = SharedBuffer(exchange, storage, int(stock.n), manager.max_spill)
            manager.data = self.state.data = self._residence
            first = self._guard.call("tiny", tiny, exchange, settings.tier, self._target_bytes())
            if first is not None:
                self._when_closed.append(first.close)
            elif settings.tier.enabled:
                self._tier = Tier.of(self, settings.tier)
        else:
            self._residence = DictResidence(exchange, stock)
        if getattr(self.state, "transfer_message_bytes_limit", None) in _STOCK_MESSAGE_BYTES:
            self.state.transfer_message_bytes_limit = settings.message_bytes
        if settings.daemon != "off":
            listening = Listening(exchange, self._residence, self._tier)
            self._when_closed.append(listening.close)
            self.periodic_callbacks["shmstore-daemon"] = listening.callback
            if settings.arbitrate != "off" and isinstance(self._residence, SharedBuffer):
                self._arbitration = Arbitration(self)
                self._pieces = self._arbitration.pieces
                self._around.append(self._arbitration.run)
                self.periodic_callbacks["shmstore-arbiter"] = self._arbitration.callback
            if settings.pressure:
                self._pressure = Pressure(self, exchange)
                self._when_closed.append(self._pressure.close)
                self._around.append(self._pressure.run)
        watch_memory(self)
        if much := self._target_bytes() // 2:
            if not NODES:
                lend_context(self.executors["default"])
            self._around.append(Born(exchange, self.state.tasks, much).run)
        if settings.sweep_interval:
            self.periodic_callbacks["shmstore-sweep"] = sweeping(exchange)

    def _target_bytes(self) -> int:
        """The part of its memory limit for private values; 0 where there is none."""
        manager = self.memory_manager
        target = (manager.memory_target_fraction or manager.memory_spill_fraction or
                  manager.memory_pause_fraction)
        return int((target or 0) * (manager.memory_limit or 0))

    async def plugin_add(self, plugin: WorkerPlugin | bytes, name: str | None = None,
                         catch_errors: bool = True) -> Any:
        result = await super().plugin_add(plugin, name, catch_errors)
        if (self._shards is None and self._exchange is not None and self._exchange.settings.p2p and
            "shuffle" in self.plugins):
            self._shards = self._guard.call("p2p", Shards, self, self._exchange, self._tier)
        return result

    async def listen(self, *args: object, **kwargs: object) -> None:
        await super().listen(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._publish()
        if self._exchange is not None:
            # Not awaited: a daemon that hangs answers late whether it has an arbiter.
            self._starting.append(asyncio.ensure_future(
                self._guard.wait("start", self._say_means, self.address)))

    async def _say_means(self, address: str) -> None:
        """Logs by which means this worker shares."""
        exchange, store, arbiter = self._exchange, self._exchange.store, "off"
        if self._arbitration is not None:
            arbiter = "on" if await self._arbitration.arbiter.available() else "none"
        alone = "off" if exchange.settings.daemon == "off" else "none"
        logger.info("shmstore: worker=%s partition=%s store=%s daemon=%s arbiter=%s tier=%s",
                    address, exchange.partition.path, store.name,
                    alone if store.daemon_fd() is None else "connected", arbiter,
                    self._tier.directory if self._tier is not None else "none")

    def _publish(self) -> None:
        # Between workers of one process values go by reference, which nothing beats.
        if self._exchange is not None and not self.address.startswith("inproc"):
            self._exchange.set_address(self.address)
            self._crossings = Crossings(f"{self._exchange.identity} {self.scheduler.address}",
                                        self.address)
            self._when_closed.append(self._crossings.close)
            if self._exchange.settings.queue:
                self._starting.append(asyncio.ensure_future(
                    self._guard.wait("queue", bring_queueing, self)))
        if self._pressure is not None:
            self._guard.call("pressure", self._pressure.start)

    async def close(  # type: ignore[override]  # as stock's
        self, timeout: float = 30, executor_wait: bool = True, nanny: bool = True,
        reason: str = "worker-close"
    ) -> str | None:
        begins = self.status not in (Status.closing, Status.closed, Status.failed)
        try:
            return await super().close(timeout, executor_wait, nanny, reason)
        finally:
            # Also where a plugin raises: nobody closes the worker again. And whoever else closes it
            # ends it, too: the process may end with that call.
            if self._exchange is not None and (begins or self.status in (Status.closed,
                                                                         Status.failed)):
                self._ending = self._ending or asyncio.ensure_future(self._end_sharing())
                await asyncio.shield(self._ending)

    async def finished(self) -> None:
        await super().finished()  # type: ignore[no-untyped-call]
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def _end_sharing(self) -> None:
        for task in self._starting:
            task.cancel()
        for close in self._when_closed:
            self._guard.call("close", close)
        try:
            if self._arbitration is not None:
                await self._guard.wait("close", self._arbitration.close)
            if isinstance(self._residence, SharedBuffer):
                # a map keeps the partition's descriptors open
                self._guard.call("close", self._residence.unmap_idle)
            if self._tier is not None:
                await self._guard.wait("close", offload, self._tier.close)
        finally:  # also where the event loop ends meanwhile
            self._exchange.close()
        if self._tier is not None:
            await self._guard.wait("close", offload, self._tier.withdraw)

    def execute(self, key: Key, *,  # type: ignore[override]  # as its decorator has it
                stimulus_id: str) -> Awaitable[StateMachineEvent]:
        run: Run = partial(super().execute, key, stimulus_id=stimulus_id)
        for around in self._around:
            run = partial(around, key, run)
        return run()

    async def _run(self, key: Key, stock: Run, grant: Grant | None = None) -> StateMachineEvent:
        event = await (self._run_in_pieces(key, stock) if key in self._pieces else self._run_held(
            key, stock, grant))
        if isinstance(event, ExecuteSuccessEvent):
            await self._guard.wait("result", self._take, grant, key, event, key=key)
        return event

    async def _run_held(self, key: Key, stock: Run, grant: Grant | None) -> StateMachineEvent:
        task, residence, tier = self.state.tasks.get(key), self._residence, self._tier
        # inputs that lie in the partition, or are large enough to be put there while it runs
        least, nbytes, keys = self._exchange.settings.min_size, 0, []
        for dep in task.dependencies if task is not None else ():
            size = dep.nbytes or 0
            nbytes += size
            if size >= least or residence.entry(dep.key) is not None:
                keys.append(dep.key)
        if keys:
            self._guard.call("inputs", residence.hold, keys)
        try:
            if keys and tier is not None:
                start = time()
                await self._guard.wait("inputs", tier.inputs.bring, keys,
                                       () if grant is None else grant.aside)
                stop = time()
                # as stock says it of what it reads itself
                if task is not None and stop - start > 0.005:
                    task.startstops.append({"action": "disk-read", "start": start, "stop": stop})
            if grant is not None:
                grant.mapped()
            if tier is not None:
                self._guard.call("look-ahead", tier.inputs.look_ahead)
            return await stock()
        finally:
            if keys:
                self._guard.call("inputs", residence.let_go, keys)
                if tier is not None:
                    self._guard.call("inputs", tier.inputs.relieve)
            if nbytes >= _MUCH:
                self._guard.call("shed", shed, self)

    async def _take(self, grant: Grant | None, key: Key, event: ExecuteSuccessEvent) -> None:
        """A result, before the data mapping has it."""
        min_size = self._exchange.settings.min_size
        if self._exchange.weigh(event.value, event.nbytes) < min_size:
            event.value = own_small_arrays(event.value, min_size)
        elif self._exchange.candidate(event.value):
            await self._keep(key, event)
            if grant is not None:
                grant.stored()
        else:
            self._exchange.fallbacks.kept(event.nbytes, type(event.value), HAS_NO_MEMORY)
        if self._tier is not None and not isinstance(event.value, Handle):
            await self._tier.settling.room(event.nbytes)

    async def _run_in_pieces(self, key: Key, stock: Run) -> StateMachineEvent:
        """Stock's execute, of what is done in pieces: they fetch their own inputs."""
        if not NODES:  # by the two below
            return await stock()

        async def run() -> object:
            handing_now.set(None)
            return await self._pieces[key].run()

        token = handing_now.set(NoInputs(self))
        try:
            with run_as(self.state.tasks[key], run):
                return await stock()
        finally:
            handing_now.reset(token)

    async def _maybe_deserialize_task(self, ts: TaskState) -> object:
        pieces = self._pieces.get(ts.key)
        return ((pieces.run, (), {}) if pieces is not None
                else await super()._maybe_deserialize_task(ts))  # type: ignore[misc]

    def _prepare_args_for_execution(self, ts: TaskState, *args: object) -> object:
        if ts.key in self._pieces:
            return args  # they fetch their own
        return super()._prepare_args_for_execution(ts, *args)  # type: ignore[misc]

    async def _keep(self, key: Key, event: ExecuteSuccessEvent) -> None:
        """Puts a result into the partition before anybody has it, where it
        will likely be handed on."""
        habit, share = self._habits.of(key), self._exchange.settings.share
        leaves = habit.leaves
        habit.made += 1
        # a second name; the data mapping does it where that takes no time
        if self._residence.knows(event.value):
            leaves, share = self._tier is not None, ""
        # alone more than the target: it cannot stay private
        heavy = self._tier is not None and event.nbytes > self._tier.settling.residence.n
        if not heavy and (share == "lazy" or not (leaves or share == "eager")):
            return
        entry = await self._put(key, event.value, event.nbytes)
        if isinstance(entry, Entry):
            try:
                event.value = self._residence.accept(key, Handle.of(self._exchange, entry))
            except Exception as e:
                self._exchange.fallbacks.note("map-failed", e, key, "kept private")
        elif entry is not Kept.FOR_NOW:
            self._residence.unshareable(key, event.value)

    async def _put(self, key: Key, value: object, nbytes: int,
                   held: bool = False) -> Entry | Kept | Pickled:
        """Small values on the event loop, large ones in a thread. An object whose put was cancelled
        is dropped when it is there."""
        weight = self._exchange.weigh(value, nbytes)
        if weight <= _INLINE or (weight <= _INLINE_ROOMY and self._at_ease()):
            put = self._exchange.put(key, value, nbytes, wait=False, again=weight > _INLINE)
            if weight <= _INLINE or put is not Kept.FOR_NOW:
                return put
        run = offload if self._tier is None else partial(run_in, self._tier.writer)
        putting: asyncio.Future[Entry | Kept | Pickled] = asyncio.ensure_future(
            run(self._exchange.put, key, value, nbytes, held))
        try:
            entry = await asyncio.shield(putting)
        except asyncio.CancelledError:
            putting.add_done_callback(self._drop_put)
            raise
        if self._tier is not None:
            self._guard.call("grew", self._tier.grew)
        return entry

    def _drop_put(self, putting: asyncio.Future[Entry | Kept | Pickled]) -> None:
        if (not putting.cancelled() and putting.exception() is None and
            isinstance(entry := putting.result(), Entry)):
            self._exchange.drop(entry)

    async def get_metrics(self) -> dict[str, object]:
        metrics: dict[str, object] = await super().get_metrics()
        if self._exchange is not None:
            self._guard.call("metrics", self._add_metrics, metrics)
        return metrics

    def _add_metrics(self, metrics: dict[str, object]) -> None:
        metrics["shmstore"] = {**self._exchange.books()._asdict(), **self._exchange.host()}
        # stock asks the data, and a dict has no answer
        if isinstance(self._residence, DictResidence):
            metrics["spilled_bytes"] = self._residence.shared_total()._asdict()

    # -- donor

    @property
    def data(self) -> Any:
        handing = handing_now.get()
        return handing if handing is not None and handing.worker is self else self.state.data

    async def get_data(
        self, comm: Comm, keys: Collection[Key] | None = None, who: str | None = None,
        serializers: list[str] | None = None, **kwargs: object
    ) -> Any:
        ask: Callable[..., Awaitable[object]] = super().get_data
        if not keys or not can_carry(serializers) or not self._is_peer(who):
            async with self._mapped(keys or ()):
                return await ask(comm, keys=keys, who=who, serializers=serializers, **kwargs)
        pickled = await self._export(keys)
        in_partition = [self._residence.entry(key) is not None for key in keys]
        if not pickled and not any(in_partition):
            return await ask(comm, keys=keys, who=who, serializers=serializers, **kwargs)
        if self._tier is not None:
            self._guard.call("grew", self._tier.grew)
        if all(in_partition):
            kwargs.update(UNLIMITED)  # limits protect memory and network; handles take neither
        handing = Handing(self, pickled if serializers is None or "pickle" in serializers else {})
        token = handing_now.set(handing)
        try:
            if not self._at_ease():
                await self._guard.wait("handoff", handing.prepare, keys)
            return await ask(comm, keys=keys, who=who, serializers=serializers, **kwargs)
        except BaseException:
            handing.revoke()
            raise
        finally:
            handing.done()
            handing_now.reset(token)

    def _at_ease(self) -> bool:
        """Whether nobody moves objects to or from a disk, for which a link might have to wait."""
        return self._tier is None or bool(self._guard.call("ease", self._tier.at_ease))

    def _is_peer(self, address: str | None) -> bool:
        return (self._exchange is not None and
                bool(self._guard.call("peers", self._exchange.is_peer, address)))

    def _mapped(self, keys: Iterable[Key],
                aside: Container[Key] = ()) -> AbstractAsyncContextManager[None]:
        """For values that go out themselves, and for pieces of a task."""
        return (nullcontext() if self._tier is None else self._guard.within(
            "inputs", self._tier.inputs.held, keys, aside))

    async def _export(self, keys: Iterable[Key], spill: bool = False) -> dict[Key, Pickled]:
        """Puts private values that are worth it into the partition; large ones in a thread, each by
        one caller only. Returns those that were found not to be worth it.

        spill: to be rid of them, as private memory is short; who waits for room
        in the partition comes first.
        """
        unshareable = {}
        for key in keys:
            if key in self._pending:
                await self._pending[key]
            elif self._guard.call("export", self._residence.private, key, key=key) is not None:
                entry = await self._guard.wait("export", self._export_one, key, spill, key=key)
                if isinstance(entry, Pickled):
                    unshareable[key] = entry
        return unshareable

    async def _export_one(self, key: Key, spill: bool) -> Entry | Kept | Pickled | None:
        if (found := self._residence.private(key)) is None:
            return None
        value, nbytes = found
        del found
        done = self._pending[key] = asyncio.get_running_loop().create_future()
        try:
            async with self._room(f"put {key}", partition=self._exchange.weigh(value, nbytes),
                                  spill=spill) as room:
                entry = await self._put(key, value, nbytes, held=True) if room else Kept.FOR_NOW
            self._residence.commit(key, value, entry, rid=spill)
            return entry
        finally:
            del value, self._pending[key]
            done.set_result(None)

    # -- receiver

    def _room(self, what: str, private: int = 0, partition: int = 0,
              spill: bool = False) -> AbstractAsyncContextManager[bool | None]:
        """For a transfer. Gives whether there is room."""
        return (nullcontext(True) if self._arbitration is None else self._guard.within(
            "room", self._arbitration.transfer, what, private, partition, spill))

    async def gather_dep(self, worker: str, to_gather: Collection[Key], total_nbytes: int, *,
                         stimulus_id: str) -> StateMachineEvent:
        ask = partial(super().gather_dep, worker, total_nbytes=total_nbytes,
                      stimulus_id=stimulus_id)
        if self._exchange is None:
            return await ask(to_gather)
        private = 0 if self._is_peer(worker) else total_nbytes
        if private and self._crossings is not None:
            ask = partial(self._crossings.gather, self, worker, ask, nbytes=total_nbytes)
        # Without room, as on stock.
        async with self._room(f"gather from {worker}", private=private):
            event = await ask(to_gather)
        if not isinstance(event, GatherDepSuccessEvent):
            return event
        data: dict[Key, object] = event.data
        sent = [key for key, value in data.items() if not isinstance(value, Handle)]
        if self._tier is not None and sent:
            nbytes = sum(ts.get_nbytes() for key in sent if (ts := self.state.tasks.get(key)))
            await self._guard.wait("room", self._tier.settling.room, nbytes)
        if len(sent) == len(data):
            return event
        if not self._at_ease():
            await self._guard.wait("adopt", offload, self._exchange.adopt_all, data)
        if missing := self._adopt(data):
            for key in missing:
                del data[key]
            # Once more, as nobody's peer. Those that fail again Dask looks for elsewhere.
            instead: StateMachineEvent | None = None
            try:
                response = await ask_worker(self.rpc, missing, worker, None)
                if response["status"] == "OK":
                    data.update(response["data"])
                elif response["status"] == "busy":  # it has them: Dask would take them for lost
                    instead = GatherDepBusyEvent(worker=worker, total_nbytes=total_nbytes,
                                                 stimulus_id=stimulus_id)
            except OSError as e:
                self._exchange.fallbacks.note("fetch-failed", e, missing[0], "left to Dask")
            except Exception as e:  # as stock: an error of the tasks that need the value
                instead = GatherDepFailureEvent.from_exception(
                    e, worker=worker, total_nbytes=total_nbytes, stimulus_id=stimulus_id)
            if instead is not None:
                if self._crossings is not None:
                    self._crossings.release(data)  # they do not come, for siblings neither
                return instead
        return event

    def _adopt(self, data: dict[Key, object]) -> list[Key]:
        """Takes over every handle in what came in. The keys of those that could not be."""
        failed = []
        for key, value in data.items():
            if not isinstance(value, Handle):
                continue
            try:
                if self._exchange is not None and self._exchange.adopt(key, value):
                    data[key] = self._residence.accept(key, value)
                    continue
            except Exception as e:
                self._exchange.fallbacks.note("map-failed", e, key, "fetched as on stock")
            failed.append(key)
        return failed

    def _update_metrics_received_data(self, start: float, stop: float, data: dict[Key, object],
                                      cause: TaskState, worker: str) -> None:
        received(self, partial(super()._update_metrics_received_data, start, stop, data, cause,
                               worker), stop - start, data, worker)

    def handle_stimulus(self, *stims: StateMachineEvent) -> None:
        arrived: list[GatherDepSuccessEvent | UpdateDataEvent] = []
        kept: list[StateMachineEvent] = []
        for stim in stims:  # most are of no interest: this is called several times for each task
            if isinstance(stim, (GatherDepSuccessEvent, UpdateDataEvent)):
                arrived.append(stim)
                if self._crossings is not None and isinstance(stim, GatherDepSuccessEvent):
                    kept += self._crossings.kept(self.state.tasks, stim)
            elif type(stim) is ComputeTaskEvent and self._exchange is not None:
                leave_libraries_out(self)
        super().handle_stimulus(*kept, *stims)
        for stim in arrived:
            for key, value in stim.data.items():
                if type(value) is Handle and key in self.state.tasks:
                    # None: Dask finds it out where it needs it
                    self.state.tasks[key].type = value.value_type()
            if self._crossings is not None:
                self._crossings.release(stim.data, arrived=True)  # siblings get it from here

    async def gather(self, who_has: dict[Key, list[str]]) -> dict[Any, object]:
        token = _unadopted.set(set())
        try:
            result = await super().gather(who_has)
            if failed := _unadopted.get():
                asked = {key: list(who_has[key]) for key in failed}
                data = await ask_workers(self.rpc, asked, None)
                super().update_data(data, **QUIET)
                if missing := [key for key in failed if key not in data]:
                    stocks = cast("Iterable[Key]", result.get("keys", ()))
                    return {"status": "partial-fail", "keys": [*stocks, *missing]}
            return result
        finally:
            _unadopted.reset(token)

    def update_data(self, data: dict[Key, object], *args: Any, **kwargs: Any) -> dict[str, object]:
        if failed := self._adopt(data):
            unadopted = _unadopted.get()
            if unadopted is None:  # from a client: it sends the values themselves where this fails
                raise OSError("values in the partition could not be taken over")
            unadopted.update(failed)
            data = {key: value for key, value in data.items() if key not in unadopted}
        return super().update_data(data, *args, **kwargs)
