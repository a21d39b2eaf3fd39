# SPDX-License-Identifier: Apache-2.0
"""Actors of a real daemon, in processes: calls of many in one order, each answered once, also while
the actor is moved, and whoever is killed meanwhile: the daemon, the process where it was, the one
where it goes. Nothing is half done, and nothing is left over."""
import os
import random
import time
from pathlib import Path

import openmetrics
import pytest
from actorscene import Process, again, log, program, saved  # noqa: F401
from daemon import ACTORD, wait_for
from fixture import NOBODY, Place
from gatehost import python
from test_daemon_pressure import text

pytestmark = pytest.mark.skipif(not ACTORD.exists(), reason=f"{ACTORD}: not built")

shmstore = pytest.importorskip("shmstore")

MIB = 1 << 20
N = 100
FIGURES = [("actor_places", ""), ("actors", ""), ("actor_calls_open", ""),
           ("actor_calls_answered", "_total"), ("actor_calls_lost", "_total"),
           ("actor_moves", "_total"), ("actor_moves_failed", "_total")]
GONE = "error 95"  # what a caller is told whose daemon ends


@pytest.fixture
def place_size():
    return "128m"


@pytest.fixture
def other():
    place = Place(size="64m")
    yield place
    place.remove()


@pytest.fixture
def daemon(make_daemon, place, other):
    partitions = "".join(f'partition "{p.path}" {{ create = yes }}\n' for p in (place, other))
    return make_daemon(config="daemon { socket-mode = 0666 }\n" + partitions, http=False)


@pytest.fixture
def processes(daemon, place):
    made = []

    def make(name, *actors, partition=place.path, **options):
        made.append(Process(daemon, partition, name, *actors, **options))
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


# ---- calls ---------------------------------------------------------------------------------------


def test_calls_are_answered_in_their_order(processes, store):
    processes("first", log(size=8192))
    actor = store.actor("log")
    calls = [actor.send("add", i) for i in range(N)]
    assert [c.result() for c in calls] == [(calls[0].result()[0], i + 1) for i in range(N)]
    with pytest.raises(KeyError, match="this one"):
        actor.call("fail")
    with pytest.raises(ValueError, match="hand it over"):
        actor.call("long", 5000)
    assert actor.call("long", 3900) == b"x" * 3900
    with pytest.raises(shmstore.Error) as e:
        actor.send("add", b"x" * 5000)
    assert e.value.errno == 27
    assert actor.call("everything")[1] == list(range(N))


def test_two_callers_share_one_order(processes, store, place):
    processes("first", log(size=8192))
    with shmstore.Partition(place.path).open("other") as other:
        calls = [(store if i % 2 else other).actor("log").send("add", i) for i in range(N)]
        lengths = sorted(c.result()[1] for c in calls)
    assert lengths == list(range(1, N + 1))
    seen = store.actor("log").call("everything")[1]
    assert ([i for i in seen if i % 2] == list(range(1, N, 2)) and [i for i in seen if not i % 2] ==
            list(range(0, N, 2)))


def test_names(processes, store):
    processes("first", log(size=8192))
    with pytest.raises(shmstore.actors.ActorLost, match="no actor has the name nobody"):
        store.actor("nobody").call("add", 1)
    with pytest.raises(shmstore.Error) as e:
        store.place("first")
    # which is what to do about an object
    assert e.value.errno == 17 and "replace=True" not in str(e.value)
    with pytest.raises(shmstore.Error) as e:
        store.actor("log").move("nowhere")
    assert e.value.errno == 116 and "ticket" not in str(e.value)
    with store.place("second") as second:
        with pytest.raises(shmstore.Error) as e:
            second.begin("log", object())
        assert e.value.errno == 17
        for wrong in ("", "a b", ".a", "a/b", "x" * 64, "a\nb"):
            with pytest.raises(shmstore.Error) as e:
                second.begin(wrong, object())
            assert e.value.errno == 22, wrong
        with pytest.raises(shmstore.Error) as e:
            store.place("third")
        assert e.value.errno == 16


