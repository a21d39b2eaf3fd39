# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin arb: a real daemon, real clients that wait, are rolled back and cancelled, and
what an operator sees of it and can do about it.

The order of grants is tested with the core and the daemon (replay, test_daemon_arbiter.py). Here:
that what is shown is so, that an order does what it says to whom it says, and that what cannot be
is refused in words.
"""
import csv
import datetime
import io
import json
import re
import time

import pytest
from admin_support import NOBODY, SOURCE, Admin, terminal  # noqa: F401
from arbwire import DEDICATED, RELEASED, Client, Process
from daemon import Daemon, wait_for
from fixture import ROOT, Place

MIB = 1 << 20
SIZE = 64 * MIB
SUBCOMMANDS = ("top", "threads", "tasks", "pools", "log", "inject", "cancel", "set")

pytestmark = pytest.mark.skipif(not ROOT, reason="needs a file system of its own")


class Host:
    """A partition of 64 MiB, its daemon, clients, and shmstore-admin that asks it."""

    def __init__(self, config=""):
        self.place = Place(size=f"{SIZE}")
        self.clients = []
        try:
            self.daemon = Daemon(self.place.path, http=False,
                                 config=f'{config}\npartition "{self.place.path}" {{ create = yes '
                                        f'}}')
        except BaseException:
            self.place.remove()
            raise
        with self.daemon.wire() as wire:
            self.uuid = wire.query("status")["partitions"][0]["uuid"]
        self.env = {"SHMSTORE_SOCKET": self.daemon.socket}
        self.tool = Admin(self.place.path, env=self.env)

    def client(self, name, kind=Client):
        self.clients.append(kind(self.daemon.socket, self.place.path, self.uuid, name))
        return self.clients[-1]

    def arb(self, *args, code=0):
        return self.tool("arb", *args, code=code)

    def ended(self):
        return self.tool.json("arb", "tasks", "--ended")["partitions"][0]["ended"]

    def document(self, what="threads"):
        return self.tool.json("arb", what)["partitions"][0]

    def context(self, store, number=1):
        """Of the JSON document, and its id as people write it."""
        found, = (c for c in self.document()["contexts"] if (c["store"], c["context"]) == (
            store, number))
        return found, f"{found['id'] >> 32}:{found['id'] & 0xffffffff}"

    def close(self):
        try:
            for client in self.clients:
                client.close()
            self.daemon.close()
        finally:
            self.place.remove()


@pytest.fixture
def host():
    h = Host()
    yield h
    h.close()


def waiting_pair(host):
    """a holds 40 MiB; b holds 8 and waits for 40. b's withheld call."""
    a, b = host.client("a"), host.client("b")
    a.task(1, priority=2)
    b.task(1, priority=1)
    a.reserved(1, 40 * MIB)
    b.reserved(1, 8 * MIB)
    serial, _ = b.reserve(1, 40 * MIB)
    assert b.is_pending(serial)
    return a, b, serial


# ---- looking -------------------------------------------------------------------------------------


def test_who_waits_for_what_and_why(host):
    waiting_pair(host)
    context, identity = host.context("b")
    assert (context["state"], context["kind"], context["label"], context["priority"]) == (
        "BLOCKED", "dedicated", "task1", 1)
    assert (context["bytes"], context["held"], context["need"]) == (40 * MIB, 8 * MIB, 48 * MIB)
    assert context["pool"] == f"shm:{host.place.path}" and "does not fit" in context["reason"]
    text = host.arb("threads").out
    first, second = text.splitlines()[2:4]
    assert re.match(rf" *{identity} b +\d+ dedicated BLOCKED +\d+\.\d s +1 shm:\S+ 40\.0 MiB 8\.0+ "
                    rf"MiB 48\.0 MiB +0 +{identity} task1 +does not fit", first), text
    assert re.search(r" a +\d+ dedicated RUNNING ", second), text
    assert [line.split()[1] for line in host.arb("threads", "--sort",
                                                 "store").out.splitlines()[2:4]] == ["a", "b"]
    tasks = {t["store"]: t for t in host.document("tasks")["tasks"]}
    assert (tasks["a"]["held"], tasks["a"]["stalled"], tasks["b"]["held"],
            tasks["b"]["stalled"]) == (40 * MIB, False, 8 * MIB, True)
    assert re.search(r" b +\d+ task1 +1 .*8\.0+ MiB +1 yes ", host.arb("tasks").out)
    pool, = host.document("pools")["pools"]
    assert pool["waiting"] == 1 and pool["level"] == 1 and pool["used"] >= 48 * MIB
    line = host.arb("pools").out.splitlines()[2]
    assert line.startswith(f"shm:{host.place.path} ") and " 1 waiting " in line
    assert f" {pool['used']} " in host.arb("pools", "--bytes").out


