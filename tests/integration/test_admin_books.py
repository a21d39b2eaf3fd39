# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin: df, du, ls, stat, reconcile: what is there, to the byte."""
import os
import re
from pathlib import Path

from admin_support import NOBODY, Admin, actors, admin, bare, needs_root, pattern  # noqa: F401

PAGE = os.sysconf("SC_PAGE_SIZE")


# ---- df, du, ls, stat ----------------------------------------------------------------------------


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


def test_packed_objects(admin, actors):
    actor, other = actors(admin, "s", "m"), actors(admin, "t", "m")
    for i in range(20):
        actor("put", f"k{i}", 1024, "-")
    actor("put", "large", 300000, "-")
    other("adopt", "k7", actor("handoff", "k7", 60000))
    objects = {o["key"]: o for o in admin.json("ls", "s")["objects"]}
    assert {k for k, o in objects.items() if o["packed"]} == {f"k{i}" for i in range(20)}
    segment, = (Path(admin.path) / "stores" / "s" / "segments").iterdir()
    o = objects["k7"]
    assert o["inode"] == objects["k1"]["inode"] == segment.stat().st_ino
    assert (o["links"] == 2 and o["mtime"] is None and o["buffer_size"] == 1024 and
            1024 <= o["blocks"] <= 1536)
    assert objects["large"]["mtime"] > 0 and not objects["large"]["pinned"]
    words = next(line for line in admin("ls", "s").out.splitlines() if "k7" in line).split()
    assert "packed" in words and words[-2] == "-"
    s = admin.json("stat", "s", "k7")
    assert (s["packed"] and {(n["store"], n["key"]) for n in s["names"]} == {
        ("s", "k7"), ("t", "k7")} and s["leases"] == 0)
    assert ("in memory, in a segment" in admin("stat", "s", "k7").out and
            "written" not in admin("stat", "s", "k7").out)
    # Each object in both stores' books; the memory once; what the segment has besides, and the
    # index, are its owner's pool.
    index = {store: (Path(admin.path) / "stores" / store / "index").stat().st_blocks * 512
             for store in "st"}
    du = admin.json("du")
    stores = {store["name"]: store for store in du["stores"]}
    packed = sum(o["blocks"] for o in objects.values() if o["packed"])
    assert stores["s"]["objects"] == 21 and stores["t"]["objects"] == 1
    assert (stores["s"]["linked"] == packed + objects["large"]["blocks"] and
            stores["t"]["linked"] == o["blocks"])
    assert stores["t"]["uss"] == 0 and stores["t"]["pss"] == o["blocks"] // 2
    assert stores["s"]["pool"] == segment.stat().st_blocks * 512 + index["s"] - packed
    assert stores["t"]["pool"] == index["t"]
    assert admin.json("reconcile")["residual"] == 0
    assert admin("cat", "t", "k7").raw == pattern(1024)
    # Free bytes beside an object in its pages are stranded, and the figure is the same
    # everywhere: a part of the pool.
    for i in range(20):
        if i != 7:
            actor("delete", f"k{i}")
    du, books = admin.json("du"), equation(admin.json("reconcile"))
    figures = {du["total_stranded"], {store["name"]: store for store in du["stores"]}[
        "s"]["stranded"], books["stranded"], admin.json("df")["stranded"]}
    assert len(figures) == 1 and (figures.pop() + o["blocks"]) % PAGE == 0
    assert 0 < books["stranded"] < 2 * PAGE <= books["pool"] and books["residual"] == 0
    assert ("of it in pages that packed objects have the rest of" in admin("reconcile").out and
            "STRANDED" in admin("du").out)


@needs_root
def test_packed_objects_beside_a_file_of_another_user(admin, actors):
    actors(admin, "s", "m")("put", "k", 1024, "-")
    segment, = (Path(admin.path) / "stores" / "s" / "segments").iterdir()
    other = segment.with_name("0123456789abcdef" * 2)
    other.write_bytes(segment.read_bytes())
    os.chown(other, 54321, 54321)
    r = admin("ls", "s", code=1)
    assert re.search(rf"segments/{other.name} +unreadable", r.out) and re.search(r"\bk +\d", r.out)
    assert "1 files cannot be read" in r.err and "damaged" not in r.out + r.err
    listed = {o["name"]: o["error"] for o in admin("--json", "ls", "s", code=1).json["objects"]}
    assert listed[f"segments/{other.name}"] and listed["k"] is None


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
    for member in ("header_size", "buffer_size", "inode", "links", "key", "store", "blocks",
                   "name"):
        assert s[member] == listed[member]
    data = (Path(admin.path) / "stores" / "s" / "objects" / s["name"]).read_bytes()
    first, second = s["buffers"]
    assert (first["size"], second["size"]) == (100000, 300)
    assert data[first["offset"]:][:100000] == pattern(100000)
    assert data[second["offset"]:] == pattern(300) and second["offset"] >= first["offset"] + 100000
    assert s["metadata_size"] == 10 and s["checksum"] is False and s["error"] is None
    assert {(n["store"], n["key"], n["pid"]) for n in s["names"]} == {("s", "k", actor.pid), (
        "t", "copy", other.pid)}
    assert s["links"] == 3 and s["leases"] == 1
    assert re.fullmatch("[0-9a-f]{16}", s["generation"])
    text = admin("stat", "s", "k").out
    assert (f"inode       {s['inode']}\n" in text and
            re.search(rf"^t +{other.pid} copy$", text, re.M))
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
    assert [line.split()[0] for line in admin("du").out.splitlines()] == [
        "STORE", "a", "m", "z", "total"]


# ---- reconcile -----------------------------------------------------------------------------------

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
    assert (holders[actor.pid]["bytes"] == r["ghosts"] + r["inflight"] and
            holders[actor.pid]["objects"] == 2)
    ghosts = {g["kind"]: g for g in r["ghost_list"]}
    assert ghosts["ghost"]["key"] == "ghost" and ghosts["ghost"]["bytes"] == r["ghosts"]
    assert {h["pid"] for h in ghosts["ghost"]["holders"]} == {actor.pid, other.pid}
    assert all(h["mapped"] > 0 for h in ghosts["ghost"]["holders"])
    assert [h["pid"] for h in ghosts["inflight"]["holders"]] == [actor.pid]
    text = admin("reconcile").out
    # One line for each holder, by pid: the first one has the ghost's name as well.
    first, second = sorted((actor.pid, other.pid))
    assert re.search(rf"^ghost .* {first} admin-actor .* ghost\n +{second} admin-actor .* ghost$",
                     text, re.M), text
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
        assert ("bytes are not accounted for" in r.err and
                f"as root: sudo shmstore-admin -p {a.path} reconcile" in r.err)
        mine = equation(a.json("reconcile"))
        assert mine["residual"] == 0 and [h["pid"] for h in mine["holders"]] == [os.getpid()]
    assert equation(user.json("reconcile"))["residual"] == 0
