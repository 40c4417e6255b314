"""The numbers and orders of rows, groups and labels that follow from what is in the rows alone.

Whatever is dealt to rows or groups goes by them, so that neither the order of the rows in the data
nor the names of groups change a result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort

Array = NDArray[np.float64]
Keys = NDArray[np.uint64]

_MISSING = np.uint64(0x9E3779B97F4A7C15)


# ------------------------------------------------------------------------------------ any rows


def row_keys(frame: pd.DataFrame, *arrays: NDArray[Any]) -> Keys:
    """A number for each row that depends only on the values in it.

    Parameters
    ----------
    frame : pandas.DataFrame
        Its columns in a fixed order; their names do not count. A category counts by its value,
        and a number by its value in double precision: 1, 1.0 and True are the same.
    *arrays : (n,) or (n, p) arrays
        More columns. Computed values should be exact: one that differs in its last digit, as a sum
        in another order does, gives another key.

    Returns
    -------
    (n,) array of uint64
        Equal for rows that are alike in everything.

    Examples
    --------
    >>> frame = pd.DataFrame({"sex": ["F", "M", "F"], "age": [61, 58, 61]})
    >>> keys = row_keys(frame)
    >>> keys[0] == keys[2], keys[0] == keys[1]
    (np.True_, np.False_)
    """
    columns = [_hash(frame.iloc[:, j]) for j in range(frame.shape[1])]
    for array in arrays:
        values = np.asarray(array)
        wide = values[:, None] if values.ndim == 1 else values
        columns += [_hash(pd.Series(wide[:, j])) for j in range(wide.shape[1])]
    if not columns:
        return np.zeros(len(frame), dtype=np.uint64)
    together = pd.DataFrame(dict(enumerate(columns)))
    keys: Keys = np.asarray(pd.util.hash_pandas_object(together, index=False), dtype=np.uint64)
    return keys


def _hash(column: pd.Series) -> Keys:
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        values = np.append(_hash(pd.Series(column.cat.categories)), _MISSING)
        return values[codes]  # the code of a missing value is -1: the last
    missing = column.isna().to_numpy()
    if column.dtype.kind in "biuf":
        values = pd.util.hash_array(column.to_numpy(np.float64, na_value=np.nan))
    else:
        values = pd.util.hash_array(column.to_numpy(dtype=object))
    return np.where(missing, _MISSING, values)


def mixed_keys(keys: Keys) -> Keys:
    """Spread keys over all 64 bits (splitmix64), so that sums of them tell sets of rows apart.

    Parameters
    ----------
    keys : (n,) array of uint64

    Returns
    -------
    (n,) array of uint64
    """
    z = keys + _MISSING
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def label_totals(numbers: Keys, codes: NDArray[np.integer], n_labels: int) -> Keys:
    """A number for each label that depends on its rows alone: the sum of theirs.

    Parameters
    ----------
    numbers : (n,) array of uint64
    codes : (n,) array of int
        Label of each row, 0..n_labels-1.
    n_labels : int

    Returns
    -------
    (n_labels,) array of uint64
    """
    totals = np.zeros(n_labels, dtype=np.uint64)
    np.add.at(totals, codes, numbers)  # wraps around, which is meant
    return totals


def labels_by_content(labels: Any, mixed: Keys) -> NDArray[np.intp]:
    """Number labels by the rows they have, whatever they are called and in whatever order.

    Parameters
    ----------
    labels : (n,) array
    mixed : (n,) array of uint64
        From `mixed_keys`.

    Returns
    -------
    (n,) array of int
    """
    codes, uniques = pd.factorize(np.asarray(labels), use_na_sentinel=False)
    content = label_totals(mixed, codes, len(uniques))
    rank = np.empty(len(uniques), dtype=np.intp)
    rank[np.argsort(content, kind="stable")] = np.arange(len(uniques))
    return rank[codes]


# ----------------------------------------------------------------------------- rows of a cohort


def content_keys(cohort: Cohort) -> NDArray[np.uint64]:
    """What tells the rows of a cohort apart: everything in them but the names of their groups.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    (n,) array of uint64
    """
    columns = cohort.data.drop(columns=list(cohort.groups.attributes))
    # weights by their rank: scaled to mean 1, their last digit depends on the order of the rows
    ranks = None if cohort.weights is None else np.unique(cohort.weights, return_inverse=True)[1]
    arrays = [a for a in (cohort.score, cohort.d, ranks) if a is not None]
    return row_keys(columns[sorted(columns.columns, key=str)], cohort.y, cohort.s, *arrays)


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


def content_order(cohort: Cohort) -> NDArray[np.intp]:
    """Order rows by content, for learners that look at their order.

    Rows alike in all but their group come by the content of the groups.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    (n,) array of int
        Which row comes first, second, ...
    """
    keys, codes = content_keys(cohort), cohort.groups.codes
    totals = label_totals(keys * keys, codes, cohort.groups.n_groups)
    rank = np.empty(len(totals), dtype=np.intp)
    rank[np.lexsort([totals, cohort.groups.sizes])] = np.arange(len(totals))
    order: NDArray[np.intp] = np.lexsort([rank[codes], keys])
    return order


def group_totals(cohort: Cohort) -> Keys:
    """A number for each group that depends on its rows alone.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    (K,) array of uint64
    """
    return label_totals(content_keys(cohort), cohort.groups.codes, cohort.groups.n_groups)
