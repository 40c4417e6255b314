"""What was given as external information on groups: a table of people, or probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.columns import Weights, formula_column, read_attribute, read_weights
from cfair.errors import DataError
from cfair.formula import Formula, parse_formula
from cfair.frame import Table, as_table, is_name, show_some
from cfair.groups import Factor
from cfair.nuisance.request import ModelRequest
from cfair.options import check_option
from cfair.roles import Declared

#: How covariates of the external model are scaled.
SCALINGS: tuple[str, ...] = ("consistent", "faircfint")
WHAT = "external membership"


@dataclass(frozen=True, eq=False)
class ExternalRequest:
    """External information as the user gave it, before the rows of the analysis are chosen.

    Attributes
    ----------
    formula : Formula or None
        Of the external model; None for given probabilities.
    data : pandas.DataFrame or None
        Columns of the formula in the external rows that are used.
    attributes : tuple of Factor
        Of these rows.
    n_read : int
    dropped : tuple of str
        Columns with missing values and their rows, where these are dropped.
    values : tuple of pandas.Series
        Columns of given probabilities on the table's index.
    labels : tuple
        Column labels of the given probabilities; empty for an array.
    scale : {"consistent", "faircfint"}
    weights : (m,) array or None
        Sampling weights of these rows.
    """

    formula: Formula | None = None
    data: pd.DataFrame | None = None
    attributes: tuple[Factor, ...] = ()
    n_read: int = 0
    dropped: tuple[str, ...] = ()
    values: tuple[pd.Series, ...] = ()
    labels: tuple[Any, ...] = ()
    scale: str = "consistent"
    weights: NDArray[np.float64] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the audit's table that are used."""
        return () if self.formula is None else self.formula.columns


def read_external(
    value: Any,
    declared: Declared,
    membership: ModelRequest,
    formula: Any = None,
    scale: str = "consistent",
    weights: Any = None,
) -> ExternalRequest | None:
    """Understand what was given as external information.

    Parameters
    ----------
    value : data frame, (n, K) array or None
        Rows with the attributes and the covariates of the formula; or probabilities of the groups
        for the rows of the audit's table, as an array in the order of the groups or a pandas frame
        with the groups as columns.
    declared : Declared
    membership : ModelRequest
        Whose formula is the default.
    formula : str, optional
        Of the external model, such as ``"~ age + sbp"``.
    scale : {"consistent", "faircfint"}, default "consistent"
    weights : name or array, optional
        Sampling weights of the external rows.

    Returns
    -------
    ExternalRequest or None

    Raises
    ------
    DataError, FormulaError
    """
    check_option("scale_external", scale, SCALINGS)
    if value is None:
        if formula is not None:
            raise DataError("external_membership= is the formula of external data; give external=.")
        if weights is not None:
            raise DataError("external_weights= are those of external data; give external=.")
        return None
    wanted = [attribute.name for attribute in declared.attributes]
    columns = _as_columns(value, wanted, declared.table.n_rows)
    if columns is not None:
        if weights is not None:
            raise DataError(
                "external holds probabilities, which have no weights: leave external_weights= out."
            )
        labels = tuple(value.columns) if isinstance(value, pd.DataFrame) else ()
        return replace(_given(declared, columns, labels, formula), scale=scale)
    table = as_table(value)
    names = {str(name) for name in table.names}
    lacking = [name for name in wanted if name not in names]
    if lacking:
        raise DataError(
            f"external lacks the attribute {show_some([repr(n) for n in lacking])}. It needs the "
            "attributes of the audit by the same names and the covariates of its membership model."
        )
    text = formula
    if text is None:
        assert membership.formula is not None
        learner = membership.learner
        text = membership.formula.text if learner is None else learner.formula_text
    parsed = parse_formula(text, declared.columns, what=WHAT)
    found = _read_rows(table, declared, parsed, formula is None, _weights(table, weights))
    return replace(found, scale=scale)


def _weights(table: Table, weights: Any) -> Weights | None:
    """Sampling weights of the external rows, checked."""
    if weights is None:
        return None
    if is_name(weights):
        return read_weights(table.column(weights, "external_weights"))
    series = table.align(weights, "external_weights")
    return read_weights(series.rename("external_weights"))


