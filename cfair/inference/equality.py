"""Are the rates of the groups equal? Wald on the logit scale, and the largest difference."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, fdtrc, logit

from cfair.inference.intervals import boundary_se, has_variance, outside

Array = NDArray[np.float64]


def n_draws(n_groups: int) -> int:
    """Gaussian draws behind critical values and tie-aware intervals: fewer with many groups.

    Parameters
    ----------
    n_groups : int

    Returns
    -------
    int
        4000 up to 60 groups, 1000 from 240.
    """
    return 2 * int(min(2000, max(500, 120_000 // max(1, n_groups))))


_MISSING = 1e12  # variance that takes a group without a rate out of a test


@dataclass(frozen=True)
class EqualityTest:
    """Tests that the rates of all groups are equal.

    Attributes
    ----------
    metric : str
    wald : float
        Chi-square on the logit scale.
    df : int
        Groups with a rate, less one.
    p_value : float
        Of the Wald test.
    max_t : float
        Largest standardized absolute difference between two groups, on the logit scale.
    max_t_p_value : float
        Adjusted for all pairs, from their joint normal distribution.
    left_out : tuple of int
        Positions of groups without a rate.
    note : str
        Why there is no test, if there is none.
    df_denominator : float
        Where the covariance is from few clusters or replicates: denominator degrees of freedom of
        Hotelling's F; NaN for a chi-square.
    """

    metric: str
    wald: float
    df: int
    p_value: float
    max_t: float
    max_t_p_value: float
    left_out: tuple[int, ...] = ()
    note: str = ""
    df_denominator: float = np.nan

    @property
    def f_statistic(self) -> float:
        """The Wald statistic as an F ratio, with `df` and `df_denominator` degrees of freedom."""
        nu = self.df_denominator + self.df - 1
        return self.wald * self.df_denominator / (nu * self.df)


def logit_wald(theta: Array, covariance: Array, kish: Array) -> Array:
    """Wald statistic of equal rates, on the logit scale.

    A rate of exactly 0 or 1 gets Agresti and Coull's estimate and variance; without it such a group
    would reject every time. A rate that is NaN takes no part.

    Parameters
    ----------
    theta : (..., K) array
    covariance : (..., K, K) array
    kish : (..., K) array
        Kish's effective sizes of the denominators.

    Returns
    -------
    (...) array
        Chi-square with (number of defined rates - 1) degrees of freedom; NaN with fewer than two.
    """
    value, V = logit_scale(theta, covariance, kish)
    one = np.ones_like(value)
    stacked = np.stack([value, one], axis=-1)
    solved = _solve(V, stacked)
    s_ll = np.einsum("...k,...k->...", value, solved[..., 0])
    s_l1 = np.einsum("...k,...k->...", value, solved[..., 1])
    s_11 = np.einsum("...k,...k->...", one, solved[..., 1])
    statistic = np.maximum(s_ll - s_l1**2 / s_11, 0.0)
    defined = np.count_nonzero(~np.isnan(theta), axis=-1)
    return np.asarray(np.where(defined >= 2, statistic, np.nan), dtype=np.float64)


def logit_scale(theta: Array, covariance: Array, kish: Array) -> tuple[Array, Array]:
    """Logits of the rates and their covariance, Agresti and Coull's at 0 and 1.

    Parameters
    ----------
    theta, kish : (..., K) arrays
    covariance : (..., K, K) array

    Returns
    -------
    value : (..., K) array
    V : (..., K, K) array
        An undefined rate has value 0 and a variance so large that it takes no part.
    """
    missing = np.isnan(theta)
    variance = np.maximum(np.nan_to_num(np.einsum("...kk->...k", covariance)), 0.0)
    boundary = ~missing & ~has_variance(np.nan_to_num(theta), np.sqrt(variance))
    inside = ~missing & ~boundary
    size = np.where(missing, 1.0, kish)
    shrunk = (np.clip(np.nan_to_num(theta), 0, 1) * size + 2) / (size + 4)
    rate = np.where(inside, theta, shrunk)
    slope = np.where(inside, 1 / (rate * (1 - rate)), 0.0)
    V = np.where(np.isnan(covariance), 0.0, covariance) * slope[..., :, None] * slope[..., None, :]
    diagonal = np.einsum("...kk->...k", V)
    diagonal = np.where(boundary, 1 / ((size + 4) * rate * (1 - rate)), diagonal)
    diagonal = np.where(missing, _MISSING, diagonal)
    index = np.arange(theta.shape[-1])
    V[..., index, index] = diagonal
    value: Array = np.where(missing, 0.0, logit(rate))
    return value, V


def _solve(V: Array, right: Array) -> Array:
    try:
        return np.asarray(np.linalg.solve(V, right), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(V, hermitian=True) @ right, dtype=np.float64)


def boundary_covariance(theta: Array, covariance: Array, kish: Array) -> Array:
    """Covariance with Agresti and Coull's variance for rates of exactly 0 or 1.

    Parameters
    ----------
    theta, kish : (K,) arrays
    covariance : (K, K) array

    Returns
    -------
    (K, K) array
    """
    se = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    boundary = ~has_variance(theta, se) & ~outside(theta, se)
    result = np.where(boundary[:, None] | boundary[None, :], 0.0, covariance)
    np.fill_diagonal(result, boundary_se(theta, se, kish) ** 2)
    return result


def noise_draws(covariance: Array, n: int, df: int | None = None) -> Array:
    """Antithetic draws of the errors of estimates: normal, or Student's.

    The underlying random numbers are always the same: the draws integrate numerically, and one
    covariance gives one critical value.

    Parameters
    ----------
    covariance : (K, K) array
        Positive semidefinite.
    n : int
        An even number.
    df : int, optional
        Degrees of freedom of the multivariate t distribution; normal by default.

    Returns
    -------
    (n, K) array
    """
    # Cholesky's root changes smoothly with the covariance; eigenvectors flip their signs.
    spread = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    correlation = covariance / np.outer(spread, spread)
    root = spread[:, None] * _cholesky(correlation)
    z, stretch = _standard_draws(n // 2, len(covariance), df)
    half = z @ root.T
    if stretch is not None:
        half *= stretch
    return np.concatenate([half, -half])


def _cholesky(correlation: Array) -> Array:
    """Root of a correlation matrix, or of the nearest one where rates contradict each other."""
    little = 1e-9 * np.eye(len(correlation))
    try:
        return np.asarray(np.linalg.cholesky(correlation + little))
    except np.linalg.LinAlgError:
        # rates that rest on next to nothing have standard errors of their own
        values, vectors = np.linalg.eigh(correlation)
        nearest = (vectors * np.maximum(values, 0.0)) @ vectors.T
        scale = np.sqrt(np.maximum(np.diag(nearest), 1e-300))
        return np.asarray(np.linalg.cholesky(nearest / np.outer(scale, scale) + little))


@lru_cache(maxsize=8)  # one print asks for those of a few numbers of groups, again and again
def _standard_draws(n: int, n_groups: int, df: int | None) -> tuple[Array, Array | None]:
    """Independent normal errors, and what makes them Student's."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((n, n_groups))
    z.setflags(write=False)
    if df is None:
        return z, None
    stretch: Array = np.sqrt(df / rng.chisquare(df, size=(n, 1)))
    stretch.setflags(write=False)
    return z, stretch


