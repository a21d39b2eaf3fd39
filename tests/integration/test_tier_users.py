# SPDX-License-Identifier: Apache-2.0
"""Users and the disk tier: each has a part of it that others cannot enter or prepare; root
moves everybody's objects, which stay theirs; what another user was handed is never moved to
where he cannot read it."""
import itertools
import os
import stat
import subprocess
import tempfile
from errno import EBADMSG, EEXIST, ENOENT, ENOSPC, EPERM

import pytest
from daemon import ADMIN
from fixture import ROOT, Cluster, Place, clusters
from tiered import Disk, Tiered, where
from users import ALICE, BOB, EVE, being

MB = 1 << 20

pytestmark = pytest.mark.skipif(not ROOT, reason="only root can be several users")


class Users(Tiered):
    def __init__(self):
        Cluster.__init__(self, Place(size="256m"))
        self.disk = Disk()
        self.socket = "/nonexistent/shmstored"
        subprocess.run([ADMIN, "-p", self.place.path, "init", "--shared"], check=True,
                       capture_output=True)
        os.chmod(self.disk.path, 0o755)
        self.tool()("tier", self.disk.path)

    def user(self, uid, store=None, *options):
        return self.tool(store, *options, prefix=["setpriv", f"--reuid={uid}", f"--regid={uid}",
                                                  "--clear-groups",
                                                  "env", f"SHMSTORE_SOCKET={self.socket}"])

    @property
    def uuid(self):
        with open(os.path.join(self.place.path, ".shmstore"), encoding="ascii") as file:
            return file.read().split("\n")[1].split()[1]


@pytest.fixture
def users():
    with clusters(Users) as make:
        yield make()


def test_each_user_has_a_part_of_the_tier_that_others_cannot_enter(users):
    tools = {uid: users.user(uid, f"u{uid}") for uid in (ALICE, BOB, EVE)}
    for uid, tool in tools.items():
        tool("put", "k", MB, uid)
        tool("demote", "k")
        assert [os.stat(path).st_uid for path in users.disk.files(uid)] == [uid]
        for below in (users.disk.path + "/" + users.uuid, users.place.path + "/tier"):
            found = os.stat(os.path.join(below, str(uid)))
            assert found.st_uid == uid and stat.S_IMODE(found.st_mode) == 0o700
    path, = users.disk.files(ALICE)
    with being(EVE), pytest.raises(PermissionError):
        open(path, "rb")
    with being(EVE), pytest.raises(PermissionError):
        os.unlink(path)
    for uid, tool in tools.items():
        assert tool.same("k", MB, uid)


def test_root_moves_a_users_objects_and_they_stay_the_users(users):
    alice = users.user(ALICE, "alice")
    root = users.tool("alice", "readonly")
    alice("put", "k", 2 * MB, 1)
    for _ in range(3):
        root("demote", "k")
        assert where([alice, root], "k") == ["tier", "tier"]
        assert [os.stat(path).st_uid for path in users.disk.files()] == [ALICE]
        root("promote", "k")
        assert alice.same("k", 2 * MB, 1)
        assert os.lstat(os.path.join(users.place.path, "stores/alice/objects/k")).st_uid == ALICE
    root("demote", "k")
    assert root.same("k", 2 * MB, 1)
    alice("put", "k", 2 * MB, 2, "replace")
    root("demote", "k")
    assert alice.same("k", 2 * MB, 2)
    alice("delete", "k")
    assert users.disk.files() == []


def test_eviction_is_of_ones_own_objects_and_roots_of_all(users):
    alice, bob = users.user(ALICE, "alice"), users.user(BOB, "bob")
    for tool, seed in ((alice, 1), (bob, 2)):
        for i in range(4):
            tool("put", f"k{i}", 2 * MB, seed)
    bob.code("evict", 200 * MB)
    assert [alice("locate", f"k{i}")[0] for i in range(4)] == ["memory"] * 4
    assert "tier" in [bob("locate", f"k{i}")[0] for i in range(4)]
    users.tool().code("evict", 200 * MB)
    assert [alice("locate", f"k{i}")[0] for i in range(4)] == ["tier"] * 4
    for tool, seed in ((alice, 1), (bob, 2)):
        assert all(tool.same(f"k{i}", 2 * MB, seed) for i in range(4))


def test_the_limit_is_that_of_all_users_together(users):
    users.tool()("tier", users.disk.path, f"max={5 * MB}", "level=0")
    alice, bob = users.user(ALICE, "alice"), users.user(BOB, "bob")
    for tool in (alice, bob):
        for i in range(3):
            tool("put", f"k{i}", MB, i)
    for i in range(3):
        alice("demote", f"k{i}")
    bob("demote", "k0")
    assert bob.code("demote", "k1") == ENOSPC  # he cannot see what of it is hers
    assert sum(os.stat(path).st_blocks * 512 for path in users.disk.files()) <= 5 * MB
    alice("delete", "k0")
    bob("demote", "k1")
    assert bob.code("demote", "k2") == ENOSPC
    with being(EVE), pytest.raises(PermissionError):
        os.utime(os.path.join(users.place.path, "tier", f"{ALICE}.used"))


