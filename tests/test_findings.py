"""What the list of findings leads with, and that it names the groups it speaks of in full."""

from __future__ import annotations

import re

import bad_inputs
import numpy as np
import pandas as pd
import pytest

import cfair
from cfair.report.findings import equivalence_finding, gap_findings, same_pair
from cfair.report.patients import disclosure_blocks
from cfair.results.gaps import odds_words
from cfair.results.report import _clearest

pytest.importorskip("jinja2")

ROLES = {"outcome": "readmitted", "score": "risk", "cutoff": 0.5}
FORMULA = "treated ~ sex * race + risk + age + sbp"


def with_two_patients(name, spread=0.0):
    """The cohort with a kind of two patients whom the score ranks the wrong way round."""
    table = cfair.load_cohort()
    race = table["race"].to_numpy(dtype=object, copy=True)
    y, risk = table["readmitted"].to_numpy(), table["risk"].to_numpy()
    race[np.flatnonzero((y == 1) & (risk < 0.3))[0]] = name
    race[np.flatnonzero((y == 0) & (risk > 0.6))[0]] = name
    lift = spread * (race == "White") * (y - 0.5)
    return table.assign(race=race, risk=np.clip(risk + lift, 0, 1))


def found(result, metric):
    return next(f for f in gap_findings(result) if f[0].startswith(metric))


@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_the_auc_of_two_patients_does_not_lead(spread):
    table = with_two_patients("Two", spread)
    performance = cfair.Audit(table, **ROLES, groups="race").performance()
    row = performance.gaps("auc").iloc[0]
    assert "Two" in (row["group"], row["reference"])  # the widest
    lead, rest = found(performance, "AUC")
    assert "Two" not in lead
    first = lead + rest.partition("; the widest gap")[0]
    assert "Two" not in first
    assert "White (" in first
    assert re.search(r"the widest gap.*Two \(1 patient\)", rest)
    assert ("groups differ, most clearly White and " in lead) == (spread > 0)


def test_where_all_rest_on_few_it_is_said_with_the_gap_and_comes_last():
    missed = [0, 14]
    flagged = [np.repeat([0, 1, 0, 1], [400, 200, few, 15 - few]) for few in missed]
    table = pd.DataFrame(
        {
            "y": np.tile(np.repeat([0, 1], [600, 15]), 2),
            "s": np.concatenate(flagged),
            "sex": np.repeat(["F", "M"], 615),
        }
    )
    findings = gap_findings(
        cfair.Audit(table, outcome="y", prediction="s", groups="sex").observed()
    )
    assert [lead.partition(":")[0] for lead, _ in findings] == [
        *("False positive rate", "Share flagged", "Sensitivity"),
    ]
    lead, rest = findings[-1]
    assert lead.startswith("Sensitivity: groups differ, by 0.93 ")
    for sex in "FM":
        assert f"the rate of {sex} rests on 15 patients: read it with care".lower() in lead.lower()
        assert f"rate of {sex} rests" not in rest


@pytest.mark.parametrize("name", ["a; masked in b", "one, two", "no rate in it; p from FPR"])
def test_groups_without_a_rate_are_named_in_full(name):
    table = with_two_patients(name)
    audit = cfair.Audit(table, **ROLES, groups=["sex", "race"])
    observed = audit.observed()
    lost = observed.rates.query("metric == 'fpr' and estimate.isna()")["group"].tolist()
    assert lost
    rest = found(observed, "False positive rate")[1]
    assert f"left out, for want of a rate: {', '.join(lost)}" in rest
    assert "masked" not in rest.replace(name, "")


def test_equivalence_names_its_pairs():
    audit = cfair.Audit(cfair.load_cohort(), **ROLES, groups=["sex", "race"])
    result = audit.equivalence(["tpr", "fpr"], reference=("M", "White"))
    for metric, (lead, rest) in zip(("tpr", "fpr"), equivalence_finding(result), strict=True):
        assert lead.startswith(metric.upper())
        for row in result.pairs.query("metric == @metric").to_dict("records"):
            named = next(p for p in rest.split("; ") if p.lower().startswith(row["verdict"]))
            assert f"{row['group']} to {row['reference']}" in named
    many = equivalence_finding(audit.equivalence("tpr"))[0][1]
    assert re.search(r"not enough data: .* and \d+ more; ", many)


def test_a_pair_that_rests_on_few_is_told_after_the_others(monkeypatch):
    table = cfair.load_cohort()
    result = cfair.Audit(table, **ROLES, groups="race").counterfactual(
        "treated ~ race + risk + age"
    )
    gaps = result.gaps().assign(p_adjusted=0.001)
    monkeypatch.setattr(cfair.report.findings, "tabled_gaps", lambda result: gaps)
    assert [lead.partition(":")[0] for lead, _ in same_pair(result)] == [
        *("False positive rate", "False negative rate"),
    ]
    places = cfair.report.findings._ROWS
    for key, row in places[result].items():
        if key[0] == "cfpr":
            row["n_effective"] = 3.0
    said = same_pair(result)
    assert [lead.partition(":")[0] for lead, _ in said] == [
        *("False negative rate", "False positive rate"),
    ]
    assert "rests on 3 patients: read it with care" in said[-1][0]


