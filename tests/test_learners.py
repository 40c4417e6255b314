"""Classifiers of scikit-learn: what is taken, and predictions that are truly out of fold."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pandas as pd
import pytest

import cfair
from cfair.errors import DataError, FormulaError
from cfair.formula import build_design, parse_formula
from cfair.nuisance.crossfit import Folds, draw_folds, folds_given
from cfair.nuisance.learners import Learner, features, out_of_fold
from cfair.nuisance.order import row_keys

pytest.importorskip("sklearn")

from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

ESTIMATORS = {
    "forest": RandomForestClassifier(n_estimators=15, min_samples_leaf=5),
    "boosting": HistGradientBoostingClassifier(max_iter=15, early_stopping=True),
    "network": MLPClassifier((6,), learning_rate_init=0.02, max_iter=20),
    "calibrated": CalibratedClassifierCV(LinearSVC(), cv=3),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "neighbours": KNeighborsClassifier(7),
    "stratified search": GridSearchCV(
        make_pipeline(StandardScaler(), RandomForestClassifier(10, min_samples_leaf=5)),
        {"randomforestclassifier__max_depth": [3, None]},
        cv=StratifiedKFold(3, shuffle=True),
    ),
}
WEIGHTED = {
    **{name: ESTIMATORS[name] for name in ("forest", "boosting", "calibrated", "pipeline")},
    "search": GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression__C": [1, 2]}
    ),
    "vote": VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], voting="soft"),
    "nested": make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), GaussianNB())),
}


def data(n=150, seed=0, n_classes=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    target = np.digitize(X[:, 0] + 0.7 * rng.normal(size=n), np.linspace(-0.7, 0.7, n_classes)[1:])
    keys = row_keys(pd.DataFrame(X), target)
    folds = draw_folds(3, keys, target, seed=seed)
    return X, target.astype(int), folds, np.argsort(keys), rng


class Memory(ClassifierMixin, BaseEstimator):
    """Knows the class of every row that it has seen, and gives 0.5 to others."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen_ = {tuple(x): int(c) for x, c in zip(X, y, strict=True)}
        self.times_ = pd.Series([tuple(x) for x in X]).value_counts()
        return self

    def predict_proba(self, X):
        p = np.array([self.seen_.get(tuple(x), 0.5) for x in X], dtype=float)
        return np.column_stack([1 - p, p])


class Says(ClassifierMixin, BaseEstimator):
    """Gives the probabilities it was made with."""

    def __init__(self, row=(0.5, 0.5)):
        self.row = row

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.tile(np.array(self.row, dtype=float), (len(X), 1))


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small fits are slower with threads, and far slower where other work has the processors."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield


# ------------------------------------------------------------------------------- what is asked


def test_a_learner_is_printed_by_what_it_is_and_what_it_learns_from():
    forest = RandomForestClassifier()
    assert repr(Learner(forest, columns=["age", "sbp"])) == "RandomForestClassifier() on age, sbp"
    assert repr(Learner(forest, formula="~ age + sbp")) == "RandomForestClassifier() on ~ age + sbp"
    assert Learner(ESTIMATORS["calibrated"], ["a"]).name == (
        "CalibratedClassifierCV(cv=3, estimator=LinearSVC())"
    )
    assert Learner(forest, ("a", "b")).columns == ("a", "b")
    assert cfair.Learner is Learner


def test_settings_that_are_not_the_default_are_printed_in_one_line():
    class Plain:
        """Tells no settings."""

        fit = predict_proba = None.__init__

    def said(estimator):
        return Learner(estimator, ["a"]).name

    shallow = RandomForestClassifier(max_depth=3, random_state=np.random.RandomState(1))
    assert said(shallow) == (
        "RandomForestClassifier(max_depth=3, random_state=RandomState(MT19937))"
    )
    assert said(make_pipeline(StandardScaler(), LogisticRegression(C=0.5))) == (
        "Pipeline(steps=[('standardscaler', StandardScaler()), "
        "('logisticregression', LogisticRegression(C=0.5))])"
    )
    with config_context(print_changed_only=False):  # whatever is set for notebooks
        assert said(LogisticRegression(C=0.5)) == "LogisticRegression(C=0.5)"
    long = said(LogisticRegression(class_weight=dict.fromkeys(range(100), 1.0)))
    assert long.startswith("LogisticRegression(class_weight={0: 1.0,")
    assert long.endswith(" ...")
    assert len(long) < 210
    assert "\n" not in long
    assert said(Plain()) == "Plain"


