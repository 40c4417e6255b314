"""Observed rates as a result: frames, contrasts, tests, notes, text."""

from __future__ import annotations

import dataclasses

import bad_inputs
import numpy as np
import pandas as pd
import plain
import pytest
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

import cfair
from cfair.errors import DataError
from cfair.estimators.confusion import RATE_CELLS, RATES

pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")

ADJUSTMENTS = [
    "holm",
    "bonferroni",
    "sidak",
    "holm-sidak",
    "simes-hochberg",
    "hommel",
    "fdr_bh",
    "fdr_by",
]
METHODS = {"wilson": "wilson", "clopper-pearson": "beta", "agresti-coull": "agresti_coull"}
COLUMNS = [
    "metric",
    "group",
    "sex",
    "race",
    "n",
    "events",
    "estimate",
    "se",
    "ci_low",
    "ci_high",
    "note",
]


def audit(t, groups=("sex", "race"), **options):
    return cfair.Audit(t, outcome="y", score="s", cutoff=0.5, groups=list(groups), **options)


@pytest.fixture(scope="module")
def table():
    return bad_inputs.cohort(900, 1)


@pytest.fixture(scope="module")
def result(table):
    return audit(table).observed()


def rows_of(t, sex, race):
    return ((t["sex"] == sex) & (t["race"] == race)).to_numpy()


def call(t):
    return (t["s"] >= 0.5).to_numpy().astype(int)


# -- frames ---------------------------------------------------------------------------------------


def test_rates_are_the_formulas_in_the_promised_order(table, result):
    frame = result.rates
    assert set(COLUMNS) <= set(frame.columns)
    assert frame["metric"].tolist() == [m for m in RATES for _ in range(6)]
    assert frame["group"].tolist()[:6] == [
        f"{a} & {b}" for a in "FM" for b in ("Black", "Other", "White")
    ]
    for _, row in frame.iterrows():
        rows = rows_of(table, row["sex"], row["race"])
        y, s = table["y"].to_numpy()[rows], call(table)[rows]
        assert row["estimate"] == pytest.approx(plain.observed(y, s)[row["metric"]], rel=1e-12)
        assert (row["n"], row["events"]) == (rows.sum(), y.sum())


def test_marginals_and_overall_are_the_formulas_on_merged_rows(table, result):
    marginals = result.marginals
    assert {
        "metric",
        "attribute",
        "level",
        "n",
        "events",
        "estimate",
        "se",
        "ci_low",
        "ci_high",
        "note",
    } <= set(marginals)
    assert len(marginals) == 13 * 5
    for _, row in marginals.iterrows():
        rows = (table[row["attribute"]] == row["level"]).to_numpy()
        expected = plain.observed(table["y"].to_numpy()[rows], call(table)[rows])
        assert row["estimate"] == pytest.approx(expected[row["metric"]], rel=1e-12)
    everyone = plain.observed(table["y"].to_numpy(), call(table))
    for _, row in result.overall.iterrows():
        assert row["estimate"] == pytest.approx(everyone[row["metric"]], rel=1e-12)


@pytest.mark.parametrize("interval", METHODS)
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_intervals_are_statsmodels(table, interval, level):
    frame = audit(table).observed(interval=interval, level=level).rates
    simple = frame[~frame["metric"].isin(["balanced_accuracy", "f1"])]
    for _, row in simple.iterrows():
        x = round(row["estimate"] * row["denominator"])
        low, high = proportion_confint(x, row["denominator"], 1 - level, METHODS[interval])
        np.testing.assert_allclose([row["ci_low"], row["ci_high"]], [low, high], atol=1e-9)
        p, n = row["estimate"], row["denominator"]
        if 0 < p < 1:
            assert row["se"] == pytest.approx(np.sqrt(p * (1 - p) / n), rel=1e-9)


def test_balanced_accuracy_and_f1_have_delta_method_errors(table, result):
    frame = result.rates.set_index(["metric", "group"])
    for name in result.cohort.groups.names:
        a, b = (frame.loc[(m, name), "se"] for m in ("tpr", "tnr"))
        got = frame.loc[("balanced_accuracy", name), "se"]
        assert got == pytest.approx(np.sqrt(a**2 + b**2) / 2, rel=1e-9)
        assert 0 < frame.loc[("f1", name), "se"] < 0.2


