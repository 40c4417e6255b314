"""Counterfactual rates of a parquet file larger than memory: seconds, peak memory, and the truth.

    python validation/large.py                    # 20,000,000 rows; some minutes, large.md
    python validation/large.py --rows 1000000     # nothing is written

The file is simulated in pieces from the design "clinical", whose true rates are known, in a
temporary folder. A process of its own then reads it by batches, so that its peak memory is that of
the analysis alone (on Linux a process starts with the peak of the one that started it, which is
why the writing has a process of its own as well).
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
FORMULA = "treated ~ sex * race + risk + age + sbp"
PIECE = 500_000
WRITTEN = 20_000_000


def write(path, n, seed):
    """Simulate the table a piece at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import cfair

    writer, left = None, n
    for own in np.random.SeedSequence(seed).spawn(-(-n // PIECE)):
        frame = cfair.simulate_cohort(min(PIECE, left), seed=own)
        hidden = [c for c in frame if c.endswith(("_untreated", "_treated"))]
        piece = pa.Table.from_pandas(frame.drop(columns=hidden), preserve_index=False)
        writer = writer or pq.ParquetWriter(path, piece.schema)
        writer.write_table(piece)
        left -= len(frame)
    writer.close()


def analyse(path, batch_rows):
    """What the process that is measured does: one line of JSON."""
    import cfair

    _ = cfair.counterfactual_by_batches  # which imports what it needs
    imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu = time.perf_counter(), time.process_time()
    result = cfair.counterfactual_by_batches(
        path,
        FORMULA,
        outcome="readmitted",
        score="risk",
        cutoff=0.5,
        groups=["sex", "race"],
        batch_rows=batch_rows,
    )
    text = str(result)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rates = result.rates[result.rates["metric"].isin(["cfpr", "cfnr"])]
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu": cpu,
                "imported": imported / 2**10,
                "peak": peak / 2**10,
                "text": text,
                "rates": rates[["metric", "group", "n", "estimate", "se"]].to_dict("list"),
            }
        )
    )


def report(found, n, size, batch_rows):
    """The result as a page."""
    import pandas as pd

    import cfair

    rates, truth = pd.DataFrame(found["rates"]), cfair.true_rates("clinical")
    names = [f"{sex} & {race}" for sex, race in zip(truth["sex"], truth["race"], strict=True)]
    lines = [
        "# A table larger than memory",
        "",
        f"`python validation/large.py --rows {n}`: counterfactual rates of a parquet file by",
        f'batches of {batch_rows:,} rows, design "clinical", `{FORMULA}`.',
        f"Python {platform.python_version()}, one thread, on a machine that others used as well.",
        "",
        "| rows | file, MB | seconds | CPU seconds | peak memory, MB | of it by imports, MB |",
        "|---|---|---|---|---|---|",
        f"| {n:,} | {size / 2**20:,.0f} | {found['seconds']:,.0f} | {found['cpu']:,.0f} "
        f"| {found['peak']:,.0f} | {found['imported']:,.0f} |",
        "",
        "| group | rows | cFPR | true | z | cFNR | true | z |",
        "|---|---|---|---|---|---|---|---|",
    ]
    z_all = []
    for name, true in zip(names, truth.to_dict("records"), strict=True):
        cells = []
        for metric in ("cfpr", "cfnr"):
            row = rates[(rates["metric"] == metric) & (rates["group"] == name)].iloc[0]
            z_all.append((row["estimate"] - true[metric]) / row["se"])
            cells += [f"{row['estimate']:.5f}", f"{true[metric]:.2f}", f"{z_all[-1]:+.1f}"]
        lines.append(f"| {name} | {row['n']:,.0f} | {' | '.join(cells)} |")
    worst = max(map(abs, z_all))
    lines += ["", "z is the difference from the truth in standard errors."]
    return "\n".join(lines) + "\n", worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=WRITTEN)
    parser.add_argument("--batch-rows", type=int, default=250_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--analyse", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(options.write, options.rows, options.seed)
        return
    if options.analyse:
        analyse(options.analyse, options.batch_rows)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "visits.parquet"
        start = time.perf_counter()
        command = [sys.executable, __file__, "--rows", str(options.rows)]
        command += ["--seed", str(options.seed), "--batch-rows", str(options.batch_rows)]
        subprocess.run([*command, "--write", str(path)], check=True)
        size = path.stat().st_size
        print(
            f"written in {time.perf_counter() - start:,.0f} s, {size / 2**20:,.0f} MB", flush=True
        )
        command += ["--analyse", str(path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    page, worst = report(found, options.rows, size, options.batch_rows)
    print(found["text"], page, sep="\n")
    if options.rows == WRITTEN:
        (HERE / "large.md").write_text(page, encoding="utf-8")
    if worst > 4:
        sys.exit(f"a rate is {worst:.1f} standard errors from the truth")


if __name__ == "__main__":
    main()
