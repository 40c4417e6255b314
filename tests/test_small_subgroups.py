"""Rates of small subgroups: against plain refits and recorded figures, and what users can do."""

from __future__ import annotations

import json
import pickle
from functools import cache
from pathlib import Path

import bad_inputs
import matplotlib
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import cfair
from cfair.errors import DataError, FormulaError, RankWarning
from cfair.estimators import small_subgroup_rates

matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.ModelWarning")

DATA = Path(__file__).parent / "data"
PROPENSITY = "treated ~ sex * site + risk + age"
OUTCOME, MEMBERS = "~ age + sbp", "~ age + sbp + smoker"
ATTRIBUTES = ["sex", "site"]


@cache
def made(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "sex": rng.choice(["F", "M"], n, p=[0.6, 0.4]),
            "site": rng.choice([1, 2, 3], n, p=[0.5, 0.3, 0.2]),
            "age": rng.normal(60, 10, n).round(1),
            "smoker": rng.integers(0, 2, n),
            "ward": rng.integers(0, 25, n),
        }
    )
    frame["sbp"] = (130 + 6 * frame["site"] + frame["age"] / 3 + rng.normal(0, 12, n)).round(1)
    tilt = (frame["age"] - 60) / 15 + (frame["sbp"] - 160) / 25
    frame["risk"] = (1 / (1 + np.exp(-tilt - rng.normal(0, 0.7, n)))).round(3)
    frame["treated"] = (rng.uniform(size=n) < 0.2 + 0.4 * frame["risk"]).astype(int)
    chance = 1 / (1 + np.exp(0.3 - tilt + 0.8 * frame["treated"]))
    frame["died"] = (rng.uniform(size=n) < chance).astype(int)
    return frame


def people(n=400, seed=0):
    return made(n, seed).copy()


def outsiders(n=500, seed=5):
    return people(n, seed)[["sex", "site", "age", "sbp", "smoker"]]


def audit_of(data, groups=ATTRIBUTES, **roles):
    options = {"outcome": "died", "score": "risk", "cutoff": 0.5, "groups": groups, **roles}
    return cfair.Audit(data, **options)


def analyse(data=None, propensity=PROPENSITY, groups=ATTRIBUTES, roles=None, **options):
    defaults = {"outcome_model": OUTCOME, "membership": MEMBERS, "n_boot": 0}
    audit = audit_of(people() if data is None else data, groups, **(roles or {}))
    return audit.small_subgroups(propensity, **{**defaults, **options})


def rates_of(result, metrics=("cfpr", "cfnr")):
    return np.array(
        [result.rates.loc[result.rates["metric"] == m, "estimate"].to_numpy() for m in metrics]
    )


# -- the same once more, plainly ------------------------------------------------------------------


def logistic(X, y, at):
    fit = sm.GLM(y, X, family=sm.families.Binomial()).fit(tol=1e-13, maxiter=100)
    return [np.clip(fit.predict(Z), 0.005, 0.995) for Z in at]


def plain_rates(data, group, folds, rows=None, external=None, by_r=False):
    """Rates of six groups from the given rows, which may be repeated; folds go with the rows."""
    rows = np.arange(len(data)) if rows is None else rows
    t, g, f = data.iloc[rows], group[rows], folds[rows]
    y, d = t["died"].to_numpy(), t["treated"].to_numpy()
    s = (t["risk"] >= 0.5).to_numpy().astype(int)
    one = np.ones(len(t))
    dummies = np.eye(6)[g]
    (pi,) = logistic(X := np.column_stack([dummies, t["risk"], t["age"]]), d, [X])
    base = np.column_stack([one, t["age"], t["sbp"]])
    (mu0,) = logistic(np.column_stack([base, d]), y, [np.column_stack([base, 0 * one])])
    mu1, mu_0 = logistic(
        np.column_stack([base, d, s]),
        y,
        [np.column_stack([base, 0 * one, one]), np.column_stack([base, 0 * one, 0 * one])],
    )
    Z = np.column_stack([one, t["age"], t["sbp"], t["smoker"]])
    p = np.empty((len(t), 6))
    for k in np.unique(f):
        fit = sm.MNLogit(g[f != k], Z[f != k]).fit(method="newton", disp=0, tol=1e-13, maxiter=60)
        p[f == k] = np.clip(fit.predict(Z[f == k]), 0.005, 0.995)
    p /= 1.0 if by_r else p.sum(axis=1, keepdims=True)
    if external is not None:
        e = np.clip(external[rows], 0.005, 0.995)
        e /= e.sum(axis=1, keepdims=True)
        step = e - p
        alpha = np.clip(np.sum(step * (np.eye(6)[g] - p)) / np.sum(step**2), 0, 1)
        p = alpha * e + (1 - alpha) * p
    w = (1 - d) / (1 - pi)
    cfpr = np.sum(w * s * (1 - y)) / np.sum(w * (1 - y))
    cfnr = np.sum(w * (1 - s) * y) / np.sum(w * y)
    result = np.empty((2, 6))
    for k in range(6):
        mine = g == k
        a = np.sum((1 - mu1) * s * mine) / np.sum((1 - mu1) * s)
        b = np.sum(p[:, k] * (1 - mu0)) / np.sum(1 - mu0)
        c = np.sum(mu_0 * (1 - s) * mine) / np.sum(mu_0 * (1 - s))
        e = np.sum(p[:, k] * mu0) / np.sum(mu0)
        result[:, k] = cfpr * a / b, cfnr * c / e
    return result


def codes(data):
    return ((data["sex"] == "M") * 3 + data["site"] - 1).to_numpy()


FOLDS = np.arange(400) % 5


def outside_probabilities(inside):
    outside = outsiders()
    X = sm.add_constant(outside[["age", "sbp"]].to_numpy())
    fit = sm.MNLogit(codes(outside), X).fit(method="newton", disp=0, tol=1e-13)
    return fit.predict(sm.add_constant(inside[["age", "sbp"]].to_numpy()))


@pytest.mark.parametrize("renormalise", [True, False])
def test_estimates_are_those_of_plain_refits(renormalise):
    result = analyse(folds=FOLDS, renormalise=renormalise)
    expected = plain_rates(people(), codes(people()), FOLDS, by_r=not renormalise)
    np.testing.assert_allclose(rates_of(result), expected, atol=1e-8)
    known = (result.outcome_model, people())
    arrays = [known[1][c].to_numpy() for c in ("died", "treated")]
    s = (known[1]["risk"] >= 0.5).to_numpy().astype(int)
    model = known[0]
    again = small_subgroup_rates(
        arrays[0], s, arrays[1], codes(known[1]), result.propensities.to_numpy(),
        model.mu0, model.mu0_s1, model.mu0_s0, result.memberships.to_numpy(),
    )  # fmt: skip
    np.testing.assert_allclose(again, rates_of(result), rtol=1e-12)


