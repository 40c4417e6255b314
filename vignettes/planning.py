# %% [markdown]
# # Planning a study that can prove fairness
#
# "The difference was not significant" is the usual sentence, and it is true of every study that is small
# enough. To show that an alert is as safe for one group as for another takes an equivalence test: a margin
# chosen in advance, enough patients, and an interval inside the margin. This page plans such a study,
# runs it on simulated patients, and shows what no number of patients can prove.

# %% [markdown]
# ## The question
#
# A hospital network wants to adopt an alert for patients who deteriorate on the ward. In earlier work it
# found 85% of them (sensitivity) and left 75% of the others in peace (specificity). Patients of ethnic
# minorities are 20% of admissions, and 20% of them deteriorate, against 12% of the majority. The
# ethics board asks for evidence that the alert works as well for them.

# %% [markdown]
# ## No significant difference is not fairness
#
# Suppose the alert does *not* work as well: it finds 73% of the deteriorating minority patients, not 85%.
# A pilot looks at 600 patients.

# %%
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import cfair
from cfair.datasets import Covariate, Design

fair = Design(
    name="deterioration alert",
    attributes={"ethnicity": ("majority", "minority")},
    shares=(0.8, 0.2),
    prevalence=(0.12, 0.20),
    cfpr=(0.23, 0.27),
    cfnr=(0.15, 0.15),
    covariates=(
        Covariate("age", 0.5, 0.4, (0.0, -0.4), 0.4, centre=65, scale=12, decimals=0),
        Covariate("lactate", 0.6, 0.5, (0.0, 0.1), 0.4, centre=1.6, scale=0.5, decimals=1),
    ),
    treatment_intercept=(-20.0, -20.0),  # no rapid response team yet
    treatment_flag=1.2,
    outcome="deteriorated",
    score="risk",
    treatment="team",
    flag="alert",
)
unfair = replace(fair, cfnr=(0.15, 0.27))


def study(design, n, seed, treatment=None):
    """An audit of n simulated patients, without what no study sees."""
    cohort = cfair.simulate_cohort(n, seed=seed, design=design)
    cohort = cohort.drop(columns=["deteriorated_untreated", "deteriorated_treated"])
    return cfair.Audit(
        cohort,
        outcome="deteriorated",
        score="risk",
        cutoff=0.5,
        groups="ethnicity",
        treatment=treatment,
    )


small = study(unfair, n=600, seed=1)
difference = small.observed().contrasts(reference="majority", metrics="tpr")
difference[["metric", "group", "reference", "estimate", "ci_low", "ci_high", "p_value"]].round(3)

# %% [markdown]
# The sensitivity is 18 points lower, and p is 0.10. "No significant difference" would be a correct
# sentence about a harmful alert. It is no accident of this pilot. Of thirty like it:

# %%
missed = []
for seed in range(30):
    found = study(unfair, n=600, seed=seed).observed()
    missed.append(found.contrasts(reference="majority", metrics="tpr")["p_value"].iloc[0] > 0.05)
print(
    f"p > 0.05 in {np.mean(missed):.0%} of the pilots, though the sensitivities are 0.85 and 0.73"
)

# %% [markdown]
# The test answers another question. Its null hypothesis is that the rates are *equal*, and data too few
# to reject it support nothing [@altman1995]. To prove equivalence, let the null hypothesis be that the
# rates *differ by more than a margin*. With the ratio $\rho = r_g / r_{\text{ref}}$ and the margin
# $(\rho_L, \rho_U)$,
#
# $$H_0: \rho \le \rho_L \ \text{ or }\ \rho \ge \rho_U \qquad\text{against}\qquad
# H_1: \rho_L < \rho < \rho_U .$$
#
# Each of its two halves is tested at level $\alpha$, and equivalence is concluded if both are
# rejected [@schuirmann1987]. That is so exactly if the interval of level $1 - 2\alpha$ lies inside the
# margin: 90% for $\alpha = 0.05$. In a small study the interval is wide, and nothing is concluded. Here
# ignorance works against the claim of fairness.

