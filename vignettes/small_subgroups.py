# %% [markdown]
# # Small subgroups and borrowing
#
# The committee asks about the patients it worries about most, and there are thirty of them. Weighting gives
# their error rates with intervals from 0.2 to 0.8. The small-subgroup estimator gives intervals half as
# wide. This page shows what buys that precision, what it costs, when the result itself objects, and when it
# cannot.

# %% [markdown]
# ## The question
#
# A hospital runs an alert for acute kidney injury (AKI). It fires at a risk of 0.5. A nephrologist then sees
# many of the flagged patients, and prevents half of the injuries. The committee asks: *does the alert miss
# more AKI among Indigenous patients, women and men, than among others?* That is a question about the rates
# had nobody been seen by a nephrologist: cFNR, the share missed of those who would have had AKI, and cFPR,
# the share flagged of those who would not [@wastvedt2023].
#
# We simulate the hospital, so that the truth is known. Of Indigenous patients the alert misses 55% of AKI, of
# all others 35%. It flags 10% of Indigenous patients without AKI, and 20% of others.

# %%
import textwrap
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import norm

import cfair
from cfair.datasets import Covariate, Design

design = Design(
    name="AKI alert",
    attributes={"sex": ("F", "M"), "ethnicity": ("Asian", "Black", "Indigenous", "White")},
    shares=(0.05, 0.09, 0.02, 0.34) * 2,
    prevalence=(0.25, 0.30, 0.30, 0.25) * 2,
    cfpr=(0.20, 0.20, 0.10, 0.20) * 2,
    cfnr=(0.35, 0.35, 0.55, 0.35) * 2,
    covariates=(
        Covariate("age", 0.5, 0.4, (-0.2, -0.2, -0.3, 0.2) * 2, 0.4, 65, 10, 1),
        Covariate("creatinine", 0.6, 0.5, (0.0, 0.2, 0.2, 0.0) * 2, 0.4, 1.1, 0.3, 2),
        Covariate("deprivation", 0.1, 0.0, (0.2, 0.5, 0.9, -0.3) * 2, 0.0, 5, 2, 1),
    ),
    treatment_intercept=(-2.0, -2.2, -2.4, -1.8) * 2,
    treatment_flag=1.2,
    outcome="aki",
    score="risk",
    treatment="nephrology",
    flag="alert",
)


def audit_of(design, n, seed):
    """An audit of n simulated patients, without what no study sees."""
    cohort = cfair.simulate_cohort(n, seed=seed, design=design)
    return cfair.Audit(
        cohort.drop(columns=["aki_untreated", "aki_treated"]),
        outcome="aki",
        score="risk",
        cutoff=0.5,
        groups=["sex", "ethnicity"],
        treatment="nephrology",
    )


audit = audit_of(design, n=1_500, seed=4)

# %% [markdown]
# ## Weighting, and what it leaves open

# %%
treatment = "nephrology ~ sex * ethnicity + alert + age + creatinine"
weighted = audit.counterfactual(treatment)
print(weighted)

# %% [markdown]
# Look at the columns `untreated` and `events`: the rates rest on these patients. Ten untreated Indigenous
# women had AKI, and seven men. The intervals of their cFNR run from 0.24 to 0.82 and from 0.35 to 0.98. They
# are honest, and the notes say that there is too little to stand on. The test of equal rates has p = 0.09.
# Asian patients fare no better. The committee learns nothing about the groups that it asked about.
#
# Pooling the sexes helps a little: 0.66 (0.40 to 0.85) for all Indigenous patients, under "single
# attributes". If the question allows it, that is the first thing to try. Here it was about women and men.

