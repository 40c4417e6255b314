"""A table that is read by batches, again and again, and never held in memory as a whole."""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfair.errors import DataError
from cfair.frame import Table, as_table, column_names, show_some

#: Rows of a batch, unless another number is asked for.
BATCH_ROWS = 250_000
_ACCEPTED = (
    "the path of a parquet file, of several or of a folder of them, a duckdb relation, a polars "
    "LazyFrame, a pyarrow Dataset, a function that returns an iterator of data frames, or a data "
    "frame"
)
#: What a batch holds, by the name that pandas has for it; other kinds are not compared.
_KINDS = {
    "boolean": "True/False",
    "string": "text",
    **dict.fromkeys(("integer", "floating", "mixed-integer-float", "decimal"), "numbers"),
}
_END = object()
_FOREIGN = ("pyarrow", "polars", "duckdb", "pandas")


@dataclass(frozen=True, eq=False)
class Source:
    """A table in batches, which can be read as often as needed.

    Attributes
    ----------
    names : tuple of str
        Its columns.
    shown : str
        What it is, for print and messages.
    batch_rows : int
        Rows of a batch at most.
    progress : bool
        Whether a bar is shown while it is read.
    frames : callable
        Gives the batches of some columns, anew at each call.
    text : frozenset of str
        Columns of text that arrive as categories in the order of their occurrence.
    """

    names: tuple[str, ...]
    shown: str
    batch_rows: int
    progress: bool
    frames: Callable[[list[str]], Iterator[Any]] = field(repr=False)
    text: frozenset[str] = frozenset()

    def position(self, name: Any, role: str = "column") -> str:
        """The name of a column as the table has it; a DataError if there is none.

        Parameters
        ----------
        name : str
        role : str, default "column"
            Who asks, for the message.

        Returns
        -------
        str
        """
        return self.names[Table(self.names, pd.RangeIndex(0), None).position(name, role)]

    def tables(
        self,
        names: Sequence[str],
        label: str = "reading",
        n_rows: int | None = None,
        *,
        check_types: bool = False,
    ) -> Iterator[Table]:
        """Read the table once.

        Parameters
        ----------
        names : sequence of str
            The columns that are needed.
        label : str
            What is done, for the bar.
        n_rows : int, optional
            Rows of the table, if that is known.
        check_types : bool, default False
            Compare the types of each column between the batches.

        Yields
        ------
        Table
            With at least one row and at most `batch_rows`.

        Raises
        ------
        DataError
            If a batch cannot be read, lacks a column, or has another type than one before it.
        """
        batches = self._batches(list(dict.fromkeys(names)), check_types)
        if not self.progress:
            yield from batches
            return
        from tqdm import tqdm

        with tqdm(
            total=n_rows, desc=label, delay=1.0, leave=False, unit=" rows", unit_scale=True
        ) as bar:
            for table in batches:
                yield table
                bar.update(table.n_rows)

    def _batches(self, names: list[str], check_types: bool) -> Iterator[Table]:
        seen: dict[str, dict[Any, int]] = {name: {} for name in names}
        with _named(self.shown):
            frames = self.frames(names)
        for number in itertools.count(1):
            with _named(self.shown):
                frame = next(frames, _END)
            if frame is _END:
                return
            table = _table_of(frame, number, self.shown)
            if table.n_rows <= self.batch_rows:
                table = _once(table)
            for name in names:
                if name not in map(str, table.names):
                    raise DataError(
                        f"batch {number:,} of {self.shown} has no column {name!r}, which the first "
                        "one has. Give all batches the same columns."
                    )
                if check_types and table.n_rows:
                    self._check_type(table.column(name), number, seen[name])
            if table.n_rows <= self.batch_rows:
                if table.n_rows:
                    yield table
                continue
            for first in range(0, table.n_rows, self.batch_rows):
                last = min(first + self.batch_rows, table.n_rows)
                yield _once(table.take(np.arange(first, last)))

    def _check_type(self, series: pd.Series, number: int, seen: dict[Any, int]) -> None:
        """Refuse a column that holds, or orders its categories, otherwise than before."""
        own, levels = isinstance(series.dtype, pd.CategoricalDtype), None
        if own and series.name not in self.text:
            levels = (tuple(series.cat.categories), bool(series.cat.ordered))
        values = series.cat.categories if own else series
        kind = _KINDS.get(pd.api.types.infer_dtype(values, skipna=True))
        if kind is None or (kind, levels) in seen or series.isna().all():
            return
        if seen:
            (before, others), first = next(iter(seen.items()))
            what = f"column {series.name!r} of {self.shown} holds"
            if kind != before:
                raise DataError(
                    f"{what} {before} in batch {first:,} and {kind} in batch {number:,}. Give all "
                    "batches one type: dtype= of pandas.read_csv, say."
                )
            if levels is None or others is None:
                one, two = ("plain values" if v is None else "categories" for v in (others, levels))
            else:
                one, two = (
                    f"{'ordered ' * v[1]}categories {show_some([repr(c) for c in v[0]])}"
                    for v in (others, levels)
                )
            raise DataError(
                f"{what} {one} in batch {first:,} and {two} in batch {number:,}, and their order "
                "tells which is the reference. Give all batches the same categories in the same "
                "order, or plain values."
            )
        seen[kind, levels] = number


