# SPDX-License-Identifier: Apache-2.0
"""The guard: optimisations run behind it. An exception is logged once, and stock's way taken.

Dask closes a worker whose own code raises, and a key whose `execute` raises stays "executing" for ever. Neither may come from this package,
which looks into values of users' classes that stock Dask only passes on: their attributes and reductions may raise anything.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from .fallback import Fallbacks

Result = TypeVar("Result")


class Guard:
    """Of one worker. what: the step, for the log."""

    def __init__(self, fallbacks: Fallbacks) -> None:
        self.fallbacks = fallbacks

    def call(self, what: str, function: Callable[..., Result], *args: Any, otherwise: Any = None, key: object = None) -> Any:
        """function(*args); otherwise where it raises."""
        try:
            return function(*args)
        except Exception as e:
            self.failed(what, e, key)
            return otherwise

    async def wait(self, what: str, step: Awaitable[Any], otherwise: Any = None, key: object = None) -> Any:
        """The result of step; otherwise if that raises."""
        try:
            return await step
        except Exception as e:
            self.failed(what, e, key)
            return otherwise

    @asynccontextmanager
    async def within(
        self, what: str, make: Callable[..., AbstractAsyncContextManager[Any]], *args: Any, otherwise: Any = None
    ) -> AsyncIterator[Any]:
        """Runs the body within make(*args), or without if that fails. Its own errors go through."""
        try:
            manager = make(*args)
            value = await manager.__aenter__()
        except Exception as e:
            self.failed(what, e)
            yield otherwise
            return
        try:
            yield value
        except BaseException:
            await self.wait(what, _left(manager, *sys.exc_info()))
            raise
        await self.wait(what, manager.__aexit__(None, None, None))

    def failed(self, what: str, error: BaseException, key: object = None) -> None:
        """Logs it, with the traceback."""
        self.fallbacks.note(f"failed-{what}", error, key, "goes on as stock", trace=True)


async def _left(manager: AbstractAsyncContextManager[Any], kind: Any, error: Any, trace: Any) -> None:
    """Leaves it because of the body's error, which its caller raises."""
    try:
        await manager.__aexit__(kind, error, trace)
    except BaseException as e:
        if e is not error:
            raise
