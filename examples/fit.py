#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""joblib's workers with large arguments and results: by its own backend, and by
shmstore's. Needs joblib and NumPy.

    fit.py [PARTITION [MIB]]         default: $SHMSTORE_PARTITION, else the one the library was
                                     built with; an array of 256 MiB

scikit-learn's n_jobs goes the same way: `with
joblib.parallel_backend("shmstore"): model.fit(x, y)`.
"""

import sys
import time

import joblib
import numpy as np

import shmstore.joblib

PARTITION = sys.argv[1] if len(sys.argv) > 1 else None
MIB = int(sys.argv[2]) if len(sys.argv) > 2 else 256
TASKS = 8


def resampled(x, seed):
    """A random half of the rows, as a bootstrap has it: a large result."""
    rows = np.random.default_rng(seed).integers(0, len(x), len(x) // 2)
    return x[rows]


def main():
    shmstore.joblib.register(partition=PARTITION)
    x, sums = np.random.default_rng(0).random((MIB * (1 << 11), 64)), {}
    for backend in ("loky", "shmstore"):
        with joblib.parallel_backend(backend, n_jobs=2):
            # the workers have begun
            joblib.Parallel()(joblib.delayed(resampled)(x[:100], i) for i in range(4))
            begin = time.perf_counter()
            results = joblib.Parallel()(joblib.delayed(resampled)(x, i) for i in range(TASKS))
            print(f"{backend + ':':9} {time.perf_counter() - begin:6.2f} s for {TASKS} results of "
                  f"{results[0].nbytes / (1 << 20):.0f} MiB")
            sums[backend] = [float(result[0, 0]) for result in results]
            del results
    print(f"the results are {'the same' if sums['loky'] == sums['shmstore'] else 'not the same'}")


if __name__ == "__main__":
    main()
