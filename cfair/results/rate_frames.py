"""Rates by group as a frozen record: who stands behind them, and their tidy frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.cohort import Cohort
from cfair.disclosure import APART, MASKED, count_column, policy, quiet, rounding
from cfair.inference.estimates import RateEstimates
from cfair.options import check_option
from cfair.results.contrasts import metric_hint
from cfair.results.printed import Printed

Array = NDArray[np.float64]


#: Columns of a frame that an attribute's column must not take the name of.
_RESERVED = frozenset(
    (
        *("metric", "group", "attribute", "level", "reference", "n", "untreated", "events"),
        *("denominator", "n_effective", "estimate", "se", "ci_low", "ci_high", "note"),
        *("boot_low", "boot_high", "boot_se", "boot_valid"),
        *("non_events", "predicted_positive", "threshold", "expected_if_calibrated"),
    )
)


@dataclass(frozen=True, eq=False)
class MetricRows:
    """Who stands behind the rates of one metric, for groups, then margins, then all.

    Attributes
    ----------
    label : str
        Name in print, such as ``cFPR``.
    denominator : (T,) array
        Rows in the denominator.
    notes : tuple of str
        Why a rate is undefined, or what to mind; empty where there is nothing to say.
    """

    label: str
    denominator: Array
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class RateFrames(Printed):
    """The fields of `RatesResult`, which describes them, and the frames that show them."""

    cohort: Cohort
    estimates: tuple[RateEstimates, ...]
    rows: tuple[MetricRows, ...]
    counts: Mapping[str, Array]
    level: float = 0.95
    interval: str = "wilson"
    aggregate_interval: str = "tie-aware"
    seed: int = 0
    notes: tuple[str, ...] = ()
    _limits: dict[str, tuple[Array, Array]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for values in self.counts.values():
            values.setflags(write=False)
        object.__setattr__(self, "counts", MappingProxyType(dict(self.counts)))
        said = tuple(quiet(note, self.cohort.suppress_below) for note in self.notes)
        object.__setattr__(self, "notes", said)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "counts": dict(self.counts)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__["counts"] = MappingProxyType(state["counts"])

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(e.metric for e in self.estimates)

    @property
    def compared(self) -> tuple[str, ...]:
        """Metrics that comparisons are about unless told otherwise."""
        return self.metrics

    @property
    def judged(self) -> tuple[str, ...]:
        """Metrics whose gaps are shown unless told otherwise."""
        return self.compared

    @property
    def tested(self) -> tuple[str, ...]:
        """Metrics whose equivalence is tested unless told otherwise."""
        return self.compared

    @property
    def plotted(self) -> tuple[str, ...]:
        """Metrics that plots show unless told otherwise."""
        return self.compared[:2]

    @property
    def about(self) -> str:
        """What kind of rates these are, for the plots."""
        return ""

    @property
    def _labels(self) -> dict[str, str]:
        """Names of the metrics in print."""
        return {e.metric: r.label for e, r in zip(self.estimates, self.rows, strict=True)}

    def estimates_of(self, metric: str) -> RateEstimates:
        """Estimates of one metric, by name.

        Parameters
        ----------
        metric : str
            One of `metrics`.

        Returns
        -------
        RateEstimates

        Raises
        ------
        ValueError
            If there is no such metric.
        """
        if isinstance(metric, str) and metric not in self.metrics:
            raise ValueError(
                f"metrics must be of {', '.join(map(repr, self.metrics))}, not {metric!r}."
                + metric_hint(metric, self._labels)
            )
        check_option("metric", metric, self.metrics)
        return self.estimates[self.metrics.index(metric)]

    @property
    def rates(self) -> pd.DataFrame:
        """A row per metric and group, undefined and empty groups included."""
        return self._rates.copy()

    @cached_property
    def _rates(self) -> pd.DataFrame:
        groups = self.cohort.groups
        labels = groups.label_frame()
        labels.columns = [_safe(name) for name in groups.attributes]
        head = pd.concat([pd.DataFrame({"group": list(groups.names)}), labels], axis=1)
        return self._frame(range(len(self.estimates)), head, slice(0, groups.n_groups))

    @property
    def marginals(self) -> pd.DataFrame:
        """A row per metric, attribute and level: each attribute on its own.

        It has no rows where only the intersectional groups have rates.
        """
        return self._marginals.copy()

    @cached_property
    def _marginals(self) -> pd.DataFrame:
        margins = self.cohort.groups.margins
        head = pd.DataFrame(
            {
                "attribute": [a for a, _ in margins],
                "level": pd.Series([v for _, v in margins], dtype=object),
            }
        )
        return self._beyond_groups(head, self.cohort.groups.n_groups)

    @property
    def overall(self) -> pd.DataFrame:
        """A row per metric: all rows together; none where only groups have rates."""
        return self._overall.copy()

    @cached_property
    def _overall(self) -> pd.DataFrame:
        groups = self.cohort.groups
        head = pd.DataFrame(index=range(1))
        return self._beyond_groups(head, groups.n_groups + len(groups.margins))

    @property
    def has_margins(self) -> bool:
        """Whether every metric has rates of the margins and of all rows beside the groups'."""
        return all(len(e.estimate) > self.cohort.groups.n_groups for e in self.estimates)

    def _beyond_groups(self, head: pd.DataFrame, first: int) -> pd.DataFrame:
        """Rates of the targets that `head` describes, for the metrics that have them."""
        K = self.cohort.groups.n_groups
        chosen = [k for k, e in enumerate(self.estimates) if len(e.estimate) > K]
        size = len(head) if chosen else 0  # without any, a frame of no rows has the columns
        return self._frame(chosen or [0], head[:size], slice(first, first + size))

    def limits(self, metric: str) -> tuple[Array, Array]:
        """Limits of the rates of one metric: groups, margins, all.

        Parameters
        ----------
        metric : str

        Returns
        -------
        low, high : (T,) arrays
            Computed once, so read-only.
        """
        e = self.estimates_of(metric)
        if metric not in self._limits:
            self._limits[metric] = self._find_limits(e)
            for values in self._limits[metric]:
                values.setflags(write=False)
        return self._limits[metric]

    def _find_limits(self, e: RateEstimates) -> tuple[Array, Array]:
        return e.interval(self.interval, self.level)

    def _frame(self, chosen: Sequence[int], head: pd.DataFrame, targets: slice) -> pd.DataFrame:
        """The targets that `head` names, metric by metric, with what is known of each."""
        parts = [self._columns(k, targets) for k in chosen]
        names = [self.metrics[k] for k in chosen for _ in range(len(head))]
        again = head.take(np.tile(np.arange(len(head)), len(parts))).reset_index(drop=True)
        columns = {name: _joined([part[name] for part in parts]) for name in parts[0]}
        metric = pd.DataFrame({"metric": pd.Series(names, dtype="str")})
        return pd.concat([metric, again, pd.DataFrame(columns)], axis=1)

    def _columns(self, k: int, targets: slice) -> dict[str, Any]:
        e, rows = self.estimates[k], self.rows[k]
        low, high = self.limits(e.metric)
        columns: dict[str, Any] = {
            name: count_column(values[targets]) for name, values in self.counts.items()
        }
        columns["denominator"] = count_column(rows.denominator[targets])
        columns["n_effective"] = np.where(np.isnan(e.estimate), np.nan, e.size)[targets]
        columns["estimate"] = e.estimate[targets]
        columns["se"] = e.se[targets]
        columns["ci_low"], columns["ci_high"] = low[targets], high[targets]
        columns["note"] = rows.notes[targets]
        columns.update(self._more_columns(e.metric, targets))
        return columns

    def masked(self, metric: str) -> NDArray[np.bool_]:
        """Which rates are not shown, for disclosure control.

        Parameters
        ----------
        metric : str
            One of `metrics`.

        Returns
        -------
        (T,) array of bool
            Of groups, then margins, then all.
        """
        self.estimates_of(metric)  # which complains of another name
        notes = self.rows[self.metrics.index(metric)].notes
        return np.array([note.startswith(MASKED) for note in notes], dtype=bool)

    def _more_columns(self, metric: str, targets: slice) -> dict[str, Any]:
        return {}

    def to_frame(self) -> pd.DataFrame:
        """The rates by group as a tidy frame."""
        return self.rates

    @property
    def disclosure(self) -> str:
        """What was rounded or masked, in a line; empty without disclosure control."""
        below, first = self.cohort.suppress_below, rounding(self.cohort.round_counts_to)
        if below is None:
            return first
        shown = dict(self.counts)  # of a single attribute the levels are the groups
        if len(self.cohort.groups.attributes) == 1:
            shown = {name: values[: self.cohort.groups.n_groups] for name, values in shown.items()}
        size = len(next(iter(shown.values())))
        rates = sum(int(self.masked(metric)[:size].sum()) for metric in self.metrics)
        return "; ".join(filter(None, [first, policy(below, shown, rates), APART]))


def _joined(parts: Sequence[Any]) -> Any:
    """A column of several metrics, each with numbers, texts, or counts of which some are masked."""
    if all(isinstance(part, tuple) for part in parts):
        return pd.Series([text for part in parts for text in part], dtype="str")
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return pd.concat([pd.Series(part) for part in parts], ignore_index=True)


def _safe(name: str) -> str:
    return f"{name} (attribute)" if name in _RESERVED else name
