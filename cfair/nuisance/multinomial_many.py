"""Many multinomial logistic regressions of one design at once: replicate labels or weights.

Every replicate is fitted to the rows that it has, and outside every fold if there are folds. All
fits of a replicate start from one place, near the maximum of all its rows, whose information they
share but for the rows that they leave out. From there they take Newton steps with information that
is worked out anew only where steps come closer too slowly: a pass without it is three times faster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.nuisance.logistic import MOVING
from cfair.nuisance.multinomial import (
    against_first,
    class_codes,
    constant_combination,
    fit_multinomial,
)
from cfair.nuisance.multinomial_sweep import (
    expected_and_information,
    expected_sums,
    observed_sums,
    softmax,
)

Array = NDArray[np.float64]
Integers = NDArray[np.integer]
Bools = NDArray[np.bool_]

#: Newton decrement that the last step of a replicate is to leave: it moves no coefficient by 1e-9
#: standard errors.
LEFT = 1e-18
#: The same where probabilities are to be right to 11 decimals.
ROUNDED = 1e-24

_DECREMENT = 1e-13  # at a place whose information was worked out: what is left is its square
_NEAR = 1.0  # decrement from which on the folds go on from the fit of all rows
_FEW = 5  # steps that take as long as new information and the steps after it
_FIRST = 16.0  # how many times more of its decrement the second step with some information leaves
_ENDLESS = 1e-4  # decrement from which on Newton's method is fast to any proper maximum
_HARD = 0.1  # share of its decrement that a step leaves, from which any step needs new information
_SINGULAR = 1e9  # variance inflation of a coefficient that may be that of a dependent column
_WIDE = 8  # numbers of a row that a pass works out, from which on rows without weight cost more
_TOGETHER = 8_192  # rows of the replicates that are fitted together then
_MOST = 5_000_000  # the same where leaving out rows does not pay
_SPARSE = 0.25  # share of rows with weight below which it pays,
_LARGE = 20_000  # if there are so many rows
_FULL = 0.9  # share of rows that some replicate uses, below which the others are left out


@dataclass(frozen=True)
class ManyMultinomialFits:
    """Refits of one design under many sets of labels or weights.

    Attributes
    ----------
    coef : (B, p, K) array, or (B, F, p, K) with F folds
        Coefficients against the first class that has weight in the fit; NaN for a class without
        weight, and all NaN if no row has any.
    converged : (B,) bool array, or (B, F)
        Whether the Newton decrement of the fit fell so low that another step would change no
        probability by 1e-8.
    """

    coef: Array
    converged: Bools


def fit_multinomial_many(
    X: Array,
    groups: Integers,
    n_groups: int,
    weights: Array | None = None,
    start: Array | None = None,
    *,
    folds: Integers | None = None,
    max_iter: int = 30,
) -> ManyMultinomialFits:
    """Refit one design under many sets of labels, of row weights, or both.

    A fit whose Newton steps do not settle, or in which some class has no weight that others have,
    is made by :func:`fit_multinomial`.

    Parameters
    ----------
    X : (n, p) array of full column rank
    groups : (n,) or (B, n) array of int
        Class codes 0..K-1, the same for all replicates or of each.
    n_groups : int
        K.
    weights : (n,) or (B, n) array, optional
        Non-negative row weights of any numeric type, for instance bootstrap counts. Repeated rows
        may be views (``np.broadcast_to``): they are not copied.
    start : (p, K) array, optional
        Coefficients to start from, for bootstrap weights those of the full sample. By default
        equal shares in all rows, which suits permuted labels.
    folds : (n,) array of int, optional
        Fold 0..F-1 of each row. Each replicate is fitted outside each of them.
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
    fits = settled_fits(X, groups, n_groups, weights, start, folds=folds, max_iter=max_iter)
    B = len(fits.converged)
    groups = np.broadcast_to(groups, (B, len(X)))
    w = np.broadcast_to(1.0 if weights is None else weights, (B, len(X)))
    for at in np.argwhere(~fits.converged):
        some = w[at[0]] > 0
        if folds is not None:
            some &= folds != at[1]
        if not some.any():
            continue
        one = fit_multinomial(X[some], groups[at[0], some], n_groups, weights=w[at[0], some])
        fits.coef[tuple(at)] = np.where(one.present, np.nan_to_num(one.coef), np.nan)
        fits.converged[tuple(at)] = one.converged
    return fits


