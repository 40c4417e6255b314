"""The most likely rates of two groups whose contrast is given: what score tests are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def restricted_rates(
    x1: Array, n1: Array, x2: Array, n2: Array, value: Array, contrast: str
) -> tuple[Array, Array]:
    """Maximum likelihood of two binomial rates under a given contrast.

    Parameters
    ----------
    x1, n1, x2, n2 : (...) arrays
        Events and rows of a group and of the reference; need not be whole.
    value : (...) array
        Ratio, odds ratio or difference of the group to the reference.
    contrast : {"ratio", "odds_ratio", "difference"}

    Returns
    -------
    p1, p2 : (...) arrays

    References
    ----------
    Miettinen O, Nurminen M (1985). Comparative analysis of two rates. Statistics in Medicine 4,
    213-226: equations 12 (ratio), 10 (odds ratio) and the appendix (difference).

    Examples
    --------
    >>> p1, p2 = restricted_rates(30.0, 100.0, 40.0, 100.0, 1.0, "ratio")
    >>> round(float(p1), 3), round(float(p2), 3)
    (0.35, 0.35)
    """
    x1, n1, x2, n2, value = (np.asarray(v, dtype=float) for v in (x1, n1, x2, n2, value))
    total, n = x1 + x2, n1 + n2
    if contrast == "ratio":
        middle = n1 * value + x1 + n2 + x2 * value
        root = np.sqrt(np.maximum(middle**2 - 4 * n * value * total, 0.0))
        p2 = 2 * total / (middle + root)
        return np.clip(p2 * value, 0, 1), p2
    if contrast == "odds_ratio":
        p2 = share_by_odds(n1, n2, total, value)
        return p2 * value / (1 - p2 + p2 * value), p2
    p2 = _by_difference(x1, n1, x2, n2, value)
    return np.clip(p2 + value, 0, 1), p2


def share_by_odds(n1: Array, n2: Array, total: Array, value: Array) -> Array:
    """Most likely reference rate given an odds ratio and the events of both groups.

    Parameters
    ----------
    n1, n2 : (...) arrays
        Rows.
    total : (...) array
        Events of both.
    value : (...) array
        Odds ratio.

    Returns
    -------
    (...) array
    """
    lead = n2 * (value - 1)
    middle = n1 * value + n2 - total * (value - 1)
    root = np.sqrt(np.maximum(middle**2 + 4 * lead * total, 0.0))
    result: Array = np.clip(2 * total / (middle + root), 0, 1)
    return result


def _by_difference(x1: Array, n1: Array, x2: Array, n2: Array, d: Array) -> Array:
    """Reference rate when the rates differ by `d`: the root of a cubic."""
    n, total = n1 + n2, x1 + x2
    c2 = ((n1 + 2 * n2) * d - n - total) / (3 * n)
    c1 = ((n2 * d - n - 2 * x2) * d + total) / (3 * n)
    c0 = x2 * d * (1 - d) / n
    q = c2**3 - 1.5 * c1 * c2 + c0 / 2
    p = np.where(q < 0, -1.0, 1.0) * np.sqrt(np.maximum(c2**2 - c1, 0.0))
    cosine = np.where(p != 0, q / p**3, 1.0)
    angle = (np.pi + np.arccos(np.clip(cosine, -1, 1))) / 3  # rounding passes 1 on the boundary
    root = 2 * p * np.cos(angle) - c2
    # minimum and maximum: bounds that are NaN are none to an older numpy's clip
    return np.minimum(np.maximum(root, np.maximum(0.0, -d)), np.minimum(1.0, 1 - d))
