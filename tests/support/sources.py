# SPDX-License-Identifier: Apache-2.0
"""The files of a tree that tests/columns and tests/sentences read."""
import os
import subprocess


def files_of(top):
    """Paths below top: of all files that git knows or would take; where top is no clone, of all but
    those in build/."""
    listed = subprocess.run(["git", "-C", top, "ls-files", "-z", "-co", "--exclude-standard"],
                            capture_output=True, text=True)
    if listed.returncode == 0:
        return listed.stdout.split("\0")[:-1]
    return [os.path.relpath(os.path.join(path, name), top) for path, directories, names
            in os.walk(top) for name in names
            if not os.path.relpath(path, top).startswith("build")]
