"""Two attributes at once: cells, flag, contrast, and what is said where they disagree."""

from __future__ import annotations

import re

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

import cfair
from cfair.errors import CfairWarning, DataError
from cfair.inference.intervals import NORMAL, mover_combination, wilson_interval
from cfair.metrics.superadditivity import (
    CELLS,
    CONTRAST,
    disagreement,
    interaction_contrast,
    interaction_interval,
    superadditive,
)

matplotlib.use("Agg")


def rows_of(cells):
    """Rows of four cells, given as (events, rows) in the order of `CELLS`."""
    at = ((1, 1), (1, 0), (0, 1), (0, 0))
    parts = [(k < e, *side) for (e, n), side in zip(cells, at, strict=True) for k in range(n)]
    return pd.DataFrame(parts, columns=["y", "a", "b"]).astype(int)


def table(n=900, seed=3, levels=("x", "y", "z")):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "sex": rng.choice(["F", "M"], n, p=[0.4, 0.6]),
            "race": rng.choice(list(levels), n, p=[0.5, 0.3, 0.2]),
            "age": rng.choice(["old", "young"], n),
            "risk": rng.random(n).round(3),
            "w": rng.uniform(0.5, 2, n),
            "site": rng.integers(0, 40, n),
        }
    )
    frame["y"] = (rng.random(n) < 0.2 + 0.4 * frame["risk"]).astype(int)
    return frame


def audit(frame, groups=("sex", "race"), **more):
    return cfair.Audit(frame, outcome="y", score="risk", cutoff=0.5, groups=list(groups), **more)


def gap(frame, **more):
    return cfair.intersectional_gap("y", sensitive_features=["a", "b"], data=frame, **more)


# -- by hand ----------------------------------------------------------------------------------


def test_cells_gaps_and_contrast_by_hand():
    found = gap(rows_of([(6, 10), (8, 20), (9, 30), (10, 40)]))
    assert found.cell_rates == {"both": 0.6, "a_only": 0.4, "b_only": 0.3, "neither": 0.25}
    assert found.cell_sizes == {"both": 10, "a_only": 20, "b_only": 30, "neither": 40}
    assert found.gap == pytest.approx(0.35)
    assert found.gap_a_alone == pytest.approx(14 / 30 - 19 / 70)
    assert found.gap_b_alone == pytest.approx(15 / 40 - 18 / 60)
    assert found.contrast == pytest.approx(0.6 - 0.4 - 0.3 + 0.25)
    assert found.ratio == pytest.approx(0.6 * 0.25 / (0.4 * 0.3))
    assert found.superadditive is True
    expected = np.sqrt(0.24 / 10 + 0.24 / 20 + 0.21 / 30 + 0.1875 / 40)
    assert found.se == pytest.approx(expected)


def test_the_interval_is_mover_from_statsmodels_wilson_limits():
    events, n = np.array([6, 8, 9, 10]), np.array([10, 20, 30, 40])
    p = events / n
    low, high = proportion_confint(events, n, method="wilson")
    down = np.where(CONTRAST > 0, p - low, high - p)
    up = np.where(CONTRAST > 0, high - p, p - low)
    d = p @ CONTRAST
    expected = d - np.sqrt((down**2).sum()), d + np.sqrt((up**2).sum())
    np.testing.assert_allclose(interaction_interval(p, n), expected, atol=1e-13)
    found = gap(rows_of(list(zip(events, n, strict=True))))
    np.testing.assert_allclose((found.ci_low, found.ci_high), expected, atol=1e-13)
    newcombe = confint_proportions_2indep(6, 10, 10, 40, method="newcomb")
    np.testing.assert_allclose((found.gap_low, found.gap_high), newcombe, atol=1e-12)


