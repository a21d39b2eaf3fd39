# SPDX-License-Identifier: Apache-2.0
"""How large a partition may become: its file system's size says how large it could. Pages of a tmpfs count for the memory cgroups that made them and
for the machine; a worker that is killed for them frees none. So there are several bounds, each a size and what is used of it:

    each memory cgroup   its limit               all that is charged to it, but for files that the kernel takes back, and what the workers may yet
                                                 hold privately: who is killed there would not be by its own limit
    the machine          what it has available   nothing, and in both what the partition takes
    the workers          `max`, where it is set                 what the partition takes, but for the stores of other programs
                         else what all of them may take
                         before they are paused                 that, and what they hold privately
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from .memory import private_memory

_LOOK = 0.1  # seconds between two looks
_LOOK_SHARE = 20  # which take one part in so many of the time at most
_SPARED = 8  # of a limit one part in so many
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
    """Of one worker. budget: the part of its memory limit that is for private values. most: `max`, where it is set."""

    def __init__(
        self, budget: int, most: int | None, siblings: Callable[[], Siblings], root: str = _ROOT, groups: str = "/proc/self/cgroup"
    ) -> None:
        #: Bytes of private memory at which it is paused, as others of its host; 0: not known, or no disk tier takes what is more.
        self.limit = 0
        self._budget, self._most, self._siblings = budget, most, siblings
        self._levels = list(_levels(root, groups))
        self._next_look = 0.0
        self._bounds: list[Bound] = []  # as they would be without the partition
        self._lock = threading.Lock()

    def bounds(self, used: int, limits: bool = True) -> list[Bound]:
        """Of a partition that has so many bytes. limits: also what the workers' memory limits say, though there may be more memory. Now and then a
        look at some files of the kernel's."""
        now = time.monotonic()
        if now >= self._next_look and self._lock.acquire(blocking=False):
            try:
                self._bounds = [Bound(size, whole - used) for size, whole in self._look(used)]
            finally:
                done = time.monotonic()
                self._next_look = done + max(_LOOK, _LOOK_SHARE * (done - now))
                self._lock.release()
        bounds = self._bounds if limits or not self._by_limits() else self._bounds[:-1]
        return [Bound(size, others + used) for size, others in bounds]

    def _by_limits(self) -> bool:
        return self._most is None and self.limit > 0

    def _look(self, used: int) -> Iterator[Bound]:
        workers, others = self._siblings()
        private = _private(set(workers))
        shared = max(0, used - others)
        for level in self._levels:
            with suppress(OSError, ValueError, KeyError):  # a controller that is not there, or a file of another kernel's
                if (found := level()) is not None:
                    yield Bound(_spared(found.size), found.used + max(0, self._budget * len(workers) - private))
        with suppress(OSError, ValueError, KeyError):
            yield Bound(used + machine_available(), used)
        if self._most is not None:
            yield Bound(self._most, shared)
        elif self._by_limits():
            yield Bound(self.limit * len(workers), shared + private)


def _spared(size: int) -> int:
    """A part is left for what private memory grows between two looks."""
    return size - size // _SPARED


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
    """A function for each memory cgroup that this process is in, from its own up to the highest that is seen: its bound, None: no limit."""
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
        while len(at) > len(top):
            if os.path.isdir(at):  # in a container the path may be the host's
                yield lambda at=at, bound=bound: bound(at)  # type: ignore[misc]
            at = os.path.dirname(at)
        yield lambda top=top, bound=bound: bound(top)  # type: ignore[misc]


def _bound_v2(path: str) -> Bound | None:
    if not os.path.exists(f"{path}/memory.max"):  # the root has none
        return None
    limit = min(_number(f"{path}/memory.max"), _number(f"{path}/memory.high"))
    stat = _stat(path)
    return None if limit >= _UNLIMITED else Bound(limit, _number(f"{path}/memory.current") - stat["file"] + stat["shmem"])


def _bound_v1(path: str) -> Bound | None:
    limit = _number(f"{path}/memory.limit_in_bytes")
    if limit >= _UNLIMITED:
        return None
    stat = _stat(path)
    return Bound(limit, _number(f"{path}/memory.usage_in_bytes") - stat["total_cache"] + stat["total_shmem"])


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:
        text = file.read().strip()
    return sys.maxsize if text == "max" else int(text)


def _stat(path: str) -> dict[str, int]:
    with open(f"{path}/memory.stat", encoding="ascii") as file:
        return {name: int(value) for name, value in (line.split() for line in file)}
