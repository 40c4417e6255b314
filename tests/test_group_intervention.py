"""Error rates under an intervention on membership: estimates, inference, replicates, messages."""

from __future__ import annotations

import inspect
import json
import tracemalloc
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import bad_inputs
import numpy as np
import pandas as pd
import pytest

import cfair
from cfair.datasets import GroupEffect, simulate_cohort, true_rates
from cfair.errors import DataError, FormulaError, ModelWarning, SeparationWarning
from cfair.estimators import group_intervention_rates
from cfair.formula import AttributeSplit
from cfair.inference import group_intervention as inference
from cfair.inference.association import cramers_v
from cfair.inference.equality import logit_wald
from cfair.inference.group_intervention import (
    intervention_covariance,
    intervention_walds,
    rates_and_influence,
)
from cfair.inference.intervention_models import InterventionModels
from cfair.inference.rows import Rows
from cfair.nuisance.binary import BinaryModel, DesignRows
from cfair.nuisance.crossfit import Folds
from cfair.nuisance.design_rows import RowsUnderGroups
from cfair.nuisance.logistic import fit_logistic
from cfair.nuisance.membership import MembershipModel
from cfair.nuisance.multinomial import fit_multinomial
from cfair.nuisance.multinomial_binary import (
    fit_binary_many,
    fit_binary_many_under_groups,
    fit_binary_under_groups,
)
from cfair.results import text

RECORDED = Path(__file__).parent / "data"
DESIGN = GroupEffect()
OUTCOME, MEMBERS = "y ~ x1 + x2", "~ x1 + x2"
NAMES = ["a & u", "a & v", "b & u", "b & v"]


@cache
def drawn(n=600, seed=1):
    return simulate_cohort(n, seed=seed, design=DESIGN)


def audit_of(frame, **more):
    options = {"outcome": "y", "score": "score", "cutoff": 0.5, "groups": ["a1", "a2"], **more}
    return cfair.Audit(frame, **options)


def analysed(frame, audit=None, **more):
    options = {
        "outcome_model": OUTCOME,
        "membership": MEMBERS,
        "scores": DESIGN.scores_under(frame),
        **more,
    }
    return audit_of(frame, **(audit or {})).group_intervention(**options)


def compared(result, column="estimate"):
    """(2K,) values of cFPR and cFNR."""
    rates = result.rates
    return rates.loc[rates["metric"].isin(["cfpr", "cfnr"]), column].to_numpy()


@cache
def truth():
    rates = true_rates(DESIGN)
    return np.concatenate([rates["cfpr"], rates["cfnr"]])


# -- the recorded case ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def case():
    frame = pd.read_csv(RECORDED / "closed_form_case.csv")
    with open(RECORDED / "closed_form_case.json") as file:
        return frame, json.load(file)


@pytest.mark.parametrize("kind", ["sr", "dr"])
@pytest.mark.parametrize("position", range(3))
def test_recorded_rates_and_summaries(case, kind, position):
    frame, recorded = case
    groups = recorded["groups"]
    expected = recorded["results"][position]
    mu = frame[[f"mu_{g}" for g in groups]].set_axis(groups, axis=1)
    table = frame.assign(one=frame["A"].str[0], two=frame["A"].str[1])
    audit = cfair.Audit(
        table, outcome="Y", prediction=(np.arange(len(frame)) % 2), groups=["one", "two"]
    )
    labels = [f"{g[0]} & {g[1]}" for g in groups]
    result = audit.group_intervention(
        outcome_model=mu.set_axis(labels, axis=1),
        membership=frame[[f"pi_{g}" for g in groups]].set_axis(labels, axis=1),
        cutoff=expected["tau"],
        estimator=kind,
        truncation=None,
    )
    want = expected[kind]
    for metric in ("cfpr", "cfnr"):
        got = result.rates.query("metric == @metric")
        np.testing.assert_allclose(got["estimate"], list(want[metric].values()), atol=1e-12)
        other = "dr" if kind == "sr" else "sr"
        also = expected[other][metric].values()
        np.testing.assert_allclose(got[f"estimate_{other}"], list(also), atol=1e-12)
    for metric in ("fpr", "fnr"):
        got = result.rates.query("metric == @metric")["estimate"]
        np.testing.assert_allclose(got, list(want[f"{metric}_obs"].values()), atol=1e-12)
    disparities = result.disparities.set_index("metric")["estimate"]
    for metric, end in (("cfpr", "pos"), ("cfnr", "neg")):
        expected = np.array(
            [want["summaries"][f"{start}_{end}"] for start in ("avg", "max", "var")]
        )
        expected[2] *= 6 / 5  # recorded with the number of pairs as divisor, not one less
        np.testing.assert_allclose(disparities[metric], expected, atol=1e-12)
    assert "count as known" in " ".join(result.notes)


# -- the pipeline against plain steps -------------------------------------------------------------


def codes_of(frame):
    return (2 * (frame["a1"] == "b") + (frame["a2"] == "v")).to_numpy()


def plain_rates(frame, folds, scores, cutoff, weights=None, doubly=True, group=None):
    """Fit, predict and average, one step after the other."""
    X = np.column_stack([np.ones(len(frame)), frame["x1"], frame["x2"]])
    group = codes_of(frame) if group is None else group
    y, K = frame["y"].to_numpy(), 4
    dummies = np.eye(K)[:, 1:]
    mu, p = np.empty((len(y), K)), np.empty((len(y), K))
    a = np.ones(len(y)) if weights is None else weights
    for fold in np.unique(folds):
        train, held = (folds != fold) & (a > 0), folds == fold
        fit = fit_logistic(np.hstack([X, dummies[group]])[train], y[train], weights=a[train])
        for g in range(K):
            mu[held, g] = fit.predict(np.hstack([X, dummies[np.full(len(y), g)]])[held])
        members = fit_multinomial(X[train], group[train], K, weights=a[train])
        p[held] = np.clip(members.predict(X[held]), 0.005, 0.995)
    more = {"y": y, "group": group, "p_group": p} if doubly else {}
    shown = mu if scores is None else scores
    return np.concatenate(group_intervention_rates(mu, cutoff, shown, weights=a, **more))


@pytest.mark.parametrize("doubly", [True, False])
@pytest.mark.parametrize("given", [True, False])
def test_rates_are_those_of_the_steps(doubly, given):
    frame = drawn()
    scores = DESIGN.scores_under(frame) if given else None
    result = analysed(frame, scores=scores, estimator="dr" if doubly else "sr")
    shown = None if scores is None else scores.to_numpy()
    expected = plain_rates(frame, result.folds.codes, shown, result.cutoff, doubly=doubly)
    np.testing.assert_allclose(compared(result), expected, atol=1e-10)
    other = plain_rates(frame, result.folds.codes, shown, result.cutoff, doubly=not doubly)
    column = "estimate_sr" if doubly else "estimate_dr"
    np.testing.assert_allclose(compared(result, column), other, atol=1e-10)


