# SPDX-License-Identifier: Apache-2.0
"""Stores and a real shmstored: registration, limits as a program meets them, and a daemon that
dies, hangs and comes again."""
import errno
import os
import signal

import pytest
from daemon import wait_for
from fixture import ROOT

MIB = 1 << 20


def registered(tool):
    """Where the machine is busy a greeting may take longer than opening waits for it."""
    return wait_for("it is registered", lambda: tool("dispatch")[0] == "1")


def workers(daemon):
    """{store name: registered} as the daemon says."""
    with daemon.wire() as wire:
        document = wire.query("workers")
    rows = document.get("workers") or [row for p in document["partitions"] for row in p["workers"]]
    return {row["name"]: bool(row.get("registered")) for row in rows}


# ---- registration --------------------------------------------------------------------------------


def test_modes(hosts):
    _, daemon, tool = hosts()
    auto, required, off = tool("auto"), tool("required", "daemon=required"), tool(
        "off", "daemon=off")
    assert registered(auto) and registered(required)
    assert off("dispatch")[0] == "0"
    # A store that does not register is found by the scan all the same; it has no connection.
    seen = wait_for("all three seen", lambda: len(found := workers(daemon)) == 3 and found)
    assert seen == {"auto": True, "required": True, "off": False}
    auto("close")
    wait_for("a closed store is gone", lambda: "auto" not in workers(daemon))


def test_required_without_a_daemon(plain_cluster):
    tool = plain_cluster.tool(prefix=("env", "SHMSTORE_SOCKET=/nonexistent/shmstored"))
    assert tool.code("open", "a", "daemon=required") == errno.ETIMEDOUT
    assert plain_cluster.place.names("stores") == []
    tool("open", "a")
    assert tool("asked")[0] == "0"


def test_store_is_registered_again_after_a_restart(hosts):
    _, daemon, tool = hosts()
    a = tool("a")
    assert registered(a)
    daemon.kill()
    a("put", "k", MIB, 1)
    assert a.same("k", MIB, 1)
    daemon.restart()

    def comes_back():
        a("put", "k", MIB, 2, "replace")
        return workers(daemon) == {"a": True}

    wait_for("a put finds the daemon", comes_back)
    assert registered(a)
    a("delete", "k")


def test_idle_store_is_registered_again_by_its_event_loop(hosts):
    _, daemon, tool = hosts()
    a = tool("a")
    daemon.kill()
    wait_for("the end is heard", lambda: a("dispatch")[0] == "0")
    daemon.restart()
    wait_for("dispatch finds the daemon", lambda: a("dispatch")[0] == "1")


def test_kept_store_taken_over_is_registered_and_limited(hosts):
    """The same page, another owner: the daemon must not take it for the dead one's."""
    _, daemon, tool = hosts('limit = "32MiB"')
    a = tool("a", "keep")
    a("put", "k", MIB, 1)
    a.kill()
    b = tool("a", "keep")
    assert b.same("k", MIB, 1)
    assert registered(b)
    wait_for("the daemon knows", lambda: workers(daemon) == {"a": True})
    n, code = fill(b)
    assert code == errno.ENOSPC
    assert 24 <= n <= 31
    b("close")
    c = tool("a", "fresh")
    c("close")


# ---- limits --------------------------------------------------------------------------------------


def fill(tool, size=MIB, most=1000):
    """Puts until it is refused: how many went, and why no more."""
    for n in range(most):
        code = tool.code("put", f"f{n}", size, n)
        if code:
            return n, code
    return most, 0


def test_partition_limit_is_enospc_and_room_helps(hosts):
    cluster, _, tool = hosts('limit = "32MiB"')
    a, b = tool("a"), tool("b", "wait=60000")
    n, code = fill(a)
    assert code == errno.ENOSPC
    assert 25 <= n <= 32
    if cluster.place.mounted:
        assert cluster.place.used() <= 32 * MIB
    b.send("put", "late", MIB, 7, "wait")
    a("delete", "f0")
    a("delete", "f1")
    b.receive()
    assert b.same("late", MIB, 7)


def test_wait_ends_with_its_time(hosts):
    _, _, tool = hosts('limit = "8MiB"')
    a = tool("a", "wait=100")
    fill(a)
    assert a.code("put", "k", MIB, 1, "wait") == errno.ETIMEDOUT


@pytest.mark.parametrize("kind", ["user", "label", "store"])
def test_other_limits_are_edquot(hosts, kind):
    name = {"user": str(os.geteuid()), "label": "batch", "store": "a"}[kind]
    _, _, tool = hosts(f'{kind} "{name}" {{ limit = "16MiB" }}')
    a, b = tool("a", "label=batch"), tool("b", "label=other")
    n, code = fill(a)
    assert code == errno.EDQUOT
    assert 12 <= n <= 16
    n, code = fill(b, most=20)
    assert (n == 0 and code == errno.EDQUOT) if kind == "user" else (n == 20 and code == 0)
    # A store may take again the memory that it gives back.
    a("delete", "f0")
    a("delete", "f1")
    wait_for("room again", lambda: a.code("put", "again", MIB, 1) == 0)


