"""Permuted labels of large data as random tables, runs of like rows by label.

Permuted labels matter through the sums of a few columns by label. Where neighbouring rows are
alike, they may as well be counted: how many rows of each run have each label is a random table with
given margins, which is drawn exactly and takes no look at a row. What rows of a run differ in is
drawn from a uniform law with its mean and covariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

_FROM = 50_000  # rows; in smaller data labels of all rows take less than importing scipy.stats
_ROWS_A_GROUP = 2000  # with fewer on average, a table takes longer than the labels of all rows
_WITHIN = 0.2  # of the variance of a column may lie within runs
_LOST = 5e-3  # of the variance of a column may be left out: standard deviations 0.25% too small
_UNIFORM = np.sqrt(3.0)  # bounds of the uniform law whose variance is 1


def large_enough(n: int, n_groups: int) -> bool:
    """Whether tables are faster than the labels of all rows.

    Parameters
    ----------
    n, n_groups : int

    Returns
    -------
    bool
    """
    return n >= max(_FROM, _ROWS_A_GROUP * n_groups)


@dataclass(frozen=True)
class Along:
    """A number by which the rows of a cell differ.

    Attributes
    ----------
    n_runs : int
        Runs along it.
    scales : tuple of (N,) arrays
        Increasing functions of it, on which runs are short as they are in rows; columns are near
        linear in the first.
    """

    n_runs: int
    scales: tuple[Array, ...]


@dataclass(frozen=True)
class LikeRows:
    """Rows of a cell in runs, in each of which columns are as good as linear in a few numbers.

    Attributes
    ----------
    lengths : (r,) array of int
        Rows of each run.
    means : (r, c) array
        Of each column.
    slopes : (m, r, c) array
        What a standard deviation in each of the m numbers in the run is worth in each column; the
        part of the second number that does not go with the first.
    within : float
        Largest share of the variance of a column that lies within runs, on these lines.
    lost : float
        Largest share of the variance of a column that is not on them.
    """

    lengths: NDArray[np.intp]
    means: Array
    slopes: Array
    within: float
    lost: float


def like_rows(columns: Sequence[Array], along: Sequence[Along]) -> LikeRows:
    """Put the rows of a cell in runs.

    Parameters
    ----------
    columns : sequence of (N,) arrays
    along : sequence of Along
        The numbers by which rows differ. Rows are sorted by the first; columns are constant where
        there is none.

    Returns
    -------
    LikeRows

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(1, 2, 100)
    >>> runs = like_rows([x, x**2], [Along(24, (x,))])
    >>> len(runs.lengths), bool(runs.within < 0.01), bool(runs.lost < 1e-3)
    (24, True, True)
    """
    n = len(columns[0])
    order, starts = _in_runs(n, along)
    lengths = np.diff(np.append(starts, n))
    lines = _lines([number.scales[0][order] for number in along], starts, lengths)
    means = np.empty((len(starts), len(columns)))
    slopes, within, lost = np.zeros((len(along), *means.shape)), 0.0, 0.0
    for j, column in enumerate(columns):
        rest, squares, means[:, j] = _within(column[order], starts, lengths)
        on_lines = 0.0
        for number, line in enumerate(lines):
            product = np.add.reduceat(rest * line, starts)
            on_lines += float(product @ product)
            slopes[number, :, j] = product / np.sqrt(np.maximum(lengths - 1, 1))
        total = squares.sum() + lengths @ (means[:, j] - lengths @ means[:, j] / max(n, 1)) ** 2
        # a column that is a constant but for rounding has nothing to lose
        if total > 1e-20 * (lengths @ means[:, j] ** 2):
            within = max(within, on_lines / float(total))
            lost = max(lost, float((squares.sum() - on_lines) / total))
    return LikeRows(lengths, means, slopes, within, lost)


def alike(cells: Sequence[LikeRows]) -> bool:
    """Whether rows in a run are so alike that tables have the law of permuted labels.

    Parameters
    ----------
    cells : sequence of LikeRows

    Returns
    -------
    bool
    """
    return all(cell.within <= _WITHIN and cell.lost <= _LOST for cell in cells)


def _in_runs(n: int, along: Sequence[Along]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Order of the rows, and where runs start: equal steps of a way along rows and scales."""
    order, starts = np.arange(n), np.zeros(min(n, 1), dtype=np.intp)
    for number in along:
        lengths = np.diff(np.append(starts, n))
        run = np.repeat(np.arange(len(starts)), lengths)
        if len(starts) > 1:  # rows that are alike so far, by the next number
            order = order[np.lexsort([number.scales[0][order], run])]
        last = starts + lengths - 1
        way = (np.arange(n) - starts[run]) / np.maximum(lengths - 1, 1)[run]
        for scale in number.scales:
            here = scale[order]
            span = here[last] - here[starts]
            way += (here - here[starts][run]) / np.where(span > 0, span, 1.0)[run]
        whole = np.where(way[last] > 0, way[last], 1.0)[run]
        step = np.minimum((way * (number.n_runs / whole)).astype(np.intp), number.n_runs - 1)
        starts = np.flatnonzero(np.diff(run * number.n_runs + step, prepend=-1))
    return order, starts


