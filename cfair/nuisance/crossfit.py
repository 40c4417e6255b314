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

from cfair.cohort import Cohort
from cfair.errors import DataError
from cfair.frame import show_some
from cfair.nuisance.order import Keys, content_keys, labels_by_content, mixed_keys
from cfair.roles import Declared

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

_PURPOSE = 101  # keeps folds independent of permutations and bootstraps under the same seed


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


# ------------------------------------------------------------------------------ what was asked for


@dataclass(frozen=True, eq=False)
class FoldsRequest:
    """Folds as the user gave them: a number, or the fold of each row.

    Attributes
    ----------
    number : int or None
    column : str or None
        Column of the table that holds the fold of each row.
    values : pandas.Series or None
        The fold of each row on the table's index.
    """

    number: Any = None
    column: str | None = None
    values: pd.Series | None = None

    @property
    def missing(self) -> dict[str, NDArray[np.bool_]]:
        """Rows without a fold."""
        return {} if self.values is None else {"folds": self.values.isna().to_numpy()}


def read_folds(value: Any, declared: Declared) -> FoldsRequest | None:
    """Understand what was given as folds.

    Parameters
    ----------
    value : int, name, array or None
        Number of folds, a column or an array with the fold of each row; None for none.
    declared : Declared

    Returns
    -------
    FoldsRequest or None
    """
    if value is None:
        return None
    if isinstance(value, str):
        return FoldsRequest(column=value, values=declared.table.column(value, "folds"))
    if np.ndim(value) == 1:
        return FoldsRequest(values=declared.table.align(value, "folds"))
    if np.ndim(value) > 1:
        folds_given(value)  # which refuses them
    return FoldsRequest(number=value)


def make_folds(request: FoldsRequest | None, cohort: Cohort, seed: int = 0) -> Folds | None:
    """Folds of the rows used, drawn within groups or as given.

    Parameters
    ----------
    request : FoldsRequest or None
    cohort : Cohort
    seed : int, default 0

    Returns
    -------
    Folds or None

    Raises
    ------
    ValueError, DataError
        If there are too many folds, or only one.
    """
    if request is None:
        return None
    if request.values is not None:
        return folds_given(request.values.to_numpy()[cohort.rows])
    return draw_folds(
        request.number,
        content_keys(cohort),
        strata=cohort.groups.codes,
        cluster=cohort.cluster,
        seed=seed,
    )


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
    mixed = mixed_keys(np.asarray(keys, dtype=np.uint64))
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_PURPOSE,)))
    if cluster is not None:
        codes = _deal_clusters(n_folds, labels_by_content(cluster, mixed), rng)
        note = "clusters kept whole" + (", not stratified" if strata is not None else "")
        return Folds(codes, n_folds, drawn=True, note=note)
    stratum = np.zeros(n, dtype=np.intp) if strata is None else labels_by_content(strata, mixed)
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
