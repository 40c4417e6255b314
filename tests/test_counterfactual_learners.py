"""Counterfactual rates with classifiers of scikit-learn in place of the formulas."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from test_doubly_robust import (
    RATES,
    D,
    Y,
    audit,
    boot_rates,
    by_group,
    null_rates,
    setting,
    table,
)
from test_invariance import numbers, same, shuffled

from cfair import Learner
from cfair.errors import DataError, FormulaError

pytest.importorskip("sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")

COLUMNS = ["sex", "race", "age", "s"]
ESTIMATORS = {
    "forest": RandomForestClassifier(n_estimators=8, min_samples_leaf=8),
    "boosting": HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=10),
    "network": MLPClassifier((4,), learning_rate_init=0.05, max_iter=15),
    "support vectors": make_pipeline(StandardScaler(), CalibratedClassifierCV(LinearSVC(), cv=3)),
}
BAYES, REGRESSION = GaussianNB(), LogisticRegression(C=0.5, tol=1e-10, max_iter=1000)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small fits are slower with threads, and far slower where other work has the processors."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield


class Memory(ClassifierMixin, BaseEstimator):
    """Knows the class of every row that it has seen, and gives 0.25 to others."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen_ = {tuple(x): float(c) for x, c in zip(X, y, strict=True)}
        return self

    def predict_proba(self, X):
        p = np.array([self.seen_.get(tuple(x), 0.25) for x in X])
        return np.column_stack([1 - p, p])


class Counting(GaussianNB):
    """Counts its fits, and by how many rows."""

    fits: list[int] = []  # noqa: RUF012

    def fit(self, X, y, sample_weight=None):
        self.fits.append(len(y))
        return super().fit(X, y, sample_weight)


# -- plain cross-fitting --------------------------------------------------------------------------


def features(t, d=None):
    """Columns as a learner sees them: indicators of all levels but the first."""
    columns = [t["sex"] == "M", t["race"] == "Other", t["race"] == "White", t["age"], t["s"]]
    return np.column_stack([*columns, *([] if d is None else [d])]).astype(float)


def crossfit(estimator, X, target, used, at, folds, weights=None):
    values = np.empty(len(X))
    for fold in np.unique(folds):
        rows = used & (folds != fold)
        options = {} if weights is None else {"sample_weight": weights[rows] / weights[rows].mean()}
        model = estimator.fit(X[rows], target[rows], **options)
        values[folds == fold] = model.predict_proba(at[folds == fold])[:, 1]
    return values


def plain_rates(t, folds, *, pi=None, mu0=None, with_d=False, labels=None, rows=None, weights=None):
    """AIPW with learners `pi` and `mu0`, or logistic regressions outside the same folds.

    Rows drawn again are fitted on again; each carries the labels of the row in `labels`.
    """
    rows = np.arange(len(t)) if rows is None else rows
    own = t[["sex", "race"]].iloc[rows if labels is None else labels[rows]].to_numpy()
    drawn = t.iloc[rows].reset_index(drop=True)
    drawn[["sex", "race"]] = own
    d, y, f = drawn["d"].to_numpy(), drawn["y"].to_numpy(), np.asarray(folds)[rows]
    w = None if weights is None else np.asarray(weights)[rows]
    models = {"folds": f, "weights": w}
    if pi is not None:
        X = features(drawn)
        models.update(X=None, pi=np.clip(crossfit(pi, X, d, d >= 0, X, f, w), 0.005, 0.995))
    if mu0 is not None:
        X, at = (features(drawn, d=x if with_d else None) for x in (d, 0 * d))
        used = d >= 0 if with_d else d == 0
        models.update(M=None, mu0=crossfit(mu0, X, y, used, at, f, w))
    return setting(drawn, "aipw", **models).rates()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("which", ["pi", "mu0", "both", "treatment among the columns"])
