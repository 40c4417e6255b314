"""The command line as a user meets it: output, files, exit codes, one line of error."""

from __future__ import annotations

import subprocess
import sys

import bad_inputs as bad
import matplotlib
import pandas as pd
import pytest

import cfair
from cfair.cli import main, read_table

matplotlib.use("Agg")

PROPENSITY = "d ~ sex * race + s + age"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "patients.csv"
    bad.cohort().to_csv(path, index=False)
    return path


def audit(path, *options, groups=("sex", "race")):
    return main(
        ["audit", str(path), "--outcome", "y", "--score", "s", "--groups", *groups, *options]
    )


def test_example_prints_both_analyses_and_writes_tables_and_plots(tmp_path, capsys):
    out = tmp_path / "example"
    assert main(["example", "--out", str(out), "--n-boot", "40", "--n-perm", "40"]) == 0
    said = capsys.readouterr().out
    assert "Observed rates by group" in said
    assert "Counterfactual error rates under no treatment" in said
    assert "treated ~ sex * race + risk + age + sbp" in said
    names = {path.name for path in out.iterdir()}
    assert {"counterfactual_rates.csv", "counterfactual_rates.png", "null_cfpr.png"} <= names
    assert f"{len(names)} files in" in said
    rates = pd.read_csv(out / "counterfactual_rates.csv")
    assert set(rates["metric"]) == {"cfpr", "cfnr", "fpr", "fnr"}


def test_audit_gives_the_numbers_of_the_library(table, tmp_path, capsys):
    out = tmp_path / "out"
    assert audit(table, "--propensity", PROPENSITY, "--out", str(out)) == 0
    direct = cfair.Audit(
        bad.cohort(), outcome="y", score="s", cutoff=0.5, groups=["sex", "race"]
    ).counterfactual(PROPENSITY)
    assert str(direct) in capsys.readouterr().out
    written = pd.read_csv(out / "counterfactual_rates.csv")
    pd.testing.assert_series_equal(written["estimate"], direct.rates["estimate"])


def test_audit_reads_parquet(table, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    path = tmp_path / "patients.parquet"
    pd.read_csv(table).to_parquet(path)
    assert audit(path) == 0
    assert "600 rows, 600 used" in capsys.readouterr().out


def test_without_a_propensity_only_observed_rates_are_given(table, capsys):
    assert audit(table) == 0
    said = capsys.readouterr().out
    assert "Observed rates" in said
    assert "Counterfactual error rates" not in said
    assert "--propensity" in said


def test_a_text_outcome_takes_its_event_from_the_command_line(tmp_path, capsys):
    path = tmp_path / "t.csv"
    bad.bl12_text_outcome().to_csv(path, index=False)
    assert audit(path, "--outcome-event", "died") == 0
    assert "event died: 210" in capsys.readouterr().out


def test_a_number_written_as_text_is_found_among_the_values(tmp_path, capsys):
    path = tmp_path / "t.csv"
    bad.bl13_other_codes((1, 2)).to_csv(path, index=False)
    assert audit(path, "--outcome-event", "2") == 0
    assert "event 2: 210" in capsys.readouterr().out


BAD_CALLS = [
    (["--propensity", "d ~ nothing"], "'nothing' is not a column"),
    (["--propensity", "d ~ ().__class__"], "formula"),
    (["--cutoff", "7"], "cutoff"),
    (["--level", "95"], "level"),
    (["--n-boot", "-1", "--propensity", PROPENSITY], "n_boot"),
    (["--prediction", "age"], "age"),
    (["--outcome-event", "9"], "9"),
]


@pytest.mark.parametrize(("options", "word"), BAD_CALLS, ids=[" ".join(o) for o, _ in BAD_CALLS])
def test_bad_input_ends_with_2_and_one_clear_line(table, capsys, options, word):
    assert audit(table, *options) == 2
    error = capsys.readouterr().err
    assert error.startswith("cfair: error: ")
    assert len(error.strip().splitlines()) == 1
    assert word in error


def test_a_missing_file_and_an_unknown_kind_are_said(tmp_path, capsys):
    assert audit(tmp_path / "no.csv") == 2
    assert "there is no file" in capsys.readouterr().err
    other = tmp_path / "table.docx"
    other.write_text("x")
    assert audit(other) == 2
    assert "must end in .csv" in capsys.readouterr().err


def test_only_an_empty_field_is_missing_unless_a_text_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("race,x\nNA,1\nNone,2\n,NA\n", encoding="utf-8")
    assert read_table(path)["race"].isna().tolist() == [False, False, True]
    assert read_table(path, ["NA"])["race"].isna().tolist() == [True, False, True]


def test_python_m_cfair_runs_and_help_reads(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "cfair", "--help"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0
    assert "cfair example" in done.stdout
    nothing = subprocess.run(
        [sys.executable, "-m", "cfair"], capture_output=True, text=True, cwd=tmp_path
    )
    assert nothing.returncode == 2
