"""`cfair.faircfint` against the original as it runs, on random data and fed its own draws.

The original is the R package faircfint where it is installed, and always `plain.R`, the published
estimators written down by us. With the recorded seeds `plain.R` draws the same numbers as the
package did and gives the figures that it gave: so it stands in for it, and that is tested first.

Tolerances. With fits to the maximum 1e-10, and 1e-9 for small groups in replicates, which cfair
fits together and to within 1e-10. As R fits by default, ``glm`` stops at a relative change of 1e-8:
1e-8 for all figures by weighting. ``multinom`` stops at 1e-8 too, or after 100 steps, up to 2e-4
short in a coefficient, where cfair goes to the maximum: 5e-5 for small groups, and 5e-4 in
replicates, which have fewer rows. The share of the external model follows, and is allowed 1e-4. By
AUC it is the maximum of a step function; the test says what is compared. The package and `plain.R`
stopping early have the same tolerances.
"""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from cfair import faircfint
from cfair.errors import CfairWarning
from validation.ledger import check, compare
from validation.live_original.conftest import IMPLEMENTATIONS
from validation.live_original.original import Original, Run, decode

pytestmark = pytest.mark.r
RECORDED = Path(__file__).parent.parent / "recorded" / "data"

# -- data -----------------------------------------------------------------------------------------

SHAPES = [
    (["F", "M"], ["1"]),
    (["F", "M"], ["old", "young"]),
    ([7, 8, 10], ["1"]),  # sort as text: 10, 7, 8
    (["a", "b"], [0, 1]),
    (["F", "M"], ["u", "v", "w"]),
    (["a", "b", "c", "d", "e"], ["1"]),
    (["x", "y", "z"], ["F", "M"]),
]
CUTOFFS = [0.5, 0.35, 0.6, 0.45]
PROPENSITIES: list[dict[str, Any]] = [
    {"pi_xvars": ["X1", "X2", "place"]},
    {"pi_xvars": ["A1", "S_prob", "X1", "place"]},
    {"pi_xvars": ["X1", "X3"], "pi_model": "D ~ A1 * S_prob + X1 + place"},
]
SMALL = {
    "outcome_xvars": ["X1", "X3", "place"],
    "outcome_model_type": "glm",
    "pa_xvars_int": ["P1", "P2", "place"],
    "fit_method_int": "multinomial",
    "nfolds": 5,
}


def draw(seed: int, n: int | None = None, shape: int | None = None) -> pd.DataFrame:
    """A cohort of two to six groups, with numeric and text covariates."""
    rng = np.random.default_rng(seed)
    first, second = SHAPES[seed % len(SHAPES) if shape is None else shape]
    n = int(rng.integers(400, 2000)) if n is None else n
    a1 = rng.choice(len(first), n, p=rng.dirichlet(np.full(len(first), 12.0)))
    a2 = rng.choice(len(second), n, p=rng.dirichlet(np.full(len(second), 12.0)))
    data = covariates(rng, a1, a2)
    score = expit(0.8 * data["X1"] - 0.4 * data["X2"] + 0.3 * a1 + rng.normal(size=n))
    d = rng.random(n) < expit(-0.8 + score + 0.4 * data["X1"] - 0.3 * a2)
    late = -0.5 + 2 * (score - 0.5) - 0.7 * d + 0.3 * data["X3"] + 0.2 * (data["place"] == "town")
    labels = {"A1": np.array(first)[a1], "A2": np.array(second)[a2]}
    if seed % len(PROPENSITIES) == 2:  # a user's own glm would take numbers as numbers
        labels = {name: values.astype(str) for name, values in labels.items()}
    return data.assign(
        **labels, Y=(rng.random(n) < expit(late)).astype(int), D=d.astype(int), S_prob=score
    )


def covariates(rng: np.random.Generator, a1: np.ndarray, a2: np.ndarray) -> pd.DataFrame:
    n = len(a1)
    return pd.DataFrame(
        {
            "X1": rng.normal(size=n),
            "X2": rng.exponential(size=n),
            "X3": rng.integers(0, 3, n),
            "P1": 0.5 * a1 + rng.normal(size=n),
            "P2": 3 + 2 * (rng.normal(size=n) - 0.4 * a2),
            "place": rng.choice(["village", "town", "city"], n),
        }
    )


