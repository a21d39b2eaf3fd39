# SPDX-License-Identifier: Apache-2.0
"""The host's memory as a real daemon watches it: terms, thresholds and the gate, of a host that is
made up, and of this one."""
import os

import pytest
from daemon import wait_for

MIB = 1 << 20
MEMINFO = ("MemTotal: 1048576 kB\nMemFree: 0 kB\nMemAvailable: {} kB\nSwapTotal: 0 kB\nSwapFree: 0 "
           "kB\n")


def text(**keys):
    lines = "".join(f"{key.replace('_', '-')} = {value}\n" for key, value in keys.items())
    return f"pressure {{ enabled = yes\ninterval = 20ms\n{lines}}}"


def memory(daemon):
    return daemon.admin("mem", "--daemon")["memory"]


def gate(daemon):
    return daemon.admin("gate")["gate"]


class Made:
    """A host whose files are in a directory."""

    def __init__(self, root):
        self.proc = root / "proc"
        (self.proc / "self").mkdir(parents=True)
        (root / "cgroup").mkdir()
        (self.proc / "self" / "cgroup").write_text("0::/\n")
        self.keys = {"proc_root": f'"{self.proc}"', "cgroup_root": f'"{root / "cgroup"}"'}
        self.available(1024)

    def available(self, mib):
        """In one step, as the kernel's is; None: nothing can be read."""
        new = self.proc / "new"
        new.write_text("" if mib is None else MEMINFO.format(mib * 1024))
        os.rename(new, self.proc / "meminfo")


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


def test_off_by_default(hosts):
    _, daemon, _ = hosts()
    for command in (["mem", "--daemon"], ["gate"]):
        result = daemon.admin(*command, check=False)
        assert result.returncode == 1 and "pressure { enabled = yes }" in result.stderr
    with daemon.wire() as wire:
        assert wire.query("memory")["memory"] == {"enabled": False}


