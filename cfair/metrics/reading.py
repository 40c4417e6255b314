"""Reads ``y_true``, a call or a score, and sensitive features as the rows of a checked cohort."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort, Dropped, build_cohort
from cfair.columns import read_attribute, read_binary
from cfair.errors import CfairWarning, DataError, warn
from cfair.frame import as_table, show_some
from cfair.groups import Factor, Groups, cross, factor
from cfair.options import check_option
from cfair.roles import Roles

#: The attribute when sensitive features come without a name.
UNNAMED = "group"


def read_arrays(
    y_true: Any,
    *,
    sensitive_features: Any,
    y_pred: Any = None,
    y_score: Any = None,
    sample_weight: Any = None,
    missing: str = "raise",
    both_outcomes: bool = True,
) -> Cohort:
    """The arrays of a metric as a cohort, with the checks and the messages of `cfair.Audit`.

    Parameters
    ----------
    y_true : (n,) array-like of 0/1 or bool
        Outcome. Arrays are in the order of the first Series, if any is one; other Series
        are matched with it by their index.
    sensitive_features : array-like, data frame, or mapping of name to array-like
        One or more attributes, which are crossed. A name is taken from a Series, a column or a key.
    y_pred : (n,) array-like of 0/1 or bool, optional
        The call; in its place comes `y_score`.
    y_score : (n,) array-like in [0, 1], optional
    sample_weight : (n,) array-like, optional
        Sampling weights.
    missing : {"raise", "drop", "level"}, default "raise"
    both_outcomes : bool, default True
        Refuse an outcome with one value.

    Returns
    -------
    Cohort

    Raises
    ------
    DataError
        If an array does not fit: values, length, index, missing values.

    Warns
    -----
    CfairWarning
        Counts the rows that ``missing="drop"`` left out.

    Examples
    --------
    >>> cohort = read_arrays([0, 1, 1, 0], y_pred=[0, 1, 0, 0], sensitive_features=list("abab"))
    >>> cohort.groups.names, cohort.s.tolist()
    (('a', 'b'), [0, 1, 0, 0])
    """
    if (y_pred is None) == (y_score is None):
        raise DataError("give either y_pred, a ready 0/1 call, or y_score, not both.")
    attributes = _attributes(sensitive_features)
    beside = {"y_pred": y_pred, "y_score": y_score, "sample_weight": sample_weight}
    _check_arrays({"y_true": y_true, **{k: v for k, v in beside.items() if v is not None}})
    _check_arrays(_said(attributes))
    given = [y_true, y_pred, y_score, *(values for _, values in attributes), sample_weight]
    series = next((values for values in given if isinstance(values, pd.Series)), None)
    # arrays are in the order of the first Series, whose index the other Series are matched by
    rows = pd.DataFrame(index=pd.RangeIndex(len(y_true)) if series is None else series.index)
    table = as_table(rows)

    def column(values: Any, name: str) -> pd.Series | None:
        return None if values is None else table.align(values, name).rename(name)

    roles = Roles(
        outcome=column(y_true, "y_true"),
        prediction=column(y_pred, "y_pred"),
        score=column(y_score, "y_score"),
        cutoff=None if y_score is None else 0.5,
        weights=column(sample_weight, "sample_weight"),
        groups=[column(values, name) for name, values in attributes],
        missing=missing,
        both_outcomes=both_outcomes,
        warn_one_call=y_score is None,  # no call is made of a score: its cutoff means nothing
    )
    try:
        cohort = build_cohort(rows, roles)
    except DataError:
        # the cohort's own advice names options that functions of arrays have not
        _check_zero_or_one(roles.outcome, y_true)
        _check_zero_or_one(roles.prediction, y_pred)
        raise
    _warn_of_dropped(cohort.dropped, cohort.n_read)
    return cohort


def read_score(
    y_true: Any,
    y_score: Any,
    sensitive_features: Any,
    sample_weight: Any,
    missing: str,
    both_outcomes: bool = True,
) -> Cohort:
    """The arrays of a metric of a score, as `read_arrays` reads them.

    Parameters
    ----------
    y_true, y_score, sensitive_features, sample_weight, missing, both_outcomes
        As in `read_arrays`. Without attributes, None, all rows are one group.

    Returns
    -------
    Cohort
    """
    _check_arrays({"y_true": y_true, "y_score": y_score})
    if sensitive_features is None:
        sensitive_features = np.zeros(len(y_true), dtype=np.int64)
    return read_arrays(
        y_true,
        y_score=y_score,
        sensitive_features=sensitive_features,
        sample_weight=sample_weight,
        missing=missing,
        both_outcomes=both_outcomes,
    )


def read_call(
    y_true: Any,
    y_pred: Any,
    sensitive_features: Any,
    sample_weight: Any,
    missing: str,
    both_outcomes: bool = False,
) -> Cohort:
    """The arrays of a metric of a 0/1 call, as `read_arrays` reads them.

    Parameters
    ----------
    y_true, y_pred, sensitive_features, sample_weight, missing, both_outcomes
        As in `read_arrays`.

    Returns
    -------
    Cohort
    """
    _check_arrays({"y_true": y_true, "y_pred": y_pred})
    return read_arrays(
        y_true,
        y_pred=y_pred,
        sensitive_features=sensitive_features,
        sample_weight=sample_weight,
        missing=missing,
        both_outcomes=both_outcomes,
    )


def check_array(values: Any, name: str) -> None:
    """Refuse what has no value per row, before its length is asked for.

    Parameters
    ----------
    values : object
    name : str
        Of the argument.

    Raises
    ------
    DataError

    Examples
    --------
    >>> check_array([0, 1], "y_true")
    """
    known = (list, tuple, range, np.ndarray, pd.Series, pd.Index, pd.api.extensions.ExtensionArray)
    library = type(values).__module__.split(".")[0] in {"polars", "pyarrow", "narwhals"}
    frame = hasattr(values, "columns") or hasattr(values, "column_names")
    if (isinstance(values, known) or library) and not frame and getattr(values, "ndim", 1) > 0:
        return
    kind = type(values).__qualname__
    what = "None" if values is None else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    if isinstance(values, (str, int, float, complex)):
        what = f"{values!r}"
    advice = " Give one of its columns." if frame else ""
    advice = f" Give list({name})." if isinstance(values, Iterator) else advice
    raise DataError(
        f"{name} must be an array with one value per row (a list, an array or a Series), not "
        f"{what}.{advice}"
    )


def _check_arrays(arrays: Mapping[str, Any]) -> None:
    for name, values in arrays.items():
        check_array(values, name)


def _said(attributes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Attributes by what messages call them."""
    alone = [name for name, _ in attributes] == [UNNAMED]
    return {
        "sensitive_features" if alone else f"sensitive_features {name!r}": values
        for name, values in attributes
    }


