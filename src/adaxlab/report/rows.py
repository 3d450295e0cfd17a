"""Charts with one row per optimizer: final metrics by seed, paired differences, wall-clock time."""

from __future__ import annotations

from typing import Any

import altair as alt

from adaxlab import stats
from adaxlab.messages import clock
from adaxlab.report.encoding import (
    HEIGHT,
    ROW,
    Chart,
    colour,
    data,
    layered,
    names,
    row,
    shape,
    values,
)
from adaxlab.report.judged import Judged, note
from adaxlab.report.numbers import Figures, interval, published
from adaxlab.report.series import StudyRuns
from adaxlab.report.theme import TOKENS


def _height(rows: int, least: int = 0) -> int:
    return max(least, ROW * rows + 8)


def seed_dots(study: StudyRuns) -> Chart:
    """Final metrics: one dot per run, the mean and its interval; diverged runs are crosses at the worse edge."""
    dots: list[dict[str, Any]] = []
    means: list[dict[str, Any]] = []
    lost: list[dict[str, Any]] = []
    order = [s.label for s in study.ranked]
    order += [s.label for s in study.series if s.diverged and s.label not in order]
    if not order:
        return None
    for series in study.series:
        if series.values:
            mean, low, high = interval(series.values)
            digits = Figures((high - low) or abs(mean) / 100)
            text = digits.interval(mean, low, high)
            means.append(row(series.label, mean=mean, low=low, high=high, text=text, n=len(series.values)))
            for seed, value in series.scores.items():
                dots.append(row(series.label, value=value, seed=str(seed), text=digits.number(value)))
        if series.diverged:
            seeds = ", ".join(str(r.spec.get("seed")) for r in series.diverged)
            lost.append(row(series.label, text=f"✕ {len(series.diverged)} diverged", seeds=seeds))
    y, hue = names(order), colour(study.looks, order, legend=False)
    x = values(study.metric_title, zero=False, padding=10)
    tips = ["optimizer:N", alt.Tooltip("text:N", title="mean [95%]"), "n:Q"]
    layers: list[Any] = []
    if means:
        bar = alt.Chart(data(means)).mark_rule(strokeWidth=26, opacity=0.2)
        layers.append(bar.encode(y=y, x=x("low"), x2="high:Q", color=hue, tooltip=tips))
        points = alt.Chart(data(dots)).mark_point(filled=True, size=46, opacity=0.95)
        slot = alt.YOffset("seed:N", scale=alt.Scale(paddingOuter=0.8))
        seen = ["optimizer:N", "seed:N", alt.Tooltip("text:N", title=study.metric_name)]
        layers.append(
            points.encode(
                y=y, yOffset=slot, x=x("value"), color=hue, shape=shape(study.looks, order), tooltip=seen
            )
        )
        tick = alt.Chart(data(means)).mark_tick(thickness=2.5, bandSize=0, opacity=1, size=26)
        layers.append(tick.encode(y=y, x=x("mean"), color=hue, tooltip=tips))
    theirs = [
        row(s.label, mean=mean, low=mean - margin, high=mean + margin, text=published(mean, margin))
        for s in study.series
        if s.label in order
        for mean, margin in ([s.paper] if s.paper else [])
    ]
    if theirs:
        tips = ["optimizer:N", alt.Tooltip("text:N", title="the paper")]
        span = alt.Chart(data(theirs)).mark_rule(strokeWidth=1.5, color=TOKENS["light"]["ink"])
        ring = alt.Chart(data(theirs)).mark_point(
            shape="circle", filled=False, size=80, strokeWidth=1.6, opacity=1
        )
        ink = alt.value(TOKENS["light"]["ink"])
        group = alt.Detail("optimizer:N")
        layers.append(span.encode(y=y, x=x("low"), x2="high:Q", detail=group))
        layers.append(ring.encode(y=y, x=x("mean"), stroke=ink, detail=group, tooltip=tips))
    if lost:
        left = study.higher_is_better
        words = alt.Chart(data(lost)).mark_text(
            align="left" if left else "right", fontWeight="bold", dx=4 if left else -4
        )
        tips = ["optimizer:N", alt.Tooltip("seeds:N", title="diverged seeds")]
        layers.append(
            words.encode(y=y, x=alt.value(0 if left else "width"), text="text:N", color=hue, tooltip=tips)
        )
    return layered(*layers, height=_height(len(order), HEIGHT))


