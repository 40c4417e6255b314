"""The deltas of u-values: how much larger than chance a disparity has to be to count."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.disparity import STATISTICS

Array = NDArray[np.float64]


def check_deltas(delta: float | dict[str, float]) -> Array:
    """Delta of each statistic; one number goes to average and maximum, its square to the variance.

    Parameters
    ----------
    delta : float or dict

    Returns
    -------
    (3,) array

    Raises
    ------
    ValueError
        If it is not in [0, 1), or a statistic has none.
    """
    if isinstance(delta, dict):
        unknown = set(delta) - set(STATISTICS)
        if unknown or len(delta) < len(STATISTICS):
            raise ValueError(
                f"delta needs a value for each of {', '.join(STATISTICS)}, not {sorted(delta)}."
            )
        return np.array([_check_delta(delta[name]) for name in STATISTICS])
    one = _check_delta(delta)
    return np.array([one, one, one**2])


def _check_delta(delta: Any) -> float:
    number = isinstance(delta, (int, float, np.number)) and not isinstance(delta, bool)
    if not number or not 0 <= delta < 1:
        raise ValueError(f"delta must be a number in [0, 1), or one per statistic, not {delta!r}.")
    return float(delta)
