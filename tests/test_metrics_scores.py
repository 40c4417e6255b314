"""Scores by group as functions of arrays: definitions, identities, scikit-learn, bad input."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid

from cfair import metrics
from cfair.errors import CfairWarning, DataError
from cfair.metrics import (
    auc,
    auc_gap,
    best_f1_threshold,
    brier,
    calibration,
    calibration_curve,
    ece,
    ece_gap,
    log_loss,
    log_loss_gap,
    net_benefit,
    roc_curves,
    worst_auc,
)


def sample(seed, n=80, digits=2, groups=3):
    """Outcome, score with ties and group, both outcomes present."""
    rng = np.random.default_rng(seed)
    score = rng.uniform(0.02, 0.98, n).round(digits)
    y = (rng.random(n) < score).astype(int)
    y[:2] = 0, 1
    return y, score, rng.integers(0, groups, n)


seeds = st.integers(0, 10_000)
quick = settings(max_examples=12, deadline=None)


def pairs(y, score, w=None):
    """AUC by its definition: all pairs of an event and a non-event."""
    w = np.ones(len(y)) if w is None else w
    a, b = score[y == 1][:, None], score[y == 0][None, :]
    weight = w[y == 1][:, None] * w[y == 0][None, :]
    return np.sum(weight * ((a > b) + 0.5 * (a == b))) / weight.sum()


@quick
@given(seeds)
def test_auc_is_the_share_of_pairs_in_order(seed):
    y, score, g = sample(seed)
    w = np.random.default_rng(seed).uniform(0.2, 3, len(y))
    assert auc(y, score) == pytest.approx(pairs(y, score), abs=1e-13)
    table = auc(y, score, sensitive_features=g, sample_weight=w)
    for k, value in zip(np.unique(g), table["auc"], strict=True):
        at = g == k
        if 0 < y[at].sum() < at.sum():
            assert value == pytest.approx(pairs(y[at], score[at], w[at]), abs=1e-12)
        else:
            assert np.isnan(value)


@quick
@given(seeds)
def test_auc_is_about_ranks_only(seed):
    y, score, g = sample(seed)
    by = auc(y, score, sensitive_features=g)["auc"]
    squared = auc(y, score**2, sensitive_features=g)["auc"]
    reversed_ = auc(y, (1 - score).round(12), sensitive_features=g)["auc"]
    np.testing.assert_allclose(squared, by, atol=1e-13)
    np.testing.assert_allclose(reversed_, 1 - by, atol=1e-12)
    points = roc_curves(y, score)
    area = trapezoid(points["tpr"], points["fpr"])
    assert area == pytest.approx(auc(y, score), abs=1e-12)


@quick
@given(seeds)
def test_whole_weights_are_repetitions(seed):
    y, score, g = sample(seed)
    times = np.random.default_rng(seed).integers(0, 4, len(y))
    times[:2] = 1
    again = np.repeat(np.arange(len(y)), times)
    kept = np.isin(g, g[again])  # a group of weight 0 has no values in either
    y, score, g, times = y[kept], score[kept], g[kept], times[kept]
    again = np.repeat(np.arange(len(y)), times)
    for metric in (auc, brier, log_loss):
        name = metric.__name__
        a = metric(y, score, sensitive_features=g, sample_weight=times)[name]
        b = metric(y[again], score[again], sensitive_features=g[again])[name]
        np.testing.assert_allclose(a, b, atol=1e-12)
    for bins in ("unit",):
        a = ece(y, score, sensitive_features=g, sample_weight=times, range=bins)["ece"]
        b = ece(y[again], score[again], sensitive_features=g[again], range=bins)["ece"]
        np.testing.assert_allclose(a, b, atol=1e-12)
    a = calibration(y, score, sensitive_features=g, sample_weight=times)
    b = calibration(y[again], score[again], sensitive_features=g[again])
    for column in ("oe_ratio", "in_the_large", "intercept", "slope"):
        np.testing.assert_allclose(a[column], b[column], rtol=1e-8, atol=1e-9)
    assert best_f1_threshold(y, score, sample_weight=times) == best_f1_threshold(
        y[again], score[again]
    )
    a = net_benefit(y, score, thresholds=[0.3, 0.1], sample_weight=times)
    b = net_benefit(y[again], score[again], thresholds=[0.3, 0.1])
    pd.testing.assert_frame_equal(a, b, rtol=1e-12)


def test_scikit_learn_agrees():
    metrics = pytest.importorskip("sklearn.metrics")
    y, score, _ = sample(5, n=400, digits=3)
    w = np.random.default_rng(5).uniform(0, 2, 400)
    for weight in (None, w):
        assert auc(y, score, sample_weight=weight) == pytest.approx(
            metrics.roc_auc_score(y, score, sample_weight=weight), abs=1e-12
        )
        assert brier(y, score, sample_weight=weight) == pytest.approx(
            metrics.brier_score_loss(y, score, sample_weight=weight), abs=1e-12
        )
        assert log_loss(y, score, sample_weight=weight) == pytest.approx(
            metrics.log_loss(y, score, sample_weight=weight), abs=1e-12
        )
    fpr, tpr, threshold = metrics.roc_curve(y, score, drop_intermediate=False)
    ours = roc_curves(y, score)
    np.testing.assert_allclose(ours["fpr"], fpr, atol=1e-13)
    np.testing.assert_allclose(ours["tpr"], tpr, atol=1e-13)
    np.testing.assert_allclose(ours["threshold"][1:], threshold[1:])
    f1 = [metrics.f1_score(y, score >= t) for t in np.unique(score)]
    assert best_f1_threshold(y, score) == np.unique(score)[int(np.argmax(f1))]


def test_recalibration_is_that_of_statsmodels():
    import statsmodels.api as sm

    y, score, _ = sample(8, n=300, digits=4)
    x = np.log(score / (1 - score))
    line = sm.GLM(y, sm.add_constant(x), family=sm.families.Binomial()).fit(tol=1e-14).params
    large = sm.GLM(y, np.ones(300), family=sm.families.Binomial(), offset=x).fit(tol=1e-14).params
    found = calibration(y, score).iloc[0]
    assert found["intercept"] == pytest.approx(line[0], abs=1e-8)
    assert found["slope"] == pytest.approx(line[1], abs=1e-8)
    assert found["in_the_large"] == pytest.approx(large[0], abs=1e-8)
    assert found["oe_ratio"] == pytest.approx(y.sum() / score.sum(), abs=1e-12)


def test_ranges_of_the_bins():
    y, score, _ = sample(2, n=200, digits=3)
    score = score * 0.6 + 0.1

    def plain(place):
        return sum(abs((score - y)[place == b].sum()) / len(y) for b in np.unique(place))

    unit = np.minimum((score * 10 + 1e-12).astype(int), 9)
    own = pd.cut(score, 10, labels=False)
    assert ece(y, score) == pytest.approx(plain(unit), abs=1e-12)
    assert ece(y, score, range="group") == pytest.approx(plain(own), abs=1e-12)
    assert ece(y, score, bins=1) == pytest.approx(abs(score.mean() - y.mean()), abs=1e-12)
    # an edge belongs to the bin at its right in "unit", and to that at its left in "group"
    assert ece([1, 0, 1], [0.1, 0.1, 0.15]) == pytest.approx(abs(0.35 - 2) / 3)
    assert ece([0, 1, 1], [0.0, 0.5, 1.0], bins=2, range="group") == pytest.approx(0.5 / 3)


def test_the_bias_of_the_calibration_error_is_said_and_mostly_taken_off():
    rng = np.random.default_rng(1)
    g = np.repeat(np.arange(400), 60)
    score = 1 / (1 + np.exp(-rng.normal(-0.7, 1.1, len(g))))
    y = (rng.random(len(g)) < score).astype(int)
    raw = ece(y, score, sensitive_features=g)
    assert raw["ece"].mean() == pytest.approx(0.125, abs=0.01)
    assert raw["expected_if_calibrated"].mean() == pytest.approx(raw["ece"].mean(), abs=0.005)
    debiased = ece(y, score, sensitive_features=g, debias=True)["ece"]
    assert debiased.min() >= 0
    assert debiased.mean() < 0.4 * raw["ece"].mean()


def test_a_logarithm_is_at_least_minus_100():
    table = log_loss([1, 0], [0.0, 1.0], sensitive_features=["a", "b"])
    assert table["log_loss"].tolist() == [100.0, 100.0]
    assert log_loss_gap([1, 0], [0.0, 0.0], sensitive_features=["a", "b"]) == 100.0


def test_net_benefit_by_hand():
    y = np.array([1, 1, 0, 0, 0])
    score = np.array([0.9, 0.2, 0.6, 0.2, 0.1])
    table = net_benefit(y, score, thresholds=[0.5, 0.2])
    assert table["net_benefit"].tolist() == pytest.approx([1 / 5 - 1 / 5, 2 / 5 - 2 / 5 * 0.25])
    assert table["treat_all"].tolist() == pytest.approx([0.4 - 0.6, 0.4 - 0.6 * 0.25])
    assert table["standardized"].tolist() == pytest.approx([0.0, (0.4 - 0.1) / 0.4])


def test_a_group_with_one_outcome_has_a_row_and_a_reason():
    y, score = [0, 0, 1, 0, 1, 1, 0], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    g = pd.Categorical(list("aabbccc"), categories=["a", "b", "c"])
    table = auc(y, score, sensitive_features=g)
    assert table["note"].tolist() == ["no events", "", ""]
    assert table["events"].tolist() == [0, 1, 2]
    with pytest.warns(CfairWarning, match=r"a \(no events\)"):
        assert auc_gap(y, score, sensitive_features=g) == 0.0
    with pytest.warns(CfairWarning, match="no events"):
        assert worst_auc(y, score, sensitive_features=g) == 0.0
    numbers = calibration(y, score, sensitive_features=g)
    assert numbers["note"].tolist() == [
        "no events",
        "the score separates events from non-events: no finite slope",
        "the score separates events from non-events: no finite slope",
    ]
    assert np.isfinite(numbers["in_the_large"]).tolist() == [False, True, True]


def test_scores_of_0_and_1_have_no_logit_unless_clipped():
    y, score = [0, 1, 0, 1, 1], [0.0, 0.4, 0.6, 0.7, 0.2]
    found = calibration(y, score).iloc[0]
    assert np.isnan(found["slope"])
    assert found["note"] == "1 score of exactly 0 or 1: no logit"
    assert np.isfinite(calibration(y, score, clip=0.01).iloc[0]["slope"])
    with pytest.raises(ValueError, match="clip must be between 0 and 0.5"):
        calibration(y, score, clip=0.7)


def test_attributes_named_like_columns_are_kept_apart():
    y, score, g = sample(3)
    table = auc(y, score, sensitive_features={"auc": g, "n": g})
    assert {"auc", "auc (attribute)", "n", "n (attribute)"} <= set(table)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: ece([0, 1], [0.1, 0.9], range="own"), ValueError, "'unit', 'group', 'quantile'"),
        (lambda: ece([0, 1], [0.1, 0.9], bins=0), ValueError, "bins must be a whole number"),
        (lambda: auc([0, 1], [0.1, 1.9]), DataError, r"\[0, 1\]"),
        (lambda: auc([0, 1], [0.1, 0.2, 0.3]), DataError, "3"),
        (lambda: auc([0, 0], [0.1, 0.2]), DataError, "no events"),
        (lambda: net_benefit([0, 1], [0.1, 0.9], thresholds=[1.0]), ValueError, r"\[0, 1\)"),
        (
            lambda: auc_gap([0, 1], [0.1, 0.2], sensitive_features=["a", "a"]),
            DataError,
            "two groups",
        ),
        (
            lambda: ece_gap([0, 1], [0.1, np.nan], sensitive_features=["a", "b"]),
            DataError,
            "missing",
        ),
    ],
)
def test_bad_input_is_refused_with_the_reason(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_calibration_curve_counts_every_row_once():
    y, score, g = sample(4, n=150)
    table = calibration_curve(y, score, sensitive_features=g)
    assert table["n"].sum() == 150
    assert table["events"].sum() == y.sum()
    assert (
        (table["ci_low"] <= table["event_rate"]) & (table["event_rate"] <= table["ci_high"])
    ).all()


def test_arrays_are_in_the_order_of_the_first_series():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"y": [0, 1] * 20, "p": rng.random(40), "g": list("aabb") * 10})
    shuffled = frame.sample(frac=1, random_state=1)
    expected = metrics.auc(frame["y"], frame["p"])
    assert metrics.auc(shuffled["y"].to_numpy(), shuffled["p"]) == expected
    assert metrics.auc(shuffled["y"], frame["p"]) == expected  # two Series: by their index
    by_group = metrics.group_rates(frame["y"], frame["p"] > 0.5, sensitive_features=frame["g"])
    again = metrics.group_rates(
        shuffled["y"].to_numpy(),
        (shuffled["p"] > 0.5).to_numpy(),
        sensitive_features=shuffled["g"],
    )
    pd.testing.assert_frame_equal(by_group, again)


def test_metrics_of_all_rows_need_no_second_outcome():
    y, score = [0, 0, 0], [0.1, 0.2, 0.4]
    assert brier(y, score) == pytest.approx((0.01 + 0.04 + 0.16) / 3)
    assert log_loss(y, score) == pytest.approx(-np.log([0.9, 0.8, 0.6]).mean())
    assert ece(y, score, bins=1) == pytest.approx(0.7 / 3)
    found = net_benefit(y, score, thresholds=[0.2]).iloc[0]
    assert found["net_benefit"] == pytest.approx(-0.25 * 2 / 3)
    assert np.isnan(found["standardized"])
    with pytest.raises(DataError):
        auc(y, score)
