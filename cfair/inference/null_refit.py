"""The permutation null by refitting the propensity on the labels of every replicate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cfair.estimators.confusion import confusion_counts
from cfair.inference.equality import logit_wald
from cfair.inference.influence import (
    RateCovariance,
    TreatmentModel,
    cell_moments,
    rate_covariance,
)
from cfair.inference.null_design import NullDesign, NullFit, NullPart
from cfair.inference.rows import Rows
from cfair.nuisance.logistic import fit_logistic, solve_information, sweep

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


@dataclass(frozen=True)
class RefitEngine:
    """Replicates with the propensity refitted on the permuted labels.

    Attributes
    ----------
    rows : Rows
    fixed : (n, p0) array
        Columns without attributes.
    by_group : (K, q) array
        Columns that are functions of the group.
    mixed : (K, n, m) array
        Columns of every row as if in each group.
    start : (p0 + q + m,) array
        Coefficients without labels.
    truncation : (float, float)
    one_step : bool
        Stop after one Newton step.
    """

    rows: Rows
    fixed: Array
    by_group: Array
    mixed: Array
    start: Array
    truncation: tuple[float, float]
    one_step: bool

    def replicates(self, labels: Integers) -> NullPart:
        """Refit under each row of labels.

        Parameters
        ----------
        labels : (R, n) array of unsigned int

        Returns
        -------
        NullPart
        """
        rows, K = self.rows, self.rows.n_groups
        cells, observed = np.empty((len(labels), K, 2, 2)), np.empty((len(labels), K, 2, 2))
        wald = np.empty((len(labels), 2))
        outcome, every_group = rows.d.astype(np.float64), np.eye(K)
        failures = 0
        for r, row in enumerate(labels):
            group = row.astype(np.intp)
            model, converged = self._fit(group, outcome)
            failures += not converged
            moments = cell_moments(rows.y, rows.s, rows.d, group, model, K)
            cells[r] = moments.by_group(moments.mass)
            wald[r] = _walds(rate_covariance(moments, every_group), K)
            observed[r] = confusion_counts(rows.y, rows.s, group, K)
        return NullPart(cells, observed, wald, failures)

    def _fit(self, group: NDArray[np.intp], outcome: Array) -> tuple[TreatmentModel, bool]:
        """Propensity under one set of labels, and whether it converged."""
        mixed = self.mixed[group, np.arange(len(group))]
        X = np.column_stack([self.fixed, self.by_group[group], mixed])
        if self.one_step:
            _, score, information = sweep(X, outcome, None, self.start)
            fitted = expit(X @ (self.start + solve_information(information, score)))
            return TreatmentModel(np.clip(fitted, *self.truncation), X, fitted), True
        fit = fit_logistic(X, outcome, start=self.start)
        pi = np.clip(fit.fitted, *self.truncation)
        return TreatmentModel(pi, X[:, fit.kept], fit.fitted), fit.converged


def refit_engine(rows: Rows, design: NullDesign, fit: NullFit, *, one_step: bool) -> RefitEngine:
    """Prepare what all refits share.

    Parameters
    ----------
    rows : Rows
    design : NullDesign
        Of these rows and groups, in their order, as is `fit`.
    fit : NullFit
    one_step : bool

    Returns
    -------
    RefitEngine
    """
    by_group = design.group_basis(rows.sizes)
    mixed = np.zeros((rows.n_groups, rows.n, 0)) if design.mixed is None else design.mixed
    added = by_group.shape[1] + mixed.shape[2]
    return RefitEngine(
        rows,
        design.columns,
        by_group,
        mixed,
        np.concatenate([fit.coef, np.zeros(added)]),
        design.truncation,
        one_step,
    )


def _walds(rates: RateCovariance, n_groups: int) -> list[Array]:
    """Wald statistics of cFPR and of cFNR."""
    parts = [slice(m * n_groups, (m + 1) * n_groups) for m in range(2)]
    return [
        logit_wald(rates.estimate[at], rates.covariance[at, at], rates.kish[at]) for at in parts
    ]
