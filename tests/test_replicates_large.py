"""The branches that only large data take, on small data; and replicates of clustered rows."""

from __future__ import annotations

import importlib
import itertools
from math import comb

import bad_inputs
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import cfair
from cfair.inference import bootstrap, null_sums, permutation, resampling
from cfair.inference import filling as filling_module
from cfair.inference.filling import Filling
from cfair.inference.permutation import FIXED, GROUP_SUMS
from cfair.inference.resampling import shuffled_labels, streams

pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")

METRICS = ("cfpr", "cfnr", "fpr", "fnr")


def table(n=900, seed=1):
    t = bad_inputs.cohort(n, seed)
    t["age"] = (t["age"] - 60) / 10
    t["site"] = np.random.default_rng(seed).integers(0, 12, n)
    return t


def audit(t, **options):
    return cfair.Audit(
        t, outcome="y", score="s", cutoff=0.5, groups=["sex", "race"], treatment="d", **options
    )


# -- labels by filling ----------------------------------------------------------------------------


@pytest.fixture
def filling(monkeypatch):
    monkeypatch.setattr(resampling, "_SORT_UP_TO", 0)


def labels_of(*sizes):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return labels.astype(np.uint8 if len(sizes) <= 256 else np.uint16)


SIZES = {
    "two halves": [300, 300],
    "one large, one small": [900, 20],
    "six": [40, 60, 100, 200, 300, 500],
    "an empty group": [200, 0, 300],
    "an empty group at the end": [200, 300, 0],
    "a single row": [1, 400],
    "one group": [77],
    "all that a byte can number": [8] * 256,
    "more than a byte can number": [5] * 300,
    "twelve rows": [3, 4, 5],
    "one row": [1],
}


@pytest.mark.parametrize("case", SIZES)
def test_filled_labels_have_the_right_counts(filling, case):
    labels = labels_of(*SIZES[case])
    drawn = shuffled_labels(labels, 40, np.random.default_rng(1))
    assert drawn.dtype == labels.dtype
    assert (np.sort(drawn, axis=1) == labels).all()
    if len(SIZES[case]) > 1:
        assert len(np.unique(drawn, axis=0)) > 20


def filled_from_table(sizes):
    """Share of the rows that get their label from a byte and not from the rest."""
    n, k = sum(sizes), np.array(sizes)
    aim = np.maximum(k - 5 * np.sqrt(k * (1 - k / n)), 0) / n
    return np.floor(256 * aim).sum() / 256


@pytest.mark.parametrize(
    ("sizes", "seed"), [([6, 6], 2), ([3, 4, 5], 3), ([300, 300], 4), ([150, 450, 600], 5)]
)
def test_every_row_is_as_likely_to_get_each_filled_label(filling, sizes, seed):
    labels, n, R = labels_of(*sizes), sum(sizes), 3000
    assert n == 12 or filled_from_table(sizes) > 0.5
    drawn = shuffled_labels(labels, R, np.random.default_rng(seed))
    for k, size in enumerate(sizes):
        p = size / n
        count = (drawn == k).sum(axis=0)
        # sampling without replacement: the rows' counts add up, so n - 1 degrees of freedom
        chi2 = ((count - R * p) ** 2).sum() / (R * p * (1 - p)) * (n - 1) / n
        assert 1e-4 < stats.chi2.sf(chi2, n - 1) < 1 - 1e-4


