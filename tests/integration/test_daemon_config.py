# SPDX-License-Identifier: Apache-2.0
"""shmstored as its service manager and its administrator see it: configuration, reload, drop-ins,
readiness, watchdog, sockets that are handed over, and ending in good order."""
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from daemon import ACTORD, SHMSTORED, Closed, Wire, wait_for
from fixture import SOURCE, Place

KEYS = re.findall(r'^KEY\((\w+), "([^"]+)"',
                  (SOURCE / "shmstored" / "config" / "config.def").read_text(), re.M)
MIB = 1 << 20
NETLINK_SOCK_DIAG = 4


@pytest.fixture
def place():
    place = Place()
    os.mkdir(place.path, 0o1777)
    try:
        yield place
    finally:
        place.remove()


def check(path, *options, program=SHMSTORED):
    return subprocess.run([str(program), "--check-config", "--config", str(path), *options],
                          capture_output=True, text=True, timeout=60, check=False)


def partition(place, keys=""):
    return f'partition "{place.path}" {{\n create = yes\n{keys} }}\n'


def hard(daemon, kind="partition", name=""):
    """A limit as the daemon has it now."""
    for line in daemon.admin("quota")["partitions"][0]["limits"]:
        if line["kind"] == kind and line["id"] == name:
            return line["hard"]
    return None


# ---- reading it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text, line, words", [
    ("daemon {\n credti = 1M\n}\n", 2, ["credti", 'did you mean "credit"?']),
    ("pressure {\n memory_usage_threshold = 0.9\n}\n", 2,
     ["memory_usage_threshold", 'here that is "pressure { kill = ... }"']),
    ("RAY_memory_monitor_refresh_ms = 100\n", 1, ['here that is "pressure { interval = ... }"']),
    ("spark.gluten.auto.adjustStageResources.offheap.ratio = 0.5\n", 1,
     ['here that is "stage { shared-ratio = ... }"']),
    ("spark.gluten.auto.adjustStageResources.heap.ratio = 3.0\n", 1,
     ['here that is "stage { private-ratio = ... }"']),
    ("http {\n enabld = no\n}\n", 2, ['did you mean "enabled"?']),
    ('partition "/x" {\n suvey-interval = 5s\n}\n', 2, ['did you mean "survey-interval"?']),
    ('partition "/x" {\n usr "0" { limit = 1M }\n}\n', 2, ['did you mean "user"?']),
    ('handof "x" {\n}\n', 1, ['did you mean "handoff"?']),
    ("daemon {\n\n psi = perhaps\n}\n", 3, ["perhaps", "yes or no"]),
    ("daemon {\n credit = 100%\n}\n", 2, ["credit", "100%"]),
    ("http {\n port = 65536\n}\n", 2, ["port", "65536"]),
    ('partition "/x" {\n limit = 2M\n soft = 3M\n}\n', 4, ["soft is more than limit"]),
    ('partition "/x" { }\npartition "/x" { }\n', 2, ["duplicate"]),
    ('partition "/x" {\n user "nobody here" { limit = 1M }\n}\n', 2,
     ["nobody here", "no such user"]),
    ("daemon {\n", 2, ['"}" is missing']),
    ('partition "/x" {\n disk.pth = "/y"\n}\n', 2, ["disk.pth", 'did you mean "disk.path"?']),
    ('partition "/x" {\n disk.path = "y"\n}\n', 2, ["disk.path", "an absolute path, or none"]),
    ('partition "/x" {\n disk.high = 85\n}\n', 2, ["disk.high", "85%"]),
    ('partition "/x" {\n disk.level = 20\n}\n', 2, ["disk.level", "20"]),
])
def test_wrong_configuration_names_file_line_and_what_to_do(tmp_path, text, line, words):
    path = tmp_path / "shmstored.conf"
    path.write_text(text)
    result = check(path)
    assert result.returncode == 2 and result.stdout == ""
    assert f"{path}:{line}: " in result.stderr, result.stderr
    for word in words:
        assert word in result.stderr
    # Not only when asked: it does not start with it either.
    assert subprocess.run([str(SHMSTORED), "--config", str(path)], capture_output=True, timeout=60,
                          check=False).returncode == 2


def test_each_key_mistyped_finds_itself(tmp_path):
    path = tmp_path / "shmstored.conf"
    for section, key in KEYS:
        if len(key) < 6:
            continue
        title = ' "/x"' if section == "PARTITION" else ""
        path.write_text(f"{section.lower()}{title} {{\n {key[:-2]}{key[-1]}{key[-2]}x = 1\n}}\n")
        result = check(path)
        assert result.returncode == 2 and f'did you mean "{key}"?' in result.stderr, result.stderr


