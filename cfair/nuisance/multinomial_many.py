"""Many multinomial logistic regressions of one design at once: replicate labels or weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.nuisance.logistic import MOVING
from cfair.nuisance.logistic_many import solve_many
from cfair.nuisance.multinomial import (
    against_first,
    class_codes,
    constant_combination,
    fit_multinomial,
    settled,
)
from cfair.nuisance.multinomial_sweep import (
    CACHED,
    common_sweep,
    flat_sweep,
    full_sweep,
    score_sweep,
    softmax,
)

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

_DECREMENT = 1e-11  # before the last step, which leaves a small part of it
_NEAR = 1e-3  # decrement after which a step changes the information by less than a hundredth
_ROWS = 256  # of a block: with fewer, calls cost more than arithmetic
_SPARSE = 0.25  # share of rows with weight below which a replicate is fitted on its own rows,
_LARGE = 20_000  # if there are so many rows


@dataclass(frozen=True)
class ManyMultinomialFits:
    """Refits of one design under many sets of labels or weights.

    Attributes
    ----------
    coef : (B, p, K) array
        Coefficients against the first class that has weight in the replicate; NaN for a class
        without weight, and all NaN if no row has any.
    converged : (B,) bool array
        Whether the Newton decrement of the replicate fell so low that another step would change no
        probability by 1e-8.
    """

    coef: Array
    converged: NDArray[np.bool_]


def fit_multinomial_many(
    X: Array,
    groups: Integers,
    n_groups: int,
    weights: Array | None = None,
    start: Array | None = None,
    *,
    max_iter: int = 30,
) -> ManyMultinomialFits:
    """Refit one design under many sets of labels, of row weights, or both.

    Newton steps of a batch of replicates at a time, each with its own information, which the last
    step takes over from the one before. A replicate in which they do not settle, or some class has
    no weight, is fitted by :func:`fit_multinomial`.

    Parameters
    ----------
    X : (n, p) array of full column rank
    groups : (n,) or (B, n) array of int
        Class codes 0..K-1, the same for all replicates or of each.
    n_groups : int
        K.
    weights : (n,) or (B, n) array, optional
        Non-negative row weights of any numeric type, for instance bootstrap counts times 0 and 1
        for training folds. Repeated rows may be views (``np.broadcast_to``): they are not copied.
    start : (p, K) array, optional
        Coefficients to start from, for bootstrap weights those of the full sample. By default
        equal shares in all rows, which suits permuted labels.
    max_iter : int, default 30
        Newton steps at most.

    Returns
    -------
    ManyMultinomialFits

    Examples
    --------
    >>> import numpy as np
    >>> X, group = np.ones((6, 1)), np.array([0, 0, 0, 1, 1, 2])
    >>> weights = np.array([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 0, 2]])
    >>> fits = fit_multinomial_many(X, group, 3, weights)
    >>> predict_many(fits.coef, X[:1])[:, 0].round(3).tolist()
    [[0.5, 0.333, 0.167], [0.25, 0.25, 0.5]]
    """
    X, groups = np.ascontiguousarray(X, dtype=np.float64), np.asarray(groups)
    w = np.ones(len(X)) if weights is None else np.asarray(weights)
    B = max(len(np.atleast_2d(groups)), len(np.atleast_2d(w)))
    groups, w = np.broadcast_to(groups, (B, len(X))), np.broadcast_to(w, (B, len(X)))
    coef, converged = np.full((B, X.shape[1], n_groups), np.nan), np.zeros(B, dtype=bool)
    first = constant_combination(X) if start is None else np.asarray(start, dtype=np.float64)
    size = _batch_size(w, n_groups)
    for begin in range(0, B, size):
        some = slice(begin, begin + size)
        coef[some], converged[some] = _fit_batch(
            X, groups[some], n_groups, w[some], first, max_iter
        )
    return ManyMultinomialFits(coef, converged)


def _batch_size(weights: NDArray[np.generic], n_groups: int) -> int:
    """Replicates at a time; one if many rows have no weight and can be left out."""
    B, n = weights.shape
    some = weights[:: max(B // 20, 1)]
    if n >= _LARGE and np.count_nonzero(some) < _SPARSE * some.size:
        return 1
    pairs = max(n_groups * (n_groups - 1) // 2, 1)
    return min(max(CACHED // (pairs * min(n, _ROWS)), 1), 64)


def _fit_batch(
    X: Array,
    groups: Integers,
    n_groups: int,
    weights: NDArray[np.generic],
    start: Array,
    max_iter: int,
) -> tuple[Array, NDArray[np.bool_]]:
    """Coefficients (b, p, K) and convergence; `start` is (p, K), or (p,) for equal shares."""
    b, p = len(groups), X.shape[1]
    w = np.array(weights, dtype=np.float64)
    if not np.all(w >= 0):
        raise DataError("some weights of replicates are negative or missing; check `weights`")
    used = w.any(axis=0)
    if not used.all():
        X, groups, w = X[used], groups[:, used], w[:, used]
    coef, converged = np.full((b, p, n_groups), np.nan), np.zeros(b, dtype=bool)
    mass = np.stack([np.bincount(g, v, n_groups) for g, v in zip(groups, w, strict=True)])
    # The reference of the computation is the class that is large in all replicates.
    classes = np.flatnonzero(mass.any(axis=0))
    classes = classes[np.argsort(-mass[:, classes].min(axis=0), kind="stable")]
    regular = np.all(mass[:, classes] > 0, axis=1) if len(classes) > 1 else converged.copy()
    regular[regular] = _full_rank(X, w[regular])
    if regular.any():
        if start.ndim == 1:
            share = np.log(mass[regular][:, classes].T)
            beta = (share[1:] - share[0])[:, :, None] * start
            opening = flat_sweep
        else:
            beta = np.repeat(against_first(start, classes)[:, None], regular.sum(), axis=1)
            opening = _same_start
        code = class_codes(n_groups, classes)[groups[regular]]
        with np.errstate(over="ignore", invalid="ignore"):  # such replicates are left to one fit
            beta, fine = _newton(X, code, w[regular], beta, max_iter, opening)
        converged[regular] = fine
        beta[:, ~fine] = 0.0  # whatever it is
        full = np.concatenate([np.zeros_like(beta[:1]), beta]).transpose(1, 2, 0)
        coef[np.ix_(regular, np.arange(p), classes)] = full - full[:, :, [np.argmin(classes)]]
    for i in np.flatnonzero(~converged & mass.any(axis=1)):
        one = fit_multinomial(X, groups[i], n_groups, weights=w[i])
        coef[i] = np.where(one.present, np.nan_to_num(one.coef), np.nan)
        converged[i] = one.converged
    return coef, converged


def _full_rank(X: Array, w: Array) -> NDArray[np.bool_]:
    """Whether the columns are independent in the rows with weight, (b,); False if it is close."""
    first, second = np.triu_indices(X.shape[1])
    gram = np.zeros((len(w), X.shape[1], X.shape[1]))
    columns = np.ascontiguousarray(X.T)
    gram[:, first, second] = (w > 0).astype(np.float64) @ (columns[first] * columns[second]).T
    gram[:, second, first] = gram[:, first, second]
    scale = np.sqrt(np.maximum(np.einsum("bpp->bp", gram), 1e-300))
    values = np.linalg.eigvalsh(gram / (scale[:, :, None] * scale[:, None, :]))
    full: NDArray[np.bool_] = values[:, 0] > 1e-9
    return full


def _same_start(X: Array, code: Integers, w: Array, beta: Array) -> tuple[Array, Array]:
    return common_sweep(X, code, w, beta[:, 0])


def _newton(
    X: Array,
    code: Integers,
    w: Array,
    beta: Array,
    max_iter: int,
    opening: Callable[[Array, Integers, Array, Array], tuple[Array, Array]],
) -> tuple[Array, NDArray[np.bool_]]:
    """Coefficients (C, b, p) and which replicates have settled; the others need more care.

    `opening` gives score and information at the start, where probabilities have much in common.
    """
    w = w * (np.count_nonzero(w, axis=1) / w.sum(axis=1))[:, None]  # so that tolerances hold
    C, b, p = beta.shape
    reach = np.max(np.abs(X), axis=0, initial=0.0)
    converged = np.zeros(b, dtype=bool)
    active = np.arange(b)
    score, information = opening(X, code, w, beta)
    decrement, fresh = np.full(b, np.inf), np.ones(b, dtype=bool)
    for step_number in range(max_iter):
        if step_number:
            for some in (active[fresh[active]], active[~fresh[active]]):
                if not len(some):
                    continue
                at = X, code[some], w[some], beta[:, some]
                if fresh[some[0]]:
                    _, score[:, some], information[some] = full_sweep(*at, deviance=False)
                else:
                    score[:, some] = score_sweep(*at)
        finite = np.isfinite(information[active]).all(axis=(1, 2))
        active = active[finite & np.isfinite(score[:, active]).all(axis=(0, 2))]
        right = score[:, active].transpose(1, 0, 2).reshape(len(active), C * p)
        step = solve_many(information[active], right)
        beta[:, active] += step.reshape(-1, C, p).transpose(1, 0, 2)
        left = np.einsum("bp,bp->b", right, step)
        done = left < _DECREMENT
        # at most by so much does the step still move a linear predictor: it does under separation,
        # which a fit of its own recognises
        still = (np.abs(step).reshape(-1, C, p) @ reach).max(axis=1) <= MOVING
        converged[active[done & still & settled(score[:, active], X, w[active])]] = True
        # a replicate that comes closer fast enough keeps its information
        fresh[active] = (left > _NEAR) | (left > 0.01 * decrement[active])
        decrement[active] = left
        active = active[~done]
        if not len(active):
            break
    return beta, converged


def predict_many(coef: Array, X: Array) -> Array:
    """Probabilities of the classes under many sets of coefficients.

    Parameters
    ----------
    coef : (B, p, K) array
        As in :class:`ManyMultinomialFits`; a class whose coefficients are all NaN gets 0.
    X : (n, p) array

    Returns
    -------
    (B, n, K) array
        A transposed view: the rows of a class lie together. NaN where no class has coefficients.
    """
    B, p, K = coef.shape
    flat = coef.transpose(0, 2, 1).reshape(B * K, p)
    eta = np.nan_to_num(flat) @ X.T
    eta[np.isnan(flat).all(axis=1)] = -np.inf
    return softmax(eta.reshape(B, K, len(X))).transpose(0, 2, 1)
