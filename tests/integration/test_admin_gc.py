# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin: gc and verify: what goes, what stays, what is damaged."""
import re
import time
from pathlib import Path

import pytest
from admin_support import Admin, actors, admin, bare, needs_root, pattern  # noqa: F401


def test_gc_plans_and_removes(admin, actors):
    dead, kept, alive = actors(admin, "dead", "-"), actors(admin, "kept", "k"), actors(
        admin, "alive", "-")
    for actor in (dead, kept, alive):
        actor("put", "k", 1 << 20, "-")
    dead("address", "tcp://1.2.3.4:5")
    dead.kill()
    kept.kill()
    plan = admin.json("gc", "--dry-run")
    assert plan["dry_run"] is True
    by_name = {Path(x["path"]).name: x for x in plan["actions"]}
    assert by_name["dead"]["what"] == "store" and by_name["dead"]["bytes"] >= 1 << 20
    assert str(dead.pid) in by_name["dead"]["evidence"]
    assert by_name["kept"]["what"] == "kept" and "kept" in by_name["kept"]["evidence"]
    assert "alive" not in by_name or by_name["alive"]["what"] == "kept"
    assert plan["freed"] >= 1 << 20
    # nothing happened yet
    assert {s["name"] for s in admin.json("du")["stores"]} == {"dead", "kept", "alive"}
    assert re.search(r"^store +1\.0\d MiB", admin("gc", "-n").out, re.M)
    done = admin.json("gc")
    assert done["freed"] == plan["freed"]
    assert [x["what"] for x in done["actions"]].count("store") == 1
    assert {s["name"] for s in admin.json("du")["stores"]} == {"kept", "alive"}
    assert admin("cat", "kept", "k").raw == admin("cat", "alive", "k").raw == pattern(1 << 20)
    again = admin.json("gc")
    assert again["freed"] == 0 and not [x for x in again["actions"] if x["what"] != "kept"]
    assert "no garbage" in admin("gc").out


@needs_root
def test_gc_of_all_partitions_on_tmpfs(bare, actors, tmp_path):
    """The host as this test has it: one mount, with a partition of each of
    two users and what is none."""
    mine, other = Admin(bare / "shmstore-1"), Admin(bare / "shmstore-65534")
    bare.chmod(0o1777)
    (bare / "other").mkdir()
    (bare / "link").symlink_to(bare / "shmstore-1")
    mine("init")
    other.as_nobody()("init")
    dead = actors(mine, "dead", "-"), actors(other, "dead", "-", prefix=other.as_nobody().prefix)
    for actor in dead:
        actor("put", "k", 1 << 20, "-")
        actor.kill()
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(
        f"1 0 0:1 / / rw - ext4 disk rw\n2 1 0:2 / {bare} rw - tmpfs tmpfs rw\n3 1 0:3 / "
        f"/nonexistent/x rw - tmpfs tmpfs rw\n"
    )
    env = {"SHMSTORE_ADMIN_ROOT": str(tmp_path)}
    plan = mine.json("gc", "--all", "--dry-run", env=env, partition=False)["partitions"]
    assert sorted(p["partition"] for p in plan) == [mine.path, other.path]
    assert all(p["dry_run"] and p["stores"] == 1 and p["freed"] >= 1 << 20 for p in plan)
    said = mine("gc", "--all", env=env, partition=False).out
    assert f"{mine.path}:" in said and f"{other.path}:" in said
    assert mine.json("du")["stores"] == [] and other.json("du")["stores"] == []
    assert "no garbage" in mine("gc", "--all", env=env, partition=False).out
    # A put that finds no room says whose partitions lie on the same mount.
    mine("put", "full", "a", stdin=bytes(40 << 20))
    full = mine("put", "full", "b", stdin=bytes(40 << 20), code=1).err
    assert ("user 65534's shmstore-65534: as root, shmstore-admin gc --all" in full and
            "shmstore-1" not in full.replace(mine.path, ""))


def test_gc_leaves_a_lease_until_it_ends(admin, actors):
    dead, other = actors(admin, "dead", "-"), actors(admin, "other", "-")
    dead("put", "k", 1 << 20, "-")
    ticket = dead("handoff", "k", 3600000)
    dead.kill()
    done = admin.json("gc")
    assert done["freed"] < 1 << 20
    other("adopt", "k", ticket)
    assert admin("cat", "other", "k").raw == pattern(1 << 20)
    other("handoff", "k", 1)
    deadline = time.monotonic() + 10
    while not (found := [x for x in admin.json("gc", "--dry-run")["actions"]
                         if x["what"] == "lease"]):
        assert time.monotonic() < deadline
    assert "ended" in found[0]["evidence"]
    assert admin.json("gc")["leases"] == 1


def damage(path, offset):
    mode = path.stat().st_mode
    path.chmod(0o600)
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ 1]))
    path.chmod(mode)


@pytest.mark.usefixtures("files")
def test_verify(admin):
    admin("put", "s", "fine", stdin=b"x" * 100000)
    admin("put", "--checksum", "s", "sum", stdin=b"y" * 100000)
    clean = admin.json("verify")
    assert clean["bad"] == [] and clean["checked"] >= 2
    assert admin.json("stat", "s", "sum")["checksum"] is True
    objects = Path(admin.path) / "stores" / "s" / "objects"
    damage(objects / "sum", 50000)  # only the checksum can tell
    r = admin("--json", "verify", code=1)
    assert [b["path"] for b in r.json["bad"]] == [str(objects / "sum")]
    assert "checksum" in r.json["bad"][0]["reason"]
    damage(objects / "fine", 60)  # in the header
    r = admin("verify", code=1)
    assert str(objects / "fine") in r.out and str(objects / "sum") in r.out
    assert re.search(r"2 of \d+ files are bad", r.err)
    r = admin("ls", code=1)
    assert "damaged" in r.out and "verify" in r.err
    assert "damaged" in admin("cat", "s", "fine", code=1).err
    bad = [o for o in admin("--json", "ls", code=1).json["objects"] if o["error"]]
    assert [o["name"] for o in bad] == ["fine"]
    r = admin("--json", "stat", "s", "fine", code=1)
    assert r.json["error"] and r.json["buffers"] == []
