# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin: every command, with real processes: answers, exit codes, messages, wrong usage."""
import base64
import hashlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from admin_support import (ADMIN, NOBODY, ROOT, Admin, actors, admin, bare, environment, mount_tmpfs,  # noqa: F401
                           needs_root, terminal, unmount)

PAGE = os.sysconf("SC_PAGE_SIZE")


def pattern(size):
    return bytes((i * 7 + i // 251) & 255 for i in range(size))


# ---- the command line ------------------------------------------------------------------------------------------------


def test_version():
    a = Admin("/")
    plain, as_json = a("version", partition=False), a("--json", "version", partition=False)
    assert re.fullmatch(r"shmstore-admin \d+\.\d+\.\d+\n", plain.out)
    assert as_json.json["version"] == plain.out.split()[1]
    assert a("--version", partition=False).out == plain.out


@pytest.mark.parametrize("args", [[], ["frobnicate"], ["df", "x"], ["df", "--frobnicate"], ["put", "s"], ["stat", "s"],
                                  ["ls", "a", "b"], ["get", "s", "k", "f", "more"], ["get", "s", "k", "--buffer", "x"],
                                  ["cat", "s", "k", "--buffer=-1"], ["top", "--iterations", "0"], ["top", "--interval", "x"],
                                  ["top", "--sort", "x"], ["init", "--size", "lots"], ["init", "--size", "1K"],
                                  ["init", "--huge", "x"], ["init", "--allow-disk", "--size", "1G"],
                                  ["init", "--owner", "no such user"], ["help", "frobnicate"], ["-p"], ["-p", "", "df"],
                                  ["--frobnicate", "df"]])
def test_wrong_usage(args):
    r = Admin("/nonexistent")(*args, partition=False, code=2)
    assert r.out == ""
    assert r.err.startswith("shmstore-admin: ")


def test_help_explains_every_command():
    a = Admin("/")
    text = a("help", partition=False).out
    commands = re.findall(r"^  ([a-z]+) ", text, re.M)
    assert commands == ["init", "doctor", "df", "du", "ls", "stat", "cat", "get", "put", "reconcile", "gc", "verify", "top",
                        "version", "help"]
    for c in commands:
        shown = a("help", c, partition=False)
        assert f"shmstore-admin [OPTION...] {c}" in shown.out and shown.err == ""
        assert "--json" in shown.out
        assert a(c, "--help", partition=False).out == shown.out


def test_options_stand_before_or_after_the_command(admin):
    before, after = admin("--json", "df").json, admin("df", "--json").json
    assert before == after
    assert admin("df", "--json", "-p", admin.path, partition=False).json == before
    assert admin("df", "--json", partition=False, env={"SHMSTORE_PARTITION": admin.path}).json == before


def test_output_that_cannot_be_written_is_a_failure(admin):
    with open("/dev/full", "wb") as full:
        r = subprocess.run([ADMIN, "-p", admin.path, "df"], stdout=full, stderr=subprocess.PIPE, check=False,
                           env=environment(), timeout=60)
    assert r.returncode == 1
    assert r.stderr.startswith(b"shmstore-admin: standard output: ")


@pytest.mark.parametrize("command", [["df"], ["du"], ["ls"], ["stat", "s", "k"], ["cat", "s", "k"], ["get", "s", "k"],
                                     ["put", "s", "k"], ["reconcile"], ["gc"], ["verify"], ["top"]])
def test_missing_partition(command, bare):
    r = Admin(bare / "none")(*command, code=1)
    assert r.out == ""
    assert "none: there is no such directory\n" in r.err
    assert "init" in r.err  # what to do
    r = Admin(bare)(*command, code=1)
    assert "is no partition: it holds no .shmstore" in r.err


# ---- init ------------------------------------------------------------------------------------------------------------


def test_init_is_idempotent(bare):
    a = Admin(bare)
    first, second = a.json("init"), a.json("init")
    assert first["created"] is True and second["created"] is False
    assert first["partition"] == second["partition"] == str(bare)
    assert first["uuid"] == second["uuid"] and len(first["uuid"]) == 36
    assert (bare / ".shmstore").exists()


def test_init_makes_the_directory(bare):
    a = Admin(bare / "new")
    assert a.json("init")["created"] is True
    assert (bare / "new").stat().st_mode & 0o7777 == 0o700
    assert "partition made" in Admin(bare / "other")("init").out


def test_init_shared(bare):
    Admin(bare / "new")("init", "--shared")
    assert (bare / "new").stat().st_mode & 0o7777 == 0o1777


def test_init_refuses_a_foreign_directory(bare):
    (bare / "precious").write_text("x")
    r = Admin(bare)("init", code=1)
    assert "is not empty" in r.err
    assert [p.name for p in bare.iterdir()] == ["precious"]


def test_init_refuses_a_disk(tmp_path):
    if subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, check=True).stdout.strip() == b"tmpfs":
        pytest.skip("the temporary directory is on a tmpfs")
    d = tmp_path / "on disk"
    a = Admin(d)
    for _ in range(2):
        r = a("init", code=1)
        assert "is on a disk file system" in r.err and "--allow-disk" in r.err
        assert not (d / ".shmstore").exists()
    r = a("init", "--json", "--allow-disk")
    assert r.json["created"] is True and r.json["tmpfs"] is False
    assert "warning" in r.err
    assert a("init", "--json", "--allow-disk").json["created"] is False
    a("put", "s", "k", stdin=b"on disk")
    assert a("cat", "s", "k").raw == b"on disk"


def test_init_names_another_format_version(admin):
    marker = Path(admin.path) / ".shmstore"
    old = marker.read_bytes()
    new = old.replace(b"partition 1\n", b"partition 9\n")
    assert new != old
    marker.chmod(0o600)
    marker.write_bytes(new)
    for command in ("init", "df"):
        r = admin(command, code=1)
        assert "is a partition of format version 9" in r.err
    findings = {f["check"]: f for f in admin("--json", "doctor", code=1).json["findings"]}
    assert findings["partition"]["level"] == "fail" and "format version" in findings["partition"]["found"]
    assert marker.read_bytes() == new


def test_init_missing_parent(bare):
    r = Admin(bare / "a" / "b")("init", code=1)
    assert f"cannot be made: {bare}/a: No such file or directory" in r.err and f"mkdir -p {bare}/a\n" in r.err


@needs_root
def test_init_where_one_may_not(bare):
    bare.chmod(0o755)
    r = Admin(bare / "new").as_nobody()("init", code=1)
    assert f"you may not write to {bare}" in r.err and f"chown {NOBODY} {bare}/new" in r.err


@pytest.fixture
def mountable():
    """A path that does not exist, in a directory that every user may pass."""
    with tempfile.TemporaryDirectory(prefix="shmstore-admin-") as d:
        Path(d).chmod(0o755)
        yield Path(d) / "mount"
        unmount(Path(d) / "mount")


@needs_root
def test_init_mounts_and_resizes(mountable):
    a = Admin(mountable)
    r = a("init", "--json", "--size", "32M").json
    assert r["created"] and r["mounted"] and not r["resized"]
    assert (r["size"], r["huge"], r["mount"]) == (32 << 20, "within_size", str(mountable))
    assert mountable.stat().st_mode & 0o7777 == 0o700
    df = a.json("df")
    assert df["inodes_size"] >= 1000000
    a("put", "s", "k", stdin=b"kept through the resize")
    r = a("init", "--json", "--size", "48M", "--huge", "never").json
    assert not r["created"] and not r["mounted"] and r["resized"]
    assert (r["size"], r["huge"]) == (48 << 20, "never")
    assert a("cat", "s", "k").raw == b"kept through the resize"
    # the flags of the mount are not lost by the way
    options = subprocess.run(["findmnt", "-no", "OPTIONS", mountable], capture_output=True, check=True).stdout.decode()
    assert "nosuid" in options and "nodev" in options


@needs_root
def test_init_refuses_a_size_below_what_is_used(mountable):
    a = Admin(mountable)
    a("init", "--size", "32M")
    a("put", "s", "k", stdin=bytes(8 << 20))
    r = a("init", "--size", "1M", code=1)
    assert "the kernel refuses" in r.err and "in use" in r.err
    assert a.json("df")["size"] == 32 << 20


@needs_root
def test_init_mounts_over_nothing(mountable):
    mountable.mkdir()
    (mountable / "precious").write_text("x")
    r = Admin(mountable)("init", "--size", "32M", code=1)
    assert "a mount would hide what is in it" in r.err
    assert (mountable / "precious").exists()


def test_init_mounts_over_no_partition(bare):
    a = Admin(bare / "p")
    a("init")
    r = a("init", "--size", "32M", code=1)
    assert f"is a partition already, on the file system mounted at {bare if ROOT else '/dev/shm'}: a mount would hide it" in r.err


def test_commands_in_messages_can_be_run(bare):
    """Whatever the path is: the hint is pasted into a shell and does what it says."""
    d = bare / "a b'c $(touch x)"
    r = Admin(d)("df", code=1)
    hint = re.search(r"^  to make a partition there: (.*)$", r.err, re.M).group(1)
    subprocess.run(hint, shell=True, check=True, cwd=bare, env=environment(PATH=f"{ADMIN.parent}:{os.environ['PATH']}"))
    assert Admin(d).json("df")["partition"] == str(d)
    assert [p.name for p in bare.iterdir()] == [d.name]


@needs_root
def test_init_for_an_owner(mountable):
    a = Admin(mountable)
    a("init", "--size", "32M", "--owner", NOBODY)
    assert {p.lstat().st_uid for p in [mountable, *mountable.iterdir()]} == {NOBODY}
    user = a.as_nobody()
    user("put", "s", "k", stdin=b"mine")
    assert user("cat", "s", "k").raw == b"mine"


@needs_root
def test_init_tells_a_user_the_command_for_root(bare):
    bare.chmod(0o755)
    r = Admin(bare).as_nobody()("init", "--size", "32M", "--huge", "never", code=1)
    assert f"sudo shmstore-admin -p {bare} init --size {32 << 20} --huge never --owner {NOBODY}" in r.err


@needs_root
def test_another_users_partition(admin):
    r = admin.as_nobody()("df", code=1)
    assert "belongs to user 0" in r.err and f"you are user {NOBODY}" in r.err


# ---- put, get, cat -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 4095, 65536, 1000003, 8 << 20])
def test_bytes_come_back(admin, tmp_path, size):
    data = os.urandom(size)
    source, copy = tmp_path / "in", tmp_path / "out"
    source.write_bytes(data)
    admin("put", "s", "file", source)
    admin("put", "s", "pipe", stdin=data)
    admin("put", "s", "dash", "-", stdin=data)
    for key in ("file", "pipe", "dash"):
        assert admin("cat", "s", key).raw == data
        assert admin("get", "s", key).raw == data
        assert admin("get", "s", key, "-").raw == data
        admin("get", "s", key, copy)
        assert copy.read_bytes() == data


def test_put_answers_and_keeps_its_store(admin):
    r = admin.json("put", "s", "k", stdin=b"12345")
    assert r == {"store": "s", "key": "k", "size": 5, "created_store": True}
    assert admin.json("put", "s", "l", stdin=b"")["created_store"] is False
    store, = admin.json("du")["stores"]
    assert store["keep"] is True and store["alive"] is False
    admin("gc")
    assert admin("cat", "s", "k").raw == b"12345"


def test_put_replaces_only_when_asked(admin):
    admin("put", "s", "k", stdin=b"old")
    r = admin("put", "s", "k", stdin=b"new", code=1)
    assert "holds that key already" in r.err and "--replace" in r.err
    assert admin("cat", "s", "k").raw == b"old"
    admin("put", "--replace", "s", "k", stdin=b"new")
    assert admin("cat", "s", "k").raw == b"new"


def test_put_into_a_live_store_is_refused(admin, actors):
    actor = actors(admin, "s", "-")
    r = admin("put", "s", "k", stdin=b"x", code=1)
    assert f"belongs to a live process: pid {actor.pid} (admin-actor)" in r.err
    assert admin.json("ls")["objects"] == []


@needs_root
def test_put_on_a_full_partition_leaves_nothing(admin, tmp_path):
    big = tmp_path / "big"
    with open(big, "wb") as f:
        f.truncate(65 << 20)
    before = admin.json("df")["used"]
    r = admin("put", "s", "k", big, code=1)
    assert "no room for 65.0 MiB" in r.err and "gc" in r.err
    assert "no room" in admin("put", "s", "k", stdin=bytes(65 << 20), code=1).err
    assert admin.json("df")["used"] == before
    assert admin.json("ls")["objects"] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("store,left", [("new", ["old"]), ("old", ["old"])])
def test_an_interrupted_put_leaves_nothing(admin, number, store, left):
    admin("put", "old", "k", stdin=b"x")
    used = admin.json("df")["used"]
    p = subprocess.Popen([ADMIN, "-p", admin.path, "put", store, "big"], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                         env=environment(),
                         preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))  # a background job's is ignored
    deadline = time.monotonic() + 20
    while not re.match(r"(0|63) 0x0 ", Path(f"/proc/{p.pid}/syscall").read_text()):  # in read(2) of its standard input
        assert time.monotonic() < deadline and p.poll() is None
    p.send_signal(number)
    p.communicate(timeout=20)
    assert p.returncode == -number
    assert [s["name"] for s in admin.json("du")["stores"]] == left
    assert [o["key"] for o in admin.json("ls")["objects"]] == ["k"]
    assert admin.json("df")["used"] == used


