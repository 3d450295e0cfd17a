"""Imports point one way, and the mathematics needs nothing but Python."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from adaxopt.zoo import METHODS

SOURCE = Path(__file__).parents[1] / "src" / "adaxopt"
MATHEMATICS = ("bounds", "memory", "memories", "rule", "zoo")
FRAMEWORKS = ("torch", "numpy", "jax", "keras", "triton")


def imports(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it, by its full name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("name", MATHEMATICS)
def test_the_mathematics_imports_the_standard_library_only(name):
    for module in imports(SOURCE / f"{name}.py"):
        top = module.split(".")[0]
        inner = module.split(".")[1] if top == "adaxopt" and "." in module else None
        assert top in sys.stdlib_module_names or (top == "adaxopt" and inner in (None, *MATHEMATICS)), module


def fresh(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r})\n{code}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("module", ["adaxopt", *(f"adaxopt.{name}" for name in MATHEMATICS)])
def test_importing_the_mathematics_imports_no_framework(module):
    code = f"import {module}\nprint(sorted(m for m in {FRAMEWORKS!r} if m in sys.modules))"
    assert fresh(code) == "[]"


def test_importing_the_optimizers_imports_no_laboratory_and_prints_nothing():
    code = (
        "from adaxopt import AdaXW\n"
        "names = ('adaxlab', 'adaxopt.jax', 'jax', 'rich', 'tyro', 'altair')\n"
        "bad = [m for m in sys.modules if m.startswith(names)]\n"
        "assert not bad, bad"
    )
    assert fresh(code) == ""


def test_public_names():
    import adaxopt
    import adaxopt.torch as ours

    assert set(ours.__all__) <= set(adaxopt.__all__)
    assert all(getattr(adaxopt, name) is getattr(ours, name) for name in ours.__all__)
    with pytest.raises(AttributeError, match="AdaY"):
        _ = adaxopt.AdaY


def test_no_backend_knows_a_method_by_name():
    """A backend receives numbers, never a method's name or a beta."""
    backends = sorted(
        path.stem for path in (SOURCE / "torch").glob("*.py") if path.stem.startswith(("fused_", "kernel"))
    )
    backends += ["dispatch", "foreach", "operators", "precision", "rounding", "wake_guard"]
    names = set(METHODS) - {"adam", "amsgrad"}  # torch's own kernels carry these words
    for backend in backends:
        path = SOURCE / "torch" / f"{backend}.py"
        constants = (n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant))
        assert not names & {c for c in constants if isinstance(c, str)}, backend


def test_the_library_never_prints():
    for path in [SOURCE / f"{name}.py" for name in MATHEMATICS] + sorted((SOURCE / "torch").glob("*.py")):
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        assert not any(isinstance(c.func, ast.Name) and c.func.id == "print" for c in calls), path.name
