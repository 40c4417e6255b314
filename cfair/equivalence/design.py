"""Who is expected where: rows and cells behind each metric, from prevalence and accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from cfair.equivalence.margins import METRIC_NAMES, contrast_applied
from cfair.estimators.confusion import RATE_CELLS
from cfair.frame import show_some

Array = NDArray[np.float64]

#: Expected counts below this make a normal approximation doubtful.
RULE_OF_FIVE = 5
#: What the cells are called, by outcome and prediction.
CELL_NAMES = (("true negatives", "false positives"), ("false negatives", "true positives"))


def expected_cells(prevalence: Any, sensitivity: Any, specificity: Any) -> Array:
    """Shares of a group that are true negatives, false positives, false negatives, true positives.

    Parameters
    ----------
    prevalence, sensitivity, specificity : (...) arrays
        NaN where unknown; the cells that need it are NaN then.

    Returns
    -------
    (2, 2, ...) array
        By outcome and prediction.

    Examples
    --------
    >>> expected_cells(0.25, 0.8, 0.6).round(2).tolist()
    [[0.45, 0.3], [0.05, 0.2]]
    """
    prev, se, sp = (np.asarray(v, float) for v in (prevalence, sensitivity, specificity))
    cells = [(1 - prev) * sp, (1 - prev) * (1 - sp), prev * (1 - se), prev * se]
    together = np.stack(np.broadcast_arrays(*cells))
    return together.reshape(2, 2, *together.shape[1:])


def expected_rate(metric: str, cells: Array) -> tuple[Array, Array]:
    """A rate, and the share of the group that is in its denominator.

    Parameters
    ----------
    metric : str
        A rate of `cfair.estimators.confusion`.
    cells : (2, 2, ...) array
        See `expected_cells`.

    Returns
    -------
    rate, denominator : (...) arrays

    Examples
    --------
    >>> rate, denominator = expected_rate("ppv", expected_cells(0.25, 0.8, 0.6))
    >>> round(float(rate), 3), round(float(denominator), 3)
    (0.4, 0.5)
    """
    rate = RATE_CELLS[metric]
    # Only the cells that count are added: the others may be unknown.
    top, bottom = (
        np.sum([cells[cell] for cell in which], axis=0)
        for which in (rate.numerator, rate.denominator)
    )
    return top / bottom, bottom


def prevalence_range(
    metric: str, rate: Any, prevalence: Any, low: Any, high: Any, contrast: str
) -> tuple[Array, Array]:
    """Prevalences of a group at which a predictive value stays inside a margin.

    With the sensitivity and specificity of the reference. The odds of PPV and of FOR are those of
    the prevalence times a likelihood ratio, the odds of NPV and of FDR the inverse of such a
    product; so prevalence alone moves all four, whatever the model.

    Parameters
    ----------
    metric : {"ppv", "npv", "fdr", "for"}
    rate : (...) array
        Of the reference.
    prevalence : (...) array
        Of the reference.
    low, high : (...) arrays
        Margin.
    contrast : {"ratio", "odds_ratio", "difference"}

    Returns
    -------
    least, most : (...) arrays

    References
    ----------
    Chouldechova A (2017). Fair prediction with disparate impact: a study of bias in recidivism
    prediction instruments. Big Data 5, 153-163.

    Examples
    --------
    >>> least, most = prevalence_range("ppv", 0.5, 0.25, 0.8, 1.25, "ratio")
    >>> round(float(least), 3), round(float(most), 3)
    (0.182, 0.357)
    """
    ends = np.clip([contrast_applied(rate, end, contrast) for end in (low, high)], 0.0, 1.0)
    sign = 1.0 if metric in ("ppv", "for") else -1.0
    moved = expit(logit(prevalence) + sign * (logit(ends) - logit(rate)))
    return moved.min(axis=0), moved.max(axis=0)


@dataclass(frozen=True)
class Scenario:
    """Two groups of a population: one, as a rule disadvantaged, and the reference.

    Attributes
    ----------
    share : (...) array
        Of the group in the population; the reference is the rest.
    prevalence, sensitivity, specificity : (2, ...) arrays
        Of the group and of the reference; NaN where unknown.
    """

    share: Array
    prevalence: Array
    sensitivity: Array
    specificity: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the scenarios."""
        return self.share.shape

    @property
    def shares(self) -> Array:
        """(2, ...): shares of the group and of the reference."""
        return np.stack([self.share, 1 - self.share])

    def rates(self, metric: str) -> tuple[Array, Array]:
        """A metric in both groups, and the rows behind it as a share of the whole population.

        Parameters
        ----------
        metric : str

        Returns
        -------
        rates, rows : (2, ...) arrays

        Raises
        ------
        ValueError
            If the metric depends on a sensitivity or specificity that was not given.
        """
        cells = expected_cells(self.prevalence, self.sensitivity, self.specificity)
        rates, denominators = expected_rate(metric, cells)
        if np.isnan(rates).any():
            missing = "sensitivity" if np.isnan(self.sensitivity).any() else "specificity"
            raise ValueError(
                f"{missing} must be given for {METRIC_NAMES.get(metric, metric)}, which depends on "
                "it."
            )
        return rates, self.shares * denominators

    def least_cell(self, metric: str) -> tuple[Array, NDArray[np.str_]]:
        """The smallest cell behind a metric in either group, as a share of the population.

        Parameters
        ----------
        metric : str

        Returns
        -------
        cell : (...) array
        name : (...) array of str
            Which it is, such as "false positives in the group".
        """
        cells = expected_cells(self.prevalence, self.sensitivity, self.specificity)
        which = RATE_CELLS[metric].denominator
        # (cells x groups, ...)
        found = np.concatenate([self.shares * cells[cell] for cell in which])
        names = np.array(
            [
                f"{CELL_NAMES[y][s]} in the {group}"
                for y, s in which
                for group in ("group", "reference")
            ]
        )
        return found.min(axis=0), names[found.argmin(axis=0)]


