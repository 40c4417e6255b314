"""How often each row is drawn in a bootstrap replicate, by scheme.

Draws are dealt to rows by what is in them (`rows.Rows.canonical`), so that the order of the rows in
the data and the names of the groups change no replicate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cfair.estimators.confusion import cell_codes
from cfair.inference.resampling import Stream
from cfair.inference.rows import Arrangement, Rows, canonical_clusters

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

#: Schemes, and what they do in words.
SCHEMES: dict[str, str] = {
    "group": "rows with replacement within group",
    "rows": "rows with replacement",
    "cluster": "clusters with replacement",
    "faircfint": "faircfint: n^0.75 rows without replacement within group, outcome and prediction",
}


def count_blocks(
    kind: str,
    rows: Rows,
    keys: Sequence[Array],
    cluster: Integers | None = None,
    m_factor: float = 0.75,
) -> Callable[[Stream], Array]:
    """What draws the counts of a block of replicates.

    Parameters
    ----------
    kind : {"group", "rows", "cluster", "faircfint"}
    rows : Rows
    keys : sequence of (n,) arrays
        Numbers that tell rows apart.
    cluster : (n,) array of int, optional
        Cluster codes, for ``kind="cluster"``.
    m_factor : float, default 0.75
        ``kind="faircfint"`` draws n to this power rows.

    Returns
    -------
    callable of a Stream
        Gives a (B, n) array: how often each row, in its own order, was drawn.

    Raises
    ------
    ValueError
        If clusters are to be drawn and there are none.
    """
    at = rows.canonical(*keys, by_group=True)
    if kind == "cluster":
        if cluster is None:
            raise ValueError('bootstrap="cluster" needs a cluster column: cluster="site", say.')
        code = at.rank[rows.group] * 8 + rows.cell
        codes = canonical_clusters(cluster, code, keys[0])
        return lambda block: _cluster_counts(codes, block)
    if kind == "faircfint":
        m = int(rows.n**m_factor)
        return lambda block: at.put_back(_subsamples(at.rows, block, m))
    draw = {"group": _group_counts, "rows": _row_counts}[kind]
    return lambda block: at.put_back(draw(at.rows, block))


def given_counts(resamples: Sequence[Integers] | Integers, n: int) -> Callable[[Stream], Array]:
    """What gives the counts of replicates whose rows are given.

    Parameters
    ----------
    resamples : sequence of arrays of int
        Row numbers of each replicate.
    n : int

    Returns
    -------
    callable of a Stream
    """

    def counts(block: Stream) -> Array:
        return np.stack(
            [
                np.bincount(np.asarray(rows, dtype=np.intp), minlength=n).astype(np.float64)
                for rows in resamples[block.first : block.last]
            ]
        )

    return counts


def _group_counts(rows: Rows, block: Stream) -> Array:
    """Multinomial counts within group."""
    rng = block.generator()
    sizes = rows.sizes
    ends = np.cumsum(sizes)
    counts = np.empty((block.size, rows.n))
    for row in counts:
        drawn = [
            rng.integers(0, size, size) + end - size
            for size, end in zip(sizes, ends, strict=True)
            if size
        ]
        row[:] = np.bincount(np.concatenate(drawn), minlength=len(row))
    return counts


def _row_counts(rows: Rows, block: Stream) -> Array:
    """Multinomial counts of all rows: groups come out larger and smaller."""
    rng = block.generator()
    counts = np.empty((block.size, rows.n))
    for row in counts:
        row[:] = np.bincount(rng.integers(0, rows.n, rows.n), minlength=rows.n)
    return counts


def _cluster_counts(cluster: Integers, block: Stream) -> Array:
    """Counts of rows when clusters are drawn with replacement."""
    rng = block.generator()
    n_clusters = int(cluster.max()) + 1
    counts = np.empty((block.size, len(cluster)))
    for row in counts:
        drawn = np.bincount(rng.integers(0, n_clusters, n_clusters), minlength=n_clusters)
        row[:] = drawn[cluster]
    return counts


def faircfint_sizes(strata: Integers, m: int) -> NDArray[np.intp]:
    """Rows to draw from each stratum: its share of m, half rounded to even as R does.

    Parameters
    ----------
    strata : (c,) array of int
        Sizes of the strata.
    m : int

    Returns
    -------
    (c,) array of int
    """
    # R rounds size * (m / n), in this order of operations
    return np.rint(strata * (m / strata.sum())).astype(np.intp)


def _subsamples(rows: Rows, block: Stream, m: int) -> Array:
    """About m rows without replacement from the strata of group, outcome and prediction."""
    rng = block.generator()
    stratum = cell_codes(rows.y, rows.s, rows.group)
    order = np.argsort(stratum, kind="stable")
    sizes = np.bincount(stratum, minlength=4 * rows.n_groups)
    takes = faircfint_sizes(sizes, m)
    starts = np.cumsum(sizes) - sizes
    counts = np.zeros((block.size, rows.n))
    for row in counts:
        for start, size, take in zip(starts, sizes, takes, strict=True):
            if take:
                chosen = rng.choice(size, take, replace=False, shuffle=False)
                row[order[start + chosen]] = 1.0
    return counts


def faircfint_folds(
    group: Integers,
    n_folds: int,
    at: Arrangement,
    rng: np.random.Generator,
    drawn: Integers | None = None,
) -> NDArray[np.intp]:
    """Fold of each row as the R package deals them: at random within each group, from 0 on.

    So the first fold is the largest.

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
