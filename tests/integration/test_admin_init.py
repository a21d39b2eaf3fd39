# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin: making partitions and mounts, and whose they are."""
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from admin_support import (ADMIN, NOBODY, ROOT, Admin, admin, bare, environment,  # noqa: F401
                           needs_root, unmount)


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
    if subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True,
                      check=True).stdout.strip() == b"tmpfs":
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
    assert (findings["partition"]["level"] == "fail" and
            "format version" in findings["partition"]["found"])
    assert marker.read_bytes() == new


def test_init_missing_parent(bare):
    r = Admin(bare / "a" / "b")("init", code=1)
    assert (f"cannot be made: {bare}/a: No such file or directory" in r.err and
            f"mkdir -p {bare}/a\n" in r.err)


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
    options = subprocess.run(["findmnt", "-no", "OPTIONS", mountable], capture_output=True,
                             check=True).stdout.decode()
    assert "nosuid" in options and "nodev" in options


@needs_root
def test_init_with_a_numa_policy(mountable):
    a = Admin(mountable)
    a("init", "--size", "32M", "--mpol", "interleave:0")

    def shown():
        found = {f["check"]: f for f in a("--json", "doctor", code=None).json["findings"]}["mpol"]
        return found["level"], found["found"]

    assert shown() == ("ok", "mpol=interleave:0")
    a("init", "--mpol", "bind:0", "--huge", "never")
    assert shown() == ("ok", "mpol=bind:0")
    a("init", "--mpol", "local")
    assert shown() == ("ok", "mpol=local")
    assert "the kernel refuses" in a("init", "--mpol", "nonsense", code=1).err


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
    assert (f"is a partition already, on the file system mounted at "
            f"{bare if ROOT else '/dev/shm'}: a mount would hide it" in r.err)


def test_commands_in_messages_can_be_run(bare):
    """Pasted into a shell, the hint does what it says, whatever the path is."""
    d = bare / "a b'c $(touch x)"
    r = Admin(d)("df", code=1)
    hint = re.search(r"^  to make a partition there: (.*)$", r.err, re.M).group(1)
    subprocess.run(hint, shell=True, check=True, cwd=bare,
                   env=environment(PATH=f"{ADMIN.parent}:{os.environ['PATH']}"))
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
    assert (f"sudo shmstore-admin -p {bare} init --size {32 << 20} --huge never --owner {NOBODY}" in
            r.err)


@needs_root
def test_another_users_partition(admin):
    r = admin.as_nobody()("df", code=1)
    assert "belongs to user 0" in r.err and f"you are user {NOBODY}" in r.err
