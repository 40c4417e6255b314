"""How often the flag "superadditive" fires, and the test of the interaction contrast rejects.

In four cells of equal size with marginal gaps of one sign, |both - neither| equals the sum of the
two gaps by algebra. A plain comparison of floating-point numbers, as in the recorded simulation,
then goes by rounding errors; cfair's flag counts a difference within 1e-12 as a tie.

Run by hand; writes interaction.md beside itself.

    python validation/interaction.py --datasets 100000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cfair.inference.intervals import NORMAL, mover_difference, wilson_interval
from cfair.metrics.superadditivity import (
    CONTRAST,
    interaction_contrast,
    interaction_interval,
    superadditive,
)

HERE = Path(__file__).parent
RECORDED = HERE / "recorded" / "data" / "peers" / "superadditive_flag_sim_RANDOM.json"


@dataclass(frozen=True)
class Design:
    """Sizes and rates of the cells both, a only, b only, neither."""

    name: str
    sizes: tuple[int, int, int, int]
    rates: tuple[float, float, float, float]
    recorded: str = ""

    @property
    def contrast(self) -> float:
        return float(np.array(self.rates) @ CONTRAST)

    @property
    def null(self) -> bool:
        return abs(self.contrast) < 1e-12


EVEN, UNEVEN, LARGE = (150, 150, 150, 150), (12, 280, 48, 260), (235, 1918, 453, 3907)
NONE, ADDITIVE, OPPOSITE = (0.3,) * 4, (0.4, 0.3, 0.3, 0.2), (0.5, 0.4, 0.2, 0.3)
#: Designs whose share of flags was recorded from another program.
DESIGNS = (
    Design("no gaps", EVEN, NONE, "no gaps at all, balanced 4x150, rate .3"),
    Design("no gaps", UNEVEN, NONE, "no gaps at all, 12/280/48/260, rate .3"),
    Design("additive, .1 each", EVEN, ADDITIVE,
           "additive effects of .1 each, no interaction, balanced 4x150"),
    Design("additive, .1 each", UNEVEN, ADDITIVE,
           "additive effects of .1 each, no interaction, 12/280/48/260"),
    Design("opposite, interaction .2", EVEN, OPPOSITE,
           "opposite effects (+.1, -.1), true interaction +.2, balanced 4x150"),
)  # fmt: skip
#: Further ones: sizes of a published audit (its rates were not recorded), and small cells.
MORE = (
    Design("additive, -.17 and -.02", LARGE, (0.21, 0.23, 0.38, 0.4)),
    Design("no gaps, rate .1", UNEVEN, (0.1,) * 4),
    Design("no gaps, rate .05", UNEVEN, (0.05,) * 4),
    Design("interaction .1", UNEVEN, (0.6, 0.4, 0.4, 0.3)),
    Design("no gaps, rate .2", (5, 50, 30, 60), (0.2,) * 4),
    Design("no gaps, rate .1", (10,) * 4, (0.1,) * 4),
    Design("no gaps, rate .5", (10,) * 4, (0.5,) * 4),
    Design("no gaps, rate .05", (30,) * 4, (0.05,) * 4),
    Design("no gaps, rate .3", (3, 50, 50, 50), (0.3,) * 4),
)
#: Two cells: rows and rate of both, rows and rate of neither, name in the recorded file.
PAIRS = (
    (12, 0.10, 260, 0.3, "n 12 p .10 vs n 260 p .30"),
    (12, 0.30, 260, 0.3, "n 12 p .30 vs n 260 p .30"),
    (30, 0.05, 260, 0.3, "n 30 p .05 vs n 260 p .30"),
    (100, 0.30, 260, 0.3, "n 100 p .30 vs n 260 p .30"),
)


def simulate(design: Design, *, datasets: int, seed: int, wald: bool = True) -> dict[str, float]:
    """Shares of data sets in which the flag fires, the contrast is told from 0, and is covered."""
    name = f"{design.name} {design.sizes} {design.rates}"
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    n = np.array(design.sizes, dtype=float)
    events = rng.binomial(design.sizes, design.rates, size=(datasets, 4)).astype(float)
    rates = events / n
    table, sizes = events.reshape(-1, 2, 2), n.reshape(2, 2)
    gap_a = np.diff(table.sum(axis=2) / sizes.sum(axis=1), axis=1)[:, 0]
    gap_b = np.diff(table.sum(axis=1) / sizes.sum(axis=0), axis=1)[:, 0]
    gap = rates[:, 0] - rates[:, 3]
    flag = superadditive(gap, gap_a, gap_b)
    low, high = interaction_interval(rates, n)
    told = (low > 0) | (high < 0)
    found = {
        "flag": float(flag.mean()),
        "by rounding": float((np.abs(gap) > np.abs(gap_a) + np.abs(gap_b)).mean()),
        "rejects": float(told.mean()),
        "both": float((flag & told).mean()),
        "coverage": float(((low <= design.contrast) & (design.contrast <= high)).mean()),
        "width": float((high - low).mean()),
    }
    if wald:
        se = np.sqrt((rates * (1 - rates) / n).sum(axis=1))
        off = np.abs(interaction_contrast(rates) - design.contrast)
        found["wald"] = float((off <= 1.959964 * se).mean())
    return found


def gap_coverage(
    pair: tuple[int, float, int, float, str], datasets: int, seed: int
) -> dict[str, float]:
    """Coverage of Newcombe's interval for both - neither, and of a percentile bootstrap."""
    n, p, m, q, name = pair
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    a, b = rng.binomial(n, p, datasets) / n, rng.binomial(m, q, datasets) / m
    limits_a = wilson_interval(a, np.full(datasets, float(n)), max_df=NORMAL)
    limits_b = wilson_interval(b, np.full(datasets, float(m)), max_df=NORMAL)
    low, high = mover_difference(a, *limits_a, b, *limits_b)
    few = min(datasets, 4000)
    draws = rng.binomial(n, a[:few, None], (few, 1000)) / n
    draws = draws - rng.binomial(m, b[:few, None], (few, 1000)) / m
    boot_low, boot_high = np.quantile(draws, [0.025, 0.975], axis=1)
    return {
        "newcombe": float(((low <= p - q) & (p - q <= high)).mean()),
        "percentile": float(((boot_low <= p - q) & (p - q <= boot_high)).mean()),
    }


