# SPDX-License-Identifier: Apache-2.0
"""Where the workers' values are, split as Dask's own figures cannot be: `report(client)`, and the same text in a performance report.

Dask knows two places of a value: the process's memory, and "spilled". A value in the partition is in neither: it is memory, but of the host, and
counting it in each process would pause workers that hold nothing. So Dask is told that it is spilled, and here is which part of that is on a disk.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import distributed
from distributed import Client

from ..richtext import size, table

_HEAD = ("worker", "private memory", "shared memory", "disk tier", "spill files")
_NOTE = 'Dask\'s "spilled" is the sum of the last three; shared memory is memory, on no disk, counted once over the workers of a host.'


class WorkerReport(NamedTuple):
    """Of one worker, in bytes. What several workers link counts a part in each."""

    worker: str
    shares: bool  #: it is one of ours, and has its store
    private: int  #: the process's own memory
    partition: int  #: in shared memory
    tier: int  #: in the partition's disk tier, as it is in memory
    spill: int  #: in spill files of Dask's kind
    not_shared: Mapping[str, Any] = {}  #: why values were not shared -> how many of min-size and more, and their bytes


class Report(tuple[WorkerReport, ...]):
    """One WorkerReport for each worker. As text, and in notebooks, a table with a line of sums, and one of the scheduler's policies."""

    policies: tuple[Any, ...] = ()  #: a PolicyState of each policy of shmstore.dask.amm
    figures: Mapping[str, Any] = {}  #: what they did; client.shmstore.figures()

    @property
    def not_shared(self) -> dict[str, tuple[int, int]]:
        """Of all workers: why values were not shared -> how many, and their bytes; most bytes first."""
        found: dict[str, tuple[int, int]] = {}
        for why, (n, nbytes) in (item for worker in self for item in worker.not_shared.items()):
            before = found.get(why, (0, 0))
            found[why] = before[0] + n, before[1] + nbytes
        return dict(sorted(found.items(), key=lambda item: -item[1][1]))

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "workers": [worker._asdict() for worker in self],
            "policies": [policy._asdict() for policy in self.policies],
            "figures": dict(self.figures),
        }

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [
            (w.worker, size(w.private), size(w.partition) if w.shares else "shares nothing", size(w.tier), size(w.spill)) for w in self
        ]
        sums = [sum(getattr(w, field) for w in self) for field in WorkerReport._fields[2:6]]
        return [*rows, ("all", *map(size, sums))]

    def __str__(self) -> str:
        rows = [_HEAD, *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
        lines = ["  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))) for row in rows]
        return "\n".join([*lines, _NOTE, *self._further_lines()])

    def _further_lines(self) -> list[str]:
        lines = [f"not shared: {n} values, {size(nbytes)}: {why}" for why, (n, nbytes) in self.not_shared.items()]
        lines += [f"policy {p.policy}: {p.state}, period {p.period:g} s, runs {p.runs}, accepted {p.accepted}, failures {p.failures}" for p in self.policies]
        return lines + [", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.figures.items())] * bool(self.figures)

    def _repr_html_(self) -> str:
        page = table("shmstore.dask. " + _NOTE, _HEAD, self._rows())
        return page + "".join(f"<p>{html.escape(line)}</p>" for line in self._further_lines())


def report(client: Client) -> Report:
    """Where the values of all workers are, by what each said of itself last (every half second or so)."""
    return client.sync(_report, client)  # type: ignore[no-any-return]


async def _report(client: Client) -> Report:
    identity = await client.scheduler.identity()
    found = Report(_of(address, info.get("metrics") or {}) for address, info in sorted(identity["workers"].items()))
    with suppress(Exception):  # Dask has no such manager, or shmstore is not installed where the scheduler runs, or nobody may run anything there
        from .amm.serving import described_to, states_of

        policies = await described_to(client)
        found.policies, found.figures = tuple(states_of(policies)), policies["figures"]
    return found


def _of(address: str, metrics: dict[str, Any]) -> WorkerReport:
    ours = metrics.get("shmstore") or {}
    spilled = metrics.get("spilled_bytes") or {}
    disk = spilled.get("disk", 0) if isinstance(spilled, dict) else metrics.get("spilled_nbytes", {}).get("disk", 0)
    partition, tier = int(ours.get("memory", 0)), int(ours.get("tier", 0))
    return WorkerReport(address, bool(ours), int(metrics.get("memory", 0)), partition, tier, max(0, int(disk) - partition - tier), ours.get("not-shared") or {})


class performance_report(distributed.performance_report):
    """distributed.performance_report whose file says where the values were at its end, too."""

    async def __aexit__(self, *args: Any, **kwargs: Any) -> None:
        found = await _report(distributed.get_client())
        await super().__aexit__(*args, **kwargs)
        add_to(self.filename, found)


def add_to(filename: str, found: Report) -> None:
    """Puts the report at the top of a page that Dask has written."""
    with open(filename, encoding="utf-8") as file:
        page = file.read()
    at = page.find(">", page.find("<body")) + 1 if "<body" in page else 0
    text = f"<section id='shmstore'><h2>shmstore.dask</h2><pre>{html.escape(str(found))}</pre></section>"
    with open(filename, "w", encoding="utf-8") as file:
        file.write(page[:at] + text + page[at:])