def test_an_actor_that_ends_is_told(processes, store, place):
    first = processes("first", log(size=8192))
    actor = store.actor("log")
    calls = [actor.send("add", i, 0.2 if i == 0 else 0) for i in range(5)]
    open(f"{place.path}/end-log", "w").close()
    outcomes = []
    for c in calls:
        try:
            outcomes.append(c.result()[1])
        except shmstore.actors.ActorLost:
            outcomes.append("lost")
    assert outcomes == [1] + ["lost"] * 4 or outcomes == [1, 2, 3, 4, 5], outcomes
    wait_for("its end", lambda: not os.path.exists(f"{place.path}/end-log"))
    with pytest.raises(shmstore.actors.ActorLost):
        actor.call("add", 1)
    assert first.popen.poll() is None


def test_a_place_that_is_killed_loses_its_actors(processes, store):
    first = processes("first", log(size=8192))
    actor = store.actor("log")
    assert actor.call("add", 0) == (first.pid, 1)
    calls = [actor.send("add", 1, 30)] + [actor.send("add", i) for i in range(2, 10)]
    first.kill()
    for c in calls:
        with pytest.raises(shmstore.actors.ActorLost):
            c.result()
    # A caller cannot tell whether a call came before the end or after it: both are told the same.
    late = actor.send("add", 1)
    with pytest.raises(shmstore.actors.ActorLost, match="no actor has the name log"):
        late.result()
    assert late.done()
    processes("first", log(size=8192))
    assert actor.call("add", 0)[1] == 1


def test_children_end_with_their_parent(processes, store):
    first = processes("first", log("owner", 8192))
    second = processes("second", log("child", 8192, parent="owner"),
                       log("grandchild", 8192, parent="child"), log("other", 8192))
    for name in ("child", "grandchild", "other"):
        assert store.actor(name).call("add", 0) == (second.pid, 1)
    first.kill()
    for name in ("child", "grandchild"):
        wait_for(f"the end of {name}", lambda name=name: gone(store, name))
    assert store.actor("other").call("add", 1) == (second.pid, 2)


@pytest.mark.parametrize("case", ["off", "hangs", "other", "serves"])
def test_who_does_not_drop_a_child_of_the_dead_is_killed(make_daemon, place, monkeypatch, case):
    """Where preemption is on: after the grace, and not if the process has another
    actor, or drops the child."""
    keys = text(host_total="1GiB", preempt="off" if case == "off" else "shm",
                preempt_grace="300ms").replace("interval = 20ms", "interval = 50ms")
    daemon = make_daemon(config=f'{keys}\npartition "{place.path}" {{ create = yes }}\n')
    for key, value in daemon.env().items():
        monkeypatch.setenv(key, value)
    made = [Process(daemon, place.path, "first", log("owner", 8192))]
    try:
        made.append(Process(daemon, place.path, "second", log("child", 8192, parent="owner"),
                            *([log("own", 8192)] if case == "other" else [])))
        made.append(Process(daemon, place.path, "third", log("grandchild", 8192, parent="child")))
        with shmstore.Partition(place.path).open("asks") as asks:
            calls = []
            for name in ("child", "grandchild") if case != "serves" else ():
                calls.append(asks.actor(name).send("hang", f"{place.base}/{name}"))
                wait_for("its begin", lambda name=name: os.path.exists(f"{place.base}/{name}"))
            made[0].kill()
            for call in calls:
                with pytest.raises(shmstore.actors.ActorLost):
                    call.result()
            if case in ("hangs", "other"):
                assert made[2].popen.wait(60) == -9
                assert "did not drop them" in daemon.log()
            if case == "hangs":
                assert made[1].popen.wait(60) == -9
            else:
                looks = lambda: daemon.api("memory")["memory"]["samples"]  # noqa: E731
                until = looks() + 20  # more than three graces
                wait_for("more looks", lambda: looks() >= until)
                assert made[1].popen.poll() is None
    finally:
        for process in made:
            if process.popen.poll() is None:
                process.kill()


def gone(store, name):
    try:
        store.actor(name).call("everything")
    except shmstore.actors.ActorLost:
        return True
    return False


