"""The models behind the R package's figures: those of the estimate, and those replicates refit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.analyses.replicates import Replicates
from cfair.analyses.small_subgroup_models import (
    FittedSmallSubgroups,
    SmallSubgroupRequest,
    fit_small_subgroups,
    read_small_subgroups,
)
from cfair.analyses.treatment import FittedModels, fit_models, read_counterfactual
from cfair.cohort import Cohort, make_cohort
from cfair.faircfint.drawing import deal_folds, given_folds, observed_folds_seed
from cfair.faircfint.external import ExternalModel
from cfair.faircfint.labels import pasted
from cfair.faircfint.models import Settings
from cfair.faircfint.table import Input, refuse_labels
from cfair.inference.small_subgroup import SmallSubgroupModels
from cfair.nuisance.crossfit import FoldsRequest
from cfair.nuisance.order import content_numbers

Array = NDArray[np.float64]

LIMITS = (0.005, 0.995)


@dataclass(frozen=True, eq=False)
class Fits:
    """What was fitted: for the estimate, and again, perhaps otherwise, for the replicates.

    Attributes
    ----------
    cohort : Cohort
    observed, refitted : FittedModels
        With the propensity that was given, and with the one that replicates fit.
    small : FittedSmallSubgroups or None
    small_refitted : SmallSubgroupModels or None
    """

    cohort: Cohort
    observed: FittedModels
    refitted: FittedModels
    small: FittedSmallSubgroups | None = None
    small_refitted: SmallSubgroupModels | None = None

    @property
    def notes(self) -> list[str]:
        """What was said of the fits."""
        found = list(self.observed.notes)
        if self.small is not None:
            found += [*self.small.outcome.notes, *self.small.membership.notes]
        own, other = self.observed.propensity, self.refitted.propensity
        assert own is not None
        assert other is not None
        if own.text != other.text:
            found.append(
                f"the estimate uses the propensity {own.text}, the replicates refit {other.text}, "
                "so that they are centred elsewhere (compat=True)"
            )
        return found

    def described(self, settings: Settings) -> list[tuple[str, str]]:
        """Models in words, for the print."""
        assert self.observed.propensity is not None
        facts = [("propensity", self.observed.propensity.text)]
        if self.small is not None:
            facts += [
                ("outcome", f"{self.small.outcome.text}, {settings.outcome_model_type}"),
                (
                    "membership",
                    f"{' + '.join(settings.pa_xvars_int)}, {settings.fit_method_int}, "
                    f"{self.small.folds.n_folds} folds",
                ),
            ]
        return facts


def fit_as_r(
    table: Input, s: Settings, replicates: Replicates, external: ExternalModel | None
) -> Fits:
    """Fit all models.

    Parameters
    ----------
    table : Input
    s : Settings
    replicates : Replicates
    external : ExternalModel or None

    Returns
    -------
    Fits
    """
    declared = table.declared
    read = [read_counterfactual(declared, s.propensity, None, "ipw", None)]
    if s.pi_model is not None and s.pi_xvars and (s.permutes or s.bootstraps):
        read.append(read_counterfactual(declared, s.own_propensity, None, "ipw", None))
    columns = [c for request in read for c in request.columns]
    missing = {k: mask for request in read for k, mask in request.missing.items()}
    extra = [c for xvars in s.xvars.values() for c in xvars]
    if external is not None:
        extra += external.columns
    cohort = make_cohort(declared, [*columns, *extra], also_missing=missing)
    fitted = [fit_models(request, cohort, LIMITS, replicates) for request in read]
    if not s.small:
        return Fits(cohort, fitted[0], fitted[-1])
    groups = cohort.groups
    refuse_labels(pasted(groups), groups.shape, groups.sizes.tolist())
    p_external = None
    if external is not None:
        p_external = external.probabilities(cohort.data, groups, compat=True)
    requests = [_small_request(table, s, r.propensity, p_external) for r in read]
    folds = FoldsRequest(values=pd.Series(_observed_folds(cohort, fitted[0], s)))
    small = [
        fit_small_subgroups(
            replace(request, folds=folds),
            cohort,
            declared,
            LIMITS,
            labels=replicates.permutes,
            seed=s.seed,
            exact=True,
        )
        for request in requests
    ]
    return Fits(cohort, fitted[0], fitted[-1], small[0], small[-1].models)


def _small_request(
    table: Input, s: Settings, propensity: Any, external: Array | None
) -> SmallSubgroupRequest:
    found = read_small_subgroups(
        table.declared,
        s.propensity,
        s.outcome,
        s.membership,
        external=external,
        borrow=s.borrow_metric,
        scale_external="faircfint",
        renormalise=False,
    )
    return replace(found, propensity=propensity)


def _observed_folds(cohort: Cohort, fitted: FittedModels, s: Settings) -> NDArray[np.intp]:
    if s.folds is not None:
        return given_folds(s.folds, cohort.n_used, "folds")
    rows = fitted.models.rows
    at = rows.canonical(content_numbers(cohort), by_group=True)
    return deal_folds(rows.group, int(s.nfolds), at, observed_folds_seed(s.seed))
