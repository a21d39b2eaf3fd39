#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A producer that writes straight into shared memory: no copy at all. Needs NumPy.

    write_in_place.py [PARTITION]     default: $SHMSTORE_PARTITION, else the
                                      one the library was built with
"""

import json
import sys

import numpy as np

import shmstore


def main():
    partition = shmstore.Partition(sys.argv[1] if len(sys.argv) > 1 else None, create=True)
    shape = (1000, 1000)
    header = json.dumps({"shape": shape, "dtype": "float64"}).encode()
    with partition.open("producer") as store:
        # a full partition fails here
        with store.create("image", len(header), [8 * shape[0] * shape[1]]) as writer:
            writer.header[:] = header
            image = np.frombuffer(writer.buffers[0]).reshape(shape)
            np.outer(np.arange(shape[0]), np.arange(shape[1]), out=image)
            del image  # nothing may look at the memory when the block ends and seals it
        view = store.view("image")
        meta = json.loads(view.header)
        # read-only, and keeps the memory
        image = np.frombuffer(view, meta["dtype"]).reshape(meta["shape"])
        print(f"{view.nbytes} bytes, image[3, 7] = {image[3, 7]:.0f}")
    print(f"the store is closed, the view still reads {image[999, 999]:.0f}")


if __name__ == "__main__":
    main()
