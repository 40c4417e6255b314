# %% [markdown]
# # What if everybody belonged to one group?
#
# A score flags publicly insured men wrongly three times as often as privately insured men. Is it
# because their members are sicker, or because of what the score makes of sex and insurance? No
# treatment stands in between, so the question is put to the group itself: what would the error rates be if
# everybody, as they are, counted as a member of group $g$? This page shows the answer, what it does not
# mean, and what can be read from a permutation null and a u-value near zero.

# %% [markdown]
# ## The question
#
# A health plan has a score for readmission with illness burden, sex and insurance among its inputs. It is
# computed at discharge and nobody acts on it yet. A review finds false positive rates (FPR) that differ widely
# between sex by insurance. The vendor says that the members differ. The reviewer says that the score
# treats them differently. Both may be right, and the observed rates cannot tell.
#
# We simulate the plan. Burden and frailty are standard normal and go along with sex and insurance. The
# outcome depends on burden, frailty and group; the score on burden and group, by the log odds under
# `score`. What happens to rates if everybody is put into one group, covariates left as they are, is then
# known exactly.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import cfair
from cfair.datasets import GroupEffect

attributes = {"sex": ("F", "M"), "insurance": ("private", "public")}
design = GroupEffect(attributes=attributes, score=(-0.6, -0.3, -0.2, 0.2))


def simulate(design, n, seed):
    """An audit of n simulated members, and the score of each with the group set to each group."""
    cohort = cfair.simulate_cohort(n, seed=seed, design=design)
    names = {"y": "readmitted", "score": "risk", "x1": "burden", "x2": "frailty"}
    audit = cfair.Audit(
        cohort.rename(columns=names),
        outcome="readmitted",
        score="risk",
        cutoff=0.5,
        groups=["sex", "insurance"],
    )
    return audit, design.scores_under(cohort)


audit, scores = simulate(design, n=3_000, seed=1)
scores.head(3).round(3)

# %% [markdown]
# `scores` is what has to be asked of the vendor: the score of every member four times, with sex and
# insurance set to each combination and all else left as it is. Any model that can be called gives it. (A
# fitted scikit-learn classifier can be passed as it is, with `score_columns`. Without scores, the outcome
# model itself is judged.)

# %% [markdown]
# ## Observed rates
#
# They mix two things: who the members are, and what score and outcome make of the group.

# %%
observed = audit.observed()
fpr = observed.rates.query("metric == 'fpr'").dropna(subset=["sex", "insurance"])
fpr[["group", "denominator", "estimate", "ci_low", "ci_high"]].round(3)

# %% [markdown]
# ## Everybody in group g
#
# Write $S^{g}$ and $Y^{g}$ for flag and outcome with the group set to $g$. The rates in question are
#
# $$ \text{FPR}_{A := g} = P(S^{g} = 1 \mid Y^{g} = 0), \qquad
# \text{FNR}_{A := g} = P(S^{g} = 0 \mid Y^{g} = 1), $$
#
# over **all** members, so over one distribution of covariates. $S^g$ can be computed. $Y^g$ is seen only in
# members of $g$. With $\mu_g(X) = P(Y = 1 \mid A = g, X)$ and $p_g(X) = P(A = g \mid X)$, the estimate takes
#
# $$ \hat\varphi_g = \mu_g(X) + \frac{1\{A = g\}}{p_g(X)} \bigl(Y - \mu_g(X)\bigr), \qquad
# \widehat{\text{FNR}}_{A := g} = \frac{\sum (1 - S^g)\, \hat\varphi_g}{\sum \hat\varphi_g}, $$
#
# and $1 - \hat\varphi_g$ with $S^g$ for the FPR. It is right if one of the two models is right (doubly robust),
# the form of [@mishler2021] with group in place of treatment. Models predict out of fold.

# %%
models = {"outcome_model": "readmitted ~ burden + frailty", "membership": "~ burden + frailty"}
result = audit.group_intervention(**models, scores=scores, seed=1)
print(result)

# %% [markdown]
# The two last columns are the observed rates. Compare the rows of the FPR:


# %%
def rates_of(result, metric):
    """Estimate and interval by intersection, in the order of the truth."""
    rates = result.rates.query("metric == @metric").dropna(subset=["sex", "insurance"])
    return rates[["estimate", "ci_low", "ci_high"]].to_numpy().T


truth = cfair.true_rates(design)
table = pd.DataFrame(
    {
        "observed": rates_of(observed, "fpr")[0],
        "everybody in g": rates_of(result, "cfpr")[0],
        "truth": truth["cfpr"].to_numpy(),
    },
    index=truth["sex"] + " & " + truth["insurance"],
)
table.round(3)

