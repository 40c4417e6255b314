"""What cfair raises and what it warns of.

An error message has four parts: what is wrong, in which column or argument, how many rows (and the
first few values), and what to do next.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path


class CfairError(Exception):
    """Base of every error that cfair raises on purpose."""


class DataError(CfairError, ValueError):
    """The data cannot be used as they are: a column, a value, a row count."""


class FormulaError(CfairError, ValueError):
    """A formula cannot be read, names what is not there, or asks for what is not allowed."""


class ConvergenceError(CfairError, RuntimeError):
    """A model could not be fitted at all."""


class CfairWarning(UserWarning):
    """Base of every warning that cfair gives."""


class SeparationWarning(CfairWarning):
    """A covariate separates the two values of a modelled variable; its coefficient is infinite."""


class ConvergenceWarning(CfairWarning):
    """A model fit stopped before it converged."""


class RankWarning(CfairWarning):
    """Columns of a design matrix are linear combinations of others and were left out."""


class OverlapWarning(CfairWarning):
    """Some rows or groups have hardly any chance of one of the treatment arms."""


class SmallGroupWarning(CfairWarning):
    """A group is too small to be judged."""


class ModelWarning(CfairWarning):
    """A model leaves out what the method needs, such as the score in the propensity formula."""


class CutoffWarning(CfairWarning):
    """The cutoff puts every row on one side."""


def warn(message: str, category: type[CfairWarning]) -> None:
    """Give a warning that points to the caller's own line, not to one of cfair's.

    Parameters
    ----------
    message : str
    category : type of CfairWarning
    """
    here = f"{Path(__file__).parent}{os.sep}"
    depth = 2  # the caller of this function
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame = frame.f_back
        depth += 1
    warnings.warn(message, category, stacklevel=depth)
