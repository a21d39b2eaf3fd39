# SPDX-License-Identifier: Apache-2.0
"""The memory arbiter in a real daemon: withheld replies, what the kernel counts, up-calls, and what
is left when somebody dies, stops or lies.

The order of grants is tested with the core (unit/test_arbiter_*.c, replay), a program's handling of
outcomes with the library. Clients here are made by hand (arbwire.py), so that they can do what no
library would.
"""
import os
import re
import signal
import subprocess
import sys

import pytest
from arbscene import MIB, SIZE, host, make_host  # noqa: F401
from arbwire import DEDICATED, DROP, HELPER, LEASE, NONBLOCK, OPS, QUIET, RELEASED
from daemon import ADMIN, Closed, wait_for
from fixture import NOBODY, ROOT

pytestmark = pytest.mark.skipif(not ROOT, reason="needs a file system of its own")


# ---- waiting -------------------------------------------------------------------------------------


def test_reply_is_withheld_until_it_fits(host):
    a, b = host.client("a"), host.client("b")
    a.task(1)
    b.task(1)
    first = a.reserved(1, 40 * MIB)
    serial, second = b.reserve(1, 40 * MIB)
    assert b.is_pending(serial) and b.state(1) == "BLOCKED"
    waiting = host.contexts()["b", 1]
    assert (waiting["state"] == "BLOCKED" and waiting["bytes"] == 40 * MIB and
            waiting["need"] == 40 * MIB)
    assert 0 < waiting["deadline_ms"] <= 60000 and waiting["pool"].startswith("shm:")
    assert a.op("RELEASE", reservation=first) == "OK"
    assert b.end(serial) == "OK" and b.state(1) == "RUNNING"
    assert b.op("RELEASE", reservation=second) == "OK"
    assert host.pool()["used"] == host.pool()["objects"]


def test_both_stuck_one_rolls_back(host):
    a, b = host.client("a"), host.client("b")
    a.task(1, priority=2)
    b.task(1, priority=1)
    a.reserved(1, 30 * MIB)
    held = b.reserved(1, 20 * MIB)
    waits, _ = a.reserve(1, 20 * MIB)
    assert a.is_pending(waits)
    stuck, _ = b.reserve(1, 20 * MIB)
    assert b.end(stuck) == "RETRY"
    assert b.op("RELEASE", reservation=held) == "OK"
    assert a.end(waits) == "OK"
    ready = b.begin("READY", context=1)
    assert b.is_pending(ready) and b.state(1) == "BUFN"
    assert a.op("TASK_END", task=1, flags=RELEASED) == "OK"
    assert b.end(ready) == "OK"
    (event,) = host.events("arbiter-retry")
    assert event["store"].endswith("/b") and event["context"] == 1 and event["why"]
    assert host.document()["totals"]["retries"] == 1
    outcomes = [(t["store"], t["outcome"]) for t in host.document("arb_log")["log"]
                if t["outcome"] != "OK"]
    assert outcomes == [("b", "RETRY")]


def test_too_big_is_said_at_once(host):
    a = host.client("a")
    a.task(1)
    capacity = host.pool()["capacity"]
    assert SIZE - SIZE // 50 < capacity < SIZE
    serial, _ = a.reserve(1, SIZE)
    outcome = a.end(serial)
    assert outcome == "TOOBIG" and outcome.bytes == capacity and str(capacity) in outcome.why
    assert a.state(1) == "RUNNING"


def test_nobody_waits_longer_than_configured(make_host):
    host = make_host("wait = 300ms\ntick = 20ms")
    a, b = host.client("a"), host.client("b")
    a.task(1)
    b.task(1)
    b.task(2)
    a.reserved(1, 40 * MIB)
    asked = [b.reserve(1, 40 * MIB)[0], b.reserve(2, 40 * MIB, timeout_ms=3600000)[0]]
    for serial in asked:
        # it says who holds what, in sizes that people read, and by the numbers that the tool takes
        outcome = b.end(serial)
        assert outcome == "TIMEDOUT" and re.fullmatch(r"it waited as long as it may .* for 40\.0 "
                                                      r"MiB of pool shm:\S+, which has 6\d\.\d "
                                                      r"MiB, of which .*"
                                                      r": task \d+:1 task1 holds 40\.0 MiB.*",
                                                      outcome.why), outcome
    soon, _ = b.reserve(1, 40 * MIB, timeout_ms=1)
    assert b.end(soon) == "TIMEDOUT"
    assert len(host.events("arbiter-timeout")) >= 1 and host.document()["totals"]["timeouts"] == 3


