# SPDX-License-Identifier: Apache-2.0
"""The arbiter's books are the kernel's: what its pool says is used, and of what it is made,
against statfs and du; with live objects and clients at a stand-still, and after clients were
killed in the midst of what they did."""
import os
import signal

import pytest
from arbwire import DEDICATED
from daemon import wait_for
from fixture import ROOT, Tool
from test_daemon_arbiter import MIB, make_host  # noqa: F401  a fixture

pytestmark = pytest.mark.skipif(not ROOT, reason="needs a file system of its own")

KERNELS = ("objects", "evictable", "coming", "ghosts")  # of the pool, what the kernel counts
SETTINGS = "tick = 20ms\nwait = 10s"


class Scene:
    def __init__(self, host):
        self.host = host
        self.tools = []

    def tool(self, name):
        """A process with a store that reserves what it puts."""
        self.tools.append(Tool(self.host.place.path,
                               prefix=("env", f"SHMSTORE_SOCKET={self.host.daemon.socket}")))
        self.tools[-1]("open", name, "daemon=required", "arbitrate")
        return self.tools[-1]

    def process(self, name, reserved):
        """One made by hand, with so much of the partition reserved."""
        process = self.host.process(name)
        assert (process.op("TASK_BEGIN", task=1) == "OK" and
                process.op("BIND", tail="1", kind=DEDICATED, context=1) == "OK")
        assert process.op("RESERVE", context=1, pool=1, bytes=reserved, reservation=1) == "OK"
        return process

    def du(self):
        """Bytes of all that has a name, each inode once."""
        inodes = {}
        for directory, directories, files in os.walk(self.host.place.base):
            for name in (*directories, *files):
                try:
                    status = os.lstat(os.path.join(directory, name))
                except FileNotFoundError:
                    continue  # taken away meanwhile: then the sum is asked for again
                inodes[status.st_ino] = status.st_blocks * 512
        return sum(inodes.values())

    def end(self):
        for tool in self.tools:
            if tool.alive:
                tool.end()


@pytest.fixture
def scene(make_host):  # noqa: F811
    scene = Scene(make_host(SETTINGS))
    try:
        yield scene
    finally:
        scene.end()


def test_at_a_stand_still(scene):
    a, b = scene.tool("a"), scene.tool("b")
    a("put", "shared", 3 * MIB + 17, 1)
    a("put", "own", MIB, 2)
    b("adopt", "shared", a("handoff", "shared", 60000)[0])
    foreign = os.path.join(scene.host.place.base, "foreign")
    with open(foreign, "wb") as f:
        os.posix_fallocate(f.fileno(), 0, 5 * MIB)
    c = scene.host.client("c")
    c.task(1)
    c.reserved(1, 7 * MIB)
    deleted = open(os.path.join(c.page.directory, "ghost"), "w+b")
    os.posix_fallocate(deleted.fileno(), 0, MIB + 4096)
    os.unlink(deleted.name)
    lease = c.op("LEASE", pool=1, bytes=4096).bytes
    scene.host.wire.query("reconcile")
    assert c.op("FREED") == "OK"
    pool = scene.host.pool()
    used, du = scene.host.place.used(), scene.du()
    assert pool["drift"] == 5 * MIB and pool["ghosts"] == MIB + 4096
    assert sum(pool[part] for part in KERNELS) + pool["drift"] == used
    assert used - pool["ghosts"] == du
    assert pool["leased"] >= lease
    assert pool["used"] == used - pool["drift"] + pool["leased"] + 7 * MIB
    deleted.close()
    os.unlink(foreign)
    scene.host.wire.query("reconcile")
    assert c.op("FREED") == "OK"
    pool = scene.host.pool()
    assert pool["ghosts"] == pool["drift"] == 0
    assert sum(pool[part] for part in KERNELS) == scene.host.place.used() == scene.du()


def settled(scene, names):
    """All that is booked is what the kernel counts, and nobody but these is known."""
    def agrees():
        document, used = scene.host.document(), scene.host.place.used()
        pool = scene.host.pool()
        return ({task["store"] for task in document["tasks"]} <= names and pool["used"] -
                pool["leased"] == used == scene.du() and not pool["coming"])
    wait_for("the books are the kernel's", agrees)


@pytest.mark.parametrize("moment", ["reserve", "put", "adopt", "evict"])
def test_after_kills(scene, moment):
    lives = scene.tool("lives")
    lives("put", "stays", 2 * MIB, 1)
    waits = scene.host.client("waits")
    waits.task(1)
    for n in range(4):
        if moment == "put":
            tool = scene.tool(f"dies{n}")
            tool("put", "first", MIB, n)
            tool.send("put", "second", (8 + n) * MIB, n)
            tool.kill()
        elif moment == "adopt":
            tool = scene.tool(f"dies{n}")
            ticket = lives("handoff", "stays", 60000)[0]
            tool.send("adopt", "taken", ticket)
            tool.kill()
        else:
            process = scene.process(f"dies{n}", 40 * MIB)
            if moment == "evict":
                assert (process.op("serve") == "serves" and process.op("UNPIN", reservation=1) ==
                        "OK")
                os.kill(process.pid, signal.SIGSTOP)
            else:
                assert process.op("begin", op="RESERVE", context=1, pool=1, bytes=20 * MIB,
                                  reservation=2) == "begun"
            serial, reservation = waits.reserve(1, 40 * MIB)
            process.kill()
            assert waits.end(serial) == "OK"
            assert waits.op("RELEASE", reservation=reservation) == "OK"
    settled(scene, {"lives", "waits"})
