"""What all models of the outcome have in common: checks of formula and rows, and assembly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import DataError
from cfair.formula import Formula
from cfair.nuisance.binary import BinaryModel
from cfair.nuisance.crossfit import Folds, require_training_classes
from cfair.nuisance.design_rows import DesignRows, RowsUnderGroups
from cfair.nuisance.learners import Learner
from cfair.nuisance.order import content_order


def refuse_outcome(formula: Formula, cohort: Cohort) -> None:
    """Refuse the outcome among the columns that are to explain it.

    Parameters
    ----------
    formula : Formula
    cohort : Cohort

    Raises
    ------
    DataError
    """
    if cohort.outcome_name in formula.columns:
        raise DataError(
            f"the outcome formula has the outcome {cohort.outcome_name!r} on its right side. A "
            "column cannot explain itself: take it out."
        )


def require_events(cohort: Cohort, folds: Folds, used: NDArray[np.bool_]) -> None:
    """Check that the rows outside each fold have both events and non-events.

    Parameters
    ----------
    cohort : Cohort
    folds : Folds
    used : (n,) array of bool
        Rows of the fit.

    Raises
    ------
    DataError
    """
    require_training_classes(folds, cohort.y, 2, used, "outcome model", ["no event", "event"])


def outcome_model(
    cohort: Cohort,
    train: DesignRows,
    at: tuple[DesignRows, ...],
    used: NDArray[np.bool_],
    *,
    learner: Learner | None,
    folds: Folds | None,
    seed: int,
    every: RowsUnderGroups | None = None,
) -> BinaryModel:
    """A model of the outcome on the rows of a cohort, by a logistic regression or a learner.

    Parameters
    ----------
    cohort : Cohort
    train : DesignRows
    at : tuple of DesignRows
        Where probabilities are wanted.
    used : (n,) array of bool
        Rows of the fit.
    learner : Learner or None
        None for a logistic regression.
    folds : Folds or None
        None fits and predicts on the same rows.
    seed : int
        Of a learner.
    every : RowsUnderGroups or None
        Where probabilities under every group are wanted as well.

    Returns
    -------
    BinaryModel
    """
    return BinaryModel(
        cohort.y.astype(np.float64),
        train,
        at,
        used,
        cohort.weights,
        None if learner is None else learner.estimator,
        folds,
        None if learner is None else content_order(cohort),
        seed,
        "outcome model",
        every,
    )
