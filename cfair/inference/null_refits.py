"""The permutation null of small data: the propensity refitted in full, replicates together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cfair.inference.null_wald import StackedMoments, batched_wald
from cfair.inference.refit import CounterfactualModels, Part
from cfair.inference.resampling import STREAM
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
        In the new order, under their own labels.
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
        r, R, K = self.rows, len(labels), self.rows.n_groups
        every = self.design.under(np.asarray(labels[:, self.order], dtype=np.intp))
        fits = fit_logistic_labelled(every, r.d, r.weights, self.start)
        observed = every.by_cell(self._cell, 4, np.broadcast_to(self._weights, labels.shape))
        cells, wald, failures = np.empty((R, K, 2, 2)), np.empty((R, 2)), 0
        good = fits.proper
        if good.any():
            here = every.under(every.labels[good])
            p = expit(here.predictor(fits.coef[good]))
            moments = self._moments(here, p, fits.information[good])
            cells[good], wald[good] = moments.mass, batched_wald(moments)
        for b in np.flatnonzero(~good):
            careful = self.alone(labels[b : b + 1])
            assert careful.wald is not None
            cells[b], wald[b] = careful.cells[0], careful.wald[0]
            failures += careful.not_converged
        return Part(cells, observed.reshape(cells.shape), failures, np.zeros(0), wald)

    @cached_property
    def _weights(self) -> Array:
        return np.ones(self.rows.n) if self.rows.weights is None else self.rows.weights

    @cached_property
    def _cell(self) -> NDArray[np.intp]:
        """Cell of each row by outcome and prediction."""
        return np.asarray(self.rows.y, np.intp) * 2 + self.rows.s

    def _moments(self, here: LabelledRows, p: Array, information: Array) -> StackedMoments:
        """Sums over the untreated by label and cell, as `contribution_moments` has them."""
        d, a = self.rows.d, self._weights
        m = int(np.count_nonzero(d == 0))
        within, untreated = self._cell[:m], a[:m]
        pi = np.clip(p[:, :m], *self.truncation)
        weight = untreated / (1 - pi)
        residual = a * (d - p)
        shape = (len(p), self.rows.n_groups, 2, 2)
        free = np.where(pi == p[:, :m], weight * pi, 0.0)  # a truncated weight does not move
        return StackedMoments(
            here.by_cell(within, 4, weight).reshape(shape),
            here.by_cell(within, 4, weight**2).reshape(shape),
            here.rows_by_cell(within, 4, free).reshape(*shape, -1),
            here.rows_by_cell(within, 4, weight * residual[:, :m]).reshape(*shape, -1),
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
        that centres them, where some rows are not used, and in large data.
    """
    model, rows = models.treatment, models.rows
    split = None if model is None else model.train.split
    if model is None or split is None or split.mixed is not None or not model.used.all():
        return None
    p0 = split.fixed.shape[1]
    if rows.n * max(STREAM, p0 * (p0 + 1) // 2) > BUDGET or far_columns(split.fixed).any():
        return None
    order, start = np.argsort(rows.d, kind="stable"), model.without_labels
    by_group = np.zeros((rows.n_groups, 0)) if split.by_group is None else split.by_group
    return TogetherEngine(
        rows.arranged(order).rows,
        order,
        LabelledRows.of(split.fixed[order], by_group, np.asarray(rows.group[order], np.intp)[None]),
        np.concatenate([start[split.fixed_columns], start[split.by_group_columns]]),
        models.truncation,
        models.under_labels,
    )
