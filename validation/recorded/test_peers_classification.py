"""Figures of other fairness packages about a 0/1 call, recorded once, against `cfair.metrics`.

Each peer has a function that yields (path in its file, cfair's figure, tolerance); what it yields
is compared. A last test goes through every figure of every file: it is compared here, or stands in
`NOT_HERE` with the reason. Tolerances: 1e-9, where a peer rounds too, since its rounding is
repeated on cfair's figures.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfair import metrics
from cfair.metrics.comparing import spread
from validation.ledger import check, compare, quiet

DATA = Path(__file__).parent / "data" / "peers"
ATTRIBUTES = ("sex", "race", "age_group")
SETTINGS = [c for k in (1, 2, 3) for c in combinations(ATTRIBUTES, k)]
EXACT = 1e-9
Figure = tuple[tuple[str, ...], Any]

NO_EVENTS = "Female|Other|45-64"  # five rows without an event
ELSEWHERE = "compared elsewhere: "

#: Figures that are not compared here, by peer: a pattern of their path, and the reason.
NOT_HERE: dict[str, dict[str, str]] = {
    "fairlearn": {
        r"(peer|version|source|deterministic)": "about the file",
        r"bootstrap_RANDOM/.*": "random",
        r"soft/.*": ELSEWHERE + "AUC, Brier, log loss, mean score",
        rf"hard/sex_x_race_x_age_group/by_group/{re.escape(NO_EVENTS)}"
        r"/(tpr|fnr|balanced_accuracy|recall)": "fault: a group without events has TPR and FNR 0, "
        "and the TNR for its balanced accuracy; in cfair it has none of them",
    },
    "trustlens": {
        r"(peer|version|source|deterministic)": "about the file",
        r"(brier|ece_uniform10|ece_quantile10)": ELSEWHERE + "Brier, calibration",
        r"analyze/.*": "a score of trust, which cfair does not give",
        rf"equalized_odds[^/]*/sex\|race\|age_group/{re.escape(NO_EVENTS)}/tpr": "fault: a group "
        "without events has TPR 0; in cfair it has none",
        r"equalized_odds[^/]*/sex\|race\|age_group/__summary__/worst_tpr_group": "fault: the group "
        "without events is named the worst; in cfair Female & Other & 65+ is, with one event",
    },
    "fairmetrics": {
        r"(peer|version|R|source|deterministic)": "about the file",
        r"RANDOM/.*": "random",
        r".*/95% (Diff |Ratio )?CI": "random",
        r".*/(Fairness Assessment|Metric)": "names",
        r".*Female\|Other vs Male\|White/error": "fault: it stops, since a resample of 12 rows has "
        "no event",
        r"get_fairness_metrics_digits2_default/sex: Female vs Male/1/Ratio": "0.57 / 0.40 = 1.425, "
        "half way between two decimals: 1.43 there, 1.42 in R's own round() and here",
        r"more_than_two_groups/error": "a refusal; cfair takes any number of groups",
        r"get_fairness_metrics_digits\d\w*/.*/7/.*": ELSEWHERE + "Brier",
        r"single_functions_sex_digits6/eval_bs_parity/.*": ELSEWHERE + "Brier",
    },
    "faircode": {
        r"(peer|version|source|deterministic)": "about the file",
        r"RANDOM/.*": "random settings",
        r".*/(ci_low|ci_high|p_value|significant)": "random",
        r"compute_metrics/.*/small_sample_warning": "a threshold of 30 rows, cfair says n",
        r"compute_metrics/.*/(demo|disp|equal_opp|predictive|accuracy).*/note": "empty",
        r"intersectional_report_.*": ELSEWHERE + "superadditivity",
        r"our_own_interaction_contrast/.*": ELSEWHERE + "superadditivity",
        r"(profile|proxy_hints)/.*": ELSEWHERE + "representation",
        r"performance/auc/.*": ELSEWHERE + "AUC",
    },
    "aif360": {
        r"(peer|version|source|deterministic)": "about the file",
        r"intersectional/sex\|race\|age_group/(smoothed_edf_base_rate|df_bias_amplification)_conc1":
        "fault: it halves the prior by the values that a group has, so that a group without events "
        "gets all of it for events; see the test of it",
        r".*/kl_divergence(/error)?": "a divergence of distributions, which cfair has not",
    },
    "aequitas": {
        r"(peer|version|source|deterministic|tau)": "about the file",
        r"reference_groups/.*": "settings",
        r".*_significance": "fault: a t-test of 0/1 data, for FPR, TNR, TPR, FNR of the wrong rows",
        r".*/(TypeI|TypeII|Impact|Statistical|\w+) Parity": "a verdict from an estimate alone",
        r".*/(Equalized Odds|(Uns|S)upervised Fairness)": "a verdict from an estimate alone",
    },
    "fairmedfm": {
        r"(peer|version|source|deterministic|rule|best_f1_threshold_all_samples)": "about the file",
        r"segmentation.*": ELSEWHERE + "segmentation",
        r".*[/-](auc|bce|ece)(@best_f1|-gap|_gap)?": ELSEWHERE + "AUC, log loss, ECE",
        r".*/(auc|bce|ece|worst_group_auc|worst-auc)(-gap|_gap)?": ELSEWHERE + "AUC, log loss, ECE",
        r".*/skipped": "says that a group has one class only; cfair's note does",
        r".*/warnings.*": "text",
        r"classification/sex_x_race_x_age_group/attribute/groups/Female & Other & 45-64/.*": "the "
        "group has no events and is skipped; cfair gives what is defined",
    },
}  # fmt: skip


@cache
def record(peer: str) -> dict:
    return json.loads((DATA / f"{peer}_seed11.json").read_text(encoding="utf-8"))


@cache
def rows() -> pd.DataFrame:
    return pd.read_csv(DATA / "peers_seed11.csv")


def leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, (dict, list)):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in items:
            yield from leaves(value, (*path, str(key)))
    else:
        yield path, node


def arrays(data: pd.DataFrame | None = None, setting=("sex",), call="y_pred") -> dict[str, Any]:
    data = rows() if data is None else data
    call = data[call] if isinstance(call, str) else call
    return {"y_true": data["y_true"], "y_pred": call, "sensitive_features": data[list(setting)]}


def by_group(given: dict[str, Any], joint="|", **options: Any) -> pd.DataFrame:
    """Rates by group, under the names that a peer gives to the groups."""
    table = metrics.group_rates(**given, **options)
    return table.set_index(table["group"].str.replace(" & ", joint, regex=False))


def overall(given: dict[str, Any], rates: list[str]) -> dict[str, float]:
    table = metrics.contrasts(**given, reference="overall", rates=rates)
    return dict(zip(table["rate"], table["reference_estimate"], strict=True))


# -- Fairlearn ------------------------------------------------------------------------------------

FAIRLEARN = {
    "selection_rate": "selection_rate",
    "tpr": "tpr",
    "tnr": "tnr",
    "fpr": "fpr",
    "fnr": "fnr",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced_accuracy",
    "precision": "ppv",
    "recall": "tpr",
    "f1": "f1",
}
FAIRLEARN_METRICS = {
    "accuracy_score": "accuracy",
    "precision_score": "ppv",
    "f1_score": "f1",
    "false_negative_rate": "fnr",
    "true_negative_rate": "tnr",
    "balanced_accuracy_score": "balanced_accuracy",
}


def fairlearn() -> Iterator[Figure]:
    for setting in SETTINGS:
        name, given = "_x_".join(setting), arrays(setting=setting)
        yield from _fairlearn_frame(("hard", name), given)
        for key in record("fairlearn")["scalar"][name]:
            yield ("scalar", name, key), _fairlearn_scalar(key, given)
    for age, data in rows().groupby("age_group"):
        for rate in ("selection_rate", "tpr", "fpr"):
            path = ("conditional_on_age_group", "sex_difference_within_age_group", age, rate)
            yield path, metrics.gap(**arrays(data), rate=rate)


def _fairlearn_frame(path: tuple[str, ...], given: dict[str, Any]) -> Iterator[Figure]:
    table, whole = by_group(given), overall(given, list(FAIRLEARN.values()))
    for theirs, rate in FAIRLEARN.items():
        one = {**given, "rate": rate}
        for group, value in table[rate].items():
            if not (group == NO_EVENTS and theirs in ("tpr", "recall", "fnr", "balanced_accuracy")):
                yield (*path, "by_group", group, theirs), value
        yield (*path, "overall", theirs), whole[rate]
        yield (*path, "group_min", theirs), metrics.group_min(**one)
        yield (*path, "group_max", theirs), metrics.group_max(**one)
        for to, suffix in (("groups", "between_groups"), ("overall", "to_overall")):
            yield (*path, f"difference_{suffix}", theirs), metrics.gap(**one, to=to)
            yield (*path, f"ratio_{suffix}", theirs), metrics.ratio(**one, to=to)
    n, N = table["n"].to_numpy(float), float(table["n"].sum())
    for group, value in table["n"].items():
        yield (*path, "by_group", group, "count"), value
    found = {"overall": N, "group_min": n.min(), "group_max": n.max()}
    for centre, suffix in ((None, "between_groups"), (N, "to_overall")):
        for kind in ("difference", "ratio"):
            found[f"{kind}_{suffix}"] = spread(n, kind, centre)
    for key, value in found.items():
        yield (*path, key, "count"), value


def _fairlearn_scalar(key: str, given: dict[str, Any]) -> float:
    """A figure by its name, such as equalized_odds_ratio[to_overall,mean]."""
    if key == "zero_one_loss_group_max":
        return 1 - metrics.group_min(**given, rate="accuracy")
    named, _, options = key.rstrip("]").partition("[")
    if options:
        to, _, agg = options.partition(",")
        chosen = {"to": to.removeprefix("to_").replace("between_", "")}
        return getattr(metrics, named)(**given, **chosen, **({"agg": agg} if agg else {}))
    stem, kind = re.fullmatch(r"(.*)_(difference|ratio|group_min)", named).groups()
    function = {"difference": metrics.gap, "ratio": metrics.ratio, "group_min": metrics.group_min}
    return function[kind](**given, rate=FAIRLEARN_METRICS[stem])


# -- TrustLens ------------------------------------------------------------------------------------


def trustlens() -> Iterator[Figure]:
    classes = metrics.class_imbalance(rows()["y_true"])
    report = "class_imbalance_report"
    for one in classes.itertuples(index=False):
        yield (report, "class_counts", str(one[0])), one.n
        yield (report, "class_frequencies", str(one[0])), round(one.share, 4)
    yield (report, "imbalance_ratio"), round(classes["ratio"].max(), 4)
    yield (report, "minority_class"), classes.loc[classes["n"].idxmin(), "class"]
    yield (report, "majority_class"), classes.loc[classes["n"].idxmax(), "class"]
    yield (report, "n_classes"), len(classes)
    for setting in SETTINGS:
        name, given = "|".join(setting), arrays(setting=setting)
        yield from _trustlens_performance(("subgroup_performance", name), given)
        yield from _trustlens_odds(("equalized_odds", name), given, 0.05, 0.15)
        if name in record("trustlens")["equalized_odds_thresholds_0.02_0.10"]:
            path = ("equalized_odds_thresholds_0.02_0.10", name)
            yield from _trustlens_odds(path, given, 0.02, 0.10)


def _trustlens_performance(path: tuple[str, ...], given: dict[str, Any]) -> Iterator[Figure]:
    table = metrics.subgroup_performance(**given)
    for one in table.itertuples():
        group = one.group.replace(" & ", "|")
        yield (*path, group, "n_samples"), one.n
        yield (*path, group, "accuracy"), round(one.accuracy, 4)
        yield (*path, group, "f1"), round(one.macro_f1, 4)
    gaps = metrics.subgroup_gaps(**given)
    last = gaps[gaps["rate"] == "accuracy"].iloc[-1]  # the crossing, or the only attribute
    rounded = table["accuracy"].round(4)  # it subtracts rounded accuracies
    yield (*path, "__summary__", "performance_gap"), round(rounded.max() - rounded.min(), 4)
    assert abs(last["gap"] - (rounded.max() - rounded.min())) < 1e-4
    yield (*path, "__summary__", "best_group"), last["best"].replace(" & ", "|")
    yield (*path, "__summary__", "worst_group"), last["worst"].replace(" & ", "|")


def _trustlens_odds(
    path: tuple[str, ...], given: dict[str, Any], moderate: float, severe: float
) -> Iterator[Figure]:
    for group, one in by_group(given, rates=["tpr", "fpr"]).iterrows():
        yield (*path, group, "n_samples"), one["n"]
        yield (*path, group, "fpr"), one["fpr"]
        if group != NO_EVENTS:
            yield (*path, group, "tpr"), one["tpr"]
    gaps = metrics.gap_table(**given, rates=["tpr", "fpr"], moderate=moderate, severe=severe)
    for one in gaps.itertuples():
        yield (*path, "__summary__", f"{one.rate}_gap"), round(one.gap, 4)
        yield (*path, "__summary__", f"{one.rate}_violation"), one.severity
    best, worst = gaps.loc[0, ["highest", "lowest"]].str.replace(" & ", "|")
    yield (*path, "__summary__", "best_tpr_group"), best
    if "45-64" not in path[-1] and path[-1] != "sex|race|age_group":
        yield (*path, "__summary__", "worst_tpr_group"), worst


# -- R fairmetrics --------------------------------------------------------------------------------

FAIRMETRICS = ["selection_rate", "fnr", "fpr", 1, 0, "ppv", "npv", None, "accuracy", "fn_fp_ratio"]
FAIRMETRICS_SINGLE = {
    "eval_stats_parity": "selection_rate",
    "eval_eq_opp": "fnr",
    "eval_pred_equality": "fpr",
    "eval_pos_pred_parity": "ppv",
    "eval_neg_pred_parity": "npv",
    "eval_pos_class_bal": 1,
    "eval_neg_class_bal": 0,
    "eval_acc_parity": "accuracy",
    "eval_treatment_equality": "fn_fp_ratio",
}


def fairmetrics() -> Iterator[Figure]:
    for block, digits in (
        ("get_fairness_metrics_digits6", 6),
        ("get_fairness_metrics_digits2_default", 2),
    ):
        for pair, found in record("fairmetrics")[block].items():
            if "error" in found:
                continue
            setting, _, names = pair.partition(": ")
            groups = names.split(" vs ")
            given = arrays(setting=("sex", "race") if setting == "sex_race" else (setting,))
            for k, rate in enumerate(FAIRMETRICS):
                if rate is not None:  # Brier score
                    kept = 2 if rate == "fpr" else digits  # its FPR has two decimals always
                    values = _rounded(given, rate, groups, kept)
                    for path, value in _fairmetrics_row(
                        (block, pair, str(k)), groups, values, digits
                    ):
                        if path != (block, "sex: Female vs Male", "1", "Ratio") or digits == 6:
                            yield path, value
    groups, block = ["Female", "Male"], "single_functions_sex_digits6"
    given = arrays()
    for function, rate in FAIRMETRICS_SINGLE.items():
        values = _rounded(given, rate, groups, 2 if rate == "fpr" else 6)
        yield from _fairmetrics_row((block, function, "0"), groups, values, 6)
    for function, pair, label in (
        ("eval_eq_odds", ("fnr", "fpr"), "Group {}"),
        ("eval_cond_acc_equality", ("ppv", "npv"), "Group{}"),
    ):
        found = [_rounded(given, rate, groups, 6) for rate in pair]
        path = (block, function, "0")
        for k, group in enumerate(groups):
            yield (*path, label.format(group)), [values[k] for values in found]
        yield (*path, "Difference"), [round(a - b, 6) for a, b in found]
        if function == "eval_eq_odds":
            yield (*path, "Ratio"), [round(a / b, 6) for a, b in found]


def _rounded(given: dict[str, Any], rate: Any, groups: list[str], digits: int) -> list[float]:
    """Values of two groups, rounded as the package does before it compares them."""
    if isinstance(rate, int):
        frame = metrics.class_balance(
            given["y_true"], rows()["y_score"], sensitive_features=given["sensitive_features"]
        )
        column = "mean_score_events" if rate else "mean_score_non_events"
        values = frame.set_index(frame["group"].str.replace(" & ", "|", regex=False))[column]
    else:
        values = by_group(given, rates=[rate])[rate]
    return [round(float(values[group]), digits) for group in groups]


def _fairmetrics_row(path, groups, values, digits) -> Iterator[Figure]:
    for group, value in zip(groups, values, strict=True):
        yield (*path, f"Group{group}"), value
    yield (*path, "Difference"), round(values[0] - values[1], digits)
    yield (*path, "Ratio"), round(values[0] / values[1], digits)


# -- Fair Code ------------------------------------------------------------------------------------

FAIRCODE = {
    "demographic_parity_diff": "selection_rate",
    "equal_opportunity_diff": "tpr",
    "predictive_parity_diff": "ppv",
    "accuracy_equality_diff": "accuracy",
}
#: Who is disadvantaged, against whom; "rest" is everybody else, named groups are the only rows.
FAIRCODE_PAIRS = {
    "sex: Female vs Male": ("sex", ["Female"], ["Male"]),
    "race: Black vs not Black": ("race", ["Black"], None),
    "race: Black vs White (Other dropped)": ("race", ["Black"], ["White"]),
    "race: Other vs White (Black dropped)": ("race", ["Other"], ["White"]),
    "race: non-White vs White": ("race", ["Black", "Other"], ["White"]),
    "age_group: 65+ vs younger": ("age_group", ["65+"], None),
}


def faircode() -> Iterator[Figure]:
    for name, (attribute, low, high) in FAIRCODE_PAIRS.items():
        data = rows()
        if high is not None:
            data = data[data[attribute].isin([*low, *high])]
        side = np.where(data[attribute].isin(low), "disadvantaged", "advantaged")
        given = {**arrays(data), "sensitive_features": side}
        table = metrics.contrasts(**given, reference="advantaged").set_index("rate")
        counts = metrics.group_rates(**given).set_index("group")
        path = ("compute_metrics", name)
        for key, rate in FAIRCODE.items():
            yield (*path, key, "value"), table.loc[rate, "difference"]
            yield from _faircode_sizes((*path, key), counts, rate)
        selection = table.loc["selection_rate"]  # it adds 1e-6 to both sides of the ratio
        smoothed = (selection["estimate"] + 1e-6) / (selection["reference_estimate"] + 1e-6)
        yield (*path, "disparate_impact_ratio", "value"), smoothed
        assert abs(smoothed - selection["ratio"]) < 1e-5
        yield from _faircode_sizes((*path, "disparate_impact_ratio"), counts, "selection_rate")
        larger = max(("tpr", "fpr"), key=lambda rate: abs(table.loc[rate, "difference"]))
        odds = (*path, "equalized_odds_diff")
        yield (*odds, "value"), table.loc[larger, "difference"]
        yield (*odds, "note"), f"driven_by_{larger}_gap"
        yield from _faircode_sizes(odds, counts, larger)
    whole = overall(arrays(), ["accuracy", "f1"])
    for rate, value in whole.items():
        yield ("performance", rate, "value"), value
        yield ("performance", rate, "n"), len(rows())


def _faircode_sizes(path, counts: pd.DataFrame, rate: str) -> Iterator[Figure]:
    behind = {"tpr": "events", "fpr": "non_events", "ppv": "predicted_positive"}.get(rate, "n")
    for group, n in counts[behind].items():
        yield (*path, f"n_{group}"), n


# -- AIF360 ---------------------------------------------------------------------------------------


def aif360() -> Iterator[Figure]:
    block = "differences (unprivileged - privileged)"
    for name in record("aif360")[block]:
        setting, privileged = re.match(r"(\w+) \(privileged (\S+);", name).groups()
        given = arrays(setting=("sex", "race") if setting == "sex_race" else (setting,))
        table = metrics.contrasts(**given, reference="rest")
        table = table[table["group"] == privileged.replace("|", " & ")].set_index("rate")
        lower = -table["difference"]  # all others less the privileged group
        odds = ["tpr", "fpr"]
        n = table["n"].iloc[0]
        pooled = np.where(by_row(given) == privileged, privileged, "others")
        two = {**given, "sensitive_features": pooled}
        found = {
            "statistical_parity_difference": lower["selection_rate"],
            "disparate_impact_ratio": 1 / table.loc["selection_rate", "ratio"],
            "equal_opportunity_difference": lower["tpr"],
            "average_odds_difference": lower[odds].mean(),
            "average_predictive_value_difference": lower[["ppv", "for"]].mean(),
            "average_odds_error": metrics.equalized_odds_difference(**two, agg="mean"),
            "between_group_generalized_entropy_error": metrics.generalized_entropy(
                **given, part="between"
            ),
            "class_imbalance": (len(rows()) - 2 * n) / len(rows()),
        }
        for key, value in found.items():
            yield (block, name, key), value
    for name in record("aif360")["intersectional"]:
        given = arrays(setting=tuple(name.split("|")))
        for key, value in {
            "smoothed_edf_selection_conc0": metrics.differential_fairness(
                **given, concentration=None
            ),
            "smoothed_edf_selection_conc1": metrics.differential_fairness(**given),
            "smoothed_edf_base_rate_conc1": metrics.differential_fairness(**given, of="outcome"),
            "df_bias_amplification_conc1": metrics.bias_amplification(**given),
        }.items():
            if name != "sex|race|age_group" or key.startswith("smoothed_edf_selection"):
                yield ("intersectional", name, key), value
    entropy = metrics.generalized_entropy(**arrays())
    yield ("individual", "generalized_entropy_error_alpha2"), entropy
    yield ("individual", "theil_index_of_b"), metrics.generalized_entropy(**arrays(), alpha=1)


def by_row(given: dict[str, Any]) -> pd.Series:
    return given["sensitive_features"].agg("|".join, axis=1)


# -- Aequitas -------------------------------------------------------------------------------------

AEQUITAS = {
    "tpr": "tpr",
    "tnr": "tnr",
    "for": "for",
    "fdr": "fdr",
    "fpr": "fpr",
    "fnr": "fnr",
    "npv": "npv",
    "precision": "ppv",
    "pprev": "selection_rate",
    "prev": "prevalence",
}


def aequitas() -> Iterator[Figure]:
    for setting, reference in record("aequitas")["reference_groups"].items():
        given = arrays(setting=("sex", "race") if setting == "sex_race" else (setting,))
        table = by_group(given)
        label = tuple(reference.split("|"))
        ratios = metrics.contrasts(**given, reference=label)
        ratios["group"] = ratios["group"].str.replace(" & ", "|", regex=False)
        ratios = ratios.set_index(["group", "rate"])["ratio"]
        positives = table["predicted_positive"]
        for group, one in table.iterrows():
            path = ("with_significance", f"{setting}={group}")
            for key, rate in AEQUITAS.items():
                yield (*path, key), one[rate]
                if key != "prev":
                    own = group == reference
                    yield (*path, f"{key}_disparity"), 1.0 if own else ratios[group, rate]
            yield (*path, "pp"), one["predicted_positive"]
            yield (*path, "pn"), one["predicted_negative"]
            yield (*path, "group_size"), one["n"]
            yield (*path, "ppr"), positives[group] / positives.sum()
            yield (*path, "ppr_disparity"), positives[group] / positives[reference]


# -- FairMedFM ------------------------------------------------------------------------------------


def fairmedfm() -> Iterator[Figure]:
    best = record("fairmedfm")["best_f1_threshold_all_samples"]
    calls = {"": 0.5, "@best_f1": best}
    for setting in SETTINGS:
        name = "_x_".join(setting)
        path = ("classification", name, "attribute")
        for suffix, threshold in calls.items():
            call = (rows()["y_score"] > threshold).astype(int)  # strict
            given = arrays(setting=setting, call=call)
            yield from _fairmedfm_cells((*path, "groups"), given, suffix)
            whole = {**given, "sensitive_features": np.full(len(call), "all")}
            yield from _fairmedfm_cells(path, whole, suffix, "overall")
            if setting == ("sex",):
                yield from _fairmedfm_cells(("classification",), whole, suffix, "_overall")
        yield (*path, "n"), len(rows())
        yield (*path, "summary", "overall-acc"), overall(given, ["accuracy"])["accuracy"]
        for key, value in _fairmedfm_gaps(given, " & ".join(setting)).items():
            yield (*path, "summary", key[0]), value
            yield ("classification_functions", name, key[1]), value
        for key, value in _fairmedfm_gaps(arrays(setting=setting), "").items():
            yield ("classification_functions_on_y_pred", name, key[1]), value


def _fairmedfm_cells(path, given, suffix: str, name: str | None = None) -> Iterator[Figure]:
    for group, one in by_group(given, joint=" & ").iterrows():
        where = (*path, name or group)
        if group == NO_EVENTS.replace("|", " & "):
            continue
        if name is None and not suffix:
            yield (*where, "n"), one["n"]
        tp, fp = one["tpr"] * one["events"], one["fpr"] * one["non_events"]
        counts = {"tp": tp, "fp": fp, "fn": one["events"] - tp, "tn": one["non_events"] - fp}
        for key, value in {
            "acc": one["accuracy"], "tpr": one["tpr"], "tnr": one["tnr"], **counts,
        }.items():  # fmt: skip
            yield (*where, key + suffix), value


def _fairmedfm_gaps(given: dict[str, Any], _: str) -> dict[tuple[str, str], float]:
    """Gaps without the groups that have one class only, which the package leaves out of all."""
    one_class = (by_row(given) == NO_EVENTS).to_numpy()
    kept = {name: values[~one_class] for name, values in given.items()}
    return {
        ("acc-gap", "accuracy_gap"): metrics.accuracy_difference(**kept),
        ("eo", "equal_opportunity_difference"): metrics.equal_opportunity_difference(**kept),
        ("eod", "equalized_odds_score"): metrics.equalized_odds_score(**kept),
    }


# -- the comparison -------------------------------------------------------------------------------

PEERS = {
    "Fairlearn": fairlearn,
    "TrustLens": trustlens,
    "R fairmetrics": fairmetrics,
    "Fair Code": faircode,
    "AIF360": aif360,
    "Aequitas": aequitas,
    "FairMedFM": fairmedfm,
}
FILES = dict(zip(PEERS, NOT_HERE, strict=True))


@cache
def figures(name: str) -> dict[tuple[str, ...], Any]:
    with quiet():
        found = list(PEERS[name]())
    assert len(dict(found)) == len(found), "a figure is compared twice"
    return dict(found)


@pytest.mark.parametrize("name", PEERS)
def test_every_figure_is_the_peers(name):
    recorded = dict(leaves(record(FILES[name])))
    for path, own in figures(name).items():
        assert path in recorded, f"{name} has no {'/'.join(path)}"
        theirs, what = recorded[path], "/".join(path)
        if isinstance(own, str):
            check(f"peers: {name}", own == str(theirs), f"{what}: {own!r}, {theirs!r}")
            continue
        if isinstance(own, list):  # two figures in one text
            theirs = [float(part) for part in theirs.split(";")]
        compare(f"peers: {name}", own, math.nan if theirs is None else theirs, EXACT, what)


def test_aif360_puts_the_whole_prior_on_events_where_a_group_has_none():
    given = arrays(setting=ATTRIBUTES)
    table = metrics.group_rates(**given)
    events, n = table["events"], table["n"]
    values = 1 + (events > 0)  # how many values the group's outcome has; no group has events only
    logs = np.log([(events + 1 / values) / (n + 1), (n - events + 1 / 2) / (n + 1)])
    theirs = record("aif360")["intersectional"]["sex|race|age_group"]
    own = metrics.differential_fairness(**given, of="outcome")
    compare(
        "peers: AIF360", np.ptp(logs, axis=1).max(), theirs["smoothed_edf_base_rate_conc1"], EXACT
    )
    check(
        "peers: AIF360", own > theirs["smoothed_edf_base_rate_conc1"] + 0.5, "epsilon of outcomes"
    )


@pytest.mark.parametrize("name", PEERS)
def test_every_other_figure_has_a_reason(name):
    patterns = NOT_HERE[FILES[name]]
    used = dict.fromkeys(patterns, 0)
    for path, value in leaves(record(FILES[name])):
        text = "/".join(path)
        matching = [p for p in patterns if re.fullmatch(p, text)]
        if path in figures(name):
            assert not matching, f"{text} is compared, and {matching} says that it is not"
        else:
            assert matching, f"{name}: {text} = {value!r} is neither compared nor explained"
        for pattern in matching:
            used[pattern] += 1
    check(f"peers: {name}", all(used.values()), f"reasons without a figure: {used}")


# -- behaviour at the edges -----------------------------------------------------------------------


@cache
def edges(name: str) -> dict:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("setting", ["sex", "race", "age_group", "sex|race"])
def test_fairmedfm_calls_above_the_threshold_and_others_from_it_on(setting):
    found = edges("edge_cases")["fairlearn_identity"][f"seed11 {setting}"]
    score, best = rows()["y_score"], record("fairmedfm")["best_f1_threshold_all_samples"]
    for call, suffix in ((score > best, "strict"), (score >= best, "at_or_above")):
        given = arrays(setting=setting.split("|"), call=call.astype(int))
        own = metrics.equalized_odds_score(**given)
        gap = metrics.equal_opportunity_difference(**given)
        compare("peers: FairMedFM", own, found[f"1-eo_diff_mean_{suffix}"], EXACT, setting)
        compare("peers: FairMedFM", gap, found[f"tpr_diff_{suffix}"], EXACT, setting)


def test_trustlens_words_at_the_boundaries():
    for name, one in edges("edge_cases")["trustlens_boundary"].items():
        for rate in ("tpr", "fpr"):
            own = metrics.severity(one[f"{rate}_gap"])
            check("peers: TrustLens", own == one[f"{rate}_violation"], f"{name}: {own}")
    check("peers: TrustLens", _refuses_a_threshold_of_0(), "a threshold of 0 is refused")


def _refuses_a_threshold_of_0() -> bool:
    with pytest.raises(ValueError, match="moderate=0.0"):
        metrics.severity(0.1, moderate=0.0)
    return True


def test_fairmetrics_in_a_cell_of_twelve_rows():
    given, groups = arrays(setting=("sex", "race")), ["Female|Other", "Male|White"]
    for function, found in edges("edge_cases_fairmetrics")["small_cell_12"].items():
        rate = FAIRMETRICS_SINGLE.get(function)
        if isinstance(rate, str):  # not Brier, not class balance, which stopped
            values = _rounded(given, rate, groups, 2 if rate == "fpr" else 6)
            spaced = [group.replace("|", " ") for group in groups]
            for (key,), own in _fairmetrics_row((), spaced, values, 6):
                compare("peers: R fairmetrics", own, found[0][key], EXACT, f"{function}/{key}")


def test_fairmetrics_rounds_rates_that_cfair_does_not():
    found = edges("edge_cases_fairmetrics")
    table = by_group(arrays(), rates=["fpr", "selection_rate"])
    raw = found["pred_equality_digits6_vs_raw"]["raw"]  # eight decimals
    compare("peers: R fairmetrics", table["fpr"].round(8), raw, EXACT, "FPR, not rounded")
    other = found["factor_levels_reversed"][0]
    reverse = table["selection_rate"][["Male", "Female"]].round(6).tolist()
    for (key,), own in _fairmetrics_row((), ["Male", "Female"], reverse, 6):
        compare("peers: R fairmetrics", own, other[key], EXACT, f"reversed/{key}")
