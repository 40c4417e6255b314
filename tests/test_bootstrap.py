"""Bootstrap replicates against plain loops, their spread, and the intervals made of them."""

from __future__ import annotations

import bad_inputs
import numpy as np
import pandas as pd
import plain
import pytest
from scipy import stats

import cfair
from cfair.inference import bootstrap as module
from cfair.inference.bootstrap import MIN_VALID, bootstrap_draws, bootstrap_interval
from cfair.inference.contributions import TreatmentModel, ipw_contributions
from cfair.inference.drawing import faircfint_sizes
from cfair.inference.one_pass import exchangeable_weights, one_pass, one_pass_plan
from cfair.inference.refit import CounterfactualModels
from cfair.inference.rows import Rows
from cfair.nuisance.binary import BinaryModel, DesignRows
from cfair.nuisance.logistic import fit_logistic

pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")

FORMULA = "d ~ sex * race + age + s"


def table(n=300, seed=0):
    t = bad_inputs.cohort(n, seed)
    t["age"] = (t["age"] - 60) / 10
    t["site"] = np.random.default_rng(seed + 5).integers(0, 40, n)
    t["chance"] = np.random.default_rng(seed + 6).uniform(0.1, 0.8, n)
    return t


def audit(t, **options):
    return cfair.Audit(
        t, outcome="y", score="s", cutoff=0.5, groups=["sex", "race"], treatment="d", **options
    )


def arrays(t):
    code = (t["sex"] == "M").to_numpy() * 3 + t["race"].map({"Black": 0, "Other": 1, "White": 2})
    s = (t["s"] >= 0.5).to_numpy().astype(int)
    return t["y"].to_numpy(), s, t["d"].to_numpy(), np.asarray(code, dtype=int)


def design(t):
    code = arrays(t)[3]
    return np.column_stack([code == k for k in range(6)] + [t["age"], t["s"]]).astype(float)


def compare(result, expected):
    names = list(result.cohort.groups.names)
    for m, metric in enumerate(("cfpr", "cfnr", "fpr", "fnr")):
        got = result.boot_draws[metric][names].to_numpy()
        np.testing.assert_allclose(got, expected[:, :, m], atol=1e-9)


# -- rows as given --------------------------------------------------------------------------------


@pytest.mark.parametrize("truncation", [(0.005, 0.995), (0.3, 0.5)])
def test_given_rows_equal_a_plain_loop(truncation):
    t = table()
    y, s, d, g = arrays(t)
    rng = np.random.default_rng(1)
    rows = [rng.integers(0, 300, size) for size in (300, 300, 250, 400)]
    result = audit(t).counterfactual(FORMULA, resamples=rows, truncation=truncation)
    compare(result, plain.bootstrap(y, s, d, g, 6, rows, X=design(t), truncation=truncation))
    assert result.boot.rows_per_replicate.tolist() == [300, 300, 250, 400]


def test_given_rows_with_known_probabilities_equal_a_plain_loop():
    t = table()
    y, s, d, g = arrays(t)
    rows = np.random.default_rng(2).integers(0, 300, (5, 300))
    result = audit(t).counterfactual("chance", resamples=rows)
    compare(result, plain.bootstrap(y, s, d, g, 6, rows, pi=t["chance"].to_numpy()))


def test_given_rows_count_among_the_rows_used():
    t = table()
    t["bmi"] = 25 + t["age"]
    t.loc[:19, "bmi"] = np.nan
    rows = np.random.default_rng(3).integers(0, 280, (3, 280))
    a = audit(t, missing="drop").counterfactual("d ~ sex + s + bmi", resamples=rows)
    b = audit(t.dropna()).counterfactual("d ~ sex + s + bmi", resamples=rows)
    pd.testing.assert_frame_equal(a.boot_draws, b.boot_draws, check_exact=False, atol=1e-12)


def test_all_rows_once_give_back_the_estimates():
    result = audit(table()).counterfactual(FORMULA, resamples=np.arange(300)[None, :])
    for metric in ("cfpr", "cfnr"):
        seen = result.estimates_of(metric).estimate[:6]
        names = list(result.cohort.groups.names)
        np.testing.assert_allclose(result.boot_draws[metric][names].to_numpy()[0], seen, atol=1e-9)


# -- weights and sizes ----------------------------------------------------------------------------


