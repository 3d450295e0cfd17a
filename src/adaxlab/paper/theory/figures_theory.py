"""Figures of study `theory`: the memory, its gain, Lemma 4.1, the regret bound, the rate."""

from __future__ import annotations

from typing import Any

import altair as alt

from adaxlab.paper.theory import figure_style as style
from adaxlab.paper.theory.figure_style import (
    AXIS,
    INK,
    NAMES,
    SOFT,
    Figure,
    Record,
    colour_of,
    decades,
    log_axis,
)
from adaxlab.report.encoding import data as rows
from adaxlab.report.palette import LOOKS

SETTINGS = {
    "rmsprop": "b2 = 0.99",
    "adam": "b2 = 0.999",
    "nosadam": "c = 0.1",
    "adagrad": "",
    "adax": "b2 = 1e-4",
}
WIDTH, HEIGHT = 240, 52


def memory(record: Record) -> Figure:
    """Return the figure of the weights of past gradients in v, one panel per method."""
    data = record["memories"]
    steps = data["steps"]
    labels = [row["optimizer"] for row in data["rows"]]
    strips = [_strip(row, steps, last=row is data["rows"][-1]) for row in data["rows"]]
    return Figure(
        "memory",
        f"Which past gradients determine v at step {steps:,}?",
        alt.vconcat(*strips, spacing=6).resolve_scale(color="independent"),
        labels,
        "Weight of each past squared gradient in v, oldest on the left.",
    )


def _strip(row: dict[str, Any], steps: int, last: bool) -> Any:
    label = row["optimizer"]
    edges, share = row["edges"], row["share"]
    heights = [s / (b - a) for s, a, b in zip(share, edges, edges[1:], strict=False)]
    points = [
        {"optimizer": label, "t": a, "height": h / max(heights)} for h, a in zip(heights, edges, strict=False)
    ]
    points.append({**points[-1], "t": steps})
    ticks = list(range(0, steps, 20_000))
    form = "datum.value == 0 ? '0' : format(datum.value / 1000, ',') + 'k'"
    axis = alt.Axis(
        title="training step" if last else None, labels=last, ticks=last, labelExpr=form, values=ticks
    )
    x = alt.X("t:Q", axis=axis, scale=alt.Scale(domain=[0, steps], nice=False))
    y = alt.Y("height:Q", axis=None, scale=alt.Scale(domain=[0, 1.04]))
    base = alt.Chart(rows(points), width=WIDTH, height=HEIGHT)
    shape = base.mark_area(interpolate="step-after", line=False, opacity=0.92).encode(
        x=x, y=y, color=colour_of([label])
    )
    words = alt.Chart(rows([{"name": NAMES[label], "setting": SETTINGS[label], "half": _half(row, steps)}]))
    lift = 7 if SETTINGS[label] else 0
    texts = [
        words.mark_text(
            align="right", x=-12, y=HEIGHT / 2 - lift, fontSize=13, fontWeight="bold", color=INK
        ).encode(text="name:N"),
        words.mark_text(align="right", x=-12, y=HEIGHT / 2 + 9, fontSize=11.5, color=SOFT).encode(
            text="setting:N"
        ),
        words.mark_text(
            align="left",
            x=WIDTH + 12,
            y=HEIGHT / 2 - _lift(row, steps),
            fontSize=12.5,
            color=SOFT,
            lineBreak="/",
        ).encode(text="half:N"),
    ]
    ground = alt.Chart(rows([{"y": 0}])).mark_rule(color=AXIS).encode(y=alt.Y("y:Q", axis=None))
    return alt.layer(shape, ground, *texts).properties(width=WIDTH, height=HEIGHT)


def _lift(row: dict[str, Any], steps: int) -> float:
    """Half a line up for each further line of the label."""
    return 7.5 * _half(row, steps).count("/")


def _half(row: dict[str, Any], steps: int) -> str:
    """Return a label that says which steps hold half of the memory."""
    half = row["half_seen_at"]
    if abs(half / steps - 0.5) < 0.005:
        return "equal weights"
    if half > 0.75 * steps:
        return f"half on the last/{steps - half + 1:,} steps"
    return f"half on the first/{half:,} steps"


def gain(record: Record) -> Figure:
    data = record["memories"]
    labels = [row["optimizer"] for row in data["rows"]]
    points = [
        {"optimizer": row["optimizer"], "t": t, "k": k}
        for row in data["rows"]
        for t, k in zip(data["at"], row["gain"], strict=True)
    ]
    lift = {"nosadam": 9, "adagrad": -7}
    x = alt.X(**log_axis("t", "step t", decades(1, 1e5), [1, 1e5]))
    y = alt.Y(
        **log_axis("k", "gain k_t: the weight of the newest square", decades(1e-7, 1), [5e-8, 1.2], "~e")
    )
    hue = colour_of(labels)
    ends = [{**point, "words": NAMES[point["optimizer"]]} for point in points if point["t"] == data["at"][-1]]
    names = [
        style.text([end], x, y, hue, align="left", dx=7, dy=lift.get(end["optimizer"], 0)) for end in ends
    ]
    return Figure(
        "gain",
        "One number per step is the whole difference between the methods",
        alt.layer(style.lines(points, x, y, hue), *names).properties(width=500, height=280),
        labels,
        "v <- v + k_t (g*g - v)",
    )