@pytest.mark.parametrize("interval", METHODS)
def test_all_limits_lie_between_zero_and_one_and_hold_the_rate(interval):
    t = bad_inputs.cohort(60, 2)
    frame = audit(t).observed(interval=interval).rates.dropna(subset=["estimate"])
    assert (frame["ci_low"] >= 0).all()
    assert (frame["ci_high"] <= 1).all()
    assert (frame["ci_low"] <= frame["estimate"] + 1e-12).all()
    assert (frame["ci_high"] >= frame["estimate"] - 1e-12).all()


def test_covariance_has_the_squared_errors_on_its_diagonal(result):
    covariance = result.covariance
    assert covariance.index.names == ["metric", "group"]
    inside = result.rates["estimate"].between(0.001, 0.999).to_numpy()
    np.testing.assert_allclose(
        np.sqrt(np.diag(covariance))[inside], result.rates["se"][inside], rtol=1e-10
    )


def test_covariance_of_all_metrics_is_joint(result):
    covariance, rates = result.covariance, result.rates.set_index(["metric", "group"])
    assert covariance.shape == (13 * 6, 13 * 6)
    assert covariance.index.equals(covariance.columns)
    assert covariance.index.get_level_values("metric").unique().tolist() == list(RATES)
    np.testing.assert_allclose(covariance, covariance.T, atol=1e-18)
    assert np.linalg.eigvalsh(covariance)[0] > -1e-15
    for group in result.cohort.groups.names:
        for one, other in COMPLEMENTS:
            variance = covariance.loc[(one, group), (one, group)]
            assert variance > 0
            assert covariance.loc[(one, group), (other, group)] == pytest.approx(-variance)
        for metric in RATES:
            estimate, se = rates.loc[(metric, group), ["estimate", "se"]]
            if 0 < estimate < 1:
                variance = covariance.loc[(metric, group), (metric, group)]
                assert variance == pytest.approx(se**2, rel=1e-10), metric
    # rows of different groups are independent
    different = np.not_equal.outer(*[covariance.index.get_level_values("group")] * 2)
    assert (covariance.to_numpy()[different] == 0).all()


COMPLEMENTS = [("tpr", "fnr"), ("fpr", "tnr"), ("ppv", "fdr"), ("npv", "for")]


@pytest.mark.parametrize("group", ["F & Black", "M & White"])
def test_covariance_is_the_delta_method_of_the_multinomial(table, result, group):
    rows = rows_of(table, *group.split(" & "))
    y, s = table["y"].to_numpy()[rows], call(table)[rows]
    n, p = rows.sum(), np.array(plain.cells(y, s)) / rows.sum()  # tn, fp, fn, tp

    def rates(shares):
        tn, fp, fn, tp = shares
        tpr, tnr = tp / (tp + fn), tn / (tn + fp)
        return np.array(
            [fn + tp, fp + tp, tpr, 1 - tnr, tnr, 1 - tpr, tp / (tp + fp), tn / (tn + fn),
             fp / (tp + fp), fn / (tn + fn), tn + tp, (tpr + tnr) / 2, 2 * tp / (2 * tp + fp + fn)]
        )  # fmt: skip

    shares = np.diag(p) - np.outer(p, p)
    steps = 1e-4 * np.eye(4)
    slope = np.column_stack(
        [
            (8 * (rates(p + h) - rates(p - h)) - (rates(p + 2 * h) - rates(p - 2 * h))) / 12e-4
            for h in steps
        ]
    )
    expected = slope @ shares @ slope.T / n
    at = [(metric, group) for metric in RATES]
    np.testing.assert_allclose(result.covariance.loc[at, at], expected, atol=1e-12)


def test_clustered_covariance_has_the_squared_errors_on_its_diagonal(table):
    result = audit(table.assign(site=np.arange(900) % 25), cluster="site").observed()
    diagonal = np.diag(result.covariance)
    inside = result.rates["estimate"].between(0.001, 0.999).to_numpy()
    np.testing.assert_allclose(np.sqrt(diagonal)[inside], result.rates["se"][inside], rtol=1e-10)
    for group in result.cohort.groups.names:
        tpr, fnr = ("tpr", group), ("fnr", group)
        assert result.covariance.loc[tpr, fnr] == pytest.approx(-result.covariance.loc[tpr, tpr])


# -- groups that have no rate ---------------------------------------------------------------------


