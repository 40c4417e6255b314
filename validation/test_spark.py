"""Tables that Spark holds are counted in Spark, and give the numbers of the same rows in memory."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

import cfair
from validation.ledger import compare

FRAMES = ("rates", "marginals", "overall", "disparities")


@pytest.fixture(scope="module")
def spark():
    if shutil.which("java") is None:
        pytest.skip("Spark is not installed: it needs a Java, and pip install pyspark")
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        pytest.skip("Spark is not installed: it needs a Java, and pip install pyspark")
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    for end in ("bindAddress", "host"):
        settings[f"spark.driver.{end}"] = "127.0.0.1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of newer versions of pandas
        found = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        yield found
        found.stop()


def table(n: int = 4000, seed: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.integers(0, 2, n),
            "d": rng.integers(0, 2, n),
            "s": rng.integers(0, 11, n) / 10,
            "sex": rng.choice(["M", "F"], n),
            "race": rng.choice(["w", "b", "Ö & \u2028"], n),
            "site": rng.choice([10, 9, 100], n),
            "x": rng.normal(size=n),
        }
    )


@pytest.mark.parametrize("options", [{}, {"cluster": "site"}, {"groups": ["sex", "race", "site"]}])
def test_observed_rates(spark, options):
    roles = {"outcome": "y", "score": "s", "cutoff": 0.3, "groups": ["sex", "race"], **options}
    data = table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        there = cfair.Audit(spark.createDataFrame(data), **roles).observed()
        here = cfair.Audit(data, **roles).observed()
    for name in FRAMES:
        a, b = (getattr(result, name) for result in (there, here))
        assert list(a.columns) == list(b.columns)
        for column in a.columns:
            if pd.api.types.is_numeric_dtype(b[column]):
                compare(f"Spark: {name}", a[column], b[column], 1e-12, column)
            else:
                assert a[column].astype(str).tolist() == b[column].astype(str).tolist(), column


def test_counterfactual_rates(spark):
    roles = {"outcome": "y", "score": "s", "cutoff": 0.3, "groups": ["sex", "race"]}
    data = table()
    formula = "d ~ sex * race + x"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        there = cfair.Audit(spark.createDataFrame(data), **roles).counterfactual(formula)
        here = cfair.Audit(data, **roles).counterfactual(formula)
    for column in ("estimate", "se", "ci_low", "ci_high"):
        compare("Spark: weighted rates", there.rates[column], here.rates[column], 1e-10, column)