@dataclass(frozen=True, eq=False)
class _Batch(Table):
    """A batch: each column is converted once, however often it is asked for."""

    _columns: dict[str, pd.Series] = field(default_factory=dict, init=False, repr=False)

    def column(self, name: Any, what: str = "column") -> pd.Series:
        """One column, in a plain form, on the table's index."""
        if name not in self._columns:
            self._columns[name] = super().column(name, what)
        return self._columns[name]


def _once(table: Table) -> _Batch:
    return _Batch(table.names, table.index, table.source, table.has_index)


def open_source(data: Any, batch_rows: int = BATCH_ROWS, *, progress: bool = False) -> Source:
    """Find out how a table can be read by batches.

    Parameters
    ----------
    data : path, paths, duckdb relation, polars LazyFrame, pyarrow Dataset, callable or data frame
        A function takes no arguments and returns, at each call, a new iterator of data frames.
    batch_rows : int, default 250,000
    progress : bool, default False

    Returns
    -------
    Source

    Raises
    ------
    DataError
        If it cannot be read, or only once.
    ValueError
        If `batch_rows` is no number of rows.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [61, 58, 70]})
    >>> source = open_source(lambda: iter([frame[:2], frame[2:]]))
    >>> source.names, [table.n_rows for table in source.tables(["age"])]
    (('age',), [2, 1])
    """
    whole = isinstance(batch_rows, (int, np.integer)) and not isinstance(batch_rows, bool)
    if not whole or batch_rows < 1:
        raise ValueError(f"batch_rows must be a whole number >= 1, not {batch_rows!r}.")
    path = isinstance(data, (str, os.PathLike))
    with _named(repr(str(data)) if path else f"the table, a {type(data).__qualname__},"):
        names, shown, frames, text = _read(data, int(batch_rows))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            f"{shown} has more than one column of the name {show_some([repr(n) for n in twice])}. "
            "Rename or drop all but one."
        )
    return Source(names, shown, int(batch_rows), progress, frames, frozenset(text))


_Opened = tuple[tuple[str, ...], str, Callable[[list[str]], Iterator[Any]], Iterable[str]]


