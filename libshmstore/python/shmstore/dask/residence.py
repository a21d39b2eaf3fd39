# SPDX-License-Identifier: Apache-2.0
"""A worker's data: stock Dask's SpillBuffer with a third tier, the values that lie in the
partition.

    fast     private values in memory, least recently used first out        (stock)
    shared   values whose buffers lie in the partition, mapped when needed   (here)
    slow     private values on disk                                          (stock)

A value enters the shared tier when a peer of this host takes it over or hands it to us, when memory
runs short, when it is one of ours under another key, or when its task is done (`share`). It stays
until its key goes: mapped memory counts for no worker. Other values spill as on stock.

Where the partition has a disk tier (`use`), shared values may lie on disk without this mapping
taking note: a map brings them back. Slow work is done elsewhere then: values are mapped beforehand
(inputs.py) and settle beside the event loop (tier.py), threads delete. While memory is short,
values stay mapped only during use. Values without room are used in spill files (values.py).

The mapped value is kept, so that tasks of one worker see each other's writes into it as
they do on stock; and because a new map costs page faults. It is used by the worker's event
loop only, except where stated.

`DictResidence` shares beside a plain dict: a worker's data where its user has turned spilling off.
There is no mapping of ours to see keys come and go. So a value stays in the dict as the mapped
value that it is, and its entry is known by the identity of that value and goes with it, by a weak
reference. A value without weak references (a list of arrays) is not shared.

Both are a **residence**: where a worker's values live, as a hand-off needs it (`entry`, `private`,
`commit`, `accept`, `knows`, `shared_total`).
"""

from __future__ import annotations

import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import (Collection, ItemsView, Iterable, Iterator, KeysView, MutableMapping,
                             ValuesView)
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Literal, Union

from distributed.sizeof import safe_sizeof

from .compat.worker import SpillBuffer, SpilledSize, keep_all, oldest_private, slow_of
from .exchange import Entry, Exchange
from .handle import Handle
from .memory import written_bytes
from .values import Kept, Pickled, SpillFiles

if TYPE_CHECKING:
    from .compat.worker import Key
    from .tier import Tier

_SHED_MIN = 64 << 10  # bytes of private memory for which a map is let go
_LOOK_SHARE = 5  # a look at written pages takes one part in so many of the time at most, ...
# ... unless that much private memory has come since the last one: tasks may write faster than that
_LOOK_GROWTH = 32 << 20
_NOBODY = object()


