"""What single rows do to a multinomial logistic regression, and to figures that depend on it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfair.nuisance.logistic import solve_information
from cfair.nuisance.multinomial import MultinomialFit

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: Numbers in the largest array of a block of rows.
BLOCK = 500_000


def multinomial_score(
    fit: MultinomialFit, X: Array, group: Integers, weights: Array | None = None
) -> Array:
    """What each row adds to the score of the intercepts: observed class minus fitted probability.

    The score of the coefficient of class c and column j is the sum over the rows of
    ``residual[:, c] * X[:, j]``.

    Parameters
    ----------
    fit : MultinomialFit
    X : (n, p) array
        Any rows, with the columns of the fit.
    group : (n,) array of int
        Class codes 0..K-1.
    weights : (n,) array, optional
        With which the fit was made, 0 for rows that it did not use.

    Returns
    -------
    (n, C) array
        For the present classes after the reference, in the order of ``fit.information``.
    """
    classes = np.flatnonzero(fit.present)[1:]
    residual: Array = (np.asarray(group)[:, None] == classes) - fit.predict(X)[:, classes]
    return residual if weights is None else residual * np.asarray(weights)[:, None]


def multinomial_influence(
    fit: MultinomialFit,
    X: Array,
    group: Integers,
    derivative: Array,
    weights: Array | None = None,
) -> Array:
    """What each row of the fit adds, through the coefficients, to figures that depend on them.

    To first order a figure moves by ``derivative . (information^-1 score)``; the sum over the rows
    is zero at the maximum.

    Parameters
    ----------
    fit : MultinomialFit
    X : (n, p) array
    group : (n,) array of int
    derivative : (m, p, K) array
        Derivative of each of m figures with respect to ``fit.coef``; elements of columns that were
        left out, of the reference and of classes without weight are not used.
    weights : (n,) array, optional
        With which the fit was made, 0 for rows that it did not use.

    Returns
    -------
    (n, m) array
    """
    direction = multinomial_direction(fit, derivative)
    m = direction.shape[1]
    influence = np.empty((len(X), m))
    size = max(BLOCK // max(len(direction), m, 1), 1)
    for begin in range(0, len(X), size):
        rows = slice(begin, begin + size)
        influence[rows] = (
            multinomial_products(
                fit, X[rows], group[rows], None if weights is None else weights[rows]
            )
            @ direction
        )
    return influence


def multinomial_direction(fit: MultinomialFit, derivative: Array) -> Array:
    """How figures move with the score of a fit: ``information^-1 derivative``.

    Parameters
    ----------
    fit : MultinomialFit
    derivative : (m, p, K) array
        As in :func:`multinomial_influence`.

    Returns
    -------
    (C q, m) array
        For the coefficients in the order of ``fit.information``.
    """
    classes = np.flatnonzero(fit.present)[1:]
    used = np.asarray(derivative)[:, fit.kept][:, :, classes]
    return solve_information(fit.information, used.transpose(2, 1, 0).reshape(-1, len(used)))


def multinomial_products(
    fit: MultinomialFit, X: Array, group: Integers, weights: Array | None = None
) -> Array:
    """What each row adds to the score of every coefficient.

    Parameters
    ----------
    fit : MultinomialFit
    X : (n, p) array
        A block of rows: the result has C times as many columns.
    group : (n,) array of int
    weights : (n,) array, optional

    Returns
    -------
    (n, C q) array
        In the order of ``fit.information``.
    """
    residual = multinomial_score(fit, X, group, weights)
    products: Array = residual[:, :, None] * X[:, None, fit.kept]
    return products.reshape(len(X), -1)
