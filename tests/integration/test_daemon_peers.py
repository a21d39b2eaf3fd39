# SPDX-License-Identifier: Apache-2.0
"""Daemons as peers: they find each other, know each other, copy actors to each other, and go on
with an actor whose process, or whose daemon, was killed."""
import os
import signal
import subprocess
import sys

import pytest
import test_profiles as profiles
from actorscene import again, log, saved
from daemon import ACTORD, wait_for
from fixture import NOBODY
from peerscene import (as_client_of, connected, died, make_hosts, outlasting,  # noqa: F401
                       settled)
from test_daemon_pressure import gate, text

pytestmark = pytest.mark.skipif(not ACTORD.exists(), reason=f"{ACTORD}: not built")

shmstore = pytest.importorskip("shmstore")

MIB = 1 << 20
N = 100
ALL = "copies = yes\n num = explicit:max\n strategy = all\n"


# ---- copies --------------------------------------------------------------------------------------


def test_an_actor_whose_process_is_killed_goes_on_from_its_newest_copy(make_hosts):
    """PRESSURE 2.9: three daemons on three partitions of 64 MiB; the home's process is killed."""
    a, b, c = make_hosts("a", "b", "c", keys=ALL)
    home = a.process("first", log(size=4 * MIB))
    keepers = {"b": b.process("second"), "c": c.process("third")}
    caller = a.store().actor("log")
    for i in range(10):
        assert caller.call("add", i) == (home.pid, i + 1)
    settled(a, ["b", "c"])
    died(a, home)
    pid, seen, total, most = caller.call("everything")
    assert seen == list(range(10)) and (total, most) == (10, 1)
    assert pid in (k.pid for k in keepers.values())
    assert caller.call("add", 10) == (pid, 11)
    assert b.store().actor("log").call("add", 11) == (pid, 12)


def test_the_home_is_killed_and_with_all_one_of_three_is_enough(make_hosts):
    """The home and then another one, with all that ran there: what is left answers from its
    copy, which is the newest."""
    a, b, c = make_hosts("a", "b", "c", keys=ALL)
    a.process("first", log(size=4 * MIB))
    b.process("second")
    last = c.process("third")
    caller = a.store().actor("log")
    for i in range(10):
        caller.call("add", i)
    settled(a, ["b", "c"])
    b.kill()
    wait_for("the loss of b", lambda: len(a.document()["peers"]) == 1)
    a.kill()
    wait_for("the loss of a", lambda: not c.document()["peers"])
    left = c.store().actor("log")
    pid, seen, total, most = left.call("everything")  # held until c begins it
    assert (pid, seen, total, most) == (last.pid, list(range(10)), 10, 1)
    assert left.call("add", 10) == (last.pid, 11)


def test_four_with_all_and_two_peers_down(make_hosts):
    hosts = make_hosts("a", "b", "c", "d", keys=ALL)
    home = hosts[0].process("first", log(size=MIB))
    places = [h.process("keeps-" + h.name) for h in hosts[1:]]
    caller = hosts[0].store().actor("log")
    assert caller.call("add", 0) == (home.pid, 1)
    settled(hosts[0], ["b", "c", "d"])
    hosts[1].kill()
    hosts[2].kill()
    died(hosts[0], home)
    assert caller.call("add", 1) == (places[2].pid, 2)


def test_round_robin_recovers_from_the_newest(make_hosts):
    """Peers hold different versions; the lower one is not taken, nor left."""
    a, b, c = make_hosts("a", "b", "c", keys="copies = yes\n num = explicit:2\n")
    home = a.process("first", log(size=MIB))
    places = {h.name: h.process("keeps-" + h.name).pid for h in (b, c)}
    caller = a.store().actor("log")
    held, n = {}, 0
    while len(held) < 2 or n < 20:  # until both have said that they have room, one of them gets all
        assert caller.call("add", n)[1] == n + 1
        n += 1
        settled(a, [])
        held = {x["daemon"]: x["version"] for x in a.actor()["copies"]}
    assert held["b"] != held["c"]
    newest = max(held, key=held.get)
    died(a, home)
    assert caller.call("everything") == (places[newest], list(range(n)), n, 1)
    settled({"b": b, "c": c}[newest], [])  # and it makes copies of its own from then on
    new = {"b": b, "c": c}[newest].actor()
    assert new["version"] >> 32 == 1


