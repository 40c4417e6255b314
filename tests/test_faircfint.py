"""`cfair.faircfint`: the R package's arguments, names and habits, and cfair's own way beside them.

All recorded runs of the package are compared in the validation suite; here are a few of them, plain
formulas, and what the module says and refuses.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cfair
from cfair import faircfint
from cfair.errors import CfairWarning, DataError
from cfair.faircfint import analysis_estimation, get_pa_ext_small, get_plots, parity
from cfair.faircfint.intervals import u_table
from cfair.faircfint.reading import collation_key, r_texts
from cfair.faircfint.results import summaries
from cfair.inference.drawing import faircfint_folds
from cfair.inference.rows import Rows
from tests import plain

mpl.use("Agg")
DATA = Path(__file__).parent / "data"
X = ["X1", "X2"]
SMALL = {"pi_xvars": X, "outcome_xvars": ["X1"], "pa_xvars_int": ["X2"]}


@contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CfairWarning)
        yield


def table(n=600, seed=1, **columns):
    """A cohort in which groups, treatment and outcome hang together."""
    rng = np.random.default_rng(seed)
    a1, a2 = rng.integers(0, 2, n), (rng.random(n) < 0.4).astype(int)
    x1, x2 = rng.normal(size=n) + 0.3 * a1, rng.normal(size=n) - 0.4 * a2
    score = 1 / (1 + np.exp(-(0.6 * x1 + 0.4 * a2 + 0.3 * rng.normal(size=n))))
    d = (rng.random(n) < 1 / (1 + np.exp(-(0.5 * x1 + 0.5 * x2 + score - 0.6)))).astype(int)
    y = (rng.random(n) < 1 / (1 + np.exp(-(x1 + 0.5 * x2 - 0.8 * d)))).astype(int)
    frame = pd.DataFrame(
        {
            "A1": np.array(["F", "M"])[a1],
            "A2": np.array(["x", "y"])[a2],
            "Y": y,
            "D": d,
            "S_prob": score.round(4),
            "X1": x1.round(4),
            "X2": x2.round(4),
        }
    )
    return frame.assign(**columns)


def run(data=None, *args, **options):
    """An analysis that may say what it wants."""
    with quiet():
        given = {"pi_xvars": X, **options}
        return analysis_estimation(table() if data is None else data, *(args or (0.5,)), **given)


def heard(data, **options):
    """An analysis, and what it warned of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = analysis_estimation(data, 0.5, **{"pi_xvars": X, **options})
    assert all(Path(w.filename).name == Path(__file__).name for w in said)
    return result, [str(w.message) for w in said]


# -- against plain formulas -----------------------------------------------------------------------


def plain_figures(data, xvars=X, cutoff=0.5):
    """All standard figures by name: loops over rows and pairs."""
    design = np.column_stack([np.ones(len(data)), data[xvars].to_numpy(float)])
    y, d = data["Y"].to_numpy(), data["D"].to_numpy()
    s = (data["S_prob"] >= cutoff).astype(int).to_numpy()
    pi = plain.propensity(design, d)
    found = {}
    names = [a + b for a in sorted(set(data["A1"])) for b in sorted(set(data["A2"]))]
    label = (data["A1"].astype(str) + data["A2"].astype(str)).to_numpy()
    nobody = np.zeros(len(data))
    for name in names:
        member = label == name
        found[f"fpr_{name}"], found[f"fnr_{name}"] = plain.ipw(y, s, nobody, nobody, member)
        found[f"cfpr_{name}"], found[f"cfnr_{name}"] = plain.ipw(y, s, d, pi, member)
    for a in ("A1", "A2"):
        for level in sorted(set(data[a])):
            both = plain.ipw(y, s, d, pi, (data[a] == level).to_numpy())
            for metric, value in zip(("cfpr", "cfnr"), both, strict=True):
                found[f"{metric}_marg_{a}_{level}"] = value
    for metric, sign in (("cfnr", "neg"), ("cfpr", "pos")):
        three = plain.disparities([found[f"{metric}_{n}"] for n in names], drop_boundary=True)
        for short, value in zip(("avg", "max", "var"), three, strict=True):
            found[f"{short}_{sign}"] = value
    return found


def agree(found, expected, tolerance=1e-9):
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=tolerance, nan_ok=True), name


def test_standard_figures_are_the_plain_formulas():
    data = table()
    result = run(data)
    agree(result.defs, plain_figures(data))
    kinds = [name.split("_")[0] for name in result.defs.index]
    assert kinds == (
        ["fpr"] * 4 + ["fnr"] * 4 + ["cfpr"] * 4 + ["cfnr"] * 4 + ["cfpr"] * 4 + ["cfnr"] * 4
        + ["avg", "max", "var"] * 2
    )  # fmt: skip
    assert result.defs.index[-6:].tolist() == [
        "avg_neg", "max_neg", "var_neg", "avg_pos", "max_pos", "var_pos",
    ]  # fmt: skip


def test_null_replicates_permute_pairs_of_labels_and_refit_main_effects():
    data = table(300)
    permutations = np.array([np.random.default_rng(k).permutation(300) for k in range(3)])
    xvars = ["A1", "X1"]
    result = run(data, pi_model="D ~ A1 * A2 + X1", pi_xvars=xvars, permutations=permutations)
    assert result.table_null.columns.tolist() == result.defs.index.tolist()
    for r, rows in enumerate(permutations):
        moved = data.assign(A1=data["A1"].to_numpy()[rows], A2=data["A2"].to_numpy()[rows])
        numeric = moved.assign(man=(moved["A1"] == "M").astype(float))
        agree(result.table_null.loc[r], plain_figures(numeric, ["man", "X1"]), 1e-8)


def test_bootstrap_replicates_refit_on_the_drawn_rows():
    data = table(400)
    resamples = [np.random.default_rng(k).choice(400, 150, replace=False) for k in range(3)]
    result = run(data, pi_model="D ~ A1 + S_prob", resamples=resamples)
    for b, rows in enumerate(resamples):
        agree(result.boot_out.loc[b], plain_figures(data.iloc[rows]), 1e-8)


def test_own_replicates_are_drawn_as_asked_for_and_depend_on_the_seed_alone():
    data = table(500)
    options = {"gen_null": True, "R_null": 30, "bootstrap": "rescaled", "B": 30, "seed": 7}
    one = run(data, **options)
    assert len(one.table_null) == len(one.boot_out) == 30
    assert one.boot_out.filter(regex="^fpr").std().max() < 1e-12  # strata hold outcome and call
    shuffled = data.sample(frac=1, random_state=3)
    for other in (run(shuffled, **options), run(data, n_jobs=2, **options)):
        pd.testing.assert_frame_equal(one.table_null, other.table_null, atol=1e-9, rtol=0)
        pd.testing.assert_frame_equal(one.boot_out, other.boot_out, atol=1e-9, rtol=0)
    assert not one.table_null.equals(run(data, **{**options, "seed": 8}).table_null)
    unseeded = run(data)
    assert unseeded.seed != run(data).seed


@pytest.mark.parametrize("m_factor", [0.6, 0.75, 0.9])
def test_size_of_the_subsamples(m_factor, monkeypatch):
    drawn = []
    keep = parity.subsamples

    def spy(*args):
        drawn.extend(keep(*args))
        return drawn

    monkeypatch.setattr(parity, "subsamples", spy)
    data = table(500)
    run(data, bootstrap="rescaled", B=4, m_factor=m_factor, seed=1)
    m = int(500**m_factor)
    s = (data["S_prob"] >= 0.5).astype(int)
    sizes = data.groupby(["A1", "A2", "Y", s]).size()
    for rows in drawn:
        assert len(set(rows.tolist())) == len(rows)
        taken = data.iloc[rows].groupby(["A1", "A2", "Y", s.iloc[rows]]).size()
        expected = np.rint(sizes * (m / 500)).astype(int)
        assert taken.reindex(sizes.index, fill_value=0).tolist() == expected.tolist()


