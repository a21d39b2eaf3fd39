# SPDX-License-Identifier: Apache-2.0
"""Where the memory of an array comes from, as the kernel says."""


def file_of(array):
    """(inode, whether it is shared) of the mapping that an array begins in; inode 0: no file's."""
    address = array.__array_interface__["data"][0]
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            span, permissions, _, _, inode, *_ = line.split()
            start, end = (int(part, 16) for part in span.split("-"))
            if start <= address < end:
                return int(inode), permissions[3] == "s"
    raise AssertionError(f"{address:#x} is in no map")
