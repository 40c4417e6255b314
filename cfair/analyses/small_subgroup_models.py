"""What an analysis of small subgroups was asked to fit, and the fitted models behind its rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.observed import targets
from cfair.cohort import Cohort
from cfair.estimators.small_subgroup import SmallSubgroupSums
from cfair.inference.rows import Rows, ranks
from cfair.inference.small_subgroup import Borrowing, Probabilities, SmallSubgroupModels
from cfair.nuisance.borrowing import CRITERIA
from cfair.nuisance.crossfit import Folds, FoldsRequest, make_folds, read_folds
from cfair.nuisance.external import External, external_probabilities
from cfair.nuisance.external_request import ExternalRequest, read_external
from cfair.nuisance.membership import MembershipFit, MembershipModel, cut, membership_model
from cfair.nuisance.order import content_numbers, content_order
from cfair.nuisance.propensity import (
    Propensity,
    estimate_propensity,
    require_finite_weights,
    require_treatment,
)
from cfair.nuisance.request import ModelRequest, read_model
from cfair.nuisance.small_outcome import CallOutcome, estimate_call_outcome
from cfair.options import check_option
from cfair.roles import Declared

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SmallSubgroupRequest:
    """What is to be fitted, read before the rows of the analysis are chosen.

    Attributes
    ----------
    propensity, outcome, membership : ModelRequest
    folds : FoldsRequest
    external : ExternalRequest or None
    borrow : {"brier", "auc"}
    renormalise : bool
    """

    propensity: ModelRequest
    outcome: ModelRequest
    membership: ModelRequest
    folds: FoldsRequest
    external: ExternalRequest | None
    borrow: str
    renormalise: bool

    @property
    def _models(self) -> tuple[ModelRequest, ...]:
        return (self.propensity, self.outcome, self.membership)

    @property
    def columns(self) -> list[str]:
        """Columns that the models use."""
        found = [column for m in self._models for column in m.columns]
        return list(dict.fromkeys([*found, *(self.external.columns if self.external else ())]))

    @property
    def missing(self) -> Mapping[str, NDArray[np.bool_]]:
        """Rows without a value in what was given beside the table."""
        masks = {k: mask for m in self._models for k, mask in m.missing.items()}
        return {**masks, **self.folds.missing}


def read_small_subgroups(
    declared: Declared,
    propensity: Any,
    outcome_model: Any,
    membership: Any,
    *,
    external: Any = None,
    external_membership: Any = None,
    borrow: str = "brier",
    scale_external: str = "consistent",
    external_weights: Any = None,
    renormalise: bool = True,
    folds: Any = 5,
) -> SmallSubgroupRequest:
    """Understand what the analysis is asked to fit.

    Parameters
    ----------
    declared : Declared
    propensity, outcome_model, membership, external, external_membership, borrow, scale_external, \
external_weights, renormalise, folds
        As the user gave them.

    Returns
    -------
    SmallSubgroupRequest

    Raises
    ------
    DataError, FormulaError, ValueError
    """
    check_option("borrow", borrow, CRITERIA)
    how = read_folds(folds, declared)
    if how is None:
        raise ValueError("small_subgroups predicts membership out of fold: give folds=5, say.")
    member = read_model(membership, declared, what="membership")
    return SmallSubgroupRequest(
        read_model(propensity, declared, what="propensity"),
        read_model(outcome_model, declared, what="outcome model"),
        member,
        how,
        read_external(
            external, declared, member, external_membership, scale_external, external_weights
        ),
        borrow,
        bool(renormalise),
    )


@dataclass(frozen=True, eq=False)
class FittedSmallSubgroups:
    """The models behind the rates, fitted to all rows.

    Attributes
    ----------
    propensity : Propensity
    outcome : CallOutcome
    membership : MembershipFit
    folds : Folds
    external : External or None
    models : SmallSubgroupModels
        What replicates fit again.
    sums : SmallSubgroupSums
    alpha : float
        NaN without external information.
    p_group : (n, K) array
    """

    propensity: Propensity
    outcome: CallOutcome
    membership: MembershipFit
    folds: Folds
    external: External | None
    models: SmallSubgroupModels
    sums: SmallSubgroupSums
    alpha: float
    p_group: Array


def fit_small_subgroups(
    request: SmallSubgroupRequest,
    cohort: Cohort,
    declared: Declared,
    truncation: tuple[float, float] = (0.005, 0.995),
    *,
    by_share: bool = False,
    labels: bool = True,
    seed: int = 0,
    exact: bool = False,
) -> FittedSmallSubgroups:
    """Fit the models of small subgroups to all rows.

    Parameters
    ----------
    request : SmallSubgroupRequest
    cohort : Cohort
        With a treatment.
    declared : Declared
    truncation : (float, float), default (0.005, 0.995)
        Of all probabilities.
    by_share : bool, default False
        Whether rare groups have lower limits of their own, as in `membership_model`.
    labels : bool, default True
        Whether rows are to be put into other groups later.
    seed : int, default 0
    exact : bool, default False
        Whether replicates take no shortcut.

    Returns
    -------
    FittedSmallSubgroups
    """
    d = require_treatment(cohort)
    folds = make_folds(request.folds, cohort, seed)
    assert folds is not None
    learns = request.propensity.learner is not None
    membership = membership_model(
        request.membership,
        cohort,
        folds,
        seed=seed,
        truncation=truncation,
        by_share=by_share,
        renormalise=request.renormalise,
    )
    propensity = estimate_propensity(
        request.propensity, cohort, truncation, folds if learns else None, seed=seed
    )
    require_finite_weights(cohort, propensity)
    outcome = estimate_call_outcome(request.outcome, cohort, folds, truncation, seed=seed)
    external, borrowing = None, None
    if request.external is not None:
        external = external_probabilities(
            request.external, cohort, declared, truncation, request.renormalise
        )
        if by_share:
            external = _cut_alike(external, membership, cohort)
        as_r = request.external.scale == "faircfint"
        borrowing = Borrowing(external.p, request.borrow, as_r)
    groups = cohort.groups
    fits = (propensity.fit, *(found.fit for found in outcome.fits))
    models = SmallSubgroupModels(
        Rows(cohort.y, cohort.s, d, groups.codes, groups.n_groups, cohort.weights),
        targets(cohort),
        Probabilities(propensity.pi, outcome.mu0, outcome.mu0_s1, outcome.mu0_s0),
        propensity.model(cohort, labels=labels),
        outcome.plain,
        outcome.with_call,
        membership,
        borrowing,
        truncation,
        content_numbers(cohort),
        ranks(content_order(cohort)).astype(np.float64),
        [None if fit is None else fit.coef for fit in fits],
        exact,
    )
    fit = membership.fit()
    known = models.probabilities
    sums, alpha, p_group = models.sums(known, fit.p, groups.codes, cohort.weights)
    return FittedSmallSubgroups(
        propensity, outcome, fit, folds, external, models, sums, alpha, p_group
    )


def _cut_alike(external: External, internal: MembershipModel, cohort: Cohort) -> External:
    """External probabilities between the limits of the internal ones, with which they are mixed."""
    raw, (lower, high) = external.raw.T, internal.limits
    present = cohort.groups.sizes > 0
    beyond = ((raw < lower) | (raw > high))[present]
    return replace(
        external,
        p=cut(raw, present, internal.limits, internal.renormalise).T,
        n_truncated=int(beyond.any(axis=0).sum()),
    )
