# SPDX-License-Identifier: Apache-2.0
"""A real shmstored under a test's command, and a client that speaks its protocol byte by byte.

A Daemon has a directory of its own for socket, configuration and log, and a free port for HTTP; it
is ready when it says so to a notify socket, as to systemd. Its processes end with it.
Nothing here touches /run/shmstored.
"""
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from fixture import BUILD

SHMSTORED = BUILD / "shmstored" / "shmstored"
ACTORD = BUILD / "shmstored" / "shmstore-actord"
ADMIN = BUILD / "tools" / "shmstore-admin"

# wire.h
MAGIC = 0x52444853
HEADER = struct.Struct("<IHHIIQ")
FROM_CLIENT = {"HELLO": 1, "PING": 2, "REGISTER": 3, "GRANT": 4, "CANCEL": 5, "BROKER": 6, "BYE": 7,
               "QUERY": 8, "WATCH": 9, "SET": 10,
               "REAP": 11, "ARB": 12, "ARB_ADMIN": 13, "PROFILE": 32, "PROFILE_ADMIN": 33,
               "TASK_ADMIT": 34, "TASK_DONE": 35, "TASK_RUNS": 36,
               "STAGE_QUERY": 48, "STAGE_BEGIN": 49, "STAGE_END": 50,
               "ACTOR_PLACE": 56, "ACTOR_BORN": 57, "ACTOR_NEXT": 58, "ACTOR_DONE": 59,
               "ACTOR_CALL": 60, "ACTOR_MOVE": 61}
FROM_DAEMON = {64: "WELCOME", 65: "PONG", 66: "REGISTERED", 67: "GRANTED", 68: "REFUSED",
               69: "DATA", 70: "EVENT", 71: "ASK", 72: "ERROR",
               73: "BROKERED", 74: "DONE", 75: "ARBED", 76: "ARB_CALL", 96: "PROFILED",
               97: "TASK_ADMITTED", 98: "TASK_PREEMPT", 112: "STAGED",
               120: "ACTOR_ORDER", 121: "ACTOR_ANSWER"}
BODIES = {"HELLO": "<IIQ", "PING": "<Q", "REGISTER": "<16sQ", "GRANT": "<QQQII", "CANCEL": "<Q",
          "BROKER": "<II", "BYE": "<Q", "QUERY": "<II",
          "WATCH": "<Q", "SET": "<Q", "REAP": "<Q", "WELCOME": "<IIQQQ", "PONG": "<Q",
          "REGISTERED": "<QQ", "GRANTED": "<QQ", "REFUSED": "<iIQQ",
          "DATA": "<II", "EVENT": "<Q", "ASK": "<Q", "ERROR": "<iI", "BROKERED": "<Q", "DONE": "<Q",
          "ARB": "<HHIIIIIIIQqQ", "ARB_ADMIN": "<HHIQqQQ",
          "ARBED": "<iIIIQ", "ARB_CALL": "<IIIIQQII", "PROFILE": "<HHIIIQQQ",
          "PROFILE_ADMIN": "<IIQQ", "PROFILED": "<QQQQ", "TASK_ADMIT": "<HHIIIQQQ",
          "TASK_DONE": "<Q",
          "TASK_ADMITTED": "<QQQII", "TASK_RUNS": "<QQQIIII", "TASK_PREEMPT": "<QQQQQII",
          "STAGE_QUERY": "<IIHHIQQQII", "STAGE_BEGIN": "<IIQ", "STAGE_END": "<Q",
          "STAGED": "<IIIIQQQQQ",
          "ACTOR_PLACE": "<QII", "ACTOR_BORN": "<QQQIHH", "ACTOR_NEXT": "<Q",
          "ACTOR_DONE": "<QQQII", "ACTOR_CALL": "<II", "ACTOR_MOVE": "<Q",
          "ACTOR_ORDER": "<QQQQQIHHII", "ACTOR_ANSWER": "<II"}
QUERIES = {"status": 1, "workers": 2, "quota": 3, "holders": 4, "events": 5, "history": 6,
           "reconcile": 7, "arbiter": 8, "arb_log": 9, "memory": 16,
           "gate": 17, "stages": 32}