def test_groups_without_a_denominator_keep_their_row_with_the_reason():
    t = bad_inputs.cohort(600, 3)
    t.loc[rows_of(t, "M", "Other"), "y"] = 0
    t.loc[rows_of(t, "F", "Other"), "s"] = 0.1
    t = t[~rows_of(t, "M", "Black")]
    frame = audit(t).observed().rates.set_index(["metric", "group"])
    assert len(frame) == 13 * 6
    cases = [
        ("tpr", "M & Other", "no events"),
        ("fnr", "M & Other", "no events"),
        ("ppv", "F & Other", "no positive calls"),
        ("fpr", "M & Black", "no rows"),
        ("prevalence", "M & Black", "no rows"),
        ("accuracy", "M & Black", "no rows"),
        ("balanced_accuracy", "M & Other", "no events or no non-events"),
    ]
    for metric, group, note in cases:
        row = frame.loc[(metric, group)]
        assert row[["estimate", "se", "ci_low", "ci_high"]].isna().all(), (metric, group)
        assert row["note"] == note
    assert (frame.xs("M & Black", level="group")["n"] == 0).all()
    assert "exactly 0" in frame.loc[("fpr", "F & Other"), "note"]
    assert frame.loc[("fpr", "F & Other"), "se"] > 0
    missing = frame["estimate"].isna()
    assert (frame.loc[missing, "note"] != "").all()


def test_a_group_of_one_row_says_so():
    t = bad_inputs.cohort(300, 4)
    other = np.flatnonzero(rows_of(t, "M", "Other"))
    t = t.drop(index=t.index[other[1:]])
    frame = audit(t).observed().rates.set_index(["metric", "group"])
    row = frame.loc[("selection_rate", "M & Other")]
    assert row["n"] == 1
    assert row["ci_high"] - row["ci_low"] > 0.7
    assert "read with care" in row["note"]


def test_disparities_leave_undefined_rates_out(table):
    t = table.copy()
    t.loc[rows_of(t, "M", "Other"), "y"] = 0
    result = audit(t).observed()
    frame = result.disparities.set_index(["metric", "statistic"])
    for metric in RATES:
        expected = plain.disparities(result.estimates_of(metric).estimate[:6])
        np.testing.assert_allclose(frame.loc[metric, "estimate"], expected, atol=1e-12)
    assert {"metric", "statistic", "estimate", "ci_low", "ci_high", "expected_if_equal"} <= set(
        result.disparities
    )
    tests = result.test_equal().set_index("metric")
    assert tests.loc["tpr", "df"] == 4
    assert tests.loc["fpr", "df"] == 5
    assert tests.loc["tpr", "note"] == "no rate in M & Other"


# -- comparisons ----------------------------------------------------------------------------------


def test_contrasts_of_all_pairs_are_newcombe_with_holm(table, result):
    frame = result.contrasts(metrics=["fpr", "tpr"])
    assert len(frame) == 30
    assert {
        "metric",
        "group",
        "reference",
        "estimate",
        "se",
        "ci_low",
        "ci_high",
        "p_value",
    } <= set(frame)
    rates = result.rates.set_index(["metric", "group"])
    for _, row in frame.iterrows():
        a, b = (rates.loc[(row["metric"], row[c])] for c in ("group", "reference"))
        expected = confint_proportions_2indep(
            round(a["estimate"] * a["denominator"]), a["denominator"],
            round(b["estimate"] * b["denominator"]), b["denominator"], method="newcomb",
        )  # fmt: skip
        np.testing.assert_allclose([row["ci_low"], row["ci_high"]], expected, atol=1e-9)
        assert row["estimate"] == pytest.approx(a["estimate"] - b["estimate"], abs=1e-12)
        if min(a["estimate"], b["estimate"]) > 0:
            assert row["se"] == pytest.approx(np.hypot(a["se"], b["se"]), rel=1e-9)
        assert (row["p_value"] < 0.05) == (row["ci_low"] > 0 or row["ci_high"] < 0)
    holm = multipletests(frame["p_value"], method="holm")[1]
    np.testing.assert_allclose(frame["p_adjusted"], holm, rtol=1e-12)
    assert frame["family"].eq("Holm over 30 p-values (2 metrics)").all()


