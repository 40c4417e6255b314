"""Random tables, options and formulas: each ends in a result, or in an error that cfair means.

``python tests/test_fuzz.py --n 5000 --seed 1`` tries more of them and counts how they ended. A case
is its kind and seed: ``python tests/test_fuzz.py --show table 17``.
"""

from __future__ import annotations

import argparse
import datetime
import dis
import inspect
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import bad_inputs
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import cfair
from cfair.errors import CfairError

HERE = str(Path(cfair.__file__).parent)
SECONDS = 60  # for one case, on a busy machine; most take a few hundredths
ODD_NAMES = [
    "", " ", "a b", "y ~ x", "`", "a`b", "1", "x.1", "class", "C", "I", "np", "Intercept", "missing",  # noqa: E501
    "group", "metric", "estimate", "note", "n", "level", "overall", "\x00", "a\nb", "\ud800", "é",
    "\u202eabc", "שלום", "日本", "a:b", "a*b", "-1", "0", "0.5", "lambda", "__class__", "_column_0_",  # noqa: E501
    "%s", "{x}", "<b>", "&amp;", "$x$", "\\", "a|b", "'", '"', "'''", "#", "x" * 300, "None", "True",  # noqa: E501
    "nan", "s>=0.5", "log(x)", "\t", "e\u0301", "\U0001f600", "_", "$", "$\\frac{$", "index", "all",
]  # fmt: skip
ODD_LABELS = [*ODD_NAMES, "F & M", "F, M", "(1, 2)", "NA", "NaN", "null", "total"]


ODD_VALUES = [
    None, 3, 0, -1, 0.5, 2.5, -0.1, 1.1, np.nan, np.inf, "0.5", "nothing", True, [], (), b"x",
    [0.5], 1 + 0j, Decimal("0.5"), np.array(3), np.array([1]), {}, object(), pd.NA, pd.NaT, int,
]  # fmt: skip


# -- tables ----------------------------------------------------------------------------------------


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def as_objects(values):
    found = np.empty(len(values), dtype=object)
    found[:] = list(values)
    return found


def outcomes(rng, y):
    """An outcome of some type, and what may have to be said of it."""
    n = len(y)
    kind = pick(rng, ["int64"] * 40 + [
        "bool", "int8", "uint8", "float64", "float32", "Int64", "boolean", "Float64", "UInt8",
        "boolean[pyarrow]", "int64[pyarrow]", "double[pyarrow]", "object", "mixed", "text", "text",
        "category", "unused", "codes", "decimal", "dates", "constant", "other", "huge", "fraction",
    ])  # fmt: skip
    event = None
    if kind == "mixed":
        values = as_objects([pick(rng, [int(v), bool(v), float(v), str(v)]) for v in y])
    elif kind == "text":
        names, event = (
            pick(rng, [("dead", "alive"), ("1", "0"), ("True", "False"), ("", "\x00")]),
            "",
        )
        values, event = as_objects([names[1 - v] for v in y]), pick(rng, [names[0], None, "x"])
    elif kind == "category":
        values = pd.Categorical(y)
    elif kind == "unused":
        values = pd.Categorical(np.where(y == 1, "yes", "no"), ["never", "no", "yes"])
        event = pick(rng, ["yes", "never", None])
    elif kind == "codes":
        values, event = y + 1, pick(rng, [2, None, "2", 2.0])
    elif kind == "decimal":
        values = as_objects([Decimal(int(v)) for v in y])
    elif kind == "fraction":
        values = as_objects([Fraction(int(v)) for v in y])
    elif kind == "dates":
        values = pd.to_datetime(y.astype("int64"), unit="D")
        event = pick(rng, [None, pd.Timestamp("1970-01-02")])
    elif kind == "constant":
        values = np.full(n, rng.integers(2))
    elif kind == "other":
        values = y * 0.3
    elif kind == "huge":
        values = as_objects([int(v) * 10**400 for v in y])
    else:
        values = pd.array(y, dtype="int64").astype(kind) if n else pd.array([], dtype=kind)
    return pd.Series(values, dtype=object if kind == "huge" else None), event


