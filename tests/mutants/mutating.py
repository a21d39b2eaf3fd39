# SPDX-License-Identifier: Apache-2.0
"""Helpers of the programs of mutants: a mutant, and playing one after the other.

A mutant is one guard of the sources made wrong. It stands in a list named MUTANTS of its program,
and it counts only as long as its text stands in its file exactly once: tests/mutants/in_place looks
at that in CI, as the programs themselves run on request only.
"""

import pathlib
import re
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Mutant(typing.NamedTuple):
    rule: str  # that is broken
    # of the source; None: nothing is changed, `asked` alone makes the difference
    path: pathlib.Path | None
    old: str = ""
    new: str = ""
    asked: str = ""  # a word for the program: whom it asks, and how

    def changed(self):
        """The source as it is changed, and how often; lines may be broken elsewhere than in old."""
        words = r"\s+".join(map(re.escape, re.split(r"\s+", self.old))).replace(r"\(", r"\(\s*")
        return re.subn(words, lambda _: self.new, self.path.read_text())

    def in_place(self):
        """Whether the text to be changed stands there, once."""
        return self.path is None or self.changed()[1] == 1

    def text(self):
        """The source as it is changed; None without one."""
        return self.path and self.changed()[0]


def play(mutants, words, noticed):
    """Plays the mutants whose numbers are among the words, from 0; all, where there is
    none. Returns the exit status.

    noticed(mutant): who noticed, in words; empty or None: nobody.
    """
    survive = missing = 0
    chosen = [int(word) for word in words] or range(len(mutants))
    for number in chosen:
        mutant = mutants[number]
        if not mutant.in_place():
            missing += 1
            print(f"{number:3} MISSING  {mutant.rule}: {mutant.path.relative_to(ROOT)} has not "
                  f"once: {mutant.old.strip()}", flush=True)
            continue
        by = noticed(mutant)
        survive += not by
        print(f"{number:3} {'caught  ' if by else 'SURVIVES'} "
              f"{mutant.rule}{f': {by}' if by else ''}", flush=True)
    print(f"{len(chosen) - survive - missing} caught, {survive} survive, {missing} missing")
    return 2 if missing else 1 if survive else 0
