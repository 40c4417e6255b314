"""Replicates of the R package's null and bootstrap, all models refitted in each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.observed import targets
from cfair.analyses.replicates import Replicates
from cfair.cohort import Cohort
from cfair.errors import ConvergenceWarning, warn
from cfair.faircfint.drawing import (
    blocks,
    check_given,
    deal_folds,
    given_folds,
    relabelled,
    subsamples,
)
from cfair.faircfint.figures import SMALL
from cfair.faircfint.fits import Fits
from cfair.faircfint.models import Settings
from cfair.inference.bootstrap import bootstrap_draws
from cfair.inference.permutation import permutation_null
from cfair.inference.replicates import draws_from_cells
from cfair.inference.resampling import run_streams
from cfair.inference.small_subgroup import ALPHA, SmallSubgroupModels
from cfair.nuisance.binary import BinaryModel
from cfair.nuisance.crossfit import Folds

Array = NDArray[np.float64]
Rates = dict[str, Array]

OBSERVED, WEIGHTED = ("fpr", "fnr"), ("cfpr", "cfnr")


def null_rates(fits: Fits, s: Settings, replicates: Replicates) -> Rates | None:
    """Rates under permuted groups.

    Parameters
    ----------
    fits : Fits
    s : Settings
    replicates : Replicates

    Returns
    -------
    dict of str to (R, T) array, or None
    """
    if not s.permutes:
        return None
    models = fits.refitted.models
    if not s.small:
        found = permutation_null(
            models,
            n_perm=s.n_null,
            seed=s.seed,
            permutations=replicates.permutations,
            n_jobs=s.n_jobs,
            exact=True,
        )
        _say_not_converged(found.not_converged, s.n_null, "null")
        return from_cells(fits.cohort, found.cells, found.observed)
    check_given("null_folds", s.null_folds, [models.rows.n] * s.n_null)
    assert fits.small_refitted is not None
    small = fits.small_refitted
    draw = relabelled(models.rows, small.keys, replicates.permutations)
    at = models.rows.canonical(*small.keys, by_group=True)

    def work(block: Any) -> list[tuple[Rates, int]]:
        rows, folds = block
        rng, found = folds.generator(), []
        for r, labels in enumerate(draw(rows), rows.first):
            label = np.asarray(labels, dtype=np.intp)
            if s.null_folds is None:
                codes = deal_folds(label, int(s.nfolds), at, rng)
            else:
                codes = given_folds(s.null_folds[r], models.rows.n, "null_folds")
            part = models.under_labels(label[None])
            more = _with_folds(small, codes).under_labels(label[None])
            found.append(_joined(fits.cohort, part, more))
        return found

    return _collected(work, blocks("null", s.n_null, s.seed), s, "null")


def boot_rates(fits: Fits, s: Settings, replicates: Replicates) -> Rates | None:
    """Rates in subsamples.

    Parameters
    ----------
    fits : Fits
    s : Settings
    replicates : Replicates

    Returns
    -------
    dict of str to (B, T) array, or None
    """
    if not s.bootstraps:
        return None
    models, resamples = fits.refitted.models, replicates.resamples
    keys = models.keys if fits.small_refitted is None else fits.small_refitted.keys
    if resamples is None:
        resamples = subsamples(models.rows, keys, s.n_boot, s.m_factor, s.seed)
    if not s.small:
        found = bootstrap_draws(
            models, n_boot=s.n_boot, seed=s.seed, resamples=resamples, n_jobs=s.n_jobs
        )
        _say_not_converged(found.not_converged, s.n_boot, "bootstrap")
        return from_cells(fits.cohort, found.cells, found.observed)
    check_given("boot_folds", s.boot_folds, [len(rows) for rows in resamples])
    assert fits.small_refitted is not None
    small, n = fits.small_refitted, models.rows.n
    at = models.rows.canonical(*keys, by_group=True)

    def work(block: Any) -> list[tuple[Rates, int]]:
        streams, folds = block
        rng, found = folds.generator(), []
        for r in range(streams.first, streams.last):
            rows = np.asarray(resamples[r], dtype=np.intp)
            counts = np.bincount(rows, minlength=n).astype(np.float64)[None]
            if s.boot_folds is None:
                drawn = np.flatnonzero(counts[0])
                codes = deal_folds(models.rows.group, int(s.nfolds), at, rng, drawn)
            else:
                codes = np.zeros(n, dtype=np.intp)
                codes[rows] = given_folds(s.boot_folds[r], len(rows), "boot_folds")
            part = models.under_counts(counts)
            more = _with_folds(small, codes).under_counts(counts)
            found.append(_joined(fits.cohort, part, more))
        return found

    return _collected(work, blocks("boot", s.n_boot, s.seed), s, "bootstrap")


def _with_folds(models: SmallSubgroupModels, codes: NDArray[np.intp]) -> SmallSubgroupModels:
    """The models with other folds."""
    folds = Folds(codes, int(codes.max()) + 1, drawn=False)

    def of(model: BinaryModel) -> BinaryModel:
        return model if model.folds is None else replace(model, folds=folds)

    return replace(
        models,
        membership=replace(models.membership, folds=folds),
        outcome=of(models.outcome),
        outcome_with_call=of(models.outcome_with_call),
    )


def from_cells(cohort: Cohort, cells: Array, observed: Array) -> Rates:
    """Rates of groups, margins and all rows from weighted and plain cells.

    Parameters
    ----------
    cohort : Cohort
    cells, observed : (R, K, 2, 2) arrays

    Returns
    -------
    dict of str to (R, T) array
    """
    T = targets(cohort)
    return {**draws_from_cells(observed, T, OBSERVED), **draws_from_cells(cells, T, WEIGHTED)}


def _joined(cohort: Cohort, part: Any, more: Any) -> tuple[Rates, int]:
    """One replicate: rates by weighting and of small groups, and whether a fit failed."""
    rates = from_cells(cohort, part.cells, part.observed)
    rates |= {SMALL[0]: more.rates["cfpr"], SMALL[1]: more.rates["cfnr"]}
    if ALPHA in more.rates:
        rates[ALPHA] = more.rates[ALPHA]
    return rates, int(part.not_converged + more.not_converged > 0)


def _collected(work: Any, of: list[Any], s: Settings, what: str) -> Rates:
    done = run_streams(
        work, of, n_jobs=s.n_jobs, label=what, processes=s.fit_method_int != "multinomial"
    )
    found = [one for block in done for one in block]
    _say_not_converged(sum(failed for _, failed in found), len(found), what)
    first = found[0][0]
    return {metric: np.concatenate([rates[metric] for rates, _ in found]) for metric in first}


def _say_not_converged(failed: int, n: int, what: str) -> None:
    if failed:
        warn(
            f"{what}: in {failed} of {n} replicates a model did not converge, or lacked a group "
            "outside some fold.",
            ConvergenceWarning,
        )
