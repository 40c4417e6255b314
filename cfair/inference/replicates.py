"""Replicates of rates, whatever estimator and whatever scheme they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.ipw import rates_from_cells
from cfair.inference.drawing import SCHEMES, count_blocks, given_counts
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


@dataclass(frozen=True, eq=False)
class RateDraws:
    """Rates in every replicate of a permutation null or a bootstrap.

    Attributes
    ----------
    rates : dict of str to (R, T) array
        By metric, for the targets of its estimates: groups, then margins, then all; or groups only.
        NaN where a replicate leaves a rate undefined.
    method : str
        How rows or labels were drawn and the models refitted.
    not_converged : int
        Replicates with a refit that did not converge.
    wald : (R, M) array or None
        Logit Wald statistic of equal rates in each permutation, a column for each metric that is
        compared; None where replicates have no standard errors.
    rows_per_replicate : (R,) array or None
        Rows drawn, for a bootstrap.
    notes : tuple of str
        What else there is to say of the replicates; printed after their number.

    Raises
    ------
    ValueError
        If there are no rates, or the arrays do not have a row for every replicate.

    Examples
    --------
    >>> import numpy as np
    >>> draws = RateDraws({"cfpr": np.array([[0.1, 0.2], [0.3, np.nan]])}, method="refitted")
    >>> draws.n_replicates, draws.n_valid("cfpr").tolist()
    (2, [2, 1])
    """

    rates: dict[str, Array]
    method: str
    not_converged: int = 0
    wald: Array | None = None
    rows_per_replicate: Array | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.rates or any(draws.ndim != 2 for draws in self.rates.values()):
            raise ValueError("rates must hold an array (replicates, targets) for each metric.")
        arrays = [*self.rates.values(), self.wald, self.rows_per_replicate]
        given = [a for a in arrays if a is not None]
        if len({len(a) for a in given}) > 1:
            raise ValueError(
                f"every array needs a row for each replicate, not {[len(a) for a in given]}."
            )
        for array in given:
            array.setflags(write=False)

    @property
    def n_replicates(self) -> int:
        """Number of replicates R."""
        return len(next(iter(self.rates.values())))

    def n_valid(self, metric: str) -> NDArray[np.intp]:
        """Replicates in which each rate of a metric is defined.

        Parameters
        ----------
        metric : str

        Returns
        -------
        (T,) array of int
        """
        counted: NDArray[np.intp] = np.count_nonzero(~np.isnan(self.rates[metric]), axis=0)
        return counted


def draws_from_cells(
    cells: Array, membership: Array, metrics: tuple[str, str] = ("cfpr", "cfnr")
) -> dict[str, Array]:
    """False positive and false negative rates of targets, from the cells of the replicates.

    Parameters
    ----------
    cells : (R, K, 2, 2) array
        Sums by group, outcome and prediction.
    membership : (T, K) array of 0 and 1
        Groups in each target. The first K targets are the groups themselves.
    metrics : (str, str), default ("cfpr", "cfnr")
        Names for the two rates.

    Returns
    -------
    dict of str to (R, T) array

    Examples
    --------
    >>> import numpy as np
    >>> cells = np.array([[[[3.0, 1.0], [2.0, 2.0]], [[1.0, 1.0], [0.0, 4.0]]]])
    >>> draws = draws_from_cells(cells, np.array([[1, 0], [0, 1], [1, 1]]))
    >>> draws["cfpr"].round(3).tolist(), draws["cfnr"].tolist()
    ([[0.25, 0.5, 0.333]], [[0.5, 0.0, 0.25]])
    """
    K = cells.shape[1]
    if not np.array_equal(membership[:K], np.eye(K)):
        raise ValueError(f"the first {K} targets must be the {K} groups, in their order.")
    # sums over the groups themselves would cost R K^2 for nothing
    unions = np.einsum("tk,rkys->rtys", membership[K:], cells)
    both = rates_from_cells(np.concatenate([cells, unions], axis=1))
    return dict(zip(metrics, both, strict=True))


#: Fewest replicates in which a rate is defined for a variance from them.
MIN_REPLICATES = 40


def draws_covariance(draws: RateDraws | None, metrics: Sequence[str], estimate: Array) -> Array:
    """Covariance of rates from bootstrap replicates.

    Parameters
    ----------
    draws : RateDraws or None
    metrics : sequence of str
    estimate : (M T,) array
        Rates of the full sample, metric by metric.

    Returns
    -------
    (M T, M T) array
        Positive semidefinite. NaN for a rate that is undefined, or defined in fewer than
        `MIN_REPLICATES` replicates. A pair of rates counts the replicates in which both are
        defined; where such covariances contradict each other, replicates in which one of the two
        is undefined add nothing and count by half, which pulls correlations towards 0.
    """
    size = len(estimate)
    if draws is None:
        return np.full((size, size), np.nan)
    values = np.hstack([draws.rates[metric] for metric in metrics])
    defined = (~np.isnan(values)).astype(np.float64)
    centred = np.where(defined > 0, values - _means(values, defined), 0.0)
    pairs, products = defined.T @ defined, centred.T @ centred
    known = (np.diag(pairs) >= MIN_REPLICATES) & ~np.isnan(estimate)
    covariance = products / np.maximum(pairs - 1, 1)
    if _is_indefinite(covariance[np.ix_(known, known)]):
        # sums of squares of one matrix, with another scale for each column: never indefinite
        each = np.maximum(np.diag(pairs) - 1, 1)
        covariance = products / np.sqrt(np.outer(each, each))
    return np.where(known[:, None] & known[None, :], covariance, np.nan)


def _is_indefinite(covariance: Array) -> bool:
    """Whether some combination has a negative variance, by more than rounding."""
    spread = np.sqrt(np.diag(covariance))
    moves = spread > 0
    correlation = covariance[np.ix_(moves, moves)] / np.outer(spread[moves], spread[moves])
    return bool(np.min(np.linalg.eigvalsh(correlation), initial=0.0) < -1e-10)


def _means(values: Array, defined: Array) -> Array:
    total = np.where(defined > 0, values, 0.0).sum(axis=0)
    return np.asarray(total / np.maximum(defined.sum(axis=0), 1))


# -- replicates of any estimator ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RatePart:
    """A block of replicates.

    Attributes
    ----------
    rates : dict of str to (B, T) array
        As in `RateDraws`.
    not_converged : int
    wald : (B, M) array or None
        Logit Wald statistics under exchanged labels, if there are standard errors.
    """

    rates: dict[str, Array]
    not_converged: int = 0
    wald: Array | None = None


class Refittable(Protocol):
    """An estimator that can be computed again, everything fitted anew."""

    @property
    def rows(self) -> Rows:
        """The rows of the analysis."""

    @property
    def keys(self) -> Sequence[Array]:
        """Numbers that tell rows apart, (n,) each; the first counts most."""

    @property
    def learns(self) -> bool:
        """Whether a learner is among the models."""

    def under_counts(self, counts: Array) -> RatePart:
        """Estimates with every row counted so many times, (B, n)."""

    def under_labels(self, labels: Integers) -> RatePart:
        """Estimates with other group labels, (B, n)."""


def bootstrap_rates(
    estimator: Refittable,
    *,
    kind: str = "group",
    n_boot: int,
    seed: int,
    resamples: Sequence[Integers] | Integers | None = None,
    cluster: Integers | None = None,
    what: str = "models",
    n_jobs: int | None = 1,
    progress: bool = False,
) -> RateDraws:
    """Bootstrap replicates of any estimator, refitted in each.

    Parameters
    ----------
    estimator : Refittable
    kind : {"group", "rows", "cluster", "faircfint"}, default "group"
        Not looked at with `resamples`.
    n_boot : int
    seed : int
    resamples : sequence of arrays of int, optional
        Row numbers of each replicate, instead of drawing.
    cluster : (n,) array of int, optional
    what : str, default "models"
        What is refitted, for the print.
    n_jobs : int or None, default 1
    progress : bool, default False

    Returns
    -------
    RateDraws
    """
    if resamples is None:
        method = f"{SCHEMES[kind]}, {what} refitted"
        draw = count_blocks(kind, estimator.rows, estimator.keys, cluster)
    else:
        method, n_boot = f"rows as given, {what} refitted", len(resamples)
        draw = given_counts(resamples, estimator.rows.n)

    def work(block: Stream) -> tuple[RatePart, Array]:
        counts = draw(block)
        return estimator.under_counts(counts), counts.sum(axis=1)

    blocks = streams(seed, 2, n_boot)
    done = list(
        run_streams(
            work,
            blocks,
            n_jobs=n_jobs,
            progress=progress,
            label="bootstrap",
            processes=estimator.learns,
        )
    )
    draws = _joined([part for part, _ in done], method)
    sizes = np.concatenate([size for _, size in done])
    return RateDraws(draws.rates, method, draws.not_converged, None, sizes)


def permuted_rates(
    estimator: Refittable,
    *,
    n_perm: int,
    seed: int,
    permutations: Integers | None = None,
    what: str = "models",
    n_jobs: int | None = 1,
    progress: bool = False,
) -> RateDraws:
    """Replicates of any estimator with group labels exchanged at random.

    Parameters
    ----------
    estimator : Refittable
    n_perm : int
    seed : int
    permutations : (R, n) array of int, optional
        Row i of replicate r gets the label of row ``permutations[r, i]``.
    what : str, default "models"
        What is refitted, for the print.
    n_jobs : int or None, default 1
    progress : bool, default False

    Returns
    -------
    RateDraws
    """
    rows = estimator.rows
    if permutations is None:
        at = rows.canonical(*estimator.keys)
    else:
        at, n_perm = rows.arranged(np.arange(rows.n)), len(permutations)
    draw = label_blocks(rows, at, permutations)

    def work(block: Stream) -> RatePart:
        return estimator.under_labels(own_labels(draw(block), at))

    parts = run_streams(
        work,
        streams(seed, 1, n_perm),
        n_jobs=n_jobs,
        progress=progress,
        label="permutations",
        processes=estimator.learns,
    )
    return _joined(list(parts), f"{what} refitted")


def label_blocks(
    rows: Rows, at: Arrangement, permutations: Integers | None = None
) -> Callable[[Stream], Integers]:
    """What gives the labels of a block of replicates, in the order of an arrangement.

    Parameters
    ----------
    rows : Rows
    at : Arrangement
        Of these rows.
    permutations : (R, n) array of int, optional

    Returns
    -------
    callable of a Stream
        Gives a (B, n) array of unsigned int, the arrangement's numbers of the groups.
    """
    dtype = label_type(rows.n_groups)
    if permutations is None:
        # sorted, so that rows alike in everything else do not bring their order along
        labels = np.sort(at.rows.group).astype(dtype)
        return lambda block: shuffled_labels(labels, block.size, block.generator())

    def given(block: Stream) -> Integers:
        chosen = np.asarray(permutations[block.first : block.last], dtype=np.intp)
        return rows.group[chosen][:, at.order].astype(dtype)

    return given


def own_labels(labels: Integers, at: Arrangement) -> Integers:
    """Labels in the order of an arrangement, as those of the rows as they came.

    Parameters
    ----------
    labels : (B, n) array of int
    at : Arrangement

    Returns
    -------
    (B, n) array of int
    """
    return at.put_back(np.asarray(at.groups, dtype=labels.dtype)[labels])


def _joined(parts: Sequence[RatePart], method: str) -> RateDraws:
    walds = [part.wald for part in parts if part.wald is not None]
    return RateDraws(
        {
            metric: np.concatenate([part.rates[metric] for part in parts])
            for metric in parts[0].rates
        },
        method,
        sum(part.not_converged for part in parts),
        np.concatenate(walds) if walds else None,
    )
