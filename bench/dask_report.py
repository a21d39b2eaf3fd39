# SPDX-License-Identifier: Apache-2.0
"""Text for people: sizes, a progress line, the table of two runs side by side."""
import argparse
import re
import sys
import time

SIDES = {"stock": "stock Dask", "shmstore": "shmstore"}
UNITS = {"": 1, "B": 1, "K": 10, "KB": 10, "KIB": 10, "M": 20, "MB": 20, "MIB": 20, "G": 30,
         "GB": 30, "GIB": 30}


def parse_size(text):
    """'1GiB', '512M', '65536' -> bytes; units are powers of 1024."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: a number with B, KiB, MiB or GiB")
    unit = UNITS[match[2].upper()]
    return int(float(match[1]) * (1 if unit == 1 else 1 << unit))


def mib(size):
    return f"{size / (1 << 20):,.0f} MiB"


class Line:
    """One line per run that fills up while it runs; on a terminal only."""

    def __init__(self, label, file=sys.stderr):
        self.label, self.file, self.live = label, file, file.isatty()
        self.last = 0.0
        self.write("starting the cluster")

    def write(self, text, end=False):
        if self.live:
            print(f"\r\x1b[K{self.label:<10} {text}", end="\n" if end else "", file=self.file,
                  flush=True)
        elif end or time.monotonic() - self.last > 5:
            self.last = time.monotonic()
            print(f"{self.label:<10} {text}", file=self.file, flush=True)

    def progress(self, done, total, seconds, memory):
        if total == 0:
            return
        share = done / total
        bar = "#" * int(24 * share)
        self.write(f"[{bar:<24}] {done}/{total} tasks  {seconds:5.1f} s  {mib(max(0, memory))}")

    def end(self, result):
        self.write(f"{result['wall']:.1f} s, {mib(result['peak'])} at the peak", end=True)


def times(stock, ours, words=("less", "more")):
    """'3.6 x less', '1.2 x more', 'the same'."""
    if ours <= 0:
        return "none" if stock > 0 else "-"
    ratio = stock / ours
    if 0.95 < ratio < 1.05:
        return "the same"
    text = f"{ratio:,.1f}" if ratio >= 1 else f"{1 / ratio:,.1f}" if ratio > 0 else "-"
    return "-" if ratio == 0 else f"{text} x {words[0] if ratio > 1 else words[1]}"


def table(head, rows):
    """Columns as wide as they need to be; the first one to the left, the others to the right."""
    widths = [max(len(str(row[i])) for row in [head, *rows]) for i in range(len(head))]

    def line(row):
        cells = ([f"{row[0]:<{widths[0]}}"] + [f"{cell:>{width}}" for cell, width in zip(
            row[1:], widths[1:])])
        return "  ".join(cells).rstrip()

    return "\n".join([line(head), "  ".join("-" * width for width in widths), *map(line, rows)])


def side_by_side(results):
    stock, ours = results["stock"], results["shmstore"]
    rows = [
        ("time", f"{stock['wall']:.2f} s", f"{ours['wall']:.2f} s",
         times(stock["wall"], ours["wall"], ("faster", "slower"))),
        ("CPU time", f"{stock['cpu']:.2f} s", f"{ours['cpu']:.2f} s",
         times(stock["cpu"], ours["cpu"])),
        ("peak memory above the idle cluster", mib(stock["peak"]), mib(ours["peak"]),
         times(stock["peak"], ours["peak"])),
        ("  as a multiple of the data", *(f"{side['peak'] / side['size']:.2f}"
                                          for side in (stock, ours)), ""),
        ("bytes on sockets", mib(stock["sockets"]), mib(ours["sockets"]),
         times(stock["sockets"], ours["sockets"])),
        ("written to disk", mib(stock["disk_written"]), mib(ours["disk_written"]),
         times(stock["disk_written"], ours["disk_written"]) if stock["disk_written"] >= 1 << 20
         else ""),
    ]
    head = ("", f"stock Dask {stock['distributed'].partition('+')[0]}", "shmstore", "")
    return table(head, rows) + "\n"
