"""Who is in the data: counts, shares, what independence would give, what is too small."""

from __future__ import annotations

import json

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency
from statsmodels.stats.proportion import proportion_confint

import cfair
from cfair.cli import main
from cfair.errors import DataError
from cfair.metrics import representation
from cfair.plotting import plot_mosaic

matplotlib.use("Agg")


def people():
    """F/x 30, F/y 5, M/x 60, M/y 0, and five rows without a race; events in every third row."""
    parts = [("F", "x")] * 30 + [("F", "y")] * 5 + [("M", "x")] * 60 + [("M", None)] * 5
    frame = pd.DataFrame(parts, columns=["sex", "race"])
    return frame.assign(y=(np.arange(len(frame)) % 3 == 0).astype(int), risk=0.3)


def of(frame, cross=("sex", "race"), **more):
    return cfair.representation_of(frame, list(cross), **more)


def test_cells_by_hand():
    cells = of(people(), outcome="y").cells.set_index("group")
    assert cells["n"].to_dict() == {"F & x": 30, "F & y": 5, "M & x": 60, "M & y": 0}
    assert cells.loc["F & x", "share"] == pytest.approx(30 / 95)
    assert cells.loc["F & y", "expected"] == pytest.approx(95 * (35 / 95) * (5 / 95))
    assert cells.loc["F & y", "ratio"] == pytest.approx(5 / (35 * 5 / 95))
    assert cells.loc["F & x", ["events", "non_events"]].tolist() == [10, 20]
    assert (cells["events"] + cells["non_events"] == cells["n"]).all()
    assert cells["absent"].tolist() == [False, False, False, True]
    assert cells["below_floor"].tolist() == [False, False, False, True]
    assert cells["below_min_count"].all()
    assert cells["below_disclosure"].tolist() == [pd.NA, 11, pd.NA, pd.NA]
    assert cells["note"].tolist() == [
        "fewer than 100 rows", "fewer than 11 rows", "fewer than 100 rows", "absent",
    ]  # fmt: skip


def test_shares_and_widths_are_statsmodels_wilson():
    cells = of(people()).cells
    low, high = proportion_confint(cells["n"], 95, method="wilson")
    np.testing.assert_allclose(cells["ci_low"], np.maximum(low, 0))
    np.testing.assert_allclose(cells["ci_high"], high)
    inner = proportion_confint(0.2 * 30, 30, method="wilson")
    assert cells.loc[0, "width"] == pytest.approx(inner[1] - inner[0])
    assert np.isnan(cells.loc[3, "width"])
    wider = of(people(), level=0.99, rate=0.5).cells
    assert (wider["width"].dropna() > cells["width"].dropna()).all()


def test_rows_that_miss_an_attribute_are_counted_and_in_no_cell():
    result = of(people())
    attributes = result.attributes.set_index("attribute")
    assert attributes["missing"].to_dict() == {"sex": 0, "race": 5}
    assert attributes["n"].to_dict() == {"sex": 100, "race": 95}
    assert attributes["much_missing"].tolist() == [False, True]
    assert (result.tables.n_read, result.tables.n_known) == (100, 95)
    assert "100 rows, 95 with all attributes (5 in no cell: race missing (5))" in str(result)
    levels = result.levels.set_index(["attribute", "level"])
    assert levels.loc[("sex", "M"), "n"] == 65  # a row counts for the attribute that it has
    share = of(people(), denominator="all").cells["share"]
    np.testing.assert_allclose(share, np.array([30, 5, 60, 0]) / 100)
    level = of(people(), missing="level")
    assert level.cells.set_index("group").loc["M & missing", "n"] == 5
    with pytest.raises(DataError, match=r"'race' \(5 rows\)"):
        of(people(), missing="raise")


def test_single_attributes():
    levels = of(people()).levels.set_index(["attribute", "level"])
    assert levels.loc[("race", "y"), "share"] == pytest.approx(5 / 95)
    assert not levels.loc[("race", "y"), "under_represented"]
    rare = pd.DataFrame({"race": ["x"] * 96 + ["y"] * 4})
    assert of(rare, ["race"]).levels["under_represented"].tolist() == [False, True]
    row = of(rare, ["race"]).attributes.iloc[0]
    assert row["imbalance_ratio"] == pytest.approx(24)
    assert row["imbalanced"]
    h = -(0.96 * np.log(0.96) + 0.04 * np.log(0.04))
    assert row["entropy"] == pytest.approx(h)
    assert row["entropy_ratio"] == pytest.approx(h / np.log(2))
    one = of(pd.DataFrame({"race": ["x"] * 3}), ["race"])
    assert one.attributes.loc[0, "entropy_ratio"] == 0
    assert one.associations.empty
    assert "Representation of race" in str(one)


