"""Any data frame in, plain pandas columns out: only this module knows which library holds the data.

Past this module a column has one of few kinds: numpy bool, integers or floats, pandas' nullable
integers or booleans where values are missing, a Categorical, dates, or text and other objects.
"""

from __future__ import annotations

import decimal
import difflib
import numbers
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import DataError

_ACCEPTED = (
    "a pandas, polars or pyarrow table, a duckdb relation, or a dict of arrays of equal length"
)


@dataclass(frozen=True, eq=False)
class Table:
    """A data frame of any library, from which columns are read by name.

    Parameters
    ----------
    names : tuple
        Column names, in the order of the frame; a name may occur twice.
    index : pandas.Index
        The rows' labels: the pandas index, or 0..n-1 for frames that have none.
    source : object
        The eager frame that holds the values. The caller's frame is never changed.
    has_index : bool
        Whether the labels are the caller's own, so that a Series can be matched by them.
    """

    names: tuple[Hashable, ...]
    index: pd.Index
    source: Any
    has_index: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.index)

    def position(self, name: Any, what: str = "column") -> int:
        """Position of the one column of this name, or a DataError that says what was near.

        `name` is a column name as the frame has it, or its text; `what` is the argument or role
        that asks, for the message.
        """
        found = [i for i, own in enumerate(self.names) if _same_name(own, name)]
        if not found and isinstance(name, str):
            found = [i for i, own in enumerate(self.names) if str(own) == name]
        if len(found) > 1:
            raise DataError(
                f"{what} {name!r}: the table has {len(found)} columns of this name "
                f"(positions {', '.join(map(str, found))}). Rename or drop all but one."
            )
        if not found:
            raise DataError(f"{what} {name!r} is not a column of the table. {self._nearest(name)}")
        return found[0]

    def column(self, name: Any, what: str = "column") -> pd.Series:
        """One column, in a plain form, on the table's index."""
        position = self.position(name, what)
        refuse_half_characters([str(self.names[position])], "the column name")
        if isinstance(self.source, pd.DataFrame):
            series = self.source.iloc[:, position]
        else:
            arrow = hasattr(self.source, "column_names")
            values = self.source[position] if arrow else self.source[:, position]
            series = pd.Series(_to_pandas_array(values), index=self.index)
        return plain_column(series.rename(str(name)))

    def read(self, names: Iterable[Any]) -> pd.DataFrame:
        """Columns of these names as a new pandas frame on the table's index."""
        return pd.DataFrame({name: self.column(name) for name in names}, index=self.index)

    def take(self, rows: NDArray[np.intp]) -> Table:
        """Some of the rows, by position, in this order."""
        if isinstance(self.source, pd.DataFrame):
            source: Any = self.source.iloc[rows]
        else:
            arrow = hasattr(self.source, "column_names")
            source = self.source.take(rows) if arrow else self.source[rows]
        return replace(self, index=self.index[rows], source=source)

    def align(self, values: Any, what: str) -> pd.Series:
        """Values given beside the table, as a column on its index.

        A Series is matched by its index, never by position under another index; an array or list
        must have the table's length. `what` is the argument or role, for the message.
        """
        if isinstance(values, pd.Series):
            return plain_column(self._align_series(values, what))
        array = _one_dimensional(values, what)
        if len(array) != self.n_rows:
            raise DataError(
                f"{what} has {len(array)} values, but the table has {self.n_rows} rows. "
                f"Give one value per row, or the name of a column."
            )
        return plain_column(pd.Series(array, index=self.index, name=getattr(values, "name", None)))

    def _align_series(self, values: pd.Series, what: str) -> pd.Series:
        if values.index.equals(self.index):
            return values.set_axis(self.index)
        if not self.has_index:
            raise DataError(
                f"{what}: the Series {values.name!r} has an index "
                f"({_show_index(values.index)}), but the table has none to match it by. Give the "
                f"values alone, in the order of the table's rows: {what}=series.to_numpy()."
            )
        both_unique = values.index.is_unique and self.index.is_unique
        if both_unique and len(values) == self.n_rows:
            where = values.index.get_indexer(self.index)
            if (where >= 0).all():
                return values.iloc[where].set_axis(self.index)
        why = "" if both_unique else " (an index with duplicates is only matched if it is equal)"
        raise DataError(
            f"{what}: the Series {values.name!r} has {len(values)} rows with index "
            f"{_show_index(values.index)}, but the table has {self.n_rows} rows with index "
            f"{_show_index(self.index)}{why}. Give it the table's index, or put it into the table "
            f"as a column and give the column's name."
        )

    def _nearest(self, name: Any) -> str:
        if name in self.index.names:
            return "It is a level of the index: make it a column with .reset_index()."
        known = {str(own).lower(): str(own) for own in self.names}
        sought = str(name).lower()
        parts = [own for own in known if len(sought) > 2 and (sought in own or own in sought)]
        close = difflib.get_close_matches(sought, known, n=3, cutoff=0.6)
        near = list(dict.fromkeys([*parts, *close]))[:3]
        if near:
            return "The nearest names: " + ", ".join(repr(known[key]) for key in near) + "."
        return "It has " + show_some([repr(own) for own in self.names], 8) + "."


