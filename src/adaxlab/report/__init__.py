"""Reports: tables, charts and one offline page, all pure functions of run records.

    from adaxlab.report import write_report, save_static
    write_report(records, Path("report.html"), title="digits")     # one HTML file, no network
    save_static(records, Path("docs/images"))                      # the same charts as SVG and PNG

Nothing is imported until it is called: a training run on a bare image needs neither Altair nor vl-convert.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["save_static", "write_report"]


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
    """Write one self-contained HTML page about `records`, whole or not at all, and return its path.

    `claims` are rows with id, text, paper, ours, n and verdict; `figures` are (title, caption, Altair chart or
    Vega-Lite dict): a figure whose rows have a field `optimizer` obeys the page's optimizer switches. `baseline`
    names the optimizer that the others are compared with (the best one if not given), `rule` (`stats.DecisionRule`)
    decides the verdicts. `lead` is a sentence under the title.
    """
    from adaxlab import files
    from adaxlab.report.page import render

    text = render(list(records), title, claims or (), figures or (), baseline, lead, rule)
    files.put(Path(out), text.encode())
    return Path(out)


def save_static(
    records: Iterable[Any],
    folder: Path | str,
    formats: Sequence[str] = ("svg", "png"),
    themes: Sequence[str] = ("light", "dark"),
    baseline: str | None = None,
    rule: Any = None,
) -> list[Path]:
    """Write every chart of every study as `<study>-<chart>[-dark].<svg|png>` and return the paths."""
    from adaxlab.report.static import save_charts

    return save_charts(list(records), Path(folder), formats, themes, baseline, rule)
