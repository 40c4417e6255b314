"""Two one-sided tests of every pair of groups, and the verdict of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.equivalence.design import RULE_OF_FIVE
from cfair.equivalence.tost import (
    Tost,
    least_expected_cell,
    tost_counts,
    tost_estimates,
    tost_to_all,
)
from cfair.estimators.confusion import RATE_CELLS
from cfair.inference.drawn_estimates import DrawnEstimates
from cfair.inference.estimates import RateEstimates
from cfair.inference.score_estimates import BinnedError, ScoreEstimates
from cfair.results.contrasts import Compared, adjust_p_values
from cfair.results.equivalence_question import Question

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

#: What can be said of a pair, from best to worst news.
EQUIVALENT, DIFFERENT = "equivalent", "different"
NOT_ENOUGH, NO_POWER, UNDEFINED = "not enough data", "no power", "undefined"
VERDICTS: tuple[str, ...] = (EQUIVALENT, DIFFERENT, NOT_ENOUGH, NO_POWER, UNDEFINED)
#: Columns of the frame.
COLUMNS = (
    *("metric", "group", "reference", "contrast", "estimate", "ci_low", "ci_high"),
    *("margin_low", "margin_high", "p_lower", "p_upper", "p_value", "p_adjusted", "p_beyond"),
    "verdict",
    *("expected_cell", "rule_of_five", "method", "rate", "rate_reference", "n", "n_reference"),
    *("events", "events_reference", "family", "note"),
)


def pairs_of(
    estimates: RateEstimates,
    denominator: Array,
    reasons: Sequence[str],
    compared: Compared,
    question: Question,
) -> pd.DataFrame:
    """Two one-sided tests of all pairs, for one metric.

    Parameters
    ----------
    estimates : RateEstimates
    denominator : (T,) array
        Rows in the denominator of each rate.
    reasons : sequence of T str
        Why a rate is undefined.
    compared : Compared
    question : Question

    Returns
    -------
    pandas.DataFrame
        A row per pair, without adjusted p-values and verdict.

    Raises
    ------
    ValueError
        If the metric does not allow the contrast or the method.
    """
    e = estimates
    _check_contrast(e, question.contrast)
    first, second = compared.pairs()
    i, j = compared.positions[first], compared.positions[second]
    refusal = _no_score(e, compared, question.contrast)
    if question.method == "score" and refusal:
        raise ValueError(
            f"method='score' is a test of counts of independent rows, but {refusal}. Leave "
            "method= out, or take method='wald'."
        )
    score = question.method != "wald" and not refusal
    low, high = question.margins[e.metric]
    options: dict[str, Any] = {"contrast": question.contrast, "alpha": question.alpha}
    counted = not refusal and e.normal
    events = np.full(len(denominator), np.nan)
    if counted or compared.to_all:
        events = np.rint(e.estimate * denominator)
    if score:
        # of weighted rates as many rows as would be as sure, and the events among them
        n = denominator if counted else np.nan_to_num(e.size)
        x = np.nan_to_num(events if counted else e.estimate * n)
        # a rate that is undefined, or masked, rests on no rows here, and not on 0 events of some
        unknown = np.isnan(e.estimate[i] + e.estimate[j])
        a, b, c, d = (np.where(unknown, 0.0, part) for part in (x[i], n[i], x[j], n[j]))
        table = a, b, c, d
        if compared.to_all:
            test = tost_to_all(*table, (low, high), **options)
        else:
            test = tost_counts(*table, (low, high), **options)
    else:
        test = _wald(e, i, j, (low, high), options)
    cell = np.full(len(i), np.nan)
    if score and compared.to_all:
        rest = n[j] - n[i]
        with np.errstate(invalid="ignore", divide="ignore"):
            cell = least_expected_cell(e.estimate[i], n[i], (x[j] - x[i]) / rest, rest)
    elif not isinstance(e, ScoreEstimates):
        cell = least_expected_cell(e.estimate[i], e.size[i], e.estimate[j], e.size[j])
    frame = pd.DataFrame(
        {
            "metric": e.metric,
            "group": pd.Series([compared.names[k] for k in first], dtype=object),
            "reference": pd.Series([compared.names[k] for k in second], dtype=object),
            "contrast": question.contrast,
            "estimate": np.where(np.isnan(e.estimate[i] + e.estimate[j]), np.nan, test.estimate),
            "ci_low": test.low,
            "ci_high": test.high,
            "margin_low": low,
            "margin_high": high,
            "p_lower": test.p_lower,
            "p_upper": test.p_upper,
            "p_value": test.p_value,
            "p_adjusted": np.nan,
            "reachable": test.reachable,
            "expected_cell": cell,
            "rule_of_five": pd.array(cell >= RULE_OF_FIVE, dtype="boolean"),
            "method": "score" if score else "wald",
            "rate": e.estimate[i],
            "rate_reference": e.estimate[j],
            "n": denominator[i].astype(int),
            "n_reference": denominator[j].astype(int),
            "events": pd.array(events[i], dtype="Int64"),
            "events_reference": pd.array(events[j], dtype="Int64"),
        }
    )
    frame.loc[np.isnan(cell), "rule_of_five"] = pd.NA
    frame["note"] = [
        "; ".join(
            f"{reasons[t]} in {compared.names[k]}" for k, t in pair if np.isnan(e.estimate[t])
        )
        for pair in zip(zip(first, i, strict=True), zip(second, j, strict=True), strict=True)
    ]
    silent = frame["note"].eq("") & frame["p_value"].isna()
    frame.loc[silent, "note"] = [_why(e, *row) for row in zip(i[silent], j[silent], strict=True)]
    return frame


def _wald(
    e: RateEstimates, i: Positions, j: Positions, margin: tuple[float, float], options: Any
) -> Tost:
    sd = np.sqrt(np.maximum(np.diag(e.covariance), 0.0))
    product = sd[i] * sd[j]
    some = product > 0
    rho = np.where(some, e.covariance[i, j], 0.0) / np.where(some, product, 1.0)
    most = np.inf if e.n_clusters is None else float(e.n_clusters - 1)
    df = np.full(len(e.estimate), np.inf)
    if isinstance(e, ScoreEstimates):
        df = df if e.df is None else e.df
    elif not e.normal:
        df = np.minimum(e.size - 1, e.max_df)
    bounded = not isinstance(e, ScoreEstimates)
    return tost_estimates(
        *(e.estimate[i], e.estimate[j], e.se[i], e.se[j], margin),
        correlation=np.clip(rho, -1, 1),
        df=(df[i], df[j]),
        max_df=most,
        sizes=(e.size[i], e.size[j]) if bounded else None,
        **options,
    )


def _check_contrast(e: RateEstimates, contrast: str) -> None:
    """Refuse a contrast that has no meaning for this metric."""
    if isinstance(e, BinnedError):
        raise ValueError(
            f"{e.metric} cannot be tested for equivalence: by chance alone it is larger in a "
            "smaller group. Take brier, oe_ratio or calibration_slope."
        )
    if not isinstance(e, ScoreEstimates):
        return
    if contrast == "odds_ratio" or (contrast == "ratio" and e.scale == "real"):
        raise ValueError(
            f"contrast={contrast!r} has no meaning for {e.metric}. Take contrast='difference' with "
            "a margin."
        )


def _no_score(e: RateEstimates, compared: Compared, contrast: str) -> str:
    """Why there is no score test; empty if there is one."""
    plain = e.metric.removesuffix("_best_f1")
    if isinstance(e, ScoreEstimates):
        return f"{e.metric} is no share of rows"
    if e.n_clusters is not None:
        return "the rows of a cluster are not independent"
    if compared.to_all and (contrast == "odds_ratio" or not e.normal):
        return "all rows together hold the rows of each group"
    if not e.normal:
        apart = e.covariance[np.ix_(compared.positions, compared.positions)]
        some = ~np.isnan(np.diag(apart))
        related = np.abs(apart[np.ix_(some, some)] - np.diag(np.diag(apart)[some])).max(initial=0)
        if e.max_size is None or related > 0:
            return f"{e.metric} rests on weights or models"
    if plain not in RATE_CELLS or plain == "f1":
        return f"{e.metric} is no share of rows"
    return ""


def _why(e: RateEstimates, i: int, j: int) -> str:
    """Why two rates that are defined have no test."""
    a, b = e.estimate[i], e.estimate[j]
    if isinstance(e, DrawnEstimates) and e.unknown[[i, j]].any():
        return e.no_variance
    if np.isnan(e.se[i]) or np.isnan(e.se[j]):
        return "a value has no standard error"
    if a == b:
        return f"both rates are {a:g}"
    return "a rate of 0 or 1 has no odds" if 1 in (a, b) else "a rate of 0 has no logarithm"


def judged(frame: pd.DataFrame, question: Question) -> tuple[pd.DataFrame, str]:
    """Adjust p-values over all pairs, give each its verdict, and say what goes with it.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `pairs_of`, all metrics.
    question : Question

    Returns
    -------
    frame : pandas.DataFrame
        With columns `COLUMNS`.
    family : str
        How p-values are adjusted, and over how many.
    """
    frame = frame.copy()
    family = adjust_p_values(frame, question.adjust)
    # beyond the margin is the other claim that a pair may make, and is adjusted alike
    frame["p_beyond"] = 1 - frame["p_value"]
    beyond = frame.assign(p_value=frame["p_beyond"])
    adjust_p_values(beyond, question.adjust)
    p, q, alpha = frame["p_value"], beyond["p_adjusted"], question.alpha
    frame["verdict"] = np.select(
        [p.isna(), frame["p_adjusted"] < alpha, q < alpha, ~frame["reachable"].astype(bool)],
        [UNDEFINED, EQUIVALENT, DIFFERENT, NO_POWER],
        NOT_ENOUGH,
    )
    frame["note"] = [_note(row, question) for row in frame.to_dict("records")]
    frame["family"] = family
    return frame[list(COLUMNS)], family


def _note(row: Mapping[Any, Any], question: Question) -> str:
    notes = [row["note"]]
    verdict, alpha = row["verdict"], question.alpha
    if verdict == UNDEFINED:
        return str(row["note"])
    unequal = row["ci_low"] > question.equal or row["ci_high"] < question.equal
    if verdict == EQUIVALENT and unequal:
        notes.append("not equal, but within the margin")
    if verdict in (NOT_ENOUGH, NO_POWER):
        if row["p_value"] < alpha:
            notes.append("equivalent by itself, not after adjustment")
        elif row["p_value"] > 1 - alpha:
            notes.append("different by itself, not after adjustment")
        elif unequal:
            notes.append("not equal; whether beyond the margin is open")
    if verdict == NO_POWER:
        counted = not np.isnan(row["expected_cell"])
        split = "no split of these events between the two groups shows equivalence"
        notes.append(split if counted else "the interval is wider than the margin")
    if row["rule_of_five"] is False or row["rule_of_five"] is np.False_:
        care = "" if row["method"] == "score" else ": read with care"
        notes.append(f"expected cell of {row['expected_cell']:.1f}, below 5{care}")
    return "; ".join(note for note in notes if note)
