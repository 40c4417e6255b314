"""AIPW, small subgroups and the intervention on membership, against loops and recorded figures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import divide

from cfair.errors import DataError
from cfair.estimators import (
    SmallSubgroupSums,
    aipw_rates,
    aipw_scores,
    confusion_counts,
    disparities,
    group_intervention_rates,
    group_intervention_scores,
    ipw_rates,
    observed_rates,
    outcome_cells,
    rates_from_cells,
    small_subgroup_rates,
    small_subgroup_sums,
    youden_cutoff,
)

DATA = Path(__file__).parent / "data"
SIZES = [(1, 1), (7, 3), (60, 4), (400, 6)]  # rows, groups
SEEDS = st.integers(0, 2**32 - 1)
ESTIMATORS = ["aipw", "plug-in", "small", "single robust", "doubly robust"]
identity = settings(max_examples=40, deadline=None)


def same(a, b, tolerance=1e-12):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def draw(n, K, seed):
    """Rows of every argument, in a data frame so that rows can be shuffled and repeated."""
    rng = np.random.default_rng(seed)
    y, s, d = rng.integers(0, 2, (3, n))
    columns = {"y": y, "s": s, "d": d, "group": rng.integers(0, K, n)}
    for name in ("pi", "mu0", "mu0_s1", "mu0_s0"):
        columns[name] = rng.uniform(0.005, 0.995, n)
    columns["mu"] = rng.uniform(0.005, 0.995, (n, K))
    columns["scores"] = rng.uniform(0, 1, (n, K))
    columns["p_group"] = rng.dirichlet(np.ones(K), n) * 0.9 + 0.1 / K
    return columns, rng


def take(x, rows):
    return {name: values[rows] for name, values in x.items()}


def estimate(name, x, weights=None):
    """(2, K) array of cFPR and cFNR by one of the estimators."""
    K = x["mu"].shape[1]
    if name == "aipw":
        phi0 = aipw_scores(x["y"], x["d"], x["pi"], x["mu0"])
        rates = aipw_rates(x["s"], x["group"], phi0, K, weights)
    elif name == "plug-in":
        rates = aipw_rates(x["s"], x["group"], x["mu0"], K, weights)
    elif name == "small":
        rates = small_subgroup_rates(**small_arguments(x), weights=weights)
    elif name == "single robust":
        rates = group_intervention_rates(x["mu"], 0.5, x["scores"], weights=weights)
    else:
        rates = group_intervention_rates(
            x["mu"], 0.5, x["scores"], x["y"], x["group"], x["p_group"], weights
        )
    return np.array(rates)


def small_arguments(x):
    names = ("y", "s", "d", "group", "pi", "mu0", "mu0_s1", "mu0_s0", "p_group")
    return {name: x[name] for name in names}


# -- the formulas once more, by loops -------------------------------------------------------------


def plain_aipw(x, a):
    result = []
    for g in range(x["mu"].shape[1]):
        fp = negatives = fn = positives = 0.0
        for i in np.flatnonzero(x["group"] == g):
            w = (1 - x["d"][i]) / (1 - x["pi"][i])
            phi = w * (x["y"][i] - x["mu0"][i]) + x["mu0"][i]
            fp += a[i] * x["s"][i] * (1 - phi)
            negatives += a[i] * (1 - phi)
            fn += a[i] * (1 - x["s"][i]) * phi
            positives += a[i] * phi
        result.append((divide(fp, negatives), divide(fn, positives)))
    return np.array(result).T


def plain_plug_in(x, a):
    return plain_aipw(x | {"d": np.ones_like(x["d"])}, a)  # w = 0 leaves mu0


def plain_small(x, a):
    n, K = x["mu"].shape
    y, s, d, mu = x["y"], x["s"], x["d"], x["mu0"]
    w = [a[i] * (1 - d[i]) / (1 - x["pi"][i]) for i in range(n)]
    fpr = divide(
        sum(w[i] * s[i] * (1 - y[i]) for i in range(n)), sum(w[i] * (1 - y[i]) for i in range(n))
    )
    fnr = divide(
        sum(w[i] * (1 - s[i]) * y[i] for i in range(n)), sum(w[i] * y[i] for i in range(n))
    )
    result = []
    for g in range(K):
        member = [x["group"][i] == g for i in range(n)]
        flagged = [a[i] * (1 - x["mu0_s1"][i]) * s[i] for i in range(n)]
        cleared = [a[i] * x["mu0_s0"][i] * (1 - s[i]) for i in range(n)]
        none = [a[i] * (1 - mu[i]) for i in range(n)]
        event = [a[i] * mu[i] for i in range(n)]
        shares = [
            divide(sum(v * m for v, m in zip(amount, indicator, strict=True)), sum(amount))
            for amount, indicator in (
                (flagged, member),
                (none, x["p_group"][:, g]),
                (cleared, member),
                (event, x["p_group"][:, g]),
            )
        ]
        if not sum(a[i] for i in range(n) if member[i]):
            result.append((math.nan, math.nan))
            continue
        result.append((fpr * divide(*shares[:2]), fnr * divide(*shares[2:])))
    return np.array(result).T


def plain_intervention(x, a, doubly):
    n, K = x["mu"].shape
    result = []
    for g in range(K):

        def psi(i, U, m, g=g):
            return (x["group"][i] == g) / x["p_group"][i, g] * (U - m) + m if doubly else m

        sums = np.zeros(4)
        for i in range(n):
            S = int(x["scores"][i, g] >= 0.5)
            y, m = x["y"][i], x["mu"][i, g]
            sums[0] += a[i] * psi(i, S * (1 - y), S * (1 - m))
            sums[1] += a[i] * psi(i, 1 - y, 1 - m)
            sums[2] += a[i] * psi(i, (1 - S) * y, (1 - S) * m)
            sums[3] += a[i] * psi(i, y, m)
        result.append((divide(*sums[:2]), divide(*sums[2:])))
    return np.array(result).T


PLAIN = {
    "aipw": plain_aipw,
    "plug-in": plain_plug_in,
    "small": plain_small,
    "single robust": lambda x, a: plain_intervention(x, a, False),
    "doubly robust": lambda x, a: plain_intervention(x, a, True),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(("n", "K"), SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_rates_equal_the_formulas(name, n, K, seed):
    x, rng = draw(n, K, seed)
    # Sums that nearly cancel in a few rows lose digits on both sides.
    same(estimate(name, x), PLAIN[name](x, np.ones(n)), 1e-10)
    a = rng.uniform(0.1, 2, n)
    same(estimate(name, x, a), PLAIN[name](x, a), 1e-10)


# -- recorded figures -----------------------------------------------------------------------------

CASE = json.loads((DATA / "closed_form_case.json").read_text())


@pytest.fixture(scope="module")
def case():
    table = pd.read_csv(DATA / "closed_form_case.csv")
    names = CASE["groups"]
    x = {
        "y": table["Y"].to_numpy(),
        "group": pd.Categorical(table["A"], names).codes,
        "mu": table[[f"mu_{g}" for g in names]].to_numpy(),
        "p_group": table[[f"pi_{g}" for g in names]].to_numpy(),
    }
    assert len(table) == CASE["n"]
    assert x["group"].min() >= 0
    return x


@pytest.mark.parametrize("recorded", CASE["results"], ids=lambda r: str(r["tau"]))
@pytest.mark.parametrize("kind", ["sr", "dr"])
def test_recorded_intervention_rates_and_their_summaries(case, recorded, kind):
    given_too = {k: case[k] for k in ("y", "group", "p_group")} if kind == "dr" else {}
    rates = group_intervention_rates(case["mu"], recorded["tau"], **given_too)
    expected = recorded[kind]
    for rate, metric, sign in zip(rates, ("cfpr", "cfnr"), ("pos", "neg"), strict=True):
        same(rate, [expected[metric][g] for g in CASE["groups"]])
        average, maximum, variance = disparities(rate)
        same(average, expected["summaries"][f"avg_{sign}"])
        same(maximum, expected["summaries"][f"max_{sign}"])
        # The recorded variance has the number of pairs, 6, as its divisor; ours has 5.
        same(variance * 5 / 6, expected["summaries"][f"var_{sign}"])


@pytest.mark.parametrize("recorded", CASE["results"], ids=lambda r: str(r["tau"]))
def test_recorded_observed_rates_use_the_prediction_under_the_own_group(case, recorded):
    own = case["mu"][np.arange(CASE["n"]), case["group"]]
    counts = confusion_counts(case["y"], own >= recorded["tau"], case["group"], 4)
    for name in ("fpr", "fnr"):
        same(
            observed_rates(counts)[name],
            [recorded["sr"][f"{name}_obs"][g] for g in CASE["groups"]],
        )


def test_a_recorded_cutoff_is_a_score_and_counts_as_positive(case):
    tau = CASE["results"][2]["tau"]
    assert (case["mu"] == tau).any()
    at, above = (group_intervention_rates(case["mu"], t) for t in (tau, np.nextafter(tau, 1)))
    assert not np.allclose(at, above, atol=1e-4)


# -- identities of all five -----------------------------------------------------------------------


def stable(x):
    """Small factors of the residuals, so that no doubly robust denominator is all but 0."""
    x["pi"] = x["pi"] * 0.3
    x["p_group"] = np.clip(x["p_group"], 0.4, None)
    return x


@pytest.mark.parametrize("name", ESTIMATORS)
@identity
@given(seed=SEEDS, n=st.integers(1, 50), K=st.integers(1, 5), constant=st.floats(0.01, 100))
def test_equal_weights_are_no_weights(name, seed, n, K, constant):
    x = stable(draw(n, K, seed)[0])
    same(estimate(name, x), estimate(name, x, np.full(n, constant)), 1e-8)


@pytest.mark.parametrize("name", ESTIMATORS)
@identity
@given(seed=SEEDS, n=st.integers(1, 40), K=st.integers(1, 5))
def test_whole_weights_are_repeated_rows(name, seed, n, K):
    x, rng = draw(n, K, seed)
    a = rng.integers(0, 4, n)
    x = stable(x)
    same(estimate(name, x, a), estimate(name, take(x, np.repeat(np.arange(n), a))), 1e-8)


@pytest.mark.parametrize("name", ESTIMATORS)
@identity
@given(seed=SEEDS, n=st.integers(1, 50), K=st.integers(1, 5))
def test_the_order_of_the_rows_does_not_matter(name, seed, n, K):
    x, rng = draw(n, K, seed)
    x = stable(x)
    same(estimate(name, x), estimate(name, take(x, rng.permutation(n))), 1e-8)


@pytest.mark.parametrize("name", ESTIMATORS)
@identity
@given(seed=SEEDS, n=st.integers(1, 50), K=st.integers(1, 5))
def test_new_group_codes_permute_the_rates(name, seed, n, K):
    x, rng = draw(n, K, seed)
    x = stable(x)
    new = rng.permutation(K)
    renamed = x | {"group": new[x["group"]]}
    for columns in ("mu", "scores", "p_group"):
        renamed[columns] = x[columns][:, np.argsort(new)]
    same(estimate(name, x), estimate(name, renamed)[:, new], 1e-8)


@pytest.mark.parametrize("name", ESTIMATORS)
@identity
@given(seed=SEEDS, n=st.integers(1, 50), K=st.integers(1, 4))
def test_swapping_event_and_call_swaps_the_rates(name, seed, n, K):
    x = stable(draw(n, K, seed)[0])
    swapped = x | {key: 1 - x[key] for key in ("y", "s", "mu0", "mu", "scores")}
    swapped |= {"mu0_s0": 1 - x["mu0_s1"], "mu0_s1": 1 - x["mu0_s0"]}
    same(estimate(name, x)[::-1], estimate(name, swapped), 1e-8)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, bool, np.float64])
def test_types_of_the_arrays_do_not_matter(name, dtype):
    x, _ = draw(300, 100, 10)  # 200 cells do not fit into 8 bits
    cast = x | {key: x[key].astype(dtype) for key in ("y", "s", "d")}
    cast["group"] = x["group"].astype(np.int8)
    same(estimate(name, x), estimate(name, cast))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_argument_is_changed(name):
    x, _ = draw(50, 3, 11)
    before = {key: values.copy() for key, values in x.items()}
    estimate(name, x, np.linspace(0, 1, 50))
    for key, values in x.items():
        np.testing.assert_array_equal(values, before[key])


# -- AIPW -----------------------------------------------------------------------------------------


@identity
@given(SEEDS, st.integers(1, 60), st.integers(1, 5))
def test_without_treatment_and_with_certain_propensity_aipw_is_the_observed_rate(seed, n, K):
    x = draw(n, K, seed)[0]
    nobody = np.zeros(n, int)
    phi0 = aipw_scores(x["y"], nobody, np.zeros(n), x["mu0"])
    np.testing.assert_array_equal(phi0, x["y"])
    rates = observed_rates(confusion_counts(x["y"], x["s"], x["group"], K))
    same(aipw_rates(x["s"], x["group"], phi0, K), (rates["fpr"], rates["fnr"]))


@identity
@given(SEEDS, st.integers(1, 60))
def test_a_model_that_knows_the_outcome_needs_no_propensity(seed, n):
    x = draw(n, 1, seed)[0]
    outcome = x["y"].astype(float)
    phi0 = aipw_scores(x["y"], x["d"], x["pi"], outcome)
    np.testing.assert_array_equal(phi0, outcome)


@identity
@given(SEEDS, st.integers(1, 60))
def test_scores_of_the_treated_are_the_model(seed, n):
    x = draw(n, 1, seed)[0]
    treated = x["d"] == 1
    phi0 = aipw_scores(x["y"], x["d"], np.where(treated, 1.0, x["pi"]), x["mu0"])
    np.testing.assert_array_equal(phi0[treated], x["mu0"][treated])
    odds = x["pi"] / (1 - x["pi"])  # w - 1
    same((x["y"] + odds * (x["y"] - x["mu0"]))[~treated], phi0[~treated], 1e-10)


def test_aipw_without_a_model_differs_from_ipw_only_in_the_denominator_of_the_negatives():
    x, _ = draw(400, 3, 5)
    phi0 = aipw_scores(x["y"], x["d"], x["pi"], np.zeros(400))
    _, cfnr = aipw_rates(x["s"], x["group"], phi0, 3)
    same(cfnr, ipw_rates(x["y"], x["s"], x["d"], x["group"], x["pi"], 3)[1])


@pytest.mark.parametrize("wrong", [None, "pi", "mu0"])
def test_one_right_model_is_enough(wrong):
    n = 400_000
    rng = np.random.default_rng(1)
    u, s = rng.uniform(size=n), rng.integers(0, 2, n)
    mu0, pi = 0.2 + 0.3 * u + 0.2 * s, 0.1 + 0.4 * u + 0.3 * s
    y0 = rng.uniform(size=n) < mu0
    d = (rng.uniform(size=n) < pi).astype(int)
    y = np.where(d == 1, 0, y0).astype(int)
    group = np.zeros(n, int)
    truth = rates_from_cells(confusion_counts(y0.astype(int), s, group, 1))
    if wrong == "pi":
        pi = np.full(n, 0.3)
    if wrong == "mu0":
        mu0 = np.full(n, 0.3)
    estimates = aipw_rates(s, group, aipw_scores(y, d, pi, mu0), 1)
    same(estimates, truth, 0.005)
    if wrong == "mu0":  # the plug-in has nothing but the model
        assert abs(aipw_rates(s, group, mu0, 1)[1] - truth[1]) > 0.05
    if wrong == "pi":
        assert abs(ipw_rates(y, s, d, group, pi, 1)[1] - truth[1]) > 0.02


def test_cells_of_several_groups_add_up():
    x, rng = draw(200, 4, 6)
    a = rng.uniform(0, 2, 200)
    cells = outcome_cells(x["s"], x["group"], x["mu0"], 4, a)
    both = outcome_cells(x["s"], x["group"] // 2, x["mu0"], 2, a)
    same(cells.reshape(2, 2, 2, 2).sum(axis=1), both)
    same(cells.sum(), a.sum())


def test_cells_of_known_outcomes_are_counts():
    x, _ = draw(200, 4, 7)
    same(
        outcome_cells(x["s"], x["group"], x["y"].astype(float), 4),
        confusion_counts(x["y"], x["s"], x["group"], 4),
    )


def test_a_denominator_that_is_not_positive_gives_nan_and_other_rates_stay_as_they_are():
    s, group = np.array([1, 0, 0, 1, 1]), np.array([0, 0, 1, 2, 2])
    cfpr, cfnr = aipw_rates(s, group, np.array([-0.5, 0.25, 1.5, 0.5, -0.5]), 4)
    # sums of phi0: -0.25, 1.5, 0, none; of 1 - phi0: 2.25, -0.5, 2, none
    same(cfpr, [1.5 / 2.25, np.nan, 1.0, np.nan])
    same(cfnr, [np.nan, 1.0, np.nan, np.nan])
    outside = aipw_rates(np.array([1, 0]), np.array([0, 0]), np.array([-0.5, 0.75]), 1)
    same(np.ravel(outside), [1.5 / 1.75, 3.0])


# -- small subgroups ------------------------------------------------------------------------------


@identity
@given(SEEDS, st.integers(2, 60), st.integers(1, 5), st.floats(0.1, 0.9))
def test_constant_models_leave_the_shares_of_the_flagged_and_the_cleared(seed, n, K, constant):
    x = draw(n, K, seed)[0]
    sizes = np.bincount(x["group"], minlength=K)
    flagged = np.bincount(x["group"], weights=x["s"], minlength=K)
    x |= {key: np.full(n, constant) for key in ("mu0", "mu0_s1", "mu0_s0")}
    x["p_group"] = np.tile(sizes / n, (n, 1))
    overall = np.ravel(ipw_rates(x["y"], x["s"], x["d"], np.zeros(n, int), x["pi"], 1))
    with np.errstate(invalid="ignore", divide="ignore"):  # the selection rate, relative to all
        expected = (
            overall[0] * flagged / sizes / (flagged.sum() / n),
            overall[1] * (sizes - flagged) / sizes / (1 - flagged.sum() / n),
        )
    same(small_subgroup_rates(**small_arguments(x)), expected)


@identity
@given(SEEDS, st.integers(2, 60), st.integers(1, 5))
def test_certain_membership_and_models_that_know_y0_give_the_observed_rates(seed, n, K):
    x = draw(n, K, seed)[0]
    x |= {key: x["y"].astype(float) for key in ("mu0", "mu0_s1", "mu0_s0")}
    x |= {"d": np.zeros(n, int), "pi": np.zeros(n)}
    x["p_group"] = (x["group"][:, None] == np.arange(K)).astype(float)
    rates = observed_rates(confusion_counts(x["y"], x["s"], x["group"], K))
    got = small_subgroup_rates(**small_arguments(x))
    one_call = (("fpr", x["s"] * (1 - x["y"])), ("fnr", (1 - x["s"]) * x["y"]))
    for rate, (name, errors) in zip(got, one_call, strict=True):
        if errors.any():  # without an error anywhere the share is 0 / 0
            same(rate, rates[name])
        else:
            assert np.isnan(rate).all()


@identity
@given(SEEDS, st.integers(2, 60), st.integers(2, 5))
def test_unions_are_groups_with_added_probabilities(seed, n, K):
    x, rng = draw(n, K, seed)
    a = rng.uniform(0.1, 2, n)
    union = rng.integers(0, 2, K)
    membership = np.array([union == 0, union == 1]).astype(int)
    merged = x | {"group": union[x["group"]], "p_group": x["p_group"] @ membership.T}
    sums = small_subgroup_sums(**small_arguments(x), weights=a)
    same(sums.rates(membership), small_subgroup_rates(**small_arguments(merged), weights=a), 1e-10)
    same(sums.rates(np.eye(K)), sums.rates())


def test_all_groups_together_have_the_overall_rates_if_probabilities_add_up_to_one():
    x, _ = draw(200, 4, 8)
    sums = small_subgroup_sums(**small_arguments(x))
    same(sums.rates(np.ones((1, 4))), sums.overall[:, None])
    same(sums.numerator.sum(axis=1), 1)
    x["p_group"] = x["p_group"] * 1.25  # taken as given
    enlarged = small_subgroup_sums(**small_arguments(x))
    same(enlarged.rates(np.ones((1, 4))), sums.overall[:, None] / 1.25)
    same(enlarged.rates(), np.array(sums.rates()) / 1.25)


def test_sums_of_replicates_can_be_stacked():
    draws = [small_subgroup_sums(**small_arguments(draw(80, 3, seed)[0])) for seed in range(4)]
    names = ("overall", "numerator", "denominator", "size")
    stack = SmallSubgroupSums(*(np.stack([getattr(one, k) for one in draws]) for k in names))
    for membership in (None, np.array([[1, 1, 0], [0, 1, 1]])):
        together = stack.rates(membership)
        for b, one in enumerate(draws):
            same([rate[b] for rate in together], one.rates(membership))


def test_a_group_without_rows_is_nan_whatever_its_probability_and_does_not_spoil_a_union():
    x, _ = draw(100, 3, 9)
    x["group"] = np.where(x["group"] == 1, 2, x["group"])
    sums = small_subgroup_sums(**small_arguments(x))
    for rate, union in zip(sums.rates(), sums.rates([[1, 1, 0], [0, 1, 0]]), strict=True):
        assert np.isnan(rate).tolist() == [False, True, False]
        assert np.isnan(union).tolist() == [False, True]


def test_a_group_that_is_never_flagged_has_a_rate_of_zero_and_no_flags_at_all_none():
    x, _ = draw(100, 3, 9)
    x["s"] = np.where(x["group"] == 1, 0, x["s"])
    cfpr, _ = small_subgroup_rates(**small_arguments(x))
    assert cfpr[1] == 0
    assert (cfpr[[0, 2]] > 0).all()
    for calls, undefined in ((0, 0), (1, 1)):
        rates = small_subgroup_rates(**small_arguments(x | {"s": np.full(100, calls)}))
        assert np.isnan(rates[undefined]).all()
        assert not np.isnan(rates[1 - undefined]).any()


def test_a_denominator_of_zero_is_nan():
    x, _ = draw(100, 3, 9)
    x["p_group"][:, 2] = 0.0
    for rate in small_subgroup_rates(**small_arguments(x)):
        assert np.isnan(rate).tolist() == [False, False, True]
    for rate, outcome in zip((0, 1), (1.0, 0.0), strict=True):  # nobody at risk of the error
        rates = small_subgroup_rates(**small_arguments(x | {"mu0": np.full(100, outcome)}))
        assert np.isnan(rates[rate]).all()


# -- intervention on membership -------------------------------------------------------------------


@identity
@given(SEEDS, st.integers(1, 60), st.integers(1, 5))
def test_scores_are_the_probabilities_by_default(seed, n, K):
    mu = draw(n, K, seed)[0]["mu"]
    same(group_intervention_rates(mu, 0.5), group_intervention_rates(mu, 0.5, scores=mu))
    flagged = mu >= 0.5
    same(
        group_intervention_rates(mu, 0.5)[0],
        [divide(((1 - mu)[flagged[:, g], g]).sum(), (1 - mu[:, g]).sum()) for g in range(K)],
    )


@identity
@given(SEEDS, st.integers(1, 60), st.integers(1, 5))
def test_a_model_that_knows_the_outcome_makes_both_forms_one(seed, n, K):
    x = draw(n, K, seed)[0]
    x["mu"] = np.tile(x["y"][:, None].astype(float), (1, K))
    same(estimate("single robust", x), estimate("doubly robust", x))
    for g in range(K):  # the observed rates of the score under g, over all rows
        counts = confusion_counts(x["y"], x["scores"][:, g] >= 0.5, np.zeros(n, int), 1)
        rates = observed_rates(counts)
        same(estimate("doubly robust", x)[:, g], [rates["fpr"][0], rates["fnr"][0]])


@identity
@given(SEEDS, st.integers(5, 60), st.integers(1, 4))
def test_stratum_means_make_both_forms_one(seed, n, K):
    """Mu the mean of Y, p_g the share of g, by group and call: residuals add up to 0."""
    x, rng = draw(n, K, seed)
    call = rng.integers(0, 2, n)
    x["scores"] = np.tile(call[:, None].astype(float), (1, K))
    for g in range(K):
        for j in (0, 1):
            stratum = call == j
            members = stratum & (x["group"] == g)
            share = members.sum() / max(stratum.sum(), 1)
            x["p_group"][stratum, g] = share if share else 1.0
            x["mu"][stratum, g] = x["y"][members].mean() if share else 0.5
    same(estimate("single robust", x), estimate("doubly robust", x), 1e-9)


@identity
@given(SEEDS, st.integers(1, 60))
def test_certain_membership_leaves_the_observed_rates(seed, n):
    x = draw(n, 1, seed)[0]
    x["p_group"] = np.ones((n, 1))
    counts = confusion_counts(x["y"], x["scores"][:, 0] >= 0.5, np.zeros(n, int), 1)
    rates = observed_rates(counts)
    same(estimate("doubly robust", x), [rates["fpr"], rates["fnr"]])


def test_doubly_robust_scores_change_only_the_own_group():
    x, _ = draw(100, 4, 12)
    psi = group_intervention_scores(x["mu"], x["y"], x["group"], x["p_group"])
    own = x["group"][:, None] == np.arange(4)
    np.testing.assert_array_equal(psi[~own], x["mu"][~own])
    same(psi[own], ((x["y"] - x["mu"][own]) / x["p_group"][own]) + x["mu"][own], 1e-10)


@pytest.mark.parametrize(
    ("given_names", "message"),
    [
        (("y",), "group and p_group missing"),
        (("y", "group"), "p_group missing"),
        (("y", "p_group"), "group missing"),
        (("group", "p_group"), "y missing"),
        (("p_group",), "y and group missing"),
    ],
)
def test_half_of_the_doubly_robust_arguments_is_an_error(given_names, message):
    x, _ = draw(20, 2, 13)
    with pytest.raises(ValueError, match=f": {message}"):
        group_intervention_rates(x["mu"], 0.5, **{name: x[name] for name in given_names})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": np.zeros((20, 1))}, r"scores the same shape: mu has \(20, 2\), scores \(20, 1"),
        ({"p_group": np.ones((20, 3))}, r"p_group \(20, 3\)"),
        ({"y": np.zeros(19, int)}, "y 19 and group 20 rows"),
        ({"p_group": np.zeros((20, 2))}, "own group in 20 of 20 rows"),
        ({"p_group": np.full((20, 2), np.nan)}, "own group in 20 of 20 rows"),
        (
            {"scores": np.where(np.arange(40).reshape(20, 2) == 7, np.nan, 0.5)},
            "scores is missing in 1 of 20 rows .the first: row 3.",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_an_error(change, message):
    x = draw(20, 2, 14)[0] | change
    with pytest.raises(DataError, match=message):
        estimate("doubly robust", x)


# -- Youden's cutoff ------------------------------------------------------------------------------


def plain_youden(y, score, a):
    best = None
    for t in sorted({r for r, w in zip(score, a, strict=True) if w > 0}):
        tp = sum(w for v, r, w in zip(y, score, a, strict=True) if v == 1 and r >= t)
        fp = sum(w for v, r, w in zip(y, score, a, strict=True) if v == 0 and r >= t)
        index = tp / sum(a[y == 1]) - fp / sum(a[y == 0])
        if best is None or index > best[0] + 1e-12:
            best = index, t
    return best[1]


def draw_scores(seed, n):
    rng = np.random.default_rng(seed)
    y = np.concatenate([[0, 1], rng.integers(0, 2, n)])
    return y, rng.integers(0, 8, n + 2) / 8, rng  # ties


@settings(max_examples=80, deadline=None)
@given(SEEDS, st.integers(0, 40))
def test_youden_equals_a_search_in_any_order_and_with_weights(seed, n):
    y, score, rng = draw_scores(seed, n)
    a = rng.integers(0, 3, n + 2).astype(float)
    a[:2] = 1
    order = rng.permutation(n + 2)
    assert youden_cutoff(y, score) == plain_youden(y, score, np.ones(n + 2))
    cutoff = youden_cutoff(y, score, a)
    assert cutoff == plain_youden(y, score, a)
    assert cutoff == youden_cutoff(y[order], score[order], a[order] / 3)
    rows = np.repeat(np.arange(n + 2), a.astype(int))
    assert cutoff == youden_cutoff(y[rows], score[rows])


def test_youden_takes_the_smallest_of_equally_good_cutoffs():
    y = np.array([1, 0, 1, 0])
    assert youden_cutoff(y, np.array([0.2, 0.4, 0.6, 0.1])) == 0.2  # 0.6 has the same index
    assert youden_cutoff(y, np.full(4, 0.3)) == 0.3
    # A row of no weight is no row: 0.15 would flag the same rows as 0.2.
    ignored = np.array([0.15, 0.2, 0.1]), np.array([0, 1, 1])
    assert youden_cutoff(np.array([0, 1, 0]), *ignored) == 0.2


@pytest.mark.parametrize(
    ("y", "score", "weights", "message"),
    [
        ([0, 0], [0.1, 0.2], None, "no events among 2 rows"),
        ([1, 1], [0.1, 0.2], None, "no non-events among 2 rows"),
        ([0, 1], [0.1, 0.2], [1, 0], "no events among 1 rows"),
        ([], [], None, "no events among 0 rows"),
        ([0, 1, 0], [0.1, np.nan, np.nan], None, "score is missing in 2 of 3 rows .the first: row"),
    ],
)
def test_youden_without_two_outcomes_or_with_missing_scores_is_an_error(y, score, weights, message):
    weights = None if weights is None else np.array(weights, float)
    with pytest.raises(DataError, match=message):
        youden_cutoff(np.array(y, int), np.array(score, float), weights)
