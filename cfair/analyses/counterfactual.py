"""Counterfactual error rates under no treatment, with everything that says how sure they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.common import check_options, drawn_estimates, influence_estimates
from cfair.analyses.masking import (
    masked_covariance,
    masked_draws,
    masked_overlap,
    masked_propensity,
    masked_rows,
    treated_masks,
    untreated,
)
from cfair.analyses.notes import (
    inference_notes,
    model_notes,
    overlap_notes,
    range_notes,
    replicate_notes,
)
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
from cfair.analyses.treatment import CounterfactualRequest, FittedModels, fit_models
from cfair.cohort import Cohort
from cfair.disclosure import KINDS
from cfair.inference.bootstrap import BootstrapDraws, bootstrap_draws
from cfair.inference.drawn_estimates import DrawnEstimates
from cfair.inference.estimates import RateEstimates
from cfair.inference.influence import RateCovariance, rate_covariance
from cfair.inference.moments import CellMoments, contribution_moments, contribution_scores
from cfair.inference.permutation import PermutationNull, permutation_null
from cfair.inference.replicates import RateDraws, draws_covariance, draws_from_cells
from cfair.nuisance.overlap import overlap
from cfair.results.counterfactual import COUNTERFACTUAL, CounterfactualResult
from cfair.results.rates import MetricRows

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


_NO_VARIANCE = "no bootstrap, so no standard errors"
#: Estimators in words.
ESTIMATOR_NAMES = {
    "ipw": "inverse probability weighting (IPW)",
    "aipw": "doubly robust (AIPW)",
    "plugin": "the outcome model alone (plug-in)",
}


def counterfactual(
    cohort: Cohort,
    request: CounterfactualRequest,
    replicates: Replicates,
    *,
    level: float = 0.95,
    interval: str = "wilson",
    aggregate_interval: str = "tie-aware",
    truncation: Any = (0.005, 0.995),
    u_delta: float = 0.1,
) -> CounterfactualResult:
    """Estimate counterfactual error rates.

    Parameters
    ----------
    cohort : Cohort
        With a treatment.
    request : CounterfactualRequest
    replicates : Replicates
    level : float, default 0.95
    interval : {"wilson", "logit", "plain"}, default "wilson"
    aggregate_interval : {"tie-aware", "projection"}, default "tie-aware"
    truncation : (float, float) or None, default (0.005, 0.995)
    u_delta : float, default 0.1

    Returns
    -------
    CounterfactualResult
    """
    options = check_options(level, interval, aggregate_interval, truncation, u_delta)
    replicates.check_rows(cohort)
    fitted = fit_models(request, cohort, options.truncation, replicates)
    moments = contribution_moments(fitted.added, cohort.groups.n_groups, cohort.weights)
    boot = _bootstrap(cohort, fitted, replicates)
    null = _null(fitted, replicates)
    membership = targets(cohort)
    draws = None if boot is None else _draws(boot, membership)
    # faircfint draws fewer rows than there are, and its spread is not a standard error
    spread = None if replicates.kind(cohort) == "faircfint" else draws
    masks = treated_masks(cohort, (*COUNTERFACTUAL, "fpr", "fnr"))
    joint = masked_covariance(_covariance(cohort, fitted, moments, spread), masks, COUNTERFACTUAL)
    draws = masked_draws(draws, masks)
    estimates: list[RateEstimates] = (
        [*drawn_estimates(joint, cohort, COUNTERFACTUAL, spread, _NO_VARIANCE)]
        if fitted.models.needs_bootstrap
        else influence_estimates(joint, cohort, COUNTERFACTUAL)
    )
    rows = masked_rows(
        weighted_rows(cohort, estimates, joint, moments, request.estimator),
        masks,
        COUNTERFACTUAL,
        cohort,
        untreated_denominators(cohort, joint),
    )
    observed = observed_estimates(cohort, ["fpr", "fnr"])
    propensity = fitted.propensity
    diagnostics = None if propensity is None else overlap(cohort, propensity)
    diagnostics = masked_overlap(diagnostics, cohort, propensity)
    permutations = None if null is None else masked_draws(_draws(null, membership), masks)
    walds = permutations is not None and (masks is None or permutations.wald is not None)
    notes = [
        *cohort.notes,
        *fitted.notes,
        *model_notes(cohort, propensity, fitted.outcome),
        *overlap_notes(cohort, propensity, diagnostics),
        *inference_notes(fitted.models, spread),
        *cluster_notes(cohort),
        *replicate_notes(cohort, replicates),
        *care_notes(cohort, estimates, rows),
        *range_notes(cohort, estimates, rows, request.estimator),
    ]
    return CounterfactualResult(
        cohort=cohort,
        estimates=(*estimates, *observed),
        rows=(*rows, *observed_rows(cohort, observed)),
        counts=untreated_counts(cohort, moments),
        level=options.level,
        interval=options.interval,
        aggregate_interval=options.aggregate_interval,
        seed=replicates.seed,
        notes=tuple(notes),
        estimator=ESTIMATOR_NAMES[request.estimator],
        propensity=None if propensity is None else masked_propensity(cohort, propensity),
        outcome_model=fitted.outcome,
        folds=fitted.folds,
        joint=joint,
        overlap=diagnostics,
        null=permutations,
        null_wald=tuple(fitted.models.walds(fitted.added)) if walds else (),
        boot=draws,
        boot_kind=None if boot is None else replicates.kind(cohort),
        u_delta=options.u_delta,
    )


def untreated_counts(cohort: Cohort, moments: CellMoments) -> dict[str, Array]:
    """Rows, untreated rows, and events among them, masked where they have to be."""
    membership = targets(cohort)
    count = moments.by_group(moments.count)
    found = {
        "untreated": membership @ count.sum(axis=(1, 2)),
        "events": membership @ count[:, 1].sum(axis=1),
    }
    protection = cohort.treated_protection
    if protection is not None:
        for name, kind in (("untreated", KINDS["n"]), ("events", KINDS["events"])):
            found[name] = protection.counts(membership, untreated(kind), found[name])
    return {"n": base_counts(cohort)["n"], **found}


def untreated_denominators(cohort: Cohort, joint: RateCovariance) -> list[Array]:
    """Untreated non-events, and untreated events, masked where they have to be."""
    parts = np.split(joint.rows, len(COUNTERFACTUAL))
    protection = cohort.treated_protection
    if protection is None:
        return parts
    kinds = (KINDS["non_events"], KINDS["events"])
    return [
        protection.counts(targets(cohort), untreated(kind), part)
        for kind, part in zip(kinds, parts, strict=True)
    ]


def _covariance(
    cohort: Cohort, fitted: FittedModels, moments: CellMoments, draws: RateDraws | None
) -> RateCovariance:
    """Rates with their covariance, from influence functions.

    Out of fold an outcome model alone has none: its error is not in them. Then from the bootstrap.
    """
    scores = None
    if cohort.cluster is not None:
        require_clusters(cohort)
        K = cohort.groups.n_groups
        scores = contribution_scores(fitted.added, K, cohort.weighted_cluster, cohort.weights)
    joint = rate_covariance(moments, targets(cohort), cluster_scores=scores)
    if not fitted.models.needs_bootstrap:
        return joint
    return replace(joint, covariance=draws_covariance(draws, COUNTERFACTUAL, joint.estimate))


def weighted_rows(
    cohort: Cohort,
    estimates: list[RateEstimates],
    joint: RateCovariance,
    moments: CellMoments,
    estimator: str,
) -> list[MetricRows]:
    """Rows behind the counterfactual rates, and what has to be said of each."""
    membership = targets(cohort)
    n = membership @ cohort.groups.sizes
    untreated = membership @ moments.by_group(moments.count).sum(axis=(1, 2))
    T = len(n)
    result = []
    for m, (label, what) in enumerate((("cFPR", "non-events"), ("cFNR", "events"))):
        e = estimates[m]
        notes = []
        for t in range(T):
            reason = (
                "no rows"
                if n[t] == 0
                else "no untreated rows"
                if untreated[t] == 0
                else f"no {what} among the untreated"
                if estimator == "ipw"
                else f"the scores of {what} do not add up to more than 0"
                + (': estimator="ipw" may have a rate' if estimator == "aipw" else "")
            )
            note = rate_note(e.estimate[t], e.size[t], n[t], reason)
            if isinstance(e, DrawnEstimates) and e.unknown[t]:
                note = "; ".join(filter(None, [note, e.no_variance]))
            notes.append(note)
        result.append(MetricRows(label, joint.rows[m * T : (m + 1) * T], tuple(notes)))
    return result


def _bootstrap(
    cohort: Cohort, fitted: FittedModels, replicates: Replicates
) -> BootstrapDraws | None:
    if not replicates.bootstraps:
        return None
    models = fitted.models
    return bootstrap_draws(
        models,
        kind=replicates.require_kind(cohort),
        n_boot=replicates.n_boot,
        seed=replicates.seed,
        resamples=replicates.resamples,
        cluster=cohort.cluster,
        added=fitted.added if models.in_sample else None,
        n_jobs=replicates.n_jobs,
        exact=replicates.exact,
        progress=replicates.progress,
    )


def _null(fitted: FittedModels, replicates: Replicates) -> PermutationNull | None:
    if not replicates.permutes:
        return None
    return permutation_null(
        fitted.models,
        n_perm=replicates.n_perm,
        seed=replicates.seed,
        permutations=replicates.permutations,
        n_jobs=replicates.n_jobs,
        exact=replicates.exact,
        progress=replicates.progress,
    )


def _draws(found: PermutationNull | BootstrapDraws, membership: Array) -> RateDraws:
    """The counterfactual rates of every replicate, and beside them the observed ones."""
    return RateDraws(
        {
            **draws_from_cells(found.cells, membership, COUNTERFACTUAL),
            **draws_from_cells(found.observed, membership, ("fpr", "fnr")),
        },
        method=found.method,
        not_converged=found.not_converged,
        wald=found.wald if isinstance(found, PermutationNull) else None,
        rows_per_replicate=found.rows_per_replicate if isinstance(found, BootstrapDraws) else None,
    )