def as_table(data: Any, only: Sequence[Any] | None = None) -> Table:
    """Wrap a data frame of any supported library.

    A lazy frame (polars LazyFrame, duckdb relation) is collected here, once, so that every column
    read afterwards has its rows in one and the same order.

    Parameters
    ----------
    data : data frame
        pandas, polars (eager or lazy), pyarrow, a duckdb relation, any other frame that narwhals
        reads, or a dict of arrays of equal length.
    only : sequence of names, optional
        The only columns that a lazy frame has to collect; default all.

    Examples
    --------
    >>> table = as_table({"sex": ["F", "M"], "age": [61, 58]})
    >>> table.names, table.n_rows
    (('sex', 'age'), 2)
    """
    if isinstance(data, Table):
        return data
    if isinstance(data, Mapping):
        indexed = any(isinstance(values, pd.Series) for values in data.values())
        return replace(_pandas_table(_frame_of_mapping(data)), has_index=indexed)
    if isinstance(data, pd.DataFrame):
        return _pandas_table(data)
    if type(data).__module__.split(".")[0] == "pyarrow" and hasattr(data, "column_names"):
        return Table(tuple(data.column_names), pd.RangeIndex(data.num_rows), data)
    eager = _collect(data, only)
    if isinstance(eager, pd.DataFrame) or hasattr(eager, "column_names"):
        return as_table(eager)
    return Table(tuple(eager.columns), pd.RangeIndex(len(eager)), eager)


def column_names(data: Any) -> tuple[str, ...]:
    """Names of a frame's columns, as text."""
    return tuple(str(name) for name in as_table(data).names)


def read_columns(data: Any, columns: Sequence[Any]) -> pd.DataFrame:
    """Columns of any data frame as a new pandas frame; a pandas index is kept.

    An unknown name, or one that occurs twice, is a DataError. For `data` see `as_table`.
    """
    return as_table(data, only=columns).read(columns)


def plain_column(series: pd.Series) -> pd.Series:
    """The same values in one of the few kinds of column that the package works with.

    Sparse, nullable and arrow-backed numbers become numpy's, unless integers or booleans have
    missing values (they stay nullable, so that 1 does not turn into 1.0); objects that are all
    numbers become numbers.
    """
    dtype = series.dtype
    if isinstance(dtype, pd.SparseDtype):
        series = cast(Any, series).sparse.to_dense()
        dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return series
    if pd.api.types.is_extension_array_dtype(dtype) and dtype.kind in "iufb":
        return _plain_nullable(series)
    if isinstance(dtype, pd.ArrowDtype) and dtype.kind != "U":
        series = _from_arrow_backed(series)
        dtype = series.dtype
    return _plain_objects(series) if dtype == np.dtype(object) else series


def refuse_half_characters(texts: Iterable[Any], what: str) -> None:
    """Refuse halves of surrogate pairs, which no file and no text column can hold."""
    half = [t for t in texts if isinstance(t, str) and any("\ud800" <= c <= "\udfff" for c in t)]
    if half:
        raise DataError(
            f"{what} {half[0]!a} holds half of a surrogate pair, which is no character. "
            "Decode the file as what it is, or rename it."
        )


def is_name(value: Any) -> bool:
    """Whether a role is given by name: text, or a whole number as pandas may use for columns."""
    return isinstance(value, (str, int, np.integer)) and not isinstance(value, bool)


