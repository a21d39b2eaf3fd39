# SPDX-License-Identifier: Apache-2.0
"""The C extension: the library's calls as they are. `shmstore` puts mapping, pickling
and named tuples on top."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Self, Union, final

import shmstore
from typing_extensions import Buffer as Buffer

Key = Union[str, bytes]
_FIELDS: dict[str, tuple[str, ...]]  # of each record that the extension fills, in its order

class Error(OSError):
    """A call into the library failed. `errno` is one of the library's closed list; the
    message says what, why, what to do.

    `filename` is the file that it is about, where it is about one (a damaged tier file).
    """

    detail: str  #: the library's own sentence about it

class ClosedError(Error, ValueError):
    """The store was closed. `errno` is EBADF."""

class Outcome(Error):
    """The arbiter's answer instead of memory."""

    outcome: int  #: the number that arbiter.h gives it
    why: str  #: the daemon's sentence: who held what; "" where it had none

class Retry(Outcome): ...
class Split(Outcome): ...
class NoMemory(Outcome, MemoryError): ...
class TooBig(Outcome): ...
class Again(Outcome): ...
class TimedOut(Outcome, TimeoutError): ...
class Canceled(Outcome): ...
class Removed(Outcome): ...
class Down(Outcome): ...
class Injected(Outcome): ...

