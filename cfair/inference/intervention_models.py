"""Error rates under an intervention on membership when rows count otherwise or change labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.inference.group_intervention import intervention_walds
from cfair.inference.intervened import Intervened, MembershipTerm, OutcomeTerm
from cfair.inference.replicates import RatePart
from cfair.inference.rows import Rows
from cfair.nuisance.binary import BUDGET, BinaryFit, BinaryModel
from cfair.nuisance.membership import MembershipModel
from cfair.nuisance.multinomial_binary import fit_binary_many_under_groups

Array = NDArray[np.float64]
Integers = NDArray[np.integer]
Bools = NDArray[np.bool_]

#: Names of the two rates, in their order everywhere.
METRICS: tuple[str, str] = ("cfpr", "cfnr")
#: Decimals of probabilities that are scores, so that rounding errors do not decide ties.
DECIMALS = 10


@dataclass(frozen=True, eq=False)
class InterventionModels:
    """The rows of an analysis with the models behind its rates.

    Attributes
    ----------
    rows : Rows
        With the prediction under the own group; nobody is treated.
    keys : tuple of (n,) arrays
        Numbers that tell rows apart.
    cutoff : float
        The same in every replicate.
    mu : (n, K) array
        Probabilities of the event in the full sample.
    scores : (n, K) array or None
        Scores under audit; None if these are the probabilities of the event.
    p_group : (n, K) array or None
        Cut probabilities of the groups in the full sample; None for single robust rates.
    outcome, full : BinaryModel or None
        With folds and without; None if probabilities are given, the latter for a learner as well.
    whole : BinaryFit or None
        Of the latter.
    membership : MembershipModel or None
    raw : (n, K) array or None
        Probabilities of the groups before truncation.
    """

    rows: Rows
    keys: tuple[Array, ...]
    cutoff: float
    mu: Array
    scores: Array | None = None
    p_group: Array | None = None
    outcome: BinaryModel | None = None
    full: BinaryModel | None = None
    whole: BinaryFit | None = field(default=None, repr=False)
    membership: MembershipModel | None = None
    raw: Array | None = None

    @property
    def learns(self) -> bool:
        """Whether a learner is among the models."""
        both = (self.outcome, self.membership)
        return any(model is not None and model.estimator is not None for model in both)

    @property
    def has_influence(self) -> bool:
        """Whether the rates have influence functions: not those of a learner alone."""
        return self.p_group is not None or self.outcome is None or self.full is not None

    def flags(self, mu: Array) -> Bools:
        """Predictions under every group, by the scores under audit or by the model itself.

        Parameters
        ----------
        mu : (..., n, K) array
        """
        shown = np.round(mu, DECIMALS) if self.scores is None else self.scores
        return np.broadcast_to(shown >= self.cutoff, mu.shape)

    def intervened(self) -> Intervened:
        """The full sample, with all that the influence functions need."""
        term = None
        model = self.membership
        if model is not None and model.estimator is None and self.raw is not None:
            assert self.p_group is not None
            own = np.arange(self.rows.n), self.rows.group
            free = self.raw[own] == self.p_group[own]
            term = MembershipTerm(model.whole, model.design, self.raw, free)
        return Intervened(
            self.rows.y,
            self.rows.group,
            self.flags(self.mu),
            self.mu,
            self.p_group,
            self.rows.weights,
            self._outcome_term(self.whole),
            term,
        )

    def _outcome_term(self, whole: BinaryFit | None) -> OutcomeTerm | None:
        if whole is None or whole.fit is None:
            return None
        assert self.outcome is not None
        assert self.outcome.every is not None
        return OutcomeTerm(whole.models[0], whole.fit.kept, self.outcome.every)

    def walds(self, found: Intervened) -> Array:
        """Wald statistics of equal rates as the permutations compute them.

        Doubly robust rates count as if their models were known, which is right to first order where
        both are; rows count as independent.

        Parameters
        ----------
        found : Intervened

        Returns
        -------
        (2,) array
            cFPR, cFNR.
        """
        known = found.outcome is None and found.membership is None
        if found.p_group is not None and not known:
            found = replace(found, outcome=None, membership=None)
        return intervention_walds(found)

    # -- other counts ---------------------------------------------------------------------------

    def under_counts(self, counts: Array) -> RatePart:
        """Fit and estimate with every row counted so many times.

        Parameters
        ----------
        counts : (B, n) array

        Returns
        -------
        RatePart
        """
        together = max(1, BUDGET // (counts.shape[1] * self.rows.n_groups))
        rates, failures = [], 0
        for first in range(0, len(counts), together):
            found, failed = self._resampled(counts[first : first + together])
            rates.append(found)
            failures += failed
        both = np.concatenate(rates, axis=1)
        return RatePart(dict(zip(METRICS, both, strict=True)), failures)

    def _resampled(self, counts: Array) -> tuple[Array, int]:
        """Rates (2, B, K) and fits that did not converge."""
        r = self.rows
        a = counts if r.weights is None else counts * r.weights
        mu, converged = self._outcomes(counts)
        p = self.p_group
        if self.membership is not None:
            p, good = self.membership.fit_many(counts=counts)
            converged = converged & good
        with np.errstate(divide="ignore", invalid="ignore"):  # what has no model is NaN in the end
            return self._rates(a, mu, p), int(np.count_nonzero(~converged))

    def _rates(self, a: Array, mu: Array, p: Array | None) -> Array:
        """Rates (2, B, K) with weights (B, n), probabilities (B, n, K) or, of groups, (n, K)."""
        r, flagged = self.rows, self.flags(mu)
        rates = np.full((2, len(a), r.n_groups), np.nan)
        for g in range(r.n_groups):
            event, mine = mu[..., g], r.group == g
            if p is not None:
                weight = np.where(mine, 1 / np.where(mine, p[..., g], 1.0), 0.0)
                event = event + weight * (r.y - event)
            for m in range(2):
                amount = a * (event if m else 1 - event)
                total = amount.sum(axis=1)
                hits = np.sum(amount, axis=1, where=flagged[..., g] != bool(m))
                there = (a[:, mine & (r.y == m)] > 0).any(axis=1) & (total > 0)
                rates[m, :, g] = np.where(there & np.isfinite(hits), hits / total, np.nan)
        return rates

    def _outcomes(self, counts: Array) -> tuple[Array, Bools]:
        """Probabilities (B, n, K) of the event; NaN where a learner stopped."""
        B = len(counts)
        if self.outcome is None:
            return np.broadcast_to(self.mu, (B, *self.mu.shape)), np.ones(B, dtype=bool)
        start = None if self.whole is None or self.whole.fit is None else self.whole.fit.coef
        return fit_binary_many_under_groups(self.outcome, counts, start)

    # -- other labels ---------------------------------------------------------------------------

    def under_labels(self, labels: Integers) -> RatePart:
        """Fit and estimate with other group labels.

        Scores under audit stay those of the row's own group, whatever group it is put into: where
        membership matters to nothing, it does not matter to them.

        Parameters
        ----------
        labels : (B, n) array of int

        Returns
        -------
        RatePart
        """
        together = max(1, BUDGET // (labels.shape[1] * self.rows.n_groups))
        rates, walds, failures = [], [], 0
        nothing = np.full((2, self.rows.n_groups), np.nan)
        for first in range(0, len(labels), together):
            block = labels[first : first + together].astype(np.intp)
            for group, p, converged in self._memberships(block):
                try:
                    found, good = self._relabelled(group, p)
                    rate = found.rates
                    wald = self.walds(found) if self.has_influence else nothing[:, 0]
                except DataError:  # a group without a probability, or a learner that stopped
                    rate, wald, good = nothing, nothing[:, 0], False
                rates.append(rate)
                walds.append(wald)
                failures += not (converged and good)
        both = np.stack(rates, axis=1)
        return RatePart(
            dict(zip(METRICS, both, strict=True)),
            failures,
            np.stack(walds) if self.has_influence else None,
        )

    def _memberships(self, labels: Integers) -> Iterator[tuple[Integers, Array | None, bool]]:
        """Labels of each replicate, with the probabilities of the groups and whether they hold."""
        if self.membership is None:
            yield from ((group, self.p_group, True) for group in labels)
            return
        p, converged = self.membership.fit_many(labels=labels)
        yield from zip(labels, p, converged.tolist(), strict=True)

    def _relabelled(self, group: Integers, p: Array | None) -> tuple[Intervened, bool]:
        """All that the rates need with other labels, and whether the outcome model converged."""
        r = self.rows
        mu, converged = self.mu, True
        term = None
        if self.outcome is not None:
            fit = self.outcome.fit(labels=group)
            assert fit.every is not None
            mu, converged = fit.every, fit.converged
            if p is None and self.full is not None:
                term = self._outcome_term(self.full.fit(labels=group))
        flagged = self.flags(mu)
        if self.scores is not None:
            flagged = np.broadcast_to((r.s == 1)[:, None], mu.shape)
        return Intervened(r.y, group, flagged, mu, p, r.weights, term), converged
