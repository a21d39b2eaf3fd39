#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the targets out of the JSON that bench/run keeps: met or not, and with which figures. Exit
status 1: one is missed."""

import json
import sys
from pathlib import Path


def spread(target: dict) -> str:
    return f"[{target['min']:.3g} .. {target['max']:.3g}]" if "min" in target else ""


def main() -> int:
    missed = 0
    for path in sorted(Path(sys.argv[1]).glob("bench_*.json")):
        report = json.loads(path.read_text())
        print(f"\n{report['bench']}: {report['cpu']}, kernel {report['kernel']}, "
              f"{report['rounds']} rounds"
              + (", quick" if report["quick"] else ""))
        for note in report["notes"]:
            print(f"  {note}")
        for skipped in report["skipped"]:
            print(f"  skipped: {skipped['what']}: {skipped['reason']}")
        for target in report["targets"]:
            missed += not target["met"]
            print(f"  {'met    ' if target['met'] else 'NOT MET'} {target['id']:3} "
                  f"{target['what']}: {target['value']:.3g} "
                  f"{target['unit']} {spread(target)}, promised {target['relation']} "
                  f"{target['target']:.3g}")
    print(f"\n{missed} missed" if missed else "\nall met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
