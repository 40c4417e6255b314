"""Tables for papers: what is in them, in every format, and what text cannot do to them."""

import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

import cfair
from cfair.analyses.small_subgroup_notes import external_notes
from cfair.disclosure import MASKED
from cfair.errors import DataError, ModelWarning
from cfair.groups import make_groups
from cfair.tables import Cell, Table, to_excel, to_gt, to_latex, to_markdown

matplotlib.use("Agg")
NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def cohort():
    data = cfair.load_cohort().sample(900, random_state=1)
    rng = np.random.default_rng(5)
    data["insurance"] = rng.choice(["public", "private", "none"], len(data), p=[0.5, 0.46, 0.04])
    data["number"] = [f"p{k}" for k in range(len(data))]
    data.loc[data.index[::40], "bmi"] = np.nan
    return data


def audit_of(data, below=None, groups=("sex", "race")):
    return cfair.Audit(
        data, outcome="readmitted", score="risk", cutoff=0.5, groups=list(groups),
        treatment="treated", suppress_below=below,
    )  # fmt: skip


@pytest.fixture(scope="module")
def observed(cohort):
    return audit_of(cohort).observed()


@pytest.fixture(scope="module")
def masked(cohort):
    return audit_of(cohort, 11).observed()


def cells_of(markdown):
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[c.strip() for c in line.strip("|").split("|")] for line in lines[:1] + lines[2:]]


def test_the_table_of_rates_has_what_the_frames_have(observed):
    rows = cells_of(observed.to_markdown(metrics=["fpr", "tpr"], digits=4))
    assert rows[0] == ["Group", "n", "Events", "FPR", "TPR"]
    names = [row[0] for row in rows[1:]]
    single = ["**sex**", "F", "M", "**race**", "Black", "Other", "White"]
    assert names == ["All", *single, "**sex x race**", *observed.cohort.groups.names]
    rates = observed.rates.set_index(["metric", "group"])
    for row in rows[-6:]:
        for name, text in zip(("fpr", "tpr"), row[3:], strict=True):
            one = rates.loc[name, row[0]]
            given = [float(x) for x in re.findall(r"\d\.\d+", text)]
            assert given == pytest.approx(one[["estimate", "ci_low", "ci_high"]].tolist(), abs=6e-5)
            assert int(row[1].replace(",", "")) == one["n"]


def test_labels_and_order(observed):
    labels = {"F": "Women", "race": "Race", "tpr": "Sensitivity", "n": "Patients"}
    text = observed.to_markdown(metrics="tpr", labels=labels, order=["White", "M & Other"])
    rows = cells_of(text)
    assert rows[0] == ["Group", "Patients", "Events", "Sensitivity"]
    names = [row[0] for row in rows]
    assert "Women" in names
    assert "Women & Black" in names
    assert names[names.index("**Race**") + 1] == "White"
    assert names[names.index("**sex x Race**") + 1] == "M & Other"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "rate"}, "table"),
        ({"metrics": "sensitivity"}, "tpr"),
        ({"order": ["nobody"]}, "order"),
        ({"digits": -1}, "digits"),
        ({"digits": 0}, "digits must be a whole number from 1"),
        ({"metrics": []}, "metrics must name at least one"),
        ({"table": "gaps", "metrics": "tpr"}, "metrics"),
    ],
)
def test_bad_options_are_refused(observed, options, said):
    with pytest.raises(ValueError, match=said):
        observed.to_markdown(**options)


def test_masks_have_footnotes_with_reasons(masked):
    text = masked.to_markdown(metrics="tpr")
    assert f"ᵃ {MASKED}rests on a count below 11, or would reveal one" in text
    assert "Disclosure: counts below 11 masked" in text
    rates = masked.rates.query("metric == 'tpr'")
    rows = {row[0]: row for row in cells_of(text)}
    for _, one in rates.iterrows():
        shown = rows[one["group"]]
        assert (shown[3][0] == "–") == np.isnan(one["estimate"])
        assert (shown[2] in ("<11", "masked")) == pd.isna(one["events"])


