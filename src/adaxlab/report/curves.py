"""Line charts: a quantity during training, by epoch, step or time.

Up to `SEEDS` seeds are drawn as individual thin lines under their mean, because the interval of three runs is wider
than their range. For more seeds, the interval is drawn as a band.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from adaxlab import stats
from adaxlab.report.encoding import CROSS, Chart, colour, dash, data, layered, log_ticks, row
from adaxlab.report.frames import Frame, Rows, frame
from adaxlab.report.numbers import Figures, interval
from adaxlab.report.series import MAX_POINTS, StudyRuns, curve

FEW = 8
"""Up to this number of evaluations, each has a tick."""
STROKE, WIDEST, CLOSE = 2.0, 5.0, 0.008
SEEDS = 10
"""Up to this number of seeds, each is drawn as a line."""
POINTS = 2600
"""Approximate number of points of all seeds' lines in one chart; the means have half as many."""
TIME = "seconds"


def single(study: StudyRuns) -> bool:
    """Whether seeds are drawn as individual lines."""
    return max((len(s.finished) for s in study.series), default=0) <= SEEDS


def drawn(study: StudyRuns, quantity: str, axis: str = "epoch") -> tuple[Chart, str]:
    """The chart of the mean of `quantity` over seeds, with diverged runs as individual lines that end in a cross; and a
    text that lists what is outside the chart's frame."""
    rows, lost, at = _points(study, quantity, axis)
    if not rows and not lost:
        return None, ""
    labels, looks = study.labels, study.looks
    limit = frame(rows, lost, quantity, study.higher_is_better, single(study))
    title = study.metric_name if quantity == "metric" else quantity.replace("_", " ")
    if limit.log:
        y_axis = alt.Axis(values=log_ticks(r["mean"] for r in [*rows, *lost]), format="~g")
    else:
        y_axis = alt.Axis(tickCount=5)
    x_axis = _x_axis({r["x"] for r in [*rows, *lost]}, axis)
    x_scale = alt.Scale(nice=False, zero=False)
    x = alt.X("x:Q", title=axis, scale=x_scale, axis=x_axis)
    left = alt.X("left:Q", title=axis, scale=x_scale, axis=x_axis)
    y = alt.Y("mean:Q", title=title, scale=alt.Scale(**limit.scale), axis=y_axis)
    hue, strokes = colour(looks, labels), dash(looks, labels)
    layers: list[Any] = []
    wide = widths(rows, limit)
    for r in rows if wide else ():
        r["stroke"] = wide.get(r["optimizer"], STROKE)
    seeds = _seeds(study, quantity, axis, limit) if single(study) else []
    if seeds:
        thin = alt.Chart(data(seeds)).mark_line(strokeWidth=1, opacity=0.4, clip=True)
        layers.append(thin.encode(x=x, y=y, color=hue, detail="run:N"))
    elif any(r["high"] > r["low"] for r in rows):
        if limit.log:  # a logarithmic axis cannot show values below zero
            for r in rows:
                r["low"] = max(r["low"], limit.domain[0])
        low = alt.Y("low:Q", title=title, scale=alt.Scale(**limit.scale), axis=y_axis)
        band = alt.Chart(data(rows)).mark_area(opacity=0.14, clip=True)
        layers.append(band.encode(x=x, y=low, y2="high:Q", color=hue))
    line = alt.Chart(data(rows)).mark_line(clip=True).encode(x=x, y=y, color=hue, strokeDash=strokes)
    if wide:
        line = line.encode(strokeWidth=alt.StrokeWidth("stroke:Q", scale=None, legend=None))
    layers.append(line)
    if lost:
        thin = alt.Chart(data(lost)).mark_line(strokeWidth=1.2, opacity=0.8, clip=True)
        layers.append(thin.encode(x=x, y=y, color=hue, strokeDash=strokes, detail="run:N"))
    if rows:
        layers += _hover(study, rows, at, axis, x, y, left)
    if lost:
        last = _ends(lost, limit.domain)
        ends = alt.Chart(data(last)).mark_point(shape=CROSS, size=80, filled=True, opacity=1)
        tips = ["optimizer:N", alt.Tooltip("what:N", title="run"), alt.Tooltip("x:Q", title=f"last {axis}")]
        layers.append(ends.encode(x=x, y=y, color=hue, tooltip=tips))
    return layered(*layers), limit.words(study.written)


def _seeds(study: StudyRuns, quantity: str, axis: str, limit: Frame) -> list[dict[str, Any]]:
    """Rows of the finished runs, one line per run, for series with several runs."""
    runs = [(i, s, j, run) for i, s in enumerate(study.series) for j, run in enumerate(s.finished)]
    runs = [each for each in runs if len(each[1].finished) > 1]
    most = _most(POINTS, len(runs))
    rows = []
    for i, series, j, run in runs:
        one = curve([run], quantity, axis, most)
        for x, (value, *_) in zip(one.x, one.values, strict=True):
            y = max(value, limit.domain[0]) if limit.log else value
            rows.append(row(series.label, x=x, mean=y, run=f"{i}.{j}"))
    return rows