def test_every_byte_becomes_a_weight_of_mean_one_and_variance_one():
    class AllBytes:
        bit_generator = property(lambda self: self)

        def random_raw(self, size):
            assert size * 8 == 256
            return np.arange(256, dtype=np.uint8).view(np.uint64)

    weights = exchangeable_weights([(AllBytes(), 1)], 256)[0]
    assert weights.mean() == 1.0
    assert ((weights - 1) ** 2).mean() == 1.0
    assert set(weights.tolist()) == set(range(6))


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (25, 513)])
def test_exchangeable_weights_have_the_shape_asked_for(shape):
    B, n = shape
    assert exchangeable_weights([(np.random.default_rng(0), B)], n).shape == shape


@pytest.mark.parametrize(
    ("strata", "m", "expected"),
    [
        ([2, 2, 4], 2, [0, 0, 1]),  # 0.5, 0.5, 1
        ([6, 2], 4, [3, 1]),
        ([3, 5, 8], 8, [2, 2, 4]),  # 1.5, 2.5, 4
        ([1, 1, 1, 1], 2, [0, 0, 0, 0]),
        ([7, 0, 7], 7, [4, 0, 4]),  # 3.5 to even
    ],
)
def test_shares_of_strata_are_rounded_half_to_even(strata, m, expected):
    assert faircfint_sizes(np.array(strata), m).tolist() == expected


@pytest.mark.parametrize("n", [16, 81, 300, 625, 1001])
def test_faircfint_draws_n_to_three_quarters_within_strata(n):
    t = table(n)
    y, s, d, g = arrays(t)
    draws = bootstrap_draws(
        CounterfactualModels(Rows(y, s, d, g, 6), "ipw", t["chance"].to_numpy()),
        kind="faircfint", n_boot=6, seed=1,
    )  # fmt: skip
    m = int(np.floor(n**0.75 + 1e-9))
    strata = np.bincount(g * 4 + y * 2 + s, minlength=24)
    expected = faircfint_sizes(strata, m)
    assert (draws.observed.reshape(6, 24) == expected).all()
    assert (draws.rows_per_replicate == expected.sum()).all()
    assert len(np.unique(draws.cells.sum(axis=(1, 2, 3)))) > 1 or n < 100


def test_groups_keep_their_size_and_clusters_stay_whole(cells_made):
    t = table(400)
    result = audit(t).counterfactual(FORMULA, n_boot=20, seed=1)
    sizes = result.cohort.groups.sizes
    assert (cells_made[0].observed.sum(axis=(2, 3)) == sizes).all()
    t["site"] = np.arange(400) // 2  # pairs of rows
    pairs = pd.concat([t.iloc[::2]] * 2).sort_index(kind="stable").assign(site=t["site"].to_numpy())
    pairs = pairs.reset_index(drop=True)
    result = audit(pairs, cluster="site").counterfactual(
        FORMULA, n_boot=20, bootstrap="cluster", seed=1
    )
    assert (cells_made[1].observed % 2 == 0).all()
    assert (result.boot.rows_per_replicate == 400).all()


# -- spread ---------------------------------------------------------------------------------------


def spread_against_influence(result):
    for metric in ("cfpr", "cfnr"):
        names = list(result.cohort.groups.names)
        sd = result.boot_draws[metric][names].std().to_numpy()
        yield sd / result.estimates_of(metric).se[: len(names)]


@pytest.mark.parametrize("n", [2000, 6000])
def test_group_bootstrap_has_the_spread_of_the_influence_functions(n):
    data = cfair.simulate_cohort(n, seed=5, design="unequal")
    a = cfair.Audit(
        data, outcome="y", score="score", cutoff=0.5, groups=["a1", "a2"], treatment="d"
    )
    result = a.counterfactual("d ~ a1 * a2 + s + x1 + x2", n_boot=400, seed=1)
    assert ("one Newton step" in result.boot.method) == (n >= module.EXACT_BELOW)
    for ratio in spread_against_influence(result):
        assert np.all(np.abs(ratio - 1) < 0.17)
        assert abs(ratio.mean() - 1) < 0.1


