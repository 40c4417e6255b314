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
from cfair.inference import (
    label_tables,
    null_outcome,
    null_sums,
    one_pass,
    permutation,
    resampling,
)
from cfair.inference.label_sums import label_sums
from cfair.inference.label_tables import Along, LabelTables, alike, like_rows
from cfair.inference.null_design import group_step
from cfair.inference.permutation import BY_TABLES, FIXED, GROUP_SUMS, REFIT_MODELS
from cfair.inference.resampling import shuffled_labels

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


# -- labels as tables of runs of like rows --------------------------------------------------------


def cells_of(*sizes, seed=1):
    """Two columns and the number that they follow, in cells of unlike rows."""
    rng = np.random.default_rng(seed)
    for size in sizes:
        x = np.sort(np.exp(rng.standard_normal(size)))
        yield like_rows([np.ones(size), x, np.log1p(x)], [Along(5, (x,))])


def test_runs_hold_all_rows_of_a_cell_and_are_short_where_values_are_far_apart():
    x = np.sort(np.random.default_rng(3).lognormal(0, 1.5, 4000))
    runs = like_rows([np.ones(4000), x, np.sqrt(x)], [Along(24, (x,))])
    assert runs.lengths.sum() == 4000
    assert len(runs.lengths) <= 24
    np.testing.assert_allclose(runs.lengths @ runs.means[:, 1], x.sum())
    assert runs.lengths[:3].min() > 20 * runs.lengths[-3:].max()
    assert runs.lengths.max() <= 4000 / 12 + 1
    # what is left off the line in each run is small, and is what it says
    assert runs.within < 0.03
    starts = np.cumsum(runs.lengths) - runs.lengths
    off = 0.0
    for first, length in zip(starts, runs.lengths, strict=True):
        own, root = x[first : first + length], np.sqrt(x[first : first + length])
        assert np.ptp(own) <= np.ptp(x) / 12
        if length > 2:
            off += np.linalg.lstsq(np.c_[np.ones(length), own], root, rcond=None)[1].sum()
    assert runs.lost == pytest.approx(off / (4000 * np.sqrt(x).var()), rel=1e-6)
    assert 0 < runs.lost < 1e-3


def test_two_numbers_by_which_rows_differ_make_runs_of_runs():
    rng = np.random.default_rng(4)
    x, y = np.sort(rng.random(3000)), rng.random(3000)
    both = like_rows([x, y, x * y, x - 3 * y], [Along(6, (x,)), Along(5, (y,))])
    assert both.lengths.sum() == 3000
    assert len(both.lengths) == 30
    assert both.slopes.shape == (2, 30, 4)
    np.testing.assert_allclose(
        both.lengths @ both.means, [x.sum(), y.sum(), x @ y, (x - 3 * y).sum()]
    )
    assert both.lost < 1e-3
    one = like_rows([x, y, x * y, x - 3 * y], [Along(30, (x,))])
    assert one.lost > 0.5
    assert not alike([both, one])


def test_slopes_of_a_run_give_its_covariance_where_columns_are_linear():
    rng = np.random.default_rng(7)
    x = np.sort(rng.random(60))
    y = x + 0.02 * rng.random(60)  # of which little is left beside the first
    runs = like_rows([x, y, x - 3 * y], [Along(4, (x,)), Along(3, (y,))])
    assert runs.lost < 1e-9
    order = np.argsort(x)  # runs along x, in each of which rows are sorted by y
    first = np.flatnonzero(np.diff(_quarter(x), prepend=-1))
    order = np.concatenate([part[np.argsort(y[part])] for part in np.split(order, first[1:])])
    start = 0
    for length, slopes in zip(runs.lengths, runs.slopes.transpose(1, 0, 2), strict=True):
        own = order[start : start + length]
        if length > 1:
            wanted = np.cov(np.array([x, y, x - 3 * y])[:, own])
            np.testing.assert_allclose(slopes.T @ slopes, wanted, atol=1e-12)
        start += length


