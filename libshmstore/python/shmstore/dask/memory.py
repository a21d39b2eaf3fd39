# SPDX-License-Identifier: Apache-2.0
"""A process's private memory, which its memory limit bounds.

The resident set counts every mapped page of the partition in every worker that maps it, and every
page of a tier file that is read where it lies, which the kernel takes back as it likes. The end of
a worker gives back its anonymous memory, with pages that it wrote to in a copy-on-write map.
"""

from __future__ import annotations

import mmap

_PAGE = mmap.PAGESIZE


def private_memory(pid: int | str = "self") -> int:
    """Bytes of resident memory of a process that no file is behind. OSError where there is no such process."""
    with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
        _, resident, of_files, *_ = file.read(256).split()
    return (int(resident) - int(of_files)) * _PAGE