@pytest.mark.parametrize("adjust", ADJUSTMENTS)
def test_every_adjustment_is_statsmodels_over_the_defined_p_values(table, adjust):
    t = table.copy()
    t.loc[rows_of(t, "M", "Other"), "y"] = 0
    frame = audit(t).observed().contrasts(adjust=adjust, metrics="tpr")
    defined = frame["p_value"].notna()
    assert defined.sum() == 10
    expected = multipletests(frame["p_value"][defined], method=adjust)[1]
    np.testing.assert_allclose(frame["p_adjusted"][defined], expected, rtol=1e-12)
    assert frame["p_adjusted"][~defined].isna().all()
    assert frame["note"][~defined].eq("a rate is undefined").all()
    assert "10 p-values" in frame["family"].iloc[0]


def test_without_adjustment_p_values_stay(result):
    frame = result.contrasts(adjust=None)
    np.testing.assert_array_equal(frame["p_adjusted"], frame["p_value"])
    assert "not adjusted" in frame["family"].iloc[0]


def test_max_t_intervals_agree_with_their_p_values(result):
    frame = result.contrasts(adjust="max-t", metrics=["fpr", "tpr"])
    plain_frame = result.contrasts(adjust=None, metrics=["fpr", "tpr"])
    excludes = (frame["ci_low"] > 0) | (frame["ci_high"] < 0)
    near = (frame["p_adjusted"] - 0.05).abs() < 1e-3
    assert (excludes == (frame["p_adjusted"] < 0.05))[~near].all()
    assert (
        frame["ci_high"] - frame["ci_low"] > plain_frame["ci_high"] - plain_frame["ci_low"]
    ).all()
    assert (frame["p_adjusted"] >= frame["p_value"] - 0.01).all()
    bonferroni = np.minimum(plain_frame["p_value"] * 15, 1)
    assert (frame["p_adjusted"] <= bonferroni + 0.01).all()


def test_a_reference_may_be_a_tuple_a_name_or_a_level(table, result):
    by_tuple = result.contrasts(("F", "White"))
    by_name = result.contrasts("F & White")
    pd.testing.assert_frame_equal(by_tuple, by_name)
    assert by_tuple["reference"].eq("F & White").all()
    assert len(by_tuple) == 5 * len(result.compared)
    single = audit(table, ["race"]).observed()
    assert single.contrasts("White", metrics="fpr")["group"].tolist() == ["Black", "Other"]
    with pytest.raises(DataError, match="White"):
        single.contrasts("white")


def test_contrasts_of_an_attribute_compare_its_margins(table, result):
    frame = result.contrasts(attribute="race", metrics="fpr", reference="White")
    assert frame["group"].tolist() == ["Black", "Other"]
    alone = audit(table, ["race"]).observed().contrasts("White", metrics="fpr")
    columns = ["estimate", "se", "ci_low", "ci_high", "p_value", "p_adjusted"]
    np.testing.assert_allclose(frame[columns], alone[columns], atol=1e-9)
    with pytest.raises(DataError, match="sex, race"):
        result.contrasts(attribute="age")
    with pytest.raises(DataError, match="Black, Other, White"):
        result.contrasts(attribute="race", reference="F")


def test_ratios_are_ratios_and_agree_with_differences(table):
    t = table.copy()
    t.loc[rows_of(t, "M", "Other"), "s"] = 0.1
    result = audit(t).observed()
    ratio = result.contrasts(kind="ratio", metrics="fpr")
    difference = result.contrasts(metrics="fpr")
    rates = result.rates.set_index(["metric", "group"])["estimate"]["fpr"]
    a, b = rates[ratio["group"]].to_numpy(), rates[ratio["reference"]].to_numpy()
    zero = b == 0
    assert zero.any()
    np.testing.assert_allclose(ratio["estimate"][~zero], a[~zero] / b[~zero], rtol=1e-12)
    assert ratio["estimate"][zero].isna().all()
    assert ratio["note"][zero].eq("the reference rate is 0").all()
    np.testing.assert_allclose(ratio["p_value"], difference["p_value"], rtol=1e-12)
    holds_one = (ratio["ci_low"] <= 1) & (ratio["ci_high"] >= 1)
    holds_zero = (difference["ci_low"] <= 0) & (difference["ci_high"] >= 0)
    assert (holds_one == holds_zero).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "odds"}, "'difference', 'ratio'"),
        ({"adjust": "tukey"}, "max-t"),
        ({"metrics": "auc"}, "fpr"),
        ({"level": 95}, "between 0 and 1"),
    ],
)
def test_unknown_options_list_what_is_allowed(result, options, message):
    with pytest.raises(ValueError, match=message):
        result.contrasts(**options)