def scenario(
    share: Any,
    prevalence: Any,
    sensitivity: Any = None,
    specificity: Any = None,
    reference_prevalence: Any = None,
    reference_sensitivity: Any = None,
    reference_specificity: Any = None,
) -> Scenario:
    """Check and broadcast what describes the two groups.

    Parameters
    ----------
    share, prevalence : float or array in (0, 1)
    sensitivity, specificity : float or array in (0, 1), optional
    reference_prevalence, reference_sensitivity, reference_specificity : the same, optional
        Those of the group by default.

    Returns
    -------
    Scenario

    Raises
    ------
    ValueError
        If a value is outside (0, 1), or shapes do not fit.
    """
    given = {
        "share": share,
        "prevalence": prevalence,
        "sensitivity": sensitivity,
        "specificity": specificity,
        "reference_prevalence": reference_prevalence,
        "reference_sensitivity": reference_sensitivity,
        "reference_specificity": reference_specificity,
    }
    checked = {
        name: check_shares(value, name)
        for name, value in given.items()
        if value is not None or name in ("share", "prevalence")
    }
    for name in ("sensitivity", "specificity"):
        if name not in checked and f"reference_{name}" in checked:
            raise ValueError(
                f"reference_{name} was given without {name}. Give both, or {name} alone if the two "
                "groups share it."
            )
    own = broadcast({name: checked.get(name, np.array(np.nan)) for name in given})
    for name in ("prevalence", "sensitivity", "specificity"):
        if f"reference_{name}" not in checked:
            own[f"reference_{name}"] = own[name]
    pairs = (
        np.stack([own[name], own[f"reference_{name}"]])
        for name in ("prevalence", "sensitivity", "specificity")
    )
    return Scenario(own["share"], *pairs)


