"""Split, fit, audit on held-out rows: who is held out, what is learnt from whom, what is said."""

from __future__ import annotations

import dataclasses
import random
import re
import sys
import warnings
from contextlib import suppress
from types import SimpleNamespace

import bad_inputs
import numpy as np
import pandas as pd
import pytest
from scipy.stats import mannwhitneyu

import cfair
from cfair.errors import DataError, ModelWarning, SeparationWarning, SmallGroupWarning

pytest.importorskip("sklearn")

from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

TREE = DecisionTreeClassifier(min_samples_leaf=15)
SMALL_FOREST = RandomForestClassifier(n_estimators=10, min_samples_leaf=5)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small fits are slower with threads, and far slower where other work has the processors."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield


def table(n=900, seed=1):
    """The usual cohort, with sites, weights, and a text feature that says something."""
    rng = np.random.default_rng(seed + 100)
    t = bad_inputs.cohort(n, seed)
    t["site"] = rng.integers(0, 30, n)
    t["w"] = rng.integers(1, 4, n)
    t["smoker"] = np.where(rng.random(n) < 0.3 + 0.3 * t["y"], "yes", "no")
    return t


T = table()


def fit(data=T, *, groups=("sex", "race"), features=("age", "smoker", "sex"), **options):
    return cfair.fit_and_audit(
        data, outcome="y", groups=list(groups), features=list(features), **options
    )


def two(train=T[:600], test=T[600:], **options):
    return fit(None, train=train, test=test, **options)


def said(found):
    """What was done, as it is printed but on one line: printing takes longer than fitting."""
    return " | ".join(f"{name} {text}" for name, text in found.facts)


@pytest.fixture(scope="module")
def result():
    return fit()


# -- the audit ------------------------------------------------------------------------------------


def test_rates_and_gaps_are_those_of_an_audit_of_the_held_out_predictions(result):
    held_out = T.iloc[result.test_rows].assign(p=result.risk)
    observed = cfair.Audit(
        held_out, outcome="y", score="p", cutoff=0.5, groups=["sex", "race"]
    ).observed()
    for name in ("rates", "marginals", "disparities"):
        pd.testing.assert_frame_equal(getattr(result, name), getattr(observed, name))
    pd.testing.assert_frame_equal(result.observed.contrasts(), observed.contrasts())
    pd.testing.assert_frame_equal(result.to_frame(), result.rates)


def test_auc_is_the_share_of_pairs_in_the_right_order(result):
    held_out = T.iloc[result.test_rows]
    quality = result.performance
    auc = {
        "F & Black": quality.rates.query("metric == 'auc' and group == 'F & Black'"),
        "race: Other": quality.marginals.query("metric == 'auc' and level == 'Other'"),
        "all": quality.overall.query("metric == 'auc'"),
    }
    rows = {
        "F & Black": (held_out["sex"] == "F") & (held_out["race"] == "Black"),
        "race: Other": held_out["race"] == "Other",
        "all": held_out["y"] >= 0,
    }
    for name, chosen in rows.items():
        y, p = held_out["y"][chosen], result.risk[chosen]
        u = mannwhitneyu(p[y == 1], p[y == 0]).statistic
        share = u / ((y == 1).sum() * (y == 0).sum())
        assert auc[name]["estimate"].item() == pytest.approx(share, abs=1e-12)


def test_the_audit_of_held_out_rows_can_be_asked_more(result):
    more = result.audit.counterfactual("d ~ sex * race + fitted_risk + age")
    assert more.cohort.n_used == len(result.test_rows)


def test_a_group_without_held_out_events_has_no_rate_and_no_area():
    t = T.copy()
    t.loc[(t["sex"] == "M") & (t["race"] == "Other"), "y"] = 0
    found = fit(t)
    row = found.rates.query("metric == 'tpr' and group == 'M & Other'").iloc[0]
    assert np.isnan(row["estimate"])
    assert row["note"] == "no events"
    quality = found.performance.rates.query("metric == 'auc' and group == 'M & Other'")
    assert np.isnan(quality["estimate"].item())
    assert any("TPR is undefined in M & Other (no events)" in note for note in found.notes)


