"""Table 1: patients of every group described by their covariates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.analyses.masking import FEW_VALUES, untreated
from cfair.cohort import Cohort
from cfair.disclosure import (
    KINDS,
    REVEALING,
    SMALL,
    Protection,
    closed,
    policy,
    protect,
    why_masked,
    written,
)
from cfair.errors import DataError
from cfair.frame import show_some
from cfair.results.report import cohort_facts
from cfair.results.table_one import TableOneResult
from cfair.roles import Declared

Array = NDArray[np.float64]
Masks = NDArray[np.int8]

#: A column of text with more levels is a name, and not a category.
MOST_LEVELS = 20
_MISSING = "missing"


def table_one(
    cohort: Cohort,
    declared: Declared,
    covariates: Sequence[str] | None = None,
    *,
    by: str | None = None,
    median: Sequence[str] = (),
    differences: bool = False,
) -> TableOneResult:
    """Describe the patients of every group.

    Parameters
    ----------
    cohort : Cohort
    declared : Declared
        Of which the cohort has rows.
    covariates, by, median, differences
        As for `cfair.Audit.table_one`.

    Returns
    -------
    TableOneResult

    Raises
    ------
    DataError
        If there is no such column or attribute.
    """
    groups = cohort.groups
    attributes = list(groups.attributes)
    if by is not None and by not in attributes:
        raise DataError(
            f"by: {by!r} is not an attribute of this audit. Its attributes are "
            f"{', '.join(attributes)}; None is for their intersection."
        )
    _, *levels, own = cohort.partitions
    names = groups.names if by is None else groups.level_names[attributes.index(by)]
    inner = own if by is None else levels[attributes.index(by)]
    member = np.vstack([np.ones((1, groups.n_groups)), inner])
    shown = ("Overall", *names)
    chosen, notes = _columns(cohort, declared, covariates, by)
    if cohort.protection is not None:
        chosen, more = _without_calls(cohort, declared, chosen)
        notes += more
    unknown = [name for name in median if name not in chosen]
    if unknown:
        raise DataError(f"median names {show_some(unknown, 6)}, which is no covariate here.")
    n = member @ groups.sizes.astype(np.float64)
    hidden = np.zeros(len(member), dtype=np.int8)
    if cohort.protection is not None:
        hidden = cohort.protection.masks(member, KINDS["n"])
    below = cohort.suppress_below or 0
    rows = _rows("", "", "n", shown, below, hidden, count=written(n, hidden, below))
    for name in chosen:
        values = _values(cohort, declared, name)
        if pd.api.types.is_numeric_dtype(values) and values.nunique() > 2:
            rows += _numeric(cohort, name, values, member, shown, name in median, differences)
        else:
            rows += _categories(cohort, declared, name, values, member, shown, differences)
    frame = pd.DataFrame(rows)
    frame["count"] = frame["count"].astype("Int64")
    notes = [
        "Numbers are mean (SD), or median [IQR]; categories n (%) of those with a value.",
        *notes,
        *(
            ["SMD: largest standardised difference between two groups (Yang and Dalton 2012)."]
            * differences
        ),
        *(["Counts are of rows; sampling weights are not used."] * (cohort.weights is not None)),
    ]
    said = ""
    if cohort.suppress_below is not None:
        lost = frame["note"].str.startswith("masked")
        small = lost & frame["note"].str.contains("fewer")
        counts = np.where(small, -1.0, np.where(lost, np.nan, 0.0))
        said = (
            policy(below, {"figures": counts})
            .replace("count", "figure")
            .replace("figures below", "counts below")
        )
    return TableOneResult(
        frame, shown, tuple(cohort_facts(cohort)), tuple(notes), said, differences
    )


def _columns(
    cohort: Cohort, declared: Declared, covariates: Sequence[str] | None, by: str | None
) -> tuple[list[str], list[str]]:
    """Names of the covariates, and what was left out."""
    attributes = list(cohort.groups.attributes)
    if covariates is not None:
        wanted = [covariates] if isinstance(covariates, str) else list(dict.fromkeys(covariates))
        for name in wanted:
            if name not in declared.by_name:
                declared.prepared(name)  # refuses what is not there
        return wanted, []
    aside = {p.name for p in (declared.cluster, declared.weights) if p is not None}
    roles = [name for name in declared.by_name if name not in attributes]
    others = [a for a in attributes if by is not None and a != by]
    known = {*aside, *roles, *attributes}
    rest = [name for name in map(str, declared.table.names) if name not in known]
    left: list[str] = []
    found: list[str] = []
    for name in rest:
        try:
            values = _values(cohort, declared, name)
        except DataError:
            left.append(name)
            continue
        words = not pd.api.types.is_numeric_dtype(values)
        (left if words and values.nunique() > MOST_LEVELS else found).append(name)
    notes = []
    if left:
        notes.append(
            f"Left out: {show_some(left, 6)} (neither numbers nor {MOST_LEVELS} levels or fewer)."
        )
    return [*others, *roles, *found], notes


def _without_calls(
    cohort: Cohort, declared: Declared, names: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Leave out few-valued columns that tell outcome, call or treatment, whose counts are masked.

    A score of points is one: its numbers of patients add up to those flagged, and are protected
    apart from these.
    """
    own = {cohort.outcome_name, cohort.prediction_name, cohort.treatment_name}
    own |= set(cohort.groups.attributes)
    roles = [v for v in (cohort.y, cohort.s, cohort.d) if v is not None]
    kept: list[str] = []
    left: list[str] = []
    for name in names:
        codes, levels = pd.factorize(_values(cohort, declared, name), use_na_sentinel=False)
        told = name not in own and 1 < len(levels) <= MOST_LEVELS
        told = told and any(
            not np.any(np.bincount(codes, v) % np.bincount(codes)) and v.any() and not v.all()
            for v in roles
        )
        (left if told else kept).append(name)
    if not left:
        return kept, []
    return kept, [
        f"Left out by suppress_below=: {show_some(left, 6)} (few values, which tell the call, the "
        "outcome or the treatment: their numbers of patients would give masked counts)."
    ]


