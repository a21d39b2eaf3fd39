# SPDX-License-Identifier: Apache-2.0
"""A worker that leaves by its own or by our will: the scheduler is told that the tasks it had did not end it.

    remove_worker   of the scheduler, `unregister` from a worker: takes `safe` to 2023, `expected` since
"""

from __future__ import annotations

import inspect
from typing import Any

from distributed.core import Status
from distributed.scheduler import Scheduler

__all__ = ["UNSUSPECTED", "runs_nothing"]

_taken = inspect.signature(Scheduler.remove_worker).parameters if hasattr(Scheduler, "remove_worker") else ()
UNSUSPECTED = {"safe" if "safe" in _taken else "expected": True}


def runs_nothing(dask_worker: Any) -> bool:
    """Whether a worker that is to go runs nothing, and begins nothing more. It is sent there."""
    state = dask_worker.state
    return dask_worker.status == Status.closing_gracefully and not (state.executing or state.long_running)