def test_the_p_value_is_the_level_at_which_the_interval_touches_0():
    frame = rows_of([(30, 40), (30, 80), (35, 90), (30, 100)])
    p = gap(frame).p_value
    assert 1e-6 < p < 0.05
    inside, outside = gap(frame, level=1 - 0.999 * p), gap(frame, level=1 - 1.001 * p)
    assert inside.ci_low < 0 < outside.ci_low


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=4, max_size=4).map(
        lambda cells: [(min(e, n), n) for e, n in cells]
    )
)
@settings(max_examples=25, deadline=None)
def test_identities(cells):
    frame = rows_of(cells)
    found = gap(frame)
    turned = gap(frame, levels=(0, 1))
    swapped = gap(frame.assign(a=frame["b"], b=frame["a"]))
    assert turned.contrast == pytest.approx(-found.contrast)
    assert turned.ci_low == pytest.approx(-found.ci_high)
    assert swapped.contrast == pytest.approx(found.contrast)
    assert swapped.superadditive == found.superadditive
    assert 0 < found.p_value <= 1
    assert turned.p_value == pytest.approx(found.p_value)
    if found.p_value < 0.049:
        assert found.ci_low > 0 or found.ci_high < 0
    if found.p_value > 0.051:
        assert found.ci_low <= 0 <= found.ci_high
    # marginal gaps are weighted means of the conditional ones, so they lie between them
    r = found.cell_rates
    sides = sorted((r["both"] - r["b_only"], r["a_only"] - r["neither"]))
    assert found.se > 0
    if len({n for _, n in cells}) == 1:
        assert not found.superadditive  # a tie by algebra
        assert sides[0] - 1e-9 <= found.gap_a_alone <= sides[1] + 1e-9


def test_a_tie_does_not_fire_the_flag():
    third = 0.1 + 0.2  # 0.30000000000000004
    assert not superadditive(np.array(third), np.array(0.1), np.array(0.2))
    assert superadditive(np.array(0.31), np.array(0.1), np.array(0.2))


@pytest.mark.parametrize(
    ("flag", "both", "contrast", "p", "kind"),
    [
        (True, 0.2, 0.1, 0.3, "flag only"),
        (True, 0.2, 0.1, 0.01, ""),
        (True, 0.2, -0.1, 0.01, "opposite"),
        (False, 0.2, 0.1, 0.01, "contrast only"),
        (False, 0.2, -0.1, 0.01, ""),
        (False, 0.2, 0.1, 0.3, ""),
        (False, np.nan, np.nan, np.nan, ""),
        (True, 0.2, np.nan, np.nan, ""),
    ],
)
def test_disagreement(flag, both, contrast, p, kind):
    arrays = [np.array([v]) for v in (flag, both, contrast, p)]
    assert disagreement(*arrays).tolist() == [kind]


def test_the_verdict_says_it_in_words():
    # no interaction at all, but attributes that avoid each other
    cells = [(30, 100), (180, 900), (180, 900), (20, 200)]
    found = gap(rows_of(cells))
    assert found.superadditive
    assert found.contrast == pytest.approx(0)
    assert "flag fires, but the contrast is" in found.verdict
    assert "not told from 0" in str(found)
    hidden = gap(rows_of([(360, 900), (120, 600), (120, 600), (40, 400)]))
    assert hidden.superadditive is False
    assert hidden.verdict.startswith("no flag, but the contrast is 0.100")
    against = gap(rows_of([(360, 900), (180, 600), (180, 600), (40, 400)]))
    assert against.superadditive
    assert "less than the two effects" in against.verdict


# -- the function's input ---------------------------------------------------------------------


def test_an_empty_cell_has_a_reason_and_is_never_significant():
    found = cfair.intersectional_gap(
        [1, 0, 1, 0, 1, 0],
        sensitive_features={"a": [0, 0, 1, 1, 0, 0], "b": [0, 0, 0, 0, 1, 1]},
    )
    undefined = (
        found.gap,
        found.gap_p_value,
        found.contrast,
        found.se,
        found.ci_low,
        found.p_value,
    )
    assert np.isnan(undefined).all()
    assert found.superadditive is None
    assert found.note == "no rows in both"
    assert "no verdict: no rows in both" in str(found)
    assert found.to_frame()["superadditive"].isna().all()


def test_cells_of_one_row_are_never_significant():
    found = gap(rows_of([(1, 1), (0, 1), (0, 1), (1, 1)]))
    assert found.contrast == 2
    assert found.p_value > 0.05
    assert found.se > 0


