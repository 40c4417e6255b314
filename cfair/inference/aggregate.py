"""Intervals for the average, maximum and variance of the absolute differences between groups.

These summaries are biased upward when groups are nearly equal and have no derivative where groups
tie, so percentile and delta-method intervals fail: under exact equality a percentile interval never
holds 0. The interval here restores the ties that noise has broken, and starts at 0 unless two tests
reject equality.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, fdtri

from cfair.estimators.disparity import STATISTICS, disparities
from cfair.inference.equality import (
    EqualityTest,
    boundary_covariance,
    defined_by_rate,
    equality_test,
    largest_standardized,
    n_draws,
    noise_draws,
    pair_deviations,
)

Array = NDArray[np.float64]

#: Names of the intervals for the summaries.
AGGREGATE_INTERVALS: tuple[str, ...] = ("tie-aware", "projection")


@dataclass(frozen=True)
class AggregateIntervals:
    """Summaries of the differences with their intervals, in the order of `STATISTICS`.

    Attributes
    ----------
    estimate, low, high : (3,) arrays
    expected_if_equal : (3,) array
        Mean of each summary if all rates were equal, from their covariance: what noise alone gives
        (a draw above 1 counts as 1).
    equality_rejected : bool
        Whether both the logit Wald and the max-t test reject equality at the level.
    """

    estimate: Array
    low: Array
    high: Array
    expected_if_equal: Array
    equality_rejected: bool


def aggregate_intervals(
    theta: Array,
    covariance: Array,
    kish: Array,
    level: float = 0.95,
    *,
    interval: str = "tie-aware",
    equality: EqualityTest | None = None,
    n_clusters: int | None = None,
) -> AggregateIntervals:
    """Intervals for average, maximum and variance of the absolute pairwise differences.

    The variance is a poor target: it is of the order of the square of the differences and nearly
    all noise when groups are close. Prefer the average or the maximum.

    Parameters
    ----------
    theta : (K,) array
        Rates; NaN leaves the pairs.
    covariance : (K, K) array
    kish : (K,) array
        Kish's effective sizes, for rates of exactly 0 or 1.
    level : float, default 0.95
    interval : {"tie-aware", "projection"}, default "tie-aware"
        ``"projection"`` projects simultaneous sets of the rates; it is 12 to 40% wider and gives no
        interval for the variance.
    equality : EqualityTest, optional
        Of the same rates, if it has been done already.
    n_clusters : int, optional
        The errors are then Student's with the clusters less one degrees of freedom.

    Returns
    -------
    AggregateIntervals
    """
    defined = defined_by_rate(theta, covariance, kish)
    if len(defined) < 2:
        nothing = np.full(3, np.nan)
        return AggregateIntervals(nothing, nothing, nothing, nothing, False)
    t, n = theta[defined], kish[defined]
    sigma = boundary_covariance(t, covariance[np.ix_(defined, defined)], n)
    nu = None if n_clusters is None else n_clusters - 1
    noise = noise_draws(sigma, n_draws(len(t)), nu)
    deviations = pair_deviations(sigma)
    critical = float(np.quantile(largest_standardized(noise, deviations), level))
    test = equality or equality_test(theta, covariance, kish, n_clusters=n_clusters)
    rejected = bool(test.p_value < 1 - level and test.max_t_p_value < 1 - level)
    estimate = np.array(disparities(t))
    if interval == "projection":
        low, high = _projection(t, sigma, deviations, critical, level, nu)
    else:
        low, high = _tie_aware(t, sigma, noise, deviations, critical, level)
    if not rejected:
        low = np.where(np.isnan(low), np.nan, 0.0)
    else:
        low[1] = np.maximum(low[1], low[0])  # the maximum is at least the average
    expected = np.mean(np.minimum(np.array(disparities(noise)), 1.0), axis=1)
    return AggregateIntervals(estimate, np.clip(low, 0, 1), np.clip(high, 0, 1), expected, rejected)


def _tie_aware(
    t: Array, sigma: Array, noise: Array, deviations: Array, critical: float, level: float
) -> tuple[Array, Array]:
    f = np.array(disparities(t))
    tails = [(1 - level) / 2, (1 + level) / 2]
    shifted = np.array(disparities(t + noise))
    upper = _quantile(shifted, tails[1])
    fused = fuse(t, sigma, deviations, critical)
    around = np.array(disparities(fused + noise)) - np.array(disparities(fused))[:, None]
    r_low, r_high = _quantile(around, tails[0]), _quantile(around, tails[1])
    low = np.minimum(f - (upper - f), f - r_high)
    high = np.maximum(upper, f - r_low)
    return low, high


def _quantile(values: Array, probability: float) -> Array:
    """Row quantiles; a row of NaN (the variance of a single pair) stays NaN."""
    undefined = np.isnan(values[:, 0])
    filled = np.where(undefined[:, None], 0.0, values)
    result: Array = np.where(undefined, np.nan, np.quantile(filled, probability, axis=1))
    return result


def fuse(t: Array, sigma: Array, deviations: Array, critical: float) -> Array:
    """Give groups that cannot be told apart a common rate.

    The closest two clusters are joined while their standardized distance is below `critical`; the
    rate of a cluster is the precision-weighted mean of its groups.

    Parameters
    ----------
    t : (K,) array
    sigma : (K, K) array
    deviations : (K, K) array
        Standard deviations of the pairwise differences.
    critical : float
        Max-t critical value over all pairs.

    Returns
    -------
    (K,) array
    """
    mean, V = t.copy(), sigma.copy()
    precision = 1 / np.maximum(np.diag(sigma), 1e-300)
    cluster = np.arange(len(t))
    distance = np.full(V.shape, np.inf)
    pairs = np.triu_indices(len(t), 1)
    known = np.maximum(deviations[pairs], 1e-150)
    distance[pairs] = np.abs(mean[:, None] - mean[None, :])[pairs] / known
    while True:
        i, j = np.unravel_index(int(np.argmin(distance)), distance.shape)
        if not distance[i, j] < critical:
            return mean[cluster]
        # The joined cluster is a weighted mean, so its covariances are weighted means of the two.
        share = precision[i] / (precision[i] + precision[j])
        mean[i] = share * mean[i] + (1 - share) * mean[j]
        V[i] = share * V[i] + (1 - share) * V[j]
        V[:, i] = share * V[:, i] + (1 - share) * V[:, j]
        precision[i] += precision[j]
        cluster[cluster == j] = i
        variance = V[i, i] + np.diag(V) - 2 * V[i]
        fresh = np.abs(mean[i] - mean) / np.sqrt(np.maximum(variance, 1e-300))
        fresh[np.setdiff1d(np.arange(len(t)), cluster)] = np.inf
        distance[i, i + 1 :] = fresh[i + 1 :]
        distance[:i, i] = fresh[:i]
        distance[j, :] = distance[:, j] = np.inf


def _projection(
    t: Array, sigma: Array, deviations: Array, critical: float, level: float, nu: int | None
) -> tuple[Array, Array]:
    gaps = np.abs(t[:, None] - t[None, :])
    pairs = np.triu_indices(len(t), 1)
    maximum = (
        float(np.max(gaps[pairs] - critical * deviations[pairs])),
        float(np.max(gaps[pairs] + critical * deviations[pairs])),
    )
    # The average is linear in the rates as long as their order holds.
    position = np.empty(len(t))
    position[np.argsort(t, kind="stable")] = 2.0 * np.arange(len(t)) - (len(t) - 1)
    slope = position / len(pairs[0])
    df = len(t) - 1
    if nu is None:
        radius = float(chdtri(df, 1 - level))
    elif nu > df:  # Hotelling's, as in the test of equality
        radius = float(fdtri(df, nu - df + 1, level)) * nu * df / (nu - df + 1)
    else:
        radius = np.inf
    reach = np.sqrt(radius * float(slope @ sigma @ slope))
    f = float(disparities(t)[STATISTICS.index("average")])
    low = np.array([f - reach, maximum[0], np.nan])
    high = np.array([f + reach, maximum[1], np.nan])
    return low, high
