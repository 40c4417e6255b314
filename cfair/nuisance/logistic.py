"""Logistic regression: one fit by iteratively reweighted least squares.

It is exact maximum likelihood (the Newton decrement is driven to the rounding error), works
through the rows in blocks that stay in cache, leaves out linearly dependent columns as R's ``glm``
does, and says which columns separate the two outcomes instead of returning a large coefficient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cfair.errors import ConvergenceError

Array = NDArray[np.float64]

_BLOCK = 8_192
_WARM_FROM = 200_000
DECREMENT = 1e-13  # in units of the log likelihood: far below any statistical meaning
STOPPED = 1e-9  # the same, for a likelihood that has stopped under separation
MOVING = 0.1  # shift of a linear predictor by one step that is no convergence
_RANK_TOLERANCE = 1e-11  # R's glm.fit: min(1e-7, epsilon / 1000)

#: Standard deviations of a column between 0 and its mean, from which on it is centred for the fit.
FAR = 1e4


@dataclass(frozen=True)
class LogisticFit:
    """A fitted logistic regression.

    Attributes
    ----------
    coef : (p,) array
        Coefficients; NaN for a column that is a linear combination of those before it.
    kept : (p,) bool array
        The columns that were fitted.
    fitted : (n,) array
        Fitted probabilities, not truncated.
    deviance : float
        Minus twice the log likelihood.
    n_iter : int
        Newton steps taken.
    converged : bool
        Whether the Newton decrement reached the rounding error.
    separated : (p,) bool array
        Columns whose coefficients are still moving although the likelihood has stopped: they
        separate the outcome, in all rows or in some, and their maximum likelihood is infinite.
    score_norm : float
        Largest absolute element of the score at the last step.
    information : (q, q) array
        Observed information of the q kept columns.
    """

    coef: Array
    kept: NDArray[np.bool_]
    fitted: Array
    deviance: float
    n_iter: int
    converged: bool
    separated: NDArray[np.bool_]
    score_norm: float
    information: Array

    def predict(self, X: Array) -> Array:
        """Probabilities for the rows of a design matrix with the same columns.

        Parameters
        ----------
        X : (m, p) array

        Returns
        -------
        (m,) array
        """
        Z = X if self.kept.all() else X[:, self.kept]
        probabilities: Array = expit(Z @ self.coef[self.kept])
        return probabilities


@dataclass(frozen=True)
class FittedModel:
    """A fitted logistic regression, as influence functions see it.

    Attributes
    ----------
    design : (n, p) array
        Rows of the fit, of full column rank over the rows that were used.
    residual : (n,) array
        Outcome of the model less its probability; 0 for a row that the fit did not use.
    variance : (n,) array
        Probability times one less the probability; 0 likewise.
    at : (n, p) array
        Rows at which the estimator uses the model, `design` itself unless treatment was set to
        none there.
    information : (p, p) array or None
        Sum of ``variance x x'`` without sampling weights, if it is known from the fit.
    """

    design: Array
    residual: Array
    variance: Array
    at: Array
    information: Array | None = None


def fit_logistic(
    X: Array,
    outcome: NDArray[np.integer] | Array,
    *,
    weights: Array | None = None,
    start: Array | None = None,
) -> LogisticFit:
    """Maximum likelihood of a binary outcome given a design matrix.

    Parameters
    ----------
    X : (n, p) array
        Design matrix.
    outcome : (n,) array of 0 and 1
    weights : (n,) array, optional
        Non-negative weights of the rows; all 1 by default.
    start : (p,) array, optional
        Starting coefficients; by default zero, and in large data those of a part of the rows.

    Returns
    -------
    LogisticFit

    Raises
    ------
    ConvergenceError
        If the likelihood is not finite at the start.

    Examples
    --------
    >>> import numpy as np
    >>> exposed = np.repeat([0.0, 1.0], 10)
    >>> ill = np.array([1] * 2 + [0] * 8 + [1] * 5 + [0] * 5)
    >>> fit = fit_logistic(np.column_stack([np.ones(20), exposed]), ill)
    >>> fit.coef.round(4)  # the second is the log odds ratio, log(1 / 0.25)
    array([-1.3863,  1.3863])
    """
    d = np.asarray(outcome, dtype=np.float64)
    kept = independent_columns(X)
    Z = X if kept.all() else np.ascontiguousarray(X[:, kept])
    shift = _centring(Z)
    if shift is not None:
        constant, means = shift
        Z = Z - means
    if start is None:
        beta = _starting_values(Z, d, weights)
    else:
        beta = np.asarray(start, float)[kept]
        beta = beta if shift is None else beta + constant * (means @ beta)
    beta, state = newton(_InMemory(Z, d, weights), beta)
    fitted = expit(Z @ beta)
    if shift is not None:
        back = np.eye(len(beta)) + np.outer(constant, means)
        beta = beta - constant * (means @ beta)
        state = replace(state, information=back.T @ state.information @ back)
    return fitted_logistic(beta, kept, state, fitted)


def far_columns(X: Array) -> NDArray[np.bool_]:
    """Columns that vary, but whose mean is more than `FAR` standard deviations from 0.

    Parameters
    ----------
    X : (n, p) array

    Returns
    -------
    (p,) bool array
    """
    n = max(len(X), 1)
    mean, square = X.sum(axis=0) / n, np.einsum("ij,ij->j", X, X) / n
    # near enough to 0 the difference is a rounding error, so that these are looked at again
    found: NDArray[np.bool_] = square - mean**2 < (mean / FAR) ** 2 * 1.01
    for j in np.flatnonzero(found):
        sd = float(np.std(X[:, j] - X[0, j]))
        found[j] = sd > 0 and abs(mean[j]) > FAR * sd
    return found


def _centring(Z: Array) -> tuple[Array, Array] | None:
    """How columns far from 0 are centred: a sum of columns that is 1, and what is taken off each.

    Squares of such a column leave no digits for its variation. None where there is nothing to do,
    or no sum of the other columns is constant.
    """
    far = far_columns(Z)
    if not far.any():
        return None
    constant = np.zeros(Z.shape[1])
    constant[~far] = np.linalg.lstsq(Z[:, ~far], np.ones(len(Z)), rcond=None)[0]
    if np.max(np.abs(Z @ constant - 1)) > 1e-9:
        return None
    means = np.where(far, np.round(Z.mean(axis=0)), 0.0)
    return constant, means


def fitted_logistic(
    beta: Array, kept: NDArray[np.bool_], state: NewtonState, fitted: Array
) -> LogisticFit:
    """What `newton` found, with the columns that were left out in their places.

    Parameters
    ----------
    beta : (q,) array
    kept : (p,) array of bool
    state : NewtonState
    fitted : (n,) array
        Probabilities of the rows, if they are wanted.

    Returns
    -------
    LogisticFit
    """
    coef = np.full(len(kept), np.nan)
    coef[kept] = beta
    separated = np.zeros(len(kept), dtype=bool)
    separated[kept] = state.moving
    return LogisticFit(
        coef=coef,
        kept=kept,
        fitted=fitted,
        deviance=state.deviance,
        n_iter=state.n_iter,
        converged=state.converged,
        separated=separated,
        score_norm=state.score_norm,
        information=state.information,
    )


def _starting_values(Z: Array, d: Array, weights: Array | None) -> Array:
    """Zero; in large data the fit of a sixteenth of the rows, which spares three passes of five."""
    zero = np.zeros(Z.shape[1])
    if not starts_from_part(len(d)):
        return zero
    some = slice(None, None, 16)
    part = np.ascontiguousarray(Z[some])
    return start_from(part, d[some], None if weights is None else weights[some])


def starts_from_part(n: int) -> bool:
    """Whether there are so many rows that a fit of some of them is a start that pays."""
    return n >= _WARM_FROM


def start_from(Z: Array, d: Array, weights: Array | None = None) -> Array:
    """Coefficients from a part of the rows to start from; 0 where these have no proper fit.

    Parameters
    ----------
    Z : (m, q) array
    d : (m,) array of 0 and 1
    weights : (m,) array, optional

    Returns
    -------
    (q,) array
    """
    zero = np.zeros(Z.shape[1])
    beta, state = newton(_InMemory(Z, d, weights), zero, 15)
    return zero if state.moving.any() or not state.converged else beta


class FitRows(Protocol):
    """Rows that a logistic regression is fitted to, wherever they are."""

    def sweep(self, beta: Array) -> tuple[float, Array, Array]:
        """Deviance, score and information, as `sweep` has them."""

    def shift(self, step: Array) -> float:
        """How far a step moves the linear predictor of some row; a bound if that is small."""

    def largest(self) -> Array:
        """Largest absolute value of each column."""


@dataclass(frozen=True, eq=False)
class _InMemory:
    Z: Array
    d: Array
    weights: Array | None

    def sweep(self, beta: Array) -> tuple[float, Array, Array]:
        return sweep(self.Z, self.d, self.weights, beta)

    def shift(self, step: Array) -> float:
        return float(np.max(np.abs(self.Z @ step), initial=0.0))

    def largest(self) -> Array:
        found: Array = np.max(np.abs(self.Z), axis=0, initial=0.0)
        return found


@dataclass(frozen=True)
class NewtonState:
    """How Newton's method ended; see `LogisticFit`."""

    deviance: float
    n_iter: int
    converged: bool
    moving: NDArray[np.bool_]
    score_norm: float
    information: Array


