"""Rows that come in clusters: degrees of freedom of intervals and tests, from front to end."""

from __future__ import annotations

import warnings

import bad_inputs
import numpy as np
import pandas as pd
import plain
import pytest
from scipy import stats

import cfair
from cfair.errors import DataError
from cfair.inference.estimates import RateEstimates
from cfair.inference.intervals import NORMAL, wilson_interval

pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")

FORMULA = "d ~ sex * race + age + s"


def table(n_clusters, n=900, seed=1, spread=0.6):
    """A cohort whose clusters have scores of their own."""
    t = bad_inputs.cohort(n, seed)
    t["age"] = (t["age"] - 60) / 10
    rng = np.random.default_rng(seed + 50)
    t["site"] = rng.permutation(np.arange(n) % n_clusters)
    own = rng.normal(0, spread, n_clusters)
    t["s"] = bad_inputs.expit(np.log(t["s"] / (1 - t["s"])) + own[t["site"]])
    return t


def audit(t, groups=("sex", "race"), cluster="site", **options):
    return cfair.Audit(
        t, outcome="y", score="s", cutoff=0.5, groups=list(groups), cluster=cluster, **options
    )


def results(t, groups=("sex", "race"), **options):
    a = audit(t, groups, **options)
    return {"observed": a.observed(), "counterfactual": a.counterfactual(FORMULA)}


KINDS = ["observed", "counterfactual"]


@pytest.fixture(scope="module")
def twelve():
    return results(table(12))


# -- tests of equal rates -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_wald_p_value_is_hotellings_f(twelve, kind):
    result = twelve[kind]
    tests = result.test_equal().set_index("metric")
    compared = 0
    for metric in tests.index:
        e = result.estimates_of(metric)
        theta, sigma = e.estimate[:6], e.covariance[:6, :6]
        if not np.all((theta > 0) & (theta < 1)):
            continue
        wald, v, q = plain.logit_wald(theta, sigma), 11, 5
        expected = stats.f.sf(wald * (v - q + 1) / (v * q), q, v - q + 1)
        assert tests.loc[metric, "wald"] == pytest.approx(wald, rel=1e-6)
        assert tests.loc[metric, "df"] == 5
        assert tests.loc[metric, "p_value"] == pytest.approx(expected, rel=1e-6)
        compared += 1
    assert compared >= 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_clusters", [2, 5, 6])
def test_no_more_clusters_than_groups_make_no_test_and_say_why(kind, n_clusters):
    result = results(table(n_clusters))[kind]
    tests = result.test_equal()
    names = ["wald", "p_value", "max_t", "max_t_p_value"]
    assert tests[names].isna().all(axis=None)
    reason = f"{n_clusters} clusters are too few to compare 6 groups"
    assert tests["note"].eq(reason).all()
    text = str(result)
    assert reason in text
    assert f"only {n_clusters} clusters (site)" in text
    assert any(f"only {n_clusters} clusters" in note for note in result.notes)
    low = result.disparities["ci_low"].dropna()
    assert len(low)
    assert (low == 0).all()
    for adjust in ("holm", "max-t"):
        assert result.contrasts(adjust=adjust)["p_value"].notna().any()


@pytest.mark.parametrize("kind", KINDS)
def test_one_cluster_more_than_groups_is_enough(kind):
    tests = results(table(7))[kind].test_equal().set_index("metric")
    assert tests["p_value"].between(0, 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_cluster_is_refused(kind):
    t = table(4).assign(site="here")
    with pytest.raises(DataError, match=r"'site'.*only one value.*two clusters or more"):
        results(t)[kind]


def test_many_clusters_are_not_called_few():
    result = audit(table(30)).observed()
    assert not any("clusters" in note for note in result.notes)


# -- intervals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_wilson_has_no_more_degrees_of_freedom_than_clusters_less_one(kind):
    result = results(table(5))[kind]
    capped = 0
    for _, row in result.rates.iterrows():
        p, se = row["estimate"], row["se"]
        if not 0 < p < 1:
            continue
        size = p * (1 - p) / se**2
        limits = plain.wilson(p, size, most_df=4)
        np.testing.assert_allclose([row["ci_low"], row["ci_high"]], limits, atol=1e-7)
        free = plain.wilson(p, size)
        if size > 6:
            assert limits[1] - limits[0] > free[1] - free[0]
            capped += 1
    assert capped > 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0, 1])
