# SPDX-License-Identifier: Apache-2.0
"""Stages of a collection's job, each with the share of the worker's memory that the daemon's stage profile gives it: docs/stages.md.

    shuffle, rechunk   who reads what was shuffled: by M x N of that, and the share of its inputs that are Python objects
    map                any other operation on a collection's parts, as map_partitions: by the share of its inputs that are Python objects

A worker is in one stage at a time: from its first key of it until none of its keys has run for a moment, or one of another stage begins when none runs.
Keys of other stages that begin meanwhile run within it. Off unless the configuration says so (``stages``); each decision is logged with its reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dask.sizeof import sizeof
from dask.utils import key_split

from ..staging import Stage, StageProfile
from .budget import Budget
from .compat import stages as compat
from .exchange import Exchange
from .offloading import run_in

logger = logging.getLogger("distributed.worker.shared")

_LINGER = 0.5  # seconds without one of its keys after which a stage has ended
_LOOKED_AT = 4  # results of a group
_GROUPS_MAX = 1000
_STORED_AS_OBJECTS = "python"  # the storage of a text column that consists of Python objects


def objects_in(value: Any) -> tuple[int, int] | None:
    """(bytes of Python objects, of all) of an array, a series or a frame; None of anything else."""
    if hasattr(value, "columns") and hasattr(value, "dtypes") and hasattr(value, "iloc"):
        parts = [(dtype, value.iloc[:, i]) for i, dtype in enumerate(value.dtypes)]
    elif hasattr(value, "dtype"):
        parts = [(value.dtype, value)]
    else:
        return None
    sizes = [(_is_of_objects(dtype), int(sizeof(part))) for dtype, part in parts]
    return sum(size for objects, size in sizes if objects), sum(size for _, size in sizes)


def _is_of_objects(dtype: Any) -> bool:
    return bool(getattr(dtype, "hasobject", False)) or getattr(dtype, "storage", None) == _STORED_AS_OBJECTS


class Stages:
    """Of one worker's event loop. budget: of its private memory, which follows; None: it has none."""

    @classmethod
    def of(cls, worker: Any, exchange: Exchange, budget: Budget | None) -> Stages | None:
        """A worker's; None on a Dask that has not what it takes."""
        if compat.missing_hooks:
            exchange.fallbacks.note("no-stages", key=", ".join(compat.missing_hooks), then="memory is divided as ever")
            return None
        return cls(worker, exchange, budget)

    def __init__(self, worker: Any, exchange: Exchange, budget: Budget | None) -> None:
        self.counts: dict[str, int] = {}  #: decisions, by what was decided
        self._worker = worker
        self._store = exchange.store
        self._guard = exchange.guard
        self._budget = budget
        self._thread = ThreadPoolExecutor(1, "shmstore-stage")  # a begin may wait for what other workers hold
        self._lock = asyncio.Lock()
        self._objects: OrderedDict[str, list[int]] = OrderedDict()  # group -> bytes of objects, of all, and of how many results
        self._group: str | None = None  # of the stage that the worker is in
        self._stage: Stage | None = None
        self._running = 0
        self._failed = False
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Future[None] | None = None

    def close(self) -> None:
        """Before the store is, whose end ends the stage."""
        if self._timer is not None:
            self._timer.cancel()
        self._thread.shutdown(wait=False)

    # -- keys

    async def run(self, key: Any, execute: Callable[[], Awaitable[Any]]) -> Any:
        """The event of a key, within its stage."""
        group = self._stage_of(key)
        if group is None:
            return await execute()
        within = await self._guard.wait("stage", self._enter(group, key), otherwise=False, key=key)
        event = None
        try:
            event = await execute()
        finally:
            if within:
                self._guard.call("stage", self._leave, event is None)
        return event

    def made(self, key: Any, value: Any) -> None:
        """A key's result, before it is put anywhere."""
        if compat.is_part(key):
            self._guard.call("stage", self._look_at, key, value, key=key)

    # -- private

    def _look_at(self, key: Any, value: Any) -> None:
        known = self._objects.setdefault(compat.group_of(key), [0, 0, 0])
        if known[2] >= _LOOKED_AT:
            return
        sizes = objects_in(value)
        if sizes is None:
            return
        known[:] = known[0] + sizes[0], known[1] + sizes[1], known[2] + 1
        while len(self._objects) > _GROUPS_MAX:
            self._objects.popitem(last=False)

    def _stage_of(self, key: Any) -> str | None:
        """The group of a key that is a stage's."""
        if not compat.is_part(key):
            return None
        group = compat.group_of(key)
        return None if compat.kind_of(group) == "pieces" else group

    async def _enter(self, group: str, key: Any) -> bool:
        """Whether the key counts as one of the stage that the worker is in."""
        async with self._lock:
            if self._group != group:
                if self._running:
                    self._count("within-another")
                    logger.debug("shmstore: key %r runs within the stage %s, which has not ended", key, self._group)
                    return False
                await self._end()
                await self._begin(group, key)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._running += 1
            return True

    def _leave(self, failed: bool) -> None:
        self._running -= 1
        self._failed |= failed
        if not self._running and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LINGER, self._quiet)

    def _quiet(self) -> None:
        self._timer = None
        self._ending = asyncio.ensure_future(self._guard.wait("stage", self._end_if_quiet()))

    async def _end_if_quiet(self) -> None:
        async with self._lock:
            if not self._running:
                await self._end()

    async def _begin(self, group: str, key: Any) -> None:
        """The worker is in it from here on, with a profile or without."""
        kind = compat.kind_of(group)
        self._group, self._failed = group, False
        task = self._worker.state.tasks[key]
        nonshare = self._share_of(compat.group_of(dependency.key) for dependency in task.dependencies)
        upstream = []
        if kind != "map":
            upstream = await self._guard.wait("stage", compat.upstream_of(self._worker, group), otherwise=[], key=key)
        asked = await run_in(self._thread, self._ask, key_split(group), nonshare, upstream)
        if asked is None:
            self._count("no-daemon")
            logger.info("shmstore: stage %s (%s) has no profile: there is no daemon", group, kind)
            return
        profile, has, self._stage = asked
        self._follow(has if has.profile else None)
        for rule in has.rules or profile.rules:
            self._count(rule)
        self._count("degraded" if has.degraded else "begun" if has.profile else "base")
        logger.info(
            "shmstore: stage %s (%s) begins: rules=%s nonshare=%s shuffles=%s profile=%d private=%d shared=%d slots=%d clamped=%s degraded=%s budget=%s",
            group, kind, ",".join(profile.rules) or "none", "unknown" if nonshare is None else f"{nonshare:.2f}", upstream, has.profile, has.private,
            has.shared, has.slots, profile.clamped, has.degraded, "none" if self._budget is None else self._budget.whole,
        )

    async def _end(self) -> None:
        group, self._group = self._group, None
        stage, self._stage = self._stage, None
        if stage is None:
            return
        await run_in(self._thread, stage.end, self._failed)
        self._follow(None)
        logger.info("shmstore: stage %s has ended%s: budget=%s", group, ", failed" if self._failed else "", "none" if self._budget is None else self._budget.whole)

    def _ask(self, name: str, nonshare: float | None, upstream: list[tuple[int, int]]) -> tuple[StageProfile, StageProfile, Stage] | None:
        """In the thread."""
        profile = self._store.stage_profile(name, nonshare=nonshare, upstream=upstream)
        if profile is None:
            return None
        stage = self._store.stage(name, profile)
        has = stage.begin()
        return None if has is None else (profile, has, stage)

    def _follow(self, has: StageProfile | None) -> None:
        if self._budget is not None:
            self._budget.divide(None if has is None else has.private)

    def _share_of(self, groups: Iterable[str]) -> float | None:
        """Of the inputs' bytes, those of Python objects; None: nothing is known of them."""
        known = [self._objects[group] for group in set(groups) if group in self._objects]
        total = sum(each[1] for each in known)
        return sum(each[0] for each in known) / total if total else None

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
