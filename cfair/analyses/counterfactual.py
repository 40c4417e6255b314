"""Counterfactual error rates under no treatment, with everything that says how sure they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from cfair.cohort import Cohort
from cfair.errors import DataError
from cfair.inference.aggregate import AGGREGATE_INTERVALS
from cfair.inference.bootstrap import BootstrapDraws, bootstrap_draws
from cfair.inference.equality import logit_wald
from cfair.inference.estimates import RateEstimates
from cfair.inference.influence import (
    CellMoments,
    RateCovariance,
    TreatmentModel,
    cell_moments,
    cluster_scores,
    rate_covariance,
)
from cfair.inference.intervals import RATE_INTERVALS
from cfair.inference.null_design import NullDesign, has_constant
from cfair.inference.permutation import PermutationNull, permutation_null
from cfair.inference.rows import Rows
from cfair.nuisance.overlap import overlap
from cfair.nuisance.propensity import Propensity, check_truncation, estimate_propensity
from cfair.nuisance.request import PropensityRequest
from cfair.options import check_level, check_option
from cfair.results.counterfactual import COUNTERFACTUAL, CounterfactualResult, check_deltas
from cfair.results.rates import MetricRows

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


def counterfactual(
    cohort: Cohort,
    request: PropensityRequest,
    replicates: Replicates,
    *,
    level: float = 0.95,
    interval: str = "wilson",
    aggregate_interval: str = "tie-aware",
    truncation: Any = (0.005, 0.995),
    u_delta: float = 0.1,
) -> CounterfactualResult:
    """Estimate counterfactual error rates by inverse probability weighting.

    Parameters
    ----------
    cohort : Cohort
        With a treatment.
    request : PropensityRequest
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
    level = check_level(level)
    check_deltas(u_delta)
    check_option("interval", interval, RATE_INTERVALS)
    check_option("aggregate_interval", aggregate_interval, AGGREGATE_INTERVALS)
    limits = check_truncation(truncation)
    _check_rows_given(replicates, cohort)
    propensity = estimate_propensity(request, cohort, limits)
    assert cohort.d is not None
    _require_finite_weights(cohort.d, propensity)
    model = TreatmentModel(
        propensity.pi,
        propensity.matrix,
        None if propensity.fit is None else propensity.fitted,
        None if propensity.fit is None else propensity.fit.information,
    )
    arrays = (cohort.y, cohort.s, cohort.d, cohort.groups.codes)
    K = cohort.groups.n_groups
    moments = cell_moments(*arrays, model, K)
    scores = None
    if cohort.cluster is not None:
        require_clusters(cohort)
        scores = cluster_scores(*arrays, model, K, cohort.cluster)
    joint = rate_covariance(moments, targets(cohort), cluster_scores=scores)
    estimates = _estimates(joint, cohort)
    rows = _rows(cohort, estimates, joint, moments)
    observed = observed_estimates(cohort, ["fpr", "fnr"])
    boot = _bootstrap(cohort, model, propensity, replicates)
    null = _null(cohort, propensity, replicates)
    diagnostics = overlap(cohort, propensity)
    notes = [
        *cohort.notes,
        *propensity.notes,
        *model_notes(cohort, propensity),
        *overlap_notes(cohort, propensity, diagnostics),
        *cluster_notes(cohort),
        *replicate_notes(cohort, replicates),
        *care_notes(cohort, estimates, rows),
    ]
    counts = base_counts(cohort)
    untreated = moments.by_group(moments.count).sum(axis=(1, 2))
    events = moments.by_group(moments.count)[:, 1].sum(axis=1)
    membership = targets(cohort)
    return CounterfactualResult(
        cohort=cohort,
        estimates=(*estimates, *observed),
        rows=(*rows, *observed_rows(cohort, observed)),
        counts={
            "n": counts["n"],
            "untreated": membership @ untreated,
            "events": membership @ events,
        },
        level=level,
        interval=interval,
        aggregate_interval=aggregate_interval,
        seed=replicates.seed,
        notes=tuple(notes),
        estimator="inverse probability weighting (IPW)",
        propensity=propensity,
        joint=joint,
        overlap=diagnostics,
        null=null,
        null_wald=tuple(_unclustered_wald(moments, K)) if null is not None else (),
        boot=boot,
        boot_kind=None if boot is None else replicates.kind(cohort),
        u_delta=u_delta,
    )


def _estimates(joint: RateCovariance, cohort: Cohort) -> list[RateEstimates]:
    clusters = cohort.n_clusters
    T = len(joint.estimate) // 2
    return [
        RateEstimates(
            metric,
            cohort.groups.n_groups,
            joint.estimate[m * T : (m + 1) * T],
            joint.covariance[m * T : (m + 1) * T, m * T : (m + 1) * T],
            joint.kish[m * T : (m + 1) * T],
            max_df=np.inf if clusters is None else clusters - 1,
            n_clusters=clusters,
        )
        for m, metric in enumerate(COUNTERFACTUAL)
    ]


