"""Subsamples, relabelled rows and folds by the schemes of the R package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.errors import DataError
from cfair.estimators.confusion import cell_codes
from cfair.inference.drawing import faircfint_sizes
from cfair.inference.replicates import label_blocks, own_labels
from cfair.inference.resampling import Stream, streams
from cfair.inference.rows import Arrangement, Rows

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

_BOOTSTRAP, _PERMUTATION, _FOLDS = 2, 1, 41  # keep draws independent under one seed


def subsamples(
    rows: Rows, keys: Sequence[Array], n_boot: int, m_factor: float, seed: int
) -> list[NDArray[np.intp]]:
    """Rows of every replicate: n^m_factor of them, in proportion from every stratum.

    Strata are those of group, outcome and call; rows are drawn without replacement.

    Parameters
    ----------
    rows : Rows
    keys : sequence of (n,) arrays
        Numbers that tell rows apart, so that their order changes nothing.
    n_boot : int
    m_factor : float
    seed : int

    Returns
    -------
    list of arrays of int
    """
    at = rows.canonical(*keys, by_group=True)
    stratum = cell_codes(at.rows.y, at.rows.s, at.rows.group)
    members = [at.order[np.flatnonzero(stratum == code)] for code in range(4 * rows.n_groups)]
    sizes = np.array([len(of_stratum) for of_stratum in members])
    takes = faircfint_sizes(sizes, int(rows.n**m_factor))
    if not takes.any():
        raise DataError(
            f"m_factor={m_factor:g} asks for {int(rows.n**m_factor)} of {rows.n} rows, which "
            "leaves none in any stratum. Use a larger one, such as 0.75."
        )
    found = []
    for block in streams(seed, _BOOTSTRAP, n_boot):
        rng = block.generator()
        for _ in range(block.size):
            parts = [
                of_stratum[rng.choice(len(of_stratum), take, replace=False, shuffle=False)]
                for of_stratum, take in zip(members, takes, strict=True)
                if take
            ]
            found.append(np.concatenate(parts))
    return found


def relabelled(
    rows: Rows, keys: Sequence[Array], permutations: Any
) -> Callable[[Stream], Integers]:
    """What gives the labels of a block of permutations, in the rows' own order.

    Parameters
    ----------
    rows : Rows
    keys : sequence of (n,) arrays
    permutations : (R, n) array of int or None

    Returns
    -------
    callable of a Stream
    """
    at = rows.canonical(*keys) if permutations is None else rows.arranged(np.arange(rows.n))
    draw = label_blocks(rows, at, permutations)
    return lambda block: own_labels(draw(block), at)


def blocks(kind: str, n: int, seed: int) -> list[tuple[Stream, Stream]]:
    """Blocks of replicates, each with a second stream for its folds.

    Parameters
    ----------
    kind : {"null", "boot"}
    n : int
    seed : int

    Returns
    -------
    list of (Stream, Stream)
    """
    purpose = _PERMUTATION if kind == "null" else _BOOTSTRAP
    both = streams(seed, purpose, n), streams(seed, _FOLDS + purpose, n)
    return list(zip(*both, strict=True))


def observed_folds_seed(seed: int) -> np.random.Generator:
    """A generator for the folds of the observed estimate.

    Parameters
    ----------
    seed : int

    Returns
    -------
    Generator
    """
    return streams(seed, _FOLDS, 1)[0].generator()


def deal_folds(
    group: Integers, n_folds: int, at: Arrangement, rng: np.random.Generator, drawn: Any = None
) -> NDArray[np.intp]:
    """Fold of each row: within each group at random, counted 0, 1, ... from the start.

    So that the first fold is the largest, as in the R package.

    Parameters
    ----------
    group : (n,) array of int
    n_folds : int
    at : Arrangement
        In whose order random numbers are dealt.
    rng : Generator
    drawn : (m,) array of int, optional
        Rows that are dealt; the others are in fold 0. All by default.

    Returns
    -------
    (n,) array of int
    """
    n = len(group)
    chance = at.put_back(rng.random(n))
    rows = np.arange(n) if drawn is None else np.asarray(drawn, dtype=np.intp)
    order = rows[np.lexsort([chance[rows], group[rows]])]
    sizes = np.bincount(group[rows])
    within = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    folds = np.zeros(n, dtype=np.intp)
    folds[order] = within % n_folds
    return folds


def given_folds(values: Any, n: int, what: str) -> NDArray[np.intp]:
    """Folds that the user gave, as codes from 0.

    Parameters
    ----------
    values : (n,) array
    n : int
    what : str
        Name of the argument.

    Returns
    -------
    (n,) array of int
    """
    array = np.asarray(values)
    if array.ndim != 1 or len(array) != n:
        raise DataError(f"{what} must have a fold for each of {n} rows, not {array.shape}.")
    codes, labels = pd.factorize(array, sort=True)
    if (codes < 0).any() or len(labels) < 2:
        raise DataError(f"{what} must hold at least two different folds, and none missing.")
    return np.asarray(codes, dtype=np.intp)


def check_given(name: str, values: Any, sizes: Iterable[int]) -> None:
    """Check folds that were given for replicates.

    Parameters
    ----------
    name : str
    values : sequence of arrays or None
    sizes : iterable of int
        Rows of each replicate.

    Raises
    ------
    DataError
    """
    if values is None:
        return
    wanted = list(sizes)
    if len(values) != len(wanted) or any(len(v) != n for v, n in zip(values, wanted, strict=False)):
        raise DataError(
            f"{name} must hold {len(wanted)} replicates with a fold for each of their rows."
        )
