# SPDX-License-Identifier: Apache-2.0
"""A worker's periodic calls: tornado's, as distributed.compatibility drops its own (2026.6)."""

from __future__ import annotations

from tornado.ioloop import PeriodicCallback

__all__ = ["PeriodicCallback"]
