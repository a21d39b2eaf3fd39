# SPDX-License-Identifier: Apache-2.0
"""Attempts of three users on one shared partition at each other's files and names
(docs/security.md); the daemon: test_daemon_users.py."""
import errno
import fcntl
import mmap
import os
import shutil
import stat
import subprocess

import pytest
from daemon import ADMIN
from users import ALICE, BOB, EVE, being
from userscene import SIZE, denied, scene, ticket_path  # noqa: F401

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


# -- files


def test_others_files_are_out_of_reach(scene):
    scene.start()
    alice, bob = scene.tool(ALICE, "alice"), scene.tool(BOB, "bob")
    alice("put", "k", SIZE, 1)
    lease, = alice("handoff", "k", 60000)
    given, = alice("handoff_to", "k", BOB, 60000)
    store = f"{scene.path}/stores/alice"
    mine = f"{scene.path}/stores/eves"
    files = [f"{store}/objects/k", f"{store}/.store", ticket_path(lease), ticket_path(given)]
    with being(EVE):
        os.mkdir(mine, 0o777)
        for directory in (store, f"{store}/objects", f"{store}/handoff", f"{store}/recycle",
                          f"{scene.path}/inbox/{BOB}"):
            denied(os.listdir, directory)
            denied(os.open, f"{directory}/new", os.O_CREAT | os.O_WRONLY, 0o600)
        for file in files:
            for flags in (os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_PATH):
                denied(os.open, file, flags)
            denied(os.stat, file)
            denied(os.unlink, file)
            denied(os.rename, file, f"{mine}/taken")
            denied(os.link, file, f"{mine}/taken")
            denied(os.chmod, file, 0o666)
            denied(os.truncate, file, 0)
            denied(os.setxattr, file, "user.x", b"x")
        for directory in (store, f"{scene.path}/stores", f"{scene.path}/peers",
                          f"{scene.path}/inbox", f"{scene.path}/.shmstore"):
            denied(os.rename, directory, f"{scene.path}/away")
            denied(os.chmod, directory, 0o777)
        denied(os.rmdir, store, errors=(errno.EACCES, errno.EPERM, errno.ENOTEMPTY))
        denied(os.unlink, f"{scene.path}/.shmstore")
        denied(os.mkdir, f"{scene.path}/inbox/{EVE}")
        # Through /proc of a process that has it open and mapped.
        denied(os.listdir, f"/proc/{alice.pid}/fd")
        denied(os.listdir, f"/proc/{alice.pid}/map_files")
    assert alice.same("k", SIZE, 1)
    bob("adopt", "k", given)


def test_tickets_are_no_rights(scene):
    scene.start()
    alice, bob, eve = scene.tool(ALICE, "alice"), scene.tool(BOB, "bob"), scene.tool(EVE, "eve")
    alice("put", "k", SIZE, 1)
    lease, = alice("handoff", "k", 60000)
    given, = alice("handoff_to", "k", BOB, 60000)
    head = ":".join(lease.split(":")[:3])
    for ticket in (lease, given, f"{head}:{scene.path}/stores/alice/objects/k"):
        assert eve.code("adopt", "x", ticket) == errno.EPERM
    # Nor are EVE's files, forged into something that BOB would adopt.
    with being(EVE):
        for directory in ("stores/trap", "stores/trap/handoff", "stores/trap/objects"):
            os.mkdir(f"{scene.path}/{directory}")
            os.chmod(f"{scene.path}/{directory}", 0o777)
    name = os.path.basename(ticket_path(lease))
    shutil.copy(ticket_path(lease), f"{scene.path}/stores/trap/handoff/{name}")
    shutil.copy(ticket_path(lease), f"{scene.path}/stores/trap/objects/k")
    for file in (f"stores/trap/handoff/{name}", "stores/trap/objects/k"):
        for owner in (EVE, BOB):
            os.chown(f"{scene.path}/{file}", owner, owner)
            os.chmod(f"{scene.path}/{file}", 0o444)
            assert bob.code("adopt", "x", f"{head}:{scene.path}/{file}") == errno.EPERM
    with being(EVE):
        os.symlink(f"{scene.path}/stores/bob", f"{scene.path}/stores/link")
    assert bob.code("adopt", "x", f"{head}:{scene.path}/stores/link/handoff/{name}") in (
        errno.EPERM, errno.EBADMSG)
    assert bob.code("adopt", "x",
                    f"{head}:{scene.path}/inbox/{BOB}/handoff/../handoff/{name}") == errno.EPERM
    assert bob.code("adopt", "x", f"{head}:{scene.path}/inbox/{ALICE}/handoff/{name}") in (
        errno.EPERM, errno.ESTALE)
    bob("adopt", "x", given)


