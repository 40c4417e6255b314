"""Bootstrap replicates of the weighted rates, with the propensity refitted in each.

``group``: rows with replacement within group. Below 5000 rows, and with ``exact=True``, multinomial
counts and a full refit; above, exchangeable weights of mean 1 and variance 1 and one Newton step,
which needs a single pass over the rows for all replicates. ``cluster``: clusters with replacement.
``faircfint``: the scheme of the R package, for comparison only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cfair.estimators.confusion import cell_codes
from cfair.inference.influence import TreatmentModel
from cfair.inference.resampling import Stream, canonical_groups, run_streams, streams
from cfair.nuisance.logistic import fit_logistic, fit_logistic_many, solve_information, sweep
from cfair.options import check_option

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: Kinds of bootstrap.
KINDS: tuple[str, ...] = ("group", "cluster", "faircfint")
EXACT_BELOW = 5000
_BLOCK = 512
_FINITE_BUDGET = 4_000_000  # elements of a replicate-by-row array
# A byte becomes a weight 0..5 of mean exactly 1 and variance exactly 1 by counting thresholds:
# 94, 95, 46, 16, 4 and 1 of the 256 bytes give 0, 1, 2, 3, 4 and 5.
_THRESHOLDS = (94, 189, 235, 251, 255)


@dataclass(frozen=True)
class BootstrapDraws:
    """Bootstrap replicates.

    Attributes
    ----------
    cells : (B, K, 2, 2) array
        Weighted sums of the untreated by group, Y, S.
    observed : (B, K, 2, 2) array
        Counts of all rows by group, Y, S.
    method : str
        How rows were drawn and the propensity refitted.
    not_converged : int
    rows_per_replicate : (B,) array
        Rows drawn.
    """

    cells: Array
    observed: Array
    method: str
    not_converged: int
    rows_per_replicate: Array


@dataclass(frozen=True)
class _Sample:
    """The arrays of an analysis, in canonical order."""

    y: Integers
    s: Integers
    d: Integers
    group: Integers
    n_groups: int
    model: TreatmentModel
    coef: Array
    truncation: tuple[float, float]
    cluster: Integers | None
    rank: NDArray[np.intp]


def bootstrap_draws(
    y: Integers,
    s: Integers,
    d: Integers,
    group: Integers,
    n_groups: int,
    model: TreatmentModel,
    coef: Array,
    *,
    kind: str = "group",
    n_boot: int,
    seed: int,
    truncation: tuple[float, float] = (0.005, 0.995),
    resamples: Sequence[Integers] | Integers | None = None,
    cluster: Integers | None = None,
    n_jobs: int | None = 1,
    exact: bool = False,
    progress: bool = False,
) -> BootstrapDraws:
    """Draw bootstrap replicates of the cells behind the rates.

    Parameters
    ----------
    y, s, d : (n,) arrays of 0 and 1
    group : (n,) array of int
    n_groups : int
    model : TreatmentModel
        With a design of full column rank, or known probabilities.
    coef : (p,) array
        Coefficients of the full sample, empty if the probabilities are known.
    kind : {"group", "cluster", "faircfint"}, default "group"
    n_boot : int
    seed : int
    truncation : (float, float), default (0.005, 0.995)
    resamples : sequence of arrays of int, optional
        Row numbers of each replicate, instead of drawing.
    cluster : (n,) array of int, optional
        Cluster codes, for ``kind="cluster"``.
    n_jobs : int or None, default 1
    exact : bool, default False
    progress : bool, default False

    Returns
    -------
    BootstrapDraws
    """
    canonical = resamples is None
    sample = _arrange(y, s, d, group, n_groups, model, coef, truncation, cluster, canonical)
    n_boot = n_boot if resamples is None else len(resamples)
    blocks = streams(seed, 2, n_boot)
    if resamples is not None:
        method = "rows as given, propensity refitted"

        def work(block: Stream) -> _Part:
            return _refit_rows(sample, resamples[block.first : block.last])
    elif kind == "faircfint":
        method = "faircfint: n^0.75 rows without replacement within group, outcome and prediction"

        def work(block: Stream) -> _Part:
            return _refit_rows(sample, _subsamples(sample, block))
    elif kind == "cluster":
        method = "clusters with replacement, propensity refitted"

        def work(block: Stream) -> _Part:
            return _refit_weights(sample, _cluster_counts(sample, block))
    elif exact or len(d) < EXACT_BELOW:
        method = "rows with replacement within group, propensity refitted"

        def work(block: Stream) -> _Part:
            return _refit_weights(sample, _group_counts(sample, block))
    else:
        method = "exchangeable weights, propensity by one Newton step"
        plan = _one_pass_plan(sample)

        def work(block: Stream) -> _Part:
            return _one_pass(sample, plan, block)

    parts = list(run_streams(work, blocks, n_jobs=n_jobs, progress=progress, label="bootstrap"))
    return BootstrapDraws(
        np.concatenate([p.cells for p in parts])[:, sample.rank],
        np.concatenate([p.observed for p in parts])[:, sample.rank],
        method,
        sum(p.not_converged for p in parts),
        np.concatenate([p.rows for p in parts]),
    )


@dataclass(frozen=True)
class _Part:
    cells: Array
    observed: Array
    not_converged: int
    rows: Array


def _arrange(
    y: Integers,
    s: Integers,
    d: Integers,
    group: Integers,
    n_groups: int,
    model: TreatmentModel,
    coef: Array,
    truncation: tuple[float, float],
    cluster: Integers | None,
    canonical: bool,
) -> _Sample:
    """Rows by group and cell, ties by propensity, so that draws do not depend on the row order."""
    cell = (np.asarray(d, np.intp) * 2 + y) * 2 + s
    rank = np.arange(n_groups)
    order = np.arange(len(d))
    if canonical:
        key = model.pi if model.fitted is None else model.fitted
        rank = canonical_groups(group, n_groups, cell, key)
        order = np.lexsort([key, cell, rank[group]])
        if cluster is not None:
            cluster = _canonical_clusters(cluster, rank[group] * 8 + cell, key)
    if cluster is not None:
        cluster = cluster[order]
    arranged = TreatmentModel(
        model.pi[order],
        None if model.design is None else model.design[order],
        None if model.fitted is None else model.fitted[order],
    )
    return _Sample(
        y[order], s[order], d[order], rank[group][order], n_groups, arranged, coef, truncation,
        cluster, rank,
    )  # fmt: skip


def _canonical_clusters(cluster: Integers, code: Integers, key: Array) -> NDArray[np.intp]:
    """Number the clusters by what is in them, not by the order in which they come."""
    signature = [
        np.round(np.bincount(cluster, weights=values), 6) for values in (key**2, key, code**2, code)
    ]
    order = np.lexsort([*signature, np.bincount(cluster)])
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    return rank[cluster]


def _group_counts(sample: _Sample, block: Stream) -> Array:
    """Multinomial counts within group."""
    rng = block.generator()
    sizes = np.bincount(sample.group, minlength=sample.n_groups)
    ends = np.cumsum(sizes)
    counts = np.empty((block.size, len(sample.group)))
    for row in counts:
        drawn = [
            rng.integers(0, size, size) + end - size
            for size, end in zip(sizes, ends, strict=True)
            if size
        ]
        row[:] = np.bincount(np.concatenate(drawn), minlength=len(row))
    return counts


def _cluster_counts(sample: _Sample, block: Stream) -> Array:
    """Counts of rows when clusters are drawn with replacement."""
    if sample.cluster is None:
        raise ValueError('bootstrap="cluster" needs a cluster column: cluster="site", say.')
    rng = block.generator()
    n_clusters = int(sample.cluster.max()) + 1
    counts = np.empty((block.size, len(sample.group)))
    for row in counts:
        drawn = np.bincount(rng.integers(0, n_clusters, n_clusters), minlength=n_clusters)
        row[:] = drawn[sample.cluster]
    return counts


def faircfint_sizes(strata: Integers, m: int) -> NDArray[np.intp]:
    """Rows to draw from each stratum: its share of m, half rounded to even as R does.

    Parameters
    ----------
    strata : (c,) array of int
        Sizes of the strata.
    m : int

    Returns
    -------
    (c,) array of int
    """
    # R rounds size * (m / n), in this order of operations
    return np.rint(strata * (m / strata.sum())).astype(np.intp)


def _subsamples(sample: _Sample, block: Stream) -> list[Integers]:
    rng = block.generator()
    n = len(sample.group)
    stratum = cell_codes(sample.y, sample.s, sample.group)
    order = np.argsort(stratum, kind="stable")
    sizes = np.bincount(stratum, minlength=4 * sample.n_groups)
    takes = faircfint_sizes(sizes, int(n**0.75))
    starts = np.cumsum(sizes) - sizes
    result = []
    for _ in range(block.size):
        chosen = [
            start + rng.choice(size, take, replace=False, shuffle=False)
            for start, size, take in zip(starts, sizes, takes, strict=True)
            if take
        ]
        result.append(order[np.concatenate(chosen)] if chosen else np.zeros(0, dtype=np.intp))
    return result


def _refit_rows(sample: _Sample, resamples: Sequence[Integers] | Integers) -> _Part:
    """Refit on explicit rows of each replicate."""
    K = sample.n_groups
    cells, observed = np.empty((len(resamples), K, 2, 2)), np.empty((len(resamples), K, 2, 2))
    failures = 0
    for b, drawn in enumerate(resamples):
        rows = np.asarray(drawn, dtype=np.intp)
        pi = sample.model.pi[rows]
        d = sample.d[rows]
        if sample.model.design is not None:
            fit = fit_logistic(sample.model.design[rows], d, start=sample.coef)
            failures += not fit.converged
            pi = np.clip(fit.fitted, *sample.truncation)
        w = np.where(d == 0, 1 / (1 - pi), 0.0)
        code = cell_codes(sample.y[rows], sample.s[rows], sample.group[rows])
        cells[b] = np.bincount(code, weights=w, minlength=4 * K).reshape(K, 2, 2)
        observed[b] = np.bincount(code, minlength=4 * K).reshape(K, 2, 2)
    return _Part(cells, observed, failures, np.array([len(r) for r in resamples], dtype=float))


def _refit_weights(sample: _Sample, counts: Array) -> _Part:
    """Refit under row counts, all replicates of a block at once while they fit in memory."""
    model = sample.model
    K, n = sample.n_groups, len(sample.d)
    cell = cell_codes(sample.y, sample.s, sample.group)
    untreated = sample.d == 0
    failures = 0
    cells = np.empty((len(counts), K, 2, 2))
    observed = np.empty((len(counts), K, 2, 2))
    p = 0 if model.design is None else model.design.shape[1]
    together = n * max(p * (p + 1) // 2, len(counts)) <= _FINITE_BUDGET
    coefs: Array | None = None
    if model.design is not None and together:
        fits = fit_logistic_many(model.design, sample.d, counts, sample.coef)
        failures += int(np.count_nonzero(~fits.converged))
        coefs = fits.coef
    for b, count in enumerate(counts):
        pi = model.pi
        if model.design is not None:
            if coefs is None:
                fit = fit_logistic(model.design, sample.d, weights=count, start=sample.coef)
                failures += not fit.converged
                fitted = fit.fitted
            else:
                fitted = expit(model.design @ coefs[b])
            pi = np.clip(fitted, *sample.truncation)
        w = np.where(untreated, count / (1 - pi), 0.0)
        cells[b] = np.bincount(cell, weights=w, minlength=4 * K).reshape(K, 2, 2)
        observed[b] = np.bincount(cell, weights=count, minlength=4 * K).reshape(K, 2, 2)
    return _Part(cells, observed, failures, counts.sum(axis=1))


@dataclass(frozen=True)
class _Run:
    """Consecutive rows of one cell and treatment arm, counted from the start of their block."""

    first: int
    last: int
    cell: int
    untreated: bool


@dataclass(frozen=True)
class _Plan:
    """Columns, and blocks of rows that stay in cache, each cut into runs."""

    columns: NDArray[np.float32]
    blocks: tuple[tuple[slice, tuple[_Run, ...]], ...]
    hessian: Array
    p: int


def _one_pass_plan(sample: _Sample) -> _Plan:
    model = sample.model
    n = len(sample.d)
    p = 0 if model.design is None else model.design.shape[1]
    untreated = sample.d == 0
    columns = np.zeros((n, 2 + 2 * p), dtype=np.float32)
    columns[:, 0] = np.where(untreated, 1 / (1 - model.pi), 0.0)
    columns[:, 1] = 1.0
    hessian = np.zeros((p, p))
    if model.design is not None and model.fitted is not None:
        X = model.design
        free = model.fitted == model.pi
        odds = np.where(untreated & free, model.pi / (1 - model.pi), 0.0)
        columns[:, 2 : 2 + p] = odds[:, None] * X
        columns[:, 2 + p :] = (sample.d - model.fitted)[:, None] * X
        _, _, hessian = sweep(X, sample.d.astype(float), None, sample.coef)
    cell = cell_codes(sample.y, sample.s, sample.group)
    blocks = []
    for first in range(0, n, _BLOCK):
        last = min(first + _BLOCK, n)
        change = np.diff(cell[first:last] * 2 + untreated[first:last])
        edges = np.concatenate([[0], np.flatnonzero(change) + 1, [last - first]])
        runs = tuple(
            _Run(int(i), int(j), int(cell[first + i]), bool(untreated[first + i]))
            for i, j in pairwise(edges)
        )
        blocks.append((slice(first, last), runs))
    return _Plan(columns, tuple(blocks), hessian, p)


def _one_pass(sample: _Sample, plan: _Plan, block: Stream) -> _Part:
    """Weights from random bytes, sums by cell in one pass, then one Newton step."""
    rng = block.generator()
    K, p, B = sample.n_groups, plan.p, block.size
    sums = np.zeros((B, 4 * K, 2 + p))  # of the weights, the rows, the weight derivatives
    score = np.zeros((B, p))
    for rows, runs in plan.blocks:
        weights = exchangeable_weights(rng, B, rows.stop - rows.start)
        columns = plan.columns[rows]
        score += weights @ columns[:, 2 + p :]
        for run in runs:
            part = weights[:, run.first : run.last]
            if run.untreated:
                sums[:, run.cell] += part @ columns[run.first : run.last, : 2 + p]
            else:
                sums[:, run.cell, 1] += part.sum(axis=1)
    mass, counts, slope = sums[..., 0], sums[..., 1], sums[..., 2:]
    if p:
        delta = solve_information(plan.hessian, score.T).T
        mass = mass + np.einsum("bcp,bp->bc", slope, delta)
    shape = (B, K, 2, 2)
    return _Part(mass.reshape(shape), counts.reshape(shape), 0, counts.sum(axis=1))


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
        NaN where fewer than `MIN_VALID` replicates are defined, or all are equal.
    se : (q,) array
        Standard deviation of the replicates.
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
    se = np.where(enough, np.sqrt(squares.sum(axis=0) / np.maximum(n_valid - 1, 1)), np.nan)
    varied = enough & (se > 0)
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
