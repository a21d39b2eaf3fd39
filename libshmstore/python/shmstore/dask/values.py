# SPDX-License-Identifier: Apache-2.0
"""Values as the partition takes them: whether they can be shared, and in which form. An exchange
(exchange.py) puts and maps them.

    Over     values that show parts of objects which are there already: what a reshape, a slice, a
             transpose, a list or a dict makes of a mapped array. Such a value is not copied. It is
             a second name of the object, and a pickle of its own over parts of the object's
             buffers, which stays in the entry and goes along in handles. A part that is small
             beside its object is copied when it is handed on, as it would keep all of it in memory
    has_own_way, reads_back_equal
             types whose values a pickle may not carry whole: those with a way of their own over
             Dask's network, and those whose pickle is the program's own
    Habits   results that likely leave the worker which made them
    Born     results that no worker could keep privately
    SpillFiles
             values on disk that are used where they lie
"""

from __future__ import annotations

import enum
import mmap
import pickle
import struct
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NamedTuple

from dask.utils import key_split
from distributed.protocol import dask_serialize  # type: ignore[attr-defined]
from distributed.protocol.serialize import Serialized
from distributed.threadpoolexecutor import ThreadPoolExecutor

from .. import Error, Partition, View, dumps
from .._shmstore import _born_end
from ..parts import Part, address, parts_of, unwritten
from ..pickling import in_view
from .compat.worker import Slow, SpilledSize, file_of
from .config import Settings

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from .compat.worker import Key, StateMachineEvent, TaskState
    from .exchange import Entry, Exchange

_HEADER_MAX = 64 << 10  # bytes: it travels with each handle
_PART_MIN = 2  # a value shows one part in so many of its object at least
_ITEMS_MAX = 1000  # of a container that are looked at
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


class Over(NamedTuple):
    """A pickle, and of which parts of an object's buffers its own are."""

    header: bytes
    parts: tuple[Part, ...]

    def load(self, view: View) -> object:
        """The value."""
        buffers = view.buffers
        return pickle.loads(self.header, buffers=[buffers[i][at : at + nbytes]
                                                  for i, at, nbytes in self.parts])

    @property
    def nbytes(self) -> int:
        """Of its buffers."""
        return sum(part.nbytes for part in self.parts)


class Map(NamedTuple):
    """One live map of an object."""

    view: weakref.ref[View]
    entries: list[Entry]  #: of that object, the oldest first
    starts: tuple[int, ...]  # of its buffers
    sizes: tuple[int, ...]
    cow: bool


def shows_views(value: object, depth: int = 3) -> bool:
    """Whether that is an array in a view, or a list, tuple or dict with nothing but such arrays,
    small values and at least one array. Cheap."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and _shows(value, numpy.ndarray, depth) is True


def _shows(value: Any, ndarray: type, depth: int) -> bool | None:
    """None: neither for it nor against it."""
    if type(value) is ndarray:
        return in_view(value)
    if type(value) in _PLAIN:
        return None
    if type(value) not in (list, tuple, dict) or not depth or len(value) > _ITEMS_MAX:
        return False
    found = None
    for item in value.values() if type(value) is dict else value:
        shows = _shows(item, ndarray, depth - 1)
        if shows is False:
            return False
        found = found or shows
    return found


class Maps:
    """The live maps of an exchange's objects, by their addresses. Any thread."""

    def __init__(self) -> None:
        self.live: dict[int, Map] = {}  #: by id of the view

    def add(self, entry: Entry, view: View) -> None:
        """An entry was mapped."""
        starts = tuple(address(buffer) for buffer in view.buffers)
        identity = id(view)
        gone = weakref.ref(view, lambda _: self.live.pop(identity, None))
        self.live[identity] = Map(gone, [entry], starts,
                                   tuple(buffer.nbytes for buffer in view.buffers), view.cow)

    def find(self, value: object) -> tuple[Map, Over] | None:
        """Of which object a value shows enough, as it is in the partition, and how; None where it
        does not, or is the object's own value."""
        if not shows_views(value):
            return None
        header, buffers = dumps(value, as_is=True, strided=True)
        if len(header) > _HEADER_MAX or not buffers:
            return None
        raw = [buffer.raw() for buffer in buffers]
        places = [(address(buffer), buffer.nbytes) for buffer in raw]
        for found in list(self.live.values()):
            parts, view = parts_of(found.starts, found.sizes, places), found.view()
            if parts is None or view is None:
                continue
            if header == view.header:
                return None
            if (_PART_MIN * sum(nbytes for _, nbytes in places) < sum(found.sizes) or
                (found.cow and not unwritten(places))):
                return None
            return found, Over(header, tuple(parts))
        return None


#: Modules whose pickles give an equal value back.
_EXACT = {*sys.stdlib_module_names, "numpy", "pandas", "pyarrow", "polars", "scipy"} - {"__main__"}
_DASK = "distributed.protocol."


