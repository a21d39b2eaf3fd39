# SPDX-License-Identifier: Apache-2.0
"""One worker's (or client's) store as Dask needs it: values in, handles
out, entries for what it holds.

An **entry** is one name in the store. It has one owner at a time: the data mapping, or a handle on
its way there; who gives it up calls `drop`. Only `map` raises for want of anything in the
partition: what else cannot be done is noted and said. Nothing here is global to the process,
several workers may live in one. All may be called by any thread.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import mmap
import os
import pickle
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dask.sizeof import sizeof
from distributed.sizeof import safe_sizeof
from tornado.ioloop import PeriodicCallback

from .. import Error, Partition, Store, dumps, loads
from ..foreign import OnDevice, on_device
from ..parts import address_of
from .config import Fallbacks, Guard, Settings, offload
from .handle import Handle
from .memory import Bound, Room, Siblings, Turns
from .values import Kept, Maps, Over, Pickled, has_own_way, pays, reads_back_equal, shareable

if TYPE_CHECKING:
    import asyncio

    from .compat.worker import Key

_KEY_MAX = 3900  # bytes of a store's key, less room for a suffix
_LOOKERS = 8  # stores of a partition that look for dead siblings per sweep interval, about
_FULL_PAUSE = 1.0  # seconds after which a full partition is tried again
# seconds for which it is known whether a worker is a peer: the look reads the
# partition's directory of peers
_PEER = 0.5
_PEERS_MAX = 1000
_BOOKS = 1.0  # seconds for which the books hold at least: they open each object
_ROOM_PATIENCE = 3.0  # seconds for which the disk tier may make room for a value
NEVER_SHAREABLE = (str, int, float, complex, bool, type(None), type, range)
_SIZEOF_ANY = sizeof.dispatch(object)
_ATTRIBUTES_MAX = 64  # of an instance that are looked at
_WHY_NOT = ("{} of {} bytes are in its pickle, as Python objects (strings) and types that pickle "
            "without buffers are")
_FULL = "the partition had no room just then"
HAS_NO_MEMORY = "it is text or a number, lies on a device, or has serializers of its own"
MADE = "shmstore:made"  # the kind of what `Exchange.make` made
_GONE = (errno.ENOENT, errno.ESTALE, errno.EBADF, errno.EPERM)  # the store; or this is a fork
_counter = itertools.count()


class Books(NamedTuple):
    """Of an object that n stores link each counts a part in n."""

    memory: int  #: bytes in the partition
    tier: int  #: bytes, as they are in memory, of what lies in its disk tier


@dataclass(eq=False, repr=False, slots=True)
class Entry:
    """One object of the store: its name there, and the sizeof of its value in Dask's eyes."""

    name: str
    nbytes: int
    kind: str  #: the type of its value, "module:name"
    pickled: int  #: bytes of its pickle, without buffers: reading them takes its time
    handed: bool  #: from hand to hand at least once
    over: Over | None = None  #: what of the object its value is, where that is not the object's own
    value: object = None  #: the mapped value, where one is kept
    coming: asyncio.Future[None] | None = None  #: while it is being mapped for them
    unpickled: int = 0  #: bytes of private memory that the mapped value takes beside its buffers
    copied: bool = False  #: the value is no map, but what was in private memory before
    address: int = 0  #: in the map, where that is copy-on-write
    dropped: bool = False  #: the name is given up
    aside: bool = False  #: the mapped value is mapped where it lies on disk
    original: object = None  #: its maker's own value, where one that is read back may differ