def test_adopt_counts_for_the_store(hosts):
    _, _, tool = hosts('store "a" { limit = "4MiB" }')
    a, b = tool("a"), tool("b")
    for i in range(6):
        b("put", f"k{i}", MIB, i)
    tickets = [b("handoff", f"k{i}", 60000)[0] for i in range(6)]
    codes = [a.code("adopt", f"k{i}", ticket) for i, ticket in enumerate(tickets)]
    assert codes[0] == 0
    assert codes[-1] == errno.EDQUOT
    assert sum(code == 0 for code in codes) in (3, 4)
    # The leases that were refused are good still.
    assert [b.code("adopt", f"again{i}", ticket) for i, ticket in enumerate(tickets)
            if codes[i]] == [0] * codes.count(errno.EDQUOT)


def test_soft_limit_asks(hosts):
    _, _, tool = hosts('limit = "64MiB"\nsoft = "16MiB"')
    a = tool("a")
    for i in range(24):
        a("put", f"k{i}", MIB, i)
    asked = wait_for("it is asked", lambda: int(a("asked")[1]))
    assert asked > 0
    for i in range(24):
        a("delete", f"k{i}")
    wait_for("nothing is asked any more", lambda: int(a("asked")[1]) == 0)


# ---- a daemon that dies or hangs -----------------------------------------------------------------


@pytest.mark.parametrize("body", ["", 'limit = "400MiB"'], ids=["unlimited", "limited"])
def test_daemon_killed_under_load_of_eight(hosts, body, tmp_path):
    """kill -9, again and again, while eight stores put, get, hand over and delete: no error, no
    wrong byte, the limit holds."""
    cluster, daemon, tool = hosts(body, size="800m")
    tools = [tool(f"s{i}") for i in range(8)]
    for i, one in enumerate(tools):
        one.send("churn", 2000, i + 1, "until", tmp_path / "enough")
    most = 0
    for _ in range(4):
        wait_for("some stores are registered", lambda: sum(workers(daemon).values()) >= 4)
        daemon.kill()
        most = max(most, cluster.place.used())
        daemon.restart()
    (tmp_path / "enough").touch()
    for one in tools:
        n_ok, n_refused, n_other, n_wrong = map(int, one.receive())
        assert n_ok > 100
        assert (n_refused, n_other, n_wrong) == (0, 0, 0)
    if body and cluster.place.mounted:
        assert most <= 400 * MIB
    for one in tools:
        one("close")


def test_daemon_restarted_in_order_under_load(hosts, tmp_path):
    """SIGTERM and a new start, as an upgrade does it: no error either."""
    _, daemon, tool = hosts('limit = "200MiB"')
    tools = [tool(f"s{i}") for i in range(4)]
    for i, one in enumerate(tools):
        one.send("churn", 2000, i + 1, "until", tmp_path / "enough")
    for _ in range(2):
        wait_for("some stores are registered", lambda: sum(workers(daemon).values()) >= 2)
        daemon.stop()
        daemon.restart()
    (tmp_path / "enough").touch()
    for one in tools:
        n_ok, n_refused, n_other, n_wrong = map(int, one.receive())
        assert n_ok > 100
        assert (n_refused, n_other, n_wrong) == (0, 0, 0)


def test_limits_hold_while_the_daemon_is_dead(hosts):
    cluster, daemon, tool = hosts('limit = "32MiB"')
    tools = [tool(f"s{i}") for i in range(4)]
    for i, one in enumerate(tools):
        one("put", "first", MIB, i)
    daemon.kill()
    # opened with nobody to register with: the limits are in the others' pages
    tools.append(tool("late"))
    for one in tools:
        one.send("churn", 1500, 5)
    for one in tools:
        n_ok, _, n_other, n_wrong = map(int, one.receive())
        assert n_ok > 0
        assert (n_other, n_wrong) == (0, 0)
    refusals = [fill(one) for one in tools]
    assert all(code in (errno.ENOSPC, errno.EDQUOT) for _, code in refusals)
    if cluster.place.mounted:
        assert cluster.place.used() <= 32 * MIB + 8 * 4096  # the stores' own pages
    daemon.restart()


def test_daemon_that_hangs_stops_nobody(hosts):
    _, daemon, tool = hosts()
    a = tool("a")
    assert registered(a)
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        for i in range(20):
            a("put", f"k{i}", MIB, i)
        b = tool("b")  # opened while it hangs
        b("put", "k", MIB, 1)
        assert b("asked")[0] == "0"
        assert b.code("open", "c", "daemon=required") == errno.ETIMEDOUT
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    wait_for("b is heard when the daemon goes on", lambda: b("dispatch")[0] == "1")
    assert registered(a)


@pytest.mark.skipif(not ROOT, reason="needs a file system of a size of its own")
def test_killed_client_leaves_its_credit_to_others(hosts):
    _, _, tool = hosts('limit = "24MiB"')
    a = tool("a")
    fill(a)
    a.kill()
    b = tool("b")
    wait_for("room of the dead", lambda: b.code("put", "k", 16 * MIB, 1) == 0)
