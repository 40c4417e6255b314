"""What a reader of counterfactual rates has to be careful about, in sentences."""

from __future__ import annotations

import numpy as np

from cfair.analyses.masking import arms_masked
from cfair.analyses.replicates import Replicates
from cfair.cohort import Cohort
from cfair.disclosure import is_masked, small_masks
from cfair.errors import ModelWarning, OverlapWarning, warn
from cfair.frame import show_some
from cfair.inference.estimates import RateEstimates
from cfair.inference.intervals import beyond
from cfair.inference.refit import CounterfactualModels
from cfair.inference.replicates import MIN_REPLICATES, RateDraws
from cfair.nuisance.omitted import Omitted, omitted_call, omitted_groups
from cfair.nuisance.outcome import Outcome
from cfair.nuisance.overlap import Overlap
from cfair.nuisance.propensity import Propensity
from cfair.results import text
from cfair.results.rates import MetricRows

#: Below this many effective events or non-events weighting alone covers better.
FRAGILE_BELOW = 10.0


def replicate_notes(cohort: Cohort, replicates: Replicates) -> list[str]:
    """Say it where replicates treat rows of one cluster as independent.

    Parameters
    ----------
    cohort : Cohort
    replicates : Replicates

    Returns
    -------
    list of str
    """
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


def model_notes(
    cohort: Cohort, propensity: Propensity | None, outcome: Outcome | None = None
) -> list[str]:
    """Warn when a model leaves out the score or the attributes, and say if it matters.

    Parameters
    ----------
    cohort : Cohort
    propensity : Propensity or None
    outcome : Outcome, optional

    Returns
    -------
    list of str
    """
    notes = [] if propensity is None else _propensity_notes(cohort, propensity, outcome)
    if outcome is not None:
        notes += _outcome_notes(cohort, outcome, alone=propensity is None)
    for note in notes:
        warn(note, ModelWarning)
    return notes


def _outcome_notes(cohort: Cohort, outcome: Outcome, *, alone: bool) -> list[str]:
    if outcome.columns is None:
        return []
    notes = []
    names = [x for x in (cohort.score_name, cohort.prediction_name) if x is not None]
    wrong = (
        "rates from it are biased"
        if alone
        else "double robustness is lost: the rates rest on the propensity alone"
    )
    if names and not set(names) & set(outcome.columns) and not _holds_the_call(outcome, cohort):
        notes.append(
            f"the outcome formula has neither the score nor its 0/1 form: where the event follows "
            f"{names[0]!r} beyond its other terms, {wrong}. Add {names[0]}."
        )
    missing = [a for a in cohort.groups.attributes if a not in outcome.columns]
    if missing:
        notes.append(
            f"the outcome formula leaves out {', '.join(missing)}: where the event differs between "
            f"groups beyond its other terms, {wrong}. Add {' * '.join(cohort.groups.attributes)}."
        )
    return notes


def _holds_the_call(outcome: Outcome, cohort: Cohort) -> bool:
    """Whether the call is among the terms by another name, alone or as a sum of terms."""
    if outcome.design is None:
        return False
    X, call = np.asarray(outcome.design.matrix), cohort.s.astype(np.float64)
    centred = np.column_stack([np.ones(len(X)), X])
    rest = call - centred @ np.linalg.lstsq(centred.T @ centred, centred.T @ call, rcond=None)[0]
    return bool(rest @ rest < 1e-8 * len(call))


def _propensity_notes(cohort: Cohort, propensity: Propensity, outcome: Outcome | None) -> list[str]:
    if propensity.columns is None:
        return []
    notes = []
    biased = (
        "rates are biased" if outcome is None else "the rates rest on the outcome model being right"
    )
    names = [x for x in (cohort.score_name, cohort.prediction_name) if x is not None]
    call = omitted_call(propensity, cohort)
    told = not arms_masked(cohort)  # a statistic of few groups would give their treated
    in_span = propensity.fit is not None and call is None  # the call is in, by another name
    if names and not in_span and not set(names) & set(propensity.columns):
        notes.append(
            f"the propensity formula leaves out the score: where treatment follows {names[0]!r}, "
            f"{biased}{_evidence(call, told)}. Add {names[0]}."
        )
    elif call is not None and call.p_value < 0.001 and cohort.cutoff is not None:
        notes.append(
            f"treatment follows the call {cohort.rule} beyond the propensity formula"
            f"{_evidence(call, told, 'score test')}. "
            f"Add I({cohort.score_name} >= {cohort.cutoff:g})."
        )
    missing = [a for a in cohort.groups.attributes if a not in propensity.columns]
    if missing:
        notes.append(
            f"the propensity formula leaves out {', '.join(missing)}: where treatment differs "
            f"between groups, {biased if outcome is not None else 'their ' + biased}"
            f"{_evidence(omitted_groups(propensity, cohort) if told else None)}. "
            f"Add {' * '.join(cohort.groups.attributes)}."
        )
    return notes


