"""What a reader of small subgroups' rates has to be careful about, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfair.cohort import Cohort
from cfair.frame import show_some
from cfair.inference.drawn_estimates import DrawnEstimates
from cfair.inference.estimates import RateEstimates
from cfair.inference.replicates import RateDraws
from cfair.nuisance.external import External
from cfair.results.rates import MetricRows

#: Why draws of faircfint give no standard errors.
FAIRCFINT_SPREAD = "the spread of faircfint's draws is no standard error"
#: Replicates for each group below which the test of equal rates loses power.
_ENOUGH = 10


def method_notes(permutes: bool, kind: str | None) -> list[str]:
    """What the estimator assumes, and what its replicates mean.

    Parameters
    ----------
    permutes : bool
        Whether there is a permutation null.
    kind : str or None
        Of bootstrap; None without.

    Returns
    -------
    list of str
    """
    notes = [
        "the outcome models leave the group out: differences between groups that the covariates do "
        "not explain are pulled towards the rate of all rows."
    ]
    if kind == "faircfint":
        notes.append(
            f"{FAIRCFINT_SPREAD}: they have fewer rows than there are, and keep the numbers of "
            "events and calls. bootstrap='auto' gives standard errors, intervals and tests."
        )
    if kind is None:
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


def size_notes(
    cohort: Cohort, estimates: Sequence[DrawnEstimates], boot: RateDraws | None, kind: str | None
) -> list[str]:
    """Where replicates are few for the groups, or hold another number of rows than there are.

    Parameters
    ----------
    cohort : Cohort
    estimates : sequence of DrawnEstimates
    boot : RateDraws or None
    kind : str or None
        Of bootstrap.

    Returns
    -------
    list of str
    """
    if boot is None or kind == "faircfint":
        return []
    notes = []
    with_rate = [int(np.count_nonzero(~np.isnan(e.estimate[: e.n_groups]))) for e in estimates]
    drawn = [e.n_replicates for e in estimates if e.n_replicates is not None]
    groups = max(with_rate)
    if drawn and groups > 1 and min(drawn) < _ENOUGH * groups:
        notes.append(
            f"{min(drawn)} bootstrap replicates are few for the joint variance of {groups} groups: "
            "the tests of equal rates allow for it, and lose power. "
            f"n_boot={_ENOUGH * groups} or more is better."
        )
    if kind == "given" and boot.rows_per_replicate is not None:
        size = float(boot.rows_per_replicate.mean())
        if abs(size / cohort.n_used - 1) > 0.1:
            notes.append(
                f"the given resamples hold {size:,.0f} rows on average, not {cohort.n_used:,}: "
                "standard errors from them are those of so many rows."
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
