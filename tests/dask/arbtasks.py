# SPDX-License-Identifier: Apache-2.0
"""Tasks of test_arbiter.py: they weigh and join values of a known content, some of them behind a
gate. Imported by the workers."""

from __future__ import annotations

import os
import time

import numpy as np

from shmstore.dask import register_splitter

MIB = 1 << 20


def blob(i: int, size: int) -> str:
    """Cannot be shared: it spills to a file of its worker, as on stock."""
    return chr(i) * size


def chunk(i: int, size: int) -> np.ndarray:
    """Lies in the partition, or in its disk tier."""
    return np.full(size // 8, i, dtype="i8")


def weigh(*values) -> int:
    return sum((ord(value[0]) if isinstance(value, str) else int(value[0])) * len(value)
               for value in values)


def weigh_behind(gate: str, *values) -> int:
    wait_for(gate)
    return weigh(*values)


def join(*values: str) -> str:
    return "".join(values)


def join_behind(gate: str, *values: str) -> str:
    wait_for(gate)
    return "".join(values)


def weigh_list(values) -> int:
    """Knows how to be done in pieces."""
    return weigh(*values)


def _split(args, kwargs):
    (values,) = args
    middle = len(values) // 2
    return [((values[:middle],), kwargs), ((values[middle:],), kwargs)] if middle else None


register_splitter(weigh_list, _split, sum)


def wait_for(path: str) -> None:
    deadline = time.monotonic() + 60
    while not os.path.exists(path):
        assert time.monotonic() < deadline, f"{path}: nobody opened it within 60 s"
        time.sleep(0.005)