# -- recorded runs of the R package ---------------------------------------------------------------


def recorded_small(kind, **options):
    case = json.loads((DATA / "small_subgroups.json").read_text())[kind]
    result = run(
        pd.read_csv(DATA / "small_groups.csv.gz"),
        0.5,
        f"small_{kind}",
        pi_model="D ~ A1 * A2 + S_prob + X1 + X2 + X3 + X4",
        pi_xvars=["X1", "X2", "X3", "X4"],
        outcome_xvars=[f"XO{i}" for i in range(1, 7)],
        pa_xvars_int=[f"XP{i}" for i in range(1, 6)],
        folds=case["folds"],
        **options,
    )
    return result, case


def test_small_groups_as_recorded():
    result, case = recorded_small("internal")
    agree(result.defs, {k: v for k, v in case["rates"].items() if k in result.defs}, 1e-7)
    assert sum(name in result.defs for name in case["rates"]) >= 12
    assert result.alpha is None


def test_borrowing_as_recorded_from_the_data_or_a_fitted_model():
    outside = pd.read_csv(DATA / "small_external.csv.gz")
    xvars = [f"XP{i}" for i in range(1, 5)]
    result, case = recorded_small("borrow", data_external=outside, pa_xvars_ext=xvars)
    agree(result.defs, {k: v for k, v in case["rates"].items() if k in result.defs}, 5e-5)
    assert result.alpha == pytest.approx(case["alpha"], abs=2e-6)
    model = get_pa_ext_small(outside, "multinomial", xvars)
    fitted, _ = recorded_small("borrow", pa_model_ext=model)
    pd.testing.assert_series_equal(result.defs, fitted.defs)
    assert "External membership model: multinomial ~ XP1" in repr(model)
    assert len(model._design.matrix) == 0  # it does not carry the data along


# -- habits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["B", "b", "A", "a"], "a A b B"),
        ([10, 9, 100], "10 100 9"),
        (["a", "_a", "1a", "a-b", "ab", "a b"], "_a 1a a a b a-b ab"),
        (["é", "f", "e", "E"], "e E é f"),
        ([True, False], "FALSE TRUE"),
        (["x10", "X1", "x9"], "X1 x10 x9"),
    ],
)
def test_labels_sort_as_text_in_rs_order(words, expected):
    from cfair.faircfint.reading import as_r_factor

    assert " ".join(as_r_factor(pd.Series(words)).cat.categories) == expected


@given(st.lists(st.text(max_size=4), min_size=1, max_size=8))
def test_the_order_of_labels_is_a_total_order(words):
    keys = [collation_key(word) for word in words]
    turned = keys[::-1]
    assert sorted(keys) == sorted(turned)
    assert all((a == b) == (collation_key(a) == collation_key(b)) for a in words for b in words)


def test_a_users_order_of_levels_is_thrown_away_only_with_compat():
    data = table()
    data["A1"] = pd.Categorical(data["A1"], categories=["M", "F"])
    assert run(data).defs.index[0] == "fpr_Fx"
    assert run(data, compat=False).defs.index[0] == "fpr_Mx"


def test_one_attribute_is_beside_a_constant_1():
    result = run(table(A2=1))
    assert result.defs.index[:2].tolist() == ["fpr_F1", "fpr_M1"]
    assert np.isnan(result.defs["var_pos"])  # of one pair
    with pytest.raises(DataError, match="A2 is 'all' in all rows"):
        run(table(A2="all"))
    other = run(table(A2="all"), compat=False)
    assert other.defs["max_pos"] == pytest.approx(result.defs["max_pos"])
    alone = run(table().drop(columns="A2"), compat=False)
    assert alone.defs.index[0] == "fpr_F"


def test_rows_with_any_missing_value_go_with_a_warning():
    data = table(unused=1.0)
    data.loc[:9, "unused"] = np.nan
    with pytest.warns(CfairWarning, match=r"10 of 600 rows dropped.*unused \(10 rows\)"):
        result = analysis_estimation(data, 0.5, pi_xvars=X)
    agree(result.defs, plain_figures(data.iloc[10:]))
    assert "600 rows, 590 used (10 dropped: unused missing (10))" in str(result)
    assert result.cohort.rows.tolist() == list(range(10, 600))
    assert result.est_choice["propensity"].index.tolist() == list(range(10, 600))
    assert run(data, compat=False).cohort.n_used == 600
    data.loc[20:24, "X1"] = np.nan
    own, said = heard(data, compat=False)
    assert own.cohort.n_used == 595
    assert any("5 dropped: X1 missing" in text for text in said)


def test_given_probabilities_belong_to_the_rows_of_the_table():
    data = table()
    pi = np.linspace(0.2, 0.8, 600)
    complete = run(data, pi_model=pi)
    data.loc[0, "X1"] = np.nan
    fewer = run(data, pi_model=pi)
    assert fewer.est_choice["propensity"].tolist() == complete.est_choice["propensity"][1:].tolist()


def test_the_smaller_value_counts_as_0():
    data = table()
    with pytest.warns(CfairWarning, match="Y: 1 counts as 0 and 2 as 1"):
        result = analysis_estimation(data.assign(Y=data["Y"] + 1), 0.5, pi_xvars=X)
    agree(result.defs, plain_figures(data))
    assert any("the smaller value" in note for note in result.notes)
    logical = analysis_estimation(data.assign(Y=data["Y"] == 1, D=data["D"] == 1), 0.5, pi_xvars=X)
    pd.testing.assert_series_equal(result.defs, logical.defs)


def test_a_coding_is_never_guessed_without_compat():
    data = table()
    for coded in (data["Y"] + 1, data["Y"].map({0: "no", 1: "yes"})):
        with pytest.raises(DataError, match="never guesses which value is the event"):
            run(data.assign(Y=coded), compat=False)
    logical = data.assign(Y=data["Y"] == 1)
    agree(run(logical, compat=False).defs, run(data, compat=False).defs)


def test_rows_without_external_covariates_are_refused_only_if_they_are_used():
    data = table(X3=table()["X2"])
    data.loc[:4, "X3"] = np.nan
    options = {"data_external": outside().assign(X3=1.0 * outside()["X2"]), "pa_xvars_ext": ["X3"]}
    given = {"compat": False, "seed": 1, **SMALL, **options}
    with pytest.raises(DataError, match="external probabilities are missing"):
        run(data, 0.5, "small_borrow", **given)
    data.loc[:4, "X1"] = np.nan  # now these rows go
    assert run(data, 0.5, "small_borrow", **given).cohort.n_used == 595


def test_a_score_beyond_0_and_1_is_cut_all_the_same():
    data = table()
    logit = data.assign(S_prob=np.log(data["S_prob"] / (1 - data["S_prob"])))
    with pytest.warns(CfairWarning, match="no probabilities"):
        result = analysis_estimation(logit, 0.0, pi_xvars=X)
    agree(result.defs, plain_figures(data))
    with pytest.raises(DataError, match="must lie in"):
        run(logit, 0.0, compat=False)


def test_rates_of_0_and_1_leave_the_summaries_with_compat():
    data = table()
    first = (data["A1"] == "F") & (data["A2"] == "x") & (data["Y"] == 0)
    data.loc[first & (data["S_prob"] >= 0.5), "S_prob"] = 0.4
    result, said = heard(data)
    assert any("cFPR is exactly 0 or 1 in Fx (0); the summaries" in text for text in said)
    agree(result.defs, plain_figures(data))
    own = run(data, compat=False)
    rates = own.defs[[f"cfpr_{g}" for g in ("Fx", "Fy", "Mx", "My")]]
    assert own.defs["max_pos"] == pytest.approx(rates.max())
    assert own.defs["max_pos"] > result.defs["max_pos"] + 0.05


