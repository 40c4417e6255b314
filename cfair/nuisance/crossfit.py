"""Folds for cross-fitting: which rows a model that predicts a row has not seen.

Folds are dealt to rows by what is in them, so that neither the order of the rows in the data nor
the names of groups or clusters changes a prediction.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.frame import show_some

Array = NDArray[np.float64]
Integers = NDArray[np.integer]
Keys = NDArray[np.uint64]

_PURPOSE = 101  # keeps folds independent of permutations and bootstraps under the same seed
_MISSING = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False, repr=False)
class Folds:
    """A partition of the rows; a row is predicted by a model of the rows of the other folds.

    Attributes
    ----------
    codes : (n,) array of int
        Fold of each row, 0..n_folds-1.
    n_folds : int
    drawn : bool
        Whether the folds were drawn at random; otherwise they were given.
    labels : tuple of str
        Names of given folds, for messages; drawn folds are numbered from 1.
    note : str
        What they were balanced by.

    Examples
    --------
    >>> import numpy as np
    >>> folds = Folds(np.array([0, 1, 0]), 2, drawn=False)
    >>> folds.train(0), folds.rows(0)
    (array([False,  True, False]), array([0, 2]))
    """

    codes: NDArray[np.intp]
    n_folds: int
    drawn: bool
    labels: tuple[str, ...] = ()
    note: str = ""

    def __repr__(self) -> str:
        sizes = show_some([f"{size:,}" for size in self.sizes], 10)
        note = f", {self.note}" if self.note else ""
        return f"Folds: {self.n_folds} {'drawn' if self.drawn else 'given'}{note}; rows {sizes}"

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows of each fold."""
        return np.bincount(self.codes, minlength=self.n_folds)

    def train(self, fold: int) -> NDArray[np.bool_]:
        """Mask of the rows of all other folds, on which a model is fitted."""
        mask: NDArray[np.bool_] = self.codes != fold
        return mask

    def rows(self, fold: int) -> NDArray[np.intp]:
        """Positions of the rows of a fold, which that model predicts."""
        return np.flatnonzero(self.codes == fold)

    def name(self, fold: int) -> str:
        """What a message calls a fold."""
        return f"fold {self.labels[fold] if self.labels else fold + 1}"


# ------------------------------------------------------------------------------ making the folds


