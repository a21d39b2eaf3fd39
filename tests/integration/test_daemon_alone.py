# SPDX-License-Identifier: Apache-2.0
"""A user's own daemon, started with nothing but its name: no option, no configuration, no login session. It used to want a
directory of /run, which the user cannot make. Needs root, to be a user without a session."""
import contextlib
import os
import select
import shutil
import subprocess

import pytest
from fixture import BUILD
from users import ALICE, EVE

DAEMON, ADMIN = BUILD / "shmstored" / "shmstored", BUILD / "tools" / "shmstore-admin"
PARTITION, PLACE = f"/dev/shm/shmstore-{ALICE}", f"/dev/shm/shmstored-{ALICE}"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to be another user")


def alice(*words, **options):
    """As ALICE, with the environment of cron: no XDG_RUNTIME_DIR, no name of a socket."""
    env = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "LSAN_OPTIONS") if name in os.environ}
    return dict(args=[str(word) for word in words], user=ALICE, group=ALICE, extra_groups=[], env=env, text=True, cwd="/", **options)


@pytest.fixture
def nothing_there():
    """Neither before nor after."""
    def clear():
        for path in (PARTITION, PLACE):
            shutil.rmtree(path, ignore_errors=True)

    if os.path.exists(f"/run/user/{ALICE}"):
        pytest.skip(f"{ALICE} has a session here")
    if subprocess.run(**alice(DAEMON, "--version"), capture_output=True).returncode != 0:
        pytest.skip("the build cannot be reached by another user")
    clear()
    yield
    clear()


@contextlib.contextmanager
def running(config):
    """shmstored with a configuration that says nothing but that there is no page, whose port may be taken."""
    config.parent.chmod(0o755)
    config.write_text("http {\n\tenabled = no\n}\n")
    for parent in list(config.parents)[:-2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    process = subprocess.Popen(**alice(DAEMON, "--config", config), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def first_line(process):
    assert select.select([process.stderr], [], [], 60)[0], "it says nothing for 60 s"
    return process.stderr.readline()


def test_it_serves_and_is_found(nothing_there, tmp_path):
    with running(tmp_path / "shmstored.conf") as process:
        assert "serves 1 partitions" in first_line(process)
        assert os.stat(PARTITION).st_uid == os.stat(f"{PLACE}/socket").st_uid == ALICE
        done = subprocess.run(**alice(ADMIN, "status"), capture_output=True, timeout=60)
        assert done.returncode == 0 and PARTITION in done.stdout, done.stderr
    assert process.returncode == 0
    assert not os.path.exists(f"{PLACE}/socket")


@pytest.mark.parametrize("owner", [EVE, 0])
def test_a_place_that_another_user_made_is_not_used(nothing_there, tmp_path, owner):
    """Not by the daemon, and not by who looks for one: whoever made it could answer there."""
    os.mkdir(PLACE, 0o777)
    os.chmod(PLACE, 0o777)
    os.chown(PLACE, owner, -1)
    open(f"{PLACE}/socket", "w").close()
    if owner == EVE:
        with running(tmp_path / "shmstored.conf") as process:
            said = first_line(process)
            assert PLACE in said and "another user's" in said and "--socket" in said, said
            assert process.wait(60) == 1
    done = subprocess.run(**alice(ADMIN, "status"), capture_output=True, timeout=60)
    assert done.returncode == 1 and "/run/shmstored/socket" in done.stderr, done.stderr


def test_a_partition_that_is_named_but_missing(nothing_there):
    done = subprocess.run(**alice(DAEMON, "--partition", "/dev/shm/none-of-this-name"), capture_output=True, timeout=60)
    assert done.returncode == 1 and "shmstore-admin -p PATH init" in done.stderr, done.stderr