class Partition:
    def __new__(
        cls, path: str | os.PathLike[str] | None = None, create: bool = False,
        allow_disk: bool = False, shared: bool = False
    ) -> Self: ...
    @property
    def path(self) -> str:
        """The canonical absolute path."""
    @property
    def closed(self) -> bool:
        """Whether close() was called."""
    def close(self) -> None:
        """Gives its descriptors back now, not when it is collected. Stores that were opened with
        it stay open. Idempotent."""
    def find_peer(self, address: str) -> str | None:
        """The name of the live store known by that address, or None."""
    def _usage(self, full: bool) -> tuple[int, ...]: ...
    def _gc(self, dry_run: bool) -> tuple[tuple[int, ...], list[tuple[object, ...]]]: ...
    def _stores(self) -> list[tuple[Any, ...]]: ...
    def _reconcile(self) -> tuple[tuple[int, ...], list[tuple[object, ...]]]: ...
    def _verify(self) -> list[tuple[object, ...]]: ...
    def _info(self) -> tuple[object, ...]: ...
    def _set_tier(
        self,
        path: str | os.PathLike[str] | None,
        max: int,
        min_free: int,
        level: int,
        fsync: bool,
        high: int,
        low: int,
        /,
    ) -> None: ...
    def _tier(self) -> tuple[object, ...] | None: ...
    def _evict(
        self,
        bytes: int,
        to: int,
        watermarks: bool,
        threads: int,
        background: bool,
        wait: bool,
        progress: Callable[[tuple[object, ...]], object] | None,
        user: int | None,
        /,
    ) -> tuple[object, ...]: ...

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
        arbitrate: bool = False,
        any_user: bool = False,
        pack_max: int | None = None,
        leases_with: str | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str:
        """The store's absolute directory."""
    @property
    def partition(self) -> shmstore.Partition: ...
    @property
    def closed(self) -> bool: ...
    @property
    def readonly(self) -> bool: ...
    def _wait(self, key: Key, generation: int, ms: int) -> bool: ...
    def _owner(self) -> tuple[int, bool | None]: ...
    def put_buffers(
        self,
        key: Key,
        header: Buffer,
        buffers: Iterable[Buffer],
        replace: bool = False,
        checksum: bool = False,
        pin: bool = False,
        evict: bool = True,
    ) -> None:
        """Stores one object: all of it or nothing. Each buffer is any contiguous (C or
        F) memory and is copied once.

        pin: it is never moved to the disk tier. evict: where the partition is full, others are
        moved there first. Where header and buffers are those of a live, unwritten view of this
        store, nothing is copied: a second link. Raises Error: EEXIST (without replace), ENOSPC
        (nothing is left behind), EINVAL, ...
        """
    def view(self, key: Key, cow: bool = False, verify: bool = False) -> View:
        """Maps an object, whatever its size, without keeping a file descriptor.
        KeyError where there is none.

        cow: its buffers are writable, private to this view. verify: check the buffers'
        checksum, if it has one (EBADMSG).
        """
    def create(
        self,
        key: Key,
        header_size: int,
        buffer_sizes: Sequence[int],
        replace: bool = False,
        checksum: bool = False,
        pin: bool = False,
        evict: bool = True,
    ) -> Writer:
        """Reserves an object and hands out writable memory for it. A full partition is ENOSPC
        now, never SIGBUS later."""
    def contains(self, key: Key) -> bool: ...
    def delete(self, key: Key) -> None:
        """Removes the key. KeyError where there is none."""
    def demote(self, key: Key) -> None:
        """Moves the object to the disk tier, for every store that links it;
        the next get brings it back.

        KeyError where there is no such key. Raises Error: ENOENT (no tier), ENOSPC (the disk),
        EPERM (pinned; links in stores of others, or a lease), EIO.
        """
    def promote(self, key: Key, evict: bool = True) -> None:
        """Brings the object back to memory, once for all stores that link it.

        Raises Error: ENOSPC, EDQUOT, EBADMSG (its tier file is missing or
        damaged: `filename` says which).
        """
    def pin(self, key: Key) -> None:
        """Keeps the object in memory, for all stores that link it."""
    def unpin(self, key: Key) -> None:
        """Undoes `pin`."""
    def locate(self, key: Key) -> Literal["memory", "tier"] | None:
        """Where the object is; None: no such key."""
    def set_address(self, address: str | None) -> None:
        """Makes the store known to peers (`Partition.find_peer`) by an address;
        None or "" withdraws it."""
    def asked(self) -> int:
        """Bytes that the host daemon asks this store to give back and that it has not given since;
        0: none. No system call."""
    def daemon_fd(self) -> int | None:
        """For event loops: a descriptor, the store's own, that is readable when the daemon says
        something; None: no daemon."""
    def daemon_dispatch(self) -> bool:
        """Hears the daemon, or looks for it (once a second at most). Whether the
        store is registered with it."""
    def close(self) -> None:
        """Closes the store: removes it and its objects unless keep. Waits for calls in
        other threads. Idempotent."""
    def _handoff(self, key: Key, lease_ms: int, user: int | None,
                 as_is: bool) -> tuple[str, int, int]: ...
    def _adopt(self, key: Key, path: str, header_size: int, buffer_size: int, replace: bool,
               verify: bool) -> None: ...
    def _born_begin(self, at_least: int, /) -> tuple[object, object] | None: ...
    def _prefetch(self, keys: tuple[Key, ...], threads: int, evict: bool, /) -> list[int]: ...
    def _usage(self) -> tuple[int, ...]: ...
    def _objects(self) -> list[tuple[object, ...]]: ...
    def _keys(self) -> list[Key]: ...
    def _arb_available(self) -> bool: ...
    def _arb_pool_create(self, name: str, capacity: int, spill_reserve: int, /) -> int: ...
    def _arb_pool_resize(self, pool: int, capacity: int, /) -> None: ...
    def _arb_pool_remove(self, pool: int, /) -> None: ...
    def _arb_pool_info(self, pool: int, /) -> tuple[int, ...]: ...
    def _arb_task_begin(self, priority: int | None, label: str | None, inherit: int, /) -> int: ...
    def _arb_task_end(self, task: int, /) -> None: ...
    def _arb_stats(self, task: int, pool: int, reset: bool, /) -> tuple[object, ...]: ...
    def _arb_fd(self) -> int: ...
    def _arb_next(self, pending: dict[int, object],
                  /) -> tuple[int, BaseException | None] | None: ...
    def _arb_listen(self, on: bool, /) -> None: ...
    def _arb_serve(self, ms: int, evict: Callable[[int, int, int], int | None] | None,
                   pressure: Callable[[int, int], object] | None, /) -> int: ...
    def _arb_serve_fd(self) -> int: ...
    def _profile_begin(self, lang: str, func: str, group: str, /) -> int: ...
    def _profile_sample(self, task: int, private: int, /) -> None: ...
    def _profile_end(self, task: int, how: int, private: int | None, shared: int | None,
                     cpu_ms: int | None, /) -> None: ...
    def _profile_estimate(self, lang: str, func: str, group: str, private: int, shared: int,
                          cpu_ms: int, /) -> tuple[int, ...]: ...
    def _stage_query(self, name: str, native: int, convert: int, other: int, nonshare_ppm: int,
                     root: int, fallback: int, slots: int,
                     /) -> tuple[int, int, bool, bool, int, int, int, int]: ...
    def _stage_begin(self, name: str, profile: int, other: int, wait_ms: int,
                     /) -> tuple[int, int, bool, bool, int, int, int, int]: ...
    def _stage_end(self, /) -> tuple[int, int, bool, bool, int, int, int, int]: ...
    def _place_open(self, name: str, room: int | None, /) -> object: ...
    def _actor_begin(self, place: object, name: str, parent: str | None, level: int, flags: int,
                     at_once: int, step_ms: int, suspend_ms: int, max_restarts: int,
                     copies: str | None, /) -> None: ...
    def _actor_end(self, place: object, name: str, /) -> None: ...
    def _actor_next(self, place: object, timeout_ms: int,
                    /) -> tuple[int, str, int, int, int, str, bytes] | None: ...
    def _actor_fd(self, place: object, /) -> int: ...
    def _actor_done(self, place: object, what: int, name: str, request: int, step: int,
                    version: int, how: int, data: bytes, /) -> None: ...
    def _actor_call(self, name: str, data: bytes, /) -> object: ...
    def _actor_move(self, name: str, place: str | None, /) -> object: ...
    def _actor_answer(self, call: object, timeout_ms: int, /) -> tuple[int, bytes] | None: ...
    def _task_admit(self, lang: str, func: str, group: str, declared: int, seconds: float | None,
                    level: int, retriable: bool, parent: int, worker: bool,
                    /) -> tuple[int, ...]: ...
    def _task_done(self, task: int, /) -> None: ...
    def _preempt_fd(self) -> int: ...
    def _preempt_next(self) -> tuple[object, ...] | None: ...