def outside(seed: int, shape: int | None = None) -> pd.DataFrame:
    """External data with the same groups in other shares."""
    rng = np.random.default_rng(1000 + seed)
    first, second = SHAPES[seed % len(SHAPES) if shape is None else shape]
    n = int(rng.integers(500, 1500))
    a1, a2 = rng.integers(0, len(first), n), rng.integers(0, len(second), n)
    data = covariates(rng, a1, a2)[["P1", "place"]]
    return data.assign(A1=np.array(first)[a1], A2=np.array(second)[a2])


def options_of(seed: int, kind: str, shape: int | None = None, **more) -> dict[str, Any]:
    """The arguments of both, which differ by seed."""
    options = {"cutoff": CUTOFFS[seed % len(CUTOFFS)], "estimator_type": kind, "gen_null": False}
    options |= PROPENSITIES[seed % len(PROPENSITIES)]
    if kind != "standard":
        options |= SMALL
    if kind == "small_borrow":
        options |= {"data_external": outside(seed, shape), "pa_xvars_ext": ["P1", "place"]}
        options |= {"fit_method_ext": "multinomial", "borrow_metric": "brier"}
    return options | more


# -- comparisons ----------------------------------------------------------------------------------

BOUNDARY = "exactly 0 or 1"


def both(original: Original, data: pd.DataFrame, options: dict[str, Any], seed: int = 1):
    """The original's run, cfair's result with the same draws, and what cfair warned of."""
    run = original.run(data, options, seed)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        result = faircfint.analysis_estimation(
            data, **options, **decode(run.calls, data, options), compat=True
        )
    said = [str(w.message) for w in heard if issubclass(w.category, CfairWarning)]
    calm = not any(BOUNDARY in text for text in said)
    check(f"{original.name}: warnings", calm or len(run.said) > 0, "R has cause to warn as well")
    return run, result, said


def same_figures(original: Original, run: Run, result) -> None:
    assert result.defs.index.tolist() == run.defs.index.tolist()
    small = run.defs.index.str.contains("_small")
    section = f"{original.name}: "
    kind = result.estimator_type
    found, expected = result.defs.to_numpy(), run.defs.to_numpy()
    compare(f"{section}{kind}, by weighting", found[~small], expected[~small], original.weighting)
    if kind == "standard":
        assert run.alpha is None or np.isnan(run.alpha)
        return
    compare(f"{section}{kind}, small groups", found[small], expected[small], original.small)
    if kind == "small_borrow":
        compare(f"{section}{kind}, alpha", result.alpha, run.alpha, original.alpha)