def test_cancel_ends_a_wait(host):
    a, b = host.client("a"), host.client("b")
    a.task(1)
    b.task(1)
    a.reserved(1, 40 * MIB)
    serial, reservation = b.reserve(1, 40 * MIB)
    assert b.op("CANCEL", context=1) == "OK"
    assert b.end(serial) == "CANCELED" and b.state(1) == "RUNNING"
    serial, _ = b.reserve(1, 30 * MIB, reservation=reservation)  # its id is free again
    assert b.op("CANCEL", task=1) == "OK" and b.end(serial) == "CANCELED"
    assert b.op("RESERVE", context=1, pool=1, bytes=40 * MIB, reservation=reservation,
                flags=NONBLOCK) == "AGAIN"
    assert b.op("UNBIND", context=1) == "OK" and b.state(1) == "UNKNOWN"


def test_quiet_answers_only_what_is_not_ok(host):
    a = host.client("a")
    a.task(1)
    quiet = a.begin("RESERVE", context=1, pool=1, bytes=MIB, reservation=7, flags=QUIET)
    assert a.is_pending(quiet) and host.pool()["used"] >= MIB
    assert a.end(a.begin("RELEASE", reservation=8, flags=QUIET)) == "INVALID"
    gone = a.begin("RELEASE", reservation=7, flags=QUIET)
    assert a.is_pending(gone) and host.pool()["used"] < MIB


def test_a_second_context_and_a_helper(host):
    a = host.client("a")
    a.task(1)
    assert a.op("TASK_BEGIN", "two", task=2, value=5) == "OK"
    assert a.op("BIND", "1,2", kind=HELPER, context=9) == "OK"
    assert a.op("BIND", "1", kind=DEDICATED, context=9) == "INVALID"
    tasks = {t["task"]: t for t in host.document()["tasks"]}
    assert tasks[2]["label"] == "two" and tasks[2]["priority"] == 5 and tasks[1]["priority"] is None
    assert host.contexts()["a", 9]["kind"] == "helper"
    assert a.op("TASK_END", task=1) == "OK" and a.op("UNBIND", "2", context=9) == "OK"
    assert not host.document()["contexts"]


# ---- what the kernel counts ----------------------------------------------------------------------


def test_what_is_written_counts_once(host):
    """A reservation and the memory that came of it are the same bytes,
    before the seal and after it."""
    a, b = host.client("a"), host.client("b")
    a.task(1)
    b.task(1)
    reservation = a.reserved(1, 20 * MIB)
    a.page.write("objects/00000001", 20 * MIB)
    assert b.op("RELEASE", reservation=b.reserved(1, 40 * MIB)) == "OK"
    serial, _ = b.reserve(1, 50 * MIB)
    assert b.is_pending(serial)
    a.page.written(20 * MIB)
    assert a.op("SEAL", reservation=reservation, bytes=20 * MIB, flags=DROP) == "OK"
    assert b.is_pending(serial), "sealed bytes were free for a moment"
    assert host.pool()["objects"] >= 20 * MIB
    a.page.remove("objects/00000001")
    assert a.op("FREED") == "OK"
    assert b.end(serial) == "OK"


def test_other_processes_files_are_seen_by_themselves(make_host):
    """Nobody says that a foreign file came or went: the next look does."""
    host = make_host("tick = 20ms")
    a = host.client("a")
    a.task(1)
    host.somebody_runs()
    foreign = os.path.join(host.place.base, "foreign")
    with open(foreign, "wb") as f:
        os.posix_fallocate(f.fileno(), 0, 30 * MIB)
    serial, _ = a.reserve(1, 40 * MIB)
    assert a.is_pending(serial)
    os.unlink(foreign)
    assert a.end(serial) == "OK"


