"""Table 1: patients of every group described by their covariates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from cfair.analyses.masking import FEW_VALUES, untreated
from cfair.cohort import Cohort
from cfair.disclosure import (
    APART,
    KINDS,
    REVEALING,
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
#: A quartile is a patient's value: as many are beyond it as make a count that may be shown.
_BEYOND = 4
#: Combinations of group and categories up to which covariates are protected together.
_MOST_CELLS = 1500


@dataclass(frozen=True, eq=False)
class _Counted:
    """Rows by group and category of one covariate, and which of them may be shown.

    Attributes
    ----------
    values : pandas.Series
    levels : sequence
        Categories; of a number with many values there is one.
    codes : (n,) array of int
        Category of each row; that after the last for a missing value.
    numeric : bool
        Whether it has a mean.
    protection : Protection or None
    cells : (L + 1, J) array of 0 and 1
        Cells of the protection in each category.
    """

    values: pd.Series
    levels: Sequence[Any]
    codes: NDArray[np.intp]
    numeric: bool
    protection: Protection | None = None
    cells: Array = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def size(self) -> int:
        """Categories, that of missing values among them."""
        return len(self.levels) + 1

    def counts(self, cohort: Cohort) -> Array:
        """Rows by group and category, missing values last."""
        K = cohort.groups.n_groups
        cell = cohort.groups.codes * self.size + self.codes
        counts: Array = np.bincount(cell, minlength=K * self.size).reshape(K, -1).astype(np.float64)
        return counts

    def masks(self, member: Array, kind: Array) -> Masks:
        """What becomes of the rows of some categories."""
        if self.protection is None:
            return np.zeros(len(member), dtype=np.int8)
        return self.protection.masks(member, kind @ self.cells)

    def rate_masks(self, member: Array, kind: Array, whole: Array) -> Masks:
        """What becomes of their share among others."""
        if self.protection is None:
            return np.zeros(len(member), dtype=np.int8)
        return self.protection.rate_masks(member, kind @ self.cells, whole @ self.cells)


def table_one(
    cohort: Cohort,
    declared: Declared,
    covariates: Sequence[str] | None = None,
    *,
    by: str | None = None,
    median: Sequence[str] = (),
    differences: bool = False,
    lenient: bool = False,
) -> TableOneResult:
    """Describe the patients of every group.

    Parameters
    ----------
    cohort : Cohort
    declared : Declared
        Of which the cohort has rows.
    covariates, by, median, differences
        As for `cfair.Audit.table_one`.
    lenient : bool, default False
        A column of too many levels among the covariates is left out with a note, not refused.

    Returns
    -------
    TableOneResult

    Raises
    ------
    DataError
        If there is no such column or attribute, or a category has too many levels.
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
    chosen, notes = _columns(cohort, declared, covariates, by, lenient)
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
    counted = {name: _counted(cohort, name, _values(cohort, declared, name)) for name in chosen}
    protected, more = _protected(cohort, counted)
    notes += more
    for name, found in protected.items():
        if found.numeric:
            rows += _numeric(cohort, name, found, member, shown, name in median, differences)
        else:
            rows += _categories(cohort, name, found, member, shown, differences)
    frame = pd.DataFrame(rows)
    frame["count"] = frame["count"].astype("Int64")
    notes = [
        "Numbers are mean (SD), or median [IQR]; categories n (%) of those with a value.",
        *notes,
        *(
            ["SMD: largest standardised difference between two groups (Yang and Dalton 2012)."]
            * differences
        ),
        *(
            ["SMD of ∞: two groups differ without spread, as 0% and 100% do, or share no category."]
            * bool(np.isinf(frame["smd"]).any())
        ),
        *(["Counts are of rows; sampling weights are not used."] * (cohort.weights is not None)),
        *(
            [
                "Medians and quartiles are values of patients: only of groups with "
                f"{_BEYOND * below} values, so that {below} lie beyond a quartile."
            ]
            * bool(below and median)
        ),
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
        said = f"{said}; {APART}"
    return TableOneResult(
        frame, shown, tuple(cohort_facts(cohort)), tuple(notes), said, differences
    )


def _columns(
    cohort: Cohort,
    declared: Declared,
    covariates: Sequence[str] | None,
    by: str | None,
    lenient: bool,
) -> tuple[list[str], list[str]]:
    """Names of the covariates, and what was left out."""
    attributes = list(cohort.groups.attributes)
    if covariates is not None:
        wanted = [covariates] if isinstance(covariates, str) else list(dict.fromkeys(covariates))
        for name in wanted:
            if name not in declared.by_name:
                declared.prepared(name)  # refuses what is not there
        names = [n for n in wanted if lenient and _is_name(_values(cohort, declared, n))]
        return [name for name in wanted if name not in names], _said_of(names)
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
        (left if _is_name(values) else found).append(name)
    return [*others, *roles, *found], _said_of(left)


def _is_name(values: pd.Series) -> bool:
    """Whether a column is text of too many levels to be a category."""
    return not pd.api.types.is_numeric_dtype(values) and values.nunique() > MOST_LEVELS


def _said_of(left: Sequence[str]) -> list[str]:
    """The note on columns that are left out."""
    said = f"Left out: {show_some(left, 6)} (neither numbers nor {MOST_LEVELS} levels or fewer)."
    return [said] if left else []


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


def _counted(cohort: Cohort, name: str, values: pd.Series) -> _Counted:
    """Sort the rows into the categories of a covariate."""
    number = pd.api.types.is_numeric_dtype(values)
    if number and values.nunique() > 2:
        x = values.to_numpy(float)
        lost = np.isnan(x)
        levels, codes = np.unique(x[~lost], return_inverse=True)
        if cohort.protection is None or len(levels) > FEW_VALUES:
            # of few values, as of a count, a mean can be solved for how many patients have each
            levels, codes = np.array([np.nan]), np.zeros(len(codes), dtype=np.intp)
        each = np.full(len(x), len(levels), dtype=np.intp)
        each[~lost] = codes
        return _Counted(values, list(levels), each, True)
    found = pd.Categorical(values)
    if len(found.categories) > MOST_LEVELS:
        raise DataError(
            f"covariate {name!r} has {len(found.categories)} levels, more than {MOST_LEVELS}. "
            "Merge levels, or leave it out."
        )
    codes = np.asarray(found.codes, dtype=np.intp)
    codes = np.where(codes < 0, len(found.categories), codes)
    return _Counted(values, list(found.categories), codes, False)


def _protected(
    cohort: Cohort, counted: Mapping[str, _Counted]
) -> tuple[dict[str, _Counted], list[str]]:
    """Decide what may be shown, group sizes as in all other results.

    Covariates that share a count, as age in two codings or values that are missing together do,
    are protected together; those that are too many for it are left out.
    """
    if cohort.protection is None or cohort.suppress_below is None:
        return dict(counted), []
    member = cohort.groups.target_matrix
    hidden = cohort.protection.masks(member, KINDS["n"]) > 0
    K, left = cohort.groups.n_groups, []
    found: dict[str, _Counted] = {}
    for names in _linked(counted):
        cell = np.zeros(cohort.n_used, dtype=np.intp)
        for name in list(names):
            both = counted[name].codes + counted[name].size * cell
            both = np.unique(both, return_inverse=True)[1]
            size = len(np.unique(both * K + cohort.groups.codes))
            if size > _MOST_CELLS and name != names[0]:
                names.remove(name)
                left.append(name)
            else:
                cell = both
        parts, J = [counted[name] for name in names], int(cell.max()) + 1
        first = np.unique(cell, return_index=True)[1]
        joint = [part.codes[first] for part in parts]
        rows = np.bincount(cohort.groups.codes * J + cell, minlength=K * J).reshape(K, J)
        kinds = [
            (np.arange(part.size)[:, None] == at).astype(np.float64)
            for part, at in zip(parts, joint, strict=True)
        ]
        protection = protect(
            rows.astype(np.float64),
            cohort.partitions,
            cohort.suppress_below,
            kept=member[hidden],
            shown=member[~hidden],
            categories=np.vstack(kinds),
        )
        for name, part, cells in zip(names, parts, kinds, strict=True):
            found[name] = replace(part, protection=protection, cells=cells)
    notes = [
        f"Left out by suppress_below=: {show_some(left, 6)} (they share counts with others, such "
        "as that of missing values, and are too many to be protected together)."
    ]
    return {name: found[name] for name in counted if name in found}, notes if left else []


def _linked(counted: Mapping[str, _Counted]) -> list[list[str]]:
    """Covariates of which some categories together are those of another; others stand alone."""
    names = list(counted)
    link = np.eye(len(names), dtype=bool)
    for (i, a), (j, b) in combinations(enumerate(counted.values()), 2):
        both = np.bincount(a.codes * b.size + b.codes, minlength=a.size * b.size) > 0
        both = both.reshape(a.size, b.size)
        there = both.any(axis=1).sum() + both.any(axis=0).sum()
        x, y = np.nonzero(both)
        graph = coo_array((np.ones(len(x)), (x, a.size + y)), shape=(a.size + b.size,) * 2)
        parts = connected_components(graph, directed=False)[0] - (a.size + b.size - there)
        link[i, j] = parts > 1
    n, at = connected_components(coo_array(link), directed=False)
    return [[name for name, k in zip(names, at, strict=True) if k == part] for part in range(n)]


def _numeric(
    cohort: Cohort,
    name: str,
    found: _Counted,
    member: Array,
    groups: Sequence[str],
    median: bool,
    differences: bool,
) -> list[dict[str, Any]]:
    """Mean and SD, or median and quartiles, and the missing values."""
    x, below = found.values.to_numpy(float), cohort.suppress_below or 0
    lost, L = np.isnan(x), found.size - 1
    known = np.arange(found.size) < L
    masks = found.masks(member, known.astype(np.float64))
    if cohort.protection is not None:
        n = cohort.protection.masks(member, KINDS["n"])
        masks = np.where(masks == 0, n, masks)
        telling = _telling(cohort, name, member, x, lost)
        for kind in np.eye(found.size)[: L if L > 1 else 0]:
            telling |= found.masks(member, kind) > 0
        if median:
            values = member @ found.counts(cohort)[:, :L].sum(axis=1)
            telling |= values < _BEYOND * below
        masks = np.where((masks == 0) & telling, REVEALING, masks).astype(np.int8)
    unit = int(np.frexp(np.abs(x[~lost]).max(initial=0.0))[1])
    x = np.ldexp(x, -unit)  # no square overflows
    stats = np.full((4, len(member)), np.nan)
    mean, at = np.full(len(member), np.nan), range(len(member))
    for j, target in enumerate(member):
        inside = x[(target[cohort.groups.codes] > 0) & ~lost]
        if len(inside) and not masks[j]:
            constant = bool((inside == inside[0]).all())  # which rounding would not say
            mean[j] = inside[0] if constant else inside.mean()
            sd = np.nan if len(inside) < 2 else 0.0 if constant else inside.std(ddof=1)
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
    return rows + _missing(cohort, name, found, member, groups)


def _telling(
    cohort: Cohort, name: str, member: Array, x: Array, lost: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Groups that have few of the column's values, some of them in few patients."""
    assert cohort.protection is not None
    below, hidden = cohort.protection.below, np.zeros(len(member), dtype=bool)
    levels, codes = np.unique(np.where(lost, 0.0, x), return_inverse=True)
    for j, target in enumerate(member):
        inside = (target[cohort.groups.codes] > 0) & ~lost
        n = np.bincount(codes[inside], minlength=len(levels))
        n = n[n > 0]
        hidden[j] = len(n) <= FEW_VALUES and bool((n < below).any())
    if name == cohort.score_name:  # as the mean score of a performance
        for kind in ("events", "positive", "right"):
            hidden |= cohort.protection.rate_masks(member, KINDS[kind], KINDS["n"]) > 0
    return closed(member[:, cohort.groups.sizes > 0], hidden)


def _missing(
    cohort: Cohort, name: str, found: _Counted, member: Array, groups: Sequence[str]
) -> list[dict[str, Any]]:
    """A line for missing values, if there are any."""
    counts, below = found.counts(cohort), cohort.suppress_below or 0
    if not counts[:, -1].any():
        return []
    kind = np.eye(found.size)[-1]
    masks, of_share = found.masks(member, kind), found.rate_masks(member, kind, np.ones(len(kind)))
    count, n = member @ counts[:, -1], member @ counts.sum(axis=1)
    share = np.where((n > 0) & (of_share == 0), count / np.maximum(n, 1), np.nan)
    shown = written(count, masks, below)
    return _rows(name, _MISSING, "missing, n (%)", groups, below, masks, count=shown, share=share)


def _categories(
    cohort: Cohort,
    name: str,
    found: _Counted,
    member: Array,
    groups: Sequence[str],
    differences: bool,
) -> list[dict[str, Any]]:
    """Numbers and shares of the levels; of two levels of a number only the higher."""
    below, L, counts = cohort.suppress_below or 0, found.size - 1, found.counts(cohort)
    number = pd.api.types.is_numeric_dtype(found.values)
    names = [f"{v:g}" if number else str(v) for v in found.levels]
    whole = (np.arange(found.size) < L).astype(np.float64)
    known = member @ counts[:, :L].sum(axis=1)
    smd = np.full(len(member), np.nan)
    if differences:
        smd[:] = _category_difference(member[1:] @ counts[:, :L], found, member[1:], whole)
    rows: list[dict[str, Any]] = []
    for k in [L - 1] if number and L == 2 else range(L):
        kind = np.eye(found.size)[k]
        masks, of_share = found.masks(member, kind), found.rate_masks(member, kind, whole)
        role = _role_masks(cohort, name, member)
        if role is not None and L == 2:  # as in all other results
            masks = of_share = role
        count = member @ counts[:, k]
        share = np.where((known > 0) & (of_share == 0), count / np.maximum(known, 1), np.nan)
        rows += _rows(
            name, names[k], "n (%)", groups, below, masks,
            count=written(count, masks, below), share=share, smd=smd,
        )  # fmt: skip
    return rows + _missing(cohort, name, found, member, groups)


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


def _category_difference(counts: Array, found: _Counted, member: Array, whole: Array) -> float:
    """Largest standardised difference of the shares, over groups of which all are shown."""
    if not counts.shape[1]:  # no row has a value
        return np.nan
    stats = []
    for j, row in enumerate(counts):
        total = row.sum()
        hidden = any(
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
        weights = np.linalg.pinv(S, rcond=1e-12, hermitian=True) @ d
        # where neither group varies, any difference is infinitely many standard deviations
        apart = not np.allclose(S @ weights, d, rtol=0.0, atol=1e-9 * np.abs(d).max())
        best = np.fmax(best, np.inf if apart else np.sqrt(max(float(d @ weights), 0.0)))
    return float(best)