def test_borrowed_estimates_are_those_of_plain_refits():
    result = analyse(folds=FOLDS, external=outsiders(), external_membership="~ age + sbp")
    outside = outside_probabilities(people())
    expected = plain_rates(people(), codes(people()), FOLDS, external=outside)
    np.testing.assert_allclose(rates_of(result), expected, atol=1e-8)
    assert 0 < result.alpha < 1
    criterion = result.borrowed.criterion
    assert criterion["mixed"] <= min(criterion["internal"], criterion["external"])


@pytest.mark.parametrize("borrows", [False, True])
def test_given_resamples_are_plain_refits_on_the_rows_repeated(borrows):
    rng = np.random.default_rng(3)
    rows = [rng.integers(0, 400, 400) for _ in range(3)]
    options = {"external": outsiders(), "external_membership": "~ age + sbp"} if borrows else {}
    result = analyse(folds=FOLDS, resamples=rows, **options)
    outside = outside_probabilities(people()) if borrows else None
    for b in range(3):
        expected = plain_rates(people(), codes(people()), FOLDS, rows[b], outside)
        found = [result.boot.rates[m][b, :6] for m in ("cfpr", "cfnr")]
        np.testing.assert_allclose(found, expected, atol=1e-7)
    assert result.boot.rows_per_replicate.tolist() == [400] * 3
    if borrows:
        assert len(result.borrowed.boot_alpha) == 3
        assert len(set(result.borrowed.boot_alpha)) == 3


@pytest.mark.parametrize("borrows", [False, True])
def test_given_permutations_are_plain_refits_with_other_labels(borrows):
    rng = np.random.default_rng(4)
    permutations = np.stack([rng.permutation(400) for _ in range(3)])
    options = {"external": outsiders(), "external_membership": "~ age + sbp"} if borrows else {}
    result = analyse(folds=FOLDS, permutations=permutations, **options)
    outside = outside_probabilities(people()) if borrows else None
    for r in range(3):
        labels = codes(people())[permutations[r]]
        expected = plain_rates(people(), labels, FOLDS, external=outside)
        found = [result.null.rates[m][r, :6] for m in ("cfpr", "cfnr")]
        np.testing.assert_allclose(found, expected, atol=1e-7)
    assert result.null.wald is None
    assert np.isnan(result.disparities["p_value_studentized"]).all()
    assert result.disparities["note"][0] == (
        "no studentized p-value: the permutations have no standard errors"
    )


def test_what_has_no_labels_is_not_refitted_under_permutations():
    permutations = np.stack([np.random.default_rng(r).permutation(400) for r in range(3)])
    options = {"permutations": permutations, "folds": FOLDS}
    plain = analyse(propensity="treated ~ risk + age", **options)
    given = analyse(propensity=plain.propensities, roles={"treatment": "treated"}, **options)
    for metric in ("cfpr", "cfnr"):
        np.testing.assert_allclose(plain.null.rates[metric], given.null.rates[metric], atol=1e-10)
    assert "membership refitted" in plain.null.method
    assert "membership and propensity refitted" in analyse(n_perm=1).null.method


def test_observed_rates_of_replicates_stand_beside_them():
    rows = [np.arange(300), np.arange(100, 400)]
    result = analyse(folds=FOLDS, resamples=rows)
    for b in range(2):
        part = people().iloc[rows[b]]
        fpr = audit_of(part).observed().rates.query("metric == 'fpr'")["estimate"]
        np.testing.assert_allclose(result.boot.rates["fpr"][b, :6], fpr, rtol=1e-12)


# -- recorded -------------------------------------------------------------------------------------


def recorded(which, **options):
    case = json.loads((DATA / "small_subgroups.json").read_text())[which]
    audit = cfair.Audit(
        pd.read_csv(DATA / "small_groups.csv.gz"),
        outcome="Y", score="S_prob", cutoff=0.5, groups=["A1", "A2"],
    )  # fmt: skip
    result = audit.small_subgroups(
        "D ~ A1 * A2 + S_prob + X1 + X2 + X3 + X4",
        outcome_model="~ XO1 + XO2 + XO3 + XO4 + XO5 + XO6",
        membership="~ XP1 + XP2 + XP3 + XP4 + XP5",
        folds=np.array(case["folds"]),
        renormalise=False,
        n_boot=0,
        **options,
    )
    expected = [
        [case["rates"][f"{m}_small_{a}{b}"] for a, b in result.cohort.groups.labels]
        for m in ("cfpr", "cfnr")
    ]
    return result, np.array(expected), case


def test_recorded_internal_rates_of_the_r_package():
    result, expected, _ = recorded("internal")
    np.testing.assert_allclose(rates_of(result), expected, atol=1e-8)


def test_recorded_borrowed_rates_of_the_r_package():
    result, expected, case = recorded(
        "borrow",
        external=pd.read_csv(DATA / "small_external.csv.gz"),
        external_membership="~ XP1 + XP2 + XP3 + XP4",
        scale_external="faircfint",
    )
    assert result.alpha == pytest.approx(case["alpha"], abs=2e-6)
    np.testing.assert_allclose(rates_of(result), expected, atol=5e-6)  # multinom stops early


# -- what must not matter -------------------------------------------------------------------------


def replicated(data, groups=ATTRIBUTES, **options):
    return analyse(data, groups=groups, n_boot=40, n_perm=10, seed=3, **options)


def test_order_of_rows_names_of_groups_and_workers_do_not_matter():
    data = people()
    one = replicated(data, external=outsiders(), external_membership="~ age + sbp")
    shuffled = data.sample(frac=1, random_state=4)
    other = replicated(
        shuffled,
        external=outsiders().sample(frac=1, random_state=2),
        external_membership="~ age + sbp",
        n_jobs=2,
    )
    np.testing.assert_allclose(rates_of(other), rates_of(one), atol=1e-9)
    assert other.alpha == pytest.approx(one.alpha, abs=1e-9)
    pd.testing.assert_frame_equal(other.boot_draws, one.boot_draws, atol=1e-7)
    pd.testing.assert_frame_equal(other.null_draws, one.null_draws, atol=1e-7)
    again = other.memberships.loc[data.index]
    np.testing.assert_allclose(again, one.memberships, atol=1e-9)