def scores(rng, n, y):
    kind = pick(rng, ["good"] * 30 + [
        "constant", "zero", "one", "ties", "tiny", "edge", "float32", "float16", "decimal",
        "Float64", "object", "text", "percent", "logit", "above", "bool", "int", "minus zero",
        "perfect", "double[pyarrow]", "complex", "longdouble", "fraction",
    ])  # fmt: skip
    good = np.clip(0.3 * y + rng.uniform(0, 0.7, n), 0, 1)
    made = {
        "constant": lambda: np.full(n, 0.3),
        "zero": lambda: np.zeros(n),
        "one": lambda: np.ones(n),
        "ties": lambda: rng.choice([0.0, 0.5, 1.0], n),
        "tiny": lambda: good * pick(rng, [1e-300, 5e-324, 1e-16]),
        "edge": lambda: np.where(good > 0.5, np.nextafter(1, 0), 5e-324),
        "float32": lambda: good.astype("float32"),
        "float16": lambda: good.astype("float16"),
        "decimal": lambda: as_objects([Decimal(str(round(v, 3))) for v in good]),
        "Float64": lambda: pd.array(good, dtype="Float64"),
        "object": lambda: good.astype(object),
        "text": lambda: as_objects([str(v) for v in good]),
        "percent": lambda: 100 * good,
        "logit": lambda: 8 * good - 4,
        "above": lambda: np.where(good > 0.6, 1 + 1e-9, good),
        "bool": lambda: good > 0.5,
        "int": lambda: (good > 0.5).astype(int),
        "minus zero": lambda: np.where(good > 0.5, good, -0.0),
        "perfect": lambda: y.astype(float),
        "double[pyarrow]": lambda: pd.array(good, dtype="double[pyarrow]"),
        "complex": lambda: good.astype(complex),
        "longdouble": lambda: good.astype(np.longdouble),
        "fraction": lambda: as_objects([Fraction(float(v)) for v in good]),
    }
    return pd.Series(made[kind]() if kind in made else good)


def labels(rng, n):
    """A protected attribute of some type."""
    kind = pick(rng, ["text"] * 20 + [
        "odd", "odd", "int", "float", "bool", "boolean", "Int64", "category", "unused", "ordered",
        "dates", "date", "zone", "decimal", "tuples", "mixed", "bytes", "interval", "period",
        "timedelta", "string", "arrow", "list", "dict", "set", "constant", "distinct", "huge",
        "zeros", "none", "categories of numbers", "big", "array", "class", "time",
    ])  # fmt: skip
    K = int(rng.integers(1, 5))
    code = rng.integers(0, K, n)
    text = as_objects([f"g{c}" for c in code])
    pool = [pick(rng, ODD_LABELS) for _ in range(K)]
    mix = [1, "1", 1.5, None, ("a",), datetime.date(2020, 1, 1), b"x", Decimal(2), float("nan")]
    made = {
        "odd": lambda: as_objects([pool[c] for c in code]),
        "int": lambda: code,
        "float": lambda: pick(rng, [code * 1.0, code * 0.1, code * 1e300, code - 0.5]),
        "bool": lambda: code > 0,
        "boolean": lambda: pd.array(code > 0, dtype="boolean"),
        "Int64": lambda: pd.array(code, dtype="Int64"),
        "category": lambda: pd.Categorical(text),
        "unused": lambda: pd.Categorical(text, ["never", *[f"g{k}" for k in range(K)], ""]),
        "ordered": lambda: pd.Categorical(text, [f"g{k}" for k in range(K)][::-1], ordered=True),
        "dates": lambda: pd.to_datetime(code, unit="D"),
        "date": lambda: as_objects([datetime.date(2020, 1, 1 + int(c)) for c in code]),
        "zone": lambda: pd.to_datetime(code, unit="D", utc=True).tz_convert("Asia/Kolkata"),
        "decimal": lambda: as_objects([Decimal(int(c)) / 7 for c in code]),
        "tuples": lambda: as_objects([("a", int(c)) for c in code]),
        "mixed": lambda: as_objects([pick(rng, mix) for _ in code]),
        "bytes": lambda: as_objects([bytes([int(c)]) for c in code]),
        "interval": lambda: pd.cut(code.astype(float), [-1, 0, 2, 9]),
        "period": lambda: pd.period_range("1970-01", periods=4, freq="M")[code],
        "timedelta": lambda: pd.to_timedelta(code, unit="s"),
        "string": lambda: pd.array(text, dtype="string"),
        "arrow": lambda: pd.array(text, dtype="string[pyarrow]"),
        "list": lambda: as_objects([[int(c)] for c in code]),
        "dict": lambda: as_objects([{"a": int(c)} for c in code]),
        "set": lambda: as_objects([frozenset([int(c)]) for c in code]),
        "constant": lambda: np.full(n, "only"),
        "distinct": lambda: np.arange(n) % 12,
        "huge": lambda: as_objects([10**400 + int(c) for c in code]),
        "zeros": lambda: np.where(code == 0, -0.0, 0.0),
        "none": lambda: as_objects([None] * n),
        "categories of numbers": lambda: pd.Categorical(code, [3, 2, 1, 0, 7]),
        "big": lambda: code.astype("uint64") + np.uint64(2**63),
        "array": lambda: as_objects([np.array([int(c)]) for c in code]),
        "class": lambda: as_objects([pick(rng, [int, str, float]) for _ in code]),
        "time": lambda: as_objects([datetime.time(int(c)) for c in code]),
    }
    found = made[kind]() if kind in made else text
    plain = kind in ("odd", "huge")
    return pd.Series(found, dtype=object if plain else None)  # see the column names below


