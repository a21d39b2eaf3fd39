# SPDX-License-Identifier: Apache-2.0
"""zarr's chunks once per host: a store of zarr 3 that keeps what it reads of another one in a `shmstore.Cache`.

>>> chunks = CachedStore(zarr.storage.FsspecStore.from_url("s3://…"), shmstore.Cache("chunks", max_bytes=8 << 30))
>>> array = zarr.open_array(chunks, mode="r")

All processes that open the same address share the chunks, as they are encoded. Whole values are kept; a range that is asked for alone passes
by. The source must not change, or has to be given another `version`.
"""

from __future__ import annotations

import asyncio
from typing import Any

try:
    from zarr.storage import WrapperStore
except ImportError as error:
    raise ImportError("shmstore.zarr is a store of zarr 3: pip install zarr") from error

from .caching import Cache


class CachedStore(WrapperStore):  # type: ignore[type-arg,misc]
    """What is read of source, from the cache. Writes go to source, and their values leave the cache."""

    def __init__(self, source: Any, cache: Cache, version: Any = None) -> None:
        super().__init__(source)
        self._cache, self._version = cache, version

    def _with_store(self, store: Any) -> CachedStore:
        return type(self)(store, self._cache, self._version)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """As zarr's."""
        if byte_range is not None:
            return await self._store.get(key, prototype, byte_range)
        name = str(self._store), key
        try:
            version, raw = self._cache[name]
        except KeyError:
            version = raw = None
        if raw is None or version != self._version:
            found = await self._store.get(key, prototype)
            if found is None:
                return None
            raw = await asyncio.to_thread(self._keep, name, found.to_bytes())
        return prototype.buffer.from_bytes(raw)

    def _keep(self, name: tuple[str, str], raw: bytes) -> Any:
        return self._cache.get_or_create(name, lambda: (self._version, memoryview(raw)), version=self._version)[1]

    async def set(self, key: str, value: Any, *args: Any) -> None:
        """As zarr's."""
        await self._store.set(key, value, *args)
        self._cache.invalidate((str(self._store), key))

    async def delete(self, key: str) -> None:
        """As zarr's."""
        await self._store.delete(key)
        self._cache.invalidate((str(self._store), key))
