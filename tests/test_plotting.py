import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from cfair.plotting import (
    plot_calibration,
    plot_clinical_forest,
    plot_disparities,
    plot_null,
    plot_overlap,
    plot_rates,
    style,
)
from cfair.plotting.clinical_forest import Panel
from cfair.results import text
from cfair.tables import shorten, shorten_all

LABELS = {"cfpr": "cFPR", "cfnr": "cFNR", "fpr": "FPR", "ppv": "PPV"}
ODD = ["$x_y$", "<b>", "漢字", "_hidden", "a\n\tb$", r"\frac{1}{2} $", "x" * 300, "{0} %d", "", "é"]


@pytest.fixture(autouse=True)
def nothing_global():
    """No figure stays open, and no figure changes the settings of others."""
    before = dict(matplotlib.rcParams)
    yield
    after = dict(matplotlib.rcParams)
    plt.close("all")
    assert after == before


def rates_frame(names, metrics=("cfpr", "cfnr"), undefined=(), partly=()):
    parts = []
    for j, metric in enumerate(metrics):
        estimate = np.linspace(0.1, 0.3, len(names)) + 0.1 * j
        part = pd.DataFrame(
            {
                "metric": metric,
                "group": list(names),
                "n": np.arange(len(names)) * 500 + 612,
                "denominator": 100,
                "estimate": estimate,
                "ci_low": estimate - 0.05,
                "ci_high": estimate + 0.07,
                "note": "",
            }
        )
        numbers = ["estimate", "ci_low", "ci_high"]
        part.loc[list(undefined), numbers] = np.nan
        part.loc[list(undefined), "note"] = "no rows"
        if j == len(metrics) - 1:
            part.loc[list(partly), numbers] = np.nan
            part.loc[list(partly), "note"] = "no events among the untreated"
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def disparities_frame(metrics=("cfpr", "cfnr")):
    rows = [
        {"metric": m, "statistic": s, "estimate": e, "ci_low": e / 2, "ci_high": 2 * e,
         "expected_if_equal": e / 3}
        for m in metrics
        for s, e in (("average", 0.05), ("maximum", 0.1), ("variance", 7.0))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def draw(ax):
    """Draw as a file would be; warnings are errors."""
    ax.figure.canvas.draw()
    return ax


def defined_points(ax, colour):
    (line,) = [
        line
        for line in ax.lines
        if line.get_linestyle() == "None" and to_hex(line.get_color()) == colour.lower()
    ]
    return np.isfinite(np.asarray(line.get_xdata(), dtype=float)), line


def legend_texts(ax):
    return [" ".join(t.get_text().split("\n")) for t in ax.get_legend().get_texts()]


def row_texts(ax):
    return [t.get_text() for t in ax.get_yticklabels()]


def marks(ax):
    return [line for line in ax.lines if line.get_marker() == "X"]


def every_plot(ax=None):
    axes = [] if ax is None else list(ax)
    given = [*axes, *[None] * (5 - len(axes))]
    codes = np.arange(60) % 3
    pi, d = np.linspace(0.01, 0.99, 60), np.arange(60) % 2
    rates = rates_frame("ab")
    return [
        plot_rates(rates, metrics=["cfpr"], labels=LABELS, ax=given[0]),
        plot_disparities(disparities_frame(), metrics=["cfpr"], labels=LABELS, ax=given[1]),
        plot_null(np.linspace(0, 0.1, 50), 0.12, title="Average difference", ax=given[2]),
        plot_overlap(pi, d, ax=given[3]),
        plot_overlap(pi, d, group=codes, names=["a", "b", "c"], ax=given[4]),
    ]


# -- all figures --------------------------------------------------------------------------------


def test_each_returns_new_axes_in_plain_words():
    axes = every_plot()
    assert len({id(ax.figure) for ax in axes}) == len(axes)
    for ax in axes:
        assert isinstance(ax, Axes)
        assert ax.get_title(loc="left")
        assert ax.get_xlabel()
        assert draw(ax).get_legend() is not None


def test_each_draws_into_given_axes():
    given = Figure(figsize=(12, 20)).subplots(5)
    before = plt.get_fignums()
    assert all(got is ax for got, ax in zip(every_plot(given), given, strict=True))
    assert plt.get_fignums() == before


def test_nothing_is_shown(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *_, **__: pytest.fail("plt.show() was called"))
    every_plot()


def test_array_of_axes_is_refused():
    axes = Figure().subplots(2)
    with pytest.raises(TypeError, match=r"pick one, such as axes\[0\]"):
        plot_rates(rates_frame("ab"), metrics=["cfpr"], labels=LABELS, ax=axes)
    with pytest.raises(TypeError, match="one matplotlib Axes"):
        plot_null([0.1], 0.2, title="t", ax=axes)


def test_legend_is_clear_of_data_and_figure_holds_everything():
    frame = rates_frame([f"{s} & {'long name ' * 6}{r}" for s in "FM" for r in "ABCDEF"])
    axes = [*every_plot(), plot_rates(frame, metrics=["cfpr", "cfnr"], labels=LABELS)]
    for ax in axes:
        draw(ax)
        legend = ax.get_legend().get_window_extent()
        assert legend.y1 < ax.get_window_extent().y0
        assert legend.y1 < ax.xaxis.label.get_window_extent().y0
        box, whole = ax.get_tightbbox(), ax.figure.bbox
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= whole.x1
        assert box.y1 <= whole.y1


# -- rates --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 12, 40])
@pytest.mark.parametrize("n_metrics", [1, 2, 4])
def test_rates_have_a_point_per_group_and_metric(n, n_metrics):
    metrics = list(LABELS)[:n_metrics]
    names = [f"group {k}" for k in range(n)]
    ax = draw(plot_rates(rates_frame(names, metrics), metrics=metrics, labels=LABELS))
    assert row_texts(ax) == [f"group {k}  (n = {612 + 500 * k:,})" for k in range(n)]
    shapes = set()
    for colour in style.PALETTE[:n_metrics]:
        defined, line = defined_points(ax, colour)
        assert defined.sum() == n
        assert np.array_equal(np.round(line.get_ydata()), np.arange(n))
        shapes.add(line.get_marker())
    assert len(shapes) == n_metrics
    assert len(ax.collections) == n_metrics  # intervals
    assert legend_texts(ax) == [LABELS[m] for m in metrics]
    bottom, top = ax.get_ylim()
    assert bottom > top  # first group on top


def test_rates_draw_the_numbers_of_the_frame():
    frame = rates_frame("ab", ["cfpr"])
    ax = plot_rates(frame, metrics=["cfpr"], labels=LABELS)
    _, line = defined_points(ax, style.PALETTE[0])
    assert np.allclose(line.get_xdata(), frame["estimate"])
    ends = np.array([path.vertices[:, 0] for path in ax.collections[0].get_paths()])
    assert np.allclose(ends, frame[["ci_low", "ci_high"]])
    assert ax.get_xlim()[0] <= 0


def test_undefined_rates_keep_their_row_and_say_why():
    names = [f"group {k}" for k in range(12)]
    frame = rates_frame(names, undefined=[3], partly=[9])
    ax = draw(plot_rates(frame, metrics=["cfpr", "cfnr"], labels=LABELS))
    assert len(row_texts(ax)) == 12
    (crosses,) = marks(ax)
    assert np.array_equal(np.round(crosses.get_ydata()), [3, 9])
    assert [t.get_text() for t in ax.texts] == ["no rows", "no events among the untreated"]
    assert defined_points(ax, style.PALETTE[0])[0].sum() == 11
    assert defined_points(ax, style.PALETTE[1])[0].sum() == 10
    assert legend_texts(ax)[-1] == "undefined"


def test_masked_rates_say_so_in_the_row_and_why_in_the_legend():
    reason = "masked: rests on a count below 11, or would reveal one"
    frame = rates_frame("abc", undefined=[0, 1])
    frame.loc[frame["note"] != "", "note"] = reason
    ax = draw(plot_rates(frame, metrics=["cfpr", "cfnr"], labels=LABELS))
    assert [t.get_text() for t in ax.texts] == ["masked", "masked"]
    assert legend_texts(ax)[-1] == reason
    frame.loc[frame["group"] == "b", "note"] = "no rows"
    ax = draw(plot_rates(frame, metrics=["cfpr", "cfnr"], labels=LABELS))
    assert [t.get_text() for t in ax.texts] == ["masked", "no rows"]
    assert legend_texts(ax)[-1] == f"undefined; {reason}"
    assert ax.get_legend().get_window_extent().x1 <= ax.figure.bbox.x1  # folded, not cut off


def test_masked_counts_of_a_forest_are_called_so():
    frame = pd.DataFrame(
        {"metric": "fpr", "section": "", "group": ["F", "M"], "n": [np.nan, -11],
         "estimate": [0.2, 0.1], "ci_low": 0.05, "ci_high": 0.3, "n_effective": 50.0, "note": ""}
    )  # fmt: skip
    panel = Panel("fpr", "FPR", 0.15, counts=(("n", "n"),))
    ax = draw(plot_clinical_forest(frame, [panel]))
    assert {"masked", "<11"} <= {t.get_text() for t in ax.texts}


def test_all_rates_undefined():
    frame = rates_frame("ab", undefined=[0, 1])
    frame["note"] = ""
    ax = draw(plot_rates(frame, metrics=["cfpr", "cfnr"], labels=LABELS))
    assert [t.get_text() for t in ax.texts] == ["no rate", "no rate"]


def test_rates_stay_in_the_order_of_the_frame():
    ax = plot_rates(rates_frame("zam"), metrics=["cfnr"], labels={})
    assert [t[0] for t in row_texts(ax)] == ["z", "a", "m"]
    assert legend_texts(ax) == ["cfnr"]


def test_groups_that_print_alike_have_their_own_rows():
    frame = rates_frame(["a & b & c", "a & b & c"])
    ax = draw(plot_rates(frame, metrics=["cfpr", "cfnr"], labels=LABELS))
    assert len(row_texts(ax)) == 2


def test_interval_need_not_hold_the_estimate():
    frame = rates_frame("ab").assign(ci_low=0.5, ci_high=0.6)
    draw(plot_rates(frame, metrics=["cfpr"], labels=LABELS))


def test_frame_is_not_changed():
    frame, disparities = rates_frame("ab", undefined=[1]), disparities_frame()
    copies = frame.copy(), disparities.copy()
    plot_rates(frame, metrics=["cfpr"], labels=LABELS)
    plot_disparities(disparities, metrics=["cfpr"], labels=LABELS)
    pd.testing.assert_frame_equal(frame, copies[0])
    pd.testing.assert_frame_equal(disparities, copies[1])


def test_rates_refuse_what_they_cannot_draw():
    frame = rates_frame("ab", [*LABELS, "npv"])
    with pytest.raises(ValueError, match="at most 4 metrics for one panel, not 5"):
        plot_rates(frame, metrics=[*LABELS, "npv"], labels=LABELS)
    with pytest.raises(ValueError, match=r"metrics must be of cfpr, .*, not 'tpr'"):
        plot_rates(frame, metrics=["cfpr", "tpr"], labels=LABELS)
    with pytest.raises(ValueError, match="not none"):
        plot_rates(frame, metrics=[], labels=LABELS)


# -- labels -------------------------------------------------------------------------------------


def test_odd_labels_come_out_as_they_are():
    frame = rates_frame(ODD, partly=[2])
    frame.loc[frame["estimate"].isna(), "note"] = "$\\alpha$ 漢"
    ax = draw(plot_rates(frame, metrics=["cfpr", "cfnr"], labels={"cfpr": "_$c$", "cfnr": "漢字"}))
    texts = row_texts(ax)
    assert texts[0] == r"\$x_y\$  (n = 612)"
    assert texts[1] == "<b>  (n = 1,112)"
    assert texts[4].startswith(r"a b\$ ")
    assert "…" in texts[6]
    assert legend_texts(ax)[0].strip() == r"_\$c\$"


def test_odd_labels_in_the_other_figures():
    draw(plot_null([0.1, 0.2], 0.3, title="$x_y$ 漢字"))
    pi, codes = np.linspace(0, 1, 40), np.arange(40) % len(ODD)
    draw(plot_overlap(pi, np.arange(40) // 20, group=codes, names=ODD))
    draw(plot_disparities(disparities_frame(), metrics=["cfpr"], labels={"cfpr": "$x_ 漢 <b>"}))


def test_missing_signs_are_shown_by_their_code(monkeypatch):
    monkeypatch.setattr(style, "_fallbacks", list)
    assert style.printable("a 漢") == r"a \u6f22"
    assert style.printable("\U000f0000") == r"\U000f0000"


def test_another_font_steps_in_where_signs_are_missing():
    with plt.rc_context({"font.family": ["cmtt10"]}):
        ax = plot_rates(rates_frame(["a", "Ж"]), metrics=["cfpr"], labels=LABELS)
        draw(ax)
        plain, cyrillic = ax.get_yticklabels()
        assert plain.get_fontfamily() == ["cmtt10"]
        assert cyrillic.get_text().startswith("Ж")
        assert "DejaVu Sans" in cyrillic.get_fontfamily()
        plt.close("all")


def test_long_labels_that_differ_in_the_middle_stay_different():
    names = [f"{'a' * 25} {k} {'b' * 25}" for k in range(3)]
    short = shorten_all(names, 30)
    assert len(set(short)) == 3
    assert shorten("abcdefghij", 5) == "ab…ij"
    assert max(map(len, shorten_all(["x" * 500 + k + "x" * 500 for k in "ab"], 30))) <= 80


@pytest.mark.parametrize("width", [10, 17, 28, 40])
def test_printed_tables_and_figures_shorten_alike(width):
    for name in ("F & Black", "Native Hawaiian or Other Pacific Islander, as told", "x" * 300):
        assert text.one_line(name, width) == shorten(name, width)


def test_names_from_right_to_left_leave_levels_and_numbers_in_their_order():
    hebrew, pointed, mark = "\u05d0\u05d1", "\u05d0\u05b0", "\u200e"
    assert style.literal("F & Black $1") == r"F & Black \$1"
    assert style.literal(f"{hebrew}  (n = 9)") == f"{mark}{hebrew}{mark}  (n = 9)"
    assert style.literal(f"{pointed}: 3") == f"{mark}{pointed}{mark}: 3"  # points stay with letters
    crossed = style.literal(f"{hebrew} & {hebrew}")
    assert crossed == f"{mark}{hebrew}{mark} & {hebrew}"
    ax = draw(plot_rates(rates_frame([f"{hebrew} & White"]), metrics=["cfpr"], labels=LABELS))
    assert row_texts(ax)[0].startswith(f"{mark}{hebrew}{mark} & White")


def test_text_shrinks_with_many_groups():
    sizes = []
    for n in (4, 40):
        ax = Figure(figsize=(6, 4)).add_subplot()
        plot_rates(rates_frame(range(n)), metrics=["cfpr"], labels=LABELS, ax=ax)
        sizes.append(ax.get_yticklabels()[0].get_fontsize())
    assert sizes[1] < sizes[0]


def test_figure_grows_with_groups():
    heights = [
        plot_rates(rates_frame(range(n)), metrics=["cfpr"], labels={}).figure.get_figheight()
        for n in (4, 12, 40)
    ]
    assert heights == sorted(heights)
    assert heights[2] > 2 * heights[0]


# -- disparities --------------------------------------------------------------------------------


def test_disparities_have_average_and_maximum():
    frame = disparities_frame()
    ax = draw(plot_disparities(frame, metrics=["cfnr", "cfpr"], labels=LABELS, level=0.9))
    assert row_texts(ax) == [
        f"{m}, {s} difference" for m in ("cFNR", "cFPR") for s in ("average", "largest")
    ]
    _, observed = defined_points(ax, style.PALETTE[0])
    assert np.allclose(observed.get_xdata(), [0.05, 0.1] * 2)
    _, expected = defined_points(ax, style.GREY)
    assert np.allclose(expected.get_xdata(), [0.05 / 3, 0.1 / 3] * 2)
    assert ax.get_xlim()[1] < 1  # the variance is not drawn
    assert "90%" in legend_texts(ax)[0]
    assert "if all rates were equal" in legend_texts(ax)[1]
    assert "0.10 [0.05, 0.20]" in [t.get_text() for t in ax.texts]


def test_disparities_of_many_metrics():
    metrics = [f"m{k}" for k in range(13)]
    ax = draw(plot_disparities(disparities_frame(metrics), metrics=metrics, labels={}))
    assert len(row_texts(ax)) == 26


def test_undefined_disparities_are_marked():
    frame = disparities_frame()
    frame.loc[:, "estimate":] = np.nan
    ax = draw(plot_disparities(frame, metrics=["cfpr"], labels=LABELS))
    assert len(marks(ax)[0].get_ydata()) == 2
    assert "fewer than two groups have a rate" in [t.get_text() for t in ax.texts]


def test_disparities_of_masked_rates_say_that_they_are_masked():
    frame = disparities_frame().assign(note="masked: rests on a count below 11")
    frame.loc[:, "estimate":"expected_if_equal"] = np.nan
    ax = draw(plot_disparities(frame, metrics=["cfpr"], labels=LABELS))
    assert [t.get_text() for t in ax.texts].count("masked") == 2
    assert legend_texts(ax)[-1] == "masked: rests on a count below 11"


# -- calibration --------------------------------------------------------------------------------


@pytest.mark.parametrize(("highest", "low", "high"), [(0.3, 0.3, 0.4), (0.9, 1.0, 1.05)])
@pytest.mark.parametrize("together", [False, True])
def test_calibration_is_drawn_as_far_as_scores_go(highest, low, high, together):
    score = np.linspace(0.01, highest, 12)
    curve = pd.DataFrame(
        {"group": "a", "score": score, "event_rate": 0.8 * score, "ci_low": 0.7 * score,
         "ci_high": 0.9 * score}
    )  # fmt: skip
    about = pd.DataFrame(
        {"group": ["a"], "n": 900, "events": 90, "estimate": 1.0, "ci_low": 0.9, "ci_high": 1.1,
         "overall": 1.0, "note": ""}
    )  # fmt: skip
    ax = Figure().add_subplot() if together else None
    points = curve.rename(columns={"score": "mean_score"})
    made = plot_calibration(points, curve, about, ax=ax)
    panel = made if together else made.axes[0]
    assert low <= panel.get_xlim()[1] <= high
    assert panel.get_xlim() == panel.get_ylim()
    assert panel.get_aspect() == 1
    assert any(line.get_xdata()[0] == line.get_ydata()[0] == 0 for line in panel.lines)


# -- null ---------------------------------------------------------------------------------------


def bars(ax, colour):
    return sum(p.get_height() for p in ax.patches if to_hex(p.get_facecolor()) == colour.lower())


def test_null_colours_the_draws_exceeded_by_more_than_delta():
    null = np.random.default_rng(1).uniform(0, 0.1, 1000)
    ax = draw(plot_null(null, 0.12, title="Average", p_value=0.001, u_value=0.2, delta=0.1))
    below = np.count_nonzero(0.12 - null > 0.1)
    assert bars(ax, "#E69F00") == below
    assert bars(ax, style.LIGHT_GREY) == 1000 - below
    (line,) = ax.lines
    assert list(line.get_xdata()) == [0.12, 0.12]
    assert legend_texts(ax) == [
        "null draws",
        "draws that the observed value exceeds by more than 0.1 (u = 0.20)",
        "observed value, 0.12 (p = 0.001)",
    ]


def test_undefined_draws_are_counted():
    null = [0.1, np.nan, 0.2, np.inf]
    ax = draw(plot_null(null, 0.3, title="t"))
    assert ax.texts[0].get_text() == "2 null draws; 2 undefined, left out"
    assert bars(ax, style.LIGHT_GREY) == 2


@pytest.mark.parametrize("observed", [0.1, 0.0, 0.3, np.nan])
@pytest.mark.parametrize("delta", [None, 0.1, 0.0, np.nan])
@pytest.mark.parametrize(
    "null", [[], [np.nan] * 5, [0.1] * 5, [0.0] * 5, [0.1], [1e-12, 2e-12], [0.1, 0.1 + 1e-16]]
)
def test_odd_nulls(null, delta, observed):
    ax = Figure().add_subplot()
    plot_null(null, observed, title="t", p_value=np.nan, u_value=0.0, delta=delta, ax=ax)
    draw(ax)
    shown = bars(ax, "#E69F00") + bars(ax, style.LIGHT_GREY)
    assert shown == np.count_nonzero(np.isfinite(null))
    assert np.isfinite(ax.get_xlim()).all()


def test_all_equal_draws_are_coloured_when_exceeded():
    assert bars(plot_null([0.1] * 9, 0.3, title="t", delta=0.1), "#E69F00") == 9
    assert bars(plot_null([0.1] * 9, 0.15, title="t", delta=0.1), "#E69F00") == 0


def test_null_refuses_a_table():
    with pytest.raises(ValueError, match=r"1-D array of draws, not of shape \(3, 2\)"):
        plot_null(np.zeros((3, 2)), 0.1, title="t")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0004, "p < 0.001"), (0.0123, "p = 0.012"), (0.456, "p = 0.46"), (0, "p = 0"),
     (np.nan, "p undefined")],
)  # fmt: skip
def test_shares_are_printed_as_in_journals(value, text):
    ax = plot_null([0.1, 0.2], 0.3, title="t", p_value=value)
    assert text in legend_texts(ax)[-1]


