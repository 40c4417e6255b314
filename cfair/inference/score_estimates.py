"""Estimates of a score's quality with the intervals, contrasts and tests that suit their scale."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri, stdtr, stdtrit

from cfair.errors import DataError
from cfair.inference.aggregate import AggregateIntervals, aggregate_intervals
from cfair.inference.equality import EqualityTest, equality_test, noise_draws
from cfair.inference.estimates import CONTRASTS, Contrast, RateEstimates
from cfair.inference.intervals import NORMAL, has_variance, wilson_interval
from cfair.inference.recalibration import Bins
from cfair.options import check_option

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScoreEstimates(RateEstimates):
    """Estimates of a measure of a score in K groups, then in the margins, then in all rows.

    Differences are compared by their own standard error, which for AUCs is DeLong's; limits of one
    estimate are symmetric on the logit scale (`scale` "unit"), the log scale ("positive") or its
    own ("real"). An estimate in [0, 1] without variance has Wilson's interval on Kish's size.

    Attributes
    ----------
    scale : {"unit", "positive", "real"}
    df : (T,) array or None
        Degrees of freedom of Student's quantile; None for the normal one.
    least : (T,) array or None
        Of a positive metric that is 0: the expected events behind it, for the upper limit.
    rows : (T,) array or None
        Kish's effective number of rows where `kish` is one of clusters; `kish` by default.

    See Also
    --------
    RateEstimates : the other attributes.
    """

    scale: str = "unit"
    df: Array | None = None
    least: Array | None = None
    rows: Array | None = None

    @property
    def se(self) -> Array:
        """Standard errors; NaN where there is nothing to base one on."""
        if self.scale == "unit":
            return super().se
        return np.where(self._plain_se > 0, self._plain_se, np.nan)

    def select(self, targets: NDArray[np.intp]) -> ScoreEstimates:
        """Estimates of some of the targets, as the groups that are compared.

        Parameters
        ----------
        targets : (m,) array of int

        Returns
        -------
        ScoreEstimates
        """
        part = super().select(targets)
        assert isinstance(part, ScoreEstimates)
        return replace(
            part,
            df=None if self.df is None else self.df[targets],
            least=None if self.least is None else self.least[targets],
            rows=None if self.rows is None else self.rows[targets],
        )

    def without(self, masked: NDArray[np.bool_]) -> ScoreEstimates:
        """The same with some of the values undefined, and without what tells their sizes.

        Parameters
        ----------
        masked : (T,) array of bool

        Returns
        -------
        ScoreEstimates
        """
        part = super().without(masked)
        assert isinstance(part, ScoreEstimates)
        return replace(
            part,
            df=None if self.df is None else np.where(masked, np.nan, self.df),
            least=None if self.least is None else np.where(masked, 0.0, self.least),
            rows=None if self.rows is None else np.where(masked, 0.0, self.rows),
        )

    @property
    def comparable(self) -> Array:
        """Estimates, NaN where there is no standard error to compare them by."""
        return np.where(np.isnan(self.se), np.nan, self.estimate)

    @property
    def size(self) -> Array:
        """Kish's effective number of rows, or of the rarer class."""
        return self.kish if self.rows is None else self.rows

    def interval(self, kind: str = "", level: Any = 0.95) -> tuple[Array, Array]:
        """Limits of every estimate on the scale of the metric.

        Parameters
        ----------
        kind : str
            Ignored: the scale says which.
        level : float, default 0.95

        Returns
        -------
        low, high : (T,) arrays
        """
        theta = self.estimate
        q = _quantile(level, self.df)
        if self.scale == "real":
            return theta - q * self.se, theta + q * self.se
        if self.scale == "positive":
            some = theta > 0
            safe = np.where(some, theta, 1.0)
            reach = np.exp(q * self.se / safe)
            low, high = np.where(some, theta / reach, np.nan), np.where(some, theta * reach, np.nan)
            if self.least is None:
                return low, high
            # no event at all: the exact upper limit of a Poisson count of 0
            none = (theta == 0) & (self.least > 0)
            top = -np.log((1 - level) / 2) / np.where(none, self.least, 1.0)
            return np.where(none, 0.0, low), np.where(none, top, high)
        inside = has_variance(theta, self._plain_se)
        safe = np.where(inside, theta, 0.5)
        half = q * self._plain_se / (safe * (1 - safe))
        edge_low, edge_high = wilson_interval(theta, self.kish, level, max_df=self._edge_df)
        low = np.where(inside, expit(logit(safe) - half), edge_low)
        high = np.where(inside, expit(logit(safe) + half), edge_high)
        return low, high

    @property
    def _edge_df(self) -> float:
        return NORMAL if self.n_clusters is None else float(self.n_clusters - 1)

    def contrast(
        self, first: NDArray[np.intp], second: NDArray[np.intp], kind: str, level: float
    ) -> Contrast:
        """Compare pairs of targets: differences as they are, ratios on the log scale.

        Parameters
        ----------
        first, second : (m,) arrays of int
        kind : {"difference", "ratio"}
        level : float

        Returns
        -------
        Contrast
        """
        check_option("kind", kind, CONTRASTS)
        a, b = self.estimate[first], self.estimate[second]
        se_a, se_b, rho = self.se[first], self.se[second], self._correlation(first, second)
        df = _welch(se_a, se_b, self.df, first, second, self.n_clusters)
        q = _quantile(level, df)
        if kind == "difference":
            d, se = a - b, _deviation(se_a, se_b, rho)
            low, high = d - q * se, d + q * se
            if self.scale == "unit":
                low, high = np.maximum(low, -1.0), np.minimum(high, 1.0)
            return Contrast(d, se, low, high, _two_sided(d, se, df))
        if self.scale == "real":
            nothing = np.full(len(a), np.nan)
            return Contrast(nothing, nothing, nothing, nothing, nothing)
        positive = (a > 0) & (b > 0)
        safe_a, safe_b = np.where(positive, a, np.nan), np.where(positive, b, np.nan)
        ratio = np.where(b > 0, a, np.nan) / np.where(b > 0, b, 1.0)
        se = _deviation(se_a / safe_a, se_b / safe_b, rho)
        reach = np.exp(q * se)
        p = _two_sided(np.log(np.where(positive, ratio, 1.0)), se, df)
        return Contrast(ratio, ratio * se, ratio / reach, ratio * reach, p)

    def combination(self, targets: NDArray[np.intp], coefficients: Array, level: float) -> Contrast:
        """Linear combinations of targets, with their own standard errors.

        Parameters
        ----------
        targets : (m, k) array of int
        coefficients : (k,) array
        level : float

        Returns
        -------
        Contrast
        """
        se = self.se[targets]
        rho = self._correlation(targets[:, :, None], targets[:, None, :])
        rho[:, range(targets.shape[1]), range(targets.shape[1])] = 1.0
        signed = coefficients * se
        total = np.sqrt(np.maximum(np.einsum("mi,mij,mj->m", signed, rho, signed), 0.0))
        df = None if self.df is None else np.min(self.df[targets], axis=1)
        at = self.estimate[targets] @ coefficients
        reach = _quantile(level, df) * total
        return Contrast(at, total, at - reach, at + reach, _two_sided(at, total, df))

    def simultaneous(
        self, first: NDArray[np.intp], second: NDArray[np.intp], level: float
    ) -> tuple[float, Array]:
        """Pointwise level for simultaneous intervals of a family of differences, and p-values.

        Parameters
        ----------
        first, second : (m,) arrays of int
        level : float

        Returns
        -------
        pointwise : float
        p_value : (m,) array
        """
        if self.scale == "unit":
            return super().simultaneous(first, second, level)
        return self._shrunk[0].simultaneous(first, second, level)

    @property
    def _widening(self) -> Array:
        """Student's quantile over that of the tests: the normal one, or that of all clusters."""
        if self.df is None:
            return np.ones(len(self.estimate))
        known = np.where(self.df >= 1, self.df, np.nan)
        usual = ndtri(0.975) if self.n_clusters is None else stdtrit(self.n_clusters - 1, 0.975)
        return np.where(np.isnan(known), 1.0, stdtrit(known, 0.975) / usual)

    @property
    def _groups_only(self) -> tuple[Array, Array, Array]:
        theta, sigma, kish = super()._groups_only
        wider = self._widening[: self.n_groups]
        return theta, sigma * wider[:, None] * wider, kish

    @cached_property
    def equality(self) -> EqualityTest:
        """Test that all groups have the same value, on the scale of the intervals."""
        K = self.n_groups
        if self.scale == "unit":
            return super().equality
        theta, sigma = self.estimate[:K], self.covariance[:K, :K]
        without = np.isnan(self.se[:K])
        slope = np.ones(K)
        if self.scale == "positive":
            without |= ~(theta > 0)
            slope = 1 / np.where(without, 1.0, theta)
            theta = np.log(np.where(without, 1.0, theta))
        # The test works on logits, so it is given what has these values for its logits, shrunk
        # away from 0 and 1, which changes neither of its statistics.
        theta = np.where(without, np.nan, theta)
        theta = theta - (np.nanmean(theta) if not without.all() else 0.0)
        shrink = min(1.0, 4 / np.nanmax(np.abs(theta), initial=1e-300))
        near = expit(shrink * theta)
        scale = self._widening[:K] * shrink * slope * near * (1 - near)
        return equality_test(
            near,
            sigma * scale[:, None] * scale,
            self.kish[:K],
            metric=self.metric,
            n_clusters=self.n_clusters,
        )

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
        if self.scale == "unit":
            return super().aggregates(level, interval)
        shrunk, factor = self._shrunk
        found = aggregate_intervals(
            *shrunk._groups_only,
            level,
            interval=interval,
            equality=self.equality,
            n_clusters=self.n_clusters,
        )
        back = 1 / np.array([factor, factor, factor**2])
        return replace(
            found,
            estimate=found.estimate * back,
            low=found.low * back,
            high=found.high * back,
            expected_if_equal=found.expected_if_equal * back,
        )

    @cached_property
    def _shrunk(self) -> tuple[ScoreEstimates, float]:
        """The same values moved and shrunk into the middle of [0, 1], far from its ends.

        The summaries of differences are made for rates; what they do with differences inside
        [0, 1] is the same on any scale.
        """
        theta = self.comparable
        if np.isnan(theta).all():
            return replace(self, scale="unit", estimate=theta), 1.0
        middle = (np.nanmin(theta) + np.nanmax(theta)) / 2
        reach = np.nanmax(theta) - np.nanmin(theta) + 10 * float(np.nanmax(self.se))
        factor = 0.5 / reach
        moved = 0.5 + factor * (theta - middle)
        return (
            replace(self, scale="unit", estimate=moved, covariance=self.covariance * factor**2),
            factor,
        )