@pytest.mark.parametrize("compat", [True, False])
@pytest.mark.parametrize("cutoff", [np.nan, None, "0.5", True])
def test_a_cutoff_is_a_number(cutoff, compat):
    with pytest.raises(DataError, match="cutoff must be a number"):
        run(table(), cutoff, compat=compat)


@pytest.mark.parametrize(("cutoff", "call"), [(50, 0), (-0.1, 1)])
def test_a_cutoff_beyond_all_scores_is_what_is_wrong(cutoff, call):
    with pytest.warns(CfairWarning) as said:
        result = analysis_estimation(table(), cutoff, pi_xvars=X)
    texts = [str(w.message) for w in said]
    wanted = f"the cutoff {cutoff:g} is outside [0, 1], and S_prob runs from"
    assert any(t.startswith(wanted) and f"S = {call} in all rows" in t for t in texts)
    assert not any("no probabilities" in t for t in texts)
    assert (result.cohort.s == call).all()
    with pytest.raises(DataError, match="cutoff must be a number in"):
        run(table(), cutoff, compat=False)


def test_replicates_say_which_rates_are_0_or_1():
    data = table()
    data.loc[(data["A1"] == "F") & (data["Y"] == 0), "S_prob"] = 0.4  # cFPR 0 in Fx and Fy
    result, said = heard(data, gen_null=True, R_null=3, bootstrap="rescaled", B=5, seed=1)
    wanted = (
        "bootstrap: in 5 of 5 replicates a counterfactual rate is exactly 0 or 1, and the "
        "summaries leave it out (compat=True): cFPR of Fx (5), cFPR of Fy (5), cFNR of My (1)"
    )
    assert result.boot_out.filter(regex="^cf.r_(?!marg)").eq(0).sum().sum() == 5 + 5 + 1
    assert wanted in result.notes
    assert f"{wanted}." in said
    assert not any(note.startswith("null: in") for note in result.notes)


finite = st.one_of(st.floats(0.01, 0.99), st.sampled_from([0.0, 1.0, np.nan]))


@given(st.lists(finite, min_size=1, max_size=5))
@settings(max_examples=200)
def test_summaries_by_pairs(rates):
    """All pairs, as the R package forms them."""
    kept = [r for r in rates if r not in (0.0, 1.0)]
    pairs = [abs(a - b) for i, a in enumerate(kept) for b in kept[i + 1 :]]
    defined = [p for p in pairs if not np.isnan(p)]
    expected = [
        np.mean(defined) if defined else np.nan,
        max(defined) if defined else -np.inf if pairs else np.nan,
        np.var(defined, ddof=1) if len(defined) > 1 else np.nan,
    ]
    found = [float(x[0]) for x in summaries(np.array([rates]), compat=True)]
    for value, wanted in zip(found, expected, strict=True):
        if np.isinf(wanted):
            assert value == wanted
        else:
            assert value == pytest.approx(wanted, abs=1e-9, nan_ok=True)
    small = [float(x[0]) for x in summaries(np.array([rates]), compat=True, small=True)]
    broken = np.isnan(rates).any()
    wanted = [np.nan] * 3 if broken or not pairs else found
    np.testing.assert_allclose(small, wanted, atol=1e-12)


def test_a_maximum_of_no_pair_counts_as_evidence():
    """Minus infinity in a replicate: the observed value exceeds it by any delta."""
    from cfair.faircfint.intervals import u_table

    names = [f"{s}_{k}" for k in ("neg", "pos") for s in ("avg", "max", "var")]
    defs = pd.Series(0.3, names)
    null = pd.DataFrame(0.25, range(4), names)
    null.loc[0, "max_pos"], null.loc[1, "max_pos"] = -np.inf, np.nan
    u = u_table(defs, null, 0.1, as_r=True)
    assert u.loc["max_pos", "u_value"] == pytest.approx(1 / 3)
    assert u.loc["max_neg", "shown"] == "<0.001"
    assert u_table(defs, null, 0.1, as_r=False).loc["max_neg", "shown"] == "0"


@given(st.integers(2, 4), st.integers(0, 5))
@settings(max_examples=30)
def test_folds_start_anew_in_each_group(n_folds, seed):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, 40)
    zero = np.zeros(40, int)
    at = Rows(zero, zero, zero, group, 3).canonical(rng.random(40), by_group=True)
    drawn = np.sort(rng.choice(40, 25, replace=False))
    for rows in (np.arange(40), drawn):
        folds = faircfint_folds(group, n_folds, at, rng, rows)
        for g in range(3):
            counts = np.bincount(folds[rows][group[rows] == g], minlength=n_folds)
            assert (np.diff(counts) <= 0).all()
            assert counts[0] - counts[-1] <= 1


# -- small groups, both ways ----------------------------------------------------------------------


def outside(seed=5):
    return table(800, seed).drop(columns=["Y", "D", "S_prob"])


@pytest.mark.parametrize("kind", ["small_internal", "small_borrow"])
@pytest.mark.parametrize("compat", [True, False])
def test_small_estimators_run_with_replicates(kind, compat):
    options = {"gen_null": True, "R_null": 4, "bootstrap": "rescaled", "B": 4, "seed": 3}
    if kind == "small_borrow":
        options |= {"data_external": outside(), "pa_xvars_ext": ["X2"]}
    result = run(None, 0.5, kind, compat=compat, **SMALL, **options)
    assert result.defs.index[-6:].tolist() == [
        "avg_neg_small", "max_neg_small", "var_neg_small",
        "avg_pos_small", "max_pos_small", "var_pos_small",
    ]  # fmt: skip
    for replicates in (result.table_null, result.boot_out):
        assert replicates.shape == (4, len(result.defs))
        assert np.isfinite(replicates.filter(like="cfnr_small_")).all(axis=None)
    rows = result.est_choice
    total = rows["membership"].sum(axis=1)
    assert total.between(0.99, 1.01).all()
    assert set(rows["folds"]) == {1, 2, 3, 4, 5}
    if kind == "small_borrow":
        assert 0 <= result.alpha <= 1
        assert len(rows["alpha_null"]) == len(rows["alpha_boot"]) == 4
        mix = result.alpha * rows["membership_external"]
        mix = mix + (1 - result.alpha) * rows["membership_internal"]
        np.testing.assert_allclose(mix, rows["membership"], atol=1e-12)
    again = run(
        table().sample(frac=1, random_state=2), 0.5, kind, compat=compat, **SMALL, **options
    )
    pd.testing.assert_series_equal(result.defs, again.defs, atol=1e-9, rtol=0)
    pd.testing.assert_frame_equal(result.boot_out, again.boot_out, atol=1e-8, rtol=0)
    pd.testing.assert_frame_equal(result.table_null, again.table_null, atol=1e-8, rtol=0)


