# SPDX-License-Identifier: Apache-2.0
"""The protocol against a real daemon: whatever one client sends, it is told why it must go, and
another one notices nothing.

A bystander is connected all the while: it gets its answers, and nothing else.
"""
import array
import os
import socket
import struct
import sys
import time

import pytest
from daemon import (BODIES, FROM_CLIENT, FROM_DAEMON, HEADER, MAGIC, SHMSTORED, Closed, Daemon,
                    Message, Wire, pack, wait_for)
from fixture import NOBODY, ROOT, Place

pytestmark = pytest.mark.skipif(not SHMSTORED.exists(), reason=f"{SHMSTORED}: not built")

TAILS = {"REGISTER": b"stores/x", "BROKER": b"/nowhere", "QUERY": b"/nowhere",
         "WATCH": b"store-came", "SET": b"user.1.hard=none", "REAP": b"/no", "ARB": b"1",
         "ARB_ADMIN": b"/nowhere", "PROFILE": b"c\nf\n", "PROFILE_ADMIN": b"x",
         "TASK_ADMIT": b"c\nf\n", "TASK_RUNS": b"c\nf\n", "STAGE_QUERY": b"s", "STAGE_BEGIN": b"s",
         "ACTOR_PLACE": b"p", "ACTOR_BORN": b"a", "ACTOR_DONE": b"a", "ACTOR_CALL": b"a",
         "ACTOR_MOVE": b"a\nq"}
BYTES = {"ACTOR_DONE", "ACTOR_CALL"}  # what follows the name is no text
UNANSWERED = {"TASK_RUNS"}  # what a client says of itself to a daemon that is new
VALUES = {"HELLO": (1, 1, 0), "PING": (7,), "REGISTER": (b"u" * 16, 0), "GRANT": (1, 0, 0, 0, 0),
          "CANCEL": (99,), "BROKER": (1, 0), "BYE": (0,),
          "QUERY": (1, 0), "WATCH": (2**64 - 1,), "SET": (0,), "REAP": (0,),
          "ARB": (6, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0), "ARB_ADMIN": (1, 1, 0, 0, 7, 0, 0),
          "PROFILE": (1, 0, 0, 1, 0, 0, 0, 0), "PROFILE_ADMIN": (3, 2**32 - 1, 0, 1),
          "TASK_ADMIT": (1, 0, 0, 2**32 - 1, 0, 7, 0, 0), "TASK_DONE": (1,),
          "TASK_RUNS": (1, 7, 0, 2**32 - 1, 0, 5, 0), "STAGE_QUERY": (0, 0, 0, 0, 0, 1, 0, 0, 0, 0),
          "STAGE_BEGIN": (0, 0, 0), "STAGE_END": (0,),
          "ACTOR_PLACE": (0, 0, 0), "ACTOR_BORN": (0, 0, 0, 1, 0, 8), "ACTOR_NEXT": (0,),
          "ACTOR_DONE": (1, 0, 0, 1, 1), "ACTOR_CALL": (1, 0),
          "ACTOR_MOVE": (0,)}
SETTINGS = """daemon {{
    socket-mode = 0666
    max-clients = 300
    max-clients-per-user = {per_user}
    hello-timeout = {hello}
}}
partition "{path}" {{ create = yes }}
"""


class Watched:
    """A daemon, and a bystander on it."""

    def __init__(self, hello="60s", per_user=64):
        self.place = Place(size="16m")
        self.daemon = None
        try:
            text = SETTINGS.format(path=self.place.path, hello=hello, per_user=per_user)
            self.daemon = Daemon(config=text, http=False)
            self.bystander = self.daemon.wire()
        except BaseException:
            self.close()
            raise

    def close(self):
        try:
            if self.daemon:
                self.daemon.close()
        finally:
            self.place.remove()

    def undisturbed(self):
        self.bystander.ping()
        assert not self.bystander.unasked, self.bystander.unasked
        assert self.daemon.process.poll() is None, self.daemon.log()


