"""The table of an analysis as the R package reads it: columns, codings, labels, complete rows."""

from __future__ import annotations

import math
import numbers
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Dropped, declare
from cfair.columns import describe_kind
from cfair.errors import CfairWarning, DataError, warn
from cfair.frame import Table, as_table, show_some
from cfair.groups import Groups, categorical_of_codes, factor, shown_levels
from cfair.roles import Declared, Roles

COLUMNS: tuple[str, ...] = ("A1", "A2", "Y", "D", "S_prob")
#: Signs before digits and letters, in the order of the Unicode root collation.
_SIGNS = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$"


@dataclass(frozen=True, eq=False)
class Input:
    """The rows that are used: what they are, their places in the table, and what was done."""

    declared: Declared
    table: Table
    rows: NDArray[np.intp]
    dropped: Dropped
    notes: tuple[str, ...]


def read_input(data: Any, cutoff: Any, wanted: Mapping[str, Sequence[str]]) -> Input:
    """Read a table as the R package does, and refuse what only breaks there."""
    table = as_table(data)
    names = [str(name) for name in table.names]
    require_columns(names, {"what every analysis needs": COLUMNS, **wanted}, "data")
    for column in ("Y", "D"):
        n = int(table.column(column).isna().sum())
        if n:
            raise DataError(
                f"{column} is missing in {n} of {table.n_rows} rows. The R package takes that for "
                f"a third value and stops. Leave these rows out, or use compat=False, which does."
            )
    recoded = {column: _recoded(table.column(column)) for column in ("Y", "D")}
    frame, dropped, rows = complete_rows(table, "data")
    frame = frame.assign(
        **{column: as_r_factor(frame[column]) for column in ("A1", "A2")},
        **{column: values[rows] for column, (values, _) in recoded.items()},
    )
    levels = frame["A2"].cat.categories
    if len(levels) == 1 and levels[0] != "1":
        raise DataError(
            f"A2 is {levels[0]!r} in all rows. The R package calls the groups '<A1>1' whatever it "
            "holds and finds no rows in them, so that all rates are undefined. For a single "
            'attribute set A2 = "1", or use compat=False.'
        )
    notes = tuple(note for _, note in recoded.values() if note)
    return Input(declare(frame, _with_call(frame, cutoff)), table, rows, dropped, notes)


def require_columns(names: Sequence[str], wanted: Mapping[str, Sequence[str]], what: str) -> None:
    """Refuse a table without the columns that an argument names."""
    for argument, columns in wanted.items():
        lacking = [column for column in columns if column not in names]
        if lacking:
            raise DataError(
                f"{what} lacks {show_some([repr(c) for c in lacking])} ({argument}). It has "
                f"{show_some([repr(n) for n in names], 10)}. Rename its columns, or correct the "
                "argument."
            )


def as_they_came(table: Table) -> pd.DataFrame:
    """All columns of a table, by their names as text."""
    frame = table.read(table.names)
    frame.columns = pd.Index([str(name) for name in frame.columns])
    return frame


def complete_rows(
    data: Any, what: str, columns: Sequence[str] | None = None
) -> tuple[pd.DataFrame, Dropped, NDArray[np.intp]]:
    """A table without the rows that lack a value, and the places of the others.

    In any column, as in R, or in these `columns`.
    """
    frame = as_they_came(as_table(data))
    if not len(frame):
        raise DataError(f"{what} has no rows.")
    missing = (frame if columns is None else frame[list(columns)]).isna()
    keep = ~missing.any(axis=1).to_numpy()
    dropped = Dropped(int((~keep).sum()), {str(c): int(n) for c, n in missing.sum().items() if n})
    if dropped.n:
        shown = show_some([f"{name} ({n} rows)" for name, n in dropped.by_column.items()], 8)
        if not keep.any():
            more = (
                ", and compat=True uses complete rows only. Leave out columns that no model needs"
                if columns is None
                else ". Use other columns, or fill them in"
            )
            raise DataError(f"{what}: every row lacks a value in some column ({shown}){more}.")
        more = (
            " compat=True drops them whether or not a model uses the column."
            if columns is None
            else ""
        )
        warn(
            f"{what}: {dropped.n} of {len(frame)} rows dropped, since a value is missing in "
            f"{shown}.{more}",
            CfairWarning,
        )
    return frame[keep], dropped, np.flatnonzero(keep)


