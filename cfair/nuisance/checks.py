"""Checks of a binary model: what went wrong in its fit, and what is refused before or instead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.errors import (
    ConvergenceWarning,
    DataError,
    ModelWarning,
    RankWarning,
    SeparationWarning,
    warn,
)
from cfair.formula import Design
from cfair.frame import show_some
from cfair.nuisance.logistic import LogisticFit, far_columns

Array = NDArray[np.float64]

#: What a model is of, in sentences.
_EVENTS = {"propensity": "treatment", "outcome model": "the event"}


def binary_fit_notes(
    design: Design, fit: LogisticFit, text: str, what: str, unlike: int = 0
) -> list[str]:
    """What went wrong in a fit, as warnings and as notes.

    Parameters
    ----------
    design : Design
    fit : LogisticFit
    text : str
        The formula.
    what : {"propensity", "outcome model"}
    unlike : int, default 0
        Rows that are predicted and differ from all rows of the fit in a column that was left out.

    Returns
    -------
    list of str
    """
    notes = []
    if not fit.kept.all():
        names = show_some([n for n, k in zip(design.names, fit.kept, strict=True) if not k], 8)
        among = "" if what == "propensity" else " among the rows of the fit"
        message = (
            f"{what} {text!r}: left out as linear combinations of other columns{among}: {names}. "
            f"{_consequence(unlike)}"
        )
        warn(message, RankWarning)
        notes.append(message)
    if fit.separated.any():
        moving = [n for n, m in zip(design.names, fit.separated, strict=True) if m]
        named = [n for n in moving if n != "Intercept"] or moving
        truncated = (
            "Probabilities are truncated; check overlap, or drop or coarsen these terms."
            if what == "propensity"
            else "Drop or coarsen these terms."
        )
        message = (
            f"{what} {text!r}: {_EVENTS[what]} is separated by {show_some(named, 8)}: in some rows "
            f"it is all but certain, and the coefficients have no finite estimate. {truncated}"
        )
        warn(message, SeparationWarning)
        notes.append(message)
    elif not fit.converged:
        message = (
            f"{what} {text!r}: the fit stopped after {fit.n_iter} iterations with a score norm "
            f"of {fit.score_norm:.2g}. Check the scale of the covariates."
        )
        warn(message, ConvergenceWarning)
        notes.append(message)
    X = np.asarray(design.matrix)
    far = far_columns(X)
    if far.any():
        away = [n for n, is_far in zip(design.names, far, strict=True) if is_far]
        notes.append(far_note(away, X[:, far].mean(axis=0), X[:, far].std(axis=0), text, what))
    return notes


def far_note(names: Sequence[str], mean: Array, sd: Array | None, text: str, what: str) -> str:
    """Warn of columns whose squares leave few digits for their variation, and say so.

    Parameters
    ----------
    names : sequence of str
    mean, sd : arrays
        Of each; None where the standard deviations are not known.
    text, what : str
        The formula, and of what it is.

    Returns
    -------
    str
    """
    spread = [""] * len(names) if sd is None else [f", standard deviation {s:.2g}" for s in sd]
    said = [f"{n} (mean {m:.4g}{s})" for n, m, s in zip(names, mean, spread, strict=True)]
    message = (
        f"{what} {text!r}: {show_some(said, 4)} lies so far from 0 that standard errors, "
        "replicates and fits by batches lose digits. Centre it: subtract its mean."
    )
    warn(message, ModelWarning)
    return message


def _consequence(unlike: int) -> str:
    """What comes of leaving out columns."""
    if not unlike:
        return "Predictions do not change; their coefficients are NaN."
    rows = "1 row has" if unlike == 1 else f"{unlike:,} rows have"
    return (
        f"{rows} values of these terms that no row of the fit has, and are predicted as if "
        "the terms had no effect: no data speak for that. Coarsen the terms, or leave such rows "
        "out."
    )


def unlike_rows(
    used: NDArray[np.float64], predicted: NDArray[np.float64], kept: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Rows in which columns left out of a fit are not the combination of others they were there.

    Parameters
    ----------
    used : (m, p) array
        Rows of the fit.
    predicted : (n, p) array
        Rows that are predicted.
    kept : (p,) array of bool

    Returns
    -------
    (n,) array of bool
    """
    if kept.all():
        return np.zeros(len(predicted), dtype=bool)
    combination = np.linalg.lstsq(used[:, kept], used[:, ~kept], rcond=None)[0]
    gap = np.abs(predicted[:, ~kept] - predicted[:, kept] @ combination)
    size = np.maximum(np.abs(predicted[:, ~kept]).max(axis=0, initial=0.0), 1e-300)
    unlike: NDArray[np.bool_] = (gap > 1e-6 * size).any(axis=1)
    return unlike


def binary_fold_notes(fits: Sequence[LogisticFit]) -> tuple[str, ...]:
    """What went wrong in the fits outside each fold, in sentences.

    Parameters
    ----------
    fits : sequence of LogisticFit

    Returns
    -------
    tuple of str
    """
    separated = sum(bool(fit.separated.any()) for fit in fits)
    stopped = sum(not fit.converged and not fit.separated.any() for fit in fits)
    dropped = sum(not fit.kept.all() for fit in fits)
    said = [
        (separated, "terms separate the two values, and coefficients have no finite estimate"),
        (stopped, "the fit stopped before it converged"),
        (dropped, "terms were left out as linear combinations of others among the rows of the fit"),
    ]
    return tuple(f"{text} (outside {k} of {len(fits)} folds)" for k, text in said if k)


def check_probabilities(values: Array, what: str) -> None:
    """Check probabilities that were given instead of a model.

    Parameters
    ----------
    values : (n,) array
    what : {"propensity", "outcome model"}

    Raises
    ------
    DataError
        If some are missing or outside [0, 1].
    """
    name = "propensities" if what == "propensity" else "probabilities of the outcome"
    missing = int(np.isnan(values).sum())
    if missing:
        raise DataError(
            f"the given {name} are missing in {missing} of the {len(values)} rows used. "
            "Give a probability for each row, or drop these rows from the table."
        )
    outside = (values < 0) | (values > 1)
    if outside.any():
        event = "treatment" if what == "propensity" else "the event without treatment"
        raise DataError(
            f"the given {name} must lie in [0, 1], but {int(outside.sum())} rows range from "
            f"{values[outside].min():.4g} to {values[outside].max():.4g}. Give probabilities of "
            f"{event}, not logits or percent."
        )


def require_rows(
    cohort: Cohort, design: Design, used: NDArray[np.bool_], what: str = "propensity"
) -> None:
    """Refuse a model with more terms than rows to fit them on.

    Parameters
    ----------
    cohort : Cohort
    design : Design
    used : (n,) array of bool
        Rows of the fit.
    what : {"propensity", "outcome model"}

    Raises
    ------
    DataError
    """
    n, p = int(np.count_nonzero(used)), design.matrix.shape[1]
    if n >= p:
        return
    if what == "propensity":
        of = "" if n == cohort.n_used else " of weight above 0"
        left = f"{n} rows{of} are left"
    else:
        left = f"{n} rows to fit them on"
    raise DataError(
        f"the {what.split()[0]} formula has {p} terms but only {left} "
        f"({cohort.n_read} read, {cohort.dropped.sentence()}). Use a smaller formula."
    )
