"""Influence functions: the covariance of the weighted rates, with the propensity estimated.

Every rate is a ratio of sums over the cells (group, Y, S) of the untreated, so its influence is a
linear combination of the influences of the cell sums,

    psi_c = 1_c w + G_c' z,    z = I^-1 x (D - pi),    G_c = sum over the cell of dw/dbeta,

and everything that the covariance needs are sums by cell: the cost is one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix, csr_matrix

from cfair.estimators.confusion import RATE_CELLS, RateCells, cell_codes, ratio
from cfair.estimators.ipw import ipw_weights

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


@dataclass(frozen=True)
class TreatmentModel:
    """What the covariance has to know of a fitted propensity.

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


@dataclass(frozen=True)
class CellMoments:
    """Sums by cell of the untreated; C = 4K cells in the order group, Y, S.

    Attributes
    ----------
    mass : (C,) array
        Sums of the weights.
    square : (C,) array
        Sums of their squares.
    count : (C,) array
        Untreated rows.
    slope : (C, p) array
        Sums of the derivatives of the weights in the coefficients, ``o x`` with ``o = pi/(1-pi)``,
        0 for a truncated row.
    cross : (C, p) array
        Sums of ``w (D - pi) x``.
    information : (p, p) array
        Sum of ``pi (1 - pi) x x'`` over all rows.
    meat : (p, p) array
        Sum of ``(D - pi)^2 x x'`` over all rows.
    """

    mass: Array
    square: Array
    count: Array
    slope: Array
    cross: Array
    information: Array
    meat: Array

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.mass) // 4

    def by_group(self, values: Array) -> Array:
        """Return sums by cell as an array over group, Y, S.

        Parameters
        ----------
        values : (C, ...) array

        Returns
        -------
        (K, 2, 2, ...) array
        """
        return values.reshape(self.n_groups, 2, 2, *values.shape[1:])


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


def cell_moments(
    y: Integers,
    s: Integers,
    d: Integers,
    group: Integers,
    model: TreatmentModel,
    n_groups: int,
    weights: Array | None = None,
) -> CellMoments:
    """All sums that the rates and their covariance are made of.

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
    CellMoments
    """
    n_cells = 4 * n_groups
    a = np.ones(len(d)) if weights is None else np.asarray(weights, dtype=np.float64)
    untreated = np.flatnonzero(np.asarray(d) == 0)
    cell = cell_codes(y[untreated], s[untreated], group[untreated])
    w = ipw_weights(d, model.pi)[untreated] * a[untreated]

    def by_cell(values: Array) -> Array:
        sums: Array = np.bincount(cell, weights=values, minlength=n_cells).astype(np.float64)
        return sums

    count = np.bincount(cell, minlength=n_cells).astype(np.float64)
    if model.design is None or model.fitted is None:
        nothing = np.zeros((n_cells, 0))
        empty = np.zeros((0, 0))
        return CellMoments(by_cell(w), by_cell(w * w), count, nothing, nothing, empty, empty)
    X = model.design
    every_cell = cell_codes(y, s, group)

    def by_cell_and_column(values: Array) -> Array:
        # One entry a row of X: the sparse product adds each row up in its cell, with no copy of X.
        pointers = np.arange(len(d) + 1)
        chosen = csc_matrix((values, every_cell, pointers), shape=(n_cells, len(d)))
        return np.asarray(chosen @ X)

    slope = by_cell_and_column(weight_derivative(d, model) * a)
    if weights is None and np.array_equal(model.fitted[untreated], model.pi[untreated]):
        cross = -slope  # w pi = o where nothing is truncated
    else:
        cross = by_cell_and_column(-model.fitted * ipw_weights(d, model.pi) * a**2)
    meat = _weighted_cross_product(X, a * (d - model.fitted))
    if weights is None and model.information is not None:
        information = model.information
    else:
        variance = a * model.fitted * (1 - model.fitted)
        information = _weighted_cross_product(X, np.sqrt(variance))
    return CellMoments(by_cell(w), by_cell(w * w), count, slope, cross, information, meat)


def _weighted_cross_product(X: Array, root: Array) -> Array:
    """Sum of ``root^2 x x'``, by blocks of rows that stay in cache."""
    total = np.zeros((X.shape[1], X.shape[1]))
    for first in range(0, len(X), 8_192):
        rows = slice(first, first + 8_192)
        part = X[rows] * root[rows, None]
        total += part.T @ part  # symmetric, so that half the work is done
    return total


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
    """

    estimate: Array
    covariance: Array
    kish: Array
    rows: Array


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
        for values in (moments.mass, moments.square, moments.count)
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
        When given, influences are summed within clusters first, with the factor C / (C - 1).

    Returns
    -------
    RateCovariance

    Notes
    -----
    With J the derivatives of the rates in the cell sums, Q, G, R the cell sums of ``w^2``, of the
    weight derivative and of ``w (D - pi) x``, and ``g = J G I^-1``,

        Sigma = J diag(Q) J' + g (J R)' + (J R) g' + g M g',    M = sum (D - pi)^2 x x'.
    """
    from cfair.nuisance.logistic import solve_information

    estimate, jacobian = target_rates(moments, membership, metrics)
    p = moments.slope.shape[1]
    g = np.zeros((len(estimate), 0))
    if p:
        g = solve_information(moments.information, (jacobian @ moments.slope).T).T
    if cluster_scores is None:
        covariance = (jacobian * moments.square) @ jacobian.T
        if p:
            crossed = g @ (jacobian @ moments.cross).T
            covariance = covariance + crossed + crossed.T + g @ moments.meat @ g.T
    else:
        covariance = cluster_scores.covariance(jacobian, g)
    undefined = np.isnan(estimate)
    covariance = np.where(undefined[:, None] | undefined[None, :], np.nan, covariance)
    kish, rows = effective_sizes(moments, membership, metrics)
    if cluster_scores is not None:
        kish = np.minimum(kish, cluster_scores.kish(_denominators(membership, metrics)))
    return RateCovariance(estimate, covariance, kish, rows)


