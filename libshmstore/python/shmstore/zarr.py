# SPDX-License-Identifier: Apache-2.0
"""zarr's chunks once per host: a store of zarr 3 that keeps what it reads of
another one in a `shmstore.Cache`.

>>> chunks = CachedStore(zarr.storage.FsspecStore.from_url("s3://…"), shmstore.Cache("chunks",
max_bytes=8 << 30)) >>> array = zarr.open_array(chunks, mode="r")

All processes that open the same address share the chunks, as they are encoded: one of them fetches
a chunk, and all others wait for it. Whole values are kept; a range that is asked for alone passes
by. The source must not change, or has to be given another `version`.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

try:
    from zarr.storage import WrapperStore
except ImportError as error:
    raise ImportError("shmstore.zarr is a store of zarr 3: pip install zarr") from error

from .caching import Cache

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest, Store
    from zarr.core.buffer import Buffer, BufferPrototype

_N_THREADS = 16
# asyncio's own ones are for sources, for which these wait
_threads = ThreadPoolExecutor(_N_THREADS, __name__)


def _begin_in_child() -> None:
    global _threads
    _threads = ThreadPoolExecutor(_N_THREADS, __name__)


os.register_at_fork(after_in_child=_begin_in_child)


class _Missing(Exception):
    """The source has no such key."""


class CachedStore(WrapperStore):  # type: ignore[misc]
    """Reads come from the cache, which has what was read of source. Writes go to source,
    and their values leave the cache."""

    def __init__(self, source: Store, cache: Cache, version: object = None) -> None:
        super().__init__(source)
        self._cache, self._version = cache, version

    def _with_store(self, store: Store) -> CachedStore:
        return type(self)(store, self._cache, self._version)

    async def get(self, key: str, prototype: BufferPrototype,
                  byte_range: ByteRequest | None = None) -> Buffer | None:
        """As zarr's."""
        if byte_range is not None:
            return await self._store.get(key, prototype, byte_range)
        name = str(self._store), key
        raw = self._cache.get(name, version=self._version)
        if raw is None:
            loop = asyncio.get_running_loop()

            def fetch() -> memoryview:
                found = asyncio.run_coroutine_threadsafe(self._store.get(key, prototype),
                                                         loop).result()
                if found is None:
                    raise _Missing
                return memoryview(found.to_bytes())

            try:
                raw = await loop.run_in_executor(_threads, lambda: self._cache.get_or_create(
                    name, fetch, version=self._version))
            except _Missing:
                return None
        return prototype.buffer.from_bytes(raw)

    async def set(self, key: str, value: Buffer, *args: object) -> None:
        """As zarr's."""
        await self._store.set(key, value, *args)
        self._cache.invalidate((str(self._store), key))

    async def delete(self, key: str) -> None:
        """As zarr's."""
        await self._store.delete(key)
        self._cache.invalidate((str(self._store), key))
