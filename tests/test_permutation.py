"""The permutation null: shortcuts against full refits, given permutations against plain loops."""

from __future__ import annotations

import bad_inputs
import numpy as np
import plain
import pytest
from scipy import stats

import cfair
from cfair.inference import permutation
from cfair.inference.contributions import TreatmentModel
from cfair.inference.equality import logit_wald
from cfair.inference.influence import rate_covariance
from cfair.inference.label_sums import label_sums
from cfair.inference.moments import cell_moments
from cfair.inference.permutation import (
    FIXED,
    GROUP_SUMS,
    ONE_STEP,
    REFIT,
    permutation_null,
)
from cfair.inference.refit import CounterfactualModels
from cfair.inference.resampling import shuffled_labels
from cfair.inference.rows import Rows
from cfair.nuisance.binary import BinaryModel, DesignRows
from cfair.nuisance.logistic import fit_logistic

pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")


def table(n=300, seed=0):
    t = bad_inputs.cohort(n, seed)
    rng = np.random.default_rng(seed + 99)
    t["age"] = (t["age"] - 60) / 10
    t["age2"] = 2 * t["age"]
    t["visits"] = rng.integers(0, 3, n)
    t["chance"] = rng.uniform(0.1, 0.8, n)
    return t


def audit(t, groups=("sex", "race")):
    return cfair.Audit(t, outcome="y", score="s", cutoff=0.5, groups=list(groups), treatment="d")


def arrays(t):
    """y, s, d and group codes of sex x race, in the order of the labels."""
    code = (t["sex"] == "M").to_numpy() * 3 + t["race"].map({"Black": 0, "Other": 1, "White": 2})
    return (
        t["y"].to_numpy(),
        (t["s"] >= 0.5).to_numpy().astype(int),
        t["d"].to_numpy(),
        np.asarray(code, dtype=int),
    )


def columns(*values):
    return np.column_stack([np.asarray(v, dtype=float) for v in values])


# formula -> the design for a table whose attributes were permuted
FORMULAS = {
    "d ~ age + s": lambda t: columns(np.ones(len(t)), t["age"], t["s"]),
    "d ~ sex + age": lambda t: columns(np.ones(len(t)), t["sex"] == "M", t["age"]),
    "d ~ sex * race + s": lambda t: columns(
        np.ones(len(t)),
        *((t["sex"] == a) & (t["race"] == b) for a in "FM" for b in ("Black", "Other", "White")),
        t["s"],
    ),
    "d ~ sex * age + race": lambda t: columns(
        np.ones(len(t)), t["sex"] == "M", t["age"], (t["sex"] == "M") * t["age"],
        t["race"] == "Other", t["race"] == "White",
    ),
    "d ~ 0 + sex + age": lambda t: columns(t["sex"] == "F", t["sex"] == "M", t["age"]),
    "d ~ 0 + age": lambda t: columns(t["age"]),
    "d ~ 0 + sex:age": lambda t: columns((t["sex"] == "F") * t["age"], (t["sex"] == "M") * t["age"]),  # noqa: E501
    "d ~ age + sex:age": lambda t: columns(
        np.ones(len(t)), t["age"], (t["sex"] == "M") * t["age"]
    ),
    "d ~ 0 + age + I(1 * (sex == 'F'))": lambda t: columns(t["age"], t["sex"] == "F"),
    "d ~ age + age2 + sex": lambda t: columns(
        np.ones(len(t)), t["age"], t["age2"], t["sex"] == "M"
    ),
    "d ~ sex * age + sex * age2": lambda t: columns(
        np.ones(len(t)), t["sex"] == "M", t["age"], (t["sex"] == "M") * t["age"]
    ),
    "d ~ sex": lambda t: columns(np.ones(len(t)), t["sex"] == "M"),
}  # fmt: skip


def compare(result, expected):
    draws = result.null_draws
    names = list(result.cohort.groups.names)
    for m, metric in enumerate(("cfpr", "cfnr", "fpr", "fnr")):
        got = draws[metric][names].to_numpy()
        np.testing.assert_allclose(got, expected[:, :, m], atol=1e-10)
        if metric in ("cfpr", "cfnr"):
            summaries = np.array([plain.disparities(row) for row in expected[:, :, m]])
            got = draws[metric][["average", "maximum", "variance"]].to_numpy()
            np.testing.assert_allclose(got, summaries, atol=1e-10)


