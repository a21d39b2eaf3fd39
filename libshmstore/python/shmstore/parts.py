# SPDX-License-Identifier: Apache-2.0
"""Parts of objects: which bytes of an object's buffers a value shows, and whether
these are the object's still."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Sequence
from typing import NamedTuple

_FILE, _SWAPPED, _PRESENT = 1 << 61, 1 << 62, 1 << 63  # of an entry of /proc/self/pagemap


class Part(NamedTuple):
    """Of an object's buffer."""

    buffer: int
    offset: int
    nbytes: int


def address(buffer: memoryview) -> int:
    """Where a buffer begins; 0 for an empty one, and where nothing imported NumPy, without
    which no value shows a part."""
    return address_of(buffer) if "numpy" in sys.modules and buffer.nbytes else 0


def address_of(buffer: memoryview) -> int:
    """Where any buffer begins."""
    words = (ctypes.c_size_t * 16)()  # a Py_buffer, which begins with the address
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(buffer), words, 0)
    ctypes.pythonapi.PyBuffer_Release(words)  # which leaves the address
    return words[0]


def parts_of(starts: Sequence[int], sizes: Sequence[int],
             places: Sequence[tuple[int, int]]) -> list[Part] | None:
    """The places, (address, bytes) each, as parts of buffers that begin at starts; None where
    one lies in none of them."""
    parts = []
    for begin, nbytes in places:
        for i, (start, size) in enumerate(zip(starts, sizes)):
            if nbytes and start <= begin and begin + nbytes <= start + size:
                parts.append(Part(i, begin - start, nbytes))
                break
        else:
            return None
    return parts


def unwritten(places: Sequence[tuple[int, int]]) -> bool:
    """Whether nobody wrote to these bytes of copy-on-write maps: a page that was written is
    not the file's any more."""
    import numpy

    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as file:
            for begin, nbytes in places:
                first, last = begin // mmap.PAGESIZE, (begin + nbytes - 1) // mmap.PAGESIZE
                file.seek(first * 8)
                entries = numpy.frombuffer(file.read((last - first + 1) * 8), "u8")
                private = (entries & numpy.uint64(_PRESENT) != 0) & (entries & numpy.uint64(
                    _FILE) == 0)
                if (len(entries) != last - first + 1 or
                    (private | (entries & numpy.uint64(_SWAPPED) != 0)).any()):
                    return False
    except OSError:
        return False
    return True