def _kind_of(value: object) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _identity(partition: str) -> str:
    """The same for all who can be peers, and for nobody else: this user's processes on this tmpfs
    of this boot of the kernel."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    status = os.stat(partition)
    return f"{boot}:{status.st_dev:x}:{status.st_ino:x}:{os.geteuid()}"


class Exchange:
    """A store with its settings. Raises Error (OSError) where it cannot be opened."""

    def __init__(self, settings: Settings, label: str, local_directory: str | None = None
                 ) -> None:
        self.settings = settings
        self.label = label
        self.fallbacks = Fallbacks(settings.log_interval)
        self.guard = Guard(self.fallbacks)
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
            recycle_max=0,  # files kept for the next values are memory
            daemon=settings.daemon,
            pack_max=0,  # of a packed object a copy-on-write map is a copy, which a file's is not
        )
        self.turns = Turns(self.partition.path)
        self._huge = pays(self.partition)
        self._lock = threading.RLock()  # reentrant: a handle may be collected while we hold it
        self._names: set[str] = set()
        self.identity = _identity(self.partition.path)
        self._full_until = 0.0
        self._n_stores = 0
        self.seen = Siblings([os.getpid()], 0)  #: when last looked
        self._books = (0.0, Books(0, 0))  # valid until
        self.maps = Maps()
        self._peers: dict[str, tuple[float, bool]] = {}  # by address: valid until, the answer
        #: function(*args) in a thread, of a worker whose objects may lie in a disk tier
        self.later: Callable[..., object] | None = None
        self.room: Room | None = None  #: a worker's

    def close(self) -> None:
        """Removes the store; mapped values stay valid, tickets on their way too."""
        self.room = self.later = None  # which know us
        try:
            self.store.close()
        except OSError as e:  # gc removes the rest
            if e.errno not in (errno.ENOENT, errno.EBADF):
                self.fallbacks.note("close-failed", e)
        self.partition.close()

    def bound(self, budget: int) -> None:
        """The partition is bound by memory from here on, too. budget: bytes that the
        worker may keep privately."""
        self.room = Room(budget, self.settings.most, self.siblings)

    # -- peers

    def set_address(self, address: str) -> None:
        """Tells peers of this host how we are known."""
        self.fallbacks.who = address
        try:
            self.store.set_address(address)
        except (OSError, ValueError) as e:
            self.fallbacks.note("no-address", e, then="peers send values as on stock")

    def is_peer(self, address: str | None) -> bool:
        """Whether the worker of that address lives, shares this partition
        and may take our objects."""
        if not address or self.store.closed:
            return False
        now = time.monotonic()
        until, peer = self._peers.get(address, (0.0, False))
        if now >= until:
            try:
                peer = self.partition.find_peer(address) is not None
            except (OSError, ValueError):
                peer = False
            if len(self._peers) >= _PEERS_MAX:
                self._peers.clear()
            self._peers[address] = now + _PEER, peer
        return peer

    # -- values in

    def candidate(self, value: object) -> bool:
        """Whether a value might have enough shareable bytes; cheap, errs on the side of yes."""
        if isinstance(value, NEVER_SHAREABLE) or self.store.closed:
            return False
        try:
            if getattr(getattr(value, "dtype", None), "hasobject", False):
                if getattr(value, "nbytes", 0) >= self.settings.min_size:
                    self.fallbacks.unshared(type(value), "its elements are Python objects, which "
                                                         "have no memory to share")
                return False
            return not on_device(value) and not has_own_way(type(value))
        except Exception as e:  # a user's property
            self.guard.failed("candidate", e)
            return False

    def weigh(self, value: object, nbytes: int) -> int:
        """sizeof a value, or of what an instance of a user's class refers to: Dask
        takes that for a few bytes."""
        if nbytes >= self.settings.min_size or isinstance(value, NEVER_SHAREABLE):
            return nbytes
        try:
            if sizeof.dispatch(type(value)) is not _SIZEOF_ANY:
                return nbytes
            return (nbytes + sum(safe_sizeof(attribute)
                                 for attribute in list(vars(value).values())[:_ATTRIBUTES_MAX]))
        except Exception:  # it has none
            return nbytes

    def put(
        self, key: Key, value: object, nbytes: int | None = None, held: bool = False,
        wait: bool = True, again: bool = False
    ) -> Entry | Kept | Pickled:
        """Copies a value into the store, once, or links it where it is one of ours.

        held: tasks may be running on it. wait: in a full partition others may be moved to the disk
        tier first; not on an event loop.
        again: where there is no room it is tried once more, with wait: nothing is said of it yet.
        """
        if (entry := self.guard.call("link", self.link, key, value, nbytes, key=key)) is not None:
            return entry
        seen: set[type] = set()
        try:
            header, buffers = dumps(value, as_is=True, seen=seen)
        except OnDevice:  # Dask has ways of its own for these
            return Kept.FOR_GOOD
        except Exception as e:
            # the user's own __reduce__ may raise anything; stock meets it where it matters
            self.fallbacks.note("no-pickle", e, key, "kept private")
            self.fallbacks.kept(nbytes or 0, type(value), "it has no pickle")
            return Kept.FOR_GOOD
        if any(map(has_own_way, seen)):
            self.fallbacks.kept(nbytes or 0, type(value), "a part of it has serializers of its own")
            return Kept.FOR_GOOD
        raw = [buffer.raw() for buffer in buffers]
        size = sum(buffer.nbytes for buffer in raw)
        if not shareable(header, size, self.settings):
            if len(header) >= self.settings.min_size:
                self.fallbacks.unshared(type(value),
                                        _WHY_NOT.format(len(header), len(header) + size))
                self.fallbacks.kept(len(header) + size, type(value))
            return Pickled(header, raw)
        if time.monotonic() < self._full_until:
            self.fallbacks.kept(size, why=_FULL)
            return Kept.FOR_NOW
        if not self.fits(size, wait):
            if not again:
                self._note_put(OSError(errno.ENOSPC, "more would be more than memory limits allow",
                                       self.partition.path), key, size)
            return Kept.FOR_NOW
        name = self._claim(key)
        try:
            with self.turns.turn(size, wait) as until_gone:
                self._store(name, header, buffers, wait)
                if held:
                    until_gone(value)
        except (OSError, ValueError, BufferError) as e:
            self._release(name)
            if not again:
                self._note_put(e, key, size)
            return Kept.FOR_NOW
        self.fallbacks.stored(type(value))
        entry = Entry(name, sizeof(value) if nbytes is None else nbytes, _kind_of(value),
                      len(header), handed=False)
        entry.original = None if reads_back_equal(seen) else value
        return entry

    def make(self, key: Key, value: object, nbytes: int,
             write: Callable[[memoryview], None]) -> Entry | None:
        """An object that reads back as (value, so many bytes as a memoryview), which write(memory)
        fills where they are to lie. None: no room."""
        header = pickle.dumps((value, pickle.PickleBuffer(bytearray(1))), protocol=5,
                              buffer_callback=lambda _: None)
        name = self._claim(key)
        try:
            if self._huge:
                with self.store.create(name, len(header), [nbytes]) as writer:
                    with writer.header as room:
                        room[:] = header
                    with writer.buffers[0] as memory:
                        write(memory)
            else:
                with mmap.mmap(-1, nbytes) as private:
                    with memoryview(private) as memory:
                        write(memory)
                    self.store.put_buffers(name, header, [private])
        except (OSError, ValueError, BufferError) as e:
            self._release(name)
            self._note_put(e, key, nbytes)
            return None
        except BaseException:
            self._release(name)
            raise
        return Entry(name, nbytes, MADE, len(header), handed=False)

    def link(self, key: Key, value: object, nbytes: int | None = None) -> Entry | None:
        """An entry of a value that is nothing but parts of what is mapped already: a second name of
        the object; None where it is not.

        Nothing is copied, and no value is looked into but arrays and plain containers of them.
        """
        if self.store.closed or (found := self.maps.find(value)) is None:
            return None
        shown, over = found
        base = next((entry for entry in shown.entries if not entry.dropped), None)
        if over.nbytes < self.settings.min_size or base is None:
            return None
        name = self._claim(key)
        try:
            self.store.adopt(name, self.store.handoff(base.name, lease=self.settings.lease,
                                                      as_is=True))
        except (OSError, ValueError, KeyError):  # given up meanwhile: it is copied
            self._release(name)
            return None
        nbytes = sizeof(value) if nbytes is None else nbytes
        entry = Entry(name, nbytes, _kind_of(value), len(over.header), handed=False, over=over)
        shown.entries[:] = [*(other for other in shown.entries if not other.dropped), entry]
        return entry

    def adopt(self, key: Key, handle: Handle, again: bool = False) -> bool:
        """Takes the object of a handle into the store; the handle owns the entry from here on.
        again: it is tried once more, nothing is said yet."""
        if handle.adopted:
            return True
        name = self._claim(key)
        try:
            self.store.adopt(name, handle.ticket)
        except (OSError, ValueError) as e:
            self._release(name)
            if not again:
                self.fallbacks.note("adopt-failed", e, key, "fetched as on stock")
            return False
        pickled = handle.ticket.header_size if handle.over is None else len(handle.over.header)
        handle.attach(self, Entry(name, handle.nbytes, handle.kind, pickled, handed=True,
                                  over=handle.over))
        return True

    def adopt_all(self, data: dict[Key, object]) -> None:
        """Takes over handles among values that came in, in a thread. Users retry failed ones."""
        for key, value in list(data.items()):
            if isinstance(value, Handle):
                self.adopt(key, value, again=True)

    # -- values out

    def handoff(self, key: Key, entry: Entry) -> Handle | None:
        """A handle for one receiver, None where the store gives none."""
        try:
            ticket = self.store.handoff(entry.name, lease=self.settings.lease, as_is=True)
            return Handle(ticket, entry.nbytes, entry.kind, entry.over)
        except (OSError, ValueError, KeyError) as e:
            self.fallbacks.note("handoff-failed", e, key, "sent as on stock")
            return None

    def map(self, entry: Entry) -> object:
        """The value, its buffers mapped; brought back from the disk tier where it lies there.
        Raises Error or KeyError."""
        return self._load(entry, self.store)

    def map_aside(self, entry: Entry) -> object:
        """The value of an entry that lies in the disk tier, without a place in the partition: a
        copy, where it cannot be mapped on disk."""
        with self.partition.open(self.store.name, readonly=True,
                                 directory=self.store.path) as reader:
            return self._load(entry, reader)

    def drop(self, entry: Entry) -> None:
        """Gives a name up, with a disk tier in a thread: deleting a large object takes its time.
        Mapped values stay."""
        if self.later is None:
            self.delete(entry)
        else:
            self.later(self.delete, entry)

    def delete(self, entry: Entry) -> None:
        """Gives a name up, here and now."""
        entry.value = None
        entry.dropped = True
        try:
            self.store.delete(entry.name)
        except (ValueError, KeyError):  # closed, or removed by who removed our directory
            pass
        except OSError as e:
            if e.errno not in _GONE:
                self.fallbacks.note("delete-failed", e, entry.name, "its memory stays in use")
        self._release(entry.name)

    def asked(self) -> bool:
        """Whether the host daemon wants memory back."""
        try:
            return self.store.asked() > 0
        except (OSError, ValueError):
            return False

    def alone(self) -> dict[str | bytes, int]:
        """Of the objects that nobody else links: name -> bytes that go back with it."""
        try:
            return {o.key: o.blocks for o in self.store.objects() if o.links == 1 and not o.demoted}
        except (OSError, ValueError):
            return {}

    def demote(self, names: list[str], nbytes: int) -> int:
        """Moves objects that nobody else links to the disk tier, the first ones first, until nbytes
        are given back. Bytes that were."""
        alone = self.alone()
        given = 0
        for name in names:
            if given >= nbytes:
                break
            if name not in alone:
                continue
            try:
                self.store.demote(name)
            except KeyError:
                continue
            except (OSError, ValueError) as e:
                self.fallbacks.note("evict-failed", e, name, "stays in the partition")
                if getattr(e, "errno", None) == errno.ENOSPC:
                    break
                continue
            given += alone[name]
        return given

    # -- books

    def books(self) -> Books:
        """Our share of our objects' memory. With a disk tier: as `look` saw it last."""
        if self.later is None:
            self.look()
        return self._books[1]

    def space(self) -> Bound:
        """The tightest bound of the partition now."""
        return max(self.bounds(), key=lambda bound: bound.used / bound.size)

    def bounds(self, limits: bool = True) -> list[Bound]:
        """All that bounds the partition (limits: see `Room.bounds`), its file system first. One
        system call, for the most part."""
        usage = os.statvfs(self.partition.path)
        used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
        size = usage.f_blocks * usage.f_frsize or sys.maxsize  # a file system without a limit
        return [Bound(size, used), *(() if self.room is None else self.room.bounds(used, limits))]

    def fits(self, nbytes: int, wait: bool) -> bool:
        """Whether the partition may have so many bytes more; its file system says so itself. wait:
        others may be moved to the disk tier for them."""
        over = max((bound.used + nbytes - bound.size for bound in self.bounds()[1:]), default=0)
        if over <= 0:
            return True
        if not wait or self.later is None:
            return False
        try:
            return self.partition.evict(bytes=over, wait=True).done
        except (OSError, ValueError):  # all is in use, or the disk is full
            return False

    def host(self) -> dict[str, object]:
        """Tells a scheduler which workers are one host, and how full that is. In bytes."""
        size, used = self.space()
        return {
            "partition": self.identity,
            "size": size,
            "used": used,
            "min-size": self.settings.min_size,
            "private-types": self.fallbacks.private_types(),
            "not-shared": self.fallbacks.not_shared(),
        }

    def look(self) -> None:
        """Brings the books up to date. Looks at each object, so not at every call."""
        now = time.monotonic()
        if now < self._books[0] or self.store.closed:
            return
        memory = tier = 0
        try:
            for o in self.store.objects():
                if o.demoted:
                    tier += (o.header_size + o.buffer_size) // max(1, o.links)
                else:
                    memory += o.blocks // max(1, o.links)
        except (OSError, ValueError):  # as they were
            memory, tier = self._books[1]
        done = time.monotonic()
        self._books = done + max(_BOOKS, 20 * (done - now)), Books(memory, tier)

    def siblings(self) -> Siblings:
        """The processes of the live stores of our kind, ours among them, and what all other stores
        have. Reads a page of each."""
        pids, others = [], 0
        try:
            for info in self.partition.stores():
                if info.label != self.label:
                    others += info.counters.linked_bytes + info.counters.pool_bytes
                elif info.alive is True:
                    pids.append(info.pid)
        except (OSError, ValueError):  # as they were: what nobody may have, all would have to leave
            return self.seen
        self.seen = Siblings(pids or [os.getpid()], others)
        return self.seen

    def sweep(self) -> None:
        """Removes the stores of dead siblings, if there are any. Where there are many stores
        not each looks every time."""
        if random.random() * self._n_stores > _LOOKERS:
            return
        try:
            stores = self.partition.stores()
            self._n_stores = len(stores)
            if any(info.alive is False and not info.keep for info in stores):
                self.partition.gc()
        except (OSError, ValueError) as e:
            self.fallbacks.note("sweep-failed", e, then="left to gc")

    # -- private

    def _load(self, entry: Entry, store: Store) -> object:
        view = store.view(entry.name, cow=self.settings.cow)
        if view.cow and view.nbytes:
            entry.address = address_of(max(view.buffers, key=lambda buffer: buffer.nbytes))
        if store is self.store:
            self.maps.add(entry, view)
        shown = view if entry.over is None else entry.over
        entry.unpickled = max(0, entry.nbytes - shown.nbytes)
        return loads(view) if entry.over is None else entry.over.load(view)

    def _store(self, name: str, header: bytes, buffers: list[pickle.PickleBuffer],
               wait: bool) -> None:
        """put_buffers. Gives the disk tier a moment to make room: others let go of maps."""
        patience = time.monotonic() + (_ROOM_PATIENCE if wait and self.later else 0)
        pause = 0.01
        while True:
            try:
                return self.store.put_buffers(name, header, buffers, evict=wait)
            except Error as e:
                if e.errno != errno.ENOSPC or e.filename or time.monotonic() >= patience:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, 0.2)

    def _claim(self, key: Key) -> str:
        """A name in the store for a key: the key itself, unless it is too long or there
        is an older object of it."""
        text = key if isinstance(key, str) else str(key)
        if len(text.encode("utf-8", "surrogatepass")) > _KEY_MAX:
            text = (text[:200] + "#" + hashlib.sha256(
                text.encode("utf-8", "surrogatepass")).hexdigest())
        with self._lock:
            name = text
            while name in self._names:
                name = f"{text}~{next(_counter)}"
            self._names.add(name)
        return name

    def _release(self, name: str) -> None:
        with self._lock:
            self._names.discard(name)

    def _note_put(self, e: BaseException, key: Key, nbytes: int) -> None:
        full = getattr(e, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        self.fallbacks.kept(nbytes, why=_FULL if full else "the put failed: see the worker's log")
        if full:
            self._full_until = time.monotonic() + _FULL_PAUSE
            self.fallbacks.note("partition-full", e, key,
                                "values stay private until there is room again")
        else:
            self.fallbacks.note("put-failed", e, key, "kept private")


def sweeping(exchange: Exchange) -> PeriodicCallback:
    """Removes the stores of dead siblings, as often as configured; does not keep the exchange."""
    reference = weakref.ref(exchange)

    async def sweep() -> None:
        exchange = reference()
        if exchange is not None:
            await offload(exchange.sweep)

    return PeriodicCallback(sweep, exchange.settings.sweep_interval * 1000)
