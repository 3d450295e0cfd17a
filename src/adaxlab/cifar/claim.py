"""What a claim is: a sentence, the study that judges it, and one of the rules that `rules.py` explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UNTIL = 99
"""Epochs before the first drop of the learning rate, over which speed is averaged."""
FLOOR = 15.0
"""A final accuracy that is no more than this is a run that failed."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper (or one of ours: `paper="(ours)"`), the study that judges it and the rule."""

    id: str
    where: str
    text: str
    study: str
    rule: Literal["better", "not-worse", "similar", "value", "faster", "below", "larger", "as-fast"]
    a: str
    b: str = ""
    margin: float = 0.0
    paper: float | tuple[float, float] | str | None = None
    note: str = ""

    @property
    def says(self) -> str:
        """The paper's value in words."""
        if isinstance(self.paper, tuple):
            return f"{self.paper[0]:.2f} +- {self.paper[1]:.2f}"
        if isinstance(self.paper, float):
            return f"{self.paper:+.2f}"
        return self.paper or "no number in the text"
