# SPDX-License-Identifier: Apache-2.0
"""Sharing beside a plain dict: a worker's data where its user has turned spilling off.

There is no mapping of ours to see keys come and go. So a value stays in the dict as the mapped
value that it is, and its entry is known by the identity of that value and goes with it, by a weak
reference. A value without weak references (a list of arrays) is not shared.

`SharedBuffer` and `DictResidence` both are a **residence**: where a worker's values live, as a hand-off needs it
(`entry`, `private`, `commit`, `accept`, `knows`, `shared_total`).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from distributed.sizeof import safe_sizeof

from ..pickling import in_view
from .compat.worker import SpilledSize
from .exchange import Entry, Exchange, Kept, Pickled
from .handle import Handle

_ITEMS_MAX = 1000  # of a container that are looked at


class DictResidence:
    """The residence of a worker whose data is a plain dict."""

    def __init__(self, exchange: Exchange, data: MutableMapping[Any, Any]) -> None:
        self.exchange = exchange
        self.data = data
        self._entries: dict[int, Entry] = {}  # by id of the mapped value, which lives as long as its entry
        self._nbytes = 0  # sizeof of those values
        self._private: set[int] = set()  # ids of live values found not to be shareable

    def entry(self, key: Any) -> Entry | None:
        return self._entries.get(id(self.data[key])) if key in self.data else None

    def private(self, key: Any) -> tuple[Any, int] | None:
        value = self.data.get(key)
        if id(value) in self._entries or id(value) in self._private or not self.exchange.candidate(value):
            return None
        nbytes = safe_sizeof(value)
        if self.exchange.weigh(value, nbytes) < self.exchange.settings.min_size or not _takes_weak_reference(value):
            return None
        return value, nbytes

    def unshareable(self, key: Any, value: Any) -> None:
        if id(value) not in self._private and _takes_weak_reference(value):
            self._private.add(id(value))
            weakref.finalize(value, self._private.discard, id(value)).atexit = False

    def commit(self, key: Any, value: Any, entry: Entry | Kept | Pickled, rid: bool = False) -> None:
        if not isinstance(entry, Entry):
            if entry is not Kept.FOR_NOW:
                self.unshareable(key, value)
        elif self.data.get(key) is not value:
            self.exchange.drop(entry)
        else:
            try:
                self.data[key] = self._mapped(entry)
            except Exception as e:
                self.exchange.fallbacks.note("map-failed", e, key, "kept private")
                self.exchange.drop(entry)

    @asynccontextmanager
    async def held_while(self, keys: Any) -> AsyncIterator[None]:
        """Values stay as long as they are in the dict."""
        yield

    def accept(self, key: Any, handle: Handle) -> Any:
        """The mapped value. If `Exchange.map` raises, the handle keeps the entry."""
        value = handle.entry.original if handle.entry.original is not None else self.exchange.map(handle.entry)
        entry = handle.take()
        if _takes_weak_reference(value):
            self._keep(value, entry)
        else:  # the map alone keeps it
            self.exchange.drop(entry)
        return value

    def knows(self, value: Any) -> bool:
        """Whether a value is one of our mapped ones: a task returned its input."""
        return id(value) in self._entries

    def shared_total(self) -> SpilledSize:
        return SpilledSize(self._nbytes, sum(self.exchange.books()) if self._entries else 0)

    def _mapped(self, entry: Entry) -> Any:
        value = entry.original if entry.original is not None else self.exchange.map(entry)
        self._keep(value, entry)
        return value

    def _keep(self, value: Any, entry: Entry) -> None:
        entry.original = None  # the value goes when nobody else has it
        weakref.finalize(value, self._gone, id(value), entry).atexit = False
        self._entries[id(value)] = entry
        self._nbytes += entry.nbytes

    def _gone(self, identity: int, entry: Entry) -> None:
        self._entries.pop(identity, None)
        self._nbytes -= entry.nbytes
        self.exchange.drop(entry)


def own_small_arrays(value: Any, min_size: int, depth: int = 3) -> Any:
    """A small array over a mapped object, copied, also in lists, tuples and dicts: else a few bytes would keep a whole object in memory."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return value
    if type(value) in (list, tuple, dict) and depth and len(value) <= _ITEMS_MAX:
        items = value.values() if type(value) is dict else value
        owned = [own_small_arrays(item, min_size, depth - 1) for item in items]
        if all(new is old for new, old in zip(owned, items)):
            return value
        return dict(zip(value, owned)) if type(value) is dict else type(value)(owned)
    if type(value) is not numpy.ndarray or value.nbytes >= min_size or value.base is None:
        return value
    return value.copy() if in_view(value) else value


def _takes_weak_reference(value: Any) -> bool:
    try:
        weakref.ref(value)
    except TypeError:
        return False
    return True
