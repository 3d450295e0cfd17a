"""Examples that are read are examples that run: all docstrings, and every Python block in the documents."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
from pathlib import Path

import pytest
import torch

import adaxopt

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
ELSEWHERE = ("adaxopt.jax", "adaxopt.keras")
"""Needs frameworks that this suite does not: tests/integrations runs their examples."""
NEWER = ("adaxlab.muon", "adaxlab.optimizers", "adaxlab.optimizer_options")
"""Their examples have torch.optim.Muon, which came with torch 2.9."""


def modules():
    """Every module with an example."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        if ">>> " in path.read_text() and not name.startswith(ELSEWHERE):
            yield name


@pytest.mark.parametrize("name", list(modules()))
def test_docstrings(name):
    if name in NEWER and not hasattr(torch.optim, "Muon"):
        pytest.skip("needs torch.optim.Muon")
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs={"torch": torch}, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
    assert result.attempted > 0


def test_the_mathematics_and_the_optimizers_have_examples():
    core = {"memory", "rule", "zoo", *(f"torch.{name}" for name in ("optimizers", "project", "helpers"))}
    assert {f"adaxopt.{name}" for name in core} <= set(modules())


def blocks():
    """(document, line, code) of every ```python block."""
    found = []
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if not document.exists():
            continue
        text = document.read_text()
        for match in re.finditer(r"^```python\n(.*?)^```", text, flags=re.S | re.M):
            line = text[: match.start()].count("\n") + 2
            found.append((document.relative_to(ROOT), line, match.group(1)))
    return found


SETTING = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
data = [(torch.randn(16, 4), torch.randint(0, 2, (16,))) for _ in range(3)]
loss_fn = nn.CrossEntropyLoss()
inputs, targets = data[0]
"""
"""What a reader has at hand when a document speaks of `model`: names that a block may use without making them."""


@pytest.mark.parametrize(
    ("document", "line", "code"), blocks(), ids=lambda x: str(x) if not isinstance(x, str) else ""
)
def test_documents(document, line, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__example__"}
    exec(compile(SETTING, "<setting>", "exec"), names)
    padded = "\n" * (line - 1) + code  # errors then show the document's own line
    exec(compile(padded, os.fspath(document), "exec"), names)


def test_the_page_of_hyper_parameters_has_the_signature():
    text = (ROOT / "docs" / "hyperparameters.md").read_text()
    (written,) = re.findall(r"^```text\nAdaXW\((.*?)\)\n```", text, flags=re.S | re.M)
    names: dict[str, object] = {}
    exec(f"def AdaXW({written}): pass", names)
    expected = inspect.signature(adaxopt.AdaXW).parameters.values()
    found = inspect.signature(names["AdaXW"]).parameters.values()
    assert [(p.name, p.kind, p.default) for p in found] == [(p.name, p.kind, p.default) for p in expected]
    for kind in (adaxopt.AdaX, adaxopt.Padax):
        (line,) = re.findall(rf"`{kind.__name__}` has ([^;\n]*[^;.\n])", text)
        differing = {p.name: p.default for p in inspect.signature(kind).parameters.values()}
        said = dict(pair.split("=") for pair in line.replace(" and ", ", ").split(", "))
        base = {p.name: p.default for p in expected}
        assert {k: eval(v) for k, v in said.items()} == {
            k: v for k, v in differing.items() if k not in base or v != base[k]
        }
