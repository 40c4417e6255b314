"""The event without treatment given covariates, with and without the call under audit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import DataError
from cfair.formula import Formula, build_design
from cfair.frame import show_some
from cfair.nuisance.binary import BinaryFit, BinaryModel
from cfair.nuisance.checks import binary_fit_notes, require_rows
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.design_rows import design_rows
from cfair.nuisance.outcome_model import outcome_model, require_events
from cfair.nuisance.request import ModelRequest

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class CallOutcome:
    """Probabilities of the event without treatment, from models with and without the call.

    Attributes
    ----------
    text : str
        The formula, or the learner and its columns.
    mu0 : (n,) array
        P(Y=1 | D=0, X).
    mu0_s1, mu0_s0 : (n,) arrays
        P(Y=1 | D=0, X, S) with S set to 1 and to 0.
    plain, with_call : BinaryModel
        What replicates fit again: with the treatment, and with treatment and call.
    fits : tuple of BinaryFit
        Of the two models.
    names : tuple of str
        Columns of the model with the call.
    n_truncated : int
        Rows with a probability that was cut.
    notes : tuple of str
    """

    text: str
    mu0: Array
    mu0_s1: Array
    mu0_s0: Array
    plain: BinaryModel
    with_call: BinaryModel
    fits: tuple[BinaryFit, BinaryFit]
    names: tuple[str, ...]
    n_truncated: int
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        head = f"Outcome model: {self.text}, without and with the call"
        table = self.coefficients.round(4)
        return head if table.empty else f"{head}\n{table.to_string()}"

    @property
    def coefficients(self) -> pd.DataFrame:
        """Coefficients of both models by term, NaN for one left out; empty for learners."""
        plain, with_call = (found.fit for found in self.fits)
        if plain is None or with_call is None:
            return pd.DataFrame(columns=["without the call", "with the call"], dtype=float)
        return pd.DataFrame(
            {
                "without the call": np.append(plain.coef, np.nan),
                "with the call": with_call.coef,
            },
            index=list(self.names),
        )


def estimate_call_outcome(
    request: ModelRequest,
    cohort: Cohort,
    folds: Folds,
    truncation: tuple[float, float] = (0.005, 0.995),
    *,
    seed: int = 0,
) -> CallOutcome:
    """Fit the event on covariates and treatment, and once more with the call.

    Both are fitted on all rows and predicted with treatment set to none. A learner is predicted out
    of fold, a formula on the rows it was fitted on.

    Parameters
    ----------
    request : ModelRequest
        A formula or a learner.
    cohort : Cohort
        With a treatment.
    folds : Folds
        For a learner.
    truncation : (float, float), default (0.005, 0.995)
        Probabilities are cut to this range.
    seed : int, default 0
        Of a learner.

    Returns
    -------
    CallOutcome

    Raises
    ------
    DataError, FormulaError
        If what was given is no model, or has columns that do not belong there.
    """
    if request.formula is None or request.kind == "result":
        raise DataError(
            "small_subgroups fits its outcome model twice, with and without the call, so it needs "
            f'a formula such as "~ age + sbp" or a cfair.Learner, not {request.text}.'
        )
    assert cohort.d is not None
    _refuse_columns(request.formula, cohort)
    design = build_design(request.formula, cohort.data)
    require_rows(cohort, design, cohort.weighted, "outcome model")
    learner = request.learner
    rows = design_rows(design, cohort, labels=False, intercept=learner is None)
    if learner is not None:
        require_events(cohort, folds, cohort.weighted)
    d, s = cohort.d.astype(np.float64), cohort.s.astype(np.float64)
    none, all_ = np.zeros(cohort.n_used), np.ones(cohort.n_used)
    plain = outcome_model(
        cohort,
        rows.beside(d),
        (rows.beside(none),),
        cohort.weighted,
        learner=learner,
        folds=None if learner is None else folds,
        seed=seed,
    )
    with_call = replace(
        plain, train=rows.beside(d, s), at=(rows.beside(none, all_), rows.beside(none, none))
    )
    fits = plain.fit(), with_call.fit()
    values = fits[0].values + fits[1].values
    mu0, mu0_s1, mu0_s0 = (np.clip(value, *truncation) for value in values)
    beyond = [(value < truncation[0]) | (value > truncation[1]) for value in values]
    names = (*design.names, str(cohort.treatment_name), f"S: {cohort.rule}")
    notes = [*request.formula.notes, *dict.fromkeys(note for f in fits for note in f.notes)]
    # the name of the outcome even where the formula has it: its text is written anew
    text = replace(request, left=None).shown(cohort.outcome_name)
    for found, named in zip(fits, (names[:-1], names), strict=True):
        if found.fit is not None:
            notes += binary_fit_notes(
                replace(design, names=named), found.fit, text, "outcome model"
            )
    return CallOutcome(
        text,
        mu0,
        mu0_s1,
        mu0_s0,
        plain,
        with_call,
        fits,
        names,
        int(np.logical_or.reduce(beyond).sum()),
        tuple(dict.fromkeys(notes)),
    )


def _refuse_columns(formula: Formula, cohort: Cohort) -> None:
    """Refuse what the estimator adds by itself, and what it leaves out on purpose."""
    columns = set(formula.columns)
    if cohort.outcome_name in columns:
        raise formula.error(
            f"the outcome {cohort.outcome_name!r} is on its right side, and a column cannot "
            "explain itself. Take it out."
        )
    added = {cohort.treatment_name: "treatment", cohort.prediction_name: "call under audit"}
    for name in sorted(columns & {str(n) for n in added if n is not None}):
        raise formula.error(
            f"{name!r} is the {added[name]}, which small_subgroups adds by itself, set to none or "
            "to a value of its own. Take it out."
        )
    attributes = [name for name in formula.columns if name in cohort.groups.attributes]
    if attributes:
        raise formula.error(
            f"{show_some([repr(a) for a in attributes])} is an attribute. By Bayes' rule the group "
            "enters through its membership model; the outcome models of small_subgroups leave it "
            "out, which is what makes small groups borrow from all rows. Take it out, or use "
            'counterfactual(estimator="aipw"), whose outcome model may have it.'
        )
