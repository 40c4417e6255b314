# %% [markdown]
# # Can these figures be trusted?
#
# Before a figure goes into a paper, somebody will ask how it was checked. This page answers for cfair:
# against the R package faircfint, against published figures, against cohorts whose true rates are
# known, and by the clock. All tables are those of the folder `validation/`, which can be run again.

# %% [markdown]
# ## Four questions
#
# 1. Does it compute what the paper [@wastvedt2023] and the R package compute? Compared with recorded
#    runs of R, and live where R is installed.
# 2. Does it compute what others have printed? Designs with published truth [@coston2020], published
#    counts.
# 3. Do intervals cover, and do tests keep their level? Simulated cohorts with known rates.
# 4. How long does it take? Beside R, in one process.

# %% tags=["fold"]
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

folder = Path("../validation")
pd.options.display.float_format = "{:.3f}".format
pd.options.display.max_colwidth = None


def tables(file: str) -> list[pd.DataFrame]:
    """The tables of a markdown file."""
    text = (folder / file).read_text(encoding="utf-8")
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        rows = [
            [
                re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", cell).strip()
                for cell in line.split("|")[1:-1]
            ]
            for line in block.strip().splitlines()
        ]
        found.append(pd.DataFrame(rows[2:], columns=rows[0]))
    return found


def with_columns(file: str, *columns: str) -> pd.DataFrame:
    """The table of a file that has these columns."""
    return next(table for table in tables(file) if set(columns) <= set(table.columns))


# %% [markdown]
# ## The comparison with R
#
# The R package was run once on simulated data, and its results were recorded with 17 digits:
# estimates, replicates with the rows that were drawn, folds, membership models, and what it does with
# odd input. Each line: what is compared, the largest difference found, and how much is allowed.

# %% tags=["fold", "text"]
compared = with_columns("README.md", "part", "against", "allowed")
against_r = compared["against"].str.contains("faircfint|the same|glm|multinom|R code|plain R")
r = compared[against_r & (compared["allowed"] != "")]
r.set_index("part").rename(columns={"largest difference found": "found"})

# %% [markdown]
# Where a difference is larger than rounding, R stops early: `glm` at a relative change of 1e-8,
# `multinom` a little before the maximum. Run to the maximum, R agrees to 1e-9, in replicates
# to 2e-8.
#
# ## Published figures
#
# Nothing that agrees with R can show that R is right. Two designs have rates known exactly, by the
# way they are drawn or by quadrature; each was analysed with right and with wrong models on 200,000
# rows. The distance from the truth, in standard deviations:

# %% tags=["fold", "text"]
published = compared[compared["part"].str.contains("published")]
published.set_index("part").rename(columns={"largest difference found": "found"})

# %% [markdown]
# ## Do intervals cover?
#
# Eight designs with known rates: unequal and equal groups, low rates, six groups of which the smallest
# has 4% of the rows, treatment that depends on the group. 400 cohorts each of 1,000 and of 5,000 rows; a
# coverage from 400 cohorts has a standard error of 1.1 points.

