# SPDX-License-Identifier: Apache-2.0
"""Actors of a real daemon where memory is short: a process that gives way has its actors moved
first, and whichever cannot be moved, or must not, keeps its process."""
import pickle

import pytest
from actorscene import environment, program  # noqa: F401
from daemon import ACTORD, wait_for
from gatehost import python
from test_daemon_actors import other, place_size  # noqa: F401
from test_daemon_preempt import Worker, looked
from test_daemon_pressure import gate, text

pytestmark = pytest.mark.skipif(not ACTORD.exists(), reason=f"{ACTORD}: not built")

MIB = 1 << 20

PREEMPTED = """
import os, sys, time
import shmstore
ballast = []

class Block:
    def __init__(self):
        self.n = 0

    def grow(self, mib):
        ballast.append(os.urandom(1 << 20) * mib)

    def keep(self, mib):
        import numpy as np
        self.data = np.ones(mib << 20, dtype=np.uint8)  # saved without a copy in the process

    def count(self):
        self.n += 1
        return os.getpid(), self.n

    def __getstate__(self):
        time.sleep(float(os.environ.get("SLOW", "0")))
        return self.__dict__

store = shmstore.Partition(sys.argv[1]).open("w%d" % os.getpid())
place = store.place(sys.argv[2])
if sys.argv[3:]:
    if sys.argv[3] != "alone":
        task = store.admitted("work", level="always", retriable=True, worker=True).__enter__()
    place.begin(os.environ.get("ACTOR", "block"), Block(), level=sys.argv[4])
    if sys.argv[3] == "idle":
        task.done()
print("ready", flush=True)
place.serve()
"""


def ask_block(wire, method, *args):
    serial = wire.send("ACTOR_CALL", 5, 0, tail=b"block" + pickle.dumps((method, args, {})))
    answer = wire.reply(serial)
    assert (answer.name, answer.values[0]) == ("ACTOR_ANSWER", 1), answer
    return pickle.loads(answer.tail)


@pytest.mark.parametrize("work", ("runs", "idle"))
def test_an_actor_that_is_never_moved_keeps_its_process(make_daemon, place, work):
    """Also where the process's task is ALWAYS, or where it is a worker without a task: it is no
    more willing than what lives there."""
    keys = text(host_total="512MiB", preempt="shm", preempt_grace="50ms", preempt_term="50ms")
    daemon = make_daemon(config=f'{keys}\npartition "{place.path}" {{ create = yes }}\n',
                         http=False)
    worker = python(PREEMPTED, place.path, "first", work, "never",
                    env=environment(daemon))
    assert worker.stdout.readline() == "ready\n"
    wait_for("it is known", lambda: gate(daemon)["preemption"]["never"] == 1)
    with daemon.wire() as wire:
        ask_block(wire, "grow", 500)
        samples = wire.query("memory")["memory"]["samples"]
        wait_for("looks at a full host", lambda: (m := wire.query("memory")["memory"])["samples"] >
                 samples + 20 and m["used"] > m["kill"])
        assert ask_block(wire, "count") == (worker.pid, 1)
    assert (gate(daemon)["preemption"]["plan"], gate(daemon)["preemption"]["waves"]) == ([], 0)
    worker.kill()
    worker.wait()


@pytest.mark.parametrize("work", ("runs", "idle", "alone"))
def test_who_is_preempted_has_its_actors_moved(make_daemon, place, work):
    """At the notice, before the process is ended; the plan says so before that. Without another
    process that has room it does not."""
    keys = text(host_total="512MiB", preempt="shm", preempt_grace="5s",
                preempt_term="300ms").replace("interval = 20ms", "interval = 50ms")
    daemon = make_daemon(config=f'{keys}\npartition "{place.path}" {{ create = yes }}\n',
                         http=False)
    env = environment(daemon)
    with daemon.wire() as wire:
        first = python(PREEMPTED, place.path, "first", work, "high", env=env)
        assert first.stdout.readline() == "ready\n"
        assert ask_block(wire, "count") == (first.pid, 1)
        plan = lambda: [(p["pid"], p["level"], p["actors"], p["actors_moved"])
                        for p in gate(daemon)["preemption"]["plan"]]  # noqa: E731
        wait_for("the plan", lambda: gate(daemon)["preemption"]["kept"] == 1)
        assert plan() == []
        second = python(PREEMPTED, place.path, "second", env=env)
        assert second.stdout.readline() == "ready\n"
        wait_for("the plan", lambda: plan() == [(first.pid, "HIGH", 1, 1)])
        ask_block(wire, "grow", 500)
        first.wait(60)
        assert ask_block(wire, "count") == (second.pid, 2)
        assert gate(daemon)["preemption"]["gone"] == 1
    second.kill()
    second.wait()


def test_a_move_holds_the_signal_and_is_told_as_is_the_loss_of_an_actor(make_daemon, place):
    keys = text(host_total="512MiB", preempt="shm", preempt_grace="50ms", preempt_term="50ms")
    daemon = make_daemon(config=f'{keys}\npartition "{place.path}" {{ create = yes }}\n', http=True)
    env = environment(daemon)
    with daemon.wire() as wire:
        first = python(PREEMPTED, place.path, "first", "alone", "high", env={**env, "SLOW": "1.5"})
        second = python(PREEMPTED, place.path, "second", env=env)
        assert first.stdout.readline() == second.stdout.readline() == "ready\n"
        assert ask_block(wire, "count") == (first.pid, 1)
        ask_block(wire, "grow", 500)
        first.wait(60)
        assert ask_block(wire, "count") == (second.pid, 2), (
            "SIGTERM came 50 ms after the notice, in the middle of the move")
        second.kill()
        second.wait()
        wait_for("it is told", lambda: daemon.api("actors")["actors"]["died"] == 1)
        told = [(e["event"], e["actor"], e["from"], e["to"]) for e in wire.query("events")["events"]
                if e["event"].startswith("actor-")]
        assert told == [("actor-moved", "block", "first", "second"),
                        ("actor-lost", "block", "second", None)]
    assert "shmstore_actor_lost_total 1" in daemon.get("/metrics")


