# SPDX-License-Identifier: Apache-2.0
"""A client of the memory arbiter, byte by byte: a store's page made by
hand, and messages of wire.h.

Run as a program it is a process under a test's command: arbwire.py SOCKET PARTITION UUID NAME, then
one JSON list a line ([operation, {fields}]), answered by one JSON line each; "send" and "next"
split a call that is withheld.
"""
import fcntl
import itertools
import json
import mmap
import os
import shutil
import struct
import subprocess
import sys
import threading
import time

from daemon import Wire

OPERATIONS = ("POOL_CREATE POOL_RESIZE POOL_REMOVE TASK_BEGIN TASK_END BIND UNBIND RESERVE RELEASE "
              "RESIZE SEAL PIN UNPIN SPILLED READY RETRY_BEGIN "
              "RETRY_END WAIT_ON WAIT_OFF SPILL_BEGIN SPILL_END CANCEL INJECT FREED LEASE "
              "LEASE_CALLED SERVE EVICTED STATE STATS").split()
OPS = {name: number for number, name in enumerate(OPERATIONS, 1)}
OUTCOMES = (
    "OK PENDING RETRY SPLIT NOMEM TOOBIG AGAIN TIMEDOUT CANCELED REMOVED DOWN ERROR "
    "INVALID".split())
NONBLOCK, SPILL, RELEASED, ALL, RESET, QUIET, DROP = 1, 2, 4, 8, 16, 1 << 8, 1 << 9
DEDICATED, HELPER, SERVICE = 1, 2, 3
ARRIVAL = -(1 << 63)
PAGE_SIZE, LEDGER, LEASE = 4096, 2048, 3200
HEAD = struct.Struct("<8sIIQIIQq16s256s128s256s")
RESERVED_BYTES = LEDGER + 8 * 19  # struct shmstore_counters


