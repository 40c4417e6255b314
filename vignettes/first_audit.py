# %% [markdown]
# # A first audit
#
# A hospital flags patients for a follow-up programme when a risk score says that they are likely to
# be readmitted. Does the score err more often in some groups of patients than in others? This page
# goes from the data to the paragraph in the report, and reads every line of output on the way.

# %% [markdown]
# ## The question
#
# A score of 0.5 or more puts a patient on the programme's list. Two things can go wrong. A patient
# who would not have come back is flagged (a *false positive*, a place wasted), or a patient who
# would have come back is not (a *false negative*, care withheld). The question is whether the two
# rates,
#
# $$\text{FPR}_g = P(S = 1 \mid Y = 0, A = g), \qquad \text{FNR}_g = P(S = 0 \mid Y = 1, A = g),$$
#
# are the same in every group $g$ of sex by race. Here $S$ is the flag, $Y$ the readmission and $A$
# the group. Equal rates are known as equalized odds [@hardt2016].
#
# There is a catch. The programme works: it prevents readmissions, and it reaches some groups more
# readily than others. So $Y$ is not what the score was asked to predict. The last part of this page
# asks for the rates *had nobody been treated* [@coston2020; @wastvedt2023].

# %%
import pandas as pd

import cfair

cohort = cfair.load_cohort()  # 5,000 simulated patients; it ships with the package
cohort.head()

# %% [markdown]
# No patient of it exists. The cohort is a draw from a design whose true rates are known, and we shall
# look at them at the end.
#
# ## Declare once
#
# An `Audit` says which column plays which part. It checks them at once: an outcome with a third value,
# a missing group or a score beyond 0 and 1 is an error with a count of rows, not a surprise later.

# %%
audit = cfair.Audit(
    cohort,
    outcome="readmitted",  # the event, 0/1
    score="risk",
    cutoff=0.5,  # flagged if risk >= 0.5
    groups=["sex", "race"],  # crossed: six groups
    treatment="treated",  # took part in the programme, 0/1
)
pd.options.display.float_format = "{:.3f}".format  # frames on this page, three decimals

# %% [markdown]
# ## Who is in the data
#
# Before any rate: how many patients are there in each group, and are there enough to say something?

# %%
print(audit.representation())

# %% [markdown]
# ## The data as they are

# %%
observed = audit.observed()
print(observed)

# %% [markdown]
# From top to bottom:
#
# - **The header** counts rows read and used, flagged patients and events. Nothing is dropped without
#   a line here.
# - **A line per group**, then a line per single attribute: each rate with its 95% Wilson interval
#   [@wilson1927]. TPR is one minus FNR.
# - **equal rates?** is a test that all six groups have the same rate, and one of the largest of the
#   15 differences, adjusted for there being 15. The FPR differs; for the TPR there is no clear
#   evidence.
# - **|difference|** is the average and the maximum of these differences. Noise makes both positive
#   even if the groups are equal: *if equal* is what to expect then. The average FPR gap, 0.063, is
#   more than twice the 0.024 of noise alone.
# - **widest gap** names the two groups. *detectable* is the smallest gap that two groups of these
#   sizes would reveal with 80% power. The p-value is that of "all groups equal", adjusted over the
#   table [@holm1979]. *severity* is a word for the size of the estimate; it knows nothing of noise,
#   which is why it stands in brackets where the interval reaches 0.
#
# So in these data Black women have the highest false positive rate and White men the lowest. All
# groups against White men:

# %%
observed.contrasts(reference=("M", "White"), metrics="fpr").drop(columns=["family", "note"])

# %% alt="Forest plot of observed FPR and FNR with 95% intervals, a row for each of six groups. The FPR of Black women and Black men is about 0.34, that of the other four groups about 0.23. Intervals of the FNR overlap."
ax = observed.plot_rates(["fpr", "fnr"])

# %% [markdown]
# ## Why this is not the answer
#
# Flagged patients are often treated, and not to the same extent in all groups:

# %%
flagged = cohort[cohort["risk"] >= 0.5]
flagged.groupby(["sex", "race"])["treated"].mean().unstack()

# %% [markdown]
# Of the White men who are flagged, 81% are treated. Where treatment prevents a readmission, a right
# flag is counted as a false positive. Of the Black women who are flagged only 37% are treated, so
# fewer of their right flags turn into errors. The observed rates mix
# what the score gets wrong with what the programme prevented. [The vignette on treatment and the
# score](treatment_and_score.html) shows how far that can go.
#
# ## Had nobody been treated
#
# Let $Y^0$ be the outcome without treatment. The counterfactual rates
#
# $$\text{cFPR}_g = P(S = 1 \mid Y^0 = 0, A = g), \qquad \text{cFNR}_g = P(S = 0 \mid Y^0 = 1, A = g)$$
#
# are about the score alone. $Y^0$ is seen in untreated patients only. Each of them is weighted by
# $1/(1 - \pi)$, where $\pi$ is the probability of treatment given the score, the group and the
# covariates; so the untreated stand for everybody. The formula has to name everything that drives
# both treatment and outcome.

# %%
result = audit.counterfactual(
    "treated ~ sex * race + risk + age + sbp",
    n_perm=500,  # permutation null
    n_boot=500,  # bootstrap, if wanted
    seed=2026,
)
print(result)

