# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of admission: a made-up host of 128 MiB under a real daemon, requests to its
gate, and a process that asks by the package. The fixtures are known to all tests (conftest.py)."""
import os
import subprocess
import sys

import pytest
from daemon import wait_for
from fixture import BUILD, SANITIZED
from test_daemon_pressure import Made, gate, text

MIB, PAGE = 1 << 20, os.sysconf("SC_PAGE_SIZE")
TRY, UNTIL, WAIT = 1, 2, 3
NEVER, LOW, MED, HIGH, ALWAYS, AUTO = range(6)
IN, REFUSED, TIMEDOUT, TOOBIG = 1, 2, 3, 4
PROGRESS, FITS, OFF, GATE, FULL, MORE_THAN_ALL = 1, 2, 3, 4, 5, 6
RETRIABLE = 1
MINE = 2**32 - 1
ECANCELED, EPERM, ENOENT, EMFILE, EINVAL = -125, -1, -2, -24, -22
STATM = b"%010d %010d 0000000000 0 0 0 0\n"
MEMINFO = ("MemTotal: 131072 kB\nMemFree: 0 kB\nMemAvailable: {} kB\nBuffers: 0 kB\nCached: 0 "
           "kB\nShmem: 0 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")


class Small(Made):
    """A host of 128 MiB. Its gate is at 115.2 MiB, and opens at 102.4."""

    def available(self, mib):
        new = self.proc / "new"
        new.write_text(MEMINFO.format(int(mib * 1024)))
        os.rename(new, self.proc / "meminfo")

    def private(self, pid, size):
        """In place: the daemon keeps the file open."""
        directory = self.proc / str(pid)
        directory.mkdir(exist_ok=True)
        fd = os.open(directory / "statm", os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(fd, STATM % (2 * size // PAGE, size // PAGE), 0)
        os.close(fd)


@pytest.fixture
def small(tmp_path):
    host = Small(tmp_path)
    host.available(128)
    return host


@pytest.fixture
def gated(make_daemon, place, small):
    def make(more="", http=False, **keys):
        return make_daemon(config=f'{text(**small.keys, **keys)}\n{more}\npartition "{place.path}" '
                                  f'{{ create = yes }}\n', http=http)

    return make


def send(wire, form=TRY, level=NEVER, declared=0, ms=0, name=None, uid=MINE, flags=0, parent=0):
    tail = "\n".join(name).encode() if name else b""
    return wire.send("TASK_ADMIT", form, level, flags, uid, 0, declared, ms, parent, tail=tail)


class Answer:
    def __init__(self, message):
        assert message.name == "TASK_ADMITTED", message
        self.task, self.reserve, self.waited_ms, self.outcome, self.reason = message.values
        assert (self.task != 0) == (self.outcome == IN and self.reason != OFF)

    @property
    def why(self):
        return self.outcome, self.reason


def hear(wire, serial):
    """The answer to that request, also where it came before."""
    for message in wire.unasked:
        if message.serial == serial:
            wire.unasked.remove(message)
            return Answer(message)
    return Answer(wire.reply(serial))


def ask(wire, **how):
    return hear(wire, send(wire, **how))


def done(wire, task):
    answer = wire.call("TASK_DONE", task)
    assert answer.name == "DONE", answer


def looked(daemon, condition=lambda g: True):
    """After two more looks at the host, and when it is as wanted."""
    with daemon.wire() as wire:
        def samples():
            return wire.query("memory")["memory"]["samples"]

        n = samples()
        wait_for("two looks", lambda: samples() >= n + 2)
    return wait_for("that state", lambda: (lambda g: g if condition(g) else None)(gate(daemon)))


def python(code, *words, **options):
    return subprocess.Popen([sys.executable, "-c", "import ctypes, signal; "
                                                   "ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n" +
                                                   code, *map(str, words)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


LIBRARY = """
import os, sys, time
import shmstore
# Whoever runs the tests in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
from shmstore.preempting import Preempted
from shmstore.profiling import NotAdmitted
store = shmstore.Partition(os.environ["PLACE"]).open("w%d" % os.getpid())
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    except (shmstore.Error, shmstore.ClosedError, NotAdmitted, Preempted, ValueError) as e:
        print(type(e).__name__, getattr(e, "reason", None) or getattr(e, "errno", None), flush=True)
"""


class Library:
    """A process that uses the package: one expression at a time."""

    def __init__(self, place, socket):
        env = {**os.environ, "PLACE": str(place.path), "SHMSTORE_SOCKET": str(socket),
               "PYTHONPATH": str(BUILD / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = python(LIBRARY, env=env)

    def begin(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def end(self):
        return self.process.stdout.readline().strip()

    def __call__(self, text):
        self.begin(text)
        return self.end()

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def library(place):
    if SANITIZED:
        pytest.skip("a sanitizer is not preloaded here")
    made = []

    def make(socket="/nonexistent/shmstored"):
        made.append(Library(place, socket))
        return made[-1]

    yield make
    for one in made:
        one.close()
