"""Docstrings of public names document what there is: numpydoc's checks, by their codes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cached_property

import pytest

import cfair
import cfair.results

validate = pytest.importorskip("numpydoc.validate").validate

# GL06-GL08 a docstring, with known sections in their order; SS01-SS06 a summary of one sentence on
# one line; PR01-PR03 every parameter, none besides, in their order; RT01 what comes back; EX01 an
# example.
EVERYWHERE = {"GL06", "GL07", "GL08", "SS01", "SS02", "SS03", "SS04", "SS06", "PR02", "PR03"}
# The arguments that all metrics share stand together in one entry, out of their order.
# Results are made by cfair, and their classes list attributes. These methods have no parameters,
# and their summary says what comes back.
SAYS_IT_ALL = {"summary", "to_frame", "to_json", "to_dict"}
ROOMS = ("datasets", "equivalence", "estimators", "metrics", "plotting")


def top_level():
    return [f"{cfair._WHERE[name]}.{name}" for name in cfair.__all__ if name in cfair._WHERE]


def in_rooms():
    found = []
    for room in ROOMS:
        module = importlib.import_module(f"cfair.{room}")
        for name in getattr(module, "__all__", dir(module)):
            member = getattr(module, name)
            if callable(member) and member.__module__.startswith("cfair."):
                found.append(f"{member.__module__}.{member.__qualname__}")
    return found


def results():
    """Classes whose objects print, by their full names."""
    found = []
    for info in pkgutil.iter_modules(cfair.results.__path__):
        module = importlib.import_module(f"cfair.results.{info.name}")
        for name, member in vars(module).items():
            here = inspect.isclass(member) and member.__module__ == module.__name__
            if here and name.endswith(("Result", "Plan", "Planning", "Design")):
                found.append(f"{module.__name__}.{name}")
    return found


def members(path):
    """Public methods and properties that a class defines, or inherits from cfair."""
    module, name = path.rsplit(".", 1)
    of = getattr(importlib.import_module(module), name)
    kinds = (property, cached_property, classmethod, staticmethod)
    return {
        f"{path}.{key}": isinstance(value, (property, cached_property))
        for key, value in ((key, inspect.getattr_static(of, key)) for key in dir(of))
        if not key.startswith("_") and (inspect.isfunction(value) or isinstance(value, kinds))
    }


def wrong(path, codes):
    if path.startswith("cfair.metrics"):
        codes = codes - {"PR03"}
    return [f"{code}: {text}" for code, text in validate(path)["errors"] if code in codes]


FUNCTIONS = sorted({*top_level(), *in_rooms()})
MEMBERS = {}
for path in ("cfair.audit.Audit", *results()):
    MEMBERS.update(members(path))


def test_names_are_found():
    assert len(top_level()) == len(cfair.__all__) - 1
    assert len(in_rooms()) > 80
    assert len(MEMBERS) > 200
    assert "cfair.results.observed.ObservedResult.plot_forest" in MEMBERS


@pytest.mark.parametrize("path", FUNCTIONS)
def test_a_function_is_documented(path):
    module, name = path.rsplit(".", 1)
    codes = EVERYWHERE if inspect.isclass(getattr(importlib.import_module(module), name)) else (
        EVERYWHERE | {"PR01", "RT01"}
    )  # fmt: skip
    assert wrong(path, codes) == []


@pytest.mark.parametrize("path", [*top_level(), *(p for p in in_rooms() if "metrics" in p)])
def test_a_top_level_name_and_a_metric_have_an_example(path):
    assert wrong(path, {"EX01"}) == []


@pytest.mark.parametrize("path", [p for p in MEMBERS if p.startswith("cfair.audit.Audit.")])
def test_a_verb_has_an_example(path):
    assert wrong(path, {"EX01"}) == []


@pytest.mark.parametrize("path", MEMBERS)
def test_a_member_is_documented(path):
    codes = EVERYWHERE | {"PR01"}
    if not MEMBERS[path] and path.rsplit(".", 1)[1] not in SAYS_IT_ALL:
        codes = codes | {"RT01"}
    assert wrong(path, codes) == []
