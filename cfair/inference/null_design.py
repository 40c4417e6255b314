"""The design of a model as a permutation of labels sees it, and the fit without the labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cfair.inference.rows import Arrangement
from cfair.nuisance.binary import BinaryModel
from cfair.nuisance.design_rows import constant_of_groups, has_constant_column
from cfair.nuisance.logistic import fit_logistic, independent_columns

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


@dataclass(frozen=True)
class NullDesign:
    """Design of a propensity or outcome model cut by what a permutation of the labels changes.

    Attributes
    ----------
    fixed : (n, p0) array or None
        Columns without attributes, of full rank; None if the probabilities are known.
    by_group : (K, q) array or None
        Columns that are functions of the group alone, one row per group.
    mixed : (K, n, m) array or None
        Columns in which attributes and covariates meet, for every row as if in each group.
    pi : (n,) array or None
        Known probabilities (truncated), when nothing is fitted.
    truncation : (float, float)
    """

    fixed: Array | None
    by_group: Array | None = None
    mixed: Array | None = None
    pi: Array | None = None
    truncation: tuple[float, float] = (0.005, 0.995)

    @property
    def columns(self) -> Array:
        """The fixed part, (n, 0) if the probabilities are known."""
        if self.fixed is not None:
            return self.fixed
        return np.zeros((0 if self.pi is None else len(self.pi), 0))

    @property
    def has_constant(self) -> bool:
        """Whether a column of the fixed part is constant, as the intercept is."""
        return has_constant_column(self.columns)

    @property
    def free_of_attributes(self) -> bool:
        """Whether the fit is the same whatever the labels."""
        return self.fixed is None or (self.by_group is None and self.mixed is None)

    def arranged(self, at: Arrangement) -> NullDesign:
        """The same design for rows and groups in another order.

        Parameters
        ----------
        at : Arrangement

        Returns
        -------
        NullDesign
        """
        return replace(
            self,
            fixed=None if self.fixed is None else self.fixed[at.order],
            by_group=None if self.by_group is None else self.by_group[at.groups],
            mixed=None if self.mixed is None else self.mixed[at.groups][:, at.order],
            pi=None if self.pi is None else self.pi[at.order],
        )

    def group_basis(self, sizes: Integers) -> Array:
        """Basis of what the group columns say, over groups with rows.

        Beyond a constant, if the fixed part holds one.

        Parameters
        ----------
        sizes : (K,) array of int
            Rows of each group.

        Returns
        -------
        (K, q) array
            Without columns where there are no group columns.
        """
        if self.by_group is None:
            return np.zeros((len(sizes), 0))
        filled = (sizes > 0)[:, None]
        columns = np.where(filled, self.by_group, 0.0)
        if self.has_constant:
            columns = np.where(filled, columns - columns.sum(axis=0) / filled.sum(), 0.0)
        u, values, _ = np.linalg.svd(columns, full_matrices=False)
        basis: Array = u[:, values > 1e-9 * max(1.0, float(values[0]) if len(values) else 1.0)]
        return basis


@dataclass(frozen=True)
class NullFit:
    """The fit without the labels, from which every replicate starts.

    Attributes
    ----------
    coef : (p0,) array
        Empty if the probabilities are known.
    fitted, pi : (n,) arrays
        Probabilities before and after truncation.
    careful : bool
        Whether columns separate the event that is modelled, or the fit did not converge.
    """

    coef: Array
    fitted: Array
    pi: Array
    careful: bool = False

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Rows whose probability is truncated, (n,)."""
        truncated: NDArray[np.bool_] = self.fitted != self.pi
        return truncated

    def arranged(self, at: Arrangement) -> NullFit:
        """The same fit for rows in another order.

        Parameters
        ----------
        at : Arrangement

        Returns
        -------
        NullFit
        """
        return replace(self, fitted=self.fitted[at.order], pi=self.pi[at.order])


def null_design(
    model: BinaryModel | None, pi: Array | None, truncation: tuple[float, float]
) -> NullDesign:
    """Cut the design of a model by what the labels change, with columns of full rank.

    Parameters
    ----------
    model : BinaryModel or None
        None if the probabilities are known.
    pi : (n,) array or None
        Truncated probabilities.
    truncation : (float, float)

    Returns
    -------
    NullDesign
    """
    if model is None:
        return NullDesign(None, pi=pi, truncation=truncation)
    split = model.train.split
    fixed = model.train.matrix if split is None else split.fixed
    # Group columns can stand for the intercept ("~ 0 + sex + age"); the fit without labels that
    # every replicate starts from then needs one of its own.
    if split is not None and constant_of_groups(split) is not None:
        fixed = np.column_stack([np.ones(len(fixed)), fixed])
    kept = independent_columns(fixed)
    if not kept.all():
        fixed = np.ascontiguousarray(fixed[:, kept])
    if split is None:
        return NullDesign(fixed, truncation=truncation)
    return NullDesign(fixed, split.by_group, split.mixed, truncation=truncation)


def fit_without_labels(d: Integers, design: NullDesign, weights: Array | None = None) -> NullFit:
    """Fit the part of a model that no permutation changes.

    Parameters
    ----------
    d : (n,) array of 0 and 1
    design : NullDesign
    weights : (n,) array, optional
        Sampling weights.

    Returns
    -------
    NullFit

    Raises
    ------
    ValueError
        If the design has neither columns nor known probabilities.
    """
    if design.fixed is not None:
        fit = fit_logistic(design.fixed, d, weights=weights)
        pi = np.clip(fit.fitted, *design.truncation)
        careful = bool(fit.separated.any() or not fit.converged)
        return NullFit(fit.coef, fit.fitted, pi, careful)
    if design.pi is not None:
        return NullFit(np.zeros(0), design.pi, design.pi)
    raise ValueError("give the columns of the design or known probabilities")


def group_step(basis: Array, score: Array, information: Array) -> Array:
    """What one Newton step of an intercept and the group columns adds to every group.

    Parameters
    ----------
    basis : (K, q) array
        Group columns.
    score, information : (R, K) arrays
        Sums by label: residuals of the fit without labels, and their variances.

    Returns
    -------
    (R, K) array
        Shifts of the linear predictor. Where labels leave a group without rows that are used, the
        least step that the others ask for.
    """
    columns = np.column_stack([np.ones(len(basis)), basis])
    matrix = (columns.T * information[:, None, :]) @ columns
    right = (score @ columns)[:, :, None]
    step = np.empty_like(right)
    empty = (information <= 1e-9 * information.max(axis=1, keepdims=True)).any(axis=1)
    step[~empty] = np.linalg.solve(matrix[~empty], right[~empty])
    if empty.any():
        step[empty] = np.linalg.pinv(matrix[empty], rcond=1e-10, hermitian=True) @ right[empty]
    return np.asarray(step[:, :, 0] @ columns.T)
