"""Tables in files, and what their text means: labels, values, missing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfair.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

#: What stands between the fields of a file, by how its name ends.
_SEPARATORS = {(".csv", ".csv.gz"): ",", (".tsv", ".txt"): "\t"}


def column_names(given: Sequence[str], columns: Sequence[Any] | None = None) -> list[str]:
    """Column names with commas between taken apart, unless that is the name of a column.

    Without columns the names as they are given come first, and then their parts.
    """
    names: list[str] = []
    for text in given:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if columns is None:
            names += [text, *parts]
        else:
            names += [text] if text in columns else parts
    return names if columns is not None else list(dict.fromkeys(names))


def ask_about_na(table: pd.DataFrame, used: Sequence[Any], missing: Sequence[str]) -> None:
    """Refuse the text NA in a column that is used, unless it was said what is missing."""
    for name in table.columns:
        if name not in used or missing or _is_numeric(table[name]):
            continue
        n = int((table[name] == "NA").sum())
        if n:
            raise DataError(
                f"column {name!r} has the text NA in {n} rows. If that means missing, as in files "
                "that R writes, add --na NA; if it is a label, add --na '' so that only empty "
                "fields are missing."
            )


def _is_numeric(column: pd.Series) -> bool:
    """Whether a column was read as numbers."""
    from pandas.api.types import is_numeric_dtype

    return bool(is_numeric_dtype(column))


def value_written(table: pd.DataFrame, column: str, text: str | list[str] | None) -> Any:
    """The value of a column that is written like this; of several texts, their values."""
    if isinstance(text, list):
        found = [value_written(table, column, one) for one in text]
        return found if len(found) > 1 else found[0]
    if text is None or column not in table.columns:
        return text
    for value in table[column].dropna().unique():
        if str(value) == text:
            return value
    return text


def read_table(path: Path, missing: Sequence[str] = (), text: Sequence[str] = ()) -> pd.DataFrame:
    """Read a table; only an empty field, or a text named here, is a missing value.

    Parameters
    ----------
    path : Path
        Ending in .csv, .tsv, .csv.gz or .parquet.
    missing : sequence of str, optional
        Texts that mean missing.
    text : sequence of str, optional
        Columns whose values stay as they are written, so that 01 and 1 are two labels; plain whole
        numbers become numbers.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    DataError
        If the file is not there, not of these kinds, or no table.
    """
    import pandas as pd

    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}.")
    name = path.name.lower()
    if name.endswith(".parquet"):
        try:
            return pd.read_parquet(path)
        except ImportError as error:
            raise DataError(
                'reading parquet needs pyarrow: pip install "cfair[frames]".'
            ) from error
    separator = next((s for ends, s in _SEPARATORS.items() if name.endswith(ends)), None)
    if separator is not None:
        return _read_text(path, separator, missing, text)
    raise DataError(f"{str(path)!r} must end in .csv, .csv.gz, .tsv or .parquet.")


def _read_text(
    path: Path, separator: str, missing: Sequence[str], text: Sequence[str]
) -> pd.DataFrame:
    import pandas as pd

    try:
        header = pd.read_csv(
            path, sep=separator, nrows=1, header=None, dtype=str, keep_default_na=False,
            encoding="utf-8-sig",
        ).iloc[0].tolist()  # fmt: skip
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise DataError(f"{str(path)!r} has two columns called {twice[0]!r}. Rename one.")
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                path, sep=separator, keep_default_na=False, na_values=["", *missing],
                low_memory=False, encoding="utf-8-sig", index_col=False,
                dtype=dict.fromkeys(text, str),
            )  # fmt: skip
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"{str(path)!r} cannot be read as a table: {error}") from error
    except pd.errors.ParserWarning as error:
        raise DataError(
            f"{str(path)!r} has rows with more fields than its header has names ({len(header)}): a "
            "separator too many at the end, or a name too few."
        ) from error
    other = next((s for s in ";\t,|" if s != separator and s in header[0]), None)
    if len(header) == 1 and other:
        raise DataError(
            f"{str(path)!r} was read as a single column, {header[0][:60]!r}: the separator seems "
            f"to be {other!r}, not {separator!r}. Write it with commas as .csv, or with tabs as "
            ".tsv."
        )
    for column in text:
        if column in table and table[column].dropna().str.fullmatch(r"0|-?[1-9][0-9]{0,14}").all():
            table[column] = pd.to_numeric(table[column]).astype("Int64")
    return table
