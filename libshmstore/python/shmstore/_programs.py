# SPDX-License-Identifier: Apache-2.0
"""The programs of the wheel, as commands: shmstore-admin and shmstored. python3 -m shmstore._programs prints the directory of the pkg-config file."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__))


def admin() -> NoReturn:
    _become("shmstore-admin")


def daemon() -> NoReturn:
    _become("shmstored")


def _become(name: str) -> NoReturn:
    os.execv(os.path.join(_HERE, "bin", name), [name, *sys.argv[1:]])


if __name__ == "__main__":
    print(os.path.join(_HERE, "lib", "pkgconfig"))
