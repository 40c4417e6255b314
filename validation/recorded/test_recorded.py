"""Every figure recorded from runs of the R package faircfint, against cfair.

Tolerances, absolute, by kind of figure:

- observed rates: 1e-12, they are ratios of counts;
- counterfactual rates, marginals, summaries: 1e-11; R's ``glm`` stops at a relative deviance change
  of 1e-8, which moves them by up to 2e-11, and by 2e-9 with a nearly separating covariate, where
  1e-8 is allowed;
- coefficients: 1e-9, and 1e-12 against R's fit with ``epsilon = 1e-15``;
- null replicates 1e-11, bootstrap replicates 1e-8 (few rows: ``glm`` stops further away);
- intervals from the replicates 1e-8, u-values 1e-12: they are shares.

Where a recorded figure is a mistake of the original, the test says so in its name: it shows what
the recorded number really is, where that can be told, and asserts what is right.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cfair
from cfair.errors import DataError
from cfair.estimators import disparities, ipw_rates, observed_rates
from cfair.inference.bootstrap import bootstrap_interval
from cfair.inference.drawing import faircfint_sizes
from cfair.inference.uvalue import u_values
from validation.ledger import check, compare, quiet

DATA = Path(__file__).parent / "data"
COUNT, RATE, LOOSE, COEF, TIGHT, NULL, BOOT, INTERVAL = (
    1e-12, 1e-11, 1e-8, 1e-9, 1e-12, 1e-11, 1e-8, 1e-8,
)  # fmt: skip
OWN = "D ~ X1 + X2 + X3 + X4"  # what the package fits when no model is given
GIVEN = "D ~ A1 * A2 + S_prob + X1 + X2 + X3 + X4"
SUMMARIES = {"average": "avg", "maximum": "max", "variance": "var"}
SIGN = {"cfpr": "pos", "cfnr": "neg"}
RATES = ("fpr", "fnr", "cfpr", "cfnr")


@cache
def record(name: str) -> dict:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def cases(name: str) -> dict:
    return record(name)["cases"]


def cohort() -> pd.DataFrame:
    return pd.read_csv(DATA / "cohort.csv")


def analyse(data, formula=OWN, groups=("A1", "A2"), cutoff=0.5, extra=None, **options):
    """Run the analysis as a user would; `extra` are further options of Audit."""
    with quiet():
        audit = cfair.Audit(
            data,
            outcome="Y",
            treatment="D",
            score="S_prob",
            cutoff=cutoff,
            groups=list(groups),
            **(extra or {}),
        )
        return audit.counterfactual(formula, **options)


def figures(result, *, as_r: bool = True, second: str | None = None) -> dict[str, float]:
    """Name cfair's figures as the R package does.

    With `as_r` the summaries leave out rates of exactly 0 or 1. `second` is the constant that R
    pastes behind the level of a single attribute.
    """
    found: dict[str, float] = {}
    attributes = result.cohort.groups.attributes
    for _, row in result.rates.iterrows():
        label = "".join(str(row[a]) for a in attributes) + (second or "")
        found[f"{row['metric']}_{label}"] = row["estimate"]
    for _, row in result.marginals.iterrows():
        if row["metric"] in SIGN:
            name = f"{row['metric']}_marg_{row['attribute']}_{row['level']}"
            found[name] = row["estimate"]
    if second is not None:
        for _, row in result.overall.iterrows():
            if row["metric"] in SIGN:
                found[f"{row['metric']}_marg_A2_{second}"] = row["estimate"]
    for metric, sign in SIGN.items():
        if as_r:
            rates = result.rates.loc[result.rates["metric"] == metric, "estimate"].to_numpy()
            values = disparities(rates, drop_boundary=True)
        else:
            values = result.disparities.loc[result.disparities["metric"] == metric, "estimate"]
        for short, value in zip(SUMMARIES.values(), values, strict=True):
            found[f"{short}_{sign}"] = float(value)
    return found


def expected_of(case: dict) -> dict[str, float]:
    """The recorded figures; NA, NaN and the infinite maximum of no pair are all undefined."""
    return {k: np.nan if v is None else v for k, v in case["defs"].items()}


def same(section: str, found: dict, expected: dict, tolerance: float = RATE, names=None) -> None:
    """Compare figures by name, observed rates more strictly."""
    for name in names or expected:
        observed = name.startswith(("fpr_", "fnr_"))
        compare(section, found[name], expected[name], COUNT if observed else tolerance, name)


# -- standard.json -------------------------------------------------------------------------------

MODELS = {
    "glm_given_cutoff_0.5": (GIVEN, 0.5),
    "glm_given_cutoff_0.3": (GIVEN, 0.3),
    "glm_given_cutoff_0.7": (GIVEN, 0.7),
    "own_model_cutoff_0.5": (OWN, 0.5),
    "own_model_with_groups_cutoff_0.5": ("D ~ A1 + A2 + S_prob + X1 + X2 + X3 + X4", 0.5),
    "own_model_one_covariate": ("D ~ X1", 0.5),
}


def test_all_standard_cases_are_here():
    assert set(MODELS) == set(cases("standard"))


@pytest.mark.parametrize("name", MODELS)
def test_standard_estimates(name):
    formula, cutoff = MODELS[name]
    case = cases("standard")[name]
    result = analyse(cohort(), formula, cutoff=cutoff)
    expected = expected_of(case)
    same("recorded: standard estimates", figures(result), expected)
    same("recorded: standard estimates", figures(result, as_r=False), expected)  # nothing dropped
    assert case["n_rows_used"] == result.cohort.n_used


@pytest.mark.parametrize("name", MODELS)
def test_standard_propensities_and_weights(name):
    formula, cutoff = MODELS[name]
    case = cases("standard")[name]
    data = cohort()
    result = analyse(data, formula, cutoff=cutoff)
    section = "recorded: propensities and weights"
    compare(section, result.propensities[:20], case["propensity_first_20"], COEF)
    compare(section, result.propensities.mean(), case["propensity_mean"], RATE)
    y0 = result.weights * data["Y"]
    compare(section, y0[:20], case["y0_weighted_first_20"], COEF)
    compare(section, y0.mean(), case["y0_weighted_mean"], RATE)


@pytest.mark.parametrize("name", MODELS)
def test_standard_observed_verb_agrees_with_the_record(name):
    _, cutoff = MODELS[name]
    with quiet():
        observed = cfair.Audit(
            cohort(), outcome="Y", score="S_prob", cutoff=cutoff, groups=["A1", "A2"]
        ).observed()
    expected = expected_of(cases("standard")[name])
    for metric in ("fpr", "fnr"):
        part = observed.rates[observed.rates["metric"] == metric]
        for _, row in part.iterrows():
            name = f"{metric}_{row['A1']}{row['A2']}"
            compare("recorded: observed rates", row["estimate"], expected[name], COUNT, name)


def r_names(coefficients: pd.Series) -> dict[str, float]:
    """Patsy's ``A1[T.M]:A2[T.White]`` as R's ``A1M:A2White``."""
    clean = {"Intercept": "(Intercept)"}
    return {
        clean.get(name, name.replace("[T.", "").replace("]", "")): value
        for name, value in coefficients.items()
    }


def test_coefficients_of_the_given_model():
    result = analyse(cohort(), GIVEN)
    found = r_names(result.propensity.coefficients)
    for key, tolerance in (
        ("given_propensity_model", COEF),
        ("given_propensity_model_tight", TIGHT),
    ):
        model = record("standard")[key]
        assert set(found) == set(model["coefficients"])
        for name, value in model["coefficients"].items():
            compare("recorded: coefficients", found[name], value, tolerance, name)
        compare("recorded: coefficients", result.propensity.fit.deviance, model["deviance"], 1e-8)


@pytest.mark.parametrize("name", ["own_model_cutoff_0.5", "own_model_with_groups_cutoff_0.5"])
def test_coefficients_of_models_the_package_fits(name):
    model = cases("standard")[name]["propensity_model"]
    result = analyse(cohort(), MODELS[name][0])
    found = r_names(result.propensity.coefficients)
    assert set(found) == set(model["coefficients"])
    for term, value in model["coefficients"].items():
        compare("recorded: coefficients", found[term], value, COEF, term)
    compare("recorded: coefficients", result.propensity.fit.deviance, model["deviance"], 1e-8)


# -- one attribute -------------------------------------------------------------------------------


def test_one_attribute_given_model():
    case = cases("single_attribute")["A2_constant_1_glm"]
    result = analyse(cohort(), "D ~ A1 + S_prob + X1 + X2 + X3 + X4", groups=["A1"])
    section = "recorded: one attribute"
    same(section, figures(result, second="1"), expected_of(case))
    same(section, figures(result, as_r=False, second="1"), expected_of(case))
    for term, value in case["propensity_coefficients"].items():
        compare(section, r_names(result.propensity.coefficients)[term], value, COEF, term)


@pytest.mark.parametrize("name", ["A2_constant_1_own", "A2_numeric_1_own"])
def test_one_attribute_beside_a_constant(name):
    expected = expected_of(cases("single_attribute")[name])
    section = "recorded: one attribute"
    same(section, figures(analyse(cohort(), groups=["A1"]), second="1"), expected)
    for constant in ("1", 1):
        same(section, figures(analyse(cohort().assign(A2=constant))), expected)


def test_first_attribute_constant():
    data = cohort()
    expected = expected_of(cases("single_attribute")["A1_constant_1_own"])
    result = analyse(data.assign(A2=data["A1"], A1="1"))
    same("recorded: one attribute", figures(result), expected)


@pytest.mark.parametrize(
    ("name", "constant"), [("A2_constant_0_own", "0"), ("A2_constant_word_own", "all")]
)
def test_a_constant_other_than_1_which_the_original_gives_no_rates_for(name, constant):
    section = "recorded: one attribute"
    case = cases("single_attribute")[name]
    found = figures(analyse(cohort().assign(A2=constant)))
    same(section, found, expected_of(case), names=[k for k in case["defs"] if "marg" in k])
    right = expected_of(cases("single_attribute")["A2_constant_1_own"])
    for key, value in right.items():
        if "marg" in key:
            continue
        check(section, case["defs"][key] is None, f"{key} is undefined in the record")
        own = key[:-1] + constant if key.startswith(RATES) else key
        compare(section, found[own], value, RATE, own)


def test_a_single_attribute_where_the_original_stops():
    case = cases("single_attribute")["A2_missing_column"]
    check("recorded: one attribute", bool(case["error"]), "the original stops")
    found = figures(analyse(cohort().drop(columns="A2"), groups=["A1"]), second="1")
    same(
        "recorded: one attribute",
        found,
        expected_of(cases("single_attribute")["A2_constant_1_own"]),
    )


def test_all_single_attribute_cases_are_here():
    assert set(cases("single_attribute")) == {
        "A2_constant_1_glm", "A2_constant_1_own", "A2_numeric_1_own", "A2_constant_0_own",
        "A2_constant_word_own", "A2_missing_column", "A1_constant_1_own",
    }  # fmt: skip


# -- missing values and coding -------------------------------------------------------------------


def rows_of(key: str) -> np.ndarray:
    return np.array(record("missing_recoded")[key]) - 1


def with_missing(column: str, key: str = "rows_X1", data: pd.DataFrame | None = None):
    data = cohort() if data is None else data.copy()
    if data[column].dtype.kind == "i":
        data[column] = data[column].astype(float)
    data.loc[rows_of(key), column] = np.nan
    return data


@pytest.mark.parametrize(
    ("name", "column", "formula"),
    [
        ("na_in_X1_own", "X1", OWN),
        ("na_in_X1_glm", "X1", GIVEN),
        ("na_in_A1", "A1", OWN),
        ("na_in_S_prob", "S_prob", OWN),
    ],
)
def test_missing_values_in_a_used_column(name, column, formula):
    case = cases("missing_recoded")[name]
    result = analyse(with_missing(column), formula, extra={"missing": "drop"})
    section = "recorded: missing values"
    same(section, figures(result), expected_of(case))
    check(section, result.cohort.n_used == case["n_rows_used"], "rows used")
    for term, value in case.get("propensity_coefficients", {}).items():
        compare(section, r_names(result.propensity.coefficients)[term], value, COEF, term)


def test_missing_values_are_refused_unless_dropping_is_asked_for():
    with pytest.raises(DataError, match="X1"):
        analyse(with_missing("X1"))


def test_missing_values_in_a_column_nobody_uses_where_the_original_drops_rows():
    section = "recorded: missing values"
    case = cases("missing_recoded")["na_in_unused_column"]
    data = with_missing("unused", data=cohort().assign(unused=1.0))
    result = analyse(data)
    check(section, result.cohort.n_used == 2000, "cfair keeps the rows")
    same(section, figures(result), expected_of(cases("standard")["own_model_cutoff_0.5"]))
    check(section, case["n_rows_used"] == 1985, "the original drops 15 rows")
    by_hand = analyse(data.dropna().reset_index(drop=True))
    same(section, figures(by_hand), expected_of(case))


def test_rows_dropped_beforehand():
    case = cases("missing_recoded")["same_rows_dropped_by_hand"]
    data = cohort().drop(index=[*rows_of("rows_X1"), *rows_of("rows_Y")])
    result = analyse(data)
    same("recorded: missing values", figures(result), expected_of(case))
    check("recorded: missing values", result.cohort.n_used == case["n_rows_used"], "rows used")


def test_missing_outcome_and_covariate_where_the_original_stops():
    section = "recorded: missing values"
    check(section, bool(cases("missing_recoded")["na_in_X1_and_Y"]["error"]), "the original stops")
    data = with_missing("Y", "rows_Y", with_missing("X1"))
    result = analyse(data, extra={"missing": "drop"})
    same(
        section,
        figures(result),
        expected_of(cases("missing_recoded")["same_rows_dropped_by_hand"]),
    )


@pytest.mark.parametrize(("name", "column"), [("na_in_Y_only", "Y"), ("na_in_D_only", "D")])
def test_missing_outcome_or_treatment_where_the_original_stops(name, column):
    section = "recorded: missing values"
    check(section, bool(cases("missing_recoded")[name]["error"]), "the original stops")
    dropped = analyse(with_missing(column, "rows_Y"), extra={"missing": "drop"})
    by_hand = analyse(cohort().drop(index=rows_of("rows_Y")))
    same(section, figures(dropped), figures(by_hand))


def recode(column: str, zero, one) -> pd.Series:
    values = np.array([zero, one], dtype=object)[cohort()[column]]
    return pd.Series(values).infer_objects()


CODED = {
    "recoded_12_own": (OWN, (1, 2), (1, 2)),
    "recoded_12_glm": (GIVEN, (1, 2), (1, 2)),
    "recoded_logical": (OWN, (False, True), (False, True)),
    "recoded_Y_3_8": (OWN, (3, 8), None),
}


@pytest.mark.parametrize("name", CODED)
def test_other_codings(name):
    formula, y, d = CODED[name]
    data = cohort().assign(Y=recode("Y", *y))
    extra = {"outcome_event": y[1]}
    if d is not None:
        data["D"] = recode("D", *d)
        extra["treatment_event"] = d[1]
    result = analyse(data, formula, extra=extra)
    same("recorded: codings", figures(result), expected_of(cases("missing_recoded")[name]))


def right_coding(data: pd.DataFrame, **extra) -> None:
    """The right figures are those of the plain 0/1 columns."""
    result = analyse(data, extra=extra)
    same(
        "recorded: codings",
        figures(result),
        expected_of(cases("standard")["own_model_cutoff_0.5"]),
    )


@pytest.mark.parametrize("coding", [(1, 2), (3, 8), (-1, 0), (2, 10), ("no", "yes")])
def test_a_coding_is_never_guessed(coding):
    with pytest.raises(DataError, match="outcome_event"):
        analyse(cohort().assign(Y=recode("Y", *coding)))
    check("recorded: codings", True, "refused")


def test_outcome_coded_minus_1_and_0_where_the_original_makes_every_row_an_event():
    section = "recorded: codings"
    expected = expected_of(cases("missing_recoded")["recoded_Y_minus1_0"])
    all_events = dict(zip(RATES, closed_forms(np.ones(2000, dtype=int)), strict=True))
    mine = by_name(all_events)
    same(section, mine, {k: v for k, v in expected.items() if k in mine})
    right_coding(cohort().assign(Y=recode("Y", -1, 0)), outcome_event=0)


def closed_forms(y: np.ndarray, untreated: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    """fpr, fnr, cfpr, cfnr by group from the functions of arrays, with any outcome."""
    result = analyse(cohort())
    c = result.cohort
    d = np.asarray(c.d) if untreated is None else 1 - untreated
    group, K = c.groups.codes, c.groups.n_groups
    ones = np.zeros(len(y), dtype=int), np.zeros(len(y))
    fpr, fnr = ipw_rates(y, c.s, ones[0], group, ones[1], K)
    cfpr, cfnr = ipw_rates(y, c.s, d, group, result.propensity.pi, K)
    return fpr, fnr, cfpr, cfnr


def by_name(rates: dict[str, np.ndarray]) -> dict[str, float]:
    """Rates by group and their summaries under R's names."""
    order = record("standard")["group_order"]
    found = {
        f"{m}_{g}": value for m, by in rates.items() for g, value in zip(order, by, strict=True)
    }
    for metric, sign in SIGN.items():
        if metric in rates:
            values = disparities(rates[metric], drop_boundary=True)
            for short, value in zip(SUMMARIES.values(), values, strict=True):
                found[f"{short}_{sign}"] = float(value)
    return found


