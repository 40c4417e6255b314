"""What a reader of counterfactual rates has to be careful about, in sentences."""

from __future__ import annotations

from cfair.analyses.replicates import Replicates
from cfair.cohort import Cohort
from cfair.errors import ModelWarning, OverlapWarning, warn
from cfair.nuisance.overlap import Overlap
from cfair.nuisance.propensity import Omitted, Propensity, omitted_call, omitted_groups
from cfair.results import text


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


def model_notes(cohort: Cohort, propensity: Propensity) -> list[str]:
    """Warn when the propensity leaves out the score or the attributes, and say if it matters.

    Parameters
    ----------
    cohort : Cohort
    propensity : Propensity

    Returns
    -------
    list of str
    """
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


def overlap_notes(cohort: Cohort, propensity: Propensity, found: Overlap) -> list[str]:
    """Warn when hardly any untreated patient stands for some of the patients.

    Parameters
    ----------
    cohort : Cohort
    propensity : Propensity
    found : Overlap

    Returns
    -------
    list of str
    """
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
