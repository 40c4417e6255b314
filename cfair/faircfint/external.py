"""A membership model fitted outside, which can be kept and used in several analyses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfair.columns import formula_column
from cfair.errors import DataError
from cfair.faircfint.reading import (
    as_r_factor,
    complete_rows,
    pasted,
    r_texts,
    require_columns,
)
from cfair.faircfint.settings import METHODS, names_of, network, right_side
from cfair.formula import Design, build_design, parse_formula
from cfair.frame import as_table, show_some
from cfair.groups import Groups, make_groups
from cfair.inference.resampling import seed_entropy
from cfair.nuisance.learners import features
from cfair.nuisance.membership_checks import membership_fit_notes
from cfair.nuisance.multinomial import MultinomialFit, fit_multinomial
from cfair.options import check_option

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ExternalModel:
    """Probabilities of the groups given covariates, fitted to external rows.

    Attributes
    ----------
    method : {"multinomial", "neural_net"}
    groups : Groups
        Of the external rows.
    mean, sd : pandas.Series
        Of the numeric covariates (ddof 1), by which these were standardised.
    fit : MultinomialFit or scikit-learn classifier
    notes : tuple of str
    """

    method: str
    groups: Groups
    mean: pd.Series
    sd: pd.Series
    fit: Any
    notes: tuple[str, ...]
    _design: Design = field(repr=False)

    def __repr__(self) -> str:
        rows, K = len(self.groups.codes), self.groups.n_groups
        return (
            f"External membership model: {self.method} {self._design.formula.text}, "
            f"{rows:,} rows in {K} groups"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Covariates."""
        return self._design.formula.columns

    def scale_note(self, data: pd.DataFrame) -> str:
        """Which covariates of other rows go in unscaled, though they are in units of their own.

        Those with a mean beyond 0.5 or a standard deviation outside 0.5 to 2 in these rows, unless
        the external rows were standardised when they came: then they are right as they are.

        Parameters
        ----------
        data : pandas.DataFrame
            With the covariates.

        Returns
        -------
        str
            Empty if there are none.
        """
        found = []
        for name in self.mean.index:
            values = formula_column(data[name])
            if values.dtype.kind not in "iufb":
                continue  # refused by the design
            mean, sd, mean_out, sd_out = (
                float(v) for v in (values.mean(), values.std(), self.mean[name], self.sd[name])
            )
            if _far(mean, sd, 0.5, 2) and _far(mean_out, sd_out, 0.1, 1.1):
                found.append(
                    f"{name} {mean:.3g} and {sd:.3g} (outside {mean_out:.3g}, {sd_out:.3g})"
                )
        if not found:
            return ""
        return (
            "external covariates go unscaled into a model that was fitted to scaled ones, as the R "
            "package has it (compat=True). In the data they have mean and standard deviation "
            f"{show_some(found, 4)}, not about 0 and 1, so that membership by the external model "
            "and alpha are off. Standardise them in both tables by the external mean and standard "
            "deviation beforehand, or use compat=False"
        )

    def probabilities(self, data: pd.DataFrame, groups: Groups, *, compat: bool) -> Array:
        """Probabilities of groups on other rows.

        Parameters
        ----------
        data : pandas.DataFrame
            With the covariates.
        groups : Groups
            Those that are wanted; each must be in the external rows, and no other.
        compat : bool
            Covariates as they are, though they were standardised in fitting, as the R package has
            it; otherwise standardised alike.

        Returns
        -------
        (n, K) array

        Raises
        ------
        DataError
            If the groups do not agree.
        """
        if self.groups.attributes != groups.attributes:
            own_names, names = (" and ".join(g.attributes) for g in (self.groups, groups))
            raise DataError(
                f"the external data have the attribute columns {own_names}, the data {names}. Give "
                "both tables the same."
            )
        own, wanted = _filled(self.groups), _filled(groups)
        _require_the_same(own, wanted)
        frame = pd.DataFrame({name: formula_column(data[name]) for name in self.columns})
        if not compat:
            frame = _standardised(frame, self.mean, self.sd)
        matrix = self._design.transform(frame)
        if isinstance(self.fit, MultinomialFit):
            found = self.fit.predict(matrix)
        else:
            found = np.zeros((len(matrix), self.groups.n_groups))
            covariates = matrix[:, int(self._design.formula.intercept) :]
            found[:, self.fit.classes_] = self.fit.predict_proba(covariates)
        p = np.zeros((len(matrix), groups.n_groups))
        p[:, list(wanted.values())] = found[:, [own[label] for label in wanted]]
        return p


def _far(mean: float, sd: float, by: float, factor: float) -> bool:
    """Whether a mean and a standard deviation are far from 0 and 1."""
    return abs(mean) > by or not 1 / factor <= sd <= factor


def _standardised(frame: pd.DataFrame, mean: pd.Series, sd: pd.Series) -> pd.DataFrame:
    return frame.assign(**{name: (frame[name] - mean[name]) / sd[name] for name in mean.index})


