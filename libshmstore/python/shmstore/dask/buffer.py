# SPDX-License-Identifier: Apache-2.0
"""A worker's data: stock Dask's SpillBuffer with a third tier, the values that lie in the partition.

    fast     private values in memory, least recently used first out        (stock)
    shared   values whose buffers lie in the partition, mapped when needed   (here)
    slow     private values on disk                                          (stock)

A value enters the shared tier when a peer of this host takes it over or hands it to us, when memory runs short (instead of
being written to disk), when it is one of ours under another key, or when its task is done (`share` in shmstore.yaml). It stays there until its
key goes: mapped memory belongs to the host and counts for no worker. What cannot be shared spills to disk as on stock.

The mapped value is kept, so that tasks of one worker see each other's writes into it as they do on stock; and because a
new map costs page faults. It is used by the worker's event loop only, except where stated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

from distributed.spill import SpillBuffer, SpilledSize

from .exchange import Entry, Exchange, Kept
from .handle import Handle


class SharedBuffer(SpillBuffer):
    """A SpillBuffer over an exchange. `shared` is for inspection only."""

    def __init__(self, exchange: Exchange, spill_directory: str, target: int, max_spill: Any = False) -> None:
        self.exchange = exchange
        self.shared: dict[Any, Entry] = {}
        self._nbytes = 0  # sizeof of the values in shared
        self._mapped: OrderedDict[Any, Entry] = OrderedDict()  # those whose value is kept, least recently used first
        self._key_of: dict[int, Any] = {}  # id of a kept value -> its key
        self._private: set[Any] = set()  # keys found not to be shareable
        super().__init__(spill_directory, target, max_spill)

    # -- what the worker does

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, Handle):
            self._receive(key, value)
            return
        self._forget(key)
        if self._alias(key, value):
            self._drop_private(key)
            return
        super().__setitem__(key, value)

    def __getitem__(self, key: Any) -> Any:
        entry = self.shared.get(key)
        return super().__getitem__(key) if entry is None else self._value(key, entry)

    def __delitem__(self, key: Any) -> None:
        if key in self.shared:
            self._forget(key)
        else:
            super().__delitem__(key)
            self._private.discard(key)

    def pop(self, key: Any, *default: Any) -> Any:
        # Dask drops keys this way and has no use for the value.
        if key in self.shared:
            entry = self.shared[key]
            value = entry.value if entry.value is not None else self.exchange.map(entry)
            self._forget(key)
            return value
        return super().pop(key, *default)

    def __contains__(self, key: object) -> bool:
        return key in self.shared or super().__contains__(key)

    def __len__(self) -> int:
        return len(self.shared) + super().__len__()

    def __iter__(self) -> Iterator[Any]:
        return chain(super().__iter__(), iter(list(self.shared)))

    def keys(self) -> Iterator[Any]:  # type: ignore[override]
        return iter(self)

    def values(self) -> Iterator[Any]:  # type: ignore[override]
        return chain(super().values(), (self[key] for key in list(self.shared)))

    def items(self) -> Iterator[tuple[Any, Any]]:  # type: ignore[override]
        return chain(super().items(), ((key, self[key]) for key in list(self.shared)))

    def __str__(self) -> str:
        return f"SharedBuffer<{self.fast}, shared: {len(self.shared)}, {self.slow}>"

    __repr__ = __str__

    # -- memory runs short

    def fast_to_slow(self, key: Any, value: Any) -> None:
        """Called where a value leaves fast: into the partition if it can, else to disk."""
        if self.exchange.asked() or not self._share_new(key, value):
            super().fast_to_slow(key, value)

    def evict_shared(self, nbytes: int) -> int:
        """Moves values from the partition to disk until nbytes are given back, least recently used first; those that others link
        too would give nothing. Returns bytes of their objects; what tasks are working on goes when they are done with it.
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
            except Exception as e:  # the disk or max-spill is full; or the object is gone, which whoever wants it will see
                with suppress(KeyError):
                    del self.slow[key]
                self.exchange.fallbacks.note("evict-failed", e, key, "stays in the partition")
                break
            given += alone[entry.name]
            self._forget(key)
        return given

    @property
    def spilled_total(self) -> SpilledSize:
        """(sizeof what is not in private memory, its bytes). Of an object that n stores link each counts a part in n, so
        that the workers of a host add up to what the partition holds; values on disk count as on stock.
        """
        return super().spilled_total + self.shared_total()

    def get_metrics(self) -> dict[str, float]:
        """Stock's, and shared_count and shared_bytes (sizeof)."""
        return {**super().get_metrics(), "shared_count": len(self.shared), "shared_bytes": self._nbytes}

    # -- a peer asks (see Residence in overlay.py)

    def entry(self, key: Any) -> Entry | None:
        """The entry of a key that lies in the partition."""
        return self.shared.get(key)

    def private(self, key: Any) -> tuple[Any, int] | None:
        """(value, sizeof) of a key in private memory that may be worth sharing; None otherwise. Leaves the order alone."""
        if key not in self.fast or key in self._private:
            return None
        value = self.fast.d[key]
        nbytes = int(self.fast.weights[key])
        if nbytes < self.exchange.settings.min_size or not self.exchange.candidate(value):
            return None
        return value, nbytes

    def commit(self, key: Any, value: Any, entry: Entry | Kept) -> None:
        """The value of `private` was put into the store, or could not be; forgotten if the key went or changed meanwhile."""
        same = key in self.fast and self.fast.d[key] is value
        if not isinstance(entry, Entry):
            if same and entry is Kept.FOR_GOOD:
                self._private.add(key)
        elif same:
            del self.fast[key]
            self._enter(key, entry)
        else:
            self.exchange.drop(entry)

    def accept(self, key: Any, handle: Handle) -> Any:
        """What the worker is to store under the key for an adopted handle."""
        return handle

    def knows(self, value: Any) -> bool:
        """Whether a value is one of our mapped ones: a task returned its input, which `__setitem__` links."""
        return id(value) in self._key_of

    def shared_total(self) -> SpilledSize:
        """(sizeof the values in the partition, our share of its bytes)."""
        return SpilledSize(self._nbytes, self.exchange.pss() if self.shared else 0)

    # -- private

    def _receive(self, key: Any, handle: Handle) -> None:
        if not self.exchange.adopt(key, handle):
            raise OSError(f"the value of {key!r} could not be taken over from {handle.ticket.path!r}")
        entry = handle.take()
        self._forget(key)
        self._drop_private(key)
        self._enter(key, entry)

    def _enter(self, key: Any, entry: Entry) -> None:
        self.shared[key] = entry
        self._nbytes += entry.nbytes

    def _forget(self, key: Any) -> None:
        self._private.discard(key)
        entry = self.shared.pop(key, None)
        if entry is None:
            return
        self._nbytes -= entry.nbytes
        self._unmap(key, entry)
        self.exchange.drop(entry)

    def _drop_private(self, key: Any) -> None:
        if super().__contains__(key):
            super().__delitem__(key)

    def _value(self, key: Any, entry: Entry) -> Any:
        if entry.value is None:
            value = self.exchange.map(entry)
            entry.value = value
            self._mapped[key] = entry
            self._key_of[id(value)] = key
            while len(self._mapped) > self.exchange.settings.max_maps:
                self._unmap(*self._mapped.popitem(last=False))
        else:
            self._mapped.move_to_end(key)
        return entry.value

    def _unmap(self, key: Any, entry: Entry) -> None:
        self._mapped.pop(key, None)
        if entry.value is not None:
            self._key_of.pop(id(entry.value), None)
            entry.value = None

    def _alias(self, key: Any, value: Any) -> bool:
        """A task returned its input: a second name for the object, unless somebody wrote into it."""
        other = self._key_of.get(id(value))
        entry = self.shared.get(other) if other is not None else None
        if entry is None or entry.value is not value:
            return False
        return self._share_new(key, value, entry.nbytes)

    def _share_new(self, key: Any, value: Any, nbytes: int | None = None) -> bool:
        if key in self._private or not self.exchange.candidate(value):
            return False
        entry = self.exchange.put(key, value, nbytes)
        if not isinstance(entry, Entry):
            if entry is Kept.FOR_GOOD:
                self._private.add(key)
            return False
        self._enter(key, entry)
        return True
