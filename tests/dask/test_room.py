# SPDX-License-Identifier: Apache-2.0
"""A partition is filled as far as cgroups, the machine and `max` allow, whatever
its file system promises."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import distributed
import numpy as np
import pytest
from conftest import PREFIX, Place, cluster, on_workers, wait_until
from tasks import MIB
from together import together

from shmstore.dask.memory import Bound, Room, Siblings

GIB = 1 << 30


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def bounds_in(root, groups, files, used=100, budget=0):
    tree(root, {**files, "groups": groups})
    return Room(budget, None, lambda: Siblings([os.getpid()] if budget else [], 0), str(root),
                str(root / "groups")).bounds(used)


V1 = "total_cache {cache}\ntotal_rss 0\ntotal_shmem {shmem}\n"
V2 = "anon 0\nfile {cache}\nshmem {shmem}\n"


def test_each_level_of_version_2(tmp_path):
    """A part of the limit is spared; files are not charged for good, shared memory is."""
    found = bounds_in(tmp_path, "0::/a/b\n", {
        "cgroup.controllers": "memory",
        "a/memory.max": "8000", "a/memory.high": "max", "a/memory.current": "3000",
        "a/memory.stat": V2.format(cache=2000, shmem=500),
        "a/b/memory.max": "max", "a/b/memory.high": "1600", "a/b/memory.current": "700",
        "a/b/memory.stat": V2.format(cache=600, shmem=300),
    })
    assert found[:2] == [Bound(1400, 400), Bound(7000, 1500)]


def test_each_level_of_version_1(tmp_path):
    files = {"limit_in_bytes": "8000", "usage_in_bytes": "3000",
             "stat": V1.format(cache=2000, shmem=500)}
    unlimited = {**files, "limit_in_bytes": str((1 << 63) - 4096)}
    found = bounds_in(tmp_path, "5:cpu:/x\n4:memory,hugetlb:/a/b\n", {
        **{f"memory/a/b/memory.{name}": text for name, text in unlimited.items()},
        **{f"memory/a/memory.{name}": text for name, text in files.items()},
        **{f"memory/memory.{name}": text for name, text in unlimited.items()},
    })
    assert found[0] == Bound(7000, 1500) and len(found) == 2  # and the machine's


def test_in_a_container_the_top_is_ours(tmp_path):
    """Its path is the host's, and not seen."""
    found = bounds_in(tmp_path, "4:memory:/docker/123\n", {
        "memory/memory.limit_in_bytes": "8000", "memory/memory.usage_in_bytes": "3000",
        "memory/memory.stat": V1.format(cache=0, shmem=0),
    })
    assert found[0] == Bound(7000, 3000)


def test_what_workers_may_yet_hold_is_left_to_them(tmp_path):
    files = {"memory/memory.limit_in_bytes": str(8 * GIB), "memory/memory.usage_in_bytes": str(GIB),
             "memory/memory.stat": V1.format(cache=0, shmem=0)}
    (group, *_) = bounds_in(tmp_path, "4:memory:/\n", files, budget=2 * GIB)
    assert group.size == 7 * GIB and 2 * GIB < group.used < 3 * GIB


def test_without_cgroups_the_machine_bounds(tmp_path):
    (machine,) = bounds_in(tmp_path, "", {}, used=MIB)
    assert (machine.used == MIB < machine.size <= MIB + os.sysconf("SC_PHYS_PAGES") * os.sysconf(
        "SC_PAGESIZE"))


def test_what_a_partition_grows_meanwhile_is_seen_at_once(tmp_path):
    room = Room(0, 10 * MIB, lambda: Siblings([], 0), str(tmp_path), str(tmp_path / "none"))
    assert Bound(10 * MIB, MIB) in room.bounds(MIB)
    assert Bound(10 * MIB, 3 * MIB) in room.bounds(3 * MIB)


def test_the_workers_limits_bound_what_they_share_and_hold_and_nothing_of_others(tmp_path):
    def bound(most, used, others, *pids):
        room = Room(0, most, lambda: Siblings(list(pids), others), str(tmp_path),
                    str(tmp_path / "none"))
        room.bounds(0)  # a look before the limit is known
        room.limit_workers(GIB)
        assert len(room.bounds(used, limits=False)) == (1 if most is None else 2)
        return room.bounds(used)[-1]

    size, used = bound(None, 20 * GIB, 20 * GIB - 200 * MIB, os.getpid(), os.getpid())
    assert size == 2 * GIB and 200 * MIB < used < GIB  # this process is counted once
    assert bound(300 * MIB, 20 * GIB, 20 * GIB - 100 * MIB) == Bound(300 * MIB, 100 * MIB)


def test_stores_of_other_programs_are_not_the_workers(place):
    async def job(client, a, b):
        with place.partition.open("a-cache") as other:
            other["x"] = np.ones(MIB)
            pids, others = a._exchange.siblings()
            return pids == 2 * [os.getpid()] and 8 * MIB <= others < 9 * MIB

    assert together(place, job)


