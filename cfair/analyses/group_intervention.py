"""Error rates under an intervention on group membership, with all that says how sure they are."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.common import (
    bootstrapped,
    check_options,
    drawn_estimates,
    influence_estimates,
    permuted,
)
from cfair.analyses.intervention_notes import (
    association,
    meaning_notes,
    model_notes,
    null_notes,
    range_notes,
    rule,
    rule_notes,
)
from cfair.analyses.intervention_request import InterventionRequest
from cfair.analyses.masking import (
    Masks,
    intervention_masks,
    masked_covariance,
    masked_draws,
    masked_rows,
)
from cfair.analyses.notes import replicate_notes
from cfair.analyses.observed import (
    base_counts,
    care_notes,
    cluster_notes,
    observed_estimates,
    observed_rows,
    rate_note,
    require_clusters,
    shown_counts,
)
from cfair.analyses.replicates import Replicates
from cfair.cohort import Cohort
from cfair.disclosure import KINDS
from cfair.estimators.group_intervention import youden_cutoff
from cfair.inference.drawn_estimates import DrawnEstimates
from cfair.inference.estimates import RateEstimates
from cfair.inference.group_intervention import effective_sizes, intervention_covariance
from cfair.inference.influence import RateCovariance
from cfair.inference.intervened import Intervened
from cfair.inference.intervention_models import DECIMALS, InterventionModels
from cfair.inference.replicates import (
    MIN_REPLICATES,
    RateDraws,
    draws_covariance,
)
from cfair.inference.rows import Rows
from cfair.nuisance.by_group import ByGroupRequest
from cfair.nuisance.crossfit import Folds, make_folds
from cfair.nuisance.membership import MembershipModel, membership_model
from cfair.nuisance.order import content_numbers
from cfair.nuisance.request import ModelRequest
from cfair.nuisance.under_groups import GroupMembership, OutcomeUnderGroups, outcome_under_groups
from cfair.results.group_intervention import INTERVENED, LABELS, GroupInterventionResult
from cfair.results.rates import MetricRows
from cfair.roles import Declared

Array = NDArray[np.float64]

_TOO_FEW = f"defined in fewer than {MIN_REPLICATES} bootstrap replicates: no standard error"


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
    options = check_options(level, interval, aggregate_interval, truncation, u_delta)
    limits = options.truncation
    replicates.check_rows(cohort)
    _require_replicates(request, replicates, cohort)
    if cohort.cluster is not None:
        require_clusters(cohort)
    began = perf_counter()
    folds = make_folds(request.folds, cohort, replicates.seed) if request.fits else None
    members = _membership_model(cohort, request, folds, limits, replicates.seed)
    outcome = _outcome(cohort, declared, request, folds, replicates.seed)
    membership = _membership(cohort, declared, request, members, limits)
    models, scores = _models(cohort, declared, request, outcome, membership, folds)
    found = models.intervened()
    if models.learns:
        replicates.warn_if_long(perf_counter() - began)
    boot = bootstrapped(models, cohort, replicates)
    null = permuted(models, replicates)
    protected = intervention_masks(cohort, models.rows.s)
    masks = None if protected is None else protected[0]
    boot, null = masked_draws(boot, masks), masked_draws(null, masks)
    joint = masked_covariance(_covariance(cohort, models, found, boot), masks, INTERVENED)
    estimates: list[RateEstimates] = (
        [*drawn_estimates(joint, cohort, INTERVENED, boot, _TOO_FEW)]
        if not models.has_influence
        else influence_estimates(joint, cohort, INTERVENED)
    )
    observed, observed_metrics = _observed(cohort, models.rows.s, masks)
    denominators = [r.denominator for r in observed_metrics]
    rows = masked_rows(_rows(cohort, found, estimates), masks, INTERVENED, cohort, denominators)
    related = association(cohort)
    K = cohort.groups.n_groups
    walds = null is not None and null.wald is not None
    notes = [
        *cohort.notes,
        *outcome.notes,
        *([] if membership is None else membership.notes),
        *rule_notes(cohort, request, models, scores),
        *null_notes(request, replicates),
        *model_notes(request, models),
        *cluster_notes(cohort),
        *replicate_notes(cohort, replicates),
        *care_notes(cohort, estimates, rows),
        *range_notes(cohort, estimates, rows),
        *meaning_notes(cohort, related),
    ]
    return GroupInterventionResult(
        cohort=cohort,
        estimates=(*estimates, *observed),
        rows=(*rows, *observed_metrics),
        counts={name: values[:K] for name, values in base_counts(cohort).items()},
        level=options.level,
        interval=options.interval,
        aggregate_interval=options.aggregate_interval,
        seed=replicates.seed,
        notes=tuple(notes),
        estimator="doubly robust" if request.estimator == "dr" else "outcome model alone",
        kind=request.estimator,
        rule=rule(cohort, request, models, None if protected is None else protected[1]),
        cutoff=models.cutoff,
        outcome_model=outcome,
        membership_model=membership,
        score_table=scores,
        folds=folds,
        truncation=limits,
        n_truncated=0 if membership is None else membership.n_cut(cohort.groups.codes),
        association=related,
        other=_other(found, request, membership, masks),
        joint=joint,
        null=null,
        null_wald=tuple(models.walds(found)) if walds else (),
        boot=boot,
        boot_kind=None if boot is None else replicates.kind(cohort),
        u_delta=options.u_delta,
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


def _membership_model(
    cohort: Cohort,
    request: InterventionRequest,
    folds: Folds | None,
    limits: tuple[float, float],
    seed: int,
) -> MembershipModel | None:
    """What is to be fitted, checked before anything is."""
    if not isinstance(request.membership, ModelRequest):
        return None
    assert folds is not None
    return membership_model(
        request.membership, cohort, folds, seed=seed, truncation=limits, renormalise=False
    )


def _membership(
    cohort: Cohort,
    declared: Declared,
    request: InterventionRequest,
    model: MembershipModel | None,
    limits: tuple[float, float],
) -> GroupMembership | None:
    given = request.membership
    if isinstance(given, ByGroupRequest):
        raw = given.on(cohort, declared)
        return GroupMembership(given.text, np.clip(raw, *limits), raw)
    if given is None or model is None:
        return None
    fit = model.fit()
    assert given.formula is not None
    notes = (*given.formula.notes, *fit.notes)
    return GroupMembership(given.text, fit.p, fit.raw, model, notes)


def _models(
    cohort: Cohort,
    declared: Declared,
    request: InterventionRequest,
    outcome: OutcomeUnderGroups,
    membership: GroupMembership | None,
    folds: Folds | None,
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
        _keys(cohort, request, outcome.mu, given, membership, folds),
        cutoff,
        outcome.mu,
        given,
        None if used is None else used.p,
        outcome.model,
        outcome.full,
        outcome.whole,
        None if used is None else used.model,
        None if used is None else used.raw,
    )
    return models, scores


def _keys(
    cohort: Cohort,
    request: InterventionRequest,
    mu: Array,
    scores: Array | None,
    membership: GroupMembership | None,
    folds: Folds | None,
) -> tuple[Array, ...]:
    """Numbers that tell rows apart, of what is in them and of what was given beside the table."""
    beside = [scores] if scores is not None else []
    if isinstance(request.outcome, ByGroupRequest):
        beside.append(mu)
    if membership is not None and membership.model is None:
        beside.append(membership.p)
    own = np.arange(cohort.n_used), cohort.groups.codes
    return (
        content_numbers(cohort),
        *([] if folds is None else [folds.codes.astype(np.float64)]),
        *(k for v in beside for k in (v[own], v.min(axis=1), v.max(axis=1))),
    )


def _other(
    found: Intervened,
    request: InterventionRequest,
    membership: GroupMembership | None,
    masks: dict[str, Masks] | None,
) -> Array | None:
    """Rates of the other estimator, where there is what it needs."""
    if request.estimator == "sr" and membership is None:
        return None
    p_group = None if request.estimator == "dr" or membership is None else membership.p
    rates = replace(found, p_group=p_group, outcome=None, membership=None).rates.ravel()
    if masks is None:
        return rates
    return np.where(np.concatenate([masks[m] for m in INTERVENED]) > 0, np.nan, rates)


# -- inference ------------------------------------------------------------------------------------


def _covariance(
    cohort: Cohort, models: InterventionModels, found: Intervened, boot: RateDraws | None
) -> RateCovariance:
    """Rates with their covariance; that of the bootstrap where there are no influence functions."""
    if models.has_influence:
        return intervention_covariance(found, cohort.cluster)
    estimate = found.rates.ravel()
    covariance = draws_covariance(boot, INTERVENED, estimate)
    kish = effective_sizes(found, cohort.cluster)
    return RateCovariance(estimate, covariance, kish, found.rows.T.ravel())


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
            lost = isinstance(e, DrawnEstimates) and bool(e.unknown[k])
            notes.append(_TOO_FEW if lost else rate_note(e.estimate[k], e.size[k], n, reason))
        result.append(MetricRows(LABELS[e.metric], counts[:, m].astype(float), tuple(notes)))
    return result


def _observed(
    cohort: Cohort, flagged: NDArray[np.integer], masks: dict[str, Masks] | None
) -> tuple[list[RateEstimates], list[MetricRows]]:
    """Observed rates of the same rule in the group's own rows."""
    K, metrics = cohort.groups.n_groups, ["fpr", "fnr"]
    same = replace(cohort, s=flagged.astype(np.int8), suppress_below=None)  # masked in the end
    estimates = observed_estimates(same, metrics)
    rows = observed_rows(same, estimates)
    cut = [e.select(np.arange(K)) for e in estimates]
    mine = [MetricRows(r.label, r.denominator[:K], r.notes[:K]) for r in rows]
    if masks is None:
        return cut, mine
    kinds = (KINDS["non_events"], KINDS["events"])
    told = [
        shown_counts(cohort, k, r.denominator, np.eye(K)) for k, r in zip(kinds, mine, strict=True)
    ]
    lost = [e.without(masks[m] > 0) for e, m in zip(cut, metrics, strict=True)]
    return lost, masked_rows(mine, masks, metrics, cohort, told)