# -- the split ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "held_out"), [(0.3, 270), (0.25, 225), (100, 100)])
def test_rows_are_trained_on_or_held_out_and_outcome_and_group_balanced(size, held_out):
    found = fit(test_size=size, model=TREE)
    rows = np.concatenate([found.train_rows, found.test_rows])
    assert np.array_equal(np.sort(rows), np.arange(900))
    assert len(found.test_rows) == held_out
    cells = T.groupby(["sex", "race", "y"]).size()
    here = T.iloc[found.test_rows].groupby(["sex", "race", "y"]).size()
    assert (here - cells * held_out / 900).abs().max() < 1
    assert "balanced by outcome and group; seed 0" in said(found)


def test_a_row_alone_in_its_cell_is_balanced_by_outcome():
    t = T.copy()
    t.loc[5, "race"] = "Unknown"
    found = fit(t, model=TREE)
    assert "balanced by outcome and group (1 row alone in a cell aside)" in said(found)


def test_few_rows_are_balanced_by_outcome_only():
    found = fit(T[:60], test_size=6, model=TREE, features=["age"])
    assert T["y"].iloc[found.test_rows].sum() == round(T["y"][:60].mean() * 6)
    assert "balanced by outcome: too few rows to balance groups" in said(found)


@pytest.mark.parametrize("seed", [0, 1])
def test_clusters_are_never_split(seed):
    found = fit(cluster="site", seed=seed, model=TREE)
    sites = [set(T["site"].iloc[rows]) for rows in (found.train_rows, found.test_rows)]
    assert not sites[0] & sites[1]
    assert len(sites[1]) == 9
    assert found.observed.cohort.n_clusters == 9
    assert "by whole clusters of site: 21 and 9" in said(found)


def test_the_same_seed_gives_the_same_numbers_and_leaves_no_trace():
    np.random.seed(7)
    before = np.random.get_state(), random.getstate()
    one = fit(model=SMALL_FOREST, upsample=True, seed=3)
    after = np.random.get_state(), random.getstate()
    assert np.array_equal(before[0][1], after[0][1])
    assert before[0][2:] == after[0][2:]
    assert before[1] == after[1]
    np.random.seed(8)
    again = fit(model=SMALL_FOREST, upsample=True, seed=3)
    pd.testing.assert_series_equal(one.risk, again.risk)
    assert np.array_equal(one.copies, again.copies)
    assert one.facts == again.facts
    assert not np.array_equal(fit(model=TREE, seed=4).test_rows, one.test_rows)


def test_a_seed_of_none_is_drawn_and_can_be_used_again():
    found = fit(model=TREE, seed=None)
    seed = int(said(found).split("; seed ")[1].split()[0])
    pd.testing.assert_series_equal(fit(model=TREE, seed=seed).risk, found.risk)


def test_risks_are_on_the_callers_index():
    labels = np.random.default_rng(0).permutation(900) // 2  # each label twice
    found = fit(T.set_axis(labels))
    plain = fit()
    assert found.risk.index.tolist() == labels[found.test_rows].tolist()
    assert np.array_equal(found.risk, plain.risk)
    assert np.array_equal(found.train_rows, plain.train_rows)


@pytest.mark.parametrize("library", ["polars", "pyarrow", "duckdb", "dict"])
def test_frames_of_any_library_give_the_same(library, result):
    if library == "dict":
        data = {name: T[name].to_numpy() for name in T}
    else:
        module = pytest.importorskip(library)
        if library == "polars":
            data = module.DataFrame(T.to_dict("list"))
        elif library == "pyarrow":
            data = module.table(T.to_dict("list"))
        else:
            data = module.from_df(T.astype(dict.fromkeys(("sex", "race", "smoker"), object)))
    found = fit(data)
    assert found.risk.to_numpy() == pytest.approx(result.risk.to_numpy(), abs=1e-12)
    assert found.facts == result.facts
    assert found.rates.equals(result.rates)


def test_roles_may_be_arrays(result):
    found = cfair.fit_and_audit(
        T.drop(columns=["y", "race"]),
        outcome=T["y"].to_numpy(),
        groups=["sex", T["race"]],
        features=["age", "smoker", "sex"],
    )
    assert np.array_equal(found.risk, result.risk)
    assert np.array_equal(found.rates["estimate"], result.rates["estimate"], equal_nan=True)


def test_the_callers_table_stays_and_the_result_is_frozen(result):
    t = T.copy()
    fit(t, model=TREE, upsample=True)
    pd.testing.assert_frame_equal(t, T)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.model = None
    for values in (result.train_rows, result.test_rows, result.copies):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1


