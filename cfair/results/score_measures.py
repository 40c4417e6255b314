"""Measures of the quality of a score: what each is called, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScoreMeasure:
    """What a measure of a score is called, and how it is read.

    Attributes
    ----------
    label : str
        Name in print.
    scale : str
        ``"unit"``, ``"positive"``, ``"real"``, or ``"counted"`` for a rate of a 0/1 call.
    best : float or None
        Value of a perfect score; None if the measure is no judgement of it.
    both : bool
        Whether it needs events and non-events.
    among : int or None
        The outcome of the rows that it is about; None for all rows.
    """

    label: str
    scale: str
    best: float | None = None
    both: bool = False
    among: int | None = None


#: Measures, in the order of the frames.
MEASURES: dict[str, ScoreMeasure] = {
    "auc": ScoreMeasure("AUC", "unit", 1.0, both=True),
    "brier": ScoreMeasure("Brier", "unit", 0.0),
    "log_loss": ScoreMeasure("log loss", "positive", 0.0),
    "prevalence": ScoreMeasure("prevalence", "counted"),
    "mean_score": ScoreMeasure("mean score", "unit"),
    "mean_score_events": ScoreMeasure("mean score of events", "unit", among=1),
    "mean_score_non_events": ScoreMeasure("mean score of non-events", "unit", among=0),
    "oe_ratio": ScoreMeasure("O/E", "positive", 1.0),
    "calibration_in_the_large": ScoreMeasure("cal. in the large", "real", 0.0, both=True),
    "calibration_intercept": ScoreMeasure("cal. intercept", "real", 0.0, both=True),
    "calibration_slope": ScoreMeasure("cal. slope", "real", 1.0, both=True),
    "ece": ScoreMeasure("ECE", "unit", 0.0),
    "ece_debiased": ScoreMeasure("ECE, debiased", "unit", 0.0),
    "accuracy": ScoreMeasure("accuracy", "counted", 1.0),
    "f1": ScoreMeasure("F1", "counted", 1.0),
    "accuracy_best_f1": ScoreMeasure("accuracy at best F1", "counted", 1.0),
    "f1_best_f1": ScoreMeasure("F1 at best F1", "counted", 1.0),
}

#: Metrics in the printed table; the frames have all.
PRINTED: tuple[str, ...] = ("auc", "brier", "oe_ratio", "calibration_slope")
