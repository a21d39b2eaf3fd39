# SPDX-License-Identifier: Apache-2.0
"""How each library takes a NumPy array from one process to another, for bench_python, which runs
this file once for each of them.

python_peers.py NAME DIRECTORY reads lines "SIZE" and answers each with the nanoseconds of a put, of
a hand-over and of a get. The producer puts an array of that many bytes; it makes a reference and
sends it over a pipe; the consumer, another process, gets an array, reads a byte of each page, lets
go and answers; then the producer frees it. The hand-over is from the end of the put to the answer.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque

import numpy as np

PAGE = 4096
now = time.perf_counter_ns


def touch(array):
    return int(array.reshape(-1).view(np.uint8)[::PAGE].sum())


class Floor:
    """No library: memcpy into private memory that is there already, and an array that the consumer
    has already. The pipe is the same."""

    def __init__(self, directory):
        self.arrays = {}

    def put(self, array):
        np.copyto(self.mine(array.nbytes), array)
        return array.nbytes

    def free(self, reference):
        pass

    def get(self, reference):
        return self.mine(reference), None

    def mine(self, size):
        if size not in self.arrays:
            self.arrays[size] = np.ones(size, np.uint8)
        return self.arrays[size]


class Shmstore:
    def __init__(self, directory):
        import shmstore

        # As a program that hands over values of these sizes opens it: up to so many bytes they go
        # into segments, larger ones are files.
        self.store = shmstore.Partition(directory, create=True).open(
            f"bench-{os.getpid()}", pack_max=2 << 20)

    def put(self, array):
        self.store.put("key", array)
        return "key"

    def refer(self, key):
        return str(self.store.handoff(key))

    def free(self, key):
        self.store.delete(key)

    def get(self, reference):
        self.store.adopt("key", reference)
        return self.store["key"], None

    def release(self, held):
        self.store.delete("key")


class SharedMemory:
    def __init__(self, directory):
        from multiprocessing import resource_tracker, shared_memory

        resource_tracker.ensure_running()
        self.open = shared_memory.SharedMemory

    def put(self, array):
        self.memory = self.open(create=True, size=array.nbytes)
        np.ndarray(array.nbytes, np.uint8, self.memory.buf)[:] = array
        return self.memory.name, array.nbytes

    def free(self, reference):
        self.memory.close()
        self.memory.unlink()

    def get(self, reference):
        memory = self.open(reference[0])
        return np.ndarray(reference[1], np.uint8, memory.buf), memory

    def release(self, held):
        held.close()


class Joblib:
    """A file in memory, mapped: what joblib.Parallel does with large arguments."""

    def __init__(self, directory):
        import joblib

        self.joblib, self.path = joblib, os.path.join(directory, "array")

    def put(self, array):
        self.joblib.dump(array, self.path)
        return self.path

    def free(self, reference):
        os.unlink(reference)

    def get(self, reference):
        return self.joblib.load(reference, mmap_mode="r"), None


class Arrow:
    """A tensor in a file in memory, mapped."""

    def __init__(self, directory):
        import pyarrow

        self.pa, self.path = pyarrow, os.path.join(directory, "tensor")

    def put(self, array):
        with self.pa.OSFile(self.path, "wb") as sink:
            self.pa.ipc.write_tensor(self.pa.Tensor.from_numpy(array), sink)
        return self.path

    def free(self, reference):
        os.unlink(reference)

    def get(self, reference):
        return self.pa.ipc.read_tensor(self.pa.memory_map(reference)).to_numpy(), None


class Torch:
    def __init__(self, directory):
        import torch
        import torch.multiprocessing  # noqa: F401  how tensors are pickled

        torch.set_num_threads(1)
        self.torch = torch

    def put(self, array):
        return self.torch.from_numpy(array).clone().share_memory_()

    def refer(self, tensor):
        from multiprocessing.reduction import ForkingPickler

        return bytes(ForkingPickler.dumps(tensor))

    def free(self, tensor):
        pass

    def get(self, reference):
        import pickle

        return pickle.loads(reference).numpy(), None


class Iceoryx:
    """A publisher's sample is loaned, filled and sent; the subscriber takes it, and has it until it
    lets go. A pool of the publisher's is both sides' memory."""

    def __init__(self, directory):
        import ctypes

        import iceoryx2 as iox

        iox.set_log_level(iox.LogLevel.Error)
        self.ctypes, self.publisher = ctypes, None
        self.node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)
        builder = self.node.service_builder(iox.ServiceName.new(directory))
        self.service = builder.publish_subscribe(iox.Slice[ctypes.c_uint8]).open_or_create()
        self.subscriber = self.service.subscriber_builder().create()
        self.growing = iox.AllocationStrategy.PowerOfTwo

    def become_producer(self):
        """A sample reaches only who subscribed before: the consumer has when its subscriber
        is the one that is left."""
        self.subscriber.delete()
        deadline = time.monotonic() + 10
        while self.service.dynamic_config.number_of_subscribers != 1:
            if time.monotonic() > deadline:
                raise RuntimeError("the consumer did not subscribe")
            time.sleep(0.01)
        self.publisher = self.service.publisher_builder().initial_max_slice_len(
            PAGE).allocation_strategy(self.growing).create()

    def put(self, array):
        if not self.publisher:
            self.become_producer()
        sample = self.publisher.loan_slice_uninit(array.nbytes)
        self.ctypes.memmove(sample.payload().as_ptr(), array.ctypes.data, array.nbytes)
        return sample.assume_init()

    def refer(self, sample):
        sample.send()
        return "sent"

    def free(self, sample):
        pass

    def get(self, reference):
        sample = self.subscriber.receive()
        payload = sample.payload()
        pointer = self.ctypes.cast(payload.as_ptr(), self.ctypes.POINTER(self.ctypes.c_uint8))
        return np.ctypeslib.as_array(pointer, (payload.len(),)), sample

    def release(self, sample):
        sample.delete()


class Vineyard:
    def __init__(self, directory):
        import vineyard

        self.client = vineyard.connect(os.path.join(directory, "socket"))

    def put(self, array):
        return int(self.client.put(array))

    def free(self, reference):
        import vineyard

        self.client.delete([vineyard.ObjectID(reference)])

    def get(self, reference):
        import vineyard

        return self.client.get(vineyard.ObjectID(reference)), None


class VineyardServer:
    """The daemon out of vineyard's own package; it keeps its metadata to itself."""

    def __init__(self, directory):
        import vineyard

        program = os.path.join(os.path.dirname(vineyard.__file__), "bdist", "vineyardd")
        os.chmod(program, 0o755)
        path = os.path.join(directory, "socket")
        self.log = open(os.path.join(directory, "log"), "w+b")
        self.process = subprocess.Popen([program, f"--socket={path}", "--size=1Gi", "--meta=local",
                                         "--rpc=false"], stdout=self.log, stderr=self.log)
        for _ in range(200):
            if os.path.exists(path):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.close()
        self.log.seek(0)
        raise RuntimeError("vineyardd: " + self.log.read().decode(errors="replace").strip()[-300:])

    def close(self):
        self.process.terminate()
        self.process.wait()


