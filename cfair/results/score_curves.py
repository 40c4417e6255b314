"""Curves of a score by group: ROC, calibration, recalibration, net benefit, as tidy frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from cfair.errors import DataError
from cfair.inference.intervals import NORMAL, wilson_interval
from cfair.inference.recalibration import BIN_RANGES, calibration_bins, check_bins
from cfair.inference.score_curves import (
    check_thresholds,
    net_benefit,
    recalibration_curves,
    roc_points,
)
from cfair.options import check_level, check_option
from cfair.results.score_comparisons import ScoreComparisons

_NO_SPREAD = "no standard error: these rows do not differ"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScoreCurves(ScoreComparisons):
    """Curves of the scores of every group; `PerformanceResult` describes the fields."""

    @property
    def curves(self) -> dict[str, pd.DataFrame]:
        """Curves by group: ``"roc"``, ``"calibration"``, ``"recalibration"``, ``"net_benefit"``.

        There are none under ``suppress_below``.
        """
        if self.cohort.suppress_below is not None:
            return {}
        return {
            "roc": self.roc_curves(),
            "calibration": self.calibration_curves(),
            "recalibration": self.recalibration_curves(),
            "net_benefit": self.net_benefit(),
        }

    def roc_curves(self, attribute: str | None = None) -> pd.DataFrame:
        """ROC curves, a row per group and distinct score.

        Parameters
        ----------
        attribute : str, optional
            Levels of this attribute instead of the intersectional groups.

        Returns
        -------
        pandas.DataFrame
            ``group, threshold`` (the call is ``score >= threshold``), ``fpr, tpr`` and Wilson's
            limits of the sensitivity at that threshold, ``tpr_low, tpr_high``. A group without
            events or without non-events has no rows.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> frame = audit.performance().roc_curves()
        >>> frame.groupby("group")[["fpr", "tpr"]].max()
               fpr  tpr
        group
        F      1.0  1.0
        M      1.0  1.0
        """
        self._require_curves()
        k, names = self._partition(attribute)
        points = roc_points(self._scored, k, self.level)
        return _curve_frame(
            names,
            points.target,
            threshold=points.threshold,
            fpr=points.fpr,
            tpr=points.tpr,
            tpr_low=points.tpr_low,
            tpr_high=points.tpr_high,
        )

    def calibration_curves(
        self,
        attribute: str | None = None,
        *,
        bins: int = 10,
        bin_range: str = "quantile",
    ) -> pd.DataFrame:
        """Event rates in bins of the score, a row per group and bin that is not empty.

        Parameters
        ----------
        attribute : str, optional
            Levels of this attribute instead of the intersectional groups.
        bins : int, default 10
        bin_range : {"quantile", "unit", "group"}, default "quantile"

        Returns
        -------
        pandas.DataFrame
            ``group, bin, n, events, mean_score, event_rate, ci_low, ci_high`` (Wilson).
        """
        check_option("bin_range", bin_range, BIN_RANGES)
        self._require_curves()
        k, names = self._partition(attribute)
        found = calibration_bins(self._scored, check_bins(bins), bin_range)
        found = found.select(self._targets_of(k))
        clusters = self.cohort.n_clusters
        max_df = NORMAL if clusters is None else float(clusters - 1)
        low, high = wilson_interval(
            found.rate.ravel(), found.kish.ravel(), self.level, max_df=max_df
        )
        target, place = np.nonzero(found.n > 0)
        some = (target, place)
        shape = found.rate.shape
        return _curve_frame(
            names,
            target,
            bin=place,
            n=found.n[some].astype(int),
            events=found.events[some].astype(int),
            mean_score=found.score[some],
            event_rate=found.rate[some],
            ci_low=low.reshape(shape)[some],
            ci_high=high.reshape(shape)[some],
        )

    def recalibration_curves(self, attribute: str | None = None) -> pd.DataFrame:
        """Risk by score as logistic recalibration sees it, with pointwise intervals.

        Parameters
        ----------
        attribute : str, optional
            Levels of this attribute instead of the intersectional groups.

        Returns
        -------
        pandas.DataFrame
            ``group, score, event_rate, ci_low, ci_high``: 60 points over the group's own scores.
            A group without a calibration slope has no rows.
        """
        self._require_curves()
        k, names = self._partition(attribute)
        found = recalibration_curves(self._scored, self._fit, k, self.level)
        return _curve_frame(
            names,
            found.target,
            score=found.score,
            event_rate=found.rate,
            ci_low=found.low,
            ci_high=found.high,
        )

    def net_benefit(
        self,
        thresholds: ArrayLike | None = None,
        *,
        attribute: str | None = None,
        level: float | None = None,
    ) -> pd.DataFrame:
        """Net benefit of calling those at or above a threshold, by group and threshold.

        True positives less false positives per person, a false positive weighed by the odds of the
        threshold. Calling everybody has net benefit ``treat_all``, calling nobody 0.

        Parameters
        ----------
        thresholds : array_like, optional
            Risks in [0, 1); 0.01, 0.02, ..., 0.99 by default.
        attribute : str, optional
            Levels of this attribute instead of the intersectional groups.
        level : float, optional
            Confidence level of the pointwise intervals; that of the result by default.

        Returns
        -------
        pandas.DataFrame
            ``group, threshold, n, events, net_benefit, se, ci_low, ci_high``; ``standardized`` (net
            benefit over prevalence, 1 at best) with ``standardized_low`` and ``standardized_high``;
            ``treat_all`` with ``treat_all_low`` and ``treat_all_high``; ``note``.

        Raises
        ------
        ValueError
            If a threshold is outside [0, 1).

        References
        ----------
        Vickers AJ, Elkin EB (2006). Decision curve analysis: a novel method for evaluating
        prediction models. Medical Decision Making 26, 565-574.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> frame = audit.performance().net_benefit([0.2])
        >>> frame[["group", "net_benefit", "treat_all"]].round(3)
          group  net_benefit  treat_all
        0     F        0.071      0.043
        1     M        0.041     -0.003
        """
        cuts = check_thresholds(thresholds)
        self._require_curves()
        level = self.level if level is None else check_level(level)
        k, names = self._partition(attribute)
        found = net_benefit(self._scored, k, cuts)
        tail = (1 - level) / 2
        df = np.maximum(found.df, 1.0)[:, None]
        q = -np.where(np.isfinite(df), stdtrit(df, tail), ndtri(tail))
        at = self._targets_of(k)
        n, events = self.counts["n"][at], self.counts["events"][at]
        notes = np.where(
            n == 0, "no rows", np.where(events == 0, "no events: not standardized", "")
        )
        target = np.repeat(np.arange(len(names)), len(cuts))
        return _curve_frame(
            names,
            target,
            threshold=np.tile(cuts, len(names)),
            n=n[target].astype(int),
            events=events[target].astype(int),
            net_benefit=found.benefit.ravel(),
            se=found.se.ravel(),
            ci_low=(found.benefit - q * found.se).ravel(),
            ci_high=(found.benefit + q * found.se).ravel(),
            standardized=found.standardized.ravel(),
            standardized_low=(found.standardized - q * found.standardized_se).ravel(),
            standardized_high=(found.standardized + q * found.standardized_se).ravel(),
            treat_all=found.all_benefit.ravel(),
            treat_all_low=(found.all_benefit - q * found.all_se).ravel(),
            treat_all_high=(found.all_benefit + q * found.all_se).ravel(),
            note=np.where(
                np.isnan(found.se) & (notes == "")[:, None], _NO_SPREAD, notes[:, None]
            ).ravel(),
        )

    def _require_curves(self) -> None:
        if self.cohort.suppress_below is not None:
            raise DataError(
                "curves are masked by suppress_below=: every point counts patients at a cutoff of "
                "its own, down to single ones, and even coarse steps, set beside the masked counts "
                "of the declared call, could give these. Make an Audit without it, and keep them "
                "inside."
            )

    def _partition(self, attribute: str | None) -> tuple[int, tuple[str, ...]]:
        """Number of the partition, and the names of its targets."""
        groups = self.cohort.groups
        if attribute is None:
            return 0, groups.names
        if attribute not in groups.attributes:
            raise DataError(
                f"{attribute!r} is not an attribute of this audit. "
                f"Its attributes are {', '.join(groups.attributes)}."
            )
        at = groups.attributes.index(attribute)
        return at + 1, groups.level_names[at]

    def _targets_of(self, k: int) -> NDArray[np.intp]:
        first = sum(self._scored.sizes[:k])
        return np.arange(first, first + self._scored.sizes[k])


def _curve_frame(names: Sequence[str], target: NDArray[np.intp], **columns: Any) -> pd.DataFrame:
    """A frame of curves, the name of the group first."""
    labels = pd.Series(np.asarray(names, dtype=object)[target], dtype="str")
    return pd.DataFrame({"group": labels, **columns})
