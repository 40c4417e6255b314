"""Methods and references of a report: what was estimated and how, ready to go into a paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cfair._version import __version__
from cfair.inference.replicates import MIN_REPLICATES
from cfair.report.blocks import Block, Bullets, Formula, Paragraph, label, listed
from cfair.results.counterfactual import CounterfactualResult
from cfair.results.equivalence import EquivalenceResult
from cfair.results.group_intervention import GroupInterventionResult
from cfair.results.interaction import InteractionResult
from cfair.results.observed import ObservedResult
from cfair.results.performance import PerformanceResult
from cfair.results.small_subgroups import SmallSubgroupResult
from cfair.results.treated import TreatedResult

REFERENCES: dict[str, str] = {
    "wilson": "Wilson EB (1927). Probable inference, the law of succession, and statistical "
    "inference. Journal of the American Statistical Association 22, 209-212.",
    "newcombe": "Newcombe RG (1998). Interval estimation for the difference between independent "
    "proportions: comparison of eleven methods. Statistics in Medicine 17, 873-890.",
    "wastvedt23": "Wastvedt S, Huling JD, Wolfson J (2023). An intersectional framework for "
    "counterfactual fairness in risk prediction. Biostatistics, kxad021. "
    "doi 10.1093/biostatistics/kxad021",
    "wastvedt24": "Wastvedt S, Huling JD, Wolfson J (2024). Counterfactual fairness for small "
    "subgroups. arXiv:2310.19988.",
    "mishler": "Mishler A, Kennedy EH, Chouldechova A (2021). Fairness in risk assessment "
    "instruments: post-processing to achieve counterfactual equalized odds. FAccT 2021, 386-400.",
    "coston": "Coston A, Mishler A, Kennedy EH, Chouldechova A (2020). Counterfactual risk "
    "assessments, evaluation, and fairness. FAT* 2020.",
    "delong": "DeLong ER, DeLong DM, Clarke-Pearson DL (1988). Comparing the areas under two or "
    "more correlated receiver operating characteristic curves: a nonparametric approach. "
    "Biometrics 44, 837-845.",
    "obuchowski": "Obuchowski NA (1997). Nonparametric analysis of clustered ROC curve data. "
    "Biometrics 53, 567-578.",
    "calster": "Van Calster B et al. (2016). A calibration hierarchy for risk models was defined: "
    "from utopia to empirical data. Journal of Clinical Epidemiology 74, 167-176.",
    "schuirmann": "Schuirmann DJ (1987). A comparison of the two one-sided tests procedure and the "
    "power approach for assessing the equivalence of average bioavailability. Journal of "
    "Pharmacokinetics and Biopharmaceutics 15, 657-680.",
    "berger": "Berger RL, Hsu JC (1996). Bioequivalence trials, intersection-union tests and "
    "equivalence confidence sets. Statistical Science 11, 283-319.",
    "miettinen": "Miettinen O, Nurminen M (1985). Comparative analysis of two rates. Statistics in "
    "Medicine 4, 213-226.",
    "rothman": "Rothman KJ, Greenland S, Walker AM (1980). Concepts of interaction. American "
    "Journal of Epidemiology 112, 467-470.",
    "holm": "Holm S (1979). A simple sequentially rejective multiple test procedure. Scandinavian "
    "Journal of Statistics 6, 65-70.",
    "collins": "Collins GS, Moons KGM, Dhiman P et al. (2024). TRIPOD+AI statement: updated "
    "guidance for reporting clinical prediction models that use regression or machine learning "
    "methods. BMJ 385, e078378. doi 10.1136/bmj-2023-078378",
}


def methods(
    observed: ObservedResult,
    others: Sequence[Any],
    guideline: str | None = None,
    least: int | None = None,
) -> list[Block]:
    """The methods of what is in the report, with formulas, and the references they need.

    Parameters
    ----------
    observed : ObservedResult
    others : sequence of results
    guideline : str, optional
    least : int, optional
        Rows that a group must have; smaller ones were left out.

    Returns
    -------
    list of blocks
    """
    cohort = observed.cohort
    crossed = " and ".join(label(a) for a in cohort.groups.attributes)
    blocks: list[Block] = [
        Paragraph(
            f"We audited the call {label(cohort.rule)} for the event {label(cohort.outcome_name)} "
            f"in {cohort.n_used:,} patients, by {crossed}"
            f"{' and their intersections' if len(cohort.groups.attributes) > 1 else ''}. "
            "Observed rates (share flagged, sensitivity, false positive rate, positive predictive "
            f"value) are given with {100 * observed.level:g}% "
            f"{_RATE_INTERVALS[observed.interval]}. The widest gap between two groups is given "
            "with an interval that allows for its choice among all pairs, beside the gap expected "
            "from noise if all groups were alike; p-values of the tests that all groups are equal "
            "(Wald, on the logit scale) are adjusted by Holm's method over the table."
            + _small(cohort, least)
            + _dependence(cohort)
        )
    ]
    needed = ["newcombe", "holm"]
    if any(getattr(r, "interval", None) == "wilson" for r in (observed, *others)):
        needed.insert(0, "wilson")
    treated = [r for r in others if isinstance(r, TreatedResult)]
    if treated:
        blocks += _treated(treated)
        needed += ["wastvedt23", "coston"]
    if any("AIPW" in r.estimator for r in treated):
        needed.append("mishler")
    if any(isinstance(r, SmallSubgroupResult) for r in treated):
        needed.append("wastvedt24")
    for kind, text, formula, references in _OTHERS:
        if any(isinstance(r, kind) for r in others):
            if kind is PerformanceResult and cohort.cluster is not None:
                text = text.replace(_DELONG, _DELONG_CLUSTERS)
                needed.append("obuchowski")
            blocks += [Paragraph(text)] if text else []
            blocks += [_sampled(formula, cohort)] if formula is not None else []
            needed += references
    for result in others:
        if isinstance(result, GroupInterventionResult):
            made = _fitted(result.outcome_model)
            how = {"dr": "doubly robust", "sr": "single robust, from the outcome model alone"}
            said = f"Rates with everybody in one group are {how[result.kind]}. "
            said += f"The outcome was estimated {made}."
            blocks.append(Paragraph(said + _folds(result) + _intervals(result)))
        if isinstance(result, EquivalenceResult):
            blocks.append(Paragraph(_equivalence(result)))
    if guideline is not None:
        needed.append("collins")
    blocks.append(Paragraph(f"Analyses were done with the Python package cfair {__version__}."))
    cited = tuple(REFERENCES[key] for key in dict.fromkeys(needed))
    return [*blocks, Paragraph("References"), Bullets(cited)]


def _small(cohort: Any, least: int | None) -> str:
    """Groups left out for their size."""
    names = [label(name) for name in cohort.dropped.small_groups]
    if not names:
        return ""
    than = "rows than asked for" if least is None else f"than {least:,} rows"
    return f" Groups with fewer {than} were left out: {listed(names)}."


def learner_in(model: Any) -> bool:
    """Whether a model is a learner of scikit-learn rather than a regression.

    Parameters
    ----------
    model : Propensity, Outcome, CallOutcome, OutcomeUnderGroups or None

    Returns
    -------
    bool
    """
    inner = [getattr(model, name, None) for name in ("model", "plain")]
    if getattr(model, "learned", False) or getattr(model, "learner", None) is not None:
        return True
    return any(getattr(m, "estimator", None) is not None for m in inner)


def _fitted(model: Any) -> str:
    """How a model was made: by logistic regression, a learner, or elsewhere."""
    if learner_in(model):
        return f"by a learner ({label(model.text)})"
    if "~" in model.text:
        return f"by logistic regression as {label(model.text)}"
    return f"elsewhere ({label(model.text)})"


def _dependence(cohort: Any) -> str:
    said = ""
    if cohort.cluster is not None:
        said += (
            f" Rows of one {label(cohort.cluster_name)} ({cohort.n_clusters:,} clusters) were "
            "treated as dependent."
        )
    if cohort.weights is not None:
        said += (
            f" Rows were weighted by {label(cohort.weights_name)}; intervals are on the effective "
            "size."
        )
    return said


def _treated(results: Sequence[TreatedResult]) -> list[Block]:
    cohort = results[0].cohort
    blocks: list[Block] = [
        Paragraph(
            "Treatment changes who has the event, so that rates in the data mix the quality of the "
            "call with the effect of treatment. With D the treatment "
            f"({label(cohort.treatment_name)}), S the call and Y(0) the outcome a patient would "
            "have without treatment, the counterfactual rates of group g are P(S = 1 | Y(0) = 0, "
            "A = g) and P(S = 0 | Y(0) = 1, A = g). They are identified if the outcome of an "
            "untreated patient is Y(0) (consistency), if treatment is as good as random given the "
            "covariates of the models (no unmeasured confounding), and if every patient might have "
            "gone untreated (positivity). Data cannot show that nothing unmeasured confounds."
        )
    ]
    for result in results:
        blocks.append(Paragraph(_models(result)))
        if isinstance(result, SmallSubgroupResult):
            blocks += [_sampled(_IPW, result.cohort), _SMALL]
        elif isinstance(result, CounterfactualResult):
            weighted = "IPW)" in result.estimator and "AIPW" not in result.estimator
            blocks.append(_sampled(_IPW if weighted else _AIPW, result.cohort))
    return blocks


def _models(result: TreatedResult) -> str:
    said = f"Estimator: {result.estimator}."
    if result.propensity is not None:
        low, high = result.propensity.truncation
        said += (
            f" The propensity π was estimated {_fitted(result.propensity)}, and cut to "
            f"[{low:g}, {high:g}]."
        )
    outcome = getattr(result, "outcome_model", None)
    if isinstance(result, SmallSubgroupResult):
        said += (
            f" The outcome, μ, was estimated {_fitted(outcome)}, with treatment and without and "
            "with the call, on all patients, and predicted with treatment set to none. Membership "
            f"in a group was modelled as {label(result.membership_text)}."
        )
    elif outcome is not None:
        said += f" The outcome without treatment, μ, was estimated {_fitted(outcome)}"
        said += f", fitted to {outcome.trained_on}." if outcome.trained_on else "."
    said += _folds(result)
    said += _intervals(result)
    if result.boot is not None:
        said += f" There were {result.boot.n_replicates:,} bootstrap replicates"
        said += " and" if result.null is not None else f" (seed {result.seed})."
    if result.null is not None:
        said += " There were" if result.boot is None else ""
        said += (
            f" {result.null.n_replicates:,} permutations of the group labels (seed {result.seed})."
        )
    return said + _undefined(result)


def _undefined(result: TreatedResult) -> str:
    """Replicates in which a rate is undefined: why that is, and what became of them."""
    counts = []
    for made, what in ((result.boot, "bootstrap replicates"), (result.null, "permutations")):
        if made is not None:
            draws = result.boot_draws if made is result.boot else result.null_draws
            # masked groups are in no replicate, and two groups have no variance of their difference
            draws = draws[list(result.compared)].dropna(axis=1, how="all")
            lost = int(
                draws.drop(columns="variance", level=1, errors="ignore").isna().any(axis=1).sum()
            )
            counts += [f"{lost:,} of the {what}"] * bool(lost)
    if not counts:
        return ""
    return (
        f" In {' and '.join(counts)} a rate is undefined: a small group has none of the patients "
        "that the rate is of, be it in the data or in the draw. Such a draw is left out where that "
        "rate is needed, and kept for all others."
    )


def _folds(result: TreatedResult | GroupInterventionResult) -> str:
    folds = getattr(result, "folds", None)
    if folds is None:
        return ""
    whose = "Membership" if isinstance(result, SmallSubgroupResult) else "Models"
    if whose == "Membership" and any(
        learner_in(getattr(result, name, None)) for name in ("propensity", "outcome_model")
    ):
        whose = "Membership and learners"
    drawn = f"drawn at random (seed {result.seed})" if folds.drawn else "given"
    verb = "was" if whose == "Membership" else "were"
    return (
        f" {whose} {verb} cross-fitted: each patient was predicted by a fit without the patient's "
        f"own fold, of {folds.n_folds} folds {drawn}."
    )


def _intervals(result: TreatedResult | GroupInterventionResult) -> str:
    """Where intervals are from, or why there are none."""
    level, boot = f"{100 * result.level:g}%", result.boot
    if not getattr(result, "bootstrapped", False):
        return f" Intervals ({level}) are from influence functions."
    if isinstance(result, SmallSubgroupResult):
        if boot is None:
            return " No intervals were computed: they need a bootstrap, and none ran."
        if result.boot_kind == "faircfint":
            return (
                " No intervals were computed: the spread of these replicates is no standard error."
            )
        if boot.n_replicates < MIN_REPLICATES:
            return (
                f" No intervals were computed: {boot.n_replicates:,} bootstrap replicates are "
                f"fewer than the {MIN_REPLICATES} that a variance needs."
            )
    return f" Intervals ({level}) are from the bootstrap."


def _equivalence(result: EquivalenceResult) -> str:
    q = result.question
    margins = "; ".join(
        f"{low:g} to {high:g} ({result.labels[m]})" for m, (low, high) in q.margins.items()
    )
    return (
        "Equivalence was asked by two one-sided tests at alpha = "
        f"{q.alpha:g}: two groups count as equivalent if the {100 * result.level:g}% interval of "
        f"the {q.contrast.replace('_', ' ')} of their rates lies inside the margin, {margins}. "
        + (
            "The margins were chosen by the authors."
            if q.chosen
            else "The margin is a convention (four fifths), not a choice for this case."
        )
    )


# -- formulas -------------------------------------------------------------------------------------


def _i(name: str) -> str:
    return f"<mi>{name}</mi>"


def _o(sign: str) -> str:
    return f"<mo>{sign}</mo>"


def _n(digits: str) -> str:
    return f"<mn>{digits}</mn>"


def _row(*parts: str) -> str:
    return f"<mrow>{''.join(parts)}</mrow>"


def _over(top: str, bottom: str) -> str:
    return f"<mfrac>{_row(top)}{_row(bottom)}</mfrac>"


def _sub(base: str, below: str) -> str:
    return f"<msub>{base}{below}</msub>"


def _not(x: str) -> str:
    return _row(_o("("), _n("1"), _o("−"), x, _o(")"))


def _math(*parts: str) -> str:
    return f'<math display="block">{_row(*parts)}</math>'


_SUM = _sub(_o("∑"), _row(_i("A"), _o("="), _i("g")))
_RATE_P = _sub('<mi mathvariant="normal">cFPR</mi>', _i("g"))
_RATE_N = _sub('<mi mathvariant="normal">cFNR</mi>', _i("g"))
_W, _S, _Y, _D = (_i(x) for x in "wSYD")
_COMMA = '<mo separator="true">,</mo><mspace width="1.5em"/>'


def _pair(weight: str, y: str) -> list[str]:
    """The two rates with sums of a weight times an outcome."""
    free = _not(y)
    return [
        _RATE_P, _o("="), _over(_SUM + weight + _S + free, _SUM + weight + free), _COMMA,
        _RATE_N, _o("="), _over(_SUM + weight + _not(_S) + y, _SUM + weight + y),
    ]  # fmt: skip


_IPW = Formula(
    _math(*_pair(_W, _Y), _COMMA, _W, _o("="), _over(_not(_D), _not(_i("π")))),
    "cFPR of g: sum of w S (1 − Y) over sum of w (1 − Y). cFNR of g: sum of w (1 − S) Y over sum "
    "of w Y. Sums are over the patients of group g, with w = (1 − D) / (1 − π).",
)
#: A sampling weight in a formula: q, since w is the weight against confounding.
_WEIGHTED = "<mi>q</mi>"


def _sampled(formula: Formula, cohort: Any) -> Formula:
    """A formula whose sums have sampling weights, if rows have any."""
    if cohort.weights is None:
        return formula
    markup = formula.markup
    for total in (_SUM, _o("∑")):
        if total in markup:
            markup = markup.replace(total, total + _WEIGHTED)
            break
    named = label(cohort.weights_name)
    more = f" Each term of a sum is multiplied by q, the sampling weight ({named})."
    return Formula(markup, formula.text + more)


_AIPW = Formula(
    _math(*_pair("", _i("φ")), _COMMA, _i("φ"), _o("="), _W, _o("("), _Y, _o("−"), _i("μ"), _o(")"),
          _o("+"), _i("μ")),
    "cFPR of g: sum of S (1 − φ) over sum of (1 − φ). cFNR of g: sum of (1 − S) φ over sum of φ. "
    "Sums are over the patients of group g, with φ = w (Y − μ) + μ and w = (1 − D) / (1 − π); from "
    "the outcome model alone φ = μ.",
)  # fmt: skip
_SMALL = Formula(
    _math(
        _RATE_P, _o("="), '<mi mathvariant="normal">cFPR</mi>', _o("·"),
        _over(_sub(_i("a"), _i("g")), _sub(_i("b"), _i("g"))),
    ),
    "For small groups, by Bayes' rule: the cFPR of all patients times the share of g among the "
    "wrongly flagged, a, over its share among all who would have no event without treatment, b; "
    "likewise for cFNR.",
)  # fmt: skip
_GROUP = Formula(
    _math(
        _RATE_P, _o("="),
        _over(_o("∑") + f"<msup>{_S}{_i('g')}</msup>" + _not(_sub(_i("ψ"), _i("g"))),
              _o("∑") + _not(_sub(_i("ψ"), _i("g")))), _COMMA,
        _RATE_N, _o("="),
        _over(_o("∑") + _row(_o("("), _n("1"), _o("−"), f"<msup>{_S}{_i('g')}</msup>", _o(")"))
              + _sub(_i("ψ"), _i("g")), _o("∑") + _sub(_i("ψ"), _i("g"))),
    ),
    "Sums are over all patients, each put into group g: S with g is the call then, ψ with g the "
    "estimated outcome then.",
)  # fmt: skip

_RATE_INTERVALS = {
    "wilson": "Wilson intervals",
    "logit": "intervals on the logit scale",
    "plain": "Wald intervals",
}
_DELONG = "intervals from DeLong's variance"
_DELONG_CLUSTERS = (
    "intervals from DeLong's components of variance, summed within clusters (Obuchowski)"
)

_OTHERS: tuple[tuple[type, str, Formula | None, tuple[str, ...]], ...] = (
    (
        GroupInterventionResult,
        "As a check of the model, not of the world, every patient was put into each group in turn, "
        "with all other covariates as they are, and error rates were computed from the modelled "
        "outcomes. Membership cannot be assigned, so that these rates are no effect of anything "
        "that could be done.",
        _GROUP,
        ("mishler",),
    ),
    (
        PerformanceResult,
        f"The quality of the score was measured by AUC ({_DELONG}), Brier "
        "score, ratio of observed to expected events and calibration slope (sandwich variance).",
        None,
        ("delong", "calster"),
    ),
    (
        InteractionResult,
        "Interaction of two attributes was measured on the additive scale, by the contrast "
        "r11 − r10 − r01 + r00 of the rates with both, one and none of two levels, with MOVER "
        "intervals.",
        None,
        ("rothman",),
    ),
    (EquivalenceResult, "", None, ("schuirmann", "berger", "miettinen")),
)
