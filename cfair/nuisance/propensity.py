"""The probability of treatment on the rows of the analysis, fitted or taken as given."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import DataError
from cfair.formula import Design, Formula, build_design
from cfair.nuisance.binary import BinaryFit, BinaryModel
from cfair.nuisance.checks import binary_fit_notes, check_probabilities, require_rows
from cfair.nuisance.crossfit import Folds, require_training_classes
from cfair.nuisance.design_rows import design_rows
from cfair.nuisance.fitted_result import check_modelled, predict
from cfair.nuisance.learners import features
from cfair.nuisance.logistic import LogisticFit
from cfair.nuisance.order import content_order
from cfair.nuisance.request import ModelRequest

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SquaredScores:
    """Sums of squared scores, which sampling weights make another thing than the information.

    Attributes
    ----------
    square : (2K,) array
        By cell.
    slope : (2K, q) array
        Times x, by cell.
    whole : (q, q) array
        Times x x', of all rows.
    """

    square: Array
    slope: Array
    whole: Array


@dataclass(frozen=True, eq=False)
class ScoreSums:
    """Sums by cell (group, call), 2K cells, that score tests of adding either are made of.

    Attributes
    ----------
    residual, variance : (2K,) arrays
        Sums of treatment less its probability p, and of p (1 - p).
    slope : (2K, q) array
        Sums of p (1 - p) x.
    squared : SquaredScores or None
        With sampling weights, which the other sums are weighted by as well.
    """

    residual: Array
    variance: Array
    slope: Array
    squared: SquaredScores | None = None


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
    folds : Folds or None
        Where probabilities are out of fold.
    learner : Learner or None
    seed : int
        Of a learner.
    binary : BinaryFit or None
        The fit as replicates make it; None if the probabilities count as known.
    cells : ScoreSums or None
        Sums for score tests, where the rows were read by batches and `matrix` is None.
    masked : str
        Why coefficients are not shown; empty if they are.
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
    folds: Folds | None = None
    learner: Any = None
    seed: int = 0
    binary: BinaryFit | None = field(default=None, repr=False)
    cells: ScoreSums | None = field(default=None, repr=False)
    masked: str = ""

    def __repr__(self) -> str:
        low, high = self.truncation
        cut = int(np.count_nonzero(self.truncated))
        rows = f"{cut:,} of {len(self.pi):,} rows truncated to [{low:g}, {high:g}]"
        return f"Propensity: {self.text}; {rows}{self.coefficient_lines}"

    @property
    def coefficient_lines(self) -> str:
        """Coefficients as lines of text, or why there are none; empty if nothing was fitted."""
        table = self.coefficients.round(4)
        if table.empty:
            return ""
        return f"\n{f'coefficients {self.masked}' if self.masked else table.to_string()}"

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Rows whose probability was cut."""
        result: NDArray[np.bool_] = self.fitted != self.pi
        return result

    @property
    def coefficients(self) -> pd.Series:
        """Coefficients by term, NaN for one left out or `masked`; empty if nothing was fitted."""
        if self.fit is None or self.design is None:
            return pd.Series(dtype=float, name="coefficient")
        shown = np.full_like(self.fit.coef, np.nan) if self.masked else self.fit.coef
        return pd.Series(shown, index=list(self.design.names), name="coefficient")

    def model(self, cohort: Cohort, *, labels: bool = True) -> BinaryModel | None:
        """The model that can be fitted again; None if nothing is fitted.

        Parameters
        ----------
        cohort : Cohort
        labels : bool, default True
            Whether rows are to be put into other groups.

        Returns
        -------
        BinaryModel or None
        """
        if self.design is None or cohort.d is None:
            return None
        return _model(cohort, self.design, self.learner, self.folds, labels=labels, seed=self.seed)


def _model(
    cohort: Cohort,
    design: Design,
    learner: Any,
    folds: Folds | None,
    *,
    labels: bool,
    seed: int,
) -> BinaryModel:
    assert cohort.d is not None
    rows = design_rows(design, cohort, labels=labels, intercept=learner is None)
    return BinaryModel(
        cohort.d.astype(np.float64),
        rows,
        (rows,),
        cohort.weighted,
        cohort.weights,
        None if learner is None else learner.estimator,
        folds,
        None if learner is None else content_order(cohort),
        seed,
        "propensity",
    )


def estimate_propensity(
    request: ModelRequest,
    cohort: Cohort,
    truncation: tuple[float, float] = (0.005, 0.995),
    folds: Folds | None = None,
    *,
    seed: int = 0,
) -> Propensity:
    """Fit or take the probabilities of treatment on the rows of the analysis.

    With sampling weights the fit maximizes the weighted likelihood.

    Parameters
    ----------
    request : ModelRequest
    cohort : Cohort
        With a treatment.
    truncation : (float, float), default (0.005, 0.995)
        Probabilities are cut to this range once, the same in estimate, variance and diagnostics.
    folds : Folds, optional
        For predictions out of fold.
    seed : int, default 0
        Of a learner.

    Returns
    -------
    Propensity
    """
    require_treatment(cohort)
    if request.result is not None:
        check_modelled(request, cohort)
    if request.formula is not None:
        learns = request.learner is not None and request.learner.columns is not None
        refuse_outcome(request.formula, cohort.outcome_name, listed=learns)
        return _estimated(request, cohort, truncation, folds, seed)
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


