"""Reporting guidelines: which items the report supports, and which are left to the author."""

from __future__ import annotations

from dataclasses import dataclass

from cfair.options import check_option
from cfair.report.blocks import Rows, Table

GUIDELINES: tuple[str, ...] = ("tripod+ai",)
_SUPPORTS, _AUTHOR = "supports", "left to the author"


@dataclass(frozen=True)
class Facts:
    """What a report has that items ask for.

    Attributes
    ----------
    treatment : bool
        Whether rates had nobody been treated are in it.
    dropped : bool
        Whether rows were left out.
    performance : bool
        Whether the quality of the score is in it.
    clusters : bool
    fingerprint : bool
        Whether a fingerprint of the data is in it.
    patients : bool
        Whether a table of the patients of each group is in it.
    """

    treatment: bool
    dropped: bool
    performance: bool
    clusters: bool
    fingerprint: bool = True
    patients: bool = False


def guideline_table(name: str, facts: Facts) -> Table:
    """The items of a guideline that an audit has to do with.

    Parameters
    ----------
    name : {"tripod+ai"}
    facts : Facts

    Returns
    -------
    Table

    Raises
    ------
    ValueError
        For another name.
    """
    check_option("guideline", name, GUIDELINES)
    treated = (
        "Counterfactual rates; Methods: rates had nobody been treated"
        if facts.treatment
        else "Cohort: number treated, if a treatment was declared; not handled in this report"
    )
    told = "calls, versions and seeds" + ", fingerprint of the data" * facts.fingerprint
    described = "Cohort; Representation: rows and events by group"
    described += "; Patients by group: treatment, score and covariates" * facts.patients
    measures = "Methods; Observed rates" + "; Score quality" * facts.performance
    items = (
        ("6c", "Which treatments patients received, and how that was dealt with",
         f"{treated}. Which treatment it is, and when it was given, is not in the data.",
         _SUPPORTS if facts.treatment else _AUTHOR),
        ("10", "How the size of the study came about, and whether it is enough for its question",
         "Representation: rows and events per group; Key findings: gap that these sizes would "
         "reveal. The reason for the size is not known here.",
         f"{_SUPPORTS} in part; the reason is {_AUTHOR}"),
        ("11", "How missing data were handled, and why any were left out",
         "Cohort: rows left out, by column" if facts.dropped else "Cohort: no rows left out",
         f"{_SUPPORTS}; why data are missing is {_AUTHOR}"),
        ("12a to 12c", "How the data were used, predictors handled and the model built",
         "An audit sees the score, not how it was made.", _AUTHOR),
        ("12d", "How differences between clusters, such as hospitals, were handled and how large "
         "they are",
         "Methods: rows of a cluster count as dependent; rates by cluster are not given."
         if facts.clusters else "No clusters were declared.", _AUTHOR),
        ("12e", "Which measures and plots of performance (discrimination, calibration, usefulness) "
         "were chosen, and why",
         measures, f"{_SUPPORTS}; the reasons are {_AUTHOR}"),
        ("12f, 12g", "Whether the model was updated, and how its predictions were computed",
         "The call under audit is in Cohort; how the score was computed is not known here.",
         _AUTHOR),
        ("14", "What was done about fairness of the model, and why",
         "Question; Methods; all results by group. Why these attributes and this cutoff, and what "
         "was changed in the model, is for the author to say.", f"{_SUPPORTS} in part"),
        ("15", "What the model gives out, and how its cutoffs were chosen",
         "Cohort: the call under audit. Why the cutoff is this one is not known here.", _AUTHOR),
        ("18f", "Where the code of the analysis can be had",
         f"How to repeat this: {told}. Where the code is kept is not known here.",
         f"{_SUPPORTS} in part"),
        ("20a", "How patients came through the study, and how many had the event",
         "Cohort: rows read, left out and used; with the event, without by subtraction. How "
         "patients came into the table, and how long they were followed, is not known here.",
         f"{_SUPPORTS} in part"),
        ("20b", "Characteristics of patients, events and missing values, and how they differ "
         "between groups",
         f"{described}. Dates and follow-up are not in it.", f"{_SUPPORTS} in part"),
        ("21", "Numbers of patients and events in each analysis",
         "Cohort; counts beside all rates. This is the evaluation; development is not in it.",
         f"{_SUPPORTS} for the evaluation"),
        ("23a", "Performance with confidence intervals, in subgroups that matter too, with plots",
         "Observed rates; " + "Counterfactual rates; " * facts.treatment
         + "Score quality; " * facts.performance + "Plots", _SUPPORTS),
    )  # fmt: skip
    return Table(
        caption="Items of TRIPOD+AI (Collins et al., BMJ 2024;385:e078378) that an audit by group "
        "has to do with, in short and in other words than the guideline's",
        head=("Item", "What it asks", "Where in this report", "This report"),
        parts=(Rows("", tuple(items)),),
        text_columns=(1, 2, 3),
        note="The checklist has 27 items; those not listed are about other parts of a study. "
        "Whether a study follows the guideline is for its authors and readers to judge.",
    )
