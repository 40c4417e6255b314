"""Recorded figures of Fair Code (cells, flag, profile) and FairMedFM (Dice), against cfair.

Everything deterministic is compared at 1e-9; where the peer rounds, cfair's figure is rounded to
the same digits. Intervals and p-values of Fair Code are random and left out.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cfair
from validation import interaction as simulation
from validation.ledger import check, compare

DATA = Path(__file__).parent / "data" / "peers"
EXACT = 1e-9
FAIRCODE, FAIRMEDFM = "peers: Fair Code", "peers: FairMedFM, Dice"

#: Masks of Fair Code's pairs: level, attribute, twice.
PAIRS = {
    "Female x Black": (("sex", "Female"), ("race", "Black")),
    "Female x Other": (("sex", "Female"), ("race", "Other")),
    "Female x non-White": (("sex", "Female"), ("race", "not White")),
    "Female x 65+": (("sex", "Female"), ("age_group", "65+")),
    "Black x 65+": (("race", "Black"), ("age_group", "65+")),
    "Male x Black": (("sex", "Male"), ("race", "Black")),
}
OUTCOMES = ("y_pred", "error", "y_pred_among_y1")


@cache
def record(name: str) -> dict:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


@cache
def table() -> pd.DataFrame:
    return pd.read_csv(DATA / "peers_seed11.csv")


def mask(rows: pd.DataFrame, side: tuple[str, str]) -> pd.Series:
    attribute, level = side
    if level.startswith("not "):
        return rows[attribute] != level[4:]
    return rows[attribute] == level


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_cells_gaps_and_flag_of_fair_code(outcome, pair):
    rows = table()
    rows = rows[rows["y_true"] == 1] if outcome.endswith("y1") else rows
    wrong = (rows["y_pred"] != rows["y_true"]).astype(int)
    y = wrong if outcome == "error" else rows["y_pred"]
    a, b = PAIRS[pair]
    features = {"a": mask(rows, a), "b": mask(rows, b)}
    found = cfair.intersectional_gap(y, sensitive_features=features)
    theirs = record("faircode_seed11")[f"intersectional_report_outcome_{outcome}"][pair]
    for name in ("gap_a_alone", "gap_b_alone"):
        compare(FAIRCODE, getattr(found, name), theirs[name], EXACT, f"{pair} {name}")
    compare(FAIRCODE, found.gap, theirs["intersectional"]["gap"], EXACT, pair)
    for cell, rate in theirs["cell_rates"].items():
        compare(FAIRCODE, found.cell_rates[cell], rate, EXACT, f"{pair} {cell}")
        compare(FAIRCODE, found.cell_sizes[cell], theirs["cell_sizes"][cell], 0, f"{pair} {cell}")
    check(FAIRCODE, found.superadditive == theirs["superadditive"], f"{pair}: flag")


def test_interaction_contrasts_recorded_beside_fair_code():
    for pair, theirs in record("faircode_seed11")["our_own_interaction_contrast"].items():
        a, b = PAIRS[pair]
        features = {"a": mask(table(), a), "b": mask(table(), b)}
        found = cfair.intersectional_gap(table()["y_pred"], sensitive_features=features)
        contrast = theirs["additive_interaction_r11_r10_r01_r00"]
        compare(FAIRCODE, found.contrast, contrast, EXACT, pair)
        excess = abs(found.gap) - abs(found.gap_a_alone) - abs(found.gap_b_alone)
        compare(FAIRCODE, excess, theirs["excess_over_sum_of_abs_marginals"], EXACT, pair)


def test_the_verb_gives_the_figures_of_the_function():
    audit = cfair.Audit(
        table(), outcome="y_true", prediction="y_pred", groups=["sex", "race", "age_group"]
    )
    result = audit.interaction(
        ("selection_rate", "tpr"),
        attributes=["sex", "race"],
        levels={"sex": "Female", "race": "Black"},
        reference="rest",
    ).contrasts.set_index("metric")
    for metric, outcome in (("selection_rate", "y_pred"), ("tpr", "y_pred_among_y1")):
        theirs = record("faircode_seed11")[f"intersectional_report_outcome_{outcome}"]
        theirs, row = theirs["Female x Black"], result.loc[metric]
        rates, sizes = theirs["cell_rates"], theirs["cell_sizes"]
        for name, cell in zip(("11", "10", "01", "00"), rates, strict=True):
            cell = {"11": "both", "10": "a_only", "01": "b_only", "00": "neither"}[name]
            compare(FAIRCODE, row[f"r{name}"], rates[cell], EXACT, f"{metric} {cell}")
            compare(FAIRCODE, row[f"n{name}"], sizes[cell], 0, f"{metric} {cell}")
        compare(FAIRCODE, row["gap_a"], theirs["gap_a_alone"], EXACT, metric)
        compare(FAIRCODE, row["gap_b"], theirs["gap_b_alone"], EXACT, metric)
        compare(FAIRCODE, row["gap_both"], theirs["intersectional"]["gap"], EXACT, metric)
        check(FAIRCODE, row["superadditive"] == theirs["superadditive"], metric)


def test_counterexamples_to_the_flag():
    cases = record("edge_cases")["faircode_superadditive_counterexamples"]
    order = ("both", "a_only", "b_only", "neither")
    codes = {"both": (1, 1), "a_only": (1, 0), "b_only": (0, 1), "neither": (0, 0)}
    for name, case in cases.items():
        rows = []
        for cell in order:
            n = case["sizes"][cell]
            events = round(case["cells"][cell] * n)
            rows += [(k < events, *codes[cell]) for k in range(n)]
        y, a, b = (list(map(int, column)) for column in zip(*rows, strict=True))
        found = cfair.intersectional_gap(y, sensitive_features={"a": a, "b": b})
        check(FAIRCODE, found.superadditive == case["superadditive"], name)
        for ours, theirs in (
            (found.gap, "gap_both_vs_neither"),
            (found.gap_a_alone, "gap_a"),
            (found.gap_b_alone, "gap_b"),
            (found.contrast, "additive_interaction"),
        ):
            compare(FAIRCODE, ours, case[theirs], EXACT, f"{name}: {theirs}")


def test_an_empty_cell_is_undefined_where_fair_code_reports_p_of_0_and_significance():
    theirs = record("edge_cases")["faircode_empty_both_cell"]["value"]
    assert theirs["intersectional"]["p_value"] == 0.0
    assert theirs["intersectional"]["significant"]
    found = cfair.intersectional_gap(
        [1, 0, 1, 0, 1, 0],
        sensitive_features={"a": [0, 0, 1, 1, 0, 0], "b": [0, 0, 0, 0, 1, 1]},
    )
    compare(FAIRCODE, found.gap_a_alone, theirs["gap_a_alone"], EXACT)
    compare(FAIRCODE, list(found.cell_sizes.values()), [0, 2, 2, 2], 0)
    compare(
        FAIRCODE, list(found.cell_rates.values()), [np.nan, *[0.5] * 3], EXACT, "rates of cells"
    )
    assert np.isnan([found.gap, found.gap_p_value, found.contrast, found.p_value]).all()
    assert found.superadditive is None
    assert "no rows in both" in found.note


@pytest.mark.parametrize("name", record("faircode_seed11")["profile"])
def test_profile_of_fair_code(name):
    profile = record("faircode_seed11")["profile"][name]
    names = [d["name"] for d in profile["dimensions"]]
    result = cfair.representation_of(table(), names)
    compare(FAIRCODE, result.tables.n_read, profile["n_rows"], 0)
    levels, attributes = result.levels, result.attributes.set_index("attribute")
    # Fair Code re-bands ages by the first number in the label
    bands = {"18-30": "18-44", "45-60": "45-64", "60-75": "65+"}
    scores = []
    for d in profile["dimensions"]:
        row = attributes.loc[d["name"]]
        compare(FAIRCODE, row["n_levels"], d["n_groups"], 0, d["name"])
        compare(FAIRCODE, round(row["entropy_ratio"], 4), d["entropy_ratio"], EXACT, d["name"])
        compare(FAIRCODE, round(row["imbalance_ratio"], 2), d["imbalance_ratio"], EXACT, d["name"])
        compare(FAIRCODE, round(row["min_share"], 4), d["min_share"], EXACT, d["name"])
        compare(FAIRCODE, row["missing_share"], d["missing_pct"], EXACT, d["name"])
        scores.append(round(100 * row["entropy_ratio"]))
        compare(FAIRCODE, scores[-1], d["dimension_score"], 0, d["name"])
        own = levels[levels["attribute"] == d["name"]].copy()
        own.index = own["level"].astype(str)
        for group in d["groups"]:
            level = bands.get(group["label"], group["label"])
            found = own.loc[level]
            compare(FAIRCODE, found["n"], group["count"], 0, level)
            compare(FAIRCODE, found["share"], group["share"], EXACT, level)
            compare(FAIRCODE, round(found["ci_low"], 4), group["ci_low"], EXACT, level)
            compare(FAIRCODE, round(found["ci_high"], 4), group["ci_high"], EXACT, level)
            check(FAIRCODE, found["small_group"] == group["small_group"], level)
        under = set(own.index[own["under_represented"]])
        check(FAIRCODE, under == set(d["under_represented"]), d["name"])
    compare(FAIRCODE, round(float(np.mean(scores))), profile["overall_score"], 0, "overall score")
    imbalanced = {a for a in names if f"{a}: imbalance" in " ".join(profile["flags"])}
    check(FAIRCODE, set(attributes.index[attributes["imbalanced"]]) == imbalanced, name)


@pytest.mark.parametrize(
    ("name", "cross", "floor"),
    [
        ("demographics_only cross=sex,race", ["sex", "race"], 0.01),
        ("demographics_only cross=sex,age_group", ["sex", "age_group"], 0.01),
        ("demographics_only cross=race,age_group", ["race", "age_group"], 0.01),
        ("demographics_only cross=sex,race floor=0.05", ["sex", "race"], 0.05),
    ],
)
def test_cells_that_fair_code_lists(name, cross, floor):
    listed = record("faircode_seed11")["profile"][name]["intersections"]
    theirs = {(c["a"], c["b"]): c["count"] for block in listed for c in block["cells"]}
    cells = cfair.representation_of(table(), cross, floor=floor).cells
    ours = cells[cells["absent"] | cells["below_floor"]]
    found = {(row[cross[0]], row[cross[1]]): row["n"] for _, row in ours.iterrows()}
    check(FAIRCODE, found == theirs, name)


def test_rows_that_miss_an_attribute_are_in_no_cell_and_in_fair_codes_denominator():
    rows = table().copy()
    rows.loc[:299, "race"] = None
    theirs = record("edge_cases")["faircode_profile_missing_rows_dropped_from_cross"]
    small = {"Black": 88, "Other": 31}
    assert all(
        f"'{level}' has only {n} rows" in " ".join(theirs["flags"]) for level, n in small.items()
    )
    result = cfair.representation_of(rows, ["sex", "race"], denominator="all")
    race = result.attributes.set_index("attribute").loc["race"]
    compare(FAIRCODE, race["missing_share"], 0.5, EXACT)
    check(FAIRCODE, bool(race["much_missing"]), "much missing")
    levels = result.levels[result.levels["attribute"] == "race"].set_index("level")
    for level, n in small.items():
        compare(FAIRCODE, levels.loc[level, "n"], n, 0, level)
        check(FAIRCODE, bool(levels.loc[level, "small_group"]), level)
    listed = theirs["intersections"][0]["cells"]
    cells = result.cells[result.cells["below_floor"]]
    ours = [{"a": row["sex"], "b": row["race"], "count": row["n"]} for _, row in cells.iterrows()]
    check(FAIRCODE, ours == listed, "cells below 1% of all 600 rows")
    known = cfair.representation_of(rows, ["sex", "race"]).cells
    check(FAIRCODE, not known["below_floor"].any(), "5 of 300 known rows are above 1%")


def test_associations_are_the_proxy_hints_of_fair_code():
    result = cfair.representation_of(table(), ["sex", "race", "age_group"])
    ours = result.associations.set_index(["attribute_a", "attribute_b"])
    for theirs in record("faircode_seed11")["proxy_hints"]:
        row = ours.loc[(theirs["a"], theirs["b"])]
        compare(FAIRCODE, row["p_value"], theirs["p_value"], EXACT)
        compare(FAIRCODE, round(row["cramers_v"], 4), theirs["cramers_v"], EXACT)
        compare(FAIRCODE, round(row["chi2"], 2), theirs["chi2"], EXACT)


@pytest.mark.parametrize(
    "setting", [k for k in record("fairmedfm_seed11")["segmentation"] if k[0] != "_"]
)
def test_dice_of_fairmedfm(setting):
    theirs = record("fairmedfm_seed11")
    block = theirs["segmentation"][setting]["attribute"]
    names = setting.split("_x_")
    found = cfair.segmentation_gaps(table()["dice"], sensitive_features=table()[names])
    compare(FAIRMEDFM, found.n, block["n"], 0)
    for name, value in block["summary"].items():
        compare(FAIRMEDFM, found.summary[name], value, EXACT, f"{setting} {name}")
    functions = {
        "dice_gap": "delta_dice", "worst_group_dice": "min_dice", "dice_std": "std_dice",
        "dice_skewness": "skewness_dice", "equity_scaled_dice": "es_dice",
    }  # fmt: skip
    for name, own in functions.items():
        value = theirs["segmentation_functions"][setting][name]
        compare(FAIRMEDFM, found.summary[own], value, EXACT, f"{setting} {name}")
    groups = found.by_group[found.by_group["n"] > 0].set_index("group")
    check(FAIRMEDFM, set(groups.index) == set(block["groups"]), setting)
    for name, group in block["groups"].items():
        compare(FAIRMEDFM, groups.loc[name, "n"], group["n"], 0, name)
        compare(FAIRMEDFM, groups.loc[name, "mean_dice"], group["mean_dice"], EXACT, name)


def test_dice_overall_and_edges_of_fairmedfm():
    theirs, edges = record("fairmedfm_seed11"), record("edge_cases")
    found = cfair.segmentation_gaps(table()["dice"], sensitive_features=table()["sex"])
    compare(FAIRMEDFM, found.mean_dice, theirs["segmentation"]["_overall"]["mean_dice"], EXACT)
    best = cfair.segmentation_gaps([1.0, 0.6], sensitive_features=["a", "b"])
    for name, value in edges["fairmedfm_perfect_group"]["summary"].items():
        value = np.nan if value is None else value
        compare(FAIRMEDFM, best.summary[name], value, EXACT, f"perfect group: {name}")
    spread = edges["fairmedfm_std_dice_is_population_sd"]
    pair = cfair.segmentation_gaps([0.5, 0.8], sensitive_features=["a", "b"])
    compare(FAIRMEDFM, pair.std_dice, spread["std_dice"], EXACT, "population SD")


def test_flag_and_test_under_the_null_reject_as_simulated():
    simulated = record("superadditive_flag_sim_RANDOM")
    section = "flag and contrast, simulated"
    for design in simulation.DESIGNS:
        found = simulation.simulate(design, datasets=2000, seed=20, wald=False)
        expected = simulated[design.recorded]
        # five standard deviations of 2000 draws
        allowed = 5 * (expected * (1 - expected) / 2000) ** 0.5
        compare(section, found["by rounding"], expected, allowed, design.name)
        if len(set(design.sizes)) == 1:  # the flag of equal cells is a tie, decided by rounding
            compare(section, found["flag"], 0.0, 0.0, design.name)
        else:
            compare(section, found["flag"], expected, allowed, design.name)
        if design.null:
            compare(section, found["rejects"], 0.05, 5 * (0.05 * 0.95 / 2000) ** 0.5, design.name)
