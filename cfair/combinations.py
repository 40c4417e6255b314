"""The combinations of values that the roles of a table in batches have, counted.

They are few, and with how many rows each stands for they are a declaration like any other
(`cfair.counting` does it in the engine of a lazy table). Read again, every row is one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.util import hash_pandas_object

from cfair.batches import Source
from cfair.columns import (
    check_finite,
    check_some_weight,
    event_values,
    formula_column,
    read_attribute,
    read_binary,
    read_score,
    weight_values,
)
from cfair.errors import DataError
from cfair.frame import Table, is_name, show_some
from cfair.groups import factor
from cfair.roles import Declared, Roles, given, read_declaration

Array = NDArray[np.float64]
Integers = NDArray[np.intp]

#: Combinations at most; more are an identifier among the attributes, or very many clusters.
MAX_COMBINATIONS = 1_000_000
#: One more than the largest key.
_MOST_KEYS = 2**63
_MIX = np.uint64(1_000_003)
_BINARY = ("outcome", "treatment", "prediction")


@dataclass(eq=False)
class _Values:
    """The values that a column has had so far, each with a number, in the order of appearance."""

    values: list[Any] = field(default_factory=list)
    number: dict[Any, int] = field(default_factory=dict)
    seen: set[Any] = field(default_factory=set)
    categorical: bool = False
    ordered: bool = False

    def add(self, values: Sequence[Any]) -> None:
        """Number values that have no number yet."""
        for value in values:
            if value not in self.number:
                self.number[value] = len(self.values)
                self.values.append(value)

    def learn(self, series: pd.Series, text: bool) -> bool:
        """Number the values of a batch, categories in their order; says whether one is unseen."""
        own = isinstance(series.dtype, pd.CategoricalDtype) and not text
        if own:
            self.categorical, self.ordered = True, bool(series.cat.ordered)
            self.add([_plain(v) for v in series.cat.categories])
        levels = factor(series).levels
        self.add(levels)
        unseen = set(levels) - self.seen
        self.seen |= unseen
        return bool(unseen)

    def codes(self, series: pd.Series) -> Integers:
        """Numbers of the values of a batch, -1 where one is missing, -2 where it is unknown."""
        found = factor(series)
        numbers = [self.number.get(v, -2) for v in found.levels]
        return np.array([*numbers, -1], dtype=np.intp)[found.codes]

    def column(self, codes: Integers) -> Any:
        """Values of these numbers, as a column that is read as the whole one would be."""
        if self.categorical:
            categories = pd.Index(self.values, tupleize_cols=False)
            return pd.Categorical.from_codes(codes, categories=categories, ordered=self.ordered)
        return pd.Series([None if c < 0 else self.values[c] for c in codes], dtype=object)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, eq=False)
class WeightSums:
    """Sampling weights of the rows that each line stands for.

    Attributes
    ----------
    least, most : (L,) arrays
        The smallest and the largest; a missing weight counts as 0.
    total, square : (L,) arrays
        Sums of the weights and of their squares, in units of the largest: sums of very large ones
        overflow.
    """

    least: Array
    most: Array
    total: Array
    square: Array

    @classmethod
    def of_rows(cls, weights: Array) -> WeightSums:
        """Those of single rows.

        Parameters
        ----------
        weights : (n,) array

        Returns
        -------
        WeightSums
        """
        known, some = np.nan_to_num(weights), (weights > 0).astype(np.float64)
        return cls(known, known, some, some)

    @classmethod
    def joined(cls, parts: Sequence[WeightSums]) -> WeightSums:
        """Those of the lines of all parts, one after the other.

        Parameters
        ----------
        parts : sequence of WeightSums

        Returns
        -------
        WeightSums
        """
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    def take(self, lines: NDArray[Any]) -> WeightSums:
        """Those of some lines.

        Parameters
        ----------
        lines : array

        Returns
        -------
        WeightSums
        """
        return WeightSums(*(getattr(self, f.name)[lines] for f in fields(self)))

    def merged(self, which: Integers, n: int) -> WeightSums:
        """Those of lines of which several are made one.

        Parameters
        ----------
        which : (L,) array of int
            The line that each becomes.
        n : int
            Lines there are then.

        Returns
        -------
        WeightSums
        """
        least, most = np.full(n, np.inf), np.zeros(n)
        np.minimum.at(least, which, self.least)
        np.maximum.at(most, which, self.most)
        share = self.most / np.where(most > 0, most, 1.0)[which]
        sums = (self.total * share, self.square * share**2)
        total, square = (np.asarray(np.bincount(which, values, n), np.float64) for values in sums)
        return WeightSums(least, most, total, square)


@dataclass(frozen=True, eq=False)
class Combinations:
    """The combinations in a table, counted.

    Attributes
    ----------
    source : Source
    roles : Roles
    columns : tuple of (str, str)
        Role and name of every column that makes up the combinations.
    others : tuple of str
        Further columns, of which only the missing values do.
    n_rows : int
    lines : pandas.DataFrame
        A line per combination, sorted by its key; the score is 1 where it reaches the cutoff, and
        a weight the mean of those of the rows.
    repeats : (L,) array of int
        Rows that have this combination.
    weights : WeightSums or None
        Their sampling weights. A combination has rows of weight 0, or rows above it, not both.
    missing : dict of str to (L,) array of bool
        By further column, the combinations in which it is missing.
    own_order : frozenset of str
        Columns that are categories with an order of their own; levels of others are sorted.
    """

    source: Source
    roles: Roles
    columns: tuple[tuple[str, str], ...]
    others: tuple[str, ...]
    n_rows: int
    lines: pd.DataFrame
    repeats: NDArray[np.int64]
    weights: WeightSums | None
    missing: dict[str, NDArray[np.bool_]]
    own_order: frozenset[str]
    _sums: NDArray[np.uint64] = field(repr=False)
    _values: list[_Values] = field(repr=False)
    _keys: NDArray[np.int64] = field(repr=False)

    def declared(self) -> Declared:
        """The combinations as a declaration; a DataError if they do not fit their roles."""
        return replace(read_declaration(self.lines, self.roles), repeats=self.repeats)

    def tables(
        self, more: Sequence[str] = (), label: str = "reading"
    ) -> Iterator[tuple[Table, Integers]]:
        """Read the table again.

        Parameters
        ----------
        more : sequence of str
            Columns that are needed beside those of the combinations.
        label : str

        Yields
        ------
        table : Table
        line : (n,) array of int
            Which combination each row is.

        Raises
        ------
        DataError
            If the rows are not those that were counted.
        """
        names = [name for _, name in self.columns]
        read, changed = 0, False
        sums = np.zeros_like(self._sums)
        for table in self.source.tables([*names, *self.others, *more], label, self.n_rows):
            line, own = self._find(table)
            read += table.n_rows
            changed = own is None
            if own is None or read > self.n_rows:
                break
            sums += own
            yield table, line
        else:
            if read == self.n_rows and (sums == self._sums).all():
                return
        what = f"{read:,}" + " rows or more" * (read > self.n_rows)
        if changed or read == self.n_rows:
            all_names = (*names, *self.others)
            other = [repr(all_names[j]) for j in np.flatnonzero(sums != self._sums)[:-1]]
            what = "other values"
            if not changed:
                what += f" in {show_some(other)}" if other else " together in a row"
        raise DataError(
            f"the readings differ: {self.source.shown} had {self.n_rows:,} rows when it was first "
            f"read, and now has {what}. Every reading must give the same rows: write them to a "
            "parquet file first."
        )

    def _find(self, table: Table) -> tuple[Integers, NDArray[np.uint64] | None]:
        """The combination that each row is, and checksums; none where one is unknown."""
        codes = _codes(self.roles, self.columns, self.others, self._values, table)
        keys = _keys(codes, self._values)
        line = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        if (codes < -1).any() or (self._keys[line] != keys).any():
            return line, None
        return line, _checksums(self.columns, self.others, codes, table)


def count_combinations(source: Source, roles: Roles, others: Sequence[str]) -> Combinations:
    """Read a table once, check the columns of its roles, and count their combinations.

    Parameters
    ----------
    source : Source
    roles : Roles
        Every role a column's name.
    others : sequence of str
        Columns of formulas; of those without a role the missing values are counted.

    Returns
    -------
    Combinations

    Raises
    ------
    DataError
        As for a table in memory; the message says in which rows.
    """
    columns, _ = check_roles(source, roles)
    with_role = {name for _, name in columns}
    others = tuple(name for name in map(source.position, others) if name not in with_role)
    values = [_Values() for _ in range(len(columns) + 1)]  # the last are sets of missing columns
    weighted = next((name for role, name in columns if role == "weights"), None)
    parts: list[_Lines] = []
    n_rows = n_found = 0
    own_order: set[str] = set()
    total = np.zeros(len(columns) + len(others) + 1, dtype=np.uint64)
    for table in source.tables([*with_role, *others], "rows and groups", check_types=True):
        try:
            _learn(source, roles, columns, values, table)
            codes = _codes(roles, columns, others, values, table, learn=True)
            _require_keys(columns, values)
        except DataError as error:
            last = n_rows + table.n_rows
            where = f" (found in rows {n_rows + 1:,} to {last:,} of {source.shown})"
            raise DataError(f"{error}{where * (n_rows > 0)}") from None
        n_rows += table.n_rows
        total += _checksums(columns, others, codes, table)
        own_order |= {
            name
            for name in {*with_role, *others} - source.text - own_order
            if isinstance(table.column(name).dtype, pd.CategoricalDtype)
        }
        weights = None
        if weighted is not None:
            weights = WeightSums.of_rows(weight_values(table.column(weighted)))
        one = np.ones(table.n_rows, dtype=np.int64)
        parts.append(_Lines(codes, one, weights).merged(values))
        n_found += len(parts[-1].repeats)
        if n_found > 2 * MAX_COMBINATIONS:  # seldom, so that what is merged is not merged again
            parts = [_joined(parts).merged(values)]
            n_found = len(parts[0].repeats)
            if n_found > MAX_COMBINATIONS:
                _refuse_many(columns, values, parts[0])
    if not n_rows:
        raise DataError(f"the table has no rows (0 rows, {len(source.names)} columns).")
    found = _joined(parts).merged(values)  # sorted by their keys
    if len(found.repeats) > MAX_COMBINATIONS:
        _refuse_many(columns, values, found)
    codes, repeats = found.codes, found.repeats
    _check_events(roles, columns, values, codes, repeats)
    lines = pd.DataFrame({name: values[j].column(codes[j]) for j, (_, name) in enumerate(columns)})
    for j, (role, name) in enumerate(columns):
        if role == "score":
            lines[name] = lines[name].astype(np.float64)
        if role == "weights" and found.weights is not None:
            mean = found.weights.most * (found.weights.total / repeats)
            lines[name] = np.where(codes[j] < 0, np.nan, mean)
            check_some_weight(name, lines[name].to_numpy(), repeats)
    sets = [set(values[-1].values[c]) for c in codes[-1]]
    missing = {name: np.array([name in lost for lost in sets]) for name in others}
    return Combinations(
        source,
        roles,
        columns,
        others,
        n_rows,
        lines,
        repeats,
        found.weights,
        missing,
        frozenset(own_order),
        total,
        values,
        _keys(codes, values),
    )


def check_roles(source: Source, roles: Roles) -> tuple[tuple[tuple[str, str], ...], Declared]:
    """Role and column of every role, after all that can be said of them without any row.

    Parameters
    ----------
    source : Source
    roles : Roles

    Returns
    -------
    columns : tuple of (str, str)
    one : Declared
        Of a single row that was made up.

    Raises
    ------
    DataError
    """
    found = []
    for role, value, _ in given(roles):
        if not is_name(value):
            raise DataError(
                f"{role} is given as values, but the table is read by batches, which they cannot "
                "be matched with. Make it a column of the table and give its name."
            )
        found.append((role, source.position(value, role)))
    invented = {"score": 0.5, "prediction": 1, "groups": "a", "cluster": "a", "weights": 1.0}
    events = {
        role: None if event is None else (*event_values(event), event)[0]
        for role, event in (("outcome", roles.outcome_event), ("treatment", roles.treatment_event))
    }
    invented |= {role: 1 if event is None else event for role, event in events.items()}
    # whether the roles agree with each other does not depend on the rows: one will do
    first: dict[str, Any] = {f"{role}_event": event for role, event in events.items()}
    one = read_declaration(
        {name: [invented[role]] for role, name in found}, replace(roles, **first)
    )
    return tuple(found), one


def _shown(role: str, name: str) -> str:
    return f"{'group' if role == 'groups' else role} column {name!r}"


def _learn(
    source: Source,
    roles: Roles,
    columns: Sequence[tuple[str, str]],
    values: list[_Values],
    table: Table,
) -> None:
    """Number what is new in a batch, and check it by its role."""
    for own, (role, name) in zip(values, columns, strict=False):
        series = table.column(name, role)
        if role in ("score", "weights"):
            own.add((0.0, 1.0))
            continue
        check_finite(series, _shown(role, name))
        if not own.learn(series, name in source.text):
            continue
        event = {"outcome": roles.outcome_event, "treatment": roles.treatment_event}.get(role)
        if role in _BINARY and event is None:
            read_binary(series, role, option=None if role == "prediction" else f"{role}_event")
        elif role == "groups":
            read_attribute(series)


def _codes(
    roles: Roles,
    columns: Sequence[tuple[str, str]],
    others: Sequence[str],
    values: list[_Values],
    table: Table,
    *,
    learn: bool = False,
) -> Integers:
    """Numbers of the values, a line per column; of the sets of missing columns in the last."""
    found = []
    for own, (role, name) in zip(values, columns, strict=False):
        series = table.column(name, role)
        if role == "score":
            score = read_score(series)
            call = score.positive(0.0 if roles.cutoff is None else float(roles.cutoff))
            found.append(np.where(score.missing, -1, call).astype(np.intp))
        elif role == "weights":
            weights = weight_values(series)
            found.append(np.where(np.isnan(weights), -1, weights > 0).astype(np.intp))
        else:
            found.append(own.codes(series))
    masks = {name: table.column(name).isna().to_numpy() for name in others}
    if learn:
        for name in others:
            formula_column(table.column(name))  # which refuses what no formula can use
    some = [name for name, mask in masks.items() if mask.any()]
    lost = np.zeros(table.n_rows, dtype=np.intp)
    if some:
        packed = np.packbits(np.column_stack([masks[name] for name in some]), axis=1)
        _, first, lost = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        lost = lost.reshape(-1)
    else:
        first = np.zeros(1, dtype=np.intp)
    sets = [tuple(name for name in some if masks[name][row]) for row in first]
    if learn:
        values[-1].add(sets)
    numbers = np.array([values[-1].number.get(names, -2) for names in sets], dtype=np.intp)
    found.append(numbers[lost])
    return np.stack(found)


def _checksums(
    columns: Sequence[tuple[str, str]], others: Sequence[str], codes: Integers, table: Table
) -> NDArray[np.uint64]:
    """A sum for each column and one for whole rows, the same in any order and in any batches."""
    rows: NDArray[Any] = np.zeros(table.n_rows, dtype=np.uint64)
    sums = []
    for j, (role, name) in enumerate((*columns, *((None, name) for name in others))):
        values: Any
        if role not in (None, "score", "weights"):
            values = codes[j]  # the same whatever type a batch has
        else:
            values = table.column(name)
            if not isinstance(values.dtype, pd.CategoricalDtype) and values.dtype.kind in "biuf":
                values = values.to_numpy(dtype=np.float64, na_value=np.nan)
        hashed = hash_pandas_object(pd.Series(values), index=False).to_numpy()
        sums.append(hashed.sum(dtype=np.uint64))
        rows = (rows * _MIX) ^ hashed
    return np.array([*sums, rows.sum(dtype=np.uint64)], dtype=np.uint64)


def _require_keys(columns: Sequence[tuple[str, str]], values: list[_Values]) -> None:
    """Refuse values that can be combined in more ways than there are keys."""
    ways = math.prod(len(own.values) + 1 for own in values)
    if ways <= _MOST_KEYS:
        return
    most = sorted(range(len(columns)), key=lambda j: -len(values[j].values))
    shown = [f"{_shown(*columns[j])} ({len(values[j].values):,})" for j in most]
    raise DataError(
        f"the values of the roles can be combined in {ways:.1e} ways, more than can be told apart "
        f"by batches. The most values have {show_some(shown, 3)}: leave out an identifier, or "
        "group values."
    )


def _keys(codes: Integers, values: list[_Values]) -> NDArray[np.int64]:
    """One number per combination; see `_require_keys`."""
    keys = np.zeros(codes.shape[1], dtype=np.int64)
    for own, code in zip(values, codes, strict=True):
        keys *= len(own.values) + 1
        keys += code + 1
    return keys


@dataclass(frozen=True, eq=False)
class _Lines:
    """Combinations by the numbers of their values, and what of the rows each stands for."""

    codes: Integers
    repeats: NDArray[np.int64]
    weights: WeightSums | None

    def merged(self, values: list[_Values]) -> _Lines:
        """With one line per combination, sorted by its key."""
        _, first, which = np.unique(
            _keys(self.codes, values), return_index=True, return_inverse=True
        )
        which, n = which.reshape(-1), len(first)
        repeats = np.zeros(n, dtype=np.int64)
        np.add.at(repeats, which, self.repeats)
        weights = None if self.weights is None else self.weights.merged(which, n)
        return _Lines(self.codes[:, first], repeats, weights)


def _joined(parts: Sequence[_Lines]) -> _Lines:
    weights = [part.weights for part in parts if part.weights is not None]
    return _Lines(
        np.hstack([part.codes for part in parts]),
        np.concatenate([part.repeats for part in parts]),
        WeightSums.joined(weights) if weights else None,
    )


def _refuse_many(
    columns: Sequence[tuple[str, str]],
    values: list[_Values],
    lines: _Lines,
) -> None:
    most = max(range(len(columns)), key=lambda j: len(values[j].values))
    role, name = columns[most]
    hint = (
        "By batches about ten thousand clusters can be told apart; leave cluster= out, or name a "
        "larger unit."
        if role == "cluster"
        else "Is it an identifier? Leave it out, or group its values."
    )
    raise DataError(
        f"the roles have more than {MAX_COMBINATIONS:,} combinations of values; "
        f"{_shown(role, name)} alone has {len(values[most].values):,} values in "
        f"{lines.repeats.sum():,} rows. {hint}"
    )


def _check_events(
    roles: Roles,
    columns: Sequence[tuple[str, str]],
    values: list[_Values],
    codes: Integers,
    repeats: NDArray[np.int64],
) -> None:
    """Refuse an event that does not occur, or is spelt in two ways, with the counts of rows."""
    events = {"outcome": roles.outcome_event, "treatment": roles.treatment_event}
    for j, (role, name) in enumerate(columns):
        if events.get(role) is not None:
            some = np.bincount(codes[j] + 1, repeats, len(values[j].values) + 1).astype(int)[1:]
            each = np.array(values[j].values, dtype=object)
            try:
                read_binary(pd.Series(each, name=name), role, event=events[role])
            except DataError:  # again, so that rows are counted
                sample = pd.Series(np.repeat(each, some), name=name)
                read_binary(sample, role, event=events[role], option=f"{role}_event")