# -- two tables -----------------------------------------------------------------------------------


def test_two_tables_are_taken_as_they_are():
    found = two()
    assert np.array_equal(found.train_rows, np.arange(600))
    assert np.array_equal(found.test_rows, np.arange(300))
    assert found.risk.index.equals(T.index[600:])
    assert "two tables, as given" in said(found)
    assert "train 600 rows, 600 used (none dropped); test 300 rows" in said(found)


def test_labels_and_clusters_in_both_tables_are_warned_of():
    with pytest.warns(ModelWarning, match="50 labels of the index are in both tables, such as 600"):
        found = two(train=T[:650])
    assert found.notes[0].startswith("50 labels of the index")
    with pytest.warns(ModelWarning, match=r"30 clusters \(site\) have rows in both tables"):
        two(cluster="site")
    few = T.assign(site=np.where(T.index < 600, T.index % 8, np.where(T.index < 610, 3, T.index)))
    with pytest.warns(ModelWarning, match=r"^<11 clusters \(site\) have rows in both tables"):
        two(few[:600], few[600:], cluster="site", groups=["sex"], suppress_below=11)


def test_rows_that_are_merely_numbered_are_not_the_same_patients():
    two(test=T[600:].reset_index(drop=True))


@pytest.mark.filterwarnings("ignore::cfair.errors.CutoffWarning")
@pytest.mark.parametrize("coarse", [False, True])
def test_a_copy_of_the_training_table_is_warned_of(coarse):
    train = T[["y", "sex", "race"]] if coarse else T
    copy = train.sample(frac=1, random_state=1).reset_index(drop=True)
    with pytest.warns(ModelWarning, match="900 of 900 rows of test have the same values as a row"):
        found = two(train, copy, features=["sex"])
    assert "that were trained on are not held out" in found.notes[0]


def test_many_training_rows_among_the_held_out_are_warned_of():
    mixed = pd.concat([T[540:600], T[600:]], ignore_index=True).astype({"site": float})
    with pytest.warns(ModelWarning, match="60 of 360 rows of test .* in all 9 columns of both"):
        two(train=T[:600].assign(more=1), test=mixed)


def test_rows_of_a_few_categories_are_equal_by_chance():
    few = T[["y", "sex", "race"]].assign(age=T["age"].round(-1))
    two(few[:600], few[600:].reset_index(drop=True), features=["age", "sex"])


def test_a_held_out_table_drops_its_own_rows():
    test = T[600:].copy()
    test.loc[650:659, "race"] = None
    found = two(test=test, missing="drop")
    assert np.array_equal(found.test_rows, np.delete(np.arange(300), np.arange(50, 60)))
    assert "test 300 rows, 290 used (10 dropped: race missing)" in said(found)


# -- what is learnt -------------------------------------------------------------------------------


def test_the_logistic_regression_is_that_of_statsmodels():
    import statsmodels.formula.api as smf

    found = fit(features=["age", "race", "sex"])
    logit = smf.logit("y ~ age + race + sex", T.iloc[found.train_rows]).fit(disp=0)
    expected = logit.predict(T.iloc[found.test_rows])
    # scikit-learn stops at a gradient of 1e-8
    assert found.risk.to_numpy() == pytest.approx(expected.to_numpy(), abs=1e-6)


@pytest.mark.parametrize("model", ["logistic", TREE])
def test_nothing_is_learnt_from_held_out_rows(model):
    t = T.astype({"age": float})
    t.loc[::9, "age"] = np.nan
    t.loc[::11, "smoker"] = None
    one = fit(t, model=model, class_weight="balanced")
    other = t.copy()
    rows = other.index[one.test_rows]
    other.loc[rows, "age"] = 1000.0
    other.loc[rows[:50], "age"] = np.nan
    other.loc[rows, "smoker"] = "never asked"
    with pytest.warns(ModelWarning, match="never asked"):
        two = fit(other, model=model, class_weight="balanced")
    assert np.array_equal(two.train_rows, one.train_rows)
    X = pd.DataFrame({"age": [50.0, 60.0, np.nan], "smoker": "yes", "sex": ["F", "M", "F"]})
    assert np.array_equal(one.model.predict_proba(X), two.model.predict_proba(X))
    assert not np.array_equal(one.risk, two.risk)


