# SPDX-License-Identifier: Apache-2.0
"""P2P shuffles and rechunks: between workers of one host the shards of a message go as one object
of the partition, by hard link; stock sends them over a socket. They wait for their output
partitions where stock has them wait, on a disk. Shards for other hosts are sent, as on stock.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .compat.p2p import Sending, Splitting, each_run
from .config import offload
from .exchange import MADE, Entry, Exchange
from .handle import Handle

if TYPE_CHECKING:
    from .compat.p2p import Answer, Id, Range, Run
    from .tier import Tier
    from .worker import Worker

    Shard = tuple[Id, Any]

# bytes of a message, about: an object of the partition costs the same whatever its size
_MESSAGE = 16 << 20
# bytes of the mean shard below which a message is one pickle: a buffer for each
# would cost more than the copy
_SMALL = 8 << 10
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
        self.others: set[str] = set()  # peers that do not understand this
        each_run(worker, lambda run: self.guard.call("p2p", self.take, run))

    def take(self, run: Run) -> None:
        """From here on that run's shards go as this module says."""
        key, sending, splitting = f"p2p-{run.id}-{run.run_id}", Sending(run), Splitting.of(run)
        packs = (None if splitting is None
                 else Packs(self, key, run.local_address, splitting))
        stock_receive, stock_take = run.receive, run._receive

        async def send_plain(address: str, shards: list[Shard]) -> Answer:
            if address == run.local_address:  # has them already
                run.raise_if_closed()
                return await stock_receive(shards)
            if (self.takes(address) and
                (answer := await self._hand_over(key, sending, address, shards)) is not None):
                return answer
            return await sending.stock(address, shards)

        async def send(address: str, shards: list[Shard]) -> Answer:
            plain = [shard for shard in shards if not isinstance(shard[1], Handle)]
            for handle in [shard[1] for shard in shards if isinstance(shard[1], Handle)]:
                assert packs is not None  # it made them
                told: Answer | None = None
                # each by itself: a stock receiver must fail at once, before it takes any of it for
                # received
                if address == run.local_address:
                    await packs.take(handle.take())
                    continue
                if self.takes(address) and (ticket := self.exchange.handoff(key, handle.entry)):
                    told = await self._once(key, sending, address, ticket)
                if told is None:
                    plain.append(await offload(packs.as_stock, handle))
                elif told.get("status") != "OK":
                    return told
            return await send_plain(address, plain) if plain else {"status": "OK"}

        async def take(data: Any) -> None:
            await (packs.take(data) if packs and isinstance(data, Entry) else stock_take(data))

        async def received(data: Any) -> Answer:
            if isinstance(data, Handle) and data.kind == MADE:
                if packs is None or not self.exchange.adopt(key, data):
                    return _LOST
                data = data.take()
            elif isinstance(data, Handle):
                data = self.guard.call("p2p", self._adopt, key, data)
                if data is None:
                    return _LOST
            return await stock_receive(data)

        sending.through(send, _MESSAGE)
        run.receive = received  # type: ignore[assignment, method-assign]
        run._receive = take  # type: ignore[method-assign]
        if packs is not None:
            run._shard_partition = packs.split  # type: ignore[method-assign]

    def takes(self, worker: str) -> bool:
        """Whether shards may go to another worker by link."""
        return worker not in self.others and self.is_peer(worker)

    def has_room(self, nbytes: int) -> bool:
        """Whether the partition takes so many bytes and stays at ease."""
        if self.tier is not None:
            return nbytes <= self.tier.spare()
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

    def __init__(self, shards: Shards, key: str, address: str, splitting: Splitting) -> None:
        self._shards, self._key, self._address = shards, key, address
        self._splitting = splitting

    def split(self, data: object, partition_id: Id) -> dict[str, Shard]:
        """In place of stock's, in the thread of a task: {worker: (partition_id, handle)}."""
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

    def as_stock(self, handle: Handle) -> Shard:
        """As stock would send it."""
        return self._splitting.as_stock(*self._mapped(handle.take()))

    def _mapped(self, entry: Entry) -> tuple[Id, list[Range], memoryview]:
        (id, index), memory = self._shards.map(entry)
        return id, index, memory

    async def take(self, packed: Entry) -> None:
        """It is here."""
        await self._splitting.receive(*self._mapped(packed))


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
