# SPDX-License-Identifier: Apache-2.0
"""A user's own daemon, started with nothing but its name: no option, no configuration, no login
session. Its socket is in its partition. Needs root, to be another user."""
import contextlib
import os
import re
import select
import shutil
import socket
import stat
import subprocess

import pytest
from fixture import BUILD, Place
from users import ALICE, EVE

DAEMON, ADMIN = BUILD / "shmstored" / "shmstored", BUILD / "tools" / "shmstore-admin"
PARTITION = f"/dev/shm/shmstore-{ALICE}"
SOCKET = f"{PARTITION}/.socket"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to be another user")


def alice(*words, **options):
    """As ALICE, with the environment of cron: no XDG_RUNTIME_DIR, no name of a socket."""
    env = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "ASAN_OPTIONS",
                                               "LSAN_OPTIONS") if name in os.environ}
    return dict(args=[str(word) for word in words], user=ALICE, group=ALICE, extra_groups=[],
                env=env, text=True, cwd="/", **options)


@pytest.fixture
def nothing_there():
    """Neither before nor after."""
    def clear():
        shutil.rmtree(PARTITION, ignore_errors=True)

    if subprocess.run(**alice(DAEMON, "--version"), capture_output=True).returncode != 0:
        pytest.skip("the build cannot be reached by another user")
    clear()
    yield
    clear()


@contextlib.contextmanager
def running(config, *options):
    """shmstored with a configuration that says nothing but that there is no page,
    whose port may be taken."""
    config.parent.chmod(0o755)
    config.write_text("http {\n\tenabled = no\n}\n")
    for parent in list(config.parents)[:-2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    process = subprocess.Popen(**alice(DAEMON, "--config", config, *options),
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
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
        assert os.stat(PARTITION).st_uid == os.stat(SOCKET).st_uid == ALICE
        done = subprocess.run(**alice(ADMIN, "status"), capture_output=True, timeout=60)
        assert done.returncode == 0 and PARTITION in done.stdout, done.stderr
    assert process.returncode == 0
    assert not os.path.exists(SOCKET)


@pytest.mark.parametrize("owner", [EVE, 0])
def test_a_socket_that_another_user_made_is_not_used(nothing_there, owner):
    """In a partition that all may write to: that user could answer there."""
    subprocess.run([ADMIN, "-p", PARTITION, "init", "--shared"], check=True, capture_output=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(SOCKET)
        listener.listen()
        os.chown(SOCKET, owner, -1)
        done = subprocess.run(**alice(ADMIN, "-p", PARTITION, "status"), capture_output=True,
                              timeout=60)
    assert done.returncode == 1 and "/run/shmstored/socket" in done.stderr, done.stderr


def test_each_partition_of_a_daemon_leads_to_it(nothing_there, tmp_path):
    """By a symlink in all but the first, which goes with the daemon, and is replaced where one
    that was killed left it."""
    second = Place()
    try:
        os.mkdir(second.path)
        os.chown(second.path, ALICE, -1)
        for path in (PARTITION, second.path):
            subprocess.run(**alice(ADMIN, "-p", path, "init"), check=True, capture_output=True)
        link = f"{second.path}/.socket"
        with running(tmp_path / "shmstored.conf", "-p", PARTITION, "-p", second.path) as process:
            assert "serves 2 partitions" in first_line(process)
            assert os.readlink(link) == SOCKET
            done = subprocess.run(**alice(ADMIN, "-p", second.path, "status"), capture_output=True,
                                  timeout=60)
            assert (done.returncode == 0 and second.path in done.stdout and
                    PARTITION not in done.stdout), done
            process.kill()
            process.wait(60)
        assert os.path.islink(link)
        with running(tmp_path / "shmstored.conf", "-p", second.path) as process:
            assert "serves 1 partitions" in first_line(process)
            assert stat.S_ISSOCK(os.lstat(link).st_mode)
        with running(tmp_path / "shmstored.conf", "-p", PARTITION, "-p", second.path) as process:
            assert "serves 2 partitions" in first_line(process)
        assert not os.path.lexists(link) and not os.path.lexists(SOCKET)
    finally:
        second.remove()


# A batch job with a /dev/shm of its own: its daemon, a store, what the tool says of it; then
# waits for the end of its input.
JOB = """
mount -t tmpfs -o size=64m,mode=1777 tmpfs /dev/shm || exit 77
exec setpriv --reuid "$1" --regid "$1" --clear-groups sh -c '
  "$2" --config "$4" 2>&1 & daemon=$!
  until "$3" status >/dev/null 2>&1 || ! kill -0 $daemon; do sleep 0.05; done
  "$3" --json status
  "$3" --json df
  "$3" reconcile 2>&1
  echo ready; read -r line; "$3" --socket "$line" status 2>&1; echo "socket: $?"
  kill $daemon; wait $daemon; echo "daemon: $?"' sh "$@"
"""


def test_two_jobs_with_a_private_shm_have_a_daemon_each(tmp_path):
    """A second one used to end, and its tools showed the first one's stores as those of
    the partition of that path."""
    (tmp_path / "shmstored.conf").write_text("http {\n\tenabled = no\n}\n")
    for parent in [tmp_path, *list(tmp_path.parents)[:-2]]:
        parent.chmod(parent.stat().st_mode | 0o011)
    (tmp_path / "run").mkdir()
    env = {**alice()["env"], "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    jobs, seen = [], set()
    try:
        for _ in range(2):
            jobs.append(subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh",
                                          "-c", JOB, "sh", str(ALICE), str(DAEMON), str(ADMIN),
                                          str(tmp_path / "shmstored.conf")], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, env=env, text=True, cwd="/"))
            said = ""
            while not said.endswith("ready\n"):
                line = jobs[-1].stdout.readline()
                if not line and jobs[-1].wait(60) == 77:
                    pytest.skip("no file system can be mounted")
                assert line, said
                said += line
            assert "serves 1 partitions" in said and "every byte is accounted for" in said, said
            uuids = re.findall(r'"uuid":"([^"]+)"', said)  # as the daemon has it, and as it is
            assert len(uuids) == 2 and uuids[0] == uuids[1] and uuids[0] not in seen, said
            seen.add(uuids[0])
        # By its name the other one's daemon can be reached, through the job's own view of the file
        # system. That it is another's is seen.
        other = f"/proc/{jobs[0].pid}/root{SOCKET}"
        said, _ = jobs[1].communicate(other + "\n", timeout=60)
        assert ("watches another partition of that path" in said and "socket: 1" in said and
                "daemon: 0" in said), said
        said, _ = jobs[0].communicate("/nonexistent\n", timeout=60)
        assert "daemon: 0" in said, said
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def test_a_partition_that_is_named_but_missing(nothing_there):
    done = subprocess.run(**alice(DAEMON, "--partition", "/dev/shm/none-of-this-name"),
                          capture_output=True, timeout=60)
    assert done.returncode == 1 and "shmstore-admin -p PATH init" in done.stderr, done.stderr
