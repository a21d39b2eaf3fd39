# SPDX-License-Identifier: Apache-2.0
"""A partition of a Unix group, made without root: what its members may do with each other's stores,
and what nobody may (docs/security.md)."""
import contextlib
import errno
import os
import stat
import subprocess

import pytest
from daemon import ADMIN
from fixture import Place, Tool
from users import ALICE, BOB, EVE, being
from userscene import denied

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

GROUP = 60100
SIZE = 3 << 20
PACKED = 5000
LONG = "k" * 400  # a hashed name, with a sidecar
# A strict umask: the members' access must not depend on the umask that they work under.
UMASK = ["sh", "-c", 'umask 077; exec "$0" "$@"']


class Scene:
    def __init__(self):
        self.place = Place(size="256m")
        self.path = self.place.path
        self.tools = []
        os.mkdir(self.path)
        os.chown(self.path, ALICE, ALICE)

    def run(self, uid, *args):
        command = [*self.prefix(uid), str(ADMIN), "-p", self.path, *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    @staticmethod
    def prefix(uid):
        groups = ["--clear-groups"] if uid == EVE else [f"--groups={GROUP}"]
        return ["setpriv", f"--reuid={uid}", f"--regid={uid}", *groups, *UMASK]

    def tool(self, uid, store, *options):
        tool = Tool(self.path, self.prefix(uid))
        self.tools.append(tool)
        if store:
            tool("open", store, *options)
        return tool

    def reader(self, uid, store):
        return self.tool(uid, store, "readonly", "anyuser")

    def stop(self):
        for tool in self.tools:
            with contextlib.suppress(OSError):
                tool.process.kill()
                tool.finish()
        self.place.remove()


def make(scene):
    """As docs/security.md says, by a member who is not root."""
    assert scene.run(ALICE, "init").returncode == 0
    with being(ALICE, [GROUP]):
        for part, mode in ((".shmstore", 0o440), ("stores", 0o3770), ("peers", 0o3770),
                           ("", 0o3770)):
            path = os.path.join(scene.path, part)
            os.chown(path, -1, GROUP)
            os.chmod(path, mode)


@pytest.fixture
def scene():
    scene = Scene()
    try:
        make(scene)
        yield scene
    finally:
        scene.stop()


def mode(*path):
    return stat.S_IMODE(os.lstat(os.path.join(*path)).st_mode)


def fill(alice):
    alice("put", "file", SIZE, 1)
    alice("put", "pinned", SIZE, 2, "pin")
    alice("put", LONG, SIZE, 3)
    alice("put", "packed", PACKED, 4)
    alice("create", "written", SIZE, 5)
    alice("seal")


def read_all(tool):
    assert tool.same("file", SIZE, 1) and tool.same("pinned", SIZE, 2) and tool.same(LONG, SIZE, 3)
    assert tool.same("packed", PACKED, 4) and tool.same("written", SIZE, 5)


def test_modes(scene):
    alice = scene.tool(ALICE, "a")
    fill(alice)
    store = f"{scene.path}/stores/a"
    for part in ("", "stores", "peers"):
        assert mode(scene.path, part) == 0o3770
    assert mode(scene.path, ".shmstore") == 0o440
    for part in ("", "objects", "segments", "recycle", "handoff"):
        assert mode(store, part) == 0o2750
    assert mode(store, ".store") == 0o640 and mode(store, "index") == 0o600
    for name in os.listdir(f"{store}/objects"):
        assert mode(store, "objects", name) == (0o1440 if name == "pinned" else 0o440)
    assert [mode(store, "segments", name) for name in os.listdir(f"{store}/segments")] == [0o640]
    for directory, directories, files in os.walk(scene.path):
        assert {os.lstat(os.path.join(directory, name)).st_gid
                for name in (*directories, *files)} <= {GROUP}
    alice("unpin", "pinned")
    assert mode(store, "objects", "pinned") == 0o440


def test_a_member_reads(scene):
    alice = scene.tool(ALICE, "a")
    fill(alice)
    bob = scene.reader(BOB, "a")
    read_all(bob)
    assert bob.list() == sorted(("file", "pinned", LONG, "packed", "written"))
    # A reader that does not name another user has no access to other users' stores.
    assert scene.tool(BOB, None).code("open", "a", "readonly") == errno.EPERM
    # An object that a member looks at stays as it is, whatever becomes of its key, and an object
    # in memory that was used before is read, too.
    for key, seed, size in (("file", 1, SIZE), ("packed", 4, PACKED)):
        bob("hold", f"v{seed}", key)
        alice("delete", key)
        alice("put", key, size, seed + 10)
        assert bob("check", f"v{seed}", size, seed) == ["same"]
        assert bob.same(key, size, seed + 10)


def test_deleted_memory_comes_back(scene):
    alice = scene.tool(ALICE, "a", "pack=0")
    alice("put", "x", SIZE, 1)
    path = f"{scene.path}/stores/a/objects/x"
    inode = os.stat(path).st_ino
    alice("delete", "x")
    alice("put", "x", SIZE, 2)
    assert os.stat(path).st_ino == inode and mode(path) == 0o440
    assert scene.reader(BOB, "a").same("x", SIZE, 2)


def test_a_member_changes_nothing(scene):
    alice = scene.tool(ALICE, "a")
    fill(alice)
    lease, = alice("handoff", "file", 60000)
    store = f"{scene.path}/stores/a"
    with being(BOB, [GROUP]):
        for part in ("", "objects", "segments", "recycle", "handoff"):
            denied(os.open, f"{store}/{part}/new", os.O_CREAT | os.O_WRONLY, 0o600)
        segment = os.listdir(f"{store}/segments")[0]
        for file in ("objects/file", f"segments/{segment}", ".store"):
            denied(os.open, f"{store}/{file}", os.O_RDWR)
            denied(os.unlink, f"{store}/{file}")
            denied(os.chmod, f"{store}/{file}", 0o666)
        denied(os.rename, store, f"{scene.path}/stores/b")
        denied(os.unlink, f"{scene.path}/.shmstore")
        denied(os.link, f"{store}/objects/file", f"{scene.path}/stores/file")
    bob = scene.tool(BOB, "b")
    assert bob.code("adopt", "k", lease) in (errno.EPERM, errno.EACCES)
    assert scene.tool(BOB, None).code("open", "a") == errno.EPERM
    read_all(alice)


def test_strangers_do_not_come_in(scene):
    fill(scene.tool(ALICE, "a"))
    with being(EVE, []):
        denied(os.listdir, scene.path)
        denied(os.open, f"{scene.path}/stores/a/objects/file", os.O_RDONLY)
    assert scene.run(EVE, "du").returncode != 0


def test_what_a_dead_member_left(scene):
    """Only its owner takes it apart; the others see it, and go on."""
    alice = scene.tool(ALICE, "a")
    fill(alice)
    bob = scene.reader(BOB, "a")
    bob("hold", "v", "file")
    alice.kill()
    swept = scene.run(BOB, "gc")
    assert "user" in swept.stdout and "Traceback" not in swept.stderr, swept
    assert bob("check", "v", SIZE, 1) == ["same"]
    mine = scene.tool(BOB, "b")
    mine("put", "k", SIZE, 9)
    assert os.path.isdir(f"{scene.path}/stores/a/objects")
    assert scene.run(ALICE, "gc").returncode == 0
    assert not os.path.exists(f"{scene.path}/stores/a")
    assert bob("check", "v", SIZE, 1) == ["same"] and mine.same("k", SIZE, 9)


def test_a_private_store_stays_private(scene):
    """Other partitions, one of mode 1777 with the setgid bit among them, and what was
    there before: 0700, 0400."""
    for path_mode, others in ((0o2700, 0), (0o3777, 0o7)):
        for part in ("stores", ""):
            os.chmod(os.path.join(scene.path, part), path_mode)
        name = f"p{others}"
        alice = scene.tool(ALICE, name)
        alice("put", "k", SIZE, 1)
        assert mode(scene.path, "stores", name) & 0o777 == 0o700
        assert mode(scene.path, "stores", name, "objects", "k") == 0o400
