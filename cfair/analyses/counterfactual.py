"""Counterfactual error rates under no treatment, with everything that says how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from cfair.cohort import Cohort
from cfair.errors import DataError, ModelWarning, OverlapWarning, warn
from cfair.inference.aggregate import AGGREGATE_INTERVALS
from cfair.inference.bootstrap import KINDS, BootstrapDraws, bootstrap_draws
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
from cfair.inference.resampling import seed_entropy
from cfair.inference.rows import Rows
from cfair.nuisance.overlap import Overlap, overlap
from cfair.nuisance.propensity import (
    Omitted,
    Propensity,
    PropensityRequest,
    check_truncation,
    estimate_propensity,
    omitted_call,
    omitted_groups,
)
from cfair.options import check_count, check_level, check_option
from cfair.results import text
from cfair.results.counterfactual import COUNTERFACTUAL, CounterfactualResult, check_deltas
from cfair.results.rates import MetricRows

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


@dataclass(frozen=True)
class Replicates:
    """Options of the replicates, checked before any work.

    Attributes
    ----------
    n_boot, n_perm : int
    bootstrap : str or None
    resamples, permutations : arrays or None
    seed : int
    n_jobs : int or None
    exact, progress : bool
    """

    n_boot: int
    n_perm: int
    bootstrap: str | None
    resamples: Sequence[Integers] | Integers | None
    permutations: Integers | None
    seed: int
    n_jobs: int | None
    exact: bool
    progress: bool

    def kind(self, cohort: Cohort) -> str | None:
        """The bootstrap: by default of clusters if there are any, else of rows within group."""
        if self.bootstrap != "auto":
            return self.bootstrap
        return "group" if cohort.cluster is None else "cluster"


def check_replicates(
    *,
    n_boot: Any,
    n_perm: Any,
    bootstrap: Any,
    resamples: Any,
    permutations: Any,
    seed: Any,
    n_jobs: Any,
    exact: Any,
    progress: Any,
) -> Replicates:
    """Check the options of the replicates.

    Parameters
    ----------
    n_boot, n_perm, bootstrap, resamples, permutations, seed, n_jobs, exact, progress
        As the user gave them.

    Returns
    -------
    Replicates

    Raises
    ------
    ValueError
        For a value that is not allowed.
    """
    check_option("bootstrap", bootstrap, ["auto", *KINDS, None])
    if n_jobs is not None and (
        isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0
    ):
        raise ValueError(f"n_jobs must be a whole number other than 0, or None, not {n_jobs!r}.")
    boots = check_count(n_boot, "n_boot")
    if bootstrap is None:
        if resamples is not None:
            raise ValueError("resamples= needs a bootstrap kind; bootstrap=None asks for none.")
        boots = 0
    return Replicates(
        n_boot=boots,
        n_perm=check_count(n_perm, "n_perm"),
        bootstrap=bootstrap,
        resamples=resamples,
        permutations=permutations,
        seed=seed_entropy(seed),
        n_jobs=None if n_jobs is None else int(n_jobs),
        exact=bool(exact),
        progress=bool(progress),
    )


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
        *_model_notes(cohort, propensity),
        *_overlap_notes(cohort, propensity, diagnostics),
        *cluster_notes(cohort),
        *_replicate_notes(cohort, replicates),
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


def _replicate_notes(cohort: Cohort, replicates: Replicates) -> list[str]:
    """Say it where replicates treat rows of one cluster as independent."""
    if cohort.cluster is None:
        return []
    notes = []
    if replicates.n_perm or replicates.permutations is not None:
        notes.append(
            "the permutation null exchanges labels of rows as if they were independent, whatever "
            "their cluster; its p-values are too small where clusters and groups go together."
        )
    bootstraps = replicates.n_boot > 0 or replicates.resamples is not None
    if bootstraps and replicates.kind(cohort) != "cluster" and replicates.resamples is None:
        notes.append(
            f'bootstrap="{replicates.bootstrap}" draws rows as if they were independent; its '
            'standard errors are too small with clusters. bootstrap="cluster" draws clusters.'
        )
    return notes


def _model_notes(cohort: Cohort, propensity: Propensity) -> list[str]:
    """Warn when the propensity leaves out the score or the attributes, and say if it matters."""
    if propensity.columns is None:
        return []
    notes = []
    names = [x for x in (cohort.score_name, cohort.prediction_name) if x is not None]
    call = omitted_call(propensity, cohort)
    in_span = propensity.fit is not None and call is None  # the call is in, by another name
    if names and not in_span and not set(names) & set(propensity.columns):
        notes.append(
            f"the propensity formula leaves out the score: where treatment follows {names[0]!r}, "
            f"rates are biased{_evidence(call)}. Add {names[0]}."
        )
    elif call is not None and call.p_value < 0.001 and cohort.cutoff is not None:
        notes.append(
            f"treatment follows the call {cohort.rule} beyond the propensity formula (score test "
            f"chi2({call.df}) = {call.chi2:.1f}, {text.p_value(call.p_value)}). "
            f"Add I({cohort.score_name} >= {cohort.cutoff:g})."
        )
    missing = [a for a in cohort.groups.attributes if a not in propensity.columns]
    if missing:
        notes.append(
            f"the propensity formula leaves out {', '.join(missing)}: where treatment differs "
            f"between groups, their rates are biased"
            f"{_evidence(omitted_groups(propensity, cohort))}. "
            f"Add {' * '.join(cohort.groups.attributes)}."
        )
    for note in notes:
        warn(note, ModelWarning)
    return notes


def _evidence(omitted: Omitted | None) -> str:
    if omitted is None:
        return ""
    return (
        f" (score test of adding it: chi2({omitted.df}) = {omitted.chi2:.1f}, "
        f"{text.p_value(omitted.p_value)})"
    )


def _overlap_notes(cohort: Cohort, propensity: Propensity, found: Overlap) -> list[str]:
    notes = []
    cut = found.truncated_high
    if cut > 0.01 * cohort.n_used:
        high = propensity.truncation[1]
        notes.append(
            f"poor overlap: {text.share(cut, cohort.n_used)} of the rows have a propensity above "
            f"{high:g}; no untreated patient is like them, and truncation stands in for data. "
            "Restrict the question to patients who might go untreated, or coarsen the formula."
        )
    weak = found.effective[
        (found.effective["untreated"] > 0)
        & (found.effective["share"] < 0.25)
        & (found.effective["n_effective"] < 50)
    ]
    if len(weak):
        named = ", ".join(
            f"{row.group} ({row.untreated} untreated count as {row.n_effective:.1f})"
            for row in weak.head(6).itertuples()
        )
        notes.append(f"a few untreated rows carry the weight of {named}.")
    for note in notes:
        warn(note, OverlapWarning)
    return notes
