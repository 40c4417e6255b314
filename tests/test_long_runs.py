"""How long replicates of learners will take is said before they are begun, if it is long."""

from __future__ import annotations

import warnings

import bad_inputs
import pytest

import cfair
from cfair.analyses import replicates as module
from cfair.analyses.replicates import check_replicates
from cfair.errors import CfairWarning

pytest.importorskip("sklearn")
from sklearn.tree import DecisionTreeClassifier

FORMULA = "d ~ sex + age + s"


def wanted(**options):
    defaults = {"bootstrap": "auto", "resamples": None, "permutations": None, "n_boot": 0}
    more = {"n_perm": 0, "seed": 0, "n_jobs": 1, "exact": False, "progress": False}
    return check_replicates(**{**defaults, **more, **options})


def test_a_long_run_is_told_with_its_length_and_what_to_do():
    with pytest.warns(CfairWarning, match=r"700 replicates of models that took 6 s.* 70 minutes"):
        wanted(n_boot=500, n_perm=200).warn_if_long(6.0)
    with pytest.warns(CfairWarning, match=r"35 minutes on 2 workers\. n_jobs=-1.*progress=True"):
        wanted(n_boot=500, n_perm=200, n_jobs=2).warn_if_long(6.0)
    with pytest.warns(CfairWarning, match=r"2\.8 hours on 1 worker\. "):
        wanted(n_boot=1000).warn_if_long(10.0)
    with pytest.warns(CfairWarning, match="up to 90 s on"):
        wanted(n_perm=9).warn_if_long(10.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wanted(n_boot=500, n_perm=200).warn_if_long(60 / 700)
        wanted().warn_if_long(1e9)
        wanted(n_boot=500, bootstrap=None).warn_if_long(1e9)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.25, "took 0.25 s"), (99.6, "took 100 s"), (230.0, "took 4 minutes")]
)
def test_the_time_of_the_models_is_in_plain_numbers(seconds, words):
    with pytest.warns(CfairWarning, match=f"models that {words} on"):
        wanted(n_boot=1000).warn_if_long(seconds)


@pytest.mark.filterwarnings("ignore::cfair.errors.ModelWarning")
@pytest.mark.filterwarnings("ignore::cfair.errors.SmallGroupWarning")
@pytest.mark.parametrize("verb", ["small_subgroups", "group_intervention"])
def test_other_verbs_tell_it_too(verb, monkeypatch):
    monkeypatch.setattr(module, "LONG", 0.0)
    audit = cfair.Audit(
        bad_inputs.cohort(400), outcome="y", score="s", cutoff=0.5, groups="sex", treatment="d"
    )
    tree = cfair.Learner(DecisionTreeClassifier(min_samples_leaf=20), columns=["age"])
    options = {"outcome_model": tree, "membership": "~ age", "n_boot": 2, "seed": 1, "folds": 2}
    given = [FORMULA] if verb == "small_subgroups" else []
    with pytest.warns(CfairWarning, match="2 replicates of models that took"):
        getattr(audit, verb)(*given, **options)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        getattr(audit, verb)(*given, **{**options, "outcome_model": "~ age"})
    assert not any("replicates of models" in str(w.message) for w in heard)


def test_it_is_told_of_learners_alone(monkeypatch):
    monkeypatch.setattr(module, "LONG", 0.0)
    audit = cfair.Audit(
        bad_inputs.cohort(300), outcome="y", score="s", cutoff=0.5, groups="sex", treatment="d"
    )
    tree = cfair.Learner(DecisionTreeClassifier(min_samples_leaf=20), columns=["sex", "age", "s"])
    with pytest.warns(CfairWarning, match="2 replicates of models that took"):
        audit.counterfactual(tree, n_boot=2, seed=1)
    for model, options in ((FORMULA, {"n_boot": 2}), (tree, {})):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            audit.counterfactual(model, seed=1, **options)
        assert not any("replicates of models" in str(w.message) for w in heard)
