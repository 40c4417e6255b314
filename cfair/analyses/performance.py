"""Score quality of a cohort by group and attribute: discrimination, calibration, accuracy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfair.analyses.observed import (
    base_counts,
    care_notes,
    cluster_notes,
    observed_estimates,
    observed_rows,
    rate_masks,
    require_clusters,
    shown_counts,
    targets,
)
from cfair.cohort import Cohort
from cfair.disclosure import (
    KINDS,
    REVEALING,
    SMALL,
    closed,
    quiet,
    small_masks,
    why_rate_masked,
)
from cfair.errors import DataError
from cfair.inference.aggregate import AGGREGATE_INTERVALS
from cfair.inference.estimates import RateEstimates
from cfair.inference.performance import (
    Influence,
    ScoredRows,
    auc,
    best_f1_threshold,
    f1_of,
    few_values,
    log_loss,
    mean_of,
    observed_over_expected,
    scored_rows,
    squared_error,
)
from cfair.inference.recalibration import (
    BIN_RANGES,
    Bins,
    Recalibration,
    calibration_bins,
    check_bins,
    check_clip,
    recalibrate,
)
from cfair.inference.score_estimates import BinnedError, ScoreEstimates
from cfair.options import check_level, check_option
from cfair.results import text
from cfair.results.performance import MEASURES, PerformanceResult
from cfair.results.rates import MetricRows
from cfair.results.report import plural

Array = NDArray[np.float64]

#: Sides of a threshold on which a score equal to it falls.
RULES: tuple[str, ...] = (">=", ">")
#: Values of a score up to which its means can be solved for how many rows have each.
FEW_SCORES = 20
#: With fewer rows in the rarer class an AUC or a recalibration is to be read with care.
FEW = 10.0


def performance(
    cohort: Cohort,
    *,
    level: float = 0.95,
    bins: int = 10,
    bin_range: str = "unit",
    rule: str = ">=",
    clip: float | None = None,
    aggregate_interval: str = "tie-aware",
) -> PerformanceResult:
    """Score quality by intersectional group, by attribute and overall.

    Parameters
    ----------
    cohort : Cohort
    level : float, default 0.95
    bins : int, default 10
        Bins of the calibration error.
    bin_range : {"unit", "group", "quantile"}, default "unit"
    rule : {">=", ">"}, default ">="
        On which side of the cutoff and of the best-F1 threshold a score equal to it falls.
    clip : float, optional
        Scores of the recalibration are moved into ``[clip, 1 - clip]``.
    aggregate_interval : {"tie-aware", "projection"}, default "tie-aware"

    Returns
    -------
    PerformanceResult

    Raises
    ------
    DataError
        If no score is declared.
    """
    if cohort.score is None:
        raise DataError(
            f"performance needs the score, but only the call {cohort.prediction_name!r} was "
            "declared. Give Audit score= the column of risks in [0, 1] and cutoff=."
        )
    level = check_level(level)
    check_option("rule", rule, RULES)
    check_option("bin_range", bin_range, BIN_RANGES)
    check_option("aggregate_interval", aggregate_interval, AGGREGATE_INTERVALS)
    bins, clip = check_bins(bins), check_clip(clip)
    require_clusters(cohort)
    declared, cohort = cohort, replace(cohort, suppress_below=None)  # masked in the end
    assert cohort.score is not None
    rows = scored_rows(cohort)
    threshold = best_f1_threshold(rows.y, rows.p, rows.w)
    at_cutoff = (
        cohort
        if rule == ">=" or cohort.cutoff is None
        else _called(cohort, cohort.score > cohort.cutoff)
    )
    at_best = _called(
        cohort, cohort.score >= threshold if rule == ">=" else cohort.score > threshold
    )
    fit = recalibrate(rows, clip)
    binned = calibration_bins(rows, bins, bin_range)
    influences = _influences(rows, fit, at_cutoff, at_best)
    estimates: dict[str, RateEstimates] = {
        name: _estimates(cohort, rows, name, influence)
        for name, influence in influences.items()
        if MEASURES[name].scale != "counted"
    }
    counted = observed_estimates(cohort, ["prevalence"])
    counted += observed_estimates(at_cutoff, ["accuracy", "f1"])
    best = observed_estimates(at_best, ["accuracy", "f1"])
    estimates |= {e.metric: e for e in counted}
    estimates |= {f"{e.metric}_best_f1": replace(e, metric=f"{e.metric}_best_f1") for e in best}
    kish = rows.every(rows.kish)
    for name, value in (("ece", binned.error), ("ece_debiased", binned.debiased)):
        estimates[name] = BinnedError(
            name,
            cohort.groups.n_groups,
            np.where(np.isnan(binned.error), np.nan, value),
            np.full((len(kish), len(kish)), np.nan),
            kish,
            n_clusters=cohort.n_clusters,
            _bins=binned,
        )
    ordered = tuple(estimates[name] for name in MEASURES)
    counts = base_counts(cohort)
    counts["non_events"] = counts["n"] - counts["events"]
    shown = _rows(cohort, rows, ordered, counts, fit, binned, at_cutoff, at_best)
    notes = _undefined_notes(cohort, ordered, shown)
    if declared.protection is not None:
        calls = {"": at_cutoff, "_best_f1": at_best}
        telling = _telling(declared)
        masks = {
            m: _masks(declared, m, calls["_best_f1" * m.endswith("_f1")], telling) for m in MEASURES
        }
        binned = _masked_bins(binned, masks["ece"] > 0)
        ordered = tuple(e.without(masks[e.metric] > 0) for e in ordered)
        ordered = tuple(
            replace(e, _bins=binned) if isinstance(e, BinnedError) else e for e in ordered
        )
        shown = _masked_rows(declared, shown, masks)
        counts = {name: shown_counts(declared, KINDS[name], v) for name, v in counts.items()}
        at = list(MEASURES).index("auc")
        notes = care_notes(declared, [ordered[at]], [shown[at]])
    values = {name: i.values[0] for name, i in influences.items()}
    for array in values.values():
        array.setflags(write=False)
    return PerformanceResult(
        cohort=declared,
        estimates=ordered,
        rows=shown,
        counts=counts,
        _scored=rows,
        _fit=fit,
        _binned=binned,
        _values=values,
        rule=rule,
        best_f1_threshold=threshold if declared.suppress_below is None else np.nan,
        bins=bins,
        bin_range=bin_range,
        clip=clip,
        level=level,
        aggregate_interval=aggregate_interval,
        notes=(
            *cohort.notes,
            *cluster_notes(cohort),
            *notes,
            *_few_notes(declared, rows),
            *([said] if (said := few_values(rows)) else []),
            *_clip_notes(declared, rows, clip),
        ),
    )


def _masks(
    cohort: Cohort, metric: str, called: Cohort, telling: NDArray[np.bool_]
) -> NDArray[np.int8]:
    """What becomes of one metric under disclosure control."""
    protection, member = cohort.protection, targets(cohort)
    assert protection is not None
    measure = MEASURES[metric]
    n = protection.masks(member, KINDS["n"])
    if metric.startswith(("accuracy", "f1")):
        if not np.array_equal(called.s, cohort.s):
            return np.where(n == SMALL, SMALL, REVEALING).astype(np.int8)  # another table of calls
        return rate_masks(cohort, metric.removesuffix("_best_f1"))
    both = protection.rate_masks(member, KINDS["events"], KINDS["n"])
    if metric == "prevalence":
        return both
    found = both
    # a mean of the score, or of its error, may be solved for those flagged, wrong or ill
    if measure.among is not None:
        of = KINDS["events" if measure.among else "non_events"]
        found = protection.rate_masks(member, of * KINDS["positive"], of)
    elif not measure.both:
        calls = [protection.rate_masks(member, KINDS[k], KINDS["n"]) for k in ("positive", "right")]
        found = np.maximum.reduce([both, *calls])
    more = closed(member[:, cohort.groups.sizes > 0], (found > 0) | telling)
    return np.where((found == 0) & more, REVEALING, found).astype(np.int8)


def _telling(cohort: Cohort) -> NDArray[np.bool_]:
    """Targets of few scores with a masked count: every mean of the score may give it."""
    assert cohort.protection is not None
    assert cohort.score is not None
    member = targets(cohort)
    _, score = np.unique(cohort.score, return_inverse=True)
    there = np.zeros((cohort.groups.n_groups, int(score.max(initial=0)) + 1))
    there[cohort.groups.codes, score] = 1
    few = np.count_nonzero(member @ there, axis=1) <= FEW_SCORES
    cells = [cohort.protection.masks(member, KINDS[k]) > 0 for k in ("tp", "fp", "tn", "fn")]
    result: NDArray[np.bool_] = few & np.logical_or.reduce(cells)
    return result


def _masked_bins(bins: Bins, masked: NDArray[np.bool_]) -> Bins:
    """What the interval of the calibration error needs, without any count of a bin.

    Gaps and variances go to nobody else: of a score of known values they can be solved for counts.
    """
    nothing = np.full_like(bins.gap, np.nan)
    lost = masked[:, None]
    return replace(
        bins,
        gap=np.where(lost, np.nan, bins.gap),
        variance=np.where(lost, np.nan, bins.variance),
        variance_if_calibrated=np.where(lost, np.nan, bins.variance_if_calibrated),
        weight=np.where(lost, np.nan, bins.weight),
        n=nothing,
        events=nothing,
        score=nothing,
        rate=nothing,
        kish=nothing,
    )


def _masked_rows(
    cohort: Cohort, shown: tuple[MetricRows, ...], masks: dict[str, NDArray[np.int8]]
) -> tuple[MetricRows, ...]:
    """Reasons of masked metrics in place of their notes, and masked denominators."""
    below, found = cohort.suppress_below or 0, []
    kinds = {0: "non_events", 1: "events", None: "n"}
    for (metric, measure), r in zip(MEASURES.items(), shown, strict=True):
        of = KINDS[kinds[measure.among]]
        if metric.startswith(("accuracy", "f1")):
            known = np.where(masks[metric] > 0, np.nan, r.denominator)
        else:
            known = shown_counts(cohort, of, r.denominator)
        notes = (
            why_rate_masked(m, below) or quiet(note, below)
            for m, note in zip(masks[metric], r.notes, strict=True)
        )
        found.append(MetricRows(r.label, known, tuple(notes)))
    return tuple(found)


def _called(cohort: Cohort, call: NDArray[np.bool_]) -> Cohort:
    return replace(cohort, s=call.astype(np.int8))


def _influences(
    rows: ScoredRows, fit: Recalibration, at_cutoff: Cohort, at_best: Cohort
) -> dict[str, Influence]:
    """Influence values of every metric that has them, in the order of `MEASURES`."""
    metrics: dict[str, Any] = {
        "auc": auc,
        "brier": mean_of(squared_error),
        "log_loss": mean_of(log_loss),
        "prevalence": mean_of(lambda y, p: y, counted=True),
        "mean_score": mean_of(lambda y, p: p),
        "mean_score_events": mean_of(lambda y, p: p, among=1),
        "mean_score_non_events": mean_of(lambda y, p: p, among=0),
        "oe_ratio": observed_over_expected,
    }
    for suffix, cohort in (("", at_cutoff), ("_best_f1", at_best)):
        call = cohort.s.astype(float)
        right = (call == rows.y).astype(float)
        metrics[f"accuracy{suffix}"] = _share_of(right)
        metrics[f"f1{suffix}"] = f1_of(call)
    found = {name: rows.each(metric) for name, metric in metrics.items()}
    found |= {
        "calibration_in_the_large": fit.in_the_large,
        "calibration_intercept": fit.intercept,
        "calibration_slope": fit.slope,
    }
    return {name: found[name] for name in MEASURES if name in found}


def _share_of(right: Array) -> Any:
    """The mean of ready 0/1 values."""
    return mean_of(lambda y, p: right, counted=True)


def _estimates(cohort: Cohort, rows: ScoredRows, name: str, influence: Influence) -> ScoreEstimates:
    among = MEASURES[name].among
    kish = rows.every(lambda k: rows.least_kish(k, among))
    size = rows.every(lambda k: rows.kish(k, rows.of_class(among)))
    df: Array | None = rows.every(lambda k: rows.units(k, among)) - 1
    least = None
    if name == "auc":
        # the variance of an AUC is at most that of a proportion of the rarer class
        kish = rows.every(lambda k: np.minimum(rows.least_kish(k, 1), rows.least_kish(k, 0)))
        events, others = rows.y == 1, rows.y == 0
        size = rows.every(lambda k: np.minimum(rows.kish(k, events), rows.kish(k, others)))
        df = None if rows.cluster is None else df
    elif name.startswith("calibration_") and name != "calibration_in_the_large":
        df = rows.every(rows.units) - 2
    elif name == "oe_ratio":
        whole = rows.every(lambda k: rows.total(k, rows.w))
        expected = rows.every(lambda k: rows.total(k, rows.w * rows.p))
        least = kish * expected / np.where(whole > 0, whole, 1.0)
    return ScoreEstimates(
        name,
        cohort.groups.n_groups,
        influence.estimate,
        rows.covariance(influence),
        kish,
        n_clusters=cohort.n_clusters,
        scale=MEASURES[name].scale,
        df=df,
        least=least,
        rows=size,
    )


def _rows(
    cohort: Cohort,
    rows: ScoredRows,
    estimates: tuple[RateEstimates, ...],
    counts: dict[str, Array],
    fit: Recalibration,
    binned: Bins,
    at_cutoff: Cohort,
    at_best: Cohort,
) -> tuple[MetricRows, ...]:
    """Denominators and notes of every metric."""
    by_name = {e.metric: e for e in estimates}
    known: dict[str, MetricRows] = {}
    for names, source in (
        (("prevalence",), cohort),
        (("accuracy", "f1"), at_cutoff),
        (("accuracy_best_f1", "f1_best_f1"), at_best),
    ):
        plain = [replace(by_name[n], metric=n.removesuffix("_best_f1")) for n in names]
        known |= dict(zip(names, observed_rows(source, plain), strict=True))
    classes = _class_reasons(rows, counts)
    n_weighted = rows.every(rows.count)
    rows_of = {
        y: rows.every(lambda k, which=rows.y == y: rows.count(k, which))  # type: ignore[misc]
        for y in (0, 1)
    }
    rarer = np.minimum(rows_of[0], rows_of[1])
    units_of = {y: rows.every(lambda k, y=y: rows.units(k, y)) for y in (0, 1, None)}  # type: ignore[misc]
    rarer_units = np.minimum(units_of[0], units_of[1])
    shown = []
    of_class = {0: counts["non_events"], 1: counts["events"], None: counts["n"]}
    for e in estimates:
        measure = MEASURES[e.metric]
        if e.metric in known:
            shown.append(replace(known[e.metric], label=measure.label))
            continue
        notes: list[str] = []
        for t, value in enumerate(e.estimate):
            if n_weighted[t] == 0 or (measure.among is not None and np.isnan(value)):
                notes.append(classes[t])
            elif measure.both:
                why = fit.reasons[e.metric != "calibration_in_the_large"][t]
                why = classes[t] or (why if e.metric != "auc" else "")
                if not np.isnan(value):
                    why = _class_note(e.metric, value, rarer[t], rarer_units[t], units_of[None][t])
                notes.append(why)
            elif measure.among is not None and units_of[measure.among][t] == 1:
                notes.append(_alone(rows_of[measure.among][t]))
            elif np.isnan(value):
                notes.append("all scores are 0")
            elif e.metric == "ece":
                notes.append(f"{binned.if_calibrated[t]:.3f} if perfectly calibrated")
            elif e.metric == "oe_ratio" and value == 0:
                notes.append("no events: upper limit of a Poisson count of 0")
            elif units_of[None][t] == 1:
                notes.append(_alone(n_weighted[t]))
            elif np.isnan(e.se[t]):
                notes.append("the same for every row: nothing to base a standard error on")
            else:
                enough = n_weighted[t] >= FEW
                notes.append("" if enough else f"{n_weighted[t]:.0f} rows: read with care")
        shown.append(MetricRows(measure.label, of_class[measure.among], tuple(notes)))
    return tuple(shown)


def _class_reasons(rows: ScoredRows, counts: dict[str, Array]) -> list[str]:
    """Why a target has no AUC: which class it lacks; empty where it has both."""
    weighted = {
        "rows": rows.every(rows.count),
        "events": rows.every(lambda k: rows.count(k, rows.y == 1)),
        "non-events": rows.every(lambda k: rows.count(k, rows.y == 0)),
    }
    there = {"rows": counts["n"], "events": counts["events"], "non-events": counts["non_events"]}
    reasons = []
    for t in range(len(counts["n"])):
        lacking = next((what for what, m in weighted.items() if m[t] == 0), None)
        if lacking is None:
            reasons.append("")
        else:
            reasons.append(f"no {lacking}" + " of weight above 0" * bool(there[lacking][t]))
    return reasons


def _alone(n: float) -> str:
    """Why rows in a single cluster, or a single row, have no standard error."""
    what = "one row" if n == 1 else "one cluster"
    return f"{what}: nothing to base a standard error on"


def _class_note(metric: str, value: float, rarer: float, rarer_units: float, units: float) -> str:
    """What to mind about a value that needs both classes."""
    if metric == "auc" and rarer_units < 2:
        alone = "one event or non-event" if rarer < 2 else "events or non-events in one cluster"
        return f"{alone}: no variance; Agresti-Coull standard error"
    if metric != "auc" and units < 2 + (metric != "calibration_in_the_large"):
        return f"{plural(int(units), 'cluster')}: nothing to base a standard error on"
    few = f"{rarer:.0f} in the rarer class: read with care" if rarer < FEW else ""
    if metric == "auc" and value in (0.0, 1.0):
        edge = f"exactly {value:.0f}: Agresti-Coull standard error on the rarer class"
        return "; ".join(filter(None, [few, edge]))
    return few


def _undefined_notes(
    cohort: Cohort, estimates: tuple[RateEstimates, ...], shown: tuple[MetricRows, ...]
) -> list[str]:
    """Groups without an AUC, and those without a slope for another reason."""
    names = [e.metric for e in estimates]
    auc_at, slope_at = names.index("auc"), names.index("calibration_slope")
    whole = replace(estimates[auc_at], kish=np.full_like(estimates[auc_at].kish, np.inf))
    sentences = care_notes(cohort, [whole], [shown[auc_at]])
    slope = estimates[slope_at].estimate.copy()
    slope[np.isnan(estimates[auc_at].estimate)] = 1.0
    rest = replace(estimates[slope_at], estimate=slope, kish=whole.kish)
    return sentences + care_notes(cohort, [rest], [shown[slope_at]])


def _few_notes(cohort: Cohort, rows: ScoredRows, limit: int = 6) -> list[str]:
    """Groups with few events or few non-events; none where such numbers are masked."""
    if cohort.suppress_below is not None:
        return []
    events, others = rows.count(0, rows.y == 1), rows.count(0, rows.y == 0)
    rarer = np.minimum(events, others)
    few = np.flatnonzero((rarer > 0) & (rarer < FEW))
    if not len(few):
        return []
    named = [f"{cohort.groups.names[k]} ({rarer[k]:.0f})" for k in few[:limit]]
    more = f" and {len(few) - limit} more" if len(few) > limit else ""
    return [
        f"fewer than {FEW:.0f} events or non-events: {', '.join(named)}{more}. Read AUC and "
        "calibration there with care."
    ]


def _clip_notes(cohort: Cohort, rows: ScoredRows, clip: float | None) -> list[str]:
    """How many scores the recalibration has moved."""
    if clip is None:
        return []
    moved = int(np.count_nonzero((rows.p < clip) | (rows.p > 1 - clip)))
    told = text.count(float(small_masks(moved, cohort.suppress_below)))
    return [f"recalibration: {told} scores moved into [{clip:g}, {1 - clip:g}]."]
