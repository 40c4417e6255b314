"""Counterfactual rates as a result: frames, notes, u-values, text, and the record they make."""

from __future__ import annotations

import dataclasses

import bad_inputs
import numpy as np
import pandas as pd
import plain
import pytest
import statsmodels.formula.api as smf
from statsmodels.stats.multitest import multipletests

import cfair
from cfair.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")

FORMULA = "d ~ sex * race + age + s"
METRICS = ["cfpr", "cfnr", "fpr", "fnr"]
COLUMNS = {
    "metric",
    "group",
    "sex",
    "race",
    "n",
    "events",
    "estimate",
    "se",
    "ci_low",
    "ci_high",
    "note",
}


def audit(t, groups=("sex", "race"), **options):
    return cfair.Audit(t, outcome="y", score="s", cutoff=0.5, groups=list(groups), **options)


def table(n=900, seed=1):
    t = bad_inputs.cohort(n, seed)
    t["age"] = (t["age"] - 60) / 10
    t["chance"] = np.random.default_rng(seed).uniform(0.1, 0.8, n)
    t["smoker"] = np.arange(n) % 2 == 0
    t["site"] = np.arange(n) % 60
    t["everyone"] = "all"
    return t


def rows_of(t, sex, race):
    return ((t["sex"] == sex) & (t["race"] == race)).to_numpy()


@pytest.fixture(scope="module")
def result():
    return audit(table()).counterfactual(FORMULA, n_boot=60, n_perm=60, seed=1)


# -- rates ----------------------------------------------------------------------------------------


def test_rates_are_the_formulas_with_statsmodels_propensities(result):
    t = table()
    pi = np.clip(smf.logit(FORMULA, t).fit(disp=0, tol=1e-14).predict(), 0.005, 0.995)
    y, d, s = t["y"].to_numpy(), t["d"].to_numpy(), (t["s"] >= 0.5).to_numpy().astype(int)
    np.testing.assert_allclose(result.propensities, pi, atol=1e-10)
    np.testing.assert_allclose(result.weights, (1 - d) / (1 - pi), rtol=1e-8)
    assert set(result.rates) >= COLUMNS
    assert result.rates["metric"].tolist() == [m for m in METRICS for _ in range(6)]
    frame = result.rates.set_index(["metric", "sex", "race"])
    for sex in "FM":
        for race in ("Black", "Other", "White"):
            rows = rows_of(t, sex, race)
            for metric, value in zip(("cfpr", "cfnr"), plain.ipw(y, s, d, pi, rows), strict=True):
                row = frame.loc[(metric, sex, race)]
                assert row["estimate"] == pytest.approx(value, rel=1e-9)
                assert row["n"] == rows.sum()
                assert row["untreated"] == (rows & (d == 0)).sum()
                assert row["events"] == (rows & (d == 0) & (y == 1)).sum()
            seen = plain.observed(y[rows], s[rows])
            for metric in ("fpr", "fnr"):
                assert frame.loc[(metric, sex, race), "estimate"] == pytest.approx(seen[metric])


def test_marginals_are_the_formulas_on_merged_rows(result):
    t = table()
    y, d, s = t["y"].to_numpy(), t["d"].to_numpy(), (t["s"] >= 0.5).to_numpy().astype(int)
    pi = result.propensities.to_numpy()
    for _, row in result.marginals[result.marginals["metric"].isin(["cfpr", "cfnr"])].iterrows():
        rows = (t[row["attribute"]] == row["level"]).to_numpy()
        expected = plain.ipw(y, s, d, pi, rows)[["cfpr", "cfnr"].index(row["metric"])]
        assert row["estimate"] == pytest.approx(expected, rel=1e-9)
    everyone = plain.ipw(y, s, d, pi, np.ones(len(t), bool))
    np.testing.assert_allclose(result.overall["estimate"][:2], everyone, rtol=1e-9)


