# SPDX-License-Identifier: Apache-2.0
"""The attacks that once succeeded (CHANGELOG.md, "Security" of 0.2.0), each tried by one of
three users against the others."""
import ctypes
import mmap
import os
import struct

import pytest
from users import ALICE, BOB, being
from userscene import SIZE, scene, ticket_path  # noqa: F401

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

PAGE = 4096
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


# -- 1.1: what a file holds besides its object


def readable(path):
    """Every byte that a user gets who may open that file, also behind its end in the last page."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        whole = (size + PAGE - 1) // PAGE * PAGE
        # Python's own mmap keeps to the file's size; the kernel maps whole pages.
        at = LIBC.mmap(None, whole, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        assert at not in (None, ctypes.c_void_p(-1).value)
        data = ctypes.string_at(at, whole)
        LIBC.munmap(at, whole)
        assert os.pread(fd, whole, 0) == data[:size]
        return size, data
    finally:
        os.close(fd)


def leftovers(path):
    """The bytes of the file that belong to no part of its object and are not zero."""
    size, data = readable(path)
    header_size, buffer_size, metadata_size, key_size, n_buffers = struct.unpack_from(
        "<QQQII", data, 16)
    assert header_size + buffer_size == size
    table = (128 + key_size + 7) // 8 * 8
    used = [(0, table + 24 * n_buffers + metadata_size)]
    used += [(at, at + length) for at, length, _ in struct.iter_unpack(
        "<QQQ", data[table:table + 24 * n_buffers])]
    blank = bytearray(data)
    for begin, end in used:
        blank[begin:end] = bytes(end - begin)
    return sum(byte != 0 for byte in blank)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("former, size", [(3000, 2500), (17000, 14000), (70000, 66000),
                                          (SIZE, SIZE - 5000), (SIZE, SIZE * 3 // 4),
                                          (12 * SIZE, 10 * SIZE)])
def test_deleted_bytes_reach_nobody(scene, former, size):
    scene.start()
    alice, bob = scene.tool(ALICE, "alice"), scene.tool(BOB, "bob")
    alice("put", "secret", former, 1)
    first = os.stat(f"{scene.path}/stores/alice/objects/secret").st_ino
    alice("delete", "secret")
    alice("put", "gift", size, 2)
    assert os.stat(f"{scene.path}/stores/alice/objects/gift").st_ino == first, (
        "the file of a deleted object")
    ticket, = alice("handoff_to", "gift", BOB, 60000)
    with being(BOB):
        assert leftovers(ticket_path(ticket)) == 0
    bob("adopt", "gift", ticket, "verify")
    with being(BOB):
        assert leftovers(f"{scene.path}/stores/bob/objects/gift") == 0
    assert bob.same("gift", size, 2) and alice.same("gift", size, 2)
