"""Power, sample size and margin of two one-sided tests, as functions of arrays.

Two rates are compared by their ratio, odds ratio or difference. On the scale of the contrast
(logs, but of a difference) the estimate is taken as normal with the true contrast delta as its mean
and the variance v / N, so that with margin (lo, hi) and z the 1 - alpha quantile

    power = max(0, Phi((hi - delta) / se - z) - Phi((lo - delta) / se + z)),    se^2 = v / N.

It grows with N if delta lies inside the margin, and stays below alpha if it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from statsmodels.stats.power import normal_power_het

from cfair.equivalence.margins import unit_variance

Array = NDArray[np.float64]

#: Beyond it whole numbers have no exact floating-point form.
MOST_ROWS = 2.0**53


def variance_per_row(rates: Array, rows: Array, contrast: str) -> Array:
    """Variance of a contrast times N.

    Parameters
    ----------
    rates : (2, ...) array
        Of the group and the reference.
    rows : (2, ...) array
        Rows in the denominators of the two, as shares of N.
    contrast : {"ratio", "odds_ratio", "difference"}

    Returns
    -------
    (...) array

    Examples
    --------
    >>> import numpy as np
    >>> variance_per_row(np.array([0.75, 0.75]), np.array([0.0625, 0.1875]), "ratio").round(3)
    np.float64(7.111)
    """
    result: Array = (unit_variance(rates, contrast) / rows).sum(axis=0)
    return result


def tost_power(delta: Any, v: Any, n: Any, low: Any, high: Any, alpha: Any = 0.05) -> Array:
    """Probability that both one-sided tests reject, so that equivalence is concluded.

    Parameters
    ----------
    delta : (...) array
        True contrast, on the scale on which it is normal: its log, but of a difference.
    v : (...) array
        Variance of its estimate times `n`.
    n : (...) array
        Rows.
    low, high : (...) arrays
        Margin, on the scale of `delta`.
    alpha : (...) array, default 0.05
        Level of each test.

    Returns
    -------
    (...) array
        0 where the 1 - 2 alpha interval would be wider than the margin.

    References
    ----------
    Schuirmann DJ (1987). A comparison of the two one-sided tests procedure and the power approach
    for assessing the equivalence of average bioavailability. Journal of Pharmacokinetics and
    Biopharmaceutics 15, 657-680.

    Examples
    --------
    >>> round(float(tost_power(0.0, 7.111, 1224, np.log(0.8), np.log(1.25))), 3)
    0.8
    """
    sd = np.sqrt(v)
    above = normal_power_het(
        np.subtract(delta, low), n, alpha, std_alternative=sd, std_null=sd, alternative="larger"
    )
    below = normal_power_het(
        np.subtract(delta, high), n, alpha, std_alternative=sd, std_null=sd, alternative="smaller"
    )
    result: Array = np.maximum(above + below - 1, 0.0)
    return result


def tost_sample_size(
    delta: Any, v: Any, power: Any, low: Any, high: Any, alpha: Any = 0.05
) -> Array:
    """Smallest whole number of rows that reaches a power.

    Parameters
    ----------
    delta, v, low, high, alpha : (...) arrays
        As in `tost_power`.
    power : (...) array in (0, 1)

    Returns
    -------
    (...) array
        NaN where no number of rows reaches it: the true contrast is not inside the margin, or so
        near to its end that more than 9e15 rows would be needed.

    Examples
    --------
    >>> v = variance_per_row(np.array([0.75, 0.75]), np.array([0.0625, 0.1875]), "ratio")
    >>> tost_sample_size(0.0, v, 0.8, np.log(0.8), np.log(1.25))
    array(1224.)
    """
    delta, v, power, low, high, alpha = np.broadcast_arrays(delta, v, power, low, high, alpha)
    nearer = np.minimum(high - delta, delta - low)
    possible = nearer > 0
    unit = v / np.where(possible, nearer, 1.0) ** 2
    z = -ndtri(alpha)
    # The nearer end alone gives too much power; both as near as that give too little.
    least = unit * np.maximum(z + ndtri(power), 0) ** 2
    most = unit * (z + ndtri((1 + power) / 2)) ** 2
    possible &= most < MOST_ROWS
    least, most = np.where(possible, least, 2.0), np.where(possible, most, 2.0)
    n = least_number(
        lambda n: tost_power(delta, v, n, low, high, alpha) >= power,
        np.maximum(np.floor(least) - 1, 1.0),
        np.maximum(np.ceil(most) + 1, 2.0),
        whole=True,
    )
    return np.where(possible, n, np.nan)


def tost_margin(delta: Any, v: Any, n: Any, power: Any, alpha: Any = 0.05) -> Array:
    """Half-width of the narrowest symmetric margin that reaches a power.

    Parameters
    ----------
    delta, v, n, alpha : (...) arrays
        As in `tost_power`.
    power : (...) array in (0, 1)

    Returns
    -------
    (...) array
        h of the margin (-h, h) on the scale of `delta`: (1/m, m) with m = exp(h) for a ratio.

    Examples
    --------
    >>> h = tost_margin(0.0, 7.111, 1224, 0.8)
    >>> np.exp([-h, h]).round(3)
    array([0.8 , 1.25])
    """
    delta, v, n, power, alpha = np.broadcast_arrays(np.abs(delta), v, n, power, alpha)
    se, z = np.sqrt(v / n), -ndtri(alpha)
    return least_number(
        lambda h: tost_power(delta, v, n, -h, h, alpha) >= power,
        delta + se * (z + ndtri(power)),
        delta + se * (z + ndtri((1 + power) / 2)) * (1 + 1e-12),
        whole=False,
    )


def least_number(
    reaches: Callable[[Array], NDArray[np.bool_]], low: Array, high: Array, *, whole: bool
) -> Array:
    """The least number at which something that stays true once it is true becomes true.

    Parameters
    ----------
    reaches : function of a (...) array to a (...) array of bool
    low, high : (...) arrays
        It lies above `low` and is not above `high`; both whole if `whole`.
    whole : bool
        Whether to look among whole numbers only. Otherwise to the last digits.

    Returns
    -------
    (...) array

    Examples
    --------
    >>> least_number(lambda x: x**2 >= 10, np.array(0.0), np.array(10.0), whole=True)
    array(4.)
    """
    low, high = np.array(low, dtype=float), np.array(high, dtype=float)
    for _ in range(60):
        middle = (low + high) / 2
        if whole:
            if (high - low <= 1).all():
                break
            middle = np.floor(middle)
        found = reaches(middle)
        high = np.where(found, middle, high)
        low = np.where(found, low, middle)
    return high
