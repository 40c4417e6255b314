"""What every result of rates by group can do: tidy frames, contrasts, tests, summaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort, require_comparison
from cfair.disclosure import APART, MASKED, count_column, is_masked, policy, quiet, rounding
from cfair.errors import DataError
from cfair.estimators.disparity import STATISTICS
from cfair.frame import show_some
from cfair.inference.aggregate import AggregateIntervals
from cfair.inference.equality import EqualityTest
from cfair.inference.estimates import RateEstimates
from cfair.options import check_level, check_option, is_number
from cfair.results.calls import record_call
from cfair.results.contrasts import (
    ADJUSTMENTS,
    OVERALL,
    compared_groups,
    contrast_frame,
    metric_hint,
)
from cfair.results.equivalence import (
    EquivalenceResult,
    equivalence_result,
    pairs_of,
    read_question,
)
from cfair.results.gaps import Block, Measure, gap_frame, gap_row
from cfair.results.printed import Printed

Array = NDArray[np.float64]

#: Columns of a frame that an attribute's column must not take the name of.
_RESERVED = frozenset(
    (
        *("metric", "group", "attribute", "level", "reference", "n", "untreated", "events"),
        *("denominator", "n_effective", "estimate", "se", "ci_low", "ci_high", "note"),
        *("boot_low", "boot_high", "boot_se", "boot_valid"),
        *("non_events", "predicted_positive", "threshold", "expected_if_calibrated"),
    )
)


@dataclass(frozen=True, eq=False)
class MetricRows:
    """Who stands behind the rates of one metric, for groups, then margins, then all.

    Attributes
    ----------
    label : str
        Name in print, such as ``cFPR``.
    denominator : (T,) array
        Rows in the denominator.
    notes : tuple of str
        Why a rate is undefined, or what to mind; empty where there is nothing to say.
    """

    label: str
    denominator: Array
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class RatesResult(Printed):
    """Rates by group with their uncertainty: a frozen record of one analysis.

    Attributes
    ----------
    cohort : Cohort
        The rows that were used, and what was left out.
    estimates : tuple of RateEstimates
        One per metric, for the groups, the margins, and all rows together; or the groups only.
    rows : tuple of MetricRows
        In the order of `estimates`.
    counts : dict of str to (T,) array
        Columns of counts that are the same for every metric, such as ``n`` and ``events``.
    level : float
        Confidence level.
    interval : str
        Kind of interval of the rates.
    aggregate_interval : str
        Kind of interval of the summaries.
    seed : int
        Seed of the replicates, if there are any.
    notes : tuple of str
        What to be careful about.
    """

    cohort: Cohort
    estimates: tuple[RateEstimates, ...]
    rows: tuple[MetricRows, ...]
    counts: Mapping[str, Array]
    level: float = 0.95
    interval: str = "wilson"
    aggregate_interval: str = "tie-aware"
    seed: int = 0
    notes: tuple[str, ...] = ()
    _aggregates: dict[int, AggregateIntervals] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for values in self.counts.values():
            values.setflags(write=False)
        object.__setattr__(self, "counts", MappingProxyType(dict(self.counts)))
        said = tuple(quiet(note, self.cohort.suppress_below) for note in self.notes)
        object.__setattr__(self, "notes", said)

    # -- frames ---------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "counts": dict(self.counts)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__["counts"] = MappingProxyType(state["counts"])

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(e.metric for e in self.estimates)

    @property
    def compared(self) -> tuple[str, ...]:
        """Metrics that comparisons are about unless told otherwise."""
        return self.metrics

    @property
    def judged(self) -> tuple[str, ...]:
        """Metrics whose gaps are shown unless told otherwise."""
        return self.compared

    @property
    def tested(self) -> tuple[str, ...]:
        """Metrics whose equivalence is tested unless told otherwise."""
        return self.compared

    @property
    def plotted(self) -> tuple[str, ...]:
        """Metrics that plots show unless told otherwise."""
        return self.compared[:2]

    @property
    def about(self) -> str:
        """What kind of rates these are, for the plots."""
        return ""

    @property
    def rates(self) -> pd.DataFrame:
        """A row per metric and group, undefined and empty groups included."""
        return self._rates.copy()

    @cached_property
    def _rates(self) -> pd.DataFrame:
        groups = self.cohort.groups
        labels = groups.label_frame()
        labels.columns = [_safe(name) for name in groups.attributes]
        parts = []
        for k in range(len(self.estimates)):
            part = self._frame(k, slice(0, groups.n_groups))
            head = pd.DataFrame({"metric": self.estimates[k].metric, "group": list(groups.names)})
            parts.append(pd.concat([head, labels, part], axis=1))
        return pd.concat(parts, ignore_index=True)

    @property
    def marginals(self) -> pd.DataFrame:
        """A row per metric, attribute and level: each attribute on its own.

        It has no rows where only the intersectional groups have rates.
        """
        return self._marginals.copy()

    @cached_property
    def _marginals(self) -> pd.DataFrame:
        margins = self.cohort.groups.margins
        head = pd.DataFrame(
            {
                "attribute": [a for a, _ in margins],
                "level": pd.Series([v for _, v in margins], dtype=object),
            }
        )
        return self._beyond_groups(head, self.cohort.groups.n_groups)

    @property
    def overall(self) -> pd.DataFrame:
        """A row per metric: all rows together; none where only groups have rates."""
        return self._overall.copy()

    @cached_property
    def _overall(self) -> pd.DataFrame:
        groups = self.cohort.groups
        head = pd.DataFrame(index=range(1))
        return self._beyond_groups(head, groups.n_groups + len(groups.margins))

    @property
    def has_margins(self) -> bool:
        """Whether every metric has rates of the margins and of all rows beside the groups'."""
        return all(len(e.estimate) > self.cohort.groups.n_groups for e in self.estimates)

    def _beyond_groups(self, head: pd.DataFrame, first: int) -> pd.DataFrame:
        """Rates of the targets that `head` describes, for the metrics that have them."""
        K = self.cohort.groups.n_groups
        chosen = [k for k, e in enumerate(self.estimates) if len(e.estimate) > K]
        size = len(head) if chosen else 0  # without any, a frame of no rows has the columns
        parts = []
        for k in chosen or [0]:
            part = self._frame(k, slice(first, first + size))
            named = head[:size].copy()
            named.insert(0, "metric", pd.Series([self.metrics[k]] * size, dtype="str"))
            parts.append(pd.concat([named, part], axis=1))
        return pd.concat(parts, ignore_index=True)

    def limits(self, metric: str) -> tuple[Array, Array]:
        """Limits of the rates of one metric: groups, margins, all.

        Parameters
        ----------
        metric : str

        Returns
        -------
        low, high : (T,) arrays
        """
        return self.estimates_of(metric).interval(self.interval, self.level)

    def _frame(self, k: int, targets: slice) -> pd.DataFrame:
        e, rows = self.estimates[k], self.rows[k]
        low, high = self.limits(e.metric)
        columns: dict[str, Any] = {
            name: count_column(values[targets]) for name, values in self.counts.items()
        }
        columns["denominator"] = count_column(rows.denominator[targets])
        columns["n_effective"] = np.where(np.isnan(e.estimate), np.nan, e.size)[targets]
        columns["estimate"] = e.estimate[targets]
        columns["se"] = e.se[targets]
        columns["ci_low"], columns["ci_high"] = low[targets], high[targets]
        columns["note"] = pd.Series(rows.notes[targets], dtype="str")
        columns.update(self._more_columns(e.metric, targets))
        return pd.DataFrame(columns)

    def _more_columns(self, metric: str, targets: slice) -> dict[str, Any]:
        return {}

    def to_frame(self) -> pd.DataFrame:
        """The rates by group as a tidy frame."""
        return self.rates

    @property
    def disclosure(self) -> str:
        """What was rounded or masked, in a line; empty without disclosure control."""
        below, first = self.cohort.suppress_below, rounding(self.cohort.round_counts_to)
        if below is None:
            return first
        shown = dict(self.counts)  # of a single attribute the levels are the groups
        if len(self.cohort.groups.attributes) == 1:
            shown = {name: values[: self.cohort.groups.n_groups] for name, values in shown.items()}
        size = len(next(iter(shown.values())))
        rates = sum(note.startswith(MASKED) for r in self.rows for note in r.notes[:size])
        return "; ".join(filter(None, [first, policy(below, shown, rates), APART]))

    # -- comparisons ----------------------------------------------------------------------------

    def estimates_of(self, metric: str) -> RateEstimates:
        """Estimates of one metric, by name.

        Parameters
        ----------
        metric : str
            One of `metrics`.

        Returns
        -------
        RateEstimates

        Raises
        ------
        ValueError
            If there is no such metric.
        """
        if isinstance(metric, str) and metric not in self.metrics:
            raise ValueError(
                f"metrics must be of {', '.join(map(repr, self.metrics))}, not {metric!r}."
                + metric_hint(metric, self._labels)
            )
        check_option("metric", metric, self.metrics)
        return self.estimates[self.metrics.index(metric)]

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
        adjust : str or None, default "holm"
            How p-values are adjusted over all rows of the frame: a method of statsmodels'
            ``multipletests`` (``"bonferroni"``, ``"hommel"``, ``"fdr_bh"``, ...), or ``"max-t"``
            for simultaneous intervals and p-values from the joint normal distribution of the
            differences of each metric.
        metrics : str or sequence of str, optional
            Those of `compared` by default.
        attribute : str, optional
            Compare the levels of this attribute instead of the intersectional groups; `reference`
            is then one of its levels.
        level : float, optional
            Confidence level; that of the result by default.

        Returns
        -------
        pandas.DataFrame
            A row per metric and pair: ``metric, group, reference, estimate, se, ci_low, ci_high,
            p_value, p_adjusted, family, note``. Intervals are MOVER's (Newcombe's for independent
            proportions), and ``p_value`` is the level at which the interval touches equality.

        Raises
        ------
        DataError
            If there is only one group, no such reference, or no rates of single attributes.
        ValueError
            For an unknown option.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="race"
        ... )
        >>> frame = audit.observed().contrasts("White", metrics="fpr")
        >>> frame[["group", "reference", "estimate", "ci_low", "ci_high"]].round(3)
           group reference  estimate  ci_low  ci_high
        0  Black     White     0.114   0.079    0.149
        1  Other     White     0.009  -0.033    0.054
        """
        level = self.level if level is None else check_level(level)
        wanted = _chosen(metrics, self.compared)
        pairs = compared_groups(self.cohort.groups, attribute, reference)
        if attribute is not None or pairs.to_all:
            self._require_margins(wanted)
        return contrast_frame(
            [self.estimates_of(m) for m in wanted],
            pairs,
            kind=kind,
            adjust=adjust,
            level=level,
            reasons=[self.rows[self.metrics.index(m)].notes for m in wanted],
        )

    def equivalence(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        margin: tuple[float, float] | Mapping[str, tuple[float, float]] | None = None,
        contrast: str = "ratio",
        reference: Any = None,
        attribute: str | None = None,
        alpha: float = 0.05,
        method: str = "auto",
        adjust: str | None = None,
    ) -> EquivalenceResult:
        """Whether groups are equivalent in a rate: two one-sided tests of every pair.

        "No significant difference" says nothing of fairness: a small study finds none. Equivalence
        is shown when the interval of level 1 - 2 alpha of a contrast lies inside a margin.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            Those of `tested` by default. ``"sensitivity"`` and ``"specificity"`` are read as
            ``"tpr"`` and ``"tnr"``.
        margin : (float, float) or mapping of metric to (float, float), optional
            Within what the contrast counts as no difference: to be chosen for the case, before the
            data are seen. By default (0.8, 1.25) for ratios and odds ratios; a difference needs
            one.
        contrast : {"ratio", "odds_ratio", "difference"}, default "ratio"
            Of the rate of a group to that of its reference.
        reference : label, optional
            Group that all others are compared with, or ``"overall"``. All pairs by default.
        attribute : str, optional
            Compare the levels of this attribute instead of the intersectional groups.
        alpha : float, default 0.05
            Size of each one-sided test.
        method : {"auto", "score", "wald"}, default "auto"
            The score test of Koopman and of Miettinen and Nurminen, where rates are counts of
            independent rows; or the Wald test, for ratios on the log scale, with the covariance of
            the estimates. ``"auto"`` takes score where it can.
        adjust : str or None, default None
            How p-values, and verdicts with them, are adjusted over all pairs and metrics, by
            statsmodels' ``multipletests``. That *all* pairs are equivalent needs no correction.

        Returns
        -------
        EquivalenceResult
            With frames ``pairs`` and ``overall``, and ``plot()``. A verdict is "equivalent", the
            interval inside the margin; "different", the interval wholly outside; "no power", when
            no split of these events between groups of these sizes would show equivalence; "not
            enough data" otherwise; or "undefined". A pair is wrongly called equivalent in alpha of
            studies at most, and wrongly different in alpha of them at either end of the margin,
            together up to 2 alpha if the margin is narrow beside the standard error.

        Raises
        ------
        DataError
            If there is only one group, no such reference, or no rates of single attributes.
        ValueError
            For an option that is not allowed, or a contrast that has no meaning for a metric.

        Notes
        -----
        The score test is the default because its size stays near alpha where Wald's does not. With
        a sensitivity of 0.9, groups of 20 and 400 events and a true ratio at the margin, Wald says
        "equivalent" in 12% of studies instead of 5%, the score test in 5%.

        With sampling weights the score test takes effective sizes for sizes. A group is tested
        against all rows by its contrast to the other rows. With clusters or models behind the
        rates there is no score test. Wald's then has Student's quantile on Welch's degrees of
        freedom, from effective sizes or clusters.

        References
        ----------
        Schuirmann DJ (1987). A comparison of the two one-sided tests procedure and the power
        approach for assessing the equivalence of average bioavailability. Journal of
        Pharmacokinetics and Biopharmaceutics 15, 657-680.

        Berger RL, Hsu JC (1996). Bioequivalence trials, intersection-union tests and equivalence
        confidence sets. Statistical Science 11, 283-319.

        Miettinen O, Nurminen M (1985). Comparative analysis of two rates. Statistics in Medicine 4,
        213-226.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="race"
        ... )
        >>> frame = audit.observed().equivalence("tnr", reference="White").pairs
        >>> frame[["group", "estimate", "ci_low", "ci_high", "verdict"]].round(3)
           group  estimate  ci_low  ci_high     verdict
        0  Black     0.853   0.816    0.889  equivalent
        1  Other     0.989   0.940    1.035  equivalent
        """
        question = read_question(
            metrics,
            self.metrics,
            self.tested,
            margin=margin,
            contrast=contrast,
            alpha=alpha,
            method=method,
            adjust=adjust,
        )
        compared = compared_groups(self.cohort.groups, attribute, reference)
        wanted = list(question.margins)
        if attribute is not None or compared.to_all:
            self._require_margins(wanted)
        parts = []
        for metric in wanted:
            rows = self.rows[self.metrics.index(metric)]
            e = self.estimates_of(metric)
            masked = is_masked(rows.denominator)
            known = np.where(masked, 0.0, rows.denominator)
            part = pairs_of(e, known, rows.notes, compared, question)
            for name, of in zip(("n", "n_reference"), compared.pairs(), strict=True):
                lost = masked[compared.positions[of]]
                part[name] = count_column(np.where(lost, np.nan, part[name]))
            parts.append(part)
        frame = pd.concat(parts, ignore_index=True)
        found = equivalence_result(self.cohort, frame, question, self._labels, self.about, compared)
        given = {
            "metrics": metrics,
            "margin": margin,
            "contrast": contrast,
            "reference": reference,
            "attribute": attribute,
            "alpha": alpha,
            "method": method,
            "adjust": adjust,
        }
        record_call(found, f"{self.call}.equivalence", type(self).equivalence, (self,), given)
        return found

    def _require_margins(self, metrics: Sequence[str]) -> None:
        K = self.cohort.groups.n_groups
        without = [m for m in metrics if len(self.estimates_of(m).estimate) == K]
        if without:
            raise DataError(
                f"{', '.join(without)}: only the intersectional groups have a rate in this result, "
                "single attributes have none. Leave attribute= or marginals= out."
            )

    @property
    def equality_tests(self) -> tuple[EqualityTest, ...]:
        """Tests of equal rates, one per metric."""
        return tuple(e.equality for e in self.estimates)

    def test_equal(self) -> pd.DataFrame:
        """Test, for each metric, that all groups have the same rate.

        Returns
        -------
        pandas.DataFrame
            A row per metric: ``metric``; ``wald``, ``df``, ``p_value`` of the Wald chi-square on
            the logit scale, with clusters of Hotelling's ``f`` with ``df_denominator``; ``max_t``
            and ``max_t_p_value`` of the largest standardized difference; ``note`` with the groups
            that take no part.

        Raises
        ------
        DataError
            If there is only one group.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="race"
        ... )
        >>> audit.observed().test_equal().query("metric == 'fpr'")[["wald", "df"]].round(1)
           wald  df
        3  46.0   2
        """
        require_comparison(self.cohort.groups)
        names = self.cohort.groups.names
        return pd.DataFrame(
            [
                {
                    "metric": t.metric,
                    "wald": t.wald,
                    "df": t.df,
                    "f": t.f_statistic,
                    "df_denominator": t.df_denominator,
                    "p_value": t.p_value,
                    "max_t": t.max_t,
                    "max_t_p_value": t.max_t_p_value,
                    "note": f"no rate in {show_some([names[k] for k in t.left_out], 10)}"
                    if t.left_out and not t.note
                    else t.note,
                }
                for t in self.equality_tests
            ]
        )

    @property
    def aggregates(self) -> tuple[AggregateIntervals, ...]:
        """Summaries of the differences with their intervals, one per metric."""
        return tuple(self.aggregate(k) for k in range(len(self.estimates)))

    def aggregate(self, k: int) -> AggregateIntervals:
        """Summaries of the differences of the k-th metric, computed once.

        Parameters
        ----------
        k : int
            Position in `metrics`.

        Returns
        -------
        AggregateIntervals
        """
        if k not in self._aggregates:
            found = self.estimates[k].aggregates(self.level, self.aggregate_interval)
            self._aggregates[k] = found
        return self._aggregates[k]

    @property
    def disparities(self) -> pd.DataFrame:
        """A row per metric and statistic of the absolute differences between all pairs of groups.

        ``expected_if_equal`` is what the statistic would be on average if all rates were equal:
        noise alone makes it positive. The variance is a poor target; prefer average or maximum.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="race"
        ... )
        >>> frame = audit.observed().disparities.query("metric == 'fpr'")
        >>> frame[["statistic", "estimate", "expected_if_equal"]].round(3)
           statistic  estimate  expected_if_equal
        9    average     0.076              0.017
        10   maximum     0.114              0.026
        11  variance     0.003              0.000
        """
        return self._disparities.copy()

    @cached_property
    def _disparities(self) -> pd.DataFrame:
        parts = []
        for e, a in zip(self.estimates, self.aggregates, strict=True):
            frame = pd.DataFrame(
                {
                    "metric": e.metric,
                    "statistic": list(STATISTICS),
                    "estimate": a.estimate,
                    "ci_low": a.low,
                    "ci_high": a.high,
                    "expected_if_equal": a.expected_if_equal,
                }
            )
            parts.append(frame)
        return self._more_disparities(pd.concat(parts, ignore_index=True))

    def _more_disparities(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame

    def gaps(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        adjust: str | None = "holm",
        power: float = 0.8,
        severity: tuple[float, float] = (0.05, 0.15),
    ) -> pd.DataFrame:
        """The widest gap between groups, for each metric: by every attribute, and by intersection.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            Those of `judged` by default.
        adjust : str or None, default "holm"
            How p-values are adjusted over all rows of the frame.
        power : float, default 0.8
            Of the test that finds a ``detectable`` gap.
        severity : tuple of two floats, default (0.05, 0.15)
            From where on a gap is moderate, and beyond which it is severe.

        Returns
        -------
        pandas.DataFrame
            ``metric``; ``by``, an attribute or all of them; ``group`` (highest rate), ``reference``
            (lowest), their ``gap`` with the interval of a maximum over all pairs, since the pair
            was chosen for its width; ``expected_if_equal``, what noise alone would give;
            ``detectable``, the least gap between two groups of these sizes that a test of two
            proportions finds with this power; ``ratio``, lowest over highest rate, which is
            ``reference`` over ``group``, never above 1, and for equalized odds the lesser of those
            of TPR and FPR; ``severity``, a word that knows nothing of noise (printed in brackets
            where the interval reaches 0, if it is severe or moderate); ``p_value`` of the test
            that all rates are equal, and ``p_adjusted`` over the ``family``; ``note``.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="race"
        ... )
        >>> audit.observed().gaps("fpr")[["by", "group", "reference", "gap", "severity"]].round(3)
             by  group reference    gap  severity
        0  race  Black     White  0.114  moderate
        """
        check_option("adjust", adjust, [*ADJUSTMENTS, None])
        if not is_number(power) or not 0 < power < 1:
            raise ValueError(f"power must be a number between 0 and 1, such as 0.8, not {power!r}.")
        wanted = _chosen(metrics, self.judged)
        if np.shape(severity) != (2,):
            raise ValueError(
                "severity must be two numbers, from where on a gap is moderate and beyond which it "
                f"is severe, such as (0.05, 0.15), not {severity!r}."
            )
        thresholds = (float(severity[0]), float(severity[1]))
        measure = Measure(self.level, self.aggregate_interval, power, thresholds)
        rows = [row for metric in wanted for row in self._gap_rows(metric, measure)]
        return gap_frame(rows, measure, adjust)

    def _by(self, metric: str) -> list[Block]:
        """What is compared: the levels of each attribute, then the intersectional groups."""
        groups = self.cohort.groups
        K = groups.n_groups
        whole = Block(" x ".join(groups.attributes), groups.names, np.arange(K))
        if len(groups.attributes) == 1 or len(self.estimates_of(metric).estimate) == K:
            return [whole]
        of = np.array([attribute for attribute, _ in groups.margins])
        return [
            *(
                Block(attribute, names, K + np.flatnonzero(of == attribute))
                for attribute, names in zip(groups.attributes, groups.level_names, strict=True)
            ),
            whole,
        ]

    def _gap_rows(self, metric: str, measure: Measure) -> list[dict[str, Any]]:
        e, rows = self.estimates_of(metric), []
        for block in self._by(metric):
            whole = block.targets[0] == 0 and measure.level == self.level
            known = self.aggregate(self.metrics.index(metric)) if whole else None
            rows.append(gap_row(e, block, measure, known))
        return rows

    # -- plots ----------------------------------------------------------------------------------

    def plot_rates(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        ax: Any = None,
        marginals: bool | str = False,
    ) -> Any:
        """Rates with their intervals, a row per group, undefined groups kept and marked.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            Up to four metrics in one panel; those of `plotted` by default.
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.
        marginals : bool or "both", default False
            Single attributes instead of their intersection, or all rows, the single attributes and
            the intersection on one scale.

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_rates

        wanted = [metrics] if isinstance(metrics, str) else list(metrics or self.plotted)
        for metric in wanted:
            self.estimates_of(metric)
        if not isinstance(marginals, (bool, np.bool_)):
            check_option("marginals", marginals, ("both",))
        frame, sections = self.rates, []
        if marginals:
            self._require_margins(wanted)
            frame = self.marginals
            named = zip(frame["attribute"], frame["level"], strict=True)
            frame = frame.assign(group=[f"{a}: {v}" for a, v in named])
        if marginals == "both":
            several = len(self.cohort.groups.attributes) > 1
            sections = [1, *([1 + len(self.cohort.groups.margins)] if several else [])]
            parts = [self.overall.assign(group="all"), frame, *([self.rates] if several else [])]
            frame = pd.concat(parts, ignore_index=True)
        return plot_rates(
            frame,
            metrics=wanted,
            labels=self._labels,
            level=self.level,
            about=self.about,
            sections=sections,
            ax=ax,
        )

    def plot_forest(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        compare: RatesResult | Mapping[str, RatesResult] | None = None,
        attributes: Sequence[str] | None = None,
        intersections: bool = True,
        reference: Any = OVERALL,
        margin: tuple[float, float] | None = None,
        contrast: str = "ratio",
        ax: Any = None,
    ) -> Any:
        """Rates as in clinical papers: group, counts, square and line, estimate (interval).

        All rows come first, then the single attributes, then their intersections, each under a
        heading. A group without a rate keeps its row, with a hollow mark and the reason. The counts
        are n and what the rate is a share of: events for TPR and FNR, non-events for FPR and TNR,
        the patients flagged for PPV, those not flagged for NPV; of counterfactual rates, the
        untreated and the events or non-events among them.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            Drawn one under the other on the same axis; those of `plotted` by default.
        compare : result, or mapping of str to result, optional
            Drawn beside these rates in each row: another estimator, or the observed rates beside
            those had nobody been treated. A mapping gives the names of the legend. The rate that is
            drawn of each is that without treatment where the result has one (cFPR for FPR), so that
            ``compare=result`` shows a counterfactual result beside its own observed rates. Calls
            and numbers of rows that differ stand in the legend.
        attributes : sequence of str, optional
            Single attributes in the order wanted, which intersections follow; all by default.
        intersections : bool, default True
            Whether the intersectional groups are drawn below the single attributes.
        reference : label, "overall" or None, default "overall"
            Where the vertical line stands: at all rows together, or at an intersectional group.
        margin : (float, float), optional
            Drawn as a grey band around the reference, for instance (0.8, 1.25). Whether groups are
            equivalent is not seen from it: see `equivalence`.
        contrast : {"ratio", "difference"}, default "ratio"
            What the margin is of, group to reference.
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        DataError
            If there is no such attribute or reference, single attributes have no rates, or what is
            compared has other groups.
        ValueError
            For a metric or margin that is not allowed, or a comparison with another event, level or
            disclosure control.
        TypeError
            If `compare` is no result with rates by group.

        Examples
        --------
        >>> import cfair
        >>> from matplotlib.figure import Figure
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> result = audit.counterfactual("treated ~ sex + risk + age + sbp")
        >>> ax = audit.observed().plot_forest("fpr", compare=result, ax=Figure().add_subplot())
        >>> [text.get_text().partition(",")[0] for text in ax.get_legend().get_texts()][:2]
        ['Observed', 'Had nobody been treated: inverse probability weighting (IPW)']
        """
        from cfair.plotting import plot_clinical_forest
        from cfair.results.forest import forest_rows

        rows = forest_rows(
            self,
            [metrics] if isinstance(metrics, str) else metrics,
            compare=compare,
            attributes=attributes,
            intersections=intersections,
            reference=reference,
            margin=margin,
            contrast=contrast,
        )
        return plot_clinical_forest(
            rows.frame,
            rows.panels,
            series=rows.series,
            level=self.level,
            about=rows.about,
            reference=rows.reference,
            margin=rows.margin,
            ax=ax,
        )

    @property
    def _labels(self) -> dict[str, str]:
        """Names of the metrics in print."""
        return {e.metric: r.label for e, r in zip(self.estimates, self.rows, strict=True)}

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
            Those of `judged` by default.
        severity : tuple of two floats, default (0.05, 0.15)
            From where on a gap is moderate, and beyond which it is severe.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_gaps

        return plot_gaps(
            self.gaps(metrics, severity=severity),
            labels=self._labels,
            level=self.level,
            severity=severity,
            about=self.about,
            ax=ax,
        )

    def plot_heatmap(self, metrics: str | Sequence[str] | None = None, *, ax: Any = None) -> Any:
        """Rates of all groups and metrics as a table, coloured by the distance from all rows.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            All by default.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_heatmap

        wanted = [metrics] if isinstance(metrics, str) else list(metrics or self.metrics)
        self._require_margins(wanted)
        return plot_heatmap(
            self.rates,
            self.overall,
            metrics=wanted,
            labels=self._labels,
            about=self.about,
            level=self.level,
            ax=ax,
        )

    def plot_all(self, directory: Any, *, suffix: str = "png", dpi: float = 150) -> list[Path]:
        """Draw every plot of this result into files, one for each plot and attribute.

        Parameters
        ----------
        directory : path
            Made if it is not there.
        suffix : str, default "png"
            Format, as matplotlib knows it.
        dpi : float, default 150

        Returns
        -------
        list of pathlib.Path
            Names are safe whatever the attributes are called: ``race/ethnicity`` is
            ``race_ethnicity``.
        """
        from cfair.plotting import save_all

        return save_all(self._plots(), directory, suffix=suffix, dpi=dpi)

    def _plots(self) -> dict[str, Callable[[], Any]]:
        """Every plot by the name of its file."""
        groups = self.cohort.groups
        whole = " x ".join(groups.attributes)
        found: dict[str, Callable[[], Any]] = {f"rates by {whole}": self.plot_rates}
        if np.count_nonzero(groups.sizes) > 1:
            found[f"disparities by {whole}"] = self.plot_disparities
            found["gaps"] = self.plot_gaps
        if self.has_margins:
            found[f"forest by {whole}"] = self.plot_forest
        if self.has_margins:
            found["rates beside attributes"] = partial(self.plot_rates, marginals="both")
            found[f"heat map by {whole}"] = self.plot_heatmap
            if len(groups.attributes) > 1:
                for attribute in groups.attributes:
                    found[f"rates by {attribute}"] = partial(self._plot_attribute, attribute)
        return found

    def _plot_attribute(self, attribute: str) -> Any:
        from cfair.plotting import plot_rates

        frame = self.marginals
        frame = frame[frame["attribute"] == attribute]
        return plot_rates(
            frame.assign(group=frame["level"].astype(str)),
            metrics=list(self.plotted),
            labels=self._labels,
            level=self.level,
            about=self.about,
        )

    def plot_disparities(
        self, metrics: str | Sequence[str] | None = None, *, ax: Any = None
    ) -> Any:
        """Average and maximum difference with intervals, and what noise alone would give.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            Those of `plotted` by default.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_disparities

        wanted = [metrics] if isinstance(metrics, str) else list(metrics or self.plotted)
        for metric in wanted:
            self.estimates_of(metric)
        return plot_disparities(
            self._disparities,
            metrics=wanted,
            labels=self._labels,
            level=self.level,
            about=self.about,
            ax=ax,
        )


def _chosen(metrics: Any, default: Sequence[str]) -> list[str]:
    """Names of metrics, each once: one that is named twice is still one test."""
    if metrics is None:
        return list(default)
    if isinstance(metrics, str):
        return [metrics]
    if not isinstance(metrics, Sequence) or not len(metrics):
        raise ValueError(f"metrics must be one name, or a sequence of names, not {metrics!r}.")
    return list(dict.fromkeys(metrics))


def _safe(name: str) -> str:
    return f"{name} (attribute)" if name in _RESERVED else name
