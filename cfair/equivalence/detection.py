"""Sample size and power to detect a gap beyond a tolerance, between two groups or among many.

A gap d = |p_i - p_j| counts beyond a tolerance t. With v_k the variance that one patient of group k
contributes and f_k the group's part of N, N reaches the power 1 - b for a two-sided level a where

    N = (z_{1-a/2} + z_{1-b})^2 (v_i / f_i + v_j / f_j) / (d - t)^2.

Among several pairs the level is divided by their number (Bonferroni), and N has to do for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, minimize
from statsmodels.stats.power import normal_power_het, normal_sample_size_one_tail

from cfair.errors import ConvergenceError

Array = NDArray[np.float64]
Pairs = NDArray[np.intp]


def patient_variance(rate: Any, denominator: Any = 1.0) -> Array:
    """Variance that one patient of a group contributes to its rate, times the group's patients.

    Parameters
    ----------
    rate : (...) array in (0, 1)
    denominator : (...) array in (0, 1], default 1
        Share of the group that is in the rate's denominator: P(Y = 1) for TPR and FNR, P(Y = 0) for
        TNR and FPR, P(S = 1) for PPV and FDR, P(S = 0) for NPV and FOR, 1 for the selection rate.

    Returns
    -------
    (...) array

    References
    ----------
    Singh H, Xia F, Kim MO, Pirracchio R, Chunara R, Feng J (2023). A brief tutorial on sample size
    calculations for fairness audits. arXiv:2312.04745.

    Examples
    --------
    >>> patient_variance(0.8, 0.25).round(2)
    np.float64(0.64)
    """
    p = np.asarray(rate, dtype=float)
    return p * (1 - p) / np.asarray(denominator, dtype=float)


def pair_variance(variance: Array, allocation: Array, pairs: Pairs) -> Array:
    """Variance of the gap of each pair, times N.

    Parameters
    ----------
    variance, allocation : (K,) arrays
        By group: see `patient_variance`; parts of N.
    pairs : (m, 2) array of int

    Returns
    -------
    (m,) array
        Infinite where a group gets no patients.

    Examples
    --------
    >>> pair_variance(np.array([0.2, 0.2]), np.array([0.5, 0.5]), np.array([[0, 1]]))
    array([0.8])
    """
    with np.errstate(divide="ignore"):
        each = variance / allocation
    return np.asarray(each[pairs].sum(axis=1), dtype=float)


def gap_total(beyond: Array, variance: Array, alpha: float = 0.05, power: float = 0.8) -> Array:
    """N that detects each gap, as the formula gives it: not yet a whole number.

    Parameters
    ----------
    beyond : (...) array
        Gap less tolerance, above 0.
    variance : (...) array
        See `pair_variance`.
    alpha : float, default 0.05
        Two-sided level.
    power : float, default 0.8

    Returns
    -------
    (...) array

    References
    ----------
    Singh H et al. (2023). See `patient_variance`.

    Examples
    --------
    >>> round(float(gap_total(np.array(0.092636), np.array(0.934573))), 1)
    854.8
    """
    found = normal_sample_size_one_tail(
        beyond, power, alpha / 2, std_null=np.sqrt(variance), std_alternative=np.sqrt(variance)
    )
    return np.asarray(found, dtype=float)


def gap_detection(beyond: Array, variance: Array, n: Any, alpha: float = 0.05) -> Array:
    """Power to detect each gap with N patients; of the side on which it lies.

    Parameters
    ----------
    beyond, variance : (...) arrays
        As in `gap_total`; `beyond` may be 0 or less, where the power is below alpha / 2.
    n : (...) array
        Patients in all groups together.
    alpha : float, default 0.05
        Two-sided level.

    Returns
    -------
    (...) array

    Examples
    --------
    >>> round(float(gap_detection(np.array(0.092636), np.array(0.934573), 855)), 3)
    0.8
    """
    sd = np.sqrt(np.where(np.isfinite(variance), variance, 1.0))
    found = normal_power_het(
        beyond, n, alpha / 2, std_null=sd, std_alternative=sd, alternative="larger"
    )
    return np.where(np.isfinite(variance), found, 0.0)


def optimal_allocation(variance: Array, pairs: Pairs, beyond: Array) -> Array:
    """Parts of N under which the least N detects every gap.

    Of two groups proportional to their standard deviations. Of more the solution of a convex
    problem: with x_k = 1 / n_k the constraints v_i x_i + v_j x_j <= (gap of i and j)^2 are linear.

    Parameters
    ----------
    variance : (K,) array
    pairs : (m, 2) array of int
    beyond : (m,) array
        Gap less tolerance of each pair, above 0.

    Returns
    -------
    (K,) array
        Sums to 1; 0 for a group that is in no pair.

    Raises
    ------
    ConvergenceError
        If the search fails.

    References
    ----------
    Singh H et al. (2023). See `patient_variance`.

    Examples
    --------
    >>> optimal_allocation(np.array([0.16, 0.04]), np.array([[0, 1]]), np.array([0.1])).round(3)
    array([0.667, 0.333])
    """
    sd = np.sqrt(variance)
    if len(pairs) == 1:
        part = np.zeros(len(sd))
        part[pairs[0]] = sd[pairs[0]] / sd[pairs[0]].sum()
        return part
    # The constraints in units of what the pair's own optimum would give each of its groups.
    used = np.unique(pairs)
    rows = np.zeros((len(pairs), len(sd)))
    np.put_along_axis(rows, pairs, variance[pairs] / beyond[:, None] ** 2, axis=1)
    rows = rows[:, used]
    start = np.array([1 / (2 * column.max()) for column in rows.T])
    weight = (1 / start) / (1 / start).sum()
    scaled = rows * start

    def total(y: Array) -> tuple[float, Array]:
        return float((weight / y).sum()), -weight / y**2

    how: dict[str, Any] = {"method": "SLSQP", "options": {"ftol": 1e-13, "maxiter": 500}}
    found = minimize(
        total,
        np.ones(len(used)),
        jac=True,
        bounds=Bounds(1e-6, np.inf),
        constraints=LinearConstraint(scaled, -np.inf, 1.0),
        **how,
    )
    if not found.success:
        raise ConvergenceError(
            f"no optimal allocation was found ({found.message}). Give allocation='equal' or shares."
        )
    part = np.zeros(len(sd))
    part[used] = weight / found.x
    return part / part.sum()