def test_metrics(make_daemon, place, monkeypatch):
    daemon = make_daemon(config=f'partition "{place.path}" {{ create = yes }}\n')
    for key, value in daemon.env().items():
        monkeypatch.setenv(key, value)

    def figures():
        return [int(openmetrics.parse(daemon.get("/metrics"))[f"shmstore_{name}"].value(suffix))
                for name, suffix in FIGURES]

    assert figures() == [0] * 7
    made = [Process(daemon, place.path, "first", log(size=8192))]
    try:
        with shmstore.Partition(place.path).open("asks") as asks:
            actor = asks.actor("log")
            assert actor.call("add", 0) == (made[0].pid, 1)
            assert figures() == [1, 1, 0, 1, 0, 0, 0]
            with pytest.raises(shmstore.Error):
                actor.move("second")
            made.append(Process(daemon, place.path, "second"))
            actor.move("second")
            assert actor.call("add", 1) == (made[1].pid, 2)
            assert figures() == [2, 1, 0, 2, 0, 1, 0]
            late = [actor.send("add", 2, 30), actor.send("add", 3)]
            wait_for("the calls", lambda: figures()[2] == 2)
            made[1].kill()
            for call in late:
                with pytest.raises(shmstore.actors.ActorLost):
                    call.result()
            assert figures() == [1, 0, 0, 2, 2, 1, 0]
    finally:
        for process in made:
            if process.popen.poll() is None:
                process.kill()


# ---- moves ---------------------------------------------------------------------------------------


def check_moved(calls, actor, first, second, n=N):
    answers = [c.result(60) for c in calls]
    assert [a[1] for a in answers] == list(range(1, n + 1))  # each once, in order
    pids = [a[0] for a in answers]
    k = pids.count(first)
    assert pids == [first] * k + [second] * (n - k)
    pid, seen, total, most = actor.call("everything")
    assert (pid, seen, total, most) == (second, list(range(n)), n, 1)
    return k


@pytest.mark.parametrize("elsewhere", [False, True], ids=["by-link", "by-copy"])
def test_a_move_with_100_calls_in_flight(processes, store, place, other, elsewhere):
    """An actor of 16 MiB: on one partition, and to another one."""
    first = processes("first", log())
    second = processes("second", partition=other.path if elsewhere else place.path, room=64 * MIB)
    actor = store.actor("log")
    calls = [actor.send("add", i, 0.002) for i in range(N)]
    calls[10].result()
    begun = time.monotonic()
    actor.move("second")
    took = time.monotonic() - begun
    k = check_moved(calls, actor, first.pid, second.pid)
    assert 0 < k < N, k
    print(f"moved in {took * 1000:.0f} ms: {k} calls there, {N - k} here")
    wait_for("nothing left over", lambda: not saved(place.path) and not saved(other.path))
    actor.move("first")  # and back
    assert actor.call("add", N) == (first.pid, N + 1)


def test_the_daemon_finds_a_place(processes, store):
    first = processes("first", log(size=MIB))
    processes("small", room=1000)
    large = processes("large", room=100 * MIB)
    processes("none", room=0)
    processes("middle", room=50 * MIB)
    store.actor("log").move()
    assert store.actor("log").call("add", 0) == (large.pid, 1)
    assert first.pid != large.pid


def test_none_has_room(processes, store, place):
    first = processes("first", log(size=MIB, suspend=0.5))
    processes("small", room=1000)
    actor = store.actor("log")
    calls = [actor.send("add", i) for i in range(N)]
    with pytest.raises(shmstore.Error, match="for another place that has room") as e:
        actor.move()
    assert e.value.errno == 125
    check_moved(calls, actor, first.pid, first.pid)
    assert not saved(f"{place.path}/stores/w{first.pid}"), "the memory of a state that nobody takes"


def test_one_that_waits_for_room_gets_it(processes, store):
    processes("first", log(size=MIB, suspend=60))
    actor = store.actor("log")
    move = store._actor_move("log", None)
    calls = [actor.send("add", i) for i in range(N)]
    assert not calls[-1].done() and store._actor_answer(move, 0) is None
    second = processes("second")
    assert store._actor_answer(move, 60_000) == (1, b"")
    assert {c.result()[0] for c in calls} <= {second.pid, calls[0].result()[0]}
    assert calls[-1].result() == (second.pid, N)


