# SPDX-License-Identifier: Apache-2.0
"""Notices of a preemption, by message and through the library, to the process that runs the task
and to the one whose task started it; idle workers, which go first; a daemon that may not signal;
and what runs when a daemon is killed is known to the next one."""
import json
import os
import signal
import time
from pathlib import Path

import pytest
from daemon import SHMSTORED, Closed, wait_for
from fixture import NOBODY
from gatehost import IN, MINE, NEVER, ask, python
from test_daemon_preempt import KILL, LEVELS, MIB, events, preemption, private, scene
from test_daemon_pressure import gate, memory, text

__all__ = ["scene"]  # fixtures
pytestmark = pytest.mark.skipif(not SHMSTORED.exists(), reason=f"{SHMSTORED}: not built")

RETRIABLE, TOLD, WORKER = 1, 2, 4
NOTICE, SPARED, LOST = 1, 2, 3
RETRY, ASKED = 1, 2
ENOENT, EPERM = -2, -1
# Runs a task, or, as "idle", has run one; ends at SIGTERM.
HOG = """
import sys, os, json
sys.path.insert(0, sys.argv[1])
from daemon import Wire
wire = Wire(sys.argv[2])
level, parent, flags, mib, idle = map(int, sys.argv[3:8])
answer = wire.call("TASK_ADMIT", 3, level, flags, 2**32 - 1, 0, 0, 0, parent,
                   tail=b"python\\nwork\\n")
assert answer.name == "TASK_ADMITTED", answer
held = bytearray(mib << 20)
held[::4096] = b"x" * len(held[::4096])
if idle:
    assert wire.call("TASK_DONE", answer.values[0]).name == "DONE"
print(answer.values[0], flush=True)
for line in sys.stdin:
    if line == "hear\\n":
        m = wire.unasked.pop(0) if wire.unasked else wire.receive()
        print(json.dumps([m.name, *m.values]), flush=True)
    elif line == "ping\\n":
        wire.ping()
        print([m.name for m in wire.unasked], flush=True)
    elif line == "trim\\n":
        del held
        print("ok", flush=True)
    elif line == "begin\\n":
        print(wire.call("TASK_ADMIT", 3, 0, flags, 2**32 - 1, 0, 0, 0, 0).name, flush=True)
    elif line == "done\\n":
        wire.unasked.clear() if wire.call("TASK_DONE", answer.values[0]).name == "DONE" else exit(1)
        print("ok", flush=True)
"""


