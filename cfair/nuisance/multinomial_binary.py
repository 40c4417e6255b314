"""A logistic regression of a binary model fitted again under many weights: two classes at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cfair.nuisance.binary import BinaryFit, BinaryModel
from cfair.nuisance.multinomial_many import LEFT, ROUNDED, settled_fits

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


def fit_binary_many(
    model: BinaryModel, counts: Array, start: Array | None
) -> tuple[list[Array], Bools]:
    """Fit under many sets of counts.

    Parameters
    ----------
    model : BinaryModel
        A learner is fitted one set after the other.
    counts : (B, n) array
        How often each row was drawn in each replicate.
    start : (p,) array or None
        Coefficients of the full sample, NaN for a column that was left out; fitted if None.

    Returns
    -------
    values : list of (B, n) arrays
        One for each place where probabilities were wanted.
    converged : (B,) array of bool
    """
    if model.estimator is not None:
        return model.fit_each(counts)
    coef, converged = _refits(model, counts, start)
    values = [np.empty(counts.shape) for _ in model.at]
    for fold, rows in enumerate(_held(model)):
        for value, place in zip(values, model.at, strict=True):
            eta = coef[:, fold] @ place.matrix[rows].T
            value[:, rows] = expit(eta, out=eta)
    for b in np.flatnonzero(~converged):
        fit = model.fit(counts[b])
        for value, one in zip(values, fit.values, strict=True):
            value[b] = one
        converged[b] = fit.converged
    return values, converged


def fit_binary_many_under_groups(
    model: BinaryModel, counts: Array, start: Array | None
) -> tuple[Array, Bools]:
    """Fit under many sets of counts, and predict every row under every group.

    Parameters
    ----------
    model : BinaryModel
    counts : (B, n) array
    start : (p,) array or None
        As in :func:`fit_binary_many`.

    Returns
    -------
    every : (B, n, K) array
        NaN where a replicate has no model.
    converged : (B,) array of bool
    """
    if model.estimator is not None:
        return model.fit_each_under_groups(counts)
    every, converged = _under_groups(model, counts, start)
    for b in np.flatnonzero(~converged):
        found, good = model.fit_each_under_groups(counts[[b]])
        every[b], converged[b] = found[0], good[0]
    return every, converged


def fit_binary_under_groups(model: BinaryModel, whole: BinaryFit) -> BinaryFit:
    """Fit outside each fold, and predict the rows in it under every group.

    Parameters
    ----------
    model : BinaryModel
        A logistic regression with folds.
    whole : BinaryFit
        Its fit to all rows.

    Returns
    -------
    BinaryFit
    """
    assert whole.fit is not None
    if whole.fit.kept.all():
        once = np.ones((1, len(model.target)))
        every, settled = _under_groups(model, once, whole.fit.coef, ROUNDED)
        if settled[0]:
            return BinaryFit((), every=every[0])
    return model.fit()  # one fold after the other, with all that is to be said of them


def _under_groups(
    model: BinaryModel, counts: Array, start: Array | None, left: float = LEFT
) -> tuple[Array, Bools]:
    """Probabilities (B, n, K) of all rows under every group, and which replicates are settled."""
    assert model.every is not None
    coef, settled = _refits(model, counts, start, left)
    every = np.empty((*counts.shape, model.every.n_groups))
    for fold, rows in enumerate(_held(model)):
        every[:, rows] = model.every.probabilities(coef[:, fold], rows)
    return every, settled


def _refits(
    model: BinaryModel, counts: Array, start: Array | None, left: float = LEFT
) -> tuple[Array, Bools]:
    """Coefficients (B, F, p) of the fits, and in which replicates they are all settled."""
    start = model.of_all_rows if start is None else start
    kept = ~np.isnan(start)
    w = counts if model.weights is None else counts * model.weights
    if not model.used.all():
        w = np.where(model.used, w, 0.0)
    X = model.train.matrix
    codes = None if model.folds is None else model.folds.codes
    fits = settled_fits(
        X if kept.all() else X[:, kept],
        model.target.astype(np.int8),
        2,
        w,
        np.column_stack([np.zeros(kept.sum()), start[kept]]),
        folds=codes,
        left=left,
    )
    found, converged = fits.coef[..., 1], fits.converged
    if codes is None:
        found, converged = found[:, None], converged[:, None]
    coef = np.zeros((*found.shape[:2], len(kept)))
    coef[..., kept] = found
    settled: Bools = np.all(converged, axis=1)
    return coef, settled


def _held(model: BinaryModel) -> list[slice | NDArray[np.intp]]:
    """The rows that each fit predicts."""
    if model.folds is None:
        return [slice(None)]
    return [model.folds.rows(fold) for fold in range(model.folds.n_folds)]