def test_standard_errors_are_those_of_the_numerical_influence():
    t = table(150, 3)
    result = audit(t).counterfactual("d ~ sex + s", truncation=None)
    X = np.column_stack([np.ones(150), t["sex"] == "M", t["s"]]).astype(float)
    g = (t["sex"] == "M").to_numpy() * 3 + t["race"].map({"Black": 0, "Other": 1, "White": 2})
    s = (t["s"] >= 0.5).to_numpy().astype(int)
    psi = plain.influence(t["y"].to_numpy(), s, t["d"].to_numpy(), np.asarray(g), 6, X=X)
    expected = psi.T @ psi / 150**2
    defined = np.isfinite(result.covariance.to_numpy()).any(axis=0)
    np.testing.assert_allclose(
        result.covariance.to_numpy()[np.ix_(defined, defined)],
        expected[np.ix_(defined, defined)], atol=1e-9,
    )  # fmt: skip


@pytest.mark.parametrize("interval", ["wilson", "logit", "plain"])
def test_limits_follow_from_estimate_error_and_size(interval):
    frame = audit(table()).counterfactual(FORMULA, interval=interval, level=0.9).rates
    for _, row in frame[frame["metric"].isin(["cfpr", "cfnr"])].iterrows():
        p, se = row["estimate"], row["se"]
        if not 0 < p < 1:
            continue
        if interval == "wilson":
            n = p * (1 - p) / se**2
            assert row["n_effective"] == pytest.approx(n, rel=1e-9)
            limits = plain.wilson(p, n, 0.9)
        elif interval == "plain":
            limits = np.clip([p - 1.6448536 * se, p + 1.6448536 * se], 0, 1)
        else:
            eta, half = np.log(p / (1 - p)), 1.6448536 * se / (p * (1 - p))
            limits = 1 / (1 + np.exp(-np.array([eta - half, eta + half])))
        np.testing.assert_allclose([row["ci_low"], row["ci_high"]], limits, atol=1e-7)


def test_formula_result_column_and_array_of_propensities_agree():
    t = table()
    fit = smf.logit(FORMULA, t).fit(disp=0, tol=1e-14)
    a = audit(t, treatment="d")
    base = a.counterfactual(FORMULA).rates
    np.testing.assert_allclose(a.counterfactual(fit).rates["se"], base["se"], atol=1e-8)
    known = t.assign(p=fit.predict())
    column = audit(known, treatment="d").counterfactual("p").rates
    array = a.counterfactual(np.asarray(fit.predict())).rates
    np.testing.assert_allclose(column["estimate"], base["estimate"], atol=1e-9)
    np.testing.assert_allclose(array["se"], column["se"], atol=1e-12)


# -- groups that have no rate ---------------------------------------------------------------------


def test_groups_without_rate_keep_their_row_with_the_reason():
    t = table()
    t.loc[rows_of(t, "M", "Other") & (t["d"] == 0), "y"] = 0
    t.loc[rows_of(t, "F", "Other") & (t["d"] == 0), "y"] = 1
    t.loc[rows_of(t, "F", "Black"), "d"] = 1
    t = t[~rows_of(t, "M", "Black")]
    result = audit(t).counterfactual("d ~ race + s", n_boot=40, n_perm=40)
    frame = result.rates.set_index(["metric", "group"])
    notes = {
        ("cfnr", "M & Other"): "no events among the untreated",
        ("cfpr", "F & Other"): "no non-events among the untreated",
        ("cfpr", "F & Black"): "no untreated rows",
        ("cfnr", "F & Black"): "no untreated rows",
        ("cfpr", "M & Black"): "no rows",
        ("fpr", "M & Black"): "no rows",
    }
    for key, note in notes.items():
        row = frame.loc[key]
        assert row[["estimate", "se", "ci_low", "ci_high"]].isna().all(), key
        assert row["note"] == note
    tests = result.test_equal().set_index("metric")
    assert (tests.loc["cfpr", "df"], tests.loc["cfnr", "df"]) == (2, 2)
    assert "F & Black" in tests.loc["cfpr", "note"]
    disparity = result.disparities.set_index(["metric", "statistic"])["estimate"]
    for metric in ("cfpr", "cfnr"):
        expected = plain.disparities(frame.loc[metric, "estimate"].to_numpy())
        np.testing.assert_allclose(disparity[metric], expected, atol=1e-12)
    assert "no untreated rows" in str(result)
    contrasts = result.contrasts(adjust="max-t")
    undefined = contrasts["group"].isin(["F & Black", "M & Black"])
    assert contrasts["p_adjusted"][undefined].isna().all()