@final
class View:
    """A mapped object. It, its memoryviews and all that is made over them keep the memory,
    whatever becomes of key and store.

    memoryview(view) is its buffer where it has exactly one (or an empty one where it has none),
    else BufferError. May be weakly referenced: it is alive as long as any of its memoryviews,
    hence any array over it, is.
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
    @property
    def generation(self) -> int:
        """A number that other values do not have but by chance."""
    @property
    def uid(self) -> int:
        """The user id of whoever put the object: one's own, but for what another user handed over,
        and in stores opened with any_user."""
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Of an Arrow table (`Store.put_arrow`): its batches, over the mapped memory. Raises Error
        (EBADMSG) of other objects."""
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __dlpack__(self, **options: object) -> object:
        """The one buffer, as bytes."""
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Writer:
    """An object being written. A context manager: seals where its block ends
    well, aborts where it raises.

    Every memoryview from it, and every array over one, must be released before `seal`, else
    BufferError and the writer stays open. After `abort` they stay usable; the memory goes with the
    last of them. Not inherited by a forked child.
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
        """Publishes the object. Raises BufferError (still open), or Error: EEXIST, ...
        (the object is dropped)."""
    def abort(self) -> None:
        """Drops the object. Idempotent; nothing to do after `seal`."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...

class ArbContext:
    """A waiter for memory. `shmstore.arbiter.Context` is made of it."""

    def __new__(cls, store: Store, own: bool = True) -> Self: ...
    @property
    def id(self) -> int:
        """Its number, as operators see it; 0 where it is the calling thread's, or closed."""
    @property
    def _address(self) -> int: ...
    def close(self) -> None:
        """Unbinds the context and gives it up. Not while a call of it is
        in progress. Idempotent."""
    def cancel(self) -> None:
        """Ends what the context waits for, with Canceled there. By any thread; nothing
        happens where it does not wait."""
    def _bind(self, task: int, /) -> None: ...
    def _bind_helper(self, tasks: tuple[int, ...], service: bool, /) -> None: ...
    def _unbind(self, tasks: tuple[int, ...], /) -> None: ...
    def _reserve(self, into: ArbReservation, pool: int, bytes: int, flags: int,
                 timeout: float | None, /) -> bool: ...
    def _reserve_many(self, into: tuple[ArbReservation, ...], flags: int, timeout: float | None,
                      /) -> bool: ...
    def _resize(self, reservation: ArbReservation, bytes: int, flags: int, timeout: float | None,
                /) -> bool: ...
    def _pin(self, reservation: ArbReservation, flags: int, timeout: float | None, /) -> bool: ...
    def _ready(self, flags: int, timeout: float | None, /) -> bool: ...
    def _retry_begin(self) -> None: ...
    def _retry_end(self, ok: bool, /) -> None: ...
    def _wait_begin(self, kind: int, target: int, /) -> None: ...
    def _wait_end(self) -> None: ...
    def _spill(self, on: bool, /) -> None: ...
    def _use(self) -> None: ...
    def _inject(self, kind: int, count: int, skip: int, pool: int, /) -> None: ...
    def _state(self) -> tuple[object, ...]: ...