@pytest.mark.parametrize("store", ["a/b", ".hidden", "x" * 256, ""])
def test_wrong_store_names(admin, store):
    assert "is no name of a store" in admin("put", store, "k", stdin=b"x", code=1).err
    assert admin.json("du")["stores"] == []


def test_keys_of_any_bytes(admin):
    keys = {"plain": b"plain", "with space": b"with space", "äöü": "äöü".encode(), r"\x00\xff": b"\x00\xff",
            r"back\slash": rb"back\slash", r"\x5cx41": rb"\x41", "('x', 0, 1)": b"('x', 0, 1)", "": b"",
            "line\\x0abreak": b"line\nbreak", "k" * 4096: b"k" * 4096, "%41": b"%41"}
    for i, typed in enumerate(keys):
        admin("put", "s", "--", typed, stdin=b"%d" % i)
    listed = {o["key"] for o in admin.json("ls", "s")["objects"]}
    assert listed == set(keys)  # shown as typed, so that it can be typed as shown
    for i, typed in enumerate(keys):
        assert admin("cat", "s", "--", typed).raw == b"%d" % i
        assert admin.json("stat", "s", "--", typed)["key"] == typed
    text = admin("ls").out
    assert r"line\x0abreak" in text and r"\x5cx41" in text and "äöü" in text
    assert "longer than 4096" in admin("put", "s", "k" * 4097, stdin=b"", code=1).err


