# SPDX-License-Identifier: Apache-2.0
"""The configuration `distributed.worker.memory.shared.*`: its defaults, and one
worker's settings read from it. All other modules use its log of fallbacks, its guard,
and its way to work off the event loop.

This module is preloaded by all workers and nannies of a process that imports `shmstore.dask`
(`dask_setup`): they share where `enabled` is true when they start.
"""

from __future__ import annotations

import asyncio
import difflib
import errno
import fcntl
import gc
import logging
import math
import os
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import dask.config
import distributed.utils
import yaml
from dask.utils import parse_bytes, parse_timedelta, typename
from tornado.ioloop import PeriodicCallback

if TYPE_CHECKING:
    from distributed.core import Server

    from .worker import Worker

PREFIX = "distributed.worker.memory.shared"

with open(os.path.join(os.path.dirname(__file__), "shmstore.yaml"), encoding="utf-8") as _file:
    _defaults = yaml.safe_load(_file)
# `shared: true`, as Dask's own proposal has it, is `enabled`: a tree of
# defaults cannot be laid under it.
if isinstance(dask.config.get(PREFIX, default={}), (bool, str)):
    dask.config.set({PREFIX: {"enabled": dask.config.get(PREFIX)}})
dask.config.update_defaults(_defaults)

logger = logging.getLogger("distributed.worker.shared")
_warned: set[str] = set()

_KEPT_MAX = 20  # reasons that are counted apart: they go out with each heartbeat
_DESCRIPTORS = 4096  # for which there is room from the beginning
_left_out = False  # the libraries, of this process
Result = TypeVar("Result")


class TierSettings:
    """The disk tier that a worker gives the partition where it has none. ValueError where
    a setting makes no sense."""

    def __init__(self) -> None:
        self.enabled = _switch("tier.enabled")
        self.path: str | None = _get("tier.path") or None
        # bytes; None: from max-spill
        self.max = None if _get("tier.max") is None else _bytes("tier.max")
        self.min_free = _bytes("tier.min-free")
        self.level = int(_get("tier.level"))
        if not 0 <= self.level <= 19:
            raise ValueError(f"{PREFIX}.tier.level must be from 0 to 19, not {self.level}")
        self.fsync = _switch("tier.fsync")
        self.high, self.low = _watermarks("tier")  # percent


class Settings:
    """Settings of one worker or client; read once, so that no change splits a worker in two.
    ValueError where one makes no sense."""

    def __init__(self) -> None:
        warn_of_unknown()
        # False: the worker stays stock's, though it was made one of ours
        self.enabled = enabled() is not False
        self.partition: str | None = _get("partition") or None
        self.daemon = _choice("daemon", "auto", "required", "off")
        self.arbitrate = _choice("arbitrate", "auto", "off")
        self.arbitrate_size = _bytes("arbitrate-size")
        self.pressure = _switch("pressure")  # keys are tasks of the daemon's gate
        # tasks with large results wait at the scheduler where all workers share one partition
        self.queue = _switch("queue")
        self.p2p = _switch("p2p")  # shards of P2P shuffles and rechunks go through the partition
        self.cow = _choice("map", "cow", "ro") == "cow"
        self.min_size = _bytes("min-size")
        self.share = _share()  # auto, lazy or eager
        # bytes of a partition; None: by the memory limits of its workers
        self.most = None if _get("max") is None else _bytes("max")
        self.lease = _positive("lease", _seconds("lease"))
        self.max_maps = int(_positive("max-maps", int(_get("max-maps"))))
        self.message_bytes = _bytes("message-bytes")
        self.sweep_interval = _seconds("sweep-interval")
        self.log_interval = _seconds("log-interval")
        self.tier = TierSettings()


class ManagerSettings:
    """Settings of all policies of a scheduler's memory manager. ValueError
    where one makes no sense."""

    def __init__(self) -> None:
        high, low = _watermarks("amm")
        self.high, self.low = high / 100, low / 100  # shares of a partition
        self.slice = _positive("amm.slice", _seconds("amm.slice"))
        self.delay = _positive("amm.delay", _seconds("amm.delay"))
        self.in_flight = _positive("amm.in-flight", _seconds("amm.in-flight"))


