"""Charts over a setting: the held-out metric against the tried learning rates, and the final metric against the setting
in which the variants of an optimizer differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from adaxlab.report.encoding import CROSS, Chart, colour, dash, data, layered, log_ticks, row, shape
from adaxlab.report.numbers import Figures, interval
from adaxlab.report.series import StudyRuns, flat, show, status, swept
from adaxlab.stats import mean

Rows = list[dict[str, Any]]
PILE = 11
"""Pixels between the marks of several methods at the same rate on the edge."""


def tried(study: StudyRuns) -> tuple[Chart, str]:
    """The chart, and the caption's text about its marks: a ring for the chosen rate, a cross for a diverged trial.

    Trials that are far worse are shown as small triangles at the edge, because they would determine the frame. They are
    not joined by lines, which would suggest results between two rates that were not tried.
    """
    done, lost = _trials(study)
    if not done and not lost:
        return None, ""
    higher = study.higher_is_better
    labels = list(dict.fromkeys(study.tuned(s) for s in study.series if s.tune))
    best = best_settings(done, lost, higher)
    chosen = {(study.tuned(s), s.options.get("lr")) for s in study.series}
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


def best_settings(done: Rows, lost: Rows, higher: bool) -> dict[tuple[str, float], dict[str, Any]]:
    """The best mean over seeds at each rate, of the settings that were tried there. A setting with a diverged trial has
    no mean.

    >>> a = [{"optimizer": "a", "lr": 1, "rest": rest, "value": v} for rest, v in (("", 5), ("", 3), ("b2=0", 4.5))]
    >>> best_settings(a, [], True)["a", 1]["value"], best_settings(a[:2], [], True)["a", 1]["value"]
    (4.5, 4.0)
    >>> best_settings(a, a[2:], True)["a", 1]["value"], best_settings(a, [], False)["a", 1]["value"]
    (4.0, 4.0)
    """
    tried: dict[tuple[str, float, str], Rows] = {}
    for r in done:
        tried.setdefault((r["optimizer"], r["lr"], r["rest"]), []).append(r)
    for r in lost:
        tried.pop((r["optimizer"], r["lr"], r["rest"]), None)
    best: dict[tuple[str, float], dict[str, Any]] = {}
    for (name, lr, _), seeds in tried.items():
        r = {**seeds[0], "value": mean([each["value"] for each in seeds])}
        best[name, lr] = (max if higher else min)(best.get((name, lr), r), r, key=lambda q: q["value"])
    return best


def stretches(best: dict[tuple[str, float], dict[str, Any]], lost: Rows, low: float, high: float) -> Rows:
    """The best result at each rate, split into parts at rates where every setting had a diverged trial or the best
    result is outside the frame.

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
    """The marks at the edge, stacked per rate, with one mark per method and rate: (place in the stack, kind, rows)."""
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
    """The range from the best to the worst value, without a few trials that are far worse than the rest.

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
    runs = {id(r): (study.tuned(s), r) for s in study.series for r in s.tune}.values()
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
    """Options with the same value in all runs, which tooltips do not show."""
    keys = {k for o in options for k in o}
    return {k for k in keys if len({show(o.get(k)) for o in options}) == 1}


# -- sweeps of a setting -------------------------------------------------------------------------------------------


FEW = 5
"""Up to this number of settings, each has a tick on a logarithmic axis."""


def over_setting(study: StudyRuns) -> tuple[Chart, str]:
    """The chart, and the caption's text about its marks."""
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
    """The rows inside the frame, split into parts at rows outside it, so that no line leaves the frame."""
    best = {(r["optimizer"], r["x"]): {**r, "value": r["mean"]} for r in rows}
    return stretches(best, [], low, high)


def _frame(rows: list[dict[str, Any]], higher: bool) -> tuple[float, float]:
    """The range of the means, without a few that are far worse, and of the intervals of those shown."""
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