def test_an_escape_may_spell_a_printable_byte(admin):
    admin("put", "s", r"\x41", stdin=b"x")
    assert [o["key"] for o in admin.json("ls")["objects"]] == ["A"]


def test_get_what_is_not_there(admin, tmp_path):
    target = tmp_path / "target"
    target.write_text("precious")
    admin("put", "s", "k", stdin=b"x")
    for args, message in ((["s", "none"], "the store s holds no such key"), (["none", "k"], "there is no such store"),
                          (["s", "k", "--buffer", "1"], "there is no buffer 1")):
        r = admin("get", *args[:2], target, *args[2:], code=1)
        assert message in r.err
        assert target.read_text() == "precious"
    assert "No such file or directory" in admin("get", "s", "k", tmp_path / "none" / "x", code=1).err
    assert "No such file or directory" in admin("put", "s", "l", tmp_path / "none", code=1).err
    assert "is a directory" in admin("put", "t", "l", tmp_path, code=1).err
    assert [s["name"] for s in admin.json("du")["stores"]] == ["s"]  # no store for what failed


def test_buffers_and_header(admin, actors, tmp_path):
    actor = actors(admin, "s", "-")
    actor("put2", "k", "the-header", 1000, 300)
    assert admin("cat", "s", "k").raw == pattern(1000)
    assert admin("cat", "s", "k", "--buffer", "1").raw == pattern(300)
    assert admin("cat", "s", "k", "-n1").raw == pattern(300)
    assert admin("cat", "s", "k", "--header").raw == b"the-header"
    r = admin.json("cat", "s", "k", "--buffer=1")
    assert base64.b64decode(r["data"]) == pattern(300) and r["size"] == 300
    r = admin.json("get", "s", "k", tmp_path / "f", "--header")
    assert r["file"] == str(tmp_path / "f") and (tmp_path / "f").read_bytes() == b"the-header"


