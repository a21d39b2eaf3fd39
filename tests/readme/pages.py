# SPDX-License-Identifier: Apache-2.0
"""The examples of README.md and of the pages under docs/, as they are
printed, and which of them are run.

Every fenced block that names a language is an example. EXAMPLES lists those of each page, section
by section: a block that is added, moved or lost is found by `unlisted()`, so that none goes
untried. tests/readme/run and tests/fresh/examples run them.
"""
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
C_SHORT_OUTPUT = "consumer: 1048576 numbers, the last is 524288\n"
C_OUTPUT = "consumer: float64, 1048576 numbers, the last is 524288\n"
PYTHON_OUTPUT = "consumer: (1000, 1000) 1000000.0 read-only\n"
TICKET_OUTPUT = "consumer: 499999500000\n"
DASK_OUTPUT = "sum: 64000000000.0\n"
ARBITER_OUTPUT = "in 2 parts: 24999995000000.0\n"
ARBITER_C = "examples/join.c"  # of which docs/arbiter.md shows a part
ARBITER_C_OUTPUT = "rows 0 to 9\nrows 10 to 29\nrows 30 to 49\n50 rows, 1 splits\n"
STAGES_OUTPUT = "".join(f"{name} without a stage: toobig\n{name} in its stage: done\n"
                        for name in ("load", "join"))
RESERVED_OUTPUT = "without: ENOSPC\nreserved: both end\n"
PRESSURE_OUTPUT = "without: above kill\nadmitted: within the host\n"
PROFILES_OUTPUT = "unknown: above kill\nlearned: within the host\n"
ACTORD = "shmstore-actord"  # in place of shmstored, where a page speaks of actors
ACTORS_OUTPUT = "without: ActorLost\nmoved: [1, 2, 3]\n"
COPIES_OUTPUT = "without: 3 x 32 MiB\nwith shmstore: 1 x 32 MiB\n"
LINKS_OUTPUT = "ReduceReplicas: computed again\nHostReduceReplicas: the same array\n"
TIER_OUTPUTS = ("ENOSPC after 3 parts\n", "96 MiB\n")
FRAME_OUTPUT = "1000000 4999995000.0\n"
TEN_OUTPUT = "140000.0\n"
POOL_OUTPUTS = ("28.0\n", "1000000.0\n")
MODEL_OUTPUTS = ("loading\n1000000.0\n", "1000000.0\n")
DATA_OUTPUT = "12250000.0\n"
ARROW_OUTPUT = "3 [1.5, 2.5, 4.0]\n['price', 'venue']\n"
FILES_OUTPUT = "['notes/first'] b'in shared memory'\n"
FROM_C_OUTPUT = "1000 499500.0\n"

AMM = "The Active Memory Manager"
FAILS = "A job that fails without"
UNLEARNED, UNSTAGED = f"{FAILS} profiles", f"{FAILS} stages"
POOL, MODEL, DATA = "A pool", "A model for web workers", "A data set"
NOTEBOOKS, ARROW = "Notebooks", "Arrow"
FILES = "Files by URL, chunks of zarr, steps of Dagster"
TICKET, CMAKE, FROM_C = "C: a ticket", "C: CMake", "Between C and Python"
CONTAINERS, SIZE, CRASH = "Containers", "Making a partition", "When a process dies"
HOLDERS = "Where the memory is: the df equation"

EXAMPLES = {
    "README.md": {"In ten lines": ["python"], "Two commands": ["sh"], "Installing": ["sh", "sh"],
                  "Python": ["python"], "C": ["c"], "Dask": ["python"]},
    "docs/programs.md": {POOL: ["python", "python"], MODEL: ["python"], DATA: ["python"],
                         NOTEBOOKS: ["python", "python"],
                         ARROW: ["python"], FILES: ["python"], "By ticket": ["python"],
                         TICKET: ["c"], CMAKE: ["cmake"], FROM_C: ["c", "python", "sh"]},
    "docs/operations.md": {"Starting it": ["sh", "sh"], "Asking it": ["sh"],
                           CONTAINERS: ["sh", "sh", "yaml"], SIZE: ["sh"], CRASH: ["sh"],
                           HOLDERS: ["sh"]},
    "docs/arbiter.md": {FAILS: ["python"], "A complete example": ["python"],
                        # Lines out of a program, around which the text explains; the complete
                        # example has them all but the checkpoint.
                        "Python: an attempt, a checkpoint, a split": ["python"] * 2},
    # Of the next pages the jobs that fail without are run. Below them are lines out of programs:
    # tests/integration and tests/dask have whole ones.
    "docs/governor.md": {FAILS: ["conf", "python"], UNLEARNED: ["conf", "python"],
                         UNSTAGED: ["conf", "python"],
                         "The gate": ["python"], "Preemption": ["python"], "Profiles": ["python"],
                         "Stages": ["python"]},
    "docs/actors.md": {FAILS: ["python"]},
    "docs/dask.md": {FAILS: ["python"], "Three ways to turn it on": ["sh", "python", "yaml"],
                     "Memory pressure": ["yaml"],
                     "The memory arbiter": ["python"], "Measuring": ["sh"],
                     AMM: ["python", "yaml", "python", "python", "python"]},
    "docs/tier.md": {FAILS: ["python", "sh"], "Using it": ["sh"]},
}
PAGES = (*EXAMPLES, "CHANGELOG.md", "CONTRIBUTING.md",
         *(f"docs/{name}" for name in sorted(os.listdir(ROOT / "docs"))
           if name.endswith(".md") and f"docs/{name}" not in EXAMPLES))
