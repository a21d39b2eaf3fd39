# SPDX-License-Identifier: Apache-2.0
"""The values of the partition that tasks and peers are about to need, mapped before they ask the data mapping for them.

A map may have to bring the value back from disk. It happens in a thread, while the event loop goes
on and, for the task that comes next, while the present one runs. Values in memory that is not short
are mapped at once: a thread would take longer. Held values stay mapped; others are unmapped where
memory is short, so that they can be moved out. Used by the worker's event loop only.

While memory is short, the order of tasks decides how often a value is read: with cyclic access to more than fits, the least recently used goes
first, which is what is needed next. So a task runs first whose inputs are in memory, whoever brought them there; where there is none, the one that
reads the fewest bytes for each task that they let run: what it brings back is used for all of them before it goes. A task that was passed over
often enough runs whatever it needs.

And what is on disk is used where it lies then, mapped from there: to bring it back another value
would have to go that is needed as well. The kernel's page cache holds as much of it as the host has
memory to spare, for all workers, and gives way to all else. Compressed values come back.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections import Counter
from collections.abc import AsyncIterator, Container, Iterable
from contextlib import asynccontextmanager
from itertools import chain, islice
from typing import Any

from .buffer import SharedBuffer
from .compat.worker import choose_next
from .exchange import Entry, Exchange
from .tier import Tier

_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE)  # others let go of maps soon
_PATIENCE = 2.0  # seconds for which room for a value is waited for; then it is read beside the partition
_SHORTAGE_PAUSE = 0.05  # seconds between two tries
_TASKS_MAX = 256  # of those that may run, that are looked at for the next one, ...
_INPUTS_MAX = 1024  # ... as long as they have no more inputs than that: it happens on the event loop
_PASSES_MAX = 512  # of others over the first one
_QUICK = 16 << 10  # bytes of a pickle that are read on the event loop
_AT_ONCE = 16  # values that are mapped there before others have their turn


class Inputs:
    """Values that a worker maps, also ahead. state: its state machine, to choose the next task."""

    def __init__(self, exchange: Exchange, residence: SharedBuffer, tier: Tier, state: Any) -> None:
        self.exchange = exchange
        self.residence = residence
        self.tier = tier
        self._ready = choose_next(state, self._choose)
        self._first: Any = None  # the key of the task that has waited longest, ...
        self._passes = 0  # ... and how many were run before it
        self._ahead: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def held(self, keys: Iterable[Any], aside: Container[Any] = ()) -> AsyncIterator[None]:
        """Maps the keys' values in the partition within. A failed map is left to the value's user.

        aside: keys that are not brought back from the disk tier, but read where they lie.
        """
        keys = list(keys)
        self.residence.hold(keys)
        try:
            away = [key for key in keys if self._is_away(key)]
            if away and self.tier.at_ease():
                away = await self._left_to_map(away)
            if away:
                await asyncio.gather(*(self._mapped(key, key in aside) for key in away))
            yield
        finally:
            self.residence.release(keys)
            self.relieve()

    def look_ahead(self) -> None:
        """Maps what the next task needs, in place of what was thought to be next, as far as there is room for it. Not where all of it is at hand,
        and will be."""
        self.close()
        if not self._ready:
            return
        task = self.next_of(self._ready.in_order()) or self._ready.peek()
        keys = [dep.key for dep in task.dependencies]
        away = [key for key in keys if self._is_away(key)]
        if not away or (self.tier.at_ease() and not any(self._to_read(key) for key in away)):
            return
        before, with_them = self.residence.held(), self.residence.held(keys)
        if before == with_them or with_them > self.tier.share():
            return
        self._ahead = asyncio.ensure_future(self._hold(keys))

    def next_of(self, tasks: Iterable[Any]) -> Any:
        """The task to run next of those that may run; None: the first one."""
        tasks = iter(tasks)
        first = next(tasks)
        # Whether memory is short is a system call, and no question of tasks that read nothing.
        if not any(self._is_away(dep.key) for dep in first.dependencies) or not self.tier.pressed():
            return None
        near: dict[Any, int] = {}  # key -> bytes to be read for it
        all_away: list[tuple[Any, list[Any]]] = []
        for task in chain((first,), islice(tasks, _TASKS_MAX - 1)):
            away = self._away(task, near)
            if not away:
                return task
            all_away.append((task, away))
            if len(near) >= _INPUTS_MAX:
                break
        lets_run = Counter(away[0] for _, away in all_away if len(away) == 1)  # without that key
        return min(all_away, key=lambda item: _price(item[1], near, lets_run))[0]

    def close(self) -> None:
        """Lets go of values that are mapped ahead."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None

    def relieve(self) -> None:
        """Lets go of idle maps where memory is short, but not of maps of files on disk."""
        if self.residence.maps_any() and self.tier.pressed():
            self.residence.unmap_idle(aside=False)

    # -- private

    def _away(self, task: Any, near: dict[Any, int]) -> list[Any]:
        """Inputs of a task to read from the disk tier. near: facts about keys, and new ones."""
        away = []
        for dep in task.dependencies:
            if dep.key not in near:
                near[dep.key] = self._to_read(dep.key)
            if near[dep.key]:
                away.append(dep.key)
        return away

    async def _hold(self, keys: list[Any]) -> None:
        async with self.held(keys):
            await asyncio.get_running_loop().create_future()  # until it is cancelled

    def _choose(self, tasks: Iterable[Any]) -> Any:
        """next_of, of a task that runs now. No error of ours may meet the state machine."""
        tasks = iter(tasks)
        first = next(tasks)
        if first.key != self._first:
            self._first, self._passes = first.key, 0
        chosen = None
        if self._passes < _PASSES_MAX:
            chosen = self.exchange.guard.call("choose", self.next_of, chain((first,), tasks))
        self._passes += chosen is not None and chosen is not first
        return chosen

    def _to_read(self, key: Any) -> int:
        """Bytes that are to be read from the disk tier for a key."""
        entry = self.residence.entry(key)
        if entry is None or entry.value is not None or entry.coming is not None:
            return 0
        return entry.nbytes if self.tier.has(entry) else 0

    def _is_away(self, key: Any) -> bool:
        """Whether the value of a key lies in the partition, or on its disk, and is not mapped."""
        entry = self.residence.entry(key)
        return entry is not None and entry.value is None

    async def _left_to_map(self, keys: list[Any]) -> list[Any]:
        """Maps those that are in memory. The others are left."""
        left = []
        for i, key in enumerate(keys, 1):
            if not self._map_now(key):
                left.append(key)
            if i % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return left

    def _map_now(self, key: Any) -> bool:
        entry = self.residence.entry(key)
        if entry is None or entry.coming is not None or entry.pickled > _QUICK or self.tier.has(entry):
            return False
        if entry.value is None:
            try:
                value = self.exchange.map(entry)
            except Exception:  # the thread that maps it will say it
                return False
            self.residence.keep(key, entry, value)
        return True

    async def _mapped(self, key: Any, aside: bool) -> None:
        entry = self.residence.entry(key)
        if entry is None or entry.value is not None:
            return
        if entry.coming is None:
            entry.coming = asyncio.ensure_future(self._map(key, entry, aside))
        await asyncio.shield(entry.coming)  # several may wait for it

    async def _map(self, key: Any, entry: Entry, aside: bool) -> None:
        aside = aside or (self.tier.used_where_it_lies() and self.tier.has(entry))
        patience = time.monotonic() + (0 if aside else _PATIENCE)
        try:
            while True:
                way = self.exchange.map if time.monotonic() < patience else self.exchange.map_aside
                try:
                    value = await self.tier.run(way, entry)
                    break
                except KeyError:  # it went meanwhile
                    return
                except Exception as e:
                    if not isinstance(e, OSError) or e.errno not in _PASSING or way == self.exchange.map_aside:
                        self.exchange.fallbacks.note("map-failed", e, key, "tasks that need it will fail")
                        return
                self.residence.unmap_idle()
                await asyncio.sleep(_SHORTAGE_PAUSE)
            self.residence.keep(key, entry, value, aside=way == self.exchange.map_aside and self.tier.has(entry))
            self.tier.grew()
        finally:
            entry.coming = None


def _price(away: list[Any], near: dict[Any, int], lets_run: Counter[Any]) -> float:
    """Bytes to be read of a task for each task that they let run."""
    nbytes = sum(near[key] for key in away)
    return nbytes / lets_run[away[0]] if len(away) == 1 else float(nbytes)
