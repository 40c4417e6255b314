"""Patsy formulas in a closed environment: names, what is allowed, designs that can be rebuilt."""

from __future__ import annotations

from cfair.formula.design import Design, build_design
from cfair.formula.reading import Formula, parse_formula
from cfair.formula.split import AttributeSplit, split_design

__all__ = [
    "AttributeSplit",
    "Design",
    "Formula",
    "build_design",
    "parse_formula",
    "split_design",
]
