"""A fitted statsmodels result given as a model: what can be read off it, and what it predicts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import DataError, FormulaError
from cfair.formula import parse_formula
from cfair.roles import Declared

if TYPE_CHECKING:
    from cfair.nuisance.request import ModelRequest

Array = NDArray[np.float64]


def read_result(request: ModelRequest, declared: Declared) -> ModelRequest:
    """Read a fitted result; with a formula that can be rebuilt, by that formula.

    Parameters
    ----------
    request : ModelRequest
        With a result, and nothing else yet.
    declared : Declared

    Returns
    -------
    ModelRequest

    Raises
    ------
    DataError
        If the result is no plain model of one probability, or of other rows.
    """
    result, what = request.result, request.what
    _refuse_other_models(request)
    text = getattr(result.model, "formula", None)
    if isinstance(text, str) and "~" in text:
        left, right = (side.strip() for side in text.split("~", 1))
        try:
            formula = parse_formula(f"~ {right}", declared.columns, what=what)
        except FormulaError:
            formula = None
        if formula is not None:
            name = left.strip("`") if left.strip("`") in declared.columns else None
            return replace(
                request,
                text=f"{left} ~ {right}",
                columns=formula.columns,
                left=name,
                formula=formula,
            )
    return replace(request, values=declared.table.align(_in_sample(result, declared, what), what))


def _in_sample(result: Any, declared: Declared, what: str) -> pd.Series:
    """Predictions of a result on the rows it was fitted on, by the table's index."""
    values = np.asarray(result.predict(), dtype=float)
    index = declared.table.index
    labels = getattr(result.model.data, "row_labels", None)
    same = len(values) == len(index)
    if same and labels is not None and not pd.Index(labels).equals(index):
        return pd.Series(values, index=pd.Index(labels))
    if not same:
        raise DataError(
            f"the fitted {what} result has {len(values)} rows, the table {len(index)}. "
            "Fit it on the rows of the table, give a formula, or its probabilities on all rows."
        )
    return pd.Series(values, index=index)


def _refuse_other_models(request: ModelRequest) -> None:
    """Refuse results that are no plain model of one probability."""
    result, what = request.result, request.what
    name = type(result.model).__name__
    family = type(getattr(result.model, "family", None)).__name__
    if name not in ("Logit", "Probit") and family != "Binomial":
        raise DataError(
            f"the {what} result is a {name}, which does not model a probability. Fit a "
            "binomial GLM, a Logit or a Probit, or give a formula."
        )
    if np.ndim(result.model.endog) != 1 or isinstance(result.model.endog_names, list):
        raise DataError(
            f"the {what} result models two columns, as statsmodels does for a 0/1 variable that "
            "is True/False or text, and its probability may be that of 0. Code "
            f"{request.event} as 0/1, or give a formula."
        )
    for extra in ("offset", "exposure"):
        values = getattr(result.model, extra, None)
        if values is not None and np.any(values):
            raise DataError(
                f"the {what} result has an {extra}, which its predictions on other rows leave out. "
                f"Give its probabilities instead: {what.replace(' ', '_')}=result.fittedvalues."
            )


def check_modelled(request: ModelRequest, cohort: Cohort) -> None:
    """Check that a fitted result models the treatment or outcome of these rows, nothing else.

    Parameters
    ----------
    request : ModelRequest
        With a result.
    cohort : Cohort

    Raises
    ------
    DataError
    """
    model, what, event = request.result.model, request.what, request.event
    target, name = _modelled(request, cohort)
    endog = np.asarray(model.endog, dtype=float)
    labels = getattr(model.data, "row_labels", None)
    if labels is None:
        labels = pd.RangeIndex(len(endog)) if len(endog) == cohort.n_read else None
        here = pd.Index(cohort.rows)
    else:
        here = cohort.index
    where = None
    if labels is not None and pd.Index(labels).is_unique:
        where = pd.Index(labels).get_indexer(here)
        if what == "outcome model" and (where < 0).any():
            kept = where >= 0  # as a rule fitted on the untreated
            where, target = where[kept], target[kept]
            where = None if not len(where) else where
    if where is None or (where < 0).any():  # fitted on other rows: the name has to do
        if request.left is None or request.left != name:
            raise DataError(
                f"the {what} result models {model.endog_names!r} on other rows; whether that is "
                f"{event} {name!r} cannot be checked. Give a formula, or its probabilities on "
                "these rows."
            )
        return
    differ = int(np.count_nonzero(endog[where] != target))
    if differ:
        raise DataError(
            f"the {what} result models {model.endog_names!r}, which differs from {event} "
            f"{name!r} in {differ} of {len(where)} rows: another column, another coding, or rows "
            "in another order. Give a formula, or its probabilities."
        )
    if what == "outcome model" and request.formula is None and len(where) == cohort.n_used:
        columns = np.asarray(model.exog, dtype=float)[where]
        if (columns == np.asarray(cohort.d)[:, None]).all(axis=0).any():
            raise DataError(
                f"the outcome model result has the treatment {cohort.treatment_name!r} among its "
                "columns, and its probabilities are those under the treatment that was given. "
                "Give a formula, or its probabilities with treatment set to none."
            )


def _modelled(request: ModelRequest, cohort: Cohort) -> tuple[NDArray[np.int8], str | None]:
    """The column of 0 and 1 that a binary model is of, and its name."""
    if request.what == "propensity":
        assert cohort.d is not None
        return cohort.d, cohort.treatment_name
    return cohort.y, cohort.outcome_name


def predict(request: ModelRequest, cohort: Cohort, data: pd.DataFrame | None = None) -> Array:
    """Predictions of a fitted result on the rows of the analysis.

    Parameters
    ----------
    request : ModelRequest
        With a result.
    cohort : Cohort
    data : pandas.DataFrame, optional
        The rows with, say, treatment set to none; as they are by default.

    Returns
    -------
    (n,) array

    Raises
    ------
    DataError
        If it cannot predict on them.
    """
    try:
        return np.asarray(
            request.result.predict(cohort.data if data is None else data), dtype=float
        )
    except Exception as error:  # whatever statsmodels or patsy make of data coded in another way
        raise DataError(
            f"the {request.what} result cannot predict on these rows ({type(error).__name__}: "
            f"{str(error).splitlines()[0][:120]}). Give a formula, or its probabilities."
        ) from error
