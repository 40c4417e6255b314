"""The closed forms of the papers, as pure functions of arrays."""

from cfair.estimators.aipw import aipw_rates, aipw_scores, outcome_cells
from cfair.estimators.confusion import confusion_counts, observed_rates
from cfair.estimators.disparity import disparities, largest_gap
from cfair.estimators.group_intervention import (
    group_intervention_rates,
    group_intervention_scores,
    youden_cutoff,
)
from cfair.estimators.ipw import ipw_rates, ipw_weights, rates_from_cells
from cfair.estimators.small_subgroup import (
    SmallSubgroupSums,
    small_subgroup_rates,
    small_subgroup_sums,
)

__all__ = [
    "SmallSubgroupSums",
    "aipw_rates",
    "aipw_scores",
    "confusion_counts",
    "disparities",
    "group_intervention_rates",
    "group_intervention_scores",
    "ipw_rates",
    "ipw_weights",
    "largest_gap",
    "observed_rates",
    "outcome_cells",
    "rates_from_cells",
    "small_subgroup_rates",
    "small_subgroup_sums",
    "youden_cutoff",
]
