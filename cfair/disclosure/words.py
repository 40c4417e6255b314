"""What is said of disclosure control: its options, and the reasons and notes of masked figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.disclosure.masks import REVEALING, SMALL

Array = NDArray[np.float64]

#: How the reason of a masked figure begins.
MASKED = "masked: "
#: What masks do not do: no table knows of the others that somebody has made.
APART = (
    "masked for these rows and this call; results of overlapping rows, or of another cutoff, rule "
    "or coding, can be subtracted from each other"
)


def check_below(value: Any) -> int | None:
    """Check `suppress_below`, the least count that may be shown.

    Parameters
    ----------
    value : int or None

    Returns
    -------
    int or None

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_below(11)
    11
    """
    return _whole(value, "suppress_below", "11 (CMS) or 20 (All of Us)")


def check_base(value: Any) -> int | None:
    """Check `round_counts_to`, the base that counts are rounded to.

    Parameters
    ----------
    value : int or None

    Returns
    -------
    int or None

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_base(5)
    5
    """
    return _whole(value, "round_counts_to", "5 or 10")


def _whole(value: Any, name: str, such_as: str) -> int | None:
    if value is None:
        return None
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
    if not whole or value < 2:
        raise ValueError(
            f"{name} must be a whole number of rows from 2 on, such as {such_as}, or None, not "
            f"{value!r}."
        )
    return int(value)


def rounding(base: int | None, by: str = "group, outcome and call") -> str:
    """How counts were rounded, in a line; empty if they were not.

    Examples
    --------
    >>> rounding(5)
    'rows by group, outcome and call rounded to multiples of 5; all figures are of these counts'
    """
    if base is None:
        return ""
    return f"rows by {by} rounded to multiples of {base}; all figures are of these counts"


def why_masked(mask: int, below: int) -> str:
    """Why a figure is masked; empty if it is shown.

    Examples
    --------
    >>> why_masked(SMALL, 11), why_masked(REVEALING, 11)
    ('masked: fewer than 11 patients', 'masked: would reveal a smaller cell')
    """
    if mask == SMALL:
        return f"{MASKED}fewer than {below} patients"
    return f"{MASKED}would reveal a smaller cell" if mask == REVEALING else ""


def why_rate_masked(mask: int, below: int, told: str = "") -> str:
    """Why a rate is masked; empty if it is shown.

    Which of its counts is small is not said: with a limit for each of them, one in four small
    counts of simulated tables of six groups has only one value left, and without none. Nor is it
    said whether one of them is small itself or would follow from another: of two groups with 12
    false positives together, one masked for a small count and one for what it would reveal, the
    second has 11 or more, and the first, therefore, 1. What the table shows to be small beside the
    rate, as ``<11`` patients, is said.

    Parameters
    ----------
    mask : int
        `SHOWN`, `SMALL` or `REVEALING`.
    below : int
    told : str, optional
        Which count that the rate rests on is shown to be small, such as "events".

    Returns
    -------
    str

    Examples
    --------
    >>> why_rate_masked(SMALL, 11)
    'masked: rests on a count below 11, or would reveal one'
    >>> why_rate_masked(SMALL, 11, "events")
    'masked: fewer than 11 events'
    """
    if mask and told:
        return f"{MASKED}fewer than {below} {told}"
    return f"{MASKED}rests on a count below {below}, or would reveal one" if mask else ""


def told_small(columns: Mapping[str, NDArray[np.integer]]) -> list[str]:
    """Which count of each target a table shows to be small.

    Parameters
    ----------
    columns : mapping of str to (T,) array
        What becomes of the counts that stand beside a rate and that it rests on, by what they
        count; of two that are small the first is named.

    Returns
    -------
    list of str
        Empty where none is.

    Examples
    --------
    >>> told_small({"patients": np.array([1, 0, 2]), "events": np.array([1, 1, 0])})
    ['patients', 'events', '']
    """
    marks = np.stack(list(columns.values()), axis=1) == SMALL
    names = [*columns, ""]
    return [names[int(few.argmax())] if few.any() else "" for few in marks]


#: Numbers of rows in a sentence, which no table of counts answers for.
_TOLD = re.compile(
    r"(?<!fewer than )(?<![\w.=/-])\d[\d,]*(?: of \d[\d,]*)?"
    r"(?= (?:more )?(?:(?:un)?treated|(?:external )?rows?|(?:non-)?events?|patients?)\b)"
)


_EVERY = re.compile(r"\ball \d[\d,]* (?=rows\b)")


def quiet(note: str, below: int | None) -> str:
    """A note without its numbers of rows, where counts are masked.

    Examples
    --------
    >>> quiet("F & Other (7 untreated count as 3.2); fewer than 20 events", 11)
    'F & Other (some untreated count as 3.2); fewer than 20 events'
    """
    return note if below is None else _TOLD.sub("some", _EVERY.sub("all ", note))


def policy(below: int, counts: Mapping[str, Array], rates: int = 0) -> str:
    """What was masked, in a line.

    Parameters
    ----------
    below : int
    counts : mapping of str to array
        Columns of counts with their masks.
    rates : int, default 0
        Rates that are masked.

    Returns
    -------
    str

    Examples
    --------
    >>> policy(11, {"n": np.array([5.0, -11.0, np.nan])}, 4)
    'counts below 11 masked (1 count, 1 more so that it cannot be computed; 4 rates with them)'
    >>> policy(11, {"n": np.array([500.0])}, 4)
    'counts below 11 masked (4 rates that rest on them)'
    """
    every = np.concatenate([np.ravel(v) for v in counts.values()]) if counts else np.zeros(0)
    few, more = int((every < 0).sum()), int(np.isnan(every).sum())
    if not few and not more and not rates:
        return f"counts below {below} masked (none here)"
    if not few and not more:  # the counts under a rate are not all in its table
        rests = "rests" if rates == 1 else "rest"
        return (
            f"counts below {below} masked ({rates:,} rate{'s' * (rates != 1)} that {rests} on them)"
        )
    they = "it" if more == 1 else "they"
    also = f", {more:,} more so that {they} cannot be computed" * bool(more)
    with_them = f"; {rates:,} rate{'s' * (rates != 1)} with them" * bool(rates)
    return f"counts below {below} masked ({few:,} count{'s' * (few != 1)}{also}{with_them})"
