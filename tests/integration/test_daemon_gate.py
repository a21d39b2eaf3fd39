# SPDX-License-Identifier: Apache-2.0
"""Tasks ask a real daemon whether they may begin: each answer and reason, the order of
those who wait, deadlines, deaths of clients and of the daemon, other users, estimates by
profile, and a load under which the gate does not flap. The host is made up: 128 MiB, of
which the test says what is used."""
import heapq
import itertools
import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest
from daemon import SHMSTORED, Closed, Message, wait_for
from fixture import BUILD, NOBODY
from gatehost import (
    ALWAYS, AUTO, ECANCELED, EINVAL, EMFILE, ENOENT, EPERM, FITS, FULL, GATE, IN, LOW, MED, MEMINFO,
    MIB, MINE, MORE_THAN_ALL, NEVER, OFF,
    PAGE, PROGRESS, REFUSED, RETRIABLE, STATM, TIMEDOUT, TOOBIG, UNTIL, WAIT, Answer, ask, done,
    hear, looked, python, send,
)
from test_daemon_pressure import gate
from test_profiles import BEGIN, DONE, END, HAS_PRIVATE, SAMPLE, profile
from test_profiles import run as run_profiled

pytestmark = pytest.mark.skipif(not SHMSTORED.exists(), reason=f"{SHMSTORED}: not built")

# ---- answers -------------------------------------------------------------------------------------


def test_each_reason(gated, small):
    daemon = gated()
    with daemon.wire() as wire:
        assert ask(wire, declared=116 * MIB).why == (TOOBIG, MORE_THAN_ALL)
        assert ask(wire, declared=2**64 - 1, form=WAIT).why == (TOOBIG, MORE_THAN_ALL)
        first = ask(wire, declared=60 * MIB)
        assert first.why == (IN, PROGRESS) and first.reserve == 60 * MIB
        second = ask(wire, declared=50 * MIB)
        assert second.why == (IN, FITS)
        assert ask(wire, declared=10 * MIB).why == (REFUSED, FULL)
        assert ask(wire, declared=5 * MIB).why == (IN, FITS)
        small.available(10)
        looked(daemon, lambda g: g["state"] == "closed")
        assert ask(wire).why == (REFUSED, GATE)
        g = gate(daemon)
        assert (g["running"], g["waiting"], g["reserved"], g["refused"], g["held_by_full"],
                g["held_by_gate"], g["too_big"]) == (
                    3, 0, 115 * MIB, 4, 1, 1, 2)
        assert {(t["state"], t["level"], t["reserve"], t["pid"]) for t in g["tasks"]} == {
            ("running", "NEVER", n * MIB, os.getpid()) for n in (60, 50, 5)}
        done(wire, first.task)
        done(wire, second.task)
        assert ask(wire).why == (REFUSED, GATE)
        done(wire, ask_task(g, 5 * MIB))
        # However closed it is: nothing could ever open it.
        assert ask(wire, declared=100 * MIB).why == (IN, PROGRESS)


def ask_task(g, reserve):
    return next(t["task"] for t in g["tasks"] if t["reserve"] == reserve)


def test_off(make_daemon, place):
    daemon = make_daemon(config=f'partition "{place.path}" {{ create = yes }}\n', http=False)
    with daemon.wire() as wire:
        for _ in range(3):
            assert ask(wire, form=WAIT, declared=2**50).why == (IN, OFF)
        assert wire.call("TASK_DONE", 1).values[0] == ENOENT


