"""The same question by cfair's own analyses: what ``compat=False`` gives."""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.audit import Audit
from cfair.cohort import Cohort, declare, make_cohort
from cfair.errors import CfairWarning, DataError, warn
from cfair.faircfint.external import ExternalModel
from cfair.faircfint.reading import COLUMNS, as_they_came, refuse_lone, require_columns
from cfair.faircfint.results import (
    SMALL,
    AnalysisResult,
    Rates,
    make_result,
    small_rows,
    standard_rows,
)
from cfair.faircfint.settings import Settings
from cfair.frame import Table, as_table, show_some
from cfair.groups import Groups, factor
from cfair.inference.replicates import RateDraws
from cfair.nuisance.fitted_result import check_modelled, predict
from cfair.nuisance.request import read_model
from cfair.results.small_subgroups import SmallSubgroupResult
from cfair.roles import Roles

Array = NDArray[np.float64]


def estimate_own(data: Any, s: Settings, external: ExternalModel | None) -> AnalysisResult:
    """Estimate as cfair thinks right, under the R package's names."""
    table = as_table(data)
    names = [str(name) for name in table.names]
    wanted = {"what every analysis needs": [c for c in COLUMNS if c != "A2"], **s.xvars}
    if external is not None:
        wanted["external covariates"] = external.columns
    require_columns(names, wanted, "data")
    for column in ("Y", "D"):
        _require_coded(table.column(column))
    roles: dict[str, Any] = {
        "outcome": "Y",
        "treatment": "D",
        "score": "S_prob",
        "cutoff": s.cutoff,
        "groups": [column for column in ("A1", "A2") if column in names],
        "missing": "drop",
    }
    audit = Audit(table, **roles)
    s = _as_it_was_fitted(s, table, Roles(**roles))
    replicates: dict[str, Any] = {
        "n_boot": s.n_boot,
        "resamples": s.resamples,
        "n_perm": s.n_null,
        "permutations": s.permutations,
        "seed": s.seed,
        "n_jobs": s.n_jobs,
        "progress": s.progress,
    }
    result = audit.counterfactual(s.propensity, **replicates)
    rates = {m: result.estimates_of(m).estimate[None] for m in ("fpr", "fnr", "cfpr", "cfnr")}
    rows = standard_rows(result.cohort, result.propensity)
    rows["counterfactual"] = result
    cohort, notes, small, alpha = result.cohort, [*result.notes], None, None
    if s.small:
        used = _rows_of_small_groups(table, s, result.cohort)
        given = None
        if external is not None:
            given = _external_probabilities(table, external, result.cohort.groups, used)
        small = audit.small_subgroups(
            s.propensity,
            outcome_model=s.outcome,
            membership=s.membership,
            external=given,
            borrow=s.borrow_metric,
            folds=int(s.nfolds) if s.folds is None else s.folds,
            **replicates,
        )
        for metric, own in zip(SMALL, ("cfpr", "cfnr"), strict=True):
            rates[metric] = small.estimates_of(own).estimate[None]
        rows |= {**_rows_of_small(small), "small": small}
        cohort, alpha = small.cohort, None if small.borrowed is None else small.alpha
        notes += small.notes
    if cohort.dropped.n:
        warn(f"data: {cohort.dropped.sentence()}.", CfairWarning)
    null = _draws(result.null, None if small is None else small.null)
    boot = _draws(result.boot, None if small is None else small.boot)
    return make_result(s, cohort, rates, null, boot, alpha, rows, notes)


def _require_coded(series: pd.Series) -> None:
    levels = factor(series).levels
    if not all(isinstance(level, numbers.Real) and level in (0, 1) for level in levels):
        raise DataError(
            f"{series.name} must be 0/1 or True/False with compat=False, which never guesses which "
            f"value is the event, but holds {show_some([repr(level) for level in levels])}. Recode "
            f"it: (data[{str(series.name)!r}] == event).astype(int)."
        )


def _as_it_was_fitted(s: Settings, table: Table, roles: Roles) -> Settings:
    """Settings with probabilities in place of a result fitted to attributes that came as numbers.

    A formula takes these for factors, on which such a result cannot predict.
    """
    if not all(hasattr(s.pi_model, name) for name in ("predict", "model", "params")):
        return s
    declared = declare(table, roles)
    request = read_model(s.pi_model, declared)
    if request.formula is None or "Y" in request.columns:  # the second is refused
        return s
    cohort = make_cohort(declared, request.columns)
    check_modelled(request, cohort)
    try:
        predict(request, cohort)
    except DataError:
        frame = as_they_came(table)
        known = ~frame[list(request.columns)].isna().any(axis=1).to_numpy()
        values = np.full(len(frame), np.nan)
        values[known] = predict(request, cohort, frame[known])
        return replace(s, pi_model=values)
    return s


def _rows_of_small_groups(table: Table, s: Settings, cohort: Cohort) -> NDArray[np.intp]:
    """Rows used that have the covariates of the small groups' models, at least 2 of each group."""
    frame = table.read(dict.fromkeys([*s.outcome_xvars, *s.pa_xvars_int])).iloc[cohort.rows]
    keep = ~frame.isna().any(axis=1).to_numpy()
    groups = cohort.groups
    refuse_lone(groups.names, np.bincount(groups.codes[keep], minlength=groups.n_groups))
    return cohort.rows[keep]


def _external_probabilities(
    table: Table, external: ExternalModel, groups: Groups, used: NDArray[np.intp]
) -> Array:
    """Of all rows of the table; those that lack a covariate have none, and are refused if used."""
    frame = table.read(external.columns)
    known = ~frame.isna().any(axis=1).to_numpy()
    lacking = int((~known[used]).sum())
    if lacking:
        raise DataError(
            f"external probabilities are missing in {lacking} of {len(used)} rows used, which lack "
            f"a value in {show_some([repr(c) for c in external.columns])}. Fill it in, or leave "
            "these rows out."
        )
    p = np.full((len(frame), groups.n_groups), np.nan)
    p[known] = external.probabilities(frame[known], groups, compat=False)
    return p


def _draws(own: RateDraws | None, small: RateDraws | None) -> Rates | None:
    """Rates in the replicates of both analyses, which draw the same rows under one seed or not."""
    if own is None:
        return None
    found = dict(own.rates)
    if small is not None:
        found |= {SMALL[0]: small.rates["cfpr"], SMALL[1]: small.rates["cfnr"]}
    return found


def _rows_of_small(small: SmallSubgroupResult) -> dict[str, Any]:
    members, alphas = {"membership": small.p_group}, {}
    if small.borrowed is not None:
        members["membership_internal"] = small.membership_model.p
        members["membership_external"] = small.borrowed.external.p
        alphas = {
            "alpha_null": small.borrowed.null_alpha,
            "alpha_boot": small.borrowed.boot_alpha,
        }
    rows = small_rows(small.cohort, small.outcome_model, small.folds, members, compat=False)
    return {**rows, **alphas}
