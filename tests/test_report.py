"""The report as a reader, a screen reader and a hostile label meet it."""

from __future__ import annotations

import base64
import builtins
import pickle
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import cfair
from cfair.cli import main
from cfair.errors import DataError
from cfair.report import blocks, pictures, size, wording
from cfair.report import findings as findings_module
from cfair.report import page as page_module
from cfair.report.blocks import Figure as ReportFigure
from cfair.report.colours import DARK, LIGHT, TEXT_ON
from cfair.report.comparisons import interaction_blocks
from cfair.report.findings import (
    CARE_BELOW,
    calibration_finding,
    findings,
    gap_findings,
    same_pair,
)
from cfair.report.methods import methods
from cfair.report.patients import cohort_blocks
from cfair.report.pictures import MOST_BYTES
from cfair.report.plots import plot_blocks
from cfair.report.provenance import fingerprint, repeat_blocks, versions
from cfair.report.rates import gaps_table, rates_table
from cfair.results.calls import shown
from cfair.results.replicated_text import difference_lines

matplotlib.use("Agg")
# What is warned of stands on the page; here groups are small on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")

PROPENSITY = "treated ~ sex * race + risk + age + sbp"
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Tags with their attributes, text by tag, and whether every tag is closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.stack, self.texts, self.wrong = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        if not self.stack or self.stack[-1] != tag:
            self.wrong.append(tag)
        else:
            self.stack.pop()

    def handle_data(self, data):
        self.texts.append((self.stack[-1] if self.stack else "", data))

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(t for tag, t in self.texts if tag != "style").split())


def cohort(n=1200):
    return cfair.load_cohort().iloc[:n]


def audit_of(table, **roles):
    given = {"outcome": "readmitted", "score": "risk", "cutoff": 0.5, "groups": ["sex", "race"]}
    return cfair.Audit(table, **{**given, **roles})


@pytest.fixture(scope="module")
def audit():
    return audit_of(cohort())


@pytest.fixture(scope="module")
def results(audit):
    ipw = audit.counterfactual(PROPENSITY, n_perm=30, n_boot=25, seed=7)
    return (
        ipw,
        audit.counterfactual(PROPENSITY, outcome_model="~ sex * race + risk + age + sbp"),
        audit.small_subgroups(
            PROPENSITY, outcome_model="~ age + sbp", membership="~ age + sbp", n_boot=0
        ),
        audit.group_intervention(outcome_model="~ age + sbp", membership="~ age + sbp"),
        audit.performance(),
        audit.interaction("fpr"),
        audit.equivalence("tpr", margin=(0.8, 1.25), reference=("M", "White")),
        ipw.equivalence("cfpr", margin=(-0.1, 0.1), contrast="difference"),
    )


def stub(draw, alt, caption):
    """In place of a drawing, which takes longer than all else."""
    return ReportFigure("data:image/png;base64,", alt, caption, 400, 300)


@pytest.fixture
def no_pictures(monkeypatch):
    """Pages without drawing; what is drawn has tests of its own."""
    monkeypatch.setattr(pictures, "picture", stub)