class Page:
    """A store's directory and page, as an owner has them: its lock is held until close()."""

    def __init__(self, partition, name):
        self.directory = os.path.join(partition, "stores", name)
        self.fd = self.make(os.path.join(self.directory, ".store"))
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        with open("/proc/self/stat", encoding="ascii") as f:
            start_time = int(f.read().rpartition(")")[2].split()[19])
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            boot = bytes.fromhex(f.read().strip().replace("-", ""))
        head = HEAD.pack(b"SHMSTORE", 1, PAGE_SIZE, 0, os.getpid(), os.getuid(), start_time,
                         time.time_ns(), boot, name.encode(), b"", b"")
        os.pwrite(self.fd, head.ljust(PAGE_SIZE, b"\0"), 0)
        self.map = mmap.mmap(self.fd, PAGE_SIZE)
        self.words = memoryview(self.map).cast("Q")

    def make(self, path):
        """The daemon takes away directories without a page: one that it found between our
        two steps is made again."""
        while True:
            os.makedirs(self.directory, exist_ok=True)
            try:
                return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except FileNotFoundError:
                pass

    def get(self, offset):
        return self.words[offset // 8]

    def set(self, offset, value):
        self.words[offset // 8] = value

    def lease(self, pool=1):
        """epoch, granted, wanted, max, charged, settled."""
        at = (LEASE + 128 * (pool - 1)) // 8
        return (*self.words[at:at + 4], *self.words[at + 8:at + 10])

    def charge(self, n, pool=1):
        at = LEASE + 128 * (pool - 1)
        self.set(at + 64, self.get(at + 64) + n)
        if self.get(at + 64) <= self.get(at + 8):
            return True
        self.set(at + 64, self.get(at + 64) - n)
        return False

    def uncharge(self, n, pool=1):
        at = LEASE + 128 * (pool - 1)
        self.set(at + 64, self.get(at + 64) - n)

    def settle(self, n, pool=1):
        at = LEASE + 128 * (pool - 1)
        self.set(at + 72, self.get(at + 72) + n)

    def write(self, name, size):
        """Takes memory, as a writer does: the ledger says so."""
        os.makedirs(os.path.dirname(os.path.join(self.directory, name)), exist_ok=True)
        fd = os.open(os.path.join(self.directory, name), os.O_RDWR | os.O_CREAT, 0o600)
        os.posix_fallocate(fd, 0, size)
        os.close(fd)
        self.set(RESERVED_BYTES, self.get(RESERVED_BYTES) + size)

    def written(self, size):
        self.set(RESERVED_BYTES, self.get(RESERVED_BYTES) - size)

    def remove(self, name):
        os.unlink(os.path.join(self.directory, name))

    def close(self, remove=True):
        self.words.release()
        self.map.close()
        os.close(self.fd)
        if remove:
            shutil.rmtree(self.directory, ignore_errors=True)


class Outcome:
    """An ARBED: .name is its outcome."""

    def __init__(self, message):
        self.message = message
        if message.name == "REFUSED":
            self.name, self.error, self.why = "REFUSED", message.values[0], message.text
            return
        assert message.name == "ARBED", message
        outcome, self.context, self.reservation, reserved, self.bytes = message.values
        assert reserved == 0
        self.name = OUTCOMES[outcome]
        self.why = message.text
        self.error = 0

    @property
    def json(self):
        return json.loads(self.why)

    def __eq__(self, name):
        return self.name == name

    def __repr__(self):
        return f"{self.name}({self.why})"


class Client(Wire):
    """A registered store with an arbiter's client on it. op("RESERVE", context=1, …) waits;
    begin() and end() do it in two."""

    def __init__(self, socket, partition, uuid, name, timeout=120.0):
        self.page = Page(partition, name)
        super().__init__(socket, timeout=timeout)
        answer = self.register(uuid, f"stores/{name}")
        assert answer.name == "REGISTERED", answer
        self.id = answer.values[0]
        self.reservations = itertools.count(1)
        self.late = {}  # what came for others

    def begin(self, op, tail="", *, kind=0, flags=0, context=0, task=0, pool=0, other=0,
              reservation=0, extra_kib=0, bytes=0, value=0,
              timeout_ms=0):
        number = OPS[op] if isinstance(op, str) else op
        return self.send("ARB", number, kind, flags, context, task, pool, other, reservation,
                         extra_kib, bytes, value, timeout_ms, tail=tail.encode())

    def end(self, serial):
        while serial not in self.late:
            message = self.receive()
            self.late[message.serial] = message
        return Outcome(self.late.pop(serial))

    def op(self, op, tail="", **fields):
        return self.end(self.begin(op, tail, **fields))

    def is_pending(self, serial):
        """Nothing has come for it, though all that was sent before this has been answered."""
        ping = self.send("PING", 1)
        while ping not in self.late:
            message = self.receive()
            self.late[message.serial] = message
        del self.late[ping]
        return serial not in self.late

    def serve(self, channel):
        """channel is the one for this client's up-calls from now on."""
        return OUTCOMES[channel.call("ARB", OPS["SERVE"], 0, 0, 0, 0, 0, 0, self.id, 0, 0, 0,
                                     0).values[0]]

    def task(self, task, context=None, priority=ARRIVAL):
        """Begins a task with a context dedicated to it."""
        assert self.op("TASK_BEGIN", f"task{task}", task=task, value=priority) == "OK"
        assert self.op("BIND", str(task), kind=DEDICATED, context=context or task) == "OK"

    def reserve(self, context, size, **fields):
        fields.setdefault("reservation", next(self.reservations))
        return self.begin("RESERVE", context=context, pool=fields.pop("pool", 1), bytes=size,
                          **fields), fields["reservation"]

    def reserved(self, context, size, **fields):
        """The reservation's id; it has to be had at once."""
        serial, reservation = self.reserve(context, size, **fields)
        outcome = self.end(serial)
        assert outcome == "OK", outcome
        return reservation

    def state(self, context):
        return self.op("STATE", context=context).json["state"]

    def pool(self, pool=1):
        return self.op("STATS", pool=pool).json

    def close(self, remove=True):
        super().close()
        self.page.close(remove)


class Process:
    """This file as a program, with the client in it."""

    def __init__(self, socket, partition, uuid, name):
        self.process = subprocess.Popen([sys.executable, __file__, socket, partition, uuid, name],
                                        stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid
        assert self.next() == "ready"

    def send(self, op, /, **fields):
        self.process.stdin.write(json.dumps([op, fields]) + "\n")

    def next(self):
        return json.loads(self.process.stdout.readline())

    def op(self, op, /, **fields):
        self.send(op, **fields)
        return self.next()

    def kill(self):
        self.process.kill()
        self.process.wait(30)

    def close(self):
        if self.process.poll() is None:
            self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


def serve_calls(client):
    """A thread with the up-call channel: what may go is released, and said to be."""
    channel = Wire(sys.argv[1], timeout=None)
    assert client.serve(channel) == "OK"

    def run():
        while True:
            message = channel.unasked.pop(0) if channel.unasked else channel.receive()
            kind, call, _, reservation = message.values[:4]
            if kind == 1:
                releases = client.begin("RELEASE", reservation=reservation, flags=QUIET)
                assert releases
                assert OUTCOMES[channel.call("ARB", OPS["EVICTED"], 0, 0, 0, 0, 0, call, 0, 0, 0, 0,
                                             0).values[0]] in ("OK", "AGAIN")

    threading.Thread(target=run, daemon=True).start()


def flood(client):
    """Asks and asks and never reads an answer, until the daemon has had enough."""
    client.socket.setblocking(False)
    while True:
        try:
            client.send("PING", 1)
        except BlockingIOError:
            client.socket.setblocking(True)
        except OSError:
            return


def main():
    client = Client(*sys.argv[1:])
    serials = []
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        op, fields = json.loads(line)
        if op == "begin":
            serials.append(client.begin(**fields))
            print(json.dumps("begun"), flush=True)
        elif op == "end":
            print(json.dumps(client.end(serials.pop(0)).name), flush=True)
        elif op == "serve":
            serve_calls(client)
            print(json.dumps("serves"), flush=True)
        elif op == "flood":
            flood(client)
            print(json.dumps("dropped"), flush=True)
        elif op == "charge":
            print(json.dumps(client.page.charge(**fields)), flush=True)
        elif op == "write":
            client.page.write(**fields)
            print(json.dumps("written"), flush=True)
        else:
            print(json.dumps(client.op(op, **fields).name), flush=True)


if __name__ == "__main__":
    main()
