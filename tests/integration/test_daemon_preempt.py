# SPDX-License-Identifier: Apache-2.0
"""Preemption by a real daemon of real processes that allocate: a host of 128 MiB is made up, of
which registered processes use what they have."""
import os
import signal
import time
from pathlib import Path

import pytest
from daemon import SHMSTORED, wait_for
from fixture import NOBODY
from gatehost import looked, python
from test_daemon_pressure import gate, memory, text

pytestmark = pytest.mark.skipif(not SHMSTORED.exists(), reason=f"{SHMSTORED}: not built")

MIB = 1 << 20
KILL, GATE = 128 * MIB * 95 // 100, 128 * MIB * 90 // 100
LEVELS = {"NEVER": 0, "LOW": 1, "MED": 2, "HIGH": 3, "ALWAYS": 4}
# Runs a task of a level; "grow N": has N MiB more; "done": the task ends;
# "ignore": SIGTERM does nothing.
WORKER = """
import gc, signal, sys
sys.path.insert(0, sys.argv[1])
from daemon import Wire
wire = Wire(sys.argv[2])
answer = wire.call("TASK_ADMIT", 3, int(sys.argv[3]), 1, 2**32 - 1, 0, 0, 0, 0,
                   tail=b"python\\nwork\\n")
assert answer.name == "TASK_ADMITTED", answer
task = answer.values[0]
held = []
print(task, flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "grow":
        held.append(bytearray(int(words[1]) << 20))
        held[-1][::4096] = b"x" * len(held[-1][::4096])
    elif words[0] == "done":
        held.clear()
        assert wire.call("TASK_DONE", task).name == "DONE"
    elif words[0] == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ok", flush=True)
"""

# Stops a process where it would end.
TRACER = """
import ctypes, sys
seize, trace_exit = 0x4206, 0x40
print(ctypes.CDLL(None).ptrace(seize, int(sys.argv[1]), 0, ctypes.c_void_p(trace_exit)), flush=True)
sys.stdin.read()
"""


