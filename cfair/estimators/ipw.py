"""Counterfactual error rates by inverse probability weighting (Wastvedt, Huling, Wolfson 2023)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.confusion import confusion_counts, ratio

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


def ipw_weights(d: Integers, pi: Array) -> Array:
    """Weights of the untreated, ``(1 - D) / (1 - pi)``.

    Parameters
    ----------
    d : (n,) array of 0 and 1
        Treatment.
    pi : (..., n) array
        Probability of treatment, one set or a stack of them.

    Returns
    -------
    (..., n) array
        0 for treated rows, NaN for an untreated one whose probability is 1.

    Examples
    --------
    >>> import numpy as np
    >>> ipw_weights(np.array([0, 0, 1]), np.array([0.5, 0.75, 0.2])).tolist()
    [2.0, 4.0, 0.0]
    """
    weights = np.zeros(np.shape(pi))
    untreated = np.broadcast_to(np.asarray(d) == 0, weights.shape)
    np.divide(1.0, 1.0 - pi, out=weights, where=untreated & (pi < 1))
    weights[untreated & (pi >= 1)] = np.nan
    return weights


def rates_from_cells(cells: Array) -> tuple[Array, Array]:
    """False positive and false negative rates from (weighted) cells.

    Parameters
    ----------
    cells : (..., 2, 2) array
        Sums by outcome and prediction.

    Returns
    -------
    fpr, fnr : (...) arrays
        NaN where the denominator is 0.
    """
    fpr = ratio(cells[..., 0, 1], cells[..., 0, 0] + cells[..., 0, 1])
    fnr = ratio(cells[..., 1, 0], cells[..., 1, 0] + cells[..., 1, 1])
    return fpr, fnr


def ipw_rates(
    y: Integers,
    s: Integers,
    d: Integers,
    group: Integers,
    pi: Array,
    n_groups: int,
    weights: Array | None = None,
) -> tuple[Array, Array]:
    r"""Counterfactual false positive and false negative rates under no treatment, by weighting.

    With ``w = (1 - D) / (1 - pi)`` and sums over the rows of group g,

    .. math::
        cFPR_g = \frac{\sum w S (1-Y)}{\sum w (1-Y)}, \qquad
        cFNR_g = \frac{\sum w (1-S) Y}{\sum w Y}.

    They estimate P(S=1 | Y0=0, A=g) and P(S=0 | Y0=1, A=g) under consistency, no unmeasured
    confounding of treatment given the variables in `pi`, and positivity.

    Parameters
    ----------
    y : (n,) array of 0 and 1
        Observed outcome.
    s : (n,) array of 0 and 1
        Prediction.
    d : (n,) array of 0 and 1
        Treatment.
    group : (n,) array of int
        Group codes 0..K-1.
    pi : (n,) array
        Probability of treatment, below 1 for the untreated.
    n_groups : int
        K.
    weights : (n,) array, optional
        Sampling weights.

    Returns
    -------
    cfpr, cfnr : (K,) arrays
        NaN for a group without untreated non-events (cFPR) or events (cFNR).

    References
    ----------
    Wastvedt S, Huling JD, Wolfson J (2023). An intersectional framework for counterfactual
    fairness in risk prediction. Biostatistics, kxad021.

    Examples
    --------
    >>> import numpy as np
    >>> y, s = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> d, g = np.zeros(4, int), np.zeros(4, int)
    >>> cfpr, cfnr = ipw_rates(y, s, d, g, np.array([0.5, 0.0, 0.0, 0.5]), 1)
    >>> cfpr.round(6).tolist(), cfnr.round(6).tolist()
    ([0.333333], [0.333333])
    """
    w = ipw_weights(d, pi)
    if weights is not None:
        w = w * weights
    return rates_from_cells(confusion_counts(y, s, group, n_groups, w))