def _values(cohort: Cohort, declared: Declared, name: str) -> pd.Series:
    """A covariate in the rows of the cohort; missing values as NaN."""
    if name == cohort.outcome_name:
        return pd.Series(cohort.y.astype(float))
    if name == cohort.treatment_name and cohort.d is not None:
        return pd.Series(cohort.d.astype(float))
    if name == cohort.prediction_name:
        return pd.Series(cohort.s.astype(float))
    if name == cohort.score_name and cohort.score is not None:
        return pd.Series(cohort.score)
    groups = cohort.groups
    if name in groups.attributes:
        k = groups.attributes.index(name)
        at = groups.level_codes[k][groups.codes]
        return pd.Series(pd.Categorical.from_codes(at, pd.Index(groups.level_names[k])))
    column = pd.Series(declared.prepared(name)).iloc[cohort.rows].reset_index(drop=True)
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column):
        return pd.Series(column.to_numpy(dtype=float, na_value=np.nan))
    return column


def _rows(
    covariate: str,
    level: str,
    statistic: str,
    groups: Sequence[str],
    below: int,
    masks: Masks,
    **figures: Array,
) -> list[dict[str, Any]]:
    """A row per group of one line of the table."""
    nothing = np.full(len(groups), np.nan)
    names = ("count", "share", "centre", "spread_low", "spread_high", "smd")
    parts = {name: figures.get(name, nothing) for name in names}
    rows = []
    for j, group in enumerate(groups):
        values = {name: float(part[j]) for name, part in parts.items()}
        values["count"] = np.nan if not values["count"] >= 0 else values["count"]
        rows.append(
            {
                "covariate": covariate,
                "level": level,
                "group": group,
                "statistic": statistic,
                **values,
                "note": why_masked(int(masks[j]), below),
                "below": below,
            }
        )
    return rows


def _protection(cohort: Cohort, counts: Array) -> Protection | None:
    """What may be shown of rows by group and category, group sizes as in all other results."""
    if cohort.protection is None or cohort.suppress_below is None:
        return None
    member = cohort.groups.target_matrix
    kept = member[cohort.protection.masks(member, KINDS["n"]) > 0]
    return protect(counts, cohort.partitions, cohort.suppress_below, kept=kept)


def _masks(
    found: Protection | None, member: Array, kind: Array, whole: Array
) -> tuple[Masks, Masks]:
    """What becomes of counts of a category, and of their shares."""
    if found is None:
        none = np.zeros(len(member), dtype=np.int8)
        return none, none
    return found.masks(member, kind), found.rate_masks(member, kind, whole)