def test_without_compat_it_is_the_audit():
    data = table()
    audit = cfair.Audit(
        data, outcome="Y", treatment="D", score="S_prob", cutoff=0.5, groups=["A1", "A2"]
    )
    formula = "D ~ A1 * A2 + S_prob + X1 + X2"
    with quiet():
        own = audit.counterfactual(formula, n_perm=20, n_boot=45, seed=4)
        small = audit.small_subgroups(
            "D ~ X1 + X2", outcome_model="~ X1", membership="~ X2", n_boot=0, seed=4,
            external=outside(), external_membership="~ X2",
        )  # fmt: skip
    options = {"gen_null": True, "R_null": 20, "bootstrap": "rescaled", "B": 45, "seed": 4}
    result = run(data, pi_model=formula, compat=False, **options)
    for _, row in own.rates.iterrows():
        assert result.defs[f"{row['metric']}_{row['A1']}{row['A2']}"] == row["estimate"]
    assert result.table_null["max_pos"].tolist() == own.null_draws["cfpr", "maximum"].tolist()
    assert result.boot_out["var_neg"].tolist() == own.boot_draws["cfnr", "variance"].tolist()
    borrowed = run(
        data, 0.5, "small_borrow", compat=False, seed=4, data_external=outside(),
        pa_xvars_ext=["X2"], **SMALL,
    )  # fmt: skip
    assert borrowed.alpha == pytest.approx(small.alpha, abs=1e-9)
    rates = small.rates[small.rates["metric"] == "cfnr"]["estimate"]
    np.testing.assert_allclose(borrowed.defs.filter(like="cfnr_small_"), rates, atol=1e-9)


def test_external_covariates_are_scaled_in_fitting_only_with_compat():
    external = outside().assign(X2=lambda x: 5 + 3 * x["X2"])
    inside = table().assign(X2=lambda x: 5 + 3 * x["X2"])
    model = get_pa_ext_small(external, pa_xvars_ext=["X2"])
    groups = run(inside).cohort.groups
    right = model.probabilities(inside, groups, compat=False)
    wrong = model.probabilities(inside, groups, compat=True)
    scaled = (inside["X2"] - external["X2"].mean()) / external["X2"].std()
    np.testing.assert_allclose(
        right, model.probabilities(inside.assign(X2=scaled), groups, compat=True), atol=1e-12
    )
    assert np.abs(right - wrong).max() > 0.05


def natural(frame):
    return frame.assign(X2=60 + 10 * frame["X2"])


def scaled_outside(frame):
    own = natural(outside())["X2"]
    return frame.assign(X2=(frame["X2"] - own.mean()) / own.std())


@pytest.mark.parametrize(
    ("inside", "external", "warned"),
    [
        (natural(table()), natural(outside()), True),
        (scaled_outside(natural(table())), scaled_outside(natural(outside())), False),
        (scaled_outside(natural(table())), natural(outside()), False),  # right in R as it is
        (table(), outside(), False),
        # people of another kind, in units that are right
        (table(X2=table()["X2"] + 2), scaled_outside(natural(outside())), False),
    ],
)
def test_external_covariates_in_units_of_their_own_are_warned_of(inside, external, warned):
    options = {"estimator_type": "small_borrow", **SMALL, "seed": 1}
    options |= {"data_external": external, "pa_xvars_ext": ["X2"]}
    result, said = heard(inside, **options)
    wanted = [text for text in said if "external covariates go unscaled" in text]
    assert bool(wanted) == warned
    assert any("external covariates go" in note for note in result.notes) == warned
    own, said = heard(inside, compat=False, **options)
    assert not any("unscaled" in text for text in [*said, *own.notes])
    if warned:
        x, out = inside["X2"], external["X2"]
        shown = f"X2 {x.mean():.3g} and {x.std():.3g} (outside {out.mean():.3g}, {out.std():.3g})"
        assert shown in wanted[0]
        assert "compat=False" in wanted[0]


def test_the_same_seed_draws_other_folds_once_a_covariate_is_rescaled():
    """As the docstring of `seed` has it: rows are shuffled by what they hold."""
    options = {"estimator_type": "small_internal", **SMALL, "seed": 1}
    folds = [run(d, **options).est_choice["folds"] for d in (table(), natural(table()))]
    assert (folds[0] != folds[1]).any()


def test_networks_of_scikit_learn():
    pytest.importorskip("sklearn")
    networks = {"outcome_model_type": "neural_net", "fit_method_int": "neural_net"}
    options = {"nfolds": 2, "seed": 1, **SMALL}
    data = table(200)
    result = run(data, 0.5, "small_internal", **networks, **options)
    plain_models = run(data, 0.5, "small_internal", **options)
    small = result.defs.filter(like="cfnr_small_")
    assert np.isfinite(small).all()
    gap = np.abs(small - plain_models.defs.filter(like="cfnr_small_")).max()
    assert 0 < gap < 0.15
    borrowed = run(
        data, 0.5, "small_borrow", data_external=outside(), pa_xvars_ext=["X2"],
        fit_method_ext="neural_net", **options,
    )  # fmt: skip
    assert 0 <= borrowed.alpha <= 1
    np.testing.assert_allclose(borrowed.est_choice["membership_external"].sum(axis=1), 1, atol=0.02)


def test_a_forest_is_out_of_fold_and_only_without_compat(monkeypatch):
    sklearn = pytest.importorskip("sklearn.ensemble")
    small_forest = sklearn.RandomForestClassifier

    def few(n_estimators, **options):
        return small_forest(n_estimators=min(n_estimators, 20), **options)

    monkeypatch.setattr(sklearn, "RandomForestClassifier", few)
    with pytest.raises(DataError, match="accepts it and then stops"):
        run(pi_model_type="rf")
    result = run(pi_model_type="rf", pi_model_seed=3, compat=False)
    assert "RandomForestClassifier" in str(result)
    with pytest.raises(DataError, match="outcome_model_type"):
        run(None, 0.5, "small_internal", outcome_model_type="rf", **SMALL)


# -- what is refused ------------------------------------------------------------------------------


def renamed(first, second):
    data = table()
    return data.assign(A1=data["A1"].map(dict(zip("FM", first, strict=True))),
                       A2=data["A2"].map(dict(zip("xy", second, strict=True))))  # fmt: skip


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (table().drop(columns=["A2", "Y"]), {}, "data lacks 'A2', 'Y'"),
        (table(), {"pi_xvars": ["X1", "X9"]}, r"data lacks 'X9' \(pi_xvars\)"),
        (table(), {"pi_xvars": None}, "pi_xvars must name"),
        (table(), {"pi_xvars": None, "pi_model": "D ~ X1", "gen_null": True}, "whatever pi_model"),
        (table(Y=np.where(table()["Y"] == 1, 0, -1)), {}, "coded -1 and 0"),
        (table(Y=table()["Y"].astype(str)), {}, "Y is text"),
        (table(D=table()["D"].astype("category")), {}, "D is a Categorical"),
        (table(Y=np.arange(600) % 3), {}, "exactly two values, but has 3"),
        (table(Y=table()["Y"].where(table().index > 4)), {}, "Y is missing in 5 of 600 rows"),
        (table(), {"bootstrap": "rescaled", "m_factor": 1}, "one row of each stratum"),
        (table(), {"bootstrap": "rescaled", "m_factor": 0.01}, "leaves none in any stratum"),
        (table(), {"pi_model_type": "rf"}, "accepts it and then stops"),
        (table(X3=np.nan), {}, "every row lacks a value"),
        (table(), {"pi_model": "Y ~ A1 * A2 + X1"}, "left side of the formula is 'Y'"),
        (table(), {"pi_model": "Y ~ A1 * A2 + X1", "compat": False}, "left side .* is 'Y'"),
        (renamed(["a", "ab"], ["bc", "c"]), {"bootstrap": "rescaled"}, "takes them for one"),
    ],
)  # fmt: skip
def test_refused(data, options, message):
    with pytest.raises(DataError, match=message):
        run(data, **options)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (renamed(["a", "ab"], ["bc", "c"]), {}, "the same pasted label"),
        (renamed(["a", "ab"], ["b", "c"]), {}, "sort otherwise"),
        (table().query("A1 == 'F' or A2 == 'x'"), {}, "no row is in My"),
        (table(A1="1"), {}, "A1 has one level and A2 two"),
        (table(), {"nfolds": 1}, "nfolds must be"),
        (table(), {"folds": [1, 2]}, "folds has 2 values, but the table has 600 rows"),
        (table(), {"outcome_xvars": None}, "outcome_xvars must name"),
        (table(), {"estimator_type": "small_borrow"}, "needs data_external="),
        (
            table(),
            {"estimator_type": "small_borrow", "pa_model_ext": "fitted"},
            "what get_pa_ext_small gives",
        ),
        (
            table(),
            {"estimator_type": "small_borrow", "pa_xvars_ext": ["X2"],
             "data_external": outside().query("A1 == 'F'")},
            "lacks M & x, M & y",
        ),
        (
            table(),
            {"estimator_type": "small_borrow", "pa_xvars_ext": ["X2"],
             "data_external": outside().assign(X2=1.0)},
            "is constant",
        ),
        (
            table(),
            {"permutations": np.arange(600)[None], "null_folds": [[1, 2]]},
            "null_folds must hold 1 replicates",
        ),
    ],
)  # fmt: skip
def test_refused_for_small_groups(data, options, message):
    given = {"estimator_type": "small_internal", **SMALL, **options}
    with pytest.raises(DataError, match=message):
        run(data, 0.5, **given)


