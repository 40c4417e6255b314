"""A propensity fitted by maximum likelihood to rows that are read by batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cfair.errors import DataError
from cfair.formula import Design, Formula, build_design_by_batches
from cfair.nuisance.batched_rows import Batch, BatchedRows
from cfair.nuisance.checks import binary_fit_notes, far_note, require_rows
from cfair.nuisance.logistic import (
    FAR,
    MOVING,
    LogisticFit,
    clearly_independent,
    fitted_logistic,
    gram_matrix,
    independent_in,
    newton,
    start_from,
    starts_from_part,
    sweep,
    triangular_factor,
)

Array = NDArray[np.float64]

#: Rows of the fit that Newton's method starts from in large data.
_START_ROWS = 100_000


def require_formula(propensity: Any) -> str:
    """The propensity as the text of a formula, which is all that can be fitted by batches.

    Parameters
    ----------
    propensity : object

    Returns
    -------
    str

    Raises
    ------
    DataError
    """
    if isinstance(propensity, str) and "~" in propensity:
        return propensity
    shown = repr(propensity) if isinstance(propensity, str) else type(propensity).__name__
    raise DataError(
        f'by batches the propensity is a formula, "treated ~ sex * race + risk + age" say, not '
        f"{shown}. For a learner or given probabilities take a sample of the rows into "
        "memory and use cfair.Audit(...).counterfactual(...)."
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """Some rows of the fit."""

    X: Array
    d: Array
    weights: Array | None

    def __len__(self) -> int:
        return len(self.d)

    def take(self, rows: Any) -> _Part:
        return _Part(
            self.X[rows], self.d[rows], None if self.weights is None else self.weights[rows]
        )


@dataclass(frozen=True, eq=False)
class _FitRows:
    """The rows as Newton's method wants them, in columns of full rank."""

    rows: BatchedRows
    design: Design
    kept: NDArray[np.bool_]
    most: Array

    def read(self, label: str) -> Iterator[_Part]:
        # a loop with yield would hold its batch while the next is read
        return filter(len, map(self._part, self.rows.read(label)))

    def _part(self, batch: Batch) -> _Part:
        d = self.rows.cohort.d
        assert d is not None
        X = kept_columns(self.design.transform(batch.data), self.kept)
        part = _Part(X, d[batch.at].astype(np.float64), batch.weights)
        # rows without weight take no part in the fit
        return part if part.weights is None else part.take(part.weights > 0)

    def sweep(self, beta: Array) -> tuple[float, Array, Array]:
        q = len(beta)
        deviance, score, information = 0.0, np.zeros(q), np.zeros((q, q))
        for part in self.read("propensity"):
            own = sweep(part.X, part.d, part.weights, beta)
            deviance += own[0]
            score += own[1]
            information += own[2]
            del part
        return deviance, score, information

    def shift(self, step: Array) -> float:
        bound = float(np.abs(step) @ self.most)
        if bound <= MOVING:  # as at any proper maximum: no need to read the rows again
            return bound
        return max(float(np.max(np.abs(part.X @ step))) for part in self.read("separation"))

    def largest(self) -> Array:
        return self.most


@dataclass(frozen=True, eq=False)
class BatchedFit:
    """A propensity fitted by batches.

    Attributes
    ----------
    design : Design
        Without rows.
    fit : LogisticFit
        Without fitted probabilities.
    mean : (q,) array
        Means of the columns that were kept, weighted where the rows are.
    notes : tuple of str
    """

    design: Design
    fit: LogisticFit
    mean: Array
    notes: tuple[str, ...]

    def matrix(self, batch: Batch) -> Array:
        """Columns of the fit on a batch.

        Parameters
        ----------
        batch : Batch

        Returns
        -------
        (n, q) array
        """
        return kept_columns(self.design.transform(batch.data), self.fit.kept)

    def probabilities(self, X: Array) -> Array:
        """Probabilities of treatment, not truncated.

        Parameters
        ----------
        X : (n, q) array

        Returns
        -------
        (n,) array
        """
        found: Array = expit(X @ self.fit.coef[self.fit.kept])
        return found


def kept_columns(X: Array, kept: NDArray[np.bool_]) -> Array:
    """The columns that take part in a fit.

    Parameters
    ----------
    X : (n, p) array
    kept : (p,) array of bool

    Returns
    -------
    (n, q) array
    """
    return X if kept.all() else np.ascontiguousarray(X[:, kept])


def fit_by_batches(rows: BatchedRows, formula: Formula, text: str) -> BatchedFit:
    """Maximum likelihood of the propensity, the same as of the rows in memory.

    Parameters
    ----------
    rows : BatchedRows
    formula : Formula
    text : str
        The formula as it is printed.

    Returns
    -------
    BatchedFit

    Raises
    ------
    DataError, FormulaError
        If the design cannot be built, or has more terms than there are rows.
    """
    cohort, n = rows.cohort, rows.n_weighted
    design = build_design_by_batches(
        formula, rows.levels(formula), lambda: (b.data for b in rows.read("transforms"))
    )
    require_rows(cohort, design, np.broadcast_to(np.True_, (n,)))
    p = len(design.names)
    every = max(16, -(-n // _START_ROWS))
    gram, most, total, weighted = np.zeros((p, p)), np.zeros(p), np.zeros(p), np.zeros(p)
    some: list[_Part] = []
    all_columns = _FitRows(rows, design, np.ones(p, dtype=bool), most)
    first = 0
    for part in all_columns.read("design"):
        gram += gram_matrix(part.X)
        own = part.X.sum(axis=0)
        total += own
        weighted += own if part.weights is None else part.weights @ part.X
        np.maximum(most, np.max(np.abs(part.X), axis=0), out=most)
        if starts_from_part(n):
            some.append(part.take(np.arange(-first % every, len(part), every)))
            first += len(part)
        del part
    kept = np.ones(p, dtype=bool)
    if not clearly_independent(gram):
        R: Array | None = None
        for part in all_columns.read("rank"):
            R = triangular_factor(part.X, R)
        assert R is not None
        kept = independent_in(R, n)
    start = np.zeros(int(kept.sum()))
    if some:
        X, d = np.vstack([part.X for part in some]), np.concatenate([part.d for part in some])
        weights = [part.weights for part in some if part.weights is not None]
        start = start_from(kept_columns(X, kept), d, np.concatenate(weights) if weights else None)
    some.clear()
    beta, state = newton(_FitRows(rows, design, kept, most[kept]), start)
    fit = fitted_logistic(beta, kept, state, np.zeros(0))
    notes = binary_fit_notes(design, fit, text, "propensity")
    mean = total / n
    sd = np.sqrt(np.maximum(np.diag(gram) / n - mean**2, 0.0))
    # the sums of a column far away have lost its variation, but not that it is no constant
    far = kept & (np.abs(mean) > FAR * sd) & (most > np.abs(mean) * (1 + 1e-12))
    if far.any():
        names = [name for name, is_far in zip(design.names, far, strict=True) if is_far]
        notes.append(far_note(names, mean[far], None, text, "propensity"))
    return BatchedFit(design, fit, weighted[kept] / cohort.n_used, (*formula.notes, *notes))