def test_nobody_untreated_with_an_event_is_no_crash():
    t = table()
    t.loc[(t["d"] == 0), "y"] = 0
    result = audit(t).counterfactual("d ~ sex + s", n_boot=20, n_perm=20)
    cfnr = result.rates[result.rates["metric"] == "cfnr"]
    assert cfnr["estimate"].isna().all()
    assert "fewer than two groups have a rate" in str(result)
    assert result.contrasts(metrics="cfnr", adjust="max-t")["p_value"].isna().all()


# -- comparisons ----------------------------------------------------------------------------------


def test_contrasts_use_the_correlation_of_the_rates(result):
    frame = result.contrasts(adjust="holm")
    assert frame["metric"].unique().tolist() == ["cfpr", "cfnr"]
    assert len(frame) == 30
    covariance = result.covariance
    rates = result.rates.set_index(["metric", "group"])
    for _, row in frame.iterrows():
        m = row["metric"]
        a, b = (rates.loc[(m, row[c])] for c in ("group", "reference"))
        if min(a["estimate"], b["estimate"]) <= 0 or max(a["estimate"], b["estimate"]) >= 1:
            continue
        c = covariance.loc[(m, row["group"]), (m, row["reference"])]
        assert row["se"] ** 2 == pytest.approx(a["se"] ** 2 + b["se"] ** 2 - 2 * c, rel=1e-8)
        limits = plain.mover(
            a["estimate"], a["ci_low"], a["ci_high"], b["estimate"], b["ci_low"], b["ci_high"],
            c / (a["se"] * b["se"]),
        )  # fmt: skip
        np.testing.assert_allclose([row["ci_low"], row["ci_high"]], limits, atol=1e-10)
        assert (row["p_value"] < 0.05) == (row["ci_low"] > 0 or row["ci_high"] < 0)
    np.testing.assert_allclose(
        frame["p_adjusted"], multipletests(frame["p_value"], method="holm")[1], rtol=1e-12
    )


@pytest.mark.parametrize("reference", [("M", "White"), "M & White"])
@pytest.mark.parametrize("kind", ["difference", "ratio"])
@pytest.mark.parametrize("adjust", ["holm", "fdr_bh", "max-t", None])
def test_contrasts_with_a_reference(result, reference, kind, adjust):
    frame = result.contrasts(reference, kind=kind, adjust=adjust)
    assert len(frame) == 10
    assert frame["reference"].eq("M & White").all()
    assert "M & White" not in frame["group"].tolist()
    null = 1.0 if kind == "ratio" else 0.0
    excludes = (frame["ci_low"] > null) | (frame["ci_high"] < null)
    p = frame["p_adjusted"] if adjust == "max-t" else frame["p_value"]
    assert (excludes == (p < 0.05))[(p - 0.05).abs() > 1e-3].all()


def test_contrasts_of_an_attribute(result):
    frame = result.contrasts(attribute="sex")
    margins = result.marginals.set_index(["metric", "level"])["estimate"]
    for _, row in frame.iterrows():
        expected = margins[row["metric"], row["group"]] - margins[row["metric"], row["reference"]]
        assert row["estimate"] == pytest.approx(expected, abs=1e-12)


def test_max_t_does_not_depend_on_the_names_of_the_groups():
    t = table()
    renamed = t.assign(
        sex=t["sex"].map({"F": "x", "M": "w"}),
        race=t["race"].map({"Black": "b", "Other": "c", "White": "a"}),
    )
    a = audit(t).counterfactual(FORMULA).contrasts(adjust="max-t")
    b = audit(renamed).counterfactual(FORMULA).contrasts(adjust="max-t")
    np.testing.assert_allclose(np.sort(a["p_adjusted"]), np.sort(b["p_adjusted"]), atol=1e-12)


# -- replicates in the result ---------------------------------------------------------------------