def _quarter(x):
    way = np.arange(60) / 59 + (x - x[0]) / (x[-1] - x[0])
    return np.minimum((way * 2).astype(int), 3)


def test_sums_from_tables_have_the_moments_of_a_random_permutation():
    cells, sizes = tuple(cells_of(900, 0, 593, 7)), np.array([700, 500, 0, 300])
    R = 6000
    sums = LabelTables(cells, sizes).sums(R, np.random.default_rng(2))
    assert sums.shape == (R, 4, 4, 3)
    # no more and no less than there is, in every replicate
    totals = np.array([c.lengths @ c.means for c in cells])
    np.testing.assert_allclose(sums.sum(axis=2), np.broadcast_to(totals, (R, 4, 3)), rtol=1e-10)
    np.testing.assert_array_equal(sums[..., 0].sum(axis=1), np.broadcast_to(sizes, (R, 4)))
    assert not sums[:, 1].any()
    assert not sums[:, :, 2].any()
    # labels of a cell are hypergeometric
    for cell, n in ((0, 900), (2, 593), (3, 7)):
        for k in (0, 1, 3):
            law, count = stats.hypergeom(1500, sizes[k], n), sums[:, cell, k, 0]
            assert abs(count.mean() - law.mean()) < 5 * law.std() / np.sqrt(R)
            assert count.std() == pytest.approx(law.std(), rel=0.05)
    # mean and covariance of a label's sums over all columns and cells
    rows = []
    rng = np.random.default_rng(1)
    for place, size in enumerate((900, 0, 593, 7)):
        x = np.sort(np.exp(rng.standard_normal(size)))
        own = np.zeros((size, 4, 2))
        own[:, place, 0], own[:, place, 1] = 1, x
        rows.append(own.reshape(size, 8))
    columns = np.concatenate(rows)
    spread = np.cov(columns.T)
    wanted = np.kron(np.diag(sizes) - np.outer(sizes, sizes) / 1500, spread)
    found = sums[..., :2].transpose(0, 2, 1, 3).reshape(R, -1)
    scale = np.sqrt(np.outer(*(np.maximum(np.diag(wanted), 1e-9),) * 2))
    assert np.abs((np.cov(found.T) - wanted) / scale).max() < 5 / np.sqrt(R)
    means = np.kron(sizes / 1500, columns.sum(axis=0))
    error = np.sqrt(np.maximum(np.diag(wanted), 1e-18) / R)
    assert np.abs((found.mean(axis=0) - means) / error).max() < 5


def test_the_shape_of_sums_from_tables_is_that_of_permuted_rows():
    # few rows of a skewed column, much of which lies within runs
    x = np.sort(np.random.default_rng(5).lognormal(0, 1, 2000))
    cell = like_rows([np.ones(2000), x], [Along(4, (x,))])
    assert 0.02 < cell.within < 0.2
    sizes = np.array([30, 1970])
    rng = np.random.default_rng(6)
    fast = LabelTables((cell,), sizes).sums(20_000, rng)[:, 0, 0, 1]
    slow = np.array([x[rng.permutation(2000)[:30]].sum() for _ in range(20_000)])
    assert stats.ks_2samp(fast, slow).pvalue > 1e-3
    assert stats.skew(fast) == pytest.approx(stats.skew(slow), abs=0.1)


@pytest.mark.parametrize("sizes", [[12], [0, 12], [0, 0, 12], [5, 0, 7]])
@pytest.mark.parametrize("constant", [True, False])
def test_a_single_label_or_a_single_run_has_all_there_is(sizes, constant):
    x = np.full(12, 2.0) if constant else np.arange(12.0)
    cell = like_rows([np.ones(12), x], [] if constant else [Along(12, (x,))])
    assert len(cell.lengths) == (1 if constant else 12)
    sums = LabelTables((cell,), np.array(sizes)).sums(50, np.random.default_rng(1))[:, 0]
    assert (sums[..., 0] == sizes).all()
    np.testing.assert_allclose(sums[..., 1].sum(axis=1), x.sum())
    assert (sums[..., 1] >= 0).all()


