"""The example cohort that ships with cfair."""

from __future__ import annotations

from importlib import resources

import pandas as pd


def load_cohort() -> pd.DataFrame:
    """Load a simulated cohort of 5,000 patients discharged from hospital.

    No patient of it exists: it is a draw from the design "clinical" of `simulate_cohort`, with the
    potential outcomes left out. A risk score flags patients for a follow-up programme that prevents
    half of the readmissions it meets, and which reaches some groups more readily than others. So
    the observed error rates mix two things, what the score gets wrong and what the programme
    prevented; the counterfactual rates, without the programme, are in `true_rates("clinical")`.
    Counted as they stand, the false positive rates of Black women and White men differ by 0.13;
    without the programme they would differ by 0.16.

    Returns
    -------
    pandas.DataFrame
        =============== ================== ===============================================
        column          unit               meaning
        =============== ================== ===============================================
        `readmitted`    0, 1               readmitted within 30 days; the outcome
        `risk`          0 to 1, 3 decimals predicted risk of readmission; the score under
                                           audit, a patient is flagged at 0.5 or above
        `treated`       0, 1               took part in the follow-up programme; depends
                                           on risk, age, sbp, and on sex and race together
        `sex`           text               F, M
        `race`          text               Black, Other, White
        `age`           years, 1 decimal   age at discharge
        `sbp`           mmHg, whole        systolic blood pressure
        `bmi`           kg/m2, 1 decimal   body mass index; missing in 38 rows, at random
        `zip_income`    1000 dollars,      median household income of the postal code
                        1 decimal
        =============== ================== ===============================================

        All columns but `bmi` are complete. The smallest group is men of other race, 263 patients.

    Notes
    -----
    Given risk, age, sbp, sex and race, treatment is independent of the outcome without treatment,
    and exactly logistic: `treated ~ sex * race + risk + age + sbp` is the right propensity model.
    Within those flagged, and within those not flagged, the risk says no more about the outcome:
    the right outcome model has the flag, crossed with sex and race, and all four covariates.

    Examples
    --------
    >>> import cfair.datasets
    >>> cohort = cfair.datasets.load_cohort()
    >>> cohort.shape
    (5000, 9)
    >>> int(cohort["bmi"].isna().sum())
    38
    """
    with resources.files("cfair.datasets").joinpath("cohort.csv.gz").open("rb") as file:
        return pd.read_csv(file, compression="gzip")
