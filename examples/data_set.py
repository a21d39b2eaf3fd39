#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A data set of many records for two workers: a list that each of them gets a copy of,
and a SharedList. Needs NumPy.

    data_set.py [PARTITION [N]]      default: $SHMSTORE_PARTITION, else the one the library was
                                     built with; 10,000 records of 8 KiB

With PyTorch installed the workers are a DataLoader's, else a pool's.
"""

import multiprocessing
import sys
import time

import numpy as np

from shmstore.sequences import SharedList

try:
    from torch.utils.data import DataLoader
except ImportError:
    DataLoader = None

PARTITION = sys.argv[1] if len(sys.argv) > 1 else None
N = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
WORKERS = 2


class Means:
    """The mean of a record, as a training loop asks for it, and the memory of the
    worker that computed it."""

    def __init__(self, records):
        self.records = records

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        mean = float(self.records[i].mean())
        if i % (N // 8 or 1):
            return mean, 0.0
        # its share, where several have the same memory
        with open("/proc/self/smaps_rollup") as file:
            return mean, sum(int(line.split()[1]) for line in file
                             if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) / 1024


def means_of(data):
    if DataLoader is not None:
        return list(DataLoader(data, batch_size=None, num_workers=WORKERS,
                               multiprocessing_context="spawn"))
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        return pool.starmap(type(data).__getitem__, ((data, i) for i in range(len(data))),
                            chunksize=len(data) // WORKERS)


def main():
    records = [np.full(2048, i, np.float32) for i in range(N)]
    shared = SharedList(records, PARTITION)
    for kind, data in (("a list", records), ("SharedList", shared)):
        begin = time.perf_counter()
        means, memories = zip(*means_of(Means(data)))
        print(f"{kind + ':':11} {time.perf_counter() - begin:6.2f} s, sum of means "
              f"{sum(means):.0f}, up to {max(memories):.0f} MiB in a worker")
    print(f"SharedList's memory, once: {shared.nbytes / (1 << 20):.0f} MiB, for "
          f"{N * 8192 / (1 << 20):.0f} MiB of records")
    shared.close()


if __name__ == "__main__":
    main()