# Jobs that print how they fail without a feature, and that they do not with it. Each has a daemon
# and a partition of 64 MiB of its own.
JOBS = {("docs/governor.md", UNSTAGED): STAGES_OUTPUT, ("docs/arbiter.md", FAILS): RESERVED_OUTPUT,
        ("docs/governor.md", FAILS): PRESSURE_OUTPUT,
        ("docs/governor.md", UNLEARNED): PROFILES_OUTPUT, ("docs/actors.md", FAILS): ACTORS_OUTPUT}
# on Debian's Dask, and on others: tests/run --dask VERSION
DASK_JOBS = {("docs/dask.md", FAILS): COPIES_OUTPUT, ("docs/dask.md", AMM): LINKS_OUTPUT}


def text_of(page):
    path = ROOT / page
    return path.read_text() if path.exists() else ""


def blocks_of(page):
    """{section: [(language, text)]} of the blocks that name a language."""
    found = {}
    for part in re.split(r"^## ", text_of(page), flags=re.M)[1:]:
        title, body = part.split("\n", 1)
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", body, re.S | re.M)
        if blocks:
            found[title] = blocks
    return found


def example(page, section, number=0):
    return blocks_of(page)[section][number][1]


# The examples of docs/programs.md that run in a process by themselves: a name, section, number,
# output, and the module that it wants installed.
PYTHON_GUIDE = [
    *((f"the pool's {number + 1}.", POOL, number, output, None) for number, output in enumerate(
        POOL_OUTPUTS)),
    *((f"the model's, time {number + 1},", MODEL, 0, output, None) for number, output in enumerate(
        MODEL_OUTPUTS)),
    ("the data set's", DATA, 0, DATA_OUTPUT, None), ("Arrow's", ARROW, 0, ARROW_OUTPUT, "pyarrow"),
    ("fsspec's", FILES, 0, FILES_OUTPUT, "fsspec"),
    ("the Python ticket's", "By ticket", 0, TICKET_OUTPUT, None),
]
CLEAR_CACHE = 'import shmstore; shmstore.Cache("shared").clear()\n'  # what the model's leaves


def job_of(page, section):
    return next(text for language, text in blocks_of(page)[section] if language == "python")


def conf_of(page, section):
    """The daemon's configuration that the section of the page asks for."""
    return "".join(text for language, text in blocks_of(page)[section] if language == "conf")


def unlisted():
    """The sections where the pages and EXAMPLES differ, either way: {page: [sections]}."""
    wrong = {}
    for page, sections in EXAMPLES.items():
        have = {title: [language for language, _ in blocks] for title, blocks in blocks_of(
            page).items()}
        differing = [title for title in {**have, **sections} if have.get(title) != sections.get(
            title)]
        if differing:
            wrong[page] = differing
    return wrong


def anchors_of(page):
    """The names that its headings have as targets of links, as GitHub makes them."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", text_of(page), re.M)}


def broken_links(page):
    """Links of a page to files that are not there, or to sections that the file has not."""
    prose = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.S | re.M)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if (not (ROOT / target).exists() or (anchor and target.endswith(".md") and
                                             anchor not in anchors_of(target))):
            broken.append(link)
    return broken


def badly_set(page):
    """Lines of prose of more than 100 columns that can be broken, and headings that begin with a
    clause without its noun."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text_of(page), flags=re.S | re.M)
    long = [line for line in prose.split("\n") if len(line) > 100 and line[0] not in "|<!" and
            line[:4] != "    " and " " in re.sub(r"`[^`]*`", "", line).strip(" ,-*")]
    return long + re.findall(r"^#+ (?:What|Who|Whose|Which|One that)\b.*", prose, re.M)


def commands_of(text):
    """The commands of a shell's block, each in one line, without what is said about them."""
    lines = re.sub(r" \\\n *", " ", re.sub(r"&&\n *", "&& ", text)).splitlines()
    commands = [line.split("  #")[0].split(" # ")[0].strip() for line in lines]
    return [command for command in commands if command and not command.startswith("#")]