def test_associations_are_scipys():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {name: rng.integers(0, k, 300) for name, k in (("a", 2), ("b", 3), ("c", 2))}
    )
    found = of(frame, ["a", "b", "c"]).associations.set_index(["attribute_a", "attribute_b"])
    for (a, b), row in found.iterrows():
        table = pd.crosstab(frame[a], frame[b])
        test = chi2_contingency(table)
        plain = chi2_contingency(table, correction=False).statistic
        assert (row["chi2"], row["p_value"]) == pytest.approx((test.statistic, test.pvalue))
        assert row["cramers_v"] == pytest.approx(np.sqrt(plain / 300 / (min(table.shape) - 1)))
    thin = of(people()).associations.iloc[0]
    assert thin["low_expected"] == 0.5
    assert "approximate" in thin["note"]
    alone = of(pd.DataFrame({"a": ["x"] * 4, "b": list("yzyz")}), ["a", "b"]).associations.iloc[0]
    assert np.isnan(alone["p_value"])
    assert alone["note"] == "an attribute has one level"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1)), min_size=1))
@settings(max_examples=25, deadline=None)
def test_identities(rows):
    features = dict(zip("abc", zip(*rows, strict=True), strict=True))
    cells = representation({name: list(values) for name, values in features.items()})
    assert cells["n"].sum() == len(rows)
    assert cells["share"].sum() == pytest.approx(1)
    assert cells["expected"].sum() == pytest.approx(len(rows))
    assert (
        (cells["ci_low"] <= cells["share"] + 1e-12) & (cells["share"] <= cells["ci_high"])
    ).all()
    assert len(cells) == np.prod([len(set(values)) for values in features.values()])
    for name in "abc":
        by = cells.groupby(name, observed=True)[["n", "expected"]].sum()
        np.testing.assert_allclose(by["n"], by["expected"])


def test_the_verb_counts_the_rows_used_and_says_what_was_dropped():
    frame = people()
    with pytest.raises(DataError, match="race"):
        cfair.Audit(frame, outcome="y", score="risk", cutoff=0.2, groups=["sex", "race"])
    with pytest.warns(cfair.errors.CutoffWarning):
        audit = cfair.Audit(
            frame, outcome="y", score="risk", cutoff=0.2, groups=["sex", "race"], missing="drop"
        )
    result = audit.representation()
    table = of(frame, outcome="y")
    for name in ("n", "share", "expected", "events", "width"):
        np.testing.assert_allclose(result.cells[name], table.cells[name])
    assert result.attributes["missing"].tolist() == [0, 5]
    assert "5 dropped: race missing" in str(result)
    assert audit.representation(denominator="all").cells["share"].sum() == pytest.approx(0.95)


def test_weights_are_said_and_shown():
    frame = people().dropna().assign(w=lambda d: np.where(d["race"] == "y", 3.0, 1.0))
    frame["risk"] = np.linspace(0, 1, len(frame))
    audit = cfair.Audit(
        frame, outcome="y", score="risk", cutoff=0.5, groups=["sex", "race"], weights="w"
    )
    result = audit.representation()
    assert result.cells["n"].tolist() == [30, 5, 60, 0]
    np.testing.assert_allclose(result.cells["weighted_share"], np.array([30, 15, 60, 0]) / 105)
    assert "weighted_share" in str(result)


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "duckdb"])
def test_other_frames_give_the_same(kind):
    frame = people()
    module = pytest.importorskip(kind)
    if kind == "polars":
        other = module.from_pandas(frame)
    elif kind == "pyarrow":
        other = module.Table.from_pandas(frame)
    else:
        other = module.from_df(frame)
    found, expected = of(other, outcome="y"), of(frame, outcome="y")
    pd.testing.assert_frame_equal(
        found.cells[["group", "n", "share", "events"]],
        expected.cells[["group", "n", "share", "events"]],
        check_dtype=False,
    )


