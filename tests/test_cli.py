"""The command line as a user meets it: output, files, exit codes, one line of error."""

from __future__ import annotations

import subprocess
import sys

import bad_inputs as bad
import matplotlib
import pandas as pd
import pytest

import cfair
from cfair.cli import _as_options, main, read_table

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


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_with_a_separator_too_many_keeps_its_columns(tmp_path):
    path = write(tmp_path / "t.csv", "x,race,y\n1,B,0,\n2,W,1,\n")
    assert read_table(path)["race"].tolist() == ["B", "W"]


def test_a_field_too_many_is_refused(tmp_path, capsys):
    path = write(tmp_path / "t.csv", "y,s,sex,race\n1,0.3,F,B,9\n0,0.6,M,W,9\n")
    assert audit(path) == 2
    assert "more fields" in capsys.readouterr().err


def test_a_header_with_one_name_twice_is_refused(tmp_path, capsys):
    path = write(tmp_path / "t.csv", "y,s,sex,race,race\n1,0.3,F,B,W\n")
    assert audit(path) == 2
    assert "two columns called 'race'" in capsys.readouterr().err


def test_another_separator_is_named(tmp_path, capsys):
    path = write(tmp_path / "t.csv", "y;s;sex;race\n1;0.3;F;B\n")
    assert audit(path) == 2
    assert "';'" in capsys.readouterr().err


def test_labels_stay_as_they_are_written(tmp_path):
    path = write(tmp_path / "t.csv", "race,site\n01,10\n1,9\n001,9\n")
    table = read_table(path, text=["race", "site"])
    assert table["race"].tolist() == ["01", "1", "001"]
    assert table["site"].tolist() == [10, 9, 9]


def test_na_is_asked_about(tmp_path, capsys):
    path = write(tmp_path / "t.csv", "y,s,sex,race\n1,0.3,F,NA\n0,0.6,M,W\n1,0.7,M,NA\n")
    assert audit(path) == 2
    assert "text NA in 2 rows" in capsys.readouterr().err
    assert audit(path, "--na", "") == 0
    assert "NA" in capsys.readouterr().out
    assert audit(path, "--na", "NA") == 2
    assert "--missing drop" in capsys.readouterr().err


def test_errors_name_options_as_they_are_written_here(tmp_path, capsys):
    path = tmp_path / "t.csv"
    bad.bl12_text_outcome().to_csv(path, index=False)
    assert audit(path) == 2
    assert "--outcome-event died" in capsys.readouterr().err
    assert audit(path, "--outcome-event", "2") == 2
    assert "--outcome-event 2 does not occur" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("outcome_event='2' is", "--outcome-event 2 is"),
        ('outcome_event="it\'s" is', "--outcome-event 'it'\"'\"'s' is"),
        ("cutoff=0.5, level=-1", "--cutoff 0.5, --level -1"),
        (
            "give score= with cutoff=, or prediction=.",
            "give --score with --cutoff, or --prediction.",
        ),
        ("(missing=)", "(--missing)"),
    ],
)
def test_options_are_written_with_a_blank(message, said):
    assert _as_options(message) == said


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("command", ["audit", "representation"])
def test_a_file_in_place_of_the_folder_is_refused_before_any_work(
    table, tmp_path, capsys, command, below
):
    there = write(tmp_path / "there", "kept")
    out = ["--out", str(there / "deeper" if below else there)]
    if command == "audit":
        assert audit(table, *out) == 2
    else:
        assert main(["representation", str(table), "--cross", "sex", *out]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "is a file, not a folder" in printed.err
    assert there.read_text() == "kept"


def test_groups_may_have_commas_between(table, capsys):
    assert audit(table) == 0
    expected = capsys.readouterr().out
    for groups in (["sex,race"], ["sex, race"], ["sex,", "race"]):
        assert audit(table, groups=groups) == 0
        assert capsys.readouterr().out == expected


def test_a_name_with_a_comma_is_a_name(tmp_path, capsys):
    path = write(tmp_path / "t.csv", 'y,s,"sex,race"\n1,0.3,01\n0,0.6,1\n1,0.7,01\n0,0.2,1\n')
    assert audit(path, groups=["sex,race"]) == 0
    assert "01" in capsys.readouterr().out


def test_files_of_an_earlier_run_are_pointed_out(table, tmp_path, capsys):
    out = tmp_path / "out"
    audit(table, "--propensity", PROPENSITY, "--n-perm", "5", "--out", str(out))
    capsys.readouterr()
    audit(table, "--out", str(out))
    assert "Left from an earlier run in this folder: counterfactual.txt" in capsys.readouterr().out


def test_an_outcome_model_folds_and_weights(table, capsys):
    frame = pd.read_csv(table).assign(w=lambda t: 1 + (t["sex"] == "F"))
    frame.to_csv(table, index=False)
    more = ["--outcome-model", "y ~ sex * race + s", "--folds", "3", "--weights", "w"]
    assert audit(table, "--propensity", PROPENSITY, *more) == 0
    said = capsys.readouterr().out
    assert "doubly robust (AIPW)" in said
    assert "3 drawn, stratified" in said
    assert "scaled to mean 1" in said


def test_an_outcome_model_without_a_propensity_is_refused(table, capsys):
    assert audit(table, "--outcome-model", "y ~ s") == 2
    assert "need --propensity" in capsys.readouterr().err


def test_replicates_without_a_propensity_are_refused(table, capsys):
    assert audit(table, "--n-perm", "5") == 2
    assert "need --propensity" in capsys.readouterr().err


def test_a_reference_group_is_compared_with(table, tmp_path):
    out = tmp_path / "out"
    assert audit(table, "--reference", "M & White", "--out", str(out)) == 0
    assert set(pd.read_csv(out / "observed_contrasts.csv")["reference"]) == {"M & White"}


def test_an_unknown_reference_is_refused_before_any_work(table, capsys):
    assert audit(table, "--reference", "nobody") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "'nobody' is not a group of sex x race" in printed.err
