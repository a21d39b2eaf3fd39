# SPDX-License-Identifier: Apache-2.0
"""A process's private memory: what its memory limit is about.

The resident set counts every mapped page of the partition in every worker that maps it. What a worker would give back if
it were ended is its resident set without shared pages; pages that it wrote to in a copy-on-write map are its own again.
"""

from __future__ import annotations


def private_memory(pid: int | str = "self") -> int:
    """Bytes of resident memory of a process that are not shared memory. OSError where there is no such process."""
    resident = shared = 0
    with open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"VmRSS:"):
                resident = int(line.split()[1]) << 10
            elif line.startswith(b"RssShmem:"):
                shared = int(line.split()[1]) << 10
                break
    return max(0, resident - shared)