def test_the_rule_of_the_model_itself_is_youdens_on_the_own_group():
    frame = drawn()
    result = analysed(frame, scores=None)
    own = result.mu.to_numpy()[np.arange(len(frame)), codes_of(frame)]
    y = frame["y"] == 1
    cutoffs = np.unique(own)
    index = [(own[y] >= c).mean() - (own[~y] >= c).mean() for c in cutoffs]
    assert result.cutoff == pytest.approx(cutoffs[int(np.argmax(index))], abs=1e-9)
    assert (result.scores >= result.cutoff).to_numpy().any()
    np.testing.assert_allclose(result.scores, result.mu, atol=1e-10)
    observed = result.rates.query("metric == 'fpr'")["estimate"].to_numpy()
    flagged = own >= result.cutoff - 1e-9
    for g in range(4):
        rows = (codes_of(frame) == g) & ~y
        assert observed[g] == pytest.approx(flagged[rows].mean())


def test_a_formula_with_the_attributes_is_used_as_it_is():
    frame = drawn()
    added = analysed(frame)
    crossed = analysed(frame, outcome_model="y ~ x1 + x2 + a1 * a2")
    np.testing.assert_allclose(compared(added), compared(crossed), atol=1e-9)
    np.testing.assert_allclose(compared(added, "se"), compared(crossed, "se"), atol=1e-9)
    slopes = analysed(frame, outcome_model="y ~ x1 * a1 * a2 + x2")
    X = np.column_stack([np.ones(len(frame)), frame["x1"], frame["x2"]])
    group, fold = codes_of(frame), slopes.folds.codes == 0

    def row(g):
        e = np.eye(4)[g][:, 1:]
        return np.hstack([X, e, e * X[:, [1]]])

    fit = fit_logistic(row(group)[~fold], frame["y"].to_numpy()[~fold])
    expected = fit.predict(row(np.full(len(frame), 2))[fold])
    np.testing.assert_allclose(slopes.mu["b & u"][fold], expected, atol=1e-9)


def test_a_formula_with_some_of_the_attributes_is_warned_of():
    frame = drawn()
    with pytest.warns(ModelWarning, match="names a1, but not a2"):
        result = analysed(frame, outcome_model="y ~ x1 + x2 + a1")
    assert any("names a1, but not a2" in note for note in result.notes)
    np.testing.assert_array_equal(result.mu["a & u"], result.mu["a & v"])
    assert (result.mu["a & u"] != result.mu["b & u"]).all()


# -- truth ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "membership"),
    [(OUTCOME, MEMBERS), ("y ~ 1", MEMBERS), (OUTCOME, "~ 1")],
    ids=["both right", "outcome wrong", "membership wrong"],
)
def test_a_known_effect_of_group_is_found_if_one_model_is_right(outcome, membership):
    result = analysed(drawn(20_000, 7), outcome_model=outcome, membership=membership)
    error = compared(result) - truth()
    assert np.abs(error).max() < 0.03
    assert np.abs(error / compared(result, "se")).max() < 3.5


def test_single_robust_rates_are_wrong_with_a_wrong_outcome_model():
    frame = drawn(20_000, 7)
    right = analysed(frame, estimator="sr", membership=None)
    assert np.abs(compared(right) - truth()).max() < 0.03
    wrong = analysed(frame, estimator="sr", outcome_model="y ~ 1", membership=None)
    assert np.abs(compared(wrong) - truth()).max() > 0.1
    assert "estimate_dr" not in wrong.rates


# -- influence functions --------------------------------------------------------------------------


class Whole(Folds):
    """One fold that is predicted by its own rows."""

    def train(self, fold):
        return np.ones(len(self.codes), dtype=bool)


def in_sample(frame, weights, doubly, truncation=(0.1, 0.9)):
    """Everything fitted and used on the same rows."""
    n, K, group = len(frame), 4, codes_of(frame)
    y, S = frame["y"].to_numpy(), DESIGN.scores_under(frame).to_numpy()
    X = np.column_stack([np.ones(n), frame["x1"], frame["x2"]])
    split = AttributeSplit(
        X, np.eye(K)[:, 1:], None, np.arange(3), 3 + np.arange(3), np.zeros(0, dtype=int)
    )
    rows = DesignRows(np.hstack([X, np.eye(K)[:, 1:][group]]), split)
    everyone, every = np.ones(n, dtype=bool), RowsUnderGroups(split, K)
    outcome = BinaryModel(y.astype(float), rows, (rows,), everyone, weights, every=every)
    whole = Whole(np.zeros(n, dtype=int), 1, drawn=False)
    members = MembershipModel(group, K, X, weights, whole, truncation=truncation, renormalise=False)
    fit, p = outcome.fit(), members.fit(labels=group)
    flagged = (S[np.arange(n), group] >= 0.5).astype(int)
    return InterventionModels(
        Rows(y, flagged, np.zeros(n, dtype=int), group, K, weights),
        (X[:, 1], X[:, 2]),
        0.5,
        fit.every,
        S,
        p.p if doubly else None,
        outcome,
        outcome,
        fit,
        members if doubly else None,
        p.raw if doubly else None,
    ).intervened()


@pytest.mark.parametrize("doubly", [True, False])
def test_influence_is_the_derivative_in_the_weight_of_a_row(doubly):
    frame, h = drawn(250, 3), 1e-5
    weights = np.random.default_rng(0).uniform(0.5, 1.5, len(frame))
    found = in_sample(frame, weights, doubly)
    _, psi = rates_and_influence(found)
    if doubly:
        assert 0 < np.mean(~found.membership.free) < 0.3  # some are truncated
    for i in (3, 50, 111, 249):
        moved = []
        for sign in (1, -1):
            w = weights.copy()
            w[i] *= 1 + sign * h
            moved.append(rates_and_influence(in_sample(frame, w, doubly))[0])
        slope = (moved[0] - moved[1]) / (2 * h)
        np.testing.assert_allclose(psi[i] / len(frame), slope, atol=1e-8)
    np.testing.assert_allclose(psi.sum(axis=0), 0, atol=1e-7)


def test_the_models_matter_in_the_influence():
    found = in_sample(drawn(250, 3), None, False)
    full = np.diag(intervention_covariance(found).covariance)
    known = np.diag(intervention_covariance(replace(found, outcome=None)).covariance)
    assert (known < 0.7 * full).all()


@pytest.mark.parametrize("block", [1, 77, 500_000])
@pytest.mark.parametrize("doubly", [True, False])
def test_sums_by_blocks_are_those_of_all_rows(monkeypatch, doubly, block):
    weights = np.random.default_rng(0).choice([0.0, 0.5, 1.5], 250)
    found = in_sample(drawn(250, 3), weights, doubly)
    estimate, psi = rates_and_influence(found)
    event = found.mu if not doubly else found.event(slice(None))
    for m, amount in enumerate((1 - event, event)):
        hit = found.flagged != bool(m)
        expected = weights @ (hit * amount) / (weights @ amount)
        np.testing.assert_allclose(estimate[4 * m : 4 * m + 4], expected, atol=1e-12)
    cluster = np.random.default_rng(1).integers(0, 40, 250)
    sums = np.stack([psi[(cluster == c) & (weights > 0)].sum(axis=0) for c in range(40)])
    monkeypatch.setattr("cfair.inference.intervened.BLOCK", block)
    found = replace(found)  # without what it has worked out already
    np.testing.assert_allclose(rates_and_influence(found)[1], psi, atol=1e-12)
    plain = intervention_covariance(found)
    np.testing.assert_allclose(plain.covariance, psi.T @ psi / 250**2, atol=1e-15)
    clustered = intervention_covariance(found, cluster)
    C = len(np.unique(cluster[weights > 0]))
    expected = sums.T @ sums / 250**2 * C / (C - 1)
    np.testing.assert_allclose(clustered.covariance, expected, atol=1e-15)
    expected = [
        logit_wald(plain.estimate[at], plain.covariance[at, at], plain.kish[at])
        for at in (slice(4), slice(4, 8))
    ]
    np.testing.assert_allclose(intervention_walds(found), expected, rtol=1e-10)


