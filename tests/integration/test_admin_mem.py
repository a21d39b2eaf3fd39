# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin mem: what hosts that are made up in a directory, and this one, may use and use."""
import pytest

from admin_support import Admin

MEMINFO = ("MemTotal: 16384 kB\nMemFree: 100 kB\nMemAvailable: 8192 kB\nBuffers: 0 kB\nCached: 0 "
           "kB\nShmem: 0 kB\nSwapTotal: 1024 kB\nSwapFree: 1000 kB\n")
MIB = 1 << 20


def host(root, **files):
    """Writes a host's files; "__" in a name is a slash, and what is below
    "cgroup" lies in /sys/fs."""
    for name, text in files.items():
        path = root / name.replace("cgroup__", "sys/fs/cgroup/", 1).replace("__", "/").replace(
            "memory_", "memory.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    admin = Admin(root)
    return lambda *words, code=0: admin("mem", *words, partition=False, code=code,
                                        env={"SHMSTORE_ADMIN_ROOT": str(root)})


def test_tightest_counts_and_every_term_has_its_source(tmp_path):
    mem = host(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/job/task\n",
               cgroup__job__memory_max="4194304\n", cgroup__job__memory_current="3145728\n",
               cgroup__job__memory_stat="inactive_file 1048576\nactive_file 0\n",
               cgroup__job__task__memory_max="max\n", cgroup__job__task__memory_current="1048576\n",
               cgroup__job__task__memory_stat="inactive_file 0\nactive_file 0\n")
    shown = mem("--json").json
    job = str(tmp_path / "sys/fs/cgroup/job")
    assert (shown["tightest"], shown["total"], shown["used"], shown["swap"]) == (
        job, 4 * MIB, 2 * MIB, False)
    assert [(m["source"], m["cgroup_version"], m["total"], m["used"], m["tightest"])
            for m in shown["memories"]] == [
                (str(tmp_path / "proc/meminfo"), None, 16 * MIB, 8 * MIB, False),
                (job + "/task", 2, None, MIB, False),
                (job, 2, 4 * MIB, 2 * MIB, True)]
    terms = {t["term"]: (t["size"], t["state"]) for t in shown["memories"][1]["terms"]}
    assert terms["memory.max"] == (None, "unlimited")
    assert terms["memory.swap.current"] == (None, "unknown")
    assert terms["memory.stat active_file"] == (0, "read")
    lines = mem("--bytes").out.splitlines()
    assert [line.split()[-2:] for line in lines if line.startswith(job + " ")][0] == [
        "the", "tightest"]
    assert any(line.split() == [job, "memory.current", str(3 * MIB)] for line in lines)
    assert any(line.split()[1:] == ["memory.max", "no", "limit"] for line in lines)


def test_swap_counts_when_asked(tmp_path):
    mem = host(tmp_path, proc__meminfo=MEMINFO)
    shown = mem("--swap", "--json").json
    assert (shown["total"], shown["used"], shown["swap"]) == (17 * MIB, 8 * MIB + 24 * 1024, True)


@pytest.mark.parametrize("meminfo", ["", "MemTotal: 16384 kB\n",
                                     "MemTotal: 16384 kB\nMemAvailable: 81"])
def test_unknown_is_said_and_is_not_zero(tmp_path, meminfo):
    mem = host(tmp_path, proc__meminfo=meminfo)
    r = mem("--json", code=1)
    assert r.json["used"] is None
    assert "proc/meminfo: what is used of how much cannot be told" in r.err
    assert "unknown" in mem(code=1).out


def test_this_host():
    shown = Admin("/")("mem", "--json", partition=False).json
    assert 0 < shown["used"] < shown["total"]
    assert shown["total"] == min(m["total"] for m in shown["memories"] if m["total"] is not None)