@pytest.fixture(scope="module")
def watched():
    w = Watched()
    try:
        yield w
    finally:
        w.close()


@pytest.fixture
def make_watched():
    made = []

    def make(**options):
        made.append(Watched(**options))
        return made[-1]

    try:
        yield make
    finally:
        for w in made:
            w.close()


def good(name):
    return pack(name, *VALUES[name], tail=TAILS.get(name, b""), serial=5)


def hear_error(wire):
    """The daemon's last message, ERROR; a reset for input that it left unread may come before."""
    for _ in range(1000):
        try:
            packet = wire.socket.recv(1 << 16)
        except ConnectionResetError:
            continue
        assert packet, "closed without a word"
        message = Message(packet)
        if message.name == "ERROR":
            assert wire.socket.recv(1 << 16) == b"", "it says ERROR and goes on"
            return message
    raise AssertionError("no ERROR")


def refused(w, packet, hello=True, send=None):
    """A client that sends that is told why and closed. Returns the reason."""
    with w.daemon.wire(hello=hello) as wire:
        if send:
            send(wire.socket, packet)
        else:
            wire.socket.send(packet)
        error = hear_error(wire)
    assert error.values[0] < 0 and error.text, (error, packet[:40])
    return error.text


def with_header(packet, **changes):
    names = ("magic", "type", "flags", "size", "tail", "serial")
    fields = dict(zip(names, HEADER.unpack_from(packet)))
    fields.update(changes)
    return HEADER.pack(*(fields[name] for name in names)) + packet[HEADER.size:]


@pytest.mark.parametrize("name", FROM_CLIENT)
def test_good_messages_are_answered(watched, name):
    with watched.daemon.wire(hello=name != "HELLO") as wire:
        wire.socket.send(good(name))
        if name in UNANSWERED:
            wire.ping()
            assert not wire.unasked, wire.unasked
        else:
            answer = wire.receive()
            assert answer.serial == 5 and answer.name in FROM_DAEMON.values()
    watched.undisturbed()


@pytest.mark.parametrize("name", FROM_CLIENT)
def test_every_truncation(watched, name):
    packet = good(name)
    for cut in range(len(packet)):
        refused(watched, packet[:cut], hello=name != "HELLO")
        watched.undisturbed()


@pytest.mark.parametrize("name", FROM_CLIENT)
def test_every_wrong_length(watched, name):
    packet = good(name)
    hello = name != "HELLO"
    tail = len(TAILS.get(name, b""))
    wrong = [n for n in (*range(0, len(packet) + 9), 4095, 65535, 2**31, 2**32 - 1)
             if n != len(packet)]
    for size in wrong:
        refused(watched, with_header(packet, size=size), hello)
    for size in (*range(0, tail + 9), len(packet), 4096, 2**32 - 1, 2**32 - len(packet)):
        if size != tail:
            refused(watched, with_header(packet, tail=size), hello)
    for more in (1, 8, 4096, 60000):
        refused(watched, packet + b"x" * more, hello)
        longer = with_header(packet, size=len(packet) + more, tail=tail + more) + b"x" * more
        if not (name in TAILS and more < 4000):
            refused(watched, longer, hello)
    watched.undisturbed()


@pytest.mark.parametrize("name", FROM_CLIENT)
def test_every_unknown_flag_magic_and_serial(watched, name):
    packet = good(name)
    hello = name != "HELLO"
    for bit in range(16):
        refused(watched, with_header(packet, flags=1 << bit), hello)
    for bit in range(32):
        refused(watched, with_header(packet, magic=MAGIC ^ 1 << bit), hello)
    refused(watched, with_header(packet, serial=0), hello)
    if name in TAILS and name not in BYTES:
        body = HEADER.size + struct.calcsize(BODIES[name])
        for at in range(body, len(packet)):
            refused(watched, packet[:at] + b"\0" + packet[at + 1:], hello)
    watched.undisturbed()