def test_influence_is_worked_out_where_it_is_used_only(monkeypatch):
    made = []
    once = inference._Influence

    class Counted(once):
        def __init__(self, found):
            made.append(found)
            super().__init__(found)

    monkeypatch.setattr(inference, "_Influence", Counted)
    frame = drawn(300, 4)
    analysed(frame, n_boot=3)  # that of the rates; the other estimator has rates alone
    assert len(made) == 1
    analysed(frame, n_perm=3)  # and one for the statistics of each permutation, and of the sample
    assert len(made) == 1 + 1 + 3 + 1
    tree = pytest.importorskip("sklearn.tree").DecisionTreeClassifier(min_samples_leaf=30)
    learner = cfair.Learner(tree, columns=["x1", "x2"])
    analysed(frame, outcome_model=learner, estimator="sr", n_boot=40, n_perm=3)
    assert len(made) == 6


def test_clusters_of_one_row_are_no_clusters():
    found = in_sample(drawn(250, 3), None, True)
    rows = np.arange(250)
    plain, clustered = intervention_covariance(found), intervention_covariance(found, rows)
    np.testing.assert_allclose(clustered.covariance, plain.covariance * 250 / 249)
    np.testing.assert_allclose(clustered.kish, plain.kish)
    pairs = intervention_covariance(found, rows // 2)
    psi = rates_and_influence(found)[1]
    sums = psi[::2] + psi[1::2]
    np.testing.assert_allclose(pairs.covariance, sums.T @ sums / 250**2 * 125 / 124)


def test_clusters_in_an_audit():
    frame = drawn(300, 4)
    double = pd.concat([frame, frame], ignore_index=True).assign(site=np.tile(np.arange(300), 2))
    folds = np.tile(np.arange(300) % 5, 2)
    once = analysed(frame, folds=np.arange(300) % 5)
    twice = analysed(double, cluster="site", folds=folds)
    np.testing.assert_allclose(compared(twice), compared(once), atol=1e-9)
    factor = np.sqrt(300 / 299)
    np.testing.assert_allclose(compared(twice, "se"), factor * compared(once, "se"), rtol=1e-7)
    assert "clusters (site)" in str(twice)
    with_kept = analysed(double, cluster="site")
    halves = with_kept.folds.codes.reshape(2, 300)
    np.testing.assert_array_equal(halves[0], halves[1])


# -- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["dr", "sr"])
def test_whole_weights_are_repeated_rows(estimator):
    frame = drawn(300, 4)
    times = np.random.default_rng(2).integers(0, 4, len(frame))
    folds = np.arange(len(frame)) % 4
    weighted = analysed(
        frame.assign(w=times), audit={"weights": "w"}, folds=folds, estimator=estimator
    )
    repeated = frame.loc[np.repeat(frame.index, times)].reset_index(drop=True)
    plain = analysed(repeated, folds=np.repeat(folds, times), estimator=estimator)
    np.testing.assert_allclose(compared(weighted), compared(plain), atol=1e-9)


def test_weights_enter_models_and_standard_errors():
    frame = drawn()
    w = np.random.default_rng(3).uniform(0.2, 3, len(frame))
    folds = np.arange(len(frame)) % 5
    result = analysed(frame.assign(w=w), audit={"weights": "w"}, folds=folds)
    S = DESIGN.scores_under(frame).to_numpy()
    expected = plain_rates(frame, result.folds.codes, S, 0.5, weights=w / w.mean())
    np.testing.assert_allclose(compared(result), expected, atol=1e-10)
    scaled = analysed(frame.assign(w=1000 * w), audit={"weights": "w"}, folds=folds)
    np.testing.assert_allclose(compared(scaled, "se"), compared(result, "se"), rtol=1e-9)
    unweighted = analysed(frame, folds=folds)
    assert compared(result, "se").mean() > 1.05 * compared(unweighted, "se").mean()


# -- replicates -----------------------------------------------------------------------------------


def test_bootstrap_is_a_loop_of_refits():
    frame = drawn(300, 4)
    rng = np.random.default_rng(5)
    resamples = [rng.integers(0, 300, 300) for _ in range(6)]
    for scores in (DESIGN.scores_under(frame), None):
        result = analysed(frame, scores=scores, resamples=resamples)
        shown = None if scores is None else scores.to_numpy()
        draws = result.boot_draws
        for b, rows in enumerate(resamples):
            counts = np.bincount(rows, minlength=300).astype(float)
            expected = plain_rates(frame, result.folds.codes, shown, result.cutoff, weights=counts)
            got = [draws[m, name][b] for m in ("cfpr", "cfnr") for name in NAMES]
            np.testing.assert_allclose(got, expected, atol=1e-7)


@pytest.mark.parametrize("doubly", [True, False])
def test_permutations_are_a_loop_of_refits(doubly):
    frame = drawn(300, 4)
    rng = np.random.default_rng(6)
    permutations = np.stack([rng.permutation(300) for _ in range(5)])
    scores = DESIGN.scores_under(frame)
    group = codes_of(frame)
    own = scores.to_numpy()[np.arange(300), group]
    estimator = "dr" if doubly else "sr"
    for given in (scores, None):
        result = analysed(frame, scores=given, permutations=permutations, estimator=estimator)
        draws = result.null_draws
        for r, order in enumerate(permutations):
            # what is under audit keeps the prediction of the row's own group
            shown = None if given is None else np.repeat(own[:, None], 4, axis=1)
            expected = plain_rates(
                frame, result.folds.codes, shown, result.cutoff, doubly=doubly, group=group[order]
            )
            got = [draws[m, name][r] for m in ("cfpr", "cfnr") for name in NAMES]
            np.testing.assert_allclose(got, expected, atol=1e-7)
        assert result.null.wald.shape == (5, 2)
        assert np.isfinite(result.null.wald).all()


def test_the_unpermuted_labels_give_the_observed_wald_statistics():
    frame = drawn(300, 4)
    same = np.tile(np.arange(300), (2, 1))
    result = analysed(frame, scores=None, permutations=same)
    np.testing.assert_allclose(result.null.wald, [result.null_wald] * 2, rtol=1e-6)
    np.testing.assert_allclose(result.null_draws["cfpr", NAMES[0]], compared(result)[0], atol=1e-8)


def test_bootstrap_and_influence_functions_agree():
    frame = drawn(2000, 8)
    result = analysed(frame, n_boot=200)
    ratio = compared(result, "boot_se") / compared(result, "se")
    assert (ratio > 0.8).all()
    assert (ratio < 1.25).all()
    assert (compared(result, "boot_valid") == 200).all()


def test_a_null_without_any_effect_of_group():
    rng = np.random.default_rng(11)
    frame = drawn(800, 9).copy()
    order = rng.permutation(len(frame))
    frame[["a1", "a2"]] = frame[["a1", "a2"]].to_numpy()[order]
    scores = np.repeat(frame["score"].to_numpy()[:, None], 4, axis=1)
    result = analysed(frame, scores=scores, n_perm=99)
    assert (result.disparities.query("metric in ['cfpr', 'cfnr']")["p_value"] > 0.01).all()
    assert any("do not change with the group" in note for note in result.notes)


@pytest.mark.parametrize("times", [1, 20])
@pytest.mark.parametrize(("difference", "said"), [(0.04, True), (0.24, False)])
def test_nearly_independent_does_not_depend_on_the_number_of_rows(times, difference, said):
    """Group explains 0.2% of the outcome, or 6%: the p-value of the former is small in the end."""
    rng = np.random.default_rng(4)
    frame = drawn(400, 9).copy()
    second = (frame["a1"] == "b").to_numpy()
    share = 0.5 + difference * (second - 0.5)
    for g in (False, True):  # exact shares, in random order
        rows = np.flatnonzero(second == g)
        event = np.arange(len(rows)) < round(share[rows[0]] * len(rows))
        frame.loc[frame.index[rows], "y"] = rng.permutation(event).astype(int)
    table = pd.concat([frame] * times, ignore_index=True)
    folds = np.tile(np.arange(len(frame)) % 5, times)
    result = analysed(table, audit={"groups": "a1"}, scores=None, cutoff=0.5, folds=folds)
    notes = [note for note in result.notes if "nearly independent" in note]
    assert len(notes) == said
    if said:
        assert "Cramer's V" in notes[0]
        assert text.p_value(result.association.p_value) in notes[0]
        assert (result.association.p_value < 0.05) == (times == 20)


def test_association_is_phi_with_the_limits_of_the_noncentral_chi_square():
    from scipy.stats import chi2_contingency, ncx2

    table = np.array([[70.0, 130.0], [90.0, 110.0], [55.0, 45.0]])
    found = cramers_v(table, 500)
    chi2, p, df, _ = chi2_contingency(table, correction=False)
    assert found.p_value == pytest.approx(p)
    assert found.v**2 == pytest.approx((chi2 - df) / 500)
    assert ncx2.cdf(chi2, df, 500 * found.low**2) == pytest.approx(0.975)
    assert ncx2.cdf(chi2, df, 500 * found.high**2) == pytest.approx(0.025)
    more = cramers_v(1000 * table, 500_000)
    assert more.v == pytest.approx(np.sqrt(chi2 / 500), rel=1e-3)
    assert more.high - more.low < 0.01
    half = cramers_v(table, 250)  # unequal weights
    assert half.p_value > found.p_value
    assert half.low < found.low < found.high < half.high
    empty = cramers_v(np.vstack([table, [[0, 0]]]), 500)
    assert empty == found
    assert np.isnan(cramers_v(table[:1], 200).v)
    assert np.isnan(cramers_v(table * [1, 0], 200).v)


def test_scores_with_permutations_are_said_to_judge_two_predictions():
    frame = drawn(300, 4)
    what = "the prediction under each group, S^g"
    same = np.tile(np.arange(300), (2, 1))
    for options, said in [
        ({"n_perm": 2}, True),
        ({"permutations": same}, True),
        ({"n_perm": 2, "scores": None}, False),
        ({"n_boot": 2}, False),
    ]:
        notes = analysed(frame, **options).notes
        assert sum(what in note for note in notes) == said, options


def test_replicates_do_not_depend_on_jobs():
    frame = drawn(300, 4)
    one, two = (analysed(frame, n_boot=60, n_perm=60, seed=4, n_jobs=j) for j in (1, 2))
    pd.testing.assert_frame_equal(one.boot_draws, two.boot_draws)
    pd.testing.assert_frame_equal(one.null_draws, two.null_draws)


# -- order and names ------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [True, False])
def test_the_order_of_the_rows_does_not_matter(given):
    frame = drawn(400, 12)
    options = {"n_boot": 10, "n_perm": 10, "seed": 3}
    results = []
    for table in (frame, frame.sample(frac=1, random_state=1)):
        scores = DESIGN.scores_under(table) if given else None
        results.append(analysed(table, scores=scores, **options))
    one, other = results
    assert one.cutoff == other.cutoff
    for column in ("estimate", "se", "ci_low", "boot_se"):
        np.testing.assert_allclose(compared(one, column), compared(other, column), atol=1e-9)
    np.testing.assert_allclose(one.null_draws, other.null_draws, atol=1e-8)
    np.testing.assert_allclose(one.mu, other.mu.loc[one.mu.index], atol=1e-9)


def test_the_names_of_the_groups_do_not_matter():
    frame = drawn(400, 12)
    named = frame.assign(a1=frame["a1"].map({"a": "z", "b": "c"}))
    scores = DESIGN.scores_under(frame)
    options = {"n_boot": 10, "n_perm": 10, "seed": 3}
    one = analysed(frame, scores=scores, **options)
    renamed = scores.rename(columns=lambda n: n.replace("a &", "z &").replace("b &", "c &"))
    other = analysed(named, scores=renamed, **options)
    place = [2, 3, 0, 1]
    order = np.r_[place, 4 + np.array(place)]
    for column in ("estimate", "se", "boot_se"):
        np.testing.assert_allclose(compared(one, column), compared(other, column)[order], atol=1e-8)
    u = [r.disparities.set_index(["metric", "statistic"])["p_value"] for r in (one, other)]
    pd.testing.assert_series_equal(*u)


# -- scores ---------------------------------------------------------------------------------------


def test_scores_by_array_and_by_frame():
    frame = drawn()
    scores = DESIGN.scores_under(frame)
    by_label = compared(analysed(frame, scores=scores))
    shuffled = scores[NAMES[::-1]].sample(frac=1, random_state=0)
    tuples = scores.set_axis([tuple(n.split(" & ")) for n in scores.columns], axis=1)
    for given in (scores.to_numpy(), shuffled, tuples):
        np.testing.assert_array_equal(compared(analysed(frame, scores=given)), by_label)


def test_scores_that_are_not_the_audits_are_warned_of():
    frame = drawn()
    scores = DESIGN.scores_under(frame)
    with pytest.warns(ModelWarning, match="under the own group is not score"):
        analysed(frame, scores=scores.to_numpy()[:, ::-1])
    audit = {"score": None, "cutoff": None, "prediction": (frame["score"] < 0.5).to_numpy()}
    with pytest.warns(ModelWarning, match="under the own group is not prediction"):
        analysed(frame, audit=audit, scores=scores, cutoff=0.5)


def test_a_fitted_classifier_is_asked_with_the_group_set():
    pytest.importorskip("sklearn")
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    frame = drawn().astype({"a1": "category"})
    columns = ["x1", "a1", "a2"]
    model = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["a1", "a2"]), remainder="passthrough"),
        LogisticRegression(),
    ).fit(frame[columns], frame["y"])
    table = frame.assign(score=model.predict_proba(frame[columns])[:, 1])
    audit = {"cutoff": 0.4}
    result = analysed(table, audit=audit, scores=model, score_columns=columns)
    moved = frame[columns].assign(
        a1=pd.Categorical(["b"] * len(frame), categories=["a", "b"]), a2="u"
    )
    np.testing.assert_allclose(result.scores["b & u"], model.predict_proba(moved)[:, 1])
    assert result.cutoff == 0.4
    assert "LogisticRegression" in str(result)
    by_hand = analysed(table, audit=audit, scores=result.scores)
    np.testing.assert_array_equal(compared(by_hand), compared(result))
    assert not any("under the own group" in note for note in result.notes)


