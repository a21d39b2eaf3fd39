# SPDX-License-Identifier: Apache-2.0
"""A process's private memory: what its memory limit is about.

The resident set counts every mapped page of the partition in every worker that maps it, and every page of a tier file that is read where
it lies, which the kernel takes back as it likes. What a worker would give back if it were ended is its anonymous memory; pages that it
wrote to in a copy-on-write map are of that kind.
"""

from __future__ import annotations


def private_memory(pid: int | str = "self") -> int:
    """Bytes of resident memory of a process that no file is behind. OSError where there is no such process."""
    with open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"RssAnon:"):
                return int(line.split()[1]) << 10
    return 0  # it is just ending
