"""Disclosure control: an attacker with linear algebra gets no masked count, and does without it."""

import base64
import contextlib
import json
import pickle
import re
import warnings
from fractions import Fraction

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

import cfair
import cfair.analyses.table_one
import cfair.disclosure
import cfair.errors
from cfair.cli import main
from cfair.disclosure import KINDS, MASKED, SMALL, protect, quiet, release
from cfair.estimators.confusion import RATE_CELLS

matplotlib.use("Agg")

T = 11
SEXES, RACES = ("F", "M"), ("Black", "Other", "White")
TOL = 1e-7


def audit_of(data, below=T, **more):
    return cfair.Audit(
        data, outcome="y", score="s", cutoff=0.5, groups=["sex", "race"], suppress_below=below,
        **more,
    )  # fmt: skip


def data_of(cells, seed=0):
    """Rows with given numbers by sex, race, outcome, call and, if there is one, treatment."""
    at = np.array(np.unravel_index(np.arange(cells.size), cells.shape))
    at = np.repeat(at, cells.ravel().astype(int), axis=1)
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "sex": np.array(SEXES)[at[0]],
            "race": np.array(RACES)[at[1]],
            "y": at[2],
            "s": np.round(0.5 * at[3] + 0.49 * rng.random(at.shape[1]), 6),
        }
    )
    if cells.ndim == 5:
        frame["d"] = at[4]
    return frame


def example(n, seed):
    c = cfair.load_cohort().sample(n, random_state=seed)
    c = c.rename(columns={"readmitted": "y", "risk": "s", "treated": "d"})
    return c[["sex", "race", "y", "s", "d", "age", "sbp"]]


class Attacker:
    """Collects linear equations in the base cells (sex, race, outcome, call, treatment)."""

    def __init__(self):
        self.rows, self.values = [], []

    def target(self, sex=None, race=None):
        """Membership of a target; a level may be a set of levels."""
        mask = np.zeros((2, 3))
        wanted = [SEXES if sex is None else sex, RACES if race is None else race]
        wanted = [(w,) if isinstance(w, str) else tuple(w) for w in wanted]
        mask[np.ix_([SEXES.index(v) for v in wanted[0]], [RACES.index(v) for v in wanted[1]])] = 1
        return mask

    def vector(self, target, kind, arms=(1, 1)):
        return np.einsum("gr,ys,d->grysd", target, kind, np.array(arms)).ravel()

    def know(self, vector, value):
        if value is None or pd.isna(value):
            return
        self.rows.append(vector)
        self.values.append(float(value))
        if value == 0 and vector.min() >= 0:  # counts are not negative
            for k in np.flatnonzero(vector):
                self.rows.append(np.eye(len(vector))[k])
                self.values.append(0.0)

    def know_rate(self, target, metric, rate, arms=(1, 1)):
        if metric not in RATE_CELLS or rate is None or pd.isna(rate):
            return
        if metric == "f1":
            rate = rate / (2 - rate)
        top, whole = RATE_CELLS[metric].indicators()
        self.know(self.vector(target, top - rate * whole, arms), 0.0 if rate else None)
        if rate == 0:
            self.know(self.vector(target, top, arms), 0)
        if rate == 1:
            self.know(self.vector(target, whole - top, arms), 0)

    def recovered(self, truth):
        """Small counts that follow from the equations, with their values."""
        A, b = np.array(self.rows), np.array(self.values)
        scale = np.linalg.norm(A, axis=1)
        A, b = A[scale > 0] / scale[scale > 0, None], b[scale > 0] / scale[scale > 0]
        _, size, Vt = np.linalg.svd(A, full_matrices=False)
        V = Vt[size > 1e-9 * size[0]]
        x = np.linalg.lstsq(A, b, rcond=1e-9)[0]
        found = []
        for sex in (None, *SEXES):
            for race in (None, *RACES):
                for name, kind in KINDS.items():
                    for arms in ((1, 1), (1, 0), (0, 1)):
                        f = self.vector(self.target(sex, race), kind, arms)
                        true = f @ truth.ravel()
                        if 0 < true < T and np.linalg.norm(f - V.T @ (V @ f)) < TOL:
                            assert f @ x == pytest.approx(true, abs=1e-4)
                            found.append((sex, race, name, arms, true))
        return found


def rows_of(result):
    """Every row of the frames of rates, with what it is about."""
    for _, row in result.rates.iterrows():
        yield row, {"sex": row["sex"], "race": row["race"]}
    for _, row in result.marginals.iterrows():
        yield row, {row["attribute"]: row["level"]}
    for _, row in result.overall.iterrows():
        yield row, {}


def header(attacker, printed):
    """Totals that a print gives in its first lines."""
    every = attacker.target()
    for name, kind in (("flagged", "positive"), ("outcome", "events"), ("treatment", "n")):
        line = re.search(rf"^{name} .*: ([\d,]+) \(", printed, re.M)
        if line:
            arms = (0, 1) if name == "treatment" else (1, 1)
            value = int(line.group(1).replace(",", ""))
            attacker.know(attacker.vector(every, KINDS[kind], arms), value)
    used = re.search(r"([\d,]+) used", printed)
    if used:
        attacker.know(attacker.vector(every, KINDS["n"]), int(used.group(1).replace(",", "")))


def attack_observed(attacker, result):
    header(attacker, str(result))
    columns = {"n": "n", "events": "events", "non_events": "non_events"}
    columns["predicted_positive"] = "positive"
    for row, where in rows_of(result):
        target = attacker.target(**where)
        for column, kind in columns.items():
            if column in row:
                attacker.know(attacker.vector(target, KINDS[kind]), row[column])
        metric = row["metric"]
        if metric in RATE_CELLS:
            whole = RATE_CELLS[metric].indicators()[1]
            attacker.know(attacker.vector(target, whole), row["denominator"])
            attacker.know_rate(target, metric, row["estimate"])
        if np.isnan(row["estimate"]):
            assert row["note"], metric
            assert np.isnan([row["se"], row["ci_low"], row["ci_high"], row["n_effective"]]).all()
    if hasattr(result, "treatment_equality"):
        for _, row in result.treatment_equality.iterrows():
            parts = row["group"].split(" & ")
            where = dict(zip(("sex", "race"), parts, strict=True)) if len(parts) == 2 else {}
            if row["by"] in ("sex", "race"):
                where = {row["by"]: row["group"]}
            target = attacker.target(**where)
            attacker.know(attacker.vector(target, KINDS["fn"]), row["false_negatives"])
            attacker.know(attacker.vector(target, KINDS["fp"]), row["false_positives"])
            if np.isfinite(row["ratio"]):
                f = attacker.vector(target, KINDS["fn"] - row["ratio"] * KINDS["fp"])
                attacker.know(f, 0.0)


def attack_interaction(attacker, result):
    for _, row in result.contrasts.iterrows():
        a = row["level_a"], row["level_b"]
        rest = [v for v in RACES if v != row["level_b"]]  # references are all other levels
        for name in ("11", "10", "01", "00"):
            sex = a[0] if name[0] == "1" else [v for v in SEXES if v != row["level_a"]]
            race = a[1] if name[1] == "1" else rest
            target = attacker.target(sex, race)
            whole = RATE_CELLS[row["metric"]].indicators()[1]
            attacker.know(attacker.vector(target, whole), row[f"n{name}"])
            attacker.know_rate(target, row["metric"], row[f"r{name}"])


