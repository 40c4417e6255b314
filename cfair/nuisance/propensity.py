"""The probability of treatment: from a formula, a fitted statsmodels result, or as given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import (
    ConvergenceWarning,
    DataError,
    FormulaError,
    RankWarning,
    SeparationWarning,
    warn,
)
from cfair.formula import AttributeSplit, Design, Formula, build_design, parse_formula, split_design
from cfair.frame import show_some
from cfair.nuisance.logistic import LogisticFit, fit_logistic, score_test
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


@dataclass(frozen=True, eq=False, repr=False)
class Propensity:
    """Probabilities of treatment on the rows of the analysis.

    Attributes
    ----------
    text : str
        The formula, or where the probabilities come from.
    pi : (n,) array
        Truncated probabilities, those in the weights.
    fitted : (n,) array
        Before truncation.
    truncation : (float, float)
    matrix : (n, p) array or None
        Design columns that were fitted; None if the probabilities count as known.
    coef : (p,) array
        Their coefficients; empty if known.
    fit : LogisticFit or None
    design : Design or None
    columns : tuple of str or None
        Columns in the model; None if that cannot be known.
    notes : tuple of str
    """

    text: str
    pi: Array
    fitted: Array
    truncation: tuple[float, float]
    matrix: Array | None = None
    coef: Array = field(default_factory=lambda: np.zeros(0))
    fit: LogisticFit | None = None
    design: Design | None = None
    columns: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        low, high = self.truncation
        cut = int(np.count_nonzero(self.truncated))
        rows = f"{cut:,} of {len(self.pi):,} rows truncated to [{low:g}, {high:g}]"
        head = f"Propensity: {self.text}; {rows}"
        table = self.coefficients.round(4)
        return head if table.empty else f"{head}\n{table.to_string()}"

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Rows whose probability was cut."""
        result: NDArray[np.bool_] = self.fitted != self.pi
        return result

    @property
    def coefficients(self) -> pd.Series:
        """Coefficients by term, NaN for one that was left out; empty if nothing was fitted."""
        if self.fit is None or self.design is None:
            return pd.Series(dtype=float, name="coefficient")
        return pd.Series(self.fit.coef, index=list(self.design.names), name="coefficient")

    def split(self, cohort: Cohort) -> AttributeSplit | None:
        """Cut the design by what a permutation of labels changes; None if nothing is fitted."""
        if self.design is None or self.fit is None:
            return None
        return split_design(self.design, cohort.data, cohort.groups.label_frame())


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


def _check_modelled(request: PropensityRequest, cohort: Cohort) -> None:
    """Check that a fitted result models the treatment of these rows, and not something else."""
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


def _predict(result: Any, cohort: Cohort) -> Array:
    """Predictions of a fitted result on the rows of the analysis."""
    try:
        return np.asarray(result.predict(cohort.data), dtype=float)
    except Exception as error:  # whatever statsmodels or patsy make of data coded in another way
        raise DataError(
            f"the propensity result cannot predict on these rows ({type(error).__name__}: "
            f"{str(error).splitlines()[0][:120]}). Give a formula, or its probabilities."
        ) from error