def test_names_of_groups_do_not_matter():
    data = people()
    one = replicated(data)
    renamed = data.assign(sex=data["sex"].map({"F": "z", "M": "y"}), site=5 - data["site"])
    other = replicated(renamed)
    turned = [5, 4, 3, 2, 1, 0]
    np.testing.assert_allclose(rates_of(other)[:, turned], rates_of(one), atol=1e-9)
    for kind in ("boot", "null"):
        a, b = (getattr(result, kind).rates["cfnr"][:, :6] for result in (one, other))
        np.testing.assert_allclose(b[:, turned], a, atol=1e-7)


def test_seed_changes_folds_and_replicates():
    one, other = (analyse(n_boot=40, seed=seed) for seed in (1, 2))
    assert (one.folds.codes != other.folds.codes).any()
    assert not np.allclose(rates_of(one), rates_of(other), atol=1e-6)
    same = analyse(n_boot=40, seed=1)
    pd.testing.assert_frame_equal(same.boot_draws, one.boot_draws)


def test_whole_sampling_weights_are_repeated_rows():
    data = people().assign(w=np.random.default_rng(1).integers(1, 4, 400), fold=FOLDS)
    weighted = analyse(data, roles={"weights": "w"}, folds="fold", external=outsiders())
    repeated = data.loc[data.index.repeat(data["w"])].reset_index(drop=True)
    expected = analyse(repeated, folds="fold", external=outsiders())
    metrics = ("cfpr", "cfnr", "fpr", "fnr")
    np.testing.assert_allclose(rates_of(weighted, metrics), rates_of(expected, metrics), atol=1e-9)
    assert weighted.alpha == pytest.approx(expected.alpha, abs=1e-9)
    margins = [r.marginals["estimate"].to_numpy() for r in (weighted, expected)]
    np.testing.assert_allclose(*margins, atol=1e-9)


# -- rates of unions ------------------------------------------------------------------------------


def test_all_rows_together_have_the_overall_rate_and_margins_lie_between():
    result = analyse()
    overall = result.overall.set_index("metric")["estimate"]
    shares = result.shares
    for m, metric in enumerate(("cfpr", "cfnr")):
        assert overall[metric] == pytest.approx(result.sums.overall[m], rel=1e-12)
        mine = shares[shares["metric"] == metric]
        product = mine["overall"] * mine["among_errors"] / mine["among_all"]
        np.testing.assert_allclose(product, rates_of(result)[m])
        assert mine["among_errors"].sum() == pytest.approx(1)
        assert mine["among_all"].sum() == pytest.approx(1)
        female = result.marginals.query("metric == @metric and level == 'F'")["estimate"].iloc[0]
        part = mine.head(3)
        expected = part["overall"].iloc[0] * part["among_errors"].sum() / part["among_all"].sum()
        assert female == pytest.approx(expected)


# -- standard errors ------------------------------------------------------------------------------


def test_standard_errors_intervals_and_tests_come_from_the_bootstrap():
    result = analyse(n_boot=60, seed=2)
    draws = result.boot.rates
    for metric in ("cfpr", "cfnr"):
        rows = result.rates[result.rates["metric"] == metric]
        np.testing.assert_allclose(rows["se"], draws[metric][:, :6].std(axis=0, ddof=1))
        size = rows["estimate"] * (1 - rows["estimate"]) / rows["se"] ** 2
        np.testing.assert_allclose(rows["n_effective"], size)
        assert (rows["ci_low"] < rows["estimate"]).all()
        assert (rows["ci_high"] > rows["estimate"]).all()
    both = np.hstack([draws["cfpr"][:, :6], draws["cfnr"][:, :6]])
    np.testing.assert_allclose(result.covariance, np.cov(both.T), atol=1e-14)
    test = result.test_equal().set_index("metric")
    assert (test.loc[["cfpr", "cfnr"], "df"] == 5).all()
    assert test["p_value"].between(0, 1).all()
    difference = result.contrasts(metrics=["cfpr", "cfnr"])
    assert len(difference) == 30
    assert np.isfinite(difference["ci_low"]).all()
    assert np.isfinite(result.bootstrap_intervals()["ci_low"]).all()


def test_without_a_bootstrap_there_are_no_intervals_and_the_result_says_why():
    for options in ({"n_boot": 0}, {"n_boot": 50, "bootstrap": None}):
        result = analyse(**options)
        rows = result.rates[result.rates["metric"].isin(["cfpr", "cfnr"])]
        assert np.isfinite(rows["estimate"]).all()
        for column in ("se", "ci_low", "ci_high", "n_effective"):
            assert rows[column].isna().all(), column
        assert (rows["note"] == "no bootstrap, so no standard errors").all()
        test = result.test_equal().set_index("metric").loc["cfnr"]
        assert np.isnan(test["p_value"])
        assert np.isnan(test["max_t_p_value"])
        gaps = result.disparities.query("metric == 'cfnr'")
        rates = rates_of(result)[1]
        assert gaps["estimate"].iloc[1] == pytest.approx(rates.max() - rates.min())
        assert gaps[["ci_low", "ci_high"]].isna().all(axis=None)
        pairs = result.contrasts(metrics="cfpr")
        assert np.isfinite(pairs["estimate"]).all()
        assert pairs[["se", "ci_low", "ci_high", "p_value"]].isna().all(axis=None)
        text = " ".join(str(result).split())
        assert "intervals none: they come from the bootstrap, and there is none" in text
        assert "without a bootstrap there are no standard errors" in text
        assert np.isfinite(result.rates.query("metric == 'fpr'")["ci_low"]).all()


def test_too_few_replicates_give_no_variance():
    result = analyse(n_boot=10)
    rows = result.rates[result.rates["metric"] == "cfpr"]
    assert rows["se"].isna().all()
    assert rows["note"].str.contains("fewer than 40 bootstrap replicates").all()


def test_clusters_are_drawn_whole():
    result = analyse(roles={"cluster": "ward"}, n_boot=40)
    assert result.boot_kind == "cluster"
    ward = people()["ward"].to_numpy()
    codes_of_folds = pd.Series(result.folds.codes).groupby(ward).nunique()
    assert (codes_of_folds == 1).all()
    assert "clusters with replacement" in str(result)
    assert "only 25 clusters" in str(result)
    by_row = analyse(roles={"cluster": "ward"}, n_boot=40, bootstrap="group")
    assert any("as if they were independent" in note for note in by_row.notes)
    with pytest.raises(DataError, match="needs the column of the clusters"):
        analyse(n_boot=5, bootstrap="cluster")


