# SPDX-License-Identifier: Apache-2.0
"""Files that are installed beside the programs: units that systemd accepts and finds tight, and
under whose limits the daemon still does its work; names of users, profile, dashboard and alerts
that are about what there is."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from daemon import ACTORD, SHMSTORED, wait_for
from fixture import BUILD, NOBODY, ROOT, SOURCE, Cluster, Place

DEPLOY = SOURCE / "deploy"
SANITIZED = re.search(r"^SHMSTORE_SANITIZE:\w+=.", (BUILD / "CMakeCache.txt").read_text(), re.M)
MIB = 1 << 20
OTHER = 65533


def run(*words, **options):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=120,
                          check=False, **options)


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


@pytest.fixture
def units(tmp_path):
    """The units as they are installed, with programs that are there."""
    shutil.copytree(BUILD / "deploy" / "systemd", tmp_path, dirs_exist_ok=True)
    for path in [*(DEPLOY / "systemd").glob("*.socket"), *(DEPLOY / "systemd").glob("*.mount")]:
        shutil.copy(path, tmp_path)
    for path in tmp_path.glob("*.service"):
        text = re.sub(r"/\S*/shmstored(?=\s|$)", str(SHMSTORED), path.read_text(), flags=re.M)
        path.write_text(re.sub(r"/\S*/shmstore-admin\b", str(BUILD / "tools" / "shmstore-admin"),
                               text))
    return tmp_path


def settings(path):
    """{name: [values]} of a unit."""
    found = {}
    for line in path.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


# ---- units ---------------------------------------------------------------------------------------


@needs("systemd-analyze")
def test_systemd_accepts_the_units(units):
    names = sorted(p.name for p in units.iterdir() if p.suffix in (".service", ".socket", ".mount"))
    assert len(names) == 5, names
    result = run("systemd-analyze", "verify", "--man=no", *(units / n for n in names),
                 env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"})
    ours = [line for line in result.stderr.splitlines() if any(n in line for n in names) or
            str(units) in line]
    assert result.returncode == 0 and not ours, result.stderr


@needs("systemd-analyze")
def test_the_drop_in_has_the_unit_run_shmstore_actord_and_nothing_else(units):
    text = (BUILD / "deploy" / "systemd" / "shmstore-actord.conf").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines[:2] == ["[Service]", "ExecStart="] and len(lines) == 3
    assert re.fullmatch(r"ExecStart=/\S*sbin/shmstore-actord", lines[2])
    place = units / "shmstored.service.d"
    place.mkdir()
    (place / "actord.conf").write_text("\n".join([*lines[:2], f"ExecStart={ACTORD}"]) + "\n")
    result = run("systemd-analyze", "verify", "--man=no", units / "shmstored.service",
                 env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"})
    assert result.returncode == 0 and str(place) not in result.stderr, result.stderr


@needs("systemd-analyze")
def test_service_is_tight(units):
    result = run("systemd-analyze", "security", "--offline=true", "--no-pager",
                 units / "shmstored.service")
    score = re.search(r"Overall exposure level for shmstored.service: ([0-9.]+)", result.stdout)
    assert score, result.stdout + result.stderr
    assert float(score[1]) < 2.0, result.stdout


def test_no_unit_has_a_setting_that_refuses_openat2(units):
    """systemd answers ENOSYS to it in such a unit. tests/boot asks a real one;
    DynamicUser= implies it."""
    for path in units.iterdir():
        assert not {"RestrictSUIDSGID", "DynamicUser"} & settings(path).keys(), path


@needs("systemd-sysusers")
def test_users_and_temporary_files_are_accepted(tmp_path):
    result = run("systemd-sysusers", "--dry-run", DEPLOY / "sysusers.d" / "shmstore.conf")
    assert result.returncode == 0 and "shmstore" in result.stdout + result.stderr, result.stderr
    # tmpfiles knows no dry run: it works below another root.
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (tmp_path / "etc" / "group").write_text("root:x:0:\n")
    result = run("systemd-tmpfiles", f"--root={tmp_path}", "--create",
                 DEPLOY / "tmpfiles.d" / "shmstore.conf")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "run" / "shmstored").is_dir()


@needs("apparmor_parser")
def test_apparmor_profile_compiles_and_names_what_is_used(units):
    profile = BUILD / "deploy" / "apparmor" / "shmstored"
    result = run("apparmor_parser", "--skip-kernel-load", "--skip-cache", "--quiet", profile)
    assert result.returncode == 0, result.stderr
    granted = {"CAP_" + name.upper() for name in re.findall(r"^\s*capability (\w+),",
                                                            profile.read_text(), re.M)}
    words = settings(units / "shmstored.service")["CapabilityBoundingSet"]
    assert granted == set(" ".join(words).split())


# ---- dashboard and alerts ------------------------------------------------------------------------


def metrics_named(text):
    return set(re.findall(r"\bshmstored?_[a-z_]+", text))


def test_dashboard_and_alerts_are_about_metrics_that_exist(make_daemon, plain_cluster):
    tool = plain_cluster.tool("a")
    tool("put", "k", MIB, 1)
    daemon = make_daemon(plain_cluster.place.path, config=f'partition "{plain_cluster.place.path}" '
                                                          f'{{ limit = 100M\n label "x" {{ limit = '
                                                          f'1M }} }}\n')
    wait_for("a survey", lambda: "shmstore_store_pss_bytes{" in daemon.get("/metrics"))
    text = daemon.get("/metrics")
    there = (set(re.findall(r"^# TYPE (\S+)", text, re.M)) | set(
        re.findall(r"^([a-z_]+)[{ ]", text, re.M)))
    dashboard = json.loads((DEPLOY / "grafana" / "shmstore.json").read_text())
    queries = ([t["expr"] for p in dashboard["panels"] for t in p["targets"]] +
               [v["definition"] for v in dashboard["templating"]["list"] if "definition" in v])
    alerts = re.findall(r"^\s*expr: (.*)$", (DEPLOY / "prometheus" / "shmstore.yml").read_text(),
                        re.M)
    assert len(queries) > 20 and len(alerts) > 8
    named = metrics_named("\n".join(queries + alerts))
    assert len(named) > 20 and named <= there, named - there
    # And about labels and events that they have.
    for metric, label in re.findall(r'(shmstored?_[a-z_]+)\{[^}]*?(\w+)="', "\n".join(alerts)):
        assert re.search(rf'^{metric}\{{[^}}]*\b{label}="', text, re.M), (metric, label)
    for event in re.findall(r'event="([a-z-]+)"', "\n".join(alerts)):
        assert f'event="{event}"' in text


def test_queries_keep_to_the_host_that_was_chosen():
    dashboard = json.loads((DEPLOY / "grafana" / "shmstore.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            for selector in re.findall(r"\b(?:shmstored?|process)_\w+(\{[^}]*\})?", target["expr"]):
                assert 'instance=~"$instance"' in selector, (panel["title"], target["expr"])
    titles = " ".join(panel["title"] for panel in dashboard["panels"])
    assert "Arbiter" in titles and "process" in titles


def test_the_commands_that_alerts_name_exist(make_daemon, plain_cluster):
    """Each runs against a daemon; none is wrong usage."""
    plain_cluster.tool("a")
    daemon = make_daemon(plain_cluster.place.path)
    text = " ".join((DEPLOY / "prometheus" / "shmstore.yml").read_text().split())
    commands = {c.strip() for c in re.findall(r"shmstore-admin ((?:[a-z]+)(?: [a-z]+| "
                                              r"--[a-z]+)*?)(?=,|:|\.| names| reads| says| shows| "
                                              r"why|\")", text)}
    assert (len(commands) >= 8 and "watch --events liar" in commands and
            "arb threads" in commands), commands
    for command in sorted(commands):
        words = command.split()
        if words[0] == "watch":
            words += ["--count", "1", "--since", "0"]
        if words == ["set"]:
            words += ["--help"]
        run = subprocess.Popen([BUILD / "tools" / "shmstore-admin", "-p", plain_cluster.place.path,
                                "--socket", daemon.socket, *words],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, err = run.communicate(timeout=3)
        except subprocess.TimeoutExpired:  # it watches
            run.kill()
            run.communicate()
            assert words[0] == "watch", command
            continue
        assert run.returncode != 2, (command, err)


def test_the_process_of_the_daemon_is_measured(make_daemon, plain_cluster):
    plain_cluster.tool("a")
    daemon = make_daemon(plain_cluster.place.path)
    text = daemon.get("/metrics")
    values = dict(re.findall(r"^(process_\w+) (\S+)$", text, re.M))
    assert float(values["process_resident_memory_bytes"]) > 1 << 20
    assert 3 < float(values["process_open_fds"]) < float(values["process_max_fds"])
    assert (float(values["process_cpu_seconds_total"]) >= 0 and
            float(values["process_start_time_seconds"]) > 1e9)


@needs("promtool")
def test_prometheus_accepts_the_alerts():
    result = run("promtool", "check", "rules", DEPLOY / "prometheus" / "shmstore.yml")
    assert result.returncode == 0, result.stdout + result.stderr


# ---- under the service's limits ------------------------------------------------------------------

# Becomes the program under a seccomp filter: the system calls named are
# allowed, the others give EPERM.
FILTER = """
import ctypes, os, re, struct, sys
header = open("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read()
numbers = dict(re.findall(r"#define __NR_(\\w+) (\\d+)", header))
insn = lambda code, jt, jf, k: struct.pack("<HBBI", code, jt, jf, k)
program = (insn(0x20, 0, 0, 4) + insn(0x15, 1, 0, 0xC000003E) + insn(0x06, 0, 0, 0x80000000) +
           insn(0x20, 0, 0, 0))
for name in sys.argv[1].split(","):
    if name in numbers:
        program += insn(0x15, 0, 1, int(numbers[name])) + insn(0x06, 0, 0, 0x7FFF0000)
program += insn(0x06, 0, 0, 0x00050001)
buffer = ctypes.create_string_buffer(program, len(program))
fprog = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(fprog), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[2], sys.argv[2:])
"""


def calls_of(word):
    """The system calls of a word of SystemCallFilter=."""
    if not word.startswith("@"):
        return {word}
    lines = [line.strip() for line in run("systemd-analyze", "syscall-filter",
                                          word).stdout.splitlines()]
    return set().union(*(calls_of(line) for line in lines[1:] if line and not line.startswith("#")))


def allowed_calls(unit):
    allowed = set()
    for line in settings(unit)["SystemCallFilter"]:
        calls = set().union(*(calls_of(word) for word in line.lstrip("~").split()))
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    return allowed


def confined(units):
    """The service's capabilities, umask and system calls, as far as they can be had without
    systemd as the first process."""
    unit = units / "shmstored.service"
    caps = ",".join("+" + c.removeprefix("CAP_").lower()
                    for c in " ".join(settings(unit)["CapabilityBoundingSet"]).split())
    prefix = ["setpriv", f"--bounding-set=-all,{caps}", "--inh-caps=-all", "--no-new-privs", "--",
              "bash", "-c", 'umask 0077; exec "$@"', "bash"]
    if os.uname().machine == "x86_64" and shutil.which("systemd-analyze") and not SANITIZED:
        calls = allowed_calls(unit)
        assert ({"read", "io_uring_enter", "execve"} <= calls and
                not {"setuid", "mount", "ptrace", "reboot", "kexec_load"} & calls)
        prefix += [sys.executable, "-c", FILTER, ",".join(sorted(calls))]
    return prefix


def user(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]


@pytest.mark.skipif(not ROOT, reason="needs root: other users")
@needs("setpriv")
def test_daemon_works_under_the_limits_of_its_service(make_daemon, units, monkeypatch):
    """A store of another user is accounted, its ghost named, its object handed to a third one, its
    dead owner's memory freed."""
    place = Place()
    cluster = Cluster(place)
    try:
        subprocess.run([str(BUILD / "tools" / "shmstore-admin"), "-p", place.path, "init",
                        "--shared"], check=True, capture_output=True)
        rule = f'handoff "h" {{ from = {{ "uid:{NOBODY}" }}\n to = {{ "uid:{OTHER}" }} }}\n'
        daemon = make_daemon(config=f'partition "{place.path}" {{ }}\n{rule}',
                             prefix=confined(units))
        monkeypatch.setenv("SHMSTORE_SOCKET", daemon.socket)
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        assert (bin(int(re.search(r"CapEff:\s*(\w+)", status)[1], 16)).count("1") == 6 and
                "NoNewPrivs:\t1" in status)
        assert FILTER not in daemon.prefix or "Seccomp:\t2" in status
        giver, taker = cluster.tool("giver", prefix=user(NOBODY)), cluster.tool(
            "taker", prefix=user(OTHER))
        giver("put", "given", MIB, 1)
        taker("adopt", "given", *giver("handoff_to", "given", OTHER, 60000))
        assert taker.same("given", MIB, 1)
        giver("put", "k", 4 * MIB, 2)
        giver("hold", "view", "k")
        giver("delete", "k")
        with daemon.wire() as wire:
            status = wire.query("reconcile")["partitions"][0]["survey"]
            holders = wire.query("holders")["partitions"][0]["holders"]
        assert [h["pid"] for h in holders if h["bytes"] >= 4 * MIB] == [giver.pid], holders
        assert status["residual"] == 0 and status["ghosts"] >= 4 * MIB, status
        used = place.used()
        giver.kill()
        wait_for("the dead user's memory", lambda: place.used() <= used - 4 * MIB)
        wait_for("the dead user's store", lambda: sorted(os.listdir(f"{place.path}/stores")) == [
            "taker"])
        assert taker.same("given", MIB, 1)
        taker.end()
        assert "errno=" not in daemon.log(), daemon.log()
    finally:
        cluster.stop()
        place.remove()


