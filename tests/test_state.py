"""What an analysis leaves behind: nothing, whether it ends, fails, or is interrupted."""

from __future__ import annotations

import gc
import locale
import os
import tempfile
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bad_inputs
import joblib.externals.loky  # noqa: F401  the first import of these changes filters and environment
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import sklearn.tree  # noqa: F401
import statsmodels.formula.api  # noqa: F401

import cfair
from cfair import metrics
from cfair.faircfint import analysis_estimation
from cfair.inference import bootstrap, permutation, replicates

TABLE = bad_inputs.cohort(300, 3).assign(age=lambda t: (t["age"] - 60) / 10)
FORMULA = "d ~ sex + race + s + age"
matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore::cfair.errors.CfairWarning")


def audit(table=TABLE, **changes):
    roles = {"outcome": "y", "score": "s", "cutoff": 0.5, "groups": "sex", "treatment": "d"}
    return cfair.Audit(table, **{**roles, **changes})


def state():
    """Everything global that a library might change."""
    numpy_state = np.random.get_state()
    pandas_options = {
        name: pd.get_option(name)
        for name in ("display.max_rows", "display.width", "display.precision")
    }
    return {
        "numpy seed": (numpy_state[0], numpy_state[1].tobytes(), numpy_state[2:]),
        "numpy errors": np.geterr(),
        "numpy printing": str(np.get_printoptions()),
        "warnings": list(warnings.filters),
        "showing of warnings": warnings.showwarning,
        "matplotlib": dict(matplotlib.rcParams),
        "backend": matplotlib.get_backend(),
        "figures": plt.get_fignums(),
        "pandas": pandas_options,
        "environment": dict(os.environ),
        "locale": locale.setlocale(locale.LC_ALL),
        "folder": os.getcwd(),
        "temporary files": {p for p in os.listdir(tempfile.gettempdir()) if "cfair" in p},
    }


def changed(before):
    after = state()
    return {key: (before[key], after[key]) for key in before if before[key] != after[key]}


def counterfactual(a):
    return a.counterfactual(FORMULA, n_boot=6, n_perm=6)


VERBS = {
    "declaring": lambda a, _: repr(audit()),
    "observed": lambda a, _: str(a.observed()),
    "performance": lambda a, _: str(a.performance()),
    "interaction": lambda a, _: str(audit(groups=["sex", "race"]).interaction()),
    "representation": lambda a, _: str(a.representation()),
    "representation_of": lambda a, _: str(cfair.representation_of(TABLE, ["sex", "race"])),
    "equivalence": lambda a, _: str(a.equivalence()),
    "counterfactual": lambda a, _: str(counterfactual(a)),
    "workers": lambda a, _: str(a.counterfactual(FORMULA, n_boot=6, n_perm=6, n_jobs=2)),
    "doubly robust": lambda a, _: str(
        a.counterfactual(FORMULA, outcome_model="y ~ age + s", folds=2, n_boot=3)
    ),
    "learner": lambda a, _: str(a.counterfactual(learner(), outcome_model=learner(), folds=2)),
    "small subgroups": lambda a, _: str(
        a.small_subgroups(FORMULA, outcome_model="y ~ age", membership="~ age", n_boot=4, n_perm=3)
    ),
    "group intervention": lambda a, _: str(
        a.group_intervention(outcome_model="y ~ age", membership="~ age", n_boot=3)
    ),
    "table one": lambda a, _: a.table_one().to_markdown(),
    "report": lambda a, folder: a.report(folder / "page.html", counterfactual(a)),
    "all plots": lambda a, folder: counterfactual(a).plot_all(folder),
    "Excel": lambda a, folder: a.observed().to_excel(folder / "a.xlsx"),
    "LaTeX": lambda a, _: a.observed().to_latex(),
    "fit_and_audit": lambda a, _: str(
        cfair.fit_and_audit(TABLE, outcome="y", groups="sex", features=["age"], seed=1)
    ),
    "faircfint": lambda a, _: str(r_result()),
    "metrics": lambda a, _: metrics.auc(TABLE["y"], TABLE["s"], sensitive_features=TABLE["sex"]),
    "simulation": lambda a, _: cfair.simulate_cohort(50, seed=1),
    "planning": lambda a, _: str(
        cfair.equivalence_plan(500, share=0.3, prevalence=0.2, sensitivity=0.6, specificity=0.7)
    ),
    "a refusal": lambda a, _: refused(lambda: a.counterfactual("d ~ nothing")),
    "a failure": lambda a, _: refused(lambda: audit(TABLE.assign(y=2))),
}


