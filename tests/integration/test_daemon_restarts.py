# SPDX-License-Identifier: Apache-2.0
"""Options of one actor: how often it is begun again at another place here when its process dies,
from which copy, and how copies of it are made."""
import re
import subprocess

import pytest
from actorscene import Process, again, log, program, saved  # noqa: F401
from daemon import ACTORD, ADMIN, wait_for

pytestmark = pytest.mark.skipif(not ACTORD.exists(), reason=f"{ACTORD}: not built")

shmstore = pytest.importorskip("shmstore")

MIB = 1 << 20


@pytest.fixture
def place_size():
    return "128m"


@pytest.fixture
def daemon(make_daemon, place):
    return make_daemon(config=f'partition "{place.path}" {{ create = yes }}\n')


@pytest.fixture
def processes(daemon, place):
    made = []

    def make(name, *actors, **options):
        made.append(Process(daemon, place.path, name, *actors, **options))
        return made[-1]

    yield make
    for process in made:
        if process.popen.poll() is None:
            process.kill()


@pytest.fixture
def store(daemon, place, monkeypatch):
    for key, value in daemon.env().items():
        monkeypatch.setenv(key, value)
    with shmstore.Partition(place.path).open("caller") as store:
        yield store


def document(daemon):
    return daemon.api("actors")["actors"]


def line(daemon, name="log"):
    found = [a for a in document(daemon)["actors"] if a["name"] == name]
    return found[0] if found else None


def kept(daemon, name="log"):
    """Until a place here keeps its first state."""
    return wait_for("a copy here", lambda: (line(daemon, name) or {}).get("bytes"))


def told(daemon):
    with daemon.wire() as wire:
        return [(e["event"], e["actor"], e["from"], e["to"]) for e in wire.query("events")["events"]
                if e["event"].startswith("actor-")]


def outlasting(actor, *call):
    while True:
        try:
            return actor.call(*call)
        except shmstore.actors.ActorLost:
            pass


def test_an_actor_is_begun_again_from_its_first_state_as_often_as_asked(
        daemon, processes, store, place):
    """Calls that wait are answered there; the call that ran is lost; then no restart is left, and
    the actor is lost with its process."""
    first = processes("first", log(size=MIB), max_restarts=1)
    second = processes("second")
    actor = store.actor("log")
    kept(daemon)
    assert actor.call("add", 7) == (first.pid, 1)
    assert line(daemon)["restarts_left"] == 1
    # the first one kills its process
    calls = [actor.send("add", 1, -1)] + [actor.send("add", i) for i in range(2, 20)]
    with pytest.raises(shmstore.actors.ActorLost):
        calls[0].result()
    assert [c.result() for c in calls[1:]] == [(second.pid, i) for i in range(1, 19)]
    assert actor.call("everything")[1:] == (list(range(2, 20)), 18, 1), (
        "7 was in the state that was lost")
    assert (line(daemon)["restarts_left"], line(daemon)["place"], document(daemon)["restarts"]) == (
        0, "second", 1)
    third = processes("third")
    second.kill()
    wait_for("its end", lambda: line(daemon) is None)
    with pytest.raises(shmstore.actors.ActorLost):
        actor.call("everything")
    assert told(daemon) == [("actor-restarted", "log", "first", "second"),
                            ("actor-lost", "log", "second", None)]
    assert "shmstore_actor_restarts_total 1" in daemon.get("/metrics")
    third.kill()
    wait_for("nothing is left", lambda: not saved(place.path))


def test_without_restarts_it_is_lost(daemon, processes, store):
    first = processes("first", log(size=8192))
    processes("second")
    assert store.actor("log").call("add", 0) == (first.pid, 1)
    first.kill()
    wait_for("its end", lambda: line(daemon) is None)
    assert [t[0] for t in told(daemon)] == ["actor-lost"]


def test_always_goes_from_place_to_place_and_a_keeper_that_dies_is_replaced(
        daemon, processes, store):
    homes = {p.pid: p for p in (processes("first", log(size=8192), max_restarts=-1),
                                processes("second"), processes("third"))}
    actor = store.actor("log")
    for _ in range(4):
        kept(daemon)
        assert line(daemon)["restarts_left"] is None
        pid, n = actor.call("add", 0)
        assert n == 1 and pid in homes
        homes.pop(pid).kill()
        assert outlasting(actor, "everything")[0] != pid
        other = processes(f"one-after-{pid}")
        homes[other.pid] = other
    assert document(daemon)["restarts"] == 4 and document(daemon)["died"] == 0


def test_a_copy_that_cannot_be_loaded_is_none(daemon, processes, store):
    first = processes("first", log(size=8192), max_restarts=3)
    processes("second", fate="load=raise")
    kept(daemon)
    first.kill()
    wait_for("its end", lambda: line(daemon) is None)
    assert [t[0] for t in told(daemon)] == ["actor-lost"]