def test_tasks_that_have_ended_are_shown_with_what_they_lost(host):
    """Also of a store that is gone: without its name, which nobody knows then."""
    a, b = waiting_pair(host)[:2]
    assert (host.document("tasks").get("ended") is None and
            "no tasks" in host.arb("tasks", "--ended").out)
    assert a.op("TASK_END", task=1, flags=RELEASED) == "OK"
    host.clients.remove(b)
    b.close()
    wait_for("the end of b", lambda: len(host.ended()) == 2)
    first, second = host.ended()
    assert (first["store"], first["label"], first["held"], second["store"], second["pid"],
            second["label"]) == ("a", "task1", 0, None, None, "task1")
    assert second["blocked_ms"] >= 0 and [t["store"] for t in host.document("tasks")["tasks"]] == []
    lines = host.arb("tasks", "--ended").out.splitlines()
    assert len([line for line in lines if " task1 " in line]) == 2, lines


def test_nobody_there(host):
    assert "no contexts" in host.arb("threads").out and "no tasks" in host.arb("tasks").out
    assert host.arb("log").out.count("\n") == 1
    assert "no contexts" in host.arb("top", "-n", "1").out


def test_every_json_member_is_in_the_man_page(host):
    waiting_pair(host)
    words = set(re.findall(r"[a-z_]+", (SOURCE / "docs" / "man" / "shmstore-admin.1").read_text()))

    def members(value):
        for name, inner in (value.items() if isinstance(value, dict) else ((None, i) for i in value)
                            if isinstance(value, list) else ()):
            yield from [name] if name else []
            yield from members(inner)

    _, identity = host.context("b")
    for command in (["threads"], ["log"], ["inject", "retry", identity], ["cancel", identity],
                    ["set", "max_bypass", "64"]):
        found = set(members(host.tool.json("arb", *command)))
        assert found and found <= words, found - words


def test_log_is_csv(host):
    a, b, serial = waiting_pair(host)
    other, _ = a.reserve(1, 24 * MIB)  # now both are stuck: b is the lower one
    assert b.end(serial) == "RETRY"
    rows = list(csv.DictReader(io.StringIO(host.arb("log").out), strict=True))
    assert list(rows[0])[:8] == ["time", "op", "current thread", "op thread", "op task", "from",
                                 "to", "notes"]
    assert all(None not in row and None not in row.values() for row in rows)
    _, of_a = host.context("a")
    _, of_b = host.context("b")
    moved = [(row["from"], row["to"], row["outcome"]) for row in rows if row["op thread"] == of_b]
    assert moved == [("UNKNOWN", "RUNNING", "OK"), ("RUNNING", "BLOCKED", "OK"),
                     ("BLOCKED", "BUFN_THROW", "OK"), ("BUFN_THROW", "BUFN_WAIT", "RETRY")]
    last = rows[-1]
    assert (last["current thread"], last["op task"], last["store"], last["bytes"]) == (
        of_a, of_b, "b", str(40 * MIB))
    assert (last["pool"] == f"shm:{host.place.path}" and last["partition"] == host.place.path and
            "," in last["notes"])
    said = datetime.datetime.fromisoformat(last["time"].replace("Z", "+00:00")).timestamp()
    assert abs(said - time.time()) < 60
    numbers = [int(row["number"]) for row in rows]
    assert numbers == list(range(1, len(rows) + 1))
    assert [row["number"] for row in csv.DictReader(
        io.StringIO(host.arb("log", "--count", "1").out))] == [last["number"]]
    after = list(csv.DictReader(io.StringIO(host.arb("log", "--since", str(numbers[-3])).out)))
    assert [int(row["number"]) for row in after] == numbers[-2:]
    assert len(host.tool.json("arb", "log")["partitions"][0]["log"]) == len(rows)


