"""Frozen records of an analysis: what they hold, how they print."""
