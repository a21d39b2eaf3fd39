# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin: put, get, cat: the bytes come back."""
import base64
import hashlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from admin_support import ADMIN, actors, admin, bare, environment, needs_root, pattern  # noqa: F401


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
    p = subprocess.Popen([ADMIN, "-p", admin.path, "put", store, "big"], stdin=subprocess.PIPE,
                         stderr=subprocess.PIPE, env=environment(),
                         # a background job's is ignored
                         preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    deadline = time.monotonic() + 20
    # in read(2) of its standard input
    while not re.match(r"(0|63) 0x0 ", Path(f"/proc/{p.pid}/syscall").read_text()):
        assert time.monotonic() < deadline and p.poll() is None
    p.send_signal(number)
    p.communicate(timeout=120)
    assert p.returncode == -number
    assert [s["name"] for s in admin.json("du")["stores"]] == left
    assert [o["key"] for o in admin.json("ls")["objects"]] == ["k"]
    assert admin.json("df")["used"] == used


@pytest.mark.parametrize("store", ["a/b", ".hidden", "x" * 256, ""])
def test_wrong_store_names(admin, store):
    assert "is no name of a store" in admin("put", store, "k", stdin=b"x", code=1).err
    assert admin.json("du")["stores"] == []


def test_keys_of_any_bytes(admin):
    keys = {"plain": b"plain", "with space": b"with space", "äöü": "äöü".encode(),
            r"\x00\xff": b"\x00\xff",
            r"back\slash": rb"back\slash", r"\x5cx41": rb"\x41", "('x', 0, 1)": b"('x', 0, 1)",
            "": b"", "line\\x0abreak": b"line\nbreak", "k" * 4096: b"k" * 4096, "%41": b"%41"}
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
    for args, message in ((["s", "none"], "the store s holds no such key"),
                          (["none", "k"], "there is no such store"),
                          (["s", "k", "--buffer", "1"], "there is no buffer 1")):
        r = admin("get", *args[:2], target, *args[2:], code=1)
        assert message in r.err
        assert target.read_text() == "precious"
    assert "No such file or directory" in admin("get", "s", "k", tmp_path / "none" / "x",
                                                code=1).err
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
        r = subprocess.run([ADMIN, "-p", admin.path, "cat", "s", "k"], stdout=full,
                           stderr=subprocess.PIPE, check=False, env=environment(), timeout=60)
    assert r.returncode == 1 and b"No space left" in r.stderr


def test_digest_of_a_large_object(admin, tmp_path):
    """Through pipes and files, in pieces: nothing is lost at the seams."""
    data = os.urandom(20 << 20)
    source = tmp_path / "in"
    source.write_bytes(data)
    with subprocess.Popen(["cat", source], stdout=subprocess.PIPE) as p:
        subprocess.run([ADMIN, "-p", admin.path, "put", "s", "k"], stdin=p.stdout, check=True,
                       env=environment(), timeout=60)
    assert hashlib.sha256(admin("cat", "s", "k").raw).digest() == hashlib.sha256(data).digest()