@pytest.mark.parametrize("formula", FORMULAS)
def test_given_permutations_equal_a_plain_loop(formula):
    t = table()
    y, s, d, g = arrays(t)
    rng = np.random.default_rng(5)
    given = np.array([rng.permutation(len(t)) for _ in range(4)])
    result = audit(t).counterfactual(formula, permutations=given)

    def design(rows):
        moved = t.copy()
        moved[["sex", "race"]] = t[["sex", "race"]].to_numpy()[rows]
        return FORMULAS[formula](moved)

    compare(result, plain.permutation_null(y, s, d, g, 6, given, design=design))


def test_given_permutations_with_known_probabilities_equal_a_plain_loop():
    t = table()
    y, s, d, g = arrays(t)
    rng = np.random.default_rng(6)
    given = np.array([rng.permutation(len(t)) for _ in range(5)])
    result = audit(t).counterfactual("chance", permutations=given)
    pi = t["chance"].to_numpy()
    compare(result, plain.permutation_null(y, s, d, g, 6, given, pi=pi))


def test_given_permutations_with_truncation_equal_a_plain_loop():
    t = table()
    y, s, d, g = arrays(t)
    rng = np.random.default_rng(7)
    given = np.array([rng.permutation(len(t)) for _ in range(4)])
    limits = (0.3, 0.5)
    result = audit(t).counterfactual("d ~ sex + age", permutations=given, truncation=limits)

    def design(rows):
        return columns(np.ones(len(t)), t["sex"].to_numpy()[rows] == "M", t["age"])

    compare(result, plain.permutation_null(y, s, d, g, 6, given, design=design, truncation=limits))


def test_the_identity_gives_back_the_estimates():
    t = table()
    result = audit(t).counterfactual("d ~ sex * race + age", permutations=np.arange(300)[None, :])
    for metric in ("cfpr", "cfnr", "fpr", "fnr"):
        seen = result.rates[result.rates["metric"] == metric]["estimate"].to_numpy()
        names = list(result.cohort.groups.names)
        np.testing.assert_allclose(result.null_draws[metric][names].to_numpy()[0], seen, atol=1e-10)
    for k in range(2):
        assert result.null.wald[0, k] == pytest.approx(result.equality_tests[k].wald, rel=1e-8)


# -- shortcuts ------------------------------------------------------------------------------------

SHORTCUTS = [
    ("d ~ age + s", FIXED),
    ("d ~ sex * race + age + s", GROUP_SUMS),
    ("d ~ sex + race + age", GROUP_SUMS),
    ("d ~ sex * age + race", ONE_STEP),
    ("d ~ 0 + sex + age", GROUP_SUMS),
    ("d ~ sex * age + sex * age2", ONE_STEP),
]


def errors(t, formula, n_perm=40, groups=("sex", "race"), **options):
    """Errors of a shortcut in standard deviations of the null, and the two results."""
    a = audit(t, groups)
    fast = a.counterfactual(formula, n_perm=n_perm, seed=3, **options)
    slow = a.counterfactual(formula, n_perm=n_perm, seed=3, exact=True, **options)
    x, y = fast.null_draws.to_numpy(), slow.null_draws.to_numpy()
    assert np.array_equal(np.isnan(x), np.isnan(y))
    sd = y.std(axis=0)
    some = sd > 0
    return np.abs(x - y)[:, some] / sd[some], fast, slow


@pytest.mark.parametrize(("formula", "method"), SHORTCUTS)
def test_shortcuts_are_close_to_the_full_refit(formula, method):
    error, fast, slow = errors(table(5000), formula)
    assert fast.null.method == method
    assert slow.null.method in (REFIT, method)
    assert error.mean() < 0.02
    assert error.max() < 0.2
    np.testing.assert_allclose(fast.null.wald, slow.null.wald, atol=0.3)
    for metric in ("fpr", "fnr"):
        np.testing.assert_array_equal(fast.null.rates[metric], slow.null.rates[metric])


