"""The probability of the event without treatment on the rows of the analysis."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import DataError
from cfair.formula import Design, build_design
from cfair.nuisance.binary import BinaryFit, BinaryModel
from cfair.nuisance.checks import binary_fit_notes, check_probabilities, require_rows, unlike_rows
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.design_rows import design_rows
from cfair.nuisance.fitted_result import check_modelled, predict
from cfair.nuisance.learners import features
from cfair.nuisance.outcome_model import outcome_model, refuse_outcome, require_events
from cfair.nuisance.request import ModelRequest

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """Probabilities of the event without treatment on the rows of the analysis.

    Attributes
    ----------
    text : str
        The formula, or where the probabilities come from.
    mu0 : (n,) array
    fit : BinaryFit or None
        None if the probabilities were given.
    model : BinaryModel or None
        What replicates fit again.
    design : Design or None
    trained_on : str
        Which rows the model was fitted on, for the print; empty if the probabilities were given.
    columns : tuple of str or None
        Columns in the model; None if that cannot be known.
    notes : tuple of str
    """

    text: str
    mu0: Array
    fit: BinaryFit | None = None
    model: BinaryModel | None = None
    design: Design | None = None
    trained_on: str = ""
    columns: tuple[str, ...] | None = None
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        head = f"Outcome model: {self.text}"
        table = self.coefficients.round(4)
        return head if table.empty else f"{head}\n{table.to_string()}"

    @property
    def coefficients(self) -> pd.Series:
        """Coefficients by term, NaN for one that was left out; empty without a single fit."""
        if self.fit is None or self.fit.fit is None or self.design is None:
            return pd.Series(dtype=float, name="coefficient")
        return pd.Series(self.fit.fit.coef, index=list(self.design.names), name="coefficient")


def estimate_outcome(
    request: ModelRequest,
    cohort: Cohort,
    folds: Folds | None = None,
    *,
    labels: bool = False,
    seed: int = 0,
) -> Outcome:
    """Fit or take the probabilities of the event without treatment.

    A formula without the treatment is fitted on the untreated; one with it on all rows, and
    predicted with treatment set to none.

    Parameters
    ----------
    request : ModelRequest
    cohort : Cohort
        With a treatment.
    folds : Folds, optional
        For predictions out of fold.
    labels : bool, default False
        Whether rows are to be put into other groups later.
    seed : int, default 0
        Of a learner.

    Returns
    -------
    Outcome

    Raises
    ------
    DataError
        If the model is of something else, has the outcome on its right side, or is too large.
    """
    assert cohort.d is not None
    if request.result is not None:
        check_modelled(request, cohort)
    if request.formula is None:
        return _given(request, cohort)
    refuse_outcome(request.formula, cohort)
    design = build_design(request.formula, cohort.data)
    untreated = _untreated_data(request, cohort)
    used = cohort.weighted if untreated is not None else cohort.weighted & (cohort.d == 0)
    require_rows(cohort, design, used, "outcome model")
    if request.learner is not None:
        features(design)  # which refuses an intercept alone
    if folds is not None:
        require_events(cohort, folds, used)
    _require_both(cohort, used)
    train = design_rows(design, cohort, labels=labels, intercept=request.learner is None)
    at = train
    if untreated is not None:
        at = design_rows(
            design, cohort, untreated, labels=labels, intercept=request.learner is None
        )
    model = outcome_model(
        cohort, train, (at,), used, learner=request.learner, folds=folds, seed=seed
    )
    fit = model.fit()
    mu0 = fit.values[0]
    if request.result is not None and not _agrees(request, cohort, model, fit, untreated):
        note = (
            "the outcome result was fitted on other rows or in another way; its probabilities "
            "count as known, and replicates do not refit them",
        )
        known = _checked(predict(request, cohort, untreated))
        return Outcome(request.text, known, columns=request.formula.columns, notes=note)
    trouble = _trouble(design, model, fit, request.text, cohort)
    notes = (*request.formula.notes, *(f"outcome model: {n}" for n in fit.notes), *trouble)
    return Outcome(
        request.shown(cohort.outcome_name),
        mu0,
        fit,
        model,
        design,
        "all rows, with treatment set to none" if untreated is not None else "the untreated",
        request.formula.columns,
        notes,
    )


def _trouble(
    design: Design, model: BinaryModel, fit: BinaryFit, text: str, cohort: Cohort
) -> list[str]:
    """What went wrong in the fit to all rows."""
    if fit.fit is None:
        return []
    unlike = unlike_rows(model.train.matrix[model.used], model.at[0].matrix, fit.fit.kept)
    rows = int(np.count_nonzero(unlike & cohort.weighted))
    return binary_fit_notes(design, fit.fit, text, "outcome model", rows)


def _require_both(cohort: Cohort, used: NDArray[np.bool_]) -> None:
    """Refuse to fit a model of events to rows that all have one, or none."""
    n, events = int(np.count_nonzero(used)), int(cohort.y[used].sum())
    if 0 < events < n:
        return
    raise DataError(
        f"the outcome model has nothing to tell apart: of the {n:,} rows to fit it on, "
        f"{'none' if events == 0 else 'every one'} has the event "
        f'({cohort.outcome_name!r} = {cohort.outcome_event!r}). estimator="ipw" needs no such '
        "model."
    )


def _untreated_data(request: ModelRequest, cohort: Cohort) -> pd.DataFrame | None:
    """The rows with treatment set to none; None if the model does not look at treatment."""
    assert request.formula is not None
    if cohort.treatment_name not in request.formula.columns:
        return None
    return cohort.data.assign(**{str(cohort.treatment_name): np.int64(0)})


def _given(request: ModelRequest, cohort: Cohort) -> Outcome:
    if request.kind == "column":
        column = cohort.data[request.columns[0]]
        if not pd.api.types.is_numeric_dtype(column):
            raise DataError(f"the outcome model column {request.columns[0]!r} is not numeric.")
        return Outcome(request.text, _checked(column.to_numpy(dtype=float)), columns=None)
    assert request.values is not None
    values = request.values.to_numpy()[cohort.rows]
    return Outcome(request.text, _checked(values), columns=None)


def _checked(mu0: Array) -> Array:
    check_probabilities(mu0, "outcome model")
    return mu0


def _agrees(
    request: ModelRequest,
    cohort: Cohort,
    model: BinaryModel,
    fit: BinaryFit,
    untreated: pd.DataFrame | None,
) -> bool:
    """Whether a fitted result is the maximum likelihood fit of its formula on these rows."""
    predicted = predict(request, cohort, untreated)
    mu0 = (fit if model.folds is None else replace(model, folds=None).fit()).values[0]
    return bool(len(predicted) == len(mu0) and np.max(np.abs(predicted - mu0)) < 1e-5)
