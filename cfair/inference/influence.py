"""Influence functions: the covariance of the rates, with the models behind them estimated.

Every rate is a ratio of sums over the cells (group, outcome without treatment, S), so its influence
is a linear combination of the influences of the cell sums,

    psi_c = v_c + G_c' z,    z = I^-1 x (outcome of the model - its probability),

where v_c is what the row adds to the cell and G_c the sum over the rows of its derivative in the
coefficients. Everything that the covariance needs are sums by cell: one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.confusion import RATE_CELLS, RateCells, ratio
from cfair.inference.contributions import Contributions, TreatmentModel, ipw_contributions
from cfair.inference.moments import CellMoments, ClusterScores, contribution_moments

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


@dataclass(frozen=True)
class RateCovariance:
    """Rates of several targets (groups, margins) with their covariance, metric by metric.

    The M metrics of T targets make M T entries: all targets of the first metric, then the next.

    Attributes
    ----------
    estimate : (M T,) array
    covariance : (M T, M T) array
        Rows and columns of undefined rates are NaN.
    kish : (M T,) array
        Kish's effective size of the denominator, (sum w)^2 / sum w^2.
    rows : (M T,) array
        Rows in the denominator.
    clusters : (M T,) array or None
        Clusters in the denominator, if there are any and they are counted.
    """

    estimate: Array
    covariance: Array
    kish: Array
    rows: Array
    clusters: Array | None = None


#: cFPR and cFNR: the ratios of cells of FPR and FNR, in weighted sums.
ERROR_RATES: tuple[RateCells, RateCells] = (RATE_CELLS["fpr"], RATE_CELLS["fnr"])


def target_rates(
    moments: CellMoments, membership: Array, metrics: Sequence[RateCells] = ERROR_RATES
) -> tuple[Array, Array]:
    """Rates of targets that are unions of groups, and their derivatives in the cell sums.

    Parameters
    ----------
    moments : CellMoments
    membership : (T, K) array of 0 and 1
        Which groups make up a target.
    metrics : sequence of RateCells, default cFPR and cFNR

    Returns
    -------
    estimate : (M T,) array
        NaN where undefined.
    jacobian : (M T, C) array
        Derivatives in the cell sums; 0 for an undefined rate.
    """
    sums = np.einsum("tk,kys->tys", membership, moments.by_group(moments.mass))
    estimates, jacobians = [], []
    for metric in metrics:
        numerator, denominator = metric.indicators()
        total = np.einsum("tys,ys->t", sums, denominator)
        theta = ratio(np.einsum("tys,ys->t", sums, numerator), total)
        slope = numerator - np.nan_to_num(theta)[:, None, None] * denominator
        slope = slope / np.where(total > 0, total, np.inf)[:, None, None]
        estimates.append(theta)
        jacobians.append(np.einsum("tk,tys->tkys", membership, slope).reshape(len(membership), -1))
    return np.concatenate(estimates), np.vstack(jacobians)


def effective_sizes(
    moments: CellMoments, membership: Array, metrics: Sequence[RateCells] = ERROR_RATES
) -> tuple[Array, Array]:
    """Kish sizes and row counts of the denominators.

    Parameters
    ----------
    moments : CellMoments
    membership : (T, K) array
    metrics : sequence of RateCells, default cFPR and cFNR

    Returns
    -------
    kish, rows : (M T,) arrays
    """
    denominators = np.stack([metric.indicators()[1] for metric in metrics])
    mass, square, rows = (
        np.einsum("tk,kys,mys->mt", membership, moments.by_group(values), denominators).ravel()
        for values in (moments.base_mass, moments.base_square, moments.count)
    )
    return np.nan_to_num(ratio(mass**2, square)), rows


def rate_covariance(
    moments: CellMoments,
    membership: Array,
    metrics: Sequence[RateCells] = ERROR_RATES,
    cluster_scores: ClusterScores | None = None,
) -> RateCovariance:
    """Covariance of the rates of targets, from their influence functions.

    Parameters
    ----------
    moments : CellMoments
    membership : (T, K) array of 0 and 1
    metrics : sequence of RateCells, default cFPR and cFNR
    cluster_scores : ClusterScores, optional
        When given, influences are summed within clusters first, with the factor C / (C - 1) for the
        C clusters of a rate's own denominator: a group that is in three clusters is as uncertain as
        three tell, however many the others have.

    Returns
    -------
    RateCovariance

    Notes
    -----
    With J the derivatives of the rates in the cell sums v, Q the sum of ``v v'``, G and R the cell
    sums of the derivatives and of the products with the scores, and ``g = J G I^-1``,

        Sigma = J Q J' + g (J R)' + (J R) g' + g M g',    M the sum of the products of the scores.
    """
    from cfair.nuisance.logistic import solve_information

    estimate, jacobian = target_rates(moments, membership, metrics)
    p = moments.slope.shape[1]
    g, clusters = np.zeros((len(estimate), 0)), None
    if p:
        g = solve_information(moments.information, (jacobian @ moments.slope).T).T
    if cluster_scores is None:
        covariance = moments.spread(jacobian)
        if p:
            crossed = g @ (jacobian @ moments.cross).T
            covariance = covariance + crossed + crossed.T + g @ moments.meat @ g.T
    else:
        denominators = _denominators(membership, metrics)
        clusters = cluster_scores.count(denominators)
        covariance = cluster_scores.covariance(jacobian, g, clusters)
    undefined = np.isnan(estimate)
    covariance = np.where(undefined[:, None] | undefined[None, :], np.nan, covariance)
    kish, rows = effective_sizes(moments, membership, metrics)
    if cluster_scores is not None:
        kish = np.minimum(kish, cluster_scores.kish(denominators))
    return RateCovariance(estimate, covariance, kish, rows, clusters)


def _denominators(membership: Array, metrics: Sequence[RateCells]) -> Array:
    """Cells of the denominator of every metric and target, as (M T, C) indicators."""
    masks = np.stack([metric.indicators()[1] for metric in metrics])
    return np.einsum("tk,mys->mtkys", membership, masks).reshape(len(metrics) * len(membership), -1)


def ipw_influence(
    y: Integers,
    s: Integers,
    d: Integers,
    group: Integers,
    model: TreatmentModel,
    n_groups: int,
    weights: Array | None = None,
) -> Array:
    """Influence of every row on every group rate under inverse probability weighting.

    Parameters
    ----------
    y, s, d : (n,) arrays of 0 and 1
    group : (n,) array of int
    model : TreatmentModel
    n_groups : int
    weights : (n,) array, optional
        Sampling weights.

    Returns
    -------
    (n, 2K) array
        As from `row_influence`.
    """
    return row_influence(ipw_contributions(y, s, d, group, model), n_groups, weights)


def row_influence(added: Contributions, n_groups: int, weights: Array | None = None) -> Array:
    """Influence of every row on every group rate.

    The sum over rows of the outer products, divided by n squared, is the covariance that
    `rate_covariance` computes without forming this array.

    Parameters
    ----------
    added : Contributions
    n_groups : int
    weights : (n,) array, optional
        Sampling weights.

    Returns
    -------
    (n, 2K) array
        cFPR of the groups, then cFNR. NaN in the columns of undefined rates.

    References
    ----------
    Tsiatis AA (2006). Semiparametric Theory and Missing Data. Springer, chapter 3: influence
    functions of estimators with estimated nuisance parameters.
    """
    from cfair.nuisance.logistic import solve_information

    moments = contribution_moments(added, n_groups, weights)
    estimate, jacobian = target_rates(moments, np.eye(n_groups))
    a = np.ones(len(added.base)) if weights is None else weights
    psi = np.einsum("ne,nej->nj", added.value * a[:, None], jacobian.T[added.cell])
    if added.models:
        g = solve_information(moments.information, (jacobian @ moments.slope).T).T
        scores = [(a * m.residual)[:, None] * m.design for m in added.models]
        psi = psi + np.hstack(scores) @ g.T
    result: Array = np.where(np.isnan(estimate), np.nan, len(a) * psi)
    return result
