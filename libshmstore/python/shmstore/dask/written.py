# SPDX-License-Identifier: Apache-2.0
"""Private memory behind mapped values: what was unpickled beside their buffers, and pages of copy-on-write maps that were written to.

Both belong to the process and count against its memory limit, as `private_memory` measures it. The first is known when a value is
mapped: its sizeof less its buffers. The second only the kernel knows.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any


def address_of(buffers: Sequence[memoryview]) -> int:
    """An address in the map of a view's buffers; 0 where they cannot be written to."""
    largest = max(buffers, key=lambda buffer: buffer.nbytes, default=None)
    if largest is None or largest.readonly or not largest.nbytes:
        return 0
    return ctypes.addressof(ctypes.c_char.from_buffer(largest))


def written_bytes(addresses: Sequence[int]) -> list[int]:
    """Bytes of anonymous memory in the maps in which those addresses lie. The kernel looks at the pages of every map for it."""
    starts: list[int] = []
    ends: list[int] = []
    anonymous: list[int] = []
    with open("/proc/self/smaps", "rb") as file:
        for line in file:
            if line.startswith(b"Anonymous:"):
                anonymous.append(int(line.split()[1]) << 10)
            elif line[:1] in b"0123456789abcdef":
                start, _, end = line.partition(b" ")[0].partition(b"-")
                starts.append(int(start, 16))
                ends.append(int(end, 16))

    def at(address: int) -> int:
        i = bisect_right(starts, address) - 1
        return anonymous[i] if 0 <= i < len(anonymous) and address < ends[i] else 0

    return [at(address) for address in addresses]


def unpickled_bytes(nbytes: int, buffers: Sequence[Any]) -> int:
    """Of a value with that sizeof: what does not lie in its buffers."""
    return max(0, nbytes - sum(buffer.nbytes for buffer in buffers))
