"""The README says what is true: its script runs, and its output is what comes out."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")

README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)\n```", README.read_text(encoding="utf-8"), re.S)


@pytest.fixture(scope="module")
def script():
    names: dict = {}
    exec(compile(blocks("python")[0], "README.md", "exec"), names)
    return names


def test_the_first_script_runs(script):
    assert script["result"].rates["estimate"].notna().all()


def test_the_printed_output_is_that_of_the_script(script):
    shown, printed = blocks("text")[0].splitlines(), str(script["result"]).splitlines()

    def fixed(lines):
        # the permutation lines hang on numpy's random streams; all else is deterministic
        start = next(i for i, line in enumerate(lines) if line.startswith("permutation"))
        return lines[:start] + lines[start + 3 :]

    assert fixed(shown) == fixed(printed)


def run(script, has):
    """Run the block that has this text after the first one; gives its names."""
    wanted = next(code for code in blocks("python") if has in code)
    names = dict(script)
    exec(compile(wanted, "README.md", "exec"), names)
    return names


def test_the_script_for_untidy_tables_runs(script):
    assert run(script, 'missing="drop"')["untidy"].cohort(["body mass"]).n_used < 5000


def test_the_report_and_the_tables_are_written(script, tmp_path, monkeypatch, capsys):
    for needed in ("jinja2", "great_tables", "openpyxl"):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    run(script, "audit.report(")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "TRIPOD+AI" in page
    assert (tmp_path / "tables.xlsx").exists()
    said = capsys.readouterr().out
    assert "Women & Black" in said
    assert "Widest gaps" in said
    assert "disclosure" in said


def test_the_observed_family_runs(script, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    names = run(script, "audit.performance()")
    assert (tmp_path / "plots" / "gaps.png").exists()
    assert names["fitted"].rates["estimate"].notna().any()


def test_the_script_of_batches_runs(script, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    run(script, "counterfactual_by_batches")


def test_the_other_estimators_run(script):
    pytest.importorskip("sklearn")
    run(script, "small_subgroups")


def test_the_script_of_equivalence_runs(script):
    assert run(script, "margin_from_patients")["margin"] == pytest.approx((0.83, 1.2), abs=0.01)


def test_every_script_is_run_here():
    here = Path(__file__).read_text(encoding="utf-8")
    marks = re.findall(r"run\(script, (?:'([^']+)'|\"([^\"]+)\")\)", here)
    marks = [a or b for a, b in marks] + ["analysis_estimation"]
    assert all(any(m in code for m in marks) for code in blocks("python")[1:])


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    assert [link for link in links if not (README.parent / link).exists()] == []
    assert (README.parent / "vignettes/images/cfair-output.png").stat().st_size < 100_000


def test_the_settings_file_has_only_options_that_there_are():
    from cfair.cli import _parser

    flags = _parser()[1]["audit"].flags
    named = re.findall(r"^([a-z-]+):", blocks("yaml")[0], re.M)
    assert named
    assert set(named) <= set(flags)


def test_flags_of_the_command_line_are_there():
    from cfair.cli import _parser

    flags = {flag for parser in _parser()[1].values() for flag in parser.flags}
    named = re.findall(r"(?<=[ `])--([a-z-]+)", README.read_text(encoding="utf-8"))
    assert set(named) <= flags | {"help"}


def test_the_script_from_r_runs_after_the_first_with_the_arguments_it_has_in_r(script):
    import cfair

    in_r = next(code for code in blocks("r") if "analysis_estimation" in code)
    ported = next(code for code in blocks("python") if "analysis_estimation" in code)
    names = dict(script)
    with warnings.catch_warnings():  # of small groups, whose rates are 0 in some subsamples
        warnings.simplefilter("ignore", cfair.errors.SmallGroupWarning)
        exec(compile(ported, "README.md", "exec"), names)
    assert names["result"].defs.filter(like="cfpr_").notna().all()
    assert len(names["result"].boot_out) == len(names["result"].table_null) == 500
    assert names["plots"].cfpr.axes

    def arguments(code, function):
        call = code[code.index(f"{function}(") :].split("\n)" if function[0] == "a" else "\n")[0]
        return re.findall(r"(\w+) ?=", call)

    for function in ("analysis_estimation", "get_plots"):
        assert arguments(in_r, function) == arguments(ported, function)


def test_both_commands_stand_behind_their_marks():
    text = README.read_text(encoding="utf-8")
    for mark, command in (("run", "cfair example"), ("test", "python -m pytest")):
        after = text.split(f"<!-- {mark} -->")[1]
        assert command in re.search(r"```bash\n(.*?)\n```", after, re.S).group(1)
