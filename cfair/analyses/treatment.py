"""What a counterfactual analysis was asked to fit, and the fitted models behind its rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.replicates import Replicates
from cfair.cohort import Cohort
from cfair.errors import DataError
from cfair.inference.contributions import Contributions
from cfair.inference.refit import ESTIMATORS, CounterfactualModels
from cfair.inference.rows import Rows
from cfair.nuisance.binary import BinaryFit
from cfair.nuisance.crossfit import Folds, FoldsRequest, make_folds, read_folds
from cfair.nuisance.order import content_numbers
from cfair.nuisance.outcome import Outcome, estimate_outcome
from cfair.nuisance.propensity import (
    Propensity,
    estimate_propensity,
    require_finite_weights,
    require_treatment,
)
from cfair.nuisance.request import ModelRequest, read_model
from cfair.options import check_option
from cfair.roles import Declared

Array = NDArray[np.float64]

#: The model that an estimator does without.
_UNUSED = {"ipw": "outcome model", "plugin": "propensity"}
#: Folds where a learner is used and none were asked for.
DEFAULT_FOLDS = 5


@dataclass(frozen=True, eq=False)
class CounterfactualRequest:
    """What is to be fitted, read before the rows of the analysis are chosen.

    Attributes
    ----------
    estimator : {"ipw", "aipw", "plugin"}
    propensity, outcome : ModelRequest or None
    folds : FoldsRequest or None
    unused : ModelRequest or None
        A model that was given and that the estimator does not use.
    """

    estimator: str
    propensity: ModelRequest | None
    outcome: ModelRequest | None
    folds: FoldsRequest | None
    unused: ModelRequest | None = None

    @property
    def models(self) -> list[ModelRequest]:
        """The models that were given."""
        return [m for m in (self.propensity, self.outcome) if m is not None]

    @property
    def columns(self) -> list[str]:
        """Columns that the models use."""
        return list(dict.fromkeys(column for m in self.models for column in m.columns))

    def left_of(self, model: str) -> str | None:
        """Left side of the formula of a model, if it has one.

        Parameters
        ----------
        model : {"propensity", "outcome"}

        Returns
        -------
        str or None
        """
        given = self.propensity if model == "propensity" else self.outcome
        if given is None and self.unused is not None:
            what = "propensity" if model == "propensity" else "outcome model"
            given = self.unused if self.unused.what == what else None
        return None if given is None else given.left

    @property
    def missing(self) -> Mapping[str, NDArray[np.bool_]]:
        """Rows without a value in what was given beside the table."""
        masks = {k: mask for m in self.models for k, mask in m.missing.items()}
        return masks if self.folds is None else {**masks, **self.folds.missing}


def read_counterfactual(
    declared: Declared, propensity: Any, outcome_model: Any, estimator: str | None, folds: Any
) -> CounterfactualRequest:
    """Understand what a counterfactual analysis is asked to fit.

    Parameters
    ----------
    declared : Declared
    propensity, outcome_model : formula, Learner, column, array, fitted result or None
    estimator : {"ipw", "aipw", "plugin"} or None
        None: doubly robust if there is an outcome model, else weighting.
    folds : int, name, array or None

    Returns
    -------
    CounterfactualRequest

    Raises
    ------
    DataError, FormulaError
        If a model cannot be read, or the estimator lacks one.
    ValueError
        If there is no such estimator.
    """
    check_option("estimator", estimator, [*ESTIMATORS, None])
    if estimator is None:
        estimator = "ipw" if outcome_model is None else "aipw"
    if propensity is None and estimator != "plugin":
        raise DataError(
            f'estimator="{estimator}" needs a propensity: "treated ~ sex * race + risk + age", say.'
        )
    if outcome_model is None and estimator != "ipw":
        raise DataError(
            f'estimator="{estimator}" needs outcome_model=, "died ~ sex * race + risk + age", say.'
        )
    models = {
        what: None if value is None else read_model(value, declared, what=what)
        for what, value in (("propensity", propensity), ("outcome model", outcome_model))
    }
    unused = models.pop(_UNUSED[estimator]) if estimator in _UNUSED else None
    learns = any(m is not None and m.learner is not None for m in models.values())
    wanted = DEFAULT_FOLDS if folds is None and learns else folds
    return CounterfactualRequest(
        estimator,
        models.get("propensity"),
        models.get("outcome model"),
        read_folds(wanted, declared),
        unused,
    )


@dataclass(frozen=True, eq=False)
class FittedModels:
    """The models behind the rates, and what every row adds to them.

    Attributes
    ----------
    propensity : Propensity or None
    outcome : Outcome or None
    folds : Folds or None
    models : CounterfactualModels
        What replicates fit again.
    added : Contributions
    remarks : tuple of str
    """

    propensity: Propensity | None
    outcome: Outcome | None
    folds: Folds | None
    models: CounterfactualModels
    added: Contributions
    remarks: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """What was said of the fits, then of what they were asked for."""
        models = [m for m in (self.propensity, self.outcome) if m is not None]
        return [*(note for m in models for note in m.notes), *self.remarks]


def fit_models(
    request: CounterfactualRequest,
    cohort: Cohort,
    truncation: tuple[float, float],
    replicates: Replicates,
) -> FittedModels:
    """Fit the models of a counterfactual analysis.

    Parameters
    ----------
    request : CounterfactualRequest
    cohort : Cohort
        With a treatment.
    truncation : (float, float)
        Of the propensities.
    replicates : Replicates

    Returns
    -------
    FittedModels
    """
    d = require_treatment(cohort)
    seed, labels = replicates.seed, replicates.permutes
    folds = make_folds(request.folds, cohort, seed)
    propensity = outcome = None
    if request.propensity is not None:
        propensity = estimate_propensity(request.propensity, cohort, truncation, folds, seed=seed)
        require_finite_weights(cohort, propensity)
    if request.outcome is not None:
        outcome = estimate_outcome(request.outcome, cohort, folds, labels=labels, seed=seed)
    groups = cohort.groups
    rows = Rows(cohort.y, cohort.s, d, groups.codes, groups.n_groups, cohort.weights)
    fits_again = (propensity is not None and propensity.binary is not None) or (
        outcome is not None and outcome.model is not None
    )
    used_folds = folds if fits_again else None
    models = CounterfactualModels(
        rows,
        request.estimator,
        None if propensity is None else propensity.pi,
        None if outcome is None else outcome.mu0,
        None if propensity is None else propensity.model(cohort, labels=labels),
        None if outcome is None else outcome.model,
        truncation,
        _coefficients(None if propensity is None else propensity.binary),
        _coefficients(None if outcome is None else outcome.fit),
        None if propensity is None else propensity.fitted,
        () if used_folds is None else (content_numbers(cohort), used_folds.codes.astype(float)),
    )
    added = models.contributions(
        treatment=None if propensity is None else propensity.binary,
        outcome=None if outcome is None else outcome.fit,
    )
    remarks = _remarks(request, cohort, folds, used_folds)
    return FittedModels(propensity, outcome, used_folds, models, added, remarks)


def _remarks(
    request: CounterfactualRequest, cohort: Cohort, folds: Folds | None, used: Folds | None
) -> tuple[str, ...]:
    """What was asked for and has no effect, and folds that take clusters apart."""
    remarks = []
    if request.unused is not None:
        remarks.append(
            f'the {request.unused.what} given has no part in estimator="{request.estimator}" and '
            "was not fitted."
        )
    if folds is not None and used is None:
        remarks.append("folds have no effect: the probabilities are given, and nothing is fitted.")
    if used is not None and not used.drawn and cohort.cluster is not None:
        pairs = np.unique(np.column_stack([cohort.cluster, used.codes]), axis=0)
        apart = int(np.count_nonzero(np.bincount(pairs[:, 0]) > 1))
        if apart:
            remarks.append(
                f"{apart} of {cohort.n_clusters} clusters ({cohort.cluster_name}) are in more than "
                "one of the given folds: their rows are predicted by models that have seen others "
                "of their cluster."
            )
    return tuple(remarks)


def _coefficients(fit: BinaryFit | None) -> Array | None:
    return None if fit is None or fit.fit is None else fit.fit.coef