def report(datasets: int, seed: int) -> str:
    """The tables as Markdown."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    lines = [
        "# The flag and the contrast",
        "",
        f"{datasets:,} data sets a row, seed {seed}; `python validation/interaction.py --datasets "
        f"{datasets} --seed {seed}`. Cells in the order both, a only, b only, neither. The flag is "
        "|both - neither| > |gap of a| + |gap of b|; the test is that of the contrast r11 - r10 - "
        "r01 + r00, whose 95% interval is MOVER's from Wilson limits.",
        "",
        "In four cells of equal size with gaps of one sign the two sides of the flag are equal by "
        "algebra, so that a plain comparison goes by rounding errors: that is all of the 14% and "
        "35% recorded for them. cfair counts a difference within 1e-12 as a tie, which does not "
        "fire.",
        "",
        "## Designs whose share of flags was recorded",
        "",
        "| design | cells | contrast | flag fires | compared plainly | recorded | test rejects | "
        "flag and test |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for d in (*DESIGNS, MORE[0]):
        f = simulate(d, datasets=datasets, seed=seed)
        lines.append(
            f"| {d.name} | {'/'.join(map(str, d.sizes))} | {abs(d.contrast):.1f} | "
            f"{f['flag']:.1%} | {f['by rounding']:.1%} | "
            f"{f'{recorded[d.recorded]:.1%}' if d.recorded else ''} | {f['rejects']:.1%} | "
            f"{f['both']:.1%} |"
        )
    lines += [
        "",
        "Where the contrast is 0, the test should reject in 5%.",
        "",
        "## Coverage of the interval of the contrast, nominal 95%",
        "",
        "| design | cells | rates | MOVER | mean width | Wald |",
        "|---|---|---|---|---|---|",
    ]
    for d in (*DESIGNS, *MORE):
        f = simulate(d, datasets=datasets, seed=seed)
        lines.append(
            f"| {d.name} | {'/'.join(map(str, d.sizes))} | {'/'.join(f'{r:g}' for r in d.rates)} | "
            f"{f['coverage']:.3f} | {f['width']:.2f} | {f['wald']:.3f} |"
        )
    lines += [
        "",
        "## Coverage for the gap of both to neither, nominal 95%",
        "",
        "| cells | Newcombe (cfair) | percentile bootstrap | recorded of the latter |",
        "|---|---|---|---|",
    ]
    for pair in PAIRS:
        f = gap_coverage(pair, datasets, seed)
        theirs = recorded["percentile_bootstrap_95_coverage"][pair[4]]["coverage"]
        lines.append(f"| {pair[4]} | {f['newcombe']:.3f} | {f['percentile']:.3f} | {theirs:.3f} |")
    lines += ["", "The bootstrap is done on the first 4,000 data sets, 1,000 resamples each.", ""]
    return "\n".join(lines)


def main() -> None:
    """Simulate, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    text = report(arguments.datasets, arguments.seed)
    (HERE / "interaction.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
