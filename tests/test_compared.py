"""Results beside each other, in a plot or on a page, and files that cannot be written."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from matplotlib.figure import Figure

import cfair
from cfair.cli.settings import check_target
from cfair.errors import DataError

ROLES = {"outcome": "readmitted", "score": "risk", "cutoff": 0.5, "groups": ["sex", "race"]}


@pytest.fixture(scope="module")
def cohort():
    return cfair.load_cohort()


def audit_of(table, **changes):
    return cfair.Audit(table, **{**ROLES, **changes})


@pytest.fixture(scope="module")
def observed(cohort):
    return audit_of(cohort).observed()


def drawn(result, **options):
    ax = result.plot_forest("fpr", ax=Figure().add_subplot(), **options)
    return [t.get_text() for t in ax.get_legend().get_texts()][:2]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"outcome_event": 0}, "of the event readmitted = 0, and this result of readmitted = 1"),
        ({"suppress_below": 11}, "compare has suppress_below=11, and this result .*=None"),
        ({"round_counts_to": 5}, "compare has round_counts_to=5"),
    ],
)
def test_unlike_results_are_not_drawn_together(cohort, observed, changes, said):
    other = audit_of(cohort, **changes).observed()
    with pytest.raises(ValueError, match=said):
        drawn(observed, compare=other)


def test_two_levels_are_not_drawn_together(cohort, observed):
    with pytest.raises(ValueError, match=r"compare has level=0\.9, and this result level=0\.95"):
        drawn(observed, compare=audit_of(cohort).observed(level=0.9))


def test_calls_and_rows_that_differ_stand_in_the_legend(cohort, observed):
    one = observed
    assert drawn(one, compare=audit_of(cohort, cutoff=0.3).observed()) == [
        "Observed: risk >= 0.5",
        "Observed: risk >= 0.3",
    ]
    fewer = audit_of(cohort[:4000], cutoff=0.3).observed()
    assert drawn(one, compare=fewer)[1] == "Observed: risk >= 0.3, n = 4,000"
    assert drawn(one, compare={"Third": fewer}) == ["Observed: risk >= 0.5, n = 5,000", "Third"]
    assert drawn(one, compare=one) == ["Observed (1)", "Observed (2)"]


@pytest.mark.parametrize("verb", ["observed", "performance"])
def test_a_report_refuses_results_of_another_event(cohort, tmp_path, verb):
    other = getattr(audit_of(cohort, outcome_event=0), verb)()
    with pytest.raises(DataError, match="result 1 .* is of another audit: event 0, not 1"):
        audit_of(cohort).report(tmp_path / "r.html", other)


@pytest.mark.usefixtures("unsaved_pictures")
def test_a_report_refuses_another_event_of_the_treatment(cohort, tmp_path):
    def result(audit):
        return audit.counterfactual("~ sex * race + risk + age", n_perm=2)

    audit = audit_of(cohort, treatment="treated")
    reverse = result(audit_of(cohort, treatment="treated", treatment_event=0))
    with pytest.raises(DataError, match="treatment event 0, not 1"):
        audit.report(tmp_path / "r.html", reverse)
    assert audit.report(tmp_path / "r.html", result(audit)).exists()


CHANGED = {
    "the outcome 'readmitted'": lambda t: t.assign(readmitted=t["readmitted"].to_numpy()[::-1]),
    "the score 'risk'": lambda t: t.assign(risk=t["risk"] + np.where(t["risk"] > 0.6, 0.01, 0)),
    "the groups": lambda t: t.assign(sex=t["sex"].to_numpy()[::-1]),
    "the column 'age'": lambda t: t.assign(age=t["age"] + 1.0),
}


def counterfactual(audit):
    return audit.counterfactual("treated ~ sex * race + risk + age")


@pytest.fixture(scope="module")
def own(cohort):
    return audit_of(cohort, treatment="treated")


@pytest.mark.usefixtures("unsaved_pictures")
def test_a_report_takes_results_of_the_same_data(own, tmp_path):
    assert own.report(tmp_path / "r.html", counterfactual(own)).exists()


@pytest.mark.parametrize("what", CHANGED)
def test_a_report_refuses_results_of_other_data(cohort, own, tmp_path, what):
    other = counterfactual(audit_of(CHANGED[what](cohort), treatment="treated"))
    if what == "the column 'age'":  # which this audit itself never reads
        with pytest.raises(DataError, match="another audit: .*the column 'age'"):
            own.report(tmp_path / "r.html", counterfactual(own), other)
        return
    with pytest.raises(DataError, match=f"result 1 .* in the same rows .*{what}.* other values"):
        own.report(tmp_path / "r.html", other)


@pytest.mark.usefixtures("unsaved_pictures")
def test_a_report_refuses_other_exclusions_and_takes_rows_that_models_leave_out(cohort, tmp_path):
    table = cohort.copy()
    table.loc[table.index[:40], "age"] = np.nan
    audit = audit_of(table, missing="drop")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fewer = audit.counterfactual("treated ~ sex * race + risk + age")
    assert audit.report(tmp_path / "r.html", fewer).exists()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        large = audit_of(table, min_group_size=400, small_groups="drop").observed()
    assert large.cohort.n_used < len(table)
    with pytest.raises(DataError, match="other rows were left out"):
        audit.report(tmp_path / "r.html", large)


PLACES = {
    "null": ("a\0{}", "null character"),
    "long": ("a" * 300 + "{}", "more than 255 bytes"),
    "proc": ("/proc/x/r{}", "cannot be written|no folder"),
    "folder": ("folder{}", "is a folder"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_cannot_be_written_is_refused_with_its_path(cohort, tmp_path, place):
    name, said = PLACES[place]
    for suffix in (".html", ".xlsx", ".toml"):
        (tmp_path / f"folder{suffix}").mkdir(exist_ok=True)
    audit = audit_of(cohort)
    with pytest.raises(DataError, match=said):
        audit.report(tmp_path / name.format(".html"))
    with pytest.raises(DataError, match=said):
        audit.observed().to_excel(tmp_path / name.format(".xlsx"))
    with pytest.raises(DataError, match=f"--write-settings .*({said})"):
        check_target(tmp_path / name.format(".toml"))


def test_a_workbook_needs_its_folder(cohort, tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        audit_of(cohort).observed().to_excel(tmp_path / "none" / "r.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_permutations_and_their_number_must_agree(cohort):
    audit = audit_of(cohort[:300])
    given = np.tile(np.arange(300), (3, 1))
    with pytest.raises(ValueError, match="n_perm=5 and permutations of 3"):
        audit.counterfactual("treated ~ sex + race + risk", n_perm=5, permutations=given)
