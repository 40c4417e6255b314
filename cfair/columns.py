"""Checks of single columns by what they are for: 0/1 columns, score, weights, formula columns."""

from __future__ import annotations

import math
import numbers
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.frame import show_some
from cfair.groups import Factor, categorical_of_codes, factor, shown_levels
from cfair.options import is_number

_MAX_MEASURED_LEVELS = 50  # more distinct fractions than this are a measurement, not a category
_FEW_WITHOUT_NUMBER = 0.1  # a larger share of values that are no numbers is no slip of the pen
_MAX_NUMBERS_AS_TEXT = 20  # more levels than this, most of them numbers, are no categories


@dataclass(frozen=True, eq=False)
class Binary:
    """A 0/1 column: values (-1 where missing), the value that was coded as 1, and a note.

    Where several values are 0, ``others`` has them, and ``which`` the place there of each row, -1
    in all other rows.
    """

    name: str
    values: NDArray[np.int8]
    event: Any
    note: str | None = None
    others: tuple[Any, ...] = ()
    which: NDArray[np.intp] | None = None

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Rows without a value."""
        return self.values < 0


@dataclass(frozen=True, eq=False)
class Score:
    """The score under audit, in [0, 1], NaN where missing."""

    name: str
    values: NDArray[np.float64]

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Rows without a value."""
        return np.isnan(self.values)

    def positive(self, cutoff: float) -> NDArray[np.int8]:
        """S = 1{score >= cutoff}, 0 where the score is missing."""
        return (self.values >= cutoff).astype(np.int8)