def enabled() -> bool | None:
    """`enabled`: True, False, or None where nobody said either."""
    return None if _get("enabled") is None else _switch("enabled")


def preload() -> None:
    """Workers and nannies that this process starts preload the module that asks `enabled`."""
    for key in ("distributed.worker.preload", "distributed.nanny.preload"):
        named = dask.config.get(key, default=None) or []
        named = [named] if isinstance(named, str) else list(named)
        if __name__ not in named:
            dask.config.set({key: [*named, __name__]})


_ELSEWHERE = {  # what other systems call it: Ray, vineyard, distributed
    "object-store-memory": "max", "limit": "max", "size": "max", "plasma-directory": "partition",
    "directory": "partition", "socket": "daemon", "object-spilling-config": "tier.path",
    "object-spilling-directory": "tier.path", "spill": "tier.high", "max-spill": "tier.max",
    "target": "share", "memory-usage-threshold": "pressure", "memory-monitor-refresh-ms": "pressure"
}


def warn_of_unknown() -> None:
    """Says once of each key below ours that there is no such, and which one may be meant."""
    known = set(_flat(_defaults["distributed"]["worker"]["memory"]["shared"]))
    given = dask.config.get(PREFIX, default=None)
    for key in _flat(given) if isinstance(given, Mapping) else ():
        if key in known or key in _warned:
            continue
        _warned.add(key)
        near = ([_ELSEWHERE[key]] if key in _ELSEWHERE else difflib.get_close_matches(
            key, known, 1, 0.5))
        near = near or [k for k in known if k.split(".")[-1] == key.split(".")[-1]]
        meant = f"; did you mean {PREFIX}.{near[0]}?" if near else ""
        logger.warning("shmstore: there is no configuration key %s.%s: it does nothing%s", PREFIX,
                       key, meant)


def _flat(tree: Mapping[str, object], above: str = "") -> Iterator[str]:
    for name, value in tree.items():
        key = above + str(name).replace("_", "-")
        if isinstance(value, Mapping):
            yield from _flat(value, key + ".")
        else:
            yield key


def _get(key: str) -> Any:
    # `shared: true`, set after the import
    if isinstance(whole := dask.config.get(PREFIX), (bool, str)):
        return whole if key == "enabled" else dask.config.get(f"{PREFIX}.{key}", config=_defaults)
    return dask.config.get(f"{PREFIX}.{key}")


def _share() -> str:
    share = _choice("share", "auto", "lazy", "eager")
    target = dask.config.get("distributed.worker.memory.target", default=None)
    # A target of 0 bytes of private memory; `false` is that there is none.
    return "eager" if share == "auto" and target == 0 and target is not False else share


def _choice(key: str, *choices: str) -> str:
    value = _get(key)
    if value is False and "off" in choices:  # as YAML reads an off without quotes
        value = "off"
    if value not in choices:
        raise ValueError(f"{PREFIX}.{key} must be one of {', '.join(choices)}, not {value!r}")
    return str(value)


def _switch(key: str) -> bool:
    value = _get(key)
    if isinstance(value, str) and value.lower() in ("true", "false"):  # as the environment gives it
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError(f"{PREFIX}.{key} must be true or false, not {value!r}")
    return value


def _percent(key: str) -> int:
    """A share between 0 and 1, in percent."""
    value = float(_get(key))
    if not 0.01 <= value <= 1:
        raise ValueError(f"{PREFIX}.{key} must be a share of the partition, from 0.01 to 1, not "
                         f"{value!r}")
    return round(value * 100)


def _watermarks(part: str) -> tuple[int, int]:
    """In percent."""
    high, low = _percent(f"{part}.high"), _percent(f"{part}.low")
    if low >= high:
        raise ValueError(f"{PREFIX}.{part}.low must be less than {part}.high, not {low} % and "
                         f"{high} %")
    return high, low


