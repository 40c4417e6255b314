"""A result of rates under no treatment, from what the rows add up to: in memory or by batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.common import Options
from cfair.analyses.masking import (
    masked_overlap,
    masked_propensity,
    masked_rows,
    treated_masks,
    treated_told,
    untreated,
)
from cfair.analyses.notes import model_notes, overlap_notes, range_notes, replicate_notes
from cfair.analyses.observed import (
    base_counts,
    care_notes,
    cluster_notes,
    observed_rows,
    rate_note,
    targets,
)
from cfair.analyses.replicates import Replicates
from cfair.cohort import Cohort
from cfair.disclosure import KINDS
from cfair.inference.drawn_estimates import DrawnEstimates
from cfair.inference.estimates import RateEstimates
from cfair.inference.influence import RateCovariance
from cfair.inference.moments import CellMoments
from cfair.nuisance.outcome import Outcome
from cfair.nuisance.overlap import Overlap
from cfair.nuisance.propensity import Propensity
from cfair.results.counterfactual import COUNTERFACTUAL, CounterfactualResult
from cfair.results.rates import MetricRows

Array = NDArray[np.float64]
Result = TypeVar("Result", bound=CounterfactualResult)

#: The observed rates that stand beside the counterfactual ones.
OBSERVED: tuple[str, str] = ("fpr", "fnr")
#: Estimators in words.
ESTIMATOR_NAMES = {
    "ipw": "inverse probability weighting (IPW)",
    "aipw": "doubly robust (AIPW)",
    "plugin": "the outcome model alone (plug-in)",
}


def counterfactual_masks(cohort: Cohort) -> dict[str, NDArray[np.int8]] | None:
    """What becomes of the rates of a result under disclosure control; None without it.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    dict of str to (T,) array, or None
    """
    return treated_masks(cohort, (*COUNTERFACTUAL, *OBSERVED))


@dataclass(frozen=True, eq=False)
class Computed:
    """What was computed of the rows, wherever these are.

    Attributes
    ----------
    estimator : {"ipw", "aipw", "plugin"}
    moments : CellMoments
    masks : dict of str to (T,) array, or None
        From `counterfactual_masks`.
    joint : RateCovariance
        Of the counterfactual rates, without the masked ones.
    estimates : sequence of RateEstimates
        The same, metric by metric.
    observed : sequence of RateEstimates
    propensity : Propensity or None
    overlap : Overlap or None
        As it is, not masked.
    outcome : Outcome or None
    fit_notes : sequence of str
        What was said of the models.
    error_notes : sequence of str
        What standard errors leave out.
    """

    estimator: str
    moments: CellMoments
    masks: dict[str, NDArray[np.int8]] | None
    joint: RateCovariance
    estimates: Sequence[RateEstimates]
    observed: Sequence[RateEstimates]
    propensity: Propensity | None
    overlap: Overlap | None
    outcome: Outcome | None = None
    fit_notes: Sequence[str] = ()
    error_notes: Sequence[str] = ()


def make_result(
    kind: type[Result],
    cohort: Cohort,
    computed: Computed,
    options: Options,
    replicates: Replicates | None = None,
    **more: Any,
) -> Result:
    """Put a result together: rows and counts behind the rates, masks, notes.

    Parameters
    ----------
    kind : type of CounterfactualResult
    cohort : Cohort
    computed : Computed
    options : Options
    replicates : Replicates, optional
        What was asked of them, if anything could be.
    **more
        Further attributes of the result.

    Returns
    -------
    CounterfactualResult
    """
    propensity, estimates = computed.propensity, list(computed.estimates)
    rows = masked_rows(
        _weighted_rows(cohort, computed),
        computed.masks,
        COUNTERFACTUAL,
        cohort,
        _untreated_denominators(cohort, computed.joint),
        treated_told(cohort, COUNTERFACTUAL),
    )
    overlap = masked_overlap(computed.overlap, cohort, propensity)
    notes = (
        *cohort.notes,
        *computed.fit_notes,
        *model_notes(cohort, propensity, computed.outcome),
        *overlap_notes(cohort, propensity, overlap),
        *computed.error_notes,
        *cluster_notes(cohort),
        *(() if replicates is None else replicate_notes(cohort, replicates)),
        *care_notes(cohort, estimates, rows),
        *range_notes(cohort, estimates, rows, computed.estimator),
    )
    return kind(
        cohort=cohort,
        estimates=(*estimates, *computed.observed),
        rows=(*rows, *observed_rows(cohort, list(computed.observed))),
        counts=_untreated_counts(cohort, computed.moments),
        level=options.level,
        interval=options.interval,
        aggregate_interval=options.aggregate_interval,
        seed=0 if replicates is None else replicates.seed,
        notes=notes,
        estimator=ESTIMATOR_NAMES[computed.estimator],
        propensity=None if propensity is None else masked_propensity(cohort, propensity),
        outcome_model=computed.outcome,
        joint=computed.joint,
        overlap=overlap,
        **more,
    )


def _untreated_counts(cohort: Cohort, moments: CellMoments) -> dict[str, Array]:
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


def _untreated_denominators(cohort: Cohort, joint: RateCovariance) -> list[Array]:
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


def _weighted_rows(cohort: Cohort, computed: Computed) -> list[MetricRows]:
    """Rows behind the counterfactual rates, and what has to be said of each."""
    membership, moments, estimator = targets(cohort), computed.moments, computed.estimator
    n = membership @ cohort.groups.sizes
    n_untreated = membership @ moments.by_group(moments.count).sum(axis=(1, 2))
    T = len(n)
    result = []
    for m, (label, what) in enumerate((("cFPR", "non-events"), ("cFNR", "events"))):
        e = computed.estimates[m]
        notes = []
        for t in range(T):
            reason = (
                "no rows"
                if n[t] == 0
                else "no untreated rows"
                if n_untreated[t] == 0
                else f"no {what} among the untreated"
                if estimator == "ipw"
                else f"the scores of {what} do not add up to more than 0"
                + (': estimator="ipw" may have a rate' if estimator == "aipw" else "")
            )
            note = rate_note(e.estimate[t], e.size[t], n[t], reason)
            if isinstance(e, DrawnEstimates) and e.unknown[t]:
                note = "; ".join(filter(None, [note, e.no_variance]))
            notes.append(note)
        result.append(MetricRows(label, computed.joint.rows[m * T : (m + 1) * T], tuple(notes)))
    return result
