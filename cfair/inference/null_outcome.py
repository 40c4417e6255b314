"""The permutation null of rates with an outcome model, from sums by label.

Where attributes are in terms of their own, permuted labels shift the linear predictor of every
model by a number per group. One Newton step from the fit without labels gives these numbers from
sums by label; the scores follow in closed form from more sums, exactly in the shift of the
propensity and to second order in that of the outcome model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cfair.estimators.confusion import ratio
from cfair.estimators.ipw import rates_from_cells
from cfair.inference.contributions import without_rounding
from cfair.inference.equality import logit_wald
from cfair.inference.label_sums import label_sums
from cfair.inference.label_tables import Along, LabelTables, alike, large_enough, like_rows
from cfair.inference.null_design import group_step, null_design
from cfair.inference.refit import CounterfactualModels, Part
from cfair.inference.resampling import Stream
from cfair.inference.rows import Arrangement
from cfair.nuisance.binary import BinaryModel

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

# Runs of a cell along the probability of treatment, and in each of them along that of the outcome.
_RUNS = 8


@dataclass(frozen=True)
class Shift:
    """What labels do to one model: its score and information by label, and the group columns.

    Attributes
    ----------
    scores : (n, 2) array
        Residual and variance of the fit without labels; 0 for a row that the fit does not use.
    basis : (K, q) array
        Group columns; without any where the model has no attributes.
    """

    scores: Array
    basis: Array

    def arranged(self, at: Arrangement) -> Shift:
        """The same for rows and groups in another order.

        Parameters
        ----------
        at : Arrangement

        Returns
        -------
        Shift
        """
        return Shift(self.scores[at.order], self.basis[at.groups])

    def step(self, sums: Array) -> Array:
        """Shift of the linear predictor of every group.

        Parameters
        ----------
        sums : (R, K, 2) array
            Of the scores by label.

        Returns
        -------
        (R, K) array
        """
        if not self.basis.shape[1]:
            return np.zeros(sums.shape[:2])
        return group_step(self.basis, sums[..., 0], sums[..., 1])


def _replicates(
    everyone: Array, untreated: Array, treatment: Array | float, outcome: Array | float
) -> Part:
    """Cells, counts and Wald statistics from sums by cell and label, and shifts by label."""
    R, _, K, _ = everyone.shape
    sums = everyone.reshape(R, 2, 2, 2, K, -1)  # D, Y, S
    observed = sums[..., 0].sum(axis=1).transpose(0, 3, 1, 2)
    total, score, first, second, *squares = np.moveaxis(sums.sum(axis=(1, 2)), -1, 0)
    free = untreated.reshape(R, 2, 2, K, -1)
    residual, slope, curve = np.moveaxis(free[..., :3].sum(axis=1), -1, 0)
    delta = np.broadcast_to(outcome, (R, K))[:, None, :]
    factor = np.expm1(np.broadcast_to(treatment, (R, K)))[:, None, :]
    events = score + delta * first + delta**2 * second
    events = events + factor * (residual - delta * slope - delta**2 * curve)
    cells = np.stack([total - events, events], axis=1).transpose(0, 3, 1, 2)  # R, K, Y, S
    cells = without_rounding(cells)
    wald = _walds(cells, squares, free[..., 3:].transpose(4, 0, 3, 1, 2))
    return Part(cells, observed, 0, np.zeros(0), wald)


def _walds(cells: Array, squares: list[Array], base: Array) -> Array:
    """Wald statistics with the models as known; scores squared are those without labels."""
    one, score, score2 = (values.transpose(0, 2, 1) for values in squares)  # R, K, S
    # second moments of 1 - phi and phi, and their product, of the rows with one prediction
    moments = np.stack([one - 2 * score + score2, score2, score - score2])
    walds = []
    for m, theta in enumerate(rates_from_cells(cells)):
        flagged = np.array([0.0, 1.0]) if m == 0 else np.array([1.0, 0.0])
        mass = cells[:, :, m].sum(axis=-1)
        slope = flagged - np.nan_to_num(theta)[..., None]
        variance = (slope**2 * moments[m]).sum(axis=-1) / np.where(mass > 0, mass, 1.0) ** 2
        weight, square = (values[:, :, m].sum(axis=-1) for values in base)
        kish = np.nan_to_num(ratio(weight**2, square))
        index = np.arange(theta.shape[1])
        covariance = np.zeros((*theta.shape, len(index)))
        covariance[:, index, index] = np.where(np.isnan(theta), np.nan, variance)
        walds.append(logit_wald(theta, covariance, np.maximum(kish, 1e-300)))
    return np.column_stack(walds)


def can_shift(models: CounterfactualModels) -> bool:
    """Whether labels only shift the models' linear predictors by group.

    Parameters
    ----------
    models : CounterfactualModels

    Returns
    -------
    bool
        False with interactions of attributes and covariates, or without an intercept.
    """
    for model in models.refitted.values():
        design = null_design(model, None, models.truncation)
        if design.mixed is not None or not design.has_constant:
            return False
    return True


# -- columns over the rows ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Columns:
    """What does not depend on the labels, over the rows as they came.

    Attributes
    ----------
    everyone : (n, 7) array
        Sampling weight a; a times score, its first and second derivative in the outcome model's
        linear predictor; a squared times 1, score, score squared.
    untreated : (n, 5) array
        a times the odds of treatment times (Y - mu0) and times the two derivatives of mu0; the
        weight and its square, for effective sizes. 0 for the treated.
    pi, mu : (n,) arrays
        Probabilities of the fits without labels, of treatment and of the outcome without it; all
        columns are functions of them within a cell. `pi` is 0 with an outcome model alone.
    treatment, outcome : Shift or None
    """

    everyone: Array
    untreated: Array
    pi: Array
    mu: Array
    treatment: Shift | None
    outcome: Shift | None


def _columns(models: CounterfactualModels) -> _Columns:
    rows = models.rows
    y, d = rows.y.astype(np.float64), rows.d
    a = np.ones(rows.n) if rows.weights is None else rows.weights
    mu, outcome = _without_labels(models, models.outcome, models.mu0)
    v = mu * (1 - mu)
    v2 = v * (1 - 2 * mu) / 2
    pi, treatment = np.zeros(rows.n), None
    if models.estimator == "plugin":
        weight, odds = np.zeros(rows.n), np.zeros(rows.n)
        base = (d == 0).astype(np.float64)
    else:
        pi, treatment = _without_labels(models, models.treatment, models.pi)
        cut = np.clip(pi, *models.truncation)
        weight = np.where(d == 0, 1 / (1 - cut), 0.0)
        odds = np.where((d == 0) & (pi == cut), weight - 1, 0.0)
        base = weight
    phi = mu + weight * (y - mu)
    rest = 1 - weight
    everyone = np.column_stack(
        [a, a * phi, a * rest * v, a * rest * v2, a**2, a**2 * phi, (a * phi) ** 2]
    )
    untreated = np.column_stack(
        [a * odds * (y - mu), a * odds * v, a * odds * v2, a * base, (a * base) ** 2]
    )
    return _Columns(everyone, untreated, pi, mu, treatment, outcome)


def _without_labels(
    models: CounterfactualModels, model: BinaryModel | None, known: Array | None
) -> tuple[Array, Shift | None]:
    """Probabilities of the fit without labels, and what labels do to it."""
    if model is None:
        assert known is not None
        return known, None
    start = model.without_labels
    here = expit(model.train.matrix @ start)
    wanted = here if model.at[0] is model.train else expit(model.at[0].matrix @ start)
    a = np.ones(len(here)) if model.weights is None else model.weights
    used = model.used * a
    scores = np.column_stack([used * (model.target - here), used * here * (1 - here)])
    basis = null_design(model, None, models.truncation).group_basis(models.rows.sizes)
    return wanted, Shift(scores, basis)


# -- from the labels of every row -----------------------------------------------------------------


@dataclass(frozen=True)
class OutcomeSums:
    """Replicates from sums by label, for AIPW and for the outcome model alone.

    Attributes
    ----------
    n_groups : int
    bounds : (9,) array of int
        Limits of the cells: the untreated by Y and S, then the treated.
    everyone : (n, 7) array
    untreated : (n0, 5) array
    treatment, outcome : Shift or None
    """

    n_groups: int
    bounds: NDArray[np.intp]
    everyone: Array
    untreated: Array
    treatment: Shift | None
    outcome: Shift | None

    def replicates(self, labels: Integers) -> Part:
        """Cells, counts and Wald statistics under each row of labels.

        Parameters
        ----------
        labels : (R, n) array of unsigned int

        Returns
        -------
        Part
        """
        K = self.n_groups
        some = labels[:, : len(self.untreated)]
        return _replicates(
            label_sums(labels, self.everyone, self.bounds, K),
            label_sums(some, self.untreated, self.bounds[:5], K),
            self._step(self.treatment, labels),
            self._step(self.outcome, labels),
        )

    def _step(self, shift: Shift | None, labels: Integers) -> Array | float:
        if shift is None or not shift.basis.shape[1]:
            return 0.0
        every = np.array([0, labels.shape[1]])
        return shift.step(label_sums(labels, shift.scores, every, self.n_groups)[:, 0])


def outcome_sums(models: CounterfactualModels, at: Arrangement) -> OutcomeSums:
    """Compute once what does not depend on the labels.

    Parameters
    ----------
    models : CounterfactualModels
        For which `can_shift` holds.
    at : Arrangement
        Of its rows, ordered by cell.

    Returns
    -------
    OutcomeSums
    """
    columns = _columns(models)
    bounds = np.searchsorted(at.rows.cell, np.arange(9))
    return OutcomeSums(
        at.rows.n_groups,
        bounds,
        columns.everyone[at.order],
        columns.untreated[at.order[: bounds[4]]],
        None if columns.treatment is None else columns.treatment.arranged(at),
        None if columns.outcome is None else columns.outcome.arranged(at),
    )


# -- from tables ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutcomeTables:
    """Replicates from tables of runs by label, for AIPW and for the outcome model alone.

    Attributes
    ----------
    tables : LabelTables
        Cells of the untreated by Y and S, then of the treated; columns of everyone, of the
        untreated, and the scores of treatment and outcome.
    treatment, outcome : Shift or None
        With groups by their new numbers.
    """

    tables: LabelTables
    treatment: Shift | None
    outcome: Shift | None

    def replicates(self, block: Stream) -> Part:
        """Cells, counts and Wald statistics of a block of replicates.

        Parameters
        ----------
        block : Stream

        Returns
        -------
        Part
        """
        sums = self.tables.sums(block.size, block.generator())
        last = 12
        shifts: list[Array | float] = []
        for shift in (self.treatment, self.outcome):
            if shift is None:
                shifts.append(0.0)
                continue
            shifts.append(shift.step(sums[..., last : last + 2].sum(axis=1)))
            last += 2
        return _replicates(sums[..., :7], sums[:, :4, :, 7:12], *shifts)


def outcome_tables(models: CounterfactualModels, rank: NDArray[np.intp]) -> OutcomeTables | None:
    """Count labels by runs of rows with about the same fitted probabilities.

    Parameters
    ----------
    models : CounterfactualModels
        For which `can_shift` holds.
    rank : (K,) array of int
        New number of each group.

    Returns
    -------
    OutcomeTables or None
        None in smaller data, for very many groups, with sampling weights, and where rows of a run
        differ too much.
    """
    rows = models.rows
    if rows.weights is not None or not large_enough(rows.n, rows.n_groups):
        return None
    columns, cell, groups = _columns(models), rows.cell, np.argsort(rank)
    shifts = [shift for shift in (columns.treatment, columns.outcome) if shift is not None]
    all_of = [columns.everyone, columns.untreated, *(shift.scores for shift in shifts)]
    cells = []
    for c in range(8):
        own = np.flatnonzero(cell == c)
        own = own[np.lexsort([columns.mu[own], columns.pi[own]])]
        pi, mu = np.clip(columns.pi[own], *models.truncation), columns.mu[own]
        weight = 1 / (1 - pi)
        by_treatment = (weight, np.log(weight)) if c < 4 else (pi,)
        values = [v for part in all_of for v in part[own].T]
        cells.append(like_rows(values, [Along(_RUNS, by_treatment), Along(_RUNS, (mu,))]))
    if not alike(cells):
        return None
    treatment, outcome = (
        None if shift is None else Shift(shift.scores, shift.basis[groups])
        for shift in (columns.treatment, columns.outcome)
    )
    return OutcomeTables(LabelTables(tuple(cells), rows.sizes[groups]), treatment, outcome)
