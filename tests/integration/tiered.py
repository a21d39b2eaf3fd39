# SPDX-License-Identifier: Apache-2.0
"""A cluster (fixture.py) whose partition has a disk tier. The tests see the tier's content by its
file names, and do not ask the library."""
import os
import shutil
import subprocess
import tempfile

import pytest
from fixture import Cluster, Place


class Disk:
    """A directory for tier files, on a file system that is not memory."""

    def __init__(self):
        base = os.environ.get("SHMSTORE_TEST_DISK", "/var/tmp")
        kind = subprocess.run(["stat", "-f", "-c", "%T", base], capture_output=True, text=True,
                              check=True).stdout.strip()
        if kind in ("tmpfs", "ramfs"):
            pytest.skip(f"{base} is in memory: set SHMSTORE_TEST_DISK to a directory on disk")
        self.base = tempfile.mkdtemp(prefix="shmstore-test-tier-", dir=base)
        self.path = os.path.join(self.base, "disk")  # what a test moves away lies beside it
        os.chmod(self.base, 0o755)
        os.mkdir(self.path, 0o700)

    def files(self, uid=None):
        """Tier files of one user, or of all."""
        found = []
        for below, _, names in os.walk(self.path):
            if uid is None or os.path.basename(below) == str(uid):
                found += [os.path.join(below, name) for name in names if name != "partition"]
        return sorted(found)

    def remove(self):
        shutil.rmtree(self.base, ignore_errors=True)


class Tiered(Cluster):
    """A cluster whose partition has a tier."""

    def __init__(self, size="512m", **tier):
        super().__init__(Place(size=size))
        self.disk = Disk()
        self.tool()("tier", self.disk.path, *(f"{name}={value}" for name, value in tier.items()))

    def residents(self):
        return [name for _, _, names in os.walk(os.path.join(self.place.path, "tier"))
                for name in names if name.endswith(".object")]

    def anchors(self):
        return [name for _, _, names in os.walk(os.path.join(self.place.path, "tier"))
                for name in names if name.endswith(".stub")]

    def nothing_left(self):
        super().nothing_left()
        assert self.disk.files() == [] and self.anchors() == [] and self.residents() == []

    def remove(self):
        super().remove()
        self.disk.remove()


def give(donor, receiver, key, *options):
    ticket, = donor("handoff", key, 60000, *options)
    receiver("adopt", key, ticket)


def share(tools, key, size, seed):
    tools[0]("put", key, size, seed)
    for tool in tools[1:]:
        give(tools[0], tool, key)


def where(tools, key):
    return [tool("locate", key)[0] for tool in tools]


def inode(cluster, store, key):
    return os.lstat(os.path.join(cluster.place.path, "stores", store, "objects", key)).st_ino


def read_from_disk(tools):
    """Bytes that these processes have read from disks so far."""
    total = 0
    for tool in tools:
        with open(f"/proc/{tool.pid}/io", encoding="ascii") as file:
            total += next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))
    return total
