"""What was given as propensity: a formula, a column, probabilities, or a fitted result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import DataError, FormulaError
from cfair.formula import Formula, parse_formula
from cfair.roles import Declared

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PropensityRequest:
    """What the user gave as propensity, read before the rows of the analysis are chosen.

    Attributes
    ----------
    kind : {"formula", "column", "array", "result"}
    text : str
        For the printed result.
    columns : tuple of str
        Columns that enter the missing-value mask.
    left : str or None
        Left side of a formula.
    formula : Formula or None
    values : pandas.Series or None
        Given probabilities on the table's index.
    result : object
        A fitted statsmodels result.
    """

    kind: str
    text: str
    columns: tuple[str, ...] = ()
    left: str | None = None
    formula: Formula | None = None
    values: pd.Series | None = None
    result: Any = None

    @property
    def missing(self) -> dict[str, NDArray[np.bool_]]:
        """Rows without a probability, where probabilities are given beside the table."""
        if self.values is None or self.kind != "array":
            return {}
        return {"propensity": self.values.isna().to_numpy()}


def read_propensity(value: Any, declared: Declared) -> PropensityRequest:
    """Understand what was given as propensity.

    Parameters
    ----------
    value : str, array, Series or fitted statsmodels result
        A formula (``"treated ~ age"``), the name of a column of probabilities, the probabilities,
        or a fitted binary-response result.
    declared : Declared

    Returns
    -------
    PropensityRequest

    Raises
    ------
    DataError, FormulaError
        If it is none of these.
    """
    if isinstance(value, str):
        if "~" not in value and value in declared.columns:
            return PropensityRequest("column", f"probabilities in column {value!r}", (value,))
        if "~" not in value:
            raise FormulaError(
                f"the propensity {value!r} is neither a formula nor a column of the table. "
                f'Write "treatment ~ covariates", or name a column of probabilities.'
            )
        formula = parse_formula(value, declared.columns, what="propensity")
        return PropensityRequest(
            "formula", formula.text, formula.columns, formula.left, formula=formula
        )
    if hasattr(value, "predict") and hasattr(value, "model") and hasattr(value, "params"):
        return _read_result(value, declared)
    if np.ndim(value) == 1:
        values = declared.table.align(value, "propensity")
        if not pd.api.types.is_numeric_dtype(values):
            raise DataError(
                f"the given propensities are {values.dtype}, not numbers. Give a probability of "
                "treatment for each row."
            )
        return PropensityRequest("array", "probabilities as given", values=values.astype(float))
    raise DataError(
        "propensity must be a formula, a column name, probabilities (one per row), or a fitted "
        f"statsmodels result, not {type(value).__name__}."
    )


def _read_result(result: Any, declared: Declared) -> PropensityRequest:
    """Read a fitted result; with a formula that can be rebuilt, by that formula."""
    _refuse_other_models(result)
    text = getattr(result.model, "formula", None)
    if isinstance(text, str) and "~" in text:
        left, right = (side.strip() for side in text.split("~", 1))
        try:
            formula = parse_formula(f"~ {right}", declared.columns, what="propensity")
        except FormulaError:
            formula = None
        if formula is not None:
            name = left.strip("`") if left.strip("`") in declared.columns else None
            return PropensityRequest(
                "result", f"{left} ~ {right}", formula.columns, name, formula, result=result
            )
    values = declared.table.align(_in_sample(result, declared, "predict"), "propensity")
    return PropensityRequest("result", "fitted statsmodels result", values=values, result=result)


def _in_sample(result: Any, declared: Declared, what: str) -> pd.Series:
    """Predictions or outcome of a result on the rows it was fitted on, by the table's index."""
    data = result.predict() if what == "predict" else result.model.endog
    values = np.asarray(data, dtype=float)
    index = declared.table.index
    labels = getattr(result.model.data, "row_labels", None)
    if labels is not None and len(labels) == len(values) and not pd.Index(labels).equals(index):
        return pd.Series(values, index=pd.Index(labels))
    if len(values) != len(index):
        raise DataError(
            f"the fitted propensity result has {len(values)} rows, the table {len(index)}. "
            "Fit it on the rows of the table, or give a formula."
        )
    return pd.Series(values, index=index)


def _refuse_other_models(result: Any) -> None:
    """Refuse results that are no plain model of one probability."""
    name = type(result.model).__name__
    family = type(getattr(result.model, "family", None)).__name__
    if name not in ("Logit", "Probit") and family != "Binomial":
        raise DataError(
            f"the propensity result is a {name}, which does not model a probability. Fit a "
            "binomial GLM, a Logit or a Probit, or give a formula."
        )
    if np.ndim(result.model.endog) != 1 or isinstance(result.model.endog_names, list):
        raise DataError(
            "the propensity result models two columns, as statsmodels does for a treatment that is "
            "True/False or text, and its probability may be that of no treatment. Code the "
            "treatment as 0/1, or give a formula."
        )
    for extra in ("offset", "exposure"):
        values = getattr(result.model, extra, None)
        if values is not None and np.any(values):
            raise DataError(
                f"the propensity result has an {extra}, which its predictions on other rows leave "
                "out. Give its probabilities instead: propensity=result.fittedvalues."
            )


def check_modelled(request: PropensityRequest, cohort: Cohort) -> None:
    """Check that a fitted result models the treatment of these rows, and not something else.

    Parameters
    ----------
    request : PropensityRequest
        With a result.
    cohort : Cohort

    Raises
    ------
    DataError
    """
    model = request.result.model
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
    if where is None or (where < 0).any():  # fitted on other rows: the name has to do
        if request.left is None or request.left != cohort.treatment_name:
            raise DataError(
                f"the propensity result models {request.result.model.endog_names!r} on other rows; "
                f"whether that is the treatment {cohort.treatment_name!r} cannot be checked. Give "
                "a formula, or its probabilities on these rows."
            )
        return
    differ = int(np.count_nonzero(endog[where] != cohort.d))
    if differ:
        raise DataError(
            f"the propensity result models {model.endog_names!r}, which differs from the treatment "
            f"{cohort.treatment_name!r} in {differ} of {cohort.n_used} rows: another column, "
            "another coding, or rows in another order. Give a formula, or its probabilities."
        )


def predict(result: Any, cohort: Cohort) -> Array:
    """Predictions of a fitted result on the rows of the analysis.

    Parameters
    ----------
    result : fitted statsmodels result
    cohort : Cohort

    Returns
    -------
    (n,) array

    Raises
    ------
    DataError
        If it cannot predict on them.
    """
    try:
        return np.asarray(result.predict(cohort.data), dtype=float)
    except Exception as error:  # whatever statsmodels or patsy make of data coded in another way
        raise DataError(
            f"the propensity result cannot predict on these rows ({type(error).__name__}: "
            f"{str(error).splitlines()[0][:120]}). Give a formula, or its probabilities."
        ) from error
