"""The permutation null: group labels permuted over the rows, propensity refitted.

What does not depend on the labels is computed once. Without attributes in the propensity a
permutation is sums of fixed weights by label. With attributes in terms of their own, one Newton
step from the fit without them needs only sums by label, and shifts the odds of a group by a common
factor. Everything else, small data, and ``exact=True`` refit the propensity in every replicate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfair.inference.null_design import NullDesign, NullFit, NullPart, fit_without_labels
from cfair.inference.null_refit import refit_engine
from cfair.inference.null_sums import sums_engine
from cfair.inference.resampling import (
    Stream,
    label_type,
    run_streams,
    shuffled_labels,
    streams,
)
from cfair.inference.rows import Arrangement, Rows

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: How the propensity follows the permuted labels.
FIXED = "the propensity has no attributes and is fitted once"
GROUP_SUMS = "propensity refitted by one step on group sums"
ONE_STEP = "propensity refitted by one Newton step"
REFIT = "propensity refitted"
#: Below this many rows every replicate is refitted to convergence.
EXACT_BELOW = 5000
#: Share of the untreated that may be truncated for group sums, which do not truncate anew.
TRUNCATED_UP_TO = 0.01


@dataclass(frozen=True)
class PermutationNull:
    """Replicates under permuted labels.

    Attributes
    ----------
    cells : (R, K, 2, 2) array
        Weighted sums of the untreated by group, Y, S.
    observed : (R, K, 2, 2) array
        Counts of all rows by group, Y, S.
    wald : (R, 2) array
        Logit Wald statistics of cFPR and cFNR in each replicate.
    method : str
        How the propensity followed the labels.
    not_converged : int
        Replicates whose refit did not converge.
    """

    cells: Array
    observed: Array
    wald: Array
    method: str
    not_converged: int = 0


def permutation_null(
    rows: Rows,
    design: NullDesign,
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
    rows : Rows
    design : NullDesign
    n_perm : int
        Replicates; that of `permutations` when these are given.
    seed : int
    permutations : (R, n) array of int, optional
        Row i of replicate r gets the label of row ``permutations[r, i]``.
    n_jobs : int or None, default 1
    exact : bool, default False
        Refit the propensity to convergence in every replicate whatever the size.
    progress : bool, default False

    Returns
    -------
    PermutationNull

    Notes
    -----
    Errors of the shortcut against the full refit, in standard deviations of the null, are 0.0055 on
    average at n = 5000 and 8e-6 at a million rows.
    """
    fit = fit_without_labels(rows.d, design)
    method = _choose_method(rows.d, design, fit, exact)
    if permutations is None:
        at = rows.canonical(fit.fitted)
    else:
        at = rows.arranged(np.argsort(rows.cell, kind="stable"))
    draw = _labels(rows, at, permutations)
    replicates = _engine(method, at, design, fit)
    blocks = streams(seed, 1, n_perm if permutations is None else len(permutations))
    parts = list(
        run_streams(
            lambda block: replicates(draw(block)),
            blocks,
            n_jobs=n_jobs,
            progress=progress,
            label="permutations",
        )
    )
    return PermutationNull(
        np.concatenate([p.cells for p in parts])[:, at.rank],
        np.concatenate([p.observed for p in parts])[:, at.rank],
        np.concatenate([p.wald for p in parts]),
        method,
        sum(p.not_converged for p in parts),
    )


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


def _engine(
    method: str, at: Arrangement, design: NullDesign, fit: NullFit
) -> Callable[[Integers], NullPart]:
    """What turns labels into replicates."""
    ordered, start = design.arranged(at), fit.arranged(at)
    if method in (FIXED, GROUP_SUMS):
        return sums_engine(at.rows, ordered, start).replicates
    return refit_engine(at.rows, ordered, start, one_step=method == ONE_STEP).replicates


def _labels(
    rows: Rows, at: Arrangement, permutations: Integers | None
) -> Callable[[Stream], Integers]:
    """What gives the labels of a block of replicates, in the order of the arrangement."""
    dtype = label_type(rows.n_groups)
    if permutations is None:
        # sorted, so that rows alike in everything else do not bring their order along
        labels = np.sort(at.rows.group).astype(dtype)
        return lambda block: shuffled_labels(labels, block.size, block.generator())

    def given(block: Stream) -> Integers:
        chosen = np.asarray(permutations[block.first : block.last], dtype=np.intp)
        return rows.group[chosen][:, at.order].astype(dtype)

    return given
