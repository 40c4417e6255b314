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
from cfair.inference.null_design import null_design
from cfair.inference.null_sums import label_sums
from cfair.inference.refit import CounterfactualModels, Part
from cfair.inference.rows import Arrangement
from cfair.nuisance.binary import BinaryModel

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


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

    def step(self, labels: Integers) -> Array:
        """Shift of the linear predictor of every group.

        Parameters
        ----------
        labels : (R, n) array of unsigned int

        Returns
        -------
        (R, K) array
        """
        K, n = len(self.basis), labels.shape[1]
        if not self.basis.shape[1]:
            return np.zeros((len(labels), K))
        sums = label_sums(labels, self.scores, np.array([0, n]), K)[:, 0]
        columns = np.column_stack([np.ones(K), self.basis])
        information = (columns.T * sums[..., 1][:, None, :]) @ columns
        solved = np.linalg.solve(information, (sums[..., 0] @ columns)[:, :, None])[:, :, 0]
        return np.asarray(solved @ columns.T)


@dataclass(frozen=True)
class OutcomeSums:
    """Replicates from sums by label, for AIPW and for the outcome model alone.

    Attributes
    ----------
    n_groups : int
    bounds : (9,) array of int
        Limits of the cells: the untreated by Y and S, then the treated.
    everyone : (n, 7) array
        Sampling weight a; a times score, its first and second derivative in the outcome model's
        linear predictor; a squared times 1, score, score squared.
    untreated : (n0, 5) array
        a times the odds of treatment times (Y - mu0) and times the two derivatives of mu0; the
        weight and its square, for effective sizes.
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
        R, K = len(labels), self.n_groups
        sums = label_sums(labels, self.everyone, self.bounds, K)  # (R, 8, K, 7): D, Y, S
        sums = sums.reshape(R, 2, 2, 2, K, -1)
        observed = sums[..., 0].sum(axis=1).transpose(0, 3, 1, 2)
        total, score, first, second, *squares = np.moveaxis(sums.sum(axis=(1, 2)), -1, 0)
        some = labels[:, : len(self.untreated)]
        free = label_sums(some, self.untreated, self.bounds[:5], K).reshape(R, 2, 2, K, -1)
        residual, slope, curve = np.moveaxis(free[..., :3].sum(axis=1), -1, 0)
        delta = self._step(self.outcome, labels)[:, None, :]
        factor = np.expm1(self._step(self.treatment, labels))[:, None, :]
        events = score + delta * first + delta**2 * second
        events = events + factor * (residual - delta * slope - delta**2 * curve)
        cells = np.stack([total - events, events], axis=1).transpose(0, 3, 1, 2)  # R, K, Y, S
        cells = without_rounding(cells)
        wald = _walds(cells, squares, free[..., 3:].transpose(4, 0, 3, 1, 2))
        return Part(cells, observed, 0, np.zeros(0), wald)

    def _step(self, shift: Shift | None, labels: Integers) -> Array:
        if shift is None:
            return np.zeros((len(labels), self.n_groups))
        return shift.step(labels)


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
    rows = at.rows
    y, d = rows.y.astype(np.float64), rows.d
    a = np.ones(rows.n) if rows.weights is None else rows.weights
    mu, outcome = _without_labels(models, models.outcome, models.mu0, at)
    v = mu * (1 - mu)
    v2 = v * (1 - 2 * mu) / 2
    if models.estimator == "plugin":
        weight, odds, treatment = np.zeros(rows.n), np.zeros(rows.n), None
        base = (d == 0).astype(np.float64)
    else:
        pi, treatment = _without_labels(models, models.treatment, models.pi, at)
        cut = np.clip(pi, *models.truncation)
        weight = np.where(d == 0, 1 / (1 - cut), 0.0)
        odds = np.where((d == 0) & (pi == cut), weight - 1, 0.0)
        base = weight
    phi = mu + weight * (y - mu)
    rest = 1 - weight
    everyone = np.column_stack(
        [a, a * phi, a * rest * v, a * rest * v2, a**2, a**2 * phi, (a * phi) ** 2]
    )
    bounds = np.searchsorted(rows.cell, np.arange(9))
    n0 = int(bounds[4])
    untreated = np.column_stack(
        [a * odds * (y - mu), a * odds * v, a * odds * v2, a * base, (a * base) ** 2]
    )[:n0]
    return OutcomeSums(rows.n_groups, bounds, everyone, untreated, treatment, outcome)


def _without_labels(
    models: CounterfactualModels, model: BinaryModel | None, known: Array | None, at: Arrangement
) -> tuple[Array, Shift | None]:
    """Probabilities of the fit without labels, and what labels do to it, in the arrangement."""
    if model is None:
        assert known is not None
        return known[at.order], None
    start = model.without_labels
    here = expit(model.train.matrix @ start)
    wanted = here if model.at[0] is model.train else expit(model.at[0].matrix @ start)
    a = np.ones(len(here)) if model.weights is None else model.weights
    used = model.used * a
    scores = np.column_stack([used * (model.target - here), used * here * (1 - here)])
    basis = null_design(model, None, models.truncation).group_basis(models.rows.sizes)
    return wanted[at.order], Shift(scores[at.order], basis[at.groups])