def _check_zero_or_one(series: pd.Series | None, given: Any) -> None:
    """Refuse other values than 0 and 1, and say how these are to be coded."""
    if series is None:
        return
    try:
        read_binary(series, "")
    except DataError as error:
        found, name = factor(series), str(series.name)
        fractions = [v for v in found.levels if isinstance(v, float) and not v.is_integer()]
        array = name if hasattr(given, "astype") else f"np.asarray({name})"
        if fractions and np.isinf(fractions).any():
            raise
        if fractions:
            advice = "A score becomes a call by a cutoff: y_pred = y_score >= cutoff."
            if name == "y_true":
                advice = "Give the outcome as it was observed."
        else:
            what = "the event" if name == "y_true" else "a positive call"
            advice = f"Give 1 for {what}, as in ({array} == {found.levels[-1]!r}).astype(int)."
            n = int(found.missing.sum())
            if n:
                advice += f" That makes 0 of the {n} missing values: leave these rows out before."
        raise DataError(
            f"{name!r} must be 0/1 or True/False, but holds {found.describe()}. {advice}"
        ) from error


def _warn_of_dropped(dropped: Dropped, n_rows: int) -> None:
    """Say which rows ``missing="drop"`` left out, since a number cannot show it."""
    if dropped.n:
        warn(f"of {n_rows:,} rows {dropped.sentence()}.", CfairWarning)