def test_get_to_a_full_device(admin):
    admin("put", "s", "k", stdin=b"x" * 100000)
    assert "No space left on device" in admin("get", "s", "k", "/dev/full", code=1).err
    with open("/dev/full", "wb") as full:
        r = subprocess.run([ADMIN, "-p", admin.path, "cat", "s", "k"], stdout=full, stderr=subprocess.PIPE, check=False,
                           env=environment(), timeout=60)
    assert r.returncode == 1 and b"No space left" in r.stderr


# ---- df, du, ls, stat --------------------------------------------------------------------------------------------------


def test_df(admin, actors):
    empty = admin.json("df")
    fs = os.statvfs(admin.path)
    assert empty["partition"] == admin.path
    assert empty["size"] == fs.f_blocks * fs.f_frsize
    assert empty["available"] == fs.f_bavail * fs.f_frsize
    assert empty["used"] == (fs.f_blocks - fs.f_bfree) * fs.f_frsize
    assert empty["inodes_free"] == fs.f_ffree and empty["inodes_used"] == fs.f_files - fs.f_ffree
    assert empty["huge"] in ("never", "within_size", "always", "advise")
    assert (empty["stores"], empty["objects"]) == (0, 0)
    actor = actors(admin, "s", "-")
    for i in range(3):
        actor("put", f"k{i}", 1 << 20, "-")
    full = admin.json("df")
    assert (full["stores"], full["objects"]) == (1, 3)
    assert full["used"] - empty["used"] >= 3 << 20
    lines = admin("df").out.splitlines()
    assert len(lines) == 2 and lines[1].startswith(admin.path)
    assert str(full["used"]) in admin("df", "--bytes").out.split()