def differences(study: StudyRuns, found: Judged) -> Chart:
    """The paired difference of each method from the reference, with its interval; positive is better."""
    rows = []
    for series in study.ranked:
        verdict = found.verdicts.get(series.label)
        e = verdict.difference if verdict is not None else None
        if verdict is not None and e is not None:
            text = Figures((e.high - e.low) or abs(e.mean)).interval(e.mean, e.low, e.high, signed=True)
            words = f"{verdict.word} ({note(verdict, series)})"
            rows.append(
                row(series.label, mean=e.mean, low=e.low, high=e.high, text=text, n=e.n, verdict=words)
            )
    if not rows:
        return None
    order = [r["optimizer"] for r in rows]
    y, hue = names(order), colour(study.looks, order, legend=False)
    unit = "points" if study.metric_name.endswith("(%)") else study.metric_name
    x = values(f"better than {study.says(found.base)} by ({unit})", zero=True, padding=10)
    tips = [
        "optimizer:N",
        alt.Tooltip("text:N", title="difference"),
        alt.Tooltip("n:Q", title="pairs"),
        "verdict:N",
    ]
    return layered(
        alt.Chart(data([{"zero": 0}])).mark_rule(strokeDash=[4, 3], strokeWidth=1.5).encode(x=x("zero")),
        alt.Chart(data(rows))
        .mark_rule(strokeWidth=3)
        .encode(y=y, x=x("low"), x2="high:Q", color=hue, tooltip=tips),
        alt.Chart(data(rows))
        .mark_point(filled=True, size=90, opacity=1)
        .encode(y=y, x=x("mean"), color=hue, shape=shape(study.looks, order), tooltip=tips),
        height=_height(len(order), 120),
    )


def wall_clock(study: StudyRuns) -> Chart:
    """Seconds of a final run: the mean as a bar, the optimizer step as its solid part, each run as a tick."""
    bars: list[dict[str, Any]] = []
    ticks: list[dict[str, Any]] = []
    for series in study.series:
        seconds, steps = series.seconds(), series.seconds("step_seconds")
        if not seconds:
            continue
        mean = stats.mean(seconds)
        step = stats.mean(steps) if steps else 0.0
        share = f"{clock(step)} ({step / mean:.0%})" if steps and mean > 0 else ""
        bars.append(row(series.label, mean=mean, step=step, text=clock(mean), share=share, n=len(seconds)))
        ticks += [row(series.label, seconds=s, text=clock(s)) for s in seconds]
    if not bars:
        return None
    order = [b["optimizer"] for b in sorted(bars, key=lambda b: b["mean"])]
    y, hue = names(order), colour(study.looks, order, legend=False)
    x = values("seconds", zero=True)
    tips = [
        "optimizer:N",
        alt.Tooltip("text:N", title="mean"),
        alt.Tooltip("share:N", title="optimizer step"),
        alt.Tooltip("n:Q", title="runs"),
    ]

    return layered(
        alt.Chart(data(bars))
        .mark_bar(opacity=0.3, cornerRadiusEnd=3)
        .encode(y=y, x=x("mean"), color=hue, tooltip=tips),
        alt.Chart(data(bars)).mark_bar(opacity=0.95).encode(y=y, x=x("step"), color=hue, tooltip=tips),
        alt.Chart(data(ticks))
        .mark_tick(thickness=1.5, size=20, opacity=0.9)
        .encode(
            y=y, x=x("seconds"), color=hue, tooltip=["optimizer:N", alt.Tooltip("text:N", title="one run")]
        ),
        height=_height(len(order), 120),
    )
