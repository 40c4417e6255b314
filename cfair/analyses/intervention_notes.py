"""What a reader of rates under an intervention on membership has to know, in sentences."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.intervention_request import InterventionRequest
from cfair.analyses.replicates import Replicates
from cfair.cohort import Cohort
from cfair.disclosure import KINDS, Protection
from cfair.errors import ModelWarning, warn
from cfair.estimators.confusion import confusion_counts
from cfair.frame import show_some
from cfair.inference.association import Association, cramers_v
from cfair.inference.estimates import RateEstimates
from cfair.inference.intervals import beyond
from cfair.inference.intervention_models import InterventionModels
from cfair.nuisance.by_group import ByGroupRequest
from cfair.results import text
from cfair.results.rates import MetricRows

Array = NDArray[np.float64]

#: Cramer's V below which group explains less than 1% of the variance of the outcome.
WEAK = 0.1


def rule(
    cohort: Cohort,
    request: InterventionRequest,
    models: InterventionModels,
    protection: Protection | None = None,
) -> str:
    """How a prediction comes about, and how many rows have it in their own group.

    Parameters
    ----------
    cohort : Cohort
    request : InterventionRequest
    models : InterventionModels
    protection : Protection, optional
        Of counts of the rule's call, under disclosure control.

    Returns
    -------
    str
    """
    shown = "outcome model" if request.scores is None else request.scores.text
    how = ", the largest Youden index," if request.cutoff is None else ""
    flagged, n = float(models.rows.s.sum()), float(cohort.n_used)
    if protection is not None:
        every, called = cohort.partitions[0], np.zeros((2, 2, 2))
        called[..., 1] = 1.0
        flagged = float(protection.counts(every, called)[0])
        n = float(protection.counts(every, KINDS["n"])[0])
    share = text.share(flagged, n)
    return f"{shown} >= {models.cutoff:.4g}{how} (S = 1): {share} in their own group"


def rule_notes(
    cohort: Cohort, request: InterventionRequest, models: InterventionModels, scores: Array
) -> list[str]:
    """What is judged, and whether the scores given are those of the audit.

    Parameters
    ----------
    cohort : Cohort
    request : InterventionRequest
    models : InterventionModels
    scores : (n, K) array

    Returns
    -------
    list of str
    """
    if request.scores is None:
        return [
            "the rule judged is the outcome model itself, as it was learnt: intervals are of its "
            "error rates, not of those of a model learnt from other data, and so are the tests and "
            "'if equal'. Replicates learn it anew at the same cutoff, so that bootstrap standard "
            "errors and the null hold the noise of learning too, and are wider. To judge the score "
            "under audit, give scores=."
        ]
    own = scores[np.arange(cohort.n_used), cohort.groups.codes]
    notes = []
    flagged = int(np.count_nonzero((own >= models.cutoff) != (cohort.s == 1)))
    if cohort.score is None and flagged:
        notes.append(
            f"scores: in {text.share(flagged, cohort.n_used)} of the rows the prediction under the "
            f"own group is not {cohort.prediction_name}. Are they of the model under audit, with "
            "rows and groups in order?"
        )
        warn(notes[-1], ModelWarning)
    if cohort.score is not None:
        off = np.abs(own - cohort.score)
        if off.max() > 1e-6:
            notes.append(
                f"scores: in {text.share(int((off > 1e-6).sum()), cohort.n_used)} of the rows the "
                f"score under the own group is not {cohort.score_name} (largest difference "
                f"{off.max():.2g}). Are they of the model under audit, with rows and groups in "
                "order?"
            )
            warn(notes[-1], ModelWarning)
    here = scores[:, cohort.groups.sizes > 0]
    if here.shape[1] > 1 and (here == here[:, :1]).all():
        notes.append(
            "the scores do not change with the group: rates differ between groups by the outcome "
            "model alone."
        )
    return notes


def null_notes(request: InterventionRequest, replicates: Replicates) -> list[str]:
    """Say that observed rates and permutations judge different predictions.

    Parameters
    ----------
    request : InterventionRequest
    replicates : Replicates

    Returns
    -------
    list of str
    """
    if request.scores is None or not replicates.permutes:
        return []
    return [
        "scores with permutations: the observed rates are of the prediction under each group, S^g, "
        "those of the permutations of the prediction that each row had in its own group, S. What "
        "the score makes of the group counts as a difference in the former and is absent from the "
        "latter, so p-values and u-values ask whether group matters to outcome or score."
    ]


def model_notes(request: InterventionRequest, models: InterventionModels) -> list[str]:
    """Where standard errors leave something out.

    Parameters
    ----------
    request : InterventionRequest
    models : InterventionModels

    Returns
    -------
    list of str
    """
    given = [r for r in (request.outcome, request.membership) if isinstance(r, ByGroupRequest)]
    notes = []
    if given:
        notes.append(
            f"{' and '.join(r.what for r in given)}: the probabilities given count as known, in "
            "standard errors and in replicates."
        )
    if models.learns and request.estimator == "dr":
        notes.append(
            "a learner counts as known in the standard errors, which is right to first order when "
            "outcome model and membership both come near the truth."
        )
    if not models.has_influence:
        notes.append(
            "single robust rates of a learner have no influence function: standard errors are from "
            "the bootstrap."
        )
    return notes


def range_notes(
    cohort: Cohort, estimates: list[RateEstimates], rows: list[MetricRows]
) -> list[str]:
    """Say where doubly robust rates lie outside [0, 1].

    Parameters
    ----------
    cohort : Cohort
    estimates : list of RateEstimates
    rows : list of MetricRows

    Returns
    -------
    list of str
    """
    notes = []
    for e, r in zip(estimates, rows, strict=True):
        out = np.flatnonzero(beyond(e.estimate))
        if len(out):
            named = show_some([cohort.groups.names[k] for k in out], 6)
            notes.append(
                f"{r.label} outside [0, 1] in {named}: doubly robust rates are not confined to it "
                'in small groups. It is shown as it is; estimator="sr" stays inside.'
            )
    return notes


def meaning_notes(cohort: Cohort, related: Association) -> list[str]:
    """What the rates are, and when u-values say nothing.

    Parameters
    ----------
    cohort : Cohort
    related : Association
        Of group and outcome.

    Returns
    -------
    list of str
    """
    notes = [
        "membership cannot be assigned in the world: the rates are a diagnostic of the models, "
        "with covariates left as they are, and not the effect of anything that could be done."
    ]
    if related.v < WEAK:
        notes.append(
            f"group and outcome {cohort.outcome_name} are nearly independent (Cramer's V "
            f"{related.v:.3f}, 95% interval {related.low:.3f} to {related.high:.3f}, below "
            f"{WEAK:g}; chi-square test, {text.p_value(related.p_value)}): u-values go to zero "
            "then, whatever the model does, and are no sign of fairness."
        )
    return notes


def association(cohort: Cohort) -> Association:
    """How strongly group and outcome go together.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    Association
        NaN with a single group, and where the count of a group is masked: it would give it.
    """
    K = cohort.groups.n_groups
    if cohort.protection is not None:
        member = np.eye(K)
        if cohort.protection.rate_masks(member, KINDS["events"], KINDS["n"]).any():
            return Association(np.nan, np.nan, np.nan, np.nan)
    table = confusion_counts(cohort.y, 0 * cohort.s, cohort.groups.codes, K, cohort.weights)
    # rows of unequal weight tell less
    return cramers_v(table.sum(axis=2).astype(np.float64), cohort.kish)
