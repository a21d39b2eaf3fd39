# SPDX-License-Identifier: Apache-2.0
"""An IO manager of Dagster whose steps map what other steps made, instead
of reading and unpickling it.

>>> defs = Definitions(assets=[…], resources={"io_manager": ShmIOManager()})

It writes the files that Dagster's own `FilesystemIOManager` writes, and keeps the values of
64 KiB and more in a `shmstore.Cache` besides: a step that loads one maps it, arrays
writable, copy-on-write, and nobody else sees the writes. So no run depends on shared
memory: what was evicted, or went with a restart of the host, is read from its file by one
process, and mapped by all others.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TypeVar

try:
    from dagster import (ConfigurableIOManagerFactory, InitResourceContext, InputContext,
                         OutputContext, UPathIOManager)
    from upath import UPath
except ImportError as error:
    raise ImportError(
        "shmstore.dagster is an IO manager of Dagster: pip install dagster") from error

from .caching import Cache
from .messages import MIN_SIZE

T = TypeVar("T")


class _Manager(UPathIOManager):  # type: ignore[misc]
    """Is made by `ShmIOManager`."""

    def __init__(self, directory: str, cache: Cache) -> None:
        super().__init__(UPath(directory))
        self._cache = cache

    def dump_to_path(self, context: OutputContext, obj: object, path: UPath) -> None:
        """As Dagster's."""
        path.write_bytes(pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL))
        self._cached(path, lambda: obj)

    def load_from_path(self, context: InputContext, path: UPath) -> object:
        """As Dagster's."""
        return self._cached(path, lambda: pickle.loads(path.read_bytes()))

    def _cached(self, path: UPath, value: Callable[[], T]) -> T:
        """The value of the file as it is now; value: gives it where the cache has not got it."""
        info = path.stat()
        if info.st_size < MIN_SIZE:
            return value()
        return self._cache.get_or_create(str(path), value,
                                         version=(info.st_ino, info.st_size, info.st_mtime_ns))


class ShmIOManager(ConfigurableIOManagerFactory[_Manager]):  # type: ignore[misc]
    """An IO manager for jobs and assets, partitioned ones among them.

    base_dir: of the files; None: Dagster's storage directory. max_bytes: of shared memory; what was
    not used for longest leaves it. None: as much as the partition has. partition: its path; None:
    $SHMSTORE_PARTITION, else the default one.
    """

    base_dir: str | None = None
    max_bytes: int | None = None
    partition: str | None = None

    def create_io_manager(self, context: InitResourceContext) -> _Manager:
        """As Dagster's."""
        return _Manager(self.base_dir or context.instance.storage_directory(),
                        Cache("dagster", self.max_bytes, partition=self.partition))
