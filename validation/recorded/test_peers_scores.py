"""Figures of other fairness packages about a score, recorded once, against cfair.

AUC, log loss, Brier score, mean score, calibration errors, and what FairMedFM has at its best-F1
threshold. Tolerance 1e-9; R fairmetrics rounds to six decimals, TrustLens and the others do not.

One difference is meant: FairMedFM leaves a group with one outcome out of everything, cfair only out
of what needs both. So in the crossing of three attributes, where five rows have no event, its gaps
of log loss, ECE and accuracy are compared without that group.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cfair
from cfair import metrics
from cfair.errors import CfairWarning
from validation.ledger import check, compare, quiet

DATA = Path(__file__).parent / "data" / "peers"
ATTRIBUTES = ("sex", "race", "age_group")
SETTINGS = [c for k in (1, 2, 3) for c in combinations(ATTRIBUTES, k)]
EXACT, SIX_DECIMALS = 1e-9, 5.01e-7
ONE_CLASS = "Female & Other & 45-64"
FAIRMEDFM, FAIRLEARN = "peers: FairMedFM, scores", "peers: Fairlearn, scores"

setting_of = pytest.mark.parametrize("setting", SETTINGS, ids="_x_".join)


@cache
def record(name: str) -> dict:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


@cache
def rows() -> pd.DataFrame:
    return pd.read_csv(DATA / "peers_seed11.csv")


@cache
def performance(setting: tuple[str, ...]) -> Any:
    """The audit as FairMedFM has it: bins over a group's own range, ties not called."""
    audit = cfair.Audit(rows(), outcome="y_true", score="y_score", cutoff=0.5, groups=list(setting))
    with quiet():
        return audit.performance(bin_range="group", rule=">")


def fairmedfm(setting: tuple[str, ...]) -> dict:
    return record("fairmedfm_seed11")["classification"]["_x_".join(setting)]["attribute"]


def by_group(metric: str, setting: tuple[str, ...], **options: Any) -> pd.Series:
    data = rows()
    frame = getattr(metrics, metric)(
        data["y_true"], data["y_score"], sensitive_features=data[list(setting)], **options
    )
    return frame.set_index("group")[metric].dropna()


def numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, (*path, key))
    else:
        yield path, math.nan if value is None else value


# -- FairMedFM ------------------------------------------------------------------------------------


@setting_of
def test_every_figure_of_fairmedfm_by_group(setting):
    """AUC, accuracy, log loss, ECE, and the counts of the call, at 0.5 and at the best F1."""
    data, result = rows(), performance(setting)
    best = metrics.best_f1_threshold(data["y_true"], data["y_score"])
    compare(FAIRMEDFM, best, record("fairmedfm_seed11")["best_f1_threshold_all_samples"], 0)
    compare(FAIRMEDFM, result.best_f1_threshold, best, 0)
    ours = {"auc": "auc", "acc": "accuracy", "bce": "log_loss", "ece": "ece"}
    table = pd.concat([result.rates, result.overall.assign(group="all")])
    values = table.set_index(["metric", "group"])["estimate"]
    counts = {}
    for suffix, cut in (("", 0.5), ("@best_f1", best)):
        call = (data["y_score"] > cut).astype(int)
        counts[suffix] = metrics.group_rates(
            data["y_true"], call, sensitive_features=data[list(setting)]
        ).set_index("group")
        whole = metrics.group_rates(data["y_true"], call, sensitive_features=np.zeros(600, int))
        counts[suffix].loc["all"] = whole.iloc[0]
    theirs = {**fairmedfm(setting)["groups"], "all": fairmedfm(setting)["overall"]}
    for group, figures in theirs.items():
        if figures.get("skipped"):
            check(FAIRMEDFM, group == ONE_CLASS, f"{group} is skipped")
            note = result.rates.query("metric == 'auc'").set_index("group").loc[group, "note"]
            check(FAIRMEDFM, note == "no events", note)
            check(FAIRMEDFM, figures["skipped"] == "only label 0", figures["skipped"])
            continue
        for name, figure in figures.items():
            base, at, _ = name.partition("@")
            suffix = "@best_f1" if at else ""
            what = f"{setting} {group} {name}"
            if base == "skipped":
                check(FAIRMEDFM, figure is None, what)
            elif base in ours:
                metric = ours[base] + ("_best_f1" if base == "acc" and at else "")
                compare(FAIRMEDFM, values[metric, group], figure, EXACT, what)
            else:
                row = counts[suffix].loc[group]
                cell = {
                    "n": row["n"],
                    "tpr": row["tpr"],
                    "tnr": row["tnr"],
                    "tp": row["tpr"] * row["events"],
                    "fn": (1 - row["tpr"]) * row["events"],
                    "tn": row["tnr"] * row["non_events"],
                    "fp": (1 - row["tnr"]) * row["non_events"],
                }
                compare(FAIRMEDFM, cell[base], figure, EXACT, what)


