# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin rm, config, and what ls and du say: sorted, with totals, leases and ages."""
import os
import subprocess

import pytest
from admin_support import BUILD, Admin, actors, admin, bare, environment, terminal  # noqa: F401


def put(admin, store, key, size):
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x" * size)
        file.flush()
        admin("put", store, key, file.name)


def test_rm_removes_keys_of_a_kept_store_and_the_store(admin):
    for key, size in (("a", 10), ("b", 20), ("c", 30)):
        put(admin, "kept", key, size)
    assert "2 objects removed" in admin("rm", "kept", "a", "c").out
    assert [o["key"] for o in admin("--json", "ls", "kept").json["objects"]] == ["b"]
    r = admin("rm", "kept", "nothing", code=1)
    assert "nothing" in r.err and "no object of that key" in r.err
    assert admin("--json", "rm", "kept").json["removed_store"] is True
    assert admin("--json", "du").json["stores"] == []
    assert "kept" in admin("rm", "kept", code=1).err


def test_rm_leaves_a_live_owner_alone(admin, actors):
    actors(admin, "live", "-")("put", "k", "1000", "-")
    r = admin("rm", "live", "k", code=1)
    assert "live process" in r.err
    assert [o["key"] for o in admin("--json", "ls", "live").json["objects"]] == ["k"]


def test_a_kept_store_that_a_tool_had_open_is_nobodys(admin):
    put(admin, "kept", "a", 10)
    (store,) = admin("--json", "du").json["stores"]
    assert store["pid"] == 0 and store["keep"] and not store["alive"]


def test_du_and_ls_sort_and_add_up(admin):
    for store, key, size in (("one", "small", 1000), ("one", "middle", 50000),
                             ("two", "large", 900000)):
        put(admin, store, key, size)
    lines = [line.split() for line in admin("ls", "--sort", "size").out.splitlines()]
    assert [line[1] for line in lines[1:4]] == ["large", "middle", "small"]
    assert lines[-1][0] == "total" and "AGE" in lines[0]
    stores = [line.split()[0] for line in admin("du", "--sort", "linked").out.splitlines()]
    assert stores == ["STORE", "two", "one", "total"]
    head = admin("du").out.splitlines()[0].split()
    assert "LEASED" in head and "AGE" in head


def test_config_says_what_is_in_force_and_why(admin):
    j = admin("--json", "config").json
    assert j["partition"] == admin.path and j["partition_from"] == "-p" and j["daemon"] == "none"
    j = admin("--json", "config", partition=False, env={"SHMSTORE_PARTITION": admin.path}).json
    assert j["partition"] == admin.path and j["partition_from"] == "SHMSTORE_PARTITION"
    assert j["socket_from"] == "SHMSTORE_SOCKET"
    assert admin.path in admin("config").out


def test_check_config_of_a_missing_file_is_no_ok():
    daemon = BUILD / "shmstored" / "shmstored"
    run = subprocess.run([daemon, "--check-config", "--config", "/nonexistent/shmstored.conf"],
                         capture_output=True, text=True, timeout=20)
    assert (run.returncode != 0 and "/nonexistent/shmstored.conf" in run.stderr and
            "ok" not in run.stdout)


@pytest.mark.skipif(os.path.exists("/etc/shmstore"), reason="this host has a configuration")
def test_check_config_where_there_is_no_default_file_says_that_the_defaults_hold():
    daemon = BUILD / "shmstored" / "shmstored"
    run = subprocess.run([daemon, "--check-config"], capture_output=True, text=True, timeout=20)
    assert (run.returncode == 0 and run.stdout == "/etc/shmstore/shmstored.conf: ok: it is not "
                                                  "there, and the defaults hold\n"), run
