"""Figures of results: rates, disparities, null distributions, overlap."""

from cfair.plotting.clinical_forest import plot_clinical_forest
from cfair.plotting.curves import (
    plot_calibration,
    plot_net_benefit,
    plot_roc,
    plot_score_metric,
)
from cfair.plotting.equivalence import plot_equivalence
from cfair.plotting.forest import plot_disparities, plot_rates
from cfair.plotting.gaps import plot_gaps
from cfair.plotting.heatmap import plot_heatmap
from cfair.plotting.interaction import plot_interaction
from cfair.plotting.mosaic import plot_mosaic
from cfair.plotting.null import plot_null
from cfair.plotting.overlap import plot_overlap
from cfair.plotting.power import plot_power
from cfair.plotting.saving import save_all

__all__ = [
    "plot_calibration",
    "plot_clinical_forest",
    "plot_disparities",
    "plot_equivalence",
    "plot_gaps",
    "plot_heatmap",
    "plot_interaction",
    "plot_mosaic",
    "plot_net_benefit",
    "plot_null",
    "plot_overlap",
    "plot_power",
    "plot_rates",
    "plot_roc",
    "plot_score_metric",
    "save_all",
]
