# SPDX-License-Identifier: Apache-2.0
"""Messages between the processes of one job: the pickle of a value, and its large buffers as one
object that the receiver adopts by a ticket.

Each process of the job has a store for what it sends and what it was sent, opened with the first
message. A message's object has no name but its ticket once it is sent; the receiver's view of it
pins it, and it goes with the last array over that. The job ends with the process that began it,
its root: tickets that nobody took are over then (`leases_with`), so that the next gc or open
frees them whoever was killed. Until then a ticket of a sender that has ended, or was killed, is
good, as bytes in a pipe would be.

A buffer that lies in a message's view goes on as a link to its object. The same array sent
several times in a short while is one object. Where there is no room, or no partition, the value
travels in the pickle, and a warning says so once for the process. A message leaves room for the
stores of those that are to read it.
"""

from __future__ import annotations

import contextlib
import copyreg
import ctypes
import errno
import functools
import io
import itertools
import math
import os
import pickle
import secrets
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from multiprocessing import process, util
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, NamedTuple

from . import pickling
from ._shmstore import View, default_path
from .errors import Error
from .parts import Part, address, parts_of, unwritten
from .partition import Partition
from .store import Store
from .ticket import Ticket

if TYPE_CHECKING:
    from .foreign import Reducer

MIN_SIZE = 64 << 10  # bytes of a value from which on it travels by handoff

_FEW = 12  # items of a tuple that is looked at
_ASIDE_MIN = 4 << 10  # bytes of a buffer; smaller ones stay in the pickle
_HANDS_OVER = b"multiprocessing"  # is in the pickle of whatever hands over a descriptor
# seconds: as long as a message may wait for its receiver; it ends with the job in any case
_LEASE = 86400.0
_PART_MIN = 2  # of an object whose link is sent, one part in so many is shown at least
_REFUSED = 10.0  # seconds in which a partition that could not be opened is not tried again
_SPARE = 1 << 20  # bytes of the partition that a message leaves, where no disk tier makes room
_ALONE = 1 << 20  # bytes from which on a buffer has an object of its own, and may be sent again
_AGAIN = 1.0  # seconds in which an array is sent again as the same object, which nobody has
_AGAIN_SHARE = 16  # of a partition, one part in so many may be kept so
_EXIT_LAST = -100  # of multiprocessing's finalizers: after its children were joined


class Way(NamedTuple):
    """How values travel."""

    partition: str | None = None  #: its path; None: the default one
    min_size: int = MIN_SIZE
    #: the store of the process that began the job; None: this one does,
    # unless it is told of another
    root: str | None = None
    #: what only the main program has goes along, by cloudpickle: for
    # receivers that do not import it
    by_value: bool = False
    #: arrays of `_ALONE` bytes and more do not change until `forget`: what was sent is sent again
    fixed: bool = False


class Where(NamedTuple):
    """In which partition a job's messages lie, and the store of the process that began it."""

    partition: str
    root: str


class _Map(NamedTuple):
    """A view of a message that came."""

    view: weakref.ref[View]
    key: str
    starts: tuple[int, ...]  # of its buffers
    sizes: tuple[int, ...]


class _Sent(NamedTuple):
    """An object of ours that may be sent once more."""

    key: str
    nbytes: int
    grace: float  # seconds for which it is kept, though no receiver has it
    until: float  # of time.monotonic(): it is looked who has it, then
    arrays: tuple[weakref.ref[object], ...]  # with any of them it goes
    view: View | None = None  # once it was compared