def _read(data: Any, batch_rows: int) -> _Opened:
    if isinstance(data, (str, os.PathLike)):
        return _parquet([data], batch_rows)
    if isinstance(data, (list, tuple)):
        paths = [isinstance(part, (str, os.PathLike)) for part in data]
        if not data:
            raise DataError(f"the {type(data).__name__} of files or data frames is empty.")
        if all(paths):
            return _parquet(list(data), batch_rows)
        if any(paths):
            raise DataError(
                f"the {type(data).__name__} has {sum(paths)} paths and {len(data) - sum(paths)} "
                "other entries. Give either paths of parquet files or data frames."
            )
        return _from_callable(lambda: iter(data))
    if callable(data) and not isinstance(data, pd.DataFrame):
        _require_no_arguments(data)
        return _from_callable(data)
    if hasattr(data, "__next__"):
        raise DataError(
            f"the table is given as a {type(data).__name__}, which can be read only once, and a "
            "model takes several readings. Give a function that returns a new one at each call: "
            'lambda: pd.read_csv("file.csv", chunksize=250_000), say.'
        )
    library = type(data).__module__.split(".")[0].lstrip("_")
    if library == "duckdb" and hasattr(data, "columns"):
        return _from_duckdb(data, batch_rows)
    if library == "pyarrow" and hasattr(data, "scanner"):
        return _from_dataset(data, batch_rows)
    if library == "polars" and hasattr(data, "collect"):
        from polars.selectors import by_name  # a plain name may be a pattern, such as "*"

        lazy = data
        if not hasattr(lazy, "collect_batches"):
            raise DataError(
                "this polars has no LazyFrame.collect_batches, which newer ones have. Update it, "
                "or write the frame with .sink_parquet() and give the path."
            )
        return (
            tuple(lazy.collect_schema().names()),
            "the polars frame",
            lambda names: lazy.select(by_name(*names)).collect_batches(chunk_size=batch_rows),
            (),
        )
    in_memory = isinstance(data, (pd.DataFrame, Mapping, Table)) or hasattr(data, "column_names")
    if in_memory or (library == "polars" and hasattr(data, "to_arrow")):
        table = as_table(data)
        return column_names(table), "the data frame", lambda names: iter([table]), ()
    raise DataError(f"the table must be {_ACCEPTED}, but is a {type(data).__qualname__}.")


def _from_callable(data: Callable[[], Any]) -> _Opened:
    """Batches from a function, or a list of frames."""
    first, again = _iterator(data()), _iterator(data())
    if first is again:
        raise DataError(
            "the function returns the same iterator at each call, so that the table can be read "
            "only once. Make the iterator inside the function."
        )
    try:
        frame = next(first, _END)
    finally:
        _close(first)
        _close(again)
    if frame is _END:
        raise DataError("the table has no rows: there is no batch to be read.")

    def frames(names: list[str]) -> Iterator[Any]:
        batches = _iterator(data())
        try:
            yield from batches
        finally:
            _close(batches)

    return column_names(_table_of(frame, 1, "the table")), "the table", frames, ()