@pytest.fixture(scope="module")
def whole(audit, results, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "new folder" / "page.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "picture", stub)
        assert audit.report(path, *results, guideline="tripod+ai") == path
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def small():
    """An audit whose page takes little time."""
    return audit_of(cohort(400), groups="sex")


def draw_page(path, n_jobs=1):
    """A page with its pictures, small enough to be drawn in a test."""
    audit = audit_of(cohort(400), groups="sex")
    ipw = audit.counterfactual("treated ~ sex + risk + age", n_boot=25, seed=3, n_jobs=n_jobs)
    return audit.report(path, ipw)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return draw_page(tmp_path_factory.mktemp("drawn") / "page.html").read_text(encoding="utf-8")


def test_everything_is_on_the_page_in_order(whole):
    page = Page(whole)
    assert not page.wrong
    assert not page.stack
    ids = [a["id"] for a in page.all("section")]
    assert ids == [
        *("meaning", "cohort", "findings", "patients", "representation", "observed"),
        *(
            "counterfactual",
            "group",
            "score",
            "interaction",
            "plots",
            "diagnostics",
            "equivalence",
            "methods",
            "repeat",
        ),
        "guideline",
    ]
    for word in ("IPW", "AIPW", "small subgroups", "M & White", "Three meanings", "SHA-256"):
        assert word in page.text
    assert len(whole.encode()) < 200_000  # without pictures


def test_pictures_are_small_and_hold_what_is_drawn(drawn):
    found = [a["src"].partition(";base64,") for a in Page(drawn).all("img")]
    assert len(found) == 4
    assert len(drawn) < 300_000
    for kind, _, content in found:
        assert kind == "data:image/svg+xml"
        assert len(base64.b64decode(content)) <= MOST_BYTES
        assert b"<date>" not in base64.b64decode(content)
    assert b">   F<" in base64.b64decode(found[0][2]).replace(b"\xc2\xa0", b" ")


def test_the_meaning_of_counterfactual_stands_before_the_findings(whole):
    assert whole.index('id="meaning"') < whole.index('id="cohort"') < whole.index('id="findings"')


def test_the_patients_of_every_group_are_described(whole, audit):
    text = Page(whole).text
    part = text.partition("Patients by group")[2].partition("Shares of")[0]
    for name in ("age", "sbp", "risk"):  # those with a role, and those of the models
        assert name in part
    assert "bmi" not in part
    cells = audit.table_one(["age"]).cells.set_index(["covariate", "group"])
    mean = cells.loc[("age", "Overall"), "centre"]
    assert f"{mean:.1f} (" in part


def test_a_page_that_grows_too_large_has_fewer_pictures(small, monkeypatch, tmp_path):
    large = "data:image/svg+xml;base64," + "A" * 20_000
    monkeypatch.setattr(pictures, "picture", lambda *a: replace(stub(*a), source=large))
    whole = small.report(tmp_path / "a.html").read_text(encoding="utf-8")
    assert "Left out, so that the page" not in whole
    assert size.MOST_PAGE == 1_000_000
    for module in (page_module, size):
        monkeypatch.setattr(module, "MOST_PAGE", len(whole.encode()) - 1)
    page = small.report(tmp_path / "b.html").read_text(encoding="utf-8")
    assert len(page) < len(whole)
    assert page.count("Left out, so that the page") == 1
    assert page.count("<img") == whole.count("<img") - 1


def test_pictures_of_pixels_are_made_coarser_before_any_is_left_out():
    drawing = Figure(figsize=(5, 2))
    axes = drawing.add_subplot()
    axes.imshow(np.random.default_rng(1).random((300, 300)))
    address = base64.b64encode(pictures._pixels(drawing)).decode()
    picture = ReportFigure(f"data:image/png;base64,{address}", "noise", "Noise", 768, 576)
    whole = [blocks.Section("plots", "Plots", (picture, picture))]
    coarser = size.within(whole, 1000)[0].blocks
    assert [b.kind for b in coarser] == ["figure", "figure"]
    assert "coarser" in coarser[0].caption
    assert coarser[1] == picture
    assert len(coarser[0].source) < len(picture.source)
    gone = size.within(whole, 2 * len(address))[0].blocks
    assert [b.kind for b in gone] == ["paragraph", "paragraph"]


def test_the_largest_tables_are_cut_first_and_then_left_out():
    def table(name, rows):
        cells = tuple((f"{name} {k}", "0.123 (0.100 to 0.150)") for k in range(rows))
        return blocks.Table(name, ("Group", "Rate"), (blocks.Rows("", cells),))

    notes = blocks.Bullets(tuple(f"note {k}" for k in range(50)), "warning")
    whole = [blocks.Section("a", "A", (table("small", 30), notes, table("large", 400)))]
    cut = size.within(whole, 1000)[0].blocks
    assert cut[:2] == whole[0].blocks[:2]
    assert len(cut[2].parts[0].rows) == 20
    assert "380 of 400 rows are left out, so that the page stays below 1 MB" in cut[2].note
    gone = size.within(whole, 10**6)[0].blocks
    assert [b.kind for b in gone] == ["paragraph"] * 3
    assert "the table “large” (400 rows)" in gone[2].text
    assert "a list of 50 remarks" in gone[1].text
    assert size.within(whole, 0) == whole


def test_a_fitted_model_has_its_own_audit_on_the_page(tmp_path, no_pictures):
    pytest.importorskip("sklearn")
    fitted = cfair.fit_and_audit(
        cohort(800), outcome="readmitted", groups="sex", features=["age", "sbp"],
        model="random_forest", cutoff=0.3, seed=11,
    )  # fmt: skip
    page = Page(fitted.audit.report(tmp_path / "r.html", fitted).read_text(encoding="utf-8"))
    ids = [a["id"] for a in page.all("section")]
    assert {"model", "score", "observed"} <= set(ids)
    told = page.text.partition("Fitted model")[2]
    assert "random forest" in told.lower()
    assert "features" in told
    assert re.search(r"Fitted model: [^.]*seed 11", page.text)  # how to repeat it
    again = page.text.rpartition("How to repeat this")[2]
    assert "cfair.fit_and_audit: model random forest, on 2 columns; features age, sbp" in again
    assert "audit = cfair.fit_and_audit(data=<800 x " in again
    assert "model='random_forest', cutoff=0.3, seed=11).audit" in again
    assert "cfair.Audit(" not in again
    assert "scikit-learn" in again
    with pytest.raises(DataError, match="is of another audit, that of its held-out rows"):
        audit_of(cohort(800), groups="sex").report(tmp_path / "other.html", fitted)


def test_a_large_picture_becomes_one_of_few_colours(monkeypatch):
    monkeypatch.setattr(pictures, "MOST_BYTES", 1000)
    figure = Figure(figsize=(3, 2))
    figure.add_subplot().plot([1, 2])
    found = pictures.picture(lambda: figure, "a line that rises", "A line")
    assert found.source.startswith("data:image/png;base64,")
    assert len(base64.b64decode(found.source.partition(",")[2])) < 10_000
    assert (found.width, found.height) == (288, 192)


def test_figures_on_the_page_are_those_of_the_frames(whole, audit, results):
    text = Page(whole).text
    for frame, metric in ((audit.observed().rates, "fpr"), (results[0].rates, "cfpr")):
        for row in frame[frame["metric"] == metric].to_dict("records"):
            assert blocks.rate(row["estimate"], row["ci_low"], row["ci_high"]) in text


@pytest.mark.parametrize("name", ["whole", "drawn"])
def test_nothing_is_fetched_and_nothing_runs(name, request):
    whole = request.getfixturevalue(name)
    page = Page(whole)
    assert not {"script", "link", "iframe", "object", "embed", "base"} & {t for t, _ in page.tags}
    for _, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "srcset", "action", "xlink:href"):
                assert re.match(r"(data:image/(png|svg\+xml);base64,|#)", value)
    assert "url(" not in whole
    assert "@import" not in whole
    assert "http://" not in whole
    assert "https://" not in whole
    assert any("default-src 'none'" in a.get("content", "") for a in page.all("meta"))


def test_links_within_the_page_have_their_targets_and_ids_are_unique(whole):
    page = Page(whole)
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for a in page.all("a")} <= set(ids)
    labelled = {a["aria-labelledby"] for _, a in page.tags if "aria-labelledby" in a}
    assert labelled <= set(ids)


