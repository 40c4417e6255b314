"""Numbers that must not depend on the order of rows, on names, on the index, or on workers."""

from __future__ import annotations

from functools import cache

import bad_inputs
import numpy as np
import pandas as pd
import pytest

import cfair

pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")

STATISTICS = ["average", "maximum", "variance"]
# every term that may go into a propensity: smooth, discrete, with and without attributes
FORMULAS = [
    "d ~ age + s",
    "d ~ sex * race + age + s",
    "d ~ sex * age + race + s",
    "d ~ visits",
    "d ~ sex * race",
    "d ~ C(visits) + sex",
    "0.5",
]
SEXES = {"F": "zeta", "M": "alpha"}
RACES = {"Black": "m", "Other": "z", "White": "a"}


def table(n=400, seed=2):
    t = bad_inputs.cohort(n, seed)
    rng = np.random.default_rng(seed)
    t["age"] = (t["age"] - 60) / 10
    t["visits"] = rng.integers(0, 3, n)
    t["site"] = rng.integers(0, 30, n)
    t["half"] = 0.5
    return t


def audit(t, groups=("sex", "race"), **options):
    return cfair.Audit(
        t, outcome="y", score="s", cutoff=0.5, groups=list(groups), treatment="d", **options
    )


def analyse(t, formula=FORMULAS[1], groups=("sex", "race"), cluster=None, **options):
    options = {"n_boot": 60, "n_perm": 60, "seed": 1, **options}
    a = audit(t, groups, cluster=cluster)
    return a.counterfactual("half" if formula == "0.5" else formula, **options)


def numbers(result, key=str):
    """Every number of a result in a dict, its groups keyed by `key` of their labels."""
    groups = result.cohort.groups
    name = {n: key(label) for n, label in zip(groups.names, groups.labels, strict=True)}
    found = {}
    rates = result.rates
    columns = [c for c in ("n", "events", "estimate", "se", "ci_low", "ci_high", "denominator",
                           "n_effective", "boot_se", "boot_low", "boot_high") if c in rates]  # fmt: skip  # noqa: E501
    for row in rates.to_dict("records"):
        for c in columns:
            found["rate", row["metric"], name[row["group"]], c] = row[c]
    for row in result.marginals.to_dict("records"):
        # a level is keyed as the set of its groups
        at = groups.attributes.index(row["attribute"])
        members = sorted(key(label) for label in groups.labels if label[at] == row["level"])
        for c in columns:
            found["margin", row["metric"], str(members), c] = row[c]
    for frame, keys in (
        (result.disparities, ["metric", "statistic"]),
        (result.test_equal(), ["metric"]),
    ):
        values = frame.set_index(keys).select_dtypes("number")
        for k, row in values.iterrows():
            for c in values:
                found["summary", str(k), c] = row[c]
    for row in result.contrasts(adjust="holm").to_dict("records"):
        a, b = name[row["group"]], name[row["reference"]]
        limits = (row["ci_low"], row["ci_high"]) if a < b else (-row["ci_high"], -row["ci_low"])
        for c, v in zip(
            ("low", "high", "p", "q"), (*limits, row["p_value"], row["p_adjusted"]), strict=True
        ):
            found["contrast", row["metric"], min(a, b), max(a, b), c] = v
    for kind in ("null_draws", "boot_draws"):
        draws = getattr(result, kind, pd.DataFrame())
        for column in draws:
            if column[1] in name or column[1] in STATISTICS:
                label = name.get(column[1], column[1])
                for r, v in enumerate(draws[column]):
                    found[kind, column[0], label, r] = v
    return found


def same(a, b, tolerance=1e-10):
    assert a.keys() == b.keys()
    one, other = (np.array([x[k] for k in a], dtype=float) for x in (a, b))
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= tolerance * np.maximum(1, np.abs(one))
    near |= np.isnan(one) & np.isnan(other)
    wrong = {k: (a[k], b[k]) for k, fine in zip(a, near, strict=True) if not fine}
    kinds = sorted({k[0] for k in wrong})
    assert not wrong, f"{len(wrong)} of {len(a)} differ, in {kinds}: {list(wrong.items())[:3]}"


@cache
def base(formula, key=str):
    """The numbers of the plain table."""
    return numbers(analysed(formula), key)


@cache
def analysed(formula):
    return analyse(table(), formula)


def shuffled(t, seed=7):
    return t.iloc[np.random.default_rng(seed).permutation(len(t))]


@pytest.mark.parametrize("formula", FORMULAS)
def test_the_order_of_rows_changes_no_number(formula):
    t = table()
    same(base(formula), numbers(analyse(shuffled(t), formula)))


@pytest.mark.parametrize("formula", FORMULAS[:4])
@pytest.mark.parametrize("kind", ["cluster", "faircfint"])
def test_the_order_of_rows_changes_no_number_of_other_bootstraps(formula, kind):
    t = table()
    options = {"bootstrap": kind, "n_perm": None, "cluster": "site" if kind == "cluster" else None}
    a, b = analyse(t, formula, **options), analyse(shuffled(t), formula, **options)
    same(numbers(a), numbers(b))


