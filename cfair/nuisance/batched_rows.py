"""The rows of an analysis read by batches, as the cohort of a table in memory has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort, make_cohort
from cfair.columns import Binary, Score, formula_column, read_score, refuse_numbers_as_text
from cfair.combinations import Combinations
from cfair.formula import MAX_LEVELS, Formula
from cfair.frame import Table
from cfair.groups import Factor, categorical_of_codes, factor
from cfair.roles import Declared

Array = NDArray[np.float64]
Integers = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Batch:
    """Some of the rows of the analysis.

    Attributes
    ----------
    at : (n,) array of int
        The entry of the cohort that each row is one of.
    data : pandas.DataFrame
        The columns of the formula.
    weights : (n,) array or None
        Sampling weights, with mean 1 over all rows of the analysis.
    """

    at: Integers
    data: pd.DataFrame
    weights: Array | None


@dataclass(frozen=True, eq=False)
class BatchedRows:
    """The rows of an analysis, which are read anew whenever they are needed.

    Attributes
    ----------
    combinations : Combinations
    declared : Declared
        Its lines.
    cohort : Cohort
        Those that stay, with how many rows each stands for.
    columns : tuple of str
        Columns of the formula.
    unit : float
        The sampling weight that counts as 1.
    """

    combinations: Combinations
    declared: Declared
    cohort: Cohort
    columns: tuple[str, ...]
    unit: float

    @property
    def n_weighted(self) -> int:
        """Rows that carry weight: all, unless some weights are 0."""
        cohort = self.cohort
        if cohort.weights is None:
            return cohort.n_used
        return cohort.count((cohort.weights > 0).astype(np.int8))

    def read(self, label: str) -> Iterator[Batch]:
        """Read the rows that stay, batch by batch.

        Parameters
        ----------
        label : str
            What is done with them, for the bar.

        Yields
        ------
        Batch
            With at least one row.
        """
        cohort = self.cohort
        position = np.full(len(self.declared.table.index), -1, dtype=np.intp)
        position[cohort.rows] = np.arange(len(cohort.rows))
        for table, line in self.combinations.tables(self.columns, label):
            at = position[line]
            keep: Any = at >= 0
            if keep.all():
                keep = slice(None)
            at = at[keep]
            if len(at):
                weights = None
                if cohort.weights is not None:
                    series = table.column(cohort.weights_name)
                    weights = series.to_numpy(dtype=np.float64, na_value=np.nan)[keep] / self.unit
                yield Batch(at, self._data(table, at, keep), weights)

    def _data(self, table: Table, at: Integers, keep: Any) -> pd.DataFrame:
        columns = {name: self._column(table, name, at, keep) for name in self.columns}
        return pd.DataFrame(columns, index=pd.RangeIndex(len(at)))

    def _column(self, table: Table, name: str, at: Integers, keep: Any) -> Any:
        """Values of a column in the form in which the cohort of a table in memory has them."""
        part, groups = self.declared.by_name.get(name), self.cohort.groups
        if isinstance(part, Binary):
            return part.values[self.cohort.rows][at].astype(np.int64)
        if isinstance(part, Factor):
            k = groups.attributes.index(name)
            return categorical_of_codes(groups.level_codes[k][groups.codes[at]], groups.levels[k])
        series = table.column(name)
        if isinstance(part, Score):
            return read_score(series).values[keep]
        return formula_column(series[keep].reset_index(drop=True)).array

    def levels(self, formula: Formula) -> dict[str, Any]:
        """All levels of the columns that are categories, and for the others an array of their type.

        Parameters
        ----------
        formula : Formula

        Returns
        -------
        dict of str to Categorical or array

        Raises
        ------
        FormulaError
            If a column is text in some batches and numbers in others.
        """
        groups, own_order = self.cohort.groups, self.combinations.own_order
        found: dict[str, Any] = {}
        for name, own in zip(groups.attributes, groups.levels, strict=True):
            if name in self.columns:
                found[name] = categorical_of_codes(np.arange(len(own)), own)
        others = {c: _Levels(c in own_order) for c in self.columns if c not in found}
        for batch in self.read("levels"):
            for name, levels in others.items():
                levels.learn(batch.data[name])
            if not any(levels.go_on for levels in others.values()):
                break  # all are numbers, or one has more levels than can be
        for name in formula.bare_columns:
            if name in others and not others[name].own_order:
                refuse_numbers_as_text(name, list(others[name].values))
        return {**found, **{name: levels.found(formula, name) for name, levels in others.items()}}


def choose_rows(
    combinations: Combinations, declared: Declared, columns: tuple[str, ...]
) -> BatchedRows:
    """The rows of an analysis under the one rule for what is missing, with weights of mean 1.

    Parameters
    ----------
    combinations : Combinations
    declared : Declared
        Its lines, checked.
    columns : tuple of str
        Columns of the formula.

    Returns
    -------
    BatchedRows
    """
    cohort = make_cohort(declared, also_missing=combinations.missing)
    if combinations.weights is None:
        return BatchedRows(combinations, declared, cohort, columns, 1.0)
    repeats = cohort.repeats
    assert repeats is not None
    own = combinations.weights.take(cohort.rows)
    most = float(own.most.max())
    if own.least.min() > (1 - 1e-12) * most:  # all equal, which changes nothing
        cohort = replace(cohort, weights=None)
        return BatchedRows(combinations, declared, cohort, columns, most)
    share = own.most / most
    mean = float((own.total * share).sum()) / cohort.n_used
    cohort = replace(
        cohort,
        weights=own.total * share / mean / repeats,
        weight_squares=own.square * (share / mean) ** 2,
    )
    return BatchedRows(combinations, declared, cohort, columns, most * mean)


@dataclass(eq=False)
class _Levels:
    """What a column of a formula holds, as far as it has been read."""

    own_order: bool
    kinds: set[str] = field(default_factory=set)
    values: dict[Any, None] = field(default_factory=dict)
    order: dict[Any, None] = field(default_factory=dict)
    ordered: bool = False

    @property
    def go_on(self) -> bool:
        """Whether more rows can tell more."""
        return "c" in self.kinds and len(self.values) <= MAX_LEVELS

    def learn(self, series: pd.Series) -> None:
        category = isinstance(series.dtype, pd.CategoricalDtype)
        self.kinds.add("c" if category else series.dtype.kind)
        if category:
            self.values.update(dict.fromkeys(factor(series).levels))
            self.order.update(dict.fromkeys(series.cat.categories.tolist()))
            self.ordered = bool(series.cat.ordered)

    def found(self, formula: Formula, name: str) -> Any:
        if "c" not in self.kinds:
            return np.zeros(1, dtype=bool if self.kinds == {"b"} else np.float64)
        if len(self.kinds) > 1:
            raise formula.error(
                f"column {name!r} is a category in some batches and numbers in others. Give it one "
                "type."
            )
        if self.own_order:
            levels = tuple(v for v in self.order if v in self.values)
        else:
            levels = factor(pd.Series(list(self.values), dtype=object), name).levels
        found = categorical_of_codes(np.arange(len(levels)), levels)
        return found.as_ordered() if self.own_order and self.ordered else found
