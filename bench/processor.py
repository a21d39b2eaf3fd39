# SPDX-License-Identifier: Apache-2.0
"""Names the processor, which a figure means nothing without."""
import os
import re
import sys
from pathlib import Path


def processor():
    """'2 x AMD EPYC, family 26, model 2', as the kernel tells it; on 64-bit Arm the
    implementer's and the part's number."""
    text = Path("/proc/cpuinfo").read_text()

    def field(name):
        match = re.search(rf"^{name}\s*:\s*(.*)$", text, re.M)
        return match[1] if match else "?"

    if "CPU part" in text:
        what = f"Arm, implementer {field('CPU implementer')}, part {field('CPU part')}"
    else:
        what = f"{field('model name')}, family {field('cpu family')}, model {field('model')}"
    return f"{os.cpu_count()} x {what}"


def say_processor():
    print(f"processor: {processor()}", file=sys.stderr, flush=True)
