"""Disclosure control of counterfactual results: masked rates become undefined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.analyses.observed import rate_masks, targets
from cfair.cohort import Cohort
from cfair.disclosure import (
    KINDS,
    MASKED,
    Protection,
    small_masks,
    strictest,
    told_small,
    why_masked,
    why_rate_masked,
)
from cfair.estimators.confusion import RATE_CELLS
from cfair.estimators.small_subgroup import SmallSubgroupSums
from cfair.inference.influence import RateCovariance
from cfair.inference.replicates import RateDraws
from cfair.nuisance.overlap import Overlap
from cfair.nuisance.propensity import Propensity
from cfair.results.rates import MetricRows

Array = NDArray[np.float64]
Masks = NDArray[np.int8]

#: Values of a column up to which its mean may be solved for how many rows have each.
FEW_VALUES = 12
#: Why figures of a propensity that knows the groups are masked.
ARMS_TOLD = f"{MASKED}would give how many of a group are treated"
#: The observed rate that is of the same rows as a counterfactual one.
_SAME: dict[str, str] = {"cfpr": "fpr", "cfnr": "fnr"}


def untreated(kind: Array) -> Array:
    """Cells of outcome, call and treatment: those of outcome and call, without treatment.

    Parameters
    ----------
    kind : (2, 2) array of 0 and 1

    Returns
    -------
    (2, 2, 2) array
    """
    return np.stack([kind, np.zeros_like(kind)], axis=-1)


def treated_masks(cohort: Cohort, metrics: Sequence[str]) -> dict[str, Masks] | None:
    """What becomes of counterfactual and observed rates; None without disclosure control.

    A counterfactual rate is shown where the share of errors among the untreated, unweighted, may
    be: weights that hardly differ would give the counts away.

    Parameters
    ----------
    cohort : Cohort
        With a treatment.
    metrics : sequence of str
        "cfpr", "cfnr", "fpr", "fnr".

    Returns
    -------
    dict of str to (T,) array, or None
    """
    protection = cohort.treated_protection
    if protection is None:
        return None
    member, found = targets(cohort), {}
    for metric in metrics:
        observed = rate_masks(cohort, _SAME.get(metric, metric))
        if metric in _SAME:
            cells = [untreated(part) for part in RATE_CELLS[_SAME[metric]].indicators()]
            own = protection.rate_masks(member, *cells)
            n = protection.masks(member, KINDS["n"])
            found[metric] = strictest(own, np.where(n > 0, n, 0))
        else:
            found[metric] = observed
    return found


def small_subgroup_masks(cohort: Cohort, metrics: Sequence[str]) -> dict[str, Masks] | None:
    """The same for small subgroups, whose rates are of all rows, treated or not.

    Parameters
    ----------
    cohort : Cohort
    metrics : sequence of str

    Returns
    -------
    dict of str to (T,) array, or None
    """
    protection = cohort.protection
    if protection is None:
        return None
    n = protection.masks(targets(cohort), KINDS["n"])
    return {m: strictest(rate_masks(cohort, _SAME.get(m, m)), n * (m in _SAME)) for m in metrics}


def intervention_masks(
    cohort: Cohort, flagged: NDArray[np.integer]
) -> tuple[dict[str, Masks], Protection] | None:
    """What becomes of rates under an intervention on membership, and of observed ones beside them.

    The rule judged is another call of the same patients: its counts may be shown where, with all
    that is shown of the declared call, no small count follows from them.

    Parameters
    ----------
    cohort : Cohort
    flagged : (n,) array of 0 and 1
        The rule's call of every row in its own group.

    Returns
    -------
    masks : dict of str to (K,) array
    protection : Protection
        Of cells of outcome, declared call, and the rule's call in place of treatment.
    """
    if cohort.protection is None:
        return None
    K = cohort.groups.n_groups
    cell = (cohort.groups.codes * 2 + cohort.y.astype(np.intp)) * 2 + cohort.s
    cells = np.bincount(cell * 2 + flagged, minlength=8 * K).reshape(-1, 2, 2, 2)
    member, size = np.eye(K), np.argsort(-cohort.groups.sizes, kind="stable")
    kinds = KINDS["non_events"], KINDS["events"]
    wanted = [(member[[k]], kind) for k in size for kind in kinds]
    wanted.append((cohort.partitions[0], KINDS["n"]))
    both = cohort.protection.with_treatment(
        cells.astype(np.float64), cohort.partitions, wanted=wanted
    )
    n = both.masks(member, KINDS["n"])
    found: dict[str, Masks] = {}
    for metric, kind in zip(("fpr", "fnr"), kinds, strict=True):
        unflagged = untreated(kind)
        own = both.rate_masks(member, unflagged, unflagged + unflagged[..., ::-1])
        found[metric], found[f"c{metric}"] = own, strictest(own, n)
    return found, both


def masked_covariance(
    joint: RateCovariance, masks: Mapping[str, Masks] | None, metrics: Sequence[str]
) -> RateCovariance:
    """Rates with their covariance, the masked ones undefined.

    Parameters
    ----------
    joint : RateCovariance
    masks : dict of str to (T,) array, or None
    metrics : sequence of str

    Returns
    -------
    RateCovariance
    """
    if masks is None:
        return joint
    lost = np.concatenate([masks[m] for m in metrics]) > 0
    return replace(
        joint,
        estimate=np.where(lost, np.nan, joint.estimate),
        covariance=np.where(lost[:, None] | lost[None, :], np.nan, joint.covariance),
        kish=np.where(lost, 0.0, joint.kish),
        rows=np.where(lost, np.nan, joint.rows),
        clusters=None if joint.clusters is None else np.where(lost, np.nan, joint.clusters),
    )


def masked_rows(
    rows: Sequence[MetricRows],
    masks: Mapping[str, Masks] | None,
    metrics: Sequence[str],
    cohort: Cohort,
    denominators: Sequence[Array] | None = None,
    told: Mapping[str, Sequence[str]] | None = None,
) -> list[MetricRows]:
    """Why rates are masked, and denominators as they may be shown.

    Parameters
    ----------
    rows : sequence of MetricRows
    masks : dict of str to (T,) array, or None
    metrics : sequence of str
    cohort : Cohort
    denominators : sequence of (T,) arrays, optional
        With their masks; where there are none, the denominator of a masked rate is masked.
    told : mapping of str to sequence of str, optional
        By metric, which count beside each rate is shown to be small.

    Returns
    -------
    list of MetricRows
    """
    if masks is None:
        return list(rows)
    below, found = cohort.suppress_below or 0, []
    for k, (r, metric) in enumerate(zip(rows, metrics, strict=True)):
        mask = masks[metric]
        shown = np.where(mask > 0, np.nan, r.denominator)
        nothing = [""] * len(mask)
        notes = tuple(
            why_rate_masked(m, below, few) or n
            for m, few, n in zip(mask, (told or {}).get(metric, nothing), r.notes, strict=True)
        )
        known = shown if denominators is None else denominators[k]
        found.append(MetricRows(r.label, known, notes))
    return found


def treated_told(cohort: Cohort, metrics: Sequence[str]) -> dict[str, list[str]] | None:
    """Which count of a rate stands beside it as a small one, where tables count the untreated.

    Parameters
    ----------
    cohort : Cohort
    metrics : sequence of str

    Returns
    -------
    dict of str to list of str, or None
        As `cfair.disclosure.told_small`; None without disclosure control.
    """
    protection = cohort.treated_protection
    if protection is None:
        return None
    member, found = targets(cohort), {}
    n, d0, events = (
        protection.masks(member, kind)
        for kind in (KINDS["n"], untreated(KINDS["n"]), untreated(KINDS["events"]))
    )
    for metric in metrics:
        told = {"patients": n} | ({"untreated patients": d0} if metric in _SAME else {})
        found[metric] = told_small(
            told | ({"untreated events": events} if metric == "cfnr" else {})
        )
    return found


def masked_draws(draws: RateDraws | None, masks: Mapping[str, Masks] | None) -> RateDraws | None:
    """Replicates without the masked rates; Wald statistics go when a group of theirs does.

    Parameters
    ----------
    draws : RateDraws or None
    masks : dict of str to (T,) array, or None

    Returns
    -------
    RateDraws or None
    """
    if draws is None or masks is None:
        return draws
    rates = {m: np.where(masks[m] > 0, np.nan, r) for m, r in draws.rates.items()}
    whole = not any((masks[m] > 0).any() for m in rates)
    return replace(draws, rates=rates, wald=draws.wald if whole else None)


def masked_sums(
    sums: SmallSubgroupSums,
    cohort: Cohort,
    masks: Mapping[str, Masks] | None,
    metrics: Sequence[str],
) -> SmallSubgroupSums:
    """What rates of small subgroups are made of, without that of the masked ones.

    Parameters
    ----------
    sums : SmallSubgroupSums
    cohort : Cohort
    masks : dict of str to (T,) array, or None
    metrics : sequence of str

    Returns
    -------
    SmallSubgroupSums
    """
    if masks is None or cohort.protection is None:
        return sums
    K = cohort.groups.n_groups
    lost = np.stack([masks[m][:K] for m in metrics]) > 0
    n = cohort.protection.masks(np.eye(K), KINDS["n"])
    return replace(
        sums,
        numerator=np.where(lost, np.nan, sums.numerator),
        denominator=np.where(lost, np.nan, sums.denominator),
        size=np.where(n > 0, np.nan, sums.size),
    )


def masked_overlap(
    found: Overlap | None, cohort: Cohort, propensity: Propensity | None
) -> Overlap | None:
    """Overlap of groups whose rows and untreated rows may be shown, and balance of numbers.

    The mean of a column of 0 and 1, times the rows, is a count that nothing protects.

    Parameters
    ----------
    found : Overlap or None
    cohort : Cohort
    propensity : Propensity or None

    Returns
    -------
    Overlap or None
    """
    protection = cohort.treated_protection
    if found is None or protection is None:
        return found
    K = cohort.groups.n_groups
    member = np.vstack([np.eye(K), np.ones((1, K))])
    n = protection.masks(member, KINDS["n"])
    arms = np.column_stack([_arm(protection, member, d) for d in (0, 1)])
    effective, propensities = found.effective.copy(), found.propensities.copy()
    for name, mask in (("n", n[:K]), ("untreated", arms[:K, 0])):
        effective[name] = effective[name].astype("Int64").mask(mask > 0)
    lost = (n[:K] > 0) | (arms[:K, 0] > 0)
    rest = ["n_effective", "share", "largest_weight"]
    effective.loc[lost, rest] = np.nan
    own = arms.ravel() > 0
    telling_all, telling_each = _tells_arms(cohort, propensity)
    shares = np.repeat([telling_each] * K + [telling_all], 2)
    counts = ["n", "truncated_low", "truncated_high"]
    cut = small_masks([found.truncated_low, found.truncated_high], protection.below)
    figures = [c for c in propensities if c not in ("group", "treated", *counts)]
    propensities[counts] = propensities[counts].astype("Int64")
    propensities.loc[own, counts] = pd.NA
    propensities.loc[own | shares, figures] = np.nan
    propensities["note"] = [
        why_masked(int(mask), protection.below) or ARMS_TOLD * bool(share)
        for mask, share in zip(arms.ravel(), shares, strict=True)
    ]
    # how many rows were cut in each group is more than these counts protect
    propensities[counts[1:]] = propensities[counts[1:]].mask(propensities[counts[1:]] > 0)
    balance = found.balance.copy()
    if propensity is not None and propensity.design is not None:
        design = propensity.design
        telling = [
            name
            for name, x in zip(design.names, np.asarray(design.matrix).T, strict=True)
            if gives_counts(x, cohort.groups.codes)
        ]
        # a mean of whole numbers, to all its digits, has the number of rows as its denominator
        hidden = balance["term"].isin(telling) | bool((n[-1] > 0) | (arms[-1] > 0).any())
        balance.loc[hidden, balance.columns[1:]] = np.nan
        balance["note"] = np.where(hidden, f"{MASKED}its mean would give a count", "")
    return replace(
        found,
        effective=effective,
        propensities=propensities,
        balance=balance,
        truncated_low=int(cut[0]),
        truncated_high=int(cut[1]),
    )


def arms_masked(cohort: Cohort) -> bool:
    """Whether the treated or the untreated of some group are masked.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    bool
    """
    protection = cohort.treated_protection
    if protection is None:
        return False
    member = cohort.groups.target_matrix
    return any(bool((_arm(protection, member, d) > 0).any()) for d in (0, 1))


def _tells_arms(cohort: Cohort, propensity: Propensity | None) -> tuple[bool, bool]:
    """Whether propensities of all rows, and those of single groups, give masked arms.

    Fitted to groups alone, those of a group are its treated share; the fit's sums over attributes
    are those of the data, so that shares of some groups give those of others.
    """
    if propensity is None or not arms_masked(cohort):
        return False, False
    attributes, columns = set(cohort.groups.attributes), propensity.columns
    fitted, codes = propensity.fitted, cohort.groups.codes
    flat = len(fitted) == len(codes) and gives_counts(fitted, codes)
    if columns is None:
        return flat, flat
    return flat or bool(attributes & set(columns)), flat or set(columns) <= attributes


def masked_propensity(cohort: Cohort, propensity: Propensity) -> Propensity:
    """A propensity whose coefficients are not shown where they give masked arms.

    Parameters
    ----------
    cohort : Cohort
    propensity : Propensity

    Returns
    -------
    Propensity
    """
    told, _ = _tells_arms(cohort, propensity)
    return replace(propensity, masked=ARMS_TOLD) if told else propensity


def gives_counts(x: Array, codes: NDArray[np.integer]) -> bool:
    """Whether the mean of a column is, or may be turned into, a number of rows.

    That is so of columns of few values, however they are coded, and of those that are constant
    within a group, as products with an attribute are.

    Parameters
    ----------
    x : (n,) array
    codes : (n,) array of int
        Groups.

    Returns
    -------
    bool

    Examples
    --------
    >>> codes, age = np.repeat([0, 1], 20), np.arange(40.0)
    >>> gives_counts(age, codes), gives_counts(codes, codes), gives_counts(age * codes, codes)
    (False, True, True)
    """
    if len(np.unique(x)) <= FEW_VALUES:
        return True
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    least, most = (f.reduceat(x[order], starts) for f in (np.minimum, np.maximum))
    return bool(((least == most) & (np.diff(starts, append=len(x)) > 1)).any())


def _arm(protection: Protection, member: Array, d: int) -> Masks:
    kind = untreated(KINDS["n"])
    return protection.masks(member, kind if d == 0 else kind[..., ::-1])