def test_a_screen_reader_finds_its_way(whole):
    page = Page(whole)
    assert page.all("html")[0]["lang"] == "en"
    levels = [int(t[1]) for t, _ in page.tags if re.fullmatch("h[1-6]", t)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert max(np.diff(levels)) <= 1
    tables = page.all("table")
    assert len(tables) == len(page.all("caption")) == len(page.all("thead"))
    assert all(a.get("scope") in ("col", "row", "rowgroup") for a in page.all("th"))
    alts = [a["alt"] for a in page.all("img")]
    assert len(alts) >= 10
    assert len(set(alts)) == len(alts)
    assert min(map(len, alts)) > 60
    assert all(int(a["width"]) > 100 for a in page.all("img"))


def luminance(colour):
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(colours):
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    for text, ground in TEXT_ON:
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


def test_every_colour_of_the_style_sheet_is_a_pair_that_was_checked(whole):
    style = whole.partition("<style>")[2].partition("</style>")[0]
    used = set(re.findall(r"var\(--([a-z-]+)\)", style))
    assert used <= set(LIGHT)
    assert set(LIGHT) == set(DARK)
    as_text = set(re.findall(r"(?<![-\w])color:var\(--([a-z-]+)\)", style))
    grounds = set(re.findall(r"background:var\(--([a-z-]+)\)", style))
    assert as_text <= {text for text, _ in TEXT_ON}
    assert grounds <= {ground for _, ground in TEXT_ON}
    assert "prefers-color-scheme:dark" in style
    assert "@media print" in style


NASTY = [
    "<script>alert(1)</script>",
    '"><img onerror=alert(2) src=x>',
    "\u202egnitirw \u05d0\u05d1\u05d2",
    "\U0001f469\U0001f3fd\u200d\u2695\ufe0f nurse",
    "{{ 7 * 7 }}{% raw %}",
    "a\x00b\x1b[31m & 'c' --> $x_1$",
]


def nasty_table():
    table = cohort(900).reset_index(drop=True)
    return table.assign(race=[NASTY[k % len(NASTY)] for k in range(len(table))])


def test_labels_stay_text(tmp_path, no_pictures):
    table = nasty_table().rename(columns={"race": "<b>race</b>", "readmitted": "<i>died"})
    audit = audit_of(table, outcome="<i>died", groups=["sex", "<b>race</b>"])
    path = audit.report(
        tmp_path / "r.html",
        audit.counterfactual("treated ~ sex + <b>race</b> + risk + age"),
        audit.performance(),
        audit.interaction("fpr"),
        audit.equivalence("tpr"),
        title=NASTY[0],
        question=NASTY[1],
        date=NASTY[4],
        guideline="tripod+ai",
    )
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert not page.wrong
    assert {t for t, _ in page.tags} & {"script", "i"} == set()
    assert all("onerror" not in a for _, a in page.tags)
    for text in (*NASTY[:2], NASTY[3], NASTY[4], "<b>race</b>", "<i>died"):
        assert text in page.text
    assert "\u2068gnitirw \u05d0\u05d1\u05d2\u2069" in page.text
    assert not re.search("[\u202a-\u202e\u2066\u2067]", source)  # and no mark that turns a line
    assert "\x00" not in source
    assert "\x1b" not in source
    for attributes in page.all("img"):
        assert set(attributes) == {"src", "alt", "width", "height"}
    assert blocks.label("half \ud800 a pair") == "half \ufffd a pair"


def test_levels_keep_their_order_beside_names_from_right_to_left(tmp_path, no_pictures):
    hebrew = "\u05d0\u05d1\u05d2"
    apart = f"\u2068{hebrew}\u2069"
    assert blocks.label(f"{hebrew} & White") == f"{apart} & White"
    assert blocks.label(f"{hebrew} & {hebrew}") == f"{apart} & {apart}"
    table = cohort(900).reset_index(drop=True)
    table["sex"] = table["sex"].replace("F", hebrew)
    source = audit_of(table).report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert f'<bdi dir="ltr">{apart} &amp; White</bdi>' in source


def test_labels_stay_text_in_pictures(monkeypatch):
    monkeypatch.setattr(pictures, "MOST_BYTES", 10**7)
    monkeypatch.setattr(pictures, "_MOST_PARTS", 10**7)
    table = nasty_table()
    observed = audit_of(table).observed()
    figure = plot_blocks(observed, [])[0]
    kind, _, content = figure.source.partition(";base64,")
    assert kind == "data:image/svg+xml"
    svg = base64.b64decode(content).decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in svg
    assert "<script" not in svg
    assert "<img" not in svg
    assert " on" + "error" not in re.sub(r">[^<]*<", "><", svg)


def test_the_same_data_and_seed_give_the_same_bytes(drawn, tmp_path):
    np.random.seed(5)
    with matplotlib.rc_context({"font.size": 14, "axes.facecolor": "yellow"}):
        again = draw_page(tmp_path / "other.html", n_jobs=2)  # with another style and more workers
    assert again.read_text(encoding="utf-8") == drawn
    assert "seed 3" in drawn


@pytest.fixture(scope="module")
def plain(small, tmp_path_factory):
    """A page of observed rates alone."""
    path = tmp_path_factory.mktemp("plain") / "a.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "picture", stub)
        return small.report(path).read_text(encoding="utf-8")


def test_a_date_is_there_if_it_is_given(tmp_path, small, plain, no_pictures):
    dated = small.report(tmp_path / "b.html", date="30 November 2026").read_text(encoding="utf-8")
    assert "30 November 2026" not in plain
    assert dated.replace('<p class="soft">30 November 2026</p>\n', "") == plain


def test_observed_and_representation_are_computed_unless_given(tmp_path, small, plain, no_pictures):
    alone = Page(plain).text
    assert "Nothing counterfactual is computed" in alone
    assert "audit.observed()" in alone
    wide = small.observed(level=0.8)
    given = Page(small.report(tmp_path / "b.html", wide, small.representation(min_count=500))
                 .read_text(encoding="utf-8")).text  # fmt: skip
    assert "audit.observed(level=0.8)" in given
    assert "80% intervals" in given
    assert "fewer than 500 rows" in given


def test_the_exact_calls_versions_and_fingerprint_are_there(whole, audit, results):
    text = Page(whole).text
    assert (
        "audit = cfair.Audit(data, outcome='readmitted', groups=['sex', 'race'], score='risk', "
        "cutoff=0.5)"
    ) in text
    assert f"audit.counterfactual(propensity='{PROPENSITY}', n_boot=25, n_perm=30, seed=7)" in text
    assert ".equivalence(metrics='cfpr', margin=(-0.1, 0.1), contrast='difference')" in text
    for name, value in versions():
        assert f"{name} {value}" in text
    for result in results:
        assert fingerprint(result.cohort) in text


def test_a_call_keeps_no_data():
    table = cohort(400)
    audit = audit_of(table.drop(columns="risk"), score=table["risk"].to_numpy())
    pi = np.full(400, 0.3)
    observed = audit.observed()
    assert observed.call == "audit.observed()"
    assert pickle.loads(pickle.dumps(observed)).call == "audit.observed()"
    assert shown(pi) == "<400 values>"
    assert shown(table) == f"<400 x {table.shape[1]} table>"
    assert shown(pd.Series([1, 2])) == "<2 values>"
    assert shown(list(range(30))) == "<30 values>"
    assert "0x" not in shown(np.random.default_rng(1))


def test_a_fingerprint_is_of_the_data_and_not_of_the_table(audit):
    table = cohort()
    own = fingerprint(audit.observed().cohort)
    again = audit_of(table.rename(columns={"bmi": "weight"}).set_index("age", drop=False))
    assert fingerprint(again.observed().cohort) == own
    changed = table.copy()
    changed.loc[changed.index[3], "risk"] += 1e-9
    assert fingerprint(audit_of(changed).observed().cohort) != own
    assert fingerprint(audit_of(table.iloc[::-1]).observed().cohort) != own


def test_findings_say_what_is_unknown_and_never_that_something_is_fair(audit, results):
    observed = audit.observed()
    said = findings(audit.representation(), observed, results)
    text = " ".join(f"{lead} {rest}" for _, items in said for lead, rest in items)
    assert not re.search(r"\b(un)?fair|\bbias|significan|complian", text, re.IGNORECASE)
    gaps = observed.gaps()
    gaps = gaps[gaps["by"] == "sex x race"].set_index("metric")
    told = ("fpr", "tpr", "selection_rate")
    for metric, (lead, rest) in zip(told, gap_findings(observed), strict=True):
        known = observed.gaps().query("metric == @metric")["p_adjusted"].min() < 0.05
        assert ("groups differ" in lead.replace("whether groups differ", "")) == known
        assert ("cannot tell" in lead) == (not known)
        assert ("no evidence that the groups are alike" in rest) == (not known)
        assert f"{gaps.loc[metric, 'gap']:.2f}" in lead + rest
    without = next(r for r in results if "small" in getattr(r, "estimator", ""))
    assert all("no interval was computed" in rest for _, rest in gap_findings(without))


def test_groups_differ_by_the_p_value_that_is_printed():
    # the least p-value of the table is below 0.05 raw and above it adjusted
    table = cohort(900).reset_index(drop=True)
    apart = table["sex"] == "F"
    table["risk"] = (table["risk"] - 0.07 * apart).clip(0, 1)
    observed = audit_of(table, groups="sex").observed()
    row = observed.gaps().set_index("metric").loc["selection_rate"]
    assert row["p_value"] < 0.05 < row["p_adjusted"]
    assert row["ci_low"] > 0
    lead, rest = gap_findings(observed)[-1]
    assert ". " not in rest.replace("vs. ", "")
    assert lead == "Share flagged: cannot tell whether groups differ."
    assert f"for all gaps of the table p = {row['p_adjusted']:.3f}" in rest
    assert "a test of these two finds gaps from" in rest
    table["risk"] = (table["risk"] - 0.2 * apart).clip(0, 1)
    assert "groups differ, by" in gap_findings(audit_of(table, groups="sex").observed())[-1][0]


def test_a_pair_of_the_widest_gap_is_told_only_where_it_differs(results):
    gaps = results[0].gaps().query("by == 'sex x race'")
    assert (gaps["p_adjusted"] > 0.05).all()
    assert same_pair(results[0]) == []
    table = cohort().reset_index(drop=True)
    table["risk"] = (table["risk"] - 0.25 * (table["sex"] == "F")).clip(0, 1)
    apart = audit_of(table, groups="sex").counterfactual("treated ~ sex + risk + age")
    assert apart.gaps()["p_adjusted"].max() < 0.05
    said = same_pair(apart)
    assert len(said) == 2
    assert all("chosen because its gap is the widest" in rest for _, rest in said)


def test_a_finding_says_that_a_group_is_very_small():
    assert CARE_BELOW == cfair.analyses.observed.CARE_BELOW
    table = cohort(300).reset_index(drop=True)
    observed = audit_of(table).observed()
    row = observed.gaps("tpr").iloc[-1]
    size = observed.rates.set_index(["metric", "group"])["n_effective"]["tpr"]
    pair = [row["group"], row["reference"]]
    assert min(size[g] for g in pair) < CARE_BELOW
    rest = gap_findings(observed)[1][1]
    told = " and ".join(f"{g} ({size[g]:.0f} patient{'s' * bool(size[g] > 1.5)})" for g in pair)
    assert f"the widest gap, {row['gap']:.2f}, is between {told} and rests on too few to tell" in (
        rest
    )


def test_power_is_of_a_pair_chosen_beforehand(audit):
    several = gap_findings(audit.observed()) + gap_findings(audit.performance())
    rests = [rest for _, rest in several if "80% power" in rest]
    assert rests
    assert all("chosen beforehand" in r or "a test of these two" in r for r in rests)


def tiny_groups():
    """4,000 patients; sexes differ, and two kinds, flagged and not, have one patient each."""
    kind = np.where(np.arange(4000) % 2, "a", "b").astype(object)
    flagged = np.zeros(4000, dtype=int)
    flagged[:350], flagged[2000:2190] = 1, 1
    kind[0], kind[1999] = "one", "two"
    sex = np.repeat(["Male", "Female"], 2000)
    y = (np.arange(4000) % 5 == 4) & (kind != "two")
    return pd.DataFrame({"y": y.astype(int), "s": flagged, "sex": sex, "kind": kind})


def test_the_clearest_gap_leads_and_the_smallest_groups_do_not():
    roles = {"outcome": "y", "prediction": "s", "groups": ["sex", "kind"]}
    observed = cfair.Audit(tiny_groups(), **roles).observed()
    lead, rest = gap_findings(observed)[0]
    assert lead.startswith("False positive rate: groups differ, most clearly Male and Female, by ")
    assert "(95% simultaneous interval 0.0" in lead
    assert "n = 2,000" in rest
    assert (
        "the widest gap, 1.00, is between Male & one (1 patient) and Male & two (1 patient) and "
        in rest
    )
    assert "rests on too few to tell" in rest
    assert all(text.count(". ") == 0 and text.endswith(".") for text in (lead, rest))


def test_where_only_the_test_tells_groups_apart_the_finding_says_so(audit, monkeypatch):
    observed = audit.observed()
    table = observed.gaps().assign(p_adjusted=0.001)
    monkeypatch.setattr(findings_module, "tabled_gaps", lambda result: table)
    leads = [lead for lead, _ in gap_findings(observed)]
    only = [lead for lead in leads if "by the test that all are equal (p = 0.001)" in lead]
    assert only
    for lead, rest in gap_findings(observed):
        assert (lead in only) == (" interval " not in lead)
        assert (" interval −" in rest) == (lead in only)


def test_the_score_of_all_patients_has_a_finding_where_it_is_off():
    table = cohort().reset_index(drop=True)
    events = table["readmitted"].mean()
    for factor, word in ((0.5, "underpredicts"), (1.0, ""), (2.0, "overpredicts")):
        table["risk"] = table["risk"] * 0 + events * factor + 0.001 * (table.index % 7 - 3)
        performance = audit_of(table, groups="sex").performance()
        said = calibration_finding(performance)
        row = performance.overall.set_index("metric").loc["oe_ratio"]
        assert bool(said) == bool(word)
        if word:
            assert said[0][0].startswith(f"The score {word}: {row['estimate']:.2f} events per exp")
            assert f"{row['ci_low']:.2f} to {row['ci_high']:.2f}" in said[0][0]
    assert "50% fewer than it expects" in said[0][0]


def test_gaps_on_the_page_have_severity_and_say_what_is_adjusted(audit):
    found = gaps_table(audit.observed(), "Gaps")
    assert found.head[-2:] == ("all equal? p (Holm)", "Severity")
    rows = [row for part in found.parts for row in part.rows]
    assert {row[-1] for row in rows} & {"(severe)", "(moderate)"}
    assert any("(TPR; p: FPR)" in row[1] or "(FPR; p: TPR)" in row[1] for row in rows)
    assert "'severe' and 'moderate' in brackets where the interval reaches 0" in found.note


def test_seeds_of_folds_and_learners_are_on_the_page(audit, small):
    folded = audit.counterfactual(PROPENSITY, outcome_model="~ age + risk", folds=4, seed=2)
    text = str(repeat_blocks("cfair.Audit()", [folded]))
    assert "doubly robust (AIPW): seed 2, 4 folds" in text
    assert "no seed was used" not in text
    plain = str(repeat_blocks("cfair.Audit()", [small.observed()]))
    assert "Nothing random: no seed was used." in plain


def test_learners_are_named_with_their_folds_and_seed():
    linear = pytest.importorskip("sklearn.linear_model")
    learner = cfair.Learner(linear.LogisticRegression(C=0.5), columns=["sex", "risk", "age"])
    audit = audit_of(cohort(500), groups="sex", treatment="treated")
    found = audit.counterfactual(learner, folds=3, seed=9)
    text = str(methods(audit.observed(), [found]))
    assert "The propensity π was estimated by a learner (LogisticRegression" in text
    assert "(LogisticRegression(C=0.5) on sex, risk, age)" in text
    assert "a fit without the patient's own fold, of 3 folds drawn at random (seed 9)" in text
    again = str(repeat_blocks("cfair.Audit()", [found]))
    assert "seed 9, 3 folds, fits of a learner" in again
    assert "<cfair.Learner: " in again
    assert "LogisticRegression" in again
    assert "scikit-learn" in again


def test_methods_say_how_models_were_made_and_why_there_is_no_interval(audit):
    folded = audit.counterfactual(PROPENSITY, outcome_model="~ age + risk", folds=4, seed=2)
    few = audit.small_subgroups(
        PROPENSITY, outcome_model="~ age + sbp", membership="~ age + sbp", n_boot=20
    )
    text = str(methods(audit.observed(), [folded, few]))
    assert "by logistic regression as readmitted ~ age + risk, fitted to the untreated." in text
    assert "of 4 folds drawn at random (seed 2)" in text
    assert "No intervals were computed: 20 bootstrap replicates are fewer than the 40" in text
    assert "are from the bootstrap" not in text
    assert "sampling weight" not in text


def test_methods_have_weights_clusters_and_groups_left_out():
    table = cohort(600).reset_index(drop=True)
    table["q"], table["site"] = 1.0 + table.index % 3, table.index % 50
    audit = audit_of(table, weights="q", cluster="site", min_group_size=40, small_groups="drop")
    ipw, score = audit.counterfactual(PROPENSITY), audit.performance()
    observed = audit.observed()
    text = str(methods(observed, [ipw, score], least=40))
    assert "multiplied by q, the sampling weight (q)" in text
    assert "<mi>q</mi>" in text
    assert "summed within clusters (Obuchowski)" in text
    (gone, *_) = observed.cohort.dropped.small_groups
    assert f"Groups with fewer than 40 rows were left out: {gone}" in text
    flow = str(cohort_blocks(observed.cohort, []))
    assert f"group {gone} with fewer than 40 rows: " in flow
    assert wording.least_rows(observed.cohort) == 40
    assert wording.least_rows(audit_of(table).observed().cohort) is None


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """An audit with masks, and its page."""
    audit = audit_of(cohort(700), suppress_below=11)
    ipw, both = audit.counterfactual(PROPENSITY, n_perm=20), audit.interaction("tpr")
    assert both.contrasts["contrast"].isna().all()
    path = tmp_path_factory.mktemp("masked") / "r.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "picture", stub)
        audit.report(path, ipw, both, guideline="tripod+ai")
    return audit, Page(path.read_text(encoding="utf-8"))


def test_masked_pages_have_no_empty_plots_and_say_what_is_masked(masked):
    audit, page = masked
    alts = " ".join(a["alt"] for a in page.all("img"))
    assert "nan" not in alts
    assert "Histogram" not in alts
    assert "nan" not in page.text.replace("nance", "")
    assert "No contrast can be given" in page.text
    assert "None of 0" not in page.text
    assert "fingerprint of the data. Where" not in page.text
    assert "Sensitivity: cannot tell whether groups differ." in page.text
    described = page.text.partition("Table 2. Patients by group")[2].partition("Table 3")[0]
    assert "masked" in described
    assert "–" not in described
    cells = page.text.partition("Who is in the data")[2].partition("Width:")[0]
    hidden = audit.representation().cells["events"].isna().sum()
    assert hidden
    assert cells.count("masked masked") == hidden


def test_the_first_gap_that_is_known_has_the_label():
    table = cohort(3000)
    printed = str(audit_of(table, groups="sex", suppress_below=11).counterfactual(
        "treated ~ sex + risk + age", n_perm=20))  # fmt: skip
    assert printed.count("largest gap") == 1
    result = audit_of(table, groups="sex").counterfactual("treated ~ sex + risk + age")
    rates = result.estimates[0].estimate.copy()
    rates[:2] = np.nan
    hidden = replace(result.estimates[0], estimate=rates)
    lines = difference_lines(replace(result, estimates=(hidden, *result.estimates[1:])))
    assert next(line for line in lines if "against" in line).startswith("largest gap  cFNR")


def test_notes_have_no_words_of_the_code():
    note = 'there intervals of cFNR by estimator="ipw" hold better.'
    assert wording.spoken(note) == "there intervals of cFNR by weighting alone (IPW) hold better."
    assert wording.spoken("one picked out does too: adjust=.") == "one picked out does too."
    assert wording.spoken("of rows; weighted_share in .cells and .levels weighs them.") == (
        "of rows."
    )
    assert wording.spoken("no events; the others in .pairs.") == (
        "no events; others are not shown."
    )


def test_estimators_are_named_in_words(audit, whole):
    said = wording.spoken('estimator="sr" stays inside; estimator="dr" does not.')
    assert said.startswith("the single-robust estimator (the outcome model alone) stays inside")
    alone = audit.group_intervention(outcome_model="~ age + sbp", estimator="sr")
    text = str(methods(audit.observed(), [alone]))
    assert "are single robust, from the outcome model alone" in text
    body = Page(whole).text.rpartition("How to repeat this")[0]
    assert not re.search(r"\b(sr|dr)\b", body)
    assert "Rates with everybody in one group are doubly robust." in body


def test_an_effective_size_is_explained_where_it_stands(whole, audit):
    text = Page(whole).text.partition("what their weights leave: IPW")[2]
    assert "can exceed the number of patients where covariates tell" in text
    note = "n effective: how many independent patients, counted without weights"
    assert note in audit.observed().to_markdown("marginals")
    assert note not in audit.observed().to_markdown("gaps")


def test_reasons_are_given_once_with_their_groups():
    table = cohort(600).reset_index(drop=True)
    table.loc[table["race"] == "Other", "readmitted"] = 0
    found = rates_table(audit_of(table).observed(), ["tpr"], "Rates")
    assert found.note.count("no events") == 1
    assert "TPR of Other, F & Other, M & Other: no events" in found.note


def test_attributes_are_crossed_with_one_sign(whole):
    tables = Page(whole).text.partition("How to repeat this")[0]
    assert "sex x race" not in tables.replace("~ age + sex x race", "")


def test_undefined_rates_are_dashes_with_their_reasons(tmp_path, no_pictures):
    table = cohort(600).reset_index(drop=True)
    none = (table["sex"] == "F") & (table["race"] == "Other")
    table.loc[none, "readmitted"] = 0
    page = audit_of(table).report(tmp_path / "r.html").read_text(encoding="utf-8")
    text = Page(page).text
    assert "No rate: TPR of F & Other: no events" in text


def test_rows_left_out_are_counted_with_the_reason(tmp_path, no_pictures):
    table = cohort(600).reset_index(drop=True)
    table.loc[:8, "race"] = None
    table.loc[5:29, "age"] = np.nan
    audit = audit_of(table, missing="drop")
    ipw = audit.counterfactual(PROPENSITY)
    text = Page(audit.report(tmp_path / "r.html", ipw).read_text(encoding="utf-8")).text
    assert "read 600 rows of the table left out 9 race missing: 9 used 591" in text
    assert "570 rows used (30 dropped: race missing (9), age missing (25))" in text


def test_the_guideline_supports_and_does_not_certify(whole):
    page = Page(whole)
    text = page.text.partition("Items of TRIPOD+AI")[2]
    for item in ("6c", "10", "11", "12e", "14", "18f", "20a", "20b", "21", "23a"):
        assert re.search(rf"\b{item}\b", text)
    assert "supports" in text
    assert "left to the author" in text
    assert "Patients by group: treatment, score and covariates" in text
    assert "compl" + "iant" not in page.text.lower()


def test_what_cannot_be_written_is_refused_before_any_work(tmp_path, audit, results):
    other = audit_of(cohort(), groups="sex").observed()
    with pytest.raises(DataError, match=r"must end in \.html"):
        audit.report(tmp_path / "page.pdf")
    with pytest.raises(DataError, match="of another audit"):
        audit.report(tmp_path / "page.html", results[4], other)
    with pytest.raises(TypeError, match="result 1 is of type DataFrame"):
        audit.report(tmp_path / "page.html", other.rates)
    with pytest.raises(ValueError, match="guideline must be one of 'tripod"):
        audit.report(tmp_path / "page.html", guideline="strobe")
    with pytest.raises(DataError, match="two results are of type ObservedResult"):
        audit.report(tmp_path / "page.html", other, other)
    there = tmp_path / "there.html"
    there.write_text("mine")
    with pytest.raises(DataError, match="overwrite=True"):
        audit.report(there, overwrite=False)
    with pytest.raises(DataError, match="is a file, not a folder"):
        audit.report(there / "page.html")
    assert there.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["there.html"]


def test_without_jinja2_it_says_what_to_install(tmp_path, audit, monkeypatch):
    real = builtins.__import__

    def importing(name, *args, **options):
        if name.split(".")[0] == "jinja2":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(ImportError, match=r'pip install "cfair\[report\]"'):
        audit.report(tmp_path / "page.html")


def test_many_groups_are_cut_with_a_word(tmp_path, no_pictures, monkeypatch):
    table = cohort().reset_index(drop=True)
    table["site"] = [f"site {k % 21:02d}" for k in range(len(table))]
    audit = audit_of(table, groups=["sex", "site"])
    for module in (page_module, size):
        monkeypatch.setattr(module, "MOST_PAGE", 45_000)  # as if there were many more
    page = audit.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "of 42 groups not shown" in page
    assert len(page.encode()) <= 45_000
    assert not Page(page).wrong
    assert "rows are left out, so that the page stays below 0.045 MB" in page
    assert "The results themselves have it all, and so has the folder of --out" in page


def test_masked_counts_stay_masked(masked):
    text = masked[1].text
    plain = audit_of(cohort(700)).observed().rates.set_index("metric").loc["fpr"]
    assert (plain["events"] < 11).any()
    assert "suppress_below=11" in text
    assert "A fingerprint of the data is left out" in text
    assert "Disclosure control: counts below 11 masked" in text
    assert "the balance of terms whose means would give counts" in text
    assert "sex[T.M]:race[T.Other]" not in text  # its mean would be a count
    assert not re.search(r"SHA-256|[0-9a-f]{64}", text)
    small = plain[plain["events"] < 11]["group"].tolist()
    for group in small:
        cells = text.partition("Observed rates (95%")[2].partition(f"{group} ")[2].split()
        assert cells[1] in ("<11", "masked")


def test_the_command_line_writes_the_page(tmp_path, capsys, no_pictures):
    data, page = tmp_path / "patients.csv", tmp_path / "page.html"
    cohort(600).to_csv(data, index=False)
    call = ["audit", str(data), "--outcome", "readmitted", "--score", "risk", "--groups", "sex"]
    options = ["--propensity", "treated ~ sex + risk + age", "--title", "A <b>title</b>"]
    assert main([*call, *options, "--html", str(page), "--guideline", "tripod+ai"]) == 0
    assert f"Everything on one page: {page}" in capsys.readouterr().out
    read = Page(page.read_text(encoding="utf-8"))
    assert "A <b>title</b>" in read.text
    assert "propensity='treated ~ sex + risk + age'" in read.text
    assert "Items of TRIPOD+AI" in read.text
    for wrong, word in (
        (["--html", str(tmp_path / "p.txt")], ".html"),
        (["--guideline", "tripod+ai"], "--html"),
    ):
        assert main([*call, *wrong]) == 2
        assert word in capsys.readouterr().err


# -- forest ---------------------------------------------------------------------------------------


def test_a_forest_has_headings_counts_and_numbers(audit):
    result = audit.observed()
    ax = result.plot_forest("fpr", margin=(0.8, 1.25), ax=Figure().add_subplot())
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert labels[:4] == ["All", "sex", "   F", "   M"]
    assert labels[4] == "race"
    assert labels[8] == "sex × race"
    said = [t.get_text() for t in ax.texts]
    row = result.overall.set_index("metric").loc["fpr"]
    assert f"{row['n']:,}" in said
    assert f"{row['non_events']:,}" in said
    assert f"{row['events']:,}" not in said
    low, high, value = row["ci_low"], row["ci_high"], row["estimate"]
    assert f"{value:.2f} ({low:.2f} to {high:.2f})" in said
    (band,) = ax.patches
    assert band.get_x() == pytest.approx(0.8 * value)
    assert band.get_x() + band.get_width() == pytest.approx(1.25 * value)
    line = next(x for x in ax.lines if len(x.get_xdata()) == 2 and x.get_linestyle() == "--")
    assert line.get_xdata()[0] == pytest.approx(value)


def test_attributes_and_intersections_follow_the_order_asked_for(audit):
    ax = audit.observed().plot_forest(
        ["fpr", "tpr"], attributes=["race", "sex"], reference=("M", "White"),
        ax=Figure().add_subplot(),
    )  # fmt: skip
    labels = [t.get_text().strip() for t in ax.get_yticklabels()]
    assert labels[:3] == ["FPR", "All", "race"]
    at = labels.index("sex × race")
    assert labels[at + 1 : at + 4] == ["F & Black", "M & Black", "F & Other"]
    only = audit.observed().plot_forest(
        "fpr", attributes="race", intersections=False, reference=None, ax=Figure().add_subplot()
    )
    assert len(only.get_yticklabels()) == 5


def test_a_row_without_a_rate_has_a_hollow_mark_and_its_reason():
    table = cohort(600).reset_index(drop=True)
    table.loc[(table["sex"] == "F") & (table["race"] == "Other"), "readmitted"] = 0
    ax = audit_of(table).observed().plot_forest("tpr", ax=Figure().add_subplot())
    assert "no events" in [t.get_text() for t in ax.texts]
    marks = [line for line in ax.lines if line.get_marker() == "X"]
    assert [line.get_markerfacecolor() for line in marks] == ["white"]


def texts_of(ax):
    return [t.get_text() for t in ax.texts]


@pytest.mark.parametrize(
    ("metric", "head"),
    [
        *((m, "events") for m in ("tpr", "fnr")),
        *((m, "non-events") for m in ("fpr", "tnr")),
        *((m, "flagged") for m in ("ppv", "fdr")),
        *((m, "not flagged") for m in ("npv", "for")),
    ],
)
def test_at_the_left_stands_what_a_rate_is_a_share_of(audit, metric, head):
    result = audit.observed()
    said = texts_of(result.plot_forest(metric, ax=Figure().add_subplot()))
    assert {"n", head} <= set(said)
    assert not {"events", "non-events", "flagged", "not flagged"} - {head} & set(said)
    rates = result.rates
    for value in rates.loc[rates["metric"] == metric, "denominator"]:
        assert f"{value:,}" in said


def test_each_metric_has_heads_of_its_own_and_counterfactual_ones_the_untreated(results):
    ax = results[0].plot_forest(["cfpr", "cfnr", "fpr"], ax=Figure().add_subplot())
    heads = [t for t in ax.texts if t.get_text() in ("n", "untreated", "events", "non-events")]
    labels = [t.get_text() for t in ax.get_yticklabels()]
    found = {labels[int(t.xy[1])]: [] for t in heads}
    for text in heads:
        found[labels[int(text.xy[1])]].append(text.get_text())
    assert {k: sorted(v) for k, v in found.items()} == {
        "cFPR": ["n", "non-events", "untreated"],
        "cFNR": ["events", "n", "untreated"],
        "FPR": ["n", "non-events"],
    }
    few = texts_of(results[2].plot_forest("cfpr", ax=Figure().add_subplot()))
    assert "expected non-events" in few


def test_two_results_stand_in_one_row_with_a_legend(audit, results):
    observed, ipw = audit.observed(), results[0]
    ax = observed.plot_forest("fpr", compare=ipw, ax=Figure().add_subplot())
    names = [t.get_text() for t in ax.get_legend().get_texts()]
    assert names[0] == "Observed"
    assert names[1] == f"Had nobody been treated: {ipw.estimator}"
    assert names[2] == "all rows, in the colour of each"
    said = texts_of(ax)
    for frame, metric in ((observed.rates, "fpr"), (ipw.rates, "cfpr")):
        for row in frame[frame["metric"] == metric].to_dict("records"):
            values = (row["estimate"], row["ci_low"], row["ci_high"])
            assert "{:.2f} ({:.2f} to {:.2f})".format(*values) in said
            assert f"{row['denominator']:,}" in said
    first, second = (c.get_offsets()[:, 1] for c in ax.collections if len(c.get_offsets()) > 2)
    assert np.allclose(second - first, second[0] - first[0])
    assert 0.2 < second[0] - first[0] < 0.5


def test_what_is_compared_may_be_named_and_is_found_by_its_metric(results):
    ipw, aipw = results[:2]
    ax = ipw.plot_forest("cfpr", compare={"AIPW": aipw}, ax=Figure().add_subplot())
    assert "AIPW" in [t.get_text() for t in ax.get_legend().get_texts()]
    own = ipw.plot_forest("fnr", compare=ipw, ax=Figure().add_subplot())
    assert own.get_xlabel() == "FNR / cFNR"
    assert own.get_legend().get_texts()[0].get_text() == "Observed"
    twice = ipw.plot_forest("cfpr", compare=ipw, ax=Figure().add_subplot())
    names = [t.get_text() for t in twice.get_legend().get_texts()][:2]
    assert names[0].endswith("(1)")
    assert names[1].endswith("(2)")


def test_what_cannot_be_compared_is_refused(audit, results, small):
    observed = audit.observed()
    with pytest.raises(DataError, match="compare has the groups F, M"):
        observed.plot_forest("fpr", compare=small.observed())
    with pytest.raises(TypeError, match="compare must be a result with rates by group"):
        observed.plot_forest("fpr", compare=results[5])
    with pytest.raises(ValueError, match="compare must have at least one"):
        observed.plot_forest("fpr", compare={})
    with pytest.raises(ValueError, match="margin= is for one result"):
        observed.plot_forest("fpr", compare=results[0], margin=(0.8, 1.25))
    with pytest.raises(ValueError, match="ppv"):
        observed.plot_forest("ppv", compare=results[0])


def test_the_page_has_observed_rates_beside_those_without_treatment(whole):
    alts = [a["alt"] for a in Page(whole).all("img")]
    found = [a for a in alts if a.startswith("False positive rate, observed and had nobody been")]
    assert len(found) == 1
    for name in ("IPW", "AIPW"):
        assert re.search(rf"Nobody treated: {name}: from 0\.\d\d", found[0])


def test_a_forest_refuses_what_it_cannot_draw(audit, results):
    result = audit.observed()
    with pytest.raises(DataError, match="attributes must be of 'sex', 'race', not 'age'"):
        result.plot_forest("fpr", attributes=["age"])
    with pytest.raises(ValueError, match="margin"):
        result.plot_forest("fpr", margin=0.1)
    with pytest.raises(ValueError, match="needs a reference"):
        result.plot_forest("fpr", margin=(0.8, 1.25), reference=None)
    with pytest.raises(ValueError, match="no share"):
        results[4].plot_forest("calibration_slope")
    with pytest.raises(TypeError, match="ax must be one matplotlib Axes"):
        result.plot_forest("fpr", ax=3)


# -- in a browser ---------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_browser_opens_it_without_complaint(drawn, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(drawn, encoding="utf-8")
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *("--dump-dom", f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0
    assert "CONSOLE" not in done.stderr
    assert '<section id="repeat"' in done.stdout


def test_the_number_of_treated_says_of_which_rows_it_is(monkeypatch):
    table = cohort(600).reset_index(drop=True)
    table.loc[:29, "sbp"] = np.nan
    audit = audit_of(table, missing="drop")
    ipw = audit.counterfactual(PROPENSITY)
    n = table["treated"][30:].sum()
    flow = str(cohort_blocks(audit.observed().cohort, [ipw]))
    assert f"'{n} ({100 * n / 570:.1f}%)', 'treated = 1, of the 570 rows with covariates'" in flow
    declared = audit_of(table, missing="drop", treatment="treated").observed().cohort
    n = table["treated"].sum()
    flow = str(cohort_blocks(declared, [ipw]))
    assert f"'{n} ({100 * n / 600:.1f}%)', 'treated = 1'" in flow


def test_table_one_of_a_report_has_the_treatment_and_no_names(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "picture", stub)
    table = cohort(700).assign(ward=[f"ward {k % 24}" for k in range(700)])
    audit = audit_of(table)
    ipw = audit.counterfactual("treated ~ age + ward")
    text = Page(audit.report(tmp_path / "r.html", ipw).read_text(encoding="utf-8")).text
    patients = text.partition("Patients by group")[2].partition("Who is in the data")[0]
    assert "treated, n (%)" in patients
    assert "Left out: ward (neither numbers nor 20 levels or fewer)" in patients
    assert "age" in patients
    with pytest.raises(DataError, match="'ward' has 24 levels"):
        audit.table_one(["ward"])


# -- what a reader has to be told -----------------------------------------------------------------


@pytest.fixture(scope="module")
def masked_page(tmp_path_factory):
    table = cfair.load_cohort()
    table["old"] = np.where(table["age"] > 75, "75+", np.where(table["age"] > 55, "55-75", "<55"))
    audit = audit_of(table, groups=["sex", "race", "old"], treatment="treated", suppress_below=11)
    result = audit.counterfactual("treated ~ sex + race + old + risk + age + sbp")
    path = tmp_path_factory.mktemp("masked") / "r.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "picture", stub)
        audit.report(path, result, audit.interaction(["fpr", "tpr"]))
    return result, Page(path.read_text(encoding="utf-8")).text


def test_a_masked_rate_is_not_called_a_missing_one(masked_page):
    result, text = masked_page
    gaps = gaps_table(result, "gaps")
    rows = {row[0]: row for row in gaps.parts[1].rows}  # of cFNR
    assert rows["race"][1].startswith("masked: ")
    assert rows["race"][-1] == "masked"
    assert rows["sex"][-1] == "acceptable"
    assert "no rate in" not in " ".join(cell for p in gaps.parts for r in p.rows for cell in r)
    assert "Masked: rests on a count below 11, or would reveal one." in text
    assert "No rate: " not in text


def test_masked_cells_of_an_interaction_are_called_so(tmp_path, masked_page):
    table = cfair.load_cohort()
    table["old"] = np.where(table["age"] > 75, "75+", np.where(table["age"] > 55, "55-75", "<55"))
    audit = audit_of(table, groups=["sex", "race", "old"], suppress_below=11)
    result = audit.interaction("tpr")
    (found,) = [b for b in interaction_blocks(result) if isinstance(b, blocks.Table)]
    for row, note in zip(found.parts[0].rows, result.contrasts["note"], strict=True):
        reason = note.split("; ")[0]
        cells = reason.rpartition(" in ")[2].split(", ") if reason.startswith("masked") else []
        for cell, shown_cell in zip(("both", "a only", "b only", "neither"), row[2:6], strict=True):
            assert (shown_cell == "masked") == (cell in cells)
        assert (row[6] == "masked") == bool(cells)
    assert any("masked" in row for row in found.parts[0].rows)
    assert found.note.endswith("Masked: rests on a count below 11, or would reveal one.")


def test_replicates_with_an_undefined_rate_are_explained():
    rng = np.random.default_rng(3)
    table = cfair.load_cohort().head(400).reset_index(drop=True)
    table["race"] = np.where(np.arange(400) < 6, "few", "many")
    table.loc[:5, "treated"] = 0
    table.loc[:5, "readmitted"] = [1, 0, 0, 0, 0, 0]
    table["treated"] = np.where(table.index > 5, rng.integers(0, 2, 400), table["treated"])
    audit = audit_of(table, groups="race")
    result = audit.counterfactual(
        "treated ~ risk + age", n_boot=40, bootstrap="rows", n_perm=40, seed=1
    )
    lost, permuted = (
        int(draws[["cfpr", "cfnr"]].drop(columns="variance", level=1).isna().any(axis=1).sum())
        for draws in (result.boot_draws, result.null_draws)
    )
    assert 0 < lost < 40
    assert 0 < permuted < 40
    said = " ".join(
        b.text for b in methods(audit.observed(), [result]) if isinstance(b, blocks.Paragraph)
    )
    assert (
        f"In {lost} of the bootstrap replicates and {permuted} of the permutations a rate is "
        "undefined: a small group has none of the patients that the rate is of"
    ) in said
    assert "left out where that rate is needed, and kept for all others" in said
    whole = audit_of(cfair.load_cohort())
    plain = whole.counterfactual(PROPENSITY, n_boot=40, seed=1)
    assert "a rate is undefined" not in str(methods(whole.observed(), [plain]))


def test_a_treatment_that_is_not_counted_is_not_said_to_be_missing():
    for roles, said in (
        ({"treatment": "treated", "round_counts_to": 5}, "not counted: treated"),
        ({}, "no treatment was declared"),
    ):
        own = audit_of(cfair.load_cohort(), **roles).observed().cohort
        (flow,) = [b for b in cohort_blocks(own, []) if isinstance(b, blocks.Flow)]
        assert flow.steps[-1] == ("treated", "–", said)


def test_long_names_are_said_to_be_cut_in_figures():
    table = cohort(300)
    said = "Long names are cut in the middle in figures"
    for name, told in (("White", False), ("White, as told by the patient at the desk", True)):
        own = audit_of(table.replace({"race": {"White": name}})).observed().cohort
        texts = [b.text for b in cohort_blocks(own, []) if isinstance(b, blocks.Paragraph)]
        assert any(text.startswith(said) for text in texts) == told


def test_numbers_keep_their_line_on_paper_where_there_is_room():
    row = ("F & Black", "719", "0.334 (0.321 to 0.347)")
    one = blocks.Table("t", ("Group", "n", "Rate"), (blocks.Rows("", (row,)),))
    assert one.fits
    wide = replace(
        one, head=("Group", *"abcdefg"), parts=(blocks.Rows("", ((*row[:1], *row[2:] * 7),)),)
    )
    assert not wide.fits
    words = replace(one, text_columns=(2,), parts=(blocks.Rows("", (("a", "1", "word " * 60),)),))
    assert words.fits  # words are folded


def test_words_of_the_code_are_not_on_the_page():
    note = "it matters which group of a pair is the reference: name it with reference=."
    assert wording.spoken(note) == "it matters which group of a pair is the reference."


def test_table_one_is_printed_no_wider_than_a_terminal():
    long = "Kreyol ayisyen, as spoken at home and with the care team"
    table = cfair.load_cohort().replace({"race": {"Other": long}})
    result = audit_of(table).table_one(["age", "sbp", "treated"])
    lines = str(result).splitlines()
    assert max(map(len, lines)) <= 100
    heads = [line.split("  ") for line in lines if line.startswith("Characteristic")]
    assert len(heads) > 1
    printed = " ".join(" ".join(lines).split())
    assert f"F & {long}" in printed  # in full where it is cut in the heads
    for value in result.to_markdown().split("|"):
        if "(" in value and value.strip()[:1].isdigit():
            assert value.strip() in printed
    assert len(max(result.to_markdown().splitlines(), key=len)) > 100  # for papers as it was


def test_findings_name_the_comparisons_that_are_masked():
    cohort = cfair.load_cohort()
    roles = {"outcome": "readmitted", "score": "risk", "cutoff": 0.5, "groups": ["sex", "race"]}
    formula = "treated ~ sex * race + risk + age + sbp"
    said = {}
    for below in (None, 11):
        result = cfair.Audit(cohort, **roles, suppress_below=below).counterfactual(formula)
        said[below] = " ".join(" ".join(f) for f in gap_findings(result))
    assert "no gap is given by race, sex x race, where rates are masked" in said[11]
    assert "no gap is given" not in said[None]
