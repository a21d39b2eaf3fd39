# SPDX-License-Identifier: Apache-2.0
"""P2P shuffles and rechunks: between workers of one host the shards of a message go as one object
of the partition, by hard link, and wait where they are, mapped, until their output partition is
made; stock sends them over a socket and writes them to a disk.

Shards for other hosts are sent, as on stock. Shards wait in memory as far as they are a
small part of the worker's memory limit, so that a shuffle takes no more memory than on
stock; the others wait on the disk.
"""

from __future__ import annotations

import pickle
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .compat.p2p import Sending, Splitting, Waiting, each_run
from .config import offload
from .exchange import MADE, Entry, Exchange
from .handle import Handle

if TYPE_CHECKING:
    from .compat.p2p import Answer, Id, Range, Run
    from .compat.worker import Key
    from .tier import Tier
    from .worker import Worker

    Shard = tuple[Id, Any]

# bytes of a message, about: an object of the partition costs the same whatever its size
_MESSAGE = 16 << 20
# bytes of the mean shard below which a message is one pickle: a buffer for each
# would cost more than the copy
_SMALL = 8 << 10
# one part in so many of the worker's memory limit, or else of the
# partition, that shards may wait in
_WAITING_SHARE = 256
# one part in so many of the partition that shards leave free where there is no disk tier
_FREE_SHARE = 10
# bytes of a worker's part of an input, on average, from which it is an object of its own
_PACKED_MIN = 256 << 10
_LOST = {"status": "shmstore: the shards could not be adopted"}


class Shards:
    """Those of one worker. Its runs are told to it (`take`)."""

    def __init__(self, worker: Worker, exchange: Exchange, tier: Tier | None) -> None:
        self.is_peer: Callable[[str], bool] = worker._is_peer
        self.exchange, self.tier, self.guard = exchange, tier, exchange.guard
        self.waiting_max = int(worker.memory_manager.memory_limit or
                               exchange.space()[0]) // _WAITING_SHARE
        self.waiting = 0  # bytes of shards of all runs that wait in memory
        self.lock = threading.Lock()  # of what waits: it is read in threads
        self.others: set[str] = set()  # peers that do not understand this
        self.when_made = worker._when_made  # of each run whose shards wait here, `Kept.made`
        each_run(worker, lambda run: self.guard.call("p2p", self.take, run))

    def take(self, run: Run) -> None:
        """From here on that run's shards go and wait as this module says."""
        key, sending, waiting, splitting = f"p2p-{run.id}-{run.run_id}", Sending(run), Waiting(
            run), Splitting.of(run)
        kept = Kept(self, waiting) if waiting.on_disk else None
        stock_receive = run.receive
        packs = (None if splitting is None else Packs(self, key, run.local_address, splitting, kept,
                                                      stock_receive))

        async def send_plain(address: str, shards: list[Shard]) -> Answer:
            if address == run.local_address:  # has them already
                run.raise_if_closed()
                return await stock_receive(shards)
            if (self.takes(address) and
                (answer := await self._hand_over(key, sending, address, shards)) is not None):
                return answer
            return await sending.stock(address, shards)

        async def send(address: str, shards: list[Shard]) -> Answer:
            packed = ([] if packs is None else [shard for shard in shards if isinstance(
                shard[1], Handle)])
            if packs is None or not packed:
                return await send_plain(address, shards)
            plain = [shard for shard in shards if not isinstance(shard[1], Handle)]
            answer: Answer = {"status": "OK"}
            if address == run.local_address:
                answer = await packs.take([handle.take() for _, handle in packed])
            else:
                # each by itself: a stock receiver must fail at once, before it
                # takes any of it for received
                for shard in packed:
                    ticket = (self.exchange.handoff(key, shard[1].entry) if self.takes(address)
                              else None)
                    told = (None if ticket is None else await self._once(
                        key, sending, address, ticket))
                    if told is None:
                        plain += await offload(packs.as_stock, [shard])
                    elif told.get("status") != "OK":
                        return told
            if plain and answer.get("status") == "OK":
                answer = await send_plain(address, plain)
            return answer

        async def received(data: Any) -> Answer:
            if isinstance(data, Handle) and data.kind == MADE:
                if packs is None or not self.exchange.adopt(key, data):
                    return _LOST
                return await packs.take([data.take()])
            if isinstance(data, Handle):
                data = self.guard.call("p2p", self._adopt, key, data)
                if data is None:
                    return _LOST
            return await stock_receive(data)

        sending.through(send, _MESSAGE)
        run.receive = received  # type: ignore[assignment, method-assign]
        if packs is not None and splitting is not None:
            splitting.through(packs.split)

    def takes(self, worker: str) -> bool:
        """Whether shards may go to another worker by link."""
        return worker not in self.others and self.is_peer(worker)

    def has_room(self, nbytes: int) -> bool:
        """Whether the partition takes so many bytes and stays at ease."""
        if self.tier is not None:
            return bool(self.tier.used() + nbytes <= self.tier.low)
        size, used = self.exchange.space()
        return used + nbytes <= size - size // _FREE_SHARE

    async def _hand_over(self, key: str, sending: Sending, address: str,
                         shards: list[Shard]) -> Answer | None:
        """The answer of a peer that took the shards; None: they go as on stock."""
        handle = await self.guard.wait("p2p", self._export, key, shards, key=key)
        return None if handle is None else await self._once(key, sending, address, handle)

    async def _once(self, key: str, sending: Sending, address: str,
                    handle: Handle) -> Answer | None:
        """The answer of a peer that took what a handle is of; None: it did not, and the handle
        is worth nothing any more."""
        try:
            answer = await sending.once(address, handle)
        except Exception as e:  # it is sent again as on stock, which says what is wrong
            handle.revoke()
            if not isinstance(e, OSError):
                self.others.add(address)
                self.guard.failed("p2p", e, key)
            return None
        except BaseException:
            handle.revoke()
            raise
        return None if answer == _LOST else answer

    async def _export(self, key: str, shards: list[Shard]) -> Handle | None:
        value, nbytes = _shared_form(shards)
        if nbytes < self.exchange.settings.min_size or not self.has_room(nbytes):
            return None
        entry = await offload(self.exchange.put, key, value, nbytes)
        if not isinstance(entry, Entry):
            return None
        try:
            return self.exchange.handoff(key, entry)
        finally:
            self.exchange.drop(entry)  # the ticket holds it

    def _adopt(self, key: str, handle: Handle) -> object:
        """The shards, mapped: they live as long as one of them does. None where that cannot be."""
        if not self.exchange.adopt(key, handle):
            return None
        shards = self.map(handle.take())
        return pickle.loads(shards) if isinstance(shards, memoryview) else shards

    def map(self, entry: Entry) -> Any:
        """The value of an entry, whose name is given up."""
        try:
            return self.exchange.map(entry)
        finally:
            self.exchange.drop(entry)


