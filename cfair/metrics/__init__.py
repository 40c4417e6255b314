"""Observed metrics as functions of arrays: ``f(y_true, y_pred_or_score, *, sensitive_features)``.

They return plain numbers or frames, and check their arrays as strictly as `cfair.Audit` does, whose
verbs give the same figures with intervals. A group in which a rate is undefined is never the worst
one: a number warns of it, a frame keeps its row and says why. With ``missing="drop"`` a warning
counts the rows that went.

An outcome with one value is refused where a number is about rates among events or among non-events,
and by metrics of a score. All others take it; a frame says which rates are then undefined.

Names that users of other packages know, of figures about a 0/1 call:

=======================================  ========================================================
cfair                                    there
=======================================  ========================================================
``group_rates``                          Fairlearn ``MetricFrame.by_group``, TrustLens
                                         ``equalized_odds`` (TPR and FPR by group), Aequitas
                                         ``Group.get_crosstabs``
``gap(rate=)``, ``ratio(rate=)``         Fairlearn ``difference`` and ``ratio`` of a
                                         ``MetricFrame``, ``<metric>_difference`` and ``_ratio``;
                                         ``to="overall"``: ``method="to_overall"``
``group_min``, ``group_max``             Fairlearn ``<metric>_group_min``, ``_group_max``
``gap_table``                            TrustLens ``equalized_odds``: gaps, best and worst group,
                                         severity
``contrasts(reference=label)``           R fairmetrics ``Difference``, ``Ratio``; Aequitas
                                         ``<metric>_disparity`` (the ratio); Fair Code
                                         ``compute_metrics`` (signed; its ratio has 1e-6 added to
                                         both sides)
``contrasts(reference="rest")``          AIF360, with the sign turned: all others pooled; Fair Code
                                         against "not" the group
``demographic_parity_*``                 Fairlearn; AIF360 ``statistical_parity_difference`` and
                                         ``disparate_impact_ratio``; R fairmetrics
                                         ``eval_stats_parity``; Fair Code
                                         ``demographic_parity_diff``, ``disparate_impact_ratio``
``equal_opportunity_*``                  Fairlearn; FairMedFM ``eo``; AIF360 and Fair Code (signed);
                                         R fairmetrics ``eval_eq_opp`` (of the FNR)
``equalized_odds_*``                     Fairlearn, both ``agg``; AIF360 ``average_odds_error``
                                         (mean, two groups); R fairmetrics ``eval_eq_odds`` and
                                         Fair Code ``equalized_odds_diff`` (signed)
``equalized_odds_score``                 FairMedFM ``eod``: 1 is fair
``predictive_equality_*``                R fairmetrics ``eval_pred_equality``; Fairlearn
                                         ``false_positive_rate_difference``
``predictive_parity_*``                  Fair Code ``predictive_parity_diff``; R fairmetrics
                                         ``eval_pos_pred_parity``
``negative_predictive_parity_*``         R fairmetrics ``eval_neg_pred_parity``
``conditional_use_accuracy_*``           R fairmetrics ``eval_cond_acc_equality``
``accuracy_*``                           Fairlearn ``accuracy_score_*``; FairMedFM ``acc-gap``;
                                         Fair Code ``accuracy_equality_diff``; R fairmetrics
                                         ``eval_acc_parity``
``treatment_equality``, ``_*``           R fairmetrics ``eval_treatment_equality``
``class_balance``, ``_*``                R fairmetrics ``eval_pos_class_bal``,
                                         ``eval_neg_class_bal``
``severity``                             TrustLens ``tpr_violation``, ``fpr_violation``
``differential_fairness``                AIF360 ``smoothed_edf``
``bias_amplification``                   AIF360 ``df_bias_amplification``
``generalized_entropy``                  AIF360 ``generalized_entropy_error``,
                                         ``between_group_generalized_entropy_error``, Theil index
``class_imbalance``                      TrustLens ``class_imbalance_report``
``subgroup_performance``                 TrustLens ``subgroup_performance``: accuracy, macro F1
``subgroup_gaps``                        TrustLens ``performance_gap``, best and worst group
``auc``, ``auc_gap``, ``worst_auc``      FairMedFM ``auc-gap``, ``worst-auc``
``brier``                                TrustLens ``brier_score``; R fairmetrics
                                         ``eval_bs_parity``
``log_loss``, ``log_loss_gap``           FairMedFM ``bce-gap``
``ece``, ``ece_gap``                     TrustLens (``range="unit"``); FairMedFM ``ece-gap``
                                         (``range="group"``)
``best_f1_threshold``                    FairMedFM, which calls those strictly above it
``intersectional_gap``                   Fair Code ``intersectional_report``: cells, gaps, flag; and
                                         the interaction contrast, which it has not
``representation``                       Fair Code ``profile --cross``
``segmentation_gaps``                    FairMedFM ``evaluate_segmentation``: ``dice_gap``,
                                         ``dice_std``, ``dice_skewness``, ``equity_scaled_dice``
=======================================  ========================================================

The star stands for ``difference`` and ``ratio``. Where a group has no events TrustLens and
Fairlearn set its true positive rate to 0, which can make it the worst; here it is undefined.
"""

