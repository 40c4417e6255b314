"""Findings in plain words: an estimate with its interval, or that the data cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from cfair.inference.estimates import CARE_BELOW
from cfair.report.blocks import count, label, listed, number, p_text, rate
from cfair.results.equivalence import VERDICTS, EquivalenceResult
from cfair.results.gaps import simultaneous_pairs
from cfair.results.group_intervention import GroupInterventionResult
from cfair.results.interaction import InteractionResult
from cfair.results.observed import ObservedResult
from cfair.results.performance import PerformanceResult
from cfair.results.rates import RatesResult
from cfair.results.representation import RepresentationResult
from cfair.results.treated import TreatedResult

#: Metrics as they are named in a sentence.
WORDS: dict[str, tuple[str, str]] = {
    "selection_rate": ("Share flagged", ""),
    "tpr": ("Sensitivity", "Share flagged among those with the event. "),
    "fpr": ("False positive rate", "Share flagged among those without the event. "),
    "fnr": ("False negative rate", "Share missed among those with the event. "),
    "ppv": ("Positive predictive value", "Share with the event among those flagged. "),
    "cfpr": ("False positive rate", "Share flagged among those who would have no event. "),
    "cfnr": ("False negative rate", "Share missed among those who would have the event. "),
    "auc": ("AUC", ""),
    "brier": ("Brier score", ""),
    "oe_ratio": ("Observed to expected events", ""),
    "calibration_slope": ("Calibration slope", ""),
}
#: What it comes to, and the figures.
Finding = tuple[str, str]
#: Pairs of groups of one verdict that a sentence names.
MOST_PAIRS = 6
#: Measures of the score that the page has a table of.
SCORE_METRICS: tuple[str, ...] = ("auc", "brier", "oe_ratio", "calibration_slope")
#: Which rates of a result the findings are about, in this order.
_TOLD: dict[type, tuple[str, ...]] = {
    ObservedResult: ("fpr", "tpr", "selection_rate"),
    PerformanceResult: ("auc", "oe_ratio"),
}


def gap_findings(result: RatesResult) -> list[Finding]:
    """The clearest gap of each rate: between whom, how sure, or that it is unknown.

    The clearest is the one whose simultaneous interval is farthest from 0, among all pairs of
    groups and of levels of an attribute of which both rates rest on `CARE_BELOW` patients; among
    the others only where there is no such pair, and such a finding comes last. The widest is often
    just that of the smallest groups.

    Parameters
    ----------
    result : RatesResult

    Returns
    -------
    list of (str, str)
        What it comes to, and the figures, in a sentence each.
    """
    if np.count_nonzero(result.cohort.groups.sizes) < 2:
        return [("One group only.", "Nothing can be compared.")]
    gaps = tabled_gaps(result)
    said = [
        _finding(result, metric, gaps[gaps["metric"] == metric])
        for metric in _TOLD.get(type(result), result.compared)
    ]
    return _few_last(said)


def _few_last(said: Sequence[tuple[bool, Finding]]) -> list[Finding]:
    """Findings, those that rest on few after the others."""
    return [finding for few in (False, True) for is_few, finding in said if is_few == few]


def calibration_finding(result: PerformanceResult) -> list[Finding]:
    """Whether the score expects too many or too few events of all patients together.

    Parameters
    ----------
    result : PerformanceResult

    Returns
    -------
    list of (str, str)
        Empty where observed and expected events are not told apart.
    """
    if "oe_ratio" not in result.metrics or not result.has_margins:
        return []
    row = result.overall.query("metric == 'oe_ratio'").to_dict("records")[0]
    value, low, high = (float(row[c]) for c in ("estimate", "ci_low", "ci_high"))
    if not (low > 1 or high < 1):
        return []
    word, more = ("underpredicts", "more") if low > 1 else ("overpredicts", "fewer")
    return [
        (
            f"The score {word}: {value:.2f} events per expected one "
            f"({_interval(result, low, high, 1)}), {abs(value - 1):.0%} {more} than it expects.",
            "Of all patients together; groups may differ from it.",
        )
    ]


def tabled_gaps(result: RatesResult) -> pd.DataFrame:
    """The gaps that the page has in a table, with the adjusted p-values that are printed there.

    Parameters
    ----------
    result : RatesResult

    Returns
    -------
    pandas.DataFrame
        As `RatesResult.gaps`.
    """
    if result not in _GAPS:
        chosen = None
        if isinstance(result, PerformanceResult):
            chosen = [m for m in SCORE_METRICS if m in result.metrics]
        _GAPS[result] = result.gaps(chosen)
    return _GAPS[result].copy()


#: Gaps of a result, which findings and tables both ask for; kept as long as the result is.
_GAPS: WeakKeyDictionary[RatesResult, pd.DataFrame] = WeakKeyDictionary()


def _finding(result: RatesResult, metric: str, gaps: pd.DataFrame) -> tuple[bool, Finding]:
    """Whether a gap rests on few, and the gaps of a rate in words, from its rows in the table."""
    name, meaning = WORDS.get(metric, (metric, ""))
    meaning = meaning.rstrip(". ")
    unknown = f"{name}: cannot tell whether groups differ."
    rows = gaps[gaps["gap"].notna()]
    if rows.empty:
        why = f"there is no gap to give: {label(gaps['note'].iloc[-1])}."
        return False, (unknown, _sentence(meaning, why))
    whole = rows["by"] == _whole(result)
    # masked groups have no gap, and what single attributes say is better than nothing
    row = max((rows[whole] if whole.any() else rows).to_dict("records"), key=lambda r: r["gap"])
    widest = _Pair.of(result, metric, row)
    without = _without_rate(result, metric, gaps, str(row["by"]))
    more = "; ".join(["", *without, *widest.care()])
    table = simultaneous_pairs(result.estimates_of(metric), result.blocks(metric), result.level)
    kind = "simultaneous interval" if len(table) > 1 else "interval"
    chosen, passed_over = _chosen(result, metric, table, row)
    pairs = [replace(_Pair.of(result, metric, r), kind=kind) for r in chosen]
    if not pairs or rows["ci_low"].isna().all():
        said = f"the widest gap seen is {widest.gap:.2f}, between {widest.rates()}; no interval "
        return widest.few, (unknown, _sentence(meaning, f"{said}was computed{more}."))
    clearest = pairs[0]
    own = pairs[1] if len(pairs) > 1 else replace(widest, low=np.nan)
    p = float(rows["p_adjusted"].min())
    differ, apart = p < 1 - result.level, clearest.low > 0
    noise = float(row["expected_if_equal"])
    also = [] if own == clearest else [own.as_widest(noise)]
    also += without
    few, care = clearest.few, clearest.care()
    if differ and apart:
        most = f", most clearly {clearest.names()}" if len(table) > 1 else ""
        # the lead has the gap in it, and must not be read without this
        told = "; ".join([f"groups differ{most}, by {clearest.shown()}", *(care if few else [])])
        rates = clearest.rates(", ") if len(table) > 1 else clearest.rates(" against ")
        rest = "; ".join([rates, *also, *([] if few else care)])
        return few, (f"{name}: {told}.", _sentence(meaning, f"{rest}."))
    also += care
    which = "clearest gap" if own != clearest else "widest gap"
    if passed_over:
        which += f" of rates that rest on {CARE_BELOW:.0f} patients or more"
    seen = f"the {which} is {clearest.shown()}, between {clearest.rates()}"
    if own == clearest:
        seen += _where_noise(noise)
    if differ:
        lead = f"{name}: groups differ by the test that all are equal (p {_equals(p)}), which "
        lead += "does not say which of them."
        return few, (lead, _sentence(meaning, f"{'; '.join([seen, *also])}."))
    if apart:
        also.insert(0, f"its interval is adjusted for pairs alone, and for all gaps of the table p "
                       f"{_equals(p)}")  # fmt: skip
    also.append(f"this is no evidence that the groups are alike{_power(result, clearest, rows)}")
    return few, (unknown, _sentence(meaning, f"{'; '.join([seen, *also])}."))


def _sentence(meaning: str, said: str) -> str:
    """What is said of a share, after what it is a share of."""
    return f"{meaning}: {said}" if meaning else said[:1].upper() + said[1:]


def _equals(p: float) -> str:
    return p_text(p) if p < 0.001 else f"= {p_text(p)}"


def _where_noise(expected: float) -> str:
    if np.isnan(expected):
        return ""
    return f", where noise alone would give a widest of about {expected:.2f}"


def _without_rate(result: RatesResult, metric: str, gaps: pd.DataFrame, by: str) -> list[str]:
    """Groups of a comparison that have no rate, and comparisons in which masks leave no gap."""
    estimate = result.estimates_of(metric).estimate
    said, no_gap = [], []
    given = dict(zip(gaps["by"], gaps["gap"].notna(), strict=True))
    for block in result.blocks(metric):
        absent = np.isnan(estimate[block.targets])
        masked = absent & block.masked
        if block.by == by:
            for which, why in (
                (masked, "their rates being masked"),
                (absent & ~block.masked, "for want of a rate"),
            ):
                names = [label(n) for n, lost in zip(block.names, which, strict=True) if lost]
                said += [f"left out, {why}: {', '.join(names)}"] * bool(names)
        if masked.any() and not given.get(block.by, True):
            no_gap.append(label(block.by))
    return said + [f"no gap is given by {listed(no_gap)}, where rates are masked"] * bool(no_gap)


def _chosen(
    result: RatesResult, metric: str, table: pd.DataFrame, widest: dict[Any, Any]
) -> tuple[list[dict[Any, Any]], bool]:
    """The clearest pair, and the widest if it has an interval; whether a clearer one rests on few.

    The clearest has the interval farthest from 0 of those that rest on enough patients, if any do.
    """
    if table.empty:
        return [], False
    wanted = {widest["group"], widest["reference"]}
    columns = list(zip(table["by"], table["group"], table["reference"], strict=True))
    same = [by == widest["by"] and {one, other} == wanted for by, one, other in columns]
    places = {(by, end): _place(result, metric, by, end) for by, *ends in columns for end in ends}
    small = {key for key, place in places.items() if _size_of(place)[0] < CARE_BELOW}
    few = [(by, one) in small or (by, other) in small for by, one, other in columns]
    # of equally clear pairs the widest
    order = table.assign(few=few).sort_values(
        ["few", "ci_low", "gap"], ascending=[True, False, False], kind="stable"
    )
    first = order.head(1).to_dict("records")
    passed_over = not first[0]["few"] and bool((order["ci_low"] > first[0]["ci_low"]).any())
    return [*first, *table[same].to_dict("records")], passed_over


@dataclass(frozen=True)
class _Pair:
    """Two groups, or two levels of an attribute, with their gap and its interval."""

    result: RatesResult = field(compare=False)
    metric: str
    by: str
    ends: tuple[str, str]
    gap: float = field(compare=False)
    low: float = field(compare=False)
    high: float = field(compare=False)
    places: tuple[dict[Any, Any], ...] = field(compare=False)
    kind: str = field(compare=False, default="interval")

    @classmethod
    def of(cls, result: RatesResult, metric: str, row: dict[Any, Any]) -> _Pair:
        """From a row with a gap and the names of its groups."""
        ends = (str(row["group"]), str(row["reference"]))
        gap, low, high = (float(row[c]) for c in ("gap", "ci_low", "ci_high"))
        places = tuple(_place(result, metric, row["by"], end) for end in ends)
        return cls(result, metric, str(row["by"]), ends, gap, low, high, places)

    def shown(self) -> str:
        """The gap with its interval."""
        return f"{self.gap:.2f} ({_interval(self.result, self.low, self.high, kind=self.kind)})"

    def names(self) -> str:
        """Both groups by name."""
        return " and ".join(map(label, self.ends))

    def rates(self, between: str = " and ") -> str:
        """Both groups with their rates, intervals and numbers of patients."""
        shown = (_rate_of(label(e), at) for e, at in zip(self.ends, self.places, strict=True))
        return between.join(shown)

    @property
    def few(self) -> bool:
        """Whether one of the two rates rests on too few to be told without a word of care."""
        return min(_size_of(at)[0] for at in self.places) < CARE_BELOW

    def care(self) -> list[str]:
        """Which of the two are to be read with care."""
        ends = [(label(e), at) for e, at in zip(self.ends, self.places, strict=True)]
        return [said[1:].rstrip(".") for said in _cares(ends)]

    def as_widest(self, expected: float) -> str:
        """What it is to be the widest gap, but not the clearest."""
        said = [_size_of(at) for at in self.places]
        ends = " and ".join(f"{label(e)} ({s[1]})" for e, s in zip(self.ends, said, strict=True))
        if self.low > 0:
            care = ", to be read with care" * self.few
            return f"the widest gap is {self.shown()}, between {ends}{care}"
        why = "rests on too few to tell" if self.few else "cannot be told from 0"
        return (
            f"the widest gap, {self.gap:.2f}, is between {ends} and {why}{_where_noise(expected)}"
        )


def _size_of(row: dict[Any, Any]) -> tuple[float, str]:
    """How many patients a rate rests on, as a number and in words."""
    size = float(row.get("n_effective", np.nan))
    if np.isnan(size):
        size = float(row.get("denominator", row.get("n", np.nan)))
    if np.isnan(size) or size < 0:
        return np.inf, f"{count(row.get('n'))} patients"
    return size, _patients(size)


def _interval(
    result: RatesResult, low: float, high: float, null: float = 0.0, kind: str = "interval"
) -> str:
    """An interval with as many digits as show on which side of equality it is."""
    digits = 2
    while digits < 6 and any(
        v != null and abs(v - null) < 0.5 * 10.0**-digits for v in (low, high)
    ):
        digits += 1
    return f"{100 * result.level:g}% {kind} {number(low, digits)} to {number(high, digits)}"


def _power(result: RatesResult, pair: _Pair, rows: pd.DataFrame) -> str:
    """What the data could have shown: the power is of one pair, not of the widest of many."""
    row = rows[rows["by"] == pair.by].iloc[0]
    detectable = float(row["detectable"])
    if {row["group"], row["reference"]} != set(pair.ends) or np.isnan(detectable):
        return ""
    if _compared(result, pair.metric, pair.by) == 2:
        return f": a test of these two finds gaps from {detectable:.2f} on (80% power)"
    return (
        ": for one pair of groups of these sizes, chosen beforehand, a test finds gaps from "
        f"{detectable:.2f} on (80% power)"
    )


def _place(result: RatesResult, metric: str, by: str, group: Any) -> dict[Any, Any]:
    """The row of a rate: of a group, or of the level of an attribute."""
    if result not in _ROWS:
        single = result.marginals.assign(group=lambda f: f["level"].astype(str))
        # a single attribute has its levels twice, as levels and as groups, which come last here
        rows = [
            *single.to_dict("records"),
            *result.rates.assign(attribute=_whole(result)).to_dict("records"),
        ]
        _ROWS[result] = {(r["metric"], r["attribute"], str(r["group"])): r for r in rows}
    return _ROWS[result].get((metric, by, str(group)), {})


def _whole(result: RatesResult) -> str:
    """What gaps between groups of all attributes together are called by."""
    return " x ".join(result.cohort.groups.attributes)


#: Rows of a result by metric, attributes and group, which are looked up for each gap.
_ROWS: WeakKeyDictionary[RatesResult, dict[Any, dict[Any, Any]]] = WeakKeyDictionary()


def _rate_of(name: str, row: dict[Any, Any]) -> str:
    """A group with its rate, the interval of the rate, and how many patients it has."""
    if not row:
        return name
    value, low, high = (float(row[c]) for c in ("estimate", "ci_low", "ci_high"))
    shown = rate(value, low, high, 2).replace(" (", ", ").rstrip(")")
    return f"{name} ({shown}; n = {count(row['n'])})" if "n" in row else f"{name} ({shown})"


def _cares(places: Sequence[tuple[str, dict[Any, Any]]]) -> list[str]:
    """Which of the groups in a sentence are so small that their rates are to be read with care."""
    said = []
    for name, row in places:
        size = float(row.get("n_effective", np.nan))
        if size < CARE_BELOW:
            said.append(f" The rate of {name} rests on {_patients(size)}: read it with care.")
        elif "read with care" in str(row.get("note", "")):
            why = label(row["note"]).partition(": read with care")[0]
            said.append(f" Read the figure of {name} with care: {why}.")
    return said


def _patients(size: float) -> str:
    """An effective size in words."""
    shown = f"{size:,.0f}" if abs(size - round(size)) < 0.01 else f"an effective {size:,.0f}"
    return f"{shown} {'patient' if shown == '1' else 'patients'}"


def _compared(result: RatesResult, metric: str, by: str) -> int:
    """How many groups, or levels of an attribute, have a rate."""
    frame = result.rates
    if by != _whole(result):
        frame = result.marginals[result.marginals["attribute"] == by]
    return int(frame.loc[frame["metric"] == metric, "estimate"].notna().sum())


def same_pair(counterfactual: RatesResult) -> list[Finding]:
    """How far the groups that differ most without treatment differ in the data.

    The pair has the widest gap of those whose rates rest on `CARE_BELOW` patients, in the data as
    well as without treatment; of the others only where there is no such pair, with a word of care
    beside the figures. It is told only where the gap without treatment is told from 0: the pair was
    chosen because its gap is the widest there, so that any other would look like an effect of
    treatment by this choice alone.

    Parameters
    ----------
    counterfactual : RatesResult
        With the observed rates of the same rows.

    Returns
    -------
    list of (str, str)
    """
    said: list[tuple[bool, Finding]] = []
    if np.count_nonzero(counterfactual.cohort.groups.sizes) < 2:
        return []
    gaps = tabled_gaps(counterfactual)
    whole = _whole(counterfactual)
    for row in gaps[gaps["by"] == whole].to_dict("records"):
        metric = str(row["metric"])
        if not row["p_adjusted"] < 1 - counterfactual.level:
            continue
        found = _widest_of_both(counterfactual, metric)
        if found is None:
            continue
        ends, seen, gap, few, others = found
        places = [(label(e), _place(counterfactual, metric, whole, e)) for e in ends]
        care = [text[1:].rstrip(".") for text in _cares(places)]
        if few and not care:
            care = [f"a rate in the data rests on fewer than {CARE_BELOW:.0f} patients: read it "
                    "with care"]  # fmt: skip
        told = f"{number(seen, 2)} in the data, {gap:.2f} had nobody been treated"
        lead = "; ".join([f"{WORDS[metric][0]}: {told}", *(care if few else [])])
        among = f" of rates that rest on {CARE_BELOW:.0f} patients or more" * others
        rest = "; ".join(
            [
                f"The gap of {places[0][0]} to {places[1][0]}, a pair chosen because its gap is "
                f"the widest without treatment{among}",
                "no interval is given of the change between the two",
                *([] if few else care),
            ]
        )
        said.append((few, (f"{lead}.", f"{rest}.")))
    return _few_last(said)


def _widest_of_both(
    result: RatesResult, metric: str
) -> tuple[tuple[str, str], float, float, bool, bool] | None:
    """The pair of groups with the widest gap whose rates rest on enough, else of all.

    With its gap in the data and without treatment, whether it rests on few, and whether groups that
    do were passed over. None where no pair has a gap in both, or that of the others is not told
    from 0.
    """
    whole, observed = _whole(result), metric.removeprefix("c")
    known: list[tuple[str, float, float, bool]] = []
    for group in map(str, result.rates.loc[result.rates["metric"] == metric, "group"]):
        here, data = (_place(result, m, whole, group) for m in (metric, observed))
        values = [float(place.get("estimate", np.nan)) for place in (here, data)]
        if not np.isnan(values).any():
            few = min(_size_of(here)[0], _size_of(data)[0]) < CARE_BELOW
            known.append((group, values[0], values[1], few))
    large = [k for k in known if not k[3]]
    chosen = large if len(large) > 1 else known
    if len({k[1] for k in chosen}) < 2:
        return None
    high, low = max(chosen, key=lambda k: k[1]), min(chosen, key=lambda k: k[1])
    few = high[3] or low[3]
    passed_over = chosen is large and len(large) < len(known)
    if passed_over:  # those that were may be all that the test of equal rates has found
        table = simultaneous_pairs(result.estimates_of(metric), result.blocks(metric), result.level)
        own = (table["by"] == whole) & (table["group"] == high[0]) & (table["reference"] == low[0])
        if not (table.loc[own, "ci_low"] > 0).any():
            return None
    return (high[0], low[0]), high[2] - low[2], high[1] - low[1], few, passed_over


def equivalence_finding(result: EquivalenceResult) -> list[Finding]:
    """Which pairs got which verdict.

    Parameters
    ----------
    result : EquivalenceResult

    Returns
    -------
    list of (str, str)
    """
    said: list[Finding] = []
    frame = result.pairs
    for row in result.overall.to_dict("records"):
        metric = str(row["metric"])
        low, high = result.question.margins[metric]
        counts = [(int(row[name.replace(" ", "_")]), name) for name in VERDICTS]
        shown = listed([f"{n:,} {name}" for n, name in counts if n])
        name = result.labels[metric]
        contrast = result.question.contrast.replace("_", " ")
        mine = frame[frame["metric"] == metric]
        pairs = [
            f"{verdict}: {listed([_pair_words(r) for r in part.to_dict('records')], MOST_PAIRS)}"
            for verdict in VERDICTS
            if len(part := mine[mine["verdict"] == verdict])
        ]
        told = "; ".join(pairs)
        said.append(
            (
                f"{name.capitalize() if name.islower() else name}: of {int(row['pairs']):,} "
                f"{'pair' if row['pairs'] == 1 else 'pairs'}, {shown}.",
                f"{told[:1].upper()}{told[1:]}; equivalent is a {contrast} within {short(low)} to "
                f"{short(high)}.",
            )
        )
    return said


def _pair_words(row: dict[Any, Any]) -> str:
    return f"{label(row['group'])} to {label(row['reference'])}"


def short(value: float) -> str:
    """A number as short as it goes, with a true minus sign."""
    return f"{value:g}".replace("-", "−")


def interaction_finding(result: InteractionResult) -> list[Finding]:
    """In how many comparisons two attributes together do more or less than add up.

    Parameters
    ----------
    result : InteractionResult

    Returns
    -------
    list of (str, str)
    """
    frame = result.contrasts
    told = frame[frame["p_adjusted"] < 1 - result.level]
    unknown = "Effects of two attributes: cannot tell whether they do more than add up."
    if told.empty:
        defined = int(frame["contrast"].notna().sum())
        if not defined:
            masked = result.cohort.suppress_below is not None
            why = ": their rates are masked or undefined" if masked else ": rates are undefined"
            return [(unknown, f"No contrast can be given{why}.")]
        return [(unknown, f"None of {defined:,} contrasts is told from 0 after adjustment.")]
    named = [
        f"{result.labels[r['metric']]} of {label(r['level_a'])} & {label(r['level_b'])} "
        f"({rate(r['contrast'], r['ci_low'], r['ci_high'], 2)})"
        for r in told.to_dict("records")
    ]
    return [
        (
            f"Effects of two attributes: {len(told):,} of {len(frame):,} contrasts do not just "
            "add up.",
            f"After adjustment: {listed(named, 4)}.",
        )
    ]


def small_groups(result: RepresentationResult) -> list[str]:
    """Which groups are too small to be judged.

    Parameters
    ----------
    result : RepresentationResult

    Returns
    -------
    list of str
    """
    cells = result.cells
    few = cells[
        cells["below_min_count"].eq(True).fillna(False).astype(bool) | cells["absent"].astype(bool)
    ]
    if few.empty:
        return []
    least = result.tables.thresholds.min_count
    names = listed([label(g) for g in few["group"]], 6)
    return [
        f"{len(few):,} of {len(cells):,} groups have fewer than {least} rows, so that their rates "
        f"are hardly known: {names}."
    ]


def findings(
    representation: RepresentationResult, observed: ObservedResult, others: Sequence[Any]
) -> list[tuple[str, list[Finding]]]:
    """All findings under their headings, in the order of the page.

    Parameters
    ----------
    representation : RepresentationResult
    observed : ObservedResult
    others : sequence of results

    Returns
    -------
    list of (str, list of (str, str))
    """
    few = [("Small groups.", text) for text in small_groups(representation)]
    said = [("In the data as they are", [*few, *gap_findings(observed)])]
    treated = [r for r in others if isinstance(r, TreatedResult)]
    for k, result in enumerate(treated):
        more = same_pair(result) if k == 0 else []
        said.append(
            (f"Had nobody been treated: {label(result.estimator)}", gap_findings(result) + more)
        )
    for result in others:
        if isinstance(result, GroupInterventionResult):
            said.append(("With everybody put into one group (a check of the model)",
                         gap_findings(result)))  # fmt: skip
        elif isinstance(result, PerformanceResult):
            said.append(
                ("Quality of the score", calibration_finding(result) + gap_findings(result))
            )
        elif isinstance(result, InteractionResult):
            said.append(("Interaction of attributes", interaction_finding(result)))
        elif isinstance(result, EquivalenceResult):
            about = f": {label(result.about[:1].lower())}{label(result.about[1:])}"
            said.append((f"Equivalence{about if result.about else ''}",
                         equivalence_finding(result)))  # fmt: skip
    return said
