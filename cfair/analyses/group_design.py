"""Planning a study that is to show that several groups are all equivalent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.equivalence.design import RULE_OF_FIVE, check_alpha, check_rows, check_shares
from cfair.equivalence.joint import JointPower
from cfair.equivalence.margins import (
    CONTRASTS,
    check_margin,
    check_metric,
    contrast_value,
    scaled,
    unit_variance,
)
from cfair.equivalence.power import wald_tests
from cfair.equivalence.several import allocated, compared_pairs, expected_by_group
from cfair.frame import show_some
from cfair.options import check_option
from cfair.results.group_design import EquivalenceDesign
from cfair.results.report import plural

Array = NDArray[np.float64]


def equivalence_groups(
    metric: str,
    *,
    prevalence: Any,
    sensitivity: Any = None,
    specificity: Any = None,
    n: int | None = None,
    margin: tuple[float, float] | None = None,
    contrast: str = "ratio",
    allocation: str | Sequence[float] = "equal",
    reference: int | str | None = None,
    groups: Sequence[str] | int | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
) -> EquivalenceDesign:
    """Patients needed to show that a rate is equivalent in all of several groups.

    All groups are claimed to be equivalent if every test rejects at alpha; that needs no correction
    of alpha, but more patients than the hardest pair alone.

    Parameters
    ----------
    metric : str
        One of the eight of `equivalence_power`.
    prevalence, sensitivity, specificity : float, or sequence of one float per group, in (0, 1)
        What is expected in each group; a single number is shared. Only what the metric depends on
        is needed.
    n : int, optional
        Patients in all groups together. Without it the N that reaches the power is found.
    margin : (low, high), optional
        See `equivalence_power`.
    contrast : {"ratio", "odds_ratio", "difference"}, default "ratio"
    allocation : {"equal", "optimal"}, or sequence of one share per group, default "equal"
        How the N patients are divided. The shares of the population are what a sample that is not
        stratified gives. "optimal" has the least N for the pairs taken one by one.
    reference : int or str, optional
        Place or name of the group that the others are compared with; all pairs by default.
    groups : sequence of str, or int, optional
        Names of the groups, or how many there are, where nothing else says it.
    alpha : float in (0, 0.5), default 0.05
        Of each one-sided test.
    power : float in (0, 1), default 0.8
        That all pairs are found equivalent.

    Returns
    -------
    EquivalenceDesign
        ``n``; ``joint_power``; ``groups`` and ``frame`` by group and by pair; ``plot()``.

    Raises
    ------
    ValueError
        If a value is outside its range, or the numbers of values by group differ.

    See Also
    --------
    equivalence_sample_size : two groups.

    Notes
    -----
    The tests are Wald's. Where a cell expects only a few dozen the score test, which is used on
    data that are counts, needs some percent more: see ``method`` of `equivalence_sample_size`.

    References
    ----------
    Berger RL, Hsu JC (1996). Bioequivalence trials, intersection-union tests and equivalence
    confidence sets. Statistical Science 11, 283-319.

    Examples
    --------
    Two groups are as `equivalence_sample_size` has them; four need far more.

    >>> equivalence_groups("sensitivity", prevalence=0.25, sensitivity=0.75,
    ...                    allocation=[0.25, 0.75]).n
    1224
    >>> equivalence_groups("sensitivity", prevalence=0.25, sensitivity=0.75, groups=4).n
    2797
    """
    metric = check_metric(metric)
    check_option("contrast", contrast, CONTRASTS)
    for name, one in (("alpha", alpha), ("power", power)):
        if np.ndim(one):
            raise ValueError(f"{name} must be one number, not {np.size(one)}.")
    alpha, wanted = float(check_alpha(alpha)), float(check_shares(power, "power"))
    if n is not None:
        if np.ndim(n):
            raise ValueError(f"n must be one number, not {np.size(n)}.")
        n = int(check_rows(n))
    margin = check_margin(margin, contrast)
    low, high = float(margin[0]), float(margin[1])
    names = groups
    if isinstance(groups, (int, np.integer)) and not isinstance(groups, bool):
        names = [f"group {k + 1}" for k in range(groups)]
    elif groups is None and not isinstance(allocation, str):
        names = [f"group {k + 1}" for k in range(np.size(allocation))]
    rates, denominators, labels = expected_by_group(
        metric, prevalence, sensitivity, specificity, names
    )
    pairs = compared_pairs(reference, labels)
    value = contrast_value(rates[pairs[:, 0]], rates[pairs[:, 1]], contrast)
    delta = scaled(value, contrast)
    ends = [scaled(end, contrast) for end in (low, high)]
    nearer = np.minimum(ends[1] - delta, delta - ends[0])
    inside = nearer > 0
    variance = unit_variance(rates, contrast) / denominators
    part, words = allocated(allocation, len(labels), variance, pairs[inside], nearer[inside])
    if (part == 0).any():  # no test of the group can be won: it still has to be in the study
        part, words = np.full(len(labels), 1 / len(labels)), "equal"
    sd = np.sqrt(variance / part)
    joint = JointPower(delta, float(ends[0]), float(ends[1]), sd, pairs, alpha)
    pair_variance = (sd[pairs] ** 2).sum(axis=1)
    tests = wald_tests(delta, pair_variance, *ends)
    alone = tests.sample_size(wanted, alpha)
    needed = joint.sample_size(wanted)
    at = n if n is not None else (None if np.isnan(needed) else int(needed))
    each = np.full(len(pairs), np.nan)
    if at is not None:
        each = tests.power(at, alpha)
    frame = pd.DataFrame(
        {
            "group": [labels[i] for i in pairs[:, 0]],
            "reference": [labels[j] for j in pairs[:, 1]],
            "contrast": contrast,
            "value": value,
            "margin_low": low,
            "margin_high": high,
            "n_needed": pd.array(alone, dtype="Float64").astype("Int64"),
            "power": each,
            "note": np.where(inside, "", "not inside the margin: cannot be shown with any N"),
        }
    )
    # a patient is whole, and belongs to one group
    patients = np.full(len(labels), np.nan) if at is None else np.ceil(at * part - 1e-9)
    least = patients * denominators * np.minimum(rates, 1 - rates)
    by_group = pd.DataFrame(
        {
            "group": labels,
            "rate": rates,
            "denominator": denominators,
            "allocation": part,
            "n": patients,
            "size": patients * denominators,
            "least_cell": least,
        }
    )
    notes = []
    few = [f"{name} ({c:.1f})" for name, c in zip(labels, least, strict=True) if c < RULE_OF_FIVE]
    if few:
        notes.append(
            f"A cell expects fewer than {RULE_OF_FIVE}, so that the power is not to be relied on: "
            f"{show_some(few)}."
        )
    if not inside.all():
        notes.append(
            f"Not inside the margin: {int((~inside).sum()):,} of {plural(len(pairs), 'pair')}. No "
            "number of patients shows that all groups are equivalent."
        )
    return EquivalenceDesign(
        by_group, frame, metric, contrast, at, None if np.isnan(needed) else int(needed),
        wanted, alpha, words, joint, tuple(notes),
    )  # fmt: skip
