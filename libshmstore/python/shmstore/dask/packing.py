# SPDX-License-Identifier: Apache-2.0
"""A P2P input partition's shards for one worker, as one range of bytes and an index of it.

Stock copies each shard out of its input, and then again: into a message, a file, a table. Here a shard is copied once, from the input into
memory that its receiver maps. Pure: nothing here knows of stores or workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy
    import pyarrow

_ALIGN = 64


class Range(NamedTuple):
    """Place of a shard of output partition `id`; `what` is its reader's information."""

    id: Any
    offset: int
    nbytes: int
    what: Any


class Packed(NamedTuple):
    """Shards on their way into memory: write(memory) fills so many bytes.

    Nothing of that memory is in use when it returns, not even in its frames: Dask's profiler keeps these for a while, and what they refer to.
    """

    index: list[Range]
    nbytes: int
    write: Callable[[memoryview], None]


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


# ---- arrays: a shard is (its place in the output chunk, an array) ---------------------------------------------------------


def pack_array(
    data: numpy.ndarray[Any, Any], splits: Iterable[list[Any]], worker_for: Mapping[Any, str], at_least: int = 0
) -> dict[str, Packed] | None:
    """By worker, what of an input chunk goes there. splits: for each axis how this chunk is split on it. None: it is not plain memory, or less."""
    import numpy as np

    if type(data) is not np.ndarray or data.dtype.hasobject or not data.dtype.itemsize or data.nbytes < at_least:
        return None
    parts: dict[str, list[tuple[Range, Any]]] = {}
    ends: dict[str, int] = {}
    for split in product(*splits):
        id, place, where = zip(*split)
        part = data[where]
        worker = worker_for[id]
        begin = ends.get(worker, 0)
        parts.setdefault(worker, []).append((Range(id, begin, part.nbytes, (place, part.dtype, part.shape)), part))
        ends[worker] = begin + _aligned(part.nbytes)
    return {worker: Packed([range for range, _ in parts[worker]], ends[worker], _array_writer(parts[worker])) for worker in parts}


def _array_writer(parts: list[tuple[Range, Any]]) -> Callable[[memoryview], None]:
    def write(memory: memoryview) -> None:
        for range, part in parts:
            target = _array_at(memory, range)
            target[...] = part
            del target

    return write


def _array_at(memory: memoryview, range: Range) -> Any:
    import numpy as np

    _, dtype, shape = range.what
    return np.ndarray(shape, dtype, memory, range.offset)


def array_shards(index: list[Range], memory: memoryview) -> Iterator[tuple[Any, tuple[Any, Any]]]:
    """(output partition, shard) of all that lies there; its memory is not copied."""
    for range in index:
        yield range.id, (range.what[0], _array_at(memory, range))


# ---- frames: a shard is a table of Arrow's, as a stream -------------------------------------------------------------------


def pack_frame(frame: Any, column: str, drop: bool, worker_for: Mapping[Any, str], at_least: int = 0) -> dict[str, Packed] | None:
    """By worker, what of a frame goes there. column: that which says which output partition a row goes to; drop: that one does not go itself.
    None: it is no frame of pandas, or less."""
    import numpy as np
    import pandas as pd
    from dask.dataframe.dispatch import to_pyarrow_table_dispatch

    if type(frame) is not pd.DataFrame or not len(frame) or frame.memory_usage().sum() < at_least:
        return None
    if not isinstance(frame[column].dtype, np.dtype) or frame[column].dtype.kind not in "iu":
        return None
    codes = frame[column].to_numpy()
    ids = np.fromiter(worker_for, np.int64, len(worker_for))
    workers = list(worker_for.values())
    order = sorted(range(len(ids)), key=lambda i: (workers[i], ids[i]))  # the rows of a worker lie together
    low, high = int(min(codes.min(), ids.min())), int(max(codes.max(), ids.max()))
    if high - low > 1 << 20:  # no partitions of Dask's
        return None
    rank = np.full(high - low + 1, len(ids), np.int32)  # rows of no partition come last
    rank[ids[order] - low] = np.arange(len(ids))
    ranks = rank[codes - low]
    if len(ids) < 1 << 15:
        ranks = ranks.astype(np.int16)  # sorted by radix
    rows = np.argsort(ranks, kind="stable")
    ends = np.cumsum(np.bincount(ranks, minlength=len(ids) + 1))[: len(ids)]
    table = to_pyarrow_table_dispatch(frame, preserve_index=True)
    if drop:
        table = table.drop([column])
    table = table.take(rows[: ends[-1]])
    parts: dict[str, list[tuple[Range, Any]]] = {}
    sizes: dict[str, int] = {}
    begin = 0
    for i, end in zip(order, map(int, ends)):
        if end > begin:
            part = table.slice(begin, end - begin)
            size = _stream_size(part)
            at = sizes.get(workers[i], 0)
            parts.setdefault(workers[i], []).append((Range(int(ids[i]), at, size, None), part))
            sizes[workers[i]] = at + _aligned(size)
            begin = end
    return {worker: Packed([range for range, _ in parts[worker]], sizes[worker], _stream_writer(parts[worker])) for worker in parts}


def _stream_size(table: pyarrow.Table) -> int:
    import pyarrow as pa

    sink = pa.MockOutputStream()
    _write_stream(sink, table)
    return int(sink.size())


def _write_stream(sink: Any, table: pyarrow.Table) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _stream_writer(parts: list[tuple[Range, Any]]) -> Callable[[memoryview], None]:
    def write(memory: memoryview) -> None:
        for range, part in parts:
            _write_stream(_Place(memory, range.offset), part)

    return write


class _Place:
    """A file, to Arrow: what it writes is copied to there. A buffer of Arrow's over that memory would be in use for as long as Arrow likes."""

    closed = False

    def __init__(self, memory: memoryview, begin: int) -> None:
        self._memory, self._begin, self._end = memory, begin, begin

    def write(self, data: Any) -> int:
        with memoryview(data).cast("B") as source:
            begin, self._end = self._end, self._end + source.nbytes
            self._memory[begin : self._end] = source
            return source.nbytes

    def tell(self) -> int:
        return self._end - self._begin

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def streams(index: list[Range], memory: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(output partition, stream) of all that lies there; not copied."""
    for range in index:
        yield range.id, memory[range.offset : range.offset + range.nbytes]
