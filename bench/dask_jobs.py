# SPDX-License-Identifier: Apache-2.0
"""The jobs of bench_dask and quickstart, and the process that runs one of them
on a Dask cluster of its own.

``jobs`` maps a name to a function (client, Spec) -> number that builds the job's graph and
computes it. The number depends on the data alone, so that stock Dask, shmstore and the plain
NumPy floor can be compared.

``main`` is the measured process: it is started by dask_measure.py with a Spec as JSON in argv[1],
puts itself into the cgroups and the network namespace that the spec names before anything else
happens, starts the cluster, and then talks in lines of JSON over stdin and stdout:

    -> {"event": "idle"}             the cluster is up and its libraries are
                                     loaded: the baseline is taken here
    <- go
    -> {"event": "progress", "done": 120, "total": 2144}
    -> {"event": "done", "wall": 3.9, "value": 1.23, "lost": 0, "error": ""}
                                     lost: workers that went away meanwhile
    <- close
    -> {"event": "closed"}

Nothing but the standard library (and dask_loop.py, beside this file) is imported before the
process is where it belongs.
"""
import ctypes
import dataclasses
import fcntl
import json
import math
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import dask_loop
import dask_workloads

CLONE_NEWUSER, CLONE_NEWNET, PR_SET_PDEATHSIG = 0x10000000, 0x40000000, 1
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


