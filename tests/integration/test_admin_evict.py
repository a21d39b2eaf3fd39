# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin evict: how far, of whom, in what order, with others at it,
and ended in the middle."""
import fcntl
import json
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from admin_support import (ADMIN, Admin, actors, admin, bare, environment,  # noqa: F401
                           mount_tmpfs, needs_root, pattern, unmount)
from admin_tiered import MIB, books_close, disk, tiered, where  # noqa: F401


@needs_root
@pytest.mark.parametrize("threads", [0, 2])
def test_evict_to(tiered, actors, threads):
    actor = actors(tiered, "s", "-")
    actor("put", "pinned", 2 * MIB, "p")
    for i in range(40):
        actor("noise", f"k{i}", MIB)
    r = tiered.json("evict", "--to", "16M", "--threads", threads)
    assert r["done"] is True and r["error"] is None and r["disk_full"] is False
    assert r["used"] <= 16 * MIB < r["used_before"] and r["size"] == 64 * MIB
    assert r["objects"] >= 24 and r["freed"] >= r["used_before"] - 16 * MIB and r["held"] == 0
    assert r["original"] >= 24 * MIB and r["written"] >= r["original"] and r["ratio"] <= 1
    # Seconds are told to the millisecond.
    assert r["original"] / (r["seconds"] + 0.0006) <= r["original_per_s"] <= r["original"] / max(
        r["seconds"] - 0.0006, 1e-9)
    now = where(tiered)
    assert now["pinned"] == "pinned" and list(now.values()).count("tier") == r["objects"]
    books_close(tiered)
    for i in range(40):
        actor("check", f"k{i}")
    r = tiered.json("evict", "--to", "16M", "--threads", threads)
    assert r["clean"] >= 24 and r["written"] == r["original"] == 0  # all of them were there before
    assert "nothing was moved" in tiered("evict", "--to", "50%").out
    books_close(tiered)


@needs_root
def test_evict_free_and_watermarks(tiered, actors):
    actor = actors(tiered, "s", "-")
    for i in range(40):
        actor("put", f"k{i}", MIB, "-")
    assert tiered.json("evict", "--watermarks")["objects"] == 0  # 62 %
    r = tiered.json("evict", "--free", "5M")
    assert 5 * MIB <= r["freed"] and r["objects"] < 40 and r["ratio"] > 2
    text = tiered("evict", "--free", "5M").out
    assert (re.search(r"^\d+ objects demoted: ", text) and
            re.search(r" written for .* in [0-9.]+ s, ", text))
    tiered("tier", "--high", "40", "--low", "20")
    r = tiered.json("evict", "--watermarks", "--background")
    assert r["used"] <= 64 * MIB * 20 // 100
    books_close(tiered)


@needs_root
def test_evict_what_is_mapped_comes_last(tiered, actors):
    actor, other = actors(tiered, "s", "-"), actors(tiered, "t", "-")
    for i in range(8):
        actor("noise", f"k{i}", 2 * MIB)
    actor("get", "k0")
    other("noise", "l", 100)
    r = tiered.json("evict", "--free", "8M")
    assert where(tiered)["k0"] == "memory" and r["held"] == 0
    r = tiered.json("evict", "--to", "0", code=1)  # the stores' own pages stay, and what is mapped
    assert r["done"] is False and r["held"] >= 2 * MIB
    assert set(where(tiered).values()) == {"tier"}
    books_close(tiered)
    actor("drop")
    for i in range(8):
        actor("check", f"k{i}")


@needs_root
def test_evict_more_than_there_is(tiered, actors):
    actor = actors(tiered, "s", "-")
    actor("put", "k", MIB, "p")
    r = tiered("evict", "--to", "0", code=1)
    assert "other files" not in r.err
    assert "pinned" in r.err and where(tiered) == {"k": "pinned"}
    assert tiered.json("evict", "--free", "1G", code=1)["done"] is False


@needs_root
def test_files_of_others_cannot_be_evicted(bare, disk, actors):
    """A partition that is a directory of /dev/shm, as a new user's is, which is over
    half full of other things."""
    (bare / "partition").mkdir(mode=0o700)
    admin = Admin(bare / "partition")
    admin("init")
    admin("tier", "--set", disk)
    with open(bare / "others", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 40 * MIB)
    actor = actors(admin, "s", "-")
    actor("noise", "k", 2 * MIB)
    assert "nothing was moved" in admin("evict", "--watermarks").out
    r = admin("evict", "--to", "50%", code=1)
    assert "1 object demoted" in r.out and "holds other files, too" in r.err and "--free" in r.err
    actor("check", "k")
    admin("evict", "--free", "1M")
    assert where(admin) == {"k": "tier"}


@needs_root
def test_a_full_tier_says_so(tiered, actors):
    actor = actors(tiered, "s", "-")
    for i in range(16):
        actor("noise", f"k{i}", MIB)
    tiered("tier", "--max", "4M")
    r = tiered.json("evict", "--to", "0", code=1)
    assert r["disk_full"] is True and r["done"] is False and "disk full" in r["error"]
    assert tiered.json("tier")["tier"]["used"] <= 4 * MIB
    stayed = [key for key, place in where(tiered).items() if place == "memory"]
    r = tiered("demote", "s", stayed[0], code=1)
    assert "disk full" in r.err and "tier --max SIZE" in r.err
    for i in range(16):
        actor("check", f"k{i}")
    books_close(tiered)
    found = {f["check"]: f for f in tiered.json("doctor", code=None)["findings"]}
    assert (found["tier-space"]["level"] in ("warn", "fail") and
            "tier --max" in found["tier-space"]["fix"])


@needs_root
def test_one_users_objects(disk):
    d = Path(tempfile.mkdtemp(prefix="shmstore-admin-"))
    made = []
    try:
        mount_tmpfs(d, "size=64m,mode=0755")
        a = Admin(d / "p")
        a("init", "--shared")
        disk.chmod(0o1777)
        a("tier", "--set", disk)
        from admin_support import Actor
        nobody = a.as_nobody()
        made = [Actor(a.path), Actor(a.path, nobody.prefix)]
        for actor, store in zip(made, ("roots", "nobodys")):
            actor("open", store, "-")
            for i in range(4):
                actor("noise", f"{store}{i}", 2 * MIB)
        a.json("evict", "--free", "4M", "--user", "nobody")
        now = where(a)
        assert "tier" not in {place for key, place in now.items() if key.startswith("roots")}
        assert list(now.values()).count("tier") >= 2
        for i in range(4):
            made[1]("check", f"nobodys{i}")
        r = nobody.json("evict", "--to", "0", code=None)  # his own, whatever it says
        assert r["objects"] >= 2
        now = where(a)
        assert {place for key, place in now.items() if key.startswith("roots")} == {"memory"}
        assert {place for key, place in now.items() if key.startswith("nobodys")} == {"tier"}
        assert "belongs to another user" in nobody("demote", "roots", "roots0", code=1).err
        assert a.json("demote", "nobodys", "--all")["failed"] == 0
        for i in range(4):
            made[1]("check", f"nobodys{i}")
        books_close(a)
    finally:
        for actor in made:
            actor.kill()
        unmount(d)
        d.rmdir()


class Waiting:
    """An eviction that waits for another one, which is ours: for as long as we like. Entered when
    it says that it is at work."""

    def __init__(self, admin):
        self.lock = os.open(Path(admin.path) / "tier" / str(os.geteuid()) / "lock",
                            os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.process = subprocess.Popen([ADMIN, "-p", admin.path, "--json", "evict", "--free",
                                         "1M"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=environment(),
                                        preexec_fn=lambda: signal.signal(
                                            signal.SIGINT, signal.SIG_DFL))

    def __enter__(self):
        self.said = self.process.stderr.readline().decode()
        return self

    def release(self):
        os.close(self.lock)
        self.lock = -1

    def __exit__(self, *args):
        if self.lock >= 0:
            self.release()
        if self.process.poll() is None:
            self.process.kill()
        self.out, self.err = (stream.decode() for stream in self.process.communicate(timeout=60))


def test_evictions_take_turns_and_say_that_they_go_on(tiered, actors):
    actor = actors(tiered, "s", "-")
    for i in range(3):
        actor("noise", f"k{i}", MIB)
    tiered("demote", "s", "k0")
    with Waiting(tiered) as waiting:
        assert re.fullmatch(r"shmstore-admin: evict: [2-9] s\n", waiting.said)
        assert list(where(tiered).values()).count("tier") == 1
        waiting.release()
        assert waiting.process.wait(60) == 0
    assert json.loads(waiting.out)["objects"] == 1
    assert list(where(tiered).values()).count("tier") == 2


def test_an_interrupted_eviction_ends(tiered, actors):
    actor = actors(tiered, "s", "-")
    actor("noise", "k", MIB)
    tiered("demote", "s", "k")
    tiered("promote", "s", "k")
    with Waiting(tiered) as waiting:
        waiting.process.send_signal(signal.SIGINT)
        assert waiting.process.wait(60) == -signal.SIGINT
    assert "interrupted; what was demoted stays so" in waiting.err
    assert json.loads(waiting.out)["done"] is False
    assert where(tiered) == {"k": "memory"}
    books_close(tiered)


@needs_root
def test_a_put_makes_room(tiered, actors, tmp_path):
    """A full partition with a tier is none."""
    actor = actors(tiered, "s", "-")
    for i in range(40):
        actor("noise", f"k{i}", MIB)
    big = tmp_path / "big"
    big.write_bytes(pattern(40 * MIB))
    tiered("put", "t", "big", big)
    tiered("put", "--pin", "t", "pinned", stdin=b"x" * 100000)
    now = where(tiered)
    assert now["pinned"] == "pinned" and list(now.values()).count("tier") >= 15
    assert tiered("cat", "t", "big").raw == pattern(40 * MIB)
    for i in range(40):
        actor("check", f"k{i}")
    books_close(tiered)
