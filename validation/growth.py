"""How the cost of replicates grows with rows, groups and columns, beside R, numpy and a floor.

    python validation/growth.py           # about fifteen minutes; writes growth.md
    python validation/growth.py --quick   # a minute: small sizes, nothing is written

Each line of the first two tables is a process of its own, in which cfair, a floor, a plain numpy
loop and R in turn work on the same data under one clock, so that ratios can be compared. The floor
is what no method that looks at every row can avoid: random bytes for the labels or weights of a
replicate, and one pass over the weights. Loops, floor and R do a few replicates, and their time is
scaled up.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# First: it keeps the libraries to one thread.
from benchmark import (
    R,
    Report,
    Task,
    analyse,
    audit_of,
    bootstrap_errors,
    clock,
    formula,
    make_cohort,
    memory,
    numpy_loop,
    quietly,
    tables_of,
    timed,
)

import numpy as np  # isort: skip

import cfair

HERE = Path(__file__).parent
REPLICATES = 500
LEVELS = {4: (2, 2), 12: (3, 4), 48: (6, 8)}
#: Replicates of each kind that the slower sides do, by rows.
FEW = {5_000: (50, 20), 100_000: (5, 2), 1_000_000: (1, 1)}  # numpy, R
#: By rows and groups: seconds of the R original, and how many times faster replicates are to be,
#: with and without attributes.
GOALS = {(5_000, 4): (34.5, 200, 400), (1_000_000, 12): (4200, 500, 500)}


def floor(data, replicates: int, n_groups: int) -> None:
    """Random bytes and one pass over the weights, for each permutation and bootstrap replicate."""
    rng = np.random.default_rng(0)
    n = len(data)
    weight = 1 + rng.random(n)
    single = weight.astype(np.float32)
    table = (np.arange(256) * n_groups // 256).astype(np.uint8)
    cell = (2 * data["y"] + (data["score"] >= 0.5)).to_numpy(np.uint8) * np.uint8(n_groups)

    def random_bytes() -> np.ndarray:
        return rng.integers(0, 2**64, size=-(-n // 8), dtype=np.uint64).view(np.uint8)[:n]

    for _ in range(replicates):
        np.bincount(table[random_bytes()] + cell, weights=weight, minlength=4 * n_groups)
    for _ in range(replicates):
        np.dot(random_bytes().astype(np.float32), single)


def measured(request: dict) -> dict:
    """One line: cfair with its peak memory first, then the others."""
    n, K, p = request["rows"], request["groups"], request["covariates"]
    with_attributes, B = request["attributes"], request["replicates"]
    text = formula(p, with_attributes)
    warm = make_cohort(3000, LEVELS[K], p)
    tables_of(analyse(warm, text, n_perm=5, n_boot=5))
    data = make_cohort(n, LEVELS[K], p)
    before = memory()[0]
    runs = 5 if n <= 5_000 else 1
    found = {
        "alone": clock(lambda: analyse(data, text), runs)[0],
        "cfair": clock(lambda: analyse(data, text, n_perm=B, n_boot=B), runs)[0],
    }
    found |= {"before_mb": before, "peak_mb": memory()[1]}
    if not request["others"]:
        return found
    of_numpy, of_r = FEW[n]
    floor(data, 1, K)
    few = 10 if n > 5_000 else 100
    found["floor"] = clock(lambda: floor(data, few, K), 3)[0] * B / few
    found["numpy"] = clock(lambda: numpy_loop(data, with_attributes, of_numpy), 1)[0] * B / of_numpy
    r, _ = R.start()
    if r is not None:
        task = Task("growth", data, text)
        r.put("data", task.frame())
        models = task.models_in_r()
        once = clock(lambda: r.run(f"invisible(ipw(data, {models}))"), 1)[0]
        loops = (
            f"invisible(null_of(data, ipw, {models}, permuted(data, {of_r}))); "
            f"invisible(boot_of(data, ipw, {models}, resampled(data, {of_r})))"
        )
        found["r"] = once + clock(lambda: [r.run(c) for c in loops.split("; ")], 1)[0] * B / of_r
    return found


def ask(**request) -> dict:
    """Measure in a fresh process."""
    request = {"covariates": 4, "attributes": True, "replicates": REPLICATES, "others": True} | (
        request
    )
    own = [sys.executable, str(Path(__file__).resolve()), "--child", json.dumps(request)]
    done = subprocess.run(own, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def beside(out: Report, sizes: tuple[int, ...]) -> None:
    """The grid of rows and groups."""
    out.say(
        f"## Beside R, numpy and the floor: {REPLICATES} permutations and {REPLICATES} bootstrap "
        "replicates, 4 covariates",
        "",
        "| rows | groups | attributes in the propensity | cfair, CPU s | of it replicates | floor "
        "| numpy loop | R | replicates / floor | numpy / cfair | R / cfair "
        "| replicates beside the R package "
        "| peak MB (data and packages) |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    )
    for n in sizes:
        for K in LEVELS:
            for attributes in (True, False):
                if not attributes and K != 12 and n != 5_000:
                    continue
                f = ask(rows=n, groups=K, attributes=attributes)
                own = f["cfair"] - f["alone"]
                in_r, verdict = f.get("r", np.nan), ""
                if (n, K) in GOALS:
                    original, *goals = GOALS[n, K]
                    goal, reached = goals[not attributes], original / own
                    met = "met" if reached >= goal else "MISSED"
                    verdict = f"{reached:.0f} times its {original} s, goal {goal} {met}"
                out.say(
                    f"| {n:,} | {K} | {'yes' if attributes else 'no'} | {f['cfair']:.3g} "
                    f"| {own:.3g} | {f['floor']:.3g} | {f['numpy']:.3g} | {in_r:.4g} "
                    f"| {own / f['floor']:.1f} | {f['numpy'] / f['cfair']:.0f} "
                    f"| {in_r / f['cfair']:.0f} | {verdict} "
                    f"| {f['peak_mb']:.0f} ({f['before_mb']:.0f}) |"
                )
    out.say(
        "",
        "cfair: the whole call, with the fit, its influence functions, Wald statistics in every "
        "permutation, and replicates. Floor: random bytes for the rows of each replicate and one "
        "pass over their weights. numpy: a full refit in each replicate. R: `glm` in each "
        "replicate. Each does the same 500 + 500; floor, numpy and R are scaled up from a few. "
        "Seconds of the R package are those recorded on another machine.",
        "",
    )


def exponent(x: list[float], seconds: list[float]) -> float:
    """Slope on log scales."""
    return float(np.polyfit(np.log(x), np.log(seconds), 1)[0])


def growth(out: Report, n: int, sizes: tuple[int, ...]) -> None:
    """One thing at a time, about one size."""
    base = {"rows": n, "groups": 12, "covariates": 4, "replicates": REPLICATES}
    ranges = {
        "rows": list(sizes),
        "groups": list(LEVELS),
        "covariates": [4, 10, 20],
        "replicates": [250, 500, 1000],
    }
    out.say(
        f"## How it grows, from {n:,} rows, 12 groups, 4 covariates, {REPLICATES} + {REPLICATES}",
        "",
        "| with | values | cfair, CPU s | exponent | peak MB above the data |",
        "|---|---|---|---|---|",
    )
    for name, values in ranges.items():
        found = [ask(**(base | {name: v}), others=False) for v in values]
        seconds = [f["cfair"] for f in found]
        above = ", ".join(f"{f['peak_mb'] - f['before_mb']:.0f}" for f in found)
        out.say(
            f"| {name} | {', '.join(f'{v:,}' for v in values)} "
            f"| {', '.join(f'{s:.3g}' for s in seconds)} | {exponent(values, seconds):.2f} "
            f"| {above} |"
        )
    out.say("", "An exponent of 1 is linear cost.", "")


def whole_audit(out: Report, n: int) -> None:
    """Observed and counterfactual rates, 500 permutations and the report."""
    request = json.dumps({"whole": n})
    own = [sys.executable, str(Path(__file__).resolve()), "--child", request]
    done = subprocess.run(own, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    parts = ", ".join(f"{k} {v:.1f}" for k, v in found["parts"].items())
    out.say(
        f"## A whole audit of {n:,} rows and 40 groups",
        "",
        f"{found['cpu']:.1f} CPU s ({found['wall']:.1f} s by the wall; goal 20), peak "
        f"{found['peak_mb']:.0f} MB: {parts}; the page has {found['kb']:.0f} kB. Observed and "
        f"counterfactual rates with intervals, contrasts, tests and {REPLICATES} permutations.",
        "",
    )


def whole_child(n: int) -> dict:
    """The audit in this process."""
    data = make_cohort(n, (5, 8), 6)
    tables_of(analyse(make_cohort(3000, (2, 2), 6), formula(6, True), n_perm=5))
    parts, start, wall = {}, time.process_time(), time.perf_counter()

    def lap(name: str) -> None:
        parts[name] = time.process_time() - start - sum(parts.values())

    with quietly(), tempfile.TemporaryDirectory() as folder:
        audit = audit_of(data)
        observed = audit.observed()
        lap("observed rates")
        result = audit.counterfactual(formula(6, True), n_perm=REPLICATES)
        lap("counterfactual rates")
        page = audit.report(Path(folder) / "report.html", observed, result)
        lap("report")
        size = page.stat().st_size / 1000
    return {
        "cpu": time.process_time() - start,
        "wall": time.perf_counter() - wall,
        "peak_mb": memory()[1],
        "parts": parts,
        "kb": size,
    }


VERBS = "d ~ a1 * a2 + score + x1 + x2 + x3 + x4", "y ~ a1 * a2 + score + x1 + x2 + x3 + x4"


def verbs(audit: cfair.Audit) -> dict[str, Callable[[], object]]:
    """What an audit can be asked."""
    d, y = VERBS
    replicates = {"n_perm": REPLICATES, "n_boot": REPLICATES}
    members = "~ x1 + x2 + x3 + x4"
    return {
        "representation": audit.representation,
        "table_one": audit.table_one,
        "observed": audit.observed,
        "performance": audit.performance,
        "interaction": audit.interaction,
        "equivalence": lambda: audit.observed().equivalence(),
        "counterfactual": lambda: audit.counterfactual(d),
        "the same, 500 + 500": lambda: audit.counterfactual(d, **replicates),
        "doubly robust": lambda: audit.counterfactual(d, outcome_model=y, estimator="aipw"),
        "the same, 500 + 500 ": lambda: audit.counterfactual(
            d, outcome_model=y, estimator="aipw", **replicates
        ),
        "group_intervention": lambda: audit.group_intervention(outcome_model=y, membership=members),
        "small_subgroups, 40 bootstrap replicates": lambda: audit.small_subgroups(
            d, outcome_model=f"y {members}", membership=members, n_boot=40
        ),
    }


def every_verb(out: Report, sizes: tuple[int, ...]) -> None:
    """Seconds of each analysis, and of its print, which has the tests and intervals."""
    seconds: dict[str, list[str]] = {}
    for n in sizes:
        audit = audit_of(make_cohort(n, LEVELS[12], 4))
        with quietly():
            str(audit.observed())  # imports and caches
            for name, verb in verbs(audit).items():
                result, computed = timed(verb)
                _, printed = timed(lambda result=result: str(result))
                seconds.setdefault(name, []).append(f"{computed:.2f} | {printed:.2f}")
    heads = " | ".join(f"{n:,} rows | its print" for n in sizes)
    out.say(
        "## Every analysis, 12 groups, 4 covariates, CPU s",
        "",
        f"| analysis | {heads} |",
        f"|---|{'---|' * (2 * len(sizes))}",
        *(f"| {name.strip()} | {' | '.join(found)} |" for name, found in seconds.items()),
        "",
    )


def errors(out: Report, n: int) -> None:
    """Replicates of the one-pass bootstrap against full refits, in large data."""
    out.say(
        f"## Error of a bootstrap replicate against a full refit, {n:,} rows",
        "",
        "| propensity | mean, in sd of the replicates | largest | sd over multinomial counts' |",
        "|---|---|---|---|",
    )
    data = make_cohort(n, (3, 4), 4)
    for attributes in (True, False):
        mean, largest, ratio = bootstrap_errors(data, formula(4, attributes), 100)
        what = "with attributes" if attributes else "without"
        out.say(f"| {what} | {mean:.5f} | {largest:.4f} | {ratio:.3f} |")
    out.say("")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing is written")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        request = json.loads(given.child)
        print(
            json.dumps(whole_child(request["whole"]) if "whole" in request else measured(request))
        )
        return
    out, start = Report(), os.getloadavg()[0]
    sizes = (5_000,) if given.quick else tuple(FEW)
    beside(out, sizes)
    growth(out, *((5_000, (2_000, 5_000, 10_000)) if given.quick else (100_000, tuple(FEW))))
    whole_audit(out, 10_000 if given.quick else 215_000)
    errors(out, 5_000 if given.quick else 100_000)
    every_verb(out, (2_000,) if given.quick else (5_000, 200_000))
    if given.quick:
        return
    about = (
        "`python validation/growth.py`, one thread, CPU seconds. Load average "
        f"{start:.1f} at the start and {os.getloadavg()[0]:.1f} at the end, {os.cpu_count()} cores."
    )
    text = "\n".join(["# How the cost grows", "", about, "", *out])
    (HERE / "growth.md").write_text(text.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
