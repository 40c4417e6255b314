"""Which module may import which, what `import cfair` costs, and what a run leaves behind."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cfair

ROOT = Path(cfair.__file__).parent
# From the ground up: a layer imports from those before it and, without a cycle, from itself.
LAYERS = [
    ["errors", "_version"],
    ["options"],
    ["frame"],
    ["groups"],
    ["columns"],
    ["roles"],
    ["counting"],
    ["batches"],
    ["combinations"],
    ["disclosure"],
    ["cohort"],
    ["formula"],
    ["estimators"],
    ["nuisance"],
    ["inference"],
    ["metrics"],
    ["equivalence"],
    ["tables"],
    ["plotting"],
    ["results"],
    ["report"],
    ["datasets"],
    ["analyses"],
    ["audit"],
    ["workflow"],
    ["faircfint"],
    ["cli"],
    ["__main__"],
]
LAYER = {name: k for k, names in enumerate(LAYERS) for name in names}


def module_name(path):
    parts = list(path.relative_to(ROOT.parent).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(p): p for p in sorted(ROOT.rglob("*.py")) if p != ROOT / "__init__.py"}


def is_type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(path):
    """Modules of cfair that run-time code imports, at the top level or inside functions."""
    found = set()

    def visit(node):
        if is_type_checking(node):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names if a.name.split(".")[0] == "cfair")
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            if node.module and node.module.split(".")[0] == "cfair":
                for a in node.names:
                    inner = f"{node.module}.{a.name}"
                    found.add(inner if inner in MODULES else node.module)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


def layer(name):
    parts = name.split(".")
    return LAYER[parts[1]] if len(parts) > 1 else None


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_from_those_above_it(name):
    assert name.split(".")[1] in LAYER, f"{name} has no place in the list"
    for imported in imports(MODULES[name]) - {"cfair"}:
        assert layer(imported) <= layer(name), f"{name} imports {imported}"
    if name.split(".")[1] not in ("cli", "__main__", "faircfint"):
        assert "cfair" not in imports(MODULES[name]) or name == "cfair.cli", name


def test_no_modules_import_each_other_in_a_circle():
    graph = {n: {i for i in imports(p) if i in MODULES and i != n} for n, p in MODULES.items()}
    for n in graph:  # a package's own __init__ comes after its modules
        graph[n] = {i for i in graph[n] if not n.startswith(i + ".")}
    done: set[str] = set()
    while len(done) < len(graph):
        free = {n for n in graph if n not in done and graph[n] <= done}
        assert free, f"a circle among {sorted(set(graph) - done)}"
        done |= free


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_written_for_the_oldest_python_promised(name):
    ast.parse(MODULES[name].read_text(), feature_version=(3, 10))


def test_estimators_are_pure_numpy():
    for name, path in MODULES.items():
        if name.startswith("cfair.estimators"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
                    assert module.split(".")[0] in ("__future__", "dataclasses", "numpy", "cfair")


HEAVY = ("scipy.stats", "statsmodels", "matplotlib", "patsy")


def loaded_after(code):
    check = f"import sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{check}"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "code", ["import cfair", "import cfair; cfair.Audit", "import cfair.errors"]
)
def test_importing_cfair_is_light(code):
    assert loaded_after(code) == "[]"


def test_observed_rates_need_no_formulas_and_no_plots():
    code = (
        "import cfair\n"
        "a = cfair.Audit(cfair.load_cohort(), outcome='readmitted', score='risk', cutoff=0.5,"
        " groups='sex')\n"
        "a.observed()"
    )
    loaded = loaded_after(code)
    assert "patsy" not in loaded
    assert "matplotlib" not in loaded


RUN = """
import random, warnings
import numpy as np, pandas as pd, matplotlib
matplotlib.use("Agg")
import cfair

def state():
    kind, keys, position, *rest = np.random.get_state()
    options = {k: str(pd.get_option(k)) for k in
               ("display.max_rows", "display.width", "display.precision", "display.max_columns")}
    return (kind, keys.tolist(), position, rest, random.getstate(), list(warnings.filters),
            dict(matplotlib.rcParams), options, np.get_printoptions(), np.geterr())

import statsmodels.formula.api, patsy, scipy.stats, matplotlib.pyplot  # their own traces
np.random.seed(3)
before = state()
a = cfair.Audit(cfair.load_cohort(), outcome="readmitted", score="risk", cutoff=0.5,
                groups=["sex", "race"])
r = a.counterfactual("treated ~ sex * race + risk + age + sbp", n_boot=30, n_perm=30, seed=1)
str(r); str(a.observed()); r.contrasts(adjust="max-t"); r.disparities; r.bootstrap_intervals("bc")
r.plot_rates(); r.plot_disparities(); r.plot_null(); r.plot_overlap()
cfair.simulate_cohort(100, seed=1)
for x, y in zip(before, state()):
    assert x == y, (x, y)
np.random.seed(99)
s = a.counterfactual("treated ~ sex * race + risk + age + sbp", n_boot=30, n_perm=30, seed=1)
assert s.null_draws.equals(r.null_draws) and s.boot_draws.equals(r.boot_draws)
print("unchanged")
"""


def test_a_full_run_leaves_no_trace_in_global_state():
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "unchanged" in done.stdout


def test_rooms_are_there_after_import_cfair():
    code = "import cfair; print(cfair.metrics.auc([0, 1], [0.2, 0.6]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1.0"


def test_public_names_exist():
    for name in cfair.__all__:
        assert getattr(cfair, name) is not None
    assert set(cfair.__all__) <= set(dir(cfair))
    with pytest.raises(AttributeError):
        _ = cfair.no_such_name
