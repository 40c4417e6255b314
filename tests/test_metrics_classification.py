"""`cfair.metrics` for a 0/1 call: against loops over rows, at the edges, and what always holds."""

from __future__ import annotations

import inspect
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfair import metrics
from cfair.errors import CfairWarning, DataError
from cfair.estimators.confusion import RATES
from cfair.metrics import criteria

SEEDS = st.integers(0, 2**32 - 1)
FN_FP = "fn_fp_ratio"
CRITERIA = {
    "demographic_parity": ("selection_rate",),
    "equal_opportunity": ("tpr",),
    "predictive_equality": ("fpr",),
    "predictive_parity": ("ppv",),
    "negative_predictive_parity": ("npv",),
    "accuracy": ("accuracy",),
    "treatment_equality": (FN_FP,),
    "equalized_odds": ("tpr", "fpr"),
    "conditional_use_accuracy": ("ppv", "npv"),
}
NUMBERS = [f"{name}_{kind}" for name in CRITERIA for kind in ("difference", "ratio")]
NUMBERS += ["equalized_odds_score"]


def draw(seed, n=60, levels=((0, 1, 2),)):
    """Arrays with both outcomes; groups may lack anything."""
    rng = np.random.default_rng(seed)
    y, s = rng.integers(0, 2, (2, n))
    y[:2], s[:2] = (0, 1), (0, 1)
    features = {f"a{k}": rng.choice(np.array(v), n) for k, v in enumerate(levels)}
    first = next(iter(features.values()))
    first[:2] = levels[0][:2]  # two groups at least
    return {"y_true": y, "y_pred": s, "sensitive_features": pd.DataFrame(features)}


def by_hand(arrays, weights=None):
    """Rates of each crossing, as plain loops give them."""
    features = arrays["sensitive_features"]
    keys = [tuple(row) for row in features.itertuples(index=False)]
    found = {}
    for key in sorted(set(keys)):
        rows = [i for i, own in enumerate(keys) if own == key]
        y, s = arrays["y_true"][rows], arrays["y_pred"][rows]
        w = None if weights is None else weights[rows]
        _, fp, fn, _ = plain.cells(y, s, w)
        found[key] = {**plain.observed(y, s, w), FN_FP: plain.divide(fn, fp)}
    return found