def test_blocks_are_the_attributes_and_then_their_intersection(table, result):
    e, by_level = result.estimates_of("fpr").estimate, result.marginals.query("metric == 'fpr'")
    *single, whole = result.blocks("fpr")
    assert [block.by for block in (*single, whole)] == ["sex", "race", "sex x race"]
    for block in single:
        rows = by_level[by_level["attribute"] == block.by]
        assert list(block.names) == rows["level"].astype(str).tolist()
        np.testing.assert_array_equal(e[block.targets], rows["estimate"])
    assert whole.names == result.cohort.groups.names
    np.testing.assert_array_equal(
        e[whole.targets], result.rates.query("metric == 'fpr'")["estimate"]
    )
    (only,) = audit(table, ["race"]).observed().blocks("fpr")
    assert only.by == "race"
    with pytest.raises(ValueError, match="metrics must be of"):
        result.blocks("nothing")


def test_test_equal_is_the_wald_test_of_each_metric(result):
    frame = result.test_equal().set_index("metric")
    assert list(frame.index) == list(RATES)
    for metric in ("fpr", "tpr", "accuracy"):
        e = result.estimates_of(metric)
        assert np.all((e.estimate > 0) & (e.estimate < 1))
        expected = plain.logit_wald(e.estimate[:6], e.covariance[:6, :6])
        assert frame.loc[metric, "wald"] == pytest.approx(expected, rel=1e-8)
    assert frame.loc["fpr", "p_value"] == pytest.approx(frame.loc["tnr", "p_value"], rel=1e-8)


# -- clusters -------------------------------------------------------------------------------------


def test_clusters_widen_what_they_should(table):
    t = pd.concat([table.assign(site=range(900))] * 3, ignore_index=True)
    once = audit(table).observed().rates
    thrice = audit(t, cluster="site").observed().rates
    inside = once["estimate"].between(0.001, 0.999)
    np.testing.assert_allclose(thrice["estimate"], once["estimate"], rtol=1e-12)
    result = audit(table).observed()
    K = result.cohort.groups.n_groups
    rows = np.concatenate([r.denominator[:K] for r in result.rows])  # each a site of its own
    plain = inside & ~once["metric"].isin(["balanced_accuracy"]).to_numpy()
    factor = np.sqrt(rows / (rows - 1))
    np.testing.assert_allclose((thrice["se"] / once["se"])[plain], factor[plain], rtol=1e-9)


# -- the record -----------------------------------------------------------------------------------


def test_a_result_is_frozen(result):
    for name in ("level", "estimates", "cohort", "seed"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, name, None)


@pytest.mark.parametrize("name", ["rates", "marginals", "overall", "disparities", "covariance"])
def test_changing_a_frame_changes_no_later_output(table, name):
    result = audit(table).observed()
    before = getattr(result, name).copy()
    taken = getattr(result, name)
    taken[taken.columns[-1]] = "changed"
    pd.testing.assert_frame_equal(getattr(result, name), before)


def test_changing_rates_does_not_reach_to_frame(table):
    result = audit(table).observed()
    before, text = result.to_frame(), str(result)
    for taken in (result.rates, result.to_frame()):
        taken["estimate"] = 99.0
    pd.testing.assert_frame_equal(result.to_frame(), before)
    assert str(result) == text


def test_arrays_in_the_record_cannot_be_written(table):
    result = audit(table).observed()
    before = result.rates.copy()
    with pytest.raises(ValueError, match="read-only"):
        result.estimates_of("fpr").estimate[0] = 9.0
    with pytest.raises(ValueError, match="read-only"):
        result.counts["n"][0] = 7
    with pytest.raises(TypeError):
        result.counts["n"] = 7
    fresh = result.contrasts(metrics="fpr")
    assert fresh["estimate"].abs().max() < 1
    pd.testing.assert_frame_equal(result.rates, before)


# -- text -----------------------------------------------------------------------------------------

AUDITS = {
    "one attribute": (["sex"], 600),
    "two attributes": (["sex", "race"], 600),
    "three attributes": (["sex", "race", "smoker"], 600),
    "sixty groups": (["site"], 900),
    "more groups than are shown": (["sex", "ward"], 900),
}


def with_more(n):
    t = bad_inputs.cohort(n, 5)
    t["smoker"] = np.arange(n) % 2 == 0
    t["site"] = np.arange(n) % 60
    t["ward"] = np.arange(n) % 23
    t["everyone"] = "all"
    return t


