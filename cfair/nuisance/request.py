"""What was given as a model: a formula, column, probabilities, fitted result, or a learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import DataError, FormulaError
from cfair.formula import Formula, parse_formula
from cfair.nuisance.fitted_result import read_result
from cfair.roles import Declared

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

    @property
    def event(self) -> str:
        """What the model is of, in words."""
        return EVENTS[self.what]

    def shown(self, left: str | None, kinds: tuple[str, ...] = ("formula",)) -> str:
        """The text for the printed result, with the name of what is modelled on its left.

        Parameters
        ----------
        left : str or None
            That name, if there is one.
        kinds : tuple of str, default ("formula",)
            Kinds of request to which it is added where they have no column of the table there.

        Returns
        -------
        str
        """
        if not left or self.left is not None or self.kind not in kinds:
            return self.text
        return f"{left} ~ {self.text.split('~', 1)[1].strip()}"


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
        for name in value.columns or ():
            if name not in declared.columns:  # a formula of them is none that the user wrote
                declared.table.position(name, f"{what}, columns of the Learner:")
        formula = parse_formula(value.formula_text, declared.columns, what=what)
        declared.check_numbers(formula.bare_columns)
        return ModelRequest(
            what, "learner", repr(value), formula.columns, formula.left, formula, learner=value
        )
    if isinstance(value, str):
        return _read_text(value, declared, what)
    binary = what != "membership"
    if binary and all(hasattr(value, name) for name in ("predict", "model", "params")):
        request = ModelRequest(what, "result", "fitted statsmodels result", result=value)
        return read_result(request, declared)
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
        declared.check_numbers(formula.bare_columns)
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
