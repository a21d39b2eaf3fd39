# SPDX-License-Identifier: Apache-2.0
"""The scheduler's HTTP server: one page more, and metrics among Dask's own.

Dask's `/metrics` shows what prometheus_client's registry has; where that package is missing it shows nothing, of ours neither.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from distributed.core import Status
from tornado.web import RequestHandler

logger = logging.getLogger("distributed.scheduler.shmstore")


class Family(NamedTuple):
    """A metric."""

    name: str
    counts: bool  #: it is a counter, and `_total` is added to its name; else a gauge
    meaning: str
    labels: tuple[str, ...]
    samples: list[tuple[tuple[str, ...], float]]  #: values of the labels, and the value


class _Page(RequestHandler):
    def initialize(self, scheduler: Any, page: Callable[[Any], str]) -> None:
        """Called by Tornado."""
        self.scheduler, self.page = scheduler, page

    def get(self) -> None:
        """The page."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        self.write(self.page(self.scheduler))


class _Collector:
    """Of the scheduler that came last: a process has more than one in tests only."""

    def __init__(self) -> None:
        self.scheduler: Callable[[], Any] = lambda: None
        self.families: Callable[[Any], Iterable[Family]] = lambda scheduler: ()
        self.registered = self._failed = False

    def describe(self) -> list[Any]:
        """Nothing that the registry has to know before there is anything."""
        return []

    def collect(self) -> Iterator[Any]:
        """For the registry, when it is asked."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        scheduler = self.scheduler()
        if scheduler is None or scheduler.status != Status.running:
            return
        try:
            found = list(self.families(scheduler))
        except Exception:  # Dask's own metrics are to be there all the same
            if not self._failed:
                logger.exception("shmstore: metrics of the policies failed; Dask's own are not touched")
            self._failed = True
            return
        for family in found:
            kind = CounterMetricFamily if family.counts else GaugeMetricFamily
            metric = kind(family.name, family.meaning, labels=family.labels)
            for labels, value in family.samples:
                metric.add_metric(labels, value)
            yield metric


_collector = _Collector()


def publish(scheduler: Any, path: str, page: Callable[[Any], str], families: Callable[[Any], Iterable[Family]]) -> None:
    """Adds a page to a scheduler's server, under whatever prefix it has, and metrics to Dask's. page, families: called with the scheduler."""
    application = getattr(scheduler, "http_application", None)
    if application is None:  # it has no such server
        return
    application.add_handlers(".*", [(f"/(?:.*/)?{path}", _Page, {"scheduler": scheduler, "page": page})])
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return
    _collector.scheduler, _collector.families = weakref.ref(scheduler), families
    if not _collector.registered:
        _collector.registered = True
        REGISTRY.register(_collector)