def covariate(rng, n, y):
    kind = pick(rng, ["normal"] * 6 + [
        "constant", "huge", "small", "text", "count", "copy", "inf", "missing", "bool", "dates",
        "decimal", "Float64", "skew", "separates", "object",
    ])  # fmt: skip
    x = rng.normal(size=n)
    made = {
        "constant": lambda: np.full(n, 3.0),
        "huge": lambda: x * pick(rng, [1e10, 1e100, 1e200, 1e307]),
        "small": lambda: x * pick(rng, [1e-10, 1e-100, 1e-300, 5e-324]),
        "text": lambda: as_objects([f"c{v}" for v in rng.integers(0, 3, n)]),
        "count": lambda: rng.poisson(2, n),
        "copy": lambda: y.astype(float),
        "inf": lambda: np.where(x > 2, np.inf, x),
        "missing": lambda: np.where(x > 1, np.nan, x),
        "bool": lambda: x > 0,
        "dates": lambda: pd.to_datetime((100 * x).astype(int), unit="D"),
        "decimal": lambda: as_objects([Decimal(str(round(v, 2))) for v in x]),
        "Float64": lambda: pd.array(x, dtype="Float64"),
        "skew": lambda: np.exp(4 * x),
        "separates": lambda: np.where(y == 1, 5.0, -5.0) + x,
        "object": lambda: x.astype(object),
    }
    return pd.Series(made[kind]() if kind in made else x)


def with_missing(rng, series):
    """The same column with some rows missing, where its type can say so."""
    marker = pick(rng, [None, np.nan, pd.NA, pd.NaT])
    share = pick(rng, [0.02, 0.3, 1.0])
    rows = rng.random(len(series)) < share
    try:
        found = series.copy()
        found[rows] = marker
        return found
    except Exception:
        found = series.astype(object)
        found[rows] = marker
        return found


def weights_of(rng, n):
    w = rng.uniform(0.5, 2, n)
    return pick(rng, [
        w, w, w, np.ones(n), np.zeros(n), w * 1e300, w * 1e-300, w * 5e-324, rng.integers(0, 3, n),
        w - 1, np.where(w > 1.9, np.nan, w), np.where(w > 1.9, np.inf, w),
        np.where(np.arange(n) == 0, 1e12, 1.0), w.astype(object), w.astype(str), w > 1,
    ])  # fmt: skip


INDEXES = [
    lambda n: pd.RangeIndex(n), lambda n: np.arange(n)[::-1], lambda n: np.arange(n) // 2,
    lambda n: [f"p{i}" for i in range(n)], lambda n: pd.date_range("2020", periods=n),
    lambda n: pd.MultiIndex.from_arrays([np.arange(n) % 2, np.arange(n)]),
    lambda n: np.full(n, np.nan), lambda n: pd.CategoricalIndex(np.arange(n) % 3),
]  # fmt: skip


def converted(rng, frame):
    """The frame in the hands of another library, if that library takes it."""
    library = pick(rng, ["pandas"] * 8 + ["polars", "lazy", "pyarrow", "duckdb", "dict"])
    try:
        if library in ("polars", "lazy"):
            import polars as pl

            found = pl.from_pandas(frame.reset_index(drop=True))
            return found.lazy() if library == "lazy" else found
        if library == "pyarrow":
            import pyarrow as pa

            return pa.Table.from_pandas(frame, preserve_index=False)
        if library == "duckdb":
            import duckdb

            found = duckdb.from_df(frame)
            found.fetchone()
            return duckdb.from_df(frame)
        if library == "dict":
            return {name: frame.iloc[:, i].to_numpy() for i, name in enumerate(frame)}
    except Exception:  # what another library cannot hold is not cfair's matter
        return frame
    return frame