def test_what_is_filled_in_is_counted():
    t = T.copy()
    t.loc[::9, "age"] = np.nan
    t.loc[::11, "smoker"] = None
    found = fit(t)
    train, test = t.iloc[found.train_rows], t.iloc[found.test_rows]
    assert found.imputed["column"].tolist() == ["age", "smoker"]
    assert found.imputed["value"].tolist() == [train["age"].median(), train["smoker"].mode()[0]]
    for part, name in ((train, "train"), (test, "test")):
        assert found.imputed[name].tolist() == part[["age", "smoker"]].isna().sum().tolist()
    n = found.imputed.loc[0, ["train", "test"]].tolist()
    assert f"age = {train['age'].median():.4g} in {n[0]} training and {n[1]} held-out" in said(
        found
    )
    told = fit(t, indicate_missing=True)
    assert "on 7 columns" in said(told)  # age, two of smoker, two of sex, two indicators
    assert "on 5 columns" in said(found)


def test_upsampling_repeats_training_rows_only():
    plain, found = fit(), fit(upsample=True)
    assert np.array_equal(found.test_rows, plain.test_rows)
    assert np.array_equal(plain.copies, np.ones(len(plain.train_rows)))
    y = T["y"].to_numpy()[found.train_rows]
    assert found.copies.min() == 1
    assert found.copies[y == 1].sum() == found.copies[y == 0].sum() == (y == 0).sum()
    assert found.observed.counts["events"][-1] == T["y"].iloc[found.test_rows].sum()
    assert len(found.risk) == len(found.test_rows) == 270

    repeated = T.iloc[np.repeat(found.train_rows, found.copies)]
    X = pd.get_dummies(repeated[["age", "smoker", "sex"]]).astype(float)
    by_hand = LogisticRegression(C=np.inf, tol=1e-9, max_iter=10_000)
    by_hand = make_pipeline(StandardScaler(), by_hand).fit(X, repeated["y"])
    new = pd.get_dummies(T.iloc[found.test_rows][["age", "smoker", "sex"]]).astype(float)
    assert found.risk.to_numpy() == pytest.approx(by_hand.predict_proba(new)[:, 1], abs=1e-6)
    assert f"upsampled: {int((found.copies - 1).sum())} copies of events added" in said(found)
    assert any("not calibrated" in note for note in found.notes)


def test_non_events_are_repeated_where_they_are_rarer():
    found = fit(T.assign(y=1 - T["y"]), upsample=True, model=TREE)
    y = 1 - T["y"].to_numpy()[found.train_rows]
    assert (found.copies[y == 1] == 1).all()
    assert found.copies[y == 0].sum() == (y == 1).sum()
    assert "copies of non-events added" in said(found)


def test_balanced_class_weights_are_those_of_scikit_learn():
    found = fit(model=LogisticRegression(tol=1e-8), class_weight="balanced")
    own = fit(model=LogisticRegression(tol=1e-8, class_weight="balanced"))
    assert found.risk.to_numpy() == pytest.approx(own.risk.to_numpy(), abs=1e-6)
    assert "weighted to count alike" in said(found)


def test_weights_count_in_the_fit_and_in_the_audit():
    train, test = T[:600].copy(), T[600:]
    repeated = train.loc[train.index.repeat(train["w"])].reset_index(drop=True)
    found, expected = two(train, test, weights="w"), two(repeated, test.reset_index(drop=True))
    # the median and the scale are without weights, and do not matter to a logistic regression
    assert found.risk.to_numpy() == pytest.approx(expected.risk.to_numpy(), abs=1e-6)
    observed = cfair.Audit(
        test.assign(p=found.risk),
        outcome="y", score="p", cutoff=0.5, groups=["sex", "race"], weights="w",
    ).observed()  # fmt: skip
    pd.testing.assert_frame_equal(found.rates, observed.rates)


def test_balanced_weights_are_of_people_where_rows_are_weighted():
    train = T[:600].copy()
    repeated = train.loc[train.index.repeat(train["w"])].reset_index(drop=True)
    options = {"class_weight": "balanced", "model": LogisticRegression(C=np.inf, tol=1e-8)}
    found = two(train, weights="w", **options)
    expected = two(repeated, T[600:].reset_index(drop=True), **options)
    assert found.risk.to_numpy() == pytest.approx(expected.risk.to_numpy(), abs=1e-6)