@pytest.mark.parametrize("case", AUDITS)
def test_a_result_prints_and_says_what_was_done(case):
    groups, n = AUDITS[case]
    result = audit(with_more(n), groups).observed()
    text = str(result)
    for part in ("Observed rates", f"{n:,} rows", "none dropped", "s >= 0.5", "95%", "Wilson",
                 "equal rates?", "average", "if equal", "widest gap", "flagged",
                 "selection rate", *groups):  # fmt: skip
        assert part in text
    if result.cohort.groups.n_groups > 40:
        assert "not shown" in text
    assert repr(result) == text
    assert result._repr_html_().startswith("<div")


def test_a_single_group_prints_but_is_not_compared():
    result = audit(with_more(300), ["everyone"]).observed()
    assert "nothing to compare" in str(result)
    assert len(result.rates) == len(RATES)
    for question in (result.contrasts, result.test_equal):
        with pytest.raises(DataError):
            question()
    assert result.disparities["estimate"].isna().all()


def test_observed_rates_of_a_metric_with_every_denominator_empty():
    t = bad_inputs.cohort(200, 6)
    t["s"] = 0.1
    result = audit(t).observed()
    str(result)
    ppv = result.rates[result.rates["metric"] == "ppv"]
    assert ppv["estimate"].isna().all()
    for adjust in ("holm", "max-t", None):
        assert result.contrasts(metrics="ppv", adjust=adjust)["p_value"].isna().all()
    assert set(RATE_CELLS) < set(RATES)


@pytest.mark.parametrize(
    "options",
    [{"interval": "wald"}, {"aggregate_interval": "bootstrap"}, {"level": 0}, {"level": "0.95"}],
)
def test_wrong_options_are_value_errors(table, options):
    with pytest.raises(ValueError, match="must be"):
        audit(table).observed(**options)


def test_every_row_has_its_denominators():
    data = bad_inputs.cohort(400, 3)
    rates = audit(data).observed().rates.query("metric == 'ppv'")
    called = data["s"] >= 0.5
    for row in rates.to_dict("records"):
        rows = (data["sex"] == row["sex"]) & (data["race"] == row["race"])
        assert row["n"] == rows.sum()
        assert row["events"] == (rows & (data["y"] == 1)).sum()
        assert row["non_events"] == (rows & (data["y"] == 0)).sum()
        assert row["predicted_positive"] == (rows & called).sum() == row["denominator"]


def test_masked_rates_are_called_masked_wherever_they_are_left_out():
    rng = np.random.default_rng(2)
    n = 700
    data = pd.DataFrame({"y": rng.random(n) < 0.25, "s": rng.random(n)})
    data["g"] = rng.choice(list("abcd"), n, p=[0.45, 0.44, 0.06, 0.05])
    roles = {"outcome": "y", "score": "s", "cutoff": 0.5, "groups": "g", "suppress_below": 11}
    result = cfair.Audit(data, **roles).observed()
    hidden = result.masked("fpr")
    assert hidden[:4].tolist() == [False, False, True, True]
    row = result.gaps("fpr").iloc[0]
    assert row["note"] == "masked in c, d"
    assert result.test_equal().set_index("metric").loc["fpr", "note"] == "masked in c, d"
    assert "; masked in 2 groups" in str(result)
    assert "no rate in" not in str(result)
    few = cfair.Audit(data, **{**roles, "suppress_below": 100}).observed()
    legend = few.plot_disparities("fpr").get_legend()
    assert any(t.get_text().startswith("masked: rests on") for t in legend.get_texts())
    why = few.test_equal().set_index("metric").loc["fpr", "note"]
    assert why == "fewer than two groups have a rate that is not masked"
    assert few.gaps("fpr")["note"].iloc[0] == "all are masked"


def test_a_loss_without_spread_says_why_it_has_no_interval():
    y = np.tile([0, 1], 60)
    data = pd.DataFrame({"y": y, "s": y.astype(float), "g": ["a", "a", "b", "b"] * 30})
    rates = cfair.Audit(data, outcome="y", score="s", cutoff=0.5, groups="g").performance().rates
    losses = rates.query("metric == 'log_loss'")
    assert (losses["estimate"] == 0).all()
    assert losses["ci_low"].isna().all()
    assert losses["note"].str.startswith("the same for every row").all()
