# SPDX-License-Identifier: Apache-2.0
"""Memory before work: a key runs when there is room for what it will take, and waits where there is
none, beside the event loop.

Needs of a key:

    private     inputs that lie in spill files, and its result, as large as
                those of its kind were lately
    partition   inputs that lie in the disk tier, and its result where that
                goes into the partition at once

Where both are at hand nothing is asked. Else the arbiter is: keys wait there for what they need,
all at once, and hold nothing meanwhile; other keys run. Retry: unused maps go, and the key waits
until all of it fits. A need that cannot be met as a whole (Split, or more than the pool has) is met
by steps, a moment later: others' unused maps count as taken until they hear of it.

    1   half of the inputs are brought back, the others are read where they lie
    2   by the splitter that was registered for it, in pieces
    3   all inputs are read where they lie; the result stays private. From here on it
        is about private memory only
    4   alone: with all that the private pool has, when nobody else runs and all values have left
    5   another worker may have room: the key goes back to the scheduler, once
    6   a MemoryError for this key, which says who holds what

An estimate alone fails no key: only inputs that must be read into private memory, and a pool
from which nothing can leave.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Union

from distributed import Reschedule
from distributed.sizeof import safe_sizeof

from .. import arbiter as daemon
from .compat.worker import Call, run_in_thread
from .inputs import Need, Needs, Piece, Splitter, check_pieces, inputs_in, with_values
from .memory import Budget, mib

if TYPE_CHECKING:
    from .arbiter import Arbiter, Claim
    from .compat.worker import Key, TaskState, WorkerState
    from .config import Result
    from .values import Habits
    from .worker import Worker

    Found = tuple[Need, frozenset[Key]]  #: a need, and the inputs to be read where they lie

_GONE = 0.5  # seconds between two looks whether a key that waits is still wanted
# seconds in which other workers hear that somebody waits, and let go of what
# they have mapped without use
_LET_GO = 0.25
_AGAIN = 3  # grants that may turn out to be too small, as inputs left memory meanwhile
_HANDED_BACK_MAX = 10_000


Outcome = Union[type[daemon.Outcome], None]  #: of a call of the arbiter; None: all was given
_NOT_HAD = (daemon.Down, daemon.Removed, daemon.Injected)  # there is nothing to be had from there


class NoRoom(MemoryError):
    """A key cannot have what it needs."""

    def __reduce__(self) -> tuple[object, ...]:
        return MemoryError, self.args


class Unwanted(Exception):
    """The key was cancelled while it waited."""


@dataclass
class Steps:
    """How far one key, or a piece of one, has come."""

    may_split: bool
    piece: bool = False
    promote_most: int | None = None  # bytes; None: all
    asked_again: bool = False
    alone: bool = False
    in_pieces: bool = False
    grants: int = 0
    asked_at: int = 0  # grants that had ended when the arbiter was asked last


class Grant:
    """The memory that a key was given, until `done`."""

    def __init__(self, admission: Admission, key: Key, claim: Claim | None, private: int,
                 need: Need, aside: frozenset[Key]) -> None:
        self.aside = aside  #: inputs to be read where they lie
        self.in_pieces = False  #: it is to be done by a splitter
        self.claim = claim
        self._admission = admission
        self._key = key
        self._private = private
        self._store = need.store
        admission.budget.claim(key, private, asked=claim is not None)

    def mapped(self) -> None:
        """Its inputs are at hand: their memory shows in the partition."""
        if self.claim is not None:
            self.claim.keep_partition(self._store)

    def stored(self) -> None:
        """So is its result."""
        if self.claim is not None:
            self.claim.keep_partition(0)

    def done(self, nbytes: int = 0) -> None:
        """nbytes: of a private value that the key leaves."""
        held = self._private > 0 or self.claim is not None
        self._admission.budget.unclaim(self._key, self._private, asked=self.claim is not None)
        self._private = 0
        if self.claim is not None:
            self.claim.end()
        self._admission.ended(nbytes, held)


class Admission:
    """Of one worker's event loop.

    needs    (task or keys, result's estimate, most bytes to bring back) -> Need and the
             inputs to be read where they lie
    """

    def __init__(self, arbiter: Arbiter, budget: Budget, slots: Slots, needs: Needs,
                 habits: Habits, small: int) -> None:
        self.arbiter = arbiter
        self.habits = habits
        self.budget = budget
        self.slots = slots
        self.needs = needs
        self.n_waiting = 0
        self.counts: Counter[str] = Counter()  #: of the steps
        self._small = small
        self._ended = asyncio.Event()
        self._n_ended = 0
        self._handed_back: OrderedDict[Key, bool] = OrderedDict()

    # -- a key

    async def admit(self, key: Key, task: TaskState, may_split: bool) -> Grant:
        """Waits until it may run. Raises Unwanted, Reschedule, or NoRoom."""

        def look(promote_most: int | None) -> Found:
            return self.needs.of(task, self.habits.of(key).size, promote_most)

        need, aside = found = look(None)
        if need.all < self._small:
            return Grant(self, key, None, 0, need, aside)
        grant = await self._admit(key, task, look, found, Steps(may_split), last=True)
        assert grant is not None
        return grant

    def ended(self, nbytes: int, held: bool) -> None:
        """A grant was given back; a value of nbytes stays. held: it was one of some memory."""
        self.arbiter.settle(nbytes)
        self._n_ended += held
        self._ended.set()
        self._ended.clear()

    async def admit_piece(self, key: Key, task: TaskState, inputs: dict[Key, int], result: int,
                          last: bool) -> Grant | None:
        """The same for a piece that works on those inputs. None: it does not fit, and is to be
        split again; not where it is the last resort."""
        look = partial(self.needs.of_keys, inputs, result)
        return await self._admit(key, task, look, look(None), Steps(False, piece=True), last)

    # -- private

    def _at_hand(self, need: Need) -> bool:
        """Whether nobody has to be asked."""
        return (not self.n_waiting and self.budget.fits(need.private) and
                self.needs.relaxed(need.partition))

    async def _admit(self, key: Key, task: TaskState, look: Callable[[int | None], Found],
                     found: Found, steps: Steps, last: bool) -> Grant | None:
        """look: the need, with so many bytes to bring back at most; found: without a bound."""
        need, aside = found
        if (self._at_hand(need) or
            (claim := await self.arbiter.begin(key, fold_priority(task.priority))) is None):
            return Grant(self, key, None, need.private, need, aside)
        self.n_waiting += not steps.piece
        try:
            grant = await self._obtain(key, task, claim, look, steps, last)
        except BaseException:
            claim.end()
            raise
        finally:
            self.n_waiting -= not steps.piece
        if not steps.piece:
            self._handed_back.pop(key, None)
        return grant

    async def _obtain(self, key: Key, task: TaskState, claim: Claim,
                      look: Callable[[int | None], Found], steps: Steps,
                      last: bool) -> Grant | None:
        while True:
            need, aside = look(steps.promote_most)
            private = min(need.private, self.arbiter.pool_size()) if steps.alone else need.private
            steps.asked_at = self._n_ended
            outcome = await self._ask(task, claim, private, need.partition)
            if outcome in _NOT_HAD:
                return Grant(self, key, claim, private, need, aside)
            if outcome is None:
                now, aside = look(steps.promote_most)
                steps.grants += 1
                # it waited, and inputs left memory
                if now.partition > need.partition and steps.grants < _AGAIN:
                    claim.release()
                    continue
                return Grant(self, key, claim, private, need, aside)
            if not last:
                claim.end()
                return None
            await self._step(key, task, claim, steps, need, outcome)
            if steps.in_pieces:
                claim.end()  # its pieces ask for themselves
                grant = Grant(self, key, None, 0, need, aside)
                grant.in_pieces = True
                return grant

    async def _ask(self, task: TaskState, claim: Claim, private: int, partition: int) -> Outcome:
        """Until it is given or refused."""
        if private > self.arbiter.pool_size():
            self.budget.look()
            if private > self.arbiter.pool_size():
                return daemon.TooBig
        return await self._wait(task, claim.obtain(private, partition, roll_back=self._roll_back))

    def _roll_back(self) -> None:
        self.counts["retry"] += 1
        self.needs.let_go()

    async def _wait(self, task: TaskState, waiting: Coroutine[None, None, Result]) -> Result:
        """Beside the loop; others run meanwhile. Raises Unwanted."""
        future = asyncio.ensure_future(waiting)
        slot = False
        try:
            done, _ = await asyncio.wait((future,), timeout=Slots.PATIENCE)
            while not done:
                slot = slot or self.slots.lend()
                if task.state in ("cancelled", "resumed"):
                    raise Unwanted
                done, _ = await asyncio.wait((future,), timeout=_GONE)
            return future.result()
        finally:
            future.cancel()
            if slot:
                self.slots.give_back()

    async def _step(self, key: Key, task: TaskState, claim: Claim, steps: Steps, need: Need,
                    outcome: Outcome) -> None:
        """The next one. Raises Reschedule or NoRoom where there is none."""
        if need.partition and outcome is daemon.Split and not steps.asked_again:
            self.counts["again"] += 1
            steps.asked_again = True
            await self._wait(task, asyncio.sleep(_LET_GO))
        elif need.partition:
            self._next_of_partition(steps, need, outcome)
        elif (outcome is daemon.TooBig and need.private <= self.budget.capacity and
              await self._make_room(task, need)):
            pass  # values had more of the pool than there is since the process grew
        elif self._others(steps) and (need.private <= self.budget.capacity or steps.alone):
            await self._wait(task, self._one_ended(steps))  # the holders of the missing memory end
        elif steps.may_split:
            self.counts["pieces"] += 1
            steps.in_pieces = True
        elif not steps.alone and need.unspill <= self.budget.ceiling:
            self.counts["alone"] += 1
            steps.alone = True
        elif key not in self._handed_back:
            self.counts["handed-back"] += 1
            self._handed_back[key] = True
            if len(self._handed_back) > _HANDED_BACK_MAX:
                self._handed_back.popitem(last=False)
            raise Reschedule
        else:
            self.counts["no-memory"] += 1
            raise NoRoom(self._explain(key, claim, need))

    def _next_of_partition(self, steps: Steps, need: Need, outcome: Outcome) -> None:
        if steps.promote_most is None and need.promote and outcome is not daemon.TimedOut:
            self.counts["fewer"] += 1
            steps.promote_most = need.promote // 2
        elif steps.may_split and need.promote:
            self.counts["pieces"] += 1
            steps.in_pieces = True
        else:
            self.counts["aside"] += 1
            steps.promote_most = 0

    async def _make_room(self, task: TaskState, need: Need) -> bool:
        """Whether something left that stands in the way."""
        over = self.budget.values + self.budget.claimed + need.private - self.budget.capacity
        return over > 0 and await self._wait(task, self.arbiter.evict(over)) > 0

    def _others(self, steps: Steps) -> bool:
        """Whether others run, or one of them has ended since it was asked: the answer
        may be of the time before."""
        return bool(self.budget.claims) or self._n_ended != steps.asked_at

    async def _one_ended(self, steps: Steps) -> None:
        if self._n_ended == steps.asked_at and self.budget.claims:
            await self._ended.wait()

    def _explain(self, key: Key, claim: Claim, need: Need) -> str:
        parts = [f"{key!r} needs {mib(need.private)} of private memory"]
        parts.append(f" ({mib(need.unspill)} for inputs that were spilled, {mib(need.result)} for "
                     f"its result)")
        parts.append(f"; its worker may use {mib(self.budget.capacity)} of its limit of "
                     f"{mib(self.budget.limit)} for values")
        parts.append(f" and holds {self.budget.holders()}. It was tried with fewer inputs at once, "
                     f"alone, and was handed back to the scheduler")
        if claim.why:
            parts.append(f". The arbiter says: {claim.why}")
        parts.append(". More memory per worker, smaller chunks, or "
                     "shmstore.dask.register_splitter() for its function help")
        return "".join(parts)


_USER, _GENERATION, _ORDER = 11, 20, 30  # bits


def fold_priority(priority: Any) -> int | None:
    """A scheduler's priority (what the user said, the graph's number, the order within; less is
    first) as the arbiter's: more is first.

    None where it is none of that: by arrival.
    """
    try:
        user, generation, order = (int(part) for part in priority[:3])
    except (TypeError, ValueError):
        return None
    half = 1 << (_USER - 1)
    user = min(max(user, -half), half - 1) + half
    generation = min(max(generation, 0), (1 << _GENERATION) - 1)
    order = min(max(order, 0), (1 << _ORDER) - 1)
    return ((1 << (_USER + _GENERATION + _ORDER)) - 1 - ((user << (_GENERATION + _ORDER)) | (
        generation << _ORDER) | order))


_LENT_MOST = 4  # keys that wait with a slot of their own, per thread


class Slots:
    """Slots of the worker's own state machine, for keys that wait. start: has it
    start what may be started now.

    Dask starts as many keys as the worker has threads. A key that waits for memory needs none:
    while it does, one more may start. As many threads as ever run tasks.
    """

    PATIENCE = 0.01  # seconds that a key keeps its own slot: most waits are shorter

    def __init__(self, state: WorkerState, start: Callable[[], object]) -> None:
        self.lent = 0
        self._state = state
        self._start = start
        self._most = _LENT_MOST * state.nthreads

    def lend(self) -> bool:
        """For one that waits. False: too many do."""
        if self.lent >= self._most:
            return False
        self.lent += 1
        self._state.nthreads += 1
        if self._state.running:
            self._start()
        return True

    def give_back(self) -> None:
        self.lent -= 1
        self._state.nthreads -= 1


_DEEPEST = 16  # splits of splits


class Pieces:
    """One key done in pieces, with the splitter that was registered for it: each piece is admitted,
    has its inputs mapped, and runs on a thread of the worker as a task does; what does not fit is
    split again. Results of pieces stay private until they are combined.

    `run` is what the worker runs in place of the task's function.
    """

    def __init__(self, worker: Worker, admission: Admission, task: TaskState, call: Call,
                 splitter: Splitter) -> None:
        self.worker = worker
        self.admission = admission
        self.task = task
        self.call = call
        self.splitter = splitter
        self._largest: int | None = None  # of the results of pieces, bytes

    async def run(self) -> object:
        whole = self.call.args, self.call.kwargs
        pieces = await self._split(whole)
        if pieces is not None:
            return await self._all(pieces, 1)
        done = await self._done(whole, last=True)
        assert done is not None
        return done[0]

    # -- private

    async def _all(self, pieces: list[Piece], depth: int) -> object:
        results: list[object] = []
        held = 0
        try:
            for piece in pieces:
                value, nbytes = await self._one(piece, depth)
                results.append(value)
                del value
                self._largest = max(self._largest or 0, nbytes)
                self.admission.budget.claim(self.task.key, nbytes, asked=False)
                held += nbytes
            return (await self._in_thread(self.splitter.combine, (results,), {}))[0]
        finally:
            self.admission.budget.unclaim(self.task.key, held, asked=False)

    async def _one(self, piece: Piece, depth: int) -> tuple[object, int]:
        smaller = await self._split(piece) if depth < _DEEPEST else None
        done = await self._done(piece, last=smaller is None)
        if done is not None:
            return done
        assert smaller is not None
        value = await self._all(smaller, depth + 1)
        return value, int(safe_sizeof(value))

    def _estimate(self, piece: Piece) -> int:
        """As the largest so far. Of the first one: as the whole; where it works on parts
        of values, in proportion."""
        if self._largest is not None:
            return self._largest
        whole = self.admission.habits.of(self.task.key).size
        return whole // 2 if any(item.part for item in inputs_in(piece)) else whole

    async def _done(self, piece: Piece, last: bool) -> tuple[object, int] | None:
        """(result, its sizeof) of a piece, when it is admitted. None: it does not fit as it is, and
        is not the last resort."""
        inputs = {item.key: item.nbytes for item in inputs_in(piece)}
        grant = await self.admission.admit_piece(self.task.key, self.task, inputs,
                                                 self._estimate(piece), last)
        if grant is None:
            return None
        try:
            async with self.worker._mapped(inputs, grant.aside):
                grant.mapped()
                values = {key: self.worker.data[key] for key in inputs}
                args, kwargs = with_values(piece[0], values), with_values(piece[1], values)
                del values
                try:
                    return await self._in_thread(self.call.function, args, kwargs)
                finally:
                    del args, kwargs
        finally:
            grant.done()

    async def _split(self, piece: Piece) -> list[Piece] | None:
        return check_pieces((await self._in_thread(self.splitter.split, piece, {}))[0],
                            self.splitter)

    async def _in_thread(self, function: Callable[..., object], args: tuple[object, ...],
                         kwargs: dict[str, object]) -> tuple[object, int]:
        return await run_in_thread(self.worker, self.task, function, args, kwargs)
