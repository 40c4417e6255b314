"""Permuted labels of large data, counted by runs of neighbouring rows and never written out.

Rows are sorted by what their sums are made of, so that the rows of a short run are as good as
alike: a replicate needs no more than how many rows of each run have each label.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cfair.inference.resampling import byte_shares, shuffled_rest

Array = NDArray[np.float64]
Integers = NDArray[np.integer]

# At least so many runs in a cell, so that rows in a run differ little however small the cell, and
# so many of each shorter length at its ends; a run is counted in a byte.
_RUNS, _ENDS, _LONGEST = 4096, 512, 64
_AT_ONCE = 2**17


@dataclass(frozen=True)
class Filling:
    """Runs of rows, and what draws their labels.

    Attributes
    ----------
    bounds : (cells + 1,) array of int
        Limits of the cells, which are runs of rows themselves.
    """

    bounds: Integers

    @cached_property
    def _tables(self) -> list[list[tuple[int, int]]]:
        """Of each cell, lengths of its runs and how many there are, one length after the other.

        The weights of the first and the last rows are far apart: runs are shorter there.
        """
        cells = []
        for size in np.diff(self.bounds).tolist():
            length, ends, left = 1, [], size
            while left > _RUNS * length and length < _LONGEST:
                ends.append((length, _ENDS))
                left -= 2 * _ENDS * length
                length *= 4
            middle = [(length, left // length), (1, left % length)]  # and what makes no run
            cells.append([table for table in (*ends, *middle, *ends[::-1]) if table[1]])
        return cells

    @cached_property
    def lengths(self) -> NDArray[np.intp]:
        """Rows of each run."""
        tables = np.array([table for cell in self._tables for table in cell])
        return np.repeat(tables[:, 0], tables[:, 1])

    @cached_property
    def runs(self) -> NDArray[np.intp]:
        """Limits of the cells among the runs, (cells + 1,)."""
        number = [sum(number for _, number in cell) for cell in self._tables]
        return np.concatenate([[0], np.cumsum(number)]).astype(np.intp)

    def means(self, columns: Array) -> Array:
        """Means of columns over the rows of each run.

        Parameters
        ----------
        columns : (n, c) array

        Returns
        -------
        (runs, c) array
        """
        starts = np.cumsum(self.lengths) - self.lengths
        return np.asarray(np.add.reduceat(columns, starts) / self.lengths[:, None])

    def spread_lost(self, columns: Array) -> float:
        """Largest share of the variance of a column in a cell that lies within runs.

        Parameters
        ----------
        columns : (n, c) array

        Returns
        -------
        float
            Its root is the error of the sums in standard deviations of the null.
        """
        lost = 0.0
        means = self.means(columns)
        for (i, j), (r, t) in zip(_pairs(self.bounds), _pairs(self.runs), strict=True):
            total = np.var(columns[i:j], axis=0) * (j - i) if j > i else np.zeros(columns.shape[1])
            centre = columns[i:j].mean(axis=0) if j > i else 0.0
            between = self.lengths[r:t] @ (means[r:t] - centre) ** 2
            # a column that is a constant but for rounding loses nothing
            real = total > 1e-20 * (j - i) * np.max(np.abs(columns[i:j]), axis=0, initial=0.0) ** 2
            within = 1 - between / np.where(real, total, 1.0)
            lost = max(lost, float(np.max(within[real], initial=0.0)))
        return lost

    def counts(self, totals: Integers, rng: np.random.Generator) -> Array:
        """How many rows of each run have each label, labels being a random permutation.

        A labelling with the right counts whose law does not change when rows are exchanged is a
        uniform permutation. So every row takes a label from a random byte, by limits that fill each
        group to a little below its size, and the rest is shuffled over the rows left over; a draw
        that overfills a group is drawn again. Which row of a run had which byte does not matter: a
        run is a column of a table of bytes, so that its labels are counted by adding up rows.

        Parameters
        ----------
        totals : (K,) array of int
            Rows of each group, n in all.
        rng : Generator

        Returns
        -------
        (K, runs) array
        """
        K, n_runs = len(totals), len(self.lengths)
        limits = np.minimum(np.cumsum(byte_shares(totals)), 255).astype(np.uint8)
        size = -(-int(self.bounds[-1]) // 8)
        below = np.empty((K, n_runs), dtype=np.uint8)
        while True:
            bits = rng.integers(0, 2**64, size=size, dtype=np.uint64).view(np.uint8)
            first = run = 0
            for length, number in (table for cell in self._tables for table in cell):
                table = bits[first : first + length * number].reshape(length, number)
                at = slice(run, run + number)
                first, run = first + table.size, run + number
                _count_below(table, limits, below[:, at])
            counts = np.diff(below, axis=0, prepend=np.uint8(0)).astype(np.float64)
            left = totals - counts.sum(axis=1).astype(np.intp)
            if (left >= 0).all():
                break
        places = np.repeat(np.arange(n_runs), self.lengths - below[-1])
        code = shuffled_rest(left, rng) * n_runs + places
        counts += np.bincount(code, minlength=K * n_runs).reshape(K, n_runs)
        return counts


def _count_below(table: NDArray[np.uint8], limits: NDArray[np.uint8], out: Integers) -> None:
    """Bytes of each column of a table that are below each limit, (K, columns)."""
    if table.size * len(limits) <= _AT_ONCE:
        under = np.less(table, limits[:, None, None]).view(np.uint8)
        np.add.reduce(under, axis=1, dtype=np.uint8, out=out)
        return
    below = np.empty(table.shape, dtype=bool)  # one group at a time stays in cache
    for limit, row in zip(limits, out, strict=True):
        np.less(table, limit, out=below)
        np.add.reduce(below.view(np.uint8), axis=0, dtype=np.uint8, out=row)


def _pairs(bounds: Integers) -> list[tuple[int, int]]:
    """Neighbouring limits."""
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
