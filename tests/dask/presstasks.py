# SPDX-License-Identifier: Apache-2.0
"""Tasks of the tests under memory pressure; imported by the workers."""

from __future__ import annotations

import os
import time

MIB = 1 << 20


def value(x: int) -> int:
    return x


def take(mib: int) -> bytearray:
    """So many MiB of private memory, touched."""
    held = bytearray(mib * MIB)
    held[::4096] = b"x" * len(held[::4096])
    return held


def hold(mib: int, seconds: float) -> int:
    held = take(mib)
    time.sleep(seconds)
    return len(held) // MIB


def hold_until(mib: int, path: str) -> int:
    held = take(mib)
    while not os.path.exists(path):
        time.sleep(0.01)
    return len(held) // MIB


def pid_and_time(mib: int, tries: str, path: str) -> tuple[int, float]:
    begun = time.time()
    with open(tries, "a", encoding="ascii") as file:
        file.write(f"{os.getpid()} {begun}\n")
    hold_until(mib, path)
    return os.getpid(), begun


class Counter:
    def __init__(self) -> None:
        self.n = 0

    def add(self, x: int) -> int:
        self.n += x
        return self.n