def _denominators(membership: Array, metrics: Sequence[RateCells]) -> Array:
    """Cells of the denominator of every metric and target, as (M T, C) indicators."""
    masks = np.stack([metric.indicators()[1] for metric in metrics])
    return np.einsum("tk,mys->mtkys", membership, masks).reshape(len(metrics) * len(membership), -1)


@dataclass(frozen=True)
class ClusterScores:
    """Influences of the cell sums, added up within clusters.

    Attributes
    ----------
    cells : scipy sparse (n_clusters, C) matrix
        Sums of the weights by cluster and cell.
    scores : (n_clusters, p) array
        Sums of ``x (D - pi)`` by cluster.
    """

    cells: csr_matrix
    scores: Array

    def kish(self, denominators: Array) -> Array:
        """Kish's effective number of clusters behind each denominator.

        A rate of exactly 0 or 1 has no variance to tell how alike the rows of a cluster are; it
        rests on no more than this.

        Parameters
        ----------
        denominators : (M T, C) array of 0 and 1
            Cells of each denominator.

        Returns
        -------
        (M T,) array
        """
        weight = self.cells @ denominators.T
        return np.nan_to_num(ratio(weight.sum(axis=0) ** 2, (weight**2).sum(axis=0)))

    def covariance(self, jacobian: Array, g: Array) -> Array:
        """Covariance of the rates.

        Parameters
        ----------
        jacobian : (M T, C) array
            Derivatives of the rates in the cell sums.
        g : (M T, p) array
            Derivatives in the coefficients times the inverse information.

        Returns
        -------
        (M T, M T) array
        """
        n_clusters = self.scores.shape[0]
        total = np.zeros((len(jacobian), len(jacobian)))
        size = max(1, 2_000_000 // max(1, len(jacobian)))
        for first in range(0, n_clusters, size):
            rows = slice(first, first + size)
            psi = self.cells[rows] @ jacobian.T + self.scores[rows] @ g.T
            total += psi.T @ psi
        return total * n_clusters / (n_clusters - 1)


def cluster_scores(
    y: Integers,
    s: Integers,
    d: Integers,
    group: Integers,
    model: TreatmentModel,
    n_groups: int,
    cluster: Integers,
    weights: Array | None = None,
) -> ClusterScores:
    """Sums of weights and of propensity scores within clusters.

    Parameters
    ----------
    y, s, d : (n,) arrays of 0 and 1
    group : (n,) array of int
    model : TreatmentModel
    n_groups : int
    cluster : (n,) array of int
        Cluster codes 0..C-1.
    weights : (n,) array, optional

    Returns
    -------
    ClusterScores
    """
    n_clusters = int(cluster.max()) + 1
    a = np.ones(len(d)) if weights is None else weights
    w = ipw_weights(d, model.pi) * a
    cells = csr_matrix((w, (cluster, cell_codes(y, s, group))), shape=(n_clusters, 4 * n_groups))
    if model.design is None or model.fitted is None:
        return ClusterScores(cells, np.zeros((n_clusters, 0)))
    spread = csr_matrix(
        (a * (d - model.fitted), (cluster, np.arange(len(d)))), shape=(n_clusters, len(d))
    )
    return ClusterScores(cells, np.asarray(spread @ model.design))


def ipw_influence(
    y: Integers,
    s: Integers,
    d: Integers,
    group: Integers,
    model: TreatmentModel,
    n_groups: int,
    weights: Array | None = None,
) -> Array:
    """Influence of every row on every group rate.

    The sum over rows of the outer products, divided by n squared, is the covariance that
    `rate_covariance` computes without forming this array.

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
        cFPR of the groups, then cFNR. NaN in the columns of undefined rates.

    References
    ----------
    Tsiatis AA (2006). Semiparametric Theory and Missing Data. Springer, chapter 3: influence
    functions of estimators with estimated nuisance parameters.
    """
    from cfair.nuisance.logistic import solve_information

    moments = cell_moments(y, s, d, group, model, n_groups, weights)
    estimate, jacobian = target_rates(moments, np.eye(n_groups))
    a = np.ones(len(d)) if weights is None else weights
    n = len(d)
    w = ipw_weights(d, model.pi) * a
    psi = w[:, None] * jacobian.T[cell_codes(y, s, group)]
    if model.design is not None and model.fitted is not None:
        g = solve_information(moments.information, (jacobian @ moments.slope).T).T
        psi = psi + ((a * (d - model.fitted))[:, None] * model.design) @ g.T
    result: Array = np.where(np.isnan(estimate), np.nan, n * psi)
    return result
