"""How often the tests say "equivalent" at the margin, exactly and by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from validation.equivalence_data import ALPHA, QUESTIONS, exact_size, rate_at, simulated
from validation.ledger import check, quiet

SIZES = ((25, 75), (20, 400), (100, 300))
RATES = (0.05, 0.5, 0.9)
#: The score test is approximate too: what the committed table has for its worst.
WORST_SCORE = 0.07


@pytest.mark.parametrize(("contrast", "margin"), QUESTIONS)
def test_the_size_of_the_score_test_is_near_alpha(contrast, margin):
    worst = {"wald": 0.0, "score": 0.0}
    for n in SIZES:
        for reference in RATES:
            for end in margin:
                rate = rate_at(reference, end, contrast)
                if not 0 < rate < 1:
                    continue
                found = exact_size(n, (rate, reference), margin, contrast)
                size = found["equivalent, score"]
                name = f"{contrast} {n} {reference} {end}: {size:.4f}"
                check("size of the score test", size <= WORST_SCORE, name)
                for method in worst:
                    worst[method] = max(worst[method], found[f"equivalent, {method}"])
    if contrast != "odds_ratio":  # there Wald is cautious
        check("score mends Wald", worst["score"] < worst["wald"], f"{contrast}: {worst}")


def test_weighted_clustered_and_counterfactual_rates():
    datasets = 300
    with quiet():
        found = simulated(1500, 0.3, (0.625, 0.5), datasets, np.random.default_rng(3))
    # three Monte Carlo errors: a size of 10% is found out
    most = ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / datasets)
    for kind, share in found.items():
        check("size with weights and models", share <= most, f"{kind}: {share:.3f}")
