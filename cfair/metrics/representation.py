"""Who is in the data: counts and shares of attributes and their intersections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.columns import read_binary
from cfair.errors import DataError
from cfair.groups import Factor, Groups, cross
from cfair.metrics.comparing import labelled
from cfair.metrics.reading import complete_rows, read_features
from cfair.options import check_level, check_option, is_number

Array = NDArray[np.float64]

#: A level with a smaller share is under-represented.
UNDER_REPRESENTED = 0.05
#: Largest share over smallest from which an attribute is called imbalanced.
IMBALANCED = 3.0
#: Share of missing values from which it is said.
MUCH_MISSING = 0.05
#: What shares of cells are shares of.
DENOMINATORS: tuple[str, ...] = ("known", "all")


@dataclass(frozen=True)
class Thresholds:
    """What counts as too few.

    Attributes
    ----------
    floor : float
        Share of the rows.
    min_count : int
        Rows below which rates are not to be relied on.
    disclosure : tuple of int
        Rows below which a table may disclose who somebody is, the largest first.
    rate : float
        The rate whose interval shows what a cell can say.
    level : float
        Confidence level.
    denominator : str
    """

    floor: float = 0.01
    min_count: int = 100
    disclosure: tuple[int, ...] = (20, 11)
    rate: float = 0.2
    level: float = 0.95
    denominator: str = "known"


@dataclass(frozen=True, eq=False)
class RepresentationTables:
    """Counts and shares; what the columns are is said by `representation`.

    Attributes
    ----------
    groups : Groups
        Crossed attributes of the rows that have them all.
    cells, levels, attributes, associations : pandas.DataFrame
    n_read : float
        Rows, those with missing attributes included; masked as in `cfair.disclosure`.
    n_known : float
        Rows that have all attributes.
    thresholds : Thresholds
    """

    groups: Groups
    cells: pd.DataFrame
    levels: pd.DataFrame
    attributes: pd.DataFrame
    associations: pd.DataFrame
    n_read: float
    n_known: float
    thresholds: Thresholds


def check_thresholds(
    floor: Any, min_count: Any, disclosure: Any, rate: Any, level: Any, denominator: Any
) -> Thresholds:
    """Check what counts as too few.

    Parameters
    ----------
    floor, min_count, disclosure, rate, level, denominator
        As given to `representation`.

    Returns
    -------
    Thresholds

    Raises
    ------
    ValueError
        For a value that is not allowed.
    """
    check_option("denominator", denominator, DENOMINATORS)
    for name, value in (("floor", floor), ("rate", rate)):
        if not is_number(value) or not 0 <= value < 1 or (name == "rate" and value == 0):
            raise ValueError(f"{name} must be a share in [0, 1), such as 0.01, not {value!r}.")
    several = disclosure if isinstance(disclosure, (list, tuple)) else [disclosure]
    for name, value in (("min_count", min_count), *(("disclosure", v) for v in several)):
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not whole or value < 0:
            raise ValueError(f"{name} must be a whole number of rows, not {value!r}.")
    counts = tuple(sorted((int(v) for v in several), reverse=True))
    return Thresholds(
        float(floor), int(min_count), counts, float(rate), check_level(level), denominator
    )


def representation(
    sensitive_features: Any,
    *,
    y_true: Any = None,
    floor: float = 0.01,
    min_count: int = 100,
    disclosure: Sequence[int] = (20, 11),
    rate: float = 0.2,
    level: float = 0.95,
    denominator: str = "known",
    missing: str = "drop",
) -> pd.DataFrame:
    """Count every intersection of attributes, and say which are absent or too small.

    `cfair.representation_of` has the single attributes and their association as well, and prints.

    Parameters
    ----------
    sensitive_features : array-like, data frame, or mapping of name to array-like
        One or more attributes, which are crossed.
    y_true : (n,) array-like of 0/1 or bool, optional
        With it, events and non-events are counted. A missing value counts as neither.
    floor : float, default 0.01
        A cell with a smaller share is below the floor.
    min_count : int, default 100
        Rates of a cell with fewer rows are not to be relied on.
    disclosure : sequence of int, default (20, 11)
        Numbers of rows below which publishers suppress a cell.
    rate : float, default 0.2
        ``width`` is that of the Wilson interval which this rate would have in the cell.
    level : float, default 0.95
        Confidence level.
    denominator : {"known", "all"}, default "known"
        Shares are of the rows that have all attributes; or, as in Fair Code, of all rows, while
        those that miss one are in no cell.
    missing : {"drop", "level", "raise"}, default "drop"
        Rows that miss an attribute are in no cell, are a level of their own, or are refused.

    Returns
    -------
    pandas.DataFrame
        A row per cell, the empty ones too: ``group``, a column per attribute, ``n``, ``share`` with
        ``ci_low`` and ``ci_high`` (Wilson), ``expected`` (rows if the attributes were independent),
        ``expected_share``, ``ratio`` (n / expected), ``events`` and ``non_events`` if there is an
        outcome, ``width``, ``absent``, ``below_floor``, ``below_min_count``, ``below_disclosure``
        (the smallest number that a cell with rows falls below), ``note``.

    Raises
    ------
    DataError
        If the data do not fit.
    ValueError
        For an option that is not allowed.

    Warns
    -----
    CfairWarning
        Counts the rows that are in no cell.

    References
    ----------
    Wilson EB (1927). Probable inference, the law of succession, and statistical inference. Journal
    of the American Statistical Association 22, 209-212.

    Examples
    --------
    >>> table = representation({"sex": list("FFFM"), "site": [1, 1, 2, 1]}, min_count=2)
    >>> table[["group", "n", "expected", "note"]]
       group  n  expected                note
    0  F & 1  2      2.25  fewer than 11 rows
    1  F & 2  1      0.75  fewer than 11 rows
    2  M & 1  1      0.75  fewer than 11 rows
    3  M & 2  0      0.25              absent
    """
    thresholds = check_thresholds(floor, min_count, disclosure, rate, level, denominator)
    attributes, columns = read_features(sensitive_features, y_true=y_true)
    complete_rows(attributes, missing)  # refuses what is missing, or counts it in a warning
    events = None
    if "y_true" in columns:
        found = read_binary(columns["y_true"], "y_true", event=None, option=None)
        events = np.where(found.missing, np.nan, found.values)
    return describe(with_missing(attributes, missing), thresholds, events=events).cells


def with_missing(attributes: Sequence[Factor], missing: str) -> Sequence[Factor]:
    """Attributes under a rule for missing values.

    Parameters
    ----------
    attributes : sequence of Factor
    missing : {"drop", "level", "raise"}

    Returns
    -------
    sequence of Factor
    """
    check_option("missing", missing, ("drop", "level", "raise"))
    if missing == "raise":
        complete_rows(attributes, missing)
    return [a.with_missing_level() for a in attributes] if missing == "level" else attributes


def describe(
    attributes: Sequence[Factor],
    thresholds: Thresholds,
    *,
    events: Array | None = None,
    repeats: NDArray[np.integer] | None = None,
    weights: Array | None = None,
    n_read: int | None = None,
    missing: Mapping[str, int] | None = None,
) -> RepresentationTables:
    """Counts and shares of factors and their intersections.

    Parameters
    ----------
    attributes : sequence of Factor
        Missing values have code -1.
    thresholds : Thresholds
    events : (n,) array of 0, 1 and NaN, optional
    repeats : (n,) array of int, optional
        Rows that each entry stands for.
    weights : (n,) array, optional
        Sampling weights; shares are then given with and without them.
    n_read : int, optional
        Rows of the table, if there are more than these.
    missing : mapping of str to int, optional
        Missing values of each attribute among the rows that are not here.

    Returns
    -------
    RepresentationTables
    """
    count = np.ones(len(attributes[0].codes)) if repeats is None else repeats.astype(np.float64)
    known = ~np.logical_or.reduce([a.missing for a in attributes])
    if not known.any():
        raise DataError(
            f"no row has all of {', '.join(a.name for a in attributes)}: "
            + ", ".join(f"{a.name} misses {int(count[a.missing].sum())}" for a in attributes)
            + ". Leave one out."
        )
    groups = cross([_all_levels(a, known) for a in attributes])
    total = int(count.sum()) if n_read is None else n_read
    n = _sums(groups.codes, count[known], groups.n_groups)
    N = float(n.sum())
    margins = [n.reshape(groups.shape).sum(axis=_others(groups, k)) / N for k in _axes(groups)]
    expected = N * np.prod([m[c] for m, c in zip(margins, groups.level_codes, strict=True)], axis=0)
    shown = _counted(n, N if thresholds.denominator == "known" else float(total), thresholds)
    shown["expected"], shown["expected_share"] = expected, expected / N
    shown["ratio"] = n / np.where(expected > 0, expected, np.nan)
    shown.update(_beside(groups.codes, groups.n_groups, known, count, events, weights))
    return RepresentationTables(
        groups=groups,
        cells=labelled(groups, _judged(shown, thresholds)),
        levels=_levels(attributes, count, events, weights, thresholds),
        attributes=_attributes(attributes, count, total, missing or {}),
        associations=_associations(groups, n),
        n_read=total,
        n_known=int(N),
        thresholds=thresholds,
    )


def _sums(codes: NDArray[np.intp], values: Array, size: int) -> Array:
    return np.bincount(codes, weights=values, minlength=size).astype(np.float64)


def _all_levels(attribute: Factor, rows: NDArray[np.bool_]) -> Factor:
    """The factor of some rows with all its levels, also those that only other rows have."""
    return Factor(attribute.name, attribute.levels, attribute.codes[rows])


def _axes(groups: Groups) -> range:
    return range(len(groups.attributes))


def _others(groups: Groups, *kept: int) -> tuple[int, ...]:
    return tuple(k for k in _axes(groups) if k not in kept)


def _counted(n: Array, whole: float, thresholds: Thresholds) -> dict[str, Any]:
    """Counts, shares with Wilson intervals, and how wide the interval of a rate would be."""
    from statsmodels.stats.proportion import proportion_confint

    alpha = 1 - thresholds.level
    low, high = proportion_confint(n, whole, alpha=alpha, method="wilson")
    some = np.where(n > 0, n, 1.0)
    inner = proportion_confint(thresholds.rate * some, some, alpha=alpha, method="wilson")
    return {
        "n": n.astype(int),
        "share": n / whole,
        "ci_low": np.maximum(low, 0.0),
        "ci_high": np.minimum(high, 1.0),
        "width": np.where(n > 0, inner[1] - inner[0], np.nan),
    }


def _beside(
    codes: NDArray[np.intp],
    size: int,
    rows: NDArray[np.bool_],
    count: Array,
    events: Array | None,
    weights: Array | None,
) -> dict[str, NDArray[Any]]:
    """Columns that need weights or an outcome, if there are any."""
    shown: dict[str, NDArray[Any]] = {}
    if weights is not None:
        mass = _sums(codes, weights[rows], size)
        shown["weighted_share"] = mass / mass.sum()
    if events is not None:
        for name, value in (("events", 1), ("non_events", 0)):
            shown[name] = _sums(codes, count[rows] * (events[rows] == value), size).astype(np.intp)
    return shown


def _judged(columns: Mapping[str, Any], thresholds: Thresholds) -> pd.DataFrame:
    """A table that says which of its rows are absent or too small, in columns and in words."""
    frame = pd.DataFrame(dict(columns))
    n = frame["n"].to_numpy()
    frame["absent"] = n == 0
    frame["below_floor"] = frame["share"].to_numpy() < thresholds.floor
    frame["below_min_count"] = n < thresholds.min_count
    below = pd.array(np.zeros(len(n), dtype=np.int64), dtype="Int64")
    below[:] = pd.NA
    for limit in thresholds.disclosure:  # the smallest comes last and stays
        below[(n > 0) & (n < limit)] = limit
    frame["below_disclosure"] = below
    notes = []
    for size, low, few, limit in zip(
        n, frame["below_floor"], frame["below_min_count"], below, strict=True
    ):
        said = []
        if low and size:
            said.append(f"below {100 * thresholds.floor:g}% of the rows")
        if not pd.isna(limit) or (few and size):
            said.append(f"fewer than {thresholds.min_count if pd.isna(limit) else limit} rows")
        notes.append("; ".join(said) if size else "absent")
    frame["note"] = pd.Series(notes, dtype="str")
    return frame


def _levels(
    attributes: Sequence[Factor],
    count: Array,
    events: Array | None,
    weights: Array | None,
    thresholds: Thresholds,
) -> pd.DataFrame:
    """A row per attribute and level, over the rows that have this attribute."""
    parts = []
    for a in attributes:
        there = ~a.missing
        codes, size = a.codes[there], len(a.levels)
        n = _sums(codes, count[there], size)
        shown = _counted(n, float(n.sum()), thresholds)
        shown.update(_beside(codes, size, there, count, events, weights))
        part = pd.DataFrame({"attribute": a.name, **shown})
        part.insert(1, "level", pd.Series(list(a.levels), dtype=object))
        part["under_represented"] = part["share"] < UNDER_REPRESENTED
        part["small_group"] = part["n"] < thresholds.min_count
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _attributes(
    attributes: Sequence[Factor], count: Array, n_read: int, missing: Mapping[str, int]
) -> pd.DataFrame:
    """A row per attribute: how even its levels are, and how much is missing."""
    from scipy.stats import entropy

    rows = []
    for a in attributes:
        n = _sums(a.codes[~a.missing], count[~a.missing], len(a.levels))
        share, k = n / n.sum(), len(n)
        lost = a.missing
        if a.missing_level is not None:  # missing values that are a level are missing all the same
            lost = lost | (a.codes == a.levels.index(a.missing_level))
        gone = int(count[lost].sum()) + missing.get(a.name, 0)
        h = float(entropy(share))
        rows.append(
            {
                "attribute": a.name,
                "n_levels": k,
                "n": int(count[~lost].sum()),
                "missing": gone,
                "missing_share": gone / n_read,
                "much_missing": gone / n_read >= MUCH_MISSING,
                "min_share": float(share.min()),
                "max_share": float(share.max()),
                "imbalance_ratio": float(share.max() / share.min()),
                "imbalanced": bool(share.max() / share.min() >= IMBALANCED),
                "entropy": h,
                "entropy_ratio": h / np.log(k) if k > 1 else 0.0,
            }
        )
    return pd.DataFrame(rows)


def _associations(groups: Groups, n: Array) -> pd.DataFrame:
    """Chi-square test of independence and Cramer's V for every pair of attributes."""
    from scipy.stats import chi2_contingency
    from scipy.stats.contingency import association

    columns = ["attribute_a", "attribute_b", "n", "chi2", "df", "p_value", "cramers_v"]
    columns += ["low_expected", "note"]
    rows = []
    table = n.reshape(groups.shape)
    for i, j in combinations(_axes(groups), 2):
        pair = table.sum(axis=_others(groups, i, j))
        pair = pair[pair.sum(axis=1) > 0][:, pair.sum(axis=0) > 0]
        row: dict[str, Any] = {
            "attribute_a": groups.attributes[i],
            "attribute_b": groups.attributes[j],
            "n": int(pair.sum()),
        }
        if min(pair.shape) < 2:
            row.update(chi2=np.nan, df=0, p_value=np.nan, cramers_v=np.nan, low_expected=np.nan)
            rows.append({**row, "note": "an attribute has one level"})
            continue
        found = chi2_contingency(pair)
        low = float(np.mean(found.expected_freq < 5))
        row.update(chi2=float(found.statistic), df=int(found.dof), p_value=float(found.pvalue))
        row.update(cramers_v=float(association(pair.astype(int))), low_expected=low)
        rows.append({**row, "note": _low_expected(low)})
    return pd.DataFrame(rows, columns=columns)


def _low_expected(share: float) -> str:
    if share <= 0.2:
        return ""
    return f"{100 * share:.0f}% of cells expect fewer than 5 rows: the p-value is approximate"
