"""Error rates under an intervention on group membership: the record of one analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.inference.association import Association
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.under_groups import GroupMembership, OutcomeUnderGroups
from cfair.results import text
from cfair.results.replicated import ReplicatedResult
from cfair.results.replicated_text import difference_lines, rate_tables, replicate_facts
from cfair.results.report import cluster_fact, cohort_facts, disclosure_fact, notes_lines, rows_told

Array = NDArray[np.float64]

#: The rates under each group, always the first two metrics of the result.
INTERVENED: tuple[str, str] = ("cfpr", "cfnr")
#: What they are called in print.
LABELS: dict[str, str] = {"cfpr": "FPR under A := g", "cfnr": "FNR under A := g"}
_INTERVALS = {
    "wilson": "Wilson on the effective size",
    "logit": "normal on the logit scale",
    "plain": "normal",
}
_NAMES = {"dr": "doubly robust", "sr": "single robust: the outcome model alone"}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class GroupInterventionResult(ReplicatedResult):
    """False positive and false negative rates with the group of every row set to each group.

    ``rates`` holds four metrics: ``cfpr`` and ``cfnr`` with everybody put into the group, which are
    compared, and beside them the observed ``fpr`` and ``fnr`` of the group's own rows under the
    same rule. The column ``estimate_sr`` (or ``estimate_dr``) is the other estimator.

    Attributes
    ----------
    kind : {"dr", "sr"}
    rule : str
        How a prediction comes about.
    cutoff : float
        A score at or above it is a positive prediction.
    outcome_model : OutcomeUnderGroups
        Probabilities of the event under every group.
    membership_model : GroupMembership or None
        Probabilities of membership.
    score_table : (n, K) array
        Scores of the rule, see `scores`.
    folds : Folds or None
        None if all probabilities were given.
    truncation : (float, float)
    n_truncated : int
        Rows whose probability of their own group was cut.
    association : Association
        Of group and outcome: Cramer's V, and the p-value of the chi-square test.
    other : (2K,) array or None
        Rates of the other estimator.

    See Also
    --------
    ReplicatedResult : the other attributes, and what can be asked of replicates.
    """

    estimator: str = "doubly robust"
    kind: str = "dr"
    rule: str
    cutoff: float
    outcome_model: OutcomeUnderGroups
    membership_model: GroupMembership | None = None
    score_table: Array
    folds: Folds | None = None
    truncation: tuple[float, float] = (0.005, 0.995)
    n_truncated: int = 0
    association: Association
    other: Array | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.score_table.setflags(write=False)

    @property
    def compared(self) -> tuple[str, ...]:
        """Metrics that comparisons and replicates are about: those under each group."""
        return INTERVENED

    @property
    def about(self) -> str:
        """What kind of rates these are, for the plots."""
        return f"Had everybody been in the group: {self.estimator}"

    @property
    def bootstrapped(self) -> bool:
        """Whether standard errors are from the bootstrap."""
        return self.kind == "sr" and self.outcome_model.learned

    def _more_columns(self, metric: str, targets: slice) -> dict[str, Any]:
        columns = super()._more_columns(metric, targets)
        if self.other is None:
            return columns
        K = self.cohort.groups.n_groups
        values = np.full(K, np.nan)
        if metric in INTERVENED:
            m = INTERVENED.index(metric)
            values = self.other[m * K : (m + 1) * K]
        return {"estimate_sr" if self.kind == "dr" else "estimate_dr": values[targets], **columns}

    # -- per row --------------------------------------------------------------------------------

    @property
    def mu(self) -> pd.DataFrame:
        """Probability of the event of every row under every group, on the caller's index."""
        return self._by_group(self.outcome_model.mu)

    @property
    def scores(self) -> pd.DataFrame:
        """Score of every row under every group; predictions are ``scores >= cutoff``."""
        return self._by_group(self.score_table)

    @property
    def p_group(self) -> Array | None:
        """Probabilities (n, K) of the groups given the covariates, cut to the limits.

        None without a membership model.
        """
        return None if self.membership_model is None else self.membership_model.p

    @property
    def memberships(self) -> pd.DataFrame:
        """Probabilities of the groups given the covariates on the caller's index, as used."""
        if self.p_group is None:
            raise DataError(
                "this result has no membership model. Give membership= to the analysis."
            )
        return self._by_group(self.p_group)

    def _by_group(self, values: Array) -> pd.DataFrame:
        names = list(self.cohort.groups.names)
        frame = pd.DataFrame(values.copy(), index=self.cohort.index, columns=names)
        empty = [name for name, n in zip(names, self.cohort.groups.sizes, strict=True) if n == 0]
        frame[empty] = np.nan
        return frame

    # -- text -----------------------------------------------------------------------------------

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        return text.page(
            f"Error rates with everybody put into group g (A := g), {_NAMES[self.kind]}",
            [
                text.facts(self._facts(), indent=15),
                *rate_tables(self),
                difference_lines(self),
                notes_lines(self.notes),
            ],
        )

    def _facts(self) -> list[tuple[str, str]]:
        clusters = cluster_fact(self.cohort)
        source = "bootstrap" if self.bootstrapped else "influence functions"
        facts = dict(cohort_facts(self.cohort))
        facts["flagged"] = self.rule
        return [
            *facts.items(),
            disclosure_fact(self),
            ("outcome model", self.outcome_model.text),
            ("membership", self._membership_fact()),
            ("folds", self._folds_fact()),
            (
                "intervals",
                f"{100 * self.level:g}%, {source}, {_INTERVALS[self.interval]}{clusters}",
            ),
            *replicate_facts(self),
        ]

    def _membership_fact(self) -> str:
        if self.membership_model is None:
            return ""
        low, high = self.truncation
        cut = f"{rows_told(self.n_truncated, self.cohort)} truncated to [{low:g}, {high:g}]"
        return f"{self.membership_model.text};  {cut} in their own group"

    def _folds_fact(self) -> str:
        if self.folds is None:
            return ""
        how = "drawn" if self.folds.drawn else "given"
        note = f", {self.folds.note}" if self.folds.note else ""
        return f"{self.folds.n_folds} {how}{note}; models predict out of fold"
