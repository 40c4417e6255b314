"""Intersectional groups: protected attributes crossed, with their labels, sizes and margins.

A group is a tuple of labels, one per attribute, and is counted by an integer code; labels are never
pasted together to tell groups apart.
"""

from __future__ import annotations

import difflib
import numbers
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.frame import plain_column, refuse_half_characters, show_some

MAX_GROUPS = 2000


@dataclass(frozen=True, eq=False)
class Factor:
    """One column as categories: its levels, in order, and a code per row.

    Parameters
    ----------
    name : str
        The column's name.
    levels : tuple
        The values that occur, as plain Python values, in order.
    codes : (n,) intp array
        Position in `levels`; -1 where the value is missing.
    missing_level : str or None
        The level, if any, that stands for missing values.
    """

    name: str
    levels: tuple[Any, ...]
    codes: NDArray[np.intp]
    missing_level: str | None = None

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Rows without a value."""
        return self.codes < 0

    @cached_property
    def counts(self) -> NDArray[np.intp]:
        """Rows per level."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))

    def take(self, rows: NDArray[Any]) -> Factor:
        """Build the factor of some of the rows, without the levels that do not occur among them."""
        codes = self.codes[rows]
        present = np.bincount(codes[codes >= 0], minlength=len(self.levels)) > 0
        if present.all():
            return replace(self, codes=codes)
        renumbered = np.append(np.cumsum(present) - 1, -1).astype(np.intp)  # code -1 stays -1
        levels = tuple(v for v, kept in zip(self.levels, present, strict=True) if kept)
        return replace(self, levels=levels, codes=renumbered[codes])

    def with_missing_level(self) -> Factor:
        """Build the factor whose missing values are a last level of their own."""
        if not self.missing.any():
            return self
        taken = set(shown_levels(self.levels))
        names = ("missing", "(missing)", *(f"(missing {i})" for i in range(2, len(taken) + 3)))
        label = next(name for name in names if name not in taken)
        codes = np.where(self.missing, len(self.levels), self.codes)
        return Factor(self.name, (*self.levels, label), codes, missing_level=label)

    def describe(self, limit: int = 5) -> str:
        """Values with their counts, for messages: 'alive' (412 rows), 'dead' (88 rows)."""
        return show_some(
            [f"{v!r} ({c} rows)" for v, c in zip(self.levels, self.counts, strict=True)], limit
        )