class SharedBuffer(SpillBuffer):
    """A SpillBuffer over an exchange. `shared` is for inspection only."""

    def __init__(self, exchange: Exchange, spill_directory: str, target: int,
                 max_spill: int | Literal[False] = False) -> None:
        self.exchange = exchange
        self.shared: dict[Key, Entry] = {}
        self._nbytes = 0  # sizeof of the values in shared
        # key and id of a value that is about to be stored
        self._found_private: tuple[Key | None, int] = (None, 0)
        self._unpickled = 0  # bytes of private memory that mapped values take beside their buffers
        self._next_look = 0.0  # at written pages
        self._look_from = 0  # bytes from which on that is not waited for
        # those whose value is kept, least recently used first
        self._mapped: OrderedDict[Key, Entry] = OrderedDict()
        self._key_of: dict[int, Key] = {}  # id of a kept value -> its key
        self._private: set[Key] = set()  # keys found not to be shareable
        # keys whose values are to stay at hand -> by how many
        self._users: Counter[Key] = Counter()
        self.tier: Tier | None = None
        self._leaving: Collection[Key] = ()
        self._to_disk = False
        self._storing: object = _NOBODY  # the key of the value that is being stored
        super().__init__(spill_directory, target, max_spill)
        self._files = SpillFiles(slow_of(self), exchange)
        self._files.maps = False  # without a tier they are as on stock

    def use(self, tier: Tier, leaving: Collection[Key]) -> None:
        """From here on shared values may lie in the disk tier, and its settling is told when
        private memory is over its target, or process memory is short. leaving: keys whose values
        are on their way into the partition."""
        self.tier, self._leaving = tier, leaving
        self._files.maps = not tier.packed
        keep_all(self, self._spills_at_once)  # the target is kept by who is told of the overflow

    # -- what the worker does

    def __setitem__(self, key: Key, value: object) -> None:
        if isinstance(value, Handle):
            self._receive(key, value)
            return
        self._forget(key)
        if self._key_of or self.exchange.maps.live:  # else it shows nothing of ours
            if self.exchange.guard.call("alias", self._alias, key, value, key=key):
                self._drop_private(key)
                return
        if self._found_private == (key, id(value)):
            self._private.add(key)
        self._found_private = (None, 0)
        self._storing = key
        try:
            super().__setitem__(key, value)
        finally:
            self._storing = _NOBODY
        self._settle()

    def __getitem__(self, key: Key) -> object:
        entry = self.shared.get(key)
        if entry is not None:
            return self._value(key, entry)
        if key in self.fast:
            return super().__getitem__(key)
        if self._files.mappable(key):
            with suppress(OSError):  # too many maps or open files: it is read
                return self._spilled(key)
        value = super().__getitem__(key)  # from a spill file: there is more in private memory now
        self._settle()
        return value

    def __delitem__(self, key: Key) -> None:
        if key in self.shared:
            self._forget(key)
        else:
            super().__delitem__(key)
            self._private.discard(key)

    def pop(self, key: Key, *default: object) -> object:
        # Dask drops keys this way, with a default, and has no use for the value: it is not worth a
        # map, let alone a read; and who drops the last reference to a map on the event loop unmaps
        # it there, which takes 40 ms where a file of the disk tier goes with it.
        if default:
            value = self.fast.d[key] if key in self.fast else default[0]
            if key in self:
                del self[key]
            return value
        # zict's since 2023.9 raises NotImplementedError
        return MutableMapping.pop(self, key)

    def __contains__(self, key: object) -> bool:
        return key in self.shared or super().__contains__(key)

    def __len__(self) -> int:
        return len(self.shared) + super().__len__()

    def __iter__(self) -> Iterator[Key]:
        return chain(super().__iter__(), iter(list(self.shared)))

    def keys(self) -> KeysView[Key]:
        return KeysView(self)

    def values(self) -> _Values:
        return _Values(self)

    def items(self) -> _Items:
        return _Items(self)

    # -- memory runs short

    def fast_to_slow(self, key: Key, value: object) -> None:
        """Called where a value leaves fast: into the partition if it can, else to disk."""
        guard = self.exchange.guard
        if (self._to_disk or self.exchange.asked() or
            not guard.call("evict", self._share_new, key, value, None, True, key=key)):
            super().fast_to_slow(key, value)
            self._files.wrote(key)

    def evict(self) -> int:
        """One private value leaves private memory. With a disk tier a shareable one does so beside
        the event loop, where -1 means: not yet. Where that does not come on, to disk at once: the
        process is on its way to its limit."""
        if self.tier is not None and self.oldest() is not None:
            return -1 if self.tier.settling.urge() else self.evict_to_disk()
        return super().evict()

    def evict_to_disk(self) -> int:
        """One private value leaves private memory for a spill file, whatever it is.
        Bytes; -1 where it could not."""
        for key in self._leaving:  # their memory would stay until they are there
            if key in self.fast:
                self.fast[key]
        self._to_disk = True
        try:
            return int(super().evict())
        finally:
            self._to_disk = False

    @property
    def private_weight(self) -> float:
        """sizeof what is held in private memory: private values, and what mapped ones
        take beside their buffers."""
        return float(self.fast.total_weight + self._unpickled)

    def shed(self, nbytes: int) -> int:
        """Lets go of idle mapped values that hold private memory, least recently used first, until
        nbytes are given back. Returns the bytes. Tasks' writes are lost."""
        if nbytes <= 0 or (time.monotonic() < self._next_look and nbytes < self._look_from):
            return 0
        idle = [item for item in self._mapped.items() if item[0] not in self._users and
                (item[1].unpickled or item[1].address)]
        if not idle:
            return 0
        started = time.monotonic()
        written = written_bytes([entry.address for _, entry in idle])
        now = time.monotonic()
        self._next_look = now + (now - started) * _LOOK_SHARE
        given = 0
        for (key, entry), pages in zip(idle, written):
            if given >= nbytes:
                break
            if entry.unpickled + pages >= _SHED_MIN:
                given += entry.unpickled + pages
                self._unmap(key, entry)
        self._look_from = max(0, nbytes - given) + _LOOK_GROWTH
        return given

    def over(self, nbytes: int = 0) -> bool:
        """Whether private memory, with nbytes more, is over a target that is
        kept beside the event loop."""
        return self.tier is not None and self.fast.total_weight + nbytes > self.n

    def oldest(self) -> Key | None:
        """The key of the least recently used private value, if it may be worth
        sharing; None otherwise."""
        if not self.fast:
            return None
        key = oldest_private(self)
        return key if self.private(key) is not None else None

    def spilled_size(self, key: Key) -> int:
        """sizeof a value that has to be read from a spill file; 0 of one that does not lie in one,
        or is used where it lies."""
        size = self._slow_uncached.weight_by_key.get(key)
        return 0 if size is None or self._files.mappable(key) else int(size.memory)

    def evict_shared(self, nbytes: int) -> int:
        """Moves values from the partition to disk until nbytes are given back, least recently used
        first; those that others link too would give nothing. Returns bytes of their objects; what
        tasks are working on goes when they are done with it.
        """
        alone = self.exchange.alone()
        given = 0
        for key in [*(key for key in self.shared if key not in self._mapped), *self._mapped]:
            entry = self.shared[key]
            if given >= nbytes:
                break
            if entry.name not in alone:
                continue
            try:
                self.slow[key] = self._value(key, entry)
            except Exception as e:
                # the disk or max-spill is full; or the object is gone,
                # which whoever wants it will see
                with suppress(KeyError):
                    del self.slow[key]
                self.exchange.fallbacks.note("evict-failed", e, key, "stays in the partition")
                break
            given += alone[entry.name]
            self._forget(key)
        return given

    @property
    def spilled_total(self) -> SpilledSize:
        """(sizeof what is not in private memory, its bytes). Of an object that n stores link each
        counts a part in n, so that the workers of a host add up to what the partition holds;
        values on disk count as on stock.
        """
        return super().spilled_total + self.shared_total()

    # -- a peer asks (see DictResidence)

    def entry(self, key: Key) -> Entry | None:
        """The entry of a key that lies in the partition."""
        return self.shared.get(key)

    def private(self, key: Key) -> tuple[object, int] | None:
        """(value, sizeof) of a key, in private memory or mapped from its spill file, that may be
        worth sharing; None otherwise. Leaves the order alone."""
        if self._files.mappable(key) and key not in self._private:
            with suppress(OSError):
                value = self._spilled(key)
                if self._is_private(key, value):  # not of a list, which takes no weak reference
                    return value, self._slow_uncached.weight_by_key[key].memory
            return None
        if key not in self.fast or key in self._private:
            return None
        value = self.fast.d[key]
        nbytes = int(self.fast.weights[key])
        if (self.exchange.weigh(value, nbytes) < self.exchange.settings.min_size or
            not self.exchange.candidate(value)):
            return None
        return value, nbytes

    def unshareable(self, key: Key, value: object) -> None:
        """That was found of the value that the key is about to get."""
        self._found_private = key, id(value)  # the value may go, where its key was cancelled

    def commit(self, key: Key, value: object, entry: Entry | Kept | Pickled,
               rid: bool = False) -> None:
        """The value of `private` was put into the store, or could not be; forgotten if the key went
        or changed meanwhile. rid: its private memory is wanted."""
        same = self._is_private(key, value)
        if not isinstance(entry, Entry):
            if same and entry is not Kept.FOR_NOW:
                self._private.add(key)
        elif same:
            super().__delitem__(key)
            self._enter(key, entry, rid)
            if key in self._users and entry.value is None:  # its users get this value
                self._keep_private(key, entry, value)
        else:
            self.exchange.drop(entry)

    def accept(self, key: Key, handle: Handle) -> object:
        """The value that the worker stores under the key for an adopted handle."""
        return handle

    def knows(self, value: object) -> bool:
        """Whether a value is one of our mapped ones: a task returned its input,
        which `__setitem__` links."""
        return id(value) in self._key_of

    def shared_total(self) -> SpilledSize:
        """(sizeof the values in the partition and its disk tier, our share of their bytes)."""
        # for each heartbeat, in which an error would close the worker
        books = self.exchange.guard.call("books", self.exchange.books) if self.shared else None
        return SpilledSize(self._nbytes - self._unpickled, sum(books or ()))

    # -- who needs values mapped (inputs.py)

    def hold(self, keys: Iterable[Key]) -> None:
        """The values of these keys stay where they can be had at once, once they are there, until
        `let_go`."""
        for key in keys:
            self._users[key] += 1

    def let_go(self, keys: Iterable[Key]) -> None:
        """Undoes `hold`."""
        for key in keys:
            self._users[key] -= 1
            if self._users[key] <= 0:
                del self._users[key]
                entry = self._mapped.get(key)
                # the next user maps the object
                if entry is not None and entry.copied and entry.original is None:
                    self._unmap(key, entry)

    def held(self, more: Iterable[Key] = ()) -> int:
        """sizeof the values in the partition that are held, or would be with more."""
        return sum(self.shared[key].nbytes for key in {*self._users, *more} if key in self.shared)

    def keep(self, key: Key, entry: Entry, value: object, aside: bool = False) -> None:
        """The value of an entry was mapped, aside: where it lies on disk; forgotten if the key went
        or was mapped meanwhile."""
        if self.shared.get(key) is entry and entry.value is None:
            entry.aside = aside
            self._keep(key, entry, value)

    def maps_any(self) -> bool:
        """Whether the value of any key is mapped."""
        return bool(self._mapped)

    def unmap_idle(self, aside: bool = True) -> None:
        """Drops every mapped value that nobody needs now; aside: also of those
        that are mapped on disk."""
        for key, entry in [item for item in self._mapped.items() if item[0] not in self._users and
                           (aside or not item[1].aside)]:
            self._unmap(key, entry)

    def idle_names(self) -> list[str]:
        """Names in the store of what nobody needs now, least recently used first."""
        keys = [*(key for key in self.shared if key not in self._mapped), *self._mapped]
        return [self.shared[key].name for key in keys if key not in self._users]

    # -- private

    def _spills_at_once(self, key: Key) -> bool:
        """Whether a value that alone is more than the target goes to disk as it is stored: the
        partition takes it neither now nor later."""
        return bool(key == self._storing and self.private(key) is None)

    def _settle(self) -> None:
        if self.tier is not None and self.over():
            self.exchange.guard.call("overflow", self.tier.settling.start)

    def _spilled(self, key: Key) -> object:
        """The value of a key in a spill file that can be mapped; the same one as long as
        somebody uses it. OSError."""
        known = self.slow.cache  # type: ignore[attr-defined]
        value = known.get(key)
        if value is None:
            value = known[key] = self._files.map(key)
        return value

    def _is_private(self, key: Key, value: object) -> bool:
        """Whether that is the key's value, as `private` gave it."""
        if key in self.fast:
            return self.fast.d[key] is value
        return (self._files.mappable(key) and
                self.slow.cache.get(key) is value)  # type: ignore[attr-defined]

    def _receive(self, key: Key, handle: Handle) -> None:
        if not self.exchange.adopt(key, handle):
            raise OSError(f"the value of {key!r} could not be taken over from "
                          f"{handle.ticket.path!r}")
        entry = handle.take()
        self._forget(key)
        self._drop_private(key)
        self._enter(key, entry)

    def _enter(self, key: Key, entry: Entry, rid: bool = False) -> None:
        self.shared[key] = entry
        self._nbytes += entry.nbytes
        if rid:
            entry.original = None  # it is read back, as on stock from a spill file
        elif entry.original is not None:
            self._keep_private(key, entry, entry.original)

    def _forget(self, key: Key) -> None:
        self._private.discard(key)
        entry = self.shared.pop(key, None)
        if entry is None:
            return
        self._nbytes -= entry.nbytes
        self._unmap(key, entry)
        self.exchange.drop(entry)

    def _drop_private(self, key: Key) -> None:
        if super().__contains__(key):
            super().__delitem__(key)

    def _value(self, key: Key, entry: Entry) -> object:
        if entry.value is None:
            self._keep(key, entry, self.exchange.map(entry))
        else:
            self._mapped.move_to_end(key)
        return entry.value

    def _keep(self, key: Key, entry: Entry, value: object) -> None:
        entry.value = value
        self._mapped[key] = entry
        self._key_of[id(value)] = key
        self._unpickled += entry.unpickled
        if entry.unpickled and self.private_weight > self.n:
            self.shed(int(self.private_weight - self.n))
        while len(self._mapped) > self.exchange.settings.max_maps:
            self._unmap(*self._mapped.popitem(last=False))

    def _keep_private(self, key: Key, entry: Entry, value: object) -> None:
        entry.unpickled, entry.copied = entry.nbytes, True
        self._keep(key, entry, value)

    def _unmap(self, key: Key, entry: Entry) -> None:
        self._mapped.pop(key, None)
        if entry.value is None:
            return
        self._key_of.pop(id(entry.value), None)
        self._unpickled -= entry.unpickled
        entry.unpickled, entry.copied, entry.aside = 0, False, False
        value = [entry.value]
        entry.value = entry.original = None
        if self.tier is not None:
            self.tier.later(value.clear)  # unmapping takes its time

    def _alias(self, key: Key, value: object) -> bool:
        """A task returned its input, or parts of it: a second name for the object,
        unless somebody wrote into it."""
        other = self._key_of.get(id(value))
        entry = self.shared.get(other) if other is not None else None
        if entry is None or entry.value is not value or entry.over is not None:
            entry = self.exchange.link(key, value)
            if entry is None:
                return False
            self._enter(key, entry)
            self._keep(key, entry, value)
            return True
        return self._share_new(key, value, entry.nbytes)

    def _share_new(self, key: Key, value: object, nbytes: int | None = None,
                   rid: bool = False) -> bool:
        if key in self._private or not self.exchange.candidate(value):
            return False
        entry = self.exchange.put(key, value, nbytes, wait=False)
        if not isinstance(entry, Entry):
            if entry is not Kept.FOR_NOW:
                self._private.add(key)
            if isinstance(entry, Pickled):
                self._files.expect(value, entry)
            return False
        self._enter(key, entry, rid)
        return True