def test_clusters_that_confine_groups_leave_a_covariance():
    data = people(500, 14)
    rng = np.random.default_rng(14)
    data["clinic"] = rng.integers(0, 12, 500)
    for clinic, k in enumerate((1, 2, 4, 5)):  # groups that live in one clinic each
        data.loc[codes(data) == k, "clinic"] = clinic
    result = analyse(
        data, propensity="treated ~ risk + age", roles={"cluster": "clinic"}, n_boot=150,
        folds=np.arange(500) % 5,
    )  # fmt: skip
    assert np.isnan(result.boot.rates["cfpr"][:, 1]).mean() > 0.2
    assert "equal rates?" in str(result)
    assert result.disparities["ci_high"].notna().any()
    spread = np.sqrt(np.diag(result.covariance))
    assert np.linalg.eigvalsh(result.covariance / np.outer(spread, spread))[0] > -1e-10
    values = result.boot.rates["cfnr"][:, :6]
    rows = result.rates.query("metric == 'cfnr'")
    np.testing.assert_allclose(rows["se"], np.nanstd(values, axis=0, ddof=1))


def test_rows_are_drawn_whatever_their_group_when_there_are_external_probabilities():
    result = analyse(n_boot=45, external=outsiders())
    assert result.boot_kind == "rows"
    assert "(rows with replacement, all models refitted)" in " ".join(str(result).split())
    assert (result.boot.rows_per_replicate == 400).all()
    assert analyse(n_boot=2).boot_kind == "group"
    asked = analyse(n_boot=2, external=outsiders(), bootstrap="group")
    assert asked.boot_kind == "group"
    assert "within group" in asked.boot.method
    clusters = analyse(n_boot=2, external=outsiders(), roles={"cluster": "ward"})
    assert clusters.boot_kind == "cluster"
    assert analyse(n_boot=2, bootstrap="rows").boot.method.startswith("rows with replacement,")