def test_labels_that_paste_alike_are_no_trouble_without_compat():
    data = renamed(["a", "ab"], ["bc", "c"])
    own = run(data, compat=False, bootstrap="rescaled", B=3)
    assert own.defs.index[:4].tolist() == [
        "fpr_a & bc", "fpr_a & c", "fpr_ab & bc", "fpr_ab & c",
    ]  # fmt: skip
    as_r = run(data)
    assert as_r.defs.index[:4].tolist() == ["fpr_abc", "fpr_ac", "fpr_abbc", "fpr_abc"]
    assert get_plots(as_r).cfpr is not None
    with pytest.raises(DataError, match="the same name"):
        faircfint.get_bs_rescaled(as_r.defs.to_frame().T, as_r.defs, 600)


@pytest.mark.parametrize(
    "options",
    [
        {"estimator_type": "small"}, {"bootstrap": True}, {"compat": "yes"},
        {"borrow_metric": "f1"}, {"R_null": -1, "gen_null": True}, {"seed": -1},
        {"gen_null": "FALSE"}, {"gen_null": "TRUE"}, {"gen_null": (True, False)}, {"progress": 1},
        {"gen_null": True, "R_null": 0}, {"gen_null": True, "R_null": None},
        {"bootstrap": "rescaled", "B": 0}, {"bootstrap": "rescaled", "B": None},
    ],
)  # fmt: skip
def test_options_that_are_not_allowed(options):
    with pytest.raises(ValueError, match="must be"):
        run(**options)


# -- results, intervals, figures ------------------------------------------------------------------


def test_the_printed_result():
    result = run(pi_model="D ~ A1 + X1", gen_null=True, R_null=3, seed=11)
    text = str(result)
    assert text.startswith("faircfint: standard estimator, compat True")
    for part in ("propensity   D ~ A1 + X1", "null         3 replicates", "seed         11",
                 "A1: F", "|difference|", "replicates refit D ~ X1 + X2"):  # fmt: skip
        assert part in " ".join(text.split("\n             ")), part
    assert max(map(len, text.split("\n"))) <= 100
    assert "compat False" in str(run(compat=False))
    assert "<div" in result._repr_html_()
    assert repr(result) == text


def test_results_survive_a_pickle_and_leave_the_data_alone():
    data = table()
    before = data.copy()
    result = run(data, bootstrap="rescaled", B=2, seed=1)
    pd.testing.assert_frame_equal(data, before)
    again = pickle.loads(pickle.dumps(result))
    pd.testing.assert_series_equal(again.defs, result.defs)
    assert str(again) == str(result)


def replicated(compat=True, **options):
    given = {"gen_null": True, "R_null": 45, "bootstrap": "rescaled", "B": 45, "seed": 2}
    return run(None, compat=compat, **given, **options)


def test_intervals_are_basic_and_normal_intervals_on_their_scales():
    result = replicated()
    boot, defs, n = result.boot_out, result.defs, 600
    m = n**0.75
    scaled = faircfint.get_bs_rescaled(boot, defs, n)
    np.testing.assert_allclose(scaled, np.sqrt(m) * (boot - defs))
    t = faircfint.ci_trunc(faircfint.ci_tint(scaled, defs, n, alpha=0.1))
    low, high = np.quantile(boot["max_pos"], [0.05, 0.95])
    assert t.loc["max_pos", "low"] == pytest.approx(2 * defs["max_pos"] - high)
    assert t.loc["max_pos", "high"] == pytest.approx(2 * defs["max_pos"] - low)
    assert t.loc["max_pos", "low_trunc"] == max(0, t.loc["max_pos", "low"])
    normal = faircfint.ci_norm(scaled, defs, n, alpha=0.1)
    se = boot["cfnr_Fx"].std() * np.sqrt(m / n)
    assert normal.loc["cfnr_Fx", "se_est"] == pytest.approx(se)
    assert normal.loc["cfnr_Fx", "high"] == pytest.approx(defs["cfnr_Fx"] + 1.6448536269514722 * se)
    assert np.isnan(t.loc["fpr_Fx", "low"])  # all replicates are equal
    for wrong in ({"sampsize": 0.5}, {"sampsize": 600, "m_factor": 1.2}):
        with pytest.raises(DataError):
            faircfint.get_bs_rescaled(boot, defs, **wrong)


@pytest.mark.parametrize("value", [0.1 + 0.2, 1 / 3, 0.25, 0.0, 1e-9])
@pytest.mark.parametrize("estimate", [0.18, 0.3, 0.0])
def test_equal_replicates_give_no_interval(value, estimate):
    """Their standard deviation is 0 in R, and 1e-17 where a mean is rounded."""
    defs = pd.Series({"x": estimate})
    wobbling = value * (1 + 1e-15 * np.arange(50))
    for draws in ([value] * 50, wobbling):
        scaled = faircfint.get_bs_rescaled(pd.DataFrame({"x": draws}), defs, 1500)
        for table_ in (
            faircfint.ci_tint(scaled, defs, 1500),
            faircfint.ci_norm(scaled, defs, 1500),
        ):
            assert table_[["low", "high"]].isna().all(axis=None)
            assert table_.loc["x", "note"] == "all 50 replicates are equal"
        assert table_.loc["x", ["se_est", "var_est"]].tolist() == [0, 0]
    varied = pd.DataFrame({"x": value + 1e-6 * np.arange(50)})
    scaled = faircfint.get_bs_rescaled(varied, defs, 1500)
    found = faircfint.ci_tint(scaled, defs, 1500)
    assert found.loc["x", "high"] - found.loc["x", "low"] == pytest.approx(
        1e-6 * 49 * 0.95, rel=1e-6
    )
    assert found.loc["x", "note"] == ""


def below(figure):
    """The text below a figure; matplotlib has `get_supxlabel` since 3.8."""
    return figure._supxlabel.get_text() if figure._supxlabel else ""