class Hog:
    def __init__(self, daemon, level, mib, parent=0, flags=RETRIABLE | TOLD, idle=False, **options):
        self.process = python(HOG, Path(__file__).parent, daemon.socket, LEVELS[level], parent,
                              flags, mib, int(idle), **options)
        self.task = int(self.process.stdout.readline())
        self.pid = self.process.pid

    def begin(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def tell(self, word):
        self.begin(word)
        return self.process.stdout.readline()

    def hear(self, begun=False):
        """The next message to it. begun: it listens already, as it may be ended soon after."""
        if not begun:
            self.begin("hear")
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def hogs():
    made = []

    def make(*words, **options):
        made.append(Hog(*words, **options))
        return made[-1]

    yield make
    for hog in made:
        hog.process.kill()
        hog.process.wait()


def push(daemon, never):
    """Over the kill threshold."""
    never.tell(f"grow {(KILL - memory(daemon)['used']) // MIB + 3}")


def test_the_task_and_its_owner_are_told(scene, hogs):
    """The notice to both; of the loss only the owner can hear. A bystander, and a process that did
    not ask for notices, hear of neither."""
    daemon, worker = scene()
    never = worker("NEVER", 20)
    owner, bystander, deaf = (hogs(daemon, "NEVER", 1, flags=flags) for flags in (TOLD, TOLD, 0))
    victim = hogs(daemon, "HIGH", 24, owner.task)
    victim.begin("hear")
    push(daemon, never)
    task, of, had, grace, delay, what, flags = victim.hear(begun=True)[1:]
    assert (task, of, grace, delay, what, flags) == (victim.task, owner.task, 300, 1000, NOTICE,
                                                     RETRY) and had >= 20 * MIB
    assert owner.hear() == ["TASK_PREEMPT", task, of, had, grace, delay, what, flags]
    assert victim.process.wait(30) == -signal.SIGTERM
    assert owner.hear() == ["TASK_PREEMPT", task, of, had, 0, 1000, LOST, RETRY]
    assert bystander.tell("ping") == deaf.tell("ping") == "[]\n"


def test_who_did_not_ask_for_it_is_told_nothing(scene, hogs):
    daemon, worker = scene(preempt_grace="1s")
    never = worker("NEVER", 20)
    owner = hogs(daemon, "NEVER", 1, flags=0)
    victim = hogs(daemon, "HIGH", 24, owner.task, flags=RETRIABLE)
    push(daemon, never)
    wait_for("notice", lambda: preemption(daemon)["alive"] == 1)
    assert victim.tell("ping") == owner.tell("ping") == "[]\n"
    assert victim.process.wait(30) == -signal.SIGTERM
    wait_for("it is booked", lambda: preemption(daemon)["gone"] == 1)
    assert owner.tell("ping") == "[]\n"


def test_who_gives_way_is_told_that_it_is_spared(scene, hogs):
    daemon, worker = scene(preempt_grace="20s")
    never = worker("NEVER", 20)
    owner = hogs(daemon, "NEVER", 1, flags=TOLD)
    victim = hogs(daemon, "HIGH", 24, owner.task, flags=TOLD)
    push(daemon, never)
    assert owner.hear()[6:] == [NOTICE, 0]  # it cannot be tried again
    assert victim.tell("done") == "ok\n"
    assert owner.hear()[6] == SPARED
    assert victim.process.poll() is None


def test_an_idle_worker_goes_first(scene, hogs):
    """Before any task, however willing; who did not say that it is a worker
    never goes for being idle."""
    daemon, worker = scene()
    never = worker("NEVER", 20)
    always = worker("ALWAYS", 20)
    other = hogs(daemon, "ALWAYS", 16, flags=TOLD, idle=True)
    idle = hogs(daemon, "NEVER", 16, flags=TOLD | WORKER, idle=True)
    plan = preemption(daemon)["plan"]
    assert [(p["pid"], p["tasks"], p["why"]) for p in plan] == [(idle.pid, 0, "it is idle"), (
        always.pid, 1, "its level is ALWAYS")]
    idle.begin("hear")
    never.tell(f"grow {(KILL - memory(daemon)['used']) // MIB + 1}")
    task, parent, had, grace, _, what, _ = idle.hear(begun=True)[1:]
    assert (task, parent, grace, what) == (0, 0, 300, NOTICE) and had >= 16 * MIB
    assert idle.process.wait(30) == -signal.SIGTERM
    wait_for("used is below kill", lambda: memory(daemon)["used"] <= KILL)
    assert other.process.poll() is None and never.alive


def test_an_idle_worker_that_trims_lives(scene, hogs):
    daemon, worker = scene(preempt_grace="5s")
    never = worker("NEVER", 40)
    idle = hogs(daemon, "NEVER", 30, flags=TOLD | WORKER, idle=True)
    wait_for("its memory is seen", lambda: (private(daemon, idle) or 0) >= 30 * MIB)
    never.tell(f"grow {(KILL - memory(daemon)['used']) // MIB + 3}")
    assert idle.hear()[6] == NOTICE
    assert idle.tell("trim") == "ok\n"
    assert idle.hear()[6] == SPARED
    assert idle.process.poll() is None and preemption(daemon)["terms"] == 0


def test_a_worker_that_begins_a_task_is_idle_no_more(scene, hogs):
    """It is told so at once, and not at the end of the grace."""
    daemon, worker = scene(preempt_grace="600s")
    never = worker("NEVER", 40)
    idle = hogs(daemon, "NEVER", 30, flags=TOLD | WORKER, idle=True)
    wait_for("its memory is seen", lambda: (private(daemon, idle) or 0) >= 30 * MIB)
    never.tell(f"grow {(KILL - memory(daemon)['used']) // MIB + 3}")
    assert idle.hear()[6] == NOTICE
    never.tell("done")  # nothing runs: the next one is let in
    assert idle.tell("begin") == "TASK_ADMITTED\n"
    assert idle.hear()[6] == SPARED
    wait_for("it is spared", lambda: preemption(daemon)["spared"] == 1)


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_a_daemon_without_rights_signals_none_but_its_own(make_daemon, place, hogs):
    """It runs as nobody; root's worker, however willing and large, is counted, and neither noticed
    nor signalled; nobody's own is."""
    config = text(host_total="128MiB", preempt="shm", preempt_grace="300ms",
                  preempt_term="300ms").replace("interval = 20ms", "interval = 50ms")
    os.chmod(os.path.dirname(place.path), 0o777)
    daemon = make_daemon(config=f'daemon {{ socket-mode = 0666 }}\n{config}\npartition '
                                f'"{place.path}" {{ create = yes }}\n', http=False, start=False,
                         prefix=["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}",
                                 "--clear-groups"])
    os.chown(daemon.directory, NOBODY, NOBODY)
    daemon.start()
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    foreign = hogs(daemon, "ALWAYS", 30)
    idle = hogs(daemon, "NEVER", 20, flags=TOLD | WORKER, idle=True)
    own = hogs(daemon, "ALWAYS", 30, user=NOBODY, group=NOBODY, env=env, cwd="/")
    m = wait_for("all are seen",
                 lambda: (lambda m: {p["pid"] for p in m["processes"]
                                     if p["private"] >= 20 * MIB} == {
                                         foreign.pid, idle.pid, own.pid} and m)(memory(daemon)))
    p = preemption(daemon)
    assert [v["pid"] for v in p["plan"]] == [own.pid] and p["foreign"] == 2
    more = hogs(daemon, "NEVER", max((KILL - m["used"]) // MIB + 3, 1))
    assert own.process.wait(30) == -signal.SIGTERM
    wait_for("its memory is booked no more", lambda: memory(daemon)["used"] <= KILL)
    assert (foreign.process.poll() is None and idle.process.poll() is None and
            more.process.poll() is None)
    assert {e["pid"] for e in events(daemon)} == {own.pid}


# ---- the library ---------------------------------------------------------------------------------

GROW = ('globals().__setitem__("held", bytearray({} << 20)) or held.__setitem__(slice(None, None, '
        '4096), b"x" * ({} << 8))')
RUN = 'globals().__setitem__("a", store.admitted({})) or a.task'


def test_the_library_tells(scene, library):
    """The owner asks its store, the task asks itself; after the grace the process is
    ended, and the owner told."""
    daemon, worker = scene(preempt_grace="1500ms")
    never = worker("NEVER", 20)
    owner, victim = library(daemon.socket), library(daemon.socket)
    parent = int(owner(RUN.format("declared=0")))
    task = int(victim(RUN.format(f"'work', level='auto', retriable=True, parent={parent}")))
    assert victim("a.notice, a.check(), store.preempted()") == "(None, None, None)"
    assert owner("store.preempted(timeout=0.1)") == "None"
    assert victim(GROW.format(30, 30)) == "None"
    wait_for("it is seen", lambda: memory(daemon)["private"] > 50 * MIB)
    owner.begin("[store.preempted(timeout=60) for _ in range(2)]")
    push(daemon, never)
    said = victim("store.preempted(timeout=60)")
    assert (f"what='notice', task={task}, parent={parent}" in said and "grace=1.5" in said and
            "retry=True" in said), said
    assert victim("a.check()") == "Preempted None"
    heard = owner.end()
    assert (f"what='notice', task={task}" in heard and f"what='lost', task={task}" in heard and
            "delay=1.0" in heard), heard
    assert victim.process.wait(30) == -signal.SIGTERM


def test_a_notice_that_passes_by(scene, library):
    daemon, worker = scene(preempt_grace="3s")
    never, other = worker("NEVER", 20), worker("NEVER", 30)
    victim = library(daemon.socket)
    victim(RUN.format("level='high'"))
    victim(GROW.format(20, 20))
    wait_for("it is seen", lambda: memory(daemon)["private"] > 75 * MIB)
    push(daemon, never)
    assert "what='notice'" in victim("store.preempted(timeout=60)")
    other.close()
    assert "what='spared'" in victim("store.preempted(timeout=60)")
    assert victim("a.notice, a.check(), a.done(), a.notice") == "(None, None, None, None)"


# ---- after a restart -----------------------------------------------------------------------------


def runs(wire, task, declared=0, level=NEVER, uid=MINE, flags=0, parent=0, name=None):
    wire.send("TASK_RUNS", task, declared, parent, uid, flags, level, 0,
              tail="\n".join(name).encode() if name else b"")


def test_what_ran_is_known_to_the_next_daemon(gated, library):
    """With its number, what is expected of it, its level and its parent; so that nobody is let in
    beside it who would not have been."""
    daemon = gated()
    parent, child = library(daemon.socket), library(daemon.socket)
    first = int(parent(RUN.format("'join', declared=100 << 20, level='auto', retriable=True")))
    second = int(
        child(RUN.format(f"declared=4 << 20, level='low', retriable=True, parent={first}")))
    before = sorted((t["task"], t["reserve"], t["level"], t["function"])
                    for t in gate(daemon)["tasks"])
    assert before == [(first, 100 * MIB, "AUTO", "join"), (second, 4 * MIB, "LOW", None)]
    daemon.kill()
    daemon.restart()
    assert gate(daemon)["running"] == 0
    # Any call that looks for the daemon; one that is slow to greet is heard by a later one.
    wait_for("it is back", lambda: child("store.preempted()") == "None" and
             gate(daemon)["running"] == 1)
    wait_for("both are", lambda: parent("store.preempted()") == "None" and
             gate(daemon)["running"] == 2)
    after = sorted((t["task"], t["reserve"], t["level"], t["function"])
                   for t in gate(daemon)["tasks"])
    assert after == before
    with daemon.wire() as wire:
        assert ask(wire, declared=20 * MIB).outcome != IN
        assert ask(wire, declared=MIB).task > second
    assert child("a.done()") == "None" and parent("a.done()") == "None"
    wait_for("both have ended", lambda: gate(daemon)["running"] == 0)
    # The next daemon is not told of a task that ended while no daemon was there.
    parent(RUN.format("declared=1 << 20"))
    child(RUN.format("declared=1 << 20"))
    daemon.kill()
    assert child("a.done()") == "None"
    daemon.restart()
    wait_for("one runs", lambda: parent("store.preempted()") == child("store.preempted()") ==
             "None" and gate(daemon)["running"] == 1)


def test_many_that_ran(gated, library):
    daemon = gated()
    many = library(daemon.socket)
    assert many(
        "len(globals().setdefault('all', [store.admitted(wait=5) for _ in range(600)]))") == "600"
    daemon.kill()
    daemon.restart()
    wait_for("all are back", lambda: many("store.preempted()") == "None" and
             gate(daemon)["running"] == 600)
    assert many("[a.done() for a in all].count(None)") == "600"
    assert gate(daemon)["running"] == 0


def test_a_forged_claim_counts_nothing(gated):
    """A number that no earlier daemon gave, one that another connection
    has, a level that is none."""
    daemon = gated()
    with daemon.wire() as wire, daemon.wire() as other:
        task = ask(wire, declared=MIB).task
        for number in (0, task, task + 1, 2**53, 2**64 - 1):
            runs(other, number, declared=100 * MIB)
        other.ping()
        assert gate(daemon)["running"] == 1
        runs(other, 7, declared=100 * MIB, level=2, name=("c", "f", ""))
        runs(other, 7, declared=5)
        runs(wire, 7, declared=5)
        other.ping()
        wire.ping()
        assert [(t["task"], t["reserve"], t["level"]) for t in gate(daemon)["tasks"]
                if t["task"] != task] == [(7, 100 * MIB, "MED")]
        assert (wire.call("TASK_DONE", 7).values[0] == EPERM and other.call("TASK_DONE", 7).name ==
                "DONE")
        assert other.call("TASK_DONE", 7).values[0] == ENOENT
        with daemon.wire() as wrong, pytest.raises(Closed):
            runs(wrong, 8, level=6)
            wrong.receive()


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_another_user_preempts_admits_and_hears_nothing_of_ones_own(scene, hogs):
    """Nobody's process claims root's tasks, names them as parents, and pushes memory over: what is
    told of root's task it does not hear, and its own goes first."""
    daemon, worker = scene()
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import gatehost as t
import test_daemon_preempt_told as told
from daemon import Wire
wire = Wire(sys.argv[2])
task = int(sys.argv[3])
told.runs(wire, 5, declared=1, uid=0)
told.runs(wire, task, declared=1)
told.runs(wire, 6, declared=1, parent=task)
assert wire.call("TASK_DONE", 5).values[0] == t.ENOENT
assert wire.call("TASK_DONE", 6).values[0] == t.ENOENT
assert wire.call("TASK_DONE", task).values[0] == t.EPERM
for how in ({"uid": 0}, {"parent": task}):
    assert wire.reply(t.send(wire, flags=7, **how)).values[0] == t.EPERM
assert t.ask(wire, flags=told.TOLD, level=t.HIGH).outcome == t.IN
document = wire.query("gate")["gate"]
assert [k["uid"] for k in document["tasks"]] == [told.NOBODY]
told_of = document["preemption"]
assert {v["uid"] for v in told_of["plan"]} <= {told.NOBODY} and told_of["recent"] == [], told_of
print("well", flush=True)
sys.stdin.readline()
wire.ping()
assert not wire.unasked, wire.unasked
print("silent", flush=True)
sys.stdin.read()
"""
    never = worker("NEVER", 20)
    victim = hogs(daemon, "ALWAYS", 24)
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    other = python(code, Path(__file__).parent, daemon.socket, victim.task, user=NOBODY,
                   group=NOBODY, env=env, cwd="/")
    try:
        assert other.stdout.readline() == "well\n"
        push(daemon, never)
        assert victim.process.wait(30) == -signal.SIGTERM
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "silent\n"
    finally:
        other.kill()
        other.wait()


def test_killed_amid_a_preemption_the_next_daemon_begins_anew(scene, library):
    """Between the notice and the signal: nobody is signalled. The next one knows the tasks as soon
    as their stores look for it, and chooses by them."""
    daemon, worker = scene(preempt_grace="2s")
    victim, never = library(daemon.socket), library(daemon.socket)
    task = int(victim(RUN.format("level='high', retriable=True")))
    victim(GROW.format(40, 40))
    never(RUN.format(""))
    wait_for("they are seen", lambda: memory(daemon)["private"] > 46 * MIB)
    more = (KILL - memory(daemon)["used"]) // MIB + 4
    never(GROW.format(more, more))
    wait_for("notice", lambda: preemption(daemon)["alive"] == 1)
    daemon.kill()
    daemon.restart()
    time.sleep(2.5)
    assert victim.process.poll() is None and preemption(daemon)["notices"] == 0, (
        "it knows of nobody yet, and ends nobody")
    wait_for("it is known", lambda: never("store.preempted()") == "None" and
             gate(daemon)["running"] == 1)
    said = victim("next(told for _ in range(600) if (told := store.preempted(timeout=0.1)) and "
                  "told.what == 'notice')")
    assert f"task={task}" in said
    assert victim.process.wait(30) == -signal.SIGTERM and never.process.poll() is None
    wait_for("used is below kill", lambda: memory(daemon)["used"] <= KILL)


def test_killed_between_the_signals(scene, hogs):
    """A process that SIGTERM did not end lives on without a daemon; the next daemon, which is told
    of nothing, leaves it alone."""
    daemon, worker = scene(preempt_term="20s")
    stubborn, never = worker("LOW", 40), worker("NEVER", 20)
    stubborn.tell("ignore")
    push(daemon, never)
    wait_for("it was told to end", lambda: preemption(daemon)["terms"] == 1)
    daemon.kill()
    daemon.restart()
    time.sleep(1)
    assert stubborn.alive and never.alive and preemption(daemon)["notices"] == 0