def attack_representation(attacker, result):
    tables = json.loads(result.to_json())
    whole = attacker.vector(attacker.target(), KINDS["n"])
    attacker.know(whole, tables["n_known"])
    expected = []
    for row in tables["cells"] + tables["levels"]:
        where = {k: row[k] for k in ("sex", "race") if k in row}
        if "attribute" in row:
            where = {row["attribute"]: row["level"]}
        target = attacker.target(**where)
        for kind in ("n", "events", "non_events"):
            attacker.know(attacker.vector(target, KINDS[kind]), row[kind])
        if row["share"] is not None and tables["n_known"]:
            attacker.know(attacker.vector(target, KINDS["n"]), row["share"] * tables["n_known"])
        if row.get("ratio") is not None:
            n = row["ratio"] * row["expected"]
            attacker.know(attacker.vector(target, KINDS["n"]), n)
        expected.append(row.get("expected"))
    return expected


def attack_counterfactual(attacker, result):
    header(attacker, str(result))
    for row, where in rows_of(result):
        target, metric = attacker.target(**where), row["metric"]
        attacker.know(attacker.vector(target, KINDS["n"]), row["n"])
        attacker.know(attacker.vector(target, KINDS["n"], (1, 0)), row["untreated"])
        attacker.know(attacker.vector(target, KINDS["events"], (1, 0)), row["events"])
        same = metric.removeprefix("c")
        whole = RATE_CELLS[same].indicators()[1]
        if metric.startswith("c"):
            attacker.know(attacker.vector(target, whole, (1, 0)), row["denominator"])
            # with weights that hardly differ a rate is the share of the untreated
            if not np.isnan(row["estimate"]):
                top = RATE_CELLS[same].indicators()[0]
                for part in (top, whole - top):
                    f = attacker.vector(target, part, (1, 0))
                    attacker.know(f, f @ attacker.truth)
        else:
            attacker.know(attacker.vector(target, whole), row["denominator"])
            attacker.know_rate(target, metric, row["estimate"])
    for _, row in result.overlap.effective.iterrows():
        sex, race = row["group"].split(" & ")
        target = attacker.target(sex, race)
        attacker.know(attacker.vector(target, KINDS["n"]), row["n"])
        attacker.know(attacker.vector(target, KINDS["n"], (1, 0)), row["untreated"])
    for _, row in result.overlap.propensities.iterrows():
        where = {} if row["group"] == "all" else dict(
            zip(("sex", "race"), row["group"].split(" & "), strict=True)
        )  # fmt: skip
        arms = (0, 1) if row["treated"] else (1, 0)
        attacker.know(attacker.vector(attacker.target(**where), KINDS["n"], arms), row["n"])


def truth_of(data):
    d = data["d"] if "d" in data else np.zeros(len(data), dtype=int)
    found = np.zeros((2, 3, 2, 2, 2))
    codes = [data["sex"].map(SEXES.index), data["race"].map(RACES.index), data["y"]]
    np.add.at(found, (*codes, (data["s"] >= 0.5).astype(int), d), 1)
    return found


def without_secondary(monkeypatch):
    def open_release(candidates, sensitive, known=None, **_):
        return release(candidates, sensitive, known, secondary=False)

    monkeypatch.setattr(cfair.disclosure.masks, "release", open_release)


def attack_without_treatment(data, more=True):
    attacker = Attacker()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        audit = audit_of(data)
        attack_observed(attacker, audit.observed())
        if not more:
            return attacker.recovered(truth_of(data))
        attack_observed(attacker, audit.performance())
        attack_interaction(attacker, audit.interaction(list(RATE_CELLS), reference="rest"))
        attack_representation(attacker, audit.representation())
    return attacker.recovered(truth_of(data))


FORMULA = "d ~ sex + race + s + age + sbp"


def attack_with_treatment(data):
    attacker = Attacker()
    attacker.truth = truth_of(data).ravel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        audit = audit_of(data)
        attack_observed(attacker, audit.observed())
        attack_counterfactual(attacker, audit.counterfactual(FORMULA))
    return attacker.recovered(truth_of(data))


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_small_follows_from_all_results_of_the_example(seed):
    assert attack_without_treatment(example(700, seed)) == []


def test_without_secondary_suppression_the_same_attack_succeeds(monkeypatch):
    without_secondary(monkeypatch)
    assert attack_without_treatment(example(700, 1), more=False)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_small_follows_from_who_was_treated(seed):
    assert attack_with_treatment(example(1200, seed)) == []


def test_without_secondary_suppression_treatment_gives_counts_away(monkeypatch):
    without_secondary(monkeypatch)
    assert attack_with_treatment(example(1200, 1))


def test_small_subgroups_show_no_more_than_observed_rates():
    data = example(700, 1)
    audit = audit_of(data)
    result = audit.small_subgroups(
        FORMULA, outcome_model="~ age + sbp", membership="~ age + sbp", n_boot=5
    )
    attacker = Attacker()
    attack_observed(attacker, audit.observed())
    header(attacker, str(result).replace("treatment ", "arm "))
    for row, where in rows_of(result):
        target = attacker.target(**where)
        attacker.know(attacker.vector(target, KINDS["n"]), row["n"])
        attacker.know(attacker.vector(target, KINDS["events"]), row["events"])
        attacker.know_rate(target, row["metric"], row["estimate"])
    assert attacker.recovered(truth_of(data)) == []
    masked = result.rates["note"].str.startswith(MASKED)
    assert masked.any()
    assert result.rates.loc[masked, "estimate"].isna().all()
    draws = result.boot_draws
    for _, row in result.rates[masked & result.rates["metric"].isin(result.compared)].iterrows():
        assert draws[row["metric"], row["group"]].isna().all()


counts = st.lists(st.integers(0, 40), min_size=24, max_size=24)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(counts)
def test_nothing_small_follows_from_random_tables(values):
    cells = np.array(values, dtype=float).reshape(2, 3, 2, 2)
    partitions, member = parts()
    found = protect(cells.reshape(6, 2, 2), partitions, T)
    attacker = Attacker()
    for metric, of in RATE_CELLS.items():
        top, whole = of.indicators()
        shown = found.rate_masks(member, top, whole) == 0
        for k in np.flatnonzero(shown):
            for kind in (top, whole, whole - top):
                f = attacker.vector(member[k].reshape(2, 3), kind)
                attacker.know(f, member[k] @ (cells.reshape(6, 2, 2) * kind).sum(axis=(1, 2)))
        del metric
    for kind in KINDS.values():
        for k, value in enumerate(found.counts(member, kind)):
            f = attacker.vector(member[k].reshape(2, 3), kind)
            attacker.know(f, value if value >= 0 else None)
    truth = np.stack([cells, 0 * cells], axis=-1)
    inner = [r for r in attacker.recovered(truth) if r[3] == (1, 1)] if attacker.rows else []
    assert inner == []


def parts():
    at = np.array(np.unravel_index(np.arange(6), (2, 3)))
    levels = [(np.arange(size)[:, None] == at[k]).astype(float) for k, size in enumerate((2, 3))]
    partitions = [np.ones((1, 6)), *levels, np.eye(6)]
    return partitions, np.vstack(partitions)


def test_limits_leave_more_than_one_value():
    # counts are not negative, and those printed as <11 are at most 10
    from scipy.optimize import linprog

    rng, (partitions, member) = np.random.default_rng(1), parts()
    printed = [KINDS[name] for name in ("n", "events", "non_events", "positive")]
    tried = 0
    for _ in range(6):
        share = rng.dirichlet(np.ones(24) * 1.5)
        cells = rng.multinomial(400, share).reshape(6, 2, 2).astype(float)
        found = protect(cells, partitions, T)
        vector = {"known": [], "few": [], "small": []}
        for kind in KINDS.values():
            told = any(np.array_equal(kind, other) for other in printed)
            for k, mask in enumerate(found.masks(member, kind)):
                f = np.einsum("g,ys->gys", member[k], kind).ravel()
                if mask == 0:
                    vector["known"].append(f)
                elif mask == 1:
                    vector["small"].append(f)
                    vector["few"] += [f] * told
        A, few = np.array(vector["known"]), np.array(vector["few"]).reshape(-1, 24)
        limits = {"A_ub": np.vstack([few, -few]), "b_ub": np.repeat([10.0, -1.0], len(few))}
        limits |= {"A_eq": A, "b_eq": A @ cells.ravel()}
        for f in vector["small"]:
            low, high = (linprog(s * f, **limits, method="highs").fun * s for s in (1, -1))
            assert np.floor(high + 1e-6) > np.ceil(low - 1e-6)
            tried += 1
    assert tried > 30


