"""Equivalence of a rate between groups: margins, power, sample size, and detecting a gap."""
