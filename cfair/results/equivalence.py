"""Equivalence of rates between groups: what the data say of each pair, and of all together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.disclosure import APART, rounding
from cfair.equivalence.design import RULE_OF_FIVE, check_alpha
from cfair.equivalence.margins import CONTRASTS, FOUR_FIFTHS, check_margin, check_metric
from cfair.equivalence.tost import (
    Tost,
    least_expected_cell,
    tost_counts,
    tost_estimates,
    tost_to_all,
)
from cfair.errors import SmallGroupWarning, warn
from cfair.estimators.confusion import RATE_CELLS
from cfair.inference.drawn_estimates import DrawnEstimates
from cfair.inference.estimates import RateEstimates
from cfair.inference.score_estimates import BinnedError, ScoreEstimates
from cfair.options import check_option
from cfair.results import text
from cfair.results.contrasts import ADJUSTMENTS, Compared, adjust_p_values
from cfair.results.printed import Printed
from cfair.results.report import cluster_fact, cohort_facts, notes_lines, plural

Array = NDArray[np.float64]
Positions = NDArray[np.intp]

#: Score tests of counts and Wald elsewhere, or one of them throughout.
METHODS: tuple[str, ...] = ("auto", "score", "wald")
#: What can be said of a pair, from best to worst news.
EQUIVALENT, DIFFERENT = "equivalent", "different"
NOT_ENOUGH, NO_POWER, UNDEFINED = "not enough data", "no power", "undefined"
VERDICTS: tuple[str, ...] = (EQUIVALENT, DIFFERENT, NOT_ENOUGH, NO_POWER, UNDEFINED)
#: Pairs printed; beyond it those farthest from equivalence come first and the frame has all.
MOST_ROWS = 40


@dataclass(frozen=True)
class Question:
    """What is asked of every pair.

    Attributes
    ----------
    contrast : {"ratio", "odds_ratio", "difference"}
    margins : dict of str to (float, float)
        By metric.
    alpha : float
        Of each one-sided test.
    method : {"auto", "score", "wald"}
    adjust : str or None
    chosen : bool
        Whether a margin was given.
    """

    contrast: str
    margins: Mapping[str, tuple[float, float]]
    alpha: float
    method: str
    adjust: str | None
    chosen: bool

    @property
    def equal(self) -> float:
        """Value of the contrast where rates are equal."""
        return 0.0 if self.contrast == "difference" else 1.0


def read_question(
    metrics: Any,
    known: Sequence[str],
    compared: Sequence[str],
    *,
    margin: Any,
    contrast: str,
    alpha: Any,
    method: str,
    adjust: str | None,
) -> Question:
    """Check what was asked.

    Parameters
    ----------
    metrics : str, sequence of str or None
    known, compared : sequences of str
        Metrics of the result, and those that it compares unless told otherwise.
    margin : pair, mapping of metric to pair, or None
    contrast, alpha, method, adjust
        As the user gave them.

    Returns
    -------
    Question

    Raises
    ------
    ValueError
        For a value that is not allowed.
    """
    check_option("contrast", contrast, CONTRASTS)
    check_option("method", method, METHODS)
    check_option("adjust", adjust, [*ADJUSTMENTS, None])
    if np.ndim(alpha):
        raise ValueError(f"alpha must be one number, not {alpha!r}.")
    each = isinstance(margin, Mapping)
    named = margin if each and metrics is None else metrics
    wanted = _named(compared if named is None else named, known)
    if each:
        names = _named(margin, known)
        if set(names) != set(wanted):
            raise ValueError(
                f"margin must have a pair for each metric ({', '.join(wanted)}) and for no other, "
                f"not for {', '.join(names)}."
            )
        given = dict(zip(names, margin.values(), strict=True))
    margins = {}
    for metric in wanted:
        low, high = check_margin(given[metric] if each else margin, contrast)
        if np.ndim(low) or np.ndim(high):
            raise ValueError(f"margin must be a pair of numbers (low, high), not {margin!r}.")
        margins[metric] = (float(low), float(high))
    return Question(
        contrast, margins, float(check_alpha(alpha)), method, adjust, chosen=margin is not None
    )


def _named(metrics: Any, known: Sequence[str]) -> list[str]:
    """Metrics by their names here; sensitivity and specificity are read too."""
    if isinstance(metrics, str) or not isinstance(metrics, Collection):
        metrics = [metrics]
    found = []
    for metric in metrics:
        name = metric
        with suppress(ValueError):  # the eight metrics of the planning functions have synonyms
            name = check_metric(metric)
        if name not in known:
            check_option("metric", metric, known)
        found.append(str(name))
    if not found or len(set(found)) < len(found):
        raise ValueError(f"metrics must name one metric or more, each once, not {list(metrics)!r}.")
    return found


# -- the pairs ------------------------------------------------------------------------------------


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


#: Columns of the frame.
COLUMNS = (
    *("metric", "group", "reference", "contrast", "estimate", "ci_low", "ci_high"),
    *("margin_low", "margin_high", "p_lower", "p_upper", "p_value", "p_adjusted", "p_beyond"),
    "verdict",
    *("expected_cell", "rule_of_five", "method", "rate", "rate_reference", "n", "n_reference"),
    *("events", "events_reference", "family", "note"),
)


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


# -- the result -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class EquivalenceResult(Printed):
    """Whether rates of two groups are equivalent, pair by pair, and all together.

    Attributes
    ----------
    cohort : Cohort
        The rows that were used.
    question : Question
        Contrast, margins, alpha.
    labels : dict of str to str
        Metrics as printed.
    about : str
        What kind of rates these are.
    reference : str
        What groups are compared with, in words.
    family : str
        How p-values are adjusted, and over how many.
    notes : tuple of str
    """

    cohort: Cohort
    _frame: pd.DataFrame
    question: Question
    labels: Mapping[str, str]
    about: str
    reference: str
    family: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", MappingProxyType(dict(self.labels)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "labels": dict(self.labels)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__["labels"] = MappingProxyType(state["labels"])

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(self.question.margins)

    @property
    def level(self) -> float:
        """Confidence level of the intervals, 1 - 2 alpha."""
        return 1 - 2 * self.question.alpha

    @property
    def pairs(self) -> pd.DataFrame:
        """A row per metric and pair.

        ``metric``; ``group`` and ``reference``; ``contrast``, its ``estimate`` (group to
        reference), ``ci_low`` and ``ci_high`` of level 1 - 2 alpha; ``margin_low, margin_high``;
        ``p_lower`` and ``p_upper``, the two one-sided p-values; ``p_value``, the larger;
        ``p_adjusted`` over the ``family``; ``p_beyond`` of the test that the contrast is outside
        the margin; the ``verdict``; ``expected_cell``, the smallest of the table at the common
        rate, from effective sizes where there are weights or models, and whether it meets the
        ``rule_of_five``; ``method`` of the test; ``rate, rate_reference``; ``n, n_reference``, rows
        in the denominators; ``events, events_reference``, rows in the numerators, missing where
        rates are not counts; ``note``.
        """
        return self._frame.copy()

    def to_frame(self) -> pd.DataFrame:
        """The same as `pairs`."""
        return self.pairs

    @property
    def overall(self) -> pd.DataFrame:
        """A row per metric: whether all pairs are equivalent.

        By the intersection-union principle the claim that all are holds at alpha when each test
        rejects at alpha, with no correction: its ``p_value`` is the largest of the pairs', and it
        is undefined if one of them is. The claim that some are different does need one:
        ``p_beyond`` is the smallest of the pairs', adjusted by Holm over the metric's pairs. The
        other columns count verdicts.
        """
        rows = []
        for metric, part in self._frame.groupby("metric", sort=False):
            counts = part["verdict"].value_counts()
            undefined = part["p_value"].isna().any()
            p = np.nan if undefined else part["p_value"].max()
            found = {name.replace(" ", "_"): int(counts.get(name, 0)) for name in VERDICTS}
            beyond = part["p_beyond"].min() * part["p_beyond"].notna().sum()  # Holm's first step
            some = "some different" if beyond < self.question.alpha else "not shown"
            rows.append(
                {
                    "metric": metric,
                    "pairs": len(part),
                    **found,
                    "p_value": p,
                    "p_beyond": min(beyond, 1.0),
                    "verdict": "all equivalent" if p < self.question.alpha else some,
                }
            )
        return pd.DataFrame(rows)

    def plot(self, metrics: str | Sequence[str] | None = None, *, ax: Any = None) -> Any:
        """Intervals before the shaded margin, a row per pair.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            All by default.
        ax : matplotlib Axes, optional
            Drawn into; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from cfair.plotting import plot_equivalence

        wanted = self.metrics if metrics is None else metrics
        chosen = _named(wanted, self.metrics)
        return plot_equivalence(
            self._frame[self._frame["metric"].isin(chosen)],
            labels=self.labels,
            level=self.level,
            about=self.about,
            ax=ax,
        )

    # -- print ----------------------------------------------------------------------------------

    @property
    def disclosure(self) -> str:
        """What was rounded or masked, in a line; empty without disclosure control."""
        first, below = rounding(self.cohort.round_counts_to), self.cohort.suppress_below
        if below is None:
            return first
        lost = int(self._frame["estimate"].isna().sum())
        masked = f"counts below {below} masked, and what would reveal them; "
        masked += f"{lost:,} of {plural(len(self._frame), 'pair')} without an estimate"
        return "; ".join(filter(None, [first, masked, APART]))

    def summary(self) -> str:
        """The result as text, as `print` shows it."""
        return text.page(
            "Equivalence of rates between groups",
            [
                text.facts(
                    [
                        *cohort_facts(self.cohort),
                        ("disclosure", self.disclosure),
                        *self._facts(),
                    ]
                ),
                self._table(),
                self._together(),
                notes_lines(self.notes),
            ],
        )

    def _facts(self) -> list[tuple[str, str]]:
        q = self.question
        margins: dict[tuple[float, float], list[str]] = {m: [] for m in q.margins.values()}
        for metric, margin in q.margins.items():
            margins[margin].append(self.labels[metric])
        said = [f"{low:.4g} to {high:.4g}" for low, high in margins]
        if len(said) > 1:
            said = [
                f"{m} ({', '.join(names)})" for m, names in zip(said, margins.values(), strict=True)
            ]
        methods = self._frame["method"].unique()
        words = {
            "score": "score (Miettinen and Nurminen)",
            "wald": "Wald" + " on the log scale" * (q.contrast != "difference"),
        }
        several = len(methods) > 1
        kinds = [
            words[m] + (f" ({', '.join(self._labels_of(m))})" if several else "") for m in methods
        ]
        interval = f"the {100 * self.level:g}% interval (1 - 2 alpha)"
        decides = f"which is {interval} inside the margin"
        if q.adjust:
            decides = f"p-values adjusted ({self.family}); {interval} is not adjusted"
        return [
            ("rates", self.about),
            ("compared", self.reference),
            (
                "equivalent",
                f"if the {CONTRASTS[q.contrast]} of two rates, group to reference, lies within "
                f"{'; '.join(said)}",
            ),
            (
                "decided by",
                f"two one-sided tests at alpha = {q.alpha:g}, {decides}: {'; '.join(kinds)}"
                f"{cluster_fact(self.cohort)}",
            ),
        ]

    def _labels_of(self, method: str) -> list[str]:
        frame = self._frame
        return [self.labels[m] for m in frame.loc[frame["method"] == method, "metric"].unique()]

    def _table(self) -> list[str]:
        frame, hidden = self._frame, []
        if len(frame) > MOST_ROWS:
            order = np.argsort(-frame["p_value"].fillna(-1).to_numpy(), kind="stable")
            hidden = [
                f"... {len(frame) - MOST_ROWS:,} of {len(frame):,} pairs not shown; shown are "
                "those farthest from equivalence. The frame .pairs has all."
            ]
            frame = frame.iloc[np.sort(order[:MOST_ROWS])]
        head = CONTRASTS[self.question.contrast]
        one = frame["reference"].nunique() == 1
        header = ["metric", "group", *([] if one else ["reference"]), "n", "n ref.", "rate"]
        p_head = "p" if self.question.adjust is None else "p adj."
        header += ["ref.", f"{head} [{100 * self.level:g}%]", p_head, "cell", "verdict"]
        rows, last = [], ""
        for row in frame.to_dict("records"):
            label = self.labels[row["metric"]]
            names = [row["group"]] + ([] if one else [row["reference"]])
            p = row["p_adjusted"]
            rows.append(
                [
                    label if label != last else "",
                    *(text.one_line(name) for name in names),
                    text.count(row["n"]),
                    text.count(row["n_reference"]),
                    text.short(row["rate"]),
                    text.short(row["rate_reference"]),
                    text.estimate(row["estimate"], row["ci_low"], row["ci_high"]),
                    text.p_value(p).split(" ", 1)[1].removeprefix("= ") if not np.isnan(p) else "–",
                    "" if np.isnan(row["expected_cell"]) else f"{row['expected_cell']:.1f}",
                    row["verdict"],
                ]
            )
            last = label
        known = frame["expected_cell"].notna().any()
        legend = "p of equivalence, the larger of the two one-sided p-values" + (
            "; cell: the smallest expected cell at the common rate" * bool(known)
        )
        table = text.table(header, rows, left=2 if one else 3)
        return [*table, *hidden, *text.facts([(" ", legend)])]

    def _together(self) -> list[str]:
        overall = self.overall
        if (overall["pairs"] == 1).all():
            return []
        width = max(len(label) for label in self.labels.values())
        lines = []
        for k, row in enumerate(overall.to_dict("records")):
            counts = [(row[name.replace(" ", "_")], name) for name in VERDICTS]
            said = ", ".join(f"{n:,} {name}" for n, name in counts if n)
            some = row["verdict"] == "some different"
            value = row["p_beyond"] if some else row["p_value"]
            p = "" if np.isnan(value) else f", {text.p_value(value)}" + " (Holm)" * some
            head = "all alike?" if k == 0 else ""
            lines += text.facts(
                [
                    (
                        f"{head:<13}{self.labels[row['metric']]:<{width}}",
                        f"{row['verdict']}{p} ({said})",
                    )
                ],
                indent=15 + width,
            )
        return lines