def test_the_shortcut_holds_under_truncation():
    formula = "d ~ sex * race + age + s"
    error, _, _ = errors(table(5000), formula, truncation=(0.2, 0.6))
    assert error.mean() < 0.05
    # group sums do not cut anew, so that many cut rows ask for a pass over the rows
    many = audit(table(5000)).counterfactual(formula, n_perm=2, truncation=(0.2, 0.6))
    few = audit(table(5000)).counterfactual(formula, n_perm=2)
    assert (many.null.method, few.null.method) == (ONE_STEP, GROUP_SUMS)


@pytest.mark.parametrize(
    "formula", ["d ~ sex * race + age", "d ~ sex + race", "d ~ sex * race * age"]
)
def test_an_empty_intersection_stops_no_shortcut(formula):
    t = table(5000)
    t.loc[(t["sex"] == "M") & (t["race"] == "Other"), "race"] = "White"
    a = audit(t)
    fast = a.counterfactual(formula, n_perm=20, seed=3)
    slow = a.counterfactual(formula, n_perm=20, seed=3, exact=True)
    for metric in ("cfpr", "cfnr"):
        x, y = fast.null_draws[metric], slow.null_draws[metric]
        assert x["M & Other"].isna().all()
        assert np.nanmax(np.abs(x.to_numpy() - y.to_numpy()) / y.std().to_numpy()) < 0.25
    assert np.isfinite(fast.null.wald).all()


@pytest.mark.parametrize("n", [400, 5000])
@pytest.mark.parametrize("formula", ["d ~ s + old", "d ~ sex + s + old", "d ~ sex * s + old"])
def test_separation_by_a_covariate_stops_no_permutation(formula, n):
    t = table(n)
    t["old"] = (t["age"] > 1).astype(float)
    t.loc[t["age"] > 1, "d"] = 1
    a = audit(t)
    fast = a.counterfactual(formula, n_perm=15, seed=3)
    slow = a.counterfactual(formula, n_perm=15, seed=3, exact=True)
    x, y = fast.null_draws, slow.null_draws
    sd = y.std().to_numpy()
    error = np.abs(x.to_numpy() - y.to_numpy())[:, sd > 0] / sd[sd > 0]
    assert np.nanmean(error) < 0.05
    assert np.isfinite(fast.null.wald).all()
    np.testing.assert_allclose(fast.null.wald, slow.null.wald, rtol=0.1, atol=0.3)


def test_a_group_that_is_always_treated_stops_no_shortcut():
    t = table(5000)
    t.loc[(t["sex"] == "M") & (t["race"] == "Other"), "d"] = 1
    error, _, _ = errors(t, "d ~ sex * race + age + s")
    assert error.mean() < 0.02


# -- counts, labels, Wald -------------------------------------------------------------------------


@pytest.mark.parametrize("formula", ["d ~ age", "d ~ sex * race", "d ~ sex * age"])
@pytest.mark.parametrize("n", [300, 5000])
def test_every_permutation_keeps_rows_margins_and_group_sizes(formula, n, cells_made):
    t = table(n)
    y, s, _, g = arrays(t)
    audit(t).counterfactual(formula, n_perm=30, seed=1)
    null = cells_made[0]
    assert (null.observed.sum(axis=(1, 2, 3)) == n).all()
    assert (null.observed.sum(axis=(2, 3)) == np.bincount(g, minlength=6)).all()
    pooled = np.array([[np.sum((y == a) & (s == b)) for b in (0, 1)] for a in (0, 1)])
    assert (null.observed.sum(axis=1) == pooled).all()
    if formula == "d ~ age":
        first = null.cells.sum(axis=1)
        np.testing.assert_allclose(first, np.broadcast_to(first[0], first.shape), rtol=1e-10)


