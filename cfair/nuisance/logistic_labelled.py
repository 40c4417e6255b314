"""Many logistic regressions of one outcome at once: the same rows with other group labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix
from scipy.special import expit

from cfair.nuisance.logistic import DECREMENT, MOVING, STOPPED, clearly_independent

Array = NDArray[np.float64]
Integers = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Designs that differ in the group of each row: columns of the row, then columns of its group.

    None of the designs is written out. What Newton's method and influence functions need are sums
    over the rows, and what group columns add to these are sums by label.

    Attributes
    ----------
    fixed : (n, p0) array
        Columns that no label changes.
    by_group : (K, q) array
        Columns that are functions of the group.
    labels : (R, n) array of int
    pairs : (n, p0 (p0 + 1) / 2) array
        Products of two fixed columns, in the order of ``numpy.triu_indices``.
    """

    fixed: Array
    by_group: Array
    labels: Integers
    pairs: Array

    @classmethod
    def of(cls, fixed: Array, by_group: Array, labels: Integers) -> LabelledRows:
        """Put rows under labels.

        Parameters
        ----------
        fixed : (n, p0) array
        by_group : (K, q) array
        labels : (R, n) array of int

        Returns
        -------
        LabelledRows
        """
        one, other = np.triu_indices(fixed.shape[1])
        return cls(fixed, by_group, labels, fixed[:, one] * fixed[:, other])

    def under(self, labels: Integers) -> LabelledRows:
        """The same rows with other labels.

        Parameters
        ----------
        labels : (R, n) array of int

        Returns
        -------
        LabelledRows
        """
        return replace(self, labels=labels)

    def predictor(self, beta: Array) -> Array:
        """Linear predictors.

        Parameters
        ----------
        beta : (R, p) array

        Returns
        -------
        (R, n) array
        """
        p0 = self.fixed.shape[1]
        of_group = beta[:, p0:] @ self.by_group.T
        found: Array = beta[:, :p0] @ self.fixed.T
        found += np.take_along_axis(of_group, self.labels, axis=1)
        return found

    def totals(self, values: Array) -> Array:
        """Sums of the rows of each design, times values.

        Parameters
        ----------
        values : (R, n) array

        Returns
        -------
        (R, p) array
        """
        of_group = _added(self.labels, values, len(self.by_group)) @ self.by_group
        return np.hstack([values @ self.fixed, of_group])

    def products(self, values: Array) -> Array:
        """Sums of ``x x'`` over the rows of each design, times values.

        Parameters
        ----------
        values : (R, n) array

        Returns
        -------
        (R, p, p) array
        """
        p0, (K, q) = self.fixed.shape[1], self.by_group.shape
        one, other = np.triu_indices(p0)
        found = np.empty((len(values), p0 + q, p0 + q))
        found[:, one, other] = found[:, other, one] = values @ self.pairs
        border = _added_rows(self.labels, values, self.fixed, K).transpose(0, 2, 1) @ self.by_group
        found[:, :p0, p0:] = border
        found[:, p0:, :p0] = border.transpose(0, 2, 1)
        mass = _added(self.labels, values, K)
        found[:, p0:, p0:] = (self.by_group.T * mass[:, None, :]) @ self.by_group
        return found

    def by_cell(self, within: Integers, n_cells: int, values: Array) -> Array:
        """Sums of values by label and cell.

        Parameters
        ----------
        within : (m,) array of int
            Cell of each of the first m rows.
        n_cells : int
        values : (R, m) array

        Returns
        -------
        (R, K, n_cells) array
        """
        K = len(self.by_group)
        code = self.labels[:, : len(within)] * n_cells + within
        return _added(code, values, K * n_cells).reshape(-1, K, n_cells)

    def rows_by_cell(self, within: Integers, n_cells: int, values: Array) -> Array:
        """Sums of the first rows of each design, times values, by label and cell.

        Parameters
        ----------
        within : (m,) array of int
            Cell of each of the first m rows.
        n_cells : int
        values : (R, m) array

        Returns
        -------
        (R, K, n_cells, p) array
        """
        m, K = len(within), len(self.by_group)
        code = self.labels[:, :m] * n_cells + within
        fixed = _added_rows(code, values, self.fixed[:m], K * n_cells)
        of_group = self.by_cell(within, n_cells, values)[..., None] * self.by_group[:, None, :]
        return np.concatenate([fixed.reshape(*of_group.shape[:3], -1), of_group], axis=-1)


def _added(code: Integers, values: Array, n_codes: int) -> Array:
    """Sums of values (R, n) by code, (R, n_codes)."""
    R = len(code)
    every = code + n_codes * np.arange(R)[:, None]
    found = np.bincount(every.ravel(), weights=values.ravel(), minlength=n_codes * R)
    return np.asarray(found, dtype=np.float64).reshape(R, n_codes)


