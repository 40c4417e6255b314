"""A model that was fitted on some rows and audited on others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.results import text
from cfair.results.observed import ObservedResult
from cfair.results.printed import Printed
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

if TYPE_CHECKING:
    from cfair.audit import Audit
    from cfair.results.performance import PerformanceResult

#: Metrics in the printed table; `FitAndAuditResult.observed` has all.
PRINTED: tuple[str, ...] = ("tpr", "fpr", "accuracy")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FitAndAuditResult(Printed):
    """A fitted model, the risks it gives to held-out rows, and their audit.

    Attributes
    ----------
    audit : Audit
        Of the held-out rows, with all columns of the table and the fitted risk as score: for
        ``counterfactual()`` and whatever else an audit can be asked.
    observed : ObservedResult
        Rates and gaps on the held-out rows.
    model : scikit-learn pipeline or classifier
        Fitted; it takes a frame of the features, numbers as floats and categories as text.
    risk : pandas.Series
        Of the held-out rows, on the caller's index.
    train_rows, test_rows : (n,) arrays of int
        Positions in the caller's table, or each in its own of two tables.
    copies : (n_train,) array of int
        How often the model was fitted on each training row: more than once where upsampling
        repeated it, never where it has weight 0.
    imputed : pandas.DataFrame
        A row per feature with missing values: ``column``, ``value`` (what was filled in; None if a
        pipeline saw the missing value), and ``train`` and ``test``, the numbers of rows.
    facts : tuple of (str, str)
        What was done, as it is printed.
    notes : tuple of str
        What to be careful about.
    """

    audit: Audit
    observed: ObservedResult
    model: Any
    risk: pd.Series
    train_rows: NDArray[np.intp]
    test_rows: NDArray[np.intp]
    copies: NDArray[np.intp]
    imputed: pd.DataFrame
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for values in (self.train_rows, self.test_rows, self.copies):
            values.setflags(write=False)

    @property
    def rates(self) -> pd.DataFrame:
        """Rates of the held-out rows by group: see `RatesResult.rates`."""
        return self.observed.rates

    @property
    def marginals(self) -> pd.DataFrame:
        """Rates of the held-out rows by single attribute: see `RatesResult.marginals`."""
        return self.observed.marginals

    @property
    def disparities(self) -> pd.DataFrame:
        """Summaries of the differences between groups: see `RatesResult.disparities`."""
        return self.observed.disparities

    @cached_property
    def performance(self) -> PerformanceResult:
        """Discrimination and calibration on the held-out rows: `Audit.performance`."""
        return self.audit.performance(level=self.observed.level)

    def to_frame(self) -> pd.DataFrame:
        """The rates by group as a tidy frame."""
        return self.rates

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        held_out, *rest = cohort_facts(self.observed.cohort)
        level = f"{100 * self.observed.level:g}%, Wilson, AUC DeLong, of this model on these rows"
        facts = [
            *self.facts,
            ("held out", held_out[1]),
            *rest,
            disclosure_fact(self.observed),
            ("intervals", level + cluster_fact(self.observed.cohort)),
        ]
        return text.page(
            "Fitted risk model, audited on held-out rows",
            [
                text.facts(facts),
                group_table(self.observed, self._header(), self._cells),
                margin_table(self.observed, self._header(), self._cells),
                self._differences(),
                notes_lines(self.notes),
            ],
        )

    def _header(self) -> list[str]:
        labels = [self.observed.rows[self.observed.metrics.index(m)].label for m in PRINTED]
        return ["n", "events", "AUC", *labels]

    def _cells(self, target: int) -> list[str]:
        result = self.observed
        cells = [text.count(result.counts[name][target]) for name in ("n", "events")]
        for source, metric in ((self.performance, "auc"), *((result, m) for m in PRINTED)):
            # the interval of accuracy would make the table too wide to read
            limits = None if metric == "accuracy" else source.limits(metric)
            cells.append(rate_text(source, source.metrics.index(metric), target, limits))
        return cells

    def _differences(self) -> list[str]:
        if np.count_nonzero(self.observed.cohort.groups.sizes) < 2:
            return ["one group only: nothing to compare"]
        chosen = [self.observed.metrics.index(m) for m in PRINTED]
        return [
            *equality_line(self.observed, chosen),
            *aggregate_lines(self.observed, chosen),
            *largest_gap_lines(self.observed, chosen),
        ]
