# SPDX-License-Identifier: Apache-2.0
"""A partition with a disk tier for the tests of shmstore-admin, and what is in it, as the
commands and the disk tell it."""
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from admin_support import ROOT, unmount

MIB = 1 << 20


@pytest.fixture
def disk():
    """A directory on a disk."""
    d = Path(tempfile.mkdtemp(prefix="shmstore-tier-", dir="/var/tmp"))
    try:
        kind = subprocess.run(["stat", "-f", "-c", "%T", d], capture_output=True,
                              check=True).stdout.strip()
        if kind == b"tmpfs":
            pytest.skip("/var/tmp is in memory")
        yield d
    finally:
        unmount(d)
        shutil.rmtree(d, ignore_errors=True)


@pytest.fixture
def tiered(admin, disk):
    """shmstore-admin on a partition that has a tier."""
    admin("tier", "--set", disk)
    return admin


def tier_files(disk):
    return sorted(p for p in Path(disk).rglob("*") if p.is_file() and
                  re.fullmatch("[0-9a-f]{16}", p.name))


def objects(admin):
    return {o["key"]: o for o in admin.json("ls")["objects"]}


def where(admin):
    return {key: "tier" if o["demoted"] else "pinned" if o["pinned"] else "memory"
            for key, o in objects(admin).items()}


def books_close(admin):
    """Both equations, to the byte."""
    r = admin.json("reconcile", code=None)
    assert r["tier"] == r["tier_demoted"] + r["tier_clean"] + r["tier_orphans"]
    if ROOT:
        assert r["residual"] == 0, r
    return r
