# SPDX-License-Identifier: Apache-2.0
"""Puts that wait by the create queue's rules (partition.queue), of a real daemon and real
processes: who goes before whom, how many may wait, and for how long."""
import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from daemon import wait_for
from fixture import BUILD, SANITIZED
from test_daemon_quota import MIB, fill, partition_line
from test_daemon_tier import disk, keys

__all__ = ["disk"]  # fixtures

WAIT = "wait=60000"


def queue(daemon):
    with daemon.wire() as wire:
        (partition,) = wire.query("quota")["partitions"]
    return partition["queue"]


def waits(daemon, n):
    return wait_for(f"{n} wait", lambda: queue(daemon)["waiting"] == n)


@pytest.fixture
def full(hosts):
    """full(mode, keys): a partition that may take 32 MiB and is full, its daemon, who has the
    objects (a MiB each, "f0" and so on), and tools that wait."""

    def make(mode, more=""):
        _, daemon, tool = hosts(f'limit = "32MiB"\nqueue = {mode}\n{more}')
        owner = tool("full", "norecycle")
        n, code = fill(owner)
        assert n >= 28 and code == errno.ENOSPC
        return daemon, owner, tool

    return make


def free(owner, first, n):
    for i in range(first, first + n):
        owner("delete", f"f{i}")


def test_off_by_default(hosts):
    _, daemon, _ = hosts('limit = "32MiB"')
    assert queue(daemon) is None


@pytest.mark.parametrize("mode", ["limits", "first", "host"])
def test_a_small_one_and_a_large_one_before_it(full, mode):
    """host: it goes as soon as it fits. first, and where the limits' own order
    holds: behind the large one."""
    daemon, owner, tool = full(mode)
    large, small = tool("large", "norecycle", WAIT), tool("small", "norecycle", WAIT)

    def wait(n):
        return wait_for(f"{n} wait", lambda: (partition_line(daemon) if mode == "limits"
                                              else queue(daemon))["waiting"] == n)

    large.send("put", "k", 8 * MIB, 1, "wait")
    wait(1)
    small.send("put", "k", MIB, 2, "wait")
    wait(2)
    free(owner, 0, 4)
    if mode == "host":
        small.receive()
        assert small.same("k", MIB, 2)
        wait(1)
    else:
        # This put does not wait, and would fit. It comes after the room did, so the queue has
        # looked at the room, and has let nobody in.
        assert tool("late", "norecycle").code("put", "k", MIB, 3) == errno.ENOSPC
        wait(2)
    free(owner, 4, 12)
    large.receive()
    assert large.same("k", 8 * MIB, 1)
    if mode != "host":
        small.receive()
    wait(0)


