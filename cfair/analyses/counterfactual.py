"""Counterfactual error rates under no treatment, with everything that says how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.common import check_options, drawn_estimates, influence_estimates
from cfair.analyses.counterfactual_result import (
    OBSERVED,
    Computed,
    counterfactual_masks,
    make_result,
)
from cfair.analyses.masking import masked_covariance, masked_draws
from cfair.analyses.notes import inference_notes
from cfair.analyses.observed import observed_estimates, require_clusters, targets
from cfair.analyses.replicates import Replicates
from cfair.analyses.treatment import CounterfactualRequest, FittedModels, fit_models
from cfair.cohort import Cohort
from cfair.inference.bootstrap import BootstrapDraws, bootstrap_draws
from cfair.inference.estimates import RateEstimates
from cfair.inference.influence import RateCovariance, rate_covariance
from cfair.inference.moments import CellMoments, contribution_moments, contribution_scores
from cfair.inference.permutation import PermutationNull, permutation_null
from cfair.inference.replicates import RateDraws, draws_covariance, draws_from_cells
from cfair.nuisance.overlap import overlap
from cfair.results.counterfactual import COUNTERFACTUAL, CounterfactualResult

Array = NDArray[np.float64]

_NO_VARIANCE = "no bootstrap, so no standard errors"


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
    began = perf_counter()
    fitted = fit_models(request, cohort, options.truncation, replicates)
    if fitted.models.learns:
        replicates.warn_if_long(perf_counter() - began)
    moments = contribution_moments(fitted.added, cohort.groups.n_groups, cohort.weights)
    boot = _bootstrap(cohort, fitted, replicates)
    null = _null(fitted, replicates)
    membership = targets(cohort)
    draws = None if boot is None else _draws(boot, membership)
    # faircfint draws fewer rows than there are, and its spread is not a standard error
    spread = None if replicates.kind(cohort) == "faircfint" else draws
    masks = counterfactual_masks(cohort)
    joint = masked_covariance(_covariance(cohort, fitted, moments, spread), masks, COUNTERFACTUAL)
    estimates: Sequence[RateEstimates] = (
        drawn_estimates(joint, cohort, COUNTERFACTUAL, spread, _NO_VARIANCE)
        if fitted.models.needs_bootstrap
        else influence_estimates(joint, cohort, COUNTERFACTUAL)
    )
    propensity = fitted.propensity
    computed = Computed(
        request.estimator,
        moments,
        masks,
        joint,
        estimates,
        observed_estimates(cohort, [*OBSERVED]),
        propensity,
        None if propensity is None else overlap(cohort, propensity),
        fitted.outcome,
        fit_notes=fitted.notes,
        error_notes=inference_notes(fitted.models, spread),
    )
    permutations = None if null is None else masked_draws(_draws(null, membership), masks)
    walds = permutations is not None and (masks is None or permutations.wald is not None)
    return make_result(
        CounterfactualResult,
        cohort,
        computed,
        options,
        replicates,
        folds=fitted.folds,
        null=permutations,
        null_wald=tuple(fitted.models.walds(fitted.added)) if walds else (),
        boot=masked_draws(draws, masks),
        boot_kind=None if boot is None else replicates.kind(cohort),
        u_delta=options.u_delta,
    )


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
            **draws_from_cells(found.observed, membership, OBSERVED),
        },
        method=found.method,
        not_converged=found.not_converged,
        wald=found.wald if isinstance(found, PermutationNull) else None,
        rows_per_replicate=found.rows_per_replicate if isinstance(found, BootstrapDraws) else None,
    )