def test_outcome_coded_10_for_none_and_2_for_event_which_the_original_turns_round():
    data = cohort().assign(Y=recode("Y", 10, 2))
    turned = analyse(data, extra={"outcome_event": 10})
    expected = expected_of(cases("missing_recoded")["recoded_Y_10_2"])
    same("recorded: codings", figures(turned), expected)
    right_coding(data, outcome_event=2)


def test_outcome_a_factor_which_the_original_reads_as_1_and_2():
    """Its "pos" figures are those of 1 - cFNR, its cFNR is undefined."""
    section = "recorded: codings"
    expected = expected_of(cases("missing_recoded")["Y_factor_01"])
    result = analyse(cohort())
    true = figures(result)
    for name, value in expected.items():
        if name.startswith("cfnr"):
            compare(section, value, np.nan, 0, name)
        elif name.startswith("cfpr"):
            compare(section, value, 1 - true[name.replace("cfpr", "cfnr")], RATE, name)
        elif name.startswith("fpr"):
            compare(section, value, 1 - true[name.replace("fpr", "fnr")], COUNT, name)
        elif name.endswith("_pos"):
            compare(section, value, true[name.replace("pos", "neg")], RATE, name)
        elif name.endswith("_neg"):
            compare(section, value, np.nan, 0, name)
    # its fnr counts 2 for an event and 1 for none in a sum over rows that are events once
    c = result.cohort
    for k, group in enumerate(record("standard")["group_order"]):
        rows = c.groups.codes == k
        y, s = np.asarray(c.y)[rows] + 1.0, np.asarray(c.s)[rows]
        wrong = np.sum((1 - s) * y) / np.sum(y)
        compare(section, expected[f"fnr_{group}"], wrong, COUNT, f"fnr_{group}")
    with_factor = cohort()
    with_factor["Y"] = pd.Categorical(with_factor["Y"].astype(str))
    right_coding(with_factor, outcome_event="1")


