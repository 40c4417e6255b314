"""Equivalence of a rate between groups: margins, power, sample size, and detecting a gap.

`tost_counts`, `tost_to_all` and `tost_estimates` test what is in a published table.
"""

from cfair.equivalence.tost import Tost, tost_counts, tost_estimates, tost_to_all

__all__ = ["Tost", "tost_counts", "tost_estimates", "tost_to_all"]
