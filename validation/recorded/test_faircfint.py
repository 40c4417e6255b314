"""Every figure recorded from runs of the R package faircfint, through `cfair.faircfint`.

Tolerances, absolute, by kind of figure, are those of `test_recorded` and `test_small_subgroups`:
1e-12 for observed rates, 1e-11 for the others by weighting (1e-8 with a nearly separating
covariate), 1e-8 for subsamples and intervals. Of small groups 5e-5 and 5e-4 in replicates, which is
how far R's ``multinom`` stops short, and 1e-7 against the recorded runs in which it went on.

What is compared is crossed off; the last test counts what was recorded and names what is not
reproduced, with the cause.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfair import faircfint
from cfair.errors import CfairWarning, DataError
from cfair.faircfint import analysis_estimation, get_pa_ext_small, get_plots
from validation.ledger import check, compare, quiet

DATA = Path(__file__).parent / "data"
COUNT, RATE, LOOSE, BOOT, TIGHT, SMALL, REPLICATE = 1e-12, 1e-11, 1e-8, 1e-8, 1e-7, 5e-5, 5e-4
X = ["X1", "X2", "X3", "X4"]
GIVEN = "D ~ A1 * A2 + S_prob + X1 + X2 + X3 + X4"
OWN = {"pi_xvars": X}
SMALL_MODELS = {
    "pi_xvars": X,
    "outcome_xvars": [f"XO{i}" for i in range(1, 7)],
    "pa_xvars_int": [f"XP{i}" for i in range(1, 6)],
}
OUTSIDE = [f"XP{i}" for i in range(1, 5)]

#: What the R functions gave; anything else in the files says how, or is input.
OUTPUTS = (
    "defs", "values", "observed_defs", "table_null", "table_boot", "intervals", "unrounded",
    "aggregates", "cfpr", "cfnr", "plotted_low", "plotted_high", "alpha", "alpha_observed",
    "alpha_null", "alpha_bootstrap", "propensity_first_20", "propensity_mean",
    "y0_weighted_first_20", "y0_weighted_mean", "propensity_coefficients", "propensity_model",
    "given_propensity_model", "fitted_min", "fitted_max", "rows_below_0.005", "rows_above_0.995",
    "untreated_rows_above_0.995", "n_rows_used", "mu0hat", "mu0S1hat", "mu0S0hat", "membership",
    "membership_used", "internal_membership_column_means", "external_membership",
    "membership_column_means", "membership_first_3_rows", "outcome_model_coefficients",
    "outcome_model_with_S_coefficients", "group_sizes", "drawn", "optimum_value",
)  # fmt: skip
FILES = (
    "standard", "single_attribute", "missing_recoded", "edge_cases", "input_kinds", "null",
    "bootstrap", "intervals", "small_internal", "small_internal_cutoffs", "small_borrow",
    "small_internal_inference", "small_borrow_inference", "small_internal_inference_tight",
    "small_borrow_inference_tight", "small_edge_cases",
)  # fmt: skip
#: Numbers among these that say how they came about, and coefficients of fits that stopped short of
#: the maximum, which `test_small_subgroups` compares with fits that stop there too.
NOT_FIGURES = (
    "iterations", "truncation", "max_abs_coefficient_change", "max_abs_defs_change",
    "membership_models", "external_model", "if_internal_covariates_were_scaled",
)  # fmt: skip


# -- what was recorded ----------------------------------------------------------------------------


@cache
def record(name: str) -> dict:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def leaves(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Paths of all numbers, and of what stands for one that is not finite."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, (*path, key))
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from leaves(part, (*path, i))
    elif value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        yield path


def is_figure(path: tuple) -> bool:
    """Whether a path is that of a figure; the first part is the file, the last may be an input."""
    inside = set(path[1:])
    return bool(inside & set(OUTPUTS)) and not inside & set(NOT_FIGURES)


@cache
def recorded_figures() -> frozenset[tuple]:
    """Paths of all figures, beginning with the file."""
    return frozenset(
        path for name in FILES for path in leaves(record(name), (name,)) if is_figure(path)
    )


DONE: set[tuple] = set()


def take(*path: Any) -> Any:
    """What stands at a path; its figures are crossed off."""
    value: Any = record(path[0])
    for key in path[1:]:
        value = value[key]
    DONE.update(leaves(value, path))
    return value


def numbers(values: Any, nonfinite: dict | None = None) -> dict[str, float]:
    """Recorded figures by name, with NaN and minus infinity."""
    special = {"-Inf": -np.inf}
    return {
        k: special.get((nonfinite or {}).get(k, ""), np.nan) if v is None else v
        for k, v in values.items()
    }


def same(section: str, found: pd.Series, case: dict, tolerance=RATE, small=SMALL) -> None:
    """All figures of a case: the same names in the same order, and the same values."""
    expected = numbers(case["defs"], case.get("nonfinite"))
    assert found.index.tolist() == list(expected)
    same_values(section, found, pd.Series(expected), tolerance, small)


def same_values(section, found, expected, tolerance=RATE, small=SMALL) -> None:
    for name, value in expected.items():
        allowed = tolerance
        if str(name).startswith(("fpr_", "fnr_")):
            allowed = COUNT
        elif "_small" in str(name):
            allowed = small
        if np.isinf(value):
            check(section, found[name] == value, str(name))
            continue
        compare(section, found[name], value, allowed, str(name))


def table_of(columns: list, rows: list) -> pd.DataFrame:
    filled = [[np.nan if v is None else v for v in row] for row in rows]
    return pd.DataFrame(filled, columns=columns).astype(float)


def same_table(section, found: pd.DataFrame, expected: pd.DataFrame, tolerance, small=None) -> None:
    assert found.columns.tolist() == expected.columns.tolist()
    for name in expected:
        allowed = small if small is not None and "_small" in name else tolerance
        # a recorded maximum of no pair reads as missing in a table
        values = found[name].replace(-np.inf, np.nan)
        compare(section, values, expected[name], allowed, name)


# -- runs -----------------------------------------------------------------------------------------


def cohort() -> pd.DataFrame:
    return pd.read_csv(DATA / "cohort.csv")


def people() -> pd.DataFrame:
    return pd.read_csv(DATA / "small_groups.csv")


def outsiders() -> pd.DataFrame:
    return pd.read_csv(DATA / "external.csv")


SAID = {
    "incomplete rows dropped": r"data: \d+ of \d+ rows dropped",
    "incomplete external rows dropped": r"data_external: \d+ of \d+ rows dropped",
    "cFPR of some group is 0 or 1": r"^cFPR is exactly|counterfactual rate is exactly",
    "cFNR of some group is 0 or 1": r"^cFNR is exactly|counterfactual rate is exactly",
    "observed FPR of some group is 0 or 1": r"^observed FPR is exactly",
    "observed FNR of some group is 0 or 1": r"^observed FNR is exactly",
    "small-group cFPR of some group is 0 or 1": r"^cFPR of small groups is exactly",
    "small-group cFNR of some group is 0 or 1": r"^cFNR of small groups is exactly",
    "prediction from a rank-deficient fit": r"linear combination|left out",
}


def run(data, cutoff=0.5, estimator_type="standard", *, said=(), **options):
    """An analysis; whatever the original warned of has to be warned of."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        result = analysis_estimation(data, cutoff, estimator_type, **options)
    texts = [str(w.message) for w in heard if issubclass(w.category, CfairWarning)]
    for message in said:
        key = message.removeprefix("package warning: ").removesuffix(" may be misleading")
        pattern = SAID.get(key)
        if pattern is None:  # "returning -Inf" and the like: words of R itself
            assert "package warning" not in message, message
            continue
        check("faircfint: warnings", any(re.search(pattern, t) for t in texts), message)
    return result


