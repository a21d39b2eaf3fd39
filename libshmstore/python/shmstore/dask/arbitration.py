# SPDX-License-Identifier: Apache-2.0
"""A worker under the memory arbiter: joins it with arbiter.py, admission.py and pieces.py.

Transfers have a service's standing: a value that is put into the partition for a peer, or comes
from somebody who is none, is reserved before all keys. A refused transfer goes the ordinary way.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import dask.config
from distributed import Reschedule
from tornado.ioloop import PeriodicCallback

from .admission import Admission, Grant, NoRoom, Unwanted
from .arbiter import Arbiter, Claim, Outcome
from .budget import Budget
from .compat.worker import ExecuteSuccessEvent, call_of, execute_failed, reschedule, unpause
from .handle import Handle
from .needs import Needs
from .pieces import Pieces
from .slots import Slots
from .splitters import Input, any_registered, splitter_of

logger = logging.getLogger("distributed.worker.shared")

_INTERVAL = 500  # ms between two looks for the arbiter, and at our own memory
_TRANSFER_PATIENCE = 5.0  # seconds that a transfer waits for room
_EVICT_PART = 8  # of the budget one part in so many leaves at least, when something has to


class Arbitration:
    """Of one worker's event loop."""

    def __init__(self, worker: Any) -> None:
        manager = worker.memory_manager
        self.worker = worker
        self.residence = worker._residence
        target = manager.memory_target_fraction or manager.memory_spill_fraction
        terminate = dask.config.get("distributed.worker.memory.terminate")
        self.budget = Budget(
            manager.memory_limit,
            target,
            terminate,
            values=lambda: self.residence.private_weight,
            measure=lambda: worker.monitor.get_process_memory(),
        )
        self.arbiter = Arbiter(worker._exchange.store, self.budget, worker._exchange.fallbacks, self._evict, self._relieve)
        self.needs = Needs(worker._exchange, self.residence, worker._habits, worker._tier, worker._inputs)
        self.admission = Admission(
            self.arbiter, self.budget, Slots(worker.state, self._start), self.needs, worker._exchange.settings.arbitrate_size
        )
        self._pieces: dict[Any, Pieces] = {}
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

    async def admit(self, key: Any) -> Any:
        """A Grant; or the event of a key that is not to run here now."""
        task = self.worker.state.tasks[key]
        try:
            pieces = await self._plan(key, task)
            grant = await self.admission.admit(key, task, pieces is not None)
        except (Reschedule, Unwanted) as e:
            if isinstance(e, Reschedule):
                logger.info("shmstore: no room for key %r here, handed back to the scheduler", key)
            return reschedule(key, "shmstore-no-room")
        except NoRoom as e:
            logger.warning("shmstore: %s", e)
            return execute_failed(task, MemoryError(*e.args), "shmstore-no-memory")
        if grant.in_pieces:
            self._pieces[key] = pieces
        return grant

    def done(self, grant: Grant, key: Any, event: Any) -> None:
        """The key has run, or failed to (event None)."""
        self._pieces.pop(key, None)
        nbytes = 0
        if isinstance(event, ExecuteSuccessEvent):
            self.admission.estimates.made(key, event.nbytes)
            nbytes = 0 if isinstance(event.value, Handle) else event.nbytes
        grant.done(nbytes)

    def pieces(self, key: Any) -> Pieces | None:
        """Of a key that is done in pieces."""
        return self._pieces.get(key)

    # -- transfers

    @asynccontextmanager
    async def transfer(self, what: str, private: int = 0, partition: int = 0, spill: bool = False) -> AsyncIterator[bool]:
        """Within, there is room for it. Yields whether there is; if not, it goes the ordinary way. spill: which does not wait."""
        if not self.active or private + partition < self.worker._exchange.settings.arbitrate_size or self._at_hand(private, partition):
            yield True
            return
        claim = await self.arbiter.begin(what, service=True)
        if claim is None:
            yield True
            return
        try:
            outcome = await (claim.reserve(private, partition, spill=True) if spill else self._serve(claim, private, partition))
            yield outcome is Outcome.OK
            if outcome is Outcome.OK:
                claim.keep_partition(0)
        finally:
            claim.end()

    # -- private

    async def _plan(self, key: Any, task: Any) -> Pieces | None:
        """How the key would be done in pieces, where a splitter is there for it."""
        if not any_registered() or task.run_spec is None or not self._in_threads(task):
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

    def _in_threads(self, task: Any) -> bool:
        executor = self.worker.executors.get((task.annotations or {}).get("executor", "default"))
        return "ThreadPoolExecutor" in str(type(executor))

    def _at_hand(self, private: int, partition: int) -> bool:
        return (not private or self.budget.fits(private)) and (not partition or self.needs.relaxed(partition))

    async def _serve(self, claim: Claim, private: int, partition: int) -> Outcome:
        outcome = await claim.reserve(private, partition, _TRANSFER_PATIENCE)
        while outcome is Outcome.RETRY:
            outcome = await claim.ready(_TRANSFER_PATIENCE)
            if outcome is Outcome.OK:
                outcome = await claim.reserve(private, partition, _TRANSFER_PATIENCE)
        return outcome

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
        if self.worker._settling is not None:
            freed: int = await self.worker._settling.free(nbytes - shed)
            return shed + freed
        freed = shed
        while freed < nbytes and self.residence.fast:
            weight = self.residence.evict()
            if weight == -1:
                break
            freed += weight
        return freed

    def _relieve(self) -> None:
        if self.worker._inputs is not None:
            self.worker._inputs.relieve()

    def _start(self) -> None:
        self.worker.handle_stimulus(unpause("shmstore-slot"))
