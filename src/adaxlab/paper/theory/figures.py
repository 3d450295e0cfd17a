"""Figures of the theory studies: Altair charts of their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import altair as alt

from adaxlab.paper.theory import figures_problems, figures_theory
from adaxlab.paper.theory.figure_style import Figure, Record
from adaxlab.report.static import THEMES, save_chart


def for_record(record: Record) -> list[Figure]:
    """Return all figures of a record."""
    makers: dict[str, list[Callable[[Record], Figure]]] = {
        "synthetic": [figures_problems.figure_3a],
        "reddi": [figures_problems.regret_curves],
        "theory": [
            figures_theory.memory,
            figures_theory.gain,
            figures_theory.lemma,
            figures_theory.regret_bound,
            figures_theory.rate,
        ],
    }
    if record["name"] not in makers:
        raise ValueError(f"record {record['name']!r}: figures are known for {', '.join(makers)}")
    return [make(record) for make in makers[record["name"]]]


def save(
    figures: Iterable[Figure],
    folder: Path,
    themes: Sequence[str] = THEMES,
) -> list[Path]:
    """Write the figures to files and return their paths."""
    out: list[Path] = []
    for figure in figures:
        title = alt.Title(figure.title, subtitle=figure.subtitle or alt.Undefined)
        chart = figure.chart.properties(title=title)
        out += save_chart(chart, folder / f"theory-{figure.name}", themes=themes, labels=figure.labels)
    return out
