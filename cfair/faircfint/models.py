"""What an analysis is asked for: its options, checked, and the models they stand for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfair.errors import DataError
from cfair.options import check_count, check_option

ESTIMATORS: tuple[str, ...] = ("standard", "small_internal", "small_borrow")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_FOREST = (
    "the R package accepts it and then stops. Use {}, or compat=False, where it is a random forest "
    "of scikit-learn, predicted out of fold."
)


def right_side(columns: Sequence[str]) -> str:
    """Main effects of columns as the right side of a formula.

    Parameters
    ----------
    columns : sequence of str

    Returns
    -------
    str

    Examples
    --------
    >>> right_side(["X1", "body mass"])
    'X1 + `body mass`'
    """
    return " + ".join(name if _PLAIN.match(name) else f"`{name}`" for name in columns)


def names_of(value: Any) -> tuple[str, ...]:
    """Names of columns as a tuple; none for None.

    Parameters
    ----------
    value : str, sequence of str or None

    Returns
    -------
    tuple of str
    """
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(str(name) for name in value)


@dataclass(frozen=True, eq=False)
class Settings:
    """The arguments of an analysis, checked; see `cfair.faircfint.analysis_estimation`."""

    cutoff: Any
    estimator_type: str
    pi_model: Any
    pi_model_type: str
    pi_model_seed: int | None
    pi_xvars: tuple[str, ...]
    n_null: int
    n_boot: int
    m_factor: float
    outcome_model_type: str
    outcome_xvars: tuple[str, ...]
    fit_method_int: str
    nfolds: Any
    pa_xvars_int: tuple[str, ...]
    borrow_metric: str
    compat: bool
    seed: int
    n_jobs: int | None
    permutations: Any = field(default=None, repr=False)
    resamples: Any = field(default=None, repr=False)
    folds: Any = field(default=None, repr=False)
    null_folds: Any = field(default=None, repr=False)
    boot_folds: Any = field(default=None, repr=False)

    @property
    def small(self) -> bool:
        """Whether rates of small groups are estimated."""
        return self.estimator_type != "standard"

    @property
    def borrows(self) -> bool:
        """Whether external data take part."""
        return self.estimator_type == "small_borrow"

    @property
    def permutes(self) -> bool:
        """Whether there is a permutation null."""
        return self.n_null > 0

    @property
    def bootstraps(self) -> bool:
        """Whether there is a bootstrap."""
        return self.n_boot > 0

    @property
    def xvars(self) -> dict[str, tuple[str, ...]]:
        """Columns of covariates by argument."""
        found = {"pi_xvars": self.pi_xvars}
        if self.small:
            found |= {"outcome_xvars": self.outcome_xvars, "pa_xvars_int": self.pa_xvars_int}
        return found

    @property
    def own_propensity(self) -> str:
        """The formula of main effects that the R package fits."""
        return f"D ~ {right_side(self.pi_xvars)}"

    @property
    def propensity(self) -> Any:
        """The model that was given, or that of main effects."""
        return self.own_propensity if self.pi_model is None else self.pi_model

    @property
    def outcome(self) -> Any:
        """The outcome model of small groups: a formula, or a network."""
        if self.outcome_model_type == "glm":
            return f"~ {right_side(self.outcome_xvars)}"
        from cfair.faircfint.learning import forest_learner, network_learner

        if self.outcome_model_type == "rf":
            return forest_learner(self.outcome_xvars, None)
        return network_learner("outcome", self.outcome_xvars)

    @property
    def membership(self) -> Any:
        """The membership model of small groups: a formula, or a network."""
        if self.fit_method_int == "multinomial":
            return f"~ {right_side(self.pa_xvars_int)}"
        from cfair.faircfint.learning import network_learner

        return network_learner("membership", self.pa_xvars_int)

    def check(self) -> None:
        """Refuse options that are not allowed, or that stop the R package.

        Raises
        ------
        ValueError, DataError
        """
        check_option("estimator_type", self.estimator_type, ESTIMATORS)
        check_option("pi_model_type", self.pi_model_type, ("glm", "rf"))
        check_option("outcome_model_type", self.outcome_model_type, ("glm", "neural_net", "rf"))
        check_option("fit_method_int", self.fit_method_int, ("multinomial", "neural_net"))
        check_option("borrow_metric", self.borrow_metric, ("brier", "auc"))
        if not self.pi_xvars and (
            self.pi_model is None or (self.compat and (self.permutes or self.bootstraps))
        ):
            raise DataError(
                "pi_xvars must name the covariates of the propensity model"
                + (
                    ", which replicates refit from them whatever pi_model is (compat=True)."
                    if self.pi_model is not None
                    else "."
                )
            )
        if self.compat and self.pi_model_type == "rf":
            raise DataError(f'pi_model_type="rf": {_FOREST.format(repr("glm"))}')
        if self.small:
            self._check_small()
        if self.bootstraps and self.compat and self.resamples is None:
            self._check_m_factor()

    def _check_small(self) -> None:
        for name in ("outcome_xvars", "pa_xvars_int"):
            if not getattr(self, name):
                raise DataError(
                    f'{name} must name covariates for estimator_type="{self.estimator_type}".'
                )
        if self.compat and self.outcome_model_type == "rf":
            raise DataError(f'outcome_model_type="rf": {_FOREST.format("glm or neural_net")}')
        if self.folds is None and (
            isinstance(self.nfolds, bool)
            or not isinstance(self.nfolds, (int, np.integer))
            or self.nfolds < 2
        ):
            raise DataError(
                f"nfolds must be a whole number of at least 2, such as 5, not {self.nfolds!r}: "
                "membership is predicted by a model that has not seen the row."
            )

    def _check_m_factor(self) -> None:
        number = isinstance(self.m_factor, (float, int)) and not isinstance(self.m_factor, bool)
        if not number or not 0 < self.m_factor < 1:
            more = (
                " With 1 the R package draws one row of each stratum instead of all of them."
                if self.m_factor == 1
                else ""
            )
            raise DataError(
                f"m_factor must lie between 0 and 1, such as 0.75, not {self.m_factor!r}: "
                f"n^m_factor rows are drawn.{more} For as many rows as there are use compat=False."
            )


def count_of(value: Any, name: str, wanted: bool, given: Any) -> int:
    """Number of replicates: that of the rows given, or as asked for.

    Parameters
    ----------
    value : int
    name : str
    wanted : bool
    given : sequence or None

    Returns
    -------
    int
    """
    if given is not None:
        return len(given)
    return check_count(value, name) if wanted else 0
