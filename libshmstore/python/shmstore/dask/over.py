# SPDX-License-Identifier: Apache-2.0
"""Values that show parts of objects which are there already: what a reshape, a slice, a transpose, a list or a dict makes of a mapped array.

Such a value is not copied. It is a second name of the object, and a pickle of its own over parts of the object's buffers, which stays in the
entry and goes along in handles. A part that is small beside its object is copied when it is handed on, as it would keep all of it in memory.
"""

from __future__ import annotations

import pickle
import sys
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import View, dumps
from ..parts import Part, address, parts_of, unwritten
from ..pickling import in_view

if TYPE_CHECKING:
    from .exchange import Entry

_HEADER_MAX = 64 << 10  # bytes: it travels with each handle
_PART_MIN = 2  # a value shows one part in so many of its object at least
_ITEMS_MAX = 1000  # of a container that are looked at
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


class Over(NamedTuple):
    """A pickle, and of which parts of an object's buffers its own are."""

    header: bytes
    parts: tuple[Part, ...]

    def load(self, view: View) -> Any:
        """The value."""
        buffers = view.buffers
        return pickle.loads(self.header, buffers=[buffers[i][at : at + nbytes] for i, at, nbytes in self.parts])

    @property
    def nbytes(self) -> int:
        """Of its buffers."""
        return sum(part.nbytes for part in self.parts)


class Map(NamedTuple):
    """One live map of an object."""

    view: weakref.ref[View]
    entries: list[Entry]  #: of that object, the oldest first
    starts: tuple[int, ...]  # of its buffers
    sizes: tuple[int, ...]
    cow: bool


def shows_views(value: Any, depth: int = 3) -> bool:
    """Whether that is an array in a view, or a list, tuple or dict with nothing but such arrays, small values and at least one array. Cheap."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and _shows(value, numpy.ndarray, depth) is True


def _shows(value: Any, ndarray: type, depth: int) -> bool | None:
    """None: neither for it nor against it."""
    if type(value) is ndarray:
        return in_view(value)
    if type(value) in _PLAIN:
        return None
    if type(value) not in (list, tuple, dict) or not depth or len(value) > _ITEMS_MAX:
        return False
    found = None
    for item in value.values() if type(value) is dict else value:
        shows = _shows(item, ndarray, depth - 1)
        if shows is False:
            return False
        found = found or shows
    return found


class Maps:
    """The live maps of an exchange's objects, by their addresses. Any thread."""

    def __init__(self) -> None:
        self._maps: dict[int, Map] = {}  # by id of the view

    def add(self, entry: Entry, view: View) -> None:
        """An entry was mapped."""
        starts = tuple(address(buffer) for buffer in view.buffers)
        identity = id(view)
        gone = weakref.ref(view, lambda _: self._maps.pop(identity, None))
        self._maps[identity] = Map(gone, [entry], starts, tuple(buffer.nbytes for buffer in view.buffers), view.cow)

    def find(self, value: Any) -> tuple[Map, Over] | None:
        """Of which object a value shows enough, as it is in the partition, and how; None where it does not, or is the object's own value."""
        if not shows_views(value):
            return None
        header, buffers = dumps(value, as_is=True, strided=True)
        if len(header) > _HEADER_MAX or not buffers:
            return None
        raw = [buffer.raw() for buffer in buffers]
        places = [(address(buffer), buffer.nbytes) for buffer in raw]
        for found in list(self._maps.values()):
            parts, view = parts_of(found.starts, found.sizes, places), found.view()
            if parts is None or view is None:
                continue
            if header == view.header:
                return None
            if _PART_MIN * sum(nbytes for _, nbytes in places) < sum(found.sizes) or (found.cow and not unwritten(places)):
                return None
            return found, Over(header, tuple(parts))
        return None