# -- overlap ------------------------------------------------------------------------------------


def test_overlap_is_mirrored_in_percent_of_the_arm():
    rng = np.random.default_rng(1)
    pi = rng.uniform(0, 1, 500)
    d = rng.binomial(1, pi)
    ax = draw(plot_overlap(pi, d, truncation=(0.01, 0.99)))
    heights = np.array([p.get_height() for p in ax.patches])
    assert heights[heights > 0].sum() == pytest.approx(100)
    assert heights[heights < 0].sum() == pytest.approx(-100)
    dashed = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"]
    assert dashed == [0.01, 0.99]
    outside = np.count_nonzero((pi < 0.01) | (pi > 0.99))
    assert legend_texts(ax) == [
        f"treated (n = {d.sum()}), upwards",
        f"untreated (n = {500 - d.sum()}), downwards",
        f"truncation at 0.01 and 0.99 ({outside} rows outside)",
    ]
    assert all("−" not in t.get_text() for t in ax.get_yticklabels())


@pytest.mark.parametrize("K", [1, 2, 12, 40])
def test_overlap_by_group(K):
    pi = np.linspace(0.1, 0.9, 20 * K)
    codes, d = np.arange(20 * K) % K, (np.arange(20 * K) // K) % 2
    ax = draw(plot_overlap(pi, d, group=codes, names=[f"g{k}" for k in range(K)]))
    assert row_texts(ax) == [f"g{k}  (n = 20)" for k in range(K)]
    for arm in (0, 1):
        defined, line = defined_points(ax, style.PALETTE[arm])
        assert defined.sum() == K
        medians = [np.median(pi[(codes == k) & (d == arm)]) for k in range(K)]
        assert np.allclose(line.get_xdata(), medians)
    assert not marks(ax)
    assert [t.get_text() for t in ax.texts].count("10 / 10") == K


def test_empty_arms_and_groups_are_marked():
    pi, d, codes = np.linspace(0.1, 0.9, 6), [0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1]
    ax = draw(plot_overlap(pi, d, group=codes, names=["a", "b", "c"]))
    texts = [t.get_text() for t in ax.texts]
    assert "no treated" in texts
    assert "no rows" in texts
    assert "no untreated" not in texts
    assert sorted(np.round(marks(ax)[0].get_ydata())) == [0, 2]
    assert "0 / 3" in texts
    assert "arm without rows" in legend_texts(ax)


def test_overlap_with_one_arm_or_unknown_propensities():
    ax = draw(plot_overlap([0.2, np.nan, 0.4], [1, 1, 1]))
    assert ax.texts[0].get_text() == "2 rows; 1 without a propensity left out"
    draw(plot_overlap([], []))
    draw(plot_overlap([np.nan, 0.1], [1, 0], group=[0, 1], names=["a", "b"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.1, 0.2], [1]), "of one length"),
        (([0.1, 0.2], [1, 2]), "treated must be 0 or 1"),
        (([0.1], [1], [0], None), "give both, or neither"),
        (([0.1], [1], None, ["a"]), "give both, or neither"),
        (([0.1], [1], [0, 1], ["a", "b"]), "group must be as long as fitted"),
        (([0.1], [1], [2], ["a", "b"]), "codes from 0 to 1"),
    ],
)
def test_overlap_refuses_what_does_not_fit(arguments, message):
    fitted, treated, group, names = (*arguments, None, None)[:4]
    with pytest.raises(ValueError, match=message):
        plot_overlap(fitted, treated, group=group, names=names)
