#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Several processes work on one copy of an array. Needs NumPy.

    share_array.py [PARTITION]        default: $SHMSTORE_PARTITION, else the
                                      one the library was built with
"""

import multiprocessing
import sys

import numpy as np

import shmstore


def work(partition, name, ticket, results):
    with partition.open(name) as store:  # each process has a store of its own
        store.adopt("data", ticket)  # a hard link: no byte is copied, whatever the size
        data = store["data"]  # mapped, read-only
        mine = store.get("data", cow=True)  # writable; nobody else sees the writes
        mine *= 2
        results.put((name, float(data.sum()), float(mine.sum())))


def main():
    partition = shmstore.Partition(sys.argv[1] if len(sys.argv) > 1 else None, create=True)
    processes, results = [], multiprocessing.Queue()
    with partition.open("producer") as store:
        store["data"] = np.ones(10_000_000)  # the one copy, 80 MB
        for i in range(4):
            ticket = store.handoff("data")  # one per receiver
            process = multiprocessing.Process(target=work,
                                              args=(partition, f"worker-{i}", ticket, results))
            process.start()
            processes.append(process)
        for _ in processes:
            print("%s: data %.0f, doubled %.0f" % results.get())
        for process in processes:
            process.join()
        n = 1 + len(processes)
        print(f"stored once: {store.usage().linked / 1e6:.0f} MB for {n} processes")
    print(f"left over: {partition.usage().n_objects} objects")


if __name__ == "__main__":
    main()