def test_treatment_a_factor_where_the_original_takes_the_treated_for_the_untreated():
    section = "recorded: codings"
    expected = expected_of(cases("missing_recoded")["D_factor_01"])
    result = analyse(cohort())
    c, pi = result.cohort, result.propensity.pi
    # D = 2 gives the treated the weight -1/(1-pi), D = 1 gives the untreated the weight 0
    w = np.where(np.asarray(c.d) == 1, 1 / (1 - pi), 0.0)
    members = {
        **dict(zip(record("standard")["group_order"], range(4), strict=True)),
    }
    for group, k in members.items():
        rows = c.groups.codes == k
        free = rows & (np.asarray(c.y) == 0)
        wrong = np.sum(w[free] * np.asarray(c.s)[free]) / np.sum(w[free])
        compare(section, expected[f"cfpr_{group}"], wrong, RATE, group)
    for name, value in expected.items():
        if name.startswith("cfnr") or name.endswith("_neg"):
            compare(section, value, np.nan, 0, name)
        elif name.startswith(("fpr", "fnr")):
            compare(section, value, figures(result)[name], COUNT, name)
    for (attribute, level), column in zip(c.groups.margins, c.groups.margin_matrix, strict=True):
        free = (column[c.groups.codes] == 1) & (np.asarray(c.y) == 0)
        wrong = np.sum(w[free] * np.asarray(c.s)[free]) / np.sum(w[free])
        compare(section, expected[f"cfpr_marg_{attribute}_{level}"], wrong, RATE, str(level))
    rates = np.array([expected[f"cfpr_{g}"] for g in members])
    for short, value in zip(SUMMARIES.values(), disparities(rates), strict=True):
        compare(section, expected[f"{short}_pos"], value, RATE, short)
    with_factor = cohort()
    with_factor["D"] = pd.Categorical(with_factor["D"].astype(str))
    right_coding(with_factor, treatment_event="1")


