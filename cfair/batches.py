"""A table that is read by batches, again and again, and never held in memory as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
        self, names: Sequence[str], label: str = "reading", n_rows: int | None = None
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

        Yields
        ------
        Table
            With at least one row and at most `batch_rows`.
        """
        batches = self._batches(list(dict.fromkeys(names)))
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

    def _batches(self, names: list[str]) -> Iterator[Table]:
        for frame in self.frames(names):
            table = as_table(frame)
            for name in names:
                if name not in map(str, table.names):
                    raise DataError(
                        f"a batch of {self.shown} has no column {name!r}, which the first one has. "
                        "Give all batches the same columns."
                    )
            if table.n_rows <= self.batch_rows:
                if table.n_rows:
                    yield table
                continue
            for first in range(0, table.n_rows, self.batch_rows):
                yield table.take(np.arange(first, min(first + self.batch_rows, table.n_rows)))


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
    if isinstance(data, (list, tuple)) and data:
        if all(isinstance(part, (str, os.PathLike)) for part in data):
            return _parquet(list(data), batch_rows)
        return _from_callable(lambda: iter(data))
    if callable(data) and not isinstance(data, pd.DataFrame):
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
    if library == "polars" and hasattr(data, "collect_schema") and hasattr(data, "lazy"):
        lazy = data.lazy()
        if not hasattr(lazy, "collect_batches"):
            raise DataError(
                "this polars has no LazyFrame.collect_batches, which newer ones have. Update it, "
                "or write the frame with .sink_parquet() and give the path."
            )
        return (
            tuple(lazy.collect_schema().names()),
            "the polars frame",
            lambda names: lazy.select(names).collect_batches(chunk_size=batch_rows),
            (),
        )
    if isinstance(data, (pd.DataFrame, Mapping, Table)) or hasattr(data, "column_names"):
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
        frame = next(first, None)
    finally:
        _close(first)
        _close(again)
    if frame is None:
        raise DataError("the table has no rows: there is no batch to be read.")

    def frames(names: list[str]) -> Iterator[Any]:
        batches = _iterator(data())
        try:
            yield from batches
        finally:
            _close(batches)

    return column_names(frame), "the table", frames, ()


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
    from duckdb import ColumnExpression

    def frames(names: list[str]) -> Iterator[Any]:
        chosen = relation.select(*map(ColumnExpression, names))
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
            with opened(path, [name for name in names if name in text]) as file:
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


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(path.rglob("*.parquet"))
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
