# %% [markdown]
# # Single axes and their intersection
#
# A sepsis alert misses as many cases among women as among men, and as many among patients who speak
# another language as among those who speak English. Is it then as safe for women who speak another
# language? Tables by one attribute cannot say. This page shows what can: the rates of the
# intersections, the contrast that says whether two effects add up, and what noise alone would do.

# %% [markdown]
# ## The question
#
# A hospital runs an alert for sepsis. A nurse is called if the risk is 0.5 or more. The safety
# board has two tables, by sex and by language, and both look even. It asks whether anything is left
# to check. The warning is an old one: a remedy that looks at one axis at a time does not see those
# who stand at the crossing of two [@crenshaw1989]. It was shown for a commercial classifier of faces
# [@buolamwini2018] and is stated for risk prediction in [@wastvedt2023].
#
# We simulate the hospital, so that the truth is known. In this cohort no treatment stands between
# alert and outcome; where one does, the same questions are put to the rates had nobody been treated
# (`Audit.counterfactual`).

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import cfair
from cfair.datasets import Design

design = Design(
    name="sepsis alert",
    attributes={"sex": ("F", "M"), "language": ("English", "other")},
    shares=(0.35, 0.15, 0.35, 0.15),
    prevalence=(0.15,) * 4,
    cfpr=(0.12,) * 4,  # false alarms: the same everywhere
    cfnr=(0.20, 0.45, 0.35, 0.10),  # missed cases: not the same
    covariates=(),
    treatment_intercept=(-20.0,) * 4,  # nobody is treated
    outcome="sepsis",
    score="risk",
    flag=None,
)
cfair.true_rates(design)

# %% [markdown]
# The missed share (FNR) of the four groups was chosen so that both margins are 0.275. Write
# $r_{gh}$ for the FNR of sex $g$ and language $h$, and $w$ for the share of cases who speak another
# language, the same in both sexes. The margins are equal if
#
# $$(1 - w)\, r_{F0} + w\, r_{F1} = (1 - w)\, r_{M0} + w\, r_{M1}
# \qquad\text{and}\qquad r_{F0} + r_{M0} = r_{F1} + r_{M1}.$$
#
# Two equations in four rates leave two of them free. So equal margins say little about the cells:
# here the four rates run from 0.10 to 0.45.

# %% [markdown]
# ## What the single axes show

# %%
cohort = cfair.simulate_cohort(8_000, seed=2, design=design)
data = cohort[["sepsis", "risk", "sex", "language"]]
audit = cfair.Audit(data, outcome="sepsis", score="risk", cutoff=0.5, groups=["sex", "language"])
observed = audit.observed()

gaps = observed.gaps(["fnr", "fpr"])
columns = ["metric", "by", "group", "reference", "gap", "ci_low", "ci_high"]
columns += ["expected_if_equal", "detectable", "p_adjusted"]
gaps[columns].round(3)

# %% [markdown]
# A row per metric and way of dividing the patients. `gap` is the widest difference between two
# groups, with the interval of a maximum: the pair was chosen because it is the widest.
# `expected_if_equal` is the gap that noise alone gives, and `detectable` the gap that groups of
# these sizes reveal with 80% power. `p_adjusted` tests that all groups have one rate, adjusted by
# Holm over the whole table.
#
# By sex and by language the FNR is as even as noise allows. By intersection the gap is 0.35, where
# noise would give 0.05. False alarms show nothing in any division, as they should.

# %% alt="Forest plot of the missed share for all rows, by sex, by language and by intersection. All single-attribute rates lie near 0.27 with overlapping intervals. Of the intersections, women who speak another language are near 0.45 and men who speak another language near 0.10."
fig, ax = plt.subplots(figsize=(7, 4.2))
observed.plot_rates("fnr", marginals="both", ax=ax)
fig.tight_layout()

# %% [markdown]
# ## Do two effects add up?
#
# With 1 for the level in question and 0 for its reference, the **interaction contrast** is
#
# $$ c = r_{11} - r_{10} - r_{01} + r_{00}
#      = (r_{11} - r_{00}) - \bigl[(r_{10} - r_{00}) + (r_{01} - r_{00})\bigr], $$
#
# the gap of both beyond the sum of the two gaps of one alone [@rothman1980]. It is 0 if effects add
# up on the scale of the rates. `audit.interaction` gives it with an interval from the limits of the
# four rates [@zou2009] and a p-value adjusted over all contrasts of the call. We say which levels
# are in question: women, and patients who speak another language.

# %%
found = audit.interaction("fnr", levels={"sex": "F", "language": "other"}, reference="rest")
print(found)

# %% [markdown]
# The contrast is large and positive; its true value is $0.45 - 0.20 - 0.10 + 0.35 = 0.50$. If effects
# added up, women who speak another language would have a missed share of
# $0.195 + 0.107 - 0.340 < 0$. They have 0.458.
#
# `gap a` and `gap b` are the marginal gaps, the ones in the single-axis tables. The column `flag` is
# "superadditive" as a common toolkit defines it: $|r_{11} - r_{00}|$ exceeds the sum of the two
# absolute *marginal* gaps. It compares three point estimates.
#
# The same for two masks and any 0/1 outcome, without an audit. Here the outcome is "missed", among
# those with sepsis:

# %%
cases = data[data["sepsis"] == 1]
missed = (cases["risk"] < 0.5).astype(int)
print(
    cfair.intersectional_gap(
        missed,
        sensitive_features={"woman": cases["sex"] == "F", "other": cases["language"] == "other"},
    )
)

