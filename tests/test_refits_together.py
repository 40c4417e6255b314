"""Propensities that are refitted under many sets of labels at once are those of one at a time."""

from __future__ import annotations

from dataclasses import replace

import bad_inputs
import numpy as np
import pytest

import cfair
from cfair.inference import null_refits, permutation
from cfair.nuisance.logistic import fit_logistic
from cfair.nuisance.logistic_labelled import LabelledRows, fit_logistic_labelled

ROLES = {"outcome": "y", "score": "s", "cutoff": 0.5, "groups": ["sex", "race"]}
FORMULAS = [
    "d ~ sex * race + age + s",
    "d ~ sex + race + age + s",
    "d ~ 0 + sex + age",
    "d ~ sex * race",
    "d ~ sex:race + cr(age, df=4)",
    "d ~ sex + age + I(2 * age) + s",
]


def counterfactual(data, formula, roles=ROLES, **options):
    return cfair.Audit(data, **roles).counterfactual(formula, n_perm=60, seed=4, **options)


def one_by_one(monkeypatch, *args, **options):
    with monkeypatch.context() as patch:
        patch.setattr(permutation, "refits_together", lambda models: None)
        return counterfactual(*args, **options)


def engines(monkeypatch):
    """The engines that are made from here on."""
    made, make = [], null_refits.refits_together
    monkeypatch.setattr(
        permutation, "refits_together", lambda models: made.append(make(models)) or made[-1]
    )
    return made


def same_null(a, b):
    assert a.method == b.method
    assert a.not_converged == b.not_converged
    for metric, draws in a.rates.items():
        np.testing.assert_allclose(draws, b.rates[metric], atol=1e-12)
    np.testing.assert_allclose(a.wald, b.wald, rtol=1e-8, atol=1e-10)


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("formula", FORMULAS)
def test_the_null_is_that_of_single_fits(monkeypatch, formula, weighted):
    data = bad_inputs.cohort(400)
    data["a"] = np.random.default_rng(1).uniform(0.5, 3, len(data))
    roles = {**ROLES, "weights": "a"} if weighted else ROLES
    made = engines(monkeypatch)
    together = counterfactual(data, formula, roles)
    assert len(made) == 1
    assert made[0] is not None
    same_null(together.null, one_by_one(monkeypatch, data, formula, roles).null)


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
def test_truncated_rows_have_no_derivative(monkeypatch):
    data = bad_inputs.cohort(400)
    options = {"truncation": (0.3, 0.45)}
    made = engines(monkeypatch)
    together = counterfactual(data, FORMULAS[0], **options)
    assert made[0] is not None
    assert together.propensity.truncated.sum() > 50
    same_null(together.null, one_by_one(monkeypatch, data, FORMULAS[0], **options).null)


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
def test_separated_replicates_are_fitted_with_care(monkeypatch):
    data = bad_inputs.cohort(70)
    made = engines(monkeypatch)
    rest = []
    alone = permutation.CounterfactualModels.under_labels

    def counted(self, labels, **options):
        rest.append(len(labels))
        return alone(self, labels, **options)

    monkeypatch.setattr(permutation.CounterfactualModels, "under_labels", counted)
    together = counterfactual(data, "d ~ sex * race + age + s")
    assert made[0] is not None
    assert set(rest) == {1}
    assert 3 < len(rest) < 60
    same_null(together.null, one_by_one(monkeypatch, data, "d ~ sex * race + age + s").null)


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
@pytest.mark.parametrize(
    ("formula", "shift"), [("d ~ sex * age + race", 0), ("d ~ sex + age", 1e7)]
)
def test_what_takes_a_single_fit_gets_one(monkeypatch, formula, shift):
    data = bad_inputs.cohort(200)
    data["age"] += shift
    made = engines(monkeypatch)
    counterfactual(data, formula)
    assert made == [None]


