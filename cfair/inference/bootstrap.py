"""Bootstrap replicates of the weighted rates, with the propensity refitted in each.

``group``: rows with replacement within group. Below 5000 rows, and with ``exact=True``, multinomial
counts and a full refit; above, exchangeable weights of mean 1 and variance 1 and one Newton step,
which needs a single pass over the rows for all replicates. ``cluster``: clusters with replacement.
``faircfint``: the scheme of the R package, for comparison only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cfair.estimators.confusion import cell_codes
from cfair.inference.influence import TreatmentModel, weight_derivative
from cfair.inference.resampling import Stream, run_streams, streams
from cfair.inference.rows import Arrangement, Rows, canonical_clusters
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
    """What the replicates are drawn from, with everything in the order of the arrangement."""

    at: Arrangement
    model: TreatmentModel
    coef: Array
    truncation: tuple[float, float]
    cluster: Integers | None

    @property
    def rows(self) -> Rows:
        """The rows, in order."""
        return self.at.rows


@dataclass(frozen=True)
class _Part:
    """A block of replicates."""

    cells: Array
    observed: Array
    not_converged: int
    rows: Array


def bootstrap_draws(
    rows: Rows,
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
    rows : Rows
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
    sample = _sample(rows, model, coef, truncation, cluster, canonical=resamples is None)
    if resamples is None:
        method, work = _scheme(sample, kind, exact)
    else:
        given = resamples
        n_boot = len(given)
        method = "rows as given, propensity refitted"

        def work(block: Stream) -> _Part:
            return _refit_rows(sample, given[block.first : block.last])

    blocks = streams(seed, 2, n_boot)
    parts = list(run_streams(work, blocks, n_jobs=n_jobs, progress=progress, label="bootstrap"))
    return BootstrapDraws(
        np.concatenate([p.cells for p in parts])[:, sample.at.rank],
        np.concatenate([p.observed for p in parts])[:, sample.at.rank],
        method,
        sum(p.not_converged for p in parts),
        np.concatenate([p.rows for p in parts]),
    )


def _scheme(sample: _Sample, kind: str, exact: bool) -> tuple[str, Callable[[Stream], _Part]]:
    """How a block of replicates is drawn, in words and in code."""
    if kind == "faircfint":
        return (
            "faircfint: n^0.75 rows without replacement within group, outcome and prediction",
            lambda block: _refit_rows(sample, _subsamples(sample.rows, block)),
        )
    if kind == "cluster":
        return (
            "clusters with replacement, propensity refitted",
            lambda block: _refit_weights(sample, _cluster_counts(sample, block)),
        )
    if exact or sample.rows.n < EXACT_BELOW:
        return (
            "rows with replacement within group, propensity refitted",
            lambda block: _refit_weights(sample, _group_counts(sample.rows, block)),
        )
    plan = _one_pass_plan(sample)
    return (
        "rows weighted at random, propensity by one Newton step",
        lambda block: _one_pass(sample, plan, block),
    )


def _sample(
    rows: Rows,
    model: TreatmentModel,
    coef: Array,
    truncation: tuple[float, float],
    cluster: Integers | None,
    *,
    canonical: bool,
) -> _Sample:
    """Rows by group and cell, ties by propensity, so that draws do not depend on the row order."""
    key = model.pi if model.fitted is None else model.fitted
    at = rows.canonical(key, by_group=True) if canonical else rows.arranged(np.arange(rows.n))
    if cluster is not None:
        if canonical:
            cluster = canonical_clusters(cluster, at.rank[rows.group] * 8 + rows.cell, key)
        cluster = cluster[at.order]
    arranged = TreatmentModel(
        model.pi[at.order],
        None if model.design is None else model.design[at.order],
        None if model.fitted is None else model.fitted[at.order],
    )
    return _Sample(at, arranged, coef, truncation, cluster)


def _group_counts(rows: Rows, block: Stream) -> Array:
    """Multinomial counts within group."""
    rng = block.generator()
    sizes = rows.sizes
    ends = np.cumsum(sizes)
    counts = np.empty((block.size, rows.n))
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
    counts = np.empty((block.size, sample.rows.n))
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


def _subsamples(rows: Rows, block: Stream) -> list[Integers]:
    """Rows without replacement from every stratum of group, outcome and prediction."""
    rng = block.generator()
    stratum = cell_codes(rows.y, rows.s, rows.group)
    order = np.argsort(stratum, kind="stable")
    sizes = np.bincount(stratum, minlength=4 * rows.n_groups)
    takes = faircfint_sizes(sizes, int(rows.n**0.75))
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
    rows, model, K = sample.rows, sample.model, sample.rows.n_groups
    cells, observed = np.empty((len(resamples), K, 2, 2)), np.empty((len(resamples), K, 2, 2))
    failures = 0
    for b, numbers in enumerate(resamples):
        drawn = np.asarray(numbers, dtype=np.intp)
        pi, d = model.pi[drawn], rows.d[drawn]
        if model.design is not None:
            fit = fit_logistic(model.design[drawn], d, start=sample.coef)
            failures += not fit.converged
            pi = np.clip(fit.fitted, *sample.truncation)
        w = np.where(d == 0, 1 / (1 - pi), 0.0)
        code = cell_codes(rows.y[drawn], rows.s[drawn], rows.group[drawn])
        cells[b] = np.bincount(code, weights=w, minlength=4 * K).reshape(K, 2, 2)
        observed[b] = np.bincount(code, minlength=4 * K).reshape(K, 2, 2)
    return _Part(cells, observed, failures, np.array([len(r) for r in resamples], dtype=float))


def _refit_weights(sample: _Sample, counts: Array) -> _Part:
    """Refit under row counts."""
    rows, K = sample.rows, sample.rows.n_groups
    cell = cell_codes(rows.y, rows.s, rows.group)
    untreated = rows.d == 0
    cells, observed = np.empty((len(counts), K, 2, 2)), np.empty((len(counts), K, 2, 2))
    failures = 0
    for b, (pi, converged) in enumerate(_refits(sample, counts)):
        failures += not converged
        w = np.where(untreated, counts[b] / (1 - pi), 0.0)
        cells[b] = np.bincount(cell, weights=w, minlength=4 * K).reshape(K, 2, 2)
        observed[b] = np.bincount(cell, weights=counts[b], minlength=4 * K).reshape(K, 2, 2)
    return _Part(cells, observed, failures, counts.sum(axis=1))


def _refits(sample: _Sample, counts: Array) -> Iterator[tuple[Array, bool]]:
    """Truncated propensity under each row of counts, and whether its fit converged.

    All replicates of a block at once while they fit in memory.
    """
    model, d = sample.model, sample.rows.d
    if model.design is None:
        for _ in counts:
            yield model.pi, True
        return
    p = model.design.shape[1]
    if len(d) * max(p * (p + 1) // 2, len(counts)) <= _FINITE_BUDGET:
        fits = fit_logistic_many(model.design, d, counts, sample.coef)
        for coef, converged in zip(fits.coef, fits.converged, strict=True):
            yield np.clip(expit(model.design @ coef), *sample.truncation), bool(converged)
        return
    for count in counts:
        fit = fit_logistic(model.design, d, weights=count, start=sample.coef)
        yield np.clip(fit.fitted, *sample.truncation), fit.converged


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
    """Columns and blocks that all replicates of the one-pass bootstrap share."""
    model, d, n = sample.model, sample.rows.d, sample.rows.n
    p = 0 if model.design is None else model.design.shape[1]
    untreated = d == 0
    columns = np.zeros((n, 2 + 2 * p), dtype=np.float32)
    columns[:, 0] = np.where(untreated, 1 / (1 - model.pi), 0.0)
    columns[:, 1] = 1.0
    hessian = np.zeros((p, p))
    if model.design is not None and model.fitted is not None:
        X = model.design
        columns[:, 2 : 2 + p] = weight_derivative(d, model)[:, None] * X
        columns[:, 2 + p :] = (d - model.fitted)[:, None] * X
        _, _, hessian = sweep(X, d.astype(float), None, sample.coef)
    return _Plan(columns, _row_blocks(sample.rows), hessian, p)


def _row_blocks(rows: Rows) -> tuple[tuple[slice, tuple[_Run, ...]], ...]:
    """Blocks of rows, each cut into runs of one cell and treatment arm."""
    cell, untreated = cell_codes(rows.y, rows.s, rows.group), rows.d == 0
    blocks = []
    for first in range(0, rows.n, _BLOCK):
        last = min(first + _BLOCK, rows.n)
        change = np.diff(cell[first:last] * 2 + untreated[first:last])
        edges = np.concatenate([[0], np.flatnonzero(change) + 1, [last - first]])
        runs = tuple(
            _Run(int(i), int(j), int(cell[first + i]), bool(untreated[first + i]))
            for i, j in pairwise(edges)
        )
        blocks.append((slice(first, last), runs))
    return tuple(blocks)


def _one_pass(sample: _Sample, plan: _Plan, block: Stream) -> _Part:
    """Weights from random bytes, sums by cell in one pass, then one Newton step."""
    rng = block.generator()
    K, p, B = sample.rows.n_groups, plan.p, block.size
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
