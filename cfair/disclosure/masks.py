"""Which counts may be shown so that no small one can be computed from them.

A table is made of base cells: rows by group, outcome and call, and by treatment where the table
says who was treated. Every count that a table can show is a sum of base cells, hence a vector of 0
and 1. Counts of 1 to t - 1 rows are small, and masked. Another count is shown as long as no small
one is a linear combination of all that is shown, totals and base cells of 0 included; counts are
tried in an order (all rows, single attributes, groups; the largest first), and kept if they pass.

A masked count is written as ``-t`` where it is small itself, and NaN where it would reveal another.
Pure functions of integer arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.errors import DataError

Array = NDArray[np.float64]

#: What becomes of a count: shown, masked for being small, masked for what it would reveal.
SHOWN, SMALL, REVEALING = 0, 1, 2
#: Beyond so many groups the search takes minutes.
MAX_GROUPS = 200
#: Squared length below which what is left of a vector of 0 and 1 is rounding.
_NOTHING = 1e-9


def release(
    candidates: Array, sensitive: Array, known: Array | None = None, *, secondary: bool = True
) -> Array:
    """Choose counts that may be shown: in their order, as long as nothing sensitive follows.

    Parameters
    ----------
    candidates : (m, c) array
        Counts as coefficients of the base cells, those to be kept first coming first.
    sensitive : (s, c) array
        Counts that must not be linear combinations of what is shown.
    known : (r, c) array, optional
        Orthonormal rows: what is shown already.
    secondary : bool, default True
        Whether more than the sensitive counts themselves is withheld.

    Returns
    -------
    (r', c) array
        Orthonormal rows that span all that is shown; `known` comes first.

    Examples
    --------
    Of the sum and two parts, of which the second is small, the first part has to go too.

    >>> parts = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> release(parts, parts[2:]).round(2)
    array([[0.71, 0.71]])
    """
    C, S = np.asarray(candidates, dtype=np.float64), np.asarray(sensitive, dtype=np.float64)
    small = {row.tobytes() for row in S}
    start = np.zeros((0, C.shape[1])) if known is None else known
    basis = np.zeros((len(start) + min(C.shape), C.shape[1]))
    basis[: len(start)] = start
    r = len(start)
    # squared lengths of what is left of the sensitive counts, given what is shown
    left = np.einsum("sc,sc->s", S, S) - np.einsum("sr,sr->s", S @ start.T, S @ start.T)
    S, left = S[left > _NOTHING], left[left > _NOTHING]
    for vector in C:
        if not secondary and vector.tobytes() in small:
            continue
        rest = vector
        for _ in range(2):  # twice, for the sake of rounding
            rest = rest - (basis[:r] @ rest) @ basis[:r]
        length = float(rest @ rest)
        if length <= _NOTHING:
            continue  # it follows from what is shown
        unit = rest / np.sqrt(length)
        after = left - (S @ unit) ** 2
        if secondary and np.any(after <= _NOTHING):
            continue
        left = after
        basis[r] = unit
        r += 1
    return basis[:r].copy()


def closed(membership: Array, masked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask more targets, so that no masked one is a sum or difference of those shown.

    For figures that add up over groups once they are multiplied by their rows, as means do.

    Parameters
    ----------
    membership : (T, K) array of 0 and 1
        Of groups that have rows. The last targets are kept first: all rows, then attributes.
    masked : (T,) array of bool

    Returns
    -------
    (T,) array of bool

    Examples
    --------
    The sum and one part would give the other part.

    >>> closed(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([True, False, False]))
    array([ True,  True, False])
    """
    M, lost = np.asarray(membership, dtype=np.float64), np.asarray(masked, dtype=bool)
    if not lost.any():
        return lost
    span = release(M[~lost][::-1], M[lost])
    rest = M - (M @ span.T) @ span
    hidden: NDArray[np.bool_] = np.einsum("tk,tk->t", rest, rest) > _NOTHING
    return lost | hidden


def _subsets() -> list[Array]:
    """All sums of the cells of outcome and call, those that a table needs most first."""
    found = list(KINDS.values())
    for size in (1, 2, 3, 4):
        for chosen in combinations([(0, 1), (0, 0), (1, 1), (1, 0)], size):
            mask = _kind(*chosen)
            if not any(np.array_equal(mask, other) for other in found):
                found.append(mask)
    return found


def _kind(*cells: tuple[int, int]) -> Array:
    mask = np.zeros((2, 2))
    for cell in cells:
        mask[cell] = 1.0
    return mask


#: Counts of a target, as cells of outcome and call, those that a table needs most first.
KINDS: dict[str, Array] = {
    "n": np.ones((2, 2)),
    "events": _kind((1, 0), (1, 1)),
    "non_events": _kind((0, 0), (0, 1)),
    "fp": _kind((0, 1)),
    "tn": _kind((0, 0)),
    "tp": _kind((1, 1)),
    "fn": _kind((1, 0)),
    "positive": _kind((0, 1), (1, 1)),
    "negative": _kind((0, 0), (1, 0)),
    "right": _kind((0, 0), (1, 1)),
    "wrong": _kind((0, 1), (1, 0)),
    "jaccard": _kind((0, 1), (1, 0), (1, 1)),
}
_SUBSETS = _subsets()
#: In order of need: rows, outcomes, cells, calls, the rest.
_NEED = np.array([0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 5, 6, 6, 6])


@dataclass(frozen=True, eq=False)
class Protection:
    """What may be shown of one table of counts.

    Attributes
    ----------
    below : int
        Counts of 1 to `below` - 1 are masked.
    cells : (K, 2, 2) or (K, 2, 2, 2) array
        Rows by group, outcome and call, and by treatment.
    span : (r, c) array
        Orthonormal rows; counts in their span may be shown. Of the base cells that are not 0.
    sensitive : (s, c) array
    """

    below: int
    cells: Array
    span: Array
    sensitive: Array

    @cached_property
    def _filled(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.cells)

    def masks(self, membership: Array, kind: Array) -> NDArray[np.int8]:
        """What becomes of a count of several targets.

        Parameters
        ----------
        membership : (T, K) array of 0 and 1
        kind : (2, 2) or (2, 2, 2) array of 0 and 1
            The cells of outcome and call, and of treatment, that are counted.

        Returns
        -------
        (T,) array
            `SHOWN`, `SMALL` or `REVEALING`.
        """
        if kind.ndim < self.cells.ndim - 1:
            kind = np.stack([kind, kind], axis=-1)
        f = _vectors(membership, kind[None])[:, self._filled]
        value = f @ self.cells.ravel()[self._filled]
        rest = f - (f @ self.span.T) @ self.span
        hidden = np.einsum("tc,tc->t", rest, rest) > _NOTHING
        small = (value > 0) & (value < self.below)
        return np.where(small, SMALL, np.where(hidden, REVEALING, SHOWN)).astype(np.int8)

    def rate_masks(
        self, membership: Array, numerator: Array, denominator: Array
    ) -> NDArray[np.int8]:
        """What becomes of a rate: numerator, denominator and their difference must be shown.

        Parameters
        ----------
        membership : (T, K) array of 0 and 1
        numerator, denominator : (2, 2) or (2, 2, 2) array of 0 and 1

        Returns
        -------
        (T,) array
        """
        parts = (numerator, denominator, denominator - numerator)
        return strictest(*(self.masks(membership, kind) for kind in parts))

    def counts(self, membership: Array, kind: Array, values: Array | None = None) -> Array:
        """Counts of several targets, with the masks written into them.

        Parameters
        ----------
        membership : (T, K) array of 0 and 1
        kind : (2, 2) or (2, 2, 2) array of 0 and 1
        values : (T,) array, optional
            The counts, if they are there already.

        Returns
        -------
        (T,) array
        """
        if values is None:
            whole = kind if kind.ndim == self.cells.ndim - 1 else np.stack([kind, kind], axis=-1)
            values = _vectors(membership, whole[None]) @ self.cells.ravel()
        return written(values, self.masks(membership, kind), self.below)

    def with_treatment(
        self,
        cells: Array,
        partitions: Sequence[Array],
        wanted: Sequence[tuple[Array, Array]] | None = None,
    ) -> Protection:
        """Let counts of the untreated be shown beside what is shown already.

        Parameters
        ----------
        cells : (K, 2, 2, 2) array
            Rows by group, outcome, call and treatment.
        partitions : sequence of (m, K) arrays
            As in `protect`.
        wanted : sequence of ((m, K) array, (2, 2) array), optional
            Which sets of groups, and which cells of outcome and call, if these are all that is to
            be shown; the first come first. All partitions and kinds by default.

        Returns
        -------
        Protection
        """
        filled = np.flatnonzero(cells)
        # the sum over treatment of what is known
        known = np.zeros((len(self.span), self.cells.size))
        known[:, self._filled] = self.span
        known = np.repeat(known, 2, axis=1)[:, filled]
        known = np.linalg.qr(known.T)[0].T if len(known) else known
        old = np.zeros((len(self.sensitive), self.cells.size))
        old[:, self._filled] = self.sensitive
        old = np.repeat(old, 2, axis=1)[:, filled]
        arms = [np.stack([k * (d == 0), k * (d == 1)], -1) for d in (0, 1) for k in _SUBSETS]
        half = len(_SUBSETS)
        if wanted is None:
            candidates = _ordered(cells, partitions, np.array(arms[:half]))[:, filled]
        else:
            none = np.zeros((2, 2))
            each = [_vectors(m, np.stack([kind, none], -1)[None]) for m, kind in wanted]
            candidates = np.vstack(each)[:, filled]
        sensitive = _sensitive(cells, partitions, np.array(arms), self.below)[:, filled]
        sensitive = np.unique(np.vstack([old, sensitive]), axis=0)
        return Protection(self.below, cells, release(candidates, sensitive, known), sensitive)


def protect(
    cells: Array,
    partitions: Sequence[Array],
    below: int,
    *,
    kept: Array | None = None,
    shown: Array | None = None,
    categories: Array | None = None,
) -> Protection:
    """Decide what may be shown of rows by group and outcome and call, or by group and category.

    Parameters
    ----------
    cells : (K, 2, 2) array, or (K, L) array
        Of L categories their sums over groups are counts, and the rows of a group.
    partitions : sequence of (m, K) arrays of 0 and 1
        All rows first; then the levels of each attribute; the groups last.
    below : int
    kept : (m, K) array of 0 and 1, optional
        Sums of groups whose rows are masked already, and have to remain so.
    shown : (m, K) array of 0 and 1, optional
        Sums of groups whose rows are shown already.
    categories : (C, L) array of 0 and 1, optional
        What is counted, if these are sums of the L categories; each of them by default.

    Returns
    -------
    Protection

    Raises
    ------
    DataError
        If there are too many groups.

    Notes
    -----
    Protected are all sums of the four cells of every group, level and of all rows, what is left of
    all rows without them, and the sum of several small ones where it gives them away: if it is
    small itself, or as large as it can be. Limits that follow from inequalities in other ways are
    not looked for; rates do not say which of their counts is small, so that there are few.

    A higher threshold masks every count that a lower one finds small, but not every count that a
    lower one masks for what it would reveal. Counts are tried in an order and kept as long as
    nothing small follows from all that is kept: where a count is small under the higher threshold
    and goes, a later one gives nothing away together with it any more, and stays. So a count may be
    shown below 20 that is masked below 11, and two results of the same rows with two thresholds
    show more together than either may: publish one.

    References
    ----------
    Hundepool A et al. (2012). Statistical Disclosure Control. Wiley, chapter 4.

    Examples
    --------
    Three of 100 women have the event and were flagged; men could give them away.

    >>> cells = np.array([[[60, 20], [17, 3]], [[50, 30], [40, 30]]])
    >>> every = np.ones((1, 2))
    >>> p = protect(cells, [every, np.eye(2)], 11)
    >>> p.counts(np.vstack([every, np.eye(2)]), KINDS["tp"])
    array([ 33., -11.,  nan])
    """
    cells = np.asarray(cells, dtype=np.float64)
    if len(cells) > MAX_GROUPS:
        raise DataError(
            f"suppress_below= works for up to {MAX_GROUPS} groups, and here are {len(cells):,}. "
            "Use fewer attributes, or merge levels."
        )
    filled = np.flatnonzero(cells)
    kinds, need = np.array(_SUBSETS), _NEED
    if cells.ndim == 2:
        each = np.eye(cells.shape[1]) if categories is None else categories
        kinds = np.vstack([np.ones((1, cells.shape[1])), each, 1 - each])
        need = np.repeat([0, 1, 2], [1, len(each), len(each)])
    candidates = _ordered(cells, partitions, kinds, need)[:, filled]
    sensitive = _sensitive(cells, partitions, kinds, below)[:, filled]
    if kept is not None and len(kept):
        sensitive = np.vstack([sensitive, _vectors(kept, kinds[:1])[:, filled]])
    sensitive = sensitive[sensitive.any(axis=1)]
    known = None
    if shown is not None:
        rows = _vectors(shown, kinds[:1])[:, filled]
        known = release(rows, np.zeros((0, len(filled))))
    span = release(candidates, sensitive, known)
    return Protection(below, cells, span, sensitive)


def _vectors(membership: Array, kinds: Array) -> Array:
    """Counts as coefficients of all base cells: targets by kinds."""
    found = np.einsum("tk,j...->tjk...", membership, kinds)
    return found.reshape(len(membership) * len(kinds), int(np.prod(found.shape[2:])))


def _ordered(
    cells: Array, partitions: Sequence[Array], kinds: Array, need: NDArray[np.integer] = _NEED
) -> Array:
    """Counts by partition, by need, and the largest first."""
    parts = []
    for membership in partitions:
        f = _vectors(membership, kinds)
        each = np.tile(need, len(membership))
        parts.append(f[np.lexsort([-(f @ cells.ravel()), each])])
    return np.vstack(parts)


def _sensitive(cells: Array, partitions: Sequence[Array], kinds: Array, below: int) -> Array:
    """Small counts, small remainders of all rows, and sums of small counts that give them away."""
    flat = cells.ravel()
    whole = _vectors(partitions[0], kinds)
    found = []
    for membership in partitions:
        f = _vectors(membership, kinds).reshape(len(membership), len(kinds), -1)
        for part in (f, whole[None] - f):
            vectors = part.reshape(-1, part.shape[-1])
            value = vectors @ flat
            found.append(vectors[(value > 0) & (value < below)])
        value = f @ flat
        small = (value > 0) & (value < below)
        for parents in partitions:
            inside = (parents @ membership.T) == membership.sum(axis=1)  # (parents, targets)
            many = inside.astype(float) @ small
            total = inside.astype(float) @ np.where(small, value, 0.0)
            given = (many > 1) & ((total < below) | (total == many * (below - 1)))
            for p, j in zip(*np.nonzero(given), strict=True):
                found.append(f[inside[p] & small[:, j], j].sum(axis=0)[None])
    return np.unique(np.vstack(found), axis=0)


# -- how masks are written ------------------------------------------------------------------------


def strictest(*masks: NDArray[np.integer]) -> NDArray[np.int8]:
    """What becomes of a figure that rests on several counts: small if one of them is.

    Examples
    --------
    >>> strictest(np.array([0, 0, 2]), np.array([0, 2, 1]))
    array([0, 2, 1], dtype=int8)
    """
    found = np.stack(masks)
    return np.where((found == SMALL).any(axis=0), SMALL, found.max(axis=0)).astype(np.int8)


def written(values: Array, masks: NDArray[np.integer], below: int) -> Array:
    """Counts with their masks: ``-below`` if small, NaN if revealing.

    Examples
    --------
    >>> written(np.array([50.0, 3.0, 20.0]), np.array([0, 1, 2]), 11)
    array([ 50., -11.,  nan])
    """
    result: Array = np.where(
        masks == SMALL, -float(below), np.where(masks == REVEALING, np.nan, values)
    )
    return result


def small_masks(values: Any, below: int | None) -> Array:
    """Counts of which only the small ones are masked, where no others stand beside them.

    Examples
    --------
    >>> small_masks([0, 3, 40], 11)
    array([  0., -11.,  40.])
    """
    counts = np.asarray(values, dtype=np.float64)
    if below is None:
        return counts
    return np.where((counts > 0) & (counts < below), -float(below), counts)


def is_masked(values: Any) -> NDArray[np.bool_]:
    """Which counts are masked.

    Examples
    --------
    >>> is_masked(np.array([5.0, -11.0, np.nan]))
    array([False,  True,  True])
    """
    counts = np.asarray(values, dtype=np.float64)
    masked: NDArray[np.bool_] = np.isnan(counts) | (counts < 0)
    return masked


def count_column(values: Any) -> Any:
    """Counts as a column: integers, with missing values where they are masked.

    Examples
    --------
    >>> count_column(np.array([5.0, -11.0]))
    <IntegerArray>
    [5, <NA>]
    Length: 2, dtype: Int64
    """
    counts, masked = np.asarray(values, dtype=np.float64), is_masked(values)
    plain = np.where(masked, 0, counts).astype(int)
    if not masked.any():
        return plain
    import pandas as pd

    return pd.arrays.IntegerArray(plain, masked)


def rounded(counts: Any, base: int) -> NDArray[np.int64]:
    """Counts as the nearest multiples of a base, a half upwards.

    Examples
    --------
    >>> rounded([0, 2, 3, 13], 5)
    array([ 0,  0,  5, 15])
    """
    return np.asarray(np.floor(np.asarray(counts) / base + 0.5) * base, dtype=np.int64)
