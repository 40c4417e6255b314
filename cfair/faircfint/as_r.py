"""An analysis whose figures are those of the R package."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from cfair.analyses.observed import targets
from cfair.analyses.replicates import check_replicates
from cfair.estimators.confusion import confusion_counts
from cfair.estimators.ipw import ipw_weights
from cfair.faircfint.external import ExternalModel
from cfair.faircfint.figures import SMALL, boundary_note, warn_of_boundary
from cfair.faircfint.fits import Fits, fit_as_r
from cfair.faircfint.found import Found
from cfair.faircfint.labels import pasted
from cfair.faircfint.models import Settings
from cfair.faircfint.replicates import Rates, boot_rates, from_cells, null_rates
from cfair.faircfint.table import read_input, refuse_merged_strata
from cfair.inference.small_subgroup import ALPHA


def estimate_as_r(data: Any, settings: Settings, external: ExternalModel | None) -> Found:
    """Estimate as the R package does, with its replicates.

    Parameters
    ----------
    data : data frame
    settings : Settings
    external : ExternalModel or None

    Returns
    -------
    Found
    """
    s = settings
    wanted = dict(s.xvars)
    if external is not None:
        wanted["external covariates"] = external.columns
    table = read_input(data, s.cutoff, wanted)
    if s.pi_model is not None and np.ndim(s.pi_model) == 1 and not isinstance(s.pi_model, str):
        s = replace(s, pi_model=table.of_rows(s.pi_model, "pi_model"))
    replicates = check_replicates(
        n_boot=s.n_boot,
        n_perm=s.n_null,
        bootstrap="group",
        resamples=s.resamples,
        permutations=None if s.permutations is None else np.asarray(s.permutations),
        seed=s.seed,
        n_jobs=s.n_jobs,
        exact=True,
        progress=False,
    )
    fits = fit_as_r(table, s, replicates, external)
    cohort = fits.cohort
    replicates.check_rows(cohort)
    if s.bootstraps and s.resamples is None:
        refuse_merged_strata(pasted(cohort.groups))
    rates = _estimates(fits)
    notes = [*table.notes, *cohort.notes, *fits.notes, *warn_of_boundary(rates, cohort.groups)]
    null, boot = null_rates(fits, s, replicates), boot_rates(fits, s, replicates)
    for what, draws in (("null", null), ("bootstrap", boot)):
        if draws is not None:
            notes += boundary_note(
                {m: v for m, v in draws.items() if m != ALPHA}, cohort.groups, what
            )
    return Found(
        cohort=cohort,
        n_read=table.n_read,
        dropped=table.dropped,
        rates=rates,
        null=null,
        boot=boot,
        alpha=None if fits.small is None or external is None else fits.small.alpha,
        rows=_per_row(fits),
        models=fits.described(s),
        notes=tuple(dict.fromkeys(notes)),
    )


def _estimates(fits: Fits) -> Rates:
    """Rates of groups, margins and all rows: (1, T) arrays by metric."""
    cohort, propensity = fits.cohort, fits.observed.propensity
    assert cohort.d is not None
    assert propensity is not None
    groups = cohort.groups
    arrays = (cohort.y, cohort.s, groups.codes, groups.n_groups)
    weighted = confusion_counts(*arrays, ipw_weights(cohort.d, propensity.pi))
    rates = from_cells(cohort, weighted[None], confusion_counts(*arrays)[None])
    if fits.small is not None:
        both = fits.small.sums.rates(targets(cohort))
        rates |= {metric: values[None] for metric, values in zip(SMALL, both, strict=True)}
    return rates


def _per_row(fits: Fits) -> dict[str, Any]:
    """Probabilities of the rows, by their R names."""
    cohort, propensity, small = fits.cohort, fits.observed.propensity, fits.small
    assert cohort.d is not None
    assert propensity is not None
    index = cohort.index
    y0 = ipw_weights(cohort.d, propensity.pi) * cohort.y
    found: dict[str, Any] = {
        "propensity": pd.Series(propensity.pi, index, name="propensity"),
        "y0_weighted": pd.Series(y0, index, name="y0_weighted"),
        "pi_model": propensity,
    }
    if small is None:
        return found
    names = pd.Index(pasted(cohort.groups))
    outcome = found["outcome_model"] = small.outcome
    for name, values in (
        ("mu0hat", outcome.mu0),
        ("mu0S1hat", outcome.mu0_s1),
        ("mu0S0hat", outcome.mu0_s0),
    ):
        found[name] = pd.Series(values, index, name=name)
    found["membership"] = pd.DataFrame(small.p_group, index, columns=names)
    found["folds"] = pd.Series(small.folds.codes + 1, index, name="fold")
    if small.external is not None:
        found["membership_internal"] = pd.DataFrame(small.membership.p, index, columns=names)
        found["membership_external"] = pd.DataFrame(small.external.p, index, columns=names)
    return found