class Worker:
    def __init__(self, daemon, level, **options):
        self.process = python(WORKER, Path(__file__).parent, daemon.socket, LEVELS[level],
                              **options)
        self.task = int(self.process.stdout.readline())
        self.pid = self.process.pid

    def tell(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n"

    @property
    def alive(self):
        return self.process.poll() is None

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def scene(make_daemon, place):
    """scene(keys): the daemon, and a function that starts a worker whose
    process has so many MiB in all."""
    workers = []

    def make(start=None, **keys):
        keys = {"host_total": "128MiB", "interval": "50ms", "preempt": "shm",
                "preempt_grace": "300ms", "preempt_term": "300ms", **keys}
        interval = keys.pop("interval")
        config = text(**keys).replace("interval = 20ms", f"interval = {interval}")
        daemon = make_daemon(config=f'daemon {{ socket-mode = 0666 }}\n{config}\npartition '
                                    f'"{place.path}" {{ create = yes }}\n', http=False)

        def worker(level, mib, **options):
            w = Worker(daemon, level, **options)
            workers.append(w)
            fill(daemon, w, mib)
            return w

        return daemon, worker

    yield make
    for w in workers:
        w.close()


def private(daemon, w):
    return next((p["private"] for p in memory(daemon)["processes"] if p["pid"] == w.pid), None)


def fill(daemon, w, mib):
    has = wait_for("it is seen", lambda: private(daemon, w))
    assert has < mib * MIB, f"a process has {has >> 20} MiB before it does anything"
    w.tell(f"grow {mib - has // MIB}")
    wait_for("it has grown", lambda: private(daemon, w) is None or private(daemon, w) >= (mib - 1) *
             MIB)


def preemption(daemon):
    return gate(daemon)["preemption"]


def events(daemon):
    with daemon.wire() as wire:
        return [e for e in wire.query("events")["events"] if e["event"] == "preempt"]


def test_order_by_level_and_in_time(scene):
    """ALWAYS goes first, NEVER survives; used is below kill within two intervals, the grace and the
    death; no second victim while the first lives."""
    daemon, worker = scene()
    never, low, high, always = (worker(level, 22) for level in ("NEVER", "LOW", "HIGH", "ALWAYS"))
    assert memory(daemon)["used"] < GATE
    plan = preemption(daemon)
    assert [(p["pid"], p["level"], p["now"]) for p in plan["plan"]] == [
        (always.pid, "ALWAYS", False), (high.pid, "HIGH", False), (low.pid, "LOW", False)]
    assert plan["never"] == 1 and all(p["bytes"] >= 21 * MIB and p["retry"] for p in plan["plan"])
    for victim in (always, high, low):
        assert victim.alive
        never.tell(f"grow {(KILL - memory(daemon)['used']) // MIB + 2}")
        wait_for("it is above", lambda: preemption(daemon)["alive"] or not victim.alive)
        begun = time.monotonic()
        victim.process.wait(30)
        wait_for("used is below kill", lambda: memory(daemon)["used"] <= KILL)
        took = time.monotonic() - begun
        assert victim.process.returncode == -signal.SIGTERM and took < 2, took
        assert sum(w.alive for w in (low, high, always)) == [always, high, low][::-1].index(victim)
        wait_for("the wave is over", lambda: preemption(daemon)["alive"] == 0)
    never.tell("grow 40")
    time.sleep(1)
    assert never.alive and preemption(daemon)["plan"] == []
    recent = preemption(daemon)["recent"]
    assert ([r["pid"] for r in recent] == [low.pid, high.pid, always.pid] and
            {r["step"] for r in recent} == {"gone"})
    assert [r["delay_ms"] for r in recent] == [4000, 2000, 1000]
    steps = [(e["pid"], e["step"]) for e in events(daemon)]
    assert steps == [(w.pid, s) for w in (always, high, low) for s in ("notice", "term", "gone")]
    assert next(e for e in events(daemon) if e["step"] == "gone")["tasks"][0]["task"] == always.task


def test_within_two_intervals_and_the_grace(scene):
    """
    From the look that saw it above kill to the one that saw it below, in the daemon's clock; and
    that look is made when the victim ends, not an interval later. The time above an interval that
    the kernel needs to end a process does not count as the daemon's.
    """
    interval, grace = 0.5, 0.3
    daemon, worker = scene(interval="500ms", preempt_grace="300ms")
    never, victims = worker("NEVER", 22), [worker(level, 22) for level in ("ALWAYS", "HIGH", "LOW")]
    assert memory(daemon)["used"] < GATE and memory(daemon)["above_kill"] == 0
    before = 0.0
    for n, victim in enumerate(victims, 1):
        never.tell(f"grow {(KILL - memory(daemon)['used']) // MIB + 2}")
        assert victim.process.wait(60) == -signal.SIGTERM
        now = wait_for("used is below kill", lambda: (m := memory(daemon))["used"] <= KILL and m)
        wave = {e["step"]: e["time"] for e in events(daemon) if e["pid"] == victim.pid}
        took, dying = now["above_kill_seconds"] - before, wave["gone"] - wave["term"]
        assert now["above_kill"] == n
        with daemon.wire() as wire:
            above = max(e["time"] for e in wire.query("events")["events"]
                        if e["event"] == "memory" and e["above"])
        # A look amid the growth sees less than the kill threshold, and may give notice already.
        assert took >= grace or wave["notice"] < above, (took, wave, above)
        assert took <= grace + 2 * interval + max(0, dying - interval), (took, wave)
        assert took - (wave["gone"] - wave["notice"]) < interval / 2, (took, wave)
        before = now["above_kill_seconds"]
    with daemon.wire() as wire:
        told = [e for e in wire.query("events")["events"] if e["event"] == "memory"]
    up = next(e for e in told if e["above"])
    down = next(e for e in told if e["sequence"] > up["sequence"])
    assert not down["above"] and up["used"] > up["kill"] >= down["used"]


def test_sigkill_follows(scene):
    daemon, worker = scene()
    stubborn = worker("LOW", 40)
    never = worker("NEVER", 40)
    stubborn.tell("ignore")
    never.tell("grow 50")
    assert stubborn.process.wait(30) == -signal.SIGKILL and never.alive
    assert [e["step"] for e in events(daemon)] == ["notice", "term", "kill", "gone"]


def test_who_does_not_die_holds_nobody_up(scene):
    """Its tracer stops it where it would end: SIGKILL does not end it, and the
    next is chosen without it."""
    daemon, worker = scene()
    undying, good, never = worker("ALWAYS", 40), worker("HIGH", 30), worker("NEVER", 30)
    tracer = python(TRACER, str(undying.pid))
    try:
        assert tracer.stdout.readline() == "0\n"
        never.tell("grow 30")
        wait_for("it is stuck", lambda: preemption(daemon)["stuck"] == 1)
        assert good.process.wait(60) == -signal.SIGTERM
        assert never.alive and not any(p["pid"] == undying.pid for p in preemption(daemon)["plan"])
    finally:
        tracer.kill()
        tracer.wait()
    undying.process.wait(60)
    wait_for("it is seen", lambda: {(e["pid"], e["step"]) for e in events(daemon)} >= {
        (undying.pid, "stuck"), (undying.pid, "gone"), (good.pid, "gone")})


def test_who_ends_its_task_lives(scene):
    daemon, worker = scene(preempt_grace="20s")
    victim, never = worker("HIGH", 40), worker("NEVER", 40)
    never.tell("grow 45")
    wait_for("notice", lambda: preemption(daemon)["alive"] == 1)
    victim.tell("done")
    wait_for("it has yielded", lambda: preemption(daemon)["yielded"] == 1)
    assert victim.alive and preemption(daemon)["alive"] == 0


def test_the_need_passes_by(scene):
    daemon, worker = scene(preempt_grace="1s")
    victim, never = worker("HIGH", 40), worker("NEVER", 40)
    other = worker("NEVER", 20)
    never.tell("grow 24")
    wait_for("notice", lambda: preemption(daemon)["alive"] == 1)
    other.close()
    wait_for("it is spared", lambda: preemption(daemon)["spared"] == 1)
    assert victim.alive and preemption(daemon)["terms"] == 0


def test_between_gate_and_kill_there_is_a_notice_only(scene):
    daemon, worker = scene(preempt_grace="100ms")
    always, high, never = worker("ALWAYS", 30), worker("HIGH", 30), worker("NEVER", 30)
    never.tell(f"grow {(GATE - memory(daemon)['used']) // MIB + 2}")
    wait_for("it is spared", lambda: preemption(daemon)["spared"] == 1)
    assert GATE < memory(daemon)["used"] <= KILL
    time.sleep(0.7)
    p = preemption(daemon)
    assert (always.alive and high.alive and (p["notices"], p["terms"]) == (1, 0) and
            p["recent"][0]["asked_only"])


def test_off_by_default(scene):
    daemon, worker = scene(preempt="off")
    always, never = worker("ALWAYS", 40), worker("NEVER", 40)
    never.tell("grow 60")
    wait_for("it is above", lambda: memory(daemon)["used"] > KILL)
    time.sleep(1)
    p = preemption(daemon)
    assert (always.alive and p["notices"] == 0 and not p["enabled"] and
            [v["now"] for v in p["plan"]] == [True])
    result = daemon.admin("preempt", "--dry-run", check=False)
    assert result.returncode == 0 and str(always.pid) in result.stdout


def test_daemon_killed_amid_a_preemption(scene):
    daemon, worker = scene(preempt_grace="2s")
    victim, never = worker("HIGH", 40), worker("NEVER", 40)
    never.tell("grow 60")
    wait_for("notice", lambda: preemption(daemon)["alive"] == 1)
    daemon.kill()
    daemon.restart()
    time.sleep(3)
    assert victim.alive and never.alive and preemption(daemon)["notices"] == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_a_daemon_of_root_preempts_another_users_process(scene):
    daemon, worker = scene()
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    other = worker("ALWAYS", 40, user=NOBODY, group=NOBODY, env=env, cwd="/")
    never = worker("NEVER", 40)
    assert [p["uid"] for p in preemption(daemon)["plan"]] == [NOBODY]
    never.tell("grow 60")
    assert other.process.wait(30) == -signal.SIGTERM


@pytest.fixture
def steep(make_daemon, place, small):
    """A worker with LOW on a host whose kernel has the last word; it would
    be given 20 s for its end."""
    keys = {**small.keys, "preempt": "shm", "preempt_grace": "20s", "preempt_term": "20s"}
    small.available(100)
    daemon = make_daemon(config=f'{text(**keys)}\npartition "{place.path}" {{ create = yes }}\n',
                         http=False)
    w = Worker(daemon, "LOW")
    looked(daemon)
    yield daemon, w, small
    w.close()


def test_who_has_no_time_is_killed_at_once(steep):
    """From 28 to 124 MiB within an interval, of 128: the kernel would kill before the next look,
    and it does not know of levels."""
    daemon, w, host = steep
    host.available(4)
    assert w.process.wait(15) == -signal.SIGKILL
    wait_for("it is seen to be gone", lambda: preemption(daemon)["gone"] == 1)
    assert [e["step"] for e in events(daemon)] == ["notice", "kill", "gone"]


def test_time_runs_out_amid_the_grace(steep):
    """It is not short of time at 123 MiB, where use has come to rest; then the rest fills."""
    daemon, w, host = steep
    for available in (20, 10, 7, 6.5, 6.2):
        host.available(available)
        looked(daemon)
    host.available(5)
    wait_for("notice", lambda: preemption(daemon)["alive"] == 1)
    looked(daemon)
    assert w.alive and [e["step"] for e in events(daemon)] == ["notice"]
    host.available(0)
    assert w.process.wait(15) == -signal.SIGKILL
