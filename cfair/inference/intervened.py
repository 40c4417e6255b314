"""Every row under every group, with the sums that rates under an intervention are made of.

There are n K outcomes psi_g: they are made for some thousand rows at a time, and only their sums
are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.confusion import ratio
from cfair.estimators.group_intervention import group_intervention_scores
from cfair.nuisance.design_rows import RowsUnderGroups
from cfair.nuisance.logistic import FittedModel
from cfair.nuisance.multinomial import MultinomialFit

Array = NDArray[np.float64]
Integers = NDArray[np.integer]
Bools = NDArray[np.bool_]
Some = slice | Integers

#: Numbers by row, group and rate that are held at once.
BLOCK = 500_000


@dataclass(frozen=True, eq=False)
class OutcomeTerm:
    """What inference has to know of a logistic regression that is used under every group.

    Attributes
    ----------
    model : FittedModel
        The fit of all rows.
    kept : (p,) array of bool
        Columns that were fitted.
    every : RowsUnderGroups
        With all p columns.
    """

    model: FittedModel
    kept: Bools
    every: RowsUnderGroups = field(repr=False)


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
    outcome : OutcomeTerm or None
        None if `mu` counts as known.
    membership : MembershipTerm or None
        None if `p_group` counts as known.
    """

    y: Integers
    group: Integers
    flagged: Bools
    mu: Array
    p_group: Array | None = None
    weights: Array | None = None
    outcome: OutcomeTerm | None = None
    membership: MembershipTerm | None = None

    @property
    def n_groups(self) -> int:
        """Number of groups K."""
        return self.mu.shape[1]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.mu)

    @cached_property
    def a(self) -> Array:
        """Sampling weights, 1 without."""
        return np.ones(self.n) if self.weights is None else np.asarray(self.weights, np.float64)

    @cached_property
    def at(self) -> tuple[Integers, Integers]:
        """Where each row stands in an array by row and group."""
        return np.arange(self.n), np.asarray(self.group, dtype=np.intp)

    @cached_property
    def own_event(self) -> Array | None:
        """Doubly robust outcome of every row under its own group; None for single robust rates."""
        if self.p_group is None:
            return None
        mu, p = (values[self.at][:, None] for values in (self.mu, self.p_group))
        return group_intervention_scores(mu, self.y, np.zeros(self.n, np.intp), p)[:, 0]

    def event(self, rows: Some) -> Array:
        """Outcomes psi_g of some rows, expected or doubly robust.

        Parameters
        ----------
        rows : slice or array of int

        Returns
        -------
        (m, K) array
        """
        psi = np.array(self.mu[rows], dtype=np.float64)
        if self.own_event is not None:
            psi[np.arange(len(psi)), self.at[1][rows]] = self.own_event[rows]
        return psi

    def blocks(self) -> Iterator[slice]:
        """Slices of rows, few enough for their influences to be held at once."""
        size = max(BLOCK // (2 * self.n_groups), 1)
        yield from (slice(i, i + size) for i in range(0, self.n, size))

    @cached_property
    def sums(self) -> tuple[Array, Array]:
        """Numerators and denominators of the rates, (2, K) each: cFPR, cFNR."""
        hits, total = np.zeros((2, self.n_groups)), np.zeros((2, self.n_groups))
        for rows in self.blocks():
            a, event, flagged = self.a[rows], self.event(rows), self.flagged[rows]
            for m, amount in enumerate((1 - event, event)):
                total[m] += a @ amount
                hits[m] += a @ np.where(flagged != bool(m), amount, 0.0)
        return hits, total

    @cached_property
    def rates(self) -> Array:
        """The (2, K) rates: cFPR, cFNR.

        NaN where the group has no row with that outcome, or the denominator is not positive.
        """
        hits, total = self.sums
        there = (total > 0) & (self.rows.T > 0)
        return np.where(there, hits / np.where(there, total, 1.0), np.nan)

    @cached_property
    def own(self) -> Array:
        """Weights of the rows behind effective sizes: ``1 / p_g`` of their own group, else 1."""
        if self.p_group is None:
            return np.ones(self.n)
        p: Array = self.p_group[self.at]
        return 1 / p

    @cached_property
    def rows(self) -> Array:
        """Rows with weight by group and outcome, (K, 2)."""
        return _by_outcome(self.y, self.group, self.a > 0, self.n_groups)

    @cached_property
    def kish(self) -> Array:
        """Kish's effective sizes (K, 2) of the rows of each group by outcome."""
        a = self.own * self.a
        total = _by_outcome(self.y, self.group, a, self.n_groups)
        squares = _by_outcome(self.y, self.group, a**2, self.n_groups)
        return np.nan_to_num(ratio(total**2, squares))


def _by_outcome(y: Integers, group: Integers, values: Array | Bools, n_groups: int) -> Array:
    cell = np.asarray(group, dtype=np.intp) * 2 + y
    sums: Array = np.bincount(cell, weights=values, minlength=2 * n_groups).astype(np.float64)
    return sums.reshape(-1, 2)
