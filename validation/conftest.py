"""One R for all tests, and the report of what was compared and what was not."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

from validation.ledger import SECTIONS

# Scripts that are run by hand; their tables are committed.
collect_ignore = ["coverage.py", "benchmark.py", "benchmark_observed.py"]


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


class R:
    """R as a function of text; data go in as vectors, numbers come out as arrays."""

    def __init__(self, robjects) -> None:
        self._ro = robjects
        self.version = str(robjects.r("R.version.string")[0])

    def __call__(self, code: str) -> np.ndarray:
        """Run R code and return its value as an array of floats."""
        return np.asarray(self._ro.r(code), dtype=float)

    def run(self, code: str) -> None:
        """Run R code for what it does."""
        self._ro.r(code)

    def text(self, code: str) -> list[str]:
        """Run R code whose value is text."""
        return [str(x) for x in self._ro.r(code)]

    def put(self, name: str, values) -> None:
        """Give R a vector, a matrix or a data frame."""
        self._ro.globalenv[name] = self._vector(values)

    def _vector(self, values):
        ro = self._ro
        if isinstance(values, pd.DataFrame):
            return ro.DataFrame({c: self._vector(values[c]) for c in values})
        array = np.asarray(values)
        if array.dtype.kind in "OUS" or (isinstance(values, pd.Series) and values.dtype == object):
            return ro.StrVector([str(x) for x in array])
        if array.ndim == 2:
            flat = ro.FloatVector(array.ravel(order="F").astype(float))
            return ro.r["matrix"](flat, nrow=array.shape[0])
        if array.dtype.kind in "iub":
            return ro.IntVector(array.astype(int).tolist())
        return ro.FloatVector(array.astype(float).tolist())


@pytest.fixture(scope="session")
def r() -> R:
    """R, or a skip with the reason."""
    if shutil.which("R") is None:
        pytest.skip("R is not installed: no `R` on the PATH")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import rpy2.robjects as robjects
    except ImportError as error:
        pytest.skip(f"rpy2 is not installed: pip install 'cfair[validation]' ({error})")
    except Exception as error:  # R there but not loadable: rpy2 raises whatever it meets
        pytest.skip(f"rpy2 cannot start R: {error}")
    found = R(robjects)
    found.run('options(warn = -1, contrasts = c("contr.treatment", "contr.poly"))')
    return found
