"""Counts every comparison of the suite, so that a run can say how much it checked."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from cfair.errors import CfairWarning


@dataclass
class Section:
    """Comparisons of one section and the largest difference among those with a tolerance."""

    count: int = 0
    worst: float = 0.0
    tolerance: float = 0.0


SECTIONS: dict[str, Section] = {}


def compare(section: str, actual, expected, tolerance: float, what: str = "") -> None:
    """Assert that numbers agree within an absolute tolerance, and count them.

    NaN must stand against NaN. A number is one comparison.
    """
    a, e = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    assert a.shape == e.shape, f"{section}: {what}: shape {a.shape}, expected {e.shape}"
    assert a.size > 0, f"{section}: {what}: nothing to compare"
    a, e = a.ravel(), e.ravel()
    undefined = np.isnan(a) != np.isnan(e)
    assert not undefined.any(), (
        f"{section}: {what}: undefined in one only: {a[undefined][:5]} against {e[undefined][:5]}"
    )
    difference = np.abs(a - e)
    difference[np.isnan(a) | (a == e)] = 0.0
    entry = SECTIONS.setdefault(section, Section())
    entry.count += a.size
    entry.worst = max(entry.worst, float(difference.max()))
    entry.tolerance = max(entry.tolerance, tolerance)
    at = int(np.argmax(difference))
    assert difference[at] <= tolerance, (
        f"{section}: {what}: {a[at]!r} against {e[at]!r}, difference {difference[at]:.3g} "
        f"above {tolerance:g}"
    )


def check(section: str, holds: bool, what: str) -> None:
    """Assert a fact that is no number, and count it."""
    SECTIONS.setdefault(section, Section()).count += 1
    assert holds, f"{section}: {what}"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep cfair's advice quiet where a case is meant to be difficult."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CfairWarning)
        yield
