"""What results of rates under no treatment share: the propensity and its overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfair.errors import DataError
from cfair.estimators.ipw import ipw_weights
from cfair.nuisance.overlap import Overlap
from cfair.nuisance.propensity import Propensity
from cfair.results.replicated import ReplicatedResult

#: The two counterfactual rates, always the first two metrics of the result.
COUNTERFACTUAL: tuple[str, str] = ("cfpr", "cfnr")
#: Intervals in words.
INTERVAL_NAMES: dict[str, str] = {
    "wilson": "Wilson on the effective size",
    "logit": "normal on the logit scale",
    "plain": "normal",
}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TreatedResult(ReplicatedResult):
    """Counterfactual false positive and false negative rates under no treatment.

    ``rates`` holds four metrics: ``cfpr`` and ``cfnr``, which are compared, and beside them the
    observed ``fpr`` and ``fnr`` of all rows.

    Attributes
    ----------
    propensity : Propensity or None
        None where an outcome model alone was used.
    overlap : Overlap or None
        Diagnostics of the weights.

    See Also
    --------
    ReplicatedResult : the other attributes, and what can be asked of replicates.
    """

    propensity: Propensity | None
    overlap: Overlap | None

    @property
    def compared(self) -> tuple[str, ...]:
        """Metrics that comparisons and replicates are about: the counterfactual ones."""
        return COUNTERFACTUAL

    @property
    def about(self) -> str:
        """What kind of rates these are, for the plots."""
        return f"Had nobody been treated: {self.estimator}"

    @property
    def propensities(self) -> pd.Series:
        """Truncated propensities on the caller's index."""
        pi = self._fitted_propensity.pi
        return pd.Series(pi, index=self.cohort.index, name="propensity", copy=True)

    @property
    def weights(self) -> pd.Series:
        """Weights (1 - D)/(1 - pi) on the caller's index; 0 for treated rows."""
        assert self.cohort.d is not None
        w = ipw_weights(self.cohort.d, self._fitted_propensity.pi)
        return pd.Series(w, index=self.cohort.index, name="weight")

    @property
    def _fitted_propensity(self) -> Propensity:
        if self.propensity is None:
            raise DataError('this result has no propensity: estimator="plugin" uses none.')
        return self.propensity

    def plot_overlap(self, *, by_group: bool = False, ax: Any = None) -> Any:
        """Propensities of the treated and the untreated.

        Parameters
        ----------
        by_group : bool, default False
            A row per group instead of all rows together.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
            Under ``suppress_below`` quantiles in place of histograms, whose bars are counts, and
            none in groups with a masked arm.
        """
        from cfair.plotting import plot_overlap

        groups, cohort = self.cohort.groups, self.cohort
        assert cohort.d is not None
        group, names = (groups.codes, groups.names) if by_group else (None, None)
        masked: list[int] = []
        if cohort.suppress_below is not None and self.overlap is not None:
            if not by_group:  # the bars of a histogram are counts; quantiles are not
                group, names = np.zeros_like(groups.codes), ("all",)
            arms = self.overlap.propensities
            lost = set(arms.loc[arms["note"].ne(""), "group"])
            masked = [k for k, name in enumerate(names or ()) if name in lost]
        return plot_overlap(
            self._fitted_propensity.fitted,
            cohort.d,
            group=group,
            names=names,
            truncation=self._fitted_propensity.truncation,
            ax=ax,
            masked=masked,
            below=cohort.suppress_below,
        )
