# SPDX-License-Identifier: Apache-2.0
"""shmstore-admin beside the program itself: completion and man pages."""
import re
import shlex
import shutil
import subprocess

import pytest

from admin_support import (ADMIN, BUILD, SOURCE, actors, admin, bare, environment,  # noqa: F401
                           members)

COMPLETION = SOURCE / "tools" / "completion" / "shmstore-admin"
PAGES = sorted((SOURCE / "docs" / "man").glob("*.[1-9]"))


def complete(*words, typed=""):
    """The completions that bash offers for the last word."""
    line = ["shmstore-admin", *map(str, words), typed]
    script = f"""
        PATH={shlex.quote(str(ADMIN.parent))}:$PATH
        compopt() {{ :; }}  # not available outside of a completion
        source {shlex.quote(str(COMPLETION))}
        complete -p shmstore-admin >/dev/null || exit 3
        COMP_WORDS=({" ".join(map(shlex.quote, line))})
        COMP_CWORD={len(line) - 1}
        _shmstore_admin
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    r = subprocess.run(["bash", "--norc", "-uc", script], capture_output=True, env=environment(),
                       timeout=60, check=False)
    assert r.returncode == 0 and r.stderr == b"", r
    return [line for line in r.stdout.decode().split("\n") if line]


def test_commands():
    everything = complete()
    shown = subprocess.run([ADMIN, "help"], capture_output=True, check=True,
                           env=environment()).stdout.decode()
    assert sorted(everything) == sorted(re.findall(r"^  ([a-z]+) ", shown, re.M))
    assert complete(typed="d") == ["doctor", "df", "du", "demote"]
    assert complete("--json", typed="rec") == ["reconcile"]
    assert complete("-p", "/nonexistent", typed="ver") == ["verify", "version"]
    assert complete("help", typed="in") == ["init"]


@pytest.mark.parametrize("command", ["init", "doctor", "df", "du", "ls", "stat", "cat", "get",
                                     "put", "reconcile", "gc",
                                     "verify", "tier", "demote", "promote", "evict", "top",
                                     "status", "workers", "quota", "mem", "actors", "watch",
                                     "set", "reap", "arb top", "arb threads", "arb tasks",
                                     "arb pools", "arb log", "arb inject",
                                     "arb cancel", "arb set", "profile show", "profile save",
                                     "profile load", "profile reset", "stage"])
def test_every_option_of_a_command(command):
    shown = subprocess.run([ADMIN, *command.split(), "--help"], capture_output=True, check=True,
                           env=environment()).stdout.decode()
    options = set(re.findall(r"(--[a-z-]+)",
                             "\n".join(re.findall(r"^ .*?(--[a-z-]+).*$", shown, re.M))))
    assert options and set(complete(*command.split(), typed="--")) == options


def test_stores_and_keys(admin, actors):
    for store, key in (("alpha", "one"), ("alpha", "two"), ("beta", "three words")):
        admin("put", store, key, stdin=b"x")
    p = ["-p", admin.path]
    assert sorted(complete(*p, "ls")) == ["alpha", "beta"]
    assert complete(*p, "stat", typed="a") == ["alpha"]
    assert sorted(complete(*p, "get", "alpha")) == ["one", "two"]
    assert complete(*p, "cat", "alpha", typed="t") == ["two"]
    assert complete(*p, "cat", "beta") == [r"three\ words"]
    assert complete("ls", *p, typed="b") == ["beta"]
    # as bash splits --partition=...
    assert complete("--partition", "=", admin.path, "ls", typed="b") == ["beta"]
    assert complete(*p, "get", "-n", "1", "alpha", typed="o") == ["one"]
    assert complete("-p", "/nonexistent", "ls") == []


def test_files_and_values(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "dir").mkdir()
    assert complete("-p", typed=f"{tmp_path}/") == [f"{tmp_path}/dir"]
    assert complete("put", "s", "k", typed=f"{tmp_path}/f") == [f"{tmp_path}/file"]
    assert complete("init", "--huge", typed="w") == ["within_size"]
    assert complete("top", "--sort", "=", typed="m") == ["mapped"]
    assert complete("workers", "--sort", typed="p") == ["pss", "pool", "pid"]
    assert complete("workers", "--by", typed="u") == ["user"]
    assert complete("watch", "--events", typed="store-went,store-c") == ["store-went,store-came"]
    assert complete("--socket", typed=f"{tmp_path}/f") == [f"{tmp_path}/file"]
    assert complete("set", typed="us") == ["user."]
    assert complete("tier", "--set", typed=f"{tmp_path}/") == [f"{tmp_path}/dir"]
    assert complete("evict", "--user", typed="roo") == ["root"]
    assert complete("--socket", "/nonexistent", "reap") == []


ASKED = {"zsh": """fpath=({0}/zsh/site-functions); autoload -U _shmstore-admin
                   compadd() {{ print -l -- "${{(@P)2}}" }}
                   words=(shmstore-admin {1}); CURRENT=$#words; _shmstore-admin""",
         "fish": "source {0}/fish/vendor_completions.d/shmstore-admin.fish; complete -C "
                 "'shmstore-admin {1}'"}