def test_calls_that_did_not_begin_go_on_where_it_is_then(make_hosts):
    a, b = make_hosts("a", "b")
    home = a.process("first", log(size=MIB))
    there = b.process("second")
    caller = a.store().actor("log")
    caller.call("add", 0)
    settled(a, ["b"])
    # the first one kills its process
    calls = [caller.send("add", 1, -1)] + [caller.send("add", i) for i in range(2, N)]
    home.popen.wait()
    with pytest.raises(shmstore.actors.ActorLost):
        calls[0].result()
    assert [c.result() for c in calls[1:]] == [(there.pid, i) for i in range(2, N)]
    pid, seen, total, most = caller.call("everything")
    assert (pid, seen, total, most) == (there.pid, [0, *range(2, N)], N - 1, 1)


def test_actors_are_called_from_other_hosts(make_hosts):
    a, b = make_hosts("a", "b", keys="")
    home = a.process("first", log(size=8192))
    far = b.store()
    wait_for("word of it", lambda: (b.actor() or {}).get("daemon") == "a")
    calls = [far.actor("log").send("add", i) for i in range(N)]
    assert [c.result() for c in calls] == [(home.pid, i + 1) for i in range(N)]
    with pytest.raises(KeyError, match="this one"):
        far.actor("log").call("fail")
    assert far.actor("log").call("long", 3900) == b"x" * 3900
    late = far.actor("log").send("add", N, 30)
    wait_for("the call", lambda: a.actor()["running"] == 1)
    a.kill()
    with pytest.raises(shmstore.actors.ActorLost):
        late.result()
    # there is no copy
    with pytest.raises(shmstore.actors.ActorLost, match="no actor has the name log"):
        far.actor("log").call("everything")


def test_an_actor_is_moved_to_another_daemon_and_each_call_is_answered_once(make_hosts):
    """Also with no copies configured; the state is nowhere but there, and it
    comes back the same way."""
    a, b = make_hosts("a", "b", keys="")
    home, there = a.process("first", log(size=MIB)), b.process("second")
    wait_for("news of room", lambda: b.actor())
    caller = a.store().actor("log")
    assert caller.call("add", 0) == (home.pid, 1)
    calls = [caller.send("add", i) for i in range(1, N)]
    caller.move("b")
    calls += [caller.send("add", i) for i in range(N, 2 * N)]
    answers = [c.result() for c in calls]
    assert ([n for _, n in answers] == list(range(2, 2 * N + 1)) and
            {pid for pid, _ in answers[N - 1:]} == {there.pid})
    assert caller.call("everything") == (there.pid, list(range(2 * N)), 2 * N, 1)
    wait_for("nothing is left", lambda: not saved(a.place.path) and not saved(b.place.path))
    assert a.document()["moves"] == 1 and a.actor()["state"] == "elsewhere"
    with b.daemon.wire() as wire:
        assert not [e for e in wire.query("events")["events"] if e["event"] == "actor-lost"]
    b.store().actor("log").move("a")
    assert caller.call("add", 2 * N) == (home.pid, 2 * N + 1)
    home.kill()
    with pytest.raises(shmstore.actors.ActorLost):  # it is lost, and nothing of it is elsewhere
        caller.call("everything")


@pytest.mark.parametrize("fate", ("load=raise", "load=self"))
def test_a_move_to_another_daemon_that_fails_there_leaves_the_actor_at_home(make_hosts, fate):
    a, b = make_hosts("a", "b", keys="")
    home = a.process("first", log(size=MIB))
    b.process("second", fate=fate)
    caller = a.store().actor("log")
    assert caller.call("add", 0) == (home.pid, 1)
    wait_for("news of it", lambda: b.actor())
    calls = [caller.send("add", i) for i in range(1, N)]
    with pytest.raises(shmstore.Error, match="goes on where it was"):
        caller.move("b")
    assert [c.result() for c in calls] == [(home.pid, i) for i in range(2, N + 1)]
    wait_for("nothing is left", lambda: not saved(a.place.path) and not saved(b.place.path))
    assert a.document()["failed"] == 1 and b.actor()["state"] == "elsewhere"


@pytest.mark.parametrize("whose", ("there", "home"))
def test_a_kill_amid_a_move_to_another_daemon(make_hosts, whose):
    """The other daemon and its processes: it goes on at home. The old process, once its state is
    saved: it goes on there."""
    a, b = make_hosts("a", "b", keys="")
    home = a.process("first", log(size=MIB))
    there = b.process("second", fate="load=hang" if whose == "there" else f"load={home.pid}")
    caller = a.store().actor("log")
    assert caller.call("add", 0) == (home.pid, 1)
    wait_for("news of it", lambda: b.actor())
    move = shmstore.actors.Call(caller._store, "log", caller._store._actor_move("log", "b"))
    calls = [caller.send("add", i) for i in range(1, N)]
    if whose == "there":
        wait_for("the move", lambda: a.actor()["state"] == "loading")
        b.kill()
        with pytest.raises(shmstore.Error, match="goes on where it was"):
            move.result(60)
    else:
        move.result(60)
    assert [c.result() for c in calls] == [((home if whose == "there" else there).pid, i)
                                           for i in range(2, N + 1)]