@dataclass(frozen=True, eq=False)
class BinnedError(ScoreEstimates):
    """Expected calibration error of every target: a sum of absolute values, biased upward.

    It has no normal distribution near 0 and no unbiased difference between groups of unlike size,
    so it has an interval and no contrast, and no test of equality.

    See Also
    --------
    ScoreEstimates : the other attributes.
    """

    _bins: Bins | None = field(default=None, repr=False)

    @property
    def bins(self) -> Bins:
        """The bins of every target; refused where their counts are masked."""
        assert self._bins is not None
        if np.isnan(self._bins.n).all():
            raise DataError(
                "'bins' counts the rows of every bin of the score, which suppress_below= masks. "
                "Make an Audit without it, and keep them inside."
            )
        return self._bins

    def select(self, targets: NDArray[np.intp]) -> BinnedError:
        """Estimates of some of the targets, as the groups that are compared.

        Parameters
        ----------
        targets : (m,) array of int

        Returns
        -------
        BinnedError
        """
        part = super().select(targets)
        assert isinstance(part, BinnedError)
        assert self._bins is not None
        return replace(part, _bins=self._bins.select(targets))

    def interval(self, kind: str = "", level: Any = 0.95) -> tuple[Array, Array]:
        """Limits that allow for the bias; from 0 where the bins do not reject calibration.

        The gaps of the bins have normal errors. The lower and upper limits are the error less
        quantiles of what these errors do to it, around gaps of which those within noise are 0.

        Parameters
        ----------
        kind : str
            Ignored.
        level : float, default 0.95

        Returns
        -------
        low, high : (T,) arrays
        """
        assert self._bins is not None
        low, high = error_interval(self._bins, float(level))
        undefined = np.isnan(self.estimate)
        return np.where(undefined, np.nan, low), np.where(undefined, np.nan, high)

    @property
    def comparable(self) -> Array:
        """All estimates: they are compared without standard errors."""
        return self.estimate

    @property
    def se(self) -> Array:
        """NaN: there is no normal approximation."""
        return np.full(len(self.estimate), np.nan)

    def contrast(
        self, first: NDArray[np.intp], second: NDArray[np.intp], kind: str, level: float
    ) -> Contrast:
        """Differences or ratios without intervals.

        Parameters
        ----------
        first, second : (m,) arrays of int
        kind : {"difference", "ratio"}
        level : float

        Returns
        -------
        Contrast
        """
        check_option("kind", kind, CONTRASTS)
        a, b = self.estimate[first], self.estimate[second]
        nothing = np.full(len(a), np.nan)
        ratio = np.where(b > 0, a, np.nan) / np.where(b > 0, b, 1.0)
        return Contrast(
            a - b if kind == "difference" else ratio, nothing, nothing, nothing, nothing
        )

    def simultaneous(
        self, first: NDArray[np.intp], second: NDArray[np.intp], level: float
    ) -> tuple[float, Array]:
        """Nothing to adjust: there are no p-values.

        Parameters
        ----------
        first, second : (m,) arrays of int
        level : float

        Returns
        -------
        pointwise : float
        p_value : (m,) array
        """
        return level, np.full(len(first), np.nan)

    @cached_property
    def equality(self) -> EqualityTest:
        """No test: the errors of groups of unlike size differ without any difference."""
        left = tuple(int(k) for k in np.flatnonzero(np.isnan(self.estimate[: self.n_groups])))
        reason = "no test: calibration errors of small groups are larger by chance"
        return EqualityTest(self.metric, np.nan, 0, np.nan, np.nan, np.nan, left, reason)

    def aggregates(self, level: float, interval: str = "tie-aware") -> AggregateIntervals:
        """Summaries of the differences, with what they would be if every group were calibrated.

        Parameters
        ----------
        level : float
        interval : str

        Returns
        -------
        AggregateIntervals
            Its intervals are NaN.
        """
        from cfair.estimators.disparity import disparities

        assert self._bins is not None
        K = self.n_groups
        defined = np.flatnonzero(~np.isnan(self.estimate[:K]))
        nothing = np.full(3, np.nan)
        if len(defined) < 2:
            return AggregateIntervals(nothing, nothing, nothing, nothing, False)
        spread = np.sqrt(self._bins.variance_if_calibrated[:K][defined])
        z = np.random.default_rng(0).standard_normal((1000, *spread.shape))
        errors = np.abs(z * spread).sum(axis=2)
        expected = np.array(disparities(errors)).mean(axis=1)
        estimate = np.array(disparities(self.estimate[:K][defined]))
        if self.metric != "ece":
            expected = nothing
        return AggregateIntervals(estimate, nothing, nothing, expected, False)


