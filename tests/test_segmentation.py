"""Dice by group: masks, means, gaps, and what has no Dice."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import cfair
from cfair.errors import CfairWarning, DataError
from cfair.metrics import dice_scores, segmentation_gaps


def gaps(dice, groups, **more):
    return segmentation_gaps(dice, sensitive_features={"g": list(groups)}, **more)


def test_figures_by_hand():
    found = gaps([0.9, 0.8, 0.7, 0.6, 0.5], "aabbb")
    assert found.mean_dice == pytest.approx(0.7)
    assert (found.min_dice, found.max_dice) == pytest.approx((0.6, 0.85))
    assert found.delta_dice == pytest.approx(0.25)
    assert found.std_dice == pytest.approx(0.125)  # of the population: divisor 2
    assert found.skewness_dice == pytest.approx(0.4 / 0.15)
    assert found.es_dice == pytest.approx(0.7 / 1.125)
    assert (found.worst_group, found.best_group) == ("b", "a")
    assert cfair.segmentation_gaps is segmentation_gaps


def test_intervals_are_students():
    values = [0.7, 0.6, 0.5, 0.9]
    row = gaps([*values, 0.8, 0.85], "bbbbaa").by_group.set_index("group").loc["b"]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((low, min(high, 1)))
    assert row["se"] == pytest.approx(stats.sem(values))
    assert row["sd"] == pytest.approx(np.std(values, ddof=1))


def test_groups_without_spread_have_no_interval_and_say_so():
    table = gaps([0.9, 0.5, 0.5, 0.7, 0.8], "abbcc").by_group.set_index("group")
    assert table.loc["a", "note"] == "a single sample: no interval"
    assert table.loc["b", "note"] == "all alike: no interval"
    assert table.loc[["a", "b"], ["se", "ci_low", "ci_high"]].isna().all(axis=None)
    assert table.loc["c", ["se", "ci_low", "ci_high"]].notna().all()


def test_nan_dice_is_counted_and_leaves_the_means():
    found = gaps([0.9, np.nan, np.nan, 0.7], "aabc")
    table = found.by_group.set_index("group")
    assert table["n"].tolist() == [1, 0, 1]
    assert table["undefined"].tolist() == [1, 1, 0]
    assert table.loc["b", "note"] == "no sample with a Dice"
    assert np.isnan(table.loc["b", "mean_dice"])
    assert found.n_undefined == 2
    assert found.delta_dice == pytest.approx(0.2)
    assert "2 samples without a Dice" in str(found)
    with pytest.raises(DataError, match="no sample has a Dice"):
        gaps([np.nan, np.nan], "ab")


def test_empty_intersections_keep_their_row():
    found = segmentation_gaps(
        [0.5, 0.6, 0.7], sensitive_features={"sex": list("FFM"), "site": [1, 2, 1]}
    )
    row = found.by_group.set_index("group").loc["M & 2"]
    assert row["n"] == 0
    assert row["note"] == "no samples"


def test_skewness_is_undefined_where_the_best_group_is_perfect():
    found = gaps([1.0, 1.0, 0.6, 0.8], "aabb")
    assert np.isnan(found.skewness_dice)
    assert found.delta_dice == pytest.approx(0.3)
    assert "skewness is undefined: the best group's mean is 1" in str(found)


def test_outside_the_unit_interval():
    with pytest.raises(DataError, match=r"2 of 3 values are outside \(-0.1 to 1.2\)"):
        gaps([-0.1, 1.2, 0.5], "abc")
    with pytest.raises(DataError, match="Divide percentages by 100"):
        gaps([80.0, 90.0], "ab")
    with pytest.raises(DataError, match=r"1 of 2 values is outside \(inf to inf\). Set what is no"):
        gaps([np.inf, 0.5], "ab")
    with pytest.raises(DataError, match="must be numbers"):
        gaps(["good", "bad"], "ab")


def test_an_attribute_called_like_a_column_hides_nothing():
    features = {"n": list("aabb"), "group": list("cccc")}
    table = segmentation_gaps([0.5, 0.6, 0.7, 0.8], sensitive_features=features).by_group
    assert table["n"].tolist() == [2, 2]
    assert table["n (attribute)"].tolist() == ["a", "b"]
    assert table["group"].tolist() == ["a & c", "b & c"]
    assert not table.columns.duplicated().any()


def test_missing_attributes():
    groups = ["a", None, "b", "b"]
    with pytest.raises(DataError, match=r"'g' \(1 rows\)"):
        gaps([0.5, 0.6, 0.7, 0.8], groups)
    with pytest.warns(CfairWarning, match="of 4 rows 1 dropped: g missing"):
        dropped = gaps([0.5, 0.6, 0.7, 0.8], groups, missing="drop")
    assert (dropped.n, dropped.n_dropped) == (3, 1)
    assert "1 sample left out" in str(dropped)
    level = gaps([0.5, 0.6, 0.7, 0.8], groups, missing="level")
    assert level.by_group["group"].tolist() == ["a", "b", "missing"]


def test_series_are_matched_by_index():
    dice = pd.Series([0.9, 0.8, 0.1, 0.2], index=list("wxyz"))
    group = pd.Series(["b", "b", "a", "a"], index=list("zyxw"))
    assert segmentation_gaps(dice, sensitive_features=group).min_dice == pytest.approx(0.15)
    with pytest.raises(DataError, match="index"):
        segmentation_gaps(dice, sensitive_features=group.set_axis(list("abcd")))


# -- the gap ----------------------------------------------------------------------------------


def test_the_gap_starts_at_0_unless_means_differ():
    rng = np.random.default_rng(1)
    same = gaps(rng.beta(8, 2, 200), "ab" * 100)
    assert same.delta_low == 0
    assert same.delta_low <= same.delta_dice <= same.delta_high
    assert 0 < same.delta_if_equal < 0.1
    apart = gaps(np.r_[rng.beta(8, 2, 100), rng.beta(5, 5, 100)], "a" * 100 + "b" * 100)
    assert apart.delta_low > 0.1
    assert apart.delta_low < apart.delta_dice < apart.delta_high


def test_the_gap_interval_covers():
    means = np.array([0.75, 0.8, 0.8, 0.84])
    sizes = [12, 40, 90, 150]
    rng = np.random.default_rng(7)
    codes = np.repeat(np.arange(4), sizes)
    hits = 0
    for _ in range(60):
        found = gaps(rng.beta(10 * means[codes], 10 * (1 - means[codes])), codes)
        hits += found.delta_low <= 0.09 <= found.delta_high
    assert hits >= stats.binom.ppf(0.001, 60, 0.95)


def test_one_group_is_refused():
    with pytest.raises(DataError, match="a comparison needs two groups with rows"):
        gaps([0.5, 0.6], "aa")


def test_a_single_group_with_a_dice_has_no_gap_and_says_so():
    found = gaps([0.5, 0.6, np.nan], "aab")
    assert found.note == "only a has a Dice: no gap"
    assert found.mean_dice == pytest.approx(0.55)
    undefined = found.summary.drop(["mean_dice", "min_dice", "max_dice"])
    assert undefined.isna().all()
    printed = str(found)
    assert "only a has a Dice: no gap" in printed
    assert "nan" not in printed.split("note", 1)[1].lower()
    assert "1 sample without" in printed


def test_groups_that_tie_have_no_worst_one():
    printed = str(gaps([0.5, 0.7, 0.7, 0.5], "aabb"))
    assert "no worst and no best group: all have the mean 0.6000" in printed
    assert "worst a (" not in printed


# -- masks ------------------------------------------------------------------------------------


def plain_dice(p, t):
    return 2 * np.sum(p & t) / (np.sum(p) + np.sum(t)) if (p | t).any() else 1.0


@given(st.integers(0, 10_000), st.sampled_from([(6,), (4, 5), (2, 3, 4)]))
@settings(max_examples=20, deadline=None)
def test_masks_of_any_dimension_against_a_loop(seed, shape):
    rng = np.random.default_rng(seed)
    p, t = (rng.random((5, *shape)) > 0.7 for _ in range(2))
    expected = [plain_dice(a, b) for a, b in zip(p, t, strict=True)]
    np.testing.assert_allclose(dice_scores(p, t), expected)
    np.testing.assert_allclose(dice_scores(list(p), list(t.astype(float))), expected)
    swapped = dice_scores(t, p)
    np.testing.assert_allclose(swapped, expected)


def test_masks_of_unequal_shapes():
    rng = np.random.default_rng(0)
    p = [rng.random((k + 2, 3)) > 0.5 for k in range(4)]
    t = [rng.random((k + 2, 3)) > 0.5 for k in range(4)]
    expected = [plain_dice(a, b) for a, b in zip(p, t, strict=True)]
    np.testing.assert_allclose(dice_scores(p, t), expected)
    found = segmentation_gaps(pred_masks=p, true_masks=t, sensitive_features=list("abab"))
    assert found.mean_dice == pytest.approx(np.mean(expected))


def test_threshold_label_and_empty_masks():
    p = np.array([[0.4, 0.6, 0.5]])
    t = np.array([[0, 1, 1]])
    assert dice_scores(p, t)[0] == pytest.approx(2 / 3)  # 0.5 is not above the threshold
    assert dice_scores(p, t, mask_threshold=0.45)[0] == 1
    labels = np.array([[0, 1, 2, 2]])
    assert dice_scores(labels, np.array([[2, 1, 2, 0]]), label=2)[0] == 0.5
    several = np.array([[0, 1, 2, 2], [0, 1, 1, 1]])
    assert dice_scores(several, several[::-1], label=2).tolist() == [0.0, 0.0]
    assert dice_scores(several, several, label=2).tolist() == [1.0, 1.0]  # the second: both empty
    nothing = np.zeros((2, 4))
    some = np.array([[0, 0, 0, 0], [1, 0, 0, 0]])
    assert dice_scores(nothing, some).tolist() == [1.0, 0.0]
    found = segmentation_gaps(
        pred_masks=nothing, true_masks=some, sensitive_features=["a", "b"], empty_score=np.nan
    )
    assert (found.n_empty, found.n_undefined, found.n) == (1, 1, 1)
    assert "1 sample with both masks empty" in str(found)


def test_masks_that_nobody_meant_are_not_perfect():
    one = np.ones((3, 4, 4))
    with pytest.raises(DataError, match="label=7 is in none of the 3 .* which hold 0, 1"):
        dice_scores(one, 0 * one, label=7)
    shapes = [np.ones((2, k)) for k in (1, 2, 3)]
    with pytest.raises(DataError, match="label=7 is in none"):
        segmentation_gaps(
            pred_masks=shapes, true_masks=shapes, label=7, sensitive_features=list("aab")
        )
    assert dice_scores(one, one > 0, label=np.int64(1)).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("label", ["1", 0.5, True, [1]]),
        ("mask_threshold", [np.nan, 1, -0.1, np.inf, None, "0.5"]),
        ("empty_score", [-1, 1.5, np.inf, None, "nan"]),
    ],
)
def test_mask_options_are_checked(option, values):
    one = np.ones((3, 4, 4))
    for value in values:
        with pytest.raises(ValueError, match=f"{option} must be"):
            dice_scores(one, 0 * one, **{option: value})


def test_masks_that_do_not_fit():
    zeros = np.zeros((2, 3, 3))
    with pytest.raises(DataError, match="2 samples, but true_masks has 1"):
        dice_scores(zeros, zeros[:1])
    with pytest.raises(DataError, match=r"sample 0: \(3, 3\) predicted, \(3, 2\) true"):
        dice_scores(zeros, zeros[:, :, :2])
    with pytest.raises(DataError, match=r"from 0 to 2 .*label=1"):
        dice_scores(np.array([[0, 1, 2]]), np.array([[0, 1, 1]]))
    with pytest.raises(DataError, match="1 missing pixel. "):
        dice_scores(np.array([[0, np.nan]]), np.array([[0, 1.0]]))
    with pytest.raises(DataError, match="array of pixels"):
        dice_scores([1, 0], [1, 0])
    with pytest.raises(DataError, match="either dice"):
        segmentation_gaps(sensitive_features=["a", "b"])
    with pytest.raises(DataError, match="both pred_masks and true_masks"):
        segmentation_gaps(pred_masks=zeros, sensitive_features=["a", "b"])
    with pytest.raises(DataError, match="has 3 values"):
        segmentation_gaps(pred_masks=zeros, true_masks=zeros, sensitive_features=list("abc"))
