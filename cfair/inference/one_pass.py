"""Bootstrap replicates of large data in one pass: rows weighted at random, one Newton step.

Every row gets an exchangeable weight of mean 1 and variance 1 in each replicate. Weighted sums of
a few columns by cell, for all replicates at once, give the scores of the models, one step of their
coefficients, and what that step does to the cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.confusion import cell_codes, ratio
from cfair.inference.contributions import Contributions, without_rounding
from cfair.inference.moments import block_information, sums_by_cell
from cfair.inference.refit import CounterfactualModels, Part
from cfair.inference.resampling import STREAM, Stream
from cfair.inference.rows import Arrangement, Rows
from cfair.nuisance.binary import BUDGET
from cfair.nuisance.logistic import solve_information

Array = NDArray[np.float64]

_BLOCK = 512
# Streams whose replicates share a pass: a product of 100 rows is 2 times faster than four of 25.
_TOGETHER = 4
# From here replicates take the derivatives of the full sample, whose error falls with the root of n
# too; it halves the products.
_ONE_SLOPE_FROM = 100_000
_GATHERED = 16_384
# A byte becomes a weight 0..5 of mean exactly 1 and variance exactly 1 by counting thresholds:
# 94, 95, 46, 16, 4 and 1 of the 256 bytes give 0, 1, 2, 3, 4 and 5.
_THRESHOLDS = (94, 189, 235, 251, 255)


@dataclass(frozen=True)
class _Run:
    """Consecutive rows of one cell, counted from the start of their block."""

    first: int
    last: int
    cell: int


@dataclass(frozen=True)
class _ScoreColumns:
    """How the scores of one model, or derivatives in its coefficients, are read from sums.

    A column of the design that is one number per group needs no sums of its own: those of what all
    columns are multiplied with tell them.
    """

    factor: int  # column of sums of the factor by itself
    own: slice  # columns of sums of the factor times the other columns of the design
    others: NDArray[np.intp]  # which these are among the coefficients
    of_group: NDArray[np.intp]
    values: Array  # (4K, g), of the columns that are one number per group

    def totals(self, sums: Array) -> Array:
        """Sums over all cells for each coefficient, (B, q), of sums (4K, B, width)."""
        result = np.empty((sums.shape[1], len(self.others) + len(self.of_group)))
        result[:, self.others] = sums[..., self.own].sum(axis=0)
        result[:, self.of_group] = sums[..., self.factor].T @ self.values
        return result

    def along(self, sums: Array, delta: Array) -> Array:
        """What a step `delta` (B, q) adds to the cells, (B, 4K)."""
        added = np.einsum("cbp,bp->bc", sums[..., self.own], delta[:, self.others])
        added += sums[..., self.factor].T * (delta[:, self.of_group] @ self.values.T)
        return np.asarray(added)


@dataclass(frozen=True)
class OnePassPlan:
    """Columns, and blocks of rows that stay in cache, each cut into runs of one cell.

    Attributes
    ----------
    columns : (n, c) float32 array
        What a row adds to the cell of an event (or to its own), its sampling weight, and what
        `scores` and `slopes` are read from.
    blocks : tuple of (slice, runs)
    scores, slopes : tuples of _ScoreColumns
        Of each model: its scores, and the derivatives of the first column in its coefficients if
        every replicate has its own.
    information : (q, q) array
    slope : (4K, q) array or None
        Derivatives of the cell sums in the full sample, by what the first column (with `split`, the
        second) adds up to there; None if every replicate has its own.
    split : bool
        Whether a row adds the rest of its weight to the cell of no event.
    at : Arrangement
    """

    columns: NDArray[np.float32]
    blocks: tuple[tuple[slice, tuple[_Run, ...]], ...]
    scores: tuple[_ScoreColumns, ...]
    slopes: tuple[_ScoreColumns, ...]
    information: Array
    slope: Array | None
    split: bool
    at: Arrangement

    @property
    def together(self) -> int:
        """How many streams share a pass: fewer where sums by cell would not fit in memory."""
        sums = 4 * self.at.rows.n_groups * STREAM * self.columns.shape[1]
        return max(1, min(_TOGETHER, BUDGET // sums))


def one_pass_plan(models: CounterfactualModels, added: Contributions) -> OnePassPlan:
    """Columns and blocks that all replicates of the one-pass bootstrap share.

    Parameters
    ----------
    models : CounterfactualModels
    added : Contributions
        Of the full sample.

    Returns
    -------
    OnePassPlan
    """
    rows = models.rows
    at = rows.canonical(*models.keys, by_group=True)
    own_slope = rows.n < _ONE_SLOPE_FROM
    width = 2
    scores: list[_ScoreColumns] = []
    slopes: list[_ScoreColumns] = []
    parts: list[tuple[_ScoreColumns, Array, Array]] = []  # with factor and design
    for model, derivative in zip(added.models, added.derivative, strict=True):
        wanted = [(scores, model.residual, model.design)]
        wanted += [(slopes, derivative[:, -1], model.at)] if own_slope else []
        for kind, factor, X in wanted:
            kind.append(_score_columns(X, rows, at, width))
            parts.append((kind[-1], factor, X))
            width = kind[-1].own.stop
    columns = np.empty((rows.n, width), dtype=np.float32)
    for start in range(0, rows.n, _GATHERED):  # as a whole, the rows in order would be a copy
        some = at.order[start : start + _GATHERED]
        part = columns[start : start + _GATHERED]
        a = 1.0 if rows.weights is None else rows.weights[some]
        part[:, 0], part[:, 1] = added.value[some, -1] * a, a
        for read, factor, X in parts:
            part[:, read.factor] = factor[some] * a
            here = X[some] if len(read.of_group) == 0 else X[np.ix_(some, read.others)]
            np.multiply((factor[some] * a)[:, None], here, out=part[:, read.own])
    cell = cell_codes(at.rows.y, at.rows.s, at.rows.group)
    # sums of sorted rows, so that they do not depend on the order in which rows came
    split = added.cell.shape[1] == 2
    slope = None if own_slope else _full_slopes(added, rows, at, split=split)
    return OnePassPlan(
        columns,
        _row_blocks(cell),
        tuple(scores),
        tuple(slopes),
        block_information(added.models, rows.weights),
        slope,
        split,
        at,
    )


def _score_columns(X: Array, rows: Rows, at: Arrangement, first: int) -> _ScoreColumns:
    """Find the columns that are one number per group; sums begin at column `first`."""
    K = rows.n_groups
    one_row = np.zeros(K, dtype=np.intp)
    one_row[rows.group] = np.arange(rows.n)
    values = X[one_row]
    same = np.ones(X.shape[1], dtype=bool)
    for start in range(0, rows.n, _GATHERED):
        at_most = np.flatnonzero(same)
        if not len(at_most):
            break
        here, group = X[start : start + _GATHERED], rows.group[start : start + _GATHERED]
        if len(at_most) < X.shape[1]:
            here = here[:, at_most]
        same[at_most] = (here == values[:, at_most][group]).all(axis=0)
    others, of_group = np.flatnonzero(~same), np.flatnonzero(same)
    in_order = values[at.groups][:, of_group]  # groups by their new numbers
    return _ScoreColumns(
        first,
        slice(first + 1, first + 1 + len(others)),
        others,
        of_group,
        np.repeat(in_order, 4, axis=0),
    )


def _full_slopes(added: Contributions, rows: Rows, at: Arrangement, *, split: bool) -> Array:
    """Derivatives of the cell sums by unit of the column that they multiply, groups renumbered."""
    C = 4 * rows.n_groups
    own = cell_codes(rows.y, rows.s, at.rank[rows.group])[:, None]
    a = np.ones(rows.n) if rows.weights is None else rows.weights
    parts = [
        sums_by_cell(own, (derivative[:, -1] * a)[:, None], model.at, C)
        for model, derivative in zip(added.models, added.derivative, strict=True)
    ]
    total = np.bincount(own[:, 0], weights=a if split else added.value[:, -1] * a, minlength=C)
    return np.hstack([np.zeros((C, 0)), *parts]) / np.where(total > 0, total, 1.0)[:, None]


def _row_blocks(cell: NDArray[np.intp]) -> tuple[tuple[slice, tuple[_Run, ...]], ...]:
    """Blocks of rows, each cut into runs of one cell."""
    changes = np.flatnonzero(np.diff(cell)) + 1
    edges = np.union1d(changes, np.arange(0, len(cell), _BLOCK))
    blocks = []
    for first in range(0, len(cell), _BLOCK):
        last = min(first + _BLOCK, len(cell))
        own = [*edges[np.searchsorted(edges, first) : np.searchsorted(edges, last)], last]
        runs = tuple(_Run(int(i - first), int(j - first), int(cell[i])) for i, j in pairwise(own))
        blocks.append((slice(first, last), runs))
    return tuple(blocks)


def one_pass(plan: OnePassPlan, *blocks: Stream) -> Part:
    """Weights from random bytes, sums by cell in one pass, then one Newton step.

    Parameters
    ----------
    plan : OnePassPlan
    *blocks : Stream
        Whose replicates are made together, each from its own random numbers.

    Returns
    -------
    Part
    """
    rngs = [(block.generator(), block.size) for block in blocks]
    B = sum(size for _, size in rngs)
    K, width = plan.at.rows.n_groups, plan.columns.shape[1]
    sums = np.zeros((4 * K, B, width))
    size = np.zeros(B)
    weights = np.empty((B, _BLOCK), dtype=np.float32)
    for rows, runs in plan.blocks:
        drawn = weights[:, : rows.stop - rows.start]
        drawn[:] = exchangeable_weights(rngs, drawn.shape[1])
        columns = plan.columns[rows]
        for run in runs:
            sums[run.cell] += drawn[:, run.first : run.last] @ columns[run.first : run.last]
        if plan.at.rows.weights is not None:
            size += drawn.sum(axis=1)
    mass, observed = sums[..., 0].T, sums[..., 1].T
    if plan.at.rows.weights is None:
        size = observed.sum(axis=1)
    if plan.scores:
        score = np.hstack([model.totals(sums) for model in plan.scores])
        delta = solve_information(plan.information, score.T).T
        base = observed if plan.split else mass
        if plan.slope is None:
            ends = np.cumsum([len(m.others) + len(m.of_group) for m in plan.slopes])
            steps = np.split(delta, ends[:-1], axis=1)
            added = np.zeros_like(mass)
            for model, step in zip(plan.slopes, steps, strict=True):
                added += model.along(sums, step)
            relative = ratio(added, base)
        else:  # in a replicate without rows of a cell, there are no derivatives either
            relative = np.where(base > 0, delta @ plan.slope.T, np.nan)
        mass = _moved(mass, base, np.nan_to_num(relative), split=plan.split)
    cells, observed = (values.reshape(B, K, 2, 2) for values in (mass, observed))
    if plan.split:  # rows with one prediction share the cells of both outcomes
        events, everyone = cells.sum(axis=2), observed.sum(axis=2)
        # sums in single precision
        cells = without_rounding(np.stack([everyone - events, events], axis=2), 1e-6)
    rank = plan.at.rank
    return Part(cells[:, rank], observed[:, rank], 0, size)


def _moved(mass: Array, base: Array, relative: Array, *, split: bool) -> Array:
    """Sums of cells after a step, of which the first order is ``mass + base * relative``.

    In small groups the step is so long that the first order leaves what is possible: sums of
    weights stay positive, and a share of the events of a cell, if it is one, between 0 and 1.
    """
    if not split:
        return np.asarray(mass * np.exp(np.clip(relative, -30, 30)))
    share = np.nan_to_num(ratio(mass, base))
    inside = (share > 0) & (share < 1)
    room = np.where(inside, np.where(relative < 0, share, 1 - share), 1.0)
    toward = room * -np.expm1(-np.abs(relative) / room)
    moved = share + np.where(inside, np.sign(relative) * toward, relative)
    return np.asarray(base * moved)


def exchangeable_weights(
    rngs: Sequence[tuple[np.random.Generator, int]], n: int
) -> NDArray[np.uint8]:
    """Independent whole-number weights of mean 1 and variance 1, from one random byte each.

    Parameters
    ----------
    rngs : sequence of (Generator, int)
        With how many replicates each one makes.
    n : int

    Returns
    -------
    (replicates, n) array of uint8
    """
    # the numbers of `integers`, whose checks of its arguments cost as much as 2000 of them
    drawn = [
        rng.bit_generator.random_raw(-(-some * n // 8)).view(np.uint8)[: some * n]
        for rng, some in rngs
    ]
    bits = np.concatenate(drawn)
    passed = np.empty(len(bits), dtype=bool)  # one buffer: five fresh ones would leave the cache
    weights = np.zeros(len(bits), dtype=np.uint8)
    for threshold in _THRESHOLDS:
        np.greater_equal(bits, np.uint8(threshold), out=passed)
        weights += passed.view(np.uint8)
    return weights.reshape(-1, n)