from __future__ import annotations

from cfair.metrics.calibration import (
    brier,
    calibration,
    calibration_curve,
    ece,
    ece_gap,
    log_loss,
    log_loss_gap,
)
from cfair.metrics.classification import (
    contrasts,
    gap,
    gap_table,
    group_max,
    group_min,
    group_rates,
    ratio,
    severity,
)
from cfair.metrics.criteria import (
    accuracy_difference,
    accuracy_ratio,
    class_balance,
    class_balance_difference,
    class_balance_ratio,
    conditional_use_accuracy_difference,
    conditional_use_accuracy_ratio,
    demographic_parity_difference,
    demographic_parity_ratio,
    equal_opportunity_difference,
    equal_opportunity_ratio,
    equalized_odds_difference,
    equalized_odds_ratio,
    equalized_odds_score,
    negative_predictive_parity_difference,
    negative_predictive_parity_ratio,
    predictive_equality_difference,
    predictive_equality_ratio,
    predictive_parity_difference,
    predictive_parity_ratio,
    treatment_equality,
    treatment_equality_difference,
    treatment_equality_ratio,
)
from cfair.metrics.differential_fairness import (
    bias_amplification,
    differential_fairness,
    generalized_entropy,
)
from cfair.metrics.discrimination import auc, auc_gap, best_f1_threshold, roc_curves, worst_auc
from cfair.metrics.multiclass import class_imbalance, subgroup_gaps, subgroup_performance
from cfair.metrics.net_benefit import net_benefit
from cfair.metrics.representation import representation
from cfair.metrics.segmentation import dice_scores, segmentation_gaps
from cfair.metrics.superadditivity import (
    disagreement,
    interaction_contrast,
    interaction_interval,
    intersectional_gap,
    superadditive,
)

__all__ = [
    "accuracy_difference",
    "accuracy_ratio",
    "auc",
    "auc_gap",
    "best_f1_threshold",
    "bias_amplification",
    "brier",
    "calibration",
    "calibration_curve",
    "class_balance",
    "class_balance_difference",
    "class_balance_ratio",
    "class_imbalance",
    "conditional_use_accuracy_difference",
    "conditional_use_accuracy_ratio",
    "contrasts",
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "dice_scores",
    "differential_fairness",
    "disagreement",
    "ece",
    "ece_gap",
    "equal_opportunity_difference",
    "equal_opportunity_ratio",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "equalized_odds_score",
    "gap",
    "gap_table",
    "generalized_entropy",
    "group_max",
    "group_min",
    "group_rates",
    "interaction_contrast",
    "interaction_interval",
    "intersectional_gap",
    "log_loss",
    "log_loss_gap",
    "negative_predictive_parity_difference",
    "negative_predictive_parity_ratio",
    "net_benefit",
    "predictive_equality_difference",
    "predictive_equality_ratio",
    "predictive_parity_difference",
    "predictive_parity_ratio",
    "ratio",
    "representation",
    "roc_curves",
    "segmentation_gaps",
    "severity",
    "subgroup_gaps",
    "subgroup_performance",
    "superadditive",
    "treatment_equality",
    "treatment_equality_difference",
    "treatment_equality_ratio",
    "worst_auc",
]
