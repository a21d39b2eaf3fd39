# SPDX-License-Identifier: Apache-2.0
"""multiprocessing and concurrent.futures with large values in shared memory.

>>> import shmstore.multiprocessing as smp
>>> smp.install()                    # from here on: Pool, ProcessPoolExecutor,
                                     Queue, Pipe, Process, Manager
>>> with smp.SharedExecutor(4) as pool:        # or this one executor, and nothing global
...     results = [pool.submit(f, a) for a in arrays]
>>> with smp.share(a) as shared:     # for many readers: shared.value is a map of
                                     the one copy, in every process
...     pool.map(g, [(shared, i) for i in range(1000)])

A value of 64 KiB and more is put into the partition once, and the receiver maps it: arrays are
writable there, copy-on-write, and nobody else sees what is written. Smaller values, and what has
no large buffers, travel as ever, and so does all where the partition has no room (see
`shmstore.messages`). Any start method; no daemon is needed. Workers of a SharedExecutor that
cannot open the partition are sent values as ever; what reads a queue or a pipe and cannot raises
Error, which names the partition.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing.process
import os
import pickle
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import reduction
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, NamedTuple, TypeVar

from ._shmstore import View
from .errors import Error
from .messages import (MIN_SIZE, AsCall, Parcel, Way, begin, dumps, forget, join, mailbox, small,
                       unreadable, warn)
from .partition import Partition
from .pickling import dumps as pickled
from .store import Store

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")

_UNREAD = object()
_KEPT = 8  # values of `share` that a reading process keeps mapped between their uses


_ForkingPickler = reduction.ForkingPickler
_stock_dumps = _ForkingPickler.__dict__["dumps"]
_stock_dump = reduction.dump
_installed: Way | None = None


def install(min_size: int = MIN_SIZE, partition: str | None = None) -> None:
    """From here on all that multiprocessing pickles goes by handoff, also in the children that this
    process starts, by whatever method.

    min_size: bytes of a value. partition: its path; None: $SHMSTORE_PARTITION, else the default
    one. Made where it is missing.
    """
    global _installed
    _installed = begin(partition, min_size)
    _hook()


def _hook() -> None:
    _ForkingPickler.dumps = classmethod(_dumps)  # type: ignore[method-assign,assignment]
    reduction.dump = _dump  # type: ignore[assignment]


def uninstall() -> None:
    """multiprocessing is as before; what was sent can still be read."""
    global _installed
    _installed = None
    _ForkingPickler.dumps = _stock_dumps  # type: ignore[method-assign]
    reduction.dump = _stock_dump


def installed() -> Way | None:
    """How it is installed in this process; None: it is not."""
    return _installed


def _dumps(cls: type, value: object, protocol: int | None = None) -> bytes:
    """As ForkingPickler.dumps."""
    return dumps(value, _installed or Way())


def _dump(value: object, file: BinaryIO, protocol: int | None = None) -> None:
    """As reduction.dump, by which spawn and forkserver send a child what it is to be."""
    if isinstance(value, multiprocessing.process.BaseProcess) and _installed:
        value = AsCall(_begin, tuple(_installed), value)
    file.write(_dumps(_ForkingPickler, value))


def _begin(way: tuple[str | None, int, str | None], process: T) -> T:
    """The process begins in a child, after the child was installed as its parent is."""
    global _installed
    _installed = join(Way(*way))
    _hook()
    return process


class SharedExecutor(ProcessPoolExecutor):
    """A ProcessPoolExecutor whose arguments and results go by handoff. Nothing
    else in the process changes.

    min_size, partition: as `install` has them. The other arguments are ProcessPoolExecutor's.
    """

    def __init__(
        self, max_workers: int | None = None, mp_context: BaseContext | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[object, ...] = (), *, min_size: int = MIN_SIZE,
        partition: str | None = None, **others: Any,
    ) -> None:
        self._way = begin(partition, min_size)
        self._workers = _Workers(self, mp_context or multiprocessing.get_context())
        initargs = (tuple(self._way), self._workers.says, initializer, Parcel(initargs, self._way))
        super().__init__(
            max_workers, mp_context, _enter, initargs, **others)  # type: ignore[arg-type]

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        """As Executor.submit."""
        call: object = fn, args, kwargs
        packed = call if not kwargs and small(args) else _Call(call, self._way, self._workers)
        return super().submit(_call, tuple(self._way), packed)  # type: ignore[arg-type]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As Executor.shutdown."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        forget(self._way)


class _Workers:
    """Hears from starting workers if they can open the partition. Used by the sending thread."""

    def __init__(self, executor: SharedExecutor, context: BaseContext) -> None:
        self._hears, self.says = context.Pipe(duplex=False)
        os.set_blocking(self._hears.fileno(), False)
        self._executor = weakref.ref(executor)
        self._begun = self._refused = False

    def can_open(self, partition: str | None) -> bool:
        """Whether all can that have begun. Waits for the first one, before which
        nobody would read a message."""
        while not self._refused:
            with contextlib.suppress(BlockingIOError):
                said = os.read(self._hears.fileno(), 4096)
                self._begun = True
                _, refused, why = said.partition(b"-")
                if refused:
                    self._refused = True
                    warn(partition, OSError("a worker says: " + why.decode(errors="replace")))
                    break
            executor = self._executor()
            if self._begun or executor is None or executor._broken:
                break
            del executor
            self._hears.poll(0.1)
        return not self._refused


class _Call:
    """A call on its way to a worker, which gets it as bytes."""

    def __init__(self, call: object, way: Way, workers: _Workers) -> None:
        self._arguments = call, way, workers

    def __reduce__(self) -> tuple[object, ...]:
        call, way, workers = self._arguments
        return bytes, (dumps(call, way if workers.can_open(way.partition)
                             else way._replace(min_size=sys.maxsize)),)


def _enter(way: tuple[str | None, int, str | None], says: Connection[object, object],
           initializer: Callable[..., object] | None,
           initargs: Parcel | tuple[object, ...]) -> None:
    """Begins a worker."""
    said = b"+"
    if way[2] is not None:
        try:
            join(Way(*way))
            mailbox(way[0])
        except (Error, OSError) as error:
            said = b"-" + str(error).encode()[:2000]
    os.write(says.fileno(), said)
    if initializer is not None:
        # a forked worker has it as it is
        initializer(*(initargs.value if isinstance(initargs, Parcel) else initargs))


def _call(way: tuple[str | None, int, str | None],
          call: bytes | tuple[Callable[..., object], tuple[object, ...],
                              dict[str, object]]) -> object:
    fn, args, kwargs = pickle.loads(call) if isinstance(call, bytes) else call
    result = fn(*args, **kwargs)
    return result if small(result) else Parcel(result, Way(*way))


# -- broadcast


class Where(NamedTuple):
    """A shared value: the partition's path, the store of the process that shared it, the key."""

    partition: str
    store: str
    key: str


