"""A design matrix taken apart by protected attribute, so that rows can be put into other groups."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.formula.design import Design, codes_of, evaluate, read_again
from cfair.frame import show_some


@dataclass(frozen=True, eq=False)
class AttributeSplit:
    """A design matrix taken apart by whether its terms use the protected attributes.

    Parameters
    ----------
    fixed : (n, p0) array
        Columns of terms without attributes, the intercept among them.
    by_group : (K, q) array or None
        Columns of terms of attributes alone, one row per group; None without such terms.
    mixed : (K, n, m) array or None
        Columns of terms of attributes and other columns, for all rows as if every row were in that
        group; None without such terms.
    fixed_columns, by_group_columns, mixed_columns : integer arrays
        Which columns of the design matrix the three parts are.
    """

    fixed: NDArray[np.float64] = field(repr=False)
    by_group: NDArray[np.float64] | None = field(repr=False)
    mixed: NDArray[np.float64] | None = field(repr=False)
    fixed_columns: NDArray[np.intp]
    by_group_columns: NDArray[np.intp]
    mixed_columns: NDArray[np.intp]


def split_design(
    design: Design,
    data: pd.DataFrame,
    group_frame: pd.DataFrame,
    *,
    max_bytes: int = 1_000_000_000,
) -> AttributeSplit:
    """Take a design apart, so that rows can be put into other groups without building it again.

    Parameters
    ----------
    design : Design
        Built on `data`.
    data : pandas.DataFrame
        The rows of the design matrix.
    group_frame : pandas.DataFrame
        One row per group, one column per protected attribute.
    max_bytes : int
        Most memory that `mixed` may take.

    Returns
    -------
    AttributeSplit
        For row i in group k, ``fixed[i]``, ``by_group[k]`` and ``mixed[k, i]`` together are the row
        of the design matrix. A group with a level that did not occur in fitting has zeros.
    """
    formula = design.formula
    if len(data) != len(design.matrix):
        raise formula.error(
            f"the data have {len(data)} rows, but the design was built on {len(design.matrix)}."
        )
    fixed: list[Any] = []
    alone: list[Any] = []
    mixed: list[Any] = []
    for term in design.info.term_slices:
        used = {column in group_frame.columns for column in formula.columns_of(term.name())}
        (mixed if len(used) == 2 else alone if True in used else fixed).append(term)
    groups, known = _group_values(design, data, group_frame)
    by_group = None
    if alone:
        by_group = evaluate(formula, design.info.subset(alone), groups, len(known))
        by_group[~known] = 0.0
    places = [_places(design, terms) for terms in (fixed, alone, mixed)]
    return AttributeSplit(
        np.ascontiguousarray(design.matrix[:, places[0]]),
        by_group,
        _mixed(design, mixed, groups, known, data, max_bytes) if mixed else None,
        *places,
    )


def _places(design: Design, terms: Iterable[Any]) -> NDArray[np.intp]:
    slices = [design.info.term_slices[term] for term in terms]
    return np.array([i for s in slices for i in range(s.start, s.stop)], dtype=np.intp)


def _group_values(
    design: Design, data: pd.DataFrame, group_frame: pd.DataFrame
) -> tuple[dict[str, Any], NDArray[np.bool_]]:
    """Attributes of each group as in fitting, and the groups whose levels all occurred there."""
    values: dict[str, Any] = {}
    known = np.ones(len(group_frame), dtype=np.bool_)
    for column in set(design.columns) & set(group_frame.columns):
        codes, uniques = codes_of(data[column])
        occurring = {uniques[code] for code in np.unique(codes)}
        seen = np.array([level in occurring for level in group_frame[column]], dtype=np.bool_)
        if not seen.any():
            raise design.formula.error(
                f"no group has a level of {column!r} that occurs in the data. Build the groups "
                f"from the same table."
            )
        # A group with an unknown level borrows a known one here; its rows become zeros.
        stand_in = group_frame.iloc[np.where(seen, np.arange(len(seen)), int(np.argmax(seen)))]
        values[column] = read_again(design.formula, stand_in, column, design.fitted[column])
        known &= seen
    return values, known


def _mixed(
    design: Design,
    terms: list[Any],
    groups: dict[str, Any],
    known: NDArray[np.bool_],
    data: pd.DataFrame,
    max_bytes: int,
) -> NDArray[np.float64]:
    formula, part = design.formula, design.info.subset(terms)
    shape = (len(known), len(data), len(part.column_names))
    if math.prod(shape) * 8 > max_bytes:
        shown = show_some([repr(formula.show(term.name())) for term in terms])
        raise formula.error(
            f"the terms of attributes with other columns ({shown}) need "
            f"{math.prod(shape) * 8 / 1e9:.2f} GB for {shape[0]} groups and {shape[1]:,} rows, "
            f"more than max_bytes = {max_bytes:,}. Leave out these interactions, or allow more."
        )
    values = {
        column: read_again(formula, data, column, design.fitted[column])
        for column in formula.columns_of(" ".join(term.name() for term in terms))
        if column not in groups
    }
    mixed = np.zeros(shape)
    for k in np.flatnonzero(known):
        same = {c: group.take(np.full(len(data), k)) for c, group in groups.items()}
        mixed[k] = evaluate(formula, part, {**values, **same}, len(data))
    return mixed
