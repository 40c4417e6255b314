"""What every row adds to the sums behind the rates, and how that follows the fitted models.

All estimators of rates under no treatment are ratios of sums by group, outcome without treatment
and prediction. A row adds to them its weight in the cell of its own outcome (IPW), or its expected
outcome to the cell of an event and the rest to that of none (AIPW, outcome model alone).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.aipw import aipw_scores
from cfair.estimators.confusion import cell_codes
from cfair.estimators.ipw import ipw_weights
from cfair.nuisance.logistic import FittedModel

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


#: Share of a group's rows up to which what an outcome adds up to is rounding.
NOTHING = 1e-9


def without_rounding(cells: Array, nothing: float = NOTHING) -> Array:
    """Sums by outcome and prediction, with 0 where an outcome adds up to nothing but rounding.

    Where no event is seen, an outcome model with a term for the group drives its probabilities
    towards 0, and the ratio of what is left is noise, not a rate.

    Parameters
    ----------
    cells : (..., 2, 2) array
    nothing : float, default 1e-9
        As a share of the sum of all four cells.

    Returns
    -------
    (..., 2, 2) array
    """
    by_outcome = cells.sum(axis=-1, keepdims=True)
    everyone = np.abs(by_outcome.sum(axis=-2, keepdims=True))
    result: Array = np.where(np.abs(by_outcome) <= nothing * everyone, 0.0, cells)
    return result


@dataclass(frozen=True)
class TreatmentModel:
    """What inference has to know of a fitted propensity.

    Attributes
    ----------
    pi : (n,) array
        Probabilities after truncation, those in the weights.
    design : (n, p) array or None
        Design matrix of the logistic fit; None if the probabilities count as known.
    fitted : (n,) array or None
        Probabilities before truncation, those of the score equations.
    information : (p, p) array or None
        Sum of ``pi (1 - pi) x x'`` without sampling weights, if it is known from the fit.
    """

    pi: Array
    design: Array | None = None
    fitted: Array | None = None
    information: Array | None = None

    def as_fitted(self, d: Integers) -> FittedModel | None:
        """The model as influence functions see it; None if the probabilities count as known.

        Parameters
        ----------
        d : (n,) array of 0 and 1
            Treatment.

        Returns
        -------
        FittedModel or None
        """
        if self.design is None or self.fitted is None:
            return None
        p = self.fitted
        return FittedModel(self.design, d - p, p * (1 - p), self.design, self.information)


@dataclass(frozen=True)
class OutcomeModel:
    """What inference has to know of a model of the outcome without treatment.

    Attributes
    ----------
    mu0 : (n,) array
        Probability of the event without treatment.
    fitted : FittedModel or None
        None if the probabilities count as known.
    """

    mu0: Array
    fitted: FittedModel | None = None


@dataclass(frozen=True)
class Contributions:
    """What every row adds to the sums, in one or two cells each.

    Attributes
    ----------
    cell : (n, e) array of int
        Cells by group, outcome, prediction, 0..4K-1; e is 1 or 2. With two, the first is that of
        no event and the second that of an event.
    value : (n, e) array
        What is added, without sampling weights.
    models : tuple of FittedModel
        Estimated models behind the values.
    derivative : tuple of (n, e) arrays
        Derivative of `value` in the linear predictor of each model.
    base, base_cell : (n,) arrays
        Weight and cell of every row with its outcome as observed, 0 for the treated: what effective
        sizes are counted by.
    """

    cell: NDArray[np.intp]
    value: Array
    models: tuple[FittedModel, ...]
    derivative: tuple[Array, ...]
    base: Array
    base_cell: NDArray[np.intp]


def weight_derivative(d: Integers, model: TreatmentModel) -> Array:
    """Derivative of the weight in the linear predictor: ``(1-D) pi/(1-pi)``, 0 where truncated.

    Parameters
    ----------
    d : (n,) array of 0 and 1
    model : TreatmentModel

    Returns
    -------
    (n,) array
    """
    free = np.asarray(d) == 0
    if model.fitted is not None:
        free = free & (model.fitted == model.pi)
    derivative = np.zeros(len(model.pi))
    np.divide(model.pi, 1 - model.pi, out=derivative, where=free)
    return derivative


def ipw_contributions(
    y: Integers, s: Integers, d: Integers, group: Integers, model: TreatmentModel
) -> Contributions:
    """What rows add under inverse probability weighting: their weight, in their own cell.

    Parameters
    ----------
    y, s, d : (n,) arrays of 0 and 1
    group : (n,) array of int
    model : TreatmentModel

    Returns
    -------
    Contributions
    """
    cell, w = cell_codes(y, s, group), ipw_weights(d, model.pi)
    fitted = model.as_fitted(d)
    if fitted is None:
        return Contributions(cell[:, None], w[:, None], (), (), w, cell)
    slope = weight_derivative(d, model)[:, None]
    return Contributions(cell[:, None], w[:, None], (fitted,), (slope,), w, cell)


def aipw_contributions(
    y: Integers,
    s: Integers,
    d: Integers,
    group: Integers,
    treatment: TreatmentModel,
    outcome: OutcomeModel,
) -> Contributions:
    """What rows add under augmented weighting: the score of their outcome without treatment.

    Parameters
    ----------
    y, s, d : (n,) arrays of 0 and 1
    group : (n,) array of int
    treatment : TreatmentModel
    outcome : OutcomeModel

    Returns
    -------
    Contributions
    """
    w = ipw_weights(d, treatment.pi)
    mu0 = outcome.mu0
    models: list[FittedModel] = []
    slopes: list[Array] = []
    propensity = treatment.as_fitted(d)
    if propensity is not None:
        models.append(propensity)
        slopes.append(weight_derivative(d, treatment) * (y - mu0))
    if outcome.fitted is not None:
        models.append(outcome.fitted)
        slopes.append((1 - w) * mu0 * (1 - mu0))
    return _split(y, s, group, aipw_scores(y, d, treatment.pi, mu0), models, slopes, w)


def plugin_contributions(
    y: Integers, s: Integers, d: Integers, group: Integers, outcome: OutcomeModel
) -> Contributions:
    """What rows add under the outcome model alone: their probability of the event.

    Parameters
    ----------
    y, s, d : (n,) arrays of 0 and 1
    group : (n,) array of int
    outcome : OutcomeModel

    Returns
    -------
    Contributions
    """
    mu0, fitted = outcome.mu0, outcome.fitted
    models = [] if fitted is None else [fitted]
    slopes = [] if fitted is None else [mu0 * (1 - mu0)]
    return _split(y, s, group, mu0, models, slopes, (np.asarray(d) == 0).astype(np.float64))


def _split(
    y: Integers,
    s: Integers,
    group: Integers,
    phi: Array,
    models: list[FittedModel],
    slopes: list[Array],
    base: Array,
) -> Contributions:
    """A row adds phi to the cell of an event and 1 - phi to that of none."""
    nothing = np.zeros(len(phi), dtype=np.intp)
    cell = np.column_stack([cell_codes(nothing, s, group), cell_codes(nothing + 1, s, group)])
    return Contributions(
        cell,
        np.column_stack([1 - phi, phi]),
        tuple(models),
        tuple(np.column_stack([-slope, slope]) for slope in slopes),
        base,
        cell_codes(y, s, group),
    )
