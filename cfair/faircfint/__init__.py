"""Scripts of the R package faircfint, ported by changing the import.

`analysis_estimation` takes the R function's arguments and gives its outputs by their names;
`get_pa_ext_small`, `get_plots`, `get_bs_rescaled`, `ci_norm`, `ci_tint` and `ci_trunc` go with it.
With ``compat=True``, the default, all figures are those of version 0.0.0.9000 (c85c934). With
``compat=False`` the same question is put to `cfair.Audit`, and the figures are those that cfair
thinks right.

What differs. Sizes are those on the recorded data: 2,000 rows in four groups, and for small groups
1,500 rows in six.

====================== ======================== ========================= =========================
what                   compat=True, as in R     compat=False              size
====================== ======================== ========================= =========================
propensity refitted in main effects of pi_xvars the model of the estimate null: mean of cFPR off by
replicates             whatever pi_model is                               .008, of cFNR by .015;
..                                                                        subsamples centred off by
..                                                                        up to .04
bootstrap              n^m_factor rows without  all rows with replacement FPR and FNR do not vary at
..                     replacement within       within group; with        all; standard errors of
..                     group, Y and S           external data throughout  cFNR .019 to .024, not
..                                                                        .035 to .046
"t" interval           its standard error       influence functions,      too wide by sqrt(n/m), 2.6
..                     cancels: the basic       Wilson on the effective   at n = 2,000: half-widths
..                     interval at the scale    size; of small groups     of cFPR .09 to .17, not
..                     of n^m_factor rows       from the bootstrap        .05 to .10
rates of exactly 0 or  leave average, maximum   stay                      maximum .090 instead of
1                      and variance                                       .204 where one rate is 0;
..                                                                        a group of 50 leaves over
..                                                                        80% of the subsamples, and
..                                                                        7% have no summary of cFPR
maximum of no pair     minus infinity, evidence undefined, left out       two groups, one without
..                     in a u-value             and counted               events: -inf
an undefined rate of a makes all summaries      leaves the pairs
small group            undefined
u-values               one delta for all; 0 is  the variance takes the    share of var_neg for a
..                     shown as <0.001          square of delta           delta of .02: 0, not .30
external covariates    standardised in fitting, one scaling for both      alpha .199 and .213; rates
..                     not in prediction, with                            of small groups by up to
..                     a warning where their                              .045. One of four as 60 +-
..                     mean and standard                                  10 instead of .6 +- .8:
..                     deviation are not about                            alpha .004 and .19, Brier
..                     0 and 1                                            score of the model outside
..                                                                        1.53 and .74, rates .05
membership             cut, not brought back to cut and brought back      sums up to 1.0045; rates
probabilities          a sum of 1                                         by less than .0001
alpha by AUC           one search from 0 to 1   best of a grid, improved  .282 and .306 (R: .276; a
..                                              upon                      step function)
folds of replicates    drawn anew in each       kept                      standard deviation over
..                                                                        30 draws of folds: cFNR
..                                                                        .0006 to .0045, cFPR .0001
..                                                                        to .0014; see below
missing values         complete rows over all   rows complete in the      15 of 2,000 rows lost to a
..                     columns; refused in Y    columns in use            column nobody uses: cFPR
..                     and D, where R stops                               .201 instead of .204
coding of Y and D      the smaller of two       0/1 or True/False only    10 for none and 2 for an
..                     numbers is 0, with a                               event: FPR .649 instead of
..                     warning                                            .300
factors, text, -1/0    refused: R gives wrong   refused; a Categorical of cFPR .674 and .657
..                     figures, or stops        the numbers 0 and 1 is    instead of .188
..                                              read as such
order of groups        labels as text, in R's   numbers as numbers, the   10 before 9
..                     collation                order of a Categorical
labels alike when      figures with the same    " & " between levels      a rate of 1.73 instead of
pasted, or sorted      name; refused where R                              .567 where labels sort
otherwise              stops or is wrong                                  otherwise
one attribute          A2 must be 1, or it is   any constant, or no A2,   all rates undefined
..                     refused                  alike in external data
groups without rows,   undefined; of small      undefined; of small       R stops
of one row             groups refused           groups, one row refused
A1 constant, A2 of two refused for small groups estimated                 cFNR .557, not .523
levels
random forests         refused, where R stops   out of fold
scores beyond 0 and 1  cut at the cutoff, with  refused
..                     a warning
====================== ======================== ========================= =========================

The same in both, other than in R: an attribute that holds numbers is a factor in a formula, where
R's ``glm`` takes the numbers (a fitted result predicts on the columns as they came). Models are
fitted to the maximum of the likelihood, which R's ``multinom`` misses by up to 2e-5 in a rate (1e-4
in a replicate). Networks are those of scikit-learn. A replicate that would stop R, such as one
without a group, is undefined and counted; a constant covariate of membership, at which R stops, is
left out with a note. Intervals take at least 40 replicates, not all equal. There is a seed.

Folds are drawn, and rates of small groups and alpha depend on the draw. On the recorded data, whose
smallest group has 50 rows, 30 draws move rates by the standard deviations above, and alpha between
.14 and .30. A tiny group is moved by more: of 10 rows of these data by .017, elsewhere by .03 with
alpha from .13 to .39. Average over seeds, or give `folds`, where that matters. Rows are shuffled by
what they hold: the same seed gives other folds once a covariate is rescaled.

In the null of borrowing, external probabilities keep their relation to the covariates, as in R, and
alpha is chosen anew: .15 to .28 in the null and .38 to 1 in subsamples, where the estimate has .19.
Figures show the summaries of small groups too, whatever the labels are, and of two groups, at which
R stops.
"""

from __future__ import annotations

from cfair.faircfint.estimation import analysis_estimation
from cfair.faircfint.external import ExternalModel, get_pa_ext_small
from cfair.faircfint.intervals import ci_norm, ci_tint, ci_trunc, get_bs_rescaled
from cfair.faircfint.plots import Plots, get_plots
from cfair.faircfint.results import AnalysisResult

__all__ = [
    "AnalysisResult",
    "ExternalModel",
    "Plots",
    "analysis_estimation",
    "ci_norm",
    "ci_tint",
    "ci_trunc",
    "get_bs_rescaled",
    "get_pa_ext_small",
    "get_plots",
]
