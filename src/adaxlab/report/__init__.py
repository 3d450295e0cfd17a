"""Reports: tables, charts and an offline HTML page, as pure functions of run records; `static` writes charts as files.

    from adaxlab.report import write_report
    write_report(records, Path("report.html"), title="digits")     # one HTML file, no network

Imports are deferred until a function is called: a training run requires neither Altair nor vl-convert.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["write_report"]


def write_report(
    records: Iterable[Any],
    out: Path | str,
    title: str = "Optimizer comparison",
    claims: Sequence[Mapping[str, Any]] | None = None,
    figures: Sequence[tuple[str, str, Any]] | None = None,
    baseline: str | None = None,
    lead: str = "",
    rule: Any = None,
) -> Path:
    """Write a self-contained HTML report of `records` atomically, and return its path.

    `claims` are rows with id, text, paper, ours, n and verdict. `figures` are (title, caption, Altair chart or
    Vega-Lite dict); the page's optimizer switches apply to figures whose rows have a field `optimizer`. `baseline` is
    the optimizer that the others are compared with (default: the best one), and `rule` (`stats.DecisionRule`) decides
    the verdicts. `lead` is a sentence under the title.
    """
    from adaxlab import files
    from adaxlab.report.page import render

    text = render(list(records), title, claims or (), figures or (), baseline, lead, rule)
    files.put(Path(out), text.encode(errors="surrogateescape"))
    return Path(out)
