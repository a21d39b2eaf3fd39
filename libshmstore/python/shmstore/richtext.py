# SPDX-License-Identifier: Apache-2.0
"""A store or a partition as notebooks show it: one table, escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def size(n: int) -> str:
    """Bytes for people: 1.5 MiB."""
    value, units = float(n), ("bytes", "KiB", "MiB", "GiB", "TiB")
    for unit in units:
        if value < 1024 or unit == units[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """HTML. Keys and names come from other processes: nothing of them is markup here."""
    from html import escape  # for the few programs that show something

    cells = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>"
                   for row in rows)
    return (f"<table><caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead>"
            f"<tbody>{body}</tbody></table>")
