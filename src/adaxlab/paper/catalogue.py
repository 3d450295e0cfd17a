"""Every study by name, derived from the modules of this folder. `adax reproduce` alone prints it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from adaxlab.errors import check_known
from adaxlab.study import Study

MODULES = ("theory", "cifar10", "imagenet", "voc", "language", "gpt")
"""In the order of the catalogue; each has TITLE and STUDIES."""

NOTE = """\
adax reproduce STUDY --out runs
The same command resumes a study that was stopped; --seconds 3000 stops it
* on a stand-in for the paper's data, which is not freely available"""


@dataclass(frozen=True)
class Computation:
    """What is computed rather than trained: `module`.run(name, out, **options), imported when it is called."""

    name: str
    module: str
    where: str
    """Where the paper has it."""
    asks: str
    """The question, in one sentence."""

    def function(self) -> Any:
        return importlib.import_module(self.module).run


def modules() -> Iterator[tuple[str, Any]]:
    """Name and module of each family."""
    for name in MODULES:
        yield name, importlib.import_module(f"adaxlab.paper.{name}")


def groups() -> Iterator[tuple[str, tuple[Study | Computation, ...]]]:
    """Title and studies of each family."""
    for _, module in modules():
        yield module.TITLE, module.STUDIES


@functools.cache
def studies() -> dict[str, Study | Computation]:
    """All studies by name."""
    return {study.name: study for _, family in groups() for study in family}


def find(name: str) -> Study | Computation:
    """The study of that name; an error names the nearest ones."""
    check_known("study", sorted(studies()), name)
    return studies()[name]


def study(name: str) -> Study:
    """The study of that name, where it is one of runs."""
    found = find(name)
    assert isinstance(found, Study), name
    return found


def table() -> Any:
    """The catalogue for the terminal, in 80 columns: a table under the title of each group."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    every = studies().values()
    widths = 2 + max(len(s.name) for s in every), max(len(s.where) for s in every), 0
    parts: list[Any] = []
    for title, family in groups():
        rows = Table.grid(padding=(0, 2))
        for least in widths:
            rows.add_column(min_width=least, no_wrap=bool(least))
        for entry in family:
            rows.add_row(f"  {entry.name}", entry.where, entry.asks)
        parts += [Text(title, style="bold"), rows, Text("")]
    return Group(*parts, Text(NOTE))