# %% [markdown]
# ## The margin, in patients
#
# The margin is a clinical and ethical judgement, made before the data are seen. It is easier to make in
# patients. The board says: *of 100 deteriorating patients, no more than 8 may be missed beyond the 15
# who are missed anyway.* Likewise, of 100 others, no more than 8 may be disturbed beyond 25.

# %%
margin = {
    "sensitivity": cfair.margin_from_patients(8, rate=0.85),
    "specificity": cfair.margin_from_patients(8, rate=0.75, metric="specificity"),
}
for metric, (low, high) in margin.items():
    print(f"{metric}: ratio from {low:.3f} to {high:.3f}")
print(cfair.margin_in_patients(margin["sensitivity"], rate=0.85)[2])

# %% [markdown]
# The upper end is the inverse of the lower, so that it does not matter which group is the reference. The
# common four-fifths rule, 0.8 to 1.25, would accept 17 more missed in 100. It is a convention, not a
# judgement of harm.
#
# A ratio of sensitivities and a ratio of false negative rates are different questions. Sensitivities of 0.85 and 0.77 have a ratio of 0.91; the false negative rates
# 0.15 and 0.23 have a ratio of 1.53. Differences are the same for both, up to sign. Say which you mean.

# %% [markdown]
# ## How many patients?
#
# Sensitivity rests on those who deteriorate. So of $N$ patients only $N \cdot 0.2 \cdot 0.2$ count in the
# minority, and $N \cdot 0.8 \cdot 0.12$ in the majority. `method="score"` plans for the test that an
# audit of counts uses [@farrington1990; @miettinen1985].

# %%
expected = {
    "share": 0.20,
    "prevalence": 0.20,
    "reference_prevalence": 0.12,
    "sensitivity": 0.85,
    "specificity": 0.75,
}
needed = cfair.equivalence_sample_size(list(margin), margin=margin, method="score", **expected)
print(needed)

# %% alt="Power against the number of patients. Specificity reaches 80% power near 1,700 patients. Sensitivity rises from almost no power at 2,000 to 80% near 5,700."
fig, ax = plt.subplots(figsize=(7, 4))
needed.plot_power((500, 9_000), ax=ax)
fig.tight_layout()

# %% [markdown]
# Sensitivity decides. Power is zero, not small, as long as the interval is expected to be wider than the
# margin. What if things are otherwise than expected? Arrays give a row each: the true sensitivity of the
# reference, and the share of the group.

# %%
scenarios = cfair.equivalence_sample_size(
    "sensitivity",
    margin=margin["sensitivity"],
    method="score",
    **{**expected, "share": [0.05, 0.2, 0.5, 0.2, 0.2]},
    reference_sensitivity=[0.85, 0.85, 0.85, 0.83, 0.87],
)
scenarios.frame[
    ["share", "sensitivity", "reference_sensitivity", "value", "n", "size", "reference_size"]
].round(3)

# %% [markdown]
# `size` and `reference_size` are the expected numbers with the event. Sampling as many minority patients
# as others saves a quarter of the patients; a group of 5% needs three times as many. A true difference of
# 2 points, well inside the margin, costs another fifth to a third.
#
# With more than two groups, *all pairs* have to be equivalent. That needs no correction of p-values, since
# every test has to succeed [@berger1996]. But the power is that of the smallest groups, and less.
#
# If there is no more data to be had, the question is turned round: which margin can 2,500 patients show?

# %%
print(
    cfair.equivalence_margin(
        "sensitivity",
        n=2_500,
        method="score",
        **{k: v for k, v in expected.items() if k != "specificity"},
    )
)

# %% [markdown]
# To *detect* a gap is another design. With 80% power, a true gap of 8 points is found by a test of
# equality with this many patients [@singh2023]:

# %%
print(
    cfair.gap_sample_size(
        "sensitivity",
        sensitivity=[0.85, 0.77],
        prevalence=[0.12, 0.20],
        groups=["majority", "minority"],
        allocation=[0.8, 0.2],
    )
)

# %% [markdown]
# A study of this size that finds nothing has still proved nothing by its p-value. Its interval may.