def test_the_result_prints_the_settings_of_its_learner():
    cohort = cfair.load_cohort()[:600]
    audit = cfair.Audit(
        cohort, outcome="readmitted", score="risk", cutoff=0.5, groups="sex", treatment="treated"
    )
    learner = Learner(LogisticRegression(C=0.5), ["sex", "risk", "age"])
    result = audit.counterfactual(learner, folds=2)
    assert "LogisticRegression(C=0.5) on sex, risk, age" in " ".join(str(result).split())
    assert "<cfair.Learner: LogisticRegression(C=0.5) on sex, risk, age>" in result.call


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "neither is given"),
        ({"columns": ["a"], "formula": "~ a"}, ValueError, "both are given"),
        ({"columns": "age"}, TypeError, r"write columns=\['age'\]"),
        ({"columns": []}, ValueError, "columns is empty"),
        ({"columns": ["a", "b", "a"]}, ValueError, "'a' more than once"),
        ({"columns": ["a", 3]}, TypeError, "which 3 is not"),
        ({"columns": 3}, TypeError, "which 3 is not"),
        ({"formula": ["a"]}, TypeError, "formula must be text .* not list"),
        ({"formula": "age + sbp"}, ValueError, "must have a '~'"),
    ],
)
def test_columns_and_formula_are_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        Learner(LogisticRegression(), **arguments)


@pytest.mark.parametrize(
    ("estimator", "error", "message"),
    [
        (RandomForestClassifier, TypeError, r"the class RandomForestClassifier.*Classifier\(\)"),
        ("forest", TypeError, "is a str, which has no fit"),
        (LinearRegression(), TypeError, "LinearRegression has no predict_proba.*regressor"),
        (LinearSVC(), TypeError, r"CalibratedClassifierCV\(LinearSVC\(\)\)"),
        (
            make_pipeline(StandardScaler(), SVC()),
            TypeError,
            r"^Pipeline\(.*SVC\) has",
        ),
    ],
)
def test_what_is_no_classifier_with_probabilities_is_refused(estimator, error, message):
    with pytest.raises(error, match=message):
        Learner(estimator, columns=["age"])


def test_parts_that_are_fitted_already_are_refused():
    frozen = pytest.importorskip("sklearn.frozen").FrozenEstimator
    X, target, *_ = data()
    fitted = frozen(LogisticRegression().fit(X, target))
    with pytest.raises(ValueError, match=r"fitted already \(estimator\)"):
        Learner(CalibratedClassifierCV(fitted), columns=["age"])
    stack = StackingClassifier([("a", GaussianNB().fit(X, target))], cv="prefit")
    with pytest.raises(ValueError, match=r"fitted already \(cv\)"):
        Learner(stack, columns=["age"])


AWKWARD = ["age", "body mass", "a+b", "x.1", "C(x)", "it's", 'say "hi"', "tick`s", "1", "~"]
AWKWARD += ["b\\'`", "`\\\\`"]  # backslashes before a quote, and two in a row


def test_any_column_name_can_be_written():
    table = pd.DataFrame({name: np.arange(4.0) ** k for k, name in enumerate(AWKWARD, 1)})
    learner = Learner(LogisticRegression(), columns=AWKWARD)
    design = build_design(parse_formula(learner.formula_text, table.columns), table)
    matrix, names = features(design)
    assert names == tuple(AWKWARD)
    np.testing.assert_array_equal(matrix, table.to_numpy())
    assert Learner(LogisticRegression(), formula="~ age:sex").formula_text == "~ age:sex"


def test_the_estimator_is_not_given_an_intercept():
    table = pd.DataFrame({"sex": list("FMF"), "age": [50.0, 60, 70], "Intercept": [3.0, 4, 5]})

    def names(formula):
        return features(build_design(parse_formula(formula, table.columns), table))[1]

    assert names("~ age + sex") == ("sex[T.M]", "age")
    assert names("~ 0 + age") == ("age",)
    assert names("~ 0 + Intercept") == ("Intercept",)
    with pytest.raises(FormulaError, match="at least one column"):
        names("~ 1")