def test_drift_shrinks_the_pool(host):
    a = host.client("a")
    a.task(1)
    host.somebody_runs()
    capacity = host.pool()["capacity"]
    with open(os.path.join(host.place.base, "foreign"), "wb") as f:
        os.posix_fallocate(f.fileno(), 0, 30 * MIB)
    serial, _ = a.reserve(1, 40 * MIB)
    assert a.is_pending(serial)
    host.wire.query("reconcile")
    pool = host.pool()
    assert pool["drift"] >= 30 * MIB and pool["capacity"] == capacity - pool["drift"]
    assert a.end(serial) == "TOOBIG"


def test_the_limit_and_the_headroom_are_kept(make_host):
    host = make_host("headroom = 8MiB", 'limit = "40MiB"')
    assert host.pool()["capacity"] == 32 * MIB
    host.wire.call("SET", 0, tail=b"limit=20MiB")
    wait_for("the limit is taken over", lambda: host.pool()["capacity"] == 12 * MIB)


def test_deleted_but_mapped_is_booked_to_who_maps_it(host):
    a = host.client("a")
    a.task(1)
    name = os.path.join(a.page.directory, "ghost")
    with open(name, "w+b") as f:
        os.posix_fallocate(f.fileno(), 0, 10 * MIB)
        os.unlink(name)
        host.wire.query("reconcile")
        pool = host.pool()
        assert pool["ghosts"] >= 10 * MIB and pool["objects"] < MIB
        assert host.document()["tasks"][0]["held"] >= 10 * MIB
    host.wire.query("reconcile")
    assert host.pool()["ghosts"] == 0 and host.document()["tasks"][0]["held"] == 0


# ---- who dies, stops, comes back -----------------------------------------------------------------


def test_killed_client_leaves_nothing(host):
    b = host.client("b")
    b.task(1)
    host.somebody_runs()
    dead = host.process("dead")
    for op, fields in (("TASK_BEGIN", {"task": 1}),
                       ("BIND", {"tail": "1", "kind": DEDICATED, "context": 1}),
                       ("RESERVE", {"context": 1, "pool": 1, "bytes": 40 * MIB, "reservation": 1}),
                       ("RESERVE", {"pool": 1, "bytes": MIB, "reservation": 2}),  # nobody's
                       ("POOL_CREATE", {"pool": 2, "bytes": MIB, "tail": "own"}),
                       ("RESERVE", {"context": 1, "pool": 2, "bytes": MIB, "reservation": 3}),
                       ("LEASE", {"pool": 1, "bytes": 4096})):
        assert dead.op(op, **fields) == "OK"
    dead.op("begin", op="RESERVE", context=1, pool=1, bytes=40 * MIB, reservation=4)
    serial, _ = b.reserve(1, 40 * MIB)
    assert b.is_pending(serial)
    dead.kill()
    assert b.end(serial) == "OK"
    document = host.document()
    assert {t["store"] for t in document["tasks"]} == {
        c["store"] for c in document["contexts"]} == {"b", "runs"}
    assert len(document["pools"]) == 1 and document["totals"]["parked"] == 0
    pool = host.pool()
    assert (pool["used"] - 40 * MIB == sum(pool[part]
                                           for part in ("objects", "coming", "evictable", "ghosts",
                                                        "leased")))


def test_what_the_dead_leave_is_on_its_way_back(host):
    """A request that waits alone beside a dead store's memory is not stuck: nobody is rolled back
    for memory that comes back by itself."""
    b = host.client("b")
    b.task(1)
    dead = host.process("dead")
    assert (dead.op("TASK_BEGIN", task=1) == "OK" and
            dead.op("BIND", tail="1", kind=DEDICATED, context=1) == "OK")
    for n in range(2000):
        dead.send("write", name=f"objects/{n:08x}", size=20 << 10)
    for n in range(2000):
        assert dead.next() == "written"
    serial, _ = b.reserve(1, 40 * MIB)
    assert b.is_pending(serial)
    dead.kill()
    assert b.end(serial) == "OK"
    assert host.document()["totals"]["retries"] == host.document()["totals"]["splits"] == 0


