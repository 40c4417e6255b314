"""Bootstrap replicates of rates under no treatment, with the models refitted in each.

``group``: rows with replacement within group; ``rows``: whatever their group. Below 5000 rows, and
with ``exact=True``, multinomial counts and a full refit; above, for both alike, exchangeable
weights of mean 1 and variance 1 and one Newton step, which needs a single pass over the rows for
all replicates. ``cluster``: clusters with replacement. ``faircfint``: the scheme of the R package,
for comparison only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.confusion import cell_codes
from cfair.inference.contributions import Contributions, without_rounding
from cfair.inference.drawing import SCHEMES, count_blocks, given_counts
from cfair.inference.moments import block_information, sums_by_cell
from cfair.inference.refit import CounterfactualModels, Part
from cfair.inference.resampling import (
    STREAM,
    Stream,
    StreamGroup,
    run_streams,
    stream_groups,
    streams,
)
from cfair.inference.rows import Arrangement, Rows
from cfair.nuisance.binary import BUDGET
from cfair.nuisance.logistic import solve_information
from cfair.options import check_option

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: Kinds of bootstrap.
KINDS: tuple[str, ...] = ("group", "rows", "cluster", "faircfint")
EXACT_BELOW = 5000
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
class BootstrapDraws:
    """Bootstrap replicates.

    Attributes
    ----------
    cells : (B, K, 2, 2) array
        Sums by group, outcome without treatment, and prediction.
    observed : (B, K, 2, 2) array
        Sums of all rows by group, outcome and prediction.
    method : str
        How rows were drawn and the models refitted.
    not_converged : int
    rows_per_replicate : (B,) array
        Rows drawn.
    """

    cells: Array
    observed: Array
    method: str
    not_converged: int
    rows_per_replicate: Array


def bootstrap_draws(
    models: CounterfactualModels,
    *,
    kind: str = "group",
    n_boot: int,
    seed: int,
    resamples: Sequence[Integers] | Integers | None = None,
    cluster: Integers | None = None,
    added: Contributions | None = None,
    n_jobs: int | None = 1,
    exact: bool = False,
    progress: bool = False,
) -> BootstrapDraws:
    """Draw bootstrap replicates of the cells behind the rates.

    Parameters
    ----------
    models : CounterfactualModels
    kind : {"group", "rows", "cluster", "faircfint"}, default "group"
        Not looked at with `resamples`.
    n_boot : int
    seed : int
    resamples : sequence of arrays of int, optional
        Row numbers of each replicate, instead of drawing.
    cluster : (n,) array of int, optional
        Cluster codes, for ``kind="cluster"``.
    added : Contributions, optional
        What the rows add in the full sample, with the fitted models. Without it there is no single
        pass, and every replicate is refitted.
    n_jobs : int or None, default 1
    exact : bool, default False
    progress : bool, default False

    Returns
    -------
    BootstrapDraws
    """
    rows, what = models.rows, "propensity" if models.estimator == "ipw" else "models"
    work: Callable[[StreamGroup], Part]
    together = 1
    if resamples is not None:
        n_boot, method = len(resamples), f"rows as given, {what} refitted"
        counts = given_counts(resamples, rows.n)
    elif kind in ("group", "rows") and not exact and rows.n >= EXACT_BELOW and added is not None:
        method = f"rows weighted at random, {what} by one Newton step"
        plan = one_pass_plan(models, added)
        counts, together = None, plan.together
    else:
        method = f"{SCHEMES[kind]}, {what} refitted"
        counts = count_blocks(kind, rows, models.keys, cluster)
    if counts is None:

        def work(group: StreamGroup) -> Part:
            return one_pass(plan, *group.streams)
    else:
        drawn = counts

        def work(group: StreamGroup) -> Part:
            return _refit(models, drawn(group.streams[0]))

    parts = list(
        run_streams(
            work,
            stream_groups(streams(seed, 2, n_boot), together),
            n_jobs=n_jobs,
            progress=progress,
            label="bootstrap",
            processes=models.learns,
        )
    )
    return BootstrapDraws(
        np.concatenate([p.cells for p in parts]),
        np.concatenate([p.observed for p in parts]),
        method,
        sum(p.not_converged for p in parts),
        np.concatenate([p.size for p in parts]),
    )


def _refit(models: CounterfactualModels, counts: Array) -> Part:
    """Refit under every row of counts, as many at once as fit in memory."""
    together = max(1, BUDGET // counts.shape[1])
    parts = [
        models.under_counts(counts[first : first + together])
        for first in range(0, len(counts), together)
    ]
    return Part(
        np.concatenate([p.cells for p in parts]),
        np.concatenate([p.observed for p in parts]),
        sum(p.not_converged for p in parts),
        np.concatenate([p.size for p in parts]),
    )


# -- all replicates in one pass -------------------------------------------------------------------


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
        Derivatives of the cell sums in the full sample; None if every replicate has its own.
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
    slope = None if own_slope else _full_slopes(added, rows, at)
    return OnePassPlan(
        columns,
        _row_blocks(cell),
        tuple(scores),
        tuple(slopes),
        block_information(added.models, rows.weights),
        slope,
        added.cell.shape[1] == 2,
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


def _full_slopes(added: Contributions, rows: Rows, at: Arrangement) -> Array:
    """Derivatives of the cell sums of the full sample, with groups by their new numbers."""
    own = cell_codes(rows.y, rows.s, at.rank[rows.group])[:, None]
    a = np.ones(rows.n) if rows.weights is None else rows.weights
    parts = [
        sums_by_cell(own, (derivative[:, -1] * a)[:, None], model.at, 4 * rows.n_groups)
        for model, derivative in zip(added.models, added.derivative, strict=True)
    ]
    return np.hstack([np.zeros((4 * rows.n_groups, 0)), *parts])


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
        if plan.slope is None:
            ends = np.cumsum([len(m.others) + len(m.of_group) for m in plan.slopes])
            for model, step in zip(plan.slopes, np.split(delta, ends[:-1], axis=1), strict=True):
                mass = mass + model.along(sums, step)
        else:
            mass = mass + delta @ plan.slope.T
    cells, observed = (values.reshape(B, K, 2, 2) for values in (mass, observed))
    if plan.split:  # rows with one prediction share the cells of both outcomes
        events, everyone = cells.sum(axis=2), observed.sum(axis=2)
        # sums in single precision
        cells = without_rounding(np.stack([everyone - events, events], axis=2), 1e-6)
    rank = plan.at.rank
    return Part(cells[:, rank], observed[:, rank], 0, size)


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


@dataclass(frozen=True)
class BootstrapInterval:
    """An interval from replicates.

    Attributes
    ----------
    low, high : (q,) arrays
        NaN where fewer than `MIN_VALID` replicates are defined, or all are equal but for rounding.
    se : (q,) array
        Standard deviation of the replicates; 0 where all are equal.
    n_valid : (q,) array
        Replicates in which the quantity is defined.
    """

    low: Array
    high: Array
    se: Array
    n_valid: NDArray[np.intp]


#: Intervals from replicates.
INTERVAL_KINDS: tuple[str, ...] = ("percentile", "bc", "normal", "basic")
#: Fewest defined replicates for an interval.
MIN_VALID = 40


def bootstrap_interval(
    estimate: Array, draws: Array, kind: str = "percentile", level: float = 0.95
) -> BootstrapInterval:
    """Intervals from bootstrap replicates.

    Parameters
    ----------
    estimate : (q,) array
    draws : (B, q) array
        NaN where a replicate leaves a quantity undefined.
    kind : {"percentile", "bc", "normal", "basic"}, default "percentile"
        ``"basic"`` is ``[2 est - q_hi, 2 est - q_lo]``; on faircfint's replicates it is what that
        package calls a t-interval.
    level : float, default 0.95

    Returns
    -------
    BootstrapInterval

    Raises
    ------
    ValueError
        If `kind` is none of these.
    """
    from scipy.special import ndtr, ndtri

    check_option("kind", kind, INTERVAL_KINDS)
    defined = ~np.isnan(draws)
    n_valid = defined.sum(axis=0)
    enough = n_valid >= MIN_VALID
    filled = np.where(enough, draws, 0.0)
    mean = np.where(defined, draws, 0.0).sum(axis=0) / np.maximum(n_valid, 1)
    squares = np.where(defined, draws - mean, 0.0) ** 2
    top = np.max(draws, axis=0, where=defined, initial=-np.inf)
    bottom = np.min(draws, axis=0, where=defined, initial=np.inf)
    # not by their standard deviation: that of equal replicates is 1e-17, since a mean is rounded
    varied = enough & (top - bottom > 1e-12 * np.maximum(np.abs(top), np.abs(bottom)))
    se = np.sqrt(squares.sum(axis=0) / np.maximum(n_valid - 1, 1))
    se = np.where(enough, np.where(varied, se, 0.0), np.nan)
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    if kind == "normal":
        half = ndtri(tails[1]) * se
        low, high = estimate - half, estimate + half
    elif kind == "bc":
        below = np.sum(filled < estimate, axis=0) + np.sum(filled == estimate, axis=0) / 2
        z0 = ndtri(np.clip(below / np.maximum(n_valid, 1), 1e-9, 1 - 1e-9))
        wanted = ndtr(2 * z0 + ndtri(tails)[:, None])
        low, high = (
            np.array([np.nanquantile(filled[:, j], row[j]) for j in range(filled.shape[1])])
            for row in wanted
        )
    else:
        low, high = np.nanquantile(filled, tails, axis=0)
        if kind == "basic":
            low, high = 2 * estimate - high, 2 * estimate - low
    return BootstrapInterval(
        np.where(varied, low, np.nan), np.where(varied, high, np.nan), se, n_valid
    )