# %% [markdown]
# ## Bayes' rule, and all rows behind it
#
# The small-subgroup estimator [@wastvedt2024] writes the rate of a group as a product. With
# $S$ the flag, $Y^0$ the outcome without treatment and $A$ the group,
#
# $$ \text{cFNR}_g = P(S = 0 \mid Y^0 = 1, A = g)
# = P(S = 0 \mid Y^0 = 1)\; \frac{P(A = g \mid S = 0, Y^0 = 1)}{P(A = g \mid Y^0 = 1)} . $$
#
# This is Bayes' rule and assumes nothing. The first factor is the rate of all rows, which is well
# estimated. The two others are shares of the group: among the missed events, and among all events. Now
# the untreated members of the group are not the only ones who count. Three models estimate the parts:
#
# - the propensity of treatment, as before, for the overall rate;
# - the risk without treatment given covariates, without and with the flag, $\mu_0(X)$ and $\mu_0(X, S)$,
#   fitted on all rows **without the group**: every patient lends what is known of age and creatinine;
# - the probability of membership $P(A = g \mid X)$, which needs no outcome at all.
#
# $$ \frac{P(A = g \mid S = 0, Y^0 = 1)}{P(A = g \mid Y^0 = 1)} \approx
# \frac{\sum_{A_i = g} \mu_0(X_i, 0)(1 - S_i) \,\big/ \sum_i \mu_0(X_i, 0)(1 - S_i)}
#      {\sum_i \hat p_g(X_i)\, \mu_0(X_i) \,\big/ \sum_i \mu_0(X_i)} . $$
#
# The flags and covariates of the group's own members, treated or not, are all in the numerator.

# %%
models = {
    "outcome_model": "~ age + creatinine",
    "membership": "~ age + creatinine + deprivation",
}
borrowed = audit.small_subgroups(treatment, **models, n_boot=100, seed=1)
print(borrowed)

# %% [markdown]
# The estimator has no influence function, so intervals come from a bootstrap in which all models are
# fitted anew. The parts of the product are in `shares`:

# %%
shares = borrowed.shares.query("metric == 'cfnr' and group.str.contains('Indigenous')")
shares.round(4)


# %% alt="Forest plot of the share of AKI missed, had nobody been treated, for eight groups of sex and ethnicity. Intervals by weighting are wide, those of the small-subgroup estimator about half as wide. Ticks mark the truth. For the two Indigenous groups the truth, 0.55, lies above the borrowed estimates."
def cfnr(result):
    """Rates and intervals of the intersections, in the order of the truth."""
    rates = result.rates.query("metric == 'cfnr'").dropna(subset=["sex", "ethnicity"])
    return rates[["estimate", "ci_low", "ci_high"]].to_numpy().T


truth = cfair.true_rates(design)
names = truth["sex"] + " & " + truth["ethnicity"]
rows = np.arange(len(truth))[::-1]
fig, ax = plt.subplots(figsize=(7, 4.6))
for result, label, color, shift in (
    (weighted, "weighting", "0.55", 0.16),
    (borrowed, "small subgroups", "C0", -0.16),
):
    estimate, low, high = cfnr(result)
    ax.hlines(rows + shift, low, high, color=color, lw=1.8)
    ax.plot(estimate, rows + shift, "o", color=color, ms=5, label=label)
ax.plot(truth["cfnr"], rows, "|", color="black", ms=20, mew=1.6, label="truth")
ax.set(yticks=rows, xlim=(0, 1), xlabel="cFNR, with 95% interval")
ax.set_yticklabels(names)
ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=3)
for side in ("top", "right", "left"):
    ax.spines[side].set_visible(False)
ax.tick_params(axis="y", length=0)
fig.tight_layout()

# %% [markdown]
# The intervals are about half as wide: 0.42 (0.27 to 0.59) for Indigenous women and 0.53 (0.39 to 0.67) for men.
# In this cohort they hold the truth, 0.55, though one of them barely.

# %% [markdown]
# ## The price: a pull towards the overall rate
#
# The outcome models leave the group out. They have to: in a group of thirty no model can tell its own
# baseline from noise. So they are right only if **covariates (and the flag) explain how the groups differ in
# risk**: $Y^0 \perp A \mid X$ and $Y^0 \perp A \mid X, S$. In our hospital they do not. An unflagged
# Indigenous patient has a higher risk of AKI than an unflagged White patient of the same age and
# creatinine, because the alert misses more of them. The model does not know it, gives both the same
# risk, and the share of the group among missed events comes out too small.
#
# One cohort cannot show a bias. Twenty-four can.

