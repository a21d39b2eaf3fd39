# SPDX-License-Identifier: Apache-2.0
"""The driver behind deploy/quickstart: build, partition, one job on stock Dask and on
shmstore, the table, reconcile.

bench/dask_measure.py measures; this file is the conversation with the user. However it ends, its
Lab takes the processes, the mount, the cgroup and the directories with it.
"""
import signal

# until raise_on_signals(): nothing was made yet, so nothing has to be said
signal.signal(signal.SIGINT, signal.SIG_DFL)
import argparse  # noqa: E402
import importlib.metadata  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import shlex  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "bench"))

from dask_jobs import Spec, human, jobs  # noqa: E402
from dask_measure import (Failed, Interrupted, Lab, available_memory, expected_peak,  # noqa: E402
                          raise_on_signals, run_step)
from dask_report import SIDES, Line, mib, parse_size, side_by_side  # noqa: E402

PYTHON = "/usr/bin/python3"  # what the package is built for
JOBS_HELP = {
    "pairs": "the dot product of every two of n chunks: every worker needs all data",
    "matmul": "(a @ a.T).sum() of one random matrix",
    "embarrassing": "chunks made, transformed and reduced where they are: nothing to share",
    "frames": "set_index, merge and groupby of numeric pandas frames",
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="deploy/quickstart", description="Runs one job on stock Dask and on shmstore, side by "
                                              "side.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="jobs:\n" + "\n".join(f"  {name:14}{text}" for name, text in JOBS_HELP.items()))
    parser.add_argument("--size", type=parse_size, help="bytes of data, e.g. 512MiB (default: "
                                                        "1GiB, less on a small machine)")
    parser.add_argument("--chunk", type=parse_size, default=16 << 20,
                        help="bytes of a chunk (default: 16MiB)")
    parser.add_argument("--workers", type=int, default=4,
                        help="worker processes of one thread each (default: 4)")
    parser.add_argument("--job", choices=jobs, default="pairs", help="default: pairs")
    parser.add_argument("--memory-limit", type=parse_size, default=0,
                        help="bytes per worker; stock Dask spills to disk beyond")
    parser.add_argument("--dask", default="newest", metavar="VERSION",
                        help="of the package index, in a virtual environment, e.g. 2024.12.1; "
                             "newest "
                        "(default; Debian's where the index cannot be reached); debian: Debian's")
    parser.add_argument("--build", metavar="DIRECTORY", help="take what is built there instead of "
                                                             "building")
    parser.add_argument("--json", action="store_true", help="print the result as JSON on standard "
                                                            "output, progress on standard error")
    parser.add_argument("--keep", action="store_true", help="leave the partition for a look at it")
    arguments = parser.parse_args()
    if arguments.workers < 1:
        parser.error("--workers: at least 1")
    if arguments.chunk < 1 << 16:
        parser.error("--chunk: at least 64KiB")
    if arguments.size is not None and arguments.size < arguments.chunk:
        parser.error("--size: at least one chunk")
    return arguments


class Screen:
    """Lines for the user: on standard output, or on standard error where
    standard output carries JSON."""

    def __init__(self, as_json):
        self.file = sys.stderr if as_json else sys.stdout

    def say(self, what, text):
        print(f"{what:<10} {text}", file=self.file, flush=True)

    def show(self, text):
        print(text, file=self.file, flush=True)


def build(arguments, screen, lab):
    """Builds into build/release; where the tree is not ours to write, takes what is built, or
    builds in the scratch directory."""
    if arguments.build:
        screen.say("build", f"{arguments.build}, as it is")
        return os.path.abspath(arguments.build)
    directory = os.path.join(ROOT, "build", "release")
    if not os.access(directory if os.path.isdir(directory) else ROOT, os.W_OK):
        if os.path.exists(os.path.join(directory, "tools", "shmstore-admin")):
            screen.say("build", f"{directory}, as it is (not ours to write)")
            return directory
        directory = os.path.join(lab.scratch, "build")
    start = time.monotonic()
    log = os.path.join(lab.scratch, "build.log")
    run_step(["cmake", "-S", ROOT, "--preset", "release", "-B", directory], log)
    run_step(["cmake", "--build", directory, "--target", "product"], log)
    screen.say("build", f"{directory}, {time.monotonic() - start:.0f} s")
    return directory


def choose_size(arguments, screen):
    """The data's size: as asked, or 1 GiB made smaller until stock Dask fits
    into this machine's memory."""
    size = arguments.size or 1 << 30
    spec = Spec(job=arguments.job, size=size, chunk=arguments.chunk, workers=arguments.workers,
                memory_limit=arguments.memory_limit)
    available = available_memory()
    while (arguments.size is None and expected_peak(spec) > available * 0.8 and
           spec.size > 4 * arguments.chunk):
        spec.size //= 2
    if expected_peak(spec) > available * 0.9:
        screen.say("note", f"stock Dask may need {mib(expected_peak(spec))} of memory and "
                           f"{mib(available)} are available: "
                           "expect swapping, or choose a smaller --size")
    elif spec.size != size:
        screen.say("note", f"{human(spec.size)} of data instead of {human(size)}: stock Dask would "
                           f"not fit into {mib(available)}")
    return spec


def ask(admin, partition, command, as_json=True):
    """The output of one command of shmstore-admin. reconcile's exit status says
    what its output says, too."""
    done = subprocess.run([admin, "-p", partition, *(["--json"] if as_json else []), command],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60,
                          check=False)
    return json.loads(done.stdout) if as_json else done.stdout.rstrip()


def say_what_next(directory, screen):
    """The line that installs what was built, and which Python the examples want."""
    if sys.prefix != sys.base_prefix:
        screen.say("pip", f"{sys.executable} -m pip install '{ROOT}[dask]'    # into an "
                          f"environment with the newest Dask: docs/operations.md")
    install = f"{'' if os.geteuid() == 0 else 'sudo '}cmake --install {shlex.quote(directory)}"
    screen.say("install", f"{install}    # under /usr/local; then the examples of README.md run")
    first = shutil.which("python3")
    if first and os.path.realpath(first) != os.path.realpath(PYTHON):
        screen.say("python", f"python3 is {first} here, which does not see the package: run the "
                             f"examples with {PYTHON}")


def run(arguments, screen, lab):
    screen.say("packages", "all present")
    screen.say("dask", f"{importlib.metadata.version('distributed')}, "
                       f"{'Debian’s' if sys.prefix == sys.base_prefix else sys.prefix}")
    directory = build(arguments, screen, lab)
    admin = os.path.join(directory, "tools", "shmstore-admin")
    lab.python_path.append(os.path.join(directory, "python"))
    spec = choose_size(arguments, screen)
    partition = lab.make_partition(spec.size * 2 + (1 << 30))
    run_step([admin, "-p", partition, "init"], os.path.join(lab.scratch, "init.log"))
    screen.say("partition", lab.partition_text)
    room = os.statvfs(partition)
    if room.f_blocks and room.f_bavail * room.f_frsize < spec.size * 1.1:
        screen.say("note", f"the partition has room for {mib(room.f_bavail * room.f_frsize)} only: "
                           f"what does not fit goes the way of stock "
                           "Dask (in a container: docker run --shm-size=…)")
    screen.say("job", f"{spec.label()}: {JOBS_HELP[spec.job]}")

    results = {}
    for side in SIDES:
        spec.side = side
        line = Line(SIDES[side], screen.file)
        results[side] = lab.measure(spec, line.progress)
        line.end(results[side])
    method = results["shmstore"]["method"]
    screen.say("measured", f"memory: {method['memory']}, 20 times a second, above the idle "
                           f"cluster; sockets: {method['sockets']}")
    screen.show("")
    screen.show(side_by_side(results))

    books, left = ask(admin, partition, "reconcile"), ask(admin, partition, "df")
    # On a file system that others use too, what is foreign or unknown is theirs.
    own = os.path.ismount(partition)
    clean = (left["stores"] == left["objects"] == books["ghosts"] == books["inflight"] == 0 and
             (not own or books["residual"] == 0))
    if arguments.json:
        print(json.dumps({"partition": lab.partition_text, "results": results, "reconcile": books,
                          "clean": clean}, indent=2))
    else:
        screen.show(f"$ shmstore-admin -p {partition} reconcile")
        screen.show(ask(admin, partition, "reconcile", as_json=False))
    rest = (f"{books['linked'] >> 10} KiB are the partition's marker" +
            ("" if own else "; what else is in /dev/shm is not ours"))
    screen.say("left", f"{left['stores']} stores, {left['objects']} objects; {rest}" if clean
               else "the partition is not clean")
    if arguments.keep:
        lab.keep = True
        unmount = f"umount {partition}; " if os.path.ismount(partition) else ""
        screen.say("kept", f"{partition}; remove it with: {unmount}rm -r {partition}")
    same = abs(results["stock"]["value"] - results["shmstore"]["value"]) <= 1e-9 * abs(
        results["stock"]["value"])
    if not same:
        raise Failed(f"the results differ: {results['stock']['value']!r}, "
                     f"{results['shmstore']['value']!r}")
    if not clean:
        raise Failed("the partition is not clean: see above")
    if not directory.startswith(lab.scratch):
        say_what_next(directory, screen)


def main():
    arguments = parse_arguments()
    screen = Screen(arguments.json)
    raise_on_signals()
    try:
        with Lab(may_keep=arguments.keep) as lab:
            run(arguments, screen, lab)
    except Interrupted as signum:
        print("\nquickstart: interrupted; nothing is left behind", file=sys.stderr)
        return 128 + signum.args[0]
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        print(f"\nquickstart: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