# %% alt="Dot plot of the coverage of nominal 95% intervals in eight designs at two sample sizes, for cFPR and cFNR: rates 93.9 to 96 percent, differences 94 to 96 percent, average and maximum disparity 94.5 to 100 percent. All lie at or above the goal lines." tags=["fold"]
coverage = pd.read_csv(folder / "coverage.csv")
quantities = {
    "rate, mean": "rates",
    "difference, mean": "differences",
    "average": "average disparity",
    "maximum": "maximum disparity",
}
figure, axes = plt.subplots(1, 4, figsize=(9, 3.4), sharey=True, layout="constrained")
designs = list(dict.fromkeys(coverage["design"]))
for ax, (quantity, title) in zip(axes, quantities.items(), strict=True):
    part = coverage[coverage["quantity"] == quantity]
    for metric, offset, colour in (("cfpr", -0.12, "#0072b2"), ("cfnr", 0.12, "#d55e00")):
        for n, mark, face in ((1000, "o", "white"), (5000, "o", colour)):
            shown = part[(part["metric"] == metric) & (part["n"] == n)]
            y = [designs.index(design) + offset for design in shown["design"]]
            label = f"{metric[0]}{metric[1:].upper()}, n = {n:,}"
            ax.plot(100 * shown["value"], y, mark, color=colour, mfc=face, ms=5, label=label)
    ax.axvline(95, color="black", lw=0.8)
    ax.axvline(93, color="black", lw=0.8, ls=":")
    ax.set_xlim(91, 101)
    ax.set_title(title, fontsize=10, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", lw=0.4)
axes[0].set_yticks(range(len(designs)), designs)
axes[0].invert_yaxis()
figure.supxlabel("coverage, % (solid line: nominal 95, dotted: least wanted 93)", fontsize=9)
marks = axes[0].get_legend_handles_labels()
legend = figure.legend(*marks, loc="outside upper center", ncols=4, frameon=False, fontsize=9)

# %% [markdown]
# Rates and differences are at 95%. Intervals of the average and maximum disparity cover more than they
# promise: absolute differences pile up at 0 when groups are alike, and the interval reaches 0 whenever a
# test does not reject. The worst single cases, and the size of the tests of equal rates at 5%:

# %% tags=["fold"]
worst = coverage[coverage["quantity"].isin(["rate, lowest", "difference, lowest"])]
lowest = worst.groupby(["quantity", "n"])["value"].min()
sizes = coverage[coverage["quantity"].isin(["logit Wald, size", "max-t, size"])]
level = sizes.groupby(["quantity", "n"])["value"].agg(["min", "max"])
level = level.rename(columns={"min": "least", "max": "most"})
pd.concat([lowest.rename("lowest"), level], axis=1).map(
    lambda share: "" if pd.isna(share) else f"{share:.1%}"
)

# %% [markdown]
# There are 144 single rates. The lowest coverage, 91.5%, is 3.2 standard errors below 95%; chance alone
# would give about 2.6 for the lowest of so many.
#
# ## Right and wrong models
#
# 800 cohorts of 5,000 rows. Weighting needs the right propensity; the doubly robust estimator needs one
# right model of the two; with neither, no estimator helps.

# %% tags=["fold"]
corners = with_columns("four_corners.md", "estimator", "outcome model")
corners.drop(columns=["sd", "se / sd"]).set_index(["estimator", "propensity", "outcome model"])

# %% [markdown]
# ## How fast
#
# CPU seconds on one thread, of one run: compare ratios. R fits every replicate
# anew with `glm` and `nnet::multinom` from the same labels and rows; the time of cfair includes its
# tables, intervals and tests.

# %% tags=["fold"]
speed = with_columns("benchmark.md", "analysis", "R / cfair")
speed.iloc[:, :6].set_index("analysis")

# %% [markdown]
# From 5,000 rows on cfair refits the propensity in a replicate by one Newton step, which moves the
# replicate by about a hundredth of its standard deviation; `exact=True` refits in full. A million rows
# in twelve groups:

# %% tags=["fold"]
million = with_columns("benchmark.md", "what", "design columns")
million.set_index(["what", "propensity"])

# %% [markdown]
# Goals that are missed say so.
#
# ## Where cfair is not faircfint
#
# On purpose. Each line is a function of a few lines in `validation/differences.py`. `compat=True` is
# `cfair.faircfint` as it ports scripts: R's figure, or a refusal that says why.

# %% tags=["fold", "text"]
different = with_columns("README.md", "in R", "in cfair", "figure")
different.drop(columns="function").set_index("what")

# %% [markdown]
# What to do about it is in [the vignette for users of faircfint](from_faircfint.html).
#
# ## Run it yourself
#
# ```bash
# pip install -e ".[validation]"        # and R on the PATH
# python -m pytest validation           # some minutes
# python -m pytest validation -m "not r"  # without R
# ```
#
# Without R the recorded, published and simulated comparisons run all the same. What was skipped is
# listed at the end, with the reason.
#
# ## How to report it
#
# > Analyses used cfair, an independent Python implementation of the weighting estimator of Wastvedt et
# > al. [-@wastvedt2023] and of the estimators for small subgroups of Wastvedt et al. [-@wastvedt2024]. Its
# > point estimates agree with those of the R package faircfint 0.0.0.9000 to 12 decimals (small subgroups:
# > 5 decimals, where R's multinomial fit stops early). In simulations of eight designs with 1,000 and
# > 5,000 rows (400 cohorts each), its nominal 95% intervals covered counterfactual error rates in 94 to
# > 96% of cohorts on average, and differences between groups in 94 to 96%; tests of equal rates at the 5%
# > level rejected in 4 to 8% of cohorts without differences.
