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

import numpy as np
from numpy.typing import NDArray

from cfair.inference.contributions import Contributions
from cfair.inference.drawing import SCHEMES, count_blocks, given_counts
from cfair.inference.one_pass import one_pass, one_pass_plan
from cfair.inference.refit import (
    ENOUGH_INFORMATION,
    CounterfactualModels,
    Part,
    least_information,
)
from cfair.inference.resampling import StreamGroup, run_streams, stream_groups, streams
from cfair.nuisance.binary import BUDGET
from cfair.options import check_option

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: Kinds of bootstrap.
KINDS: tuple[str, ...] = ("group", "rows", "cluster", "faircfint")
EXACT_BELOW = 5000


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
    elif added is not None and kind in ("group", "rows") and not exact and _one_step(models, added):
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


def _one_step(models: CounterfactualModels, added: Contributions) -> bool:
    """Whether replicates come near enough by one Newton step.

    Weights of the untreated are moved by factors, which are right also where the step is long.
    Expected outcomes of a group with little information are not.
    """
    if models.rows.n < EXACT_BELOW:
        return False
    if models.estimator == "ipw" or not models.uses_groups:
        return True
    least = (least_information(model.variance, models.rows) for model in added.models)
    return all(information >= ENOUGH_INFORMATION for information in least)


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
