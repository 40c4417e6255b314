"""Observed rates: what the data show, with no causal model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from cfair.disclosure import KINDS, count_column, why_rate_masked, written
from cfair.errors import DataError
from cfair.estimators.confusion import RATE_CELLS, RateCells
from cfair.inference.aggregate import AggregateIntervals
from cfair.inference.estimates import RateEstimates
from cfair.inference.influence import rate_covariance
from cfair.inference.moments import CellMoments, ClusterScores
from cfair.results import text
from cfair.results.gaps import EQUALIZED_ODDS, Block, Measure, equalized_odds_row
from cfair.results.rates import RatesResult
from cfair.results.report import (
    aggregate_lines,
    cluster_fact,
    cohort_facts,
    disclosure_fact,
    equality_line,
    gap_table,
    group_table,
    margin_table,
    notes_lines,
    rate_text,
)

Array = NDArray[np.float64]

#: Intervals of observed rates, and what statsmodels calls them.
METHODS: dict[str, str] = {
    "wilson": "wilson",
    "clopper-pearson": "beta",
    "agresti-coull": "agresti_coull",
}

#: Rates that are one less another, so that groups differ in both by as much.
_COMPLEMENTS: dict[str, str] = {"tnr": "fpr", "fnr": "tpr", "fdr": "ppv", "for": "npv"}

#: Metrics in the printed table; the frames have all.
PRINTED: tuple[str, ...] = ("selection_rate", "tpr", "fpr", "ppv")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ObservedResult(RatesResult):
    """Observed rates by intersectional group and by attribute.

    Printing shows the most used metrics; ``rates``, ``marginals``, ``disparities``,
    ``contrasts()`` and ``test_equal()`` have all thirteen.

    See Also
    --------
    RatesResult : the other attributes, and what can be asked of every result.
    """

    _moments: CellMoments
    _cluster_scores: ClusterScores | None = None

    @property
    def moments(self) -> CellMoments:
        """Counts, or sums of the sampling weights, by group, outcome and call: all that rates are.

        Refused under ``suppress_below``, as are `cluster_scores`.
        """
        self._inside("moments")
        return self._moments

    @property
    def cluster_scores(self) -> ClusterScores | None:
        """The same by cluster; None without any."""
        self._inside("cluster_scores")
        return self._cluster_scores

    def _inside(self, name: str) -> None:
        """Refuse what holds every count where some are masked."""
        if self.cohort.suppress_below is not None:
            raise DataError(
                f"{name!r} holds the counts that suppress_below= masks. Make an Audit without it, "
                "and keep them inside."
            )

    @property
    def covariance(self) -> pd.DataFrame:
        """Joint covariance of all rates of all groups, metric by metric."""
        K = self.cohort.groups.n_groups
        cells = list(RATE_CELLS)
        joint = rate_covariance(
            self._moments, np.eye(K), list(RATE_CELLS.values()), self._cluster_scores
        )
        # rates as functions of those: themselves, F1 of the Jaccard index, and a mean of two
        slope = np.zeros((len(self.metrics), len(cells), K))
        for row, metric in enumerate(self.metrics):
            if metric == "balanced_accuracy":
                slope[row, cells.index("tpr")] = slope[row, cells.index("tnr")] = 0.5
                continue
            at = cells.index(metric)
            theta = joint.estimate[at * K : (at + 1) * K]
            slope[row, at] = 2 / (1 + theta) ** 2 if metric == "f1" else 1.0
        blocks = joint.covariance.reshape(len(cells), K, len(cells), K)
        undefined = np.isnan(np.concatenate([e.estimate[:K] for e in self.estimates]))
        whole = np.einsum(
            "mak,akbl,nbl->mknl", np.nan_to_num(slope), np.nan_to_num(blocks), np.nan_to_num(slope)
        )
        whole = whole.reshape(len(undefined), len(undefined))
        whole[undefined, :] = whole[:, undefined] = np.nan
        labels = pd.MultiIndex.from_tuples(
            [(m, name) for m in self.metrics for name in self.cohort.groups.names],
            names=["metric", "group"],
        )
        return pd.DataFrame(whole, index=labels, columns=labels)

    @property
    def treatment_equality(self) -> pd.DataFrame:
        """False negatives for each false positive, by group, by attribute, and of all.

        The interval is that of the share of false negatives among the errors, by Wilson, carried
        over to the ratio.

        Returns
        -------
        pandas.DataFrame
            ``by`` (an attribute, all of them, or "all"), ``group``, ``false_negatives``,
            ``false_positives`` (rows), ``ratio, ci_low, ci_high, note``.

        References
        ----------
        Berk R, Heidari H, Jabbari S, Kearns M, Roth A (2021). Fairness in criminal justice risk
        assessments: the state of the art. Sociological Methods & Research 50, 3-44.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> audit.observed().treatment_equality[["group", "ratio", "ci_low", "ci_high"]].round(2)
          group  ratio  ci_low  ci_high
        0     F   0.46    0.39     0.53
        1     M   0.37    0.31     0.44
        2   all   0.42    0.37     0.47
        """
        groups = self.cohort.groups
        of_errors = RateCells(numerator=((1, 0),), denominator=((1, 0), (0, 1)))
        found = rate_covariance(
            self._moments, groups.target_matrix, [of_errors], self._cluster_scores
        )
        some = self.estimates[0]
        share = RateEstimates(
            "fn_share",
            groups.n_groups,
            found.estimate,
            found.covariance,
            found.kish,
            max_df=some.max_df if found.clusters is None else found.clusters - 1.0,
            n_clusters=some.n_clusters,
        )
        low, high = share.interval("wilson", self.level)
        rows = groups.target_matrix @ self._moments.by_group(self._moments.count).reshape(-1, 4)
        levels = [name for names in groups.level_names for name in names]
        single = [
            (attribute, name)
            for (attribute, _), name in zip(groups.margins, levels, strict=True)
            if len(groups.attributes) > 1
        ]
        keep = [*range(groups.n_groups), *(groups.n_groups + k for k in range(len(single))), -1]
        names = [*groups.names, *(level for _, level in single), "all"]
        by = [" x ".join(groups.attributes)] * groups.n_groups
        with np.errstate(divide="ignore"):
            values = {
                name: (part / (1 - part))[keep]
                for name, part in (("ratio", found.estimate), ("ci_low", low), ("ci_high", high))
            }
        masked = np.zeros(len(rows), dtype=np.int8)
        below, protection = self.cohort.suppress_below or 0, self.cohort.protection
        counts = [rows[:, 2], rows[:, 1]]
        if protection is not None:
            member = groups.target_matrix
            masked = protection.rate_masks(member, KINDS["fn"], KINDS["wrong"])
            shown = (protection.masks(member, KINDS[kind]) for kind in ("fn", "fp"))
            counts = [written(v, m, below) for v, m in zip(counts, shown, strict=True)]
            for part in values.values():
                part[masked[keep] > 0] = np.nan
        undefined = np.isnan(values["ratio"])
        weightless = undefined & (rows[keep, 1] + rows[keep, 2] > 0)
        notes = np.select(
            [weightless, undefined, np.isinf(values["ratio"])],
            ["no errors of weight above 0", "no errors", "no false positives"],
            "",
        )
        notes = np.where(masked[keep] > 0, [why_rate_masked(m, below) for m in masked[keep]], notes)
        return pd.DataFrame(
            {
                "by": [*by, *(attribute for attribute, _ in single), "all"],
                "group": names,
                "false_negatives": count_column(counts[0][keep]),
                "false_positives": count_column(counts[1][keep]),
                **values,
                "note": notes,
            }
        )

    @property
    def compared(self) -> tuple[str, ...]:
        """Metrics that comparisons are about unless told otherwise; none complements another."""
        return PRINTED

    @property
    def judged(self) -> tuple[str, ...]:
        """Metrics whose gaps are shown unless told otherwise: the larger gap of TPR and FPR too."""
        return (*PRINTED, EQUALIZED_ODDS)

    def blocks(self, metric: str) -> list[Block]:
        """What is compared: the levels of each attribute, then the intersectional groups.

        Parameters
        ----------
        metric : str
            One of `metrics`, or "equalized_odds".

        Returns
        -------
        list of Block
            See `RateComparisons.blocks`.
        """
        return super().blocks("tpr" if metric == EQUALIZED_ODDS else metric)

    def _find_gap(self, metric: str, k: int, measure: Measure) -> dict[str, Any]:
        if metric in _COMPLEMENTS:  # groups differ as much in a rate as in its complement
            same = ("ci_low", "ci_high", "expected_if_equal", "p_value")
            other = self._gap_row(_COMPLEMENTS[metric], k, measure)
            row = super()._find_gap(metric, k, measure)
            return {**row, **{name: other[name] for name in same if name in other}}
        if metric != EQUALIZED_ODDS:
            return super()._find_gap(metric, k, measure)
        both = [self.estimates_of(name) for name in ("tpr", "fpr")]
        return equalized_odds_row(both, [self.blocks(e.metric)[k] for e in both], measure)

    def aggregate(self, k: int) -> AggregateIntervals:
        """Summaries of the differences of the k-th metric; a rate and its complement share them.

        Parameters
        ----------
        k : int
            Position in `metrics`.

        Returns
        -------
        AggregateIntervals
        """
        other = _COMPLEMENTS.get(self.metrics[k])
        shared = other is not None and other in self.metrics
        return super().aggregate(self.metrics.index(str(other)) if shared else k)

    @property
    def plotted(self) -> tuple[str, ...]:
        """Metrics that plots show unless told otherwise."""
        return ("tpr", "fpr")

    @property
    def about(self) -> str:
        """What kind of rates these are, for the plots."""
        treated = self.cohort.treatment_name is not None
        return "Observed, treated patients included" if treated else "Observed"

    def _find_limits(self, e: RateEstimates) -> tuple[Array, Array]:
        """With weights or clusters, limits of a binomial count of the effective size.

        For Clopper-Pearson and Agresti-Coull it is that of Korn and Graubard (1998).
        """
        if self.interval == "wilson":
            return e.interval("wilson", self.level)
        from statsmodels.stats.proportion import proportion_confint

        size = np.where(np.isnan(e.estimate), 1.0, e.size)
        if not e.normal:  # the degrees of freedom of Korn and Graubard (1998)
            tail = (1 - self.level) / 2
            student = stdtrit(np.clip(np.minimum(size - 1, e.max_df), 1, None), tail)
            # at a level of next to nothing both quantiles are 0
            ratio = np.divide(ndtri(tail), student, out=np.ones(len(size)), where=student != 0)
            size = size * ratio**2
        successes = np.nan_to_num(e.estimate) * size
        low, high = proportion_confint(
            successes, size, alpha=1 - self.level, method=METHODS[self.interval]
        )
        undefined = np.isnan(e.estimate)
        return np.where(undefined, np.nan, low), np.where(undefined, np.nan, high)

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        facts = [
            *cohort_facts(self.cohort),
            ("intervals", self._intervals()),
            disclosure_fact(self),
        ]
        return text.page(
            "Observed rates by group",
            [
                text.facts(facts),
                group_table(self, self._header(), self._cells),
                margin_table(self, self._header(), self._cells),
                self._differences(),
                self._gaps(),
                notes_lines(self.notes),
            ],
        )

    def _intervals(self) -> str:
        size = "" if self.cohort.weights is None else " on the effective size"
        return f"{100 * self.level:g}%, {self.interval.title()}{size}{cluster_fact(self.cohort)}"

    def _header(self) -> list[str]:
        chosen = [m for m in PRINTED if m in self.metrics]
        return ["n", "events", *(self._labels[m] for m in chosen)]

    def _cells(self, target: int) -> list[str]:
        cells = [text.count(self.counts["n"][target]), text.count(self.counts["events"][target])]
        for metric in PRINTED:
            if metric not in self.metrics:
                continue
            k = self.metrics.index(metric)
            cells.append(rate_text(self, k, target, self.limits(metric)))
        return cells

    def _differences(self) -> list[str]:
        if np.count_nonzero(self.cohort.groups.sizes) < 2:
            return ["one group only: nothing to compare"]
        chosen = [k for k, m in enumerate(self.metrics) if m in PRINTED]
        return [
            *equality_line(self, chosen),
            *aggregate_lines(self, chosen),
        ]

    def _gaps(self) -> list[str]:
        if np.count_nonzero(self.cohort.groups.sizes) < 2:
            return []
        return gap_table(self.gaps(), self._labels)

    @property
    def _labels(self) -> dict[str, str]:
        return {**super()._labels, EQUALIZED_ODDS: "TPR or FPR"}
