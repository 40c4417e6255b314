"""Sums by cell (group, outcome, prediction) that rates and their covariance are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.sparse import csc_matrix, csr_matrix

from cfair.estimators.confusion import ratio
from cfair.inference.contributions import (
    Contributions,
    TreatmentModel,
    ipw_contributions,
    without_rounding,
)
from cfair.nuisance.logistic import FittedModel

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


@dataclass(frozen=True)
class CellMoments:
    """Sums by cell; C = 4K cells in the order group, outcome, S; q coefficients of all models.

    Attributes
    ----------
    mass : (C,) array
        Sums of what the rows add.
    square : (C,) array
        Sums of its square.
    between : (C,) array
        Sums of the product of what a row adds to the cells of an event and of none; the same for
        both cells, 0 where a row adds to one cell only.
    count : (C,) array
        Untreated rows.
    base_mass, base_square : (C,) arrays
        Sums of the weights of the untreated and of their squares, for effective sizes.
    slope : (C, q) array
        Sums of the derivatives in the coefficients, 0 for a truncated row.
    cross : (C, q) array
        Sums of what a row adds times its scores, such as ``w (D - pi) x``.
    information : (q, q) array
        Sum of ``p (1 - p) x x'``, model by model.
    meat : (q, q) array
        Sum of the products of all scores.
    """

    mass: Array
    square: Array
    between: Array
    count: Array
    base_mass: Array
    base_square: Array
    slope: Array
    cross: Array
    information: Array
    meat: Array

    def __add__(self, other: CellMoments) -> CellMoments:
        """The sums of these rows and of others."""
        names = [f.name for f in fields(self)]
        return CellMoments(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.mass) // 4

    def by_group(self, values: Array) -> Array:
        """Return sums by cell as an array over group, outcome, S.

        Parameters
        ----------
        values : (C, ...) array

        Returns
        -------
        (K, 2, 2, ...) array
        """
        return values.reshape(self.n_groups, 2, 2, *values.shape[1:])

    def spread(self, jacobian: Array) -> Array:
        """Covariance of linear functions of the sums, had the models been known.

        Parameters
        ----------
        jacobian : (m, C) array

        Returns
        -------
        (m, m) array
        """
        covariance: Array = (jacobian * self.square) @ jacobian.T
        if self.between.any():
            other = self.by_group(jacobian.T)[:, ::-1].reshape(jacobian.T.shape).T
            covariance = covariance + (jacobian * self.between) @ other.T
        return covariance


def cell_moments(
    y: Integers,
    s: Integers,
    d: Integers,
    group: Integers,
    model: TreatmentModel,
    n_groups: int,
    weights: Array | None = None,
) -> CellMoments:
    """All sums that the weighted rates and their covariance are made of.

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
    return contribution_moments(ipw_contributions(y, s, d, group, model), n_groups, weights)


def counted_moments(counts: Array) -> CellMoments:
    """The sums of observed rates, in which every row adds 1 to its own cell.

    Parameters
    ----------
    counts : (K, 2, 2) array
        Rows by group, outcome and call.

    Returns
    -------
    CellMoments
    """
    n = np.asarray(counts, dtype=np.float64).ravel()
    none = np.zeros((len(n), 0))
    square = np.zeros((0, 0))
    return CellMoments(n, n, np.zeros_like(n), n, n, n, none, none, square, square)


