"""Permutation p-values and u-values: an observed disparity beside its null distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Share:
    """A share of null replicates.

    Attributes
    ----------
    value : (q,) array
    n_valid : (q,) array
        Null replicates in which the statistic is defined.
    """

    value: Array
    n_valid: NDArray[np.intp]


def permutation_p_values(observed: Array, null: Array) -> Share:
    """P-values ``(1 + #{null >= observed}) / (1 + R)``, never 0.

    Parameters
    ----------
    observed : (q,) array
    null : (R, q) array
        NaN where a replicate leaves the statistic undefined.

    Returns
    -------
    Share

    Examples
    --------
    >>> import numpy as np
    >>> permutation_p_values(np.array([0.3]), np.array([[0.1], [0.2], [0.4]])).value.tolist()
    [0.5]
    """
    defined = ~np.isnan(null)
    n_valid = defined.sum(axis=0)
    exceed = np.sum(defined & (null >= observed - 1e-12 * np.abs(observed)), axis=0)
    value = (1 + exceed) / (1 + n_valid)
    return Share(np.where(np.isnan(observed) | (n_valid == 0), np.nan, value), n_valid)


def u_values(observed: Array, null: Array, delta: float | Array = 0.1) -> Share:
    """Share of null replicates that the observed disparity exceeds by more than delta.

    A u-value is no p-value and no probability of unfairness: large values speak for a disparity
    beyond delta. Under exact fairness the u-value of the maximum exceeds 0.5 in about a fifth of
    data sets of 1000 rows. `delta` is on the scale of the statistic: the variance of the
    differences exceeds 0.1 only where rates are about 0.6 apart.

    Parameters
    ----------
    observed : (q,) array
    null : (R, q) array
        NaN where undefined; such replicates are left out and counted.
    delta : float or (q,) array, default 0.1

    Returns
    -------
    Share

    References
    ----------
    Wastvedt S, Huling JD, Wolfson J (2023). Biostatistics, kxad021.

    Examples
    --------
    >>> import numpy as np
    >>> u_values(np.array([0.3]), np.array([[0.1], [0.25], [np.nan]]), 0.1).value.tolist()
    [0.5]
    """
    defined = ~np.isnan(null)
    n_valid = defined.sum(axis=0)
    # what exceeds delta by rounding alone, as where all are shares of a few rows, does not
    least = delta + 1e-12 * (np.abs(observed) + np.abs(delta))
    exceed = np.sum(defined & (observed - np.where(defined, null, np.inf) > least), axis=0)
    value = exceed / np.maximum(n_valid, 1)
    return Share(np.where(np.isnan(observed) | (n_valid == 0), np.nan, value), n_valid)