class Packs:
    """One run's inputs, split into an object for each worker that has a part in
    them, where that is worth it."""

    def __init__(
        self, shards: Shards, key: str, address: str, splitting: Splitting, kept: Kept | None,
        receive: Callable[[list[Shard]], Awaitable[Answer]]
    ) -> None:
        self._shards, self._key, self._address = shards, key, address
        self._splitting, self._kept, self._receive = splitting, kept, receive

    def split(self, data: object, partition_id: Id) -> dict[str, Shard]:
        """In place of stock's: {worker: (partition_id, handle)}."""
        parts = self._shards.guard.call("p2p", self._put, data, partition_id, key=self._key)
        return self._splitting.stock(data, partition_id) if parts is None else parts

    def _put(self, data: object, partition_id: Id) -> dict[str, Shard] | None:
        shards, exchange = self._shards, self._shards.exchange
        splitting = self._splitting
        if not all(worker == self._address or shards.takes(worker) for worker in splitting.workers):
            return None
        packed = splitting.pack(data, partition_id, _PACKED_MIN * len(splitting.workers))
        if not packed or not shards.has_room(sum(part.nbytes for part in packed.values())):
            return None
        handles: dict[str, Shard] = {}
        for worker, part in packed.items():
            entry = exchange.make(self._key, (partition_id, part.index), part.nbytes, part.write)
            if entry is None:
                return None
            handles[worker] = partition_id, Handle.of(exchange, entry)
        splitting.count(packed)
        return handles

    def as_stock(self, packed: list[Shard]) -> list[Shard]:
        """As stock would send them."""
        return [self._splitting.as_stock(*self._mapped(handle.take())) for _, handle in packed]

    def _mapped(self, entry: Entry) -> tuple[Id, list[Range], memoryview]:
        (id, index), memory = self._shards.map(entry)
        return id, index, memory

    async def take(self, packed: list[Entry]) -> Answer:
        """They are here: they wait for their output partitions. The answer to who sent them."""
        for entry in packed:
            part = self._mapped(entry)
            if self._kept is None:
                answer = await self._receive([await offload(self._splitting.as_stock, *part)])
                if answer["status"] != "OK":
                    return answer
            else:
                kept = self._splitting.kept(*part)
                if self._splitting.came(part[0], entry.nbytes):
                    await self._kept.add(kept)
        return {"status": "OK"}


