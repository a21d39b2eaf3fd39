# SPDX-License-Identifier: Apache-2.0
"""A container's /dev/shm of 64 MiB: what does not fit goes as it does without shmstore, with one
warning for each process."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import multiprocessing, sys
import numpy, shmstore
import shmstore.multiprocessing as smp
from shmstore.sequences import SharedList

MIB = 1 << 17  # of float64

def doubled(array):
    return array * 2

def total(task):
    data, i = task
    return float(data[i].sum())

def pool(context):
    arrays = [numpy.full(n * MIB, 1.0) for n in (1, 40, 100, 24, 24, 24, 1)]
    with smp.SharedExecutor(2, context) as pool:
        assert [float(a.sum()) for a in pool.map(doubled, arrays)] == [2.0 * len(a) for a in arrays]

def shared(context):
    with smp.share(numpy.ones(100 * MIB)) as large, smp.SharedExecutor(1, context) as pool:
        assert pool.submit(total, (large, slice(None))).exception() is not None  # it has no items
        assert float(pool.submit(value_of, large).result()) == 100 * MIB

def value_of(large):
    return large.value.sum()

def queue(context):
    smp.install()
    queue = context.Queue()
    process = context.Process(target=puts, args=(queue,))
    process.start()
    arrays = [queue.get(timeout=60) for _ in range(6)]  # all of them are kept
    assert [float(array.sum()) for array in arrays] == [20.0 * MIB] * 6
    process.join()

def puts(queue):
    for _ in range(6):
        queue.put(numpy.ones(20 * MIB))

def cache(context):
    built = []
    def build():
        built.append(1)
        return numpy.ones(100 * MIB)
    cache = shmstore.Cache("models")
    for _ in range(2):
        assert float(cache.get_or_create("large", build).sum()) == 100 * MIB
    assert cache.get_or_create("small", lambda: numpy.ones(MIB)).sum() == MIB
    assert len(built) == 2 and len(cache) == 1

def data(context):
    data = SharedList(numpy.full(MIB, float(i)) for i in range(100))
    with context.Pool(1) as pool:
        parts = [(data, i) for i in range(0, 100, 50)]
        assert pool.map(total, parts, chunksize=2) == [0.0, 50.0 * MIB]

if __name__ == "__main__":
    globals()[sys.argv[1]](multiprocessing.get_context(sys.argv[2]))
    print("done")
"""


@pytest.mark.skipif(os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"],
                                                        check=False).returncode != 0,
                    reason="mounts a file system")
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("what", ["pool", "shared", "queue", "cache", "data"])
def test_what_does_not_fit_goes_as_ever(tmp_path, what, method):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items()
                   if name != "SHMSTORE_PARTITION"}
    done = subprocess.run(["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm '
                                                        '&& exec "$@"', "sh", sys.executable,
                           tmp_path / "program.py", what, method], env=environment,
                          capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    warned = [line for line in done.stderr.splitlines() if "RuntimeWarning" in line]
    # one of each process
    assert (1 <= len(warned) <= 3 and len(set(warned)) == len(warned) and
            all("64 MiB" in line for line in warned)), done.stderr
    assert "Traceback" not in done.stderr
