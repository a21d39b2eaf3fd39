# SPDX-License-Identifier: Apache-2.0
"""One worker's (or client's) store as Dask needs it: values in, handles out, entries for what it holds.

An **entry** is one name in the store. It has one owner at a time: the data mapping, or a handle on its way there; who gives
it up calls `drop`. Only `map` raises for want of anything in the partition: what else cannot be done is noted and said.
Nothing here is global to the process, several workers may live in one. All may be called by any thread.
"""

from __future__ import annotations

import enum
import errno
import hashlib
import itertools
import os
import random
import threading
import time
from typing import Any

from dask.sizeof import sizeof

from .. import Partition, Store, dumps, loads
from .config import Settings
from .fallback import Fallbacks
from .handle import Handle
from .turn import Turn

_KEY_MAX = 3900  # bytes of a store's key, less room for a suffix
_LOOKERS = 8  # stores of a partition that look for dead siblings per sweep interval, about
_FULL_PAUSE = 1.0  # seconds after which a full partition is tried again
_NEVER_SHAREABLE = (str, int, float, complex, bool, type(None), type, range)
_counter = itertools.count()


class Kept(enum.Enum):
    """Why a value stays private."""

    FOR_NOW = 1  #: no room
    FOR_GOOD = 2  #: it has too little that can be shared


class Entry:
    """One object of the store: its name there, and the sizeof of its value in Dask's eyes."""

    __slots__ = ("name", "nbytes", "value", "handed")

    def __init__(self, name: str, nbytes: int, handed: bool) -> None:
        self.name = name
        self.nbytes = nbytes
        self.value: Any = None  #: the mapped value, where one is kept
        self.handed = handed  #: from hand to hand at least once