def rare_groups(seed):
    """Rows of three groups, the last two small, and probabilities of the groups close to theirs."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1000, 2))

    def chances(tilt):
        eta = [0 * x[:, 0], -2.2 - tilt + 0.4 * x[:, 1], -2.6 - (0.3 + tilt) * x[:, 0]]
        p = np.exp(np.column_stack(eta))
        return p / p.sum(axis=1, keepdims=True)

    group = (rng.uniform(size=1000)[:, None] > chances(0.0).cumsum(axis=1)).sum(axis=1)
    risk = 1 / (1 + np.exp(-0.8 * x.sum(axis=1) - rng.normal(0, 0.7, 1000)))
    treated = (rng.uniform(size=1000) < 0.2 + 0.3 * risk).astype(int)
    died = rng.uniform(size=1000) < 1 / (1 + np.exp(0.3 - x @ [1, 0.6] + 0.5 * treated))
    frame = pd.DataFrame({"age": x[:, 0], "sbp": x[:, 1], "g": group, "risk": risk})
    return frame.assign(treated=treated, died=died.astype(int)), chances(0.1)


def test_standard_errors_are_the_spread_of_the_estimates():
    def cfpr(seed, kind=None, external=False):
        data, outside = rare_groups(seed)
        options = {"external": outside} if external else {}
        result = analyse(
            data, "treated ~ risk + age + sbp", "g", {"cutoff": 0.25}, membership="~ age + sbp",
            n_boot=60 * (kind is not None), bootstrap=kind, seed=seed, **options,
        )  # fmt: skip
        rows = result.rates.query("metric == 'cfpr'")
        return rows["estimate" if kind is None else "se"].to_numpy()[1:], result.alpha

    ratio = {}
    for external in (True, False):
        drawn = [cfpr(seed, external=external) for seed in range(60)]
        spread = np.std([rates for rates, _ in drawn], axis=0)
        if external:
            assert 0.5 < np.mean([alpha for _, alpha in drawn]) < 0.75
        for kind in ("group", "rows"):
            se = [cfpr(seed, kind, external)[0] for seed in range(1000, 1002)]
            ratio[external, kind] = np.mean(np.sqrt(np.mean(np.square(se), axis=0)) / spread)
    assert 0.95 < ratio[True, "rows"] < 1.3, ratio
    assert ratio[True, "group"] < 0.92, ratio  # the sizes of the groups do not vary
    assert 0.85 < ratio[False, "group"] < 1.2, ratio
    assert 0.85 < ratio[False, "rows"] < 1.2, ratio


def test_the_scheme_of_the_r_package_gives_no_standard_errors():
    result = analyse(n_boot=45, bootstrap="faircfint", seed=1)
    assert result.boot.rows_per_replicate.mean() == pytest.approx(400**0.75, abs=8)
    assert result.boot_kind == "faircfint"
    assert "n^0.75" in result.boot.method
    rows = result.rates[result.rates["metric"].isin(["cfpr", "cfnr"])]
    reason = "the spread of faircfint's draws is no standard error"
    assert (rows["note"] == reason).all()
    assert rows[["se", "ci_low", "ci_high"]].isna().all(axis=None)
    assert np.isfinite(rows[["boot_se", "boot_low", "boot_high"]]).all(axis=None)
    assert result.test_equal()["p_value"].iloc[:2].isna().all()
    text = " ".join(str(result).split())
    assert f"intervals none: {reason}" in text
    assert "bootstrap='auto' gives standard errors" in text
    assert "without a bootstrap" not in text


@pytest.mark.parametrize("bootstrap", ["auto", "faircfint", "cluster"])
def test_given_resamples_are_of_no_kind(bootstrap):
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 400, 300) for _ in range(45)]
    result = analyse(resamples=rows, bootstrap=bootstrap, folds=FOLDS)
    assert result.boot_kind == "given"
    mine = result.rates.query("metric == 'cfpr'")
    limits = np.quantile(result.boot.rates["cfpr"][:, :6], [0.025, 0.975], axis=0)
    np.testing.assert_allclose(mine[["boot_low", "boot_high"]].to_numpy().T, limits)
    assert any("hold 300 rows on average, not 400" in note for note in result.notes)
    few = [rng.integers(0, 400, 400) for _ in range(2)]
    assert not any("on average" in note for note in analyse(resamples=few).notes)


def test_few_replicates_are_said_and_too_few_give_no_test():
    result = analyse(n_boot=45)
    notes = [note for note in result.notes if "joint variance" in note]
    assert notes == [
        "45 bootstrap replicates are few for the joint variance of 6 groups: the tests of equal "
        "rates allow for it, and lose power. n_boot=60 or more is better."
    ]
    test = result.test_equal().set_index("metric")
    assert (test.loc[["cfpr", "cfnr"], "df_denominator"] == 44 - 5 + 1).all()
    assert "Wald F(5, 40)" in str(result)
    assert not any("joint variance" in note for note in analyse(n_boot=60).notes)
    clusters = analyse(n_boot=60, roles={"cluster": "ward"}).test_equal()
    assert (clusters["df_denominator"] == 24 - 5 + 1).all()


# -- other shapes ---------------------------------------------------------------------------------


def test_one_attribute():
    result = analyse(groups="site", propensity="treated ~ C(site) + risk + age", n_boot=45)
    assert len(result.rates) == 4 * 3
    assert len(result.overall) == 4
    assert result.memberships.columns.tolist() == ["1", "2", "3"]
    assert np.isfinite(result.rates["ci_low"]).all()


def test_two_groups():
    result = analyse(groups="sex", propensity="treated ~ sex + risk + age", external=outsiders())
    assert 0 <= result.alpha <= 1
    np.testing.assert_allclose(result.memberships.sum(axis=1), 1.0)


def test_one_group_has_the_overall_rates():
    result = analyse(people().assign(sex="F"), groups="sex", propensity="treated ~ risk + age")
    np.testing.assert_allclose(rates_of(result)[:, 0], result.sums.overall)
    assert "one group only: nothing to compare" in str(result)


def test_many_groups():
    rng = np.random.default_rng(0)
    data = people(1000, 3).assign(region=rng.integers(0, 4, 1000))
    result = analyse(
        data, groups=["sex", "site", "region"], propensity="treated ~ risk + age", n_boot=45
    )
    assert len(result.rates) == 4 * 24
    assert result.boot.rates["cfpr"].shape == (45, 24 + 9 + 1)
    assert np.isfinite(result.rates["estimate"]).all()


def test_a_crossing_without_rows_has_no_rate_and_disturbs_no_other():
    data = people()
    data = data[(data["sex"] == "F") | (data["site"] != 3)]
    result = analyse(data, propensity="treated ~ risk + age", folds=np.arange(len(data)) % 4)
    found = rates_of(result)
    assert np.isnan(found[:, 5]).all()
    assert np.isfinite(found[:, :5]).all()
    lone = result.rates.query("sex == 'M' and site == 3")["note"]
    assert set(lone) == {"no rows"}
    np.testing.assert_allclose(result.memberships.iloc[:, :5].sum(axis=1), 1.0)


def test_rates_above_1_are_reported_as_they_are():
    data = people(seed=2)
    none = (data["sex"] == "M") & (data["site"] == 3)
    data.loc[none, "risk"] = np.minimum(data.loc[none, "risk"], 0.4)
    result = analyse(data, n_boot=60, propensity="treated ~ risk + age")
    row = result.rates.query("metric == 'cfnr' and sex == 'M' and site == 3").iloc[0]
    assert row["estimate"] > 1
    assert row["note"].startswith("above 1")
    assert any("cFNR is above 1 in M & 3" in note for note in result.notes)
    zero = result.rates.query("metric == 'cfpr' and sex == 'M' and site == 3").iloc[0]
    assert zero["estimate"] == 0
    assert 0 < zero["ci_high"] < 1
    assert "exactly 0" in zero["note"]


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
@pytest.mark.parametrize(("cutoff", "flagged"), [(0.0, True), (1.0, False)])
def test_a_cutoff_on_one_side_of_all_scores(cutoff, flagged):
    data = people().assign(risk=lambda t: t["risk"].clip(0.01, 0.99))
    result = analyse(data, roles={"cutoff": cutoff}, n_boot=45)
    lost = result.rates[result.rates["metric"] == ("cfnr" if flagged else "cfpr")]
    assert lost["estimate"].isna().all()
    assert set(lost["note"]) == {"every row is flagged" if flagged else "no row is flagged"}
    assert isinstance(str(result), str)


# -- models ---------------------------------------------------------------------------------------


def test_kinds_of_propensity():
    data = people()
    formula = analyse(data, folds=FOLDS)
    given = analyse(
        data, propensity=formula.propensities, roles={"treatment": "treated"}, folds=FOLDS
    )
    np.testing.assert_allclose(rates_of(given), rates_of(formula), atol=1e-12)
    column = analyse(
        data.assign(p=formula.propensities),
        propensity="p",
        roles={"treatment": "treated"},
        folds=FOLDS,
    )
    np.testing.assert_allclose(rates_of(column), rates_of(formula), atol=1e-12)
    import statsmodels.formula.api as smf

    fit = smf.logit(PROPENSITY.replace("site", "C(site)"), data).fit(disp=0)
    result = analyse(data, propensity=fit, folds=FOLDS)
    np.testing.assert_allclose(rates_of(result), rates_of(formula), atol=1e-7)


def test_learners_in_every_place():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    data = people()
    for column in ("age", "sbp"):
        data[column] = (data[column] - data[column].mean()) / data[column].std()
    exact = LogisticRegression(C=1e8, max_iter=3000, tol=1e-10)
    options = {
        "outcome_model": cfair.Learner(exact, ["age", "sbp"]),
        "membership": cfair.Learner(exact, formula=MEMBERS),
        "folds": FOLDS,
    }
    result = analyse(data, **options)
    # the outcome models of learners are out of fold
    s = (data["risk"] >= 0.5).astype(float)
    base = np.column_stack([np.ones(400), data[["age", "sbp"]], data["treated"], s])
    for fold in range(5):
        train, held = fold != FOLDS, fold == FOLDS
        one, none = np.ones(held.sum()), np.zeros(held.sum())
        at = base[held]
        expected = logistic(
            base[train],
            data["died"].to_numpy()[train],
            [np.column_stack([at[:, :3], none, one]), np.column_stack([at[:, :3], none, none])],
        )
        model = result.outcome_model
        np.testing.assert_allclose(model.mu0_s1[held], expected[0], atol=1e-3)
        np.testing.assert_allclose(model.mu0_s0[held], expected[1], atol=1e-3)
    formulas = analyse(data, folds=FOLDS)
    np.testing.assert_allclose(result.memberships, formulas.memberships, atol=1e-3)
    np.testing.assert_allclose(rates_of(result), rates_of(formulas), atol=0.03)
    shown = "LogisticRegression(C=100000000.0, max_iter=3000, tol=1e-10) on age, sbp"
    assert shown in " ".join(str(result).split())
    assert result.outcome_model.coefficients.empty
    fast = cfair.Learner(LogisticRegression(), ["age", "sbp"])
    boot = analyse(
        data, propensity=fast, outcome_model=fast, membership=fast, n_boot=3, n_perm=2,
        roles={"treatment": "treated"},
    )  # fmt: skip
    assert np.isfinite(boot.boot.rates["cfpr"]).all()
    assert np.isfinite(boot.null.rates["cfpr"]).all()


@pytest.mark.parametrize("place", ["membership", "outcome_model"])
def test_order_of_rows_that_tie_does_not_matter_to_learners(place):
    pytest.importorskip("sklearn")
    from sklearn.ensemble import RandomForestClassifier

    data = people().drop(columns="ward")
    data[["age", "sbp"]] = data[["age", "sbp"]].round(-1)
    data["risk"] = data["risk"].round(0).clip(0.4, 0.6)
    data["risk"] += 0.01 * data["smoker"]
    assert data.drop(columns=["sex", "site"]).duplicated().sum() > 100
    forest = cfair.Learner(RandomForestClassifier(n_estimators=5), ["age", "sbp"])
    options = {
        "propensity": "treated ~ risk + age",
        "n_boot": 3,
        "n_perm": 3,
        "bootstrap": "rows",
        place: forest,
    }
    one = analyse(data, **options)
    for seed in (1, 2):
        other = analyse(data.sample(frac=1, random_state=seed), **options)
        np.testing.assert_allclose(rates_of(other), rates_of(one), atol=1e-9)
        pd.testing.assert_frame_equal(other.boot_draws, one.boot_draws, atol=1e-7)
        pd.testing.assert_frame_equal(other.null_draws, one.null_draws, atol=1e-7)


def test_a_call_in_place_of_a_score():
    data = people().assign(call=lambda t: (t["risk"] >= 0.5).astype(int))
    roles = {"score": None, "cutoff": None, "prediction": "call"}
    called, scored = analyse(data, roles=roles, folds=FOLDS), analyse(data, folds=FOLDS)
    np.testing.assert_allclose(rates_of(called), rates_of(scored), atol=1e-12)
    with pytest.raises(FormulaError, match="'call' is the call under audit, which small_subgroups"):
        analyse(data, roles=roles, outcome_model="~ age + call")


def test_collinear_columns_are_said():
    with pytest.warns(RankWarning):
        result = analyse(people().assign(twice=lambda t: 2 * t["age"]), membership="~ age + twice")
    assert any("left out as linear combinations" in note for note in result.notes)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"outcome_model": "~ age + sex"}, FormulaError, "'sex' is an attribute. By Bayes' rule"),
        ({"outcome_model": "~ age + treated"}, FormulaError, "'treated' is the treatment, which"),
        ({"outcome_model": "~ age + died"}, FormulaError, "'died' is on its right side"),
        ({"outcome_model": "treated ~ age"}, DataError, "the declared outcome is 'died'"),
        ({"outcome_model": "age"}, DataError, "a formula such as .* not probabilities in column"),
        ({"outcome_model": np.full(400, 0.3)}, DataError, "not probabilities as given"),
        ({"outcome_model": 3}, DataError, "outcome model must be a formula"),
        ({"membership": "~ age + sex"}, FormulaError, "'sex' is an attribute, and group"),
        ({"membership": np.ones(400)}, DataError, "membership must be a formula"),
        ({"membership": "~ age + unknown"}, FormulaError, "unknown"),
        ({"folds": None}, ValueError, "membership out of fold: give folds=5"),
        ({"folds": 1}, ValueError, "folds must be a whole number of at least 2"),
        ({"folds": np.zeros(400)}, DataError, "the given folds are all 0"),
        ({"borrow": "likelihood"}, ValueError, "borrow must be one of"),
        ({"external_membership": "~ age"}, DataError, "give external="),
        ({"truncation": (0.9, 0.1)}, ValueError, "truncation must be"),
        ({"interval": "exact"}, ValueError, "interval must be one of"),
        ({"level": 95}, ValueError, "level"),
        ({"resamples": [[500]]}, DataError, "resamples: replicate 0"),
        ({"n_boot": -1}, ValueError, "n_boot"),
    ],
)
def test_bad_inputs(options, error, message):
    with pytest.raises(error, match=message):
        analyse(**options)


def test_missing_treatment_and_missing_values():
    with pytest.raises(DataError, match="no treatment is declared"):
        analyse(propensity=np.full(400, 0.4))
    data = people()
    data.loc[3, "sbp"] = np.nan
    data.loc[4, "smoker"] = np.nan
    with pytest.raises(DataError, match="missing values in"):
        analyse(data)
    result = analyse(data, roles={"missing": "drop"})
    kept = analyse(data.drop(index=[3, 4]))
    assert result.cohort.n_used == 398
    np.testing.assert_allclose(rates_of(result), rates_of(kept), atol=1e-9)
    folds = pd.Series(FOLDS, dtype="Int64")
    folds[7] = pd.NA
    with pytest.raises(DataError, match="missing values in 'folds'"):
        analyse(folds=folds)


def test_a_lone_row_is_refused_before_any_work():
    data = people()
    lone = data.index[(data["sex"] == "M") & (data["site"] == 3)]
    with pytest.raises(DataError, match=r"'M & 3' \(1\) has fewer. Merge it with another group"):
        analyse(data.drop(index=lone[1:]))


# -- what users see -------------------------------------------------------------------------------


def test_the_printed_result_says_what_was_done():
    result = analyse(
        n_boot=45, n_perm=19, external=outsiders(), external_membership="~ age + sbp", seed=7
    )
    text = " ".join(str(result).split())
    for part in (
        "small subgroups by Bayes' rule",
        "outcome model died ~ age + sbp, and treated, without and with S; fitted on all rows",
        "membership multinomial logistic ~ age + sbp + smoker;",
        "then brought back to a sum of 1 (changes up to",
        "folds 5 drawn, stratified; membership is predicted out of fold",
        "external ~ age + sbp; 500 external rows",
        f"borrowed alpha = {result.alpha:.3f}, by the least multiclass Brier score",
        "intervals 95%, bootstrap (45 replicates), Wilson on the effective size",
        "bootstrap 45 replicates (rows with replacement, all models refitted)",
        "null 19 permutations of the labels (membership and propensity refitted)",
        "seed 7",
        "the outcome models leave the group out",
        "the permutation null makes the groups independent of everything",
        "the external model is fitted once",
    ):
        assert part in text, part
    wrong = str(analyse(external=outsiders(), scale_external="faircfint", renormalise=False))
    assert "scaled in fitting only, as faircfint does" in " ".join(wrong.split())
    assert "not brought back to a sum of 1" in " ".join(wrong.split())


def test_frames_plots_and_pickles():
    result = analyse(n_boot=45, n_perm=19, external=outsiders(), borrow="auc", level=0.9)
    assert result.metrics == ("cfpr", "cfnr", "fpr", "fnr")
    assert result.memberships.index.equals(people().index)
    assert set(result.shares.columns) >= {"overall", "among_errors", "among_all"}
    assert result.outcome_model.coefficients.index.tolist() == [
        "Intercept", "age", "sbp", "treated", "S: risk >= 0.5",
    ]  # fmt: skip
    assert "Outcome model: died ~ age + sbp" in repr(result.outcome_model)
    assert repr(result.borrowed.external) == "External: ~ age + sbp + smoker; 500 external rows"
    assert result.u_values(0.05)["n_valid"].tolist() == [19] * 6
    assert len(result.borrowed.null_alpha) == 19
    assert result.weights[people()["treated"] == 1].eq(0).all()
    for draw in (result.plot_null, result.plot_rates, result.plot_disparities):
        assert draw() is not None
    again = pickle.loads(pickle.dumps(result))
    assert str(again) == str(result)
    pd.testing.assert_frame_equal(again.rates, result.rates)


def test_one_newton_step_of_the_propensity_is_enough_under_permuted_labels(monkeypatch):
    data, folds = people(1500, 4), np.arange(1500) % 5
    permutations = np.stack([np.random.default_rng(r).permutation(1500) for r in range(20)])
    exact = analyse(data, permutations=permutations, folds=folds)
    monkeypatch.setattr("cfair.inference.small_subgroup.EXACT_BELOW", 1500)
    step = analyse(data, permutations=permutations, folds=folds)
    assert "the propensity by one Newton step" in step.null.method
    asked = analyse(data, permutations=permutations, folds=folds, exact=True)
    assert "membership and propensity refitted" in asked.null.method
    pd.testing.assert_frame_equal(asked.null_draws, exact.null_draws)
    for metric in ("cfpr", "cfnr"):
        error = step.null.rates[metric][:, :6] - exact.null.rates[metric][:, :6]
        spread = exact.null.rates[metric][:, :6].std(axis=0)
        assert 0 < np.abs(error / spread).mean() < 0.02, error / spread


# -- what a reader has to see ---------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
def test_weighting_alone_stands_beside_and_is_named_where_it_differs():
    a = cfair.Audit(
        cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups=["sex", "race"]
    )
    formula = "treated ~ sex * race + risk + age + sbp"
    result = a.small_subgroups(
        formula, outcome_model="~ age + sbp", membership="~ age + sbp", n_boot=0
    )
    ipw = a.counterfactual(formula)
    for metric in ("cfpr", "cfnr"):
        mine, theirs = (r.rates[r.rates["metric"] == metric] for r in (result, ipw))
        np.testing.assert_allclose(mine["estimate_ipw"], theirs["estimate"], atol=1e-12)
        np.testing.assert_allclose(mine["se_ipw"], theirs["se"], atol=1e-12)
    (note,) = [n for n in result.notes if n.startswith("weighting alone")]
    assert "cFPR of F & Black" in note
    assert "do not cover" in note
    assert result.rates.query("metric == 'fpr'")["estimate_ipw"].isna().all()


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
def test_external_weights_are_those_of_repeated_rows_and_other_shares_are_said():
    rng = np.random.default_rng(4)
    table = bad_inputs.cohort(400, 3)
    outside = bad_inputs.cohort(300, 4)[["sex", "race", "age"]]
    outside["w"] = np.where(outside["race"] == "Other", 4, 1)
    a = cfair.Audit(
        table, outcome="y", score="s", cutoff=0.5, groups=["sex", "race"], treatment="d"
    )
    options = {
        "outcome_model": "~ age", "membership": "~ age", "n_boot": 0,
        "external_membership": "~ age",
    }  # fmt: skip
    repeated = outside.loc[np.repeat(outside.index, outside["w"])].sample(frac=1, random_state=rng)
    one = a.small_subgroups("d ~ s + age", external=outside, external_weights="w", **options)
    two = a.small_subgroups("d ~ s + age", external=repeated.reset_index(drop=True), **options)
    three = a.small_subgroups("d ~ s + age", external=outside, **options)
    np.testing.assert_allclose(one.rates["estimate"], two.rates["estimate"], atol=1e-9)
    assert np.abs(one.rates["estimate"] - three.rates["estimate"]).max() > 1e-4
    assert any("other shares of the groups" in note for note in one.notes)
    with pytest.raises(DataError, match="give external="):
        a.small_subgroups("d ~ s + age", external_weights="w", outcome_model="~ age",
                          membership="~ age")  # fmt: skip


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
def test_too_few_replicates_are_said_where_the_intervals_would_be():
    a = cfair.Audit(
        bad_inputs.cohort(300), outcome="y", score="s", cutoff=0.5, groups="sex", treatment="d"
    )
    result = a.small_subgroups("d ~ s + age", outcome_model="~ age", membership="~ age", n_boot=5)
    assert "5 replicates are fewer than the 40 that a variance needs" in str(result)
    assert "[–" not in str(result)
    result.plot_overlap()


# -- groups so rare that a bound would be all of their probability --------------------------------


@cache
def with_a_rare_group(seed, n=20_000, size=30):
    """Rows of groups 0, 1 and 2; the last of `size` rows, older than others; and its true rates."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    group = rng.integers(0, 2, n)
    tilt = np.exp(0.5 * x[:, 0])
    group[rng.choice(n, size, replace=False, p=tilt / tilt.sum())] = 2
    risk = 1 / (1 + np.exp(-0.8 * x.sum(axis=1) - rng.normal(0, 0.7, n)))
    treated = (rng.uniform(size=n) < 0.2 + 0.3 * risk).astype(int)
    chance = 1 / (1 + np.exp(0.3 - x @ [1, 0.6]))  # untreated
    died = rng.uniform(size=n) < np.where(treated == 1, 0.8 * chance, chance)
    frame = pd.DataFrame({"age": x[:, 0], "sbp": x[:, 1], "g": group, "risk": risk})
    true = [
        np.average(flag, weights=tilt * amount)
        for flag, amount in ((risk >= 0.5, 1 - chance), (risk < 0.5, chance))
    ]
    return frame.assign(treated=treated, died=died.astype(int)), np.array(true)