PEERS = {"floor": Floor, "shmstore": Shmstore, "shmstore-huge": Shmstore,
         "shared_memory": SharedMemory, "joblib": Joblib, "pyarrow": Arrow, "iceoryx2": Iceoryx,
         "torch": Torch, "vineyard": Vineyard}
SERVERS = {"vineyard": VineyardServer}


def consume(peer, pipe):
    """Answers each reference with the nanoseconds of the get: until a byte of each page is read."""
    while (reference := pipe.recv()) is not None:
        begun = now()
        array, held = peer.get(reference)
        touch(array)
        taken = now() - begun
        del array
        if hasattr(peer, "release"):
            peer.release(held)
        del held
        pipe.send(taken)


def arrays_asked_for():
    """An array of each size that is read, a line each, until standard input ends; of one
    size it is the same one."""
    arrays = {}
    print("ready", flush=True)
    for line in sys.stdin:
        size = int(line)
        if size not in arrays:
            arrays[size] = np.random.default_rng(size).integers(0, 256, size, np.uint8)
        yield arrays[size]


def play(name, directory):
    """Reads sizes, answers times. Ends with its standard input."""
    from multiprocessing import Pipe

    here, there = Pipe()
    child = os.fork()
    if child == 0:
        here.close()
        status = 1
        try:
            consume(PEERS[name](directory), there)
            status = 0
        except EOFError:
            status = 0
        finally:
            os._exit(status)
    there.close()
    peer = PEERS[name](directory)
    for array in arrays_asked_for():
        begun = now()
        what = peer.put(array)
        put = now()
        here.send(peer.refer(what) if hasattr(peer, "refer") else what)
        get = here.recv()
        handed = now()
        peer.free(what)
        del what
        print(put - begun, handed - put, get, now() - begun, flush=True)
    here.send(None)
    os.waitpid(child, 0)


def play_ray(directory):
    """Ray's put, and its get in an actor, which is told the reference as usual: as an argument."""
    import logging

    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    import ray

    ray.init(num_cpus=2, object_store_memory=1 << 30, include_dashboard=False,
             logging_level=logging.ERROR, log_to_driver=False, _temp_dir=directory)

    @ray.remote
    class Consumer:
        def take(self, references):
            begun = now()
            array = ray.get(references[0])
            touch(array)
            return now() - begun

    consumer = Consumer.remote()
    for array in arrays_asked_for():
        begun = now()
        reference = ray.put(array)
        put = now()
        get = ray.get(consumer.take.remote([reference]))
        handed = now()
        del reference
        print(put - begun, handed - put, get, now() - begun, flush=True)
    ray.shutdown()


class Player:
    """One library's process, and what it needs."""

    def __init__(self, name, python, env):
        self.name = name
        self.directory = tempfile.mkdtemp(prefix=f"shmstore-bench-{name}-", dir="/tmp"
                                          if name == "ray" else "/dev/shm")
        if name == "shmstore-huge":
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g,huge=within_size",
                            "shmstore-bench", self.directory], check=True)
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([python, os.path.abspath(__file__), name, self.directory],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, env=env)
        try:
            self.answer("ready")
        except BaseException:
            self.close()
            raise

    def answer(self, expected=None):
        line = self.process.stdout.readline()
        if not line or (expected and line.strip() != expected):
            self.log.seek(0)
            said = deque((text.strip() for text in self.log if text.strip()), 1)
            raise RuntimeError(said[0] if said else f"it said {line!r}")
        return line

    def __call__(self, size):
        self.process.stdin.write(f"{size}\n")
        self.process.stdin.flush()
        return [int(word) for word in self.answer().split()]

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()
        if self.name == "shmstore-huge":
            subprocess.run(["umount", self.directory], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)


def main():
    name, directory = sys.argv[1:]
    server = SERVERS[name](directory) if name in SERVERS else None
    try:
        if name == "ray":
            play_ray(directory)
        else:
            play(name, directory)
    finally:
        if server:
            server.close()


if __name__ == "__main__":
    main()
