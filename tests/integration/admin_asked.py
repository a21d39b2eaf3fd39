# SPDX-License-Identifier: Apache-2.0
"""A daemon that shmstore-admin asks, and what it answers, for tests."""
import json
import os
import select
import signal
import subprocess
import time

import pytest

from admin_support import ADMIN, Admin, bare, environment  # noqa: F401
from daemon import Daemon, wait_for


@pytest.fixture
def host(bare):
    """A partition, a daemon that watches it, and shmstore-admin that asks it:
    host.admin, host.daemon."""

    class Host:
        pass

    h = Host()
    h.path = str(bare)
    Admin(bare)("init")
    with Daemon(bare) as h.daemon:
        h.admin = Admin(bare, env={"SHMSTORE_SOCKET": h.daemon.socket})
        yield h


def partition(document):
    assert len(document["partitions"]) == 1
    return document["partitions"][0]


def by_name(document):
    return {w["name"]: w for w in partition(document)["workers"]}


class Watch:
    """A running "watch --json"."""

    def __init__(self, host, *options, words=("--json",)):
        self.process = subprocess.Popen([str(ADMIN), *words, "watch", *map(str, options)],
                                        stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=environment(**host.admin.env))
        self.buffer = b""

    def begun(self, host):
        """Waits until it tells what happens."""
        wait_for("the watch", lambda: host.admin("set", "soft=31MiB") and
                 select.select([self.process.stdout], [], [], 0.1)[0])

    def line(self, timeout=120):
        deadline = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            assert select.select([self.process.stdout], [], [],
                                 max(0, deadline - time.monotonic()))[0], "no event in time"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"watch ended: {self.process.communicate()}"
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()

    def event(self, name, /, **fields):
        """The next event of that name with those fields; others are passed over."""
        while True:
            e = json.loads(self.line())
            if e["event"] == name and all(e.get(k) == v for k, v in fields.items()):
                return e

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err.decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()
