"""What an intervention on membership was asked with: models, scores, cutoff, folds, all checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.columns import check_cutoff
from cfair.errors import DataError
from cfair.nuisance.by_group import ByGroupRequest, read_by_group, read_classifier
from cfair.nuisance.crossfit import FoldsRequest, read_folds
from cfair.nuisance.request import ModelRequest, read_model
from cfair.options import check_option
from cfair.roles import Declared

#: Doubly robust, or the outcome model alone.
ESTIMATORS: tuple[str, str] = ("dr", "sr")


@dataclass(frozen=True, eq=False)
class InterventionRequest:
    """The models and the rule, read before the rows of the analysis are chosen.

    Attributes
    ----------
    outcome : ModelRequest or ByGroupRequest
    membership : ModelRequest, ByGroupRequest or None
    scores : ByGroupRequest or None
        None judges the outcome model itself.
    cutoff : float or None
        None for the one with the largest Youden index.
    folds : FoldsRequest
    estimator : {"dr", "sr"}
    """

    outcome: ModelRequest | ByGroupRequest
    membership: ModelRequest | ByGroupRequest | None
    scores: ByGroupRequest | None
    cutoff: float | None
    folds: FoldsRequest
    estimator: str

    @property
    def models(self) -> tuple[ModelRequest, ...]:
        """Models that are to be fitted."""
        both = (self.outcome, self.membership)
        return tuple(m for m in both if isinstance(m, ModelRequest))

    @property
    def fits(self) -> bool:
        """Whether anything is fitted, and folds are needed."""
        return bool(self.models)

    @property
    def learns_outcome(self) -> bool:
        """Whether the outcome is left to a learner."""
        return isinstance(self.outcome, ModelRequest) and self.outcome.learner is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of all formulas."""
        return tuple(dict.fromkeys(name for m in self.models for name in m.columns))

    @property
    def left(self) -> str | None:
        """Left side of the outcome formula."""
        return self.outcome.left if isinstance(self.outcome, ModelRequest) else None

    @property
    def missing(self) -> Mapping[str, NDArray[np.bool_]]:
        """Rows without a value in what was given beside the formulas."""
        parts = [self.outcome, self.membership, self.scores, self.folds if self.fits else None]
        return {name: m for p in parts if p is not None for name, m in p.missing.items()}


def read_intervention(
    declared: Declared,
    *,
    outcome_model: Any,
    membership: Any,
    estimator: Any,
    scores: Any,
    score_columns: Any,
    cutoff: Any,
    folds: Any,
) -> InterventionRequest:
    """Check what an intervention on membership was asked with.

    Parameters
    ----------
    declared : Declared
    outcome_model, membership, estimator, scores, score_columns, cutoff, folds
        As the user gave them.

    Returns
    -------
    InterventionRequest

    Raises
    ------
    ValueError
        For an option that is not allowed.
    DataError, FormulaError
        For a model that is none.
    """
    check_option("estimator", estimator, ESTIMATORS)
    if outcome_model is None:
        raise DataError('an intervention on membership needs outcome_model=, "~ age + sbp", say.')
    if membership is None and estimator == "dr":
        raise DataError(
            'estimator="dr" needs membership=, a model of group membership such as "~ age + sbp". '
            'estimator="sr" rests on the outcome model alone.'
        )
    outcome = _read(outcome_model, declared, "outcome_model")
    members = None if membership is None else _read(membership, declared, "membership")
    judged = _read_scores(scores, score_columns, declared)
    found = read_folds(folds, declared)
    if found is None:
        raise ValueError(
            "folds must be a number such as 5, or the fold of each row: a row is predicted by "
            "models that have not seen it."
        )
    return InterventionRequest(
        outcome, members, judged, _read_cutoff(cutoff, judged, declared), found, estimator
    )


def _read(value: Any, declared: Declared, what: str) -> ModelRequest | ByGroupRequest:
    learner = hasattr(value, "formula_text")
    if not learner and (hasattr(value, "columns") or np.ndim(value) == 2):
        return read_by_group(value, declared, what, "probabilities as given")
    request = read_model(value, declared, what=what.replace("_", " "))
    if request.formula is None or request.result is not None:
        raise DataError(
            f"{what} has to predict every row under every group, which {request.text} does not. "
            "Give a formula, a cfair.Learner, or an (n, K) array of predictions."
        )
    return request


def _read_scores(scores: Any, columns: Any, declared: Declared) -> ByGroupRequest | None:
    if scores is not None and hasattr(scores, "predict_proba"):
        return read_classifier(scores, columns, declared)
    if columns is not None:
        raise ValueError("score_columns= goes with a fitted classifier in scores=.")
    return None if scores is None else read_by_group(scores, declared, "scores")


def _read_cutoff(cutoff: Any, scores: ByGroupRequest | None, declared: Declared) -> float | None:
    if isinstance(cutoff, str):
        if cutoff != "youden":
            raise ValueError(f'cutoff must be a number in [0, 1] or "youden", not {cutoff!r}.')
        return None
    if cutoff is not None:
        return check_cutoff(cutoff)
    if scores is None:
        return None
    if declared.roles.cutoff is None:
        raise DataError(
            "scores= needs a cutoff, and the audit has none (it was given a ready prediction). "
            'Give cutoff=, a number in [0, 1] or "youden".'
        )
    return check_cutoff(declared.roles.cutoff)