def test_who_must_not_be_moved(processes, store):
    processes("first", log("a", 8192, level="never"))
    with store.place("second") as second:
        second.begin("fixed", object(), movable=False, level="always")
        for name, place, error in (("a", None, 1), ("fixed", None, 1), ("a", "nowhere", 116),
                                   ("fixed", "second", 116)):
            with pytest.raises(shmstore.Error) as e:
                store.actor(name).move(place)
            assert e.value.errno == error, (name, place)
        with pytest.raises(shmstore.actors.ActorLost):
            store.actor("b").move()


# ---- what fails, and who dies --------------------------------------------------------------------


@pytest.mark.parametrize("home,there", [("save=raise", ""), ("", "load=raise"), ("", "load=hang"),
                                        ("", "load=self")])
def test_what_fails_brings_it_home(processes, store, place, home, there):
    first = processes("first", log(size=4 * MIB, step=1), fate=home)
    second = processes("second", fate=there)
    actor = store.actor("log")
    calls = [actor.send("add", i, 0.001) for i in range(N)]
    with pytest.raises(shmstore.Error) as e:
        actor.move("second")
    assert e.value.errno == 125
    check_moved(calls, actor, first.pid, first.pid)
    if there == "load=hang":
        second.kill()
    wait_for("nothing left over", lambda: not saved(f"{place.path}/stores/w{first.pid}"))


def test_home_dies_before_it_is_saved(processes, store):
    processes("first", log(size=MIB), fate="save=self")
    processes("second")
    actor = store.actor("log")
    calls = [actor.send("add", i, 0.001) for i in range(N)]
    with pytest.raises(shmstore.Error) as e:
        actor.move("second")
    assert e.value.errno == 125
    outcomes = [outcome(c) for c in calls]
    k = sum(o != "lost" for o in outcomes)
    assert outcomes == list(range(1, k + 1)) + ["lost"] * (N - k)
    assert gone(store, "log")


def outcome(call):
    try:
        return call.result(60)[1]
    except shmstore.actors.ActorLost:
        return "lost"
    except shmstore.Error as e:
        return f"error {e.errno}"


def test_home_dies_after_it_is_saved(processes, store):
    """Its state is an object, and under way: the move goes on, and nothing is lost."""
    first = processes("first", log(size=4 * MIB))
    second = processes("second", fate=f"load={first.pid}")
    actor = store.actor("log")
    calls = [actor.send("add", i, 0.001) for i in range(N)]
    actor.move("second")
    check_moved(calls, actor, first.pid, second.pid)


@pytest.mark.parametrize("moment", ["save", "load"])
def test_the_daemon_dies_in_a_move(processes, store, daemon, moment):
    """Callers are told; what ran before is not lost, nothing runs twice, and
    one process has the actor."""
    fate = f"{moment}={daemon.process.pid}"
    first = processes("first", log(size=4 * MIB), fate=fate if moment == "save" else "")
    second = processes("second", fate=fate if moment == "load" else "")
    actor = store.actor("log")
    calls = [actor.send("add", i, 0.001) for i in range(N)]
    with pytest.raises(shmstore.Error) as e:
        actor.move("second")
    assert e.value.errno == 95
    outcomes = [outcome(c) for c in calls]
    k = sum(o != GONE for o in outcomes)
    assert outcomes == list(range(1, k + 1)) + [GONE] * (N - k)
    daemon.process.wait()
    daemon.restart()
    pid, seen, total, most = again(actor, "everything")
    assert seen == list(range(len(seen))) and k <= len(seen) and (total, most) == (len(seen), 1)
    assert pid in (first.pid, second.pid)
    # It is whole: it can be moved, by places that know of the new daemon.
    if moment == "save" and pid == first.pid:
        return  # its next save would kill again
    third = processes("third")
    actor.move("third")
    assert actor.call("add", len(seen)) == (third.pid, len(seen) + 1)


def test_the_daemon_dies_while_calls_run(processes, store, daemon):
    first = processes("first", log(size=8192))
    actor = store.actor("log")
    calls = [actor.send("add", i, 0.01) for i in range(N)]
    calls[5].result()
    daemon.kill()
    outcomes = [outcome(c) for c in calls]
    daemon.restart()
    pid, seen, total, most = again(actor, "everything")
    k = sum(o != GONE for o in outcomes)
    assert pid == first.pid and seen == list(range(len(seen))) and most == 1
    assert len(seen) in (k, k + 1)  # one ran, and its answer found nobody


