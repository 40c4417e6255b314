"""What is said of a propensity fitted by batches, and of its weights: sums over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.nuisance.batched_fit import BatchedFit
from cfair.nuisance.batched_rows import Batch
from cfair.nuisance.overlap import (
    QUANTILES,
    Overlap,
    arm_row,
    balance_frame,
    effective_frame,
)
from cfair.nuisance.propensity import (
    Propensity,
    ScoreSums,
    SquaredScores,
    refuse_certain,
)

Array = NDArray[np.float64]
Integers = NDArray[np.intp]

#: Intervals between 0 and 1 in which propensities are counted, for their quantiles.
_BINS = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class BatchedPropensity(Propensity):
    """A propensity fitted by batches, whose probabilities are nowhere all at once.

    `pi` and `fitted` are empty; `truncated` has an entry for each row that was cut.

    Attributes
    ----------
    n_rows, n_truncated : int
        Rows, and those whose probability was cut.
    """

    n_rows: int = 0
    n_truncated: int = 0

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """True for each row whose probability was cut; the other rows are not here."""
        return np.broadcast_to(np.True_, (self.n_truncated,))

    def __repr__(self) -> str:
        low, high = self.truncation
        rows = f"{self.n_truncated:,} of {self.n_rows:,} rows truncated to [{low:g}, {high:g}]"
        return f"Propensity: {self.text}; {rows}{self.coefficient_lines}"


@dataclass(eq=False)
class PropensitySums:
    """What is said of a propensity and of its weights, added up over the batches.

    Attributes
    ----------
    cohort : Cohort
    fitted : BatchedFit
    truncation : (float, float)
    """

    cohort: Cohort
    fitted: BatchedFit
    truncation: tuple[float, float]
    _sums: dict[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        K, q = self.cohort.groups.n_groups, len(self.fitted.mean)
        bins = max(1, min(_BINS, 4_000_000 // (2 * K)))
        self._sums = {
            "histogram": np.zeros((2 * K, bins), dtype=np.int64),
            "least": np.full(2 * K, np.inf),
            "most": np.full(2 * K, -np.inf),
            "low": np.zeros(2 * K, dtype=np.int64),
            "high": np.zeros(2 * K, dtype=np.int64),
            "weight": np.zeros((3, K)),  # their sum, that of their squares, the largest
            "certain": 0,
            "untreated": np.zeros(q),
            "untreated_weight": 0.0,
            "weighted": np.zeros(q),
            "squares": np.zeros(q),
            "residual": np.zeros(2 * K),
            "variance": np.zeros(2 * K),
            "slope": np.zeros((2 * K, q)),
            "score_square": np.zeros(2 * K),
            "score_slope": np.zeros((2 * K, q)),
        }

    def add(self, batch: Batch, X: Array, p: Array, pi: Array, w: Array) -> None:
        """Add a batch.

        Parameters
        ----------
        batch : Batch
        X : (n, q) array
        p, pi : (n,) arrays
            Probabilities before and after truncation.
        w : (n,) array
            Weights, 0 for the treated, times the sampling weights.
        """
        cohort, sums = self.cohort, self._sums
        a: Any = 1.0 if batch.weights is None else batch.weights
        K, (low, high) = cohort.groups.n_groups, self.truncation
        assert cohort.d is not None
        group, d = cohort.groups.codes[batch.at], cohort.d[batch.at]
        arm = group * 2 + d
        bins = sums["histogram"].shape[1]
        which = arm * bins + np.minimum((p * bins).astype(np.intp), bins - 1)
        sums["histogram"] += np.bincount(which, minlength=2 * K * bins).reshape(2 * K, bins)
        np.minimum.at(sums["least"], arm, p)
        np.maximum.at(sums["most"], arm, p)
        sums["low"] += np.bincount(arm[p < low], minlength=2 * K)
        sums["high"] += np.bincount(arm[p > high], minlength=2 * K)
        sums["weight"][0] += np.bincount(group, w, K)
        sums["weight"][1] += np.bincount(group, w * w, K)
        np.maximum.at(sums["weight"][2], group, w)
        sums["certain"] += int(np.count_nonzero((d == 0) & (pi >= 1)))
        untreated = (d == 0) * a
        sums["untreated"] += untreated @ X
        sums["untreated_weight"] += float(untreated.sum())
        sums["weighted"] += w @ X
        centred = X - self.fitted.mean
        sums["squares"] += (
            np.einsum("ij,ij->j", centred, centred)
            if batch.weights is None
            else np.einsum("i,ij,ij->j", batch.weights, centred, centred)
        )
        cell = group * 2 + cohort.s[batch.at]
        score, variance = a * (d - p), a * (p * (1 - p))
        sums["residual"] += np.bincount(cell, score, 2 * K)
        sums["variance"] += np.bincount(cell, variance, 2 * K)
        sums["slope"] += _by_cell(cell, variance, X, 2 * K)
        if batch.weights is not None:
            sums["score_square"] += np.bincount(cell, score**2, 2 * K)
            sums["score_slope"] += _by_cell(cell, score**2, X, 2 * K)

    def propensity(self, text: str, columns: Sequence[str], meat: Array) -> BatchedPropensity:
        """The propensity; refuses untreated rows that stand for infinitely many.

        Parameters
        ----------
        text : str
        columns : sequence of str
            Of the formula.
        meat : (q, q) array
            Sum of the products of the scores of the rows.

        Returns
        -------
        BatchedPropensity
        """
        sums, fit = self._sums, self.fitted.fit
        refuse_certain(sums["certain"])
        cells = ScoreSums(sums["residual"], sums["variance"], sums["slope"])
        if self.cohort.weights is not None:
            squared = SquaredScores(sums["score_square"], sums["score_slope"], meat)
            cells = replace(cells, squared=squared)
        return BatchedPropensity(
            text,
            np.zeros(0),
            np.zeros(0),
            self.truncation,
            coef=fit.coef[fit.kept],
            fit=fit,
            design=self.fitted.design,
            columns=tuple(columns),
            notes=self.fitted.notes,
            cells=cells,
            n_rows=self.cohort.n_used,
            n_truncated=int(sums["low"].sum() + sums["high"].sum()),
        )

    def overlap(self) -> Overlap:
        """Overlap, as of rows in memory; quantiles as near as the histogram has them.

        That is to a ten thousandth up to 200 groups, and to a thousandth with 2,000.

        Returns
        -------
        Overlap
        """
        sums, groups, fitted = self._sums, self.cohort.groups, self.fitted
        n, arms = self.cohort.n_used, sums["histogram"].sum(axis=1).reshape(-1, 2)
        names = [name for name, k in zip(fitted.design.names, fitted.fit.kept, strict=True) if k]
        total = sums["weight"][0].sum()
        return Overlap(
            propensities=pd.DataFrame(
                [
                    *(
                        self._arm(name, arm, slice(2 * g + arm, 2 * g + arm + 1))
                        for g, name in enumerate(groups.names)
                        for arm in (0, 1)
                    ),
                    *(self._arm("all", arm, slice(arm, None, 2)) for arm in (0, 1)),
                ]
            ),
            effective=effective_frame(groups, arms[:, 0], *sums["weight"]),
            balance=balance_frame(
                names,
                fitted.mean,
                np.sqrt(sums["squares"] / n),
                sums["untreated"] / sums["untreated_weight"],
                sums["weighted"] / total,
            ),
            truncated_low=int(sums["low"].sum()),
            truncated_high=int(sums["high"].sum()),
        )

    def _arm(self, name: str, arm: int, which: slice) -> dict[str, object]:
        """The rows of one arm in one group, or in all."""
        sums = self._sums
        counts = sums["histogram"][which].sum(axis=0)
        n = int(counts.sum())
        quantiles = np.full(len(QUANTILES), np.nan)
        if n:
            place = (n - 1) * np.array(list(QUANTILES.values()))
            below = _ordered(counts, np.floor(place))
            raw = below + (place % 1) * (_ordered(counts, np.ceil(place)) - below)
            least, most = sums["least"][which].min(), sums["most"][which].max()
            quantiles = np.clip(raw, least, most)
            quantiles[[0, -1]] = least, most
        cut = (int(sums[end][which].sum()) for end in ("low", "high"))
        return arm_row(name, arm, n, quantiles, *cut)


def _by_cell(cell: Integers, values: Array, X: Array, n_cells: int) -> Array:
    """Sums of the rows of X, times a value, in their cells."""
    from scipy.sparse import csc_matrix

    n = len(cell)
    chosen = csc_matrix((values, cell, np.arange(n + 1)), shape=(n_cells, n))
    return np.asarray(chosen @ X)


def _ordered(counts: Integers, k: Array) -> Array:
    """The k-th smallest values, from 0, as near as a histogram of [0, 1] knows them."""
    last = np.cumsum(counts)
    at = np.searchsorted(last, k, side="right")
    within = (k - (last[at] - counts[at]) + 0.5) / counts[at]
    found: Array = (at + within) / len(counts)
    return found
