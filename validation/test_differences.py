"""The table of differences in README.md is what `differences.py` computes, its sections ours."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from validation import differences
from validation.ledger import PACKAGE, SECTIONS, check, compare, section_of

SECTION = "differences from faircfint"
README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
BY_NAME = {row.__name__: row for row in differences.ROWS}
#: Of figures behind which a `multinom` stands that stopped short of the maximum; alpha by AUC is a
#: step function. Intervals and means of subsamples 1e-8, others 1e-11.
MULTINOM = {
    "membership_sums": 5e-5,
    "external_scaling": 5e-5,
    "small_rate_of_0": 5e-5,
    "borrowing_by_auc": 0.01,
}
SUBSAMPLES = ("bootstrap_of_another_model", "t_interval", "normal_interval")


@cache
def shown(name: str) -> differences.Shown:
    if name == "other_data_frames":
        pytest.importorskip("polars")
    return BY_NAME[name]()


@pytest.mark.parametrize("name", BY_NAME)
def test_with_compat_it_is_as_recorded_or_refused_and_otherwise_it_differs(name):
    found = shown(name)
    numbers = not isinstance(found.r, str) and not isinstance(found.compat, str)
    if numbers and name != "other_data_frames":  # these have no compat: all of them are read
        tolerance = MULTINOM.get(name, 1e-8 if name in SUBSAMPLES else 1e-11)
        if np.isinf(found.r):
            check(SECTION, found.compat == found.r, name)
        else:
            compare(SECTION, found.compat, found.r, tolerance, name)
    elif name != "constant_covariate":  # R stops, and neither way has to
        as_r = found.compat in ("refused", found.r) or name == "other_data_frames"
        check(SECTION, as_r, f"{name}: as in R, or refused")
    r, own = (differences.as_text(v) for v in (found.r, found.cfair))
    check(SECTION, r != own, f"{name}: cfair differs visibly")


def test_the_table_of_the_readme():
    pytest.importorskip("polars")
    lines = differences.table()
    written = [line for line in README.splitlines() if line.startswith("|")]
    start = written.index(lines[0])
    for line, in_readme in zip(lines, written[start:], strict=False):
        check(SECTION, line == in_readme, f"README.md has {in_readme!r}, computed is {line!r}")
    after = written[start + len(lines) :]
    check(SECTION, not any(f"`{n}` |" in line for line in after for n in BY_NAME), "no row more")


def test_every_example_is_a_row():
    examples = {
        name
        for name, f in vars(differences).items()
        if callable(f) and getattr(f, "__annotations__", {}).get("return") == "Shown"
    }
    assert examples - {"both", "small", "first_label", "borrowed"} == set(BY_NAME)


def test_every_test_file_stands_in_a_section_of_the_readme():
    here = Path(__file__).parent
    files = [f.relative_to(here).as_posix() for f in here.rglob("test_*.py")]
    assert {section_of(f) for f in files} | {PACKAGE} == set(SECTIONS)
    table = README.split("## Sections")[1].split("\n## ")[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if "|" in line]
    assert rows[2:] == list(SECTIONS)