@pytest.mark.parametrize("truncation", [(0.0, 1.0), (0.3, 0.5)])
@pytest.mark.parametrize("known", [False, True])
def test_batched_wald_equals_a_full_computation_per_replicate(truncation, known):
    t = table(600)
    y, s, d, g = arrays(t)
    X = columns(np.ones(600), t["age"], t["s"])
    fit = fit_logistic(X, d)
    pi = np.clip(fit.fitted, *truncation)
    rows = DesignRows(X)
    fitted = BinaryModel(d.astype(float), rows, (rows,), np.ones(600, bool))
    model = TreatmentModel(pi) if known else TreatmentModel(pi, X, fit.fitted)
    rng = np.random.default_rng(8)
    given = np.array([rng.permutation(600) for _ in range(8)])
    models = CounterfactualModels(
        Rows(y, s, d, g, 6), "ipw", pi, treatment=None if known else fitted, truncation=truncation
    )
    null = permutation_null(models, n_perm=0, seed=0, permutations=given)
    for r, rows in enumerate(given):
        full = rate_covariance(cell_moments(y, s, d, g[rows], model, 6), np.eye(6))
        for m in range(2):
            at = slice(6 * m, 6 * m + 6)
            wald = logit_wald(full.estimate[at], full.covariance[at, at], full.kish[at])
            assert null.wald[r, m] == pytest.approx(float(wald), rel=1e-9)
            if ((full.estimate[at] > 0) & (full.estimate[at] < 1)).all():
                direct = plain.logit_wald(full.estimate[at], full.covariance[at, at])
                assert null.wald[r, m] == pytest.approx(direct, rel=1e-7)


def test_labels_are_uniform_over_all_arrangements():
    labels = np.array([0, 0, 1, 2], dtype=np.uint8)
    rng = np.random.default_rng(9)
    drawn = shuffled_labels(labels, 24_000, rng)
    assert (np.sort(drawn, axis=1) == labels).all()
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == 12
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_labels_of_every_group_survive_the_shuffle(dtype):
    labels = np.arange(min(np.iinfo(dtype).max, 3000) + 1).astype(dtype)
    drawn = shuffled_labels(labels, 3, np.random.default_rng(10))
    assert drawn.dtype == dtype
    assert (np.sort(drawn, axis=1) == labels).all()


@pytest.mark.parametrize("n_groups", [2, 16, 17, 300])
@pytest.mark.parametrize("width", [1, 3])
def test_sums_by_label_equal_loops(n_groups, width):
    rng = np.random.default_rng(11)
    n, bounds = 500, np.array([0, 120, 120, 400, 500])
    labels = rng.integers(0, n_groups, (3, n)).astype(np.uint16 if n_groups > 256 else np.uint8)
    values = rng.normal(size=(n, width))
    got = label_sums(labels, values, bounds, n_groups)
    for r in range(3):
        for c in range(4):
            rows = np.arange(bounds[c], bounds[c + 1])
            for k in range(n_groups):
                expected = values[rows[labels[r, rows] == k]].sum(axis=0)
                np.testing.assert_allclose(got[r, c, k], expected, atol=1e-10)


# -- seeds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("formula", ["d ~ age", "d ~ sex * race", "d ~ sex * age"])
def test_fewer_permutations_are_the_first_of_more(formula):
    a = audit(table())
    few = a.counterfactual(formula, n_perm=30, seed=4).null_draws
    many = a.counterfactual(formula, n_perm=70, seed=4).null_draws
    np.testing.assert_allclose(few, many.iloc[:30], atol=1e-12)
    other = a.counterfactual(formula, n_perm=30, seed=5).null_draws
    assert not np.allclose(few, other)
    assert len(np.unique(many["cfpr"]["average"])) == 70


def test_more_groups_than_a_byte_can_number(cells_made):
    t = table(3000)
    t["site"] = np.arange(3000) % 300
    a = audit(t, ["site"])
    a.counterfactual("d ~ age", n_perm=4, seed=1)
    assert (cells_made[0].observed.sum(axis=(2, 3)) == 10).all()


def test_the_null_is_centred_on_equal_groups():
    t = table(2000)
    result = audit(t).counterfactual("d ~ age + s", n_perm=200, seed=1)
    draws = result.null_draws["fpr"][list(result.cohort.groups.names)].to_numpy()
    overall = result.overall.set_index("metric").loc["fpr", "estimate"]
    error = draws.std(axis=0) / np.sqrt(200)
    assert np.all(np.abs(draws.mean(axis=0) - overall) < 4 * error)


def test_exact_below_is_where_the_shortcut_begins():
    assert permutation.EXACT_BELOW == 5000
    assert audit(table(300)).counterfactual("d ~ sex", n_perm=1).null.method == REFIT
