"""Counterfactual error rates of a table larger than memory, read by batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.common import check_options, influence_estimates
from cfair.analyses.counterfactual_result import (
    OBSERVED,
    Computed,
    counterfactual_masks,
    make_result,
)
from cfair.analyses.masking import masked_covariance
from cfair.analyses.observed import cell_counts, observed_estimates, require_clusters, targets
from cfair.batches import BATCH_ROWS, open_source
from cfair.cohort import Cohort, check_rows
from cfair.combinations import check_roles, count_combinations
from cfair.disclosure import check_below
from cfair.errors import DataError
from cfair.estimators.confusion import confusion_counts
from cfair.estimators.ipw import ipw_weights
from cfair.formula import parse_formula
from cfair.inference.contributions import TreatmentModel, ipw_contributions
from cfair.inference.influence import rate_covariance
from cfair.inference.moments import (
    CellMoments,
    ClusterScores,
    cluster_scores,
    contribution_moments,
    contribution_scores,
    counted_moments,
)
from cfair.nuisance.batched_fit import BatchedFit, fit_by_batches, require_formula
from cfair.nuisance.batched_propensity import PropensitySums
from cfair.nuisance.batched_rows import BatchedRows, choose_rows
from cfair.nuisance.propensity import refuse_outcome
from cfair.nuisance.request import ModelRequest
from cfair.results.by_batches import BatchedCounterfactualResult
from cfair.results.calls import record_call
from cfair.results.counterfactual import COUNTERFACTUAL
from cfair.results.report import plural
from cfair.roles import Roles

Array = NDArray[np.float64]

_REPLICATES = (
    "replicates draw or exchange rows, each of which would have to be read again for every one of "
    "them; at this size the intervals from influence functions and the test of equality need none"
)
#: What an analysis of rows in memory can do and this one cannot, and why.
_NOT_BY_BATCHES: dict[str, str] = {
    **dict.fromkeys(
        (
            "n_boot",
            "n_perm",
            "bootstrap",
            "resamples",
            "permutations",
            "u_delta",
            "exact",
            "n_jobs",
        ),
        _REPLICATES,
    ),
    "seed": "nothing is drawn at random",
    "outcome_model": "only weighting is done by batches, and the sums are those of one model",
    "estimator": "only weighting is done by batches",
    "folds": "the propensity is fitted to all rows",
    "round_counts_to": "the propensity is fitted to rows, not to rounded counts",
}
#: What says no more than what happens anyway.
_HARMLESS: tuple[tuple[str, object], ...] = (
    ("estimator", "ipw"),
    ("n_boot", 0),
    ("n_perm", 0),
    ("n_jobs", 1),
    ("exact", False),
)


def counterfactual_by_batches(
    source: Any,
    propensity: str,
    *,
    outcome: str,
    groups: str | Sequence[str],
    score: str | None = None,
    cutoff: float | None = None,
    prediction: str | None = None,
    treatment: str | None = None,
    cluster: str | None = None,
    weights: str | None = None,
    outcome_event: Any = None,
    treatment_event: Any = None,
    missing: str = "raise",
    min_group_size: int | None = None,
    small_groups: str = "warn",
    suppress_below: int | None = None,
    level: float = 0.95,
    interval: str = "wilson",
    aggregate_interval: str = "tie-aware",
    truncation: tuple[float, float] | None = (0.005, 0.995),
    batch_rows: int = BATCH_ROWS,
    progress: bool = False,
    **others: Any,
) -> BatchedCounterfactualResult:
    """Error rates had nobody been treated, of a table that does not fit in memory.

    The figures of ``Audit(...).counterfactual(propensity)`` by inverse probability weighting, with
    the same standard errors, intervals and tests, computed from sums over batches. The table is
    read about eight times: once for rows and groups, once for text columns that are no group, once
    for each pass of patsy's transforms, then for the design, Newton's steps, and the rates. Memory
    goes with `batch_rows`, not with the rows; only the knots of splines (``bs``, ``cr``) need all
    values of their column at once.

    Parameters
    ----------
    source : path, paths, duckdb relation, polars LazyFrame, pyarrow Dataset or callable
        A parquet file, a list of them or a folder; a lazy table of which a batch at a time is
        collected; or a function without arguments that returns, at each call, a new iterator of
        data frames. A row is a patient. Every reading has to give the same rows.
    propensity : str
        A patsy formula such as ``"treated ~ sex * race + risk + age"``, whose left side names the
        treatment.
    outcome : str
        The event under study: 0/1, True/False, or anything with `outcome_event`. Roles are names
        of columns here.
    groups : str or sequence of str
        The protected attributes, one or more; they are crossed.
    score : str, optional
        The risk score under audit, real, in [0, 1]; needs `cutoff`.
    cutoff : float, optional
        The call is S = 1 if ``score >= cutoff``; a score at the cutoff counts as positive.
    prediction : str, optional
        A ready 0/1 call in place of the cutoff.
    treatment : str, optional
        Treatment, 0/1 or True/False, or anything with `treatment_event`, if the formula has no left
        side.
    cluster : str, optional
        Rows with the same value, a hospital say, are not independent. Some thousands of clusters
        can be told apart.
    weights : str, optional
        Sampling weights: for how many people a row stands, on any scale. The propensity is then
        fitted by weighted likelihood.
    outcome_event, treatment_event : value, or list of values, optional
        What counts as 1, such as "yes" or ["yes", "y"]. Never guessed.
    missing : {"raise", "drop", "level"}, default "raise"
        Missing values in a column that is used: refuse them, drop the rows (the result counts them
        by column and group), or make them a level of a group attribute.
    min_group_size : int, optional
        Groups with fewer rows are warned of.
    small_groups : {"warn", "drop"}, default "warn"
        Whether groups below `min_group_size` stay.
    suppress_below : int, optional
        Disclosure control, as in `Audit`; of the balance of covariates nothing is told then.
    level : float, default 0.95
        Confidence level.
    interval : {"wilson", "logit", "plain"}, default "wilson"
        Interval of a rate.
    aggregate_interval : {"tie-aware", "projection"}, default "tie-aware"
        Interval of average and maximum difference.
    truncation : (float, float) or None, default (0.005, 0.995)
        Limits to which propensities are cut, once, everywhere.
    batch_rows : int, default 250,000
        Rows that are in memory at once, at most. The figures do not depend on it.
    progress : bool, default False
        Show a bar when a reading takes longer than a second.
    **others
        Further arguments of `Audit` and ``Audit.counterfactual``, such as `n_boot` or `n_perm`, are
        refused with the reason.

    Returns
    -------
    BatchedCounterfactualResult
        A `CounterfactualResult` without replicates and without anything by row.

    Raises
    ------
    DataError, FormulaError
        If the table, a role or the formula cannot be used: before any reading where that can be
        known, and at the batch that shows it otherwise.
    ValueError
        For an option that is not allowed.

    See Also
    --------
    Audit.counterfactual : the same of rows in memory, with other estimators and replicates.

    References
    ----------
    Wastvedt S, Huling JD, Wolfson J (2023). An intersectional framework for counterfactual
    fairness in risk prediction. Biostatistics, kxad021.

    Examples
    --------
    >>> import cfair
    >>> cohort = cfair.load_cohort()  # stands for a file: "visits.parquet"
    >>> parts = lambda: (cohort[i : i + 2000] for i in range(0, 5000, 2000))
    >>> result = cfair.counterfactual_by_batches(
    ...     parts, "treated ~ sex * race + risk + age + sbp",
    ...     outcome="readmitted", score="risk", cutoff=0.5, groups="sex",
    ... )
    >>> result.rates[["metric", "group", "estimate", "se"]].round(3).head(2)
      metric group  estimate     se
    0   cfpr     F     0.191  0.013
    1   cfpr     M     0.181  0.017
    """
    given = {key: value for key, value in locals().items() if key not in ("source", "propensity")}
    del given["others"]
    _refuse(others)
    options = check_options(level, interval, aggregate_interval, truncation, 0.1)
    text = require_formula(propensity)
    roles = Roles(
        outcome=outcome,
        groups=groups,
        score=score,
        cutoff=cutoff,
        prediction=prediction,
        treatment=treatment,
        cluster=cluster,
        weights=weights,
        outcome_event=outcome_event,
        treatment_event=treatment_event,
        missing=missing,
        min_group_size=min_group_size,
        small_groups=small_groups,
        suppress_below=check_below(suppress_below),
    )
    table = open_source(source, batch_rows, progress=progress)
    formula = parse_formula(text, table.names, what="propensity")
    if roles.treatment is None and formula.left is not None:
        roles = replace(roles, treatment=formula.left)
    one = check_roles(table, roles)[1].with_left_side("treatment", formula.left)
    if one.treatment is None:
        raise DataError(
            "no treatment is declared. Put it on the left of the propensity formula "
            '("treated ~ ..."), or give treatment= its column.'
        )
    refuse_outcome(formula, str(outcome))

    combinations = count_combinations(table, roles, formula.columns)
    rows = choose_rows(combinations, check_rows(combinations.declared()), formula.columns)
    cohort = rows.cohort
    if cohort.cluster is not None:
        require_clusters(cohort)
    request = ModelRequest("propensity", "formula", text, formula.columns, formula.left, formula)
    shown = request.shown(cohort.treatment_name)
    fitted = fit_by_batches(rows, formula, formula.text)
    sums = _add_up(rows, fitted, options.truncation)

    found = sums.propensity.propensity(shown, formula.columns, sums.moments.meat)
    masks = counterfactual_masks(cohort)
    joint = masked_covariance(
        rate_covariance(sums.moments, targets(cohort), cluster_scores=sums.clusters),
        masks,
        COUNTERFACTUAL,
    )
    computed = Computed(
        "ipw",
        sums.moments,
        masks,
        joint,
        influence_estimates(joint, cohort, COUNTERFACTUAL),
        observed_estimates(cohort, [*OBSERVED], sums=_observed(cohort)),
        found,
        sums.propensity.overlap(),
        fit_notes=found.notes,
    )
    result = make_result(
        BatchedCounterfactualResult,
        cohort,
        computed,
        options,
        source=f"{table.shown}, by batches of {plural(table.batch_rows, 'row')}",
    )
    record_call(
        result,
        "cfair.counterfactual_by_batches",
        counterfactual_by_batches,
        (source, propensity),
        given,
    )
    return result


def _refuse(others: dict[str, Any]) -> None:
    """Say of every argument that has no place here why that is so."""
    for name, value in others.items():
        if name not in _NOT_BY_BATCHES:
            raise TypeError(
                f"counterfactual_by_batches() got an unexpected keyword argument {name!r}"
            )
        harmless = isinstance(value, (str, int)) and (name, value) in _HARMLESS
        if value is not None and not harmless:
            raise DataError(
                f"{name}= is not available by batches: {_NOT_BY_BATCHES[name]}. Leave {name}= out, "
                "or take a sample of the rows into memory and use "
                "cfair.Audit(...).counterfactual(...) there."
            )


@dataclass(frozen=True, eq=False)
class _Sums:
    """All sums over the rows that the result is made of."""

    moments: CellMoments
    clusters: ClusterScores | None
    propensity: PropensitySums


def _add_up(rows: BatchedRows, fitted: BatchedFit, truncation: tuple[float, float]) -> _Sums:
    """The last reading: cell sums, influences by cluster, and what is said of the propensity."""
    cohort = rows.cohort
    assert cohort.d is not None
    K, weighted = cohort.groups.n_groups, cohort.weights is not None
    n_clusters = 0 if cohort.cluster is None else int(cohort.cluster.max()) + 1
    known = None if weighted else fitted.fit.information
    propensity = PropensitySums(cohort, fitted, truncation)
    moments: CellMoments | None = None
    clusters: ClusterScores | None = None
    for batch in rows.read("rates"):
        X, at = fitted.matrix(batch), batch.at
        p = fitted.probabilities(X)
        pi = np.clip(p, *truncation)
        d = cohort.d[at]
        model = TreatmentModel(pi, X, p, known)
        added = ipw_contributions(cohort.y[at], cohort.s[at], d, cohort.groups.codes[at], model)
        part = contribution_moments(added, K, batch.weights)
        moments = part if moments is None else moments + part
        w = ipw_weights(d, pi)
        propensity.add(batch, X, p, pi, w if batch.weights is None else w * batch.weights)
        if cohort.cluster is not None:
            own = contribution_scores(added, K, cohort.cluster[at], batch.weights, n_clusters)
            clusters = own if clusters is None else clusters + own
        del batch, X, model, added  # which the next batch would find in memory
    assert moments is not None
    if known is not None:
        moments = replace(moments, information=known)
    return _Sums(moments, clusters, propensity)


def _observed(cohort: Cohort) -> tuple[CellMoments, ClusterScores | None]:
    """Cell sums of the observed rates, from sums of weights; by cluster if there are clusters."""
    assert cohort.repeats is not None
    total = square = cohort.repeats.astype(np.float64)
    if cohort.weights is not None and cohort.weight_squares is not None:
        total, square = total * cohort.weights, cohort.weight_squares
    arrays = (cohort.y, cohort.s, cohort.groups.codes, cohort.groups.n_groups)
    mass, squares = (confusion_counts(*arrays, values).ravel() for values in (total, square))
    moments = replace(
        counted_moments(cell_counts(cohort)),
        mass=mass,
        square=squares,
        base_mass=mass,
        base_square=squares,
    )
    if cohort.cluster is None:
        return moments, None
    n = len(cohort.y)
    scores = cluster_scores(
        cohort.y,
        cohort.s,
        np.zeros(n, dtype=np.int8),
        cohort.groups.codes,
        TreatmentModel(np.zeros(n)),
        cohort.groups.n_groups,
        cohort.cluster,
        total,
    )
    return moments, scores
