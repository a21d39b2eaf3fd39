# SPDX-License-Identifier: Apache-2.0
"""fsspec's shm://store/key: the objects of a partition as files, for
libraries that read and write by URL.

>>> with fsspec.open("shm://data/part-0", "wb") as file: ...      # an object of one buffer
>>> pandas.read_parquet("shm://data/part-0")

A file is read where it lies: nothing is copied before it is asked for. Writing opens a kept store
of that name, until the next file of another store is written or the process ends; another process
that has it open is Error EBUSY. `storage_options={"partition": path}` names a partition.
"""

from __future__ import annotations

import errno
import io
import threading
from typing import Any

try:
    from fsspec.spec import AbstractFileSystem
except ImportError as error:
    raise ImportError("shmstore.fsspec is a file system of fsspec: pip install fsspec") from error

from ._shmstore import default_path
from .errors import Error
from .partition import Partition
from .store import Store

_GONE = (errno.ENOENT, errno.ESTALE)


class _Reading(io.RawIOBase):
    """A view as a file."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0
        self.size = data.nbytes

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._data[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def readall(self) -> bytes:
        part = bytes(self._data[self._at :])
        self._at = self.size
        return part

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self.size)[whence])
        return self._at


class _Writing(io.BytesIO):
    """A file whose bytes become an object when it is closed without an error."""

    def __init__(self, store: Store, key: str) -> None:
        super().__init__()
        self._store, self._key = store, key

    def close(self) -> None:
        if not self.closed:
            self._store.put_buffers(self._key, b"", [self.getbuffer()], replace=True)
        super().close()

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is not None:
            super().close()
        self.close()


class ShmFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Is made by fsspec."""

    protocol = "shm"
    cachable = True

    def __init__(self, partition: str | None = None, **options: object) -> None:
        super().__init__(**options)
        self._partition = Partition(partition or default_path(), create=True)
        self._writing: Store | None = None
        self._lock = threading.Lock()

    def _split(self, path: str) -> tuple[str, str]:
        store, _, key = self._strip_protocol(path).strip("/").partition("/")
        return store, key

    def _reader(self, name: str) -> Store:
        try:
            return self._partition.open(name, readonly=True)
        except Error as error:
            if error.errno in _GONE:
                raise FileNotFoundError(errno.ENOENT, "there is no such store",
                                        f"shm://{name}") from error
            raise

    def _owned(self, name: str) -> Store:
        with self._lock:
            if self._writing is None or self._writing.closed or self._writing.name != name:
                if self._writing is not None:
                    self._writing.close()
                self._writing = self._partition.open(name, keep=True)
            return self._writing

    def _open(self, path: str, mode: str = "rb", **options: object) -> io.IOBase:
        name, key = self._split(path)
        if mode not in ("rb", "wb"):
            raise ValueError(f"shm:// has files that are read (rb) or written whole (wb), not "
                             f"{mode!r}")
        if mode == "wb":
            return _Writing(self._owned(name), key)
        with self._reader(name) as store:
            try:
                return _Reading(memoryview(store.view(key)))
            except KeyError:
                raise FileNotFoundError(errno.ENOENT, "there is no such object", path) from None

    def ls(self, path: str, detail: bool = True, **options: object) -> Any:
        name, key = self._split(path)
        if not name:
            found = [{"name": store.name, "size": 0, "type": "directory"}
                     for store in self._partition.stores()]
        else:
            with self._reader(name) as store:
                objects = [{"name": f"{name}/{info.key}", "size": info.buffer_size, "type": "file"}
                           for info in store.objects()
                           if isinstance(info.key, str)]
            found = [one for one in objects if not key or one["name"] == f"{name}/{key}"]
            if not found and key:
                prefix = f"{name}/{key}/"
                found = [one for one in objects if str(one["name"]).startswith(prefix)]
                if not found:
                    raise FileNotFoundError(errno.ENOENT, "there is no such object", path)
        return found if detail else sorted(str(one["name"]) for one in found)

    def info(self, path: str, **options: object) -> dict[str, Any]:
        name, key = self._split(path)
        if key:
            found = [one for one in self.ls(path) if one["name"] == f"{name}/{key}"]
            return found[0] if found else {"name": f"{name}/{key}", "size": 0, "type": "directory"}
        if name:
            self._reader(name).close()
        return {"name": name, "size": 0, "type": "directory"}

    def _rm(self, path: str) -> None:
        name, key = self._split(path)
        if key:
            self._owned(name).delete(key)
            return
        with self._lock:
            if self._writing is not None and self._writing.name == name:
                self._writing.close()
                self._writing = None
        self._partition.open(name, fresh=True).close()

    def mkdir(self, path: str, create_parents: bool = True, **options: object) -> None:
        """Stores are made when they are written to."""
