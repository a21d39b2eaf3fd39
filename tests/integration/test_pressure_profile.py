# SPDX-License-Identifier: Apache-2.0
"""Sixteen tasks of two kinds on a host of 128 MiB, processes of their own that a real daemon lets
in and preempts; what they have is made up. The first run knows nothing of them, and some are
preempted; the profile that it leaves is loaded by the next daemon: by peaks none is. By averages
more are let in at once."""
import json
import os
import threading
import time
from pathlib import Path

import pytest
from daemon import SHMSTORED, wait_for
from gatehost import HIGH, RETRIABLE, WAIT, Small, looked, python, send
from test_daemon_pressure import gate
from test_profiles import BEGIN, DONE, END, HAS_PRIVATE, profile

pytestmark = pytest.mark.skipif(not SHMSTORED.exists(), reason=f"{SHMSTORED}: not built")

MIB = 1 << 20
PROFILE = """profile {{ private = "{strategy}"
 directory = "{directory}"
 default-estimate = 1MiB
 interval = 5ms
 save = 1s }}"""
STEP = 0.05  # seconds, of four in which a task comes to have all that it will
LOOKS = 12  # of the daemon, during which it has that: on a busy host they take longer
WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from daemon import Wire
wire = Wire(sys.argv[2])
name = f"c\\n{sys.argv[3]}\\n".encode()
size = int(sys.argv[4]) << 20
print("up", flush=True)
sys.stdin.readline()
answer = wire.call("TASK_ADMIT", 3, 3, 1, 2**32 - 1, 0, 0, 0, 0, tail=name)
assert answer.name == "TASK_ADMITTED", answer
assert wire.call("PROFILE", 1, 0, 0, 1, 0, 0, 0, 0, tail=name).name == "PROFILED"
print("in", flush=True)
sys.stdin.readline()
assert wire.call("PROFILE", 3, 0, 1, 1, 0, size, 0, 0).name == "PROFILED"
assert wire.call("TASK_DONE", answer.values[0]).name == "DONE"
print("done", flush=True)
"""


class Tasks:
    """All sixteen at once, each again until it was not preempted."""

    def __init__(self, host, daemon, sizes):
        self.host, self.daemon = host, daemon
        self.lock = threading.Lock()
        self.has = {}
        self.preempted, self.busy, self.most = 0, 0.0, 0
        self.failed = []
        # that they meet does not depend on how fast processes start
        self.all_up = threading.Barrier(len(sizes))
        begun = time.monotonic()
        threads = [threading.Thread(target=self.run, args=one) for one in sizes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not self.failed and not any(thread.is_alive() for thread in threads), self.failed
        self.seconds = time.monotonic() - begun

    def tell(self, pid, size):
        with self.lock:
            self.has[pid] = size
            self.host.private(pid, size)
            used = sum(self.has.values())
            self.most = max(self.most, used)
            self.host.available(max(0, 128 - used / MIB))

    def looks(self):
        with self.daemon.wire() as wire:
            return wire.query("memory")["memory"]["samples"]

    def run(self, kind, mib):
        try:
            first = True
            while not self.attempt(kind, mib, first):
                first = False
                self.preempted += 1
                time.sleep(0.3)
        except BaseException as error:
            self.failed.append(repr(error))

    def attempt(self, kind, mib, first):
        process = python(WORKER, Path(__file__).parent, self.daemon.socket, kind, mib)
        try:
            assert process.stdout.readline() == "up\n"
            self.tell(process.pid, 0)
            if first:
                self.all_up.wait(60)
            process.stdin.write("\n")
            process.stdin.flush()
            if process.stdout.readline() != "in\n":
                return False
            begun = time.monotonic()
            for step in range(1, 5):
                self.tell(process.pid, mib * MIB * step // 4)
                time.sleep(STEP)
            looked = self.looks()
            while process.poll() is None and self.looks() < looked + LOOKS:
                time.sleep(STEP)
            if process.poll() is not None:
                return False
            self.busy += time.monotonic() - begun
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline() == "done\n"
        except BrokenPipeError:
            return False
        finally:
            process.kill()
            process.wait()
            self.tell(process.pid, 0)

    @property
    def at_once(self):
        return self.busy / self.seconds


def let_in(host, daemon, kinds):
    """How many of these run when they ask one after the other and none has any memory yet: how fast
    processes are has no part in it."""
    host.private(os.getpid(), 0)
    host.available(128)
    with daemon.wire() as wire:
        for n, kind in enumerate(kinds, 1):
            send(wire, form=WAIT, level=HIGH, flags=RETRIABLE, name=("c", kind, ""))
            wait_for("it is known", lambda: (g := gate(daemon))["running"] + g["waiting"] == n)
        return looked(daemon)["running"]


def teach(host, daemon, sizes):
    """Tasks of these sizes that all end well, one after the other."""
    host.private(os.getpid(), 0)
    with daemon.wire() as wire:
        for task, (kind, mib) in enumerate(sizes, 1):
            for answer in (profile(wire, BEGIN, task, ("c", kind, "")),
                           profile(wire, END, task, how=DONE, flags=HAS_PRIVATE,
                                   private=mib * MIB)):
                assert answer.name == "PROFILED", answer


SIZES = ([("small", n) for n in (8, 5, 4, 3, 6, 4, 8, 3)] +
         [("large", n) for n in (48, 33, 16, 29, 41, 22, 35, 38)])


def configured(gated, directory, strategy):
    return gated(PROFILE.format(strategy=strategy, directory=directory), interval="20ms",
                 preempt="shm", preempt_grace="40ms", preempt_term="300ms")


def test_by_peaks_nobody_is_preempted_in_the_second_run(gated, small, tmp_path):
    report = {}
    for name in "nothing is known", "peak":
        daemon = configured(gated, tmp_path / "profiles", "conservative")
        tasks = Tasks(small, daemon, SIZES)
        report[name] = {"preempted": tasks.preempted, "gone": gate(daemon)["preemption"]["gone"],
                        "at_once": round(tasks.at_once, 2),
                        "seconds": round(tasks.seconds, 2), "most": round(tasks.most / MIB, 1)}
        daemon.stop()  # it saves
    print(json.dumps(report))
    assert report["nothing is known"]["preempted"] > 0, report
    assert report["peak"]["preempted"] == 0, report


def test_by_averages_more_are_let_in_at_once(gated, small, tmp_path):
    """None of them was ever preempted: such a kind is estimated by its peak whatever the strategy.
    A profile that was read again counts half."""
    daemon = configured(gated, tmp_path / "profiles", "conservative")
    teach(small, daemon, 2 * SIZES)
    daemon.stop()
    n = {}
    for strategy in "conservative", "aggressive":
        daemon = configured(gated, tmp_path / "profiles", strategy)
        n[strategy] = let_in(small, daemon, ("large", "small") * 8)
        daemon.stop()
    # 48 + 8 twice are within the gate at 115.2 MiB; so are 32.75 + 5.125 three times.
    assert n == {"conservative": 4, "aggressive": 6}