def _attributes(features: Any) -> list[tuple[str, Any]]:
    """Names and values of the sensitive features."""
    if isinstance(features, Mapping):
        return [(str(name), values) for name, values in features.items()]
    if isinstance(features, pd.Series):
        return [(UNNAMED if features.name is None else str(features.name), features)]
    if isinstance(features, np.ndarray) and features.ndim == 2:
        return [(f"{UNNAMED}_{k + 1}", features[:, k]) for k in range(features.shape[1])]
    if hasattr(features, "columns") or hasattr(features, "column_names"):
        table = as_table(features)
        return [(str(name), table.column(name)) for name in table.names]
    return [(UNNAMED, features)]


def read_features(
    sensitive_features: Any, **beside: Any
) -> tuple[list[Factor], dict[str, pd.Series]]:
    """The attributes alone, or with other columns, for what asks no call and no outcome.

    Parameters
    ----------
    sensitive_features : array-like, data frame, or mapping of name to array-like
        As in `read_arrays`.
    **beside : (n,) array-like or None
        Other columns, by the name of their argument. The first that is a Series gives the index
        that other Series are matched by.

    Returns
    -------
    attributes : list of Factor
        Missing values have code -1.
    columns : dict of str to pandas.Series
        Those that were given, on one index.

    Raises
    ------
    DataError
        If there are no rows, or lengths or indexes do not fit.

    Examples
    --------
    >>> attributes, _ = read_features({"sex": ["F", "M", None]})
    >>> attributes[0].levels, attributes[0].codes.tolist()
    (('F', 'M'), [0, 1, -1])
    """
    named = _attributes(sensitive_features)
    given = {name: values for name, values in beside.items() if values is not None}
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not named:
        what = f"has {twice[0]!r} twice" if twice else "has no columns"
        raise DataError(f"sensitive_features {what}. Give each attribute once, under its name.")
    _check_arrays({**given, **_said(named)})
    every = [*given.values(), *(values for _, values in named)]
    series = [values for values in every if isinstance(values, pd.Series)]
    labels = series[0].index if series else pd.RangeIndex(len(every[0]))
    if not len(labels):
        raise DataError("there are no rows: sensitive_features has length 0.")
    table = as_table(pd.DataFrame(index=labels))
    attributes = [
        read_attribute(table.align(values, f"sensitive_features {name!r}").rename(name))
        for name, values in named
    ]
    return attributes, {
        name: table.align(values, name).rename(name) for name, values in given.items()
    }


def complete_rows(
    attributes: Sequence[Factor], missing: str, **masks: NDArray[np.bool_]
) -> tuple[Groups, NDArray[np.bool_], Dropped]:
    """Cross attributes over the rows that have a value in all of them.

    Parameters
    ----------
    attributes : sequence of Factor
    missing : {"raise", "drop", "level"}
    **masks : (n,) array of bool
        Rows without a value in another column, by its name.

    Returns
    -------
    groups : Groups
    keep : (n,) array of bool
    dropped : Dropped

    Raises
    ------
    DataError
        If values are missing and `missing` is "raise", or no rows are left.

    Warns
    -----
    CfairWarning
        Counts the rows that ``missing="drop"`` left out.
    """
    check_option("missing", missing, ("raise", "drop", "level"))
    if missing == "level":
        attributes = [attribute.with_missing_level() for attribute in attributes]
    every = {**{a.name: a.missing for a in attributes}, **masks}
    by_column = {name: int(mask.sum()) for name, mask in every.items() if mask.any()}
    keep = ~np.logical_or.reduce(list(every.values()))
    if by_column and missing != "drop":
        shown = show_some([f"{name!r} ({n} rows)" for name, n in by_column.items()], 10)
        raise DataError(
            f"missing values in {shown}; {int((~keep).sum())} of {len(keep)} rows in all. Use "
            'missing="drop" to leave these rows out, missing="level" to make those of an '
            "attribute a level of their own, or fill them in."
        )
    dropped = Dropped(int((~keep).sum()), by_column)
    if not keep.any():
        raise DataError(f"no rows are left of {len(keep)}: {dropped.sentence()}.")
    _warn_of_dropped(dropped, len(keep))
    return cross([attribute.take(keep) for attribute in attributes]), keep, dropped
