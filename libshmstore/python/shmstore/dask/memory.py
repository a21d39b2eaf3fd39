# SPDX-License-Identifier: Apache-2.0
"""Measures of memory: a process's private memory, bounds of the partition, turns of large
values, a worker's private budget.

The resident set counts every mapped page of the partition in every worker that maps it, and every
page of a tier file that is read where it lies, which the kernel takes back as it likes. The end of
a worker gives back its anonymous memory, with pages that it wrote to in a copy-on-write map.

Two kinds of private memory lie behind mapped values: objects that were unpickled beside their
buffers, known when a value is mapped as its sizeof less its buffers, and pages of copy-on-write
maps that were written to, which only the kernel knows.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import sys
import threading
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .compat.worker import Key

_PAGE = mmap.PAGESIZE


def private_memory(pid: int | str = "self") -> int:
    """Bytes of resident memory of a process that no file is behind. OSError where
    there is no such process."""
    with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
        _, resident, of_files, *_ = file.read(256).split()
    return (int(resident) - int(of_files)) * _PAGE


def written_bytes(addresses: Sequence[int]) -> list[int]:
    """Bytes of anonymous memory in the maps in which those addresses lie. The kernel looks at the
    pages of every map for it."""
    starts: list[int] = []
    ends: list[int] = []
    anonymous: list[int] = []
    with open("/proc/self/smaps", "rb") as file:
        for line in file:
            if line.startswith(b"Anonymous:"):
                anonymous.append(int(line.split()[1]) << 10)
            elif line[:1] in b"0123456789abcdef":
                start, _, end = line.partition(b" ")[0].partition(b"-")
                starts.append(int(start, 16))
                ends.append(int(end, 16))

    def at(address: int) -> int:
        i = bisect_right(starts, address) - 1
        return anonymous[i] if 0 <= i < len(anonymous) and address < ends[i] else 0

    return [at(address) for address in addresses]


_LOOK = 0.1  # seconds between two looks at least, ...
_LOOK_MAX = 1.0  # ... and at most, ...
# ... bytes per second by which memory grows at most: what is far from its
# bound is looked at less often
_GROWTH = 8 << 30
_LOOK_SHARE = 20  # which take one part in so many of the time at most
# of a limit one part in so many is left for what private memory grows between two looks
_SPARED = 8
_UNLIMITED = 1 << 60  # cgroup v1 says no limit by a number near 2^63
_ROOT = "/sys/fs/cgroup"


class Bound(NamedTuple):
    """In bytes."""

    size: int
    used: int


class Siblings(NamedTuple):
    """pids: of this host's workers, one for each. others: bytes in memory of all other stores."""

    pids: list[int]
    others: int


class Room:
    """How large a partition may become: its file system's size says how large it could. Pages of a
    tmpfs count for the memory cgroups that made them and for the machine; a worker that is killed
    for them frees none. So there are several bounds, each a size and what is used of it:

        each memory cgroup   its limit: of that all that is charged to it, but for files that the
                             kernel takes back, and what the workers may yet hold privately: who is
                             killed there would not be by its own limit
        the machine          what it has available: of that nothing; and in both what the partition
                             takes
        the workers          `max`, where it is set: of that what the partition takes, but for the
                             stores of other programs; else what all of them may take before they
                             are paused: of that the same, and what they hold privately

    Of one worker. budget: the part of its memory limit that is for private values.
    most: `max`, where it is set.
    """

    def __init__(
        self, budget: int, most: int | None, siblings: Callable[[], Siblings], root: str = _ROOT,
        groups: str = "/proc/self/cgroup"
    ) -> None:
        self._limit, self._budget, self._most, self._siblings = 0, budget, most, siblings
        self._levels = list(_levels(root, groups))
        self._next_look = 0.0
        self._bounds: list[Bound] = []  # as they would be without the partition
        self._lock = threading.Lock()

    def limit_workers(self, limit: int) -> None:
        """limit: bytes of private memory at which each is paused; 0: no disk tier takes more."""
        self._limit, self._next_look = limit, 0.0

    def bounds(self, used: int, limits: bool = True) -> list[Bound]:
        """Of a partition that has so many bytes. limits: also what the workers' memory limits say,
        though there may be more memory. Now and then a look at some files of the kernel's."""
        now = time.monotonic()
        if now >= self._next_look and self._lock.acquire(blocking=False):
            try:
                self._bounds = [Bound(size, whole - used) for size, whole in self._look(used)]
            finally:
                done = time.monotonic()
                left = min((bound.size - bound.used - used for bound in self._bounds),
                           default=sys.maxsize)
                self._next_look = (done + max(_LOOK, min(left / _GROWTH, _LOOK_MAX),
                                              _LOOK_SHARE * (done - now)))
                self._lock.release()
        bounds = self._bounds if limits or not self._by_limits() else self._bounds[:-1]
        return [Bound(size, others + used) for size, others in bounds]

    def _by_limits(self) -> bool:
        return self._most is None and self._limit > 0

    def _look(self, used: int) -> Iterator[Bound]:
        workers, others = self._siblings()
        private = _private(set(workers))
        shared = max(0, used - others)
        for level in self._levels:
            # a controller that is not there, or a file of another kernel's
            with suppress(OSError, ValueError, KeyError):
                if (found := level()) is not None:
                    yield Bound(found.size - found.size // _SPARED,
                                found.used + max(0, self._budget * len(workers) - private))
        with suppress(OSError, ValueError, KeyError):
            yield Bound(used + machine_available(), used)
        if self._most is not None:
            yield Bound(self._most, shared)
        elif self._by_limits():
            yield Bound(self._limit * len(workers), shared + private)


