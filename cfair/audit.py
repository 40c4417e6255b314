"""The audit: data and question, declared once and checked once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cfair.cohort import Cohort, declare, make_cohort
from cfair.roles import Declared, Roles

if TYPE_CHECKING:
    import numpy as np

    from cfair.results.counterfactual import CounterfactualResult
    from cfair.results.observed import ObservedResult


class Audit:
    """The question whether a risk score is fair to every group, and the data to answer it.

    The declaration is checked here, before any analysis: types, ranges, missing values, roles.

    Parameters
    ----------
    data : data frame
        pandas, polars, pyarrow, a duckdb relation, or a dict of arrays; a row is a patient. It is
        never changed.
    outcome : name or array
        The event under study: 0/1, True/False, or anything with `outcome_event`.
    score : name or array, optional
        The risk score under audit, real, in [0, 1]; needs `cutoff`.
    cutoff : float, optional
        The call is S = 1 if ``score >= cutoff``; a score at the cutoff counts as positive.
    prediction : name or array, optional
        A ready 0/1 call in place of the cutoff.
    groups : name, or sequence of names or arrays
        The protected attributes, one or more; they are crossed.
    treatment : name or array, optional
        Treatment, 0/1 or True/False, or anything with `treatment_event`. The left side of a
        propensity formula may name it instead.
    cluster : name or array, optional
        Rows with the same value, a hospital say, are not independent.
    weights : name or array, optional
        Sampling weights: for how many people a row stands. Non-negative and of any scale, since
        only their ratios count. A row of weight 0 is counted in ``n`` and carries nothing else.
        Rates are weighted, and their standard errors those of linearization, with the weights as
        known and the rows, or the clusters, as independent.
    outcome_event, treatment_event : optional
        The value that counts as 1. Never guessed.
    missing : {"raise", "drop", "level"}, default "raise"
        Missing values in a column that an analysis uses: refuse them, drop the rows (the result
        counts them by column and group), or make them a level of a group attribute.
    min_group_size : int, optional
        Groups with fewer rows are warned of.
    small_groups : {"warn", "drop"}, default "warn"
        Whether groups below `min_group_size` stay.

    Raises
    ------
    DataError
        If the data do not fit the declaration; the message names column, rows and what to do.

    Examples
    --------
    >>> import cfair
    >>> audit = cfair.Audit(
    ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5,
    ...     groups=["sex", "race"],
    ... )
    >>> audit
    Audit of risk >= 0.5 for readmitted, by sex x race (6 groups, 5,000 rows)
    """

    def __init__(
        self,
        data: Any,
        *,
        outcome: Any,
        groups: Any,
        score: Any = None,
        cutoff: float | None = None,
        prediction: Any = None,
        treatment: Any = None,
        cluster: Any = None,
        weights: Any = None,
        outcome_event: Any = None,
        treatment_event: Any = None,
        missing: str = "raise",
        min_group_size: int | None = None,
        small_groups: str = "warn",
    ) -> None:
        self._declared: Declared = declare(
            data,
            Roles(
                outcome=outcome,
                groups=groups,
                score=score,
                cutoff=cutoff,
                prediction=prediction,
                treatment=treatment,
                cluster=cluster,
                weights=weights,
                outcome_event=outcome_event,
                treatment_event=treatment_event,
                missing=missing,
                min_group_size=min_group_size,
                small_groups=small_groups,
            ),
        )

    def cohort(self, columns: Sequence[str] = ()) -> Cohort:
        """The rows of an analysis as checked arrays.

        Parameters
        ----------
        columns : sequence of str, optional
            Further columns that the analysis uses; their missing values count too.

        Returns
        -------
        Cohort
        """
        return make_cohort(self._declared, columns)

    def observed(
        self,
        *,
        level: float = 0.95,
        interval: str = "wilson",
        aggregate_interval: str = "tie-aware",
    ) -> ObservedResult:
        """Observed rates by intersectional group and by attribute.

        Prevalence, selection rate, sensitivity (TPR), FPR, specificity (TNR), FNR, PPV, NPV, FDR,
        FOR, accuracy, balanced accuracy and F1, with intervals, contrasts, tests of equality and
        summaries of the differences. What treatment does to the outcome is in these rates; see
        `counterfactual`.

        Parameters
        ----------
        level : float, default 0.95
            Confidence level.
        interval : {"wilson", "clopper-pearson", "agresti-coull"}, default "wilson"
        aggregate_interval : {"tie-aware", "projection"}, default "tie-aware"
            Interval of average and maximum difference.

        Returns
        -------
        ObservedResult

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> rates = audit.observed().rates.set_index(["metric", "group"])
        >>> rates.loc["fpr", ["n", "denominator", "estimate"]].round(3)
                  n  denominator  estimate
        group
        F      2670         2044     0.262
        M      2330         1869     0.251
        """
        from cfair.analyses.observed import observed

        return observed(
            self.cohort(),
            level=level,
            interval=interval,
            aggregate_interval=aggregate_interval,
        )

    def counterfactual(
        self,
        propensity: Any = None,
        *,
        outcome_model: Any = None,
        estimator: str | None = None,
        folds: Any = None,
        level: float = 0.95,
        interval: str = "wilson",
        aggregate_interval: str = "tie-aware",
        truncation: tuple[float, float] | None = (0.005, 0.995),
        n_boot: int | None = None,
        bootstrap: str | None = "auto",
        resamples: Any = None,
        n_perm: int | None = None,
        permutations: Any = None,
        u_delta: float = 0.1,
        cluster: Any = None,
        seed: int | np.random.SeedSequence | np.random.Generator | None = 0,
        n_jobs: int | None = 1,
        exact: bool = False,
        progress: bool = False,
    ) -> CounterfactualResult:
        """Error rates had nobody been treated: weighted, doubly robust, or by an outcome model.

        cFPR is the share flagged among those who would have had no event without treatment, cFNR
        the share missed among those who would have had one. They need consistency, no unmeasured
        confounding of treatment given the variables of the models, and positivity. The models have
        to contain the score and the attributes.

        Parameters
        ----------
        propensity : str, Learner, array or fitted statsmodels result
            A patsy formula such as ``"treated ~ sex * race + risk + age"``, whose left side names
            the treatment; a `Learner`; the name of a column of probabilities; the probabilities,
            one per row; or a fitted binary-response result. Not needed for ``"plugin"``.
        outcome_model : str, Learner, array or fitted statsmodels result, optional
            The same for the outcome, such as ``"readmitted ~ sex * race + risk + age"``. Fitted on
            the untreated; on all rows, and predicted with treatment set to none, if the treatment
            is among its terms.
        estimator : {"ipw", "aipw", "plugin"}, optional
            Inverse probability weighting; augmented weighting, right if one of the two models is
            right, the default with an outcome model; or the outcome model alone.
        folds : int, name or array, optional
            Predict out of fold: the number of folds, drawn within groups (clusters are kept whole),
            or the fold of each row. By default 5 with a learner, else none.
        level : float, default 0.95
            Confidence level.
        interval : {"wilson", "logit", "plain"}, default "wilson"
            Interval of a rate. Wilson's is on the effective size and covers well in small groups.
        aggregate_interval : {"tie-aware", "projection"}, default "tie-aware"
            Interval of average and maximum difference.
        truncation : (float, float) or None, default (0.005, 0.995)
            Limits to which propensities are cut, once, everywhere.
        n_boot : int, optional
            Bootstrap replicates, beside the influence-function intervals; none by default.
        bootstrap : {"auto", "group", "cluster", "faircfint"} or None, default "auto"
            Rows with replacement within group, clusters with replacement, or the scheme of the R
            package for comparison. By default clusters if there are any, else rows within group.
        resamples : sequence of arrays of int, optional
            Row numbers of each bootstrap replicate, instead of drawing.
        n_perm : int, optional
            Permutations of the group labels; none by default.
        permutations : (R, n) array of int, optional
            Row i of replicate r gets the labels of row ``permutations[r, i]``.
        u_delta : float, default 0.1
            Delta of the u-values of average and maximum; the variance takes its square.
        cluster : name or array, optional
            In place of the declared one.
        seed : int, SeedSequence, Generator or None, default 0
            Of everything random. The same seed gives the same numbers for any `n_jobs`, any order
            of the rows and any names of the groups.
        n_jobs : int or None, default 1
            Workers for the replicates, as in joblib.
        exact : bool, default False
            Refit the propensity to convergence in every replicate, also where a shortcut is exact
            to a fraction of a standard deviation.
        progress : bool, default False
            Show a bar when the replicates take longer than a second.

        Returns
        -------
        CounterfactualResult

        Raises
        ------
        DataError, FormulaError
            If data or formula cannot be used; before any long work.
        ValueError
            For an option that is not allowed.

        References
        ----------
        Wastvedt S, Huling JD, Wolfson J (2023). An intersectional framework for counterfactual
        fairness in risk prediction. Biostatistics, kxad021.

        Mishler A, Kennedy EH, Chouldechova A (2021). Fairness in risk assessment instruments:
        post-processing to achieve counterfactual equalized odds. FAccT 2021, 386-400.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> result = audit.counterfactual("treated ~ sex * race + risk + age + sbp")
        >>> result.test_equal()[["metric", "df"]]
          metric  df
        0   cfpr   1
        1   cfnr   1
        2    fpr   1
        3    fnr   1
        """
        from cfair.analyses.counterfactual import counterfactual
        from cfair.analyses.replicates import check_replicates
        from cfair.analyses.treatment import read_counterfactual

        replicates = check_replicates(
            n_boot=n_boot,
            n_perm=n_perm,
            bootstrap=bootstrap,
            resamples=resamples,
            permutations=permutations,
            seed=seed,
            n_jobs=n_jobs,
            exact=exact,
            progress=progress,
        )
        request = read_counterfactual(self._declared, propensity, outcome_model, estimator, folds)
        return counterfactual(
            make_cohort(
                self._declared,
                request.columns,
                outcome=request.left_of("outcome"),
                treatment=request.left_of("propensity"),
                cluster=cluster,
                also_missing=request.missing,
            ),
            request,
            replicates,
            level=level,
            interval=interval,
            aggregate_interval=aggregate_interval,
            truncation=truncation,
            u_delta=u_delta,
        )

    def __repr__(self) -> str:
        declared = self._declared
        groups = self.cohort().groups
        assert declared.outcome is not None
        text = (
            f"Audit of {declared.rule} for {declared.outcome.name}, by "
            f"{' x '.join(groups.attributes)} ({groups.n_groups:,} groups, "
            f"{declared.table.n_rows:,} rows)"
        )
        return "".join(c if c.isprintable() else " " for c in text)
