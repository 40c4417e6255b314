"""The rates of one metric, for groups and margins, with all that inference on them needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from cfair.inference.aggregate import AggregateIntervals, aggregate_intervals
from cfair.inference.equality import (
    EqualityTest,
    boundary_covariance,
    defined_by_rate,
    equality_test,
    largest_of_noise,
    n_draws,
    pair_deviations,
)
from cfair.inference.intervals import (
    NORMAL,
    RATE_INTERVALS,
    boundary_se,
    effective_size,
    logit_interval,
    mover_combination,
    mover_combination_p_value,
    mover_difference,
    mover_p_value,
    mover_ratio,
    plain_interval,
    wilson_interval,
    wilson_limits,
)
from cfair.options import check_option

Array = NDArray[np.float64]

#: What two rates are compared by.
CONTRASTS: tuple[str, ...] = ("difference", "ratio")

#: Below this effective size of a denominator a rate is to be read with care.
CARE_BELOW = 20.0


@dataclass(frozen=True, eq=False)
class RateEstimates:
    """Estimates of one rate in K groups, then in the margins.

    Attributes
    ----------
    metric : str
    n_groups : int
        K; the first K targets are the groups, the others margins.
    estimate : (T,) array
        NaN where undefined.
    covariance : (T, T) array
    kish : (T,) array
        Kish's effective size of each denominator.
    max_df : float or (T,) array
        Most degrees of freedom of Student's quantile in Wilson's interval: the clusters of each
        target less one, if there are any; `NORMAL` for the normal quantile.
    n_clusters : int or None
        For the reference distribution of the tests.
    max_size : (T,) array or None
        With sampling weights: Kish's effective size of each rate, over rows. A standard error by
        linearization rests on the squared weights of the few rows that a rare outcome has; by
        chance they may all be small, and the size that it implies several times too large. No
        effective size is larger than this. Intervals, comparisons, tests of equality and summaries
        follow it; the standard errors and covariances shown remain those of linearization.

    References
    ----------
    Kish L (1965). Survey Sampling. Wiley, section 11.7.
    """

    metric: str
    n_groups: int
    estimate: Array
    covariance: Array
    kish: Array
    max_df: float | Array = np.inf
    n_clusters: int | None = None
    max_size: Array | None = None

    def __post_init__(self) -> None:
        for array in (self.estimate, self.covariance, self.kish, self.max_size):
            if array is not None:
                array.setflags(write=False)

    def select(self, targets: NDArray[np.intp]) -> RateEstimates:
        """Estimates of some of the targets, as the groups that are compared.

        Parameters
        ----------
        targets : (m,) array of int

        Returns
        -------
        RateEstimates
        """
        size = self.max_size
        return replace(
            self,
            n_groups=len(targets),
            estimate=self.estimate[targets],
            covariance=self.covariance[np.ix_(targets, targets)],
            kish=self.kish[targets],
            max_df=self.df_of(targets),
            max_size=None if size is None else size[targets],
        )

    @cached_property
    def _parts(self) -> dict[bytes, RateEstimates]:
        return {}

    def part(self, targets: NDArray[np.intp]) -> RateEstimates:
        """Estimates of some of the targets, made once, so that their test is made once too.

        Parameters
        ----------
        targets : (m,) array of int

        Returns
        -------
        RateEstimates
        """
        key = np.asarray(targets, dtype=np.intp).tobytes()
        if key not in self._parts:
            found = self.select(targets)
            if np.array_equal(targets, np.arange(self.n_groups)):
                found.__dict__["equality"] = self.equality  # it is of the groups alone in any case
            self._parts[key] = found
        return self._parts[key]

    def without(self, masked: NDArray[np.bool_]) -> RateEstimates:
        """The same with some of the rates undefined, and without what tells their sizes.

        Parameters
        ----------
        masked : (T,) array of bool

        Returns
        -------
        RateEstimates
        """
        if not masked.any():
            return self
        lost = masked[:, None] | masked[None, :]
        df, size = self.max_df, self.max_size
        return replace(
            self,
            estimate=np.where(masked, np.nan, self.estimate),
            covariance=np.where(lost, np.nan, self.covariance),
            kish=np.where(masked, 0.0, self.kish),
            max_df=df if np.ndim(df) == 0 else np.where(masked, np.nan, df),
            max_size=None if size is None else np.where(masked, 0.0, size),
        )

    @property
    def normal(self) -> bool:
        """Whether rates are plain counts of independent rows, with the normal quantile."""
        return np.ndim(self.max_df) == 0 and self.max_df == NORMAL

    def df_of(self, targets: Any) -> Any:
        """Most degrees of freedom of some targets.

        Parameters
        ----------
        targets : array of int

        Returns
        -------
        float or array
            One number if it is the same for all.
        """
        return self.max_df if np.ndim(self.max_df) == 0 else np.asarray(self.max_df)[targets]

    @property
    def se(self) -> Array:
        """Standard errors, Agresti and Coull's for a rate of exactly 0 or 1."""
        return boundary_se(self.estimate, self._plain_se, self.kish)

    @property
    def _plain_se(self) -> Array:
        result: Array = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return result

    @property
    def size(self) -> Array:
        """Effective sizes that the standard errors imply, no larger than `max_size`."""
        implied = self._implied_size
        return implied if self.max_size is None else np.minimum(implied, self.max_size)

    @property
    def _implied_size(self) -> Array:
        return effective_size(self.estimate, self._plain_se, self.kish)

    def interval(self, kind: str = "wilson", level: Any = 0.95) -> tuple[Array, Array]:
        """Limits of every rate.

        Parameters
        ----------
        kind : {"wilson", "logit", "plain"}, default "wilson"
        level : float, default 0.95

        Returns
        -------
        low, high : (T,) arrays
        """
        check_option("interval", kind, RATE_INTERVALS)
        if kind == "wilson":
            return wilson_interval(self.estimate, self.size, level, max_df=self.max_df)
        if kind == "logit":
            return logit_interval(self.estimate, self.se, level, max_df=self.max_df)
        return plain_interval(self.estimate, self.se, level, max_df=self.max_df)

    def contrast(
        self, first: NDArray[np.intp], second: NDArray[np.intp], kind: str, level: float
    ) -> Contrast:
        """Compare pairs of targets.

        Parameters
        ----------
        first, second : (m,) arrays of int
            Positions of the targets.
        kind : {"difference", "ratio"}
        level : float

        Returns
        -------
        Contrast
        """
        a, b = self.estimate[first], self.estimate[second]
        # limits are those of proportions, also where an estimate is outside [0, 1]
        inner_a, inner_b = np.clip(a, 0, 1), np.clip(b, 0, 1)
        rho = self._correlation(first, second)
        low, high = self.interval("wilson", level)
        limits = (inner_a, low[first], high[first], inner_b, low[second], high[second], rho)
        sizes = self.size
        df = self.df_of(first), self.df_of(second)
        p = partial(mover_p_value, inner_a, sizes[first], inner_b, sizes[second], rho, max_df=df)
        se_a, se_b = self.se[first], self.se[second]
        if kind == "difference":
            c_low, c_high = mover_difference(*limits)
            variance = se_a**2 + se_b**2 - 2 * rho * se_a * se_b
            return Contrast(a - b, np.sqrt(np.maximum(variance, 0)), c_low, c_high, p)
        c_low, c_high = mover_ratio(*limits)
        positive = b > 0
        ratio = np.where(positive, a, np.nan) / np.where(positive, b, 1.0)
        safe_a, safe_b = np.where(a > 0, a, np.nan), np.where(positive, b, np.nan)
        relative = (se_a / safe_a) ** 2 + (se_b / safe_b) ** 2
        relative = relative - 2 * rho * se_a * se_b / (safe_a * safe_b)
        return Contrast(ratio, ratio * np.sqrt(np.maximum(relative, 0)), c_low, c_high, p)

    def combination(self, targets: NDArray[np.intp], coefficients: Array, level: float) -> Contrast:
        """Linear combinations of targets, such as an interaction contrast.

        Parameters
        ----------
        targets : (m, k) array of int
        coefficients : (k,) array
        level : float

        Returns
        -------
        Contrast
        """
        rates, sizes = np.clip(self.estimate[targets], 0, 1), self.size[targets]
        rho = self._correlation(targets[:, :, None], targets[:, None, :])
        rho[:, range(targets.shape[1]), range(targets.shape[1])] = 1.0
        limits = wilson_limits(rates, sizes, max_df=self.df_of(targets))
        low, high = limits(np.full((len(targets), 1), (1 - level) / 2))
        c_low, c_high = mover_combination(rates, low, high, coefficients, rho)
        p = partial(mover_combination_p_value, rates, limits, coefficients, rho)
        signed = coefficients * self.se[targets]
        variance = np.einsum("mi,mij,mj->m", signed, rho, signed)
        at = self.estimate[targets] @ coefficients
        return Contrast(at, np.sqrt(np.maximum(variance, 0)), c_low, c_high, p)

    def _correlation(self, first: NDArray[np.intp], second: NDArray[np.intp]) -> Array:
        se = self._plain_se
        product = se[first] * se[second]
        some = product > 0
        covariance = np.where(some, self.covariance[first, second], 0.0)
        result: Array = np.clip(covariance / np.where(some, product, 1.0), -1, 1)
        return result

    def simultaneous(
        self, first: NDArray[np.intp], second: NDArray[np.intp], level: float
    ) -> tuple[float, Array]:
        """Pointwise level for simultaneous intervals of a family of differences, and p-values.

        Parameters
        ----------
        first, second : (m,) arrays of int
        level : float
            Simultaneous level.

        Returns
        -------
        pointwise : float
            Level at which each interval is to be computed.
        p_value : (m,) array
            Adjusted for the family by its joint normal distribution.
        """
        used = np.unique(np.concatenate([first, second]))
        part = np.ix_(used, used)
        order = defined_by_rate(self.estimate[used], self.covariance[part], self.kish[used])
        used = used[order]
        place = {int(t): k for k, t in enumerate(used)}
        sigma = boundary_covariance(
            self.estimate[used], self.covariance[np.ix_(used, used)], self.kish[used]
        )
        deviations = np.zeros_like(sigma)
        every = pair_deviations(sigma)
        for i, j in zip(first, second, strict=True):
            if int(i) in place and int(j) in place:
                k, m = sorted((place[int(i)], place[int(j)]))
                deviations[k, m] = every[k, m]
        nu = None if self.n_clusters is None else self.n_clusters - 1
        null = largest_of_noise(sigma, n_draws(len(sigma)), deviations, nu)
        critical = float(np.quantile(null, level))
        # against the p-value of the unadjusted interval, so that band and p-value agree
        p = self.contrast(first, second, "difference", level).p_value
        tail = np.clip(p, 1e-300, 1) / 2
        z = -ndtri(tail) if nu is None else -stdtrit(nu, tail)
        exceed = np.array([np.count_nonzero(null >= value) for value in z])
        adjusted = np.where(np.isnan(p), np.nan, (1 + exceed) / (1 + len(null)))
        below = ndtr(critical) if nu is None else stdtr(nu, critical)
        return float(2 * below - 1), adjusted

    @property
    def _groups_only(self) -> tuple[Array, Array, Array]:
        """Groups for tests and summaries, with variances that the effective sizes imply."""
        K = self.n_groups
        theta, sigma, kish = self.estimate[:K], self.covariance[:K, :K], self.kish[:K]
        if self.max_size is None:
            return theta, sigma, kish
        size = self.size[:K]
        known = np.isfinite(self.max_size[:K]) & (size > 0)
        ratio = np.where(known, self._implied_size[:K], 1.0) / np.where(known, size, 1.0)
        scale = np.sqrt(ratio)
        return theta, sigma * scale[:, None] * scale, kish

    @cached_property
    def equality(self) -> EqualityTest:
        """Test that the rates of all groups are equal."""
        return equality_test(*self._groups_only, metric=self.metric, n_clusters=self.n_clusters)

    def aggregates(self, level: float, interval: str = "tie-aware") -> AggregateIntervals:
        """Average, maximum and variance of the absolute differences, with intervals.

        Parameters
        ----------
        level : float
        interval : {"tie-aware", "projection"}, default "tie-aware"

        Returns
        -------
        AggregateIntervals
        """
        return aggregate_intervals(
            *self._groups_only,
            level,
            interval=interval,
            equality=self.equality,
            n_clusters=self.n_clusters,
        )


@dataclass(frozen=True)
class Contrast:
    """Differences or ratios of pairs of rates.

    Attributes
    ----------
    estimate, se, low, high : (m,) arrays
    p : (m,) array or function
        P-values, or what finds them when they are asked for: it takes longer than all else.
    """

    estimate: Array
    se: Array
    low: Array
    high: Array
    p: Array | Callable[[], Array] = field(repr=False)

    @cached_property
    def p_value(self) -> Array:
        """Two-sided p-values of no difference, (m,)."""
        return self.p() if callable(self.p) else self.p


def most_df(
    n_clusters: int | None, clusters: Array | None, at: slice = slice(None)
) -> float | Array:
    """Most degrees of freedom of each rate: its clusters less one; infinite without any.

    Parameters
    ----------
    n_clusters : int or None
        Those of all rows.
    clusters : (M T,) array or None
        Those behind each rate; None if they count as having all.
    at : slice
        Of `clusters`.

    Returns
    -------
    float or (T,) array
    """
    if n_clusters is None:
        return np.inf
    return float(n_clusters - 1) if clusters is None else clusters[at] - 1.0
