# SPDX-License-Identifier: Apache-2.0
"""A worker of the tests of stages: stageworker.py PARTITION NAME opens a store by the Python
package, and runs the Python code in each line of its input (a JSON text); it answers a line with
what the code called `result`, or with the error."""
import gc
import json
import os
import sys

import shmstore

MIB = 1 << 20


def rss_anon():
    """Bytes of the process's own memory, as the kernel counts them."""
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("RssAnon:"))


def main():
    store = shmstore.Partition(sys.argv[1], create=True).open(sys.argv[2])
    scope = {"store": store, "shmstore": shmstore, "MIB": MIB, "rss_anon": rss_anon, "gc": gc,
             "os": os}
    for line in sys.stdin:
        scope["result"] = None
        try:
            exec(json.loads(line), scope)
            answer = {"result": scope["result"]}
        except Exception as error:  # the test looks at it
            answer = {"error": type(error).__name__, "errno": getattr(error, "errno", None),
                      "text": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
