# %% [markdown]
# # Treatment and the score
#
# A score that is equally right for two groups can look unfair in every table of the data, because one
# group is treated more often and treatment prevents the events that the score foresaw. This page
# builds such a case, takes it apart, and shows what weighting and doubly robust estimation repair, what
# they assume, and what a wrong model does.

# %% [markdown]
# ## A score that is fair
#
# The case is the synthetic design of Coston et al. [-@coston2020]. A patient has a covariate $X$ and
# belongs to group $A$, 0 or 1. Without treatment the event happens with probability
#
# $$P(Y^0 = 1 \mid X, A) = \operatorname{expit}(X - 0.5),$$
#
# whatever the group, and that is also the score. It could not be better. At a cutoff of 0.5 its
# false positive and false negative rates without treatment are the same in both groups. These are
# computed exactly, not from a sample:

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import cfair

pd.options.display.float_format = "{:.3f}".format
cfair.true_rates("fair-score")

# %% [markdown]
# Now treatment: it prevents nine events in ten, and group 1 gets it more often,
#
# $$P(D = 1 \mid X, A) = \operatorname{expit}(X - 0.5 + 1.6 A).$$
#
# Think of a group that lives closer to the clinic. A study sees $Y = Y^0$ for the untreated and
# $Y = Y^1$ for the treated.

# %%
patients = cfair.simulate_cohort(20_000, seed=1, design="fair-score")
patients.groupby("a")[["d", "y", "y_untreated"]].mean()

# %% [markdown]
# The last two columns of the cohort are the potential outcomes. They are there for checks; no study
# has them, and no analysis below uses them.
#
# ## What the data say

# %%
study = cfair.Audit(patients, outcome="y", score="score", cutoff=0.5, groups="a", treatment="d")
observed = study.observed()
print(observed)

# %% [markdown]
# In the data the FPR is 0.29 and 0.30, where the truth is 0.18; the FNR is 0.64 and 0.68, where the truth
# is 0.50; and the positive predictive value of group 1 is half that of group 0. The score is not to
# blame for any of it. In group 1 more flagged patients were treated, their events did not happen, and
# the flags look like mistakes. With the treated left in, the table describes the clinic.
#
# Leaving the treated out is worse. Who is untreated is not a random part of a group:

# %%
untreated = cfair.Audit(
    patients[patients["d"] == 0], outcome="y", score="score", cutoff=0.5, groups="a"
).observed()
untreated.rates.pivot(index="group", columns="metric", values="estimate")[["fpr", "fnr"]]

# %% [markdown]
# The patients with a high score were treated and are gone, and more of them in group 1. The gap in
# false negative rates is now 0.09, of a score with no gap at all.
#
# ## Weighting
#
# Let $\pi = P(D = 1 \mid X, S, A)$. Every untreated patient stands for $1/(1 - \pi)$ patients alike. With
# $w = (1 - D)/(1 - \pi)$ the estimates are [@wastvedt2023]
#
# $$\text{cFPR}_g = \frac{\sum_{i \in g} S_i (1 - Y_i) w_i}{\sum_{i \in g} (1 - Y_i) w_i},
# \qquad
# \text{cFNR}_g = \frac{\sum_{i \in g} (1 - S_i) Y_i w_i}{\sum_{i \in g} Y_i w_i}.$$

# %%
weighted = study.counterfactual("d ~ a + score + x")
print(weighted)

# %% [markdown]
# Both rates are back where they belong, and neither test finds a difference. The *doubly robust* estimate
# (AIPW) also models the outcome among the untreated, fills in what the weights leave to chance, and is
# right if either model is [@robins1994; @mishler2021]:

# %%
robust = study.counterfactual("d ~ a + score + x", outcome_model="y ~ a + score + x")
robust.rates.query("metric in ['cfpr', 'cfnr']")[
    ["metric", "group", "estimate", "ci_low", "ci_high"]
]

