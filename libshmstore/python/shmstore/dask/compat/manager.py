# SPDX-License-Identifier: Apache-2.0
"""The scheduler's Active Memory Manager, as it is in all supported versions.

    who_has, waiters    of a task: sets; from 2023 on None where there is nothing
    policies            a set of the manager, run in whatever order: `in_order` has ours go first, by rank
    heartbeat_worker    among the scheduler's handlers: its answer to a worker that it does not know is the status "missing"
    pending             of the manager: a new dict in each of its runs, by which one run is told from the next
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from time import time
from typing import Any

from distributed.active_memory_manager import ActiveMemoryManagerPolicy, RetireWorker, Suggestion
from distributed.client import Client
from distributed.core import Status, rpc
from distributed.diagnostics.plugin import SchedulerPlugin

from . import leaving

__all__ = [
    "ActiveMemoryManagerPolicy",
    "Status",
    "Suggestion",
    "Watch",
    "busy_on",
    "give_clients",
    "holders",
    "in_order",
    "restart",
    "resume",
    "retiring",
    "runs_nothing",
    "unmissed",
    "waiters",
]

_WATCH = "shmstore-amm"
_NOTHING: frozenset[Any] = frozenset()
_HEARTBEAT = 1.0  # seconds until the next one of a worker that is about to end


def holders(task: Any) -> Collection[Any]:
    """The workers that have a key's value."""
    return task.who_has or _NOTHING


def waiters(task: Any) -> Collection[Any]:
    """The tasks that still need a key's value."""
    return task.waiters or _NOTHING


def busy_on(task: Any) -> set[Any]:
    """The workers on which tasks that need the value run or are queued: the manager drops nothing there."""
    return {waiter.processing_on for waiter in waiters(task)} - {None}


def retiring(manager: Any) -> list[Any]:
    """The workers that Dask was asked to retire."""
    workers = manager.scheduler.workers
    found = (workers.get(policy.address) for policy in manager.policies if isinstance(policy, RetireWorker))
    return [worker for worker in found if worker is not None]


class _Ordered(set[Any]):
    """A set of policies that is run through in the order of their ranks; those that have none come last."""

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=lambda policy: getattr(policy, "rank", 1000)))


def in_order(manager: Any) -> None:
    """From here on the manager runs policies that have a rank before Dask's own."""
    if not isinstance(manager.policies, _Ordered):
        manager.policies = _Ordered(manager.policies)


class Watch(SchedulerPlugin):
    """Hears what becomes of keys and workers."""

    name = _WATCH

    def __init__(
        self, scheduler: Any, in_memory: Callable[[Any], None], waits: Callable[[Any], None], workers_changed: Callable[[], None]
    ) -> None:
        self._tasks = scheduler.tasks
        self._told = {"memory": in_memory, "waiting": waits}
        self._workers_changed = workers_changed
        scheduler.add_plugin(self, name=_WATCH, idempotent=True)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """A task is somewhere else than it was."""
        told = self._told.get(finish)
        if told is not None and (task := self._tasks.get(key)) is not None:
            told(task)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """One more."""
        self._workers_changed()

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """One less."""
        self._workers_changed()


@contextmanager
def unmissed(scheduler: Any, address: str) -> Iterator[None]:
    """Within, the worker of that address is not told that the scheduler does not know it any more: it would end, and its nanny with it."""
    heard = scheduler.handlers["heartbeat_worker"]

    def hear(*args: Any, **kwargs: Any) -> Any:
        answer = heard(*args, **kwargs)
        if answer["status"] == "missing" and scheduler.coerce_address(kwargs["address"]) == address:
            return {"status": "OK", "time": time(), "heartbeat-interval": _HEARTBEAT}
        return answer

    scheduler.handlers["heartbeat_worker"] = hear
    try:
        yield
    finally:
        scheduler.handlers["heartbeat_worker"] = heard


async def restart(scheduler: Any, worker: Any, timeout: float) -> str:
    """Has a worker's nanny start a new process for it; what it had not begun runs elsewhere. Returns '', or why it failed. OSError."""
    with unmissed(scheduler, worker.address):
        restarting = asyncio.ensure_future(scheduler.rpc(worker.nanny).restart(timeout=timeout))
        await asyncio.sleep(0)  # it is under way
        await scheduler.remove_worker(worker.address, stimulus_id=f"shmstore-cycle-{time()}", close=False, **leaving.UNSUSPECTED)
        answer = await restarting
    return "" if answer == "OK" else f"its nanny says {answer!r}"


async def runs_nothing(scheduler: Any, address: str) -> bool | None:
    """Whether a worker that is to go runs nothing, and begins nothing more. None: it cannot be asked, as it knows nothing of us. OSError."""
    try:
        # Not by the scheduler's own connections: what it is sent by them it passes on, and reads none of it.
        async with rpc(address, connection_args=scheduler.connection_args) as worker:
            answer = await worker.run(function=pickle.dumps(leaving.runs_nothing))
    except ImportError:
        return None
    return bool(answer["result"]) if isinstance(answer, dict) and answer.get("status") == "OK" else None


def resume(scheduler: Any, worker: Any) -> None:
    """A worker that was to go takes tasks again."""
    if scheduler.workers.get(worker.address) is worker and worker.status == Status.closing_gracefully:
        change = {"op": "worker-status-change", "status": "running", "stimulus_id": f"shmstore-cycle-{time()}"}
        scheduler.stream_comms[worker.address].send(change)


def give_clients(proxy: Callable[[Any], Any]) -> None:
    """Every client of this process has an attribute `shmstore`."""
    if not hasattr(Client, "shmstore"):
        Client.shmstore = property(proxy)
