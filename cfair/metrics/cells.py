"""Counts of outcome and call by group: rates, the rows behind them, why one is undefined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.estimators.confusion import LABELS, confusion_counts, denominators, observed_rates
from cfair.estimators.confusion import ratio as divide
from cfair.metrics.comparing import WEIGHTLESS

Array = NDArray[np.float64]

#: False negatives for each false positive, which treatment equality compares. No share: no bound.
FN_FP = "fn_fp_ratio"
#: Why a rate is undefined.
REASONS = {**{rate: why for rate, (_, why) in LABELS.items()}, FN_FP: "no false positives"}
#: Rates among events or among non-events: a number of these needs an outcome with both values.
GIVEN_OUTCOME = frozenset(("tpr", "fpr", "tnr", "fnr", "balanced_accuracy"))


@dataclass(frozen=True, eq=False)
class CallCells:
    """Who is compared: names, and their (T, 2, 2) counts of outcome and call.

    `counts` are sums of the weights, `rows` count rows, which is what tables show.
    """

    names: tuple[str, ...]
    counts: Array
    rows: Array

    def values(self, rate: str) -> Array:
        """One rate of each, NaN where undefined."""
        if rate == FN_FP:
            return divide(self.counts[:, 1, 0], self.counts[:, 0, 1])
        return self._observed[rate]

    @cached_property
    def _observed(self) -> dict[str, Array]:
        return observed_rates(self.counts)

    def notes(self, rates: Sequence[str]) -> list[str]:
        """Why rates are undefined, for each; empty where all are defined."""
        undefined = {rate: np.isnan(self.values(rate)) for rate in rates}
        plain = CallCells(self.names, self.rows, self.rows)  # defined here: only weight is missing
        has_rows = {rate: ~np.isnan(plain.values(rate)) for rate in rates}
        n, weight = self.rows.sum(axis=(1, 2)), self.counts.sum(axis=(1, 2))
        notes = []
        for t in range(len(self.names)):
            by_reason: dict[str, list[str]] = {}
            for rate in rates:
                if undefined[rate][t]:
                    why = REASONS[rate] + WEIGHTLESS * bool(has_rows[rate][t])
                    by_reason.setdefault(why, []).append(rate)
            if by_reason and weight[t] == 0:
                notes.append("no rows" + WEIGHTLESS * bool(n[t] > 0))
            else:
                parts = [f"{', '.join(found)}: {why}" for why, found in by_reason.items()]
                notes.append("; ".join(parts))
        return notes

    def left_out(self, rates: Sequence[str]) -> dict[str, str]:
        """Those in which a rate is undefined, and why."""
        return {k: note for k, note in zip(self.names, self.notes(rates), strict=True) if note}

    def behind(self, rate: str) -> Array:
        """Rows in the denominator of a rate."""
        if rate == FN_FP:
            return self.rows[:, 1, 0] + self.rows[:, 0, 1]
        return denominators(self.rows, rate)

    def sizes(self) -> dict[str, NDArray[np.int64]]:
        """Columns of the numbers of rows that stand behind the rates."""
        rows = self.rows.astype(np.int64)
        return {
            "n": rows.sum(axis=(1, 2)),
            "events": rows[:, 1].sum(axis=1),
            "non_events": rows[:, 0].sum(axis=1),
            "predicted_positive": rows[:, :, 1].sum(axis=1),
            "predicted_negative": rows[:, :, 0].sum(axis=1),
        }

    def merged(self, membership: Array) -> tuple[Array, Array]:
        """Counts and rows of sums of these, by a (T', T) array of 0 and 1."""
        return (
            np.einsum("tk,kys->tys", membership, self.counts),
            np.einsum("tk,kys->tys", membership, self.rows),
        )


def call_cells(cohort: Cohort) -> CallCells:
    """Counts of outcome and call by group.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    CallCells
    """
    groups = cohort.groups
    arrays = (cohort.y, cohort.s, groups.codes, groups.n_groups)
    rows = confusion_counts(*arrays)
    weighted = cohort.weights is not None
    counts = confusion_counts(*arrays, weights=cohort.weights) if weighted else rows
    return CallCells(groups.names, counts, rows)
