# SPDX-License-Identifier: Apache-2.0
"""%share and %shared, in two IPythons. Skipped where IPython or cloudpickle is not installed."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("IPython")
pytest.importorskip("cloudpickle")  # a class of the first one goes along

FIRST = """
%load_ext shmstore
import numpy
class Point:
    def __init__(self, x): self.x = x

a, p = numpy.arange(100_000), Point(7)
%share a p
print("ready")
"""
SECOND = """
%load_ext shmstore
%shared
%shared a p
print(int(a.sum()), p.x, a.flags.writeable)
a[0] = 5
%shared none
%share nothing
%share -d a
"""


def ipython(place, directory):
    return subprocess.Popen([sys.executable, "-m", "IPython", "--colors=NoColor", "--simple-prompt",
                             "--quick", "--no-banner", "--no-confirm-exit"],
                            env={**os.environ, "SHMSTORE_PARTITION": place.path,
                                 "IPYTHONDIR": str(directory)},
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def test_variables_go_from_one_notebook_to_another(place, tmp_path):
    with ipython(place, tmp_path / "1") as first, ipython(place, tmp_path / "2") as second:
        first.stdin.write(FIRST)
        first.stdin.flush()
        while "ready" not in (line := first.stdout.readline()):
            assert line
        out, _ = second.communicate(SECOND, timeout=60)
        first.communicate("", timeout=60)
    assert "4999950000 7 True" in out, out
    assert "a " in out and f"process {first.pid}" in out and "781.2 KiB" in out
    assert ("%shared none: no notebook shares it" in out and
            "%share nothing: there is no such variable" in out)
    assert "%share -d a: this notebook does not share it" in out