def test_restarts_that_are_left_are_known_after_a_restart_of_the_daemon_and_after_a_move(
        daemon, processes, store):
    first = processes("first", log(size=8192), max_restarts=2, retry=7)
    second = processes("second")
    actor = store.actor("log")
    kept(daemon)
    first.kill()
    assert outlasting(actor, "add", 0) == (second.pid, 1)
    third = processes("third")
    daemon.kill()
    daemon.restart()
    known = wait_for("the actor", lambda: (a := line(daemon)) and a["pid"] == second.pid and a)
    assert (known["restarts_left"], known["options"]["retry"]) == (1, 7)
    again(actor, "everything")
    kept(daemon)
    actor.move("third")
    assert (line(daemon)["pid"], line(daemon)["restarts_left"]) == (third.pid, 1)
    kept(daemon)
    third.kill()
    assert outlasting(actor, "add", 1) == (second.pid, 2), (
        "the copy was made after the daemon's restart, of the state of then")


def test_an_actor_that_ends_leaves_no_copy(daemon, processes, store, place):
    processes("first", log(size=8192), max_restarts=3)
    processes("second")
    kept(daemon)
    open(f"{place.path}/end-log", "w").close()
    wait_for("its end", lambda: line(daemon) is None)
    wait_for("nothing is left", lambda: not saved(place.path))
    assert told(daemon) == []


def test_options_are_shown_and_wrong_ones_are_refused(daemon, store):
    with store.place("here") as here:
        here.begin("plain", object())
        here.begin("own", object(), copies=2, selection=["b", "c"], strategy="all", frequency=0.25,
                   retry=0, panic_on_missing=True, preempt_from_stale="timeout:500",
                   max_restarts=3)
        here.begin("none", object(), copies=0, preempt_from_stale=True, max_restarts=-1)
        here.begin("half", object(), copies=0.5, preempt_from_stale=False)
        for wrong, why in ({"retry": -1}, "takes a number"), ({"copies": "many"}, "explicit:2"), (
                {"preempt_from_stale": "maxage:"}, "timeout:MS"), \
                ({"frequency": 0}, "takes a time"), ({"selection": "a b"}, "resource"), (
                    {"max_restarts": 1, "movable": False}, "not begun again"):
            with pytest.raises(shmstore.Error, match=why) as e:
                here.begin("wrong", object(), **wrong)
            assert e.value.errno == 22
        assert {a["name"]: (a["restarts_left"], a["options"])
                for a in document(daemon)["actors"]} == {
                    "plain": (0, {"copies": False, "num": "explicit:1", "selection": "resource",
                                  "strategy": "round_robin", "frequency": 5, "retry": 3,
                                  "panic_on_missing": False, "preempt_from_stale": "never"}),
                    "own": (3, {"copies": True, "num": "explicit:2", "selection": "fixed:b,c",
                                "strategy": "all", "frequency": 0.25, "retry": 0,
                                "panic_on_missing": True, "preempt_from_stale": "timeout:500"}),
                    "none": (None, {"copies": False, "num": "explicit:1", "selection": "resource",
                                    "strategy": "round_robin", "frequency": 5, "retry": 3,
                                    "panic_on_missing": False, "preempt_from_stale": "always"}),
                    "half": (0, {"copies": True, "num": "frac:0.5", "selection": "resource",
                                 "strategy": "round_robin", "frequency": 5, "retry": 3,
                                 "panic_on_missing": False, "preempt_from_stale": "never"})}
        shown = subprocess.run([ADMIN, "actors"], env={**daemon.env(), "COLUMNS": "400"},
                               capture_output=True, text=True, check=True).stdout
        assert re.search(r"own .* 3 +explicit:2 by fixed:b,c, all every 0.25 s, retry 0, stale "
                         r"timeout:500, panic on missing", " ".join(shown.split())), shown
        assert daemon.admin("actors")["actors"]["actors"][0]["options"]


def test_an_older_client_sends_none(daemon):
    """The body with one name, or two, as before; what follows them is checked."""
    with daemon.wire() as wire:
        assert wire.call("ACTOR_PLACE", 1 << 20, 0, 0, tail=b"p").name == "DONE"
        assert wire.call("ACTOR_BORN", 0, 0, 0, 1, 0, 11, tail=b"a").name == "DONE"
        assert wire.call("ACTOR_BORN", 0, 0, 0, 1, 0, 11, tail=b"b\na").name == "DONE"
        assert wire.call("ACTOR_BORN", 0, 0, 0, 1, 0, 11, tail=b"c\na\n2").name == "DONE"
        assert wire.call("ACTOR_BORN", 0, 0, 0, 1, 0, 11, tail=b"d\n\n2 retry=1").name == "DONE"
        for tail in (b"e\n", b"e\n\nx", b"e\n\n2 retry", b"e\n\n2 timeout=5s", b"e\n\n4294967296",
                     b"e\n\n2 retry=1\nretry=2", b"e\n\n-1",
                                  b"e\n\n2 " + b"retry=1 " * 64):
            answer = wire.call("ACTOR_BORN", 0, 0, 0, 1, 0, 11, tail=tail)
            assert (answer.name, answer.values[0]) == ("REFUSED", -22), tail
        assert wire.call("ACTOR_MOVE", 0, tail=b"a\np\n").values[0] == -22
    assert {a["name"] for a in document(daemon)["actors"]} <= {"a", "b", "c", "d"}
