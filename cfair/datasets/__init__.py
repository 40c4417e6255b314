"""Simulated cohorts with known truth."""

from __future__ import annotations

from cfair.datasets.cohort import load_cohort
from cfair.datasets.designs import DESIGNS
from cfair.datasets.recipe import Covariate, Design
from cfair.datasets.simulate import simulate_cohort, true_disparities, true_rates

__all__ = [
    "DESIGNS",
    "Covariate",
    "Design",
    "load_cohort",
    "simulate_cohort",
    "true_disparities",
    "true_rates",
]