def _recoded(series: pd.Series) -> tuple[NDArray[np.integer], str | None]:
    """Y or D as 0 and 1: the smaller of two values becomes 0."""
    name = str(series.name)
    if isinstance(series.dtype, pd.CategoricalDtype) or series.dtype.kind not in "iufb":
        raise DataError(
            f"{name} is {describe_kind(series)}. The R package computes wrong figures from a "
            "factor, reading its levels as 1 and 2, and stops at text. Give numbers, 0 for none "
            f"and 1 for an event: (data[{name!r}] == event).astype(int)."
        )
    values = series.to_numpy()
    _refuse_infinite(series)
    levels = np.unique(values)
    if len(levels) != 2:
        shown = show_some([f"{v:g}" for v in levels.astype(float)])
        raise DataError(
            f"{name} must have exactly two values, but has {len(levels)} ({shown}). Give 0 for "
            "none and 1 for an event."
        )
    low, high = levels
    if high == 0:
        raise DataError(
            f"{name} is coded {low:g} and 0. The R package makes every row an event of it (it "
            f"turns {low:g} into 0, and then 0 into 1). Give 0 for none and 1 for an event."
        )
    coded = (values == high).astype(int)
    if values.dtype == bool or (low == 0 and high == 1):
        return coded, None
    note = f"{name}: {low:g} counts as 0 and {high:g} as 1, the smaller value as 0"
    warn(f"{note}. Recode it if that is the wrong way round.", CfairWarning)
    return coded, note


def _refuse_infinite(series: pd.Series) -> None:
    n = int(np.isinf(series.to_numpy()).sum()) if series.dtype.kind == "f" else 0
    if n:
        raise DataError(
            f"column {str(series.name)!r} is infinite in {n} of {len(series)} rows. Correct these "
            "values, or leave the rows out."
        )


def _with_call(frame: pd.DataFrame, cutoff: Any) -> Roles:
    """Roles with the score, or with the call where the score is no probability."""
    roles = Roles(outcome="Y", treatment="D", groups=["A1", "A2"], score="S_prob", cutoff=cutoff)
    score = frame["S_prob"]
    number = isinstance(cutoff, (numbers.Real, np.number)) and not isinstance(cutoff, bool)
    if not number or score.dtype.kind not in "iuf":
        return roles  # refused there
    values = score.to_numpy(dtype=np.float64)
    inside = bool(((values >= 0) & (values <= 1)).all())
    if np.isinf(values).any() or (0 <= cutoff <= 1 and inside):
        return roles
    runs = f"S_prob runs from {values.min():.4g} to {values.max():.4g}"
    if inside:
        warn(
            f"the cutoff {cutoff:g} is outside [0, 1], and {runs}: S = {int(cutoff < 0)} in all "
            "rows, as in the R package. Give the cutoff as a probability, such as 0.5.",
            CfairWarning,
        )
    else:
        warn(
            f"{runs} and the cutoff is {cutoff:g}: these are no probabilities. S = 1 if "
            "S_prob >= cutoff, as in the R package.",
            CfairWarning,
        )
    call = pd.Series((values >= cutoff).astype(int), frame.index, name=f"S_prob >= {cutoff:g}")
    return replace(roles, score=None, cutoff=None, prediction=call)


# -- labels ---------------------------------------------------------------------------------------


def as_r_factor(series: pd.Series) -> pd.Series:
    """A complete column as text, its levels in R's order; an order of the user is not kept.

    Examples
    --------
    >>> as_r_factor(pd.Series([9, 10, 100])).cat.categories.tolist()
    ['10', '100', '9']
    """
    found = factor(series)
    if not isinstance(series.dtype, pd.CategoricalDtype):
        _refuse_infinite(series)
    texts = r_texts(found.levels, str(series.name))
    order = sorted(range(len(texts)), key=lambda i: collation_key(texts[i]))
    rank = np.argsort(order)
    values = categorical_of_codes(rank[found.codes], [texts[i] for i in order])
    return pd.Series(values, index=series.index, name=series.name)


def r_texts(levels: Sequence[Any], name: str) -> list[str]:
    """Levels of an attribute as R's ``as.character`` has them.

    Examples
    --------
    >>> r_texts([1.0, 2.5, 1e5, 0.1 + 0.2], "A2"), r_texts([False, True], "A1")
    (['1', '2.5', '1e+05', '0.3'], ['FALSE', 'TRUE'])
    """
    logical = {True: "TRUE", False: "FALSE"}
    texts = [
        logical[level]
        if isinstance(level, bool)
        else _number_text(level)
        if isinstance(level, float) and math.isfinite(level)
        else shown
        for level, shown in zip(levels, shown_levels(levels), strict=True)
    ]
    # 1 and "1" are shown as 1 and '1', but R has one text for them
    several_types = len({type(level) for level in levels}) > 1
    plain = {str(level) for level in levels} if several_types else texts
    if min(len(set(texts)), len(plain)) < len(texts):
        raise DataError(
            f"column {name!r} holds values that are the same as text "
            f"({show_some([repr(v) for v in levels])}), which the R package would merge. "
            "Give them one type, and numbers no more than 15 digits."
        )
    return texts


