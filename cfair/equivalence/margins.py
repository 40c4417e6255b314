"""What is compared and how far apart still counts as equal: metrics, contrasts, margins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from cfair.estimators.confusion import SYNONYMS
from cfair.frame import show_some
from cfair.options import check_option, is_number

Array = NDArray[np.float64]

#: The eight metrics, those of success first.
METRICS: tuple[str, ...] = ("tpr", "tnr", "ppv", "npv", "fnr", "fpr", "fdr", "for")
#: How they are called in print.
METRIC_NAMES: dict[str, str] = {
    "tpr": "sensitivity",
    "tnr": "specificity",
    "ppv": "PPV",
    "npv": "NPV",
    "fnr": "FNR",
    "fpr": "FPR",
    "fdr": "FDR",
    "for": "FOR",
}
#: The metrics of which more is worse.
FAILURES: tuple[str, ...] = ("fnr", "fpr", "fdr", "for")
#: Names of the contrasts in print.
CONTRASTS: dict[str, str] = {
    "ratio": "ratio",
    "odds_ratio": "odds ratio",
    "difference": "difference",
}
#: The margin that is used unless one is given: four fifths, and its inverse.
FOUR_FIFTHS: tuple[float, float] = (0.8, 1.25)

# Whose rate it is, and what goes wrong with them.
_PATIENTS = {
    "tpr": ("patients with the event", "missed"),
    "tnr": ("patients without the event", "flagged"),
    "ppv": ("flagged patients", "flagged for nothing"),
    "npv": ("patients who are not flagged", "missed"),
}
_PATIENTS.update({"fnr": _PATIENTS["tpr"], "fpr": _PATIENTS["tnr"]})
_PATIENTS.update({"fdr": _PATIENTS["ppv"], "for": _PATIENTS["npv"]})


def check_metric(metric: Any) -> str:
    """Check the name of one of the eight metrics.

    Parameters
    ----------
    metric : str
        As `METRICS`, or what else they are called: "sensitivity", "specificity", ...

    Returns
    -------
    str
        As `METRICS`.

    Raises
    ------
    ValueError
        If it is another.

    Examples
    --------
    >>> check_metric("sensitivity")
    'tpr'
    """
    name = SYNONYMS.get(metric, metric) if isinstance(metric, str) else metric
    check_option("metric", name, METRICS)
    return str(name)


def check_metrics(metric: Any) -> tuple[str, ...]:
    """Check one metric, several, or None for all eight.

    Parameters
    ----------
    metric : str, sequence of str or None

    Returns
    -------
    tuple of str

    Raises
    ------
    ValueError
        If a name is unknown, comes twice, or there is none.

    Examples
    --------
    >>> check_metrics(["specificity", "ppv"])
    ('tnr', 'ppv')
    """
    if metric is None:
        return METRICS
    if isinstance(metric, str) or not isinstance(metric, Sequence):
        return (check_metric(metric),)
    names = tuple(map(check_metric, metric))
    if not names or len(set(names)) < len(names):
        raise ValueError(f"metric must name one metric or more, each once, not {list(metric)!r}.")
    return names


def check_margin(margin: Any, contrast: str) -> tuple[Any, Any]:
    """Check a margin: a pair around the value of equal rates.

    Parameters
    ----------
    margin : pair of floats or arrays, number, or None
        None is `FOUR_FIFTHS` for a ratio and an odds ratio; a difference has no default. One number
        d is (-d, d) for a difference; of a ratio it could be the low end or the high end.
    contrast : {"ratio", "odds_ratio", "difference"}

    Returns
    -------
    low, high : floats or arrays, as given

    Raises
    ------
    ValueError
        If it is no pair, not finite, or does not lie around 1 (a difference: 0).

    Examples
    --------
    >>> check_margin(None, "ratio")
    (0.8, 1.25)
    >>> check_margin(0.05, "difference")
    (-0.05, 0.05)
    """
    check_option("contrast", contrast, CONTRASTS)
    if isinstance(margin, np.ndarray) and margin.ndim == 0:
        margin = margin[()]
    if contrast == "difference" and is_number(margin):
        margin = (-margin, margin)
    if margin is None:
        if contrast == "difference":
            raise ValueError(
                "margin has no default for a difference: what is tolerable depends on the rate. "
                "Give one, such as margin=(-0.05, 0.05)."
            )
        return FOUR_FIFTHS
    example = "(-0.05, 0.05)" if contrast == "difference" else "(0.8, 1.25)"
    if isinstance(margin, str) or not hasattr(margin, "__len__") or len(margin) != 2:
        hint = ""
        if contrast != "difference" and is_number(margin) and 0 < margin < 0.5:
            hint = f' For rates that differ by at most {margin:g} give contrast="difference".'
        raise ValueError(
            f"margin must be a pair (low, high), such as {example}, not {margin!r}.{hint}"
        )
    try:
        low, high = (np.asarray(end, dtype=float) for end in margin)
    except (TypeError, ValueError):
        raise ValueError(f"margin must hold numbers, such as {example}, not {margin!r}.") from None
    least, equal, most = (-1.0, 0.0, 1.0) if contrast == "difference" else (0.0, 1.0, np.inf)
    wrong = np.append(
        low[~((low > least) & (low < equal))], high[~((high > equal) & (high < most))]
    )
    if wrong.size:
        raise ValueError(
            f"margin must lie around {equal:g}, where the rates are equal, its low end between "
            f"{least:g} and {equal:g} and its high end "
            + (f"between 0 and {most:g}" if contrast == "difference" else "above 1, but finite")
            + f", such as {example} for a {CONTRASTS[contrast]}; not "
            f"{show_some([f'{value:g}' for value in wrong])}."
        )
    return margin[0], margin[1]


def check_margins(margin: Any, metrics: Sequence[str], contrast: str) -> dict[str, tuple[Any, Any]]:
    """Check one margin for all metrics, or one for each.

    Parameters
    ----------
    margin : pair, or mapping of metric to pair, or None
        See `check_margin`.
    metrics : sequence of str
        As `METRICS`.
    contrast : {"ratio", "odds_ratio", "difference"}

    Returns
    -------
    dict of str to pair

    Raises
    ------
    ValueError
        If a mapping does not have exactly these metrics, or a margin does not fit.

    Examples
    --------
    >>> check_margins({"sensitivity": (0.9, 1.1), "ppv": (0.8, 1.25)}, ["tpr", "ppv"], "ratio")
    {'tpr': (0.9, 1.1), 'ppv': (0.8, 1.25)}
    """
    if not isinstance(margin, Mapping):
        return dict.fromkeys(metrics, check_margin(margin, contrast))
    given = {check_metric(name): pair for name, pair in margin.items()}
    if len(given) < len(margin) or set(given) != set(metrics):
        raise ValueError(
            f"margin must have a pair for each metric ({', '.join(metrics)}) and no other, not "
            f"{', '.join(map(str, margin)) or 'none'}."
        )
    return {name: check_margin(given[name], contrast) for name in metrics}


def contrast_value(rate: Any, reference: Any, contrast: str) -> Array:
    """Contrast of two rates on the scale of its margin.

    Parameters
    ----------
    rate, reference : (...) arrays in (0, 1)
    contrast : {"ratio", "odds_ratio", "difference"}

    Returns
    -------
    (...) array

    Examples
    --------
    >>> contrast_value(0.5, 0.8, "odds_ratio").round(2)
    np.float64(0.25)
    """
    p1, p2 = np.asarray(rate, dtype=float), np.asarray(reference, dtype=float)
    if contrast == "difference":
        return p1 - p2
    if contrast == "ratio":
        return p1 / p2
    return p1 * (1 - p2) / ((1 - p1) * p2)


def contrast_applied(reference: Any, value: Any, contrast: str) -> Array:
    """The rate that has a contrast to a reference rate; the inverse of `contrast_value`.

    Parameters
    ----------
    reference : (...) array in (0, 1)
    value : (...) array
    contrast : {"ratio", "odds_ratio", "difference"}

    Returns
    -------
    (...) array
        Below 0 or above 1 where no rate has it.

    Examples
    --------
    >>> contrast_applied(0.95, [0.8, 1.25], "ratio").round(4)
    array([0.76  , 1.1875])
    """
    p, value = np.asarray(reference, dtype=float), np.asarray(value, dtype=float)
    if contrast == "difference":
        return p + value
    return p * value if contrast == "ratio" else expit(logit(p) + np.log(value))


def scaled(value: Any, contrast: str) -> Array:
    """A contrast or a margin on the scale where its error is normal: logs, but of a difference.

    Parameters
    ----------
    value : (...) array
    contrast : {"ratio", "odds_ratio", "difference"}

    Returns
    -------
    (...) array
    """
    value = np.asarray(value, dtype=float)
    return value if contrast == "difference" else np.log(value)


def unit_variance(rate: Any, contrast: str) -> Array:
    """Variance that one row of a denominator contributes to the contrast, on the scale of `scaled`.

    The variance of a contrast is the sum of the two groups' unit variances, each over its rows:
    (1 - p) / p for the log ratio, 1 / (p (1 - p)) for the log odds ratio (so that 1 / expected
    count is summed over the four cells), p (1 - p) for the difference.

    Parameters
    ----------
    rate : (...) array in (0, 1)
    contrast : {"ratio", "odds_ratio", "difference"}

    Returns
    -------
    (...) array

    References
    ----------
    Katz D, Baptista J, Azen SP, Pike MC (1978). Obtaining confidence intervals for the risk ratio
    in cohort studies. Biometrics 34, 469-474.
    """
    p = np.asarray(rate, dtype=float)
    if contrast == "ratio":
        return (1 - p) / p
    return 1 / (p * (1 - p)) if contrast == "odds_ratio" else p * (1 - p)


# -- in numbers of patients -----------------------------------------------------------------------


def margin_from_patients(
    patients: float,
    *,
    rate: float,
    per: float = 100,
    metric: str = "sensitivity",
    contrast: str = "ratio",
) -> tuple[float, float]:
    """Margin that allows so many patients in a hundred to fare worse.

    "No more than 5 in 100 cancers missed beyond the 5 missed anyway": sensitivity may fall from
    0.95 to 0.90, a ratio of 0.90 / 0.95. The other end is its inverse, so that it does not matter
    which group is the reference.

    Parameters
    ----------
    patients : float
        Of `per` patients in the metric's denominator, how many more may be missed or flagged
        wrongly than in the reference group.
    rate : float
        The metric in the reference group, in (0, 1).
    per : float, default 100
    metric : str, default "sensitivity"
        One of the eight. It says which direction is worse: down for sensitivity, specificity, PPV
        and NPV, up for FNR, FPR, FDR and FOR.
    contrast : {"ratio", "odds_ratio", "difference"}, default "ratio"

    Returns
    -------
    low, high : float
        (1/m, m), or (-m, m) for a difference.

    Raises
    ------
    ValueError
        If the rate that would be reached is not inside (0, 1), or an argument does not fit.

    See Also
    --------
    margin_in_patients : the way back.

    Examples
    --------
    >>> low, high = margin_from_patients(5, rate=0.95)
    >>> round(low, 4), round(high, 4)
    (0.9474, 1.0556)
    >>> margin_from_patients(5, rate=0.05, metric="fnr")
    (0.5, 2.0)
    """
    metric = check_metric(metric)
    check_option("contrast", contrast, CONTRASTS)
    rate = _inside(rate, "rate")
    per, patients = _positive(per, "per"), _positive(patients, "patients")
    worse = rate + (patients if metric in FAILURES else -patients) / per
    if not 1e-12 < worse < 1 - 1e-12:
        raise ValueError(
            f"patients={patients:g} of {per:g} worse than a {METRIC_NAMES[metric]} of {rate:g} "
            f"would be {worse:g}, which is not between 0 and 1. Give fewer patients."
        )
    value = float(contrast_value(worse, rate, contrast))
    if contrast == "difference":
        return -abs(value), abs(value)
    return min(value, 1 / value), max(value, 1 / value)


class MarginInPatients(NamedTuple):
    """What a margin means in numbers of patients; prints its sentence.

    Attributes
    ----------
    worse, better : float
    words : str
    """

    worse: float
    better: float
    words: str

    def __str__(self) -> str:
        return self.words


def margin_in_patients(
    margin: tuple[float, float] | None = None,
    *,
    rate: float,
    per: float = 100,
    metric: str = "sensitivity",
    contrast: str = "ratio",
) -> MarginInPatients:
    """What a margin means in numbers of patients.

    Parameters
    ----------
    margin : pair of floats, optional
        (0.8, 1.25) by default for a ratio and an odds ratio.
    rate : float
        The metric in the reference group, in (0, 1).
    per : float, default 100
    metric : str, default "sensitivity"
        One of the eight.
    contrast : {"ratio", "odds_ratio", "difference"}, default "ratio"

    Returns
    -------
    MarginInPatients
        The tuple (worse, better, words): of `per` patients, how many more and how many fewer may be
        missed or flagged wrongly than in the reference group, and the same in a sentence, which it
        prints. A margin that no rate can reach counts to the last patient.

    Raises
    ------
    ValueError
        If an argument does not fit.

    See Also
    --------
    margin_from_patients : the way back.

    Examples
    --------
    >>> found = margin_in_patients((0.90 / 0.95, 0.95 / 0.90), rate=0.95)
    >>> found.worse
    5.0
    >>> print(found)
    Of 100 patients with the event, at most 5 more missed (sensitivity 0.900 against 0.950) and at
    most 5 fewer (1.000, as far as a rate can go).
    """
    metric = check_metric(metric)
    low, high = map(float, check_margin(margin, contrast))
    rate, per = _inside(rate, "rate"), _positive(per, "per")
    ends = contrast_applied(rate, [low, high], contrast)
    reached = np.clip(ends, 0.0, 1.0)
    cut = ends != reached
    more, fewer = (1, 0) if metric in FAILURES else (0, 1)
    counts = np.abs(reached - rate) * per
    who, what = _PATIENTS[metric]
    limit = [", as far as a rate can go" * bool(c) for c in cut]
    words = (
        f"Of {per:g} {who}, at most {counts[more]:.3g} more {what} ({METRIC_NAMES[metric]} "
        f"{reached[more]:.3f} against {rate:.3f}{limit[more]}) and at most {counts[fewer]:.3g} "
        f"fewer ({reached[fewer]:.3f}{limit[fewer]})."
    )
    worse, better = (round(float(counts[k]), 12) for k in (more, fewer))
    return MarginInPatients(worse, better, words)


def _inside(value: Any, name: str) -> float:
    """A rate strictly between 0 and 1."""
    if not is_number(value) or not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, such as 0.95, not {value!r}.")
    return float(value)


def _positive(value: Any, name: str) -> float:
    if not is_number(value) or not 0 < value < np.inf:
        raise ValueError(f"{name} must be a number above 0, not {value!r}.")
    return float(value)
