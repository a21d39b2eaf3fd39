# SPDX-License-Identifier: Apache-2.0
"""Events of a worker's state machine, made as in all supported versions.

    run_id     2023.10 and later: of the attempt, in what a key's execution ends with
"""

from __future__ import annotations

import inspect
from time import time
from typing import Any

from distributed.worker_state_machine import (
    AcquireReplicasEvent,
    ComputeTaskEvent,
    ExecuteFailureEvent,
    ExecuteSuccessEvent,
    GatherDepFailureEvent,
    GatherDepSuccessEvent,
    RescheduleEvent,
    UnpauseEvent,
    UpdateDataEvent,
)

__all__ = [
    "ComputeTaskEvent",
    "ExecuteSuccessEvent",
    "GatherDepSuccessEvent",
    "UpdateDataEvent",
    "abandoned",
    "execute_failed",
    "gather_failed",
    "gather_succeeded",
    "keep_replica",
    "reschedule",
    "unpause",
]

_RUN_ID = "run_id" in inspect.signature(ExecuteFailureEvent.from_exception).parameters


def execute_failed(task: Any, error: BaseException, why: str) -> Any:
    """The key of a task cannot run: error is its result."""
    attempt = {"run_id": task.run_id} if _RUN_ID else {}
    return ExecuteFailureEvent.from_exception(error, key=task.key, stimulus_id=f"{why}-{time()}", **attempt)


def gather_succeeded(event: Any, data: dict[Any, Any], worker: str, asked: dict[str, Any]) -> Any:
    """With all of data: event, which has a part of it; or where there is none one in answer to gather_dep's arguments."""
    if event is None:
        event = GatherDepSuccessEvent(worker=worker, total_nbytes=asked["total_nbytes"], data={}, stimulus_id=f"shmstore-gather-{time()}")
    event.data.update(data)
    return event


def abandoned(task: Any) -> bool:
    """Whether a key is on its way though no task here waits for it: Dask would drop its value."""
    return bool(task.state == "cancelled" and task.previous == "flight")


def keep_replica(task: Any, donor: str) -> Any:
    """Keeps a value from donor as one more replica, and tells the scheduler."""
    return AcquireReplicasEvent(who_has={task.key: [donor]}, nbytes={task.key: task.nbytes}, stimulus_id=f"shmstore-crossed-{time()}")


def gather_failed(event: Any, error: BaseException, worker: str) -> Any:
    """In place of a GatherDepSuccessEvent: the values that came are of no use."""
    return GatherDepFailureEvent.from_exception(
        error, worker=worker, total_nbytes=event.total_nbytes, stimulus_id=event.stimulus_id
    )


def reschedule(key: Any, why: str) -> Any:
    """The key goes back to the scheduler."""
    return RescheduleEvent(key=key, stimulus_id=f"{why}-{time()}")


def unpause(why: str) -> Any:
    """All tasks that may start do so."""
    return UnpauseEvent(stimulus_id=f"{why}-{time()}")
