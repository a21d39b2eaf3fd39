# SPDX-License-Identifier: Apache-2.0
"""Splitters, which programs register for tasks too large to run at once, and a split's inputs.

    import shmstore.dask

    def split(args, kwargs):
        (parts,) = args                            # as in the graph; each input that comes from another task is an Input
        middle = len(parts) // 2
        return [((parts[:middle],), {}), ((parts[middle:],), {})] if middle else None

    shmstore.dask.register_splitter(total, split, combine=sum)

A split sees no values, as there is no room for them: an Input knows its key and its size, may go into several pieces, and with an
index or a slice stands for that part of the value. Where the module that defines a function registers its splitter, every worker that is sent
the function knows it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dask.utils import key_split

from .compat.worker import Call, is_nested

Piece = tuple[tuple[Any, ...], dict[str, Any]]
Split = Callable[[tuple[Any, ...], dict[str, Any]], "list[Piece] | None"]
Combine = Callable[[list[Any]], Any]


class Input:
    """Stands for the value of another task, or for a part of it."""

    __slots__ = ("key", "nbytes", "part")

    def __init__(self, key: Any, nbytes: int, part: tuple[Any, ...] = ()) -> None:
        self.key = key
        self.nbytes = nbytes  #: sizeof the whole value
        self.part = part  #: indexes, one after the other

    def __getitem__(self, index: Any) -> Input:
        return Input(self.key, self.nbytes, (*self.part, index))

    def __iter__(self) -> Any:
        raise TypeError("a split sees no values: slice an Input, its length is not known here")

    def of(self, value: Any) -> Any:
        """The part of value that it stands for."""
        for index in self.part:
            value = value[index]
        return value

    def __repr__(self) -> str:
        return f"<Input {self.key!r} of {self.nbytes} bytes{''.join(f'[{index!r}]' for index in self.part)}>"


class Splitter(NamedTuple):
    """split(args, kwargs) -> pieces, two at least, or None where it cannot be smaller; combine(results, in order) -> the result."""

    split: Split
    combine: Combine


_splitters: dict[Any, Splitter] = {}
_lock = threading.Lock()


def register_splitter(func_or_prefix: Callable[..., Any] | str, split: Split, combine: Combine) -> None:
    """For a task's function, or for all keys of a prefix, in this process. Anew: in place of the one before.

    split      (args, kwargs) -> [(args, kwargs), …], or None: it cannot be done in smaller pieces. It must be the same result whenever it is
               called; what it returns may be split again
    combine    the results of the pieces, in their order -> the result of the whole
    """
    if not callable(func_or_prefix) and not isinstance(func_or_prefix, str):
        raise TypeError(f"register_splitter: a function or the prefix of a key, not {func_or_prefix!r}")
    if not callable(split) or not callable(combine):
        raise TypeError("register_splitter: split and combine are functions")
    with _lock:
        _splitters[func_or_prefix] = Splitter(split, combine)


def any_registered() -> bool:
    return bool(_splitters)


def splitter_of(key: Any, function: Any) -> Splitter | None:
    """The function's own before the prefix's."""
    try:
        found = _splitters.get(function)
    except TypeError:  # not hashable
        found = None
    return found or _splitters.get(key_split(key))


def inputs_in(thing: Any) -> Iterator[Input]:
    """All that stand in arguments, in tuples, lists, sets and dictionaries of any depth."""
    if isinstance(thing, Input):
        yield thing
    elif isinstance(thing, (tuple, list, set, frozenset)):
        for item in thing:
            yield from inputs_in(item)
    elif isinstance(thing, dict):
        for item in thing.values():
            yield from inputs_in(item)


def with_values(thing: Any, values: dict[Any, Any]) -> Any:
    """The same with the values in place of the Inputs. A nested task in it is done, as Dask would."""
    if isinstance(thing, Input):
        return thing.of(values[thing.key])
    if isinstance(thing, Call):
        return thing.function(*with_values(thing.args, values), **with_values(thing.kwargs, values))
    if isinstance(thing, tuple) and is_nested(thing):
        return thing[0](*(with_values(item, values) for item in thing[1:]))
    if type(thing) in (tuple, list, set, frozenset):
        return type(thing)(with_values(item, values) for item in thing)
    if type(thing) is dict:
        return {key: with_values(item, values) for key, item in thing.items()}
    return thing


def check_pieces(pieces: Any, splitter: Splitter) -> list[Piece] | None:
    """The pieces that a split returned. TypeError where they are not pieces."""
    if pieces is None:
        return None
    pieces = list(pieces)
    for piece in pieces:
        if not (isinstance(piece, tuple) and len(piece) == 2 and isinstance(piece[0], tuple) and isinstance(piece[1], dict)):
            raise TypeError(f"the split {splitter.split!r} returned {piece!r} as a piece, not (args, kwargs)")
    return pieces if len(pieces) > 1 else None
