"""Splits patients into those that a model is trained on and those that are held out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort, make_cohort
from cfair.disclosure import quiet, small_masks
from cfair.errors import DataError, ModelWarning, warn
from cfair.frame import Table, as_table, is_name, show_some
from cfair.results import text
from cfair.results.report import plural
from cfair.roles import Declared, Roles, given, read_declaration, read_role

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_PURPOSE = 103  # keeps the split independent of folds and estimators under the same seed


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a table that a model is trained on, or that are held out.

    Attributes
    ----------
    table : Table
    rows : (n,) array of int
        Positions in the table.
    y : (n,) array of 0 and 1
    weights : (n,) array or None
        Sampling weights.
    groups : set of tuples
        Labels of the groups that have rows here.
    """

    table: Table
    rows: Rows
    y: NDArray[np.int8]
    weights: Array | None
    groups: frozenset[tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Split:
    """Who is trained on and who is held out.

    Attributes
    ----------
    train, test : Part
    roles : Roles
        With a named Series for every role that was given as an array.
    role_names : tuple of (role, column name)
    read : str
        Rows of the table or tables, and what was dropped.
    how : str
        How the rows were split.
    notes : tuple of str
    """

    train: Part
    test: Part
    roles: Roles
    role_names: tuple[tuple[str, str], ...]
    read: str
    how: str
    notes: tuple[str, ...] = ()

    @property
    def attributes(self) -> list[str]:
        """Names of the group attributes."""
        return [name for role, name in self.role_names if role == "groups"]

    def held_out_roles(self) -> dict[str, Any]:
        """The roles of the held-out rows, as `Audit` takes them."""
        values: dict[str, Any] = {"groups": []}
        for role, value, _ in given(self.roles):
            value = value if is_name(value) else value.iloc[self.test.rows]
            if role == "groups":
                values["groups"].append(value)
            else:
                values[role] = value
        options = (
            *("cutoff", "outcome_event", "treatment_event", "missing", "min_group_size"),
            *("small_groups", "suppress_below"),
        )
        return {**values, **{name: getattr(self.roles, name) for name in options}}


def split_seeds(seed: int) -> tuple[int, int]:
    """Seeds of the split and of the upsampling.

    Parameters
    ----------
    seed : int

    Returns
    -------
    int, int
    """
    first, second = np.random.SeedSequence(seed, spawn_key=(_PURPOSE,)).generate_state(2)
    return int(first >> 1), int(second >> 1)  # below 2**31, as scikit-learn wants them


@contextmanager
def said_of(where: str) -> Iterator[None]:
    """Say of which rows a DataError is.

    Parameters
    ----------
    where : str
        Nothing is said if it is empty.
    """
    try:
        yield
    except DataError as error:
        if not where:
            raise
        raise DataError(f"{where}: {error}") from error


def split_tables(
    data: Any, train: Any, test: Any, roles: Roles, test_size: float | int, seed: int
) -> Split:
    """Read the table or the two tables, and split or take them as they are.

    Parameters
    ----------
    data, train, test : data frames or None
        Either the first, or the other two.
    roles : Roles
        Without score and cutoff.
    test_size : float or int
    seed : int

    Returns
    -------
    Split

    Raises
    ------
    DataError
        If the tables do not fit the roles, or one part would have no events or no non-events.
    """
    if (data is None) == (train is None and test is None) or (train is None) != (test is None):
        raise DataError(
            "give either data=, one table that is split, or train= and test=, two tables."
        )
    if data is not None:
        found = _split_one(as_table(data), roles, test_size, split_seeds(seed)[0])
    else:
        if train is test:
            raise DataError(
                "train and test are the same table, so that no row is held out. Give data= to "
                "have it split."
            )
        found = _take_two(as_table(train), as_table(test), roles)
    for where, part in (("training", found.train), ("held-out", found.test)):
        _require_both_outcomes(where, part)
    return found


def _split_one(table: Table, roles: Roles, test_size: float | int, seed: int) -> Split:
    roles = _with_series(table, roles)
    declared = _declare(table, roles)
    cohort = make_cohort(declared)
    train, test, how = split_rows(cohort, test_size, seed)
    return Split(
        _part(cohort, table, train),
        _part(cohort, table, test),
        roles,
        tuple(declared.role_names),
        _rows_read(cohort),
        how,
    )


def _take_two(train: Table, test: Table, roles: Roles) -> Split:
    arrays = [role for role, value, _ in given(roles) if not is_name(value)]
    if arrays:
        raise DataError(
            f"{show_some(arrays)}: with train= and test= every role is the name of a column of "
            "both tables, not an array."
        )
    declared, cohorts = [], []
    for where, table in (("train", train), ("test", test)):
        with said_of(where):
            declared.append(_declare(table, roles))
            cohorts.append(make_cohort(declared[-1]))
    parts = [
        _part(cohort, table, np.arange(cohort.n_used))
        for cohort, table in zip(cohorts, (train, test), strict=True)
    ]
    return Split(
        train=parts[0],
        test=parts[1],
        roles=roles,
        role_names=tuple(declared[0].role_names),
        read=f"train {_rows_read(cohorts[0])}; test {_rows_read(cohorts[1])}",
        how="two tables, as given",
        notes=_in_both(declared, parts, roles.suppress_below),
    )


def _with_series(table: Table, roles: Roles) -> Roles:
    """Roles with arrays as Series on the table's index, so that some of the rows can be taken."""
    values: dict[str, Any] = {}
    groups = []
    for role, value, default in given(roles):
        series = value if is_name(value) else read_role(table, role, value, default)
        if role == "groups":
            groups.append(series)
        else:
            values[role] = series
    return replace(roles, groups=groups, **values)


def _declare(table: Table, roles: Roles) -> Declared:
    """Roles without a score, read and checked; small groups matter for the held-out rows only."""
    nobody = pd.Series(0, index=table.index, name="no call yet")
    without = replace(roles, prediction=nobody, cutoff=None, min_group_size=None)
    declared = read_declaration(table, without)
    return replace(declared, prediction=None)


def _rows_read(cohort: Cohort) -> str:
    return f"{cohort.n_read:,} rows, {cohort.n_used:,} used ({cohort.dropped.sentence()})"


def _part(cohort: Cohort, table: Table, at: Rows) -> Part:
    labels = cohort.groups.labels
    return Part(
        table,
        cohort.rows[at],
        cohort.y[at],
        None if cohort.weights is None else cohort.weights[at],
        frozenset(labels[k] for k in np.unique(cohort.groups.codes[at])),
    )


def _require_both_outcomes(where: str, part: Part) -> None:
    y = part.y if part.weights is None else part.y[part.weights > 0]
    n_events = int(y.sum())
    if 0 < n_events < len(y):
        return
    raise DataError(
        f"the {len(y):,} {where} rows have {'no events' if n_events == 0 else 'only events'}, and "
        "both outcomes are needed. Give another test_size or seed, or other tables."
    )


def _in_both(declared: list[Declared], parts: list[Part], below: int | None) -> tuple[str, ...]:
    """Warn of patients or clusters that are in both tables, as far as labels or values tell."""
    train, test = declared
    found = []
    plain = [t.table.index.equals(pd.RangeIndex(t.table.n_rows)) for t in (train, test)]
    shared = train.table.index.intersection(test.table.index)
    if len(shared) and not all(plain):  # rows that are merely numbered say nothing
        found.append(
            f"{text.count(float(small_masks(len(shared), below)))} labels of the index are in both "
            f"tables, such as {shared[0]!r}: rows of patients that were trained on are not held "
            "out."
        )
    else:
        found += [quiet(note, below) for note in _equal_rows(*parts)]
    if train.cluster is not None and test.cluster is not None:
        both = set(train.cluster.levels) & set(test.cluster.levels)
        if both:
            n = text.count(float(small_masks(len(both), below)))
            found.append(
                f"{n} clusters ({train.cluster.name}) have rows in both tables: the "
                "model has seen their like."
            )
    for note in found:
        warn(note, ModelWarning)
    return tuple(found)


def _equal_rows(train: Part, test: Part) -> list[str]:
    """Say that many held-out rows are training rows, by the values of all common columns.

    Rows of a few categories are equal by chance: held-out rows that are no training rows meet one
    as often as a training row meets another one. More than that is said, from 5% of the rows on.
    """
    names = [n for n in train.table.names if n in test.table.names]
    seen, held = (_row_hashes(part, names) for part in (train, test))
    n = len(held)
    equal = int(np.isin(held, seen).sum())
    _, where, times = np.unique(seen, return_inverse=True, return_counts=True)
    by_chance = float((times[where] > 1).mean())
    excess = equal - n * by_chance
    noise = 4 * np.sqrt(n * by_chance * (1 - by_chance))
    same_table = n == len(seen) and np.array_equal(np.sort(held), np.sort(seen))
    if not same_table and excess <= max(0.05 * n, noise):
        return []
    return [
        f"{equal:,} of {n:,} rows of test have the same values as a row of train in all "
        f"{plural(len(names), 'column')} of both: rows of patients that were trained on are not "
        "held out."
    ]


def _row_hashes(part: Part, names: list[Any]) -> NDArray[np.uint64]:
    """A hash of each row that does not depend on the index or the type of numbers."""
    table = part.table.take(part.rows)
    columns = {}
    for k, name in enumerate(names):
        series = table.column(name)
        if pd.api.types.is_numeric_dtype(series.dtype) and series.dtype.kind != "c":
            columns[k] = series.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            columns[k] = series.astype("str").to_numpy(dtype=object, na_value="")
    hashes: pd.Series = pd.util.hash_pandas_object(pd.DataFrame(columns), index=False)
    return hashes.to_numpy(dtype=np.uint64)


def check_test_size(size: Any) -> float | int:
    """A share between 0 and 1, or a whole number of at least 1."""
    whole = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
    if whole and size >= 1:
        return int(size)
    if isinstance(size, (float, np.floating)) and 0 < size < 1:
        return float(size)
    raise ValueError(
        "test_size must be a share between 0 and 1, such as 0.3, or a number of rows (with "
        f"cluster=, of clusters) >= 1, not {size!r}."
    )


def split_rows(cohort: Cohort, test_size: float | int, seed: int) -> tuple[Rows, Rows, str]:
    """Training and held-out rows of a cohort.

    Whole clusters are drawn if there are any. Otherwise rows are, by outcome and group: a row alone
    in its cell counts with the largest of its outcome, and where there are more cells than rows to
    fill them, only the outcome is balanced.

    Parameters
    ----------
    cohort : Cohort
    test_size : float or int
    seed : int

    Returns
    -------
    train, test : (n,) arrays of int
        Positions in the cohort, in its order.
    how : str

    Raises
    ------
    DataError
        If there are too few rows or clusters.
    """
    from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit, StratifiedShuffleSplit

    clustered = cohort.cluster is not None
    n = cohort.n_used if cohort.cluster is None else len(np.unique(cohort.cluster))
    n_test = test_size if isinstance(test_size, int) else int(np.ceil(test_size * n))
    unit = f"clusters ({cohort.cluster_name})" if clustered else "rows"
    if not 0 < n_test < n:
        raise DataError(
            f"test_size={test_size!r} holds out {n_test:,} of {n:,} {unit}, so that none is left "
            "to train on. Give a smaller test_size."
        )
    if clustered and n_test < 2:
        more = "Give a larger test_size" if n > 2 else "Give train= and test= with more clusters"
        raise DataError(
            f"test_size={test_size!r} holds out 1 of {n:,} {unit}, and a variance needs two held-"
            f"out clusters or more. {more}, or leave cluster= out."
        )
    sizes = {"n_splits": 1, "test_size": n_test, "train_size": n - n_test, "random_state": seed}
    rows = np.zeros(cohort.n_used)
    if clustered:
        found = GroupShuffleSplit(**sizes).split(rows, groups=cohort.cluster)
        how = f"at random by whole clusters of {cohort.cluster_name}: {n - n_test:,} and {n_test:,}"
    else:
        strata, how = _strata(cohort, min(n_test, n - n_test))
        if strata is None:
            found = ShuffleSplit(**sizes).split(rows)
        else:
            found = StratifiedShuffleSplit(**sizes).split(rows, strata)
    train, test = next(iter(found))
    return np.sort(train), np.sort(test), how


def _strata(cohort: Cohort, most: int) -> tuple[NDArray[np.integer] | None, str]:
    """What the split is balanced by, with at most so many strata, and how that is said."""
    cells = 2 * cohort.groups.codes + cohort.y
    sizes = np.bincount(cells, minlength=2 * cohort.groups.n_groups)
    alone = sizes[cells] < 2
    largest = 2 * np.array([sizes[0::2].argmax(), sizes[1::2].argmax()]) + [0, 1]
    pooled = np.where(alone, largest[cohort.y], cells)
    aside = ""
    if alone.any() and cohort.suppress_below is None:  # that there are such is a count of one
        aside = f" ({plural(int(alone.sum()), 'row')} alone in a cell aside)"
    for strata, how in (
        (pooled, f"at random, balanced by outcome and group{aside}"),
        (cohort.y, "at random, balanced by outcome: too few rows to balance groups"),
    ):
        found = np.unique(strata, return_counts=True)[1]
        if found.min() >= 2 and len(found) <= most:
            return strata, how
    return None, "at random: too few rows to balance outcome and group"
