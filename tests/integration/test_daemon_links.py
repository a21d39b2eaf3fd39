# SPDX-License-Identifier: Apache-2.0
"""The connections between daemons that are peers: when one is down, who is hung up on, a secret
over TCP, and two hosts."""
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess

import pytest
from actorscene import log, program  # noqa: F401
from daemon import ACTORD, Daemon, free_port, wait_for
from fixture import Place
from peerscene import KEYS, Host, connected, make_hosts, outlasting  # noqa: F401

pytestmark = pytest.mark.skipif(not ACTORD.exists(), reason=f"{ACTORD}: not built")


def test_a_peer_that_is_stopped_is_down_after_its_timeout(make_hosts):
    a, b = make_hosts("a", "b", keys="timeout = 500ms\n")
    os.kill(b.daemon.pid, signal.SIGSTOP)
    try:
        wait_for("the loss of b", lambda: not a.document()["peers"])
    finally:
        os.kill(b.daemon.pid, signal.SIGCONT)
    connected(a, b)


def test_what_is_no_peer_is_hung_up_on(make_hosts, tmp_path):
    a, b = make_hosts("a", "b", keys="timeout = 1s\n")
    hello = struct.pack("<IHHIIII64s", 8 + 80, 1, 0, 0x53504452, 1, 0, 0, b"c" + bytes(63))
    ping = struct.pack("<IHH", 8, 2, 0)
    for said in (b"x" * 100, b"\0" * 8, struct.pack("<IHH", 1 << 31, 1, 0), ping, hello + hello,
                 hello + struct.pack("<IHH", 8, 99, 0),
                 hello + struct.pack("<IHHQ", 16, 5, 0, 1),
                 hello + struct.pack("<IHHQQII", 32, 3, 0, 1, 1 << 60, 24, 5000),
                 hello.replace(b"c\0", b"a\0"),
                 hello.replace(b"c\0", b"\n\0"), hello + struct.pack("<IHH", 12, 17, 0) + b"abcd"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(60)
            s.connect(str(tmp_path / "a"))
            s.sendall(said)
            while s.recv(4096):
                pass
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:  # silence
        s.settimeout(60)
        s.connect(str(tmp_path / "a"))
        while s.recv(4096):
            pass
    connected(a, b)


def test_what_a_peer_says_is_remembered_of_so_many_actors_only(make_hosts, tmp_path):
    (a,) = make_hosts("a", keys="timeout = 60s\n")
    hello = struct.pack("<IHHIIII64s", 8 + 80, 1, 0, 0x53504452, 1, 0, 0, b"c" + bytes(63))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(60)
        s.connect(str(tmp_path / "a"))
        s.sendall(hello)
        for first in range(0, 70_000, 1000):
            s.sendall(b"".join(struct.pack("<IHHQQII64s64s", 8 + 152, 17, 0, 1, 0, os.getuid(), 0,
                                           b"n%d" % n, b"") for n in range(first, first + 1000)))

        def known():
            document = a.document()
            return len(document["actors"]) + document["left_out"]

        wait_for("all that it remembers", lambda: known() == 65536)
        a.process("first", log())  # it takes nobody's place here
        wait_for("an actor of one's own", lambda: known() == 65537)
    wait_for("with its connection it is forgotten", lambda: known() == 1)


# ---- between hosts -------------------------------------------------------------------------------


def secret_at(path, text="0123456789abcdef0123456789abcdef"):
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


def tcp(name, at, connect, secret, more=""):
    return (f'peers {{ name = {name}\n listen = "{at}"\n' +
            (f' connect = "{connect}"\n' if connect else "") + f' secret-file = "{secret}"\n '
                                                               f'{KEYS} {more}\n}}\n')


@pytest.fixture
def two_places():
    places = [Place(size="64m") for _ in range(2)]
    yield places
    for place in places:
        place.remove()


def partition(place):
    return f'partition "{place.path}" {{ create = yes }}\n'


@pytest.fixture
def namespaces():
    """Two network namespaces with a cable between them: prefixes that run a command in each."""
    names = [f"shm{os.getpid()}{x}" for x in "ab"]
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("making network namespaces takes root and ip")
    try:
        for name in names:
            if subprocess.run(["ip", "netns", "add", name], check=False,
                              capture_output=True).returncode:
                pytest.skip("no network namespace can be made here")
        subprocess.run(["ip", "link", "add", "cable", "netns", names[0], "type", "veth", "peer",
                        "name", "cable", "netns", names[1]], check=True)
        for i, name in enumerate(names):
            for words in (["addr", "add", f"10.99.0.{i + 1}/24", "dev", "cable"],
                          ["link", "set", "cable", "up"], ["link", "set", "lo", "up"]):
                subprocess.run(["ip", "-n", name, *words], check=True)
        yield [("nsenter", f"--net=/run/netns/{name}") for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_two_hosts(namespaces, two_places, make_daemon, tmp_path):
    """Network namespaces as hosts: an actor of 16 MiB is copied over TCP, and goes on at the other
    host when the first is gone."""
    secret = secret_at(tmp_path / "secret")
    made = []
    for i, name in enumerate("ab"):
        config = tcp(name, f"10.99.0.{i + 1}:9478", "10.99.0.1:9478" if i else "", secret,
                     "copies = yes")
        made.append(make_daemon(config=config + partition(two_places[i]), prefix=namespaces[i],
                                http=False))
    a, b = (Host(name, place, daemon) for name, place, daemon in zip("ab", two_places, made))
    try:
        a.process("first", log())
        there = b.process("second")
        for i in range(5):
            a.store(f"caller{i}").actor("log").call("add", i)
        objects = f"{two_places[1].path}/stores/w{there.pid}/objects"
        logged = lambda: "connected to another daemon" in b.daemon.log()  # noqa: E731
        wait_for("a copy", lambda: logged() and [n for n in os.listdir(objects) if "ckpt" in n])
        far = b.store().actor("log")
        for i in range(5, 8):
            far.call("add", i)
        a.end()  # its process dies; the daemon asks the other one
        pid, seen, _, most = outlasting(far, "everything")
        assert pid == there.pid and seen == list(range(len(seen))) and most == 1
    finally:
        a.end()
        b.end()


def test_a_secret_is_needed(two_places, make_daemon, tmp_path):
    """Over TCP: who has another secret, or none, gets no further than the
    handshake; who has it is a peer."""
    ports = [free_port() for _ in range(3)]
    secret, other = secret_at(tmp_path / "secret"), secret_at(tmp_path / "other", "f" * 32)
    a = make_daemon(config=tcp("a", f"127.0.0.1:{ports[0]}", "", secret) + partition(two_places[0]))
    b = make_daemon(config=tcp("b", f"127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[0]}", other) +
                    partition(two_places[1]))
    wait_for("a refusal", lambda: "same secret" in b.log() and "same secret" in a.log())
    with socket.create_connection(("127.0.0.1", ports[0])) as s:
        s.settimeout(60)
        s.sendall(struct.pack("<IHHIIII64s", 8 + 80, 1, 0, 0x53504452, 1, 0, 0, b"c" + bytes(63)))
        with contextlib.suppress(ConnectionResetError):
            while s.recv(4096):
                pass
    assert not a.api("actors")["actors"]["peers"] and not b.api("actors")["actors"]["peers"]
    b.stop()
    b.write_config(tcp("b", f"127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[0]}", secret) +
                   partition(two_places[1]))
    b.restart()
    wait_for("the peer", lambda: a.api("actors")["actors"]["peers"] == [{"name": "b"}] and
             b.api("actors")["actors"]["peers"] == [{"name": "a"}])


def test_strangers_keep_no_peer_out(two_places, make_daemon, tmp_path):
    """More connections that say nothing than there are places: the oldest of
    them go, and a peer comes."""
    ports = [free_port() for _ in range(2)]
    secret = secret_at(tmp_path / "secret")
    a = make_daemon(config=tcp("a", f"127.0.0.1:{ports[0]}", "", secret, "timeout = 600s") +
                    partition(two_places[0]))
    silent = []
    try:
        for _ in range(100):
            silent.append(socket.create_connection(("127.0.0.1", ports[0]), timeout=60))
        make_daemon(config=tcp("b", f"127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[0]}", secret) +
                    partition(two_places[1]))
        wait_for("the peer", lambda: a.api("actors")["actors"]["peers"] == [{"name": "b"}])
        silent[0].settimeout(60)
        assert silent[0].recv(1) == b""
    finally:
        for s in silent:
            s.close()


@pytest.mark.parametrize("wrong", ["mode", "short", "none", "link", "away"])
def test_a_secret_that_is_none_is_refused(place, tmp_path, wrong):
    secret = secret_at(tmp_path / "secret", "short" if wrong == "short" else "x" * 32)
    if wrong == "mode":
        secret.chmod(0o640)
    if wrong == "link":
        (tmp_path / "link").symlink_to(secret)
        secret = tmp_path / "link"
    if wrong == "away":
        secret = tmp_path / "nowhere"
    config = tcp("a", f"127.0.0.1:{free_port()}", "", secret)
    if wrong == "none":
        config = config.replace(f'secret-file = "{secret}"', "")
    daemon = Daemon(config=config + partition(place), program=ACTORD, start=False)
    try:
        with pytest.raises(AssertionError, match="shmstored ended with"):
            daemon.start()
        assert "no connection to other daemons" in daemon.log()
    finally:
        daemon.close()