LIMITS = {0: None, 1: "partition", 2: "user", 3: "label", 4: "store"}


def wait_for(what, condition, timeout=120.0):
    """
    Polls until condition() is true and returns that; fails, saying what, at the deadline. Less
    often after a while: what is waited for may be a survey, which takes idle time only.
    """
    begun = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - begun
        assert waited < timeout, f"{what}: not within {timeout} s"
        time.sleep(0.005 if waited < 1 else 0.05)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Message:
    """One packet from the daemon: its name, serial, the body's values, the tail's bytes."""

    def __init__(self, packet):
        magic, number, flags, size, tail, self.serial = HEADER.unpack_from(packet)
        assert magic == MAGIC and flags == 0 and size == len(packet), packet[:64]
        self.name = FROM_DAEMON[number]
        body = struct.Struct(BODIES[self.name])
        assert len(packet) == HEADER.size + body.size + tail
        self.values = body.unpack_from(packet, HEADER.size)
        self.tail = packet[HEADER.size + body.size:]

    @property
    def text(self):
        return self.tail.decode()

    def __repr__(self):
        return f"{self.name}{self.values} serial={self.serial} {self.tail[:200]!r}"


class Closed(Exception):
    """The daemon ended the connection; reason: what its ERROR said, if it sent one."""

    def __init__(self, reason=None, error=0):
        super().__init__(reason)
        self.reason = reason
        self.error = error


def pack(name, *values, tail=b"", serial=1):
    body = struct.pack(BODIES[name], *values)
    size = HEADER.size + len(body) + len(tail)
    return HEADER.pack(MAGIC, FROM_CLIENT[name], 0, size, len(tail), serial) + body + tail


class Wire:
    """A connection. Wire(path) says HELLO; hello=False leaves that to the test."""

    def __init__(self, path, hello=True, timeout=120.0):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout)
        self.socket.connect(path)
        self.serials = itertools.count(1)
        self.unasked = []
        self.welcome = None
        if hello:
            self.welcome = self.call("HELLO", 1, 1, 0)
            assert self.welcome.name == "WELCOME", self.welcome

    def send(self, name, *values, tail=b""):
        serial = next(self.serials)
        self.socket.send(pack(name, *values, tail=tail, serial=serial))
        return serial

    def receive(self):
        """The next message; an ERROR, or the end, is a Closed."""
        try:
            packet = self.socket.recv(1 << 16)
        except (ConnectionResetError, BrokenPipeError):
            packet = b""
        if not packet:
            raise Closed()
        message = Message(packet)
        if message.name == "ERROR":
            raise Closed(message.text, message.values[0])
        return message

    def reply(self, serial):
        """The answer to that request; what comes unasked meanwhile is kept in .unasked."""
        while True:
            message = self.receive()
            if message.serial == serial:
                return message
            self.unasked.append(message)

    def call(self, name, *values, tail=b""):
        return self.reply(self.send(name, *values, tail=tail))

    def ping(self, cookie=4711):
        answer = self.call("PING", cookie)
        assert answer.name == "PONG" and answer.values == (cookie,), answer

    def register(self, uuid, below):
        return self.call("REGISTER", bytes.fromhex(uuid.replace("-", "")), 0,
                         tail=os.fsencode(below))

    def grant(self, need, ahead=0, wait_ms=None):
        return self.call("GRANT", need, ahead, wait_ms or 0, 0 if wait_ms is None else 1, 0)

    def query(self, what, partition=""):
        serial = self.send("QUERY", QUERIES[what], 0, tail=os.fsencode(partition))
        text = b""
        while True:
            message = self.reply(serial)
            assert message.name == "DATA", message
            text += message.tail
            if not message.values[0]:
                return json.loads(text)

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# Puts descriptors where a service manager puts those that it hands over
# (sd_listen_fds(3)), and becomes the program.
HAND_OVER = """
import fcntl, os, sys
n = int(sys.argv[1])
high = [fcntl.fcntl(int(fd), fcntl.F_DUPFD_CLOEXEC, 64) for fd in sys.argv[2:2 + n]]
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i)
os.environ.update(LISTEN_FDS=str(n), LISTEN_PID=str(os.getpid()))
os.execvp(sys.argv[2 + n], sys.argv[2 + n:])
"""


