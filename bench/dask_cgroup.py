# SPDX-License-Identifier: Apache-2.0
"""Measures a group of processes: memory, CPU time, disk and socket bytes, as the kernel tells it.

A Meter covers the processes of one session (the measured process starts one). Memory comes from a
memory cgroup of its own where we may make one, version 1 or 2; otherwise from the processes'
private memory plus what the partition has in use. CPU time and disk traffic are summed over the
processes, ended children included; socket bytes are the loopback's counters in the process's
network namespace. ``method`` says which way was taken.
"""
import os
import signal
import threading
import time

PERIOD = 0.05  # seconds between two samples of memory: 20 Hz
TICK = os.sysconf("SC_CLK_TCK")


def read(path):
    with open(path) as file:
        return file.read()


def stat_fields(path):
    return {key: int(value) for key, value in (line.split()[:2] for line in read(path).splitlines()
                                               if line)}


class Cgroup:
    """A memory cgroup, or None where we may not have one (Cgroup.make)."""

    def __init__(self, path, version):
        self.path, self.version = path, version

    @classmethod
    def make(cls, name):
        for parent, version in cls.parents():
            path = os.path.join(parent, name)
            try:
                os.mkdir(path)
            except OSError:
                continue
            group = cls(path, version)
            try:
                group.memory()
                with open(os.path.join(path, "cgroup.procs"), "a"):
                    pass
                return group
            except (OSError, KeyError, ValueError):
                group.remove()
        return None

    @staticmethod
    def parents():
        """Where a memory cgroup could be made, best first."""
        own = {}
        for line in read("/proc/self/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            own[controllers] = path
        for line in read("/proc/self/mountinfo").splitlines():
            fields, _, tail = line.partition(" - ")
            mount, kind, options = fields.split()[4], tail.split()[0], tail.split()[-1].split(",")
            if kind == "cgroup" and "memory" in options:
                path = next((p for c, p in own.items() if "memory" in c.split(",")), "/")
                yield mount + path.rstrip("/"), 1
                yield mount, 1
            elif kind == "cgroup2":
                try:
                    if "memory" in read(os.path.join(mount, "cgroup.controllers")).split():
                        control = os.path.join(mount, "cgroup.subtree_control")
                        if "memory" not in read(control).split():
                            with open(control, "w") as file:
                                file.write("+memory")
                        yield mount, 2
                except OSError:
                    pass

    def memory(self):
        """Bytes of anonymous and shared memory charged to the group."""
        stat = stat_fields(os.path.join(self.path, "memory.stat"))
        if self.version == 1:
            return stat["total_rss"] + stat["total_shmem"]
        return int(read(os.path.join(self.path, "memory.current"))) - (stat["file"] - stat["shmem"])

    def limit(self, nbytes):
        """Bytes that its processes may have; swap does not count."""
        names = (("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if self.version == 1
                 else ("memory.max", "memory.swap.max"))
        for name, value in zip(names, (nbytes, nbytes if self.version == 1 else 0)):
            path = os.path.join(self.path, name)
            if os.path.exists(path):
                with open(path, "w") as file:
                    file.write(str(value))

    def enter(self):
        """This process goes in, and begins a session."""
        with open(os.path.join(self.path, "cgroup.procs"), "w") as file:
            file.write(str(os.getpid()))
        os.setsid()

    def killed(self):
        """Processes that the kernel killed for its limit."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        return next(int(line.split()[1]) for line in read(
            os.path.join(self.path, name)).splitlines() if line.startswith("oom_kill "))

    def remove(self):
        """Kills what is still in it and removes it. False: it is still there."""
        deadline = time.monotonic() + 10
        while True:
            try:
                os.rmdir(self.path)
                return True
            except FileNotFoundError:
                return True
            except OSError:
                if time.monotonic() > deadline:
                    return False
            try:
                for pid in read(os.path.join(self.path, "cgroup.procs")).split():
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass
            time.sleep(0.01)


def session_pids(session):
    """The processes of a session."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if int(read(f"/proc/{entry}/stat").rpartition(")")[2].split()[3]) == session:
                    yield int(entry)
            except (OSError, IndexError):
                pass


class Meter:
    """Samples memory from the start; sum_* give totals since the processes began."""

    def __init__(self, pid, cgroup, partition, own_netns):
        self.pid, self.cgroup, self.partition = pid, cgroup, partition
        self.peak, self.last = 0, 0
        self.samples = []
        self.pids, self.pids_at = [], 0.0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.method = {
            "memory": f"memory cgroup v{cgroup.version}" if cgroup
            else "private memory of the processes + partition in use",
            "sockets": "loopback of a network namespace" if own_netns
            else "loopback of this machine, other traffic included",
        }

    def start(self):
        self.partition_base = self.partition_used()
        self.thread.start()

    def stop(self):
        self.stopped.set()
        self.thread.join()

    def run(self):
        while not self.stopped.wait(PERIOD):
            try:
                self.last = self.memory()
            except OSError:
                continue
            self.samples = self.samples[-9:] + [self.last]
            self.peak = max(self.peak, self.last)

    def partition_used(self):
        if not self.partition:
            return 0
        stat = os.statvfs(self.partition)
        return (stat.f_blocks - stat.f_bfree) * stat.f_frsize

    def memory(self):
        if self.cgroup:
            return self.cgroup.memory()
        if time.monotonic() - self.pids_at > 1:
            self.pids, self.pids_at = list(session_pids(self.pid)), time.monotonic()
        private = 0
        for pid in self.pids:
            try:
                private += next(int(line.split()[1]) * 1024
                                for line in read(f"/proc/{pid}/status").splitlines()
                                if line.startswith("RssAnon:"))
            except (OSError, StopIteration):
                pass
        return private + max(0, self.partition_used() - self.partition_base)

    def baseline(self):
        """The median of the next ten samples; the peak counts from here on."""
        self.samples = []
        while len(self.samples) < 10 and self.thread.is_alive():
            time.sleep(PERIOD)
        self.peak = 0
        return sorted(self.samples)[len(self.samples) // 2]

    def totals(self):
        """CPU seconds, disk bytes read and written, loopback bytes; seconds of processors that a
        virtual machine's host gave to others."""
        ticks = disk_read = disk_written = 0
        for pid in session_pids(self.pid):
            try:
                ticks += sum(int(field) for field in read(f"/proc/{pid}/stat").rpartition(
                    ")")[2].split()[11:15])
                io = {line.split(":")[0]: int(line.split()[1])
                      for line in read(f"/proc/{pid}/io").splitlines()}
                disk_read += io["read_bytes"]
                disk_written += io["write_bytes"]
            except (OSError, IndexError):
                pass
        sockets = 0
        for line in read(f"/proc/{self.pid}/net/dev").splitlines():
            name, _, counters = line.partition(":")
            if name.strip() == "lo":
                sockets = int(counters.split()[0])
        stolen = int(read("/proc/stat").split(maxsplit=9)[8])
        return {"cpu": ticks / TICK, "disk_read": disk_read, "disk_written": disk_written,
                "sockets": sockets, "stolen": stolen / TICK}
