"""Score quality by group: how well the score orders patients, and how near it is to the risk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from cfair.disclosure import count_column
from cfair.errors import DataError
from cfair.estimators.disparity import largest_gap
from cfair.inference.intervals import NORMAL, wilson_interval
from cfair.inference.performance import ScoredRows
from cfair.inference.recalibration import (
    BIN_RANGES,
    Bins,
    Recalibration,
    calibration_bins,
    check_bins,
)
from cfair.inference.score_curves import (
    check_thresholds,
    net_benefit,
    recalibration_curves,
    roc_points,
)
from cfair.inference.score_estimates import BinnedError, ScoreEstimates
from cfair.metrics.classification import severity
from cfair.options import check_level, check_option
from cfair.results import text
from cfair.results.contrasts import NO_SE
from cfair.results.gaps import Block, Measure
from cfair.results.rates import RatesResult
from cfair.results.report import (
    aggregate_lines,
    cluster_fact,
    cohort_facts,
    disclosure_fact,
    equality_line,
    group_table,
    largest_gap_lines,
    margin_table,
    notes_lines,
    rate_text,
)

Array = NDArray[np.float64]

_NO_SPREAD = "no standard error: these rows do not differ"


@dataclass(frozen=True)
class ScoreMeasure:
    """What a measure of a score is called, and how it is read.

    Attributes
    ----------
    label : str
        Name in print.
    scale : str
        ``"unit"``, ``"positive"``, ``"real"``, or ``"counted"`` for a rate of a 0/1 call.
    best : float or None
        Value of a perfect score; None if the measure is no judgement of it.
    both : bool
        Whether it needs events and non-events.
    among : int or None
        The outcome of the rows that it is about; None for all rows.
    """

    label: str
    scale: str
    best: float | None = None
    both: bool = False
    among: int | None = None


#: Measures, in the order of the frames.
MEASURES: dict[str, ScoreMeasure] = {
    "auc": ScoreMeasure("AUC", "unit", 1.0, both=True),
    "brier": ScoreMeasure("Brier", "unit", 0.0),
    "log_loss": ScoreMeasure("log loss", "positive", 0.0),
    "prevalence": ScoreMeasure("prevalence", "counted"),
    "mean_score": ScoreMeasure("mean score", "unit"),
    "mean_score_events": ScoreMeasure("mean score of events", "unit", among=1),
    "mean_score_non_events": ScoreMeasure("mean score of non-events", "unit", among=0),
    "oe_ratio": ScoreMeasure("O/E", "positive", 1.0),
    "calibration_in_the_large": ScoreMeasure("cal. in the large", "real", 0.0, both=True),
    "calibration_intercept": ScoreMeasure("cal. intercept", "real", 0.0, both=True),
    "calibration_slope": ScoreMeasure("cal. slope", "real", 1.0, both=True),
    "ece": ScoreMeasure("ECE", "unit", 0.0),
    "ece_debiased": ScoreMeasure("ECE, debiased", "unit", 0.0),
    "accuracy": ScoreMeasure("accuracy", "counted", 1.0),
    "f1": ScoreMeasure("F1", "counted", 1.0),
    "accuracy_best_f1": ScoreMeasure("accuracy at best F1", "counted", 1.0),
    "f1_best_f1": ScoreMeasure("F1 at best F1", "counted", 1.0),
}

#: Metrics in the printed table; the frames have all.
PRINTED: tuple[str, ...] = ("auc", "brier", "oe_ratio", "calibration_slope")
_BIN_WORDS = {
    "unit": "equal bins of [0, 1]",
    "group": "equal bins of the group's own range",
    "quantile": "bins at the group's own quantiles",
}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PerformanceResult(RatesResult):
    """Score quality by intersectional group, by attribute and overall.

    Printing shows AUC, Brier score, O/E and calibration slope; ``rates``, ``marginals``,
    ``overall``, ``gaps()``, ``contrasts()`` and ``test_equal()`` have all metrics. Frames have two
    columns more than other results: ``threshold`` of a metric of a call, and
    ``expected_if_calibrated``, what the calibration error of a perfectly calibrated score would be
    in so many rows.

    Intervals: AUC by DeLong's variance on the logit scale, Brier score and mean score on the logit
    scale, log loss and O/E on the log scale, calibration in the large, intercept and slope by the
    sandwich variance, accuracy, F1 and prevalence by Wilson on the effective size. Those at the
    best-F1 threshold take the threshold as given. Differences have an interval from their own
    standard error, for AUC DeLong's; covariances of overlapping groups come from the influence
    values. The calibration error has an interval that allows for its bias, and no contrast. In
    ``gaps()`` the gap that is ``detectable`` follows from the standard error of the difference of
    the two groups.

    Attributes
    ----------
    rule : str
        Side of a threshold on which a score equal to it falls.
    best_f1_threshold : float
        Of all rows; the call ``score >= threshold`` has the highest F1 there. It is the score of a
        patient, and NaN under ``suppress_below``, where `scored`, `fit`, `binned` and `values` are
        refused.
    bins : int
    bin_range : str
    clip : float or None

    See Also
    --------
    RatesResult : the other attributes, and what can be asked of every result.
    """

    _scored: ScoredRows
    _fit: Recalibration
    _binned: Bins
    _values: Mapping[str, Array] = field(default_factory=dict)
    rule: str = ">="
    best_f1_threshold: float = np.nan
    bins: int = 10
    bin_range: str = "unit"
    clip: float | None = None

    # -- rows and bins --------------------------------------------------------------------------

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

    # -- frames ---------------------------------------------------------------------------------

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

    def _gap_rows(self, metric: str, measure: Measure) -> list[dict[str, Any]]:
        e = self.estimates_of(metric)
        if not isinstance(e, ScoreEstimates):
            return super()._gap_rows(metric, measure)
        return [_score_gap(e, block, measure) for block in self._by(metric)]

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

    # -- curves ---------------------------------------------------------------------------------

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

    # -- plots ----------------------------------------------------------------------------------

    def plot_roc(self, *, attribute: str | None = None, ax: Any = None) -> Any:
        """ROC curves: a panel per group with its band over all the others, or all in one Axes.

        Parameters
        ----------
        attribute : str, optional
            Levels of this attribute instead of the intersectional groups.
        ax : matplotlib Axes, optional
            All groups are drawn into it, up to four in colour, else the two of highest and lowest
            AUC. By default a new figure has a panel per group; the band is Wilson's interval of the
            sensitivity at each threshold.

        Returns
        -------
        matplotlib Figure, or the Axes given
        """
        from cfair.plotting import plot_roc

        return plot_roc(
            self.roc_curves(attribute), self._about_targets("auc", attribute), level=self.level,
            about=self.about, ax=ax,
        )  # fmt: skip

    def plot_calibration(self, *, attribute: str | None = None, ax: Any = None) -> Any:
        """Event rates against scores: a panel per group, or all groups' curves in one Axes.

        Parameters
        ----------
        attribute : str, optional
            Levels of this attribute instead of the intersectional groups.
        ax : matplotlib Axes, optional
            By default a new figure has a panel per group: event rates with Wilson's intervals in
            ten quantile bins, in five where a group has fewer than 200 rows, and the logistic
            recalibration curve with its band.

        Returns
        -------
        matplotlib Figure, or the Axes given
        """
        from cfair.plotting import plot_calibration

        fine = self.calibration_curves(attribute)
        coarse = self.calibration_curves(attribute, bins=5)
        about = self._about_targets("calibration_slope", attribute)
        few = set(about.loc[about["n"] < 200, "group"])
        points = pd.concat([fine[~fine["group"].isin(few)], coarse[coarse["group"].isin(few)]])
        return plot_calibration(
            points, self.recalibration_curves(attribute), about, level=self.level,
            about=self.about, ax=ax,
        )  # fmt: skip

    def plot_net_benefit(
        self,
        thresholds: ArrayLike | None = None,
        *,
        attribute: str | None = None,
        standardized: bool = False,
        ax: Any = None,
    ) -> Any:
        """Decision curves: a panel per group, beside calling everybody and nobody.

        Parameters
        ----------
        thresholds : array_like, optional
            In [0, 1); 0.01, 0.02, ... by default, up to where hardly any score reaches.
        attribute : str, optional
            Levels of this attribute instead of the intersectional groups.
        standardized : bool, default False
            Net benefit over prevalence, so that groups of unlike prevalence compare.
        ax : matplotlib Axes, optional
            All groups' curves are drawn into it. By default a new figure has a panel per group.

        Returns
        -------
        matplotlib Figure, or the Axes given
        """
        from cfair.plotting import plot_net_benefit

        if thresholds is None:
            top = float(np.quantile(self._scored.p, 0.99))
            thresholds = np.arange(1, max(int(100 * top), 5) + 1) / 100
            thresholds = thresholds[thresholds < 1]
        return plot_net_benefit(
            self.net_benefit(thresholds, attribute=attribute),
            self._about_targets("prevalence", attribute), level=self.level, about=self.about,
            standardized=standardized, ax=ax,
        )  # fmt: skip

    def plot_rates(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        ax: Any = None,
        marginals: bool | str = False,
    ) -> Any:
        """One metric by group with its intervals and the value of all rows, AUC by default.

        Parameters
        ----------
        metrics : str, optional
            A metric, or a sequence of one.
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.
        marginals : bool or "both", default False
            Single attributes instead of their intersection, or both.

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_score_metric

        wanted = [metrics] if isinstance(metrics, str) else list(metrics or self.plotted)
        if len(wanted) != 1:
            raise ValueError(
                f"metrics must name one metric, since each has its own scale, not {wanted!r}. Draw "
                "each into its own Axes."
            )
        metric = wanted[0]
        self.estimates_of(metric)
        if not isinstance(marginals, (bool, np.bool_)):
            check_option("marginals", marginals, ("both",))
        frame, sections = self.rates, []
        if marginals:
            levels = self.marginals
            named = zip(levels["attribute"], levels["level"], strict=True)
            levels = levels.assign(group=[f"{a}: {v}" for a, v in named])
            both = marginals == "both" and len(self.cohort.groups.attributes) > 1
            sections = [len(self.cohort.groups.margins)] if both else []
            frame = pd.concat([levels, frame], ignore_index=True) if both else levels
        frame = frame[frame["metric"] == metric]
        overall = float(self.estimates_of(metric).estimate[-1])
        measure = MEASURES[metric]
        return plot_score_metric(
            frame, label=measure.label, overall=overall, level=self.level, about=self.about,
            target=measure.best if measure.scale in ("positive", "real") else None,
            sections=sections, ax=ax,
        )  # fmt: skip

    def plot_heatmap(self, metrics: str | Sequence[str] | None = None, *, ax: Any = None) -> Any:
        """All groups and metrics as a table, coloured by the distance from all rows.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            All by default. Each has a colour scale of its own, up to its largest distance.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_heatmap

        wanted = [metrics] if isinstance(metrics, str) else list(metrics or self.metrics)
        for metric in wanted:
            self.estimates_of(metric)
        return plot_heatmap(
            self.rates, self.overall, metrics=wanted, labels=self._labels, about=self.about,
            title="Score quality by group", own_scale=True, level=self.level, ax=ax,
        )  # fmt: skip

    def plot_gaps(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        severity: tuple[float, float] = (0.05, 0.15),
        ax: Any = None,
    ) -> Any:
        """The widest gaps by attribute and by intersection, before bands of severity.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            AUC, Brier score, accuracy and F1 by default; the bands are meant for metrics in [0, 1].
        severity : tuple of two floats, default (0.05, 0.15)
            From where on a gap is moderate, and beyond which severe.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        wanted = metrics or ("auc", "brier", "accuracy", "f1")
        return super().plot_gaps(wanted, severity=severity, ax=ax)

    def _plots(self) -> dict[str, Callable[[], Any]]:
        """Every plot by the name of its file."""
        whole = " x ".join(self.cohort.groups.attributes)
        found: dict[str, Callable[[], Any]] = {
            f"{MEASURES[m].label.replace('/', '')} by {whole}": partial(
                self.plot_rates, m, marginals="both"
            )
            for m in PRINTED
        }
        if np.count_nonzero(self.cohort.groups.sizes) > 1:
            found["gaps"] = self.plot_gaps
        found[f"heat map by {whole}"] = self.plot_heatmap
        if self.cohort.suppress_below is not None:
            return found
        several = len(self.cohort.groups.attributes) > 1
        for by in [None, *(self.cohort.groups.attributes if several else [])]:
            found[f"ROC by {by or whole}"] = partial(self.plot_roc, attribute=by)
            found[f"calibration by {by or whole}"] = partial(self.plot_calibration, attribute=by)
            found[f"net benefit by {by or whole}"] = partial(self.plot_net_benefit, attribute=by)
        return found

    def _about_targets(self, metric: str, attribute: str | None) -> pd.DataFrame:
        """Group, n, events, estimate and limits of a metric, and why it is undefined."""
        k, names = self._partition(attribute)
        at = self._targets_of(k)
        low, high = self.limits(metric)
        e = self.estimates_of(metric)
        notes = self.rows[self.metrics.index(metric)].notes
        return pd.DataFrame(
            {
                "group": list(names),
                "n": count_column(self.counts["n"][at]),
                "events": count_column(self.counts["events"][at]),
                "estimate": e.estimate[at],
                "ci_low": low[at],
                "ci_high": high[at],
                "overall": e.estimate[-1],
                "note": [notes[t] for t in at],
            }
        )

    # -- text -----------------------------------------------------------------------------------

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        return text.page(
            f"Quality of the {self._score} by group",
            [
                text.facts([*cohort_facts(self.cohort), *self._facts()]),
                group_table(self, self._header(), self._cells),
                margin_table(self, self._header(), self._cells),
                self._all_rows(),
                self._differences(),
                notes_lines(self.notes),
            ],
        )

    def _facts(self) -> list[tuple[str, str]]:
        level = f"{100 * self.level:g}%"
        return [
            (
                "intervals",
                f"{level}; AUC DeLong on the logit scale, Brier logit, O/E log, slope by the "
                f"sandwich variance{cluster_fact(self.cohort)}",
            ),
            disclosure_fact(self),
        ]

    def _header(self) -> list[str]:
        return ["n", "events", *(MEASURES[m].label for m in PRINTED)]

    @cached_property
    def _printed_limits(self) -> dict[str, tuple[Array, Array]]:
        return {metric: self.limits(metric) for metric in PRINTED}

    def _cells(self, target: int) -> list[str]:
        cells = [text.count(self.counts["n"][target]), text.count(self.counts["events"][target])]
        for metric in PRINTED:
            digits = 3 if MEASURES[metric].scale == "unit" else 2
            k = self.metrics.index(metric)
            cells.append(rate_text(self, k, target, self._printed_limits[metric], digits))
        return cells

    def _all_rows(self) -> list[str]:
        """What the table has no room for, of all rows together."""

        def value(metric: str, digits: int = 3) -> str:
            low, high = self.estimates_of(metric).interval("wilson", self.level)
            at = self.estimates_of(metric).estimate[-1]
            return f"{MEASURES[metric].label} {text.estimate(at, low[-1], high[-1], digits)}"

        masked = np.isnan(self.best_f1_threshold) and self.cohort.suppress_below is not None
        at = "masked" if masked else f"score {self.rule} {self.best_f1_threshold:.3g}"
        noise = text.number(self._binned.if_calibrated[-1])
        debiased = text.number(self.estimates_of("ece_debiased").estimate[-1])
        return text.facts(
            [
                ("all rows", f"{value('log_loss')}, {value('calibration_in_the_large', 2)}"),
                (
                    " ",
                    f"{value('ece')} in {self.bins} {_BIN_WORDS[self.bin_range]}, where noise "
                    f"alone gives {noise}; debiased {debiased}",
                ),
                (
                    " ",
                    f"{value('accuracy')}, {value('f1')}; best F1 of all rows at {at}: "
                    f"{text.number(self.estimates_of('f1_best_f1').estimate[-1])}",
                ),
            ]
        )

    def _differences(self) -> list[str]:
        if np.count_nonzero(self.cohort.groups.sizes) < 2:
            return ["one group only: nothing to compare"]
        chosen = [self.metrics.index(m) for m in PRINTED]
        return [
            *equality_line(self, chosen),
            *aggregate_lines(self, chosen),
            *largest_gap_lines(self, chosen),
        ]


def _score_gap(e: ScoreEstimates, block: Block, measure: Measure) -> dict[str, Any]:
    """The widest gap of one metric, as `gap_row` describes that of a rate."""
    part = e.select(block.targets)
    row: dict[str, Any] = {"metric": e.metric, "by": block.by}
    pair = largest_gap(part.comparable)
    values = list(zip(block.names, part.estimate, part.comparable, strict=True))
    undefined = [name for name, value, _ in values if np.isnan(value)]
    alone = [name for name, value, c in values if np.isnan(c) and not np.isnan(value)]
    left_out = "; ".join(
        f"no {what} in {', '.join(names)}"
        for what, names in (("value", undefined), ("standard error", alone))
        if names
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


def _curve_frame(names: Sequence[str], target: NDArray[np.intp], **columns: Any) -> pd.DataFrame:
    """A frame of curves, the name of the group first."""
    labels = pd.Series(np.asarray(names, dtype=object)[target], dtype="str")
    return pd.DataFrame({"group": labels, **columns})
