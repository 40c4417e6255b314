"""Counterfactual error rates under no treatment: the record of one analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfair.errors import DataError
from cfair.estimators.ipw import ipw_weights
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.outcome import Outcome
from cfair.nuisance.overlap import Overlap
from cfair.nuisance.propensity import Propensity
from cfair.results import text
from cfair.results.deltas import check_deltas
from cfair.results.replicated import ReplicatedResult
from cfair.results.replicated_text import difference_lines, rate_tables, replicate_facts
from cfair.results.report import cluster_fact, cohort_facts, notes_lines, treatment_fact

__all__ = ["COUNTERFACTUAL", "CounterfactualResult", "check_deltas"]

#: The two counterfactual rates, always the first two metrics of the result.
COUNTERFACTUAL: tuple[str, str] = ("cfpr", "cfnr")
_INTERVAL_NAMES = {
    "wilson": "Wilson on the effective size",
    "logit": "normal on the logit scale",
    "plain": "normal",
}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CounterfactualResult(ReplicatedResult):
    """Counterfactual false positive and false negative rates under no treatment.

    ``rates`` holds four metrics: ``cfpr`` and ``cfnr``, which are compared, and beside them the
    observed ``fpr`` and ``fnr`` of all rows.

    Attributes
    ----------
    propensity : Propensity or None
        None where an outcome model alone was used.
    outcome_model : Outcome or None
    folds : Folds or None
        Where models predict out of fold.
    overlap : Overlap or None
        Diagnostics of the weights.

    See Also
    --------
    ReplicatedResult : the other attributes, and what can be asked of replicates.
    """

    estimator: str = "IPW"
    propensity: Propensity | None
    outcome_model: Outcome | None = None
    folds: Folds | None = None
    overlap: Overlap | None

    @property
    def compared(self) -> tuple[str, ...]:
        """Metrics that comparisons and replicates are about: the counterfactual ones."""
        return COUNTERFACTUAL

    @property
    def about(self) -> str:
        """What kind of rates these are, for the plots."""
        return f"Had nobody been treated: {self.estimator}"

    # -- per row --------------------------------------------------------------------------------

    @property
    def propensities(self) -> pd.Series:
        """Truncated propensities on the caller's index."""
        return pd.Series(
            self._fitted_propensity.pi, index=self.cohort.index, name="propensity", copy=True
        )

    @property
    def weights(self) -> pd.Series:
        """Weights (1 - D)/(1 - pi) on the caller's index; 0 for treated rows."""
        assert self.cohort.d is not None
        w = ipw_weights(self.cohort.d, self._fitted_propensity.pi)
        return pd.Series(w, index=self.cohort.index, name="weight")

    @property
    def outcomes(self) -> pd.Series:
        """Probabilities of the event without treatment on the caller's index."""
        if self.outcome_model is None:
            raise DataError(
                "this result has no outcome model. Give outcome_model= to the analysis."
            )
        mu0 = self.outcome_model.mu0
        return pd.Series(mu0, index=self.cohort.index, name="outcome", copy=True)

    @property
    def _fitted_propensity(self) -> Propensity:
        if self.propensity is None:
            raise DataError('this result has no propensity: estimator="plugin" uses none.')
        return self.propensity

    def plot_overlap(self, *, by_group: bool = False, ax: Any = None) -> Any:
        """Propensities of the treated and the untreated.

        Parameters
        ----------
        by_group : bool, default False
            A row per group instead of all rows together.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_overlap

        groups = self.cohort.groups
        assert self.cohort.d is not None
        return plot_overlap(
            self._fitted_propensity.fitted,
            self.cohort.d,
            group=groups.codes if by_group else None,
            names=groups.names if by_group else None,
            truncation=self._fitted_propensity.truncation,
            ax=ax,
        )

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
        kind = _INTERVAL_NAMES[self.interval]
        source = "bootstrap" if self.bootstrapped else "influence functions"
        return [
            *cohort_facts(self.cohort),
            treatment_fact(self.cohort),
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
            rows = f"{cut:,} rows truncated to [{low:g}, {high:g}]"
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