def test_a_figure_without_an_interval_says_why():
    result = replicated()
    boot = result.boot_out.copy()
    boot["cfpr_Fx"], boot.loc[:9, "cfpr_My"], boot["avg_pos"] = 0.1 + 0.2, np.nan, 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error", CfairWarning)
        plots = get_plots(replace(result, boot_out=boot), sampsize=600)
    notes = plots.intervals["note"]
    assert notes["cfpr_Fx"] == notes["avg_pos"] == "all 45 replicates are equal"
    assert notes["cfpr_My"] == "defined in 35 of 45 replicates, an interval takes 40"
    assert notes["fpr_Fx"] == notes["cfpr_marg_A1_F"] == "the R package gives none"
    assert (plots.intervals["low_trans"].isna() == (notes != "")).all()
    under = below(plots.cfpr).replace("\n", " ")
    assert "No interval (all 45 replicates are equal): cFPR of Group Fx." in under
    assert "No interval (defined in 35 of 45 replicates, an interval takes 40)" in under
    assert below(plots.cfpr_unlabeled) == below(plots.cfpr)
    assert "average difference in cFPR" in below(plots.metrics_pos)
    assert "Fx" not in below(plots.cfnr)
    plots.cfpr.draw_without_rendering()
    foot = plots.cfpr._supxlabel.get_window_extent()
    legend = plots.cfpr.axes[0].get_legend().get_window_extent()
    assert 0 <= foot.y0 < foot.y1 <= legend.y0
    assert foot.x1 <= plots.cfpr.bbox.x1


def test_an_interval_beside_its_estimate_says_that_rs_is_centred_elsewhere():
    result = replicated()
    boot = result.boot_out.copy()
    boot["cfnr_My"] = result.defs["cfnr_My"] - 0.1 - 0.001 * np.arange(45)
    plots = get_plots(replace(result, boot_out=boot))
    row = plots.intervals.loc["cfnr_My"]
    assert row["point_est"] < row["low_trans"]
    under = below(plots.cfnr).replace("\n", " ")
    assert "Beside its interval: cFNR of Group My. R's intervals are the replicates" in under
    assert "compat=False" in under
    assert "cFNR of Group My" in repr(plots)
    assert "can lie beside it (compat=False" in " ".join(str(result).split())
    assert "Beside" not in below(plots.cfpr)


@pytest.mark.parametrize("kind", ["standard", "small_internal"])
@pytest.mark.parametrize("compat", [True, False])
def test_too_few_replicates_for_an_interval_are_said(kind, compat):
    options = {"bootstrap": "rescaled", "B": 20, "seed": 1, "compat": compat, **SMALL}
    result, said = heard(table(), estimator_type=kind, **options)
    wanted = "no intervals from the bootstrap: 20 replicates, an interval takes at least 40"
    takes = compat or kind != "standard"  # else they are from influence functions
    assert any(wanted in text for text in said) == takes
    assert any(wanted in note for note in result.notes) == takes
    if not takes:
        return
    plots = get_plots(result)
    lacking = plots.intervals["low_trans"].isna()
    assert lacking.any()
    assert (plots.intervals.loc[lacking, "note"] != "").all()
    if compat:
        assert plots.intervals.loc["cfpr_Fx", "note"] == wanted.split(": ")[1]
        assert "20 replicates" in below(plots.cfpr)
    else:
        note = plots.intervals.loc["cfpr_small_Fx", "note"]
        assert note == plots.intervals.loc["max_pos_small", "note"]
        assert "fewer than 40 bootstrap replicates" in note


def test_a_summary_without_a_standard_error_says_why():
    found = get_plots(run(compat=False)).intervals
    lacking = found["se_est"].isna()
    assert found.index[lacking].tolist() == [f"{s}_{k}" for k in ("neg", "pos")
                                             for s in ("avg", "max", "var")]  # fmt: skip
    assert found.loc[lacking, "note"].str.startswith("no standard error").all()
    assert (found.loc[~lacking, "note"] == "").all()


def test_alpha_and_sampsize_by_their_own_names():
    result = replicated()
    for wrong in (95, 0, 1, np.nan, "0.05"):
        with pytest.raises(ValueError, match="alpha must be between 0 and 1"):
            get_plots(result, alpha=wrong)
    scaled = faircfint.get_bs_rescaled(result.boot_out, result.defs, 600)
    for interval in (faircfint.ci_norm, faircfint.ci_tint):
        with pytest.raises(ValueError, match="alpha must be"):
            interval(scaled, result.defs, 600, alpha=95)
    for one in (result, run(compat=False)):
        with warnings.catch_warnings():
            warnings.simplefilter("error", CfairWarning)  # which stops before any figure
            with pytest.raises(CfairWarning, match="sampsize is 5000, but 600 rows were used"):
                get_plots(one, sampsize=5000)


@pytest.mark.parametrize("kind", ["standard", "small_internal"])
@pytest.mark.parametrize("compat", [True, False])
def test_progress_reaches_every_kind_of_replicate(kind, compat, monkeypatch):
    import tqdm

    bars = []

    class Bar:
        def __init__(self, total, desc, **more):
            bars.append([desc, total, 0])

        def __enter__(self):
            return self

        def __exit__(self, *what):
            pass

        def update(self, n):
            bars[-1][2] += n

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    options = {"gen_null": True, "R_null": 3, "bootstrap": "rescaled", "B": 2, "seed": 1}
    run(None, 0.5, kind, compat=compat, **SMALL, **options)
    assert not bars
    run(None, 0.5, kind, compat=compat, progress=True, **SMALL, **options)
    assert {total for _, total, _ in bars} == {2, 3}
    assert all(total == done for _, total, done in bars)


def test_numbers_to_the_right_and_a_name_for_each_line():
    text = str(run(None, 0.5, "small_internal", seed=1, **SMALL))
    lines = text.splitlines()
    assert sum(line.startswith("outcome ") and not line.startswith("outcome model")
               for line in lines) == 1  # fmt: skip
    assert "outcome model  Y ~ X1, glm" in lines
    groups = [line for line in lines if line.startswith(("A1  A2", "F   ", "M   "))]
    ends = {line.index(n) + len(n) for line, n in zip(
        groups, ["n", *(str(k) for k in run().cohort.groups.sizes)], strict=True)}  # fmt: skip
    assert len(ends) == 1


@pytest.mark.parametrize("compat", [True, False])
def test_figures(compat):
    result = replicated(compat)
    plots = get_plots(result, delta=0.05, labels=["one", "two", "three", "four"])
    for name in ("cfpr", "cfnr", "cfpr_unlabeled", "cfnr_unlabeled", "metrics_pos", "metrics_neg",
                 "null_dist"):  # fmt: skip
        assert getattr(plots, name).axes, name
    ticks = [t.get_text() for t in plots.cfnr.axes[0].get_yticklabels()]
    assert ticks[0].startswith("one  (n = ")
    numbers = {t.get_text() for t in plots.cfnr.axes[0].texts}
    row = plots.intervals.loc["cfnr_Fx"]
    wanted = f"{row['point_est']:.2f} [{row['low_trans']:.2f}, {row['high_trans']:.2f}]"
    assert wanted in numbers
    assert wanted not in {t.get_text() for t in plots.cfnr_unlabeled.axes[0].texts}
    null, observed = result.table_null["max_neg"], result.defs["max_neg"]
    expected = np.mean(observed - null > 0.05)
    assert plots.u_values.loc["max_neg", "u_value"] == pytest.approx(expected)
    assert plots.u_values.loc["var_pos", "delta"] == pytest.approx(0.05 if compat else 0.0025)
    assert np.isnan(plots.intervals.loc["fpr_Fx", "low_trans"]) == compat
    assert "null_dist; intervals of 30 figures, u_values of 6" in repr(plots)
    from matplotlib import pyplot as plt

    assert not plt.get_fignums()  # nothing is left open


def test_figures_without_replicates_and_with_two_groups():
    result = run(table(A2="1"))
    plots = get_plots(result)
    assert plots.null_dist is None
    assert plots.u_values is None
    assert plots.intervals["low_trans"].isna().all()
    with pytest.raises(DataError, match="a name for each of the 2 groups"):
        get_plots(result, labels=["one"])
    with pytest.raises(DataError, match="what analysis_estimation gives"):
        get_plots(result.defs)


