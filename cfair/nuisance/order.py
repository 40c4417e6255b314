"""An order of rows that follows from what is in them, for learners that look at their order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.nuisance.request import content_keys

Array = NDArray[np.float64]


def content_order(cohort: Cohort) -> NDArray[np.intp]:
    """Order rows by content; rows alike in all but their group by the content of the groups.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    (n,) array of int
        Which row comes first, second, ...
    """
    keys, codes = content_keys(cohort), cohort.groups.codes
    totals = np.zeros(cohort.groups.n_groups, dtype=np.uint64)
    with np.errstate(over="ignore"):  # wraps around, which is meant
        np.add.at(totals, codes, keys * keys)
    sizes = cohort.groups.sizes
    rank = np.empty(len(totals), dtype=np.intp)
    rank[np.lexsort([totals, sizes])] = np.arange(len(totals))
    order: NDArray[np.intp] = np.lexsort([rank[codes], keys])
    return order


def content_numbers(cohort: Cohort) -> Array:
    """A number in [0, 1) for each row that depends only on what is in it, but its group.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    (n,) array
    """
    return np.asarray((content_keys(cohort) >> np.uint64(11)).astype(np.float64) * 2.0**-53)
