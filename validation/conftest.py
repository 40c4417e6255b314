"""One R for all tests, and the report of what was compared and what was not."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from validation.ledger import drain, section_of, summary

HERE = Path(__file__).parent
SECTION, COMPARED = "section", "compared"

# Only the tests are collected. The scripts that are run by hand (their tables are committed) would
# else be imported in search of doctests, as modules of no package.
collect_ignore = [path.name for path in HERE.glob("*.py") if not path.name.startswith("test_")]


def pytest_collection_modifyitems(items) -> None:
    """Write the section of README.md on each test, for the report at the end."""
    for item in items:
        if item.path.is_relative_to(HERE):
            implementation = getattr(item, "callspec", None) and item.callspec.params.get(
                "original"
            )
            file = item.path.relative_to(HERE).as_posix()
            item.user_properties.append((SECTION, section_of(file, implementation or "")))


def pytest_runtest_teardown(item) -> None:
    """Hand what the test compared to its report, which reaches the end from any process."""
    item.user_properties.append((COMPARED, drain()))


def pytest_terminal_summary(terminalreporter) -> None:
    """Say section by section how many tests ran, what they compared, and why others did not."""
    reports = [
        (dict(report.user_properties), report)
        for of_kind in terminalreporter.stats.values()
        for report in of_kind
        if isinstance(report, pytest.TestReport) and SECTION in dict(report.user_properties)
    ]
    if not reports:
        return
    tests, compared, skips = [], [], []
    for properties, report in reports:
        section = properties[SECTION]
        if report.when == "call" or report.outcome != "passed":  # setup and teardown may fail, too
            tests.append((section, report.outcome))
        if report.when == "teardown":
            compared.append((section, properties[COMPARED]))
        if report.skipped:
            where = report.longrepr
            reason = where[2] if isinstance(where, tuple) else str(where)
            skips.append((section, reason.removeprefix("Skipped: ")))
    terminalreporter.section("what was compared with what (validation/README.md)")
    details = terminalreporter.config.get_verbosity() > 0
    for line in summary(tests, compared, skips, details=details):
        terminalreporter.line(line)
    if len(skips) == len(terminalreporter.stats.get("skipped", ())):
        # pytest's own list would have them again, each file by itself
        terminalreporter.reportchars = terminalreporter.reportchars.replace("s", "")


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
