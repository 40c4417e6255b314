"""Influence functions of error rates under an intervention on group membership.

With S^g the prediction and psi_g the expected or doubly robust outcome if the row were a member of
g, each rate is a ratio N / D of sums over all rows, and a row adds u psi_g to it (cFNR) or
u (1 - psi_g) (cFPR), u = (hit - N / D) / D. The models behind psi_g add their own influence,

    DR: d psi_g / d mu_g = 1 - 1_g / p_g,  d psi_g / d p_g = -1_g (Y - mu_g) / p_g^2;  SR: 1, 0,

through the coefficients of the logistic and the multinomial regression. Where a model is a learner
its part is left out: with doubly robust rates it vanishes if both models are right; single robust
rates have no influence function then.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.confusion import ratio
from cfair.estimators.group_intervention import group_intervention_scores
from cfair.inference.influence import RateCovariance
from cfair.inference.moments import block_information
from cfair.nuisance.binary import FittedModel
from cfair.nuisance.logistic import solve_information
from cfair.nuisance.multinomial import MultinomialFit, multinomial_influence

Array = NDArray[np.float64]
Integers = NDArray[np.integer]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class MembershipTerm:
    """What inference has to know of a fitted multinomial regression of the groups.

    Attributes
    ----------
    fit : MultinomialFit
        Of all rows.
    design : (n, p) array
    raw : (n, K) array
        Probabilities that were used, before truncation.
    free : (n,) array of bool
        Rows whose probability of their own group was not cut.
    """

    fit: MultinomialFit
    design: Array
    raw: Array
    free: Bools


@dataclass(frozen=True, eq=False)
class Intervened:
    """Every row under every group.

    Attributes
    ----------
    y, group : (n,) arrays of int
    flagged : (n, K) array of bool
        Predictions.
    mu : (n, K) array
        Probabilities of the event.
    p_group : (n, K) array or None
        Probabilities of membership, cut; None for single robust rates.
    weights : (n,) array or None
        Sampling weights.
    outcome : tuple of FittedModel
        A logistic regression as used under each group; empty if `mu` counts as known.
    membership : MembershipTerm or None
        None if `p_group` counts as known.
    """

    y: Integers
    group: Integers
    flagged: Bools
    mu: Array
    p_group: Array | None = None
    weights: Array | None = None
    outcome: tuple[FittedModel, ...] = ()
    membership: MembershipTerm | None = None

    @property
    def n_groups(self) -> int:
        """Number of groups K."""
        return self.mu.shape[1]

    @cached_property
    def event(self) -> Array:
        """The (n, K) outcomes psi_g, expected or doubly robust."""
        if self.p_group is None:
            return self.mu
        return group_intervention_scores(self.mu, self.y, self.group, self.p_group)

    @cached_property
    def own(self) -> Array:
        """Weights of the rows behind effective sizes: ``1 / p_g`` of their own group, else 1."""
        if self.p_group is None:
            return np.ones(len(self.y))
        p: Array = self.p_group[np.arange(len(self.y)), self.group]
        return 1 / p

    @cached_property
    def rows(self) -> Array:
        """Rows with weight by group and outcome, (K, 2)."""
        counted = np.ones(len(self.y)) if self.weights is None else self.weights > 0
        return _by_outcome(self.y, self.group, counted, self.n_groups)

    @cached_property
    def kish(self) -> Array:
        """Kish's effective sizes (K, 2) of the rows of each group by outcome."""
        a = self.own if self.weights is None else self.own * self.weights
        total = _by_outcome(self.y, self.group, a, self.n_groups)
        squares = _by_outcome(self.y, self.group, a**2, self.n_groups)
        return np.nan_to_num(ratio(total**2, squares))


def _by_outcome(y: Integers, group: Integers, values: Array | Bools, n_groups: int) -> Array:
    cell = np.asarray(group, dtype=np.intp) * 2 + y
    sums: Array = np.bincount(cell, weights=values, minlength=2 * n_groups).astype(np.float64)
    return sums.reshape(-1, 2)


