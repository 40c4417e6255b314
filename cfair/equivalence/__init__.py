"""Equivalence of a rate between groups: margins, power, sample size, and detecting a gap."""

from cfair.equivalence.tost import Tost, tost_counts, tost_estimates

__all__ = ["Tost", "tost_counts", "tost_estimates"]