def notes_of(frame: pd.DataFrame, question: Question, labels: Mapping[str, str]) -> list[str]:
    """What to be careful about, and what the verdicts mean.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `judged`.
    question : Question
    labels : mapping of str to str

    Returns
    -------
    list of str
    """
    notes = []
    verdicts = set(frame["verdict"])
    small = frame[(frame["rule_of_five"] == False).fillna(False) & frame["p_value"].notna()]  # noqa: E712
    if len(small):
        notes.append(_small_note(small, len(frame), labels))
    if frame["metric"].duplicated().any():
        notes.append(
            "that all pairs of a metric are equivalent needs no correction for their number "
            "(intersection-union); that some differ does, and has it (Holm); one pair picked out "
            "of several does too: adjust=."
        )
    notes.append(
        "different means beyond the margin, the interval wholly outside it; an interval that "
        "excludes equality may still be equivalent. Not enough data is no verdict of fairness."
    )
    if NO_POWER in verdicts:
        notes.append(
            "no power: groups of these sizes with these events, however divided between them, "
            "cannot show equivalence within the margin."
        )
    if UNDEFINED in verdicts:
        undefined = frame[frame["verdict"] == UNDEFINED]
        reason = undefined["note"].iloc[0]
        notes.append(
            f"undefined: {plural(len(undefined), 'pair')}, the first because of {reason}; the "
            "others in .pairs."
        )
    if not question.chosen:
        low, high = FOUR_FIFTHS
        notes.append(
            f"the margin {low:g} to {high:g} is a convention, four fifths: choose what is "
            "tolerable in this case with margin=."
        )
    skewed = [
        labels[m]
        for m, (low, high) in question.margins.items()
        if not np.isclose(
            low + high if question.contrast == "difference" else low * high, question.equal
        )
    ]
    if skewed and frame["reference"].nunique() > 1:
        notes.append(
            f"the margin of {', '.join(skewed)} is not symmetric, so that it matters which group "
            "of a pair is the reference: name it with reference=."
        )
    return notes


