"""The R function's own arguments: `analysis_estimation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfair.errors import DataError
from cfair.faircfint.external import ExternalModel, get_pa_ext_small
from cfair.faircfint.results import AnalysisResult
from cfair.faircfint.settings import Settings, names_of
from cfair.inference.resampling import seed_entropy
from cfair.options import check_count, check_option


def analysis_estimation(
    data: Any,
    cutoff: float,
    estimator_type: str = "standard",
    *,
    pi_model: Any = None,
    pi_model_type: str = "glm",
    pi_model_seed: int | None = None,
    pi_xvars: Sequence[str] | None = None,
    gen_null: bool = False,
    R_null: int = 500,
    bootstrap: str = "none",
    B: int = 500,
    m_factor: float = 0.75,
    outcome_model_type: str = "glm",
    outcome_xvars: Sequence[str] | None = None,
    fit_method_int: str = "multinomial",
    nfolds: int = 5,
    pa_xvars_int: Sequence[str] | None = None,
    data_external: Any = None,
    fit_method_ext: str = "multinomial",
    pa_xvars_ext: Sequence[str] | None = None,
    borrow_metric: str = "brier",
    pa_model_ext: ExternalModel | None = None,
    compat: bool = True,
    seed: int | np.random.SeedSequence | np.random.Generator | None = None,
    permutations: Any = None,
    resamples: Any = None,
    folds: Any = None,
    null_folds: Any = None,
    boot_folds: Any = None,
    n_jobs: int | None = 1,
    progress: bool = False,
) -> AnalysisResult:
    """Counterfactual error rates by the arguments and names of the R package faircfint.

    `cfair.faircfint` has the table of what differs with ``compat``.

    Parameters
    ----------
    data : data frame
        Columns ``A1, A2`` (attributes), ``Y`` (outcome), ``D`` (treatment), ``S_prob`` (score), and
        the covariates. pandas, polars, pyarrow, duckdb, or a dict of arrays.
    cutoff : float
        S = 1 if ``S_prob >= cutoff``. Outside [0, 1] only with ``compat=True``, with a warning.
    estimator_type : {"standard", "small_internal", "small_borrow"}, default "standard"
        Weighting; or beside it the estimates for small groups, from these data alone or with
        external data.
    pi_model : formula, fitted statsmodels result, or array, optional
        Model of D, or its probabilities, one per row. By default main effects of `pi_xvars`. A
        formula has D on its left side, or nothing. A result fitted to A1 or A2 as numbers predicts
        on these; its probabilities then count as known.
    pi_model_type : {"glm", "rf"}, default "glm"
        A random forest only with ``compat=False``.
    pi_model_seed : int, optional
        Of a random forest.
    pi_xvars : sequence of str, optional
        Covariates of the propensity. With ``compat=True`` replicates refit their main effects,
        whatever `pi_model` is.
    gen_null : bool, default False
        Whether to permute the groups.
    R_null : int, default 500
        Permutations, at least 1 with `gen_null`.
    bootstrap : {"none", "rescaled"}, default "none"
        Subsamples of n^m_factor rows within group, outcome and call; with ``compat=False`` all rows
        with replacement, within group or, where external data take part, whatever their group.
    B : int, default 500
        Bootstrap replicates, at least 1 with a `bootstrap`; intervals take 40.
    m_factor : float, default 0.75
        Between 0 and 1.
    outcome_model_type : {"glm", "neural_net", "rf"}, default "glm"
        For small groups. A network is one of scikit-learn with the R package's settings, and not
        bit-equal to R's; a forest only with ``compat=False``.
    outcome_xvars : sequence of str, optional
    fit_method_int : {"multinomial", "neural_net"}, default "multinomial"
        Membership model of small groups.
    nfolds : int, default 5
        Folds of the membership model.
    pa_xvars_int : sequence of str, optional
        Its covariates.
    data_external : data frame, optional
        Columns A1, A2 (as in `data`) and `pa_xvars_ext`, for ``estimator_type="small_borrow"``.
        Rows with a missing value are dropped, with ``compat=True`` in any column. Its numeric
        covariates are standardised in fitting. With ``compat=True`` those of `data` are not, as in
        R: give both tables standardised by the mean and standard deviation of this one.
    fit_method_ext : {"multinomial", "neural_net"}, default "multinomial"
    pa_xvars_ext : sequence of str, optional
        Covariates of the external model.
    borrow_metric : {"brier", "auc"}, default "brier"
    pa_model_ext : ExternalModel, optional
        From `get_pa_ext_small`, in place of `data_external`.
    compat : bool, default True
        Whether the figures are to be those of the R package. Otherwise the same question is put to
        cfair's own analyses.
    seed : int, SeedSequence, Generator or None, default None
        None draws one; the result has it. Rows are drawn by what they hold, so that their order
        does not matter; but with a covariate rescaled the same seed draws other folds and
        replicates.
    permutations : (R, n) array of int, optional
        Row i of null replicate r gets the groups of row ``permutations[r, i]``. Rows count from 0,
        and only those used do.
    resamples : sequence of arrays of int, optional
        Rows of each bootstrap replicate.
    folds : (n,) array or column, optional
        Fold of each row of `data`, those that are dropped included; a Series is matched by its
        index. By default they are drawn, and rates of small groups depend on the draw: see `seed`,
        and `cfair.faircfint` for how much.
    null_folds, boot_folds : sequence of arrays, optional
        Folds in each replicate: of all rows used, and in the order of `resamples`. ``compat=True``
        only.
    n_jobs : int or None, default 1
        Workers for the replicates, as in joblib.
    progress : bool, default False
        Show a bar when replicates take longer than a second.

    Returns
    -------
    AnalysisResult

    Raises
    ------
    DataError, FormulaError
        If the data cannot be used, or the R package would stop or give wrong figures.
    ValueError
        For an option that is not allowed, or replicates that are asked for and are none.

    References
    ----------
    Wastvedt S, Huling JD, Wolfson J (2023). An intersectional framework for counterfactual
    fairness in risk prediction. Biostatistics, kxad021.

    Wastvedt S, Huling JD, Wolfson J (2024). Counterfactual fairness for small subgroups.
    arXiv:2310.19988.

    Examples
    --------
    >>> import cfair
    >>> cohort = cfair.load_cohort().rename(
    ...     columns={"sex": "A1", "race": "A2", "readmitted": "Y", "treated": "D", "risk": "S_prob"}
    ... ).drop(columns="bmi")
    >>> result = cfair.faircfint.analysis_estimation(
    ...     cohort, 0.5, "standard", pi_xvars=["A1", "A2", "S_prob", "age", "sbp"]
    ... )
    >>> result.defs[["cfpr_FBlack", "cfpr_marg_A1_F", "max_pos"]].round(3).tolist()
    [0.304, 0.191, 0.161]
    """
    check_option("bootstrap", bootstrap, ("none", "rescaled"))
    switches = {"compat": compat, "gen_null": gen_null, "progress": progress}
    for name, value in switches.items():
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{name} must be True or False, not {value!r}.")
    permutations = _rows_of(permutations, "permutations")
    resamples = _rows_of(resamples, "resamples")
    settings = Settings(
        cutoff=cutoff,
        estimator_type=estimator_type,
        pi_model=pi_model,
        pi_model_type=pi_model_type,
        pi_model_seed=pi_model_seed,
        pi_xvars=names_of(pi_xvars),
        n_null=_count(R_null, "R_null", permutations, "gen_null=True" if gen_null else ""),
        n_boot=_count(B, "B", resamples, "" if bootstrap == "none" else f'bootstrap="{bootstrap}"'),
        m_factor=m_factor,
        outcome_model_type=outcome_model_type,
        outcome_xvars=names_of(outcome_xvars),
        fit_method_int=fit_method_int,
        nfolds=nfolds,
        pa_xvars_int=names_of(pa_xvars_int),
        borrow_metric=borrow_metric,
        compat=bool(compat),
        seed=seed_entropy(seed),
        n_jobs=n_jobs,
        progress=bool(progress),
        permutations=permutations,
        resamples=resamples,
        folds=folds,
        null_folds=_rows_of(null_folds, "null_folds"),
        boot_folds=_rows_of(boot_folds, "boot_folds"),
    )
    settings.check()
    external = None
    if estimator_type == "small_borrow":
        external = _external(data_external, fit_method_ext, pa_xvars_ext, pa_model_ext, settings)
    if settings.compat:
        from cfair.faircfint.parity import estimate_as_r

        return estimate_as_r(data, settings, external)
    from cfair.faircfint.own import estimate_own

    return estimate_own(data, settings, external)


def _count(value: Any, name: str, given: Any, asked: str) -> int:
    """Number of replicates: that of the rows given, or as `asked` for."""
    if given is not None:
        return len(given)
    found = check_count(value, name) if asked else 0
    if asked and not found:
        raise ValueError(f"{name} must be at least 1 with {asked}, not {value!r}.")
    return found


def _rows_of(given: Any, name: str) -> Any:
    """What was given for each replicate, checked to be one sequence for each."""
    if given is None:
        return None
    rows = np.asarray(given) if hasattr(given, "iloc") else given
    try:
        sizes = {len(row) for row in rows}
        len(rows)  # which a generator has not
    except TypeError:
        raise DataError(
            f"{name} must hold a sequence of whole numbers for each replicate, such as a list of "
            f"arrays; {type(given).__name__} given here holds none."
        ) from None
    if name == "permutations" and len(sizes) > 1:
        raise DataError(f"{name} must have as many numbers in each replicate, not {sorted(sizes)}.")
    return rows


def _external(
    data_external: Any,
    method: str,
    xvars: Sequence[str] | None,
    fitted: ExternalModel | None,
    s: Settings,
) -> ExternalModel:
    """The external model that was given, or one fitted to the external data."""
    if isinstance(fitted, ExternalModel):
        return fitted
    if fitted is not None:
        raise DataError(
            f"pa_model_ext must be what get_pa_ext_small gives, not {type(fitted).__name__}."
        )
    if data_external is None:
        raise DataError(
            'estimator_type="small_borrow" needs data_external= with pa_xvars_ext=, or '
            "pa_model_ext= from get_pa_ext_small."
        )
    return get_pa_ext_small(data_external, method, xvars, seed=s.seed, compat=s.compat)