def test_stopped_client_stops_nobody_else(make_host):
    host = make_host("tick = 20ms")
    b, c = host.client("b"), host.client("c")
    b.task(1)
    c.task(1)
    stopped = host.process("stopped")
    assert (stopped.op("TASK_BEGIN", task=1) == "OK" and
            stopped.op("BIND", tail="1", kind=DEDICATED, context=1) == "OK")
    assert stopped.op("RESERVE", context=1, pool=1, bytes=30 * MIB, reservation=1) == "OK"
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        waits, _ = b.reserve(1, 40 * MIB, timeout_ms=800)
        assert b.is_pending(waits)
        assert c.op("RELEASE", reservation=c.reserved(1, 10 * MIB)) == "OK"  # it fits beside
        assert b.end(waits) == "TIMEDOUT"
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    assert stopped.op("RELEASE", reservation=1) == "OK"
    b.reserved(1, 40 * MIB)


def test_killed_daemon_leaves_nothing(host):
    """Clients see their connection end; the next daemon begins with what the kernel counts,
    and cuts what was leased."""
    a = host.client("a")
    a.task(1)
    a.reserved(1, 30 * MIB)
    assert a.op("LEASE", pool=1, bytes=4096) == "OK"
    assert a.page.charge(8192)
    epoch = a.page.lease()[0]
    host.daemon.kill()
    with pytest.raises((Closed, BrokenPipeError)):
        a.op("STATE", context=1)
    assert a.page.lease()[1] > 0  # as the dead one left it
    host.daemon.restart()
    host.wire = host.daemon.wire()
    wait_for("its lease is cut", lambda: a.page.lease()[1] == a.page.lease()[5])
    assert not a.page.charge(4096)
    assert host.pool()["used"] == host.pool()["objects"]
    again = host.daemon.wire()
    answer = again.register(host.uuid, "stores/a")
    assert answer.name == "REGISTERED"
    # LEASE: it is a client from here on
    message = again.call("ARB", OPS["LEASE"], 0, 0, 0, 0, 1, 0, 0, 0, 4096, 0, 0)
    assert message.name == "ARBED" and message.values[0] == 0
    assert a.page.lease()[0] not in (0, epoch)
    assert host.pool()["used"] >= host.pool()["objects"] + 8192  # what was in flight is booked
    again.close()


def test_shutdown_tells_those_who_wait(host):
    a, b = host.client("a"), host.client("b")
    a.task(1)
    b.task(1)
    a.reserved(1, 40 * MIB)
    serial, _ = b.reserve(1, 40 * MIB)
    host.daemon.stop()
    with pytest.raises(Closed) as ended:
        b.end(serial)
    assert "the daemon ends" in str(ended.value)
    assert b.page.lease()[0] == 0 and not b.page.charge(4096)
    host.daemon.restart()


# ---- bounds and lies -----------------------------------------------------------------------------


def test_what_a_client_can_make_grow_is_bounded(make_host):
    host = make_host("max-contexts = 3\nmax-tasks = 3\nmax-reservations = 3\nmax-pools = 2")
    a = host.client("a")
    for n in (1, 2, 3):
        a.task(n)
        a.reserved(n, 4096)
    assert [a.op("POOL_CREATE", "p", pool=n, bytes=4096) for n in (2, 3)] == ["OK"] * 2
    for outcome in (a.op("TASK_BEGIN", task=4), a.op("BIND", "1", kind=DEDICATED, context=4),
                    a.op("BIND", "5", kind=DEDICATED, context=1),
                    a.op("RESERVE", context=1, pool=1, bytes=1, reservation=9),
                    a.op("POOL_CREATE", "p", pool=4, bytes=1)):
        assert outcome == "REFUSED" and outcome.error == -24 and "max-" in outcome.why
    assert a.op("TASK_END", task=1, flags=RELEASED) == "OK"
    a.task(4)
    a.reserved(4, 4096)
    assert len(host.document()["tasks"]) == 3


