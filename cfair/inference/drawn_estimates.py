"""Rates whose covariance comes from bootstrap replicates, and may be missing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cfair.inference.aggregate import AggregateIntervals
from cfair.inference.equality import EqualityTest, equality_test
from cfair.inference.estimates import Contrast, RateEstimates

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DrawnEstimates(RateEstimates):
    """Estimates of one rate; where replicates give no variance, there are no limits and no tests.

    Attributes
    ----------
    no_variance : str
        Why a rate may be without variance, for the notes.
    n_replicates : int or None
        Replicates behind the covariance, which is as uncertain as that of so many clusters: tests
        have Hotelling's and Student's distributions. None takes it as known.
    """

    no_variance: str = field(default="no bootstrap, so no standard errors", kw_only=True)
    n_replicates: int | None = field(default=None, kw_only=True)

    @cached_property
    def _as_clusters(self) -> RateEstimates:
        """The same rates, from as many clusters as have the covariance's degrees of freedom."""
        sizes = [n for n in (self.n_clusters, self.n_replicates) if n is not None]
        fewest = min(sizes, default=None)
        return RateEstimates(
            self.metric,
            self.n_groups,
            self.estimate,
            self.covariance,
            self.kish,
            self.max_df,
            fewest,
        )

    @cached_property
    def unknown(self) -> NDArray[np.bool_]:
        """Rates that are defined but have no variance."""
        found: NDArray[np.bool_] = np.isnan(np.diag(self.covariance)) & ~np.isnan(self.estimate)
        return found

    @property
    def se(self) -> Array:
        """Standard errors, NaN where there is no variance."""
        return np.where(self.unknown, np.nan, super().se)

    @property
    def size(self) -> Array:
        """Effective sizes that the standard errors imply, NaN where there is no variance."""
        return np.where(self.unknown, np.nan, super().size)

    def interval(self, kind: str = "wilson", level: float = 0.95) -> tuple[Array, Array]:
        """Limits of every rate, NaN where there is no variance.

        Parameters
        ----------
        kind : {"wilson", "logit", "plain"}, default "wilson"
        level : float, default 0.95

        Returns
        -------
        low, high : (T,) arrays
        """
        low, high = super().interval(kind, level)
        return np.where(self.unknown, np.nan, low), np.where(self.unknown, np.nan, high)

    def contrast(
        self, first: NDArray[np.intp], second: NDArray[np.intp], kind: str, level: float
    ) -> Contrast:
        """Compare pairs of targets; without limits where one of them has no variance.

        Parameters
        ----------
        first, second : (m,) arrays of int
        kind : {"difference", "ratio"}
        level : float

        Returns
        -------
        Contrast
        """
        found = super().contrast(first, second, kind, level)
        lost = self.unknown[first] | self.unknown[second]
        se, low, high, p = (
            np.where(lost, np.nan, values)
            for values in (found.se, found.low, found.high, found.p_value)
        )
        return Contrast(found.estimate, se, low, high, p)

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
            `level` itself if no pair of the family has limits.
        p_value : (m,) array
        """
        lost = self.unknown[first] | self.unknown[second]
        p = np.full(len(first), np.nan)
        if lost.all():
            return level, p
        pointwise, p[~lost] = self._as_clusters.simultaneous(first[~lost], second[~lost], level)
        return pointwise, p

    @cached_property
    def equality(self) -> EqualityTest:
        """Test that the rates of all groups with a variance are equal."""
        K = self.n_groups
        known = ~self.unknown[:K] & ~np.isnan(self.estimate[:K])
        if self.unknown[:K].any() and np.count_nonzero(known) < 2:
            df = max(int(np.count_nonzero(~np.isnan(self.estimate[:K]))) - 1, 0)
            nan = float("nan")
            return EqualityTest(self.metric, nan, df, nan, nan, nan, note=self.no_variance)
        return equality_test(
            np.where(known, self.estimate[:K], np.nan),
            self.covariance[:K, :K],
            self.kish[:K],
            metric=self.metric,
            n_clusters=self.n_clusters,
            n_replicates=self.n_replicates,
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
            Without limits if some group that has a rate has no variance.
        """
        K = self.n_groups
        if not self.unknown[:K].any():
            return self._as_clusters.aggregates(level, interval)
        # the estimates need no covariance: any will do
        known = replace(self, covariance=np.diag(np.where(np.isnan(self.estimate), np.nan, 1.0)))
        found = known.aggregates(level, interval)
        nothing = np.full(3, np.nan)
        return AggregateIntervals(found.estimate, nothing, nothing, nothing, False)
