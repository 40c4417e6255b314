"""The permutation null: group labels permuted over the rows, models refitted.

What does not depend on the labels is computed once. Without attributes in the models a
permutation is sums of fixed weights by label. With attributes in terms of their own, one Newton
step from the fit without them needs only sums by label, and shifts the odds of a group by a common
factor. In large data these sums come from random tables of like rows by label, in smaller from the
labels of all rows. Everything else, small data, groups with little information on an outcome model,
and ``exact=True`` refit the models in every replicate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cfair.inference.null_design import NullDesign, NullFit, fit_without_labels, null_design
from cfair.inference.null_outcome import can_shift, outcome_sums, outcome_tables
from cfair.inference.null_refits import refits_together
from cfair.inference.null_sums import SumsEngine, sums_engine, tables_engine
from cfair.inference.refit import (
    ENOUGH_INFORMATION,
    CounterfactualModels,
    Part,
    least_information,
)
from cfair.inference.replicates import label_blocks, own_labels
from cfair.inference.resampling import (
    STREAM,
    StreamGroup,
    run_streams,
    stream_groups,
    streams,
)
from cfair.inference.rows import Arrangement, Rows

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: How the models follow the permuted labels.
FIXED = "the propensity has no attributes and is fitted once"
FIXED_MODELS = "the models have no attributes and are fitted once"
GROUP_SUMS = "propensity refitted by one step on group sums"
ONE_STEP = "propensity refitted by one Newton step"
GROUP_SUMS_MODELS = "models refitted by one step on group sums"
ONE_STEP_MODELS = "models refitted by one Newton step"
REFIT = "propensity refitted"
REFIT_MODELS = "models refitted"
#: Added to these where labels are drawn as tables.
BY_TABLES = "; labels counted by runs of like rows"
#: Below this many rows every replicate is refitted to convergence.
EXACT_BELOW = 5000
#: Share of the untreated that may be truncated for group sums, which do not truncate anew.
TRUNCATED_UP_TO = 0.01
# Numbers of a pass: with 5000 rows, 100 replicates take a third less time than four times 25.
_CACHED = 500_000


@dataclass(frozen=True)
class PermutationNull:
    """Replicates under permuted labels.

    Attributes
    ----------
    cells : (R, K, 2, 2) array
        Sums by group, outcome without treatment, and prediction.
    observed : (R, K, 2, 2) array
        Sums of all rows by group, outcome and prediction.
    wald : (R, 2) array
        Logit Wald statistics of cFPR and cFNR in each replicate.
    method : str
        How the models, propensity and outcome model, followed the labels.
    not_converged : int
        Replicates whose refit did not converge.
    """

    cells: Array
    observed: Array
    wald: Array
    method: str
    not_converged: int = 0


def permutation_null(
    models: CounterfactualModels,
    *,
    n_perm: int,
    seed: int,
    permutations: Integers | None = None,
    n_jobs: int | None = 1,
    exact: bool = False,
    progress: bool = False,
) -> PermutationNull:
    """Distribution of the rates when group labels are exchanged at random.

    Parameters
    ----------
    models : CounterfactualModels
    n_perm : int
        Replicates; that of `permutations` when these are given.
    seed : int
    permutations : (R, n) array of int, optional
        Row i of replicate r gets the label of row ``permutations[r, i]``.
    n_jobs : int or None, default 1
    exact : bool, default False
        Refit the models to convergence in every replicate, and add up its rows, whatever the size.
    progress : bool, default False

    Returns
    -------
    PermutationNull

    Notes
    -----
    How far the shortcuts are from full refits is measured in ``validation/benchmark.md`` and
    ``validation/growth.md``.
    """
    way = _way(models, exact, permutations)
    blocks = streams(seed, 1, n_perm if permutations is None else len(permutations))
    parts = list(
        run_streams(
            way.work,
            stream_groups(blocks, way.together),
            n_jobs=n_jobs,
            progress=progress,
            label="permutations",
            processes=models.learns,
        )
    )
    return PermutationNull(
        np.concatenate([p.cells for p in parts])[:, way.rank],
        np.concatenate([p.observed for p in parts])[:, way.rank],
        np.concatenate([p.wald for p in parts if p.wald is not None]),
        way.method,
        sum(p.not_converged for p in parts),
    )


@dataclass(frozen=True)
class _Way:
    """How replicates come about: what makes a group of streams, and how many are in one."""

    method: str
    work: Callable[[StreamGroup], Part]
    rank: NDArray[np.intp]  # number that a group has in them
    together: int = 1


def _from_labels(
    method: str,
    replicates: Callable[[Integers], Part],
    rows: Rows,
    at: Arrangement,
    permutations: Integers | None,
    together: int = 1,
) -> _Way:
    """Draw the labels of all rows, and make replicates of them."""
    draw = label_blocks(rows, at, permutations)

    def work(group: StreamGroup) -> Part:
        blocks = [draw(stream) for stream in group.streams]
        return replicates(blocks[0] if len(blocks) == 1 else np.concatenate(blocks))

    return _Way(method, work, at.rank, together)


def _together(engine: SumsEngine, rows: Rows) -> int:
    """How many streams share a pass: fewer where labels and sums would leave the cache."""
    width = max(rows.n, 8 * rows.n_groups * engine.untreated.shape[1])
    return max(1, _CACHED // (STREAM * width))


def _way(models: CounterfactualModels, exact: bool, permutations: Integers | None) -> _Way:
    """How the models follow the labels, and what turns random numbers into replicates."""
    rows, canonical = models.rows, permutations is None

    def by_cell(*keys: Array) -> Arrangement:
        if canonical:
            return rows.canonical(*keys)
        return rows.arranged(np.argsort(rows.cell, kind="stable"))

    if models.estimator == "ipw" and (models.treatment is None or models.treatment.in_sample):
        design = null_design(models.treatment, models.pi, models.truncation)
        start = _start(models, design)
        method = _choose_method(rows.d, design, start, exact)
        if method in (FIXED, GROUP_SUMS):
            if canonical and not exact:
                rank = rows.canonical_groups(start.fitted)
                tables = tables_engine(rows, rank, design, start)
                if tables is not None:
                    counted = method + BY_TABLES
                    return _Way(counted, lambda group: tables.replicates(*group.streams), rank)
            at = by_cell(start.fitted)
            engine = sums_engine(rows, at, design, start)
            together = _together(engine, rows)
            return _from_labels(method, engine.replicates, rows, at, permutations, together)
        keys = [start.fitted]
    else:
        method = _method_for_models(models, exact)
        if method in (FIXED_MODELS, GROUP_SUMS_MODELS):
            if canonical and not exact:
                rank = rows.canonical_groups(models.keys[0])
                by_table = outcome_tables(models, rank)
                if by_table is not None:
                    counted = method + BY_TABLES
                    return _Way(counted, lambda group: by_table.replicates(*group.streams), rank)
            at = by_cell(*models.keys)
            sums = outcome_sums(models, at)
            return _from_labels(method, sums.replicates, rows, at, permutations)
        keys = models.keys
    at = rows.canonical(*keys) if canonical else rows.arranged(np.arange(rows.n))
    one_step = method in (ONE_STEP, ONE_STEP_MODELS)
    # a start under separation is far out, where no step tells that it is
    together_engine = None if method != REFIT or start.careful else refits_together(models)

    def refit(labels: Integers) -> Part:
        own = own_labels(labels, at)
        if together_engine is not None:
            part = together_engine.replicates(own)
        else:
            part = models.under_labels(own, one_step=one_step)
        # groups by their new numbers, as all engines give them
        order = at.groups
        return Part(
            part.cells[:, order],
            part.observed[:, order],
            part.not_converged,
            part.size,
            part.wald,
        )

    return _from_labels(method, refit, rows, at, permutations)


def _start(models: CounterfactualModels, design: NullDesign) -> NullFit:
    """The fit without labels: that of the full sample, where it has none."""
    coef, fitted, pi = models.coef, models.fitted, models.pi
    if design.free_of_attributes and coef is not None and fitted is not None and pi is not None:
        return NullFit(coef[~np.isnan(coef)], fitted, pi)
    return fit_without_labels(models.rows.d, design, models.rows.weights)


def _method_for_models(models: CounterfactualModels, exact: bool) -> str:
    """How the models of an estimator with an outcome model are to follow the labels."""
    if models.estimator != "ipw" and models.in_sample and not models.uses_groups:
        return FIXED_MODELS
    if not models.in_sample or exact or models.rows.n < EXACT_BELOW:
        return REFIT_MODELS
    if models.estimator != "ipw" and not _informed(models):
        return REFIT_MODELS
    if models.estimator == "ipw" or not can_shift(models):
        return ONE_STEP_MODELS
    return ONE_STEP_MODELS if _truncates(models) else GROUP_SUMS_MODELS


def _informed(models: CounterfactualModels) -> bool:
    """Whether every group is likely to have enough to tell its coefficients from, whatever labels.

    Expected outcomes move by the exponential of a coefficient, in which one step from 0 goes astray
    where the group has few events.
    """
    rows = models.rows
    share = float(rows.sizes[rows.sizes > 0].min()) / rows.n
    everyone = replace(rows, group=np.zeros(rows.n, dtype=np.intp), n_groups=1)
    return all(
        share * least_information(model.variance_without_labels, everyone) >= ENOUGH_INFORMATION
        for model in models.refitted.values()
        if model.uses_groups
    )


def _truncates(models: CounterfactualModels) -> bool:
    """Whether so many untreated rows are truncated that group sums are too rough."""
    if models.fitted is None or models.pi is None:
        return False
    untreated = models.rows.d == 0
    truncated = np.count_nonzero(untreated & (models.fitted != models.pi))
    return bool(truncated > TRUNCATED_UP_TO * np.count_nonzero(untreated))


def _choose_method(d: Integers, design: NullDesign, fit: NullFit, exact: bool) -> str:
    """How the propensity is to follow the labels."""
    if design.free_of_attributes:
        return FIXED
    if exact or fit.careful or len(d) < EXACT_BELOW:
        return REFIT
    if design.mixed is not None or not design.has_constant:
        return ONE_STEP
    # Group sums leave truncated rows where they are without labels; one step truncates anew.
    truncated = np.count_nonzero(fit.truncated & (d == 0))
    return ONE_STEP if truncated > TRUNCATED_UP_TO * np.count_nonzero(d == 0) else GROUP_SUMS
