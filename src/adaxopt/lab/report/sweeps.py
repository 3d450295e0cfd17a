"""The chart of a sweep: the final metric over the one setting in which variants of an optimizer differ."""

from __future__ import annotations

from typing import Any

import altair as alt

from adaxopt.lab.report.encoding import Chart, colour, dash, data, layered, log_ticks, row, shape
from adaxopt.lab.report.series import Study, flat, swept
from adaxopt.lab.report.tables import Figures, interval


def sweep(study: Study) -> Chart:
    """Mean and interval over the swept setting, a line per optimizer; None where nothing is swept."""
    found = swept(study)
    if found is None:
        return None
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
        return None
    places = sorted({r["x"] for r in rows})
    labels = list(dict.fromkeys(r["optimizer"] for r in rows))
    if places[0] > 0 and places[-1] >= 10 * places[0]:
        scale = alt.Scale(type="log", nice=False, padding=16)
        axis = alt.Axis(values=log_ticks(places), format="~g", grid=False)
    else:
        scale, axis = (
            alt.Scale(zero=False, nice=False, padding=16),
            alt.Axis(values=places, format="~g", grid=False),
        )
    x = alt.X("x:Q", title=key.replace("_", " "), scale=scale, axis=axis)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=study.metric_name, scale=alt.Scale(zero=False, padding=10))

    hue = colour(study.looks, labels)
    tips = [
        "optimizer:N",
        alt.Tooltip("x:Q", title=key, format="~g"),
        alt.Tooltip("text:N", title="mean [95%]"),
        "n:Q",
    ]
    return layered(
        alt.Chart(data(rows))
        .mark_rule(strokeWidth=5, opacity=0.25)
        .encode(x=x, y=y("low"), y2="high:Q", color=hue),
        alt.Chart(data(rows))
        .mark_line()
        .encode(x=x, y=y("mean"), color=hue, strokeDash=dash(study.looks, labels)),
        alt.Chart(data(rows))
        .mark_point(filled=True, size=60, opacity=1)
        .encode(x=x, y=y("mean"), color=hue, shape=shape(study.looks, labels), tooltip=tips),
    )