def test_a_classifier_without_the_attributes_says_the_same_of_all_groups():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    frame = drawn()
    model = LogisticRegression().fit(frame[["x1", "x2"]], frame["y"])
    table = frame.assign(score=model.predict_proba(frame[["x1", "x2"]])[:, 1])
    result = analysed(table, scores=model, score_columns=["x1", "x2"])
    assert (result.scores.nunique(axis=1) == 1).all()
    assert any("do not change with the group" in note for note in result.notes)


# -- learners -------------------------------------------------------------------------------------


def forest(**more):
    ensemble = pytest.importorskip("sklearn.ensemble")
    return cfair.Learner(
        ensemble.RandomForestClassifier(20, min_samples_leaf=20, **more), columns=["x1", "x2"]
    )


def test_a_learner_is_given_the_groups_and_predicts_out_of_fold():
    frame = drawn(400, 12)
    result = analysed(frame, outcome_model=forest(), membership=forest(), seed=2)
    assert np.abs(result.mu["a & u"] - result.mu["b & v"]).mean() > 0.01
    assert any("counts as known in the standard errors" in note for note in result.notes)
    assert np.isfinite(compared(result, "se")).all()
    shuffled = frame.sample(frac=1, random_state=3)
    again = analysed(
        shuffled,
        scores=DESIGN.scores_under(shuffled),
        outcome_model=forest(),
        membership=forest(),
        seed=2,
    )
    np.testing.assert_allclose(compared(again), compared(result), atol=1e-12)


