# SPDX-License-Identifier: Apache-2.0
"""Data sets in shared memory: a sequence of records that any number of processes
index, and each record is a view.

The records are pickled one by one as they come, into objects of 64 MiB, so that making one takes
no more memory than one object besides. A sequence pickles to its name: `DataLoader`'s workers,
ranks and jobs map the same copy.

One more object has the places of all records, as three arrays of numbers: the kind, where it
begins, where it ends. A plain array of one dimension is a slice of another, larger array: its kind
is a number above 0 that stands for an object and a dtype, and the places count items. All others
have kind 0, the number of the object, and where the table of the record's parts begins there.

Where the partition has no room, the objects are private memory, which goes along where the sequence
is pickled, as a list would.
"""

from __future__ import annotations

import errno
import itertools
import os
import pickle
import secrets
import struct
import sys
import weakref
from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

from ._shmstore import default_path
from .errors import Error
from .messages import warn
from .partition import Partition
from .pickling import dumps
from .store import Store

if TYPE_CHECKING:
    from ._shmstore import Buffer

_CHUNK = 64 << 20  # bytes of an object
_ALIGN = 64
_ASIDE_MIN = 512  # bytes of a buffer; smaller ones stay in the record's pickle
# of a record's part: where it begins in the object, bytes; the pickle's is the first one
_PART = struct.Struct("<QQ")


def is_flat(record: Any) -> bool:
    """Whether that is an array which its dtype and its bytes say all of."""
    numpy = sys.modules.get("numpy")
    return (numpy is not None and type(record) is numpy.ndarray and record.ndim == 1 and
            record.flags.c_contiguous and record.nbytes > 0
            and not record.dtype.hasobject and record.dtype.isbuiltin == 1 and
            _ALIGN % record.itemsize == 0)


class _Writer:
    """Packs records into objects of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # the objects, where the partition has no room for them
        self.rows: dict[int, bytes] | None = None
        self._parts: list[tuple[int, bytes]] = []
        self._at = self._number = 0
        self._places = array("I"), array("Q"), array("Q")
        self._kinds: dict[tuple[int, object], int] = {}  # of an object and a dtype

    def _place(self, *place: int) -> None:
        for column, number in zip(self._places, place):
            column.append(number)

    def add(self, record: Any) -> None:
        if is_flat(record):
            self._room(record.nbytes)
            begin = self._take(memoryview(record.view("u1"))) // record.itemsize
            self._place(self._kinds.setdefault((self._number, record.dtype), len(self._kinds) + 1),
                        begin, begin + len(record))
            return
        header, aside = dumps(record, least=_ASIDE_MIN)
        parts = [memoryview(header), *(buffer.raw() for buffer in aside)]
        self._room(sum(-(-part.nbytes // _ALIGN) * _ALIGN for part in parts) + _ALIGN +
                   (len(parts) + 1) * _PART.size)
        table = bytearray((len(parts) + 1) * _PART.size)
        _PART.pack_into(table, 0, len(parts), 0)
        for i, part in enumerate(parts):
            _PART.pack_into(table, (i + 1) * _PART.size, self._take(part), part.nbytes)
        self._place(0, self._number, self._take(memoryview(table)))

    def _room(self, nbytes: int) -> None:
        if self._parts and self._at + nbytes > _CHUNK:
            self.flush()

    def _take(self, part: memoryview) -> int:
        begin = self._at
        # now: the next record may be made in the same memory
        self._parts.append((begin, bytes(part)))
        self._at = -(-(begin + part.nbytes) // _ALIGN) * _ALIGN
        return begin

    def flush(self) -> None:
        """Writes the object that is begun."""
        if not self._parts:
            return
        try:
            if self.rows is None:
                with self._store.create(str(self._number), 0,
                                        [self._at]) as writer, writer.buffers[0] as room:
                    self._fill(room)
        except Error as error:
            self._leave(error)
        if self.rows is not None:
            self._fill(memoryview(row := bytearray(self._at)))
            self.rows[self._number] = bytes(row)
        self._parts, self._at, self._number = [], 0, self._number + 1

    def _fill(self, room: memoryview) -> None:
        for begin, part in self._parts:
            room[begin : begin + len(part)] = part

    def _leave(self, error: Error) -> None:
        """Goes on in private memory."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise error
        warn(self._store.partition.path, error)
        self.rows = {number: bytes(self._store.view(str(number)).buffers[0])
                     for number in range(self._number)}

    def end(self, keys: list[object] | None) -> tuple[bytes, list[Buffer]]:
        """The header and the buffers of the last object, which has the places."""
        self.flush()
        header, aside = dumps((keys, list(self._kinds)))
        buffers: list[Buffer] = [*self._places, *aside]
        try:
            if self.rows is None:
                self._store.put_buffers("places", header, buffers)
        except Error as error:
            self._leave(error)
        return header, buffers