# %% alt="False positive rates of four groups. Observed: privately insured women 0.18, publicly insured women 0.42, privately insured men 0.16, publicly insured men 0.56. With everybody in each group: 0.19, 0.30, 0.33 and 0.44, all intervals on the true values. Privately insured men move from the lowest rate to the second highest."
rows = np.arange(4)[::-1]
fig, ax = plt.subplots(figsize=(7, 3.4))
for source, metric, label, color, shift in (
    (observed, "fpr", "observed", "0.55", 0.14),
    (result, "cfpr", "everybody in g", "C0", -0.14),
):
    estimate, low, high = rates_of(source, metric)
    ax.hlines(rows + shift, low, high, color=color, lw=1.8)
    ax.plot(estimate, rows + shift, "o", color=color, ms=5, label=label)
ax.plot(truth["cfpr"], rows - 0.14, "|", color="black", ms=14, mew=1.4, label="truth")
ax.set(yticks=rows, xlabel="False positive rate, with 95% interval", xlim=(0.1, 0.65))
ax.set_yticklabels(table.index)
ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncol=3)
for side in ("top", "right", "left"):
    ax.spines[side].set_visible(False)
ax.tick_params(axis="y", length=0)
fig.tight_layout()

# %% [markdown]
# Privately insured men have the lowest observed FPR. It is not the score that favours them: with the same
# members in every group their rate is the second highest, 0.33. They are healthier, and the score is
# harder on them than on women with the same insurance. So the reviewer is right about the score, and the
# vendor about the largest part of the observed gap between privately and publicly insured men.

# %% [markdown]
# ## What it means, and what it does not
#
# - It is a **diagnostic of score and outcome**, given the listed covariates: what is left of the differences
#   once the members are the same.
# - It is **not the effect of anything that could be done**. Sex is not assigned, and of a cause that
#   cannot be manipulated it is disputed what its effect would be [@holland1986]. Insurance could be changed;
#   but burden and frailty would follow in time, and here they are left as they are. The nearest reading is
#   a difference adjusted for what lies on the way [@vanderweele2014].
# - It is **relative to the covariates**. What is left out of the models and goes along with the group counts as
#   group. Move a covariate into the list and the answer is to another question.
# - Equal rates here are **no acquittal**. If burden is measured by past spending, and spending is lower
#   for those with poor access, the unfairness is in the covariate and is held constant.
#
# The third point, in figures. Both covariates go along with outcome and membership:

# %%
left_out = {}
for covariates in ("burden + frailty", "burden", "frailty"):
    found = audit.group_intervention(
        outcome_model=f"readmitted ~ {covariates}",
        membership=f"~ {covariates}",
        scores=scores,
        seed=1,
    )
    left_out[covariates] = rates_of(found, "cfpr")[0]
pd.DataFrame(left_out, index=table.index).assign(truth=table["truth"]).round(3)

# %% [markdown]
# Without frailty the rate of publicly insured men rises by 3 points, without burden that of privately insured
# men by 4. The shifts are small here because $S^g$ is computed and not modelled, and because the design has
# two covariates of moderate weight. With real data nobody knows the last column.

# %% [markdown]
# ## The permutation null and the u-value
#
# Deal the labels out anew at random, compute all again, and compare. Two figures come of it, often confused. For
# a statistic $T$, say the maximum difference between groups, with null draws $T^*_1, \dots, T^*_R$,
#
# $$ p = \frac{1 + \#\{r : T^*_r \ge T\}}{R + 1}, \qquad
# u(\delta) = \frac{\#\{r : T - T^*_r > \delta\}}{R} . $$
#
# $p$ is the usual p-value [@phipson2010], small if labels matter. $u(\delta)$ is the share of draws that the
# observed value exceeds by more than $\delta$; it is *large* if the difference is beyond chance by that
# much. It is no probability of unfairness, and it has no error rate. In an earlier version of the R package faircfint, until May 2023, the u-value was the share of draws *at or above*
# the observed value, with small as the sign of unfairness. So first ask which one a paper has.

# %% [markdown]
# ### Near zero because nothing is there
#
# A second vendor's score does not look at sex and insurance, and the outcome depends on burden and frailty alone.

# %%
blind = GroupEffect(attributes=attributes, score=(0.0,) * 4, outcome=(-0.5,) * 4)
audit_blind, scores_blind = simulate(blind, n=3_000, seed=1)
null = audit_blind.group_intervention(**models, scores=scores_blind, n_perm=60, seed=1)
print(null)

# %% [markdown]
# All rates under intervention are alike, $p$ is large and $u(0.1) = 0$. Now look at the observed FPR in the same
# table: from 0.22 to 0.55. **A u-value near zero says nothing about the rates that members experience.** Those who
# have the burden get the false alarms, and they are in some groups more than in others.
#
# The last note has a second warning. Where group and outcome are nearly independent, u-values go to zero for that
# reason, whatever a model does that was learnt from this outcome.

