# SPDX-License-Identifier: Apache-2.0
"""Runs one job of dask_jobs.py in a process session of its own and measures it: what
bench_dask and quickstart share.

A Lab holds what the runs need: a scratch directory, the partition, the right to make cgroups and
network namespaces; it leaves nothing behind, also when a signal ends it. Lab.measure() starts
the measured process (dask_jobs.main), lets the cluster come up, takes the idle baseline, touches
the machine's memory so that no side pays for pages that the host has to find first, starts the
clock, and returns a dictionary.
"""
import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import json
import math
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from dask_cgroup import Cgroup, Meter, read, session_pids

HERE = os.path.dirname(os.path.abspath(__file__))
MS_NOSUID, MS_NODEV, MS_NOEXEC, MNT_DETACH = 2, 4, 8, 2
PR_SET_CHILD_SUBREAPER = 36
PREFIX = "shmstore-lab-"
BEGAN = time.time()


class Failed(Exception):
    """A run or a step that did not work; the text is for the user."""


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP. Raised once; the handler stays silent afterwards, so
    cleaning up runs to its end."""


def raise_on_signals():
    def handler(signum, frame):
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sig, signal.SIG_IGN)
        raise Interrupted(signum)

    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, handler)


def go_on_with(version):
    """The program again, in the virtual environment of that Dask, if it
    does not run there already."""
    made = subprocess.run([os.path.join(os.path.dirname(HERE), "deploy", "environment"), version],
                          stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        raise SystemExit(made.returncode)
    python = made.stdout.strip()
    if not os.path.samefile(os.path.dirname(os.path.dirname(python)), sys.prefix):
        os.execv(python, [python, *sys.argv])


def available_memory():
    return int(next(line.split()[1] for line in read("/proc/meminfo").splitlines()
                    if line.startswith("MemAvailable"))) * 1024


def touch_memory(size):
    """Has the machine give us size bytes, and frees them: what is allocated next has them at once.
    On a virtual machine whoever uses a page first, or first after it was free for a second or two,
    waits for the host. Free pages are found by luck: so until it gets no faster."""
    size = min(size, int(available_memory() * 0.85)) & ~((2 << 20) - 1)
    if size <= 0:
        return
    took = math.inf
    for _ in range(TOUCHES_MAX):
        start = time.perf_counter()
        touch_once(size)
        before, took = took, time.perf_counter() - start
        if before < 1.5 * took < math.inf:
            break


def touch_once(size):
    # no "with": closing it under a pointer, as an interruption would, raises
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError, AttributeError):
        # of private memory only: pages of shared memory are others than
        # those that huge ones are made of
        memory.madvise(mmap.MADV_HUGEPAGE)
    pointer = ctypes.c_char.from_buffer(memory)
    ctypes.memset(ctypes.addressof(pointer), 1, size)
    del pointer
    memory.close()


def expected_peak(spec):
    """Bytes of memory that a run may take: how much to touch, and what a machine should have."""
    copies = {"pairs": spec.workers + 0.5 if spec.side == "stock" else 2, "empty pairs": 0,
              "matmul": 6, "embarrassing": 1.5, "frames": 6, "four times": 1}
    peak = copies.get(spec.job, 4) * spec.size
    if spec.memory_limit:
        peak = min(peak, spec.workers * spec.memory_limit)
    return int(peak) + (256 << 20)


TOUCHES_MAX = 8
TRACKER = b"multiprocessing.resource_tracker"


def is_tracker(pid):
    """The process that removes a Python program's named semaphores when the program has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return TRACKER in file.read()
    except OSError:
        return False


def drop_semaphores(since, directory="/dev/shm"):
    """
    Removes Python's named semaphores of this user that came to be after since and that no process
    maps: a program that is killed between making one and telling its tracker leaves it. sem_open()
    maps it before it has its name; maps show the inode, and another name.
    """
    found = {}
    for entry in os.scandir(directory) if os.path.isdir(directory) else ():
        with contextlib.suppress(OSError):
            stat = entry.stat(follow_symlinks=False)
            if (entry.name.startswith("sem.mp-") and stat.st_uid == os.getuid() and
                stat.st_ctime >= since):
                found[str(stat.st_ino)] = entry.path
    for pid in filter(str.isdigit, os.listdir("/proc") if found else ()):
        with contextlib.suppress(OSError):
            for fields in map(str.split, read(f"/proc/{pid}/maps").splitlines()):
                found.pop(fields[4], None)
    for path in found.values():
        with contextlib.suppress(OSError):
            os.unlink(path)