def has_own_way(kind: type) -> bool:
    """Whether somebody registered, besides Dask, how values of the type cross the network: it may
    carry more than the pickle, or less."""
    try:
        serialize = dask_serialize.dispatch(kind)
    except TypeError:  # nobody did
        return False
    # by register_generic() of Dask's: all attributes go, whatever the pickle does
    if hasattr(serialize, "__self__"):
        return not _is_exact(kind)
    return not getattr(serialize, "__module__", "").startswith(_DASK)


def reads_back_equal(kinds: Iterable[type]) -> bool:
    """Whether a value whose pickle has objects of these types beside plain ones is surely
    equal when it is read back."""
    return all(map(_is_exact, kinds))


def _is_exact(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _EXACT


class Kept(enum.Enum):
    """Why a value stays private."""

    FOR_NOW = 1  #: no room
    FOR_GOOD = 2  #: it has no pickle


class Pickled(NamedTuple):
    """Findings about a value that stays private for good, as too little of it can be shared."""

    header: bytes
    buffers: list[memoryview]

    def serialized(self) -> Serialized:
        """As Dask's own pickling gives it: any worker can read it."""
        writeable = tuple(not buffer.readonly for buffer in self.buffers)
        return Serialized({"serializer": "pickle", "writeable": writeable},
                          [self.header, *self.buffers])


def pays(partition: Partition) -> bool:
    """Whether new files are made of huge pages: page by page they take
    longer to make than a copy."""
    return partition.info().huge in ("within_size", "always")


def shareable(header: bytes, size: int, settings: Settings) -> bool:
    """Whether min-size bytes, and half of a value, are buffers (size bytes)
    outside of its pickle (header)."""
    return size >= settings.min_size and size >= len(header)


def own_small_arrays(value: Any, min_size: int, depth: int = 3) -> object:
    """A small array over a mapped object, copied, also in lists, tuples and dicts: else a few bytes
    would keep a whole object in memory."""
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


_KINDS_MAX = 1000
_LAST = 32  # results of a kind whose sizes are remembered


class Habit:
    """Of a kind of results."""

    __slots__ = ("made", "left", "sizes")

    def __init__(self) -> None:
        self.made = 0  #: results that might be shared
        self.left = 0  #: results that were handed to another worker, each once
        self.sizes: deque[int] = deque(maxlen=_LAST)  #: sizeof the last ones

    @property
    def leaves(self) -> bool:
        """Whether a result will likely be handed on: half of them were."""
        return self.left > 0 and 2 * self.left >= self.made

    @property
    def size(self) -> int:
        """Bytes of a result: what four of five of the last ones did not exceed; 0 of a kind that is
        not known yet."""
        sizes = sorted(self.sizes)
        return sizes[(len(sizes) * 4 - 1) // 5] if sizes else 0


class Habits:
    """Habits of kinds of results: which leave the worker that made them, and how large they are.
    Used by its event loop only.

    A result that no other worker asks for should cost nothing. Others are best put into the
    partition when they are made: no task holds the private value any more, and the host
    never has it twice. Nobody tells the worker which is which, but tasks of a kind (a key
    prefix) mostly share their fate.
    """

    def __init__(self) -> None:
        self._kinds: OrderedDict[str, Habit] = OrderedDict()  # oldest first

    def of(self, key: Key) -> Habit:
        """That of a key's kind."""
        name = key_split(key)
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = Habit()
            if len(self._kinds) > _KINDS_MAX:
                self._kinds.popitem(last=False)
        return kind


# bytes from which on arrays are made in the partition
_LARGE = 2 << 20


class Born:
    """Results that no worker could keep privately: while a task runs whose inputs are more than
    half of what its worker may, NumPy makes large arrays in the partition (`Store.born_shared`),
    and to put a result that is one copies nothing. So a collection larger than a worker's memory
    limit can be computed. Other results are put by a copy: arrays that are born there cost smaller
    jobs more memory than stock takes, and time.
    """

    def __init__(self, exchange: Exchange, tasks: Mapping[Key, TaskState], much: int) -> None:
        self._exchange, self._tasks, self._much = exchange, tasks, much

    async def run(self, key: Key,
                  execute: Callable[[], Awaitable[StateMachineEvent]]) -> StateMachineEvent:
        """The event of a key, whose task may make such arrays: its thread has this coroutine's
        context."""
        token = self._exchange.guard.call("born", self.begin, key)
        try:
            return await execute()
        finally:
            if token is not None:
                _born_end(*token)

    def begin(self, key: Key) -> tuple[object, object] | None:
        """Arguments of `_born_end`, if the key's task makes such arrays in this context from here
        on."""
        # without NumPy there are no arrays, or those of the task that imports it
        if "numpy" not in sys.modules or (task := self._tasks.get(key)) is None:
            return None
        inputs = sum(dep.nbytes or 0 for dep in task.dependencies)
        if inputs <= self._much:
            return None
        # the store is closed, or NumPy is too old
        with suppress(Error, ImportError, RuntimeError, OSError):
            if all(used + inputs < size
                   for size, used in self._exchange.bounds(limits=False)):
                return self._exchange.store._born_begin(_LARGE)
        return None


def lend_context(executor: Executor) -> None:
    """Makes Dask's executor run calls in the submitter's context: to 2023.7 it did not."""
    if type(executor) is not ThreadPoolExecutor or "submit" in vars(executor):
        return
    submit: Callable[..., object] = executor.submit

    def submit_in_context(*args: object, **kwargs: object) -> object:
        return submit(copy_context().run, *args, **kwargs)

    setattr(executor, "submit", submit_in_context)


_MAGIC = b"shmstore spilled"
_ALIGN = 64
_HEAD = struct.Struct("<16sQQ")


class MappableSize(SpilledSize):
    """Of a value whose file can be mapped."""

    __slots__ = ()


class SpillFiles:
    """Spill files whose values are used where they lie: in place of stock's way to write and read
    the values of one `Slow`. Used by its event loop, `map` by any thread.

    Stock Dask reads a spilled value into private memory, as a file and as a value, although the
    memory is short. A value of mostly buffers is written here so that it can be mapped instead: its
    buffers are aligned, and as they are in memory. A task's writes stay in the worker, as with
    `map: cow`.

        "shmstore spilled" | number of buffers | bytes of the pickle | bytes of each buffer | the
        pickle | the buffers, at multiples of 64
    """

    def __init__(self, slow: Slow, exchange: Exchange) -> None:
        self.exchange = exchange
        self._slow = slow
        self._dump, self._load = slow.dump, slow.load
        self.maps = True  #: values are written so that they can be mapped
        self._mappable = False  # what was written last
        self._known: tuple[object, Pickled] | None = None
        slow.dump, slow.load = self.dump, self.load

    def wrote(self, key: Key) -> None:
        """A value was stored under the key just now."""
        if self._mappable:
            self._slow.weight_by_key[key] = MappableSize(*self._slow.weight_by_key[key])

    def mappable(self, key: Key) -> bool:
        return type(self._slow.weight_by_key.get(key)) is MappableSize

    def map(self, key: Key) -> object:
        """The value, in memory that its file is behind until somebody writes there. OSError."""
        with open(file_of(self._slow, key), "rb") as file:
            return _value_in(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)))

    def expect(self, value: object, pickled: Pickled) -> None:
        """The value that is written next, if it is this one, was pickled
        already: it cannot be shared."""
        self._known = value, pickled

    def dump(self, value: object) -> Any:
        self._mappable = False
        known, self._known = self._known, None
        if known is not None and known[0] is value:
            return self._dump(known[1].serialized())
        if self.maps and self.exchange.candidate(value):
            pickled = self.exchange.guard.call("spill", _pickle, value)
            if (pickled is not None and
                shareable(pickled.header, sum(buffer.nbytes for buffer in pickled.buffers),
                          self.exchange.settings)):
                self._mappable = True
                return list(_frames(*pickled))
        return self._dump(value)

    def load(self, data: bytes | bytearray) -> object:
        """The value of bytes that stock read: a copy."""
        if not data.startswith(_MAGIC):
            return self._load(data)  # type: ignore[arg-type]
        return _value_in(memoryview(data if isinstance(data, bytearray) else bytearray(data)))


def _pickle(value: object) -> Pickled | None:
    seen: set[type] = set()
    header, buffers = dumps(value, as_is=True, seen=seen)
    if any(map(has_own_way, seen)):
        return None
    return Pickled(header, [buffer.raw() for buffer in buffers])


def _frames(header: bytes, buffers: list[memoryview]) -> Iterator[bytes | memoryview]:
    head = (_HEAD.pack(_MAGIC, len(buffers), len(header)) + struct.pack(f"<{len(buffers)}Q", *(
        buffer.nbytes for buffer in buffers)))
    yield head + header
    end = len(head) + len(header)
    for buffer in buffers:
        yield bytes(-end % _ALIGN)
        yield buffer
        end += -end % _ALIGN + buffer.nbytes


def _value_in(file: memoryview) -> object:
    _, n, header_size = _HEAD.unpack_from(file)
    sizes = struct.unpack_from(f"<{n}Q", file, _HEAD.size)
    begin = _HEAD.size + 8 * n
    end = begin + header_size
    header = file[begin:end]
    buffers = []
    for size in sizes:
        start = end + -end % _ALIGN
        end = start + size
        buffers.append(file[start:end])
    return pickle.loads(header, buffers=buffers)
