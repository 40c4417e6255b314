"""The audit: data and question, declared once and checked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from cfair.cohort import Cohort, declare, make_cohort, rounded_cohort
from cfair.disclosure import check_base, check_below
from cfair.errors import DataError
from cfair.roles import Declared, Roles

if TYPE_CHECKING:
    import numpy as np

    from cfair.results.counterfactual import CounterfactualResult
    from cfair.results.equivalence import EquivalenceResult
    from cfair.results.equivalence_question import Margin
    from cfair.results.group_intervention import GroupInterventionResult
    from cfair.results.interaction import InteractionResult
    from cfair.results.observed import ObservedResult
    from cfair.results.performance import PerformanceResult
    from cfair.results.representation import RepresentationResult
    from cfair.results.small_subgroups import SmallSubgroupResult
    from cfair.results.table_one import TableOneResult

P = ParamSpec("P")
R = TypeVar("R")


def _recorded(verb: Callable[P, R]) -> Callable[P, R]:
    """A verb whose result keeps the call that made it, for the report."""

    @wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        from cfair.results.calls import record_call

        result = verb(*args, **kwargs)
        record_call(result, f"audit.{verb.__name__}", verb, args, kwargs)
        return result

    return call


class Audit:
    """The question whether a risk score is fair to every group, and the data to answer it.

    The declaration is checked here, before any analysis: types, ranges, missing values, roles.

    Parameters
    ----------
    data : data frame
        pandas, polars, pyarrow, a duckdb relation, or a dict of arrays; a row is a patient. It is
        never changed. A lazy table (duckdb, polars, Spark, and others that narwhals reads) is
        counted in its own engine for what needs counts only, as `observed` does, unless there are
        clusters or weights; its rows are collected when an analysis needs them.
    outcome : name or array
        The event under study: 0/1, True/False, or anything with `outcome_event`.
    groups : name, or sequence of names or arrays
        The protected attributes, one or more; they are crossed.
    score : name or array, optional
        The risk score under audit, real, in [0, 1]; needs `cutoff`.
    cutoff : float, optional
        The call is S = 1 if ``score >= cutoff``; a score at the cutoff counts as positive.
    prediction : name or array, optional
        A ready 0/1 call in place of the cutoff.
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
    outcome_event, treatment_event : value, or list of values, optional
        What counts as 1, such as "yes" or ["yes", "y"]. Never guessed.
    missing : {"raise", "drop", "level"}, default "raise"
        Missing values in a column that an analysis uses: refuse them, drop the rows (the result
        counts them by column and group), or make them a level of a group attribute.
    min_group_size : int, optional
        Groups with fewer rows are warned of. With `suppress_below` it counts as no less than that,
        and no note names a group whose number of rows is masked at another limit.
    small_groups : {"warn", "drop"}, default "warn"
        Whether groups below `min_group_size` stay.
    suppress_below : int, optional
        Disclosure control: in every result of this audit counts of 1 to ``suppress_below - 1``
        rows are masked, and further counts so that no masked one is a sum or difference of what is
        shown; a rate is shown where its numerator, its denominator and their difference may be.
        11 is the rule of CMS, 20 that of All of Us. A count of 0 is shown. By default nothing is
        masked. See `cfair.disclosure` for what is protected. Masks are of one set of rows and one
        call: results of overlapping rows (a filter, other missing values), of another cutoff or
        rule, or of tables of other covariates are not protected against each other, and somebody
        who has both can subtract one from the other. Each result says so. And patients behind
        `cohort`, propensities, other values by row, and pickles, which hold them, are for the
        analyst only. So are errors and warnings, which tell whoever has the data how many rows are
        wrong, small numbers too: they are in no result.
    round_counts_to : int, optional
        Disclosure control: rows by group, outcome and call are rounded to multiples of it, 5 or 10
        say, and all results are computed from these counts, so that whoever has them all knows no
        count more closely than to half of it, while sums agree with their parts. Rates shift a
        little, those of small groups more. Only for what needs counts: `observed`, `interaction`,
        `equivalence`, `representation` and their report; other verbs refuse, and so do weights and
        clusters. With `suppress_below`, rounded counts below that are masked.
    complete : name or sequence of names, optional
        Further columns, such as those of a formula, whose missing values count in every analysis as
        those of a role do, so that all results are of the same rows. Under `suppress_below` results
        of other rows could be subtracted, and a report leaves them out.

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
        suppress_below: int | None = None,
        round_counts_to: int | None = None,
        complete: str | Sequence[str] = (),
    ) -> None:
        self._complete = [complete] if isinstance(complete, str) else list(complete)
        self._counted: Declared = declare(
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
                suppress_below=check_below(suppress_below),
                round_counts_to=check_base(round_counts_to),
            ),
            count=not self._complete,  # by these columns too there would be too many counts
        )
        if self._complete:
            self._counts()  # refuses what is missing, or not there

    @cached_property
    def _declared(self) -> Declared:
        base = self._counted.roles.round_counts_to
        if base is not None:
            raise DataError(
                f"this analysis needs the rows, and with round_counts_to={base} there are only "
                "rounded counts: observed, interaction, equivalence and representation work. For "
                "others make an Audit with suppress_below= in its place."
            )
        return self._counted.in_rows()

    def _counts(self) -> Cohort:
        """What verbs need that can do with counts by outcome, call and group."""
        base = self._counted.roles.round_counts_to
        cohort = make_cohort(self._counted, self._complete)
        return cohort if base is None else rounded_cohort(cohort, base)

    def cohort(self, columns: Sequence[str] = ()) -> Cohort:
        """The rows of an analysis as checked arrays.

        Parameters
        ----------
        columns : sequence of str, optional
            Further columns that the analysis uses; their missing values count too.

        Returns
        -------
        Cohort

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex",
        ...     missing="drop",
        ... )
        >>> audit.cohort().n_used, audit.cohort(["bmi"]).n_used
        (5000, 4962)
        """
        return make_cohort(self._declared, [*self._complete, *columns])

    @_recorded
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
            self._counts(),
            level=level,
            interval=interval,
            aggregate_interval=aggregate_interval,
        )

    @_recorded
    def equivalence(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        margin: Margin | Mapping[str, Margin] | None = None,
        contrast: str = "ratio",
        reference: Any = None,
        attribute: str | None = None,
        alpha: float = 0.05,
        method: str = "auto",
        adjust: str | None = None,
    ) -> EquivalenceResult:
        """Whether groups are equivalent in observed rates: two one-sided tests of every pair.

        Other results have the same verb: ``audit.counterfactual(...).equivalence("cfpr")`` asks it
        of the rates had nobody been treated, ``audit.performance().equivalence("auc", ...)`` of
        the quality of the score.

        Parameters
        ----------
        metrics : str or sequence of str, optional
            Any observed rates; selection rate, TPR, FPR and PPV by default. ``"sensitivity"`` and
            ``"specificity"`` are read as ``"tpr"`` and ``"tnr"``.
        margin : (float, float), float, or mapping of metric to such a margin, optional
            Within what the contrast counts as no difference: to be chosen for the case, before the
            data are seen. By default (0.8, 1.25) for ratios and odds ratios; a difference needs
            one, and one number d is (-d, d) there.
        contrast : {"ratio", "odds_ratio", "difference"}, default "ratio"
            Of the rate of a group to that of its reference.
        reference : label, optional
            Group that all others are compared with, or ``"overall"``. All pairs by default.
        attribute : str, optional
            Compare the levels of this attribute instead of the intersectional groups.
        alpha : float, default 0.05
            Size of each one-sided test; the interval that decides has level 1 - 2 alpha.
        method : {"auto", "score", "wald"}, default "auto"
            Score tests where rates are counts of independent rows, and Wald tests where there are
            weights or clusters; or one of the two throughout.
        adjust : str or None, default None
            How p-values and verdicts are adjusted over all pairs and metrics. That *all* pairs are
            equivalent needs no correction.

        Returns
        -------
        EquivalenceResult
            With frames ``pairs`` and ``overall``, and ``plot()``. Each pair is "equivalent",
            "different" (beyond the margin), "not enough data", "no power" or "undefined".

        Raises
        ------
        DataError
            If there is only one group, or no such reference.
        ValueError
            For an option that is not allowed.

        See Also
        --------
        cfair.results.rates.RatesResult.equivalence : the tests and their references.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> frame = audit.equivalence("sensitivity", margin=(0.8, 1.25), reference="M").pairs
        >>> frame[["metric", "group", "estimate", "ci_low", "ci_high", "verdict"]].round(3)
          metric group  estimate  ci_low  ci_high     verdict
        0    tpr     F     0.978   0.904    1.061  equivalent
        """
        from cfair.analyses.equivalence import equivalence

        return equivalence(
            self._counts(),
            metrics,
            margin=margin,
            contrast=contrast,
            reference=reference,
            attribute=attribute,
            alpha=alpha,
            method=method,
            adjust=adjust,
        )

    @_recorded
    def performance(
        self,
        *,
        level: float = 0.95,
        bins: int = 10,
        bin_range: str = "unit",
        rule: str = ">=",
        clip: float | None = None,
        aggregate_interval: str = "tie-aware",
    ) -> PerformanceResult:
        """Quality of the score by intersectional group, by attribute and overall.

        AUC, Brier score, log loss, prevalence, mean score (of all, of events and of non-events,
        whose equality is class balance), O/E ratio, calibration in the large,
        calibration intercept and slope, expected calibration error (as it is and debiased), and
        accuracy and F1 at the cutoff and at the threshold of highest F1; with intervals, gaps,
        contrasts and tests; ROC, calibration and decision curves. Sampling weights and clusters are
        respected throughout.

        Parameters
        ----------
        level : float, default 0.95
            Confidence level.
        bins : int, default 10
            Bins of the calibration error. It is larger by chance in a small group:
            ``expected_if_calibrated`` says what a perfect score would show there.
        bin_range : {"unit", "group", "quantile"}, default "unit"
            Bins of equal width over [0, 1]; of equal width over the range of the group's own
            scores, closed at the right, as in FairMedFM; or at the group's own quantiles.
        rule : {">=", ">"}, default ">="
            On which side of the cutoff, and of the best-F1 threshold, a score equal to it falls.
            The threshold itself is the one at which ``score >= threshold`` does best. FairMedFM
            applies it with ">".
        clip : float, optional
            Scores are moved into ``[clip, 1 - clip]`` before their logit is taken. By default none
            is, and a group with a score of exactly 0 or 1 has no calibration slope.
        aggregate_interval : {"tie-aware", "projection"}, default "tie-aware"
            Interval of average and maximum difference.

        Returns
        -------
        PerformanceResult

        Raises
        ------
        DataError
            If no score was declared.
        ValueError
            For an option that is not allowed.

        References
        ----------
        DeLong ER, DeLong DM, Clarke-Pearson DL (1988). Comparing the areas under two or more
        correlated receiver operating characteristic curves: a nonparametric approach. Biometrics
        44, 837-845.

        Van Calster B et al. (2016). A calibration hierarchy for risk models was defined: from
        utopia to empirical data. Journal of Clinical Epidemiology 74, 167-176.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> rates = audit.performance().rates.set_index(["metric", "group"])
        >>> rates.loc["auc", ["n", "events", "estimate", "ci_low", "ci_high"]].round(3)
                  n  events  estimate  ci_low  ci_high
        group
        F      2670     626     0.658   0.632    0.683
        M      2330     461     0.681   0.652    0.709
        """
        from cfair.analyses.performance import performance

        return performance(
            self.cohort(),
            level=level,
            bins=bins,
            bin_range=bin_range,
            rule=rule,
            clip=clip,
            aggregate_interval=aggregate_interval,
        )

    @_recorded
    def interaction(
        self,
        metrics: str | Sequence[str] = ("selection_rate", "tpr", "fpr", "ppv"),
        *,
        attributes: Sequence[str] | None = None,
        levels: Mapping[str, Any] | None = None,
        reference: str | Mapping[str, Any] = "largest",
        adjust: str | None = "holm",
        level: float = 0.95,
    ) -> InteractionResult:
        """Whether the effects of two attributes on a rate add up, for pairs of levels.

        For every pair of attributes (others summed over) and pair of levels: the four rates, the
        gap of both to neither, the marginal gaps, the flag "superadditive" of Fair Code, and the
        interaction contrast r11 - r10 - r01 + r00 with interval and p-value. The flag compares
        point estimates and fires on noise; the print says where the two disagree.

        Which side is at a disadvantage is not said here: 1 is the level, 0 its reference. To
        exchange them turns the sign of the contrast, and may turn the flag.

        Parameters
        ----------
        metrics : str or sequence of str, default ("selection_rate", "tpr", "fpr", "ppv")
            Any observed rates.
        attributes : sequence of str, optional
            Two or more; all by default.
        levels : mapping of attribute to level or levels, optional
            The levels in question; all but the reference by default.
        reference : {"largest", "rest", "pairs"} or mapping, default "largest"
            What a level is compared with: the attribute's most frequent level; all others together,
            as Fair Code does; each other level in turn; or a level for each attribute named, the
            most frequent one for the others. With a single level as reference, rows at other levels
            take no part, in the marginal gaps either.
        adjust : str or None, default "holm"
            How p-values are adjusted over all contrasts of the call, by statsmodels'
            ``multipletests``.
        level : float, default 0.95
            Confidence level.

        Returns
        -------
        InteractionResult
            With frames ``contrasts`` and ``disagreements``, and ``plot()``.

        Raises
        ------
        DataError
            If there are fewer than two attributes, or no such attribute or level.
        ValueError
            For an option that is not allowed.

        References
        ----------
        Rothman KJ, Greenland S, Walker AM (1980). Concepts of interaction. American Journal of
        Epidemiology 112, 467-470.

        Zou GY, Huang W, Zhang X (2009). A note on confidence interval estimation for a linear
        function of binomial proportions. Computational Statistics & Data Analysis 53, 1080-1085.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5,
        ...     groups=["sex", "race"],
        ... )
        >>> result = audit.interaction("fpr")
        >>> result.contrasts[["level_a", "level_b", "contrast", "ci_low", "ci_high"]].round(3)
          level_a level_b  contrast  ci_low  ci_high
        0       M   Black    -0.006  -0.075    0.064
        1       M   Other     0.020  -0.067    0.107
        """
        from cfair.analyses.interaction import interaction

        return interaction(
            self._counts(),
            metrics=metrics,
            attributes=attributes,
            levels=levels,
            reference=reference,
            adjust=adjust,
            level=level,
        )

    @_recorded
    def representation(
        self,
        *,
        floor: float = 0.01,
        min_count: int = 100,
        disclosure: Sequence[int] = (20, 11),
        rate: float = 0.2,
        level: float = 0.95,
        denominator: str = "known",
    ) -> RepresentationResult:
        """Who is in the data: counts and shares of groups and attributes, and what is too small.

        Every intersection is listed, the empty ones too, with events and non-events, and with the
        rows that it would have if the attributes were independent. For a table without outcome and
        score there is `cfair.representation_of`.

        Parameters
        ----------
        floor : float, default 0.01
            A cell with a smaller share is below the floor.
        min_count : int, default 100
            Rates of a cell with fewer rows are not to be relied on.
        disclosure : sequence of int, default (20, 11)
            Numbers of rows below which publishers suppress a cell.
        rate : float, default 0.2
            The rate whose Wilson interval has the ``width`` given for each cell.
        level : float, default 0.95
            Confidence level.
        denominator : {"known", "all"}, default "known"
            Shares of cells are of the rows used; or of all rows of the table, those with missing
            values included, as in Fair Code.

        Returns
        -------
        RepresentationResult
            With frames ``cells``, ``levels``, ``attributes``, ``associations``, and ``plot()``.

        Raises
        ------
        ValueError
            For an option that is not allowed.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5,
        ...     groups=["sex", "race"],
        ... )
        >>> cells = audit.representation().cells
        >>> cells[["group", "n", "share", "expected", "events"]].round(2).head(3)
               group     n  share  expected  events
        0  F & Black   719   0.14    676.58     219
        1  F & Other   293   0.06    296.90      74
        2  F & White  1658   0.33   1696.52     333
        """
        from cfair.analyses.representation import representation
        from cfair.metrics.representation import check_thresholds

        thresholds = check_thresholds(floor, min_count, disclosure, rate, level, denominator)
        return representation(self._counts(), thresholds)

    @_recorded
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
        bootstrap : {"auto", "group", "rows", "cluster", "faircfint"} or None, default "auto"
            Rows with replacement within group, rows with replacement whatever their group, clusters
            with replacement, or the scheme of the R package for comparison. By default clusters if
            there are any, else rows within group. From 5,000 rows the first two alike give rows
            random weights of mean and variance 1, unless `exact`.
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
            of the rows and any names of the groups. (A learner sees attributes as indicators of all
            levels but the first by name, so that names can matter to one that looks at columns at
            random.)
        n_jobs : int or None, default 1
            Workers for the replicates, as in joblib.
        exact : bool, default False
            Refit all models to convergence in every replicate, also where a shortcut is exact to a
            fraction of a standard deviation, and add up rows instead of drawing tables of them.
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

        Warns
        -----
        CfairWarning
            If replicates of a learner may take more than a minute: how long, before they are begun.

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
                [*self._complete, *request.columns],
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

    @_recorded
    def group_intervention(
        self,
        *,
        outcome_model: Any = None,
        membership: Any = None,
        estimator: str = "dr",
        scores: Any = None,
        score_columns: Sequence[str] | None = None,
        cutoff: float | str | None = None,
        folds: Any = 5,
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
        progress: bool = False,
    ) -> GroupInterventionResult:
        """Error rates of a rule if everybody were a member of one group, for each group in turn.

        Covariates stay as they are, group is set to g, and so are the outcome and the prediction
        that go with it: P(S^g = 1 | Y^g = 0) and P(S^g = 0 | Y^g = 1). Observed rates differ
        between groups because their members differ; these differ by what model and outcome make of
        the group itself. Membership cannot be assigned in the world: the rates are a diagnostic of
        models, and of the covariates that these are given.

        Parameters
        ----------
        outcome_model : str, Learner or (n, K) array
            A formula such as ``"readmitted ~ age + sbp"`` or a `Learner`, fitted out of fold and
            predicted with every row put into every group. Where it names none of the attributes, an
            indicator of each intersectional group is added. Or such predictions, a column per
            group; they count as known.
        membership : str, Learner or (n, K) array, optional
            The same for P(A = g | covariates), such as ``"~ age + sbp"``, without the attributes.
        estimator : {"dr", "sr"}, default "dr"
            Doubly robust: right if the outcome or the membership model is right; or single robust,
            the outcome model alone. The other one is in the result where there is what it needs.
        scores : (n, K) array, data frame or fitted classifier, optional
            Score of the model under audit with the group of each row set to each group. The columns
            of a frame are found by the groups' labels, those of an array are in the order of the
            groups. A fitted classifier is asked, with `score_columns`. By default the outcome model
            itself is judged.
        score_columns : sequence of str, optional
            Columns of the table that the classifier was fitted on, the attributes among them.
        cutoff : float or "youden", optional
            A score at or above it is a positive prediction. By default that of the audit with
            `scores`, else the one of the largest Youden index among the predictions of all rows in
            their own group. Replicates keep it.
        folds : int, name or array, default 5
            Number of folds, drawn within groups (clusters are kept whole), or the fold of each row.
        level : float, default 0.95
            Confidence level.
        interval : {"wilson", "logit", "plain"}, default "wilson"
            Interval of a rate, on the effective size.
        aggregate_interval : {"tie-aware", "projection"}, default "tie-aware"
            Interval of average and maximum difference.
        truncation : (float, float) or None, default (0.005, 0.995)
            Limits to which probabilities of membership are cut.
        n_boot : int, optional
            Bootstrap replicates, all models fitted anew; none by default.
        bootstrap : {"auto", "group", "rows", "cluster", "faircfint"} or None, default "auto"
            Rows with replacement within group, rows with replacement whatever their group, or
            clusters with replacement; by default clusters if there are any, else within group.
        resamples : sequence of arrays of int, optional
            Row numbers of each bootstrap replicate, instead of drawing.
        n_perm : int, optional
            Permutations of the group labels, all models fitted anew; none by default.
        permutations : (R, n) array of int, optional
            Row i of replicate r gets the labels of row ``permutations[r, i]``.
        u_delta : float, default 0.1
            Delta of the u-values of average and maximum; the variance takes its square.
        cluster : name or array, optional
            In place of the declared one.
        seed : int, SeedSequence, Generator or None, default 0
            Of everything random, folds and learners included.
        n_jobs : int or None, default 1
            Workers for the replicates, as in joblib.
        progress : bool, default False
            Show a bar when the replicates take longer than a second.

        Returns
        -------
        GroupInterventionResult

        Raises
        ------
        DataError, FormulaError
            If data or models cannot be used; before any long work.
        ValueError
            For an option that is not allowed.

        Notes
        -----
        Intervals are from influence functions, with the estimation of formulas in them. A learner's
        is left out, which is right to first order for doubly robust rates; single robust rates of a
        learner take their standard errors from the bootstrap. The rule counts as given: where the
        outcome model itself is judged, intervals are of the error rates of the model that was
        learnt, while bootstrap replicates learn it anew, so that they vary more.

        Permutations put rows into other groups. What is under audit keeps the prediction that a row
        had in its own group, as it would if membership mattered to nothing.

        A group without rows, or without a row that has the outcome in question, has no rate: the
        formulas would give one from the model alone.

        References
        ----------
        Mishler A, Kennedy EH, Chouldechova A (2021). Fairness in risk assessment instruments:
        post-processing to achieve counterfactual equalized odds. FAccT 2021, 386-400. (The form of
        the estimates, with treatment in place of membership.)

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> result = audit.group_intervention(
        ...     outcome_model="readmitted ~ age + sbp + zip_income",
        ...     membership="~ age + sbp + zip_income",
        ... )
        >>> result.rates[["metric", "group", "estimate", "estimate_sr"]].head(4).round(2)
          metric group  estimate  estimate_sr
        0   cfpr     F      0.41         0.41
        1   cfpr     M      0.29         0.30
        2   cfnr     F      0.38         0.38
        3   cfnr     M      0.50         0.50
        """
        from cfair.analyses.group_intervention import group_intervention
        from cfair.analyses.intervention_request import read_intervention
        from cfair.analyses.replicates import check_replicates

        replicates = check_replicates(
            n_boot=n_boot,
            n_perm=n_perm,
            bootstrap=bootstrap,
            resamples=resamples,
            permutations=permutations,
            seed=seed,
            n_jobs=n_jobs,
            exact=False,
            progress=progress,
        )
        request = read_intervention(
            self._declared,
            outcome_model=outcome_model,
            membership=membership,
            estimator=estimator,
            scores=scores,
            score_columns=score_columns,
            cutoff=cutoff,
            folds=folds,
        )
        cohort = make_cohort(
            self._declared,
            [*self._complete, *request.columns],
            outcome=request.left,
            cluster=cluster,
            also_missing=request.missing,
        )
        return group_intervention(
            cohort,
            self._declared,
            request,
            replicates,
            level=level,
            interval=interval,
            aggregate_interval=aggregate_interval,
            truncation=truncation,
            u_delta=u_delta,
        )

    @_recorded
    def small_subgroups(
        self,
        propensity: Any,
        *,
        outcome_model: Any,
        membership: Any,
        external: Any = None,
        external_membership: str | None = None,
        borrow: str = "brier",
        scale_external: str = "consistent",
        external_weights: Any = None,
        renormalise: bool = True,
        folds: Any = 5,
        level: float = 0.95,
        interval: str = "wilson",
        aggregate_interval: str = "tie-aware",
        truncation: tuple[float, float] | None = (0.005, 0.995),
        n_boot: int | None = 200,
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
    ) -> SmallSubgroupResult:
        """Error rates had nobody been treated, for groups too small to stand on their own.

        By Bayes' rule the rate of a group is the rate over all rows times two shares of the group:
        among the wrong calls, and among all who would (cFNR) or would not (cFPR) have the event
        without treatment. The second uses all rows, through the probability of each group given
        covariates, and may borrow from an external table that has no outcomes. The models of the
        event leave the group out, so differences between groups that the covariates do not explain
        are pulled towards the rate of all rows.

        Parameters
        ----------
        propensity : str, Learner, array or fitted statsmodels result
            As for `counterfactual`.
        outcome_model : str or Learner
            Covariates of the event, such as ``"~ age + sbp"``. The treatment is added, and the
            model is fitted without and with the call under audit, on all rows; predictions are
            those without treatment. Without attributes.
        membership : str or Learner
            Covariates of the groups, such as ``"~ age + sbp"``: a multinomial logistic regression,
            or the learner, predicted out of fold. Without attributes, outcome and treatment.
        external : data frame or (n, K) array, optional
            Another table with the attributes, by the same names and levels, and covariates of the
            membership model; outcomes are not needed. Or probabilities of the groups for the rows
            of this table: an array in the order of the groups, or a frame with the groups as
            columns.
        external_membership : str, optional
            Formula of the external model; by default that of `membership`.
        borrow : {"brier", "auc"}, default "brier"
            How the share alpha of the external probabilities is chosen: by the least multiclass
            Brier score, which has one minimum, or the largest multiclass AUC (Hand and Till), a
            step function with many maxima close to each other.
        scale_external : {"consistent", "faircfint"}, default "consistent"
            Consistent: one scaling in fitting and prediction. ``"faircfint"`` does as the R package
            does, for comparison only: it standardises the external covariates in fitting but not
            those it predicts on, and searches for the AUC by Brent's method from 0 to 1.
        external_weights : name or array, optional
            Sampling weights of the external rows, a column of theirs.
        renormalise : bool, default True
            Bring cut probabilities of the groups back to a sum of 1; the R package does not.
        folds : int, name or array, default 5
            The number of folds, drawn within groups (clusters are kept whole), or the fold of each
            row. For the membership model, and for learners.
        level : float, default 0.95
            Confidence level.
        interval : {"wilson", "logit", "plain"}, default "wilson"
            Interval of a rate, from its bootstrap standard error.
        aggregate_interval : {"tie-aware", "projection"}, default "tie-aware"
            Interval of average and maximum difference.
        truncation : (float, float) or None, default (0.005, 0.995)
            Limits to which all probabilities are cut: propensities, outcomes and membership. The
            lower limit of membership is at most a quarter of the group's (weighted) share of the
            rows, in replicates too: below 0.005 for groups of less than 2%, which the notes name.
            With ``renormalise=False`` it is that of all groups, as in the R package.
        n_boot : int, default 200
            Bootstrap replicates, with everything fitted anew in the same folds. The estimator has
            no influence function: all standard errors, intervals and tests come from these, and
            with 0 there are none.
        bootstrap : {"auto", "group", "rows", "cluster", "faircfint"} or None, default "auto"
            Rows with replacement within group, rows with replacement whatever their group, clusters
            with replacement, or the scheme of the R package for comparison. By default clusters if
            there are any; else rows within group, or with `external` rows whatever their group.
            ``"faircfint"`` gives intervals of its own, but no standard errors and tests.
        resamples : sequence of arrays of int, optional
            Row numbers of each bootstrap replicate, instead of drawing.
        n_perm : int, optional
            Permutations of the group labels; none by default. What has no labels in it is fitted
            once, and external labels are not permuted.
        permutations : (R, n) array of int, optional
            Row i of replicate r gets the labels of row ``permutations[r, i]``.
        u_delta : float, default 0.1
            Delta of the u-values of average and maximum; the variance takes its square.
        cluster : name or array, optional
            In place of the declared one.
        seed : int, SeedSequence, Generator or None, default 0
            Of everything random, the folds included.
        n_jobs : int or None, default 1
            Workers for the replicates, as in joblib.
        exact : bool, default False
            Refit all models to convergence in every replicate. Otherwise, from 5000 rows, a
            propensity with attributes takes one Newton step under permuted labels.
        progress : bool, default False
            Show a bar when the replicates take longer than a second.

        Returns
        -------
        SmallSubgroupResult

        Raises
        ------
        DataError, FormulaError
            If data, formulas or external information cannot be used; before any long work.
        ValueError
            For an option that is not allowed.

        Notes
        -----
        The rate of group g is a product of shares,

            cFPR_g = cFPR * a_g / b_g,
            a_g = sum_{A=g} (1 - mu0(1)) S / sum (1 - mu0(1)) S,
            b_g = sum p_g (1 - mu0) / sum (1 - mu0),

        with mu0 = P(Y=1 | D=0, X), mu0(s) = P(Y=1 | D=0, X, S=s) and p_g = P(A=g | covariates);
        for cFNR with mu0(0) (1 - S) and mu0 in place of (1 - mu0(1)) S and 1 - mu0. The propensity,
        mu0, mu0(1), mu0(0) and p_g, external probabilities too, are cut to `truncation`; the p_g of
        a row are then divided by their sum, unless ``renormalise=False``.

        With an internal membership model the number of rows of a group cancels, being in a_g as
        well as in b_g. External probabilities do not follow the sample, so the bootstrap has to let
        the sizes of the groups vary, as ``"rows"`` does.

        The covariance of the rates is estimated from B replicates: tests of equal rates have
        Hotelling's and Student's distributions with B - 1 degrees of freedom, or with those of the
        clusters if these are fewer. There is no test of K groups from K replicates or fewer.

        References
        ----------
        Wastvedt S, Huling JD, Wolfson J (2024). Counterfactual fairness for small subgroups.
        arXiv:2310.19988.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5,
        ...     groups=["sex", "race"],
        ... )
        >>> result = audit.small_subgroups(
        ...     "treated ~ sex * race + risk + age + sbp",
        ...     outcome_model="~ age + sbp", membership="~ age + sbp", n_boot=0,
        ... )
        >>> result.shares[["metric", "group", "overall"]].head(2).round(3)
          metric      group  overall
        0   cfpr  F & Black    0.186
        1   cfpr  F & Other    0.186
        """
        from cfair.analyses.replicates import check_replicates
        from cfair.analyses.small_subgroup_models import read_small_subgroups
        from cfair.analyses.small_subgroups import small_subgroups

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
        request = read_small_subgroups(
            self._declared,
            propensity,
            outcome_model,
            membership,
            external=external,
            external_membership=external_membership,
            borrow=borrow,
            scale_external=scale_external,
            external_weights=external_weights,
            renormalise=renormalise,
            folds=folds,
        )
        return small_subgroups(
            make_cohort(
                self._declared,
                [*self._complete, *request.columns],
                outcome=request.outcome.left,
                treatment=request.propensity.left,
                cluster=cluster,
                also_missing=request.missing,
            ),
            self._declared,
            request,
            replicates,
            level=level,
            interval=interval,
            aggregate_interval=aggregate_interval,
            truncation=truncation,
            u_delta=u_delta,
        )

    def report(
        self,
        path: str | Path,
        *results: Any,
        title: str | None = None,
        question: str | None = None,
        guideline: str | None = None,
        date: str | None = None,
        overwrite: bool = True,
        covariates: Sequence[str] | None = None,
    ) -> Path:
        """Write results as one page of HTML that needs nothing beside itself.

        Observed rates and representation are computed if they are not among the results. The page
        says who was analysed, what was found and how sure it is, which meaning of "counterfactual"
        it has, what to be careful about, the methods with references, and the calls, versions,
        seeds and a fingerprint of the data. It opens without a network, prints, and holds no rows.
        Under `suppress_below` a result of other rows than the observed rates is left out with the
        reason, since masked counts could be computed by subtraction: see `complete`.

        Parameters
        ----------
        path : path
            Ending in .html; its folder is made if it is not there.
        *results : results of this audit
            Of `counterfactual`, `small_subgroups`, `group_intervention`, `performance`,
            `interaction`, `equivalence`, `table_one`, `observed` and `representation`, in any
            number (the last two once); or what `cfair.fit_and_audit` returns, in a report of its
            ``audit``.
        title : str, optional
            By default it names the call, the event and the attributes.
        question : str, optional
            What the audit is to answer, in a sentence.
        guideline : {"tripod+ai"}, optional
            Adds a table of the guideline's items that the page supports, and of what is left to
            the author.
        date : str, optional
            Printed under the title. Without it the same data and seed give the same bytes.
        overwrite : bool, default True
            Whether a file of this name is replaced.
        covariates : sequence of str, optional
            Columns of Table 1; by default those with a role, the treatment and those in the models
            of `results`, unless the table is counted in its engine or rounded. Text of more than 20
            levels is left out with a note.

        Returns
        -------
        pathlib.Path
            Where the page is.

        Raises
        ------
        ImportError
            If jinja2 is not installed: ``pip install "cfair[report]"``.
        DataError
            If a result is of another audit, or the file cannot be written there.
        TypeError
            If something is no result of an audit.
        ValueError
            For an unknown guideline.

        References
        ----------
        Collins GS, Moons KGM, Dhiman P et al. (2024). TRIPOD+AI statement: updated guidance for
        reporting clinical prediction models that use regression or machine learning methods. BMJ
        385, e078378.

        Examples
        --------
        >>> import tempfile, cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = audit.report(f"{folder}/report.html", title="Readmission, by sex")
        ...     page.name, "<h1>Readmission, by sex</h1>" in page.read_text(encoding="utf-8")
        ('report.html', True)
        """
        from cfair.report import write_report
        from cfair.results.calls import declaration_text

        for k, result in enumerate(results, start=1):
            if getattr(result, "audit", self) is not self:
                raise DataError(
                    f"result {k} is of another audit, that of its held-out rows. Write "
                    "result.audit.report(path, result)."
                )
            self._check_disclosure(k, result)
        level = next((r.level for r in results if hasattr(r, "level")), 0.95)
        in_rows = self._counted.repeats is None and self._counted.roles.round_counts_to is None
        return write_report(
            path,
            results,
            declaration=declaration_text(self._counted.roles, complete=self._complete),
            observe=partial(self.observed, level=level),
            represent=partial(self.representation, level=level),
            describe=partial(self._tables_one, covariates) if in_rows or covariates else None,
            title=title,
            question=question,
            guideline=guideline,
            date=date,
            overwrite=overwrite,
        )

    def _check_disclosure(self, k: int, result: Any) -> None:
        """Refuse a result under another disclosure control: it shows what this one masks."""
        if hasattr(result, "audit"):
            return
        roles, held = self._counted.roles, getattr(result, "cohort", result)
        for name in ("suppress_below", "round_counts_to"):
            own, other = getattr(roles, name), getattr(held, name, None)
            if own != other:
                raise DataError(
                    f"result {k} ({type(result).__name__}) is of an audit with {name}={other}, and "
                    f"this one has {name}={own}: together they would show masked counts. Make the "
                    "result again by a verb of this audit."
                )

    def _tables_one(
        self, covariates: Sequence[str] | None, used: Sequence[str]
    ) -> list[TableOneResult]:
        """Table 1 by group, or by each attribute where there are too many groups for a page."""
        from cfair.analyses.table_one import table_one

        declared = self._declared
        aside = [a.name for a in declared.attributes]
        roles = [name for name in declared.by_name if name not in aside]
        known = [n for n in used if n not in aside and n in map(str, declared.table.names)]
        wanted = covariates or list(dict.fromkeys([*roles, *known]))
        cohort = self.cohort()
        few = [a.name for a in declared.attributes if len(a.levels) <= 8]
        by = [None] if cohort.groups.n_groups <= 8 else few
        return [table_one(cohort, declared, wanted, by=name, lenient=True) for name in by]

    @_recorded
    def table_one(
        self,
        covariates: Sequence[str] | None = None,
        by: str | None = None,
        *,
        median: Sequence[str] = (),
        differences: bool = False,
    ) -> TableOneResult:
        """Table 1: the patients of every group by their covariates, beside all of them.

        Numbers are given as mean (SD) or median [quartiles], categories as n (%) of those with a
        value, and missing values are counted. There are no tests: they would be of no hypothesis.

        Parameters
        ----------
        covariates : sequence of str, optional
            Columns in their order; by default those with a role, then all others of the table.
        by : str, optional
            Columns of the table are the levels of this attribute; the intersectional groups by
            default.
        median : sequence of str, optional
            Numbers that are given as median [quartiles]. These are values of patients: under
            ``suppress_below=t`` only of groups with 4 t values, so that t lie beyond a quartile.
        differences : bool, default False
            Add the largest standardised difference between two groups.

        Returns
        -------
        TableOneResult
            Prints; ``cells`` is the tidy frame, and ``to_gt``, ``to_latex``, ``to_markdown`` and
            ``to_excel`` write it.

        Raises
        ------
        DataError
            If there is no such column or attribute, or a category has too many levels.

        References
        ----------
        Yang D, Dalton JE (2012). A unified approach to measuring the effect size between two groups
        using SAS. SAS Global Forum 2012, paper 335.

        Examples
        --------
        >>> import cfair
        >>> audit = cfair.Audit(
        ...     cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5, groups="sex"
        ... )
        >>> print(audit.table_one(["age", "readmitted"]).to_markdown())
        | Characteristic        |      Overall |          F |          M |
        |:----------------------|-------------:|-----------:|-----------:|
        | **Patients**          |              |            |            |
        | n                     |        5,000 |      2,670 |      2,330 |
        | **age**               |              |            |            |
        | mean (SD)             |   63.6 (9.6) | 64.3 (9.5) | 62.8 (9.6) |
        | **readmitted, n (%)** |              |            |            |
        | 1                     | 1,087 (21.7) | 626 (23.4) | 461 (19.8) |
        <BLANKLINE>
        Numbers are mean (SD), or median [IQR]; categories n (%) of those with a value.
        """
        from cfair.analyses.table_one import table_one

        return table_one(
            self.cohort(),
            self._declared,
            covariates,
            by=by,
            median=median,
            differences=differences,
        )

    def __repr__(self) -> str:
        declared = self._counted
        cohort = self._counts()
        groups = cohort.groups
        rows = "" if cohort.dropped.masked else f", {cohort.n_read:,} rows"
        assert declared.outcome is not None
        text = (
            f"Audit of {declared.rule} for {declared.outcome.name}, by "
            f"{' x '.join(groups.attributes)} ({groups.n_groups:,} groups{rows})"
        )
        return "".join(c if c.isprintable() else " " for c in text)
