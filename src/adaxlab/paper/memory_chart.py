"""The figures of the memory study: result against learning rate, one line per memory, one panel per task; and the
differences of the final runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from adaxlab.paper import memory, memory_rule
from adaxlab.paper.memory_finals import StudyTask
from adaxlab.report.encoding import colour, data, log_ticks, row, shape
from adaxlab.report.palette import LOOKS, Look
from adaxlab.report.rates import lr_frame
from adaxlab.report.theme import TOKENS

WIDTH, HEIGHT = 330, 250
Found = Sequence[tuple[StudyTask, memory_rule.Screen, bool]]
"""Tasks with their screens, and whether a higher result is better."""
COLOURS = ("adamw", "adam", "adaxw", "amsgradw", "padax", "nosadam")
"""The methods whose looks the memories of the final runs have, the kept ones first."""


def marks(found: Found) -> dict[str, Look]:
    """How the memories of the final runs are drawn, each with a colour of its own; the others are grey lines."""
    task, screen, higher = found[0]
    tolerance = memory.TOLERANCE[task.screen.name]
    names = (*memory_rule.KEPT, *memory_rule.chosen(screen, tolerance, higher))
    return {memory_rule.label(name): LOOKS[look] for name, look in zip(names, COLOURS, strict=True)}


def chart(found: Found) -> alt.HConcatChart:
    """The panels side by side under one legend."""
    drawn = marks(found)
    return alt.HConcatChart(hconcat=[_panel(*each, drawn) for each in found], spacing=22)


WORDS: dict[str, Any] = {
    "text": "Which memory trains well, and over which learning rates?",
    "subtitle": [
        f"One seed on held-out data. Shaded: within the tolerance of {memory_rule.KEPT[0]} at its best learning rate.",
        "Coloured: the memories of the final runs; grey: the others. A line is interrupted where training diverged "
        "or was far worse.",
    ],
}
"""Title and subtitle of the figure."""


def _panel(
    task: StudyTask, screen: memory_rule.Screen, higher: bool, drawn: dict[str, Look]
) -> alt.LayerChart:
    ink = TOKENS["light"]
    scaled = {
        name: {lr: None if x is None else task.scale * x for lr, x in tried.items()}
        for name, tried in screen.items()
    }
    every = [x for tried in scaled.values() for x in tried.values() if x is not None]
    low, high = lr_frame(every, higher)
    rows = [
        {"memory": memory_rule.label(name), "lr": lr, "value": _shown(x, low, high)}
        for name, tried in scaled.items()
        for lr, x in sorted(tried.items())
    ]
    axis = alt.Axis(
        values=log_ticks(lr for tried in screen.values() for lr in tried), format="~g", grid=False
    )
    x = alt.X("lr:Q", title="learning rate", scale=alt.Scale(type="log", nice=False, padding=10), axis=axis)
    span = alt.Scale(zero=False, nice=False, domain=[low, high])

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=f"held-out {task.quantity}", scale=span, axis=alt.Axis(tickCount=5))

    reached = memory_rule.level(scaled, higher)
    layers = []
    if reached is not None:
        ends = (reached - task.tolerance, high) if higher else (low, reached + task.tolerance)
        band = data([{"from": max(low, ends[0]), "to": min(high, ends[1])}])
        layers.append(
            alt.Chart(band).mark_rect(color=ink["grid"], opacity=0.7).encode(y=y("from"), y2="to:Q")
        )
    others = alt.Chart(data(row for row in rows if row["memory"] not in drawn))
    layers.append(
        others.mark_line(color=ink["axis"], strokeWidth=1, opacity=0.8).encode(
            x=x, y=y("value"), detail="memory:N"
        )
    )
    names = list(drawn)
    hue = alt.Color(
        "memory:N",
        scale=alt.Scale(domain=names, range=[drawn[name].light for name in names]),
        legend=alt.Legend(
            orient="top", title=None, columns=3, symbolType="stroke", symbolSize=300, labelLimit=220
        ),
    )
    dash = alt.StrokeDash(
        "memory:N",
        scale=alt.Scale(domain=names, range=[list(drawn[name].dash) for name in names]),
        legend=None,
    )
    main = alt.Chart(data(row for row in rows if row["memory"] in drawn))
    layers.append(main.mark_line(strokeWidth=2.2).encode(x=x, y=y("value"), color=hue, strokeDash=dash))
    layers.append(main.mark_point(filled=True, size=34, opacity=1).encode(x=x, y=y("value"), color=hue))
    made = alt.LayerChart(layer=layers)
    made.width, made.height = WIDTH, HEIGHT
    made.title = alt.TitleParams(text=task.title, fontSize=12.5, anchor="start", offset=6)
    return made


def _shown(x: float | None, low: float, high: float) -> float | None:
    """The result of a trial; None, which interrupts the line, if it diverged or is outside the frame."""
    return None if x is None or not low <= x <= high else float(f"{x:.6g}")


# -- the final runs -------------------------------------------------------------------------------------------------

FINALS_WIDTH, ROW, LABELS = 300, 24, 130
Seen = Sequence[tuple[str, float, float, float]]
"""The memories with their differences from the first one: mean, low, high."""


def finals(
    found: Sequence[tuple[StudyTask, float, Mapping[str, Seen]]], drawn: dict[str, Look]
) -> alt.HConcatChart:
    """A column per task: each memory at its best lr, and all at the lr above the range (the number beside the task).
    The keys of the mapping are the kinds of claims, "best" and "wide"."""
    columns = []
    for task, above, seen in found:
        every = [x for kind in seen.values() for _, _, low, high in kind for x in (low, high)]
        air = 0.06 * (max(every) - min(every))
        ends = min(*every, -task.tolerance) - air, max(*every, 0.0) + air
        titles = {"best": "Each memory at its best lr", "wide": f"At lr {above:g}"}
        panels = [
            _differences(task, titles[kind], rows, ends, drawn, large=kind == "wide")
            for kind, rows in seen.items()
        ]
        column = alt.VConcatChart(vconcat=panels, spacing=12)
        column.title = alt.TitleParams(text=f"{task.title} (n = {task.seeds})", fontSize=12.5, anchor="start")
        columns.append(column)
    return alt.HConcatChart(hconcat=columns, spacing=26)


FINAL_WORDS: dict[str, Any] = {
    "text": "Compared with AdamW's memory, b2 = 0.95, at its best learning rate",
    "subtitle": [
        "Mean of the paired differences with its plain 95% interval (not adjusted for the number of comparisons).",
        "To the right: better. Shaded, at the larger rate: within the tolerance.",
    ],
}
"""Title and subtitle of the figure."""


def _differences(
    task: StudyTask, title: str, rows: Seen, ends: tuple[float, float], drawn: dict[str, Look], large: bool
) -> alt.LayerChart:
    ink, order = TOKENS["light"], [name for name, *_ in rows]
    points = [row(name, mean=mean, low=low, high=high) for name, mean, low, high in rows]
    axis = alt.Axis(
        grid=False,
        labelFontSize=12,
        labelLimit=LABELS,
        minExtent=LABELS,
        maxExtent=LABELS,
        labelOverlap=False,
    )
    y = alt.Y("optimizer:N", sort=order, title=None, axis=axis)
    below = alt.Axis(tickCount=5, domain=False, ticks=False) if large else None
    scale = alt.Scale(domain=list(ends), nice=False, zero=False)

    def x(field: str) -> alt.X:
        unit = f"better by ({task.unit})" if large else None
        return alt.X(f"{field}:Q", title=unit, scale=scale, axis=below)

    hue = colour(drawn, list(drawn), legend=False)  # one scale for all panels
    within = alt.Chart(data([{"from": -task.tolerance, "to": ends[1]}]))
    band = within.mark_rect(color=ink["grid"], opacity=0.7).encode(x=x("from"), x2="to:Q")
    zero = alt.Chart(data([{"zero": 0}]))
    made = alt.LayerChart(
        layer=[
            *([band] if large else []),
            zero.mark_rule(strokeDash=[4, 3], strokeWidth=1.5).encode(x=x("zero")),
            alt.Chart(data(points)).mark_rule(strokeWidth=3).encode(y=y, x=x("low"), x2="high:Q", color=hue),
            alt.Chart(data(points))
            .mark_point(filled=True, size=80, opacity=1)
            .encode(y=y, x=x("mean"), color=hue, shape=shape(drawn, list(drawn))),
        ]
    )
    made.width, made.height = FINALS_WIDTH, ROW * len(order)
    made.title = alt.TitleParams(
        text=title, fontSize=12, fontWeight="normal", color=ink["soft"], anchor="start"
    )
    return made
