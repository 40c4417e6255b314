"""Rates of small groups by Bayes' rule when rows count otherwise or carry other labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.confusion import confusion_counts
from cfair.estimators.small_subgroup import SmallSubgroupSums, small_subgroup_sums
from cfair.inference.permutation import EXACT_BELOW
from cfair.inference.replicates import RatePart, draws_from_cells
from cfair.inference.rows import Rows
from cfair.nuisance.binary import BinaryModel
from cfair.nuisance.borrowing import choose_alpha, mixed
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.membership import MembershipModel
from cfair.nuisance.multinomial_binary import fit_binary_many

Array = NDArray[np.float64]
Integers = NDArray[np.integer]
Replicated = TypeVar("Replicated", Array, Integers)

#: Elements of an array over replicates, rows and groups that are held at once.
BUDGET = 4_000_000
#: Share of the external model in a replicate, kept beside its rates until they are taken apart.
ALPHA = "alpha"


@dataclass(frozen=True, eq=False)
class Borrowing:
    """What is borrowed, and by which criterion.

    Attributes
    ----------
    external : (n, K) array
        External probabilities of the groups, cut like the internal ones.
    borrow : {"brier", "auc"}
    as_r : bool
        Whether to search for alpha as the R package does.
    """

    external: Array = field(repr=False)
    borrow: str = "brier"
    as_r: bool = False

    def alpha(self, internal: Array, group: Integers, weights: Array | None) -> float:
        """Share of the external model.

        Parameters
        ----------
        internal : (n, K) array
        group : (n,) array of int
        weights : (n,) array or None

        Returns
        -------
        float
        """
        return choose_alpha(self.external, internal, group, self.borrow, weights, as_r=self.as_r)


@dataclass(frozen=True, eq=False)
class Probabilities:
    """Probabilities behind the rates, of the full sample or of a replicate; cut to their limits.

    Attributes
    ----------
    pi : (n,) array
        Of treatment.
    mu0, mu0_s1, mu0_s0 : (n,) arrays
        Of the event without treatment; with the call set to 1 and to 0.
    """

    pi: Array
    mu0: Array
    mu0_s1: Array
    mu0_s0: Array


@dataclass(frozen=True, eq=False)
class SmallSubgroupModels:
    """The rows of an analysis with the models behind the rates of its small groups.

    Attributes
    ----------
    rows : Rows
    targets : (T, K) array of 0 and 1
        Groups, then unions of groups.
    probabilities : Probabilities
        Of the full sample.
    treatment : BinaryModel or None
        None if the propensity was given.
    outcome, outcome_with_call : BinaryModel
    membership : MembershipModel
    borrowing : Borrowing or None
    truncation : (float, float)
    content : (n,) array
        A number that tells rows apart by what is in them but their group.
    place : (n,) array
        Position in an order by content, which tells apart rows alike in all but their group.
    coefs : sequence of array or None
        Coefficients of treatment and outcome models in the full sample, to start from.
    exact : bool
        Whether replicates take no shortcut.
    """

    rows: Rows
    targets: Array
    probabilities: Probabilities
    treatment: BinaryModel | None
    outcome: BinaryModel
    outcome_with_call: BinaryModel
    membership: MembershipModel
    borrowing: Borrowing | None
    truncation: tuple[float, float]
    content: Array
    place: Array
    coefs: Sequence[Array | None] = (None, None, None)
    exact: bool = False

    @property
    def keys(self) -> Sequence[Array]:
        """Numbers that tell rows apart, the first by what is in them."""
        return [self.content, self.probabilities.pi, self.place]

    @property
    def learns(self) -> bool:
        """Whether a learner is among the models."""
        models = (self.treatment, self.outcome, self.membership)
        return any(m is not None and m.estimator is not None for m in models)

    @property
    def one_step(self) -> bool:
        """Whether a propensity with attributes takes one Newton step under other labels."""
        fits = self.treatment is not None and self.treatment.in_sample
        return fits and not self.exact and self.rows.n >= EXACT_BELOW

    # -- one estimate ---------------------------------------------------------------------------

    def sums(
        self,
        known: Probabilities,
        internal: Array,
        group: Integers,
        weights: Array | None,
    ) -> tuple[SmallSubgroupSums, float, Array]:
        """What the rates are made of, the share that was borrowed, and the mixture.

        Parameters
        ----------
        known : Probabilities
        internal : (n, K) array
            Membership out of fold.
        group : (n,) array of int
        weights : (n,) array or None

        Returns
        -------
        sums : SmallSubgroupSums
        alpha : float
            NaN without external information.
        p_group : (n, K) array
        """
        alpha, p_group = float("nan"), internal
        if self.borrowing is not None:
            alpha = self.borrowing.alpha(internal, group, weights)
            p_group = mixed(alpha, self.borrowing.external, internal)
        r, k = self.rows, known
        sums = small_subgroup_sums(
            r.y, r.s, r.d, group, k.pi, k.mu0, k.mu0_s1, k.mu0_s0, p_group, weights
        )
        return sums, alpha, p_group

    # -- replicates -----------------------------------------------------------------------------

    def with_folds(self, codes: NDArray[np.intp]) -> SmallSubgroupModels:
        """The same models with other folds, where they have any, for replicates to be dealt anew.

        Parameters
        ----------
        codes : (n,) array of int
            Fold of each row, from 0.

        Returns
        -------
        SmallSubgroupModels
        """
        folds = Folds(codes, int(codes.max()) + 1, drawn=False)
        outcome, with_call = (
            model if model.folds is None else replace(model, folds=folds)
            for model in (self.outcome, self.outcome_with_call)
        )
        return replace(
            self,
            membership=replace(self.membership, folds=folds),
            outcome=outcome,
            outcome_with_call=with_call,
        )

    def under_counts(self, counts: Array) -> RatePart:
        """Fit and estimate with every row counted so many times.

        Parameters
        ----------
        counts : (B, n) array

        Returns
        -------
        RatePart
        """
        return self._in_parts(counts, self._of_counts)

    def under_labels(self, labels: Integers) -> RatePart:
        """Fit and estimate with other group labels.

        Parameters
        ----------
        labels : (B, n) array of int

        Returns
        -------
        RatePart
        """
        return self._in_parts(labels, self._of_labels)

    def _in_parts(self, replicates: Replicated, work: Callable[[Replicated], RatePart]) -> RatePart:
        """As many replicates at once as fit in memory."""
        together = max(1, BUDGET // (2 * self.rows.n))
        parts = [
            work(replicates[first : first + together])
            for first in range(0, len(replicates), together)
        ]
        rates = {
            name: np.concatenate([part.rates[name] for part in parts]) for name in parts[0].rates
        }
        return RatePart(rates, sum(part.not_converged for part in parts))

    def _of_counts(self, counts: Array) -> RatePart:
        r = self.rows
        total = counts if r.weights is None else counts * r.weights
        converged = np.ones(len(counts), dtype=bool)
        models = (self.treatment, self.outcome, self.outcome_with_call)
        values: list[Array] = []
        for model, start in zip(models, self.coefs, strict=True):
            if model is None:
                values.append(np.broadcast_to(self.probabilities.pi, counts.shape))
                continue
            found, good = fit_binary_many(model, counts, start)
            converged &= good
            values += [np.clip(value, *self.truncation, out=value) for value in found]
        known = (Probabilities(*row) for row in zip(*values, strict=True))
        groups = (r.group for _ in counts)
        return self._part(known, self._memberships(counts=counts), groups, total, converged)

    def _of_labels(self, labels: Integers) -> RatePart:
        r = self.rows
        groups = [row.astype(np.intp) for row in labels]
        known = [self._relabelled(group) for group in groups]
        converged = np.array([good for _, good in known])
        weights = None if r.weights is None else np.broadcast_to(r.weights, labels.shape)
        internal = self._memberships(labels=np.stack(groups))
        return self._part((k for k, _ in known), internal, iter(groups), weights, converged)

    def _relabelled(self, group: Integers) -> tuple[Probabilities, bool]:
        """Probabilities under other labels; only a propensity with attributes depends on them."""
        if self.treatment is None or not self.treatment.uses_groups:
            return self.probabilities, True
        fit = self.treatment.fit(labels=group, one_step=self.one_step)
        k = self.probabilities
        pi = np.clip(fit.values[0], *self.truncation)
        return Probabilities(pi, k.mu0, k.mu0_s1, k.mu0_s0), fit.converged

    def _memberships(
        self, counts: Array | None = None, labels: Integers | None = None
    ) -> Iterator[tuple[Array, bool]]:
        """Probabilities (n, K) of the groups in each replicate, and whether they hold."""
        B = len(counts) if counts is not None else len(np.asarray(labels))
        together = max(1, BUDGET // (self.rows.n * self.rows.n_groups))
        for first in range(0, B, together):
            some = slice(first, first + together)
            p, converged = self.membership.fit_many(
                None if counts is None else counts[some], None if labels is None else labels[some]
            )
            yield from zip(p, converged.tolist(), strict=True)

    def _part(
        self,
        known: Iterator[Probabilities],
        internal: Iterator[tuple[Array, bool]],
        groups: Iterator[Integers],
        weights: Array | None,
        converged: NDArray[np.bool_],
    ) -> RatePart:
        """Rates of a few replicates, one after the other."""
        r = self.rows
        sums, alphas, cells = [], [], []
        for b, (k, (p, settled), group) in enumerate(zip(known, internal, groups, strict=True)):
            w = None if weights is None else weights[b]
            converged[b] &= settled
            one, alpha, _ = self.sums(k, p, group, w)
            sums.append(one)
            alphas.append(alpha)
            cells.append(confusion_counts(r.y, r.s, group, r.n_groups, w))
        together = SmallSubgroupSums(
            *(np.stack([getattr(one, name) for one in sums]) for name in _PARTS)
        )
        cfpr, cfnr = together.rates(self.targets)
        observed = draws_from_cells(np.stack(cells), self.targets, ("fpr", "fnr"))
        rates = {"cfpr": cfpr, "cfnr": cfnr, **observed}
        if self.borrowing is not None:
            rates[ALPHA] = np.array(alphas)[:, None]
        return RatePart(rates, int((~converged).sum()))


_PARTS = ("overall", "numerator", "denominator", "size")