@pytest.mark.skipif(not ROOT, reason="needs root: other users")
@needs("setpriv")
def test_daemon_demotes_under_the_limits_of_its_service(make_daemon, units):
    """Another user's objects go to the disk, into that user's directory, but for one that
    is in use, and come back."""
    place = Place(size="64m")
    cluster = Cluster(place)
    disk = Path(tempfile.mkdtemp(prefix="shmstore-tier-",
                                 dir=os.environ.get("SHMSTORE_TEST_DISK", "/var/tmp")))
    try:
        disk.chmod(0o755)
        subprocess.run([str(BUILD / "tools" / "shmstore-admin"), "-p", place.path, "init",
                        "--shared"], check=True, capture_output=True)
        daemon = make_daemon(config=f'partition "{place.path}" {{ disk.path = "{disk}"\n '
                                    f'disk.min-free = 0 }}\n', prefix=confined(units))
        with daemon.wire() as wire:
            wait_for("the tier", lambda: wire.query("status")["partitions"][0]["tier"])
        tool = cluster.tool("s", "norecycle", prefix=user(NOBODY))
        tool("put", "viewed", MIB, 100)
        tool("hold", "view", "viewed")
        for i in range(56):
            tool("put", f"k{i}", MIB, i)
        wait_for("less than 75 %", lambda: place.used() <= 48 * MIB)
        files = [p for p in disk.rglob("*") if re.fullmatch("[0-9a-f]{16}", p.name)]
        assert len(files) >= 8 and {p.stat().st_uid for p in files} == {NOBODY}
        assert tool("locate", "viewed") == ["memory"], (
            "what is mapped is the last to go: CAP_LEASE tells")
        assert all(tool.same(f"k{i}", MIB, i) for i in range(56))
        tool("drop", "view")
        assert "errno=" not in daemon.log(), daemon.log()
    finally:
        cluster.stop()
        place.remove()
        shutil.rmtree(disk, ignore_errors=True)
