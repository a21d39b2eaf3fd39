# SPDX-License-Identifier: Apache-2.0
"""Values that one process builds and all others map: `get_or_create`, and `Cache`.

Each entry is a kept store of its own with one object, written once: no process owns the cache, or
has to stay. The builder holds a store named after the key (`building-…`), not kept: its lock ends
with the process. A put into that store, or its owner's end, wakes the waiters: the next one builds.
A kill in between leaves an entry without a value, which the next builder takes over.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from ._shmstore import default_path
from .errors import ClosedError, Error
from .messages import warn
from .partition import Partition
from .store import Store

T = TypeVar("T")

_DIGEST = 16  # bytes of a key's hash, which ends an entry's name
_HANDLES = 64  # entries that a process has open at once
_TOUCH = 1.0  # seconds between two notes of an entry's use
_LOST = (errno.ENOENT, errno.ESTALE)
_VALUE, _DONE = "value", "done"


class _Entry(NamedTuple):
    """The content of an entry's object."""

    key: Hashable
    version: object
    built: float  # time.time()
    value: Any


class Cache:
    """A cache that all processes of the user on this host have in common, by its name. Any thread,
    and in forked children; pickles to its name.

    max_bytes  of all entries together; those that were not used for longest go first. None: as much
               as the partition has, and where that is full they go, too.
    ttl        seconds from when a value was built until it is built again. None: for ever.
    partition  its path; None: $SHMSTORE_PARTITION, else the default one. Made where it is missing.

    Keys are strings, bytes, numbers, None, and tuples of these. Values stay until they are deleted,
    replaced or evicted, also when no process is left; `clear` removes all. A value stays as long as
    somebody uses it, also when its entry is gone. Arrays are writable, copy-on-write.
    """

    def __init__(self, name: str, max_bytes: int | None = None, ttl: float | None = None,
                 partition: str | None = None) -> None:
        self.name, self.max_bytes, self.ttl = name, max_bytes, ttl
        self._path = partition or default_path()
        self._partition = Partition(self._path, create=True)
        self._prefix = f"cache-{name}-"
        self._lock = threading.Lock()
        _caches.add(self)
        self._handles: OrderedDict[str, Store] = OrderedDict()  # the one used last at the end
        self._touched: dict[str, float] = {}
        self._builds = threading.local()

    def get_or_create(self, key: Hashable, build: Callable[[], T], *, version: object = None,
                      timeout: float | None = None) -> T:
        """The value of key; where there is none, or one of another version, one process calls
        build, and all others wait for it.

        Raises what build raises, in the process that built: the next one tries. TimeoutError:
        another process builds for longer than timeout seconds. Where the partition has no room the
        value that was built is returned, and nobody else has it.
        """
        name = self._name(key)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            entry = self._find(name)
            if entry is not None and entry.version == version:
                return entry.value  # type: ignore[no-any-return]
            try:
                lock = self._partition.open("building-" + name)
            except Error as error:
                if error.errno != errno.EBUSY:
                    raise
                self._wait(key, name, end)
                continue
            with lock:
                entry = self._find(name)  # somebody was faster
                if entry is not None and entry.version == version:
                    return entry.value  # type: ignore[no-any-return]
                return self._build(lock, key, name, build, version)

    def _build(self, lock: Store, key: Hashable, name: str, build: Callable[[], T],
               version: object) -> T:
        building = self._builds.__dict__.setdefault("names", set())
        building.add(name)
        try:
            entry = _Entry(key, version, time.time(), build())
            try:
                self._put(name, entry)
            except Error as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                warn(self._path, error)
                return entry.value  # type: ignore[no-any-return]
            found = self._find(name)
            return entry.value if found is None else found.value  # type: ignore[no-any-return]
        finally:
            building.discard(name)
            with suppress(Error):
                lock[_DONE] = None  # wakes those who wait

    def _put(self, name: str, entry: _Entry) -> None:
        """Writes an entry, once there is room. A reader of the former value keeps it."""
        with self._partition.open(name, keep=True, label=f"cache {self.name}") as store:
            while True:
                try:
                    store.put(_VALUE, tuple(entry), replace=True)
                    break
                except Error as error:
                    if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._evict_one(name):
                        if _VALUE not in store:
                            store.close()
                            self._remove(name)
                        raise
        while (self.max_bytes is not None and sum(nbytes for _, nbytes, _ in self._entries()) >
               self.max_bytes):
            if not self._evict_one(name):
                break

    def _wait(self, key: object, name: str, end: float | None) -> None:
        """Until the process that builds is done, or dead."""
        if name in getattr(self._builds, "names", ()):
            raise RuntimeError(f"cache {self.name!r}: the function that builds {key!r} asks for "
                               f"{key!r}")
        left = 3600.0 if end is None else end - time.monotonic()
        try:
            with self._partition.open("building-" + name, readonly=True) as building:
                building.get(_DONE, timeout=max(left, 0))
        except Error as error:
            if error.errno not in _LOST:
                raise
        except TimeoutError:
            if end is not None:
                raise TimeoutError(f"cache {self.name!r}: another process builds {key!r} for "
                                   f"longer than the timeout") from None
        if end is not None and time.monotonic() > end:
            raise TimeoutError(f"cache {self.name!r}: {key!r} was not built in time")

    # -- entries

    def _name(self, key: object) -> str:
        return self._prefix + hashlib.blake2b(_encoded(key), digest_size=_DIGEST).hexdigest()

    def _find(self, name: str) -> _Entry | None:
        """The entry, if it has not expired."""
        try:
            found = self._handle(name).get(_VALUE, None, cow=True)
        except Error as error:
            if error.errno not in _LOST and not isinstance(error, ClosedError):
                raise
            found = None
        if found is None:
            self._forget(name)
            return None
        entry = _Entry(*found)
        if self.ttl is not None and not 0 <= time.time() - entry.built < self.ttl:
            return None
        if time.monotonic() - self._touched.get(name, 0) > _TOUCH:
            self._touched[name] = time.monotonic()
            with suppress(OSError):
                os.utime(os.path.join(self._path, "stores", name, ".store"))
        return entry

    def _handle(self, name: str) -> Store:
        with self._lock:
            handle = self._handles.pop(name, None)
            if handle is None:
                handle = self._partition.open(name, readonly=True)
            self._handles[name] = handle
            old = [self._handles.popitem(last=False)[1]
                   for _ in range(len(self._handles) - _HANDLES)]
        for store in old:
            store.close()
        return handle

    def _forget(self, name: str) -> None:
        with self._lock:
            handle = self._handles.pop(name, None)
            self._touched.pop(name, None)
        if handle is not None:
            handle.close()

    def _entries(self) -> list[tuple[float, int, str]]:
        """(time of the last use, bytes, name) of each, the one that was
        not used for longest first."""
        found = []
        for store in self._partition.stores():
            if (store.name.startswith(self._prefix) and len(store.name) == len(self._prefix) +
                2 * _DIGEST):
                with suppress(OSError):
                    used = os.stat(os.path.join(self._path, "stores", store.name,
                                                ".store")).st_mtime
                    found.append((used, store.counters.linked_bytes, store.name))
        return sorted(found)

    def _evict_one(self, but: str) -> bool:
        return any(self._remove(name) for _, _, name in self._entries() if name != but)

    def _remove(self, name: str) -> bool:
        """False: somebody writes it."""
        self._forget(name)
        try:
            self._partition.open(name, fresh=True).close()
        except Error as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    # -- as a mapping

    def __getitem__(self, key: Hashable) -> Any:
        entry = self._find(self._name(key))
        if entry is None:
            raise KeyError(key)
        return entry.value

    def get(self, key: Hashable, default: object = None, *, version: object = None) -> Any:
        """The value of key, if there is one of that version. Nobody is waited for."""
        entry = self._find(self._name(key))
        return default if entry is None or entry.version != version else entry.value

    def __contains__(self, key: object) -> bool:
        return self._find(self._name(key)) is not None

    def __delitem__(self, key: object) -> None:
        if not self.invalidate(key):
            raise KeyError(key)

    def invalidate(self, key: object) -> bool:
        """Removes the value of key: the next one who asks builds it. Whether there was one."""
        name = self._name(key)
        there = self._find(name) is not None
        if there:
            self._remove(name)
        return there

    def clear(self) -> None:
        """Removes all values."""
        for _, _, name in self._entries():
            self._remove(name)

    def __iter__(self) -> Iterator[Hashable]:
        entries = (self._find(name) for _, _, name in self._entries())
        return iter([entry.key for entry in entries if entry is not None])

    def __len__(self) -> int:
        return len(self._entries())

    @property
    def nbytes(self) -> int:
        """The memory of all values."""
        return sum(nbytes for _, nbytes, _ in self._entries())

    def __repr__(self) -> str:
        return f"<shmstore.Cache {self.name!r} in {self._path!r}>"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.name, self.max_bytes, self.ttl, self._path)