def test_rows_of_weight_0_are_not_fitted_on():
    t = T.assign(w=np.where(np.arange(900) % 4 == 0, 0, T["w"]))
    found = fit(t, weights="w", upsample=True)
    zero = t["w"].to_numpy()[found.train_rows] == 0
    assert (found.copies[zero] == 0).all()
    assert (found.copies[~zero] >= 1).all()
    other = t.copy()
    other.loc[other.index[found.train_rows[zero]], "smoker"] = "yes"
    again = fit(other, weights="w", upsample=True)
    assert again.risk.to_numpy() == pytest.approx(found.risk.to_numpy(), abs=1e-6)


def test_levels_that_no_training_row_has_are_counted():
    test = T[600:].copy()
    test.loc[600:602, "smoker"] = "pipe"
    with pytest.warns(ModelWarning, match=r"smoker: 3 held-out rows with a level .*\(pipe\)"):
        found = two(test=test)
    X = found.model.named_steps["prepare"].transform(
        pd.DataFrame({"age": [50.0], "smoker": ["pipe"], "sex": ["F"]})
    )
    names = found.model.named_steps["prepare"].get_feature_names_out()
    assert [x for x, n in zip(X[0], names, strict=True) if "smoker" in n] == [0, 0]
    assert any("pipe" in note for note in found.notes)


def test_constant_features_are_left_out_and_said():
    with pytest.warns(ModelWarning, match="one value only in the training rows: site"):
        found = fit(T.assign(site=3), features=["age", "site"])
    assert found.model.n_features_in_ == 1
    assert any("site" in note for note in found.notes)


def test_group_attributes_are_categories_and_said():
    t = T.assign(race=T["race"].map({"Black": 1, "Other": 2, "White": 3}))
    found = fit(t, features=["age", "race"])
    assert "on 4 columns" in said(found)
    assert "attributes used as features: race" in said(found)
    assert "attributes used as features: none" in said(fit(features=["age"]))
    same = fit(features=["age", "race"])
    assert found.risk.to_numpy() == pytest.approx(same.risk.to_numpy(), abs=1e-6)


def test_missing_groups_are_refused_dropped_or_a_level():
    t = T.copy()
    t.loc[:29, "race"] = None
    with pytest.raises(DataError, match=r"missing values in 'race' \(30 rows\)"):
        fit(t)
    dropped = fit(t, missing="drop", features=["age", "race"])
    assert len(dropped.train_rows) + len(dropped.test_rows) == 870
    assert "900 rows, 870 used (30 dropped: race missing)" in said(dropped)
    level = fit(t, missing="level", features=["age", "race"])
    assert len(level.train_rows) + len(level.test_rows) == 900
    assert "M & missing" in level.observed.cohort.groups.names
    assert len(level.imputed) == len(dropped.imputed) == 0
    assert "on 5 columns" in said(level)


def test_a_separated_outcome_is_warned_of():
    t = T.assign(ward=np.where(T["y"] * (T["age"] > 60) == 1, "icu", "other"))
    with pytest.warns(SeparationWarning, match="separated by ward_"):
        found = fit(t, features=["age", "ward"])
    assert any("separated" in note for note in found.notes)


def test_groups_that_one_part_lacks_are_said():
    black = T["race"] == "Black"
    train, test = T[:600][~black[:600]], T[600:][T[600:]["race"] != "Other"]
    found = two(train, test, features=["age"])
    notes = " ".join(found.notes)
    assert "F & Black, M & Black: no training rows" in notes
    assert "F & Other, M & Other: no held-out rows: not audited" in notes


def test_the_minimum_group_size_is_of_held_out_rows():
    n = T.iloc[fit(model=TREE).test_rows].groupby(["sex", "race"]).size()
    smallest, least = n.idxmin(), int(n.min())
    with pytest.warns(SmallGroupWarning, match=rf"{' & '.join(smallest)} \({least} rows\)"):
        found = fit(model=TREE, min_group_size=least + 1)
    assert any("read its rates with care" in note for note in found.notes)
    left = fit(model=TREE, min_group_size=least + 1, small_groups="drop")
    assert left.observed.cohort.n_used < 270 == len(left.risk)