@pytest.mark.parametrize(
    ("name", "coding"), [("Y_text_01", ("0", "1")), ("Y_text_no_yes", ("no", "yes"))]
)
def test_outcome_as_text_where_the_original_stops(name, coding):
    check("recorded: codings", bool(cases("missing_recoded")[name]["error"]), "the original stops")
    right_coding(cohort().assign(Y=recode("Y", *coding)), outcome_event=coding[1])


def test_all_missing_and_coding_cases_are_here():
    assert set(cases("missing_recoded")) == {
        "na_in_X1_own", "na_in_X1_glm", "na_in_A1", "na_in_S_prob", "na_in_unused_column",
        "same_rows_dropped_by_hand", "na_in_X1_and_Y", "na_in_Y_only", "na_in_D_only",
        "recoded_12_own", "recoded_12_glm", "recoded_logical", "recoded_Y_3_8",
        "recoded_Y_minus1_0", "recoded_Y_10_2", "Y_factor_01", "D_factor_01", "Y_text_01",
        "Y_text_no_yes",
    }  # fmt: skip


# -- degenerate groups ---------------------------------------------------------------------------


def edge_data(name: str) -> tuple[pd.DataFrame, tuple[str, ...], float]:
    """The data of a degenerate case, its attributes and cutoff."""
    data = cohort()
    first = (data["A1"] == "F") & (data["A2"] == "Black")
    women = data["A1"] == "F"
    untreated = data["D"] == 0
    flagged = data["S_prob"] >= 0.5
    groups: tuple[str, ...] = ("A1", "A2")
    cutoff = 0.5
    if name.startswith("two_groups"):
        groups = ("A1",)
    if name == "group_without_events":
        data.loc[first, "Y"] = 0
    elif name == "group_without_nonevents":
        data.loc[first, "Y"] = 1
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
    elif name == "one_group":
        data, groups = data.assign(A1="F"), ("A1",)
    elif name in ("cutoff_0", "cutoff_1"):
        cutoff = float(name[-1])
    return data, groups, cutoff