def test_right_configuration_is_said_to_be(tmp_path):
    path = tmp_path / "shmstored.conf"
    path.write_text('partition "/x" { limit = 1G }\n')
    result = check(path)
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{path}: ok\n", "")


def test_missing_file_and_wrong_usage_are_2(tmp_path):
    assert check(tmp_path / "none").returncode == 2
    for words in (["--no-such"], ["argument"], ["--config"]):
        assert subprocess.run([str(SHMSTORED), *words], capture_output=True, timeout=60,
                              check=False).returncode == 2


def test_manual_and_example_have_every_key_and_no_other(tmp_path):
    limits = {"limit", "soft", "from", "to"}
    assert len(KEYS) > 15
    names = {key for _, key in KEYS} | limits
    manual = (SOURCE / "docs" / "man" / "shmstored.conf.5").read_text()
    assert set(re.findall(r"^\.It Cm (\S+)$", manual, re.M)) == names
    # The example with its comment signs taken away is a configuration, and says the
    # defaults: of each key its own.
    example = (SOURCE / "deploy" / "shmstored.conf").read_text()
    keys = re.findall(r"^[#\t ]*([a-z.-]+) = ", example, re.M)
    assert set(keys) == names
    lines = [re.sub(r"^(\s*)# ?(?=\s*([a-z.-]+ = |[a-z]+ \"|\}))", r"\1", line)
             for line in example.split("\n")]
    text = "\n".join(lines).replace('"alice"', '"root"').replace("user:etl", "user:root").replace(
        "group:analysts", "group:root")
    path = tmp_path / "shmstored.conf"
    path.write_text(text.replace('socket-group = "shmstore"', 'socket-group = "root"'))
    result = check(path, program=ACTORD)
    assert result.returncode == 0, f"{result.stderr}{path.read_text()}"
    result = check(path)
    assert result.returncode == 2 and "run shmstore-actord in its place" in result.stderr
    assert len(re.findall(r"^\s*[a-z.-]+ = ", path.read_text(), re.M)) >= len(names)


def test_dropins_are_read_by_name_after_the_file(make_daemon, place):
    daemon = make_daemon(config=partition(place, " limit = 10M\n soft = 9M\n"), start=False)
    directory = Path(daemon.config + ".d")
    directory.mkdir()
    (directory / "20-more.conf").write_text(f'partition "{place.path}" {{ limit = 30M }}\n')
    (directory / "10-less.conf").write_text(f'partition "{place.path}" {{ limit = 20M\n label "x" '
                                            f'{{ limit = 1M }} }}\n')
    (directory / ".hidden.conf").write_text("nonsense\n")
    (directory / "30-other.txt").write_text("nonsense\n")
    daemon.start()
    assert hard(daemon) == 30 * MIB and hard(daemon, "label", "x") == MIB
    (directory / "40-wrong.conf").write_text("daemon {\n\n credti = 1M }\n")
    assert f"{directory}/40-wrong.conf:3: " in check(daemon.config).stderr


# ---- reloading it --------------------------------------------------------------------------------


def reload_and_wait(daemon):
    daemon.reload()
    states = []
    while not states or "READY=1" not in states[-1]:
        state = daemon.listen(30)
        assert state, daemon.log()
        states.append(state)
    assert any("RELOADING=1" in state and "MONOTONIC_USEC=" in state for state in states), states


def test_reload_applies_limits_rules_and_log_level(make_daemon, place):
    daemon = make_daemon(config=partition(place, " limit = 10M\n"))
    assert hard(daemon) == 10 * MIB
    daemon.write_config('daemon { log-level = error }\nhandoff "h" { from = { any }\n to = { any } '
                        '}\n' + partition(place, ' limit = 20M\n label "x" { limit = 1M }\n'))
    reload_and_wait(daemon)
    assert hard(daemon) == 20 * MIB and hard(daemon, "label", "x") == MIB
    before = daemon.log()
    reload_and_wait(daemon)
    assert daemon.log() == before, "log-level = error says no more than errors"


def test_bad_reload_is_refused_and_the_old_one_stays(make_daemon, place):
    daemon = make_daemon(config=partition(place, " limit = 10M\n"))
    daemon.write_config(partition(place, " limit = 20M\n sotf = 1M\n"))
    reload_and_wait(daemon)
    assert re.search(r'shmstored\.conf:\d+: .*did you mean "soft"', daemon.log())
    assert hard(daemon) == 10 * MIB
    with daemon.wire() as wire:
        wire.ping()
    # A file with a change that needs a restart is refused as a whole.
    daemon.write_config('partition "/dev/shm/another" { }\n' + partition(place, " limit = 20M\n"))
    reload_and_wait(daemon)
    assert "needs a restart" in daemon.log() and hard(daemon) == 10 * MIB
    daemon.write_config(partition(place, " limit = 30M\n"))
    reload_and_wait(daemon)
    assert hard(daemon) == 30 * MIB


