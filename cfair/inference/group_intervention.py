"""Influence functions of error rates under an intervention on group membership.

With S^g the prediction and psi_g the expected or doubly robust outcome if the row were a member of
g, each rate is a ratio N / D of sums over all rows, and a row adds u psi_g to it (cFNR) or
u (1 - psi_g) (cFPR), u = (hit - N / D) / D. The models behind psi_g add their own influence,

    DR: d psi_g / d mu_g = 1 - 1_g / p_g,  d psi_g / d p_g = -1_g (Y - mu_g) / p_g^2;  SR: 1, 0,

through the coefficients of the logistic and the multinomial regression. Where a model is a learner
its part is left out: with doubly robust rates it vanishes if both models are right; single robust
rates have no influence function then.

The n influences on 2 K rates are made for some thousand rows at a time, and only their sums kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.confusion import ratio
from cfair.inference.equality import logit_wald
from cfair.inference.influence import RateCovariance
from cfair.inference.intervened import Intervened, MembershipTerm, OutcomeTerm, Some
from cfair.inference.moments import block_information
from cfair.nuisance.logistic import solve_information
from cfair.nuisance.multinomial_influence import multinomial_direction, multinomial_products

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


class _Influence:
    """The influence of rows on the rates, made for some rows when it is asked for."""

    def __init__(self, found: Intervened) -> None:
        self.found = found
        defined = ~np.isnan(found.rates)
        self.rates = np.where(defined, found.rates, 0.0)
        self.scale = np.where(defined, found.n / np.where(defined, found.sums[1], 1.0), 0.0)
        self.outcome = self.membership = np.zeros((0, 2 * found.n_groups))
        if found.outcome is not None:
            slopes = self._outcome_slopes(found.outcome)[found.outcome.kept]
            information = block_information([found.outcome.model], found.weights)
            self.outcome = solve_information(information, slopes)
        if found.membership is not None:
            slopes = self._membership_slopes(found.membership)
            self.membership = multinomial_direction(found.membership.fit, slopes)

    def _moves(self, rows: Some, m: int) -> Array:
        """What a change of the amount that a row adds would do to a rate, (m, K)."""
        hit = self.found.flagged[rows] != bool(m)
        moves: Array = (hit - self.rates[m]) * self.scale[m]
        moves *= self.found.a[rows][:, None]
        return moves

    def of(self, rows: Some) -> Array:
        """Influences (m, 2K) of some rows: cFPR of the groups, then cFNR."""
        found = self.found
        event = found.event(rows)
        psi = np.hstack([self._moves(rows, m) * (event if m else 1 - event) for m in range(2)])
        if found.outcome is not None:
            model = found.outcome.model
            residual = found.a[rows] * model.residual[rows]
            psi += (residual[:, None] * model.design[rows]) @ self.outcome
        term = found.membership
        if term is not None:
            weights = None if found.weights is None else found.weights[rows]
            group = found.at[1][rows]
            psi += multinomial_products(term.fit, term.design[rows], group, weights) @ (
                self.membership
            )
        return psi

    def _outcome_slopes(self, term: OutcomeTerm) -> Array:
        """Derivatives of the rates in the coefficients of the outcome model, (p, 2K)."""
        found, K = self.found, self.found.n_groups
        slopes = np.zeros((term.every.n_columns, 2 * K))
        for rows in found.blocks():
            change = found.mu[rows] * (1 - found.mu[rows])
            if found.p_group is not None:
                change[np.arange(len(change)), found.at[1][rows]] *= 1 - found.own[rows]
            for m, sign in enumerate((-1.0, 1.0)):
                slopes[:, m * K : (m + 1) * K] += term.every.totals(
                    sign * self._moves(rows, m) * change, rows
                )
        return slopes

    def _membership_slopes(self, term: MembershipTerm) -> Array:
        """Derivatives of the rates in the coefficients of the membership model, (2K, p, K)."""
        found, K = self.found, self.found.n_groups
        slopes = np.zeros((2 * K, *term.fit.coef.shape))
        group, hit = found.at[1], found.flagged[found.at]
        change = -found.a * found.own * (found.y - found.mu[found.at])  # of log p_g
        for g in range(K):
            rows = np.flatnonzero((group == g) & term.free)
            X, raw = term.design[rows], term.raw[rows]
            for m, sign in enumerate((-1.0, 1.0)):
                u = (hit[rows] != bool(m)) - self.rates[m, g]
                moved = X * (sign * self.scale[m, g] * u * change[rows])[:, None]
                slopes[m * K + g] = -moved.T @ raw
                slopes[m * K + g, :, g] += moved.sum(axis=0)
        return slopes


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
    influence, psi = _Influence(found), np.empty((found.n, 2 * found.n_groups))
    for rows in found.blocks():
        psi[rows] = influence.of(rows)
    return found.rates.ravel(), psi


def intervention_covariance(found: Intervened, cluster: Integers | None = None) -> RateCovariance:
    """Rates under each group with their joint covariance.

    Parameters
    ----------
    found : Intervened
    cluster : (n,) array of int, optional
        Influences are summed within clusters first, with the factor C / (C - 1).

    Returns
    -------
    RateCovariance
    """
    influence, size = _Influence(found), 2 * found.n_groups
    estimate, kish = found.rates.ravel(), effective_sizes(found, cluster)
    covariance = np.zeros((size, size))
    if cluster is None:
        for rows in found.blocks():
            psi = influence.of(rows)
            covariance += psi.T @ psi
    else:
        some = np.flatnonzero(found.a > 0)
        codes = np.unique(cluster[some], return_inverse=True)[1]
        sums = _cluster_sums(influence, some, codes)
        covariance = sums.T @ sums * len(sums) / (len(sums) - 1)
    covariance /= found.n**2
    undefined = np.isnan(estimate)
    covariance[undefined[:, None] | undefined] = np.nan
    return RateCovariance(estimate, covariance, kish, found.rows.T.ravel())


def _cluster_sums(influence: _Influence, some: Integers, codes: Integers) -> Array:
    """Influences of some rows summed within clusters, (C, 2K)."""
    order = np.argsort(codes, kind="stable")
    sums = np.zeros((int(codes.max()) + 1, 2 * influence.found.n_groups))
    for part in influence.found.blocks():
        here = order[part]
        if len(here):
            # sorted: rows of a cluster lie together, and may go on in the next block
            first = np.flatnonzero(np.diff(codes[here], prepend=-1))
            sums[codes[here[first]]] += np.add.reduceat(influence.of(some[here]), first, axis=0)
    return sums


def intervention_walds(found: Intervened) -> Array:
    """Logit Wald statistics of equal rates, with rows as independent.

    Parameters
    ----------
    found : Intervened

    Returns
    -------
    (2,) array
        cFPR, cFNR.
    """
    influence, K = _Influence(found), found.n_groups
    covariance = np.zeros((2, K, K))
    for rows in found.blocks():
        psi = influence.of(rows)
        for m in range(2):
            part = psi[:, m * K : (m + 1) * K]
            covariance[m] += part.T @ part
    covariance /= found.n**2
    undefined = np.isnan(found.rates)
    covariance[undefined[:, :, None] | undefined[:, None]] = np.nan
    return np.array([logit_wald(found.rates[m], covariance[m], found.kish[:, m]) for m in range(2)])


def effective_sizes(found: Intervened, cluster: Integers | None = None) -> Array:
    """Kish's effective sizes behind the rates: of rows, or of clusters where these are fewer.

    Parameters
    ----------
    found : Intervened
    cluster : (n,) array of int, optional

    Returns
    -------
    (2K,) array
    """
    kish = found.kish.T.ravel()
    if cluster is None:
        return kish
    some, K, a = found.a > 0, found.n_groups, found.a
    codes = np.unique(cluster[some], return_inverse=True)[1]
    cell = np.asarray(found.y, np.intp) * K + found.group
    weight = np.bincount(
        codes * 2 * K + cell[some],
        weights=(a * found.own)[some],
        minlength=2 * K * (int(codes.max()) + 1),
    ).reshape(-1, 2 * K)
    sizes = np.nan_to_num(ratio(weight.sum(axis=0) ** 2, (weight**2).sum(axis=0)))
    return np.minimum(kish, sizes)