def test_du_shares_out(admin, actors):
    a, b = actors(admin, "a", "-"), actors(admin, "b", "-")
    a("put", "own", 1 << 20, "-")
    a("put", "shared", 2 << 20, "-")
    b("adopt", "shared", a("handoff", "shared", 60000))
    du = admin.json("du")
    stores = {s["name"]: s for s in du["stores"]}
    assert set(stores) == {"a", "b"}
    for name, actor in (("a", a), ("b", b)):
        assert stores[name]["pid"] == actor.pid and stores[name]["alive"] is True
    own, shared = 1 << 20, 2 << 20
    slack = 2 * PAGE  # headers
    assert own + shared <= stores["a"]["linked"] <= own + shared + 2 * slack
    assert shared <= stores["b"]["linked"] <= shared + slack
    assert own + shared // 2 <= stores["a"]["pss"] <= own + shared // 2 + 2 * slack
    assert own <= stores["a"]["uss"] <= own + slack and stores["b"]["uss"] == 0
    assert (stores["a"]["objects"], stores["b"]["objects"]) == (2, 1)
    assert own + shared <= du["total_linked"] <= own + shared + 8 * PAGE
    a.kill()
    stores = {s["name"]: s for s in admin.json("du")["stores"]}
    assert stores["a"]["alive"] is False and stores["b"]["alive"] is True
    text = admin("du").out
    assert re.search(r"^a +\d+ dead ", text, re.M) and re.search(r"^b +\d+ alive ", text, re.M)
    assert re.search(r"^total", text, re.M)


def test_ls(admin, actors):
    actor = actors(admin, "s", "-")
    other = actors(admin, "t", "-")
    actor("put2", "k", "hdr", 1000, 70000)
    other("adopt", "copy", actor("handoff", "k", 60000))
    objects = {o["store"]: o for o in admin.json("ls")["objects"]}
    assert set(objects) == {"s", "t"}
    o = objects["s"]
    assert o["key"] == "k" and objects["t"]["key"] == "copy"
    file = Path(admin.path) / "stores" / "s" / "objects" / o["name"]
    assert o["header_size"] + o["buffer_size"] == file.stat().st_size
    assert o["buffer_size"] >= 71000 and o["links"] == 2
    assert o["inode"] == objects["t"]["inode"] == file.stat().st_ino
    assert [o["store"] for o in admin.json("ls", "t")["objects"]] == ["t"]
    assert admin.json("ls", str(Path(admin.path) / "stores" / "t"))["objects"] == [objects["t"]]
    assert "there is no such store" in admin("ls", "u", code=1).err
    assert admin("ls", "--json", "u", code=1).json == {"objects": []}


def test_a_store_outside_stores(admin, actors):
    directory = Path(admin.path) / "workers"
    directory.mkdir()
    actor = actors(admin, "elsewhere", "-", directory / "w1")
    actor("put", "k", 10, "-")
    assert admin.json("du")["stores"][0]["path"] == str(directory / "w1")
    assert [o["key"] for o in admin.json("ls", "elsewhere")["objects"]] == ["k"]
    assert admin("cat", "elsewhere", "k").raw == pattern(10)
    assert admin("cat", directory / "w1", "k").raw == pattern(10)


def test_stat(admin, actors):
    actor, other = actors(admin, "s", "-"), actors(admin, "t", "-")
    actor("put2", "k", "the-header", 100000, 300)
    other("adopt", "copy", actor("handoff", "k", 60000))
    actor("handoff", "k", 60000)
    s = admin.json("stat", "s", "k")
    listed, = admin.json("ls", "s")["objects"]
    for member in ("header_size", "buffer_size", "inode", "links", "key", "store", "blocks", "name"):
        assert s[member] == listed[member]
    data = (Path(admin.path) / "stores" / "s" / "objects" / s["name"]).read_bytes()
    first, second = s["buffers"]
    assert (first["size"], second["size"]) == (100000, 300)
    assert data[first["offset"]:][:100000] == pattern(100000)
    assert data[second["offset"]:] == pattern(300) and second["offset"] >= first["offset"] + 100000
    assert s["metadata_size"] == 10 and s["checksum"] is False and s["error"] is None
    assert {(n["store"], n["key"], n["pid"]) for n in s["names"]} == {("s", "k", actor.pid), ("t", "copy", other.pid)}
    assert s["links"] == 3 and s["leases"] == 1
    assert re.fullmatch("[0-9a-f]{16}", s["generation"])
    text = admin("stat", "s", "k").out
    assert f"inode       {s['inode']}\n" in text and re.search(rf"^t +{other.pid} copy$", text, re.M)
    assert "3: 2 in stores, 1 leased" in text
    assert "holds no such key" in admin("stat", "s", "none", code=1).err