def test_draws_have_the_promised_columns(result):
    names = list(result.cohort.groups.names)
    statistics = ["average", "maximum", "variance"]
    for draws in (result.null_draws, result.boot_draws):
        assert len(draws) == 60
        assert draws.columns.nlevels == 2
        for metric in ("cfpr", "cfnr"):
            assert set(names) | set(statistics) <= set(draws[metric])
            expected = [plain.disparities(row) for row in draws[metric][names].to_numpy()]
            np.testing.assert_allclose(draws[metric][statistics], expected, atol=1e-12)
    assert result.covariance.shape == (12, 12)


def test_disparities_have_p_and_u_values_by_their_definitions(result):
    frame = result.disparities
    promised = ["metric", "statistic", "estimate", "ci_low", "ci_high", "expected_if_equal",
                "p_value", "p_value_studentized", "u_value"]  # fmt: skip
    assert set(promised) <= set(frame)
    for _, row in frame[frame["metric"].isin(["cfpr", "cfnr"])].iterrows():
        null = result.null_draws[row["metric"]][row["statistic"]].tolist()
        delta = 0.01 if row["statistic"] == "variance" else 0.1
        assert row["p_value"] == pytest.approx(plain.permutation_p(row["estimate"], null))
        assert row["u_value"] == pytest.approx(plain.u_value(row["estimate"], null, delta))
    tests = result.test_equal().set_index("metric")["wald"]
    for k, metric in enumerate(("cfpr", "cfnr")):
        expected = plain.permutation_p(tests[metric], result.null.wald[:, k].tolist())
        got = frame[frame["metric"] == metric]["p_value_studentized"]
        assert got.eq(expected).all()
        assert result.studentized_p_value(metric) == expected


def test_u_values_take_a_number_or_one_for_each_statistic(result):
    one = result.u_values(0.05)
    assert one["delta"].tolist() == pytest.approx([0.05, 0.05, 0.0025] * 2)
    several = result.u_values({"average": 0.02, "maximum": 0.2, "variance": 0.5})
    for _, row in several.iterrows():
        null = result.null_draws[row["metric"]][row["statistic"]].tolist()
        assert row["u_value"] == plain.u_value(row["estimate"], null, row["delta"])
    assert several["u_value"][2] == 0
    for wrong in ({"average": 0.1}, {"average": 0.1, "maximum": 0.1, "var": 0.1}, 1.0, -0.1, "a"):
        with pytest.raises(ValueError, match="delta"):
            result.u_values(wrong)


@pytest.mark.parametrize("statistic", ["average", "maximum", "variance"])
@pytest.mark.parametrize("wrong", [-1, 2, np.nan, np.float32(-0.1), True, "0.1", None])
def test_every_delta_of_a_dict_is_checked(result, statistic, wrong):
    deltas = {"average": 0.1, "maximum": 0.1, "variance": 0.01, statistic: wrong}
    with pytest.raises(ValueError, match="delta"):
        result.u_values(deltas)
    with pytest.raises(ValueError, match="delta"):
        audit(table(200)).counterfactual("d ~ sex + s", n_perm=5, u_delta=deltas)


@pytest.mark.parametrize("number", [np.float32(0.125), np.float64(0.125)])
def test_a_delta_may_be_a_numpy_number(result, number):
    pd.testing.assert_frame_equal(result.u_values(number), result.u_values(0.125))
    names = ("average", "maximum", "variance")
    pd.testing.assert_frame_equal(
        result.u_values(dict.fromkeys(names, number)), result.u_values(dict.fromkeys(names, 0.125))
    )
    found = audit(table(200)).counterfactual("d ~ sex + s", n_perm=5, u_delta=number)
    assert found.disparities["u_delta"].dropna().iloc[0] == 0.125
    assert "u(0.125)" in str(found)


@pytest.mark.parametrize("delta", [-1, 2, np.nan, "a"])
def test_a_wrong_delta_is_refused_before_any_work(delta):
    with pytest.raises(ValueError, match="delta"):
        audit(table(200)).counterfactual("d ~ sex + s", n_perm=5, u_delta=delta)


