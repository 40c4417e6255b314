"""Patsy formulas in a closed environment: names, what is allowed, designs that can be rebuilt."""

from __future__ import annotations

from cfair.formula.design import MAX_LEVELS, Design, build_design, build_design_by_batches
from cfair.formula.reading import Formula, parse_formula
from cfair.formula.split import AttributeSplit, split_design

__all__ = [
    "MAX_LEVELS",
    "AttributeSplit",
    "Design",
    "Formula",
    "build_design",
    "build_design_by_batches",
    "parse_formula",
    "split_design",
]