def test_what_tasks_have_is_not_expected_again(gated, small):
    """Of two tasks of one process, whoever has it; and what one left
    behind is the process's own."""
    daemon = gated()
    small.private(os.getpid(), 30 * MIB)
    small.available(98)
    looked(daemon, lambda g: g["used"] == 30 * MIB)
    with daemon.wire() as wire:
        first, second = ask(wire, declared=40 * MIB).task, ask(wire, declared=20 * MIB).task
        assert ask(wire, declared=26 * MIB).why == (REFUSED, FULL)  # 115.2 - 30 - 60
        small.private(os.getpid(), 80 * MIB)
        small.available(48)
        g = looked(daemon, lambda g: g["reserved_used"] == 50 * MIB)
        assert {t["task"]: t["now"] for t in g["tasks"]} == {first: 40 * MIB, second: 10 * MIB}
        assert ask(wire, declared=26 * MIB).why == (REFUSED, FULL)  # 10 are still to come
        third = ask(wire, declared=25 * MIB)
        assert third.why == (IN, FITS)
        done(wire, third.task)
        done(wire, first)  # which freed nothing: 50 are more than the 20 that the other may have
        g = looked(daemon, lambda g: g["reserved_used"] == 20 * MIB)
        assert [(t["task"], t["now"]) for t in g["tasks"]] == [(second, 20 * MIB)]
        assert (ask(wire, declared=36 * MIB).why == (REFUSED, FULL) and
                ask(wire, declared=35 * MIB).why == (IN, FITS))


def test_used_by_others_leaves_less(gated, small):
    daemon = gated()
    with daemon.wire() as wire:
        ask(wire, declared=10 * MIB)
        small.available(78)  # 50 are used, and the task is not seen to be among them
        looked(daemon, lambda g: g["used"] == 50 * MIB)
        assert ask(wire, declared=56 * MIB).why == (REFUSED, FULL)
        assert ask(wire, declared=55 * MIB).why == (IN, FITS)


def test_counts_until_the_connection_ends(gated):
    daemon = gated()
    with daemon.wire() as bystander:
        with daemon.wire() as wire:
            ask(wire, declared=60 * MIB)
            ask(wire, declared=50 * MIB)
            waits = send(wire, form=WAIT, declared=50 * MIB)
            mine = send(bystander, form=WAIT, declared=90 * MIB)
            assert gate(daemon)["waiting"] == 2
            assert waits
        assert hear(bystander, mine).why == (IN, PROGRESS)
        wait_for("nobody else", lambda: (gate(daemon)["waiting"], gate(daemon)["running"],
                                         gate(daemon)["reserved"]) == (0, 1, 90 * MIB))


# ---- waiting -------------------------------------------------------------------------------------


def test_level_by_level_in_the_order_of_arrival(gated):
    daemon = gated()
    with daemon.wire() as wire:
        task = ask(wire, declared=110 * MIB).task
        order = [(ALWAYS, 0), (NEVER, 0), (MED, 0), (AUTO, RETRIABLE), (NEVER, 0), (AUTO, 0),
                 (LOW, 0)]
        serials = [send(wire, form=WAIT, level=level, flags=flags, declared=100 * MIB)
                   for level, flags in order]
        served = []
        while len(served) < len(serials):
            done(wire, task)
            while not wire.unasked:
                wire.unasked.append(wire.receive())
            (message,) = wire.unasked
            wire.unasked.clear()
            served.append(serials.index(message.serial))
            task = Answer(message).task
        # AUTO is HIGH where it can be tried again, else NEVER.
        assert served == [1, 4, 5, 6, 2, 3, 0]


def test_a_large_one_is_not_passed(gated):
    daemon = gated()
    with daemon.wire() as wire:
        first = ask(wire, declared=60 * MIB).task
        large = send(wire, form=WAIT, declared=80 * MIB)
        assert ask(wire, declared=MIB).why == (REFUSED, FULL)
        higher = send(wire, form=WAIT, level=ALWAYS, declared=MIB)
        done(wire, first)
        assert hear(wire, large).why == (IN, PROGRESS)
        assert hear(wire, higher).why == (IN, FITS)