def texts_of(figure):
    """Titles, labels and numbers of a figure."""
    parts = [t.get_text() for ax in figure.axes for t in (*ax.texts, ax.xaxis.label)]
    return parts + [ax.get_title(loc="left") for ax in figure.axes]


def test_the_null_of_two_groups_has_no_variance_and_a_figure_all_the_same():
    """Two groups are one pair, which has no variance; the R package stops there."""
    plots = get_plots(run(table(A2="1"), gen_null=True, R_null=5, seed=1))
    assert plots.u_values.loc["var_pos", "shown"] == "undefined"
    said = texts_of(plots.null_dist)
    assert "Variance, cFPR: u undefined" in said
    assert "no defined null draw" in said
    legend = [t.get_text() for t in plots.null_dist.legends[0].get_texts()]
    assert legend[0] == "null draws"
    assert legend[-1] == "observed value"


def test_rows_of_a_single_attribute_are_not_drawn_twice():
    ticks = [t.get_text() for t in get_plots(run(table(A2="1"))).cfpr.axes[0].get_yticklabels()]
    assert [t.split("  ")[0] for t in ticks] == ["Group F1", "Group M1"]
    both = get_plots(run()).cfpr.axes[0].get_yticklabels()
    assert [t.get_text().split("  ")[0] for t in both][3:6] == ["Group My", "A1: F", "A1: M"]


def test_labels_that_are_too_long_when_pasted_are_kept_apart():
    data = renamed(["Women of any age", "M"], ["Black or African American", "White"])
    ticks = [t.get_text() for t in get_plots(run(data)).cfnr.axes[0].get_yticklabels()]
    assert ticks[0].startswith("M & Black or African American  (n =")


def test_without_intervals_no_figure_speaks_of_any():
    plots = get_plots(run())
    assert repr(plots) == (
        "Plots: cfpr, cfnr, cfpr_unlabeled, cfnr_unlabeled, metrics_pos, metrics_neg; intervals of "
        "30 figures, no u-values"
    )
    for figure in (plots.cfpr, plots.metrics_neg):
        assert not any("CI" in t or "confidence" in t for t in texts_of(figure))
    said = texts_of(get_plots(replicated()).cfpr)
    assert "cFPR [95% CI]" in said
    assert "Rate, with 95% confidence interval" in said


def test_figures_of_small_groups():
    result = run(None, 0.5, "small_internal", gen_null=True, R_null=3, seed=1, **SMALL)
    plots = get_plots(result)
    assert len(plots.null_dist.axes) == 12
    assert "avg_pos_small" in plots.u_values.index
    legend = plots.cfpr.axes[0].get_legend()
    assert [t.get_text() for t in legend.get_texts()] == [
        "cFPR", "cFPR for small groups", "observed FPR",
    ]  # fmt: skip


def test_importing_it_loads_no_heavy_library():
    code = (
        "import sys, cfair; cfair.faircfint.analysis_estimation\n"
        "print([m for m in ('matplotlib', 'sklearn', 'statsmodels', 'patsy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['patsy']")


def test_a_result_fitted_to_numeric_attributes_predicts_as_it_was_fitted():
    smf = pytest.importorskip("statsmodels.formula.api")
    data = table()
    data["A1"] = pd.factorize(data["A1"])[0] + 1
    fit = smf.logit("D ~ A1 + S_prob", data).fit(disp=False)
    found = run(data, pi_model=fit)
    given_ = run(data, pi_model=np.asarray(fit.predict(data)))
    pd.testing.assert_series_equal(found.defs, given_.defs)


# -- fitted results, folds, external rows ---------------------------------------------------------


def coded(kind, data):
    """The same attributes as whole numbers, floats, logical values or text."""
    codes = np.column_stack([pd.factorize(data[a], sort=True)[0] for a in ("A1", "A2")])
    values = {"int": codes + 1, "float": codes + 1.5, "bool": codes == 1}
    return data.assign(A1=values[kind][:, 0], A2=values[kind][:, 1]) if kind != "text" else data


@pytest.mark.parametrize("compat", [True, False])
@pytest.mark.parametrize("kind", ["int", "bool", "text"])
def test_a_fitted_result_is_checked_whatever_the_attributes_are(kind, compat):
    smf = pytest.importorskip("statsmodels.formula.api")
    data = coded(kind, table())
    for fit, message in (
        (
            smf.logit("Y ~ A1 + X1", data).fit(disp=False),
            "models 'Y', which differs|left side of the formula is 'Y'",
        ),
        (smf.ols("D ~ A1 + X1", data).fit(), "does not model a probability"),
        (smf.logit("D ~ A1 + Y", data).fit(disp=False), "outcome 'Y' on its right"),
    ):
        with pytest.raises(DataError, match=message):
            run(data, pi_model=fit, compat=compat)
    linear = pytest.importorskip("sklearn.linear_model")
    classifier = linear.LogisticRegression().fit(data[X], data["D"])
    with pytest.raises(DataError, match="a classifier needs to know its columns"):
        run(data, pi_model=classifier, compat=compat)


@pytest.mark.parametrize("estimator", ["standard", "small_internal"])
@pytest.mark.parametrize("compat", [True, False])
@pytest.mark.parametrize("kind", ["int", "float", "bool"])
def test_a_fitted_result_is_used_as_it_was_fitted(kind, compat, estimator):
    smf = pytest.importorskip("statsmodels.formula.api")
    data = coded(kind, table())
    high = "A1 == True" if kind == "bool" else "A1 > 1.6"
    fit = smf.logit(f"D ~ I(({high}) * X1) + A2 + S_prob", data).fit(disp=False)
    data.loc[:4, "X1"] = np.nan
    folds = np.arange(600) % 4  # those drawn depend on the columns in use
    options = {"estimator_type": estimator, "compat": compat, "folds": folds, **SMALL}
    found = run(data, pi_model=fit, **options)
    given_ = run(data, pi_model=np.asarray(fit.predict(data)), **options)
    assert found.cohort.n_used == 595
    pd.testing.assert_series_equal(found.defs, given_.defs, atol=1e-9, rtol=0)


@pytest.mark.parametrize("compat", [True, False])
def test_folds_are_of_the_rows_of_the_table_and_matched_by_index(compat):
    data = table(300)
    data.loc[:9, "X1"] = np.nan
    folds = pd.Series(np.random.default_rng(2).integers(0, 4, 300), data.index)
    options = {"estimator_type": "small_internal", "compat": compat, **SMALL}
    one = run(data, folds=folds, **options)
    np.testing.assert_array_equal(one.est_choice["folds"], folds[10:] + 1)
    for same in (folds.sample(frac=1, random_state=1), folds.tolist()):
        pd.testing.assert_series_equal(run(data, folds=same, **options).defs, one.defs)
    pd.testing.assert_series_equal(run(data.assign(k=folds), folds="k", **options).defs, one.defs)
    with pytest.raises(DataError, match="folds: the Series"):
        run(data, folds=folds.set_axis(folds.index + 1000), **options)
    with pytest.raises(DataError, match="folds has 290 values, but the table has 300 rows"):
        run(data, folds=folds.tolist()[10:], **options)


def borrowed(data, external, **options):
    given = {"data_external": external, "pa_xvars_ext": ["X2"], "seed": 1, **SMALL}
    return run(data, 0.5, "small_borrow", **{**given, **options})