@pytest.mark.parametrize("how", ["q", "interrupt"])
def test_top_on_a_terminal(host, terminal, how):
    a, b, serial = waiting_pair(host)
    t = terminal("-p", host.place.path, "arb", "top", "-d", "0.1", env=host.env, rows=30,
                 columns=120)
    t.read_until(b"48.0 MiB")
    assert (b"by state" in t.seen and b" 1 BLOCKED" in t.seen and b"shm:" in t.seen and
            b"\033[?1049h" in t.seen)
    t.type(b"s")
    t.read_until(b"by since")
    a.op("TASK_END", task=1, flags=4)
    assert b.end(serial) == "OK"
    t.read_until(b"0 BLOCKED")
    t.type(b"q" if how == "q" else b"\x03")
    t.read_until(None)
    assert t.process.wait() == 0
    assert t.settings() == t.before and t.seen.rstrip().endswith(b"\033[?1049l")


def test_top_for_programs(host):
    waiting_pair(host)
    assert [d["state"] for d in sorted(host.document()["contexts"], key=lambda c: c["store"])] == [
        "RUNNING", "BLOCKED"]
    r = host.arb("top", "--json", "-n", "3", "-d", "0.05")
    frames = [json.loads(line)["partitions"][0] for line in r.out.splitlines()]
    assert len(frames) == 3 and all(len(f["contexts"]) == 2 for f in frames)
    assert frames[0]["totals"]["messages"] <= frames[2]["totals"]["messages"]
    plain = host.arb("top", "-n", "2", "-d", "0.05").out
    assert ("\033" not in plain and plain.count("2 tasks, 2 contexts: 1 RUNNING, 0 ALLOC, 1 "
                                                "BLOCKED, 0 BUFN_WAIT, 0 BUFN\n") == 2)


# ---- orders --------------------------------------------------------------------------------------


def test_cancel_ends_a_wait_and_nothing_else(host):
    a, b, serial = waiting_pair(host)
    _, identity = host.context("b")
    assert host.arb("cancel", identity).out == f"{host.place.path}: told 1 to wait no longer\n"
    assert b.end(serial) == "CANCELED"
    assert b.state(1) == "RUNNING"
    assert {t["store"]: t["held"] for t in host.document("tasks")["tasks"]} == {
        "a": 40 * MIB, "b": 8 * MIB}
    # does not wait: nothing happens
    assert host.tool.json("arb", "cancel", identity)["canceled"] == 1
    assert a.state(1) == "RUNNING" and host.document()["totals"]["canceled"] == 1


def test_cancel_of_a_task(host):
    a, b, serial = waiting_pair(host)
    assert b.op("BIND", "1", kind=DEDICATED, context=2) == "OK"
    second, _ = b.reserve(2, 41 * MIB)
    assert b.is_pending(second)
    task = next(t for t in host.document("tasks")["tasks"] if t["store"] == "b")
    host.arb("cancel", "--task", str(task["id"]))
    assert b.end(serial) == "CANCELED" and b.end(second) == "CANCELED"


def test_cancel_of_another_process(host):
    """The waiting request is in a process of its own, as a worker's would be."""
    a = host.client("a")
    a.task(1)
    a.reserved(1, 40 * MIB)
    b = host.client("b", kind=Process)
    assert (b.op("TASK_BEGIN", task=1, tail="join") == "OK" and
            b.op("BIND", tail="1", kind=DEDICATED, context=1) == "OK")
    b.send("RESERVE", context=1, pool=1, bytes=40 * MIB, reservation=1)
    wait_for("b waits", lambda: host.context("b")[0]["state"] == "BLOCKED")
    context, identity = host.context("b")
    assert context["pid"] == b.pid and context["label"] == "join"
    host.arb("cancel", identity)
    assert b.next() == "CANCELED"


@pytest.mark.parametrize("kind, outcome", [("retry", "RETRY"), ("split", "SPLIT"),
                                           ("error", "ERROR"), ("toobig", "TOOBIG"),
                                           ("timedout", "TIMEDOUT")])
def test_inject_makes_exactly_so_many(host, kind, outcome):
    a, b = host.client("a"), host.client("b")
    a.task(1)
    b.task(1)
    _, identity = host.context("a")

    def outcomes(client, n):
        return [client.end(client.reserve(1, MIB)[0]).name for _ in range(n)]

    said = host.arb("inject", kind, identity, "--count", "2", "--skip", "1").out
    assert f"{kind} for the next 2 reserves of context {identity}" in said
    assert outcomes(b, 2) == ["OK", "OK"]  # another's
    assert outcomes(a, 5) == ["OK", outcome, outcome, "OK", "OK"]
    totals = host.document()["totals"]
    assert (totals["retries"], totals["splits"]) == (2 * (kind == "retry"), 2 * (kind == "split"))
    # of any context of a task
    task = next(t for t in host.document("tasks")["tasks"] if t["store"] == "b")
    assert host.tool.json("arb", "inject", kind, str(task["id"]), "--task")["count"] == 1
    assert outcomes(b, 2) == [outcome, "OK"]
    # taken back
    host.arb("inject", kind, identity, "--count", "9")
    assert "any more" in host.arb("inject", kind, identity, "--count", "0").out
    assert outcomes(a, 1) == ["OK"]