def test_a_stack_is_taken_although_it_has_no_probabilities_before_it_is_fitted():
    X, target, folds, order, _ = data()
    stack = StackingClassifier([("a", GaussianNB()), ("b", LogisticRegression())], cv=3)
    learner = Learner(stack, columns=["a"])
    found = out_of_fold(learner.estimator, X, target, folds, order=order).values[0]
    assert np.corrcoef(found, target)[0, 1] > 0.3


def test_without_scikit_learn_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r'pip install "cfair\[learners\]"'):
        Learner(LogisticRegression(), columns=["age"])


def test_naming_learner_imports_no_scikit_learn():
    code = (
        "import sys, cfair; cfair.Learner; print(sorted({'sklearn', 'patsy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------- out-of-fold predictions


def test_no_row_is_predicted_by_a_model_that_has_seen_it():
    X, target, folds, *_ = data()
    unseen = out_of_fold(Memory(), X, target, folds).values[0]
    assert (unseen == 0.5).all()
    # and what was seen would have been known: the rows of the next fold, predicted in their place
    other = np.array([folds.rows((c + 1) % 3)[0] for c in folds.codes])
    seen = out_of_fold(Memory(), X, target, folds, predict=[X[other]]).values[0]
    np.testing.assert_array_equal(seen, target[other])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_predictions_equal_those_of_fits_by_hand(name):
    X, target, folds, order, _ = data()
    counterfactual = X + np.array([1.0, 0, 0])
    found = out_of_fold(
        ESTIMATORS[name], X, target, folds, predict=[X, counterfactual], order=order, seed=5
    )
    assert [v.shape for v in found.values] == [(150,), (150,)]
    assert all(((v >= 0) & (v <= 1)).all() for v in found.values)
    assert np.corrcoef(found.values[0], target)[0, 1] > 0.3
    assert found.values[1].mean() > found.values[0].mean()
    if name in ("pipeline", "neighbours"):  # nothing random in them
        for k in range(3):
            train = order[folds.codes[order] != k]
            model = ESTIMATORS[name].fit(X[train], target[train])
            for value, matrix in zip(found.values, (X, counterfactual), strict=True):
                rows = folds.rows(k)
                np.testing.assert_allclose(value[rows], model.predict_proba(matrix[rows])[:, 1])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_neither_row_order_nor_what_was_drawn_before_changes_predictions(name):
    X, target, folds, order, rng = data()
    rng_state = np.random.get_state()[1].copy()
    one = out_of_fold(ESTIMATORS[name], X, target, folds, order=order, seed=2)
    assert np.array_equal(np.random.get_state()[1], rng_state)
    moved = rng.permutation(len(X))
    back = np.argsort(moved)  # where a row has gone to
    codes = Folds(folds.codes[moved], 3, drawn=True)
    np.random.seed(99)
    other = out_of_fold(ESTIMATORS[name], X[moved], target[moved], codes, order=back[order], seed=2)
    np.testing.assert_array_equal(other.values[0], one.values[0][moved])
    assert other.notes == one.notes


@pytest.mark.parametrize("name", ["forest", "network", "boosting", "stratified search"])
def test_the_seed_is_what_random_estimators_depend_on(name):
    X, target, folds, order, _ = data()
    one, other = (
        out_of_fold(ESTIMATORS[name], X, target, folds, order=order, seed=s).values[0]
        for s in (1, 2)
    )
    assert not np.allclose(one, other)


def test_a_random_state_of_ones_own_is_kept_and_the_estimator_left_as_it_is():
    X, target, folds, *_ = data()
    own = RandomForestClassifier(5, random_state=11)
    one, other = (out_of_fold(own, X, target, folds, seed=s).values[0] for s in (1, 2))
    np.testing.assert_array_equal(one, other)
    search = ESTIMATORS["stratified search"]
    out_of_fold(search, X, target, folds)
    assert search.cv.random_state is None
    assert not hasattr(search, "best_estimator_")
    assert search.estimator.steps[1][1].random_state is None


def test_names_of_given_folds_do_not_change_predictions():
    X, target, folds, order, _ = data()
    a = folds_given(np.array(["x", "y", "z"])[folds.codes])
    b = folds_given(np.array(["z", "x", "y"])[folds.codes])
    one, other = (
        out_of_fold(ESTIMATORS["forest"], X, target, f, order=order).values[0] for f in (a, b)
    )
    np.testing.assert_array_equal(one, other)


# ------------------------------------------------------------------- which rows, and how often


def test_only_rows_that_are_used_are_fitted_on_but_all_are_predicted():
    X, target, folds, _, rng = data()
    used = rng.random(len(X)) < 0.6
    other = np.array([folds.rows((c + 1) % 3)[0] for c in folds.codes])
    found = out_of_fold(Memory(), X, target, folds, used=used, predict=[X[other]]).values[0]
    np.testing.assert_array_equal(found, np.where(used[other], target[other], 0.5))


@pytest.mark.parametrize("dtype", [int, float, np.uint8])
def test_counts_are_rows_repeated(dtype):
    X, target, folds, order, rng = data()
    counts = rng.poisson(1.0, len(X)).astype(dtype)
    tree = DecisionTreeClassifier(min_samples_leaf=6, random_state=0)
    found = out_of_fold(tree, X, target, folds, counts=counts, order=order).values[0]
    plain = out_of_fold(tree, X, target, folds, order=order).values[0]
    assert not np.allclose(found, plain)
    for k in range(3):
        train = np.concatenate([[i] * int(counts[i]) for i in range(150) if folds.codes[i] != k])
        train = train.astype(int)
        expected = tree.fit(X[train], target[train]).predict_proba(X[folds.rows(k)])[:, 1]
        np.testing.assert_allclose(found[folds.rows(k)], expected)


def test_counts_must_be_whole_numbers():
    X, target, folds, *_ = data()
    for wrong in (np.full(150, 0.5), np.full(150, -1)):
        with pytest.raises(ValueError, match="whole numbers"):
            out_of_fold(Memory(), X, target, folds, counts=wrong)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_count_whatever_their_unit(name):
    X, target, folds, order, rng = data()
    weights = np.where(target == 1, 4.0, 1.0) * rng.uniform(0.5, 1.5, 150)
    plain, heavy, scaled = (
        out_of_fold(WEIGHTED[name], X, target, folds, weights=w, order=order).values[0]
        for w in (None, weights, 1024 * weights)
    )
    assert heavy.mean() > plain.mean() + 0.05
    np.testing.assert_allclose(scaled, heavy, atol=1e-9)


def test_whole_weights_are_rows_repeated_and_weight_zero_is_no_row():
    X, target, folds, order, rng = data()
    weights = rng.integers(0, 4, 150).astype(float)
    near = LogisticRegression(C=1e6, tol=1e-10, max_iter=1000)
    one = out_of_fold(near, X, target, folds, weights=weights, order=order).values[0]
    two = out_of_fold(near, X, target, folds, counts=weights, order=order).values[0]
    np.testing.assert_allclose(one, two, atol=1e-4)
    used = weights > 0
    forest = ESTIMATORS["forest"]
    zero = out_of_fold(forest, X, target, folds, weights=used.astype(float)).values[0]
    left_out = out_of_fold(forest, X, target, folds, weights=np.ones(150), used=used).values[0]
    np.testing.assert_array_equal(zero, left_out)


def test_counts_and_weights_multiply():
    X, target, folds, order, rng = data()
    counts, weights = rng.integers(0, 3, 150), rng.integers(1, 3, 150).astype(float)
    near = LogisticRegression(C=1e6, tol=1e-10, max_iter=1000)
    one = out_of_fold(near, X, target, folds, counts=counts, weights=weights, order=order)
    two = out_of_fold(near, X, target, folds, weights=counts * weights, order=order)
    np.testing.assert_allclose(one.values[0], two.values[0], atol=1e-4)


@pytest.mark.parametrize(
    "estimator",
    [
        KNeighborsClassifier(),
        make_pipeline(StandardScaler(), KNeighborsClassifier()),
        GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [3, 5]}),
        VotingClassifier([("a", GaussianNB()), ("b", KNeighborsClassifier())], voting="soft"),
        Memory(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_weights_that_an_estimator_cannot_take_are_not_dropped(estimator):
    X, target, folds, *_ = data()
    with pytest.raises(DataError, match="sampling weights are declared.*no sample_weight"):
        out_of_fold(estimator, X, target, folds, weights=np.ones(150))


# ---------------------------------------------------------------------------------- many classes


@pytest.mark.parametrize("name", ["forest", "pipeline", "calibrated", "neighbours"])
def test_columns_are_class_codes(name):
    X, target, folds, order, _ = data(n_classes=4)
    assert len(np.unique(target)) == 4
    found = out_of_fold(ESTIMATORS[name], X, target, folds, n_classes=4, order=order).values[0]
    assert found.shape == (150, 4)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    right = found[np.arange(150), target].mean()
    wrong = found[np.arange(150), (target + 1) % 4].mean()
    assert right > wrong + 0.1


def test_a_class_that_is_missing_in_training_gets_no_probability():
    X, target, folds, order, _ = data(n_classes=3)
    only = np.flatnonzero(target == 1)
    codes = folds.codes.copy()
    codes[only] = 0  # the middle class is in the first fold alone
    shifted = target + (target == 2)  # classes 0, 1, 3 of 5: 2 and 4 never occur
    found = out_of_fold(
        GaussianNB(), X, shifted, Folds(codes, 3, drawn=False), n_classes=5, order=order
    ).values[0]
    first = codes == 0
    assert (found[:, [2, 4]] == 0).all()
    assert (found[first, 1] == 0).all()
    assert (found[~first, 1] > 0).all()
    train = np.flatnonzero(~first)
    model = GaussianNB().fit(X[train], shifted[train])
    np.testing.assert_allclose(found[first][:, [0, 3]], model.predict_proba(X[first]))


def test_one_class_in_training_is_refused():
    X, target, folds, *_ = data()
    codes = np.where(target == 1, 0, 1)
    codes[np.flatnonzero(target == 0)[:5]] = 0
    with pytest.raises(DataError, match=r"GaussianNB outside fold 1: .*are of class 0"):
        out_of_fold(GaussianNB(), X, target, Folds(codes, 2, drawn=True))
    with pytest.raises(DataError, match="no rows"):
        out_of_fold(GaussianNB(), X, target, folds, used=np.zeros(150, bool))


# --------------------------------------------------------------------- what goes wrong, and notes


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((-0.2, 1.2), r"no probability between 0 and 1 \(-0.2, "),
        ((np.nan, np.nan), r"\(nan, "),
        ((np.inf, 0), "no probability"),
        ((0.2, 0.3, 0.5), r"of shape \(50, 3\) for 50 rows and 2 classes"),
    ],
)
def test_what_is_no_probability_is_refused(row, message):
    X, target, folds, *_ = data()
    with pytest.raises(DataError, match=message):
        out_of_fold(Says(row), X, target, folds)