def rare(seed=0, data=None, roles=None, **options):
    data = with_a_rare_group(seed)[0] if data is None else data
    members = {"membership": "~ age + sbp", **options}
    return analyse(data, "treated ~ risk + age + sbp", "g", roles, **members)


def bound_notes(result):
    return [note for note in result.notes if "membership bound" in note]


def test_rates_of_a_rare_group_are_near_the_truth():
    own = np.array([rates_of(rare(seed))[:, 2] for seed in range(8)])
    true = np.mean([with_a_rare_group(seed)[1] for seed in range(8)], axis=0)
    within = 3.5 * own.std(axis=0, ddof=1) / np.sqrt(8)
    assert (np.abs(own.mean(axis=0) - true) < within).all(), (own.mean(axis=0), true)
    assert (within < 0.5 * true).all()
    at_bound = np.array([rates_of(rare(seed, renormalise=False))[:, 2] for seed in range(8)])
    assert (at_bound.mean(axis=0) < 0.4 * true).all()  # what the bound of all groups would make


def test_a_rare_group_has_the_rates_and_errors_of_no_bound():
    found, bare = (rare(n_boot=60, **o) for o in ({}, {"truncation": (1e-6, 1 - 1e-6)}))
    own, free = (r.rates[r.rates["metric"].isin(["cfpr", "cfnr"])] for r in (found, bare))
    np.testing.assert_allclose(own["estimate"], free["estimate"], rtol=0.01)
    np.testing.assert_allclose(own["se"], free["se"], rtol=0.02)
    assert (own.loc[own["group"].astype(str) == "2", "n_effective"] < 40).all()
    assert bound_notes(found) == [
        "membership bound of 2 lowered to 0.00038, a quarter of its share, below the 0.005 of "
        "groups that are not so rare."
    ]
    assert "membership bound of 2 lowered" in " ".join(str(found).split())
    assert bound_notes(bare) == bound_notes(rare(renormalise=False)) == []


