# SPDX-License-Identifier: Apache-2.0
"""python3 -m shmstore._pkgconfig prints the directory of the wheel's pkg-config file."""

import os

if __name__ == "__main__":
    print(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "pkgconfig"))