# -- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("random_forest", "RandomForestClassifier"),
        ("decision_tree", "DecisionTreeClassifier"),
        ("gradient_boosting", "HistGradientBoostingClassifier"),
        ("neural_network", "MLPClassifier"),
    ],
)
@pytest.mark.filterwarnings("ignore:MLPClassifier")
def test_models_by_name(name, kind):
    found = fit(T[:300], model=name, features=["age"])
    assert type(found.model.named_steps["model"]).__name__ == kind
    assert found.risk.between(0, 1).all()


def test_an_estimator_is_copied_and_seeded():
    forest = RandomForestClassifier(n_estimators=5)
    found = fit(model=forest, seed=5)
    assert not hasattr(forest, "estimators_")
    assert forest.random_state is None
    assert isinstance(found.model.named_steps["model"].random_state, int)
    assert "RandomForestClassifier(n_estimators=5), on 5 columns" in said(found)


def test_a_pipeline_prepares_for_itself():
    pipeline = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["smoker", "sex"]), remainder="passthrough"),
        HistGradientBoostingClassifier(max_iter=5),
    )
    t = T.copy()
    t.loc[::9, "age"] = np.nan
    found = fit(t, model=pipeline)
    X = t[["age", "smoker", "sex"]]
    seed = found.model[-1].random_state
    own = pipeline.set_params(histgradientboostingclassifier__random_state=seed)
    own = own.fit(X.iloc[found.train_rows], t["y"].iloc[found.train_rows])
    assert np.array_equal(found.risk, own.predict_proba(X.iloc[found.test_rows])[:, 1])
    assert "are left to the pipeline" in said(found)
    assert found.imputed["value"].tolist() == [None]


def test_a_pipeline_may_be_prepared_for():
    scaled = make_pipeline(StandardScaler(), GaussianNB())
    assert fit(model=scaled, prepare=True).risk.to_numpy() == pytest.approx(
        fit(model=GaussianNB()).risk.to_numpy(), abs=1e-6
    )


def test_what_an_estimator_warns_of_is_said():
    with pytest.warns(ModelWarning, match="ConvergenceWarning"):
        found = fit(model=LogisticRegression(max_iter=1))
    assert any(note.startswith("LogisticRegression: ConvergenceWarning") for note in found.notes)


def test_lightgbm_is_used_where_it_is_installed(monkeypatch):
    class LGBMClassifier(DecisionTreeClassifier):
        def __init__(self, verbose=1, random_state=None, min_samples_leaf=20):
            super().__init__(random_state=random_state, min_samples_leaf=min_samples_leaf)
            self.verbose = verbose

    monkeypatch.setitem(sys.modules, "lightgbm", SimpleNamespace(LGBMClassifier=LGBMClassifier))
    found = fit(model="lightgbm")
    assert found.model.named_steps["model"].verbose == -1
    assert "LightGBM, on 5 columns" in said(found)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ImportError, match="pip install lightgbm"):
        fit(model="lightgbm")


def test_scikit_learn_is_asked_for_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"fit_and_audit needs scikit-learn.*cfair\[learners\]"):
        fit()


# -- print ----------------------------------------------------------------------------------------


def test_the_print_says_what_was_done(result):
    lines = str(result).splitlines()
    assert lines[0] == "Fitted risk model, audited on held-out rows"
    for line in (
        "model        logistic regression by maximum likelihood, on 5 columns",
        "features     age, smoker, sex; attributes used as features: sex",
        "rows read    900 rows, 900 used (none dropped)",
        "imputed      nothing: no feature has a missing value",
        "held out     270 rows, 270 used (none dropped)",
    ):
        assert line in lines
    header = next(line for line in lines if line.startswith("sex  race"))
    assert header.split() == ["sex", "race", "n", "events", "AUC", "TPR", "FPR", "accuracy"]
    row = next(line for line in lines if line.startswith("race: Black"))
    auc = result.performance.marginals.query("metric == 'auc' and level == 'Black'")
    assert f"{auc['estimate'].item():.3f} [" in row
    assert any(line.startswith("largest gap  TPR: ") for line in lines)
    assert "<div" in result._repr_html_()


def test_the_call_is_kept_without_data():
    found = fit(model=LogisticRegression(C=0.5), seed=3)
    assert found.call == (
        f"cfair.fit_and_audit(data=<{len(T):,} x {T.shape[1]} table>, outcome='y', "
        "groups=['sex', 'race'], features=['age', 'smoker', 'sex'], "
        "model=<LogisticRegression>, seed=3)"
    )