def small(data, folds, *, kind="small_internal", cutoff=0.5, **options):
    return run(data, cutoff, kind, folds=np.asarray(folds), **{**SMALL_MODELS, **options})


# -- the standard estimator -----------------------------------------------------------------------

MODELS = {
    "glm_given_cutoff_0.5": {"pi_model": GIVEN, **OWN},
    "glm_given_cutoff_0.3": {"pi_model": GIVEN, **OWN},
    "glm_given_cutoff_0.7": {"pi_model": GIVEN, **OWN},
    "own_model_cutoff_0.5": OWN,
    "own_model_with_groups_cutoff_0.5": {"pi_xvars": ["A1", "A2", "S_prob", *X]},
    "own_model_one_covariate": {"pi_xvars": ["X1"]},
}


def r_names(coefficients: pd.Series) -> pd.Series:
    """Patsy's ``A1[T.M]`` as R's ``A1M``."""
    return coefficients.rename(
        lambda n: "(Intercept)" if n == "Intercept" else re.sub(r"\[T\.([^\]]*)\]", r"\1", n)
    )


def same_coefficients(section, found: pd.Series, expected: dict, tolerance=1e-9) -> None:
    found = r_names(found)
    for name, value in expected.items():
        compare(section, found[name], value, tolerance, name)


@pytest.mark.parametrize("name", MODELS)
def test_standard(name):
    cutoff = float(name[-3:]) if "cutoff" in name else 0.5
    case = take("standard", "cases", name)
    result = run(cohort(), cutoff, said=case["warnings"], **MODELS[name])
    section = "faircfint: standard estimates"
    same(section, result.defs, case)
    compare(section, result.cohort.n_used, case["n_rows_used"], 0)
    rows = result.est_choice
    section = "faircfint: propensities, weights, coefficients"
    compare(section, rows["propensity"][:20], case["propensity_first_20"], 1e-9)
    compare(section, rows["propensity"].mean(), case["propensity_mean"], RATE)
    compare(section, rows["y0_weighted"][:20], case["y0_weighted_first_20"], 1e-9)
    compare(section, rows["y0_weighted"].mean(), case["y0_weighted_mean"], RATE)
    model = case.get("propensity_model")
    if model:
        same_coefficients(section, rows["pi_model"].coefficients, model["coefficients"])
        compare(section, rows["pi_model"].fit.deviance, model["deviance"], 1e-8)


def test_given_model():
    result = run(cohort(), pi_model=GIVEN, **OWN)
    section = "faircfint: propensities, weights, coefficients"
    for key, tolerance in (
        ("given_propensity_model", 1e-9),
        ("given_propensity_model_tight", 1e-12),
    ):
        model = take("standard", key)
        fit = result.est_choice["pi_model"]
        same_coefficients(section, fit.coefficients, model["coefficients"], tolerance)
        compare(section, fit.fit.deviance, model["deviance"], 1e-8)