def test_a_learner_does_not_see_the_names_of_the_groups():
    frame = drawn(400, 12)
    named = frame.assign(a1=frame["a1"].map({"a": "z", "b": "c"}))
    one = analysed(frame, outcome_model=forest(), scores=None, cutoff=0.4)
    other = analysed(named, outcome_model=forest(), scores=None, cutoff=0.4)
    np.testing.assert_allclose(one.mu["a & v"], other.mu["z & v"], atol=1e-12)
    np.testing.assert_allclose(compared(one)[:4], compared(other)[[2, 3, 0, 1]], atol=1e-9)


def test_a_learner_of_the_right_kind_gives_what_the_formula_gives():
    linear = pytest.importorskip("sklearn.linear_model")
    frame = drawn(2000, 8)
    plain = cfair.Learner(linear.LogisticRegression(C=1e8, tol=1e-10), columns=["x1", "x2"])
    by_formula = analysed(frame)
    by_learner = analysed(frame, outcome_model=plain, membership=plain)
    np.testing.assert_allclose(compared(by_learner), compared(by_formula), atol=1e-4)
    # without the part of the models, which is of second order
    ratio = compared(by_learner, "se") / compared(by_formula, "se")
    np.testing.assert_allclose(ratio, 1, atol=0.1)


def test_single_robust_rates_of_a_learner_have_bootstrap_errors():
    tree = pytest.importorskip("sklearn.tree").DecisionTreeClassifier(min_samples_leaf=30)
    frame = drawn(300, 4)
    learner = cfair.Learner(tree, columns=["x1", "x2"])
    options = {"outcome_model": learner, "estimator": "sr", "membership": None}
    with pytest.raises(ValueError, match="n_boot= of 40 or more"):
        analysed(frame, **options)
    with pytest.raises(ValueError, match="n_boot= of 40 or more"):
        analysed(frame, n_boot=20, **options)
    with pytest.raises(ValueError, match="of rows or clusters"):
        analysed(frame, n_boot=40, bootstrap="faircfint", **options)
    booted = analysed(frame, n_boot=40, **options)
    np.testing.assert_allclose(compared(booted, "se"), compared(booted, "boot_se"), rtol=1e-9)
    assert np.isfinite(compared(booted, "ci_low")).all()
    assert any("standard errors are from the bootstrap" in note for note in booted.notes)
    assert "95%, bootstrap" in str(booted)
    nulled = analysed(frame, n_boot=40, n_perm=3, **options)
    assert nulled.null.wald is None
    assert nulled.disparities["p_value_studentized"].isna().all()


def test_a_rate_in_too_few_replicates_has_no_standard_error():
    tree = pytest.importorskip("sklearn.tree").DecisionTreeClassifier(min_samples_leaf=30)
    frame = drawn(300, 4)
    learner = cfair.Learner(tree, columns=["x1", "x2"])
    rng, rows = np.random.default_rng(0), np.arange(300)
    without = rows[codes_of(frame) != 3]
    # the last group is in 30 of 70 replicates
    resamples = [rng.choice(rows if b < 30 else without, 300) for b in range(70)]
    options = {"outcome_model": learner, "estimator": "sr", "membership": None}
    result = analysed(frame, resamples=resamples, **options)
    rates = result.rates.set_index(["metric", "group"])
    for metric in ("cfpr", "cfnr"):
        lost, kept = rates.loc[(metric, "b & v")], rates.loc[(metric, "a & u")]
        assert np.isfinite(lost["estimate"])
        assert lost[["se", "ci_low", "ci_high", "n_effective"]].isna().all()
        assert "fewer than 40 bootstrap replicates" in lost["note"]
        assert kept["se"] == pytest.approx(kept["boot_se"], rel=1e-9)
        assert kept["note"] == ""
    tests = result.test_equal().set_index("metric")
    assert tests.loc["cfpr", "df"] == 2  # of the three groups that have one


@pytest.mark.parametrize("model", ["outcome_model", "membership"])
def test_the_order_of_tied_rows_does_not_matter_to_a_learner(model):
    """A forest draws rows by their number, and many rows differ in nothing but their group."""
    frame = drawn(600, 12).copy()
    frame[["x1", "x2"]] = (frame[["x1", "x2"]] > 0).astype(float)
    frame["score"] = 0.3 + 0.4 * frame["x1"]
    folds = np.arange(len(frame)) % 4
    order = np.random.default_rng(1).permutation(len(frame))
    kinds = {"scores": None, "cutoff": 0.5, "seed": 2, model: forest()}
    one = analysed(frame, folds=folds, **kinds)
    other = analysed(frame.iloc[order], folds=folds[order], **kinds)
    np.testing.assert_allclose(other.mu.loc[frame.index], one.mu, atol=1e-12)
    np.testing.assert_allclose(compared(other), compared(one), atol=1e-9)


# -- groups ---------------------------------------------------------------------------------------


