#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Arrays to the workers of a pool and back: concurrent.futures as it is, and
shmstore's executor. Needs NumPy.

    pool.py [PARTITION [MIB]]        default: $SHMSTORE_PARTITION, else the one the library was
                                     built with; arrays of 64 MiB
"""

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import shmstore.multiprocessing as smp

PARTITION = sys.argv[1] if len(sys.argv) > 1 else None
MIB = int(sys.argv[2]) if len(sys.argv) > 2 else 64
TASKS = 8


def negative(array):
    return -array


def row_sum(task):
    matrix, row = task
    matrix = getattr(matrix, "value", matrix)  # of what share() gives: the array, mapped
    return float(matrix[row].sum())


def timed(what, function, *arguments):
    begin = time.perf_counter()
    result = list(function(*arguments))
    print(f"{what:40} {(time.perf_counter() - begin) / TASKS * 1e3:9.2f} ms a task")
    return result


def main():
    context = multiprocessing.get_context("spawn")
    array = np.ones((TASKS, MIB * (1 << 17) // TASKS))
    with ProcessPoolExecutor(2, context) as stock, smp.SharedExecutor(
            2, context, partition=PARTITION) as ours:
        for pool in (stock, ours):
            list(pool.map(negative, range(4)))  # the workers have begun
        for name, pool in (("stock", stock), ("shmstore", ours)):
            results = timed(f"{name}: {MIB} MiB there and back", pool.map, negative,
                            [array] * TASKS)
            assert all(result[0, 0] == -1 for result in results)
        sums = timed("stock: one array for all tasks", stock.map, row_sum,
                     [(array, i) for i in range(TASKS)])
        with smp.share(array, PARTITION) as shared:
            same = timed("shmstore: one array for all tasks", ours.map, row_sum,
                         [(shared, i) for i in range(TASKS)])
        print(f"the sums are {'the same' if sums == same else 'not the same'}")


if __name__ == "__main__":
    main()
