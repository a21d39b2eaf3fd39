# SPDX-License-Identifier: Apache-2.0
"""Stock's P2P shuffles and rechunks: one run of them on one worker, of which this package changes how shards travel and where they wait.

    2024.12 to 2026.8, in this form. On a Dask without one of the names (probe.P2P) P2P is stock's.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from distributed import get_worker
from distributed.utils import sync

from ..packing import Packed, Range, array_shards, pack_array, pack_frame, streams
from .asking import ask_scheduler
from .probe import P2P, missing_of

#: Hooks that this Dask lacks.
missing_hooks = missing_of(P2P)


def each_run(worker: Any, take: Callable[[Any], None]) -> None:
    """take(run) of each run that this worker will have, before a shard of it comes or goes. Once of each worker."""
    plugin = worker.plugins.get("shuffle")
    if missing_hooks or plugin is None:
        return
    manager = plugin.shuffle_runs
    refresh, taken = manager._refresh, weakref.WeakSet[Any]()

    async def refreshed(*args: Any, **kwargs: Any) -> Any:
        run = await refresh(*args, **kwargs)
        if run not in taken:
            taken.add(run)
            take(run)
        return run

    manager._refresh = refreshed


class Sending:
    """How a run sends: `through` replaces it. A message takes up to so many bytes at least."""

    def __init__(self, run: Any) -> None:
        self._run, self._buffer = run, run._comm_buffer
        self.stock: Callable[[str, Any], Awaitable[Any]] = self._buffer.send

    def through(self, send: Callable[[str, Any], Awaitable[Any]], message_bytes: int) -> None:
        self._buffer.send = send
        self._buffer.max_message_size = max(self._buffer.max_message_size, message_bytes)

    async def once(self, address: str, data: Any) -> Any:
        """Sends data as it is, and does not try again. The answer."""
        return await self._run._send(address, data)


class Splitting:
    """How a run splits its inputs. `pack` does so without the copies of stock's own way, `stock`."""

    @classmethod
    def of(cls, run: Any) -> Splitting | None:
        """None: it is of a kind that is not known here."""
        from distributed.shuffle._rechunk import ArrayRechunkRun
        from distributed.shuffle._shuffle import DataFrameShuffleRun

        if type(run) is ArrayRechunkRun:
            return _Arrays(run)
        return _Frames(run) if type(run) is DataFrameShuffleRun else None

    def __init__(self, run: Any) -> None:
        self._run = run
        self.stock: Callable[..., Any] = run._shard_partition
        self.worker_for: dict[Any, str] = dict(run.worker_for.items())
        self.workers = set(self.worker_for.values())

    def through(self, split: Callable[..., Any]) -> None:
        """split(data, partition_id), in the thread of a task, returns {worker: (partition_id, what goes to it)}."""
        self._run._shard_partition = split

    def pack(self, data: Any, partition_id: Any, at_least: int) -> dict[str, Packed] | None:
        """By worker; None where only stock can, or data are fewer bytes than at_least."""
        raise NotImplementedError

    def kept(self, partition_id: Any, index: list[Range], memory: memoryview) -> dict[str, list[Any]]:
        """By the name of the output partition, its shards, as Waiting.deserialize returns them, or a `Rows`."""
        raise NotImplementedError

    def as_stock(self, partition_id: Any, index: list[Range], memory: memoryview) -> Any:
        """The value of `stock` for that worker."""
        raise NotImplementedError

    def came(self, partition_id: Any, nbytes: int) -> bool:
        """This worker's part of that input is here. False: it was here already."""
        self._run.raise_if_closed()
        if partition_id in self._run.received:
            return False
        self._run.received.add(partition_id)
        self._run.total_recvd += nbytes
        return True

    @staticmethod
    def count(packed: dict[str, Packed]) -> None:
        """Into stock's metrics."""
        from distributed.metrics import context_meter

        context_meter.digest_metric("p2p-shards", sum(part.nbytes for part in packed.values()), "bytes")
        context_meter.digest_metric("p2p-shards", sum(len(part.index) for part in packed.values()), "count")


class _Arrays(Splitting):
    def pack(self, data: Any, partition_id: Any, at_least: int) -> dict[str, Packed] | None:
        splits = [axis[i] for axis, i in zip(self._run.split_axes, partition_id)]
        return pack_array(data, splits, self.worker_for, at_least)

    def kept(self, partition_id: Any, index: list[Range], memory: memoryview) -> dict[str, list[Any]]:
        shards: dict[str, list[Any]] = {}
        for id, shard in array_shards(index, memory):
            shards.setdefault(name_of(id), []).append(shard)
        return {name: [each] for name, each in shards.items()}

    def as_stock(self, partition_id: Any, index: list[Range], memory: memoryview) -> Any:
        return partition_id, list(array_shards(index, memory))


