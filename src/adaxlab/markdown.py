"""Parts of pages in Markdown: tables, spelling, and sections from a record that may not exist yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any


def table(head: Sequence[Any], rows: Iterable[Iterable[Any]]) -> str:
    """
    >>> print(table(("lr", "n"), [(0.1, 3)]))
    | lr | n |
    |---|---|
    | 0.1 | 3 |
    """
    lines = [" | ".join(map(str, row)) for row in (head, *rows)]
    return "\n".join([f"| {lines[0]} |", "|" + "---|" * len(head), *(f"| {line} |" for line in lines[1:])])


def spelled(text: str) -> str:
    """Text of records and claims as pages spell it: b2·T, which Markdown does not take for emphasis.

    >>> spelled("b2*T = 3, 0.1 +- 0.2")
    'b2·T = 3, 0.1 ± 0.2'
    """
    return text.replace("b2*T", "b2·T").replace(" +- ", " ± ")


def read(root: Path, name: str) -> Any:
    """A record; None if it does not exist yet."""
    path = root / "records" / name
    return json.loads(path.read_text()) if path.is_file() else None


def recorded(name: str, write: Callable[[Any], str], missing: str) -> Callable[[Path], str]:
    """A section of a page that is written from one record; the text `missing` if it does not exist yet."""

    def section(root: Path) -> str:
        record = read(root, name)
        return missing if record is None else write(record)

    return section