def _numeric(
    cohort: Cohort,
    name: str,
    values: pd.Series,
    member: Array,
    groups: Sequence[str],
    median: bool,
    differences: bool,
) -> list[dict[str, Any]]:
    """Mean and SD, or median and quartiles, and the missing values."""
    x, below = values.to_numpy(float), cohort.suppress_below or 0
    lost, K = np.isnan(x), cohort.groups.n_groups
    levels, codes = np.unique(x[~lost], return_inverse=True)
    each = np.zeros(len(x), dtype=np.intp)
    each[~lost] = codes
    # few values, as of a count, can be solved for how many patients have each
    L = len(levels) if cohort.protection is not None and len(levels) <= FEW_VALUES else 1
    counts = np.zeros((K, L + 1))
    np.add.at(counts, (cohort.groups.codes, np.where(lost, L, each if L > 1 else 0)), 1)
    found = _protection(cohort, counts)
    whole = np.ones(L + 1)
    whole[L] = 0
    masks = _masks(found, member, whole, np.ones(L + 1))[0]
    if cohort.protection is not None and found is not None:
        # without its number of values a mean gives no sum away
        n = cohort.protection.masks(member, KINDS["n"])
        masks = np.where(masks == SMALL, SMALL, n).astype(np.int8)
        telling = _telling(cohort, name, member, each, lost, len(levels))
        for kind in np.eye(L + 1)[: L if L > 1 else 0]:
            telling |= found.masks(member, kind) > 0
        masks = np.where((masks == 0) & telling, REVEALING, masks).astype(np.int8)
    unit = int(np.frexp(np.abs(x[~lost]).max(initial=0.0))[1])
    x = np.ldexp(x, -unit)  # no square overflows
    stats = np.full((4, len(member)), np.nan)
    mean, at = np.full(len(member), np.nan), range(len(member))
    for j, target in enumerate(member):
        inside = x[(target[cohort.groups.codes] > 0) & ~lost]
        if len(inside) and not masks[j]:
            sd = inside.std(ddof=1) if len(inside) > 1 else np.nan
            mean[j] = inside.mean()
            stats[:2, j] = mean[j], sd
            if median:
                stats[0, j], stats[2, j], stats[3, j] = np.quantile(inside, [0.5, 0.25, 0.75])
    smd = np.full(len(member), np.nan)
    if differences:
        smd[:] = _largest([(mean[j : j + 1], stats[1:2, j : j + 1] ** 2) for j in at[1:]])
    stats = np.ldexp(stats, unit)
    low, high = (stats[2], stats[3]) if median else (stats[1], stats[1])
    kind = "median [IQR]" if median else "mean (SD)"
    rows = _rows(
        name, "", kind, groups, below, masks,
        centre=stats[0], spread_low=low, spread_high=high, smd=smd,
    )  # fmt: skip
    return rows + _missing(name, counts, found, member, groups, below)


def _telling(
    cohort: Cohort,
    name: str,
    member: Array,
    codes: NDArray[np.intp],
    lost: NDArray[np.bool_],
    n_levels: int,
) -> NDArray[np.bool_]:
    """Groups that have few of the column's values, some of them in few patients."""
    assert cohort.protection is not None
    below, hidden = cohort.protection.below, np.zeros(len(member), dtype=bool)
    for j, target in enumerate(member):
        inside = (target[cohort.groups.codes] > 0) & ~lost
        n = np.bincount(codes[inside], minlength=n_levels)
        n = n[n > 0]
        hidden[j] = len(n) <= FEW_VALUES and bool((n < below).any())
    if name == cohort.score_name:  # as the mean score of a performance
        for kind in ("events", "positive", "right"):
            hidden |= cohort.protection.rate_masks(member, KINDS[kind], KINDS["n"]) > 0
    return closed(member[:, cohort.groups.sizes > 0], hidden)


def _missing(
    name: str,
    counts: Array,
    found: Protection | None,
    member: Array,
    groups: Sequence[str],
    below: int,
) -> list[dict[str, Any]]:
    """A line for missing values, if there are any; they are in the last column of the counts."""
    if not counts[:, -1].any():
        return []
    kind = np.zeros(counts.shape[1])
    kind[-1] = 1
    masks, of_share = _masks(found, member, kind, np.ones(len(kind)))
    count, n = member @ counts[:, -1], member @ counts.sum(axis=1)
    share = np.where((n > 0) & (of_share == 0), count / np.maximum(n, 1), np.nan)
    shown = written(count, masks, below)
    return _rows(name, _MISSING, "missing, n (%)", groups, below, masks, count=shown, share=share)


