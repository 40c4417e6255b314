"""Speed and memory of observed rates: a million rows in memory, ten million that stay in DuckDB.

    python validation/benchmark_observed.py      # a minute, and 100 MB of disk for the parquet file

Each part runs in a process of its own. Imports are not counted, the audit's declaration and every
frame are. For a ratio the same run times two rates by one attribute in pandas, row by row of the
groups, as a script would have it. The tables go to ``benchmark_observed.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import pandas as pd

import cfair

HERE = Path(__file__).parent
GROUPS = ["sex", "race", "age"]
ROLES: dict[str, Any] = {"outcome": "y", "score": "risk", "cutoff": 0.5, "groups": GROUPS}


def rows(n: int) -> pd.DataFrame:
    """A cohort with three attributes as text, 18 groups."""
    rng = np.random.default_rng(1)
    risk = rng.random(n).round(3)
    return pd.DataFrame(
        {
            "y": (rng.random(n) < risk).astype(int),
            "risk": risk,
            "sex": rng.choice(["F", "M"], n),
            "race": rng.choice(["Black", "Other", "White"], n, p=[0.2, 0.1, 0.7]),
            "age": rng.choice(["18-44", "45-64", "65+"], n),
        }
    )


def everything(data: Any) -> None:
    """Rates, margins, gaps, disparities and intervals, for the attributes and their crossing."""
    result = cfair.Audit(data, **ROLES).observed()
    _ = result.rates, result.marginals, result.overall, result.disparities
    result.gaps()


def by_hand(data: pd.DataFrame) -> None:
    """TPR and FPR by sex, and nothing else."""
    call = data["risk"] >= 0.5
    data.groupby("sex")[["y"]].apply(lambda part: call[part.index][part["y"] == 1].mean())
    data.groupby("sex")[["y"]].apply(lambda part: call[part.index][part["y"] == 0].mean())


def clock(work: Any, *arguments: Any) -> dict[str, float]:
    start = time.process_time(), time.perf_counter()
    work(*arguments)
    return {"cpu": time.process_time() - start[0], "wall": time.perf_counter() - start[1]}


def memory() -> tuple[float, float]:
    """Resident memory of this process now and at its peak, MB."""
    kept = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text("utf-8").splitlines()
    )
    return float(kept["VmRSS"].split()[0]) / 1e3, float(kept["VmHWM"].split()[0]) / 1e3


def child(part: str, path: str) -> None:
    """One measurement, as a line of JSON."""
    everything(rows(2000))  # imports
    if part == "duckdb":
        import duckdb

        everything(duckdb.from_df(rows(2000)))
        duckdb.sql("SET threads = 1")
        before = memory()[0]
        found = clock(everything, duckdb.read_parquet(path))
    else:
        data = rows(1_000_000)
        before = memory()[0]
        found = clock(everything, data)
        found["by hand"] = clock(by_hand, data)["cpu"]
        if part == "performance":
            audit = cfair.Audit(data, **ROLES)
            found = clock(lambda: audit.performance().gaps())
    print(json.dumps({**found, "before": before, "peak": memory()[1]}))


def write_parquet(path: str, n: int = 10_000_000) -> None:
    """The same law as `rows`, written by DuckDB."""
    import duckdb

    duckdb.sql(
        f"""copy (
            select (random() < risk)::int as y, risk,
                   case when random() < 0.5 then 'F' else 'M' end as sex,
                   case when u < 0.2 then 'Black' when u < 0.3 then 'Other'
                        else 'White' end as race,
                   ['18-44', '45-64', '65+'][1 + floor(random() * 3)::int] as age
            from (select round(random(), 3) as risk, random() as u from range({n}))
        ) to '{path}' (format parquet)"""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    lines = [
        "# Speed of observed rates",
        "",
        f"`python validation/benchmark_observed.py`, cfair {cfair.__version__}, numpy "
        f"{np.__version__}, Python {platform.python_version()}, {platform.machine()}, one thread.",
        "",
        "| what | rows | CPU s | wall s | peak memory, MB (before) |",
        "|---|---|---|---|---|",
    ]
    kinds = {
        "observed": ("13 rates, 3 attributes, their 18 groups: intervals, gaps", "1,000,000"),
        "performance": ("AUC and 16 more measures of the score, likewise", "1,000,000"),
        "duckdb": ("as the first, of a parquet file in DuckDB", "10,000,000"),
    }
    ratio = ""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "rows.parquet")
        write_parquet(path)
        for part, (what, n) in kinds.items():
            command = [sys.executable, str(Path(__file__).resolve()), "--child", part, path]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            lines.append(
                f"| {what} | {n} | {found['cpu']:.2f} | {found['wall']:.2f} "
                f"| {found['peak']:.0f} ({found['before']:.0f}) |"
            )
            print(lines[-1], flush=True)
            if part == "observed":
                ratio = (
                    f"Two rates by one attribute with pandas, without intervals: "
                    f"{found['by hand']:.2f} s in the same run, so that all of the first row takes "
                    f"{found['cpu'] / found['by hand']:.1f} times as long."
                )
    lines += ["", ratio]
    (HERE / "benchmark_observed.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(ratio)


if __name__ == "__main__":
    main()