@dataclasses.dataclass
class Spec:
    """One run: what, how large, on what."""

    job: str = "pairs"
    side: str = "stock"  # "stock", "shmstore" or "numpy" (no cluster: the floor)
    size: int = 1 << 30
    chunk: int = 16 << 20
    workers: int = 4
    memory_limit: int = 0  # bytes per worker; 0 = none
    # bytes, where it is to be smaller than the data; 0: as large as the job needs
    partition_size: int = 0
    partition: str = ""  # shmstore only
    scratch: str = ""  # the workers' local directory
    # shmstore only: the program of the host daemon, whose arbiter the workers use; "": none
    daemon: str = ""
    # where event loops are watched: of each call that holds one for long, the stack
    stacks: bool = False
    patience: float = 0  # seconds after which the job is given up; 0: it is waited for
    settings: dict = dataclasses.field(default_factory=dict)  # more Dask configuration
    cgroups: list = dataclasses.field(default_factory=list)  # directories to join
    netns: bool = False

    def label(self):
        text = f"{self.job} {human(self.size)}, {human(self.chunk)} chunks, {self.workers} workers"
        text += f" of {human(self.memory_limit)} each" if self.memory_limit else ""
        return (text + (f", a partition of {human(self.partition_size)}" if self.partition_size
                        else ""))

    @property
    def n_chunks(self):
        return max(1, self.size // self.chunk)


def human(size):
    """1073741824 -> '1 GiB'."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return (f"{size / scale:.10g} {unit}" if size % scale == 0
                    else f"{size / scale:.1f} {unit}")
    return f"{size} B"


# ---- the work of the tasks: imported by the workers ----------------------------------------------


def make(i, n):
    import numpy

    return numpy.random.default_rng(i).random(n)


def dot(a, b):
    import numpy

    return float(numpy.dot(a, b))  # not a @ b: that keeps the GIL, and the floor runs in threads


def nothing(*inputs):
    return 0.0


def scale(a):
    return a * 2.0 + 1.0


def total(values):
    return float(math.fsum(values))


def reduce_one(a):
    return float(a.sum())


def add_up(parts):
    import numpy

    result = numpy.zeros_like(parts[0])
    for part in parts:
        result += part
    return result


def make_frame(i, rows, n_keys):
    import numpy
    import pandas

    rng = numpy.random.default_rng(i)
    return pandas.DataFrame({"key": rng.integers(0, n_keys, rows), "a": rng.random(rows),
                             "b": rng.random(rows)})


def warm(scratch_size=1 << 16):
    """Prepares a worker before the baseline is taken: the libraries are
    loaded, BLAS has its buffers."""
    import dask.array
    import dask.dataframe  # noqa: F401
    import numpy

    a = numpy.ones(scratch_size)
    return float(numpy.dot(a, a))


# ---- the jobs ------------------------------------------------------------------------------------


def pairs(client, spec, make=make, dot=dot):
    """dot(a_i, a_j) for all i <= j: every worker needs all data."""
    from dask import delayed

    chunks = [delayed(make, pure=False)(i, spec.chunk // 8) for i in range(spec.n_chunks)]
    dots = [delayed(dot, pure=False)(chunks[i], chunks[j]) for i in range(len(chunks))
            for j in range(i, len(chunks))]
    return client.compute(delayed(total, pure=False)(dots)).result()


def empty_pairs(client, spec):
    """The graph of pairs, whose tasks make and do nothing: what Dask itself takes."""
    return pairs(client, spec, make=nothing, dot=nothing)


def matmul(client, spec):
    """(a @ a.T).sum() of one random matrix, the expression of dask/distributed#7449."""
    import dask
    import dask.array

    side = math.isqrt(spec.size // 8)
    with dask.config.set({"array.chunk-size": spec.chunk}):
        a = dask.array.random.RandomState(1).random_sample((side, side))
        return float(client.compute((a @ a.T).sum()).result())


def embarrassing(client, spec):
    """Chunks made, transformed and reduced on the same worker: nothing to share, the
    backend must not cost anything."""
    from dask import delayed

    sums = []
    for i in range(spec.n_chunks):
        chunk = delayed(make, pure=False)(i, spec.chunk // 8)
        sums.append(delayed(reduce_one, pure=False)(delayed(scale, pure=False)(chunk)))
    return client.compute(delayed(total, pure=False)(sums)).result()


def frames(client, spec):
    """set_index, merge and groupby of numeric pandas frames: three shuffles, in which
    every partition goes to all."""
    import dask
    import dask.dataframe
    from dask import delayed

    rows, n_keys = spec.chunk // 24, max(16, spec.size // 2400)
    meta = make_frame(0, 0, n_keys)
    parts = [delayed(make_frame, pure=False)(i, rows, n_keys) for i in range(spec.n_chunks)]
    with dask.config.set(shuffle="tasks"):
        frame = dask.dataframe.from_delayed(parts, meta=meta, verify_meta=False)
        step = max(1, n_keys // spec.n_chunks)
        divisions = list(range(0, step * spec.n_chunks, step)) + [n_keys]
        index = frame.set_index("key", divisions=divisions)
        table = frame.groupby("key").agg({"a": "sum", "b": "max"}, split_out=spec.n_chunks)
        joined = frame.merge(table, left_on="key", right_index=True, suffixes=("", "_all"))
        results = [index.b.sum(), (joined.a / joined.a_all).sum(), joined.b_all.max()]
        return float(sum(future.result() for future in client.compute(results)))


def p2p_rechunk(client, spec):
    """A square array from rows to columns, by P2P: every chunk has a part in each new one."""
    import dask
    import dask.array

    side, width = rechunk_sides(spec)
    # else Dask makes larger chunks of two first
    with dask.config.set({"array.rechunk.method": "p2p", "array.chunk-size": spec.chunk}):
        a = dask.array.random.RandomState(1).random_sample((side, side), chunks=(width, side))
        return float(client.compute((a.rechunk((side, width)) * 2.0).sum()).result())


def rechunk_sides(spec):
    """Of the square, and of a chunk: so many chunks, all alike."""
    width = math.isqrt(spec.size // 8) // spec.n_chunks
    return width * spec.n_chunks, width


def make_text_frame(i, rows):
    import numpy
    import pandas
    import pyarrow
    import pyarrow.compute

    rng = numpy.random.default_rng(i)
    # NumPy's text took nine tenths of the job's time
    numbers = pyarrow.array(rng.integers(0, 1 << 20, rows)).cast(pyarrow.string())
    text = pyarrow.compute.binary_join_element_wise("a text of some length, number", numbers, " ")
    return pandas.DataFrame({"key": rng.integers(0, rows, rows), "a": rng.random(rows),
                             "text": pandas.array(text, dtype="string[pyarrow]")})


def p2p_shuffle(client, spec):
    """A frame with Arrow strings, shuffled by P2P."""
    import dask
    import dask.dataframe

    rows = spec.chunk // 64
    frame = dask.dataframe.from_map(make_text_frame, range(spec.n_chunks), rows=rows,
                                    meta=make_text_frame(0, 4), enforce_metadata=False)
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        shuffled = frame.shuffle("key")
        return float(client.compute(shuffled.a.sum() + shuffled.text.str.len().sum()).result())


def fourfold_picks(spec):
    """The chunks of each sum: as many as are four times a worker's memory limit."""
    width = min(spec.n_chunks, 4 * spec.memory_limit // spec.chunk)
    n_sums = 2 * spec.workers
    return [[(k * spec.n_chunks // n_sums + j) % spec.n_chunks for j in range(width)]
            for k in range(n_sums)]


def fourfold(client, spec):
    """Element by element sums, each of four times a worker's memory limit at once; all data are
    four times the partition."""
    from dask import delayed

    chunks = [delayed(make, pure=False)(i, spec.chunk // 8) for i in range(spec.n_chunks)]
    sums = [delayed(add_up, pure=False)([chunks[i] for i in picks]) for picks in fourfold_picks(
        spec)]
    return client.compute(delayed(total, pure=False)(
        [delayed(reduce_one, pure=False)(one) for one in sums])).result(timeout=spec.patience)


jobs = {"pairs": pairs, "empty pairs": empty_pairs, "matmul": matmul, "embarrassing": embarrassing,
        "frames": frames, "four times": fourfold,
        "p2p rechunk": p2p_rechunk, "p2p shuffle": p2p_shuffle, **dask_workloads.workloads}


def numpy_fourfold(spec):
    """The value of all sums."""
    sums = [reduce_one(make(i, spec.chunk // 8)) for i in range(spec.n_chunks)]
    return total(sums[i] for picks in fourfold_picks(spec) for i in picks)


def numpy_pairs(spec):
    """The floor of pairs: the same dots in this process, one thread per worker, no Dask."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(spec.workers) as pool:
        chunks = list(pool.map(lambda i: make(i, spec.chunk // 8), range(spec.n_chunks)))
        which = [(i, j) for i in range(len(chunks)) for j in range(i, len(chunks))]
        return total(pool.map(lambda ij: dot(chunks[ij[0]], chunks[ij[1]]), which))


def numpy_matmul(spec):
    """The floor of matmul: a block of rows for each chunk, one thread per worker."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy

    side = math.isqrt(spec.size // 8)
    bounds = [side * i // spec.n_chunks for i in range(spec.n_chunks + 1)]
    with ThreadPoolExecutor(spec.workers) as pool:
        a = numpy.empty((side, side))
        list(pool.map(lambda i: fill(a[bounds[i] : bounds[i + 1]], i), range(spec.n_chunks)))
        return total(pool.map(lambda i: float(numpy.dot(a[bounds[i] : bounds[i + 1]], a.T).sum()),
                              range(spec.n_chunks)))


def fill(rows, seed):
    import numpy

    rows[...] = numpy.random.RandomState(seed).random_sample(rows.shape)


def numpy_rechunk(spec):
    """The floor of the rechunk: each new chunk is one concatenation."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy

    side, width = rechunk_sides(spec)
    with ThreadPoolExecutor(spec.workers) as pool:
        chunks = list(pool.map(lambda i: numpy.random.RandomState(i).random_sample((width, side)),
                               range(spec.n_chunks)))
        starts = range(0, side, width)
        return total(pool.map(lambda j: float(
            (numpy.concatenate([c[:, j : j + width] for c in chunks]) * 2.0).sum()), starts))


def numpy_shuffle(spec):
    """The floor of the shuffle: each frame is sorted by where its rows go and cut, each new
    one is one concatenation."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy
    import pandas

    def cut(i):
        frame = make_text_frame(i, spec.chunk // 64)
        to = (pandas.util.hash_pandas_object(frame[["key"]], index=False).to_numpy() %
              spec.n_chunks).astype(numpy.int16)
        ends = numpy.cumsum(numpy.bincount(to, minlength=spec.n_chunks))
        frame = frame.take(numpy.argsort(to, kind="stable"))
        return [frame.iloc[begin:end] for begin, end in zip([0, *ends], ends)]

    def join(parts):
        frame = pandas.concat(parts)
        return float(frame.a.sum() + frame.text.str.len().sum())

    with ThreadPoolExecutor(spec.workers) as pool:
        return total(pool.map(join, zip(*pool.map(cut, range(spec.n_chunks)))))


#: Those jobs in one plain process with as many threads: the floor.
numpy_jobs = {"pairs": numpy_pairs, "four times": numpy_fourfold, "matmul": numpy_matmul,
              "p2p rechunk": numpy_rechunk, "p2p shuffle": numpy_shuffle}


# ---- the measured process ------------------------------------------------------------------------


def libc_call(name, *args):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{name}: {os.strerror(errno)}")


def enter_netns():
    """A network namespace with only a loopback in it; without root, one in a user namespace
    where we keep our own id."""
    uid, gid = os.getuid(), os.getgid()
    if os.geteuid() == 0:
        libc_call("unshare", CLONE_NEWNET)
    else:
        libc_call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"),
                           ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(sock, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


class Progress:
    """Counts tasks and bytes of their results in a scheduler that lives in this process, and says
    how many are done at most five times a second."""

    def __init__(self, say, scheduler):
        from distributed.diagnostics.plugin import SchedulerPlugin

        progress, tasks = self, scheduler.tasks
        self.total = self.done = self.lost = 0
        self.sizes = {}  # bytes of each key that is in memory anywhere
        self.live = self.live_most = 0  # of all of them together
        self.over = False

        class Plugin(SchedulerPlugin):
            name = "progress"

            def update_graph(self, scheduler, **kwargs):
                progress.total = len(scheduler.tasks)

            def transition(self, key, start, finish, *args, **kwargs):
                progress.done += finish == "memory"
                progress.live -= progress.sizes.pop(key, 0)
                if finish == "memory":
                    progress.sizes[key] = tasks[key].get_nbytes()
                    progress.live += progress.sizes[key]
                    progress.live_most = max(progress.live_most, progress.live)

            def remove_worker(self, scheduler, worker, **kwargs):
                progress.lost += not progress.over

        self.plugin, self.say, self.stop = Plugin(), say, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        last = None
        while not self.stop.wait(0.2):
            if (self.done, self.total) != last:
                last = (self.done, self.total)
                self.say(event="progress", done=self.done, total=self.total)


def start_daemon(spec):
    """The host daemon for this run's partition. It ends with this process."""
    config, path = os.path.join(spec.scratch, "shmstored.conf"), os.path.join(
        spec.scratch, "shmstored.socket")
    with open(config, "w") as file:
        file.write(f'http {{ enabled = no }}\npartition "{spec.partition}" {{ create = yes }}\n')
    os.environ["SHMSTORE_SOCKET"] = path

    def end_with_parent():
        libc_call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return subprocess.Popen([spec.daemon, "--config", config, "--socket", path],
                            stdin=subprocess.DEVNULL, stdout=2, preexec_fn=end_with_parent)


def has_arbiter(dask_worker):
    return dask_worker._arbitration is not None and dask_worker._arbitration.active


def steps_taken(dask_worker):
    """How keys of a worker got their memory."""
    return dict(dask_worker._arbitration.admission.counts)


def wait_for_arbiter(client, timeout=30):
    deadline = time.monotonic() + timeout
    while not all(client.run(has_arbiter).values()):
        if time.monotonic() > deadline:
            raise SystemExit(f"not all workers found the daemon's arbiter within {timeout} s")
        time.sleep(0.1)


def run_job(spec, client):
    """(its result, what went wrong): a job that dies is a result too where the case says
    how long to wait for it."""
    if not spec.patience:
        return jobs[spec.job](client, spec), ""
    try:
        return jobs[spec.job](client, spec), ""
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else "no end in time"
        return None, f"{type(error).__name__}: {said}"


def run_on_cluster(spec, say, wait):
    import dask
    import distributed
    from distributed import Client, LocalCluster

    settings = dict(spec.settings)
    options = {}
    if spec.side == "shmstore":
        import shmstore.dask

        settings["distributed.worker.memory.shared.partition"] = spec.partition
        options["worker_class"] = shmstore.dask.Nanny
        if spec.daemon:
            start_daemon(spec)
    dask.config.set(settings)
    with LocalCluster(n_workers=spec.workers, threads_per_worker=1, processes=True,
                      memory_limit=spec.memory_limit,
                      dashboard_address=None, local_directory=spec.scratch,
                      **options) as cluster, Client(cluster) as client:
        client.wait_for_workers(spec.workers, timeout=60)
        client.run(warm)
        warm()
        arbitrated = spec.side == "shmstore" and spec.daemon
        if arbitrated:
            wait_for_arbiter(client)
        # its workers do not live so long
        watched = spec.partition_size and not (spec.patience and spec.side == "stock")
        if watched:
            # what run() is given, it calls on the worker's event loop
            client.run(dask_loop.watch, spec.stacks)
        import dask.array
        import dask.dataframe  # noqa: F401

        progress = Progress(say, cluster.scheduler)
        cluster.scheduler.add_plugin(progress.plugin)
        progress.thread.start()
        say(event="idle", dask=dask.__version__, distributed=distributed.__version__)
        wait("go")
        start = time.perf_counter()
        value, error = run_job(spec, client)
        wall = time.perf_counter() - start
        progress.over = True
        progress.stop.set()
        progress.thread.join()
        steps = ([steps for steps in client.run(steps_taken).values()] if arbitrated and
                 not progress.lost else [])
        loops = list(client.run(dask_loop.report).values()) if watched and not progress.lost else []
        held = list(client.run(dask_loop.stacks).values()) if loops and spec.stacks else []
        say(event="done", wall=wall, value=value, live=progress.live_most, loops=loops, held=held,
            lost=progress.lost, error=error, steps=add_counts(steps))
        wait("close")


def add_counts(counts):
    return {name: sum(one.get(name, 0) for one in counts)
            for name in sorted({name for one in counts for name in one})}


def run_alone(spec, say, wait):
    warm()
    say(event="idle")
    wait("go")
    start = time.perf_counter()
    value = numpy_jobs[spec.job](spec)
    say(event="done", wall=time.perf_counter() - start, value=value, loops=[])
    wait("close")


def main(argv):
    spec = Spec(**json.loads(argv[1]))
    libc_call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for directory in spec.cgroups:
        with open(os.path.join(directory, "cgroup.procs"), "w") as file:
            file.write("0")
    if spec.netns:
        enter_netns()
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lock = threading.Lock()

    def say(**message):
        with lock:
            channel.write(json.dumps(message) + "\n")

    def wait(word):
        if sys.stdin.readline().strip() != word:
            raise SystemExit("the measuring process is gone")

    (run_alone if spec.side == "numpy" else run_on_cluster)(spec, say, wait)
    say(event="closed")