def test_under_pressure_an_actor_goes_to_another_daemon_and_frees_its_memory(make_hosts):
    """Its process need not end for that, and nothing is lost. Neither is moved there: one with a
    child, which lives here."""
    keys = text(host_total="256MiB", preempt="shm", preempt_grace="60s")
    a, b = make_hosts("a", "b", keys="", more=f"{keys} # %s\n", size="256m")
    family = a.process("first", log("family", size=8192, level="high"),
                       log("child", size=8192, parent="family"))
    there = b.process("second")

    def plan():
        return [(p["pid"], p["actors_moved"]) for p in gate(a.daemon)["preemption"]["plan"]]

    def private(process):
        return sum(p["private"] for p in a.daemon.admin("mem", "--daemon")["memory"]["processes"]
                   if p["pid"] == process.pid)

    wait_for("it is known", lambda: gate(a.daemon)["preemption"]["kept"] == 1)
    assert plan() == []
    family.kill()
    home = a.process("third", log("large", size=8192, level="high"))
    wait_for("room there", lambda: (home.pid, 1) in plan())
    caller = a.store().actor("large")
    assert caller.call("add", 0) == (home.pid, 1)
    caller.call("fill", 60 * MIB)
    wait_for("it is seen", lambda: private(home) > 60 * MIB)
    memory = a.daemon.admin("mem", "--daemon")["memory"]
    calls = [caller.send("add", i) for i in range(1, N)]
    a.store("ballast").put("ballast", bytes(memory["kill"] - memory["used"] + 10 * MIB))
    assert [c.result()[1] for c in calls] == list(range(2, N + 1))
    wait_for("the move", lambda: a.document()["moves"] >= 1)
    assert caller.call("everything")[:2] == (there.pid, list(range(N)))
    with a.daemon.wire() as wire:
        told = [(e["event"], e["actor"], e["daemon"]) for e in wire.query("events")["events"]
                if e["event"].startswith("actor-")]
    assert ("actor-moved", "large", "b") in told and ("actor-lost", "large", None) not in told
    wait_for("memory", lambda: private(home) < 45 * MIB)
    assert home.popen.poll() is None


@pytest.mark.parametrize("stale, fresh", [("never", True), ("always", False), ("maxage:1", True),
                                          ("maxage:3600000", False), ("timeout:60000", True),
                                          ("timeout:300", False)])
def test_under_pressure_the_newest_copy_goes_on_where_it_may(make_hosts, stale, fresh):
    """The copy is of the first state. Calls since then are forgotten, the one that runs is lost,
    and those that wait go on there."""
    keys = text(host_total="256MiB", preempt="shm", preempt_grace="60s")
    a, b = make_hosts("a", "b", keys="", more=f"{keys} # %s\n", size="256m")
    there = b.process("second")
    wait_for("news of room", lambda: b.actor() or a.document()["peers"])
    home = a.process("first", log(size=8192, level="high"), copies=1, frequency=3600,
                     preempt_from_stale=stale)
    settled(a, ["b"])
    caller = a.store().actor("log")
    assert [caller.call("add", i) for i in range(10)] == [(home.pid, i + 1) for i in range(10)]
    calls = ([caller.send("add", 10, 3 if fresh else 60)] + [caller.send("add", i) for i in range(
        11, 20)])
    wait_for("the call", lambda: a.actor()["running"] == 1)
    memory = a.daemon.admin("mem", "--daemon")["memory"]
    a.store("ballast").put("ballast", bytes(memory["kill"] - memory["used"] + 10 * MIB))
    if fresh:
        assert [c.result()[1] for c in calls] == list(range(11, 21))
    else:
        with pytest.raises(shmstore.actors.ActorLost):
            calls[0].result()
        assert [c.result() for c in calls[1:]] == [(there.pid, i) for i in range(1, 10)]
    wait_for("the move", lambda: (a.document()["moves"], a.document()["died"]) == (1, 0))
    assert caller.call("everything")[:2] == (there.pid, list(range(0 if fresh else 11, 20)))
    with a.daemon.wire() as wire, b.daemon.wire() as other:
        told = [(e["event"], e["actor"], e["daemon"]) for w in (wire, other)
                for e in w.query("events")["events"] if e["event"].startswith("actor-")]
    assert told == [("actor-moved", "log", "b")]
    assert home.popen.poll() is None


