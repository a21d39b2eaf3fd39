# SPDX-License-Identifier: Apache-2.0
"""The handle: what travels between workers in place of a value that lies in the partition."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dask.sizeof import sizeof
from distributed.protocol import dask_deserialize, dask_serialize

from .. import Ticket
from ..parts import Part
from .over import Over

if TYPE_CHECKING:
    from .exchange import Entry, Exchange


class Handle:
    """A ticket for the value of a key, with what Dask wants to know of it. Good for one receiver.

    The receiver adopts it as soon as it has it (`Exchange.adopt`), and its data mapping takes the entry out (`take`). A
    handle that nobody takes, because its key was cancelled or came twice, gives the object back when it is collected.
    """

    __slots__ = ("ticket", "nbytes", "kind", "over", "_exchange", "_entry", "__weakref__")

    @classmethod
    def of(cls, exchange: Exchange, entry: Entry) -> Handle:
        """A handle of an entry of our own: the way of a result into the data mapping."""
        handle = cls(Ticket("", 0, 0), entry.nbytes, entry.kind)
        handle.attach(exchange, entry)
        return handle

    def __init__(self, ticket: Ticket, nbytes: int, kind: str = "", over: Over | None = None) -> None:
        self.ticket = ticket
        self.nbytes = nbytes  #: sizeof the value, as the donor measured it
        self.kind = kind  #: the type of the value, "module:name"
        self.over = over  #: what of the object the value is, where that is not the object's own
        self._exchange: Exchange | None = None
        self._entry: Entry | None = None

    def attach(self, exchange: Exchange, entry: Entry) -> None:
        """The object was adopted: from here on the handle owns the entry."""
        self._exchange, self._entry = exchange, entry

    @property
    def adopted(self) -> bool:
        return self._entry is not None

    def value_type(self) -> type | None:
        """The type of the value, where this process knows it already."""
        module, _, name = self.kind.partition(":")
        found = getattr(sys.modules.get(module), name, None)
        return found if isinstance(found, type) else None

    @property
    def entry(self) -> Entry:
        """The entry that the handle owns. Only of a handle that is adopted."""
        assert self._entry is not None
        return self._entry

    def take(self) -> Entry:
        """The entry, whose owner is now the caller. Only of a handle that is adopted."""
        entry = self.entry
        self._entry = None
        return entry

    def revoke(self) -> None:
        """Takes a ticket back that may not have arrived. Harmless where it was used."""
        with suppress(OSError):
            os.unlink(self.ticket.path)

    def __del__(self) -> None:
        if self._entry is not None and self._exchange is not None:
            self._exchange.drop(self._entry)

    def __reduce__(self) -> Any:
        return Handle, (self.ticket, self.nbytes, self.kind, self.over)

    def __repr__(self) -> str:
        return f"<Handle of {self.nbytes} bytes at {self.ticket.path!r}>"


@sizeof.register(Handle)
def _sizeof_handle(handle: Handle) -> int:
    return handle.nbytes


# Dask's own family of serialisers, so that it goes also where pickle is not allowed.
@dask_serialize.register(Handle)
def _serialize_handle(handle: Handle) -> tuple[dict[str, Any], list[Any]]:
    header = {"ticket": list(handle.ticket), "nbytes": handle.nbytes, "kind": handle.kind}
    if handle.over is None:
        return header, []
    # Not as "ticket": who does not know of parts must not take the whole object for the value.
    header["ticket_of_parts"] = header.pop("ticket")
    return {**header, "parts": [list(part) for part in handle.over.parts]}, [handle.over.header]


@dask_deserialize.register(Handle)
def _deserialize_handle(header: dict[str, Any], frames: list[Any]) -> Handle:
    if "parts" not in header:
        return Handle(Ticket(*header["ticket"]), header["nbytes"], header.get("kind", ""))
    over = Over(bytes(frames[0]), tuple(Part(*part) for part in header["parts"]))
    return Handle(Ticket(*header["ticket_of_parts"]), header["nbytes"], header["kind"], over)
