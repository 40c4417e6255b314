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
from cfair.inference.moments import block_information
from cfair.inference.refit import CounterfactualModels, Part
from cfair.inference.resampling import Stream, run_streams, streams
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
    work: Callable[[Stream], Part]
    if resamples is not None:
        n_boot, method = len(resamples), f"rows as given, {what} refitted"
        counts = given_counts(resamples, rows.n)
    elif kind in ("group", "rows") and not exact and rows.n >= EXACT_BELOW and added is not None:
        method = f"rows weighted at random, {what} by one Newton step"
        plan = one_pass_plan(models, added)
        counts = None
    else:
        method = f"{SCHEMES[kind]}, {what} refitted"
        counts = count_blocks(kind, rows, models.keys, cluster)
    if counts is None:

        def work(block: Stream) -> Part:
            return one_pass(plan, block)
    else:
        drawn = counts

        def work(block: Stream) -> Part:
            return _refit(models, drawn(block))

    parts = list(
        run_streams(
            work,
            streams(seed, 2, n_boot),
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
    """Consecutive rows of one cell and treatment arm, counted from the start of their block."""

    first: int
    last: int
    cell: int
    treated: bool


@dataclass(frozen=True)
class OnePassPlan:
    """Columns, and blocks of rows that stay in cache, each cut into runs of one cell.

    Attributes
    ----------
    columns : (n, 2 + 2q) float32 array
        What a row adds to the cell of an event (or to its own), its sampling weight, derivatives of
        the former in the q coefficients, and scores.
    blocks : tuple of (slice, runs)
    information : (q, q) array
    split : bool
        Whether a row adds the rest of its weight to the cell of no event.
    at : Arrangement
    """

    columns: NDArray[np.float32]
    blocks: tuple[tuple[slice, tuple[_Run, ...]], ...]
    information: Array
    split: bool
    at: Arrangement


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
    a = np.ones(rows.n) if rows.weights is None else rows.weights
    q = sum(model.design.shape[1] for model in added.models)
    columns = np.zeros((rows.n, 2 + 2 * q), dtype=np.float32)
    columns[:, 0], columns[:, 1] = added.value[at.order, -1] * a[at.order], a[at.order]
    first = 2
    for model, derivative in zip(added.models, added.derivative, strict=True):
        p = model.design.shape[1]
        slope, residual = (derivative[:, -1] * a)[at.order], (model.residual * a)[at.order]
        columns[:, first : first + p] = slope[:, None] * model.at[at.order]
        columns[:, first + q : first + q + p] = residual[:, None] * model.design[at.order]
        first += p
    information = block_information(added.models, rows.weights)
    return OnePassPlan(columns, _row_blocks(at.rows), information, added.cell.shape[1] == 2, at)


def _row_blocks(rows: Rows) -> tuple[tuple[slice, tuple[_Run, ...]], ...]:
    """Blocks of rows, each cut into runs of one cell and treatment arm."""
    cell = cell_codes(rows.y, rows.s, rows.group)
    blocks = []
    for first in range(0, rows.n, _BLOCK):
        last = min(first + _BLOCK, rows.n)
        change = np.diff(cell[first:last] * 2 + rows.d[first:last])
        edges = np.concatenate([[0], np.flatnonzero(change) + 1, [last - first]])
        runs = tuple(
            _Run(int(i), int(j), int(cell[first + i]), bool(rows.d[first + i]))
            for i, j in pairwise(edges)
        )
        blocks.append((slice(first, last), runs))
    return tuple(blocks)


def one_pass(plan: OnePassPlan, block: Stream) -> Part:
    """Weights from random bytes, sums by cell in one pass, then one Newton step.

    Parameters
    ----------
    plan : OnePassPlan
    block : Stream

    Returns
    -------
    Part
    """
    rng = block.generator()
    K, q, B = plan.at.rows.n_groups, len(plan.information), block.size
    sums = np.zeros((B, 4 * K, 2 + q))  # of what rows add, their weights, the derivatives
    score, size = np.zeros((B, q)), np.zeros(B)
    for rows, runs in plan.blocks:
        weights = exchangeable_weights(rng, B, rows.stop - rows.start)
        columns = plan.columns[rows]
        score += weights @ columns[:, 2 + q :]
        size += weights.sum(axis=1)
        for run in runs:
            part = columns[run.first : run.last, : 2 + q]
            # treated rows add nothing to the weighted cells
            wanted = slice(0, 2 + q) if plan.split or not run.treated else slice(1, 2)
            sums[:, run.cell, wanted] += weights[:, run.first : run.last] @ part[:, wanted]
    mass, observed, slope = sums[..., 0], sums[..., 1], sums[..., 2:]
    if q:
        delta = solve_information(plan.information, score.T).T
        mass = mass + np.einsum("bcp,bp->bc", slope, delta)
    cells, observed = (values.reshape(B, K, 2, 2) for values in (mass, observed))
    if plan.split:  # rows with one prediction share the cells of both outcomes
        events, everyone = cells.sum(axis=2), observed.sum(axis=2)
        # sums in single precision
        cells = without_rounding(np.stack([everyone - events, events], axis=2), 1e-6)
    rank = plan.at.rank
    return Part(cells[:, rank], observed[:, rank], 0, size)


def exchangeable_weights(
    rng: np.random.Generator, n_replicates: int, n: int
) -> NDArray[np.float32]:
    """Independent whole-number weights of mean 1 and variance 1, from one random byte each.

    Parameters
    ----------
    rng : Generator
    n_replicates, n : int

    Returns
    -------
    (n_replicates, n) array of float32
    """
    size = n_replicates * n
    bits = rng.integers(0, 2**64, size=-(-size // 8), dtype=np.uint64).view(np.uint8)[:size]
    weights = np.zeros(size, dtype=np.uint8)
    for threshold in _THRESHOLDS:
        weights += bits >= threshold
    return weights.astype(np.float32).reshape(n_replicates, n)


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