def _categories(
    cohort: Cohort,
    declared: Declared,
    name: str,
    values: pd.Series,
    member: Array,
    groups: Sequence[str],
    differences: bool,
) -> list[dict[str, Any]]:
    """Numbers and shares of the levels; of two levels of a number only the higher."""
    below, K = cohort.suppress_below or 0, cohort.groups.n_groups
    found = pd.Categorical(values)
    levels, codes = list(found.categories), np.asarray(found.codes)
    if len(levels) > MOST_LEVELS:
        raise DataError(
            f"covariate {name!r} has {len(levels)} levels, more than {MOST_LEVELS}. Merge levels, "
            "or leave it out."
        )
    L = len(levels)
    counts = np.zeros((K, L + 1))
    np.add.at(counts, (cohort.groups.codes, np.where(codes < 0, L, codes)), 1)
    lost = bool(counts[:, -1].any())
    used = counts if lost else counts[:, :-1]
    protection = _protection(cohort, used)
    number = pd.api.types.is_numeric_dtype(values)
    names = [f"{v:g}" if number else str(v) for v in levels]
    whole = np.ones(used.shape[1])
    whole[L:] = 0
    known = member @ counts[:, :L].sum(axis=1)
    smd = np.full(len(member), np.nan)
    if differences:
        smd[:] = _category_difference(member[1:] @ counts[:, :L], protection, member[1:], whole)
    rows: list[dict[str, Any]] = []
    for k in [L - 1] if number and L == 2 else range(L):
        kind = np.zeros(used.shape[1])
        kind[k] = 1
        masks, of_share = _masks(protection, member, kind, whole)
        role = _role_masks(cohort, name, member)
        if role is not None and L == 2:  # as in all other results
            masks = of_share = role
        count = member @ counts[:, k]
        share = np.where((known > 0) & (of_share == 0), count / np.maximum(known, 1), np.nan)
        rows += _rows(
            name, names[k], "n (%)", groups, below, masks,
            count=written(count, masks, below), share=share, smd=smd,
        )  # fmt: skip
    return rows + (_missing(name, used, protection, member, groups, below) if lost else [])


def _role_masks(cohort: Cohort, name: str, member: Array) -> Masks | None:
    """Masks of outcome, call and treatment, whose counts other results show as well."""
    if cohort.protection is None:
        return None
    if name == cohort.outcome_name:
        return cohort.protection.rate_masks(member, KINDS["events"], KINDS["n"])
    if name == cohort.prediction_name:
        return cohort.protection.rate_masks(member, KINDS["positive"], KINDS["n"])
    if name == cohort.treatment_name and cohort.treated_protection is not None:
        whole = np.ones((2, 2, 2))
        return cohort.treated_protection.rate_masks(member, whole - untreated(KINDS["n"]), whole)
    return None


def _category_difference(
    counts: Array, found: Protection | None, member: Array, whole: Array
) -> float:
    """Largest standardised difference of the shares, over groups of which all are shown."""
    stats = []
    for j, row in enumerate(counts):
        total = row.sum()
        hidden = found is not None and any(
            found.rate_masks(member[j : j + 1], np.eye(len(whole))[k], whole)[0] > 0
            for k in range(counts.shape[1])
        )
        if total == 0 or hidden:
            stats.append((np.full(counts.shape[1] - 1, np.nan), np.eye(counts.shape[1] - 1)))
            continue
        p = row[1:] / total
        stats.append((p, np.diag(p) - np.outer(p, p)))
    return _largest(stats)


def _largest(stats: Sequence[tuple[Array, Array]]) -> float:
    """Largest Mahalanobis distance of two groups, by the mean of their covariances."""
    best = np.nan
    for (a, A), (b, B) in combinations(stats, 2):
        S = (A + B) / 2
        if np.isnan(a).any() or np.isnan(b).any() or np.isnan(S).any() or not a.size:
            continue
        d = a - b
        squared = float(d @ np.linalg.pinv(S) @ d)
        best = np.fmax(best, np.sqrt(max(squared, 0.0)))
    return float(best)
