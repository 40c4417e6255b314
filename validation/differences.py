"""Where cfair differs from the R package faircfint on purpose, an example for each difference.

    python validation/differences.py      # ten seconds: the table of README.md, as computed

Each function gives one figure three times: as R gave it (recorded in ``recorded/data``), as
`cfair.faircfint` gives it with ``compat=True``, and as cfair gives it on its own. Its docstring is
the row of the table: what differs; what the original does; what cfair does.
"""

from __future__ import annotations

import inspect
import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import cfair
from cfair.errors import CfairWarning, DataError
from cfair.faircfint import analysis_estimation, ci_norm, ci_tint, get_bs_rescaled, get_plots
from cfair.inference.uvalue import u_values

DATA = Path(__file__).parent / "recorded" / "data"
OWN: dict[str, Any] = {"pi_xvars": ["X1", "X2", "X3", "X4"]}
GIVEN = OWN | {"pi_model": "D ~ A1 * A2 + S_prob + X1 + X2 + X3 + X4"}
SMALL = GIVEN | {
    "estimator_type": "small_internal",
    "outcome_xvars": [f"XO{i}" for i in range(1, 7)],
    "pa_xvars_int": [f"XP{i}" for i in range(1, 6)],
}


class Shown(NamedTuple):
    """A figure as recorded from R, with ``compat=True``, and by cfair; or a word in its place."""

    figure: str
    r: float | str
    compat: float | str
    cfair: float | str


# -- data, records and runs ------------------------------------------------------------------------


def cohort() -> pd.DataFrame:
    return pd.read_csv(DATA / "cohort.csv")


def people() -> pd.DataFrame:
    return pd.read_csv(DATA / "small_groups.csv")


@cache
def record(name: str) -> dict:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def recorded(file: str, case: str, figure: str | None = None) -> float | str:
    """A figure of a case; "stops" where the original gave none but an error."""
    found = record(file)["cases"][case]
    if "defs" not in found:
        assert found["error"]
        return "stops"
    if found.get("nonfinite", {}).get(figure) == "-Inf":
        return -np.inf
    value = found["defs"][figure]
    return np.nan if value is None else value


def run(data: pd.DataFrame, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CfairWarning)
        return analysis_estimation(data, 0.5, **options)


def figure(data: pd.DataFrame, name: str, **options) -> float | str:
    """A figure by its name in R, or "refused"."""
    try:
        return float(run(data, **options).defs[name])
    except DataError:
        return "refused"