def refused(call):
    with pytest.raises(cfair.errors.CfairError):
        call()


def learner():
    from sklearn.tree import DecisionTreeClassifier

    return cfair.Learner(DecisionTreeClassifier(max_depth=2), columns=["age", "s"])


def r_result(**options):
    names = {"sex": "A1", "race": "A2", "y": "Y", "d": "D", "s": "S_prob"}
    data = TABLE.rename(columns=names)
    return analysis_estimation(
        data, cutoff=0.5, pi_model="D ~ A1 + A2 + S_prob + age",
        pi_xvars=["A1", "A2", "S_prob", "age"], gen_null=True, R_null=3, bootstrap="rescaled", B=3,
        **options,
    )  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_global_changes(verb, tmp_path):
    a = audit()
    table = TABLE.copy()
    before = state()
    VERBS[verb](a, tmp_path)
    assert not changed(before)
    pd.testing.assert_frame_equal(TABLE, table)


def test_the_seed_of_numpy_is_not_set_by_chance_of_an_equal_seed():
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    counterfactual(audit())
    r_result(seed=0)
    assert (np.random.get_state()[1] == before).all()


@pytest.mark.parametrize("plot", ["plot_rates", "plot_forest", "plot_gaps", "plot_heatmap"])
def test_a_plot_opens_the_figure_that_it_returns_and_no_other(plot):
    result = audit(groups=["sex", "race"]).observed()
    before = state()
    ax = getattr(result, plot)()
    found = changed(before)
    assert set(found) <= {"figures"}
    figure = getattr(ax, "figure", ax)
    number = getattr(figure, "number", None)
    assert plt.get_fignums() == before["figures"] + ([number] if number else [])
    plt.close(figure)
    own, place = plt.subplots()
    if plot != "plot_forest":  # which lays out a figure of its own
        numbers = plt.get_fignums()
        getattr(result, plot)(ax=place)
        assert plt.get_fignums() == numbers
    plt.close(own)
    assert not changed(before)


def test_the_style_of_the_user_is_left_alone_and_does_not_matter_for_the_page(tmp_path):
    pages = []
    for style in ("default", "dark_background"):
        with plt.style.context(style):
            before = state()
            page = audit().report(tmp_path / f"{style}.html", date="2026-01-01")
            assert not changed(before)
            pages.append(page.read_bytes())
    assert pages[0] == pages[1]


# -- at once ---------------------------------------------------------------------------------------


def everything(a):
    r = a.counterfactual(FORMULA, n_boot=40, n_perm=40, seed=5)
    small = a.small_subgroups(FORMULA, outcome_model="y ~ age", membership="~ age", n_boot=4)
    return [
        r.rates, r.disparities, r.contrasts(), r.test_equal(), r.boot_draws, r.null_draws,
        small.rates, a.observed().rates, a.performance().rates,
    ]  # fmt: skip


def test_audits_in_threads_give_the_numbers_of_each_alone():
    audits = [audit(), audit(groups="race"), audit(TABLE.iloc[::-1]), audit(cutoff=0.4)]
    alone = [everything(audit()), everything(audit(groups="race")),
             everything(audit(TABLE.iloc[::-1])), everything(audit(cutoff=0.4))]  # fmt: skip
    before = state()
    start = threading.Barrier(5)

    def work(a):
        start.wait(60)
        return everything(a)

    with ThreadPoolExecutor(5) as pool:
        # the first audit twice: what it keeps from one call must not disturb another
        together = list(pool.map(work, [*audits, audits[0]]))
    assert not changed(before)
    for mine, expected in zip(together, [*alone, alone[0]], strict=True):
        for a, b in zip(mine, expected, strict=True):
            pd.testing.assert_frame_equal(a, b, rtol=1e-12)