def settled_fits(
    X: Array,
    groups: Integers,
    n_groups: int,
    weights: Array | None = None,
    start: Array | None = None,
    *,
    folds: Integers | None = None,
    max_iter: int = 30,
    left: float = LEFT,
) -> ManyMultinomialFits:
    """The same, without those that have to be made one by one: they are not ``converged``.

    Parameters
    ----------
    X, groups, n_groups, weights, start, folds, max_iter
        As in :func:`fit_multinomial_many`.
    left : float, default LEFT
        Newton decrement that the last step is to leave.

    Returns
    -------
    ManyMultinomialFits
    """
    n, p = np.shape(X)
    groups, w = np.asarray(groups), np.asarray(1.0 if weights is None else weights)
    B = max(len(np.atleast_2d(groups)), len(np.atleast_2d(w)))
    groups, w = np.broadcast_to(groups, (B, n)), np.broadcast_to(w, (B, n))
    design = _design(X, folds)
    F = len(design.edges) - 1
    coef, converged = np.full((B, F, p, n_groups), np.nan), np.zeros((B, F), dtype=bool)
    first = constant_combination(X) if start is None else np.asarray(start, dtype=np.float64)
    size = _batch_size(w, n_groups, F)
    for begin in range(0, B, size):
        some = slice(begin, begin + size)
        here = design.of(groups[some]), design.of(w[some]).astype(np.float64, copy=False)
        coef[some], converged[some] = _fit_batch(design, *here, n_groups, first, max_iter, left)
    if folds is None:
        return ManyMultinomialFits(coef[:, 0], converged[:, 0])
    return ManyMultinomialFits(coef, converged)