def test_cluster_bootstrap_has_the_spread_of_clustered_influence_functions():
    data = cfair.simulate_cohort(1500, seed=6, design="unequal")
    data["site"] = np.arange(1500) // 5
    data = data.loc[np.repeat(data.index, 2)].reset_index(drop=True)  # so that clusters matter
    a = cfair.Audit(
        data, outcome="y", score="score", cutoff=0.5, groups=["a1", "a2"], treatment="d",
        cluster="site",
    )  # fmt: skip
    result = a.counterfactual("d ~ a1 * a2 + s + x1", n_boot=400, bootstrap="cluster", seed=1)
    for ratio in spread_against_influence(result):
        assert np.all(np.abs(ratio - 1) < 0.2)


def test_one_pass_is_close_to_multinomial_refits():
    data = cfair.simulate_cohort(6000, seed=7, design="unequal")
    a = cfair.Audit(
        data, outcome="y", score="score", cutoff=0.5, groups=["a1", "a2"], treatment="d"
    )
    fast = a.counterfactual("d ~ a1 * a2 + s + x1 + x2", n_boot=400, seed=1)
    slow = a.counterfactual("d ~ a1 * a2 + s + x1 + x2", n_boot=150, seed=1, exact=True)
    for metric in ("cfpr", "cfnr"):
        names = list(fast.cohort.groups.names)
        x, y = fast.boot_draws[metric][names], slow.boot_draws[metric][names]
        assert np.all(np.abs(x.std() / y.std() - 1) < 0.28)
        assert np.all(np.abs(x.mean() - y.mean()) < 5 * y.std() / np.sqrt(100))


def test_one_pass_replicates_are_weighted_refits():
    # the same bytes, with the propensity refitted in full
    data = cfair.simulate_cohort(5200, seed=8, design="unequal")
    X = np.column_stack([np.ones(5200), data["x1"], data["x2"]])
    y, s, d = (data[c].to_numpy(dtype=int) for c in ("y", "s", "d"))
    g = np.unique((data["a1"] + data["a2"]).to_numpy(), return_inverse=True)[1]
    fit = fit_logistic(X, d)
    pi = np.clip(fit.fitted, 0.005, 0.995)
    rows = DesignRows(X)
    treatment = BinaryModel(d.astype(float), rows, (rows,), np.ones(5200, bool))
    models = CounterfactualModels(Rows(y, s, d, g, 4), "ipw", pi, treatment=treatment)
    added = ipw_contributions(y, s, d, g, TreatmentModel(pi, X, fit.fitted))
    plan = one_pass_plan(models, added)
    block = module.streams(1, 2, 10)[0]
    fast = one_pass(plan, block)
    rng = block.generator()
    weights = np.column_stack(
        [exchangeable_weights([(rng, 10)], rows.stop - rows.start) for rows, _ in plan.blocks]
    )
    slow = models.under_counts(plan.at.put_back(weights.astype(float)))
    np.testing.assert_allclose(fast.observed, slow.observed)
    np.testing.assert_allclose(fast.cells, slow.cells, rtol=0.02)
    assert np.abs(fast.cells / slow.cells - 1).mean() < 0.002


# -- hard samples ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [400, 5000])
def test_separation_stops_no_replicate(n, cells_made):
    t = table(n)
    t["old"] = (t["age"] > 1).astype(float)
    t.loc[t["age"] > 1, "d"] = 1
    result = audit(t).counterfactual("d ~ sex * race + s + old", n_boot=40, seed=1)
    assert np.isfinite(result.boot_draws[["cfpr", "cfnr"]].to_numpy()).mean() > 0.9
    for b, part in enumerate(cells_made[0].cells.sum(axis=(1, 2, 3))):
        assert 0.5 * n < part < 2 * n, f"replicate {b}: the weights add up to {part}"


def test_a_covariate_with_extreme_values_stops_no_replicate():
    t = table(400)
    t["income"] = np.exp(np.random.default_rng(1).normal(0, 4, 400))
    result = audit(t).counterfactual("d ~ sex + s + income", n_boot=40, n_perm=20, seed=1)
    assert np.isfinite(result.boot_draws["cfpr"]["F & White"]).all()


# -- intervals ------------------------------------------------------------------------------------


