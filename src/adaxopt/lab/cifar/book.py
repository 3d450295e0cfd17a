"""What is run on CIFAR-10: every study as data. Settings are the recipe's; `note` says what the paper leaves open.

A row is one optimizer setting, a study is rows x seeds. `paper` is the paper's accuracy and margin where it gives one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adaxopt.lab.cifar.stack import Recipe, Run


@dataclass(frozen=True)
class Row:
    """One line of a table: a name, an optimizer and its options."""

    name: str
    optimizer: str
    options: Mapping[str, Any]
    paper: tuple[float, float] | None = None


@dataclass(frozen=True)
class Study:
    """Rows x seeds under one recipe."""

    name: str
    rows: tuple[Row, ...]
    seeds: int = 5
    recipe: Recipe = field(default_factory=Recipe)
    note: str = ""

    def runs(self) -> list[Run]:
        """All runs, a row's seeds together, so that they share an optimizer."""
        return [
            Run(row.name, row.optimizer, row.options, seed) for row in self.rows for seed in range(self.seeds)
        ]


def sgdm(name: str, weight_decay: float, lr: float = 0.1, paper: tuple[float, float] | None = None) -> Row:
    """Momentum 0.9 and L2, torch's."""
    return Row(name, "torch:SGD", dict(lr=lr, momentum=0.9, weight_decay=weight_decay), paper)


def adamw(name: str = "adamw", paper: tuple[float, float] | None = None, **options: Any) -> Row:
    """torch's AdamW at the paper's lr 1e-3 and weight decay 0.1."""
    return Row(name, "torch:AdamW", {**dict(lr=1e-3, weight_decay=0.1), **options}, paper)


def adaxw(name: str = "adaxw", paper: tuple[float, float] | None = None, **options: Any) -> Row:
    """The library's AdaX-W at the paper's lr 5e-3 and weight decay 5e-2, as published: no guard for late wakers."""
    return Row(name, "adaxw", {**dict(lr=5e-3, weight_decay=5e-2, wake=False), **options}, paper)


TABLE2 = Study(
    "table2",
    (
        sgdm("sgdm-5e-4", 5e-4, paper=(92.30, 0.09)),
        sgdm("sgdm-1e-4", 1e-4, paper=(92.30, 0.09)),
        adamw("adamw", (91.86, 0.04)),
        adamw("amsgradw", (92.04, 0.05), amsgrad=True),
        adaxw("adaxw", (92.32, 0.04)),
    ),
    note="SGDM at the released code's weight decay (5e-4) and at the text's (1e-4), both beside the paper's one row.",
)

STUDIES: dict[str, Study] = {study.name: study for study in (TABLE2,)}
