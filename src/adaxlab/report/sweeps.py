"""The chart of a sweep: the final metric over the one setting in which variants of an optimizer differ."""

from __future__ import annotations

from typing import Any

import altair as alt

from adaxlab.report.encoding import Chart, colour, dash, data, layered, log_ticks, row, shape
from adaxlab.report.numbers import Figures, interval
from adaxlab.report.rates import lr_frame, stretches
from adaxlab.report.series import StudyRuns, flat, swept

FEW = 5
"""So many settings each have a tick of their own on a logarithmic axis."""


def drawn(study: StudyRuns) -> tuple[Chart, str]:
    """The chart, and the words for the marks that it has."""
    found = swept(study)
    if found is None:
        return None, ""
    key, by_optimizer = found
    rows: list[dict[str, Any]] = []
    for optimizer, variants in by_optimizer.items():
        for series in variants:
            if series.values:
                mean, low, high = interval(series.values)
                text = Figures((high - low) or abs(mean) / 100).interval(mean, low, high)
                setting = float(flat(series.final[0].spec)[key])
                rows.append(
                    row(optimizer, x=setting, mean=mean, low=low, high=high, text=text, n=len(series.values))
                )
    if len({r["x"] for r in rows}) < 2:
        return None, ""
    places = sorted({r["x"] for r in rows})
    labels = list(dict.fromkeys(r["optimizer"] for r in rows))
    if places[0] > 0 and places[-1] >= 10 * places[0]:
        scale = alt.Scale(type="log", nice=False, padding=16)
        ticks = places if len(places) <= FEW else log_ticks(places)
        axis = alt.Axis(values=ticks, format=".3~g" if places[0] >= 1e-3 else ".2~e", grid=False)
    else:
        scale, axis = (
            alt.Scale(zero=False, nice=False, padding=16),
            alt.Axis(values=places, format=".3~g", grid=False),
        )
    x = alt.X("x:Q", title=key.replace("_", " "), scale=scale, axis=axis)

    low, high = _frame(rows, study.higher_is_better)
    beyond = [r for r in rows if not low <= r["mean"] <= high]
    inside = [r for r in rows if low <= r["mean"] <= high]

    def y(field: str) -> alt.Y:
        scale = alt.Scale(zero=False, nice=False, domain=[low, high])
        return alt.Y(f"{field}:Q", title=study.metric_name, scale=scale, axis=alt.Axis(tickCount=5))

    hue = colour(study.looks, labels, points=True)
    tips = [
        "optimizer:N",
        alt.Tooltip("x:Q", title=key, format="~g"),
        alt.Tooltip("text:N", title="mean [95%]"),
        "n:Q",
    ]
    layers = [
        alt.Chart(data(inside))
        .mark_rule(strokeWidth=5, opacity=0.25, clip=True)
        .encode(x=x, y=y("low"), y2="high:Q", color=hue),
        alt.Chart(data(_parts(rows, low, high)))
        .mark_line(clip=True)
        .encode(
            x=x, y=y("mean"), color=hue, strokeDash=dash(study.looks, labels, legend=False), detail="part:N"
        ),
        alt.Chart(data(inside))
        .mark_point(filled=True, size=60, opacity=1)
        .encode(x=x, y=y("mean"), color=hue, shape=shape(study.looks, labels), tooltip=tips),
    ]
    if beyond:
        mark, edge = ("triangle-down", "height") if study.higher_is_better else ("triangle-up", 0)
        marks = alt.Chart(data(beyond)).mark_point(shape=mark, filled=True, size=60, opacity=1)
        layers.append(marks.encode(x=x, y=alt.value(edge), color=hue, tooltip=tips))
    return layered(*layers), " A triangle at the edge is a far worse setting." if beyond else ""


def _parts(rows: list[dict[str, Any]], low: float, high: float) -> list[dict[str, Any]]:
    """The rows inside the frame, in the parts between those that are not: no line leads out of it."""
    best = {(r["optimizer"], r["x"]): {**r, "value": r["mean"]} for r in rows}
    return stretches(best, [], low, high)


def _frame(rows: list[dict[str, Any]], higher: bool) -> tuple[float, float]:
    """The means, without few that are far worse than the rest, and the intervals of those that are shown."""
    low, high = lr_frame([r["mean"] for r in rows], higher)
    shown = [
        r for r in rows if r["high"] >= low and r["low"] <= high
    ]  # an interval that reaches in is not far worse
    low, high = min(low, *(r["mean"] for r in shown)), max(high, *(r["mean"] for r in shown))
    air = 0.04 * (max(r["high"] for r in shown) - min(r["low"] for r in shown))
    ends = min(low, *(r["low"] - air for r in shown)), max(high, *(r["high"] + air for r in shown))
    if len(shown) < len(rows):  # the side with the triangles stays where it is
        ends = (low, ends[1]) if higher else (ends[0], high)
    return float(f"{ends[0]:.6g}"), float(f"{ends[1]:.6g}")