def test_the_report_says_how_many_were_read_and_that_its_rows_are_held_out(result, tmp_path):
    pytest.importorskip("jinja2")
    page = result.audit.report(tmp_path / "r.html", result).read_text(encoding="utf-8")
    flow = " ".join(re.sub("<[^>]+>", " ", page.partition('class="flow"')[2]).split())
    assert (
        "held out 270 rows that the model has not seen; read 900 rows, 900 used (none dropped); "
        "trained on 630 left out 0 none used 270"
    ) in flow
    assert "rows of the table" not in flow
    own = result.audit.report(tmp_path / "own.html").read_text(encoding="utf-8")
    assert "rows of the table" in own  # which knows of no others


def test_a_treatment_is_handed_on_to_the_audit():
    given = T.assign(d=np.where(T["d"] == 1, "drug", "none"))
    found = fit(given, treatment="d", treatment_event="drug")
    pd.testing.assert_series_equal(found.risk, fit(given).risk)
    mine = found.audit.counterfactual("~ sex + race + age + fitted_risk")
    named = fit(T).audit.counterfactual("d ~ sex + race + age + fitted_risk")
    pd.testing.assert_frame_equal(mine.rates, named.rates)
    with pytest.raises(DataError, match="'d' has two roles: treatment and features.*left side of"):
        fit(treatment="d", features=["age", "d"])


def test_small_counts_are_masked_in_all_that_is_said_of_a_fit(tmp_path):
    few = T.copy()
    few.loc[few.index[:12], "age"] = np.nan
    few.loc[few.index[20:23], "smoker"] = "once"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = two(few[20:], few[:20].assign(smoker="never"), seed=2)
        found = two(few[20:], few[:20].assign(smoker="never"), seed=2, suppress_below=30)
        rare = two(T[:300].assign(y=(T["y"][:300].cumsum() <= 9) * T["y"][:300]), suppress_below=11)
    assert "age = " in said(plain)
    assert "in 0 training and 12 held-out rows" in said(plain)
    assert "in 0 training and <30 held-out rows" in said(found)
    assert any("20 held-out rows with a level" in note for note in plain.notes)
    assert any("<30 held-out rows with a level" in note for note in found.notes)
    assert found.observed.cohort.suppress_below == 30
    assert "disclosure   counts below 30 masked" in str(found.observed)
    assert "disclosure   counts below 30 masked" in str(found)
    assert re.search(r"^F +Black .*masked", str(found), re.MULTILINE)
    assert "trained on 300 rows, events: masked" in said(rare)
    with pytest.raises(ValueError, match="suppress_below must be a whole number"):
        fit(suppress_below=0)


def test_one_group_has_rates_and_nothing_to_compare():
    found = fit(T[T["sex"] == "F"], groups=["sex"], features=["age"])
    assert "one group only: nothing to compare" in str(found)


# -- refusals -------------------------------------------------------------------------------------

