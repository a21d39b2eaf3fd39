# SPDX-License-Identifier: Apache-2.0
"""A shared partition, the daemon over it, and three users (users.py), one of whom can lie
in a store of her own making.

A user is a storetool process with that uid, or this process with its effective uid, for what needs
no library: files, and raw messages on the daemon's socket.
"""
import contextlib
import errno
import fcntl
import os
import struct
import subprocess
import time

import pytest
from daemon import ADMIN, Daemon
from fixture import Place, Tool
from users import ALICE, BOB, EVE, being

SIZE = 1 << 20
RULE = f'handoff "alice-bob" {{ from = {{ "uid:{ALICE}" }}\n to = {{ "uid:{BOB}" }} }}\n'


def refused(wire, name, *values, tail=b""):
    """The errno of a refusal, which the answer must be."""
    message = wire.call(name, *values, tail=os.fsencode(tail))
    assert message.name == "REFUSED", message
    return -message.values[0]


class Forged:
    """A store of EVE's, live by the lock, whose page says what it is told to."""

    def __init__(self, partition, name, pid=None, uid=EVE):
        self.path = os.path.join(partition, "stores", name)
        self.below = f"stores/{name}"
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = bytes.fromhex(file.read().strip().replace("-", ""))
        pid = pid or os.getpid()
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            start = int(file.read().rsplit(")", 1)[1].split()[19])
        page = struct.pack("=8sIIQIIQq16s256s128s256s", b"SHMSTORE", 1, 4096, 0, pid, uid, start,
                           time.time_ns(), boot, name.encode(), b"forged", b"").ljust(4096, b"\0")
        with being(EVE):
            os.mkdir(self.path, 0o700)
            for part in ("objects", "recycle", "handoff"):
                os.mkdir(os.path.join(self.path, part), 0o700)
            self.fd = os.open(os.path.join(self.path, ".new"),
                              os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            os.write(self.fd, page)
            fcntl.flock(self.fd, fcntl.LOCK_EX)
            os.rename(os.path.join(self.path, ".new"), os.path.join(self.path, ".store"))

    def lease(self, minutes=1):
        """The path of a lease that is not there yet."""
        expiry = int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000) + minutes * 60000
        return os.path.join(self.path, "handoff", f"{expiry}-0123456789abcdef")

    def close(self):
        os.close(self.fd)


# -- the scene


class Scene:
    """A shared partition, the daemon over it, and its users."""

    def __init__(self):
        self.place = Place(size="256m")
        self.path = self.place.path
        self.daemon = Daemon(self.path, http=False, start=False)
        self.open = []

    def start(self, limits="", rules=RULE):
        subprocess.run([ADMIN, "-p", self.path, "init", "--shared"], check=True,
                       capture_output=True)
        self.daemon.write_config(f'partition "{self.path}" {{\n{limits}\n}}\n{rules}')
        self.daemon.start()

    def kill(self):
        self.daemon.kill()

    def restart(self):
        self.daemon.restart()

    def tool(self, uid, store=None, *options):
        """A storetool of that user."""
        tool = Tool(self.path, ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"])
        self.open += [tool.finish, tool.process.kill]
        if store:
            tool("open", store, *options)
        return tool

    def wire(self, uid):
        """A connection of that user."""
        with being(uid):
            wire = self.daemon.wire()
        self.open.append(wire.close)
        return wire

    def forged(self, name, **options):
        forged = Forged(self.path, name, **options)
        self.open.append(forged.close)
        return forged

    def register(self, uid, below):
        """REGISTER by a connection of that user: its errno, or the connection."""
        with open(os.path.join(self.path, ".shmstore"), encoding="ascii") as file:
            uuid = file.read().split("\n")[1].split()[1]
        wire = self.wire(uid)
        message = wire.register(uuid, below)
        return wire if message.name == "REGISTERED" else -message.values[0]

    def inbox(self, uid):
        try:
            return sorted(os.listdir(os.path.join(self.path, "inbox", str(uid), "handoff")))
        except FileNotFoundError:
            return []

    def alive(self):
        """The daemon runs and answers."""
        assert self.daemon.process.poll() is None, self.daemon.log()
        self.wire(0).query("workers")

    def stop(self):
        for end in reversed(self.open):
            with contextlib.suppress(OSError):
                end()
        try:
            self.daemon.close()
        finally:
            self.place.remove()


@pytest.fixture
def scene(monkeypatch):
    scene = Scene()
    monkeypatch.setenv("SHMSTORE_SOCKET", scene.daemon.socket)
    try:
        yield scene
    finally:
        scene.stop()


def ticket_path(ticket):
    return ticket.split(":", 3)[3]


def denied(fn, *args, errors=(errno.EACCES, errno.EPERM), **options):
    """fn fails for want of a right."""
    with pytest.raises(OSError) as caught:
        fn(*args, **options)
    assert caught.value.errno in errors, caught.value
