# SPDX-License-Identifier: Apache-2.0
"""Values from hand to hand: a handle travels between workers in place of a value that lies in
the partition. `Handing` is a worker's data for stock's code that answers a peer, or runs a
key that fetches its inputs.

Crossings: a large value of another host crosses the network once for all workers of this one. The
others wait for it, and link it.

The fetcher of a key locks a file of its name, which has its address; the lock ends with the
process. The file stays where the value has arrived, as Dask never tells a worker of nearer holders.
Files are in a directory of this user's below the temporary directory: workers that see different
ones fetch as on stock. Workers lock their directory: starting workers remove old unlocked ones.

A value may cross for a task that is stolen meanwhile, by a sibling as likely as not. Dask drops the
value then; here it stays as a replica, of which the scheduler hears, and the sibling links it.

A worker that holds keys waits for others only that come later in the order of names. So no two
workers wait for each other.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from dask.sizeof import sizeof
from distributed.protocol import dask_deserialize, dask_serialize  # type: ignore[attr-defined]

from .. import Ticket
from ..parts import Part
from .compat.worker import (AcquireReplicasEvent, GatherDepSuccessEvent, NoInputs, ask_worker,
                            gather_succeeded)
from .config import offload
from .values import Over, Pickled

if TYPE_CHECKING:
    from .compat.worker import Ask, Key, StateMachineEvent, TaskState
    from .exchange import Entry, Exchange
    from .worker import Worker


class Handle:
    """A ticket for the value of a key, with what Dask wants to know of it. Good for one receiver.

    The receiver adopts it as soon as it has it (`Exchange.adopt`), and its data mapping takes the
    entry out (`take`). A handle that nobody takes, because its key was cancelled or came twice,
    gives the object back when it is collected.
    """

    __slots__ = ("ticket", "nbytes", "kind", "over", "_exchange", "_entry", "__weakref__")

    @classmethod
    def of(cls, exchange: Exchange, entry: Entry) -> Handle:
        """A handle of an entry of our own: the way of a result into the data mapping."""
        handle = cls(Ticket("", 0, 0), entry.nbytes, entry.kind)
        handle.attach(exchange, entry)
        return handle

    def __init__(self, ticket: Ticket, nbytes: int, kind: str = "",
                 over: Over | None = None) -> None:
        self.ticket = ticket
        self.nbytes = nbytes  #: sizeof the value, as the donor measured it
        self.kind = kind  #: the type of the value, "module:name"
        self.over = over  #: what of the object the value is, where that is not the object's own
        self._exchange: Exchange | None = None
        self._entry: Entry | None = None

    def attach(self, exchange: Exchange, entry: Entry) -> None:
        """The object was adopted: from here on the handle owns the entry."""
        self._exchange, self._entry = exchange, entry

    @property
    def adopted(self) -> bool:
        return self._entry is not None

    def value_type(self) -> type | None:
        """The type of the value, where this process knows it already."""
        module, _, name = self.kind.partition(":")
        found = getattr(sys.modules.get(module), name, None)
        return found if isinstance(found, type) else None

    @property
    def entry(self) -> Entry:
        """The entry that the handle owns. Only of a handle that is adopted."""
        assert self._entry is not None
        return self._entry

    def take(self) -> Entry:
        """The entry, whose owner is now the caller. Only of a handle that is adopted."""
        entry = self.entry
        self._entry = None
        return entry

    def revoke(self) -> None:
        """Takes a ticket back that may not have arrived. Harmless where it was used."""
        with suppress(OSError):
            os.unlink(self.ticket.path)

    def __del__(self) -> None:
        if self._entry is not None and self._exchange is not None:
            self._exchange.drop(self._entry)

    def __reduce__(self) -> tuple[object, ...]:
        return Handle, (self.ticket, self.nbytes, self.kind, self.over)

    def __repr__(self) -> str:
        return f"<Handle of {self.nbytes} bytes at {self.ticket.path!r}>"


def _serialize_handle(handle: Handle) -> tuple[dict[str, object], list[bytes]]:
    header: dict[str, object] = {"ticket": list(handle.ticket), "nbytes": handle.nbytes,
                                 "kind": handle.kind}
    if handle.over is None:
        return header, []
    # Not as "ticket": who does not know of parts must not take the whole object for the value.
    header["ticket_of_parts"] = header.pop("ticket")
    return {**header, "parts": [list(part) for part in handle.over.parts]}, [handle.over.header]


def _deserialize_handle(header: dict[str, Any], frames: list[bytes]) -> Handle:
    if "parts" not in header:
        return Handle(Ticket(*header["ticket"]), header["nbytes"], header.get("kind", ""))
    over = Over(bytes(frames[0]), tuple(Part(*part) for part in header["parts"]))
    return Handle(Ticket(*header["ticket_of_parts"]), header["nbytes"], header["kind"], over)


sizeof.register(Handle, lambda handle: handle.nbytes)
# Dask's own family of serialisers, so that it goes also where pickle is not allowed.
dask_serialize.register(Handle, _serialize_handle)
dask_deserialize.register(Handle, _deserialize_handle)


class Handing:
    """A worker's data as one peer gets it, or a key that fetches its inputs: handles in place of
    what lies in the partition."""

    def __init__(self, worker: Worker, pickled: dict[Key, Pickled]) -> None:
        self.worker = worker
        self._pickled = pickled  # values found not to be shareable: they need not be pickled again
        self._data = worker.state.data
        self._ready: dict[Key, tuple[Entry, Handle]] = {}  # made beforehand
        self._handles: list[Handle] = []

    async def prepare(self, keys: Iterable[Key]) -> None:
        """Makes the handles of those keys beside the event loop: while objects are moved to and
        from the disk a link may have to wait."""
        entries = [(key, entry) for key in keys if (entry := self.worker._residence.entry(key)) is
                   not None]
        await offload(self._prepare, entries)

    def _prepare(self, entries: list[tuple[Key, Entry]]) -> None:
        for key, entry in entries:
            if (not entry.dropped and (handle := self.worker._exchange.handoff(key, entry)) is
                not None):
                self._handles.append(handle)
                self._ready[key] = entry, handle

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __getitem__(self, key: Key) -> object:
        if key in self._pickled and key in self._data:
            return self._pickled[key].serialized()
        handle = self.worker._guard.call("handoff", self._handle, key, key=key)
        return self._data[key] if handle is None else handle

    def _handle(self, key: Key) -> Handle | None:
        entry = self.worker._residence.entry(key)
        made, handle = self._ready.pop(key, (None, None))
        if made is None or made is not entry:  # the key has got another value meanwhile
            handle = None if entry is None else self.worker._exchange.handoff(key, entry)
            if handle is not None:
                self._handles.append(handle)
        if handle is not None and entry is not None:
            if not entry.handed:
                entry.handed = True
                self.worker._guard.call("habits", self._left, key)
        return handle

    def _left(self, key: Key) -> None:
        self.worker._habits.of(key).left += 1

    def get(self, key: Key, default: object = None) -> object:
        return self[key] if key in self else default

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)

    def done(self) -> None:
        """The answer is over. Takes back handles that are not in it."""
        for _, handle in self._ready.values():
            handle.revoke()

    def revoke(self) -> None:
        """The answer did not arrive."""
        for handle in self._handles:
            handle.revoke()


#: In place of the data of its worker, for who runs in this context.
handing_now: ContextVar[Handing | NoInputs | None] = ContextVar("shmstore_handing", default=None)


def can_carry(serializers: Collection[str] | None) -> bool:
    """Whether handles can go out in an answer that is made by these; None: by whatever there is."""
    return serializers is None or "dask" in serializers or "pickle" in serializers


_COUNTED = 1_000_000  # bytes from which on stock learns of a transfer


def received(worker: Worker, stock: Callable[[], object], seconds: float, data: dict[Key, object],
             donor: str) -> None:
    """Keeps handles, which cross no network, out of the bandwidth that places tasks. stock: what
    learns of a transfer of data; of one with handles it counts as no faster than is known."""
    if not any(isinstance(value, Handle) for value in data.values()):
        stock()
        return
    measured: tuple[MutableMapping[Any, tuple[float, int]],
                    ...] = (worker.bandwidth_workers, worker.bandwidth_types)
    bandwidth, before = worker.bandwidth, [dict(rates) for rates in measured]
    stock()
    worker.bandwidth = bandwidth
    for rates, known in zip(measured, before):
        rates.clear()
        rates.update(known)
    nbytes = sum(worker.state.tasks[key].get_nbytes() for key in data)
    if nbytes <= _COUNTED:
        return
    kinds = {value.value_type() if isinstance(value, Handle) else type(value)
             for value in data.values()}
    rate = min(bandwidth, nbytes / (seconds or 0.010))
    worker.bandwidth = bandwidth * 0.95 + rate * 0.05
    for rates, what in zip(measured, (donor, kinds.pop() if len(kinds) == 1 else None)):
        if what:
            total, n = rates[what]
            rates[what] = (total + rate, n + 1)


MIN = 1 << 20  # bytes from which on a key is worth it
_WAIT = 5.0  # seconds, beside what the transfer should take, that one waits for a sibling
# seconds after which a file of who knows whom is removed, and a directory that nobody holds
_OLD = 3600.0
_NAME = "shmstore-crossing-"
_NAMES = re.compile(_NAME + "[0-9a-f]{24}")
_LOOK = 0.004  # seconds between two looks at a lock, at first
_LOOK_MAX = 0.05


class Crossings:
    """Of one worker, on its event loop."""

    def __init__(self, host: str, address: str) -> None:
        """host: the name shared by all workers that can link each other's values."""
        self.address = address
        name = hashlib.blake2b(host.encode(), digest_size=12).hexdigest()
        self.directory = os.path.join(tempfile.gettempdir(), _NAME + name)
        #: keys that came from a sibling, though Dask had another host asked for them
        self.linked = 0
        self._held: dict[Key, int] = {}  # key -> the lock's descriptor
        self._stopped: set[str] = set()  # waited for in vain, and still hold a key
        # keys that were waited for in vain -> who has them no more; None: fetched whoever else does
        self._anyway: dict[Key, str | None] = {}
        self._fd = self._make()  # of the directory, locked; None: it cannot be used

    async def gather(self, worker: Worker, donor: str, ask: Ask, keys: Collection[Key],
                     nbytes: int) -> StateMachineEvent:
        """A worker's gather_dep, which is ask, of values of donor, on another host: those that a
        sibling fetches or has are linked from it."""
        if not any(_crosses(worker.state.tasks.get(key)) for key in keys):
            return await ask(keys)
        mine: list[Key] = []
        found: dict[Key, object] = {}
        try:
            event = await self._gather(worker, donor, ask, keys, nbytes, mine, found)
        except BaseException as e:
            self.release(mine)
            if not isinstance(e, Exception):
                raise
            worker._guard.failed("crossing", e)
            return await ask(keys)
        # Keys that came are released when the worker has them.
        self.release([key for key in mine if key not in found]
                     if isinstance(event, GatherDepSuccessEvent) else mine)
        return event

    async def _gather(
        self, worker: Worker, donor: str, ask: Ask, keys: Collection[Key], nbytes: int,
        mine: list[Key], found: dict[Key, object]
    ) -> StateMachineEvent:
        tasks = worker.state.tasks
        event: GatherDepSuccessEvent | None = None
        found.update(await self._from_holders(worker, keys))
        left = sorted((key for key in keys if key not in found), key=str)
        while left:
            batch = []
            while left and (not _crosses(tasks.get(left[0])) or self.claim(left[0])):
                batch.append(left.pop(0))
            mine += batch
            if batch:
                asked = await ask(batch)
                if not isinstance(asked, GatherDepSuccessEvent):
                    return asked
                event = asked
                found.update(event.data)
            if left:
                found.update(await self._from_sibling(worker, left, nbytes))
                left = [key for key in left if key not in found]
        return gather_succeeded(event, found, donor, nbytes)

    async def _from_holders(self, worker: Worker, keys: Collection[Key]) -> dict[Key, object]:
        """Handles of those that a sibling has, as Dask knows. Dask asks another host for them where
        a request to that sibling is under way."""
        of: dict[str, list[Key]] = {}
        for key in keys:
            task = worker.state.tasks.get(key)
            for address in task.who_has if task is not None and _crosses(task) else ():
                if address != self.address and worker._is_peer(address):
                    of.setdefault(address, []).append(key)
                    break
        found: dict[Key, object] = {}
        for address, those in of.items():
            found.update(await self._link(worker, those, address))
        return found

    async def _from_sibling(self, worker: Worker, keys: list[Key],
                            nbytes: int) -> dict[Key, object]:
        """Handles of the first of these keys, which a sibling fetches or has, and of what else it
        has then. Else that one is to be fetched as on stock; by one worker where the sibling has
        it no more, or has gone."""
        address = await self.wait(keys[0], _WAIT + 4 * nbytes / max(1.0, float(worker.bandwidth)))
        if address == self.address:
            address = None
        data = (await self._link(worker, keys, address) if address and worker._is_peer(address)
                else {})
        if keys[0] not in data:
            self.claim_anyway(keys[0], address or None)
        return data

    async def _link(self, worker: Worker, keys: list[Key], address: str) -> dict[Key, object]:
        """Handles of those that a sibling has."""
        data: dict[Key, object] = {}
        with suppress(OSError):
            response = await ask_worker(worker.rpc, keys, address, self.address)
            if response["status"] == "OK":
                data = dict(response.get("data") or {})
        self.linked += len(data)
        return data

    def _make(self) -> int | None:
        _sweep(os.path.dirname(self.directory))
        for _ in range(3):  # somebody may remove it as we come
            fd = -1
            try:
                with suppress(FileExistsError):
                    os.mkdir(self.directory, 0o700)
                fd = _open_directory(self.directory)
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(fd), os.lstat(self.directory)):
                    return fd
            except (BlockingIOError, FileNotFoundError):
                time.sleep(_LOOK)
            except OSError:  # another user's, or no locks there: as on stock
                if fd >= 0:
                    os.close(fd)
                return None
            if fd >= 0:
                os.close(fd)
        return None

    def _path(self, key: Key) -> str:
        return os.path.join(self.directory,
                            hashlib.blake2b(repr(key).encode(), digest_size=16).hexdigest())

    def claim(self, key: Key) -> bool:
        """Whether it is ours to fetch: no sibling does, or has it. It is to be released."""
        if self._fd is None or key in self._held:
            return True
        path = self._path(key)
        try:
            for _ in range(3):
                fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.fstat(fd).st_nlink:  # not one that was removed between the two calls
                        holder = os.read(fd, 4096).decode(errors="replace")
                        if (holder not in ("", self.address) and self._anyway.get(key, "") not in (
                            None, holder)):
                            os.close(fd)
                            return False
                        os.truncate(fd, 0)
                        os.pwrite(fd, self.address.encode(), 0)
                        self._held[key] = fd
                        return True
                    os.close(fd)
                except OSError:
                    os.close(fd)
                    raise
        except BlockingIOError:
            return self._anyway.get(key, "") is None
        except OSError:  # no room for a file, no directory any more: as on stock
            pass
        return True

    def claim_anyway(self, key: Key, has_no_more: str | None = None) -> None:
        """It was waited for in vain: fetched, whoever else does, until it is released.

        has_no_more: who had it, and may have gone. Of those who find this out one fetches it; the
        others wait for that one, once.
        """
        self._anyway[key] = None if key in self._anyway else has_no_more

    def release(self, keys: Iterable[Key], arrived: bool = False) -> None:
        """They are here, for siblings to take, or will not come. Those that we do not hold
        are none of our business."""
        for key in keys:
            self._anyway.pop(key, None)
            fd = self._held.pop(key, None)
            if fd is None:
                continue
            if not arrived:
                with suppress(OSError):
                    os.unlink(self._path(key))
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has it, too
            os.close(fd)

    def kept(self, tasks: Mapping[Key, TaskState],
             event: GatherDepSuccessEvent) -> list[StateMachineEvent]:
        """Events before this one: fetched values that no task waits for any more, which Dask would
        drop, stay as replicas, of which the scheduler hears."""
        mine = [task for key in event.data if key in self._held and
                (task := tasks.get(key)) is not None]
        return [AcquireReplicasEvent(who_has={task.key: [event.worker]},
                                     nbytes={task.key: task.get_nbytes()},
                                     stimulus_id=f"shmstore-crossed-{time.time()}")
                for task in mine if task.state == "cancelled" and task.previous == "flight"]

    async def wait(self, key: Key, seconds: float) -> str | None:
        """The address of who has fetched it, as soon as it is there or will not come; None where it
        still is not after that time."""
        until, pause, address = time.monotonic() + seconds, _LOOK, None
        while True:
            found, under_way = self._fetcher(key)
            address = found or address
            if not under_way:
                self._stopped.discard(address or "")
                return address
            if time.monotonic() >= until or address in self._stopped:
                self._stopped.add(address or "")
                return None
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, _LOOK_MAX)

    def _fetcher(self, key: Key) -> tuple[str, bool]:
        """The address that fetches it or has it, '' if unknown; whether it is under way."""
        try:
            fd = os.open(self._path(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return "", False
        try:
            address = os.read(fd, 4096).decode(errors="replace")
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return address, True
        finally:
            os.close(fd)
        return address, False

    def close(self) -> None:
        """Gives all up, and removes what stands for us, or for nobody for long."""
        self.release(list(self._held))
        for entry in self._files():
            with suppress(OSError), open(entry.path, encoding="utf-8", errors="replace") as file:
                if file.read(4096) == self.address or entry.stat().st_mtime < time.time() - _OLD:
                    os.unlink(entry.path)
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rmdir(self.directory)  # where nobody else is, or has anything there
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has it, too
        os.close(fd)

    def _files(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.directory) as entries:
                return list(entries) if self._fd is not None else []
        except OSError:
            return []


def _open_directory(path: str) -> int:
    """A descriptor of a directory of this user's. OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if os.fstat(fd).st_uid == os.geteuid():
        return fd
    os.close(fd)
    raise PermissionError(errno.EPERM, "a directory of another user", path)


def _sweep(parent: str) -> None:
    """Removes the directories that workers of this user left when they were killed:
    old ones that nobody holds."""
    try:
        with os.scandir(parent) as entries:
            paths = [entry.path for entry in entries if _NAMES.fullmatch(entry.name)]
    except OSError:
        return
    for path in paths:
        with suppress(OSError):
            fd = _open_directory(path)
            try:
                if os.fstat(fd).st_mtime < time.time() - _OLD:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    for name in os.listdir(fd):
                        os.unlink(name, dir_fd=fd)
                    os.rmdir(path)
            finally:
                os.close(fd)


def _crosses(task: TaskState | None) -> bool:
    """Whether a value is large enough that siblings wait for it."""
    return task is not None and (task.nbytes or 0) >= MIN