@dataclass(frozen=True, eq=False)
class Weights:
    """Sampling weights, non-negative, NaN where missing, on any scale."""

    name: str
    values: NDArray[np.float64]

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Rows without a value."""
        return np.isnan(self.values)


def read_binary(
    series: pd.Series, what: str, *, event: Any = None, option: str | None = None
) -> Binary:
    """Code a column as 0/1; which value is the event is never guessed.

    Parameters
    ----------
    series : pandas.Series
        0/1, True/False, nullable forms of these; anything else needs `event`.
    what : str
        The role, for messages.
    event : value, or list of values, optional
        What counts as 1; all others count as 0.
    option : str, optional
        The argument that `event` comes from, such as "outcome_event".

    Examples
    --------
    >>> read_binary(pd.Series(["alive", "dead"], name="status"), "outcome", event="dead").values
    array([0, 1], dtype=int8)
    >>> answers = pd.Series(["yes", "no", "Yes"], name="died")
    >>> read_binary(answers, "outcome", event=["yes", "Yes"]).values
    array([1, 0, 1], dtype=int8)
    """
    name = str(series.name)
    check_finite(series, f"{what} column {name!r}")
    found = factor(series, name)
    if event is None:
        if not all(_is_zero_or_one(level) for level in found.levels):
            raise DataError(
                f"column {name!r} must be 0/1 or True/False, but holds {found.describe()}.\n"
                + _which_event(found, option)
            )
        is_event = [bool(level) for level in found.levels]
        boolean = any(isinstance(level, bool) for level in found.levels)
        return Binary(name, _decode(found, is_event), True if boolean else 1)
    events = event_values(event)
    if not events:
        raise DataError(f"{option or 'event'} is empty. Name one value or more of {name!r}.")
    for value in events:
        if not any(_same_value(level, value) for level in found.levels):
            raise DataError(
                f"{option or 'event'}={value!r} does not occur in column {name!r}, which holds "
                f"{found.describe()}. Give one of these values."
            )
    is_event = [any(_same_value(level, value) for value in events) for level in found.levels]
    _refuse_other_spellings(found, is_event, option or "event")
    zeros = tuple(v for v, hit in zip(found.levels, is_event, strict=True) if not hit)
    others = [repr(v) for v in zeros]
    one = events[0] if len(events) == 1 else " or ".join(shown_levels(events))
    ones = f"{events[0]!r} is" if len(events) == 1 else f"{', '.join(map(repr, events))} are"
    plain = len(events) == 1 and one == 1 and others == ["0"]
    note = f"{what} {name}: {ones} 1, {show_some(others)} 0" if others and not plain else None
    values = _decode(found, is_event)
    if len(zeros) < 2:
        return Binary(name, values, one, note)
    place = np.where(is_event, -1, np.cumsum(~np.array(is_event)) - 1)
    which = np.append(place, -1)[found.codes].astype(np.intp)  # code -1 is the last, -1
    return Binary(name, values, one, note, zeros, which)


def event_values(event: Any) -> list[Any]:
    """The values that are the event, of which one or a list may be given."""
    several = isinstance(event, (list, tuple, set, frozenset))
    return list(event) if several else [event]


def read_score(series: pd.Series) -> Score:
    """Check a risk score: real numbers in [0, 1].

    A score of less than 64 bits is read as the decimal number that it is printed as: 0.7 stored in
    32 bits is 0.7, and so meets a cutoff of 0.7, here and in formulas.

    Parameters
    ----------
    series : pandas.Series

    Returns
    -------
    Score
    """
    name = str(series.name)
    if pd.api.types.is_bool_dtype(series.dtype):
        raise DataError(
            f"score column {name!r} holds True/False, not a score. A ready 0/1 call is given as "
            f"prediction={name!r}."
        )
    kind = getattr(series.dtype, "kind", "O")
    if isinstance(series.dtype, pd.CategoricalDtype) or kind not in "iuf":
        first = show_some([repr(v) for v in series.dropna().head(3)])
        few = _few_without_number(series)
        kind = describe_kind(series) + f" ({first})" * (not few)
        raise DataError(
            f"score column {name!r} must be numbers in [0, 1], but is {kind}. "
            f"{few or _text_score_hint(series, name)}"
        )
    check_finite(series, f"score column {name!r}")
    values: NDArray[np.float64] = series.to_numpy(dtype=np.float64, na_value=np.nan)
    stored = series.to_numpy().dtype
    if stored.kind == "f" and stored.itemsize < 8:
        values = values.astype(stored).astype("U").astype(np.float64)
    outside = (values < 0) | (values > 1)
    if outside.any():
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        share = float(outside.mean())
        where = found_at(series.index, outside) if share < _FEW_OUTSIDE else ""
        raise DataError(
            f"score column {name!r} must lie in [0, 1], but runs from {low:.6g} to {high:.6g} "
            f"({int(outside.sum())} of {len(values)} rows outside). "
            f"{_score_hint(name, low, high, share)}{where}"
        )
    return Score(name, values)


def read_weights(series: pd.Series) -> Weights:
    """Read sampling weights: non-negative real numbers, not all 0.

    Parameters
    ----------
    series : pandas.Series

    Returns
    -------
    Weights

    Raises
    ------
    DataError

    Examples
    --------
    >>> read_weights(pd.Series([2, 0, 1], name="w")).values
    array([2., 0., 1.])
    """
    name, values = str(series.name), weight_values(series)
    check_some_weight(name, values)
    return Weights(name, values)


def weight_values(series: pd.Series) -> NDArray[np.float64]:
    """Check sampling weights of some rows of a table, which may all have none.

    Parameters
    ----------
    series : pandas.Series

    Returns
    -------
    (n,) array of float

    Raises
    ------
    DataError
    """
    name, dtype = str(series.name), series.dtype
    boolean = pd.api.types.is_bool_dtype(dtype)
    numeric = getattr(dtype, "kind", "O") in "iuf" and not boolean
    if isinstance(dtype, pd.CategoricalDtype) or not numeric:
        first = show_some([repr(v) for v in series.dropna().head(3)])
        convert = f"table[{name!r}].astype(int)" if boolean else f"pd.to_numeric(table[{name!r}])"
        few = _few_without_number(series)
        kind = f"{describe_kind(series)} of dtype {dtype}" + f" ({first})" * (not few)
        raise DataError(
            f"weights column {name!r} must be numbers, but is {kind}. "
            f"{few or f'Convert it, for example with {convert}.'}"
        )
    values: NDArray[np.float64] = series.to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = {
        "infinite": (
            np.isinf(values),
            "Correct them, or set them to missing (np.nan) and say what missing values mean "
            "(missing=).",
        ),
        "negative": (
            values < 0,
            "A weight says for how many people a row stands. Correct them, or set them to 0 where "
            "a row stands for nobody.",
        ),
    }
    for kind, (rows, advice) in wrong.items():
        if rows.any():
            n = int(rows.sum())
            first = ", ".join(f"{v:g}" for v in values[rows][:3]) + ", ..." * (n > 3)
            raise DataError(
                f"weights column {name!r} has {kind} values in {n} row{'s' * (n > 1)} ({first}). "
                f"{advice}{found_at(series.index, rows)}"
            )
    return values


def check_some_weight(
    name: str, values: NDArray[np.float64], repeats: NDArray[np.int64] | None = None
) -> None:
    """Refuse weights that are all 0; a column without any value is left to the missing ones.

    Parameters
    ----------
    name : str
    values : (n,) array
    repeats : (n,) array of int, optional
        Rows of each; one by default.

    Raises
    ------
    DataError
    """
    known = ~np.isnan(values)
    if known.any() and not values[known].any():
        n = int(known.sum() if repeats is None else repeats[known].sum())
        raise DataError(
            f"weights column {name!r} is 0 in all {n} rows used: nobody is left to "
            "estimate a rate from. Give the weights of these rows, or leave weights= out."
        )


def check_cutoff(cutoff: Any) -> float:
    """Check a cutoff: a number in [0, 1]."""
    real = isinstance(cutoff, (numbers.Real, np.number)) and not isinstance(cutoff, bool)
    if not real or math.isnan(cutoff) or not 0 <= cutoff <= 1:
        raise DataError(
            f"cutoff must be a number in [0, 1], but is {cutoff!r}. S is score >= cutoff, and the "
            "score a probability; for a score on another scale give its ready call as prediction=."
        )
    return float(cutoff)


def read_attribute(series: pd.Series) -> Factor:
    """Read a protected attribute; a measurement in place of a category is refused."""
    check_finite(series, f"group column {series.name!r}")
    attribute = factor(series)
    n_levels = len(attribute.levels)
    if n_levels > _MAX_MEASURED_LEVELS and any(map(_is_measured, attribute.levels)):
        first = show_some([f"{level}" for level in attribute.levels], 3)
        raise DataError(
            f"group column {attribute.name!r} is a measurement with {n_levels} distinct values "
            f"({first}), not a category. Cut it into bands first: "
            f"pd.cut(table[{attribute.name!r}], bins=[...])."
        )
    return attribute


def check_finite(series: pd.Series, what: str) -> None:
    """Refuse infinite values, with their count."""
    if getattr(series.dtype, "kind", "O") not in "fc":
        return
    infinite = np.isinf(series.to_numpy())
    n = int(infinite.sum())
    if n:
        raise DataError(
            f"{what} has infinite values in {n} row{'s' * (n > 1)}. Correct them, or set them to "
            "missing (np.nan) and say what missing values mean (missing=)."
            f"{found_at(series.index, infinite)}"
        )


def found_at(index: pd.Index, wrong: NDArray[np.bool_], most: int = 3) -> str:
    """Where the first bad rows are, by their labels, as a sentence to end a message with.

    Parameters
    ----------
    index : pandas.Index
        Of the caller's rows.
    wrong : (n,) array of bool
    most : int, default 3
        Labels that are given.

    Returns
    -------
    str

    Examples
    --------
    >>> found_at(pd.Index(["p7", "p9"]), np.array([False, True]))
    ' Look at the row with index p9.'
    >>> found_at(pd.Index(["p7", "p7"]), np.array([False, True]))
    ' Look at row 1, counting from 0.'
    """
    n = int(wrong.sum())
    labels = index[wrong] if index.is_unique else np.flatnonzero(wrong)
    shown = ", ".join(str(label) for label in labels[:most])
    shown += f" and {n - most:,} more" * (n > most)
    rows = f"row{'s' * (n > 1)}"
    if not index.is_unique:  # a label would find other rows too
        return f" Look at {rows} {shown}, counting from 0." * (n > 0)
    return f" Look at the {rows} with index {shown}." * (n > 0)


def _few_without_number(series: pd.Series) -> str:
    """The values of a column of numbers that are none, if they are few, and what to do."""
    known = series.notna().to_numpy()
    number = series.map(is_number).to_numpy(dtype=bool)
    other = known & ~number
    n = int(other.sum())
    if not 0 < n <= _FEW_WITHOUT_NUMBER * known.sum():
        return ""
    shown = show_some([repr(v) for v in dict.fromkeys(map(str, series[other]))], 4)
    return (
        f"{int(number.sum()):,} of {int(known.sum()):,} values are numbers, and {shown} "
        f"({n:,} row{'s' * (n > 1)}) {'is' if n == 1 else 'are'} not. Correct "
        f"{'it' if n == 1 else 'them'}, or set {'it' if n == 1 else 'them'} to missing: "
        f"pd.to_numeric(table[{str(series.name)!r}], errors='coerce')."
        f"{found_at(series.index, other)}"
    )


def formula_column(series: pd.Series) -> pd.Series:
    """Prepare a column for formulas: numbers stay numbers, text becomes a Categorical.

    Small integers and floats are widened, so that arithmetic in a formula cannot overflow.
    """
    name = str(series.name)
    dtype: Any = series.dtype
    if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(dtype):
        return series
    check_finite(series, f"column {name!r}")
    kind = getattr(dtype, "kind", "O")
    if kind == "u" and (series > np.iinfo(np.int64).max).any():
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return pd.Series(values, index=series.index, name=series.name)
    if kind in "iu":  # nullable while values are missing, made plain once these rows are out
        nullable = pd.api.types.is_extension_array_dtype(dtype)
        return series.astype("Int64" if nullable else np.int64)
    if kind == "f":
        return series.astype(np.float64)
    if is_text(series) or isinstance(dtype, pd.IntervalDtype):
        found = factor(series)
        labels = categorical_of_codes(found.codes, found.levels)
        return pd.Series(labels, index=series.index, name=series.name)
    first = show_some([repr(v) for v in series.dropna().head(3)])
    few = _few_without_number(series)
    kind = describe_kind(series) + f" ({first})" * (not few)
    raise DataError(
        f"column {name!r} cannot be used in a formula: it is {kind}. "
        + (few or _formula_hint(series))
    )


def refuse_numbers_as_text(
    name: str, values: Sequence[Any], counts: Sequence[int] | NDArray[Any] | None = None
) -> None:
    """Refuse text that is mostly numbers, which a formula would take for many categories.

    Parameters
    ----------
    name : str
        The column, for the message.
    values : sequence
        Its different values, without the missing ones.
    counts : sequence of int, optional
        Rows of each; without them the values themselves are counted.

    Raises
    ------
    DataError
        If at least half of more than 20 different texts read as numbers.
    """
    if len(values) <= _MAX_NUMBERS_AS_TEXT or not all(isinstance(v, str) for v in values):
        return
    is_number = pd.to_numeric(pd.Series(list(values), dtype=object), errors="coerce").notna()
    rows = np.ones(len(values), dtype=int) if counts is None else np.asarray(counts)
    n, n_numbers = int(rows.sum()), int(rows[is_number.to_numpy()].sum())
    if 2 * n_numbers < n:
        return
    other = [v for v, number in zip(values, is_number, strict=True) if not number]
    what = "different values" if counts is None else "values"
    odd = f"{n - n_numbers:,} are not ({show_some([repr(v) for v in other], 4)})" if other else ""
    said = f"{n_numbers:,} of {n:,} {what} are numbers" + f", {odd}" * bool(odd)
    coerce, missing = "", ""
    if other:
        flags = " ".join(f"--na {shlex.quote(v)}" for v in other[:3])
        more = " ..." * (len(other) > 3)
        coerce = ", errors='coerce'"
        missing = f"name the missing values (command line: {flags}{more}), or "
    raise DataError(
        f"column {name!r} is text: {said}. Convert it with pd.to_numeric(table[{name!r}]{coerce}), "
        f"or {missing}write C({name}) if categories are meant."
    )


def is_text(series: pd.Series) -> bool:
    """Whether a column holds text and nothing else (missing values aside)."""
    return pd.api.types.infer_dtype(series, skipna=True) == "string"


def describe_kind(series: pd.Series) -> str:
    """What a column holds, in words."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        return "a Categorical"
    if _is_date(series):
        return "dates or times"
    kind = pd.api.types.infer_dtype(series, skipna=True)
    words = {"string": "text", "complex": "complex numbers", "bytes": "bytes"}
    if kind.startswith("mixed"):
        types = series.dropna().map(lambda v: type(v).__name__).value_counts()
        return "of mixed types: " + ", ".join(f"{k} ({n} rows)" for k, n in types.items())
    return words.get(kind, kind)