@pytest.mark.parametrize("formula", FORMULAS[:3])
def test_the_order_of_rows_changes_no_number_under_truncation(formula):
    t = table()
    options = {"truncation": (0.35, 0.45)}
    same(numbers(analyse(t, formula, **options)), numbers(analyse(shuffled(t), formula, **options)))


@pytest.mark.parametrize("formula", FORMULAS[:3])
def test_the_order_of_rows_changes_nothing_in_larger_data(formula):
    t = table(5000)
    a, b = (analyse(x, formula, n_boot=30, n_perm=30) for x in (t, shuffled(t)))
    same(numbers(a), numbers(b), tolerance=1e-7)  # single precision in the one-pass bootstrap


def renamed(t):
    return t.assign(sex=t["sex"].map(SEXES), race=t["race"].map(RACES))


def old_label(label):
    back = {v: k for k, v in {**SEXES, **RACES}.items()}
    return str(tuple(sorted(back[x] for x in label)))


def sorted_label(label):
    return str(tuple(sorted(label)))


@pytest.mark.parametrize("formula", FORMULAS)
def test_the_names_of_groups_change_no_number(formula):
    t = table()
    other = analyse(renamed(t), formula)
    same(base(formula, sorted_label), numbers(other, old_label), tolerance=1e-9)


@pytest.mark.parametrize("formula", FORMULAS[:3])
def test_the_order_of_attributes_and_levels_changes_no_number(formula):
    t = table()
    swapped = analyse(t, formula, groups=("race", "sex"))
    same(base(formula, sorted_label), numbers(swapped, sorted_label), tolerance=1e-9)
    ordered = t.assign(race=pd.Categorical(t["race"], ["White", "Other", "Black"], ordered=True))
    same(base(formula), numbers(analyse(ordered, formula)), tolerance=1e-9)


INDEXES = {
    "gaps": lambda n: np.arange(n) * 7 + 3,
    "backwards": lambda n: np.arange(n)[::-1],
    "duplicates": lambda n: np.arange(n) // 2,
    "all alike": lambda n: np.zeros(n, int),
    "text": lambda n: [f"p{i}" for i in range(n)],
    "dates": lambda n: pd.date_range("2020", periods=n),
    "two levels": lambda n: pd.MultiIndex.from_arrays([np.arange(n) % 5, np.arange(n)]),
}


@pytest.mark.parametrize("index", INDEXES)
def test_the_index_changes_no_number(index):
    t = table()
    odd = t.set_axis(INDEXES[index](len(t)), axis=0)
    same(base(FORMULAS[1]), numbers(analyse(odd)), tolerance=0)


@pytest.mark.parametrize("n_jobs", [2, -1, None])
@pytest.mark.parametrize("formula", FORMULAS[:3])
def test_workers_change_no_number(n_jobs, formula):
    t = table()
    same(base(formula), numbers(analyse(t, formula, n_jobs=n_jobs)))


@pytest.mark.parametrize("kind", ["group", "cluster", "faircfint"])
def test_workers_change_no_number_of_any_bootstrap(kind):
    t = table()
    options = {"bootstrap": kind, "cluster": "site", "n_perm": None}
    a, b = analyse(t, **options), analyse(t, n_jobs=2, **options)
    pd.testing.assert_frame_equal(a.boot_draws, b.boot_draws, check_exact=False, atol=1e-12)


def test_columns_that_are_not_used_change_no_number():
    t = table()
    more = t.assign(z=np.nan, w="x", when=pd.Timestamp("2020"))[
        [*t.columns[::-1], "z", "w", "when"]
    ]
    same(base(FORMULAS[1]), numbers(analyse(more)))


def observed_numbers(result, key=str):
    class View:
        cohort, rates, marginals = result.cohort, result.rates, result.marginals
        disparities, test_equal, contrasts = result.disparities, result.test_equal, result.contrasts

    return numbers(View, key)


@pytest.mark.parametrize("cluster", [None, "site"])
def test_observed_rates_depend_on_none_of_these(cluster):
    t = table()
    first = audit(t, cluster=cluster).observed()
    expected = observed_numbers(first)
    same(observed_numbers(audit(shuffled(t), cluster=cluster).observed()), expected)
    odd = t.set_axis(INDEXES["duplicates"](len(t)), axis=0)
    same(observed_numbers(audit(odd, cluster=cluster).observed()), expected)
    swapped = audit(t, ("race", "sex"), cluster=cluster).observed()
    expected = observed_numbers(first, sorted_label)
    same(observed_numbers(swapped, sorted_label), expected, tolerance=1e-9)
    new = audit(renamed(t), cluster=cluster).observed()
    same(observed_numbers(new, old_label), expected, tolerance=1e-9)