def call(function, arrays, **options):
    """The number, with its warnings taken as read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CfairWarning)
        return function(**arrays, **options)


def same(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


# -- against loops --------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [((0, 1, 2),), (("F", "M"), (1, 2)), ("ab", "cd", "ef")])
@pytest.mark.parametrize("weighted", [False, True])
def test_rates_are_those_of_the_loops(levels, weighted):
    arrays = draw(5, 90, tuple(tuple(v) for v in levels))
    weights = np.random.default_rng(1).uniform(0.5, 2, 90) if weighted else None
    table = metrics.group_rates(**arrays, sample_weight=weights, rates=[*RATES, FN_FP])
    names = list(arrays["sensitive_features"])
    expected = by_hand(arrays, weights)
    assert len(table) == math.prod(len(v) for v in levels)
    for one in table[table["n"] > 0].to_dict("records"):
        own = expected[tuple(one[name] for name in names)]
        for rate in [*RATES, FN_FP]:
            same(one[rate], own[rate])


def test_the_counts_are_of_rows_also_with_weights():
    arrays = draw(2)
    weights = np.random.default_rng(0).uniform(1, 9, 60)
    for table in (
        metrics.group_rates(**arrays),
        metrics.group_rates(**arrays, sample_weight=weights),
    ):
        assert table["n"].sum() == 60
        assert (table["events"] + table["non_events"] == table["n"]).all()
        assert (table["predicted_positive"] + table["predicted_negative"] == table["n"]).all()
        assert table["events"].sum() == arrays["y_true"].sum()
        assert table["predicted_positive"].sum() == arrays["y_pred"].sum()


def test_by_attributes_each_one_stands_alone():
    arrays = draw(3, levels=(("F", "M"), (1, 2, 3)))
    table = metrics.group_rates(**arrays, by="attributes")
    for name in ("a0", "a1"):
        alone = {**arrays, "sensitive_features": arrays["sensitive_features"][name]}
        own = metrics.group_rates(**alone)
        part = table[table["attribute"] == name].reset_index(drop=True)
        assert part["level"].tolist() == own[name].tolist()
        pd.testing.assert_frame_equal(part[[*RATES, "n", "note"]], own[[*RATES, "n", "note"]])


@pytest.mark.parametrize("rate", [*RATES, FN_FP])
@pytest.mark.parametrize("seed", range(3))
def test_gaps_and_ratios_are_those_of_all_pairs(rate, seed):
    arrays = draw(seed, levels=((0, 1), (0, 1)))
    values = [own[rate] for own in by_hand(arrays).values() if not math.isnan(own[rate])]
    whole = by_hand({**arrays, "sensitive_features": pd.DataFrame({"all": np.zeros(60)})})
    centre = next(iter(whole.values()))[rate]
    same(
        call(metrics.gap, arrays, rate=rate),
        max(abs(a - b) for a in values for b in values),
    )
    same(
        call(metrics.ratio, arrays, rate=rate),
        min(a / b for a in values for b in values if b > 0),
    )
    same(call(metrics.gap, arrays, rate=rate, to="overall"), max(abs(a - centre) for a in values))
    folded = [min(a / centre, centre / a) if a > 0 else 0.0 for a in values]
    same(call(metrics.ratio, arrays, rate=rate, to="overall"), min(folded))
    same(call(metrics.group_min, arrays, rate=rate), min(values))
    same(call(metrics.group_max, arrays, rate=rate), max(values))


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("to", ["groups", "overall", 1])
def test_a_criterion_is_about_the_rates_it_names(name, to):
    arrays = draw(11)
    rates = CRITERIA[name]
    for kind, general, worse in (("difference", metrics.gap, max), ("ratio", metrics.ratio, min)):
        function = getattr(metrics, f"{name}_{kind}")
        parts = [call(general, arrays, rate=rate, to=to) for rate in rates]
        same(call(function, arrays, to=to), worse(parts))
        if len(rates) == 2:
            same(call(function, arrays, to=to, agg="mean"), np.mean(parts))


def test_the_score_of_equalized_odds():
    arrays = draw(11)
    for agg in ("mean", "worst_case"):
        difference = metrics.equalized_odds_difference(**arrays, agg=agg)
        same(metrics.equalized_odds_score(**arrays, agg=agg), 1 - difference)
    assert metrics.equalized_odds_score(**arrays) == metrics.equalized_odds_score(
        **arrays, agg="mean"
    )


def test_contrasts_have_a_sign():
    arrays = draw(4)
    rates = by_hand(arrays)
    table = metrics.contrasts(**arrays, reference=2)
    assert table["group"].unique().tolist() == ["0", "1"]
    assert set(table["reference"]) == {"2"}
    for one in table.itertuples():
        own, other = rates[int(one.group),][one.rate], rates[2,][one.rate]
        same([one.difference, one.ratio], [own - other, own / other])
        same([one.estimate, one.reference_estimate], [own, other])


def test_the_rest_is_all_other_groups_pooled():
    arrays = draw(4)
    table = metrics.contrasts(**arrays, reference="rest", rates="tpr")
    for one in table.itertuples():
        pooled = arrays["sensitive_features"]["a0"] == int(one.group)
        two = {**arrays, "sensitive_features": pooled}
        alone = metrics.contrasts(**two, reference=False, rates="tpr")
        same(one.difference, alone["difference"][0])
    whole = metrics.contrasts(**arrays, reference="overall", rates="tpr")
    assert whole["reference_estimate"].nunique() == 1
    same(whole["reference_estimate"][0], arrays["y_pred"][arrays["y_true"] == 1].mean())


def test_treatment_equality_counts_false_calls():
    arrays = draw(6)
    table = metrics.treatment_equality(**arrays)
    y, s, g = arrays["y_true"], arrays["y_pred"], arrays["sensitive_features"]["a0"]
    for one in table.itertuples():
        mine = g == one.a0
        assert one.false_negatives == (mine & (y == 1) & (s == 0)).sum()
        assert one.false_positives == (mine & (y == 0) & (s == 1)).sum()
        same(one.fn_fp_ratio, one.false_negatives / one.false_positives)


@pytest.mark.parametrize("weighted", [False, True])
def test_class_balance_is_the_mean_score_given_the_outcome(weighted):
    arrays = draw(8)
    rng = np.random.default_rng(0)
    score, w = rng.uniform(0, 0.4, 60), rng.uniform(1, 2, 60)  # nobody reaches 0.5: no matter
    given = (arrays["y_true"], score)
    options = {
        "sensitive_features": arrays["sensitive_features"],
        "sample_weight": w if weighted else None,
    }
    table = metrics.class_balance(*given, **options)
    expected = {}
    for y, column in ((1, "mean_score_events"), (0, "mean_score_non_events")):
        for g in (0, 1, 2):
            mine = (arrays["sensitive_features"]["a0"] == g) & (arrays["y_true"] == y)
            expected[g, y] = np.average(score[mine], weights=w[mine] if weighted else None)
        values = [expected[g, y] for g in (0, 1, 2)]
        same(table[column], values)
        same(metrics.class_balance_difference(*given, **options, given=y), np.ptp(values))
        same(metrics.class_balance_ratio(*given, **options, given=y), min(values) / max(values))
        mine = arrays["y_true"] == y
        whole = np.average(score[mine], weights=w[mine] if weighted else None)
        same(
            metrics.class_balance_difference(*given, **options, given=y, to="overall"),
            np.abs(np.array(values) - whole).max(),
        )
        same(
            metrics.class_balance_difference(*given, **options, given=y, to=1),
            np.abs(np.array(values) - values[1]).max(),
        )


def test_the_table_of_gaps_names_the_groups():
    arrays = draw(9, levels=((0, 1), (0, 1)))
    table = metrics.gap_table(**arrays).set_index("rate")
    values = metrics.group_rates(**arrays).set_index("group")
    for rate, one in table.iterrows():
        same(one["gap"], call(metrics.gap, arrays, rate=rate))
        same(one["ratio"], call(metrics.ratio, arrays, rate=rate))
        same(values.loc[one["highest"], rate] - values.loc[one["lowest"], rate], one["gap"])
        assert one["severity"] == metrics.severity(one["gap"])
    assert table.loc["tpr", "n_highest"] == values.loc[table.loc["tpr", "highest"], "events"]
    ppv = values.loc[table.loc["ppv", "lowest"], "predicted_positive"]
    assert table.loc["ppv", "n_lowest"] == ppv
    assert (table["groups"] == 4).all()


def test_a_ratio_of_counts_has_no_word():
    table = metrics.gap_table(**draw(9), rates=[FN_FP, "tpr"])
    assert table["severity"][0] == "none"
    assert table["severity"][1] != "none"


# -- severity -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gap", "word"),
    [
        (0.0, "acceptable"), (0.0499, "acceptable"), (0.05, "moderate"), (0.15, "moderate"),
        (0.65 - 0.5, "moderate"), (0.35 - 0.3, "moderate"), (0.1501, "severe"), (1.0, "severe"),
        (-0.2, "severe"), (math.nan, "undefined"),
    ],
)  # fmt: skip
def test_words_for_a_gap(gap, word):
    assert metrics.severity(gap) == word


def test_other_boundaries():
    assert metrics.severity(0.1, 0.02, 0.08) == "severe"
    assert metrics.severity(0.1, 0.2, 0.3) == "acceptable"


@pytest.mark.parametrize(
    "bad",
    [(0.0, 0.15), (0.15, 0.05), (0.05, 0.05), (0.05, 1.0), (-1, 0.5), (None, 0.15), ("0.1", 0.2)],
)
def test_boundaries_have_an_order(bad):
    with pytest.raises(ValueError, match="0 < moderate < severe < 1"):
        metrics.severity(0.1, *bad)
    with pytest.raises(ValueError, match="0 < moderate < severe < 1"):
        metrics.gap_table(**draw(1), moderate=bad[0], severe=bad[1])


# -- edges ----------------------------------------------------------------------------------------

#: c has no events, nobody positive; d has one row; a and b have all.
EDGE = {
    "y_true": np.array([1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1]),
    "y_pred": np.array([1, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1]),
    "sensitive_features": list("aaaabbbbccd"),
}


def test_a_group_without_events_is_never_the_worst():
    table = metrics.group_rates(**EDGE).set_index("group")
    assert math.isnan(table.loc["c", "tpr"])
    assert table.loc["c", "fpr"] == 0.0
    assert table.loc["c", "note"] == (
        "tpr, fnr: no events; ppv, fdr: no positive calls; balanced_accuracy: no events or no "
        "non-events; f1: neither events nor positive calls"
    )
    with pytest.warns(CfairWarning, match=r"1 group left out of tpr: c \(tpr: no events\)"):
        assert metrics.equal_opportunity_difference(**EDGE) == 0.5
    with pytest.warns(CfairWarning, match="c"):
        assert metrics.group_min(**EDGE, rate="tpr") == 0.5
    gaps = metrics.gap_table(**EDGE, rates="tpr")
    assert gaps.loc[0, ["gap", "lowest", "note"]].tolist() == [0.5, "a", "left out: c (no events)"]


def test_a_group_of_one_is_shown_with_its_size():
    table = metrics.group_rates(**EDGE).set_index("group")
    assert table.loc["d", ["n", "events", "tpr"]].tolist() == [1, 1, 1.0]
    assert table.loc["d", "note"].startswith("fpr, tnr: no non-events; npv, for: no negative calls")


def test_every_number_names_who_is_left_out():
    for name in NUMBERS:
        function = getattr(metrics, name)
        if name.startswith(("demographic", "accuracy")):
            function(**EDGE)  # defined in all groups: no warning, which would be an error here
            continue
        with pytest.warns(CfairWarning, match="left out of") as told:
            function(**EDGE)
        assert len(told) == 1, name


def test_fewer_than_two_defined_groups_give_nan_and_a_warning():
    arrays = {"y_true": [1, 1, 0, 0], "y_pred": [1, 0, 1, 0], "sensitive_features": list("aabb")}
    told = "The result is NaN .tpr.: fewer than two groups have one"
    with pytest.warns(CfairWarning, match=told):
        assert math.isnan(metrics.equal_opportunity_ratio(**arrays))
    with pytest.warns(CfairWarning, match=told):  # not 0, although the one group is all there is
        assert math.isnan(metrics.gap(**arrays, rate="tpr", to="overall"))
    with pytest.warns(CfairWarning, match="b .tpr: no events"):
        assert metrics.group_max(**arrays, rate="tpr") == 0.5
    for y_true in ([1, 0, 0, 0], [1, 0, 1, 1]):  # only b lacks events, or non-events: not enough
        one = {**arrays, "y_true": y_true}
        with pytest.warns(CfairWarning, match="result is NaN"):
            assert math.isnan(metrics.equalized_odds_difference(**one))
        with pytest.warns(CfairWarning, match="result is NaN"):
            assert math.isnan(metrics.equalized_odds_ratio(**one))
    note = metrics.gap_table(**arrays, rates="tpr")["note"][0]
    assert note == "left out: b (no events); fewer than two groups have the rate"


def test_a_reference_without_the_rate_gives_nan_and_a_warning():
    with pytest.warns(CfairWarning, match="what the groups are compared with has none"):
        assert math.isnan(metrics.gap(**EDGE, rate="tpr", to="c"))
    table = metrics.contrasts(**EDGE, reference="c", rates="tpr")
    assert table["difference"].isna().all()
    assert set(table["note"]) == {"reference tpr: no events"}


def test_rates_that_are_all_0_have_no_ratio():
    arrays = {"y_true": [1, 0, 1, 0], "y_pred": [1, 0, 1, 0], "sensitive_features": list("aabb")}
    with pytest.warns(CfairWarning, match="all are 0, and have no ratio"):
        assert math.isnan(metrics.predictive_equality_ratio(**arrays))
    assert metrics.predictive_equality_difference(**arrays) == 0.0
    assert metrics.gap_table(**arrays, rates="fpr")["note"][0] == "all rates are 0: no ratio"


def test_one_group_is_no_comparison():
    one = {"y_true": [0, 1], "y_pred": [0, 1], "sensitive_features": ["a", "a"]}
    for name in NUMBERS:
        with pytest.raises(DataError, match="two groups"):
            getattr(metrics, name)(**one)
    with pytest.raises(DataError, match="two groups"):
        metrics.contrasts(**one, reference="overall")
    with pytest.raises(DataError, match="two groups"):
        metrics.gap_table(**one)
    assert metrics.group_rates(**one)["tpr"].tolist() == [1.0]
    assert metrics.group_min(**one, rate="tpr") == 1.0


@pytest.mark.parametrize("value", [0, 1])
def test_an_outcome_with_one_value(value):
    one = {"y_true": [value] * 5, "y_pred": [1, 0, 1, 1, 0], "sensitive_features": list("aabbb")}
    among = {"tpr", "fpr", "tnr", "fnr", "balanced_accuracy"}
    refused = f"all 5 rows used are {value}"
    for name, rates in {**CRITERIA, "equalized_odds_score": ("tpr", "tnr")}.items():
        for end in ("",) if name.endswith("score") else ("_difference", "_ratio"):
            if among & set(rates):
                with pytest.raises(DataError, match=refused):
                    getattr(metrics, name + end)(**one)
            else:
                call(getattr(metrics, name + end), one)
    same(metrics.demographic_parity_difference(**one), 2 / 3 - 1 / 2)
    same(metrics.gap(**one, rate="accuracy"), 2 / 3 - 1 / 2)
    for function in (metrics.gap, metrics.ratio, metrics.group_min, metrics.group_max):
        with pytest.raises(DataError, match=refused):
            function(**one, rate="tpr")
    table = metrics.group_rates(**one)
    same(table["selection_rate"], [1 / 2, 2 / 3])
    lost = ("tpr, fnr: no events", "fpr, tnr: no non-events")[value]
    assert all(note.startswith(lost) for note in table["note"])
    gaps = metrics.gap_table(**one).set_index("rate")
    assert gaps.loc["tpr", "gap"] != gaps.loc["tpr", "gap"] or value == 1
    same(metrics.contrasts(**one, reference="b", rates="selection_rate")["difference"], -1 / 6)
    score = {**one, "y_score": [0.5, 0.2, 0.4, 0.1, 0.9]}
    del score["y_pred"]
    column = ("mean_score_non_events", "mean_score_events")[value]
    same(metrics.class_balance(**score)[column], [0.35, 1.4 / 3])
    with pytest.raises(DataError, match=refused):
        metrics.class_balance_difference(**score)


def test_an_empty_crossing_keeps_its_row_and_is_named():
    features = {"sex": list("FFMM"), "site": [1, 1, 1, 2]}
    arrays = {"y_true": [1, 0, 1, 0], "y_pred": [1, 0, 0, 0], "sensitive_features": features}
    table = metrics.group_rates(**arrays)
    assert table["group"].tolist() == ["F & 1", "F & 2", "M & 1", "M & 2"]
    assert table.loc[1, "n"] == 0
    assert table.loc[1, "note"] == "no rows"
    with pytest.warns(CfairWarning, match=r"F & 2 \(no rows\)"):
        assert metrics.demographic_parity_difference(**arrays) == 0.5


def test_a_group_without_weight_says_so():
    weights = np.where(np.array(EDGE["sensitive_features"]) == "b", 0.0, 1.0)
    table = metrics.group_rates(**EDGE, sample_weight=weights).set_index("group")
    assert table.loc["b", "n"] == 4
    assert table.loc["b", "note"] == "no rows of weight above 0"
    assert table.loc["b", list(RATES)].isna().all()


def test_events_without_weight_are_no_events():
    weights = np.array([0.0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0])  # of a the events, of d its one row
    table = metrics.group_rates(**EDGE, sample_weight=weights, rates=["tpr", "fpr"])
    assert table["events"].tolist() == [2, 2, 0, 1]
    assert table["note"].tolist() == [
        "tpr: no events of weight above 0", "", "tpr: no events", "no rows of weight above 0"
    ]  # fmt: skip
    score = {"y_score": [0.5] * 11, "sample_weight": weights}
    features = EDGE["sensitive_features"]
    table = metrics.class_balance(EDGE["y_true"], **score, sensitive_features=features)
    assert table["note"].tolist()[:3] == [
        "mean_score_events: no events of weight above 0", "", "mean_score_events: no events"
    ]  # fmt: skip
    with pytest.warns(CfairWarning, match=r"a \(no events of weight above 0\), c \(no events\)"):
        metrics.class_balance_difference(EDGE["y_true"], **score, sensitive_features=features)


@pytest.mark.parametrize("none", [None, np.nan, pd.NA])
def test_missing_attributes(none):
    features = pd.Series([*"aabbb", none], dtype=object, name="sex")
    arrays = {"y_true": [1, 0, 1, 0, 1, 0], "y_pred": [1, 0, 0, 1, 1, 1]}
    arrays["sensitive_features"] = features
    with pytest.raises(DataError, match=r"'sex' \(1 rows\).*missing=\"drop\""):
        metrics.group_rates(**arrays)
    with pytest.warns(CfairWarning, match="of 6 rows 1 dropped: sex missing"):
        dropped = metrics.group_rates(**arrays, missing="drop")
    assert dropped["n"].tolist() == [2, 3]
    with pytest.warns(CfairWarning, match="of 6 rows 1 dropped: sex missing"):
        metrics.class_balance(
            arrays["y_true"], [0.5] * 6, sensitive_features=features, missing="drop"
        )
    level = metrics.group_rates(**arrays, missing="level")
    assert level["group"].tolist() == ["a", "b", "missing"]
    assert level["n"].tolist() == [2, 3, 1]
    with pytest.raises(ValueError, match="missing must be one of"):
        metrics.group_rates(**arrays, missing="ignore")


def test_a_missing_outcome_or_call_is_refused_or_dropped():
    features = list("aabb")
    y, s = [1, 0, None, 0], [1, 0, 1, 0]
    for y_true, y_pred in ((y, s), (s, y)):
        with pytest.raises(DataError, match="missing values in 'y_"):
            metrics.group_rates(y_true, y_pred, sensitive_features=features)
        with pytest.warns(CfairWarning, match="of 4 rows 1 dropped: y_"):
            table = metrics.group_rates(y_true, y_pred, sensitive_features=features, missing="drop")
        assert table["n"].tolist() == [2, 1]


@pytest.mark.parametrize(
    "labels",
    [
        [1, 2], [1.5, 2.5], ["1", "11"], [True, False], [("a", "b"), ("a", "c")],
        [pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01")],
    ],
)  # fmt: skip
def test_labels_of_any_type(labels):
    features = pd.Series([labels[0]] * 4 + [labels[1]] * 4, name="g")
    y, s = [1, 1, 0, 0] * 2, [1, 0, 0, 0, 1, 1, 1, 0]
    table = metrics.group_rates(y, s, sensitive_features=features)
    same(sorted(table["tpr"]), [0.5, 1.0])
    to = labels[0] if not isinstance(labels[0], tuple) else (labels[0],)
    assert metrics.gap(y, s, rate="tpr", sensitive_features=features, to=to) == 0.5


def test_labels_are_not_pasted():
    y, s = [1, 0, 1, 0], [1, 0, 0, 1]
    features = {"a": ["1", "1", "11", "11"], "b": ["11", "11", "1", "1"]}
    table = metrics.group_rates(y, s, sensitive_features=features)
    assert table["n"].tolist() == [0, 2, 2, 0]
    with pytest.warns(CfairWarning, match="no rows"):
        assert metrics.gap(
            y, s, rate="tpr", sensitive_features=features, to=("1", "11")
        ) == 1.0  # fmt: skip


def test_series_are_matched_by_their_index():
    y = pd.Series([1, 0, 1, 0], index=list("wxyz"))
    s = pd.Series([1, 0, 0, 1], index=list("wxyz"))
    g = pd.Series(list("aabb"), index=list("wxyz"))
    expected = metrics.group_rates(y, s, sensitive_features=g)
    pd.testing.assert_frame_equal(
        metrics.group_rates(y, s[::-1], sensitive_features=g[::-1]), expected
    )
    with pytest.raises(DataError, match="y_pred"):
        metrics.group_rates(y, s.reset_index(drop=True), sensitive_features=g)
    with pytest.raises(DataError, match="y_pred"):
        metrics.group_rates(y, [1, 0, 1], sensitive_features=g)


def test_an_attribute_called_like_a_column_hides_nothing():
    features = {"n": list("aabb"), "note": list("cccc"), "tpr": list("dddd")}
    table = metrics.group_rates([1, 0, 1, 0], [1, 0, 0, 1], sensitive_features=features)
    assert table["n"].tolist() == [2, 2]
    assert table["n (attribute)"].tolist() == ["a", "b"]
    assert table["tpr (attribute)"].tolist() == ["d", "d"]
    assert not table.columns.duplicated().any()


def test_attributes_called_like_each_other_are_kept_apart():
    features = {"n": list("aabb"), "n (attribute)": list("cdcd")}
    table = metrics.group_rates([1, 0, 1, 0], [1, 0, 0, 1], sensitive_features=features)
    assert table["n (attribute)"].tolist() == list("cdcd")
    assert table["n (attribute 2)"].tolist() == list("aabb")
    assert not table.columns.duplicated().any()


def test_a_rate_that_is_named_twice_is_given_once():
    rates = ["tpr", "fpr", "tpr"]
    assert metrics.gap_table(**draw(1), rates=rates)["rate"].tolist() == ["tpr", "fpr"]
    assert not metrics.group_rates(**draw(1), rates=rates).columns.duplicated().any()


@pytest.mark.parametrize("gap", ["0.2", True, None, [0.1]])
def test_a_gap_is_a_number(gap):
    with pytest.raises(ValueError, match="gap must be a number"):
        metrics.severity(gap)


@pytest.mark.parametrize("rates", [5, 0.5, True])
def test_rates_are_names(rates):
    with pytest.raises(ValueError, match="rates must be one or more of 'prevalence', .*, or None"):
        metrics.group_rates(**draw(1), rates=rates)


def test_what_is_no_option_is_refused():
    arrays = draw(1)
    for options in ({"rate": "recall"}, {"rate": None}):
        with pytest.raises(ValueError, match="rate must be one of"):
            metrics.gap(**arrays, **options)
    with pytest.raises(ValueError, match="rate must be one of"):
        metrics.group_rates(**arrays, rates=["tpr", "x"])
    with pytest.raises(ValueError, match="one rate or more"):
        metrics.group_rates(**arrays, rates=[])
    with pytest.raises(ValueError, match="by must be one of"):
        metrics.group_rates(**arrays, by="sex")
    with pytest.raises(ValueError, match="agg must be one of"):
        metrics.equalized_odds_difference(**arrays, agg="max")
    with pytest.raises(DataError, match="not a group"):
        metrics.demographic_parity_difference(**arrays, to="White")
    with pytest.raises(DataError, match="not a group"):
        metrics.contrasts(**arrays, reference="White")
    with pytest.raises(TypeError):
        metrics.demographic_parity_difference(**arrays, method="to_overall")
    score = np.full(60, 0.3)
    for outcome in (2, True, "1", 1.0, None, [1]):
        with pytest.raises(ValueError, match="given must be 1"):
            metrics.class_balance_difference(
                arrays["y_true"],
                score,
                sensitive_features=arrays["sensitive_features"],
                given=outcome,
            )


def test_a_score_in_place_of_a_call_is_refused():
    arrays = {**draw(1), "y_pred": np.linspace(0, 1, 60)}
    with pytest.raises(DataError, match="'y_pred' must be 0/1 .*: y_pred = y_score >= cutoff"):
        metrics.gap(**arrays, rate="tpr")


@pytest.mark.parametrize("empty", [None, 1, "y", 0.5, (k for k in [0, 1]), {0, 1}, np.array(1)])
def test_what_is_no_array_is_named(empty):
    y, g = [0, 1, 1, 0], list("aabb")
    calls = {
        "y_true": [
            lambda: metrics.group_rates(empty, y, sensitive_features=g),
            lambda: metrics.auc(empty, [0.1, 0.2, 0.3, 0.4]),
            lambda: metrics.class_balance(empty, y, sensitive_features=g),
            lambda: metrics.class_imbalance(empty),
            lambda: metrics.subgroup_gaps(empty, y, sensitive_features=g),
        ],
        "y_pred": [
            lambda: metrics.group_rates(y, empty, sensitive_features=g),
            lambda: metrics.subgroup_gaps(y, empty, sensitive_features=g),
        ],
        "y_score": [
            lambda: metrics.class_balance(y, empty, sensitive_features=g),
            lambda: metrics.auc(y, empty),
        ],
        "sensitive_features": [lambda: metrics.group_rates(y, y, sensitive_features=empty)],
        "sensitive_features 'sex'": [
            lambda: metrics.group_rates(y, y, sensitive_features={"sex": empty})
        ],
    }
    if empty is not None:
        calls["sample_weight"] = [
            lambda: metrics.group_rates(y, y, sensitive_features=g, sample_weight=empty)
        ]
    for name, several in calls.items():
        for call in several:
            with pytest.raises(DataError, match=f"^{name} must be an array with one value per row"):
                call()


def test_an_outcome_of_text_is_to_be_recoded():
    values, g = ["alive", "dead", "dead", "alive"], list("aabb")
    recode = r"'y_true' must be 0/1 .*Give 1 for the event, as in \({} == 'dead'\).astype\(int\)\.$"
    with pytest.raises(DataError, match=recode.format(r"np.asarray\(y_true\)")):
        metrics.group_rates(values, [0, 1, 1, 0], sensitive_features=g)
    for array in (np.array(values), pd.Series(values)):
        with pytest.raises(DataError, match=recode.format("y_true")):
            metrics.auc(array, [0.1, 0.2, 0.3, 0.4])
    with pytest.raises(DataError, match="makes 0 of the 1 missing values"):
        metrics.group_rates([*values[:3], None], [0, 1, 1, 0], sensitive_features=g)


def test_the_callers_arrays_are_not_changed():
    arrays = draw(1)
    before = {name: values.copy() for name, values in arrays.items()}
    metrics.group_rates(**arrays)
    metrics.gap_table(**arrays)
    assert (arrays["y_true"] == before["y_true"]).all()
    assert arrays["sensitive_features"].equals(before["sensitive_features"])


# -- the generated functions ----------------------------------------------------------------------


@pytest.mark.parametrize("name", NUMBERS)
def test_a_criterion_is_a_function_like_any_other(name):
    function = getattr(metrics, name)
    assert function is getattr(criteria, name)
    assert function.__name__ == function.__qualname__ == name
    assert pickle.loads(pickle.dumps(function)) is function
    signature = inspect.signature(function)
    two = name.startswith(("equalized", "conditional"))
    assert ("agg" in signature.parameters) == two
    assert list(signature.parameters)[:3] == ["y_true", "y_pred", "sensitive_features"]
    doc = inspect.getdoc(function)
    for parameter in signature.parameters:
        assert parameter in doc
    assert f">>> round({name}(" in doc or name == "equalized_odds_score"
    assert "{" not in doc.replace('{"', "").replace("{1, 0}", ""), "a gap of the template"


def test_all_names_are_exported_and_documented():
    for name in metrics.__all__:
        assert inspect.getdoc(getattr(metrics, name)), name


# -- what always holds ----------------------------------------------------------------------------

QUICK = settings(max_examples=15, deadline=None)


@QUICK
@given(SEEDS, st.sampled_from(RATES))
def test_weights_are_repetitions(seed, rate):
    arrays = draw(seed, 20)
    times = np.random.default_rng(seed).integers(1, 4, 20)
    repeated = {
        name: values.loc[values.index.repeat(times)].reset_index(drop=True)
        if isinstance(values, pd.DataFrame)
        else np.repeat(values, times)
        for name, values in arrays.items()
    }
    same(
        metrics.group_rates(**arrays, sample_weight=times * 0.7, rates=rate)[rate],
        metrics.group_rates(**repeated, rates=rate)[rate],
    )
    same(
        call(metrics.gap, {**arrays, "sample_weight": times}, rate=rate),
        call(metrics.gap, repeated, rate=rate),
    )


@QUICK
@given(SEEDS, st.sampled_from(RATES), st.sampled_from(["groups", "overall", 0]))
def test_gaps_and_ratios_stay_within_their_bounds(seed, rate, to):
    arrays = draw(seed, 30)
    difference = call(metrics.gap, arrays, rate=rate, to=to)
    quotient = call(metrics.ratio, arrays, rate=rate, to=to)
    assert math.isnan(difference) or 0 <= difference <= 1
    assert math.isnan(quotient) or 0 <= quotient <= 1
    if not math.isnan(quotient):
        assert (difference < 1e-12) == (quotient > 1 - 1e-12)
    # balanced accuracy of all rows may lie outside those of the groups: a mean of two rates
    inside = to == 0 or (to == "overall" and rate != "balanced_accuracy")
    if inside and not math.isnan(difference):
        assert difference <= call(metrics.gap, arrays, rate=rate) + 1e-12


@QUICK
@given(SEEDS)
def test_the_order_of_rows_does_not_matter(seed):
    arrays = draw(seed, 30)
    order = np.random.default_rng(seed).permutation(30)
    shuffled = {
        name: values.iloc[order].reset_index(drop=True)
        if isinstance(values, pd.DataFrame)
        else values[order]
        for name, values in arrays.items()
    }
    pd.testing.assert_frame_equal(metrics.group_rates(**arrays), metrics.group_rates(**shuffled))


@QUICK
@given(SEEDS, st.sampled_from(RATES))
def test_names_of_groups_do_not_matter(seed, rate):
    arrays = draw(seed, 30)
    other = arrays["sensitive_features"]["a0"].map({0: "z", 1: "m", 2: "b"})
    renamed = {**arrays, "sensitive_features": other}
    for function in (metrics.gap, metrics.ratio, metrics.group_min, metrics.group_max):
        same(call(function, arrays, rate=rate), call(function, renamed, rate=rate))


@QUICK
@given(SEEDS)
def test_turning_outcome_and_call_over_swaps_the_rates(seed):
    arrays = draw(seed, 30)
    turned = {**arrays, "y_true": 1 - arrays["y_true"], "y_pred": 1 - arrays["y_pred"]}
    table, other = metrics.group_rates(**arrays), metrics.group_rates(**turned)
    for a, b in (("tpr", "tnr"), ("ppv", "npv"), ("fdr", "for"), ("accuracy", "accuracy")):
        same(table[a], other[b])
    same(
        call(metrics.equalized_odds_difference, arrays),
        call(metrics.equalized_odds_difference, turned),
    )
