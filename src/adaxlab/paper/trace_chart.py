"""The figure of the second moment during training: the mean of sqrt(v-hat) over the parameters, on CIFAR-10."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt

from adaxlab.paper.cifar10_report import method
from adaxlab.report.encoding import Chart, colour, dash, data, layered, log_ticks, row
from adaxlab.report.numbers import interval
from adaxlab.report.palette import looks
from adaxlab.report.series import thin
from adaxlab.store import RunRecord


def second_moment(runs: Sequence[RunRecord]) -> Chart:
    """Return the chart of the mean over seeds with its interval, from the `trace` of each run; None without traces."""
    at: dict[str, dict[float, list[float]]] = {}
    for run in runs:
        trace = (run.done or {}).get("trace", {})
        for step, value in zip(*(trace.get(k, ()) for k in ("iteration", "value")), strict=True):
            if value > 0:
                at.setdefault(_label(run, runs), {}).setdefault(float(step), []).append(float(value))
    rows = []
    for name, values in at.items():
        for step in thin(sorted(values)):
            mean, low, high = interval(values[step])
            rows.append(row(name, x=step, mean=mean, low=max(low, mean / 100), high=high))
    if not rows:
        return None
    labels = list(at)
    known = looks(labels)
    places = alt.Axis(values=log_ticks(r["x"] for r in rows), format="~s", grid=False)
    x = alt.X("x:Q", title="iteration", scale=alt.Scale(type="log", nice=False), axis=places)
    ticks = alt.Axis(values=log_ticks(r["mean"] for r in rows), format="~g")

    def y(field: str) -> alt.Y:
        return alt.Y(
            f"{field}:Q", title="mean of sqrt(v)", scale=alt.Scale(type="log", nice=False), axis=ticks
        )

    hue = colour(known, labels)
    tips = ["optimizer:N", alt.Tooltip("x:Q", title="iteration"), alt.Tooltip("mean:Q", format=".3g")]
    return layered(
        alt.Chart(data(rows)).mark_area(opacity=0.16).encode(x=x, y=y("low"), y2="high:Q", color=hue),
        alt.Chart(data(rows))
        .mark_line()
        .encode(x=x, y=y("mean"), color=hue, strokeDash=dash(known, labels), tooltip=tips),
    )


def _label(run: RunRecord, runs: Sequence[RunRecord]) -> str:
    """Return the method's name, with its lr if the runs have several."""
    name = method(run.spec)
    rates = {other.spec["options"]["lr"] for other in runs if method(other.spec) == name}
    return f"{name}, lr={run.spec['options']['lr']:g}" if len(rates) > 1 else name


def words(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return title and subtitle of the figure, with n."""
    n = len({run.spec["seed"] for run in runs})
    text = f"CIFAR-10: sqrt(v), v normalised, in the mean over the parameters and over n = {n} seeds, 95% interval."
    return {"text": "How large is the second moment?", "subtitle": textwrap.wrap(text, 78)}