# %% [markdown]
# What is new in it:
#
# - **untreated, events**: what the counterfactual rates of a group rest on. 158 untreated men of other
#   race with 39 events do not say much, and their intervals show it.
# - **propensity**: the model, and how many probabilities were cut to $[0.005, 0.995]$; here none.
# - **permutation**: group labels are dealt out anew 500 times and all is computed again. *p avg* and
#   *p max* are the shares of such draws with at least the observed average and maximum gap. They are
#   small whenever groups differ in anything, prevalence and treatment included. *p studentized*
#   divides each gap by its standard error, which takes most of that away: read this one.
# - **u(0.1)** is the share of draws that the observed gap exceeds by more than 0.1. Near 1, the gap is
#   beyond chance by that much. It is no p-value, and 0.1 is a large gap for an average.
#
# The false positive rates differ (Wald test, 5 degrees of freedom, p < .001). For false negative rates
# there is no evidence of a difference: average gap 0.053, where equal groups would show 0.055.

# %%
result.contrasts(reference=("M", "White"), metrics="cfpr").drop(columns=["family", "note"])

# %% [markdown]
# Black women are flagged wrongly 16 points more often than White men (95% interval 9 to 23, adjusted
# p < .001), and Black men 12 points more often. In the data as they are it looked like 13 and 11.

# %% alt="Forest plot of counterfactual cFPR and cFNR with 95% intervals for six groups. The cFPR of Black women is 0.31 and of Black men 0.26, of White patients about 0.15. Intervals of the cFNR overlap and are wide for patients of other race."
ax = result.plot_rates(["cfpr", "cfnr"])

# %% [markdown]
# ## Is it more than noise?
#
# The histogram is the permutation null of the average difference in cFPR, the line what was observed.

# %% alt="Histogram of the average difference in cFPR in 500 permutations, most between 0.02 and 0.06, with the observed value of 0.081 marked to the right of nearly all of them."
ax = result.plot_null("cfpr", "average")

# %% [markdown]
# The bootstrap is a second opinion on the intervals. It needs no formula for the standard error, and
# should say about the same.

# %%
boot = result.bootstrap_intervals().set_index(["metric", "group"])
own = result.rates.set_index(["metric", "group"])
both = own.loc[["cfpr"], ["estimate", "ci_low", "ci_high"]]
both.join(boot[["ci_low", "ci_high"]].add_prefix("boot_"))

# %% [markdown]
# ## Can the untreated stand for everybody?
#
# Two diagnostics. First, *overlap*: after weighting, how many independent patients do the untreated of
# a group amount to, and does a single one carry a large weight?

# %%
result.overlap.effective.set_index("group")

# %% [markdown]
# The 690 untreated White men are worth 479 patients: seven in ten. Nobody has a weight above 14.
# Second, *balance*: do the weighted untreated look like the whole cohort? Standardized mean differences
# before and after:

# %%
result.overlap.balance.set_index("term")[["smd_before", "smd_after"]]

# %% [markdown]
# Before weighting, the untreated had lower risk scores (by 0.275 standard deviations). After it all
# differences are below 0.02. Balance speaks for the model of the treatment. It says nothing of a
# confounder that nobody measured.
#
# ## A check that only simulated data allow

# %%
truth = cfair.true_rates("clinical")
seen = result.rates.pivot(index=["sex", "race"], columns="metric", values="estimate").reset_index()
table = truth[["sex", "race", "cfpr", "cfnr"]].merge(
    seen, on=["sex", "race"], suffixes=("_true", "")
)
table.set_index(["sex", "race"])[["cfpr_true", "cfpr", "fpr", "cfnr_true", "cfnr", "fnr"]]

# %% [markdown]
# The observed false positive rates are too high in every group; for White men, 0.22 where the truth is
# 0.14. The counterfactual estimates are off by sampling error only: all twelve intervals hold the
# truth. The true gap between Black women and White men is 0.16.
#
# ## How to report it
#
# Say who was analysed, what the event and the flag were, which rates, under which assumptions, with
# intervals, a test, and the diagnostics.
#
# > We audited the readmission score at a cutoff of 0.5 in 5,000 patients of six groups (sex by race;
# > 263 to 1,658 patients each). Because the follow-up programme prevents readmissions, we estimated
# > false positive and false negative rates under no treatment by inverse probability weighting
# > (Wastvedt et al. 2023), with sex, race and their interaction, risk score, age and systolic blood
# > pressure in the propensity model; 95% intervals are from influence functions (Wilson on the
# > effective size). After weighting, all standardized mean differences were below 0.02 and the
# > effective size was 70% to 93% of the untreated in every group. Counterfactual false positive rates
# > differed between groups (Wald $\chi^2_5$ = 38.6, p < .001): 0.31 (0.26 to 0.36) in Black women
# > and 0.14 (0.11 to 0.19) in White men, a difference of 0.16 (0.09 to 0.23; Holm-adjusted p < .001). We
# > found no evidence that counterfactual false negative rates differ (p = .41; average difference 0.05,
# > 0.06 expected if all rates were equal), but the intervals of the smaller groups are wide. The
# > estimates assume that treatment and outcome share no cause beyond these covariates. Analyses used
# > cfair.