EDGES = (
    "group_without_events", "group_without_nonevents", "cfpr_exactly_0", "cfnr_exactly_0",
    "cfpr_exactly_1", "group_all_treated", "group_absent", "two_groups",
    "two_groups_one_without_events", "two_groups_one_cfpr_0", "one_group", "cutoff_0", "cutoff_1",
)  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_degenerate_groups(name):
    """Rates as recorded; summaries as recorded once rates of 0 and 1 are left out of them.

    The original's maximum of no pair is -Inf; it counts as undefined here.
    """
    data, groups, cutoff = edge_data(name)
    case = cases("edge_cases")[name]
    result = analyse(data, groups=groups, cutoff=cutoff)
    second = "1" if len(groups) == 1 else None
    same("recorded: degenerate groups", figures(result, second=second), expected_of(case))
    assert case["n_rows_used"] == result.cohort.n_used


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("cfpr_exactly_0", {"max_pos": 0.20413332494705913}),
        ("cfnr_exactly_0", {"max_neg": 0.44016530476977056}),
        ("cfpr_exactly_1", {"max_pos": 1 - 0.11412496731044675}),
        ("two_groups_one_cfpr_0", {"max_pos": 0.1320167943048499, "avg_pos": 0.1320167943048499}),
        ("cutoff_0", dict.fromkeys(["avg_pos", "max_pos", "avg_neg", "max_neg"], 0.0)),
        ("cutoff_1", dict.fromkeys(["avg_pos", "max_pos", "avg_neg", "max_neg"], 0.0)),
    ],
)
def test_summaries_keep_rates_of_0_and_1_which_the_original_drops(name, right):
    section = "recorded: degenerate groups"
    data, groups, cutoff = edge_data(name)
    result = analyse(data, groups=groups, cutoff=cutoff)
    second = "1" if len(groups) == 1 else None
    found = figures(result, as_r=False, second=second)
    for key, value in right.items():
        compare(section, found[key], value, RATE, key)
        dropped = cases("edge_cases")[name]["defs"][key]
        check(section, dropped is None or dropped < value - 0.05, "the original hides it")


def test_the_maximum_of_no_pair_is_undefined_where_the_original_says_minus_infinity():
    section = "recorded: degenerate groups"
    name = "two_groups_one_without_events"
    check(section, cases("edge_cases")[name]["nonfinite"]["max_neg"] == "-Inf", "recorded")
    data, groups, _ = edge_data(name)
    compare(
        section, figures(analyse(data, groups=groups), as_r=False, second="1")["max_neg"], np.nan, 0
    )


def test_truncated_propensities_nearly_separated():
    section = "recorded: truncated propensities"
    case = cases("edge_cases")["propensity_truncation"]
    data = cohort()
    data["Z"] = 3 * (2 * data["D"] - 1) + 2 * data["X1"]
    result = analyse(data, "D ~ Z")
    same(section, figures(result), expected_of(case), LOOSE)
    for term, value in case["propensity_coefficients"].items():
        compare(section, r_names(result.propensity.coefficients)[term], value, 1e-7, term)
    check_truncation(section, result, case)


def test_truncated_propensities_from_an_offset():
    """A formula cannot hold an offset: the probabilities are given."""
    section = "recorded: truncated propensities"
    case = cases("edge_cases")["propensity_truncation_2"]
    data = cohort()
    intercept = case["propensity_coefficients"]["(Intercept)"]
    pi = 1 / (1 + np.exp(-(intercept + 2.2 * data["X1"])))
    compare(section, np.mean(data["D"] - pi), 0.0, 1e-10, "score equation of the intercept")
    result = analyse(data, pi.to_numpy())
    same(section, figures(result), expected_of(case), LOOSE)
    check_truncation(section, result, case)