def test_deadlines(gated):
    daemon = gated()
    with daemon.wire() as wire:
        task = ask(wire, declared=110 * MIB).task
        begun = time.monotonic()
        late = send(wire, form=UNTIL, ms=900, declared=50 * MIB)
        # comes before the one whose timer runs
        soon = send(wire, form=UNTIL, ms=150, declared=50 * MIB)
        ever = send(wire, form=UNTIL, ms=2**64 - 1, declared=50 * MIB)
        answer = hear(wire, soon)
        assert (answer.why == (TIMEDOUT, FULL) and answer.waited_ms >= 150 and
                0.15 <= time.monotonic() - begun < 0.9)
        answer = hear(wire, late)
        # its clock counts whole milliseconds
        assert answer.why == (TIMEDOUT, FULL) and time.monotonic() - begun >= 0.898
        done(wire, task)
        assert hear(wire, ever).why == (IN, PROGRESS)
        assert gate(daemon)["timed_out"] == 2


def test_an_opening_gate_lets_in_by_the_ramp(gated, small):
    daemon = gated(ramp=2, ramp_max=3)
    with daemon.wire() as wire:
        ask(wire)
        small.available(8)
        looked(daemon, lambda g: g["state"] == "closed")
        serials = [send(wire, form=WAIT) for _ in range(12)]
        assert gate(daemon)["waiting"] == 12
        small.available(128)
        waited = [hear(wire, s) for s in serials]
        assert all(a.why == (IN, FITS) for a in waited)
        steps = sorted({a.waited_ms for a in waited})
        assert len(steps) >= 4, steps  # 2, 3, 3, 3, 1: each interval some


def test_cancel_and_wrong_requests(gated):
    daemon = gated()
    with daemon.wire() as wire:
        ask(wire, declared=110 * MIB)
        waits = send(wire, form=WAIT, declared=50 * MIB)
        behind = send(wire, form=WAIT)
        cancel = wire.send("CANCEL", waits)
        refused = wire.reply(waits)
        assert (refused.name, refused.values[0]) == ("REFUSED", ECANCELED)
        assert wire.reply(cancel).name == "DONE" and hear(wire, behind).why == (IN, FITS)
        assert wire.call("CANCEL", waits).name == "DONE"
        for name in (("c",), ("c", "f"), ("", "f", ""), ("c", "f", "g", "h"), ("c", "f" * 256, "")):
            answer = wire.reply(send(wire, name=name))
            assert ((answer.name, answer.values[0]) == ("REFUSED", EINVAL) and
                    "a kind of tasks" in answer.text)
        assert wire.call("TASK_DONE", 99).values[0] == ENOENT
    for values in ((0, 0), (4, 0), (1, 6)):
        with daemon.wire() as wire, pytest.raises(Closed):
            wire.call("TASK_ADMIT", *values, 0, MINE, 0, 0, 0, 0)
    for flags, reserved in ((8, 0), (0, 1)):
        with daemon.wire() as wire, pytest.raises(Closed):
            wire.call("TASK_ADMIT", 1, 0, flags, MINE, reserved, 0, 0, 0)
    with daemon.wire() as wire:
        ask(wire, declared=110 * MIB)
        for _ in range(1023):
            send(wire, form=WAIT, declared=50 * MIB)
        answer = wire.reply(send(wire, form=WAIT))
        assert (answer.name, answer.values[0]) == ("REFUSED", EMFILE)
        assert gate(daemon)["waiting"] == 1023
    wait_for("they are gone with their connection", lambda: gate(daemon)["waiting"] == gate(
        daemon)["running"] == 0)


