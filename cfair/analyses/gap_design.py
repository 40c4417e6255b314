"""Planning a study that is to find a gap in a rate beyond a tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from cfair.equivalence.design import (
    RULE_OF_FIVE,
    check_alpha,
    check_numbers,
    check_rows,
    check_shares,
)
from cfair.equivalence.detection import (
    gap_detection,
    gap_total,
    pair_variance,
    patient_variance,
)
from cfair.equivalence.margins import METRIC_NAMES, METRICS, check_metric
from cfair.equivalence.several import allocated, compared_pairs, expected_by_group
from cfair.estimators.confusion import LABELS
from cfair.frame import show_some
from cfair.options import check_option
from cfair.results.gap_design import GapDesign
from cfair.results.planning import POWER

#: A gap that exceeds its tolerance by less is none: it would take more than 1e12 patients.
_LEAST_GAP = 1e-6


def gap_sample_size(
    metric: str,
    *,
    prevalence: Any,
    sensitivity: Any = None,
    specificity: Any = None,
    tolerance: float = 0.0,
    allocation: str | Sequence[float] = "optimal",
    reference: int | str | None = None,
    groups: Sequence[str] | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
) -> GapDesign:
    """Number of patients needed to detect that a rate differs by more than a tolerance.

    Parameters
    ----------
    metric : str
        One of the eight of `equivalence_power`, or "selection_rate".
    prevalence, sensitivity, specificity : float, or sequence of one float per group, in (0, 1)
        What is expected in each group; a single number is shared. Only what the metric depends on
        is needed.
    tolerance : float, default 0
        Gap that would be accepted, at least 0.
    allocation : {"optimal", "equal"}, or sequence of one share per group, default "optimal"
        How the N patients are divided. The optimum has the least N: of two groups each gets a part
        proportional to its standard deviation. The shares of the population are what a sample that
        is not stratified gives.
    reference : int or str, optional
        Place or name of the group that the others are compared with; all pairs by default.
    groups : sequence of str, optional
        Names of the groups.
    alpha : float in (0, 0.5), default 0.05
        Two-sided level; with several pairs divided by their number.
    power : float in (0, 1), default 0.8
        For each gap that exceeds the tolerance.

    Returns
    -------
    GapDesign
        ``n``, and ``groups`` and ``frame`` with what each group and each pair needs. Patients are
        whole and belong to a group: the formula's N is divided, each group rounded up, and ``n`` is
        their sum, up to one patient a group more than the formula has.

    Raises
    ------
    ValueError
        If a value is outside its range, or the numbers of values by group differ.

    References
    ----------
    Singh H, Xia F, Kim MO, Pirracchio R, Chunara R, Feng J (2023). A brief tutorial on sample size
    calculations for fairness audits. arXiv:2312.04745.

    Examples
    --------
    >>> design = gap_sample_size("sensitivity", sensitivity=[0.683460, 0.789375],
    ...                          prevalence=[0.3478, 0.4404])
    >>> design.n
    1379
    """
    return _design(
        metric, prevalence, sensitivity, specificity, tolerance, allocation, reference, groups,
        alpha, power, None,
    )  # fmt: skip


def gap_power(
    metric: str,
    *,
    n: int,
    prevalence: Any,
    sensitivity: Any = None,
    specificity: Any = None,
    tolerance: float = 0.0,
    allocation: str | Sequence[float] = "optimal",
    reference: int | str | None = None,
    groups: Sequence[str] | None = None,
    alpha: float = 0.05,
) -> GapDesign:
    """Power to detect that a rate differs by more than a tolerance, with N patients.

    Parameters
    ----------
    metric : str
        See `gap_sample_size`, as the others.
    n : int
        Patients in all groups together.
    prevalence, sensitivity, specificity : float, or sequence of one float per group, in (0, 1)
    tolerance : float, default 0
    allocation : {"optimal", "equal"}, or sequence of one share per group, default "optimal"
    reference : int or str, optional
    groups : sequence of str, optional
    alpha : float in (0, 0.5), default 0.05

    Returns
    -------
    GapDesign
        ``frame`` has the power for each pair.

    Raises
    ------
    ValueError
        As `gap_sample_size`, and if N is not whole.

    References
    ----------
    Singh H et al. (2023). See `gap_sample_size`.

    Examples
    --------
    >>> design = gap_power("sensitivity", n=1400, sensitivity=[0.683460, 0.789375],
    ...                    prevalence=[0.3478, 0.4404], allocation="equal")
    >>> design.frame["power"].round(3).tolist()
    [0.8]
    """
    if np.ndim(n):
        raise ValueError(f"n must be one number, not {np.size(n)}.")
    return _design(
        metric, prevalence, sensitivity, specificity, tolerance, allocation, reference, groups,
        alpha, np.nan, int(check_rows(n)),
    )  # fmt: skip


def _design(
    metric: str,
    prevalence: Any,
    sensitivity: Any,
    specificity: Any,
    tolerance: Any,
    allocation: Any,
    reference: Any,
    groups: Any,
    alpha: Any,
    power: float,
    n: int | None,
) -> GapDesign:
    """Check, allocate, and ask each pair."""
    if metric != "selection_rate":
        metric = _named(metric)
    for name, value in (("alpha", alpha), ("tolerance", tolerance), ("power", power)):
        if np.ndim(value):
            raise ValueError(f"{name} must be one number, not {np.size(value)}.")
    alpha = float(check_alpha(alpha))
    tolerance = float(check_numbers(tolerance, "tolerance"))
    if n is None:
        power = float(check_shares(power, "power"))
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance must be at least 0 and below 1, not {tolerance:g}.")
    rates, denominators, names = expected_by_group(
        metric, prevalence, sensitivity, specificity, groups
    )
    K = len(names)
    pairs = compared_pairs(reference, names)
    gap = np.abs(rates[pairs[:, 0]] - rates[pairs[:, 1]])
    beyond = gap - tolerance
    there = beyond > _LEAST_GAP
    level = alpha / max(len(pairs), 1)
    variance = patient_variance(rates, denominators)
    part, words = allocated(allocation, K, variance, pairs[there], beyond[there])
    v = pair_variance(variance, part, pairs)
    wanted = POWER if np.isnan(power) else power
    # a patient is whole, and belongs to one group: N is the sum over groups, each rounded up
    total = gap_total(beyond[there], v[there], level, wanted)
    whole = np.maximum(np.ceil(np.outer(total, part) - 1e-9), 0.0)
    needed = np.full(len(pairs), np.nan)
    needed[there] = whole.sum(axis=1)
    patients = np.full(K, np.nan) if n is None else n * part
    if n is None and there.any():
        patients = whole.max(axis=0)
        n = int(patients.sum())
    at_n = np.full(len(pairs), np.nan) if n is None else gap_detection(beyond, v, n, level)
    note = np.where(
        there, "", f"not beyond the tolerance (by {_LEAST_GAP:g} or more): nothing to detect"
    )
    label = LABELS[metric][0] if metric == "selection_rate" else METRIC_NAMES[metric]
    frame = pd.DataFrame(
        {
            "group": [names[i] for i in pairs[:, 0]],
            "reference": [names[j] for j in pairs[:, 1]],
            "gap": gap,
            "tolerance": tolerance,
            "sd": np.sqrt(v),
            "n_needed": pd.array(needed, dtype="Int64"),
            "power": at_n,
            "note": note,
        }
    )
    by_group = pd.DataFrame(
        {
            "group": names,
            "rate": rates,
            "denominator": denominators,
            "allocation": part,
            "n": patients,
            "size": patients * denominators,
        }
    )
    notes = ["No gap exceeds the tolerance: there is nothing to detect."] * (not there.any())
    cell = patients * denominators * np.minimum(rates, 1 - rates)
    out = [name for name, f in zip(names, part, strict=True) if f == 0]
    if out:
        notes.append(
            f"No patients of {show_some(out)}: no gap of theirs exceeds the tolerance, so that the "
            "least N has none of them. allocation='equal' keeps them."
        )
    few = [
        f"{name} ({c:.1f})"
        for name, c in zip(names, cell, strict=True)
        if c < RULE_OF_FIVE and name not in out
    ]
    if few:
        notes.append(
            f"A cell expects fewer than {RULE_OF_FIVE}, so that the power is not to be relied on: "
            f"{show_some(few)}."
        )
    return GapDesign(by_group, frame, label, n, power, tolerance, alpha, level, words, tuple(notes))


def _named(metric: Any) -> str:
    try:
        return check_metric(metric)
    except ValueError:
        check_option("metric", metric, (*METRICS, "sensitivity", "specificity", "selection_rate"))
        raise
