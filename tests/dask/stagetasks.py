# SPDX-License-Identifier: Apache-2.0
"""What the tests' stages do; imported by the workers."""

from __future__ import annotations

import numpy as np
import pandas as pd
from distributed import get_worker


def texts(part: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"t": pd.Series([f"{i} " + "x" * 200 for i in range(2000)], dtype=object)})


def numbers(part: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"n": np.random.default_rng(len(part)).random(2000)})


def budget_now(part: pd.DataFrame) -> pd.Series:
    """Bytes that this worker's private budget is while this runs."""
    return pd.Series([get_worker()._arbitration.budget.whole])