def test_replicates_keep_the_bounds_of_the_full_sample():
    data, _ = with_a_rare_group(3, n=3000, size=12)
    rows = np.r_[np.arange(3000), np.repeat(np.flatnonzero(data["g"] == 2), 4)]
    folds = np.arange(3000) % 4
    found = rare(data=data, folds=folds, resamples=[rows], n_boot=None)
    model = found.membership_model
    assert model.lower.tolist() == [0.005, 0.005, 0.001]
    again = rare(data=data.iloc[rows].reset_index(drop=True), folds=folds[rows])
    assert again.membership_model.lower[2] > 0.004
    same = rare(data=data.iloc[rows].reset_index(drop=True), folds=folds[rows],
                truncation=(0.001, 0.995))  # fmt: skip
    drawn = [found.boot.rates[m][0, 2] for m in ("cfpr", "cfnr")]
    np.testing.assert_allclose(drawn, rates_of(same)[:, 2], rtol=1e-3)
    assert np.abs(rates_of(again)[:, 2] / drawn - 1).max() > 0.002


def test_groups_of_2_percent_keep_the_bound_bit_for_bit(monkeypatch):
    options = {"n_boot": 5, "n_perm": 5, "external": outsiders()}
    found = analyse(**options)
    assert (found.membership_model.lower == 0.005).all()
    assert bound_notes(found) == []
    monkeypatch.setattr(
        "cfair.nuisance.membership.lower_limits", lambda low, group, K, weights: np.full(K, low)
    )
    plain = analyse(**options)
    pd.testing.assert_frame_equal(found.rates, plain.rates, check_exact=True)
    assert found.memberships.equals(plain.memberships)
    for draws in ("boot", "null"):
        for metric, values in getattr(found, draws).rates.items():
            np.testing.assert_array_equal(values, getattr(plain, draws).rates[metric])


