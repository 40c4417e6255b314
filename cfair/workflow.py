"""One call from a table to an audited model: split, fit on one part, audit on the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cfair.analyses.fitted_model import (
    Features,
    Fitted,
    Request,
    fit_model,
    read_features,
    read_model,
)
from cfair.analyses.held_out import Split, check_test_size, said_of, split_tables
from cfair.audit import Audit
from cfair.columns import check_cutoff
from cfair.disclosure import check_below, is_masked, small_masks
from cfair.frame import show_some
from cfair.inference.resampling import seed_entropy
from cfair.nuisance.learners import require_sklearn
from cfair.options import check_level
from cfair.results import text
from cfair.results.calls import record_call
from cfair.results.fitted_model import FitAndAuditResult
from cfair.results.report import plural
from cfair.roles import Roles


def fit_and_audit(
    data: Any = None,
    *,
    train: Any = None,
    test: Any = None,
    outcome: Any,
    groups: Any,
    features: Any,
    model: Any = "logistic",
    test_size: float | int = 0.3,
    cutoff: float = 0.5,
    class_weight: str | None = None,
    upsample: bool = False,
    prepare: bool | None = None,
    indicate_missing: bool = False,
    outcome_event: Any = None,
    treatment: Any = None,
    treatment_event: Any = None,
    missing: str = "raise",
    min_group_size: int | None = None,
    small_groups: str = "warn",
    weights: Any = None,
    cluster: Any = None,
    suppress_below: int | None = None,
    level: float = 0.95,
    seed: int | np.random.SeedSequence | np.random.Generator | None = 0,
) -> FitAndAuditResult:
    """Fit a risk model on some rows and audit its risks on the others.

    The question is whether a model that is learnt in this way treats the groups alike on patients
    it has not seen. The intervals are those of this one fitted model on the held-out rows; another
    split, or more training rows, would give another model.

    Parameters
    ----------
    data : data frame, optional
        Of any kind that `Audit` takes; a row is a patient. It is split at random.
    train, test : data frames, optional
        Two tables in place of `data`. Roles and features are then names of columns in both.
    outcome : name or array
        The event under study: 0/1, True/False, or anything with `outcome_event`.
    groups : name, or sequence of names or arrays
        The protected attributes, one or more; they are crossed.
    features : name or sequence of names
        Columns that the model learns from. Numbers are numbers; text, True/False and Categoricals
        are categories, and so are group attributes, which may be among them.
    model : str or scikit-learn classifier, default "logistic"
        ``"logistic"`` (maximum likelihood, no penalty), ``"random_forest"``, ``"decision_tree"``
        (20 rows or more in a leaf), ``"gradient_boosting"`` (scikit-learn's on histograms),
        ``"neural_network"``, ``"lightgbm"`` where it is installed, all with the settings of their
        library otherwise; or a classifier with ``predict_proba``. It is copied, never changed.
    test_size : float or int, default 0.3
        Share or number of rows of `data` that are held out, balanced by outcome and group where
        there are enough rows. With `cluster` of clusters, which are never split.
    cutoff : float, default 0.5
        The call is S = 1 if ``risk >= cutoff``.
    class_weight : {"balanced"} or None
        Weight training rows so that events and non-events count alike.
    upsample : bool, default False
        Repeat training rows of the rarer outcome, drawn at random, until there are as many as of
        the other. Held-out rows are left alone.
    prepare : bool, optional
        Whether features are made ready for the model: missing numbers become the median and
        missing categories the most frequent one, numbers are scaled, categories coded 0/1; all
        learnt from the training rows, without weights. By default yes, unless `model` is a
        pipeline. That gets a frame of floats and text, with NaN where a value is missing.
    indicate_missing : bool, default False
        Whether the model is also told which values were missing.
    outcome_event : value, or list of values, optional
        What counts as 1, such as "yes" or ["yes", "y"]. Never guessed.
    treatment : name or array, optional
        What stands between the risk and the outcome, as in `Audit`, for
        ``result.audit.counterfactual``. No feature.
    treatment_event : value, or list of values, optional
        What counts as treated.
    missing : {"raise", "drop", "level"}, default "raise"
        For outcome, groups, treatment, weights and cluster, as in `Audit`. Nothing is filled in
        there.
    min_group_size : int, optional
        Groups with fewer held-out rows are warned of.
    small_groups : {"warn", "drop"}, default "warn"
        Whether groups below `min_group_size` stay in the audit.
    weights : name or array, optional
        Sampling weights, in the fit and in the audit.
    cluster : name or array, optional
        Rows with the same value, a hospital or a patient say, are not independent: they are held
        out together, and the intervals allow for it.
    suppress_below : int, optional
        Counts from 1 to one less are masked in all that is printed, drawn and written, as in
        `Audit`; the model itself, ``imputed`` and the rows are given as they are.
    level : float, default 0.95
        Confidence level.
    seed : int, SeedSequence, Generator or None, default 0
        Of the split, the upsampling and every ``random_state`` of the model that is None.

    Returns
    -------
    FitAndAuditResult
        With ``audit``, ``observed``, ``performance``, ``model``, ``risk``, ``train_rows`` and
        ``test_rows``.

    Raises
    ------
    DataError
        If the data do not fit the declaration, or the model cannot be fitted to them.
    ValueError
        For an option that is not allowed.
    ImportError
        If scikit-learn is not installed.

    Examples
    --------
    >>> import cfair
    >>> result = cfair.fit_and_audit(
    ...     cfair.load_cohort(), outcome="readmitted", groups=["sex", "race"],
    ...     features=["age", "sbp", "bmi"], cutoff=0.3,
    ... )
    >>> len(result.train_rows), len(result.test_rows)
    (3500, 1500)
    >>> result.observed.rates.query("metric == 'fpr'").shape[0]
    6
    """
    given = dict(locals())
    require_sklearn("fit_and_audit")
    level, cutoff, entropy = check_level(level), check_cutoff(cutoff), seed_entropy(seed)
    roles = Roles(
        outcome=outcome,
        groups=groups,
        cutoff=cutoff,
        cluster=cluster,
        weights=weights,
        treatment=treatment,
        outcome_event=outcome_event,
        treatment_event=treatment_event,
        missing=missing,
        min_group_size=min_group_size,
        small_groups=small_groups,
        suppress_below=check_below(suppress_below),
    )
    request = read_model(
        model,
        prepare=prepare,
        indicate_missing=indicate_missing,
        class_weight=class_weight,
        upsample=upsample,
        weighted=weights is not None,
    )
    split = split_tables(data, train, test, roles, check_test_size(test_size), entropy)
    read = read_features(features, split, request)
    fitted = fit_model(request, read, split.train, entropy)

    held_out = split.test.table.take(split.test.rows)
    risk = pd.Series(fitted.risk, index=held_out.index, name=_risk_name(split))
    with said_of("held-out rows"):
        audit = Audit(held_out, score=risk, **split.held_out_roles())
        observed = audit.observed(level=level)
    result = FitAndAuditResult(
        audit=audit,
        observed=observed,
        model=fitted.model,
        risk=risk,
        train_rows=split.train.rows,
        test_rows=split.test.rows,
        copies=fitted.copies,
        imputed=fitted.imputed,
        facts=_facts(split, request, read, fitted, entropy),
        notes=(*split.notes, *_group_notes(split), *fitted.notes, *observed.notes),
    )
    record_call(result, "cfair.fit_and_audit", fit_and_audit, (), given)
    return result


def _risk_name(split: Split) -> str:
    """A name that no column has."""
    taken = {str(name) for name in split.test.table.names} | {c for _, c in split.role_names}
    names = ("fitted_risk", *(f"fitted_risk_{i}" for i in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _group_notes(split: Split) -> list[str]:
    """Groups that only one part has."""
    train, test = split.train.groups, split.test.groups
    notes = []
    for labels, said in (
        (test - train, "no training rows, so that the model knows only other groups"),
        (train - test, "no held-out rows: not audited"),
    ):
        if labels:
            names = sorted(" & ".join(map(str, label)) for label in labels)
            notes.append(f"{show_some(names, 6)}: {said}.")
    return notes


def _facts(
    split: Split, request: Request, read: Features, fitted: Fitted, seed: int
) -> tuple[tuple[str, str], ...]:
    """What was done, for the print: model, features, rows, what was filled in."""
    y, copies = split.train.y, fitted.copies
    among = [name for name in split.attributes if name in read.names]
    events, below = int(y.sum()), split.roles.suppress_below
    few = bool(is_masked(small_masks([events, len(y) - events], below)).any())
    shown = "masked" if few else text.share(events, len(y))
    trained = f"{text.count(float(small_masks(len(y), below)))} rows, events: {shown}"
    more = int((copies - 1).clip(0).sum())
    if request.upsample:
        what = "events" if copies[y == 1].max() > 1 else "non-events"
        trained += f"; upsampled: {'' if few else f'{more:,} '}copies of {what} added"
    if request.balanced:
        trained += "; events and non-events weighted to count alike"
    return (
        ("model", f"{request.name}, on {plural(fitted.n_columns, 'column')}"),
        (
            "features",
            f"{', '.join(read.names)}; attributes used as features: {', '.join(among) or 'none'}",
        ),
        ("rows read", split.read),
        ("split", f"{split.how}; seed {seed}"),
        ("trained on", trained),
        ("imputed", _imputed(request, fitted, below)),
    )


def _imputed(request: Request, fitted: Fitted, below: int | None) -> str:
    """What was filled in, or left to the pipeline."""
    parts = []
    for row in fitted.imputed.itertuples():
        value: Any = row.value
        shown = f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)
        filled = f" = {shown}" if request.prepare else ""
        train, test = (text.count(float(n)) for n in small_masks([row.train, row.test], below))
        parts.append(f"{row.column}{filled} in {train} training and {test} held-out")
    if not parts:
        return "nothing: no feature has a missing value"
    said = "; ".join(parts) + " rows"
    if not request.prepare:
        return f"nothing: missing values of {said} are left to the pipeline"
    return said + "; indicators of missing values added" * request.indicate_missing
