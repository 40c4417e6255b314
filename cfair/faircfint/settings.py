"""What an analysis is asked for: its options, checked, and the models they stand for."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfair.errors import DataError
from cfair.nuisance.learners import Learner, require_sklearn
from cfair.options import check_option, is_number

ESTIMATORS: tuple[str, ...] = ("standard", "small_internal", "small_borrow")
METHODS: tuple[str, ...] = ("multinomial", "neural_net")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_FOREST = (
    "the R package accepts it and then stops. Use {}, or compat=False, where it is a random forest "
    "of scikit-learn, predicted out of fold."
)


def names_of(value: Any) -> tuple[str, ...]:
    """Names of columns as a tuple; none for None."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(str(name) for name in value)


def right_side(columns: Sequence[str]) -> str:
    """Main effects of columns as the right side of a formula.

    Examples
    --------
    >>> right_side(["X1", "body mass"])
    'X1 + `body mass`'
    """
    return " + ".join(name if _PLAIN.match(name) else f"`{name}`" for name in columns)


# -- models of scikit-learn -----------------------------------------------------------------------


def network(hidden: int, max_iter: int, seed: int | None) -> Any:
    """A network with one hidden layer, as near to that of the R package as scikit-learn goes.

    R's ``nnet`` starts its weights in +-0.7, penalises those of the biases too, and draws by R. Its
    decay of 1 is an alpha of 2 here, since scikit-learn halves the penalty.
    """
    require_sklearn()
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(
        hidden_layer_sizes=(hidden,),
        activation="logistic",
        solver="lbfgs",
        alpha=2.0,
        max_iter=max_iter,
        max_fun=10 * max_iter,
        random_state=seed,
    )


def _network_learner(hidden: int, columns: Sequence[str]) -> Learner:
    """A network that standardises its columns first; its seed is that of the analysis."""
    found = network(hidden, 3000, None)
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return Learner(make_pipeline(StandardScaler(), found), columns=list(columns))


def _forest_learner(columns: Sequence[str], seed: int | None) -> Learner:
    """A random forest of 2000 trees, each split among all columns."""
    require_sklearn()
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(n_estimators=2000, max_features=None, random_state=seed)
    return Learner(forest, columns=list(columns))


# -- options --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Settings:
    """The arguments of an analysis; see `cfair.faircfint.analysis_estimation`."""

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
    progress: bool = False
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
    def replicated(self) -> bool:
        """Whether there are replicates."""
        return self.n_null > 0 or self.n_boot > 0

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
        """The model that was given, a forest, or main effects."""
        if self.pi_model is not None:
            return self.pi_model
        if self.pi_model_type == "rf":
            return _forest_learner(self.pi_xvars, self.pi_model_seed)
        return self.own_propensity

    @property
    def outcome(self) -> Any:
        """The outcome model of small groups."""
        if self.outcome_model_type == "glm":
            return f"~ {right_side(self.outcome_xvars)}"
        if self.outcome_model_type == "rf":
            return _forest_learner(self.outcome_xvars, None)
        return _network_learner(100, self.outcome_xvars)

    @property
    def membership(self) -> Any:
        """The membership model of small groups."""
        if self.fit_method_int == "multinomial":
            return f"~ {right_side(self.pa_xvars_int)}"
        return _network_learner(50, self.pa_xvars_int)

    def check(self) -> None:
        """Refuse options that are not allowed, or that stop the R package."""
        check_option("estimator_type", self.estimator_type, ESTIMATORS)
        check_option("pi_model_type", self.pi_model_type, ("glm", "rf"))
        check_option("outcome_model_type", self.outcome_model_type, ("glm", "neural_net", "rf"))
        check_option("fit_method_int", self.fit_method_int, METHODS)
        check_option("borrow_metric", self.borrow_metric, ("brier", "auc"))
        if not is_number(self.cutoff) or not math.isfinite(self.cutoff):
            raise DataError(
                f"cutoff must be a number, such as 0.5, not {self.cutoff!r}: S = 1 if "
                "S_prob >= cutoff."
            )
        if not self.compat and (self.null_folds is not None or self.boot_folds is not None):
            raise DataError("null_folds and boot_folds need compat=True: else folds are kept.")
        if not self.pi_xvars and self.pi_model is None:
            raise DataError("pi_xvars must name the covariates of the propensity model.")
        if not self.pi_xvars and self.compat and self.replicated:
            raise DataError(
                "pi_xvars must name the covariates of the propensity model, which replicates refit "
                "from them whatever pi_model is (compat=True)."
            )
        if self.compat and self.pi_model_type == "rf":
            raise DataError(f'pi_model_type="rf": {_FOREST.format(repr("glm"))}')
        if self.small:
            self._check_small()
        if self.n_boot and self.compat and self.resamples is None:
            self._check_m_factor()

    def _check_small(self) -> None:
        for name in ("outcome_xvars", "pa_xvars_int"):
            if not getattr(self, name):
                raise DataError(
                    f'{name} must name covariates for estimator_type="{self.estimator_type}".'
                )
        if self.compat and self.outcome_model_type == "rf":
            raise DataError(f'outcome_model_type="rf": {_FOREST.format("glm or neural_net")}')
        whole = isinstance(self.nfolds, (int, np.integer)) and not isinstance(self.nfolds, bool)
        if self.folds is None and (not whole or self.nfolds < 2):
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
