# SPDX-License-Identifier: Apache-2.0
"""The C extension: the library's calls as they are. `shmstore` puts mapping, pickling and named tuples on top."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Self, Union, final

if sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    Buffer = Any  # what has the buffer protocol

Key = Union[str, bytes]

class Error(OSError):
    """A call into the library failed. `errno` is one of the library's closed list; the message says what, why, what to do."""

class ClosedError(Error, ValueError):
    """The store was closed. `errno` is EBADF."""

class Partition:
    def __new__(
        cls, path: str | os.PathLike[str] | None = None, create: bool = False, allow_disk: bool = False, shared: bool = False
    ) -> Self: ...
    @property
    def path(self) -> str:
        """The canonical absolute path."""
    def find_peer(self, address: str) -> str | None:
        """The name of the live store known by that address, or None."""
    def _usage(self, full: bool) -> tuple[int, ...]: ...
    def _gc(self, dry_run: bool) -> tuple[Any, ...]: ...
    def _stores(self) -> list[tuple[Any, ...]]: ...
    def _reconcile(self) -> tuple[tuple[int, ...], list[tuple[Any, ...]]]: ...
    def _verify(self) -> list[tuple[Any, ...]]: ...
    def _info(self) -> tuple[Any, ...]: ...

class Store:
    def __new__(
        cls,
        partition: Partition,
        name: str,
        keep: bool = False,
        label: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        recycle_max: int | None = None,
        readonly: bool = False,
        adopt: bool = False,
        fresh: bool = False,
        daemon: str = "auto",
        wait: float | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str:
        """The store's absolute directory."""
    @property
    def partition(self) -> Any: ...
    @property
    def closed(self) -> bool: ...
    def put_buffers(
        self, key: Key, header: Buffer, buffers: Iterable[Buffer], replace: bool = False, checksum: bool = False
    ) -> None:
        """Stores one object: all of it or nothing. Each buffer is any contiguous (C or F) memory and is copied once.

        Where header and buffers are those of a live, unwritten view of this store, nothing is copied: a second link.
        Raises Error: EEXIST (without replace), ENOSPC (nothing is left behind), EINVAL, ...
        """
    def view(self, key: Key, cow: bool = False, verify: bool = False) -> View:
        """Maps an object, whatever its size, without keeping a file descriptor. KeyError where there is none.

        cow: its buffers are writable, private to this view. verify: check the buffers' checksum, if it has one (EBADMSG).
        """
    def create(
        self, key: Key, header_size: int, buffer_sizes: Sequence[int], replace: bool = False, checksum: bool = False
    ) -> Writer:
        """Reserves an object and hands out writable memory for it. A full partition is ENOSPC now, never SIGBUS later."""
    def contains(self, key: Key) -> bool: ...
    def delete(self, key: Key) -> None:
        """Removes the key. KeyError where there is none."""
    def set_address(self, address: str | None) -> None:
        """Makes the store known to peers (`Partition.find_peer`) by an address; None or "" withdraws it."""
    def asked(self) -> int:
        """Bytes that the host daemon asks this store to give back and that it has not given since; 0: none. No system call."""
    def daemon_fd(self) -> int | None:
        """For event loops: a descriptor, the store's own, that is readable when the daemon says something; None: no daemon."""
    def daemon_dispatch(self) -> bool:
        """Hears the daemon, or looks for it (once a second at most). Whether the store is registered with it."""
    def close(self) -> None:
        """Closes the store: removes it and its objects unless keep. Waits for calls in other threads. Idempotent."""
    def _handoff(self, key: Key, lease_ms: int, user: int | None) -> tuple[str, int, int]: ...
    def _adopt(self, key: Key, path: str, header_size: int, buffer_size: int, replace: bool, verify: bool) -> None: ...
    def _usage(self) -> tuple[int, ...]: ...
    def _objects(self) -> list[tuple[Any, ...]]: ...
    def _keys(self) -> list[Key]: ...

@final
class View:
    """A mapped object. It, its memoryviews and all that is made over them keep the memory, whatever becomes of key and store.

    memoryview(view) is its buffer where it has exactly one (or an empty one where it has none), else BufferError. May be
    weakly referenced: it is alive as long as any of its memoryviews, hence any array over it, is.
    """

    @property
    def key(self) -> Key: ...
    @property
    def header(self) -> bytes:
        """The header, copied."""
    @property
    def header_view(self) -> memoryview:
        """The header in the mapped memory, read-only."""
    @property
    def buffers(self) -> tuple[memoryview, ...]:
        """The buffers in the mapped memory, writable only with cow. Made anew at each access."""
    @property
    def nbytes(self) -> int:
        """The sum of the buffers' sizes."""
    @property
    def cow(self) -> bool: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Writer:
    """An object being written. A context manager: seals where its block ends well, aborts where it raises.

    Every memoryview from it, and every array over one, must be released before `seal`, else BufferError and the writer
    stays open. After `abort` they stay usable; the memory goes with the last of them. Not inherited by a forked child.
    """

    @property
    def key(self) -> Key: ...
    @property
    def header(self) -> memoryview:
        """Writable memory for the header. Made anew at each access."""
    @property
    def buffers(self) -> tuple[memoryview, ...]:
        """Writable memory for the buffers. Made anew at each access."""
    @property
    def nbytes(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def seal(self) -> None:
        """Publishes the object. Raises BufferError (still open), or Error: EEXIST, ... (the object is dropped)."""
    def abort(self) -> None:
        """Drops the object. Idempotent; nothing to do after `seal`."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...

@final
class _Unlocked:
    """Exports the memory of another object as if it were writable, so that a pickle does not mark it read-only."""

    def __new__(cls, obj: Buffer) -> Self: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def default_path() -> str:
    """The partition used where none is named: $SHMSTORE_PARTITION, else the one chosen when the library was built."""

def strerror(errno: int) -> str:
    """What a code means in this library."""

def version() -> str:
    """The library's version, "major.minor.patch"."""

def ticket_format(path: str, header_size: int, buffer_size: int) -> str: ...
def ticket_parse(text: str) -> tuple[str, int, int]: ...
