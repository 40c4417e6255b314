"""Audit a clinical risk score for fairness across intersectional groups.

Declare the cohort once with `Audit`, then ask: ``observed()`` for the rates in the data,
``counterfactual()`` for the rates had nobody been treated. ``cfair.estimators`` has the closed
forms as functions of arrays.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cfair._version import __version__

if TYPE_CHECKING:
    from cfair.analyses.counterfactual_by_batches import counterfactual_by_batches
    from cfair.analyses.gap_design import gap_power, gap_sample_size
    from cfair.analyses.group_design import equivalence_groups
    from cfair.analyses.planning import (
        equivalence_margin,
        equivalence_plan,
        equivalence_power,
        equivalence_sample_size,
    )
    from cfair.analyses.representation import representation_of
    from cfair.audit import Audit
    from cfair.datasets import load_cohort, simulate_cohort, true_disparities, true_rates
    from cfair.equivalence.margins import margin_from_patients, margin_in_patients
    from cfair.metrics.segmentation import segmentation_gaps
    from cfair.metrics.superadditivity import intersectional_gap
    from cfair.nuisance.learners import Learner
    from cfair.workflow import fit_and_audit

# Heavy parts are imported when they are used, so that `import cfair` costs next to nothing.
_WHERE = {
    "Audit": "cfair.audit",
    "Learner": "cfair.nuisance.learners",
    "counterfactual_by_batches": "cfair.analyses.counterfactual_by_batches",
    "equivalence_groups": "cfair.analyses.group_design",
    "equivalence_margin": "cfair.analyses.planning",
    "equivalence_plan": "cfair.analyses.planning",
    "equivalence_power": "cfair.analyses.planning",
    "equivalence_sample_size": "cfair.analyses.planning",
    "fit_and_audit": "cfair.workflow",
    "gap_power": "cfair.analyses.gap_design",
    "gap_sample_size": "cfair.analyses.gap_design",
    "intersectional_gap": "cfair.metrics.superadditivity",
    "load_cohort": "cfair.datasets",
    "margin_from_patients": "cfair.equivalence.margins",
    "margin_in_patients": "cfair.equivalence.margins",
    "representation_of": "cfair.analyses.representation",
    "segmentation_gaps": "cfair.metrics.segmentation",
    "simulate_cohort": "cfair.datasets",
    "true_disparities": "cfair.datasets",
    "true_rates": "cfair.datasets",
}
_ROOMS = ("datasets", "equivalence", "errors", "estimators", "faircfint", "metrics", "plotting")

__all__ = [
    "Audit",
    "Learner",
    "__version__",
    "counterfactual_by_batches",
    "equivalence_groups",
    "equivalence_margin",
    "equivalence_plan",
    "equivalence_power",
    "equivalence_sample_size",
    "fit_and_audit",
    "gap_power",
    "gap_sample_size",
    "intersectional_gap",
    "load_cohort",
    "margin_from_patients",
    "margin_in_patients",
    "representation_of",
    "segmentation_gaps",
    "simulate_cohort",
    "true_disparities",
    "true_rates",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name in _ROOMS:
        return import_module(f"cfair.{name}")
    raise AttributeError(f"module 'cfair' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])
