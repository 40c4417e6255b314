"""Counterfactual error rates of small subgroups: the record of one analysis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.disclosure import MASKED
from cfair.estimators.small_subgroup import SmallSubgroupSums
from cfair.inference.influence import RateCovariance
from cfair.inference.replicates import MIN_REPLICATES
from cfair.nuisance.borrowing import CRITERIA
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.external import External
from cfair.nuisance.membership import MembershipFit
from cfair.nuisance.small_outcome import CallOutcome
from cfair.results import text
from cfair.results.replicated_text import difference_lines, rate_tables, replicate_facts
from cfair.results.report import (
    cluster_fact,
    cohort_facts,
    disclosure_fact,
    notes_lines,
    rows_told,
    treatment_fact,
)
from cfair.results.treated import INTERVAL_NAMES, TreatedResult

Array = NDArray[np.float64]


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
class SmallSubgroupResult(TreatedResult):
    """Counterfactual error rates of small subgroups, by Bayes' rule from rates over all rows.

    The ``denominator`` of a counterfactual rate is the number of its rows expected to be free of
    the event, or to have it, without treatment. ``estimate_ipw`` and ``se_ipw`` beside each rate
    are those of weighting alone.

    Attributes
    ----------
    outcome_model : CallOutcome
        Probabilities of the event without treatment, with and without the call.
    membership_model : MembershipFit
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
    weighted : RateCovariance
        The rates by weighting alone, with their covariance.

    See Also
    --------
    TreatedResult : the propensity and its overlap.
    ReplicatedResult : the other attributes, and what can be asked of replicates.
    """

    estimator: str = "small subgroups"
    outcome_model: CallOutcome
    membership_model: MembershipFit
    membership_text: str
    p_group: Array
    folds: Folds
    renormalise: bool
    borrowed: Borrowed | None
    sums: SmallSubgroupSums
    weighted: RateCovariance

    @property
    def bootstrapped(self) -> bool:
        """Whether standard errors are from the bootstrap: always, if there are any."""
        return True

    @property
    def truncation(self) -> tuple[float, float]:
        """Limits of all probabilities."""
        return self._fitted_propensity.truncation

    def _more_columns(self, metric: str, targets: slice) -> dict[str, Array]:
        T = len(self.estimates[0].estimate)
        columns = {name: np.full(T, np.nan) for name in ("estimate_ipw", "se_ipw")}
        if metric in self.compared:
            at = slice(self.compared.index(metric) * T, None)
            columns["estimate_ipw"] = self.weighted.estimate[at][:T]
            variance = np.diag(self.weighted.covariance)[at][:T]
            columns["se_ipw"] = np.sqrt(np.maximum(variance, 0.0))
        own = {name: values[targets] for name, values in columns.items()}
        return {**own, **super()._more_columns(metric, targets)}

    @property
    def alpha(self) -> float:
        """Share of the external probabilities; NaN without external information."""
        return float("nan") if self.borrowed is None else self.borrowed.alpha

    # -- per row --------------------------------------------------------------------------------

    @property
    def memberships(self) -> pd.DataFrame:
        """Probabilities of the groups on the caller's index, as they were used."""
        return pd.DataFrame(
            self.p_group, index=self.cohort.index, columns=list(self.cohort.groups.names), copy=True
        )

    @property
    def shares(self) -> pd.DataFrame:
        """What the rates are made of, a row per metric and group.

        ``overall`` is the rate over all rows, ``among_errors`` the group's share of the wrong
        calls, ``among_all`` its share of all who would (cFNR) or would not (cFPR) have the event
        without treatment; the estimate is ``overall * among_errors / among_all``.
        """
        names = list(self.cohort.groups.names)
        masked = [[note.startswith(MASKED) for note in r.notes[: len(names)]] for r in self.rows]
        parts = [
            pd.DataFrame(
                {
                    "metric": metric,
                    "group": names,
                    "overall": self.sums.overall[m],
                    "among_errors": np.where(masked[m], np.nan, self.sums.numerator[m]),
                    "among_all": np.where(masked[m], np.nan, self.sums.denominator[m]),
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
            disclosure_fact(self),
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
        n = self.boot.n_replicates
        if n < MIN_REPLICATES:
            return f"none: {n} replicates are fewer than the {MIN_REPLICATES} that a variance needs"
        return (
            f"{100 * self.level:g}%, bootstrap ({n:,} replicates), "
            f"{INTERVAL_NAMES[self.interval]}{cluster_fact(self.cohort)}"
        )

    def _model_facts(self) -> list[tuple[str, str]]:
        propensity = self._fitted_propensity
        low, high = propensity.truncation
        limits = f"truncated to [{low:g}, {high:g}]"
        cut = int(np.count_nonzero(propensity.truncated))
        of_outcome = rows_told(self.outcome_model.n_truncated, self.cohort)
        call = f"{self.cohort.treatment_name}, without and with S"
        m = self.membership_model
        of_groups = rows_told(m.n_truncated, self.cohort)
        change = (
            f", then brought back to a sum of 1 (changes up to {m.largest_change:.2g})"
            if self.renormalise
            else ", not brought back to a sum of 1"
        )
        rare = ", lower for rare groups" * bool((m.lower < low).any())
        how = "drawn" if self.folds.drawn else "given"
        note = f", {self.folds.note}" if self.folds.note else ""
        return [
            ("propensity", f"{propensity.text};  {rows_told(cut, self.cohort)} {limits}"),
            (
                "outcome model",
                f"{self.outcome_model.text}, and {call};  fitted on all rows, with treatment set "
                f"to none;  {of_outcome} {limits}",
            ),
            ("membership", f"{self.membership_text};  {of_groups} {limits}{rare}{change}"),
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