def test_levels_and_references():
    frame = table()
    three = {"sex": frame["sex"], "race": frame["race"]}
    with pytest.raises(DataError, match=r"'race' has 3 levels .* levels="):
        cfair.intersectional_gap(frame["y"], sensitive_features=three)
    rest = cfair.intersectional_gap(frame["y"], sensitive_features=three, levels=("F", "y"))
    assert rest.references == ("M", "rest")
    assert rest.n == len(frame)
    pair = cfair.intersectional_gap(
        frame["y"], sensitive_features=three, levels=("F", "y"), references=("M", "x")
    )
    kept = frame[frame["race"] != "z"]
    alone = cfair.intersectional_gap(
        kept["y"], sensitive_features=kept[["sex", "race"]], levels=("F", "y")
    )
    assert pair.gap_a_alone == alone.gap_a_alone
    assert pair.n_left_out == (frame["race"] == "z").sum()
    assert f"{pair.n_left_out:,} rows in none of the four cells" in str(pair)
    with pytest.raises(DataError, match=r"'Q' is no level of 'race'.*'x', 'y', 'z'"):
        cfair.intersectional_gap(frame["y"], sensitive_features=three, levels=("F", "Q"))
    with pytest.raises(DataError, match="level and reference are both 'x'"):
        cfair.intersectional_gap(
            frame["y"], sensitive_features=three, levels=("F", "x"), references=("M", "x")
        )
    with pytest.raises(DataError, match="must be two attributes, not 1"):
        cfair.intersectional_gap(frame["y"], sensitive_features=frame["sex"])
    with pytest.raises(DataError, match="one level for each of the two"):
        cfair.intersectional_gap(frame["y"], sensitive_features=three, levels="F")


def test_missing_values_are_refused_or_counted():
    frame = rows_of([(6, 10), (8, 20), (9, 30), (10, 40)]).astype(object)
    whole = gap(frame.astype(int))
    frame = pd.concat([frame, pd.DataFrame({"y": [1, None], "a": [None, 1], "b": [1, 0]})])
    frame = frame.reset_index(drop=True)
    with pytest.raises(DataError, match=r"'a' \(1 rows\).*2 of 102 rows"):
        gap(frame.astype({"y": float}))
    with pytest.warns(CfairWarning, match="of 102 rows 2 dropped"):
        found = gap(frame.astype({"y": float}), missing="drop")
    assert (found.contrast, found.dropped) == (whole.contrast, 2)
    assert "2 rows with missing values left out" in str(found)


def test_other_outcomes():
    frame = table()
    features = {"f": frame["sex"] == "F", "old": frame["age"] == "old"}
    found = cfair.intersectional_gap(frame["risk"], sensitive_features=features)
    means = [
        frame.loc[(features["f"] == a) & (features["old"] == b), "risk"]
        for a, b in ((True, True), (True, False), (False, True), (False, False))
    ]
    assert found.contrast == pytest.approx(np.array([m.mean() for m in means]) @ CONTRAST)
    assert found.se == pytest.approx(np.sqrt(sum(m.sem() ** 2 for m in means)))
    assert found.ci_low < found.contrast < found.ci_high
    constant = cfair.intersectional_gap(
        [2.0] * 8, sensitive_features={"a": [0, 1] * 4, "b": [0] * 4 + [1] * 4}
    )
    assert np.isnan(constant.p_value)
    assert "no spread" in constant.note
    with pytest.raises(DataError, match="'dead'"):
        cfair.intersectional_gap(["dead", "alive"], sensitive_features={"a": [0, 1], "b": [0, 1]})
    with pytest.raises(DataError, match="infinite"):
        cfair.intersectional_gap([np.inf, 1.0], sensitive_features={"a": [0, 1], "b": [0, 1]})


# -- the verb ---------------------------------------------------------------------------------


