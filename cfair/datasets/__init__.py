"""Simulated cohorts with known truth."""

from __future__ import annotations

from cfair.datasets.cohort import load_cohort
from cfair.datasets.designs import DESIGNS
from cfair.datasets.group_effect import GroupEffect
from cfair.datasets.recipe import Covariate, Design
from cfair.datasets.simulate import simulate_cohort, true_disparities, true_rates

__all__ = [
    "DESIGNS",
    "Covariate",
    "Design",
    "GroupEffect",
    "load_cohort",
    "simulate_cohort",
    "true_disparities",
    "true_rates",
]