def test_what_is_not_its_own_is_refused(host):
    a, b = host.client("a"), host.client("b")
    a.task(1)
    held = a.reserved(1, MIB)
    assert b.op("RELEASE", reservation=held) == "INVALID"
    assert b.op("TASK_END", task=1) == "INVALID"
    assert b.op("CANCEL", context=1) == "INVALID"
    assert (b.op("POOL_RESIZE", pool=1, bytes=1) == "INVALID" and
            b.op("POOL_REMOVE", pool=1) == "INVALID")
    assert b.op("RESERVE", context=1, pool=2, bytes=1, reservation=1) == "INVALID"
    assert a.op("RESERVE", context=1, pool=1, bytes=1, reservation=held) == "INVALID"
    assert a.op("RESERVE", context=1, pool=1, bytes=1, reservation=0) == "INVALID"
    assert a.op("RESERVE", "1:4096,3:4096", context=1, reservation=50) == "INVALID"
    assert a.op("RESERVE", "1:4096,", context=1, reservation=50) == "INVALID"
    for tail in ("", "x", "0", "1,", ",1", "4294967296", "-1", "1 ,2"):
        assert a.op("BIND", tail, kind=DEDICATED, context=2) == "INVALID"
    assert (a.op("RELEASE", reservation=held) == "OK" and a.op("RELEASE", reservation=held) ==
            "INVALID")
    with pytest.raises(Closed, match="no such operation"):
        b.op(99)


def test_all_or_nothing_of_two_pools(host):
    a = host.client("a")
    a.task(1)
    host.somebody_runs()
    assert a.op("POOL_CREATE", "own", pool=2, bytes=MIB) == "OK"
    full = a.reserved(1, MIB, pool=2)
    serial = a.begin("RESERVE", f"1:{MIB},2:{MIB}", context=1, reservation=100, timeout_ms=60000)
    assert a.is_pending(serial) and host.pool("shm:")["used"] < MIB
    assert a.op("RELEASE", reservation=full) == "OK"
    outcome = a.end(serial)
    assert outcome == "OK" and outcome.reservation == 100
    assert host.pool("own")["used"] == MIB and host.pool("shm:")["used"] >= MIB
    assert a.op("RELEASE", reservation=100) == "OK" and a.op("RELEASE", reservation=101) == "OK"


def test_without_a_store_and_where_it_is_off(make_host, host):
    with host.daemon.wire() as wire:
        assert wire.call("ARB", 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0).values[0] == -2
    off = make_host("enabled = no")
    outcome = off.client("a").op("TASK_BEGIN", task=1)
    assert outcome == "REFUSED" and outcome.error == -95 and "enabled" in outcome.why
    assert off.document()["enabled"] is False and off.document("arb_log")["log"] == []
    assert off.document("status")["arbiter"] is None


# ---- operators -----------------------------------------------------------------------------------


def test_orders_of_an_operator(host):
    a, b = host.client("a"), host.client("b")
    a.task(1)
    b.task(1)
    path = host.place.path.encode()

    def order(op, kind=0, target=0, value=0):
        return host.wire.call("ARB_ADMIN", op, kind, 0, target, value, 0, 0, tail=path)

    assert order(1, 1, value=7).name == "DONE" and host.document()["knobs"]["max_bypass"] == 7
    assert order(1, 99, value=7).name == "REFUSED"
    a.reserved(1, 40 * MIB)
    serial, _ = b.reserve(1, 40 * MIB)
    assert order(3, target=host.contexts()["b", 1]["id"]).name == "DONE"
    assert b.end(serial) == "CANCELED"
    assert order(2, 2, target=host.contexts()["b", 1]["id"], value=1).name == "DONE"
    assert b.end(b.reserve(1, 4096)[0]) == "SPLIT"
    assert order(3, target=1 << 50).name == "REFUSED"
    with host.daemon.wire() as wire:
        assert wire.call("ARB_ADMIN", 1, 1, 0, 0, 7, 0, 0, tail=b"/nowhere").values[0] == -2
    host.reload("max-bypass = 5\nwait = 100ms\ntick = 20ms")
    assert (host.document()["knobs"]["max_bypass"] == 5 and host.document()["knobs"]["wait_ms"] ==
            100)
    assert b.end(b.reserve(1, 40 * MIB)[0]) == "TIMEDOUT"


