"""Roles: names, Series and arrays, conflicts, and what a declaration refuses."""

from __future__ import annotations

import bad_inputs as bad
import numpy as np
import pandas as pd
import polars as pl
import pytest

from cfair.cohort import build_cohort, declare, make_cohort
from cfair.errors import CutoffWarning, DataError
from cfair.roles import Roles

GROUPS = ["sex", "race"]


def roles(**changes):
    values = {"outcome": "y", "groups": GROUPS, "score": "s", "cutoff": 0.5, "treatment": "d"}
    return Roles(**{**values, **changes})


def same(one, other):
    """Whether two cohorts hold the same numbers."""
    assert np.array_equal(one.y, other.y)
    assert np.array_equal(one.s, other.s)
    assert (one.d is None) == (other.d is None)
    assert one.d is None or np.array_equal(one.d, other.d)
    assert one.groups.labels == other.groups.labels
    assert np.array_equal(one.groups.codes, other.groups.codes)


@pytest.mark.parametrize("changes", [{"missing": "omit"}, {"missing": None}, {"missing": True}])
def test_bl55_unknown_rule_for_missing_values(changes):
    with pytest.raises(ValueError, match=r"missing must be one of 'raise', 'drop', 'level'"):
        roles(**changes)


def test_bl55_unknown_options():
    with pytest.raises(ValueError, match="small_groups must be one of 'warn', 'drop', not 'x'"):
        roles(small_groups="x")
    for size in (0, -1, 2.5, True, "5"):
        with pytest.raises(ValueError, match="min_group_size must be a whole number >= 1"):
            roles(min_group_size=size)
    with pytest.raises(TypeError):
        roles(**bad.bl55_unknown_keyword()[1])


def test_bl01_series_in_another_order():
    t, shuffled = bad.bl01_series_in_another_order()
    same(build_cohort(t, roles(groups=["sex", shuffled])), build_cohort(bad.cohort(), roles()))
    with pytest.raises(DataError, match="groups: the Series 'race' has 600 rows with index"):
        declare(t, roles(groups=["sex", shuffled.reset_index(drop=True).set_axis(range(1, 601))]))


@pytest.mark.parametrize("role", ["outcome", "score", "treatment", "prediction", "cluster"])
def test_bl01_arrays_in_place_of_names(role):
    t = bad.cohort().assign(call=lambda x: (x["s"] > 0.4).astype(int), site=np.arange(600) % 20)
    names = {
        "outcome": "y",
        "score": "s",
        "treatment": "d",
        "prediction": "call",
        "cluster": "site",
    }
    change = {"cutoff": None, "prediction": "call"} if role == "prediction" else {}
    expected = build_cohort(t, roles(**{**change, role: names[role]}))
    column = t[names[role]]
    for values in (column.to_numpy(), column.tolist(), column, pl.Series(column.to_numpy())):
        got = build_cohort(t, roles(**{**change, role: values}))
        same(got, expected)
        if role == "cluster":
            assert np.array_equal(got.cluster, expected.cluster)
    with pytest.raises(DataError, match=rf"{role} has 599 values, but the table has 600 rows"):
        declare(t, roles(**{**change, role: column.to_numpy()[1:]}))


@pytest.mark.parametrize("kind", ["array", "list", "series", "categorical"])
def test_an_array_as_the_only_group(kind):
    t = bad.cohort()
    if kind == "list":
        groups = [t["race"].tolist()]
    else:
        groups = {
            "array": t["race"].to_numpy(),
            "series": t["race"],
            "categorical": pd.Categorical(t["race"]),
        }[kind]
    cohort = build_cohort(t, roles(groups=groups))
    same(cohort, build_cohort(t, roles(groups="race")))
    assert cohort.groups.attributes == (("race",) if kind == "series" else ("group_1",))


def test_groups_as_a_frame_and_as_a_plain_string():
    t = bad.cohort()
    same(build_cohort(t, roles(groups=t[GROUPS])), build_cohort(t, roles()))
    assert declare(t, roles(groups=("sex", "race"))).columns == tuple(t.columns)
    assert build_cohort(t, roles(groups="sex")).groups.names == ("F", "M")


