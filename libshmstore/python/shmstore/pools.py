# SPDX-License-Identifier: Apache-2.0
"""The arbiter's pools, tasks and reservations. `shmstore.arbiter` makes and exports them."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING, Union

from . import _shmstore
from .errors import ClosedError, Down, Error
from .records import PoolState, TaskStats

if TYPE_CHECKING:
    from .arbiter import Arbiter

PARTITION = 1  # the pool that every store has


def _over(error: Error) -> bool:
    """Whether a call failed because what it is about ended with its daemon or
    store: nothing is left to end."""
    return isinstance(error, (Down, ClosedError)) or error.errno == errno.ENOTSUP


class Reservation(_shmstore.ArbReservation, contextlib.AbstractContextManager["Reservation", None]):
    """Bytes of a pool. A context manager that releases them; so does its end.

    `commit(n)` says that n bytes were really taken in the partition by other means than this store;
    what a `Store` takes within `spending()` it counts by itself. `unpin()` lets the pool's evict
    call-back take what it stands for.
    """

    def __exit__(self, *exc: object) -> None:
        self.release()

    @contextlib.contextmanager
    def spending(self) -> Iterator[Reservation]:
        """This thread's puts, creations and promotions in the block come out of the
        reservation, which falls by them.

        So a result is reserved before it is made, and put without
        reserving again. Not across an await.
        """
        self._spend(True)
        try:
            yield self
        finally:
            self._spend(False)

    def __repr__(self) -> str:
        return f"<shmstore.arbiter.Reservation of {self.bytes} bytes in pool {self.pool}>"


class Pool(contextlib.AbstractContextManager["Pool", None]):
    """A pool: the partition's (`Arbiter.partition`), or a budget of this process (`Arbiter.pool`).
    A context manager that removes it."""

    def __init__(self, arbiter: Arbiter, id: int, name: str) -> None:
        self.arbiter = arbiter
        self.id = id  #: its number, as reservations and up-calls say it
        self.name = name

    def resize(self, capacity: int) -> None:
        """Reservations stay; nothing new is given until they fit again."""
        self.arbiter.store._arb_pool_resize(self.id, capacity)

    def remove(self) -> None:
        """Gives it up. Error (EINVAL) while anything is reserved in it."""
        self.arbiter.store._arb_pool_remove(self.id)

    def state(self) -> PoolState:
        """How full it is, and who waits."""
        return PoolState._make(self.arbiter.store._arb_pool_info(self.id))

    def __exit__(self, *exc: object) -> None:
        try:
            self.remove()
        except Error as error:
            if exc[0] is None and not _over(error):
                raise

    def __repr__(self) -> str:
        return f"<shmstore.arbiter.Pool {self.name!r} ({self.id})>"


PoolLike = Union[Pool, int]


def pool_number(pool: PoolLike) -> int:
    return pool if isinstance(pool, int) else pool.id


class Task(contextlib.AbstractContextManager["Task", None]):
    """A task: begins when it is made, holds bytes, ends. A context manager that ends it."""

    def __init__(self, arbiter: Arbiter, id: int, label: str | None) -> None:
        self.arbiter = arbiter
        self.id = id  #: its number, as operators see it
        self.label = label
        self._ended = False

    def end(self) -> None:
        """Unbinds its contexts (one that waits gets `Removed`) and releases what
        it reserved. Idempotent."""
        if self._ended:
            return
        self._ended = True
        try:
            self.arbiter.store._arb_task_end(self.id)
        except Error as error:
            if not _over(error):
                raise

    def stats(self, pool: PoolLike | None = None, reset: bool = False) -> TaskStats:
        """Its retries, splits, waits and bytes, in a pool or (None) in all.
        reset: counts begin anew."""
        return self.arbiter.stats(self, pool, reset)

    def __exit__(self, *exc: object) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<shmstore.arbiter.Task {self.id} {self.label!r}>"


TaskLike = Union[Task, int]


def task_number(task: TaskLike) -> int:
    return task if isinstance(task, int) else task.id