def _small_note(small: pd.DataFrame, n: int, labels: Mapping[str, str]) -> str:
    first = small.iloc[int(small["expected_cell"].to_numpy().argmin())]
    which = f"{labels[first['metric']]} of {first['group']} and {first['reference']}"
    wald = int((small["method"] == "wald").sum())
    means = (
        "the score test allows for it"
        if not wald
        else "there the Wald test says equivalent too easily; read with care"
    )
    return (
        f"{len(small):,} of {plural(n, 'pair')} with an expected cell below 5, the smallest "
        f"{first['expected_cell']:.1f} ({which}): {means}."
    )


def equivalence_result(
    cohort: Cohort,
    frame: pd.DataFrame,
    question: Question,
    labels: Mapping[str, str],
    about: str,
    compared: Compared,
) -> EquivalenceResult:
    """Judge all pairs, warn of small cells, and keep the record.

    Parameters
    ----------
    cohort : Cohort
    frame : pandas.DataFrame
        Of `pairs_of`, all metrics.
    question : Question
    labels : mapping of str to str
        Metrics in print.
    about : str
    compared : Compared

    Returns
    -------
    EquivalenceResult
    """
    frame, family = judged(frame, question)
    labels = {metric: labels[metric] for metric in question.margins}
    notes = notes_of(frame, question, labels)
    if notes and "expected cell" in notes[0]:
        warn(notes[0], SmallGroupWarning)
    reference = f"all pairs of {plural(len(compared.names), 'group')}"
    if len(compared.names) == 2:
        reference = "{} with {}".format(*frame.loc[0, ["group", "reference"]])
    elif compared.reference is not None:
        reference = f"each group with {compared.names[compared.reference]}"
    return EquivalenceResult(
        cohort, frame, question, labels, about, reference, family, tuple(notes)
    )