class Shared(contextlib.AbstractContextManager["Shared[T]", None], Generic[T]):
    """A value that any number of processes of the host read, made by `share`. Pickles to its name.
    A context manager that closes it."""

    def __init__(self, where: Where | None, readonly: bool, value: Any = _UNREAD) -> None:
        self._where, self._readonly, self._value = where, readonly, value
        self._owner = 0  # the process that shared it

    @property
    def value(self) -> T:
        """Over the shared memory: writable, copy-on-write, unless it was shared readonly. Raises
        Error (ESTALE, ENOENT), KeyError after `close`."""
        if self._where is not None and self._value is _UNREAD:
            self._value = _read(self._where, self._readonly)
        return self._value  # type: ignore[no-any-return]

    def close(self) -> None:
        """Frees it in the process that shared it: values that are in use stay. Otherwise it is
        freed with that process."""
        if self._where is None or self._owner != os.getpid():
            return
        _kept.pop(self._where, None)
        with contextlib.suppress(KeyError, Error):
            mailbox(self._where.partition).store.delete(self._where.key)

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        return (Shared, (self._where, self._readonly) if self._where is not None
                else (None, self._readonly, self._value))


def share(value: T, partition: str | None = None, readonly: bool = False) -> Shared[T]:
    """Puts the value into the partition for many readers: send what this returns instead. It is
    there until `close`, or until this process ends.

    readonly: arrays are read-only in all processes. Where there is no room the value travels as
    ever, and a warning says so.
    """
    header, buffers = pickled(value)
    try:
        box = mailbox(partition)
        where = Where(box.where.partition, box.store.name, f"shared-{next(_numbers)}")
        box.store.put_buffers(where.key, header, buffers)
    except (Error, OSError) as error:
        warn(partition, error)
        return Shared(None, readonly, value)
    shared: Shared[T] = Shared(where, readonly)
    shared._owner = os.getpid()
    return shared


_numbers = itertools.count()
_readers: dict[tuple[str, str], Store] = {}  # by partition and store
# of those that are read-only: of a copy-on-write one each reader has its own
_kept: OrderedDict[Where, View] = OrderedDict()
_readers_lock = threading.Lock()


def _begin_in_child() -> None:
    global _readers_lock
    _readers_lock = threading.Lock()  # another thread of the parent may have had it


os.register_at_fork(after_in_child=_begin_in_child)


def _read(where: Where, readonly: bool) -> Any:
    partition, name, key = where
    with _readers_lock:
        view = _kept.pop(where, None) if readonly else None
        if view is None:
            store = _readers.get((partition, name))
            if store is None:
                try:
                    store = _readers[partition, name] = Partition(partition).open(
                        name, readonly=True)
                except (Error, OSError) as error:
                    raise unreadable(partition, error) from error
            view = store.view(key, cow=not readonly)
        if readonly:
            _kept[where] = view
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return pickle.loads(view.header_view, buffers=view.buffers)
