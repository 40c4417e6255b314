"""Who is in which group: membership out of fold, what is borrowed, and external tables."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import cfair
from cfair.cohort import make_cohort
from cfair.errors import DataError, FormulaError, RankWarning, SeparationWarning
from cfair.nuisance.borrowing import brier_score, choose_alpha, hand_till_auc, mixed
from cfair.nuisance.crossfit import Folds, draw_folds
from cfair.nuisance.external import external_probabilities
from cfair.nuisance.external_request import read_external
from cfair.nuisance.membership import MembershipModel, cut, lower_limits, membership_model
from cfair.nuisance.request import read_model

LIMITS = (0.005, 0.995)


def sample(n=240, K=3, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    group = (rng.gumbel(size=(n, K)) + X[:, 1:2] * np.arange(K) * 0.7).argmax(axis=1)
    return X, group, Folds(np.arange(n) % 4, 4, drawn=True)


def model_of(X, group, folds, K=3, weights=None, **options):
    return MembershipModel(group, K, X, weights, folds, **options)


def by_statsmodels(X, group, folds, repeat=None):
    """Out of fold, one fold after the other, each row repeated so often in fitting."""
    repeat = np.ones(len(X), int) if repeat is None else repeat
    p = np.empty((len(X), len(np.unique(group))))
    for k in range(folds.n_folds):
        train = np.repeat(np.flatnonzero(folds.codes != k), repeat[folds.codes != k])
        fit = sm.MNLogit(group[train], X[train]).fit(method="newton", disp=0, tol=1e-12)
        p[folds.codes == k] = fit.predict(X[folds.codes == k])
    return p


# -- the model ------------------------------------------------------------------------------------


def test_out_of_fold_probabilities_are_those_of_statsmodels():
    X, group, folds = sample()
    raw = by_statsmodels(X, group, folds)
    limits = (0.1, 0.8)
    fit = model_of(X, group, folds, truncation=limits).fit()
    np.testing.assert_allclose(fit.raw, raw, atol=1e-9)
    inside = np.clip(raw, *limits)
    np.testing.assert_allclose(fit.p, inside / inside.sum(axis=1, keepdims=True), atol=1e-9)
    assert fit.n_truncated == np.count_nonzero((inside != raw).any(axis=1)) > 0
    assert fit.largest_change == pytest.approx(np.abs(fit.p - inside).max(), abs=1e-9)
    assert fit.converged
    as_r = model_of(X, group, folds, truncation=limits, renormalise=False).fit()
    np.testing.assert_allclose(as_r.p, inside, atol=1e-9)
    assert as_r.largest_change == 0.0


@pytest.mark.parametrize("source", ["counts", "weights"])
def test_whole_numbers_of_weight_are_repeated_rows(source):
    X, group, folds = sample(seed=1)
    times = np.random.default_rng(0).integers(0, 4, len(X))
    if source == "counts":
        fit = model_of(X, group, folds).fit(counts=times.astype(float))
    else:
        fit = model_of(X, group, folds, weights=times.astype(float)).fit()
    np.testing.assert_allclose(fit.raw, by_statsmodels(X, group, folds, times), atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_many_fits_are_single_fits(weighted):
    X, group, folds = sample(seed=2)
    rng = np.random.default_rng(1)
    model = model_of(X, group, folds, weights=rng.uniform(0.5, 2, len(X)) if weighted else None)
    counts = np.stack([np.bincount(rng.integers(0, 240, 240), minlength=240) for _ in range(4)])
    labels = np.stack([rng.permutation(group) for _ in range(4)])
    for name, rows in (("counts", counts.astype(float)), ("labels", labels)):
        p, converged = model.fit_many(**{name: rows})
        assert converged.all()
        for b in range(4):
            np.testing.assert_allclose(p[b], model.fit(**{name: rows[b]}).p, atol=1e-9)
    with pytest.raises(ValueError, match="counts or labels"):
        model.fit_many()


def test_a_replicate_is_the_fit_of_statsmodels_to_its_rows():
    """Steps with information of another place end no sooner than at the maximum."""
    X, group, folds = sample(900, K=4, seed=9)
    rng = np.random.default_rng(3)
    counts = np.stack([np.bincount(rng.integers(0, 900, 900), minlength=900) for _ in range(4)])
    p, converged = model_of(X, group, folds, K=4, truncation=(0, 1)).fit_many(
        counts=counts.astype(float)
    )
    assert converged.all()
    for b in range(4):
        expected = by_statsmodels(X, group, folds, counts[b])
        np.testing.assert_allclose(p[b], expected, atol=1e-9)


def test_what_is_to_be_said_of_fits_is_said_by_one_for_each_fold():
    """All folds at once only where each has a proper maximum."""
    X, group, folds = sample()
    model = model_of(X, group, folds)
    raw, converged, _ = model._logistic(group, None, True)
    np.testing.assert_allclose(model.fit().raw, raw.T, atol=1e-9)
    assert converged
    trait = (group == 2) & (folds.codes != 0)  # tells nothing for sure but outside fold 0
    trait[np.flatnonzero(folds.codes == 0)[::2]] = True
    with pytest.warns(SeparationWarning, match="outside 1 of 4 folds"):
        model_of(
            np.column_stack([X, trait]), group, folds, names=("Intercept", "age", "sbp", "mark")
        ).fit()


def test_a_group_that_a_replicate_has_only_in_one_fold_is_counted_and_gets_the_lower_limit():
    X, group, folds = sample(seed=3)
    counts = np.ones((2, len(X)))
    counts[0, (group == 2) & (folds.codes != 1)] = 0  # group 2 is left in fold 1 alone
    counts[1, group == 2] = 0  # and here nowhere
    model = model_of(X, group, folds)
    p, converged = model.fit_many(counts=counts)
    assert converged.tolist() == [False, True]
    held = folds.codes == 1
    lowest = LIMITS[0] / (1 + LIMITS[0])
    np.testing.assert_allclose(p[0, held, 2], lowest, rtol=1e-3)
    assert (p[1, :, 2] == 0).all()
    np.testing.assert_allclose(p.sum(axis=2), 1.0)


def test_a_rare_group_has_a_limit_of_its_own_in_replicates_too():
    X, group, folds = sample(600, K=3, seed=11)
    group[group == 2] = 0
    group[:6] = 2  # 1% of the rows
    weights = np.where(group == 2, 0.5, 1.0)
    assert lower_limits(0.005, group, 3, None).tolist() == [0.005, 0.005, 0.0025]
    lower = lower_limits(0.005, group, 3, weights)
    assert lower.tolist() == [0.005, 0.005, 0.25 * 3 / 597]
    assert lower_limits(0.001, group, 3, weights).tolist() == [0.001, 0.001, 0.001]
    model = model_of(X, group, folds, lower=lower, renormalise=False)
    fit = model.fit()
    assert fit.p.T.tolist() == np.clip(fit.raw.T, lower[:, None], 0.995).tolist()
    np.testing.assert_array_equal(fit.n_raised, np.count_nonzero(fit.raw < lower, axis=0))
    assert fit.n_raised[2] < np.count_nonzero(fit.raw[:, 2] < 0.005)
    counts = np.ones((2, 600))
    counts[1, :3] = 3.0  # a replicate in which the group has another share
    p, _ = model.fit_many(counts=counts)
    bare, _ = model_of(X, group, folds, truncation=(0, 1), renormalise=False).fit_many(counts)
    np.testing.assert_array_equal(p, np.clip(bare, lower, 0.995))


def test_a_crossing_without_rows_has_probability_0():
    X, group, folds = sample()
    fit = model_of(X, np.where(group == 2, 3, group), folds, K=4).fit()
    assert (fit.p[:, 2] == 0).all()
    np.testing.assert_allclose(fit.p[:, [0, 1, 3]], model_of(X, group, folds).fit().p, atol=1e-9)


def test_order_of_rows_and_groups_does_not_matter():
    X, group, folds = sample(seed=4)
    p = model_of(X, group, folds).fit().p
    order = np.random.default_rng(2).permutation(len(X))
    shuffled = model_of(X[order], group[order], Folds(folds.codes[order], 4, drawn=True)).fit().p
    np.testing.assert_allclose(shuffled, p[order], atol=1e-9)
    renamed = model_of(X, np.array([2, 0, 1])[group], folds).fit().p
    np.testing.assert_allclose(renamed[:, [2, 0, 1]], p, atol=1e-9)


def test_groups_too_small_for_out_of_fold_predictions_are_refused():
    X, group, folds = sample()
    lone = np.where(group == 2, 1, group)
    lone[7] = 2
    names = ("F & a", "F & b", "M & a")
    with pytest.raises(DataError, match=r"at least 2 rows.*'M & a' \(1\) has fewer"):
        model_of(X, lone, folds, group_names=names).fit()
    lone[11] = 2  # two rows of the same fold
    with pytest.raises(
        DataError, match=r"outside fold 4 have no row of class 'M & a' \(2 in all\)"
    ):
        model_of(X, lone, folds, group_names=names).fit()
    weights = np.where((group == 2) & (np.arange(240) > 6), 0.0, 1.0)
    kept = np.flatnonzero((group == 2) & (weights > 0))
    weights[kept[1:]] = 0
    with pytest.raises(DataError, match="at least 2 rows of weight above 0"):
        model_of(X, group, folds, weights=weights).fit()


def test_trouble_in_the_fits_is_said():
    X, group, folds = sample()
    doubled = np.column_stack([X, 2 * X[:, 1]])
    names = ("Intercept", "age", "sbp", "twice")
    with pytest.warns(RankWarning, match="left out.*outside 4 of 4 folds: twice"):
        fit = model_of(doubled, group, folds, names=names).fit()
    np.testing.assert_allclose(fit.p, model_of(X, group, folds).fit().p, atol=1e-8)
    assert len(fit.notes) == 1
    p, converged = model_of(doubled, group, folds, names=names).fit_many(labels=group[None])
    assert converged.all()
    np.testing.assert_allclose(p[0], fit.p, atol=1e-8)
    telling = np.column_stack([X, group == 2])
    names = ("Intercept", "age", "sbp", "mark")
    groups = ("one", "two", "three")
    with pytest.warns(SeparationWarning, match="mark all but tell who is in .*three"):
        fit = model_of(telling, group, folds, names=names, group_names=groups).fit()
    assert fit.p.max() <= LIMITS[1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_cut_probabilities_sum_to_1_and_absent_groups_stay_at_0(seed, renormalise):
    rng = np.random.default_rng(seed)
    raw = rng.dirichlet([0.2] * 4, size=5).T
    present = np.array([True, True, False, True])
    raw[2] = 0.0
    raw /= raw.sum(axis=0)
    p = cut(raw, present, LIMITS, renormalise)
    assert (p[2] == 0).all()
    if renormalise:
        np.testing.assert_allclose(p.sum(axis=0), 1.0)
        ratio = p[present] / np.clip(raw, *LIMITS)[present]
        np.testing.assert_allclose(ratio, np.broadcast_to(ratio[0], ratio.shape))
    else:
        np.testing.assert_array_equal(p[present], np.clip(raw, *LIMITS)[present])


@pytest.mark.parametrize("shift", [0.0, 25.0])
def test_passes_for_many_fits_are_those_for_each(shift):
    from cfair.nuisance.multinomial_sweep import (
        expected_and_information,
        expected_sums,
        full_sweep,
        observed_sums,
    )

    X, group, _ = sample(500, K=4, seed=6)
    rng = np.random.default_rng(0)
    code = np.stack([rng.permutation(group) for _ in range(3)]) - 1
    w = rng.integers(0, 3, (3, 500)).astype(float)
    beta = rng.normal(size=(3, 3, 2, 3))
    beta[:2, :, :, 0] += shift
    xt = np.ascontiguousarray(X.T)
    observed = observed_sums(xt, code, w, 3)
    expected, information = expected_and_information(xt, w, beta)
    np.testing.assert_allclose(expected_sums(xt, w, beta), expected, atol=1e-10)
    for g in range(2):
        _, score, alone = full_sweep(X, code, w, beta[:, :, g])
        np.testing.assert_allclose(observed - expected[:, :, g], score, atol=1e-10)
        np.testing.assert_allclose(information[:, g], alone, atol=1e-10)


# -- what a membership model may hold -------------------------------------------------------------


def audit_of(data, **roles):
    return cfair.Audit(
        data,
        outcome="died",
        treatment="treated",
        score="risk",
        cutoff=0.5,
        groups=["sex", "site"],
        **roles,
    )


def people(n=300, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "sex": rng.choice(["F", "M"], n),
            "site": rng.choice([1, 2, 3], n, p=[0.5, 0.3, 0.2]),
            "age": rng.normal(60, 10, n).round(1),
            "smoker": rng.choice(["no", "yes"], n),
            "risk": rng.uniform(size=n).round(3),
            "treated": rng.integers(0, 2, n),
            "died": rng.integers(0, 2, n),
        }
    )
    frame["sbp"] = (frame["site"] * 4 + frame["age"] + rng.normal(0, 9, n)).round(1)
    return frame


def built(text="~ age + sbp", data=None, folds=None, **roles):
    declared = audit_of(people() if data is None else data, **roles)._declared
    request = read_model(text, declared, what="membership")
    cohort = make_cohort(declared, request.columns)
    return membership_model(request, cohort, folds or draw_folds_of(cohort)), cohort


def draw_folds_of(cohort):
    return draw_folds(4, np.arange(cohort.n_used, dtype=np.uint64), strata=cohort.groups.codes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "~ age + sex",
            "'sex' is an attribute, and group membership cannot be explained",
        ),
        ("~ age + died", "'died' is the outcome, which comes after"),
        ("~ age + treated", "'treated' is the treatment, which comes after"),
        ("sex ~ age", "it has a left side, 'sex'. All attributes are modelled jointly"),
    ],
)
def test_columns_that_have_no_place_in_a_membership_model(text, message):
    with pytest.raises(FormulaError, match=message):
        built(text)


def test_a_formula_with_more_terms_than_rows_is_refused():
    data = people(12).assign(sex=["F", "M"] * 6, site=[1] * 12)
    with pytest.raises(DataError, match="membership formula has 14 terms"):
        built("~ bs(age, df=7) + cr(sbp, df=6)", data)


def test_the_built_model_has_the_design_of_the_formula():
    model, cohort = built("~ age * smoker")
    assert model.names == ("Intercept", "smoker[T.yes]", "age", "age:smoker[T.yes]")
    assert model.design.shape == (300, 4)
    assert model.group_names == cohort.groups.names
    assert model.fit().p.shape == (300, 6)


# -- learners -------------------------------------------------------------------------------------


def test_learners_predict_out_of_fold_and_thin_draws_are_counted():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    learner = cfair.Learner(LogisticRegression(C=1e8, max_iter=2000, tol=1e-10), ["age", "sbp"])
    standard = people()
    for column in ("age", "sbp"):
        standard[column] = (standard[column] - standard[column].mean()) / standard[column].std()
    model, _ = built(learner, standard)
    formula, _ = built("~ age + sbp", standard)
    assert model.design.shape[1] == 2
    np.testing.assert_allclose(model.fit().p, formula.fit().p, atol=1e-4)
    counts = np.ones((2, 300))
    counts[1] = 0
    counts[1, :30] = model.group[:30] == model.group[0]  # one group only: nothing to tell apart
    p, converged = model.fit_many(counts=counts)
    assert converged.tolist() == [True, False]
    assert np.isnan(p[1]).all()
    np.testing.assert_allclose(p[0], model.fit().p)


def test_a_learner_of_two_groups():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    X, group, folds = sample()
    two = np.minimum(group, 1)
    learned = model_of(X[:, 1:], two, folds, K=2, estimator=LogisticRegression(C=1e8)).fit()
    np.testing.assert_allclose(learned.p, model_of(X, two, folds, K=2).fit().p, atol=1e-3)


# -- how much to borrow ---------------------------------------------------------------------------


def two_models(seed, n=60, K=4):
    rng = np.random.default_rng(seed)
    group = np.append(np.arange(K), rng.integers(0, K, n - K))
    truth = np.eye(K)[group]
    external, internal = (
        0.6 * rng.dirichlet(np.ones(K), n) + 0.4 * rng.dirichlet(0.3 + 2 * truth.mean(0), n)
        for _ in range(2)
    )
    external = (external + rng.uniform(0, 0.4) * truth).round(2) + 0.01
    internal = (internal + rng.uniform(0, 0.4) * truth).round(2) + 0.01
    normal = [p / p.sum(axis=1, keepdims=True) for p in (external, internal)]
    return (*normal, group, rng.integers(0, 3, n))


def plain_auc(p, group):
    total = []
    for i, j in itertools.permutations(np.unique(group), 2):
        wins = [(a > b) + 0.5 * (a == b) for a in p[group == i, i] for b in p[group == j, i]]
        total.append(np.mean(wins))
    return np.mean(total)


def plain_brier(p, group):
    return np.mean(
        [sum((p[i, k] - (group[i] == k)) ** 2 for k in range(p.shape[1])) for i in range(len(p))]
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_criteria_are_what_they_are_called(seed):
    p, _, group, times = two_models(seed)
    times[:4] = 1
    repeated = np.repeat(np.arange(len(p)), times)
    for measure, plain in ((brier_score, plain_brier), (hand_till_auc, plain_auc)):
        assert measure(p, group) == pytest.approx(plain(p, group), abs=1e-12)
        expected = plain(p[repeated], group[repeated])
        assert measure(p, group, times.astype(float)) == pytest.approx(expected, abs=1e-12)


def test_the_search_by_auc_sorts_each_group_once_per_place(monkeypatch):
    external, internal, group, _ = two_models(1)
    calls = {"sorted": 0, "searched": 0}
    argsort, searchsorted = np.argsort, np.searchsorted

    def counted(name, function):
        def run(*args, **options):
            calls[name] += 1
            return function(*args, **options)

        return run

    monkeypatch.setattr(np, "argsort", counted("sorted", argsort))
    monkeypatch.setattr(np, "searchsorted", counted("searched", searchsorted))
    choose_alpha(external, internal, group, "auc")
    assert calls["sorted"] <= 4 * (21 + 30)
    assert calls["searched"] == 0  # rows one by one among the rows of a group, which took longer


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000))
def test_alpha_is_the_minimum_of_the_brier_score(seed):
    external, internal, group, times = two_models(seed)
    times[:4] = 1
    for weights in (None, times.astype(float)):
        alpha = choose_alpha(external, internal, group, "brier", weights)
        assert 0 <= alpha <= 1

        def lost(a, w=weights):
            return brier_score(mixed(a, external, internal), group, w)

        search = minimize_scalar(lost, bounds=(0, 1), method="bounded", options={"xatol": 1e-10})
        assert alpha == pytest.approx(search.x, abs=1e-5)
        assert lost(alpha) <= search.fun + 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_alpha_by_auc_is_at_least_as_good_as_a_grid_and_knows_no_order(seed):
    external, internal, group, _ = two_models(seed)

    def auc(a):
        return hand_till_auc(mixed(a, external, internal), group)

    alpha = choose_alpha(external, internal, group, "auc")
    assert auc(alpha) >= max(auc(a) for a in np.linspace(0, 1, 21)) - 1e-11
    assert auc(alpha) >= auc(choose_alpha(external, internal, group, "auc", as_r=True)) - 2e-2
    order = np.random.default_rng(seed).permutation(len(group))
    again = choose_alpha(external[order], internal[order], group[order], "auc")
    assert again == pytest.approx(alpha, abs=1e-9)


def test_alpha_where_there_is_nothing_to_choose():
    external, internal, group, _ = two_models(0)
    assert choose_alpha(internal, internal, group) == 0.0
    assert choose_alpha(external, internal, np.zeros(60, int), "auc") == 0.0
    assert np.isnan(hand_till_auc(internal, np.zeros(60, int)))
    lost = internal.copy()
    lost[3] = np.nan
    assert np.isnan(choose_alpha(external, lost, group))
    weights = np.ones(60)
    weights[3] = 0  # what has no weight does not count
    assert np.isfinite(choose_alpha(external, lost, group, "auc", weights))
    with pytest.raises(ValueError, match="borrow must be one of"):
        choose_alpha(external, internal, group, "accuracy")


# -- external tables ------------------------------------------------------------------------------


def outsiders(n=400, seed=9):
    return people(n, seed)[["sex", "site", "age", "sbp", "smoker"]]


def external_of(value, formula=None, scale="consistent", data=None, audit=None, **roles):
    declared = (audit or audit_of(people() if data is None else data, **roles))._declared
    membership = read_model("~ age + sbp", declared, what="membership")
    request = read_external(value, declared, membership, formula, scale)
    cohort = make_cohort(declared, (*membership.columns, *request.columns))
    return external_probabilities(request, cohort, declared, LIMITS), cohort


def by_hand(outside, columns, inside):
    group = outside["sex"].map({"F": 0, "M": 3}) + outside["site"] - 1
    X = sm.add_constant(outside[columns].to_numpy())
    fit = sm.MNLogit(group.to_numpy(), X).fit(method="newton", disp=0, tol=1e-12)
    return fit.predict(sm.add_constant(inside[columns].to_numpy()))


def test_an_external_model_predicts_here_what_it_learnt_there():
    found, _ = external_of(outsiders())
    np.testing.assert_allclose(found.raw, by_hand(outsiders(), ["age", "sbp"], people()), atol=1e-8)
    np.testing.assert_allclose(found.p.sum(axis=1), 1.0)
    assert found.sizes.sum() == 400
    assert found.text == "~ age + sbp"
    fewer, _ = external_of(outsiders(), "~ age")
    np.testing.assert_allclose(fewer.raw, by_hand(outsiders(), ["age"], people()), atol=1e-8)


def test_groups_are_matched_by_their_labels():
    outside = outsiders()
    found, _ = external_of(outside)
    turned = outside.assign(
        sex=pd.Categorical(outside["sex"], ["M", "F"]),
        site=outside["site"].astype(float).astype("category").cat.reorder_categories([3, 1, 2]),
    )
    np.testing.assert_allclose(external_of(turned)[0].p, found.p, atol=1e-10)
    as_text = outside.assign(site=outside["site"].astype(str))
    np.testing.assert_allclose(external_of(as_text)[0].p, found.p, atol=1e-10)


@pytest.mark.parametrize("library", ["polars", "pyarrow", "dict"])
def test_any_table_will_do(library):
    outside = outsiders()
    if library == "polars":
        table = pytest.importorskip("polars").DataFrame(outside.to_dict("list"))
    elif library == "pyarrow":
        table = pytest.importorskip("pyarrow").table(outside.to_dict("list"))
    else:
        table = outside.to_dict("list")
    np.testing.assert_allclose(external_of(table)[0].p, external_of(outside)[0].p, atol=1e-10)


def test_what_is_wrong_with_an_external_table_is_said():
    outside = outsiders()
    lacking = outside[(outside["sex"] == "F") | (outside["site"] != 3)]
    with pytest.raises(DataError, match=r"external has no rows of 'M & 3' \(\d+ rows here\)"):
        external_of(lacking)
    other = pd.concat([outside, outside.head(3).assign(sex="X")])
    with pytest.raises(DataError, match="external has groups that the audit has no rows of: 'X & "):
        external_of(other)
    without = people()[lambda t: (t["sex"] == "F") | (t["site"] != 3)]
    with pytest.raises(DataError, match=r"no rows of: 'M & 3' \(\d+ rows\)"):
        external_of(outside, data=without)
    with pytest.raises(DataError, match="external lacks the attribute 'site'"):
        external_of(outside.drop(columns="site"))
    with pytest.raises(DataError, match="no column 'sex', 'site'.* 300 rows of the table, not 400"):
        external_of(outside.drop(columns=["sex", "site"]))
    with pytest.raises(DataError, match="external lacks 'sbp'.*external_membership="):
        external_of(outside.drop(columns="sbp"))
    with pytest.raises(DataError, match="external has no rows"):
        external_of(outside.head(0))
    with pytest.raises(FormulaError, match="external membership formula.*'sex' is an attribute"):
        external_of(outside, "~ age + sex")
    one = outside.head(1).assign(sex="F", site=1)
    with pytest.raises(DataError, match="2 terms, but external has only 1 rows"):
        external_of(one, "~ age", data=people().assign(sex="F", site=1))
    with pytest.raises(ValueError, match="scale_external must be one of"):
        external_of(outside, scale="other")
    with pytest.raises(DataError, match="give external="):
        read_external(None, audit_of(people())._declared, None, "~ age")
    with pytest.raises(DataError, match="not list of one dimension"):
        external_of([1.0, 2.0])


def test_a_level_that_the_external_table_does_not_have_is_refused():
    outside = outsiders()[lambda t: t["smoker"] == "no"]
    with pytest.raises(FormulaError, match="external membership formula.*smoker"):
        external_of(outside, "~ age + smoker")


def test_missing_values_of_an_external_table_follow_the_audit():
    outside = outsiders()
    outside.loc[[3, 8, 9], "age"] = np.nan
    outside.loc[8, "sex"] = None
    with pytest.raises(
        DataError, match=r"external has missing.*'sex' \(1 rows\), 'age' \(3 rows\)"
    ):
        external_of(outside)
    found, _ = external_of(outside, missing="drop")
    np.testing.assert_allclose(found.p, external_of(outside.drop([3, 8, 9]))[0].p, atol=1e-10)
    assert any("3 of 400 rows dropped: sex missing (1), age missing (3)" in n for n in found.notes)
    with pytest.raises(DataError, match="all 400 rows have missing values"):
        external_of(outside.assign(age=np.nan), missing="drop")
    whole = outsiders().assign(age=lambda t: t["age"].round().astype("Int64"))
    gaps = whole.assign(age=whole["age"].where(whole.index != 5))
    np.testing.assert_allclose(
        external_of(gaps, missing="drop")[0].p, external_of(whole.drop(5))[0].p, atol=1e-10
    )


def test_a_missing_level_here_is_the_missing_level_there():
    inside, outside = people(), outsiders()
    inside.loc[:60, "sex"] = None
    outside.loc[:80, "sex"] = None
    found, cohort = external_of(outside, data=inside, missing="level")
    named = {"sex": "missing"}
    expected, _ = external_of(outside.fillna(named), data=inside.fillna(named))
    assert cohort.groups.names[-1] == "missing & 3"
    np.testing.assert_allclose(found.p, expected.p, atol=1e-10)


def test_scaling_in_fitting_only_is_the_mistake_that_it_is():
    outside, inside = outsiders(), people()
    wrong, _ = external_of(outside, scale="faircfint")
    columns = ["age", "sbp"]
    scaled = outside.copy()
    scaled[columns] = (outside[columns] - outside[columns].mean()) / outside[columns].std(ddof=1)
    np.testing.assert_allclose(wrong.raw, by_hand(scaled, columns, inside), atol=1e-8)
    assert np.abs(wrong.raw - external_of(outside)[0].raw).max() > 0.1


def test_given_external_probabilities():
    found, cohort = external_of(outsiders())
    names = list(cohort.groups.names)
    for value in (
        found.raw,
        pd.DataFrame(found.raw, columns=names),
        pd.DataFrame(found.raw, columns=names)[names[::-1]],
        pd.DataFrame(found.raw, columns=pd.MultiIndex.from_tuples(cohort.groups.labels)),
        pd.DataFrame(found.raw, columns=names).sample(frac=1, random_state=1),
    ):
        given, _ = external_of(value)
        np.testing.assert_allclose(given.p, found.p, atol=1e-12)
        assert given.text == "probabilities as given"
    frame = pd.DataFrame(found.raw, columns=names)
    for value, message in (
        (found.raw[:, :5], "a column for each of the 6 groups.*but have 5"),
        (frame.iloc[:, :4], "but have 4"),
        (frame.rename(columns={names[0]: "other"}), "'other' is not a group"),
        (found.raw[:100], "has 100 values, but the table has 300 rows"),
        (found.raw * 0.5, "do not add up to 1 in 300 of the 300 rows used"),
        (found.raw - 0.5, r"missing or outside \[0, 1\]"),
        (np.where(np.arange(6) == 2, np.nan, found.raw), "missing or outside"),
        (frame.astype(str), "not numbers"),
    ):
        with pytest.raises(DataError, match=message):
            external_of(value)
    with pytest.raises(DataError, match="probabilities, which need no model"):
        external_of(found.raw, "~ age")
