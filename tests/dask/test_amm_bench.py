# SPDX-License-Identifier: Apache-2.0
"""bench/bench_replicas: what it starts ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from conftest import HERE, wait_until

BENCH = os.path.join(HERE, "..", "..", "bench", "bench_replicas")


def usable():
    words = ["unshare", "--net", "--mount", "mount", "-t", "tmpfs", "none", "/dev/shm"]
    return (os.geteuid() == 0 and subprocess.run(words, check=False,
                                                 stderr=subprocess.DEVNULL).returncode == 0)


def started_by(pid):
    """Living processes below one, as (pid, start time)."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, parent, *rest = file.read().rpartition(") ")[2].split()
        except OSError:
            continue
        if state not in "ZX":
            parents[int(name), rest[17]] = int(parent)
    found, those = set(), {pid}
    while those:
        below = {process for process, parent in parents.items() if parent in those}
        found |= below
        those = {process for process, _ in below}
    return found


def left():
    """Partitions, and what is mounted."""
    with open("/proc/mounts", encoding="utf-8") as file:
        mounts = {line for line in file if line.startswith("shmstore-bench ")}
    return (mounts | {name for name in os.listdir("/dev/shm")
                      if name.startswith(("shmstore-hosts-", "shmstore-replicas-"))})


def alive(processes):
    return processes & started_by(1)


@pytest.mark.skipif(not usable(), reason="needs root, and namespaces")
def test_nothing_is_left_of_it_when_it_is_killed():
    before = left()
    bench = subprocess.Popen([sys.executable, BENCH, "hosts", "--data", str(256 << 20)],
                             stdout=subprocess.DEVNULL)
    below = set()

    def workers():
        below.update(started_by(bench.pid))
        return sum(b"distributed.cli.dask_worker" in command(pid) for pid, _ in below) >= 8

    try:
        wait_until(workers, "its workers")
    finally:
        os.kill(bench.pid, signal.SIGKILL)
        bench.wait()
    wait_until(lambda: not alive(below), f"the end of its {len(below)} processes", 5)
    assert left() == before


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""