def test_sums_of_small_counts_do_not_give_them_away():
    # two counts of at most 10 whose sum is 20 are both 10
    cells = np.array([[100, 0], [10, 0], [10, 0]], dtype=float)
    cells = np.stack([cells, np.full((3, 2), 50.0)], axis=1)
    found = protect(cells, [np.ones((1, 3)), np.eye(3)], T)
    every = np.ones((1, 3))
    shown = found.counts(np.vstack([every, np.eye(3)]), KINDS["tn"])
    assert not np.isfinite(shown[0]) or np.isnan(shown[1])


def test_a_higher_threshold_may_show_a_count_that_a_lower_one_masks():
    # 13, 28 and 15 false positives: with a limit of 20 the first is small, and 28 tells nothing
    cells = np.array([[[15, 13], [35, 10]], [[9, 28], [24, 1]], [[3, 15], [33, 16]]], dtype=float)
    partitions = [np.ones((1, 3)), np.eye(3)]
    low, high = (
        protect(cells, partitions, below).counts(np.eye(3), KINDS["fp"]) for below in (T, 20)
    )
    np.testing.assert_array_equal(low, [13, np.nan, np.nan])
    np.testing.assert_array_equal(high, [-20, 28, -20])
    # what is small below the lower threshold is so below the higher one
    rng, (partitions, member) = np.random.default_rng(3), parts()
    for _ in range(20):
        cells = rng.integers(0, 60, (6, 2, 2)).astype(float)
        few, more = (protect(cells, partitions, below) for below in (T, 20))
        for kind in KINDS.values():
            assert (more.masks(member, kind)[few.masks(member, kind) == SMALL] == SMALL).all()


def test_a_masked_rate_says_which_count_beside_it_is_small():
    audit = audit_of(example(700, 1))
    observed, treated = audit.observed(), audit.counterfactual(FORMULA)
    patients, untreated = observed.counts, treated.counts
    beside = {
        "tpr": [patients["events"]],
        "fnr": [patients["events"]],
        "cfpr": [untreated["untreated"]],
        "cfnr": [untreated["untreated"], untreated["events"]],
    }
    seen = set()
    for result in (observed, treated):
        for metric, rows in zip(result.metrics, result.rows, strict=True):
            columns = [patients["n"], *beside.get(metric, [])]
            for k, note in enumerate(rows.notes):
                if note.startswith(MASKED):
                    small = any(counts[k] < 0 for counts in columns)
                    general = f"{MASKED}rests on a count below {T}, or would reveal one"
                    assert (note == general) == (not small)
                    seen.add(note.removeprefix(MASKED))
    assert {f"fewer than {T} events", f"fewer than {T} untreated events"} <= seen
    assert any(why.startswith("rests on") for why in seen)


def test_no_threshold_changes_nothing():
    data = example(900, 3)
    plain, masked = audit_of(data, None), audit_of(data, 2)
    pd.testing.assert_frame_equal(plain.observed().rates, masked.observed().rates)
    said = re.sub(r"disclosure .*?each other\n", "", str(masked.observed()), flags=re.DOTALL)
    assert said == str(plain.observed())
    assert plain.observed().disclosure == ""


def test_balance_gives_no_counts_of_groups():
    balance = audit_of(example(900, 3)).counterfactual(FORMULA).overlap.balance.set_index("term")
    assert balance.loc["age", "mean_all"] > 0
    groups = balance[[name.startswith(("sex", "race")) for name in balance.index]]
    assert len(groups) == 3
    assert groups.drop(columns="note").isna().all(axis=None)
    assert groups["note"].str.startswith(MASKED).all()


def test_the_policy_is_printed_and_masks_are_named():
    printed = str(audit_of(example(700, 1)).observed())
    assert re.search(r"disclosure +counts below 11 masked \(\d+ counts?, \d+ more so that", printed)
    assert "<11" in printed
    assert "masked" in printed


def test_few_dropped_rows_are_not_told():
    data = example(900, 3)
    data.loc[data.index[:7], "race"] = np.nan
    audit = audit_of(data, missing="drop")
    for said in (repr(audit), str(audit.observed()), str(audit.representation())):
        assert "900" not in said
        assert "7 dropped" not in said
    assert "<11 dropped" in str(audit.observed())


def test_rows_that_miss_an_attribute_are_protected_too():
    data = example(300, 2)
    data.loc[data.index[:7], "race"] = np.nan
    data.loc[data.index[5:40], "sex"] = np.nan
    result = cfair.representation_of(data, ["sex", "race"], outcome="y", suppress_below=11)
    gone = result.attributes.set_index("attribute")
    # 300 rows, 35 without sex: with all complete rows known, five without race alone would be
    assert pd.isna(gone.loc["race", "n"])
    assert pd.isna(gone.loc["sex", "missing"])


def test_plots_name_masked_groups():
    result = audit_of(example(700, 1)).observed()
    ax = result.plot_rates("tpr")
    said = " ".join(t.get_text() for t in ax.figure.findobj(lambda a: hasattr(a, "get_text")))
    assert "masked" in said


def test_curves_are_refused_with_the_reason_and_what_to_do():
    result = audit_of(example(700, 1)).performance()
    assert result.curves == {}
    names = ("roc_curves", "calibration_curves", "recalibration_curves", "net_benefit", "plot_roc",
             "plot_calibration", "plot_net_benefit")  # fmt: skip
    for name in names:
        with pytest.raises(cfair.errors.DataError, match=r"counts patients.*Make an Audit without"):
            getattr(result, name)()


@pytest.mark.parametrize("value", [1, 0, -3, 2.5, True, "11"])
def test_a_bad_threshold_is_refused(value):
    with pytest.raises(ValueError, match="suppress_below"):
        audit_of(example(300, 1), value)


# -- the rule of a model of its own ---------------------------------------------------------------


def attack_group_intervention(data):
    """Cells whose last axis is the call of the rule judged, in place of treatment."""
    attacker = Attacker()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        audit = audit_of(data)
        attack_observed(attacker, audit.observed())
        result = audit.group_intervention(outcome_model="~ age + sbp", membership="~ age + sbp")
    called = result.score_table[np.arange(len(data)), result.cohort.groups.codes] >= result.cutoff
    for row, where in rows_of(result):
        target = attacker.target(**where)
        for column, kind in (("n", "n"), ("events", "events")):
            attacker.know(attacker.vector(target, KINDS[kind]), row[column])
        kind = KINDS["non_events" if row["metric"].endswith("fpr") else "events"]
        attacker.know(attacker.vector(target, kind), row["denominator"])
        if not np.isnan(row["estimate"]):  # an intervention that changes nothing shows the count
            flagged = attacker.vector(target, kind, (0, 1))
            attacker.know(flagged, flagged @ truth_of(data.assign(d=called.astype(int))).ravel())
    said = re.search(r"\(S = 1\): ([\d,]+) \(", " ".join(str(result).split("flagged")[1].split()))
    if said:
        every = attacker.vector(attacker.target(), KINDS["n"], (0, 1))
        attacker.know(every, float(said.group(1).replace(",", "")))
    shown = result.rates["estimate"].notna().sum()
    return attacker.recovered(truth_of(data.assign(d=called.astype(int)))), shown


