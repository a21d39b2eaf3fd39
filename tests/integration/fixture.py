# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of several processes: a place for a partition, and
processes that own stores there.

A Place is a tmpfs of its own where root runs the tests (so that its books are ours alone, and its
size and huge= option can be chosen), else a directory in /dev/shm. A Tool is a storetool process:
commands in, answers out, kill -9 at any time. Everything is taken away again when the test ends,
however it ends. SHMSTORE_BUILD names the build directory.
"""
import contextlib
import errno
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("SHMSTORE_BUILD", SOURCE / "build" / "release"))
STORETOOL = BUILD / "tests" / "storetool"
# Debian's Python cannot load the package of a build with sanitizers: their library would have to
# be loaded before all others.
SANITIZED = ((BUILD / "build.ninja").exists() and "fsanitize" in (BUILD / "build.ninja").read_text(
    encoding="utf-8", errors="replace"))
ROOT = os.geteuid() == 0
BOOKS = ("used", "linked", "ghosts", "pool", "inflight", "foreign", "residual", "stores", "objects",
         "leases")
NOBODY = 65534
USAGE = ("linked", "pss", "uss", "mapped", "n_objects", "n_views")


class Place:
    """A file system, or at least a directory, for one partition."""

    def __init__(self, size="512m", huge="never"):
        self.base = tempfile.mkdtemp(prefix="shmstore-test-", dir="/dev/shm")
        self.mounted = ROOT and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755,huge={huge}", "shmstore-test",
             self.base],
            capture_output=True, check=False).returncode == 0
        self.path = os.path.join(self.base, "partition")

    def remove(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.base], check=True)
        shutil.rmtree(self.base, ignore_errors=True)

    def used(self):
        fs = os.statvfs(self.base)
        return (fs.f_blocks - fs.f_bfree) * fs.f_frsize

    def names(self, below=""):
        return sorted(os.listdir(os.path.join(self.path, below)))


class ToolError(OSError):
    """A command's refusal."""


class Tool:
    """A storetool process. Tool("put", …) returns the answer's words; a refusal is a
    ToolError with its errno."""

    def __init__(self, path, prefix=()):
        self.process = subprocess.Popen([*prefix, str(STORETOOL), path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, bufsize=0)
        self.pid = self.process.pid
        self.asked = 0
        self.buffer = b""
        self.pending = 1
        self.receive()

    def send(self, *words):
        """Asks, and does not wait: receive() is owed."""
        self.process.stdin.write((" ".join(str(word) for word in words) + "\n").encode())
        self.pending += 1

    def receive(self, timeout=120):
        deadline = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [],
                                        max(0.0, deadline - time.monotonic()))
            assert ready, f"storetool {self.pid}: no answer within {timeout} s"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"storetool {self.pid} died: {self.process.wait()}"
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        self.pending -= 1
        words = line.decode().split(" ")
        if words[0] != "0":
            raise ToolError(-int(words[0]), " ".join(words[1:]))
        return words[1:]

    def __call__(self, *words):
        self.send(*words)
        return self.receive()

    def code(self, *words):
        """0 or the errno."""
        try:
            self(*words)
        except ToolError as error:
            return error.errno
        return 0

    def same(self, key, size, seed):
        return self("get", key, size, seed) == ["same"]

    def list(self):
        return sorted(word for word in self("list") if word)

    def books(self):
        return dict(zip(BOOKS, map(int, self("books"))))

    def usage(self):
        return dict(zip(USAGE, map(int, self("usage"))))

    def kill(self):
        """kill -9; returns when the process is gone."""
        self.process.kill()
        self.finish()

    def end(self):
        """Lets it close its store and views, and expects that all went well, a
        sanitizer's checks included."""
        self.process.stdin.close()
        status = self.process.wait(60)
        self.finish()
        assert status == 0, f"storetool {self.pid} ended with {status}"

    def finish(self):
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if not stream.closed:
                stream.close()

    @property
    def alive(self):
        return self.process.poll() is None


class Cluster:
    """A place and the processes on it."""

    def __init__(self, place):
        self.place = place
        self.tools = []
        self.children = []

    def tool(self, store=None, *options, prefix=()):
        """A new process; with a store, it opens that."""
        tool = Tool(self.place.path, prefix)
        self.tools.append(tool)
        if store is not None:
            tool("open", store, *options)
        return tool

    def fork(self, tool):
        pid = int(tool("fork")[0])
        self.children.append(pid)
        return pid

    def kill_child(self, pid):
        os.kill(pid, signal.SIGKILL)
        self.children.remove(pid)
        deadline = time.monotonic() + 10
        while True:
            try:
                os.kill(pid, 0)
                with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                        return
            except (ProcessLookupError, FileNotFoundError):
                return
            assert time.monotonic() < deadline

    def stop(self):
        """Takes away what runs, without asking whether it is well."""
        for pid in self.children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for tool in self.tools:
            if tool.alive:
                tool.process.kill()
            tool.finish()

    def books_close(self):
        """The df equation, now."""
        asker = Tool(self.place.path)
        try:
            books = asker.books()
        finally:
            asker.end()
        if self.place.mounted:
            assert books["residual"] == 0, books
        return books

    def remove(self):
        self.stop()
        self.place.remove()

    def nothing_left(self):
        """Ends all processes well; after one gc the partition must be empty
        and its books must close."""
        for tool in self.tools:
            if tool.alive:
                tool.end()
        asker = Tool(self.place.path)
        try:
            deadline = time.monotonic() + 20
            while True:
                asker("gc")
                books = asker.books()
                # A lease on a packed object keeps its store's directory until it ends.
                if not books["stores"] or time.monotonic() >= deadline:
                    break
                time.sleep(0.05)
        finally:
            asker.end()
        left = {name: value for name, value in books.items()
                if name not in ("used", "linked", "foreign") and value}
        if not self.place.mounted:
            for name in ("residual", "ghosts", "inflight"):
                left.pop(name, None)
        assert not left, left
        assert self.place.names("stores") == [] and self.place.names("peers") == []
        if self.place.mounted:
            assert books["used"] <= 16384 and self.place.used() == books["used"], books


@contextlib.contextmanager
def clusters(kind):
    """make(**options): a cluster of that kind. In the end nothing may be left in any of them, and
    they are removed either way."""
    made = []

    def make(**options):
        made.append(kind(**options))
        return made[-1]

    try:
        yield make
        for cluster in made:
            cluster.nothing_left()
    finally:
        for cluster in made:
            cluster.remove()


def code(name):
    return getattr(errno, name)