def _most(points: int, lines: int) -> int:
    """The number of points per line, if `lines` lines share `points` points."""
    return min(MAX_POINTS, max(24, points // max(1, lines)))


def _x_axis(places: set[float], axis: str) -> alt.Axis:
    """One tick per evaluation if there are few; steps are written in full if there is room.

    Seconds below 100,000 have no prefix: 0.02 would be "20m".
    """
    if axis == TIME:
        return alt.Axis(format="~s" if max(places) >= 1e5 else "~g", tickCount=6)
    form = ",d" if axis == "step" and max(places) < 1e5 else "~s"
    if len(places) <= FEW:
        return alt.Axis(values=sorted(places), format=form)
    return alt.Axis(tickMinStep=1, format=form, tickCount=8)


def widths(rows: Rows, limit: Frame) -> dict[str, float]:
    """Stroke widths of lines that are covered by others: wider, so that both sides stay visible.

    A line is covered by a later line if, at three quarters of the points or more, they differ by less than `CLOSE`
    times the height of the frame.
    """
    low, high = (math.log10(v) if limit.log else v for v in limit.domain)
    curves: dict[str, dict[float, float]] = {}
    for r in rows:
        if limit.domain[0] <= r["mean"] <= limit.domain[1]:
            place = math.log10(r["mean"]) if limit.log else r["mean"]
            curves.setdefault(r["optimizer"], {})[r["x"]] = place / (high - low)
    found: dict[str, float] = {}
    labels = list(curves)
    for label in reversed(labels):
        for other in labels[labels.index(label) + 1 :]:
            both = curves[label].keys() & curves[other].keys()
            near = sum(abs(curves[label][x] - curves[other][x]) < CLOSE for x in both)
            if both and 4 * near >= 3 * len(both):
                found[label] = max(found.get(label, 0.0), min(found.get(other, STROKE) + 1.5, WIDEST))
    return found


def _points(
    study: StudyRuns, quantity: str, axis: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[float, dict[str, Any]]]:
    """Rows of the means, rows of diverged runs, and one wide row per x for the tooltip (one column per series)."""
    rows: list[dict[str, Any]] = []
    lost: list[dict[str, Any]] = []
    at: dict[float, dict[str, Any]] = {}
    most = _most(POINTS // 2, len(study.series))
    for i, series in enumerate(study.series):
        for x, values in _along(series.finished, quantity, axis, most):
            mean, low, high = interval(values)
            text = Figures((high - low) or abs(mean) / 10).interval(mean, low, high)
            ends = (min(values), max(values)) if single(study) else (low, high)
            tip = {"text": text} if axis == TIME else {}
            rows.append(row(series.label, x=x, mean=mean, low=ends[0], high=ends[1], **tip))
            at.setdefault(x, {"x": x})[f"m{i}"] = text
        for j, run in enumerate(series.diverged):
            one = curve([run], quantity, axis)
            what = f"seed {run.spec.get('seed')} diverged"
            lost += [
                row(series.label, x=x, mean=v[0], run=f"{i}.{j}", what=what)
                for x, v in zip(one.x, one.values, strict=True)
            ]
    return rows, lost, at


def _along(runs: Sequence[Any], quantity: str, axis: str, most: int) -> Iterator[tuple[float, list[float]]]:
    """Yield x and the values of the runs at x. For time, x is the mean time of the evaluation."""
    if axis != TIME:
        line = curve(runs, quantity, axis, most)
        yield from zip(line.x, line.values, strict=True)
        return
    times, line = curve(runs, TIME, "step", most), curve(runs, quantity, "step", most)
    when = dict(zip(times.x, times.values, strict=True))
    for step, values in zip(line.x, line.values, strict=True):
        if len(when.get(step, ())) == len(values):
            yield float(f"{stats.mean(when[step]):.6g}"), values


def _ends(lost: Rows, domain: tuple[float, float]) -> list[dict[str, Any]]:
    """The last point of each diverged run, moved to the edge if it is outside the frame."""
    last = {r["run"]: r for r in lost}
    low, high = domain
    return [{**r, "mean": min(high, max(low, r["mean"]))} for r in last.values()]


def _hover(
    study: StudyRuns, rows: Rows, at: dict[float, dict[str, Any]], axis: str, x: alt.X, y: alt.Y, left: alt.X
) -> list[Any]:
    """A rule that follows the pointer, with the values of all series at that x in one tooltip.

    Invisible columns receive the pointer events, because the tooltip of Vega-Lite's nearest-point selection does not
    fill text fields.
    """
    hover = alt.selection_point(name="hover", fields=["x"], on="pointerover", clear="pointerout", empty=False)
    order = {s.label: i for i, s in enumerate(study.ranked)}
    columns = sorted((order[s.label], i, s.label) for i, s in enumerate(study.series) if s.label in order)
    tips = [alt.Tooltip("x:Q", title=axis)]
    tips += [alt.Tooltip(f"m{i}:N", title=" ".join(label.splitlines())) for _, i, label in columns]
    if axis == TIME:  # no two methods are evaluated at one time
        points = alt.Chart(data(rows)).mark_point(filled=True, size=90, opacity=0.001, clip=True)
        tips = [alt.Tooltip("optimizer:N"), alt.Tooltip("x:Q", title=axis, format=".3~g")]
        tips.append(alt.Tooltip("text:N", title="mean"))
        return [points.encode(x=x, y=y, color=colour(study.looks, study.labels), tooltip=tips)]
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