def error_interval(bins: Bins, level: float) -> tuple[Array, Array]:
    """Interval of the expected calibration error of every target.

    Parameters
    ----------
    bins : Bins
    level : float

    Returns
    -------
    low, high : (T,) arrays
    """
    from scipy.special import chdtrc

    s = np.sqrt(bins.variance)
    n_bins = s.shape[1]
    noise = noise_draws(np.eye(n_bins), 2000)
    low, high = np.full(len(s), np.nan), np.full(len(s), np.nan)
    tails = [(1 - level) / 2, (1 + level) / 2]
    critical = -float(ndtri(tails[0]))
    for t in np.flatnonzero(~np.isnan(bins.error)):
        error, d, h = bins.error[t], bins.gap[t], noise * s[t]
        # The lower limit takes off the bias at gaps of which those that noise explains are 0; the
        # upper one takes none off, only the spread, since the gaps may hide as much as they show.
        centre = np.where(np.abs(d) > critical * s[t], d, 0.0)
        most = np.abs(centre + h).sum(axis=1) - np.abs(centre).sum()
        spread = np.abs(d + h).sum(axis=1)
        low[t] = error - np.quantile(most, tails[1])
        high[t] = error + spread.mean() - np.quantile(spread, tails[0])
        v = bins.variance_if_calibrated[t]
        used = v > 0
        chi2 = np.sum(d[used] ** 2 / v[used])
        if not used.any() or chdtrc(int(used.sum()), chi2) >= 1 - level:
            low[t] = 0.0
    return np.clip(low, 0, 1), np.clip(high, 0, 1)