@pytest.mark.parametrize("victim", ["daemon", "first", "second"])
@pytest.mark.parametrize("seed", range(4))
def test_a_kill_at_any_moment_of_a_move(processes, store, place, other, daemon, victim, seed):
    """Answers are 1, 2, 3, ... up to where somebody died; of what was answered nothing is lost,
    unless the process that had the actor is, and callers know."""
    dice = random.Random(f"{victim} {seed}")
    first = processes("first", log(size=8 * MIB))
    second = processes("second", partition=dice.choice([place, other]).path)
    actor = store.actor("log")
    calls = [actor.send("add", i, 0.001) for i in range(N)]
    calls[dice.randrange(10)].result()
    store._actor_move("log", "second")
    # it is killed at some moment: whichever that is, what follows must hold
    time.sleep(dice.random() * 0.08)
    {"daemon": daemon, "first": first, "second": second}[victim].kill()
    outcomes = [outcome(c) for c in calls]
    k = sum(isinstance(o, int) for o in outcomes)
    assert outcomes[:k] == list(range(1, k + 1)) and set(outcomes[k:]) <= {"lost", GONE}, outcomes
    if victim == "daemon":
        daemon.restart()
        pid, seen, total, most = again(actor, "everything")
        assert pid in (first.pid, second.pid) and k <= len(seen) <= k + 2
    elif k < N:
        assert gone(store, "log")
        return
    elif gone(store, "log"):
        return  # it died with the last call
    else:
        pid, seen, total, most = actor.call("everything")
        assert pid == (second if victim == "first" else first).pid and len(seen) == N
    assert seen == list(range(len(seen))) and (total, most) == (len(seen), 1)


STRANGER = """
import sys
sys.path.insert(0, sys.argv[1])
from daemon import Wire
wire = Wire(sys.argv[2])
answers = [wire.call("ACTOR_CALL", 3, 0, tail=b"logx"), wire.call("ACTOR_MOVE", 0, tail=b"log"),
           wire.call("ACTOR_NEXT", 0), wire.call("ACTOR_DONE", 0, 1, 0, 1, 3, tail=b"log")]
said = {(a.name, abs(a.values[0])) for a in answers}
assert said == {("REFUSED", 2)}, answers
assert wire.call("ACTOR_PLACE", 1 << 20, 0, 0, tail=b"first").name == "DONE"
assert wire.call("ACTOR_BORN", 0, 0, 0, 1, 0, 8, tail=b"log").name == "DONE"
print("well", flush=True)
sys.stdin.read()
"""


def test_others_have_other_actors(processes, store, daemon):
    """A name is a user's: another user neither calls nor moves the actor, nor finds out that it is
    there, and may have one of the same name."""
    first = processes("first", log(size=8192))
    other = python(STRANGER, Path(__file__).parent, daemon.socket, user=NOBODY, group=NOBODY,
                   env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, cwd="/")
    assert other.stdout.readline() == "well\n"
    assert store.actor("log").call("add", 0) == (first.pid, 1)
    other.kill()
    other.wait()


def test_a_place_that_lies(processes, store, daemon):
    """Answers for what it was not asked, for another place's actor, twice, or
    too late change nothing."""
    first = processes("first", log(size=8192))
    actor = store.actor("log")
    calls = [actor.send("add", i, 0.005) for i in range(N)]
    with daemon.wire() as wire:
        assert wire.call("ACTOR_PLACE", 1 << 20, 0, 0, tail=b"liar").name == "DONE"
        for step, request in [(s, 0) for s in range(20)] + [(0, r) for r in range(2 * N)]:
            assert wire.call("ACTOR_DONE", step, request, 0, 1, 3, tail=b"logx").name == "REFUSED"
        # as sure as can be: it is elsewhere
        assert wire.call("ACTOR_BORN", 99, 0, 0, 1, 0, 16, tail=b"log").name == "DONE"
        order = wire.call("ACTOR_NEXT", 0)
        assert (order.name, order.values[8], order.tail) == ("ACTOR_ORDER", 7, b"log")
    check_moved(calls, actor, first.pid, first.pid)
