"""The outcome if every row were a member of each group, and the probability of its membership."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import DataError, ModelWarning, warn
from cfair.formula import AttributeSplit, Design, build_design
from cfair.nuisance.binary import BinaryFit, BinaryModel
from cfair.nuisance.checks import binary_fit_notes, require_rows
from cfair.nuisance.crossfit import Folds, require_training_classes
from cfair.nuisance.design_rows import (
    DesignRows,
    RowsUnderGroups,
    design_rows,
    has_constant_column,
)
from cfair.nuisance.learners import features
from cfair.nuisance.membership import MembershipModel
from cfair.nuisance.multinomial_binary import fit_binary_under_groups
from cfair.nuisance.order import group_totals
from cfair.nuisance.outcome_model import outcome_model, refuse_outcome, require_events
from cfair.nuisance.request import ModelRequest

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OutcomeUnderGroups:
    """Probabilities of the outcome with the group of every row set to each group.

    Attributes
    ----------
    text : str
        The formula, or what was given.
    mu : (n, K) array
        Each row by a model that has not seen it; 0 for a group without rows.
    model : BinaryModel or None
        What replicates fit again; None if the probabilities were given.
    full : BinaryModel or None
        The same without folds, for influence functions; None for a learner as well.
    whole : BinaryFit or None
        Of `full`.
    notes : tuple of str
    """

    text: str
    mu: Array
    model: BinaryModel | None = field(default=None, repr=False)
    full: BinaryModel | None = field(default=None, repr=False)
    whole: BinaryFit | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.mu.setflags(write=False)

    @property
    def learned(self) -> bool:
        """Whether the outcome is left to a learner."""
        return self.model is not None and self.model.estimator is not None


@dataclass(frozen=True, eq=False)
class GroupMembership:
    """Probabilities of the groups given the covariates.

    Attributes
    ----------
    text : str
        The formula, or what was given.
    p : (n, K) array
        Each row by a model that has not seen it, cut to the limits.
    raw : (n, K) array
        Before cutting.
    model : MembershipModel or None
        What replicates fit again; None if the probabilities were given.
    notes : tuple of str
    """

    text: str
    p: Array
    raw: Array
    model: MembershipModel | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.p.setflags(write=False)

    def n_cut(self, group: NDArray[np.integer]) -> int:
        """Number of rows whose probability of their own group was cut.

        Parameters
        ----------
        group : (n,) array of int

        Returns
        -------
        int
        """
        own = np.arange(len(group)), group
        return int(np.count_nonzero(self.p[own] != self.raw[own]))


def outcome_under_groups(
    request: ModelRequest, cohort: Cohort, folds: Folds, seed: int = 0
) -> OutcomeUnderGroups:
    """Fit the outcome on covariates and group, and predict every row under every group.

    Where the model names none of the attributes, an indicator of each intersectional group is
    added.

    Parameters
    ----------
    request : ModelRequest
        A formula or a learner.
    cohort : Cohort
    folds : Folds
    seed : int, default 0
        Of a learner.

    Returns
    -------
    OutcomeUnderGroups
    """
    if request.formula is None or request.result is not None:
        raise DataError(
            "outcome_model must predict every row under every group: give a formula, a "
            "cfair.Learner, or an (n, K) array of such predictions."
        )
    refuse_outcome(request.formula, cohort)
    design = build_design(request.formula, cohort.data)
    learner, groups = request.learner, cohort.groups
    named = [a for a in groups.attributes if a in request.formula.columns]
    text = request.shown(cohort.outcome_name)
    if named:
        rows = design_rows(design, cohort, intercept=learner is None)
    else:
        rows, design = _with_groups(design, cohort, learned=learner is not None)
        text = f"{text} + {' x '.join(groups.attributes)}"
    _require_training(cohort, design, folds)
    assert rows.split is not None  # attributes are in it, or the groups were added
    model = outcome_model(
        cohort,
        rows,
        (),
        cohort.weighted,
        learner=learner,
        folds=folds,
        seed=seed,
        every=RowsUnderGroups(rows.split, groups.n_groups),
    )
    full = whole = None
    if learner is None:
        full = replace(model, folds=None, at=(rows,), every=None)
        whole = full.fit()
    fit = model.fit() if whole is None else fit_binary_under_groups(model, whole)
    assert fit.every is not None
    mu = fit.every
    mu[:, groups.sizes == 0] = 0.0
    notes = [*request.formula.notes, *fit.notes, *_unnamed(named, cohort)]
    if whole is None or whole.fit is None:
        return OutcomeUnderGroups(text, mu, model, notes=tuple(notes))
    notes += binary_fit_notes(design, whole.fit, text, "outcome model")
    if not fit.converged and whole.converged:
        notes.append(f"outcome model {text!r}: the fit outside a fold did not converge.")
    return OutcomeUnderGroups(text, mu, model, full, whole, tuple(notes))


def _with_groups(design: Design, cohort: Cohort, *, learned: bool) -> tuple[DesignRows, Design]:
    """The rows with an indicator of every group; of all but the largest beside an intercept.

    A learner is given them all, in an order that does not depend on the names of the groups.
    """
    groups = cohort.groups
    if learned:
        fixed, names = features(design)
        order = np.lexsort([group_totals(cohort), groups.sizes])[::-1]
    else:
        fixed, names = design.matrix, design.names
        order = np.argsort(-groups.sizes, kind="stable")[int(has_constant_column(fixed)) :]
    order = order[groups.sizes[order] > 0]
    indicators = np.eye(groups.n_groups)[:, order]
    matrix = np.hstack([fixed, indicators[groups.codes]])
    p, q = fixed.shape[1], len(order)
    split = AttributeSplit(
        fixed, indicators, None, np.arange(p), p + np.arange(q), np.zeros(0, dtype=np.intp)
    )
    names = (*names, *(f"group {groups.names[k]}" for k in order))
    return DesignRows(matrix, split), replace(design, matrix=matrix, names=names)


def _require_training(cohort: Cohort, design: Design, folds: Folds) -> None:
    """Refuse models that could not be fitted outside every fold."""
    used, groups = cohort.weighted, cohort.groups
    require_rows(cohort, design, used, "outcome model")
    require_events(cohort, folds, used)
    filled = np.flatnonzero(groups.sizes)
    require_training_classes(
        folds,
        np.searchsorted(filled, groups.codes),
        len(filled),
        used,
        "outcome model",
        [repr(groups.names[k]) for k in filled],
    )


def _unnamed(named: list[str], cohort: Cohort) -> list[str]:
    """Warn of a model that cannot tell all groups apart."""
    missing = [a for a in cohort.groups.attributes if a not in named]
    if not named or not missing:
        return []
    note = (
        f"the outcome model names {', '.join(named)}, but not {', '.join(missing)}: it predicts "
        f"the same for groups that differ in {' and '.join(missing)} only. Add "
        f"{' * '.join(cohort.groups.attributes)}, or leave all attributes out, and the groups are "
        "added."
    )
    warn(note, ModelWarning)
    return [note]
