"""Multinomial logistic regression: one fit by Newton's method.

Exact maximum likelihood of class membership, as :mod:`cfair.nuisance.logistic` for two classes:
the Newton decrement is driven to the rounding error, linearly dependent columns are left out and
infinite coefficients are named. Many fits at once are in :mod:`cfair.nuisance.multinomial_many`,
the influence of rows on a fit is in :mod:`cfair.nuisance.multinomial_influence`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfair.errors import ConvergenceError, DataError
from cfair.nuisance.logistic import (
    MOVING,
    STOPPED,
    independent_columns,
    solve_information,
    starts_from_part,
)
from cfair.nuisance.multinomial_sweep import full_sweep, softmax

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

_DECREMENT = 1e-13  # in units of the log likelihood of a row: far below any statistical meaning


@dataclass(frozen=True)
class MultinomialFit:
    """A fitted multinomial logistic regression.

    Attributes
    ----------
    coef : (p, K) array
        Coefficients against the reference, the first class that has weight, whose column is zero.
        NaN in the row of a column that was left out and in the column of a class without weight.
    kept : (p,) bool array
        The columns that were fitted; the others are linear combinations of those before them.
    present : (K,) bool array
        The K' classes that have weight; the others get probability 0.
    fitted : (n, K) array
        Fitted probabilities of all rows, also of those with weight 0.
    deviance : float
        Minus twice the log likelihood.
    n_iter : int
        Newton steps taken.
    converged : bool
        Whether the Newton decrement reached the rounding error.
    separated : (p, K) bool array
        Coefficients that still move, against those of most classes, although the likelihood has
        stopped: the column separates that class and the maximum likelihood is infinite.
    score_norm : float
        Largest absolute element of the score at the last step.
    information : (C q, C q) array
        Observed information of the q kept columns and the C = K' - 1 present classes after the
        reference; element ``c * q + j`` belongs to the c-th of these and the j-th kept column.
    """

    coef: Array
    kept: NDArray[np.bool_]
    present: NDArray[np.bool_]
    fitted: Array
    deviance: float
    n_iter: int
    converged: bool
    separated: NDArray[np.bool_]
    score_norm: float
    information: Array

    def predict(self, X: Array) -> Array:
        """Probabilities of the classes for the rows of a design matrix with the same columns.

        Parameters
        ----------
        X : (m, p) array

        Returns
        -------
        (m, K) array
        """
        eta = np.full((len(self.present), len(X)), -np.inf)
        eta[self.present] = self.coef[np.ix_(self.kept, self.present)].T @ X[:, self.kept].T
        return np.ascontiguousarray(softmax(eta).T)


def fit_multinomial(
    X: Array,
    group: Integers,
    n_groups: int,
    *,
    weights: Array | None = None,
    start: Array | None = None,
    max_iter: int = 60,
) -> MultinomialFit:
    """Maximum likelihood of class membership given a design matrix.

    Parameters
    ----------
    X : (n, p) array
        Design matrix.
    group : (n,) array of int
        Class codes 0..K-1.
    n_groups : int
        K.
    weights : (n,) array, optional
        Non-negative weights of the rows; all 1 by default. A row of weight 0 is not used.
    start : (p, K) array, optional
        Starting coefficients against any reference, NaN for 0; by default equal shares in all rows.
    max_iter : int, default 60
        Newton steps at most.

    Returns
    -------
    MultinomialFit

    Raises
    ------
    DataError
        If no row has weight, or a weight is negative or missing.
    ConvergenceError
        If the design matrix, or the likelihood at the start, is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> exposed = np.repeat([0.0, 1.0], 10)
    >>> group = np.repeat([0, 1, 2, 0, 1, 2], [5, 3, 2, 2, 4, 4])
    >>> fit = fit_multinomial(np.column_stack([np.ones(20), exposed]), group, 3)
    >>> fit.coef.round(4)  # log(3 / 5) and log(2 / 5), and what exposure adds
    array([[ 0.    , -0.5108, -0.9163],
           [ 0.    ,  1.204 ,  1.6094]])
    >>> fit.predict(np.array([[1.0, 1.0]])).round(4).tolist()
    [[0.2, 0.4, 0.4]]
    """
    X, w = np.asarray(X, dtype=np.float64), _checked(weights, len(X))
    used = w > 0
    Z, group, w = (X, group, w) if used.all() else (X[used], np.asarray(group)[used], w[used])
    if not np.all(np.isfinite(Z)):
        rows = int(np.count_nonzero(~np.isfinite(Z).all(axis=1)))
        raise ConvergenceError(f"the design matrix of the membership model: {rows} rows not finite")
    unit = float(w.mean())  # so that tolerances do not depend on the unit of the weights
    w = w / unit
    kept = independent_columns(Z)
    Z = Z if kept.all() else np.ascontiguousarray(Z[:, kept])
    present = np.bincount(group, minlength=n_groups) > 0
    classes = np.flatnonzero(present)
    code = class_codes(n_groups, classes)[group]
    last = None
    if start is not None:
        beta = against_first(np.asarray(start, float)[kept], classes)
        last = _newton(Z, code, w, beta, max_iter)
    if last is None or not last.converged:  # a start far off can leave no information to go by
        last = _newton(Z, code, w, _starting_values(Z, code, w, len(classes) - 1), max_iter)

    coef = np.full((X.shape[1], n_groups), np.nan)
    coef[np.ix_(kept, classes)] = np.column_stack([np.zeros(Z.shape[1]), last.beta.T])
    separated = np.zeros(coef.shape, dtype=bool)
    separated[np.ix_(kept, classes)] = _moving(Z, last.step)
    eta = np.full((n_groups, len(X)), -np.inf)
    eta[classes] = np.vstack([np.zeros(len(X)), last.beta @ X[:, kept].T])
    return MultinomialFit(
        coef=coef,
        kept=kept,
        present=present,
        fitted=np.ascontiguousarray(softmax(eta).T),
        deviance=unit * last.deviance,
        n_iter=last.n_iter,
        converged=last.converged,
        separated=separated,
        score_norm=unit * float(np.max(np.abs(last.score), initial=0.0)),
        information=unit * last.information,
    )


def _checked(weights: Array | None, n: int) -> Array:
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    bad = int(np.count_nonzero(~(np.isfinite(w) & (w >= 0))))
    if bad or not np.any(w > 0):
        what = f"{bad} of {n} are negative or not finite" if bad else f"all {n} are zero"
        raise DataError(f"the weights of the membership model: {what}; give non-negative weights")
    return w


def class_codes(n_groups: int, classes: Integers) -> NDArray[np.int16]:
    """Number of each class within a fit.

    Parameters
    ----------
    n_groups : int
    classes : (C + 1,) array of int
        The classes of the fit, the reference first.

    Returns
    -------
    (n_groups,) array of int
        -1 for the reference, then 0, 1, ...
    """
    code = np.full(n_groups, -1, dtype=np.int16)
    code[classes] = np.arange(-1, len(classes) - 1)
    return code


def against_first(coef: Array, classes: Integers) -> Array:
    """Coefficients against another reference.

    Parameters
    ----------
    coef : (p, K) array
    classes : (C + 1,) array of int
        The classes of a fit, the reference first.

    Returns
    -------
    (C, p) array
        0 for those that are not known.
    """
    return np.nan_to_num(coef[:, classes[1:]] - coef[:, classes[:1]]).T


def constant_combination(X: Array) -> Array:
    """The combination of the columns that is 1 in all rows.

    Parameters
    ----------
    X : (n, p) array

    Returns
    -------
    (p,) array
        Zero if there is none.
    """
    constant = solve_information(X.T @ X, X.sum(axis=0))
    exact = np.max(np.abs(X @ constant - 1), initial=0.0) < 1e-6
    return constant if exact else np.zeros_like(constant)


def _starting_values(Z: Array, code: Integers, w: Array, n_free: int) -> Array:
    """Equal shares in all rows; in large data the fit of a sixteenth of the rows."""
    share = np.log(np.bincount(code + 1, weights=w, minlength=n_free + 1))
    beta = np.outer(share[1:] - share[0], constant_combination(Z))
    some = slice(None, None, 16)
    if not starts_from_part(len(code)) or len(np.unique(code[some])) <= n_free:
        return beta
    warm = _newton(np.ascontiguousarray(Z[some]), code[some], w[some], beta, 15)
    return beta if _moving(Z, warm.step).any() or not warm.converged else warm.beta


class _State(NamedTuple):
    beta: Array
    step: Array
    n_iter: int
    converged: bool
    deviance: float
    score: Array
    information: Array


def settled(score: Array, X: Array, w: Array) -> NDArray[np.bool_]:
    """Whether a score is next to nothing: without a step left to take, it may still be large.

    Parameters
    ----------
    score : (C, b, p) array
    X : (n, p) array
    w : (b, n) array

    Returns
    -------
    (b,) bool array
    """
    size = np.sqrt(np.mean(X**2, axis=0))
    small = np.abs(score) <= 1e-4 * np.sqrt(w.sum(axis=1))[:, None] * size
    result: NDArray[np.bool_] = np.all(small, axis=(0, 2))
    return result


def _newton(Z: Array, code: Integers, w: Array, beta: Array, max_iter: int) -> _State:
    def at(b: Array) -> tuple[float, Array, Array]:
        with np.errstate(over="ignore", invalid="ignore"):  # seen by the deviance
            deviance, score, information = full_sweep(Z, code[None], w[None], b[:, None])
        return float(deviance[0]), score[:, 0], information[0]

    deviance, score, information = at(beta)
    if not np.isfinite(deviance):
        raise ConvergenceError("the likelihood of group membership is not finite at the start")
    step = np.zeros_like(beta)
    converged = False
    n_iter = 0
    while n_iter < max_iter and not converged:
        step = solve_information(information, score.ravel()).reshape(beta.shape)
        # What a step would still gain, twice over, in the log likelihood.
        decrement = float(np.sum(score * step))
        converged = decrement < _DECREMENT
        n_iter += 1
        if decrement < STOPPED and float(np.max(np.abs(Z @ step.T), initial=0.0)) > MOVING:
            converged = True  # separated: another step would follow rounding errors
            break
        new = beta + step
        if not converged:  # else too small to need another pass over the rows
            found = at(new)
            halvings = 0
            # A full step can overshoot; half of it never makes things worse for long.
            while not found[0] <= deviance * (1 + 1e-9) + 1e-9 and halvings < 20:
                step = step / 2
                halvings += 1
                new = beta + step
                found = at(new)
            deviance, score, information = found
        beta = new
    converged = converged and bool(settled(score[:, None], Z, w[None])[0])
    return _State(beta, step, n_iter, converged, deviance, score, information)


def _moving(Z: Array, step: Array) -> NDArray[np.bool_]:
    """Coefficients (p, C + 1), with those of the reference, that the last step still shifts.

    At a proper maximum it moves nothing; under separation it shifts a linear predictor by about
    one. If the reference is the class that is separated, all others move together: what counts is
    the shift against the class in the middle.
    """
    shift = np.column_stack([np.zeros(step.shape[1]), step.T])
    shift -= np.median(shift, axis=1, keepdims=True)
    if np.max(np.abs(Z @ shift), initial=0.0) <= MOVING:
        return np.zeros(shift.shape, dtype=bool)
    reach = np.max(np.abs(Z), axis=0, initial=0.0)[:, None]
    moving: NDArray[np.bool_] = np.abs(shift) * reach > MOVING
    return moving
