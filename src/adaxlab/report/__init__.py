"""Reports: tables, charts and an offline HTML page, as pure functions of run records; `static` writes charts as files.

    from adaxlab.report import write_report
    write_report(records, Path("report.html"), title="digits")     # one HTML file, no network

Imports are deferred until a function is called: a training run requires neither Altair nor vl-convert.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["write_report"]


def write_report(
    records: Iterable[Any],
    out: Path | str,
    title: str = "Optimizer comparison",
) -> Path:
    """Write a self-contained HTML report of `records` atomically, and return its path."""
    from adaxlab import files
    from adaxlab.report.page import render

    text = render(list(records), title)
    files.put(Path(out), text.encode(errors="surrogateescape"))
    return Path(out)