def _rows(
    cohort: Cohort, estimates: list[RateEstimates], joint: RateCovariance, moments: CellMoments
) -> list[MetricRows]:
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
            )
            notes.append(rate_note(e.estimate[t], e.size[t], n[t], reason))
        result.append(MetricRows(label, joint.rows[m * T : (m + 1) * T], tuple(notes)))
    return result


def _bootstrap(
    cohort: Cohort, model: TreatmentModel, propensity: Propensity, replicates: Replicates
) -> BootstrapDraws | None:
    if replicates.bootstrap is None:
        return None
    if replicates.n_boot == 0 and replicates.resamples is None:
        return None
    kind = replicates.kind(cohort)
    if kind == "cluster" and cohort.cluster is None:
        raise DataError(
            'bootstrap="cluster" needs the column of the clusters: cluster="site", say.'
        )
    assert cohort.d is not None
    return bootstrap_draws(
        Rows(cohort.y, cohort.s, cohort.d, cohort.groups.codes, cohort.groups.n_groups),
        model,
        propensity.coef,
        kind=kind or "group",
        n_boot=replicates.n_boot,
        seed=replicates.seed,
        truncation=propensity.truncation,
        resamples=replicates.resamples,
        cluster=cohort.cluster,
        n_jobs=replicates.n_jobs,
        exact=replicates.exact,
        progress=replicates.progress,
    )


def _null(cohort: Cohort, propensity: Propensity, replicates: Replicates) -> PermutationNull | None:
    if replicates.n_perm == 0 and replicates.permutations is None:
        return None
    assert cohort.d is not None
    return permutation_null(
        Rows(cohort.y, cohort.s, cohort.d, cohort.groups.codes, cohort.groups.n_groups),
        _null_design(cohort, propensity),
        n_perm=replicates.n_perm,
        seed=replicates.seed,
        permutations=replicates.permutations,
        n_jobs=replicates.n_jobs,
        exact=replicates.exact,
        progress=replicates.progress,
    )


def _unclustered_wald(moments: CellMoments, n_groups: int) -> list[float]:
    """Wald statistics with rows as independent, as every permutation computes them."""
    joint = rate_covariance(moments, np.eye(n_groups))
    parts = [slice(m * n_groups, (m + 1) * n_groups) for m in range(2)]
    return [
        float(logit_wald(joint.estimate[at], joint.covariance[at, at], joint.kish[at]))
        for at in parts
    ]


def _null_design(cohort: Cohort, propensity: Propensity) -> NullDesign:
    """Cut the propensity design by what the labels change, with columns of full rank."""
    from cfair.nuisance.logistic import independent_columns

    split = propensity.split(cohort)
    if split is None:
        return NullDesign(None, pi=propensity.pi, truncation=propensity.truncation)
    fixed = split.fixed
    # Group columns can stand for the intercept ("~ 0 + sex + age"); the fit without labels that
    # every replicate starts from then needs one of its own.
    by_group = split.by_group
    if by_group is not None and not has_constant(fixed) and _spans_constant(by_group, cohort):
        fixed = np.column_stack([np.ones(cohort.n_used), fixed])
    kept = independent_columns(fixed)
    if not kept.all():
        fixed = np.ascontiguousarray(fixed[:, kept])
    return NullDesign(fixed, split.by_group, split.mixed, truncation=propensity.truncation)


def _spans_constant(by_group: Array, cohort: Cohort) -> bool:
    present = by_group[np.unique(cohort.groups.codes)]
    one = np.ones(len(present))
    residual = one - present @ np.linalg.lstsq(present, one, rcond=None)[0]
    return bool(np.max(np.abs(residual)) < 1e-9)


def _check_rows_given(replicates: Replicates, cohort: Cohort) -> None:
    """Check rows that the user gave for the replicates, before any work."""
    n = cohort.n_used
    if replicates.permutations is not None:
        given = np.asarray(replicates.permutations)
        if given.ndim != 2 or given.shape[1] != n or given.dtype.kind not in "iu":
            raise DataError(
                f"permutations must be whole numbers of shape (replicates, {n}), a row number for "
                f"each row used, not {given.dtype} of shape {given.shape}."
            )
        if len(given) == 0 or given.min() < 0 or given.max() >= n:
            raise DataError(f"permutations must hold row numbers from 0 to {n - 1}.")
        if (np.sort(given, axis=1) != np.arange(n)).any():
            raise DataError("each row of permutations must hold every row number exactly once.")
    if replicates.resamples is not None:
        if len(replicates.resamples) == 0:
            raise DataError("resamples holds no replicate.")
        for b, rows in enumerate(replicates.resamples):
            given = np.asarray(rows)
            wrong = given.ndim != 1 or len(given) == 0 or given.dtype.kind not in "iu"
            if wrong or given.min() < 0 or given.max() >= n:
                raise DataError(
                    f"resamples: replicate {b} must be row numbers from 0 to {n - 1}, counted "
                    f"among the {n} rows used."
                )


def _require_finite_weights(d: Integers, propensity: Propensity) -> None:
    certain = (d == 0) & (propensity.pi >= 1)
    if certain.any():
        raise DataError(
            f"{int(certain.sum())} untreated rows have a propensity of 1, so their weight is "
            "infinite. Truncate: truncation=(0.005, 0.995)."
        )
