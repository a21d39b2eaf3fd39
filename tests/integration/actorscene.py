# SPDX-License-Identifier: Apache-2.0
"""Processes that are places for actors, and die when they are told to; and one that calls."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import ACTORD, wait_for

shmstore = pytest.importorskip("shmstore")


@pytest.fixture
def program():
    """The daemon of a file about actors."""
    return ACTORD


PLACE = """
import json, os, signal, sys, time
import ctypes; ctypes.CDLL(None).prctl(1, signal.SIGKILL)
import numpy as np
import shmstore

# what happens when: "save=self", "load=4711", "load=raise"
FATE = dict(word.split("=") for word in os.environ.get("FATE", "").split())

def meet(moment):
    fate = FATE.get(moment)
    if fate == "raise":
        raise RuntimeError(moment)
    if fate == "hang":
        time.sleep(3600)
    if fate:
        pid = os.getpid() if fate == "self" else int(fate)
        os.kill(pid, signal.SIGKILL)
        while (pid != os.getpid() and os.path.exists(f"/proc/{pid}") and
               open(f"/proc/{pid}/stat").read().split()[2] != "Z"):
            time.sleep(0.001)

class Log:
    '''Remembers what it was told; has a block of memory of which each call changes something.'''

    def __init__(self, size):
        self.block = np.zeros(size // 8, dtype=np.int64)
        self.seen = []

    def add(self, number, pause=0.0):
        time.sleep(max(pause, 0))
        if pause < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen.append(number)
        self.block[number] += 1
        return os.getpid(), len(self.seen)

    def fill(self, size):
        self.more = os.urandom(1 << 20) * (size >> 20)
        return os.getpid(), size

    def everything(self):
        return (os.getpid(), self.seen[:500], int(self.block.sum()),
                int(self.block[:len(self.seen)].max(initial=0)))

    def hang(self, path):
        open(path, "w").close()
        time.sleep(3600)

    def fail(self):
        raise KeyError("this one")

    def long(self, n):
        return b"x" * n

    def __getstate__(self):
        meet("save")
        return self.__dict__

    def __setstate__(self, state):
        meet("load")
        self.__dict__.update(state)

store = shmstore.Partition(sys.argv[1]).open("w%d" % os.getpid())
place = store.place(sys.argv[2], None if sys.argv[3] == "-" else int(sys.argv[3]))
for word in sys.argv[4:]:
    name, size, level, step, suspend, parent = word.split(",")
    place.begin(name, Log(int(size)), level=level, step=float(step), suspend=float(suspend),
                parent=parent or None, **json.loads(os.environ["OPTIONS"]))
print("ready", flush=True)
while True:
    try:
        place.serve_one(0.2)
    except shmstore.Error:
        if FATE.get("refused") != "wait":
            raise
        time.sleep(0.05)
    for name in [n for n in list(place.actors) if os.path.exists(f"{sys.argv[1]}/end-{n}")]:
        os.unlink(f"{sys.argv[1]}/end-{name}")
        place.end(name)
"""


def environment(daemon, **more):
    return {**os.environ, **daemon.env(), "PYTHONPATH": str(Path(shmstore.__file__).parent.parent),
            **more}


class Process:
    def __init__(self, daemon, partition, name, *actors, room="-", fate="", **options):
        self.popen = subprocess.Popen([sys.executable, "-c", PLACE, str(partition), name, str(room),
                                       *actors], stdout=subprocess.PIPE, text=True,
                                      env=environment(daemon, FATE=fate, OPTIONS=json.dumps(
                                          options)))
        self.pid = self.popen.pid
        line = self.popen.stdout.readline()
        assert line == "ready\n", line

    def kill(self):
        self.popen.kill()
        self.popen.wait()
        self.popen.stdout.close()


def log(name="log", size=16 << 20, level="low", step=10, suspend=10, parent=""):
    return f"{name},{size},{level},{step},{suspend},{parent}"


def saved(path):
    """Objects of actors' states that are left in a partition, leases included."""
    found = []
    for where, _, names in os.walk(path):
        found += [os.path.join(where, n) for n in names if "ckpt" in n or
                  (where.endswith("/handoff") and n)]
    return found


def again(actor, method, *args):
    """After a daemon's start: until the actor is known."""
    def try_it():
        try:
            return (actor.call(method, *args),)
        except shmstore.actors.ActorLost:
            return None
        except shmstore.Error as error:
            assert error.errno == 95, error
            return None
    return wait_for("the actor", try_it)[0]
