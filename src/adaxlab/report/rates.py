"""The chart of tuning: the held-out metric over the learning rates that were tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from adaxlab.report.encoding import CROSS, Chart, colour, dash, data, layered, log_ticks, row, shape
from adaxlab.report.numbers import Figures
from adaxlab.report.series import StudyRuns, show, status

Rows = list[dict[str, Any]]
PILE = 11
"""Pixels between marks of several methods at one rate on the edge."""


def tried(study: StudyRuns) -> tuple[Chart, str]:
    """The chart, and the words for its marks: the chosen rate is ringed, diverged trials are crossed.

    Trials that failed by far stand at the edge as small triangles, or the frame would be theirs. No line leads there:
    it would say where between two rates a method breaks, which nobody tried.
    """
    done, lost = _trials(study)
    if not done and not lost:
        return None, ""
    higher = study.higher_is_better
    labels = list(dict.fromkeys(s.optimizer for s in study.series if s.tune))
    best: dict[tuple[str, float], dict[str, Any]] = {}
    for r in done:
        key = (r["optimizer"], r["lr"])
        best[key] = (max if higher else min)(best.get(key, r), r, key=lambda q: q["value"])
    chosen = {(s.optimizer, s.options.get("lr")) for s in study.series}
    axis = alt.Axis(values=log_ticks(r["lr"] for r in [*done, *lost]), format="~g", grid=False)
    x = alt.X("lr:Q", title="learning rate", scale=alt.Scale(type="log", nice=False, padding=14), axis=axis)
    title = f"held-out {study.metric_name}"
    low, high = lr_frame([r["value"] for r in done], higher)
    scale = alt.Scale(zero=False, nice=False, domain=[low, high])
    y = alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(tickCount=5))
    tips = [
        "optimizer:N",
        alt.Tooltip("lr:Q", title="lr", format="~g"),
        alt.Tooltip("text:N", title=title),
        alt.Tooltip("rest:N", title="other options"),
    ]
    hue = colour(study.looks, labels, points=True)
    inside = [r for r in done if low <= r["value"] <= high]
    beyond = [r for r in done if not low <= r["value"] <= high]
    rings = [r for key, r in best.items() if key in chosen and low <= r["value"] <= high]
    lines = alt.Chart(data(stretches(best, lost, low, high))).mark_line(clip=True)
    points = alt.Chart(data(inside)).mark_point(filled=True, size=44, opacity=0.95)
    ring = alt.Chart(data(rings)).mark_point(size=210, strokeWidth=2, filled=False, opacity=1, shape="circle")
    layers: list[Any] = [
        lines.encode(
            x=x, y=y, color=hue, strokeDash=dash(study.looks, labels, legend=False), detail="part:N"
        ),
        ring.encode(x=x, y=y, color=hue),
        points.encode(x=x, y=y, color=hue, shape=shape(study.looks, labels), tooltip=tips),
    ]
    triangle = "triangle-down" if higher else "triangle-up"
    for place, kind, rows in pile(beyond, lost):
        mark, size = (triangle, 60) if kind == "beyond" else (CROSS, 85)
        marks = alt.Chart(data(rows)).mark_point(
            shape=mark, filled=True, size=size, opacity=1, yOffset=-PILE * place if higher else PILE * place
        )
        layers.append(
            marks.encode(x=x, y=alt.value("height") if higher else alt.value(0), color=hue, tooltip=tips)
        )
    said = ["a ring marks the rate of the final runs"] * bool(rings)
    said += ["a triangle at the edge is a far worse trial"] * bool(beyond)
    said += [
        "a cross there is a diverged one" if beyond else "a cross at the edge is a diverged trial"
    ] * bool(lost)
    return layered(*layers), "".join(f"; {words}" for words in said)


def stretches(best: dict[tuple[str, float], dict[str, Any]], lost: Rows, low: float, high: float) -> Rows:
    """The best trial at each rate, in parts that hold no rate at which all trials diverged or left the frame.

    >>> best = {("a", x): {"optimizer": "a", "lr": x, "value": v} for x, v in ((1, 5), (2, 99), (3, 4))}
    >>> [(r["lr"], r["part"]) for r in stretches(best, [], 0, 9)]
    [(1, 0), (3, 1)]
    """
    every = {**{(r["optimizer"], r["lr"]): None for r in lost}, **best}
    out: Rows = []
    for name in dict.fromkeys(r["optimizer"] for r in best.values()):
        part = 0
        for key in sorted(key for key in every if key[0] == name):
            r = every[key]
            if r is not None and low <= r["value"] <= high:
                out.append({**r, "part": part})
            else:
                part += 1
    return out


def pile(beyond: Rows, lost: Rows) -> list[tuple[int, str, Rows]]:
    """Marks at the edge by their place in the pile at their rate, one mark a method and rate: (place, kind, rows)."""
    high: dict[float, int] = {}
    places: dict[tuple[str, str, float], int] = {}
    layers: dict[tuple[int, str], Rows] = {}
    for kind, r in [*(("beyond", r) for r in beyond), *(("lost", r) for r in lost)]:
        key = (kind, r["optimizer"], r["lr"])
        if key not in places:
            places[key] = high.get(r["lr"], 0)
            high[r["lr"]] = places[key] + 1
        layers.setdefault((places[key], kind), []).append(r)
    return [(place, kind, rows) for (place, kind), rows in sorted(layers.items())]


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


def _trials(study: StudyRuns) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
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
