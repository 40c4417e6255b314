"""Counterfactual error rates of small subgroups, by Bayes' rule and with borrowing."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.common import bootstrapped, check_options, drawn_estimates, permuted
from cfair.analyses.masking import (
    masked_covariance,
    masked_draws,
    masked_overlap,
    masked_propensity,
    masked_rows,
    masked_sums,
    small_subgroup_masks,
    treated_masks,
)
from cfair.analyses.notes import model_notes, overlap_notes, replicate_notes
from cfair.analyses.observed import (
    base_counts,
    care_notes,
    cluster_notes,
    observed_estimates,
    observed_rows,
    rate_note,
    require_clusters,
    targets,
)
from cfair.analyses.replicates import Replicates
from cfair.analyses.small_subgroup_models import (
    FittedSmallSubgroups,
    SmallSubgroupRequest,
    fit_small_subgroups,
)
from cfair.analyses.small_subgroup_notes import (
    FAIRCFINT_SPREAD,
    agreement_notes,
    external_notes,
    method_notes,
    range_notes,
    size_notes,
    truncation_notes,
)
from cfair.cohort import Cohort
from cfair.inference.drawn_estimates import DrawnEstimates
from cfair.inference.estimates import RateEstimates
from cfair.inference.influence import RateCovariance, rate_covariance
from cfair.inference.intervals import EDGE
from cfair.inference.moments import contribution_moments, contribution_scores
from cfair.inference.refit import CounterfactualModels
from cfair.inference.replicates import (
    MIN_REPLICATES,
    RateDraws,
    draws_covariance,
)
from cfair.inference.small_subgroup import ALPHA
from cfair.nuisance.borrowing import brier_score, hand_till_auc
from cfair.nuisance.overlap import overlap
from cfair.nuisance.request import ModelRequest
from cfair.results.rates import MetricRows
from cfair.results.small_subgroups import Borrowed, SmallSubgroupResult
from cfair.roles import Declared

Array = NDArray[np.float64]

_METRICS = ("cfpr", "cfnr")


def small_subgroups(
    cohort: Cohort,
    declared: Declared,
    request: SmallSubgroupRequest,
    replicates: Replicates,
    *,
    level: float = 0.95,
    interval: str = "wilson",
    aggregate_interval: str = "tie-aware",
    truncation: Any = (0.005, 0.995),
    u_delta: float = 0.1,
) -> SmallSubgroupResult:
    """Estimate counterfactual error rates of small subgroups.

    Parameters
    ----------
    cohort : Cohort
        With a treatment.
    declared : Declared
    request : SmallSubgroupRequest
    replicates : Replicates
    level : float, default 0.95
    interval : {"wilson", "logit", "plain"}, default "wilson"
    aggregate_interval : {"tie-aware", "projection"}, default "tie-aware"
    truncation : (float, float) or None, default (0.005, 0.995)
    u_delta : float, default 0.1

    Returns
    -------
    SmallSubgroupResult
    """
    options = check_options(level, interval, aggregate_interval, truncation, u_delta)
    replicates.check_rows(cohort)
    if request.external is not None:
        # the sizes of the groups in the sample do not cancel against external probabilities
        replicates = replace(replicates, of_rows="rows")
    if cohort.cluster is not None:
        require_clusters(cohort)
    began = perf_counter()
    fitted = fit_small_subgroups(
        request,
        cohort,
        declared,
        options.truncation,
        by_share=request.renormalise,  # without, as the R package does it
        labels=replicates.permutes,
        seed=replicates.seed,
        exact=replicates.exact,
    )
    replicates.warn_if_long((perf_counter() - began) * fitted.models.learns)
    boot, boot_alpha = _without_alpha(bootstrapped(fitted.models, cohort, replicates, "all models"))
    null, null_alpha = _without_alpha(permuted(fitted.models, replicates, _relabelled(fitted)))
    kind = None if boot is None else replicates.kind(cohort)
    # faircfint draws fewer rows than there are, and its spread is not a standard error
    spread = None if kind == "faircfint" else boot
    masks = small_subgroup_masks(cohort, (*_METRICS, "fpr", "fnr"))
    boot, null, spread = (masked_draws(draws, masks) for draws in (boot, null, spread))
    joint = masked_covariance(_joint(cohort, fitted, spread), masks, _METRICS)
    drawn = drawn_estimates(joint, cohort, _METRICS, spread, _no_variance(kind))
    estimates: list[RateEstimates] = [*drawn]
    rows = masked_rows(_rows(cohort, drawn, joint), masks, _METRICS, cohort)
    by_weighting = treated_masks(cohort, _METRICS)
    weighted = masked_covariance(_weighted(cohort, fitted), by_weighting, _METRICS)
    observed = observed_estimates(cohort, ["fpr", "fnr"])
    diagnostics = overlap(cohort, fitted.propensity)
    diagnostics = masked_overlap(diagnostics, cohort, fitted.propensity) or diagnostics
    external = fitted.external
    notes = [
        *cohort.notes,
        *fitted.propensity.notes,
        *fitted.outcome.notes,
        *fitted.membership.notes,
        *(() if external is None else external.notes),
        *model_notes(cohort, fitted.propensity),
        *overlap_notes(cohort, fitted.propensity, diagnostics),
        *method_notes(replicates.permutes, kind),
        *agreement_notes(cohort, estimates, weighted),
        *truncation_notes(cohort, fitted.membership, options.truncation[0]),
        *size_notes(cohort, drawn, boot, kind),
        *(() if external is None else external_notes(cohort, external, replicates.permutes)),
        *cluster_notes(cohort),
        *replicate_notes(cohort, replicates),
        *care_notes(cohort, estimates, rows),
        *range_notes(cohort, estimates, rows),
    ]
    return SmallSubgroupResult(
        cohort=cohort,
        estimates=(*estimates, *observed),
        rows=(*rows, *observed_rows(cohort, observed)),
        counts=base_counts(cohort),
        level=options.level,
        interval=options.interval,
        aggregate_interval=options.aggregate_interval,
        seed=replicates.seed,
        notes=tuple(notes),
        estimator="small subgroups by Bayes' rule",
        propensity=masked_propensity(cohort, fitted.propensity),
        outcome_model=fitted.outcome,
        membership_model=fitted.membership,
        membership_text=_membership_text(request.membership),
        p_group=fitted.p_group,
        folds=fitted.folds,
        renormalise=request.renormalise,
        borrowed=_borrowed(fitted, cohort, request, null_alpha, boot_alpha),
        sums=masked_sums(fitted.sums, cohort, masks, _METRICS),
        weighted=weighted,
        joint=joint,
        overlap=diagnostics,
        null=null,
        boot=boot,
        boot_kind=kind,
        u_delta=options.u_delta,
    )


def _membership_text(request: ModelRequest) -> str:
    return request.text if request.learner is not None else f"multinomial logistic {request.text}"


# -- replicates -----------------------------------------------------------------------------------


def _relabelled(fitted: FittedSmallSubgroups) -> str:
    """What is fitted again under other labels, for the print."""
    models = fitted.models
    if models.treatment is None or not models.treatment.uses_groups:
        return "membership"
    if models.one_step:
        return "membership, and the propensity by one Newton step,"
    return "membership and propensity"


def _without_alpha(draws: RateDraws | None) -> tuple[RateDraws | None, Array]:
    """Rates and shares of the external model, apart."""
    if draws is None or ALPHA not in draws.rates:
        return draws, np.zeros(0)
    rates = {name: values for name, values in draws.rates.items() if name != ALPHA}
    return replace(draws, rates=rates), draws.rates[ALPHA][:, 0]


def _borrowed(
    fitted: FittedSmallSubgroups,
    cohort: Cohort,
    request: SmallSubgroupRequest,
    null_alpha: Array,
    boot_alpha: Array,
) -> Borrowed | None:
    if fitted.external is None:
        return None
    measure = brier_score if request.borrow == "brier" else hand_till_auc
    compared = {
        "internal": fitted.membership.p,
        "external": fitted.external.p,
        "mixed": fitted.p_group,
    }
    return Borrowed(
        fitted.external,
        request.borrow,
        fitted.alpha,
        {name: measure(p, cohort.groups.codes, cohort.weights) for name, p in compared.items()},
        null_alpha,
        boot_alpha,
    )


# -- estimates ------------------------------------------------------------------------------------


def _no_variance(kind: str | None) -> str:
    """Why a rate has no variance, if it has none."""
    if kind is None:
        return "no bootstrap, so no standard errors"
    if kind == "faircfint":
        return FAIRCFINT_SPREAD
    return f"defined in fewer than {MIN_REPLICATES} bootstrap replicates"


def _joint(
    cohort: Cohort, fitted: FittedSmallSubgroups, spread: RateDraws | None
) -> RateCovariance:
    """Rates with the covariance that the bootstrap gives, and what stands behind them.

    A row counts as the share of a row that it is expected to be in the denominator.
    """
    membership = targets(cohort)
    estimate = np.concatenate(fitted.sums.rates(membership))
    a = np.ones(cohort.n_used) if cohort.weights is None else cohort.weights
    mu0 = fitted.outcome.mu0
    codes, K = cohort.groups.codes, cohort.groups.n_groups

    def by_target(values: Array) -> Array:
        return np.asarray(membership @ np.bincount(codes, values, K))

    kish, rows = [], []
    for share in (1.0 - mu0, mu0):
        square = by_target(a**2 * share)
        total = by_target(a * share)
        kish.append(np.where(square > 0, total**2 / np.where(square > 0, square, 1.0), 0.0))
        rows.append(by_target(share))
    covariance = draws_covariance(spread, _METRICS, estimate)
    return RateCovariance(estimate, covariance, np.concatenate(kish), np.concatenate(rows))


def _weighted(cohort: Cohort, fitted: FittedSmallSubgroups) -> RateCovariance:
    """The same rates by weighting alone, which need no model of the groups."""
    assert cohort.d is not None
    found = fitted.propensity.binary
    model = CounterfactualModels(
        fitted.models.rows, "ipw", fitted.propensity.pi, truncation=fitted.propensity.truncation
    )
    added = model.contributions(treatment=found)
    K, scores = cohort.groups.n_groups, None
    if cohort.cluster is not None:
        scores = contribution_scores(added, K, cohort.weighted_cluster, cohort.weights)
    moments = contribution_moments(added, K, cohort.weights)
    return rate_covariance(moments, targets(cohort), cluster_scores=scores)


def _rows(
    cohort: Cohort, estimates: list[DrawnEstimates], joint: RateCovariance
) -> list[MetricRows]:
    n = targets(cohort) @ cohort.groups.sizes
    T = len(n)
    result = []
    for m, (e, label) in enumerate(zip(estimates, ("cFPR", "cFNR"), strict=True)):
        # S is the same in all rows: there are no shares of the flagged, or of the others
        whole = "no row is flagged" if m == 0 else "every row is flagged"
        none = bool((cohort.s == m).all())
        notes = []
        for t in range(T):
            reason = "no rows" if n[t] == 0 else whole if none else "a share of 0 over 0"
            parts = [
                "above 1" if e.estimate[t] > 1 + EDGE else "",
                e.no_variance
                if e.unknown[t]
                else rate_note(e.estimate[t], e.size[t], n[t], reason),
            ]
            notes.append("; ".join(part for part in parts if part))
        result.append(MetricRows(label, joint.rows[m * T : (m + 1) * T], tuple(notes)))
    return result