def _deviation(se_a: Array, se_b: Array, rho: Array) -> Array:
    """Standard deviation of a difference."""
    result: Array = np.sqrt(np.maximum(se_a**2 + se_b**2 - 2 * rho * se_a * se_b, 0.0))
    return result


def _welch(
    se_a: Array,
    se_b: Array,
    df: Array | None,
    first: NDArray[np.intp],
    second: NDArray[np.intp],
    n_clusters: int | None,
) -> Array | None:
    """Degrees of freedom of a difference: Welch's, with clusters no more than those of all."""
    if df is None:
        return None
    total = se_a**2 + se_b**2
    parts = se_a**4 / np.maximum(df[first], 1) + se_b**4 / np.maximum(df[second], 1)
    result: Array = np.where(parts > 0, total**2, 1.0) / np.where(parts > 0, parts, 1.0)
    return result if n_clusters is None else np.minimum(result, n_clusters - 1)


def _quantile(level: Any, df: Array | None) -> Array:
    tail = (1 - np.asarray(level, dtype=np.float64)) / 2
    if df is None:
        return np.asarray(-ndtri(tail))
    return np.asarray(-stdtrit(np.maximum(df, 1.0), tail))


def _two_sided(value: Array, se: Array, df: Array | None) -> Array:
    z = np.abs(value) / np.where(se > 0, se, np.nan)
    tail = ndtr(-z) if df is None else stdtr(np.maximum(df, 1.0), -z)
    result: Array = np.where(value == 0, np.where(np.isnan(se), np.nan, 1.0), 2 * tail)
    return result