def test_events_and_metrics(gated, small):
    daemon = gated(http=True)
    with daemon.wire() as wire:
        ask(wire, declared=110 * MIB)
        for _ in range(50):
            ask(wire, declared=50 * MIB, name=("c", "join", ""))
        send(wire, form=WAIT, declared=50 * MIB)
        events = [e for e in wire.query("events")["events"] if e["event"] == "admission"]
        assert 1 <= len(events) <= 3, "one a second of a user"
        assert events[0]["reason"] == "full" and events[0]["uid"] == os.getuid()
        wait_for("it has waited", lambda: gate(daemon)["oldest_wait_seconds"] > 0.05)
        lines = dict(line.rsplit(" ", 1) for line in daemon.get("/metrics").splitlines()
                     if line.startswith("shmstore_gate_"))
        assert [int(lines[f"shmstore_gate_{n}"]) for n in ("running", "waiting", "admitted_total",
                                                           "progress_total", "refused_total")] == [
                                                               1, 1, 1, 1, 50]
        assert (int(lines["shmstore_gate_reserved_bytes"]) == 110 * MIB and
                float(lines["shmstore_gate_oldest_wait_seconds"]) > 0.05)
        assert daemon.api("gate")["gate"]["waiting"] == 1
        people = subprocess.run([str(BUILD / "tools" / "shmstore-admin"), "gate"], env=daemon.env(),
                                capture_output=True, text=True, timeout=60, check=True)
        assert "WAITING" in people.stdout and "110 MiB" in people.stdout


# ---- estimates -----------------------------------------------------------------------------------

PROFILE = ('profile {{ private = "{}"\n directory = none\n default-estimate = 7MiB\n interval = '
           '5ms }}')


def count_fitting(daemon, kinds):
    with daemon.wire() as wire:
        n = 0
        while ask(wire, name=kinds[n % len(kinds)]).outcome == IN:
            n += 1
        return n


@pytest.mark.parametrize("strategy,fit", [("conservative", 3), ("histogram:0.1", 5),
                                          ("aggressive", 6)])
def test_estimates_by_profile(gated, strategy, fit):
    """Of ten tasks of each kind one had 48 MiB, or 12, and the others 24, or 8."""
    daemon = gated(PROFILE.format(strategy))
    kinds = [("c", "large", ""), ("c", "small", "T#1")]
    with daemon.wire() as wire:
        assert ask(wire, name=kinds[0]).reserve == 7 * MIB
        for i in range(10):
            run_profiled(wire, 1, kinds[0], (48 if i == 4 else 24) * MIB)
            run_profiled(wire, 1, kinds[1], (12 if i == 4 else 8) * MIB)
        if strategy == "conservative":
            assert [ask(wire, name=k).reserve for k in (*kinds, ("c", "small", "T#9"))] == [
                48 * MIB, 12 * MIB, 12 * MIB]
    wait_for("nothing runs", lambda: gate(daemon)["running"] == 0)
    # Below 115.2: 48 + 12 + 48 at their peaks; 26.4 and 8.4 on average, three times.
    assert count_fitting(daemon, kinds) == fit


def test_the_first_to_end_says_nothing_of_those_that_run(gated):
    """The one that lives shortest had 1 MiB. Those of its kind that still run go on to reserve
    what was expected of them."""
    daemon = gated(PROFILE.format("conservative").replace("7MiB", "40MiB"))
    kind = ("c", "new", "")
    with daemon.wire() as wire:
        assert [ask(wire, name=kind).outcome for _ in range(3)] == [IN, IN, REFUSED]
        # As many samples as a lifetime has phases, and it lives for some ms.
        begun = time.monotonic()
        assert profile(wire, BEGIN, 1, kind).name == "PROFILED"
        for n in itertools.count(1):
            assert profile(wire, SAMPLE, 1, flags=HAS_PRIVATE, private=MIB).name == "PROFILED"
            if n >= 20 and time.monotonic() - begun > 0.02:
                break
        assert profile(wire, END, 1, how=DONE, flags=HAS_PRIVATE, private=MIB).name == "PROFILED"
        looked(daemon)
        assert gate(daemon)["reserved"] == 80 * MIB
        assert ask(wire, name=kind).why == (REFUSED, FULL)