def test_every_unknown_type_and_what_only_the_daemon_says(watched):
    packet = good("PING")
    for number in (0, *range(12, 80), 255, 256, 257, 2**15, 2**16 - 1):
        # whose bodies are as large
        if number not in [FROM_CLIENT[name] for name in ("TASK_DONE", "STAGE_END", "ACTOR_NEXT",
                                                         "ACTOR_CALL", "ACTOR_MOVE")]:
            refused(watched, with_header(packet, type=number))
    watched.undisturbed()
    for number, name in FROM_DAEMON.items():
        body = bytes(struct.calcsize(BODIES[name]))
        refused(watched, HEADER.pack(MAGIC, number, 0, HEADER.size + len(body), 0, 1) + body)
    watched.undisturbed()


RESERVED = [("HELLO", 2, 64, 0), ("REGISTER", 1, 64, 0), ("GRANT", 3, 32, 1), ("GRANT", 4, 32, 0),
            ("BYE", 0, 64, 0), ("QUERY", 1, 32, 0),
            ("SET", 0, 64, 0), ("REAP", 0, 64, 0)]


@pytest.mark.parametrize("name, field, bits, known", RESERVED)
def test_every_reserved_bit(watched, name, field, bits, known):
    for bit in range(bits):
        values = list(VALUES[name])
        values[field] = 1 << bit
        if not values[field] & known:
            refused(watched, pack(name, *values, tail=TAILS.get(name, b"")), hello=name != "HELLO")
    watched.undisturbed()


@pytest.mark.parametrize("name", FROM_CLIENT)
def test_hello_is_first_and_once(watched, name):
    if name == "HELLO":
        assert "second" in refused(watched, good(name))
        for low, high in ((0, 0), (2, 2), (2, 1), (5, 2**32 - 1), (2**32 - 1, 0)):
            assert "version" in refused(watched, pack("HELLO", low, high, 0), hello=False)
    else:
        assert "HELLO" in refused(watched, good(name), hello=False)
    watched.undisturbed()


def test_what_was_right_is_answered_before_the_fault(watched):
    with watched.daemon.wire() as wire:
        first = wire.send("PING", 1)
        second = wire.send("PING", 2)
        wire.socket.send(b"junk")
        assert wire.reply(first).values == (1,) and wire.reply(second).values == (2,)
        assert "header" in hear_error(wire).text
    watched.undisturbed()


def n_fds(w):
    return len(os.listdir(f"/proc/{w.daemon.pid}/fd"))


@pytest.mark.parametrize("n", [1, 250])
def test_descriptors_are_refused_and_do_not_stay(watched, n):
    watched.undisturbed()
    before = n_fds(watched)

    def send(sock, packet):
        fds = array.array("i", [sock.fileno()] * n)
        sock.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])

    for _ in range(20):
        assert "descriptors" in refused(watched, good("PING"), send=send)
        watched.undisturbed()
    wait_for("its descriptors are closed", lambda: n_fds(watched) <= before)


def test_who_says_nothing_is_dropped(make_watched):
    w = make_watched(hello="500ms")
    with w.daemon.wire(hello=False) as wire:
        assert "HELLO" in hear_error(wire).text
    w.undisturbed()
    events = [e for e in w.bystander.query("events")["events"] if e["event"] == "client-dropped"]
    assert (len(events) == 1 and events[0]["pid"] == os.getpid() and
            "HELLO" in events[0]["why"]), events
    assert "client dropped" in w.daemon.log()


def test_who_reads_nothing_is_neither_heard_nor_kept(make_watched):
    w = make_watched(hello="1s")
    with w.daemon.wire() as wire:
        wire.socket.setblocking(False)
        packet = good("PING")
        sent = 0
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline, f"{sent} requests, and still there"
            try:
                sent += wire.socket.send(packet) > 0
            except BlockingIOError:
                w.undisturbed()
            except OSError:
                break
        assert sent < 5000
    w.undisturbed()
    assert "takes none" in w.daemon.log() or "does not read" in w.daemon.log()


