# SPDX-License-Identifier: Apache-2.0
"""The policies' page on the scheduler's HTTP server: which run, what they did, and the hosts as they see them."""

from __future__ import annotations

from html import escape
from typing import Any

from ...richtext import size, table
from ..compat import web
from . import metrics, serving

PATH = "shmstore"
_STYLE = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse;margin:0 0 2em}caption{text-align:left;font-weight:bold;padding:.4em 0}"
    "th,td{text-align:left;padding:.2em 1em .2em 0;border-bottom:1px solid #ccc}"
)
_POLICIES = ("policy", "rank", "state", "period", "runs", "accepted", "failures", "last run")
_HOSTS = ("host", "workers", "replicas", "partition used", "of", "private memory", "")


def publish(scheduler: Any) -> None:
    """The page, and metrics among Dask's."""
    web.publish(
        scheduler, PATH, lambda found: page(serving.describe(dask_scheduler=found)), lambda found: metrics.families(serving.describe(dask_scheduler=found))
    )


def page(described: dict[str, Any]) -> str:
    """HTML of what `serving.describe` found."""
    policies = [
        (p["policy"], p["rank"], p["state"], f"{p['period']:g} s", p["runs"], p["accepted"], p["failures"], f"{1e3 * p['took']:.1f} ms")
        for p in described["policies"]
    ]
    hosts = [
        (
            host["host"],
            host["workers"],
            host["replicas"],
            size(host["used"]) if host["shared"] else "shares nothing",
            size(host["size"]) if host["shared"] else "",
            size(host["private"]),
            "short of room" if host["pressed"] else "",
        )
        for host in described["hosts"]
    ]
    figures = [(name.replace("_", " "), _figure(name, value)) for name, value in described["figures"].items()]
    stock = f"<p>Dask's own: {escape(', '.join(described['stock']))}</p>" if described["stock"] else ""
    tables = table("Policies, in the order in which they run", _POLICIES, policies) + stock
    tables += table("What they did since the scheduler's start", ("figure", "value"), figures) + table("Hosts", _HOSTS, hosts)
    head = f"<meta charset='utf-8'><meta http-equiv='refresh' content='5'><title>shmstore.dask.amm</title><style>{_STYLE}</style>"
    return f"<!DOCTYPE html><html lang='en'><head>{head}</head><body><h1>shmstore.dask.amm</h1>{tables}</body></html>"


def _figure(name: str, value: Any) -> str:
    if name.startswith("bytes_"):
        return size(value)
    if isinstance(value, list):
        return ", ".join(f"{one:.3f} s" for one in value)
    return f"{value:.3f} s" if isinstance(value, float) else str(value)