class _Records:
    """The common part of a list and a dict."""

    def __init__(self, records: Iterable[object], keys: list[object] | None,
                 partition: str | None) -> None:
        path = partition or default_path()
        name = f"data-{os.getpid()}-{secrets.token_hex(4)}"
        store = Partition(path, create=True).open(name, label=type(self).__name__)
        writer = _Writer(store)
        for record in records:
            writer.add(record)
        header, buffers = writer.end(keys)
        if writer.rows is None:
            self._finalize = weakref.finalize(self, _close, store, os.getpid())
            self._attach(path, name)
        else:
            store.close()
            self._keep(header, [bytes(buffer) for buffer in buffers], writer.rows)

    def _attach(self, path: str, name: str) -> None:
        self._where: tuple[str, str] | None = (path, name)
        self._reader = Partition(path).open(name, readonly=True)
        view = self._reader.view("places")
        self._open(view.header_view, view.buffers)

    def _keep(self, header: bytes, buffers: list[bytes], rows: dict[int, bytes]) -> None:
        self._where, self._private = None, (header, buffers, rows)
        self._open(header, [memoryview(buffer) for buffer in buffers])
        self._rows.update((number, memoryview(row)) for number, row in rows.items())

    def _open(self, header: Buffer, buffers: Sequence[memoryview]) -> None:
        columns, aside = buffers[:3], buffers[3:]
        self._kind, self._begins, self._ends = [
            c.cast(code) if c.nbytes else c  # type: ignore[call-overload]
            for c, code in zip(columns, "IQQ")]
        self._keys, self._kinds = pickle.loads(header, buffers=aside)
        # by kind: that object as one array, when it is asked for
        self._flats: list[Any] = [None] * (len(self._kinds) + 1)
        self._rows: dict[int, memoryview] = {}
        self._n = len(self._kind)

    def close(self) -> None:
        """Frees the records in the process that made them; those that are in use stay. It is done
        at the latest when that process ends."""
        finalize = getattr(self, "_finalize", None)
        if finalize is not None:
            finalize()

    def _item(self, i: Any) -> Any:
        try:
            kind = self._kind[i]
            if kind:
                return self._flats[kind][self._begins[i] : self._ends[i]]
        except (IndexError, TypeError):  # a slice, a wrong number, the first record of its kind
            pass
        return self._look(i)

    def _look(self, i: SupportsIndex | slice) -> Any:
        """As `_item`, for all that is not an array of a kind that was asked for before."""
        if isinstance(i, slice):
            return [self._item(k) for k in range(*i.indices(self._n))]
        k = index(i)
        if not -self._n <= k < self._n:
            raise IndexError(f"record {k} of {self._n}")
        kind, begin, end = self._kind[k], self._begins[k], self._ends[k]
        if kind:
            number, dtype = self._kinds[kind - 1]
            row = self._row(number)
            # the dtype imported it
            self._flats[kind] = flat = sys.modules["numpy"].frombuffer(
                row, dtype, row.nbytes // dtype.itemsize)
            return flat[begin:end]
        row = self._row(begin)
        n_parts, _ = _PART.unpack_from(row, end)
        places = [_PART.unpack_from(row, end + part * _PART.size) for part in range(1, n_parts + 1)]
        header, *buffers = [row[at : at + nbytes] for at, nbytes in places]
        return pickle.loads(header, buffers=buffers)

    def _row(self, number: int) -> memoryview:
        row = self._rows.get(number)
        if row is None:
            row = self._rows[number] = self._reader.view(str(number)).buffers[0]
        return row

    def __len__(self) -> int:
        return self._n

    @property
    def nbytes(self) -> int:
        """The memory of all records, which all processes have in common."""
        return (sum(map(len, self._private[2].values())) if self._where is None
                else self._reader.usage().linked)

    def __reduce__(self) -> tuple[object, ...]:
        return ((_kept, (type(self), *self._private)) if self._where is None
                else (_attached, (type(self), *self._where)))


def _close(store: Store, pid: int) -> None:
    if pid == os.getpid():
        store.close()


def _attached(kind: type[_Records], path: str, name: str) -> _Records:
    records = kind.__new__(kind)
    records._attach(path, name)
    return records


def _kept(kind: type[_Records], header: bytes, buffers: list[bytes],
          rows: dict[int, bytes]) -> _Records:
    records = kind.__new__(kind)
    records._keep(header, buffers, rows)
    return records


class SharedList(_Records, Sequence[Any]):
    """A list of records in shared memory. Arrays of a record are views, read-only; a slice is a
    list of records. A tensor is a copy, which the reader may write to: torch has no read-only
    memory, and writes to a map would be there when the record is asked for again.

    records: read once, one after the other; a generator does. It is there until `close`, or
    until the process that made it ends. Where the partition is too small a warning says so, and
    it is as any list: pickled whole.
    """

    def __init__(self, records: Iterable[object], partition: str | None = None) -> None:
        super().__init__(records, None, partition)

    __getitem__ = _Records._item

    def __repr__(self) -> str:
        return f"<SharedList of {self._n} records>"


class SharedDict(_Records, Mapping[Hashable, Any]):
    """A mapping with its values in shared memory, as `SharedList`. Each process
    has the keys for itself."""

    def __init__(self, mapping: Mapping[Hashable, object] | Iterable[tuple[Hashable, object]],
                 partition: str | None = None) -> None:
        keys: list[object] = []
        items = mapping.items() if isinstance(mapping, Mapping) else mapping
        super().__init__(
            (keys.append(key) or value for key, value in items),  # type: ignore[func-returns-value]
            keys, partition)

    def _open(self, header: Buffer, buffers: Sequence[memoryview]) -> None:
        super()._open(header, buffers)
        self._index = dict(zip(self._keys or (), itertools.count()))

    def __getitem__(self, key: Hashable) -> Any:
        return self._item(self._index[key])

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def __repr__(self) -> str:
        return f"<SharedDict of {len(self)} records>"
