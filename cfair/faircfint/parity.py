"""An analysis whose figures are those of the R package: its fits, its replicates, its folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.analyses.observed import targets
from cfair.analyses.replicates import Replicates, check_replicates
from cfair.analyses.small_subgroup_models import (
    FittedSmallSubgroups,
    fit_small_subgroups,
    read_small_subgroups,
)
from cfair.analyses.treatment import FittedModels, fit_models, read_counterfactual
from cfair.cohort import Cohort, make_cohort
from cfair.errors import CfairWarning, ConvergenceWarning, DataError, SmallGroupWarning, warn
from cfair.estimators.confusion import confusion_counts
from cfair.estimators.ipw import ipw_weights
from cfair.faircfint.external import ExternalModel
from cfair.faircfint.reading import (
    Input,
    as_they_came,
    pasted,
    read_input,
    refuse_alike,
    refuse_labels,
)
from cfair.faircfint.results import (
    SMALL,
    AnalysisResult,
    Rates,
    make_result,
    small_rows,
    standard_rows,
)
from cfair.faircfint.settings import Settings
from cfair.frame import show_some
from cfair.groups import Groups
from cfair.inference.bootstrap import bootstrap_draws
from cfair.inference.drawing import count_blocks, faircfint_folds, given_counts
from cfair.inference.permutation import permutation_null
from cfair.inference.refit import CounterfactualModels
from cfair.inference.replicates import draws_from_cells, label_blocks, own_labels
from cfair.inference.resampling import STREAM, Stream, run_streams, streams
from cfair.inference.rows import Rows
from cfair.inference.small_subgroup import ALPHA, SmallSubgroupModels
from cfair.nuisance.crossfit import FoldsRequest, folds_given
from cfair.nuisance.fitted_result import predict
from cfair.nuisance.order import content_numbers
from cfair.nuisance.request import ModelRequest

Array = NDArray[np.float64]
Integers = NDArray[np.integer]
Codes = NDArray[np.intp]

LIMITS = (0.005, 0.995)
_PERMUTATION, _BOOTSTRAP, _FOLDS = 1, 2, 41  # keep draws independent under one seed
_NAMES = {
    "fpr": "observed FPR",
    "fnr": "observed FNR",
    "cfpr": "cFPR",
    "cfnr": "cFNR",
    "cfpr_small": "cFPR of small groups",
    "cfnr_small": "cFNR of small groups",
}


def estimate_as_r(data: Any, s: Settings, external: ExternalModel | None) -> AnalysisResult:
    """Estimate as the R package does, with its replicates."""
    wanted = dict(s.xvars)
    if external is not None:
        wanted["external covariates"] = external.columns
    table = read_input(data, s.cutoff, wanted)
    if s.pi_model is not None and np.ndim(s.pi_model) == 1 and not isinstance(s.pi_model, str):
        of_rows = table.table.align(s.pi_model, "pi_model").iloc[table.rows]
        if of_rows.isna().any():
            raise DataError(
                f"pi_model has no probability in {int(of_rows.isna().sum())} of {len(of_rows)} "
                "rows used. Give one for each row, or leave these rows out."
            )
        s = replace(s, pi_model=of_rows)
    given = check_replicates(
        n_boot=s.n_boot,
        n_perm=s.n_null if s.permutations is None else None,
        bootstrap="group",
        resamples=s.resamples,
        permutations=None if s.permutations is None else np.asarray(s.permutations),
        seed=s.seed,
        n_jobs=s.n_jobs,
        exact=True,
        progress=s.progress,
    )
    fits = _fit(table, s, given, external)
    groups = fits.cohort.groups
    rates = _estimates(fits)
    notes = [*table.notes, *fits.cohort.notes, *fits.notes, *_boundary_notes(rates, groups)]
    rows = standard_rows(fits.cohort, fits.observed.propensity)
    if fits.small is not None:
        rows |= _rows_of_small(fits.cohort, fits.small)
    null, boot = _null_rates(fits, s, given), _boot_rates(fits, s, given)
    for what, draws in (("null", null), ("boot", boot)):
        if draws is None:
            continue
        if ALPHA in draws:
            rows[f"alpha_{what}"] = draws.pop(ALPHA)[:, 0]
        notes += _replicate_notes(draws, groups, "bootstrap" if what == "boot" else what)
    # places among the complete rows become places in the table that was given
    at = table.rows[fits.cohort.rows]
    cohort = replace(fits.cohort, rows=at, n_read=table.table.n_rows, dropped=table.dropped)
    alpha = None if fits.small is None or external is None else fits.small.alpha
    return make_result(s, cohort, rates, null, boot, alpha, rows, notes)


# -- fits -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fits:
    """What was fitted: for the estimate, and again, perhaps otherwise, for the replicates."""

    cohort: Cohort
    observed: FittedModels
    refitted: FittedModels
    small: FittedSmallSubgroups | None = None
    small_refitted: SmallSubgroupModels | None = None
    said: str = ""

    @property
    def models(self) -> CounterfactualModels:
        """What replicates of the standard estimator fit again."""
        return self.refitted.models

    @property
    def notes(self) -> list[str]:
        """What was said of the fits."""
        found = [*self.observed.notes, *([self.said] if self.said else [])]
        if self.small is not None:
            found += [*self.small.outcome.notes, *self.small.membership.notes]
        own, other = self.observed.propensity, self.refitted.propensity
        if own is not None and other is not None and own.text != other.text:
            found.append(
                f"the estimate uses the propensity {own.text}, the replicates refit {other.text}, "
                "so that they are centred elsewhere (compat=True)"
            )
        return found


def _fit(table: Input, s: Settings, given: Replicates, external: ExternalModel | None) -> Fits:
    """Fit all models, the propensity a second time where replicates have another."""
    declared = table.declared
    propensities = [s.propensity]
    if s.pi_model is not None and s.replicated:
        propensities.append(s.own_propensity)
    read = [read_counterfactual(declared, p, None, "ipw", None) for p in propensities]
    for model in read:
        declared.with_left_side(
            "treatment", model.left_of("propensity")
        )  # refuses one other than D
    columns = [c for request in read for c in request.columns]
    columns += [c for xvars in s.xvars.values() for c in xvars]
    columns += external.columns if external is not None else ()
    missing = {k: mask for request in read for k, mask in request.missing.items()}
    cohort = make_cohort(declared, columns, also_missing=missing)
    given.check_rows(cohort)
    if s.small:
        refuse_labels(cohort.groups)
    if s.n_boot and s.resamples is None:
        refuse_alike(cohort.groups, "so that the R package's bootstrap takes them for one")
    read[0] = replace(read[0], propensity=_as_it_was_fitted(read[0].propensity, cohort, table))
    fitted = [fit_models(request, cohort, LIMITS, given) for request in read]
    if not s.small:
        return Fits(cohort, fitted[0], fitted[-1])
    codes = _observed_folds(cohort, fitted[0].models.rows, s, table)
    p_external, said = None, ""
    if external is not None:
        p_external = external.probabilities(cohort.data, cohort.groups, compat=True)
        said = external.scale_note(cohort.data)
        if said:
            warn(f"{said}.", CfairWarning)
    small = []
    for propensity, model in zip(propensities, read, strict=True):
        request = read_small_subgroups(
            declared,
            propensity,
            s.outcome,
            s.membership,
            external=p_external,
            borrow=s.borrow_metric,
            scale_external="faircfint",
            renormalise=False,
        )
        assert model.propensity is not None
        request = replace(
            request, propensity=model.propensity, folds=FoldsRequest(values=pd.Series(codes))
        )
        small.append(
            fit_small_subgroups(
                request, cohort, declared, LIMITS, labels=given.permutes, seed=s.seed, exact=True
            )
        )
    return Fits(cohort, fitted[0], fitted[-1], small[0], small[-1].models, said)


def _as_it_was_fitted(
    request: ModelRequest | None, cohort: Cohort, table: Input
) -> ModelRequest | None:
    """A fitted result with its probabilities, where attributes came as anything but text.

    It was fitted to them as they came, and in the cohort they are text. That it is a binary model
    of D is checked where its probabilities are taken.
    """
    if request is None or request.result is None or request.formula is None:
        return request
    frame = as_they_came(table.table).iloc[table.rows[cohort.rows]]
    same = all(
        np.array_equal(frame[a].astype(object), cohort.data[a].astype(object))
        for a in ("A1", "A2")
        if a in request.columns
    )
    if same or cohort.outcome_name in request.columns:  # which is refused
        return request
    values = np.full(table.declared.n_rows, np.nan)
    values[cohort.rows] = predict(request, cohort, frame)
    return replace(request, formula=None, values=pd.Series(values, table.declared.table.index))


def _estimates(fits: Fits) -> Rates:
    """Rates of groups, margins and all rows: (1, T) arrays by metric."""
    cohort, propensity = fits.cohort, fits.observed.propensity
    assert cohort.d is not None
    assert propensity is not None
    arrays = (cohort.y, cohort.s, cohort.groups.codes, cohort.groups.n_groups)
    weighted = confusion_counts(*arrays, ipw_weights(cohort.d, propensity.pi))
    rates = _from_cells(cohort, weighted[None], confusion_counts(*arrays)[None])
    if fits.small is not None:
        both = fits.small.sums.rates(targets(cohort))
        rates |= {metric: values[None] for metric, values in zip(SMALL, both, strict=True)}
    return rates


def _from_cells(cohort: Cohort, cells: Array, observed: Array) -> Rates:
    """Rates from weighted and plain cells of the groups, (R, K, 2, 2) each."""
    T = targets(cohort)
    return {**draws_from_cells(observed, T, ("fpr", "fnr")), **draws_from_cells(cells, T)}


def _rows_of_small(cohort: Cohort, small: FittedSmallSubgroups) -> dict[str, Any]:
    members = {"membership": small.p_group}
    if small.external is not None:
        members["membership_internal"] = small.membership.p
        members["membership_external"] = small.external.p
    return small_rows(cohort, small.outcome, small.folds, members, compat=True)


# -- replicates -----------------------------------------------------------------------------------


def _null_rates(fits: Fits, s: Settings, given: Replicates) -> Rates | None:
    """Rates under permuted groups."""
    if not s.n_null:
        return None
    models, small, perms = fits.models, fits.small_refitted, given.permutations
    if small is None:
        found = permutation_null(
            models,
            n_perm=s.n_null,
            seed=s.seed,
            permutations=perms,
            n_jobs=s.n_jobs,
            exact=True,
            progress=s.progress,
        )
        _warn_not_converged(found.not_converged, s.n_null, "null")
        return _from_cells(fits.cohort, found.cells, found.observed)
    rows = models.rows
    _check_given("null_folds", s.null_folds, [rows.n] * s.n_null)
    order = rows.canonical(*small.keys) if perms is None else rows.arranged(np.arange(rows.n))
    labels = label_blocks(rows, order, perms)
    at = rows.canonical(*small.keys, by_group=True)

    def folds_of(r: int, label: Integers, rng: np.random.Generator) -> Codes:
        if s.null_folds is not None:
            return _given_codes(s.null_folds[r], rows.n, "null_folds")
        return faircfint_folds(label, s.nfolds, at, rng)

    def draw(block: Stream) -> Integers:
        return own_labels(labels(block), order).astype(np.intp)

    return _folds_anew(fits, s, "null", draw, folds_of)


def _boot_rates(fits: Fits, s: Settings, given: Replicates) -> Rates | None:
    """Rates in subsamples."""
    if not s.n_boot:
        return None
    models, small, resamples = fits.models, fits.small_refitted, given.resamples
    keys = models.keys if small is None else small.keys
    if resamples is None:
        resamples = subsamples(models.rows, keys, s.n_boot, s.m_factor, s.seed)
    if small is None:
        found = bootstrap_draws(
            models,
            n_boot=s.n_boot,
            seed=s.seed,
            resamples=resamples,
            n_jobs=s.n_jobs,
            progress=s.progress,
        )
        _warn_not_converged(found.not_converged, s.n_boot, "bootstrap")
        return _from_cells(fits.cohort, found.cells, found.observed)
    rows = models.rows
    _check_given("boot_folds", s.boot_folds, [len(drawn) for drawn in resamples])
    at = rows.canonical(*keys, by_group=True)

    def folds_of(r: int, counts: Array, rng: np.random.Generator) -> Codes:
        if s.boot_folds is None:
            return faircfint_folds(rows.group, s.nfolds, at, rng, np.flatnonzero(counts))
        codes = np.zeros(rows.n, dtype=np.intp)
        codes[resamples[r]] = _given_codes(s.boot_folds[r], len(resamples[r]), "boot_folds")
        return codes

    return _folds_anew(fits, s, "bootstrap", given_counts(resamples, rows.n), folds_of)


def subsamples(
    rows: Rows, keys: Sequence[Array], n_boot: int, m_factor: float, seed: int
) -> list[Codes]:
    """Rows of every replicate: about n^m_factor, without replacement from group, outcome, call."""
    draw = count_blocks("faircfint", rows, keys, m_factor=m_factor)
    blocks = streams(seed, _BOOTSTRAP, n_boot)
    drawn = [np.flatnonzero(counts) for block in blocks for counts in draw(block)]
    if not len(drawn[0]):
        raise DataError(
            f"m_factor={m_factor:g} asks for {int(rows.n**m_factor)} of {rows.n} rows, which "
            "leaves none in any stratum. Use a larger one, such as 0.75."
        )
    return drawn


def _folds_anew(
    fits: Fits,
    s: Settings,
    what: str,
    draw: Callable[[Stream], Any],
    folds_of: Callable[[int, Any, np.random.Generator], Codes],
) -> Rates:
    """Replicates of small groups, in blocks with a random stream for rows and one for folds."""
    under, purpose, n = (
        ("under_labels", _PERMUTATION, s.n_null)
        if what == "null"
        else ("under_counts", _BOOTSTRAP, s.n_boot)
    )
    assert fits.small_refitted is not None
    models, small = fits.models, fits.small_refitted
    streams_of_folds = streams(s.seed, _FOLDS + purpose, n)

    def work(block: Stream) -> list[tuple[Rates, bool]]:
        rng = streams_of_folds[block.first // STREAM].generator()
        found = []
        for r, drawn in enumerate(draw(block), block.first):
            part = getattr(models, under)(drawn[None])
            more = getattr(small.with_folds(folds_of(r, drawn, rng)), under)(drawn[None])
            rates = _from_cells(fits.cohort, part.cells, part.observed)
            rates |= {SMALL[0]: more.rates["cfpr"], SMALL[1]: more.rates["cfnr"]}
            rates |= {ALPHA: more.rates[ALPHA]} if ALPHA in more.rates else {}
            found.append((rates, part.not_converged + more.not_converged > 0))
        return found

    done = run_streams(
        work,
        streams(s.seed, purpose, n),
        n_jobs=s.n_jobs,
        progress=s.progress,
        label=what,
        processes=models.learns or small.learns,
    )
    found = [one for block in done for one in block]
    _warn_not_converged(sum(failed for _, failed in found), n, what)
    return {m: np.concatenate([rates[m] for rates, _ in found]) for m in found[0][0]}


# -- folds ----------------------------------------------------------------------------------------


def _observed_folds(cohort: Cohort, rows: Rows, s: Settings, table: Input) -> Codes:
    if s.folds is not None:
        whole = table.table
        column = isinstance(s.folds, str)
        folds = whole.column(s.folds, "folds") if column else whole.align(s.folds, "folds")
        return folds_given(folds.iloc[table.rows[cohort.rows]]).codes
    at = rows.canonical(content_numbers(cohort), by_group=True)
    return faircfint_folds(rows.group, s.nfolds, at, streams(s.seed, _FOLDS, 1)[0].generator())


def _given_codes(values: Any, n: int, what: str) -> Codes:
    if np.shape(values) != (n,):
        raise DataError(f"{what} must have a fold for each of {n} rows, not {np.shape(values)}.")
    return folds_given(values).codes


def _check_given(name: str, values: Any, sizes: Sequence[int]) -> None:
    """Check folds that were given for replicates before any of them is computed."""
    if values is not None and [len(v) for v in values] != list(sizes):
        raise DataError(
            f"{name} must hold {len(sizes)} replicates with a fold for each of their rows."
        )


# -- what there is to say -------------------------------------------------------------------------


def _boundary_notes(rates: Rates, groups: Groups) -> list[str]:
    """Warn of rates of exactly 0 or 1, which the summaries leave out."""
    notes, names = [], pasted(groups)
    for metric, values in rates.items():
        found = [(k, v) for k, v in enumerate(values[0, : groups.n_groups]) if v in (0, 1)]
        if found:
            shown = show_some([f"{names[k]} ({v:g})" for k, v in found], 6)
            left_out = "; the summaries leave it out (compat=True)"
            notes.append(
                f"{_NAMES[metric]} is exactly 0 or 1 in {shown}"
                + left_out * (metric not in ("fpr", "fnr"))
            )
    return _warned(notes)


def _replicate_notes(draws: Rates, groups: Groups, what: str) -> list[str]:
    """Warn of replicates in which a counterfactual rate is 0 or 1, or undefined."""
    own = {m: v[:, : groups.n_groups] for m, v in draws.items() if m not in ("fpr", "fnr")}
    found = np.hstack(list(own.values()))
    labels = [f"{_NAMES[metric]} of {name}" for metric in own for name in pasted(groups)]
    notes = []
    for at, does, so in (
        ((found == 0) | (found == 1), "a counterfactual rate is exactly 0 or 1",
         ", and the summaries leave it out (compat=True)"),
        (np.isnan(found), "a rate is undefined", ""),
    ):  # fmt: skip
        times = at.sum(axis=0)
        if times.any():
            most = [k for k in np.argsort(-times, kind="stable") if times[k]]
            shown = show_some([f"{labels[k]} ({times[k]})" for k in most], 4)
            n = int(at.any(axis=1).sum())
            notes.append(f"{what}: in {n} of {len(found)} replicates {does}{so}: {shown}")
    return _warned(notes)


def _warned(notes: Iterable[str]) -> list[str]:
    said = list(notes)
    for note in said:
        warn(f"{note}.", SmallGroupWarning)
    return said


def _warn_not_converged(failed: int, n: int, what: str) -> None:
    if failed:
        warn(
            f"{what}: in {failed} of {n} replicates a model did not converge, or lacked a group "
            "outside some fold.",
            ConvergenceWarning,
        )