def test_a_fitted_result_in_place_of_a_formula():
    """As R scripts hand over a fitted ``glm``."""
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    data = cohort()
    fit = smf.glm(GIVEN, data, family=sm.families.Binomial()).fit()
    case = record("standard")["cases"]["glm_given_cutoff_0.5"]
    same("faircfint: standard estimates", run(data, pi_model=fit, **OWN).defs, case)


SINGLE = ("A2_constant_1_glm", "A2_constant_1_own", "A2_numeric_1_own", "A1_constant_1_own")


@pytest.mark.parametrize("name", SINGLE)
def test_single_attribute(name):
    case = take("single_attribute", "cases", name)
    data = cohort()
    data = (
        data.assign(A2=data["A1"], A1="1")
        if name.startswith("A1")
        else data.assign(A2=1 if "numeric" in name else "1")
    )
    options = {"pi_model": "D ~ A1 + S_prob + X1 + X2 + X3 + X4"} if "glm" in name else {}
    result = run(data, said=case["warnings"], **OWN, **options)
    section = "faircfint: one attribute"
    same(section, result.defs, case)
    compare(section, result.cohort.n_used, case["n_rows_used"], 0)
    found = result.est_choice["pi_model"].coefficients
    same_coefficients(section, found, case.get("propensity_coefficients", {}))


def rows_of(key: str) -> np.ndarray:
    return np.array(record("missing_recoded")[key]) - 1


def with_missing(column: str, key: str = "rows_X1") -> pd.DataFrame:
    data = cohort()
    data[column] = data[column].astype(float if data[column].dtype.kind in "if" else object)
    data.loc[rows_of(key), column] = np.nan
    return data


def recode(column: str, zero, one) -> pd.Series:
    return pd.Series(np.array([zero, one], dtype=object)[cohort()[column]]).infer_objects()


def recoded_data(name: str) -> pd.DataFrame:
    """The table of a case of `missing_recoded`."""
    data = cohort()
    if name.startswith("na_in_X1"):
        return with_missing("X1")
    if name in ("na_in_A1", "na_in_S_prob"):
        return with_missing(name[6:])
    if name == "na_in_unused_column":
        data["unused"] = 1.0
        data.loc[rows_of("rows_X1"), "unused"] = np.nan
    if name == "same_rows_dropped_by_hand":
        return data.drop(index=[*rows_of("rows_X1"), *rows_of("rows_Y")])
    codes = {"12_own": (1, 2), "12_glm": (1, 2), "logical": (False, True)}
    both = codes.get(name.removeprefix("recoded_"))
    if both:
        data["D"] = recode("D", *both)
    only = {"Y_3_8": (3, 8), "Y_10_2": (10, 2), "Y_minus1_0": (-1, 0)}
    y = both or only.get(name.removeprefix("recoded_"))
    return data if y is None else data.assign(Y=recode("Y", *y))


RECODED = (
    "na_in_X1_own", "na_in_X1_glm", "na_in_A1", "na_in_S_prob", "na_in_unused_column",
    "same_rows_dropped_by_hand", "recoded_12_own", "recoded_12_glm", "recoded_logical",
    "recoded_Y_3_8", "recoded_Y_10_2",
)  # fmt: skip


@pytest.mark.parametrize("name", RECODED)
def test_missing_and_recoded(name):
    case = take("missing_recoded", "cases", name)
    options = {"pi_model": GIVEN} if name.endswith("glm") else {}
    result = run(recoded_data(name), said=case["warnings"], **OWN, **options)
    section = "faircfint: missing values and codings"
    same(section, result.defs, case)
    compare(section, result.cohort.n_used, case["n_rows_used"], 0)
    found = result.est_choice["pi_model"].coefficients
    same_coefficients(section, found, case.get("propensity_coefficients", {}))


def edge_data(name: str) -> tuple[pd.DataFrame, float]:
    data = cohort()
    first = (data["A1"] == "F") & (data["A2"] == "Black")
    women, untreated = data["A1"] == "F", data["D"] == 0
    flagged = data["S_prob"] >= 0.5
    if name.startswith("two_groups") or name == "one_group":
        data["A2"] = "1"
    if name == "one_group":
        data["A1"] = "F"
    if name in ("group_without_events", "group_without_nonevents"):
        data.loc[first, "Y"] = int(name == "group_without_nonevents")
    elif name == "cfpr_exactly_0":
        data.loc[first & untreated & flagged & (data["Y"] == 0), "S_prob"] = 0.4
    elif name == "cfnr_exactly_0":
        data.loc[first & untreated & ~flagged & (data["Y"] == 1), "S_prob"] = 0.6
    elif name == "cfpr_exactly_1":
        data.loc[first & untreated & ~flagged & (data["Y"] == 0), "S_prob"] = 0.6
    elif name == "group_all_treated":
        data.loc[first, "D"] = 1
    elif name == "group_absent":
        data = data[~first]
    elif name == "two_groups_one_without_events":
        data.loc[women, "Y"] = 0
    elif name == "two_groups_one_cfpr_0":
        data.loc[women & untreated & flagged & (data["Y"] == 0), "S_prob"] = 0.4
    return data, float(name[-1]) if name.startswith("cutoff") else 0.5


EDGES = tuple(n for n in record("edge_cases")["cases"] if not n.startswith("propensity"))


