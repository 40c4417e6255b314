"""Counterfactual error rates under no treatment: the record of one analysis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cfair.errors import DataError
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.outcome import Outcome
from cfair.results import text
from cfair.results.deltas import check_deltas
from cfair.results.replicated_text import difference_lines, rate_tables, replicate_facts
from cfair.results.report import (
    cluster_fact,
    cohort_facts,
    disclosure_fact,
    notes_lines,
    rows_told,
    treatment_fact,
)
from cfair.results.treated import COUNTERFACTUAL, INTERVAL_NAMES, TreatedResult

__all__ = ["COUNTERFACTUAL", "CounterfactualResult", "check_deltas"]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CounterfactualResult(TreatedResult):
    """Rates under no treatment: weighted, doubly robust, or by an outcome model.

    Attributes
    ----------
    outcome_model : Outcome or None
    folds : Folds or None
        Where models predict out of fold.

    See Also
    --------
    TreatedResult : the propensity and its overlap.
    ReplicatedResult : the other attributes, and what can be asked of replicates.
    """

    estimator: str = "IPW"
    outcome_model: Outcome | None = None
    folds: Folds | None = None

    @property
    def outcomes(self) -> pd.Series:
        """Probabilities of the event without treatment on the caller's index."""
        if self.outcome_model is None:
            raise DataError(
                "this result has no outcome model. Give outcome_model= to the analysis."
            )
        mu0 = self.outcome_model.mu0
        return pd.Series(mu0, index=self.cohort.index, name="outcome", copy=True)

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        return text.page(
            f"Counterfactual error rates under no treatment, {self.estimator}",
            [
                text.facts(self._facts(), indent=13 if self.outcome_model is None else 15),
                *rate_tables(self),
                difference_lines(self),
                notes_lines(self.notes),
            ],
        )

    def _facts(self) -> list[tuple[str, str]]:
        kind = INTERVAL_NAMES[self.interval]
        source = "bootstrap" if self.bootstrapped else "influence functions"
        return [
            *cohort_facts(self.cohort),
            treatment_fact(self.cohort),
            disclosure_fact(self),
            *self._model_facts(),
            ("intervals", f"{100 * self.level:g}%, {source}, {kind}{cluster_fact(self.cohort)}"),
            *replicate_facts(self),
        ]

    @property
    def bootstrapped(self) -> bool:
        """Whether standard errors are from the bootstrap."""
        return self.propensity is None and self.folds is not None

    def _model_facts(self) -> list[tuple[str, str]]:
        facts = []
        if self.propensity is not None:
            low, high = self.propensity.truncation
            cut = int(np.count_nonzero(self.propensity.truncated))
            rows = f"{rows_told(cut, self.cohort)} truncated to [{low:g}, {high:g}]"
            facts.append(("propensity", f"{self.propensity.text};  {rows}"))
        model = self.outcome_model
        if model is not None:
            where = f";  fitted on {model.trained_on}" if model.trained_on else ""
            facts.append(("outcome model", f"{model.text}{where}"))
        if self.folds is not None:
            how = "drawn" if self.folds.drawn else "given"
            note = f", {self.folds.note}" if self.folds.note else ""
            facts.append(("folds", f"{self.folds.n_folds} {how}{note}; models predict out of fold"))
        return facts