def test_names_of_arrays_do_not_hide_columns():
    t = bad.cohort().assign(outcome=5)
    cohort = build_cohort(t, roles(outcome=t["y"].to_numpy()))
    assert cohort.outcome_name == "outcome_array"
    assert "outcome_array" in declare(t, roles(outcome=t["y"].to_numpy())).columns
    with pytest.raises(DataError, match="the Series is called 'race', but the table has a column"):
        declare(t, roles(groups=["sex", t["race"].str.upper()]))
    gone = t["race"].where(t.index > 3)
    with pytest.raises(DataError, match="with other values"):
        declare(t, roles(groups=["sex", gone]))


@pytest.mark.parametrize(
    ("changes", "both"),
    [
        ({"groups": ["sex", "y"]}, "'y' has two roles: outcome and groups"),
        ({"treatment": "s"}, "'s' has two roles: score and treatment"),
        ({"treatment": "y"}, "'y' has two roles: outcome and treatment"),
        ({"score": "y"}, "'y' has two roles: outcome and score"),
        ({"groups": ["s"]}, "'s' has two roles: score and groups"),
        ({"prediction": "s"}, "'s' has two roles: score and prediction"),
        ({"cluster": "sex"}, "'sex' has two roles: cluster and groups"),
        ({"groups": ["sex", "sex"]}, "groups names column 'sex' twice"),
    ],
)
def test_a_column_in_two_roles(changes, both):
    with pytest.raises(DataError, match=both):
        declare(bad.cohort(), roles(**changes))


def test_a_series_in_two_roles():
    t = bad.cohort()
    with pytest.raises(DataError, match="'d' has two roles: outcome and treatment"):
        declare(t, roles(outcome=t["d"]))


@pytest.mark.parametrize("groups", [(), [], None, [None]])
def test_groups_are_needed(groups):
    with pytest.raises(DataError, match="groups must name one or more columns"):
        declare(bad.cohort(), roles(groups=groups))


@pytest.mark.parametrize("role", ["outcome", "score", "treatment", "cluster", "groups"])
def test_unknown_column_says_which_role(role):
    with pytest.raises(DataError, match=f"{role} 'rase' is not a column.*nearest.*'race'"):
        declare(bad.cohort(), roles(**{role: "rase"}))


@pytest.mark.parametrize("value", [1.5, len, object()])
def test_what_is_no_role(value):
    with pytest.raises(
        DataError, match="score must be the name of a column, a Series, or an array"
    ):
        declare(bad.cohort(), roles(score=value))


def test_bl26_duplicate_columns():
    t = bad.bl26_duplicate_columns()
    with pytest.raises(DataError, match="groups 'race': the table has 2 columns of this name"):
        declare(t, roles())
    assert build_cohort(t, roles(groups="sex")).n_used == 600
    with pytest.raises(DataError, match="2 columns"):
        make_cohort(declare(t, roles(groups="sex")), ["race"])


def test_empty_table():
    with pytest.raises(DataError, match=r"no rows \(0 rows, 6 columns\)"):
        declare(bad.cohort().head(0), roles())


def test_whole_numbers_as_names():
    t = bad.cohort()
    named = t.set_axis(range(6), axis=1)
    got = build_cohort(named, Roles(4, [0, 1], score=5, cutoff=0.5, treatment=3), ["2"])
    same(got, build_cohort(t, roles()))
    assert got.groups.attributes == ("0", "1")
    assert got.data["2"].tolist() == t["age"].tolist()


def test_score_cutoff_and_prediction():
    t = bad.cohort()
    with pytest.raises(DataError, match=r"score='s' needs a cutoff= in \[0, 1\]"):
        declare(t, roles(cutoff=None))
    with pytest.raises(DataError, match="give score= with cutoff=, or a ready 0/1 call"):
        declare(t, roles(score=None))
    with pytest.raises(DataError, match="cutoff must be a number in"):
        declare(t, roles(cutoff=50))
    t["high"] = t["s"] >= 0.5
    with pytest.raises(
        DataError, match=r"prediction='high' is a ready 0/1 call, so that cutoff=0\.5"
    ):
        declare(t, roles(prediction="high"))
    got = build_cohort(t, roles(prediction="high", cutoff=None))
    same(got, build_cohort(t, roles()))
    assert (got.rule, got.cutoff, got.score_name, got.prediction_name) == (
        "high",
        None,
        "s",
        "high",
    )
    assert got.score is not None
    alone = build_cohort(t, roles(prediction="high", cutoff=None, score=None))
    assert alone.score is None
    with pytest.raises(DataError, match="Recode it"):
        declare(t, roles(prediction="age", cutoff=None))