DATES = T.assign(admitted=pd.date_range("2020-01-01", periods=900))
REFUSED = {
    "give either data": lambda: fit(T, train=T),
    "give either data=, one table": lambda: fit(None, train=T),
    "give either data=,": lambda: fit(None),
    "train and test are the same table": lambda: two(T, T),
    "outcome: with train= and test= every role is the name": lambda: cfair.fit_and_audit(
        train=T[:600], test=T[600:], outcome=T["y"], groups="sex", features="age"
    ),
    "test: feature 'age' is not a column of the table. The nearest names: 'ages'": lambda: two(
        test=T[600:].rename(columns={"age": "ages"})
    ),
    "test: groups 'race' is not a column": lambda: two(test=T[600:].drop(columns="race")),
    "feature 'age' is floating in train, but text in test": lambda: two(
        test=T[600:].assign(age="old")
    ),
    "test: outcome column 'y' has no events": lambda: two(test=T[600:].assign(y=0)),
    "train: outcome column 'y' has no events": lambda: two(train=T[:600].assign(y=0)),
    "feature 'agee' is not a column of the table. The nearest names: 'age'": lambda: fit(
        features=["agee"]
    ),
    "column 'y' has two roles: outcome and features. A model that is given the outcome": (
        lambda: fit(features=["age", "y"])
    ),
    "column 'w' has two roles: weights and features": lambda: fit(features=["w"], weights="w"),
    "column 'site' has two roles: cluster and features": lambda: fit(
        features=["site"], cluster="site"
    ),
    "features names 'age' more than once": lambda: fit(features=["age", "age"]),
    "features is empty": lambda: fit(features=[]),
    "features must be names of columns": lambda: fit(features=[T["age"]]),
    "feature 'age': all 630 training rows have a missing value": lambda: fit(T.assign(age=np.nan)),
    r"all features \(site\) have one value only in the 630 training rows": lambda: fit(
        T.assign(site=1), features=["site"]
    ),
    r"feature 'admitted' must be numbers or categories, but is dates or times": lambda: fit(
        DATES, features=["admitted"]
    ),
    "feature 'age' has infinite values in 1 row": lambda: fit(
        T.assign(age=T["age"].where(T.index != 3, np.inf))
    ),
    "test_size=900 holds out 900 of 900 rows": lambda: fit(test_size=900),
    r"test_size=0.99 holds out 30 of 30 clusters \(site\)": lambda: fit(
        test_size=0.99, cluster="site"
    ),
    r"test_size=0.3 holds out 1 of 2 clusters \(site\), and .* held-out clusters or more": (
        lambda: fit(T.assign(site=T.index % 2), cluster="site")
    ),
    "held-out rows: cluster column 'site' has only one value": lambda: two(
        test=T[600:].assign(site=77), cluster="site"
    ),
    r"model='logistic' has \d+ parameters, but there are 84 training rows": lambda: fit(
        T[:120].assign(name=[f"p{i}" for i in range(120)]), features=["age", "name"]
    ),
    "model: estimator is the class GaussianNB": lambda: fit(model=GaussianNB),
    "model: LinearRegression has no predict_proba": lambda: fit(model=LinearRegression()),
    "model: estimator must be a scikit-learn classifier": lambda: fit(model=3),
    "sampling weights are declared, but KNeighborsClassifier takes none": lambda: fit(
        model=KNeighborsClassifier(), weights="w"
    ),
    "class_weight='balanced' weights the rows, but KNeighborsClassifier takes no": lambda: fit(
        model=KNeighborsClassifier(), class_weight="balanced"
    ),
    r"Pipeline\(StandardScaler, GaussianNB\): the estimator stopped \(ValueError": lambda: fit(
        model=make_pipeline(StandardScaler(), GaussianNB())
    ),
    r"cutoff must be a number in \[0, 1\]": lambda: fit(cutoff=30),
    "column 'y' must be 0/1": lambda: fit(T.assign(y=np.where(T["y"] == 1, "died", "alive"))),
    "the 1 held-out rows have no events, and both outcomes are needed": lambda: fit(
        T[:60], features=["age"], test_size=1, seed=1
    ),
}
with suppress(ImportError):  # scikit-learn has it since 1.6
    from sklearn.frozen import FrozenEstimator

    REFUSED[r"model: Pipeline\(FrozenEstimator.* is fitted already"] = lambda: fit(
        model=make_pipeline(FrozenEstimator(GaussianNB()))
    )


@pytest.mark.parametrize("message", REFUSED)
@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
def test_refusals_say_what_is_wrong(message):
    with pytest.raises(DataError, match=message):
        REFUSED[message]()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "svm"}, "model must be one of 'logistic', .* not 'svm'"),
        ({"test_size": 0}, "test_size must be a share between 0 and 1"),
        ({"test_size": 1.0}, "test_size must be a share"),
        ({"test_size": True}, "test_size must be a share"),
        ({"class_weight": "heavy"}, "class_weight must be one of None, 'balanced'"),
        ({"class_weight": "balanced", "upsample": True}, "Choose one of them"),
        ({"upsample": 1}, "upsample must be True or False"),
        ({"prepare": "yes"}, "prepare must be True or False"),
        ({"missing": "ignore"}, "missing must be one of"),
        ({"min_group_size": 0}, "min_group_size must be a whole number"),
        ({"level": 95}, "level must be a confidence level"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        fit(**options)


def test_an_outcome_of_text_needs_its_event(result):
    found = fit(T.assign(y=np.where(T["y"] == 1, "died", "alive")), outcome_event="died")
    assert np.array_equal(found.risk, result.risk)
    assert "outcome      y, event died" in str(found)