def test_adaptive_becomes_bolder_where_little_is_used(gated):
    """64 tasks that never use what is reserved for them take it a step on; as many while
    it is used leave it there."""
    daemon = gated(PROFILE.format("adaptive"))

    def let_in(wire, n):
        for _ in range(n):
            done(wire, ask(wire, name=("c", "some", "")).task)

    def strategy():
        document = daemon.admin("profile", "show")
        assert document["adaptive"]
        return document["strategy"]

    with daemon.wire() as wire:
        assert ask(wire, declared=40 * MIB).outcome == IN
        looked(daemon)
        let_in(wire, 63)
        assert strategy() == "peak"
        let_in(wire, 1)
        assert strategy() == "p95"
    assert "estimates are by p95 from now on" in daemon.log()


# ---- deaths, users -------------------------------------------------------------------------------

WAITER = """
import sys
sys.path.insert(0, sys.argv[1])
import gatehost as t
from daemon import Wire
wire = Wire(sys.argv[2])
print("asks", flush=True)
print(t.ask(wire, form=t.WAIT, declared=int(sys.argv[3])).why, flush=True)
sys.stdin.read()
"""


def test_client_killed_while_it_waits(gated):
    daemon = gated()
    with daemon.wire() as wire:
        task = ask(wire, declared=110 * MIB).task
        waiter = python(WAITER, Path(__file__).parent, daemon.socket, 100 * MIB)
        wait_for("it waits", lambda: gate(daemon)["waiting"] == 1)
        behind = send(wire, form=WAIT, declared=4 * MIB)
        waiter.kill()
        waiter.wait()
        # It stood before the small one, which fits beside what runs.
        assert hear(wire, behind).why == (IN, FITS)
        done(wire, task)
        assert gate(daemon)["running"] == 1


ADMIT = 'globals().__setitem__("a", store.admitted({})) or (a.reason, a.reserve >> 20, a.task > 0)'


def test_library(gated, library):
    daemon = gated()
    first, second = library(daemon.socket), library(daemon.socket)
    assert first(ADMIT.format("declared=100 << 20")) == "('progress', 100, True)"
    assert second(ADMIT.format("'join', declared=50 << 20, wait=0")) == "NotAdmitted full"
    assert second(ADMIT.format("'join', declared=50 << 20, wait=0.2")) == "NotAdmitted full"
    assert second(ADMIT.format("declared=200 << 20")) == "NotAdmitted toobig"
    assert second(ADMIT.format("'a\\nb', wait=0")) == "Error 22"
    assert second(ADMIT.format("level='sometimes'")) == "ValueError None"
    assert second(ADMIT.format("wait=-1")) == "ValueError None"
    assert second(ADMIT.format(
        "wait=0, level='always', retriable=True, declared=1 << 20")) == "('fits', 1, True)"
    assert [t["level"] for t in gate(daemon)["tasks"] if t["reserve"] == MIB] == ["ALWAYS"]
    assert second("[a.done(), a.done()]") == "[None, None]"
    second.begin(ADMIT.format("declared=50 << 20, parent=0"))
    wait_for("it waits", lambda: gate(daemon)["waiting"] == 1)
    assert first("a.__exit__()") == "None"
    assert second.end() == "('progress', 50, True)"
    # Ctrl-C ends a wait, and nothing of it stays; so does closing the store.
    first.begin(ADMIT.format("declared=90 << 20"))
    wait_for("it waits", lambda: gate(daemon)["waiting"] == 1)
    first.process.send_signal(signal.SIGINT)
    assert first.end() == "interrupted"
    assert gate(daemon)["waiting"] == 0 and gate(daemon)["running"] == 1
    first.begin("__import__('threading').Timer(0.3, store.close).start() or " +
                ADMIT.format("declared=90 << 20"))
    assert first.end() == "ClosedError 9"
    wait_for("it is gone", lambda: gate(daemon)["waiting"] == 0)