def _added_rows(code: Integers, values: Array, X: Array, n_codes: int) -> Array:
    """Sums of the rows of X, times values (R, n), by code, (R, n_codes, p)."""
    R, n = code.shape
    every = (code + n_codes * np.arange(R)[:, None]).T
    limits = np.arange(0, n * R + 1, R)
    chosen = csc_matrix((values.T.ravel(), every.ravel(), limits), shape=(n_codes * R, n))
    return np.asarray(chosen @ X).reshape(R, n_codes, X.shape[1])


@dataclass(frozen=True)
class LabelledFits:
    """Fits of one outcome under many sets of labels.

    Attributes
    ----------
    coef : (R, p) array
        Of the fixed columns, then of those of groups.
    information : (R, p, p) array
        Observed information, as `fit_logistic` has it.
    proper : (R,) bool array
        Whether the fit is the maximum, of a design of full rank and without separation, that
        `fit_logistic` finds from the same start. Else the replicate is to be fitted by it.
    """

    coef: Array
    information: Array
    proper: NDArray[np.bool_]


def fit_logistic_labelled(
    rows: LabelledRows,
    outcome: NDArray[np.integer] | Array,
    weights: Array | None,
    start: Array,
    *,
    max_iter: int = 12,
) -> LabelledFits:
    """Fit one outcome under many sets of labels, all at once.

    Newton's steps of `fit_logistic`, without those that it takes when something is amiss.

    Parameters
    ----------
    rows : LabelledRows
        With columns none of which is far from 0.
    outcome : (n,) array of 0 and 1
    weights : (n,) array or None
    start : (p,) array
    max_iter : int, default 12

    Returns
    -------
    LabelledFits
    """
    d = np.asarray(outcome, dtype=np.float64)
    R, n = rows.labels.shape
    a = np.ones(n) if weights is None else weights
    gram = rows.products(np.ones((R, n)))
    p = gram.shape[1]
    proper = np.zeros(R, dtype=bool)
    active = np.array([r for r in range(R) if n >= p and clearly_independent(gram[r])], np.intp)
    size = np.sqrt(np.einsum("rpp->rp", gram) / n)
    reach = np.concatenate(
        [np.max(np.abs(part), axis=0, initial=0.0) for part in (rows.fixed, rows.by_group)]
    )
    beta = np.tile(np.asarray(start, dtype=np.float64), (R, 1))
    information = np.zeros((R, p, p))
    enough = 1e-6 * np.sqrt(a.sum())
    with np.errstate(all="ignore"):  # a step that runs away is left to a fit of its own
        for _ in range(max_iter):
            if not len(active):
                break
            here = rows if len(active) == R else rows.under(rows.labels[active])
            probability = expit(here.predictor(beta[active]))
            score = here.totals(a * (d - probability))
            found = here.products(a * probability * (1 - probability))
            finite = np.isfinite(score).all(axis=1) & np.isfinite(found).all(axis=(1, 2))
            active, score, found = active[finite], score[finite], found[finite]
            information[active] = found
            step = solve_many(found, score)
            beta[active] += step
            decrement = np.einsum("rp,rp->r", score, step)
            # a step that overshot leaves no information and no step, but a score that is not zero
            settled = (np.abs(score) <= enough * size[active]).all(axis=1)
            done = (decrement < DECREMENT) & settled
            # under separation the likelihood stops while a step still moves a linear predictor
            moving = (decrement < STOPPED) & ~(np.abs(step) @ reach <= MOVING)
            proper[active[done & ~moving]] = True
            active = active[~done & ~moving]
    return LabelledFits(beta, information, proper)


def solve_many(information: Array, right: Array) -> Array:
    """Solve a stack of small information systems; a direction without information stays at zero.

    Parameters
    ----------
    information : (B, p, p) array
    right : (B, p) array

    Returns
    -------
    (B, p) array
    """
    diagonal = np.einsum("bpp->bp", information)
    empty = diagonal <= 1e-12 * np.max(diagonal, axis=1, keepdims=True)
    scale = np.sqrt(np.where(empty, 1.0, diagonal))
    scaled = information / (scale[:, :, None] * scale[:, None, :])
    rows, columns = np.nonzero(empty)
    scaled[rows, columns, :] = 0.0
    scaled[rows, :, columns] = 0.0
    scaled[rows, columns, columns] = 1.0
    right = np.where(empty, 0.0, right) / scale
    try:
        solution = np.linalg.solve(scaled, right[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        solution = np.stack(
            [
                np.linalg.lstsq(one, vector, rcond=1e-12)[0]
                for one, vector in zip(scaled, right, strict=True)
            ]
        )
    result: Array = solution / scale
    return result