def test_metrics_in_threads_leave_the_filters_of_warnings():
    low = np.full(len(TABLE), 0.1) + TABLE["s"] / 1000  # all on one side of any usual cutoff
    before = state()
    start = threading.Barrier(8)

    def work(_):
        start.wait(60)
        return [metrics.auc(TABLE["y"], low) for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    assert not changed(before)
    assert len({value for values in found for value in values}) == 1
    with pytest.warns(cfair.errors.CutoffWarning):
        audit(cutoff=0.999999)


# -- interrupted -----------------------------------------------------------------------------------


class Interrupted:
    """A function that is interrupted at one of its calls."""

    def __init__(self, function, at):
        self.function, self.at, self.calls = function, at, 0

    def __call__(self, *args, **options):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return self.function(*args, **options)


def interrupted_blocks(original):
    """Blocks of replicates of which the second does not end."""

    def run(work, blocks, **options):
        wrapped = Interrupted(work, 2)
        yield from original(wrapped, blocks, **options)

    return run


ASKED = {
    "permutations": (permutation, lambda a, **o: a.counterfactual(FORMULA, n_perm=150, **o)),
    "bootstrap": (bootstrap, lambda a, **o: a.counterfactual(FORMULA, n_boot=150, **o)),
    "small subgroups": (
        replicates,
        lambda a, **o: a.small_subgroups(
            FORMULA, outcome_model="y ~ age", membership="~ age", n_boot=130, **o
        ),
    ),
}


@pytest.mark.parametrize("options", [{}, {"progress": True}, {"n_jobs": 2}], ids=str)
@pytest.mark.parametrize("what", ASKED)
def test_an_interruption_leaves_the_audit_as_it_was(what, options, monkeypatch):
    module, ask = ASKED[what]
    a = audit()
    before, running = state(), set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr(module, "run_streams", interrupted_blocks(module.run_streams))
        with pytest.raises(KeyboardInterrupt):
            ask(a, **options)
    gc.collect()
    assert not changed(before)
    for thread in set(threading.enumerate()) - running:  # workers may take a moment to end
        if not thread.daemon:
            thread.join(10)
    if not options.get("n_jobs"):  # joblib keeps a pool of its own
        assert not {t for t in threading.enumerate() if not t.daemon} - running
    again, fresh = ask(a), ask(audit())
    pd.testing.assert_frame_equal(again.rates, fresh.rates)
    pd.testing.assert_frame_equal(again.disparities, fresh.disparities)


@pytest.mark.parametrize("at", [1, 2])
def test_an_interrupted_page_leaves_no_figure_and_no_half_of_a_file(at, monkeypatch, tmp_path):
    a = audit()
    page = tmp_path / "page.html"
    page.write_text("before")
    before = state()
    with monkeypatch.context() as patch:
        from cfair.report import pictures

        patch.setattr(pictures, "_vector", Interrupted(pictures._vector, at))
        with pytest.raises(KeyboardInterrupt):
            a.report(page, a.performance(), date="2026-01-01")
    assert not changed(before)
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    assert page.read_text() == "before"
    a.report(page, date="2026-01-01")
    other = audit().report(tmp_path / "other.html", date="2026-01-01")
    assert Path(page).read_bytes() == other.read_bytes()


def test_an_interrupted_property_is_computed_when_it_is_asked_for_again(monkeypatch):
    result = audit().observed()
    from cfair.inference import aggregate

    with monkeypatch.context() as patch:
        patch.setattr(aggregate, "fuse", Interrupted(aggregate.fuse, 2))
        with pytest.raises(KeyboardInterrupt):
            result.disparities  # noqa: B018
    pd.testing.assert_frame_equal(result.disparities, audit().observed().disparities)