def test_stat_of_two_names_in_one_store(admin, actors):
    actor = actors(admin, "s", "-")
    actor("put", "one", 100000, "-")
    actor("adopt", "two", actor("handoff", "one", 60000))
    names = {(n["store"], n["key"]) for n in admin.json("stat", "s", "two")["names"]}
    assert names == {("s", "one"), ("s", "two")}


def test_du_is_sorted(admin):
    for name in ("m", "z", "a"):
        admin("put", name, "k", stdin=b"x")
    assert [line.split()[0] for line in admin("du").out.splitlines()] == ["STORE", "a", "m", "z", "total"]


# ---- reconcile -----------------------------------------------------------------------------------------------------------

TERMS = ("linked", "ghosts", "pool", "inflight", "foreign", "residual")


def equation(r):
    assert r["used"] == sum(r[t] for t in TERMS), r
    return r


@needs_root
def test_reconcile_names_every_byte(admin, actors):
    assert equation(admin.json("reconcile"))["holders"] == []
    actor, other = actors(admin, "s", "-"), actors(admin, "t", "-")
    actor("put", "kept", 1 << 20, "-")
    actor("put", "ghost", 2 << 20, "-")
    other("adopt", "ghost", actor("handoff", "ghost", 60000))
    actor("get", "ghost")
    other("get", "ghost")
    actor("create", "inflight", 3 << 20)
    actor("delete", "ghost")
    other("delete", "ghost")
    (Path(admin.path) / "foreign").write_bytes(bytes(4 << 20))
    r = equation(admin.json("reconcile"))
    assert r["residual"] == 0
    assert r["foreign"] == 4 << 20
    assert 2 << 20 <= r["ghosts"] <= (2 << 20) + 2 * PAGE
    assert 3 << 20 <= r["inflight"] <= (3 << 20) + 2 * PAGE
    holders = {h["pid"]: h for h in r["holders"]}
    assert set(holders) == {actor.pid, other.pid}
    assert holders[other.pid]["command"] == holders[actor.pid]["command"] == "admin-actor"
    assert holders[other.pid]["bytes"] == r["ghosts"] and holders[other.pid]["objects"] == 1
    assert holders[actor.pid]["bytes"] == r["ghosts"] + r["inflight"] and holders[actor.pid]["objects"] == 2
    ghosts = {g["kind"]: g for g in r["ghost_list"]}
    assert ghosts["ghost"]["key"] == "ghost" and ghosts["ghost"]["bytes"] == r["ghosts"]
    assert {h["pid"] for h in ghosts["ghost"]["holders"]} == {actor.pid, other.pid}
    assert all(h["mapped"] > 0 for h in ghosts["ghost"]["holders"])
    assert [h["pid"] for h in ghosts["inflight"]["holders"]] == [actor.pid]
    text = admin("reconcile").out
    assert re.search(rf"^ghost .* {actor.pid} admin-actor .* ghost$", text, re.M)
    assert "every byte is accounted for" in text
    actor.kill()
    r = equation(admin.json("reconcile"))
    assert r["residual"] == 0 and r["inflight"] == 0
    assert [h["pid"] for h in r["holders"]] == [other.pid]
    other("drop")
    r = equation(admin.json("reconcile"))
    assert (r["ghosts"], r["holders"]) == (0, [])


@needs_root
def test_reconcile_counts_the_pool(admin, actors):
    actor = actors(admin, "s", "r")
    actor("put", "k", 1 << 20, "-")
    actor("delete", "k")
    r = equation(admin.json("reconcile"))
    assert 1 << 20 <= r["pool"] <= (1 << 20) + 2 * PAGE
    assert r["residual"] == 0
    assert admin.json("du")["stores"][0]["pool"] == r["pool"]


