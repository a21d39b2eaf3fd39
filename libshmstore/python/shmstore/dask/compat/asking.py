# SPDX-License-Identifier: Apache-2.0
"""A worker asks its scheduler, by a function that runs there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .probe import ASKING, missing_of

#: Hooks that this Dask lacks.
missing_hooks = missing_of(ASKING)
if not missing_hooks:
    from distributed.protocol.pickle import dumps


async def ask_scheduler(worker: Any, function: Callable[..., Any], *args: Any) -> Any:
    """function(*args, dask_scheduler=…), where the scheduler runs: a round trip. Raises RuntimeError with what it answers, or OSError."""
    answer = await worker.scheduler.run_function(function=dumps(function), args=dumps(args), kwargs=dumps({}), wait=True)
    if answer["status"] == "error":
        raise RuntimeError(f"the scheduler answers {answer.get('exception') or answer.get('text')!r}")
    return answer["result"]