# %% [markdown]
# ### Near zero because the threshold is out of reach
#
# The third score adds 0.2 to the log odds of publicly insured men, for no reason in the outcome. Their true FPR is
# 0.47 with everybody in that group, against 0.39 in the three others.

# %%
harsh = GroupEffect(attributes=attributes, score=(0.0, 0.0, 0.0, 0.2), outcome=(-0.5,) * 4)
audit_harsh, scores_harsh = simulate(harsh, n=8_000, seed=1)
found = audit_harsh.group_intervention(**models, scores=scores_harsh, n_perm=60, seed=1)
columns = ["metric", "statistic", "estimate", "ci_low", "ci_high", "expected_if_equal"]
columns += ["p_value", "u_delta", "u_value"]
found.disparities.query("metric in ['cfpr', 'cfnr']")[columns].round(3)

# %% alt="Histogram of the maximum difference in the false positive rate in 60 permutations, nearly all below 0.04. The observed value of the third score lies to the right of all of them."
fig, ax = plt.subplots(figsize=(7, 3.4))
found.plot_null("cfpr", "maximum", ax=ax)
fig.tight_layout()

# %% [markdown]
# The Wald test and the permutation test reject (0.016 is the least that 60 draws can give), and the interval
# of the maximum runs from 0.06 to 0.14. Yet $u(0.1) = 0$. To exceed null draws by more than 0.1, the
# observed value has to be *above* 0.1 by the size of a null draw, and the gap is 0.10. The FNR gap of 0.06 could
# not do it with any amount of data. So $u(\delta)$ near zero means "no gap beyond chance by $\delta$", and
# for $\delta$ = 0.1 that leaves room for one more false alarm in every ten members without the event. The variance of the
# differences, of the order of $\delta^2$, needs a threshold of its own; `u_delta` is squared for it.
#
# A published example: in figure 3 of the Fairlogue preprint ([arXiv:2604.04858](https://arxiv.org/abs/2604.04858))
# all u-values are 0, since 0.1 exceeds every difference plotted, while only about 3% of its null draws reach the
# observed average gap in cFNR. Zero u-values and a p-value of about 0.03 come from the same draws.
#
# Choose $\delta$ for the case, before the data are seen, and on the scale of the statistic. It costs nothing
# to look at several:

# %%
pd.concat([found.u_values(delta) for delta in (0.1, 0.05, 0.02)]).query(
    "metric == 'cfpr' and statistic == 'maximum'"
)

# %% [markdown]
# ### Near one because the group is small
#
# The other way round. The second score is fair to every group by construction. Take 300 members instead of
# 3,000, eight times:

# %%
small = []
for seed in range(4, 12):
    audit_small, scores_small = simulate(blind, n=300, seed=seed)
    drawn = audit_small.group_intervention(**models, scores=scores_small, n_perm=40, seed=1)
    kept = drawn.disparities.query("statistic == 'maximum' and metric in ['cfpr', 'cfnr']")
    small.append(kept.set_index("metric")[["estimate", "p_value", "u_value"]].stack())
pd.DataFrame(small).round(2).reset_index(drop=True).rename_axis("data set")

# %% [markdown]
# Groups of 40 to 100 members have noisy rates, so the observed maximum and the null draws are two noisy numbers that
# differ by 0.1 now and then. Two of the sixteen u-values are above 0.5, one at a p-value of 0.10. No
# threshold on $u$ has a known error rate.
#
# | | what it says | what it does not say |
# |---|---|---|
# | rates with intervals | how large, how certain | why |
# | Wald test, studentized $p$ | whether rates differ | how much |
# | permutation $p$ | whether labels matter to anything | that error rates differ |
# | $u(\delta)$ near 1 | the gap is larger than chance by $\delta$ | an error rate |
# | $u(\delta)$ near 0 | no gap beyond chance by $\delta$ | fairness |

# %% [markdown]
# ## How to report it
#
# > No treatment stands between score and outcome. To separate the composition of groups from what score and
# > outcome make of membership, we estimated false positive and false negative rates with every member, covariates as
# > observed, put into each group of sex by insurance in turn (doubly robust, five-fold cross-fitting; outcome
# > and membership given burden and frailty; scores recomputed by the vendor's model). The observed false positive rate ran from 0.16
# > (privately insured men) to 0.56 (publicly insured men). With the same members in every group it
# > was 0.19 (95% CI 0.17 to 0.22) in privately insured women, 0.30 (0.27 to 0.32) in publicly insured women,
# > 0.33 (0.29 to 0.37) in privately insured men and 0.44 (0.39 to 0.50) in publicly insured men (equal rates:
# > Wald $\chi^2_3$ = 99.1, p < 0.001; maximum difference 0.25, 0.19 to 0.31; 0.04 expected from noise alone).
# > These rates are a diagnostic of the score given the listed covariates and not the effect of an
# > intervention. Permutation p-values and u-values with their threshold are in Table S2; we draw no conclusion of
# > fairness from a u-value near zero.