def test_sums_of_what_is_positive_are_positive():
    x = np.sort(np.random.default_rng(8).lognormal(0, 1, 3000)) + 0.5
    cell = like_rows([np.ones(3000), x], [Along(24, (x, np.log(x)))])
    sums = LabelTables((cell,), np.array([1] * 50 + [2950])).sums(400, np.random.default_rng(2))
    assert (sums[..., 1] > 0.3 * sums[..., 0]).all()


@pytest.fixture
def tables(monkeypatch):
    """Turn tables on for small data, and note whether they were used."""
    found = []
    monkeypatch.setattr(null_sums, "_POOLED_FROM", 0)
    for name in ("tables_engine", "outcome_tables"):
        make = getattr(permutation, name)
        monkeypatch.setattr(
            permutation, name, lambda *given, make=make: found.append(make(*given)) or found[-1]
        )

    def use(wanted):
        monkeypatch.setattr(label_tables, "_FROM", 0 if wanted else 10**9)
        monkeypatch.setattr(label_tables, "_ROWS_A_GROUP", 0)
        found.clear()
        return found

    return use


MODELS = [
    ("d ~ age + s", {}),
    ("d ~ sex * race + age + s", {}),
    ("d ~ age + s", {"outcome_model": "y ~ age + s"}),
    ("d ~ sex * race + age + s", {"outcome_model": "y ~ sex + race + age"}),
    ("d ~ sex + s", {"outcome_model": "y ~ race + age + s", "estimator": "plugin"}),
]


@pytest.mark.parametrize(("formula", "options"), MODELS)
def test_labels_from_tables_give_the_null_of_labels_by_row(tables, formula, options):
    a = audit(table(6000))
    nulls = []
    for wanted in (False, True):
        found = tables(wanted)
        nulls.append(a.counterfactual(formula, n_perm=400, seed=3, **options))
        assert [engine is not None for engine in found] == [wanted]
    assert nulls[0].null.method + BY_TABLES == nulls[1].null.method
    assert "labels counted by runs of like rows" in " ".join(str(nulls[1]).split())
    names = list(nulls[0].cohort.groups.names)
    for metric in METRICS:
        x, y = (r.null_draws[metric][names].to_numpy() for r in nulls)
        assert not np.array_equal(x, y)
        error = np.sqrt((x.var(axis=0) + y.var(axis=0)) / 400)
        assert np.all(np.abs(x.mean(axis=0) - y.mean(axis=0)) < 4.5 * error)
        np.testing.assert_allclose(x.std(axis=0) / y.std(axis=0), 1, atol=0.2)
    for k in range(2):
        assert stats.ks_2samp(*(r.null.wald[:, k] for r in nulls)).pvalue > 1e-4


@pytest.mark.parametrize(("formula", "options"), MODELS)
def test_tables_depend_on_no_order_of_rows_and_no_number_of_workers(tables, formula, options):
    t = table(6000)
    draws = []
    for data, jobs in ((t, 1), (t, 2), (t.sample(frac=1, random_state=4), 1)):
        found = tables(True)
        draws.append(
            audit(data)
            .counterfactual(formula, n_perm=60, seed=2, n_jobs=jobs, **options)
            .null_draws
        )
        assert found[0] is not None
    np.testing.assert_array_equal(draws[0], draws[1])
    np.testing.assert_allclose(draws[0], draws[2], atol=1e-10)


