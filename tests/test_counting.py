"""Lazy tables counted in their own engine give what the same rows in memory give."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import cfair
from cfair.counting import is_counted
from cfair.errors import CutoffWarning, DataError
from cfair.roles import Roles

duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")

ENGINES = ["duckdb", "polars"]
ROLES = {"outcome": "y", "score": "s", "cutoff": 0.3, "groups": ["sex", "race"]}


def table(n=4000, seed=3):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.integers(0, 2, n),
            "d": rng.random(n) < 0.4,
            "s": rng.integers(0, 11, n) / 10,
            "sex": rng.choice(["M", "F"], n),
            "race": rng.choice(["w", "b", None], n, p=[0.6, 0.3, 0.1]),
            "site": rng.choice([10, 9, 100], n),
            "x": rng.normal(size=n),
        }
    )


def lazy(data, engine):
    if engine == "polars":
        return pl.from_pandas(data).lazy()
    return duckdb.from_arrow(pl.from_pandas(data).to_arrow())


IN_MEMORY: dict = {}


def in_memory(data, roles):
    """The audit of rows in memory and its result, which all engines are compared with."""
    rows = pd.util.hash_pandas_object(data).to_numpy().tobytes()
    key = (rows, str(data.dtypes.to_dict()), repr(roles))
    if key not in IN_MEMORY:
        audit = cfair.Audit(data, **roles)
        IN_MEMORY[key] = audit, audit.observed()
    return IN_MEMORY[key]


def same(data, engine, **options):
    """Both results, after every frame and the print were compared."""
    roles = {**ROLES, **options}
    here, a = in_memory(data, roles)
    there = cfair.Audit(lazy(data, engine), **roles)
    b = there.observed()
    for frame in ("rates", "marginals", "overall", "disparities"):
        pd.testing.assert_frame_equal(getattr(a, frame), getattr(b, frame), rtol=1e-12)
    assert str(a) == str(b)
    assert repr(here) == repr(there)
    return a, b


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("missing", ["drop", "level"])
def test_the_same_result(engine, missing):
    _, counted = same(table(), engine, missing=missing)
    assert len(counted.cohort.y) < 40  # lines, not rows
    assert counted.cohort.n_read == 4000


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_result_of_other_roles(engine):
    data = table().dropna()
    same(data, engine, groups="site")
    same(data, engine, treatment="d", outcome_event=0)
    same(data.assign(call=data["s"] > 0.6), engine, score=None, cutoff=None, prediction="call")
    same(data, engine, groups=["sex", "race", "site"], cutoff=0.7)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("cutoff", [0.0, 0.1, 0.7, 0.70000001, 0.69999999, 1.0])
def test_scores_of_32_bits_meet_the_cutoff_as_printed(engine, cutoff):
    data = table().dropna().astype({"s": np.float32})
    if cutoff == 0:
        with pytest.warns(CutoffWarning):
            same(data, engine, cutoff=cutoff)
    else:
        same(data, engine, cutoff=cutoff)


@pytest.mark.parametrize("engine", ENGINES)
def test_small_groups_are_dropped_and_counted(engine):
    data = pd.concat([table().dropna(), table().dropna().head(7).assign(race="o", sex="F")])
    result, _ = same(data, engine, min_group_size=20, small_groups="drop")
    assert result.cohort.dropped.small_groups == {"F & o": 7}


def wrong(name, values):
    data = table().dropna().reset_index(drop=True)
    data[name] = data[name].astype(object)
    data.loc[: len(values) - 1, name] = values
    return data.infer_objects()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("data", "options"),
    [
        (table(), {}),  # missing values
        (wrong("y", [2, 2, 3]), {}),
        (wrong("y", [None, None]), {}),
        (wrong("s", [1.5, -2.0]), {}),
        (wrong("s", [np.inf]), {}),
        (table().dropna().assign(s="high"), {}),
        (table().dropna().assign(s=True), {}),
        (table().dropna(), {"groups": "x"}),
        (table().dropna(), {"groups": ["sex", "rase"]}),
        (table().dropna(), {"groups": ["sex", "y"]}),
        (table().dropna(), {"cutoff": 30}),
        (table().dropna(), {"cutoff": None}),
        (table().dropna().assign(y=0), {}),
        (table().head(0), {}),
        (table().assign(race=None), {"missing": "drop"}),
    ],
)
def test_the_same_complaint(engine, data, options):
    roles = {**ROLES, **options}
    with pytest.raises(DataError) as here:
        cfair.Audit(pl.from_pandas(data), **roles)
    with pytest.raises(DataError, match=re.escape(str(here.value))):
        cfair.Audit(lazy(data, engine), **roles)


@pytest.mark.parametrize("engine", ENGINES)
def test_nan_is_missing_in_a_lazy_table_too(engine):
    data = table().dropna().reset_index(drop=True)
    data.loc[:4, "s"] = np.nan
    frame = pl.DataFrame({name: data[name].to_numpy() for name in data})  # keeps NaN
    one = cfair.Audit(frame, **ROLES, missing="drop").observed()
    other = cfair.Audit(
        frame.lazy() if engine == "polars" else duckdb.from_arrow(frame.to_arrow()),
        **ROLES,
        missing="drop",
    ).observed()
    assert one.cohort.dropped.by_column == other.cohort.dropped.by_column == {"s": 5}
    pd.testing.assert_frame_equal(one.rates, other.rates)


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_come_when_an_analysis_needs_them(engine):
    data = table().dropna()
    audit = cfair.Audit(lazy(data, engine), **ROLES, treatment="d")
    assert "_declared" not in vars(audit)
    found = audit.counterfactual("d ~ sex * race + s + x").rates
    expected = cfair.Audit(data, **ROLES, treatment="d").counterfactual("d ~ sex * race + s + x")
    key = ["metric", "group"]  # rows of an engine come in any order
    pd.testing.assert_frame_equal(
        found.set_index(key), expected.rates.set_index(key), rtol=1e-9, check_exact=False
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_no_row_leaves_the_engine(engine, monkeypatch):
    import narwhals as nw

    collected = []
    collect = nw.LazyFrame.collect

    def counting(self, *args, **kwargs):
        found = collect(self, *args, **kwargs)
        collected.append(len(found))
        return found

    monkeypatch.setattr(nw.LazyFrame, "collect", counting)
    cfair.Audit(lazy(table().dropna(), engine), **ROLES).observed()
    assert 0 < max(collected, default=0) <= 16


def test_what_is_not_counted():
    data = table().dropna()
    relation = lazy(data, "duckdb")
    assert is_counted(relation, Roles(**ROLES))
    assert not is_counted(data, Roles(**ROLES))
    assert not is_counted(pl.from_pandas(data), Roles(**ROLES))
    assert not is_counted(relation, Roles(**ROLES, cluster="site"))
    assert not is_counted(relation, Roles(**ROLES, weights="site"))
    assert not is_counted(relation, Roles(**{**ROLES, "groups": [data["sex"]]}))
    ordered = pl.from_pandas(data.assign(sex=data["sex"].astype("category"))).lazy()
    assert not is_counted(ordered, Roles(**ROLES))


def test_a_column_may_be_called_rows():
    data = table().dropna().rename(columns={"sex": "rows", "race": "rows_"})
    same(data, "duckdb", groups=["rows", "rows_"])


def test_a_table_that_changed_since_is_refused():
    con = duckdb.connect()
    source = pl.from_pandas(table().dropna()).to_arrow()
    con.register("source", source)
    con.sql("create table t as select * from source")
    audit = cfair.Audit(con.table("t"), **ROLES, treatment="d")
    audit.observed()
    con.sql("insert into t select * from source limit 200")
    with pytest.raises(DataError, match="rows when it was declared and has .* now"):
        audit.counterfactual("d ~ sex * race + s")


@pytest.mark.filterwarnings("ignore:Dask support is moving:FutureWarning")
def test_dask_is_read_in_rows():
    dd = pytest.importorskip("dask.dataframe")
    data = table().dropna().reset_index(drop=True)
    data.loc[::7, "s"] = np.nan
    frame = dd.from_pandas(data, npartitions=2)
    with pytest.raises(DataError, match="missing values in 's'"):
        cfair.Audit(frame, **ROLES)


def test_counted_lines_are_sorted(monkeypatch):
    one, other = (
        cfair.Audit(lazy(table().dropna().sample(frac=1, random_state=k), "polars"), **ROLES)
        for k in (1, 2)
    )
    pd.testing.assert_series_equal(pd.Series(one._counts().y), pd.Series(other._counts().y))
    lines = pd.DataFrame({"y": one._counts().y, "g": one._counts().groups.codes})
    assert lines.equals(lines.sort_values("y", kind="stable"))
