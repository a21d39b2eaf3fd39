# SPDX-License-Identifier: Apache-2.0
"""A store's arbiter as the rest of this package sees it (`Port`, in arbport.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .. import Error, Store
from ..arbiter import Awaiting, Context, Reservation
from ..arbiter import Outcome as Refused
from .arbport import Answer, Done, Outcome

_PENDING = Answer(Outcome.PENDING)


class Scope:
    """A task with its context; task None: of nobody."""

    __slots__ = ("task", "context")

    def __init__(self, task: Any, context: Context) -> None:
        self.task = task
        self.context = context


class StorePort:
    """See `Port`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._arbiter: Any = None
        self._scopes: dict[Context, Scope] = {}
        self._evict: Callable[[int], int] | None = None
        self._pools: dict[int, Any] = {}

    def available(self) -> bool:
        if self._arbiter is None:
            self._arbiter = None if self._store.closed else self._store.arbiter
        return self._arbiter is not None and self._arbiter.available

    def pool(self, name: str, capacity: int) -> int:
        pool = self._arbiter.pool(name, capacity)
        self._pools = {pool.id: pool}  # one at a time: the one before went with its daemon
        return int(pool.id)

    def resize_pool(self, pool: int, capacity: int) -> None:
        self._pools[pool].resize(capacity)

    def begin(self, priority: int | None, label: str, service: bool) -> Scope:
        task = self._arbiter.task(priority, label, bind=False)
        try:
            context = self._arbiter.context()
            if service:
                context.bind_helper([task], service=True)
            else:
                context.bind(task)
        except BaseException:
            with suppress(Error):
                task.end()
            raise
        scope = self._scopes[context] = Scope(task, context)
        return scope

    def loose(self) -> Scope:
        return Scope(None, self._arbiter.context())

    def end(self, scope: Scope) -> None:
        self._scopes.pop(scope.context, None)
        try:
            if scope.task is not None:
                scope.task.end()
        finally:
            scope.context.close()

    def reserve(self, scope: Scope, wants: Sequence[tuple[int, int]], timeout: float | None, wait: bool, spill: bool) -> Answer:
        if spill:
            ((pool, nbytes),) = wants
            return self._answer(lambda: (scope.context.reserve(nbytes, pool, spill=True),))
        if not wait:
            return self._answer(lambda: scope.context.reserve_many(wants, wait=False))
        if len(wants) > 1:
            return self._start(lambda: scope.context.reserve_many_async(wants, timeout))
        ((pool, nbytes),) = wants
        return self._start(lambda: scope.context.reserve_async(nbytes, pool, timeout))

    def ready(self, scope: Scope, timeout: float | None) -> Answer:
        return self._start(lambda: scope.context.ready_async(timeout))

    def resize(self, scope: Scope, held: Reservation, nbytes: int) -> bool:
        try:
            scope.context.resize(held, nbytes, wait=False)
        except Refused:
            return False
        return True

    def yielding(self, held: Reservation) -> None:
        held.unpin()

    def release(self, held: Reservation) -> None:
        held.release()

    def commit(self, held: Reservation, nbytes: int) -> None:
        held.commit(nbytes)

    def fd(self) -> int:
        return int(self._arbiter.fd())

    def next(self) -> Done | None:
        while (awaiting := self._arbiter.next()) is not None:
            scope = self._scopes.get(awaiting.context)
            if scope is not None:
                return Done(scope, self._result(awaiting))
        return None

    def listen(self, evict: Callable[[int], int], pressure: Callable[[int, int], None]) -> None:
        self._arbiter.upcalls(lambda pool, nbytes, reservation: evict(nbytes), pressure)

    def serve(self) -> None:
        while True:
            self._arbiter.serve()

    def hush(self) -> None:
        if self._arbiter is not None:
            self._arbiter.upcalls()

    # -- private

    def _start(self, start: Callable[[], Awaiting[Any]]) -> Answer:
        try:
            awaiting = start()
        except Refused as e:
            return _refused(e)
        return self._result(awaiting) if awaiting.done else _PENDING

    def _result(self, awaiting: Awaiting[Any]) -> Answer:
        def result() -> tuple[Any, ...]:
            value = awaiting.result()
            return value if isinstance(value, tuple) else () if value is None else (value,)

        return self._answer(result)

    @staticmethod
    def _answer(call: Callable[[], tuple[Any, ...]]) -> Answer:
        try:
            return Answer(Outcome.OK, call())
        except Refused as e:
            return _refused(e)


def _refused(e: Refused) -> Answer:
    return Answer(Outcome(e.outcome), (), e.why)