def test_rounding_beyond_zero_and_one_is_cut():
    X, target, folds, *_ = data()
    assert (out_of_fold(Says((-1e-12, 1 + 1e-12)), X, target, folds).values[0] == 1).all()


def test_an_estimator_that_stops_is_named_with_its_fold_and_reason():
    X, target, folds, *_ = data()
    with pytest.raises(DataError, match=r"LogisticRegression outside fold 1: .*ValueError|Invalid"):
        out_of_fold(LogisticRegression(C=-1), X, target, folds)


def test_warnings_become_notes_and_leave_the_filters_alone():
    X, target, folds, *_ = data()
    filters, show = list(warnings.filters), warnings.showwarning
    with warnings.catch_warnings(record=True) as spam:
        warnings.simplefilter("always")
        inside = list(warnings.filters)
        found = out_of_fold(MLPClassifier((4,), max_iter=3), X, target, folds)
        assert warnings.filters == inside
    assert spam == []
    assert list(warnings.filters) == filters
    assert warnings.showwarning is show
    assert len(found.notes) == 1
    assert found.notes[0].startswith("MLPClassifier: ConvergenceWarning: Stochastic Optimizer")
    assert found.notes[0].endswith("(in 3 of 3 folds)")
    assert out_of_fold(GaussianNB(), X, target, folds).notes == ()


