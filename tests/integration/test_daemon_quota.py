# SPDX-License-Identifier: Apache-2.0
"""Limits of a real daemon against real processes: what df says while they put, die, stop and
wait, and who is served when.

The library's handling of a limit is tested by test_daemon_client.py; the
sums' histories by test_quota_model.c.
"""
import errno
import os
import signal
import threading
import time

import pytest
from daemon import Closed, wait_for
from fixture import ROOT

MIB = 1 << 20


class Df:
    """Reads what is used, as fast as it can, until stop(): the most that it saw."""

    def __init__(self, place):
        self.place = place
        self.most = 0
        self.n = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            self.most = max(self.most, self.place.used())
            self.n += 1

    def stop(self):
        self.over.set()
        self.thread.join()
        assert self.n > 100
        return self.most


@pytest.fixture
def df():
    """df(place): a sampler that ends with the test."""
    samplers = []

    def make(place):
        if not place.mounted:
            pytest.skip("needs a file system of its own")
        samplers.append(Df(place))
        return samplers[-1]

    yield make
    for sampler in samplers:
        sampler.over.set()
        sampler.thread.join()


def limits(daemon):
    """{(kind, id): line} of the daemon's QUOTA."""
    with daemon.wire() as wire:
        document = wire.query("quota")
    (partition,) = document["partitions"]
    return {(line["kind"], line["id"]): line for line in partition["limits"]}


def partition_line(daemon):
    return limits(daemon)["partition", ""]


def events(daemon, name):
    with daemon.wire() as wire:
        return [event for event in wire.query("events")["events"] if event["event"] == name]


def set_limit(daemon, text):
    with daemon.wire() as wire:
        return wire.call("SET", 0, tail=text.encode())


def fill(tool, size=MIB, most=1000, key="f"):
    for n in range(most):
        code = tool.code("put", f"{key}{n}", size, n)
        if code:
            return n, code
    return most, 0


# ---- df never above ------------------------------------------------------------------------------


PACKED = "pack=300000"  # most of what churn puts


@pytest.mark.parametrize("huge, packed", [("never", []), ("within_size", []),
                                          ("within_size", [PACKED])])