def test_a_stale_copy_that_cannot_be_begun_leaves_the_actor_at_home(make_hosts):
    keys = text(host_total="256MiB", preempt="shm", preempt_grace="60s")
    a, b = make_hosts("a", "b", keys="", more=f"{keys} # %s\n", size="256m")
    b.process("second", fate="load=raise")
    home = a.process("first", log(size=8192, level="high"), copies=1, frequency=3600,
                     preempt_from_stale=True)
    settled(a, ["b"])
    caller = a.store().actor("log")
    assert caller.call("add", 0) == (home.pid, 1)
    memory = a.daemon.admin("mem", "--daemon")["memory"]
    a.store("ballast").put("ballast", bytes(memory["kill"] - memory["used"] + 10 * MIB))
    wait_for("the failure", lambda: a.document()["failed"] == 1)
    assert caller.call("add", 1) == (home.pid, 2)


def test_options_of_one_actor_decide_and_go_with_it(make_hosts):
    """Copies of one where the configuration makes none, none of another where it makes them; and
    where the copy goes on it has the same options."""
    a, b, c = make_hosts("a", "b", "c", keys="")
    a.process("first", log("copied", size=8192), copies="max", strategy="all", selection=["c", "b"],
              max_restarts=5)
    beside = a.process("other", log("not", size=8192))
    keeper, other = b.process("second"), c.process("third")
    settled(a, ["b", "c"], "copied")
    c.kill()
    wait_for("its end", lambda: len(a.document()["peers"]) == 1)
    assert (a.actor("not")["copies"], a.actor("not")["copied"]) == ([], False)
    caller = b.store().actor("copied")
    pid = a.actor("copied")["pid"]
    os.kill(pid, signal.SIGKILL)
    now = outlasting(caller, "add", 0)[0]
    assert now != pid and now in (beside.pid, keeper.pid)
    home = a if now == beside.pid else b
    assert (home.actor("copied")["options"]["selection"] == "fixed:c,b" and
            home.actor("copied")["options"]["num"] == "explicit:max")
    assert home.actor("copied")["restarts_left"] == (4 if home is a else 5)
    assert keeper.pid != other.pid


def test_an_actor_that_ends_leaves_no_copies(make_hosts):
    a, b = make_hosts("a", "b")
    a.process("first", log(size=MIB))
    keeper = b.process("second")
    a.store().actor("log").call("add", 0)
    settled(a, ["b"])
    store = f"{b.place.path}/stores/w{keeper.pid}"
    assert [n for n in os.listdir(f"{store}/objects") if "ckpt" in n]
    open(f"{a.place.path}/end-log", "w").close()
    wait_for("the end of all", lambda: a.actor() is None and b.actor() is None)
    wait_for("no object", lambda: not os.listdir(f"{store}/objects") and
             not os.listdir(f"{store}/handoff"))


def test_a_keeper_that_dies_is_replaced(make_hosts):
    a, b, c = make_hosts("a", "b", "c", keys="copies = yes\n num = explicit:1\n selection = "
                                             "'fixed:b,c'\n")
    home = a.process("first", log(size=MIB))
    b.process("second")
    third = c.process("third")
    caller = a.store().actor("log")
    caller.call("add", 0)
    settled(a, ["b"])
    b.processes[0].kill()
    settled(a, ["c"])
    died(a, home)
    assert caller.call("add", 1) == (third.pid, 2)


def test_the_home_daemon_dies_and_comes_back(make_hosts):
    """Its places tell it what they have, within the others' patience: no copy is
    begun, and nothing is lost."""
    a, b = make_hosts("a", "b", keys="copies = yes\n recover-after = 1min\n")
    home = a.process("first", log(size=MIB))
    b.process("second")
    store = a.store()
    assert store.actor("log").call("add", 0) == (home.pid, 1)
    settled(a, ["b"])
    a.daemon.kill()
    a.daemon.restart()
    with as_client_of(a.daemon):
        assert again(store.actor("log"), "add", 1) == (home.pid, 2)
    connected(a, b)
    settled(a, ["b"])
    assert b.store().actor("log").call("add", 2) == (home.pid, 3)