def test_every_table_of_every_result_can_be_written(cohort, masked):
    audit = audit_of(cohort, 11)
    results = [masked, audit.representation(), audit.interaction(), audit.performance()]
    results += [masked.equivalence("tnr"), audit.counterfactual("treated ~ sex + race + risk")]
    for result in results:
        assert result.table_names
        for name in result.table_names:
            if name == "net_benefit":  # refused with the other curves
                continue
            assert to_lines(result.to_markdown(name))
            assert r"\end{tabular}" in result.to_latex(name)


def to_lines(text):
    rows = cells_of(text)
    assert len({len(row) for row in rows}) == 1
    return rows


def nasty_table():
    row = [Cell(f"{NASTY} 50% & a_b", "why _not_?"), Cell("=1+1"), Cell("\\input{x} ~^#$")]
    return Table(["<b>g</b>", "x|y", "<i>"], [(NASTY, [row])], f"Cap {NASTY}", [f"note {NASTY}"])


def test_html_is_escaped():
    html = to_gt(nasty_table()).as_raw_html()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 4
    assert "<b>g" not in html
    assert "&amp;lt;" not in html


def test_labels_of_groups_are_escaped_in_a_result(cohort):
    data = cohort.assign(sex=cohort["sex"].astype(str).replace({"F": NASTY}))
    html = audit_of(data).observed().to_gt(caption=NASTY).as_raw_html()
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_latex_has_no_commands_of_the_data():
    tex = to_latex(nasty_table(), "tab:a")
    assert r"50\% \& a\_b" in tex
    assert r"\textbackslash{}input\{x\} \textasciitilde{}\textasciicircum{}\#\$" in tex
    assert r"\input" not in tex.replace(r"\textbackslash{}input", "")
    assert tex.count(r"\textsuperscript{a}") == 2
    assert r"\label{tab:a}" in tex
    for start in ("table", "tabular"):
        assert tex.count(rf"\begin{{{start}}}") == tex.count(rf"\end{{{start}}}") == 1


def test_p_values_are_never_0_and_words_stand_at_the_left(cohort):
    data = cohort.assign(risk=(cohort["risk"] + 0.3 * (cohort["sex"] == "F")).clip(upper=1))
    found = audit_of(data, groups=["sex"]).observed()
    for name in ("contrasts", "gaps", "test_equal"):
        rows = cells_of(found.to_markdown(name, digits=2))
        at = [j for j, head in enumerate(rows[0]) if head.startswith("p ") or "p value" in head]
        texts = [row[j] for row in rows[1:] for j in at]
        assert "<0.001" in texts
        assert not {"0.00", "0.000"} & set(texts)
        assert "TPR" in [row[0] for row in rows]
        assert "tpr" not in [row[0] for row in rows]
    rule = found.to_markdown("gaps").splitlines()[1].strip("|").split("|")
    heads = cells_of(found.to_markdown("gaps"))[0]
    assert {h for h, r in zip(heads, rule, strict=True) if not r.endswith(":")} == {
        *("metric", "by", "group", "reference", "severity", "family")
    }
    assert r"\begin{tabular}{llllrrrrrrlrrl}" in found.to_latex("gaps")


def test_rows_of_latex_that_begin_like_an_option_are_protected():
    rows = [[Cell("[a]"), Cell("1")], [Cell("*"), Cell("2")], [Cell("a*"), Cell("[3]")]]
    lines = to_latex(Table(["g", "n"], [("", rows)])).splitlines()
    for line in (r"{[}a] & 1 \\", r"{*} & 2 \\", r"a* & [3] \\"):
        assert line in lines


def test_marks_of_direction_are_left_out():
    turned = "a" + "".join(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)])) + "b"
    table = Table([turned, "n"], [(turned, [[Cell(turned, turned), Cell("1")]])], turned)
    for text in (to_latex(table), to_markdown(table)):
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", text)
        assert len(re.findall(r"\bab", text)) == 5


SPECIAL = "& % $ # _ { } ~ ^ \\ < > | - -- ' ` \" [ ] * = + @ ! ?"
LATIN = "Müller-Ångström, ñandú, Łódź, façade, œuvre, 5 × 3 ± 2 ≤ 9 ≥ 1 − 2 ∞ – x"


