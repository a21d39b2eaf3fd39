# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin doctor on a partition with a disk tier."""
import os
import resource
import tempfile

import pytest

from admin_support import (NOBODY, Admin, actors, admin, bare, mount_tmpfs,  # noqa: F401
                           needs_root, unmount)
from admin_tiered import MIB, disk, tiered  # noqa: F401


def doctor(admin, **kwargs):
    r = admin("--json", "doctor", code=None, **kwargs)
    assert r.out, r
    found = {f["check"]: f for f in r.json["findings"]}
    return {check: f for check, f in found.items() if check.startswith("tier")}


def test_doctor_of_a_good_tier(tiered, disk):
    found = doctor(tiered)
    assert set(found) == {"tier", "tier-space", "tier-direct", "tier-io", "tier-memlock"}
    assert (found["tier"]["level"] == found["tier-space"]["level"] == "ok" and
            str(disk) in found["tier"]["found"])
    assert found["tier-direct"]["found"]
    assert [p for p in disk.rglob("*") if "doctor" in p.name] == []


def test_doctor_says_how_objects_are_moved(tiered, actors):
    found = doctor(tiered, env={"SHMSTORE_TIER_IO": "plain"})["tier-io"]
    assert found["level"] == "warn" and "plain" in found["found"]
    assert tiered.json("tier", env={"SHMSTORE_TIER_IO": "plain"})["tier"]["io"].startswith("plain")
    actor = actors(tiered, "s", "-")
    actor("noise", "k", MIB)  # and so they are
    tiered("demote", "s", "k", env={"SHMSTORE_TIER_IO": "plain"})
    actor("check", "k")


def test_doctor_without_a_tier(admin):
    found = doctor(admin)
    assert (set(found) == {"tier"} and found["tier"]["level"] == "ok" and
            "tier --set" in found["tier"]["found"])


def test_doctor_of_a_tier_that_is_gone(admin, disk, actors):
    below = disk / "below"
    below.mkdir()
    admin("tier", "--set", below)
    actor = actors(admin, "s", "-")
    actor("noise", "k", 10000)
    admin("demote", "s", "k")
    below.rename(disk / "away")
    found = doctor(admin)
    assert (set(found) == {"tier"} and found["tier"]["level"] == "fail" and
            str(below) in found["tier"]["found"])
    for command in (["tier"], ["df"]):
        r = admin(*command, code=1)
        assert str(below) in r.err
    assert str(below) in admin("promote", "s", "k", code=1).err
    (disk / "away").rename(below)
    assert doctor(admin)["tier"]["level"] == "ok"
    actor("check", "k")


@needs_root
def test_doctor_of_a_tier_in_memory(admin, disk):
    below = disk / "below"
    below.mkdir()
    admin("tier", "--set", below)
    try:
        mount_tmpfs(below, "size=1m")
        found = doctor(admin)
        assert found["tier"]["level"] == "fail" and "in memory" in found["tier"]["found"]
    finally:
        unmount(below)


@pytest.mark.parametrize("limits,level", [(["--min-free", "100%"], "fail"),
                                          (["--max", "4K"], "warn"), (["--max", "90%"], "ok")])
def test_doctor_of_room(tiered, limits, level):
    tiered("tier", *limits)
    found = doctor(tiered)["tier-space"]
    assert found["level"] == level, found
    assert (limits[0] in found["fix"]) == (level != "ok")


@needs_root
def test_doctor_of_locked_memory(disk):
    with tempfile.TemporaryDirectory(prefix="shmstore-admin-", dir="/dev/shm") as d:
        os.chown(d, NOBODY, NOBODY)
        os.chown(disk, NOBODY, NOBODY)
        a = Admin(d).as_nobody()
        a("init")
        a("tier", "--set", disk)
        # root in a container may not raise it
        hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        for limit, level in ((8 * MIB, "warn"), (256 * MIB, "ok")):
            if hard != resource.RLIM_INFINITY and limit > hard:
                continue
            a.prefix = ["prlimit", f"--memlock={limit}:{limit}", *Admin(d).as_nobody().prefix]
            found = doctor(a)["tier-memlock"]
            assert found["level"] == level, found
            assert (found["fix"] != "") == (level == "warn")