def test_a_home_that_comes_back_late_drops_what_it_has(make_hosts):
    a, b = make_hosts("a", "b")
    a.process("first", log(size=MIB))
    there = b.process("second")
    store = a.store()
    store.actor("log").call("add", 0)
    settled(a, ["b"])
    a.daemon.kill()
    wait_for("it at b", lambda: b.actor()["state"] == "active")
    assert b.store().actor("log").call("add", 1) == (there.pid, 2)
    a.daemon.restart()
    connected(a, b)
    with as_client_of(a.daemon):
        assert again(store.actor("log"), "add", 2) == (there.pid, 3)
    wait_for("one of it", lambda: a.actor()["state"] in ("elsewhere",) and
             b.actor()["state"] == "active")


# ---- profiles ------------------------------------------------------------------------------------


def test_profiles_are_put_together_and_nothing_counts_twice(make_hosts, tmp_path):
    """Each daemon's estimates are of what all of them measured; however often that is sent, and
    after a restart of one of them as a prior."""
    made = make_hosts("a", "b", "c", keys="profile-sync = 10ms\n",
                      more='profile { private = conservative\n directory = "%s"\n save = 10ms }\n')
    kind = ("python", "join", "")
    wires = [h.daemon.wire() for h in made]
    try:
        for i, wire in enumerate(wires):
            for task in range(6):
                profiles.run(wire, task + 1, kind, (100 + 100 * i) * MIB)
        wait_for("all of it", lambda: all(profiles.estimate(w, *kind) == (
            300 * MIB, 150 * MIB, 30, 18) for w in wires))
        for task in range(3):
            profiles.run(wires[0], 10 + task, kind, 500 * MIB)
        wait_for("the rest", lambda: all(profiles.estimate(w, *kind) == (
            500 * MIB, 250 * MIB, 30, 21) for w in wires))
        stat = profiles.kinds(wires[1])[(os.geteuid(), *kind)]["private"]
        assert (stat["n"], stat["average"]) == (21, (6 * 100 + 6 * 200 + 6 * 300 + 3 * 500) * MIB //
                                                21)
    finally:
        for wire in wires:
            wire.close()
    # a has 9, which come back as a prior of 4; the others' are not in its file.
    made[0].daemon.stop()
    made[0].daemon.restart()
    for host in made:
        with host.daemon.wire() as wire:
            wait_for(f"16 at {host.name}", lambda wire=wire: profiles.estimate(wire, *kind)[3] ==
                     16)


OTHER = """
import os, socket, struct, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.connect(sys.argv[1])
packet = lambda kind, body: struct.pack("<IHH", 8 + len(body), kind, 0) + body
say = lambda kind, uid, name: packet(
    kind, struct.pack("<QQII64s64s", 1 << 40, 0, uid, 0, name, b""))
s.sendall(packet(1, struct.pack("<IIII64s", 0x53504452, 1, 0, 0, b"other")))  # "I am of user 0"
s.sendall(say(17, 0, b"log") + say(17, 0, b"forged") + say(19, 0, b"log") + say(18, 0, b"log") +
          say(21, 0, b"log"))
# a profile of user 0
s.sendall(packet(3, struct.pack("<QQII", 1, 10, 32, 8) + struct.pack("<II", 0, 0)))
s.sendall(say(17, int(sys.argv[2]), b"own"))
print("said", flush=True)
heard = b""
while True:
    data = s.recv(65536)
    if not data:
        break
    heard += data
    if struct.pack("<QiI", 1, -1, 0) in heard:  # the profile's answer: EPERM
        print("refused", flush=True)
        break
print("log" if b"log" in heard.replace(b"said", b"") else "nothing", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root")
def test_a_peer_speaks_for_its_own_user_only(make_hosts, tmp_path):
    """A peer's words about another user's actors and profile are not believed, whatever it says of
    itself, and it hears nothing of them."""
    a, b = make_hosts("a", "b", keys="", more='profile { private = conservative\n directory = "%s" '
                                              '}\n')
    home = a.process("first", log(size=8192))
    with a.daemon.wire() as wire:
        profiles.run(wire, 1, ("python", "log", ""), 10 * MIB)
    for at in (tmp_path, *tmp_path.parents):
        if at.owner() == "root" and at.name.startswith(("test", "pytest", "popen")):
            at.chmod(0o711)
    os.chmod(tmp_path / "a", 0o666)
    with subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path / "a"), str(NOBODY)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert [other.stdout.readline() for _ in range(3)] == ["said\n", "refused\n", "nothing\n"]
        wait_for("its own", lambda: a.actor("own"))
        assert a.actor("own")["daemon"] == "other" and a.actor("own")["uid"] == NOBODY
        assert (a.actor("forged") is None and (a.actor("log")["state"], a.actor("log")["copies"]) ==
                ("active", []))
        assert a.store().actor("log").call("add", 0) == (home.pid, 1)
        other.stdin.close()