def test_who_asks_ahead_gets_all_answers_and_others_theirs(watched):
    with watched.daemon.wire() as wire:
        wire.socket.setblocking(False)
        n = 20000
        sent = received = 0
        deadline = time.monotonic() + 120
        while received < n:
            assert time.monotonic() < deadline, f"{received} of {sent} answers"
            try:
                while sent < n:
                    wire.socket.send(pack("PING", sent, serial=sent + 1))
                    sent += 1
            except BlockingIOError:
                pass
            try:
                while True:
                    message = Message(wire.socket.recv(65536))
                    assert message.name == "PONG" and message.values == (received,)
                    received += 1
            except BlockingIOError:
                watched.undisturbed()


@pytest.mark.skipif(not ROOT, reason="needs a second user")
def test_ten_thousand_connections(make_watched):
    w = make_watched(per_user=64)
    kept, reasons = [], []
    os.chmod(w.daemon.directory, 0o755)
    os.seteuid(NOBODY)
    try:
        for i in range(10000):
            wire = Wire(w.daemon.socket, hello=False)
            if len(kept) < 64:
                wire.call("HELLO", 1, 1, 0)
                kept.append(wire)
                continue
            try:
                wire.send("HELLO", 1, 1, 0)
            except (BrokenPipeError, ConnectionResetError):
                pass
            if i % 100 == 0:
                reasons.append(hear_error(wire).text)
                w.undisturbed()
            wire.close()
    finally:
        os.seteuid(0)
    assert all("65534 has 64 connections" in reason for reason in reasons), reasons
    with w.daemon.wire() as other:
        other.ping()
    for wire in kept:
        wire.ping()
    kept.pop().close()
    os.seteuid(NOBODY)
    try:

        def place_is_free():
            try:
                return Wire(w.daemon.socket)
            except (Closed, OSError):
                return None

        wait_for("a place that was left is free", place_is_free).close()
    finally:
        os.seteuid(0)
    for wire in kept:
        wire.close()
    wait_for("all are gone", lambda: w.bystander.query("status")["daemon"]["clients"] == 1)
    w.undisturbed()


def test_the_end_is_said(make_watched):
    w = make_watched()
    w.daemon.stop()
    with pytest.raises(Closed, match="ends"):
        w.bystander.receive()
    assert not os.path.exists(w.daemon.socket)


def test_a_stale_socket_is_replaced_a_live_one_is_not(make_watched):
    w = make_watched()
    w.daemon.kill()
    assert os.path.exists(w.daemon.socket)
    w.daemon.restart()
    with w.daemon.wire() as wire:
        wire.ping()
        second = Daemon(config=SETTINGS.format(path=w.place.path + "-2", hello="60s", per_user=64),
                        http=False, start=False)
        second.socket, own = w.daemon.socket, second.socket
        try:
            with pytest.raises(AssertionError, match="ended with 1"):
                second.start()
        finally:
            second.notify.close()
            second.socket = own
            second.close()
        wire.ping()
    with w.daemon.wire() as wire:
        wire.ping()


def test_what_is_no_socket_is_left_alone(make_watched):
    w = make_watched()
    w.daemon.stop()
    with open(w.daemon.socket, "w", encoding="ascii") as f:
        f.write("somebody's")
    with pytest.raises(AssertionError, match="no stale socket"):
        w.daemon.restart()
    w.daemon.notify.close()
    assert open(w.daemon.socket, encoding="ascii").read() == "somebody's"


ACTIVATE = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1])
s.listen(4000)
os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_a_socket_of_systemd_is_taken_and_left(make_watched, tmp_path):
    w = make_watched()
    w.daemon.stop()
    path = str(tmp_path / "activated")
    daemon = Daemon(config=SETTINGS.format(path=w.place.path, hello="60s", per_user=64), http=False,
                    prefix=[sys.executable, "-c", ACTIVATE, path])
    with daemon:
        with Wire(path) as wire:
            wire.ping()
        assert not os.path.exists(daemon.socket)
        daemon.stop()
        assert os.path.exists(path), "the socket is systemd's"
