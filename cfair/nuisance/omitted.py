"""Score tests of what a propensity leaves out: the call under audit, the groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.nuisance.logistic import LogisticFit, solve_information
from cfair.nuisance.propensity import Propensity

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Omitted:
    """What treatment depends on beyond the propensity formula.

    Attributes
    ----------
    what : str
    chi2, p_value : float
    df : int
    """

    what: str
    chi2: float
    df: int
    p_value: float


def omitted_call(propensity: Propensity, cohort: Cohort) -> Omitted | None:
    """Score test of adding the 0/1 call to the propensity; None if it is in, or nothing was fitted.

    Parameters
    ----------
    propensity : Propensity
    cohort : Cohort

    Returns
    -------
    Omitted or None
    """
    if propensity.cells is not None:
        call = np.tile([0.0, 1.0], cohort.groups.n_groups)[:, None]
        return _from_sums(cohort.rule, propensity, call)
    return _omitted(cohort.rule, propensity, cohort, cohort.s[:, None].astype(np.float64))


def omitted_groups(propensity: Propensity, cohort: Cohort) -> Omitted | None:
    """Score test of adding the groups to the propensity.

    Parameters
    ----------
    propensity : Propensity
    cohort : Cohort

    Returns
    -------
    Omitted or None
    """
    from scipy.sparse import csr_matrix

    if propensity.cells is not None:
        filled = np.eye(cohort.groups.n_groups)[:, cohort.groups.sizes > 0][:, 1:]
        return _from_sums("the groups", propensity, np.repeat(filled, 2, axis=0))
    labels, codes = np.unique(cohort.groups.codes, return_inverse=True)
    n = cohort.n_used
    dummies = csr_matrix((np.ones(n), (np.arange(n), codes)), shape=(n, len(labels)))[:, 1:]
    return _omitted("the groups", propensity, cohort, dummies)


def _from_sums(what: str, propensity: Propensity, columns: Array) -> Omitted | None:
    """Score test of columns that depend on the cell (group, call) alone, (2K, m)."""
    cells, fit = propensity.cells, propensity.fit
    assert cells is not None
    assert fit is not None
    cross, total = cells.slope.T @ columns, (columns.T * cells.variance) @ columns
    slope = solve_information(fit.information, cross)
    basis = _basis(cross, total, slope)
    projected = basis.T @ (columns.T @ cells.residual)
    if cells.squared is not None:
        s = cells.squared
        cross, total = s.slope.T @ columns, (columns.T * s.square) @ columns
        projected = _standardized(projected, basis, slope, cross, total, s.whole)
    chi2, df, p = _chi_squared(projected)
    return Omitted(what, chi2, df, p) if df else None


def _omitted(what: str, propensity: Propensity, cohort: Cohort, columns: Any) -> Omitted | None:
    if propensity.matrix is None or propensity.fit is None or cohort.d is None:
        return None
    X, d, fit, weights = propensity.matrix, cohort.d, propensity.fit, cohort.weights
    if weights is not None:  # rows without weight took no part in the fit
        rows = cohort.weighted
        X, d, columns, weights = X[rows], d[rows], columns[rows], weights[rows]
        fit = replace(fit, fitted=propensity.fitted[rows])
    chi2, df, p = score_test(X, d, fit, columns, weights)
    return Omitted(what, chi2, df, p) if df else None


def score_test(
    X: Array,
    outcome: NDArray[np.integer] | Array,
    fit: LogisticFit,
    added: Any,
    weights: Array | None = None,
) -> tuple[float, int, float]:
    """Rao's score test of adding columns to a fitted logistic regression.

    With weights the information no longer is the variance of the score, so that the variance is
    estimated from the squared scores of the rows.

    Parameters
    ----------
    X : (n, q) array
        Columns in the model, those that were kept.
    outcome : (n,) array of 0 and 1
    fit : LogisticFit
        Of `outcome` on `X`.
    added : (n, m) array or scipy sparse matrix
        Columns to add.
    weights : (n,) array, optional
        Those of the fit.

    Returns
    -------
    chi2 : float
    df : int
        Columns that add something; 0 if all are in the model already.
    p_value : float
        NaN if `df` is 0.

    References
    ----------
    Rao CR (1948). Large sample tests of statistical hypotheses concerning several parameters.
    Mathematical Proceedings of the Cambridge Philosophical Society 44, 50-57. With weights: Boos DD
    (1992). On generalized score tests. The American Statistician 46, 327-333.
    """
    from scipy.sparse import csr_matrix

    columns = csr_matrix(added)
    residual, variance = outcome - fit.fitted, fit.fitted * (1 - fit.fitted)
    if weights is not None:
        residual, variance = weights * residual, weights * variance
    score = columns.T @ residual
    cross, total = _cross_products(columns, X, variance)
    slope = solve_information(fit.information, cross)
    basis = _basis(cross, total, slope)
    projected = basis.T @ score
    if weights is not None:
        cross, total = _cross_products(columns, X, residual**2)
        root = X * residual[:, None]
        projected = _standardized(projected, basis, slope, cross, total, root.T @ root)
    return _chi_squared(projected)


def _standardized(
    projected: Array, basis: Array, slope: Array, cross: Array, total: Array, whole: Array
) -> Array:
    """Scores in units of their own spread, from sums of squares of the rows' scores."""
    if not basis.size:
        return projected
    crossed = slope.T @ cross
    meat = total - crossed - crossed.T + slope.T @ whole @ slope
    values, vectors = np.linalg.eigh(basis.T @ meat @ basis)
    keep = values > 1e-8 * values[-1]
    found: Array = (vectors[:, keep].T @ projected) / np.sqrt(values[keep])
    return found


def _basis(cross: Array, total: Array, slope: Array) -> Array:
    """Combinations of the added columns that add something, with unit variance of their scores."""
    schur = total - cross.T @ slope
    values, vectors = np.linalg.eigh((schur + schur.T) / 2)
    keep = values > 1e-8 * max(float(np.trace(total)), 1e-300)
    basis: Array = vectors[:, keep] / np.sqrt(values[keep])
    return basis


def _chi_squared(projected: Array) -> tuple[float, int, float]:
    from scipy.special import chdtrc

    df = len(projected)
    if df == 0:
        return 0.0, 0, np.nan
    chi2 = float(np.sum(projected**2))
    return chi2, df, float(chdtrc(df, chi2))


def _cross_products(columns: Any, X: Array, row: Array) -> tuple[Array, Array]:
    """Sums of ``row x z'`` and ``row z z'`` over the rows, z sparse."""
    weighted = columns.multiply(row[:, None]).tocsr()
    return np.asarray((weighted.T @ X).T), (weighted.T @ columns).toarray()