def check_truncation(section: str, result, case: dict) -> None:
    fitted = result.propensity.fitted
    compare(section, fitted.min(), case["fitted_min"], 1e-9, "smallest")
    compare(section, fitted.max(), case["fitted_max"], 1e-9, "largest")
    compare(section, np.sum(fitted < 0.005), case["rows_below_0.005"], 0, "below")
    compare(section, np.sum(fitted > 0.995), case["rows_above_0.995"], 0, "above")
    above = np.sum((fitted > 0.995) & (np.asarray(result.cohort.d) == 0))
    compare(section, above, case["untreated_rows_above_0.995"], 0, "untreated above")
    compare(section, [result.propensity.pi.min()], [0.005], 0, "cut below")
    compare(section, [result.propensity.pi.max()], [0.995], 0, "cut above")


def test_all_degenerate_cases_are_here():
    others = {"propensity_truncation", "propensity_truncation_2"}
    assert set(cases("edge_cases")) == {*EDGES, *others}


# -- kinds of input ------------------------------------------------------------------------------


def test_data_frame():
    case = cases("input_kinds")["data_frame"]
    same("recorded: kinds of input", figures(analyse(cohort())), expected_of(case))


@pytest.mark.parametrize("name", ["tibble", "data_table"])
def test_other_data_frames_which_break_the_original(name):
    """A polars or pyarrow table stands for the tibble and the data.table."""
    polars = pytest.importorskip("polars")
    section = "recorded: kinds of input"
    case = cases("input_kinds")[name]
    data = polars.from_pandas(cohort())
    found = figures(analyse(data if name == "tibble" else data.to_arrow()))
    same(section, found, expected_of(cases("input_kinds")["data_frame"]))
    if name == "data_table":
        check(section, bool(case["error"]), "the original stops")
        return
    for key, value in case["defs"].items():
        if "marg" in key:
            compare(section, found[key], value, RATE, key)
        else:
            check(section, value is None, f"{key} is undefined in the record")


def test_level_order_which_the_original_throws_away():
    section = "recorded: kinds of input"
    data = cohort()
    data["A1"] = pd.Categorical(data["A1"], categories=["M", "F"])
    result = analyse(data)
    same(section, figures(result), expected_of(cases("input_kinds")["factor_level_order"]))
    wanted = [("M", "Black"), ("M", "White"), ("F", "Black"), ("F", "White")]
    check(section, list(result.cohort.groups.labels) == wanted, "the order of the user is kept")


def test_numeric_labels_which_the_original_sorts_as_text():
    section = "recorded: kinds of input"
    data = cohort()
    data["A1"] = data["A1"].map({"F": 10, "M": 9})
    result = analyse(data)
    same(section, figures(result), expected_of(cases("input_kinds")["numeric_labels"]))
    recorded = [k for k in cases("input_kinds")["numeric_labels"]["defs"] if k.startswith("fpr")]
    check(section, recorded[0] == "fpr_10Black", "10 before 9 in the record")
    check(section, result.cohort.groups.labels[0] == (9, "Black"), "9 before 10 in cfair")


def test_labels_that_collide_when_pasted_stay_apart():
    section = "recorded: kinds of input"
    case = cases("input_kinds")["pasted_labels_collide"]
    data = cohort()
    data["A1"] = data["A1"].map({"F": "a", "M": "ab"})
    data["A2"] = data["A2"].map({"Black": "bc", "White": "c"})
    result = analyse(data)
    found = [
        value
        for metric in RATES
        for value in result.rates.loc[result.rates["metric"] == metric, "estimate"]
    ]
    names = case["names"]
    expected = [np.nan if v is None else v for v in case["values"]]
    compare(section, found, expected[:16], RATE)
    rest = figures(result)
    for name, value in zip(names[16:], expected[16:], strict=True):
        compare(section, rest[name], value, RATE, name)
    check(section, len(set(names[:4])) == 3, "two groups share a name in the record")
    check(section, len(set(result.cohort.groups.names)) == 4, "four groups, four names in cfair")


def test_all_kinds_of_input_are_here():
    assert set(cases("input_kinds")) == {
        "data_frame", "tibble", "data_table", "factor_level_order", "numeric_labels",
        "pasted_labels_collide",
    }  # fmt: skip


# -- replicates ----------------------------------------------------------------------------------


def draws_as_r(draws: pd.DataFrame) -> pd.DataFrame:
    """Replicates under R's names; summaries leave out rates of exactly 0 or 1."""
    found: dict[str, np.ndarray] = {}
    for metric, quantity in draws.columns:
        values = draws[(metric, quantity)].to_numpy()
        if ": " in quantity:
            attribute, level = quantity.split(": ")
            found[f"{metric}_marg_{attribute}_{level}"] = values
        elif quantity not in SUMMARIES:
            found[f"{metric}_{quantity.replace(' & ', '')}"] = values
    order = record("standard")["group_order"]
    for metric, sign in SIGN.items():
        rates = np.column_stack([found[f"{metric}_{g}"] for g in order])
        values = disparities(rates, drop_boundary=True)
        for short, value in zip(SUMMARIES.values(), values, strict=True):
            found[f"{short}_{sign}"] = value
    return pd.DataFrame(found)


def recorded_table(file: str, key: str) -> pd.DataFrame:
    table = record(file)[key]
    return pd.DataFrame(
        [[np.nan if v is None else v for v in row] for row in table["rows"]],
        columns=table["columns"],
    ).astype(float)


