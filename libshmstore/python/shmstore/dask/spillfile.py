# SPDX-License-Identifier: Apache-2.0
"""Spill files whose values are used where they lie.

Stock Dask reads a spilled value into private memory, as a file and as a value, although the memory
is short. A value of mostly buffers is written here so that it can be mapped instead: its buffers
are aligned, and as they are in memory. A task's writes stay in the worker, as with `map: cow`.

    "shmstore spilled" | number of buffers | bytes of the pickle | bytes of each buffer | the pickle | the buffers, at multiples of 64
"""

from __future__ import annotations

import mmap
import pickle
import struct
from collections.abc import Iterator
from typing import Any

from .. import dumps
from .compat.worker import Slow, SpillBuffer, SpilledSize, file_of, slow_of
from .exchange import Exchange, Pickled, shareable
from .ways import has_own_way

_MAGIC = b"shmstore spilled"
_ALIGN = 64
_HEAD = struct.Struct("<16sQQ")


class MappableSize(SpilledSize):
    """Of a value whose file can be mapped."""

    __slots__ = ()


class SpillFiles:
    """In place of stock's way to write and read the values of one `Slow`. Used by its event loop, `map` by any thread."""

    def __init__(self, slow: Slow, exchange: Exchange) -> None:
        self.exchange = exchange
        self._slow = slow
        self._dump, self._load = slow.dump, slow.load
        self.maps = True  #: values are written so that they can be mapped
        self._mappable = False  # what was written last
        self._known: tuple[Any, Pickled] | None = None
        slow.dump, slow.load = self.dump, self.load

    @classmethod
    def of(cls, data: SpillBuffer, exchange: Exchange) -> SpillFiles | None:
        """Of a SpillBuffer's; None where they are not as we know them."""
        slow = slow_of(data)
        return None if slow is None else cls(slow, exchange)

    def wrote(self, key: Any) -> None:
        """A value was stored under the key just now."""
        if self._mappable:
            self._slow.weight_by_key[key] = MappableSize(*self._slow.weight_by_key[key])

    def mappable(self, key: Any) -> bool:
        return type(self._slow.weight_by_key.get(key)) is MappableSize

    def map(self, key: Any) -> Any:
        """The value, in memory that its file is behind until somebody writes there. OSError."""
        with open(file_of(self._slow, key), "rb") as file:
            return _value(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)))

    def expect(self, value: Any, pickled: Pickled) -> None:
        """The value that is written next, if it is this one, was pickled already: it cannot be shared."""
        self._known = value, pickled

    def dump(self, value: Any) -> Any:
        self._mappable = False
        known, self._known = self._known, None
        if known is not None and known[0] is value:
            return self._dump(known[1].serialized())
        if self.maps and self.exchange.candidate(value):
            pickled = self.exchange.guard.call("spill", _pickle, value)
            if pickled is not None and shareable(pickled.header, sum(buffer.nbytes for buffer in pickled.buffers), self.exchange.settings):
                self._mappable = True
                return list(_frames(*pickled))
        return self._dump(value)

    def load(self, data: bytes | bytearray) -> Any:
        """The value of bytes that stock read: a copy."""
        if not data.startswith(_MAGIC):
            return self._load(data)
        return _value(memoryview(data if isinstance(data, bytearray) else bytearray(data)))


def _pickle(value: Any) -> Pickled | None:
    header, buffers = dumps(value, as_is=True, seen=(seen := set()))
    if any(map(has_own_way, seen)):
        return None
    return Pickled(header, [buffer.raw() for buffer in buffers])


def _frames(header: bytes, buffers: list[memoryview]) -> Iterator[Any]:
    head = _HEAD.pack(_MAGIC, len(buffers), len(header)) + struct.pack(f"<{len(buffers)}Q", *(buffer.nbytes for buffer in buffers))
    yield head + header
    end = len(head) + len(header)
    for buffer in buffers:
        yield bytes(-end % _ALIGN)
        yield buffer
        end += -end % _ALIGN + buffer.nbytes


def _value(file: memoryview) -> Any:
    _, n, header_size = _HEAD.unpack_from(file)
    sizes = struct.unpack_from(f"<{n}Q", file, _HEAD.size)
    begin = _HEAD.size + 8 * n
    end = begin + header_size
    header = file[begin:end]
    buffers = []
    for size in sizes:
        start = end + -end % _ALIGN
        end = start + size
        buffers.append(file[start:end])
    return pickle.loads(header, buffers=buffers)
