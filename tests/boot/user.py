# SPDX-License-Identifier: Apache-2.0
"""A user's process in the machine: opens a store, and does what it is told by lines of JSON, each
with one line in answer."""
import json
import sys

import shmstore

MIB = 1 << 20
store = shmstore.Partition().open(sys.argv[1], label="boot", pack_max=0)
views = {}


def same(view, byte):
    return all(bytes(piece).count(byte) == len(piece)
               for piece in (view.buffers[0][at:at + MIB]
                             for at in range(0, view.buffers[0].nbytes, MIB)))


def do(what, key=None, value=None, more=None):
    if what == "put":
        store.put_buffers(key, b"", [bytes([more]) * (value * MIB)], replace=True)
    elif what == "view":
        views[key] = store.view(key)
    elif what == "same":
        return same(views.get(key) or store.view(key), value)
    elif what == "handoff":
        return str(store.handoff(key, lease=600, user=value))
    elif what == "adopt":
        store.adopt(key, value)
    elif what == "registered":
        return store.daemon_dispatch()
    return store.path


for line in sys.stdin:
    try:
        answer = {"said": do(*json.loads(line))}
    except Exception as error:  # whatever it is, who asked is told
        answer = {"errno": getattr(error, "errno", -1), "why": repr(error)}
    print(json.dumps(answer), flush=True)
