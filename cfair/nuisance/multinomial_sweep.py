"""The passes over the rows of a multinomial logistic regression.

Arrays lie class by class, so that a pass is a few operations on contiguous blocks that stay in
cache, and one matrix product of pairs of classes with pairs of columns.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

CACHED = 60_000  # numbers in the largest array of a block of rows
_MODERATE = 20.0  # linear predictor up to which no probability is 1 to within rounding


def full_sweep(
    X: Array, code: Integers, w: Array, beta: Array, *, deviance: bool = True
) -> tuple[Array, Array, Array]:
    """One pass over the rows for several replicates: deviance, score and information.

    Parameters
    ----------
    X : (n, p) array
    code : (b, n) array of int
        Class of each row: -1 for the reference, 0..C-1 for the others.
    w : (b, n) array
        Weights.
    beta : (C, b, p) array
    deviance : bool, default True
        Whether to work out the deviance; zeros if not.

    Returns
    -------
    deviance : (b,) array
    score : (C, b, p) array
    information : (b, C p, C p) array
    """
    C, b, p = beta.shape
    first, second, _ = _pairs(p)
    n_pairs = C * (C + 1) // 2
    lost, score = np.zeros(b), np.zeros((C * b, p))
    sums = np.zeros((n_pairs * b, len(first)))
    classes = np.arange(C, dtype=code.dtype)[:, None, None]
    for rows in _blocks(len(X), b * n_pairs):
        xt = np.ascontiguousarray(X[rows].T)
        P, rest = _probabilities((beta.reshape(C * b, p) @ xt).reshape(C, b, xt.shape[1]))
        if deviance:
            happened = np.where(code[:, rows] == classes, P, 0.0).sum(axis=0)
            happened += np.where(code[:, rows] < 0, rest, 0.0)
            lost -= 2 * np.sum(w[:, rows] * np.log(np.maximum(happened, 1e-300)), axis=1)
        score += _residual(code[:, rows], w[:, rows], P) @ xt.T
        sums += _pair_weights(P, P * w[:, rows]) @ (xt[first] * xt[second]).T
    return lost, score.reshape(C, b, p), _unfold(sums, C, b, p)


def score_sweep(X: Array, code: Integers, w: Array, beta: Array) -> Array:
    """One pass over the rows for the scores alone, at half the cost.

    Parameters
    ----------
    X, code, w, beta
        As in :func:`full_sweep`.

    Returns
    -------
    (C, b, p) array
    """
    C, b, p = beta.shape
    score = np.zeros((C * b, p))
    for rows in _blocks(len(X), b * C):
        xt = np.ascontiguousarray(X[rows].T)
        P, _ = _probabilities((beta.reshape(C * b, p) @ xt).reshape(C, b, xt.shape[1]))
        score += _residual(code[:, rows], w[:, rows], P) @ xt.T
    return score.reshape(C, b, p)


def common_sweep(X: Array, code: Integers, w: Array, beta: Array) -> tuple[Array, Array]:
    """Score and information of several replicates at the same coefficients.

    Probabilities are worked out once for all of them.

    Parameters
    ----------
    X, code, w
        As in :func:`full_sweep`.
    beta : (C, p) array

    Returns
    -------
    score : (C, b, p) array
    information : (b, C p, C p) array
    """
    (C, p), b = beta.shape, len(w)
    first, second, _ = _pairs(p)
    n_pairs = C * (C + 1) // 2
    score, sums = np.zeros((C * b, p)), np.zeros((b, n_pairs * len(first)))
    for rows in _blocks(len(X), max(b, len(first)) * n_pairs):
        xt = np.ascontiguousarray(X[rows].T)
        P, _ = _probabilities((beta @ xt)[:, None])
        score += _residual(code[:, rows], w[:, rows], P) @ xt.T
        products = _pair_weights(P, P)[:, None] * (xt[first] * xt[second])
        sums += w[:, rows] @ products.reshape(len(products) * len(first), -1).T
    by_pair = sums.reshape(b, n_pairs, len(first)).transpose(1, 0, 2)
    return score.reshape(C, b, p), _unfold(by_pair.reshape(n_pairs * b, -1), C, b, p)


def flat_sweep(X: Array, code: Integers, w: Array, beta: Array) -> tuple[Array, Array]:
    """Score and information where probabilities are the same in all rows of a replicate.

    Parameters
    ----------
    X, code, w, beta
        As in :func:`full_sweep`, with a linear predictor that is the same in all rows.

    Returns
    -------
    score : (C, b, p) array
    information : (b, C p, C p) array
    """
    C, b, p = beta.shape
    first, second, _ = _pairs(p)
    score, squares = np.zeros((C * b, p)), np.zeros((b, len(first)))
    P, _ = _probabilities(np.ascontiguousarray(beta @ X[0])[:, :, None])
    for rows in _blocks(len(X), b * C):
        xt = np.ascontiguousarray(X[rows].T)
        score += _residual(code[:, rows], w[:, rows], P) @ xt.T
        squares += w[:, rows] @ (xt[first] * xt[second]).T
    by_pair = (_pair_weights(P, P).reshape(-1, b, 1) * squares).reshape(-1, len(first))
    return score.reshape(C, b, p), _unfold(by_pair, C, b, p)


def _blocks(n: int, width: int) -> list[slice]:
    size = max(CACHED // max(width, 1), 1)
    return [slice(begin, begin + size) for begin in range(0, n, size)]


def _residual(code: Integers, w: Array, P: Array) -> Array:
    """Weighted indicator of the class less its probability, (C b, m)."""
    residual = code == np.arange(len(P), dtype=code.dtype)[:, None, None]
    weighted: Array = (residual - P) * w
    return weighted.reshape(-1, weighted.shape[-1])


def _probabilities(eta: Array) -> tuple[Array, Array]:
    """Of the other classes (C, b, m), in place of `eta`, and of the reference (b, m)."""
    if eta.max(initial=0.0) < _MODERATE:
        np.exp(eta, out=eta)
        rest = 1.0 + eta.sum(axis=0)
        np.reciprocal(rest, out=rest)
        eta *= rest
        return eta, rest
    top = eta.max(axis=0, initial=0.0)
    eta -= top
    np.exp(eta, out=eta)
    rest = np.exp(-top)
    total = eta.sum(axis=0)
    total += rest
    np.reciprocal(total, out=total)
    eta *= total
    rest *= total
    return eta, rest


def _pair_weights(P: Array, Q: Array) -> Array:
    """``Q_a (1 - P_a)`` and ``Q_a P_b`` of the pairs of classes a <= b, replicate by replicate."""
    C, b, m = P.shape
    weight = np.empty((C * (C + 1) // 2, b, m))
    k = 0
    for a in range(C):
        np.subtract(1.0, P[a], out=weight[k])
        weight[k] *= Q[a]
        np.multiply(Q[a], P[a + 1 :], out=weight[k + 1 : k + C - a])
        k += C - a
    return weight.reshape(len(weight) * b, m)


def _unfold(sums: Array, C: int, b: int, p: int) -> Array:
    """Information matrices from the sums for pairs of classes and pairs of columns."""
    sign = np.where(np.eye(C, dtype=bool), 1.0, -1.0)[:, None, :, None, None]
    full = sums.reshape(len(sums) // b, b, sums.shape[1])[
        _pairs(C)[2][:, None, :, None], :, _pairs(p)[2][None, :, None, :]
    ]
    return np.ascontiguousarray((full * sign).reshape(C * p, C * p, b).transpose(2, 0, 1))


@lru_cache(maxsize=64)
def _pairs(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """First and second of each pair a <= b, and the number of the pair at (a, b) and (b, a)."""
    first, second = np.triu_indices(size)
    number = np.empty((size, size), dtype=np.intp)
    number[first, second] = number[second, first] = np.arange(len(first))
    return first, second, number


def softmax(eta: Array) -> Array:
    """Probabilities from linear predictors.

    Parameters
    ----------
    eta : (..., K, n) array
        Minus infinity for a class that cannot happen.

    Returns
    -------
    (..., K, n) array
        NaN where no class can happen.
    """
    with np.errstate(invalid="ignore"):
        P: Array = np.exp(eta - eta.max(axis=-2, keepdims=True))
        P /= P.sum(axis=-2, keepdims=True)
    return P