class _Items(ItemsView["Key", object]):
    """Those of a SharedBuffer; to go through them changes no order of private values."""

    _mapping: SharedBuffer

    def __iter__(self) -> Iterator[tuple[Key, object]]:
        data = self._mapping
        return chain(data.fast.items(), data.slow.items(),
                     ((key, data[key]) for key in list(data.shared)))


class _Values(ValuesView[object]):
    _mapping: SharedBuffer

    def __iter__(self) -> Iterator[object]:
        return (value for _, value in self._mapping.items())


class DictResidence:
    """The residence of a worker whose data is a plain dict."""

    def __init__(self, exchange: Exchange, data: MutableMapping[Key, object]) -> None:
        self.exchange = exchange
        self.data = data
        # by id of the mapped value, which lives as long as its entry
        self._entries: dict[int, Entry] = {}
        self._nbytes = 0  # sizeof of those values
        self._private: set[int] = set()  # ids of live values found not to be shareable

    def entry(self, key: Key) -> Entry | None:
        return self._entries.get(id(self.data[key])) if key in self.data else None

    def private(self, key: Key) -> tuple[object, int] | None:
        value = self.data.get(key)
        if (id(value) in self._entries or id(value) in self._private or not self.exchange.candidate(
            value)):
            return None
        nbytes = safe_sizeof(value)
        if (self.exchange.weigh(value, nbytes) < self.exchange.settings.min_size or
            not _takes_weak_reference(value)):
            return None
        return value, nbytes

    def unshareable(self, key: Key, value: object) -> None:
        if id(value) not in self._private and _takes_weak_reference(value):
            self._private.add(id(value))
            weakref.finalize(value, self._private.discard, id(value)).atexit = False

    def commit(self, key: Key, value: object, entry: Entry | Kept | Pickled,
               rid: bool = False) -> None:
        if not isinstance(entry, Entry):
            if entry is not Kept.FOR_NOW:
                self.unshareable(key, value)
        elif self.data.get(key) is not value:
            self.exchange.drop(entry)
        else:
            try:
                self.data[key] = self._keep(self._value(entry), entry)
            except Exception as e:
                self.exchange.fallbacks.note("map-failed", e, key, "kept private")
                self.exchange.drop(entry)

    def hold(self, keys: Iterable[Key]) -> None:
        """Values stay as long as they are in the dict."""

    let_go = hold

    def accept(self, key: Key, handle: Handle) -> object:
        """The mapped value. If `Exchange.map` raises, the handle keeps the entry."""
        value = self._value(handle.entry)
        entry = handle.take()
        if _takes_weak_reference(value):
            self._keep(value, entry)
        else:  # the map alone keeps it
            self.exchange.drop(entry)
        return value

    def knows(self, value: object) -> bool:
        """Whether a value is one of our mapped ones: a task returned its input."""
        return id(value) in self._entries

    def shared_total(self) -> SpilledSize:
        return SpilledSize(self._nbytes, sum(self.exchange.books()) if self._entries else 0)

    def _value(self, entry: Entry) -> object:
        return entry.original if entry.original is not None else self.exchange.map(entry)

    def _keep(self, value: object, entry: Entry) -> object:
        entry.original = None  # the value goes when nobody else has it
        weakref.finalize(value, self._gone, id(value), entry).atexit = False
        self._entries[id(value)] = entry
        self._nbytes += entry.nbytes
        return value

    def _gone(self, identity: int, entry: Entry) -> None:
        self._entries.pop(identity, None)
        self._nbytes -= entry.nbytes
        self.exchange.drop(entry)


#: Where a worker's values live.
Residence = Union[SharedBuffer, DictResidence]


def _takes_weak_reference(value: object) -> bool:
    try:
        weakref.ref(value)
    except TypeError:
        return False
    return True