@pytest.mark.parametrize("name", EDGES)
def test_degenerate_groups(name):
    case = take("edge_cases", "cases", name)
    data, cutoff = edge_data(name)
    result = run(data, cutoff, said=case["warnings"], **OWN)
    same("faircfint: degenerate groups", result.defs, case)
    compare("faircfint: degenerate groups", result.cohort.n_used, case["n_rows_used"], 0)


@pytest.mark.parametrize("name", ["propensity_truncation", "propensity_truncation_2"])
def test_truncated_propensities(name):
    section = "faircfint: truncated propensities"
    case = take("edge_cases", "cases", name)
    data, coefficients = cohort(), case["propensity_coefficients"]
    if name == "propensity_truncation":
        data["Z"] = 3 * (2 * data["D"] - 1) + 2 * data["X1"]
        result = run(data, pi_model="D ~ Z", **OWN)
        found = result.est_choice["pi_model"].coefficients
        same_coefficients(section, found, coefficients, 1e-7)
    else:  # a formula holds no offset: the fitted values are handed over
        import statsmodels.api as sm

        fit = sm.GLM(
            data["D"], np.ones(len(data)), family=sm.families.Binomial(), offset=2.2 * data["X1"]
        ).fit()
        compare(section, fit.params.iloc[0], coefficients["(Intercept)"], 1e-9)
        result = run(data, pi_model=fit.fittedvalues, **OWN)
    same(section, result.defs, case, LOOSE)
    compare(section, result.cohort.n_used, case["n_rows_used"], 0)
    fitted, d = result.est_choice["pi_model"].fitted, np.asarray(result.cohort.d)
    compare(section, fitted.min(), case["fitted_min"], 1e-9)
    compare(section, fitted.max(), case["fitted_max"], 1e-9)
    compare(section, np.sum(fitted < 0.005), case["rows_below_0.005"], 0)
    compare(section, np.sum(fitted > 0.995), case["rows_above_0.995"], 0)
    above = np.sum((fitted > 0.995) & (d == 0))
    compare(section, above, case["untreated_rows_above_0.995"], 0)


def test_data_frame():
    case = take("input_kinds", "cases", "data_frame")
    same("faircfint: kinds of input", run(cohort(), **OWN).defs, case)


def test_level_order_is_thrown_away():
    data = cohort()
    data["A1"] = pd.Categorical(data["A1"], categories=["M", "F"])
    case = take("input_kinds", "cases", "factor_level_order")
    same("faircfint: kinds of input", run(data, **OWN).defs, case)


def test_numeric_labels_sort_as_text():
    data = cohort()
    data["A1"] = data["A1"].map({"F": 10, "M": 9})
    case = take("input_kinds", "cases", "numeric_labels")
    same("faircfint: kinds of input", run(data, **OWN).defs, case)


def colliding() -> pd.DataFrame:
    data = cohort()
    data["A1"] = data["A1"].map({"F": "a", "M": "ab"})
    data["A2"] = data["A2"].map({"Black": "bc", "White": "c"})
    return data


def test_pasted_labels_that_collide():
    case = take("input_kinds", "cases", "pasted_labels_collide")
    result = run(colliding(), **OWN)
    assert result.defs.index.tolist() == case["names"]
    compare("faircfint: kinds of input", result.defs, case["values"], RATE)
    check("faircfint: kinds of input", any("twice" in n for n in result.notes), "a note says so")


# -- replicates -----------------------------------------------------------------------------------


@cache
def replicated():
    permutations = np.load(DATA / "null_permutations.npz")["perm"].astype(int) - 1
    rows = np.load(DATA / "bootstrap_rows.npz")["rows"].astype(int) - 1
    with quiet():
        return analysis_estimation(
            cohort(), 0.5, "standard", pi_model=GIVEN, permutations=permutations, resamples=rows,
            seed=1, **OWN,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("file", "key", "tolerance"), [("null", "table_null", RATE), ("bootstrap", "table_boot", BOOT)]
)
def test_replicates(file, key, tolerance):
    result = replicated()
    section = f"faircfint: {file} replicates"
    expected = take(file, key)
    found = result.table_null if file == "null" else result.boot_out
    same_table(section, found, table_of(expected["columns"], expected["rows"]), tolerance)
    observed = pd.Series(numbers(take(file, "observed_defs")))
    same_values("faircfint: standard estimates", result.defs, observed)


def test_own_draws_take_as_many_rows():
    """Sizes of the strata, by the module's own draws."""
    from cfair.estimators.confusion import cell_codes
    from cfair.faircfint.parity import subsamples
    from cfair.inference.rows import Rows

    c = replicated().cohort
    rows = Rows(c.y, c.s, c.d, c.groups.codes, c.groups.n_groups)
    strata = take("bootstrap", "strata")
    drawn = subsamples(rows, [replicated().est_choice["propensity"].to_numpy()], 5, 0.75, 1)
    code = cell_codes(c.y, c.s, c.groups.codes)
    labels = {label: k for k, label in enumerate(c.groups.labels)}
    for chosen in drawn:
        assert len(set(chosen.tolist())) == len(chosen)
        found = np.bincount(code[chosen], minlength=16)
        for s in strata:
            k = labels[(s["A1"], s["A2"])] * 4 + s["Y"] * 2 + s["S"]
            compare("faircfint: bootstrap replicates", found[k], s["drawn"], 0)