@cache
def null_result():
    permutations = np.load(DATA / "null_permutations.npz")["perm"].astype(int) - 1
    return analyse(cohort(), permutations=permutations)


@cache
def boot_result():
    rows = np.load(DATA / "bootstrap_rows.npz")["rows"].astype(int) - 1
    return analyse(cohort(), resamples=rows, bootstrap="faircfint")


def test_null_replicates():
    section = "recorded: null replicates"
    expected = recorded_table("null", "table_null")
    found = draws_as_r(null_result().null_draws)
    for name in expected:
        compare(section, found[name], expected[name], NULL, name)


def test_null_replicates_with_the_summaries_of_cfair():
    """No rate is 0 or 1 in these replicates, so cfair's own summaries are R's."""
    expected = recorded_table("null", "table_null")
    draws = null_result().null_draws
    for metric, sign in SIGN.items():
        for statistic, short in SUMMARIES.items():
            found = draws[(metric, statistic)]
            compare("recorded: null replicates", found, expected[f"{short}_{sign}"], NULL)


def test_bootstrap_replicates():
    section = "recorded: bootstrap replicates"
    expected = recorded_table("bootstrap", "table_boot")
    found = draws_as_r(boot_result().boot_draws)
    for name in expected:
        compare(section, found[name], expected[name], BOOT, name)


def test_bootstrap_summaries_of_cfair_keep_rates_of_0_and_1():
    section = "recorded: bootstrap replicates"
    expected = recorded_table("bootstrap", "table_boot")
    draws = boot_result().boot_draws
    order = record("standard")["group_order"]
    n_boundary = 0
    for metric, sign in SIGN.items():
        rates = expected[[f"{metric}_{g}" for g in order]].to_numpy()
        boundary = ((rates == 0) | (rates == 1)).any(axis=1)
        n_boundary += int(boundary.sum())
        for statistic, short in SUMMARIES.items():
            found, r = draws[(metric, statistic)].to_numpy(), expected[f"{short}_{sign}"].to_numpy()
            compare(section, found[~boundary], r[~boundary], BOOT)
            if boundary.any() and statistic == "maximum":
                check(section, bool((found[boundary] > r[boundary]).all()), "R hides the largest")
    check(section, n_boundary > 0, "some replicate has such a rate")


def test_sizes_of_the_strata():
    strata = record("bootstrap")["strata"]
    sizes = faircfint_sizes(np.array([s["rows"] for s in strata]), record("bootstrap")["n_floor"])
    section = "recorded: bootstrap replicates"
    compare(section, sizes, [s["drawn"] for s in strata], 0)
    compare(section, sizes.sum(), record("bootstrap")["drawn_per_replicate"], 0)
    data = cohort().assign(S=lambda x: (x["S_prob"] >= 0.5).astype(int))
    counted = data.groupby(["A1", "A2", "Y", "S"]).size()
    for s in strata:
        compare(section, counted[(s["A1"], s["A2"], s["Y"], s["S"])], s["rows"], 0)
    n = record("bootstrap")["n"]
    compare(section, n**0.75, record("bootstrap")["n_power"], 1e-9)
    compare(section, int(n**0.75) / n, record("bootstrap")["fraction"], 1e-15)


def test_own_draws_of_the_scheme_take_as_many_rows():
    result = analyse(cohort(), n_boot=5, bootstrap="faircfint")
    compare("recorded: bootstrap replicates", result.boot.rows_per_replicate, np.full(5, 300.0), 0)


@pytest.mark.parametrize("file", ["null", "bootstrap"])
def test_observed_figures_beside_the_replicates(file):
    """They come from another propensity model than the replicates: a mistake of the original."""
    expected = {k: float(v) for k, v in record(file)["observed_defs"].items()}
    same("recorded: standard estimates", figures(analyse(cohort(), GIVEN)), expected)


def test_replicates_of_one_model_throughout_which_the_original_does_not_have():
    """The same formula everywhere: the null of cfair with `GIVEN` is not the recorded one."""
    permutations = np.load(DATA / "null_permutations.npz")["perm"].astype(int)[:10] - 1
    found = draws_as_r(analyse(cohort(), GIVEN, permutations=permutations).null_draws)
    expected = recorded_table("null", "table_null")[:10]
    gap = (found["cfpr_FBlack"] - expected["cfpr_FBlack"]).abs().max()
    check("recorded: null replicates", gap > 1e-3, "the model matters")


# -- intervals and u-values ----------------------------------------------------------------------


