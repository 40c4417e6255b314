"""A table read by batches gives the figures of the same rows in memory."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cfair
from cfair.batches import open_source
from cfair.combinations import count_combinations
from cfair.errors import (
    CutoffWarning,
    DataError,
    FormulaError,
    ModelWarning,
    SmallGroupWarning,
)
from cfair.frame import _to_pandas_array
from cfair.nuisance import logistic
from cfair.results.report import cohort_facts
from cfair.roles import Roles

duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")

ROLES = {"outcome": "y", "score": "s", "cutoff": 0.4, "groups": ["sex", "race"]}
FORMULA = "d ~ sex * race + s + x"


def table(n=900, seed=3):
    rng = np.random.default_rng(seed)
    x, s = rng.normal(size=n), rng.integers(0, 11, n) / 10
    sex, race = rng.choice(["M", "F"], n), rng.choice(["w", "b", "o"], n, p=[0.5, 0.3, 0.2])
    race[: n // 2][race[: n // 2] == "b"] = "w"  # a level that comes late
    eta = 1.5 * s - 1.2 + 0.4 * x + 0.5 * (sex == "M")
    unit = pd.Categorical(
        rng.choice(["day", "night", "icu"], n), ["night", "icu", "never", "day"], ordered=True
    )
    return pd.DataFrame(
        {
            "y": (rng.random(n) < 0.2 + 0.4 * s).astype(int),
            "d": (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int),
            "s": s,
            "sex": sex,
            "race": race,
            "site": rng.choice([10, 9, 100], n),
            "word": np.where(np.arange(n) > n - 40, "aa", rng.choice(["z", "k"], n)),
            "unit": unit,
            "old": x > 1,
            "hospital": rng.integers(0, 25, n),
            "body mass": 20 + 3 * rng.normal(size=n),
            "x": x,
        }
    )


def holes(data):
    """Missing values in groups, score, covariates and outcome."""
    rng, data = np.random.default_rng(5), data.copy()
    for name in ("race", "s", "x", "y", "word", "site"):
        data[name] = data[name].astype(object if name in ("race", "word") else float)
        data.loc[rng.random(len(data)) < 0.02, name] = None
    return data


def chunks(data, size):
    return lambda: (data.iloc[i : i + size] for i in range(0, len(data), size))


def without_reading(result):
    return "\n".join(line for line in str(result).splitlines() if not line.startswith("read "))


def same(data, formula=FORMULA, source=None, batch_rows=457, rtol=1e-10, every=False, **options):
    """Both results, after what they are made of was compared, or every table and the print."""
    roles = {**ROLES, **{k: v for k, v in options.items() if k not in ("truncation", "interval")}}
    rest = {k: v for k, v in options.items() if k in ("truncation", "interval")}
    with warnings.catch_warnings(record=True) as one:
        warnings.simplefilter("always")
        a = cfair.Audit(data, **roles).counterfactual(formula, **rest)
    with warnings.catch_warnings(record=True) as two:
        warnings.simplefilter("always")
        b = cfair.counterfactual_by_batches(
            data if source is None else source, formula, batch_rows=batch_rows, **roles, **rest
        )
    for frame in ("rates", "marginals", "covariance"):
        close(getattr(a, frame), getattr(b, frame), rtol)
    pd.testing.assert_series_equal(
        a.propensity.coefficients, b.propensity.coefficients, rtol=0, atol=1e-10
    )
    assert a.propensity.truncated.sum() == b.propensity.truncated.sum()
    close(a.overlap.effective, b.overlap.effective, rtol)
    if a.cohort.suppress_below is None:
        close(a.overlap.balance, b.overlap.balance, 1e-9)
        mine, theirs = a.overlap.propensities, b.overlap.propensities
        pd.testing.assert_frame_equal(mine, theirs, rtol=0, atol=1e-4)
    if every:
        for frame in ("overall", "disparities"):
            close(getattr(a, frame), getattr(b, frame), rtol)
        for frame in ("contrasts", "test_equal", "gaps"):
            close(getattr(a, frame)(), getattr(b, frame)(), 100 * rtol)
        close(a.equivalence("cfpr").pairs, b.equivalence("cfpr").pairs, 100 * rtol)
        assert without_reading(a) == without_reading(b)
    assert a.notes == b.notes
    assert vars(a.cohort.dropped) == vars(b.cohort.dropped)
    assert [str(w.message) for w in one] == [str(w.message) for w in two]
    return a, b


def close(one, two, rtol):
    pd.testing.assert_frame_equal(one, two, rtol=rtol, atol=1e-11)


# ------------------------------------------------------------------------------- where rows are


def parquet(data, folder):
    data.to_parquet(folder / "one.parquet", row_group_size=400)
    return folder / "one.parquet"


def several(data, folder):
    for k, part in enumerate((data[:300], data[300:301], data[301:])):
        part.to_parquet(folder / f"part_{k}.parquet")
    return str(folder)


def lazy(data, folder):
    if not hasattr(pl.LazyFrame, "collect_batches"):
        pytest.skip("this polars collects no batches")
    return pl.from_pandas(data).lazy()


SOURCES = {
    "parquet": parquet,
    "folder": several,
    "paths": lambda data, folder: [parquet(data, folder)],
    "duckdb": lambda data, folder: duckdb.from_arrow(pa.Table.from_pandas(data)),
    "polars": lazy,
    "dataset": lambda data, folder: dataset.dataset(parquet(data, folder)),
    "function": lambda data, folder: chunks(data, 250),
    "frames": lambda data, folder: [data[:300], data[300:]],
    "arrow": lambda data, folder: pa.Table.from_pandas(data),
    "csv": lambda data, folder: (
        lambda: pd.read_csv(
            data.to_csv(folder / "t.csv", index=False) or folder / "t.csv", chunksize=350
        )
    ),
}


@pytest.mark.parametrize("kind", [k for k in SOURCES if k not in ("paths", "frames", "arrow")])
def test_wherever_the_rows_are(kind, tmp_path):
    data = holes(table()).drop(columns="unit")
    source = SOURCES[kind](data, tmp_path)
    every = kind == "parquet"
    _, b = same(data, FORMULA + " + word", source, every=every, missing="drop")
    assert b.cohort.n_read == 900
    assert b.cohort.n_used < 850
    assert len(b.cohort.y) <= 48  # combinations, not rows
    assert b.source.endswith("by batches of 457 rows")
    assert b.call.startswith("cfair.counterfactual_by_batches(")


@settings(max_examples=3)
@given(st.integers(60, 300), st.integers(60, 300))
def test_any_batches_give_the_same_numbers(batch_rows, size):
    data = holes(table(300))
    same(data, source=chunks(data, size), batch_rows=batch_rows, missing="drop")


@pytest.mark.parametrize(
    "formula",
    [
        "d ~ sex * race + s + word + unit + old",
        "d ~ sex:race + C(site) + standardize(x) * s - 1",
        "d ~ sex + race + s + bs(x, df=4) + center(body mass)",
        "d ~ C(race, Sum) + sex + I(s >= 0.4) + where(x > 0, 'up', 'down') + scale(x)",
        "~ sex * race + s + C(unit, Treatment('day')) + C(word)",
        "d ~ x",  # leaves out score and attributes, and warns of it
    ],
)
def test_designs(formula, tmp_path):
    data = table()
    roles = {} if formula.startswith("d") else {"treatment": "d"}
    same(data, formula, parquet(data, tmp_path), **roles)


@pytest.mark.parametrize(
    "options",
    [
        {"groups": "race", "cluster": "hospital"},
        {"cluster": "site"},  # three
        {"missing": "level"},
        {"missing": "drop", "min_group_size": 130, "small_groups": "drop"},
        {"min_group_size": 130},
        {"missing": "drop", "suppress_below": 50},
        {"truncation": (0.3, 0.6), "interval": "logit"},
        {"truncation": None},
        {"groups": ["unit", "old"]},  # an order of its own, and True and False
        {"groups": ["site", "sex"], "prediction": "old", "score": None, "cutoff": None},
        {"outcome": "word", "outcome_event": "z", "treatment": "sex", "treatment_event": "F",
         "groups": "race"},
        {"cutoff": 0},  # all on one side
    ],
)  # fmt: skip
def test_declarations(options, tmp_path):
    data = table()
    if options.get("missing") == "drop":
        data = holes(data)
    if options.get("missing") == "level":
        data.loc[::7, "race"] = None
    formula = FORMULA
    if "prediction" in options:
        formula = "d ~ sex * C(site) + old + x"
    if "treatment" in options:
        formula = "~ race + s + x"
    every = options.get("cluster") == "site"
    same(data, formula, parquet(data, tmp_path), every=every, **options)


def weighted(data, scale=1.0):
    """Sampling weights w, some of them 0, all rows of one hospital among these."""
    rng = np.random.default_rng(8)
    w = scale * rng.gamma(2.0, 1.0, len(data))
    w[(rng.random(len(data)) < 0.1) | (data["hospital"] == 7).to_numpy()] = 0.0
    return data.assign(w=w)


@pytest.mark.parametrize(
    ("formula", "options"),
    [
        (FORMULA + " + word + unit", {"every": True}),
        (FORMULA, {"cluster": "hospital", "groups": "race"}),
        (FORMULA, {"scale": 1e200}),  # whose squares overflow
        (FORMULA, {"missing": "drop", "min_group_size": 130, "small_groups": "drop"}),
        (FORMULA, {"missing": "drop", "suppress_below": 50}),
        ("d ~ x + w", {"truncation": (0.3, 0.6)}),  # leaves out score and attributes
        ("d ~ x + I(2 * x) + sex", {"prediction": "old", "score": None, "cutoff": None}),
    ],
)
def test_sampling_weights(formula, options, tmp_path):
    data = weighted(table(), options.pop("scale", 1.0))
    if "missing" in options:
        data = holes(data)
        data.loc[::50, "w"] = np.nan
    a, b = same(data, formula, parquet(data, tmp_path), weights="w", **options)
    assert b.cohort.kish == pytest.approx(a.cohort.kish, rel=1e-12)
    assert b.cohort.kish < 0.8 * b.cohort.n_used
    assert cohort_facts(a.cohort) == cohort_facts(b.cohort)


def test_equal_weights_change_nothing():
    data = table().assign(w=2.5)
    _, b = same(data, weights="w")
    assert "equal in all rows" in str(b)
    plain = cfair.counterfactual_by_batches(data, FORMULA, batch_rows=457, **ROLES)
    pd.testing.assert_frame_equal(b.rates, plain.rates, rtol=0, atol=0)
    data["w"] = np.where(np.arange(900) % 2, 1.0, 3.0)  # in each line the same mean, not all equal
    doubled = pd.concat([data, data.assign(w=4 - data["w"])], ignore_index=True)
    _, b = same(doubled, weights="w")
    assert b.cohort.kish == pytest.approx(0.8 * 1800)


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({"w": -1.0}, {}),
        ({"w": np.inf}, {}),
        ({"w": "heavy"}, {}),
        ({"w": True}, {}),
        ({"w": 0.0}, {}),
        ({"w": np.nan}, {}),
        ({"w": np.nan}, {"missing": "drop"}),
        ({"w": lambda t: t["x"].isna() * 1.0}, {"missing": "drop"}),  # of those that are dropped
        ({"w": lambda t: t["d"] * 1.0}, {}),
        ({"w": lambda t: (t["y"] == 1) * 2.0}, {}),
        ({"w": lambda t: (t.index < 5) * 1.0, "d": [0, 1] * 150, "y": [0, 1, 1] * 100}, {}),
        ({}, {"weights": "x"}),
        ({}, {"weights": "none"}),
        ({}, {"weights": "d"}),
    ],
)  # fmt: skip
def test_bad_weights_are_refused_in_the_same_words(change, options):
    data = weighted(table(300))
    if options.get("missing") == "drop":
        data.loc[::30, "x"] = np.nan
    data = data.assign(**change)
    roles = {**ROLES, "weights": "w", **options}
    with pytest.raises(DataError) as one:
        cfair.Audit(data, **roles, treatment="d").counterfactual(FORMULA)
    with pytest.raises(DataError) as two:
        cfair.counterfactual_by_batches(data, FORMULA, batch_rows=300, **roles)
    assert str(one.value) == str(two.value)


def test_bad_weights_are_found_where_they_are():
    data = weighted(table(300))
    data.loc[150, "w"] = -2.0
    what = (
        r"weights column 'w' has negative values in 1 row \(-2\)\. .*rows 101 to 200 of the table"
    )
    refused(what, source=data, weights="w", reads=1)
    data["w"] = (data.index >= 200) * 1.0  # the first batches have no weight at all
    same(data, source=chunks(data, 100), weights="w")


def test_what_goes_wrong_in_the_fit_is_said():
    data = table()
    data["twice"] = 2 * data["x"]
    _, b = same(data, FORMULA + " + twice")
    assert np.isnan(b.propensity.coefficients["twice"])
    assert "linear combinations" in b.notes[0]
    data["gone"] = ((data["d"] == 1) & (data["x"] > 0.5)).astype(int)
    _, b = same(data, FORMULA + " + gone")
    assert "separated by gone" in b.notes[0]
    assert any("poor overlap" in note for note in b.notes)


@pytest.mark.parametrize("weights", [None, "w"])
def test_a_start_from_a_part_of_the_rows_changes_nothing(weights, monkeypatch):
    data, roles = weighted(table(20_000)), {**ROLES, "weights": weights}
    cold = cfair.counterfactual_by_batches(data, FORMULA, batch_rows=9999, **roles)
    monkeypatch.setattr(logistic, "_WARM_FROM", 0)
    warm = cfair.counterfactual_by_batches(data, FORMULA, batch_rows=9999, **roles)
    assert warm.propensity.fit.n_iter < cold.propensity.fit.n_iter
    close(cold.rates, warm.rates, 1e-9)


def test_a_score_of_32_bits_meets_its_cutoff(tmp_path):
    data = table().astype({"s": np.float32})
    a, _ = same(data, FORMULA, parquet(data, tmp_path))
    assert a.cohort.s.mean() == (table()["s"] >= 0.4).mean()


def test_memory_goes_with_the_batch():
    made = table(2_000)

    def peak(times):
        tracemalloc.start()
        cfair.counterfactual_by_batches(
            lambda: iter([made] * times), "d ~ sex * race + s", batch_rows=2_000, **ROLES
        )
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(1)  # imports
    few, many = (min(peak(times) for _ in range(2)) for times in (2, 5))  # others allocate as well
    assert many < 1.1 * few


def test_progress_is_shown_when_asked_for(capsys, monkeypatch):
    import tqdm

    bars = []

    class Bar(tqdm.tqdm):
        def __init__(self, *args, **options):
            bars.append((options["desc"], options["total"], options["delay"]))
            super().__init__(*args, **options)

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    cfair.counterfactual_by_batches(table(300), FORMULA, progress=True, **ROLES)
    assert bars[0] == ("rows and groups", None, 1.0)
    assert {bar[0] for bar in bars[1:]} == {"levels", "transforms", "design", "propensity", "rates"}
    assert {bar[1] for bar in bars[1:]} == {300}
    bars.clear()
    cfair.counterfactual_by_batches(table(300), FORMULA, **ROLES)
    assert not bars


# --------------------------------------------------------------------------------- what is refused


def refused(message, source=None, formula=FORMULA, error=DataError, reads=None, **options):
    """The message, and that the table was read no more often than it had to be."""
    data, seen = table(300) if source is None else source, []

    def counted():
        seen.append(1)
        return chunks(data, 100)()

    given = counted if isinstance(data, pd.DataFrame) else data
    with pytest.raises(error, match=message):
        cfair.counterfactual_by_batches(given, formula, **{**ROLES, **options})
    if reads is not None:
        assert len(seen) <= 2 + reads  # two looks at the first batch find the columns


def test_errors_before_anything_is_read():
    refused("outcome 'died' is not a column of the table", outcome="died", reads=0)
    refused("'agee' is not a column", formula="d ~ agee", error=FormulaError, reads=0)
    refused("needs a cutoff", cutoff=None, reads=0)
    refused("cutoff must be a number in", cutoff=40, reads=0)
    refused("two roles: outcome and groups", groups="y", reads=0)
    refused("the declared treatment is 'old'", treatment="old", reads=0)
    refused("no treatment is declared", formula="~ sex + s", reads=0)
    refused("has the outcome 'y' on its right", formula="d ~ y + s", reads=0)
    refused("outcome is given as values", outcome=np.zeros(300), reads=0)
    refused("level must be", level=95, error=ValueError, reads=0)
    refused("batch_rows must be", batch_rows=0, error=ValueError, reads=0)
    refused("by batches the propensity is a formula", formula="x", reads=0)
    refused("by batches the propensity is a formula", formula=np.zeros(3), reads=0)
    refused("weights is given as values", weights=np.ones(300), reads=0)
    for name in ("n_boot", "n_perm", "outcome_model", "seed"):
        refused(f"{name}= is not available by batches: .*sample", **{name: 5}, reads=0)
    refused("unexpected keyword argument 'seeed'", seeed=1, error=TypeError, reads=0)


def test_errors_of_sources(tmp_path):
    refused("there is no file '.*none.parquet'", source=str(tmp_path / "none.parquet"))
    refused("no file that ends in .parquet", source=tmp_path)
    (tmp_path / "t.csv").write_text("y,d\n1,0\n")
    refused(r"is no parquet file .*read_csv\(\"t.csv\"", source=tmp_path / "t.csv")
    refused("generator, which can be read only once", source=(x for x in [table()]))
    once = iter([table()])
    refused("same iterator at each call", source=lambda: once)
    refused("must return an iterator of data frames", source=table)
    refused("no batch to be read", source=lambda: iter([]))
    refused(r"the table has no rows \(0 rows, 12 columns\)", source=lambda: iter([table(90)[:0]]))
    refused("the table must be the path of a parquet file", source=5)
    lacking = [table(90), table(90).drop(columns="x")]
    refused("batch 2 of the table has no column 'x'", source=lacking)
    refused("the list of files or data frames is empty", source=[])
    refused("the list has 1 paths and 1 other entries", source=[table(90), "a.parquet"])
    refused("batch 1 of the table: .* but is a NoneType", source=lambda: iter([None, table(90)]))
    refused("batch 2 of the table: .* but is a int", source=lambda: iter([table(90), 5]))
    refused("without arguments, but missing a required argument: 'a'", source=lambda a: a)
    table(90).to_parquet(tmp_path / "a.parquet")
    table(90).drop(columns="x").to_parquet(tmp_path / "b.parquet")
    refused("the file 'b.parquet' has no column 'x'", source=tmp_path)
    two = duckdb.sql("select 1 as y, 2 as y")
    if list(two.columns).count("y") == 2:
        refused("more than one column of the name 'y'", source=two)


def test_errors_of_libraries_name_the_source(tmp_path):
    path = tmp_path / "broken.parquet"
    table(3000).to_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    refused("the file 'broken.parquet' could not be read: .*new parquet file", source=path)
    if hasattr(pl.LazyFrame, "collect_batches"):
        gone = pl.scan_parquet(tmp_path / "none.parquet")
        refused("a LazyFrame, could not be read: .*FileNotFoundError", source=gone)
        wrong = lazy(table(90), tmp_path).with_columns(x=pl.col("race").cast(pl.Float64))
        refused("the polars frame could not be read: .*InvalidOperationError", source=wrong)
    database = duckdb.connect()
    rows = table(90)
    relation = database.from_df(rows)
    database.close()
    refused("could not be read: .*[Cc]losed", source=relation)
    with pytest.raises(ZeroDivisionError):  # the user's own code keeps its error
        cfair.counterfactual_by_batches(lambda: 1 / 0, FORMULA, **ROLES)


def test_folders_of_partitions(tmp_path):
    data = table()
    parts = tmp_path / "parts"
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_to_dataset(pa.Table.from_pandas(data), parts, partition_cols=["race", "site"])
    _, b = same(data, FORMULA + " + C(site)", parts)
    assert b.source.startswith("9 parquet files in partitions")
    refused("'.*parts' is a folder of hive partitions", source=[parts, parts])
    several(data.drop(columns=["race", "site"]), parts / "race=b")
    refused("the file '.*part_0.parquet' has no column 'site'", source=parts)
    spark = tmp_path / "visits.parquet"
    spark.mkdir()
    several(data, spark)
    outer = tmp_path / "outer"
    outer.mkdir()
    assert sum(part.n_rows for part in open_source(spark).tables(["x"])) == 900
    spark.rename(outer / "x.parquet")
    assert sum(part.n_rows for part in open_source(outer).tables(["x"])) == 900


def test_names_that_are_patterns(tmp_path):
    data = table(300).rename(columns={"x": "*", "hospital": "^s.*$"})
    for source in (lazy(data, tmp_path), SOURCES["duckdb"](data, tmp_path)):
        found = next(open_source(source).tables(["*", "^s.*$"]))
        np.testing.assert_array_equal(found.column("*"), data["*"])
        np.testing.assert_array_equal(found.column("^s.*$"), data["^s.*$"])


def test_errors_of_values_stop_at_their_batch():
    data = table(300)
    refused("'y' must be 0/1", source=data.assign(y=data["y"] + 1), reads=1)
    late = data.assign(s=np.where(np.arange(300) == 150, 7.0, data["s"]))
    refused(r"runs from .* to 7 .*rows 101 to 200 of the table", source=late, reads=1)
    dates = data.assign(x=pd.Timestamp("2020-01-01"))
    refused("'x' cannot be used in a formula: it is dates", source=dates, reads=1)
    measured = data.assign(race=data["body mass"])
    refused("'race' is a measurement", source=measured, reads=1)
    refused("'late' does not occur in column 'word', which holds 'aa' .39 rows.",
            outcome="word", outcome_event="late", reads=1)  # fmt: skip
    refused("has no treated rows: all 300", source=data.assign(d=0), reads=1)
    refused(r"missing values in 'y' \(10 rows\), .*; 30 of 300 rows", source=holes(data), reads=1)
    refused(r"missing values in 'x' \(3", source=data.assign(x=[None] * 3 + [1.0] * 297), reads=1)
    refused("no rows are left of 300", source=data.assign(x=np.nan), missing="drop", reads=1)
    refused("are more than the 2,000", source=many_words(), formula="d ~ word", error=FormulaError)
    refused("cluster column 'one' has only one value", source=data.assign(one=1), cluster="one")


def test_types_that_differ_between_batches_are_refused():
    data = table(300)
    for name, one, two, what in (
        ("x", 1.5, "a", "numbers in batch 1 and text in batch 3"),
        ("x", "a", 1.5, "text in batch 1 and numbers in batch 3"),
        ("race", 1, "1", "numbers in batch 1 and text in batch 3"),
        ("race", 1, True, "numbers in batch 1 and True/False in batch 3"),
    ):
        nothing = data.assign(**{name: None})
        batches = [data.assign(**{name: one}), nothing, data.assign(**{name: two})]
        refused(f"column '{name}' of the table holds {what}", source=batches)
    turned = data.assign(unit=data["unit"].cat.reorder_categories(["day", "icu", "night", "never"]))
    what = "holds ordered categories 'night', .* in batch 1 and ordered categories 'day', .*batch 2"
    refused(what, source=[data, turned], groups="unit")
    plain = data.assign(unit=data["unit"].astype(str))
    refused("holds plain values in batch 1 and cat", source=[plain, data], groups="unit")
    same(data, source=[data[:200], data[200:].assign(x=data["x"][200:].astype(object))])


def many_words():
    words = [f"w{i}" for i in range(3000)]
    return pd.concat([table(3000).assign(word=words)] * 2)


def test_many_combinations_are_refused(monkeypatch):
    from cfair import combinations

    monkeypatch.setattr(combinations, "MAX_COMBINATIONS", 300)
    data = table().assign(one=np.arange(900))
    refused("cluster column 'one' alone has .* values", source=data, cluster="one")
    same(data)  # as few as there are by batch are merged


def test_more_combinations_than_keys_are_refused():
    names = [f"id_{i}" for i in range(8)]
    data = table(300).assign(**{name: np.arange(300) for name in names})
    refused(r"combined in 1.4e\+20 ways, .* group column 'id_0' .200., .* more: leave .*101 to 200",
            source=data, groups=names, reads=1)  # fmt: skip


def test_a_column_is_converted_once_per_batch(monkeypatch):
    seen = []
    counted = lambda values: seen.append(1) or _to_pandas_array(values)  # noqa: E731
    monkeypatch.setattr("cfair.frame._to_pandas_array", counted)
    data = table(300)
    source = open_source([pa.Table.from_pandas(data[i : i + 100]) for i in (0, 100, 200)])
    combinations = count_combinations(source, Roles(**ROLES, treatment="d"), ["sex", "s", "x"])
    assert len(seen) == 3 * 6
    seen.clear()
    for part, _ in combinations.tables(["x", "word"]):
        assert part.column("x") is part.column("x")
    assert len(seen) == 3 * 6


def test_a_table_that_changes_is_refused():
    state = []

    def changing():
        state.append(1)
        return iter([table(300 if len(state) < 5 else 301)])

    with pytest.raises(
        DataError,
        match=r"^the readings differ: the table had 300 rows when it was first read, and now has 3",
    ):
        cfair.counterfactual_by_batches(changing, FORMULA, **ROLES)
    state.clear()

    def other():
        state.append(1)
        data = table(300)
        return iter([data if len(state) < 5 else data.assign(race="new")])

    with pytest.raises(DataError, match=r"^the readings differ: .* now has other values\."):
        cfair.counterfactual_by_batches(other, FORMULA, **ROLES)


def shuffled(data):
    """The same values in each column, of which one stands in other rows."""
    return data.assign(x=np.random.default_rng(1).permutation(data["x"]))


@pytest.mark.parametrize(
    ("first", "change", "what"),
    [
        (4, lambda data: data.assign(y=1 - data["y"]), "other values"),
        (6, lambda data: data.assign(x=data["x"] + 1e-9), "other values in 'x'"),
        (4, lambda data: data.sample(300, replace=True, random_state=1), "other values in"),
        (6, shuffled, "other values together in a row"),
    ],
)
def test_known_values_in_other_rows_are_refused(first, change, what):
    state, data = [], table(300)

    def changing():
        state.append(1)
        return iter([data if len(state) < first else change(data)])

    with pytest.raises(DataError, match=f"^the readings differ: .* now has {what}"):
        cfair.counterfactual_by_batches(changing, FORMULA, **ROLES)


def test_rows_may_come_in_any_order_and_batches():
    state, data = [], holes(table(300)).drop(columns="unit")

    def turned():
        state.append(1)
        return chunks(data.sample(frac=1, random_state=len(state)), 110 + len(state))()

    same(data, source=turned, missing="drop")


def test_a_report_leaves_out_the_picture_that_needs_rows():
    from cfair.report.blocks import Figure, Heading
    from cfair.report.diagnostics import diagnostics_blocks

    result = cfair.counterfactual_by_batches(table(), FORMULA, **ROLES)
    blocks = diagnostics_blocks(result, result, [result])
    assert any(isinstance(block, Heading) for block in blocks)
    assert not any(isinstance(block, Figure) for block in blocks)


def test_what_a_result_has_not_by_row_is_refused():
    result = cfair.counterfactual_by_batches(table(), FORMULA, **ROLES)
    for ask in (lambda: result.propensities, lambda: result.weights, result.plot_overlap):
        with pytest.raises(DataError, match="read by batches"):
            ask()
    with pytest.raises(DataError, match="no bootstrap replicates"):
        result.bootstrap_intervals()
    assert result.null_draws.empty
    assert "rows truncated to" in repr(result.propensity)


def test_warnings_point_to_the_caller():
    with pytest.warns(CutoffWarning) as caught:
        cfair.counterfactual_by_batches(table(), FORMULA, **{**ROLES, "cutoff": 0.0})
    assert caught[0].filename == __file__
    with pytest.warns(SmallGroupWarning):
        cfair.counterfactual_by_batches(table(), FORMULA, **ROLES, min_group_size=130)
    with pytest.warns(ModelWarning, match="score test"):
        cfair.counterfactual_by_batches(table(), "d ~ x", **ROLES)


@pytest.mark.parametrize("kind", SOURCES)
def test_batches_are_no_larger_than_asked_for(kind, tmp_path):
    source = open_source(SOURCES[kind](table().drop(columns="unit"), tmp_path), 137)
    for _ in range(2):
        sizes = [part.n_rows for part in source.tables(["x", "sex"])]
        assert sum(sizes) == 900
        assert max(sizes) <= 137


def test_text_is_read_by_batches_as_it_is_in_memory():
    data = table(300)
    data["SBP"] = [f"{100 + i % 30}" for i in range(298)] + ["n/k"] * 2
    refused(r"'SBP' is text: 30 of 31 different values are numbers, 1 are not \('n/k'\)",
            formula="d ~ SBP + s", source=data)  # fmt: skip
    data["word"] = np.where(data["y"] == 1, np.where(data["d"] == 1, "yes", "Yes"), "no")
    n = int((data["word"] == "yes").sum())
    refused(rf"'yes' \({n} rows\), 'Yes' .*outcome_event=\['yes', 'Yes'\]",
            source=data, outcome="word", outcome_event="yes", reads=1)  # fmt: skip
