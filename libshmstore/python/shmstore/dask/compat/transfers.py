# SPDX-License-Identifier: Apache-2.0
"""Asking workers for values.

    gather_from_workers   returns (values, …): what else, and how much of it, changed in 2023.9
    max_connections       of Worker.get_data, and report of Worker.update_data: to 2023.3
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from distributed.utils_comm import gather_from_workers
from distributed.worker import Worker, get_data_from_worker

__all__ = ["ask", "ask_all", "has_workers", "quiet", "unlimited"]


async def ask(rpc: Any, keys: list[Any], worker: str, who: str | None) -> dict[str, Any]:
    """The answer of one worker: "status", and where that is OK "data". OSError."""
    return dict(await get_data_from_worker(rpc=rpc, keys=keys, worker=worker, who=who))


async def ask_all(rpc: Any, who_has: dict[Any, list[str]], who: str | None) -> dict[Any, Any]:
    """Those of the values that could be had."""
    found: dict[Any, Any] = (await gather_from_workers(who_has, rpc=rpc, who=who))[0]
    return found


def has_workers() -> bool:
    """Whether this process has workers that are not closed: what they have goes by reference, or is theirs to ask for."""
    return any(worker.status.name not in ("closed", "failed") for worker in tuple(getattr(Worker, "_instances", ())))


def unlimited(get_data: Callable[..., Any]) -> dict[str, Any]:
    """Arguments with which stock's get_data answers however many it answers already."""
    return {"max_connections": False} if "max_connections" in _parameters(get_data) else {}


def quiet(update_data: Callable[..., Any]) -> dict[str, Any]:
    """Arguments with which stock's update_data tells the scheduler nothing."""
    return {"report": False} if "report" in _parameters(update_data) else {}


def _parameters(method: Callable[..., Any]) -> frozenset[str]:
    return _parameters_of(getattr(method, "__func__", method))


@functools.lru_cache(maxsize=16)  # of classes' functions: it is asked for each transfer, and takes longer than the answer
def _parameters_of(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)
