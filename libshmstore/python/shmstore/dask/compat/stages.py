# SPDX-License-Identifier: Apache-2.0
"""Which stage of a collection's job a key belongs to, and which shuffles it reads. Dask promises neither; how it names them is known from

    2022.12        simple-shuffle, shuffle (by tasks, and P2P), rechunk-merge; keys of a worker are text
    to 2026.8      taskshuffle, p2pshuffle, rechunk-merge, rechunk-p2p; keys are tuples

What goes before one of these (group-…, split-…, …-transfer, …-barrier, …-split) writes pieces, and reads nobody's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask.utils import key_split

from . import asking
from .probe import STAGES, missing_of

#: What this Dask lacks of it.
missing_hooks = [*missing_of(STAGES), *asking.missing_hooks]
if not missing_hooks:
    from distributed.utils import key_split_group

_PIECES = ("group-", "split-"), ("-transfer", "-barrier", "-split")


def is_part(key: Any) -> bool:
    """Is it one part of a collection, as ("name-token", 3)?"""
    return isinstance(key, tuple) or (isinstance(key, str) and key.startswith("('"))


def group_of(key: Any) -> str:
    """The name that a collection's parts have in common."""
    return str(key_split_group(key))


def kind_of(group: str) -> str:
    """shuffle, rechunk; pieces: of one of these, what is not a stage by itself; else map."""
    name = key_split(group)
    for kind in ("shuffle", "rechunk"):
        if kind in name:
            return "pieces" if name.startswith(_PIECES[0]) or name.endswith(_PIECES[1]) else kind
    return "map"


async def upstream_of(worker: Any, group: str) -> list[tuple[int, int]]:
    """(mappers, reducers) of each shuffle that a group reads, as the scheduler has it: a round trip. Raises what it answers with."""
    return [(int(mappers), int(reducers)) for mappers, reducers in await asking.ask_scheduler(worker, _upstream, group)]


def _upstream(group: str, dask_scheduler: Any) -> list[tuple[int, int]]:
    """Where the scheduler runs."""
    found = dask_scheduler.task_groups.get(group)
    if found is None:
        return []
    return [(len(source), len(found)) for source in _sources(found)]


def _sources(group: Any) -> Iterator[Any]:
    """The groups whose parts are its mappers: beyond the pieces, or the last pieces where nothing is beyond."""
    for before in group.dependencies:
        if kind_of(before.name) != "pieces":
            continue
        beyond = [each for each in before.dependencies if kind_of(each.name) != "pieces"]
        if beyond:
            yield from beyond
        elif before.dependencies:
            yield from _sources(before)
        else:
            yield before
