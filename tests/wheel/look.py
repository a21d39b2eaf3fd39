# SPDX-License-Identifier: Apache-2.0
"""usage: look.py WHEEL…   what is in wheels of deploy/wheels, and what these need: prints what is
                           wrong, and each one's size."""
import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PINS = tomllib.loads((ROOT / "deploy/sources.toml").read_text())
C_LIBRARY = re.compile(
    r"libc\.so\.6|libc\.musl-\w+\.so\.1|libpthread\.so\.0|ld-linux-[\w-]+\.so\.[12]|"
    r"libshmstore\.so\.0")
wrong = 0


def check(wheel, what, good):
    global wrong
    wrong += not good
    if not good:
        print(f"{wheel}: {what}")


def expected(dist):
    package = ROOT / "libshmstore/python/shmstore"
    sources = subprocess.run(["git", "ls-files", package], cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.split()
    headers = (ROOT / "libshmstore/include/shmstore").glob("*.h")
    return {*(os.path.relpath(path, "libshmstore/python") for path in sources),
            *(f"shmstore/include/shmstore/{path.name}" for path in headers),
            "shmstore/_shmstore.so", "shmstore/lib/libshmstore.so.0",
            "shmstore/lib/pkgconfig/shmstore.pc",
            *(f"{dist}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt",
                                            "licenses/LICENSE", "sboms/shmstore.cdx.json")),
            *(f"{dist}/licenses/{name}/{pin['text']}" for name, pin in PINS.items())}


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True,
                          check=True).stdout


for wheel in map(pathlib.Path, sys.argv[1:]):
    name, version, tag = wheel.stem.split("-", 2)
    dist = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as place:
        archive.extractall(place)
        files = {info.filename for info in archive.infolist()}
        check(wheel, f"it has and lacks {sorted(files ^ expected(dist))}", files == expected(dist))
        check(wheel, "files have several times",
              len({info.date_time for info in archive.infolist()}) == 1)
        check(wheel, "its tag is another", f"Tag: {tag}\n" in archive.read(
            f"{dist}/WHEEL").decode())
        for line in archive.read(f"{dist}/RECORD").decode().splitlines():
            file, digest, size = line.rsplit(",", 2)
            data = archive.read(file)
            good = (digest == "sha256=" + base64.urlsafe_b64encode(
                hashlib.sha256(data).digest()).decode().rstrip("=") and int(size) == len(data))
            check(wheel, f"RECORD is wrong about {file}", good or file == f"{dist}/RECORD")
        parts = {part["name"]: (part["version"], part["hashes"][0]["content"])
                 for part in json.loads(archive.read(f"{dist}/sboms/shmstore.cdx.json"))[
                     "components"]}
        check(wheel, f"its bill of materials says {parts}",
              parts == {name: (pin["version"], pin["sha256"]) for name, pin in PINS.items()})
        for file, exported in (("shmstore/_shmstore.so", r"PyInit__shmstore"),
                               ("shmstore/lib/libshmstore.so.0",
                                r"shmstore_\w+@@SHMSTORE_[\d.]+|SHMSTORE_[\d.]+(@@.*)?")):
            needed = re.findall(r"NEEDED.*\[(.*)\]", readelf("-d", f"{place}/{file}"))
            check(wheel, f"{file} needs {needed}", all(map(C_LIBRARY.fullmatch, needed)))
            symbols = re.findall(r" (?:GLOBAL|WEAK) +DEFAULT +(?!UND)\w+ (\S+)",
                                 readelf("--dyn-syms", f"{place}/{file}"))
            check(wheel, f"{file} exports {[s for s in symbols if not re.fullmatch(exported, s)]}",
                  symbols and all(re.fullmatch(exported, s) for s in symbols))
    print(f"{wheel.name}: {wheel.stat().st_size} bytes")
sys.exit(wrong > 0)