def estimate_propensity(
    request: PropensityRequest,
    cohort: Cohort,
    truncation: tuple[float, float] = (0.005, 0.995),
) -> Propensity:
    """Fit or take the probabilities of treatment on the rows of the analysis.

    Parameters
    ----------
    request : PropensityRequest
    cohort : Cohort
        With a treatment.
    truncation : (float, float), default (0.005, 0.995)
        Probabilities are cut to this range once, the same in estimate, variance and diagnostics.

    Returns
    -------
    Propensity
    """
    if cohort.d is None:
        raise DataError(
            "no treatment is declared. Put it on the left of the propensity formula "
            '("treated ~ ..."), or give treatment= its column.'
        )
    if request.result is not None:
        _check_modelled(request, cohort)
    if request.formula is not None:
        if cohort.outcome_name in request.formula.columns:
            raise DataError(
                f"the propensity formula has the outcome {cohort.outcome_name!r} on its right "
                "side. Treatment comes before the outcome and cannot follow from it: take it out."
            )
        design = build_design(request.formula, cohort.data)
        _require_rows(cohort, design)
        fit = fit_logistic(design.matrix, cohort.d)
        same = request.result is None or _agrees(request.result, fit, cohort)
        if same:
            return _fitted(request, design, fit, cohort, truncation)
        known = _predict(request.result, cohort)
        return _known(
            known,
            cohort,
            truncation,
            request.text,
            request.formula.columns,
            "the propensity result was fitted on other rows or in another way; its probabilities "
            "count as known, and replicates do not refit them",
        )
    if request.kind == "column":
        values = cohort.data[request.columns[0]]
        if not pd.api.types.is_numeric_dtype(values):
            raise DataError(f"the propensity column {request.columns[0]!r} is not numeric.")
        array = values.to_numpy(dtype=float)
    else:
        assert request.values is not None
        array = request.values.to_numpy(dtype=float)[cohort.rows]
    note = (
        "the propensities are given: they count as known, which makes intervals a little wide, and "
        "replicates do not refit them"
    )
    return _known(array, cohort, truncation, request.text, None, note)


def _require_rows(cohort: Cohort, design: Design) -> None:
    n, p = design.matrix.shape
    if n < p:
        raise DataError(
            f"the propensity formula has {p} terms but only {n} rows are left "
            f"({cohort.n_read} read, {cohort.dropped.sentence()}). Use a smaller formula."
        )


def _agrees(result: Any, fit: LogisticFit, cohort: Cohort) -> bool:
    """Whether a fitted result is the maximum likelihood fit of its formula on these rows."""
    predicted = _predict(result, cohort)
    return bool(len(predicted) == len(fit.fitted) and np.max(np.abs(predicted - fit.fitted)) < 1e-5)


def _fitted(
    request: PropensityRequest,
    design: Design,
    fit: LogisticFit,
    cohort: Cohort,
    truncation: tuple[float, float],
) -> Propensity:
    notes = tuple(_fit_notes(design, fit, request.text))
    assert request.formula is not None
    text = request.text
    if request.left is None and "~" in text and cohort.treatment_name:
        text = f"{cohort.treatment_name} ~ {text.split('~', 1)[1].strip()}"
    matrix = design.matrix if fit.kept.all() else np.ascontiguousarray(design.matrix[:, fit.kept])
    return Propensity(
        text=text,
        pi=np.clip(fit.fitted, *truncation),
        fitted=fit.fitted,
        truncation=truncation,
        matrix=matrix,
        coef=fit.coef[fit.kept],
        fit=fit,
        design=design,
        columns=request.formula.columns,
        notes=(*request.formula.notes, *notes),
    )


def _fit_notes(design: Design, fit: LogisticFit, text: str) -> list[str]:
    """What went wrong in a fit, as warnings and as notes."""
    notes = []
    if not fit.kept.all():
        names = show_some([n for n, k in zip(design.names, fit.kept, strict=True) if not k], 8)
        message = (
            f"propensity {text!r}: left out as linear combinations of other columns: {names}. "
            "Predictions do not change; their coefficients are NaN."
        )
        warn(message, RankWarning)
        notes.append(message)
    if fit.separated.any():
        moving = [n for n, m in zip(design.names, fit.separated, strict=True) if m]
        named = [n for n in moving if n != "Intercept"] or moving
        message = (
            f"propensity {text!r}: treatment is separated by {show_some(named, 8)}: in some rows "
            "it is all but certain, and the coefficients have no finite estimate. Probabilities "
            "are truncated; check overlap, or drop or coarsen these terms."
        )
        warn(message, SeparationWarning)
        notes.append(message)
    elif not fit.converged:
        message = (
            f"propensity {text!r}: the fit stopped after {fit.n_iter} iterations with a score norm "
            f"of {fit.score_norm:.2g}. Check the scale of the covariates."
        )
        warn(message, ConvergenceWarning)
        notes.append(message)
    return notes


