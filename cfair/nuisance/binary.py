"""A model of a binary event that can be fitted again: other weights, other labels, out of fold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cfair.errors import DataError
from cfair.nuisance.checks import binary_fold_notes
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.design_rows import DesignRows, RowsUnderGroups, constant_of_groups
from cfair.nuisance.logistic import (
    FittedModel,
    LogisticFit,
    fit_logistic,
    independent_columns,
    solve_information,
    sweep,
)

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: Elements of a replicate-by-row array that are held at once.
BUDGET = 4_000_000


@dataclass(frozen=True, eq=False)
class BinaryFit:
    """A fitted model's probabilities.

    Attributes
    ----------
    values : tuple of (n,) arrays
        One for each place where probabilities were wanted.
    fit : LogisticFit or None
        None for a learner, or out of fold.
    models : tuple of FittedModel
        One for each value, where the model was fitted and used on the same rows; else empty, and
        the probabilities count as known.
    converged : bool
    notes : tuple of str
    every : (n, K) array or None
        Under every group, if that was wanted.
    """

    values: tuple[Array, ...]
    fit: LogisticFit | None = None
    models: tuple[FittedModel, ...] = ()
    converged: bool = True
    notes: tuple[str, ...] = ()
    every: Array | None = None


@dataclass(frozen=True, eq=False)
class BinaryModel:
    """A model of a binary event: maximum likelihood of a logistic regression, or a learner.

    Attributes
    ----------
    target : (n,) array of 0 and 1
    train : DesignRows
    at : tuple of DesignRows
        Where probabilities are wanted: the rows themselves, or with treatment set to none.
    used : (n,) array of bool
        Rows that take part in the fit.
    weights : (n,) array or None
        Sampling weights.
    estimator : object or None
        A classifier of scikit-learn; None for a logistic regression.
    folds : Folds or None
        None fits and predicts on the same rows.
    order : (n,) array of int or None
        Order by content in which a learner is given the rows.
    seed : int
        Of learners that need one.
    what : str
        For messages.
    every : RowsUnderGroups or None
        Where probabilities under every group are wanted as well.
    """

    target: Array
    train: DesignRows
    at: tuple[DesignRows, ...]
    used: NDArray[np.bool_]
    weights: Array | None = None
    estimator: Any = None
    folds: Folds | None = None
    order: NDArray[np.intp] | None = None
    seed: int = 0
    what: str = "model"
    every: RowsUnderGroups | None = None

    @property
    def in_sample(self) -> bool:
        """Whether it is fitted and used on the same rows, by maximum likelihood."""
        return self.estimator is None and self.folds is None

    @property
    def uses_groups(self) -> bool:
        """Whether another fit is needed when the labels change."""
        return self.train.uses_groups or any(rows.uses_groups for rows in self.at)

    @cached_property
    def _kept(self) -> NDArray[np.bool_]:
        """Columns of full rank among the rows that are used."""
        return independent_columns(self.train.matrix[self.used])

    @cached_property
    def without_labels(self) -> Array:
        """Coefficients of the fit without labels, from which fits under permuted labels start."""
        split, used = self.train.split, self.used
        start = np.zeros(self.train.matrix.shape[1])
        if split is None:
            fit = self._logistic(self.train.matrix, used, None, None)
            return np.asarray(np.nan_to_num(fit.coef))
        w = None if self.weights is None else self.weights[used]
        fixed, constant = split.fixed[used], constant_of_groups(split)
        if constant is not None:  # the group columns stand for the intercept
            fixed = np.column_stack([fixed, np.ones(len(fixed))])
        coef = np.nan_to_num(fit_logistic(fixed, self.target[used], weights=w).coef)
        start[split.fixed_columns] = coef[: split.fixed.shape[1]]
        if constant is not None:
            start[split.by_group_columns] = coef[-1] * constant
        return start

    @property
    def variance_without_labels(self) -> Array:
        """Variance of the event in each row by the fit without labels; 0 for a row not used."""
        p = expit(self.train.matrix @ self.without_labels)
        return np.where(self.used, p * (1 - p), 0.0)

    def fit(
        self,
        counts: Array | None = None,
        labels: Integers | None = None,
        *,
        one_step: bool = False,
    ) -> BinaryFit:
        """Fit, with rows counted so many times, or with other group labels.

        Parameters
        ----------
        counts : (n,) array, optional
            How often each row was drawn; once by default.
        labels : (n,) array of int, optional
            Group of each row; its own by default.
        one_step : bool, default False
            With labels: a single Newton step from the fit without labels.

        Returns
        -------
        BinaryFit
        """
        X = self.train.under(labels)
        places = [X if rows is self.train else rows.under(labels) for rows in self.at]
        if self.estimator is not None:
            return self._learn(X, places, counts)
        start = None if labels is None else self.without_labels
        if self.folds is None:
            if one_step and start is not None:
                return self._step(X, places, start)
            fit = self._logistic(X, self.used, counts, start)
            here = fit.fitted if len(fit.fitted) == len(X) else fit.predict(X)
            models = self._models(X, places, fit, here, counts)
            values = tuple(here if Z is X else fit.predict(Z) for Z in places)
            every = None if self.every is None else self.every.probabilities(fit.coef)
            return BinaryFit(values, fit, models, fit.converged, every=every)
        return self._out_of_fold(X, places, counts, labels, start)

    def _out_of_fold(
        self,
        X: Array,
        places: list[Array],
        counts: Array | None,
        labels: Integers | None,
        start: Array | None,
    ) -> BinaryFit:
        assert self.folds is not None
        values = [np.empty(len(X)) for _ in places]
        every = None if self.every is None else np.empty((len(X), self.every.n_groups))
        fits = []
        for k in range(self.folds.n_folds):
            held = self.folds.codes == k
            fits.append(self._logistic(X, self.used & ~held, counts, start))
            for value, Z in zip(values, places, strict=True):
                value[held] = fits[-1].predict(Z[held])
            if every is not None and self.every is not None:
                every[held] = self.every.probabilities(fits[-1].coef, held)
        converged = all(fit.converged for fit in fits)
        notes = binary_fold_notes(fits) if counts is None and labels is None else ()
        return BinaryFit(tuple(values), converged=converged, notes=notes, every=every)

    def _logistic(
        self, X: Array, rows: NDArray[np.bool_], counts: Array | None, start: Array | None
    ) -> LogisticFit:
        w = self._multiplied(counts)
        if w is not None:
            rows = rows & (w > 0)
        if rows.all():
            return fit_logistic(X, self.target, weights=w, start=start)
        return fit_logistic(
            X[rows], self.target[rows], weights=None if w is None else w[rows], start=start
        )

    def _models(
        self, X: Array, places: list[Array], fit: LogisticFit, p: Array, counts: Array | None
    ) -> tuple[FittedModel, ...]:
        """The fit as influence functions see it, with its probabilities `p`."""
        if not places:
            return ()
        kept = fit.kept
        X_kept = X if kept.all() else np.ascontiguousarray(X[:, kept])
        residual = np.where(self.used, self.target - p, 0.0)
        variance = np.where(self.used, p * (1 - p), 0.0)
        information = fit.information if self._multiplied(counts) is None else None
        at = (
            X_kept if Z is X else Z if kept.all() else np.ascontiguousarray(Z[:, kept])
            for Z in places
        )
        return tuple(FittedModel(X_kept, residual, variance, Z, information) for Z in at)

    def _step(self, X: Array, places: list[Array], start: Array) -> BinaryFit:
        """One Newton step; enough where permuted labels can have no effect."""
        kept, rows = self._kept, self.used
        if not kept.all():  # what a group lacks it may have under other labels
            kept = independent_columns(X[rows])
        if not kept.all():
            places = [Z[:, kept] for Z in places] if any(Z is not X for Z in places) else []
            X, start = X[:, kept], start[kept]
            places = places or [X] * len(self.at)
        w = None if self.weights is None else self.weights[rows]
        some, target = (X, self.target) if rows.all() else (X[rows], self.target[rows])
        _, score, information = sweep(some, target, w, start)
        coef = start + solve_information(information, score)
        p = expit(X @ coef)
        residual = np.where(rows, self.target - p, 0.0)
        variance = np.where(rows, p * (1 - p), 0.0)
        return BinaryFit(
            tuple(p if Z is X else expit(Z @ coef) for Z in places),
            models=tuple(FittedModel(X, residual, variance, Z) for Z in places),
        )

    def _multiplied(self, counts: Array | None) -> Array | None:
        if counts is None or self.weights is None:
            return self.weights if counts is None else counts
        return counts * self.weights

    def _learn(self, X: Array, places: list[Array], counts: Array | None) -> BinaryFit:
        from cfair.nuisance.learners import out_of_fold

        assert self.folds is not None  # a learner is never judged on the rows it has seen
        n, wanted = len(X), list(places)
        if counts is not None and not self._both_classes(self.folds, counts):
            nothing = np.full(n, np.nan)  # a replicate that leaves the rates undefined
            none = None if self.every is None else np.full((n, self.every.n_groups), np.nan)
            return BinaryFit(tuple(nothing for _ in places), converged=False, every=none)
        if self.every is not None:  # only blocks of their rows are asked for
            wanted += cast("list[Array]", self.every.matrices())
        found = out_of_fold(
            self.estimator,
            X,
            self.target.astype(np.intp),
            self.folds,
            used=self.used,
            counts=counts,
            weights=self.weights,
            predict=wanted,
            order=self.order,
            seed=self.seed,
        )
        every = None if self.every is None else np.column_stack(found.values[len(places) :])
        values = tuple(found.values[: len(places)])
        return BinaryFit(values, None, (), not found.notes, tuple(found.notes), every)

    def _both_classes(self, folds: Folds, counts: Array) -> bool:
        """Whether the rows drawn outside each fold have both events and none."""
        w = self._multiplied(counts)
        assert w is not None
        some = self.used & (w > 0)
        cells = folds.codes[some] * 2 + self.target[some].astype(np.intp)
        table = np.bincount(cells, minlength=2 * folds.n_folds).reshape(-1, 2)
        return bool((table.sum(axis=0) - table > 0).all())

    @cached_property
    def of_all_rows(self) -> Array:
        """Coefficients of the fit to all rows that are used, NaN for a column that was left out."""
        return np.asarray(self._logistic(self.train.matrix, self.used, None, None).coef)

    def fit_each(self, counts: Array) -> tuple[list[Array], NDArray[np.bool_]]:
        """Fit under many sets of counts, one after the other.

        Parameters
        ----------
        counts : (B, n) array
            How often each row was drawn in each replicate.

        Returns
        -------
        values : list of (B, n) arrays
            One for each place where probabilities were wanted.
        converged : (B,) array of bool
        """
        fits = [self.fit(row) for row in counts]
        values = [np.stack([f.values[j] for f in fits]) for j in range(len(self.at))]
        return values, np.array([f.converged for f in fits], dtype=bool)

    def fit_each_under_groups(self, counts: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Fit under many sets of counts one by one, and predict every row under every group.

        Parameters
        ----------
        counts : (B, n) array

        Returns
        -------
        every : (B, n, K) array
            NaN where a replicate has no model.
        converged : (B,) array of bool
        """
        assert self.every is not None
        B, n = counts.shape
        every = np.full((B, n, self.every.n_groups), np.nan)
        converged = np.ones(B, dtype=bool)
        for b in range(B):
            try:
                fit = self.fit(counts[b])
            except DataError:  # a thin draw: the fit to all rows has gone through
                converged[b] = False
                continue
            assert fit.every is not None
            every[b], converged[b] = fit.every, fit.converged
        return every, converged