def end_session(session, process=None, patience=10):
    """
    Ends every process of a session and waits until they are gone, and removes what they left of
    semaphores. Trackers end by themselves, or after patience seconds.
    """
    start = time.monotonic()
    while time.monotonic() < start + patience + 10:
        pids = list(session_pids(session))
        for pid in pids:
            if time.monotonic() > start + patience or not is_tracker(pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        if process is not None:
            process.poll()
        # Orphans come to us (we are their subreaper); the session's leader is Popen's to reap.
        for pid in pids:
            if pid != session:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        if not pids:
            drop_semaphores(BEGAN)
            return
        time.sleep(0.01)


def run_step(argv, log, env=None):
    """Runs a program in a session of its own with its output in the file log; Failed
    with the tail of the log."""
    with open(log, "ab") as out:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   start_new_session=True, env=env)
        try:
            code = process.wait()
        finally:
            end_session(process.pid, process)
    if code != 0:
        raise Failed(f"{' '.join(argv)}: exit status {code}\n{tail(log)}")


def tail(path, lines=15):
    with open(path, errors="replace") as file:
        return "".join(file.readlines()[-lines:])


class Lab:
    """Use as a context manager. partition_path: an existing partition; None makes one."""

    def __init__(self, python_path=(), partition_path=None, scratch_parent=None, may_keep=False):
        self.python_path = list(python_path)
        self.keep = False  # set to True at the end of a run that was asked to keep the partition
        self.name = f"{PREFIX}{os.getpid()}"
        # remove_stale() leaves it alone
        self.partition_name = f"shmstore-kept-{os.getpid()}" if may_keep else self.name
        self.partition, self.own_partition = partition_path, partition_path is None
        self.partition_text = partition_path or ""
        self.scratch_parent = scratch_parent or os.environ.get("TMPDIR", "/var/tmp")
        self.scratch = self.mount = self.lock = None
        self.cgroup_name, self.cgroup = None, None
        self.session, self.process = None, None
        self.n_runs = 0

    def __enter__(self):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            self.remove_stale()
            self.scratch = os.path.join(self.scratch_parent, self.name)
            os.mkdir(self.scratch, 0o700)
            self.lock = os.open(self.scratch, os.O_RDONLY)
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc):
        # An Interrupted raised on the way into close() still finds the second call;
        # there is only one Interrupted.
        try:
            self.close()
        finally:
            self.close()

    def close(self):
        self.end_run()
        if self.own_partition and self.partition and not self.keep:
            self.remove_partition(self.partition)
            self.partition = None
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    @staticmethod
    def partition_places():
        return ("/run", "/dev/shm")

    def remove_stale(self):
        """Removes the leftovers of a Lab that was killed outright: its processes died with
        it, its names hold its pid."""
        parents = [*self.partition_places(), self.scratch_parent,
                   *(parent for parent, _ in Cgroup.parents())]
        for parent in parents:
            with contextlib.suppress(OSError):
                for name in os.listdir(parent):
                    pid = name[len(PREFIX):].partition("-")[0]
                    if name.startswith(PREFIX) and pid.isdigit() and not self.lives(pid):
                        path = os.path.join(parent, name)
                        if parent in self.partition_places():
                            self.remove_partition(path)
                        elif parent == self.scratch_parent:
                            shutil.rmtree(path, ignore_errors=True)
                        else:
                            Cgroup(path, 0).remove()

    def lives(self, pid):
        """Whether the Lab of that pid does. In another PID namespace it has no entry in our /proc,
        and then its lock tells."""
        if os.path.exists(f"/proc/{pid}"):
            return True
        try:
            fd = os.open(os.path.join(self.scratch_parent, PREFIX + pid), os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    @staticmethod
    def remove_partition(path):
        libc = ctypes.CDLL(None, use_errno=True)
        while os.path.ismount(path) and libc.umount2(path.encode(), MNT_DETACH) == 0:
            pass
        if not os.path.ismount(path):
            shutil.rmtree(path, ignore_errors=True)

    def make_partition(self, size):
        """A tmpfs of our own with huge=within_size where we may mount, else a directory of
        /dev/shm. In place of an earlier one."""
        if self.own_partition and self.partition:
            self.remove_partition(self.partition)
        libc = ctypes.CDLL(None, use_errno=True)
        if os.geteuid() == 0 and os.path.isdir("/run"):
            # The name is recorded before the directory is made: whatever
            # interrupts us, close() finds it.
            self.partition = os.path.join("/run", self.partition_name)
            with contextlib.suppress(OSError):
                os.mkdir(self.partition, 0o700)
            for huge in (",huge=within_size", ""):
                options = f"size={size},mode=0700{huge}".encode()
                if libc.mount(b"shmstore", self.partition.encode(), b"tmpfs",
                              MS_NOSUID | MS_NODEV | MS_NOEXEC, options) == 0:
                    self.partition_text = (f"{self.partition}, a tmpfs of its own "
                                           f"({options.decode()})")
                    return self.partition
                if ctypes.get_errno() not in (errno.EINVAL, errno.EPERM, errno.EACCES):
                    break
            with contextlib.suppress(OSError):
                os.rmdir(self.partition)
        self.partition = os.path.join("/dev/shm", self.partition_name)
        os.mkdir(self.partition, 0o700)
        why = "mounting needs root" if os.geteuid() else "mounting is not allowed here"
        self.partition_text = f"{self.partition}, a directory of /dev/shm ({why}; no huge pages)"
        return self.partition

    def end_run(self):
        if self.process is not None:
            end_session(self.process.pid, self.process)
            with contextlib.suppress(OSError):
                self.process.wait(1)
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None
        if self.cgroup_name is not None:
            for parent, version in Cgroup.parents():
                path = os.path.join(parent, self.cgroup_name)
                if os.path.isdir(path):
                    Cgroup(path, version).remove()
            self.cgroup_name = self.cgroup = None

    def measure(self, spec, progress=lambda done, total, seconds, memory: None):
        """One run. Failed where it does not end well."""
        self.n_runs += 1
        scratch = os.path.join(self.scratch, f"{self.n_runs}")
        os.mkdir(scratch)
        log = os.path.join(scratch, "log")
        meter = None
        try:
            self.cgroup_name = f"{self.name}-{self.n_runs}"
            self.cgroup = Cgroup.make(self.cgroup_name)
            spec = dataclasses.replace(spec, scratch=scratch, partition=self.partition or "",
                                       cgroups=[self.cgroup.path] if self.cgroup else [],
                                       netns=can_netns())
            meter = self.start(spec, log)
            return self.run(spec, meter, progress)
        except (EOFError, BrokenPipeError):
            self.end_run()
            raise Failed(
                f"{spec.side}, {spec.label()}: the job's process ended early\n{tail(log)}"
            ) from None
        finally:
            if meter is not None:
                meter.stop()
            self.end_run()
            shutil.rmtree(scratch, ignore_errors=True)

    def start(self, spec, log):
        env = dict(os.environ, PYTHONPATH=os.pathsep.join([HERE, *self.python_path]),
                   PYTHONDONTWRITEBYTECODE="1")
        env.pop("SHMSTORE_PARTITION", None)
        if spec.side == "numpy":
            env.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
        with open(log, "wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "import sys, dask_jobs; dask_jobs.main(sys.argv)",
                 json.dumps(dataclasses.asdict(spec))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True, env=env,
                cwd=spec.scratch, start_new_session=True)
        meter = Meter(self.process.pid, self.cgroup, spec.partition if spec.side == "shmstore"
                      else "", spec.netns)
        meter.start()
        return meter

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise EOFError
        return json.loads(line)

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def run(self, spec, meter, progress):
        idle = self.hear()
        baseline = meter.baseline()
        touch_memory(expected_peak(spec))  # last: it does not stay touched
        before = meter.totals()
        self.tell("go")
        start = time.monotonic()
        while (message := self.hear())["event"] == "progress":
            progress(message["done"], message["total"], time.monotonic() - start,
                     meter.last - baseline)
        after = meter.totals()
        peak = max(meter.peak, meter.memory())
        result = {"job": spec.job, "side": spec.side, "size": spec.size, "chunk": spec.chunk,
                  "workers": spec.workers,
                  "memory_limit": spec.memory_limit, "wall": message["wall"],
                  "value": message["value"],
                  "peak": peak - baseline, "baseline": baseline, "method": meter.method,
                  "distributed": idle.get("distributed"), "loops": message["loops"],
                  "held": message.get("held", []), "lost": message.get("lost", 0),
                  "died": message.get("error", ""), "steps": message.get("steps", {}),
                  "live": message.get("live", 0)}
        result.update({key: after[key] - before[key] for key in before})
        self.tell("close")
        while self.hear()["event"] != "closed":
            pass
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        return result


def can_netns():
    """Whether dask_jobs.enter_netns() works here: tried in a child."""
    if can_netns.known is None:
        probe = "import dask_jobs; dask_jobs.enter_netns()"
        can_netns.known = subprocess.run([sys.executable, "-c", probe], stderr=subprocess.DEVNULL,
                                         check=False,
                                         env=dict(os.environ, PYTHONPATH=HERE,
                                                  PYTHONDONTWRITEBYTECODE="1")).returncode == 0
    return can_netns.known


can_netns.known = None