def test_external_rows_are_dropped_over_columns_in_use():
    external = outside().assign(junk=np.where(np.arange(800) < 50, np.nan, 1.0))
    options = {"estimator_type": "small_borrow", "seed": 1, "pa_xvars_ext": ["X2"], **SMALL}
    own, said = heard(table(), data_external=external, compat=False, **options)
    assert not any("data_external" in text for text in said)
    assert own.alpha == borrowed(table(), outside(), compat=False).alpha
    _, said = heard(table(), data_external=external, **options)
    assert any("50 of 800 rows dropped" in text and "compat=True" in text for text in said)
    external.loc[50:59, "X2"] = np.nan
    _, said = heard(table(), data_external=external, compat=False, **options)
    wanted = [text for text in said if text.startswith("data_external: 10 of 800 rows dropped")]
    assert wanted
    assert "compat" not in wanted[0]


@pytest.mark.parametrize("column", ["A1", "Y", "D"])
def test_membership_outside_is_not_explained_by_what_it_must_not_be(column):
    with pytest.raises(DataError, match=f"pa_xvars_ext has '{column}'"):
        get_pa_ext_small(table(), pa_xvars_ext=["X1", column])


@pytest.mark.parametrize("compat", [True, False])
@pytest.mark.parametrize("kind", ["int", "float", "bool"])
def test_attributes_of_any_type_agree_with_those_outside(kind, compat):
    found = borrowed(coded(kind, table()), coded(kind, outside()), compat=compat)
    text = borrowed(table(), outside(), compat=compat)
    assert found.alpha == pytest.approx(text.alpha, abs=1e-6)
    np.testing.assert_allclose(
        found.est_choice["membership_external"], text.est_choice["membership_external"], atol=1e-9
    )


def test_one_attribute_borrows_from_one_attribute():
    data, external = table().drop(columns="A2"), outside().drop(columns="A2")
    alone = borrowed(data, external, compat=False)
    constant = borrowed(table(A2="all"), outside().assign(A2="all"), compat=False)
    assert alone.alpha == pytest.approx(constant.alpha)
    np.testing.assert_allclose(alone.defs.filter(like="_small_"),
                               constant.defs.filter(like="_small_"))  # fmt: skip
    with pytest.raises(DataError, match="attribute columns A1, the data A1 and A2"):
        borrowed(table(), external)
    with pytest.raises(DataError, match="attribute columns A1 and A2, the data A1"):
        borrowed(data, outside(), compat=False)


def test_labels_that_are_doubles_are_as_r_has_them():
    names = run(table(A2=np.where(table()["A2"] == "x", 1.0, 2.5))).defs.index
    assert names[:2].tolist() == ["fpr_F1", "fpr_F2.5"]
    shown = {
        1e5: "1e+05", 123456.0: "123456", 1e15: "1e+15", 1 / 3: "0.333333333333333",
        0.1 + 0.2: "0.3", 1e-4: "1e-04", 0.00012345: "0.00012345", -1e5: "-1e+05",
        100000.5: "100000.5", 1e-300: "1e-300", 110000.0: "110000",
    }  # fmt: skip
    assert r_texts(list(shown), "A1") == list(shown.values())
    with pytest.raises(DataError, match="same as text"):
        run(table(A2=np.where(table()["A2"] == "x", 0.3, 0.1 + 0.2)))


@pytest.mark.parametrize("column", ["Y", "D", "A1"])
def test_infinity_is_refused(column):
    data = table()
    infinite = np.where(data[column] == data[column][0], np.inf, 0.0)
    with pytest.raises(DataError, match=f"'{column}' is infinite in"):
        run(data.assign(**{column: infinite}))
    with pytest.raises(DataError, match="cutoff must be a number"):
        run(data, np.inf)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"permutations": 5}, "permutations must hold a sequence"),
        ({"permutations": (p for p in [range(600)])}, "permutations must hold a sequence"),
        ({"permutations": [[0, 1], [0]]}, "as many numbers in each"),
        ({"resamples": 3}, "resamples must hold a sequence"),
        ({"null_folds": [1, 2, 1]}, "null_folds must hold a sequence"),
        ({"boot_folds": 4}, "boot_folds must hold a sequence"),
        ({"pi_model": np.where(np.arange(600) < 5, np.nan, 0.5)}, "no probability in 5 of 600"),
    ],
)
def test_what_is_given_by_row_or_replicate_is_refused_in_words(options, message):
    with pytest.raises(DataError, match=message):
        run(**options)


@pytest.mark.parametrize("compat", [True, False])
def test_advice_names_what_can_be_done_here(compat):
    data = table()
    my = np.flatnonzero((data["A1"] == "M") & (data["A2"] == "y"))
    with pytest.raises(DataError, match=r"'M & y' \(1\) has fewer") as lone:
        run(data.drop(index=my[1:]), 0.5, "small_internal", compat=compat, **SMALL)
    assert "min_group_size" not in str(lone.value)
    for empty in (data[:0], outside()[:0]):
        with pytest.raises(DataError, match="data_external has no rows"):
            get_pa_ext_small(empty, pa_xvars_ext=["X1"], compat=compat)
    with pytest.raises(ValueError, match="seed must be"):
        get_pa_ext_small(outside(), pa_xvars_ext=["X1"], seed="x", compat=compat)


def test_m_factor_of_figures():
    for result in (replicated(), run(compat=False)):
        for wrong in ("a", 0, 2, True):
            with pytest.raises(DataError, match="m_factor must be above 0"):
                get_plots(result, m_factor=wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CfairWarning)  # which stops before any figure
        with pytest.raises(CfairWarning, match="m_factor has no use with compat=False"):
            get_plots(run(compat=False), m_factor=0.75)


# -- what is easily lost --------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "shown"), [(0, "<0.001"), (1, "<0.001"), (2, "0.001")])
def test_a_u_value_is_rounded_before_it_is_small(share, shown):
    """Of 2,500 replicates: R rounds .0004 to 0, and .0008 to .001."""
    null = pd.DataFrame({"avg_pos": np.where(np.arange(2500) < share, 0.0, 1.0)})
    found = u_table(pd.Series({"avg_pos": 0.5}), null, 0.1, as_r=True)
    assert found.loc["avg_pos", "u_value"] == share / 2500
    assert found.loc["avg_pos", "shown"] == shown


def test_replicates_that_do_not_converge_are_said(monkeypatch):
    data = table()
    my = np.flatnonzero((data["A1"] == "M") & (data["A2"] == "y"))
    lone = np.setdiff1d(np.arange(600), my[1:])
    options = {"estimator_type": "small_internal", "seed": 1, **SMALL}
    _, said = heard(data, resamples=[lone, np.arange(600)], **options)
    start = "in 1 of 2 replicates a model did not converge"
    assert any(text.startswith(f"bootstrap: {start}") for text in said)
    _, said = heard(data, resamples=[np.arange(600)], **options)
    assert not any("did not converge" in text for text in said)

    def failing(draw):
        return lambda *args, **options: replace(draw(*args, **options), not_converged=1)

    for name in ("bootstrap_draws", "permutation_null"):
        monkeypatch.setattr(parity, name, failing(getattr(parity, name)))
    _, said = heard(data, gen_null=True, R_null=2, bootstrap="rescaled", B=2, seed=1)
    for what in ("bootstrap", "null"):
        assert any(text.startswith(f"{what}: {start}") for text in said)


def test_networks_have_the_sizes_and_the_decay_of_the_r_package(monkeypatch):
    sklearn = pytest.importorskip("sklearn.neural_network")
    own, seen = sklearn.MLPClassifier, []

    def short(**options):
        seen.append((options["hidden_layer_sizes"], options["alpha"]))
        return own(**{**options, "max_iter": 2})

    monkeypatch.setattr(sklearn, "MLPClassifier", short)
    networks = ("outcome_model_type", "fit_method_int", "fit_method_ext")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        borrowed(table(200), outside(), nfolds=2, **dict.fromkeys(networks, "neural_net"))
    assert set(seen) == {((100,), 2.0), ((50,), 2.0)}
