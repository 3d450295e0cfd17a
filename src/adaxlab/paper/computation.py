"""What is computed rather than trained: a named function beside the studies."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Computation:
    """`module`.run(name, out, **options) carries it out; the module is imported when it is called."""

    name: str
    module: str
    where: str
    """Where the paper has it."""
    asks: str
    """The question, in one sentence."""

    def function(self) -> Any:
        return importlib.import_module(self.module).run
