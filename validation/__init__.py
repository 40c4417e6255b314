"""Validation of cfair against R, recorded figures, published tables and simulated truth."""
