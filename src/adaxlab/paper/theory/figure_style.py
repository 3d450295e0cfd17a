"""What the figures of the theory studies share: names, colours, axes, in the style of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from adaxlab.report.encoding import data as rows
from adaxlab.report.palette import looks
from adaxlab.report.theme import TOKENS
from adaxopt.zoo import METHODS

INK, SOFT, AXIS = (TOKENS["light"][k] for k in ("ink", "soft", "axis"))
Points = Sequence[Mapping[str, Any]]
Record = Mapping[str, Any]


class Figure(NamedTuple):
    name: str
    """Name of the file: docs/images/theory-<name>.svg."""
    title: str
    chart: Any
    labels: Sequence[str] = ()
    """Optimizers whose colours differ on a dark background."""
    subtitle: str = ""


NAMES = {name: row.title for name, row in METHODS.items()} | {"sgdm, b1=0": "SGD"}


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


def lines(points: Points, x: alt.X, y: alt.Y, hue: alt.Color | None = None, **how: Any) -> alt.Chart:
    """Return lines through points, coloured by their field `optimizer` or as `how` says."""
    return (
        alt.Chart(rows(points)).mark_line(**how).encode(x=x, y=y, color=alt.Undefined if hue is None else hue)
    )


def text(points: Points, x: alt.X, y: alt.Y, hue: alt.Color | None = None, **how: Any) -> alt.Chart:
    """Return the field `words` of points at their places; with a colour encoding in bold."""
    bold = {} if hue is None else {"fontWeight": "bold"}
    mark = alt.Chart(rows(points)).mark_text(**{"fontSize": 12, **bold, **how})
    return mark.encode(x=x, y=y, text="words:N", color=alt.Undefined if hue is None else hue)


def panel_title(text: str) -> alt.Title:
    return alt.Title(text, fontSize=12.5, fontWeight="normal", color=SOFT, offset=8)


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten from low to high, for the ticks of a log axis."""
    return [
        10.0**e for e in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    ]
