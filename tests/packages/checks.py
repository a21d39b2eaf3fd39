#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In a machine of tests/boot, as root: Debian's packages are installed, used, installed again,
removed and purged, and nothing is left of them.

usage: checks.py --parts | checks.py RELEASE PART
"""
import os
import pathlib
import shutil
import subprocess
import sys

CLONE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CLONE / "tests/boot"), str(CLONE / "tests/readme")]
import checks
import pages
from checks import check, output, shell, works

PACKAGES = ("libshmstore0", "libshmstore-dev", "python3-shmstore", "shmstore-admin", "shmstored")
# Places that systemd and the package manager write to as they please.
FLEETING = ("/opt", "/tmp", "/proc", "/sys", "/dev", "/run/systemd", "/run/log", "/run/udev",
            "/var/log", "/var/tmp/systemd-private", "/var/cache/ldconfig")


def state():
    """The machine's files, users, groups, mounts and units, each as a line."""
    files = output("find", "/", "/run", "-xdev").split("\n")
    lines = [line for line in files if not line.startswith(FLEETING)]
    lines += [f"{name}: {line}" for name in ("passwd", "group", "shadow", "gshadow")
              for line in output("getent", name).split("\n")]
    lines += ["mount " + line for line in output("findmnt", "-rno", "TARGET").split("\n")
              if not line.startswith(FLEETING)]
    return set(lines + ["unit " + line.split()[0] for line in output(
        "systemctl", "list-unit-files", "--no-legend").split("\n")])


def same(what, before, now):
    check(what, before == now, "\n".join([*(f"new: {line}" for line in sorted(now - before)),
                                          *(f"gone: {line}" for line in sorted(before - now))]))


def as_alice(what, program, said):
    done = subprocess.run(["runuser", "-u", "alice", "--", *program], cwd="/home/alice",
                          capture_output=True, text=True, timeout=120, check=False)
    check(what, done.returncode == 0 and done.stdout == said,
          f"{done.returncode}\n{done.stdout}{done.stderr}\n{checks.journal()}")


def install(*names):
    debs = [f"{CLONE}/build/debs-{checks.release}/{name}_*.deb" for name in names or PACKAGES]
    works("dpkg -i", "bash", "-c", f"dpkg -i {' '.join(debs)}")


def used():
    home = pathlib.Path("/home/alice")
    home.mkdir()
    shutil.chown(home, "alice")
    (home / "ten.py").write_text(pages.example("README.md", "In ten lines"))
    (home / "example.c").write_text(pages.example("README.md", "C"))
    as_alice("the ten lines of README.md", ["python3", "ten.py"], pages.TEN_OUTPUT)
    as_alice("the C example of README.md, by pkg-config",
             ["sh", "-c", "cc example.c $(pkg-config --cflags --libs shmstore) && ./a.out"],
             pages.C_SHORT_OUTPUT)
    for name in checks.UNITS:
        check(f"{name} is active", checks.unit(name) == "active", checks.journal())
    check("shmstore-admin asks the daemon", bool(checks.admin("status")), checks.journal())


def upgraded():
    """A store that is open meanwhile keeps its objects, and finds the daemon that follows."""
    user, pid = checks.User("alice", "a"), checks.daemon_pid()
    user("put", "kept", 1, 7)
    checks.wait_for("a store registers", lambda: checks.registered([user]))
    install()
    check("the daemon is another process", checks.daemon_pid() not in (0, pid))
    check("the object is there", user("same", "kept", 7).get("said") is True,
          user("same", "kept", 7))
    checks.wait_for("the store registers with the new daemon", lambda: checks.registered([user]))
    user.end()


def program():
    return os.path.basename(os.readlink(f"/proc/{checks.daemon_pid()}/exe"))


def with_actors():
    """The unit has the other program as long as its package is installed."""
    check("shmstored.service runs shmstored", program() == "shmstored")
    install("shmstore-actord")
    check("with the package shmstore-actord it runs that", program() == "shmstore-actord")
    check("which answers about actors", checks.admin("actors")["actors"]["total"] == 0)
    works("dpkg --purge shmstore-actord", "dpkg", "--purge", "shmstore-actord")
    check("and without it shmstored again", program() == "shmstored")


def first():
    checks.begun()
    before = state()
    install()
    used()
    upgraded()
    with_actors()
    works("dpkg --remove", "dpkg", "--remove", *PACKAGES)
    check("nothing of it runs or is mounted", checks.daemon_pid() == 0 and
          not os.path.ismount(checks.PARTITION))
    works("dpkg --purge", "dpkg", "--purge", *PACKAGES)
    shutil.rmtree("/home/alice")
    same("nothing is left of it: files, users, groups, mounts, units", before, state())


def main():
    if sys.argv[1] == "--parts":
        print("first")
        return 0
    checks.release = sys.argv[1]
    first()
    return 1 if checks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
