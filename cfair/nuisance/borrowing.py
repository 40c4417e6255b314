"""How much to borrow from external probabilities of group membership."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cfair.options import check_option

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: What the share of the external model is chosen by.
CRITERIA: dict[str, str] = {
    "brier": "least multiclass Brier score",
    "auc": "largest multiclass AUC (Hand and Till)",
}
_GRID = np.linspace(0.0, 1.0, 21)
_BRENT = 1.5e-8  # the tolerance to which the R package searches


def mixed(alpha: float, external: Array, internal: Array) -> Array:
    """Probabilities of which a share comes from the external model.

    Parameters
    ----------
    alpha : float
        Share of the external model.
    external, internal : arrays of the same shape

    Returns
    -------
    array
    """
    if alpha == 0.0:
        return internal
    result: Array = alpha * external + (1.0 - alpha) * internal
    return result


def brier_score(p: Array, group: Integers, weights: Array | None = None) -> float:
    """Multiclass Brier score: mean over the rows of the squared errors of all groups.

    Parameters
    ----------
    p : (n, K) array
    group : (n,) array of int
    weights : (n,) array, optional

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> brier_score(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0, 1]))
    0.25
    """
    own = np.take_along_axis(p, np.asarray(group, dtype=np.intp)[:, None], axis=1)[:, 0]
    error = np.einsum("nk,nk->n", p, p) - 2.0 * own + 1.0
    return float(np.average(error, weights=weights))


def hand_till_auc(p: Array, group: Integers, weights: Array | None = None) -> float:
    """Multiclass AUC of Hand and Till: the mean over ordered pairs of groups.

    Of a pair (i, j) it is the chance that a row of i has a larger probability of i than a row of j
    has; a tie counts as a half.

    Parameters
    ----------
    p : (n, K) array
    group : (n,) array of int
    weights : (n,) array, optional
        For how many rows each stands.

    Returns
    -------
    float
        Over the groups that have weight; NaN if there is only one.

    References
    ----------
    Hand DJ, Till RJ (2001). A simple generalisation of the area under the ROC curve for multiple
    class classification problems. Machine Learning 45, 171-186.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[0.6, 0.4], [0.3, 0.7], [0.6, 0.4]])
    >>> hand_till_auc(p, np.array([0, 1, 1]))
    0.75
    """
    return _Pairs(np.asarray(group, dtype=np.intp), p.shape[1], weights).auc(p.T)


class _Pairs:
    """The pairs of groups behind the AUC of Hand and Till, for many sets of probabilities."""

    def __init__(self, group: NDArray[np.intp], n_groups: int, weights: Array | None) -> None:
        w = np.ones(len(group)) if weights is None else weights
        mass = np.bincount(group, w, n_groups)
        self.classes = np.flatnonzero(mass > 0)
        # a row of another group counts with its share of that group, so that all groups count alike
        share = w / np.where(mass > 0, mass, 1.0)[group]
        mine = group == self.classes[:, None]
        self.own, self.other = np.where(mine, w, 0.0), np.where(mine, 0.0, share)
        self.mass = mass[self.classes]

    def auc(self, p: Array) -> float:
        """AUC of probabilities (K, n); NaN if there is only one group."""
        m = len(self.classes)
        if m < 2:
            return float("nan")
        total = 0.0
        for i, k in enumerate(self.classes):
            lost = _lost(p[k], self.own[i], self.other[i])
            total += (m - 1) - lost / self.mass[i]
        return float(total / (m * (m - 1)))


def _lost(values: Array, own: Array, other: Array) -> float:
    """Weight of the pairs in which a row of the group is not above one of another, ties by half."""
    order = np.argsort(values)
    ranked, own, other = values[order], own[order], other[order]
    below = np.cumsum(own)
    first = np.append(True, ranked[1:] != ranked[:-1])
    if first.all():
        return float(other @ below)  # own is 0 where other is not
    starts = np.flatnonzero(first)
    ends = np.append(starts[1:], len(ranked)) - 1
    half = (below[ends] + np.append(0.0, below[ends[:-1]])) / 2.0
    return float(np.add.reduceat(other, starts) @ half)


def choose_alpha(
    external: Array,
    internal: Array,
    group: Integers,
    borrow: str = "brier",
    weights: Array | None = None,
    *,
    as_r: bool = False,
) -> float:
    """Share of the external model at which the mixture tells groups best.

    Parameters
    ----------
    external, internal : (n, K) arrays
        Probabilities, the internal ones out of fold.
    group : (n,) array of int
    borrow : {"brier", "auc"}, default "brier"
        The Brier score is a parabola in alpha, and its minimum a closed form. The AUC is a step
        function with many local maxima. It is worked out at 21 places, and the best of these is
        improved upon by Brent's search between its neighbours: the answer is good to about 0.01,
        and in a second sample it would differ by much more.
    weights : (n,) array, optional
    as_r : bool, default False
        Search for the AUC as the R package does: by Brent's search from 0 to 1, which ends where
        its path leads and may miss a better alpha.

    Returns
    -------
    float
        From 0 to 1; NaN if a probability of a row that counts is. 0 if there is nothing to choose
        by: one group only, or two models that say the same.

    Examples
    --------
    >>> import numpy as np
    >>> external, internal = np.array([[0.8, 0.2]] * 4), np.array([[0.4, 0.6]] * 4)
    >>> round(choose_alpha(external, internal, np.array([0, 0, 1, 1])), 12)
    0.25
    """
    check_option("borrow", borrow, CRITERIA)
    if weights is not None:
        used = weights > 0
        external, internal, group = external[used], internal[used], np.asarray(group)[used]
        weights = weights[used]
    if np.isnan(internal).any() or np.isnan(external).any():
        return float("nan")
    if borrow == "brier":
        return _brier_alpha(external, internal, group, weights)

    if len(np.unique(group)) < 2:
        return 0.0

    pairs = _Pairs(np.asarray(group, dtype=np.intp), internal.shape[1], weights)
    outer, inner = np.ascontiguousarray(external.T), np.ascontiguousarray(internal.T)

    def lost(alpha: float) -> float:
        return -pairs.auc(mixed(alpha, outer, inner))

    if as_r:
        return _search(lost, 0.0, 1.0, _BRENT)[0]
    # rounded, since sums in another order of the rows differ in the last digits
    return _thorough(lambda alpha: round(lost(alpha), 12))


def _brier_alpha(external: Array, internal: Array, group: Integers, weights: Array | None) -> float:
    step = external - internal
    rows = np.arange(len(step))
    # step . (indicator of the own group - internal), row by row
    gain = step[rows, np.asarray(group, dtype=np.intp)] - np.einsum("nk,nk->n", step, internal)
    length = np.einsum("nk,nk->n", step, step)
    if weights is not None:
        gain, length = gain * weights, length * weights
    total = float(length.sum())
    return float(np.clip(gain.sum() / total, 0.0, 1.0)) if total > 0 else 0.0


def _thorough(lost: Callable[[float], float]) -> float:
    """Best of a grid, then of Brent's search between the neighbours; of equals the smallest."""
    values = [lost(float(alpha)) for alpha in _GRID]
    best = int(np.argmin(values))
    low, high = _GRID[max(best - 1, 0)], _GRID[min(best + 1, len(_GRID) - 1)]
    alpha, value = _search(lost, float(low), float(high), 1e-3)
    return alpha if value < values[best] else float(_GRID[best])


def _search(
    lost: Callable[[float], float], low: float, high: float, tolerance: float
) -> tuple[float, float]:
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lost, bounds=(low, high), method="bounded", options={"xatol": tolerance}
    )
    return float(found.x), float(found.fun)
