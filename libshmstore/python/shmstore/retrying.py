# SPDX-License-Identifier: Apache-2.0
"""An attempt is repeated until it fits: `Arbiter.with_retry`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Optional, TypeVar, Union

from .errors import Retry, Split

if TYPE_CHECKING:
    from .arbiter import Context

Item = TypeVar("Item")
Result = TypeVar("Result")
# Callbacks of `Arbiter.with_retry`.
Splitter = Optional[Callable[[Item], Optional[Iterable[Item]]]]
Saver = Optional[Callable[[], object]]
Restorer = Optional[Callable[[object], object]]
Doner = Optional[Callable[[Item, Optional[BaseException]], object]]


class Target(NamedTuple):
    """A size that work is done in, as "batches of so many bytes": an item of `Arbiter.with_retry`
    with ``split=Target.split``."""

    size: int
    minimum: int = 1  #: below it, it is not split any more
    data: Optional[int] = None  #: bytes that there are to be worked on, if that is known

    def split(self) -> tuple[Target, ...]:
        """One with half the size, or half of the data where that is no more; none where
        that is below the minimum."""
        half = self.size // 2
        if self.data is not None:
            half = min(half, self.data // 2)
        return (self._replace(size=half),) if half >= max(self.minimum, 1) else ()


def told(error: BaseException) -> Union[Retry, Split, None]:
    """The Retry or Split that an error is, or that it was raised because of."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        if isinstance(at, (Retry, Split)):
            return at
        seen.add(id(at))
        at = at.__cause__ if at.__cause__ is not None or at.__suppress_context__ else at.__context__
    return None


def _pieces(item: Item, split: Splitter[Item], why: Split) -> list[Item]:
    pieces = split(item) if split else None
    pieces = list(pieces) if pieces is not None else []
    if not pieces:
        refusal = Split(why.errno, f"{why.strerror}; {item!r:.200} cannot be "
                                   f"split{'' if split else ': no split was given'}")
        refusal.why = why.why
        raise refusal from why
    return pieces


def each_result(
    context: Context, items: Iterable[Item], attempt: Callable[[Item], Result],
    split: Splitter[Item], save: Saver, restore: Restorer,
    done: Doner[Item],
) -> Iterator[Result]:
    """See `Arbiter.with_retry`. A stack of an item's rest keeps a split's parts in order."""
    for item in items:
        left = [item]
        try:
            while left:
                result = _until_it_fits(context, left, attempt, split, save, restore)
                finished = left.pop()
                if done:
                    done(finished, None)
                yield result
        except BaseException as error:
            while left:
                abandoned = left.pop()
                if done:
                    done(abandoned, error)
            raise


def _until_it_fits(
    context: Context, left: list[Item], attempt: Callable[[Item], Result], split: Splitter[Item],
    save: Saver, restore: Restorer,
) -> Result:
    """The result of the item on top of left, which a split replaces by its parts."""
    rolled_back = False
    saved = save() if save else None
    while True:
        try:
            if rolled_back:
                context.ready()
                rolled_back = False
            with context.attempt():
                return attempt(left[-1])
        except Exception as error:
            why = told(error)
            if why is None:
                raise
        if restore and not rolled_back:
            restore(saved)
        rolled_back = True
        if isinstance(why, Split):
            pieces = _pieces(left[-1], split, why)
            left.pop()
            left.extend(reversed(pieces))
