# SPDX-License-Identifier: Apache-2.0
"""Up-calls of a real daemon's arbiter: who is asked to make room, who is passed over, and
what is told of pressure."""
import os
import subprocess
import sys

import pytest
from arbwire import OPS
from daemon import wait_for
from fixture import ROOT
from test_daemon_arbiter import MIB, host, make_host  # noqa: F401  fixtures

pytestmark = pytest.mark.skipif(not ROOT, reason="needs a file system of its own")


class Spills:
    """A client with a private pool that is full of what it unpinned, and a channel for up-calls."""

    def __init__(self, host, name="a"):
        self.host = host
        self.client = a = host.client(name)
        self.channel = host.daemon.wire()
        assert self.serve() == "OK"
        a.task(1)
        assert a.op("POOL_CREATE", "own", pool=2, bytes=10 * MIB) == "OK"
        self.held = a.reserved(1, 8 * MIB, pool=2)
        assert (a.op("SEAL", reservation=self.held) == "OK" and
                a.op("UNPIN", reservation=self.held) == "OK")

    def serve(self):
        return self.client.serve(self.channel)

    def calls(self):
        """The next EVICT: pool, bytes, reservation, call."""
        while True:
            message = (self.channel.unasked.pop(0) if self.channel.unasked
                       else self.channel.receive())
            kind, call, pool, reservation, size, timeout_ms, _, _ = message.values
            assert message.name == "ARB_CALL"
            if kind == 1:
                assert timeout_ms > 0
                return pool, size, reservation, call

    def evicted(self, call, size=0):
        return self.channel.call("ARB", OPS["EVICTED"], 0, 0, 0, 0, 0, call, 0, 0, size, 0, 0)


def test_client_is_asked_to_make_room(host):  # noqa: F811
    s = Spills(host)
    a = s.client
    host.somebody_runs()
    serial, second = a.reserve(1, 6 * MIB, pool=2)
    assert s.calls()[:3] == (2, 8 * MIB, s.held) and a.state(1) == "ALLOC"
    assert a.is_pending(serial)
    assert a.op("SPILLED", reservation=s.held, bytes=8 * MIB) == "OK"
    assert a.end(serial) == "OK"
    assert host.pool("own")["spilled"] == 8 * MIB and host.pool("own")["used"] == 6 * MIB
    back = a.begin("PIN", context=1, reservation=s.held)
    assert a.is_pending(back)
    assert a.op("RELEASE", reservation=second) == "OK"
    assert a.end(back) == "OK"


def test_channel_is_answered_before_it_is_used(host):  # noqa: F811
    """The opening of a channel asks for reservations unpinned before, where somebody waits."""
    a = host.client("a")
    a.task(1)
    a.task(2)
    host.somebody_runs()
    assert a.op("POOL_CREATE", "own", pool=2, bytes=10 * MIB) == "OK"
    held = a.reserved(1, 8 * MIB, pool=2)
    assert a.op("UNPIN", reservation=held) == "OK"
    waits, second = a.reserve(2, 6 * MIB, pool=2)
    assert a.is_pending(waits)
    with host.daemon.wire() as channel:
        serial = channel.send("ARB", OPS["SERVE"], 0, 0, 0, 0, 0, 0, a.id, 0, 0, 0, 0)
        answer = channel.receive()
        assert (answer.name, answer.serial) == ("ARBED", serial)
        while True:
            kind, _, pool, reservation, size = channel.receive().values[:5]
            if kind == 1:
                break
        assert (pool, reservation) == (2, held) and size >= 4 * MIB
        assert a.op("RELEASE", reservation=held) == "OK" and a.end(waits) == "OK"
        assert a.op("RELEASE", reservation=second) == "OK"