class Rows(NamedTuple):
    """A shard of a frame: rows of an input for one output partition, as a stream of Arrow's."""

    input: int
    stream: memoryview


class _Frames(Splitting):
    def pack(self, data: Any, partition_id: Any, at_least: int) -> dict[str, Packed] | None:
        return pack_frame(data, self._run.column, self._run.drop_column, self.worker_for, at_least)

    def kept(self, partition_id: Any, index: list[Range], memory: memoryview) -> dict[str, list[Any]]:
        return {name_of(id): [Rows(partition_id, stream)] for id, stream in streams(index, memory)}

    def as_stock(self, partition_id: Any, index: list[Range], memory: memoryview) -> Any:
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


def name_of(partition_id: Any) -> str:
    """Of an output partition, as stock names its file."""
    return "_".join(str(i) for i in (partition_id if isinstance(partition_id, tuple) else (partition_id,)))


class Waiting:
    """Where a run's shards wait until they are read: on disk, unless `through` says else. None of it where stock keeps them in memory."""

    def __init__(self, run: Any) -> None:
        from distributed.shuffle._disk import DiskShardsBuffer

        self._run, self._buffer = run, run._disk_buffer
        self.on_disk, self.write = type(self._buffer) is DiskShardsBuffer, self._buffer.write
        if self.on_disk:
            self.stock_keep, self.stock_read = self._buffer._process, self._buffer.read
            self.stock_get, self.stock_close = run._get_output_partition, self._buffer.close

    def deserialize(self, shard: Any) -> Any:
        """As stock's own `read` returns it."""
        if not isinstance(shard, Rows):
            return self._run.deserialize(shard)
        import numpy as np
        import pyarrow as pa
        from distributed.shuffle._arrow import _INPUT_PARTITION_ID_COLUMN

        table = self._run.deserialize(shard.stream)
        return table.append_column(_INPUT_PARTITION_ID_COLUMN, pa.array(np.full(table.num_rows, shard.input, np.uint32)))

    def as_stock(self, shards: dict[str, list[Any]]) -> dict[str, Any]:
        """`Splitting.kept`'s shards as `write` takes them, which gives them to `keep` in the end."""
        from distributed.shuffle._arrow import serialize_table

        return {id: serialize_table(self.deserialize(shard)) if isinstance(shard, Rows) else shard for id, (shard,) in shards.items()}

    def through(self, keep: Any, read: Any, got: Callable[[str, Any], None], closed: Callable[[], None]) -> None:
        """keep(id, shards) is awaited; read(id), in a thread, returns a list of shards. got: the task of that key has made that partition; closed: the run
        has ended."""

        def get(partition_id: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
            result = self.stock_get(partition_id, key, *args, **kwargs)
            got(name_of(partition_id), key)
            return result

        async def close() -> None:
            try:
                await self.stock_close()
            finally:
                closed()

        self._buffer._process, self._buffer.read, self._buffer.close = keep, read, close
        self._run._get_output_partition = get

    def begin_again(self) -> None:
        """In a reading task's thread: the run begins anew with its inputs, as where a worker was lost. Raises what has the task wait for that."""
        from distributed.shuffle._exceptions import ShuffleClosedError

        run, worker = self._run, get_worker()
        sync(worker.loop, ask_scheduler, worker, _begin_again, run.id, run.run_id)
        raise ShuffleClosedError(f"shards of {run} were given back: it begins again")

    def check(self) -> None:
        """Raises where nothing may be read, as stock does."""
        self._buffer.raise_on_exception()
        if not self._buffer._inputs_done:
            raise RuntimeError("Tried to read from a shuffle before all its shards were there")


def _begin_again(id: str, run_id: int, dask_scheduler: Any) -> None:
    """Where the scheduler runs; it goes there by value."""
    plugin, stimulus = dask_scheduler.plugins["shuffle"], f"shmstore-again-{id}-{run_id}"
    shuffle = plugin.active_shuffles.get(id)
    if shuffle is not None and shuffle.run_id == run_id:
        plugin._fail_on_workers(shuffle, "shards that were given back are needed again")
        plugin._clean_on_scheduler(id, stimulus)
        plugin._restart_shuffle(id, dask_scheduler, stimulus_id=stimulus)
