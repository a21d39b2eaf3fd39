# SPDX-License-Identifier: Apache-2.0
"""The pages of the site that no file has: the first one, made of parts of README.md and docs/, and
the reference of each language."""
import importlib.machinery
import importlib.util
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ["shmstore", *(f"shmstore.{name}" for name in (
    "multiprocessing", "caching", "sequences", "arbiter", "actors", "profiling", "staging",
    "preempting", "pinning", "arrow", "joblib", "torch", "fsspec",
    "zarr", "dagster", "notebook"))]


TABLE = r"(?:^\|.*?\n)+"


def part(page, heading, pattern):
    """The first match of the pattern in a section of a page."""
    section = re.search(rf"^## {heading}\n(.*?)^## ", (ROOT / page).read_text(), re.S | re.M)[1]
    return re.search(pattern, section, re.S | re.M)[0]


def first():
    said = re.search(r"^# shmstore\n\n(.*?\.) An \*\*object\*\*", (ROOT / "README.md").read_text(),
                     re.S)[1]
    return f"""---
hide: [navigation, toc]
---
# shmstore

{said} One process writes an array; every other one maps the same memory: no byte is copied, sent or
serialised a second time.
[Overview](overview.md) · [Installing](overview.md#installing) · [Python](python.md) · [C](c.md)

<div class="first" markdown>
<div markdown>
{part("README.md", "In ten lines", "^```.*?^```")}

[Where the memory is](docs/operations.md#where-the-memory-is-the-df-equation):
`shmstore-admin reconcile` accounts for every byte that `df` counts.
</div>
<div markdown>
![Every used byte of a partition has a name: linked, ghosts, pool, inflight, foreign and a residual
of 0](docs/df.svg)
</div>
</div>

## Measured

{part("docs/measured.md", "Jobs on Dask", TABLE)}
[How it was measured, and where it stops short](docs/measured.md)
"""


def c():
    """The headers are the manual: each group of functions as it stands (docs/man/headers)."""
    loader = importlib.machinery.SourceFileLoader("headers", str(ROOT / "docs/man/headers"))
    headers = importlib.util.module_from_spec(importlib.util.spec_from_loader("headers", loader))
    loader.exec_module(headers)
    lines = ["# C", "", "The headers, by groups of functions. `man 3 shmstore` has the same."]
    for path in sorted(headers.HEADERS.glob("*.h"), key=lambda path: path.name != "shmstore.h"):
        text = headers.written(path.read_text())
        lines += ["", f"## {path.name}", "", "```text", *headers.essay(text), "```"]
        for heading, group in headers.groups(text):
            name, about = headers.PAGES.get((path.name, heading), (heading, heading))
            lines += ["", f"### {about} {{ #{name} }}", "", "```c", *headers.trimmed(group), "```"]
    return "\n".join(lines)


def on_files(files, config):
    pages = {"index.md": first(), "c.md": c(), "python.md": "# Python\n\n" +
             "\n\n".join(f"::: {name}" for name in PYTHON)}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown, page, **_):
    """A folder of the source is no page: its name stays, without the link."""
    here = ROOT / pathlib.PurePosixPath(page.file.src_uri).parent
    return re.sub(r"\[([^]]*)\]\(([\w./-]+)\)", lambda link: link[1] if (here / link[2]).is_dir()
                  else link[0], markdown)
