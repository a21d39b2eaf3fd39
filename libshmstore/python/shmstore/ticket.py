# SPDX-License-Identifier: Apache-2.0
"""The ticket: the triplet with which another process of the host takes an object over."""

from __future__ import annotations

import operator
import os
from typing import NamedTuple

from . import _shmstore


class _Triplet(NamedTuple):
    path: str
    header_size: int
    buffer_size: int


class Ticket(_Triplet):
    """The result of `Store.handoff` for `Store.adopt`: (path, header_size, buffer_size).

    Immutable, hashable, picklable and without any tie to the store: it may travel over
    anything. It is good for one adoption. `str(ticket)` is one line of printable text,
    `Ticket.parse` reads it back.
    """

    __slots__ = ()

    def __new__(cls, path: str | os.PathLike[str], header_size: int, buffer_size: int) -> Ticket:
        return super().__new__(cls, os.fsdecode(path), _size("header_size", header_size),
                               _size("buffer_size", buffer_size))

    @classmethod
    def parse(cls, text: str) -> Ticket:
        """The ticket that `str(ticket)` wrote. Raises `Error` (EBADMSG) where the text is none."""
        return cls(*_shmstore.ticket_parse(text))

    def __str__(self) -> str:
        return _shmstore.ticket_format(*self)


def _size(name: str, value: int) -> int:
    value = operator.index(value)
    if not 0 <= value < 1 << 64:
        raise ValueError(f"a ticket's {name} must fit 64 bits, not {value}")
    return value
