# SPDX-License-Identifier: Apache-2.0
"""The values of the partition that tasks and peers are about to need, mapped before they
ask the data mapping for them.

A map may have to bring the value back from disk. It happens in a thread, while the event loop goes
on and, for the task that comes next, while the present one runs. Values in memory that is not short
are mapped at once: a thread would take longer. Held values stay mapped; others are unmapped where
memory is short, so that they can be moved out. Used by the worker's event loop only.

While memory is short, the order of tasks decides how often a value is read: with cyclic access to
more than fits, the least recently used goes first, which is what is needed next. So a task runs
first whose inputs are in memory, whoever brought them there; where there is none, the one that
reads the fewest bytes for each task that they let run: what it brings back is used for all of them
before it goes. A task that was passed over often enough runs whatever it needs.

And what is on disk is used where it lies then, mapped from there: to bring it back another value
would have to go that is needed as well. The kernel's page cache holds as much of it as the host has
memory to spare, for all workers, and gives way to all else. Compressed values come back.

Beside it: the inputs of a task that is done in pieces, by a splitter that programs register, and
what memory inputs need (`Needs`).

    import shmstore.dask

    def split(args, kwargs):
        (parts,) = args                            # as in the graph; inputs of tasks are Inputs
        middle = len(parts) // 2
        return [((parts[:middle],), {}), ((parts[middle:],), {})] if middle else None

    shmstore.dask.register_splitter(total, split, combine=sum)

A split sees no values, as there is no room for them: an Input knows its key and its size,
may go into several pieces, and with an index or a slice stands for that part of the
value. Where the module that defines a function registers its splitter, every worker that
is sent the function knows it.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from dask.utils import key_split

from .compat.worker import Call, choose_next, is_nested
from .config import run_in
from .exchange import Entry, Exchange
from .residence import SharedBuffer
from .values import Habits

if TYPE_CHECKING:
    from .compat.worker import Key, TaskState, WorkerState
    from .tier import Tier

Piece = tuple[tuple[object, ...], dict[str, object]]
Split = Callable[[tuple[object, ...], dict[str, object]], "list[Piece] | None"]
Combine = Callable[[list[object]], object]


class Input:
    """Stands for the value of another task, or for a part of it."""

    __slots__ = ("key", "nbytes", "part")

    def __init__(self, key: Key, nbytes: int, part: tuple[object, ...] = ()) -> None:
        self.key = key
        self.nbytes = nbytes  #: sizeof the whole value
        self.part = part  #: indexes, one after the other

    def __getitem__(self, index: object) -> Input:
        return Input(self.key, self.nbytes, (*self.part, index))

    def __iter__(self) -> object:
        raise TypeError("a split sees no values: slice an Input, its length is not known here")

    def of(self, value: Any) -> object:
        """The part of value that it stands for."""
        for index in self.part:
            value = value[index]
        return value

    def __repr__(self) -> str:
        return (f"<Input {self.key!r} of {self.nbytes} "
                f"bytes{''.join(f'[{index!r}]' for index in self.part)}>")


class Splitter(NamedTuple):
    """split(args, kwargs) -> pieces, two at least, or None where it cannot be smaller;
    combine(results, in order) -> the result."""

    split: Split
    combine: Combine


splitters: dict[object, Splitter] = {}  #: by function, or prefix of keys


def register_splitter(func_or_prefix: Callable[..., object] | str, split: Split,
                      combine: Combine) -> None:
    """For a task's function, or for all keys of a prefix, in this process.
    Anew: in place of the one before.

    split      (args, kwargs) -> [(args, kwargs), …], or None: it cannot be done in smaller pieces.
               It must be the same result whenever it is called; what it returns may be split again
    combine    the results of the pieces, in their order -> the result of the whole
    """
    if not callable(func_or_prefix) and not isinstance(func_or_prefix, str):
        raise TypeError(f"register_splitter: a function or the prefix of a key, not "
                        f"{func_or_prefix!r}")
    if not callable(split) or not callable(combine):
        raise TypeError("register_splitter: split and combine are functions")
    splitters[func_or_prefix] = Splitter(split, combine)


def splitter_of(key: Key, function: object) -> Splitter | None:
    """The function's own before the prefix's."""
    try:
        found = splitters.get(function)
    except TypeError:  # not hashable
        found = None
    return found or splitters.get(key_split(key))


def inputs_in(thing: object) -> Iterator[Input]:
    """All that stand in arguments, in tuples, lists, sets and dictionaries of any depth."""
    if isinstance(thing, Input):
        yield thing
    elif isinstance(thing, (tuple, list, set, frozenset)):
        for item in thing:
            yield from inputs_in(item)
    elif isinstance(thing, dict):
        for item in thing.values():
            yield from inputs_in(item)


def with_values(thing: Any, values: dict[Key, object]) -> Any:
    """The same with the values in place of the Inputs. A nested task in it is done, as Dask
    would."""
    if isinstance(thing, Input):
        return thing.of(values[thing.key])
    if isinstance(thing, Call):
        return thing.function(*with_values(thing.args, values), **with_values(thing.kwargs, values))
    if isinstance(thing, tuple) and is_nested(thing):
        return thing[0](*(with_values(item, values) for item in thing[1:]))
    if type(thing) in (tuple, list, set, frozenset):
        return type(thing)(with_values(item, values) for item in thing)
    if type(thing) is dict:
        return {key: with_values(item, values) for key, item in thing.items()}
    return thing


def check_pieces(pieces: Any, splitter: Splitter) -> list[Piece] | None:
    """The pieces that a split returned. TypeError where they are not pieces."""
    if pieces is None:
        return None
    pieces = list(pieces)
    for piece in pieces:
        if not (isinstance(piece, tuple) and len(piece) == 2 and isinstance(piece[0], tuple) and
                isinstance(piece[1], dict)):
            raise TypeError(f"the split {splitter.split!r} returned {piece!r} as a piece, not "
                            f"(args, kwargs)")
    return pieces if len(pieces) > 1 else None


_NONE: frozenset[Key] = frozenset()


class Need(NamedTuple):
    """Bytes."""

    unspill: int  #: inputs from spill files: known
    result: int  #: estimated
    promote: int  #: inputs from the disk tier
    store: int  #: of the partition, for the result
    pinned: int  #: inputs that lie in memory

    @property
    def private(self) -> int:
        return self.unspill + self.result

    @property
    def partition(self) -> int:
        return self.promote + self.store

    @property
    def all(self) -> int:
        return self.unspill + self.result + self.promote + self.pinned


class Needs:
    """A key's need of memory, as far as it is known before it runs, and the maps that can go for
    it. Of one worker's event loop. Without a disk tier nothing is ever asked of the partition."""

    def __init__(self, exchange: Exchange, residence: SharedBuffer, habits: Habits,
                 tier: Tier | None) -> None:
        self.exchange = exchange
        self.residence = residence
        self.habits = habits
        self.tier = tier

    def of(self, task: TaskState, result: int,
           promote_most: int | None) -> tuple[Need, frozenset[Key]]:
        """Of a key, with the inputs that are to be read where they lie: those beyond promote_most
        (None: no such bound); all of them where memory is short (inputs.py)."""
        need, aside = self.of_keys([dep.key for dep in task.dependencies], result, promote_most)
        share = self.exchange.settings.share
        stores = (self.tier is not None and promote_most != 0 and
                  result >= self.exchange.settings.min_size)
        if stores and (share == "eager" or (share == "auto" and self.habits.of(task.key).leaves)):
            need = need._replace(store=result)
        return need, aside

    def of_keys(self, keys: Iterable[Key], result: int,
                promote_most: int | None) -> tuple[Need, frozenset[Key]]:
        """The same of a piece: its result stays private."""
        unspill = pinned = 0
        away: list[tuple[int, Key]] = []
        for key in keys:
            entry = self.residence.entry(key)
            if entry is None:
                unspill += self.residence.spilled_size(key)
            elif entry.value is None and self.tier is not None and self.tier.has(entry):
                away.append((entry.nbytes, key))
            else:
                pinned += entry.nbytes
        promote = sum(nbytes for nbytes, _ in away)
        aside = _NONE
        if away and self.tier is not None and self.tier.used_where_it_lies():
            promote_most = 0
        if promote_most is not None and promote > promote_most:
            promote, aside = self._part(away, promote_most)
            if self.tier is not None and self.tier.packed:  # compressed values cannot be mapped
                unspill += sum(nbytes for nbytes, key in away if key in aside)
        return Need(unspill, result, promote, 0, pinned), aside

    def relaxed(self, nbytes: int) -> bool:
        """Whether the partition has so much to spare that nobody needs to be asked for it."""
        return self.tier is None or nbytes <= self.tier.spare()

    def let_go(self) -> None:
        """Unmaps values that are not in use."""
        if self.tier is not None:
            self.tier.inputs.close()
            self.residence.unmap_idle()

    # -- private

    @staticmethod
    def _part(away: list[tuple[int, Key]], most: int) -> tuple[int, frozenset[Key]]:
        """As much as fits, the small ones first; the others are aside."""
        promote, aside = 0, set()
        for nbytes, key in sorted(away, key=lambda item: item[0]):
            if promote + nbytes <= most:
                promote += nbytes
            else:
                aside.add(key)
        return promote, frozenset(aside)