# %%
draws = []
for seed in range(100, 124):
    drawn = audit_of(design, n=1_500, seed=seed)
    draws.append(
        (
            cfnr(drawn.counterfactual(treatment))[0],
            cfnr(drawn.small_subgroups(treatment, **models, n_boot=0))[0],
        )
    )
mean, sd = np.nanmean(draws, axis=0), np.nanstd(draws, axis=0, ddof=1)
bias = mean - truth["cfnr"].to_numpy()

table = pd.DataFrame({"truth": truth["cfnr"].to_numpy()}, index=names)
for i, label in enumerate(("weighting", "small")):
    table[f"{label}: mean"], table[f"{label}: sd"] = mean[i], sd[i]
    table[f"{label}: RMSE"] = np.hypot(bias[i], sd[i])
ratio = bias[1] / sd[1]
table["small: coverage"] = norm.cdf(1.96 - ratio) - norm.cdf(-1.96 - ratio)
table.round(2)

# %% [markdown]
# Weighting is unbiased, up to the noise of 24 cohorts, and so scattered in the small groups that it is of
# little use. The small-subgroup estimates scatter half as much, or less. Where the groups are as the
# others, in the Asian, Black and White patients, they are simply better. Where a group differs, they are
# pulled: half or more of the true difference to the overall rate is gone. Even so the root mean squared error
# (RMSE) is smaller than that of weighting.
#
# But an interval is to cover. With bias $b$ and standard deviation $s$, an interval of nominally 95% covers
# with probability
#
# $$\Phi(1.96 - b/s) - \Phi(-1.96 - b/s),$$
#
# the last column. For the groups in question it is far below 0.95, and it gets *worse* with more data,
# since $s$ shrinks and $b$ stays. A smaller RMSE and wrong intervals: so the estimate is a good guess, and
# no evidence that the group is like the others. **It can miss the very inequity that the audit is for.**
# A difference that it does find is more likely too small than too large, as long as the models hold; a
# wrong outcome model, without the group, can also make one up.

# %% [markdown]
# ## When the result objects
#
# Where a group is large enough to stand alone, the result compares its rate with the one by weighting and
# says when they disagree. "Large enough" is an effective size of 30, "disagree" is more than two standard
# errors. Suppose it were the Black patients, 9% in each sex, whose AKI is missed, in a cohort of 6,000:

# %%
other = replace(design, cfpr=(0.20, 0.10, 0.20, 0.20) * 2, cfnr=(0.35, 0.55, 0.35, 0.35) * 2)
large = audit_of(other, n=6_000, seed=0).small_subgroups(treatment, **models, n_boot=0)
note = next(note for note in large.notes if note.startswith("weighting alone"))
print(textwrap.fill(note, 92))

# %% [markdown]
# Black women are named, with the pulled rate and the weighted one beside it. So are White men, whose true
# rate is 0.35: of sixteen comparisons at two standard errors, some are chance. Read the note as a
# prompt to look, not as a test.
#
# **Silence is no assurance.** In the cohort of 1,500 no Indigenous group had an effective size of 30, so
# nothing was said about them, and the bias was there. Where the estimator is needed most, the data cannot
# check it. What can be done is to argue the assumption: list the covariates that the score, or the care
# before it, treats differently by group, and put them into the outcome model.

# %% [markdown]
# ## Borrowing from an external table
#
# Membership needs no outcome. A regional registry of 20,000 people with sex, ethnicity, age, creatinine and
# deprivation can help to estimate $P(A = g \mid X)$. The probabilities used are a mixture,
# $\alpha\, \hat p^{\text{ext}} + (1 - \alpha)\, \hat p^{\text{int}}$, with the $\alpha$ that predicts the
# groups of this cohort best, out of fold.