def factor(series: pd.Series, name: str | None = None) -> Factor:
    """Codes and levels of a column of any type.

    The order of the levels is the Categorical's own, otherwise sorted: numbers as numbers, text as
    text, mixed types by type first. Declared categories without any row are no levels.

    Parameters
    ----------
    series : pandas.Series
        One value per row; NaN, None, NA and NaT are missing.
    name : str, optional
        Name for messages, default the Series' own.

    Examples
    --------
    >>> f = factor(pd.Series([10, 9, None, 10]), "site")
    >>> f.levels, f.codes.tolist()
    ((9.0, 10.0), [1, 0, -1, 1])
    """
    name = str(series.name if name is None else name)
    refuse_half_characters([name], "the column name")
    series = plain_column(series)
    if isinstance(series.dtype, pd.CategoricalDtype):
        codes = series.cat.codes.to_numpy().astype(np.intp)
        levels = tuple(_python_value(v) for v in series.cat.categories)
        refuse_half_characters(levels, f"column {name!r}: the label")
        return Factor(name, levels, codes).take(slice(None))  # type: ignore[arg-type]
    _refuse_equal_values_of_two_types(series, name)
    try:
        codes, uniques = pd.factorize(series)
    except (TypeError, OverflowError) as error:  # an older pandas: integers beyond any float
        kinds = sorted({type(v).__name__ for v in series.dropna().head(1000)})
        raise DataError(
            f"column {name!r} holds values that cannot be categories ({', '.join(kinds)}). "
            f"Give it one label per row."
        ) from error
    values = [_python_value(v) for v in uniques]
    refuse_half_characters(values, f"column {name!r}: the label")
    order = _sorted_positions(values)
    rank = np.empty(len(order) + 1, dtype=np.intp)
    rank[order] = np.arange(len(order))
    rank[-1] = -1  # code -1 stays -1
    return Factor(name, tuple(values[i] for i in order), rank[codes])


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows in intersectional groups.

    All crossings of the attributes' levels are groups, the empty ones too, in the order of the
    attributes with the last one varying fastest.

    Parameters
    ----------
    attributes : tuple of str
        Names of the protected attributes.
    levels : tuple of tuples
        Levels of each attribute, in order.
    codes : (n,) intp array
        Group of each row, 0..K-1.
    repeats : (n,) int array or None
        Rows that each of these stands for, where only counts are known; one by default.

    Examples
    --------
    >>> groups = make_groups({"sex": ["F", "M", "M"], "site": [1, 1, 2]})
    >>> groups.names
    ('F & 1', 'F & 2', 'M & 1', 'M & 2')
    >>> groups.sizes.tolist()
    [1, 0, 1, 1]
    >>> groups.labels[2], groups.index_of(("M", 1))
    (('M', 1), 2)
    """

    attributes: tuple[str, ...]
    levels: tuple[tuple[Any, ...], ...]
    codes: NDArray[np.intp]
    repeats: NDArray[np.int64] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of levels of each attribute."""
        return tuple(len(levels) for levels in self.levels)

    @property
    def n_groups(self) -> int:
        """Number of groups K, the empty ones included."""
        return int(np.prod(self.shape))

    @cached_property
    def level_codes(self) -> NDArray[np.intp]:
        """(n_attributes, K) array: the position of each group's level, attribute by attribute."""
        return np.array(np.unravel_index(np.arange(self.n_groups), self.shape), dtype=np.intp)

    @cached_property
    def labels(self) -> tuple[tuple[Any, ...], ...]:
        """The K labels, each a tuple with one level per attribute."""
        return tuple(
            tuple(levels[i] for levels, i in zip(self.levels, at, strict=True))
            for at in self.level_codes.T
        )

    @cached_property
    def level_names(self) -> tuple[tuple[str, ...], ...]:
        """Levels as shown; no two levels of an attribute are shown alike."""
        return tuple(shown_levels(levels) for levels in self.levels)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The K labels as shown, joined by " & "; no two groups are shown alike."""
        shown = [
            " & ".join(names[i] for names, i in zip(self.level_names, at, strict=True))
            for at in self.level_codes.T
        ]
        return _distinct(shown, [repr(label) for label in self.labels])

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """Rows per group."""
        if self.repeats is None:
            return np.bincount(self.codes, minlength=self.n_groups)
        sizes = np.zeros(self.n_groups, dtype=np.intp)
        np.add.at(sizes, self.codes, self.repeats)
        return sizes

    @property
    def margins(self) -> tuple[tuple[str, Any], ...]:
        """Single levels as (attribute, level), attribute by attribute."""
        return tuple(
            (attribute, level)
            for attribute, levels in zip(self.attributes, self.levels, strict=True)
            for level in levels
        )

    @property
    def margin_names(self) -> tuple[str, ...]:
        """Printed names of the margins, such as "sex: F", in their order."""
        return tuple(
            f"{attribute}: {level}"
            for attribute, levels in zip(self.attributes, self.level_names, strict=True)
            for level in levels
        )

    @cached_property
    def margin_matrix(self) -> NDArray[np.float64]:
        """(n_margins, K) array of 0/1: 1 where the group has the margin's level."""
        blocks = [
            np.arange(count)[:, None] == at
            for count, at in zip(self.shape, self.level_codes, strict=True)
        ]
        return np.concatenate(blocks).astype(float)

    @cached_property
    def target_matrix(self) -> NDArray[np.float64]:
        """(T, K) array of 0/1: the groups in each group, each margin, and all rows together."""
        K = self.n_groups
        return np.vstack([np.eye(K), self.margin_matrix, np.ones((1, K))])

    def label_frame(self) -> pd.DataFrame:
        """K rows, one Categorical column per attribute, its categories the levels in order."""
        return self._frame(self.level_codes)

    def row_frame(self) -> pd.DataFrame:
        """One row per row of the data, with the levels of its group, as in `label_frame`."""
        return self._frame(self.level_codes[:, self.codes])

    def _frame(self, level_codes: NDArray[np.intp]) -> pd.DataFrame:
        parts = zip(self.attributes, self.levels, level_codes, strict=True)
        return pd.DataFrame(
            {name: categorical_of_codes(codes, levels) for name, levels, codes in parts}
        )

    def index_of(self, label: Any) -> int:
        """Code of a group, from its label.

        Parameters
        ----------
        label : tuple or str or level
            The label as a tuple, its name joined by " & ", or, with one attribute, the bare level.
        """
        parts = tuple(label) if isinstance(label, (tuple, list)) else (label,)
        if len(parts) == len(self.levels):
            found = [
                _position_of(part, levels, names)
                for part, levels, names in zip(parts, self.levels, self.level_names, strict=True)
            ]
            if None not in found:
                return int(np.ravel_multi_index([i for i in found if i is not None], self.shape))
        if isinstance(label, str) and label in self.names:
            return self.names.index(label)
        text = label if isinstance(label, str) else " & ".join(map(str, parts))
        near = difflib.get_close_matches(text, self.names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        for attribute, names in zip(self.attributes, self.level_names, strict=True):
            if text in names and len(self.attributes) > 1:
                hint = f" It is a level of {attribute!r}: give attribute={attribute!r} as well."
        raise DataError(
            f"{label!r} is not a group of {' x '.join(self.attributes)}.{hint} The groups are: "
            f"{show_some([repr(name) for name in self.names], 20)}."
        )

    def level_position(self, k: int, level: Any) -> int:
        """Position of a level of the k-th attribute, given as itself or as it is shown.

        Parameters
        ----------
        k : int
        level : object

        Raises
        ------
        DataError
            If the attribute has no such level.
        """
        names = self.level_names[k]
        found = _position_of(level, self.levels[k], names)
        if found is None:
            raise DataError(
                f"{level!r} is no level of {self.attributes[k]!r}. Its levels are "
                f"{show_some([repr(name) for name in names], 12)}."
            )
        return found


def make_groups(
    columns: Mapping[str, Any] | pd.DataFrame, *, missing_level: bool = False
) -> Groups:
    """Cross the attributes given as columns.

    Parameters
    ----------
    columns : mapping of name to Series or array, or DataFrame
        One or more attributes; all of one length, matched by position.
    missing_level : bool
        Whether missing values are a level of their own. Otherwise a missing value is a DataError.
    """
    factors = [factor(pd.Series(values), str(name)) for name, values in columns.items()]
    if len({len(f.codes) for f in factors}) > 1:
        lengths = ", ".join(f"{f.name!r} has {len(f.codes)}" for f in factors)
        raise DataError(f"attributes must have the same number of rows, but {lengths}.")
    if missing_level:
        factors = [f.with_missing_level() for f in factors]
    return cross(factors)


def cross(factors: Sequence[Factor], repeats: NDArray[np.int64] | None = None) -> Groups:
    """Cross factors of equal length that have no missing values.

    Parameters
    ----------
    factors : sequence of Factor
        One per attribute, the last one varying fastest.
    repeats : array of int, optional
        Rows that each entry stands for.
    """
    if not factors:
        raise DataError("groups needs at least one attribute, but none was given.")
    n_groups = 1
    for f in factors:
        n_groups *= len(f.levels)
        if f.missing.any():
            raise DataError(
                f"column {f.name!r} has missing values in {int(f.missing.sum())} rows. Leave these "
                f'rows out, or make them a level of their own (missing="level").'
            )
    if n_groups > MAX_GROUPS:
        counts = " x ".join(f"{f.name!r} ({len(f.levels)})" for f in factors)
        raise DataError(
            f"crossing {counts} gives {n_groups:,} groups, more than {MAX_GROUPS:,}. Use fewer "
            f"attributes, or merge levels (pd.cut for numbers, .replace or .map for categories)."
        )
    codes = np.zeros(len(factors[0].codes), dtype=np.intp)
    for f in factors:
        codes = codes * len(f.levels) + f.codes
    names, levels = tuple(f.name for f in factors), tuple(f.levels for f in factors)
    return Groups(names, levels, codes, repeats)


def categorical_of_codes(codes: NDArray[np.intp], levels: Sequence[Any]) -> pd.Categorical:
    """Build a pandas Categorical with exactly these levels, in this order."""
    one_type = len({type(level) for level in levels}) == 1 and not isinstance(levels[0], tuple)
    dtype = None if one_type else object  # an index of 1 and 2.5 would turn 1 into 1.0
    index = pd.Index(list(levels), dtype=dtype, tupleize_cols=False)
    return pd.Categorical.from_codes(codes, categories=index)


def shown_levels(levels: Sequence[Any]) -> tuple[str, ...]:
    """Levels as text; those that would look alike (1 and '1') are shown as Python writes them.

    Text with spaces around it is in quotes, since else nobody would see them.

    Examples
    --------
    >>> shown_levels([1, "1", "x"])
    ('1', "'1'", 'x')
    >>> shown_levels(["F", "F "])
    ('F', "'F '")
    >>> shown_levels([1.0, 2.0])  # whole numbers beside missing values become floats in pandas
    ('1', '2')
    """
    floats = [v for v in levels if isinstance(v, float)]
    whole = all(v.is_integer() and abs(v) < 1e15 for v in floats)
    shown = [str(int(v)) if whole and isinstance(v, float) else str(v) for v in levels]
    shown = [text if text == text.strip() else repr(text) for text in shown]
    return _distinct(shown, [repr(v) for v in levels])


def _distinct(names: list[str], longer: list[str]) -> tuple[str, ...]:
    """Put the longer form for names that clash, and a running number where even these clash."""
    for other in (longer, [f"{name} #{i + 1}" for i, name in enumerate(longer)]):
        times = Counter(names)
        names = [o if times[n] > 1 else n for n, o in zip(names, other, strict=True)]
    return tuple(names)


def _python_value(value: Any) -> Any:
    if isinstance(value, np.generic) and not isinstance(value, (np.datetime64, np.timedelta64)):
        return value.item()
    return value


def _sorted_positions(values: list[Any]) -> list[int]:
    def kind(value: Any) -> str:
        return "" if isinstance(value, numbers.Real) else type(value).__name__

    try:
        return sorted(range(len(values)), key=lambda i: (kind(values[i]), values[i]))
    except TypeError:  # values of one type that have no order
        return sorted(range(len(values)), key=lambda i: (kind(values[i]), repr(values[i])))


def _position_of(value: Any, levels: Sequence[Any], names: Sequence[str]) -> int | None:
    """Position of a level, given as itself or as it is shown."""
    for i, level in enumerate(levels):
        same_kind = isinstance(level, str) == isinstance(value, str)
        if same_kind and not isinstance(value, np.ndarray) and level == value:
            return i
    return names.index(value) if isinstance(value, str) and value in names else None


def _refuse_equal_values_of_two_types(series: pd.Series, name: str) -> None:
    """1 and True are equal in Python, so a column with both has no clear categories."""
    if series.dtype != np.dtype(object):
        return
    if not pd.api.types.infer_dtype(series, skipna=True).startswith("mixed"):
        return
    values = series.dropna()
    is_bool = values.map(lambda v: isinstance(v, (bool, np.bool_))).to_numpy(dtype=bool)
    if is_bool.any() and values[~is_bool].map(lambda v: isinstance(v, numbers.Real)).any():
        raise DataError(
            f"column {name!r} holds both True/False ({int(is_bool.sum())} rows) and numbers. "
            f"Make it one type."
        )