def test_the_verb_against_the_function_for_every_pair_of_attributes():
    frame = table()
    result = audit(frame, ("sex", "race", "age")).interaction(
        ("selection_rate", "tpr"), reference="rest", adjust=None
    )
    assert len(result.contrasts) == 2 * (3 + 1 + 3)
    flagged = (frame["risk"] >= 0.5).astype(int)
    for row in result.contrasts.itertuples():
        rows = frame["y"] == 1 if row.metric == "tpr" else frame["y"] >= 0
        a = frame.loc[rows, row.attribute_a] == row.level_a
        b = frame.loc[rows, row.attribute_b] == row.level_b
        one = cfair.intersectional_gap(flagged[rows], sensitive_features={"a": a, "b": b})
        np.testing.assert_allclose(
            [row.contrast, row.se, row.ci_low, row.ci_high, row.p_value, row.gap_both, row.gap_a],
            [one.contrast, one.se, one.ci_low, one.ci_high, one.p_value, one.gap, one.gap_a_alone],
            atol=1e-9,
        )
        assert row.gap_b == pytest.approx(one.gap_b_alone)
        assert (row.gap_low, row.gap_high) == pytest.approx((one.gap_low, one.gap_high))
        assert row.superadditive == one.superadditive
        assert [row.n11, row.n10, row.n01, row.n00] == list(one.cell_sizes.values())


def test_reference_levels():
    frame = table()
    usual = audit(frame).interaction("fpr").contrasts
    assert usual[["reference_a", "reference_b"]].drop_duplicates().values.tolist() == [["M", "x"]]
    assert usual["level_b"].tolist() == ["y", "z"]
    named = audit(frame).interaction("fpr", reference={"race": "z", "sex": "F"}).contrasts
    assert named["level_b"].tolist() == ["x", "y"]
    assert named["level_a"].tolist() == ["M", "M"]
    pairs = audit(frame).interaction("fpr", reference="pairs").contrasts
    assert len(pairs) == 3
    one = audit(frame).interaction("fpr", levels={"race": "y"}).contrasts
    assert one["level_b"].tolist() == ["y"]
    with pytest.raises(DataError, match="no other level is asked for"):
        audit(frame).interaction("fpr", levels={"race": "x"})
    with pytest.raises(DataError, match="'site' is not an attribute"):
        audit(frame).interaction("fpr", levels={"site": 1})
    with pytest.raises(ValueError, match="reference must be one of 'largest', 'rest', 'pairs'"):
        audit(frame).interaction("fpr", reference="all")


def test_holm_over_the_family_is_statsmodels_and_printed():
    result = audit(table(), ("sex", "race", "age")).interaction()
    frame = result.contrasts
    expected = multipletests(frame["p_value"], method="holm")[1]
    np.testing.assert_allclose(frame["p_adjusted"], expected)
    assert f"Holm over {len(frame)} p-values (4 metrics)" in str(result)
    plain = audit(table()).interaction(adjust=None)
    assert plain.contrasts["p_adjusted"].equals(plain.contrasts["p_value"])
    assert "not adjusted" in str(plain)


def test_weights_of_two_are_rows_twice_for_the_estimate_and_clusters_widen_it():
    frame = table()
    double = frame.assign(w=np.where(frame.index < 450, 2.0, 1.0))
    weighted = audit(double, weights="w").interaction("fpr").contrasts
    repeated = (
        audit(pd.concat([frame, frame[:450]], ignore_index=True)).interaction("fpr").contrasts
    )
    for name in ("r11", "r10", "r01", "r00", "gap_a", "gap_b", "contrast"):
        np.testing.assert_allclose(weighted[name], repeated[name], atol=1e-12)
    assert weighted["n11"].tolist() == audit(frame).interaction("fpr").contrasts["n11"].tolist()
    assert (weighted["se"] > repeated["se"]).all()
    # whole clusters of equal rows: the variance of one row each
    copies = pd.concat([frame.assign(site=frame.index)] * 3, ignore_index=True)
    clustered = audit(copies, cluster="site").interaction("selection_rate").contrasts
    single = audit(frame).interaction("selection_rate").contrasts
    np.testing.assert_allclose(clustered["se"], single["se"], rtol=0.01)
    assert (audit(copies).interaction("selection_rate").contrasts["se"] < 0.6 * single["se"]).all()


