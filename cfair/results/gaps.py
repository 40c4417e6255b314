"""The widest gap of each rate, by attribute and by intersection, and what could have been found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.estimators.disparity import largest_gap
from cfair.inference.aggregate import AggregateIntervals
from cfair.inference.estimates import CARE_BELOW, RateEstimates
from cfair.metrics.classification import severity
from cfair.results.contrasts import adjust_p_values

Array = NDArray[np.float64]

#: The larger of the gaps of TPR and FPR.
EQUALIZED_ODDS = "equalized_odds"
COLUMNS = (
    *("metric", "by", "group", "reference", "gap", "ci_low", "ci_high", "expected_if_equal"),
    *("detectable", "ratio", "severity", "p_value", "p_adjusted", "family", "note"),
)

#: How a note begins that names groups without a rate.
NO_RATE_IN, MASKED_IN = "no rate in ", "masked in "


@dataclass(frozen=True)
class Block:
    """Groups that are compared with one another: the levels of an attribute, or the intersection.

    Attributes
    ----------
    by : str
        The attribute, or the attributes joined by " x ".
    names : tuple of str
    targets : (m,) array of int
        Among groups, margins, all.
    masked : (m,) array of bool
        Whose rate is not shown, for disclosure control.
    """

    by: str
    names: tuple[str, ...]
    targets: NDArray[np.intp]
    masked: NDArray[np.bool_]

    def without(self, reasons: Mapping[str, NDArray[np.bool_]]) -> str:
        """Which groups are not compared, and why; empty if all are.

        Parameters
        ----------
        reasons : dict of str to (m,) array of bool
            How the list of each kind begins, such as `NO_RATE_IN`, and the groups in it.

        Returns
        -------
        str
        """
        if reasons[MASKED_IN].all():
            return "all are masked"
        return "; ".join(
            head + ", ".join(name for name, is_so in zip(self.names, which, strict=True) if is_so)
            for head, which in reasons.items()
            if which.any()
        )


@dataclass(frozen=True)
class Measure:
    """How gaps are judged.

    Attributes
    ----------
    level : float
    aggregate_interval : str
    power : float, default 0.8
        With which a detectable gap would have been found.
    thresholds : tuple of float, default (0.05, 0.15)
        From where on a gap is moderate, and beyond which severe.
    """

    level: float
    aggregate_interval: str
    power: float = 0.8
    thresholds: tuple[float, float] = (0.05, 0.15)


def gap_row(
    estimates: RateEstimates,
    compared: Block,
    measure: Measure,
    summary: AggregateIntervals | None = None,
) -> dict[str, Any]:
    """Describe the widest gap of one rate.

    Parameters
    ----------
    estimates : RateEstimates
    compared : Block
    measure : Measure
    summary : AggregateIntervals, optional
        Of these groups, if it is there already.

    Returns
    -------
    dict
        Without adjusted p-values.
    """
    part = estimates.part(compared.targets)
    row: dict[str, Any] = {"metric": estimates.metric, "by": compared.by}
    pair = largest_gap(part.estimate)
    absent = np.isnan(part.estimate)
    left_out = compared.without(
        {MASKED_IN: absent & compared.masked, NO_RATE_IN: absent & ~compared.masked}
    )
    if pair is None:
        return {**row, "severity": "undefined", "note": left_out or "one group only"}
    high, low = part.estimate[list(pair)]
    if summary is None:
        summary = part.aggregates(measure.level, measure.aggregate_interval)
    ratio = low / high if high > 0 else np.nan
    notes = [left_out, "" if high > 0 else "all rates are 0: no ratio"]
    if np.isnan(part.equality.p_value):
        notes.append(part.equality.note)
    notes.append(_small(compared.names, part.size, pair))
    return {
        **row,
        "group": compared.names[pair[0]],
        "reference": compared.names[pair[1]],
        "gap": high - low,
        "ci_low": summary.low[1],
        "ci_high": summary.high[1],
        "expected_if_equal": summary.expected_if_equal[1],
        "low": low,
        "sizes": tuple(part.size[list(pair)]),
        "ratio": ratio,
        "severity": severity(high - low, *measure.thresholds),
        "p_value": part.equality.p_value,
        "note": "; ".join(note for note in notes if note),
    }


#: What a note says of a gap of which one rate rests on very few.
_CARE = ": read with care"


def _small(names: Sequence[str], sizes: Array, pair: tuple[int, int]) -> str:
    """Which of two rates rest on so few that their gap tells next to nothing."""
    few = [f"{sizes[k]:.0f} in {names[k]}" for k in pair if sizes[k] < CARE_BELOW]
    return f"rests on {' and '.join(few)}{_CARE}" if few else ""


def equalized_odds_row(
    estimates: Sequence[RateEstimates], compared: Sequence[Block], measure: Measure
) -> dict[str, Any]:
    """Describe the larger of two gaps, of TPR and FPR, of which neither was chosen in advance.

    The interval is simultaneous: those of both gaps have half the error each, and cover the larger
    whenever both cover. The p-value is Bonferroni's.

    Parameters
    ----------
    estimates : sequence of two RateEstimates
    compared : sequence of two Block
        The same groups, by the rates of each.
    measure : Measure

    Returns
    -------
    dict
    """
    halved = Measure(
        1 - (1 - measure.level) / 2, measure.aggregate_interval, measure.power, measure.thresholds
    )
    rows = [gap_row(e, b, halved) for e, b in zip(estimates, compared, strict=True)]
    defined = [row for row in rows if "gap" in row]
    if len(defined) < len(rows):
        notes = [f"{r['metric'].upper()}: {r['note']}" for r in rows if "gap" not in r]
        return {
            "metric": EQUALIZED_ODDS,
            "by": compared[0].by,
            "severity": "undefined",
            "note": "; ".join(notes),
        }
    widest = max(defined, key=lambda row: row["gap"])
    others = [row for row in defined if row is not widest and row["note"] != widest["note"]]
    surest = min(defined, key=lambda row: (np.isnan(row["p_value"]), row["p_value"]))
    p = 2 * float(np.fmin(*(row["p_value"] for row in defined)))
    ratio = float(np.fmin(*(row["ratio"] for row in defined)))
    return {
        **widest,
        "metric": EQUALIZED_ODDS,
        "ci_low": max(row["ci_low"] for row in defined),
        "ci_high": max(row["ci_high"] for row in defined),
        "expected_if_equal": max(row["expected_if_equal"] for row in defined),
        "ratio": ratio,
        "p_value": p if np.isnan(p) else min(1.0, p),
        "level": halved.level,
        "note": "; ".join(
            note
            for note in (
                f"of {widest['metric'].upper()}",
                f"p from {surest['metric'].upper()}" if surest is not widest else "",
                widest["note"],
                *(f"{r['metric'].upper()}: {r['note']}" for r in others if r["note"]),
            )
            if note
        ),
    }


def gap_frame(rows: Sequence[dict[str, Any]], measure: Measure, adjust: str | None) -> pd.DataFrame:
    """Rows as a frame, with detectable gaps, and p-values adjusted over all of them.

    Parameters
    ----------
    rows : sequence of dict
    measure : Measure
    adjust : str or None
        A method of statsmodels' ``multipletests``.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`.
    """
    frame = pd.DataFrame(list(rows), columns=list(COLUMNS)).astype(dict.fromkeys(_NUMBERS, float))
    low = np.array([row.get("low", np.nan) for row in rows])
    sizes = np.array([row.get("sizes", (np.nan, np.nan)) for row in rows])
    level = np.array([row.get("level", measure.level) for row in rows])
    found = detectable_gap(low, sizes[:, 0], sizes[:, 1], level, measure.power)
    frame["detectable"] = frame["detectable"].where(frame["detectable"].notna(), found)
    out_of_reach = ~np.isnan(low) & frame["detectable"].isna()
    more = np.where(out_of_reach, "no gap is wide enough to be found", "")
    notes = zip(frame["note"].fillna(""), more, strict=True)
    frame["note"] = ["; ".join(part for part in pair if part) for pair in notes]
    frame["family"] = adjust_p_values(frame, adjust)
    return frame


def simultaneous_pairs(
    estimates: RateEstimates, compared: Sequence[Block], level: float
) -> pd.DataFrame:
    """Every gap of one rate, between groups and within attributes, with simultaneous intervals.

    The intervals hold together over all pairs, so that one may be picked afterwards; unlike that
    of the widest gap, each is of its own pair.

    Parameters
    ----------
    estimates : RateEstimates
    compared : sequence of Block
    level : float

    Returns
    -------
    pandas.DataFrame
        ``by, group`` (the higher), ``reference, gap, ci_low, ci_high``; pairs without an interval
        are left out.
    """
    known = ~np.isnan(estimates.estimate) & ~np.isnan(estimates.se)
    by: list[str] = []
    names: list[tuple[str, str]] = []
    pairs: list[tuple[int, int]] = []
    for block in compared:
        some = [k for k, target in enumerate(block.targets) if known[target]]
        for a, b in combinations(some, 2):
            by.append(block.by)
            names.append((block.names[a], block.names[b]))
            pairs.append((int(block.targets[a]), int(block.targets[b])))
    i, j = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    low, high, gap = np.zeros(0), np.zeros(0), np.zeros(0)
    if pairs:
        pointwise, _ = estimates.simultaneous(i, j, level)
        c = estimates.contrast(i, j, "difference", pointwise)
        low, high, gap = c.low, c.high, c.estimate
    turned = gap < 0
    names = [pair[::-1] if t else pair for pair, t in zip(names, turned, strict=True)]
    columns = {
        "by": by,
        "group": [group for group, _ in names],
        "reference": [reference for _, reference in names],
        "gap": np.abs(gap),
        "ci_low": np.where(turned, -high, low),
        "ci_high": np.where(turned, -low, high),
    }
    frame = pd.DataFrame(columns)
    return (
        frame if frame["ci_low"].notna().all() else frame.dropna(subset="ci_low", ignore_index=True)
    )


#: What brackets around a severity mean.
BRACKETS = (
    "'severe' and 'moderate' in brackets where the interval reaches 0, or a rate rests on fewer "
    f"than {CARE_BELOW:.0f}"
)
#: How the ratio of a gap is headed: it is not that of ``group`` to ``reference``.
RATIO = "lowest/highest"


def severity_words(row: Mapping[Any, Any], name: str | None = None) -> str:
    """The severity of a gap, in brackets where noise alone could have given it.

    Parameters
    ----------
    row : mapping
        A row of `RatesResult.gaps`.
    name : str, optional
        What its severity is called.

    Returns
    -------
    str

    Examples
    --------
    >>> severity_words({"severity": "severe", "ci_low": 0.0})
    '(severe)'
    """
    said = str(row["severity"]) if name is None else name
    weak = row["ci_low"] <= 0 or _CARE in str(row.get("note", ""))
    return f"({said})" if weak and row["severity"] in ("moderate", "severe") else said


def odds_words(row: Mapping[Any, Any]) -> str:
    """Which rate has the larger gap of equalized odds, and which the p-value, if it is another.

    Parameters
    ----------
    row : mapping
        A row of `RatesResult.gaps`.

    Returns
    -------
    str
        Empty for other metrics.

    Examples
    --------
    >>> odds_words({"metric": "equalized_odds", "note": "of TPR; p from FPR"})
    ' (TPR; p: FPR)'
    """
    if row["metric"] != EQUALIZED_ODDS:
        return ""
    # these two come first: in what follows there may be names of groups, which may be any text
    found = _OF_WHICH.match(str(row["note"]))
    if found is None:
        return ""
    widest, surest = found.groups()
    return f" ({widest}; p: {surest})" if surest else f" ({widest})"


#: How the note of a gap of equalized odds begins.
_OF_WHICH = re.compile(r"of (\w+)(?:; p from (\w+))?(?=; |$)")


def p_heading(frame: pd.DataFrame) -> str:
    """How adjusted p-values of a frame are headed.

    Parameters
    ----------
    frame : pandas.DataFrame
        With a column ``family``.

    Returns
    -------
    str

    Examples
    --------
    >>> p_heading(pd.DataFrame({"family": ["Holm over 15 p-values (5 metrics)"]}))
    'all equal? p (Holm)'
    """
    adjusted, over, _ = str(frame["family"].iloc[0]).partition(" over ")
    return f"all equal? p ({adjusted})" if over else "all equal? p"


_NUMBERS = tuple(c for c in COLUMNS[4:] if c not in ("severity", "family", "note"))


def detectable_gap(
    low: Array, n_high: Array, n_low: Array, level: float | Array = 0.95, power: float = 0.8
) -> Array:
    """Least gap above a rate that a test of two proportions of these sizes finds.

    Parameters
    ----------
    low : (m,) array
        The lower of the two rates.
    n_high, n_low : (m,) arrays
        Effective sizes of the higher and the lower rate.
    level : float or (m,) array, default 0.95
        One less the size of the test.
    power : float, default 0.8

    Returns
    -------
    (m,) array
        NaN if no gap up to a rate of 1 is found with this power.

    Examples
    --------
    >>> detectable_gap(np.array([0.2]), np.array([500]), np.array([500])).round(3)
    array([0.075])
    """
    from statsmodels.stats.proportion import power_proportions_2indep

    some = (n_high > 0) & (n_low > 0) & ~np.isnan(low)
    n_high, n_low = np.where(some, n_high, 1.0), np.where(some, n_low, 1.0)
    # a rate of exactly 0 or 1 has no variance, and would be told from anything
    rate = np.where(some, np.clip(low, 0, 1), 0.5)
    rate = np.where(rate % 1 == 0, (n_low * rate + 2) / (n_low + 4), rate)

    def is_found(gap: Array) -> NDArray[np.bool_]:
        found = power_proportions_2indep(
            gap, rate, n_high, ratio=n_low / n_high, alpha=1 - level, return_results=False
        )
        enough: NDArray[np.bool_] = found >= power
        return enough

    short, wide = np.zeros_like(rate), 1 - rate - 1e-9
    some &= is_found(wide)
    for _ in range(24):
        middle = (short + wide) / 2
        enough = is_found(middle)
        short, wide = np.where(enough, short, middle), np.where(enough, middle, wide)
    result: Array = np.where(some, wide, np.nan)
    return result