_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE)  # others let go of maps soon
# seconds for which room for a value is waited for; then it is read beside the partition
_PATIENCE = 2.0
_SHORTAGE_PAUSE = 0.05  # seconds between two tries
_TASKS_MAX = 256  # of those that may run, that are looked at for the next one, ...
# ... as long as they have no more inputs than that: it happens on the event loop
_INPUTS_MAX = 1024
_PASSES_MAX = 512  # of others over the first one
_QUICK = 16 << 10  # bytes of a pickle that are read on the event loop
_AT_ONCE = 16  # values that are mapped there before others have their turn


class Inputs:
    """Values that a worker maps, also ahead. state: its state machine, to choose the next task."""

    def __init__(self, exchange: Exchange, residence: SharedBuffer, tier: Tier,
                 state: WorkerState) -> None:
        self.exchange = exchange
        self.residence = residence
        self.tier = tier
        self._ready = choose_next(state, self._choose)
        self._first: Key | None = None  # the key of the task that has waited longest, ...
        self._passes = 0  # ... and how many were run before it
        self._ahead: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def held(self, keys: Iterable[Key], aside: Container[Key] = ()) -> AsyncIterator[None]:
        """Within, the keys' values in the partition are mapped, and stay so."""
        keys = list(keys)
        self.residence.hold(keys)
        try:
            await self.bring(keys, aside)
            yield
        finally:
            self.residence.let_go(keys)
            self.relieve()

    async def bring(self, keys: Iterable[Key], aside: Container[Key] = ()) -> None:
        """Maps the keys' values in the partition. A failed map is left to the value's user.

        aside: keys that are not brought back from the disk tier, but read where they lie.
        """
        away = [key for key in keys if self._is_away(key)]
        if away and self.tier.at_ease():
            away = await self._left_to_map(away)
        if away:
            await asyncio.gather(*(self._mapped(key, key in aside) for key in away))

    def look_ahead(self) -> None:
        """Maps what the next task needs, in place of what was thought to be next, as far as there
        is room for it. Not where all of it is at hand, and will be."""
        if self._ahead is not None:
            self.close()
        if not self.residence.shared or not self._ready:
            return
        task = self.next_of(self._ready.in_order()) or self._ready.peek()
        keys = [dep.key for dep in task.dependencies]
        away = [key for key in keys if self._is_away(key)]
        if not away or (self.tier.at_ease() and not any(self._to_read(key) for key in away)):
            return
        before, with_them = self.residence.held(), self.residence.held(keys)
        if before == with_them or with_them > self.tier.low // len(self.exchange.seen.pids):
            return
        self._ahead = asyncio.ensure_future(self._hold(keys))

    def next_of(self, tasks: Iterable[TaskState]) -> TaskState | None:
        """The task to run next of those that may run; None: the first one."""
        tasks = iter(tasks)
        first = next(tasks)
        # Whether memory is short is a system call, and no question of tasks that read nothing.
        if not any(self._is_away(dep.key) for dep in first.dependencies) or not self.tier.pressed():
            return None
        near: dict[Key, int] = {}  # key -> bytes to be read for it
        all_away: list[tuple[TaskState, list[Key]]] = []
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

    def _away(self, task: TaskState, near: dict[Key, int]) -> list[Key]:
        """Inputs of a task to read from the disk tier. near: facts about keys, and new ones."""
        away = []
        for dep in task.dependencies:
            if dep.key not in near:
                near[dep.key] = self._to_read(dep.key)
            if near[dep.key]:
                away.append(dep.key)
        return away

    async def _hold(self, keys: list[Key]) -> None:
        async with self.held(keys):
            await asyncio.get_running_loop().create_future()  # until it is cancelled

    def _choose(self, tasks: Iterable[TaskState]) -> TaskState | None:
        """next_of, of a task that runs now. No error of ours may meet the state machine."""
        if not self.residence.shared:
            return None
        tasks = iter(tasks)
        first = next(tasks)
        if first.key != self._first:
            self._first, self._passes = first.key, 0
        chosen = None
        if self._passes < _PASSES_MAX:
            chosen = self.exchange.guard.call("choose", self.next_of, chain((first,), tasks))
        self._passes += chosen is not None and chosen is not first
        return chosen

    def _to_read(self, key: Key) -> int:
        """Bytes that are to be read from the disk tier for a key."""
        entry = self.residence.entry(key)
        if entry is None or entry.value is not None or entry.coming is not None:
            return 0
        return entry.nbytes if self.tier.has(entry) else 0

    def _is_away(self, key: Key) -> bool:
        """Whether the value of a key lies in the partition, or on its disk, and is not mapped."""
        entry = self.residence.entry(key)
        return entry is not None and entry.value is None

    async def _left_to_map(self, keys: list[Key]) -> list[Key]:
        """Maps those that are in memory. The others are left."""
        left = []
        for i, key in enumerate(keys, 1):
            if not self._map_now(key):
                left.append(key)
            if i % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return left

    def _map_now(self, key: Key) -> bool:
        entry = self.residence.entry(key)
        if (entry is None or entry.coming is not None or entry.pickled > _QUICK or
            self.tier.has(entry)):
            return False
        if entry.value is None:
            try:
                value = self.exchange.map(entry)
            except Exception:  # the thread that maps it will say it
                return False
            self.residence.keep(key, entry, value)
        return True

    async def _mapped(self, key: Key, aside: bool) -> None:
        entry = self.residence.entry(key)
        if entry is None or entry.value is not None:
            return
        if entry.coming is None:
            entry.coming = asyncio.ensure_future(self._map(key, entry, aside))
        await asyncio.shield(entry.coming)  # several may wait for it

    async def _map(self, key: Key, entry: Entry, aside: bool) -> None:
        aside = aside or (self.tier.used_where_it_lies() and self.tier.has(entry))
        patience = time.monotonic() + (0 if aside else _PATIENCE)
        try:
            while True:
                way = self.exchange.map if time.monotonic() < patience else self.exchange.map_aside
                try:
                    value = await run_in(self.tier.readers, way, entry)
                    break
                except KeyError:  # it went meanwhile
                    return
                except Exception as e:
                    if (not isinstance(e, OSError) or e.errno not in _PASSING or
                        way == self.exchange.map_aside):
                        self.exchange.fallbacks.note("map-failed", e, key,
                                                     "tasks that need it will fail")
                        return
                self.residence.unmap_idle()
                await asyncio.sleep(_SHORTAGE_PAUSE)
            self.residence.keep(key, entry, value, aside=way == self.exchange.map_aside and
                                self.tier.has(entry))
            self.tier.grew()
        finally:
            entry.coming = None


def _price(away: list[Key], near: dict[Key, int], lets_run: Counter[Key]) -> float:
    """Bytes to be read of a task for each task that they let run."""
    nbytes = sum(near[key] for key in away)
    return nbytes / lets_run[away[0]] if len(away) == 1 else float(nbytes)