@needs_root
def test_reconcile_fails_where_bytes_are_missing(bare, actors):
    """A process of root holds a ghost in a user's partition: the user cannot see who."""
    bare.chmod(0o755)
    Admin(bare / "p")("init", "--owner", NOBODY, code=1)  # not in root's directory
    os.chown(bare, NOBODY, NOBODY)
    a = Admin(bare)
    a("init", "--owner", NOBODY)
    user = a.as_nobody()
    actor = actors(a, "s", "-", prefix=user.prefix)
    actor("put", "k", 1 << 20, "-")
    file, = (bare / "stores" / "s" / "objects").iterdir()
    with open(file, "rb"):
        actor("delete", "k")
        r = user("--json", "reconcile", code=1)
        assert equation(r.json)["residual"] >= 1 << 20
        assert "bytes are not accounted for" in r.err and "as root" in r.err
        mine = equation(a.json("reconcile"))
        assert mine["residual"] == 0 and [h["pid"] for h in mine["holders"]] == [os.getpid()]
    assert equation(user.json("reconcile"))["residual"] == 0


# ---- gc, verify -----------------------------------------------------------------------------------------------------------


def test_gc_plans_and_removes(admin, actors):
    dead, kept, alive = actors(admin, "dead", "-"), actors(admin, "kept", "k"), actors(admin, "alive", "-")
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
    assert {s["name"] for s in admin.json("du")["stores"]} == {"dead", "kept", "alive"}  # nothing happened yet
    assert re.search(r"^store +1\.0\d MiB", admin("gc", "-n").out, re.M)
    done = admin.json("gc")
    assert done["freed"] == plan["freed"]
    assert [x["what"] for x in done["actions"]].count("store") == 1
    assert {s["name"] for s in admin.json("du")["stores"]} == {"kept", "alive"}
    assert admin("cat", "kept", "k").raw == admin("cat", "alive", "k").raw == pattern(1 << 20)
    again = admin.json("gc")
    assert again["freed"] == 0 and not [x for x in again["actions"] if x["what"] != "kept"]
    assert "no garbage" in admin("gc").out


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
    while not (found := [x for x in admin.json("gc", "--dry-run")["actions"] if x["what"] == "lease"]):
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


# ---- people ------------------------------------------------------------------------------------------------------------------


