# SPDX-License-Identifier: Apache-2.0
"""Stock's P2P shuffles and rechunks: one run of them on one worker, of which this package changes
how shards travel.

    2024.12 to 2026.8, in this form. On a Dask without one of the names (probe.P2P) P2P is stock's.

Stock copies each shard out of its input, and then again: into a message, a file, a table. Here a
shard is copied once, from the input into memory that its receiver maps: the shards of an input
partition for one worker are one range of bytes and an index of it. Packing is pure.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from .probe import P2P, missing_of

if TYPE_CHECKING:
    import numpy
    import pandas
    import pyarrow
    from distributed import Worker
    from distributed.shuffle._core import NDIndex, ShuffleRun
    from typing_extensions import Buffer

    Id = Union[int, NDIndex]  #: of an output partition
    Run = ShuffleRun[Any, Any]
    Answer = Mapping[str, object]  #: of a peer that got shards
    Send = Callable[[str, list[Any]], Awaitable[Answer]]
    Split = Callable[[Any, Any], dict[str, tuple[Id, Any]]]

_ALIGN = 64


class Range(NamedTuple):
    """Place of a shard of output partition `id`; `what` is its reader's information."""

    id: Id
    offset: int
    nbytes: int
    what: Any


class Packed(NamedTuple):
    """Shards on their way into memory: write(memory) fills so many bytes.

    Nothing of that memory is in use when it returns, not even in its frames: Dask's profiler keeps
    these for a while, and what they refer to.
    """

    index: list[Range]  # type: ignore[assignment]  # a tuple has a method of that name
    nbytes: int
    write: Callable[[memoryview], None]


def _packed(parts: Sequence[tuple[Range, object]], nbytes: int,
            put: Callable[..., None]) -> Packed:
    def write(memory: memoryview) -> None:
        for range, part in parts:
            put(part, memory, range)

    return Packed([range for range, _ in parts], nbytes, write)


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


# ---- arrays: a shard is (its place in the output chunk, an array) --------------------------------


def pack_array(
    data: numpy.ndarray, splits: Iterable[list[tuple[int, int, slice]]],
    worker_for: Mapping[Id, str], at_least: int = 0
) -> dict[str, Packed] | None:
    """By worker, what of an input chunk goes there. splits: for each axis how this chunk is split
    on it. None: it is not plain memory, or less."""
    import numpy as np

    if (type(data) is not np.ndarray or data.dtype.hasobject or not data.dtype.itemsize or
        data.nbytes < at_least):
        return None
    parts: dict[str, list[tuple[Range, numpy.ndarray]]] = {}
    ends: dict[str, int] = {}
    for split in product(*splits):
        id, place, where = zip(*split)
        part = data[where]
        worker = worker_for[id]
        begin = ends.get(worker, 0)
        parts.setdefault(worker, []).append(
            (Range(id, begin, part.nbytes, (place, part.dtype, part.shape)), part))
        ends[worker] = begin + _aligned(part.nbytes)
    return {worker: _packed(parts[worker], ends[worker], _write_array) for worker in parts}


def _write_array(part: numpy.ndarray, memory: memoryview, range: Range) -> None:
    _array_at(memory, range)[...] = part


def _array_at(memory: memoryview, range: Range) -> numpy.ndarray:
    import numpy as np

    _, dtype, shape = range.what
    return np.ndarray(shape, dtype, memory, range.offset)


def array_shards(index: list[Range],
                 memory: memoryview) -> Iterator[tuple[Id, tuple[object, numpy.ndarray]]]:
    """(output partition, shard) of all that lies there; its memory is not copied."""
    for range in index:
        yield range.id, (range.what[0], _array_at(memory, range))


# ---- frames: a shard is a table of Arrow's, as a stream ------------------------------------------