def rates_and_influence(found: Intervened) -> tuple[Array, Array]:
    """Rates, and the influence of every row on them.

    Parameters
    ----------
    found : Intervened

    Returns
    -------
    estimate : (2K,) array
        cFPR of the groups, then cFNR. NaN where the group has no row with that outcome, or the
        denominator is not positive.
    psi : (n, 2K) array
        The sum over rows of the outer products, divided by n squared, is the covariance. 0 in the
        columns of undefined rates.

    References
    ----------
    Kennedy EH (2024). Semiparametric doubly robust targeted double machine learning: a review. In:
    Handbook of Statistical Methods for Precision Medicine. Tsiatis AA (2006). Semiparametric Theory
    and Missing Data. Springer, chapter 3.
    """
    n, K = found.mu.shape
    a = np.ones(n) if found.weights is None else np.asarray(found.weights, dtype=np.float64)
    estimate, psi = np.full(2 * K, np.nan), np.zeros((n, 2 * K))
    slopes = _Slopes(found)
    for m, sign in enumerate((-1.0, 1.0)):
        for g in range(K):
            j = m * K + g
            amount = found.event[:, g] if m else 1 - found.event[:, g]
            hit = found.flagged[:, g] != bool(m)
            total = float(a @ amount)
            if not total > 0 or not found.rows[g, m]:
                continue
            estimate[j] = float(a @ np.where(hit, amount, 0.0)) / total
            u = a * (hit - estimate[j]) / total
            psi[:, j] = n * u * amount
            slopes.add(j, g, sign * n * u)
    psi += slopes.influence(a)
    psi[:, np.isnan(estimate)] = 0.0
    return estimate, psi


class _Slopes:
    """Derivatives of the rates in the coefficients of the models, and what follows from them."""

    def __init__(self, found: Intervened) -> None:
        self.found = found
        n_rates = 2 * found.n_groups
        p = found.outcome[0].at.shape[1] if found.outcome else 0
        self.outcome = np.zeros((p, n_rates))
        shape = (0, 0) if found.membership is None else found.membership.fit.coef.shape
        self.membership = np.zeros((n_rates, *shape))

    def add(self, j: int, g: int, u: Array) -> None:
        """Derivative of rate j, to which a row adds u times its outcome under g."""
        found = self.found
        mine = found.group == g
        weight = found.own * mine if found.p_group is not None else np.zeros(len(u))
        if found.outcome:
            mu = found.mu[:, g]
            self.outcome[:, j] = (u * (1 - weight) * mu * (1 - mu)) @ found.outcome[g].at
        term = found.membership
        if term is not None:
            rows = np.flatnonzero(mine & term.free)
            change = -u[rows] * weight[rows] * (found.y[rows] - found.mu[rows, g])
            moved = (np.arange(found.n_groups) == g) - term.raw[rows]  # of log p_g
            self.membership[j] = term.design[rows].T @ (change[:, None] * moved)

    def influence(self, a: Array) -> Array:
        """What the estimation of the models adds to the influence of every row, (n, 2K)."""
        found = self.found
        total = np.zeros((len(a), self.outcome.shape[1]))
        if found.outcome:
            model = found.outcome[0]
            information = block_information([model], found.weights)
            direction = solve_information(information, self.outcome)
            total += (a * model.residual)[:, None] * (model.design @ direction)
        if found.membership is not None:
            term = found.membership
            total += multinomial_influence(
                term.fit, term.design, found.group, self.membership, found.weights
            )
        return total


def intervention_covariance(
    found: Intervened, cluster: Integers | None = None, psi: Array | None = None
) -> RateCovariance:
    """Rates under each group with their joint covariance.

    Parameters
    ----------
    found : Intervened
    cluster : (n,) array of int, optional
        Influences are summed within clusters first, with the factor C / (C - 1).
    psi : (n, 2K) array, optional
        The influences, if they are known already.

    Returns
    -------
    RateCovariance
    """
    estimate, own = rates_and_influence(found)
    psi = own if psi is None else psi
    n = len(psi)
    kish = found.kish.T.ravel()
    if cluster is None:
        covariance = psi.T @ psi / n**2
    else:
        a = np.ones(n) if found.weights is None else found.weights
        codes = np.unique(cluster[a > 0], return_inverse=True)[1]
        sums = np.column_stack([np.bincount(codes, weights=x[a > 0]) for x in psi.T])
        C = len(sums)
        covariance = sums.T @ sums / n**2 * C / (C - 1)
        kish = np.minimum(kish, _cluster_kish(found, codes, a))
    undefined = np.isnan(estimate)
    covariance[undefined[:, None] | undefined] = np.nan
    return RateCovariance(estimate, covariance, kish, found.rows.T.ravel())


def _cluster_kish(found: Intervened, codes: Integers, a: Array) -> Array:
    """Kish's effective number of clusters behind each rate."""
    some, K = a > 0, found.n_groups
    cell = np.asarray(found.y, np.intp) * K + found.group
    weight = np.bincount(
        codes * 2 * K + cell[some],
        weights=(a * found.own)[some],
        minlength=2 * K * (int(codes.max()) + 1),
    ).reshape(-1, 2 * K)
    return np.nan_to_num(ratio(weight.sum(axis=0) ** 2, (weight**2).sum(axis=0)))
