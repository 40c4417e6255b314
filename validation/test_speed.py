"""A small version of `benchmark.py`: cfair and R do the same work and get the same numbers.

Each side is given the same permuted labels and the same rows, and fits to the maximum of the
likelihood. The ratio of CPU seconds is printed, and not judged: a busy machine would decide.
"""

from __future__ import annotations

import numpy as np
import pytest

from validation import benchmark
from validation.ledger import compare, quiet

pytestmark = pytest.mark.r
SECTION, FIT, MULTINOM = "speed: the same numbers", 1e-9, 1e-6
N, REPLICATES = 800, 6
TASKS = {
    "IPW, attributes": lambda: benchmark.standard_task(N, 4, True),
    "IPW, no attributes": lambda: benchmark.standard_task(N, 4, False),
    "AIPW": lambda: benchmark.standard_task(N, 4, True, aipw=True),
    "small subgroups": lambda: benchmark.small_task(N, reltol=1e-14, abstol=0, maxit=1000),
}


@pytest.fixture
def loops(r):
    """R with the loops, its `glm` run to the maximum; skips as the fixture `r` does."""
    found = benchmark.R()
    found.run("glm <- function(...) stats::glm(..., control = glm.control(1e-15, 100))")
    return found


@pytest.mark.parametrize("name", TASKS)
def test_both_sides_give_the_same_numbers(loops, name, capsys):
    if name == "small subgroups" and not loops.has("nnet"):
        pytest.skip("the R package nnet is not installed: install.packages('nnet')")
    task = TASKS[name]()
    rng = np.random.default_rng(5)
    perm = rng.permuted(np.tile(np.arange(N), (REPLICATES, 1)), axis=1)
    rows = within_groups(task, rng)
    in_r, of_r = benchmark.timed(lambda: loops.replicates(task, perm, rows))
    with quiet():
        task.in_cfair(None, None, permutations=perm[:1], resamples=rows[:1])  # imports
        result, of_cfair = benchmark.timed(
            lambda: task.in_cfair(None, None, permutations=perm, resamples=rows, exact=True)
        )
    rates = result.rates.set_index("metric")["estimate"]
    tolerance = MULTINOM if task.membership else FIT
    estimate = np.concatenate([rates["cfpr"], rates["cfnr"]])
    compare(SECTION, estimate, in_r[0], tolerance, f"{name}, estimate")
    for draws, expected in zip((result.null_draws, result.boot_draws), in_r[1:], strict=True):
        names = list(result.rates.loc[result.rates["metric"] == "cfpr", "group"])
        found = np.hstack([draws[metric][names] for metric in ("cfpr", "cfnr")])
        compare(SECTION, found, expected, tolerance, name)
    with capsys.disabled():
        print(
            f"\n{name}, {N} rows, {REPLICATES} + {REPLICATES} replicates: R {of_r:.2f} s, "
            f"cfair {of_cfair:.2f} s of CPU, {of_r / of_cfair:.1f} times as fast"
        )


def within_groups(task: benchmark.Task, rng: np.random.Generator) -> np.ndarray:
    """Rows of bootstrap replicates: as many of each group, with replacement."""
    members = list(task.data.groupby(["a1", "a2"], observed=True).indices.values())
    return np.array(
        [np.concatenate([rng.choice(m, len(m)) for m in members]) for _ in range(REPLICATES)]
    )