def _formula_hint(series: pd.Series) -> str:
    if _is_date(series):
        return "Make it a number first, for example days since a date: (column - start).dt.days."
    return "Make it numbers, with pd.to_numeric, or text, with .astype(str)."


def _is_date(series: pd.Series) -> bool:
    kind = pd.api.types.infer_dtype(series, skipna=True)
    return kind.startswith(("date", "time", "period"))


def _is_measured(level: Any) -> bool:
    fraction = isinstance(level, float) and not level.is_integer()
    return fraction or isinstance(level, (pd.Timestamp, pd.Timedelta))


def _is_zero_or_one(level: Any) -> bool:
    return isinstance(level, numbers.Real) and level in (0, 1)


def _same_value(level: Any, event: Any) -> bool:
    try:
        return bool(level == event)
    except (TypeError, ValueError):
        return False


def _decode(found: Factor, is_event: list[bool]) -> NDArray[np.int8]:
    return np.array([*is_event, -1], dtype=np.int8)[found.codes]  # code -1 is the last, -1


def _which_event(found: Factor, option: str | None) -> str:
    values = [f'"{v}"' if isinstance(v, str) else repr(v) for v in found.levels]
    if option is None:
        return f"Recode it, for example (table[{found.name!r}] == {values[-1]}).astype(int)."
    what = "treatment" if option.startswith("treatment") else "the event"
    unknown = " All others count as 0: set values that are not known to missing before."
    unknown *= len(values) > 2
    if len(values) > 4:
        return f"Say which is {what}: {option}={values[-1]}, or another of its values.{unknown}"
    return f"Say which is {what}: {' or '.join(f'{option}={v}' for v in values)}.{unknown}"