@pytest.mark.parametrize("level", ("high", "always"))
def test_a_move_for_memory_goes_to_another_partition_and_not_where_it_frees_nothing(
        make_daemon, place, other, level):
    """An actor that is all of its process's memory: in the same partition it would take as much as
    before. It is not moved there, nor ended; the plan says so."""
    keys = text(host_total="256MiB", preempt="shm", preempt_grace="200ms", preempt_term="200ms")
    daemon = make_daemon(config=f'{keys}\n' + "".join(f'partition "{p.path}" {{ create = yes }}\n'
                                                      for p in (place, other)), http=True)
    env = environment(daemon)
    with daemon.wire() as wire:
        first = python(PREEMPTED, place.path, "first", "alone", level, env=env)
        second = python(PREEMPTED, place.path, "second", env=env)
        assert first.stdout.readline() == second.stdout.readline() == "ready\n"
        ask_block(wire, "keep", 60)
        ask_block(wire, "grow", 5)
        never = python(PREEMPTED, place.path, "third", "runs", "never",
                       env={**env, "ACTOR": "ballast"})
        assert never.stdout.readline() == "ready\n"
        serial = wire.send("ACTOR_CALL", 7, 0, tail=b"ballast" + pickle.dumps(("grow", (150,), {})))
        assert wire.reply(serial).values[0] == 1
        wait_for("it was not moved", lambda: gate(daemon)["preemption"]["spared"] == 1)
        assert ask_block(wire, "count") == (first.pid, 1)
        plan = gate(daemon)["preemption"]
        assert (plan["plan"], plan["kept"], plan["terms"]) == ([], 1, 0)
        assert daemon.api("actors")["actors"]["failed"] == 1
        fourth = python(PREEMPTED, other.path, "fourth", env=env)
        assert fourth.stdout.readline() == "ready\n"
        first.wait(60)
        assert ask_block(wire, "count") == (fourth.pid, 2)
        told = [(e["event"], e["actor"], e["from"], e["to"]) for e in wire.query("events")["events"]
                if e["event"].startswith("actor-")]
        assert told == [("actor-moved", "block", "first", "fourth")]
    for process in (second, never, fourth):
        process.kill()
        process.wait()


@pytest.mark.parametrize("level", ("low", "always"))
def test_whose_actor_has_no_place_to_go_is_not_ended_though_its_task_may_be(
        make_daemon, place, level):
    """Neither where it runs a task, nor where saving the actor fails: it goes on, and is
    not asked again at once."""
    keys = text(host_total="512MiB", preempt="shm", preempt_grace="50ms", preempt_term="50ms")
    daemon = make_daemon(config=f'{keys}\npartition "{place.path}" {{ create = yes }}\n', http=True)
    env = environment(daemon)
    with daemon.wire() as wire:
        # float("x") raises
        first = python(PREEMPTED, place.path, "first", "runs", level, env={**env, "SLOW": "x"})
        assert first.stdout.readline() == "ready\n"
        ask_block(wire, "grow", 500)
        looks = lambda: wire.query("memory")["memory"]["samples"]  # noqa: E731
        until = looks() + 20
        wait_for("more looks", lambda: looks() >= until)
        assert (gate(daemon)["preemption"]["waves"], gate(daemon)["preemption"]["kept"]) == (0, 1)
        second = python(PREEMPTED, place.path, "second", env=env)
        assert second.stdout.readline() == "ready\n"
        wait_for("it is spared", lambda: gate(daemon)["preemption"]["spared"] == 1)
        assert ask_block(wire, "count") == (first.pid, 1)
        told = gate(daemon)["preemption"]
        assert (told["terms"], told["kills"], daemon.api("actors")["actors"]["died"]) == (0, 0, 0)
    for process in (first, second):
        process.kill()
        process.wait()


def test_a_move_holds_even_the_last_signal_and_others_go_meanwhile(make_daemon, place, small):
    """All of the host is used: the process in the midst of a move is not
    killed, the next one is."""
    keys = text(**small.keys, preempt="shm", preempt_grace="20s", preempt_term="20s")
    small.available(100)
    daemon = make_daemon(config=f'{keys}\npartition "{place.path}" {{ create = yes }}\n',
                         http=False)
    env = environment(daemon)
    low = Worker(daemon, "LOW")
    with daemon.wire() as wire:
        first = python(PREEMPTED, place.path, "first", "alone", "always",
                       env={**env, "SLOW": "1.5"})
        second = python(PREEMPTED, place.path, "second", env=env)
        assert first.stdout.readline() == second.stdout.readline() == "ready\n"
        small.private(first.pid, 100 * MIB)
        assert ask_block(wire, "count") == (first.pid, 1)
        looked(daemon)
        small.available(0)
        assert low.process.wait(30) == -9
        assert first.poll() is None
        assert ask_block(wire, "count") == (second.pid, 2)
        steps = [(e["pid"], e["step"]) for e in wire.query("events")["events"]
                 if e["event"] == "preempt"]
        assert steps.index((first.pid, "notice")) < steps.index((low.pid, "kill"))
    low.close()
    for process in (first, second):
        process.kill()
        process.wait()
