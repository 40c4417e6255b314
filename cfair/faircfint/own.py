"""The same question by cfair's own analyses: what ``compat=False`` gives."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.audit import Audit
from cfair.errors import CfairWarning, DataError, warn
from cfair.faircfint.external import ExternalModel
from cfair.faircfint.figures import SMALL, group_names
from cfair.faircfint.found import Found
from cfair.faircfint.models import Settings
from cfair.faircfint.table import COLUMNS, require_columns
from cfair.frame import Table, as_table, show_some
from cfair.groups import factor
from cfair.inference.replicates import RateDraws
from cfair.results.counterfactual import CounterfactualResult
from cfair.results.small_subgroups import SmallSubgroupResult

Array = NDArray[np.float64]


def estimate_own(data: Any, settings: Settings, external: ExternalModel | None) -> Found:
    """Estimate as cfair thinks right, and put the rates in order.

    Parameters
    ----------
    data : data frame
    settings : Settings
    external : ExternalModel or None

    Returns
    -------
    Found
    """
    s = settings
    table = as_table(data)
    names = [str(name) for name in table.names]
    attributes = [column for column in ("A1", "A2") if column in names]
    wanted = {"what every analysis needs": [c for c in COLUMNS if c != "A2"], **s.xvars}
    if external is not None:
        wanted["external covariates"] = external.columns
    require_columns(names, wanted, "data")
    for column in ("Y", "D"):
        _require_coded(table.column(column))
    audit = Audit(
        table,
        outcome="Y",
        treatment="D",
        score="S_prob",
        cutoff=s.cutoff,
        groups=attributes,
        missing="drop",
    )
    result = audit.counterfactual(
        _propensity(s),
        n_boot=s.n_boot,
        resamples=s.resamples,
        n_perm=s.n_null,
        permutations=s.permutations,
        seed=s.seed,
        n_jobs=s.n_jobs,
    )
    small = None if not s.small else _small(audit, table, result, s, external)
    shown = result if small is None else small
    cohort = shown.cohort
    if cohort.dropped.n:
        warn(f"data: {cohort.dropped.sentence()}.", CfairWarning)
    rates = {m: e[None] for m, e in _estimates(result, small).items()}
    return Found(
        cohort=cohort,
        n_read=cohort.n_read,
        dropped=cohort.dropped.by_column,
        rates=rates,
        null=_draws(result.null, None if small is None else small.null),
        boot=_draws(result.boot, None if small is None else small.boot),
        alpha=None if small is None or small.borrowed is None else small.alpha,
        rows=_per_row(result, small),
        models=_described(result, small),
        notes=tuple(dict.fromkeys([*result.notes, *(() if small is None else small.notes)])),
        results={"counterfactual": result, **({} if small is None else {"small": small})},
    )


def _propensity(s: Settings) -> Any:
    if s.pi_model_type == "glm" or s.pi_model is not None:
        return s.propensity
    from cfair.faircfint.learning import forest_learner

    return forest_learner(s.pi_xvars, s.pi_model_seed)


def _require_coded(series: pd.Series) -> None:
    levels = factor(series).levels
    if not all(isinstance(level, numbers.Real) and level in (0, 1) for level in levels):
        raise DataError(
            f"{series.name} must be 0/1 or True/False with compat=False, which never guesses which "
            f"value is the event, but holds {show_some([repr(level) for level in levels])}. Recode "
            f"it: (data[{str(series.name)!r}] == event).astype(int)."
        )


def _small(
    audit: Audit,
    table: Table,
    result: CounterfactualResult,
    s: Settings,
    external: ExternalModel | None,
) -> SmallSubgroupResult:
    given = None
    if external is not None:
        # rows that lack a covariate have no probabilities; they are refused if they are used
        frame = table.read(external.columns)
        known = ~frame.isna().any(axis=1).to_numpy()
        given = np.full((len(frame), result.cohort.groups.n_groups), np.nan)
        given[known] = external.probabilities(frame[known], result.cohort.groups, compat=False)
    return audit.small_subgroups(
        _propensity(s),
        outcome_model=s.outcome,
        membership=s.membership,
        external=given,
        borrow=s.borrow_metric,
        folds=int(s.nfolds) if s.folds is None else s.folds,
        n_boot=s.n_boot,
        resamples=s.resamples,
        n_perm=s.n_null,
        permutations=s.permutations,
        seed=s.seed,
        n_jobs=s.n_jobs,
    )


def _estimates(result: CounterfactualResult, small: SmallSubgroupResult | None) -> dict[str, Array]:
    found = {m: result.estimates_of(m).estimate for m in ("fpr", "fnr", "cfpr", "cfnr")}
    if small is not None:
        own = (small.estimates_of(m).estimate for m in ("cfpr", "cfnr"))
        found |= dict(zip(SMALL, own, strict=True))
    return found


def _draws(own: RateDraws | None, small: RateDraws | None) -> dict[str, Array] | None:
    """Rates in the replicates of both analyses, which draw the same rows under one seed or not."""
    if own is None:
        return None
    found = dict(own.rates)
    if small is not None:
        found |= {SMALL[0]: small.rates["cfpr"], SMALL[1]: small.rates["cfnr"]}
    return found


def _per_row(result: CounterfactualResult, small: SmallSubgroupResult | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "propensity": result.propensities,
        "y0_weighted": (result.weights * result.cohort.y).rename("y0_weighted"),
        "pi_model": result.propensity,
    }
    if small is None:
        return found
    index = small.cohort.index
    names = pd.Index(group_names(small.cohort.groups, compat=False))
    outcome = found["outcome_model"] = small.outcome_model
    for name, values in (
        ("mu0hat", outcome.mu0),
        ("mu0S1hat", outcome.mu0_s1),
        ("mu0S0hat", outcome.mu0_s0),
    ):
        found[name] = pd.Series(values, index, name=name)
    found["membership"] = pd.DataFrame(small.p_group, index, columns=names)
    found["folds"] = pd.Series(small.folds.codes + 1, index, name="fold")
    if small.borrowed is not None:
        external = small.borrowed.external.p
        found["membership_internal"] = pd.DataFrame(small.membership_model.p, index, columns=names)
        found["membership_external"] = pd.DataFrame(external, index, columns=names)
        found["alpha_null"] = small.borrowed.null_alpha
        found["alpha_boot"] = small.borrowed.boot_alpha
    return found


def _described(
    result: CounterfactualResult, small: SmallSubgroupResult | None
) -> list[tuple[str, str]]:
    assert result.propensity is not None
    facts = [("propensity", result.propensity.text)]
    if small is not None:
        facts += [
            ("outcome", small.outcome_model.text),
            ("membership", f"{small.membership_text}, {small.folds.n_folds} folds"),
        ]
    return facts