def _refuse_other_spellings(found: Factor, is_event: list[bool], option: str) -> None:
    """Refuse a value that is the event but for case or the spaces around it."""
    parts = list(zip(found.levels, found.counts.tolist(), is_event, strict=True))
    spelt = {fold(v) for v, _, hit in parts if hit and isinstance(v, str)}
    alike = [(v, n) for v, n, hit in parts if not hit and isinstance(v, str) and fold(v) in spelt]
    if alike:
        also = {fold(v) for v, _ in alike}
        own = [(v, n) for v, n, hit in parts if hit and isinstance(v, str) and fold(v) in also]
        shown = show_some([f"{v!r} ({n} rows)" for v, n in own + alike], 8)
        every = [v for v, _, hit in parts if hit] + [v for v, _ in alike]
        raise DataError(
            f"column {found.name!r} holds {shown}, which differ only by case or the spaces around "
            f"them, and {option} names {len(own)} of these {len(own + alike)}. Write them alike, "
            f"for example table[{found.name!r}].str.strip().str.lower(), or name all that are the "
            f"event: {option}={every!r}."
        )


def fold(label: str) -> str:
    """A label without what a typist varies: case, and spaces around it."""
    return label.strip().casefold()


def _text_score_hint(series: pd.Series, name: str) -> str:
    column = f"table[{name!r}]"
    if not is_text(series):
        return f"Convert it, for example with pd.to_numeric({column})."
    values = series.dropna().astype(str).str.strip()
    bare = values.str.rstrip("%")
    comma = pd.to_numeric(bare.str.replace(",", ".", regex=False), errors="coerce").notna()
    if bare.str.contains(",", regex=False).any() and comma.all():
        return f"Are these decimal commas? Give {column}.str.replace(',', '.').astype(float)."
    unread = pd.to_numeric(bare, errors="coerce").isna()
    percent = values.str.endswith("%") & ~unread
    odd = ""
    if unread.any():
        which = show_some([repr(v) for v in series.dropna()[unread].unique()[:4]], 3)
        odd = f" What is no number ({which}; {int(unread.sum())} rows) becomes missing by it."
    if percent.any():
        text = f"{column}.str.rstrip('%')"
        number = f"pd.to_numeric({text}, errors='coerce')" if odd else f"{text}.astype(float)"
        if not (percent | unread).all():
            n = int((~percent & ~unread).sum())
            odd += f" {n} rows have no % sign: are they percentages too?"
        return f"Remove the % sign and divide by 100: {number} / 100.{odd}"
    coerce = ", errors='coerce'" if odd else ""
    return f"Convert it, for example with pd.to_numeric({column}{coerce}).{odd}"


#: Below this share of its rows a score out of [0, 1] is not on another scale.
_FEW_OUTSIDE = 0.05


def _score_hint(name: str, low: float, high: float, share: float) -> str:
    call = (
        "For a score in points make a column of 0/1, which is 1 where the score reaches its "
        "cutoff, and name it as prediction=."
    )
    if share < _FEW_OUTSIDE:
        return (
            "Most rows are as they should be: look at the others first, with "
            f"table[~table[{name!r}].between(0, 1)], and correct them or leave them out."
        )
    if low < 0:
        return f"Are these log-odds (logit)? Give 1 / (1 + np.exp(-score)). {call}"
    if high <= 100:
        return f"Is this a percentage? Divide the column {name!r} by 100 before. {call}"
    return f"Give the predicted probability of the event. {call}"