def _known(
    fitted: Array,
    cohort: Cohort,
    truncation: tuple[float, float],
    text: str,
    columns: tuple[str, ...] | None,
    note: str,
) -> Propensity:
    assert cohort.d is not None
    missing = int(np.isnan(fitted).sum())
    if missing:
        raise DataError(
            f"the given propensities are missing in {missing} of the {len(fitted)} rows used. "
            "Give a probability for each row, or drop these rows from the table."
        )
    outside = (fitted < 0) | (fitted > 1)
    if outside.any():
        raise DataError(
            f"the given propensities must lie in [0, 1], but {int(outside.sum())} rows range from "
            f"{fitted[outside].min():.4g} to {fitted[outside].max():.4g}. Give probabilities of "
            "treatment, not logits or percent."
        )
    sure = ((cohort.d == 0) & (fitted == 1)) | ((cohort.d == 1) & (fitted == 0))
    if sure.any():
        raise DataError(
            f"the given propensities are exactly 0 for {int((sure & (cohort.d == 1)).sum())} "
            f"treated and exactly 1 for {int((sure & (cohort.d == 0)).sum())} untreated rows: "
            "these "
            "rows cannot have happened. Correct the model, or leave them out."
        )
    return Propensity(
        text, np.clip(fitted, *truncation), fitted, truncation, columns=columns, notes=(note,)
    )


def check_truncation(value: Any) -> tuple[float, float]:
    """Check the limits to which propensities are cut.

    Parameters
    ----------
    value : (float, float) or None
        None cuts nothing.

    Returns
    -------
    (float, float)

    Raises
    ------
    ValueError
        If they are not two numbers with 0 <= low < high <= 1.
    """
    if value is None:
        return (0.0, 1.0)
    try:
        low, high = (float(x) for x in value)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not 0 <= low < high <= 1:
        raise ValueError(
            f"truncation must be (low, high) with 0 <= low < high <= 1, or None, not {value!r}."
        )
    return (low, high)


@dataclass(frozen=True)
class Omitted:
    """What treatment depends on beyond the propensity formula.

    Attributes
    ----------
    what : str
    chi2, p_value : float
    df : int
    """

    what: str
    chi2: float
    df: int
    p_value: float


def omitted_call(propensity: Propensity, cohort: Cohort) -> Omitted | None:
    """Score test of adding the 0/1 call to the propensity; None if it is in, or nothing was fitted.

    Parameters
    ----------
    propensity : Propensity
    cohort : Cohort

    Returns
    -------
    Omitted or None
    """
    return _omitted(cohort.rule, propensity, cohort, cohort.s[:, None].astype(np.float64))


def omitted_groups(propensity: Propensity, cohort: Cohort) -> Omitted | None:
    """Score test of adding the groups to the propensity.

    Parameters
    ----------
    propensity : Propensity
    cohort : Cohort

    Returns
    -------
    Omitted or None
    """
    from scipy.sparse import csr_matrix

    labels, codes = np.unique(cohort.groups.codes, return_inverse=True)
    n = cohort.n_used
    dummies = csr_matrix((np.ones(n), (np.arange(n), codes)), shape=(n, len(labels)))[:, 1:]
    return _omitted("the groups", propensity, cohort, dummies)


def _omitted(what: str, propensity: Propensity, cohort: Cohort, columns: Any) -> Omitted | None:
    if propensity.matrix is None or propensity.fit is None or cohort.d is None:
        return None
    chi2, df, p = score_test(propensity.matrix, cohort.d, propensity.fit, columns)
    return Omitted(what, chi2, df, p) if df else None
