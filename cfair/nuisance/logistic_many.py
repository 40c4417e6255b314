"""Many logistic regressions of one design at once: replicate weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cfair.nuisance.logistic import MOVING, fit_logistic

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ManyFits:
    """Refits of one design under many sets of weights.

    Attributes
    ----------
    coef : (B, p) array
    converged : (B,) bool array
        Whether the Newton decrement of the replicate fell below 1e-10.
    """

    coef: Array
    converged: NDArray[np.bool_]


def fit_logistic_many(
    X: Array,
    outcome: NDArray[np.integer] | Array,
    weights: Array,
    start: Array,
    *,
    max_iter: int = 12,
) -> ManyFits:
    """Refit one design under many sets of row weights, all replicates at once.

    Newton steps from a common start; the information matrices of all replicates come from one
    matrix product with the pairwise products of the columns.

    Parameters
    ----------
    X : (n, p) array of full column rank
    outcome : (n,) array of 0 and 1
    weights : (B, n) array
        Row weights of each replicate, for instance bootstrap counts.
    start : (p,) array
        Coefficients to start from, usually those of the full sample.
    max_iter : int, default 12

    Returns
    -------
    ManyFits
    """
    d = np.asarray(outcome, dtype=np.float64)
    n_replicates, p = weights.shape[0], X.shape[1]
    upper = np.triu_indices(p)
    products = X[:, upper[0]] * X[:, upper[1]]
    size = np.sqrt(np.mean(X**2, axis=0)) + 1e-300
    reach = np.max(np.abs(X), axis=0, initial=0.0)
    beta = np.tile(np.asarray(start, dtype=np.float64), (n_replicates, 1))
    converged = np.zeros(n_replicates, dtype=bool)
    active = np.arange(n_replicates)
    for _ in range(max_iter):
        probability = expit(beta[active] @ X.T)
        w = weights[active]
        score = (w * (d - probability)) @ X
        information = np.empty((len(active), p, p))
        flat = (w * probability * (1 - probability)) @ products
        information[:, upper[0], upper[1]] = flat
        information[:, upper[1], upper[0]] = flat
        step = solve_many(information, score)
        beta[active] += step
        # A step that overshot leaves no information and no step, but a score that is not zero.
        settled = np.abs(score) <= 1e-6 * np.sqrt(w.sum(axis=1))[:, None] * size
        done = (np.einsum("bp,bp->b", score, step) < 1e-10) & settled.all(axis=1)
        # Under separation a step still moves a linear predictor: by no more than this, else.
        done &= np.abs(step) @ reach <= MOVING
        converged[active[done]] = True
        active = active[~done]
        if not len(active):
            break
    for b in active:  # separated or badly scaled: the careful fit, with step halving
        fit = fit_logistic(X, d, weights=weights[b])
        beta[b], converged[b] = np.nan_to_num(fit.coef), fit.converged
    return ManyFits(beta, converged)


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