def test_external_probabilities_have_the_bounds_of_the_internal_ones():
    data, _ = with_a_rare_group(1)
    outside = with_a_rare_group(2)[0][["g", "age", "sbp"]]
    found, bare = (
        rare(data=data, external=outside, **o) for o in ({}, {"truncation": (1e-6, 1 - 1e-6)})
    )
    assert found.borrowed.external.p[:, 2].min() < 0.001
    np.testing.assert_allclose(rates_of(found)[:, 2], rates_of(bare)[:, 2], rtol=0.02)


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
def test_the_way_of_the_r_package_has_one_bound(monkeypatch):
    data, _ = with_a_rare_group(0, n=2000, size=8)
    data = data.rename(columns={"g": "A1", "risk": "S_prob", "died": "Y", "treated": "D"})

    def estimated():
        return cfair.faircfint.analysis_estimation(
            data.assign(A2=np.arange(2000) % 2), cutoff=0.5, pi_xvars=["age", "sbp"],
            estimator_type="small_internal", outcome_xvars=["age", "sbp"],
            pa_xvars_int=["age", "sbp"], seed=1,
        )  # fmt: skip

    def refused(*given):
        raise AssertionError("no bound by shares")

    monkeypatch.setattr("cfair.nuisance.membership.lower_limits", refused)
    assert estimated() is not None
    with pytest.raises(AssertionError, match="no bound by shares"):
        analyse()


def test_a_size_that_is_masked_is_not_told_by_its_bound():
    data, _ = with_a_rare_group(0, n=4000, size=8)
    assert "lowered to 0.0005," in bound_notes(rare(data=data))[0]
    hidden = bound_notes(rare(data=data, roles={"suppress_below": 11}))
    assert [note.split(", below")[0] for note in hidden] == [
        "membership bound of 2 lowered, a quarter of its share"
    ]


def test_groups_whose_membership_rests_on_the_bound_are_named():
    data, _ = with_a_rare_group(0, n=3000)
    data = data.assign(g=np.where(data["age"] + 0.2 * data["sbp"] > 1.5, 1, 0))
    flip = np.random.default_rng(0).uniform(size=3000) < 0.5 * (np.abs(data["age"] - 1.5) < 0.3)
    data["g"] = np.where(flip, 1 - data["g"], data["g"])
    notes = [note for note in rare(data=data).notes if "rest on the bound" in note]
    assert notes == [
        "membership of 1 is truncated in more than half of the rows: there its rates rest on the "
        "bound, not on the data. See whether they hold with truncation=(1e-6, 1 - 1e-6), or merge "
        "it with another group."
    ]
    assert not [note for note in rare().notes if "rest on the bound" in note]