@pytest.mark.parametrize("key", ["alpha_0.05", "alpha_0.1"])
@pytest.mark.parametrize("source", ["recorded", "cfair"])
def test_intervals_from_the_replicates(key, source):
    """The "t" interval is the basic interval; the normal one has the scale sqrt(m/n)."""
    section = "recorded: intervals"
    table = {k: np.array(v, dtype=object) for k, v in record("intervals")["intervals"][key].items()}
    level = 1 - float(key.split("_")[1])
    boot = recorded_table("bootstrap", "table_boot")
    if source == "cfair":
        boot = draws_as_r(boot_result().boot_draws)
    names = list(table["parameter"])
    number = {k: v.astype(float) for k, v in table.items() if k != "parameter"}
    estimate, draws = number["point_est"], boot[names].to_numpy()
    expected = figures(analyse(cohort(), GIVEN))
    compare(section, estimate, [expected[name] for name in names], RATE)

    basic = bootstrap_interval(estimate, draws, "basic", level)
    compare(section, basic.low, number["tint_low"], INTERVAL, "t-interval, low")
    compare(section, basic.high, number["tint_high"], INTERVAL, "t-interval, high")
    compare(section, np.clip(basic.low, 0, 1), number["tint_low_truncated"], INTERVAL)
    compare(section, np.clip(basic.high, 0, 1), number["tint_high_truncated"], INTERVAL)

    n = record("intervals")["sampsize"]
    m = n ** record("intervals")["m_factor"]  # not rounded down here
    scale = np.sqrt(m / n)
    normal = bootstrap_interval(estimate, draws, "normal", level)
    compare(section, normal.se**2 * m, number["norm_var_est"], 1e-7, "variance")
    compare(section, normal.se * scale, number["norm_se_est"], INTERVAL, "standard error")
    low = estimate + (normal.low - estimate) * scale
    high = estimate + (normal.high - estimate) * scale
    compare(section, low, number["norm_low"], INTERVAL, "normal, low")
    compare(section, high, number["norm_high"], INTERVAL, "normal, high")
    compare(section, np.clip(low, 0, 1), number["norm_low_truncated"], INTERVAL)
    compare(section, np.clip(high, 0, 1), number["norm_high_truncated"], INTERVAL)


def test_intervals_of_the_result_are_the_same_basic_intervals():
    """The public result, with its own estimate (same formula as the replicates)."""
    result = boot_result()
    frame = result.bootstrap_intervals("basic")
    draws = draws_as_r(result.boot_draws)
    for row in frame.itertuples():
        values = draws[f"{row.metric}_{row.group.replace(' & ', '')}"].to_numpy()[:, None]
        limits = bootstrap_interval(np.array([row.estimate]), values, "basic")
        compare(
            "recorded: intervals", [row.ci_low, row.ci_high], [limits.low[0], limits.high[0]], 0
        )


def test_intervals_inside_the_plots():
    section = "recorded: intervals"
    inside = record("intervals")["inside_get_plots"]
    boot = draws_as_r(boot_result().boot_draws)
    scale = np.sqrt(record("intervals")["n"] ** 0.75 / record("intervals")["n"])
    for part in ("aggregates", "cfpr", "cfnr"):
        table = inside[part]
        estimate = np.array(table["point_est"])
        draws = boot[table["stat"]].to_numpy()
        limits = bootstrap_interval(estimate, draws, "basic")
        compare(section, np.clip(limits.low, 0, 1), table["low_trans"], INTERVAL, part)
        compare(section, np.clip(limits.high, 0, 1), table["high_trans"], INTERVAL, part)
        compare(section, limits.se * scale, table["se_est"], INTERVAL, part)
    expected = figures(analyse(cohort(), GIVEN))
    for name, low, high in zip(
        inside["plotted_stat"], inside["plotted_low"], inside["plotted_high"], strict=True
    ):
        has = not (name.startswith(("fpr", "fnr")) or "marg" in name)
        check(section, (low is not None) == has, f"{name}: interval or not")
        if has:
            limits = bootstrap_interval(
                np.array([expected[name]]), boot[[name]].to_numpy(), "basic"
            )
            compare(section, np.clip(limits.low, 0, 1), [low], INTERVAL, name)
            compare(section, np.clip(limits.high, 0, 1), [high], INTERVAL, name)


@pytest.mark.parametrize("key", ["delta_0.02", "delta_0.05", "delta_0.1"])
def test_u_values(key):
    section = "recorded: u-values"
    delta = float(key.split("_")[1])
    entry = record("intervals")["u_values"][key]
    observed = figures(analyse(cohort(), GIVEN))
    null = draws_as_r(null_result().null_draws)
    names = list(entry["unrounded"])
    share = u_values(np.array([observed[n] for n in names]), null[names].to_numpy(), delta)
    compare(section, share.value, [entry["unrounded"][n] for n in names], 1e-12)
    for name, value in zip(names, share.value, strict=True):
        shown = entry["as_shown_by_get_plots"][name]
        check(section, shown == ("<0.001" if value == 0 else f"{value:g}"), f"{name} as shown")


def test_u_values_of_the_result_take_one_delta_per_statistic():
    """The variance is of the order of a squared rate, so its delta is squared by default."""
    section = "recorded: u-values"
    result = null_result()
    frame = result.u_values(0.05)
    compare(section, frame["delta"], [0.05, 0.05, 0.0025] * 2, 1e-15)
    plain = result.u_values({"average": 0.05, "maximum": 0.05, "variance": 0.05})
    draws = draws_as_r(result.null_draws)
    own = figures(result, as_r=False)
    for row in plain.itertuples():
        name = f"{SUMMARIES[row.statistic]}_{SIGN[row.metric]}"
        compare(section, row.u_value, np.mean(own[name] - draws[name] > 0.05), 1e-12, name)


def test_observed_rates_by_array_function_agree():
    """`estimators.observed_rates` gives the same as the verb."""
    c = analyse(cohort()).cohort
    from cfair.estimators import confusion_counts

    counts = confusion_counts(c.y, c.s, c.groups.codes, c.groups.n_groups)
    rates = observed_rates(counts)
    expected = expected_of(cases("standard")["own_model_cutoff_0.5"])
    order = record("standard")["group_order"]
    for metric in ("fpr", "fnr"):
        values = [expected[f"{metric}_{g}"] for g in order]
        compare("recorded: observed rates", rates[metric], values, COUNT)