class Mailbox:
    """This process's store for the messages of a job. Any thread; a forked child has one
    of its own, of the same job.

    Raises Error where its partition cannot be opened, or holds something else.
    """

    def __init__(self, partition: str, root: str | None = None) -> None:
        name = f"job-{os.getpid()}-{secrets.token_hex(4)}"
        self.where = Where(partition, root or name)
        self.partition = Partition(partition, create=root is None)
        if root is not None and not os.path.exists(os.path.join(partition, "stores", root)):
            raise Error(errno.ESTALE, f"{partition} has no store {root}: the process that began "
                                      f"the job has ended, or sees another directory there")
        self.store: Store = self.partition.open(
            name, label=f"{self.where.root} of {os.path.basename(sys.argv[0] or 'python')}"[:100],
            pack_max=0, leases_with=self.where.root)  # each receiver would copy a packed object
        self._pid = os.getpid()
        self._keys = map(str, itertools.count())
        self._lock = threading.RLock()  # a callback may come in the middle
        self._maps: dict[int, _Map] = {}  # by id of the view
        self._sent: dict[object, _Sent] = {}
        self._sent_bytes, self._due = 0, math.inf  # when the first of them is over
        self._has_tier = os.path.exists(os.path.join(partition, "tier", "config"))
        self._again_max = self.partition.info().bytes_size // _AGAIN_SHARE
        # Not at exit: children that are joined there may still read.
        util.Finalize(None, self.close, exitpriority=_EXIT_LAST)

    def close(self) -> None:
        """Removes the store; tickets of a process that is not the root stay good."""
        if self._pid != os.getpid():
            return
        with contextlib.suppress(Error):
            self.store.close()
            if self.store.name == self.where.root:
                self.partition.gc()  # tickets of those that ended before

    # -- sending

    def send(self, buffers: list[memoryview], fixed: bool = False) -> tuple[
            list[tuple[str, int, int]], list[tuple[int, int, int, int]]]:
        """Tickets for the objects that the buffers are in, and where each is: the number of its
        ticket, and the `Part`. Raises Error."""
        places = [(address(buffer), buffer.nbytes) for buffer in buffers]
        links = self._links(places)
        keys = list(dict.fromkeys(key for key, _, _ in links.values()))
        tickets: list[tuple[str, int, int]] = [
            tuple(self.store.handoff(key, lease=_LEASE)) for key in keys]  # type: ignore[misc]
        layout = {i: (keys.index(key), *part) for i, (key, part, _) in links.items()}
        rest = [i for i in range(len(buffers)) if i not in links]
        alone = [[i] for i in rest if buffers[i].nbytes >= _ALONE]
        together = [i for i in rest if buffers[i].nbytes < _ALONE]
        self._expire()
        try:
            for group in [*alone, together] if together else alone:
                layout.update((i, (len(tickets), n, 0, buffers[i].nbytes))
                              for n, i in enumerate(group))
                ticket = self._put([buffers[i] for i in group], [places[i] for i in group],
                                   fixed and group is not together)
                tickets.append(tuple(ticket))  # type: ignore[arg-type]
        except BaseException:
            with contextlib.suppress(KeyError, Error):  # what failed first is said
                for unread in tickets:
                    self.store.adopt(key := next(self._keys), Ticket(*unread))
                    self.store.delete(key)
            raise
        return tickets, [layout[i] for i in range(len(buffers))]

    def _links(self, places: Sequence[tuple[int, int]]) -> dict[int, tuple[str, Part, View]]:
        """Places that lie unchanged in received messages. Keep the views until links are sent."""
        links: dict[int, tuple[str, Part, View]] = {}
        with self._lock:
            maps = list(self._maps.values())
        for found in maps:
            view = found.view()
            if view is None:
                continue
            inside = {i: part[0] for i, place in enumerate(places)
                      if (part := parts_of(found.starts, found.sizes, [place]))}
            shown = sum(part.nbytes for part in inside.values())
            if (inside and shown * _PART_MIN >= sum(found.sizes) and
                (not view.cow or unwritten([places[i] for i in inside]))):
                links.update((i, (found.key, part, view)) for i, part in inside.items())
        return links

    def _put(self, buffers: list[memoryview], places: list[tuple[int, int]], fixed: bool) -> Ticket:
        mark = tuple(places) if all(begin for begin, _ in places) else None
        if mark and (sent := self._sent.get(mark)) and (fixed or self._same(mark, sent, places)):
            with contextlib.suppress(KeyError):
                return self.store.handoff(sent.key, lease=_LEASE)
        key, nbytes = next(self._keys), sum(buffer.nbytes for buffer in buffers)
        if not self._leaves_room(nbytes):
            self.forget()
            if not self._leaves_room(nbytes):
                raise Error(errno.ENOSPC, f"the partition {self.where.partition} has no room for "
                                          f"{nbytes} bytes, and for who reads them")
        try:
            self.store.put_buffers(key, b"", buffers, evict=False)
        except Error:
            self.forget()
            self.store.put_buffers(key, b"", buffers)
        ticket = self.store.handoff(key, lease=_LEASE)
        if not (mark and self._remember(mark, key, nbytes, buffers)):
            self.store.delete(key)
        return ticket

    def _leaves_room(self, nbytes: int) -> bool:
        fs = os.statvfs(self.where.partition)
        return self._has_tier or fs.f_bavail * fs.f_frsize >= nbytes + _SPARE

    def _remember(self, mark: object, key: str, nbytes: int, buffers: list[memoryview]) -> bool:
        gone = lambda _: self._drop(mark, key)  # noqa: E731
        try:
            arrays = tuple(weakref.ref(_base(buffer), gone) for buffer in buffers)
        except TypeError:  # bytes, which are seldom sent twice
            return False
        with self._lock:
            self._drop(mark)
            grace = _AGAIN if self._sent_bytes + nbytes <= self._again_max else _AGAIN / 20
            until = time.monotonic() + grace
            self._sent[mark] = _Sent(key, nbytes, grace, until, arrays)
            self._sent_bytes += nbytes
            self._due = min(self._due, until)
        return True

    def _expire(self) -> None:
        """Drops objects whose time is over, but for those that receivers still have: these take no
        memory of their own."""
        now = time.monotonic()
        if now < self._due:
            return
        with self._lock:
            for mark, sent in list(self._sent.items()):
                if sent.until < now and self._is_held(sent.key):
                    self._sent[mark] = sent._replace(until=now + sent.grace)
                elif sent.until < now:
                    self._drop(mark)
            self._due = min((sent.until for sent in self._sent.values()), default=math.inf)

    def _is_held(self, key: str) -> bool:
        """Whether a store or a lease has the file of that object, too."""
        with contextlib.suppress(OSError):  # it is no file
            return os.stat(os.path.join(self.store.path, "objects", key)).st_nlink > 1
        return False

    def _drop(self, mark: object, key: str | None = None) -> None:
        """The object of that mark is not sent again; key: only if it is that one."""
        with self._lock:
            sent = self._sent.get(mark)
            if sent is None or key not in (None, sent.key):
                return
            del self._sent[mark]
            self._sent_bytes -= sent.nbytes
        self._delete(sent.key)

    def _same(self, mark: object, sent: _Sent, places: list[tuple[int, int]]) -> bool:
        """Whether these bytes are still those of the object. It is looked for again, then."""
        try:
            view = sent.view or self.store.view(sent.key)
        except KeyError:  # its array went just now
            return False
        if any(_memcmp(begin, address(buffer), nbytes) for (begin, nbytes), buffer in zip(
                places, view.buffers)):
            return False
        with self._lock:
            if self._sent.get(mark) is sent:
                self._sent[mark] = sent._replace(until=time.monotonic() + sent.grace, view=view)
        return True

    def _delete(self, key: str) -> None:
        if self._pid == os.getpid():
            with contextlib.suppress(KeyError, Error):
                self.store.delete(key)

    def forget(self) -> None:
        """Nothing is sent again as the same object: memory is held by receivers alone."""
        for mark in list(self._sent):
            self._drop(mark)

    # -- receiving

    def take(self, ticket: Ticket) -> View:
        """The object of a ticket, copy-on-write; it goes with the view. Raises Error
        (ESTALE: the job is over)."""
        key = next(self._keys)
        self._expire()
        self.store.adopt(key, ticket)
        view = self.store.view(key, cow=True)
        identity = id(view)

        def gone(_: object) -> None:
            self._maps.pop(identity, None)
            self._delete(key)

        with self._lock:
            buffers = view.buffers
            self._maps[identity] = _Map(weakref.ref(view, gone), key, tuple(map(address, buffers)),
                                        tuple(b.nbytes for b in buffers))
        return view


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def _base(buffer: memoryview) -> object:
    """The array that the memory belongs to."""
    owner: object = buffer.obj
    while (base := getattr(owner, "base", None)) is not None:
        owner = base
    return owner