def test_configured_total_is_used_by_processes_and_partitions(hosts):
    _, daemon, tool = hosts(text=text(host_total="128MiB"), size="64m")
    before = memory(daemon)
    assert (before["total"], before["private"], before["source"]) == (128 * MIB, 0, "host-total")
    # Without a rate of growth: 95 and 90 parts of 100, and a tenth of the host below the gate.
    assert [before[name] for name in ("kill", "gate", "low")] == [
        128 * MIB * 95 // 100, 128 * MIB * 90 // 100, 107374183]
    worker = tool("worker")
    worker("put", "a", 8 * MIB, 1)
    wait_for("its object is seen", lambda: memory(daemon)["store"] >= before["store"] + 8 * MIB)
    now = memory(daemon)
    (process,) = now["processes"]
    assert process["private"] > 0 and process["uid"] == os.getuid()
    assert now["used"] == now["private"] + now["store"] and now["other"] == 0
    assert now["memories"] == []
    worker.kill()
    wait_for("it is gone", lambda: memory(daemon)["processes"] == [] and
             memory(daemon)["private"] == 0)


def test_descendants_count_once(hosts):
    cluster, daemon, tool = hosts(text=text(host_total="128MiB"))
    worker = tool("worker")
    (alone,) = wait_for("it is seen", lambda: memory(daemon)["processes"])
    assert alone["descendants"] == 0
    child = cluster.fork(worker)
    seen = wait_for("its child is seen", lambda: [p for p in memory(daemon)["processes"]
                                                  if p["descendants"] == 1])
    assert len(seen) == 1
    cluster.kill_child(child)


def test_gate_follows_the_host(hosts, made):
    _, daemon, _ = hosts(text=text(**made.keys))
    assert gate(daemon)["state"] == "open" and gate(daemon)["high"] == 1024 * MIB * 90 // 100
    made.available(64)
    closed = wait_for("it closes", lambda: gate(daemon) if gate(daemon)["state"] == "closed"
                      else None)
    assert (closed["flips"], closed["quota"], closed["used"]) == (1, 0, 960 * MIB)
    made.available(150)  # between low and high: nothing changes
    wait_for("that is seen", lambda: gate(daemon)["used"] == 874 * MIB)
    assert gate(daemon)["state"] == "closed"
    made.available(1000)
    opened = wait_for("it opens", lambda: gate(daemon) if gate(daemon)["state"] == "open" else None)
    assert opened["flips"] == 2
    with daemon.wire() as wire:
        events = [e for e in wire.query("events")["events"] if e["event"] == "gate"]
    assert [e["state"] for e in events] in (["closed", "open"], ["closed"])  # one a second is kept


def test_unknown_is_not_zero(hosts, made):
    _, daemon, _ = hosts(text=text(**made.keys))
    made.available(64)
    wait_for("it closes", lambda: gate(daemon)["state"] == "closed")
    made.available(None)
    unknown = wait_for("it is unknown", lambda: memory(daemon) if memory(daemon)["used"] is None
                       else None)
    assert unknown["total"] is None and unknown["other"] is None and unknown["gate"] is not None
    n = unknown["samples"]
    wait_for("many samples", lambda: memory(daemon)["samples"] > n + 10)
    assert gate(daemon)["state"] == "closed"  # what is not known does not open it
    made.available(1000)
    wait_for("it opens", lambda: gate(daemon)["state"] == "open")
    with daemon.wire() as wire:
        events = [e for e in wire.query("events")["events"] if e["event"] == "memory"]
    assert events[0]["total"] == 1024 * MIB


def test_metrics(make_cluster, make_daemon, made):
    cluster = make_cluster()
    cluster.tool().end()
    daemon = make_daemon(config=text(**made.keys) + f'\npartition "{cluster.place.path}" {{ }}')
    made.available(24)
    wait_for("it closes", lambda: gate(daemon)["state"] == "closed")
    lines = daemon.get("/metrics").splitlines()
    for line in ("shmstore_memory_used_bytes 1048576000", "shmstore_gate_closed 1",
                 "shmstore_gate_flips_total 1",
                 f'shmstore_memory_term_bytes{{source="{made.proc}/meminfo",term="MemAvailable"}} '
                 f'25165824'):
        assert line in lines
    assert "shmstore_memory_above_kill_total 1" in lines
    seconds = next(float(line.split()[1]) for line in lines
                   if line.startswith("shmstore_memory_above_kill_seconds_total "))
    assert 0 < seconds < memory(daemon)["above_kill_seconds"]  # it goes on
    made.available(None)
    wait_for("unknown", lambda: memory(daemon)["used"] is None)
    assert not [line for line in daemon.get("/metrics").splitlines()
                if line.startswith("shmstore_memory_used_bytes ")]


def test_rule_of_the_rate(hosts):
    _, daemon, _ = hosts(text=text(host_total="128MiB", growth_rate="640MiB"))  # 20 ms: a tenth
    now = memory(daemon)
    assert (now["delta_ppm"], now["kill"], now["gate"]) == (100000, 128 * MIB * 9 // 10,
                                                            128 * MIB * 8 // 10)


def test_too_fast_for_the_interval_is_refused(make_cluster, make_daemon):
    cluster = make_cluster()
    cluster.tool().end()
    with pytest.raises(AssertionError) as refused:
        make_daemon(config=text(host_total="128MiB", growth_rate="6400MiB") +
                    f'\npartition "{cluster.place.path}" {{ }}', http=False)
    assert "set pressure.interval to 5ms or less" in str(refused.value)


def test_other_thresholds_without_a_restart(hosts):
    cluster, daemon, _ = hosts(text=text(host_total="128MiB"))
    daemon.write_config(text(host_total="128MiB", kill="80%", gate="64MiB", low="50%") +
                        f'\npartition "{cluster.place.path}" {{ }}')
    daemon.reload()
    wait_for("they are set", lambda: [memory(daemon)[n] for n in ("kill", "gate", "low")] == [
        128 * MIB * 8 // 10, 64 * MIB, 64 * MIB - 1])


def test_this_host(hosts):
    _, daemon, _ = hosts(text=text())
    now = memory(daemon)
    assert (now["total"] and now["used"] and now["other"] and now["memories"] and
            gate(daemon)["state"] in ("open", "closed"))
    people = daemon.admin("mem", "--daemon", check=False)
    assert people.returncode == 0
