"""The rows of an analysis, and an order of them that depends only on what is in them.

Random numbers are dealt to rows and groups in a canonical order, so that neither the order of the
rows in the data nor the names of the groups changes a replicate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.integer]


@dataclass(frozen=True)
class Rows:
    """The arrays of an analysis.

    Attributes
    ----------
    y, s, d : (n,) arrays of 0 and 1
        Outcome, prediction, treatment.
    group : (n,) array of int
        Group codes 0..K-1.
    n_groups : int
        K, groups without rows included.
    weights : (n,) array or None
        Sampling weights.

    Examples
    --------
    >>> import numpy as np
    >>> y, s, d, group = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 0, 1]])
    >>> Rows(y, s, d, group, 2).canonical(np.array([0.3, 0.2, 0.4])).order
    array([2, 0, 1])
    """

    y: Integers
    s: Integers
    d: Integers
    group: Integers
    n_groups: int
    weights: Array | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.d)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows of each group."""
        return np.bincount(self.group, minlength=self.n_groups)

    @property
    def cell(self) -> NDArray[np.intp]:
        """Cell of each row within its group, 0..7: by D, then Y, then S."""
        cell: NDArray[np.intp] = (np.asarray(self.d, np.intp) * 2 + self.y) * 2 + self.s
        return cell

    def arranged(
        self, order: NDArray[np.intp], rank: NDArray[np.intp] | None = None
    ) -> Arrangement:
        """Put the rows in an order, and the groups too.

        Parameters
        ----------
        order : (n,) array of int
            Which row comes first, second, ...
        rank : (K,) array of int, optional
            New number of each group; the old one by default.

        Returns
        -------
        Arrangement
        """
        if rank is None:
            rank = np.arange(self.n_groups)
        group = rank[self.group][order]
        weights = None if self.weights is None else self.weights[order]
        rows = Rows(self.y[order], self.s[order], self.d[order], group, self.n_groups, weights)
        return Arrangement(rows, order, rank)

    def canonical(self, *keys: Array, by_group: bool = False) -> Arrangement:
        """Order rows and groups by what is in them: rows by cell, ties by the keys and the weights.

        Parameters
        ----------
        *keys : (n,) arrays
            Numbers that tell rows apart, for instance the propensity; the first counts most.
        by_group : bool, default False
            Keep the rows of a group together.

        Returns
        -------
        Arrangement
        """
        cell, rank = self.cell, self.canonical_groups(keys[0])
        least = [] if self.weights is None else [self.weights]
        code = rank[self.group] * 8 + cell if by_group else cell
        order = np.lexsort([*least, *keys[::-1]])
        # small whole numbers are sorted by their digits, 15 times faster than as a key of lexsort
        small = code.astype(np.uint16 if self.n_groups <= 2**13 else np.intp)
        return self.arranged(order[np.argsort(small[order], kind="stable")], rank)

    def canonical_groups(self, key: Array) -> NDArray[np.intp]:
        """Rank the groups by what is in them, not by their names.

        Parameters
        ----------
        key : (n,) array
            A number that tells rows apart.

        Returns
        -------
        (K,) array of int
            New number of each group.
        """
        K = self.n_groups
        sizes = np.bincount(self.group * 8 + self.cell, minlength=8 * K).reshape(K, 8)
        total = np.zeros(K)
        # Rounded, since a sum in another order of the rows differs in the last digits.
        total[:] = np.round(np.bincount(self.group, weights=key, minlength=K), 6)
        return ranks(np.lexsort([total, *sizes.T[::-1], sizes.sum(axis=1)]))


@dataclass(frozen=True)
class Arrangement:
    """Rows in another order, and the way back.

    Attributes
    ----------
    rows : Rows
        In the new order, with groups by their new numbers.
    order : (n,) array of int
        Old position of each row.
    rank : (K,) array of int
        New number of each group.
    """

    rows: Rows
    order: NDArray[np.intp]
    rank: NDArray[np.intp]

    def put_back(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of rows in the new order, in the old one.

        Parameters
        ----------
        values : (..., n) array

        Returns
        -------
        (..., n) array
        """
        result = np.empty_like(values)
        result[..., self.order] = values
        return result

    @property
    def groups(self) -> NDArray[np.intp]:
        """Old number of each group, in the new order."""
        return np.argsort(self.rank)


def canonical_clusters(cluster: Integers, code: Integers, key: Array) -> NDArray[np.intp]:
    """Number clusters by what is in them, not by the order in which they come.

    Parameters
    ----------
    cluster : (n,) array of int
        Cluster codes 0..C-1.
    code : (n,) array of int
        Group and cell of each row, in one number.
    key : (n,) array
        A number that tells rows apart.

    Returns
    -------
    (n,) array of int
        New cluster codes.
    """
    signature = [
        np.round(np.bincount(cluster, weights=values), 6) for values in (key**2, key, code**2, code)
    ]
    return ranks(np.lexsort([*signature, np.bincount(cluster)]))[cluster]


def ranks(order: NDArray[np.intp]) -> NDArray[np.intp]:
    """Position of each element in an order: the inverse permutation.

    Parameters
    ----------
    order : (n,) array of int

    Returns
    -------
    (n,) array of int

    Examples
    --------
    >>> import numpy as np
    >>> ranks(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    result = np.empty(len(order), dtype=np.intp)
    result[order] = np.arange(len(order))
    return result