def test_one_attribute():
    frame = drawn()
    scores = DESIGN.scores_under(frame)[["a & u", "b & v"]].set_axis(["a", "b"], axis=1)
    with pytest.warns(ModelWarning, match="own group"):
        result = analysed(frame, audit={"groups": "a1"}, scores=scores, n_perm=20)
    assert list(result.rates["group"][:2]) == ["a", "b"]
    assert result.marginals.empty
    assert result.overall.empty
    assert len(result.contrasts()) == 2
    with pytest.raises(DataError, match="only the intersectional groups"):
        result.contrasts(attribute="a1")


def test_a_group_without_rows_has_no_rate():
    frame = drawn()
    frame = frame[(frame["a1"] == "a") | (frame["a2"] == "u")]
    scores = DESIGN.scores_under(frame).drop(columns="b & v")
    result = analysed(frame, scores=scores, n_boot=10, n_perm=10)
    rates = result.rates.set_index(["metric", "group"])
    assert np.isnan(rates.loc[("cfpr", "b & v"), "estimate"])
    assert rates.loc[("cfpr", "b & v"), "note"] == "no rows"
    assert np.isnan(rates.loc[("cfpr", "b & v"), "estimate_sr"])
    assert result.mu["b & v"].isna().all()
    others = compared(result)[[0, 1, 2, 4, 5, 6]]
    assert np.isfinite(others).all()
    assert result.null_draws["cfnr", "b & v"].isna().all()
    three = analysed(
        frame.assign(a=frame["a1"] + frame["a2"]),
        audit={"groups": "a"},
        scores=scores.set_axis(["au", "av", "bu"], axis=1),
    )
    np.testing.assert_allclose(compared(three), others, atol=1e-9)


def test_a_group_without_events_has_no_false_negative_rate():
    frame = drawn()
    frame = frame[(codes_of(frame) != 3) | (frame["y"] == 0)]
    with pytest.warns(SeparationWarning, match="group b & v"):
        result = analysed(frame)
    rates = result.rates.set_index(["metric", "group"])
    assert np.isnan(rates.loc[("cfnr", "b & v"), "estimate"])
    assert rates.loc[("cfnr", "b & v"), "note"] == "no events in the group"
    assert np.isfinite(rates.loc[("cfpr", "b & v"), "estimate"])


def test_a_cluster_bootstrap_that_loses_a_group_has_no_rate_for_it():
    frame = drawn(300, 4)
    result = analysed(frame, resamples=[np.flatnonzero(codes_of(frame) != 2)])
    assert np.isnan(result.boot_draws["cfpr", "b & u"][0])
    assert np.isfinite(result.boot_draws["cfpr", "a & u"][0])


# -- the record -----------------------------------------------------------------------------------


def test_the_printed_result_says_what_it_is():
    result = analysed(drawn(), n_boot=40, n_perm=20)
    page = str(result)
    for part in (
        "FPR under A := g",
        "FNR under A := g",
        "doubly robust",
        "scores as given >= 0.5",
        "outcome model  y ~ x1 + x2 + a1 x a2",
        "membership     ~ x1 + x2;",
        "5 drawn, stratified",
        "influence functions",
        "40 replicates",
        "20 permutations",
        "membership cannot be assigned in the world",
        "equal rates?",
        "largest gap",
    ):
        assert part in page, part
    assert "the rule judged is the outcome model" not in page
    assert "the rule judged is the outcome model" in str(analysed(drawn(), scores=None))


def test_frames_of_the_result():
    frame = drawn().set_index(np.arange(600) + 1000)
    result = analysed(frame)
    assert list(result.rates["metric"].unique()) == ["cfpr", "cfnr", "fpr", "fnr"]
    assert result.compared == ("cfpr", "cfnr")
    assert list(result.mu.index) == list(frame.index)
    assert list(result.memberships.columns) == NAMES
    assert list(result.memberships.index) == list(frame.index)
    np.testing.assert_array_equal(result.memberships, result.p_group)
    assert result.p_group.min() >= result.truncation[0]
    assert result.covariance.shape == (8, 8)
    np.testing.assert_allclose(np.sqrt(np.diag(result.covariance)), compared(result, "se"))
    assert list(result.test_equal()["metric"]) == ["cfpr", "cfnr", "fpr", "fnr"]
    mu = result.mu
    mu.iloc[:] = 0
    assert (result.mu > 0).all().all()
    for values in (result.outcome_model.mu, result.p_group, result.score_table):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0
    counted = result.rates.query("metric == 'cfnr'")
    np.testing.assert_array_equal(counted["denominator"], counted["events"])


def test_plots_are_drawn():
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    result = analysed(drawn(300, 4), n_perm=20)
    plots = (result.plot_rates(), result.plot_disparities(), result.plot_null())
    labels = ("Rate, with 95%", "difference between the rates", "made no difference")
    for ax, label in zip(plots, labels, strict=True):
        assert "FPR under A := g" in ax.get_title(loc="left")
        assert label in ax.get_xlabel()
    plt.close("all")


