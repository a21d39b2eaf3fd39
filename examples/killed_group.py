#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A group of processes that works on a shared array is killed by SIGKILL, all at once, again and
again: nothing of it is left.

    killed_group.py [PARTITION]        default: $SHMSTORE_PARTITION, else the
                                       one the library was built with

With `multiprocessing.shared_memory` each round would leave its array in /dev/shm
until somebody removes the file.
"""

import multiprocessing
import os
import signal
import subprocess
import sys

import numpy as np

import shmstore
import shmstore.multiprocessing as smp

ROUNDS = 5


def work(shared):
    while shared.value.sum() > 0:
        print("at work", flush=True)


def group(path):
    weights = smp.share(np.ones(8_000_000), path)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(weights,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else shmstore.default_path()
    for _ in range(ROUNDS):
        with subprocess.Popen([sys.executable, __file__, path, "group"], stdout=subprocess.PIPE,
                              start_new_session=True) as leader:
            leader.stdout.readline()
            os.killpg(leader.pid, signal.SIGKILL)
    partition = shmstore.Partition(path, create=True)
    print(f"{ROUNDS} groups killed: {partition.usage().linked / 1e6:.0f} MB of the last one are "
          f"there")
    for _ in range(2):  # the second time for a process that was just ending
        partition.gc()
    usage = partition.usage()
    print(f"left over: {usage.linked - usage.metadata} bytes, {len(partition.stores())} stores")


if __name__ == "__main__":
    if sys.argv[2:] == ["group"]:
        group(sys.argv[1])
    else:
        main()