def test_inject_in_one_pool(host):
    a = host.client("a")
    a.task(1)
    assert a.op("POOL_CREATE", "budget", pool=2, bytes=SIZE) == "OK"
    _, identity = host.context("a")
    budget = next(p for p in host.document("pools")["pools"] if p["name"] == "budget")
    assert budget["store"] == "a"
    host.arb("inject", "retry", identity, "--pool", str(budget["id"]))
    assert a.end(a.reserve(1, MIB)[0]) == "OK"
    assert a.end(a.reserve(1, MIB, pool=2)[0]) == "RETRY"
    assert a.end(a.reserve(1, MIB, pool=2)[0]) == "OK"


def test_set_changes_a_knob(host):
    assert host.document()["knobs"]["max_bypass"] == 64
    assert "max_bypass is 5 until the daemon ends" in host.arb("set", "max-bypass", "5").out
    assert host.tool.json("arb", "set", "split_ticks", "20") == {
        "partition": host.place.path, "knob": "split_ticks", "value": 20}
    knobs = host.document()["knobs"]
    assert (knobs["max_bypass"], knobs["split_ticks"]) == (5, 20)
    for knob, value, why in (("max_bypass", "1000001", "from 0 to 1000000"),
                             ("retry_limit", "0", "from 1 to 1000000"),
                             ("early_detect", "2", "from 0 to 1")):
        r = host.arb("set", knob, value, code=1)
        assert r.out == "" and f"{knob} is {why}, not {value}" in r.err
    assert "is none of max_bypass" in host.arb("set", "wait", "5", code=2).err
    assert "is no number" in host.arb("set", "max_bypass", "5x", code=2).err
    assert host.document()["knobs"] == knobs


def test_what_is_not_there_is_said(host):
    for order in (["cancel", "77:1"], ["cancel", "--task", "77:1"], ["inject", "retry", "77:1"]):
        r = host.arb(*order, code=1)
        assert (r.out == "" and r.err.startswith("shmstore-admin: 77:1: ") and
                "no such context or task" in r.err)


def test_only_root_and_the_daemons_user_give_orders(host):
    a = host.client("a")
    a.task(1)
    context, identity = host.context("a")
    other = host.tool.as_nobody()
    for order in (["cancel", identity], ["inject", "retry", identity], ["set", "max_bypass", "5"]):
        r = other("arb", *order, code=1)
        assert r.out == "" and f"you are user {NOBODY}" in r.err
    seen = other.json("arb", "threads")["partitions"][0]
    assert seen["contexts"] == [] and len(seen["pools"]) == 1 and seen["knobs"]["max_bypass"] == 64


def test_without_an_arbiter():
    h = Host("arbiter { enabled = no }")
    try:
        for looks in ("threads", "tasks", "pools"):
            assert "the arbiter is off" in h.arb(looks).out
        r = h.arb("set", "max_bypass", "5", code=1)
        assert r.out == "" and "arbiter is off" in r.err and "shmstored.conf" in r.err
    finally:
        h.close()
    for subcommand, args in (("threads", ()), ("log", ()), ("top", ()), ("cancel", ("1:1",)),
                             ("set", ("max_bypass", "5"))):
        r = Admin("/", env=h.env)("arb", subcommand, *args, code=1)
        assert r.out == "" and "no daemon answers" in r.err and "systemctl" in r.err


def test_help_explains_every_subcommand():
    a = Admin("/")
    text = a("help", "arb", partition=False).out
    listed = re.findall(r"^  ([a-z]+) ", text[text.index("Subcommands:"):], re.M)
    assert tuple(listed) == SUBCOMMANDS
    for subcommand in listed:
        shown = a("help", "arb", subcommand, partition=False)
        assert (f"shmstore-admin [OPTION...] arb {subcommand}" in shown.out and
                "--json" in shown.out and shown.err == "")
        assert a("arb", subcommand, "--help", partition=False).out == shown.out