@setting_of
def test_every_summary_of_fairmedfm(setting):
    data = rows()
    with quiet():
        found = summaries(data["y_score"], setting)
    theirs = fairmedfm(setting)["summary"]
    names = {
        "worst-auc": "worst_group_auc", "auc-gap": "auc_gap", "acc-gap": "accuracy_gap",
        "bce-gap": "bce_gap", "ece-gap": "ece_gap", "eo": "equal_opportunity_difference",
        "eod": "equalized_odds_score",
    }  # fmt: skip
    for name, figure in theirs.items():
        value = found[name] if name.startswith("overall") else found[names[name]]
        compare(FAIRMEDFM, value, figure, EXACT, f"{setting} {name}")
    functions = record("fairmedfm_seed11")["classification_functions"]["_x_".join(setting)]
    for name, figure in functions.items():
        compare(FAIRMEDFM, found[name], figure, EXACT, f"{setting} {name}")
    on_calls = record("fairmedfm_seed11")["classification_functions_on_y_pred"]["_x_".join(setting)]
    with quiet():
        found = summaries(data["y_pred"], setting)
    for name, figure in on_calls.items():
        compare(FAIRMEDFM, found[name], figure, EXACT, f"{setting} {name}, on calls")


def summaries(score: pd.Series, setting: tuple[str, ...]) -> dict[str, float]:
    """FairMedFM's summaries in its own names, from `cfair.metrics`."""
    data = rows()
    y, best = data["y_true"], metrics.best_f1_threshold(data["y_true"], score)
    call = (score > best).astype(int)
    features = data[list(setting)]
    joined = data[list(setting)].agg(" & ".join, axis=1)
    keep = joined != ONE_CLASS  # in the crossing of all three; elsewhere no group has this name
    some = {"sensitive_features": features[keep]}
    return {
        "auc_gap": metrics.auc_gap(y, score, sensitive_features=features),
        "worst_group_auc": metrics.worst_auc(y, score, sensitive_features=features),
        "accuracy_gap": metrics.accuracy_difference(y[keep], call[keep], **some),
        "bce_gap": metrics.log_loss_gap(y[keep], score[keep], **some),
        "ece_gap": metrics.ece_gap(y[keep], score[keep], range="group", **some),
        "equal_opportunity_difference": metrics.equal_opportunity_difference(
            y, call, sensitive_features=features
        ),
        "equalized_odds_score": metrics.equalized_odds_score(y[keep], call[keep], **some),
        "overall-auc": metrics.auc(y, score),
        "overall-acc": float((call == y).mean()),
        "overall-bce": metrics.log_loss(y, score),
        "overall-ece": metrics.ece(y, score, range="group"),
    }


def test_all_rows_of_fairmedfm():
    data = rows()
    y, score = data["y_true"], data["y_score"]
    theirs = record("fairmedfm_seed11")["classification"]["_overall"]
    ours = {
        "auc": metrics.auc(y, score),
        "bce": metrics.log_loss(y, score),
        "ece": metrics.ece(y, score, range="group"),
    }
    for name, value in ours.items():
        for suffix in ("", "@best_f1"):
            compare(FAIRMEDFM, value, theirs[name + suffix], EXACT, name)