# %% tags=["fold"] alt="Two panels, FPR and FNR, four analyses of both groups with 95% intervals and the true value as a vertical line. All patients and the untreated alone lie far from the line and differ between the groups; weighting and AIPW lie on it in both."
analyses = {
    "all patients": (observed, "fpr", "fnr"),
    "untreated alone": (untreated, "fpr", "fnr"),
    "IPW": (weighted, "cfpr", "cfnr"),
    "AIPW": (robust, "cfpr", "cfnr"),
}
truth = cfair.true_rates("fair-score").iloc[0]
figure, axes = plt.subplots(1, 2, figsize=(8, 2.8), sharey=True, layout="constrained")
for which, (ax, name) in enumerate(zip(axes, ("FPR", "FNR"), strict=True)):
    for row, (result, *names) in enumerate(analyses.values()):
        rates = result.rates[result.rates["metric"] == names[which]]
        for k, (_, rate) in enumerate(rates.iterrows()):
            y, colour = row + 0.24 * k - 0.12, ("#0072b2", "#d55e00")[k]
            ax.plot([rate["ci_low"], rate["ci_high"]], [y, y], color=colour)
            ax.plot(
                rate["estimate"], y, "os"[k], color=colour, label=f"group {k}" if not row else None
            )
    ax.axvline(truth[("cfpr", "cfnr")[which]], color="black", lw=1, ls="--", zorder=0)
    ax.set_title(f"{name} (dashed: truth without treatment)", fontsize=9, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_yticks(range(len(analyses)), analyses)
axes[0].invert_yaxis()
legend = axes[1].legend(frameon=False, fontsize=8)

# %% [markdown]
# One cohort may be lucky. So the same with 30 cohorts of 5,000: the gap (group 1 less group 0) that each
# analysis finds, on average and how far it varies. The truth is 0.


# %% tags=["fold"]
def gaps(seed: int) -> list[tuple]:
    data = cfair.simulate_cohort(5_000, seed=seed, design="fair-score")
    roles = {"outcome": "y", "score": "score", "cutoff": 0.5, "groups": "a"}
    audit = cfair.Audit(data, treatment="d", **roles)
    found = {
        "1 all patients": audit.observed(),
        "2 untreated alone": cfair.Audit(data[data["d"] == 0], **roles).observed(),
        "3 IPW": audit.counterfactual("d ~ a + score + x"),
        "4 AIPW": audit.counterfactual("d ~ a + score + x", outcome_model="y ~ a + score + x"),
    }
    rows = []
    for name, result in found.items():
        rates = result.rates.set_index(["metric", "group"])["estimate"]
        for metric in ("fpr", "fnr"):
            of = metric if name[0] in "12" else f"c{metric}"
            rows.append((name, metric.upper(), rates[of, "1"] - rates[of, "0"]))
    return rows


found = pd.DataFrame(
    [row for seed in range(30) for row in gaps(seed)], columns=["analysis", "rate", "gap"]
)
found.groupby(["rate", "analysis"])["gap"].agg(["mean", "std"]).unstack("rate").swaplevel(
    axis=1
).sort_index(axis=1)

# %% [markdown]
# Weighting and AIPW are centred on no gap; the standard error of these means is the standard deviation
# over $\sqrt{30} \approx 5.5$. They vary more
# than the wrong answers do, for the FPR twice as much: what they know comes from the untreated alone.
#
# ## What has to hold
#
# - **Consistency**: a patient's outcome does not depend on who else is treated, and there is one kind
#   of treatment.
# - **No unmeasured confounding**: among patients alike in everything in the formula, treatment is
#   independent of $Y^0$. No data can show that.
# - **Positivity**: nobody is sure to be treated. That the data can show. If whole kinds of patients are
#   always treated, nobody stands for them [@rosenbaum1983].

# %% alt="Median, middle half and 5% to 95% of the estimated probability of treatment, treated above untreated, for both groups. They overlap in each group; in group 1 they lie higher, the untreated around 0.6 and up to 0.87, the treated around 0.8 and up to 0.95."
ax = weighted.plot_overlap(by_group=True)

# %%
weighted.overlap.effective.set_index("group")

# %% [markdown]
# In group 1, 2,843 untreated patients are worth 1,711, and one has a weight of 47. This is where the
# precision goes. Propensities beyond $[0.005, 0.995]$ are cut, and the output counts them (one here).
# Many cut rows, or an effective size below about 20, say that the data cannot answer the question.

# %%
weighted.overlap.balance.set_index("term")

# %% [markdown]
# Standardized mean differences between the untreated and all patients were 0.4 and are now below 0.01.
#
# ## What a wrong model does
#
# Leave the group out, although treatment depends on it:

# %%
wrong = study.counterfactual("d ~ score + x")
print(wrong)

# %% [markdown]
# A fair score, and p < .001 for both rates. cfair tests whether what is left out matters,
# and here it does: the score test of adding the group has a chi-square of more than two thousand. A
# similar warning comes when treatment follows the flag itself, beyond the score; then add it to the
# formula, `I(score >= 0.5)`.
#
# The four combinations of right and wrong models, in a design of four groups with known rates
# [@wastvedt2023]. The flag is drawn knowing more about the outcome than the covariates do, so that it
# has to be in both models. The wrong models leave out the groups, the flag and most covariates.

# %%
people = cfair.simulate_cohort(50_000, seed=1, design="known-rates")
audit = cfair.Audit(people, outcome="y", prediction="s", groups=["a1", "a2"], treatment="d")
PI = {"right": "d ~ a1 * a2 + s + x1 + x2", "wrong": "d ~ x1"}
MU = {"right": "y ~ a1 * a2 * s + x1 + x2 + x3 + x4", "wrong": "y ~ x3", "none": None}

# %%
cases = [
    ("right", "none"),
    ("wrong", "none"),
    ("right", "wrong"),
    ("wrong", "right"),
    ("wrong", "wrong"),
]
rows = []
for pi, mu in cases:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wrong models warn, as above
        rates = audit.counterfactual(PI[pi], outcome_model=MU[mu]).rates
    both = rates.query("metric in ['cfpr', 'cfnr']").merge(
        cfair.true_rates("known-rates").melt(["a1", "a2"], ["cfpr", "cfnr"], "metric", "truth")
    )
    inside = both["truth"].between(both["ci_low"], both["ci_high"])
    error = (both["estimate"] - both["truth"]).abs()
    rows.append((pi, mu, error.mean(), error.max(), f"{inside.sum()} of 8"))
pd.DataFrame(
    rows,
    columns=["propensity", "outcome model", "mean error", "largest", "intervals with the truth"],
)

# %% [markdown]
# With one right model the error is noise; with none it is bias, and the intervals miss. Over 800 cohorts
# the same table is in [the validation vignette](validation.html).
#
# ## What no diagnostic of the model shows
#
# A model with the groups and the flag, but without the covariates:

# %%
careless = audit.counterfactual("d ~ a1 * a2 + s")
careless.overlap.balance.set_index("term")[["smd_before", "smd_after"]]

# %% [markdown]
# No warning, and balance to two decimals: of what is in the formula. Look at what is not:

# %%
covariates = people[["x1", "x2", "x3", "x4"]]
weights = careless.weights  # 0 for the treated
everybody = covariates.mean()
weighted_mean = covariates.mul(weights, axis=0).sum() / weights.sum()
pd.DataFrame(
    {
        "all": everybody,
        "weighted": weighted_mean,
        "difference in sd": (weighted_mean - everybody) / covariates.std(),
    }
)

# %% tags=["hide"]
seen = careless.rates.merge(
    cfair.true_rates("known-rates").melt(["a1", "a2"], ["cfpr", "cfnr"], "metric", "truth")
)
assert 0.02 < (seen["estimate"] - seen["truth"]).abs().max() < 0.05
assert np.isclose(weights[people["d"] == 1].max(), 0)

# %% [markdown]
# `x1` and `x2` drive treatment and outcome, and the weighted untreated are not like all patients in
# them. The largest error of a rate is 0.03 here. Check the balance of every covariate that could
# matter, in the formula or not; and for those that nobody measured, say so.
#
# ## How to report it
#
# > Treatment prevents the event and is given more often in one group, so that observed error rates mix
# > errors of the score with effects of treatment. We estimated error rates under no treatment by inverse
# > probability weighting, and by a doubly robust estimator (AIPW) as a second analysis. The propensity
# > model contained group, score and covariate; the outcome model, fitted to the untreated, the same.
# > After weighting all standardized mean differences were below 0.01; the untreated of the two groups had
# > effective sizes of 5,014 and 1,711 (largest weights 19 and 47), and one of 20,000 propensities
# > was truncated to 0.995. Observed false negative rates were 0.64 and 0.68; without treatment they were
# > estimated as 0.51 (95% interval 0.48 to 0.53) and 0.51 (0.47 to 0.55), and equal rates were not
# > rejected (p = .94; AIPW p = .69). Estimates assume consistency, positivity, and that no unmeasured
# > variable drives both treatment and outcome.
