# SPDX-License-Identifier: Apache-2.0
"""Work off the event loop, also while the interpreter ends.

A program that simply ends closes its in-process cluster in an atexit handler. Threads take no more work by then: what has to be done
to close is done on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import distributed.utils


async def offload(function: Callable[..., Any], *args: Any) -> Any:
    """function(*args), in Dask's thread for such things, or here where the interpreter ends."""
    return await _try(distributed.utils.offload, function, args)


async def run_in(executor: Executor | None, function: Callable[..., Any], *args: Any) -> Any:
    """The same in a thread of an executor."""
    loop = asyncio.get_running_loop()
    return await _try(lambda call: loop.run_in_executor(executor, call), function, args)


async def _try(run: Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    begun = False

    def call() -> Any:
        nonlocal begun
        begun = True
        return function(*args)

    try:
        return await run(call)
    except RuntimeError:  # "cannot schedule new futures after shutdown", or the function's own
        if begun:
            raise
    return function(*args)