def test_latex_writes_every_special_sign_out():
    tex = to_latex(Table(["g", "n"], [("", [[Cell(SPECIAL), Cell("1")]])]))
    (line,) = [x for x in tex.splitlines() if "1 \\\\" in x]
    cell = line.removesuffix(r" & 1 \\")
    plain = re.sub(r"\\text[a-z]+\{\}|\\[&%$#_{}]", "", cell)
    assert not set(plain) & set("&%$#_{}~^\\<>|")
    assert cell.count(r"\textbackslash{}") == 1


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX on this machine")
def test_latex_compiles(cohort, tmp_path):
    data = cohort.assign(sex=cohort["sex"].astype(str).replace({"F": LATIN, "M": SPECIAL}))
    found = audit_of(data).observed()
    parts = [to_latex(nasty_table(), "tab:a"), found.to_latex(caption=SPECIAL)]
    parts += [r"{\tiny " + found.to_latex(name) + "}" for name in ("gaps", "contrasts")]
    rules = r"\let\toprule\hline\let\midrule\hline\let\bottomrule\hline"  # a small LaTeX has none
    packages = r"\IfFileExists{booktabs.sty}{\usepackage{booktabs}}{" + rules + "}"
    text = [r"\documentclass{article}", packages, r"\begin{document}"]
    source = tmp_path / "t.tex"
    source.write_text("\n".join([*text, *parts, r"\end{document}"]), encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", source.name],
        cwd=tmp_path, capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert b"Missing character" not in done.stdout


def test_attributes_are_crossed_with_a_sign_only_where_tables_are_set(observed):
    assert "sex x race" in observed.to_markdown()
    assert "sex x race" in observed.to_markdown("gaps")
    for name in (None, "gaps"):
        html, tex = observed.to_gt(name).as_raw_html(), observed.to_latex(name)
        assert "sex × race" in html
        assert r"sex $\times$ race" in tex
        assert "sex x race" not in html + tex
    named = observed.to_gt(labels={"sex": "Sex", "race": "Race x"}).as_raw_html()
    assert "Sex × Race x" in named


def test_html_sets_labels_apart_that_run_from_right_to_left():
    hebrew = "\u05d0\u05d1\u05d2"
    table = Table(["g", "n"], [(hebrew, [[Cell(f"{hebrew} 12"), Cell("1")]])], f"\u202e{hebrew}")
    html = to_gt(table).as_raw_html()
    assert f"\u2068{hebrew} 12\u2069" in html
    seen = re.sub(r'(id|headers)="[^"]*"', "", html)
    assert seen.count(hebrew) == seen.count(f"\u2068{hebrew}") == 3
    assert html.count("\u2068") == html.count("\u2069")
    assert "\u202e" not in html
    assert "\u2068" not in to_gt(Table(["g"], [("", [[Cell("plain")]])])).as_raw_html()


def test_markdown_keeps_rows_in_one_line_and_text_as_it_is():
    table = Table(["a\nb", "n"], [("", [[Cell("x|y\r\n[z](u) ~~s~~ $m$ `c`"), Cell("1")]])])
    lines = to_markdown(table).splitlines()
    assert len(lines) == 3
    assert r"| x\|y \[z\](u) \~\~s\~\~ \$m\$ \`c\` |" in lines[2]


def test_excel_has_numbers_as_numbers(cohort, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    found = audit_of(cohort).observed()
    book = openpyxl.load_workbook(found.to_excel(tmp_path / "r.xlsx", ["rates", "gaps"]))
    rows = next(iter(book["table"].iter_rows(min_row=2, max_row=2)))
    assert [c.value for c in rows[:3]] == ["All", 900, int(cohort["readmitted"].sum())]
    assert rows[1].number_format == "#,##0"
    frame = found.rates
    for j, name in enumerate(frame.columns, start=1):
        column = [book["rates"].cell(row=k + 2, column=j) for k in range(len(frame))]
        if pd.api.types.is_numeric_dtype(frame[name]):
            assert all(c.data_type == "n" for c in column), name
    gaps = found.to_excel(tmp_path / "g.xlsx", "gaps", digits=2)
    sheet = openpyxl.load_workbook(gaps)["table"]
    at = [c.value for c in sheet[1]].index("gap") + 1
    assert sheet.cell(row=2, column=at).value == pytest.approx(found.gaps()["gap"].iloc[0])
    assert sheet.cell(row=2, column=at).number_format == "0.00"


def test_excel_columns_are_as_wide_as_what_is_in_them(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    frame = pd.DataFrame({"a": ["x" * 200], "share": [0.123456789012], "n": [3]})
    table = Table(["group", "n"], [("", [[Cell("a label of some length"), Cell("1")]])], "c" * 90)
    book = openpyxl.load_workbook(to_excel({"t": table, "f": frame}, tmp_path / "w.xlsx"))
    widths = {k: v.width for k, v in book["f"].column_dimensions.items()}
    assert widths == {"A": 40, "B": 10, "C": 8}
    assert book["t"].column_dimensions["A"].width == 24


def test_markdown_keeps_its_columns():
    rows = cells_of(to_markdown(nasty_table()).replace(r"\|", "/"))
    assert {len(row) for row in rows} == {3}
    assert "<script" not in to_markdown(nasty_table())


def test_excel_has_no_formulas(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    frame = pd.DataFrame({"=cmd": ["=1+1", "+2"], "n": [1, pd.NA], "x": [0.5, np.nan]})
    sheets = {"a/b": nasty_table(), "A/B": frame}
    book = openpyxl.load_workbook(to_excel(sheets, tmp_path / "t.xlsx", ["=note"]))
    assert book.sheetnames == ["a_b", "A_B 2", "notes"]
    cells = [c for sheet in book for row in sheet.rows for c in row]
    assert all(c.data_type != "f" for c in cells)
    assert any(c.value == "=1+1" for c in cells)
    assert book["A_B 2"]["C2"].value == 0.5
    assert book["A_B 2"]["B3"].value is None


def test_excel_of_a_result(masked, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(masked.to_excel(tmp_path / "r.xlsx", ["rates", "gaps"]))
    assert book.sheetnames == ["table", "rates", "gaps", "notes"]
    assert book["rates"].max_row == len(masked.rates) + 1
    said = [c.value for c in book["notes"]["A"]]
    assert any("counts below 11 masked" in str(s) for s in said)


def test_a_missing_package_says_how_to_get_it(observed, monkeypatch):
    monkeypatch.setitem(sys.modules, "great_tables", None)
    with pytest.raises(DataError, match=r'pip install "cfair\[report\]"'):
        observed.to_gt()


# -- table 1 ---------------------------------------------------------------------------------------


def test_table_one_agrees_with_pandas(cohort):
    result = audit_of(cohort).table_one(["age", "bmi", "insurance", "readmitted"], median=["bmi"])
    cells = result.cells.set_index(["covariate", "level", "group"])
    by = cohort.groupby(["sex", "race"])
    for (sex, race), part in by:
        group = f"{sex} & {race}"
        assert cells.loc[("", "", group), "count"] == len(part)
        age = cells.loc[("age", "", group)]
        assert age["centre"] == pytest.approx(part["age"].mean())
        assert age["spread_low"] == pytest.approx(part["age"].std())
        bmi = cells.loc[("bmi", "", group)]
        middle = part["bmi"].quantile([0.5, 0.25, 0.75]).tolist()
        assert bmi[["centre", "spread_low", "spread_high"]].tolist() == pytest.approx(middle)
        assert cells.loc[("bmi", "missing", group), "count"] == part["bmi"].isna().sum()
        for level in ("public", "private", "none"):
            one = cells.loc[("insurance", level, group)]
            assert one["count"] == (part["insurance"] == level).sum()
            assert one["share"] == pytest.approx((part["insurance"] == level).mean())
    whole = cells.loc[("age", "", "Overall")]
    assert whole["centre"] == pytest.approx(cohort["age"].mean())


def test_standardised_differences(cohort):
    result = audit_of(cohort, groups=["sex"]).table_one(["age", "treated"], differences=True)
    smd = result.cells.groupby("covariate")["smd"].first()
    women, men = (cohort[cohort["sex"] == s] for s in ("F", "M"))
    spread = np.sqrt((women["age"].var() + men["age"].var()) / 2)
    assert smd["age"] == pytest.approx(abs(women["age"].mean() - men["age"].mean()) / spread)
    p, q = women["treated"].mean(), men["treated"].mean()
    spread = np.sqrt((p * (1 - p) + q * (1 - q)) / 2)
    assert smd["treated"] == pytest.approx(abs(p - q) / spread)


def test_groups_that_share_no_value_are_infinitely_far_apart():
    n = 300
    third = np.arange(n) % 3
    data = pd.DataFrame(
        {
            "group": np.array(["a", "b", "c"])[third],
            "y": np.arange(n) % 2,
            "score": np.linspace(0, 1, n),
            "yes": (third > 0).astype(int),
            "word": np.where(third == 0, "p", np.where(np.arange(n) % 2, "q", "r")),
            "dose": np.where(third == 0, 0.1, np.where(third == 1, 0.3, np.linspace(0, 1, n))),
            "near": np.where(third == 0, 0.1, np.linspace(0, 1, n)),
        }
    )
    audit = cfair.Audit(data, outcome="y", score="score", cutoff=0.5, groups="group")
    result = audit.table_one(["yes", "word", "dose", "near"], differences=True)
    smd = result.cells.groupby("covariate")["smd"].first()
    assert np.isinf(smd[["yes", "word", "dose"]]).all()
    assert 0 < smd["near"] < 10
    assert "∞" in str(result)
    assert any("SMD of ∞" in note for note in result.notes)


def test_names_of_patients_are_left_out_and_said(cohort):
    result = audit_of(cohort).table_one()
    assert "number" not in set(result.cells["covariate"])
    assert "Left out: number" in str(result)
    with pytest.raises(DataError, match="levels"):
        audit_of(cohort).table_one(["number"])
    with pytest.raises(DataError, match="nobody"):
        audit_of(cohort).table_one(["nobody"])
    with pytest.raises(DataError, match="by"):
        audit_of(cohort).table_one(by="age")


def test_no_small_category_of_table_one_can_be_computed(cohort):
    result = audit_of(cohort, 11).table_one(["insurance"])
    both = audit_of(cohort, 11).table_one(["insurance"], by="sex")
    levels, groups = ["none", "private", "public"], list(cohort.groupby(["sex", "race"]).groups)
    names = [f"{s} & {r}" for s, r in groups]
    table = pd.crosstab([cohort["sex"], cohort["race"]], cohort["insurance"])
    truth = table.loc[groups, levels].to_numpy()
    equations = []
    for frame in (result.cells, both.cells):
        for _, row in frame.iterrows():
            if pd.isna(row["count"]):
                continue
            at = [
                row["group"] in ("Overall", name, *name.split(" & ")) for name in names
            ]  # by sex, a group belongs to its level
            which = np.ones(3) if not row["level"] else np.array(levels) == row["level"]
            f = np.outer(at, which).ravel()
            equations.append(f.astype(float))
            assert f @ truth.ravel() == row["count"]
            if row["count"] == 0:
                equations += list(np.eye(len(f))[f > 0])
    A = np.array(equations)
    rank = np.linalg.matrix_rank(A)
    small = np.flatnonzero((truth.ravel() > 0) & (truth.ravel() < 11))
    assert len(small)
    for k in small:
        assert np.linalg.matrix_rank(np.vstack([A, np.eye(truth.size)[k]])) == rank + 1


def test_table_one_of_a_group_of_one_row_has_no_spread(cohort):
    data = cohort.copy()
    data["race"] = data["race"].astype(object)
    data.loc[data.index[0], "race"] = "Inuit"
    audit = cfair.Audit(data, outcome="readmitted", score="risk", cutoff=0.5, groups="race")
    shown = str(audit.table_one(["age"]))
    assert "(–)" in shown
    assert "nan" not in shown


def test_table_one_is_written_like_other_tables(cohort, tmp_path):
    result = audit_of(cohort, 11).table_one(["age", "insurance"], by="sex")
    text = result.to_markdown(labels={"age": "Age, years", "F": "Women"})
    assert cells_of(text)[0] == ["Characteristic", "Overall", "Women", "M"]
    assert "**Age, years**" in text
    assert r"\begin{tabular}{lrrr}" in result.to_latex()
    assert "insurance, n (%)" in result.to_gt().as_raw_html()
    assert result.to_excel(tmp_path / "one.xlsx").exists()
    assert "Patients by group" in str(result)


# -- text -----------------------------------------------------------------------------------------


def five_thousand(**roles):
    given = {"outcome": "readmitted", "score": "risk", "cutoff": 0.5, "groups": ["sex", "race"]}
    return cfair.Audit(cfair.load_cohort(), **{**given, **roles})


def test_the_print_of_overlap_does_not_follow_the_options_of_pandas():
    found = five_thousand().counterfactual("treated ~ sex * race + risk + age").overlap
    said = repr(found)
    options = ("display.precision", 1, "display.float_format", "{:.9f}".format)
    with pd.option_context(*options, "display.max_colwidth", 3, "display.width", 20):
        assert repr(found) == said
    assert "1,658" in said
    assert len({len(line) for line in said.splitlines()[1:-1]}) == 1


def test_one_row_is_not_plural():
    low = np.sort(
        five_thousand().counterfactual("treated ~ sex * race + risk + age").propensity.fitted
    )
    cut = float((low[0] + low[1]) / 2)
    result = five_thousand().counterfactual(
        "treated ~ sex * race + risk + age", truncation=(cut, 0.999)
    )
    assert "1 row truncated to" in " ".join(str(result).split())
    assert "1 row truncated below" in repr(result.overlap)
    said = [t.get_text() for t in result.plot_overlap().figure.findobj(Text)]
    assert any("(1 row outside)" in t for t in said)


def test_an_outcome_formula_may_hold_the_call_under_another_name():
    table = cfair.load_cohort()
    table["flag"] = np.where(table["risk"] >= 0.5, "yes", "no")
    audit = cfair.Audit(
        table, outcome="readmitted", score="risk", cutoff=0.5, groups=["sex", "race"]
    )
    treated = "treated ~ sex * race + risk + age"
    notes = audit.counterfactual(treated, outcome_model="~ sex * race + flag + age").notes
    assert not any("neither the score" in note for note in notes)
    with pytest.warns(ModelWarning, match="neither the score nor its 0/1 form"):
        audit.counterfactual(treated, outcome_model="~ sex * race + age")


def test_the_interaction_fits_a_page():
    lines = str(five_thousand().interaction()).splitlines()
    assert max(map(len, lines)) <= 100
    assert sum("selection rate  M    Black" in line for line in lines) == 2


def test_a_margin_in_patients_prints_its_sentence():
    found = cfair.margin_in_patients((0.8, 1.25), rate=0.4)
    assert found == (8.0, 10.0, found.words)
    assert (found.worse, found.better) == (8.0, 10.0)
    assert str(found) == found.words
    worse, better, words = found
    assert (worse, better) == (8.0, 10.0)
    assert words.startswith("Of 100 patients")


@pytest.mark.parametrize(("other", "told"), [(0.04, True), (0.025, False), (0.012, True)])
def test_another_share_of_a_small_group_is_told(other, told):
    # what is borrowed of a group of 2% moves with its share, however little that is of all rows
    sizes = np.array([0.02, 0.58, 0.40])
    rest = 1 - other
    mass = np.array([other, rest * 0.58 / 0.98, rest * 0.40 / 0.98])
    groups = make_groups({"site": np.repeat(["a", "b", "c"], (sizes * 1000).astype(int))})
    cohort = SimpleNamespace(groups=groups, weights=None, protection=None)
    external = SimpleNamespace(fit=None, mass=mass)
    notes = [n for n in external_notes(cohort, external, False) if "other shares" in n]
    assert bool(notes) == told
    if told:
        assert f"a {100 * other:.2g}% (2%)" in notes[0]
        assert "b " not in notes[0].partition("parentheses: ")[2].partition(".")[0]