def contribution_moments(
    added: Contributions, n_groups: int, weights: Array | None = None
) -> CellMoments:
    """All sums that the rates of any estimator and their covariance are made of.

    Parameters
    ----------
    added : Contributions
    n_groups : int
    weights : (n,) array, optional
        Sampling weights.

    Returns
    -------
    CellMoments
    """
    C = 4 * n_groups
    a = np.ones(len(added.base)) if weights is None else np.asarray(weights, dtype=np.float64)

    def by_cell(cell: NDArray[np.intp], values: Array) -> Array:
        return np.asarray(np.bincount(cell, weights=values, minlength=C), dtype=np.float64)

    v = added.value * a[:, None]
    untreated = np.flatnonzero(added.base)
    base, base_cell = (added.base * a)[untreated], added.base_cell[untreated]
    base_mass, base_square = by_cell(base_cell, base), by_cell(base_cell, base**2)
    if added.cell.shape[1] == 1:  # weighting: a row adds its own weight, in its own cell
        mass, square, between = base_mass, base_square, np.zeros(C)
    else:
        mass, square, between = np.zeros(C), np.zeros(C), np.zeros(C)
        for e in range(2):
            mass += by_cell(added.cell[:, e], v[:, e])
            square += by_cell(added.cell[:, e], v[:, e] ** 2)
            between += by_cell(added.cell[:, e], v[:, 0] * v[:, 1])
        mass = without_rounding(mass.reshape(-1, 2, 2)).ravel()
    slope, cross = _slope_and_cross(added, v, a, C)
    return CellMoments(
        mass,
        square,
        between,
        np.bincount(base_cell, minlength=C).astype(np.float64),
        base_mass,
        base_square,
        slope,
        cross,
        block_information(added.models, weights),
        _meat(added.models, a),
    )


def _slope_and_cross(added: Contributions, v: Array, a: Array, C: int) -> tuple[Array, Array]:
    """Derivatives of the cell sums, and their products with the scores, model by model."""
    slopes, crosses = [np.zeros((C, 0))], [np.zeros((C, 0))]
    for model, derivative in zip(added.models, added.derivative, strict=True):
        slope_values = derivative * a[:, None]
        cross_values = v * (a * model.residual)[:, None]
        slope = sums_by_cell(added.cell, slope_values, model.at, C)
        same = model.at is model.design and np.array_equal(cross_values, -slope_values)
        slopes.append(slope)  # w pi = o where nothing is truncated or weighted
        crosses.append(-slope if same else sums_by_cell(added.cell, cross_values, model.design, C))
    return np.hstack(slopes), np.hstack(crosses)


def sums_by_cell(cell: NDArray[np.intp], values: Array, X: Array, C: int) -> Array:
    """Sums of the rows of X, times a value, in their cells.

    Parameters
    ----------
    cell : (n, e) array of int
        Cells that each row adds to.
    values : (n, e) array
    X : (n, p) array
    C : int
        Number of cells.

    Returns
    -------
    (C, p) array
    """
    # The sparse product adds each row up in its cells, with no copy of X.
    n, e = cell.shape
    pointers = np.arange(0, n * e + 1, e)
    chosen = csc_matrix((values.ravel(), cell.ravel(), pointers), shape=(C, n))
    return np.asarray(chosen @ X)


def block_information(models: Sequence[FittedModel], weights: Array | None = None) -> Array:
    """Information of all models, block by block.

    Parameters
    ----------
    models : sequence of FittedModel
    weights : (n,) array, optional
        Sampling weights.

    Returns
    -------
    (q, q) array
    """
    blocks = []
    for model in models:
        if weights is None and model.information is not None:
            blocks.append(model.information)
            continue
        variance = model.variance if weights is None else model.variance * weights
        blocks.append(cross_product(model.design, variance, model.design))
    return np.asarray(block_diag(*blocks)) if blocks else np.zeros((0, 0))


def _meat(models: Sequence[FittedModel], a: Array) -> Array:
    """Sum of the products of the scores of all models."""
    if not models:
        return np.zeros((0, 0))
    scores = [a * model.residual for model in models]
    return np.block(
        [
            [
                cross_product(one.design, r * t, other.design)
                for other, t in zip(models, scores, strict=True)
            ]
            for one, r in zip(models, scores, strict=True)
        ]
    )


