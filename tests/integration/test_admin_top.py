# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin: top: its frames, its JSON, and the terminal that it gives back."""
import json
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from admin_support import actors, admin, bare, terminal  # noqa: F401


def test_top_json(admin, actors):
    actor = actors(admin, "s", "-")
    stop = threading.Event()

    def work():
        i = 0
        while not stop.is_set():
            actor("put", f"k{i}", 4096, "-")
            actor("delete", f"k{i}")
            i += 1
            stop.wait(0.001)

    actor("put", "kept", 1 << 20, "-")
    thread = threading.Thread(target=work)
    thread.start()
    try:
        r = admin("--json", "top", "--iterations", "3", "--interval", "0.3")
    finally:
        stop.set()
        thread.join()
    samples = [json.loads(line) for line in r.out.splitlines()]
    assert len(samples) == 3
    for s in samples:
        store, = s["stores"]
        assert (store["name"], store["pid"], store["alive"]) == ("s", actor.pid, True)
        assert store["linked"] >= 1 << 20 and s["used"] >= 1 << 20 and s["size"] > 0
        assert (store["put_per_s"] > 1 and s["put_per_s"] == store["put_per_s"] and
                s["delete_per_s"] > 1)
        assert s["put_bytes_per_s"] > 4096
    assert samples[2]["time"] - samples[0]["time"] == pytest.approx(0.6, abs=0.3)


def test_top_shows_rates_not_totals(admin, actors):
    actor = actors(admin, "s", "-")
    actor("fill", "k", 1000, 10)
    s = json.loads(admin("--json", "top", "-n", "1", "-d", "0.1").out)
    assert s["objects"] == 1000 and s["put_per_s"] == 0 and s["stores"][0]["put_per_s"] == 0


def test_top_without_a_terminal(admin, actors):
    actor = actors(admin, "s", "-")
    actor("put", "k", 1 << 20, "-")
    r = admin("top", "-n", "2", "-d", "0.1")
    assert "\033" not in r.out
    assert len(re.findall(rf"^s +{actor.pid} alive +1 ", r.out, re.M)) == 2
    assert r.out.count(" available\n") == 2


@pytest.mark.parametrize("how", ["q", "interrupt", "terminate"])
def test_top_gives_the_terminal_back(admin, terminal, how):
    t = terminal("-p", admin.path, "top", "-d", "0.1")
    t.read_until(b"no stores")
    assert b"\033[?1049h" in t.seen and b"\033[?25l" in t.seen
    assert t.settings() != t.before  # keys come at once, without echo
    if how == "q":
        t.type(b"q")
    elif how == "interrupt":
        t.type(b"\x03")
    else:
        t.process.send_signal(signal.SIGTERM)
    t.read_until(None)
    assert t.seen.rstrip().endswith(b"\033[?7h\033[?25h\033[?1049l")
    assert t.settings() == t.before
    assert t.process.wait() == (-signal.SIGTERM if how == "terminate" else 0)


def test_top_is_stopped_and_goes_on(admin, terminal):
    t = terminal("-p", admin.path, "top", "-d", "0.1")
    t.read_until(b"no stores")
    t.type(b"\x1a")
    t.read_until(b"\033[?1049l")
    deadline = time.monotonic() + 10
    while Path(f"/proc/{t.process.pid}/stat").read_text().split()[2] != "T":
        assert time.monotonic() < deadline
    assert t.settings() == t.before
    t.seen = b""
    t.process.send_signal(signal.SIGCONT)
    t.read_until(b"\033[?1049h")
    t.read_until(b"no stores")
    t.type(b"q")
    t.read_until(None)
    assert t.process.wait() == 0


def test_top_sorts(admin, actors, terminal):
    small, big = actors(admin, "a-small", "-"), actors(admin, "z-big", "-")
    small("put", "k", 1 << 20, "-")
    big("put", "k", 4 << 20, "-")

    def order(*args):
        return re.findall(r"^(\S+) +\d+ alive", admin("top", "-n1", "-d0.05", *args).out, re.M)

    assert order() == order("--sort", "linked") == ["z-big", "a-small"]
    assert order("--sort", "name") == ["a-small", "z-big"]
