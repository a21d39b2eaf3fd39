#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/packages against what is used: each thing that the sources name belongs to a package of
the list, each package of the list has such a thing, and CONTRIBUTING.md speaks of it. To be run
where nothing else is installed: tests/fresh/tester.

The used things are read from the sources where that can be: headers from #include, libraries
from pkg_check_modules, modules from import. Commands and other files are named below. That
something is installed is not enough: it has to be on the list itself, not there by the grace
of a package that needs it today.
"""
import ast
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Commands that are run by name, by us or by programs that the tests run.
COMMANDS = ("cc gcc cmake ninja pkg-config clang clang-format clang-tidy llvm-symbolizer c++ "
            "chromium chromedriver systemd-analyze "
            "systemd-sysusers apparmor_parser getfacl setfacl dmsetup mkfs.ext4 chattr ip strace "
            "man mmdebstrap ccache python3").split()
# Modules that nothing imports: pytest's plug-ins, by their options and marks,
# and what reads Dask's defaults.
PLUGINS = ("pytest_timeout", "xdist", "xarray", "pytest_asyncio", "pytest_rerunfailures")
# Of the package index: used where they are installed, and tested there (docs/dask.md), or
# fetched by bench/bench_python.
OF_THE_INDEX = {"IPython", "dagster", "duckdb", "iceoryx2", "joblib", "polars", "pyarrow", "ray",
                "torch", "upath", "vineyard", "zarr"}
MULTIARCH = sys.implementation._multiarch  # the folder of this machine's libraries and headers
PYTHON = f"python3.{sys.version_info.minor}"
FILES = [f"/usr/lib/{MULTIARCH}/openblas-pthread/libblas.so.3",
         f"/usr/lib/{PYTHON}/ensurepip/__init__.py"]
ASKED = [["clang", f"-print-file-name=libclang_rt.{what}-{os.uname().machine}.a"]
         for what in ("fuzzer", "asan")]
# The package of the list that brings a package which owns something used.
BROUGHT_BY = {r"gcc-\d+(-.*)?|libgcc-.*": "gcc", r"g\+\+-\d+(-.*)?|libstdc.*": "g++",
              r"clang-\d+": "clang", r"libclang-rt-\d+-dev": "libclang-rt-dev",
              r"clang-format-\d+": "clang-format",
              r"clang-tidy-\d+|clang-tools-\d+": "clang-tidy", r"llvm-\d+.*": "llvm",
              r"libboost1.*": "libboost-dev",
              r"python3\.\d+(-minimal)?|python3-minimal|libpython3\.\d+(-stdlib|-minimal)":
                  "python3",
              r"python3\.\d+-dev|libpython3.*-dev": "python3-dev",
              r"python3\.\d+-venv": "python3-venv", r"linux-libc-dev": "libc6-dev"}
# words of its "Dependencies" that name a program
NOT_PACKAGES = {"redis-server", "pkg-config", "zstd"}
failures = 0


def check(what, good, detail=""):
    global failures
    failures += not good
    print(f"{'ok' if good else 'FAILED'} - {what}" + (f"\n    {detail}" if detail and not good
                                                      else ""), flush=True)


def sources(*endings):
    for folder in ("libshmstore", "shmstored", "tools", "tests", "bench", "deploy", "examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in endings:
                yield path


def headers():
    """{path of a header of the system: a source that includes it}, and the names that are
    nowhere."""
    wanted = {}
    for path in sources(".c", ".h", ".cc"):
        for name in re.findall(r"^\s*#\s*include\s*<([^>]+)>", path.read_text(errors="replace"),
                               re.M):
            wanted.setdefault(name, path)
    places = ["/usr/include", f"/usr/include/{MULTIARCH}", f"/usr/include/{PYTHON}",
              *subprocess.run("echo | g++ -E -x c++ - -v 2>&1 | sed -n 's/^ "
                              "\\(\\/usr\\/.*\\)/\\1/p'", shell=True, capture_output=True,
                              text=True, check=False).stdout.split()]
    found, missing = {}, {}
    for name, path in wanted.items():
        if name.startswith("shmstore/"):
            continue
        where = next((os.path.join(place, name) for place in places
                      if os.path.exists(os.path.join(place, name))), None)
        if where:
            found[where] = path
        else:
            missing[name] = path
    return found, missing


def modules():
    """{module that is not the interpreter's nor ours: who imports it}."""
    paths = [*sources(".py"), *(path for path in sources("") if path.read_bytes()[:16] ==
                                b"#!/usr/bin/pytho")]
    own = {path.stem for path in paths} | {"shmstore"}
    wanted = {}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else \
                [node.module] if isinstance(
                    node, ast.ImportFrom) and not node.level and node.module else []
            for name in names:
                top = name.split(".")[0]
                if (top not in own and top not in sys.stdlib_module_names and
                    top not in OF_THE_INDEX):
                    wanted.setdefault(top, path)
    return wanted


def owners(paths):
    """{path: its package, or None}: the package of what it leads to, where it is a
    link of the alternatives."""
    names = {path: list(dict.fromkeys(spelt for name in (path, os.path.realpath(path))
                                      for spelt in (name, name.replace("/usr/", "/", 1))))
             for path in paths}
    asked = subprocess.run(["dpkg", "-S",
                            *dict.fromkeys(name for spelt in names.values() for name in spelt)],
                           capture_output=True, text=True,
                           # it fails where one of the names has no owner, as most spellings have
                           # none
                           check=False)
    package = {}
    for line in asked.stdout.splitlines():
        who, _, name = line.partition(": ")
        if not who.startswith("diversion by "):
            package[name] = who.split(":")[0].split(",")[0]
    return {path: next((package[name] for name in spelt if name in package), None)
            for path, spelt in names.items()}


def main():
    listed = subprocess.run([ROOT / "deploy/packages", "build", "dask", "test"],
                            capture_output=True, text=True, check=True).stdout.split()
    check("no package is listed twice", len(listed) == len(set(listed)), str(sorted(listed)))
    text = re.search(r"^## Dependencies\n(.*?)^## ", (ROOT / "CONTRIBUTING.md").read_text(),
                     re.S | re.M)[1]
    named = set(re.findall(r"(?:`|\*\*)([a-z0-9][a-z0-9.+-]*)(?:`|\*\*)", text))
    silent = [package for package in listed if package not in named]
    check("CONTRIBUTING.md speaks of every listed package", not silent, " ".join(silent))
    of_debian = subprocess.run(["apt-cache", "pkgnames"], capture_output=True, text=True,
                               check=True).stdout.split()
    strangers = named.intersection(of_debian) - set(listed) - NOT_PACKAGES
    check("deploy/packages has every package that CONTRIBUTING.md speaks of", not strangers,
          " ".join(sorted(strangers)))

    found, missing = headers()
    used = {}  # path: by whom
    check("every header is there", not missing,
          "; ".join(f"{name} of {path.relative_to(ROOT)}" for name, path in missing.items()))
    used.update({where: path.relative_to(ROOT) for where, path in found.items()})
    gone = []
    for path in ROOT.rglob("CMakeLists.txt"):
        for name in re.findall(r"pkg_check_modules\(\w+ (?:REQUIRED )?(?:IMPORTED_TARGET "
                               r")?([a-z0-9-]+)", path.read_text()):
            where = subprocess.run(["pkg-config", "--variable=pcfiledir", name],
                                   capture_output=True, text=True, check=False).stdout.strip()
            if where:
                used[f"{where}/{name}.pc"] = path.relative_to(ROOT)
            else:
                gone.append(f"{name} of {path.relative_to(ROOT)}")
    check("every library is there", not gone, "; ".join(gone))
    gone = []
    for name, path in [*modules().items(), *((plugin, "pytest") for plugin in PLUGINS)]:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            used[spec.origin] = path if isinstance(path, str) else path.relative_to(ROOT)
        else:
            gone.append(f"{name} of {path}")
    check("every Python module is there", not gone, "; ".join(gone))
    gone = []
    for name in COMMANDS:
        where = shutil.which(name)
        if where:
            used[where] = f"the command {name}"
        else:
            gone.append(name)
    for words in ASKED:
        try:
            FILES.append(subprocess.run(words, capture_output=True, text=True,
                                        check=True).stdout.strip())
        except (OSError, subprocess.CalledProcessError):
            gone.append(" ".join(words))
    for name in FILES:
        if os.path.exists(name):
            used[name] = "used.py"
        else:
            gone.append(name)
    check("every command and file is there", not gone, "; ".join(gone))

    needed, unlisted = set(), []
    for path, package in owners(used).items():
        by = used[path]
        if package is None:
            unlisted.append(f"{path} ({by}) is of no package")
            continue
        bringer = next((meta for pattern, meta in BROUGHT_BY.items()
                        if re.fullmatch(pattern, package)), package)
        needed.add(bringer)
        if bringer not in listed:
            unlisted.append(f"{bringer}: {path}, for {by}")
    check("what is used is of a listed package", not unlisted, "\n    ".join(sorted(set(unlisted))))
    idle = [package for package in listed if package not in needed]
    check("every listed package is used", not idle, " ".join(idle))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