def test_edges_of_fairmedfm():
    edges = record("edge_cases")
    two = {"sensitive_features": ["a", "b"]}
    clamped = metrics.log_loss([1, 0], [0.0, 0.5], **two)["log_loss"][0]
    compare(FAIRMEDFM, clamped, edges["fairmedfm_bce_prob_0_label_1"], EXACT, "clamp")
    alone = metrics.ece([1, 0], [0.4, 0.5], range="group", **two)["ece"][0]
    compare(FAIRMEDFM, alone, edges["fairmedfm_ece_single_row_group"]["value"], EXACT, "one row")
    # what two rows it was given was not recorded: any two of one outcome and mean distance 0.6
    pair = metrics.ece([1, 1, 0], [0.3, 0.5, 0.5], range="group", sensitive_features=list("aab"))
    compare(FAIRMEDFM, pair["ece"][0], edges["fairmedfm_ece_two_rows"]["value"], EXACT, "two rows")
    constant = metrics.ece([1, 0, 1, 0], [0.5] * 4, range="group")
    expected = edges["fairmedfm_ece_constant_scores"]["value"]
    compare(FAIRMEDFM, constant, expected, EXACT, "constant score")
    threshold = edges["fairlearn_identity"]["seed11 threshold"]
    data = rows()
    y, score = data["y_true"], data["y_score"]
    for name, call in (
        ("f1_at_or_above", score >= threshold["best_f1_threshold"]),
        ("f1_strict_as_used", score > threshold["best_f1_threshold"]),
    ):
        f1 = metrics.group_rates(y, call.astype(int), sensitive_features=np.zeros(600, int))["f1"]
        compare(FAIRMEDFM, f1[0], threshold[name], EXACT, name)
    own = metrics.ece(y, score, range="group")
    compare(FAIRMEDFM, own, threshold["ece_fairmedfm_range_bins"], EXACT, "bins of the range")
    unit = metrics.ece(y, score)
    compare(FAIRMEDFM, unit, threshold["ece_trustlens_unit_bins"], EXACT, "bins of [0, 1]")


def test_missing_attribute_values_leave_out_the_same_rows():
    """The first ten rows are without race: they are left out, by race and in the summary of all."""
    edge = record("edge_cases")["fairmedfm_missing_attribute"]
    data = rows().copy()
    data.loc[:9, "race"] = None
    with pytest.warns(CfairWarning, match="of 600 rows 10 dropped: race missing"):
        frame = metrics.auc(
            data["y_true"], data["y_score"], sensitive_features=data["race"], missing="drop"
        )
    compare(FAIRMEDFM, frame["n"].sum(), edge["n"]["race"], 0)
    rest = data[data["race"].notna()]
    overall = metrics.auc(rest["y_true"], rest["y_score"])
    for setting in ("race", "sex & race"):
        compare(FAIRMEDFM, overall, edge["overall-auc"][setting], EXACT, setting)
    whole = metrics.auc(data["y_true"], data["y_score"])
    compare(FAIRMEDFM, whole, edge["overall-auc"]["sex"], EXACT, "sex")


def test_a_group_with_one_outcome_is_left_out_with_its_reason():
    edge = record("edge_cases")["fairmedfm_single_class_group"]
    data = rows().copy()
    data.loc[data["race"] == "Other", "y_true"] = 0
    table = metrics.auc(data["y_true"], data["y_score"], sensitive_features=data["race"])
    row = table.set_index("group").loc["Other"]
    compare(FAIRMEDFM, row["n"], edge["by_group_Other"]["n"], 0)
    check(FAIRMEDFM, row["note"] == "no events", row["note"])
    check(FAIRMEDFM, bool(np.isnan(row["auc"])), "no AUC")


# -- the others -----------------------------------------------------------------------------------


@setting_of
def test_every_figure_of_fairlearn_about_the_score(setting):
    theirs = record("fairlearn_seed11")["soft"]["_x_".join(setting)]
    data = rows()
    y, score = data["y_true"], data["y_score"]
    names = {"roc_auc": "auc", "brier": "brier", "log_loss": "log_loss"}
    series = {theirs_: by_group(ours, setting) for theirs_, ours in names.items()}
    mean = metrics.calibration(y, score, sensitive_features=data[list(setting)])
    series["mean_prediction"] = mean.set_index("group")["mean_score"]
    overall = {theirs_: getattr(metrics, ours)(y, score) for theirs_, ours in names.items()}
    overall["mean_prediction"] = score.mean()
    for path, figure in numbers(theirs):
        kind, metric = path[0], path[-1]
        by, all_ = series[metric], overall[metric]
        if kind == "by_group":
            value = by.get(path[1].replace("|", " & "), math.nan)
        else:
            with np.errstate(divide="ignore"):
                fold = np.minimum(by / all_, all_ / by)
            value = {
                "overall": all_,
                "group_min": by.min(),
                "group_max": by.max(),
                "difference_between_groups": by.max() - by.min(),
                "ratio_between_groups": by.min() / by.max(),
                "difference_to_overall": (by - all_).abs().max(),
                "ratio_to_overall": fold.min(),
            }[kind]
        compare(FAIRLEARN, value, figure, EXACT, f"{setting} {path}")


