#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A table of Arrow's for another process: pickled through a pipe, and put into
shared memory. Needs pyarrow.

    table.py [PARTITION [ROWS]]      default: $SHMSTORE_PARTITION, else the one the library
                                     was built with; 5,000,000 rows

arrow.c reads such a table without Python and without a library of Arrow's.
"""

import multiprocessing
import sys
import time

import numpy as np
import pyarrow

import shmstore

PARTITION = sys.argv[1] if len(sys.argv) > 1 else None
ROWS = int(sys.argv[2]) if len(sys.argv) > 2 else 5_000_000


def consumer(pipe):
    """Answers each table with the sum of its prices: one that comes through the pipe, or the key of
    one that lies in the partition."""
    with shmstore.Partition(PARTITION).open("market", readonly=True) as market:
        while (what := pipe.recv()) is not None:
            table = market.get_arrow(what) if isinstance(what, str) else what
            pipe.send(float(np.sum(table["price"].chunk(0).to_numpy())))


def main():
    table = pyarrow.table({"price": np.arange(ROWS) / 100, "volume": np.arange(ROWS)})
    ours, theirs = multiprocessing.Pipe()
    with shmstore.Partition(PARTITION, create=True).open("market") as market:
        process = multiprocessing.get_context("spawn").Process(target=consumer, args=(theirs,))
        process.start()
        ours.send(table.slice(0, 1))
        ours.recv()  # it has begun
        for kind in ("stock", "shmstore"):
            begin = time.perf_counter()
            if kind == "shmstore":
                market.put_arrow("trades", table)
            ours.send(table if kind == "stock" else "trades")
            total = ours.recv()
            print(f"{kind + ':':9} {(time.perf_counter() - begin) * 1e3:8.1f} ms until the other "
                  f"process has the sum {total:.0f} of {table.nbytes >> 20} MiB")
        ours.send(None)
        process.join()


if __name__ == "__main__":
    main()