def test_what_another_user_prepared_is_not_used(users):
    """EVE is first, and makes the directories that would be ALICE's."""
    traps = [os.path.join(users.place.path, "tier", str(ALICE)),
             os.path.join(users.disk.path, users.uuid, str(ALICE))]
    eve = users.user(EVE, "eve")
    eve("put", "k", MB, 1)
    eve("demote", "k")  # the directories for all are there now
    alice = users.user(ALICE, "alice")
    alice("put", "k", MB, 2)
    for trap, how in itertools.product(traps, ("directory", "link")):
        target = tempfile.mkdtemp(dir=users.disk.path)
        os.chown(target, EVE, EVE)
        os.chmod(target, 0o777)
        try:
            with being(EVE):
                try:
                    os.mkdir(trap, 0o777) if how == "directory" else os.symlink(target, trap)
                except PermissionError:
                    continue  # it cannot even be tried
            assert alice.code("demote", "k") in (EPERM, EEXIST, ENOENT), (trap, how)
            assert alice("locate", "k") == ["memory"] and os.listdir(target) == []
        finally:
            if os.path.islink(trap):
                os.unlink(trap)
            elif os.path.isdir(trap) and os.stat(trap).st_uid == EVE:
                os.rmdir(trap)
            os.rmdir(target)
    alice = users.user(ALICE, "alice2")
    alice("put", "k", MB, 3)
    alice("demote", "k")
    assert alice.same("k", MB, 3)


def test_forged_stub_leads_to_nothing_of_others(users):
    """EVE makes a stub in her own store that names ALICE's tier file; root and others who look
    there get an error, not the bytes."""
    alice, eve = users.user(ALICE, "alice"), users.user(EVE, "eve")
    alice("put", "secret", MB, 1)
    alice("demote", "secret")
    eve("put", "own", MB, 2)
    eve("demote", "own")
    text = os.readlink(os.path.join(users.place.path, "stores/alice/objects/secret"))
    objects = os.path.join(users.place.path, "stores/eve/objects")
    with being(EVE):
        os.symlink(text, os.path.join(objects, "theirs"))
        os.symlink("../../../alice/objects/secret", os.path.join(objects, "link"))
        os.symlink("shmstore-tier:1:../../../etc/pass:0000000000000000:1:1",
                   os.path.join(objects, "path"))
    root = users.tool("eve", "readonly")
    for tool in (eve, root):
        for key in ("theirs", "link", "path"):
            assert tool.code("get", key, MB, 1) in (EBADMSG, ENOENT, EPERM), key
        assert tool.same("own", MB, 2)
    users.tool()("gc")
    assert alice.same("secret", MB, 1)
    for key in ("theirs", "link", "path"):
        eve.code("delete", key)
    assert len(users.disk.files(ALICE)) == 1


# -- handed to another user


@pytest.fixture
def handing(make_daemon):
    """Users under a daemon that lets ALICE hand objects to BOB."""
    cluster = Users()
    try:
        path = cluster.place.path
        config = (f'partition "{path}" {{}}\nhandoff "alice-bob" {{ from = {{ "uid:{ALICE}" }}\n '
                  f'to = {{ "uid:{BOB}" }} }}\n')
        cluster.socket = make_daemon(path, config=config).socket
        yield cluster
        for tool in cluster.tools:
            if tool.alive:
                tool.end()
        cluster.tool()("gc")
        books = cluster.books_close()  # the inbox stays
        assert (books["objects"], books["leases"], books["ghosts"]) == (0, 0, 0), books
        assert cluster.disk.files() == [] and cluster.anchors() == []
    finally:
        cluster.remove()


def test_demoted_object_is_handed_to_another_user(handing):
    alice, bob = handing.user(ALICE, "alice"), handing.user(BOB, "bob")
    alice("put", "k", 2 * MB, 1)
    alice("demote", "k")
    ticket, = alice("handoff_to", "k", BOB, 60000)
    assert where([alice], "k") == ["memory"]
    bob("adopt", "k", ticket)
    assert bob.same("k", 2 * MB, 1)
    alice("delete", "k")
    assert bob.same("k", 2 * MB, 1)
    bob("delete", "k")


def test_what_another_user_holds_stays_in_memory(handing):
    """BOB could not read it in ALICE's part of the tier."""
    alice, bob = handing.user(ALICE, "alice"), handing.user(BOB, "bob")
    alice("put", "k", 2 * MB, 1)
    ticket, = alice("handoff_to", "k", BOB, 60000)
    assert alice.code("demote", "k") == EPERM
    bob("adopt", "k", ticket)
    root = handing.tool("bob", "readonly")
    for tool in (alice, bob, root):
        assert tool.code("demote", "k") == EPERM
        tool.code("evict", 200 * MB)
        assert where([alice, bob], "k") == ["memory", "memory"] and bob.same("k", 2 * MB, 1)
    alice("delete", "k")
    for tool in (alice, bob, root):
        assert root.code("demote", "k") == EPERM
        tool.code("evict", 200 * MB)
        assert where([bob], "k") == ["memory"] and bob.same("k", 2 * MB, 1)
    assert handing.disk.files() == []
    bob("delete", "k")


def test_without_room_for_it_a_demoted_object_is_not_handed_over(handing):
    alice, bob = handing.user(ALICE, "alice"), handing.user(BOB, "bob")
    alice("put", "k", 8 * MB, 1)
    alice("demote", "k")
    n = 0
    while alice.code("put", f"pinned{n}", 4 * MB, n, "pin") == 0:
        n += 1
    assert alice.code("handoff_to", "k", BOB, 60000) == ENOSPC
    assert os.listdir(os.path.join(handing.place.path, "stores/alice/handoff")) == []
    for i in range(3):
        alice("delete", f"pinned{i}")
    ticket, = alice("handoff_to", "k", BOB, 60000)
    bob("adopt", "k", ticket)
    assert bob.same("k", 8 * MB, 1)
    bob("delete", "k")