def test_partition_limit_holds_against_six(hosts, df, huge, packed):
    cluster, daemon, tool = hosts('limit = "40MiB"', huge=huge)
    tools = [tool(f"s{i}", *packed, *(["norecycle"] if i % 2 else [])) for i in range(6)]
    sampler = df(cluster.place)
    for i, one in enumerate(tools):
        one.send("churn", 2500, i + 1)
    for one in tools:
        n_ok, _, n_other, n_wrong = map(int, one.receive())
        assert n_ok > 0 and (n_other, n_wrong) == (0, 0)
    for one in tools:
        fill(one, MIB // 2, 100)
    assert sampler.stop() <= 40 * MIB
    assert events(daemon, "quota-refused")


@pytest.mark.parametrize("kind, packed", [("user", []), ("label", []), ("label", [PACKED])])
def test_group_limit_holds_against_four(hosts, df, kind, packed):
    """All of df is theirs here, but for the partition's own page."""
    name = str(os.geteuid()) if kind == "user" else "batch"
    cluster, daemon, tool = hosts(f'{kind} "{name}" {{ limit = "24MiB" }}')
    tools = [tool(f"s{i}", "label=batch", *packed) for i in range(4)]
    sampler = df(cluster.place)
    for i, one in enumerate(tools):
        one.send("churn", 1500, i + 1)
    for one in tools:
        n_ok, _, n_other, n_wrong = map(int, one.receive())
        assert n_ok > 0 and (n_other, n_wrong) == (0, 0)
    codes = {fill(one, MIB // 2, 100)[1] for one in tools}
    assert codes == {errno.EDQUOT}
    # The stores' own pages are counted by the next survey only.
    assert sampler.stop() <= 24 * MIB + 5 * 4096
    assert limits(daemon)[kind, name]["refused"] > 0


@pytest.mark.parametrize("packed", [[], [PACKED]])
def test_limit_holds_while_daemon_and_clients_are_killed(hosts, df, tmp_path, packed):
    cluster, daemon, tool = hosts('limit = "48MiB"')
    tools = [tool(f"s{i}", *packed) for i in range(5)]
    sampler = df(cluster.place)
    for i, one in enumerate(tools):
        one.send("churn", 2000, i + 1, "until", tmp_path / "enough")
    for i in range(3):
        wait_for("credit is out", lambda: partition_line(daemon)["outstanding"] > 0)
        daemon.kill()
        if i == 1:
            tools.pop().kill()
        daemon.restart()
    (tmp_path / "enough").touch()
    for one in tools:
        n_ok, _, n_other, n_wrong = map(int, one.receive())
        assert n_ok > 0 and (n_other, n_wrong) == (0, 0)
    for one in tools:
        fill(one)
    assert sampler.stop() <= 48 * MIB
    line = partition_line(daemon)
    assert line["used"] + line["outstanding"] <= line["hard"] == 48 * MIB


# ---- waiting -------------------------------------------------------------------------------------


def waiting(daemon, n):
    return wait_for(f"{n} wait", lambda: partition_line(daemon)["waiting"] == n)


@pytest.mark.skipif(not ROOT, reason="needs a file system of its own")
def test_first_come_first_served(hosts):
    """A large request first, two small ones behind it: room for one small one serves nobody."""
    _, daemon, tool = hosts('limit = "32MiB"')
    full = tool("full", "norecycle")
    fill(full)
    tools = [tool(f"w{i}", "norecycle", "wait=60000") for i in range(3)]
    for i, one in enumerate(tools):
        one.send("put", "k", 6 * MIB if i == 0 else 2 * MIB, i, "wait")
        waiting(daemon, i + 1)
    for i in range(3):
        full("delete", f"f{i}")
    # This one comes after the room, and must not have it: it is asked for after the daemon
    # looked, by this very request.
    late = tool("late", "norecycle")
    assert late.code("put", "k", MIB, 1) == errno.ENOSPC
    assert partition_line(daemon)["waiting"] == 3
    for i in range(3, 8):
        full("delete", f"f{i}")
    tools[0].receive()
    assert tools[0].same("k", 6 * MIB, 0)
    for i in range(8, 14):
        full("delete", f"f{i}")
    for i, one in enumerate(tools[1:], 1):
        one.receive()
        assert one.same("k", 2 * MIB, i)
    waiting(daemon, 0)


def test_wait_times_out_and_names_nobody_else(hosts):
    _, daemon, tool = hosts('limit = "8MiB"')
    full, waits = tool("full", "norecycle"), tool("waits", "wait=300")
    fill(full)
    began = time.monotonic()
    assert waits.code("put", "k", 2 * MIB, 1, "wait") == errno.ETIMEDOUT
    assert time.monotonic() - began >= 0.29
    waiting(daemon, 0)


def test_who_waits_and_dies_waits_no_more(hosts):
    _, daemon, tool = hosts('limit = "16MiB"')
    full, first, second = tool("full", "norecycle"), tool("first", "wait=60000"), tool(
        "second", "wait=60000")
    fill(full)
    first.send("put", "k", 12 * MIB, 1, "wait")
    waiting(daemon, 1)
    second.send("put", "k", MIB, 2, "wait")
    waiting(daemon, 2)
    first.kill()
    waiting(daemon, 1)
    full("delete", "f0")
    full("delete", "f1")
    second.receive()


# ---- credit comes back ---------------------------------------------------------------------------


def test_killed_clients_credit_comes_back(hosts):
    _, daemon, tool = hosts('limit = "200MiB"')
    tools = [tool(f"s{i}") for i in range(3)]
    for one in tools:
        one("put", "k", MIB, 1)
    assert partition_line(daemon)["outstanding"] > 3 * MIB
    for one in tools:
        one.kill()
    wait_for("credit of the dead is free", lambda: partition_line(daemon)["outstanding"] == 0)
    wait_for("and their memory", lambda: partition_line(daemon)["used"] < MIB)


def test_idle_credit_comes_back(hosts):
    _, daemon, tool = hosts('limit = "200MiB"', text='daemon { credit-idle = "1s" }')
    a = tool("a")
    a("put", "k", MIB, 1)
    assert partition_line(daemon)["outstanding"] > MIB
    wait_for("idle credit is taken back", lambda: partition_line(daemon)["outstanding"] == 0)
    a("put", "again", MIB, 2)


def test_stopped_clients_credit_is_taken(hosts):
    """A stopped process answers nothing; its credit is taken through its page."""
    _, daemon, tool = hosts('limit = "64MiB"')
    a, b = tool("a"), tool("b", "wait=60000")
    a("put", "k", MIB, 1)
    held = partition_line(daemon)["outstanding"]
    assert held > 8 * MIB
    os.kill(a.pid, signal.SIGSTOP)
    try:
        b("put", "k", 60 * MIB, 1, "wait")
    finally:
        os.kill(a.pid, signal.SIGCONT)
    assert a.code("put", "more", 8 * MIB, 2) == errno.ENOSPC
    b("delete", "k")
    wait_for("room again", lambda: a.code("put", "more", 8 * MIB, 2) == 0)


# ---- at run time ---------------------------------------------------------------------------------


def test_set(hosts):
    cluster, daemon, tool = hosts()
    path = cluster.place.path
    a = tool("a", "label=batch", "norecycle")
    a("put", "k", 4 * MIB, 1)
    assert set_limit(daemon, "limit=8MiB").name == "DONE"
    assert fill(a)[1] == errno.ENOSPC
    assert partition_line(daemon)["hard"] == 8 * MIB
    assert set_limit(daemon, f"{path} limit=none").name == "DONE"
    assert a.code("put", "k2", 8 * MIB, 1) == 0
    assert set_limit(daemon, f"{path} label.batch.limit=14MiB").name == "DONE"
    # The label's use is known from the survey that this asks for.
    wait_for("the label's books", lambda: limits(daemon)["label", "batch"]["used"] >= 12 * MIB)
    assert fill(a, key="g")[1] == errno.EDQUOT
    assert set_limit(daemon, "label.batch.limit=default").name == "DONE"
    assert a.code("put", "k3", 8 * MIB, 1) == 0
    assert set_limit(daemon, "store.a.limit=1MiB").name == "DONE"
    assert a.code("put", "k4", MIB, 1) == errno.EDQUOT
    assert set_limit(daemon, "limit=50%").name == "DONE"
    assert partition_line(daemon)["hard"] == 256 * MIB or not cluster.place.mounted
    assert len(events(daemon, "limit-set")) == 6


@pytest.mark.parametrize("text, word", [("limit", "KEY=VALUE"), ("limits=1G", "limits"),
                                        ("limit=much", "much"), ("/nowhere limit=1G", "/nowhere"),
                                        ("user..limit=1G", "user"),
                                        ("user.nobody-of-that-name.limit=1G",
                                         "nobody-of-that-name"),
                                        ("soft=1G", None), ("label.a.hard=1G", "hard"),
                                        ("limit=-1", "-1"), ("=1G", "")])
def test_set_refuses_with_a_reason(hosts, text, word):
    _, daemon, _ = hosts('limit = "64MiB"')
    answer = set_limit(daemon, text)
    assert answer.name == "REFUSED"
    assert (word or "soft") in answer.text
    assert partition_line(daemon)["hard"] == 64 * MIB


def test_reload_keeps_what_was_set(hosts):
    cluster, daemon, _ = hosts('limit = "64MiB"\nuser "7" { limit = "8MiB" }\nlabel "x" { limit = '
                               '"4MiB" }')
    assert set_limit(daemon, "user.7.limit=9MiB").name == "DONE"
    daemon.write_config(f'partition "{cluster.place.path}" {{ limit = "32MiB"\nuser "7" {{ limit = '
                        f'"5MiB" }}\nuser "8" {{ limit = "6MiB" }} }}')
    daemon.reload()
    wait_for("the new limit", lambda: partition_line(daemon)["hard"] == 32 * MIB)
    lines = limits(daemon)
    assert lines["user", "7"]["hard"] == 9 * MIB
    assert lines["user", "8"]["hard"] == 6 * MIB
    assert ("label", "x") not in lines or lines["label", "x"]["hard"] is None


# ---- the protocol --------------------------------------------------------------------------------


def test_grant_without_a_store_is_refused(hosts):
    _, daemon, _ = hosts('limit = "64MiB"')
    with daemon.wire() as wire:
        answer = wire.grant(MIB)
        assert answer.name == "REFUSED" and answer.values[0] == -errno.ENOENT
        assert wire.call("CANCEL", 99).name == "DONE"
        wire.ping()


@pytest.mark.parametrize("values", [(0, 0, 0, 0, 0), ((1 << 46) + 1, 0, 0, 0, 0), (1, 0, 0, 2, 0),
                                    (1, 0, 0, 0, 1)],
                         ids=["nothing", "too-much", "unknown-flag", "reserved"])
def test_malformed_grant_ends_its_client(hosts, values):
    _, daemon, _ = hosts('limit = "64MiB"')
    with daemon.wire() as wire, daemon.wire() as other:
        with pytest.raises(Closed) as closed:
            wire.call("GRANT", *values)
        assert closed.value.reason
        other.ping()


def test_none_exempts_one_user_from_the_default(hosts):
    """limit = none is none, not "as * says": this user puts more than the default
    allows; a label keeps it."""
    _, daemon, tool = hosts(body=f'user "*" {{ limit = 2MiB }}\nuser "{os.geteuid()}" {{ limit = '
                                 f'none }}\n'
                                 'label "*" { limit = 64MiB }', size="128m")
    store = tool("exempt")
    for i in range(6):
        store("put", f"k{i}", MIB, i)
    line = limits(daemon)[("user", str(os.geteuid()))]
    assert not line["hard"], line
    daemon.admin("set", f"user.{os.geteuid()}.limit=2MiB")
    assert limits(daemon)[("user", str(os.geteuid()))]["hard"] == 2 * MIB
    assert store.code("put", "more", 4 * MIB, 1) == errno.EDQUOT
