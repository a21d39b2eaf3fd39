#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Chunks of a zarr array for three processes: each fetches all of them, and one fetches each for
all. And files by fsspec. Needs zarr 3.

    chunks.py [PARTITION [CHUNKS]]   default: $SHMSTORE_PARTITION, else the one the library was
                                     built with; 40 chunks of 8 MiB
"""

import asyncio
import multiprocessing
import sys
import tempfile
import time

import numpy as np
import zarr

import shmstore
from shmstore.fsspec import ShmFileSystem
from shmstore.zarr import CachedStore

PARTITION = sys.argv[1] if len(sys.argv) > 1 else None
CHUNKS = int(sys.argv[2]) if len(sys.argv) > 2 else 40
PROCESSES = 3


class Remote(zarr.storage.LocalStore):
    """Files that take as long as an object store's, of which it counts how many were asked for."""

    fetched = 0

    async def get(self, key, *arguments, **options):
        Remote.fetched += 1
        await asyncio.sleep(0.05)
        return await super().get(key, *arguments, **options)


def read(kind, path, answers):
    source = Remote(path)
    store = (source if kind == "stock"
             else CachedStore(source, shmstore.Cache("chunks", partition=PARTITION)))
    begin = time.perf_counter()
    total = float(zarr.open_array(store, mode="r")[:].sum())
    answers.put((time.perf_counter() - begin, Remote.fetched, total))


def main():
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as path:
        zarr.create_array(path, shape=(CHUNKS, 1 << 20), chunks=(1, 1 << 20), dtype="f8",
                          compressors=None)[:] = 1.0
        for kind in ("stock", "shmstore"):
            answers = context.Queue()
            processes = [context.Process(target=read, args=(kind, path, answers))
                         for _ in range(PROCESSES)]
            for process in processes:
                process.start()
            times, fetched, totals = zip(*(answers.get() for _ in processes))
            for process in processes:
                process.join()
            print(f"{kind + ':':9} {max(times):6.2f} s for {PROCESSES} processes, {sum(fetched)} "
                  f"fetches, sum {totals[0]:.0f}")
        shmstore.Cache("chunks", partition=PARTITION).clear()

    fs, data = ShmFileSystem(partition=PARTITION), np.ones(CHUNKS << 15)
    with fs.open("shm://files/ones.npy", "wb") as file:
        np.save(file, data)
    with fs.open("shm://files/ones.npy", "rb") as file:
        print(f"by URL: {np.load(file).sum():.0f} of {fs.info('files/ones.npy')['size']} bytes")
    fs.rm("shm://files", recursive=True)


if __name__ == "__main__":
    main()
