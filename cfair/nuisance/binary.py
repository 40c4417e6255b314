"""A model of a binary event that can be fitted again: other weights, other labels, out of fold."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from cfair.cohort import Cohort
from cfair.formula import AttributeSplit, Design, split_design
from cfair.nuisance.checks import fold_notes
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.logistic import (
    FittedModel,
    LogisticFit,
    fit_logistic,
    fit_logistic_many,
    independent_columns,
    solve_information,
    sweep,
)

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: Elements of a replicate-by-row array that are held at once.
BUDGET = 4_000_000


@dataclass(frozen=True, eq=False)
class DesignRows:
    """Rows of a design matrix, which can be put into other groups if attributes are in it.

    Attributes
    ----------
    matrix : (n, p) array
    split : AttributeSplit or None
        None if no attribute is in the design, or the rows are to stay as they are.
    """

    matrix: Array = field(repr=False)
    split: AttributeSplit | None = field(default=None, repr=False)

    @property
    def uses_groups(self) -> bool:
        """Whether the rows depend on the group labels."""
        return self.split is not None

    def under(self, labels: Integers | None) -> Array:
        """The rows with other labels.

        Parameters
        ----------
        labels : (n,) array of int or None
            Group of each row; None leaves the rows as they are.

        Returns
        -------
        (n, p) array
        """
        if labels is None or self.split is None:
            return self.matrix
        s = self.split
        labels = np.asarray(labels, dtype=np.intp)
        rows = np.empty_like(self.matrix)
        rows[:, s.fixed_columns] = s.fixed
        if s.by_group is not None:
            rows[:, s.by_group_columns] = s.by_group[labels]
        if s.mixed is not None:
            rows[:, s.mixed_columns] = s.mixed[labels, np.arange(len(labels))]
        return rows

    def without_first(self, wanted: bool) -> DesignRows:
        """The rows without their first column, that of the intercept.

        Parameters
        ----------
        wanted : bool
            False gives back the rows as they are.

        Returns
        -------
        DesignRows
        """
        if not wanted:
            return self
        matrix, s = np.ascontiguousarray(self.matrix[:, 1:]), self.split
        if s is None:
            return DesignRows(matrix)
        split = replace(
            s,
            fixed=s.fixed[:, 1:],
            fixed_columns=s.fixed_columns[1:] - 1,
            by_group_columns=s.by_group_columns - 1,
            mixed_columns=s.mixed_columns - 1,
        )
        return DesignRows(matrix, split)

    def beside(self, *columns: Array) -> DesignRows:
        """The rows with further columns that do not depend on the groups.

        Parameters
        ----------
        *columns : (n,) arrays

        Returns
        -------
        DesignRows
        """
        p, more = self.matrix.shape[1], np.column_stack(columns).astype(np.float64)
        matrix = np.hstack([self.matrix, more])
        if self.split is None:
            return DesignRows(matrix)
        split = replace(
            self.split,
            fixed=np.hstack([self.split.fixed, more]),
            fixed_columns=np.concatenate(
                [self.split.fixed_columns, p + np.arange(more.shape[1], dtype=np.intp)]
            ),
        )
        return DesignRows(matrix, split)


def constant_of_groups(split: AttributeSplit) -> Array | None:
    """Coefficients of the group columns that add up to a constant, as in ``~ 0 + sex + age``.

    Parameters
    ----------
    split : AttributeSplit

    Returns
    -------
    (q,) array or None
        None if the other columns hold a constant, or the group columns do not span one.
    """
    fixed, by_group = split.fixed, split.by_group
    if by_group is None or has_constant(fixed):
        return None
    present = by_group[by_group.any(axis=1)]
    if not len(present):
        return None
    one = np.ones(len(present))
    found = np.asarray(np.linalg.lstsq(present, one, rcond=None)[0], dtype=np.float64)
    return found if np.max(np.abs(one - present @ found)) < 1e-9 else None


def has_constant(columns: Array) -> bool:
    """Whether one of the columns is a constant other than 0.

    Parameters
    ----------
    columns : (n, p) array

    Returns
    -------
    bool
    """
    if not columns.size:
        return False
    return bool(((columns == columns[0]).all(axis=0) & (columns[0] != 0)).any())


def design_rows(
    design: Design,
    cohort: Cohort,
    data: pd.DataFrame | None = None,
    *,
    labels: bool = True,
    intercept: bool = True,
) -> DesignRows:
    """Rows of a design on the cohort, or on the cohort with some columns set otherwise.

    Parameters
    ----------
    design : Design
        Built on the cohort.
    cohort : Cohort
    data : pandas.DataFrame, optional
        The rows with, say, treatment set to none.
    labels : bool, default True
        Whether rows are to be put into other groups later, which takes memory.
    intercept : bool, default True
        Whether to keep the column of the intercept, which a learner has no use for.

    Returns
    -------
    DesignRows
    """
    here = cohort.data
    if data is not None:
        design, here = replace(design, matrix=design.transform(data)), data
    rows = DesignRows(design.matrix)
    if labels and set(design.columns) & set(cohort.groups.attributes):
        split = split_design(design, here, cohort.groups.label_frame())
        rows = DesignRows(design.matrix, split)
    return rows if intercept else rows.without_first(design.names[:1] == ("Intercept",))


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
    """

    values: tuple[Array, ...]
    fit: LogisticFit | None = None
    models: tuple[FittedModel, ...] = ()
    converged: bool = True
    notes: tuple[str, ...] = ()


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
            models = tuple(self._model(X, Z, fit, here, counts) for Z in places)
            values = tuple(here if Z is X else fit.predict(Z) for Z in places)
            return BinaryFit(values, fit, models, fit.converged)
        out_of_fold = [np.empty(len(X)) for _ in places]
        fits = []
        for k in range(self.folds.n_folds):
            held = self.folds.codes == k
            fits.append(self._logistic(X, self.used & ~held, counts, start))
            for value, Z in zip(out_of_fold, places, strict=True):
                value[held] = fits[-1].predict(Z[held])
        converged = all(fit.converged for fit in fits)
        notes = fold_notes(fits) if counts is None and labels is None else ()
        return BinaryFit(tuple(out_of_fold), converged=converged, notes=notes)

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

    def _model(
        self, X: Array, Z: Array, fit: LogisticFit, p: Array, counts: Array | None
    ) -> FittedModel:
        """The fit as influence functions see it, with its probabilities `p`."""
        X_kept, Z_kept = X, Z
        if not fit.kept.all():
            X_kept = np.ascontiguousarray(X[:, fit.kept])
            Z_kept = X_kept if Z is X else np.ascontiguousarray(Z[:, fit.kept])
        plain = self._multiplied(counts) is None
        return FittedModel(
            X_kept,
            np.where(self.used, self.target - p, 0.0),
            np.where(self.used, p * (1 - p), 0.0),
            Z_kept,
            fit.information if plain else None,
        )

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
        if counts is not None and not self._both_classes(self.folds, counts):
            nothing = np.full(len(X), np.nan)  # a replicate that leaves the rates undefined
            return BinaryFit(tuple(nothing for _ in places), converged=False)
        found = out_of_fold(
            self.estimator,
            X,
            self.target.astype(np.intp),
            self.folds,
            used=self.used,
            counts=counts,
            weights=self.weights,
            predict=places,
            order=self.order,
            seed=self.seed,
        )
        return BinaryFit(tuple(found.values), converged=not found.notes, notes=tuple(found.notes))

    def _both_classes(self, folds: Folds, counts: Array) -> bool:
        """Whether the rows drawn outside each fold have both events and none."""
        w = self._multiplied(counts)
        assert w is not None
        some = self.used & (w > 0)
        cells = folds.codes[some] * 2 + self.target[some].astype(np.intp)
        table = np.bincount(cells, minlength=2 * folds.n_folds).reshape(-1, 2)
        return bool((table.sum(axis=0) - table > 0).all())

    def fit_many(self, counts: Array, start: Array | None = None) -> tuple[list[Array], Array]:
        """Fit under many sets of counts.

        Parameters
        ----------
        counts : (B, n) array
            How often each row was drawn in each replicate.
        start : (p,) array, optional
            Coefficients of the full sample.

        Returns
        -------
        values : list of (B, n) arrays
            One for each place where probabilities were wanted.
        converged : (B,) array of bool
        """
        p = self.train.matrix.shape[1]
        small = counts.shape[1] * max(p * (p + 1) // 2, len(counts)) <= BUDGET
        if self.estimator is not None or not small:
            fits = [self.fit(row) for row in counts]
            values = [np.stack([f.values[j] for f in fits]) for j in range(len(self.at))]
            return values, np.array([f.converged for f in fits])
        held = (
            [np.ones(counts.shape[1], dtype=bool)]
            if self.folds is None
            else [self.folds.codes == k for k in range(self.folds.n_folds)]
        )
        values = [np.empty(counts.shape) for _ in self.at]
        converged = np.ones(len(counts), dtype=bool)
        for out in held:
            rows = self.used if self.folds is None else self.used & ~out
            base = self._logistic(self.train.matrix, rows, None, start)
            w = counts[:, rows] if self.weights is None else counts[:, rows] * self.weights[rows]
            X = self.train.matrix[rows][:, base.kept]
            fits_many = fit_logistic_many(X, self.target[rows], w, base.coef[base.kept])
            converged &= fits_many.converged
            for value, place in zip(values, self.at, strict=True):
                value[:, out] = expit(fits_many.coef @ place.matrix[out][:, base.kept].T)
        return values, converged