def test_a_rate_on_the_boundary_with_four_clusters_is_hardly_known(kind, rate):
    t = table(4, n=1200)
    t.loc[t["sex"] == "M", "s"] = 0.9 if rate else 0.1
    result = results(t, ["sex"])[kind]
    rates = result.rates.set_index(["metric", "group"])
    metric = "fpr" if kind == "observed" else "cfpr"
    row = rates.loc[(metric, "M")]
    assert row["estimate"] == rate
    assert row["denominator" if kind == "observed" else "n"] > 200
    assert row["ci_high"] - row["ci_low"] > 0.2
    assert row["se"] > 0.1


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_intervals_of_observed_rates_and_of_their_differences_agree(level):
    result = audit(table(9)).observed(level=level)
    rates = result.rates.set_index(["metric", "group"])
    covariance = result.covariance
    frame = result.contrasts(adjust=None)
    compared = 0
    for _, row in frame.iterrows():
        at = [(row["metric"], row[c]) for c in ("group", "reference")]
        a, b = (rates.loc[key] for key in at)
        if not (0 < a["estimate"] < 1 and 0 < b["estimate"] < 1):
            continue
        rho = covariance.loc[at[0], at[1]] / (a["se"] * b["se"])
        limits = plain.mover(
            a["estimate"], a["ci_low"], a["ci_high"], b["estimate"], b["ci_low"], b["ci_high"], rho
        )
        np.testing.assert_allclose([row["ci_low"], row["ci_high"]], limits, atol=1e-10)
        assert (row["p_value"] < 1 - level) == (row["ci_low"] > 0 or row["ci_high"] < 0)
        compared += 1
    assert compared > 30


def test_observed_rates_are_the_same_in_both_results(twelve):
    columns = ["estimate", "se", "ci_low", "ci_high"]
    a = twelve["observed"].rates.set_index(["metric", "group"])
    b = twelve["counterfactual"].rates.set_index(["metric", "group"])
    for metric in ("fpr", "fnr"):
        np.testing.assert_allclose(
            a.loc[metric, columns].to_numpy(float), b.loc[metric, columns].to_numpy(float)
        )


@pytest.mark.parametrize("interval", ["clopper-pearson", "agresti-coull"])
def test_few_clusters_widen_every_observed_interval(interval):
    t = table(5, spread=0.0)
    few = audit(t).observed(interval=interval).rates
    e = audit(t).observed().rates
    inside = e["estimate"].between(0.001, 0.999).to_numpy()
    half = stats.norm.ppf(0.975) * e["se"].to_numpy()[inside]
    width = (few["ci_high"] - few["ci_low"]).to_numpy()[inside]
    assert np.mean(width > 2 * half) > 0.9


@pytest.mark.parametrize("kind", ["Wilson", "wald", "exact", "", None, 0.95])
def test_an_unknown_interval_of_rates_is_refused(kind):
    e = RateEstimates("fpr", 1, np.array([0.2]), np.array([[0.001]]), np.array([160.0]))
    with pytest.raises(ValueError, match=r"interval must be one of 'wilson', 'logit', 'plain'"):
        e.interval(kind)


@pytest.mark.parametrize("max_df", [np.inf, NORMAL, 3.0])
def test_limits_of_rates_follow_the_degrees_of_freedom(max_df):
    theta, n = np.array([0.2, 0.4]), np.array([160.0, 240.0])
    e = RateEstimates("fpr", 2, theta, np.diag(theta * (1 - theta) / n), n, max_df=max_df)
    low, high = e.interval()
    for k in range(2):
        expected = plain.wilson(theta[k], n[k], 0.95, max_df != NORMAL, max_df)
        np.testing.assert_allclose([low[k], high[k]], expected, atol=1e-9)
    both = np.array([0]), np.array([1])
    c = e.contrast(*both, "difference", 0.95)
    expected = plain.mover(theta[0], low[0], high[0], theta[1], low[1], high[1])
    np.testing.assert_allclose([c.low[0], c.high[0]], expected, atol=1e-12)
    edge = e.contrast(*both, "difference", 1 - float(c.p_value[0]))
    assert min(abs(edge.low[0]), abs(edge.high[0])) < 1e-6