def refuse_outcome(formula: Formula, outcome: str, *, listed: bool = False) -> None:
    """Refuse a propensity that follows from the outcome.

    Parameters
    ----------
    formula : Formula
    outcome : str
    listed : bool, default False
        Whether the formula is of the columns that a learner was given as a list.

    Raises
    ------
    DataError
    """
    if outcome in formula.columns:
        where = (
            f"the outcome {outcome!r} is among the columns of the Learner of the propensity"
            if listed
            else f"the propensity formula has the outcome {outcome!r} on its right side"
        )
        raise DataError(
            f"{where}. Treatment comes before the outcome and cannot follow from it: take it out."
        )


def _estimated(
    request: ModelRequest,
    cohort: Cohort,
    truncation: tuple[float, float],
    folds: Folds | None,
    seed: int,
) -> Propensity:
    """Fit the formula, or the learner; a fitted result counts as known if it is another fit."""
    assert request.formula is not None
    assert cohort.d is not None
    design = build_design(request.formula, cohort.data)
    require_rows(cohort, design, cohort.weighted)
    if request.learner is not None:
        features(design)  # which refuses an intercept alone
    if folds is not None:
        names = ["untreated", "treated"]
        require_training_classes(folds, cohort.d, 2, cohort.weighted, "propensity", names)
    model = _model(cohort, design, request.learner, folds, labels=False, seed=seed)
    found = model.fit()
    fitted, fit = found.values[0], found.fit
    if request.result is not None and not _agrees(request, cohort, model, found):
        note = (
            "the propensity result was fitted on other rows or in another way"
            f"{'' if cohort.weights is None else ', perhaps without the weights'}; its "
            "probabilities count as known, and replicates do not refit them"
        )
        known = predict(request, cohort)
        return _known(known, cohort, truncation, request.text, request.formula.columns, note)
    trouble = [] if fit is None else binary_fit_notes(design, fit, request.text, "propensity")
    return Propensity(
        text=request.shown(cohort.treatment_name, ("formula", "result")),
        pi=np.clip(fitted, *truncation),
        fitted=fitted,
        truncation=truncation,
        matrix=found.models[0].design if found.models else None,
        coef=np.zeros(0) if fit is None else fit.coef[fit.kept],
        fit=fit,
        design=design,
        columns=request.formula.columns,
        notes=(*request.formula.notes, *(f"propensity: {n}" for n in found.notes), *trouble),
        folds=folds,
        learner=request.learner,
        seed=seed,
        binary=found,
    )


def _agrees(request: ModelRequest, cohort: Cohort, model: BinaryModel, found: BinaryFit) -> bool:
    """Whether a fitted result is the maximum likelihood fit of its formula on these rows."""
    predicted = predict(request, cohort)
    fitted = (found if model.folds is None else replace(model, folds=None).fit()).values[0]
    return bool(len(predicted) == len(fitted) and np.max(np.abs(predicted - fitted)) < 1e-5)


def _known(
    fitted: Array,
    cohort: Cohort,
    truncation: tuple[float, float],
    text: str,
    columns: tuple[str, ...] | None,
    note: str,
) -> Propensity:
    assert cohort.d is not None
    check_probabilities(fitted, "propensity")
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


def require_treatment(cohort: Cohort) -> NDArray[np.int8]:
    """The treatment of the rows, without which nothing counterfactual can be said.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    (n,) array of 0 and 1

    Raises
    ------
    DataError
        If none was declared.
    """
    if cohort.d is None:
        raise DataError(
            "no treatment is declared. Put it on the left of the propensity formula "
            '("treated ~ ..."), or give treatment= its column.'
        )
    return cohort.d


def require_finite_weights(cohort: Cohort, propensity: Propensity) -> None:
    """Refuse untreated rows that stand for infinitely many.

    Parameters
    ----------
    cohort : Cohort
    propensity : Propensity

    Raises
    ------
    DataError
        If the truncated propensity of an untreated row is 1.
    """
    refuse_certain(int(np.count_nonzero((cohort.d == 0) & (propensity.pi >= 1))))


def refuse_certain(n: int) -> None:
    """Refuse so many untreated rows whose truncated propensity is 1.

    Parameters
    ----------
    n : int

    Raises
    ------
    DataError
        Unless there are none.
    """
    if n:
        raise DataError(
            f"{n} untreated rows have a propensity of 1, so their weight is "
            "infinite. Truncate: truncation=(0.005, 0.995)."
        )
