# SPDX-License-Identifier: Apache-2.0
"""The store: one process's objects, as a mapping of keys to pickled values and as bytes."""

from __future__ import annotations

import errno
import functools
import itertools
import math
import os
import pwd
import time
import weakref
from array import array
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from . import _shmstore, arrow, staging
from ._shmstore import strerror
from .actors import Actor, Place
from .arbiter import Arbiter, Pool, milliseconds
from .errors import Error
from .pickling import dumps, loads
from .preempting import Preemption, Told
from .profiling import Admitted, Estimate, Profiled, unless
from .records import ObjectInfo, StoreUsage
from .richtext import size, table
from .staging import Stage, StageProfile
from .ticket import Ticket

if TYPE_CHECKING:
    from typing_extensions import Self

Key = Union[str, bytes]

_NONE = object()  # no default is given
_SLICE_MS = 1000
_CALL_MS = 100
_FOREVER_MS = 2**63
_SHOWN = 20  # objects in a notebook's table
_DAEMONS = ("auto", "required", "off")  # SHMSTORE_DAEMON_*


class Store(_shmstore.Store, MutableMapping[Key, Any],
            AbstractContextManager["Store", None]):
    """A store, opened with `Partition.open`. A context manager that closes it, and a mutable
    mapping.

    **Mapping.** `store[key] = value` pickles the value (protocol 5) with its buffers out of band -
    NumPy arrays, pandas frames, also deep inside other values - and copies them once, into the
    object; an object already held under the key is replaced. `store[key]` unpickles the value over
    the mapped object: its arrays are read-only and keep the object's memory alive. `store.get(key,
    cow=True)` gives writable arrays whose writes nobody else sees. Putting a value that was read
    from this store, unchanged, under another key makes a second link; a packed one is copied once.

    **Keys** are str or bytes. An object's key is bytes: a str names the object of its UTF-8 bytes,
    so `store["x"]` and `store[b"x"]` are one object. Where keys are listed they come back as str,
    those that are not valid UTF-8 as bytes. `objects()` tells the bytes of each.

    **Bytes.** `put_buffers`, `create` and `view` store and map a header
    and buffers without pickling.

    **Disk tier.** Where the partition has one (`Partition.set_tier`), objects that are not used may
    be moved to it, by `demote` or where memory runs short, and every read brings them back.
    `promote` and `prefetch` do so ahead; `pin` keeps one in memory; `locate` tells.

    **Arbiter.** Where the host daemon runs one, `arbiter` has memory reserved before it is taken:
    who does not fit waits instead of failing. A store opened with ``arbitrate=True`` reserves by
    itself for what is put, created and promoted by threads that are bound to a task.

    **Processes.** `handoff` gives a ticket for an object, `adopt` takes it into
    another store by a hard link.

    A missing key is a KeyError; a store that was closed raises `ClosedError`; other failures
    are `Error` with an errno. May be used by many threads at once; `close` waits for calls
    in other threads. In a forked child every call raises `Error` (EPERM); views go on
    working there and after `close`.

    **Readers.** A store that is open `readonly` owns nothing, and means a name: it works in a
    forked child, is pickled as its partition and name, and goes on with the store that has the name
    next, when its owner is restarted. Its values lie in shared memory, small or large: nothing is
    copied, but a small value by `cow`, and another user's. `owner` tells who puts.
    """

    _arbiter: weakref.ref[Arbiter] | None = None
    _any_user = False  # it may be another user's

    def __new__(
        cls, partition: _shmstore.Partition, name: str, keep: bool = False,
        label: str | None = None, directory: str | os.PathLike[str] | None = None,
        recycle_max: int | None = None, readonly: bool = False, adopt: bool = False,
        fresh: bool = False, daemon: str = "auto", wait: float | None = None,
        arbitrate: bool = False, any_user: bool = False, pack_max: int | None = None,
        leases_with: str | None = None
    ) -> Self:
        if daemon not in _DAEMONS:
            raise ValueError(f'daemon must be "auto", "required" or "off", not "{daemon}"')
        flags = sum(1 << i for i, said in enumerate((readonly, adopt, fresh, arbitrate, any_user))
                    if said)  # SHMSTORE_OPEN_*
        self = super().__new__(cls, partition, name, flags, _DAEMONS.index(daemon), keep, label,
                               directory, recycle_max, pack_max, milliseconds(wait), leases_with)
        self._any_user = any_user
        return self

    # -- mapping

    def __getitem__(self, key: Key) -> Any:
        return loads(self.view(key))

    def __setitem__(self, key: Key, value: object) -> None:
        header, buffers = dumps(value)
        self.put_buffers(key, header, buffers, replace=True)

    def __delitem__(self, key: Key) -> None:
        self.delete(key)

    def __contains__(self, key: object) -> bool:
        return self.contains(key)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def __bool__(self) -> bool:
        return True

    def get(self, key: Key, default: object = _NONE, cow: bool = False, any_user: bool = False,
            timeout: float | None = None) -> Any:
        """The value of key, or default (None). With cow its arrays are writable, copy-on-write:
        nobody else sees the writes.

        Values are pickles, which run what they say: another user's raises Error EPERM without
        any_user, as `store[key]` always does.
        timeout: seconds that a missing key is waited for; the put wakes who waits. Then default is
        returned, or TimeoutError raised where none is given. Raises Error ESTALE as soon as the
        owner of a store that is open `readonly` is dead.
        """
        try:
            view = self.view(key, cow=cow)
        except KeyError:
            if timeout is None:
                return None if default is _NONE else default
            found = self._await(key, default, cow, timeout)
            return default if found is None else loads(found, any_user)
        return loads(view, any_user)

    def _wait(self, key: Key, generation: int, ms: int) -> bool:
        """Whether the key, or another value of it, came within so many milliseconds. Between two
        calls of the library handlers of signals run."""
        while not (came := self._wait_once(key, generation, min(ms, _CALL_MS))) and ms > _CALL_MS:
            ms -= _CALL_MS
        return came

    def _await(self, key: Key, default: object, cow: bool, timeout: float) -> _shmstore.View | None:
        """A view of the key within so many seconds. None: there is none, and a default is given."""
        end = time.monotonic() + timeout
        while self._wait(key, 0, _left_ms(end)):
            try:
                return self.view(key, cow=cow)
            except KeyError:  # deleted meanwhile
                continue
        self._late(key, default, timeout)
        return None

    def _late(self, key: Key, default: object, timeout: float | None) -> object:
        """The key did not come in time: default, or TimeoutError where none is given."""
        if default is _NONE:
            raise TimeoutError(f"no key {key!r} in store {self.name!r} within {timeout:g} s")
        return default

    async def aget(self, key: Key, default: object = _NONE, cow: bool = False,
                   any_user: bool = False, timeout: float | None = None) -> Any:
        """As `get`, beside an event loop: a thread of the loop's executor
        waits. timeout None: for ever."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        import asyncio  # half of what importing all of this package takes

        loop = asyncio.get_running_loop()
        while True:
            try:
                return loads(self.view(key, cow=cow), any_user)
            except KeyError:
                pass
            # A task that is cancelled leaves the thread behind for so long.
            if not await loop.run_in_executor(None, self._wait, key, 0,
                                              min(_left_ms(end), _SLICE_MS)) and _left_ms(end) == 0:
                break
        return self._late(key, default, timeout)

    def watch(self, key: Key, cow: bool = False,
              timeout: float | None = None) -> Iterator[tuple[int, _shmstore.View]]:
        """Each new value of the key that this process sees, as (sequence, view), beginning with the
        present one; the last one for certain.

        sequence counts the values that were seen: 1, 2, ... A value that was replaced before it
        was seen is left out. For one writer and any number of readers: frames, model weights,
        prices. timeout: TimeoutError where no new value comes for so many seconds. Raises Error
        ESTALE as soon as the owner is dead.
        """
        generation = 0
        for sequence in itertools.count(1):
            end = math.inf if timeout is None else time.monotonic() + timeout
            while True:
                if not self._wait(key, generation, _left_ms(end)):
                    raise TimeoutError(f"no new value of key {key!r} in store {self.name!r} within "
                                       f"{timeout:g} s")
                try:
                    view = self.view(key, cow=cow)
                except KeyError:  # deleted meanwhile
                    continue
                if view.generation != generation:
                    break
            generation = view.generation
            yield sequence, view

    @property
    def owner(self) -> Owner:
        """The process that owns the store, and whether it lives: None where that cannot be told.
        pid 0: nobody has the kept store open.

        Raises Error ENOENT where the store is gone, and nobody has its name.
        """
        return Owner(*self._owner())

    def put(
        self,
        key: Key,
        value: object,
        replace: bool = False,
        checksum: bool = False,
        pin: bool = False,
        evict: bool = True,
        by_value: bool = False,
    ) -> None:
        """As `store[key] = value`, but raises Error (EEXIST) where the key is held, unless replace.

        checksum keeps a hash of the buffers, which `view(key, verify=True)`, `adopt(...,
        verify=True)` and `Partition.verify` check. pin keeps the object out of the disk tier.
        Without evict a full partition is Error ENOSPC at once; else others are moved to its
        disk tier first, if it has one. by_value: what the value needs of this program's
        `__main__`, a notebook's classes and functions, is in the object, so that another
        program can read it; see `dumps`.
        """
        header, buffers = dumps(value, by_value=by_value)
        self.put_buffers(key, header, buffers, replace=replace, checksum=checksum, pin=pin,
                         evict=evict)

    def create(self, key: Key, header_size: int, buffer_sizes: Iterable[int],
               replace: bool = False, checksum: bool = False, pin: bool = False,
               evict: bool = True) -> _shmstore.Writer:
        """Reserves an object and hands out writable memory for it: a `Writer`.

        A full partition is Error ENOSPC now, never SIGBUS later. pin, evict: as `put_buffers`.
        """
        sizes = [*buffer_sizes]
        if header_size < 0:
            raise ValueError("header_size is negative")
        for i, nbytes in enumerate(sizes):
            if nbytes < 0:
                raise ValueError(f"the size of buffer {i} is negative")
        return self._create(key, header_size, array("Q", sizes).tobytes(), replace, checksum, pin,
                            evict)

    put_arrow = arrow.put_arrow

    def get_arrow(self, key: Key) -> Any:
        """The pyarrow.Table that `put_arrow` put, over the mapped memory. Raises KeyError, Error
        (EBADMSG: another object), ImportError."""
        return arrow.table_of(self.view(key))

    @contextmanager
    def born_shared(self, at_least: int = 2 << 20) -> Iterator[bool]:
        """Within, NumPy makes arrays of at_least bytes or more in the partition: putting one, or a
        value whose only buffer it is, copies nothing.

        It is in force for this thread, or coroutine, and what it calls (a variable of the context);
        arrays outlive it, and the store. They are memory as any other: writable, freed when they
        go, private to the process, and a forked child has copies. After a put the array is still
        writable, and the object does not change. Copied as ever: an array that is put for the
        second time, or was made before a fork; a part of one; several in one value. Not made in the
        partition: `numpy.zeros` and its like, and anything while the partition is short of room
        (less than a quarter free), which no error says. It pays on a partition with huge pages.

        Gives whether it is in force: False where somebody else's memory handler (NEP 49) is. Raises
        ImportError without NumPy, ClosedError.
        """
        token = self._born_begin(at_least)
        try:
            yield token is not None
        finally:
            if token is not None:
                _shmstore._born_end(*token)

    def clear(self) -> None:
        """Removes every object of the store."""
        for key in self._keys():
            try:
                self.delete(key)
            except KeyError:  # another thread was faster
                pass

    # -- between processes

    def handoff(self, key: Key, lease: float = 30.0, user: int | str | None = None,
                as_is: bool = False) -> Ticket:
        """A ticket with which one process of the host may adopt the object within lease seconds.

        From here on the key may be deleted, the store closed, this process die: the ticket stays
        good.
        user: the receiver's, by id or name, where it is not our own. The host daemon carries it
        there if its rules allow it; else, or without it, Error EPERM.
        as_is: an object in the disk tier is handed over as it is, and comes back when the receiver
        gets it; else it comes back now.
        """
        if not lease > 0:
            raise ValueError(f"a lease must be longer than 0 seconds, not {lease}")
        if isinstance(user, str):
            try:
                user = pwd.getpwnam(user).pw_uid
            except KeyError:
                raise ValueError(f"there is no user {user}") from None
        return Ticket(*self._handoff(key, math.ceil(lease * 1000), user, as_is))

    def adopt(self, key: Key, ticket: Ticket | str, replace: bool = False,
              verify: bool = False) -> None:
        """Takes the object of a ticket (or of its text) into this store under
        key, and consumes the ticket.

        Succeeds where this very object is held under key already. verify also checks the buffers'
        checksum, if it has one. Raises Error: ESTALE (expired or taken), EPERM, EBADMSG (not what
        the ticket says), EEXIST, EXDEV.
        """
        if isinstance(ticket, str):
            ticket = Ticket.parse(ticket)
        self._adopt(key, *ticket, replace, verify)

    # -- the disk tier

    def prefetch(self, keys: Iterable[Key], threads: int = 0,
                 evict: bool = True) -> dict[Key, Error]:
        """Brings many objects back to memory ahead of their use, several at once. Returns the
        errors by key, as `promote` would raise them.

        threads: that this call may start, and ends before it returns.
        """
        wanted = tuple(keys)
        names = [key.encode() if isinstance(key, str) else key for key in wanted]
        results = array("i", self._prefetch(b"".join(names), array("Q", map(len, names)).tobytes(),
                                            threads, evict))
        # > 0: an outcome of the arbiter, which a key of many cannot be rolled back for.
        codes = [errno.ENOSPC if result > 0 else -result for result in results]
        return {key: Error(code, f"prefetch {key!r}: {strerror(code)}")
                for key, code in zip(wanted, codes) if code}

    # -- the arbiter

    @property
    def arbiter(self) -> Arbiter | None:
        """Reserves memory, see `shmstore.arbiter`; None where no daemon
        is, or its arbiter is off."""
        found = self._arbiter() if self._arbiter else None
        if found is None:
            # Not kept by the store: it keeps the store.
            found = Arbiter(self)
            self._arbiter = weakref.ref(found)
        return found if found.available else None

    # -- what tasks use

    def profiled(self, func: str, group: str = "", lang: str = "python") -> Profiled:
        """A task of that kind begins, and ends with the block that it is used for: what it used is
        remembered (see `shmstore.profiling`).

        group: a class, or ``class#instance``. Where no daemon keeps profiles, nothing happens.
        """
        return Profiled(self, lang, func, group)

    def estimate(self, func: str, group: str = "", lang: str = "python",
                 declared: int = 0) -> Estimate | None:
        """The expected use of the next task of that kind; None: no daemon keeps profiles.

        declared: the private bytes that the task itself expects; 0: it does not know.
        """
        with unless(errno.ENOTSUP):
            return Estimate._make(self._profile_estimate(lang, func, group, declared, 0, 0))
        return None

    # -- stages of a job

    stage_profile = staging.stage_profile

    def stage(
        self, name: str, profile: StageProfile | int | None = None,
        other: StageProfile | int | None = None, wait: float | None = None,
        pool: Pool | None = None,
    ) -> Stage:
        """A stage, for a ``with`` block: waits until it can begin, at most as configured, and runs
        with what there is. At its end the base is back.

        other: a second profile that was asked for in this stage. wait: at most so many seconds.
        pool: one of the arbiter, which follows the private bytes.
        """
        return Stage(self, name, profile, other, wait, pool)

    # -- admission

    def admitted(self, func: str = "", group: str = "", lang: str = "python", *, declared: int = 0,
                 wait: float | None = None,
                 level: str | int = "never", retriable: bool = False, parent: int = 0,
                 worker: bool = False) -> Admitted:
        """A task begins by leave of the daemon's gate, and ends with the block that it is used
        for (see `shmstore.profiling`).

        func, group, lang: the kind by whose profile it is estimated. declared: private
        bytes that it says it needs.
        wait: seconds that it may wait, None: as long as it takes, 0: not at all. level: how willing
        it is to be preempted: ``never`` to ``always``, or
        ``auto``: ``high`` if it is retriable. parent: the ``task`` that started it. worker: this
        process is one of a pool, and may be ended while it runs no task. Raises NotAdmitted. Where
        no daemon watches the host's memory every task is let in at once.
        """
        return Admitted(self, (lang, func, group), declared, wait, level, retriable, parent, worker)

    @property
    def _told(self) -> Told:
        told: Told = self.__dict__.get("told") or self.__dict__.setdefault("told", Told())
        return told

    def preempted(self, timeout: float = 0.0) -> Preemption | None:
        """The next message of the daemon about tasks that give way (see `shmstore.preempting`), the
        oldest first; None: nothing within so many seconds.

        It is told of this store's tasks, of those that name one of them as their parent, and of
        this process where it is an idle worker.
        """
        return self._told.next(self, timeout)

    # -- actors

    def place(self, name: str, room: int | None = None) -> Place:
        """This process takes actors (see `shmstore.actors`): one place for each store.

        name: no other place's of this user. room: bytes of actors that may be moved
        here; None: as the partition has.
        """
        return Place(self, name, room)

    def actor(self, name: str) -> Actor:
        """An actor of this user, wherever it is (see `shmstore.actors`). That there is
        none is told by its calls."""
        return Actor(self, name)

    # -- what it holds

    def usage(self) -> StoreUsage:
        """Bytes linked, proportional and unique share, bytes mapped."""
        return StoreUsage._make(self._usage())

    def objects(self) -> Iterator[ObjectInfo]:
        """Key, sizes, blocks, inode and links of every object, in no order."""
        return map(ObjectInfo._make, self._objects())

    # -- object

    def close(self) -> None:
        """Closes the store: removes it and its objects unless keep. Waits for calls
        in other threads. Idempotent.

        A wait for memory in a context of its own ends with `arbiter.Canceled`.
        """
        found = self._arbiter() if self._arbiter else None
        if found is not None:
            found._close()
        super().close()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (f"<shmstore.Store {self.name!r} in "
                f"{self.path!r}{' (closed)' if self.closed else ''}>")

    def _repr_html_(self) -> str:
        """For notebooks: the store and its first objects."""
        if self.closed:
            return table(f"Store {self.name} (closed)", (), [])
        objects = sorted(self.objects(), key=lambda o: -o.buffer_size)
        rows = [
            (_text(o.key), size(o.header_size + o.buffer_size), "disk tier" if o.demoted
             else "memory", o.links)
            for o in objects[:_SHOWN]
        ]
        more = f", the largest {_SHOWN}" if len(objects) > _SHOWN else ""
        usage = self.usage()
        return table(
            f"Store {self.name} in {self.partition.path}: {len(objects)} objects, "
            f"{size(usage.linked)}{more}",
            ("key", "size", "where", "links"),
            rows,
        )

    def __reduce__(self) -> tuple[object, ...]:
        if not self.readonly:
            raise TypeError("a store belongs to its process; send a ticket (Store.handoff), the "
                            "partition, or a handle that is open readonly")
        return (functools.partial(type(self.partition).open, readonly=True,
                                  any_user=self._any_user), (self.partition, self.name))


class Owner(NamedTuple):
    """The process that owns a store: see `Store.owner`."""

    pid: int
    alive: bool | None


def _left_ms(end: float) -> int:
    """Until that time, of `time.monotonic`."""
    return _FOREVER_MS if end == math.inf else max(0, math.ceil((end - time.monotonic()) * 1000))


def _text(key: Key) -> str:
    return key if isinstance(key, str) else key.decode("utf-8", "backslashreplace")