@pytest.mark.parametrize("weighted", [False, True])
def test_fits_under_labels(weighted):
    rng = np.random.default_rng(5)
    n, K, R = 300, 4, 6
    fixed = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    by_group = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 1]], dtype=float)
    labels = np.array([rng.permutation(np.arange(n) % K) for _ in range(R)])
    d = (rng.random(n) < 0.4).astype(int)
    weights = rng.uniform(0.5, 2, n) if weighted else None
    rows = LabelledRows.of(fixed, by_group, labels)
    fits = fit_logistic_labelled(rows, d, weights, np.zeros(6))
    assert fits.proper.all()
    values = rng.normal(size=(R, n))
    for r in range(R):
        X = np.hstack([fixed, by_group[labels[r]]])
        fit = fit_logistic(X, d, weights=weights)
        np.testing.assert_allclose(fits.coef[r], fit.coef, atol=1e-10)
        np.testing.assert_allclose(fits.information[r], fit.information, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(rows.predictor(fits.coef)[r], X @ fits.coef[r], atol=1e-12)
        np.testing.assert_allclose(rows.totals(values)[r], values[r] @ X, atol=1e-11)
        np.testing.assert_allclose(
            rows.products(values)[r], (X * values[r][:, None]).T @ X, atol=1e-10
        )


def test_a_design_without_full_rank_is_not_proper():
    n = 40
    fixed = np.column_stack([np.ones(n), np.linspace(-1, 1, n)])
    by_group = np.array([[1.0, 0.0], [0.0, 1.0]])  # adds up to the constant
    labels = np.tile(np.arange(n) % 2, (3, 1))
    d = np.arange(n) % 3 == 0
    fits = fit_logistic_labelled(LabelledRows.of(fixed, by_group, labels), d, None, np.zeros(4))
    assert not fits.proper.any()


def rows_of_two_groups(d, x=None, R=3):
    n = len(d)
    fixed = np.column_stack([np.ones(n), np.linspace(-1, 1, n) if x is None else x])
    by_group = np.array([[0.0], [1.0]])
    return LabelledRows.of(fixed, by_group, np.tile(np.arange(n) % 2, (R, 1)))


def test_separated_fits_are_not_proper():
    d = np.arange(60) >= 30  # the covariate tells them apart
    assert not fit_logistic_labelled(rows_of_two_groups(d), d, None, np.zeros(3)).proper.any()
    label = np.arange(60) % 2 == 1  # the group does
    assert not fit_logistic_labelled(
        rows_of_two_groups(label), label, None, np.zeros(3)
    ).proper.any()


@pytest.mark.parametrize("start", [40.0, 1e3, 1e200])
def test_a_start_far_out_is_not_taken_for_a_maximum(start):
    d = np.arange(60) % 3 == 0
    rows = rows_of_two_groups(d)
    fits = fit_logistic_labelled(rows, d, None, np.array([start, start, 0.0]))
    fit = fit_logistic(np.hstack([rows.fixed, rows.by_group[rows.labels[0]]]), d)
    good = np.abs(fits.coef - fit.coef).max(axis=1) < 1e-8
    np.testing.assert_array_equal(fits.proper, fits.proper & good)


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
def test_replicates_that_need_care_count_where_they_fail(monkeypatch):
    data = bad_inputs.cohort(70)
    alone = permutation.CounterfactualModels.under_labels

    def failing(self, labels, **options):
        return replace(alone(self, labels, **options), not_converged=len(labels))

    monkeypatch.setattr(permutation.CounterfactualModels, "under_labels", failing)
    null = counterfactual(data, "d ~ sex * race + age + s").null
    assert 3 < null.not_converged < 60


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
@pytest.mark.parametrize("options", [{"truncation": None}, {}])
def test_one_replicate_without_full_rank_leaves_the_others_alone(monkeypatch, options):
    data = bad_inputs.cohort(60, seed=7)
    data["age"] *= 1e5
    together = counterfactual(data, "d ~ sex * race + age + s", **options)
    single = one_by_one(monkeypatch, data, "d ~ sex * race + age + s", **options)
    same_null(together.null, single.null)


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
@pytest.mark.parametrize("formula", ["d ~ sex:race - 1 + age", "d ~ sex * race + age + s"])
def test_weights_over_decades_end_in_a_result(formula):
    for seed in range(6):
        data = bad_inputs.cohort(40, seed=seed)
        data["a"] = 10 ** np.random.default_rng(seed).uniform(0, 6, len(data))
        data["d"] = np.where(data.index % 7 == 0, data["d"], 0)
        counterfactual(data, formula, {**ROLES, "weights": "a"})


def test_large_data_are_not_fitted_together(monkeypatch):
    monkeypatch.setattr(null_refits, "BUDGET", 10)
    made = engines(monkeypatch)
    counterfactual(bad_inputs.cohort(200), "d ~ sex + race + age + s")
    assert made == [None]


@pytest.mark.parametrize("seed", [653, 702, 708, 888])
def test_a_step_of_which_no_part_helps_is_no_convergence(seed):
    # weights over decades: the step overshoots, and halving it twenty times is not enough
    rng = np.random.default_rng(seed)
    n = int(rng.integers(30, 90))
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2)), np.arange(n) % 2])
    d = (rng.random(n) < rng.choice([0.08, 0.4])).astype(int)
    weights = 10 ** rng.uniform(0, 6, n)
    start = np.append(fit_logistic(X[:, :3], d, weights=weights).coef, 0.0)
    fit = fit_logistic(X, d, weights=weights, start=start)
    assert not fit.converged or fit.separated.any() or fit.score_norm < 1e-6 * weights.sum()
