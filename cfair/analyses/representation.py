"""Representation of a cohort's groups, or of the attributes of any table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.representation_masks import masked_tables, shown_of_cohort, shown_of_table
from cfair.cohort import Cohort
from cfair.columns import read_attribute, read_binary
from cfair.disclosure import KINDS, check_base, check_below, is_masked, rounded
from cfair.errors import DataError
from cfair.frame import as_table, is_name
from cfair.groups import Factor
from cfair.metrics.representation import (
    RepresentationTables,
    Thresholds,
    check_thresholds,
    describe,
    with_missing,
)
from cfair.results import text
from cfair.results.report import cohort_facts
from cfair.results.representation import RepresentationResult


def representation(cohort: Cohort, thresholds: Thresholds) -> RepresentationResult:
    """Counts and shares of the groups of a cohort.

    Parameters
    ----------
    cohort : Cohort
    thresholds : Thresholds

    Returns
    -------
    RepresentationResult
    """
    groups = cohort.groups
    attributes = [
        Factor(name, levels, at[groups.codes], missing_level=_missing_level(cohort, name, levels))
        for name, levels, at in zip(
            groups.attributes, groups.levels, groups.level_codes, strict=True
        )
    ]
    tables = describe(
        attributes,
        thresholds,
        events=cohort.y.astype(np.float64),
        repeats=cohort.repeats,
        weights=cohort.weights,
        n_read=cohort.n_read,
        missing={k: v for k, v in cohort.dropped.by_column.items() if k in groups.attributes},
    )
    tables = masked_tables(tables, shown_of_cohort(cohort), cohort.dropped.masked)
    notes = list(cohort.notes)
    if cohort.weights is not None:
        notes.append(
            "counts and shares are of rows; weighted_share in .cells and .levels weighs them."
        )
    if cohort.cluster is not None:
        notes.append("intervals of shares take rows as independent, clusters or not.")
    return RepresentationResult(
        tables,
        tuple(cohort_facts(cohort)),
        tuple(notes),
        cohort.suppress_below,
        cohort.round_counts_to,
    )


def _missing_level(cohort: Cohort, name: str, levels: Sequence[Any]) -> str | None:
    """The level that missing values are, if any of them is left."""
    label = cohort.missing_levels.get(name)
    return label if label in levels else None


def representation_of(
    data: Any,
    cross: Any,
    *,
    outcome: Any = None,
    outcome_event: Any = None,
    missing: str = "drop",
    floor: float = 0.01,
    min_count: int = 100,
    disclosure: Sequence[int] = (20, 11),
    rate: float = 0.2,
    level: float = 0.95,
    denominator: str = "known",
    suppress_below: int | None = None,
    round_counts_to: int | None = None,
) -> RepresentationResult:
    """Who is in a table: counts and shares of attributes and their intersections.

    No score and no outcome is needed. Every intersection of the levels is listed, the empty ones
    too, with what independent attributes would give.

    Parameters
    ----------
    data : data frame
        pandas, polars, pyarrow, a duckdb relation, or a dict of arrays. It is not changed.
    cross : name, or sequence of names
        The attributes, one or more.
    outcome : name, optional
        With it, events and non-events of every cell are counted; a missing outcome is neither.
    outcome_event : optional
        The value that counts as 1. Never guessed.
    missing : {"drop", "level", "raise"}, default "drop"
        A row that misses an attribute is in no cell, but counts for its other attributes; or
        missing values are a level of their own; or they are refused. They are counted in any case.
    floor : float, default 0.01
        A cell with a smaller share is below the floor.
    min_count : int, default 100
        Rates of a cell with fewer rows are not to be relied on.
    disclosure : sequence of int, default (20, 11)
        Numbers of rows below which publishers suppress a cell.
    rate : float, default 0.2
        The rate whose Wilson interval has the ``width`` given for each cell.
    level : float, default 0.95
        Confidence level.
    denominator : {"known", "all"}, default "known"
        Shares of cells are of the rows that have all attributes; or, as in Fair Code, of all rows.
        Shares of a single attribute are of the rows that have it.
    suppress_below : int, optional
        Mask counts of 1 to one less, and further ones so that no masked one can be computed, as
        `cfair.Audit` does. A count of 0 is shown. By default nothing is masked.
    round_counts_to : int, optional
        Rows by all attributes, missing values and outcome are rounded to multiples of it, and all
        figures are of these counts.

    Returns
    -------
    RepresentationResult
        With frames ``cells``, ``levels``, ``attributes``, ``associations``, and ``plot()``.

    Raises
    ------
    DataError
        If a column is not there, or is no category; if no row has all attributes.
    ValueError
        For an option that is not allowed.

    Examples
    --------
    >>> import cfair
    >>> result = cfair.representation_of(cfair.load_cohort(), ["sex", "race"])
    >>> result.cells[["group", "n", "ratio"]].round(2).head(3)
           group     n  ratio
    0  F & Black   719   1.06
    1  F & Other   293   0.99
    2  F & White  1658   0.98
    """
    thresholds = check_thresholds(floor, min_count, disclosure, rate, level, denominator)
    below, base = check_below(suppress_below), check_base(round_counts_to)
    names = [cross] if is_name(cross) else list(cross)
    if not names:
        raise DataError("cross must name one or more columns, for example ['sex', 'race'].")
    wanted = [*names, *([outcome] if outcome is not None else [])]
    if len(set(wanted)) < len(wanted):
        raise DataError(f"cross and outcome name a column twice: {', '.join(map(str, wanted))}.")
    table = as_table(data, only=wanted)
    if table.n_rows == 0:
        raise DataError(f"the table has no rows (0 rows, {len(table.names)} columns).")
    attributes = [read_attribute(table.column(name, "cross")) for name in names]
    events, notes = None, []
    facts = [("table", f"{table.n_rows:,} rows")]
    if outcome is not None:
        found = read_binary(
            table.column(outcome, "outcome"), "outcome", event=outcome_event, option="outcome_event"
        )
        events = np.where(found.missing, np.nan, found.values)
        facts.append(("outcome", f"{found.name}, event {found.event}: "))
    attributes = list(with_missing(attributes, missing))
    repeats = None
    if base is not None:
        first, repeats = _rounded(attributes, events, base)
        attributes = [replace(a, codes=a.codes[first]) for a in attributes]
        events = None if events is None else events[first]
    tables = describe(attributes, thresholds, events=events, repeats=repeats)
    shown = shown_of_table(attributes, events, below, repeats)
    tables = masked_tables(tables, shown)
    if events is not None:
        each = np.ones(len(events)) if repeats is None else repeats.astype(np.float64)
        unknown = float(each[np.isnan(events)].sum())
        counts = [float(each[events == 1].sum()), float(each.sum()) - unknown, unknown]
        if shown is not None:
            every = np.ones((1, shown.cells.shape[1]))
            kinds = (KINDS["events"], KINDS["n"] - KINDS["fp"], KINDS["fp"])
            counts = [float(shown.protection.counts(every, kind)[0]) for kind in kinds]
        facts[1] = ("outcome", facts[1][1] + text.share(counts[0], counts[1]))
        if unknown:
            n = text.count(counts[2])
            notes.append(f"{found.name} is missing in {n} rows: neither events nor non-events.")
    facts[0] = ("table", _rows(tables, missing))
    return RepresentationResult(tables, tuple(facts), tuple(notes), below, base)


def _rounded(
    attributes: Sequence[Factor], events: NDArray[np.float64] | None, base: int
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """A row of each combination of values, and its rounded number; without those rounded to 0."""
    outcome = np.zeros(len(attributes[0].codes)) if events is None else np.nan_to_num(events, nan=2)
    keys = np.column_stack([*(a.codes for a in attributes), outcome.astype(np.intp)])
    _, first, n = np.unique(keys, axis=0, return_index=True, return_counts=True)
    counts = rounded(n, base)
    if not counts.any():
        raise DataError(
            f"round_counts_to={base}: every count is rounded to 0. Cross fewer attributes, or use "
            "a smaller base."
        )
    return first[counts > 0], counts[counts > 0]


def _rows(tables: RepresentationTables, missing: str) -> str:
    gone = tables.n_read - tables.n_known
    if is_masked(tables.n_read) or is_masked(tables.n_known):
        gone = np.nan
    read, known = text.count(tables.n_read), text.count(tables.n_known)
    rows = f"{read} rows, {known} with all attributes"
    frame = tables.attributes
    by = [
        f"{a} missing ({text.count(n)})"
        for a, n in zip(frame["attribute"], frame["missing"], strict=True)
        if n
    ]
    if missing == "level":
        return f"{rows}; a missing value is a level"
    return f"{rows} ({text.count(gone)} in no cell: {', '.join(by)})" if gone else rows
