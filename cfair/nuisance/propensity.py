"""The probability of treatment on the rows of the analysis, fitted or taken as given."""

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
    RankWarning,
    SeparationWarning,
    warn,
)
from cfair.formula import AttributeSplit, Design, build_design, split_design
from cfair.frame import show_some
from cfair.nuisance.logistic import LogisticFit, fit_logistic, score_test
from cfair.nuisance.request import PropensityRequest, check_modelled, predict

Array = NDArray[np.float64]


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
        check_modelled(request, cohort)
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
        known = predict(request.result, cohort)
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
    predicted = predict(result, cohort)
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