def check_shares(value: Any, name: str) -> Array:
    """Check numbers strictly between 0 and 1.

    Parameters
    ----------
    value : float or array
    name : str
        Of the argument, for the message.

    Returns
    -------
    array of float

    Raises
    ------
    ValueError
        If one is not inside (0, 1), or no number.

    Examples
    --------
    >>> check_shares([0.1, 0.5], "prevalence")
    array([0.1, 0.5])
    """
    array = check_numbers(value, name)
    wrong = array[~((array > 0) & (array < 1))]
    if wrong.size:
        percent = np.all((wrong >= 1) & (wrong <= 100)) and wrong.max() >= 2
        at_edge = np.isin(wrong, (0, 1)).all()
        hint = " Percent? Divide by 100." if percent else ""
        if at_edge:
            what = "no study has it" if name == "power" else "there is no variance to plan with"
            hint = f" At 0 and 1 {what}: give 0.999, say."
        raise ValueError(f"{name} must lie between 0 and 1, not {_shown(wrong, array)}.{hint}")
    return array


def check_alpha(value: Any, name: str = "alpha") -> Array:
    """Check the level of a one-sided test, below one half.

    Parameters
    ----------
    value : float or array
    name : str, default "alpha"

    Returns
    -------
    array of float

    Raises
    ------
    ValueError
        If one is not inside (0, 0.5).
    """
    array = check_numbers(value, name)
    wrong = array[~((array > 0) & (array < 0.5))]
    if wrong.size:
        raise ValueError(
            f"{name} must lie between 0 and 0.5, such as 0.05, not {_shown(wrong, array)}."
        )
    return array


def check_rows(value: Any, name: str = "n") -> Array:
    """Check numbers of rows: whole, at least 2.

    Parameters
    ----------
    value : int or array
    name : str, default "n"

    Returns
    -------
    array of float

    Raises
    ------
    ValueError
        If one is not whole or below 2.
    """
    array = check_numbers(value, name)
    wrong = array[~((array >= 2) & (array == np.floor(array)) & (array < 2.0**53))]
    if wrong.size:
        raise ValueError(
            f"{name} must be a whole number of patients, at least 2, not {_shown(wrong, array)}."
        )
    return array


def check_numbers(value: Any, name: str) -> Array:
    """Check that a value is a number or an array of numbers.

    Parameters
    ----------
    value : float or array
    name : str

    Returns
    -------
    array of float

    Raises
    ------
    ValueError
        If it is empty, or holds something else.
    """
    try:
        raw = np.asarray(value)
        array = raw.astype(float)
    except (TypeError, ValueError):
        raw, array = np.array(None), np.empty(0)
    if array.size == 0 or raw.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be a number or an array of numbers, not {value!r}.")
    return array


def broadcast(arrays: dict[str, Array]) -> dict[str, Array]:
    """Bring arrays to one shape.

    Parameters
    ----------
    arrays : dict of str to array

    Returns
    -------
    dict of str to array

    Raises
    ------
    ValueError
        If the shapes do not fit, naming them.

    Examples
    --------
    >>> broadcast({"n": np.array([1.0, 2.0]), "share": np.array(0.5)})["share"]
    array([0.5, 0.5])
    """
    try:
        return dict(zip(arrays, np.broadcast_arrays(*arrays.values()), strict=True))
    except ValueError:
        shapes = ", ".join(f"{name} {a.shape}" for name, a in arrays.items() if a.ndim)
        raise ValueError(
            f"arrays must have shapes that broadcast together, not {shapes}. For every combination "
            "of two arrays give one as a column, x[:, None]."
        ) from None


def _shown(wrong: Array, array: Array) -> str:
    """The first few wrong values, and of arrays how many there are."""
    share = f" ({wrong.size} of {array.size} values)" if array.size > 1 else ""
    return show_some([f"{v:g}" for v in wrong]) + share