def test_the_variance_is_the_quadratic_form_of_the_joint_covariance():
    frame = table()
    verb = audit(frame, cluster="site")
    row = verb.interaction("fpr", levels={"race": "y"}).contrasts.iloc[0]
    sigma = verb.observed().covariance.loc["fpr", "fpr"]
    names = ["F & y", "F & x", "M & y", "M & x"]
    assert row["se"] == pytest.approx(np.sqrt(CONTRAST @ sigma.loc[names, names] @ CONTRAST))


def test_cells_without_a_rate_have_a_reason():
    frame = table()
    frame = frame[~((frame["sex"] == "F") & (frame["race"] == "z"))]
    frame.loc[(frame["sex"] == "F") & (frame["race"] == "y"), "y"] = 0
    result = audit(frame).interaction(("tpr", "selection_rate"))
    rows = result.contrasts.set_index(["metric", "level_b"])
    assert rows.loc[("tpr", "y"), "note"] == "no events in both"
    assert rows.loc[("tpr", "z"), "note"] == "no rows in both"
    for key in (("tpr", "y"), ("tpr", "z"), ("selection_rate", "z")):
        row = rows.loc[key]
        assert np.isnan(row[["contrast", "p_value", "p_adjusted", "gap_both"]].astype(float)).all()
        assert row["superadditive"] is pd.NA
    assert rows["p_value"].notna().sum() == 1
    said = str(result)
    assert "Holm over 1 p-value (" in said
    assert "3 contrasts undefined, such as TPR of F & y: no events in both" in said


def test_disagreements_are_printed_and_in_the_frame():
    rng = np.random.default_rng(0)
    sizes = {("F", "x"): 12, ("F", "y"): 280, ("M", "x"): 48, ("M", "y"): 260}
    rows = [(s, r) for (s, r), n in sizes.items() for _ in range(n)]
    frame = pd.DataFrame(rows, columns=["sex", "race"])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        frame["risk"], frame["y"] = rng.random(len(frame)), rng.integers(0, 2, len(frame))
        result = audit(frame).interaction(("selection_rate", "tpr", "fpr"))
        kinds = result.contrasts["disagreement"]
        if (kinds == "flag only").any():
            break
    assert (kinds == "flag only").any()
    assert result.disagreements["sentence"].str.contains("flag fires, but the contrast is").all()
    assert f"disagree in {(kinds != '').sum()} of 3 comparisons" in str(result)
    assert "read with care" in str(result)


def many_disagreements():
    rng = np.random.default_rng(5)
    n = 1500
    frame = pd.DataFrame(
        {
            "sex": rng.choice(list("FM"), n),
            "race": rng.choice([f"r{k}" for k in range(9)], n),
            "risk": rng.random(n),
            "y": rng.integers(0, 2, n),
        }
    )
    return audit(frame).interaction(("selection_rate", "tpr", "fpr"))


def test_the_print_says_a_disagreement_once_and_shows_what_the_flag_compares():
    result = many_disagreements()
    said = " ".join(str(result).split())
    n = len(result.disagreements)
    assert n > 5
    assert f"... {n - 5} more: .disagreements" in said
    assert said.count("may simply add up") == 1
    assert "reference= and levels=" in said
    row = result.contrasts.iloc[0]
    line = next(x for x in str(result).splitlines() if f"  {row['level_b']}  " in x)
    for gap in ("gap_both", "gap_a", "gap_b"):
        assert f"{row[gap]:.3f}".replace("0.", ".") in line


def test_more_or_less_than_additive_follows_the_interval():
    data = table().assign(risk=lambda d: np.where((d["sex"] == "M") & (d["race"] == "y"), 0.9, 0.1))
    frame = audit(data).interaction("selection_rate").contrasts
    more, less = frame["ci_low"] > 0, frame["ci_high"] < 0
    assert (more | less).any()
    assert ((frame["additivity"] == "more than additive") == more).all()
    assert ((frame["additivity"] == "less than additive") == less).all()