def newton(rows: FitRows, beta: Array, max_iter: int = 60) -> tuple[Array, NewtonState]:
    """Newton's method from a start, until the decrement is a rounding error.

    Parameters
    ----------
    rows : FitRows
        With columns of full rank.
    beta : (q,) array
    max_iter : int, default 60

    Returns
    -------
    beta : (q,) array
    state : NewtonState

    Raises
    ------
    ConvergenceError
        If the likelihood is not finite at the start.
    """
    deviance, score, hessian = rows.sweep(beta)
    if not np.isfinite(deviance):
        raise ConvergenceError("the likelihood is not finite at the starting values")
    step = np.zeros_like(beta)
    converged, shift = False, None
    n_iter = 0
    while n_iter < max_iter:
        step = solve_information(hessian, score)
        # What a step would still gain, twice over, in the log likelihood.
        decrement = float(score @ step)
        converged = decrement < DECREMENT
        n_iter += 1
        shift = rows.shift(step) if decrement < STOPPED else None
        if shift is not None and shift > MOVING:
            converged = True  # separated: another step would follow rounding errors
            break
        if converged:
            beta = beta + step  # too small to need another pass over the rows
            break
        new = beta + step
        deviance_new, score_new, hessian_new = rows.sweep(new)
        halvings = 0
        # A full step from a poor start can overshoot; half of it never makes things worse for long.
        while deviance_new > deviance * (1 + 1e-9) + 1e-9 and halvings < 20:
            step = step / 2
            halvings += 1
            new = beta + step
            deviance_new, score_new, hessian_new = rows.sweep(new)
        if not deviance_new <= deviance * (1 + 1e-9) + 1e-9:
            break  # no part of the step is for the better: rounding has eaten the information
        beta, deviance, score, hessian = new, deviance_new, score_new, hessian_new
    # At a proper maximum the last step moves nothing. Under separation the likelihood has stopped
    # while every step still shifts the linear predictor by about one.
    moving = np.zeros(len(step), dtype=bool)
    if (rows.shift(step) if shift is None else shift) > MOVING:
        moving = np.abs(step) * rows.largest() > MOVING
    return beta, NewtonState(
        deviance=deviance,
        n_iter=n_iter,
        converged=converged,
        moving=moving,
        score_norm=float(np.max(np.abs(score), initial=0.0)),
        information=hessian,
    )


