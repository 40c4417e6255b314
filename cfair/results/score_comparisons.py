"""Score quality by group as a frozen record: its measures compared, and the worst group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from cfair.disclosure import count_column
from cfair.errors import DataError
from cfair.estimators.disparity import largest_gap
from cfair.inference.performance import ScoredRows
from cfair.inference.recalibration import Bins, Recalibration
from cfair.inference.score_estimates import BinnedError, ScoreEstimates
from cfair.metrics.classification import severity
from cfair.results import text
from cfair.results.contrasts import NO_SE
from cfair.results.gaps import MASKED_IN, Block, Measure
from cfair.results.rates import RatesResult
from cfair.results.score_measures import MEASURES, PRINTED

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScoreComparisons(RatesResult):
    """What can be asked of the quality of a score; `PerformanceResult` describes the fields."""

    _scored: ScoredRows
    _fit: Recalibration
    _binned: Bins
    _values: Mapping[str, Array] = field(default_factory=dict)
    rule: str = ">="
    best_f1_threshold: float = np.nan
    bins: int = 10
    bin_range: str = "unit"
    clip: float | None = None

    def _inside(self, name: str) -> None:
        """Refuse what has a value for every row or bin where counts are masked."""
        if self.cohort.suppress_below is not None:
            raise DataError(
                f"{name!r} is of single rows or bins, which suppress_below= masks. Make an Audit "
                "without it, and keep them inside."
            )

    @property
    def scored(self) -> ScoredRows:
        """Scores and outcomes of the rows."""
        self._inside("scored")
        return self._scored

    @property
    def fit(self) -> Recalibration:
        """Logistic recalibration of every target."""
        self._inside("fit")
        return self._fit

    @property
    def binned(self) -> Bins:
        """Scores and outcomes in bins of the score."""
        self._inside("binned")
        return self._binned

    @property
    def values(self) -> Mapping[str, Array]:
        """Influence values of the rows in their groups, metric by metric."""
        self._inside("values")
        return self._values

    @property
    def compared(self) -> tuple[str, ...]:
        """Metrics that comparisons are about unless told otherwise."""
        return PRINTED

    @property
    def plotted(self) -> tuple[str, ...]:
        """Metrics that plots show unless told otherwise."""
        return ("auc",)

    @property
    def tested(self) -> tuple[str, ...]:
        """Metrics whose equivalence is tested unless told otherwise; others want own margins."""
        return ("auc",)

    @property
    def about(self) -> str:
        """What is measured, for the plots."""
        return f"{self._score[:1].upper()}{self._score[1:]} for {self.cohort.outcome_name}"

    @property
    def _score(self) -> str:
        """The score with its name, unless it is just called that."""
        name = text.one_line(str(self.cohort.score_name or "score"))
        return name if name.lower() == "score" else f"score {name}"

    def _more_columns(self, metric: str, targets: slice) -> dict[str, Any]:
        threshold = np.nan
        if metric in ("accuracy", "f1") and self.cohort.cutoff is not None:
            threshold = self.cohort.cutoff
        if metric.endswith("_best_f1"):
            threshold = self.best_f1_threshold
        size = len(self.counts["n"][targets])
        expected = self._binned.if_calibrated if metric == "ece" else np.full(self._size, np.nan)
        expected = np.where(np.isnan(self.estimates_of(metric).estimate), np.nan, expected)
        return {
            "threshold": np.full(size, threshold),
            "expected_if_calibrated": expected[targets],
        }

    @property
    def _size(self) -> int:
        return len(self.counts["n"])

    @property
    def covariance(self) -> pd.DataFrame:
        """Joint covariance of all metrics of all groups, metric by metric, from influence values.

        The calibration error is not in it: it is no smooth function of the data.
        """
        K = self.cohort.groups.n_groups
        estimates = [self.estimates_of(m).estimate[:K] for m in self._values]
        sigma = self._scored.joint_covariance(estimates, list(self._values.values()))
        labels = pd.MultiIndex.from_tuples(
            [(m, name) for m in self._values for name in self.cohort.groups.names],
            names=["metric", "group"],
        )
        return pd.DataFrame(sigma, index=labels, columns=labels)

    def contrasts(
        self,
        reference: Any = None,
        *,
        kind: str = "difference",
        adjust: str | None = "holm",
        metrics: str | Sequence[str] | None = None,
        attribute: str | None = None,
        level: float | None = None,
    ) -> pd.DataFrame:
        """Compare groups in pairs, or each with a reference group.

        Parameters
        ----------
        reference : label, optional
            Group that all others are compared with: a tuple of levels, or its printed name; or
            ``"overall"``, all rows together. All pairs by default.
        kind : {"difference", "ratio"}, default "difference"
            A ratio of intercepts or slopes has no meaning and is NaN.
        adjust : str or None, default "holm"
            As in `RatesResult.contrasts`.
        metrics : str or sequence of str, optional
            AUC, Brier score, O/E and calibration slope by default.
        attribute : str, optional
            Compare the levels of this attribute instead of the intersectional groups.
        level : float, optional
            Confidence level; that of the result by default.

        Returns
        -------
        pandas.DataFrame
            As `RatesResult.contrasts`. The interval of a difference of AUCs is DeLong's.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="race"
        ... )
        >>> frame = audit.performance().contrasts("White", metrics="auc")
        >>> frame[["group", "estimate", "ci_low", "ci_high"]].round(3)
           group  estimate  ci_low  ci_high
        0  Black    -0.036  -0.079    0.007
        1  Other     0.002  -0.057    0.062
        """
        frame = super().contrasts(
            reference,
            kind=kind,
            adjust=adjust,
            metrics=metrics,
            attribute=attribute,
            level=level,
        )
        silent = frame["note"].isin(("", NO_SE))
        binned = frame["metric"].isin(("ece", "ece_debiased"))
        real = frame["metric"].map(lambda m: MEASURES[m].scale == "real")
        frame.loc[silent & binned, "note"] = "no interval: it depends on the sizes of the groups"
        if kind == "ratio":
            frame.loc[silent & real, "note"] = "a ratio of this metric has no meaning"
        return frame

    def _find_gap(self, metric: str, k: int, measure: Measure) -> dict[str, Any]:
        e = self.estimates_of(metric)
        if not isinstance(e, ScoreEstimates):
            return super()._find_gap(metric, k, measure)
        return _score_gap(e, self.blocks(metric)[k], measure)

    def worst(self, metrics: str | Sequence[str] | None = None) -> pd.DataFrame:
        """The group farthest from a perfect score, for each metric.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            Those of `compared` by default. Prevalence and mean score have no worst group.

        Returns
        -------
        pandas.DataFrame
            ``metric, group, n, events, estimate, ci_low, ci_high, note``. The group was chosen for
            its value, which makes it look worse than it is; its interval does not allow for that.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="race"
        ... )
        >>> audit.performance().worst("auc")["group"].tolist()
        ['Black']
        """
        wanted = [metrics] if isinstance(metrics, str) else list(metrics or self.compared)
        K = self.cohort.groups.n_groups
        rows: list[dict[str, Any]] = []
        for metric in wanted:
            e, best = self.estimates_of(metric), MEASURES[metric].best
            theta = (e.comparable if isinstance(e, ScoreEstimates) else e.estimate)[:K]
            if best is None or np.isnan(theta).all():
                why = "no worst value" if best is None else "no group has a value"
                rows.append({"metric": metric, "note": why})
                continue
            distance = np.abs(theta - best)
            if MEASURES[metric].scale == "positive" and best:
                distance = np.abs(np.log(np.maximum(theta, 1e-300) / best))
            k = int(np.nanargmax(distance))
            low, high = self.limits(metric)
            rows.append(
                {
                    "metric": metric,
                    "group": self.cohort.groups.names[k],
                    "n": count_column(self.counts["n"][[k]])[0],
                    "events": count_column(self.counts["events"][[k]])[0],
                    "estimate": theta[k],
                    "ci_low": low[k],
                    "ci_high": high[k],
                    "note": self.rows[self.metrics.index(metric)].notes[k],
                }
            )
        columns = ["metric", "group", "n", "events", "estimate", "ci_low", "ci_high", "note"]
        return pd.DataFrame(rows, columns=columns)


def _score_gap(e: ScoreEstimates, block: Block, measure: Measure) -> dict[str, Any]:
    """The widest gap of one metric, as `gap_row` describes that of a rate."""
    part = e.part(block.targets)
    assert isinstance(part, ScoreEstimates)
    row: dict[str, Any] = {"metric": e.metric, "by": block.by}
    pair = largest_gap(part.comparable)
    absent = np.isnan(part.estimate)
    left_out = block.without(
        {
            MASKED_IN: absent & block.masked,
            "no value in ": absent & ~block.masked,
            "no standard error in ": np.isnan(part.comparable) & ~absent,
        }
    )
    unit = e.scale == "unit"
    if pair is None:
        return {**row, "severity": "undefined", "note": left_out or "one group only"}
    high, low = part.estimate[list(pair)]
    found = part.aggregates(measure.level, measure.aggregate_interval)
    se = float(part.contrast(np.array(pair[:1]), np.array(pair[1:]), "difference", 0.95).se[0])
    notes = [left_out]
    if isinstance(e, BinnedError):
        notes.append("no interval or test: it depends on the sizes of the groups")
    elif np.isnan(part.equality.p_value):
        notes.append(part.equality.note or "too few rows for a test")
    return {
        **row,
        "group": block.names[pair[0]],
        "reference": block.names[pair[1]],
        "gap": high - low,
        "ci_low": found.low[1],
        "ci_high": found.high[1],
        "expected_if_equal": found.expected_if_equal[1],
        "detectable": (-ndtri((1 - measure.level) / 2) + ndtri(measure.power)) * se,
        "ratio": low / high if e.scale != "real" and high > 0 else np.nan,
        "severity": severity(high - low, *measure.thresholds) if unit else "",
        "p_value": part.equality.p_value,
        "note": "; ".join(note for note in notes if note),
    }