def test_clusters_given_to_the_analysis_are_those_of_the_declaration():
    t = table(8)
    a = audit(t).counterfactual(FORMULA)
    b = audit(t, cluster=None).counterfactual(FORMULA, cluster="site")
    pd.testing.assert_frame_equal(a.rates, b.rates)
    pd.testing.assert_frame_equal(a.test_equal(), b.test_equal())


@pytest.mark.parametrize("kind", KINDS)
def test_simultaneous_intervals_with_clusters_agree_with_their_p_values(twelve, kind):
    frame = twelve[kind].contrasts(adjust="max-t")
    excludes = (frame["ci_low"] > 0) | (frame["ci_high"] < 0)
    clear = (frame["p_adjusted"] - 0.05).abs() > 1e-3
    assert (excludes == (frame["p_adjusted"] < 0.05))[clear].all()
    single = twelve[kind].contrasts(adjust=None)
    assert (frame["ci_high"] - frame["ci_low"] > single["ci_high"] - single["ci_low"]).all()


def test_the_printed_test_names_the_distribution_of_its_p_value(twelve):
    """With clusters the p-value is no chi-square's."""
    for result in twelve.values():
        line = next(x for x in str(result).splitlines() if x.startswith("equal rates?"))
        assert "chi2(" not in line


# -- clusters within groups -----------------------------------------------------------------------


def nested(few, many, size, rng, rates=(0.4, 0.4), icc=0.05):
    """Clusters that are in one group each: few in the first, many in the second."""
    frames = []
    for group, (clusters, rate) in enumerate(zip((few, many), rates, strict=True)):
        shape = rate * (1 - icc) / icc, (1 - rate) * (1 - icc) / icc
        p = np.repeat(rng.beta(*shape, clusters), size)
        frames.append(
            pd.DataFrame(
                {
                    "y": rng.integers(0, 2, len(p)),
                    "s": (rng.random(len(p)) < p).astype(int),
                    "g": "ab"[group],
                    "c": 1000 * group + np.repeat(np.arange(clusters), size),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def test_a_group_is_as_uncertain_as_its_own_clusters_are():
    table = nested(4, 60, 30, np.random.default_rng(2))
    roles = {"outcome": "y", "prediction": "s", "groups": "g", "cluster": "c"}
    both = cfair.Audit(table, **roles).observed().rates
    few = both[(both["metric"] == "selection_rate") & (both["group"] == "a")].iloc[0]
    alone = table[table["g"] == "a"].groupby("c")["s"].mean()
    assert few["se"] == pytest.approx(alone.std() / np.sqrt(4))  # equal clusters: their own mean
    low, high = few["ci_low"], few["ci_high"]
    size = few["estimate"] * (1 - few["estimate"]) / few["se"] ** 2
    own = wilson_interval(np.array([few["estimate"]]), np.array([size]), max_df=3)
    assert (low, high) == pytest.approx((own[0][0], own[1][0]))


def test_intervals_of_few_clusters_cover_whatever_the_others_have():
    rng, covered, wrong = np.random.default_rng(5), [], []
    roles = {"outcome": "y", "prediction": "s", "groups": "g", "cluster": "c"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(10):
            table = [nested(0, 40, 30, rng, rates=(0.5, 0.4))]
            for k in range(1, 16):  # many groups of few clusters beside one of many
                few = nested(4, 0, 30, rng, rates=(0.5, 0.4))
                table.append(few.assign(g=f"a{k}", c=10_000 * k + few["c"]))
            result = cfair.Audit(pd.concat(table, ignore_index=True), **roles).observed()
            rows = result.rates.query("metric == 'selection_rate' and group != 'b'")
            covered.extend((rows["ci_low"] < 0.5) & (rows["ci_high"] > 0.5))
            pairs = result.equivalence("selection_rate", reference="b").pairs
            wrong.extend(pairs["verdict"] == "equivalent")  # the true ratio is 1.25, the margin
    assert len(covered) == len(wrong) == 150
    assert np.mean(covered) > 0.90  # 0.87 with the degrees of freedom of all clusters
    assert np.mean(wrong) < 0.06
