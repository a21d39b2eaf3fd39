# SPDX-License-Identifier: Apache-2.0
"""Leases of bytes in a real daemon: what a store takes out of its page without asking, and
what the daemon takes back."""
import pytest
from arbscene import MIB, host, make_host  # noqa: F401
from arbwire import LEASE
from daemon import wait_for
from fixture import ROOT

pytestmark = pytest.mark.skipif(not ROOT, reason="needs a file system of its own")


def test_lease_is_spent_without_asking_and_taken_back_at_need(host):
    a, b = host.client("a"), host.client("b")
    a.task(1)
    b.task(1)
    given = a.op("LEASE", pool=1, bytes=4096)
    assert given == "OK" and given.bytes >= MIB
    epoch, granted, wanted, most, charged, settled = a.page.lease()
    assert (epoch == a.welcome.values[2] and granted == given.bytes and most == 256 << 10 and
            (wanted, charged, settled) == (0, 0, 0))
    assert a.page.charge(64 << 10)
    assert host.pool()["leased"] == given.bytes
    everything = host.pool()["capacity"] - host.pool()["objects"]
    serial, _ = b.reserve(1, everything)
    assert b.is_pending(serial)  # 64 KiB are spent; the rest was taken back, and a was not asked
    assert not a.page.charge(4096) and a.page.lease()[2] == 1
    assert host.pool()["leased"] == 64 << 10
    assert a.op("LEASE", pool=1, bytes=4096) == "AGAIN"
    a.page.uncharge(64 << 10)
    assert a.op("LEASE_CALLED", pool=1) == "OK"
    assert b.end(serial) == "OK"
    assert host.pool()["leased"] == 0
    wait_for("nobody waits", lambda: a.page.lease()[2] == 0)


def test_what_is_settled_is_the_kernels(host):
    a = host.client("a")
    assert a.op("LEASE", pool=1, bytes=4096) == "OK"
    leased = host.pool()["leased"]
    assert a.page.charge(64 << 10)
    a.page.write("object", 64 << 10)
    assert a.op("FREED") == "OK"
    before = host.pool()
    assert before["leased"] == leased
    a.page.settle(64 << 10)
    a.page.written(64 << 10)
    assert a.op("FREED") == "OK"
    after = host.pool()
    assert after["leased"] == leased - (64 << 10) and after["used"] == before["used"]


@pytest.mark.parametrize("lie", ["settled", "charged", "granted"])
def test_who_lies_gets_no_lease(host, lie):
    a = host.client("a")
    assert a.op("LEASE", pool=1, bytes=4096) == "OK"
    granted = a.page.lease()[1]
    if lie == "settled":
        a.page.settle(2 * granted)
    elif lie == "charged":
        a.page.charge(8192)
        a.page.settle(8192)
        assert a.op("FREED") == "OK"
        a.page.set(LEASE + 64, 4096)
    else:
        # what it says was granted is not read: what it charges beyond is not
        # booked, and settles too much
        a.page.set(LEASE + 8, 1 << 40)
        a.page.set(LEASE + 64, 1 << 30)
        a.page.set(LEASE + 72, 1 << 30)
    assert a.op("FREED") == "OK"
    (event,) = host.events("liar")
    assert event["store"].endswith("/a")
    assert a.op("LEASE", pool=1, bytes=4096) == "AGAIN" and a.page.lease()[1] == 0
    assert host.pool()["used"] <= 2 * granted


def test_no_lease_for_what_is_not_small_and_none_where_it_is_off(make_host):
    host = make_host("lease = none")
    a = host.client("a")
    assert a.op("LEASE", pool=1, bytes=4096) == "AGAIN" and a.page.lease()[:4] == (0, 0, 0, 0)
    other = make_host()
    b = other.client("b")
    assert (b.op("LEASE", pool=1, bytes=257 << 10) == "INVALID" and
            b.op("LEASE", pool=2, bytes=1) == "INVALID")


def test_private_pool_has_leases_too(host):
    a = host.client("a")
    assert a.op("POOL_CREATE", "mine", pool=2, bytes=8 * MIB) == "OK"
    assert a.op("LEASE", pool=2, bytes=4096) == "OK"
    assert a.page.charge(4096, pool=2)
    assert host.pool("mine")["leased"] == a.page.lease(2)[1] and host.pool("shm:")["leased"] == 0
    assert a.op("POOL_REMOVE", pool=2) == "OK" and not a.page.charge(4096, pool=2)