# -- the process's part in a job

_boxes: dict[str, Mailbox] = {}  # by partition
_refused: dict[str, tuple[float, Exception]] = {}  # since when there is none to be had
_roots: dict[str, str] = {}  # by partition, of the job that this process belongs to
_boxes_lock = threading.Lock()
_warned = False


def mailbox(partition: str | None = None, root: str | None = None) -> Mailbox:
    """This process's mailbox in the partition (None: the default one). root: of the job that it is
    part of, if it is of none. Raises Error."""
    path = partition or default_path()
    with _boxes_lock:
        box = _boxes.get(path)
        if box is not None and not box.store.closed:
            return box
        since, error = _refused.get(path, (-_REFUSED, None))
        if error is not None and time.monotonic() - since < _REFUSED:
            raise error
        try:
            box = _boxes[path] = Mailbox(path, _roots.setdefault(path, root) if root
                                         else _roots.get(path))
        except (Error, OSError) as refused:
            _refused[path] = time.monotonic(), refused
            raise
        _roots.setdefault(path, box.where.root)
        return box


def forget(way: Way) -> None:
    """The process's job makes a pause: objects that could be sent again go."""
    with _boxes_lock:
        box = _boxes.get(way.partition or default_path())
    if box is not None:
        box.forget()


def begin(partition: str | None, min_size: int) -> Way:
    """The way of a job that begins with this process, unless it is part of one: messages of its
    children are good as long as it lives."""
    pickling.prepared(None)  # in this thread, not in a queue's
    # a child imports the main module, before it hears of its job
    if getattr(process.current_process(), "_inheriting", False):
        return Way(partition, min_size, _roots.get(partition or default_path()))
    try:
        root = mailbox(partition).where.root
    except (Error, OSError):  # the first large value says so
        root = None
    return Way(partition, min_size, root)