def test_tables_are_read_as_the_labels_of_all_rows_are(monkeypatch):
    given = {}
    for name in ("tables_engine", "outcome_tables"):
        make = getattr(permutation, name)
        monkeypatch.setattr(
            permutation,
            name,
            lambda *a, name=name, make=make: given.update({name: a}) or make(*a),
        )
    monkeypatch.setattr(null_sums, "_POOLED_FROM", 0)
    monkeypatch.setattr(label_tables, "_FROM", 0)
    monkeypatch.setattr(label_tables, "_ROWS_A_GROUP", 0)
    a, rng = audit(table(6000)), np.random.default_rng(1)
    a.counterfactual("d ~ sex * race + age + s", n_perm=1)
    rows, rank, design, fit = given["tables_engine"]
    assert not np.array_equal(rank, np.arange(6))
    at = rows.canonical(fit.fitted)
    fast = null_sums.tables_engine(rows, rank, design, fit)
    slow = null_sums.sums_engine(rows, at, design, fit)
    labels = rng.permuted(np.tile(at.rows.group, (5, 1)), axis=1).astype(np.uint8)
    n0 = len(slow.untreated)
    sums = label_sums(labels[:, :n0], slow.untreated, slow.bounds[:5], 6)
    rest = label_sums(labels[:, n0:], slow.everyone[n0:], slow.bounds[4:] - n0, 6)
    one, other = fast.null.replicates(sums, rest), slow.replicates(labels)
    np.testing.assert_allclose(one.cells, other.cells, rtol=1e-12)
    np.testing.assert_allclose(one.wald, other.wald, rtol=1e-9)
    # the cells add up to the sums over all rows
    totals = sum(c.lengths @ c.means[:, :4] for c in fast.tables.cells)
    np.testing.assert_allclose(totals, slow.everyone.sum(axis=0), rtol=1e-10, atol=1e-8)
    a.counterfactual("d ~ sex * race + age + s", outcome_model="y ~ sex * race + age", n_perm=1)
    models, rank = given["outcome_tables"]
    fast = null_outcome.outcome_tables(models, rank)
    slow = null_outcome.outcome_sums(models, models.rows.canonical(*models.keys))
    for shift, wanted in ((fast.treatment, slow.treatment), (fast.outcome, slow.outcome)):
        np.testing.assert_array_equal(shift.basis, wanted.basis)
    for part, wanted in ((slice(0, 7), slow.everyone), (slice(7, 12), slow.untreated)):
        totals = sum(c.lengths @ c.means[:, part] for c in fast.tables.cells)
        np.testing.assert_allclose(totals, wanted.sum(axis=0), rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize(
    ("formula", "options", "of_rate", "of_wald"),
    [
        ("d ~ sex * race + age + s", {}, 0.01, 0.01),
        ("d ~ sex * race + age", {"outcome_model": "y ~ sex * race + age"}, 0.02, 0.15),
    ],
)
def test_group_sums_come_near_full_refits(formula, options, of_rate, of_wald):
    a = audit(table(6000))
    fast = a.counterfactual(formula, n_perm=100, seed=3, **options).null
    slow = a.counterfactual(formula, n_perm=100, seed=3, exact=True, **options).null
    assert "group sums" in fast.method
    assert "group sums" not in slow.method
    for metric in ("cfpr", "cfnr"):
        x, y = (null.rates[metric][:, :6] for null in (fast, slow))
        assert (np.abs(x - y) / y.std(axis=0)).mean() < of_rate
    assert np.abs(fast.wald - slow.wald).mean() < of_wald


def test_rows_that_differ_in_more_are_added_up_one_by_one(tables, monkeypatch):
    found = tables(True)
    t = table(6000)
    t["w"] = np.random.default_rng(1).uniform(1, 3, 6000)
    weighted = audit(t, weights="w")
    weighted.counterfactual("d ~ age + s", n_perm=1, seed=1)
    weighted.counterfactual("d ~ age + s", outcome_model="y ~ age", n_perm=1, seed=1)
    assert found == [None, None]
    perm = np.random.default_rng(2).permuted(np.tile(np.arange(6000), (2, 1)), axis=1)
    audit(t).counterfactual("d ~ age + s", permutations=perm)  # labels that are given are used
    for model in ({}, {"outcome_model": "y ~ age"}):
        audit(t).counterfactual("d ~ age + s", n_perm=1, seed=1, exact=True, **model)
    assert len(found) == 2
    # few rows a group: the labels of all rows take less time
    monkeypatch.setattr(label_tables, "_ROWS_A_GROUP", 2000)
    audit(t).counterfactual("d ~ age + s", n_perm=1, seed=1)
    assert found[2:] == [None]


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_labels_may_leave_a_tiny_group_without_untreated_rows(tables, monkeypatch, wanted, size):
    monkeypatch.setattr(permutation, "ENOUGH_INFORMATION", 0)
    t = table(6000)
    t["race"] = t["race"].astype(str)
    t.loc[t.index[:size], ["race", "d", "y"]] = ["Few", 0, 0]
    t.loc[t.index[0], "y"] = 1
    found = tables(wanted)
    r = audit(t).counterfactual("d ~ race + s", outcome_model="y ~ race + age", n_perm=60, seed=1)
    assert [engine is not None for engine in found] == [wanted]
    names = list(r.cohort.groups.names)
    large = [k for k, name in enumerate(names) if "Few" not in name]
    for metric in ("cfpr", "cfnr"):
        rates = r.null.rates[metric][:, large]
        assert ((rates > 0) & (rates < 1)).all()


def few_events(n=6000, few=60):
    """A group with hardly any untreated events."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=n)
    d = (rng.random(n) < 1 / (1 + np.exp(0.3 - 0.5 * x))).astype(int)
    y = (rng.random(n) < 1 / (1 + np.exp(3.5 - x + 0.5 * d))).astype(int)
    group = np.where(np.arange(n) < few, "few", rng.choice(["a", "b"], n))
    t = pd.DataFrame({"y": y, "d": d, "x": x, "group": group, "s": 1 / (1 + np.exp(0.5 - x))})
    t["h"], t["w"] = rng.choice(["p", "q"], n, p=[0.2, 0.8]), rng.exponential(size=n) * 3 + 0.1
    return t


def audit_of(t, groups="group", **options):
    return cfair.Audit(
        t, outcome="y", score="s", cutoff=0.5, groups=groups, treatment="d", **options
    )


@pytest.mark.parametrize("estimator", ["aipw", "plugin"])
def test_models_are_refitted_where_a_group_has_little_information(tables, estimator):
    t, found = few_events(), tables(True)
    models = {"outcome_model": "y ~ group + x", "estimator": estimator}
    a = audit_of(t)
    r = a.counterfactual("d ~ group + x", n_perm=40, n_boot=10, seed=1, **models)
    assert r.null.method == REFIT_MODELS
    assert "refitted" in r.boot.method
    assert found == []
    exact = a.counterfactual("d ~ group + x", n_perm=40, n_boot=10, seed=1, exact=True, **models)
    for metric in ("cfpr", "cfnr"):
        np.testing.assert_array_equal(r.null.rates[metric], exact.null.rates[metric])
        np.testing.assert_array_equal(r.boot.rates[metric], exact.boot.rates[metric])
    # enough events, or no coefficient of a group: one step does
    enough = audit_of(t.assign(group=np.where(t["group"] == "few", "a", t["group"])))
    free = {"outcome_model": "y ~ x", "estimator": estimator}
    for b, chosen in ((enough, models), (a, free)):
        r = b.counterfactual("d ~ x", n_perm=5, n_boot=5, seed=1, **chosen)
        assert r.null.method != REFIT_MODELS
        assert "one Newton step" in r.boot.method


@pytest.mark.parametrize("limit", [0, 10**9])
def test_weighted_rates_of_small_groups_stay_rates_in_every_replicate(monkeypatch, limit):
    monkeypatch.setattr(one_pass, "_ONE_SLOPE_FROM", limit)
    a = audit_of(few_events(few=20), ["group", "h"], weights="w")
    r = a.counterfactual("d ~ group * h + x + s", n_boot=400, seed=1)
    assert "one Newton step" in r.boot.method
    exact = a.counterfactual("d ~ group * h + x + s", n_boot=100, seed=1, exact=True)
    for metric in ("cfpr", "cfnr"):
        fast, slow = r.boot.rates[metric][:, :6], exact.boot.rates[metric][:, :6]
        assert not ((fast < 0) | (fast > 1)).any()
        fast, slow = (v[:, ~np.isnan(slow).all(axis=0)] for v in (fast, slow))
        spread = np.nanstd(slow, axis=0) > 0.01
        ratio = np.nanstd(fast, axis=0)[spread] / np.nanstd(slow, axis=0)[spread]
        assert ((ratio > 0.7) & (ratio < 1.45)).all()


def test_a_long_step_keeps_a_share_between_0_and_1():
    base = np.array([10.0, 10.0, 10.0, 10.0, 10.0, 0.0])
    mass, relative = np.array([1.0, 9.0, 1.0, -0.5, 4.0, 0.0]), np.array([-3, 3, 3, 2, 1e-6, 0.0])
    moved = one_pass._moved(mass, base, relative, split=True)
    assert ((moved[:3] > 0) & (moved[:3] <= 10)).all()
    assert moved[3] == pytest.approx(19.5)  # no share: left to its first order
    assert moved[4] == pytest.approx(4 + 1e-5, abs=1e-10)
    assert moved[5] == 0
    small = np.full(4, 1e-5)
    np.testing.assert_allclose(
        one_pass._moved(mass[:4], base[:4], small, split=True), mass[:4] + 1e-4, rtol=1e-6
    )
    weights = one_pass._moved(
        np.array([2.0, 2.0]), np.ones(2), np.array([-50.0, 1e-6]), split=False
    )
    np.testing.assert_allclose(weights, [0, 2 + 2e-6], atol=1e-10)


def test_a_step_that_nothing_asks_of_an_empty_group_is_the_least():
    basis = np.linalg.qr(np.eye(4) - 0.25)[0][:, :3]
    score, information = np.array([[3.0, -1.0, 0.5, 2.0]]), np.array([[10.0, 5.0, 0.0, 8.0]])
    step = group_step(basis, np.where(information > 0, score, 0.0), information)
    np.testing.assert_allclose(step[0, [0, 1, 3]], [0.3, -0.2, 0.25])
    assert abs(step[0, 2]) < 0.3
    full = group_step(basis, score, information + 1)
    np.testing.assert_allclose(full, score / (information + 1))


def test_a_replicate_without_rows_of_a_cell_adds_nothing_to_it(monkeypatch):
    t = table(6000)
    t["race"] = t["race"].astype(str)
    t.loc[t.index[:6], "race"] = "Few"
    undefined = []
    for limit in (10**9, 0):
        monkeypatch.setattr(one_pass, "_ONE_SLOPE_FROM", limit)
        r = audit(t).counterfactual("d ~ race + age + s", n_boot=200, seed=3)
        rates = np.hstack([r.boot.rates[m] for m in ("cfpr", "cfnr")])
        assert not ((rates < 0) | (rates > 1)).any()
        undefined.append(np.isnan(rates))
    assert undefined[0].any()
    np.testing.assert_array_equal(*undefined)


@pytest.mark.parametrize("formula", ["d ~ age + s", "d ~ sex * race + age + s"])
def test_derivatives_of_the_full_sample_stay_close_in_the_bootstrap(monkeypatch, formula):
    a = audit(table(6000))
    draws = []
    for limit in (10**9, 0):
        monkeypatch.setattr(one_pass, "_ONE_SLOPE_FROM", limit)
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
        monkeypatch.setattr(one_pass, "_TOGETHER", together)
        draws.append(a.counterfactual("d ~ age + s", n_boot=110, seed=3).boot.rates)
    for metric in METRICS:
        np.testing.assert_allclose(draws[0][metric], draws[1][metric], rtol=2e-5)
