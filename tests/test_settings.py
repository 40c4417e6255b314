"""Settings that a call writes down give the same call again."""

from pathlib import Path

import pytest

import cfair
from cfair.cli import main
from cfair.cli.flags import Parser
from cfair.cli.settings import with_settings, written


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "patients.csv"
    cfair.load_cohort().iloc[:400].to_csv(path, index=False)
    return str(path)


def parser():
    found = Parser(prog="x")
    found.add_argument("--settings", type=Path)
    found.add_argument("--write-settings", type=Path)
    found.add_argument("--groups", nargs="+")
    found.add_argument("--event")
    found.add_argument("--na", action="append", default=[])
    found.add_argument("--level", type=float, default=0.95)
    found.add_argument("--margin", type=float, nargs=2)
    found.add_argument("--n", type=int)
    found.add_argument("--html", type=Path)
    found.add_argument("--no-plots", dest="plots", action="store_false")
    return found


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".toml"])
@pytest.mark.parametrize(
    "call",
    [
        ["--groups", "sex", "a b", "--event", "yes", "--n", "3", "--no-plots"],
        ["--event=007", "--na=", "--na=NA", "--na=#", "--level=0.9", "--margin", "0.8", "1.25"],
        ["--groups", 'q"u', "b: c", "[d]", "--event=died ~ a\\b 'x'", "--html=a/é 中.html"],
        ["--event=\x7f\ttab \u2028", "--n=0"],
        [],
    ],
)
def test_what_is_written_is_read_back(tmp_path, suffix, call):
    if suffix == ".toml":
        pytest.importorskip("tomllib")
    else:
        pytest.importorskip("yaml")
    own, path = parser(), tmp_path / f"s{suffix}"
    given = vars(own.parse_args(call))
    path.write_text(written(path, given, own.flags), encoding="utf-8")
    again = vars(own.parse_args(with_settings(["--settings", str(path)], own)))
    assert {**again, "settings": None} == given


@pytest.mark.parametrize("suffix", [".yaml", ".toml"])
def test_a_call_from_its_own_settings_prints_the_same(table, tmp_path, capsys, suffix):
    pytest.importorskip("tomllib" if suffix == ".toml" else "yaml")
    target = tmp_path / f"audit{suffix}"
    call = ["audit", table, "--outcome", "readmitted", "--score", "risk", "--cutoff", "0.4"]
    call += ["--groups", "sex,race", "--level", "0.9", "--min-group-size=5"]
    assert main([*call, "--write-settings", str(target)]) == 0
    printed = capsys.readouterr().out
    assert f"The options of this call: {target}" in printed
    assert "seed" not in target.read_text(encoding="utf-8")  # defaults are not written
    assert main(["audit", table, "--settings", str(target)]) == 0
    assert capsys.readouterr().out == printed.partition("\nThe options of this call")[0]


def test_a_file_that_cannot_be_written_is_refused_before_any_work(table, tmp_path, capsys):
    call = ["audit", table, "--outcome", "readmitted", "--score", "risk", "--groups", "sex"]
    for path, word in ((tmp_path / "a.json", ".toml"), (tmp_path / "no" / "a.toml", "no folder")):
        assert main([*call, "--write-settings", str(path)]) == 2
        out, err = capsys.readouterr()
        assert word in err
        assert out == ""
        assert not path.exists()


def test_settings_are_not_written_where_the_call_is_wrong(table, tmp_path, capsys):
    target = tmp_path / "a.toml"
    call = ["audit", table, "--outcome", "nothing", "--score", "risk", "--groups", "sex"]
    assert main([*call, "--write-settings", str(target)]) == 2
    assert not target.exists()
    assert "nothing" in capsys.readouterr().err


def test_a_settings_file_cannot_ask_for_another(table, tmp_path, capsys):
    path = tmp_path / "a.toml"
    path.write_text('write-settings = "b.toml"\n', encoding="utf-8")
    assert main(["audit", table, "--settings", str(path)]) == 2
    assert "no option" in capsys.readouterr().err