def sweep(
    Z: Array, d: Array, weights: Array | None, beta: Array, block: int = _BLOCK
) -> tuple[float, Array, Array]:
    """One pass over the rows: deviance, score and information at `beta`.

    Parameters
    ----------
    Z : (n, p) array
    d : (n,) array
    weights : (n,) array or None
    beta : (p,) array
    block : int
        Rows at a time; chosen so that a block stays in cache.

    Returns
    -------
    deviance : float
    score : (p,) array
    information : (p, p) array
    """
    n, p = Z.shape
    deviance = 0.0
    score = np.zeros(p)
    information = np.zeros((p, p))
    for first in range(0, n, block):
        rows = slice(first, min(first + block, n))
        z, outcome = Z[rows], d[rows]
        probability = expit(z @ beta)
        residual = outcome - probability
        variance = probability * (1 - probability)
        # |1 - d - p| is the probability of what happened
        loss = -np.log(np.maximum(np.abs(1 - outcome - probability), 1e-300))
        if weights is not None:
            residual = residual * weights[rows]
            variance = variance * weights[rows]
            loss = loss * weights[rows]
        deviance += 2 * float(loss.sum())
        score += residual @ z
        root = z * np.sqrt(variance)[:, None]
        information += root.T @ root  # symmetric, so that half the work is done
    return deviance, score, information


