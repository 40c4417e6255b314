"""One mask for the whole analysis: what is dropped, what is refused, what is handed on."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
import time
import warnings

import bad_inputs as bad
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_frame import FRAMES
from test_roles import roles, same

from cfair.cohort import Dropped, build_cohort, declare, make_cohort, require_comparison
from cfair.errors import CfairWarning, DataError, SmallGroupWarning
from cfair.results.report import cohort_facts, treatment_fact


def test_arrays_of_a_well_behaved_table():
    t = bad.cohort()
    c = build_cohort(t, roles(), ["age", "s", "d"])
    assert np.array_equal(c.y, t["y"])
    assert np.array_equal(c.d, t["d"])
    assert np.array_equal(c.s, t["s"] >= 0.5)
    assert np.array_equal(c.score, t["s"])
    assert [x.dtype for x in (c.y, c.s, c.d)] == [np.int8] * 3
    assert c.groups.attributes == ("sex", "race")
    assert (c.n_read, c.n_used, c.dropped.n) == (600, 600, 0)
    assert c.dropped.sentence() == "none dropped"
    assert (c.outcome_name, c.treatment_name, c.score_name) == ("y", "d", "s")
    assert (c.rule, c.cutoff, c.cluster, c.notes) == ("s >= 0.5", 0.5, None, ())
    with pytest.raises(dataclasses.FrozenInstanceError):
        c.y = c.s


@pytest.mark.parametrize("kind", FRAMES)
def test_bl20_every_frame_gives_the_same_numbers(kind):
    t = bad.cohort()
    t.loc[3:7, "age"] = np.nan
    expected = build_cohort(t, roles(missing="drop"), ["age", "race"])
    got = build_cohort(FRAMES[kind](t), roles(missing="drop"), ["age", "race"])
    same(got, expected)
    assert got.n_used == 595
    pd.testing.assert_frame_equal(got.data.astype(str), expected.data.astype(str))
    np.testing.assert_array_equal(got.data["age"], expected.data["age"])


def test_bl20_polars_frame():
    same(build_cohort(bad.bl20_polars_frame(), roles()), build_cohort(bad.cohort(), roles()))


@pytest.mark.parametrize("kind", ["gaps", "duplicates", "unsorted", "multi"])
def test_bl02_bl04_any_index_gives_the_same_numbers(kind):
    t = bad.bl04_unsorted_index_with_missing_covariate()
    fresh = build_cohort(t.reset_index(drop=True), roles(missing="drop"), ["age"])
    index = {
        "gaps": pd.Index(np.arange(600) * 3 + 5),
        "duplicates": pd.Index(np.arange(600) // 7),
        "unsorted": t.index,
        "multi": pd.MultiIndex.from_arrays([np.arange(600) % 5, np.arange(600)]),
    }[kind]
    got = build_cohort(t.set_axis(index), roles(missing="drop"), ["age"])
    same(got, fresh)
    assert got.data.equals(fresh.data)
    assert got.data.index.equals(pd.RangeIndex(599))
    assert got.index.equals(index[~t["age"].isna().to_numpy()])


def test_bl02_gaps_in_index():
    t = bad.bl02_gaps_in_index()
    c = build_cohort(t, roles())
    assert c.index.equals(t.index)
    assert np.array_equal(c.y, t["y"])


def test_bl08_one_mask_for_everything():
    t, _, cluster = bad.bl08_missing_row_with_side_arrays()
    t.loc[100:101, "s"] = np.nan
    t.loc[200, "sex"] = None
    t["site"] = pd.Series(cluster).where(t.index != 300)
    c = build_cohort(t, roles(missing="drop", cluster="site"), ["age"])
    gone = {3, 4, 5, 6, 7, 100, 101, 200, 300}
    kept = [i for i in range(600) if i not in gone]
    assert c.index.tolist() == kept
    assert [len(x) for x in (c.y, c.s, c.d, c.score, c.cluster, c.data, c.groups.codes)] == [
        591
    ] * 7
    assert np.array_equal(c.cluster, np.asarray(cluster)[kept])
    assert c.dropped.n == 9
    assert c.dropped.by_column == {"s": 2, "sex": 1, "site": 1, "age": 5}
    assert c.dropped.by_group["unknown group"] == 1
    assert sum(c.dropped.by_group.values()) == 9
    known = t.loc[[i for i in sorted(gone) if i != 200]]
    by_hand = (known["sex"] + " & " + known["race"]).value_counts().to_dict()
    assert {k: v for k, v in c.dropped.by_group.items() if k != "unknown group"} == by_hand


def test_bl06_missing_in_one_formula_only():
    t, outcome_formula, _ = bad.bl06_missing_in_one_formula_only()
    assert "bmi" in outcome_formula
    declared = declare(t, roles(missing="drop"))
    assert make_cohort(declared, ["age", "sex"]).n_used == 600
    c = make_cohort(declared, ["age", "bmi", "sex"])
    assert c.n_used == 580
    assert c.dropped.sentence() == "20 dropped: bmi missing"
    with pytest.raises(
        DataError, match=r"'bmi' \(20 rows\); 20 of 600 rows in all.*missing=\"drop\""
    ):
        make_cohort(declare(t, roles()), ["age", "bmi"])


@pytest.mark.parametrize("role", ["y", "s", "d", "race"])
def test_bl07_missing_is_raised_by_default(role):
    t = bad.cohort().astype({"y": float, "d": float})
    t.loc[:29, role] = None
    t.loc[20:39, "sex"] = np.nan
    with pytest.raises(DataError, match=r"missing values in .*; 40 of 600 rows in all") as caught:
        declare(t, roles())
    assert f"{role!r} (30 rows)" in str(caught.value)
    assert "'sex' (20 rows)" in str(caught.value)
    assert ('missing="level"' in str(caught.value)) is True
    c = build_cohort(t, roles(missing="drop"))
    assert c.n_used == 560


def test_bl07_missing_outcome():
    with pytest.raises(DataError, match=r"missing values in 'y' \(30 rows\)") as caught:
        declare(bad.bl07_missing_outcome(), roles())
    assert "level" not in str(caught.value)
    assert build_cohort(bad.bl07_missing_outcome(), roles(missing="drop")).n_used == 570


@pytest.mark.parametrize("marker", [np.nan, None, pd.NA, pd.NaT])
def test_bl05_missing_group(marker):
    t = bad.bl05_missing_group(marker)
    with pytest.raises(DataError, match=r"'race' \(10 rows\).*missing=\"level\".*race a level"):
        declare(t, roles())
    dropped = build_cohort(t, roles(missing="drop"))
    assert dropped.n_used == 590
    assert dropped.dropped.by_group == {"unknown group": 10}
    level = build_cohort(t, roles(missing="level"), ["race"])
    assert level.n_used == 600
    assert level.groups.levels[1] == ("Black", "Other", "White", "missing")
    assert list(level.data["race"].cat.categories)[-1] == "missing"
    assert (level.data["race"] == "missing").sum() == 10
    assert level.notes == ("race: missing values (10 rows) are the level 'missing'",)
    assert level.dropped.n == 0


def test_missing_level_is_for_groups_only():
    t = bad.bl05_missing_group()
    t.loc[:2, "age"] = np.nan
    declared = declare(t, roles(missing="level"))
    with pytest.raises(DataError, match=r"'age' \(3 rows\)") as caught:
        make_cohort(declared, ["age"])
    assert "'race'" not in str(caught.value)
    assert "a level" not in str(caught.value)


def test_text_is_never_missing():
    t = bad.cohort()
    t["race"] = t["race"].replace({"Black": "NA", "Other": ""})
    assert build_cohort(t, roles()).groups.levels[1] == ("", "NA", "White")


def test_no_rows_left():
    t = bad.cohort()
    t.loc[:299, "age"] = np.nan
    t.loc[300:, "sex"] = np.nan
    with pytest.raises(
        DataError, match=r"no rows are left of 600: 600 dropped: sex missing \(300\)"
    ):
        make_cohort(declare(t, roles(groups="race", missing="drop")), ["sex", "age"])


def test_infinite_values():
    t = bad.cohort()
    t.loc[:1, "age"] = np.inf
    with pytest.raises(DataError, match="column 'age' has infinite values in 2 rows"):
        build_cohort(t, roles(), ["age"])
    assert build_cohort(t, roles()).n_used == 600


def test_constant_among_the_rows_that_are_used():
    t = bad.cohort()
    t.loc[t["d"] == 1, "age"] = np.nan
    declared = declare(t, roles(missing="drop"))
    with pytest.raises(DataError, match="no treated rows"):
        make_cohort(declared, ["age"])


def test_bl11_bl12_bl13_outcomes_of_other_kinds():
    expected = build_cohort(bad.cohort(), roles())
    same(build_cohort(bad.bl11_boolean_outcome(), roles()), expected)
    text = build_cohort(bad.bl12_text_outcome(), roles(outcome_event="died"))
    same(text, expected)
    assert text.notes == ("outcome y: 'died' is 1, 'alive' 0",)
    same(build_cohort(bad.bl13_other_codes(), roles(outcome_event=2)), expected)
    with pytest.raises(DataError, match="outcome_event=2"):
        declare(bad.bl13_other_codes(), roles())


def test_values_beside_the_event_are_counted_where_they_are_several():
    t = bad.cohort()
    y = np.where(t["y"] == 1, "yes", "no").astype(object)
    y[:7] = "unknown"
    t = t.assign(y=y, d=np.where(t["d"] == 1, "new", np.where(t.index < 30, "old", "none")))
    events = {"outcome_event": "yes", "treatment_event": "new"}
    c = build_cohort(t, roles(**events))
    n, old = int((y == "no").sum()), int((t["d"] == "old").sum())
    assert c.outcome_others == (f"no: {n}", "unknown: 7")
    assert c.treatment_others == (f"none: {int((t['d'] == 'none').sum())}", f"old: {old}")
    assert any(f"no: {n}, unknown: 7 count as no event" in note for note in c.notes)
    assert any("count as untreated" in note for note in c.notes)
    facts = dict(cohort_facts(c))
    assert facts["outcome"].endswith(f"; no: {n}, unknown: 7 count as no event")
    assert treatment_fact(c)[1].endswith(f", old: {old} count as untreated")
    masked = build_cohort(t, roles(**events, suppress_below=11))
    assert masked.outcome_others == ("no", "unknown")
    two = build_cohort(t[7:], roles(**events))
    assert two.outcome_others == ()
    assert len([note for note in two.notes if note.startswith("outcome y")]) == 1


def test_an_outcome_and_a_score_that_are_swapped():
    with pytest.raises(DataError, match=r"'s' holds \d+ different numbers.*'y' only two.*swapped"):
        declare(bad.cohort(), roles(outcome="s", score="y"))


def test_columns_that_have_a_role_are_not_said_to_have_none():
    t = bad.cohort()
    t.loc[t.index[:3], "y"] = np.nan
    t.loc[t.index[:4], "race"] = None
    t.loc[t.index[:5], "age"] = np.nan
    with pytest.raises(DataError, match="Columns without a role") as told:
        declare(t, roles(missing="level"))
    assert "'age' (5 rows)" in str(told.value)
    assert "race" not in str(told.value)


@pytest.mark.parametrize("dtype", ["str", "string", "string[pyarrow]", object, "category"])
def test_bl15_every_way_to_hold_text(dtype):
    c = build_cohort(bad.bl15_string_dtypes(dtype), roles(), ["race"])
    same(c, build_cohort(bad.cohort(), roles()))
    assert list(c.data["race"].cat.categories) == ["Black", "Other", "White"]


def test_bl16_integer_groups_are_categories_in_formulas():
    c = build_cohort(bad.bl16_integer_groups(), roles(), ["race"])
    assert list(c.data["race"].cat.categories) == [1, 2, 3]
    assert c.groups.labels[0] == ("F", 1)


def test_bl18_binned_age_group():
    t = bad.bl18_binned_age_group()
    c = build_cohort(t, roles(groups=["sex", "age_band"]))
    assert c.groups.names[:2] == ("F & (0, 50]", "F & (50, 65]")
    assert c.data["age_band"].astype(str).tolist() == t["age_band"].astype(str).tolist()


def test_bl21_bl22_bl23_bl25_groups_that_are_kept():
    assert build_cohort(bad.bl21_group_without_positives(), roles()).n_used == 600
    empty = build_cohort(bad.bl22_empty_cell(), roles())
    assert empty.groups.sizes[empty.groups.index_of("F & Other")] == 0
    assert 1 in build_cohort(bad.bl23_one_person_group(), roles()).groups.sizes
    collide = build_cohort(bad.bl25_labels_that_collide(), roles(groups=["a", "b"]))
    assert collide.groups.sizes.tolist() == [300, 0, 0, 300]


def test_bl27_single_group():
    c = build_cohort(bad.bl27_single_group(), roles())
    assert c.groups.names == ("F & White",)
    with pytest.raises(
        DataError, match=r"two groups with rows, but sex x race has 1 \('F & White'"
    ):
        require_comparison(c.groups)
    require_comparison(build_cohort(bad.cohort(), roles()).groups)


def test_small_groups_are_named_and_kept():
    t = bad.bl44_rare_group_for_bootstrap()
    with pytest.warns(
        SmallGroupWarning, match=r"fewer than min_group_size=5 rows: . & Islander \("
    ) as w:
        declared = declare(t, roles(min_group_size=5))
    assert len(w) == 1
    c = make_cohort(declared)  # said once, not again by every verb
    assert c.n_used == 600
    assert any("Islander has" in note for note in c.notes)


def test_small_groups_of_one_analysis_are_named_there():
    t = bad.cohort()
    t["bmi"] = np.where((t["race"] == "Other") & (t.index > 20), np.nan, 25.0)
    declared = declare(t, roles(min_group_size=20, missing="drop"))
    with pytest.warns(SmallGroupWarning, match=r"=20 rows: M & Other \(3 rows\)\. Merge"):
        make_cohort(declared, ["bmi"])


def test_small_groups_are_dropped_when_asked():
    t = bad.bl44_rare_group_for_bootstrap()
    c = build_cohort(t, roles(min_group_size=5, small_groups="drop"), ["race"])
    assert c.n_used == 598
    assert c.groups.levels[1] == ("Black", "Other", "White")
    assert list(c.data["race"].cat.categories) == ["Black", "Other", "White"]
    assert sum(c.dropped.small_groups.values()) == 2
    assert all("Islander" in name for name in c.dropped.small_groups)
    assert c.dropped.by_group == c.dropped.small_groups
    assert c.dropped.sentence().startswith("2 dropped: small group")
    with pytest.raises(DataError, match=r"no rows are left of 600: 600 dropped: small groups"):
        declare(t, roles(min_group_size=1000, small_groups="drop"))


def test_sentences():
    both = Dropped(5, {"age": 3}, {}, {"F": 2})
    assert both.sentence() == "5 dropped: age missing (3); small group F (2)"
    assert Dropped(1200, {"age": 1200}).sentence() == "1,200 dropped: age missing"


def test_columns_for_formulas():
    t = bad.bl12_text_outcome()
    t["note"] = pd.Categorical(["b"] * 300 + ["a"] * 300, ["b", "z", "a"])
    t["n"] = pd.array([1, None] + [2] * 598, dtype="Int8")
    t["flag"] = pd.array([True, None] + [False] * 598, dtype="boolean")
    t["text"] = ["x", "gone"] + ["y"] * 598
    t["treated"] = t.pop("d").map({0: "no", 1: "yes"})
    ask = roles(
        outcome_event="died",
        treatment="treated",
        treatment_event="yes",
        missing="drop",
        cluster="n",
    )
    c = build_cohort(t, ask, ["note", "n", "flag", "text", "y", "treated", "s", "sex"])
    assert c.n_used == 599
    assert c.data.columns.tolist()[:2] == ["sex", "race"]
    assert {k: str(v) for k, v in c.data.dtypes.items()} == {
        "sex": "category", "race": "category", "note": "category", "n": "int64", "flag": "bool",
        "text": "category", "y": "int64", "treated": "int64", "s": "float64",
    }  # fmt: skip
    assert list(c.data["note"].cat.categories) == ["b", "a"]
    assert list(c.data["text"].cat.categories) == ["x", "y"]
    assert np.array_equal(c.data["y"], c.y)
    assert np.array_equal(c.data["treated"], c.d)
    assert (c.outcome_event, c.treatment_event) == ("died", "yes")


def test_prediction_as_a_formula_column_and_unknown_columns():
    t = bad.cohort().assign(high=lambda x: x["s"] > 0.4)
    declared = declare(t, roles(prediction="high", cutoff=None))
    assert make_cohort(declared, ["high"]).data["high"].tolist() == t["high"].astype(int).tolist()
    with pytest.raises(DataError, match="'aeg' is not a column"):
        make_cohort(declared, ["aeg"])
    with pytest.raises(DataError, match="dates or times"):
        build_cohort(t.assign(when=pd.Timestamp("2020-01-01")), roles(), ["when"])


def test_the_callers_frame_is_never_changed_and_later_changes_are_not_seen():
    t = bad.bl05_missing_group()
    before = t.copy(deep=True)
    declared = declare(t, roles(missing="drop"))
    c = make_cohort(declared, ["age"])
    c.data["age"] = 0.0
    pd.testing.assert_frame_equal(t, before)
    t["y"] = 1 - t["y"]
    assert np.array_equal(make_cohort(declared).y, c.y)


def test_a_declaration_is_read_once():
    reads = []

    def count(frame):
        reads.append(1)
        return frame

    declared = declare(pl.from_pandas(bad.cohort()).lazy().map_batches(count), roles())
    make_cohort(declared, ["age"])
    make_cohort(declared, ["age"])
    assert len(reads) == 1
    assert declared.prepared("age") is declared.prepared("age")


def test_cohorts_survive_pickling_and_copying():
    declared = declare(bad.cohort(), roles())
    for twin in (pickle.loads(pickle.dumps(declared)), copy.deepcopy(declared)):
        same(make_cohort(twin), make_cohort(declared))


def test_bl52_a_million_rows_are_quick():
    t = bad.bl52_million_rows()
    start = time.perf_counter()
    declared = declare(t, roles())
    make_cohort(declared, ["age", "sex", "race", "s"])
    assert time.perf_counter() - start < 4  # 0.2 s on an idle machine


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(["y", "d", "s", "sex", "race", "age"]), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
    st.sampled_from(["drop", "level"]),
)
def test_dropped_rows_add_up(columns, random, rule):
    t = bad.cohort(80).astype({"y": float, "d": float})
    for name in columns:
        t.loc[random.randrange(80), name] = None
    others = [name for name in t if rule == "drop" or name not in ("sex", "race")]
    expected = t.dropna(subset=others)
    declaration = roles(missing=rule)
    if rule == "level" and len(expected) < 80:
        with pytest.raises(DataError, match="of 80 rows in all"):
            build_cohort(t, declaration, ["age"])
        return
    c = build_cohort(t, declaration, ["age"])
    assert c.index.equals(expected.index)
    assert np.array_equal(c.y, expected["y"])
    assert c.dropped.n == 80 - len(expected) == sum(c.dropped.by_group.values())
    assert c.dropped.by_column == {k: int(n) for k, n in t[others].isna().sum().items() if n}
    assert c.groups.sizes.sum() == c.n_used
    pairs = set(itertools.product(*c.groups.levels))
    assert pairs == set(c.groups.labels)


def test_labels_that_look_alike_are_told_once_with_counts():
    t = bad.cohort()
    first = t.index[t["sex"] == t["sex"].iloc[0]]
    label = t["sex"].iloc[0]
    t["sex"] = t["sex"].astype(object)
    t.loc[first[:3], "sex"] = f"{label.lower()} "
    with pytest.warns(CfairWarning, match="differ only by case") as given_:
        declared = declare(t, roles())
    told = [str(w.message) for w in given_ if "differ only" in str(w.message)]
    assert len(told) == 1
    assert f"'{label}' ({len(first) - 3} rows)" in told[0]
    assert f"'{label.lower()} ' (3 rows)" in told[0]
    assert "table['sex'].str.strip().str.lower()" in told[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notes = make_cohort(declared).notes
    assert [f"{note}." for note in notes if "differ only" in note] == told
    merged = t.assign(sex=t["sex"].str.strip().str.lower())
    assert make_cohort(declare(merged, roles())).notes == ()
    with pytest.warns(CfairWarning) as given_:
        declare(t, roles(suppress_below=11))
    assert not any("rows)" in str(w.message) for w in given_)
