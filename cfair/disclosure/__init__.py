"""Disclosure control: no small count can be computed from all that is shown.

`masks` decides which counts may be shown; `words` says what was masked, and why.
"""

from cfair.disclosure.masks import (
    KINDS,
    MAX_GROUPS,
    REVEALING,
    SHOWN,
    SMALL,
    Protection,
    closed,
    count_column,
    is_masked,
    protect,
    release,
    rounded,
    small_masks,
    strictest,
    written,
)
from cfair.disclosure.words import (
    APART,
    MASKED,
    check_base,
    check_below,
    policy,
    quiet,
    rounding,
    told_small,
    why_masked,
    why_rate_masked,
)

__all__ = [
    "APART",
    "KINDS",
    "MASKED",
    "MAX_GROUPS",
    "REVEALING",
    "SHOWN",
    "SMALL",
    "Protection",
    "check_base",
    "check_below",
    "closed",
    "count_column",
    "is_masked",
    "policy",
    "protect",
    "quiet",
    "release",
    "rounded",
    "rounding",
    "small_masks",
    "strictest",
    "told_small",
    "why_masked",
    "why_rate_masked",
    "written",
]
