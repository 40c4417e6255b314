"""Counterfactual error rates of a table that was read by batches: the record of one analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from cfair.errors import DataError
from cfair.results.counterfactual import CounterfactualResult

_NOWHERE = (
    "the table was read by batches, and {what} of its rows were not kept. {instead} For every row "
    "take the rows into memory, or a sample of them, and use cfair.Audit(...).counterfactual(...)."
)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class BatchedCounterfactualResult(CounterfactualResult):
    """Weighted rates under no treatment, of a table larger than memory.

    It is a `CounterfactualResult` whose cohort holds the combinations of group, outcome, call and
    treatment, and how many rows each stands for, in place of the rows; nothing of a single row is
    in it. `overlap` has quantiles of propensities to a ten thousandth, and to a thousandth where
    there are thousands of groups.

    Attributes
    ----------
    source : str
        What was read, and how.

    See Also
    --------
    CounterfactualResult : the other attributes, and what can be asked.
    """

    source: str

    @property
    def propensities(self) -> pd.Series:
        """Of rows in memory, the truncated propensities; these are refused."""
        raise DataError(
            _NOWHERE.format(
                what="propensities", instead=".overlap.propensities has their quantiles."
            )
        )

    @property
    def weights(self) -> pd.Series:
        """Of rows in memory, the weights (1 - D)/(1 - pi); these are refused."""
        raise DataError(_NOWHERE.format(what="weights", instead=".overlap.effective sums them up."))

    def plot_overlap(self, *, by_group: bool = False, ax: Any = None) -> Any:
        """Propensities of treated and untreated rows in memory; here they are refused.

        Parameters
        ----------
        by_group : bool, default False
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        DataError
            Always: the frames of `overlap` are there instead.
        """
        raise DataError(
            _NOWHERE.format(
                what="propensities", instead=".overlap.propensities has their quantiles."
            )
        )

    def _facts(self) -> list[tuple[str, str]]:
        first, *rest = super()._facts()
        return [first, ("read", self.source), *rest]