def pair_deviations(covariance: Array) -> Array:
    """Standard deviations of the differences between all pairs.

    Parameters
    ----------
    covariance : (K, K) array

    Returns
    -------
    (K, K) array
        Zero on the diagonal.
    """
    variance = np.diag(covariance)
    squared = variance[:, None] + variance[None, :] - 2 * covariance
    result: Array = np.sqrt(np.maximum(squared, 0.0))
    return result


def largest_standardized(differences_of: Array, deviations: Array) -> Array:
    """Largest absolute standardized difference between two groups, for every draw.

    Parameters
    ----------
    differences_of : (R, K) array
        Values of the groups.
    deviations : (K, K) array
        Standard deviations of the pairwise differences; a pair with 0 takes no part.

    Returns
    -------
    (R,) array
    """
    total, n_groups = differences_of.shape
    best = np.zeros(total)
    scale = np.where(deviations > 0, 1 / np.where(deviations > 0, deviations, 1.0), 0.0)
    size = max(32, 65_536 // max(1, n_groups))  # draws at a time: a block stays in cache
    for first in range(0, total, size):
        top = best[first : first + size]
        # a group a row, since the largest of many short rows takes several times as long
        values = np.ascontiguousarray(differences_of[first : first + size].T)
        for k in range(n_groups - 1):
            gap = np.abs(values[k + 1 :] - values[k])
            gap *= scale[k, k + 1 :, None]
            np.maximum(top, gap.max(axis=0), out=top)
    return best


def largest_of_noise(covariance: Array, n: int, deviations: Array, df: int | None = None) -> Array:
    """Largest absolute standardized difference between two groups, in every draw of their errors.

    Parameters
    ----------
    covariance : (K, K) array
    n : int
        An even number.
    deviations : (K, K) array
        As in `largest_standardized`.
    df : int, optional
        As in `noise_draws`.

    Returns
    -------
    (n,) array
    """
    half = largest_standardized(noise_draws(covariance, n, df)[: n // 2], deviations)
    return np.concatenate([half, half])  # that of draws of opposite sign is the same


def defined_by_rate(theta: Array, covariance: Array, kish: Array) -> NDArray[np.intp]:
    """Positions of the defined rates, in their order, so that names of groups change no draw.

    Parameters
    ----------
    theta : (K,) array
    covariance : (K, K) array
        Its diagonal orders equal rates.
    kish : (K,) array
        Orders equal rates of equal variance.

    Returns
    -------
    (m,) array of int
    """
    # rounded, since sums over rows in another order differ in their last digits
    order = np.lexsort([kish.round(6), np.diag(covariance).round(12), theta.round(12)])
    return order[~np.isnan(theta[order])]


def max_t_test(
    theta: Array, covariance: Array, kish: Array, df: int | None = None
) -> tuple[float, float]:
    """Largest standardized difference between two groups, on the logit scale.

    On the scale of the rates its size is 9 to 18% instead of 5% in groups of a few dozen; on the
    logit scale, with Agresti and Coull's variance at 0 and 1, it is 3 to 6%.

    Parameters
    ----------
    theta, kish : (K,) arrays
        Defined rates.
    covariance : (K, K) array
    df : int, optional
        Degrees of freedom of the covariance; as many as you like by default.

    Returns
    -------
    statistic : float
    p_value : float
        Adjusted for all pairs, from the joint normal distribution of the differences.
    """
    value, V = logit_scale(theta, covariance, kish)
    deviations = pair_deviations(V)
    observed = float(largest_standardized(value[None, :], deviations)[0])
    null = largest_of_noise(V, n_draws(len(value)), deviations, df)
    return observed, float((1 + np.count_nonzero(null >= observed)) / (1 + len(null)))


def equality_test(
    theta: Array,
    covariance: Array,
    kish: Array,
    *,
    metric: str = "",
    n_clusters: int | None = None,
    n_replicates: int | None = None,
) -> EqualityTest:
    """Test that the rates of all groups are equal.

    Parameters
    ----------
    theta : (K,) array
        Rates; NaN leaves the test.
    covariance : (K, K) array
    kish : (K,) array
        Kish's effective sizes of the denominators.
    metric : str, optional
    n_clusters : int, optional
        Clusters behind the covariance.
    n_replicates : int, optional
        Bootstrap replicates behind the covariance.

        With either, or the fewer of both, the covariance has ``v`` degrees of freedom, one less.
        The Wald statistic W is referred to Hotelling's distribution,
        ``(v - q + 1) / (v q) W ~ F(q, v - q + 1)``, and max-t to the multivariate t. There is no
        test with no more clusters or replicates than groups.

    Returns
    -------
    EqualityTest

    Examples
    --------
    >>> import numpy as np
    >>> test = equality_test(np.array([0.1, 0.3]), np.diag([0.001, 0.001]), np.array([90.0, 210.0]))
    >>> test.df, round(test.wald, 2), round(test.p_value, 4)
    (1, 12.47, 0.0004)
    """
    left_out = tuple(int(k) for k in np.flatnonzero(np.isnan(theta)))
    defined = defined_by_rate(theta, covariance, kish)
    if len(defined) < 2:
        reason = "fewer than two groups have a rate"
        return EqualityTest(metric, np.nan, 0, np.nan, np.nan, np.nan, left_out, reason)
    behind = {"clusters": n_clusters, "bootstrap replicates": n_replicates}
    sizes = {what: size for what, size in behind.items() if size is not None}
    fewest = min(sizes, key=lambda what: sizes[what], default="")
    if sizes and sizes[fewest] <= len(defined):
        reason = f"{sizes[fewest]} {fewest} are too few to compare {len(defined)} groups"
        return EqualityTest(metric, np.nan, 0, np.nan, np.nan, np.nan, left_out, reason)
    t, n = theta[defined], kish[defined]
    sigma = covariance[np.ix_(defined, defined)]
    wald = float(logit_wald(t, sigma, n))
    df = len(t) - 1
    nu = sizes[fewest] - 1 if sizes else None
    if nu is None:
        p_value, rest = float(chdtrc(df, wald)), np.nan
    else:
        rest = float(nu - df + 1)
        p_value = float(fdtrc(df, rest, wald * rest / (nu * df)))
    observed, p_max = max_t_test(t, sigma, n, nu)
    return EqualityTest(metric, wald, df, p_value, observed, p_max, left_out, df_denominator=rest)
