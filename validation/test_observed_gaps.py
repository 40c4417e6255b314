"""Gaps of observed metrics on data without any: how often the interval of the widest holds 0.

Every group has the same joint law of outcome and score, so that no rate and no AUC differs. Bounds
are four standard errors of the share below the goal of 93%, and above the size of the test.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import cfair
from validation.ledger import check, quiet

DATASETS = 120
GOAL, SIZE = 0.93, 0.05
SIZES = {"equal": (150, 150, 150, 150), "uneven": (40, 90, 260, 510)}
RATES = ["selection_rate", "tpr", "fpr", "ppv", "equalized_odds"]


def fair(sizes, rng) -> pd.DataFrame:
    group = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=len(group))
    y = (rng.random(len(group)) < expit(-0.8 + x)).astype(int)
    score = expit(-0.8 + x + 0.5 * rng.normal(size=len(group)))
    return pd.DataFrame({"y": y, "risk": score, "a": group % 2, "b": group // 2})


def shares(gaps: list[pd.DataFrame]) -> pd.DataFrame:
    """Share of data sets whose interval holds 0, and whose p-value rejects, by metric and `by`."""
    frame = pd.concat(gaps)
    frame = frame.assign(holds=frame["ci_low"] <= 0, rejects=frame["p_value"] < SIZE)
    return frame.groupby(["metric", "by"])[["holds", "rejects"]].mean()


@pytest.mark.parametrize("design", SIZES)
def test_the_widest_gap_of_fair_data_holds_0(design):
    rng = np.random.default_rng(20 + len(design))
    found: dict[str, list[pd.DataFrame]] = {"rates": [], "scores": []}
    with quiet():
        for k in range(DATASETS):
            audit = cfair.Audit(
                fair(SIZES[design], rng), outcome="y", score="risk", cutoff=0.4, groups=["a", "b"]
            )
            found["rates"].append(audit.observed().gaps(RATES, adjust=None))
            if k % 4 == 0:
                found["scores"].append(audit.performance().gaps(["auc", "brier"], adjust=None))
    for what, gaps in found.items():
        margin = 4 * np.sqrt(GOAL * (1 - GOAL) / len(gaps))
        size = SIZE + 0.02 + 4 * np.sqrt(SIZE * (1 - SIZE) / len(gaps))
        for key, row in shares(gaps).iterrows():
            section = f"gaps of fair data: {what}, {design} groups"
            check(section, row["holds"] >= GOAL - margin, f"{key}: {row['holds']:.3f} hold 0")
            check(section, row["rejects"] <= size, f"{key}: {row['rejects']:.3f} reject")