def test_rates_are_those_of_a_plain_loop_over_folds(which, weighted):
    t = table(400, 40)
    pi, mu0 = Learner(BAYES, COLUMNS), Learner(REGRESSION, COLUMNS)
    given = {
        "pi": (pi, Y, {"pi": BAYES}),
        "mu0": (D, mu0, {"mu0": REGRESSION}),
        "both": (pi, mu0, {"pi": BAYES, "mu0": REGRESSION}),
        "treatment among the columns": (
            pi, Learner(REGRESSION, [*COLUMNS, "d"]),
            {"pi": BAYES, "mu0": REGRESSION, "with_d": True},
        ),
    }  # fmt: skip
    propensity, outcome, plainly = given[which]
    result = audit(t, weights="w" if weighted else None).counterfactual(
        propensity, outcome_model=outcome, folds="fold"
    )
    w = t["w"].to_numpy() if weighted else None
    expected = plain_rates(t, t["fold"].to_numpy(), weights=w, **plainly)
    np.testing.assert_allclose(by_group(result), expected, atol=1e-6)
    how = "all rows, with treatment" if "with_d" in plainly else "fitted on the untreated"
    assert how in " ".join(str(result).split())


def test_the_outcome_among_the_columns_of_the_propensity_is_refused_in_these_words():
    with pytest.raises(
        DataError, match="outcome 'y' is among the columns of the Learner of the propensity"
    ):
        audit(table(400, 40), treatment="d").counterfactual(Learner(BAYES, [*COLUMNS, "y"]))


def test_weighting_and_the_outcome_model_alone_take_learners_too():
    t = table(400, 40)
    f = t["fold"].to_numpy()
    X, d, y = features(t), t["d"].to_numpy(), t["y"].to_numpy()
    pi = np.clip(crossfit(BAYES, X, d, d >= 0, X, f), 0.005, 0.995)
    mu0 = crossfit(REGRESSION, X, y, d == 0, X, f)
    one = audit(t).counterfactual(Learner(BAYES, COLUMNS), folds="fold")
    np.testing.assert_allclose(by_group(one), setting(t, "ipw", X=None, pi=pi).rates(), atol=1e-9)
    np.testing.assert_allclose(one.propensities, pi, atol=1e-9)
    two = audit(t).counterfactual(
        outcome_model=Learner(REGRESSION, COLUMNS), estimator="plugin", folds="fold"
    )
    expected = setting(t, "plugin", M=None, mu0=mu0).rates()
    np.testing.assert_allclose(by_group(two), expected, atol=1e-6)
    np.testing.assert_allclose(two.outcomes, mu0, atol=1e-6)


# -- kinds of classifiers -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_any_classifier_will_do_by_default_in_five_folds(name):
    t = table(220, 41)
    learner = Learner(ESTIMATORS[name], COLUMNS)
    both, first, second = (learner, learner), (learner, Y), (D, learner)
    places = {"forest": (both, first, second), "boosting": (first,), "network": (second,)}
    for propensity, outcome in places.get(name, (both,)):
        result = audit(t).counterfactual(
            propensity, outcome_model=outcome, n_boot=2, n_perm=2, seed=1
        )
        assert result.folds.n_folds == 5
        assert result.folds.drawn
        assert result.folds.sizes.max() - result.folds.sizes.min() <= 1
        assert np.isfinite(by_group(result)).all()
        for draws in (boot_rates(result), null_rates(result)):
            assert draws.shape == (2, 6, 2)
            assert np.isfinite(draws).mean() > 0.9
            assert not np.allclose(draws[0], draws[1], equal_nan=True)
        text = str(result)
        assert "5 drawn, stratified; models predict out of fold" in text
        assert learner.name in " ".join(text.split())
        assert result.outcomes.between(0, 1).all()
        rates = result.rates[result.rates["metric"].isin(RATES)]
        assert rates[["se", "ci_low", "ci_high"]].notna().all(axis=None)
    if name == "network":
        assert any(
            x.startswith("outcome model: MLPClassifier: ConvergenceWarning") for x in result.notes
        )


def test_no_row_is_predicted_by_a_model_that_has_seen_it():
    t = table(300, 42)
    memory = Learner(Memory(), COLUMNS)
    result = audit(t).counterfactual(memory, outcome_model=memory)
    assert (result.propensities == 0.25).all()
    assert (result.outcomes == 0.25).all()
    # what a row was given is not seen either: with treatment among the columns
    result = audit(t).counterfactual(memory, outcome_model=Learner(Memory(), [*COLUMNS, "d"]))
    assert (result.outcomes == 0.25).all()
    # nor by a row drawn twice, nor under the labels of another
    result = audit(t).counterfactual(
        memory, outcome_model=memory, resamples=[np.arange(300).repeat(2)],
        permutations=np.arange(300)[None, :],
    )  # fmt: skip
    np.testing.assert_allclose(boot_rates(result)[0], by_group(result), atol=1e-12)
    np.testing.assert_allclose(null_rates(result)[0], by_group(result), atol=1e-12)


