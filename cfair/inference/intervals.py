"""Intervals for one rate, and for the difference or ratio of two.

A rate's interval is Wilson's with the effective size that its standard error implies and Student's
quantile. Two rates are compared by MOVER, which recovers variances from the limits of each and so
keeps their asymmetry; with independent proportions it is Newcombe's interval.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

Array = NDArray[np.float64]
#: Limits of estimates by the probability of one tail.
Limits = Callable[[Array], tuple[Array, Array]]

#: In place of degrees of freedom: the normal quantile.
NORMAL = -1.0
#: As near to 0 or 1 a rate counts as 0 or 1: a model's probabilities come near without reaching it,
#: and what a standard error implies there is an effective size of millions.
EDGE = 1e-7
#: Names of the intervals for one rate.
RATE_INTERVALS: tuple[str, ...] = ("wilson", "logit", "plain")


def has_variance(theta: Array, se: Array) -> NDArray[np.bool_]:
    """Whether a rate lies inside (0, 1) and its influence function has any variance.

    It has none at 0 and 1 (within `EDGE`), and where the rows of every cluster cancel but for
    rounding.

    Parameters
    ----------
    theta, se : arrays of one shape

    Returns
    -------
    array of bool
    """
    inside = (theta > EDGE) & (theta < 1 - EDGE)
    spread = np.sqrt(np.where(inside, theta * (1 - theta), 1.0))
    return inside & (se > 1e-6 * spread)


def outside(theta: Array, se: Array) -> NDArray[np.bool_]:
    """Whether a rate lies outside [0, 1], as doubly robust ones can, with a variance of its own.

    Parameters
    ----------
    theta, se : arrays of one shape

    Returns
    -------
    array of bool
    """
    return beyond(theta) & (se > 0)


def beyond(theta: Array) -> NDArray[np.bool_]:
    """Whether a rate is below 0 or above 1 by more than rounding.

    Parameters
    ----------
    theta : array

    Returns
    -------
    array of bool
    """
    result: NDArray[np.bool_] = (theta < -EDGE) | (theta > 1 + EDGE)
    return result


def effective_size(theta: Array, se: Array, kish: Array) -> Array:
    """Number of independent observations that would give this standard error.

    Parameters
    ----------
    theta : (T,) array
        Rates.
    se : (T,) array
        Standard errors from the influence function.
    kish : (T,) array
        Kish's effective size of the denominator, used where the rate is exactly 0 or 1 and the
        influence function has no variance, and outside [0, 1], where no proportion has any.

    Returns
    -------
    (T,) array
        ``theta (1 - theta) / se^2``.
    """
    interior = has_variance(theta, se)
    variance = np.where(interior, se**2, 1.0)
    implied = np.where(interior, theta * (1 - theta), 0.0) / variance
    result: Array = np.where(interior, implied, kish)
    return result


def boundary_se(theta: Array, se: Array, kish: Array) -> Array:
    """Standard errors with Agresti and Coull's in place of 0, as for a rate of exactly 0 or 1.

    Parameters
    ----------
    theta, se, kish : (T,) arrays

    Returns
    -------
    (T,) array

    References
    ----------
    Agresti A, Coull BA (1998). Approximate is better than "exact" for interval estimation of
    binomial proportions. The American Statistician 52, 119-126.
    """
    shrunk = (np.clip(theta, 0, 1) * kish + 2) / (kish + 4)
    boundary = ~has_variance(theta, se) & ~np.isnan(theta) & ~outside(theta, se)
    result: Array = np.where(boundary, np.sqrt(shrunk * (1 - shrunk) / (kish + 4)), se)
    return result


def wilson_interval(
    theta: Array, n: Array, level: ArrayLike = 0.95, *, max_df: ArrayLike = np.inf
) -> tuple[Array, Array]:
    """Wilson's interval for a rate with an effective size.

    Parameters
    ----------
    theta : (T,) array
        Rates; NaN gives NaN limits.
    n : (T,) array
        Effective sizes; at 1 or less nothing is known and the limits are 0 and 1.
    level : float or (T,) array, default 0.95
        Confidence level.
    max_df : float or (T,) array, default inf
        Student's quantile has ``n - 1`` degrees of freedom, but no more than this: the number of
        clusters less one. `NORMAL` takes the normal quantile, as for independent rows.

    Returns
    -------
    low, high : (T,) arrays

    References
    ----------
    Wilson EB (1927). Probable inference, the law of succession, and statistical inference. Journal
    of the American Statistical Association 22, 209-212.

    Examples
    --------
    >>> import numpy as np
    >>> low, high = wilson_interval(np.array([0.2]), np.array([50.0]), max_df=NORMAL)
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.1124], [0.3304])
    """
    limits = wilson_limits(theta, n, max_df=max_df)
    return limits((1 - np.asarray(level, dtype=np.float64)) / 2)


def _quantile(level: ArrayLike, max_df: ArrayLike) -> Array:
    tail, df = (1 - np.asarray(level, dtype=np.float64)) / 2, np.asarray(max_df, dtype=np.float64)
    student = np.isfinite(df) & (df != NORMAL)
    q = np.where(student, -stdtrit(np.where(student, df, 1.0), tail), -ndtri(tail))
    return np.where(np.isnan(q), np.inf, q)  # no degrees of freedom, nothing known


def plain_interval(
    theta: Array, se: Array, level: ArrayLike = 0.95, *, max_df: ArrayLike = np.inf
) -> tuple[Array, Array]:
    """Normal interval ``theta -+ z se``, cut to [0, 1]. It covers too little for small rates.

    Parameters
    ----------
    theta, se : (T,) arrays
    level : float or (T,) array, default 0.95
    max_df : float, default inf
        Degrees of freedom of Student's quantile if finite: the clusters less one.

    Returns
    -------
    low, high : (T,) arrays
    """
    half = _quantile(level, max_df) * se
    return np.clip(theta - half, 0, 1), np.clip(theta + half, 0, 1)


def logit_interval(
    theta: Array, se: Array, level: ArrayLike = 0.95, *, max_df: ArrayLike = np.inf
) -> tuple[Array, Array]:
    """Normal interval on the logit scale; a rate of exactly 0 or 1 gives (0, 1).

    Parameters
    ----------
    theta, se : (T,) arrays
    level : float or (T,) array, default 0.95
    max_df : float, default inf
        Degrees of freedom of Student's quantile if finite: the clusters less one.

    Returns
    -------
    low, high : (T,) arrays
    """
    from scipy.special import expit, logit

    interior = (theta > 0) & (theta < 1)
    safe = np.where(interior, theta, 0.5)
    half = _quantile(level, max_df) * se / (safe * (1 - safe))
    low = np.where(interior, expit(logit(safe) - half), 0.0)
    high = np.where(interior, expit(logit(safe) + half), 1.0)
    undefined = np.isnan(theta)
    return np.where(undefined, np.nan, low), np.where(undefined, np.nan, high)


def mover_difference(
    a: Array, a_low: Array, a_high: Array, b: Array, b_low: Array, b_high: Array, rho: ArrayLike = 0
) -> tuple[Array, Array]:
    """Interval of a difference ``a - b`` from the intervals of both.

    Parameters
    ----------
    a, a_low, a_high : arrays
        First rate and its limits.
    b, b_low, b_high : arrays
        Second rate and its limits.
    rho : float or array, default 0
        Correlation of the two estimates.

    Returns
    -------
    low, high : arrays

    References
    ----------
    Zou GY, Donner A (2008). Construction of confidence limits about effect measures: a general
    approach. Statistics in Medicine 27, 1693-1702. Newcombe RG (1998), Statistics in Medicine 17,
    873-890, method 10, is the case of independent proportions.
    """
    r = np.asarray(rho, dtype=np.float64)

    def reach(x: Array, z: Array) -> Array:
        distance: Array = np.sqrt(np.maximum(x**2 + z**2 - 2 * r * x * z, 0.0))
        return distance

    d = a - b
    return d - reach(a - a_low, b_high - b), d + reach(a_high - a, b - b_low)


def mover_ratio(
    a: Array, a_low: Array, a_high: Array, b: Array, b_low: Array, b_high: Array, rho: ArrayLike = 0
) -> tuple[Array, Array]:
    """Interval of a ratio ``a / b`` from the intervals of both.

    A ratio r lies inside exactly when 0 lies in the MOVER interval of ``a - r b``, so it holds 1 if
    and only if the interval of the difference holds 0.

    Parameters
    ----------
    a, a_low, a_high, b, b_low, b_high : arrays
    rho : float or array, default 0

    Returns
    -------
    low, high : arrays
        `high` is infinite where the interval of `b` reaches 0; both are NaN where `b` is 0.

    References
    ----------
    Donner A, Zou GY (2012). Closed-form confidence intervals for functions of the normal mean and
    standard deviation. Statistical Methods in Medical Research 21, 347-359.
    """
    r = np.asarray(rho, dtype=np.float64)
    low = _ratio_limit(a, a - a_low, b, b_high - b, r, sign=-1.0)
    high = _ratio_limit(a, a_high - a, b, b - b_low, r, sign=1.0)
    return np.maximum(low, 0.0), high


def _ratio_limit(a: Array, x: Array, b: Array, z: Array, rho: Array, sign: float) -> Array:
    """Root of ``(a - r b)^2 = x^2 + r^2 z^2 - 2 rho r x z``: `sign` -1 lower, +1 upper."""
    lead = b**2 - z**2
    middle = a * b - rho * x * z
    last = a**2 - x**2
    root = np.sqrt(np.maximum(middle**2 - lead * last, 0.0))
    # In the lower limit b + z is the upper limit of b, so lead may be negative and the root with
    # the minus sign is still the positive one; in the upper limit lead <= 0 means no upper bound.
    flat = np.abs(lead) < 1e-14
    curved = (middle + sign * root) / np.where(flat, 1.0, lead)
    linear = flat & (middle != 0)
    straight = np.where(linear, last, 0.0) / np.where(linear, 2 * middle, 1.0)
    if sign > 0:
        result = np.where(flat | (lead < 0), np.inf, curved)
    else:
        result = np.where(flat, straight, curved)
    undefined = np.isnan(a) | ~(b > 0)
    return np.where(undefined, np.nan, result)


def mover_p_value(
    a: Array,
    n_a: Array,
    b: Array,
    n_b: Array,
    rho: ArrayLike = 0,
    *,
    max_df: ArrayLike | tuple[ArrayLike, ArrayLike] = np.inf,
) -> Array:
    """Two-sided p-value of ``a = b``: the level at which the MOVER interval touches 0.

    So interval and p-value agree. Only with correlations near 1 between rates of a few dozen
    effective rows, as a handful of clusters can bring, are MOVER intervals not nested; the p-value
    is then the largest level that holds 0, and in 1% of such pairs above that of an interval that
    excludes it.

    Parameters
    ----------
    a, n_a : arrays
        First rate and its effective size.
    b, n_b : arrays
        Second rate and its effective size.
    rho : float or array, default 0
        Correlation of the estimates.
    max_df : float or array, or a pair of them, default inf
        As in `wilson_interval`, of both rates or of either.

    Returns
    -------
    array
        NaN where a rate is undefined.
    """
    df = max_df if isinstance(max_df, tuple) else (max_df, max_df)

    limits_a = wilson_limits(a, n_a, max_df=df[0])
    limits_b = wilson_limits(b, n_b, max_df=df[1])

    def holds_zero(log_p: Array) -> NDArray[np.bool_]:
        tail = np.exp(log_p) / 2
        d_low, d_high = mover_difference(a, *limits_a(tail), b, *limits_b(tail), rho)
        return (d_low <= 0) & (d_high >= 0)

    p = np.where(a == b, 1.0, _largest_level(holds_zero, np.shape(a)))
    result: Array = np.where(np.isnan(a) | np.isnan(b), np.nan, p)
    return result


def _largest_level(holds_zero: Callable[[Array], NDArray[np.bool_]], shape: Any) -> Array:
    """Largest p for which the interval of level 1 - p holds 0, asked by the logarithm of p."""
    # Intervals of very small, strongly correlated samples are not nested, so the largest level is
    # bracketed from above before it is bisected.
    low, high = np.full(shape, -690.0), np.zeros(shape)
    open_ = np.ones(shape, dtype=bool)
    for step in -np.geomspace(0.01, 690, 40):
        found = open_ & holds_zero(np.full(shape, step))
        low = np.where(found, step, low)
        open_ &= ~found
        high = np.where(open_, step, high)
        if not open_.any():
            break
    for _ in range(45):
        middle = (low + high) / 2
        inside = holds_zero(middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.exp(high)


def wilson_limits(theta: Array, n: Array, *, max_df: ArrayLike = np.inf) -> Limits:
    """Wilson's limits of rates as a function of the probability of one tail.

    That keeps its digits when tiny, and searches for a level ask for many.

    Parameters
    ----------
    theta, n : arrays
        As in `wilson_interval`.
    max_df : float, default inf

    Returns
    -------
    function
    """
    known = n > 1
    size = np.where(known, n, 2.0)
    normal = np.ndim(max_df) == 0 and max_df == NORMAL
    df = np.minimum(size - 1, np.inf if normal else max_df)
    at = np.clip(theta, 0, 1)  # an estimate outside is no proportion, but its limits are
    spread = np.maximum(at * (1 - at), 0.0) / size
    twice, squared = 2 * size, 4 * size**2
    undefined = np.isnan(at)
    # At 0 and 1 one limit is the rate itself; subtraction would leave a rounding error there.
    no_low, no_high = undefined | ~known | (at <= 0), undefined | ~known | (at >= 1)
    lowest, highest = np.where(undefined, np.nan, 0.0), np.where(undefined, np.nan, 1.0)

    def limits(tail: Array) -> tuple[Array, Array]:
        q = -ndtri(tail) * np.ones_like(size) if normal else -stdtrit(df, tail)
        # With about one degree of freedom and a tiny tail the quantile overflows, either way.
        q = np.where(np.isfinite(q) & (q > 0), np.minimum(q, 1e6), np.where(tail < 0.4, 1e6, 0.0))
        q2 = q**2
        widened = 1 + q2 / size
        centre = (at + q2 / twice) / widened
        half = np.sqrt(q2) / widened * np.sqrt(spread + q2 / squared)
        low = np.where(no_low, lowest, np.minimum(np.maximum(centre - half, 0.0), 1.0))
        high = np.where(no_high, highest, np.minimum(np.maximum(centre + half, 0.0), 1.0))
        return low, high

    return limits


def student_limits(mean: Array, se: Array, df: Array) -> Limits:
    """Student's limits of means as a function of the probability of one tail.

    Parameters
    ----------
    mean, se, df : arrays
        Without a degree of freedom the limits are NaN.

    Returns
    -------
    function
    """
    known = np.where(df > 0, df, np.nan)

    def limits(tail: Array) -> tuple[Array, Array]:
        half = np.minimum(-stdtrit(known, tail) * se, 1e150)  # its square has to be a number
        return mean - half, mean + half

    return limits


def mover_combination(
    values: Array,
    low: Array,
    high: Array,
    coefficients: Array,
    correlation: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """Interval of a linear combination from the intervals of its parts.

    Parameters
    ----------
    values, low, high : (..., k) arrays
        Estimates and their limits.
    coefficients : (k,) array
    correlation : (..., k, k) array, optional
        Of the estimates, which are independent by default.

    Returns
    -------
    low, high : (...) arrays

    References
    ----------
    Zou GY, Huang W, Zhang X (2009). A note on confidence interval estimation for a linear function
    of binomial proportions. Computational Statistics & Data Analysis 53, 1080-1085.

    Examples
    --------
    >>> import numpy as np
    >>> rates, n = np.array([0.4, 0.1]), np.array([50.0, 50.0])
    >>> limits = wilson_interval(rates, n, max_df=NORMAL)
    >>> np.round(mover_combination(rates, *limits, np.array([1.0, -1.0])), 3).tolist()
    [0.132, 0.449]
    """
    down, up = values - low, high - values
    rising = coefficients > 0
    at = values @ coefficients

    def reach(part: Array) -> Array:
        signed = coefficients * part
        if correlation is None:
            total = np.sum(signed**2, axis=-1)
        else:
            total = np.einsum("...i,...ij,...j->...", signed, np.asarray(correlation), signed)
        distance: Array = np.sqrt(np.maximum(total, 0.0))
        return distance

    return at - reach(np.where(rising, down, up)), at + reach(np.where(rising, up, down))


def mover_combination_p_value(
    values: Array, limits: Limits, coefficients: Array, correlation: ArrayLike | None = None
) -> Array:
    """Two-sided p-value of a combination of 0: the level at which its MOVER interval touches 0.

    Parameters
    ----------
    values : (..., k) array
    limits : function
        As from `wilson_limits`.
    coefficients : (k,) array
    correlation : (..., k, k) array, optional

    Returns
    -------
    (...) array
        NaN where the combination or its interval is undefined; never 0.
    """

    def holds_zero(log_p: Array) -> NDArray[np.bool_]:
        found = limits(np.exp(log_p)[..., None] / 2)
        low, high = mover_combination(values, *found, coefficients, correlation)
        return (low <= 0) & (high >= 0)

    at = np.asarray(values @ coefficients)
    p = np.where(np.abs(at) < 1e-15, 1.0, _largest_level(holds_zero, at.shape))
    some_low, some_high = limits(np.full((*at.shape, 1), 0.025))
    known = ~np.isnan(values + some_low + some_high).any(axis=-1)
    result: Array = np.where(known, p, np.nan)
    return result