def _filled(groups: Groups) -> dict[tuple[str, ...], int]:
    """Code of each group that has rows, by its labels as R has them, whatever their type."""
    texts = [r_texts(*at) for at in zip(groups.levels, groups.attributes, strict=True)]
    return {
        tuple(names[i] for names, i in zip(texts, at, strict=True)): k
        for k, at in enumerate(groups.level_codes.T)
        if groups.sizes[k]
    }


def _require_the_same(own: dict[tuple[str, ...], int], wanted: dict[tuple[str, ...], int]) -> None:
    lacking, other = [g for g in wanted if g not in own], [g for g in own if g not in wanted]
    if lacking or other:
        what = [("lacks", lacking), ("has, and the data have not,", other)]
        said = [f"{verb} {show_some([' & '.join(g) for g in gs])}" for verb, gs in what if gs]
        raise DataError(
            f"the external data must have the groups of the data, but {' and '.join(said)}. The R "
            "package stops there, or mixes up the columns. Merge levels in both tables, or leave "
            "these rows out."
        )


def get_pa_ext_small(
    data_external: Any,
    fit_method_ext: str = "multinomial",
    pa_xvars_ext: Sequence[str] | None = None,
    *,
    seed: int | np.random.SeedSequence | np.random.Generator | None = 0,
    compat: bool = True,
) -> ExternalModel:
    """Fit group membership on external data, to be given as ``pa_model_ext``.

    Numeric covariates are standardised with the external means and standard deviations. The model
    is fitted once, and the external data are not needed any more.

    Parameters
    ----------
    data_external : data frame
        Columns A1, A2 and the covariates; A1 alone for data without A2. Rows with a missing value
        are dropped, with a warning.
    fit_method_ext : {"multinomial", "neural_net"}, default "multinomial"
        A network has 100 hidden units; it needs scikit-learn.
    pa_xvars_ext : sequence of str
        Covariates; not the attributes, the outcome Y or the treatment D.
    seed : int, SeedSequence, Generator or None, default 0
        Of a network.
    compat : bool, default True
        Whether a missing value in any column counts, as in the R package, or only in A1, A2 and
        `pa_xvars_ext`.

    Returns
    -------
    ExternalModel

    Raises
    ------
    DataError
        If a column is lacking, constant or no covariate of membership, or no row is complete.
    ValueError
        If there is no such method, or for a seed that is none.

    Examples
    --------
    >>> import cfair
    >>> outside = cfair.load_cohort().rename(columns={"sex": "A1", "race": "A2"})
    >>> get_pa_ext_small(outside[["A1", "A2", "age", "sbp"]], pa_xvars_ext=["age", "sbp"])
    External membership model: multinomial ~ age + sbp, 5,000 rows in 6 groups
    """
    check_option("fit_method_ext", fit_method_ext, METHODS)
    xvars = names_of(pa_xvars_ext)
    if not xvars:
        raise DataError("pa_xvars_ext must name the covariates of the external model.")
    unfit = [name for name in xvars if name in ("A1", "A2", "Y", "D")]
    if unfit:
        raise DataError(
            f"pa_xvars_ext has {show_some([repr(name) for name in unfit])}: group membership "
            "cannot be explained by the attributes, nor by outcome and treatment, which come after "
            "the covariates that describe a group. Take it out."
        )
    number = seed_entropy(seed)
    table = as_table(data_external)
    names = [str(name) for name in table.names]
    require_columns(names, {"the attributes": ("A1",), "pa_xvars_ext": xvars}, "data_external")
    attributes = [name for name in ("A1", "A2") if name in names]
    in_use = None if compat else list(dict.fromkeys([*attributes, *xvars]))
    frame, _, _ = complete_rows(table, "data_external", in_use)
    groups = make_groups({name: as_r_factor(frame[name]) for name in attributes})
    formula = parse_formula(f"~ {right_side(xvars)}", names, what="external membership")
    columns = pd.DataFrame({name: formula_column(frame[name]) for name in xvars})
    columns = columns.reset_index(drop=True)
    numeric = columns.select_dtypes(include=np.number)
    mean, sd = numeric.mean(), numeric.std(ddof=1)
    constant = [repr(str(name)) for name in numeric.columns if not sd[name] > 0]
    if constant:
        raise DataError(
            f"data_external: {show_some(constant)} is constant and cannot be standardised. Leave "
            "it out of pa_xvars_ext."
        )
    design = build_design(formula, _standardised(columns, mean, sd))
    notes: list[str] = []
    fit: Any
    if fit_method_ext == "multinomial":
        fit = fit_multinomial(design.matrix, groups.codes, groups.n_groups)
        notes = membership_fit_notes(
            [fit], design.names, pasted(groups), what="external membership model"
        )
    else:
        fit = network(100, 1000, number).fit(features(design)[0], groups.codes)
    design = replace(design, matrix=design.matrix[:0])  # the data are not kept
    return ExternalModel(fit_method_ext, groups, mean, sd, fit, tuple(notes), design)
