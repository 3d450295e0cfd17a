"""Charts of lines: a quantity along training, and the metric over the learning rate."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import altair as alt

from adaxopt.lab.report.encoding import CROSS, Chart, colour, dash, data, layered, log_ticks, row, shape
from adaxopt.lab.report.series import Study, curve, show, status
from adaxopt.lab.report.tables import Figures, interval

Rows = Sequence[dict[str, Any]]


def learning_curve(study: Study, quantity: str, axis: str = "epoch") -> Chart:
    """The mean of `quantity` along training with its interval; diverged runs one by one, ending in a cross."""
    rows, lost, at = _points(study, quantity, axis)
    if not rows and not lost:
        return None
    labels = study.labels
    limit = _frame([*rows, *lost], rows, quantity, study.higher_is_better)
    title = study.metric_name if quantity == "metric" else quantity.replace("_", " ")
    values = [r["mean"] for r in [*rows, *lost]]
    if limit.get("type") == "log":
        y_axis = alt.Axis(values=log_ticks(values), format="~g")
    else:
        y_axis = alt.Axis(tickCount=5)
    x_axis = alt.Axis(tickMinStep=1, format="~s", tickCount=8)
    x_scale = alt.Scale(nice=False, zero=False)
    x = alt.X("x:Q", title=axis, scale=x_scale, axis=x_axis)
    left = alt.X("left:Q", title=axis, scale=x_scale, axis=x_axis)
    y = alt.Y("mean:Q", title=title, scale=alt.Scale(**limit), axis=y_axis)
    layers: list[Any] = []
    if any(r["high"] > r["low"] for r in rows):
        if limit.get("type") == "log":  # which has no place for an interval that reaches below zero
            for r in rows:
                r["low"] = max(r["low"], limit["domain"][0])
        low = alt.Y("low:Q", title=title, scale=alt.Scale(**limit), axis=y_axis)
        band = alt.Chart(data(rows)).mark_area(opacity=0.14, clip=True)
        layers.append(band.encode(x=x, y=low, y2="high:Q", color=colour(study.looks, labels)))
    line = alt.Chart(data(rows)).mark_line(clip=True)
    layers.append(
        line.encode(x=x, y=y, color=colour(study.looks, labels), strokeDash=dash(study.looks, labels))
    )
    if lost:
        thin = alt.Chart(data(lost)).mark_line(strokeWidth=1.2, opacity=0.8, clip=True)
        layers.append(
            thin.encode(
                x=x,
                y=y,
                color=colour(study.looks, labels),
                strokeDash=dash(study.looks, labels),
                detail="run:N",
            )
        )
    if rows:
        layers += _hover(study, rows, at, axis, x, y, left)
    if lost:
        ends = alt.Chart(data(_ends(lost, limit))).mark_point(shape=CROSS, size=80, filled=True, opacity=1)
        tips = ["optimizer:N", alt.Tooltip("what:N", title="run"), alt.Tooltip("x:Q", title=f"last {axis}")]
        layers.append(ends.encode(x=x, y=y, color=colour(study.looks, labels), tooltip=tips))
    return layered(*layers)


def _points(
    study: Study, quantity: str, axis: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[float, dict[str, Any]]]:
    """Rows of the means, rows of diverged runs, and for the tooltip one wide row per x (a column per series)."""
    rows: list[dict[str, Any]] = []
    lost: list[dict[str, Any]] = []
    at: dict[float, dict[str, Any]] = {}
    for i, series in enumerate(study.series):
        line = curve(series.finished, quantity, axis)
        for x, values in zip(line.x, line.values, strict=True):
            mean, low, high = interval(values)
            rows.append(row(series.label, x=x, mean=mean, low=low, high=high))
            at.setdefault(x, {"x": x})[f"m{i}"] = Figures((high - low) or abs(mean) / 10).interval(
                mean, low, high
            )
        for j, run in enumerate(series.diverged):
            one = curve([run], quantity, axis)
            what = f"seed {run.spec.get('seed')} diverged"
            lost += [
                row(series.label, x=x, mean=v[0], run=f"{i}.{j}", what=what)
                for x, v in zip(one.x, one.values, strict=True)
            ]
    return rows, lost, at


def _frame(rows: Rows, sound: Rows, quantity: str, higher_is_better: bool) -> dict[str, Any]:
    """The y scale of a learning curve, from the means alone: a wide band of three seeds must not flatten the lines.

    A positive loss that spans a decade and a half is logarithmic. When the first 15% of a run would take more than half
    of a metric's frame, that stretch is left out, so that the ends can be told apart.
    """
    values = [r["mean"] for r in rows]
    low, high = min(values), max(values)
    if quantity != "metric" and low > 0 and high / low > 30:
        return {"type": "log", "nice": False, "domain": [low / 1.3, high * 1.2]}
    if quantity == "metric":
        last = max(r["x"] for r in sound or rows)
        settled = [r["mean"] for r in sound or rows if r["x"] > 0.15 * last]
        if len(settled) > 2:
            bottom, top = min(settled), max(settled)
            reach = top - low if higher_is_better else high - bottom
            low, high = (bottom, top) if top - bottom < 0.5 * reach else (low, high)
    pad = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    return {"zero": False, "nice": False, "domain": [float(f"{v:.6g}") for v in (low - pad, high + pad)]}


def _ends(lost: Rows, limit: dict[str, Any]) -> list[dict[str, Any]]:
    """The last point of each diverged run, moved to the edge when the frame leaves it out."""
    last = {r["run"]: r for r in lost}
    low, high = limit["domain"]
    return [{**r, "mean": min(high, max(low, r["mean"]))} for r in last.values()]


def _hover(
    study: Study, rows: Rows, at: dict[float, dict[str, Any]], axis: str, x: alt.X, y: alt.Y, left: alt.X
) -> list[Any]:
    """A rule that follows the pointer, with every series' value at that x in one tooltip.

    Unseen columns catch the pointer. Vega-Lite's own nearest point does not fill text fields into its tooltip.
    """
    hover = alt.selection_point(name="hover", fields=["x"], on="pointerover", clear="pointerout", empty=False)
    order = {s.label: i for i, s in enumerate(study.ranked)}
    columns = sorted((order[s.label], i, s.label) for i, s in enumerate(study.series) if s.label in order)
    tips = [alt.Tooltip("x:Q", title=axis)]
    tips += [alt.Tooltip(f"m{i}:N", title=label) for _, i, label in columns]
    places = sorted(at)
    edges = [places[0], *((a + b) / 2 for a, b in itertools.pairwise(places)), places[-1]]
    wide = [{**at[place], "left": edges[i], "right": edges[i + 1]} for i, place in enumerate(places)]
    return [
        alt.Chart(data(wide)).mark_rule(strokeWidth=1).encode(x=x).transform_filter(hover),
        alt.Chart(data(rows))
        .mark_point(filled=True, size=46, opacity=1, clip=True)
        .encode(x=x, y=y, color=colour(study.looks, study.labels))
        .transform_filter(hover),
        alt.Chart(data(wide))
        .mark_rect(opacity=0)
        .encode(x=left, x2="right:Q", tooltip=tips)
        .add_params(hover),
    ]


def lr_sensitivity(study: Study) -> Chart:
    """Metric of the tuning runs over the learning rate, with the chosen rate ringed and diverged trials crossed.

    Trials that failed by far stand at the edge as small triangles, or the frame would be theirs.
    """
    done, lost = _trials(study)
    if not done and not lost:
        return None
    higher = study.higher_is_better
    labels = list(dict.fromkeys(s.optimizer for s in study.series if s.tune))
    best: dict[tuple[str, float], dict[str, Any]] = {}
    for r in done:
        key = (r["optimizer"], r["lr"])
        best[key] = (max if higher else min)(best.get(key, r), r, key=lambda q: q["value"])
    chosen = {(s.optimizer, s.options.get("lr")) for s in study.series}
    axis = alt.Axis(values=log_ticks(r["lr"] for r in [*done, *lost]), format="~g", grid=False)
    x = alt.X("lr:Q", title="learning rate", scale=alt.Scale(type="log", nice=False, padding=14), axis=axis)
    title = f"validation {study.metric_name}"
    low, high = lr_frame([r["value"] for r in done], higher)
    scale = alt.Scale(zero=False, nice=False, domain=[low, high])
    y = alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(tickCount=5))
    tips = [
        "optimizer:N",
        alt.Tooltip("lr:Q", title="lr", format="~g"),
        alt.Tooltip("text:N", title=title),
        alt.Tooltip("rest:N", title="other options"),
    ]
    hue, edge = colour(study.looks, labels), alt.value("height") if higher else alt.value(0)
    inside = [r for r in done if low <= r["value"] <= high]
    beyond = [r for r in done if not low <= r["value"] <= high]
    rings = [r for key, r in best.items() if key in chosen and low <= r["value"] <= high]
    lines = alt.Chart(data(list(best.values()))).mark_line(clip=True)
    points = alt.Chart(data(inside)).mark_point(filled=True, size=44, opacity=0.95)
    ring = alt.Chart(data(rings)).mark_point(size=210, strokeWidth=2, filled=False, opacity=1, shape="circle")
    layers: list[Any] = [
        lines.encode(x=x, y=y, color=hue, strokeDash=dash(study.looks, labels)),
        ring.encode(x=x, y=y, color=hue),
        points.encode(x=x, y=y, color=hue, shape=shape(study.looks, labels), tooltip=tips),
    ]
    for rows, mark, size in ((beyond, "triangle-down" if higher else "triangle-up", 60), (lost, CROSS, 85)):
        if rows:
            marks = alt.Chart(data(rows)).mark_point(shape=mark, filled=True, size=size, opacity=1)
            layers.append(marks.encode(x=x, y=edge, color=hue, tooltip=tips))
    return layered(*layers)


def lr_frame(values: Sequence[float], higher: bool) -> tuple[float, float]:
    """From the best value to the worst, unless few trials are far worse than the rest.

    >>> lr_frame([0.9, 0.8], True), lr_frame([0.9, 0.89, 0.88, 0.87, 0.1], True)[0] > 0.8
    ((0.794, 0.906), True)
    """
    if not values:
        return 0.0, 1.0
    top = max(values) if higher else min(values)
    gaps = sorted(abs(v - top) for v in values)
    usual = gaps[int(0.7 * (len(gaps) - 1))]
    worst = gaps[-1] if usual == 0 or gaps[-1] < 4 * usual else 2 * usual
    pad = 0.06 * worst or 0.05 * abs(top) or 1.0
    ends = (top - worst - pad, top + pad) if higher else (top - pad, top + worst + pad)
    return float(f"{ends[0]:.6g}"), float(f"{ends[1]:.6g}")


def _trials(study: Study) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Tuning runs as rows: those that gave a value, and those that diverged."""
    done: list[dict[str, Any]] = []
    lost: list[dict[str, Any]] = []
    runs = {id(r): (s.optimizer, r) for s in study.series for r in s.tune}.values()
    scores = [float(r.done["metric"]) for _, r in runs if status(r) == "finished"]
    digits = Figures((max(scores) - min(scores)) / 10 if scores else 0.0)
    common = _common([r.spec.get("options") or {} for _, r in runs])
    for name, run in runs:
        options = run.spec.get("options") or {}
        lr = options.get("lr")
        if not isinstance(lr, (int, float)) or not lr > 0 or status(run) == "unfinished":
            continue
        rest = ", ".join(f"{k}={show(v)}" for k, v in options.items() if k != "lr" and k not in common)
        if status(run) == "finished":
            value = float(run.done["metric"])
            done.append(row(name, lr=float(lr), rest=rest, value=value, text=digits.number(value)))
        else:
            lost.append(row(name, lr=float(lr), rest=rest, text="diverged"))
    return done, lost


def _common(options: Sequence[dict[str, Any]]) -> set[str]:
    """Options that have one value in all runs: not worth a line in a tooltip."""
    keys = {k for o in options for k in o}
    return {k for k in keys if len({show(o.get(k)) for o in options}) == 1}
