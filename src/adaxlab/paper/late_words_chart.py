"""The figure of words that appear late: size of the first update against the step of first appearance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from adaxlab.report.encoding import data, layered
from adaxlab.report.palette import LOOKS

NAMES = {
    "adam, dense": "Adam",
    "adax, dense, no guard": "AdaX as published",
    "adax, dense, guarded": "AdaX, wake guard; AdaX, sparse",
}
"""Rows that are drawn, and their labels; the lines with the guard and with sparse gradients coincide."""


def late_activation(record: Mapping[str, Any]) -> Any:
    """Return the chart: median first update of new words, in units of lr on a log scale, against the step."""
    points = [
        {"line": NAMES[row["row"]], "step": p["step"], "size": float(f"{p['median']:.6g}")}
        for row in record["rows"]
        if row["row"] in NAMES
        for p in row["points"]
    ]
    ends = [max((p for p in points if p["line"] == name), key=lambda p: p["step"]) for name in NAMES.values()]
    look = [LOOKS["adam"], LOOKS["adaxw"], LOOKS["adax"]]
    colour = alt.Color(
        "line:N", legend=None, scale=alt.Scale(domain=list(NAMES.values()), range=[x.light for x in look])
    )
    ticks = [10.0**e for e in range(-1, 8)]
    x = alt.X(
        "step:Q", title="step at which a word first appears", scale=alt.Scale(domain=[0, record["steps"]])
    )
    y = alt.Y(
        "size:Q",
        title="size of its first update, in units of lr",
        scale=alt.Scale(type="log", domain=[0.05, 1e7]),
        axis=alt.Axis(values=ticks, format="~g", labelOverlap=False),
    )
    line = alt.Chart(data(points)).mark_line(point=alt.OverlayMarkDef(size=18)).encode(x=x, y=y, color=colour)
    names = (
        alt.Chart(data(ends))
        .mark_text(align="right", dy=-12, dx=2, fontSize=12)
        .encode(x=x, y=y, text="line:N", color=colour)
    )
    return layered(line, names)


def words(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return title and subtitle of the figure."""
    return {
        "text": "AdaX as published: large first updates of late words",
        "subtitle": [
            record["title"] + "; b2·T = 35",
            "Median over the words that are new in a span of steps",
        ],
    }