def _number_text(value: float) -> str:
    """A double to 15 significant digits, in powers of ten where that is shorter."""
    mantissa, _, power = f"{value:.14e}".partition("e")
    mantissa, exponent = mantissa.rstrip("0").rstrip("."), int(power)
    decimals = max(0, len(mantissa.lstrip("-").replace(".", "")) - 1 - exponent)
    scientific, fixed = f"{mantissa}e{exponent:+03d}", f"{value:.{decimals}f}"
    return fixed if len(fixed) <= len(scientific) else scientific


def collation_key(text: str) -> tuple[Any, ...]:
    """Key that sorts text as R does with ICU: a, A, b, B; signs before digits before letters.

    Examples
    --------
    >>> sorted(["B", "b", "10", "9", "A", "a", "100", "a b", "ab"], key=collation_key)
    ['10', '100', '9', 'a', 'A', 'a b', 'ab', 'b', 'B']
    """
    letters: list[tuple[int, str]] = []
    accents: list[str] = []
    upper: list[bool] = []
    for sign in unicodedata.normalize("NFD", text):
        if unicodedata.combining(sign):
            accents[-1:] = [(accents[-1] if accents else "") + sign]
            continue
        letters.append(_class_of(sign))
        accents.append("")
        upper.append(sign.isupper())
    return letters, accents, upper, text


def _class_of(sign: str) -> tuple[int, str]:
    if sign.isspace():
        return 0, sign
    if sign in _SIGNS:
        return 1, f"{_SIGNS.index(sign):02d}"
    if sign.isalpha():
        return 4, sign.casefold()
    return (3 if sign.isdigit() else 2), sign


def pasted(groups: Groups) -> tuple[str, ...]:
    """Names of the groups: their labels with nothing in between. Two can have the same name."""
    return tuple("".join(names) for names in level_names(groups))


def level_names(groups: Groups) -> list[tuple[str, ...]]:
    """Labels of each group as text, one per attribute."""
    return [
        tuple(names[i] for names, i in zip(groups.level_names, at, strict=True))
        for at in groups.level_codes.T
    ]


def twice(names: Sequence[str]) -> list[str]:
    """Names that occur more than once, sorted."""
    return sorted({name for name in names if names.count(name) > 1})


def refuse_alike(groups: Groups, at_which: str) -> None:
    """Refuse groups of which two have the same pasted label."""
    alike = twice(pasted(groups))
    if alike:
        raise DataError(
            f"two groups have the same pasted label ({show_some(alike)}), {at_which}. Rename "
            "levels of A1 or A2, or use compat=False."
        )


def refuse_labels(groups: Groups) -> None:
    """Refuse groups for which the R package's estimates of small groups are wrong or stop."""
    refuse_alike(groups, "at which the R package stops")
    names = pasted(groups)
    order = sorted(names, key=collation_key)
    if order != list(names):
        raise DataError(
            f"the pasted labels sort otherwise ({show_some(order, 8)}) than the groups "
            f"({show_some(list(names), 8)}). The R package matches the two by position and divides "
            "rates by the share of another group. Rename levels so that no label is the beginning "
            'of another ("a", "ab"), or use compat=False.'
        )
    empty = [name for name, n in zip(names, groups.sizes, strict=True) if n == 0]
    if empty:
        raise DataError(
            f"no row is in {show_some(empty)}, at which the R package's estimates of small groups "
            "stop. Merge levels, or use compat=False."
        )
    refuse_lone(groups.names, groups.sizes)
    if groups.shape == (1, 2):
        raise DataError(
            "A1 has one level and A2 two. The R package gives both groups the same membership "
            'probability. Put the two levels into A1 and set A2 = "1", or use compat=False.'
        )


def refuse_lone(names: Sequence[str], sizes: NDArray[np.integer]) -> None:
    """Refuse groups of one row, of which no other is left to learn membership from."""
    lone = [f"{name!r} (1)" for name, n in zip(names, sizes, strict=True) if n == 1]
    if lone:
        raise DataError(
            "estimates of small groups need 2 rows of each, one to be predicted and one to learn "
            f"from, but {show_some(lone)} has fewer. Merge levels of A1 or A2, or leave these rows "
            "out."
        )