@pytest.mark.parametrize("shell", ASKED)
def test_other_shells_offer_what_bash_does(shell, admin, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    for place, name in (("bash-completion/completions", COMPLETION.name),
                        ("zsh/site-functions", "_shmstore-admin"),
                        ("fish/vendor_completions.d", "shmstore-admin.fish")):
        (tmp_path / place).mkdir(parents=True)
        shutil.copy(COMPLETION.parent / name, tmp_path / place)
    admin("put", "alpha", "three words", stdin=b"x")
    environ = {**environment(), "HOME": str(tmp_path), "PATH": f"{ADMIN.parent}:/usr/bin:/bin"}
    for words, offered in (("d", complete(typed="d")), ("workers --sort p", ["pss", "pool", "pid"]),
                           (f"-p {admin.path} cat alpha th", ["three words"])):
        r = subprocess.run([shell, "-c", ASKED[shell].format(tmp_path, words)], capture_output=True,
                           text=True, env=environ, timeout=60, check=True)
        assert sorted(r.stdout.splitlines()) == sorted(offered), r


def test_man_pages_are_there():
    assert {p.name for p in PAGES} >= {"shmstore-admin.1", "shmstore.3", "shmstore.7"}
    page = (SOURCE / "docs" / "man" / "shmstore-admin.1").read_text()
    for command in complete():
        assert re.search(rf"\bCm {command}$|\bCm {command} ", page, re.M), command
    for command in ("init", "get", "put", "gc", "verify", "tier", "demote", "promote", "evict",
                    "top", "status", "workers", "watch"):
        for option in set(complete(command, typed="--")) - {"--help", "--usage", "--version"}:
            assert (option.replace("--", r"\-", 1) in page or
                    f"Fl {option[1:].replace('-', chr(92) + '-', 1)}" in page), option


def test_every_public_function_is_explained(tmp_path):
    """The headers are the manual: a comment stands before each function, and docs/man/headers makes
    its page, which man finds nothing wrong with."""
    declared = set()
    for header in (SOURCE / "libshmstore" / "include" / "shmstore").glob("*.h"):
        lines = header.read_text().splitlines()
        for number, line in enumerate(lines):
            if line.startswith("SHMSTORE_API "):
                name = re.search(r"\b(shmstore_\w+)\(", line)[1].removesuffix("_sized")
                declared.add(name)
                assert lines[number - 1].endswith(("*/", ";")), (
                    f"{header.name}: {name} has no comment")
    subprocess.run([SOURCE / "docs" / "man" / "headers", tmp_path], check=True, capture_output=True,
                   timeout=60)
    pages = {p.stem: p.read_text() for p in tmp_path.iterdir()}
    assert declared <= set(pages)
    for name in declared:
        group = re.fullmatch(r"\.so man3/(\w+)\.3\n", pages[name])[1]
        assert (re.search(rf"^\.Nm {name}\b", pages[group], re.M) and
                f"{name}(" in pages[group]), name
    for page in sorted(p for p in tmp_path.iterdir() if not pages[p.stem].startswith(".so ")):
        test_man_pages_are_clean(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_man_pages_are_clean(page):
    tried = False
    if shutil.which("mandoc"):
        tried = True
        r = subprocess.run(["mandoc", "-Tlint", "-Wwarning", page], capture_output=True,
                           check=False, timeout=60)
        assert r.returncode == 0 and r.stdout == b"", r
    if shutil.which("man"):
        tried = True
        r = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page],
                           capture_output=True, check=False,
                           env=environment(MANROFFSEQ=""), timeout=60)
        assert r.returncode == 0 and r.stderr == b"", r
    if not tried:
        pytest.skip("neither mandoc nor man is installed")


def test_every_json_member_is_in_the_man_page(admin, actors):
    """The author of a program that reads an answer finds each member explained."""
    actor = actors(admin, "s", "-")
    actor("put", "k", 100000, "-")
    actor("get", "k")
    actor("delete", "k")
    actor("put", "l", 100000, "-")
    dead = actors(admin, "dead", "-")
    dead.kill()
    page = (SOURCE / "docs" / "man" / "shmstore-admin.1").read_text()
    words = set(re.findall(r"[a-z_]+", page))

    for command in (["init"], ["doctor"], ["df"], ["du"], ["ls"], ["stat", "s", "l"], ["reconcile"],
                    ["gc", "-n"], ["verify"],
                    ["top", "-n1", "-d0.05"], ["mem"], ["put", "t", "k"], ["cat", "t", "k"]):
        answer = admin("--json", *command, code=None).json
        assert set(members(answer)) <= words, (command, set(members(answer)) - words)