@pytest.mark.parametrize(("n", "seed"), [(1200, 1), (3000, 2)])
def test_nothing_small_follows_from_the_call_of_another_rule(n, seed):
    found, shown = attack_group_intervention(example(n, seed))
    assert found == []
    assert shown > 0


def test_without_secondary_suppression_another_rule_gives_counts_away(monkeypatch):
    without_secondary(monkeypatch)
    assert attack_group_intervention(example(1200, 1))[0]


def test_an_association_is_masked_with_the_counts_of_a_group():
    data = example(700, 1)
    result = audit_of(data).group_intervention(outcome_model="~ age + sbp", membership="~ age")
    assert (result.rates["events"].isna()).any()
    assert np.isnan(result.association.v)
    assert "Cramer" not in str(result)
    assert "disclosure" in str(result)
    masked = result.rates["note"].str.startswith(MASKED)
    assert masked.any()
    assert result.rates.loc[masked, ["estimate", "estimate_sr"]].isna().all(axis=None)


# -- everything that can be written ---------------------------------------------------------------

#: So large that masked counts have three digits, which stand nowhere by chance.
LARGE = 400


def texts_of(figure):
    found = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return " ".join(artist.get_text() for artist in found)


def written_forms(result, folder):
    """Everything that a result can be turned into, as text."""
    yield "print", str(result)
    yield "repr", repr(result)
    yield "json", result.to_frame().to_json(orient="records")
    for name in result.table_names or (None,):
        with contextlib.suppress(cfair.errors.DataError):  # curves are refused
            yield f"markdown {name}", result.to_markdown(name)
    yield "gt", result.to_gt().as_raw_html()
    path = folder / "tables.xlsx"
    result.to_excel(path)
    for sheet, frame in pd.read_excel(path, sheet_name=None, header=None).items():
        yield f"excel {sheet}", frame.to_csv(index=False)
    for name in dir(type(result)):
        if not name.startswith("_") and name not in BY_ROW:
            with contextlib.suppress(cfair.errors.DataError):
                value = getattr(result, name)
                if isinstance(value, pd.DataFrame):
                    yield f"frame {name}", value.to_csv(index=False)
    for name in ("gaps", "contrasts", "u_values"):
        if callable(getattr(result, name, None)):
            with contextlib.suppress(cfair.errors.DataError):
                yield name, getattr(result, name)().to_csv(index=False)
    again = pickle.loads(pickle.dumps(result))
    assert str(again) == str(result)


#: For the analyst: a value for every row, and curves, which are refused.
BY_ROW = {
    *("propensities", "weights", "outcomes", "scores", "mu", "memberships", "values"),
    *("roc", "calibration", "external"),
}


def plots_of(result):
    for name in ("plot_rates", "plot_forest", "plot_gaps", "plot_heatmap", "plot_disparities",
                 "plot_null", "plot_overlap", "plot_roc", "plot_calibration", "plot",
                 "plot_net_benefit"):  # fmt: skip
        if hasattr(result, name):
            try:
                yield name, texts_of(getattr(result, name)().figure)
            except cfair.errors.DataError as error:
                yield name, str(error)
    if hasattr(result, "plot_overlap"):
        yield "plot_overlap by group", texts_of(result.plot_overlap(by_group=True).figure)