def test_missing_values_count_wherever_they_are():
    frame = drawn(300, 4).copy()
    frame.loc[3, "x2"] = np.nan
    scores = DESIGN.scores_under(frame)
    scores.iloc[5, 2] = np.nan
    with pytest.raises(DataError, match=r"'x2' \(1 rows\).*'scores' \(1 rows\)"):
        analysed(frame, scores=scores)
    result = analysed(frame, audit={"missing": "drop"}, scores=scores)
    assert result.cohort.n_used == 298
    assert "298 used" in str(result)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"membership": None}, DataError, 'estimator="dr" needs membership='),
        ({"outcome_model": None}, DataError, "needs outcome_model="),
        ({"estimator": "aipw"}, ValueError, "estimator must be one of 'dr', 'sr'"),
        ({"outcome_model": "y ~ x1 + y"}, (DataError, FormulaError), "on both sides"),
        ({"outcome_model": "~ x1 + y"}, DataError, "explain itself"),
        ({"outcome_model": "x1 ~ x2"}, DataError, "left side of the formula"),
        ({"outcome_model": "score"}, DataError, "predict every row under every group"),
        ({"membership": "~ x1 + a1"}, FormulaError, "'a1' is an attribute, and group membership"),
        ({"membership": "a1 ~ x1"}, (DataError, FormulaError), "left side"),
        ({"membership": "~ x1 + y"}, FormulaError, "'y' is the outcome, which comes after"),
        ({"membership": 3}, DataError, "membership must be a formula"),
        ({"folds": None}, ValueError, "folds must be a number"),
        ({"folds": 1}, ValueError, "at least 2"),
        ({"cutoff": 1.5}, DataError, "cutoff must be a number in"),
        ({"cutoff": "best"}, ValueError, 'or "youden"'),
        ({"scores": np.ones(600)}, DataError, "1 dimension"),
        ({"scores": np.full((600, 3), 0.5)}, DataError, "3 columns, but there are 4 groups"),
        ({"scores": np.full((500, 4), 0.5)}, DataError, "500 values, but the table has 600"),
        ({"scores": np.full((600, 4), 1.5)}, DataError, r"must lie in \[0, 1\]"),
        ({"scores": np.full((600, 4), "x")}, DataError, "hold no numbers"),
        ({"score_columns": ["x1"]}, ValueError, "goes with a fitted classifier"),
        ({"truncation": (0.5, 0.2)}, ValueError, "truncation must be"),
        ({"n_boot": 5, "bootstrap": "cluster"}, DataError, "needs the column of the clusters"),
        ({"level": 95}, ValueError, "level must be"),
        ({"interval": "exact"}, ValueError, "interval must be one of"),
        ({"u_delta": 2}, ValueError, "delta must be"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        analysed(drawn(), **options)


def test_the_membership_model_is_checked_as_elsewhere():
    frame = drawn().assign(d=np.arange(600) % 2, flat=1.0)
    with pytest.raises(FormulaError, match="'d' is the treatment"):
        analysed(frame, audit={"treatment": "d"}, membership="~ x1 + d")
    few = pd.concat([frame[codes_of(frame) == k].head(3) for k in range(4)])
    wide = few.assign(**{f"z{j}": np.random.default_rng(j).normal(size=12) for j in range(13)})
    covariates = "~ " + " + ".join(f"z{j}" for j in range(13))
    with pytest.raises(DataError, match="membership formula has 14 terms but only 12 rows"):
        analysed(wide, outcome_model="y ~ 1", membership=covariates, folds=3)


def test_arguments_are_in_the_order_of_the_other_analyses():
    both = [
        list(inspect.signature(method).parameters)
        for method in (cfair.Audit.counterfactual, cfair.Audit.group_intervention)
    ]
    shared = [name for name in both[0] if name in both[1]]
    assert shared == [name for name in both[1] if name in both[0]]
    assert {"folds", "level", "truncation", "n_boot"} <= set(shared)


def test_models_are_named_as_in_the_other_results():
    frame = drawn(300, 4)
    result = analysed(frame, truncation=(0.2, 0.8))
    assert result.outcome_model.text == "y ~ x1 + x2 + a1 x a2"
    assert result.membership_model.text == "~ x1 + x2"
    assert not result.bootstrapped
    own = result.membership_model.raw[np.arange(300), codes_of(frame)]
    cut = int(np.count_nonzero((own < 0.2) | (own > 0.8)))
    assert result.n_truncated == cut > 0
    assert f"{cut} rows truncated to [0.2, 0.8]" in str(result)
    alone = analysed(frame, membership=None, estimator="sr")
    assert alone.membership_model is alone.p_group is None
    with pytest.raises(DataError, match="Give membership="):
        _ = alone.memberships
    tree = pytest.importorskip("sklearn.tree").DecisionTreeClassifier(min_samples_leaf=30)
    learner = cfair.Learner(tree, columns=["x1", "x2"])
    options = {"outcome_model": learner, "estimator": "sr", "n_boot": 40}
    assert analysed(frame, **options).bootstrapped
    assert not analysed(frame, outcome_model=learner).bootstrapped


# -- rows under every group -----------------------------------------------------------------------


def splits():
    """Designs with columns of attributes alone, with others, with both and with neither."""
    rng = np.random.default_rng(7)
    n, K = 40, 5
    by_group, mixed = rng.normal(size=(K, 2)), rng.normal(size=(K, n, 3))
    for some, more in [(True, False), (False, True), (True, True), (False, False)]:
        columns = rng.permutation(2 + 2 * some + 3 * more)
        yield AttributeSplit(
            rng.normal(size=(n, 2)),
            by_group if some else None,
            mixed if more else None,
            columns[:2],
            columns[2 : 2 + 2 * some],
            columns[2 + 2 * some :],
        )


@pytest.mark.parametrize("split", list(splits()))
def test_rows_under_every_group_are_those_put_into_each(split):
    n, K = 40, 5
    every, rng = RowsUnderGroups(split, K), np.random.default_rng(8)
    whole = DesignRows(np.empty((n, every.n_columns)), split)
    matrices = [whole.under(np.full(n, g)) for g in range(K)]
    coef = rng.normal(size=(3, every.n_columns))
    coef[:, 1] = np.nan  # left out of the fit
    amounts = rng.normal(size=(n, K))
    for rows in (slice(None), slice(5, 9), np.array([3, 1, 8]), np.arange(n) % 3 == 0):
        got = every.probabilities(coef, rows)
        for g, Z in enumerate(matrices):
            np.testing.assert_array_equal(every.under(g, rows), Z[rows])
            np.testing.assert_array_equal(every.matrices()[g][rows], Z[rows])
            eta = np.nan_to_num(coef) @ Z[rows].T
            np.testing.assert_allclose(got[..., g], 1 / (1 + np.exp(-eta)), atol=1e-13)
        sums = np.column_stack([Z[rows].T @ amounts[rows, g] for g, Z in enumerate(matrices)])
        np.testing.assert_allclose(every.totals(amounts[rows], rows), sums, atol=1e-12)


def test_places_of_a_fit_share_what_is_the_same_for_all():
    rng = np.random.default_rng(3)
    here, there = (DesignRows(rng.normal(size=(50, 3))) for _ in range(2))
    y, everyone = rng.integers(0, 2, 50).astype(float), np.ones(50, dtype=bool)
    one, other = BinaryModel(y, here, (here, there), everyone).fit().models
    assert one.residual is other.residual
    assert one.variance is other.variance
    np.testing.assert_array_equal(other.at, there.matrix)


def test_binary_models_of_replicates_are_fits_of_their_own():
    """Together where there is a maximum; where a column is lost or separates, one by one."""
    rng = np.random.default_rng(7)
    n, K = 400, 3
    group, x, trait = rng.integers(0, K, n), rng.normal(size=n), rng.random(n) < 0.05
    X = np.column_stack([np.ones(n), x, trait])
    indicators = np.eye(K)[:, 1:]
    split = AttributeSplit(
        X, indicators, None, np.arange(3), np.array([3, 4]), np.zeros(0, dtype=np.intp)
    )
    rows = DesignRows(np.hstack([X, indicators[group]]), split)
    y = (rng.random(n) < 1 / (1 + np.exp(-x - group / 2))).astype(float)
    used, weights = rng.random(n) < 0.9, rng.uniform(0.5, 2, n)
    counts = rng.multinomial(n, np.full(n, 1 / n), size=4).astype(float)
    counts[1, trait] = 0  # column lost
    counts[2, trait & (y == 1)] = 0  # column separates
    full = BinaryModel(y, rows, (rows,), used, weights)
    start = full.fit().fit.coef
    (found,), converged = fit_binary_many(full, counts, start)
    for b in range(4):
        one = full.fit(counts[b])
        np.testing.assert_allclose(found[b], one.values[0], atol=1e-9)
        assert converged[b] == one.converged
    folds = Folds(np.arange(n) % 3, 3, drawn=True)
    model = replace(full, folds=folds, at=(), every=RowsUnderGroups(split, K))
    found, converged = fit_binary_many_under_groups(model, counts, start)
    for b in range(4):
        one = model.fit(counts[b])
        drawn_rows = counts[b] > 0  # what a lost column says of others is nowhere used
        np.testing.assert_allclose(found[b, drawn_rows], one.every[drawn_rows], atol=1e-8)
        assert converged[b] == one.converged
    once = fit_binary_under_groups(model, full.fit())
    np.testing.assert_allclose(once.every, model.fit().every, atol=1e-12)
    doubled = DesignRows(np.hstack([rows.matrix, rows.matrix[:, :1]]), split)
    whole = replace(full, train=doubled, at=(doubled,)).fit()
    said = fit_binary_under_groups(replace(model, train=doubled, every=None), whole).notes
    assert "left out as linear combinations" in said[0]


def test_many_groups_take_little_memory():
    """Twenty groups: designs of each, influences and their parts would be 75 MB and more."""
    rng = np.random.default_rng(5)
    n, K = 6000, 20
    frame = pd.DataFrame(rng.normal(size=(n, 5)), columns=[f"x{j}" for j in range(5)])
    frame = frame.assign(g=rng.integers(0, K, n), score=rng.random(n))
    frame["y"] = (rng.random(n) < 1 / (1 + np.exp(-frame["x0"]))).astype(int)
    audit = cfair.Audit(frame, outcome="y", score="score", cutoff=0.5, groups="g")
    covariates = "x0 + x1 + x2 + x3 + x4"
    analysed(drawn(300, 4))  # modules are not counted
    tracemalloc.start()
    audit.group_intervention(outcome_model=f"y ~ {covariates}", membership=f"~ {covariates}")
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    assert peak < 30


def test_bad_scores_of_a_frame():
    frame = drawn()
    scores = DESIGN.scores_under(frame)
    with pytest.raises(DataError, match="no column for group 'b & v'"):
        analysed(frame, scores=scores.rename(columns={"b & v": "b & w"}))
    twice = pd.concat([scores, scores[["a & u"]].set_axis([("a", "u")], axis=1)], axis=1)
    with pytest.raises(DataError, match="two columns for group 'a & u'"):
        analysed(frame, scores=twice)
    with pytest.raises(DataError, match="index"):
        analysed(frame, scores=scores.set_axis(np.arange(600) + 7))


def test_scores_without_any_cutoff():
    frame = drawn()
    audit = {"score": None, "cutoff": None, "prediction": (frame["score"] >= 0.5).to_numpy()}
    with pytest.raises(DataError, match="needs a cutoff, and the audit has none"):
        analysed(frame, audit=audit)
    folds = np.arange(len(frame)) % 5
    result = analysed(frame, audit=audit, cutoff=0.5, folds=folds)
    np.testing.assert_array_equal(compared(result), compared(analysed(frame, folds=folds)))
    by_youden = analysed(frame, audit={}, cutoff="youden")
    assert by_youden.cutoff in frame["score"].to_numpy()


def test_bad_classifiers():
    linear = pytest.importorskip("sklearn.linear_model")
    frame = drawn()
    with pytest.raises(DataError, match="needs the columns that it was fitted on"):
        analysed(frame, scores=linear.LogisticRegression())
    with pytest.raises(DataError, match="is not fitted"):
        analysed(frame, scores=linear.LogisticRegression(), score_columns=["x1"])
    three = linear.LogisticRegression().fit(frame[["x1"]], frame["y"] + 2 * (frame["x1"] > 1))
    with pytest.raises(DataError, match="classes, not 2"):
        analysed(frame, scores=three, score_columns=["x1"])
    named = linear.LogisticRegression().fit(frame[["x1"]], frame["y"].map({0: "no", 1: "yes"}))
    with pytest.raises(DataError, match="neither is the event"):
        analysed(frame, scores=named, score_columns=["x1"])
    fitted = linear.LogisticRegression().fit(frame[["x1"]], frame["y"])
    with pytest.raises(DataError, match="the estimator stopped"):
        analysed(frame, scores=fitted, score_columns=["x1", "x2"])


def test_a_group_of_one_is_refused_with_what_to_do():
    frame = drawn()
    one = frame[
        (codes_of(frame) != 3) | (np.arange(600) == np.flatnonzero(codes_of(frame) == 3)[0])
    ]
    with pytest.raises(DataError, match="'b & v'"):
        analysed(one)


def test_the_design_of_the_tests_is_what_it_says():
    """The quadrature against a large draw of outcomes under each group."""
    rng = np.random.default_rng(3)
    frame = drawn(200_000, 5)
    x1, x2 = frame["x1"].to_numpy(), frame["x2"].to_numpy()
    for g, row in enumerate(true_rates(DESIGN).itertuples()):
        event = rng.random(len(x1)) < 1 / (1 + np.exp(-(DESIGN.outcome[g] + 0.8 * x1 + 0.6 * x2)))
        flagged = DESIGN.scores_under(frame).to_numpy()[:, g] >= 0.5
        assert flagged[~event].mean() == pytest.approx(row.cfpr, abs=0.006)
        assert 1 - flagged[event].mean() == pytest.approx(row.cfnr, abs=0.008)
        assert event.mean() == pytest.approx(row.prevalence, abs=0.006)
        assert (codes_of(frame) == g).mean() == pytest.approx(row.share, abs=0.006)


def test_no_warning_without_a_reason():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        analysed(drawn())


# -- found by trying to break it ------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
def test_given_memberships_have_to_add_up_to_one():
    t = bad_inputs.cohort(120)
    a = cfair.Audit(t, outcome="y", groups=["sex", "race"], score="s", cutoff=0.5)
    with pytest.raises(DataError, match=r"do not add up to 1 in 120 of 120 rows \(sums from 3"):
        a.group_intervention(outcome_model="y ~ age", membership=np.full((120, 6), 0.5))


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
def test_replicates_of_tied_rows_in_given_folds_do_not_depend_on_their_order():
    t = bad_inputs.cohort(300)
    t["s"], t["age"], t["fold"] = t["s"].round(1), (t["age"] / 10).round(), np.arange(300) % 3
    draws = []
    for rows in (t, t.iloc[::-1]):
        a = cfair.Audit(rows, outcome="y", groups="race", score="s", cutoff=0.5)
        draws.append(
            a.group_intervention(
                outcome_model="~ age", membership="~ age", folds="fold", n_perm=12, n_boot=12
            )
        )
    for name in ("null_draws", "boot_draws"):
        x, y = (getattr(result, name).to_numpy() for result in draws)
        np.testing.assert_allclose(x, y, atol=1e-9)


@pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")
def test_a_rate_of_one_but_for_rounding_has_the_standard_error_of_one():
    t = bad_inputs.cohort(150, 8)
    t["b"], t["fold"] = np.random.default_rng(8).integers(0, 2, 150), np.arange(150) % 3
    result = cfair.Audit(t, outcome="y", groups="race", score="s", cutoff=0.5).group_intervention(
        outcome_model="y ~ b", membership="~ b", estimator="sr", folds="fold"
    )
    rates = result.rates.query("metric in ('cfpr', 'cfnr')")
    edge = (rates["estimate"] - rates["estimate"].round()).abs() < 1e-9
    assert edge.sum() >= 3
    assert (rates.loc[edge, "se"] > 0.01).all()
    assert rates.loc[edge, "note"].str.contains("Agresti-Coull").all()
    assert not any("outside [0, 1]" in note for note in result.notes)