def audited(data: pd.DataFrame, metric: str, *, of="A1 A2", group="F & Black", **roles) -> float:
    """A rate from `cfair.Audit`, for what has no word in the R function."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CfairWarning)
        audit = cfair.Audit(
            data, outcome="Y", treatment="D", score="S_prob", cutoff=0.5, groups=of.split(), **roles
        )
        rates = audit.counterfactual("D ~ X1 + X2 + X3 + X4").rates
    return rates.set_index(["metric", "group"]).loc[(metric, group), "estimate"]


def both(data, name: str, file: str, case: str, **options) -> Shown:
    """The recorded figure, and what comes out with and without compat."""
    r = recorded(file, case, name)
    with_r, own = (figure(data, name, compat=c, **options) for c in (True, False))
    return Shown(name, r, with_r, own)


def recoded(zero, one) -> pd.DataFrame:
    """The cohort with another coding of the outcome."""
    values = np.array([zero, one], dtype=object)[cohort()["Y"]]
    return cohort().assign(Y=pd.Series(values).infer_objects())


def with_missing(column: str, rows: str = "rows_X1") -> pd.DataFrame:
    """The cohort without some values of a column, which is new or its own."""
    data = cohort()
    data[column] = data[column].astype(float) if column in data else 1.0
    data.loc[np.array(record("missing_recoded")[rows]) - 1, column] = np.nan
    return data


@cache
def replicated(compat: bool):
    """The cohort with the recorded permutations and subsamples, so that nothing is drawn."""
    permutations = np.load(DATA / "null_permutations.npz")["perm"].astype(int) - 1
    rows = np.load(DATA / "bootstrap_rows.npz")["rows"].astype(int) - 1
    return run(cohort(), compat=compat, permutations=permutations, resamples=rows, seed=1, **GIVEN)


def standard_error(name: str) -> float:
    """That of cfair, from influence functions."""
    metric, group = name.split("_")
    rates = replicated(False).est_choice["counterfactual"].rates
    labels = rates["group"].str.replace(" & ", "")
    return float(rates.loc[(rates["metric"] == metric) & (labels == group), "se"].iloc[0])


def in_replicates(file: str, name: str) -> np.ndarray:
    """A column of the recorded replicates."""
    table = record(file)["table_null" if file == "null" else "table_boot"]
    return np.array(table["rows"], dtype=float)[:, table["columns"].index(name)]


# -- what can be read ------------------------------------------------------------------------------


def other_data_frames() -> Shown:
    """tibble, data.table; only a base data frame gives group rates; any data frame"""
    name, columns = "max_pos", {k: v.to_list() for k, v in cohort().items()}
    try:
        import polars

        table = polars.DataFrame(columns)  # not from pandas: that needs pyarrow as well
    except ImportError:
        absent = "not run: no polars"
        return Shown(name, recorded("input_kinds", "tibble", name), absent, absent)
    return both(table, name, "input_kinds", "tibble", **OWN)


def outcome_factor() -> Shown:
    """outcome a factor 0/1; read as 1 and 2; refused, or read by its labels"""
    data = cohort()
    data["Y"] = pd.Categorical(data["Y"])
    return both(data, "cfpr_FBlack", "missing_recoded", "Y_factor_01", **OWN)


def treatment_factor() -> Shown:
    """treatment a factor 0/1; read as 1 and 2: weights of the treated; refused, or by its labels"""
    data = cohort()
    data["D"] = pd.Categorical(data["D"])
    return both(data, "cfpr_FBlack", "missing_recoded", "D_factor_01", **OWN)


def outcome_minus_1_and_0() -> Shown:
    """outcome -1 / 0; every row becomes an event; the event is named: `outcome_event=0`"""
    data, name = recoded(-1, 0), "cfnr_FBlack"
    r = recorded("missing_recoded", "recoded_Y_minus1_0", name)
    own = audited(data, "cfnr", outcome_event=0)
    return Shown(name, r, figure(data, name, **OWN), own)


def outcome_10_and_2() -> Shown:
    """outcome 10 none, 2 event; the smaller number becomes 0; `outcome_event=2`"""
    data, name = recoded(10, 2), "fpr_FBlack"
    r = recorded("missing_recoded", "recoded_Y_10_2", name)
    return Shown(name, r, figure(data, name, **OWN), audited(data, "fpr", outcome_event=2))


def outcome_text() -> Shown:
    """outcome as text; stops; `outcome_event="yes"`"""
    data, name = recoded("no", "yes"), "cfpr_FBlack"
    r = recorded("missing_recoded", "Y_text_no_yes")
    return Shown(name, r, figure(data, name, **OWN), audited(data, "cfpr", outcome_event="yes"))


def missing_outcome() -> Shown:
    """outcome or treatment missing; counted as a third value; `missing="drop"`, rows counted"""
    data, name = with_missing("Y", "rows_Y"), "cfpr_FBlack"
    r = recorded("missing_recoded", "na_in_Y_only")
    return Shown(name, r, figure(data, name, **OWN), audited(data, "cfpr", missing="drop"))


def missing_covariate() -> Shown:
    """a covariate missing; rows dropped with a warning; refused unless `missing="drop"`"""
    data, name = with_missing("X1"), "cfpr_FBlack"
    r = recorded("missing_recoded", "na_in_X1_own", name)
    try:
        own: float | str = audited(data, "cfpr")
    except DataError:
        own = "refused"
    return Shown(name, r, figure(data, name, **OWN), own)


def missing_unused() -> Shown:
    """a column nobody uses is missing; complete rows of all columns; of the columns in use"""
    case = "na_in_unused_column"
    return both(with_missing("unused"), "cfpr_FWhite", "missing_recoded", case, **OWN)


# -- groups ----------------------------------------------------------------------------------------


def one_attribute() -> Shown:
    """A2 is "0" or "all" in all rows; groups are called "1" whatever it holds; any constant"""
    data, name = cohort().assign(A2="0"), "max_pos"
    return both(data, name, "single_attribute", "A2_constant_0_own", **OWN)


def no_second_attribute() -> Shown:
    """no A2; stops; any number of attributes"""
    data, name = cohort().drop(columns="A2"), "cfpr_F"
    r = recorded("single_attribute", "A2_missing_column")
    own = audited(data, "cfpr", of="A1", group="F")
    return Shown(name, r, figure(data, name, **OWN), own)


def labels_that_collide() -> Shown:
    """a + bc, ab + c; names are pasted labels; labels are tuples"""
    data = cohort()
    data["A1"] = data["A1"].map({"F": "a", "M": "ab"})
    data["A2"] = data["A2"].map({"Black": "bc", "White": "c"})
    r = len(set(record("input_kinds")["cases"]["pasted_labels_collide"]["names"][:4]))
    found = [run(data, compat=c, **OWN).defs.index[:4].nunique() for c in (True, False)]
    return Shown("names of four groups", r, *found)


def numeric_labels() -> Shown:
    """labels 9 and 10; sort as text; as numbers"""
    data = cohort()
    data["A1"] = data["A1"].map({"F": 10, "M": 9})
    return first_label(data, "numeric_labels")


def order_of_levels() -> Shown:
    """levels M, F by the user; thrown away; kept: the order of the Categorical"""
    data = cohort()
    data["A1"] = pd.Categorical(data["A1"], categories=["M", "F"])
    return first_label(data, "factor_level_order")


def first_label(data: pd.DataFrame, case: str) -> Shown:
    names = [next(iter(record("input_kinds")["cases"][case]["defs"]))]
    names += [run(data, compat=c, **OWN).defs.index[0] for c in (True, False)]
    return Shown("first group", *(n.removeprefix("fpr_") for n in names))


# -- summaries -------------------------------------------------------------------------------------


def rate_of_0() -> Shown:
    """a rate of exactly 0 or 1; leaves average, maximum, variance; stays"""
    data = cohort()
    first = (data["A1"] == "F") & (data["A2"] == "Black")
    data.loc[first & (data["D"] == 0) & (data["Y"] == 0), "S_prob"] *= 0.5
    return both(data, "max_pos", "edge_cases", "cfpr_exactly_0", **OWN)


def maximum_of_no_pair() -> Shown:
    """two groups, one without events; -Inf, which is evidence in a u-value; undefined"""
    data = cohort().assign(A2="1")
    data.loc[data["A1"] == "F", "Y"] = 0
    return both(data, "max_neg", "edge_cases", "two_groups_one_without_events", **OWN)


def small_rate_of_0() -> Shown:
    """a small group that is never flagged; its rate of 0 leaves; stays"""
    data = people()
    data.loc[(data["A1"] == 0) & (data["A2"] == 2), "S_prob"] *= 0.5
    return small(data, "max_pos_small", "group_never_flagged")


# -- replicates, intervals, u-values ---------------------------------------------------------------


def null_of_another_model() -> Shown:
    """null replicates; refit main effects of `pi_xvars`; refit the model of the estimate"""
    name = "cfnr_MWhite"
    return Shown(f"mean of {name}", *means_of_replicates("null", "table_null", name))


def bootstrap_of_another_model() -> Shown:
    """bootstrap replicates; refit main effects: centred off the estimate; centred on it"""
    name = "cfnr_FWhite"
    estimate = run(cohort(), **GIVEN).defs[name]
    means = [mean - estimate for mean in means_of_replicates("bootstrap", "boot_out", name)]
    return Shown(f"mean of {name} less the estimate", *means)


def means_of_replicates(file: str, attribute: str, name: str) -> list[float]:
    tables = [getattr(replicated(c), attribute) for c in (True, False)]
    return [in_replicates(file, name).mean(), *(t[name].mean() for t in tables)]


def t_interval() -> Shown:
    """the "t" interval; its standard error cancels: scale of n^0.75 rows; influence functions"""
    name = "cfpr_FBlack"
    table = record("intervals")["intervals"]["alpha_0.05"]
    k = table["parameter"].index(name)
    result = replicated(True)
    scaled = get_bs_rescaled(result.boot_out[[name]], result.defs, 2000, 0.75)
    t = ci_tint(scaled, result.defs, 2000, 0.05, 0.75).loc[name]
    own = get_plots(replicated(False)).intervals.loc[name]
    r = (table["tint_high"][k] - table["tint_low"][k]) / 2
    return Shown(
        f"half-width of {name}", r, (t.high - t.low) / 2, (own.high_trans - own.low_trans) / 2
    )


def normal_interval() -> Shown:
    """normal interval; strata hold Y and S, the wanted errors; influence functions"""
    name = "cfnr_FBlack"
    table = record("intervals")["intervals"]["alpha_0.05"]
    r = table["norm_se_est"][table["parameter"].index(name)]
    result = replicated(True)
    scaled = get_bs_rescaled(result.boot_out[[name]], result.defs, 2000, 0.75)
    compat = ci_norm(scaled, result.defs, 2000, 0.05).loc[name, "se_est"]
    return Shown(f"standard error of {name}", r, compat, standard_error(name))


def observed_rates_in_the_bootstrap() -> Shown:
    """observed rates in the bootstrap; strata hold Y and S: no variation; influence functions"""
    name = "fpr_FBlack"
    r, compat = in_replicates("bootstrap", name).std(ddof=1), replicated(True).boot_out[name].std()
    return Shown(f"standard error of {name}", r, compat, standard_error(name))


def u_value_of_the_variance() -> Shown:
    """u-values; one delta, which a variance hardly reaches; the variance takes its square"""
    name, delta = "var_neg", 0.02
    r = record("intervals")["u_values"][f"delta_{delta}"]["unrounded"][name]
    result = replicated(True)
    compat = get_plots(result, delta=delta).u_values.loc[name, "u_value"]
    # the same replicates, so that nothing but delta differs
    own = u_values(result.defs[[name]].to_numpy(), result.table_null[[name]].to_numpy(), delta**2)
    return Shown(f"u-value of {name}, delta {delta}", r, compat, own.value[0])


# -- small groups ----------------------------------------------------------------------------------


def small(data: pd.DataFrame, name: str, case: str) -> Shown:
    """A recorded case of small groups, in the recorded folds; any folds if it stopped."""
    folds = record("small_edge_cases")["cases"][case].get("membership_folds")
    folds = np.arange(len(data)) % 5 if folds is None else np.array(folds)
    options = SMALL | {"pi_model": None, "folds": folds}
    return both(data, name, "small_edge_cases", case, **options)


def pasted_labels_sort_otherwise() -> Shown:
    """a label begins another; membership matched by position in another order; matched by label"""
    data = people()
    data["A1"] = data["A1"].map({0: "a", 1: "ab"})
    data["A2"] = data["A2"].map({0: "b", 1: "c", 2: "d"})
    return small(data, "cfnr_small_abb", "pasted_labels_sort_otherwise")


def first_attribute_constant() -> Shown:
    """A1 constant, A2 of two levels; one column of membership for both groups; estimated"""
    data = people()
    data = data[data["A2"].isin([0, 1])].reset_index(drop=True)
    return small(data.assign(A1="1"), "cfnr_small_10", "A1_constant")


def combination_without_rows() -> Shown:
    """a combination without rows; stops; undefined, the others estimated"""
    data = people()
    data = data[(data["A1"] != 0) | (data["A2"] != 2)].reset_index(drop=True)
    return small(data, "cfnr_small_00", "combination_absent")


def constant_covariate() -> Shown:
    """a membership covariate is constant; stops; left out, with a note"""
    return small(people().assign(XP5=1.0), "cfnr_small_02", "constant_membership_covariate")


def membership_sums() -> Shown:
    """membership probabilities; cut, not brought back to a sum of 1; brought back"""
    case = record("small_internal")
    folds = np.array(case["membership_folds"])
    sums = [
        run(people(), folds=folds, compat=c, **SMALL).est_choice["membership"].sum(axis=1).mean()
        for c in (True, False)
    ]
    return Shown("mean sum", sum(case["membership"]["column_means"]), *sums)


def borrowed(metric: str) -> Shown:
    case = record("small_borrow")["cases"]["brier" if metric == "brier" else "auc"]
    options = SMALL | {"estimator_type": "small_borrow", "borrow_metric": metric}
    options |= {"data_external": pd.read_csv(DATA / "external.csv")}
    options |= {"pa_xvars_ext": SMALL["pa_xvars_int"][:4]}
    folds = np.array(case["membership_folds"])
    alphas = [run(people(), folds=folds, compat=c, **options).alpha for c in (True, False)]
    return Shown("alpha", case["alpha"], *alphas)


def external_scaling() -> Shown:
    """external model; covariates scaled in fitting, not in prediction; one scaling"""
    return borrowed("brier")


def borrowing_by_auc() -> Shown:
    """alpha by AUC, a step function; one search from 0 to 1; best of a grid, improved upon"""
    return borrowed("auc")


ROWS = (
    other_data_frames, outcome_factor, treatment_factor, outcome_minus_1_and_0, outcome_10_and_2,
    outcome_text, missing_outcome, missing_covariate, missing_unused, one_attribute,
    no_second_attribute, labels_that_collide, numeric_labels, order_of_levels, rate_of_0,
    maximum_of_no_pair, null_of_another_model, bootstrap_of_another_model, t_interval,
    normal_interval, observed_rates_in_the_bootstrap, u_value_of_the_variance, external_scaling,
    borrowing_by_auc, membership_sums, pasted_labels_sort_otherwise, first_attribute_constant,
    combination_without_rows, constant_covariate, small_rate_of_0,
)  # fmt: skip


def as_text(value: float | str) -> str:
    if isinstance(value, str):
        return value
    if np.isinf(value):
        return "-Inf"
    return "NaN" if np.isnan(value) else f"{value:.5g}" if value > 0.99999 else f"{value:.3f}"


def table() -> list[str]:
    """The table as it stands in README.md."""
    lines = [
        "| what | in R | in cfair | figure | R | `compat=True` | cfair | function |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        name, *values = row()
        cells = [c.strip() for c in inspect.getdoc(row).split(";")]
        assert len(cells) == 3, row.__name__
        lines.append(
            f"| {' | '.join(cells)} | {name} | {' | '.join(map(as_text, values))} "
            f"| `{row.__name__}` |"
        )
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