def table(rng):
    """A table and the options of its audit; about half of them can be analysed."""
    n = int(pick(rng, [0, 1, 2, 3, 5, 12, 12, 40, 40, 100, 100, *[200] * 9]))
    y = rng.integers(0, 2, n)
    d = rng.integers(0, 2, n)
    odd = rng.random() < 0.25
    names = ["y", "s", "d", "g1", "g2", "x1", "x2", "w", "k"]
    if odd:
        at = rng.permutation(len(ODD_NAMES))[: len(names)]
        names = [
            ODD_NAMES[i] if rng.random() < 0.5 else name for i, name in zip(at, names, strict=True)
        ]
    outcome, event = outcomes(rng, y)
    treatment, treatment_event = outcomes(rng, d) if rng.random() < 0.3 else (pd.Series(d), None)
    columns = [
        outcome, scores(rng, n, y), treatment, labels(rng, n), labels(rng, n), covariate(rng, n, y),
        covariate(rng, n, d), pd.Series(weights_of(rng, n)),
        pd.Series(rng.integers(0, max(1, n // pick(rng, [1, 5, 40])), n)),
    ]  # fmt: skip
    if rng.random() < 0.25:
        for i in rng.integers(0, len(columns), 2):
            columns[i] = with_missing(rng, columns[i])
    frame = pd.concat([c.rename(None) for c in columns], axis=1)
    frame.columns = pd.Index(names, dtype=object)  # pandas' text type refuses a half surrogate
    frame.index = pick(rng, INDEXES if rng.random() < 0.3 else INDEXES[:1])(n)
    options = {
        "outcome": names[0],
        "groups": pick(rng, [[names[3], names[4]], [names[3], names[4]], [names[3]], names[3]]),
        "missing": pick(rng, ["raise", "drop", "drop", "drop", "level"]),
    }
    if rng.random() < 0.9:
        options |= {"score": names[1], "cutoff": pick(rng, [0.5] * 20 + [
            0, 1, 0.0, 1.0, np.nextafter(0.5, 1), 5e-324, np.float32(0.5),
        ])}  # fmt: skip
    else:
        options["prediction"] = pick(rng, [names[2], (frame.iloc[:, 2].to_numpy() == 1)])
    if event is not None:
        options["outcome_event"] = event
    if rng.random() < 0.9 and "prediction" not in options:
        options["treatment"] = names[2]
        if treatment_event is not None:
            options["treatment_event"] = treatment_event
    if rng.random() < 0.2:
        options["weights"] = pick(rng, [names[7], frame.iloc[:, 7].to_numpy()])
    if rng.random() < 0.2:
        options["cluster"] = names[8]
    if rng.random() < 0.2:
        options["min_group_size"] = pick(rng, [1, 5, 50, 1000])
        options["small_groups"] = pick(rng, ["warn", "drop"])
    if rng.random() < 0.2:
        options["suppress_below"] = pick(rng, [2, 5, 11, 20, 200])
    if rng.random() < 0.05:
        role = pick(rng, [*options, "cutoff", "cutoff", "min_group_size", "suppress_below"])
        options[role] = pick(rng, ODD_VALUES)
    return converted(rng, frame), options, names


# -- formulas --------------------------------------------------------------------------------------

PIECES = [
    "age", "s", "sex", "race", "d", "y", "1", "0", "-1", "2", "0.5", "+", "-", "*", ":", "/", "**",
    "^", "|", "%in%", "~", "(", ")", " ", "C(", "I(", "center(", "bs(", "cr(", "te(", "log(", "exp(",  # noqa: E501
    "sqrt(", "abs(", "clip(", "where(", ",", "df=4", "degree=3", "knots=", "[", "]", "[0]", ".",
    "np.mean(", "lambda x:", "__import__('os')", "'a'", '"', "'", "`", "`age`", "`a b`", "Treatment",  # noqa: E501
    "Treatment('M')", "Sum", "Poly", "not", "and", "if", "else", "for", "in", "==", ">=", "<", "!=",
    "//", "%", "@", "&", "=", ":=", "{", "}", "\\", "\n", "\t", "\x00", "#", ";", "é", "日", "\ud800",  # noqa: E501
    "1e999", "1j", "0x1F", "10**10", "9" * 30, "...", "None", "True", "nan", "inf", "_", "__class__",  # noqa: E501
    "(" * 20, ")" * 20, "-" * 50, "+ age" * 30, "* age" * 8, "age at entry", "x.1", "Intercept", "Q('age')",  # noqa: E501
]  # fmt: skip
NUMBERS = ["age", "s", "visits"]
FACTORS = ["sex", "race", "C(visits)", "C(race)", "C(sex, Sum)", "C(race, Treatment('White'))",
           "C(race, Poly)", "C(race, levels=['White', 'Black', 'Other'])"]  # fmt: skip


def number(rng, depth):
    if depth <= 0 or rng.random() < 0.3:
        return pick(rng, [*NUMBERS, "2", "0.1", "-1", "0", "1e300", "1e-300"])
    a, b = number(rng, depth - 1), number(rng, depth - 1)
    return pick(rng, [
        f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / {b})", f"{a} ** 2", f"({a} ** {b})",  # noqa: E501
        f"log({a})", f"log1p({a})", f"exp({a})", f"sqrt({a})", f"abs({a})", f"sin({a})",
        f"minimum({a}, {b})", f"clip({a}, 0, 1)", f"where({a} > {b}, 1, 0)", f"({a} >= {b})",
        f"({a} % {b})", f"({a} // {b})", f"-{a}", f"(sex == 'F') * {a}",
    ])  # fmt: skip


def term(rng, depth):
    kind = rng.integers(8 if depth > 0 else 4)
    if kind < 2:
        return pick(rng, NUMBERS)
    if kind < 4:
        return pick(rng, FACTORS)
    if kind == 4:
        return f"I({number(rng, depth)})"
    if kind == 5:
        return pick(rng, ["center", "standardize", "scale"]) + f"({number(rng, depth - 1)})"
    if kind == 6:
        inner = number(rng, depth - 1)
        return pick(rng, [f"bs({inner}, df=4)", f"cr({inner}, df=3)", f"cc({inner}, df=4)",
                          f"bs({inner}, df=5, degree=2)", f"te(cr({inner}, df=3), cr(s, df=3))"])  # fmt: skip  # noqa: E501
    return f"({term(rng, depth - 1)} {pick(rng, ['+', ':', '*', '-', '/'])} {term(rng, depth - 1)})"


def formula(rng):
    """Half of them by the grammar, a third from pieces in any order, the others any characters."""
    kind = rng.random()
    if kind < 0.5:
        right = " + ".join(term(rng, int(rng.integers(1, 4))) for _ in range(rng.integers(1, 5)))
        return pick(rng, ["d ~ "] * 6 + ["~ ", "~ ", "", "y ~ ", "d ~ 0 + "]) + right
    if kind < 0.85:
        text = "".join(pick(rng, PIECES) for _ in range(rng.integers(0, 14)))
        return pick(rng, ["d ~ ", "d ~ age + s + ", ""]) + text
    points = [
        int(rng.integers(0, pick(rng, [128, 256, 0x3000, 0x110000])))
        for _ in range(rng.integers(0, 30))
    ]
    return pick(rng, ["", "d ~ "]) + "".join(map(chr, points))


# -- trying ----------------------------------------------------------------------------------------


class TooLongError(Exception):
    """A case took longer than it may."""


@contextmanager
def limited(seconds):
    """Give up after so many seconds, where the platform can interrupt."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_):
        raise TooLongError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def own(error):
    """Whether cfair raised this error on purpose: by a raise statement of its own.

    Options of a wrong type or value are ValueErrors, what is no result at all a TypeError.
    """
    if not isinstance(error, (CfairError, ValueError)):
        return False
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    raised = dis.opname[code.co_code[last.tb_lasti]] == "RAISE_VARARGS"
    return code.co_filename.startswith(HERE) and raised and len(str(error)) > 15


#: Columns that have a number only for some rows, by the definition in their docstrings.
PARTIAL = {
    "threshold", "expected_if_calibrated", "boot_se", "boot_low", "boot_high", "u_delta", "u_value",
    "p_value_studentized",
}  # fmt: skip


def silent(name, frame):
    """What is NaN in a frame of results though its row has no note."""
    if "note" not in frame or frame.empty:
        return None
    values = [c for c in ("estimate", "ci_low", "ci_high", "p_value") if c in frame]
    noted = frame["note"].astype(str).str.len() > 0
    for column in values:
        bad = frame[column].isna() & ~noted
        if bad.any():
            return f"silent NaN in {name}.{column}: {frame[bad].iloc[0].to_dict()}"
    return None


SKIPPED = {"to_excel", "to_gt", "plot_all", "plots"}


def use(rng, result):
    """Print a result, read its frames, and call what can be called without arguments."""
    problems = []
    str(result), repr(result)
    plots, share = rng.random() < 0.02, 1 if rng.random() < 0.2 else 0.3
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted({*dir(type(result)), *vars(result)}):
            if name.startswith("_") or name in SKIPPED or rng.random() > share:
                continue
            try:
                value = getattr(result, name)
                if inspect.ismethod(value):
                    if name.startswith("plot") and not plots:
                        continue
                    needs = [p for p in inspect.signature(value).parameters.values()
                             if p.default is p.empty and p.kind is not p.VAR_KEYWORD]  # fmt: skip
                    if needs:
                        continue
                    value = value()
                if name == "contrasts":
                    kind, reference = (
                        pick(rng, ["difference", "ratio"]),
                        pick(rng, ["overall", None]),
                    )
                    value = (
                        result.contrasts(reference, kind=kind)
                        if callable(getattr(result, name))
                        else value
                    )
                if name.startswith("plot") and plots:
                    plt.gcf().savefig(f"{folder}/a.png")
                    plt.close("all")
            except Exception as error:
                if not own(error):
                    raise
                continue
            if isinstance(value, pd.DataFrame):
                found = silent(name, value)
                if found:
                    problems.append(found)
        plt.close("all")
    return problems


def quoted(name):
    return f"`{name}`"


def right_side(rng, names):
    """The columns of a table as a formula, whatever they are called."""
    score, *others = [names[i] for i in (1, 3, 4, 5, 6)]
    chosen = [name for name in [score, *others] if rng.random() < 0.7] or [names[5]]
    return "~ " + pick(rng, [" + ", " + ", " * "]).join(quoted(name) for name in chosen)


def replicates(rng):
    found = {"n_boot": pick(rng, [None, None, 3, 10, 0]), "n_perm": pick(rng, [None, None, 3, 10])}
    found["bootstrap"] = pick(rng, ["auto"] * 4 + ["rows", "group", "cluster"])
    return {**found, "truncation": pick(rng, [(0.005, 0.995)] * 4 + [(0.3, 0.6), None, (0, 1)])}


def ask(rng, audit, names):
    """One verb of the audit with random options."""
    verb = pick(rng, [
        "observed", "observed", "performance", "interaction", "representation", "ipw", "ipw", "aipw",  # noqa: E501
        "plugin", "small", "group", "equivalence", "table_one", "report", "given",
    ])  # fmt: skip
    level = pick(rng, [0.95] * 5 + [0.5, 0.9999999, 1e-9])
    x = quoted(names[5])
    if verb == "observed":
        return audit.observed(
            level=level, interval=pick(rng, ["wilson", "clopper-pearson", "agresti-coull"])
        )
    if verb == "performance":
        return audit.performance(
            bins=pick(rng, [10, 1, 2, 500]), bin_range=pick(rng, ["unit", "group", "quantile"]),
            clip=pick(rng, [None, 1e-6, 0.4]), rule=pick(rng, [">=", ">"]), level=level,
        )  # fmt: skip
    if verb == "interaction":
        return audit.interaction(adjust=pick(rng, ["holm", None, "fdr_bh"]), level=level)
    if verb == "representation":
        return audit.representation(level=level)
    if verb == "ipw":
        return audit.counterfactual(right_side(rng, names), level=level, **replicates(rng))
    if verb == "given":
        return audit.counterfactual(
            np.full(audit.cohort().n_used, pick(rng, [0.0, 0.5, 1.0])), level=level
        )
    if verb in ("aipw", "plugin"):
        estimator = "plugin" if verb == "plugin" else None
        return audit.counterfactual(
            right_side(rng, names) if verb == "aipw" else None,
            outcome_model=right_side(rng, names), estimator=estimator, level=level,
            folds=pick(rng, [None, 2]), **replicates(rng),
        )  # fmt: skip
    if verb == "small":
        return audit.small_subgroups(
            right_side(rng, names), outcome_model=f"~ {x}", membership=f"~ {x}",
            level=level, **{**replicates(rng), "n_boot": pick(rng, [0, 4])},
        )  # fmt: skip
    if verb == "group":
        return audit.group_intervention(
            outcome_model=f"~ {x}", membership=f"~ {x}", estimator=pick(rng, ["dr", "sr"]), level=level,  # noqa: E501
            folds=pick(rng, [2, 5, 50]),
        )  # fmt: skip
    if verb == "equivalence":
        contrast = pick(rng, ["ratio", "difference", "odds_ratio"])
        margin = {"ratio": (0.8, 1.25), "difference": (-0.1, 0.1), "odds_ratio": (0.5, 2)}[contrast]
        return audit.equivalence(
            contrast=contrast, margin=margin, reference=pick(rng, [None, "overall"]),
            method=pick(rng, ["auto", "score", "wald"]), adjust=pick(rng, [None, "holm"]),
        )  # fmt: skip
    if verb == "table_one":
        return audit.table_one(
            differences=bool(rng.random() < 0.5), median=pick(rng, [(), [names[5]]])
        )
    if rng.random() < 0.3:  # a page takes a second
        with tempfile.TemporaryDirectory() as folder:
            page = audit.report(
                f"{folder}/page.html", title=pick(rng, [None, pick(rng, ODD_NAMES)])
            )
            page.read_text(encoding="utf-8")
    return audit.observed()


def try_table(seed):
    rng = np.random.default_rng([1, seed])
    data, options, names = table(rng)
    if rng.random() < 0.06:
        missing = pick(rng, ["drop", "level", "raise"])
        result = cfair.representation_of(data, options["groups"], outcome=options["outcome"],
                                         missing=missing)  # fmt: skip
    else:
        audit = cfair.Audit(data, **options)
        repr(audit)
        result = ask(rng, audit, names)
    return use(rng, result)


FORMULA_TABLE = bad_inputs.cohort(120)[["y", "d", "s", "age", "sex", "race"]].assign(
    visits=lambda t: (t["age"] % 4).astype(int)
)


def try_formula(seed):
    rng = np.random.default_rng([2, seed])
    text = formula(rng)
    audit = cfair.Audit(FORMULA_TABLE, outcome="y", score="s", cutoff=0.5, groups=["sex", "race"],
                        treatment="d")  # fmt: skip
    if rng.random() < 0.8:
        result = audit.counterfactual(text, n_boot=pick(rng, [None, None, 3]))
    else:
        result = audit.counterfactual("d ~ sex * race + s + age", outcome_model=text)
    str(result)
    return [p for p in [silent("rates", result.rates)] if p]


#: Numbers of rows from which large data take ways of their own: here these are taken at once.
LARGE = {
    "cfair.inference.label_tables": {"_FROM": 0, "_ROWS_A_GROUP": 0, "_WITHIN": 1, "_LOST": 1},
    "cfair.inference.null_sums": {"_POOLED_FROM": 0},
    "cfair.inference.permutation": {"EXACT_BELOW": 0},
    "cfair.inference.bootstrap": {"EXACT_BELOW": 0},
    "cfair.formula.design": {"_COMBINED_FROM": 7},
}


@contextmanager
def as_if_large():
    with pytest.MonkeyPatch.context() as patch:
        for module, values in LARGE.items():
            for name, value in values.items():
                patch.setattr(f"{module}.{name}", value)
        yield


def try_large(seed):
    """Replicates as large data have them, of few rows in unequal groups, some without events."""
    rng = np.random.default_rng([3, seed])
    n, k = int(rng.integers(12, 400)), int(rng.integers(1, 6))
    a = rng.choice(k, n, p=rng.dirichlet(np.full(k, pick(rng, [0.3, 3.0]))))
    x = [rng.normal(size=n), rng.integers(0, 3, n) * 1.0, np.exp(2 * rng.normal(size=n))]
    x = x[int(rng.integers(3))]
    y = (rng.random(n) < rng.uniform(0.02, 0.9)).astype(int)
    d = (rng.random(n) < np.clip(rng.uniform(0.02, 0.9) + 0.1 * x, 0, 1)).astype(int)
    for column, value in ((d, 1), (y, 0)):
        if rng.random() < 0.2:
            column[a == 0] = value
    data = pd.DataFrame({"y": y, "d": d, "s": np.clip(0.6 * rng.random(n) + 0.3 * y, 0, 1), "x": x})
    data = data.assign(a=a.astype(str), b=rng.choice(["u", "v"], n, p=[0.9, 0.1]))
    model = pick(rng, ["d ~ x", "d ~ a + x", "d ~ a*b + x + s", "d ~ a", "d ~ 1", "d ~ b"])
    options = pick(rng, [
        {}, {"outcome_model": "y ~ x"}, {"outcome_model": "y ~ a + x + s"},
        {"outcome_model": "y ~ a*b", "estimator": "plugin"}, {"outcome_model": "y ~ 1"},
    ])  # fmt: skip
    audit = cfair.Audit(data, outcome="y", score="s", cutoff=0.5, groups=["a", "b"], treatment="d")
    with as_if_large():
        result = audit.counterfactual(model, n_perm=30, n_boot=5, seed=seed, **options)
    str(result)
    if not options:  # means of 0 and 1 with positive weights
        for rates in result.null.rates.values():
            assert np.nanmin(rates, initial=0) >= 0
            assert np.nanmax(rates, initial=1) <= 1
    return [p for p in [silent("rates", result.rates), silent("gaps", result.gaps())] if p]


TRIES = {"table": try_table, "formula": try_formula, "large": try_large}


def outcome_of(kind, seed):
    """How a case ended: ("result" or "refused", ""), or what was wrong with it."""
    try:
        with warnings.catch_warnings(), limited(SECONDS):
            warnings.simplefilter("ignore")
            for category in (RuntimeWarning, FutureWarning, DeprecationWarning):
                warnings.filterwarnings("error", category=category)
            problems = TRIES[kind](seed)
    except Exception as error:
        if own(error):
            return "refused", str(error)
        where = traceback.extract_tb(error.__traceback__)
        mine = [f for f in where if f.filename.startswith(HERE)] or list(where)
        line = f"{Path(mine[-1].filename).name}:{mine[-1].lineno}"
        return f"{type(error).__name__} at {line}", str(error)[:300]
    return ("silent NaN", problems[0]) if problems else ("result", "")


#: Tables that once ended in another exception, or in a warning of numpy's.
ONCE_WRONG = [20261320, 20261322, 20261388, 20261414, 40000081, 40000159, 700598, 700685,
              9016]  # fmt: skip


@pytest.mark.parametrize("seed", ONCE_WRONG)
def test_inputs_that_once_ended_wrongly(seed):
    assert outcome_of("table", seed)[0] in ("result", "refused")


@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("kind", TRIES)
def test_every_input_ends_in_a_result_or_an_error_of_cfairs_own(kind, part):
    count = {"table": 20, "formula": 25, "large": 10}[kind]
    seeds = range(part * count, (part + 1) * count)
    ended = {seed: outcome_of(kind, seed) for seed in seeds}
    wrong = {seed: how for seed, how in ended.items() if how[0] not in ("result", "refused")}
    assert not wrong
    kinds = Counter(how for how, _ in ended.values())
    wanted = ("result",) if kind == "large" else ("result", "refused")  # large are hardly refused
    assert min(kinds[how] for how in wanted) >= count // 10


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=2000, help="inputs of each kind")
    parser.add_argument("--seed", type=int, default=0, help="number of the first")
    parser.add_argument("--kinds", nargs="*", default=list(TRIES), choices=list(TRIES))
    parser.add_argument(
        "--show", nargs=2, metavar=("KIND", "SEED"), help="one case, with traceback"
    )
    given = parser.parse_args(arguments)
    if given.show:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", category=RuntimeWarning)
            print(TRIES[given.show[0]](int(given.show[1])))
        return 0
    started, failures = time.time(), 0
    for kind in given.kinds:
        ended: Counter[str] = Counter()
        for seed in range(given.seed, given.seed + given.n):
            how, what = outcome_of(kind, seed)
            ended[how] += 1
            if how not in ("result", "refused"):
                failures += 1
                if ended[how] <= 3:
                    print(
                        f"{kind} {seed}: {how}: {what}".encode(
                            "ascii", "backslashreplace"
                        ).decode(),
                        flush=True,
                    )
        print(
            f"{kind}: {sum(ended.values()):,} inputs in {time.time() - started:.0f} s", flush=True
        )
        for how, count in ended.most_common():
            print(f"  {count:6,} {how}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
