"""The closed forms of the papers, as pure functions of arrays."""

from cfair.estimators.confusion import confusion_counts, observed_rates
from cfair.estimators.disparity import disparities, largest_gap
from cfair.estimators.ipw import ipw_rates, ipw_weights, rates_from_cells

__all__ = [
    "confusion_counts",
    "disparities",
    "ipw_rates",
    "ipw_weights",
    "largest_gap",
    "observed_rates",
    "rates_from_cells",
]
