# SPDX-License-Identifier: Apache-2.0
"""How large values are of libraries that Dask knows nothing of (2026.8 does not, either), and so takes for a few bytes.

    sizeof._lazy   what Dask, or a program, has registered for a library that is not imported yet: theirs is left alone
"""

from __future__ import annotations

from typing import Any

from dask.sizeof import sizeof


def _polars() -> None:
    import polars

    @sizeof.register((polars.DataFrame, polars.Series))
    def size(frame: Any) -> int:
        return int(frame.estimated_size())


def _torch() -> None:
    import torch

    @sizeof.register(torch.Tensor)
    def size(tensor: Any) -> int:
        return int(tensor.numel() * tensor.element_size())


def _xarray() -> None:
    """2022.12.1 does not know it, later versions do."""
    import xarray

    def size_of(variable: Any) -> int:
        return int(sizeof(getattr(variable, "_data", None)))  # its property `data` would read what is lazy

    @sizeof.register(xarray.DataArray)
    def of_array(array: Any) -> int:
        return size_of(array.variable) + sum(size_of(coordinate.variable) for coordinate in array.coords.values())

    @sizeof.register(xarray.Dataset)
    def of_dataset(dataset: Any) -> int:
        return sum(size_of(variable) for variable in dataset.variables.values())


def register() -> None:
    """Once, at import."""
    known = getattr(sizeof, "_lazy", {})
    for library, function in (("polars", _polars), ("torch", _torch), ("xarray", _xarray)):
        if library not in known:
            sizeof.register_lazy(library, function)
