"""Counterfactual error rates of small subgroups: the record of one analysis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.estimators.ipw import ipw_weights
from cfair.estimators.small_subgroup import SmallSubgroupSums
from cfair.nuisance.borrowing import CRITERIA
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.external import External
from cfair.nuisance.membership import MembershipFit
from cfair.nuisance.overlap import Overlap
from cfair.nuisance.propensity import Propensity
from cfair.nuisance.small_outcome import CallOutcome
from cfair.results import text
from cfair.results.replicated import ReplicatedResult
from cfair.results.replicated_text import difference_lines, rate_tables, replicate_facts
from cfair.results.report import cohort_facts, notes_lines, treatment_fact

Array = NDArray[np.float64]

_INTERVAL_NAMES = {
    "wilson": "Wilson on the effective size",
    "logit": "normal on the logit scale",
    "plain": "normal",
}


@dataclass(frozen=True, eq=False)
class Borrowed:
    """What was borrowed from external information.

    Attributes
    ----------
    external : External
    borrow : {"brier", "auc"}
        What alpha was chosen by.
    alpha : float
        Share of the external probabilities.
    criterion : dict of str to float
        The criterion on the rows of the analysis of the internal, the external and the mixed
        probabilities.
    null_alpha, boot_alpha : (R,) arrays
        Alpha in the replicates; empty without.
    """

    external: External
    borrow: str
    alpha: float
    criterion: dict[str, float]
    null_alpha: Array
    boot_alpha: Array


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SmallSubgroupResult(ReplicatedResult):
    """Counterfactual error rates of small subgroups, by Bayes' rule from rates over all rows.

    ``rates`` holds four metrics: ``cfpr`` and ``cfnr``, which are compared, and beside them the
    observed ``fpr`` and ``fnr`` of all rows. The ``denominator`` of a counterfactual rate is the
    number of its rows expected to be free of the event, or to have it, without treatment.

    Attributes
    ----------
    propensity : Propensity
    outcome_model : CallOutcome
        Probabilities of the event without treatment, with and without the call.
    membership_fit : MembershipFit
        Of the internal model.
    membership_text : str
    p_group : (n, K) array
        Probabilities of the groups that were used: internal, or a mixture with external ones.
    folds : Folds
        Of the membership model, and of learners.
    renormalise : bool
        Whether probabilities were brought back to a sum of 1 after cutting.
    borrowed : Borrowed or None
    sums : SmallSubgroupSums
        Overall rates and shares that the rates are made of.
    overlap : Overlap
        Diagnostics of the weights.

    See Also
    --------
    ReplicatedResult : the other attributes, and what can be asked of replicates.
    """

    estimator: str = "small subgroups"
    propensity: Propensity
    outcome_model: CallOutcome
    membership_fit: MembershipFit
    membership_text: str
    p_group: Array
    folds: Folds
    renormalise: bool
    borrowed: Borrowed | None
    sums: SmallSubgroupSums
    overlap: Overlap

    @property
    def compared(self) -> tuple[str, ...]:
        """Metrics that comparisons and replicates are about: the counterfactual ones."""
        return ("cfpr", "cfnr")

    @property
    def about(self) -> str:
        """What kind of rates these are, for the plots."""
        return f"Had nobody been treated: {self.estimator}"

    @property
    def alpha(self) -> float:
        """Share of the external probabilities; NaN without external information."""
        return float("nan") if self.borrowed is None else self.borrowed.alpha

    # -- per row --------------------------------------------------------------------------------

    @property
    def membership(self) -> pd.DataFrame:
        """Probabilities of the groups on the caller's index, as they were used."""
        return pd.DataFrame(
            self.p_group, index=self.cohort.index, columns=list(self.cohort.groups.names), copy=True
        )

    @property
    def propensities(self) -> pd.Series:
        """Truncated propensities on the caller's index."""
        return pd.Series(self.propensity.pi, index=self.cohort.index, name="propensity", copy=True)

    @property
    def weights(self) -> pd.Series:
        """Weights (1 - D)/(1 - pi) on the caller's index; 0 for treated rows."""
        assert self.cohort.d is not None
        w = ipw_weights(self.cohort.d, self.propensity.pi)
        return pd.Series(w, index=self.cohort.index, name="weight")

    @property
    def shares(self) -> pd.DataFrame:
        """What the rates are made of, a row per metric and group.

        ``overall`` is the rate over all rows, ``among_errors`` the group's share of the wrong
        calls, ``among_all`` its share of all who would (cFNR) or would not (cFPR) have the event
        without treatment; the estimate is ``overall * among_errors / among_all``.
        """
        names = list(self.cohort.groups.names)
        parts = [
            pd.DataFrame(
                {
                    "metric": metric,
                    "group": names,
                    "overall": self.sums.overall[m],
                    "among_errors": self.sums.numerator[m],
                    "among_all": self.sums.denominator[m],
                }
            )
            for m, metric in enumerate(self.compared)
        ]
        return pd.concat(parts, ignore_index=True)

    # -- print ----------------------------------------------------------------------------------

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        return text.page(
            f"Counterfactual error rates under no treatment, {self.estimator}",
            [
                text.facts(self._facts(), indent=15),
                *rate_tables(self),
                difference_lines(self),
                notes_lines(self.notes),
            ],
        )

    def _facts(self) -> list[tuple[str, str]]:
        return [
            *cohort_facts(self.cohort),
            treatment_fact(self.cohort),
            *self._model_facts(),
            *self._borrowing_facts(),
            ("intervals", self._intervals()),
            *replicate_facts(self),
        ]

    def _intervals(self) -> str:
        if self.boot is None:
            return "none: they come from the bootstrap, and there is none (n_boot=200, say)"
        if self.boot_kind == "faircfint":
            return "none: the spread of faircfint's draws is no standard error"
        clusters = "" if self.cohort.cluster is None else f"; clusters: {self.cohort.cluster_name}"
        return (
            f"{100 * self.level:g}%, bootstrap ({self.boot.n_replicates:,} replicates), "
            f"{_INTERVAL_NAMES[self.interval]}{clusters}"
        )

    def _model_facts(self) -> list[tuple[str, str]]:
        low, high = self.propensity.truncation
        limits = f"cut to [{low:g}, {high:g}]"
        cut = int(np.count_nonzero(self.propensity.truncated))
        call = f"{self.cohort.treatment_name}, without and with S"
        m = self.membership_fit
        change = (
            f", then brought back to a sum of 1 (changes up to {m.largest_change:.2g})"
            if self.renormalise
            else ", not brought back to a sum of 1"
        )
        how = "drawn" if self.folds.drawn else "given"
        note = f", {self.folds.note}" if self.folds.note else ""
        return [
            ("propensity", f"{self.propensity.text};  {cut:,} rows {limits}"),
            (
                "outcome model",
                f"{self.outcome_model.text}, and {call};  fitted on all rows, with treatment set "
                f"to none;  {self.outcome_model.n_truncated:,} rows {limits}",
            ),
            ("membership", f"{self.membership_text};  {m.n_truncated:,} rows {limits}{change}"),
            ("folds", f"{self.folds.n_folds} {how}{note}; membership is predicted out of fold"),
        ]

    def _borrowing_facts(self) -> list[tuple[str, str]]:
        if self.borrowed is None:
            return []
        b = self.borrowed
        size = b.external.sizes
        rows = "" if size is None else f";  {int(size.sum()):,} external rows"
        scaled = (
            ", scaled in fitting only, as faircfint does"
            if b.external.scale == "faircfint" and size is not None
            else ""
        )
        values = ", ".join(f"{value:.4f} {name}" for name, value in b.criterion.items())
        return [
            ("external", f"{b.external.text}{rows}{scaled}"),
            ("borrowed", f"alpha = {b.alpha:.3f}, by the {CRITERIA[b.borrow]} ({values})"),
        ]
