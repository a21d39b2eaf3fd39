# SPDX-License-Identifier: Apache-2.0
"""Where a Python looks for packages, below a prefix that it may know: python3 place.py
PREFIX; for CMake's installation.

Of the folders that this interpreter searches the first one below PREFIX; where it searches none
there, the one that it has below its own prefix.
"""
import site
import sys

for prefix in (sys.argv[1].rstrip("/"), sys.prefix):
    below = [path[len(prefix) + 1 :] for path in site.getsitepackages()
             if path.startswith(prefix + "/")]
    below = [path for path in below if not path.startswith("local/")]  # that is another prefix
    if below:
        print(below[0], end="")
        break
