# SPDX-License-Identifier: Apache-2.0
"""Stores that are open readonly: in place, by name, in other processes, and waiting."""

import asyncio
import errno
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest

import shmstore

OWNER = """
import signal, sys, shmstore, numpy
p = shmstore.Partition(sys.argv[1])
s = p.open(sys.argv[2], keep=sys.argv[3] == "keep")
n = int(sys.argv[4])
s["small"] = n
s["array"] = numpy.full(64000, n)
s["large"] = numpy.full(1 << 18, n)
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
s.close()
"""


class Producer:
    """Another process that owns a store."""

    def __init__(self, partition, name="feed", keep=False, n=1):
        self.process = subprocess.Popen([sys.executable, "-c", OWNER, partition.path, name,
                                         "keep" if keep else "no", str(n)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def does(self, code):
        self.process.stdin.write(code + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def end(self, kill=False):
        if kill:
            self.process.kill()
        self.process.stdin.close()
        self.process.wait()


@pytest.fixture
def producer(partition):
    made = Producer(partition)
    yield made
    made.end()


def private_kib():
    with open("/proc/self/statm") as file:
        fields = file.read().split()
    return (int(fields[1]) - int(fields[2])) * 4


def test_nothing_is_copied(partition):
    with partition.open("feed") as owner:
        for i in range(40):
            owner[f"a{i}"] = numpy.full(64000, i)
        with partition.open("feed", readonly=True) as reader:
            reader["a0"]
            before = private_kib()
            arrays = [reader[f"a{i}"] for i in range(40)]
            assert private_kib() - before < 2000  # of 20,000
        owner.clear()
        assert all((array == i).all() for i, array in enumerate(arrays))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("kill", [False, True])
def test_a_handle_goes_on_with_the_next_owner(partition, keep, kill):
    first = Producer(partition, keep=keep, n=1)
    with partition.open("feed", readonly=True) as reader:
        assert reader.owner == (first.process.pid, True)
        old = reader["array"], reader["large"]
        first.end(kill)
        if not keep and not kill:
            with pytest.raises(shmstore.Error,
                               match="the store feed is gone since its owner") as caught:
                reader["small"]
            assert caught.value.errno == errno.ENOENT
            with pytest.raises(shmstore.Error):
                list(reader)
        else:
            assert reader["small"] == 1
            assert not reader.owner.alive
        second = Producer(partition, keep=keep, n=2)
        assert reader["small"] == 2
        assert (reader["array"] == 2).all() and (reader["large"] == 2).all()
        assert sorted(reader) == ["array", "large", "small"]
        assert reader.owner == (second.process.pid, True)
        assert all((array == 1).all() for array in old)
        second.end()


def _sum(store):
    return int(store["array"].sum()), store["small"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_reader_in_worker_processes(partition, producer, method):
    with partition.open("feed", readonly=True) as reader:
        assert _sum(reader) == (64000, 1)
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(_sum, [reader] * 5) == [(64000, 1)] * 5


def test_a_reader_that_a_fork_inherits(partition, producer):
    with partition.open("feed", readonly=True) as reader:
        array = reader["array"]
        pid = os.fork()
        if pid == 0:
            try:
                ok = (_sum(reader) == (64000, 1) and (array == 1).all() and "large" in reader and
                      len(reader) == 3)
                grandchild = os.fork()
                if grandchild == 0:
                    os._exit(not (_sum(reader) == (64000, 1) and (array == 1).all()))
                ok = ok and os.waitpid(grandchild, 0)[1] == 0
                reader.close()
            finally:
                os._exit(not ok)
        assert os.waitpid(pid, 0)[1] == 0
        assert _sum(reader) == (64000, 1)


def test_an_owner_belongs_to_its_process(partition):
    with partition.open("mine") as owner, pytest.raises(TypeError, match="readonly"):
        pickle.dumps(owner)


def test_a_put_wakes_who_waits(partition, producer):
    with partition.open("feed", readonly=True) as reader:
        found = []
        for key, code in (("packed", 's["packed"] = 5'),
                          ("file", 's["file"] = numpy.arange(1 << 18)')):
            waiter = threading.Thread(target=lambda key=key: found.append(
                reader.get(key, timeout=30)))
            waiter.start()
            producer.does(code)
            waiter.join()
        assert found[0] == 5 and len(found[1]) == 1 << 18


def test_a_wait_ends(partition, producer):
    with partition.open("feed", readonly=True) as reader:
        with pytest.raises(TimeoutError, match="'never'"):
            reader.get("never", timeout=0.05)
        assert reader.get("never", None, timeout=0.05) is None
        assert reader.get("never", 7, timeout=0) == 7
        assert reader.get("never") is None
        producer.end(kill=True)
        with pytest.raises(shmstore.Error, match="is dead: nobody puts the key") as caught:
            reader.get("never", timeout=600)
        assert caught.value.errno == errno.ESTALE


def test_aget(partition, producer):
    async def both(reader):
        waiting = asyncio.create_task(reader.aget("late", timeout=30))
        await asyncio.sleep(0)
        assert await reader.aget("small") == 1
        producer.does('s["late"] = 9')
        assert await waiting == 9
        with pytest.raises(TimeoutError):
            await reader.aget("never", timeout=0.05)
        assert await reader.aget("never", 3, timeout=0.05) == 3

    with partition.open("feed", readonly=True) as reader:
        asyncio.run(both(reader))


def test_watch(partition, producer):
    with partition.open("feed", readonly=True) as reader:
        values = reader.watch("small", timeout=30)
        assert next(values)[0] == 1
        for n in range(2, 6):
            producer.does(f's["small"] = {n}')
            sequence, view = next(values)
            assert sequence == n and shmstore.pickling.loads(view) == n
        producer.does('for n in range(1000): s["small"] = n')
        last = 0
        while shmstore.pickling.loads(view) != 999:  # the last one is seen for certain
            sequence, view = next(values)
            assert sequence > last
            last = sequence
        with pytest.raises(TimeoutError):
            next(reader.watch("never", timeout=0.05))


def test_a_store_is_waited_for(partition):
    with pytest.raises(TimeoutError, match="no store 'late'"):
        partition.open("late", readonly=True, timeout=0.05)
    with pytest.raises(ValueError, match="readonly"):
        partition.open("late", timeout=1)
    opened = []
    waiter = threading.Thread(target=lambda: opened.append(
        partition.open("late", readonly=True, timeout=30)))
    waiter.start()
    with partition.open("late") as owner:
        owner["k"] = 1
        waiter.join()
        assert opened[0]["k"] == 1
        opened[0].close()


WAITS = """
import signal, sys, shmstore
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
p = shmstore.Partition(sys.argv[1])
r = p.open("feed", readonly=True)
try:
    print("ready", flush=True)
    r.get("never", timeout=600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_wait(partition, producer):
    process = subprocess.Popen([sys.executable, "-c", WAITS, partition.path],
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    # In the wait, or just before it: it is obeyed in both.
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    process.wait()


def test_a_key_that_is_replaced_is_never_missing(partition):
    producer = Producer(partition)
    producer.process.stdin.write('i = 0\n')
    producer.process.stdin.flush()
    assert producer.process.stdout.readline() == "done\n"
    code = ('exec("while True:\\n i += 1\\n s[\'small\'] = bytes(i % 3 * 300)\\n s[\'array\'] = '
            'numpy.full(10 + i % 2 * 9000, i)")')
    producer.process.stdin.write(code + "\n")
    producer.process.stdin.flush()
    with partition.open("feed", readonly=True) as reader:
        end = time.monotonic() + 60
        seen, last = 0, 0
        while seen < 20000 and time.monotonic() < end:
            array = reader["array"]
            assert (array == array[0]).all() and array[0] >= last
            last = array[0]
            assert "small" in reader
            seen += 1
        assert sorted(reader) == ["array", "large", "small"]
    producer.end(kill=True)


COUNTS_DESCRIPTORS = """
import numpy, os, shmstore, sys  # numpy: its import may leave a descriptor open
def descriptors():
    return len(os.listdir("/proc/self/fd"))
partition = shmstore.Partition(sys.argv[1])
partition.open("feed", readonly=True).close()
before = descriptors()
other = shmstore.Partition(partition.path)
assert descriptors() == before + 1, descriptors()  # docs/operations.md says it, and the next
stores = [other.open("feed", readonly=True) for _ in range(10)]
held = [(s["small"], s["array"], s["large"], list(s)) for s in stores]
assert all(small == 1 and large[0] == 1 and len(keys) == 3 for small, _, large, keys in held)
assert descriptors() == before + 11, descriptors()
for s in stores:
    s.close()
assert descriptors() == before + 1, descriptors()
assert all((array == 1).all() for _, array, _, _ in held)
"""


def test_a_reader_takes_one_descriptor(partition, producer):
    """In a process of its own: here, what earlier tests left may be closed meanwhile."""
    done = subprocess.run([sys.executable, "-c", COUNTS_DESCRIPTORS, partition.path],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_handle_goes_on_with_a_store_in_another_directory(partition, producer):
    with partition.open("feed", readonly=True) as reader:
        assert reader["small"] == 1
        os.mkdir(f"{partition.path}/moved")
        producer.does("s.close(); s = p.open('feed', directory='moved/feed'); s['small'] = 2; "
                      "s['array'] = numpy.full(64000, 2)")
        assert reader["small"] == 2 and (reader["array"] == 2).all()
        with open("/proc/self/maps") as maps:
            assert "/moved/feed/segments/" in maps.read()  # in place, not by a copy
