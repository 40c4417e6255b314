"""Figures of results: rates, disparities, null distributions, overlap."""

from cfair.plotting.forest import plot_disparities, plot_rates
from cfair.plotting.null import plot_null
from cfair.plotting.overlap import plot_overlap

__all__ = ["plot_disparities", "plot_null", "plot_overlap", "plot_rates"]