def cross_product(X: Array, w: Array, Z: Array) -> Array:
    """Sum of ``w x z'``, by blocks of rows that stay in cache.

    Parameters
    ----------
    X : (n, p) array
    w : (n,) array
    Z : (n, m) array

    Returns
    -------
    (p, m) array
    """
    total = np.zeros((X.shape[1], Z.shape[1]))
    symmetric = X is Z and not (w < 0).any()
    for first in range(0, len(X), 8_192):
        rows = slice(first, first + 8_192)
        if symmetric:  # so that half the work is done
            part = X[rows] * np.sqrt(w[rows])[:, None]
            total += part.T @ part
        else:
            total += (X[rows] * w[rows][:, None]).T @ Z[rows]
    return total


@dataclass(frozen=True)
class ClusterScores:
    """Influences of the cell sums, added up within clusters.

    Attributes
    ----------
    cells : scipy sparse (n_clusters, C) matrix
        Sums of what the rows add, by cluster and cell.
    base : scipy sparse (n_clusters, C) matrix
        Sums of the weights of the untreated, for effective sizes.
    scores : (n_clusters, q) array
        Sums of the scores of all models, such as ``x (D - pi)``, by cluster.
    """

    cells: csr_matrix
    base: csr_matrix
    scores: Array

    def __add__(self, other: ClusterScores) -> ClusterScores:
        """The sums of these rows and of others, of the same clusters."""
        return ClusterScores(
            self.cells + other.cells, self.base + other.base, self.scores + other.scores
        )

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
        weight = self.base @ denominators.T
        return np.nan_to_num(ratio(weight.sum(axis=0) ** 2, (weight**2).sum(axis=0)))

    def count(self, denominators: Array) -> Array:
        """Clusters with weight in each denominator.

        Parameters
        ----------
        denominators : (M T, C) array of 0 and 1

        Returns
        -------
        (M T,) array
        """
        there: Array = np.asarray((self.base @ denominators.T > 0).sum(axis=0), dtype=np.float64)
        return there

    def covariance(self, jacobian: Array, g: Array, clusters: Array) -> Array:
        """Covariance of the rates.

        Parameters
        ----------
        jacobian : (M T, C) array
            Derivatives of the rates in the cell sums.
        g : (M T, p) array
            Derivatives in the coefficients times the inverse information.
        clusters : (M T,) array
            Those of each rate's own, see `count`; one alone has no factor.

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
        factor = np.sqrt(np.where(clusters > 1, clusters / np.maximum(clusters - 1, 1), 1.0))
        result: Array = total * factor[:, None] * factor
        return result


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
    return contribution_scores(ipw_contributions(y, s, d, group, model), n_groups, cluster, weights)


def contribution_scores(
    added: Contributions,
    n_groups: int,
    cluster: Integers,
    weights: Array | None = None,
    n_clusters: int | None = None,
) -> ClusterScores:
    """What rows add, and their scores, added up within clusters.

    Parameters
    ----------
    added : Contributions
    n_groups : int
    cluster : (n,) array of int
        Cluster codes 0..C-1.
    weights : (n,) array, optional
    n_clusters : int, optional
        Where there are more than in these rows.

    Returns
    -------
    ClusterScores
    """
    C, n = 4 * n_groups, len(added.base)
    n_clusters = int(cluster.max()) + 1 if n_clusters is None else n_clusters
    a = np.ones(n) if weights is None else weights
    rows = np.repeat(cluster, added.cell.shape[1])
    cells = csr_matrix(
        ((added.value * a[:, None]).ravel(), (rows, added.cell.ravel())), shape=(n_clusters, C)
    )
    base = csr_matrix((added.base * a, (cluster, added.base_cell)), shape=(n_clusters, C))
    scores = [np.zeros((n_clusters, 0))]
    for model in added.models:
        spread = csr_matrix((a * model.residual, (cluster, np.arange(n))), shape=(n_clusters, n))
        scores.append(np.asarray(spread @ model.design))
    return ClusterScores(cells, base, np.hstack(scores))