def _batch_size(weights: NDArray[np.generic], n_groups: int, n_folds: int) -> int:
    """Replicates at a time: few enough to leave out rows without weight where that pays."""
    B, n = weights.shape
    some = weights[:: max(B // 20, 1)]
    sparse = n >= _LARGE and np.count_nonzero(some) < _SPARSE * some.size
    wide = (n_groups - 1) * max(n_folds - 1, 1) >= _WIDE
    return max((_TOGETHER if sparse or wide else _MOST) // max(n, 1), 1)


@dataclass(frozen=True, eq=False)
class _Design:
    """The columns, with rows by fold.

    Attributes
    ----------
    xt : (p, n) array
    edges : (J + 1,) array of int
        Where parts of the rows begin and end: the folds, or one.
    leaves : bool
        Whether there is a fit without each part; otherwise there is one, of all rows.
    size, reach : (p,) arrays
        Root mean square, and largest absolute value.
    order : (n,) array of int or None
        Of rows as they came.
    """

    xt: Array
    edges: NDArray[np.intp]
    leaves: bool
    size: Array
    reach: Array
    order: NDArray[np.intp] | None

    @property
    def parts(self) -> list[slice]:
        return [slice(*at) for at in pairwise(self.edges)]

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values (b, n) of rows as they came, in the order of the columns."""
        return values if self.order is None else values[:, self.order]

    def of_fits(self, parts: NDArray[Any], axis: int = 1) -> NDArray[Any]:
        """Sums of the rows of each fit, from those of the parts along an axis."""
        total = parts.sum(axis=axis, keepdims=True)
        return total - parts if self.leaves else total

    def take(self, rows: Bools) -> _Design:
        """Some of the rows."""
        kept = np.flatnonzero(rows)
        edges = np.searchsorted(kept, self.edges)
        return replace(self, xt=self.xt[:, kept], edges=edges, order=None)


def _design(X: Array, folds: Integers | None) -> _Design:
    order, edges = None, np.array([0, len(X)])
    if folds is not None:
        order = np.argsort(folds, kind="stable")
        edges = np.append(0, np.cumsum(np.bincount(folds)))
    xt = np.ascontiguousarray((X if order is None else X[order]).T, dtype=np.float64)
    size = np.sqrt(np.einsum("pn,pn->p", xt, xt) / max(len(X), 1))
    reach = np.maximum(xt.max(axis=1, initial=0.0), -xt.min(axis=1, initial=0.0))
    return _Design(xt, edges, folds is not None, size, reach, order)


def _fit_batch(
    design: _Design,
    groups: Integers,
    w: Array,
    n_groups: int,
    start: Array,
    max_iter: int,
    left: float,
) -> tuple[Array, Bools]:
    """Coefficients (b, g, p, K) and convergence of the fits of a few replicates.

    `start` is (p, K), or (p,) for equal shares.
    """
    if not np.all(w >= 0):
        raise DataError("some weights of replicates are negative or missing; check `weights`")
    used: Bools = np.any(w, axis=0)
    if np.count_nonzero(used) < _FULL * len(used):
        design, groups, w = design.take(used), groups[:, used], w[:, used]
    rows = zip(groups, w, strict=True)
    in_part = np.array(
        [[np.bincount(g[part], v[part], n_groups) for part in design.parts] for g, v in rows]
    )  # (b, J, K)
    mass, of_fits = in_part.sum(axis=1), design.of_fits(in_part)
    (b, g), p = of_fits.shape[:2], len(design.xt)
    coef, converged = np.full((b, g, p, n_groups), np.nan), np.zeros((b, g), dtype=bool)
    # The reference of the computation is the class that is large in all replicates.
    classes = np.flatnonzero(mass.any(axis=0))
    classes = classes[np.argsort(-mass[:, classes].min(axis=0), kind="stable")]
    there = np.all(mass[:, classes] > 0, axis=1) & (len(classes) > 1)
    if not there.any():
        return coef, converged
    if start.ndim == 1:
        share = np.log(mass[there][:, classes].T)
        beta = (share[1:] - share[0])[:, :, None] * start
    else:
        beta = np.repeat(against_first(start, classes)[:, None], there.sum(), axis=1)
    code = class_codes(n_groups, classes)[groups if there.all() else groups[there]]
    batch = _Batch(design, code, w if there.all() else w[there], len(beta))
    with np.errstate(all="ignore"):  # fits that run away are left to a careful one
        found, fine = _newton(batch, beta, max_iter, left)
    converged[there] = fine & np.all(of_fits[there][:, :, classes] > 0, axis=2)
    full = np.concatenate([np.zeros_like(found[:1]), found]).transpose(1, 2, 3, 0)
    full -= full[..., [np.argmin(classes)]]
    coef[np.ix_(there, np.arange(g), np.arange(p), classes)] = full
    return coef, converged


class _Batch:
    """A few replicates: what their fits need at every step."""

    def __init__(self, design: _Design, code: Integers, w: Array, n_classes: int) -> None:
        self.design, self.w = design, w
        parts = design.parts
        self.observed = np.stack(
            [
                observed_sums(design.xt[:, part], code[:, part], w[:, part], n_classes)
                for part in parts
            ],
            axis=2,
        )  # (C, b, J, p)
        n_rows = np.stack([np.count_nonzero(w[:, part], axis=1) for part in parts], axis=1)
        mass = np.stack([w[:, part].sum(axis=1) for part in parts], axis=1)
        self.n = design.of_fits(n_rows)  # (b, g)
        # so that tolerances do not depend on the unit of the weights
        self.unit = self.n / np.maximum(design.of_fits(mass), 1e-300)
        self.unit_of_all = n_rows.sum(axis=1) / mass.sum(axis=1)

    def together(self, beta: Array) -> tuple[Array, Array]:
        """Score (C, b, J, p) and information (b, J, C p, C p) of each part at one place."""
        xt, beta = self.design.xt, beta[:, :, None]
        found = [
            expected_and_information(xt[:, part], self.w[:, part], beta)
            for part in self.design.parts
        ]
        expected = np.concatenate([one for one, _ in found], axis=2)
        return self.observed - expected, np.concatenate([one for _, one in found], axis=1)

    def apart(self, some: NDArray[np.intp], beta: Array, fresh: bool) -> tuple[Array, Array | None]:
        """Score (C, s, g, p) of the fits of some replicates, and their information if asked for."""
        design = self.design
        score = design.of_fits(self.observed[:, some], axis=2)
        C, s, g, p = score.shape
        information = np.zeros((s, g, C * p, C * p)) if fresh else None
        w = self.w if s == len(self.w) else self.w[some]
        for j, part in enumerate(design.parts):
            on = np.delete(np.arange(g), j) if design.leaves else np.arange(g)
            at = design.xt[:, part], w[:, part], beta[:, :, on]
            if information is None:
                score[:, :, on] -= expected_sums(*at)
            else:
                expected, found = expected_and_information(*at)
                score[:, :, on] -= expected
                information[:, on] += found
        return score, information


def _newton(batch: _Batch, beta: Array, max_iter: int, enough: float) -> tuple[Array, Bools]:
    """Coefficients (C, b, g, p) and which fits have settled; the others need more care."""
    design, shape = batch.design, batch.n.shape
    settled = np.zeros(shape, dtype=bool)
    # to the maximum of all rows, which is not far from those without a fold
    for _ in range(max_iter):
        score, information = batch.together(beta)
        inverse, _ = _inverse(information.sum(axis=1))
        step, left = _step(inverse, score.sum(axis=2))
        far = left * batch.unit_of_all > _NEAR
        if not far.any():
            break
        beta = beta + np.where(far[:, None], step, 0.0)
    score, information = design.of_fits(score, axis=2), design.of_fits(information)
    beta = np.repeat(beta[:, :, None], shape[1], axis=2)
    inverse, active = _inverse(information)
    before, fresh, was_fresh = np.full(shape, np.inf), np.ones(shape, bool), np.ones(shape, bool)
    for _ in range(max_iter):
        step, left = _step(inverse, score)
        left *= batch.unit
        active &= np.isfinite(left)
        beta += np.where(active[:, :, None], step, 0.0)
        later = np.isfinite(before)
        shrunk = np.where(later, np.minimum(left / before, 1.0), 1.0)
        done = active & ((left * shrunk < enough) | (fresh & (left < _DECREMENT)))
        # at most by so much does the step still move a linear predictor: it does under separation,
        # which a fit of its own recognises
        still = np.max(np.abs(step) @ design.reach, axis=0) <= MOVING
        # a step that overshot leaves no information and no step, but a score that is not zero
        limit = 1e-4 * np.sqrt(batch.n)[..., None] * design.size
        small = np.all(np.abs(score) * batch.unit[..., None] <= limit, axis=(0, 3))
        settled |= done & still & small
        # new information helps so little only where there is no finite maximum, or next to none
        active &= ~done & ~(later & was_fresh & (shrunk > _HARD) & (left < _ENDLESS))
        if not active.any():
            break
        # a step from where the information was worked out leaves less than those after it will
        rate = np.where(was_fresh, _FIRST * shrunk, shrunk)
        slow = np.where(fresh, shrunk > _HARD, left * rate**_FEW > enough) & later
        before, was_fresh, fresh = left, fresh, np.zeros(shape, bool)
        renewed = (active & slow).any(axis=1)
        for some, anew in ((renewed, True), (active.any(axis=1) & ~renewed, False)):
            at = np.flatnonzero(some)
            if len(at):
                score[:, at], found = batch.apart(at, beta[:, at], anew)
                if found is not None:
                    inverse[at], good = _inverse(found)
                    active[at] &= good
                    fresh[at] = True
    beta[:, ~settled] = 0.0  # whatever it is
    return beta, settled


def _step(inverse: Array, score: Array) -> tuple[Array, Array]:
    """Newton steps (C, ..., p) and decrements (...) from scores (C, ..., p)."""
    right = np.moveaxis(score, 0, -2)
    flat = right.reshape(*right.shape[:-2], -1)
    step = (inverse @ flat[..., None])[..., 0]
    return np.moveaxis(step.reshape(right.shape), -2, 0), np.einsum("...p,...p->...", flat, step)


def _inverse(information: Array) -> tuple[Array, Bools]:
    """Inverse (..., q, q), and whether it is one: no column is near a combination of the others."""
    diagonal = np.einsum("...pp->...p", information)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = information / (scale[..., :, None] * scale[..., None, :])
    known = np.isfinite(scaled).all(axis=(-2, -1)) & (diagonal > 0).all(axis=-1)
    scaled[~known] = np.eye(scaled.shape[-1])
    try:
        inverse = np.linalg.inv(scaled)
    except np.linalg.LinAlgError:
        inverse = np.linalg.pinv(scaled, hermitian=True)
        known &= np.linalg.matrix_rank(scaled, hermitian=True) == scaled.shape[-1]
    inflation = np.einsum("...pp->...p", inverse)
    good = known & np.all((inflation > 0) & (inflation < _SINGULAR), axis=-1)
    return inverse / (scale[..., :, None] * scale[..., None, :]), good


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
