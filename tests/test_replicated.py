"""Results with replicates from any estimator: rates of groups only, no Wald, outside [0, 1]."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import dataclass

import bad_inputs
import numpy as np
import pandas as pd
import plain
import pytest
import scipy.stats

import cfair
from cfair.analyses.observed import targets
from cfair.errors import DataError
from cfair.estimators.ipw import rates_from_cells
from cfair.inference.drawn_estimates import DrawnEstimates
from cfair.inference.estimates import RateEstimates
from cfair.inference.influence import RateCovariance
from cfair.inference.replicates import RateDraws, draws_covariance, draws_from_cells
from cfair.results import text
from cfair.results.rates import MetricRows
from cfair.results.replicated import ReplicatedResult
from cfair.results.replicated_text import difference_lines, rate_tables, replicate_facts

pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")

FORMULA = "d ~ sex * race + age + s"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Plain(ReplicatedResult):
    def summary(self):
        blocks = [text.facts(replicate_facts(self)), *rate_tables(self), difference_lines(self)]
        return text.page(self.estimator, blocks)


def audit(groups=("sex", "race"), n=900):
    return cfair.Audit(
        bad_inputs.cohort(n, 1), outcome="y", score="s", cutoff=0.5, groups=list(groups),
        treatment="d",
    )  # fmt: skip


@pytest.fixture(scope="module")
def full():
    return audit().counterfactual(FORMULA, n_boot=60, n_perm=60, seed=1)


def groups_only(result, metrics=("cfpr", "cfnr"), shift=0.0, **changes):
    """The compared rates of a result for the groups alone, as some estimators have them."""
    K = result.cohort.groups.n_groups

    def cut(draws):
        rates = {m: draws.rates[m][:, :K] + shift for m in metrics}
        return dataclasses.replace(draws, rates=rates)

    at = [result.metrics.index(m) for m in metrics]
    T = len(result.estimates[0].estimate)
    entries = np.concatenate([k * T + np.arange(K) for k in at])
    joint = result.joint
    options = {
        "cohort": result.cohort,
        "estimates": tuple(
            RateEstimates(e.metric, K, e.estimate[:K] + shift, e.covariance[:K, :K], e.kish[:K])
            for e in (result.estimates[k] for k in at)
        ),
        "rows": tuple(
            MetricRows(r.label, r.denominator[:K], r.notes[:K])
            for r in (result.rows[k] for k in at)
        ),
        "counts": {name: values[:K].copy() for name, values in result.counts.items()},
        "estimator": "groups only",
        "joint": RateCovariance(
            joint.estimate[entries] + shift,
            joint.covariance[np.ix_(entries, entries)],
            joint.kish[entries],
            joint.rows[entries],
        ),
        "null": cut(result.null),
        "null_wald": result.null_wald,
        "boot": cut(result.boot),
        "boot_kind": "group",
    }
    return Plain(**(options | changes))


# -- replicates -----------------------------------------------------------------------------------


def test_draws_are_the_rates_of_summed_cells():
    cohort = audit().counterfactual(FORMULA).cohort
    cells = np.random.default_rng(0).uniform(0, 5, (7, 6, 2, 2))
    cells[2, 1] = 0
    membership = targets(cohort)
    draws = draws_from_cells(cells, membership, ("a", "b"))
    assert list(draws) == ["a", "b"]
    for r in range(7):
        for t, member in enumerate(membership):
            expected = rates_from_cells(cells[r][member == 1].sum(axis=0))
            for name, value in zip(("a", "b"), expected, strict=True):
                np.testing.assert_allclose(draws[name][r, t], value, rtol=1e-13)
    assert np.isnan(draws["a"][2, 1])
    only = draws_from_cells(cells, np.eye(6))
    np.testing.assert_array_equal(only["cfnr"], draws["b"][:, :6])
    with pytest.raises(ValueError, match="in their order"):
        draws_from_cells(cells, membership[::-1])


def thinned(seed=0, B=150, p=6):
    """Draws with a strong common part, of which many are lost, other ones in each column."""
    rng = np.random.default_rng(seed)
    values = 0.3 + 0.1 * rng.normal(size=(B, 1)) + 0.01 * rng.normal(size=(B, p))
    lost = rng.uniform(size=(B, p)) < 0.6
    return np.where(lost, np.nan, values + 0.1 * lost.sum(axis=1, keepdims=True))


def test_a_covariance_from_thinned_draws_is_positive_semidefinite_and_knows_no_order():
    indefinite = 0
    for seed in range(8):
        values = thinned(seed)
        found = draws_covariance(RateDraws({"a": values}, "m"), ["a"], np.full(6, 0.3))
        np.testing.assert_allclose(np.diag(found), np.nanvar(values, axis=0, ddof=1))
        assert np.linalg.eigvalsh(found)[0] > -1e-12
        pairwise = pd.DataFrame(values).cov().to_numpy()
        indefinite += np.linalg.eigvalsh(pairwise)[0] < -1e-6
        order = np.random.default_rng(seed).permutation(6)
        turned = RateDraws({"a": values[:, order]}, "m")
        other = draws_covariance(turned, ["a"], np.full(6, 0.3))
        np.testing.assert_allclose(other, found[np.ix_(order, order)], atol=1e-14)
    assert indefinite > 0


def test_a_covariance_that_is_positive_definite_counts_pairs_of_rates():
    values = np.random.default_rng(1).normal(size=(300, 4))
    values[:30, 0] = values[250:, 2] = np.nan
    found = draws_covariance(RateDraws({"a": values}, "m"), ["a"], np.full(4, 0.3))
    means = np.nanmean(values, axis=0)
    for i in range(4):
        for j in range(4):
            both = ~np.isnan(values[:, [i, j]]).any(axis=1)
            product = np.sum((values[both, i] - means[i]) * (values[both, j] - means[j]))
            assert found[i, j] == pytest.approx(product / (both.sum() - 1), rel=1e-12)
    values = values.copy()
    values[:, 3] = 0.5  # never moves
    found = draws_covariance(RateDraws({"a": values}, "m"), ["a"], np.full(4, 0.3))
    assert (found[3] == 0).all()


def estimates_from(draws, estimate, **options):
    K = len(estimate)
    return DrawnEstimates("a", K, estimate, np.cov(draws.T), np.full(K, 400.0), **options)


def test_equality_knows_that_its_covariance_comes_from_replicates():
    rng = np.random.default_rng(0)
    K, B = 5, 30
    estimate = 0.3 + 0.03 * np.arange(K)
    draws = estimate + 0.02 * rng.normal(size=(B, K))
    plain = estimates_from(draws, estimate).equality
    test = estimates_from(draws, estimate, n_replicates=B).equality
    assert test.wald == pytest.approx(plain.wald)
    assert test.df_denominator == 29 - 4 + 1
    expected = scipy.stats.f.sf(test.wald * 26 / (29 * 4), 4, 26)
    assert test.p_value == pytest.approx(expected)
    assert test.p_value > plain.p_value
    assert test.max_t_p_value > plain.max_t_p_value
    clusters = estimates_from(draws, estimate, n_replicates=B, n_clusters=12).equality
    assert clusters.df_denominator == 11 - 4 + 1
    fewest = estimates_from(draws, estimate, n_replicates=11, n_clusters=12).equality
    assert fewest.df_denominator == 10 - 4 + 1
    none = estimates_from(draws, estimate, n_replicates=5, n_clusters=12)
    assert np.isnan([none.equality.p_value, none.equality.max_t_p_value]).all()
    assert none.equality.note == "5 bootstrap replicates are too few to compare 5 groups"
    assert none.aggregates(0.95).low.tolist() == [0, 0, 0]
    pairs = np.array([0, 0, 1]), np.array([1, 2, 2])
    wide, narrow = (
        estimates_from(draws, estimate, n_replicates=n).simultaneous(*pairs, 0.95)
        for n in (20, None)
    )
    assert wide[0] != narrow[0]


@pytest.mark.parametrize("K", [6, 20])
def test_equality_from_replicates_holds_its_size(K):
    B, n = 60, 150
    rng = np.random.default_rng(K)
    root = np.linalg.cholesky(0.3 * 0.7 / 400 * (0.9 * np.eye(K) + 0.1))
    rejected = np.zeros(3)
    for _ in range(n):
        estimate = 0.3 + root @ rng.normal(size=K)
        draws = estimate + rng.normal(size=(B, K)) @ root.T
        test = estimates_from(draws, estimate, n_replicates=B).equality
        known = estimates_from(draws, estimate).equality
        rejected += [test.p_value < 0.05, test.max_t_p_value < 0.05, known.p_value < 0.05]
    assert (rejected[:2] < 0.1 * n).all(), rejected / n
    assert rejected[0] > 0.01 * n
    assert K == 6 or rejected[2] > 0.2 * n  # a covariance that is taken as known


def test_draws_count_replicates_and_refuse_arrays_of_other_lengths():
    rates = {"cfpr": np.array([[0.1, np.nan], [0.2, 0.3], [np.nan, np.nan]])}
    draws = RateDraws(rates, method="m", wald=np.zeros((3, 1)))
    assert draws.n_replicates == 3
    assert draws.n_valid("cfpr").tolist() == [2, 1]
    with pytest.raises(ValueError, match="read-only"):
        draws.rates["cfpr"][0, 0] = 1
    for wrong in ({}, {"cfpr": np.zeros(3)}):
        with pytest.raises(ValueError, match="for each metric"):
            RateDraws(wrong, method="m")
    with pytest.raises(ValueError, match="each replicate"):
        RateDraws(rates, method="m", wald=np.zeros((2, 1)))


# -- groups only ----------------------------------------------------------------------------------


def test_groups_only_give_the_same_groups(full):
    part = groups_only(full)
    assert part.compared == ("cfpr", "cfnr")
    assert not part.has_margins
    assert full.has_margins
    for name in ("rates", "disparities"):
        whole = getattr(full, name)
        same = whole[whole["metric"].isin(part.metrics)].reset_index(drop=True)
        pd.testing.assert_frame_equal(getattr(part, name), same)
    for name in ("null_draws", "boot_draws"):
        drawn = getattr(part, name)
        pd.testing.assert_frame_equal(drawn, getattr(full, name)[drawn.columns])
        assert drawn.shape == (60, 2 * (6 + 3))
    pd.testing.assert_frame_equal(part.covariance, full.covariance)
    pd.testing.assert_frame_equal(part.u_values(0.03), full.u_values(0.03))
    pd.testing.assert_frame_equal(part.bootstrap_intervals(), full.bootstrap_intervals())
    pd.testing.assert_frame_equal(part.contrasts(), full.contrasts())


def test_margins_of_groups_only_are_empty_frames_with_the_columns(full):
    part = groups_only(full)
    for name in ("marginals", "overall"):
        empty, whole = getattr(part, name), getattr(full, name)
        assert len(empty) == 0
        assert len(whole) > 0
        pd.testing.assert_series_equal(empty.dtypes, whole.dtypes)
    for ask in (lambda: part.contrasts(attribute="sex"), lambda: part.plot_rates(marginals=True)):
        with pytest.raises(DataError, match="cfpr, cfnr: only the intersectional groups"):
            ask()
    with pytest.raises(DataError, match="not an attribute"):
        part.contrasts(attribute="site")


def test_print_of_groups_only_has_no_margins(full):
    printed = str(groups_only(full))
    assert "single attributes" in str(full)
    assert "single attributes" not in printed
    rows = [line for line in printed.splitlines() if line.startswith(("F ", "M "))]
    assert len(rows) == 6
    estimate = full.estimates_of("cfpr").estimate[5]
    assert f"{estimate:.3f} [" in rows[5]
    one = audit(["race"]).counterfactual("d ~ race + s", n_boot=5, n_perm=5)
    assert any(line.startswith("all ") for line in str(one).splitlines())
    assert not any(line.startswith("all ") for line in str(groups_only(one)).splitlines())


def test_of_many_groups_the_farthest_from_their_mean_are_printed(full):
    t = bad_inputs.cohort(3000, 1)
    t["ward"] = [f"no{k % 50:02}" for k in range(3000)]
    a = cfair.Audit(t, outcome="y", score="s", cutoff=0.5, groups="ward", treatment="d")
    found = a.counterfactual("d ~ s", n_boot=5, n_perm=5)
    printed = str(groups_only(found))
    assert "10 of 50 groups not shown" in printed
    names = np.array(found.cohort.groups.names)
    distance = np.zeros(50)
    for metric in ("cfpr", "cfnr"):
        e = found.estimates_of(metric)
        mean = np.nansum(e.estimate[:50] * 60) / np.sum(60 * ~np.isnan(e.estimate[:50]))
        distance = np.fmax(distance, np.abs(e.estimate[:50] - mean) / e.se[:50])
    shown = {
        line.split()[0]
        for line in printed.splitlines()
        if line.startswith("no") and "..." not in line
    }
    assert shown == set(names[np.argsort(-distance)[:40]])


# -- permutations without standard errors ---------------------------------------------------------


def test_without_wald_there_is_no_studentized_p_value_and_a_note_says_so(full):
    null = dataclasses.replace(full.null, wald=None)
    bare = dataclasses.replace(full, null=null, null_wald=())
    frame = bare.disparities
    compared = frame["metric"].isin(["cfpr", "cfnr"])
    assert frame["p_value_studentized"].isna().all()
    assert frame.loc[compared, "note"].str.contains("no studentized p-value").all()
    assert not frame.loc[~compared, "note"].str.contains("studentized").any()
    assert np.isnan(bare.studentized_p_value("cfnr"))
    same = ["metric", "statistic", "estimate", "p_value", "u_value", "n_valid"]
    pd.testing.assert_frame_equal(frame[same], full.disparities[same])
    assert "p studentized" in str(full)
    assert "studentized" not in str(bare)
    with pytest.raises(ValueError, match="metric must be one of"):
        bare.studentized_p_value("fpr")


def test_observed_wald_statistics_must_match_those_of_the_permutations(full):
    with pytest.raises(ValueError, match="2 metrics are compared, but there are 0"):
        dataclasses.replace(full, null_wald=())


# -- other metrics, rates outside [0, 1] ----------------------------------------------------------


def test_any_metrics_can_be_compared(full):
    result = groups_only(
        full, ["cfnr"], null_wald=full.null_wald[1:],
        null=RateDraws(
            {"cfnr": full.null.rates["cfnr"][:, :6]}, method="labels exchanged",
            wald=full.null.wald[:, 1:].copy(), notes=("two models each",),
        ),
    )  # fmt: skip
    assert result.compared == ("cfnr",)
    assert result.covariance.shape == (6, 6)
    assert result.studentized_p_value("cfnr") == full.studentized_p_value("cfnr")
    null = full.null_draws["cfnr"]["maximum"].tolist()
    row = result.disparities.iloc[1]
    assert row["p_value"] == plain.permutation_p(row["estimate"], null)
    assert "cFNR: average difference" in result.plot_null().get_title(loc="left")
    assert "60 permutations of the labels (labels exchanged); two models each" in str(result)


@pytest.mark.parametrize("shift", [-0.6, 0.9])
def test_rates_outside_the_unit_interval_break_no_table(full, shift):
    result = groups_only(full, shift=shift)
    frame = result.rates
    estimate = frame["estimate"].to_numpy()
    assert ((estimate < 0) | (estimate > 1)).any()
    assert f"{estimate[0]:.3f} [" in str(result)
    # what replicates say does not depend on where the rates lie
    for name in ("average", "maximum", "variance"):
        expected, got = full.null_draws["cfpr"][name], result.null_draws["cfpr"][name]
        np.testing.assert_allclose(got, expected, atol=1e-12)
    expected = full.bootstrap_intervals("percentile")["ci_low"] + shift
    np.testing.assert_allclose(result.bootstrap_intervals("percentile")["ci_low"], expected)
    assert len(result.disparities) == 6
    assert len(result.contrasts()) == 30
    assert len(result.contrasts(kind="ratio")) == 30
    result.test_equal()


def test_results_survive_a_pickle(full):
    for result in (full, groups_only(full)):
        again = pickle.loads(pickle.dumps(result))
        assert str(again) == str(result)
        pd.testing.assert_frame_equal(again.boot_draws, result.boot_draws)
