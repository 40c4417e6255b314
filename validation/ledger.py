"""Counts every comparison of the suite, so that a run can say how much it checked, and where."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch

import numpy as np

from cfair.errors import CfairWarning

#: Sections of README.md, in its order, and the test files of each.
SECTIONS = {
    "recorded: faircfint": (
        "recorded/test_recorded.py", "recorded/test_faircfint.py", "test_small_subgroups.py",
    ),
    "recorded: peers": ("recorded/test_peers_*.py",),
    "differences": ("test_differences.py",),
    "live R": ("live_r/*.py",),
    "live original: plain R": ("live_original/*.py",),
    "live original: R package": (),  # the same file, where the package itself is asked
    "published": ("test_published.py", "test_published_equivalence.py"),
    "statistical": ("test_statistical.py", "test_group_intervention.py", "test_equivalence.py"),
    "gaps": ("test_observed_gaps.py",),
    "speed": ("test_speed.py",),
    "Spark": ("test_spark.py",),
}  # fmt: skip
PACKAGE = "live original: R package"


def section_of(file: str, implementation: str = "") -> str:
    """The section of a test file, by its path from here; a new file is its own section."""
    if fnmatch(file, "live_original/*.py") and implementation == "faircfint":
        return PACKAGE
    found = (name for name, files in SECTIONS.items() if any(fnmatch(file, f) for f in files))
    return next(found, file)


@dataclass
class Entry:
    """Comparisons of one kind, and the difference that came nearest to its tolerance."""

    count: int = 0
    difference: float = 0.0
    tolerance: float = 0.0

    @property
    def share(self) -> float:
        """The difference in units of its tolerance; above 1 it is too large."""
        if self.difference == 0:
            return 0.0
        return self.difference / self.tolerance if self.tolerance > 0 else float("inf")

    def add(self, count: int, difference: float = 0.0, tolerance: float = 0.0) -> None:
        """Count, and keep the worst."""
        self.count += count
        other = Entry(0, difference, tolerance)
        if (other.share, tolerance) > (self.share, self.tolerance):
            self.difference, self.tolerance = difference, tolerance


_OF_THIS_TEST: dict[str, Entry] = {}


def compare(name: str, actual, expected, tolerance: float, what: str = "") -> None:
    """Assert that numbers agree within an absolute tolerance, and count them.

    NaN must stand against NaN. A number is one comparison.
    """
    a, e = np.asarray(actual, dtype=float), np.asarray(expected, dtype=float)
    assert a.shape == e.shape, f"{name}: {what}: shape {a.shape}, expected {e.shape}"
    assert a.size > 0, f"{name}: {what}: nothing to compare"
    a, e = a.ravel(), e.ravel()
    undefined = np.isnan(a) != np.isnan(e)
    assert not undefined.any(), (
        f"{name}: {what}: undefined in one only: {a[undefined][:5]} against {e[undefined][:5]}"
    )
    difference = np.abs(a - e)
    difference[np.isnan(a) | (a == e)] = 0.0
    at = int(np.argmax(difference))
    _OF_THIS_TEST.setdefault(name, Entry()).add(a.size, float(difference[at]), float(tolerance))
    assert difference[at] <= tolerance, (
        f"{name}: {what}: {a[at]!r} against {e[at]!r}, difference {difference[at]:.3g} "
        f"above {tolerance:g}"
    )


def check(name: str, holds: bool, what: str) -> None:
    """Assert a fact that is no number, and count it."""
    _OF_THIS_TEST.setdefault(name, Entry()).add(1)
    assert holds, f"{name}: {what}"


def drain() -> list[tuple[str, int, float, float]]:
    """What was compared since the last call, as plain values that a report can carry."""
    entries = [(name, e.count, e.difference, e.tolerance) for name, e in _OF_THIS_TEST.items()]
    _OF_THIS_TEST.clear()
    return entries


@dataclass
class Section:
    """What became of the tests of a section, and what they compared, by name."""

    outcomes: dict[str, int] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)

    def n(self, outcome: str) -> int:
        return self.outcomes.get(outcome, 0)

    @property
    def compared(self) -> int:
        return sum(e.count for e in self.entries.values())

    def worst(self) -> str:
        """The difference nearest to its tolerance, and of what."""
        if not self.entries:
            return ""
        name, entry = max(self.entries.items(), key=lambda item: (item[1].share, item[1].tolerance))
        return f"{as_text(entry)}  {name}" if entry.tolerance > 0 else "exact, or facts"


def as_text(entry: Entry) -> str:
    """A difference and its allowance."""
    if entry.difference == 0 and entry.tolerance == 0:
        return "exact, or facts"
    return f"{entry.difference:7.1e} / {entry.tolerance:7.1e} {entry.share:5.0%}"


def summary(
    tests: Iterable[tuple[str, str]],
    compared: Iterable[tuple[str, list[tuple[str, int, float, float]]]],
    skips: Iterable[tuple[str, str]],
    *,
    details: bool = False,
) -> list[str]:
    """The end of a run: a line per section, why tests were skipped, what failed, and the total.

    Parameters
    ----------
    tests : pairs of section and outcome: passed, failed or skipped
    compared : pairs of section and what `drain` gave
    skips : pairs of section and reason, one for each skipped test
    details : also a line for each kind of comparison
    """
    sections: dict[str, Section] = {name: Section() for name in SECTIONS}
    for name, outcome in tests:
        outcomes = sections.setdefault(name, Section()).outcomes
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    for name, entries in compared:
        of_section = sections.setdefault(name, Section()).entries
        for kind, *figures in entries:
            of_section.setdefault(kind, Entry()).add(*figures)
    sections = {name: section for name, section in sections.items() if section.outcomes}
    lines = [
        f"{'section':<24} {'passed':>6} {'failed':>6} {'skipped':>7} {'compared':>8}   "
        "nearest to its limit: difference / allowed"
    ]
    for name, section in sections.items():
        counts = "{:>6} {:>6} {:>7}".format(*map(section.n, ("passed", "failed", "skipped")))
        lines.append(f"{name:<24} {counts} {section.compared:>8,}   {section.worst()}".rstrip())
        if details:
            lines += [
                f"  {kind:<60} {entry.count:>8,}   {as_text(entry)}"
                for kind, entry in sorted(section.entries.items())
            ]
    lines.append(
        "Differences are absolute, in the unit of the figure: rates from 0 to 1, a z-value in "
        "standard deviations." + ("" if details else " More with -v.")
    )
    reasons: dict[str, list[str]] = {}
    for name, reason in skips:
        reasons.setdefault(reason, []).append(name)
    for reason, where in reasons.items():
        lines.append(f"skipped {len(where)} ({', '.join(dict.fromkeys(where))}): {reason}")
    failed = [f"{name} ({s.n('failed')})" for name, s in sections.items() if s.n("failed")]
    lines.append(f"FAILED: {', '.join(failed)}" if failed else "No section failed.")
    passed, broken, skipped = (
        sum(s.n(outcome) for s in sections.values()) for outcome in ("passed", "failed", "skipped")
    )
    total = sum(s.compared for s in sections.values())
    lines.append(
        f"Total: {passed} tests passed, {broken} failed, {skipped} skipped; {total:,} comparisons."
    )
    return lines


@contextmanager
def quiet() -> Iterator[None]:
    """Keep cfair's advice quiet where a case is meant to be difficult."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CfairWarning)
        yield