@pytest.mark.parametrize("key", ["alpha_0.05", "alpha_0.1"])
def test_intervals(key):
    section = "faircfint: intervals and u-values"
    result, n, alpha = replicated(), record("intervals")["sampsize"], float(key.split("_")[1])
    names = record("intervals")["intervals"][key]["parameter"]
    table = take("intervals", "intervals", key)
    scaled = faircfint.get_bs_rescaled(result.boot_out[names], result.defs, n, 0.75)
    normal = faircfint.ci_trunc(faircfint.ci_norm(scaled, result.defs, n, alpha))
    t = faircfint.ci_trunc(faircfint.ci_tint(scaled, result.defs, n, alpha, 0.75))
    assert normal.index.tolist() == names
    for column, found in (
        ("point_est", normal["point_est"]),
        ("norm_var_est", normal["var_est"]),
        ("norm_se_est", normal["se_est"]),
        ("norm_low", normal["low"]),
        ("norm_high", normal["high"]),
        ("norm_low_truncated", normal["low_trunc"]),
        ("norm_high_truncated", normal["high_trunc"]),
        ("tint_low", t["low"]),
        ("tint_high", t["high"]),
        ("tint_low_truncated", t["low_trunc"]),
        ("tint_high_truncated", t["high_trunc"]),
    ):
        allowed = 1e-7 if column == "norm_var_est" else 1e-8
        compare(section, found, table[column], allowed, column)


def test_numbers_in_the_plots():
    section = "faircfint: intervals and u-values"
    plots = get_plots(replicated(), record("intervals")["n"], 0.05, 0.75)
    inside = take("intervals", "inside_get_plots")
    for part in ("aggregates", "cfpr", "cfnr"):
        table = inside[part]
        found = plots.intervals.loc[table["stat"]]
        for column in ("point_est", "se_est", "low_trans", "high_trans"):
            compare(section, found[column], table[column], 1e-8, f"{part} {column}")
    found = plots.intervals.loc[inside["plotted_stat"]]
    for column, key in (("low_trans", "plotted_low"), ("high_trans", "plotted_high")):
        expected = [np.nan if v is None else v for v in inside[key]]
        compare(section, found[column], expected, 1e-8, key)
    shown = [t.get_text() for t in plots.cfpr.axes[0].get_yticklabels()]
    for label in inside["default_labels"]:
        check(section, any(text.startswith(label) for text in shown), label)


@pytest.mark.parametrize("key", ["delta_0.02", "delta_0.05", "delta_0.1"])
def test_u_values(key):
    section = "faircfint: intervals and u-values"
    entry = take("intervals", "u_values", key)
    plots = get_plots(replicated(), delta=float(key.split("_")[1]))
    names = list(entry["unrounded"])
    found = plots.u_values.loc[names]
    compare(section, found["u_value"], list(entry["unrounded"].values()), 1e-12)
    assert found["shown"].to_dict() == entry["as_shown_by_get_plots"]


# -- small groups ---------------------------------------------------------------------------------


def test_small_internal():
    case = take("small_internal")
    result = small(people(), case["membership_folds"], pi_model=GIVEN, said=case["warnings"])
    exact = case["defs_with_exact_membership_model"]
    same("faircfint: small groups, exact membership", result.defs, exact, small=TIGHT)
    same("faircfint: small groups", result.defs, case)
    section = "faircfint: models of small groups"
    compare(section, result.cohort.groups.sizes, case["group_sizes"], 0)
    rows = result.est_choice
    for name in ("mu0hat", "mu0S1hat", "mu0S0hat"):
        compare(section, rows[name][:20], case[name]["first_20"], 1e-9, name)
        compare(section, rows[name].mean(), case[name]["mean"], 1e-9, name)
    names = {"(Intercept)": "Intercept", "S": "S: S_prob >= 0.5"}
    table = rows["outcome_model"].coefficients
    for key, column in (
        ("outcome_model_coefficients", "without the call"),
        ("outcome_model_with_S_coefficients", "with the call"),
    ):
        for name, value in case[key].items():
            compare(section, table.loc[names.get(name, name), column], value, 1e-8, name)
    member = case["membership"]
    assert rows["membership"].columns.tolist() == member["columns"]
    compare(section, rows["membership"][:20], member["first_20_rows"], SMALL)
    compare(section, rows["membership"].mean(), member["column_means"], SMALL)


def test_small_internal_before_cutting():
    """Means before cutting, from the model of membership itself."""
    case = record("small_internal")
    expected = take("small_internal", "membership", "untruncated_column_means")
    result = small(people(), case["membership_folds"], pi_model=GIVEN, compat=False)
    raw = result.est_choice["small"].membership_model.raw
    compare("faircfint: models of small groups", raw.mean(axis=0), expected, SMALL)


@pytest.mark.parametrize("cutoff", [0.3, 0.7])
def test_small_internal_cutoffs(cutoff):
    case = take("small_internal_cutoffs", "cases", f"cutoff_{cutoff}")
    folds = record("small_internal")["membership_folds"]
    result = small(people(), folds, cutoff=cutoff, pi_model=GIVEN, said=case["warnings"])
    same("faircfint: small groups", result.defs, case)


def borrow(case, data=None, folds=None, outside=None, **options):
    data = people() if data is None else data
    folds = case["membership_folds"] if folds is None else folds
    if "pa_model_ext" not in options:
        options |= {"data_external": outsiders() if outside is None else outside}
        options["pa_xvars_ext"] = OUTSIDE
    return small(data, folds, kind="small_borrow", said=case.get("warnings", ()), **options)