def solve_information(information: Array, score: Array) -> Array:
    """Solve ``information @ x = score``, tolerating directions without information.

    Parameters
    ----------
    information : (p, p) array
        Positive semidefinite.
    score : (p,) or (p, m) array

    Returns
    -------
    array of the shape of `score`
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    if not information.size:
        return np.zeros_like(score)
    scale = np.sqrt(np.maximum(np.diag(information), 1e-300))
    scaled = information / np.outer(scale, scale)
    right = (score.T / scale).T
    try:
        solution = cho_solve(cho_factor(scaled, check_finite=False), right, check_finite=False)
    except LinAlgError:
        solution = np.linalg.lstsq(scaled, right, rcond=1e-12)[0]
    result: Array = (solution.T / scale).T
    return result


def independent_columns(X: Array) -> NDArray[np.bool_]:
    """Which columns are not a linear combination of those before them.

    The rule is that of R's ``glm``: a column is left out when what remains of it, after the columns
    before it are projected away, is less than 1e-11 of its length.

    Parameters
    ----------
    X : (n, p) array

    Returns
    -------
    (p,) bool array
    """
    n, p = X.shape
    if p == 0 or (n >= p and clearly_independent(gram_matrix(X))):
        return np.ones(p, dtype=bool)
    return independent_in(triangular_factor(X), n)


def independent_in(R: Array, n: int) -> NDArray[np.bool_]:
    """The same from the triangular factor of n rows.

    Parameters
    ----------
    R : (r, p) array
    n : int

    Returns
    -------
    (p,) bool array
    """
    p = R.shape[1]
    kept: list[int] = []
    basis = np.zeros((R.shape[0], 0))
    for j in range(p):
        column = R[:, j]
        length = float(np.linalg.norm(column))
        rest = column - basis @ (basis.T @ column)
        rest = rest - basis @ (basis.T @ rest)
        remaining = float(np.linalg.norm(rest))
        if length > 0 and remaining > _RANK_TOLERANCE * length and len(kept) < n:
            kept.append(j)
            basis = np.column_stack([basis, rest / remaining])
    mask = np.zeros(p, dtype=bool)
    mask[kept] = True
    return mask


def gram_matrix(X: Array) -> Array:
    """Cross product of the columns, by blocks of rows.

    Parameters
    ----------
    X : (n, p) array

    Returns
    -------
    (p, p) array
    """
    gram = np.zeros((X.shape[1], X.shape[1]))
    for first in range(0, X.shape[0], _BLOCK):
        block = X[first : first + _BLOCK]
        gram += block.T @ block
    return gram


def clearly_independent(gram: Array) -> bool:
    """Cheap proof of full rank from the cross product; False only means that it is not proven.

    Parameters
    ----------
    gram : (p, p) array

    Returns
    -------
    bool
    """
    scale = np.sqrt(np.diag(gram))
    if not np.all(scale > 0):
        return False
    smallest = np.linalg.eigvalsh(gram / np.outer(scale, scale))[0]
    return bool(smallest > 1e-9)


def triangular_factor(X: Array, above: Array | None = None) -> Array:
    """R of a QR decomposition, by blocks of rows.

    Parameters
    ----------
    X : (n, p) array
    above : (r, p) array, optional
        That of the rows before these.

    Returns
    -------
    (r, p) array
    """
    R: Array = np.zeros((0, X.shape[1])) if above is None else above
    for first in range(0, X.shape[0], _BLOCK):
        R = np.asarray(np.linalg.qr(np.vstack([R, X[first : first + _BLOCK]]), mode="r"))
    return R
