# SPDX-License-Identifier: Apache-2.0
"""Sixteen tasks of two kinds on a host of 128 MiB, processes of their own that a real daemon lets in and preempts; what they have is made up. The first run knows nothing
of them, and some are preempted; the profile that it leaves is loaded by the next daemon: by peaks none is, by averages more run at once."""
import json
import random
import threading
import time
from pathlib import Path

import pytest
from daemon import SHMSTORED
from gatehost import Small, python
from test_daemon_pressure import gate

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
        self.all_up = threading.Barrier(len(sizes))  # that they meet does not depend on how fast processes start
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


def test_by_peaks_nobody_is_preempted_in_the_second_run_and_by_averages_more_run_at_once(gated, small, tmp_path):
    assert isinstance(small, Small)
    rng = random.Random(4)
    sizes = [("small", rng.randrange(3, 9)) for _ in range(8)] + [("large", rng.randrange(16, 49)) for _ in range(8)]
    sizes[0], sizes[8] = ("small", 8), ("large", 48)
    report = {}

    def run(name, strategy):
        daemon = gated(PROFILE.format(strategy=strategy, directory=tmp_path / "profiles"), interval="20ms", preempt="shm", preempt_grace="40ms", preempt_term="300ms")
        tasks = Tasks(small, daemon, sizes)
        g = gate(daemon)
        report[name] = {"preempted": tasks.preempted, "gone": g["preemption"]["gone"], "at_once": round(tasks.at_once, 2), "seconds": round(tasks.seconds, 2),
                        "most": round(tasks.most / MIB, 1)}
        daemon.stop()  # it saves
        return tasks

    first = run("nothing is known", "conservative")
    assert first.preempted > 0, report
    peak = run("peak", "conservative")
    average = run("average", "aggressive")
    print(json.dumps(report))
    assert peak.preempted == 0, report
    assert average.at_once > peak.at_once, report
