# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin: the command line, wrong usage, help, and what people see:
progress, colours, escapes."""
import json
import os
import re
import subprocess

import pytest

from admin_support import ADMIN, Admin, actors, admin, bare, environment, terminal  # noqa: F401


# ---- the command line ----------------------------------------------------------------------------


def test_version():
    a = Admin("/")
    plain, as_json = a("version", partition=False), a("--json", "version", partition=False)
    assert re.fullmatch(r"shmstore-admin \d+\.\d+\.\d+\n", plain.out)
    assert as_json.json["version"] == plain.out.split()[1]
    assert a("--version", partition=False).out == plain.out


@pytest.mark.parametrize("args", [[], ["frobnicate"], ["df", "x"], ["df", "--frobnicate"],
                                  ["put", "s"], ["stat", "s"],
                                  ["ls", "a", "b"], ["get", "s", "k", "f", "more"],
                                  ["get", "s", "k", "--buffer", "x"],
                                  ["cat", "s", "k", "--buffer=-1"], ["top", "--iterations", "0"],
                                  ["top", "--interval", "x"],
                                  ["top", "--sort", "x"], ["init", "--size", "lots"],
                                  ["init", "--size", "1K"],
                                  ["init", "--huge", "x"], ["init", "--allow-disk", "--size", "1G"],
                                  ["init", "--owner", "no such user"], ["help", "frobnicate"],
                                  ["-p"], ["-p", "", "df"],
                                  ["--frobnicate", "df"], ["--socket", "", "status"],
                                  ["workers", "--sort", "x"],
                                  ["workers", "--by", "x"], ["watch", "--since", "x"],
                                  ["watch", "--count", "0"], ["set"],
                                  ["set", "limit"], ["reap"], ["quota", "x"], ["demote"],
                                  ["demote", "s"],
                                  ["demote", "s", "k", "--all"], ["promote"],
                                  ["promote", "s", "--threads", "x"], ["evict"],
                                  ["evict", "--to", "lots"],
                                  ["evict", "--to", "1G", "--free", "1G"],
                                  ["evict", "--to", "1G", "--threads", "-1"],
                                  ["evict", "--to", "1G", "--user", "no such user"],
                                  ["evict", "x", "--to", "1G"], ["tier", "x"],
                                  ["tier", "--max", "much"], ["tier", "--level", "20"],
                                  ["tier", "--high", "101"],
                                  ["tier", "--high", "50", "--low", "50"],
                                  ["arb"], ["arb", "frobnicate"], ["arb", "top", "x"],
                                  ["arb", "top", "--interval", "0"],
                                  ["arb", "threads", "--sort", "pss"],
                                  ["arb", "log", "--count", "0"], ["arb", "inject", "retry"],
                                  ["arb", "inject", "frob", "1:1"],
                                  ["arb", "inject", "retry", "1:"], ["arb", "inject", "retry", "0"],
                                  ["arb", "inject", "retry", "1:1", "--count", "4294967296"],
                                  ["arb", "inject", "retry", "1:1", "--pool", "shm"],
                                  ["arb", "cancel"], ["arb", "cancel", "1:1", "me"],
                                  ["arb", "cancel", "4294967296:1"], ["arb", "set", "max_bypass"],
                                  ["arb", "set", "frob", "1"],
                                  ["arb", "set", "max_bypass", "many"],
                                  ["arb", "set", "max_bypass", "-1"], ["help", "arb", "frob"],
                                  ["rm"], ["ls", "--sort", "x"], ["du", "--sort", "x"], ["du", "x"],
                                  ["config", "x"],
                                  ["tier", "--unset", "--max", "1G"], ["verify", "--rate", "1M"],
                                  ["verify", "--tier", "--rate", "0"]])
def test_wrong_usage(args):
    r = Admin("/nonexistent")(*args, partition=False, code=2)
    assert r.out == ""
    assert r.err.startswith("shmstore-admin: ")


def test_help_explains_every_command():
    a = Admin("/")
    text = a("help", partition=False).out
    commands = re.findall(r"^  ([a-z]+) ", text, re.M)
    assert commands == ["init", "doctor", "df", "du", "ls", "stat", "cat", "get", "put", "rm",
                        "reconcile", "gc", "verify", "tier",
                        "demote", "promote", "evict", "top", "status", "workers", "quota", "mem",
                        "gate", "preempt", "actors", "watch", "config", "set", "arb", "profile",
                        "stage", "reap", "version", "help"]
    for c in commands:
        shown = a("help", c, partition=False)
        assert f"shmstore-admin [OPTION...] {c}" in shown.out and shown.err == ""
        assert "--json" in shown.out
        assert a(c, "--help", partition=False).out == shown.out


def test_options_stand_before_or_after_the_command(admin):
    before, after = admin("--json", "df").json, admin("df", "--json").json
    assert before == after
    assert admin("df", "--json", "-p", admin.path, partition=False).json == before
    assert admin("df", "--json", partition=False,
                 env={"SHMSTORE_PARTITION": admin.path}).json == before


def test_output_that_cannot_be_written_is_a_failure(admin):
    with open("/dev/full", "wb") as full:
        r = subprocess.run([ADMIN, "-p", admin.path, "df"], stdout=full, stderr=subprocess.PIPE,
                           check=False, env=environment(), timeout=60)
    assert r.returncode == 1
    assert r.stderr.startswith(b"shmstore-admin: standard output: ")


@pytest.mark.parametrize("command", [["df"], ["du"], ["ls"], ["stat", "s", "k"], ["cat", "s", "k"],
                                     ["get", "s", "k"],
                                     ["put", "s", "k"], ["reconcile"], ["gc"], ["verify"], ["top"],
                                     ["tier"],
                                     ["tier", "--unset"], ["demote", "s", "k"],
                                     ["promote", "s", "--all"], ["evict", "--to", "0"]])
def test_missing_partition(command, bare):
    r = Admin(bare / "none")(*command, code=1)
    assert r.out == ""
    assert "none: there is no such directory\n" in r.err
    assert "init" in r.err  # what to do
    r = Admin(bare)(*command, code=1)
    assert "is no partition: it holds no .shmstore" in r.err


# ---- people --------------------------------------------------------------------------------------


def test_progress_of_long_work(admin, actors, terminal):
    """A verify that takes more than two seconds says so, on standard error, and
    cleans up behind itself."""
    # The program waits for the lock of standard output's reader, not for work: a full pipe
    # holds it as long as we like.
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
    with subprocess.Popen([ADMIN, "-p", admin.path, "--json", "ls"], stdout=w,
                          stderr=subprocess.PIPE, env=environment()) as p:
        os.close(w)
        line = p.stderr.readline()
        assert re.fullmatch(rb"shmstore-admin: ls: [2-9] s, \d+ objects, [0-9.]+ [KM]iB\n",
                            line), line
        drained = b"".join(iter(lambda: os.read(r, 65536), b""))
        assert p.wait() == 0
    os.close(r)
    assert len(json.loads(drained.lstrip(b"x"))["objects"]) == 256


def test_colours_only_on_a_terminal(admin, actors, terminal):
    actors(admin, "s", "-")
    assert "\033[" not in admin("du").out
    assert b"\033[" in terminal("-p", admin.path, "du").read_until(None)
    for quiet in (terminal("-p", admin.path, "du", env={"NO_COLOR": "1"}),
                  terminal("-p", admin.path, "du", "--no-color"),
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
    for command in (["du"], ["ls"], ["stat", "s" + evil, r"k\x1b]0;owned\x07"],
                    ["cat", "s" + evil, "none"],
                    ["top", "-n1", "-d0.05"], ["gc"]):
        r = admin(*command, code=None)
        assert "\033" not in r.out + r.err and "\007" not in r.out + r.err, command
        if command[0] != "gc":
            assert r"\x1b]0;owned\x07" in r.out + r.err, command