def _evidence(
    omitted: Omitted | None, told: bool = True, test: str = "score test of adding it:"
) -> str:
    if omitted is None or not told:
        return ""
    return f" ({test} chi2({omitted.df}) = {omitted.chi2:.1f}, {text.p_value(omitted.p_value)})"


def overlap_notes(
    cohort: Cohort, propensity: Propensity | None, found: Overlap | None
) -> list[str]:
    """Warn when hardly any untreated patient stands for some of the patients.

    Parameters
    ----------
    cohort : Cohort
    propensity : Propensity or None
    found : Overlap or None

    Returns
    -------
    list of str
    """
    if propensity is None or found is None:
        return []
    notes = []
    cut = found.truncated_high
    few = is_masked(small_masks(cut, cohort.suppress_below)) or cut < 0
    if not few and cut > 0.01 * cohort.n_used:
        high = propensity.truncation[1]
        notes.append(
            f"poor overlap: {text.share(cut, cohort.n_used)} of the rows have a propensity above "
            f"{high:g}; no untreated patient is like them, and truncation stands in for data. "
            "Restrict the question to patients who might go untreated, or coarsen the formula."
        )
    weak = found.effective[
        (found.effective["untreated"] > 0).fillna(False)
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


def inference_notes(models: CounterfactualModels, boot: RateDraws | None) -> list[str]:
    """Say where standard errors leave something out.

    Parameters
    ----------
    models : CounterfactualModels
    boot : RateDraws or None

    Returns
    -------
    list of str
    """
    if models.in_sample:
        return []
    if models.estimator == "ipw":
        return [
            "the propensity is predicted out of fold and counts as known in the standard errors; "
            "its bias and its error are not in them. An outcome model beside it makes the rates "
            "doubly robust, and intervals valid with learners."
        ]
    if models.estimator == "aipw":
        return [
            "models are predicted out of fold and count as known in the standard errors, which is "
            "right to first order when both come near the truth."
        ]
    enough = boot is not None and boot.n_replicates >= MIN_REPLICATES
    if enough:
        return ["an outcome model alone, out of fold: standard errors are from the bootstrap."]
    return [
        "an outcome model alone has no influence function when it is predicted out of fold: there "
        f"are no intervals without n_boot= of {MIN_REPLICATES} or more, of rows within group or of "
        "clusters."
    ]


def range_notes(
    cohort: Cohort, estimates: list[RateEstimates], rows: list[MetricRows], estimator: str
) -> list[str]:
    """Say where doubly robust rates are fragile, or outside [0, 1].

    Parameters
    ----------
    cohort : Cohort
    estimates : list of RateEstimates
    rows : list of MetricRows
    estimator : {"ipw", "aipw", "plugin"}

    Returns
    -------
    list of str
    """
    if estimator != "aipw":
        return []
    notes, names, K = [], cohort.groups.names, cohort.groups.n_groups
    for e, r in zip(estimates, rows, strict=True):
        theta, kish = e.estimate[:K], e.kish[:K]
        out = [names[k] for k in np.flatnonzero(beyond(theta))]
        thin = [names[k] for k in np.flatnonzero((kish < FRAGILE_BELOW) & ~np.isnan(theta))]
        if out:
            notes.append(
                f"{r.label} outside [0, 1] in {show_some(out, 6)}: doubly robust rates are not "
                'confined to it in small groups. It is shown as it is; estimator="ipw" is.'
            )
        if thin:
            what = "non-events" if e.metric == "cfpr" else "events"
            notes.append(
                f"fewer than {FRAGILE_BELOW:.0f} untreated {what}, weighted, in "
                f'{show_some(thin, 6)}: there 95% intervals of {r.label} by estimator="ipw" hold '
                "better (they covered 95% against 89% in the worst simulated case)."
            )
    return notes
