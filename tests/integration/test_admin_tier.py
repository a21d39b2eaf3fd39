# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin and the disk tier: tier, demote, promote, verify --tier, and what the
other commands say of it."""
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from admin_support import (Admin, actors, admin, bare, members, mount_tmpfs,  # noqa: F401
                           needs_root, pattern, unmount)
from admin_tiered import MIB, books_close, disk, tier_files, tiered, where  # noqa: F401
from daemon import Daemon


# ---- tier ----------------------------------------------------------------------------------------


def test_without_a_tier(admin, actors):
    actors(admin, "s", "-")("put", "k", 1000, "-")
    r = admin("tier")
    assert ("no disk tier" in r.out and f"shmstore-admin -p {admin.path} tier --set DIRECTORY" in
            r.out)
    assert admin.json("tier") == {"partition": admin.path, "tier": None}
    assert admin.json("df")["tier"] is None
    assert "has no disk tier" in admin("demote", "s", "k", code=1).err
    r = admin("evict", "--to", "0", code=1)
    assert "tier --set DIRECTORY" in r.err
    assert "no disk tier" in admin("tier", "--max", "1G", code=1).err
    assert admin.json("promote", "s", "k")["already"] == 1
    assert admin("tier", "--unset").out.startswith("no disk tier")
    assert "DEMOTED" not in admin("du").out
    assert where(admin) == {"k": "memory"}


def test_set_and_change(admin, disk):
    tier = admin.json("tier", "--set", disk, "--max", "1G", "--level", "3")["tier"]
    assert (tier["path"], tier["max"], tier["min_free"], tier["level"], tier["fsync"]) == (
        str(disk), 1 << 30, 0, 3, False)
    assert (tier["high"], tier["low"]) == (85, 75)
    assert tier["files"].startswith(str(disk) + "/") and admin.json("df")["uuid"] in tier["files"]
    fs = os.statvfs(disk)
    assert tier["disk_size"] == fs.f_blocks * fs.f_frsize and 0 < tier["available"] <= 1 << 30
    assert (tier["used"], tier["n_demoted"], tier["n_clean"], tier["n_orphans"], tier["ratio"]) == (
        0, 0, 0, 0, None)
    # the rest stays
    tier = admin.json("tier", "--min-free", "1%", "--fsync", "--high", "60", "--low", "20")["tier"]
    assert (tier["max"], tier["level"], tier["fsync"], tier["high"], tier["low"]) == (
        1 << 30, 3, True, 60, 20)
    assert tier["min_free"] == fs.f_blocks * fs.f_frsize // 100
    assert admin.json("tier", "--no-fsync", "--max", "0")["tier"]["max"] == 0
    text = admin("tier").out
    assert (str(disk) in text and "zstd, level 3" in text and
            "above 60 % of the partition, down to 20 %" in text)
    assert admin.json("tier", "--unset")["tier"] is None
    assert tier_files(disk) == []


def test_set_what_cannot_be(admin, disk, bare):
    none = disk / "none"
    r = admin("tier", "--set", none, code=1)
    assert f"mkdir -p -m 0700 {none}" in r.err
    memory = bare / "memory"
    memory.mkdir()
    r = admin("tier", "--set", memory, code=1)
    assert str(memory) in r.err and "memory" in r.err.lower()
    admin("tier", "--set", disk)
    assert "must be below" in admin("tier", "--high", "70", code=1).err  # the low one is 75
    assert admin.json("tier")["tier"]["high"] == 85


def test_relative_directories(admin, disk, monkeypatch):
    (disk / "below").mkdir()
    monkeypatch.chdir(disk)
    assert admin.json("tier", "--set", "below")["tier"]["path"] == str(disk / "below")


@needs_root
def test_only_the_owner_sets(disk):
    d = Path(tempfile.mkdtemp(prefix="shmstore-admin-"))
    try:
        mount_tmpfs(d, "size=16m,mode=0755")
        a = Admin(d / "p")
        a("init", "--shared")
        disk.chmod(0o1777)
        r = a.as_nobody()("tier", "--set", disk, code=1)
        assert r.out == "" and r.err
        assert a.json("tier")["tier"] is None
        a("tier", "--set", disk)
        assert a.as_nobody().json("tier")["tier"]["path"] == str(disk)
        a.as_nobody()("tier", "--unset", code=1)
        assert a.json("tier")["tier"]["path"] == str(disk)
    finally:
        unmount(d)
        d.rmdir()


def test_a_tier_that_holds_objects_stays(tiered, actors, disk):
    actor = actors(tiered, "s", "-")
    actor("noise", "k", MIB)
    tiered("demote", "s", "k")
    for change in (["--unset"], ["--set", disk.parent]):
        r = tiered("tier", *change, code=1)
        assert "promote STORE --all" in r.err
        assert tiered.json("tier")["tier"]["path"] == str(disk)
    tiered("promote", "--all", "s")
    actor("check", "k")
    assert tiered.json("tier", "--unset")["tier"] is None
    actor("check", "k")
    assert tier_files(disk) == []
    books_close(tiered)


# ---- demote, promote -----------------------------------------------------------------------------


def test_there_and_back(tiered, actors, disk):
    actor = actors(tiered, "s", "-")
    actor("noise", "noise", 6 * MIB)
    actor("put", "pattern", 8 * MIB, "-")
    actor("put", "small", 100, "-")
    used = tiered.json("df")["used"]
    r = tiered.json("demote", "s", "noise", "pattern")
    assert (r["store"], r["demoted"], r["already"], r["failed"]) == ("s", 2, 0, 0)
    assert r["objects"] == [{"key": key, "moved": True, "error": None, "path": None}
                            for key in ("noise", "pattern")]
    assert where(tiered) == {"noise": "tier", "pattern": "tier", "small": "memory"}
    assert used - tiered.json("df")["used"] >= 14 * MIB
    assert len(tier_files(disk)) == 2

    tier = tiered.json("tier")["tier"]
    on_disk = sum(p.stat().st_blocks * 512 for p in tier_files(disk))
    assert tier["used"] == tier["demoted"] == on_disk and tier["clean"] == tier["orphans"] == 0
    assert (tier["n_demoted"], tier["n_raw"], tier["n_zstd"]) == (2, 1, 1)
    assert 14 * MIB <= tier["original"] < 15 * MIB and tier["last_minute"] == on_disk
    assert (tier["ratio"] == pytest.approx(tier["original"] / on_disk, abs=0.001) and
            tier["ratio"] > 2)
    text = tiered("tier").out
    assert re.search(r"^in the tier only +2 ", text, re.M) and "1 compressed, 1 as they are" in text

    r = tiered.json("demote", "s", "noise")
    assert (r["demoted"], r["already"]) == (0, 1)
    assert tiered("demote", "s", "noise").out == "0 objects demoted, 1 in the tier already\n"

    r = tiered.json("promote", "--threads", "2", "s", "noise", "pattern", "small")
    assert (r["promoted"], r["already"], r["failed"]) == (2, 1, 0)
    assert set(where(tiered).values()) == {"memory"}
    actor("check", "noise")
    assert tiered("cat", "s", "pattern").raw == pattern(8 * MIB)
    tier = tiered.json("tier")["tier"]
    assert (tier["demoted"], tier["clean"], tier["n_clean"]) == (0, on_disk, 2)
    assert re.search(r"^in memory too +2 ", tiered("tier").out, re.M)
    books_close(tiered)


def test_a_clean_copy_needs_no_write(tiered, actors, disk):
    actor = actors(tiered, "s", "-")
    actor("noise", "k", 2 * MIB)
    tiered("demote", "s", "k")
    (file,) = tier_files(disk)
    before = file.stat()
    actor("check", "k")
    tiered("demote", "s", "k")
    (file,) = tier_files(disk)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    actor("check", "k")
    actor("delete", "k")
    assert tier_files(disk) == []
    books_close(tiered)


def test_all_but_the_pinned(tiered, actors):
    actor = actors(tiered, "s", "-")
    actor("put", "pinned", 100000, "p")
    for i in range(70):  # more than one batch
        actor("noise", f"k{i}", 20000)
    assert where(tiered)["pinned"] == "pinned"
    r = tiered.json("demote", "s", "--all")
    assert (r["demoted"], r["pinned"], r["failed"]) == (70, 1, 0) and len(r["objects"]) == 70
    r = tiered("demote", "s", "pinned", code=1)
    assert "pinned" in r.err and where(tiered)["pinned"] == "pinned"
    assert tiered.json("demote", "s", "pinned", code=1)["objects"][0]["error"]
    actor("unpin", "pinned")
    assert tiered("demote", "s", "--all").out == "1 object demoted\n"
    r = tiered.json("promote", "s", "--all")
    assert (r["promoted"], r["failed"]) == (71, 0)
    for i in range(70):
        actor("check", f"k{i}")
    assert tiered("promote", "s", "--all").out == "0 objects promoted\n"


def test_keys_that_are_not_there(tiered, actors):
    actor = actors(tiered, "s", "-")
    actor("noise", "k", 10000)
    for command in ("demote", "promote"):
        r = tiered(command, "s", "none", "k", code=1)  # the others go on
        assert "the store s holds no such key" in r.err and "ls s" in r.err and "1 failed" in r.out
        assert "there is no such store" in tiered(command, "none", "k", code=1).err
    assert where(tiered) == {"k": "memory"}


@pytest.mark.usefixtures("files")
def test_keys_of_any_bytes(tiered):
    keys = ["with space", "äöü", r"\x00\xff", "", "k" * 4096]
    for key in keys:
        tiered("put", "s", "--", key, stdin=key.encode() * 3)
    assert tiered.json("demote", "s", *keys)["demoted"] == len(keys)
    assert where(tiered) == {key: "tier" for key in keys}
    for key in keys:
        assert tiered.json("stat", "s", "--", key)["demoted"] is True
    assert tiered.json("promote", "s", *keys)["promoted"] == len(keys)
    for key in keys:
        assert tiered("cat", "s", "--", key).raw == key.encode() * 3


@pytest.mark.usefixtures("files")
def test_a_kept_store_without_an_owner(admin, disk):
    """It was there before the tier, and nobody notices for it."""
    admin("put", "s", "k", stdin=pattern(300000))
    label = admin.json("du")["stores"][0]["label"]
    admin("tier", "--set", disk)
    assert admin.json("demote", "s", "k")["demoted"] == 1
    store, = admin.json("du")["stores"]
    assert (store["keep"], store["alive"], store["label"], store["n_demoted"]) == (
        True, False, label, 1)
    admin("gc")
    assert admin("cat", "s", "k").raw == pattern(300000)
    admin("put", "s", "l", stdin=b"x")  # with an owner again
    assert admin.json("promote", "s", "k")["promoted"] == 1
    assert admin("cat", "s", "k").raw == pattern(300000)


def test_a_packed_object_is_moved_by_its_own_process(admin, disk):
    admin("put", "s", "k", stdin=pattern(30000))
    admin("tier", "--set", disk)
    refused = admin("--json", "demote", "s", "k", code=1)
    assert ("packed" in refused.json["objects"][0]["error"] and
            "evict" in refused.json["objects"][0]["error"])
    assert admin("cat", "s", "k").raw == pattern(30000)


def test_an_object_of_several_stores(tiered, actors):
    a, b = actors(tiered, "a", "-"), actors(tiered, "b", "-")
    a("noise", "k", 3 * MIB)
    b("adopt", "k", a("handoff", "k", 60000))
    tiered("demote", "a", "k")
    listed = {o["store"]: o for o in tiered.json("ls")["objects"]}
    assert (listed["a"]["demoted"] and listed["b"]["demoted"] and
            listed["a"]["inode"] == listed["b"]["inode"])
    assert listed["a"]["links"] == 2
    stat = tiered.json("stat", "b", "k")
    assert {n["store"] for n in stat["names"]} == {"a", "b"} and stat["leases"] == 0
    assert tiered.json("tier")["tier"]["n_demoted"] == 1
    tiered("promote", "b", "k")
    b("check", "k")
    a("check", "k")
    listed = {o["store"]: o for o in tiered.json("ls")["objects"]}
    assert not listed["a"]["demoted"] and listed["a"]["inode"] == listed["b"]["inode"]
    books_close(tiered)


def test_a_lease_keeps_it_in_memory(tiered, actors):
    a = actors(tiered, "a", "-")
    a("noise", "k", MIB)
    a("handoff", "k", 60000)
    r = tiered("demote", "a", "k", code=1)
    assert r.err.startswith("shmstore-admin: k: ") and where(tiered) == {"k": "memory"}
    books_close(tiered)


# ---- what others say -----------------------------------------------------------------------------


def test_stat_ls_du_df_of_a_demoted_object(tiered, actors, disk):
    actor = actors(tiered, "s", "-")
    actor("put2", "k", "hdr", 1000, 70000)
    actor("noise", "l", 10000)
    before = tiered.json("stat", "s", "k")
    assert before["tier_file"] is None and before["tier_blocks"] == 0 and before["demoted"] is False
    tiered("demote", "s", "k")
    stat = tiered.json("stat", "s", "k")
    (file,) = tier_files(disk)
    for same in ("key", "header_size", "buffer_size", "generation"):
        assert stat[same] == before[same], same
    assert (stat["demoted"], stat["blocks"], stat["buffers"], stat["links"]) == (True, 0, [], 1)
    assert stat["tier_file"] == str(file) and stat["tier_blocks"] == file.stat().st_blocks * 512
    text = tiered("stat", "s", "k").out
    assert re.search(r"^where +in the disk tier$", text, re.M) and str(file) in text
    assert where(tiered) == {"k": "tier", "l": "memory"}  # looking brought nothing back

    head, *lines = tiered("ls").out.splitlines()
    at = head.index("WHERE")
    assert {line.split()[1]: line[at:].split()[0] for line in lines if line.startswith("s ")} == {
        "k": "tier", "l": "memory"}
    store, = tiered.json("du")["stores"]
    assert (store["objects"], store["n_demoted"], store["n_clean"]) == (2, 1, 0)
    assert store["demoted"] >= 71000 and store["linked"] < 71000 + 10000
    assert tiered.json("du")["total_demoted"] == store["demoted"]
    assert "DEMOTED" in tiered("du").out
    df = tiered.json("df")
    assert (df["objects"], df["demoted"], df["tier"]["n_demoted"]) == (2, 1, 1)
    assert re.search(rf"^{re.escape(str(disk))} +the disk ", tiered("df").out, re.M)
    r = books_close(tiered)
    assert r["tier"] == r["tier_demoted"] == file.stat().st_blocks * 512 and r["demoted"] == 1
    assert re.search(r"^ *= +demoted ", tiered("reconcile", code=None).out, re.M)

    # from the disk: reading is not bringing back
    assert tiered("cat", "s", "k").raw == pattern(1000)
    assert tiered("cat", "s", "k", "--header").raw == b"hdr"
    assert where(tiered)["k"] == "tier"
    actor("get", "k")
    actor("drop")
    stat = tiered.json("stat", "s", "k")
    assert stat["demoted"] is False and stat["tier_file"] == str(file) and len(stat["buffers"]) == 2
    assert re.search(r"^where +in memory$", tiered("stat", "s", "k").out, re.M)
    assert tiered.json("du")["stores"][0]["n_clean"] == 1


def test_every_json_member_is_in_the_man_page(tiered, actors):
    from test_admin_shell import PAGES
    actor = actors(tiered, "s", "-")
    actor("noise", "k", 10000)
    actor("noise", "l", 10000)
    words = set(re.findall(r"[a-z_]+",
                           next(p for p in PAGES if p.name == "shmstore-admin.1").read_text()))

    for command in (["demote", "s", "k"], ["tier"], ["df"], ["du"], ["ls"], ["stat", "s", "k"],
                    ["reconcile"], ["verify", "--tier"],
                    ["gc"], ["top", "-n1", "-d0.05"], ["promote", "s", "k"],
                    ["evict", "--free", "1"], ["doctor"]):
        found = set(members(tiered.json(*command, code=None)))
        assert found <= words, (command, found - words)


@needs_root
def test_top_and_status_show_what_the_daemon_says(tiered, actors, disk):
    actor = actors(tiered, "s", "-")
    actor("noise", "k", MIB)
    tiered("demote", "s", "k")
    # a frame of our own does not look at the disk
    assert tiered.json("top", "-n1", "-d0.05")["tier"] is None
    with Daemon(tiered.path) as daemon:
        asking = Admin(tiered.path, env={"SHMSTORE_SOCKET": daemon.socket})
        deadline = time.monotonic() + 30
        while True:
            frame = asking.json("top", "-n1", "-d1")
            assert frame["source"] == "daemon"
            if frame["tier"] and frame["tier"].get("n_demoted") == 1:
                break
            assert time.monotonic() < deadline, frame
        told = tiered.json("tier")["tier"]
        for same in ("path", "used", "demoted", "original", "high", "low"):
            assert frame["tier"][same] == told[same], same
        assert re.search(rf"^disk tier: \w+, 1.00 MiB of objects on .* in {re.escape(str(disk))}",
                         asking("top", "-n1", "-d1").out, re.M)
        assert f"disk tier of {tiered.path}: " in asking("status").out


# ---- damage --------------------------------------------------------------------------------------


def flip(path, offset):
    path.chmod(0o600)
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)
        f.seek(offset)
        f.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("offset", [0, 100, 4096 + 5, -1])
def test_damage_is_named(tiered, actors, disk, offset):
    actor = actors(tiered, "s", "-")
    actor("noise", "good", 2 * MIB)
    tiered("demote", "s", "good")
    known = set(tier_files(disk))
    actor("noise", "bad", 2 * MIB)
    tiered("demote", "s", "bad")
    r = tiered.json("verify", "--tier")
    assert r["bad"] == [] and r["checked"] == 2 and r["bytes"] >= 4 * MIB
    assert "2 files checked" in tiered("verify", "--tier").out
    (file,) = set(tier_files(disk)) - known
    flip(file, offset % file.stat().st_size)
    for command in (["promote", "s", "bad"], ["cat", "s", "bad"]):
        r = tiered(*command, code=1)
        assert str(file) in r.err, r
        assert command[0] == "promote" or r.raw == b""
    assert actor.try_("get", "bad") == "error 74"  # EBADMSG
    assert tiered.json("promote", "s", "bad", code=1)["objects"][0]["path"] == str(file)
    r = tiered.json("verify", "--tier", code=1)
    assert [b["path"] for b in r["bad"]] == [str(file)] and r["bad"][0]["reason"]
    assert str(file) in tiered("verify", "--tier", code=1).out
    assert tiered.json("verify")["bad"] == []  # what is in memory is fine
    actor("check", "good")
    actor("delete", "bad")
    assert file not in tier_files(disk)
    books_close(tiered)


def test_a_tier_file_that_is_cut_short_or_gone(tiered, actors, disk):
    actor = actors(tiered, "s", "-")
    actor("noise", "k", MIB)
    tiered("demote", "s", "k")
    (file,) = tier_files(disk)
    file.chmod(0o600)
    os.truncate(file, file.stat().st_size - 4096)
    assert str(file) in tiered("promote", "s", "k", code=1).err
    assert [b["path"] for b in tiered.json("verify", "--tier", code=1)["bad"]] == [str(file)]
    file.unlink()
    assert str(file) in tiered("promote", "s", "k", code=1).err
    assert where(tiered) == {"k": "tier"}


def test_verify_at_a_rate(tiered, actors):
    """No stopwatch: the program says itself how long it took, and a bound on the rate is a
    bound on that from below."""
    actor = actors(tiered, "s", "-")
    actor("noise", "k", 8 * MIB)
    tiered("demote", "s", "k")
    r = tiered.json("verify", "--tier", "--rate", "8M")
    assert r["bad"] == [] and r["bytes"] >= 8 * MIB
    assert r["bytes"] / r["seconds"] <= 1.25 * 8 * MIB


def test_garbage_goes(tiered, actors, disk):
    actor = actors(tiered, "s", "-")
    actor("noise", "k", MIB)
    tiered("demote", "s", "k")
    (file,) = tier_files(disk)
    junk = file.parent / ("f" * 16)
    shutil.copy(file, junk)
    tier = tiered.json("tier")["tier"]
    assert tier["n_orphans"] == 1 and tier["orphans"] == junk.stat().st_blocks * 512
    assert re.search(r"^garbage +1 ", tiered("tier").out, re.M)
    r = tiered.json("reconcile", code=None)
    assert r["tier_orphans"] == tier["orphans"]
    planned = tiered.json("gc", "--dry-run")
    assert str(junk) in [a["path"] for a in planned["actions"]] and junk.exists()
    done = tiered.json("gc")
    assert str(junk) in [a["path"] for a in done["actions"]] and done["failed"] == 0
    assert tier_files(disk) == [file]
    assert (tiered.json("tier")["tier"]["n_orphans"] == 0 and books_close(tiered)["tier_orphans"] ==
            0)
    actor("check", "k")