def fitted_outside():
    return get_pa_ext_small(outsiders(), "multinomial", OUTSIDE)


@pytest.mark.parametrize("name", ["brier", "brier_prefit"])
def test_small_borrow_by_brier_score(name):
    case = take("small_borrow", "cases", name)
    options = {"pa_model_ext": fitted_outside()} if name.endswith("prefit") else {}
    result = borrow(case, pi_model=GIVEN, borrow_metric="brier", **options)
    same("faircfint: borrowing", result.defs, case)
    compare("faircfint: borrowing, alpha", result.alpha, case["alpha"], 2e-6)
    compare("faircfint: borrowing, alpha", result.alpha, case["closed_form_alpha"], 2e-6)
    same_memberships(result, case)
    p, group = result.est_choice["membership"].to_numpy(), result.cohort.groups.codes
    error = np.sum((p - np.eye(6)[group]) ** 2, axis=1).mean()
    compare("faircfint: borrowing", error, case["optimum_value"], 1e-6)


def same_memberships(result, case, mixed=None) -> None:
    section, rows = "faircfint: borrowing", result.est_choice
    used, mixed = case["membership_used"], rows["membership"] if mixed is None else mixed
    compare(section, mixed[:20], used["first_20_rows"], SMALL)
    compare(section, mixed.mean(), used["column_means"], SMALL)
    means = case["internal_membership_column_means"]
    compare(section, rows["membership_internal"].mean(), means, SMALL)
    external = case["external_membership"]
    compare(section, rows["membership_external"][:20], external["first_20_rows"], SMALL)
    compare(section, rows["membership_external"].mean(), external["column_means"], SMALL)


@pytest.mark.parametrize("name", ["auc", "auc_prefit"])
def test_small_borrow_by_auc(name):
    """The AUC is a step function of alpha: where a search ends depends on the fifth digit of a fit.

    So alpha differs, by .006, and by as much times the difference of the two models what follows.
    """
    case = record("small_borrow")["cases"][name]
    options = {"pa_model_ext": fitted_outside()} if name.endswith("prefit") else {}
    result = borrow(case, pi_model=GIVEN, borrow_metric="auc", **options)
    gap = abs(result.alpha - case["alpha"])
    check("faircfint: borrowing, alpha", gap < 0.01, "alpha by AUC")
    rows = result.est_choice
    internal, external = rows["membership_internal"], rows["membership_external"]
    at_r = internal + case["alpha"] * (external - internal)  # mixed as R's alpha has it
    same_memberships(result, case, at_r)
    DONE.update(leaves(case["external_membership"], auc_path(name, "external_membership")))
    key = "internal_membership_column_means"
    DONE.update(leaves(case[key], auc_path(name, key)))
    from cfair.nuisance.borrowing import hand_till_auc

    auc = hand_till_auc(rows["membership"].to_numpy(), result.cohort.groups.codes)
    compare("faircfint: borrowing", -auc, case["optimum_value"], 5e-5)
    DONE.update([auc_path(name, "optimum_value")])
    for figure, value in numbers(case["defs"]).items():
        if "_small" not in figure:
            same_values("faircfint: borrowing", result.defs, {figure: value})
            DONE.add(auc_path(name, "defs", figure))
        else:
            compare("faircfint: borrowing by AUC", result.defs[figure], value, 1e-3, figure)


def auc_path(name: str, *more: str) -> tuple:
    return ("small_borrow", "cases", name, *more)


def draws_of(which: str) -> dict[str, np.ndarray]:
    draws = np.load(DATA / f"small_{which}_draws.npz")
    return {name: draws[name].astype(int) for name in draws.files}


def external_as_recorded():
    """The external model with the coefficients of the recorded run, short of the maximum."""
    model = fitted_outside()
    values = np.array(record("small_borrow")["external_model"]["coefficients"]["values"])
    coef = np.vstack([np.zeros(values.shape[1]), values]).T
    return replace(model, fit=replace(model.fit, coef=coef))


@cache
def small_replicated(which: str):
    draws, inference = draws_of(which), record(f"small_{which}_inference")
    options = {"permutations": draws["perm"] - 1, "null_folds": draws["null_folds"]}
    options |= {"resamples": draws["rows"] - 1, "boot_folds": draws["boot_folds"]}
    said = [*inference["warnings_null"], *inference["warnings_bootstrap"]]
    if which == "internal":
        return small(people(), inference["observed_folds"], pi_model=GIVEN, said=said, **options)
    options |= {"pa_model_ext": external_as_recorded(), "pi_model": GIVEN}
    return borrow({"warnings": said}, folds=inference["observed_folds"], **options)


