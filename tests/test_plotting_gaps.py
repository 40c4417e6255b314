"""Gap overview, heat map, attributes beside their intersection, and saving in a batch."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

import cfair
from cfair.plotting.saving import file_name, save_all


@pytest.fixture(scope="module")
def result():
    data = cfair.load_cohort().rename(columns={"race": "race/ethnicity"})
    audit = cfair.Audit(
        data, outcome="readmitted", score="risk", cutoff=0.5, groups=["sex", "race/ethnicity"]
    )
    return audit.observed()


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def texts(ax):
    return [t.get_text() for t in [*ax.texts, *ax.get_legend().get_texts()]]


def rows(ax):
    return [t.get_text() for t in ax.get_yticklabels()]


def left(band):
    """Left edge of a band: a polygon in matplotlib before 3.9, a rectangle since."""
    return np.reshape(band.get_xy(), (-1, 2))[:, 0].min()


def test_gaps_are_drawn_with_pair_and_interval(result):
    ax = result.plot_gaps(["tpr", "equalized_odds"])
    names = ["sex", "race/ethnicity", "sex x race/ethnicity"]
    assert rows(ax) == [f"{m}, by {by}" for m in ("TPR", "TPR or FPR") for by in names]
    frame = result.gaps(["tpr", "equalized_odds"])
    drawn = ax.lines[0].get_xdata()
    np.testing.assert_allclose(drawn, frame["gap"])
    assert any("0.11 [0.01, 0.21]  Black, Other" in t for t in texts(ax))
    assert "severe, above 0.15" in texts(ax)


def test_bands_move_with_the_bounds(result):
    ax = result.plot_gaps("fpr", severity=(0.1, 0.3))
    assert "severe, above 0.3" in texts(ax)
    edges = {round(left(patch), 3) for patch in ax.patches}
    assert {0.1, 0.3} <= edges


def test_an_undefined_gap_keeps_its_row():
    data = pd.DataFrame(
        {"y": [1, 0, 0, 0] * 9, "s": [1, 0, 0, 1] * 9, "g": ["a", "a", "b", "b"] * 9}
    )
    result = cfair.Audit(data, outcome="y", prediction="s", groups="g").observed()
    ax = result.plot_gaps(["fpr", "tpr"])
    assert rows(ax) == ["FPR, by g", "TPR, by g"]
    assert "no rate in b" in texts(ax)


def test_the_heat_map_has_every_rate(result):
    ax = result.plot_heatmap(["tpr", "fpr", "ppv"])
    found = [t.get_text() for t in ax.texts if t.get_text().replace(".", "").isdigit()]
    rates = result.rates.set_index(["group", "metric"])["estimate"]
    groups = result.cohort.groups.names
    assert found == [f"{rates[g, m]:.2f}" for g in groups for m in ("tpr", "fpr", "ppv")]
    overall = result.overall.set_index("metric")["estimate"]
    assert ax.get_xticklabels()[0].get_text() == f"TPR\n{overall['tpr']:.2f}"


def test_nothing_of_a_narrow_heat_map_is_cut_off(result):
    ax = result.plot_heatmap(["tpr", "fpr"])
    ax.figure.canvas.draw()
    page = ax.figure.bbox
    for text in (ax.xaxis.label, ax.title, *ax.texts):
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= page.x1


def test_bold_marks_what_the_interval_tells_from_all_rows(result):
    ax = result.plot_heatmap(["tpr", "fpr"])
    cells = [t for t in ax.texts if t.get_text().replace(".", "").isdigit()]
    frame = result.rates.query("metric in ('tpr', 'fpr')").set_index(["group", "metric"])
    overall = result.overall.set_index("metric")["estimate"]
    order = [(g, m) for g in result.cohort.groups.names for m in ("tpr", "fpr")]
    for cell, (group, metric) in zip(cells, order, strict=True):
        low, high = frame.loc[(group, metric), ["ci_low", "ci_high"]]
        outside = not low <= overall[metric] <= high
        assert (cell.get_fontweight() == "bold") == outside


def test_attributes_stand_beside_their_intersection(result):
    ax = result.plot_rates(marginals="both")
    names = [label.split("  (n")[0] for label in rows(ax)]
    assert names[:3] == ["all", "sex: F", "sex: M"]
    assert names[-6:] == list(result.cohort.groups.names)
    with pytest.raises(ValueError, match="marginals"):
        result.plot_rates(marginals="neither")


def test_every_plot_is_saved_under_a_safe_name(result, tmp_path):
    found = result.plot_all(tmp_path / "new" / "folder", dpi=30)
    names = [path.name for path in found]
    assert "rates_by_race_ethnicity.png" in names
    assert "rates_by_sex.png" in names
    assert "forest_by_sex_x_race_ethnicity.png" in names
    assert len(names) == len(set(names)) == 8
    assert all(path.stat().st_size > 1000 for path in found)
    assert not plt.get_fignums()


def test_counterfactual_plots_are_saved_too(tmp_path):
    audit = cfair.Audit(
        cfair.load_cohort(),
        outcome="readmitted",
        score="risk",
        cutoff=0.5,
        groups=["sex", "race"],
        treatment="treated",
    )
    found = audit.counterfactual("treated ~ sex * race + risk").plot_all(tmp_path, dpi=30)
    assert {"gaps.png", "rates_by_sex_x_race.png"} <= {path.name for path in found}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("race/ethnicity", "race_ethnicity"),
        ("..\\..\\x:y*?", "x_y"),
        ("  ", "plot"),
        ("a" * 300, "a" * 100),
        ("Geschlecht (m/w)", "Geschlecht_m_w"),
    ],
)
def test_file_names(text, expected):
    assert file_name(text) == expected


def test_names_that_are_alike_get_a_number(tmp_path):
    def draw():
        return plt.figure()

    found = save_all({"a/b": draw, "a b": draw, "A_B": draw}, tmp_path, suffix=".svg")
    assert [path.name for path in found] == ["a_b.svg", "a_b_2.svg", "A_B_3.svg"]


def test_bands_darken_with_severity(result):
    ax = result.plot_gaps("fpr")
    shades = [patch.get_facecolor()[0] for patch in sorted(ax.patches, key=left)]
    assert shades == sorted(shades, reverse=True)
    assert len(set(shades)) == 3


def test_the_heat_map_is_blue_below_and_orange_above(result):
    ax = result.plot_heatmap(["fpr"])
    colours = ax.images[0].to_rgba(ax.images[0].get_array())
    rates = result.rates.query("metric == 'fpr'")["estimate"].to_numpy()
    overall = result.overall.set_index("metric").loc["fpr", "estimate"]
    above = rates > overall
    red, blue = colours[:, 0, 0], colours[:, 0, 2]
    assert (red[above] > blue[above]).all()
    assert (blue[~above] > red[~above]).all()
    strongest = np.abs(rates - overall).argmax()
    assert (colours[:, 0, :3].min(axis=1) >= colours[strongest, 0, :3].min()).all()
