"""Logit Wald statistics of equal rates in every replicate of a permutation null."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.confusion import ratio
from cfair.inference.equality import logit_wald
from cfair.inference.influence import ERROR_RATES
from cfair.nuisance.logistic import solve_information

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StackedMoments:
    """The sums of `CellMoments` for a stack of replicates.

    Attributes
    ----------
    mass, square : (R, K, 2, 2) arrays
        Sums of the weights and of their squares.
    slope, cross : (R, K, 2, 2, p) arrays
        Sums of the derivatives of the weights, and of ``w (D - pi) x``.
    information, meat : (p, p) or (R, p, p) arrays
        One for all replicates, or one each.
    """

    mass: Array
    square: Array
    slope: Array
    cross: Array
    information: Array
    meat: Array


def batched_wald(moments: StackedMoments) -> Array:
    """Logit Wald statistics of cFPR and cFNR in every replicate.

    Parameters
    ----------
    moments : StackedMoments

    Returns
    -------
    (R, 2) array

    Notes
    -----
    The covariance is that of `rate_covariance` with every group a target. The rate of a group
    rests on its own four cells, so that the derivatives J are (R, K, 2, 2) here and not a matrix
    over all cells, which makes it affordable in every replicate.
    """
    result = np.empty((len(moments.mass), 2))
    for m, metric in enumerate(ERROR_RATES):
        numerator, denominator = metric.indicators()
        total = (moments.mass * denominator).sum(axis=(2, 3))
        theta = ratio((moments.mass * numerator).sum(axis=(2, 3)), total)
        jacobian = numerator - np.nan_to_num(theta)[:, :, None, None] * denominator
        jacobian = jacobian / np.where(total > 0, total, 1.0)[:, :, None, None]
        kish = np.nan_to_num(ratio(total**2, (moments.square * denominator).sum(axis=(2, 3))))
        covariance = _group_covariance(moments, jacobian)
        result[:, m] = logit_wald(theta, covariance, np.maximum(kish, 1e-300))
    return result


def _group_covariance(moments: StackedMoments, jacobian: Array) -> Array:
    """``J diag(Q) J' + g (J R)' + (J R) g' + g M g'`` in every replicate, (R, K, K)."""
    slope, cross = (
        (jacobian[..., None] * sums).sum(axis=(2, 3)) for sums in (moments.slope, moments.cross)
    )
    g = _solve_each(moments.information, slope)
    crossed = g @ cross.transpose(0, 2, 1)
    index = np.arange(jacobian.shape[1])
    covariance = np.zeros((*jacobian.shape[:2], len(index)))
    covariance[:, index, index] = (jacobian**2 * moments.square).sum(axis=(2, 3))
    covariance += crossed + crossed.transpose(0, 2, 1) + g @ moments.meat @ g.transpose(0, 2, 1)
    return covariance


def _solve_each(information: Array, g: Array) -> Array:
    """Apply the inverse information to the rows of `g` (R, K, p), one information or one each."""
    if information.ndim == 2:
        flat = solve_information(information, g.reshape(g.shape[0] * g.shape[1], g.shape[2]).T)
        return flat.T.reshape(g.shape)
    scale = np.sqrt(np.maximum(np.einsum("rpp->rp", information), 1e-300))[:, None, :]
    scaled, right = information / (scale * scale.transpose(0, 2, 1)), g / scale
    try:
        solved = np.linalg.solve(scaled, right.transpose(0, 2, 1)).transpose(0, 2, 1)
    except np.linalg.LinAlgError:
        solved = right @ np.linalg.pinv(scaled, hermitian=True)
    return np.asarray(solved / scale, dtype=np.float64)