@pytest.mark.parametrize("sizes", [[6, 6], [150, 150], [300, 100, 200]])
def test_filled_labels_of_several_rows_are_those_of_a_draw_without_replacement(filling, sizes):
    labels, n, R = labels_of(*sizes), sum(sizes), 6000
    drawn = shuffled_labels(labels, R, np.random.default_rng(6))
    # neighbours share random numbers; rows 8 apart and the ends do not
    for rows in ([0, 1, 2], [0, 7, 8], [0, n // 2, n - 1]):
        observed, expected = [], []
        for pattern in itertools.product(range(len(sizes)), repeat=3):
            chance, left = 1.0, list(sizes)
            for step, k in enumerate(pattern):
                chance *= left[k] / (n - step)
                left[k] -= 1
            observed.append((drawn[:, rows] == pattern).all(axis=1).sum())
            expected.append(R * chance)
        assert stats.chisquare(observed, expected).pvalue > 1e-4
    # and the labels of the first half are hypergeometric
    half, size = n // 2, sizes[0]
    count = (drawn[:, :half] == 0).sum(axis=1)
    law = stats.hypergeom(n, size, half)
    assert abs(count.mean() - law.mean()) < 4 * law.std() / np.sqrt(R)
    assert count.std() == pytest.approx(law.std(), rel=0.04)


def test_filled_labels_of_few_rows_are_uniform_over_all_arrangements(filling):
    drawn = shuffled_labels(labels_of(2, 4), 6000, np.random.default_rng(7))
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == comb(6, 2)
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("formula", ["d ~ age + s", "d ~ sex * race + age + s"])
def test_filled_labels_give_the_null_of_sorted_ones(monkeypatch, formula):
    t = table(6000)
    a = audit(t)
    nulls = []
    for limit in (10**9, 0):
        monkeypatch.setattr(resampling, "_SORT_UP_TO", limit)
        nulls.append(a.counterfactual(formula, n_perm=400, seed=3))
    names = list(nulls[0].cohort.groups.names)
    for metric in METRICS:
        columns = [*names, "average", "maximum"] if metric in ("cfpr", "cfnr") else names
        x, y = (r.null_draws[metric][columns].to_numpy() for r in nulls)
        assert not np.array_equal(x, y)
        error = np.sqrt((x.var(axis=0) + y.var(axis=0)) / 400)
        assert np.all(np.abs(x.mean(axis=0) - y.mean(axis=0)) < 4.5 * error)
        np.testing.assert_allclose(x.std(axis=0) / y.std(axis=0), 1, atol=0.2)
    for k in range(2):
        x, y = (r.null.wald[:, k] for r in nulls)
        assert stats.ks_2samp(x, y).pvalue > 1e-4


def test_filled_labels_do_not_depend_on_the_order_of_the_rows(filling):
    t = table(1500)
    a = audit(t).counterfactual("d ~ age + s", n_perm=30, seed=2).null_draws
    shuffled = t.sample(frac=1, random_state=4)
    b = audit(shuffled).counterfactual("d ~ age + s", n_perm=30, seed=2).null_draws
    np.testing.assert_allclose(a, b, atol=1e-12)


# -- covariates pooled over the permuted labels ---------------------------------------------------


def holder_of(name):
    """The module that holds a constant of the permutation null."""
    for module in ("cfair.inference.null_sums", "cfair.inference.permutation"):
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        if hasattr(found, name):
            return found
    raise AssertionError(f"no module holds {name}")


@pytest.mark.parametrize(
    ("formula", "method"),
    [
        ("d ~ age + s", FIXED),
        ("d ~ sex + age + s", GROUP_SUMS),
        ("d ~ sex * race + age + s", GROUP_SUMS),
    ],
)
def test_pooled_covariates_change_the_wald_statistic_by_less_than_a_tenth(
    monkeypatch, formula, method
):
    a = audit(table(6000))
    module = holder_of("_POOLED_FROM")
    nulls = []
    for limit in (10**9, 0):
        monkeypatch.setattr(module, "_POOLED_FROM", limit)
        nulls.append(a.counterfactual(formula, n_perm=100, seed=5).null)
    exact, pooled = nulls
    assert exact.method == pooled.method == method
    for metric in ("cfpr", "cfnr"):
        np.testing.assert_allclose(pooled.rates[metric], exact.rates[metric], rtol=1e-12)
    for metric in ("fpr", "fnr"):
        np.testing.assert_array_equal(pooled.rates[metric], exact.rates[metric])
    assert not np.array_equal(pooled.wald, exact.wald)
    difference = np.abs(pooled.wald - exact.wald)
    assert difference.max() < 0.1
    assert difference.mean() < 0.02


@pytest.mark.parametrize("formula", ["d ~ age + s", "d ~ sex * race + age + s"])
def test_pooled_covariates_with_truncation_stay_close(monkeypatch, formula):
    a = audit(table(6000))
    module = holder_of("_POOLED_FROM")
    nulls = []
    for limit in (10**9, 0):
        monkeypatch.setattr(module, "_POOLED_FROM", limit)
        found = a.counterfactual(formula, n_perm=60, seed=5, truncation=(0.22, 0.6))
        nulls.append(found.null)
    for metric in ("cfpr", "cfnr"):
        np.testing.assert_allclose(nulls[1].rates[metric], nulls[0].rates[metric], rtol=1e-12)
    assert np.abs(nulls[1].wald - nulls[0].wald).max() < 0.1


# -- clusters -------------------------------------------------------------------------------------

FORMULA = "d ~ sex * race + age + s"


def test_clusters_are_drawn_where_there_are_clusters():
    t = table()
    clustered, free = audit(t, cluster="site"), audit(t)
    default = clustered.counterfactual(FORMULA, n_boot=40, seed=1)
    asked = clustered.counterfactual(FORMULA, n_boot=40, seed=1, bootstrap="cluster")
    rows = free.counterfactual(FORMULA, n_boot=40, seed=1)
    assert default.boot_kind == "cluster"
    assert default.boot.method == asked.boot.method
    assert "clusters" in default.boot.method
    pd.testing.assert_frame_equal(default.boot_draws, asked.boot_draws)
    # a draw of 12 clusters has the sum of their sizes
    sizes = t["site"].value_counts()
    drawn = default.boot.rows_per_replicate
    assert len(np.unique(drawn)) > 10
    assert np.all((drawn >= 12 * sizes.min()) & (drawn <= 12 * sizes.max()))
    assert rows.boot_kind == "group"
    assert (rows.boot.rows_per_replicate == len(t)).all()
    asked_free = free.counterfactual(FORMULA, n_boot=40, seed=1, bootstrap="group")
    pd.testing.assert_frame_equal(rows.boot_draws, asked_free.boot_draws)


@pytest.mark.parametrize("kind", ["group", "faircfint"])
def test_a_bootstrap_that_takes_clusters_apart_says_so(kind):
    t = table(400)
    said = f'bootstrap="{kind}" draws rows as if they were independent'
    apart = audit(t, cluster="site").counterfactual(FORMULA, n_boot=5, bootstrap=kind)
    assert sum(said in note for note in apart.notes) == 1
    assert "draws rows as if they were independent" in " ".join(str(apart).split())
    quiet = [
        audit(t, cluster="site").counterfactual(FORMULA, n_boot=5),
        audit(t, cluster="site").counterfactual(FORMULA, bootstrap=kind),
        audit(t).counterfactual(FORMULA, n_boot=5, bootstrap=kind),
    ]
    for result in quiet:
        assert not any("draws rows as if" in note for note in result.notes)


@pytest.mark.parametrize("formula", ["d ~ age + s", FORMULA])
def test_declaring_clusters_changes_no_permutation_p_value(formula):
    t = table()
    results = [
        a.counterfactual(formula, n_perm=99, seed=2)
        for a in (
            audit(t),
            audit(t, cluster="site"),
            audit(t.assign(one=range(900)), cluster="one"),
        )
    ]
    for metric in ("cfpr", "cfnr"):
        p = [r.studentized_p_value(metric) for r in results]
        assert p[0] == p[1] == p[2]
        assert 0.01 <= p[0] <= 1
    for name in ("p_value", "p_value_studentized", "u_value"):
        frames = [r.disparities[name].to_numpy() for r in results]
        np.testing.assert_array_equal(frames[0], frames[1])
    assert any("permutation null exchanges labels of rows" in note for note in results[1].notes)
    assert not any("permutation null" in note for note in results[0].notes)
    # while the test that knows the clusters does change
    wald = [r.test_equal()["wald"][0] for r in results[:2]]
    assert wald[0] != wald[1]


# -- labels counted by runs of rows ---------------------------------------------------------------


def test_counts_by_run_are_those_of_a_random_permutation(monkeypatch):
    monkeypatch.setattr(filling_module, "_RUNS", 16)
    monkeypatch.setattr(filling_module, "_ENDS", 3)
    sizes, bounds = np.array([700, 500, 0, 300]), np.array([0, 900, 900, 1493, 1500])
    runs = Filling(bounds)
    assert runs.lengths.sum() == 1500
    assert set(runs.lengths) > {1, 4}
    assert np.array_equal(np.r_[0, np.cumsum(runs.lengths)][runs.runs], bounds)
    rng = np.random.default_rng(2)
    drawn = np.array([runs.counts(sizes, rng) for _ in range(3000)])
    assert (drawn.sum(axis=2) == sizes).all()
    assert (drawn.sum(axis=1) == runs.lengths).all()
    # the mean, and the spread of every run and of runs together, are hypergeometric
    for some in (*np.eye(len(runs.lengths), dtype=bool), np.arange(len(runs.lengths)) % 3 == 1):
        count = drawn[:, :, some].sum(axis=2)
        for k in (0, 1, 3):
            law = stats.hypergeom(1500, sizes[k], runs.lengths[some].sum())
            assert abs(count[:, k].mean() - law.mean()) < 5 * law.std() / np.sqrt(3000)
            assert count[:, k].std() == pytest.approx(law.std(), rel=0.08)


@pytest.mark.parametrize("formula", ["d ~ age + s", "d ~ sex * race + age + s"])
def test_sums_by_run_are_sums_by_row(monkeypatch, formula):
    # the same labels, once as counts by run and once written out
    monkeypatch.setattr(null_sums, "_RUNS_FROM", 0)
    monkeypatch.setattr(null_sums, "_POOLED_FROM", 0)
    monkeypatch.setattr(filling_module, "_RUNS", 128)
    monkeypatch.setattr(filling_module, "_ENDS", 32)
    kept = {}

    class Kept(Filling):
        def counts(self, totals, rng):
            kept["counts"], kept["lengths"] = super().counts(totals, rng), self.lengths
            return kept["counts"]

    monkeypatch.setattr(null_sums, "Filling", Kept)
    monkeypatch.setattr(null_sums, "_LOST", 1e-3)
    found = []
    make = null_sums.run_sums
    monkeypatch.setattr(
        permutation, "run_sums", lambda *given: found.append((*given, make(*given))) or found[-1][2]
    )
    audit(table(8000)).counterfactual(formula, n_perm=1, seed=1)
    engine, rows, by_run = found[0]
    assert by_run is not None
    assert (kept["lengths"] > 1).any()
    fast = by_run.replicates(streams(3, 1, 1)[0])
    labels = np.concatenate([np.repeat(np.arange(6), c) for c in kept["counts"].T.astype(int)])
    if len(labels) < rows.n:  # without group columns the treated are counts by cell alone
        for cell in range(4):
            y, s = divmod(cell, 2)
            n = fast.observed[0, :, y, s].astype(int)
            own = labels[engine.bounds[cell] : engine.bounds[cell + 1]]
            labels = np.r_[labels, np.repeat(np.arange(6), n - np.bincount(own, minlength=6))]
    plain = engine.replicates(labels[None].astype(np.uint8))
    np.testing.assert_array_equal(fast.observed, plain.observed)
    sd = np.sqrt(plain.cells.sum(axis=(2, 3))[..., None, None])
    assert np.max(np.abs(fast.cells - plain.cells) / sd) < 0.05
    np.testing.assert_allclose(fast.wald, plain.wald, rtol=0.02)


@pytest.mark.parametrize("formula", ["d ~ age + s", "d ~ sex * race + age + s"])
def test_labels_by_run_give_the_null_of_labels_by_row(monkeypatch, formula):
    a = audit(table(6000))
    nulls = []
    monkeypatch.setattr(null_sums, "_POOLED_FROM", 0)
    monkeypatch.setattr(null_sums, "_LOST", 1e-3)
    for limit in (10**9, 0):
        monkeypatch.setattr(null_sums, "_RUNS_FROM", limit)
        nulls.append(a.counterfactual(formula, n_perm=400, seed=3))
    names = list(nulls[0].cohort.groups.names)
    for metric in METRICS:
        x, y = (r.null_draws[metric][names].to_numpy() for r in nulls)
        assert not np.array_equal(x, y)
        error = np.sqrt((x.var(axis=0) + y.var(axis=0)) / 400)
        assert np.all(np.abs(x.mean(axis=0) - y.mean(axis=0)) < 4.5 * error)
        np.testing.assert_allclose(x.std(axis=0) / y.std(axis=0), 1, atol=0.2)
    for k in range(2):
        assert stats.ks_2samp(*(r.null.wald[:, k] for r in nulls)).pvalue > 1e-4


def test_rows_that_differ_within_runs_are_added_up_one_by_one(monkeypatch):
    monkeypatch.setattr(null_sums, "_RUNS_FROM", 0)
    monkeypatch.setattr(null_sums, "_POOLED_FROM", 0)
    monkeypatch.setattr(filling_module, "_RUNS", 16)
    monkeypatch.setattr(filling_module, "_ENDS", 1)
    answers = []
    make = null_sums.run_sums
    monkeypatch.setattr(
        permutation, "run_sums", lambda *given: answers.append(make(*given)) or answers[-1]
    )
    audit(table(6000)).counterfactual("d ~ age + s", n_perm=1, seed=1)
    t = table(6000)
    t["w"] = np.random.default_rng(1).uniform(1, 3, 6000)
    audit(t, weights="w").counterfactual("d ~ age + s", n_perm=1, seed=1)
    assert answers == [None, None]


@pytest.mark.parametrize("formula", ["d ~ age + s", "d ~ sex * race + age + s"])
def test_derivatives_of_the_full_sample_stay_close_in_the_bootstrap(monkeypatch, formula):
    a = audit(table(6000))
    draws = []
    for limit in (10**9, 0):
        monkeypatch.setattr(bootstrap, "_ONE_SLOPE_FROM", limit)
        draws.append(a.counterfactual(formula, n_boot=100, seed=3).boot)
    for metric in ("cfpr", "cfnr"):
        x, y = (d.rates[metric] for d in draws)
        off = np.abs(x - y) / x.std(axis=0)
        assert 0 < off.mean() < 0.05
    for metric in ("fpr", "fnr"):
        np.testing.assert_array_equal(*(d.rates[metric] for d in draws))


def test_replicates_are_the_same_however_many_share_a_pass(monkeypatch):
    a = audit(table(6000))
    draws = []
    for together in (1, 4):
        monkeypatch.setattr(bootstrap, "_TOGETHER", together)
        draws.append(a.counterfactual("d ~ age + s", n_boot=110, seed=3).boot.rates)
    for metric in METRICS:
        np.testing.assert_allclose(draws[0][metric], draws[1][metric], rtol=2e-5)
