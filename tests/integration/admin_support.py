# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of shmstore-admin: the program itself, a partition of its own,
and processes that own stores.

SHMSTORE_BUILD names the build directory. Everything that is mounted or started here is taken away
again by the fixtures, also when a test fails.
"""
import json
import os
import pty
import select
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("SHMSTORE_BUILD", SOURCE / "build" / "release"))
ADMIN = BUILD / "tools" / "shmstore-admin"
ACTOR = BUILD / "tools" / "admin-actor"
ROOT = os.geteuid() == 0
NOBODY = 65534

needs_root = pytest.mark.skipif(not ROOT, reason="mounting needs root")


def environment(**more):
    """The environment of every run: nothing of the user's that changes what is printed, and
    no daemon of the host's."""
    env = {k: v for k, v in os.environ.items() if k == "SHMSTORE_PACK_MAX" or
           not k.startswith(("SHMSTORE_", "NO_COLOR"))}
    env.update(LC_ALL="C.UTF-8", TERM="xterm", SHMSTORE_SOCKET="/nonexistent/shmstored")
    env.update(more)
    return env


def pattern(size):
    return bytes((i * 7 + i // 251) & 255 for i in range(size))


class Result:
    """The result of a run of the program."""

    def __init__(self, process):
        self.code = process.returncode
        self.raw = process.stdout
        self.out = process.stdout.decode(errors="replace")
        self.err = process.stderr.decode(errors="replace")

    @property
    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return f"exit {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


class Admin:
    """shmstore-admin on one partition. env: what it and its actors get besides."""

    def __init__(self, path, prefix=(), env=None):
        self.path = str(path)
        self.prefix = list(prefix)
        self.env = env or {}

    def __call__(self, *args, stdin=b"", env=None, partition=True, code=0, timeout=60):
        command = [*self.prefix, str(ADMIN), *(["-p", self.path] if partition else []),
                   *map(str, args)]
        r = Result(subprocess.run(command, input=stdin, capture_output=True, timeout=timeout,
                                  check=False, env=environment(**self.env, **(env or {}))))
        assert code is None or r.code == code, r
        return r

    def json(self, *args, **kwargs):
        return self("--json", *args, **kwargs).json

    def as_nobody(self):
        """The same, run by an unprivileged user."""
        return Admin(self.path, ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
                                 "--clear-groups"], self.env)


class Actor:
    """A process that owns a store; see admin_actor.c."""

    def __init__(self, path, prefix=(), env=None):
        self.process = subprocess.Popen([*prefix, str(ACTOR), str(path)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env=environment(**(env or {})))
        self.pid = self.process.pid

    def try_(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode().strip()
        assert answer, f"the actor died of {words}: {self.process.wait()}"
        return answer

    def __call__(self, *words):
        answer = self.try_(*words)
        assert answer.startswith("ok"), (words, answer)
        return answer[3:]

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def mount_tmpfs(path, options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "shmstore-test", str(path)], check=True)


def unmount(path):
    """Takes away every mount at path. Lazily: a process that is being killed may still hold it."""
    while subprocess.run(["mountpoint", "-q", str(path)], check=False).returncode == 0:
        subprocess.run(["umount", "-l", str(path)], check=True)


def members(document):
    """The names of all members of a JSON document, however deep."""
    if isinstance(document, dict):
        for name, inner in document.items():
            yield name
            yield from members(inner)
    elif isinstance(document, list):
        for inner in document:
            yield from members(inner)


@pytest.fixture
def bare():
    """An empty directory on a tmpfs of its own (as root), else in /dev/shm. No partition yet."""
    if not ROOT:
        with tempfile.TemporaryDirectory(prefix="shmstore-admin-", dir="/dev/shm") as d:
            yield Path(d)
        return
    d = Path(tempfile.mkdtemp(prefix="shmstore-admin-"))
    try:
        mount_tmpfs(d, "size=64m,mode=0700")
        yield d
    finally:
        unmount(d)
        d.rmdir()


@pytest.fixture
def admin(bare):
    """shmstore-admin on a fresh partition."""
    a = Admin(bare)
    a("init")
    return a


@pytest.fixture
def actors():
    """Makes processes: actors(admin) is one. All are killed in the end."""
    made = []

    def make(admin, *open_words, prefix=()):
        made.append(Actor(admin.path, prefix, admin.env))
        if open_words:
            made[-1]("open", *open_words)
        return made[-1]

    yield make
    for a in made:
        a.kill()


class Terminal:
    """The program on a pseudo terminal."""

    def __init__(self, *args, env=None, rows=24, columns=100):
        self.master, slave = pty.openpty()
        import fcntl
        import struct
        import termios
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.slave = slave
        self.process = subprocess.Popen([str(ADMIN), *map(str, args)], stdin=slave, stdout=slave,
                                        stderr=slave,
                                        env=environment(**(env or {})), preexec_fn=own_terminal)
        self.seen = b""

    def read_until(self, what, timeout=120):
        """Reads until the bytes are seen (None: until the program ends)."""
        deadline = time.monotonic() + timeout
        while what is None or what not in self.seen:
            ended = self.process.poll() is not None
            if select.select([self.master], [], [], 0 if ended else 0.05)[0]:
                self.seen += os.read(self.master, 65536)
            elif ended:
                assert what is None, f"ended without {what!r}: {self.seen!r}"
                break
            assert time.monotonic() < deadline, f"{what!r} did not come: {self.seen!r}"
        return self.seen

    def type(self, keys):
        os.write(self.master, keys)

    def settings(self):
        import termios
        return termios.tcgetattr(self.slave)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal():
    made = []

    def make(*args, **kwargs):
        made.append(Terminal(*args, **kwargs))
        return made[-1]

    yield make
    for t in made:
        t.close()
