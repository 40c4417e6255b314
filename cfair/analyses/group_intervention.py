"""Error rates under an intervention on group membership, with all that says how sure they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.intervention_notes import (
    independence,
    meaning_notes,
    model_notes,
    range_notes,
    rule,
    rule_notes,
)
from cfair.analyses.intervention_request import InterventionRequest
from cfair.analyses.notes import replicate_notes
from cfair.analyses.observed import (
    care_notes,
    cluster_notes,
    observed_estimates,
    observed_rows,
    rate_note,
    require_clusters,
)
from cfair.analyses.replicates import Replicates
from cfair.cohort import Cohort
from cfair.estimators.confusion import confusion_counts
from cfair.estimators.group_intervention import youden_cutoff
from cfair.inference.aggregate import AGGREGATE_INTERVALS
from cfair.inference.estimates import RateEstimates
from cfair.inference.group_intervention import (
    Intervened,
    intervention_covariance,
    rates_and_influence,
)
from cfair.inference.influence import RateCovariance
from cfair.inference.intervals import RATE_INTERVALS
from cfair.inference.intervention_models import DECIMALS, InterventionModels
from cfair.inference.replicates import (
    MIN_REPLICATES,
    RateDraws,
    bootstrap_rates,
    draws_covariance,
    permuted_rates,
)
from cfair.inference.rows import Rows
from cfair.nuisance.by_group import ByGroupRequest
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.membership import MembershipFit, MembershipModel
from cfair.nuisance.propensity import check_truncation
from cfair.nuisance.request import content_keys, make_folds
from cfair.nuisance.under_groups import OutcomeUnderGroups, membership_of, outcome_under_groups
from cfair.options import check_level, check_option
from cfair.results.deltas import check_deltas
from cfair.results.group_intervention import (
    INTERVENED,
    LABELS,
    EveryGroup,
    GroupInterventionResult,
)
from cfair.results.rates import MetricRows
from cfair.roles import Declared

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Membership:
    """Probabilities of the groups, and the model behind them if there is one."""

    text: str
    p: Array
    raw: Array
    model: MembershipModel | None = None
    notes: tuple[str, ...] = ()


def group_intervention(
    cohort: Cohort,
    declared: Declared,
    request: InterventionRequest,
    replicates: Replicates,
    *,
    level: float = 0.95,
    interval: str = "wilson",
    aggregate_interval: str = "tie-aware",
    truncation: Any = (0.005, 0.995),
    u_delta: float = 0.1,
) -> GroupInterventionResult:
    """Estimate error rates with everybody put into each group.

    Parameters
    ----------
    cohort : Cohort
    declared : Declared
        Of which the cohort has rows.
    request : InterventionRequest
    replicates : Replicates
    level : float, default 0.95
    interval : {"wilson", "logit", "plain"}, default "wilson"
    aggregate_interval : {"tie-aware", "projection"}, default "tie-aware"
    truncation : (float, float) or None, default (0.005, 0.995)
    u_delta : float, default 0.1

    Returns
    -------
    GroupInterventionResult
    """
    level = check_level(level)
    check_deltas(u_delta)
    check_option("interval", interval, RATE_INTERVALS)
    check_option("aggregate_interval", aggregate_interval, AGGREGATE_INTERVALS)
    limits = check_truncation(truncation)
    replicates.check_rows(cohort)
    _require_replicates(request, replicates, cohort)
    if cohort.cluster is not None:
        require_clusters(cohort)
    folds = make_folds(request.folds, cohort, replicates.seed) if request.fits else None
    outcome = _outcome(cohort, declared, request, folds, replicates.seed)
    membership = _membership(cohort, declared, request, folds, limits, replicates.seed)
    models, scores = _models(cohort, declared, request, outcome, membership)
    found = models.intervened()
    boot = _bootstrap(cohort, models, replicates)
    null = _null(models, replicates)
    joint = _covariance(cohort, models, found, boot)
    estimates = _estimates(joint, cohort)
    rows = _rows(cohort, found, estimates)
    observed, observed_metrics = _observed(cohort, models.rows.s)
    p = independence(cohort)
    counts = confusion_counts(cohort.y, cohort.s, cohort.groups.codes, cohort.groups.n_groups)
    notes = [
        *cohort.notes,
        *outcome.notes,
        *([] if membership is None else membership.notes),
        *rule_notes(cohort, request, models, scores),
        *model_notes(request, models),
        *cluster_notes(cohort),
        *replicate_notes(cohort, replicates),
        *care_notes(cohort, estimates, rows),
        *range_notes(cohort, estimates, rows),
        *meaning_notes(cohort, p),
    ]
    return GroupInterventionResult(
        cohort=cohort,
        estimates=(*estimates, *observed),
        rows=(*rows, *observed_metrics),
        counts={"n": counts.sum(axis=(1, 2)), "events": counts[:, 1].sum(axis=1)},
        level=level,
        interval=interval,
        aggregate_interval=aggregate_interval,
        seed=replicates.seed,
        notes=tuple(notes),
        estimator="doubly robust" if request.estimator == "dr" else "outcome model alone",
        kind=request.estimator,
        rule=rule(cohort, request, models),
        cutoff=models.cutoff,
        outcome_text=outcome.text,
        membership_text="" if membership is None else membership.text,
        folds=folds,
        truncation=limits,
        n_truncated=0 if membership is None else _cut_rows(cohort, membership),
        independence=p,
        bootstrapped=not models.has_influence,
        every=EveryGroup(outcome.mu, scores, None if membership is None else membership.p),
        other=_other(found, request, membership),
        joint=joint,
        null=null,
        null_wald=() if null is None or null.wald is None else tuple(models.walds(found)),
        boot=boot,
        boot_kind=None if boot is None else replicates.kind(cohort),
        u_delta=u_delta,
    )


def _require_replicates(
    request: InterventionRequest, replicates: Replicates, cohort: Cohort
) -> None:
    """Refuse single robust rates of a learner without replicates to take the variance from."""
    if request.estimator == "dr" or not request.learns_outcome:
        return
    given = replicates.resamples
    n = replicates.n_boot if given is None else len(given)
    if not replicates.bootstraps or n < MIN_REPLICATES or replicates.kind(cohort) == "faircfint":
        raise ValueError(
            'estimator="sr" with a Learner has no influence function, and its standard errors are '
            f"from the bootstrap of rows or clusters: give n_boot= of {MIN_REPLICATES} or more, "
            'better 200; or take estimator="dr", which needs none.'
        )


# -- models ---------------------------------------------------------------------------------------


def _outcome(
    cohort: Cohort,
    declared: Declared,
    request: InterventionRequest,
    folds: Folds | None,
    seed: int,
) -> OutcomeUnderGroups:
    if isinstance(request.outcome, ByGroupRequest):
        return OutcomeUnderGroups(request.outcome.text, request.outcome.on(cohort, declared))
    assert folds is not None
    return outcome_under_groups(request.outcome, cohort, folds, seed)


def _membership(
    cohort: Cohort,
    declared: Declared,
    request: InterventionRequest,
    folds: Folds | None,
    limits: tuple[float, float],
    seed: int,
) -> _Membership | None:
    given = request.membership
    if given is None:
        return None
    if isinstance(given, ByGroupRequest):
        raw = given.on(cohort, declared)
        return _Membership(given.text, np.clip(raw, *limits), raw)
    assert folds is not None
    model = membership_of(given, cohort, folds, limits, seed)
    fit: MembershipFit = model.fit()
    return _Membership(given.text, fit.p, fit.raw, model, fit.notes)


def _models(
    cohort: Cohort,
    declared: Declared,
    request: InterventionRequest,
    outcome: OutcomeUnderGroups,
    membership: _Membership | None,
) -> tuple[InterventionModels, Array]:
    """What can be fitted again, and the scores under every group."""
    own = np.arange(cohort.n_used), cohort.groups.codes
    given = None if request.scores is None else request.scores.on(cohort, declared)
    scores = np.round(outcome.mu, DECIMALS) if given is None else given
    cutoff = request.cutoff
    if cutoff is None:
        cutoff = youden_cutoff(cohort.y, scores[own], cohort.weights)
    nobody = np.zeros(cohort.n_used, dtype=np.int8)
    flagged = (scores[own] >= cutoff).astype(np.int8)
    groups, weights = cohort.groups, cohort.weights
    used = membership if request.estimator == "dr" else None
    models = InterventionModels(
        Rows(cohort.y, flagged, nobody, groups.codes, groups.n_groups, weights),
        _keys(cohort, request, outcome.mu, given, membership),
        cutoff,
        outcome.mu,
        given,
        None if used is None else used.p,
        outcome.model,
        outcome.full,
        None if used is None else used.model,
        None if used is None else used.raw,
        outcome.coef,
        outcome.fitted,
    )
    return models, scores


def _keys(
    cohort: Cohort,
    request: InterventionRequest,
    mu: Array,
    scores: Array | None,
    membership: _Membership | None,
) -> tuple[Array, ...]:
    """Numbers that tell rows apart, of what is in them and of what was given beside the table."""
    beside = [scores] if scores is not None else []
    if isinstance(request.outcome, ByGroupRequest):
        beside.append(mu)
    if membership is not None and membership.model is None:
        beside.append(membership.p)
    own = np.arange(cohort.n_used), cohort.groups.codes
    content = (content_keys(cohort) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return (content, *(k for v in beside for k in (v[own], v.min(axis=1), v.max(axis=1))))


def _cut_rows(cohort: Cohort, membership: _Membership) -> int:
    own = np.arange(cohort.n_used), cohort.groups.codes
    return int(np.count_nonzero(membership.p[own] != membership.raw[own]))


def _other(
    found: Intervened, request: InterventionRequest, membership: _Membership | None
) -> Array | None:
    """Rates of the other estimator, where there is what it needs."""
    if request.estimator == "sr" and membership is None:
        return None
    p_group = None if request.estimator == "dr" or membership is None else membership.p
    other = replace(found, p_group=p_group, outcome=(), membership=None)
    return rates_and_influence(other)[0]


# -- inference ------------------------------------------------------------------------------------


def _bootstrap(
    cohort: Cohort, models: InterventionModels, replicates: Replicates
) -> RateDraws | None:
    if not replicates.bootstraps:
        return None
    return bootstrap_rates(
        models,
        kind=replicates.require_kind(cohort),
        n_boot=replicates.n_boot,
        seed=replicates.seed,
        resamples=replicates.resamples,
        cluster=cohort.cluster,
        n_jobs=replicates.n_jobs,
        progress=replicates.progress,
    )


def _null(models: InterventionModels, replicates: Replicates) -> RateDraws | None:
    if not replicates.permutes:
        return None
    return permuted_rates(
        models,
        n_perm=replicates.n_perm,
        seed=replicates.seed,
        permutations=replicates.permutations,
        n_jobs=replicates.n_jobs,
        progress=replicates.progress,
    )


def _covariance(
    cohort: Cohort, models: InterventionModels, found: Intervened, boot: RateDraws | None
) -> RateCovariance:
    """Rates with their covariance; that of the bootstrap where there are no influence functions."""
    joint = intervention_covariance(found, cohort.cluster)
    if models.has_influence:
        return joint
    covariance = draws_covariance(boot, INTERVENED, joint.estimate)
    # with too few replicates nothing is known of a rate, whatever its rows would be worth
    kish = np.where(np.isnan(np.diag(covariance)), 0.0, joint.kish)
    return replace(joint, covariance=covariance, kish=kish)


def _estimates(joint: RateCovariance, cohort: Cohort) -> list[RateEstimates]:
    clusters, K = cohort.n_clusters, cohort.groups.n_groups
    parts = [slice(m * K, (m + 1) * K) for m in range(2)]
    return [
        RateEstimates(
            metric,
            K,
            joint.estimate[at],
            joint.covariance[at, at],
            joint.kish[at],
            max_df=np.inf if clusters is None else clusters - 1,
            n_clusters=clusters,
        )
        for metric, at in zip(INTERVENED, parts, strict=True)
    ]


def _rows(cohort: Cohort, found: Intervened, estimates: list[RateEstimates]) -> list[MetricRows]:
    """Who stands behind the rates, and why some are undefined."""
    result = []
    sizes, counts = cohort.groups.sizes, found.rows
    for m, what in enumerate(("non-events", "events")):
        e, notes = estimates[m], []
        for k, n in enumerate(sizes):
            reason = (
                "no rows"
                if n == 0
                else f"no {what} in the group"
                if counts[k, m] == 0
                else f"the {what} under this group add up to nothing"
            )
            notes.append(rate_note(e.estimate[k], e.size[k], n, reason))
        result.append(MetricRows(LABELS[e.metric], counts[:, m].astype(float), tuple(notes)))
    return result


def _observed(
    cohort: Cohort, flagged: NDArray[np.integer]
) -> tuple[list[RateEstimates], list[MetricRows]]:
    """Observed rates of the same rule in the group's own rows."""
    K = cohort.groups.n_groups
    same = replace(cohort, s=flagged.astype(np.int8))
    estimates = observed_estimates(same, ["fpr", "fnr"])
    rows = observed_rows(same, estimates)
    cut = []
    for e in estimates:
        fields = ["estimate", "kish"]
        fields += ["max_size"] if e.max_size is not None else []
        parts: dict[str, Any] = {name: getattr(e, name)[:K].copy() for name in fields}
        cut.append(replace(e, covariance=e.covariance[:K, :K].copy(), **parts))
    return cut, [MetricRows(r.label, r.denominator[:K], r.notes[:K]) for r in rows]
