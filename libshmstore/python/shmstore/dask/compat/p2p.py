# SPDX-License-Identifier: Apache-2.0
"""Stock's P2P shuffles and rechunks: one run of them on one worker, of which this package changes how shards travel and where they wait.

    2024.12 to 2026.8, in this form. On a Dask without one of the names (probe.P2P) P2P is stock's.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from typing import Any

from .probe import P2P, missing_of

#: What this Dask lacks of it.
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


class Waiting:
    """Where a run's shards wait until they are read: on disk, unless `through` says else. None of it where stock keeps them in memory."""

    def __init__(self, run: Any) -> None:
        from distributed.shuffle._disk import DiskShardsBuffer

        self._run, self._buffer = run, run._disk_buffer
        self.on_disk = type(self._buffer) is DiskShardsBuffer
        if self.on_disk:
            self.stock_keep, self.stock_read = self._buffer._process, self._buffer.read
            self.stock_get, self.stock_close = run._get_output_partition, self._buffer.close
            self.deserialize: Callable[[Any], Any] = run.deserialize

    def through(self, keep: Any, read: Any, got: Callable[[str], None], closed: Callable[[], None]) -> None:
        """keep(id, shards) is awaited; read(id), in a thread, returns a list of shards. got: that partition was made; closed: the run has ended."""

        def get(partition_id: Any, *args: Any, **kwargs: Any) -> Any:
            result = self.stock_get(partition_id, *args, **kwargs)
            got("_".join(str(i) for i in (partition_id if isinstance(partition_id, tuple) else (partition_id,))))
            return result

        async def close() -> None:
            try:
                await self.stock_close()
            finally:
                closed()

        self._buffer._process, self._buffer.read, self._buffer.close = keep, read, close
        self._run._get_output_partition = get

    def check(self) -> None:
        """Raises where nothing may be read, as stock does."""
        self._buffer.raise_on_exception()
        if not self._buffer._inputs_done:
            raise RuntimeError("Tried to read from a shuffle before all its shards were there")