# %% [markdown]
# ## What no number of patients can show
#
# Predictive values depend on the prevalence. By Bayes' rule, with prevalence $p$, sensitivity
# $\text{Se}$ and specificity $\text{Sp}$,
#
# $$\text{PPV} = \frac{p\,\text{Se}}{p\,\text{Se} + (1-p)(1-\text{Sp})},
# \qquad\text{that is}\qquad
# 1 - \text{Sp} = \frac{p}{1-p}\;\frac{1-\text{PPV}}{\text{PPV}}\;\text{Se} .$$
#
# If $p$ differs between groups and PPV is equal, then $\text{Se}$ and $\text{Sp}$ cannot both be equal,
# save for a perfect alert [@chouldechova2017; @kleinberg2017]. So the board has to choose *which* rates
# are to be equal. The plan says it in numbers. A margin of 0.8 to 1.25 for all eight:

# %%
plan = cfair.equivalence_plan(6_000, method="score", **expected)
print(plan)

# %% [markdown]
# PPV cannot be shown equivalent with any $N$: with the *same* sensitivity and specificity it is 0.46
# against 0.32. The second table says for which prevalences it could. Two more rows deserve a look. The
# FNR needs very many patients, since a ratio of small rates is hard to pin down. And NPV comes for free,
# since it is near 1 in both groups: easy to prove, and worth little.

# %% alt="Ratio of positive predictive values, group to reference, against the prevalence in the group, for one sensitivity and specificity in both groups. The curve crosses the band of 0.8 to 1.25 between prevalences of about 0.09 and 0.16, and is at 1.45 at the expected prevalence of 0.20."
p = np.linspace(0.03, 0.35, 200)


def ppv(p, se=0.85, sp=0.75):
    """Positive predictive value."""
    return p * se / (p * se + (1 - p) * (1 - sp))


fig, ax = plt.subplots(figsize=(7, 3.6))
ax.axhspan(0.8, 1.25, color="0.9", label="margin 0.8 to 1.25")
ax.plot(p, ppv(p) / ppv(0.12), color="C0")
ax.plot(0.20, ppv(0.20) / ppv(0.12), "o", color="C3", label="expected")
ax.set(xlabel="Prevalence in the minority (0.12 in the majority)", ylabel="Ratio of PPV")
ax.legend(frameon=False, loc="upper left")
for side in ("top", "right"):
    ax.spines[side].set_visible(False)
fig.tight_layout()

# %% [markdown]
# ## The study
#
# The network includes 6,000 patients. In truth, which only we know, sensitivity is 0.85 in both groups and
# specificity 0.77 against 0.73.

# %%
main = study(fair, n=6_000, seed=20)
margin["ppv"] = (0.8, 1.25)
result = main.equivalence(list(margin), margin=margin, reference="majority")
print(result)

# %% alt="Ratios of minority to majority with 90% intervals, each before its shaded margin. Sensitivity and specificity lie inside their margins, PPV lies to the right of its margin."
fig, ax = plt.subplots(figsize=(7, 3.2))
result.plot(ax=ax)
fig.tight_layout()

# %%
difference = main.observed().contrasts(reference="majority", metrics=["tpr", "tnr", "ppv"])
difference[["metric", "group", "reference", "estimate", "ci_low", "ci_high", "p_value"]].round(4)

# %% [markdown]
# Three verdicts, none of which follows from the p-values of equality beside them.
#
# - **Sensitivity: equivalent.** The 90% interval of the ratio, 0.94 to 1.05, lies inside 0.906 to 1.104.
#   Here p = 0.95 of equality would have said nothing.
# - **Specificity: equivalent, and significantly different.** With 5,000 patients a difference of 3 points is
#   found (p = 0.04). It is inside the margin: the alert disturbs a few more minority patients, but not so
#   many that the board minds. Both sentences are true, and both belong in the report.
# - **PPV: different**, beyond the margin, as the plan foretold. It does not mean that the alert is worse for
#   one group. It follows from the prevalences, and nobody can make it go away at equal sensitivity and
#   specificity.
#
# Two more verdicts are possible. "Not enough data" means that the interval straddles an end of the margin;
# "no power", that it is so wide that it could not have fitted in wherever it lay. Neither is a verdict of
# fairness. This is the pilot of the beginning:

# %%
columns = ["metric", "n", "n_reference", "estimate", "ci_low", "ci_high", "p_value", "verdict"]
tested = small.equivalence("sensitivity", margin=margin["sensitivity"], reference="majority")
tested.pairs[columns].round(3)

# %% [markdown]
# ## Had nobody been treated
#
# Two years later a rapid response team attends many of the patients who are flagged, and prevents half of
# the events. The observed sensitivity now mixes the alert and the team: an alert that leads to good care
# looks wrong. The question goes to the rates had nobody been treated [@wastvedt2023; @coston2020]. The
# result of `counterfactual` has the same verb, `equivalence`. We ask for a difference, since cFNR is a
# small rate: 8 in 100 again.

# %%
treated = replace(fair, treatment_intercept=(-1.6, -2.0))
later = study(treated, n=6_000, seed=14, treatment="team")
weighted = later.counterfactual("team ~ ethnicity + alert + age + lactate")
shown = weighted.equivalence(
    "cfnr", contrast="difference", margin=(-0.08, 0.08), reference="majority"
)
print(shown)

# %% [markdown]
# The test is Wald's, with the standard error of the weighted estimate, and the estimate rests on the
# untreated: some 70% of the patients, and fewer of those who are flagged. How many patients does that take? The
# planning functions count whole patients, so take the standard error $s_0$ of the difference from a pilot
# of $N_0$ patients. It shrinks with $\sqrt{N}$. If the rates are in truth equal and the margin is
# $\pm\delta$, equivalence is shown with power $1 - \beta$ by about
#
# $$N = N_0 \left(\frac{s_0}{\delta}\right)^2 (z_{1-\alpha} + z_{1-\beta/2})^2 .$$

# %%
z = norm.ppf(0.95) + norm.ppf(0.90)
n0 = 2_500
planned = []
for seed in range(15, 20):
    pilot = study(treated, n=n0, seed=seed, treatment="team")
    pilot = pilot.counterfactual("team ~ ethnicity + alert + age + lactate")
    s0 = pilot.contrasts(reference="majority", metrics="cfnr")["se"].iloc[0]
    planned.append(n0 * (s0 / 0.08) ** 2 * z**2)
print("with a team, by five pilots:", ", ".join(f"{n:,.0f}" for n in sorted(planned)))

untreated = cfair.equivalence_sample_size(
    "sensitivity",
    contrast="difference",
    margin=(-0.08, 0.08),
    share=0.20,
    prevalence=0.20,
    reference_prevalence=0.12,
    sensitivity=0.85,
)
print(f"without a team:              {untreated.values:,.0f}")

# %% [markdown]
# A treatment in the way costs a quarter more patients or so. How much depends on how many are treated and
# how well covariates predict the outcome, and one pilot of this size is a rough guide to it: so take more
# than one point estimate, or the upper end of an interval for $s_0$.

# %% [markdown]
# ## How to report it
#
# > Fairness was defined in advance as equivalence of sensitivity and specificity between minority and
# > majority patients. The ethics board set the margins in patients: no more than 8 more in 100 missed
# > (ratio of sensitivities within 0.906 to 1.104) and no more than 8 more in 100 disturbed (ratio of
# > specificities within 0.893 to 1.119). Two one-sided score tests at 5% each, with 80% power if the
# > sensitivity is 0.85 in both groups, needed 5,712 patients; 6,000 were included, of whom 248 minority
# > and 555 majority patients deteriorated. Sensitivity was equivalent (ratio 1.00, 90% CI 0.94 to 1.05;
# > TOST p = 0.004), and so was specificity (0.96, 0.93 to 0.99; p < 0.001), although it was lower in minority
# > patients by 3 points (95% CI 0 to 6; p = 0.04). Positive predictive values were not expected to be
# > equivalent, since the prevalence differs, and were not (ratio 1.41, 90% CI 1.27 to 1.56). No conclusion
# > of fairness is drawn from non-significant differences.
