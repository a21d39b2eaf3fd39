# SPDX-License-Identifier: Apache-2.0
"""A limit refuses only what the kernel's own count would: not for what a killed process had, nor
for what went to the disk tier.

SHMSTORE_KILLS=50 and SHMSTORE_SECONDS=60 for the long way.
"""
import os
import random
import threading
import time

import pytest
from daemon import wait_for
from tiered import Tiered

MIB = 1 << 20
KILLS = int(os.environ.get("SHMSTORE_KILLS", "5"))
SECONDS = float(os.environ.get("SHMSTORE_SECONDS", "5"))
USER = str(os.geteuid())


def user_line(daemon):
    with daemon.wire() as wire:
        (partition,) = wire.query("quota")["partitions"]
    (line,) = [line for line in partition["limits"] if (line["kind"], line["id"]) == ("user", USER)]
    return line


def run_and_kill(tool, name, most):
    job = tool(name)
    codes = [job.code("put", f"k{n}", 49 * MIB, n) for n in range(most)]
    job.kill()
    return codes


def test_killed_and_restarted_at_once(hosts):
    """343 MiB under a limit of 400, again and again: what the last one had
    is free when df says so."""
    _, daemon, tool = hosts(f'user "{USER}" {{ limit = "400MiB" }}', size="1g")
    for n in range(KILLS):
        assert run_and_kill(tool, "job", 7) == [0] * 7, f"restart {n}: {user_line(daemon)}"


def test_killed_and_restarted_under_another_name(hosts):
    """The same where the opener sweeps, and where somebody else has memory too, which df counts."""
    _, daemon, tool = hosts(f'user "{USER}" {{ limit = "400MiB" }}\nlabel "other" {{ limit = '
                            f'"300MiB" }}', size="1g")
    other = tool("other", "label=other")
    for n in range(4):
        assert other.code("put", f"o{n}", 10 * MIB, n) == 0
    for n in range(KILLS):
        assert run_and_kill(tool, f"job{n}", 7) == [0] * 7, f"restart {n}: {user_line(daemon)}"


def play(tool, name, errors, until, seed):
    rng = random.Random(seed)
    there = set()
    try:
        while time.monotonic() < until:
            n = rng.randrange(35)
            key = f"{name}{n}"
            code = (tool.code("get", key, 8 * MIB, n) if n in there
                    else tool.code("put", key, 8 * MIB, n))
            there.add(n)
            if code:
                errors.append((name, key, code))
                return
    except Exception as error:  # told by the test, not by a thread's trace
        errors.append((name, repr(error)))


@pytest.fixture
def tiered():
    """Older than the daemon, so that it outlives it."""
    cluster = Tiered(size="512m")
    yield cluster
    cluster.remove()


def test_two_with_a_tier(tiered, make_daemon):
    """70 objects of 8 MiB, 400 MiB of memory for them: nothing is refused while the disk has room,
    and no more is granted than there is."""
    config = f'partition "{tiered.place.path}" {{\nuser "{USER}" {{ limit = "400MiB" }}\n}}'
    daemon = make_daemon(config=config, http=False)
    tools = [tiered.tool(name, prefix=("env", f"SHMSTORE_SOCKET={daemon.socket}")) for name in "ab"]
    errors, over = [], []
    until = time.monotonic() + SECONDS
    threads = [threading.Thread(target=play, args=(t, n, errors, until, i))
               for i, (t, n) in enumerate(zip(tools, "ab"))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        line = user_line(daemon)
        if line["used"] + line["outstanding"] > line["hard"]:
            over.append(line)
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    assert errors == []
    assert over == []
    for tool in tools:
        tool.end()
    wait_for("the stores are gone", lambda: user_line(daemon)["stores"] == 0)