def _require_no_arguments(function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise DataError(
            f"the function that reads the table is called without arguments, but {error}. Write "
            "it as lambda: ..., with a default for each argument if there are any."
        ) from None
    except ValueError:  # one that is not written in Python shows no arguments
        pass


def _table_of(frame: Any, number: int, shown: str) -> Table:
    try:
        return as_table(frame)
    except DataError as error:
        raise DataError(f"batch {number:,} of {shown}: {error}") from None


@contextmanager
def _named(shown: str) -> Iterator[None]:
    """Say what was read when a library fails at it; errors of the user's own code stay."""
    try:
        yield
    except Exception as error:
        library = type(error).__module__.split(".")[0].lstrip("_")
        if library not in _FOREIGN and not isinstance(error, (OSError, EOFError, UnicodeError)):
            raise
        first = next(iter(str(error).strip().splitlines()), "").rstrip(".")
        raise DataError(
            f"{shown} could not be read: {first} ({type(error).__name__}). See that it can be read "
            "to its end without cfair, or write it to a new parquet file and give its path."
        ) from error


def _iterator(found: Any) -> Iterator[Any]:
    frame = isinstance(found, (pd.DataFrame, Mapping, str)) or hasattr(found, "column_names")
    if frame or not hasattr(found, "__iter__"):
        raise DataError(
            "the function must return an iterator of data frames, but returned a "
            f"{type(found).__qualname__}. Return iter([...]), or write it with yield."
        )
    return iter(found)


def _close(batches: Any) -> None:
    """Close a reader that was not read to its end, such as pandas' of a CSV file."""
    if hasattr(batches, "close"):
        batches.close()


def _from_duckdb(relation: Any, batch_rows: int) -> _Opened:
    _arrow("a duckdb relation")

    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def frames(names: list[str]) -> Iterator[Any]:
        # as SQL: a column expression would take "*" for all columns
        chosen = relation.project(", ".join(map(quoted, names)))
        read = getattr(chosen, "to_arrow_reader", None) or chosen.fetch_arrow_reader
        return _tables(read(batch_rows))

    return tuple(relation.columns), "the duckdb relation", frames, ()


def _from_dataset(dataset: Any, batch_rows: int) -> _Opened:
    def frames(names: list[str]) -> Iterator[Any]:
        # without reading ahead, which would hold many batches at once
        settings = {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
        return _tables(
            dataset.scanner(columns=names, batch_size=batch_rows, **settings).to_batches()
        )

    return tuple(dataset.schema.names), "the pyarrow dataset", frames, ()


def _parquet(paths: list[Any], batch_rows: int) -> _Opened:
    """Parquet files, whose row groups are read piece by piece."""
    found = [file for path in paths for file in _files(Path(path))]
    for path in map(Path, paths):
        if path.is_dir() and any("=" in str(f.relative_to(path).parent) for f in _files(path)):
            if len(paths) > 1:
                raise DataError(
                    f"{str(path)!r} is a folder of hive partitions, whose names are values. Give "
                    "it alone, or all as one pyarrow.dataset.dataset(..., partitioning='hive')."
                )
            return _partitions(Path(os.path.abspath(path)), batch_rows)
    shown = f"the file {found[0].name!r}" if len(found) == 1 else f"{len(found)} parquet files"
    arrow = _arrow("a parquet file")
    from pyarrow.parquet import ParquetFile

    def opened(path: Path, text: list[str] | None = None) -> Any:
        try:
            return ParquetFile(
                path, read_dictionary=text, pre_buffer=False, buffer_size=2**20
            )  # a row group of any size passes through a small buffer
        except arrow.ArrowInvalid as error:
            raise DataError(
                f"{str(path)!r} is no parquet file ({str(error).split('.')[0]}). Write it as one; "
                "a CSV file is read by a function, "
                f'lambda: pd.read_csv("{path.name}", chunksize={batch_rows:_}).'
            ) from None

    with opened(found[0]) as file:
        schema = file.schema_arrow
    kinds = (arrow.types.is_string, arrow.types.is_large_string)
    text = [f.name for f in schema if any(is_text(f.type) for is_text in kinds)]

    def frames(names: list[str]) -> Iterator[Any]:
        for path in found:
            with (
                _named(f"the file {path.name!r}"),
                opened(path, [name for name in names if name in text]) as file,
            ):
                have = file.schema_arrow.names
                lacking = [name for name in names if name not in have]
                if lacking:
                    raise DataError(
                        f"the file {path.name!r} has no column {lacking[0]!r}, which "
                        f"{found[0].name!r} has. Give all files the same columns."
                    )
                yield from _tables(
                    file.iter_batches(batch_size=batch_rows, columns=names, use_threads=False)
                )

    return tuple(schema.names), shown, frames, text


def _partitions(folder: Path, batch_rows: int) -> _Opened:
    """Files in folders such as race=b, which are a column."""
    _arrow("a folder of partitions")
    from pyarrow import dataset

    found = _files(folder)
    table = dataset.dataset(
        [str(file) for file in found],
        format="parquet",
        partitioning="hive",
        partition_base_dir=str(folder),
    )
    for fragment in table.get_fragments():  # what one lacks would be read as missing
        by_folder = {p.split("=")[0] for p in Path(fragment.path).relative_to(folder).parts[:-1]}
        lacking = set(table.schema.names) - set(fragment.physical_schema.names) - by_folder
        if lacking:
            raise DataError(
                f"the file {fragment.path!r} has no column {min(lacking)!r}, which others have. "
                "Give all files the same columns."
            )
    names, _, frames, text = _from_dataset(table, batch_rows)
    return names, f"{len(found)} parquet files in partitions", frames, text


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.rglob("*.parquet") if file.is_file())
        if not found:
            raise DataError(f"the folder {str(path)!r} has no file that ends in .parquet.")
        return found
    if not path.exists():
        raise DataError(
            f"there is no file {str(path)!r} (looked for from {str(Path.cwd())!r}). "
            "Correct the path."
        )
    return [path]


def _tables(batches: Iterable[Any]) -> Iterator[Any]:
    """Pyarrow's record batches as tables."""
    import pyarrow as pa

    for batch in batches:
        yield pa.Table.from_batches([batch])


def _arrow(what: str) -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise DataError(
            f"reading {what} by batches needs pyarrow, which is not installed: pip install "
            '"cfair[frames]".'
        ) from None
    return pyarrow