def show_some(items: Sequence[str], limit: int = 5) -> str:
    """Join the first few items, and say how many more there are.

    Examples
    --------
    >>> show_some(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    if len(items) <= limit:
        return ", ".join(items)
    return ", ".join(items[:limit]) + f" and {len(items) - limit} more"


def _show_index(index: pd.Index) -> str:
    shown = [str(label) for label in index[:3]]
    return ", ".join(shown) + (f", ... {index[-1]}" if len(index) > 3 else "")


def _same_name(own: Any, name: Any) -> bool:
    # 1 == True == 1.0 in Python; only text meets text here, and whole numbers whole numbers.
    if isinstance(own, bool) or isinstance(own, str) != isinstance(name, str):
        return False
    return not isinstance(own, tuple) and bool(own == name)


def _pandas_table(data: pd.DataFrame) -> Table:
    if data.columns.nlevels > 1:
        raise DataError(
            f"the table's column names have {data.columns.nlevels} levels. Give it plain names, "
            f"for example data.columns = ['_'.join(map(str, c)) for c in data.columns]."
        )
    # A shallow copy: columns that the caller adds or drops later do not reach the analysis.
    return Table(tuple(data.columns), data.index, data.copy(deep=False), has_index=True)


def _frame_of_mapping(data: Mapping[Any, Any]) -> pd.DataFrame:
    """Build a frame from a dict of arrays without ever aligning one Series to another by index."""
    columns = {
        name: values if isinstance(values, pd.Series) else _one_dimensional(values, f"{name!r}")
        for name, values in data.items()
    }
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = show_some([f"{name!r} has {n}" for name, n in lengths.items()])
        raise DataError(f"the columns of a dict must have equal lengths, but {shown}.")
    indexes = [v.index for v in columns.values() if isinstance(v, pd.Series)]
    if any(not index.equals(indexes[0]) for index in indexes):
        raise DataError(
            "the Series in the dict have different indexes. Build the table with pandas, so that "
            "it is clear which rows belong together, or give arrays."
        )
    index = indexes[0] if indexes else pd.RangeIndex(next(iter(lengths.values()), 0))
    parts = {
        name: values.set_axis(index) if isinstance(values, pd.Series) else _series(values, index)
        for name, values in columns.items()
    }
    frame = pd.DataFrame(dict(enumerate(parts.values())), index=index)
    return frame.set_axis(pd.Index(list(parts), dtype=object, tupleize_cols=False), axis=1)


def _series(values: Any, index: pd.Index) -> pd.Series:
    try:
        return pd.Series(values, index)
    except OverflowError:  # an older pandas: whole numbers beyond any float
        return pd.Series(values, index, dtype=object)


def lazy_frame(data: Any) -> Any:
    """Wrap a frame whose rows are not in memory, such as a duckdb relation; None for all others.

    Returns
    -------
    narwhals.LazyFrame or None
    """
    if isinstance(data, (Table, Mapping, pd.DataFrame)):
        return None
    import narwhals as nw

    frame = nw.from_native(data, pass_through=True)
    if not isinstance(frame, nw.LazyFrame):
        return None
    _refuse_equal_names(frame)
    return frame


def _collect(data: Any, only: Sequence[Any] | None) -> Any:
    """Collect any other frame through narwhals: a narwhals, pandas or pyarrow eager frame."""
    import narwhals as nw

    if isinstance(data, (nw.DataFrame, nw.LazyFrame)):
        data = data.to_native()
        if isinstance(data, pd.DataFrame) or hasattr(data, "column_names"):
            return data
    frame = nw.from_native(data, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = _collect_lazy(frame, only)
    if not isinstance(frame, nw.DataFrame):
        raise DataError(f"data must be {_ACCEPTED}, but is a {type(data).__qualname__}.")
    if frame.implementation.is_pandas_like():
        return frame.to_pandas()
    return frame.to_native() if frame.implementation.is_pyarrow() else frame


def _refuse_equal_names(frame: Any) -> None:
    if frame.implementation.is_duckdb():
        own = list(frame.to_native().columns)  # the schema would show a name only once
        twice = sorted({repr(name) for name in own if own.count(name) > 1})
        if twice:
            raise DataError(
                f"the relation has more than one column of the name {show_some(twice)}. Rename or "
                f"drop all but one."
            )


def _collect_lazy(frame: Any, only: Sequence[Any] | None) -> Any:
    _refuse_equal_names(frame)
    if only is not None:
        names = tuple(frame.collect_schema().names())
        known = Table(names, pd.RangeIndex(0), None)
        frame = frame.select(list(dict.fromkeys(names[known.position(name)] for name in only)))
    try:
        return frame.collect()
    except ModuleNotFoundError:  # duckdb hands out pyarrow tables, where pyarrow is installed
        return frame.collect(backend="pandas")


def _to_pandas_array(values: Any) -> Any:
    """Values of a polars, pyarrow or narwhals series as an array that pandas can hold."""
    import narwhals as nw

    native = nw.to_native(values, pass_through=True)
    if hasattr(native, "to_pylist") and not hasattr(native, "chunks"):  # a pyarrow Array
        import pyarrow as pa

        native = pa.chunked_array([native])
    if str(getattr(native, "type", "")).startswith("dictionary<"):
        array = native.unify_dictionaries().combine_chunks()
        codes = array.indices.cast("int64").fill_null(-1).to_numpy()
        categories = pd.Index(array.dictionary.to_pandas())
        return pd.Categorical.from_codes(codes, categories, ordered=array.type.ordered)
    series = nw.from_native(native, series_only=True)
    dtype, n_missing = series.dtype, series.null_count()
    if str(dtype).startswith(("Decimal", "Int128", "UInt128")):
        return series.cast(nw.Float64).to_numpy()
    if str(dtype).startswith("Float"):
        return series.to_numpy()
    if str(dtype).startswith(("Int", "UInt")) or dtype == nw.Boolean:
        return _whole_numbers(series, n_missing, dtype == nw.Boolean)
    if dtype == nw.Enum and hasattr(dtype, "categories"):
        return pd.Categorical(series.to_list(), categories=list(dtype.categories), ordered=True)
    if dtype == nw.Datetime:
        return pd.to_datetime(pd.Series(series.to_list())).array
    return np.fromiter(series.to_list(), dtype=object, count=len(series))


def _whole_numbers(series: Any, n_missing: int, boolean: bool) -> Any:
    if n_missing == 0:
        return series.to_numpy()
    missing = np.array(series.is_null().to_numpy(), dtype=bool)
    if boolean:
        return pd.arrays.BooleanArray(np.array(series.fill_null(False).to_numpy()), missing)
    return pd.arrays.IntegerArray(np.array(series.fill_null(0).to_numpy()), missing)


def _one_dimensional(values: Any, what: str) -> Any:
    """Check that values are a one-dimensional array, and turn other libraries' into pandas'."""
    if type(values).__module__.split(".")[0] in {"polars", "pyarrow", "narwhals"}:
        try:
            return _to_pandas_array(values)
        except TypeError:
            pass
    if isinstance(values, (list, tuple, range)):
        values = list(values)
        nested = next((v for v in values if isinstance(v, (list, tuple, np.ndarray))), None)
        if nested is None:
            return pd.Series(values, dtype=None if values else object).array
    known = (np.ndarray, pd.Index, pd.api.extensions.ExtensionArray)
    if not isinstance(values, known) or isinstance(values, pd.MultiIndex):
        raise DataError(
            f"{what} must be the name of a column, a Series, or an array with one value per row, "
            f"but is a {type(values).__qualname__}."
        )
    if values.ndim != 1 or (values.dtype.names if isinstance(values, np.ndarray) else None):
        raise DataError(f"{what} must have one dimension, but has shape {values.shape}.")
    return values


def _plain_nullable(series: pd.Series) -> pd.Series:
    dtype: Any = series.dtype
    numpy_dtype = np.dtype(dtype.numpy_dtype)
    if dtype.kind == "f":
        values = series.to_numpy(dtype=numpy_dtype, na_value=np.nan)
        return pd.Series(values, index=series.index, name=series.name)
    if not series.isna().any():
        return pd.Series(series.to_numpy(dtype=numpy_dtype), index=series.index, name=series.name)
    nullable: Any = {"b": "boolean", "u": "UInt64"}.get(dtype.kind, "Int64")
    return series.astype(nullable)


def _from_arrow_backed(series: pd.Series) -> pd.Series:
    array: Any = series.array
    if str(series.dtype).startswith("dictionary<"):
        values = _to_pandas_array(array.__arrow_array__())
    else:
        values = array.to_numpy(dtype=object, na_value=None)
        if str(series.dtype).startswith("timestamp"):
            values = pd.to_datetime(pd.Series(values)).array
    return pd.Series(values, index=series.index, name=series.name)


def _plain_objects(series: pd.Series) -> pd.Series:
    """Turn objects that are all numbers, or all True and False, into a column of numbers."""
    kind = pd.api.types.infer_dtype(series, skipna=True)
    missing = series.isna().to_numpy()
    if kind.startswith("mixed") and all(map(_is_number, series.to_numpy()[~missing])):
        kind = "floating"
    if kind == "boolean":
        return _plain_nullable(series.astype("boolean"))
    if kind == "integer":
        try:
            return _plain_nullable(series.where(~missing, other=cast(Any, pd.NA)).astype("Int64"))
        except (OverflowError, TypeError):
            kind = "floating"
    if kind in {"floating", "mixed-integer-float", "decimal", "empty"}:
        values = np.full(len(series), np.nan)
        try:
            values[~missing] = [float(value) for value in series.to_numpy()[~missing]]
        except (OverflowError, ValueError):  # beyond any float, or a signalling Decimal NaN
            return series
        return pd.Series(values, index=series.index, name=series.name)
    return series


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Real, decimal.Decimal)) and not isinstance(value, bool)
