"""The probability of each group given the covariates, out of fold, as it can be fitted again."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import DataError
from cfair.frame import show_some
from cfair.nuisance.checks import require_rows
from cfair.nuisance.crossfit import Folds, require_training_classes
from cfair.nuisance.membership_checks import membership_design, membership_fit_notes
from cfair.nuisance.multinomial import MultinomialFit, fit_multinomial
from cfair.nuisance.multinomial_many import (
    ROUNDED,
    fit_multinomial_many,
    predict_many,
    settled_fits,
)
from cfair.nuisance.order import content_order
from cfair.nuisance.request import ModelRequest

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

_BLOCK = 100_000  # probabilities that are worked out together, so that they stay in cache
_OF_SHARE = 0.25  # the part of a group's share that its lower limit may be at most


@dataclass(frozen=True, eq=False)
class MembershipFit:
    """Probabilities of the groups from models that had not seen the row.

    Attributes
    ----------
    p : (n, K) array
        Cut to the limits and, if asked for, put back to a sum of 1.
    raw : (n, K) array
        Before cutting. 0 for a group that is absent from the rows of the fit.
    converged : bool
    n_truncated : int
        Rows with a probability that was cut.
    lower : (K,) array
        Lower limit of each group.
    n_raised : (K,) array of int
        Rows whose probability of the group was below it.
    largest_change : float
        Largest change of a probability by bringing the sum of its row back to 1.
    notes : tuple of str
    """

    p: Array
    raw: Array
    converged: bool
    n_truncated: int
    lower: Array
    n_raised: NDArray[np.intp]
    largest_change: float
    notes: tuple[str, ...] = ()


def lower_limits(low: float, group: Integers, n_groups: int, weights: Array | None) -> Array:
    """Lower limits of the probabilities of groups: `low`, or a quarter of the share if less.

    A limit far above the share of a group would put nearly all of its probability into rows that
    have little to do with it, and would itself be the number of its rows that are expected.

    Parameters
    ----------
    low : float
    group : (n,) array of int
        Codes 0..K-1.
    n_groups : int
        K.
    weights : (n,) array or None
        Sampling weights, which count in the shares.

    Returns
    -------
    (K,) array
        `low` itself where a group is 4 times as much of the rows, or more.

    Examples
    --------
    >>> import numpy as np
    >>> lower_limits(0.005, np.repeat([0, 1], [999, 1]), 2, None).tolist()
    [0.005, 0.00025]
    """
    mass = np.bincount(group, weights, n_groups)
    limits: Array = np.minimum(low, _OF_SHARE * mass / mass.sum())
    return limits


def cut(
    raw: Array,
    present: NDArray[np.bool_],
    limits: tuple[float | Array, float],
    renormalise: bool = True,
) -> Array:
    """Cut probabilities to limits, and bring the sum of every row back to 1.

    Parameters
    ----------
    raw : (..., K, n) array
    present : (..., K) array of bool
        Groups that have rows; the others keep what they have, and are not counted in the sum.
    limits : (float, float)
        The lower one may be that of each group, (K, 1).
    renormalise : bool, default True
        Otherwise rows sum to 1 only roughly, as in the R package.

    Returns
    -------
    (..., K, n) array

    Examples
    --------
    >>> import numpy as np
    >>> cut(np.array([[0.999], [0.001]]), np.ones(2, bool), (0.005, 0.995)).ravel().tolist()
    [0.995, 0.005]
    """
    here = present[..., None]
    p: Array = np.where(here, np.clip(raw, *limits), raw)
    if renormalise:
        p /= np.sum(p, axis=-2, keepdims=True)
    return p


@dataclass(frozen=True, eq=False)
class MembershipModel:
    """A model of group membership, predicted out of fold.

    Attributes
    ----------
    group : (n,) array of int
        Codes 0..K-1.
    n_groups : int
        K.
    design : (n, p) array
        Covariates, the attributes not among them; without the intercept for a learner.
    weights : (n,) array or None
        Sampling weights.
    folds : Folds
    estimator : object or None
        A classifier of scikit-learn; None for a multinomial logistic regression.
    order : (n,) array of int or None
        Order by content in which a learner is given the rows.
    seed : int
        Of learners that need one.
    truncation : (float, float)
        Limits of the probabilities.
    renormalise : bool
        Whether the probabilities of a row are brought back to a sum of 1 after cutting.
    names : tuple of str
        Of the columns, for messages.
    group_names : tuple of str
    lower : (K,) array or None
        Lower limit of each group in place of that of all, as `lower_limits` gives them. Those of
        the full sample hold in replicates too.
    """

    group: Integers
    n_groups: int
    design: Array = field(repr=False)
    weights: Array | None
    folds: Folds
    estimator: Any = None
    order: NDArray[np.intp] | None = field(default=None, repr=False)
    seed: int = 0
    truncation: tuple[float, float] = (0.005, 0.995)
    renormalise: bool = True
    names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()
    lower: Array | None = None

    @property
    def limits(self) -> tuple[Array, float]:
        """Lower limits of the groups (K, 1), and the upper one of all."""
        low, high = self.truncation
        lower = np.full(self.n_groups, low) if self.lower is None else self.lower
        return lower[:, None], high

    def require_groups(self) -> None:
        """Refuse folds outside which a group has no row.

        Raises
        ------
        DataError
            Which names the fold and the groups, and says what to do.
        """
        used = np.ones(len(self.group), dtype=bool) if self.weights is None else self.weights > 0
        sizes = np.bincount(self.group[used], minlength=self.n_groups)
        filled = np.flatnonzero(np.bincount(self.group, minlength=self.n_groups))
        names = [repr(name) for name in self.group_names] or [str(k) for k in range(self.n_groups)]
        lone = [f"{names[k]} ({sizes[k]})" for k in filled if sizes[k] < 2]
        if lone:
            what = "rows" if self.weights is None else "rows of weight above 0"
            raise DataError(
                f"membership model: groups need at least 2 {what}, one to be predicted and one to "
                f"learn from, but {show_some(lone)} has fewer. Merge it with another group, or "
                'leave it out (min_group_size=2, small_groups="drop").'
            )
        require_training_classes(
            self.folds,
            np.searchsorted(filled, self.group),
            len(filled),
            used,
            "membership model",
            [names[k] for k in filled],
        )

    # -- one fit --------------------------------------------------------------------------------

    def fit(self, counts: Array | None = None, labels: Integers | None = None) -> MembershipFit:
        """Fit, with rows counted so many times, or with other group labels.

        Parameters
        ----------
        counts : (n,) array, optional
            How often each row was drawn; once by default.
        labels : (n,) array of int, optional
            Group of each row; its own by default.

        Returns
        -------
        MembershipFit

        Raises
        ------
        DataError
            If, without counts or labels, some group has no row outside a fold, or a learner stops.
        """
        own = counts is None and labels is None
        if own:
            self.require_groups()
        group = self.group if labels is None else np.asarray(labels)
        w = self._multiplied(counts)
        present = self._present(group, w)
        if self.estimator is not None:
            raw, converged, notes = self._learn(group, counts)
        else:
            raw, converged, notes = self._logistic(group, w, own)
        lower, _ = self.limits
        truncated = np.clip(raw, *self.limits) != raw
        p = cut(raw, present, self.limits, self.renormalise)
        before = cut(raw, present, self.limits, False)
        return MembershipFit(
            p=p.T,
            raw=raw.T,
            converged=converged,
            n_truncated=int(truncated[present].any(axis=0).sum()),
            lower=lower[:, 0],
            n_raised=np.count_nonzero((raw < lower) & present[:, None], axis=1),
            largest_change=float(np.max(np.abs(p - before), initial=0.0)),
            notes=notes,
        )

    def _multiplied(self, counts: Array | None) -> Array | None:
        if counts is None or self.weights is None:
            return self.weights if counts is None else counts
        return counts * self.weights

    def _present(self, group: Integers, w: Array | None) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = np.bincount(group, w, self.n_groups) > 0
        return found

    def _learn(self, group: Integers, counts: Array | None) -> tuple[Array, bool, tuple[str, ...]]:
        from cfair.nuisance.learners import out_of_fold

        found = out_of_fold(
            self.estimator,
            self.design,
            group.astype(np.intp),
            self.folds,
            counts=counts,
            weights=self.weights,
            n_classes=max(self.n_groups, 3),  # of two classes it gives the second alone
            order=self.order,
            seed=self.seed,
        )
        return found.values[0].T[: self.n_groups], True, found.notes

    def _settled(self) -> tuple[Array, bool, tuple[str, ...]] | None:
        """All folds at once, from the fit of all rows; None if something is to be said of a fit."""
        whole = self.whole
        if not whole.kept.all() or not whole.converged or whole.separated.any():
            return None
        fits = settled_fits(
            self.design,
            self.group,
            self.n_groups,
            self.weights,
            whole.coef,
            folds=self.folds.codes,
            left=ROUNDED,
        )
        if not fits.converged.all():
            return None
        return self._predictions(fits.coef)[0], True, ()

    def _logistic(
        self, group: Integers, w: Array | None, own: bool
    ) -> tuple[Array, bool, tuple[str, ...]]:
        settled = self._settled() if own else None
        return settled or self._fold_by_fold(group, w, own)

    def _fold_by_fold(
        self, group: Integers, w: Array | None, say: bool
    ) -> tuple[Array, bool, tuple[str, ...]]:
        raw = np.full((self.n_groups, len(group)), np.nan)
        fits = []
        for fold in range(self.folds.n_folds):
            train = self.folds.train(fold)
            weights = None if w is None else w[train]
            if weights is not None and not weights.any():
                continue
            fit = fit_multinomial(self.design[train], group[train], self.n_groups, weights=weights)
            held = self.folds.rows(fold)
            raw[:, held] = fit.predict(self.design[held]).T
            fits.append(fit)
        converged = bool(fits) and all(fit.converged for fit in fits)
        if not say:
            return raw, converged, ()
        notes = membership_fit_notes(fits, self.names, self.group_names, self.folds.n_folds)
        return raw, converged, tuple(notes)

    # -- many fits ------------------------------------------------------------------------------

    def fit_many(
        self, counts: Array | None = None, labels: Integers | None = None
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Fit under many sets of counts or of labels, in the same folds.

        Parameters
        ----------
        counts : (B, n) array, optional
            How often each row was drawn in each replicate.
        labels : (B, n) array of int, optional
            Groups in each replicate.

        Returns
        -------
        p : (B, n, K) array
            A transposed view: the rows of a group lie together. All rows are predicted. 0 for a
            group without rows in the replicate; NaN where no row was left to fit on.
        converged : (B,) array of bool
            False as well where a group has rows, but none outside some fold, so that its
            probability there is the lower limit.
        """
        if counts is None and labels is None:
            raise ValueError("fit_many needs counts or labels.")
        B = len(counts) if counts is not None else len(np.asarray(labels))
        if self.estimator is not None:
            return self._learn_many(B, counts, labels)
        group = np.broadcast_to(self.group if labels is None else np.asarray(labels), (B, self._n))
        weights = self._multiplied(counts)
        present = self._present_many(group, weights)
        kept = self.whole.kept
        fits = fit_multinomial_many(
            self.design[:, kept],
            self.group if labels is None else group,
            self.n_groups,
            weights,
            self.whole.coef[kept] if labels is None else None,
            folds=self.folds.codes,
        )
        p = self._predictions(fits.coef, present)
        known = ~np.isnan(fits.coef).all(axis=2)
        lost = (present[:, None] & ~known).any(axis=(1, 2))
        converged: NDArray[np.bool_] = np.all(fits.converged, axis=1) & ~lost
        return p.transpose(0, 2, 1), converged

    def _predictions(self, coef: Array, present: NDArray[np.bool_] | None = None) -> Array:
        """Probabilities (B, K, n) of the rows of each fold by the coefficients (B, F, q, K).

        Cut to the limits if it is said which groups (B, K) are present.
        """
        p = np.empty((len(coef), self.n_groups, self._n))
        size = max(_BLOCK // max(len(coef) * self.n_groups, 1), 1)
        for fold in range(coef.shape[1]):
            held = self.folds.rows(fold)
            for rows in np.split(held, range(size, len(held), size)):
                raw = predict_many(coef[:, fold], self.design[rows][:, self.whole.kept])
                raw = raw.transpose(0, 2, 1)
                p[:, :, rows] = (
                    raw if present is None else cut(raw, present, self.limits, self.renormalise)
                )
        return p

    @property
    def _n(self) -> int:
        return len(self.group)

    @cached_property
    def whole(self) -> MultinomialFit:
        """The fit of all rows, from which those of folds and replicates start."""
        return fit_multinomial(self.design, self.group, self.n_groups, weights=self.weights)

    def _present_many(self, group: Integers, weights: Array | None) -> NDArray[np.bool_]:
        w = np.ones(self._n) if weights is None else weights
        rows = zip(group, np.broadcast_to(w, group.shape), strict=True)
        return np.stack([self._present(g, v) for g, v in rows])

    def _learn_many(
        self, B: int, counts: Array | None, labels: Integers | None
    ) -> tuple[Array, NDArray[np.bool_]]:
        """One replicate after the other; one in which the learner stops has no probabilities."""
        p = np.full((B, self.n_groups, self._n), np.nan)
        converged = np.zeros(B, dtype=bool)
        for b in range(B):
            try:
                fit = self.fit(
                    None if counts is None else counts[b], None if labels is None else labels[b]
                )
            except DataError:  # a thin draw: the fit to all rows has gone through
                continue
            p[b], converged[b] = fit.p.T, True
        return p.transpose(0, 2, 1), converged


def membership_model(
    request: ModelRequest,
    cohort: Cohort,
    folds: Folds,
    *,
    seed: int = 0,
    truncation: tuple[float, float] = (0.005, 0.995),
    by_share: bool = False,
    renormalise: bool = True,
) -> MembershipModel:
    """Build the model of group membership that was asked for on the rows of the analysis.

    Parameters
    ----------
    request : ModelRequest
        A formula without a left side, or a learner.
    cohort : Cohort
    folds : Folds
    seed : int, default 0
        Of a learner.
    truncation : (float, float), default (0.005, 0.995)
    by_share : bool, default False
        Whether the lower limit of a rare group is a quarter of its share, as `lower_limits` says;
        not in the R package.
    renormalise : bool, default True

    Returns
    -------
    MembershipModel

    Raises
    ------
    FormulaError, DataError
        If a column cannot be used, there are too few rows, or a group is too small for the folds.
    """
    assert request.formula is not None
    design = membership_design(request.formula, cohort)
    require_rows(cohort, design, cohort.weighted, "membership model")
    learner = request.learner
    first = int(learner is not None and request.formula.intercept)
    if design.matrix.shape[1] == first:
        raise request.formula.error("a Learner needs at least one column. Add a term.")
    groups = cohort.groups
    lower = None
    if by_share:
        lower = lower_limits(truncation[0], groups.codes, groups.n_groups, cohort.weights)
    model = MembershipModel(
        groups.codes,
        groups.n_groups,
        np.ascontiguousarray(design.matrix[:, first:]),
        cohort.weights,
        folds,
        None if learner is None else learner.estimator,
        None if learner is None else content_order(cohort),
        seed,
        truncation,
        renormalise,
        design.names[first:],
        groups.names,
        lower,
    )
    model.require_groups()
    return model
