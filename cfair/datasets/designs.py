"""The designs that cfair can simulate, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cfair.datasets.published import FairScore, KnownRates
from cfair.datasets.recipe import Covariate, Design, Recipe

__all__ = ["DESIGNS", "Covariate", "Design", "Recipe", "get_design"]

_CLINICAL = Design(
    name="clinical",
    attributes={"sex": ("F", "M"), "race": ("Black", "Other", "White")},
    shares=(0.140, 0.060, 0.330, 0.110, 0.055, 0.305),
    prevalence=(0.34, 0.30, 0.30, 0.33, 0.31, 0.31),
    cfpr=(0.30, 0.22, 0.16, 0.25, 0.20, 0.14),
    cfnr=(0.30, 0.38, 0.36, 0.33, 0.42, 0.35),
    covariates=(
        Covariate("age", 0.40, 0.30, (-0.3, -0.2, 0.2, -0.4, -0.3, 0.0), 0.40, 62.0, 9.0, 1),
        Covariate("sbp", 0.30, 0.25, (0.4, 0.0, -0.1, 0.5, 0.1, 0.0), 0.35, 132.0, 15.0, 0),
        Covariate("bmi", 0.25, 0.10, (0.4, -0.2, 0.0, 0.2, -0.3, 0.1), 0.0, 28.0, 3.9, 1),
        Covariate("zip_income", -0.20, 0.0, (-0.9, -0.2, 0.1, -0.8, -0.1, 0.1), 0.0, 62.0, 12.0, 1),
    ),
    # White men are treated most often at the same risk, Black women least.
    treatment_intercept=(-2.8, -2.2, -1.6, -2.4, -1.6, -0.7),
    treatment_score=3.0,
    event_if_treated=0.5,
    score_decimals=3,
    outcome="readmitted",
    score="risk",
    flag=None,
    treatment="treated",
)

_FOUR = {"a1": ("a", "b"), "a2": ("u", "v")}
_SIX = {"a1": ("a", "b"), "a2": ("u", "v", "w")}


def _four_covariates(*group_shifts: tuple[float, ...]) -> tuple[Covariate, ...]:
    """x1 to x4: three predict the outcome, x4 only the treatment."""
    event_shift = (0.6, 0.4, 0.3, 0.0)
    flag_shift = (0.3, 0.2, 0.0, 0.0)
    treatment = (0.5, 0.4, -0.3, 0.2)
    shifts = group_shifts or ((),) * 4
    return tuple(
        Covariate(f"x{j + 1}", event_shift[j], flag_shift[j], shifts[j], treatment[j])
        for j in range(4)
    )


_UNEQUAL = Design(
    name="unequal",
    attributes=_FOUR,
    shares=(0.4, 0.3, 0.2, 0.1),
    prevalence=(0.30, 0.35, 0.40, 0.45),
    cfpr=(0.12, 0.20, 0.26, 0.38),
    cfnr=(0.40, 0.32, 0.25, 0.15),
    covariates=_four_covariates(
        (0.0, 0.2, -0.2, 0.3), (0.0, -0.2, 0.2, 0.2), (0.0, 0.1, 0.2, -0.3), (0.0, 0.0, 0.2, 0.2)
    ),
    treatment_intercept=(-1.2,) * 4,
    treatment_flag=0.9,
    correlation=0.2,
)

_FAIR = replace(
    _UNEQUAL,
    name="fair",
    prevalence=(0.25, 0.35, 0.45, 0.60),
    cfpr=(0.3,) * 4,
    cfnr=(0.3,) * 4,
    covariates=_four_covariates(
        (0.0, 0.3, -0.3, 0.6), (0.0, -0.3, 0.4, 0.4), (0.0, 0.2, 0.3, -0.5), (0.0, 0.0, 0.4, 0.4)
    ),
)

_SIX_GROUPS = replace(
    _UNEQUAL,
    name="six-groups",
    attributes=_SIX,
    shares=(0.30, 0.24, 0.18, 0.14, 0.10, 0.04),
    prevalence=(0.30, 0.33, 0.36, 0.39, 0.42, 0.45),
    cfpr=(0.12, 0.16, 0.20, 0.24, 0.30, 0.38),
    cfnr=(0.40, 0.35, 0.30, 0.25, 0.22, 0.15),
    covariates=_four_covariates(
        (0.0, 0.1, 0.2, -0.2, -0.1, 0.3),
        (0.0, -0.2, 0.1, 0.2, 0.0, 0.2),
        (0.0, 0.1, 0.0, 0.2, -0.2, -0.3),
        (0.0, 0.0, 0.1, 0.0, 0.2, 0.2),
    ),
    treatment_intercept=(-1.2,) * 6,
)

_BY_GROUP = (-1.9, -1.4, -0.9, -0.57)

_ALL: tuple[Recipe, ...] = (
    _CLINICAL,
    _UNEQUAL,
    _FAIR,
    replace(
        _UNEQUAL,
        name="low",
        prevalence=(0.30, 0.30, 0.35, 0.40),
        cfpr=(0.04, 0.06, 0.08, 0.10),
        cfnr=(0.10, 0.08, 0.06, 0.04),
    ),
    _SIX_GROUPS,
    replace(_UNEQUAL, name="treatment-by-group", treatment_intercept=_BY_GROUP),
    replace(_FAIR, name="fair-treatment-by-group", treatment_intercept=_BY_GROUP),
    replace(_FAIR, name="exchangeable", prevalence=(0.35,) * 4, covariates=_four_covariates()),
    replace(
        _SIX_GROUPS,
        name="fair-six-groups",
        prevalence=(0.25, 0.30, 0.35, 0.40, 0.50, 0.60),
        cfpr=(0.3,) * 6,
        cfnr=(0.3,) * 6,
        covariates=_four_covariates(
            (0.0, 0.2, 0.4, -0.3, -0.2, 0.6),
            (0.0, -0.3, 0.2, 0.4, 0.0, 0.4),
            (0.0, 0.2, 0.0, 0.3, -0.4, -0.5),
            (0.0, 0.0, 0.2, 0.0, 0.4, 0.4),
        ),
    ),
    KnownRates(),
    FairScore(),
)

DESIGNS: Mapping[str, Recipe] = {design.name: design for design in _ALL}


def get_design(design: str | Recipe) -> Recipe:
    """Look a design up by name; a design of the user's own comes back as it is."""
    if isinstance(design, str) and design in DESIGNS:
        return DESIGNS[design]
    if not isinstance(design, str) and isinstance(design, Recipe):
        return design
    raise ValueError(
        f"design must be one of {', '.join(map(repr, DESIGNS))}, or a "
        f"cfair.datasets.Design, but is {design!r}."
    )
