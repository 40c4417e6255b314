"""Probabilities of the groups from outside, on the rows of the analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import DataError
from cfair.formula import build_design
from cfair.frame import show_some
from cfair.nuisance.external_request import ExternalRequest
from cfair.nuisance.membership import cut
from cfair.nuisance.membership_checks import membership_fit_notes, refuse_columns
from cfair.nuisance.multinomial import MultinomialFit, fit_multinomial
from cfair.roles import Declared

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class External:
    """Probabilities of the groups from outside, on the rows of the analysis.

    Attributes
    ----------
    p : (n, K) array
        Cut to the limits and brought back to a sum of 1, as those of the internal model.
    raw : (n, K) array
    text : str
        The formula, or that the probabilities were given.
    sizes : (K,) array or None
        External rows of each group; None for given probabilities.
    fit : MultinomialFit or None
    names : tuple of str
        Columns of the design.
    scale : {"consistent", "faircfint"}
    n_truncated : int
        Rows with a probability that was cut.
    notes : tuple of str
    mass : (K,) array or None
        Sum of the sampling weights of the external rows of each group.
    """

    p: Array
    raw: Array
    text: str
    sizes: NDArray[np.intp] | None
    fit: MultinomialFit | None
    names: tuple[str, ...]
    scale: str
    n_truncated: int
    notes: tuple[str, ...] = ()
    mass: Array | None = None

    def __repr__(self) -> str:
        rows = "" if self.sizes is None else f"; {int(self.sizes.sum()):,} external rows"
        return f"External: {self.text}{rows}"


def external_probabilities(
    request: ExternalRequest,
    cohort: Cohort,
    declared: Declared,
    truncation: tuple[float, float],
    renormalise: bool = True,
) -> External:
    """Probabilities of the groups on the rows of the analysis, fitted outside or as given.

    Parameters
    ----------
    request : ExternalRequest
    cohort : Cohort
    declared : Declared
    truncation : (float, float)
    renormalise : bool, default True

    Returns
    -------
    External

    Raises
    ------
    DataError
        If groups do not agree, or probabilities are not.
    """
    present = cohort.groups.sizes > 0
    if request.formula is None:
        raw = _checked(request, cohort)
        found = External(raw, raw, "probabilities as given", None, None, (), request.scale, 0)
    else:
        found = _fitted(request, cohort, declared)
    p = cut(found.raw.T, present, truncation, renormalise).T
    beyond = (found.raw < truncation[0]) | (found.raw > truncation[1])
    return replace(found, p=p, n_truncated=int(beyond[:, present].any(axis=1).sum()))


def _checked(request: ExternalRequest, cohort: Cohort) -> Array:
    groups = cohort.groups
    values = np.column_stack([s.to_numpy(dtype=np.float64) for s in request.values])[cohort.rows]
    K = groups.n_groups
    where = np.arange(K)
    if request.labels:
        where = np.array([groups.index_of(label) for label in request.labels], dtype=np.intp)
    if values.shape[1] != K or len(set(where.tolist())) != K:
        raise DataError(
            f"external probabilities need a column for each of the {K} groups "
            f"({show_some([repr(name) for name in groups.names], 20)}), but have "
            f"{values.shape[1]}."
        )
    p = np.empty((len(values), K))
    p[:, where] = values
    wrong = ~((p >= 0) & (p <= 1)).all(axis=1)
    if wrong.any():
        raise DataError(
            f"external probabilities are missing or outside [0, 1] in {int(wrong.sum())} of the "
            f"{len(p)} rows used. Give a probability of every group for each row."
        )
    off = np.abs(p.sum(axis=1) - 1) > 1e-6
    if off.any():
        raise DataError(
            f"external probabilities do not add up to 1 in {int(off.sum())} of the {len(p)} rows "
            f"used; the first of these gives {p[off][0].sum():.4g}. Divide each row by its sum."
        )
    return p


def _fitted(request: ExternalRequest, cohort: Cohort, declared: Declared) -> External:
    formula, data = request.formula, request.data
    assert formula is not None
    assert data is not None
    refuse_columns(formula, cohort)
    codes = _codes(request, cohort, declared)
    K = cohort.groups.n_groups
    if request.scale == "faircfint":
        # what the R package does: scaled in fitting only
        data = data.copy()
        for name, column in data.select_dtypes(include=np.number).items():
            data[name] = (column - column.mean()) / column.std(ddof=1)
    design = build_design(formula, data)
    if len(codes) < design.matrix.shape[1]:
        raise DataError(
            f"the formula {formula.text!r} has {design.matrix.shape[1]} terms, but external has "
            f"only {len(codes)} rows. Use fewer terms."
        )
    fit = fit_multinomial(design.matrix, codes, K, weights=request.weights)
    notes = membership_fit_notes(
        [fit], design.names, cohort.groups.names, what="external membership model"
    )
    if request.dropped:
        left_out = request.n_read - len(codes)
        notes.append(
            f"external: {left_out} of {request.n_read} rows dropped: {show_some(request.dropped)}."
        )
    raw = fit.predict(design.transform(cohort.data))
    return External(
        raw,
        raw,
        formula.text,
        np.bincount(codes, minlength=K),
        fit,
        design.names,
        request.scale,
        0,
        tuple(notes),
        np.bincount(codes, request.weights, K).astype(np.float64),
    )


def _codes(request: ExternalRequest, cohort: Cohort, declared: Declared) -> NDArray[np.intp]:
    """Groups of the external rows by the audit's codes; matched by what the labels are."""
    groups = cohort.groups
    parts = []
    for own, found, levels, names in zip(
        declared.attributes, request.attributes, groups.levels, groups.level_names, strict=True
    ):
        place = [_position(level, levels, names) for level in found.levels]
        lost = -1 if own.missing_level is None else _position(own.missing_level, levels, names)
        parts.append(np.array([*place, lost], dtype=np.intp)[found.codes])
    at = np.array(parts)
    known = (at >= 0).all(axis=0)
    codes = np.full(at.shape[1], -1, dtype=np.intp)
    codes[known] = np.ravel_multi_index(tuple(at[:, known]), groups.shape)
    sizes = groups.sizes
    other = ~known | (sizes[codes] == 0)
    if other.any():
        named = pd.Series(
            [
                " & ".join(str(f.levels[f.codes[i]]) for f in request.attributes)
                for i in np.flatnonzero(other)
            ]
        ).value_counts()
        shown = show_some([f"{name!r} ({n} rows)" for name, n in named.items()], 8)
        raise DataError(
            f"external has groups that the audit has no rows of: {shown}. Leave these rows out of "
            "external, or merge the levels in both."
        )
    lacking = np.flatnonzero((sizes > 0) & (np.bincount(codes, minlength=len(sizes)) == 0))
    if len(lacking):
        shown = show_some([f"{groups.names[k]!r} ({sizes[k]} rows here)" for k in lacking], 8)
        raise DataError(
            f"external has no rows of {shown}, so it says nothing about these groups. Merge them "
            "with others in both tables, or leave them out of the audit."
        )
    return codes


def _position(value: Any, levels: Sequence[Any], names: Sequence[str]) -> int:
    """Position of a level, by itself or, for text, as it is shown; -1 if there is none."""
    for i, level in enumerate(levels):
        if isinstance(level, str) == isinstance(value, str) and level == value:
            return i
    return names.index(value) if isinstance(value, str) and value in names else -1
