"""Several groups of one study: what is expected in each, who is compared, how N is divided."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.equivalence.design import broadcast, check_shares, expected_cells, expected_rate
from cfair.equivalence.detection import optimal_allocation
from cfair.equivalence.margins import METRIC_NAMES
from cfair.options import check_option

Array = NDArray[np.float64]
Pairs = NDArray[np.intp]


def expected_by_group(
    metric: str, prevalence: Any, sensitivity: Any, specificity: Any, groups: Any
) -> tuple[Array, Array, list[str]]:
    """Check and broadcast what describes the groups.

    Parameters
    ----------
    metric : str
        One of the eight, or "selection_rate".
    prevalence, sensitivity, specificity : float or (K,) array in (0, 1), or None
    groups : sequence of str or None
        Names.

    Returns
    -------
    rates, denominators : (K,) arrays
        The second as shares of the group.
    names : list of str

    Raises
    ------
    ValueError
        If there are fewer than two groups, a value is outside (0, 1), or one is missing.
    """
    given = {"prevalence": prevalence, "sensitivity": sensitivity, "specificity": specificity}
    values = {k: check_shares(v, k) for k, v in given.items() if v is not None or k == "prevalence"}
    if groups is not None:
        names = [str(name) for name in groups]
        values["groups"] = np.zeros(len(names))
    together = broadcast({k: np.atleast_1d(v) for k, v in values.items()})
    shape = together["prevalence"].shape
    if len(shape) != 1 or shape[0] < 2:
        raise ValueError(
            "prevalence, sensitivity or specificity must have one value per group, of two or more "
            "groups, such as sensitivity=[0.7, 0.8]."
        )
    if groups is None:
        names = [f"group {k + 1}" for k in range(shape[0])]
    elif len(names) != shape[0] or len(set(names)) < len(names):
        raise ValueError(f"groups must have one name for each of {shape[0]} groups, each once.")
    unknown = np.full(shape, np.nan)
    parts = [together.get(k, unknown) for k in given]
    rates, denominators = expected_rate(metric, expected_cells(*parts))
    if np.isnan(rates).any():
        missing = "sensitivity" if np.isnan(parts[1]).any() else "specificity"
        raise ValueError(
            f"{missing} must be given for {METRIC_NAMES.get(metric, metric)}, which depends on it."
        )
    return rates, denominators, names


def compared_pairs(reference: Any, names: list[str]) -> Pairs:
    """All pairs, or each group against one.

    Parameters
    ----------
    reference : int, str or None
        Place or name of the reference; None for all pairs.
    names : list of str

    Returns
    -------
    (m, 2) array of int
        Group and reference.

    Raises
    ------
    ValueError
        If there is no such group.

    Examples
    --------
    >>> compared_pairs("B", ["A", "B", "C"]).tolist()
    [[0, 1], [2, 1]]
    """
    K = len(names)
    if reference is None:
        return np.array(list(combinations(range(K), 2)), dtype=np.intp)
    if isinstance(reference, str) and reference in names:
        at = names.index(reference)
    elif (
        isinstance(reference, (int, np.integer))
        and not isinstance(reference, bool)
        and 0 <= reference < K
    ):
        at = int(reference)
    else:
        raise ValueError(
            f"reference must be the place or the name of a group ({', '.join(names)}), not "
            f"{reference!r}."
        )
    return np.array([(k, at) for k in range(K) if k != at], dtype=np.intp)


def allocated(
    allocation: Any, K: int, variance: Array, pairs: Pairs, distance: Array
) -> tuple[Array, str]:
    """Parts of N, and how they came about.

    Parameters
    ----------
    allocation : {"optimal", "equal"} or sequence of K shares
    K : int
    variance : (K,) array
        That one patient of each group contributes.
    pairs : (m, 2) array of int
        Those that count.
    distance : (m,) array
        How far each is from what it is tested against, above 0.

    Returns
    -------
    part : (K,) array
        Sums to 1.
    words : str

    Raises
    ------
    ValueError
        If shares do not fit.
    """
    if isinstance(allocation, str):
        check_option("allocation", allocation, ("optimal", "equal"))
        if allocation == "equal" or not len(pairs):
            return np.full(K, 1 / K), "equal"
        return optimal_allocation(variance, pairs, distance), "optimal: the least N"
    part = np.atleast_1d(check_shares(allocation, "allocation"))
    if part.shape != (K,) or abs(part.sum() - 1) > 1e-6:
        raise ValueError(
            f"allocation must have one share for each of {K} groups, with the sum 1, or be "
            f"'optimal' or 'equal', not {allocation!r}."
        )
    return part / part.sum(), "as given"