class Exchange:
    """A store with its settings. Raises Error (OSError) where it cannot be opened."""

    def __init__(self, settings: Settings, label: str, local_directory: str | None = None, recycle: bool = True) -> None:
        self.settings = settings
        self.fallbacks = Fallbacks(settings.log_interval)
        self.partition = Partition(settings.partition, create=True)
        name = f"{label}-{os.getpid()}-{next(_counter)}-{os.urandom(4).hex()}"
        directory = None
        if local_directory is not None:
            local = os.path.realpath(local_directory)
            if local.startswith(self.partition.path + os.sep):
                directory = os.path.join(local, "shmstore")
        self.store: Store = self.partition.open(
            name,
            label=label,
            directory=directory,
            recycle_max=settings.recycle if recycle else 0,
            daemon=settings.daemon,
        )
        self._lock = threading.RLock()  # reentrant: a handle may be collected while we hold it
        self._names: set[str] = set()
        self._full_until = 0.0
        self._n_stores = 0
        self._pss = (0.0, 0)  # valid until, bytes

    def close(self) -> None:
        """Removes the store; mapped values stay valid, tickets on their way too."""
        try:
            self.store.close()
        except OSError as e:  # what could not be removed is left to gc
            if e.errno not in (errno.ENOENT, errno.EBADF):
                self.fallbacks.note("close-failed", e)

    # -- peers

    def set_address(self, address: str) -> None:
        """Tells peers of this host how we are known."""
        self.fallbacks.who = address
        try:
            self.store.set_address(address)
        except (OSError, ValueError) as e:
            self.fallbacks.note("no-address", e, then="peers send values as on stock")

    def is_peer(self, address: str | None) -> bool:
        """Whether the worker of that address lives, shares this partition and may take our objects."""
        if not address or self.store.closed:
            return False
        try:
            return self.partition.find_peer(address) is not None
        except (OSError, ValueError):
            return False

    # -- values in

    def candidate(self, value: Any) -> bool:
        """Whether a value might have enough shareable bytes; cheap, errs on the side of yes."""
        if isinstance(value, _NEVER_SHAREABLE) or self.store.closed:
            return False
        dtype = getattr(value, "dtype", None)
        return not getattr(dtype, "hasobject", False)

    def put(self, key: Any, value: Any, nbytes: int | None = None, held: bool = False) -> Entry | Kept:
        """Copies a value into the store, once, or links it where it is one of ours.

        A value is shareable where min-size bytes and half of it are buffers outside of its pickle.
        held: tasks may be running on it.
        """
        try:
            header, buffers = dumps(value)
        except Exception as e:  # the user's own __reduce__ may raise anything; stock meets it where it matters
            self.fallbacks.note("no-pickle", e, key, "kept private")
            return Kept.FOR_GOOD
        size = sum(buffer.raw().nbytes for buffer in buffers)
        if size < self.settings.min_size or size < len(header):
            return Kept.FOR_GOOD
        if time.monotonic() < self._full_until:
            return Kept.FOR_NOW
        name = self._claim(key)
        try:
            with Turn(self.partition.path, size) as turn:
                self.store.put_buffers(name, header, buffers)
                if held:
                    turn.until_gone(value)
        except (OSError, ValueError, BufferError) as e:
            self._release(name)
            self._note_put(e, key)
            return Kept.FOR_NOW
        self.fallbacks.stored()
        return Entry(name, sizeof(value) if nbytes is None else nbytes, handed=False)

    def adopt(self, key: Any, handle: Handle) -> bool:
        """Takes the object of a handle into the store; the handle owns the entry from here on."""
        if handle.adopted:
            return True
        name = self._claim(key)
        try:
            self.store.adopt(name, handle.ticket)
        except (OSError, ValueError) as e:
            self._release(name)
            self.fallbacks.note("adopt-failed", e, key, "fetched as on stock")
            return False
        handle.attach(self, Entry(name, handle.nbytes, handed=True))
        return True

    # -- values out

    def handoff(self, key: Any, entry: Entry) -> Handle | None:
        """A handle for one receiver, None where the store gives none."""
        try:
            return Handle(self.store.handoff(entry.name, lease=self.settings.lease), entry.nbytes)
        except (OSError, ValueError, KeyError) as e:
            self.fallbacks.note("handoff-failed", e, key, "sent as on stock")
            return None

    def map(self, entry: Entry) -> Any:
        """The value, its buffers mapped. Raises Error or KeyError."""
        return loads(self.store.view(entry.name, cow=self.settings.cow))

    def drop(self, entry: Entry) -> None:
        """Gives a name up. Mapped values stay."""
        entry.value = None
        try:
            self.store.delete(entry.name)
        except (OSError, ValueError, KeyError):  # closed, or removed by who removed our directory
            pass
        self._release(entry.name)

    def asked(self) -> bool:
        """Whether the host daemon wants memory back."""
        try:
            return self.store.asked() > 0
        except (OSError, ValueError):
            return False

    def alone(self) -> dict[Any, int]:
        """Of the objects that nobody else links: name -> bytes that go back with it."""
        try:
            return {o.key: o.blocks for o in self.store.objects() if o.links == 1}
        except (OSError, ValueError):
            return {}

    # -- books

    def pss(self) -> int:
        """Our share of the memory that our objects take: blocks / links. Costs a stat per object, so not at every call."""
        now = time.monotonic()
        until, value = self._pss
        if now >= until and not self.store.closed:
            try:
                value = self.store.usage().pss
            except (OSError, ValueError):
                value = 0
            done = time.monotonic()
            self._pss = done + max(0.1, 20 * (done - now)), value
        return value

    def sweep(self) -> None:
        """Removes the stores of dead siblings, if there are any. Where there are many stores not each looks every time."""
        if random.random() * self._n_stores > _LOOKERS:
            return
        try:
            stores = list(self.partition.stores())
            self._n_stores = len(stores)
            if any(info.alive is False and not info.keep for info in stores):
                self.partition.gc()
        except (OSError, ValueError) as e:
            self.fallbacks.note("sweep-failed", e, then="left to gc")

    # -- names

    def _claim(self, key: Any) -> str:
        """A name in the store for a key: the key itself, unless it is too long or there is an older object of it."""
        text = key if isinstance(key, str) else str(key)
        if len(text.encode("utf-8", "surrogatepass")) > _KEY_MAX:
            text = text[:200] + "#" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        with self._lock:
            name = text
            while name in self._names:
                name = f"{text}~{next(_counter)}"
            self._names.add(name)
        return name

    def _release(self, name: str) -> None:
        with self._lock:
            self._names.discard(name)

    def _note_put(self, e: BaseException, key: Any) -> None:
        if getattr(e, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            self._full_until = time.monotonic() + _FULL_PAUSE
            self.fallbacks.full(e, key)
        else:
            self.fallbacks.note("put-failed", e, key, "kept private")
