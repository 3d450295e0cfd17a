"""Figures of the theory studies: Altair charts of their records, in the style of the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt

from adaxlab.report.palette import looks
from adaxlab.report.theme import TOKENS

INK, SOFT, GRID, AXIS = (TOKENS["light"][k] for k in ("ink", "soft", "grid", "axis"))
Record = Mapping[str, Any]


class Figure(NamedTuple):
    name: str
    """Name of the file: docs/images/theory-<name>.svg."""
    title: str
    caption: str
    chart: Any
    labels: Sequence[str] = ()
    """Optimizers whose colours differ on a dark background."""
    subtitle: str = ""


def rows(values: Iterable[Mapping[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=list(values))


NAMES = {
    "sgdm": "SGDM",
    "sgdm, b1=0": "SGD",
    "adam": "Adam",
    "amsgrad": "AMSGrad",
    "adagrad": "AdaGrad",
    "rmsprop": "RMSProp",
    "nosadam": "NosAdam",
    "adax": "AdaX",
}


def colour_of(labels: Sequence[str]) -> alt.Color:
    """Return the colour encoding of the optimizers, the same in all figures. Lines are labelled at their ends."""
    look = looks(labels)
    return alt.Color(
        "optimizer:N",
        scale=alt.Scale(domain=list(labels), range=[look[k].light for k in labels]),
        legend=None,
    )


def log_axis(
    field: str, title: str, values: Sequence[float], domain: Sequence[float], form: str = "~s"
) -> dict[str, Any]:
    """Return the arguments of an alt.X or alt.Y on a log scale with labelled ticks at `values`."""
    axis = alt.Axis(values=list(values), format=form, labelOverlap=False, tickCount=40)
    return {
        "shorthand": f"{field}:Q",
        "title": title,
        "axis": axis,
        "scale": alt.Scale(type="log", domain=list(domain), nice=False),
    }


def panel_title(text: str) -> alt.Title:
    return alt.Title(text, fontSize=12.5, fontWeight="normal", color=SOFT, offset=8)


def titled(chart: Any, title: str, subtitle: str = "") -> Any:
    return chart.properties(title=alt.Title(title, subtitle=subtitle) if subtitle else alt.Title(title))


def for_record(record: Record) -> list[Figure]:
    """Return all figures of a record."""
    from adaxlab.paper.theory import figures_landscape, figures_problems, figures_theory

    makers: dict[str, list[Callable[[Record], Figure]]] = {
        "synthetic": [figures_problems.figure_3a],
        "reddi": [figures_problems.regret_curves],
        "theory": [
            figures_theory.memory,
            figures_theory.gain,
            figures_theory.lemma,
            figures_theory.regret_bound,
            figures_theory.rate,
            figures_landscape.landscape,
        ],
    }
    if record["name"] not in makers:
        raise ValueError(f"record {record['name']!r}: figures are known for {', '.join(makers)}")
    return [make(record) for make in makers[record["name"]]]


def save(
    figures: Iterable[Figure],
    folder: Path,
    formats: Sequence[str] = ("svg", "png"),
    themes: Sequence[str] = ("light", "dark"),
) -> list[Path]:
    """Write the figures to files and return their paths."""
    from adaxlab.report.static import save_chart

    out: list[Path] = []
    for figure in figures:
        chart = titled(figure.chart, figure.title, figure.subtitle)
        out += save_chart(
            chart, folder / f"theory-{figure.name}", formats=formats, themes=themes, labels=figure.labels
        )
    return out


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten from low to high, for the ticks of a log axis."""
    return [
        10.0**e for e in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    ]
