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

CACHED = 32_000  # numbers of a block of rows,
_PAIRED = 4  # times as many in a pass with a matrix product that would be too narrow
_MODERATE = 20.0  # linear predictor up to which no probability is 1 to within rounding


def full_sweep(X: Array, code: Integers, w: Array, beta: Array) -> tuple[Array, Array, Array]:
    """One pass over the rows for several replicates: deviance, score and information.

    Parameters
    ----------
    X : (n, p) array
    code : (b, n) array of int
        Class of each row: -1 for the reference, 0..C-1 for the others.
    w : (b, n) array
        Weights.
    beta : (C, b, p) array

    Returns
    -------
    deviance : (b,) array
    score : (C, b, p) array
    information : (b, C p, C p) array
    """
    C, b, p = beta.shape
    n_pairs = C * (C + 1) // 2
    lost, score = np.zeros(b), np.zeros((C * b, p))
    sums = np.zeros((n_pairs * b, p * (p + 1) // 2))
    classes = np.arange(C, dtype=code.dtype)[:, None, None]
    for rows in _blocks(len(X), max(b * n_pairs, sums.shape[1]), _PAIRED):
        xt = np.ascontiguousarray(X[rows].T)
        P, rest = _probabilities((beta.reshape(C * b, p) @ xt).reshape(C, b, xt.shape[1]))
        own = code[:, rows] == classes
        happened = np.where(own, P, 0.0).sum(axis=0)
        happened += np.where(code[:, rows] < 0, rest, 0.0)
        lost -= 2 * np.sum(w[:, rows] * np.log(np.maximum(happened, 1e-300)), axis=1)
        score += ((own - P) * w[:, rows]).reshape(C * b, xt.shape[1]) @ xt.T
        sums += _pair_weights(P, P * w[:, rows]) @ _pair_products(xt).T
    return lost, score.reshape(C, b, p), _unfold(sums, C, b, p)


def observed_sums(xt: Array, code: Integers, w: Array, n_classes: int) -> Array:
    """Weighted sums of the rows of each class but the reference.

    Parameters
    ----------
    xt : (p, n) array
    code : (b, n) array of int
        As in :func:`full_sweep`.
    w : (b, n) array
    n_classes : int
        C.

    Returns
    -------
    (C, b, p) array
    """
    b, n = w.shape
    classes = np.arange(n_classes, dtype=code.dtype)[:, None, None]
    sums = np.zeros((n_classes * b, len(xt)))
    for rows in _blocks(n, max(b * n_classes, len(xt))):
        own = np.multiply(code[:, rows] == classes, w[:, rows])
        sums += own.reshape(n_classes * b, -1) @ xt[:, rows].T
    return sums.reshape(n_classes, b, len(xt))


def expected_sums(xt: Array, w: Array, beta: Array) -> Array:
    """What the rows would add up to if each were of each class with its probability.

    The sums that were observed, less these, are the score.

    Parameters
    ----------
    xt : (p, n) array
    w : (b, n) array
        Weights of each replicate.
    beta : (C, b, g, p) array
        Of g fits of each replicate.

    Returns
    -------
    (C, b, g, p) array
    """
    C, b, g, p = beta.shape
    flat = np.ascontiguousarray(beta).reshape(-1, p)
    sums = np.zeros((C * b * g, p))
    for rows in _blocks(w.shape[1], max(b * g * C, p)):
        x = xt[:, rows]
        E, total = _exponentials((flat @ x).reshape(C, b, g, x.shape[1]))
        np.divide(w[:, None, rows], total, out=total)
        E *= total
        sums += E.reshape(len(flat), -1) @ x.T
    return sums.reshape(C, b, g, p)


def expected_and_information(xt: Array, w: Array, beta: Array) -> tuple[Array, Array]:
    """The same, and the information of every fit.

    Parameters
    ----------
    xt, w, beta
        As in :func:`expected_sums`.

    Returns
    -------
    expected : (C, b, g, p) array
    information : (b, g, C p, C p) array
    """
    C, b, g, p = beta.shape
    n_pairs = C * (C + 1) // 2
    flat = np.ascontiguousarray(beta).reshape(-1, p)
    expected = np.zeros((C * b * g, p))
    sums = np.zeros((n_pairs * b * g, p * (p + 1) // 2))
    for rows in _blocks(w.shape[1], max(b * g * n_pairs, sums.shape[1]), _PAIRED):
        x = xt[:, rows]
        P, _ = _probabilities((flat @ x).reshape(C, b, g, x.shape[1]))
        Q = P * w[:, None, rows]
        expected += Q.reshape(len(flat), -1) @ x.T
        flat_P, flat_Q = (values.reshape(C, b * g, -1) for values in (P, Q))
        sums += _pair_weights(flat_P, flat_Q) @ _pair_products(x).T
    information = _unfold(sums, C, b * g, p)
    return expected.reshape(C, b, g, p), information.reshape(b, g, C * p, C * p)


def _blocks(n: int, width: int, times: int = 1) -> list[slice]:
    size = max(times * CACHED // max(width, 1), 1)
    return [slice(begin, begin + size) for begin in range(0, n, size)]


def _exponentials(eta: Array) -> tuple[Array, Array]:
    """Of linear predictors (C, ...), in their place, and their sum with the reference (...)."""
    if eta.max(initial=0.0) < _MODERATE:
        np.exp(eta, out=eta)
        total = eta.sum(axis=0)
        total += 1.0
        return eta, total
    top = eta.max(axis=0, initial=0.0)
    eta -= top
    np.exp(eta, out=eta)
    return eta, eta.sum(axis=0) + np.exp(-top)


def _probabilities(eta: Array) -> tuple[Array, Array]:
    """Of the other classes (C, ...), in place of `eta`, and of the reference (...)."""
    top = eta.max(axis=0, initial=0.0) if eta.max(initial=0.0) >= _MODERATE else None
    E, total = _exponentials(eta)
    np.reciprocal(total, out=total)
    E *= total
    return E, total if top is None else total * np.exp(-top)


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


def _pair_products(xt: Array) -> Array:
    """Products of the pairs of columns j <= k, (p (p + 1) / 2, m)."""
    p = len(xt)
    products = np.empty((p * (p + 1) // 2, xt.shape[1]))
    k = 0
    for j in range(p):
        np.multiply(xt[j], xt[j:], out=products[k : k + p - j])
        k += p - j
    return products


def _unfold(sums: Array, C: int, b: int, p: int) -> Array:
    """Information matrices from the sums for pairs of classes and pairs of columns."""
    sign = np.where(np.eye(C, dtype=bool), 1.0, -1.0)[:, None, :, None, None]
    full = sums.reshape(len(sums) // b, b, sums.shape[1])[
        _pair_number(C)[:, None, :, None], :, _pair_number(p)[None, :, None, :]
    ]
    return np.ascontiguousarray((full * sign).reshape(C * p, C * p, b).transpose(2, 0, 1))


@lru_cache(maxsize=64)
def _pair_number(size: int) -> NDArray[np.intp]:
    """The number of the pair at (a, b) and (b, a)."""
    first, second = np.triu_indices(size)
    number = np.empty((size, size), dtype=np.intp)
    number[first, second] = number[second, first] = np.arange(len(first))
    return number


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