@pytest.fixture(scope="module")
def large():
    """Results of an audit with large groups that are masked, and the masked counts."""
    data = cfair.load_cohort().rename(columns={"readmitted": "y", "risk": "s", "treated": "d"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        audit = audit_of(data, LARGE, treatment="d")
        results = {
            "observed": audit.observed(),
            "representation": audit.representation(),
            "table one": audit.table_one(["age", "y", "d"]),
            "equivalence": audit.equivalence("tpr"),
            "interaction": audit.interaction(),
            "performance": audit.performance(),
            "ipw": audit.counterfactual(f"{FORMULA} + sex:age", n_boot=25, n_perm=20),
            "group": audit.group_intervention(outcome_model="~ age", membership="~ age"),
            "small": audit.small_subgroups(
                FORMULA, outcome_model="~ age + sbp", membership="~ age + sbp", n_boot=0
            ),
        }
    protection = audit.cohort().treated_protection
    member = audit.cohort().groups.target_matrix
    counts = []
    for kind in KINDS.values():
        for whole in (kind, *(np.stack(p, -1) for p in ((kind, 0 * kind), (0 * kind, kind)))):
            lost = protection.masks(member, whole) > 0
            full = whole if whole.ndim == 3 else np.stack([kind, kind], -1)
            counts += list(np.einsum("tk,kysd,ysd->t", member, protection.cells, full)[lost])
    told = {round(n) for n in counts if n >= 100}
    shown = set()
    for kind in KINDS.values():  # another count of the same size may be shown
        shown |= set(protection.counts(member, kind))
        for p in ((kind, 0 * kind), (0 * kind, kind)):
            shown |= set(protection.counts(member, np.stack(p, -1)))
    return audit, results, told - {round(n) for n in shown if n > 0} - {100, 200}


def found_in(text, counts):
    text = re.sub(r"\d+\s+rates? with them", "", text)  # how many are masked is said
    numbers = re.findall(r"(?<![\d.,e+-])(\d{1,3}(?:,\d{3})+|\d+)(?:\.0+)?(?![\d.:%]|,\d)", text)
    return {int(n.replace(",", "")) for n in numbers} & counts


NAMES = ("observed", "representation", "table one", "equivalence", "interaction", "performance",
         "ipw", "group", "small")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_masked_count_is_written_anywhere(name, large, tmp_path):
    _, results, counts = large
    assert len(counts) > 30
    for form, text in (*written_forms(results[name], tmp_path), *plots_of(results[name])):
        assert not found_in(text, counts), form
    plt.close("all")


def test_the_search_for_masked_counts_finds_them(large):
    data = cfair.load_cohort().rename(columns={"readmitted": "y", "risk": "s", "treated": "d"})
    plain = audit_of(data, None)
    assert len(found_in(str(plain.observed()), large[2])) > 3
    assert len(found_in(plain.observed().rates.to_json(), large[2])) > 3


def test_no_masked_count_is_on_the_page(large, tmp_path):
    audit, results, counts = large
    chosen = [r for name, r in results.items() if name not in ("small", "equivalence")]
    page = audit.report(tmp_path / "r.html", *chosen).read_text(encoding="utf-8")
    page = page.partition('<section id="methods"')[0]  # references have numbers of pages
    assert "Disclosure control: counts below 400 masked" in page
    assert cfair.disclosure.APART in " ".join(page.split())
    assert "Left out, since counts below 400 are masked: the plot of calibration" in page
    pictures = [base64.b64decode(p).decode() for p in re.findall(r"svg\+xml;base64,([^\"]+)", page)]
    assert len(pictures) > 1  # one without any rate is left out
    labels = " ".join(" ".join(re.findall(r">([^<>]+)</text>", p)) for p in pictures)
    plain = re.sub(r"<[^>]*>|&#?\w+;", " ", re.sub(r"data:image[^\"]+|<style.*?</style>", "", page,
                                                  flags=re.DOTALL))  # fmt: skip
    alts = " ".join(re.findall(r'alt="([^"]*)"', page))
    for text in (labels, plain, alts):
        assert not found_in(text, counts)


def test_notes_tell_no_numbers_of_rows():
    said = quiet("x: 7 rows have values; F & Other (3 untreated count as 1.2); 4 of 900 rows", 11)
    assert said == "x: some rows have values; F & Other (some untreated count as 1.2); some rows"
    assert quiet("fewer than 20 events, weighted; n_boot=200 rows", 11).count("20") == 2
    assert quiet("7 rows", None) == "7 rows"


def test_columns_whose_means_are_counts_are_masked_however_they_are_coded():
    data = example(900, 3)
    formula = "d ~ C(sex, Sum) + C(race, Helmert) + sex:age + I(s > 0.4) + sbp"
    balance = audit_of(data).counterfactual(formula).overlap.balance.set_index("term")
    told = balance[balance["mean_all"].notna()].index.tolist()
    assert told == ["sbp"]


def test_a_group_of_masked_size_is_not_in_the_plot_of_overlap():
    data = example(300, 1)
    result = audit_of(data).counterfactual(FORMULA)
    arms = result.overlap.propensities.set_index("group")["n"]
    lost = {name for name in result.cohort.groups.names if arms[name].isna().any()}
    assert lost
    ax = result.plot_overlap(by_group=True)
    said = [t.get_text() for t in ax.figure.findobj(lambda a: hasattr(a, "get_text"))]
    assert said.count("masked") == len(lost)
    assert all(name in said for name in lost)  # a label without its number of rows
    assert not result.plot_overlap().patches[1:]  # no bars, which are counts
    plt.close("all")


# -- figures that are no counts, and give them ----------------------------------------------------

SCORES = ("mean_score", "brier", "log_loss", "ece", "ece_debiased")


def points(n=900, seed=1, values=(0.2, 0.7)):
    """A score of few values."""
    data = example(n, seed)
    edges = np.quantile(data["s"], np.linspace(0, 1, len(values) + 1)[1:-1])
    return data.assign(s=np.array(values)[np.searchsorted(edges, data["s"])])


def masked_kinds(audit, kind):
    cohort = audit.cohort()
    return cohort.protection.masks(cohort.groups.target_matrix, KINDS[kind]) > 0


def test_a_report_takes_no_results_of_an_audit_that_masks_less(tmp_path):
    data = example(700, 1)
    plain, masked = audit_of(data, None), audit_of(data)
    for verb in ("observed", "performance", "representation", "interaction"):
        with pytest.raises(cfair.errors.DataError, match="suppress_below=None"):
            masked.report(tmp_path / "r.html", getattr(plain, verb)())
    with pytest.raises(cfair.errors.DataError, match="suppress_below=None"):
        masked.report(tmp_path / "r.html", plain.table_one(["age"]))
    with pytest.raises(cfair.errors.DataError, match="round_counts_to=5"):
        masked.report(tmp_path / "r.html", rounded_audit(data, suppress_below=T).observed())
    assert not (tmp_path / "r.html").exists()


def test_no_calibration_error_beside_a_masked_number_of_events():
    audit, plain = audit_of(example(700, 1)), audit_of(example(700, 1), None)
    at = {e.metric: e.estimate for e in audit.performance(bins=1).estimates}
    true = {e.metric: e.estimate for e in plain.performance(bins=1).estimates}
    counts = plain.performance().counts
    lost = np.isnan(at["oe_ratio"])
    assert lost.any()
    assert not lost.all()
    either = true["mean_score"] + np.array([[1], [-1]]) * true["ece"]
    off = np.abs(counts["n"] * either - counts["events"]).min(axis=0)
    assert np.allclose(off, 0)  # unmasked it is exact
    assert np.isnan(at["ece"][lost]).all()
    assert np.isnan(at["ece_debiased"][lost]).all()
    assert np.isfinite(at["ece"]).any()


@pytest.mark.parametrize("values", [(0.2, 0.7), (0.1, 0.3, 0.6, 0.8)])
@pytest.mark.parametrize("seed", [1, 2])
def test_means_of_a_score_of_few_values_give_no_counts(values, seed):
    data = points(900, seed, values)
    audit = audit_of(data)
    at = {e.metric: e.estimate for e in audit.performance().estimates}
    groups = audit.cohort().groups
    member = groups.target_matrix[:, groups.sizes > 0]
    lost = np.logical_or.reduce([masked_kinds(audit, k) for k in ("tp", "fp", "tn", "fn")])
    assert lost.any()
    for metric in (*SCORES, "auc", "mean_score_events", "calibration_slope"):
        assert np.isnan(at[metric][lost]).all(), metric
        shown = member[np.isfinite(at[metric])]
        for target in member[lost]:  # nor by sums and differences of what is shown
            rest = target - shown.T @ np.linalg.lstsq(shown.T, target, rcond=None)[0]
            assert np.abs(rest).max() > 1e-6, metric
    if len(values) == 2:  # unmasked they are exact
        true = audit_of(data, None).performance()
        flagged = (true.estimates_of("mean_score").estimate - 0.2) / 0.5 * true.counts["n"]
        counts = np.bincount(groups.codes, audit.cohort().s)
        assert np.allclose(flagged, groups.target_matrix @ counts)


def test_means_of_any_score_go_with_flagged_wrong_and_events():
    audit = audit_of(example(700, 1))
    at = {e.metric: e.estimate for e in audit.performance().estimates}
    for kind in ("positive", "right", "events"):
        lost = masked_kinds(audit, kind)
        for metric in SCORES:
            assert np.isnan(at[metric][lost]).all(), (kind, metric)
    assert np.isfinite(at["brier"]).any()


def test_masks_are_closed_under_sums_and_differences():
    member = np.vstack([np.eye(3), np.ones((1, 3))])
    masked = cfair.disclosure.closed(member, np.array([True, False, False, False]))
    assert masked[0]
    assert masked[:3].sum() == 2
    assert not masked[3]
    assert not cfair.disclosure.closed(member, np.zeros(4, dtype=bool)).any()


def test_table_one_leaves_out_a_score_whose_values_tell_the_call():
    data = points(900, 1, (0.1, 0.3, 0.6, 0.8))
    data["points"] = (data["s"] * 10).round().astype(int).astype(str)
    result = audit_of(data).table_one()
    assert not {"s", "points"} & set(result.cells["covariate"])
    assert "age" in set(result.cells["covariate"])
    assert "Left out by suppress_below=: s, points" in " ".join(str(result).split())
    assert "s" not in set(audit_of(data).table_one(["s", "age"]).cells["covariate"])
    assert "s" in set(audit_of(data, None).table_one().cells["covariate"])


def test_table_one_shows_the_mean_of_a_score_where_a_performance_does():
    audit = audit_of(example(700, 1))
    frame = audit.table_one(["s"]).cells
    score = frame[frame["covariate"] == "s"].set_index("group")["centre"]
    rates = audit.performance().rates
    mean = rates[rates["metric"] == "mean_score"].set_index("group")["estimate"]
    assert mean.isna().any()
    assert score[mean.index[mean.isna()]].isna().all()


@pytest.mark.parametrize("spread", [0, 30])
def test_means_of_counts_go_with_the_number_of_patients_of_each_value(spread):
    data = example(900, 1)
    rng = np.random.default_rng(1)
    data["visits"] = rng.choice([0, 1, 2], len(data), p=[0.7, 0.27, 0.03])
    other = data["race"] == "White"  # elsewhere there are more values
    data.loc[other, "visits"] += rng.integers(0, spread + 1, other.sum())
    frame = audit_of(data).table_one(["visits"]).cells
    means = frame[frame["statistic"] == "mean (SD)"].set_index("group")
    for name, part in data.groupby(data["sex"] + " & " + data["race"]):
        n = part["visits"].value_counts()
        if len(n) <= 12 and (n < T).any():
            assert means.loc[name, ["centre", "spread_low"]].isna().all(), name
            assert means.loc[name, "note"].startswith(MASKED)
    assert means["centre"].isna().any()
    plain = audit_of(data, None).table_one(["visits"]).cells
    assert plain.loc[plain["statistic"] == "mean (SD)", "centre"].notna().all()


def test_no_note_says_which_groups_have_few_events():
    data = example(400, 1)
    assert "events or non-events" in " ".join(audit_of(data, None).performance().notes)
    masked = audit_of(data).performance()
    assert "events or non-events" not in " ".join(masked.notes)
    assert "events or non-events" not in " ".join(str(masked).split())


def test_no_limit_finds_a_masked_number_of_rows():
    data = example(700, 1)
    audit = audit_of(data, 60)
    for limit in (5, 20, 40, 55, 300):
        result = audit.representation(min_count=limit, floor=limit / 700, disclosure=[limit])
        assert result.cells["n"].isna().any()
        for frame, flags in (
            (result.cells, ["below_floor", "below_min_count"]),
            (result.levels, ["under_represented", "small_group"]),
        ):
            lost = frame["n"].isna()
            assert frame.loc[lost, flags].isna().all(axis=None)
            assert frame.loc[~lost, flags].notna().all(axis=None)
        lost = result.cells["n"].isna()
        assert result.cells.loc[lost, "below_disclosure"].isna().all()
        even = result.attributes
        assert even.loc[even["min_share"].isna(), "imbalanced"].isna().all()
        for name in result.cells.loc[lost, "group"]:
            assert name not in " ".join(result._remarks())
    assert audit_of(data, None).representation().cells["below_min_count"].dtype == bool


def test_rows_bins_and_the_best_threshold_are_not_shown():
    data = example(700, 1)
    result, plain = audit_of(data).performance(), audit_of(data, None).performance()
    for name in ("values", "binned", "scored", "fit"):
        with pytest.raises(cfair.errors.DataError, match="suppress_below= masks"):
            getattr(result, name)
        assert getattr(plain, name) is not None
    assert np.isnan(result.best_f1_threshold)
    best = result.rates["metric"].str.endswith("best_f1")
    assert result.rates.loc[best, "threshold"].isna().all()
    assert "best F1 of all rows at masked" in " ".join(str(result).split())
    ece, true = result.estimates_of("ece"), plain.estimates_of("ece")
    with pytest.raises(cfair.errors.DataError, match="rows of every bin"):
        ece.bins  # noqa: B018
    assert "gap" not in repr(ece)
    assert true.bins.n.sum() > 0
    shown = np.isfinite(ece.estimate)
    assert shown.any()
    np.testing.assert_allclose(
        np.array(ece.interval())[:, shown], np.array(true.interval())[:, shown], atol=1e-12
    )


# -- what stands behind a masked figure ------------------------------------------------------------

#: Objects of an analysis that hold a value for every row, and settings.
_FOR_THE_ANALYST = {
    *BY_ROW,
    *("cohort", "audit", "propensity", "outcome_model", "membership_model", "folds", "score_table"),
    *("question", "call", "null_draws", "boot_draws", "null", "boot"),
}


def numbers_in(value, seen):
    """Numbers in the public attributes of a result, whatever holds them."""
    if isinstance(value, pd.DataFrame | pd.Series):
        value = value.to_numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiu":
        yield from value.ravel().tolist()
    elif isinstance(value, np.ndarray | list | tuple):
        for part in np.ravel(value) if isinstance(value, np.ndarray) else value:
            yield from numbers_in(part, seen)
    elif isinstance(value, int | float):
        yield value
    elif hasattr(value, "items"):
        for part in value.values():
            yield from numbers_in(part, seen)
    elif type(value).__module__.startswith("cfair") and id(value) not in seen:
        seen[id(value)] = value
        for name in dir(value):
            if not name.startswith("_") and name not in _FOR_THE_ANALYST:
                with contextlib.suppress(cfair.errors.DataError):
                    part = getattr(value, name)
                    if not callable(part):
                        yield from numbers_in(part, seen)


@pytest.mark.parametrize("name", NAMES)
def test_no_masked_count_is_behind_a_public_attribute(name, large):
    _, results, counts = large
    found = {v for v in numbers_in(results[name], {}) if v == v and v in counts}
    assert not found


def test_moments_are_refused():
    data = example(700, 1)
    for name in ("moments", "cluster_scores"):
        with pytest.raises(cfair.errors.DataError, match="Make an Audit without"):
            getattr(audit_of(data).observed(), name)
    assert audit_of(data, None).observed().moments.base_mass.sum() == 700


@pytest.mark.parametrize("kind", ["weights", "cluster"])
def test_weights_and_clusters_tell_no_sizes_of_masked_groups(kind):
    data = example(700, 1)
    rng = np.random.default_rng(1)
    # weights that hardly differ, clusters of hardly more than a row: sizes would be counts
    data["w"] = rng.choice([1.0, 1.0001], len(data))
    data["c"] = rng.integers(0, 10 * len(data), len(data))
    audit = audit_of(data, **{kind: "w" if kind == "weights" else "c"})
    results = [audit.observed(), audit.performance(), audit.counterfactual(FORMULA)]
    hidden = 0
    for result in results:
        for e, r in zip(result.estimates, result.rows, strict=True):
            masked = np.array([note.startswith(MASKED) for note in r.notes])
            hidden += masked.sum()
            assert np.isnan(e.estimate[masked]).all()
            for name in ("kish", "size", "se", "max_df", "max_size", "df", "least", "rows"):
                value = getattr(e, name, None)
                if np.ndim(value):
                    assert not np.nan_to_num(value[masked]).any(), (e.metric, name)
        told = " ".join(result.notes)
        for name, note in zip(result.cohort.groups.names, result.rows[0].notes, strict=False):
            if note.startswith(MASKED):
                assert f"{name} (" not in told
    assert hidden > 20
    for name in ("rows", "clusters"):
        values = getattr(results[-1].joint, name)
        lost = np.isnan(results[-1].joint.estimate)
        assert values is None or np.isnan(values[lost]).all()


def sizes(*n):
    """Rows in six groups, all four cells of outcome and call filled alike."""
    cells = np.array([[k // 4 + (i < k % 4) for i in range(4)] for k in n])
    return data_of(cells.reshape(2, 3, 2, 2))


def test_no_min_group_size_finds_a_masked_number_of_rows():
    data = sizes(7, 60, 200, 40, 400, 500)
    cohort = audit_of(data).cohort()
    masks = dict(zip(cohort.groups.names, masked_kinds(audit_of(data), "n"), strict=False))
    assert masks["F & Black"]
    assert sum(masks.values()) > 1
    shown = next(name for name, masked in masks.items() if not masked)
    said = {name: set() for name in masks}
    for limit in (2, 7, 8, 11, 40, 41, 60, 61, 1000):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            audit = audit_of(data, min_group_size=limit)
        told = [*audit.observed().notes, *(str(w.message) for w in seen)]
        for name in masks:
            said[name].add(tuple(note for note in told if name in note))
    for name, masked in masks.items():
        if masked:  # the same at any limit
            assert len(said[name]) == 1, name
    assert "fewer than 11 rows" in " ".join(next(iter(said["F & Black"])))
    assert len(said[shown]) == 2  # and may be named
    dropped = audit_of(data, min_group_size=2, small_groups="drop").cohort()
    assert dropped.groups.sizes.tolist() == [0, 60, 200, 40, 400, 500]


def test_rows_that_miss_one_thing_and_not_another_are_not_told():
    data = example(900, 3)
    data.loc[data.index[:40], "sex"] = np.nan
    data.loc[data.index[3:43], "race"] = np.nan  # 3 and 3 of 43 miss but one
    audit = audit_of(data, missing="drop")
    result = audit.representation()
    for said in (str(audit.observed()), str(result), repr(audit)):
        assert "(40)" not in said
        assert "900" not in said
    assert result.attributes[["n", "missing", "missing_share"]].isna().all(axis=None)
    assert "(40)" in str(audit_of(data, None, missing="drop").observed())


def test_contrasts_of_masked_rates_say_so():
    observed = audit_of(example(700, 1)).observed()
    frame = observed.contrasts("overall")
    lost = frame["estimate"].isna()
    assert lost.any()
    own = observed.rates.set_index(["metric", "group"])["note"]
    for row in frame[lost].to_dict("records"):
        assert row["note"] == f"{own[row['metric'], row['group']]} in {row['group']}"
        assert row["note"].startswith(MASKED)
    assert all(row["group"] in row["note"] for _, row in frame[lost].iterrows())
    assert not frame.loc[~lost, "note"].str.contains("masked").any()


def test_every_result_says_what_masks_do_not_do(large):
    for name, result in large[1].items():
        assert cfair.disclosure.APART in " ".join(str(result).split()), name
        assert cfair.disclosure.APART in result.to_markdown(), name
    assert cfair.disclosure.APART not in str(audit_of(example(300, 1), None).observed())


def covariates(seed, n=600):
    """Age in two codings, and a laboratory value that is missing together with its category."""
    data, rng = example(n, seed), np.random.default_rng(seed)
    edges = [0, 50, 55, 60, 65, 70, 75, 200]
    data["fine"] = pd.cut(data["age"], edges).astype(str)
    data["coarse"] = pd.cut(data["age"], [0, 50, 60, 70, 200]).astype(str)
    data["lab"] = rng.integers(50, 400, n).astype(float)
    data["level"] = np.where(data["lab"] > 380, "high", np.where(data["lab"] > 200, "mid", "low"))
    gone = rng.random(n) < 0.04
    data.loc[gone, "lab"] = np.nan
    data.loc[gone, "level"] = None
    return data


@pytest.mark.parametrize(("seed", "below"), [(1, 5), (2, 11)])
def test_no_small_count_follows_from_several_covariates(seed, below):
    data = covariates(seed)
    audit = audit_of(data, below)
    frame = audit.table_one(["fine", "coarse", "lab", "level"]).cells
    groups, protection = audit.cohort().groups, audit.cohort().protection
    # base cells: group, age, category
    own = pd.DataFrame({"group": groups.codes, "fine": data["fine"].to_numpy(),
                        "level": data["level"].fillna("").to_numpy()})  # fmt: skip
    own["coarse"] = data["coarse"].to_numpy()
    cells = own.groupby(["group", "fine", "level", "coarse"]).size().reset_index(name="n")
    member = dict(zip(groups.names, np.eye(6), strict=True)) | {"Overall": np.ones(6)}
    known, asked = [], []
    for target, mask in zip(
        groups.target_matrix, protection.masks(groups.target_matrix, KINDS["n"]), strict=True
    ):
        if mask == 0:
            known.append(target[cells["group"]])
    for _, row in frame[frame["statistic"] != "mean (SD)"].iterrows():
        f = member[row["group"]][cells["group"]]
        if row["level"] == "missing":
            f = f * (cells["level"] == "").to_numpy()
        elif row["covariate"]:
            f = f * (cells[row["covariate"]] == row["level"]).to_numpy()
        asked.append(f)
        if pd.notna(row["count"]):
            assert f @ cells["n"] == row["count"]
            known += [f] if row["count"] else list(np.diag(f)[f > 0])
    _, size, Vt = np.linalg.svd(np.array(known), full_matrices=False)
    V = Vt[size > 1e-9 * size[0]]
    small = [f for f in asked if 0 < f @ cells["n"] < below]
    assert len(small) > 5
    for f in small:
        assert np.linalg.norm(f - V.T @ (V @ f)) > TOL


def test_covariates_that_are_too_many_to_be_protected_together_are_left_out(monkeypatch):
    monkeypatch.setattr(cfair.analyses.table_one, "_MOST_CELLS", 200)
    data, rng = example(900, 1), np.random.default_rng(1)
    names = [f"x{k}" for k in range(6)]
    for name in names:
        data[name] = rng.choice(list("abcd"), len(data))
    data.loc[rng.random(len(data)) < 0.1, names] = None  # missing together
    data["z"] = rng.choice(list("abcd"), len(data))
    assert set(audit_of(data, None).table_one([*names, "z"]).cells["covariate"]) >= {*names, "z"}
    result = audit_of(data).table_one([*names, "z"])
    told = set(result.cells["covariate"])
    assert {"x0", "x1", "z"} <= told
    assert "x5" not in told
    assert "x5 (they share counts with others" in " ".join(str(result).split())


def test_a_mean_of_whole_numbers_tells_no_masked_number_of_values():
    # k / n to all digits gives n by continued fractions
    data = covariates(2)
    frames = {b: audit_of(data, b).table_one(["lab"]).cells for b in (None, T)}
    numbers = frames[T][frames[T]["level"] == "missing"].set_index("group")["count"]
    mean = {b: f[f["statistic"] == "mean (SD)"].set_index("group") for b, f in frames.items()}
    lost = [name for name in numbers.index if pd.isna(numbers[name])]
    assert lost
    assert mean[T].loc[lost, ["centre", "spread_low"]].isna().all(axis=None)
    exact = [Fraction(v).limit_denominator(600).denominator for v in mean[None]["centre"]]
    n = data["lab"].notna().groupby(data["sex"] + " & " + data["race"]).sum()
    told = dict(zip(mean[None].index, exact, strict=True))
    assert any(told[name] == n[name] for name in lost)  # unmasked it is exact


def test_quartiles_are_of_groups_that_have_enough_values_beyond_them():
    data = example(700, 1)
    result = audit_of(data).table_one(["age", "sbp"], median=["age", "sbp"])
    frame = result.cells[result.cells["statistic"] == "median [IQR]"]
    n = data.groupby(data["sex"] + " & " + data["race"]).size()
    few = n.index[n < 4 * T]
    assert len(few)
    assert frame.loc[frame["group"].isin(few), ["centre", "spread_low"]].isna().all(axis=None)
    assert frame.loc[~frame["group"].isin(few), "centre"].notna().any()
    assert "only of groups with 44 values, so that 11 lie beyond" in " ".join(str(result).split())


# -- on the command line ---------------------------------------------------------------------------


def test_counts_are_rounded_on_the_command_line(tmp_path, capsys):
    table = tmp_path / "patients.csv"
    example(900, 4).to_csv(table, index=False)
    flags = ["audit", str(table), "--outcome", "y", "--score", "s", "--groups", "sex", "race"]
    out = ["--out", str(tmp_path / "out"), "--no-plots"]
    assert main([*flags, "--round-counts-to", "10", *out]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "rounded to multiples of 10" in said
    assert "table_one" not in said
    frame = pd.read_csv(tmp_path / "out" / "observed_rates.csv")
    assert (frame[["n", "events"]] % 10 == 0).all(axis=None)
    settings_file = tmp_path / "audit.toml"
    settings_file.write_text("round-counts-to = 10\n", encoding="utf-8")
    assert main([*flags, "--settings", str(settings_file)]) == 0
    assert "rounded to multiples of 10" in " ".join(capsys.readouterr().out.split())
    assert main([*flags, "--round-counts-to", "10", "--propensity", "d ~ sex"]) == 2
    assert "--propensity needs the rows" in capsys.readouterr().err
    assert main(["representation", str(table), "--cross", "sex", "--round-counts-to", "10"]) == 0
    assert "rounded to multiples of 10" in " ".join(capsys.readouterr().out.split())


# -- rounding -------------------------------------------------------------------------------------


def rounded_audit(data, base=5, **more):
    return cfair.Audit(
        data, outcome="y", score="s", cutoff=0.5, groups=["sex", "race"], round_counts_to=base,
        **more,
    )  # fmt: skip


def everything(audit):
    results = [audit.observed(), audit.interaction(), audit.representation()]
    frames = [r.to_frame().to_json(double_precision=15) for r in results]
    return [repr(audit), *map(str, results), *frames, results[-1].to_json()]


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(0, 12), min_size=24, max_size=24), st.randoms(), st.sampled_from([5, 10])
)
def test_counts_that_round_alike_cannot_be_told_apart(tens, random, base):
    # all that is shown is the same for every table within half a base: nobody can do better
    cells = base * (np.array(tens).reshape(2, 3, 2, 2) + 1)
    low, high = -(base // 2), (base - 1) // 2
    moved = cells + np.array([random.randint(low, high) for _ in range(24)]).reshape(cells.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = (everything(rounded_audit(data_of(c), base)) for c in (cells, moved))
    assert one == other
    moved[:, :, :, 1] = cells[:, :, :, 1]  # a table without calls sums over them
    given = {"outcome": "y", "round_counts_to": base}
    one, other = (
        cfair.representation_of(data_of(c), ["sex", "race"], **given) for c in (cells, moved)
    )
    assert (str(one), one.to_json()) == (str(other), other.to_json())


def test_rounded_counts_add_up_and_rates_are_theirs():
    data = example(900, 4)
    result = rounded_audit(data, 10).observed()
    rates, all_rows = result.rates, result.overall.iloc[0]
    assert (rates[["n", "events", "predicted_positive"]] % 10 == 0).all(axis=None)
    one = rates[rates["metric"] == "tpr"]
    assert one["n"].sum() == all_rows["n"]
    hits = (one["estimate"] * one["denominator"]).dropna() / 10
    assert np.allclose(hits, hits.round())
    true = audit_of(data, None).observed().rates
    assert (abs(true["n"] - rates["n"]) <= 4 * 5).all()
    assert "rounded to multiples of 10" in str(result)
    assert "rounded to multiples of 10" in result.to_markdown()


def test_few_dropped_rows_are_rounded_too():
    data = example(900, 3)
    data.loc[data.index[:7], "race"] = np.nan
    said = str(rounded_audit(data, missing="drop").observed())
    assert "5 dropped: race missing" in said
    data.loc[data.index[2:7], "race"] = "White"
    assert "0 dropped: race missing" in str(rounded_audit(data, missing="drop").observed())


def test_what_needs_rows_is_refused_under_rounding(tmp_path):
    audit = rounded_audit(example(600, 1))
    for verb in (audit.performance, audit.table_one, audit.cohort):
        with pytest.raises(cfair.errors.DataError, match="rounded counts"):
            verb()
    with pytest.raises(cfair.errors.DataError, match="rounded counts"):
        audit.counterfactual(FORMULA)
    with pytest.raises(cfair.errors.DataError, match="weights= and cluster= out"):
        rounded_audit(example(600, 1), weights="age")
    with pytest.raises(ValueError, match="round_counts_to must be a whole number"):
        rounded_audit(example(600, 1), 1)
    page = audit.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "rounded to multiples of 5" in page
    assert "SHA-256" not in page


def test_rounded_counts_may_be_masked_as_well():
    data = example(900, 1)
    rates = rounded_audit(data, suppress_below=11).observed()
    assert (
        "rounded to multiples of 5; all figures are of these counts; counts below 11"
        in " ".join(str(rates).split())
    )
    counts = rates.rates[["n", "events"]].to_numpy(float, na_value=np.nan)
    assert np.nanmin(counts) >= 15


# -- results of other rows ------------------------------------------------------------------------


def with_holes(n_missing=36, n=1500):
    """The example with a covariate that some rows miss."""
    data = example(n, 2)
    lost = np.random.default_rng(4).choice(n, n_missing, replace=False)
    return data.assign(sbp=data["sbp"].mask(data.index.isin(data.index[lost])))


def page_of(audit, path, *results):
    page = audit.report(path, *results).read_text(encoding="utf-8")
    page = re.sub(r"data:image[^\"]+|<style.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


@pytest.mark.usefixtures("unsaved_pictures")
@pytest.mark.parametrize(
    ("n_missing", "said"),
    [(36, "on 1,464 of the 1,500 rows"), (5, "on other rows than the tables above")],
)
def test_a_report_leaves_out_results_of_other_rows(n_missing, said, tmp_path):
    audit = audit_of(with_holes(n_missing), missing="drop", treatment="d")
    results = [audit.counterfactual(FORMULA), audit.performance()]
    results.append(results[0].equivalence("cfpr", margin=(-0.1, 0.1), contrast="difference"))
    page = page_of(audit, tmp_path / "r.html", *results)
    assert page.count("Left out: Counterfactual rates") == page.count("Left out: Equivalence") == 1
    assert page.count(said) == 2
    assert "complete= names the columns" in page
    assert "Nothing counterfactual is computed in this report" not in page
    lead = page.partition("Left out of this report: Counterfactual rates, ")[2]
    assert "They rest on other rows than its tables" in lead[:200]
    rest = page.replace(said, "")
    assert f"{1500 - n_missing:,}" not in rest
    assert "AUC" in rest  # of the same rows, and so it stays
    plain = audit_of(with_holes(n_missing), None, missing="drop", treatment="d")
    page = page_of(plain, tmp_path / "p.html", plain.counterfactual(FORMULA))
    assert "Left out: Counterfactual rates" not in page


@pytest.mark.usefixtures("unsaved_pictures")
def test_with_complete_columns_all_results_are_of_the_same_rows(tmp_path):
    data = with_holes()
    audit = audit_of(data, missing="drop", treatment="d", complete="sbp")
    found = [audit.observed(), audit.counterfactual(FORMULA), audit.performance(),
             audit.group_intervention(outcome_model="~ sbp", membership="~ sbp")]  # fmt: skip
    for result in found:
        assert result.cohort.rows.tolist() == np.flatnonzero(data["sbp"].notna()).tolist()
        assert result.cohort.dropped.by_column == {"sbp": 36}
    assert audit.representation().cells["n"].sum() <= 1464
    assert audit.table_one(["age"]).cells["count"].max() == 1464
    page = page_of(audit, tmp_path / "r.html", *found)
    assert "Left out: " not in page.replace("Left out, since", "")
    assert "sbp missing: 36" in page
    assert "complete=[&#39;sbp&#39;]" in page
    with pytest.raises(cfair.errors.DataError, match=r"'sbp' \(36 rows\)"):
        audit_of(data, complete=["sbp"])
    with pytest.raises(cfair.errors.DataError, match="'spb'"):
        audit_of(data, missing="drop", complete=["spb"])


@pytest.mark.usefixtures("unsaved_pictures")
def test_a_report_of_fit_and_audit_gives_advice_that_can_be_followed(tmp_path):
    pytest.importorskip("sklearn")
    fitted = cfair.fit_and_audit(
        with_holes(200), outcome="y", groups="sex", features=["age"], treatment="d",
        missing="drop", suppress_below=T, test_size=0.5, cutoff=0.3,
    )  # fmt: skip
    other = fitted.audit.counterfactual("d ~ sex + age + sbp + fitted_risk")
    page = page_of(fitted.audit, tmp_path / "r.html", fitted, other)
    assert "Left out: Counterfactual rates" in page
    assert "complete=" not in page
    assert "Give fit_and_audit a table without the rows in which" in page