def test_others_are_not_seen_by_name(host):
    a = host.client("a")
    a.task(1)
    code = "\n".join(["import sys, json", "sys.path.insert(0, sys.argv[1])",
                      "from daemon import Wire", "w = Wire(sys.argv[2])",
                      "print(json.dumps([w.query('arbiter')['partitions'][0], "
                      "w.query('arb_log')['partitions'][0]['log']]))",
                      "print(w.call('ARB_ADMIN', 1, 1, 0, 0, 7, 0, 0, "
                      "tail=sys.argv[3].encode()).values[0])"])
    result = subprocess.run([sys.executable, "-c", code, os.path.dirname(__file__),
                             host.daemon.socket, host.place.path], capture_output=True, text=True,
                            user=NOBODY, extra_groups=[], check=True)
    document, refused = result.stdout.splitlines()
    import json
    arbiter, log = json.loads(document)
    assert (arbiter["tasks"] == [] and arbiter["contexts"] == [] and log == [] and
            arbiter["totals"]["tasks"] == 1)
    assert refused == "-1"


def test_metrics_and_status(make_host):
    host = make_host(http=True)
    a, b = host.client("a"), host.client("b")
    a.task(1)
    b.task(1)
    a.reserved(1, 40 * MIB)
    serial, _ = b.reserve(1, 40 * MIB)
    assert b.is_pending(serial)
    status = host.daemon.api("status")["partitions"][0]["arbiter"]
    assert (status["parked"] == 1 and status["states"]["BLOCKED"] == 1 and
            status["states"]["RUNNING"] == 1 and status["level"] == 1)
    metrics = host.daemon.get("/metrics")
    label = f'{{partition="{host.place.path}"}}'
    assert (f"shmstore_arbiter_parked{label} 1" in metrics and f"shmstore_arbiter_tasks{label} 2" in
            metrics)
    assert f"shmstore_arbiter_retries_total{label} 0" in metrics
    assert {c["state"] for c in host.daemon.api("arbiter")["partitions"][0]["contexts"]} == {
        "BLOCKED", "RUNNING"}


# ---- what can be had back ------------------------------------------------------------------------


def test_the_disk_tier_makes_room(make_host, tmp_path):
    disk = subprocess.run(["mktemp", "-d", "-p", os.environ.get("SHMSTORE_TEST_DISK", "/var/tmp")],
                          capture_output=True, text=True, check=True).stdout.strip()
    try:
        host = make_host("tick = 20ms", f'disk.path = "{disk}"\ndisk.min-free = 0\ndisk.high = '
                                        f'100%\ndisk.low = 99%')
        wait_for("the tier is ready", lambda: (host.document("status")["tier"] or {}).get("path"))
        from fixture import Tool
        tool = Tool(host.place.path, prefix=("env", f"SHMSTORE_SOCKET={host.daemon.socket}"))
        tool("open", "tool", "daemon=required")
        for n in range(10):
            tool("put", f"k{n}", 4 * MIB, n)
        a = host.client("a")
        a.task(1)
        wait_for("it is known what can be demoted", lambda: host.pool()["evictable"] >= 30 * MIB)
        serial, _ = a.reserve(1, 40 * MIB)
        assert a.end(serial) == "OK"
        assert host.place.used() <= SIZE - 40 * MIB
        wait_for("what was demoted is counted",
                 lambda: host.document("status")["tier"]["n_demoted"] > 0)
        tool.end()
    finally:
        subprocess.run(["rm", "-rf", disk], check=True)