def join(way: Way) -> Way:
    """This process is part of that job from here on, also where what it imported began one."""
    path = way.partition or default_path()
    if way.root:
        with _boxes_lock:
            _roots[path] = way.root
            if path in _boxes and _boxes[path].where.root != way.root:
                del _boxes[path]
    return way


def _begin_in_child() -> None:
    global _boxes_lock
    _boxes_lock = threading.Lock()
    _boxes.clear()


os.register_at_fork(after_in_child=_begin_in_child)


def warn(partition: str | None, error: Exception) -> None:
    global _warned
    if _warned:
        return
    _warned = True
    path = partition or default_path()
    size = ""
    with contextlib.suppress(OSError):
        fs = os.statvfs(path if os.path.exists(path) else os.path.dirname(path))
        size = f" of {fs.f_blocks * fs.f_frsize >> 20} MiB"
    warnings.warn(
        f"messages go without shared memory, as they would without shmstore: {error}. The "
        f"partition is {path}, on a file system{size}; a "
        "container's grows by --shm-size, and SHMSTORE_PARTITION names another one",
        RuntimeWarning, stacklevel=3)


# -- pickles


_PLAIN = (type(None), bool, int, float, complex)
_ORIGIN = pickling._Origin()


class _Table(dict):  # type: ignore[type-arg]
    """A dispatch table of `pickling.reducers`, which grow as libraries are imported."""

    def grow(self) -> None:
        for kind in pickling.reducers.keys() - self.keys():
            self[kind] = functools.partial(_reduce, pickling.reducers[kind])


def _reduce(reduce: Reducer, value: object) -> object:
    # a tensor in torch's shared memory, where its processes mean to write to it together
    is_shared = getattr(value, "is_shared", None)
    reduced = NotImplemented if is_shared is not None and is_shared() else reduce(value, _ORIGIN)
    if reduced is not NotImplemented:
        return reduced
    stock = (ForkingPickler._extra_reducers.get(type(value)) or  # type: ignore[attr-defined]
             copyreg.dispatch_table.get(type(value)))
    return stock(value) if stock else value.__reduce_ex__(5)


_table = _Table()


