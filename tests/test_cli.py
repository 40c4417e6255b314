"""The command line as a user meets it: output, files, exit codes, one line of error."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings

import bad_inputs as bad
import matplotlib
import pandas as pd
import pytest

import cfair
from cfair.cli import main, read_table
from cfair.cli.files import Folder
from cfair.cli.flags import as_options

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


def test_example_prints_both_analyses_and_writes_tables_and_plots(tmp_path, capsys, monkeypatch):
    pytest.importorskip("jinja2")
    out = tmp_path / "example"

    def report(audit, path, *results, **more):  # the page itself has tests of its own
        path.write_text(" ".join(type(result).__name__ for result in results))
        return path

    monkeypatch.setattr(cfair.Audit, "report", report)
    assert main(["example", "--out", str(out), "--n-boot", "40", "--n-perm", "40"]) == 0
    said = capsys.readouterr().out
    assert "Observed rates by group" in said
    assert "Counterfactual error rates under no treatment" in said
    assert "treated ~ sex * race + risk + age + sbp" in said
    names = {path.name for path in out.iterdir()}
    assert {"counterfactual_rates.csv", "counterfactual_rates.png", "null_cfpr.png"} <= names
    assert {"observed_gaps.csv", "performance_roc.png", "table_one.md"} <= names
    assert {"representation_cells.csv", "observed_forest.png"} <= names
    assert f"{len(names)} files in" in said
    assert "PerformanceResult" in (out / "report.html").read_text()
    rates = pd.read_csv(out / "counterfactual_rates.csv")
    assert set(rates["metric"]) == {"cfpr", "cfnr", "fpr", "fnr"}


def test_audit_gives_the_numbers_of_the_library(table, tmp_path, capsys):
    out = tmp_path / "out"
    assert audit(table, "--propensity", PROPENSITY, "--out", str(out), "--no-plots") == 0
    assert not list(out.glob("*.png"))
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


@pytest.mark.parametrize("suffix", [".yaml", ".toml"])
def test_several_values_can_be_the_event(tmp_path, capsys, suffix):
    path, settings = tmp_path / "t.csv", tmp_path / f"t{suffix}"
    t = bad.bl12_text_outcome()
    t.loc[t.index[t["y"] == "died"][:10], "y"] = "Died"
    t.to_csv(path, index=False)
    assert audit(path, "--outcome-event", "died") == 2
    both = ("--outcome-event", "Died", "--outcome-event", "died")
    assert "--outcome-event died --outcome-event Died" in capsys.readouterr().err
    assert audit(path, *both, "--write-settings", str(settings)) == 0
    assert "210" in capsys.readouterr().out
    assert '["Died", "died"]' in settings.read_text()


BAD_CALLS = [
    (["--propensity", "d ~ nothing"], "'nothing' is not a column"),
    (["--propensity", "d ~ ().__class__"], "formula"),
    (["--cutoff", "7"], "cutoff"),
    (["--level", "95"], "level"),
    (["--n-boot", "-1", "--propensity", PROPENSITY], "--n-boot"),
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
    assert as_options(message) == said


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
    out.mkdir()
    for name in ("counterfactual.txt", "my_notes.txt", "observed.txt"):
        write(out / name, "older")
    audit(table, "--out", str(out), "--no-plots")
    assert "earlier run in this folder: counterfactual.txt.\n" in capsys.readouterr().out


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


def test_a_reference_group_is_compared_with(table, tmp_path, capsys):
    out = tmp_path / "out"
    assert audit(table, "--reference", "M & White", "--out", str(out), "--no-plots") == 0
    assert "to M & White" in capsys.readouterr().out
    assert set(pd.read_csv(out / "observed_contrasts.csv")["reference"]) == {"M & White"}


def test_an_unknown_reference_is_refused_before_any_work(table, capsys):
    assert audit(table, "--reference", "nobody") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "'nobody' is not a group of sex x race" in printed.err


# -- flags that need others, and that are refused without -------

USELESS = [
    (["--margin", "0.8", "1.25"], "--equivalence METRIC"),
    (["--contrast", "ratio"], "--equivalence METRIC"),
    (["--title", "A"], "--html FILE"),
    (["--guideline", "tripod+ai"], "--html FILE"),
    (["--treatment-event", "yes"], "--propensity"),
    (["--folds", "3"], "--propensity"),
    (["--equivalence", "cfpr"], "--propensity"),
    (["--equivalence", "tpr", "--contrast", "difference"], "--margin -0.05 0.05"),
    (["--equivalence", "tpf"], "'tpr'"),
    (["--equivalence", "tpr", "--margin", "2", "3"], "margin"),
    (["--equivalence", "tpr", "--margin", "0.05"], "--contrast difference"),
    (["--suppress-below", "1"], "--suppress-below must be"),
]


@pytest.mark.parametrize(("options", "word"), USELESS, ids=[" ".join(o) for o, _ in USELESS])
def test_a_flag_without_effect_is_refused_before_any_output(table, capsys, options, word):
    assert audit(table, *options) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.strip().splitlines()) == 1
    assert word in printed.err


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["audit", "t.csv", "--scor", "s", "--outcome", "y", "--groups", "g"], "--score"),
        (["audit", "--outcome", "y", "--groups", "sex", "t.csv"], "FILE comes first"),
        (["audit", "t.csv", "--outcome", "y", "--groups", "g", "--cutoff", "x"], "--cutoff"),
        (["power"], "--prevalence"),
        (["audti"], "'audit'"),
        ([], "COMMAND"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_one_line(capsys, options, word):
    with pytest.raises(SystemExit) as stopped:
        main(options)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("cfair: error: ")
    assert len(error.strip().splitlines()) == 1
    assert word in error
    assert "--help" in error


@pytest.mark.parametrize("command", [None, "example", "audit", "representation", "power"])
def test_help_fits_80_columns_and_names_the_exit_codes(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"] if command else ["--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if len(line) > 80] == []
    assert "exit codes: 0 done; 2 the options" in said


def test_ctrl_c_ends_with_130(table, capsys, monkeypatch):
    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(cfair.Audit, "observed", stopped)
    assert audit(table) == 130
    assert capsys.readouterr().err == "cfair: stopped\n"


# -- equivalence, and disclosure control ------------------------


def test_equivalence_of_rates_and_of_the_score_is_that_of_the_library(table, tmp_path, capsys):
    out = tmp_path / "out"
    more = ["--equivalence", "sensitivity,cfpr", "auc", "--margin", "0.5", "2"]
    more += ["--reference", "M & White", "--propensity", PROPENSITY]
    assert audit(table, *more, "--out", str(out), "--no-plots") == 0
    a = cfair.Audit(bad.cohort(), outcome="y", score="s", cutoff=0.5, groups=["sex", "race"])
    asked = {"margin": (0.5, 2.0), "reference": "M & White"}
    warnings.simplefilter("ignore", cfair.errors.CfairWarning)  # small cells; pytest restores
    direct = {
        "observed": a.equivalence("tpr", **asked),
        "performance": a.performance().equivalence("auc", **asked),
        "counterfactual": a.counterfactual(PROPENSITY).equivalence("cfpr", **asked),
    }
    said = capsys.readouterr().out
    for name, result in direct.items():
        assert str(result) in said
        written = pd.read_csv(out / f"equivalence_{name}_pairs.csv")
        pd.testing.assert_series_equal(written["estimate"], result.pairs["estimate"])


def test_a_sentence_per_metric_stands_before_the_pairs(table, capsys):
    more = ["--equivalence", "sensitivity", "specificity", "--margin", "0.5", "2"]
    assert audit(table, *more) == 0
    said = capsys.readouterr().out
    a = cfair.Audit(bad.cohort(), outcome="y", score="s", cutoff=0.5, groups=["sex", "race"])
    warnings.simplefilter("ignore", cfair.errors.CfairWarning)  # small cells; pytest restores
    overall = a.equivalence(["tpr", "tnr"], margin=(0.5, 2.0)).overall
    lead = said[: said.index("Equivalence of rates")]
    words = " ".join(lead.split())
    for label, row in zip(("TPR", "TNR"), overall.to_dict("records"), strict=True):
        undecided = row["pairs"] - row["equivalent"] - row["different"]
        assert (
            f"{label}: of {row['pairs']} pairs of groups, {row['equivalent']} equivalent (ratio "
            f"within 0.5 to 2), {row['different']} different, {undecided} undecided"
        ) in words


def test_a_figure_of_too_many_pairs_is_left_out_and_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr("cfair.plotting.equivalence.MOST_ROWS", 3)
    warnings.simplefilter("ignore", cfair.errors.CfairWarning)  # small cells; pytest restores
    a = cfair.Audit(bad.cohort(), outcome="y", score="s", cutoff=0.5, groups=["sex", "race"])
    folder = Folder(tmp_path / "out")
    folder.plot("equivalence_observed", a.equivalence("tpr").plot)
    assert folder.written == []
    assert folder.without[0].startswith("a figure holds at most 3 pairs")


def test_masked_pairs_are_called_masked_in_the_sentence(table, capsys):
    assert audit(table, "--suppress-below", "25", "--equivalence", "tpr") == 0
    said = " ".join(capsys.readouterr().out.split())
    lead = said[: said.index("Equivalence of rates")]
    assert re.search(r"TPR: of \d+ pairs of groups, .* undecided \([^)]*\d+ masked\)\.", lead)
    assert "undefined)" not in lead


@pytest.mark.parametrize(
    ("name", "separator"),
    [("x.csv", ","), ("x.CSV.GZ", ","), ("my.csv.tsv", "\t"), ("old.csv.txt", "\t")],
)
def test_the_end_of_a_name_tells_what_separates_fields(tmp_path, name, separator):
    path = tmp_path / name
    bad.cohort().to_csv(path, index=False, sep=separator)
    if name.endswith("GZ"):  # pandas knows the suffix in small letters only
        bad.cohort().to_csv(path, index=False, compression="gzip")
    assert list(read_table(path).columns) == list(bad.cohort().columns)


def test_a_csv_that_became_parquet_is_read_as_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "my.csv.parquet"
    bad.cohort().to_parquet(path)
    assert list(read_table(path).columns) == list(bad.cohort().columns)


def test_small_counts_are_masked_in_all_that_is_written(table, tmp_path, capsys):
    out = tmp_path / "out"
    more = ["--suppress-below", "25", "--equivalence", "tpr", "--reference", "M & White"]
    assert audit(table, *more, "--out", str(out), "--no-plots") == 0
    said = capsys.readouterr().out
    assert "counts below 25 masked" in said
    assert "Not written: curves are masked by --suppress-below" in said
    pairs = pd.read_csv(out / "equivalence_observed_pairs.csv")
    hidden = pairs["note"].str.startswith("masked", na=False)
    assert hidden.any()
    assert set(pairs.loc[hidden, "verdict"]) == {"undefined"}
    rates = pd.read_csv(out / "observed_rates.csv")
    assert rates.loc[rates["note"].str.startswith("masked", na=False), "estimate"].isna().all()


# -- settings files ---------------------------------------------

YAML = """
outcome: y
score: s
groups: [sex, race]
cutoff: 0.4
na: ["NA", "?"]
level:
"""
TOML = """
outcome = "y"
score = "s"
groups = ["sex", "race"]
cutoff = 0.4
na = ["NA", "?"]
"""


def settings(tmp_path, text, suffix=".yaml"):
    if suffix == ".toml":
        pytest.importorskip("tomllib")
    else:
        pytest.importorskip("yaml")
    return str(write(tmp_path / f"audit{suffix}", text))


@pytest.mark.parametrize(("text", "suffix"), [(YAML, ".yaml"), (YAML, ".yml"), (TOML, ".toml")])
def test_a_settings_file_gives_what_flags_give(table, tmp_path, capsys, text, suffix):
    path = settings(tmp_path, text, suffix)
    assert audit(table, "--cutoff", "0.4", "--na", "NA", "--na", "?") == 0
    expected = capsys.readouterr().out
    assert main(["audit", str(table), "--settings", path]) == 0
    assert capsys.readouterr().out == expected


def test_the_command_line_wins(table, tmp_path, capsys):
    path = settings(tmp_path, YAML)
    assert main(["audit", str(table), "--settings", path, "--cutoff=0.7", "--groups", "sex"]) == 0
    said = capsys.readouterr().out
    assert "s >= 0.7" in said
    assert "race" not in said


def test_underscores_flags_without_value_and_yes_are_understood(tmp_path, capsys):
    data = bad.cohort()
    data["y"] = data["y"].map({0: "no", 1: "yes"})
    data.to_csv(tmp_path / "t.csv", index=False)
    text = f"{YAML}outcome_event: yes\nno-plots: true\nout: {tmp_path / 'out'}\n"
    path = settings(tmp_path, text)
    assert main(["audit", str(tmp_path / "t.csv"), "--settings", path]) == 0
    assert "event yes: 210" in capsys.readouterr().out
    assert not list((tmp_path / "out").glob("*.png"))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("scor: s\n", "no option. Did you mean score"),
        ("settings: other.yaml\n", "no option"),
        ("outcome_event: 1\noutcome-event: 1\n", "twice"),
        ("score: [s, t]\n", "one value"),
        ("margin: {low: 1}\n", "not a table"),
        ("no-plots: maybe\n", "true or false"),
        ("- outcome\n", "lines such as"),
        ("a: [\n", "cannot be read"),
    ],
)
def test_a_wrong_settings_file_is_one_clear_line(table, tmp_path, capsys, text, word):
    path = settings(tmp_path, text)
    assert main(["audit", str(table), "--settings", path]) == 2
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert word in error


def test_settings_that_cannot_be_read_here_say_what_to_install(
    table, tmp_path, capsys, monkeypatch
):
    from cfair.cli import settings as module

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(module, "import_module", missing)
    for suffix, word in ((".yaml", "pip install pyyaml"), (".toml", "Python 3.11")):
        path = write(tmp_path / f"a{suffix}", "")
        assert main(["audit", str(table), "--settings", str(path)]) == 2
        assert word in capsys.readouterr().err
    for path, word in (("none.yaml", "no file"), ("audit.ini", "must end in")):
        assert main(["audit", str(table), "--settings", str(tmp_path / path)]) == 2
        assert word in capsys.readouterr().err


HOLES = ["--missing", "drop", "--suppress-below", "11", "--propensity", PROPENSITY]


@pytest.fixture
def holes(tmp_path):
    """A file in which a covariate and the treatment are missing in some rows."""
    table = bad.cohort(900)
    table.loc[:35, "age"] = float("nan")
    table.loc[30:49, "d"] = float("nan")
    path = tmp_path / "holes.csv"
    table.to_csv(path, index=False)
    return path


@pytest.mark.usefixtures("unsaved_pictures")
def test_with_masks_all_that_is_printed_and_written_is_of_the_same_rows(
    holes, tmp_path, capsys, monkeypatch
):
    pytest.importorskip("jinja2")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, path, **_: path.touch())
    out = tmp_path / "out"
    assert audit(holes, *HOLES, "--out", str(out), "--html", str(tmp_path / "r.html")) == 0
    said = capsys.readouterr().out
    used = [line for line in said.splitlines() if line.startswith("cohort ")]
    assert len(used) == 2
    assert all("850 used" in line for line in used)
    for name in ("observed_rates", "counterfactual_rates", "performance_rates"):
        assert pd.read_csv(out / f"{name}.csv").groupby("metric")["n"].sum().max() <= 850
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Left out: " not in page
    assert "d = 1" in page


def test_with_masks_missing_covariates_end_before_any_output(holes, tmp_path, capsys):
    options = [text for text in HOLES if text not in ("--missing", "drop")]
    assert audit(holes, *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "'d' (20 rows)" in captured.err
    assert "--missing drop" in captured.err


@pytest.mark.parametrize("below", ["11", "400"])
def test_what_masks_keep_from_a_plot_is_said_and_the_rest_is_written(
    below, table, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, path, **_: path.touch())
    out = tmp_path / "out"
    more = ["--suppress-below", below, "--propensity", PROPENSITY, "--n-perm", "5"]
    assert audit(table, *more, "--out", str(out)) == 0
    said = capsys.readouterr().out
    names = {path.name for path in out.iterdir()}
    assert {"representation.txt", "table_one.md", "observed_rates.csv"} <= names
    drawn = "representation.png" in names
    assert drawn == (below == "11")
    assert drawn != ("Not written: the areas of a mosaic are the counts" in said)
    assert said.count("Not written: curves are masked by --suppress-below") == 1
    assert main(["representation", str(table), "--cross", "sex", "race", "--suppress-below", below,
                 "--out", str(out)]) == 0  # fmt: skip
    assert drawn != ("Not written: the areas of a mosaic" in capsys.readouterr().out)
