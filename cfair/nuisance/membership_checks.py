"""What a membership model may hold, and what went wrong in its fits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import CfairWarning, ConvergenceWarning, RankWarning, SeparationWarning, warn
from cfair.formula import Design, Formula, build_design
from cfair.frame import show_some
from cfair.nuisance.multinomial import MultinomialFit


def membership_design(formula: Formula, cohort: Cohort) -> Design:
    """Design of a membership formula, which has neither attributes nor what follows from them.

    Parameters
    ----------
    formula : Formula
    cohort : Cohort

    Returns
    -------
    Design

    Raises
    ------
    FormulaError
    """
    refuse_columns(formula, cohort)
    return build_design(formula, cohort.data)


def refuse_columns(formula: Formula, cohort: Cohort) -> None:
    """Refuse a left side, attributes, outcome and treatment in a membership formula.

    Parameters
    ----------
    formula : Formula
    cohort : Cohort

    Raises
    ------
    FormulaError
    """
    if formula.left is not None:
        raise formula.error(
            f"it has a left side, {formula.left!r}. All attributes are modelled jointly: write "
            "'~ covariates'."
        )
    attributes = [name for name in formula.columns if name in cohort.groups.attributes]
    if attributes:
        raise formula.error(
            f"{show_some([repr(a) for a in attributes])} is an attribute, and group membership "
            "cannot be explained by itself. Take it out."
        )
    for role, name in (("outcome", cohort.outcome_name), ("treatment", cohort.treatment_name)):
        if name in formula.columns:
            raise formula.error(
                f"{name!r} is the {role}, which comes after the covariates that describe a group. "
                "Take it out."
            )


def membership_fit_notes(
    fits: Sequence[MultinomialFit],
    names: tuple[str, ...],
    group_names: tuple[str, ...],
    n_folds: int = 1,
    what: str = "membership model",
) -> list[str]:
    """What went wrong in the fits of one model, as warnings and as notes.

    Parameters
    ----------
    fits : sequence of MultinomialFit
        One for each fold.
    names : tuple of str
        Of the columns.
    group_names : tuple of str
    n_folds : int, default 1
        1 for a model that is not cross-fitted.
    what : str

    Returns
    -------
    list of str
    """
    found: list[tuple[str, type[CfairWarning]]] = []

    def where(bad: list[bool]) -> str:
        return "" if n_folds == 1 else f" outside {sum(bad)} of {n_folds} folds"

    reduced = [not fit.kept.all() for fit in fits]
    if any(reduced):
        left_out = _chosen(names, ~np.logical_and.reduce([fit.kept for fit in fits]))
        message = (
            f"{what}: left out as linear combinations of other columns{where(reduced)}: "
            f"{show_some(left_out, 8)}. Predictions do not change."
        )
        found.append((message, RankWarning))
    apart = [bool(fit.separated.any()) for fit in fits]
    if any(apart):
        moving = np.logical_or.reduce([fit.separated for fit in fits])
        columns = _chosen(names, moving.any(axis=1))
        columns = [name for name in columns if name != "Intercept"] or columns
        message = (
            f"{what}: {show_some(columns, 8)} all but tell who is in "
            f"{show_some(_chosen(group_names, moving.any(axis=0)), 6)}{where(apart)}; the "
            "coefficients have no finite estimate, and probabilities are cut to the limits. Use "
            "fewer or coarser covariates."
        )
        found.append((message, SeparationWarning))
    stopped = [not fit.converged for fit in fits]
    if any(stopped):
        message = (
            f"{what}: the fit did not converge{where(stopped)}. Check the scale of the covariates."
        )
        found.append((message, ConvergenceWarning))
    for message, kind in found:
        warn(message, kind)
    return [message for message, _ in found]


def _chosen(names: tuple[str, ...], chosen: NDArray[np.bool_]) -> list[str]:
    shown = names or tuple(str(j) for j in range(len(chosen)))
    return [name for name, x in zip(shown, chosen, strict=True) if x]