class Warns(Says):
    """Warns of its own name, when all others are at it too."""

    barrier = Barrier(2)

    def fit(self, X, y):
        self.barrier.wait(timeout=10)
        warnings.warn(f"I am {self.row[1]}", UserWarning, stacklevel=1)
        self.barrier.wait(timeout=10)
        return super().fit(X, y)


class WarnsElsewhere(Says):
    """Warns from a thread of its own."""

    def fit(self, X, y):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(warnings.warn, "from a thread", UserWarning, stacklevel=1).result()
        return super().fit(X, y)


def test_warnings_from_threads_of_the_estimator_are_heard():
    X, target, folds, *_ = data()
    found = out_of_fold(WarnsElsewhere(), X, target, folds)
    assert found.notes == ("WarnsElsewhere: UserWarning: from a thread (in 3 of 3 folds)",)


def test_threads_do_not_mix_up_their_warnings():
    X, target, folds, *_ = data()
    filters, show = list(warnings.filters), warnings.showwarning
    rows = [(0.9, 0.1), (0.8, 0.2)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda row: out_of_fold(Warns(row), X, target, folds), rows))
    for row, predictions in zip(rows, found, strict=True):
        assert predictions.notes == (f"Warns: UserWarning: I am {row[1]} (in 3 of 3 folds)",)
    assert list(warnings.filters) == filters
    assert warnings.showwarning is show


