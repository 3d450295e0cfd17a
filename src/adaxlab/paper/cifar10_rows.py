"""Rows and studies of CIFAR-10 at the paper's settings: what `cifar10.py` and `cifar10_retests.py` are made of."""

from __future__ import annotations

from typing import Any

from adaxlab.study import Row, Study
from adaxopt.zoo import METHODS

EPOCHS = 182
STEP = {"name": "step", "milestones": (100 / EPOCHS, 150 / EPOCHS), "gamma": 0.1}
HOLDOUT = 4944
Paper = tuple[float, float] | None


def sgdm(name: str = "sgdm", weight_decay: float = 5e-4, lr: float = 0.1, paper: Paper = None) -> Row:
    """Momentum 0.9 and L2, torch's."""
    return Row(name, "torch:SGD", dict(lr=lr, momentum=0.9, weight_decay=weight_decay), paper=paper)


def adamw(name: str = "adamw", paper: Paper = None, **options: Any) -> Row:
    """torch's AdamW at the paper's lr 1e-3 and weight decay 0.1."""
    return Row(name, "torch:AdamW", {**dict(lr=1e-3, weight_decay=0.1), **options}, paper=paper)


def adaxw(name: str = "adaxw", paper: Paper = None, **options: Any) -> Row:
    """The library's AdaX-W at the paper's lr 5e-3 and weight decay 5e-2, as published: without the guard for
    coordinates that receive their first gradient late."""
    return Row(name, "adaxw", {**dict(lr=5e-3, weight_decay=5e-2, wake=False), **options}, paper=paper)


def ours(name: str, method: str, **options: Any) -> Row:
    """Any method of the zoo in the library's engine, at its documented lr unless another is given."""
    return Row(name, method, {"lr": METHODS[method].defaults["lr"], **options})


def make(
    name: str, where: str, asks: str, rows: tuple[Row, ...], title: str, note: str, **rest: Any
) -> Study:
    """A study of runs that train side by side."""
    options = {"model": "resnet20", "precision": "bf16", **rest.pop("task_options", {})}
    given: dict[str, Any] = {"seeds": 3, "epochs": EPOCHS, "batch_size": 128, "schedule": STEP, **rest}
    given |= {"where": where, "asks": asks, "title": title, "note": note}
    return Study("cifar10", rows, f"cifar10/{name}", executor="stack", task_options=options, **given)