def check_folds(value: Any, n: int) -> int:
    """Check a number of folds.

    Parameters
    ----------
    value : int
    n : int
        Rows to be put into folds.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If it is not a whole number from 2 to `n`.
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < 2:
        raise ValueError(f"folds must be a whole number of at least 2, such as 5, not {value!r}.")
    if value > n:
        raise ValueError(
            f"folds={value} is more than the {n:,} rows used. Use at most {n:,}; 5 or 10 is usual."
        )
    return int(value)


def draw_folds(
    n_folds: int,
    keys: Keys,
    strata: Any = None,
    cluster: Any = None,
    seed: int = 0,
) -> Folds:
    """Deal the rows to folds at random.

    Parameters
    ----------
    n_folds : int
    keys : (n,) array of uint64
        What tells rows apart, from `row_keys`. Rows with equal keys are exchangeable.
    strata : (n,) array, optional
        Labels, in any form. The rows of each are spread over the folds as evenly as possible.
    cluster : (n,) array, optional
        Labels, in any form. The rows of a cluster stay in one fold, and `strata` are not looked at;
        the folds' note says so.
    seed : int, default 0

    Returns
    -------
    Folds
        All of the same size, give or take one row (with clusters: give or take the largest
        cluster). The sizes within a stratum differ by one at most, too.

    Raises
    ------
    ValueError
        If `n_folds` is not a whole number from 2 to n.
    DataError
        If there are fewer clusters than folds.

    Examples
    --------
    >>> import numpy as np
    >>> keys = np.arange(10, dtype=np.uint64)
    >>> sex = np.array(list("FFFFFFMMMM"))
    >>> folds = draw_folds(2, keys, strata=sex, seed=1)
    >>> np.bincount(folds.codes[sex == "F"]), np.bincount(folds.codes[sex == "M"])
    (array([3, 3]), array([2, 2]))
    """
    n = len(keys)
    n_folds = check_folds(n_folds, n)
    mixed = _mix(np.asarray(keys, dtype=np.uint64))
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_PURPOSE,)))
    if cluster is not None:
        codes = _deal_clusters(n_folds, _by_content(cluster, mixed), rng)
        note = "clusters kept whole" + (", not stratified" if strata is not None else "")
        return Folds(codes, n_folds, drawn=True, note=note)
    stratum = np.zeros(n, dtype=np.intp) if strata is None else _by_content(strata, mixed)
    order = np.lexsort([mixed, stratum])
    shuffled = order[np.lexsort([rng.random(n), stratum[order]])]
    codes = np.empty(n, dtype=np.intp)
    # Dealing goes on from one stratum to the next, so that the folds are balanced over all as well.
    codes[shuffled] = np.arange(n) % n_folds
    return Folds(codes, n_folds, drawn=True, note="" if strata is None else "stratified")


def folds_given(values: Any) -> Folds:
    """Folds from a label for each row.

    Parameters
    ----------
    values : (n,) array
        Numbers or text; equal labels are one fold.

    Returns
    -------
    Folds

    Raises
    ------
    DataError
        If labels are missing, or all the same.
    """
    if np.ndim(values) != 1:
        raise DataError(
            f"the given folds have {np.ndim(values)} dimensions. Give one label for each row."
        )
    codes, labels = pd.factorize(np.asarray(values, dtype=object), sort=True)
    missing = int(np.count_nonzero(codes < 0))
    if missing:
        raise DataError(
            f"the given folds are missing in {missing} of {len(codes)} rows. Give each row a "
            "label, or leave these rows out."
        )
    if len(labels) < 2:
        only = f"are all {labels[0]!r}" if len(labels) else "have no rows"
        raise DataError(
            f"the given folds {only}. At least 2 different labels are needed, so that there are "
            "other rows to fit on."
        )
    return Folds(codes.astype(np.intp), len(labels), drawn=False, labels=tuple(map(repr, labels)))


def _by_content(labels: Any, mixed: Keys) -> NDArray[np.intp]:
    """Number labels by the rows they have, whatever they are called and in whatever order."""
    codes, uniques = pd.factorize(np.asarray(labels), use_na_sentinel=False)
    content = np.zeros(len(uniques), dtype=np.uint64)
    np.add.at(content, codes, mixed)  # wraps around, which is meant
    rank = np.empty(len(uniques), dtype=np.intp)
    rank[np.argsort(content, kind="stable")] = np.arange(len(uniques))
    return rank[codes]


def _deal_clusters(
    n_folds: int, cluster: NDArray[np.intp], rng: np.random.Generator
) -> NDArray[np.intp]:
    """Give clusters, in random order, to the fold that has the fewest rows so far."""
    sizes = np.bincount(cluster)
    if len(sizes) == 1:
        raise DataError(
            "all rows are of one cluster, which cannot be cut into folds. Leave cluster out, or "
            "give the folds."
        )
    if len(sizes) < n_folds:
        raise DataError(
            f"there are {len(sizes)} clusters for {n_folds} folds, and a cluster stays in one "
            f"fold. Use at most {len(sizes)} folds."
        )
    fold_of = np.empty(len(sizes), dtype=np.intp)
    waiting = [(0, fold) for fold in range(n_folds)]
    for c in rng.permutation(len(sizes)):
        rows, fold = waiting[0]
        fold_of[c] = fold
        heapq.heapreplace(waiting, (rows + int(sizes[c]), fold))
    return fold_of[cluster]


# -------------------------------------------------------------------------- what identifies a row


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


def _mix(keys: Keys) -> Keys:
    """Spread keys over all 64 bits (splitmix64), so that sums of them tell sets of rows apart."""
    z = keys + _MISSING
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


# ------------------------------------------------------------------------ what a training set has


def require_training_classes(
    folds: Folds,
    target: Integers,
    n_classes: int,
    used: NDArray[np.bool_] | None = None,
    what: str = "outcome model",
    labels: Sequence[str] | None = None,
) -> None:
    """Check that the rows outside each fold have every class that a model is to predict.

    Parameters
    ----------
    folds : Folds
    target : (n,) array of int
        Class codes 0..n_classes-1.
    n_classes : int
    used : (n,) bool array, optional
        Rows that may be fitted on; all by default.
    what : str
        What is fitted, for the message.
    labels : sequence of str, optional
        Names of the classes, for the message; their codes by default.

    Raises
    ------
    DataError
        Which names the fold, the classes that are missing, and what to do.

    Examples
    --------
    >>> import numpy as np
    >>> folds = Folds(np.array([0, 0, 1, 1]), 2, drawn=True)
    >>> require_training_classes(folds, np.array([0, 1, 0, 0]), 2)
    Traceback (most recent call last):
    ...
    cfair.errors.DataError: outcome model: the rows outside fold 1 have no row of class 1 (1 in \
all). Use fewer folds or another seed, or merge small groups.
    """
    rows = slice(None) if used is None else used
    cells = folds.codes[rows] * n_classes + np.asarray(target, dtype=np.intp)[rows]
    table = np.bincount(cells, minlength=folds.n_folds * n_classes)
    table = table.reshape(folds.n_folds, n_classes)
    total = table.sum(axis=0)
    lacking = total - table == 0
    if not lacking.any():
        return
    names = [str(k) for k in range(n_classes)] if labels is None else [str(x) for x in labels]
    absent = [f"class {names[k]}" for k in np.flatnonzero(total == 0)]
    if absent:
        raise DataError(
            f"{what}: of the {int(total.sum()):,} rows to fit on, none is of "
            f"{show_some(absent)}. Merge these with other classes, or leave them out."
        )
    fold = int(np.flatnonzero(lacking.any(axis=1))[0])
    missing = [f"class {names[k]} ({total[k]} in all)" for k in np.flatnonzero(lacking[fold])]
    remedy = "Use fewer folds or another seed" if folds.drawn else "Give other folds"
    raise DataError(
        f"{what}: the rows outside {folds.name(fold)} have no row of {show_some(missing)}. "
        f"{remedy}, or merge small groups."
    )
