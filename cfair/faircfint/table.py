"""The table of an analysis as the R package reads it: columns, codings, labels, complete rows."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import declare
from cfair.columns import describe_kind
from cfair.errors import CfairWarning, DataError, warn
from cfair.faircfint.labels import as_r_factor, collation_key
from cfair.frame import Table, as_table, show_some
from cfair.roles import Declared, Roles

COLUMNS: tuple[str, ...] = ("A1", "A2", "Y", "D", "S_prob")


@dataclass(frozen=True, eq=False)
class Input:
    """The rows that are used, with what was done to them.

    Attributes
    ----------
    declared : Declared
    table : Table
        As it was given.
    rows : (n,) array of int
        Positions in it of the rows used.
    dropped : dict of str to int
        Missing values by column.
    notes : tuple of str
    """

    declared: Declared
    table: Table
    rows: NDArray[np.intp]
    dropped: dict[str, int]
    notes: tuple[str, ...]

    @property
    def n_read(self) -> int:
        """Rows of the table that was given."""
        return self.table.n_rows

    def of_rows(self, values: Any, what: str) -> pd.Series:
        """Values that were given for all rows of the table, on the rows used.

        Parameters
        ----------
        values : (n,) array or Series
        what : str
            Name of the argument.

        Returns
        -------
        pandas.Series
        """
        return self.table.align(values, what).iloc[self.rows]


def require_columns(names: Sequence[str], wanted: Mapping[str, Sequence[str]], what: str) -> None:
    """Refuse a table without the columns that an argument names.

    Parameters
    ----------
    names : sequence of str
        Columns of the table.
    wanted : mapping of str to sequence of str
        By argument.
    what : str
        The table, for the message.

    Raises
    ------
    DataError
    """
    for argument, columns in wanted.items():
        lacking = [column for column in columns if column not in names]
        if lacking:
            raise DataError(
                f"{what} lacks {show_some([repr(c) for c in lacking])} ({argument}). It has "
                f"{show_some([repr(n) for n in names], 10)}. Rename its columns, or correct the "
                "argument."
            )


def complete_rows(data: Any, what: str) -> tuple[pd.DataFrame, dict[str, int], NDArray[np.intp]]:
    """All columns of a table without the rows that lack a value in any of them.

    Parameters
    ----------
    data : data frame
    what : str
        The table, for messages.

    Returns
    -------
    frame : pandas.DataFrame
    dropped : dict of str to int
        Missing values by column.
    rows : (n,) array of int
        Positions of the rows that stay.
    """
    table = as_table(data)
    frame = table.read(table.names)
    frame.columns = pd.Index([str(name) for name in frame.columns])
    missing = frame.isna()
    dropped = {str(c): int(n) for c, n in missing.sum().items() if n}
    keep = ~missing.any(axis=1).to_numpy()
    if dropped:
        shown = show_some([f"{name} ({n} rows)" for name, n in dropped.items()], 8)
        if not keep.any():
            raise DataError(
                f"{what}: every row lacks a value in some column ({shown}), and compat=True uses "
                "complete rows only. Leave out columns that no model needs."
            )
        warn(
            f"{what}: {int((~keep).sum())} of {len(frame)} rows dropped, since a value is missing "
            f"in {shown}. compat=True drops them whether or not a model uses the column.",
            CfairWarning,
        )
        frame = frame[keep]
    return frame, dropped, np.flatnonzero(keep)


def read_input(data: Any, cutoff: Any, wanted: Mapping[str, Sequence[str]]) -> Input:
    """Read a table as the R package does, and refuse what only breaks there.

    Parameters
    ----------
    data : data frame
    cutoff : float
    wanted : mapping of str to sequence of str
        Columns of covariates, by argument.

    Returns
    -------
    Input

    Raises
    ------
    DataError
    """
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
    binaries, notes = {}, []
    for column in ("Y", "D"):
        binaries[column], note = _recoded(table.column(column))
        notes += [note] if note else []
    frame, dropped, rows = complete_rows(table, "data")
    texts = {column: as_r_factor(frame[column]) for column in ("A1", "A2")}
    coded = {column: values[rows] for column, values in binaries.items()}
    frame = frame.assign(**texts, **coded)
    _refuse_single_level(frame)
    declared = declare(frame, _with_call(frame, cutoff))
    return Input(declared, table, rows, dropped, tuple(notes))


def _with_call(frame: pd.DataFrame, cutoff: Any) -> Roles:
    """Roles with the score, or with the call where the score is no probability."""
    roles = Roles(outcome="Y", treatment="D", groups=["A1", "A2"], score="S_prob", cutoff=cutoff)
    score = frame["S_prob"]
    number = isinstance(cutoff, (numbers.Real, np.number)) and not isinstance(cutoff, bool)
    if not number or score.dtype.kind not in "iuf":
        return roles  # refused there
    values = score.to_numpy(dtype=np.float64)
    if np.isinf(values).any() or (0 <= cutoff <= 1 and ((values >= 0) & (values <= 1)).all()):
        return roles
    warn(
        f"S_prob runs from {values.min():.4g} to {values.max():.4g} and the cutoff is {cutoff:g}: "
        "these are no probabilities. S = 1 if S_prob >= cutoff, as in the R package.",
        CfairWarning,
    )
    call = pd.Series((values >= cutoff).astype(int), frame.index, name=f"S_prob >= {cutoff:g}")
    return replace(roles, score=None, cutoff=None, prediction=call)


def _recoded(series: pd.Series) -> tuple[NDArray[np.integer], str | None]:
    """Y or D as 0 and 1: the smaller of two values becomes 0."""
    name = str(series.name)
    if isinstance(series.dtype, pd.CategoricalDtype) or series.dtype.kind not in "iufb":
        kind = describe_kind(series)
        raise DataError(
            f"{name} is {kind}. The R package computes wrong figures from a factor, reading its "
            "levels as 1 and 2, and stops at text. Give numbers, 0 for none and 1 for an event: "
            f"(data[{name!r}] == event).astype(int)."
        )
    values = series.to_numpy()
    levels = np.unique(values)
    if len(levels) != 2:
        raise DataError(
            f"{name} must have exactly two values, but has {len(levels)} "
            f"({show_some([f'{v:g}' for v in levels.astype(float)])}). Give 0 for none and 1 for "
            "an event."
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


def _refuse_single_level(frame: pd.DataFrame) -> None:
    """A constant second attribute must be 1 in the R package, which writes that label itself."""
    levels = frame["A2"].cat.categories
    if len(levels) == 1 and levels[0] != "1":
        raise DataError(
            f"A2 is {levels[0]!r} in all rows. The R package calls the groups '<A1>1' whatever it "
            "holds and finds no rows in them, so that all rates are undefined. For a single "
            'attribute set A2 = "1", or use compat=False.'
        )


def refuse_merged_strata(names: Sequence[str]) -> None:
    """Refuse a bootstrap within pasted labels where two groups have the same.

    Parameters
    ----------
    names : sequence of str

    Raises
    ------
    DataError
    """
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            f"two groups have the same pasted label ({show_some(twice)}), so that the R package's "
            "bootstrap takes them for one. Rename levels of A1 or A2, or use compat=False."
        )


def refuse_labels(names: Sequence[str], shape: Sequence[int], sizes: Sequence[int]) -> None:
    """Refuse groups for which the R package's estimates of small groups are wrong or stop.

    Parameters
    ----------
    names : sequence of str
        Pasted labels, in the order of the groups.
    shape : sequence of int
        Levels of each attribute.
    sizes : sequence of int
        Rows of each group.

    Raises
    ------
    DataError
    """
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataError(
            f"two groups have the same pasted label ({show_some(twice)}), at which the R package "
            "stops. Rename levels of A1 or A2, or use compat=False."
        )
    order = sorted(names, key=collation_key)
    if order != list(names):
        raise DataError(
            f"the pasted labels sort otherwise ({show_some(order, 8)}) than the groups "
            f"({show_some(list(names), 8)}). The R package matches the two by position and divides "
            "rates by the share of another group. Rename levels so that no label is the beginning "
            'of another ("a", "ab"), or use compat=False.'
        )
    empty = [name for name, n in zip(names, sizes, strict=True) if n == 0]
    if empty:
        raise DataError(
            f"no row is in {show_some(empty)}, at which the R package's estimates of small groups "
            "stop. Merge levels, or use compat=False."
        )
    if tuple(shape) == (1, 2):
        raise DataError(
            "A1 has one level and A2 two. The R package gives both groups the same membership "
            'probability. Put the two levels into A1 and set A2 = "1", or use compat=False.'
        )