@pytest.mark.filterwarnings("ignore::cfair.errors.ModelWarning")
def test_the_change_of_a_gap_is_not_that_of_two_patients():
    table = with_two_patients("Two")
    table["risk"] = (table["risk"] - 0.25 * (table["race"] == "White")).clip(0, 1)
    two = table["race"] == "Two"
    table.loc[two, "risk"], table.loc[two, "readmitted"], table.loc[two, "treated"] = 0.9, 0, 0
    result = cfair.Audit(table, **ROLES, groups="race").counterfactual(
        "treated ~ risk + I(risk >= 0.5) + age"
    )
    row = result.gaps("cfpr").iloc[0]
    assert "Two" in (row["group"], row["reference"])  # the widest
    lead, rest = next(f for f in same_pair(result) if f[0].startswith("False positive"))
    rates = result.rates.set_index(["metric", "group"])["estimate"]
    large = rates["cfpr"].drop("Two")
    seen = rates["fpr"][large.idxmax()] - rates["fpr"][large.idxmin()]
    gap = large.max() - large.min()
    assert lead == (
        f"False positive rate: {seen:.2f} in the data, {gap:.2f} had nobody been treated."
    )
    assert f"The gap of {large.idxmax()} to {large.idxmin()}, a pair" in rest
    assert "of rates that rest on 20 patients or more" in rest
    assert "Two" not in lead + rest


# -- the page around them -------------------------------------------------------------------------


def test_what_is_masked_is_said_of_each_result(tmp_path):
    audit = cfair.Audit(
        cfair.load_cohort(), **ROLES, groups=["sex", "race"], treatment="treated", suppress_below=11
    )
    observed, result = audit.observed(), audit.counterfactual(FORMULA)
    assert "(none here)" in observed.disclosure
    assert "rates that rest on them" in result.disclosure
    page = audit.report(tmp_path / "r.html", result).read_text(encoding="utf-8")
    box = page.partition('id="cohort"')[2].partition("</section>")[0]
    told = [" ".join(re.sub("<[^>]+>", " ", li).split()) for li in re.findall("<li>.*?</li>", box)]
    for name, own in (("Observed rates", observed), ("Counterfactual rates, ", result)):
        mine = [line for line in told if line.startswith(name) or f"; {name}" in line]
        assert len(mine) == 1
        assert own.disclosure.partition("; masked for")[0] in mine[0]
    assert box.count(cfair.disclosure.APART) == 1
    plain = cfair.Audit(cfair.load_cohort(), **ROLES, groups="sex").observed()
    assert disclosure_blocks(plain.cohort, [plain]) == []


def test_tables_of_many_columns_take_the_width_of_the_page(tmp_path):
    audit = cfair.Audit(bad_inputs.cohort(300), outcome="y", score="s", cutoff=0.5, groups="sex")
    page = audit.report(tmp_path / "r.html", audit.performance()).read_text(encoding="utf-8")
    tables = re.findall(r"<table(.*?)</table>", page, re.DOTALL)
    assert len(tables) > 5
    for table in tables:
        columns = len(re.findall('<th scope="col"|<td></td>', table.partition("</thead>")[0]))
        assert ("wide" in table.partition(">")[0]) == (columns > 5)


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ("of TPR; p from FPR", " (TPR; p: FPR)"),
        ("of TPR; masked in a; p from b", " (TPR)"),
        ("of FPR; no rate in p from TPR", " (FPR)"),
        ("TPR: no rate in of FPR; p from TPR", ""),
    ],
)
def test_the_rate_of_equalized_odds_is_not_read_from_names_of_groups(note, words):
    assert odds_words({"metric": "equalized_odds", "note": note}) == words


def test_a_gap_whose_interval_excludes_0_is_not_called_noise_beside_it():
    table = with_two_patients("Two", 0.4)
    printed = " ".join(str(cfair.Audit(table, **ROLES, groups="race").performance()).split())
    for low, said in re.findall(r"\[(\S+) \S+\], (may be noise|not told from 0)", printed):
        assert (float(low) <= 0) == (said == "may be noise")
    row = {"by": "race", "group": "Two", "reference": "White"}
    result = cfair.Audit(table, **ROLES, groups="race").performance()
    k = result.metrics.index("auc")
    for low, said in ((0.0, ", may be noise; clearest: "), (0.1, ", not told from 0 as one of ")):
        assert _clearest(result, k, {**row, "ci_low": low}).startswith(said)
