"""Rates of groups compared: differences, equivalence, tests of equality, and the widest gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from cfair.cohort import require_comparison
from cfair.disclosure import count_column, is_masked
from cfair.errors import DataError
from cfair.estimators.disparity import STATISTICS
from cfair.frame import show_some
from cfair.inference.aggregate import AggregateIntervals
from cfair.inference.equality import EqualityTest
from cfair.options import check_level, check_option, is_number
from cfair.results.calls import record_call
from cfair.results.contrasts import ADJUSTMENTS, compared_groups, contrast_frame
from cfair.results.equivalence import EquivalenceResult, equivalence_result
from cfair.results.equivalence_pairs import pairs_of
from cfair.results.equivalence_question import Margin, read_question
from cfair.results.gaps import MASKED_IN, NO_RATE_IN, Block, Measure, gap_frame, gap_row
from cfair.results.rate_frames import RateFrames

#: Why rates are not tested for equality, where too few of them are shown.
RATES_MASKED = "fewer than two groups have a rate that is not masked"


@dataclass(frozen=True, eq=False, repr=False)
class RateComparisons(RateFrames):
    """What can be asked of the rates of several groups; `RatesResult` describes the fields."""

    _aggregates: dict[int, AggregateIntervals] = field(default_factory=dict, init=False)
    _found_gaps: dict[tuple[str, int, Measure], dict[str, Any]] = field(
        default_factory=dict, init=False
    )

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
        margin: Margin | Mapping[str, Margin] | None = None,
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
        margin : (float, float), float, or mapping of metric to such a margin, optional
            Within what the contrast counts as no difference: to be chosen for the case, before the
            data are seen. By default (0.8, 1.25) for ratios and odds ratios; a difference needs
            one, and one number d is (-d, d) there.
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
                    "note": self.equality_note(t),
                }
                for t in self.equality_tests
            ]
        )

    def equality_note(self, test: EqualityTest) -> str:
        """Why there is no test of equal rates, or which groups it leaves out.

        Parameters
        ----------
        test : EqualityTest
            One of `equality_tests`.

        Returns
        -------
        str
            Empty if there is nothing to say.
        """
        names, masked = self.cohort.groups.names, self.masked(test.metric)
        if test.note:
            few = len(names) - len(test.left_out) < 2
            return RATES_MASKED if few and masked[list(test.left_out)].any() else test.note
        apart = ((MASKED_IN, True), (NO_RATE_IN, False))
        out = [(head, [names[k] for k in test.left_out if masked[k] == m]) for head, m in apart]
        return "; ".join(head + show_some(named, 10) for head, named in out if named)

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
        rows = [
            self._gap_row(metric, k, measure)
            for metric in wanted
            for k in range(len(self.blocks(metric)))
        ]
        return gap_frame(rows, measure, adjust)

    def widest_gap(self, metric: str) -> Mapping[str, Any] | None:
        """The widest gap of one metric between the intersectional groups, without what tests say.

        Parameters
        ----------
        metric : str
            One of `metrics`.

        Returns
        -------
        dict or None
            As in a row of `gaps`. That of an attribute where fewer than two intersectional groups
            have a rate; None where no two groups have.
        """
        measure = Measure(self.level, self.aggregate_interval)
        last_first = reversed(range(len(self.blocks(metric))))
        rows = (self._gap_row(metric, k, measure) for k in last_first)
        return next((row for row in rows if "gap" in row), None)

    def blocks(self, metric: str) -> list[Block]:
        """What is compared: the levels of each attribute, then the intersectional groups.

        Parameters
        ----------
        metric : str
            One of `metrics`.

        Returns
        -------
        list of Block
            The intersectional groups alone where there is a single attribute, or single attributes
            have no rates.
        """
        groups = self.cohort.groups
        K, masked = groups.n_groups, self.masked(metric)
        whole = Block(" x ".join(groups.attributes), groups.names, np.arange(K), masked[:K])
        if len(groups.attributes) == 1 or len(self.estimates_of(metric).estimate) == K:
            return [whole]
        of = np.array([attribute for attribute, _ in groups.margins])
        return [
            *(
                Block(attribute, names, at := K + np.flatnonzero(of == attribute), masked[at])
                for attribute, names in zip(groups.attributes, groups.level_names, strict=True)
            ),
            whole,
        ]

    def _gap_row(self, metric: str, k: int, measure: Measure) -> dict[str, Any]:
        """The widest gap of a metric in the k-th of its blocks, found once."""
        key = (metric, k, measure)
        if key not in self._found_gaps:
            self._found_gaps[key] = self._find_gap(metric, k, measure)
        return self._found_gaps[key]

    def _find_gap(self, metric: str, k: int, measure: Measure) -> dict[str, Any]:
        block = self.blocks(metric)[k]
        whole = block.targets[0] == 0 and measure.level == self.level
        known = self.aggregate(self.metrics.index(metric)) if whole else None
        return gap_row(self.estimates_of(metric), block, measure, known)


def _chosen(metrics: Any, default: Sequence[str]) -> list[str]:
    """Names of metrics, each once: one that is named twice is still one test."""
    if metrics is None:
        return list(default)
    if isinstance(metrics, str):
        return [metrics]
    if not isinstance(metrics, Sequence) or not len(metrics):
        raise ValueError(f"metrics must be one name, or a sequence of names, not {metrics!r}.")
    return list(dict.fromkeys(metrics))
