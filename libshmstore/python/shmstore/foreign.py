# SPDX-License-Identifier: Apache-2.0
"""Values of other libraries whose own pickles copy them, as values whose pickles do not: polars'
frames and series, torch's tensors. And parts of Arrow's tables and arrays, whose own pickles hand
out all of the memory that they are parts of.

NumPy, pandas, pyarrow, scipy, xarray and scikit-learn need nothing here: their buffers leave
pickles. Each function takes a value and returns as `__reduce__`, or NotImplemented for the
library's own pickle: a value below `_MIN` bytes is copied faster than it is taken apart.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    import polars
    import pyarrow
    import torch

    from ._shmstore import Buffer
    from .pickling import _Origin

    Reducer = Callable[[Any, _Origin], object]  #: as `__reduce__`, of one type

_MIN = 16 << 10
_DEVICE_PACKAGES = {"cudf", "cuml", "cupy", "cupyx", "rmm"}


class OnDevice(ValueError):
    """Some of a value lies in the memory of a device, from where it would
    have to be copied first."""


def on_device(obj: object) -> bool:
    """Whether that is an array in the memory of a device. Asks its type only, and torch's tensors,
    which may be there or not."""
    kind = type(obj)
    if (not hasattr(kind, "__cuda_array_interface__") and kind.__module__.partition(".")[0] not in
        _DEVICE_PACKAGES):
        return False
    return getattr(obj, "is_cuda", True) is not False


def of_polars() -> dict[type, Reducer]:
    """Reducers of its types. They need pyarrow, over which the memory is
    shown, where they are used."""
    polars = sys.modules["polars"]
    return {polars.DataFrame: _reduce_frame, polars.Series: _reduce_series}


def of_pyarrow() -> dict[type, Reducer]:
    """Reducers of its types, of which each array's type is one; those of a program's own extension
    types are left to pyarrow."""
    pyarrow = sys.modules["pyarrow"]
    kinds, found = [pyarrow.Array], {pyarrow.Table, pyarrow.RecordBatch, pyarrow.ChunkedArray}
    while kinds:
        kinds += (more := [k for k in kinds.pop().__subclasses__()
                           if k.__module__ == "pyarrow.lib"])
        found.update(more)
    return dict.fromkeys(found, _reduce_arrow)


def of_torch() -> dict[type, Reducer]:
    """Reducers of its types."""
    return {sys.modules["torch"].Tensor: _reduce_tensor}


def _reduce_frame(frame: polars.DataFrame, origin: _Origin) -> object:
    polars = sys.modules["polars"]
    try:
        if frame.estimated_size() < _MIN:
            return NotImplemented
        # the older level has other strings, which would be copied
        table = frame.to_arrow(compat_level=polars.CompatLevel.newest())
        if table.get_total_buffer_size() > 2 * table.nbytes:
            return NotImplemented  # a part of another frame: Arrow would hand out all of that
    except Exception:  # pyarrow or the level is missing, a column has Python's objects
        return NotImplemented
    return functools.partial(polars.from_arrow, rechunk=False), (table,)


def _reduce_series(series: polars.Series, origin: _Origin) -> object:
    frame = series.to_frame()
    if _reduce_frame(frame, origin) is NotImplemented:
        return NotImplemented
    return type(frame).to_series, (frame,)


def _reduce_arrow(part: pyarrow.Table, origin: _Origin) -> object:
    """A part of something larger is written as Arrow does it for a stream, which keeps the
    part only: one copy of that."""
    pyarrow = sys.modules["pyarrow"]
    try:
        whole, own = part.get_total_buffer_size(), part.nbytes
        if whole <= 2 * own or whole - own < _MIN:
            return NotImplemented
        tabular = isinstance(part, (pyarrow.Table, pyarrow.RecordBatch))
        value = part if tabular else pyarrow.table([part], ["values"])
        if not len(part):  # offsets would be written whole
            value = value.schema.empty_table()
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, value.schema) as stream:
            stream.write(value)
        buffer = sink.getvalue()
        if buffer.size >= whole:  # a few rows that share large dictionaries
            return NotImplemented
    except Exception:  # a version or a type that does not do this
        return NotImplemented
    kind = next(k for k in (pyarrow.Table, pyarrow.RecordBatch, pyarrow.ChunkedArray, pyarrow.Array)
                if isinstance(part, k))
    return arrow_of, (origin.unlocked(buffer), kind)


def arrow_of(buffer: Buffer, kind: type[pyarrow.Table]) -> pyarrow.Table:
    """The value of that kind, over a stream's memory."""
    import pyarrow

    table = pyarrow.ipc.open_stream(pyarrow.py_buffer(buffer)).read_all()
    if kind is pyarrow.Table:
        return table
    if kind is pyarrow.RecordBatch:
        return (table.to_batches()[0] if table.num_rows else pyarrow.RecordBatch.from_pylist(
            [], schema=table.schema))
    values = table.column(0)
    if kind is pyarrow.ChunkedArray:
        return values
    return values.chunk(0) if values.num_chunks else pyarrow.array([], values.type)


def _reduce_tensor(tensor: torch.Tensor, origin: _Origin) -> object:
    if origin.as_is and on_device(tensor):
        raise OnDevice("a tensor lies in a device's memory")
    try:
        plain = (tensor.device.type == "cpu" and not (tensor.requires_grad or tensor.is_conj() or
                                                      tensor.is_neg() or vars(tensor)))
        if not plain or tensor.numel() * tensor.element_size() < _MIN:
            return NotImplemented
        return tensor_of, (tensor.numpy(),)
    except (AttributeError, RuntimeError, TypeError):
        # sparse, quantized, numbers that NumPy has not
        return NotImplemented


def tensor_of(array: numpy.ndarray) -> torch.Tensor:
    """A tensor over an array. torch knows no read-only memory, so that a
    tensor over such is a copy."""
    import torch

    return torch.from_numpy(array if array.flags.writeable else array.copy())