@pytest.mark.parametrize("which", ["internal", "borrow"])
def test_small_replicates(which):
    result = small_replicated(which)
    inference, tight = (f"small_{which}_inference{end}" for end in ("", "_tight"))
    for key, found in (("table_null", result.table_null), ("table_boot", result.boot_out)):
        section = f"faircfint: small groups, {key[6:]} replicates"
        table, exact = take(inference, key), take(tight, key)
        expected = table_of(table["columns"], table["rows"])
        same_table(section, found, expected, BOOT, REPLICATE)
        columns = record(tight)["columns"]
        same_table(f"{section}, exact membership", found, table_of(columns, exact), BOOT, TIGHT)
    observed = pd.Series(numbers(take(inference, "observed_defs")))
    same_values("faircfint: small groups", result.defs, observed)
    section = "faircfint: borrowing, alpha"
    alpha = take(inference, "alpha_observed")
    if which == "internal":
        check(section, alpha is None and result.alpha is None, "nothing borrowed")
        for key in ("alpha_null", "alpha_bootstrap"):
            check(section, take(inference, key) is None, "nothing borrowed")
        return
    compare(section, result.alpha, alpha, 5e-6)
    for key, name in (("alpha_null", "alpha_null"), ("alpha_bootstrap", "alpha_boot")):
        compare(section, result.est_choice[name], take(inference, key), 1e-3, name)


EDGE_CASES = record("small_edge_cases")["cases"]
ROWS_02 = (people()["A1"] == 0) & (people()["A2"] == 2)


def small_edge_data(name: str) -> pd.DataFrame:
    data = people()
    if name == "group_never_flagged":
        data.loc[ROWS_02 & (data["S_prob"] >= 0.5), "S_prob"] = 0.4
    elif name == "group_without_events":
        data.loc[ROWS_02, "Y"] = 0
    elif name in ("group_of_two_rows", "group_of_one_row", "combination_absent"):
        n = {"group_of_two_rows": 2, "group_of_one_row": 1, "combination_absent": 0}[name]
        keep = ~ROWS_02
        keep[np.flatnonzero(ROWS_02)[:n]] = True
        data = data[keep].reset_index(drop=True)
    elif name in ("A2_constant_1", "A1_constant"):
        data = data[data["A2"].isin([0, 1])].reset_index(drop=True)
        data = data.assign(A1="1") if name[1] == "1" else data.assign(A1=data["A2"], A2="1")
    elif name in ("pasted_labels_sort_otherwise", "pasted_labels_collide"):
        second = "b c d" if name.endswith("otherwise") else "c bc d"
        data["A1"] = data["A1"].map({0: "a", 1: "ab"})
        data["A2"] = data["A2"].map(dict(enumerate(second.split())))
    elif name == "constant_membership_covariate":
        data["XP5"] = 1.0
    return data


def same_edge(result, case, tolerance=1e-10) -> None:
    section = "faircfint: small groups, degenerate situations"
    same(section, result.defs, case, tolerance)
    compare(section, result.cohort.n_used, case["n_rows_used"], 0)
    p = result.est_choice["membership"]
    compare(section, p.mean(), case["membership_column_means"], SMALL)
    compare(section, p[:3], case["membership_first_3_rows"], SMALL)
    assert p.columns.tolist() == case["membership_level_order"]
    if case["alpha"] is None:
        check(section, result.alpha is None, "nothing borrowed")
    else:
        compare("faircfint: borrowing, alpha", result.alpha, case["alpha"], 1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "plain", "group_never_flagged", "group_without_events", "cutoff_0", "cutoff_1",
        "group_of_two_rows", "A2_constant_1",
    ],
)  # fmt: skip
def test_small_edge_cases(name):
    case = take("small_edge_cases", "cases", name)
    cutoff = float(name[-1]) if name.startswith("cutoff") else 0.5
    result = small(
        small_edge_data(name), case["membership_folds"], cutoff=cutoff, said=case["warnings"]
    )
    same_edge(result, case)


def test_small_edge_cases_of_borrowing():
    name = "borrow_external_missing"
    case = take("small_edge_cases", "cases", name)
    outside = outsiders()
    outside.loc[np.array(case["external_rows_with_NA"]) - 1, "XP1"] = np.nan
    same_edge(borrow(case, outside=outside), case)

    name = "borrow_scaled_beforehand"
    case = take("small_edge_cases", "cases", name)
    inside, outside = people(), outsiders()
    mean, sd = outside[OUTSIDE].mean(), outside[OUTSIDE].std()
    for data in (inside, outside):
        data[OUTSIDE] = (data[OUTSIDE] - mean) / sd
    same_edge(borrow(case, inside, outside=outside), case)

    case = take("small_edge_cases", "cases", "borrow_alpha_at_upper_bound")
    inside = people()
    scaled = (inside[OUTSIDE] - inside[OUTSIDE].mean()) / inside[OUTSIDE].std()
    n = len(inside)
    i = np.arange(1, n + 1)
    inside[OUTSIDE] = scaled.round(6)
    inside["XP5"] = np.round(np.tan(np.pi * ((7919 * i % n) + 0.5) / n), 6)
    result = borrow(case, inside, outside=inside[["A1", "A2", *OUTSIDE]])
    same_edge(result, case)


# -- mistakes of the original, refused ------------------------------------------------------------

CONSTANT = {"A2_constant_0_own": "0", "A2_constant_word_own": "all"}


def refused(section, pattern, *args, **options) -> None:
    with pytest.raises(DataError, match=pattern):
        analysis_estimation(*args, **options)
    check(section, True, "refused")


@pytest.mark.parametrize("name", CONSTANT)
def test_refused_a_constant_second_attribute_other_than_1(name):
    data = cohort().assign(A2=CONSTANT[name])
    refused("faircfint: refused", f"A2 is '{CONSTANT[name]}' in all rows", data, 0.5, **OWN)