def _bytes(key: str) -> int:
    return int(parse_bytes(_get(key)))


def _seconds(key: str) -> float:
    return float(parse_timedelta(_get(key), default="s") or 0)


def _positive(key: str, value: float) -> float:
    if not value > 0:
        raise ValueError(f"{PREFIX}.{key} must be more than 0, not {value!r}")
    return value


class Fallbacks:
    """The log of fallbacks: one line of fields for each time a value goes the ordinary way though
    it might have been shared. Of one worker or client; may be used by many threads.

    The same reason is logged at most once per interval, with the number of lines left out
    meanwhile.
    """

    def __init__(self, interval: float, who: str = "") -> None:
        self.interval = interval
        self.who = who
        self.counts: Counter[str] = Counter()  #: by reason, logged or not
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()
        self._unshared: dict[type, str] = {}  # why
        self._kept: dict[str, list[int]] = {}  # why -> values, bytes
        self._shared: set[type] = set()

    def unshared(self, kind: type, why: str) -> None:
        """Large values of a type go as on stock, always: said once for each type. No
        fallback, and not counted as one."""
        with self._lock:
            if kind in self._unshared:
                return
            self._unshared[kind] = why
        logger.info("shmstore: values of type %s.%s go as on stock: %s worker=%s", kind.__module__,
                    kind.__qualname__, why, self.who)

    def note(self, reason: str, error: BaseException | None = None, key: object = None,
             then: str = "", trace: bool = False) -> None:
        """Logs one fallback: why (reason, errno), of which key, and what happens now. trace:
        with the error's traceback."""
        code = getattr(error, "errno", None)
        with self._lock:
            self.counts[reason] += 1
            now = time.monotonic()
            if reason in self._said and now - self._said[reason] < self.interval:
                self._left_out[reason] += 1
                return
            self._said[reason] = now
            left_out = self._left_out.pop(reason, 0)
        logger.warning(
            "shmstore fallback: reason=%s key=%r errno=%s error=%r then=%r worker=%s suppressed=%d",
            reason,
            key,
            errno.errorcode.get(code, code) if code is not None else None,
            str(error) if error is not None else None,
            then,
            self.who,
            left_out,
            exc_info=error if trace else None,
        )

    def kept(self, nbytes: int, kind: type | None = None, why: str = "") -> None:
        """A value of so many bytes was not shared: because of what `unshared`
        said of its type, or why."""
        with self._lock:
            if kind is not None:
                why = f"{typename(kind)}: {self._unshared.get(kind, why)}"
            if why not in self._kept and len(self._kept) >= _KEPT_MAX:
                why = "others"
            counts = self._kept.setdefault(why, [0, 0])
            counts[0] += 1
            counts[1] += nbytes

    def not_shared(self) -> dict[str, list[int]]:
        """Why values were not shared: how many, and their bytes."""
        with self._lock:
            return {why: list(counts) for why, counts in self._kept.items()}

    def full_is_no_news(self) -> None:
        """A full partition is counted, and not said."""
        self._said["partition-full"] = math.inf

    def stored(self, kind: type) -> None:
        """A value of that type could be stored."""
        self._shared.add(kind)

    def private_types(self) -> list[str]:
        """Names, as the scheduler has them, of the types of which large values were met
        and none could be shared."""
        with self._lock:
            return sorted(typename(kind) for kind in self._unshared.keys() - self._shared)