def test_an_estimator_of_another_maker_needs_no_parameters():
    class Plain:
        def fit(self, X, y):
            self.share = y.mean()

        def predict_proba(self, X):
            return np.tile([1 - self.share, self.share], (len(X), 1))

    X, target, folds, *_ = data()
    plain = Plain()
    found = out_of_fold(plain, X, target, folds).values[0]
    for k in range(3):
        np.testing.assert_allclose(found[folds.rows(k)], target[folds.train(k)].mean())
    assert not hasattr(plain, "share")


# ------------------------------------------------------------------------------- on other workers


def replicates(parallel):
    """Bootstrap replicates of out-of-fold predictions through joblib."""
    import joblib

    X, target, folds, order, rng = data()
    forest = RandomForestClassifier(5, min_samples_leaf=5)
    work = [
        joblib.delayed(out_of_fold)(forest, X, target, folds, counts=c, order=order, seed=s)
        for s, c in enumerate(rng.poisson(1.0, (4, len(X))))
    ]
    return np.array([p.values[0] for p in parallel(work)])


def test_everything_can_be_sent_to_another_process():
    X, target, folds, order, _ = data()
    call = (out_of_fold, (ESTIMATORS["forest"], X, target, folds), {"order": order})
    function, arguments, options = pickle.loads(pickle.dumps(call))
    there = pickle.loads(pickle.dumps(function(*arguments, **options)))
    here = out_of_fold(*call[1], **call[2])
    np.testing.assert_array_equal(there.values[0], here.values[0])
    learner = Learner(ESTIMATORS["forest"], columns=["a"])
    assert repr(pickle.loads(pickle.dumps(learner))) == repr(learner)


def test_jobs_of_the_estimator_change_no_digit():
    X, target, folds, order, _ = data()
    one, two = (
        out_of_fold(RandomForestClassifier(60, n_jobs=jobs), X, target, folds, order=order)
        for jobs in (None, 3)
    )
    np.testing.assert_array_equal(one.values[0], two.values[0])


def test_threads_give_the_same_numbers():
    import joblib

    one = replicates(joblib.Parallel(n_jobs=1))
    np.testing.assert_array_equal(replicates(joblib.Parallel(n_jobs=2, prefer="threads")), one)


@pytest.mark.filterwarnings("ignore")  # what a cluster says of ports and of its own closing
def test_a_dask_cluster_gives_the_same_numbers():
    distributed = pytest.importorskip("distributed")
    import joblib

    one = replicates(joblib.Parallel(n_jobs=1))
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        with joblib.parallel_config(backend="dask"):
            parallel = joblib.Parallel()
            there = replicates(parallel)
            assert type(parallel._backend).__name__ == "DaskDistributedBackend"
        assert client.status == "running"
    np.testing.assert_array_equal(there, one)
