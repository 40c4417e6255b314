"""Reports, at the end of a run, what was compared and what was not."""

from __future__ import annotations

from validation.ledger import SECTIONS

# Scripts that are run by hand; their tables are committed.
collect_ignore = ["coverage.py", "benchmark.py"]


def pytest_terminal_summary(terminalreporter) -> None:
    """Say which sections ran, with how many comparisons, and why others did not."""
    if not SECTIONS and not terminalreporter.stats.get("skipped"):
        return
    terminalreporter.section("what was compared")
    for name, entry in SECTIONS.items():
        terminalreporter.line(
            f"{name:<58} {entry.count:>7,}   largest difference {entry.worst:.1e}, "
            f"allowed up to {entry.tolerance:.0e}"
        )
    total = sum(entry.count for entry in SECTIONS.values())
    terminalreporter.line(f"{'all':<58} {total:>7,}")
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason] = reasons.get(reason, 0) + 1
    for reason, n in reasons.items():
        terminalreporter.line(f"skipped ({n}): {reason}")