def test_received_object_cannot_be_written(scene):
    scene.start()
    alice, bob = scene.tool(ALICE, "alice"), scene.tool(BOB, "bob")
    alice("put", "k", SIZE, 1)
    bob("adopt", "k", *alice("handoff_to", "k", BOB, 60000))
    file = f"{scene.path}/stores/bob/objects/k"
    with being(BOB):
        for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDONLY | os.O_TRUNC):
            denied(os.open, file, flags)
        denied(os.chmod, file, 0o600)
        denied(os.chown, file, BOB, BOB)
        denied(os.truncate, file, 0)
        denied(os.link, file, file + "2")
        denied(os.removexattr, file, "system.posix_acl_access")
        fd = os.open(file, os.O_RDONLY)
        try:
            denied(os.open, f"/proc/self/fd/{fd}", os.O_RDWR)
            denied(os.ftruncate, fd, 0, errors=(errno.EINVAL, errno.EBADF, errno.EPERM))
            denied(os.fchmod, fd, 0o600)
            denied(mmap.mmap, fd, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            denied(fcntl.fcntl, fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            assert mmap.mmap(fd, 4096, prot=mmap.PROT_READ)[:4] == b"\x89SHM"
        finally:
            os.close(fd)
    with being(EVE):
        denied(os.open, file, os.O_RDONLY)
    # In BOB's hands it is read by BOB alone, also where BOB opens his directories.
    os.chmod(f"{scene.path}/stores/bob", 0o755)
    os.chmod(f"{scene.path}/stores/bob/objects", 0o755)
    with being(EVE):
        denied(os.open, file, os.O_RDONLY)
    assert alice.same("k", SIZE, 1) and bob.same("k", SIZE, 1)


def test_what_was_handed_over_is_not_recycled(scene):
    scene.start()
    alice, bob = scene.tool(ALICE, "alice"), scene.tool(BOB, "bob")
    file = f"{scene.path}/stores/alice/objects/k"
    recycled = set()
    for i in range(4):
        alice("put", "k", SIZE, i)
        recycled.add(os.stat(file).st_ino)
        alice("delete", "k")
    assert len(recycled) == 1, "a file of hers alone is written again"
    alice("put", "k", SIZE, 4)
    bob("adopt", "k", *alice("handoff_to", "k", BOB, 60000))
    bob("delete", "k")
    alice("delete", "k")
    for i in range(4):
        alice("put", f"secret{i}", SIZE, i)
        secret = f"{scene.path}/stores/alice/objects/secret{i}"
        assert os.listxattr(secret) == [] and stat.S_IMODE(os.stat(secret).st_mode) == 0o400


# -- names


def test_squatted_names_deny_and_give_nothing(scene):
    scene.start()
    with being(EVE):
        os.mkdir(f"{scene.path}/stores/alice", 0o777)
        # an empty one would be taken for what a kill left, and removed
        os.mkdir(f"{scene.path}/stores/alice/hers")
        os.symlink("/etc", f"{scene.path}/stores/alice2")
        os.symlink(f"{scene.path}/stores/bob", f"{scene.path}/stores/alice3")
    bob, alice = scene.tool(BOB, "bob"), scene.tool(ALICE)
    for name in ("alice", "alice2", "alice3", "bob"):
        assert alice.code("open", name) in (errno.EPERM, errno.EACCES, errno.EBUSY)
    alice("open", "alice4")
    # An address: EVE was first, with a store whose page says that it is ALICE's.
    forged = scene.forged("forged", uid=ALICE)
    address = b"tcp://127.0.0.1:1"
    alice("address", address.decode())
    entry, = os.listdir(f"{scene.path}/peers")
    alice("address", "tcp://127.0.0.1:2")
    with being(EVE):
        os.pwrite(forged.fd, address.ljust(256, b"\0"), 448)
        os.symlink("../stores/forged", f"{scene.path}/peers/{entry}")
        os.chmod(forged.path, 0o755)
        os.fchmod(forged.fd, 0o644)
    assert alice.code("peer", address.decode()) == errno.ENOENT
    assert bob.code("peer", address.decode()) == errno.ENOENT
    assert alice.code("address", address.decode()) == errno.EPERM, "first come, first served"
    assert scene.tool(EVE)("peer", address.decode()) == ["forged"]
    # The inbox cannot be squatted.
    shutil.rmtree(f"{scene.path}/inbox")
    with being(EVE):
        os.mkdir(f"{scene.path}/inbox", 0o777)
        os.mkdir(f"{scene.path}/inbox/{BOB}", 0o777)
    alice("put", "k", 100, 1)
    bob("adopt", "k", *alice("handoff_to", "k", BOB, 60000))
    assert (os.stat(f"{scene.path}/inbox").st_uid == 0 and
            os.stat(f"{scene.path}/inbox/{BOB}").st_uid == BOB)


def test_junk_harms_nobody(scene):
    scene.start()
    alice = scene.tool(ALICE, "alice")
    with being(EVE):
        for i in range(4):  # filled elsewhere: gc removes empty directories of stores/
            os.mkdir(f"{scene.path}/filled-{i}")
        os.mkfifo(f"{scene.path}/filled-0/.store")
        os.symlink("/dev/zero", f"{scene.path}/filled-1/.store")
        with open(f"{scene.path}/filled-2/.store", "wb") as file:
            file.truncate(1 << 40)
        os.symlink("..", f"{scene.path}/filled-3/objects")
        for i in range(500):
            if i < 4:
                os.rename(f"{scene.path}/filled-{i}", f"{scene.path}/stores/junk-{i}")
            else:
                os.mkdir(f"{scene.path}/stores/junk-{i}")
            os.symlink("../nowhere", f"{scene.path}/peers/junk-{i}")
            os.mkfifo(f"{scene.path}/junk-{i}")
    alice("put", "k", SIZE, 1)
    assert alice.same("k", SIZE, 1)
    scene.tool(BOB, "bob")("adopt", "k", *alice("handoff_to", "k", BOB, 60000))
    subprocess.run([ADMIN, "-p", scene.path, "gc"], check=False, capture_output=True, timeout=60)
    scene.alive()
    scene.kill()
    scene.restart()
    alice("put", "k2", SIZE, 2)
    assert alice.same("k2", SIZE, 2)