def _private(pids: Iterable[int]) -> int:
    total = 0
    for pid in pids:
        with suppress(OSError):  # it has ended
            total += private_memory(pid)
    return total


def machine_available(path: str = "/proc/meminfo") -> int:
    """Bytes that the machine could still give."""
    with open(path, encoding="ascii") as file:
        lines = dict(line.split(":") for line in file)
    return int(lines["MemAvailable"].split()[0]) << 10


def _levels(root: str, groups: str) -> Iterator[Callable[[], Bound | None]]:
    """A function for each memory cgroup that this process is in, from its own up to the highest
    that is seen: its bound, None: no limit."""
    try:
        with open(groups, encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for _, controllers, path in lines:
        if controllers == "" and os.path.exists(f"{root}/cgroup.controllers"):
            top, bound = root, _bound_v2
        elif "memory" in controllers.split(","):
            top, bound = f"{root}/memory", _bound_v1
        else:
            continue
        at = top + path
        while len(at) >= len(top):
            if os.path.isdir(at):  # in a container the path may be the host's
                yield lambda at=at, bound=bound: bound(at)  # type: ignore[misc]
            at = os.path.dirname(at)


def _bound_v2(path: str) -> Bound | None:
    if not os.path.exists(f"{path}/memory.max"):  # the root has none
        return None
    limit = min(_number(f"{path}/memory.max"), _number(f"{path}/memory.high"))
    stat = _stat(path)
    return (None if limit >= _UNLIMITED else Bound(limit, _number(f"{path}/memory.current") -
                                                   stat["file"] + stat["shmem"]))


def _bound_v1(path: str) -> Bound | None:
    limit = _number(f"{path}/memory.limit_in_bytes")
    if limit >= _UNLIMITED:
        return None
    stat = _stat(path)
    return Bound(limit, _number(f"{path}/memory.usage_in_bytes") - stat["total_cache"] +
                 stat["total_shmem"])


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:
        text = file.read().strip()
    return sys.maxsize if text == "max" else int(text)


def _stat(path: str) -> dict[str, int]:
    with open(f"{path}/memory.stat", encoding="ascii") as file:
        return {name: int(value) for name, value in (line.split() for line in file)}


_MIN = 16 << 20  # bytes from which a value waits for its turn
_HOLD_MIN = 32 << 20  # bytes from which the turn lasts until the private value is gone
# bytes per second: a value that is not gone in the time that its copying may take
# is one that its producer keeps
_RATE = 1 << 30
_HOLD = 0.05  # seconds for which it is waited for at most
_WAIT = 0.5  # seconds that one waits at most
_TRY = 0.001  # seconds between two tries, at first
_TRY_MAX = 0.004
_NONE: AbstractContextManager[Callable[[object], None]] = nullcontext(lambda value: None)


class Turns:
    """Turns: one large value of a host at a time goes from private memory into the partition. Of
    one partition, as one process sees them. Any thread.

    While it does, the host has it twice. Eight workers that do so at once would have eight values
    twice, and as many as run tasks on theirs would keep them so: so the turn lasts until the
    private value is gone, or for a moment at most.

    The turn is a flock on the partition's stores directory: it ends with the process however
    that ends. A process that was stopped keeps it: who has waited in vain goes on without, and
    as long as it stays taken nobody here waits for it again. Memory is saved where it can be; no
    value is held up for it for long.
    """

    def __init__(self, partition: str) -> None:
        self.path = os.path.join(partition, "stores")
        self.missed = 0  #: turns that were not waited for, or in vain
        self._taken = False  # for longer than anybody should: not waited for until it is free
        self._kept = 0  # how often in a row a private value was not gone in time

    def turn(self, size: int,
             wait: bool) -> AbstractContextManager[Callable[[object], None]]:
        """For a value of that size; waits, for a moment at most. wait: not on an event loop.

        Gives a function that is to be called with the private value: then the turn ends when nobody
        has that any more, or after a moment.
        """
        return self._turn(size, wait) if size >= _MIN else _NONE

    @contextmanager
    def _turn(self, size: int, wait: bool) -> Iterator[Callable[[object], None]]:
        fd, times, kept = self._take(wait), itertools.count(), False

        def end(gone: bool | None = None) -> None:
            """Any thread, any number of times. gone: whether the value was; None: nobody asked."""
            if fd >= 0 and next(times) == 0:
                os.close(fd)
                if gone is not None:
                    self._kept = 0 if gone else self._kept + 1

        def until_gone(value: object) -> None:
            nonlocal kept
            kept = fd >= 0 and self._ends_when_gone(value, size, end)

        try:
            yield until_gone
        except BaseException:
            end()
            raise
        if not kept:
            end()

    def _take(self, wait: bool) -> int:
        """The lock's descriptor; -1 where it could not be had."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # whoever puts will say it
            return -1
        started = time.monotonic()
        pause = _TRY
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._taken = False
                return fd
            except OSError:
                waited = time.monotonic() - started
            if not wait or self._taken or waited >= _WAIT:
                break
            time.sleep(pause)
            pause = min(2 * pause, _TRY_MAX)
        os.close(fd)
        self.missed += 1
        self._taken = self._taken or wait
        return -1

    def _ends_when_gone(self, value: object, size: int, end: Callable[[bool], None]) -> bool:
        """Whether end will be called then, or after a moment. Arrays only: frames may lie in cycles
        of references."""
        if size < _HOLD_MIN or type(value).__module__ != "numpy":
            return False
        # Where values were kept all the same lately, not at all, but for one in eight, which finds
        # out whether that is still so.
        if self._kept >= 2 and self._kept % 8:
            self._kept += 1
            return False
        try:
            weakref.finalize(value, end, True).atexit = False
        except TypeError:  # nobody will tell
            return False
        timer = threading.Timer(min(_HOLD, size / _RATE), end, (False,))
        timer.daemon = True
        timer.start()
        return True


# of the budget one part in so many remains, whatever the process takes: it is measured, not known
_FLOOR = 8
_FORGET = 0.8  # of what unmanaged memory was over the present, at each look


class Budget:
    """A worker's private budget: its memory limit times the target, less memory that is not
    values. All is of one event loop.

        limit x target = unmanaged + values + claims + free

        unmanaged   measured: what the process has beyond its values and its claims. It grows at
                    once and is forgotten slowly, as tasks' scratch memory comes and goes
        values      private values of the data mapping: they can leave
        claims      what running keys were granted: inputs that they read into
                    private memory, and their results

    limit: of the process, in bytes; target and terminate: shares of it. values:
    bytes of private values now.
    """

    def __init__(self, limit: int, target: float, terminate: float, values: Callable[[], float],
                 measure: Callable[[], int]) -> None:
        self.limit = limit
        self.whole = int(limit * target)
        self.last = int(limit * (terminate or 1.0))
        self.unmanaged = 0
        self.claims: dict[Key, int] = {}  #: by key
        self.unasked = 0  #: bytes of them that the arbiter knows nothing of
        self._values = values
        self._measure = measure

    def look(self) -> None:
        """Brings unmanaged memory up to date."""
        try:
            measured = self._measure()
        except OSError:
            return
        now = max(0, measured - self.values - self.claimed)
        self.unmanaged = max(now, int(now + (self.unmanaged - now) * _FORGET))

    @property
    def values(self) -> int:
        return int(self._values())

    @property
    def claimed(self) -> int:
        return sum(self.claims.values())

    @property
    def capacity(self) -> int:
        """For values and claims together."""
        return max(self.whole - self.unmanaged, self.whole // _FLOOR)

    @property
    def ceiling(self) -> int:
        """Bytes that one key alone may take before the process is ended for it."""
        return max(self.last - self.unmanaged, self.whole // _FLOOR)

    def fits(self, nbytes: int) -> bool:
        """Beside what there is now."""
        return self.values + self.claimed + nbytes <= self.capacity

    def claim(self, key: Key, nbytes: int, asked: bool) -> None:
        """More for a key that runs. asked: the arbiter gave it."""
        if nbytes:
            self.claims[key] = self.claims.get(key, 0) + nbytes
            self.unasked += 0 if asked else nbytes

    def unclaim(self, key: Key, nbytes: int, asked: bool) -> None:
        """Undoes it."""
        left = self.claims.get(key, 0) - nbytes
        self.unasked -= 0 if asked else nbytes
        if left > 0:
            self.claims[key] = left
        else:
            self.claims.pop(key, None)

    def holders(self, most: int = 5) -> str:
        """The holders of memory, for people."""
        parts = [f"{mib(self.unmanaged)} other than values, {mib(self.values)} private values"]
        largest = sorted(self.claims.items(), key=lambda item: -item[1])
        parts += [f"{mib(nbytes)} running {key}" for key, nbytes in largest[:most]]
        if len(largest) > most:
            parts.append(f"{mib(sum(nbytes for _, nbytes in largest[most:]))} "
                         f"{len(largest) - most} more")
        return ", ".join(parts)


def mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MiB"