def test_library_without_a_daemon(library, place):
    subprocess.run([str(BUILD / "tools" / "shmstore-admin"), "-p", str(place.path), "init"],
                   check=True, env={**os.environ, "SHMSTORE_SOCKET": "/nonexistent/shmstored"})
    alone = library()
    assert alone(ADMIT.format("declared=1 << 60")) == f"('off', {1 << 40}, False)"
    assert alone("a.done()") == "None"


def test_daemon_killed_and_restarted(gated, library):
    """A waiting task asks the next daemon, as does a task that asks meanwhile; a running task goes
    on, and it is no error that the next daemon does not know it."""
    daemon = gated()
    runs, waits, tries = library(daemon.socket), library(daemon.socket), library(daemon.socket)
    assert runs(ADMIT.format("declared=100 << 20")) == "('progress', 100, True)"
    assert tries("store.put('known', b'x')") == "None"
    waits.begin(ADMIT.format("declared=50 << 20, wait=60"))
    wait_for("it waits", lambda: gate(daemon)["waiting"] == 1)
    daemon.kill()
    tries.begin(ADMIT.format("declared=90 << 20"))
    time.sleep(0.3)  # a daemon that is not there: nobody is let in, and nobody is told a thing
    assert not select.select([waits.process.stdout, tries.process.stdout], [], [], 0)[0]
    daemon.restart()
    first = select.select([waits.process.stdout, tries.process.stdout], [], [], 60)[0][0]
    one, other = (waits, tries) if first is waits.process.stdout else (tries, waits)
    assert one.end().startswith("('progress', ")
    wait_for("the other waits", lambda: (gate(daemon)["running"], gate(daemon)["waiting"]) == (
        1, 1))
    assert runs("a.done()") == "None"
    assert one("a.done()") == "None"
    assert other.end().startswith("('progress', ")


def test_no_daemon_comes_back(gated, library):
    """A task that waited for a daemon that is gone for good is let in: nobody holds tasks back any
    more. Tasks after it are let in at once."""
    daemon = gated()
    runs, waits = library(daemon.socket), library(daemon.socket)
    assert runs(ADMIT.format("declared=100 << 20")) == "('progress', 100, True)"
    waits.begin(ADMIT.format("declared=50 << 20"))
    wait_for("it waits", lambda: gate(daemon)["waiting"] == 1)
    daemon.kill()
    assert waits.end() == "('off', 50, False)"
    begun = time.monotonic()
    assert waits(ADMIT.format("declared=50 << 20")) == "('off', 50, False)"
    assert time.monotonic() - begun < 5
    daemon.restart()


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_another_user(gated):
    daemon = gated("daemon { socket-mode = 0666 }")
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import gatehost as t
from daemon import Wire
from fixture import NOBODY
wire = Wire(sys.argv[2])
task = int(sys.argv[3])
for how in ({"uid": 0}, {"parent": task}):
    answer = wire.reply(t.send(wire, **how))
    assert (answer.name, answer.values[0]) == ("REFUSED", t.EPERM), answer
