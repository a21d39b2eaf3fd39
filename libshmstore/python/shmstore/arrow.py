# SPDX-License-Identifier: Apache-2.0
"""Arrow's tables in objects that every Arrow library reads, and how views show
themselves to other libraries.

Such an object is one buffer with a stream of Arrow's IPC format, whose buffers are aligned to 64
bytes; its header is the media type of that. A C, C++, Rust, R or Java program opens the stream over
the mapped memory, and nothing is copied or unpickled (docs/format.md).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from ._shmstore import View
from .errors import Error

if TYPE_CHECKING:
    import pyarrow

    from .store import Key, Store

MEDIA_TYPE = b"application/vnd.apache.arrow.stream"


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise ImportError("Arrow's tables want pyarrow: pip install pyarrow") from error
    return pyarrow


def put_arrow(store: Store, key: Key, data: object, replace: bool = False) -> None:
    """Puts an Arrow table, so that every Arrow library reads it in place: a stream of
    Arrow's IPC format, written once.

    data: a pyarrow table or batch, or what has `__arrow_c_stream__` (frames of polars and
    pandas, DuckDB's relations). A view of it has
    that, too: ``polars.DataFrame(store.view(key))``. Wants pyarrow. Raises Error
    as `put_buffers`, ImportError.
    """
    pyarrow = _pyarrow()
    if isinstance(data, pyarrow.Table):
        table = data
    elif hasattr(data, "__arrow_c_stream__"):
        table = pyarrow.RecordBatchReader.from_stream(data).read_all()
    else:
        table = pyarrow.table(data)
    size = pyarrow.MockOutputStream()
    _write(pyarrow, table, size)
    with store.create(key, len(MEDIA_TYPE), [size.size()], replace=replace) as writer:
        writer.header[:] = MEDIA_TYPE
        sink = pyarrow.FixedSizeBufferWriter(pyarrow.py_buffer(writer.buffers[0]))
        _write(pyarrow, table, sink)
        sink.close()
        del sink


def _write(pyarrow: Any, table: pyarrow.Table, sink: object) -> None:
    with pyarrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)


def table_of(view: View) -> pyarrow.Table:
    """The pyarrow.Table over a view's memory. Raises Error (EBADMSG) where
    the object is another one."""
    if view.header_view != MEDIA_TYPE:
        raise Error(errno.EBADMSG, f"object {view.key!r} holds no Arrow table; Store.put_arrow "
                                   f"puts one")
    pyarrow = _pyarrow()
    return pyarrow.ipc.open_stream(pyarrow.py_buffer(view)).read_all()


# -- methods of View


def c_stream(self: View, requested_schema: object = None) -> object:
    """As __arrow_c_stream__ of Arrow's PyCapsule interface."""
    return table_of(self).__arrow_c_stream__(requested_schema)


def c_array(self: View, requested_schema: object = None) -> object:
    """As __arrow_c_array__: of a table in several batches it is a copy."""
    table = table_of(self)
    batches = table.to_batches()
    batch = (batches[0] if len(batches) == 1 else table.combine_chunks().to_batches()[0] if batches
             else None)
    if batch is None:
        batch = _pyarrow().RecordBatch.from_pylist([], schema=table.schema)
    return batch.__arrow_c_array__(requested_schema)


def dlpack(self: View, **options: object) -> object:
    """As __dlpack__: the view's one buffer as bytes. Consumers that cannot say that memory is
    read-only want a view with cow."""
    import numpy

    return numpy.frombuffer(self, "u1").__dlpack__(**options)


def dlpack_device(self: View) -> tuple[int, int]:
    """As __dlpack_device__: the processor's memory."""
    return 1, 0


for _name, _method in (("__arrow_c_stream__", c_stream), ("__arrow_c_array__", c_array),
                       ("__dlpack__", dlpack), ("__dlpack_device__", dlpack_device)):
    setattr(View, _name, _method)