def test_the_outcome_is_learned_from_the_untreated():
    t = table(300, 42)
    Counting.fits.clear()
    result = audit(t).counterfactual(D, outcome_model=Learner(Counting(), COLUMNS), folds=3)
    untreated = (t["d"] == 0).to_numpy()
    expected = [(untreated & (result.folds.codes != k)).sum() for k in range(3)]
    assert Counting.fits == expected
    Counting.fits.clear()
    result = audit(t).counterfactual(D, outcome_model=Learner(Counting(), [*COLUMNS, "d"]), folds=3)
    assert Counting.fits == [(result.folds.codes != k).sum() for k in range(3)]


def test_a_formula_beside_a_learner_is_out_of_fold_too():
    t = table(300, 43)
    learner = Learner(BAYES, COLUMNS)
    mixed = audit(t).counterfactual(D, outcome_model=learner, folds="fold")
    alone = audit(t).counterfactual(D, folds="fold")
    inside = audit(t).counterfactual(D)
    np.testing.assert_allclose(mixed.propensities, alone.propensities)
    assert not np.allclose(mixed.propensities, inside.propensities, atol=1e-3)


# -- replicates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_given_rows_and_permutations_equal_a_plain_loop(weighted):
    t = table(400, 44)
    rng = np.random.default_rng(44)
    rows = [rng.integers(0, 400, 400) for _ in range(2)]
    labels = np.array([rng.permutation(400) for _ in range(2)])
    plainly = {"pi": BAYES, "mu0": REGRESSION, "with_d": True}
    w = t["w"].to_numpy() if weighted else None
    result = audit(t, weights="w" if weighted else None).counterfactual(
        Learner(BAYES, COLUMNS), outcome_model=Learner(REGRESSION, [*COLUMNS, "d"]),
        folds="fold", resamples=rows, permutations=labels,
    )  # fmt: skip
    f = t["fold"].to_numpy()
    for r in range(2):
        expected = plain_rates(t, f, rows=rows[r], weights=w, **plainly)
        np.testing.assert_allclose(boot_rates(result)[r], expected, atol=1e-5)
        expected = plain_rates(t, f, labels=labels[r], weights=w, **plainly)
        np.testing.assert_allclose(null_rates(result)[r], expected, atol=1e-5)


def test_a_learner_without_attributes_is_fitted_once_for_all_permutations():
    t = table(300, 45)
    for columns, fits in ((["age", "s"], 2), (COLUMNS, 1 + 6)):
        Counting.fits.clear()
        audit(t).counterfactual(
            "chance", outcome_model=Learner(Counting(), columns), folds=2, n_perm=6
        )
        assert len(Counting.fits) == 2 * fits  # two folds: the estimates, then the permutations


def test_a_replicate_without_events_is_undefined_and_stops_nothing():
    t = table(300, 46)
    untreated = np.flatnonzero(t["d"] == 0)
    t["y"] = 0
    t.loc[untreated[:8], "y"] = 1
    t.loc[untreated[:8], "s"] = [0.2, 0.9] * 4
    rows = [np.arange(300), np.setdiff1d(np.arange(300), untreated[:8])]
    result = audit(t, ["sex"]).counterfactual(
        "chance", outcome_model=Learner(BAYES, ["age", "s"]), folds=2, resamples=rows
    )
    draws = boot_rates(result)
    np.testing.assert_allclose(draws[0], by_group(result), atol=1e-12)
    assert np.isnan(draws[1]).all()
    assert result.boot.not_converged == 1
    assert (result.boot.n_valid("cfnr") == 1).all()
    drawn = audit(t, ["sex"]).counterfactual(
        "chance", outcome_model=Learner(BAYES, ["age", "s"]), folds=4, n_boot=60, seed=3
    )
    assert 0 < np.isnan(boot_rates(drawn)).any(axis=(1, 2)).sum() < 30