class Guard:
    """Optimisations run behind it: an exception is logged once, and stock's way taken. Of one
    worker. what: the step, for the log.

    Dask closes a worker whose own code raises, and a key whose `execute` raises stays "executing"
    for ever. Neither may come from this package, which looks into values of users' classes that
    stock Dask only passes on: their attributes and reductions may raise anything.
    """

    def __init__(self, fallbacks: Fallbacks) -> None:
        self.fallbacks = fallbacks

    def call(self, what: str, function: Callable[..., Result], *args: object,
             key: object = None) -> Result | None:
        """function(*args); None where it raises."""
        try:
            return function(*args)
        except Exception as e:
            self.failed(what, e, key)
            return None

    async def wait(self, what: str, function: Callable[..., Awaitable[Result]], *args: object,
                   key: object = None) -> Result | None:
        """await function(*args); None where it raises."""
        try:
            return await function(*args)
        except Exception as e:
            self.failed(what, e, key)
            return None

    @asynccontextmanager
    async def within(self, what: str, make: Callable[..., AbstractAsyncContextManager[Result]],
                     *args: object) -> AsyncIterator[Result | None]:
        """Runs the body within make(*args), or without if that fails. Its own errors go through."""
        try:
            manager = make(*args)
            value = await manager.__aenter__()
        except Exception as e:
            self.failed(what, e)
            yield None
            return
        try:
            yield value
        except BaseException:
            await self.wait(what, manager.__aexit__, *sys.exc_info())
            raise
        await self.wait(what, manager.__aexit__, None, None, None)

    def failed(self, what: str, error: BaseException, key: object = None) -> None:
        """Logs it, with the traceback."""
        self.fallbacks.note(f"failed-{what}", error, key, "goes on as stock", trace=True)


async def offload(function: Callable[..., Result], *args: object) -> Result:
    """function(*args), in Dask's thread for such things, or here where the interpreter ends.

    A program that simply ends closes its in-process cluster in an atexit handler. Threads take no
    more work by then: what has to be done to close is done on the event loop.
    """
    return await _try(distributed.utils.offload, function, args)


async def run_in(executor: Executor | None, function: Callable[..., Result],
                 *args: object) -> Result:
    """The same in a thread of an executor."""
    loop = asyncio.get_running_loop()
    return await _try(lambda call: loop.run_in_executor(executor, call), function, args)


async def _try(run: Callable[[Callable[[], Result]], Awaitable[Result]],
               function: Callable[..., Result], args: tuple[object, ...]) -> Result:
    begun = False

    def call() -> Result:
        nonlocal begun
        begun = True
        return function(*args)

    try:
        return await run(call)
    except RuntimeError:  # "cannot schedule new futures after shutdown", or the function's own
        if begun:
            raise
    return function(*args)


def leave_libraries_out(worker: Worker) -> None:
    """Whenever a task comes; it is done once, in a process of the worker's own.

    A full collection of cyclic garbage goes through all objects there are: 40 ms where Dask and
    pandas are imported. These objects stay as long as the process. So what is there when a worker's
    first task comes is left out from then on; not while the worker has values, which may become
    garbage one day.
    """
    global _left_out
    if not _left_out and worker.nanny and not worker.state.data:
        _left_out = True
        gc.freeze()


def make_room_for_descriptors() -> None:
    """When a worker starts. A table of descriptors that is full is doubled, and the kernel waits
    until no thread of the process looks at the old one: 14 to 40 ms were seen, for all threads that
    opened a file meanwhile. So the process has, for a moment, one with a high number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if soft == resource.RLIM_INFINITY else min(_DESCRIPTORS, soft)
    with suppress(OSError):
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.close(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, most - 1))
        finally:
            os.close(fd)


def look_first(server: Server, make: Callable[[PeriodicCallback],
                                              Callable[[], Awaitable[None] | None]]) -> None:
    """Has a server look at its memory as make(stock's callback) says, in place of
    stock, where it looks at it."""
    if (stock := server.periodic_callbacks.get("memory_monitor")) is None:  # no limit
        return
    running = stock.is_running()
    stock.stop()
    watch = server.periodic_callbacks["memory_monitor"] = PeriodicCallback(
        make(stock), stock.callback_time)
    if running:
        watch.start()


def dask_setup(server: object) -> None:
    """Called by Dask in each worker or nanny."""
    from . import dask_setup as setup

    if enabled():
        setup(server)