def same_table(original: Original, what: str, found: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert found.columns.tolist() == expected.columns.tolist()
    for name in expected:
        allowed = original.replicate if "_small" in name else original.weighting
        kind = "small groups" if "_small" in name else "by weighting"
        compare(f"{original.name}: {what}, {kind}", found[name], expected[name], allowed, name)


# -- plain R stands for the package ----------------------------------------------------------------

X = ["X1", "X2", "X3", "X4"]
GIVEN = {"cutoff": 0.5, "pi_model": "D ~ A1 * A2 + S_prob + X1 + X2 + X3 + X4", "pi_xvars": X}
NULL, BOOT = {"gen_null": True}, {"gen_null": False, "bootstrap": "rescaled", "m_factor": 0.75}
#: By file: the seed, the replicates asked for, and where they were recorded.
SEEDS: dict[str, list[tuple[int, dict[str, Any], str]]] = {
    "null": [(20260101, NULL | {"R_null": 50}, "table_null")],
    "bootstrap": [(20260102, BOOT | {"B": 50}, "table_boot")],
    "small_internal": [(20260103, {"gen_null": False}, "")],
    "small_borrow": [(20260104, {"gen_null": False}, "")],
    "small_internal_inference": [
        (20260105, NULL | {"R_null": 10}, "table_null"),
        (20260106, BOOT | {"B": 10}, "table_boot"),
    ],
    "small_borrow_inference": [
        (20260105, NULL | {"R_null": 10}, "table_null"),
        (20260106, BOOT | {"B": 10}, "table_boot"),
    ],
}


def recorded_run(file: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The data and the arguments of a recorded run."""
    if not file.startswith("small"):
        return pd.read_csv(RECORDED / "cohort.csv"), GIVEN | {"estimator_type": "standard"}
    as_text = {"A1": str, "A2": str}
    data = pd.read_csv(RECORDED / "small_groups.csv", dtype=as_text)
    options = GIVEN | {
        "estimator_type": "_".join(file.split("_")[:2]),
        "outcome_xvars": [f"XO{i}" for i in range(1, 7)],
        "pa_xvars_int": [f"XP{i}" for i in range(1, 6)],
        "nfolds": 5,
    }
    if "borrow" in file:
        external = pd.read_csv(RECORDED / "external.csv", dtype=as_text)
        options |= {"data_external": external, "pa_xvars_ext": options["pa_xvars_int"][:4]}
    return data, options


def filled(values) -> np.ndarray:
    return np.array(values, dtype=float)  # None becomes NaN


@pytest.mark.parametrize(
    ("file", "seed", "more", "key"), [(f, *call) for f, calls in SEEDS.items() for call in calls]
)
def test_plain_r_with_the_recorded_seeds(plain, file, seed, more, key):
    """The same random numbers, and the same figures, as the package."""
    section = "R, plain, stopping early: recorded seeds"
    data, options = recorded_run(file)
    record = json.loads((RECORDED / f"{file}.json").read_text(encoding="utf-8"))
    case = record["cases"]["brier"] if file == "small_borrow" else record
    run = plain.run(data, options | more, seed)
    drawn = decode(run.calls, data, options | more)
    # the search for alpha goes to 1.5e-8 only
    allowed = 1e-7 if "borrow" in file else 1e-10
    if not (key == "table_boot" and "small" in file):  # folds of the null's run were recorded
        estimates = case.get("defs", case.get("observed_defs"))
        assert run.defs.index.tolist() == list(estimates)
        compare(f"{section}, figures", run.defs, list(estimates.values()), allowed)
        if "borrow" in file:
            alpha = case["alpha" if "alpha" in case else "alpha_observed"]
            compare(f"{section}, figures", run.alpha, alpha, allowed)
        if "small" in file:
            folds = case["membership_folds" if "membership_folds" in case else "observed_folds"]
            compare(f"{section}, draws", drawn["folds"], folds, 0)
    if not key:
        return
    table = run.table_null if key == "table_null" else run.boot_out
    assert table.columns.tolist() == case[key]["columns"]
    found = table.replace(-np.inf, np.nan)  # recorded as missing
    compare(f"{section}, replicates", found, filled(case[key]["rows"]), allowed)
    for name, values in recorded_draws(file).items():
        if name in drawn:
            compare(f"{section}, draws", np.array(drawn[name]), values, 0, name)


def recorded_draws(file: str) -> dict[str, np.ndarray]:
    """What the package drew, by the names of cfair's arguments; rows from 0."""
    files = {"null": "null_permutations", "bootstrap": "bootstrap_rows"}
    arrays = np.load(RECORDED / f"{files.get(file, file.replace('inference', 'draws'))}.npz")
    names = {"perm": "permutations", "rows": "resamples"}
    return {names.get(n, n): arrays[n].astype(int) - (n in names) for n in arrays.files}


def test_draws_in_another_order_are_not_decoded(plain):
    """The decoder goes by the sizes of draws, and by their number."""
    data = draw(3, 400)
    options = options_of(3, "small_internal", gen_null=True, R_null=1)
    calls = plain.run(data, options).calls
    decode(calls, data, options)
    for wrong in (calls[1:], calls[::-1], calls[:-1], [*calls, calls[-1]]):
        with pytest.raises(AssertionError, match="draw"):
            decode(wrong, data, options)


# -- estimates ------------------------------------------------------------------------------------

KINDS = ("standard", "small_internal", "small_borrow")
ESTIMATES = [
    (name, seed, kind)
    for name in IMPLEMENTATIONS
    for seed in range(7 if "early" in name else 20)
    for kind in KINDS
    # the original stops where two groups are to borrow
    if kind != "small_borrow" or seed % len(SHAPES)
]


@pytest.mark.parametrize(("original", "seed", "kind"), ESTIMATES, indirect=["original"])
def test_estimates(original, seed, kind):
    run, result, _ = both(original, draw(seed), options_of(seed, kind))
    same_figures(original, run, result)


# -- replicates -----------------------------------------------------------------------------------


REPLICATES = [
    *((seed, "standard") for seed in (31, 32, 33)),
    (35, "small_internal"),
    (38, "small_borrow"),
]


@pytest.mark.parametrize(("seed", "kind"), REPLICATES)
def test_replicates(original, seed, kind):
    """The original's permutations, subsamples and folds are fed in."""
    shape = (1, 3)[seed % 2]
    size = 20 if kind == "standard" else 4
    options = options_of(
        seed, kind, shape, gen_null=True, R_null=size, bootstrap="rescaled", B=size, m_factor=0.75
    )
    run, result, _ = both(original, draw(seed, 1600, shape), options, seed)
    same_figures(original, run, result)
    same_table(original, "null", result.table_null, run.table_null)
    same_table(original, "bootstrap", result.boot_out, run.boot_out)


# -- the share of the external model by AUC --------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 11])
def test_borrowing_by_auc(original, seed):
    """The AUC is flat between steps, and where searches meet equal values rounding decides.

    So the maxima are compared, by R's AUC, and alpha only where the fits are exact.
    """
    options = options_of(seed, "small_borrow", borrow_metric="auc")
    run, result, _ = both(original, draw(seed), options)
    rows, r = result.est_choice, original.r
    inside, outer = rows["membership_internal"], rows["membership_external"]
    r.put("group", result.cohort.groups.codes)
    reached = []
    for p in (rows["membership"], run.alpha * outer + (1 - run.alpha) * inside):
        r.put("p", p.to_numpy())
        reached.append(r("plain$hand_till(p, factor(group))")[0])
    section = f"{original.name}: borrowing by AUC"
    compare(section, *reached, 1e-5 if original.exact else 5e-4)
    if original.exact:
        compare(f"{section}, alpha", result.alpha, run.alpha, 1e-4)


# -- intervals and u-values ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "kind", "alpha", "delta"),
    [(41, "standard", 0.05, 0.02), (43, "small_internal", 0.2, 0.01)],
)
def test_intervals_and_u_values(original, seed, kind, alpha, delta):
    """Computed in R from the original's tables."""
    r, n = original.r, 600
    options = options_of(seed, kind, 3, bootstrap="rescaled", B=40, m_factor=0.8)
    options |= {"gen_null": True, "R_null": 20 if kind == "standard" else 4}
    if kind != "standard":
        options["nfolds"] = 2
    run, result, _ = both(original, draw(seed, n, 3), options, seed)
    rates = [name for name in run.defs.index if name.startswith(("cfpr", "cfnr"))]
    summaries = [name for name in run.defs.index if name[:3] in ("avg", "max", "var")]
    names = [*rates, *summaries]
    r.put("n", [n])
    r.run(f"names <- c({', '.join(map(repr, names))})")
    r.run("boot <- data.matrix(as.data.frame(output(value, 'boot_out'), optional = TRUE))")
    r.run("null <- data.matrix(as.data.frame(output(value, 'table_null'), optional = TRUE))")
    expected = r(f"plain$intervals(defs[names], boot, n, 0.8, {alpha})")
    columns = ["se_est", "norm low", "norm high", "low", "high", "low_trunc", "high_trunc"]
    expected = pd.DataFrame(expected, names, columns)
    scaled = faircfint.get_bs_rescaled(result.boot_out[names], result.defs, n, 0.8)
    normal = faircfint.ci_norm(scaled, result.defs, n, alpha)
    t = faircfint.ci_trunc(faircfint.ci_tint(scaled, result.defs, n, alpha, 0.8))
    plots = faircfint.get_plots(result, n, alpha, 0.8, delta)
    for name in names:
        small = "_small" in name
        allowed = original.replicate if small else original.weighting
        section = f"{original.name}: intervals, {'small groups' if small else 'by weighting'}"
        limits = expected.loc[name]
        found = [*normal.loc[name, ["se_est", "low", "high"]], *t.loc[name, columns[3:]]]
        compare(section, found, limits, allowed, name)
        if "marg" not in name:
            found = plots.intervals.loc[name, ["se_est", "low_trans", "high_trans"]]
            compare(section, found, limits[["se_est", "low_trunc", "high_trunc"]], allowed, name)
    u = r(f"plain$u_values(defs[c({', '.join(map(repr, summaries))})], null, {delta})")
    section = f"{original.name}: u-values"
    by_weighting = [i for i, name in enumerate(summaries) if original.exact or "small" not in name]
    found = plots.u_values.loc[summaries, "u_value"].to_numpy()
    compare(section, found[by_weighting], u[by_weighting], 1e-12)


# -- warnings -------------------------------------------------------------------------------------


def warned(original: Original, run: Run, said: list[str], pattern: str) -> None:
    section = f"{original.name}: warnings"
    check(section, len(run.said) > 0, "R warns")
    check(section, any(re.search(pattern, text) for text in said), pattern)


def test_rows_with_missing_values(original):
    """Dropped with a warning, whatever column lacks a value."""
    data = draw(51, 700, 3).assign(unused=1.0)
    data.loc[[3, 50, 400], "X1"] = np.nan
    data.loc[[50, 51], "unused"] = np.nan
    for kind in ("standard", "small_internal"):
        run, result, said = both(original, data, options_of(51, kind))
        same_figures(original, run, result)
        warned(original, run, said, "^data: 4 of 700 rows dropped")


def test_external_rows_with_missing_values(original):
    options = options_of(52, "small_borrow", 4)
    options["data_external"].loc[[0, 7], "P1"] = np.nan
    run, result, said = both(original, draw(52, 900, 4), options)
    same_figures(original, run, result)
    warned(original, run, said, "^data_external: 2 of .* rows dropped")


@pytest.mark.parametrize("kind", ["standard", "small_internal"])
@pytest.mark.parametrize(("score", "rate"), [(0.0, 0), (1.0, 1)])
def test_a_group_never_or_always_called(original, kind, score, rate):
    data = draw(53, 900, 4)
    data.loc[(data["A1"] == "F") & (data["A2"] == "u"), "S_prob"] = score
    run, result, said = both(original, data, options_of(53, kind))
    same_figures(original, run, result)
    assert run.defs["cfpr_Fu"] == rate == 1 - run.defs["cfnr_Fu"]
    for metric in ("observed FPR", "observed FNR", "cFPR", "cFNR"):
        warned(original, run, said, rf"^{metric} is {BOUNDARY}")
    if kind == "small_internal":
        of = "cFPR" if rate == 0 else "cFNR"
        warned(original, run, said, f"^{of} of small groups is {BOUNDARY}")


@pytest.mark.parametrize("kind", ["standard", "small_internal"])
def test_rates_of_0_in_replicates_only(original, kind):
    options = options_of(54, kind, 3, bootstrap="rescaled", B=6, m_factor=0.75) | {"cutoff": 0.85}
    run, result, said = both(original, draw(54, 900, 3), options)
    same_figures(original, run, result)
    assert not run.defs.isin([0, 1]).any()
    assert run.boot_out.filter(like="cfpr").isin([0, 1]).to_numpy().any()
    same_table(original, "bootstrap", result.boot_out, run.boot_out)
    warned(original, run, said, f"^bootstrap: .* {BOUNDARY}")


def test_other_codings_of_outcome_and_treatment(original):
    """The smaller of two numbers is none."""
    data = draw(55, 800, 3)
    options = options_of(55, "standard")
    coded = data.assign(Y=data["Y"] + 1, D=8 - 5 * (1 - data["D"]))
    with_codes, result, said = both(original, coded, options)
    same_figures(original, with_codes, result)
    compare(f"{original.name}: codings", with_codes.defs, original.run(data, options).defs, 0)
    check(f"{original.name}: warnings", any("counts as 0" in text for text in said), "codings")
