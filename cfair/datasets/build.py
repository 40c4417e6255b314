"""The recipe of the shipped cohort; `python -m cfair.datasets.build` writes the file anew."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd

from cfair.datasets.simulate import simulate_cohort

N_ROWS = 5_000
N_MISSING_BMI = 38
SEED = 1


def make_cohort() -> pd.DataFrame:
    """Simulate the shipped cohort: "clinical", without what no study sees, a few values missing."""
    rng = np.random.default_rng(SEED)
    cohort = simulate_cohort(N_ROWS, seed=rng, design="clinical")
    cohort = cohort.drop(columns=["readmitted_untreated", "readmitted_treated"])
    cohort.loc[rng.choice(N_ROWS, size=N_MISSING_BMI, replace=False), "bmi"] = np.nan
    return cohort


def write_cohort(path: Path) -> None:
    """Write the cohort as gzipped CSV; no time stamp, so that the same rows give the same file."""
    text = make_cohort().to_csv(index=False, lineterminator="\n")
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


if __name__ == "__main__":
    write_cohort(Path(__file__).with_name("cohort.csv.gz"))