# ---- beginning and ending ------------------------------------------------------------------------


def test_watchdog_is_fed_as_long_as_the_loop_runs(make_daemon, place):
    daemon = make_daemon(config=partition(place), start=False,
                         environment={"WATCHDOG_USEC": "300000"})
    daemon.start()
    for _ in range(5):
        assert "WATCHDOG=1" in daemon.listen(30)
    os.kill(daemon.pid, signal.SIGSTOP)
    wait_for("the daemon to stop",
             lambda: "T (stopped)" in Path(f"/proc/{daemon.pid}/status").read_text())
    while daemon.listen(0.001):
        pass
    assert daemon.listen(1) == "", "a stopped loop feeds nothing"
    os.kill(daemon.pid, signal.SIGCONT)
    assert "WATCHDOG=1" in daemon.listen(30)


def test_term_drains_with_clients_connected(make_daemon, place):
    daemon = make_daemon(config=partition(place))
    wires = [daemon.wire() for _ in range(20)]
    for wire in wires:
        wire.ping()
    daemon.process.terminate()
    reasons = set()
    for wire in wires:
        with pytest.raises(Closed) as closed:
            wire.receive()
        reasons.add(closed.value.reason)
        wire.close()
    assert daemon.process.wait(30) == 0, daemon.log()
    assert all(reason and "ends" in reason for reason in reasons), reasons
    assert not os.path.exists(daemon.socket)
    said = []
    while True:
        state = daemon.listen(0.01)
        if not state:
            break
        said.append(state)
    assert any("STOPPING=1" in state for state in said)


def test_interrupt_ends_it_as_term_does(make_daemon, place):
    daemon = make_daemon(config=partition(place))
    daemon.process.send_signal(signal.SIGINT)
    assert daemon.process.wait(30) == 0


def test_second_instance_is_refused_and_says_why(make_daemon, place):
    daemon = make_daemon(config=partition(place))
    other = Place()
    try:
        words = [str(SHMSTORED), "--config", os.devnull, "--socket", daemon.socket, "--partition"]
        os.mkdir(other.path)
        result = subprocess.run([*words, place.path], capture_output=True, text=True, timeout=60,
                                check=False)
        assert (result.returncode == 1 and "another daemon" in result.stderr and
                place.path in result.stderr)
        config = Path(daemon.directory) / "other.conf"
        config.write_text(f'http {{ enabled = no }}\npartition "{other.path}" {{ create = yes }}\n')
        result = subprocess.run([str(SHMSTORED), "--config", str(config), "--socket",
                                 daemon.socket], capture_output=True, text=True, timeout=60,
                                check=False)
        assert result.returncode == 1 and "another daemon has its lock" in result.stderr, (
            result.stderr)
    finally:
        other.remove()
    with daemon.wire() as wire:
        wire.ping()


def test_taken_http_port_stops_nobody_else(make_daemon, place):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        daemon = make_daemon(config=f"http {{\n port = {taken.getsockname()[1]}\n}}\n" +
                             partition(place))
        with daemon.wire() as wire:
            wire.ping()
        assert "HTTP cannot listen" in daemon.log()


def test_sockets_are_taken_from_the_service_manager(make_daemon, place, tmp_path):
    """As shmstored.socket and shmstored-http.socket hand them over; a client that came
    before the daemon is served."""
    path = str(tmp_path / "activated")
    with (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening,
          socket.socket() as http,
          socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as diag):
        listening.bind(path)
        listening.listen(16)
        http.bind(("127.0.0.1", 0))
        http.listen(16)
        with Wire(path, hello=False) as early:
            serial = early.send("HELLO", 1, 1, 0)
            daemon = make_daemon(config=partition(place), handed=[http, diag, listening])
            daemon.port = http.getsockname()[1]
            assert early.reply(serial).name == "WELCOME"
            early.ping()
            assert not os.path.exists(daemon.socket), "it made no socket of its own"
            assert "shmstored_build_info" in daemon.get("/metrics")
            daemon.stop()
        assert os.path.exists(path), "the socket is the service manager's"
        daemon.restart()
        with Wire(path) as wire:
            wire.ping()