def test_siblings_that_cannot_be_listed_are_as_they_were(place):
    """Else the workers would have no limit together, and all would have to leave memory."""
    def broken():
        raise OSError(errno.EMFILE, "too many open files")

    async def job(client, a, b):
        exchange = a._exchange
        exchange.room._next_look = 0.0
        before = exchange.bounds()
        exchange.partition.stores = broken
        exchange.room._next_look = 0.0
        assert len(before) >= 3 and before[-1].size == exchange.bounds()[-1].size > 0
        assert exchange.host()["used"] >= 0 and exchange.siblings().pids == 2 * [os.getpid()]
        del exchange.partition.stores

    together(place, job)


@pytest.mark.parametrize("tier", [True, False])
def test_a_job_that_makes_more_ends_and_the_partition_stays_below(place, tier):
    async def job(client, a, b):
        made = client.map(lambda i: np.full(MIB // 4, float(i)), range(60))
        await distributed.wait(made)
        used = place.partition.usage().used
        sums = await client.gather(client.map(lambda x, y: x[0] + y[-1], made,
                                              [*made[1:], made[0]]))
        assert sums == [float(i + (i + 1) % 60) for i in range(60)]
        return max(used, place.partition.usage().used)

    off = {f"distributed.worker.memory.{name}": False for name in ("pause", "spill")}
    settings = {f"{PREFIX}.share": "eager", f"{PREFIX}.tier.enabled": tier,
                f"{PREFIX}.max": "16 MiB", **off}
    assert MIB < together(place, job, settings=settings) <= 16 * MIB


JOB = """
import numpy as np, sys
import dask
from distributed import Client, LocalCluster, wait
import shmstore.dask
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None,
                      memory_limit="384 MiB", worker_class=shmstore.dask.Nanny) as c, \\
            Client(c) as client:
        pids = sorted(client.run(lambda dask_worker: __import__("os").getpid()).values())
        made = client.map(lambda i: np.random.default_rng(i).random(1 << 20), range(160))
        wait(made)
        print(client.submit(sum, client.map(lambda a: float(a[-1]), made)).result() > 0)
        print(pids == sorted(client.run(lambda dask_worker: __import__("os").getpid()).values()))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a memory cgroup")
def test_nobody_is_killed_in_a_narrow_cgroup(place, tmp_path):
    v1 = os.path.isdir("/sys/fs/cgroup/memory")
    group = f"/sys/fs/cgroup/{'memory/' if v1 else ''}shmstore-room-{os.getpid()}"
    try:
        os.mkdir(group)
        with open(f"{group}/memory.{'limit_in_bytes' if v1 else 'max'}", "w") as file:
            file.write(str(1 << 30))
    except OSError as e:
        pytest.skip(f"no memory cgroup is to be had: {e}")
    script = tmp_path / "job.py"
    script.write_text(JOB)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DASK_TEMPORARY_DIRECTORY": str(
        tmp_path),
           f"DASK_{PREFIX.replace('.', '__').upper()}__PARTITION": place.path}
    try:
        done = subprocess.run(["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh",
                               sys.executable, script],
                              env=env, capture_output=True, text=True, timeout=240, check=False)
        with open(f"{group}/memory.{'oom_control' if v1 else 'events'}") as file:
            killed = dict(line.split() for line in file)["oom_kill"]
    finally:
        wait_until(lambda: not open(f"{group}/cgroup.procs").read(), "its processes end")
        os.rmdir(group)
    assert (done.stdout.split(), killed) == (["True", "True"], "0"), done.stderr


@pytest.mark.parametrize("asked", [False, True])
def test_a_tiny_partition_has_no_tier_unless_one_was_asked_for(tmp_path, asked):
    """As a container's /dev/shm of 64 MiB: what it would have to move to the disk at once goes as
    on stock, and one worker says so."""
    place = Place(64 * MIB)
    settings = {f"{PREFIX}.tier.path": str(tmp_path / "tier")} if asked else {}
    try:
        with cluster(place, 2, settings=settings) as client:
            tiers = on_workers(client, lambda worker: worker._tier is not None)
            a, b = tiers
            assert set(tiers.values()) == {asked}
            arrays = [client.submit(np.full, 2 * MIB, i, workers=[a]) for i in range(6)]  # 96 MiB
            sums = [client.submit(np.sum, array, workers=[b]) for array in arrays]
            assert client.gather(sums) == [2.0 * MIB * i for i in range(6)]
            said = [line for lines in client.get_worker_logs().values() for _, line in lines
                    if "--shm-size" in line and f"{PREFIX}.partition" in line]
            full = [line for lines in client.get_worker_logs().values() for _, line in lines
                    if "partition-full" in line]
            assert len(said) == (not asked) and (asked or not full)
    finally:
        place.remove()