def _dump(value: object, aside_min: int, by_value: bool) -> tuple[bytes, list[memoryview]]:
    """The pickle, as multiprocessing's, and the buffers of so many bytes and more."""
    if by_value:
        stream, all_aside = pickling.dumps(value, by_value=True, least=aside_min)
        return stream, [buffer.raw() for buffer in all_aside]
    value = pickling.prepared(value)
    if len(_table) < len(pickling.reducers):
        _table.grow()
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 5, buffer_callback=pickling.collector(buffers, aside_min))
    pickler.dispatch_table = {
        **copyreg.dispatch_table,
        **ForkingPickler._extra_reducers, **_table}  # type: ignore[attr-defined]
    pickler.dump(value)
    return file.getvalue(), [buffer.raw() for buffer in buffers]


def small(value: Any, depth: int = 3) -> bool:
    """Whether a value is below `MIN_SIZE` for certain, by a look that takes no time."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind in (str, bytes, bytearray):
        return len(value) < _ASIDE_MIN
    if kind in (tuple, list) and len(value) < _FEW:
        return depth > 0 and all(small(item, depth - 1) for item in value)
    return kind is pickling._ndarray and value.nbytes < _ASIDE_MIN and not value.dtype.hasobject


def dumps(value: object, way: Way) -> bytes:
    """The pickle of a value that `pickle.loads` reads in any process of the
    host that can import shmstore.

    Values of less than way.min_size bytes are in it whole. Raises what pickling them raises; where
    shared memory cannot be had it warns.
    """
    stream, buffers = _dump(value, _ASIDE_MIN, way.by_value)
    nbytes = sum(buffer.nbytes for buffer in buffers) + len(stream)
    if nbytes >= way.min_size:
        inside = len(stream) < way.min_size
        try:
            box = mailbox(way.partition, way.root)
            objects = box.send(buffers if inside else [*buffers, memoryview(stream)], way.fixed)
        except (Error, OSError) as error:
            warn(way.partition, error)
        else:
            return pickle.dumps(AsCall(load, stream if inside else None, tuple(box.where),
                                       *objects), protocol=4)
    if not buffers:
        return stream
    if _HANDS_OVER in stream:
        return pickle.dumps(AsCall(load_whole, stream,
                                   [pickle.PickleBuffer(buffer) for buffer in buffers]), protocol=5)
    return _dump(value, sys.maxsize, way.by_value)[0]


def unreadable(path: str, error: Exception) -> Error:
    """The error for a received value in a partition that this process cannot use."""
    return Error(getattr(error, "errno", None) or errno.EIO,
                 f"process {os.getpid()} cannot take a message out of the partition {path}: "
                 f"{error}. All processes of a job need the same directory "
                 "there, as the same user; where they cannot have it, send without "
                 "shmstore.multiprocessing")


class AsCall:
    """Is pickled as a call of what reads it."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[object, ...]:
        return self._call


def load_whole(stream: bytes, buffers: list[bytes | bytearray]) -> object:
    """The value of a pickle with its buffers beside it. It was not pickled again: a Queue, a lock
    or a connection in it would have handed over its descriptors twice."""
    # as with stock's pickle, what comes can be written to
    return pickle.loads(stream, buffers=map(bytearray, buffers))


def load(stream: bytes | None, where: tuple[str, str], tickets: list[tuple[str, int, int]],
         layout: list[tuple[int, int, int, int]]) -> object:
    """The value of a message; stream None: its pickle is the last buffer."""
    try:
        box = mailbox(*where)
        views = [box.take(Ticket(*ticket)).buffers for ticket in tickets]
    except (Error, OSError) as error:
        raise unreadable(where[0], error) from error
    buffers = [views[number][i] if nbytes == views[number][i].nbytes
               else views[number][i][at : at + nbytes] for number, i, at, nbytes in layout]
    return pickle.loads(buffers.pop() if stream is None else stream, buffers=buffers)


class Parcel:
    """Carries a value through any pickler: what unpickles it has the value itself, and its large
    buffers came by handoff."""

    __slots__ = ("value", "way")

    def __init__(self, value: Any, way: Way) -> None:
        self.value, self.way = value, way

    def __reduce__(self) -> tuple[object, ...]:
        return pickle.loads, (dumps(self.value, self.way),)
