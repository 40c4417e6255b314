"""Rows of a design matrix that can be put into other groups, or into every group in turn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from cfair.cohort import Cohort
from cfair.formula import AttributeSplit, Design, split_design

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

_ALL = slice(None)


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


@dataclass(frozen=True, eq=False)
class RowsUnderGroups:
    """The rows of a design under every group, made of its parts where they are needed.

    The matrices of K groups would differ in the columns of attributes alone: what the others add is
    worked out once for all groups.

    Attributes
    ----------
    split : AttributeSplit
    n_groups : int
        K.
    """

    split: AttributeSplit = field(repr=False)
    n_groups: int

    @property
    def n_columns(self) -> int:
        """Number of columns p of the design."""
        s = self.split
        return len(s.fixed_columns) + len(s.by_group_columns) + len(s.mixed_columns)

    def under(self, g: int, rows: slice | NDArray[np.generic] = _ALL) -> Array:
        """Some rows with the group of each set to g.

        Parameters
        ----------
        g : int
        rows : slice, or array of bool or int, optional
            Which of the n rows; all by default.

        Returns
        -------
        (m, p) array
        """
        s = self.split
        fixed = s.fixed[rows]
        matrix = np.empty((len(fixed), self.n_columns))
        matrix[:, s.fixed_columns] = fixed
        if s.by_group is not None:
            matrix[:, s.by_group_columns] = s.by_group[g]
        if s.mixed is not None:
            matrix[:, s.mixed_columns] = s.mixed[g][rows]
        return matrix

    def probabilities(self, coef: Array, rows: slice | NDArray[np.generic] = _ALL) -> Array:
        """What a logistic regression says of some rows under every group.

        Parameters
        ----------
        coef : (..., p) array
            NaN for a column that was left out of the fit.
        rows : slice, or array of bool or int, optional

        Returns
        -------
        (..., m, K) array
        """
        s, coef = self.split, np.nan_to_num(coef)
        eta = coef[..., s.fixed_columns] @ s.fixed[rows].T
        every = np.repeat(eta[..., None], self.n_groups, axis=-1)
        if s.by_group is not None:
            every += (coef[..., s.by_group_columns] @ s.by_group.T)[..., None, :]
        if s.mixed is not None:
            for g in range(self.n_groups):
                every[..., g] += coef[..., s.mixed_columns] @ s.mixed[g][rows].T
        result: Array = expit(every, out=every)
        return result

    def totals(self, amounts: Array, rows: slice | NDArray[np.generic] = _ALL) -> Array:
        """Sums of some rows under every group, each row times an amount that depends on the group.

        Parameters
        ----------
        amounts : (m, K) array
        rows : slice, or array of bool or int, optional

        Returns
        -------
        (p, K) array
        """
        s = self.split
        sums = np.empty((self.n_columns, self.n_groups))
        sums[s.fixed_columns] = s.fixed[rows].T @ amounts
        if s.by_group is not None:
            sums[s.by_group_columns] = s.by_group.T * amounts.sum(axis=0)
        if s.mixed is not None:
            for g in range(self.n_groups):
                sums[s.mixed_columns, g] = amounts[:, g] @ s.mixed[g][rows]
        return sums

    def matrices(self) -> list[RowsUnderGroup]:
        """The rows under each group in turn, of which a block exists only while it is used."""
        return [RowsUnderGroup(self, g) for g in range(self.n_groups)]


@dataclass(frozen=True, eq=False)
class RowsUnderGroup:
    """The rows under one group, as a matrix of which rows can be asked for.

    Attributes
    ----------
    every : RowsUnderGroups
    g : int
    """

    every: RowsUnderGroups
    g: int

    def __getitem__(self, rows: slice | NDArray[np.generic]) -> Array:
        return self.every.under(self.g, rows)


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
    if by_group is None or has_constant_column(fixed):
        return None
    present = by_group[by_group.any(axis=1)]
    if not len(present):
        return None
    one = np.ones(len(present))
    found = np.asarray(np.linalg.lstsq(present, one, rcond=None)[0], dtype=np.float64)
    return found if np.max(np.abs(one - present @ found)) < 1e-9 else None


def has_constant_column(columns: Array) -> bool:
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