_caches: weakref.WeakSet[Cache] = weakref.WeakSet()


def _begin_in_child() -> None:
    for cache in _caches:  # another thread of the parent may have had it
        cache._lock = threading.Lock()


os.register_at_fork(after_in_child=_begin_in_child)


def _encoded(key: Hashable) -> bytes:
    """Equal keys, and no others, are equal bytes, in every process."""
    if isinstance(key, tuple):
        parts = [_encoded(item) for item in key]
        return b"t%d:" % len(parts) + b"".join(b"%d:" % len(part) + part for part in parts)
    if isinstance(key, str):
        return b"s" + key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b" + key
    if key is None:
        return b"-"
    if isinstance(key, (int, float, complex)):
        if (key == key and isinstance(key, (float, complex)) and key.imag == 0 and
            key.real.is_integer()):
            key = int(key.real)
        return b"n" + repr(int(key) if isinstance(key, int) else key).encode()
    raise TypeError(f"a cache's key is made of strings, bytes, numbers, None and tuples of these, "
                    f"not of a {type(key).__name__}")


_default: Cache | None = None


def get_or_create(key: Hashable, build: Callable[[], T], *, version: object = None,
                  timeout: float | None = None) -> T:
    """As `Cache.get_or_create` of the cache "shared" in the default partition."""
    global _default
    if _default is None:
        _default = Cache("shared")
    return _default.get_or_create(key, build, version=version, timeout=timeout)