class Kept:
    """The shards of one run that wait in memory for their output partitions."""

    def __init__(self, shards: Shards, waiting: Waiting) -> None:
        self._shards, self._waiting = shards, waiting
        self._lock = shards.lock
        self._held: dict[str, list[object]] = defaultdict(list)  # by output partition
        self._on_disk: set[str] = set()
        # key of a task -> outputs that it has made; it may fail yet, and be run again
        self._made: dict[Key, set[str]] = defaultdict(set)
        self._done: set[str] = set()
        waiting.through(self.keep, self.read, self.got, self.clear)
        shards.when_made.append(self.made)

    def _hold(self, shards: dict[str, list[object]]) -> bool:
        size = sum(_nbytes(each) for each in shards.values())
        with self._lock:
            # maps cannot be moved out
            if (self._shards.waiting + size > self._shards.waiting_max or
                not self._shards.has_room(0)):
                return False
            self._shards.waiting += size
            for id, each in shards.items():
                self._held[id] += each
        return True

    async def keep(self, id: str, shards: list[object]) -> None:
        """In place of stock's write of its file of an output partition."""
        if not self._hold({id: shards}):
            self._on_disk.add(id)
            await self._waiting.stock_keep(id, shards)

    async def add(self, shards: dict[str, list[object]]) -> None:
        """Shards that are mapped, by output partition."""
        if not self._hold(shards):
            await self._waiting.write(await offload(self._waiting.as_stock, shards))

    def read(self, id: str) -> list[object]:
        """All shards of an output partition."""
        self._waiting.check()
        with self._lock:
            done, shards = id in self._done, self._held.get(id, [])
        if done:
            self._waiting.begin_again()
        if id in self._on_disk or not shards:  # where there are none at all, stock says so
            return [*map(self._waiting.deserialize, shards), *self._waiting.stock_read(id)]
        return [self._waiting.deserialize(shard) for shard in shards]

    def got(self, id: str, key: Key) -> None:
        """The task of that key has made the output partition."""
        with self._lock:
            self._made[key].add(id)

    def made(self, key: Key, value: object) -> None:
        """A task's result is there: the shards of the outputs that it made go."""
        given = []
        with self._lock:
            for id in self._made.pop(key, ()):
                given.append(self._held.pop(id, []))
                self._shards.waiting -= _nbytes(given[-1])
                if given[-1]:
                    self._done.add(id)
        del given

    def clear(self) -> None:
        """The run has ended."""
        with suppress(ValueError):  # for the second time
            self._shards.when_made.remove(self.made)
        with self._lock:
            self._shards.waiting -= sum(map(_nbytes, self._held.values()))
            self._held.clear()
            self._made.clear()


def _arrays(shard: object) -> Iterator[Any]:
    """The parts of a shard with memory: bytes, or arrays in tuples and lists beside numbers."""
    if isinstance(shard, (tuple, list)):
        for part in shard:
            yield from _arrays(part)
    elif not isinstance(shard, int):
        yield shard


def _nbytes(shard: object) -> int:
    return sum(len(part) if isinstance(part, bytes) else part.nbytes for part in _arrays(shard))


def _shared_form(shards: list[Shard]) -> tuple[object, int]:
    """A list of shards, each (number of its input, what it is), such that their memory is not
    copied into a pickle; and its bytes."""
    sizes = [_nbytes(part) for part in _arrays(shards)]
    if sum(sizes) < _SMALL * len(sizes):
        whole = memoryview(pickle.dumps(shards, protocol=5))
        return whole, whole.nbytes
    return [(i, memoryview(part) if isinstance(part, bytes) else part) for i, part in shards], sum(
        sizes)