def _as_columns(value: Any, attributes: Sequence[str], n_rows: int) -> list[Any] | None:
    """Columns of what can only be probabilities: a plain array, a frame without the attributes."""
    if isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.names is None:
        return [value[:, j] for j in range(value.shape[1])]
    plain = isinstance(value, (np.ndarray, pd.Series, list, tuple))
    if plain and np.ndim(value) == 1:
        raise DataError(
            "external must be a table with the attributes and covariates, or probabilities with "
            f"one column per group, not {type(value).__name__} of one dimension."
        )
    if not isinstance(value, pd.DataFrame) or set(attributes) & set(map(str, value.columns)):
        return None
    if len(value) != n_rows:
        raise DataError(
            f"external has no column {show_some([repr(a) for a in attributes])}. It needs the "
            "attributes and the covariates of its membership model; or it holds probabilities of "
            f"the groups, and then a row for each of the {n_rows} rows of the table, not "
            f"{len(value)}."
        )
    return [value.iloc[:, j] for j in range(value.shape[1])]


def _given(
    declared: Declared, columns: Sequence[Any], labels: tuple[Any, ...], formula: Any
) -> ExternalRequest:
    if formula is not None:
        raise DataError(
            "external holds probabilities, which need no model: leave external_membership= out, "
            f"or give a table with {' and '.join(a.name for a in declared.attributes)}."
        )
    values = tuple(
        declared.table.align(column, f"external probabilities, column {j}")
        for j, column in enumerate(columns)
    )
    for j, series in enumerate(values):
        if not pd.api.types.is_numeric_dtype(series):
            raise DataError(
                f"external probabilities, column {labels[j] if labels else j!r}: {series.dtype}, "
                "not numbers. Give a table with the attributes, or a probability of every group."
            )
    return ExternalRequest(values=values, labels=labels)


def _read_rows(
    table: Table,
    declared: Declared,
    formula: Formula,
    is_default: bool,
    weights: Weights | None,
) -> ExternalRequest:
    names = {str(name) for name in table.names}
    absent = [name for name in formula.columns if name not in names]
    if absent:
        hint = (
            " By default its membership model is that of the audit: name fewer covariates with "
            'external_membership="~ ...".'
            if is_default
            else ""
        )
        raise DataError(
            f"external lacks {show_some([repr(n) for n in absent])}, which the formula "
            f"{formula.text!r} uses.{hint}"
        )
    if table.n_rows == 0:
        raise DataError("external has no rows.")
    attributes = [read_attribute(table.column(a.name)) for a in declared.attributes]
    columns = {name: formula_column(table.column(name)) for name in formula.columns}
    missing = {
        **{
            own.name: found.missing
            for own, found in zip(declared.attributes, attributes, strict=True)
            if own.missing_level is None
        },
        **{name: column.isna().to_numpy() for name, column in columns.items()},
        **({} if weights is None else {weights.name: weights.missing}),
    }
    by_column = {name: int(mask.sum()) for name, mask in missing.items() if mask.any()}
    keep = ~np.logical_or.reduce(list(missing.values())) if missing else np.ones(table.n_rows, bool)
    if by_column and declared.roles.missing != "drop":
        shown = show_some([f"{name!r} ({n} rows)" for name, n in by_column.items()], 10)
        raise DataError(
            f"external has missing values in {shown}; {int((~keep).sum())} of {table.n_rows} rows "
            'in all. Declare the audit with missing="drop" to leave such rows out, or fill them in.'
        )
    if not keep.any():
        raise DataError(f"external: all {table.n_rows} rows have missing values.")
    return ExternalRequest(
        formula,
        pd.DataFrame({name: _plain(column[keep]) for name, column in columns.items()}),
        tuple(factor.take(keep) for factor in attributes),
        table.n_rows,
        tuple(f"{name} missing ({n})" for name, n in by_column.items()),
        weights=None if weights is None else weights.values[keep],
    )


def _plain(column: pd.Series) -> pd.Series:
    """Plain numbers for nullable ones that have lost their missing rows."""
    if pd.api.types.is_extension_array_dtype(column.dtype) and column.dtype.kind in "iub":
        column = column.astype(bool if column.dtype.kind == "b" else np.int64)
    return column.reset_index(drop=True)
