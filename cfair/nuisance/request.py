"""What was given as a model: formula, column, probabilities, fitted result, or a learner; folds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import DataError, FormulaError
from cfair.formula import Formula, parse_formula
from cfair.nuisance.crossfit import Folds, draw_folds, folds_given, row_keys
from cfair.roles import Declared

Array = NDArray[np.float64]


#: What models are of, in words: by name of the model.
EVENTS: dict[str, str] = {
    "propensity": "the treatment",
    "outcome model": "the outcome",
    "membership": "the group",
}
_LEFT = {"propensity": "treatment", "outcome model": "outcome", "membership": ""}


@dataclass(frozen=True, eq=False)
class ModelRequest:
    """What the user gave as a model, read before the rows of the analysis are chosen.

    Attributes
    ----------
    what : {"propensity", "outcome model", "membership"}
    kind : {"formula", "column", "array", "result", "learner"}
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
    learner : Learner or None
    """

    what: str
    kind: str
    text: str
    columns: tuple[str, ...] = ()
    left: str | None = None
    formula: Formula | None = None
    values: pd.Series | None = None
    result: Any = None
    learner: Any = None

    @property
    def missing(self) -> dict[str, NDArray[np.bool_]]:
        """Rows without a probability, where probabilities are given beside the table."""
        if self.values is None or self.kind != "array":
            return {}
        return {self.what: self.values.isna().to_numpy()}


def read_model(value: Any, declared: Declared, *, what: str = "propensity") -> ModelRequest:
    """Understand what was given as a model.

    Parameters
    ----------
    value : str, Learner, array, Series or fitted statsmodels result
        A formula (``"treated ~ age"``), a classifier with its columns, the name of a column of
        probabilities, the probabilities, or a fitted binary-response result. For group membership
        a formula or a classifier.
    declared : Declared
    what : {"propensity", "outcome model", "membership"}, default "propensity"

    Returns
    -------
    ModelRequest

    Raises
    ------
    DataError, FormulaError
        If it is none of these.
    """
    if hasattr(value, "formula_text") and hasattr(value, "estimator"):
        formula = parse_formula(value.formula_text, declared.columns, what=what)
        return ModelRequest(
            what, "learner", repr(value), formula.columns, formula.left, formula, learner=value
        )
    if isinstance(value, str):
        return _read_text(value, declared, what)
    binary = what != "membership"
    if binary and all(hasattr(value, name) for name in ("predict", "model", "params")):
        return _read_result(value, declared, what)
    if binary and np.ndim(value) == 1:
        values = declared.table.align(value, what)
        if not pd.api.types.is_numeric_dtype(values):
            raise DataError(
                f"{what}: the given probabilities are {values.dtype}, not numbers. Give a "
                f"probability of {EVENTS[what]} for each row."
            )
        return ModelRequest(what, "array", "probabilities as given", values=values.astype(float))
    if hasattr(value, "predict_proba"):
        raise DataError(
            f"{what}: a classifier needs to know its columns. Write "
            'cfair.Learner(classifier, columns=["age", ...]).'
        )
    others = ", a column name, probabilities (one per row), a fitted statsmodels result"
    raise DataError(
        f"{what} must be a formula{others if binary else ''} or a cfair.Learner, not "
        f"{type(value).__name__}."
    )


def _read_text(value: str, declared: Declared, what: str) -> ModelRequest:
    if "~" in value:
        formula = parse_formula(value, declared.columns, what=what)
        return ModelRequest(
            what, "formula", formula.text, formula.columns, formula.left, formula=formula
        )
    left = _LEFT[what]
    example = f'"{left} ~ covariates"' if left else '"~ covariates"'
    if what != "membership" and value in declared.columns:
        _refuse_itself(value, declared, what)
        return ModelRequest(what, "column", f"probabilities in column {value!r}", (value,))
    column = "" if what == "membership" else " nor a column of the table"
    name = "" if what == "membership" else ", or name a column of probabilities"
    raise FormulaError(
        f"the {what} {value!r} is {'neither' if column else 'not'} a formula{column}. "
        f"Write {example}{name}."
    )


def _refuse_itself(name: str, declared: Declared, what: str) -> None:
    for role, column in (("outcome", declared.outcome), ("treatment", declared.treatment)):
        if column is not None and column.name == name:
            raise DataError(
                f"{what}: column {name!r} is the {role} itself, not a probability of "
                f'{EVENTS[what]}. Write a formula such as "{_LEFT[what]} ~ covariates".'
            )


def _read_result(result: Any, declared: Declared, what: str) -> ModelRequest:
    """Read a fitted result; with a formula that can be rebuilt, by that formula."""
    _refuse_other_models(result, what)
    text = getattr(result.model, "formula", None)
    if isinstance(text, str) and "~" in text:
        left, right = (side.strip() for side in text.split("~", 1))
        try:
            formula = parse_formula(f"~ {right}", declared.columns, what=what)
        except FormulaError:
            formula = None
        if formula is not None:
            name = left.strip("`") if left.strip("`") in declared.columns else None
            return ModelRequest(
                what, "result", f"{left} ~ {right}", formula.columns, name, formula, result=result
            )
    values = declared.table.align(_in_sample(result, declared, what), what)
    return ModelRequest(what, "result", "fitted statsmodels result", values=values, result=result)


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


def _refuse_other_models(result: Any, what: str) -> None:
    """Refuse results that are no plain model of one probability."""
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
            f"{EVENTS[what]} as 0/1, or give a formula."
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
    model, what, event = request.result.model, request.what, EVENTS[request.what]
    target, name = modelled(request, cohort)
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


def modelled(request: ModelRequest, cohort: Cohort) -> tuple[NDArray[np.int8], str | None]:
    """The column that a binary model is of, and its name.

    Parameters
    ----------
    request : ModelRequest
    cohort : Cohort

    Returns
    -------
    values : (n,) array of 0 and 1
    name : str or None
    """
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


# -- folds ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FoldsRequest:
    """Folds as the user gave them: a number, or the fold of each row.

    Attributes
    ----------
    number : int or None
    column : str or None
        Column of the table that holds the fold of each row.
    values : pandas.Series or None
        The fold of each row on the table's index.
    """

    number: Any = None
    column: str | None = None
    values: pd.Series | None = None

    @property
    def missing(self) -> dict[str, NDArray[np.bool_]]:
        """Rows without a fold."""
        return {} if self.values is None else {"folds": self.values.isna().to_numpy()}


def read_folds(value: Any, declared: Declared) -> FoldsRequest | None:
    """Understand what was given as folds.

    Parameters
    ----------
    value : int, name, array or None
        Number of folds, a column or an array with the fold of each row; None for none.
    declared : Declared

    Returns
    -------
    FoldsRequest or None
    """
    if value is None:
        return None
    if isinstance(value, str):
        return FoldsRequest(column=value, values=declared.table.column(value, "folds"))
    if np.ndim(value) == 1:
        return FoldsRequest(values=declared.table.align(value, "folds"))
    if np.ndim(value) > 1:
        folds_given(value)  # which refuses them
    return FoldsRequest(number=value)


def make_folds(request: FoldsRequest | None, cohort: Cohort, seed: int = 0) -> Folds | None:
    """Folds of the rows used, drawn within groups or as given.

    Parameters
    ----------
    request : FoldsRequest or None
    cohort : Cohort
    seed : int, default 0

    Returns
    -------
    Folds or None

    Raises
    ------
    ValueError, DataError
        If there are too many folds, or only one.
    """
    if request is None:
        return None
    if request.values is not None:
        return folds_given(request.values.to_numpy()[cohort.rows])
    return draw_folds(
        request.number,
        content_keys(cohort),
        strata=cohort.groups.codes,
        cluster=cohort.cluster,
        seed=seed,
    )


def content_keys(cohort: Cohort) -> NDArray[np.uint64]:
    """What tells the rows of a cohort apart: everything in them but the names of their groups.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    (n,) array of uint64
    """
    columns = cohort.data.drop(columns=list(cohort.groups.attributes))
    # weights by their rank: scaled to mean 1, their last digit depends on the order of the rows
    ranks = None if cohort.weights is None else np.unique(cohort.weights, return_inverse=True)[1]
    arrays = [a for a in (cohort.score, cohort.d, ranks) if a is not None]
    return row_keys(columns[sorted(columns.columns, key=str)], cohort.y, cohort.s, *arrays)