def test_brier_score_and_calibration_errors_of_trustlens():
    data, theirs = rows(), record("trustlens_seed11")
    y, score = data["y_true"], data["y_score"]
    name = "peers: TrustLens, scores"
    compare(name, metrics.brier(y, score), theirs["brier"], EXACT)
    compare(name, metrics.ece(y, score), theirs["ece_uniform10"], EXACT)
    compare(name, metrics.ece(y, score, range="quantile"), theirs["ece_quantile10"], EXACT)


def test_brier_scores_and_class_balance_of_fairmetrics():
    data, name = rows(), "peers: R fairmetrics, scores"
    theirs = record("fairmetrics_seed11")
    brier = by_group("brier", ("sex",))
    (row,) = theirs["single_functions_sex_digits6"]["eval_bs_parity"]
    compare(name, brier["Female"], row["GroupFemale"], SIX_DECIMALS)
    compare(name, brier["Male"], row["GroupMale"], SIX_DECIMALS)
    compare(name, brier["Female"] - brier["Male"], row["Difference"], 2 * SIX_DECIMALS)
    balance = metrics.class_balance(
        data["y_true"], data["y_score"], sensitive_features=data["sex"]
    ).set_index("group")
    for function, column in (
        ("eval_pos_class_bal", "mean_score_events"),
        ("eval_neg_class_bal", "mean_score_non_events"),
    ):
        (row,) = theirs["single_functions_sex_digits6"][function]
        for group in ("Female", "Male"):
            compare(name, balance.loc[group, column], row[f"Group{group}"], SIX_DECIMALS)
    for pair, table in theirs["get_fairness_metrics_digits6"].items():
        if not isinstance(table, list):
            check(name, "Female|Other" in pair, pair)
            continue
        attribute, _, levels = pair.partition(": ")
        setting = ("sex", "race") if attribute == "sex_race" else (attribute,)
        (row,) = [r for r in table if r["Metric"] == "Brier Score"]
        by = by_group("brier", setting)
        first, second = (by[level.replace("|", " & ")] for level in levels.split(" vs "))
        given = [value for key, value in row.items() if key.startswith("Group")]
        compare(name, [first, second], given, SIX_DECIMALS, pair)
        compare(name, first - second, row["Difference"], 2 * SIX_DECIMALS, pair)
        compare(name, first / second, row["Ratio"], 1e-5, pair)  # of rounded rates


def test_auc_of_fair_code():
    data = rows()
    theirs = record("faircode_seed11")["performance"]["auc"]
    compare("peers: Fair Code, scores", metrics.auc(data["y_true"], data["y_score"]),
            theirs["value"], EXACT)  # fmt: skip


def test_the_bias_of_calibration_errors_is_that_of_the_simulation():
    """Mean ECE of a calibrated score by size, from another simulation: to its own error, 0.01."""
    rng = np.random.default_rng(6)
    recorded = record("ece_size_bias_sim_RANDOM")
    by_size = recorded["mean ECE by n, FairMedFM bins / TrustLens bins"]
    for size, (own, unit) in by_size.items():
        n, draws = int(size), 200 if int(size) > 1000 else 400
        group = np.repeat(np.arange(draws), n)
        score = 1 / (1 + np.exp(-rng.normal(-0.7, 1.1, len(group))))
        y = (rng.random(len(group)) < score).astype(int)
        name = "peers: bias of the ECE"
        for bins, value in (("group", own), ("unit", unit)):
            table = metrics.ece(y, score, sensitive_features=group, range=bins)
            compare(name, table["ece"].mean(), value, 0.012, f"{bins}, n = {n}")
        # a normal approximation, which twelve rows in ten bins are too few for
        if n >= 60:
            expected = table["expected_if_calibrated"].mean()
            compare(name, expected, table["ece"].mean(), 0.005, f"expected, n = {n}")