class ArbReservation:
    """Bytes of a pool. `shmstore.arbiter.Reservation` is made of it."""

    def __new__(cls, store: Store, pool: int = 1, bytes: int = 0) -> Self: ...
    @property
    def bytes(self) -> int:
        """Reserved bytes; 0 once released or committed."""
    @property
    def id(self) -> int:
        """Its number, as operators see it; 0: there is none."""
    @property
    def leased(self) -> int:
        """Bytes of it that come from a lease: the daemon was not asked."""
    @property
    def pool(self) -> int:
        """The pool's number; 1 is the partition."""
    @property
    def held(self) -> bool:
        """Whether it was granted and neither released nor committed."""
    def release(self) -> None:
        """Gives the bytes back. Idempotent; nothing to do after commit()."""
    def commit(self, bytes: int | None = None, /) -> None:
        """The reserved memory was taken in the partition, bytes of it (None: all): the
        kernel counts it from here on."""
    def unpin(self) -> bool:
        """The object may be evicted when others need the room. `Context.pin` undoes it.

        False: not now, it stays pinned (it is leased, and cannot be told from the lease).
        """
    def spilled(self, bytes: int, /) -> None:
        """Bytes of it, unpinned, have left the pool; 0: they will not.
        Called by an evict call-back."""
    def _spend(self, on: bool, /) -> None: ...

def default_path() -> str:
    """The partition used where none is named: $SHMSTORE_PARTITION, else the one chosen
    when the library was built."""

def strerror(errno: int) -> str:
    """The meaning of a code in this library."""

def version() -> str:
    """The library's version, "major.minor.patch"."""

def _unlocked(obj: Buffer, /) -> Buffer:
    """The object's memory as if it could be written, so that a pickle does not mark it
    read-only. Its `unlocked` is obj."""

def _born_end(before: object, handler: object) -> None: ...
def ticket_format(path: str, header_size: int, buffer_size: int) -> str: ...
def ticket_parse(text: str) -> tuple[str, int, int]: ...