def lemma(record: Record) -> Figure:
    data = record["lemma_41_example"]
    looks = {
        "sqrt": ("alpha_t = alpha/sqrt(t): never falls", LOOKS["adam"].light),
        "constant": ("constant alpha: falls at once", LOOKS["adaxw"].light),
    }
    x = alt.X(
        "t:Q",
        title="step t",
        axis=alt.Axis(values=[1, 5, 10, 15, 20]),
        scale=alt.Scale(domain=[1, len(data["sqrt"])], nice=False),
    )
    y = alt.Y("value:Q", title="V_t / alpha_t^2, first value 1", scale=alt.Scale(domain=[0, 1.1]))
    layers = []
    for key, (words, colour) in looks.items():
        points = [{"t": t, "value": value} for t, value in enumerate(data[key], 1)]
        layers += [
            style.lines(points, x, y, color=colour, point={"color": colour, "size": 26}),
            style.text([{**points[11], "words": words}], x, y, color=colour, dy=-16, fontWeight="bold"),
        ]
    return Figure(
        "lemma-4-1",
        "Lemma 4.1 needs its schedule",
        alt.layer(*layers).properties(width=460, height=230),
        ["adam", "adaxw"],
        "AdaX after one gradient of 1 and then zeros",
    )


def regret_bound(record: Record) -> Figure:
    """Return the figure of regret, the theorem's bound and the trivial bound, for absolute losses and b1 = 0."""
    runs = {r["variant"]: r for r in record["regret"] if r["kind"] == "absolute" and r["b1"] == 0}
    run = runs["theorem"]
    T = [row["T"] for row in run["rows"]]
    series = {
        "trivial bound: D G d T": (SOFT, [run["trivial"] * t / T[-1] for t in T]),
        "the theorem's bound": (INK, [r["bound"] for r in run["rows"]]),
        "regret, constant b2 (Algorithm 2)": (
            LOOKS["adax"].light,
            [r["regret"] for r in runs["algorithm"]["rows"]],
        ),
        "regret, b2/t (the theorem's)": (LOOKS["adam"].light, [r["regret"] for r in run["rows"]]),
    }
    x = alt.X(**log_axis("T", "steps T", decades(10, 1e6), [T[0], T[-1]]))
    top = 10**0.3 * run["trivial"]
    y = alt.Y(**log_axis("value", "regret", decades(1, 1e7), [3, top]))
    layers = []
    for words, (colour, values) in series.items():
        points = [{"T": t, "value": v} for t, v in zip(T, values, strict=True)]
        layers += [
            style.lines(points, x, y, color=colour, point={"color": colour, "size": 22}),
            style.text([{**points[-1], "words": words}], x, y, color=colour, align="left", dx=9),
        ]
    return Figure(
        "regret-bound",
        "The regret bound holds, and grows as fast as no bound at all",
        alt.layer(*layers).properties(width=420, height=280),
        ["adax", "adam"],
        f"Online absolute losses, mean of {run['problems']} random problems",
    )


def rate(record: Record) -> Figure:
    runs = record["rate"]
    labels = [run["method"] for run in runs]
    points = [
        {"optimizer": r["method"], "T": t, "value": v}
        for r in runs
        for t, v in zip(r["T"], r["average"], strict=True)
    ]
    first = runs[0]
    reference = [{"T": t, "value": v} for t, v in zip(first["T"], first["reference"], strict=True)]
    low = min(p["value"] for p in points)
    x = alt.X(**log_axis("T", "steps T", decades(10, 1e6), [first["T"][0], first["T"][-1]]))
    y = alt.Y(
        **log_axis(
            "value",
            "average |grad f|^2, weights alpha_t",
            [0.05, 0.1, 0.2, 0.5, 1],
            [0.8 * low, 1.1 * first["average"][0]],
            "~g",
        )
    )
    hue = colour_of(labels)
    claimed = style.lines(reference, x, y, color=AXIS, strokeWidth=7, opacity=0.5)
    word = style.text(
        [{**reference[-1], "words": "log T / sqrt(T)"}], x, y, color=SOFT, align="left", dx=9, dy=-3
    )
    main = style.lines(points, x, y, hue, point={"size": 22})
    names = []
    for r, dy in zip(runs, (4, 17), strict=True):
        end = {"optimizer": r["method"], "T": r["T"][-1], "value": r["average"][-1]}
        words = f"{NAMES[r['method']]}: T^{r['slope']:.2f}"
        names.append(style.text([{**end, "words": words}], x, y, hue, align="left", dx=9, dy=dy))
    chart = alt.layer(claimed, main, word, *names).properties(width=420, height=260)
    return Figure(
        "rate",
        "AdaX keeps the rate of Theorem 4.2, as AMSGrad does",
        chart,
        labels,
        f"Noisy non-convex function, mean of {first['seeds']} seeds",
    )
