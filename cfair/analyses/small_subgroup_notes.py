"""What a reader of small subgroups' rates has to be careful about, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfair.cohort import Cohort
from cfair.frame import show_some
from cfair.inference.estimates import RateEstimates
from cfair.inference.replicates import RateDraws
from cfair.nuisance.external import External
from cfair.results.rates import MetricRows


def method_notes(permutes: bool, boot: RateDraws | None) -> list[str]:
    """What the estimator assumes, and what its replicates mean.

    Parameters
    ----------
    permutes : bool
        Whether there is a permutation null.
    boot : RateDraws or None

    Returns
    -------
    list of str
    """
    notes = [
        "the outcome models leave the group out: differences between groups that the covariates do "
        "not explain are pulled towards the rate of all rows."
    ]
    if boot is None:
        notes.append(
            "this estimator has no influence function: without a bootstrap there are no standard "
            "errors, intervals and tests. n_boot=200 gives them."
        )
    if permutes:
        notes.append(
            "the permutation null makes the groups independent of everything, covariates, base "
            "rates and scores included, and not of the error rates alone; the test of equal rates "
            "does not."
        )
    return notes


def external_notes(external: External, permutes: bool) -> list[str]:
    """What borrowing leaves out.

    Parameters
    ----------
    external : External
    permutes : bool
        Whether there is a permutation null.

    Returns
    -------
    list of str
    """
    notes = []
    if external.fit is None:
        notes.append("the external probabilities count as known, in the replicates too.")
    else:
        notes.append(
            "the external model is fitted once: standard errors leave out its sampling error."
        )
    if permutes:
        notes.append(
            "permuted labels have no relation to the covariates while the external probabilities "
            "keep theirs, so the null borrows another share than the estimate."
        )
    return notes


def range_notes(
    cohort: Cohort, estimates: Sequence[RateEstimates], rows: Sequence[MetricRows], limit: int = 6
) -> list[str]:
    """Name the groups whose rate is above 1.

    Parameters
    ----------
    cohort : Cohort
    estimates : sequence of RateEstimates
    rows : sequence of MetricRows
    limit : int, default 6
        Groups named at most, per metric.

    Returns
    -------
    list of str
    """
    notes = []
    K = cohort.groups.n_groups
    for e, row in zip(estimates, rows, strict=True):
        above = np.flatnonzero(e.estimate[:K] > 1)
        if len(above):
            named = [f"{cohort.groups.names[k]} ({e.estimate[k]:.3f})" for k in above]
            notes.append(
                f"{row.label} is above 1 in {show_some(named, limit)}: nothing keeps a product of "
                "shares below 1. The covariates do not fit these groups; read it as close to 1."
            )
    return notes
