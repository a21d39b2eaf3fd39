# SPDX-License-Identifier: Apache-2.0
"""Types whose values a pickle may not carry whole: those with a way of their own over Dask's network, and those whose pickle is the program's own.

Pure but for Dask's register of serializers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from distributed.protocol import dask_serialize

#: Modules whose pickles give an equal value back.
_EXACT = {*sys.stdlib_module_names, "numpy", "pandas", "pyarrow", "polars", "scipy"} - {"__main__"}
_DASK = "distributed.protocol."


def has_own_way(kind: type) -> bool:
    """Whether somebody registered, besides Dask, how values of the type cross the network: it may carry more than the pickle, or less."""
    try:
        serialize = dask_serialize.dispatch(kind)
    except TypeError:  # nobody did
        return False
    if hasattr(serialize, "__self__"):  # by register_generic() of Dask's: all attributes go, whatever the pickle does
        return not _is_exact(kind)
    return not getattr(serialize, "__module__", "").startswith(_DASK)


def reads_back_equal(kinds: Iterable[type]) -> bool:
    """Whether a value whose pickle has objects of these types beside plain ones is surely equal when it is read back."""
    return all(map(_is_exact, kinds))


def _is_exact(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _EXACT