def test_client_that_cannot_is_passed_over(host):  # noqa: F811
    s = Spills(host)
    serial, _ = s.client.reserve(1, 6 * MIB, pool=2, timeout_ms=5000)
    *_, call = s.calls()
    assert s.evicted(call).values[0] == 0
    assert s.client.end(serial) in ("TIMEDOUT", "RETRY", "SPLIT", "NOMEM")
    assert s.evicted(call).values[0] != 0  # it is over


def test_client_that_does_not_answer_is_passed_over(make_host):  # noqa: F811
    host = make_host("call-timeout = 100ms\ntick = 20ms")
    s = Spills(host)
    serial, _ = s.client.reserve(1, 6 * MIB, pool=2, timeout_ms=60000)
    *_, call = s.calls()
    assert s.client.end(serial) in ("RETRY", "SPLIT", "NOMEM")
    assert "did not answer" in host.daemon.log()
    assert host.pool("own")["reclaimable"] == 0
    assert s.evicted(call).values[0] != 0  # late, but it lives: what it unpinned is offered again
    assert host.pool("own")["reclaimable"] == 8 * MIB


def test_without_a_channel_nothing_is_reclaimable(host):  # noqa: F811
    s = Spills(host)
    assert host.pool("own")["reclaimable"] == 8 * MIB
    s.channel.close()
    wait_for("the channel is closed", lambda: host.pool("own")["reclaimable"] == 0)
    s.channel = host.daemon.wire()
    assert s.serve() == "OK"
    assert host.pool("own")["reclaimable"] == 8 * MIB


def test_channel_is_only_of_the_same_process(host):  # noqa: F811
    a = host.client("a")
    code = "\n".join(["import sys", "sys.path.insert(0, sys.argv[1])", "from daemon import Wire",
                      "w = Wire(sys.argv[2])",
                      "print(w.call('ARB', 27, 0, 0, 0, 0, 0, 0, int(sys.argv[3]), 0, 0, 0, "
                      "0).values[0])"])
    other = subprocess.run([sys.executable, "-c", code, os.path.dirname(__file__),
                            host.daemon.socket, str(a.id)], capture_output=True, text=True,
                           check=True)
    assert other.stdout.strip() == "12"  # INVALID


def test_pressure_is_told(host):  # noqa: F811
    a, b = host.client("a"), host.client("b")
    channel = host.daemon.wire()
    assert a.serve(channel) == "OK"
    a.task(1)
    b.task(1)
    held = a.reserved(1, 40 * MIB)
    serial, _ = b.reserve(1, 40 * MIB)
    message = channel.receive()
    assert message.name == "ARB_CALL" and message.values[0] == 2 and message.values[6] == 1
    assert a.op("RELEASE", reservation=held) == "OK" and b.end(serial) == "OK"
    assert channel.receive().values[6] == 0


def test_a_private_pool_is_no_pressure(host):
    a, b = host.client("a"), host.client("b")
    channel = host.daemon.wire()
    assert a.serve(channel) == "OK"
    a.task(1)
    a.task(2)
    assert a.op("POOL_CREATE", "own", pool=2, bytes=10 * MIB) == "OK"
    own = a.reserved(1, 8 * MIB, pool=2)
    waits, _ = a.reserve(2, 8 * MIB, pool=2)
    wait_for("it waits", lambda: host.pool("own")["waiting"] == 1)
    assert host.pool()["level"] == 0 and host.pool("own")["level"] == 1
    # The first message of pressure is the partition's own.
    b.task(1)
    held = b.reserved(1, 40 * MIB)
    b.task(2)
    serial, _ = b.reserve(2, 40 * MIB)
    message = channel.receive()
    assert message.values[0] == 2 and message.values[6] == 1
    assert host.pool("own")["waiting"] == 1
    assert b.op("RELEASE", reservation=held) == "OK" and b.end(serial) == "OK"
    assert channel.receive().values[6] == 0
    assert host.pool("own")["waiting"] == 1
    assert a.op("RELEASE", reservation=own) == "OK" and a.end(waits) == "OK"