def _lines(
    numbers: Sequence[Array], starts: NDArray[np.intp], lengths: NDArray[np.intp]
) -> list[Array]:
    """Each number about its mean in its run, apart from those before, with sum of squares 1."""
    lines: list[Array] = []
    for values in numbers:
        rest, _, _ = _within(values, starts, lengths)
        for line in lines:
            rest = rest - line * np.repeat(np.add.reduceat(rest * line, starts), lengths)
        squares = np.add.reduceat(rest**2, starts)
        # what is left by rounding would point anywhere
        real = squares > 1e-20 * np.add.reduceat(values**2, starts)
        scale = np.where(real, 1 / np.sqrt(np.where(real, squares, 1.0)), 0.0)
        lines.append(rest * np.repeat(scale, lengths))
    return lines


def _within(
    column: Array, starts: NDArray[np.intp], lengths: NDArray[np.intp]
) -> tuple[Array, Array, Array]:
    """A column about its mean in each run, the sums of squares of that, and the means."""
    means = np.add.reduceat(column, starts) / lengths
    rest = column - np.repeat(means, lengths)
    return rest, np.add.reduceat(rest**2, starts), means


@dataclass(frozen=True)
class LabelTables:
    """Sums of columns by cell and label under permuted labels.

    Attributes
    ----------
    cells : tuple of LikeRows
        Their columns begin with the same; those that a cell does not have are 0 there.
    sizes : (K,) array of int
        Rows of each label, as many in all as there are in the cells.
    """

    cells: tuple[LikeRows, ...]
    sizes: NDArray[np.intp]

    def sums(self, n_replicates: int, rng: np.random.Generator) -> Array:
        """Sums of the columns in replicates.

        Parameters
        ----------
        n_replicates : int
        rng : Generator

        Returns
        -------
        (R, cells, K, c) array

        Notes
        -----
        Given the table, the sums by label of what the rows of a run differ in have mean 0 and
        covariance ``S (diag(m) - m m' / N)`` in a run of N rows, of which m_k have label k and
        whose covariance is S. They are drawn with it from uniform laws, whose bounds keep what
        is positive in every row positive in sums of few.
        """
        lengths = np.concatenate([cell.lengths for cell in self.cells])
        counts = _tables(self.sizes, lengths, n_replicates, rng)
        width = max(cell.means.shape[1] for cell in self.cells)
        sums = np.zeros((n_replicates, len(self.cells), len(self.sizes), width))
        self._add(sums, counts, [cell.means for cell in self.cells])
        roots = np.sqrt(counts)
        for number in range(max(len(cell.slopes) for cell in self.cells)):
            moved = (2 * rng.random(counts.shape) - 1) * _UNIFORM
            moved *= roots
            moved -= counts * (moved.sum(axis=1) / lengths)[:, None]
            self._add(sums, moved, [cell.slopes[number : number + 1] for cell in self.cells])
        return sums

    def _add(self, sums: Array, of_runs: Array, values: Sequence[Array]) -> None:
        """Add what the runs of each cell have by label, times values of runs and columns."""
        last = 0
        for number, (cell, by_column) in enumerate(zip(self.cells, values, strict=True)):
            at = slice(last, last := last + len(cell.lengths))
            if by_column.size:
                flat = by_column.reshape(len(cell.lengths), -1)
                sums[:, number, :, : flat.shape[1]] += of_runs[:, :, at] @ flat


def _tables(
    rows: NDArray[np.intp], columns: NDArray[np.intp], n: int, rng: np.random.Generator
) -> Array:
    """Random tables with given margins, (n, rows, columns); no column is 0."""
    from scipy.stats import random_table  # takes longer to import than all of cfair

    counts = np.zeros((n, len(rows), len(columns)))
    some = rows > 0
    if np.count_nonzero(some) > 1 and len(columns) > 1:
        tables = random_table(rows[some], columns)
        counts[:, some] = tables.rvs(n, method="patefield", random_state=rng).reshape(
            n, -1, len(columns)
        )
    else:  # a single line is no table for scipy, which makes negative counts of it
        counts[:, some] = columns if len(columns) > 1 else rows[some, None]
    return counts
