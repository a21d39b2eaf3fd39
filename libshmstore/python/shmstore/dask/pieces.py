# SPDX-License-Identifier: Apache-2.0
"""Does one key in pieces, with the splitter that was registered for it: each piece is admitted, has its inputs mapped, and runs on a thread of
the worker as a task does; what does not fit is split again. Results of pieces stay private until they are combined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed.sizeof import safe_sizeof

from .admission import Admission, Grant
from .compat.worker import Call, run_in_thread
from .splitters import Piece, Splitter, check_pieces, inputs_in, with_values

_DEEPEST = 16  # splits of splits


class Pieces:
    """One key's. `run` is what the worker runs in place of the task's function."""

    def __init__(self, worker: Any, admission: Admission, task: Any, call: Call, splitter: Splitter) -> None:
        self.worker = worker
        self.admission = admission
        self.task = task
        self.call = call
        self.splitter = splitter
        self.n = 0  #: pieces that ran
        self._largest: int | None = None  # of the results of pieces, bytes

    async def run(self) -> Any:
        pieces = await self._split((self.call.args, self.call.kwargs))
        if pieces is None:
            return await self._whole((self.call.args, self.call.kwargs), 0)
        return await self._all(pieces, 1)

    # -- private

    async def _all(self, pieces: list[Piece], depth: int) -> Any:
        results: list[Any] = []
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

    async def _one(self, piece: Piece, depth: int) -> tuple[Any, int]:
        smaller = await self._split(piece) if depth < _DEEPEST else None
        grant = await self._admit(piece, depth, last=smaller is None)
        if grant is not None:
            return await self._granted(piece, grant)
        assert smaller is not None
        value = await self._all(smaller, depth + 1)
        return value, int(safe_sizeof(value))

    async def _whole(self, piece: Piece, depth: int) -> Any:
        grant = await self._admit(piece, depth, last=True)
        assert grant is not None
        return (await self._granted(piece, grant))[0]

    async def _admit(self, piece: Piece, depth: int, last: bool) -> Grant | None:
        inputs = {item.key: item.nbytes for item in inputs_in(piece)}
        return await self.admission.admit_piece(self.task.key, self.task, inputs, self._estimate(piece), last)

    def _estimate(self, piece: Piece) -> int:
        """As the largest so far. Of the first one: as the whole; where it works on parts of values, in proportion."""
        if self._largest is not None:
            return self._largest
        whole = self.admission.estimates.of(self.task.key)
        return whole // 2 if any(item.part for item in inputs_in(piece)) else whole

    async def _granted(self, piece: Piece, grant: Grant) -> tuple[Any, int]:
        try:
            keys = list({item.key for item in inputs_in(piece)})
            async with self.worker._mapped(keys, grant.aside):
                grant.mapped()
                values = {key: self.worker.data[key] for key in keys}
                args, kwargs = with_values(piece[0], values), with_values(piece[1], values)
                del values
                self.n += 1
                try:
                    return await self._in_thread(self.call.function, args, kwargs)
                finally:
                    del args, kwargs
        finally:
            grant.done()

    async def _split(self, piece: Piece) -> list[Piece] | None:
        return check_pieces((await self._in_thread(self.splitter.split, piece, {}))[0], self.splitter)

    async def _in_thread(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> tuple[Any, int]:
        return await run_in_thread(self.worker, self.task, function, args, kwargs)