answer = wire.call("TASK_DONE", task)
assert (answer.name, answer.values[0]) == ("REFUSED", t.EPERM), answer
gate = wire.query("gate")["gate"]
assert gate["running"] == 1 and gate["reserved"] == 60 << 20 and gate["tasks"] == [], gate
assert t.ask(wire, declared=10 << 20, uid=NOBODY).why == (t.IN, t.FITS)
assert [task["uid"] for task in wire.query("gate")["gate"]["tasks"]] == [NOBODY]
print("well", flush=True)
sys.stdin.read()
"""
    with daemon.wire() as wire, daemon.wire() as second:
        task = ask(wire, declared=60 * MIB).task
        other = python(code, Path(__file__).parent, daemon.socket, task, user=NOBODY, group=NOBODY,
                       env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, cwd="/")
        assert other.stdout.readline() == "well\n"
        # Nor by another connection of one's own. Root may begin some for others.
        assert second.call("TASK_DONE", task).values[0] == EPERM
        assert ask(second, uid=NOBODY).why == (IN, FITS)
        assert {t["uid"] for t in gate(daemon)["tasks"]} == {0, NOBODY}
        other.kill()
        other.wait()
        done(wire, task)


# ---- a load --------------------------------------------------------------------------------------


class Load:
    """Tasks that each have so many bytes from when they are let in until their time is over; and
    how much they had over time."""

    def __init__(self, host, each):
        self.host, self.each = host, each
        self.running, self.most, self.sum, self.last, self.n = [], 0, 0.0, time.monotonic(), 0
        host.private(os.getpid(), 0)
        self.files = [os.open(host.proc / str(os.getpid()) / "statm", os.O_WRONLY),
                      os.open(host.proc / "meminfo", os.O_WRONLY)]
        self.tell(0)

    def tell(self, n):
        """Two files, of two moments: what the tasks have is never said to
        be more than what is used."""
        grows = n >= len(self.running)
        texts = [STATM % (2 * n * self.each // PAGE, n * self.each // PAGE),
                 (MEMINFO.format(f"{(128 * MIB - n * self.each) // 1024:06d}")).encode()]
        for i in (1, 0) if grows else (0, 1):
            os.pwrite(self.files[i], texts[i], 0)
        now = time.monotonic()
        self.sum += len(self.running) * self.each * (now - self.last)
        self.last = now
        self.most = max(self.most, n * self.each)

    def begin(self, task, seconds):
        self.tell(len(self.running) + 1)
        heapq.heappush(self.running, (self.last + seconds, task))

    def ended(self):
        """One whose time is over; 0: none."""
        if not self.running or self.running[0][0] > time.monotonic():
            return 0
        self.tell(len(self.running) - 1)
        self.n += 1
        return heapq.heappop(self.running)[1]


def naive_gate(seconds, each, high):
    """The same load at a gate that looks at the last sample alone, every 100 ms, and lets in who
    asks while it is open; as it would go, in virtual time."""
    running, flips, closed, most, total = [], 0, False, 0, 0
    for ms in range(seconds * 1000):
        if ms % 100 == 0:
            now = len(running) * each >= high
            flips += now != closed
            closed = now
        running = [end for end in running if end > ms]
        if not closed:
            running += [ms + 50] * (200 - len(running))
        most, total = max(most, len(running) * each), total + len(running) * each
    return {"flips": flips, "mean": total / seconds / 1000 / high, "most": most / high}


def test_the_gate_does_not_flap_under_load(gated, small):
    """Tasks of 50 ms which each take 2 % of the host, 200 of them always waiting, for 5 s: at most
    one flip, and mean use at least 60 % of the gate."""
    small.available(128)
    load = Load(small, 5 * MIB // 2)
    daemon = gated(interval="100ms")
    high = 128 * MIB * 9 // 10

    def ask_one():
        send(wire, form=WAIT, level=ALWAYS, declared=load.each)

    with daemon.wire() as wire:
        for _ in range(200):
            ask_one()
        begun = load.last = time.monotonic()
        while load.last - begun < 5:
            wait = 0.002
            while select.select([wire.socket], [], [], wait)[0]:
                wait = 0
                message = Message(wire.socket.recv(1 << 16))
                if message.name != "DONE":
                    load.begin(Answer(message).task, 0.05)
            while task := load.ended():
                wire.send("TASK_DONE", task)
                ask_one()
            load.tell(len(load.running))
        g = gate(daemon)
    report = {"flips": g["flips"], "mean": load.sum / (load.last - begun) / high,
              "most": load.most / high, "tasks": load.n}
    report["naive"] = naive_gate(5, load.each, high)
    print(json.dumps(report))
    assert report["naive"]["flips"] >= 40 and report["naive"]["most"] > 1, "what the load is for"
    assert g["flips"] <= 1 and load.most <= high, report
    assert report["mean"] >= 0.6, report
