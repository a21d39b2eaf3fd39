# SPDX-License-Identifier: Apache-2.0
"""What a worker does at intervals. Tornado's own: distributed.compatibility, which had one for old tornados, gives it up (2026.6)."""

from __future__ import annotations

from tornado.ioloop import PeriodicCallback

__all__ = ["PeriodicCallback"]