def test_a_lazy_cohort_is_counted_in_its_engine():
    pl = pytest.importorskip("polars")
    cohort = cfair.load_cohort()
    roles = {"outcome": "readmitted", "score": "risk", "cutoff": 0.5, "groups": ["sex", "race"]}
    lazy = cfair.Audit(pl.from_pandas(cohort).lazy(), **roles)
    eager = cfair.Audit(cohort, **roles)
    pd.testing.assert_frame_equal(
        lazy.representation().cells.drop(columns=["sex", "race"]),
        eager.representation().cells.drop(columns=["sex", "race"]),
    )
    pd.testing.assert_frame_equal(
        lazy.interaction().contrasts, eager.interaction().contrasts, check_exact=False
    )


def test_bad_input():
    frame = people()
    with pytest.raises(DataError, match="cross 'rac' is not a column.*'race'"):
        of(frame, ["sex", "rac"])
    with pytest.raises(DataError, match="name a column twice"):
        of(frame, ["sex", "sex"])
    with pytest.raises(DataError, match="outcome"):
        of(frame.assign(y="dead"), outcome="y")
    with pytest.raises(DataError, match="no rows"):
        of(frame.iloc[:0])
    with pytest.raises(DataError, match="no row has all of sex, race"):
        of(pd.DataFrame({"sex": ["F", None], "race": [None, "x"]}))
    with pytest.raises(DataError, match="cross must name"):
        of(frame, [])
    for option, value in (
        ("floor", 2), ("rate", 0), ("min_count", -1), ("min_count", 1.5), ("disclosure", ("x",)),
        ("level", 95), ("denominator", "some"), ("missing", "keep"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=option):
            of(frame, **{option: value})
    with pytest.raises(DataError, match="length 0"):
        representation([])
    with pytest.raises(DataError, match="'b' has 2 values|has 2 values"):
        representation({"a": [1, 2, 3], "b": [1, 2]})


def test_an_attribute_may_be_called_like_a_column_of_the_frame():
    frame = pd.DataFrame({"n": list("ab"), "group": list("cd")})
    cells = of(frame, ["n", "group"]).cells
    assert cells["n"].tolist() == [1, 0, 0, 1]
    assert cells["n (attribute)"].tolist() == ["a", "a", "b", "b"]


def test_missing_outcomes_are_neither_and_said():
    frame = people().astype({"y": float})
    frame.loc[0, "y"] = np.nan
    result = of(frame, outcome="y")
    assert result.cells.loc[0, ["n", "events", "non_events"]].tolist() == [30, 9, 20]
    assert "y is missing in 1 rows" in str(result)


def test_print_says_what_is_absent_and_small():
    said = str(of(people(), disclosure=(20, 11)))
    assert "1 cell absent: M & y." in said
    assert "1 cell with fewer than 11 rows, which may disclose who it is: F & y." in said
    assert "race: 5.0% missing (5% or more)." in said
    assert "race: the largest level is 18.0 times the least (3 or more)." in said
    many = pd.DataFrame({"a": np.arange(400) % 20, "b": np.arange(400) // 20})
    cut = str(of(many, ["a", "b"]))
    assert "... 360 of 400 cells not shown" in cut
    assert "400 of 400 cells with fewer than 100 rows" in cut


def test_dict_and_json_hold_every_table():
    result = of(people(), outcome="y")
    found = json.loads(result.to_json())
    assert found == result.to_dict()
    assert [cell["n"] for cell in found["cells"]] == [30, 5, 60, 0]
    assert found["cells"][3]["width"] is None
    assert found["thresholds"]["disclosure"] == [20, 11]
    assert {"levels", "attributes", "associations"} <= set(found)


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_mosaic_writes_what_fits_and_lists_the_rest():
    ax = of(people()).plot()
    beside = next(text for text in texts(ax) if text.startswith("small cells"))
    assert beside.splitlines() == ["small cells", "M & y: absent", "F & y: 5"]
    assert any(text.split() == ["x", "60"] for text in texts(ax))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["F", "M"]
    entries = [text.get_text() for text in ax.get_legend().get_texts()]
    assert entries == ["fewer than 100", "fewer than 20"]
    boxes = [patch for patch in ax.patches if patch.get_width() * patch.get_height() > 0]
    area = {round(p.get_width() * p.get_height(), 3) for p in boxes}
    assert max(area) / sum(area) == pytest.approx(60 / 95, abs=0.02)
    given_ax = matplotlib.figure.Figure().add_subplot()
    assert of(people()).plot(ax=given_ax) is given_ax
    matplotlib.pyplot.close("all")


def test_mosaic_tells_small_cells_from_those_without_room():
    rows = [("a", "x")] * 20_000 + [("b", "x")] * 120 + [("b", "y")] * 3
    ax = of(pd.DataFrame(rows, columns=["sex", "race"])).plot()
    beside = next(text for text in texts(ax) if text.startswith("small cells"))
    small, _, apart = beside.partition("\n\n")
    assert small.splitlines() == ["small cells", "a & y: absent", "b & y: 3"]
    assert apart.splitlines() == ["not labelled", "b & x: 120"]
    matplotlib.pyplot.close("all")


def test_mosaic_cuts_no_label_that_fits():
    rows = [(s, r) for s in "ab" for r in ("private", "public") for _ in range(300)]
    ax = of(pd.DataFrame(rows, columns=["sex", "race"])).plot()
    assert any(text.split()[:1] == ["private"] for text in texts(ax))
    assert not any("…" in text for text in texts(ax))
    from cfair.plotting.mosaic import _fit, _length

    room = _length("private", 9.0)
    assert _fit("private", room, 9.0) == "private"
    assert _fit("private", room - 1, 9.0) == "pri…te"
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize("way", ["audit", "table"])
def test_missing_values_that_are_a_level_count_as_missing(way):
    frame = pd.DataFrame(
        {
            "sex": ["F", "M", None, "F"] * 30,
            "race": ["x", "y"] * 60,
            "risk": np.linspace(0.1, 0.9, 120),
            "y": [0, 1] * 60,
        }
    )
    if way == "audit":
        result = cfair.Audit(
            frame, outcome="y", score="risk", cutoff=0.5, groups=["sex", "race"], missing="level"
        ).representation()
    else:
        result = cfair.representation_of(frame, ["sex", "race"], missing="level")
    row = result.attributes.set_index("attribute").loc["sex"]
    assert row[["n", "missing", "n_levels"]].tolist() == [90, 30, 3]
    assert row["much_missing"]
    assert "30 (25.0%)" in str(result)
    assert "<5%: share of a level of a single attribute" in " ".join(str(result).split())


@pytest.mark.parametrize("shape", [(1,), (7,), (6, 5), (2, 3, 4), (2, 15)])
def test_mosaic_of_any_shape(shape):
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 60, shape)
    counts.flat[0] = 0
    counts.flat[-1] = 900
    levels = [[f"level ${k}_{j}" for j in range(k_n)] for k, k_n in enumerate(shape)]
    ax = plot_mosaic(counts, levels, [f"a{k}" for k in range(len(shape))])
    ax.figure.canvas.draw()
    assert len(ax.patches) == counts.size or counts.reshape(-1, shape[-1]).sum(axis=1).min() == 0
    matplotlib.pyplot.close(ax.figure)


# -- the command line ---------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "people.csv"
    people().to_csv(path, index=False)
    return path


@pytest.mark.parametrize("cross", [["sex,race"], ["sex", "race"], ["sex, race"]])
def test_command_line_prints_the_same(path, capsys, cross):
    assert main(["representation", str(path), "--cross", *cross]) == 0
    assert capsys.readouterr().out.strip() == str(of(people()))


def test_command_line_writes_tables_json_and_plot(path, tmp_path, capsys):
    out = tmp_path / "out"
    options = ["--outcome", "y", "--min-count", "50", "--disclosure", "10", "--out", str(out)]
    assert main(["representation", str(path), "--cross", "sex", "race", *options]) == 0
    names = {p.name for p in out.iterdir()}
    assert f"{len(names)} files in" in capsys.readouterr().out
    direct = of(people(), outcome="y", min_count=50, disclosure=[10])
    written = pd.read_csv(out / "representation_cells.csv")
    assert written["n"].tolist() == direct.cells["n"].tolist()
    assert json.loads((out / "representation.json").read_text()) == direct.to_dict()
    assert {"representation.png", "representation.txt", "representation_levels.csv"} <= names


def test_command_line_errors_in_one_line(path, capsys):
    assert main(["representation", str(path), "--cross", "sex", "rase"]) == 2
    error = capsys.readouterr().err
    assert "cross 'rase' is not a column" in error
    assert error.count("\n") == 1
    people().fillna("NA").to_csv(path, index=False)
    assert main(["representation", str(path), "--cross", "sex", "race"]) == 2
    assert "--na NA" in capsys.readouterr().err
    assert main(["representation", str(path), "--cross", "sex", "race", "--na", "NA"]) == 0