def forest_analysis(**options):
    t = table(250, 47)
    forest = RandomForestClassifier(n_estimators=4, min_samples_leaf=8)
    learner = Learner(forest, COLUMNS)
    # more than one block of replicates, so that there is something to share out
    return audit(t).counterfactual(
        D, outcome_model=learner, folds=2, n_boot=26, n_perm=26, seed=1, **options
    )


@pytest.fixture(scope="module")
def sequential():
    return forest_analysis()


def equal(a, b):
    pd.testing.assert_frame_equal(a.rates, b.rates)
    pd.testing.assert_frame_equal(a.boot_draws, b.boot_draws, rtol=1e-12)
    pd.testing.assert_frame_equal(a.null_draws, b.null_draws, rtol=1e-12)


def test_processes_give_the_same_numbers(sequential):
    equal(forest_analysis(n_jobs=2), sequential)


def test_threads_of_the_callers_choice_give_the_same_numbers(sequential):
    import joblib

    with joblib.parallel_config(backend="threading", n_jobs=2):
        equal(forest_analysis(n_jobs=None), sequential)


@pytest.mark.filterwarnings("ignore")  # what a cluster says of ports and of its own closing
def test_a_dask_cluster_gives_the_same_numbers(sequential):
    distributed = pytest.importorskip("distributed")
    import joblib

    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    )
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        assert type(joblib.Parallel()._backend).__name__ == "DaskDistributedBackend"
        equal(forest_analysis(n_jobs=None), sequential)


@pytest.mark.parametrize("ties", [False, True])
def test_the_order_of_rows_changes_no_number(ties):
    # with ties rows differ in nothing but their group
    t = table(300, 48)
    columns = COLUMNS
    if ties:
        t["old"] = (t["age"] > 0).astype(int)
        t["s"] = np.where(t["s"] > 0.5, 0.7, 0.1)
        columns = ["sex", "race", "old", "s"]
    forest = Learner(RandomForestClassifier(n_estimators=3, min_samples_leaf=3), columns)
    options = {"outcome_model": forest, "n_boot": 2, "n_perm": 2, "folds": 2, "seed": 1}
    one = audit(t).counterfactual(forest, **options)
    other = audit(shuffled(t)).counterfactual(forest, **options)
    same(numbers(one), numbers(other), tolerance=1e-10)
    assert not np.allclose(by_group(one), by_group(audit(t).counterfactual(
        forest, **{**options, "seed": 2})))  # fmt: skip


# -- what is refused ------------------------------------------------------------------------------


def test_a_bare_classifier_is_asked_for_its_columns():
    for given in ({"propensity": BAYES}, {"propensity": D, "outcome_model": BAYES}):
        with pytest.raises(DataError, match=r"a classifier needs to know its columns.*Learner\("):
            audit(table(100)).counterfactual(**given)


def test_a_learner_needs_a_column():
    learner = Learner(BAYES, formula="~ 1")
    for given in ({"propensity": learner}, {"propensity": D, "outcome_model": learner}):
        with pytest.raises(FormulaError, match="a Learner needs at least one column"):
            audit(table(100)).counterfactual(**given)


def test_weights_that_a_classifier_cannot_take_are_refused():
    learner = Learner(KNeighborsClassifier(), COLUMNS)
    with pytest.raises(DataError, match="no sample_weight"):
        audit(table(200), weights="w").counterfactual(D, outcome_model=learner)


@pytest.mark.parametrize("folds", [1, True, 2.5])
def test_a_learner_is_never_judged_on_the_rows_it_has_seen(folds):
    learner = Learner(BAYES, COLUMNS)
    with pytest.raises(ValueError, match="folds must be a whole number of at least 2"):
        audit(table(200)).counterfactual(D, outcome_model=learner, folds=folds)


def test_without_scikit_learn_a_learner_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r'pip install "cfair\[learners\]"'):
        Learner(BAYES, COLUMNS)
    # and formulas out of fold do without it
    result = audit(table(300)).counterfactual(D, outcome_model=Y, folds=2)
    assert np.isfinite(by_group(result)).all()
