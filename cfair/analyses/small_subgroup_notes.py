"""What a reader of small subgroups' rates has to be careful about, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.disclosure import KINDS
from cfair.frame import show_some
from cfair.inference.drawn_estimates import DrawnEstimates
from cfair.inference.estimates import RateEstimates
from cfair.inference.influence import RateCovariance
from cfair.inference.intervals import EDGE
from cfair.inference.replicates import RateDraws
from cfair.nuisance.external import External
from cfair.nuisance.membership import MembershipFit
from cfair.results.rates import MetricRows

Array = NDArray[np.float64]

#: Why draws of faircfint give no standard errors.
FAIRCFINT_SPREAD = "the spread of faircfint's draws is no standard error"
#: Replicates for each group below which the test of equal rates loses power.
_ENOUGH = 10
#: Effective untreated events or non-events from which a group can stand alone.
_ALONE = 30.0
#: Difference in a group's share from which an external population is said to be another, and the
#: ratio: the rate of a small group moves with its share, however little that is of all.
_OTHER_SHARES, _OTHER_RATIO = 0.05, 1.5


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


def agreement_notes(
    cohort: Cohort, estimates: Sequence[RateEstimates], weighted: RateCovariance
) -> list[str]:
    """Groups large enough to stand alone in which weighting alone finds another rate.

    Parameters
    ----------
    cohort : Cohort
    estimates : sequence of RateEstimates
    weighted : RateCovariance
        The same rates by weighting alone.

    Returns
    -------
    list of str
    """
    K, T = cohort.groups.n_groups, len(weighted.estimate) // 2
    parts = []
    for m, (e, label) in enumerate(zip(estimates, ("cFPR", "cFNR"), strict=True)):
        at = slice(m * T, m * T + K)
        other, kish = weighted.estimate[at], weighted.kish[at]
        se = np.sqrt(np.maximum(np.diag(weighted.covariance)[at], 0.0))
        apart = (kish >= _ALONE) & (np.abs(e.estimate[:K] - other) > 2 * se)
        parts += [
            f"{label} of {cohort.groups.names[k]} {e.estimate[k]:.3f} ({other[k]:.3f})"
            for k in np.flatnonzero(apart)
        ]
    if not parts:
        return []
    return [
        "weighting alone, in parentheses, finds other rates where groups are large enough for it: "
        f"{show_some(parts, 6)}. There the covariates do not explain the differences between "
        "groups; these intervals and tests are about the pulled rates, and do not cover the rates "
        "of such groups. Use Audit.counterfactual for them."
    ]


def lowered_notes(cohort: Cohort, lower: Array, low: float) -> list[str]:
    """Name the rare groups whose membership has a lower bound of its own.

    Parameters
    ----------
    cohort : Cohort
    lower : (K,) array
        Lower bound of each group.
    low : float
        That of groups that are not rare.

    Returns
    -------
    list of str
    """
    groups = cohort.groups
    lowered = np.flatnonzero((lower < low) & (groups.sizes > 0))
    if not len(lowered):
        return []
    hidden = np.zeros(groups.n_groups, dtype=bool)
    if cohort.protection is not None:  # a quarter of the share of masked rows is their number
        hidden = cohort.protection.masks(np.eye(groups.n_groups), KINDS["n"]) > 0
    parts = [
        f"{groups.names[k]} lowered" + ("" if hidden[k] else f" to {_positional(lower[k])}")
        for k in lowered
    ]
    return [
        f"membership bound of {show_some(parts, 6)}, a quarter of its share, below the {low:g} of "
        "groups that are not so rare."
    ]


def truncation_notes(cohort: Cohort, membership: MembershipFit, low: float) -> list[str]:
    """Say where bounds of rare groups are lower, and where many rows are truncated.

    Parameters
    ----------
    cohort : Cohort
    membership : MembershipFit
    low : float
        Lower bound of groups that are not rare.

    Returns
    -------
    list of str
    """
    groups, notes = cohort.groups, lowered_notes(cohort, membership.lower, low)
    resting = np.flatnonzero(membership.n_raised > cohort.n_used / 2)
    if len(resting):
        notes.append(
            f"membership of {show_some([groups.names[k] for k in resting], 6)} is truncated in "
            "more than half of the rows: there its rates rest on the bound, not on the data. See "
            "whether they hold with truncation=(1e-6, 1 - 1e-6), or merge it with another group."
        )
    share = membership.n_truncated / cohort.n_used
    if share > 0.1:
        notes.append(
            f"the probability of some group is truncated in {100 * share:.0f}% of the rows: "
            "covariates all but exclude groups there, or there are many small groups. Merge "
            "groups, or use fewer covariates."
        )
    return notes


def _positional(value: float) -> str:
    """Two digits, without an exponent."""
    return np.format_float_positional(value, precision=2, fractional=False, trim="-")


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


def external_notes(cohort: Cohort, external: External, permutes: bool) -> list[str]:
    """What borrowing leaves out, and where the external people are others.

    Parameters
    ----------
    cohort : Cohort
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
    if external.mass is not None:
        groups = cohort.groups
        here = np.bincount(groups.codes, cohort.weights, groups.n_groups)
        own, other = here / here.sum(), external.mass / external.mass.sum()
        low, high = np.minimum(own, other), np.maximum(own, other)
        differs = (high - low > _OTHER_SHARES) | (high > _OTHER_RATIO * low)
        if cohort.protection is not None:  # a share of masked rows is their number
            differs &= cohort.protection.masks(np.eye(groups.n_groups), KINDS["n"]) == 0
        apart = [
            f"{groups.names[k]} {100 * other[k]:.2g}% ({100 * own[k]:.2g}%)"
            for k in np.argsort(low - high, kind="stable")
            if differs[k]
        ]
        if apart:
            weighted = " Give external_weights= if it is a sample with weights." * (
                cohort.weights is not None
            )
            notes.append(
                f"external has other shares of the groups than the cohort, in parentheses: "
                f"{show_some(apart, 6)}. What is borrowed moves the rates.{weighted}"
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
        above = np.flatnonzero(e.estimate[:K] > 1 + EDGE)
        if len(above):
            named = [f"{cohort.groups.names[k]} ({e.estimate[k]:.3f})" for k in above]
            notes.append(
                f"{row.label} is above 1 in {show_some(named, limit)}: nothing keeps a product of "
                "shares below 1. The covariates do not fit these groups; read it as close to 1."
            )
    return notes
