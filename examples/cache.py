#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Four web workers that start at once and want the same model: each loads it, and one
loads it for all. Needs NumPy.

    cache.py [PARTITION [MIB]]       default: $SHMSTORE_PARTITION, else the one the library was
                                     built with; a model of 256 MiB
"""

import multiprocessing
import sys
import time

import numpy as np

import shmstore

PARTITION = sys.argv[1] if len(sys.argv) > 1 else None
MIB = int(sys.argv[2]) if len(sys.argv) > 2 else 256
WORKERS = 4


def load():
    time.sleep(0.5)  # stands for decoding and checking it
    return {"weights": np.ones(MIB * (1 << 17)), "bias": 1.0}


def memory():
    """The memory of this process in MiB, of which it counts its share
    where several have the same."""
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def worker(kind, barrier, answers):
    cache, loads, before = shmstore.Cache("example", partition=PARTITION), [], memory()
    barrier.wait()  # all of them have begun
    begin = time.perf_counter()

    def build():
        loads.append(1)
        return load()

    model = build() if kind == "stock" else cache.get_or_create("model", build, version=MIB)
    total = float(model["weights"].sum()) + model["bias"]
    ready = time.perf_counter() - begin
    barrier.wait()  # all have it
    answers.put((ready, len(loads), memory() - before, total))
    barrier.wait()


def main():
    context = multiprocessing.get_context("spawn")
    for kind in ("stock", "shmstore"):
        barrier, answers = context.Barrier(WORKERS), context.Queue()
        workers = [context.Process(target=worker, args=(kind, barrier, answers))
                   for _ in range(WORKERS)]
        for process in workers:
            process.start()
        times, loads, memories, totals = zip(*(answers.get() for _ in workers))
        for process in workers:
            process.join()
        print(f"{kind}: {sum(loads)} loads, all ready after {max(times):.2f} s, "
              f"{sum(memories):.0f} MiB for {WORKERS} workers, sum {totals[0]:.0f}")
    shmstore.Cache("example", partition=PARTITION).clear()


if __name__ == "__main__":
    main()