def test_disagreement_goes_by_the_p_value_that_is_printed():
    result = many_disagreements()
    told = result.contrasts["p_adjusted"] < 0.05
    assert not told[result.contrasts["disagreement"] == "flag only"].any()
    for sentence, p in zip(
        result.disagreements["sentence"], result.disagreements["p_adjusted"], strict=True
    ):
        assert f"(p adj. = {p:.3f})".replace("= 0.", "= .") in sentence


def test_options_are_checked_before_any_work():
    one = cfair.Audit(table(), outcome="y", score="risk", cutoff=0.5, groups="sex")
    with pytest.raises(DataError, match="an interaction needs two attributes"):
        one.interaction()
    with pytest.raises(DataError, match="'site' is not an attribute"):
        audit(table()).interaction(attributes=["sex", "site"])
    with pytest.raises(ValueError, match="metric must be one of"):
        audit(table()).interaction("auc")
    with pytest.raises(ValueError, match="adjust must be one of"):
        audit(table()).interaction(adjust="max-t")
    with pytest.raises(ValueError, match="level must be"):
        audit(table()).interaction(level=95)


def test_many_comparisons_are_cut_in_print_and_whole_in_the_frame():
    frame = table(2000, levels=("x", "y", "z"))
    rng = np.random.default_rng(1)
    frame["race"] = rng.choice([f"r{k}" for k in range(8)], len(frame))
    frame["age"] = rng.choice([f"a{k}" for k in range(8)], len(frame))
    result = audit(frame, ("race", "age")).interaction("selection_rate", reference="pairs")
    assert len(result.contrasts) == 28 * 28
    assert "... 744 of 784 contrasts not shown" in str(result)
    cells = [line for line in str(result).splitlines() if re.search(r"\br\d +a\d\b", line)]
    assert len(cells) == 2 * 40  # the rates of 40 comparisons, and their contrasts


def test_the_result_is_a_record():
    result = audit(table()).interaction()
    frame = result.contrasts
    frame.loc[0, "contrast"] = 9
    assert result.contrasts.loc[0, "contrast"] != 9
    with pytest.raises(AttributeError):
        result.level = 0.5
    assert "Interaction of attributes" in result._repr_html_()


def test_plot_marks_flags_and_undefined_rows():
    frame = table()
    frame = frame[~((frame["sex"] == "F") & (frame["race"] == "z"))]
    result = audit(frame).interaction(("tpr", "fpr"), reference="pairs")
    ax = result.plot()
    assert len(ax.get_yticklabels()) == 3
    labels = {text.get_text() for text in ax.get_legend().get_texts()}
    assert {"TPR", "FPR", "undefined"} <= labels
    assert ("flagged as superadditive" in labels) == result.contrasts["superadditive"].any()
    assert result.plot("fpr", ax=ax.figure.add_subplot()) is not ax
    with pytest.raises(ValueError, match="metric must be one of"):
        result.plot("ppv")
    with pytest.raises(TypeError, match="ax must be one matplotlib Axes"):
        result.plot(ax=np.array([ax]))
    matplotlib.pyplot.close("all")


# -- the combination --------------------------------------------------------------------------


def test_a_combination_of_two_is_newcombes_difference():
    rates, n = np.array([0.3, 0.1]), np.array([40.0, 60.0])
    limits = wilson_interval(rates, n, max_df=NORMAL)
    found = mover_combination(rates, *limits, np.array([1.0, -1.0]))
    expected = confint_proportions_2indep(12, 40, 6, 60, method="newcomb")
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_correlation_narrows_the_interval_of_a_difference():
    rates, n = np.array([0.3, 0.1]), np.array([40.0, 60.0])
    limits = wilson_interval(rates, n, max_df=NORMAL)
    rho = np.array([[1, 0.5], [0.5, 1]])
    alone = np.diff(mover_combination(rates, *limits, np.array([1.0, -1.0])))
    together = np.diff(mover_combination(rates, *limits, np.array([1.0, -1.0]), rho))
    assert together < alone


def test_contrast_of_arrays():
    rates = np.array([[0.4, 0.2, 0.2, 0.1], [0.4, 0.3, 0.3, 0.1]])
    np.testing.assert_allclose(interaction_contrast(rates), [0.1, -0.1])
    assert len(CELLS) == len(CONTRAST)