@pytest.mark.parametrize(
    "options",
    [
        {"n_boot": -1}, {"n_boot": 2.5}, {"n_perm": True}, {"n_perm": "many"}, {"bootstrap": "patients"},  # noqa: E501
        {"level": 1.0}, {"interval": "exact"}, {"aggregate_interval": "bc"}, {"seed": -1},
        {"seed": 1.5}, {"n_jobs": 0}, {"truncation": (0.9, 0.1)}, {"truncation": 0.1},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_options_are_value_errors(options):
    with pytest.raises(ValueError, match="must be"):
        audit(table(200)).counterfactual("d ~ sex + s", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"permutations": np.zeros((2, 199), int)}, {"permutations": np.zeros((2, 200), int)},
        {"permutations": np.zeros((2, 200))}, {"resamples": [np.array([200])]}, {"resamples": []},
        {"resamples": [np.array([0.5])]}, {"bootstrap": "cluster", "n_boot": 5},
    ],
    ids=range(7),
)  # fmt: skip
def test_impossible_rows_are_data_errors(options):
    with pytest.raises(DataError):
        audit(table(200)).counterfactual("d ~ sex + s", **options)


def test_without_replicates_the_columns_are_there_and_say_why():
    result = audit(table()).counterfactual(FORMULA)
    frame = result.disparities
    assert frame[["p_value", "p_value_studentized", "u_value"]].isna().all(axis=None)
    assert frame["note"].str.contains("n_perm=").iloc[0]
    assert result.null_draws.empty
    assert result.boot_draws.empty
    assert "boot_low" not in result.rates
    for question in (result.u_values, result.bootstrap_intervals, result.plot_null):
        with pytest.raises(DataError, match="n_(perm|boot)="):
            question()


# -- clusters and dropped rows --------------------------------------------------------------------


def test_a_cluster_that_was_dropped_does_not_count():
    t = table(600)
    t["ward"] = np.arange(600) // 20
    t.loc[t["ward"].isin([0, 7, 29]), "age"] = np.nan
    a = audit(t, missing="drop", cluster="ward").counterfactual(FORMULA)
    b = audit(t.dropna(), cluster="ward").counterfactual(FORMULA)
    pd.testing.assert_frame_equal(a.rates, b.rates, check_exact=False, atol=1e-12)
    assert "60" in str(a)


def test_a_cluster_of_every_row_is_close_to_none():
    t = table(600)
    t["row"] = np.arange(600)
    a = audit(t, cluster="row").counterfactual(FORMULA).rates
    b = audit(t).counterfactual(FORMULA).rates
    inside = a["estimate"].between(0.001, 0.999)
    # rows behind each rate: the untreated ones of a group, or all, with the outcome in question
    group = audit(t).counterfactual(FORMULA).cohort.groups.names
    label = t["sex"].astype(str) + " & " + t["race"].astype(str)
    own = np.array(
        [
            ((label == name) & (t["y"] == event) & (t["d"] <= most)).sum()
            for event, most in ((0, 0), (1, 0), (0, 1), (1, 1))
            for name in group
        ]
    )
    factor = np.sqrt(own / (own - 1))
    np.testing.assert_allclose((a["se"] / b["se"])[inside], factor[inside], rtol=1e-9)


def test_what_is_per_row_comes_back_on_the_index_of_the_caller():
    t = table(300)
    t.index = [f"patient {i}" for i in range(300)]
    t.loc["patient 5", "age"] = np.nan
    result = audit(t, missing="drop").counterfactual(FORMULA)
    assert result.weights.index.tolist() == [i for i in t.index if i != "patient 5"]
    assert result.propensities.index.equals(result.weights.index)
    assert (result.weights[t["d"].drop("patient 5") == 1] == 0).all()


# -- the record -----------------------------------------------------------------------------------


def test_a_result_is_frozen(result):
    for name in ("level", "propensity", "null", "boot", "seed"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, name, None)


@pytest.mark.parametrize(
    "name",
    ["rates", "marginals", "disparities", "covariance", "null_draws", "boot_draws", "weights"],
)
def test_changing_a_frame_changes_no_later_output(name):
    result = audit(table(300)).counterfactual("d ~ sex + s", n_boot=5, n_perm=5)
    before = getattr(result, name).copy()
    taken = getattr(result, name)
    if taken.ndim == 1:
        taken.iloc[:] = 99.0
    else:
        taken[taken.columns[-1]] = "changed"
    again = getattr(result, name)
    assert again.equals(before)