# %%
registry_columns = ["sex", "ethnicity", "age", "creatinine", "deprivation"]
registry = cfair.simulate_cohort(20_000, seed=9, design=design)[registry_columns]
external = audit.small_subgroups(treatment, **models, external=registry, n_boot=100, seed=1)
print(f"alpha = {external.alpha:.2f}")

width = {"weighting": weighted, "small": borrowed, "small, external": external}
pd.DataFrame(
    {label: np.diff(cfnr(result)[1:], axis=0)[0] for label, result in width.items()}, index=names
).round(2)

# %% [markdown]
# The registry replaces most of the internal model, and the intervals of the small groups become *wider*. With
# an internal model the number of members of a group stands in the numerator and in the denominator, and
# cancels. With external probabilities it does not: whether the cohort happens to hold 28 Indigenous women or
# 33 moves the rate. An external table can pay where the internal membership model is the weak part, with many
# covariates and few members, as in the settings of [@wastvedt2024]. Compare both, as here, and do not expect
# a gain from the size of the registry alone.
#
# What it assumes is that $P(A = g \mid X)$ is *the same* in the registry and in the population of the cohort.
# Take a registry from a region in which two or three times as many people are Indigenous, and which is
# the same in everything else:

# %%
rows = {}
for share in (0.02, 0.04, 0.06):
    scale = (1 - 2 * share) / 0.96
    shares = tuple(share if i % 4 == 2 else s * scale for i, s in enumerate(design.shares))
    elsewhere = cfair.simulate_cohort(20_000, seed=9, design=replace(design, shares=shares))
    found = audit.small_subgroups(
        treatment, **models, external=elsewhere[registry_columns], n_boot=0, seed=1
    )
    rows[f"{share:.0%} in each sex"] = [found.alpha, *cfnr(found)[0][[2, 6]]]
pd.DataFrame(rows, index=["alpha", "cFNR, F & Indigenous", "cFNR, M & Indigenous"]).T.rename_axis(
    "Indigenous in the registry"
).round(2)

# %% [markdown]
# The probability of the group comes out too high for this hospital, and the rate is divided by it. With twice
# the share, the missed share of Indigenous women falls from 0.44 to 0.31, below the rate of all patients, 0.37: the
# difference that the committee asked about has changed its sign. Nothing is in the intervals for this. The choice of $\alpha$ protects in part: it
# borrows less from a registry that predicts less well. Compare the shares of the groups in both tables
# before borrowing (`audit.representation()`, `cfair.representation_of(registry, ...)`), and reweight the
# registry to the cohort's population where they differ (`external_weights`).

# %% [markdown]
# ## Which estimator?
#
# - *A few dozen untreated events in each group:* weighting, or AIPW with a model of the outcome
#   (`outcome_model=` of `counterfactual`). Intervals cover.
# - *Fewer, and the groups can be pooled without losing the question:* pool them.
# - *Fewer, and covariates plausibly explain how risks differ:* small subgroups, with weighting beside it.
# - *Fewer, and they do not:* the data cannot answer. Say so, and [plan](planning.html) a study that can.

# %% [markdown]
# ## How to report it
#
# > Error rates had no patient been seen by a nephrologist were estimated for eight groups of sex and ethnicity.
# > Four of these had fewer than 12 untreated events, so that inverse probability weighting gave wide intervals: the false negative
# > rate was 0.54 (95% CI 0.24 to 0.82) in Indigenous women and 0.83 (0.35 to 0.98) in Indigenous men. We
# > also give the small-subgroup estimates of Wastvedt et al. (2024), 0.42 (0.27 to 0.59) and 0.53 (0.39 to
# > 0.67), from a propensity model (sex by ethnicity, alert, age, creatinine), an outcome model without
# > group (age, creatinine) and a multinomial membership model (age, creatinine, deprivation; five-fold
# > cross-fitting), with 100 bootstrap replicates. These assume that age, creatinine and the alert
# > explain all differences in risk between groups. If they do not, the estimates are biased
# > towards the rate of all patients (0.37), and the intervals do not allow for it. The effective
# > size of these groups was too small to check this against weighting. We therefore
# > do not conclude that the alert works equally well for Indigenous patients.
