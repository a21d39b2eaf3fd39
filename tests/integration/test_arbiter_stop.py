# SPDX-License-Identifier: Apache-2.0
"""A process that stops while others depend on it: with memory, with a lease, while it is asked to
make room, or without reading what it is told.

It delays others by at most the configured deadline; then they have an outcome that is
documented. Meanwhile a third one's requests go on, one after the other, each answered: what
waits holds up nobody who need not wait.
"""
import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
from arbwire import DEDICATED
from daemon import wait_for
from fixture import ROOT
from test_daemon_arbiter import MIB, make_host  # noqa: F401  a fixture

pytestmark = pytest.mark.skipif(not ROOT, reason="needs a file system of its own")

SETTINGS = "wait = 800ms\ntick = 20ms\ncall-timeout = 100ms"
# ms for which the other one waits: of the third one's calls only 64 pass it, and the next, which
# has 800, must not be over when a late daemon ends it
PATIENCE = 400


class Scene:
    """A process that stops, a client that waits for it, and a client whose traffic must go on."""

    def __init__(self, host):
        self.host = host
        self.other = host.client("other")
        self.traffic = host.client("traffic")
        self.other.task(1)
        self.traffic.task(1)
        self.stops = host.process("stops")
        assert self.stops.op("TASK_BEGIN", task=1) == "OK"
        assert self.stops.op("BIND", tail="1", kind=DEDICATED, context=1) == "OK"

    def states(self):
        """Of the threads of the one that stops."""
        return {thread.read_text().rpartition(")")[2].split()[0]
                for thread in Path(f"/proc/{self.stops.pid}/task").glob("*/stat")}

    @contextmanager
    def stopped(self):
        os.kill(self.stops.pid, signal.SIGSTOP)
        try:
            wait_for("all its threads have stopped", lambda: self.states() == {"T"})
            yield
        finally:
            os.kill(self.stops.pid, signal.SIGCONT)

    def ends(self, serial):
        """How the other one's call ends, with the third one at work until then."""
        n = 0
        while self.other.is_pending(serial):
            reservation = self.traffic.reserved(1, 4096)
            assert self.traffic.op("RELEASE", reservation=reservation) == "OK"
            n += 1
        assert n, f"it did not wait: {self.other.end(serial)}"
        return self.other.end(serial)


@pytest.fixture
def scene(make_host):  # noqa: F811
    return Scene(make_host(SETTINGS))


def test_stopped_with_a_reservation(scene):
    assert scene.stops.op("RESERVE", context=1, pool=1, bytes=40 * MIB, reservation=1) == "OK"
    with scene.stopped():
        serial, _ = scene.other.reserve(1, 40 * MIB, timeout_ms=PATIENCE)
        assert scene.ends(serial) == "TIMEDOUT"
        (event,) = scene.host.events("arbiter-timeout")
        assert event["store"].endswith("/other") and event["bytes"] == 40 * MIB and event["why"]
    assert scene.stops.op("RELEASE", reservation=1) == "OK"
    scene.other.reserved(1, 40 * MIB)


def test_stopped_while_it_is_asked_to_make_room(scene):
    assert scene.stops.op("serve") == "serves"
    for reservation in (1, 2):
        assert scene.stops.op("RESERVE", context=1, pool=1, bytes=20 * MIB,
                              reservation=reservation) == "OK"
        assert scene.stops.op("UNPIN", reservation=reservation) == "OK"
    with scene.stopped():
        serial, _ = scene.other.reserve(1, 60 * MIB, timeout_ms=PATIENCE)
        assert scene.ends(serial) == "TIMEDOUT"
        assert "did not answer" in scene.host.daemon.log()
        assert scene.host.pool()["reclaimable"] == 0
    # It goes on, answers late, and is asked again.
    wait_for("what may go can be had", lambda: scene.host.pool()["reclaimable"] or
             scene.host.pool()["used"] < 20 * MIB)
    scene.other.reserved(1, 30 * MIB)


def test_stopped_with_a_lease(scene):
    assert scene.stops.op("LEASE", pool=1, bytes=4096) == "OK"
    assert scene.stops.op("charge", n=64 << 10) is True
    everything = scene.host.pool()["capacity"] - scene.host.pool()["objects"]
    with scene.stopped():
        # The bytes that it did not spend are taken back without it.
        all_but_that, reservation = scene.other.reserve(1, everything - (64 << 10))
        assert scene.other.end(all_but_that) == "OK"
        assert scene.other.op("RELEASE", reservation=reservation) == "OK"
        serial, _ = scene.other.reserve(1, everything, timeout_ms=PATIENCE)
        assert scene.ends(serial) == "TIMEDOUT"
    assert scene.stops.op("charge", n=4096) is False


def test_never_reads_what_it_is_told(make_host):  # noqa: F811
    host = make_host("wait = 60s\ntick = 20ms", daemon="output-max = 64KiB\nhello-timeout = 500ms")
    scene = Scene(host)
    assert scene.stops.op("RESERVE", context=1, pool=1, bytes=40 * MIB, reservation=1) == "OK"
    serial, _ = scene.other.reserve(1, 40 * MIB)
    scene.stops.send("flood")
    assert scene.ends(serial) == "OK"
    assert scene.stops.next() == "dropped"