def pack_frame(frame: pandas.DataFrame, column: str, drop: bool, worker_for: Mapping[int, str],
               at_least: int = 0) -> dict[str, Packed] | None:
    """By worker, what of a frame goes there. column: that which says which output partition a row
    goes to; drop: that one does not go itself.
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
    # the rows of a worker lie together
    order = sorted(range(len(ids)), key=lambda i: (workers[i], ids[i]))
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
    parts: dict[str, list[tuple[Range, pyarrow.Table]]] = {}
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
    return {worker: _packed(parts[worker], sizes[worker], lambda part, memory, range: _write_stream(
        _Place(memory, range.offset), part)) for worker in parts}


def _stream_size(table: pyarrow.Table) -> int:
    import pyarrow as pa

    sink = pa.MockOutputStream()
    _write_stream(sink, table)
    return int(sink.size())


def _write_stream(sink: object, table: pyarrow.Table) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


class _Place:
    """A file, to Arrow: what it writes is copied to there. A buffer of Arrow's over that memory
    would be in use for as long as Arrow likes."""

    closed = False

    def __init__(self, memory: memoryview, begin: int) -> None:
        self._memory, self._begin, self._end = memory, begin, begin

    def write(self, data: Buffer) -> int:
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


def streams(index: list[Range], memory: memoryview) -> Iterator[tuple[Any, memoryview]]:
    """(output partition, stream) of all that lies there; not copied."""
    for range in index:
        yield range.id, memory[range.offset : range.offset + range.nbytes]


#: Hooks that this Dask lacks.
missing_hooks = missing_of(P2P)


def each_run(worker: Worker, take: Callable[[Run], object]) -> None:
    """take(run) of each run that this worker will have and whose shards wait on disk, before one
    comes or goes. Once of each worker. Those that wait in memory must not share theirs: it would
    stay until the last output has been made."""
    plugin: Any = worker.plugins.get("shuffle")
    if missing_hooks or plugin is None:
        return
    from distributed.shuffle._disk import DiskShardsBuffer

    manager = plugin.shuffle_runs
    refresh = manager._refresh
    taken: weakref.WeakSet[Run] = weakref.WeakSet()

    async def refreshed(*args: object, **kwargs: object) -> Run:
        run: Run = await refresh(*args, **kwargs)
        if run not in taken and isinstance(run._disk_buffer, DiskShardsBuffer):
            taken.add(run)
            take(run)
        return run

    manager._refresh = refreshed


class Sending:
    """How a run sends: `through` replaces it. A message takes up to so many bytes at least."""

    def __init__(self, run: Run) -> None:
        self._run, self._buffer = run, run._comm_buffer
        self.stock: Send = self._buffer.send

    def through(self, send: Send, message_bytes: int) -> None:
        self._buffer.send = send  # type: ignore[assignment]
        self._buffer.max_message_size = max(self._buffer.max_message_size, message_bytes)

    async def once(self, address: str, data: Any) -> Answer:
        """Sends data as it is, and does not try again. The answer."""
        return await self._run._send(address, data)


class Splitting:
    """How a run splits its inputs. `pack` does so without the copies of stock's way, `stock`."""

    @classmethod
    def of(cls, run: Run) -> Splitting | None:
        """None: it is of a kind that is not known here."""
        from distributed.shuffle._rechunk import ArrayRechunkRun
        from distributed.shuffle._shuffle import DataFrameShuffleRun

        if type(run) is ArrayRechunkRun:
            return _Arrays(run)
        return _Frames(run) if type(run) is DataFrameShuffleRun else None

    def __init__(self, run: Any) -> None:
        self._run = run
        self.stock: Split = run._shard_partition
        self.worker_for: dict[Any, str] = dict(run.worker_for.items())
        self.workers = set(self.worker_for.values())

    def pack(self, data: object, partition_id: Id, at_least: int) -> dict[str, Packed] | None:
        """By worker; None where only stock can, or data are fewer bytes than at_least."""
        raise NotImplementedError

    def by_output(self, partition_id: Id, index: list[Range],
                  memory: memoryview) -> Mapping[Id, object]:
        """The shards of each output partition, as stock's `_write_to_disk` takes them."""
        raise NotImplementedError

    def as_stock(self, partition_id: Id, index: list[Range],
                 memory: memoryview) -> tuple[Id, object]:
        """The value of `stock` for that worker."""
        raise NotImplementedError

    async def receive(self, partition_id: Id, index: list[Range], memory: memoryview) -> None:
        """This worker's part of an input is here: as the run's own `_receive`."""
        run = self._run
        run.raise_if_closed()
        if partition_id in run.received:
            return
        run.received.add(partition_id)
        run.total_recvd += memory.nbytes
        try:
            await run._write_to_disk(await run.offload(self.by_output, partition_id, index, memory))
        except Exception as error:
            run._exception = error
            raise

    @staticmethod
    def count(packed: dict[str, Packed]) -> None:
        """Into stock's metrics."""
        from distributed.metrics import context_meter

        context_meter.digest_metric("p2p-shards", sum(part.nbytes for part in packed.values()),
                                    "bytes")
        context_meter.digest_metric("p2p-shards", sum(len(part.index) for part in packed.values()),
                                    "count")


class _Arrays(Splitting):
    def pack(self, data: object, partition_id: Any, at_least: int) -> dict[str, Packed] | None:
        splits = [axis[i] for axis, i in zip(self._run.split_axes, partition_id)]
        return pack_array(data, splits, self.worker_for, at_least)

    def by_output(self, partition_id: Id, index: list[Range],
                  memory: memoryview) -> Mapping[Id, object]:
        shards: dict[Id, list[object]] = {}
        for id, shard in array_shards(index, memory):
            shards.setdefault(id, []).append(shard)
        return shards

    def as_stock(self, partition_id: Id, index: list[Range],
                 memory: memoryview) -> tuple[Id, object]:
        return partition_id, list(array_shards(index, memory))


class _Frames(Splitting):
    def pack(self, data: object, partition_id: Id, at_least: int) -> dict[str, Packed] | None:
        return pack_frame(data, self._run.column, self._run.drop_column, self.worker_for, at_least)

    def by_output(self, partition_id: Id, index: list[Range],
                  memory: memoryview) -> Mapping[Id, object]:
        import numpy as np
        import pyarrow as pa
        from distributed.shuffle._arrow import _INPUT_PARTITION_ID_COLUMN, serialize_table

        shards: dict[Id, object] = {}
        for id, stream in streams(index, memory):
            table = self._run.deserialize(stream)
            shards[id,] = serialize_table(table.append_column(
                _INPUT_PARTITION_ID_COLUMN,
                pa.array(np.full(table.num_rows, partition_id, np.uint32))))
        return shards

    def as_stock(self, partition_id: Id, index: list[Range],
                 memory: memoryview) -> tuple[Id, object]:
        """One table, which says of each row where it goes."""
        import numpy as np
        import pyarrow as pa
        from distributed.shuffle._arrow import serialize_table

        column, meta = self._run.column, self._run.meta
        tables = []
        for id, stream in streams(index, memory):
            table = self._run.deserialize(stream)
            if self._run.drop_column:
                ids = pa.array(np.full(table.num_rows, id, meta[column].dtype))
                table = table.add_column(list(meta.columns).index(column), column, ids)
            tables.append(table)
        return partition_id, serialize_table(pa.concat_tables(tables, promote_options="permissive"))