def test_the_data_of_the_caller_are_not_changed():
    t = table(300)
    before = t.copy()
    audit(t).counterfactual(FORMULA, n_boot=10, n_perm=10)
    pd.testing.assert_frame_equal(t, before)


# -- text -----------------------------------------------------------------------------------------

PARTS = ["Counterfactual error rates under no treatment", "IPW", "cohort", "outcome", "treatment",
         "propensity", "truncated to [0.005, 0.995]", "95%, influence functions", "cFPR", "cFNR",
         "equal rates?", "Wald chi2(", "average", "maximum", "if equal", "largest gap"]  # fmt: skip


@pytest.mark.parametrize("groups", [["sex"], ["sex", "race"], ["sex", "race", "smoker"], ["site"]])
@pytest.mark.parametrize("replicates", [{}, {"n_boot": 10, "n_perm": 10}])
def test_a_result_prints_what_was_estimated_how_and_on_whom(groups, replicates):
    many = table().assign(site=lambda t: t["site"] % 45)
    result = audit(many, groups).counterfactual("d ~ sex * race + age + s", **replicates)
    text = str(result)
    for part in [*PARTS, "900 rows, 900 used (none dropped)", *groups]:
        assert part in text, part
    for part in ("10 permutations", "10 replicates", "seed", "p studentized", "u(0.1)"):
        assert (part in text) == bool(replicates)
    if groups == ["site"]:
        assert "5 of 45 groups not shown" in text
        assert len(result.rates) == 180
    assert repr(result) == text
    assert "cFPR" in result._repr_html_()


def test_a_single_group_prints_but_is_not_compared():
    result = audit(table(300), ["everyone"]).counterfactual("d ~ sex + s", n_boot=10, n_perm=10)
    assert "nothing to compare" in str(result)
    assert result.rates["estimate"].notna().all()
    for question in (result.contrasts, result.test_equal):
        with pytest.raises(DataError):
            question()


def test_truncated_rows_are_counted_and_printed():
    result = audit(table()).counterfactual(FORMULA, truncation=(0.2, 0.5))
    cut = int(((result.propensity.fitted < 0.2) | (result.propensity.fitted > 0.5)).sum())
    assert f"{cut:,} rows truncated to [0.2, 0.5]" in str(result)
    assert result.overlap.truncated_low + result.overlap.truncated_high == cut
    assert result.propensities.between(0.2, 0.5).all()


def test_the_printed_seed_repeats_an_unseeded_result():
    a = audit(table(300))
    first = a.counterfactual("d ~ sex + s", n_perm=5, n_boot=5, seed=None)
    again = a.counterfactual("d ~ sex + s", n_perm=5, n_boot=5, seed=first.seed)
    assert str(first.seed) in str(first)
    pd.testing.assert_frame_equal(first.null_draws, again.null_draws)
    pd.testing.assert_frame_equal(first.boot_draws, again.boot_draws)
    other = a.counterfactual("d ~ sex + s", n_perm=5, seed=first.seed + 1)
    assert not other.null_draws.equals(first.null_draws)


# -- overlap --------------------------------------------------------------------------------------


def test_overlap_counts_are_those_of_the_rows(result):
    t, o = table(), result.overlap
    pi, d = result.propensity.fitted, t["d"].to_numpy()
    rows = o.propensities.set_index(["group", "treated"])
    assert rows.loc[("all", 0), "n"] == (d == 0).sum()
    assert rows.loc[("all", 1), "median"] == pytest.approx(np.median(pi[d == 1]))
    effective = o.effective.set_index("group")
    for sex, race in (("F", "White"), ("M", "Other")):
        member = rows_of(t, sex, race) & (d == 0)
        w = 1 / (1 - pi[member])
        row = effective.loc[f"{sex} & {race}"]
        assert row["n_effective"] == pytest.approx(w.sum() ** 2 / (w**2).sum(), rel=1e-9)
        assert row["untreated"] == member.sum()
        assert row["largest_weight"] == pytest.approx(w.max())
    assert (o.balance["smd_after"].abs() < o.balance["smd_before"].abs() + 0.05).all()
