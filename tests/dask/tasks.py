# SPDX-License-Identifier: Apache-2.0
"""Functions that the tests' tasks run; imported by the workers."""

from __future__ import annotations

import numpy as np
import pandas as pd

MIB = 1 << 20


def make(i: int, size: int = 4 * MIB) -> np.ndarray:
    return np.random.default_rng(i).random(size // 8)


def make_frame(i: int, rows: int = 100_000) -> pd.DataFrame:
    rng = np.random.default_rng(i)
    return pd.DataFrame({"k": rng.integers(0, 100, rows), "a": rng.random(rows),
                         "b": rng.random(rows)})


def make_list(i: int) -> list[np.ndarray]:
    return [make(i), make(i + 1)]


ROWS = 250_000


def make_64(i: int) -> np.ndarray:
    return make(i, 64 * MIB)


def make_strings(i: int) -> pd.DataFrame:
    """More than half of it is numbers where it is pickled; in memory most of it is strings."""
    columns = {name: np.random.default_rng(i).random(ROWS) for name in "abcd"}
    # pandas 3 takes Arrow's strings else
    text = pd.Series([f"text {i} {j}" for j in range(ROWS)], dtype=object)
    return pd.DataFrame({"text": text, **columns})


def last_string(frame, _) -> str:
    return str(frame.text.iloc[-1])


def dot(a, b) -> float:
    return float(np.dot(a, b))


def identity(a):
    return a


def total(*values) -> float:
    return float(sum(np.sum(value) for value in values))


def add_in_place(a, number):
    a += number
    return float(a[0])


def address_of(a) -> int:
    return int(a.__array_interface__["data"][0])


def private_bytes(worker) -> int:
    return worker.monitor.get_process_memory()


def resident_bytes(worker) -> int:
    return worker.monitor.proc.memory_info().rss


def spilled(worker):
    return tuple(worker.data.spilled_total)


def n_objects(worker) -> int:
    return worker._exchange.store.usage().n_objects


def wait_for_settling():
    """Values that leave private memory go to the partition, however long that takes."""
    from shmstore.dask.tier import Settling

    Settling.STUCK = 600.0


def kind_of_data(worker) -> str:
    return type(worker.data).__name__


def counters(worker):
    own = worker._exchange.store.name
    return next(info.counters for info in worker._exchange.partition.stores() if info.name == own)


def make_counted(directory, i: int) -> np.ndarray:
    """Each run of it leaves a file."""
    import os
    import uuid

    open(os.path.join(directory, f"ran-{i}-{uuid.uuid4().hex}"), "w").close()
    return make(i)


def counted(directory) -> int:
    import glob

    return len(glob.glob(f"{directory}/ran-*"))


def make_slowly(seconds: float, i: int = 1) -> np.ndarray:
    import time

    time.sleep(seconds)
    return make(i)


def total_after(a, _, number) -> float:
    return float(a.sum()) + number


def slow_dot(a, b, seconds: float) -> float:
    import time

    time.sleep(seconds)
    return float(a[::64] @ b[::64])


def wait_for_file(path) -> bool:
    import os
    import time

    while not os.path.exists(path):
        time.sleep(0.01)
    return True