def test_nobody_is_passed_for_ever(full):
    """After two that went before it the large one is first, and also one that
    does not wait gets nothing."""
    daemon, owner, tool = full("host", "queue-max-bypass = 2")
    large = tool("large", "norecycle", WAIT)
    large.send("put", "k", 8 * MIB, 1, "wait")
    waits(daemon, 1)
    free(owner, 0, 3)
    for n in range(2):
        tool(f"small{n}", "norecycle", WAIT)("put", "k", MIB // 2, n, "wait")
    third = tool("third", "norecycle", WAIT)
    third.send("put", "k", MIB // 2, 3, "wait")
    waits(daemon, 2)
    assert tool("late", "norecycle").code("put", "k", MIB // 2, 4) == errno.ENOSPC
    free(owner, 3, 10)
    large.receive()
    third.receive()
    waits(daemon, 0)


THREADS = """
import ctypes, signal, sys, threading
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
import shmstore
store = shmstore.Partition(sys.argv[1]).open("many", wait=60)
threads = [threading.Thread(target=store.put, args=(f"k{i}", b"x" * (2 << 20))) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sum(len(store.get(f"k{i}")) for i in range(4)), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(SANITIZED, reason="a sanitizer is not preloaded here")
def test_so_many_of_one_store_wait(full):
    """Two of its four threads; the others ask again and again, and other
    stores wait beside them."""
    daemon, owner, tool = full("host", "queue-per-store = 2")
    env = {**os.environ, "SHMSTORE_SOCKET": daemon.socket, "PYTHONPATH": str(BUILD / "python"),
           "PYTHONDONTWRITEBYTECODE": "1"}
    with daemon.wire() as wire:
        path = wire.query("quota")["partitions"][0]["partition"]
    many = subprocess.Popen([sys.executable, "-c", THREADS, path], env=env, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    try:
        waits(daemon, 2)
        other = tool("other", "norecycle", WAIT)
        other.send("put", "k", 2 * MIB, 1, "wait")
        waits(daemon, 3)
        n = queue(daemon)["attempts"]
        wait_for("many passes", lambda: queue(daemon)["attempts"] > n + 50)
        assert queue(daemon)["waiting"] == 3
        free(owner, 0, 20)
        other.receive()
        assert many.stdout.readline() == f"{8 * MIB}\n"
        waits(daemon, 0)
    finally:
        many.kill()
        many.wait()


def test_a_deadline_ends_it(full):
    daemon, _, tool = full("host")
    late = tool("late", "norecycle", "wait=300")
    began = time.monotonic()
    assert late.code("put", "k", 2 * MIB, 1, "wait") == errno.ETIMEDOUT
    assert time.monotonic() - began >= 0.29
    q = queue(daemon)
    assert ((q["waiting"], q["timed_out"], q["no_disk"], q["granted"]) == (0, 1, 0, 0) and
            q["attempts"] > 5)


@pytest.mark.parametrize("mode", ["first", "host"])
def test_the_grace_ends_it_before(full, mode):
    daemon, _, tool = full(mode, "queue-grace = 200ms")
    began = time.monotonic()
    assert tool("late", "norecycle", WAIT).code("put", "k", 2 * MIB, 1, "wait") == errno.ETIMEDOUT
    assert 0.19 <= time.monotonic() - began < 30
    assert queue(daemon)["no_disk"] == 1


def test_what_can_never_fit_does_not_wait_here(full):
    daemon, _, tool = full("host")
    assert tool("huge", "norecycle", "wait=200").code("put", "k", 40 * MIB, 1,
                                                      "wait") == errno.ETIMEDOUT
    q = queue(daemon)
    assert q["waiting"] == q["timed_out"] == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_who_dies_or_stops_keeps_nobody_waiting(full, how):
    daemon, owner, tool = full("host")
    first, second = tool("first", "norecycle", WAIT), tool("second", "norecycle", WAIT)
    first.send("put", "k", 6 * MIB, 1, "wait")
    waits(daemon, 1)
    second.send("put", "k", 2 * MIB, 2, "wait")
    waits(daemon, 2)
    os.kill(first.pid, how)
    if how == signal.SIGKILL:
        first.kill()
        waits(daemon, 1)
        assert queue(daemon)["left"] == 1
    free(owner, 0, 12)
    second.receive()
    assert second.same("k", 2 * MIB, 2)
    if how == signal.SIGSTOP:
        os.kill(first.pid, signal.SIGCONT)
        first.receive()


def test_a_daemon_that_is_killed_leaves_nobody_waiting(full):
    daemon, owner, tool = full("host")
    one = tool("one", "norecycle", WAIT)
    one.send("put", "k", 2 * MIB, 1, "wait")
    waits(daemon, 1)
    daemon.kill()
    daemon.restart()
    free(owner, 0, 6)
    one.receive()
    assert one.same("k", 2 * MIB, 1)
    waits(daemon, 0)


# ---- the disk ------------------------------------------------------------------------------------


def tier(daemon):
    with daemon.wire() as wire:
        return wire.query("status")["partitions"][0]["tier"]


def with_disk(hosts, disk, mode, grace="2s", **others):
    """24 of 32 MiB are used, by what may go to the disk, and below the mark from which on the tier
    sends some there itself; nor does what is put with "noevict"."""
    _, daemon, tool = hosts(f'limit = "32MiB"\nqueue = {mode}\nqueue-grace = {grace}\n' +
                            keys(disk, **others), size="64m")
    wait_for("the tier is ready", lambda: (t := tier(daemon)) and t["state"] == "ready" and
             "path" in t)
    owner = tool("full", "norecycle")
    for i in range(24):
        owner("put", f"f{i}", MIB, i)
    assert tier(daemon)["counters"]["evictions"] == 0
    return daemon, owner, tool


def test_who_waits_has_objects_go_to_the_disk(hosts, disk):
    daemon, owner, tool = with_disk(hosts, disk, "host")
    late = tool("late", "norecycle", WAIT)
    late("put", "k", 12 * MIB, 1, "wait", "noevict")
    counters = wait_for("it is counted", lambda: (c := tier(daemon)["counters"])["evictions"] and c)
    assert queue(daemon)["granted"] == 1 and counters["original"] >= 4 * MIB
    assert late.same("k", 12 * MIB, 1) and all(owner.same(f"f{i}", MIB, i) for i in range(24))


def test_else_it_waits_for_others(hosts, disk):
    daemon, _, tool = with_disk(hosts, disk, "limits")
    assert tool("late", "norecycle", "wait=500").code("put", "k", 12 * MIB, 1, "wait",
                                                      "noevict") == errno.ETIMEDOUT
    assert tier(daemon)["counters"]["evictions"] == 0


def test_a_full_disk_is_not_waited_for(hosts, disk):
    daemon, owner, tool = with_disk(hosts, disk, "host", grace="600s", max="2MiB", level=0)
    began = time.monotonic()
    assert tool("late", "norecycle", WAIT).code("put", "k", 12 * MIB, 1, "wait",
                                                "noevict") == errno.ETIMEDOUT
    assert time.monotonic() - began < 30
    wait_for("that is what the tier says", lambda: tier(daemon)["state"] == "disk-full")
    q = queue(daemon)
    assert (q["no_disk"], q["timed_out"], q["waiting"]) == (1, 0, 0)
    # In memory there may be room all the same.
    free(owner, 15, 9)
    tool("later", "norecycle", WAIT)("put", "k", 4 * MIB, 1, "wait", "noevict")


def test_what_cannot_go_to_the_disk_is_waited_for(hosts, disk):
    """All is pinned: the tier rests after it tried, and the put waits until its deadline."""
    _, daemon, tool = hosts('limit = "32MiB"\nqueue = host\n' + keys(disk), size="64m")
    wait_for("the tier is ready", lambda: (t := tier(daemon)) and t["state"] == "ready" and
             "path" in t)
    owner = tool("full", "norecycle")
    for i in range(29):
        owner("put", f"f{i}", MIB, i, "pin")
    assert tool("late", "norecycle", "wait=1500").code("put", "k", 8 * MIB, 1, "wait",
                                                       "noevict") == errno.ETIMEDOUT
    assert queue(daemon)["timed_out"] == 1
    wait_for("the tier rests", lambda: (t := tier(daemon))["state"] == "stuck" and
             t["retry_seconds"] is not None)