def test_columns_are_those_of_the_table_and_of_arrays():
    t, shuffled = bad.bl01_series_in_another_order()
    declared = declare(t, roles(groups=["sex", shuffled]))
    assert declared.columns == ("sex", "age", "d", "y", "s", "race")
    assert declared.rule == "s >= 0.5"


def test_left_side_of_a_formula():
    t = bad.cohort()
    declared = declare(t, roles(treatment=None))
    assert make_cohort(declared).d is None
    cohort = make_cohort(declared, treatment="d")
    assert np.array_equal(cohort.d, t["d"])
    assert cohort.treatment_name == "d"
    with pytest.raises(DataError, match="'y' has two roles: outcome and treatment"):
        make_cohort(declared, treatment="y")
    with pytest.raises(
        DataError, match=r"left side of the formula is 'sex', but the declared treat"
    ):
        make_cohort(declare(t, roles()), treatment="sex")
    with pytest.raises(DataError, match="the declared outcome is 'y'"):
        make_cohort(declared, outcome="d")
    assert make_cohort(declare(t, roles()), treatment="d", outcome="y").n_used == 600


def test_outcome_from_a_formula():
    t = bad.bl12_text_outcome()
    declared = declare(t, roles(outcome=None, outcome_event="died"))
    with pytest.raises(DataError, match="no outcome was declared"):
        make_cohort(declared)
    cohort = make_cohort(declared, outcome="y")
    assert np.array_equal(cohort.y, bad.cohort()["y"])
    assert cohort.outcome_event == "died"


def test_treatment_event_of_a_left_side():
    t = bad.cohort().assign(drug=lambda x: np.where(x["d"] == 1, "statin", "none"))
    declared = declare(t, roles(treatment=None))
    with pytest.raises(DataError, match='treatment_event="statin"'):
        make_cohort(declared, treatment="drug")
    declared = declare(t, roles(treatment=None, treatment_event="statin"))
    assert np.array_equal(make_cohort(declared, treatment="drug").d, t["d"])


def test_bl08_cluster_of_one_analysis():
    t, _, cluster = bad.bl08_missing_row_with_side_arrays()
    declared = declare(t, roles(missing="drop"))
    cohort = make_cohort(declared, ["age"], cluster=cluster)
    kept = ~t["age"].isna().to_numpy()
    assert np.array_equal(cohort.cluster, cluster[kept])
    assert cohort.cluster_name == "cluster"
    with pytest.raises(DataError, match="'sex' has two roles"):
        make_cohort(declared, cluster="sex")


def test_bl42_scales_ties_and_sides():
    ties = bad.bl42_score_scale("ties")
    assert build_cohort(ties, roles()).s[::2].tolist() == [1] * 300
    for kind in ("percent", "logit"):
        with pytest.raises(DataError, match=r"must lie in \[0, 1\]"):
            declare(bad.bl42_score_scale(kind), roles())
    with pytest.warns(
        CutoffWarning, match="all 600 rows are negative under s >= 1.0. Is the cutoff"
    ):
        declared = declare(bad.cohort(), roles(cutoff=1.0))
    assert make_cohort(declared).notes == ("all 600 rows are negative under s >= 1.0.",)
    with pytest.warns(CutoffWarning, match="all 600 rows are positive"):
        declare(bad.cohort(), roles(cutoff=0))


@pytest.mark.parametrize(
    ("role", "value", "what"),
    [
        ("y", 0, "outcome column 'y' has no events: all 600 rows used are 0"),
        ("y", 1, "outcome column 'y' has no non-events: all 600 rows used are 1"),
        ("d", 0, "treatment column 'd' has no treated rows"),
        ("d", 1, "treatment column 'd' has no untreated rows"),
    ],
)
def test_constant_outcome_or_treatment(role, value, what):
    with pytest.raises(DataError, match=what):
        declare(bad.cohort().assign(**{role: value}), roles())


def test_a_measurement_as_a_group():
    with pytest.raises(DataError, match=r"pd\.cut"):
        declare(bad.cohort(), roles(groups=["sex", "age"]))
