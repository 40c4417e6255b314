"""The permutation null of small data: the propensity refitted in full, replicates together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cfair.inference.null_sums import StackedMoments, batched_wald
from cfair.inference.refit import CounterfactualModels, Part
from cfair.inference.rows import Rows
from cfair.nuisance.binary import BUDGET
from cfair.nuisance.logistic import far_columns
from cfair.nuisance.logistic_labelled import LabelledRows, fit_logistic_labelled

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class TogetherEngine:
    """Replicates that are fitted and summed up all at once.

    Attributes
    ----------
    rows : Rows
        The untreated first.
    order : (n,) array of int
        Old position of each row.
    design : LabelledRows
        In the new order.
    start : (p,) array
        Coefficients of the fit without labels.
    truncation : (float, float)
    alone : callable
        Replicates one by one, from labels in the old order, for fits that need care.
    """

    rows: Rows
    order: NDArray[np.intp]
    design: LabelledRows
    start: Array
    truncation: tuple[float, float]
    alone: Callable[[Integers], Part]

    def replicates(self, labels: Integers) -> Part:
        """Cells, counts and Wald statistics under each row of labels.

        Parameters
        ----------
        labels : (R, n) array of int
            In the old order of the rows.

        Returns
        -------
        Part
        """
        r = self.rows
        here = self.design.under(np.asarray(labels[:, self.order], dtype=np.intp))
        fits = fit_logistic_labelled(here, r.d, r.weights, self.start)
        moments = self._moments(here, expit(here.predictor(fits.coef)), fits.information)
        cells, wald = moments.mass, batched_wald(moments)
        a = np.ones(r.n) if r.weights is None else r.weights
        every = np.broadcast_to(a, labels.shape)
        observed = here.by_cell(r.y * 2 + r.s, 4, every)[0].reshape(cells.shape)
        failures = 0
        for b in np.flatnonzero(~fits.proper):
            careful = self.alone(labels[b : b + 1])
            assert careful.wald is not None
            cells[b], wald[b] = careful.cells[0], careful.wald[0]
            failures += careful.not_converged
        return Part(cells, observed, failures, np.zeros(0), wald)

    def _moments(self, here: LabelledRows, p: Array, information: Array) -> StackedMoments:
        """Sums over the untreated by label and cell, as `contribution_moments` has them."""
        r = self.rows
        m = int(np.count_nonzero(r.d == 0))
        a = np.ones(r.n) if r.weights is None else r.weights
        within = (r.y * 2 + r.s)[:m]
        pi = np.clip(p[:, :m], *self.truncation)
        weight = a[:m] / (1 - pi)
        residual = a * (r.d - p)
        shape = (len(p), r.n_groups, 2, 2)
        mass, _ = here.by_cell(within, 4, weight)
        square, _ = here.by_cell(within, 4, weight**2)
        _, slope = here.by_cell(within, 4, np.where(pi == p[:, :m], weight * pi, 0.0))
        _, cross = here.by_cell(within, 4, weight * residual[:, :m])
        if r.weights is not None:
            information = here.products(a * p * (1 - p))
        return StackedMoments(
            mass.reshape(shape),
            square.reshape(shape),
            slope.reshape(*shape, -1),
            cross.reshape(*shape, -1),
            information,
            here.products(residual**2),
        )


def refits_together(models: CounterfactualModels) -> TogetherEngine | None:
    """Refit all replicates of a weighted analysis at once.

    Parameters
    ----------
    models : CounterfactualModels
        With a propensity that is fitted and used on the same rows.

    Returns
    -------
    TogetherEngine or None
        None where columns are made of attributes and covariates, or far from 0, which takes a fit
        that centres them, and in large data.
    """
    model, rows = models.treatment, models.rows
    split = None if model is None else model.train.split
    if model is None or split is None or split.mixed is not None or not model.used.all():
        return None
    p0 = split.fixed.shape[1]
    if rows.n * p0 * (p0 + 1) // 2 > BUDGET or far_columns(split.fixed).any():
        return None
    order, start = np.argsort(rows.d, kind="stable"), model.without_labels
    by_group = np.zeros((rows.n_groups, 0)) if split.by_group is None else split.by_group
    return TogetherEngine(
        rows.arranged(order).rows,
        order,
        LabelledRows.of(split.fixed[order], by_group, np.zeros((0, rows.n), dtype=np.intp)),
        np.concatenate([start[split.fixed_columns], start[split.by_group_columns]]),
        models.truncation,
        models.under_labels,
    )