class Daemon:
    """A shmstored, or the program, that serves these partitions. config: text for its
    configuration file, else --partition for each."""

    def __init__(self, *partitions, config=None, prefix=(), environment=None, http=True, start=True,
                 handed=(), program=SHMSTORED):
        self.directory = tempfile.mkdtemp(prefix="shmstored-test-")
        os.chmod(self.directory, 0o755)
        self.socket = os.path.join(self.directory, "socket")
        self.config = os.path.join(self.directory, "shmstored.conf")
        self.log_path = os.path.join(self.directory, "log")
        self.port = free_port()
        self.http = http
        self.partitions = [str(p) for p in partitions]
        self.prefix = list(prefix)
        self.program = program
        self.handed = [s.fileno() for s in handed]  # sockets that it is handed over
        self.environment = environment or {}
        self.process = None
        self.status = ""
        self.write_config(config or "")
        if start:
            self.start()

    def write_config(self, text):
        """The text, with the HTTP port of this daemon and its partitions where it names none."""
        lines = [text]
        if "http {" not in text:
            lines.append(
                f'http {{ enabled = {"yes" if self.http else "no"}\n port = {self.port} }}')
        if 'partition "' not in text:
            lines += [f'partition "{path}" {{ }}' for path in self.partitions]
        with open(self.config, "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")

    def env(self):
        return {**os.environ, "SHMSTORE_SOCKET": self.socket, **self.environment}

    def start(self, timeout=120.0):
        """Starts it and returns when it says READY=1."""
        notify_path = os.path.join(self.directory, "notify")
        if os.path.exists(notify_path):
            os.unlink(notify_path)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(notify_path)
        os.chmod(notify_path, 0o777)
        hand_over = [sys.executable, "-c", HAND_OVER, str(len(self.handed)),
                     *map(str, self.handed)] if self.handed else []
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *hand_over, str(self.program), "--config", self.config, "--socket",
                 self.socket],
                env={**self.env(), "NOTIFY_SOCKET": notify_path}, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, pass_fds=self.handed)
        self.pid = self.process.pid
        deadline = time.monotonic() + timeout
        while "READY=1" not in self.status.split("\n"):
            assert self.process.poll() is None, (
                f"shmstored ended with {self.process.returncode}:\n{self.log()}")
            self.listen(max(0.01, min(0.5, deadline - time.monotonic())))
            assert time.monotonic() < deadline, f"shmstored is not ready:\n{self.log()}"

    def listen(self, timeout):
        """Takes one message to the service manager; "" where none comes in time."""
        self.notify.settimeout(timeout)
        try:
            self.status = self.notify.recv(4096).decode()
        except TimeoutError:
            return ""
        return self.status

    def log(self):
        return Path(self.log_path).read_text(encoding="utf-8", errors="replace")

    def wire(self, **options):
        return Wire(self.socket, **options)

    def get(self, path):
        """HTTP: the body's text."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=120) as answer:
            return answer.read().decode()

    def api(self, what):
        return json.loads(self.get(f"/api/v1/{what}"))

    def admin(self, *words, check=True):
        """shmstore-admin --json: what it says, parsed; check=False: the CompletedProcess."""
        result = subprocess.run([str(ADMIN), "--json", *map(str, words)], env=self.env(),
                                capture_output=True, text=True, timeout=120, check=False)
        if not check:
            return result
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def kill(self):
        """kill -9."""
        self.process.kill()
        self.process.wait(30)
        self.notify.close()

    def restart(self):
        self.status = ""
        self.start()

    def stop(self):
        """SIGTERM; it has to end in good order."""
        self.process.terminate()
        status = self.process.wait(60)
        self.notify.close()
        assert status == 0, f"shmstored ended with {status}:\n{self.log()}"

    def close(self):
        """Ends it if it runs, takes its directory away, and fails where a
        sanitizer had something to say."""
        try:
            if self.process and self.process.poll() is None:
                self.stop()
        finally:
            if self.process and self.process.poll() is None:
                self.kill()
            log = self.log()
            shutil.rmtree(self.directory, ignore_errors=True)
        assert "Sanitizer:" not in log and "runtime error:" not in log, log

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
