"""Planning a study that is to show equivalence, or to find a gap: before there are data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.equivalence.design import (
    RULE_OF_FIVE,
    Scenario,
    broadcast,
    check_alpha,
    check_rows,
    check_shares,
    prevalence_range,
    scenario,
)
from cfair.equivalence.margins import (
    CONTRASTS,
    METRICS,
    check_margins,
    check_metrics,
    contrast_value,
)
from cfair.equivalence.power import narrowest_margin, planned_tests, variance_per_row
from cfair.equivalence.tost import TESTS
from cfair.options import check_option
from cfair.results.planning import SCENARIO, EquivalencePlan, EquivalencePlanning

Array = NDArray[np.float64]

#: The metrics that prevalence moves by itself.
PREDICTIVE = ("ppv", "npv", "fdr", "for")


def equivalence_power(
    metric: str | Sequence[str] | None = None,
    *,
    n: Any,
    share: Any,
    prevalence: Any,
    sensitivity: Any = None,
    specificity: Any = None,
    reference_prevalence: Any = None,
    reference_sensitivity: Any = None,
    reference_specificity: Any = None,
    margin: Any = None,
    contrast: str = "ratio",
    alpha: Any = 0.05,
    method: str = "wald",
) -> EquivalencePlanning:
    """Power to conclude that a rate of a group is equivalent to that of a reference.

    Equivalence is concluded if two one-sided tests reject, that is, if the 1 - 2 alpha interval of
    the contrast lies inside the margin. The denominators are those that N patients are expected to
    give: sensitivity rests on those with the event, specificity on the others, PPV on those who are
    flagged, NPV on the rest.

    Arguments that say scalar or array broadcast together, to a row of the frame each.

    Parameters
    ----------
    metric : str or sequence of str, optional
        "sensitivity" or "tpr", "specificity" or "tnr", "ppv", "npv", "fnr", "fpr", "fdr", "for";
        all eight by default.
    n : int or array of int
        Patients in both groups together.
    share : float or array in (0, 1)
        Share of the group, as a rule the disadvantaged one; the reference is the rest.
    prevalence : float or array in (0, 1)
        Share of patients with the event.
    sensitivity, specificity : float or array in (0, 1), optional
        What the model is expected to have. Only what the metrics depend on is needed.
    reference_prevalence, reference_sensitivity, reference_specificity : the same, optional
        Of the reference, where it differs from the group.
    margin : (low, high), one number d for (-d, d) of a difference, or mapping of metric, optional
        How far apart still counts as equal; floats or arrays. By default (0.8, 1.25) for a ratio or
        an odds ratio, the four-fifths rule: a convention, not a judgement of harm. Choose it for
        the case; `margin_from_patients` helps. The contrast is group to reference.
    contrast : {"ratio", "odds_ratio", "difference"}, default "ratio"
    alpha : float or array in (0, 0.5), default 0.05
        Level of each of the two tests.
    method : {"wald", "score"}, default "wald"
        Test that is planned for. ``"wald"`` is the published formula; ``"score"`` is for the score
        test, which `Audit.equivalence` uses on counts, and stays right with smaller cells.

    Returns
    -------
    EquivalencePlanning
        Its ``frame`` has a row per metric and scenario, ``values`` the power alone.

    Raises
    ------
    ValueError
        If a rate is outside (0, 1), N not whole, the margin not around equality, a needed
        sensitivity or specificity missing, or shapes do not fit.

    See Also
    --------
    equivalence_sample_size, equivalence_margin, equivalence_plan

    Notes
    -----
    ``power = max(0, Phi((hi - delta)/se - z) - Phi((lo - delta)/se + z))`` on the log scale, of a
    difference on its own. It is a large-sample formula of the Wald test: where a cell is expected
    to hold fewer than five, ``note`` says so. With the score test the standard errors under the
    two ends of the margin take the place of ``se`` beside z (Farrington and Manning). With cells of
    20 to 30 the score test has 2 to 4 points less power than Wald's formula says, and its own is
    right to about one; with cells below five Wald's may be wrong by half, and it stays near
    (simulated: validation/equivalence/simulation.md).

    References
    ----------
    Schuirmann DJ (1987). A comparison of the two one-sided tests procedure and the power approach
    for assessing the equivalence of average bioavailability. Journal of Pharmacokinetics and
    Biopharmaceutics 15, 657-680.

    Katz D, Baptista J, Azen SP, Pike MC (1978). Obtaining confidence intervals for the risk ratio
    in cohort studies. Biometrics 34, 469-474.

    Farrington CP, Manning G (1990). Test statistics and sample size formulae for comparative
    binomial trials with null hypothesis of non-zero risk difference or non-unity relative risk.
    Statistics in Medicine 9, 1447-1454.

    Examples
    --------
    >>> found = equivalence_power(
    ...     ["sensitivity", "ppv"], n=1465, share=0.061, prevalence=0.25, sensitivity=0.84,
    ...     specificity=0.99,
    ... )
    >>> found.values.round(3)
    array([0.514, 0.999])
    >>> equivalence_power("sensitivity", n=[500, 1000, 2000], share=0.25, prevalence=0.25,
    ...                   sensitivity=0.75).frame[["metric", "n", "power"]].round(3)
      metric     n  power
    0    tpr   500  0.179
    1    tpr  1000  0.683
    2    tpr  2000  0.964
    """

    def answer(rates: Array, rows: Array, ends: Ends, more: dict[str, Array]) -> Answer:
        tests = planned_tests(rates, rows, *ends, contrast, method)
        return more["n"], ends, tests.power(more["n"], more["alpha"])

    return _planned(
        "power", metric, margin, contrast, {"n": check_rows(n), "alpha": check_alpha(alpha)},
        scenario(
            share, prevalence, sensitivity, specificity, reference_prevalence,
            reference_sensitivity, reference_specificity,
        ),
        method,
        answer,
    )  # fmt: skip


def equivalence_sample_size(
    metric: str | Sequence[str] | None = None,
    *,
    share: Any,
    prevalence: Any,
    sensitivity: Any = None,
    specificity: Any = None,
    reference_prevalence: Any = None,
    reference_sensitivity: Any = None,
    reference_specificity: Any = None,
    margin: Any = None,
    contrast: str = "ratio",
    alpha: Any = 0.05,
    power: Any = 0.8,
    method: str = "wald",
) -> EquivalencePlanning:
    """Smallest number of patients that gives a power to conclude equivalence.

    Parameters
    ----------
    metric : str or sequence of str, optional
        See `equivalence_power`; all eight by default.
    share, prevalence, sensitivity, specificity : float or array in (0, 1)
        See `equivalence_power`.
    reference_prevalence, reference_sensitivity, reference_specificity : the same, optional
    margin : (low, high), one number d for (-d, d) of a difference, or mapping of metric, optional
    contrast : {"ratio", "odds_ratio", "difference"}, default "ratio"
    alpha : float or array in (0, 0.5), default 0.05
    power : float or array in (0, 1), default 0.8
    method : {"wald", "score"}, default "wald"

    Returns
    -------
    EquivalencePlanning
        ``frame["n"]`` is the smallest whole N, both groups together, whose ``power`` is at least
        the one ``wanted``; missing, with a ``note``, where no N has it because the true contrast
        is not inside the margin.

    Raises
    ------
    ValueError
        As `equivalence_power`.

    References
    ----------
    Schuirmann DJ (1987). See `equivalence_power`.

    Examples
    --------
    >>> equivalence_sample_size("sensitivity", share=[0.1, 0.25, 0.5], prevalence=0.25,
    ...                         sensitivity=0.75).values
    array([2548., 1224.,  918.])
    >>> equivalence_sample_size("sensitivity", share=0.25, prevalence=0.25, sensitivity=0.75,
    ...                         method="score").values
    1300.0
    """

    def answer(rates: Array, rows: Array, ends: Ends, more: dict[str, Array]) -> Answer:
        tests = planned_tests(rates, rows, *ends, contrast, method)
        n = tests.sample_size(more["wanted"], more["alpha"])
        return n, ends, tests.power(n, more["alpha"])

    return _planned(
        "n", metric, margin, contrast,
        {"alpha": check_alpha(alpha), "wanted": check_shares(power, "power")},
        scenario(
            share, prevalence, sensitivity, specificity, reference_prevalence,
            reference_sensitivity, reference_specificity,
        ),
        method,
        answer,
    )  # fmt: skip


def equivalence_margin(
    metric: str | Sequence[str] | None = None,
    *,
    n: Any,
    share: Any,
    prevalence: Any,
    sensitivity: Any = None,
    specificity: Any = None,
    reference_prevalence: Any = None,
    reference_sensitivity: Any = None,
    reference_specificity: Any = None,
    contrast: str = "ratio",
    alpha: Any = 0.05,
    power: Any = 0.8,
    method: str = "wald",
) -> EquivalencePlanning:
    """Narrowest symmetric margin that N patients can be expected to show.

    Parameters
    ----------
    metric : str or sequence of str, optional
        See `equivalence_power`; all eight by default.
    n : int or array of int
        Patients in both groups together.
    share, prevalence, sensitivity, specificity : float or array in (0, 1)
        See `equivalence_power`.
    reference_prevalence, reference_sensitivity, reference_specificity : the same, optional
    contrast : {"ratio", "odds_ratio", "difference"}, default "ratio"
    alpha : float or array in (0, 0.5), default 0.05
    power : float or array in (0, 1), default 0.8
    method : {"wald", "score"}, default "wald"

    Returns
    -------
    EquivalencePlanning
        ``margin_low`` and ``margin_high`` of its frame, 1/m and m, or -m and m of a difference;
        ``values`` is the pair of them.

    Raises
    ------
    ValueError
        As `equivalence_power`.

    References
    ----------
    Schuirmann DJ (1987). See `equivalence_power`.

    Examples
    --------
    >>> low, high = equivalence_margin("sensitivity", n=4230, share=0.468, prevalence=0.112,
    ...                                sensitivity=0.927, power=0.9).values
    >>> round(low, 4), round(high, 4)
    (0.9185, 1.0887)
    """

    def answer(rates: Array, rows: Array, _: Ends, more: dict[str, Array]) -> Answer:
        n, alpha = more["n"], more["alpha"]
        ends = narrowest_margin(rates, rows, n, more["wanted"], contrast, alpha, method)
        return n, ends, planned_tests(rates, rows, *ends, contrast, method).power(n, alpha)

    checked = {
        "n": check_rows(n),
        "alpha": check_alpha(alpha),
        "wanted": check_shares(power, "power"),
    }
    return _planned(
        "margin", metric, None, contrast, checked,
        scenario(
            share, prevalence, sensitivity, specificity, reference_prevalence,
            reference_sensitivity, reference_specificity,
        ),
        method,
        answer,
    )  # fmt: skip


def equivalence_plan(
    n: int | None = None,
    *,
    share: float,
    prevalence: float,
    sensitivity: float,
    specificity: float,
    reference_prevalence: float | None = None,
    reference_sensitivity: float | None = None,
    reference_specificity: float | None = None,
    margin: Any = None,
    contrast: str = "ratio",
    alpha: float = 0.05,
    power: float = 0.8,
    method: str = "wald",
) -> EquivalencePlan:
    """Design table of a study of equivalence: all eight metrics at once.

    What each needs, what N patients give it, which cannot be shown with any N, where the expected
    cells are too few, and what differing prevalence alone does to PPV and NPV.

    Parameters
    ----------
    n : int, optional
        Patients there are. Without it the table has what is needed only.
    share, prevalence, sensitivity, specificity : float in (0, 1)
        See `equivalence_power`.
    reference_prevalence, reference_sensitivity, reference_specificity : float, optional
        Of the reference, where it differs from the group.
    margin : (low, high), one number d for (-d, d) of a difference, or mapping of metric, optional
    contrast : {"ratio", "odds_ratio", "difference"}, default "ratio"
    alpha : float in (0, 0.5), default 0.05
    power : float in (0, 1), default 0.8
    method : {"wald", "score"}, default "wald"
        See `equivalence_power`.

    Returns
    -------
    EquivalencePlan
        Prints as a table; ``frame``, ``prevalence_alone``, ``plot_power()``, ``plot_margin()``.

    Raises
    ------
    ValueError
        As `equivalence_power`, and if an argument is an array.

    References
    ----------
    Schuirmann DJ (1987), see `equivalence_power`; Chouldechova A (2017). Fair prediction with
    disparate impact: a study of bias in recidivism prediction instruments. Big Data 5, 153-163.

    Examples
    --------
    >>> plan = equivalence_plan(4230, share=0.468, prevalence=0.112, sensitivity=0.927,
    ...                         specificity=0.301)
    >>> plan.frame.set_index("metric")["power"].round(2).to_dict()
    {'tpr': 1.0, 'tnr': 1.0, 'ppv': 0.62, 'npv': 1.0, 'fnr': 0.0, 'fpr': 1.0, 'fdr': 1.0,
     'for': 0.0}
    """
    given: dict[str, Any] = {
        "share": share,
        "prevalence": prevalence,
        "sensitivity": sensitivity,
        "specificity": specificity,
        "reference_prevalence": reference_prevalence,
        "reference_sensitivity": reference_sensitivity,
        "reference_specificity": reference_specificity,
    }
    numbers: dict[str, Any] = {**given, "n": n, "alpha": alpha, "power": power}
    for name, value in numbers.items():
        if np.ndim(value):
            raise ValueError(
                f"{name} must be one number in a plan, not {np.size(value)}. For many use "
                "equivalence_power, equivalence_sample_size or equivalence_margin."
            )
    for name in ("sensitivity", "specificity"):
        if given[name] is None:
            raise ValueError(f"{name} must be given for a plan of all metrics.")
    for low, high in check_margins(margin, METRICS, contrast).values():
        if np.ndim(low) or np.ndim(high):
            raise ValueError(f"margin must be pairs of numbers in a plan, not {margin!r}.")
    tests: dict[str, Any] = {"contrast": contrast, "alpha": alpha, "method": method}
    sizes = equivalence_sample_size(**given, **tests, margin=margin, power=power).frame
    frame = sizes.rename(columns={"n": "n_needed"})
    frame.insert(_place(frame, "n_needed"), "n", frame["n_needed"])
    by_score = sizes
    if method != "score":
        by_score = equivalence_sample_size(
            **given, contrast=contrast, alpha=alpha, margin=margin, power=power, method="score"
        ).frame
    frame.insert(_place(frame, "n_needed") + 1, "n_score", by_score["n"])
    groups = scenario(**given)
    cells = [float(groups.least_cell(name)[0]) for name in METRICS]
    frame.insert(
        _place(frame, "n_score") + 1, "n_five", np.ceil(RULE_OF_FIVE / np.array(cells)).astype(int)
    )
    if n is not None:
        at = equivalence_power(n=n, **given, **tests, margin=margin).frame
        shared = ["n", "size", "reference_size", "least_cell", "cell", "se", "power", "note"]
        frame[shared] = at[shared]
        narrow = equivalence_margin(n=n, **given, **tests, power=power).frame
        place = _place(frame, "power") + 1
        frame.insert(place, "narrowest_low", narrow["margin_low"])
        frame.insert(place + 1, "narrowest_high", narrow["margin_high"])
    alone = _prevalence_alone(groups, frame, contrast)
    return EquivalencePlan(
        frame, "power" if n is not None else "n", contrast, (len(METRICS),), method,
        n=n, power=power, _prevalence=alone,
    )  # fmt: skip


Ends = tuple[Array, Array]
#: N, the ends of the margin, and the power there.
Answer = tuple[Array, Ends, Array]


def _planned(
    question: str,
    metric: Any,
    margin: Any,
    contrast: str,
    more: dict[str, Array],
    groups: Scenario,
    method: str,
    answer: Callable[[Array, Array, Ends, dict[str, Array]], Answer],
) -> EquivalencePlanning:
    """Ask a question of each metric, and put the answers into one frame."""
    check_option("contrast", contrast, CONTRASTS)
    check_option("method", method, TESTS)
    metrics = check_metrics(metric)
    # a margin that is asked for is none that is given
    margins = (
        dict.fromkeys(metrics, (np.nan, np.nan))
        if question == "margin"
        else check_margins(margin, metrics, contrast)
    )
    # one shape for all metrics, so that the answers can stand in one array
    ends = {
        f"margin of {m} ({k})": np.asarray(margins[m][k], float) for m in metrics for k in (0, 1)
    }
    own = {name: getattr(groups, name) for name in ("prevalence", "sensitivity", "specificity")}
    together: dict[str, Array] = {"share": groups.share, **more, **ends}
    pair_names = {name: (name, f"reference_{name}") for name in own}
    together.update({pair_names[name][k]: own[name][k] for name in own for k in (0, 1)})
    together = broadcast(together)
    full = Scenario(
        together["share"],
        *(np.stack([together[one] for one in pair_names[name]]) for name in own),
    )
    flat = {name: together[name] for name in more}
    frames = []
    for name in metrics:
        pair = together[f"margin of {name} (0)"], together[f"margin of {name} (1)"]
        frames.append(_of_metric(name, full, contrast, flat, pair, answer))
    frame = pd.concat(frames, ignore_index=True)
    frame["n"] = frame["n"].astype("Int64" if frame["n"].isna().any() else "int64")
    single = isinstance(metric, str)
    shape = full.shape if single else (len(metrics), *full.shape)
    return EquivalencePlanning(frame, question, contrast, shape, method)


def _of_metric(
    metric: str,
    groups: Scenario,
    contrast: str,
    more: dict[str, Array],
    margin: Ends,
    answer: Callable[..., Answer],
) -> pd.DataFrame:
    """Rows of one metric."""
    rates, rows = groups.rates(metric)
    value = contrast_value(rates[0], rates[1], contrast)
    v = variance_per_row(rates, rows, contrast)
    n, (low, high), power = answer(rates, rows, margin, more)
    cell, cell_name = groups.least_cell(metric)
    columns: dict[str, Any] = {
        "share": groups.share,
        "prevalence": groups.prevalence[0],
        "reference_prevalence": groups.prevalence[1],
        "sensitivity": groups.sensitivity[0],
        "reference_sensitivity": groups.sensitivity[1],
        "specificity": groups.specificity[0],
        "reference_specificity": groups.specificity[1],
        "rate": rates[0],
        "reference_rate": rates[1],
        "row_share": rows[0],
        "reference_row_share": rows[1],
        "value": value,
        "margin_low": low,
        "margin_high": high,
        **{name: more[name] for name in ("alpha", "wanted") if name in more},
        "n": n,
        "size": n * rows[0],
        "reference_size": n * rows[1],
        "least_cell": n * cell,
        "cell": cell_name,
        "se": np.sqrt(v / n),
        "power": power,
    }
    shape = groups.shape
    frame = pd.DataFrame({k: np.broadcast_to(c, shape).ravel() for k, c in columns.items()})
    frame.insert(0, "metric", metric)
    frame.insert(_place(frame, "value"), "contrast", contrast)
    assert set(SCENARIO) <= set(frame)
    frame["note"] = [_note(row, CONTRASTS[contrast]) for row in frame.to_dict("records")]
    return frame


def _place(frame: pd.DataFrame, column: str) -> int:
    return list(frame).index(column)


def _note(row: Mapping[Any, Any], name: str) -> str:
    """Why a row has no answer, or one that is not to be relied on."""
    said = []
    inside = row["margin_low"] < row["value"] < row["margin_high"]
    if np.isnan(row["margin_low"]):
        said.append(f"no margin that a {name} can have is wide enough for these N")
    elif not inside:
        said.append(
            f"cannot be shown with any N: the true {name}, {row['value']:.3f}, is not inside the "
            "margin"
        )
    elif np.isnan(row["n"]):
        said.append(
            "cannot be shown with any N below 9e15: too few patients are in the denominators, or "
            f"the true {name}, {row['value']:.6g}, is too near to an end of the margin"
        )
    elif row["power"] == 0:
        said.append("no power: the 1 - 2 alpha interval is expected to be wider than the margin")
    if row["least_cell"] < RULE_OF_FIVE:
        said.append(f"{row['least_cell']:.1f} {row['cell']} expected, fewer than {RULE_OF_FIVE}")
    return "; ".join(said)


def _prevalence_alone(groups: Scenario, plan: pd.DataFrame, contrast: str) -> pd.DataFrame:
    """Predictive values if the groups differed in prevalence only."""
    same = Scenario(
        groups.share,
        groups.prevalence,
        np.repeat(groups.sensitivity[1:], 2, axis=0),
        np.repeat(groups.specificity[1:], 2, axis=0),
    )
    rows = []
    for metric in PREDICTIVE:
        rates, _ = same.rates(metric)
        value = contrast_value(rates[0], rates[1], contrast)
        low, high = plan.loc[plan["metric"] == metric, ["margin_low", "margin_high"]].iloc[0]
        least, most = prevalence_range(metric, rates[1], groups.prevalence[1], low, high, contrast)
        rows.append(
            {
                "metric": metric,
                "prevalence": float(groups.prevalence[0]),
                "reference_prevalence": float(groups.prevalence[1]),
                "rate": float(rates[0]),
                "reference_rate": float(rates[1]),
                "contrast": contrast,
                "value": float(value),
                "margin_low": low,
                "margin_high": high,
                "inside": bool(low < value < high),
                "least_prevalence": float(least),
                "most_prevalence": float(most),
            }
        )
    return pd.DataFrame(rows)