def test_refused_codings_that_come_out_wrong():
    section = "faircfint: refused"
    refused(section, "coded -1 and 0", recoded_data("recoded_Y_minus1_0"), 0.5, **OWN)
    for column in ("Y", "D"):
        data = cohort()
        data[column] = pd.Categorical(data[column].astype(str))
        refused(section, f"{column} is a Categorical", data, 0.5, **OWN)
    for coding in (("0", "1"), ("no", "yes")):
        data = cohort().assign(Y=recode("Y", *coding))
        refused(section, "Y is text", data, 0.5, **OWN)


def test_refused_missing_outcome_or_treatment():
    for column in ("Y", "D"):
        data = with_missing(column, "rows_Y")
        refused("faircfint: refused", f"{column} is missing in 5 of 2000 rows", data, 0.5, **OWN)


def test_refused_an_absent_column():
    data = cohort().drop(columns="A2")
    refused("faircfint: refused", "lacks 'A2'", data, 0.5, **OWN)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("A1_constant", "A1 has one level and A2 two"),
        ("pasted_labels_sort_otherwise", "sort otherwise"),
        ("pasted_labels_collide", "the same pasted label"),
        ("combination_absent", "no row is in 02"),
        ("group_of_one_row", r"'0 & 2' \(1\) has fewer"),
    ],
)
def test_refused_small_groups(name, pattern):
    case = EDGE_CASES[name]
    data = small_edge_data(name)
    folds = case.get("membership_folds", np.arange(len(data)) % 5)
    refused("faircfint: refused", pattern, data, 0.5, "small_internal", folds=folds, **SMALL_MODELS)


def test_refused_external_data_without_a_group():
    outside = outsiders()
    outside = outside[(outside["A1"] != 0) | (outside["A2"] != 2)]
    refused(
        "faircfint: refused", "lacks 0 & 2", people(), 0.5, "small_borrow",
        data_external=outside, pa_xvars_ext=OUTSIDE, **SMALL_MODELS,
    )  # fmt: skip


# -- what stops or breaks the original only -------------------------------------------------------


def test_other_data_frames_are_fine_here():
    """A polars or pyarrow table stands for the tibble and the data.table."""
    polars = pytest.importorskip("polars")
    section = "faircfint: kinds of input"
    case = record("input_kinds")["cases"]["tibble"]
    table = polars.from_pandas(cohort())
    right = record("input_kinds")["cases"]["data_frame"]
    for data in (table, table.to_arrow()):
        same(section, run(data, **OWN).defs, right)
    result = run(table, **OWN)
    for name, value in case["defs"].items():
        if value is not None:  # the margins
            compare(section, result.defs[name], value, RATE, name)
            DONE.add(("input_kinds", "cases", "tibble", "defs", name))


def test_a_constant_covariate_and_a_fitted_external_model_alone_are_fine_here():
    folds = EDGE_CASES["plain"]["membership_folds"]
    with quiet():
        result = small(small_edge_data("constant_membership_covariate"), folds)
    assert np.isfinite(result.defs.filter(like="cfpr_small")).all()
    check("faircfint: refused", "XP5" in " ".join(result.notes), "a note says so")
    assert EDGE_CASES["borrow_external_null"]["error"]
    alone = borrow({}, folds=folds, pa_model_ext=fitted_outside())
    both = borrow({}, folds=folds)
    compare("faircfint: borrowing", alone.defs, both.defs, 0)


# -- the account ----------------------------------------------------------------------------------

#: Recorded figures that are not reproduced: the beginning of their path, how many, and why.
NOT_REPRODUCED: dict[tuple, tuple[int, str]] = {
    ("input_kinds", "cases", "tibble"): (22, "a tibble gives no group rates there; here it does"),
    ("single_attribute", "cases", "A2_constant_0_own"): (21, "A2 is not 1, no rows; refused"),
    ("single_attribute", "cases", "A2_constant_word_own"): (21, "A2 is not 1, no rows; refused"),
    ("missing_recoded", "cases", "recoded_Y_minus1_0"): (31, "every row an event; refused"),
    ("missing_recoded", "cases", "Y_factor_01"): (31, "levels read as 1 and 2; refused"),
    ("missing_recoded", "cases", "D_factor_01"): (31, "levels read as 1 and 2; refused"),
    ("small_edge_cases", "cases", "A1_constant"): (40, "one membership column twice; refused"),
    ("small_edge_cases", "cases", "pasted_labels_sort_otherwise"): (
        84,
        "rates divided by the share of another group; refused",
    ),
    ("small_borrow", "cases", "auc"): (145, "alpha by AUC hangs on the fifth digit of a fit"),
    ("small_borrow", "cases", "auc_prefit"): (145, "the same"),
}
N_FIGURES = 12_737
N_TESTS = 83


def test_account_of_all_recorded_figures(request):
    """Runs last: what was recorded is compared, or stands in `NOT_REPRODUCED`."""
    here = Path(__file__).name
    chosen = [item for item in request.session.items if item.path.name == here]
    if len(chosen) < N_TESTS:
        pytest.skip("only a part of the file was run")
    figures = recorded_figures()
    left = figures - DONE
    counts = {start: sum(path[: len(start)] == start for path in left) for start in NOT_REPRODUCED}
    assert counts == {start: n for start, (n, _) in NOT_REPRODUCED.items()}
    assert len(left) == sum(counts.values())
    assert len(figures) == N_FIGURES