def interval(estimate, draws, kind, level=0.95):
    got = bootstrap_interval(np.array([estimate]), np.asarray(draws, float)[:, None], kind, level)
    return got.low[0], got.high[0], got.se[0], got.n_valid[0]


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_intervals_are_those_of_the_textbook(level):
    draws = np.random.default_rng(1).gamma(3, 0.05, 400)
    estimate, tails = 0.14, [(1 - level) / 2, (1 + level) / 2]
    lo, hi = np.quantile(draws, tails)
    assert interval(estimate, draws, "percentile", level)[:2] == pytest.approx((lo, hi))
    assert interval(estimate, draws, "basic", level)[:2] == pytest.approx(
        (2 * estimate - hi, 2 * estimate - lo)
    )
    sd = draws.std(ddof=1)
    z = stats.norm.ppf(tails[1])
    assert interval(estimate, draws, "normal", level)[:3] == pytest.approx(
        (estimate - z * sd, estimate + z * sd, sd)
    )
    z0 = stats.norm.ppf(np.mean(draws < estimate))
    wanted = [np.quantile(draws, stats.norm.cdf(2 * z0 + stats.norm.ppf(t))) for t in tails]
    assert interval(estimate, draws, "bc", level)[:2] == pytest.approx(tuple(wanted))


@pytest.mark.parametrize("kind", ["percentile", "bc", "normal", "basic"])
def test_undefined_replicates_are_left_out_and_counted(kind):
    draws = np.random.default_rng(2).normal(0.3, 0.1, 300)
    holes = np.insert(draws, np.arange(0, 300, 10), np.nan)
    assert interval(0.3, holes, kind) == pytest.approx(interval(0.3, draws, kind))
    assert interval(0.3, holes, kind)[3] == 300


@pytest.mark.parametrize("kind", ["percentile", "bc", "normal", "basic"])
def test_too_few_or_equal_replicates_have_no_interval(kind):
    some = np.full(200, np.nan)
    some[: MIN_VALID - 1] = np.random.default_rng(3).normal(size=MIN_VALID - 1)
    low, high, _, n = interval(0.3, some, kind)
    assert np.isnan([low, high]).all()
    assert n == MIN_VALID - 1
    assert np.isnan(interval(0.0, np.zeros(200), kind)[:2]).all()
    assert np.isnan(interval(0.1, np.full(200, 0.1), kind)[:2]).all()
    assert np.isnan(interval(np.nan, np.full(200, np.nan), kind)[:2]).all()


def test_an_unknown_interval_is_refused():
    with pytest.raises(ValueError, match="'percentile', 'bc', 'normal', 'basic'"):
        interval(0.1, np.zeros(50), "bca")


@pytest.mark.parametrize("n_boot", [1, 2, 5])
def test_a_handful_of_replicates_is_no_error(n_boot):
    result = audit(table()).counterfactual(FORMULA, n_boot=n_boot, seed=1)
    assert "bootstrap" in str(result)
    frame = result.bootstrap_intervals()
    assert (frame["n_valid"] == n_boot).all()
    if n_boot == 1:
        assert frame["ci_low"].isna().all()
        assert (frame["note"] != "").all()


def test_reasons_stand_beside_missing_intervals():
    t = table(400)
    rare = (t["sex"] == "M") & (t["race"] == "Other")
    t.loc[rare, ["y", "s"]] = [0, 0.1]  # no events, no positive call
    result = audit(t).counterfactual("d ~ sex + s", n_boot=100, seed=1)
    frame = result.bootstrap_intervals().set_index(["metric", "group"])
    assert frame.loc[("cfpr", "M & Other"), "note"] == "all replicates are equal"
    assert (
        frame.loc[("cfnr", "M & Other"), "note"] == "defined in 0 of 100 replicates, fewer than 40"
    )
    assert ((frame["note"] == "") == frame["ci_low"].notna()).all()
    assert (frame["note"] == "").sum() >= 6
    for kind in ("percentile", "bc", "normal", "basic"):
        rows = result.bootstrap_intervals(kind).set_index("group").loc["M & Other"]
        assert rows[["ci_low", "ci_high"]].isna().all(axis=None)


def test_faircfint_replicates_are_named_and_get_their_own_interval():
    result = audit(table()).counterfactual(FORMULA, n_boot=60, bootstrap="faircfint", seed=1)
    assert "faircfint" in str(result)
    basic = result.bootstrap_intervals("basic")
    cfpr = result.rates[result.rates["metric"] == "cfpr"]
    np.testing.assert_allclose(cfpr["boot_low"], basic["ci_low"][:6])
