"""Random forests and neural networks of scikit-learn, as near to those of the R package as they go.

They are not bit-equal. R's ``nnet`` starts its weights in +-0.7, penalises those of the biases too,
and its random numbers are R's; ``decay`` 1 is an ``alpha`` of 2 here, since scikit-learn halves the
penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cfair.nuisance.learners import Learner, require_sklearn


@dataclass(frozen=True)
class NetworkSettings:
    """Size of a network.

    Attributes
    ----------
    hidden : int
        Units of its only hidden layer.
    max_iter : int
    """

    hidden: int
    max_iter: int


NETWORKS: dict[str, NetworkSettings] = {
    "outcome": NetworkSettings(100, 3000),
    "membership": NetworkSettings(50, 3000),
    "external": NetworkSettings(100, 1000),
}
_DECAY = 1.0


def network(settings: NetworkSettings, seed: int | None, *, scale: bool = True) -> Any:
    """A network with one hidden layer.

    Parameters
    ----------
    settings : NetworkSettings
    seed : int or None
        None leaves it to the analysis.
    scale : bool, default True
        Whether to standardise its columns first.

    Returns
    -------
    scikit-learn classifier
    """
    require_sklearn()
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    found = MLPClassifier(
        hidden_layer_sizes=(settings.hidden,),
        activation="logistic",
        solver="lbfgs",
        alpha=2.0 * _DECAY,
        max_iter=settings.max_iter,
        max_fun=10 * settings.max_iter,
        random_state=seed,
    )
    return make_pipeline(StandardScaler(), found) if scale else found


def network_learner(what: str, columns: Sequence[str]) -> Learner:
    """A network for the outcome or for group membership.

    Parameters
    ----------
    what : {"outcome", "membership"}
    columns : sequence of str

    Returns
    -------
    Learner
    """
    return Learner(network(NETWORKS[what], None), columns=list(columns))


def forest_learner(columns: Sequence[str], seed: int | None) -> Learner:
    """A random forest of 2000 trees, each split among all columns.

    Parameters
    ----------
    columns : sequence of str
    seed : int or None

    Returns
    -------
    Learner
    """
    require_sklearn()
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(n_estimators=2000, max_features=None, random_state=seed)
    return Learner(forest, columns=list(columns))
