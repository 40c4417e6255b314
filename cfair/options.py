"""Checks of option values, all with one form of message: what is allowed, and what came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


def check_option(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Check an option against the values that are allowed.

    Parameters
    ----------
    name : str
    value : object
    allowed : iterable

    Raises
    ------
    ValueError
        If it is not among them.

    Examples
    --------
    >>> check_option("kind", "difference", ("difference", "ratio"))
    """
    choices = list(allowed)
    if not isinstance(value, (str, type(None))) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")


def check_level(level: Any) -> float:
    """Check a confidence level.

    Parameters
    ----------
    level : float

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If it is not between 0 and 1.
    """
    number = is_number(level)
    if not number or not 0 < level < 1:
        raise ValueError(
            f"level must be a confidence level between 0 and 1, such as 0.95, not {level!r}."
        )
    return float(level)


def check_count(value: Any, name: str) -> int:
    """Check a number of replicates.

    Parameters
    ----------
    value : int or None
        None and 0 mean none.
    name : str

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If it is not a whole number of at least 1.
    """
    if value is None:
        return 0
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < 0:
        raise ValueError(f"{name} must be a whole number >= 1 (or None for none), not {value!r}.")
    return int(value)


def is_number(value: Any) -> bool:
    """Whether a value is a real number; True and False are none."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
