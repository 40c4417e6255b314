"""`cfair.metrics` for labels of many classes, and for inequality over many groups at once."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfair import metrics
from cfair.errors import CfairWarning, DataError

SEEDS = st.integers(0, 2**32 - 1)
QUICK = settings(max_examples=15, deadline=None)


def same(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def draw(seed, n=80, classes=("mild", "none", "severe")):
    rng = np.random.default_rng(seed)
    features = pd.DataFrame({"sex": rng.choice(["F", "M"], n), "site": rng.choice([1, 2, 3], n)})
    features.loc[:5, "sex"], features.loc[:5, "site"] = list("FFFMMM"), [1, 2, 3] * 2
    y, s = rng.choice(classes, n), rng.choice(classes, n)
    y[:2] = classes[:2]
    return {"y_true": y, "y_pred": s, "sensitive_features": features}


def macro_f1(y, s, w):
    """Mean over the classes that occur in `y` or `s`, by loops."""
    found = []
    for c in sorted({*y, *s}):
        tp = sum(v for a, b, v in zip(y, s, w, strict=True) if a == c and b == c)
        fp = sum(v for a, b, v in zip(y, s, w, strict=True) if a != c and b == c)
        fn = sum(v for a, b, v in zip(y, s, w, strict=True) if a == c and b != c)
        found.append(2 * tp / (2 * tp + fp + fn))
    return sum(found) / len(found), len(found)


# -- accuracy and macro F1 by group ---------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_performance_is_that_of_the_loops(seed, weighted):
    arrays = draw(seed, 40)
    w = np.random.default_rng(seed).uniform(1, 2, 40) if weighted else np.ones(40)
    table = metrics.subgroup_performance(**arrays, sample_weight=w if weighted else None)
    assert table["group"].tolist() == ["F & 1", "F & 2", "F & 3", "M & 1", "M & 2", "M & 3"]
    for one in table.itertuples():
        features = arrays["sensitive_features"]
        mine = ((features["sex"] == one.sex) & (features["site"] == one.site)).to_numpy()
        y, s, v = arrays["y_true"][mine], arrays["y_pred"][mine], w[mine]
        assert one.n == mine.sum()
        same(one.accuracy, np.average(y == s, weights=v))
        f1, classes = macro_f1(y, s, v)
        same(one.macro_f1, f1)
        assert one.classes == classes


def test_by_attributes_each_one_stands_alone():
    arrays = draw(1)
    table = metrics.subgroup_performance(**arrays, by="attributes")
    assert table["attribute"].tolist() == ["sex"] * 2 + ["site"] * 3
    for name in ("sex", "site"):
        own = metrics.subgroup_performance(
            **{**arrays, "sensitive_features": arrays["sensitive_features"][name]}
        )
        columns = ["n", "classes", "accuracy", "macro_f1"]
        part = table.loc[table["attribute"] == name, columns].reset_index(drop=True)
        pd.testing.assert_frame_equal(part, own[columns])


def test_two_classes_agree_with_the_rates_of_a_call():
    arrays = draw(2, classes=np.array([0, 1]))
    table, rates = metrics.subgroup_performance(**arrays), metrics.group_rates(**arrays)
    same(table["accuracy"], rates["accuracy"])
    turned = {**arrays, "y_true": 1 - arrays["y_true"], "y_pred": 1 - arrays["y_pred"]}
    same(table["macro_f1"], (rates["f1"] + metrics.group_rates(**turned)["f1"]) / 2)


def test_gaps_of_each_attribute_and_of_the_crossing():
    arrays = draw(3)
    table = metrics.subgroup_gaps(**arrays)
    assert table["attribute"].tolist() == ["sex"] * 2 + ["site"] * 2 + ["sex x site"] * 2
    assert table["rate"].tolist() == ["accuracy", "macro_f1"] * 3
    crossed = metrics.subgroup_performance(**arrays).set_index("group")
    for one in table.iloc[-2:].itertuples():
        values = crossed[one.rate]
        same([one.gap, one.ratio], [np.ptp(values), values.min() / values.max()])
        assert (one.best, one.worst) == (values.idxmax(), values.idxmin())
        assert (one.n_best, one.n_worst) == (
            crossed.loc[one.best, "n"],
            crossed.loc[one.worst, "n"],
        )
    alone = metrics.subgroup_gaps(
        **{**arrays, "sensitive_features": arrays["sensitive_features"]["sex"]}
    )
    pd.testing.assert_frame_equal(alone, table.iloc[:2])


def test_a_class_that_a_group_has_not_leaves_its_mean_and_is_counted():
    y, s = ["x", "x", "x", "y", "z", "z"], ["x", "x", "y", "y", "z", "x"]
    table = metrics.subgroup_performance(y, s, sensitive_features=list("aaabbb"))
    assert table["classes"].tolist() == [2, 3]
    same(table["macro_f1"], [(4 / 5 + 0) / 2, (0 + 1 + 2 / 3) / 3])


def test_an_empty_crossing_keeps_its_row_and_is_named():
    features = {"sex": list("FFMM"), "site": [1, 1, 1, 2]}
    table = metrics.subgroup_performance(list("xyxy"), list("xyyy"), sensitive_features=features)
    assert table["n"].tolist() == [2, 0, 1, 1]
    assert table["note"].tolist() == ["", "no rows", "", ""]
    assert table["macro_f1"].isna().tolist() == [False, True, False, False]
    gaps = metrics.subgroup_gaps(list("xyxy"), list("xyyy"), sensitive_features=features)
    assert gaps["note"].tolist()[-2:] == ["left out: F & 2 (no rows)"] * 2
    assert gaps["gap"].tolist()[-2] == 1.0


def test_a_group_without_weight_is_named():
    arrays = {
        "y_true": list("xyxy"), "y_pred": list("xyyy"), "sensitive_features": list("aabb"),
        "sample_weight": [1, 1, 0, 0],
    }  # fmt: skip
    table = metrics.subgroup_performance(**arrays)
    assert table["note"].tolist() == ["", "no rows of weight above 0"]
    gaps = metrics.subgroup_gaps(**arrays)
    assert gaps["gap"].isna().all()
    assert gaps["note"].tolist() == ["left out: b (no rows of weight above 0)"] * 2


@pytest.mark.parametrize(
    "labels", [(1, 2, 3), (1.5, 2, "x"), (True, False), ("1", 1), ((1, 2), (1, 3))]
)
def test_labels_of_any_type(labels):
    at = [0, 1, 0, len(labels) - 1]
    y = pd.Series([labels[k] for k in at], dtype=object)
    s = pd.Series([labels[k] for k in (0, 0, 0, len(labels) - 1)], dtype=object)
    table = metrics.subgroup_performance(y, s, sensitive_features=list("aabb"))
    assert table["accuracy"].tolist() == [0.5, 1.0]
    assert metrics.class_imbalance(y)["n"].sum() == 4


def test_a_predicted_class_that_is_no_true_one():
    table = metrics.subgroup_performance(
        pd.Categorical(list("xxyy")), list("xzyy"), sensitive_features=list("aabb")
    )
    assert table["classes"].tolist() == [2, 1]
    same(table["macro_f1"], [(2 / 3 + 0) / 2, 1.0])


def test_missing_values():
    y, s, g = ["x", None, "y", "y"], ["x", "y", "y", "x"], ["a", "a", "b", None]
    with pytest.raises(DataError, match="'y_true' .1 rows"):
        metrics.subgroup_performance(y, s, sensitive_features=g)
    with pytest.warns(CfairWarning, match="of 4 rows 2 dropped: .*y_true missing"):
        dropped = metrics.subgroup_performance(y, s, sensitive_features=g, missing="drop")
    assert dropped["n"].tolist() == [1, 1]
    with pytest.raises(DataError, match="'y_true' .1 rows"):  # only an attribute has a level
        metrics.subgroup_performance(y, s, sensitive_features=g, missing="level")
    level = metrics.subgroup_performance(list("xyyy"), s, sensitive_features=g, missing="level")
    assert level["group"].tolist() == ["a", "b", "missing"]
    with pytest.raises(ValueError, match="missing must be one of"):
        metrics.subgroup_performance(y, s, sensitive_features=g, missing="no")


def test_what_does_not_fit_is_refused():
    with pytest.raises(DataError, match="y_pred has 1 values"):
        metrics.subgroup_performance(list("xy"), ["x"], sensitive_features=list("ab"))
    with pytest.raises(DataError, match="two groups"):
        metrics.subgroup_gaps(list("xy"), list("xy"), sensitive_features=list("aa"))
    with pytest.raises(ValueError, match="by must be one of"):
        metrics.subgroup_performance(
            list("xy"), list("xy"), sensitive_features=list("ab"), by="sex"
        )
    with pytest.raises(DataError, match="negative"):
        metrics.subgroup_performance(
            list("xy"), list("xy"), sensitive_features=list("ab"), sample_weight=[1, -1]
        )
    index = pd.Series(list("xy"), index=[1, 2])
    with pytest.raises(DataError, match="y_pred"):
        metrics.subgroup_performance(index, pd.Series(list("xy")), sensitive_features=list("ab"))


@QUICK
@given(SEEDS)
def test_weights_are_repetitions_and_order_does_not_matter(seed):
    arrays = draw(seed, 25)
    rng = np.random.default_rng(seed)
    times, order = rng.integers(1, 4, 25), rng.permutation(25)
    at = np.repeat(order, times[order])
    repeated = {
        name: values.iloc[at].reset_index(drop=True) if name.startswith("s") else values[at]
        for name, values in arrays.items()
    }
    one = metrics.subgroup_performance(**arrays, sample_weight=times)
    many = metrics.subgroup_performance(**repeated)
    for column in ("classes", "accuracy", "macro_f1"):
        same(one[column].astype(float), many[column].astype(float))


# -- class imbalance ------------------------------------------------------------------------------


def test_class_imbalance_counts_shares_and_ratios():
    table = metrics.class_imbalance([2, 2, 2, 10, 2, 2, 10, 7])
    assert table["class"].tolist() == [2, 7, 10]
    assert table["n"].tolist() == [5, 1, 2]
    same(table["share"], [5 / 8, 1 / 8, 2 / 8])
    same(table["ratio"], [1, 5, 2.5])


def test_class_imbalance_with_weights_and_missing_labels():
    table = metrics.class_imbalance(["a", "b", "b"], sample_weight=[4, 1, 1])
    assert table["n"].tolist() == [1, 2]
    same(table["ratio"], [1, 2])
    with pytest.raises(DataError, match="missing values in 'y_true'"):
        metrics.class_imbalance(["a", None])
    with pytest.warns(CfairWarning, match="of 2 rows 1 dropped"):
        assert metrics.class_imbalance(["a", None], missing="drop")["n"].tolist() == [1]
    level = metrics.class_imbalance(["a", None], missing="level")
    assert level["class"].tolist() == ["a", "missing"]


def test_a_class_without_weight_has_no_ratio():
    table = metrics.class_imbalance(["a", "b"], sample_weight=[1, 0])
    assert table["share"].tolist() == [1, 0]
    assert math.isnan(table["ratio"][1])


# -- differential fairness ------------------------------------------------------------------------


def binary(seed, n=60):
    arrays = draw(seed, n, classes=np.array([0, 1]))
    arrays["y_pred"][:2] = 0, 1
    return arrays


def epsilon(values, codes, concentration):
    """The definition: every pair of groups, both values of the call."""
    shares = []
    for g in sorted(set(codes)):
        mine = values[codes == g]
        shares.append((mine.sum() + concentration / 2) / (len(mine) + concentration))
    found = [0.0]
    for p, q in itertools.permutations(shares, 2):
        found += [math.log(p / q), math.log((1 - p) / (1 - q))]
    return max(found)


@pytest.mark.parametrize("concentration", [1.0, 0.5, 20, None, 0])
@pytest.mark.parametrize("seed", range(3))
def test_epsilon_is_that_of_all_pairs(seed, concentration):
    arrays = binary(seed, 200)
    codes = arrays["sensitive_features"].astype(str).agg("|".join, axis=1).to_numpy()
    options = {"concentration": concentration}
    c = concentration or 0.0
    calls, outcomes = (epsilon(arrays[name], codes, c) for name in ("y_pred", "y_true"))
    same(metrics.differential_fairness(**arrays, **options), calls)
    same(metrics.differential_fairness(**arrays, **options, of="outcome"), outcomes)
    same(metrics.bias_amplification(**arrays, **options), calls - outcomes)


def test_without_smoothing_a_share_of_0_is_infinitely_unfair():
    arrays = {"y_true": [1, 0, 1, 0], "y_pred": [0, 0, 1, 0], "sensitive_features": list("aabb")}
    assert metrics.differential_fairness(**arrays, concentration=None) == math.inf
    assert metrics.bias_amplification(**arrays, concentration=None) == math.inf
    same(metrics.differential_fairness(**arrays), math.log(3))  # (0 + .5) / 3 and (1 + .5) / 3
    both = {**arrays, "y_true": [1, 1, 1, 0]}
    with pytest.warns(CfairWarning, match="concentration=1.0"):
        assert math.isnan(metrics.bias_amplification(**both, concentration=None))


def test_equal_shares_are_fair():
    arrays = {"y_true": [1, 0, 1, 0], "y_pred": [1, 0, 0, 1], "sensitive_features": list("aabb")}
    for concentration in (None, 1.0):
        assert metrics.differential_fairness(**arrays, concentration=concentration) == 0.0


@QUICK
@given(SEEDS)
def test_fewer_attributes_are_at_least_as_fair(seed):
    arrays = binary(seed)
    crossed = metrics.differential_fairness(**arrays, concentration=None)
    for name in ("sex", "site"):
        one = {**arrays, "sensitive_features": arrays["sensitive_features"][name]}
        assert metrics.differential_fairness(**one, concentration=None) <= crossed + 1e-12


def test_empty_crossings_are_left_out_by_name():
    features = {"sex": list("FFFMMMMM"), "site": [1, 1, 1, 1, 1, 2, 2, 2]}
    y, s = [1, 0, 1, 0, 1, 0, 1, 0], [1, 0, 0, 1, 0, 0, 0, 1]
    crossed = {"y_true": y, "y_pred": s, "sensitive_features": features}
    plain = {**crossed, "sensitive_features": list("aaabbccc")}  # the same without F & 2
    for function, options in (
        (metrics.differential_fairness, {"concentration": None}),
        (metrics.differential_fairness, {"of": "outcome"}),
        (metrics.bias_amplification, {}),
        (metrics.generalized_entropy, {"part": "between"}),
    ):
        with pytest.warns(
            CfairWarning, match=r"1 group left out of the comparison: F & 2 .no rows.\."
        ):
            value = function(**crossed, **options)
        same(value, function(**plain, **options))
        assert value != 0


def test_the_scale_of_weights_does_not_matter():
    arrays = binary(4)
    w = np.random.default_rng(0).uniform(1, 2, 60)
    same(
        metrics.differential_fairness(**arrays, sample_weight=w),
        metrics.differential_fairness(**arrays, sample_weight=1000 * w),
    )


@pytest.mark.parametrize("bad", [-1, "1", math.inf, math.nan, True])
def test_what_is_no_concentration_is_refused(bad):
    with pytest.raises(ValueError, match="concentration must be a number >= 0"):
        metrics.differential_fairness(**binary(1), concentration=bad)
    with pytest.raises(ValueError, match="concentration must be a number >= 0"):
        metrics.bias_amplification(**binary(1), concentration=bad)


def test_one_group_is_no_comparison_for_epsilon():
    one = {"y_true": [0, 1], "y_pred": [0, 1], "sensitive_features": ["a", "a"]}
    for function in (metrics.differential_fairness, metrics.bias_amplification):
        with pytest.raises(DataError, match="two groups"):
            function(**one)
    with pytest.raises(ValueError, match="of must be one of"):
        metrics.differential_fairness(**one, of="score")


# -- generalized entropy --------------------------------------------------------------------------


def entropy(benefit, alpha):
    relative = benefit / benefit.mean()
    if alpha == 1:
        return np.mean([r * math.log(r) if r > 0 else 0.0 for r in relative])
    return np.mean((relative**alpha - 1) / (alpha * (alpha - 1)))


@pytest.mark.parametrize("alpha", [0.5, 1, 2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_entropy_is_that_of_the_rows(seed, alpha):
    arrays = binary(seed)
    benefit = 1.0 + arrays["y_pred"] - arrays["y_true"]
    codes = arrays["sensitive_features"].astype(str).agg("|".join, axis=1)
    means = pd.Series(benefit).groupby(codes).transform("mean").to_numpy()
    found = {
        part: metrics.generalized_entropy(**arrays, alpha=alpha, part=part)
        for part in ("total", "between", "within")
    }
    same(found["total"], entropy(benefit, alpha))
    same(found["between"], entropy(means, alpha))
    same(found["within"], found["total"] - found["between"])
    # within is the mean of the groups' own entropies, weighted by share and relative mean
    inner = sum(
        (codes == g).mean() * (means[codes == g][0] / benefit.mean()) ** alpha
        * entropy(benefit[codes == g], alpha)
        for g in codes.unique()
    )  # fmt: skip
    same(found["within"], inner)


def test_right_calls_are_equal():
    arrays = binary(1)
    right = {**arrays, "y_pred": arrays["y_true"]}
    assert metrics.generalized_entropy(**right) == 0.0


@pytest.mark.parametrize("value", [0, 1])
def test_an_outcome_with_one_value_is_no_obstacle(value):
    one = {"y_true": [value] * 4, "y_pred": [1, 0, 0, 0], "sensitive_features": list("aabb")}
    same(metrics.differential_fairness(**one), math.log(3))  # (1 + .5) / 3 and (0 + .5) / 3
    assert metrics.differential_fairness(**one, of="outcome") == 0.0
    same(metrics.bias_amplification(**one), math.log(3))
    same(metrics.generalized_entropy(**one), entropy(1.0 + np.array([1, 0, 0, 0]) - value, 2))
    nobody = {**one, "y_true": [1] * 4, "y_pred": [0] * 4}  # has any benefit: all are equal
    with pytest.warns(CfairWarning, match="all 4 rows are negative"):
        assert metrics.generalized_entropy(**nobody, part="between") == 0.0


def test_entropy_options():
    one = {"y_true": [0, 1], "y_pred": [0, 1], "sensitive_features": ["a", "a"]}
    assert metrics.generalized_entropy(**one) == 0.0
    with pytest.raises(DataError, match="two groups"):
        metrics.generalized_entropy(**one, part="between")
    with pytest.raises(ValueError, match="part must be one of"):
        metrics.generalized_entropy(**one, part="among")
    for alpha in (0, -1, math.inf, True, None, "2"):
        with pytest.raises(ValueError, match="alpha must be a number above 0"):
            metrics.generalized_entropy(**one, alpha=alpha)