def test_progress_of_long_work(admin, actors, terminal):
    """A verify that takes more than two seconds says so, on standard error, and cleans up behind itself."""
    # The program waits for the lock of standard output's reader, not for work: a full pipe holds it as long as we like.
    actor = actors(admin, "s", "-")
    for i in range(256):
        actor("put", f"key-{i}-" + "x" * 200, 10, "-")
    r, w = os.pipe()
    os.set_blocking(w, False)
    try:
        while True:
            os.write(w, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(w, True)
    with subprocess.Popen([ADMIN, "-p", admin.path, "--json", "ls"], stdout=w, stderr=subprocess.PIPE,
                          env=environment()) as p:
        os.close(w)
        line = p.stderr.readline()
        assert re.fullmatch(rb"shmstore-admin: ls: [2-9] s, \d+ objects, [0-9.]+ [KM]iB\n", line), line
        drained = b"".join(iter(lambda: os.read(r, 65536), b""))
        assert p.wait() == 0
    os.close(r)
    assert len(json.loads(drained.lstrip(b"x"))["objects"]) == 256


def test_colours_only_on_a_terminal(admin, actors, terminal):
    actors(admin, "s", "-")
    assert "\033[" not in admin("du").out
    assert b"\033[" in terminal("-p", admin.path, "du").read_until(None)
    for quiet in (terminal("-p", admin.path, "du", env={"NO_COLOR": "1"}), terminal("-p", admin.path, "du", "--no-color"),
                  terminal("-p", admin.path, "du", env={"TERM": "dumb"})):
        assert b"\033[" not in quiet.read_until(None)


def test_json_is_indented_on_a_terminal(admin, terminal):
    seen = terminal("-p", admin.path, "--json", "df").read_until(None)
    assert seen.count(b"\n") > 5
    assert json.loads(seen)["partition"] == admin.path
    assert admin("--json", "df").out.count("\n") == 1


def test_names_cannot_steer_a_terminal(admin, actors):
    evil = "\033]0;owned\007"
    actor = actors(admin, "s" + evil, "-")
    actor("put", "k" + evil, 10, "-")
    for command in (["du"], ["ls"], ["stat", "s" + evil, r"k\x1b]0;owned\x07"], ["cat", "s" + evil, "none"],
                    ["top", "-n1", "-d0.05"], ["gc"]):
        r = admin(*command, code=None)
        assert "\033" not in r.out + r.err and "\007" not in r.out + r.err, command
        if command[0] != "gc":
            assert r"\x1b]0;owned\x07" in r.out + r.err, command


# ---- top ------------------------------------------------------------------------------------------------------------------------


def test_top_json(admin, actors):
    actor = actors(admin, "s", "-")
    stop = threading.Event()

    def work():
        i = 0
        while not stop.is_set():
            actor("put", f"k{i}", 4096, "-")
            actor("delete", f"k{i}")
            i += 1
            stop.wait(0.001)

    actor("put", "kept", 1 << 20, "-")
    thread = threading.Thread(target=work)
    thread.start()
    try:
        r = admin("--json", "top", "--iterations", "3", "--interval", "0.3")
    finally:
        stop.set()
        thread.join()
    samples = [json.loads(line) for line in r.out.splitlines()]
    assert len(samples) == 3
    for s in samples:
        store, = s["stores"]
        assert (store["name"], store["pid"], store["alive"]) == ("s", actor.pid, True)
        assert store["linked"] >= 1 << 20 and s["used"] >= 1 << 20 and s["size"] > 0
        assert store["put_per_s"] > 1 and s["put_per_s"] == store["put_per_s"] and s["delete_per_s"] > 1
        assert s["put_bytes_per_s"] > 4096
    assert samples[2]["time"] - samples[0]["time"] == pytest.approx(0.6, abs=0.3)


def test_top_shows_rates_not_totals(admin, actors):
    actor = actors(admin, "s", "-")
    actor("fill", "k", 1000, 10)
    s = json.loads(admin("--json", "top", "-n", "1", "-d", "0.1").out)
    assert s["objects"] == 1000 and s["put_per_s"] == 0 and s["stores"][0]["put_per_s"] == 0


def test_top_without_a_terminal(admin, actors):
    actor = actors(admin, "s", "-")
    actor("put", "k", 1 << 20, "-")
    r = admin("top", "-n", "2", "-d", "0.1")
    assert "\033" not in r.out
    assert len(re.findall(rf"^s +{actor.pid} alive +1 ", r.out, re.M)) == 2
    assert r.out.count(" available\n") == 2


@pytest.mark.parametrize("how", ["q", "interrupt", "terminate"])
def test_top_gives_the_terminal_back(admin, terminal, how):
    t = terminal("-p", admin.path, "top", "-d", "0.1")
    t.read_until(b"no stores")
    assert b"\033[?1049h" in t.seen and b"\033[?25l" in t.seen
    assert t.settings() != t.before  # keys come at once, without echo
    if how == "q":
        t.type(b"q")
    elif how == "interrupt":
        t.type(b"\x03")
    else:
        t.process.send_signal(signal.SIGTERM)
    t.read_until(None)
    assert t.seen.rstrip().endswith(b"\033[?7h\033[?25h\033[?1049l")
    assert t.settings() == t.before
    assert t.process.wait() == (-signal.SIGTERM if how == "terminate" else 0)


def test_top_is_stopped_and_goes_on(admin, terminal):
    t = terminal("-p", admin.path, "top", "-d", "0.1")
    t.read_until(b"no stores")
    t.type(b"\x1a")
    t.read_until(b"\033[?1049l")
    deadline = time.monotonic() + 10
    while Path(f"/proc/{t.process.pid}/stat").read_text().split()[2] != "T":
        assert time.monotonic() < deadline
    assert t.settings() == t.before
    t.seen = b""
    t.process.send_signal(signal.SIGCONT)
    t.read_until(b"\033[?1049h")
    t.read_until(b"no stores")
    t.type(b"q")
    t.read_until(None)
    assert t.process.wait() == 0


def test_top_sorts(admin, actors, terminal):
    small, big = actors(admin, "a-small", "-"), actors(admin, "z-big", "-")
    small("put", "k", 1 << 20, "-")
    big("put", "k", 4 << 20, "-")

    def order(*args):
        return re.findall(r"^(\S+) +\d+ alive", admin("top", "-n1", "-d0.05", *args).out, re.M)

    assert order() == order("--sort", "linked") == ["z-big", "a-small"]
    assert order("--sort", "name") == ["a-small", "z-big"]


def test_digest_of_a_large_object(admin, tmp_path):
    """Through pipes and files, in pieces: nothing is lost at the seams."""
    data = os.urandom(20 << 20)
    source = tmp_path / "in"
    source.write_bytes(data)
    with subprocess.Popen(["cat", source], stdout=subprocess.PIPE) as p:
        subprocess.run([ADMIN, "-p", admin.path, "put", "s", "k"], stdin=p.stdout, check=True, env=environment(), timeout=60)
    assert hashlib.sha256(admin("cat", "s", "k").raw).digest() == hashlib.sha256(data).digest()
