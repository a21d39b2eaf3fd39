#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In a machine of tests/boot, as root: the service as it is installed, with three users. Each part
is one boot of the same machine.

usage: checks.py --parts | checks.py RELEASE PART
Prints "ok - …" and "FAILED - …". SHMSTORE_BOOT_LONG: the watchdog's time is
the unit's own, half a minute.
"""
import json
import os
import pathlib
import pwd
import re
import signal
import stat
import subprocess
import sys
import time
import urllib.request

CLONE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CLONE / "tests/readme"))
import pages

PARTITION = "/run/shmstore"
CONFIG = pathlib.Path("/etc/shmstore/shmstored.conf")
MIB = 1 << 20
EDQUOT = 122
UNITS = ("run-shmstore.mount", "shmstore-init.service", "shmstored.service", "shmstored.socket",
         "shmstored-http.socket")
release, failures = "", 0


def check(what, good, detail=""):
    global failures
    failures += not good
    print(f"{'ok' if good else 'FAILED'} - {release}: {what}" +
          ("\n" + re.sub("(?m)^", "    ", str(detail)[-3000:]) if detail and not good else ""),
          flush=True)
    return good


def run(*words):
    """Status and all output of a command."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


def shell(line):
    return run("bash", "-c", f"cd {CLONE} && {line}")


def output(*words):
    return run(*words)[1].strip()


def works(what, *words):
    """A command that must end well."""
    status, said = run(*words)
    return check(what, status == 0, f"{' '.join(words)}: {status}\n{said}\n{journal()}")


def journal():
    return output("journalctl", "--no-pager", "-o", "cat", "-n", "15", "-u", "shmstored", "-u",
                  "shmstored.socket", "-u", "shmstore-init")


def wait_for(what, condition, seconds=30):
    """Waits until it holds. One check."""
    deadline = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    check(what, held, journal())
    return held


def unit(name, field="ActiveState"):
    return output("systemctl", "show", "--value", "-p", field, name)


def daemon_pid():
    return int(unit("shmstored", "MainPID") or 0)


def admin(*words):
    """The document that shmstore-admin prints; None where it fails."""
    status, said = run("shmstore-admin", "--json", *words)
    return json.loads(said) if status == 0 else None


def used():
    now = os.statvfs(PARTITION)
    return (now.f_blocks - now.f_bfree) * now.f_frsize


