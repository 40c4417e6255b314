"""Counts a table's combinations of values in the engine that holds it: DuckDB, Polars, Spark.

Observed rates need no more than the counts by outcome, call and attributes. Of a table that is not
in memory only these come back, a line per combination.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.columns import check_cutoff, read_score
from cfair.errors import DataError
from cfair.frame import Table, as_table, is_name, lazy_frame
from cfair.roles import Declared, Roles, given, read_declaration


def is_counted(data: Any, roles: Roles) -> bool:
    """Whether a table is one that its own engine can count for these roles.

    It is if it is lazy and every role is a column's name. Clusters and sampling weights need the
    rows, and so do a categorical column of Polars, whose levels have an order of their own, times
    and durations, of which an engine may take unlike ones for equal, and Dask, which does not tell
    a missing number from one that is none. A text column whose collation takes letters for equal is
    counted by that.

    Parameters
    ----------
    data : data frame
    roles : Roles

    Returns
    -------
    bool
    """
    frame = lazy_frame(data)
    if frame is None or roles.cluster is not None or roles.weights is not None:
        return False
    named = [value for _, value, _ in given(roles)]
    if not all(is_name(value) for value in named):
        return False
    import narwhals as nw

    schema = frame.collect_schema()
    kinds = [schema[str(name)] for name in named if str(name) in schema]
    exact = all(
        kind.is_integer()
        or kind in (nw.Float32, nw.Float64, nw.String, nw.Boolean, nw.Date)
        or kind == nw.Enum
        or kind.is_decimal()
        for kind in kinds
    )
    return exact and not frame.implementation.is_dask()


@dataclass(frozen=True, eq=False)
class Counted:
    """The combinations of values in a table.

    Attributes
    ----------
    lines : pandas.DataFrame
        A line per combination. The score is 1 where it reaches the cutoff, and 0 where it does not.
    repeats : (L,) array of int
        Rows that have this combination.
    """

    lines: pd.DataFrame
    repeats: NDArray[np.int64]

    def rows(self) -> pd.DataFrame:
        """A line for every row."""
        return self.lines.loc[self.lines.index.repeat(self.repeats)].reset_index(drop=True)


def declare_counted(data: Any, roles: Roles) -> Declared:
    """Count a lazy table, and read what came back as a declaration.

    Parameters
    ----------
    data : lazy data frame
    roles : Roles

    Returns
    -------
    Declared
        With ``repeats``.

    Raises
    ------
    DataError
        As for a table in memory.
    """
    counted = _count(data, roles)
    if not len(counted.repeats):
        return read_declaration(data, roles)  # which refuses an empty table
    try:
        declared = read_declaration(counted.lines, roles)
    except DataError:
        declared = None
    if declared is None:
        return read_declaration(counted.rows(), roles)  # which complains of rows, not of lines
    return replace(declared, repeats=counted.repeats, lazy=data)


def _count(data: Any, roles: Roles) -> Counted:
    import narwhals as nw

    frame = lazy_frame(data)
    names = tuple(frame.collect_schema().names())
    known = Table(names, pd.RangeIndex(0), None)
    found = [names[known.position(value, role)] for role, value, _ in given(roles)]
    columns = list(dict.fromkeys(found))
    if roles.score is not None and roles.cutoff is not None and roles.prediction is None:
        score = names[known.position(roles.score, "score")]
        _check_score(frame, score)
        frame = frame.with_columns(_call(frame, score, check_cutoff(roles.cutoff)))
    count = "rows"
    while count in names:
        count += "_"
    table = as_table(frame.group_by(columns).agg(nw.len().alias(count)))
    lines = table.read(columns)
    # the engine returns groups in any order
    order = lines.astype(str).sort_values(columns).index
    return Counted(
        lines.loc[order].reset_index(drop=True),
        table.column(count).loc[order].to_numpy(dtype=np.int64),
    )


def _check_score(frame: Any, score: str) -> None:
    """Refuse a score that is none, as `read_score` does, which then gets the values to show."""
    import narwhals as nw

    dtype = frame.collect_schema()[score]
    fine = dtype.is_numeric()
    if fine:
        value = _known(frame, score)
        ends = as_table(frame.select(low=value.min(), high=value.max()))
        low, high = (ends.column(name).iloc[0] for name in ("low", "high"))
        fine = pd.isna(low) or (low >= 0 and high <= 1)
    if not fine:
        read_score(as_table(frame.select(nw.col(score))).column(score))


def _known(frame: Any, score: str) -> Any:
    """The scores as 64-bit floats, null where they are missing."""
    import narwhals as nw

    value = nw.col(score).cast(nw.Float64)
    if not frame.collect_schema()[score].is_float():
        return value
    return nw.when(~value.is_nan()).then(value)


def _call(frame: Any, score: str, cutoff: float) -> Any:
    """The score as 1 where it reaches the cutoff, 0 below, null where it is missing."""
    import narwhals as nw

    if frame.collect_schema()[score] == nw.Float32:
        cutoff = _in_32_bits(cutoff)
    return (_known(frame, score) >= cutoff).cast(nw.Int8).alias(score)


def _in_32_bits(cutoff: float) -> float:
    """The least 32-bit number that, as it is printed, reaches the cutoff: as `read_score` reads."""
    near = np.float32(cutoff)
    steps = [np.nextafter(near, np.float32(-1)), near, np.nextafter(near, np.float32(2))]
    return float(next(step for step in steps if float(str(step)) >= cutoff))