# %% [markdown]
# ### The flag fires on noise
#
# Take a hospital where the alert misses 27% in every cell, and cells of unequal size. There is
# nothing to find. How often does the flag say "superadditive", and how often does the interval of
# the contrast leave out 0?

# %%
rng = np.random.default_rng(2026)
sizes = {"neither": 350, "other": 45, "woman": 300, "both": 20}
cells = np.repeat(np.arange(4), list(sizes.values()))
masks = {"woman": cells >= 2, "other": cells % 2 == 1}

draws = []
for _ in range(100):
    y = (rng.random(len(cells)) < 0.27).astype(int)
    gap = cfair.intersectional_gap(y, sensitive_features=masks)
    draws.append((gap.superadditive, not gap.ci_low <= 0 <= gap.ci_high))
share = pd.DataFrame(draws, columns=["flag fires", "interval leaves out 0"]).mean()
share.to_frame("share of 100 hospitals without any gap").round(2)

# %% [markdown]
# The flag fires in more than half of them, the interval in about 5%, up to the error of 100 draws.
# Two reasons. The small cell makes $r_{11}$ noisy while the margins are hardly noisy at all, so the
# left side of the comparison wins by chance. And the margins are averages over cells of unequal
# size, so that the flag also measures how the attributes go together. It says nothing of
# uncertainty. Do not report it without the contrast.
#
# Three more things to know about $c$:
#
# - **Its sign depends on the levels.** Exchange the two levels of one attribute and $c$ turns its
#   sign. Its size and p-value stay. So state which level is 1.
# - **It depends on the scale.** $c = 0$ means that differences add up. Ratios then do not multiply,
#   unless one attribute has no effect. The column `ratio` of `found.contrasts` is
#   $r_{11} r_{00} / (r_{10} r_{01})$, which is 1 where they do. For harm counted in patients,
#   differences are the scale to use.
# - **It is no measure of harm.** Two large effects that add up exactly give $c = 0$ and the worst
#   rate of all in the cell with both. Report the rates first.

# %%
found.contrasts[["r11", "r10", "r01", "r00", "contrast", "ci_low", "ci_high", "ratio"]].round(3)

# %% [markdown]
# ## Who is in the data
#
# A cell that is too small can hide a gap, or show one that is not there. `representation` lists
# every cell, the empty ones too, beside the number that independence of the attributes would give.
# For an FNR the number that counts is `events`, and the interval is wider than the one under `width`,
# which is of a rate of 0.275 with all `n` patients of the cell in its denominator. A second hospital,
# with a third attribute:

# %%
three = Design(
    name="sepsis alert, three attributes",
    attributes={
        "sex": ("F", "M"),
        "language": ("English", "other"),
        "race": ("Black", "Native", "White"),
    },
    shares=(0.07, 0.005, 0.26, 0.03, 0.002, 0.133, 0.06, 0.006, 0.27, 0.025, 0.002, 0.137),
    prevalence=(0.15,) * 12,
    cfpr=(0.12,) * 12,
    cfnr=(0.275,) * 12,  # one rate for all: nothing to find
    covariates=(),
    treatment_intercept=(-20.0,) * 12,
    outcome="sepsis",
    score="risk",
    flag=None,
)
fair = cfair.simulate_cohort(8_000, seed=11, design=three)
wide = cfair.Audit(
    fair[["sepsis", "risk", "sex", "language", "race"]],
    outcome="sepsis",
    score="risk",
    cutoff=0.5,
    groups=["sex", "language", "race"],
)
print(wide.representation(rate=0.275))

# %% alt="Mosaic of the twelve intersections of sex, language and race. Areas show numbers of rows. The cells of Native patients are hatched slivers of 14 to 46 rows, below 100; those of White patients who speak English are the largest, with more than 2,100."
fig, ax = plt.subplots(figsize=(7, 4.6))
wide.representation().plot(ax=ax)
fig.tight_layout()

# %% [markdown]
# ## More attributes, wider gaps from noise
#
# In this second hospital the alert misses 27.5% in all twelve cells. The widest observed gap still
# grows with the number of cells, because the maximum of many noisy differences is large.

# %%
alone = wide.observed().gaps("fnr")
alone[columns[1:]].round(3)

# %% [markdown]
# Read by its size alone, the last row is a severe gap: 0.33. Noise alone gives 0.41 with cells like
# these, and the interval reaches from 0 to 1. A gap of intersections must never be printed without
# these two. Nor does the table show that this alert is fair: between its two extreme cells, of 3 and 4
# cases, no gap whatever would have been found, and `detectable` is empty. What would show it is the subject of [planning](planning.html), and what to do with
# cells too small to stand alone that of [small subgroups](small_subgroups.html).

# %% [markdown]
# ## How to report it
#
# > We report error rates for every intersection of sex and language, since rates by single attribute
# > can be equal while those of intersections are not. The false negative rate differed by less than
# > 0.001 between women and men and by 0.016 between languages, but was 0.46 (95% CI 0.39 to 0.53) in
# > women who speak another language and 0.11 (0.07 to 0.16) in men who do. The widest gap was 0.35
# > (0.27 to 0.44, an interval for the maximum over all pairs; 0.05 expected from noise alone; equal
# > rates in all intersections: p < 0.001, Holm over all metrics and divisions). The effects of the
# > two attributes did not add up: with women and other language as the levels in question, the
# > interaction contrast on the scale of the rates was 0.50 (0.39 to 0.60). False positive rates did
# > not differ by more than noise gives. The number of events in every cell is in Table S1; rates that
# > rest on fewer than 20 events are shown with their intervals and not interpreted alone.
