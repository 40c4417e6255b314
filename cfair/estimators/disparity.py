"""Summaries of how much the rates of the groups differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: The three summaries, in the order in which `disparities` returns them.
STATISTICS: tuple[str, str, str] = ("average", "maximum", "variance")


def disparities(rates: Array, drop_boundary: bool = False) -> tuple[Array, Array, Array]:
    """Average, maximum and variance of the absolute differences between all pairs of groups.

    Parameters
    ----------
    rates : (..., K) array
        Rates of the groups; NaN where undefined. A group without a rate leaves the pairs.
    drop_boundary : bool, default False
        Leave out rates that are exactly 0 or 1, as the R package ``faircfint`` does. This can hide
        the largest disparity.

    Returns
    -------
    average, maximum, variance : (...) arrays
        The variance has the number of pairs less one as its divisor and is NaN for a single pair.
        All are NaN without a pair.

    Notes
    -----
    No pair is formed: with the m defined rates sorted, ``r_0 <= ... <= r_{m-1}``, the sum of the
    absolute differences is ``sum_i (2 i - (m - 1)) r_i``, the sum of their squares
    ``m sum (r_i - mean)^2``, and the maximum ``r_{m-1} - r_0``.

    References
    ----------
    Wastvedt S, Huling JD, Wolfson J (2023). Biostatistics, kxad021.

    Examples
    --------
    >>> import numpy as np
    >>> [round(float(x), 6) for x in disparities(np.array([0.1, 0.2, 0.4]))]
    [0.2, 0.3, 0.01]
    """
    r = np.asarray(rates, dtype=np.float64)
    if drop_boundary:
        r = np.where((r == 0) | (r == 1), np.nan, r)
    r = np.sort(r, axis=-1)  # NaN last
    defined = ~np.isnan(r)
    m = defined.sum(axis=-1)
    pairs = m * (m - 1) / 2
    filled = np.where(defined, r, 0.0)
    mean = filled.sum(axis=-1) / np.maximum(m, 1)
    centred = np.where(defined, r - mean[..., None], 0.0)
    position = 2.0 * np.arange(r.shape[-1]) - (m[..., None] - 1)

    some = pairs >= 1
    divisor = np.where(some, pairs, 1.0)
    average = np.where(some, (position * centred).sum(axis=-1) / divisor, np.nan)
    last = np.take_along_axis(filled, np.maximum(m - 1, 0)[..., None], axis=-1)[..., 0]
    maximum = np.where(some, last - filled[..., 0], np.nan)
    squares = m * (centred**2).sum(axis=-1)
    several = pairs >= 2
    variance = (squares - pairs * np.where(some, average, 0.0) ** 2) / np.where(
        several, pairs - 1, 1.0
    )
    variance = np.where(several, np.maximum(variance, 0.0), np.nan)
    return average, maximum, variance


def largest_gap(rates: Array) -> tuple[int, int] | None:
    """Return the groups with the highest and the lowest rate.

    Parameters
    ----------
    rates : (K,) array

    Returns
    -------
    (highest, lowest) : tuple of int, or None
        None when fewer than two rates are defined.
    """
    defined = np.flatnonzero(~np.isnan(rates))
    if len(defined) < 2:
        return None
    high, low = int(np.nanargmax(rates)), int(np.nanargmin(rates))
    return (high, low) if high != low else (int(defined[0]), int(defined[1]))