class User:
    """A process of user.py, with the environment that a login gives."""

    def __init__(self, who, store):
        self.who, self.uid = who, pwd.getpwnam(who).pw_uid
        self.process = subprocess.Popen(
            ["runuser", "-u", who, "--", "env", f"SHMSTORE_PARTITION={PARTITION}", "python3", "-c",
             (CLONE / "tests/boot/user.py").read_text(), store],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            cwd="/")
        self.store = self("path")["said"]

    def __call__(self, *words):
        try:
            self.process.stdin.write(json.dumps(words) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (BrokenPipeError, ValueError):
            return {"errno": -1, "why": f"{self.who}'s process has ended"}

    def kill(self):
        """Its owner's SIGKILL: the store's process is runuser's child."""
        children = pathlib.Path(
            f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in children or [self.process.pid]:
            os.kill(int(pid), signal.SIGKILL)
        self.process.wait()

    def end(self):
        self.process.stdin.close()
        return self.process.wait()


def registered(users):
    return all(user("registered").get("said") is True for user in users)


# ---- parts of a machine's life -------------------------------------------------------------------


def installs(again=False):
    status, said = shell("cmake --install build/release")
    check(f"cmake --install build/release{', over what is there' if again else ''}", status == 0,
          said)


def starts_without_a_file():
    """docs/operations.md's line, on a host that nobody has configured."""
    check("the installation makes /etc/shmstore", CONFIG.parent.is_dir() and not CONFIG.exists())
    status, said = run("shmstored", "--check-config")
    check("shmstored --check-config without a file: the defaults hold", status == 0 and
          "defaults hold" in said, said)
    line = pages.commands_of(pages.example("docs/operations.md", "Starting it", 1))[0].removeprefix(
        "sudo ")
    works(line, "bash", "-c", line)
    for name in UNITS:
        check(f"{name} is active", unit(name) == "active", unit(name))
    mode = os.stat(PARTITION)
    check("the partition is a mount, and all users'", os.path.ismount(PARTITION) and
          stat.S_IMODE(mode.st_mode) == 0o1777, oct(mode.st_mode))
    works("shmstore-admin status", "shmstore-admin", "status")
    with urllib.request.urlopen("http://127.0.0.1:9477/healthz", timeout=30) as answer:
        check("its page answers at 127.0.0.1:9477", answer.status == 200)


def serves_a_service_without_openat2():
    """DynamicUser= implies RestrictSUIDSGID=."""
    program, dynamic = pathlib.Path("/run/dynamic.py"), pathlib.Path(
        "/run/systemd/system/dynamic.service")
    program.write_text("import shmstore, time\nwith shmstore.Partition().open('dynamic') as "
                       "store:\n    store['k'] = bytes(1 << 20)\n"
                       "    until = time.monotonic() + 30\n    while not store.daemon_dispatch() "
                       "and time.monotonic() < until:\n        time.sleep(0.02)\n"
                       "    assert store.daemon_dispatch() and store['k'] == bytes(1 << 20)\n")
    dynamic.write_text(
        f"[Service]\nType=oneshot\nDynamicUser=yes\nReadWritePaths={PARTITION}\n"
        f"Environment=SHMSTORE_PARTITION={PARTITION}\nExecStart=python3 {program}\n")
    run("systemctl", "daemon-reload")
    status, said = run("systemctl", "start", "dynamic")
    check("a store of a service with DynamicUser= registers, and works", status == 0,
          said + output("journalctl", "--no-pager", "-o", "cat", "-u", "dynamic"))


def is_activated_by_its_socket():
    works("systemctl stop shmstored", "systemctl", "stop", "shmstored")
    check("it has stopped, and its socket has not", unit("shmstored") == "inactive" and
          unit("shmstored.socket") == "active")
    works("a client at the socket starts it", "shmstore-admin", "status")
    check("it runs", unit("shmstored") == "active")


def registers(users):
    wait_for("stores of two users register", lambda: registered(users))
    for user in users:
        check(f"{user.who}'s put", user("put", "kept", 64, 7) == {"said": user.store})
        user("view", "kept")
    rows = {row["path"]: row for row in admin("workers")["partitions"][0]["workers"]}
    check("the daemon names them, and their users",
          all(rows.get(user.store, {}).get("uid") == user.uid for user in users), rows)


def limits_hold(user):
    works("a limit is set", "shmstore-admin", "set", f"user.{user.who}.limit=100MiB")
    answer = user("put", "much", 64, 8)
    check("what passes it is EDQUOT", answer.get("errno") == EDQUOT, answer)
    check("the rest fits", "said" in user("put", "some", 16, 9))
    works("it is taken back", "shmstore-admin", "set", f"user.{user.who}.limit=none")
    check("then it fits", "said" in user("put", "much", 64, 8))


def reaps_the_killed():
    before = used()
    victim = User("carol", "victim")
    wait_for("a third user's store registers", lambda: registered([victim]))
    victim("put", "k", 64, 3)
    check("its object takes memory", used() >= before + 64 * MIB)
    victim.kill()
    wait_for("after kill -9 its memory is free, and its store gone", lambda: used() < before +
             16 * MIB and not os.path.exists(victim.store), 5)
    check("the daemon says that it did that", admin("status")["daemon"]["events"]["store-reaped"] >=
          1)


def hands_over(giver, taker):
    """By a rule, and though a third user was first to put something in the place of inbox/, which
    is not there in every partition."""
    os.rmdir(f"{PARTITION}/inbox")
    CONFIG.parent.joinpath("shmstored.conf.d").mkdir()
    CONFIG.parent.joinpath("shmstored.conf.d", "rule.conf").write_text(
        f'handoff "test" {{ from = {{ "user:{giver.who}" }}\n to = {{ "user:{taker.who}" }} }}\n')
    works("systemctl reload shmstored", "systemctl", "reload", "shmstored")
    works("a third user's symlink takes the place of inbox/", "runuser", "-u", "carol", "--", "ln",
          "-s", "/tmp", f"{PARTITION}/inbox")
    before = sorted(os.listdir("/tmp"))
    answer = giver("handoff", "kept", taker.uid)
    check(f"{giver.who} hands an object to {taker.who}", "said" in answer, f"{answer}\n{journal()}")
    check(f"{taker.who} adopts it", "said" in taker("adopt", "given", answer.get("said", "")))
    check("its bytes are the giver's", taker("same", "given", 7) == {"said": True})
    inbox = os.lstat(f"{PARTITION}/inbox")
    check("inbox/ is root's, and nothing went where the symlink led",
          stat.S_ISDIR(inbox.st_mode) and inbox.st_uid == 0 and
          sorted(os.listdir("/tmp")) == before)
    answer = taker("handoff", "kept", pwd.getpwnam("carol").pw_uid)
    check("without a rule it is refused", answer.get("errno") == 1, answer)


def survives(what, users, old_pid, seconds=30):
    """After that the daemon was another process, nothing is lost."""
    wait_for(f"{what}: another daemon runs", lambda: daemon_pid() not in (0, old_pid) and
             unit("shmstored") == "active", seconds)
    wait_for(f"{what}: stores register again", lambda: registered(users))
    good = all(user("same", "kept", 7) == {"said": True} and "said" in user("put", "after", 1, 4)
               for user in users)
    check(f"{what}: views are as they were, and puts go on", good)


def restarts(users):
    pid = daemon_pid()
    works("systemctl restart shmstored", "systemctl", "restart", "shmstored")
    survives("restarted", users, pid)
    pid = daemon_pid()
    os.kill(pid, signal.SIGKILL)
    survives("killed", users, pid)


def is_watched(users):
    if not os.environ.get("SHMSTORE_BOOT_LONG"):
        short = pathlib.Path("/run/systemd/system/shmstored.service.d/short.conf")
        short.parent.mkdir(parents=True)
        short.write_text("[Service]\nWatchdogSec=1\n")
        works("a shorter watchdog", "bash", "-c", "systemctl daemon-reload && systemctl restart "
                                                  "shmstored")
    pid = daemon_pid()
    os.kill(pid, signal.SIGSTOP)
    check("while the daemon is stopped, a put goes on",
          "said" in users[0]("put", "meanwhile", 1, 5))
    survives("the watchdog ends a daemon that is stopped", users, pid, 90)
    check("the log says that it was the watchdog", "watchdog timeout" in output(
        "journalctl", "--no-pager", "-o", "cat", "-u", "shmstored").lower(), journal())


def is_upgraded(users):
    """As docs/operations.md says. The built files are a little younger now, so
    that each is really written."""
    text = pages.text_of("docs/operations.md")
    steps = re.search(r"An upgrade is the same: install, `(systemctl daemon-reload)`, `(systemctl "
                      r"restart shmstored)`", text)
    pid, before = daemon_pid(), os.stat("/usr/local/sbin/shmstored").st_ino
    shell("find build/release -name '*.so*' -exec touch {} + -o -name '*.a' -exec touch {} + -o "
          "-type f -perm -1 -exec touch {} +")
    installs(again=True)
    check("the program is another file, and who runs keeps the old one",
          os.stat("/usr/local/sbin/shmstored").st_ino != before and
          "(deleted)" in os.readlink(f"/proc/{pid}/exe") and daemon_pid() == pid)
    check("stores go on over the library that was replaced",
          all("said" in user("put", "between", 1, 6) for user in users))
    for step in steps.groups():
        works(step, "bash", "-c", step)
    survives("upgraded", users, pid)
    check("the new program runs", os.stat(f"/proc/{daemon_pid()}/exe").st_ino == os.stat(
        "/usr/local/sbin/shmstored").st_ino)


def refuses_a_wrong_file():
    wrong = CONFIG.parent / "shmstored.conf.d" / "wrong.conf"
    pid = daemon_pid()
    wrong.write_text("daemon {\n credti = 1M\n}\n")
    run("systemctl", "reload", "shmstored")
    check("with a wrong file a reload changes nothing", daemon_pid() == pid and
          unit("shmstored") == "active")
    status, _ = run("systemctl", "restart", "shmstored")
    check("a restart fails once, and the log has file, line and the right key",
          status != 0 and unit("shmstored", "NRestarts") == "0" and f"{wrong}:2" in journal() and
          'did you mean "credit"' in journal(), journal())
    status, said = run("shmstore-admin", "status")
    check("shmstore-admin status says where to look", status == 1 and
          "journalctl -u shmstored" in said, said)
    wrong.unlink()
    wait_for("once that is mended, systemctl start starts it",
             lambda: run("systemctl", "start", "shmstored")[0] == 0)
    check("and its sockets", unit("shmstored.socket") == unit("shmstored-http.socket") == "active")


def nothing_is_lost(users):
    status, said = run("shmstore-admin", "-p", PARTITION, "reconcile")
    check("every byte is accounted for", status == 0, said)
    # The daemon tries each system call that it uses when it starts, and does without some: none of
    # the unit's filters is to refuse any.
    text = output("journalctl", "--no-pager", "-o", "cat", "-u", "shmstored")
    refused = [line for line in text.splitlines()
               if re.search("is refused|not implemented|not permitted|ermission denied", line)]
    check("nothing in its log was refused", not refused, "\n".join(refused))
    for user in users:
        check(f"{user.who}'s process ends well", user.end() == 0)
    wait_for("closed, their stores are gone", lambda: not os.listdir(f"{PARTITION}/stores"))


def begun():
    """Until the machine has begun: which of its own units fail in so bare a
    root is not ours to check."""
    wait_for("the machine has begun", lambda: output("systemctl", "is-system-running") in (
        "running", "degraded"), 60)


def first():
    begun()
    installs()
    starts_without_a_file()
    is_activated_by_its_socket()
    users = [User("alice", "a"), User("bob", "b")]
    registers(users)
    serves_a_service_without_openat2()
    limits_hold(users[0])
    reaps_the_killed()
    hands_over(*users)
    restarts(users)
    is_watched(users)
    is_upgraded(users)
    nothing_is_lost(users)
    refuses_a_wrong_file()


def again():
    begun()
    for name in UNITS:
        check(f"after a reboot {name} is active", unit(name) == "active", unit(name))
    check("the new partition is empty, and all users'", os.path.ismount(PARTITION) and
          not os.listdir(f"{PARTITION}/stores"))
    users = [User("alice", "a"), User("bob", "b")]
    registers(users)
    nothing_is_lost(users)
    # As on a host where nothing was started yet.
    works("systemctl disable --now", "systemctl", "disable", "--now", *UNITS)
    check("it is off", not os.path.ismount(PARTITION) and
          not os.path.exists("/run/shmstored/socket"))
    lines = pages.commands_of(re.search(r"### Installing and starting\n+```\n(.*?)^```$",
                                        pages.text_of("docs/operations.md"), re.S | re.M)[1])
    check("docs/operations.md says how to start it", len(lines) == 6, lines)
    for line in lines:
        status, said = shell(line)
        check(line, status == 0, f"{said}\n{journal()}")
    for name in UNITS:
        check(f"{name} is active", unit(name) == "active", unit(name))
    user = User("carol", "c")
    wait_for("a store registers", lambda: registered([user]))
    user.end()


def main():
    global release
    if sys.argv[1] == "--parts":
        print("first again")
        return 0
    release = sys.argv[1]
    {"first": first, "again": again}[sys.argv[2]]()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
