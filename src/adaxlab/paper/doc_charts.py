"""Figures of the documentation that no study's charts include: the GPU benchmark's steps, first updates of late words,
and the second moment during training."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from adaxlab.paper.cifar10_charts import method
from adaxlab.report.encoding import Chart, colour, dash, data, layered, log_ticks, row
from adaxlab.report.numbers import interval
from adaxlab.report.palette import LOOKS, looks
from adaxlab.report.series import thin
from adaxlab.report.theme import TOKENS
from adaxlab.store import RunRecord

# -- one step of an optimizer on a GPU ---------------------------------------------------------------

BASE = "torch AdamW fused"
SHOWN = (BASE, "AdaXW fused", "AdaXW fused, frozen", "AdaXW fused, bf16 state")
WIDTH, ROW = 430, 21


def gpu_steps(record: Mapping[str, Any]) -> alt.VConcatChart:
    """A panel per model: the median step as a bar with its quartiles, and the least time that its bytes need."""
    rows = [r for r in record["rows"] if r["gradients"] == "fixed" and r["row"] in SHOWN]
    models = list(dict.fromkeys(r["model"] for r in rows))
    panels = [_panel([r for r in rows if r["model"] == model]) for model in models]
    return alt.VConcatChart(vconcat=panels, spacing=14)


def gpu_steps_words(record: Mapping[str, Any]) -> dict[str, Any]:
    """The title of the figure, with hardware, versions and n."""
    where = record["environment"]
    n = sorted({r["n"] for r in record["rows"] if r["gradients"] == "fixed" and r["row"] in SHOWN})
    count = str(n[0]) if len(n) == 1 else f"{n[0]} to {n[-1]}"
    return {
        "text": f"One optimizer step on an {where['gpu']}, milliseconds",
        "subtitle": [
            f"Median of n = {count} rounds, line: quartiles. Tick: the time to move the bytes at copy speed.",
            f"float32 parameters, torch {where['torch']}, Triton {where['triton']}. "
            "Frozen: at step 150,000, where no block of v is written.",
        ],
    }


def _panel(rows: list[dict[str, Any]]) -> alt.LayerChart:
    ink = TOKENS["light"]
    base = next(r["ms"] for r in rows if r["row"] == BASE)
    shown = [
        {
            "row": r["row"],
            **{k: float(f"{r[k]:.4g}") for k in ("ms", "low", "high", "floor_ms")},
            "kind": "torch" if r["row"] == BASE else "ours",
            "text": f"{r['ms']:#.3g} ms" + ("" if r["row"] == BASE else f" · {base / r['ms']:.2f}× as fast"),
        }
        for r in sorted(rows, key=lambda r: SHOWN.index(r["row"]))
    ]
    first = rows[0]
    title = f"{first['model']}: {_count(first['numbers'])} numbers in {first['tensors']} tensors"
    if first["tensors"] == 1:
        title = f"One tensor of {_count(first['numbers'])} numbers"
    y = alt.Y(
        "row:N", sort=list(SHOWN), title=None, axis=alt.Axis(grid=False, labelFontSize=11.5, labelLimit=170)
    )
    top = 1.42 * max(r["ms"] for r in shown)
    scale = alt.Scale(domain=[0, top], nice=False)
    colours = alt.Scale(domain=["torch", "ours"], range=[LOOKS["adamw"].light, LOOKS["adaxw"].light])
    hue = alt.Color("kind:N", scale=colours, legend=None)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title=None, scale=scale, axis=None)

    layers = [
        alt.Chart(data(shown))
        .mark_bar(opacity=0.88, cornerRadiusEnd=2, height=13)
        .encode(y=y, x=x("ms"), color=hue),
        alt.Chart(data(shown))
        .mark_rule(strokeWidth=1.4, color=ink["ink"])
        .encode(y=y, x=x("low"), x2="high:Q", tooltip=["row:N", "ms:Q", "low:Q", "high:Q"]),
        alt.Chart(data(shown)).mark_tick(thickness=2, size=19, color=ink["ink"]).encode(y=y, x=x("floor_ms")),
        alt.Chart(data(shown))
        .mark_text(align="left", dx=9, fontSize=11, color=ink["soft"])
        .encode(y=y, x=x("high"), text="text:N"),
    ]
    chart = alt.LayerChart(layer=layers)
    chart.width, chart.height = WIDTH, ROW * len(shown)
    chart.title = alt.TitleParams(text=title, fontSize=12, color=ink["soft"], fontWeight="normal", offset=4)
    return chart


def _count(numbers: int) -> str:
    """
    >>> _count(268435456), _count(269722)
    ('268M', '0.27M')
    """
    return f"{numbers / 1e6:.0f}M" if numbers >= 1e7 else f"{numbers / 1e6:.2g}M"


# -- words that appear late ---------------------------------------------------------------

NAMES = {
    "adam, dense": "Adam",
    "adax, dense, no guard": "AdaX as published",
    "adax, dense, guarded": "AdaX, wake guard; AdaX, sparse",
}
"""Rows that are drawn, and their labels; the lines with the guard and with sparse gradients coincide."""


def late_activation(record: Mapping[str, Any]) -> Any:
    """Return the chart: median first update of new words, in units of lr on a log scale, against the step."""
    points = [
        {"line": NAMES[row["row"]], "step": p["step"], "size": float(f"{p['median']:.6g}")}
        for row in record["rows"]
        if row["row"] in NAMES
        for p in row["points"]
    ]
    ends = [max((p for p in points if p["line"] == name), key=lambda p: p["step"]) for name in NAMES.values()]
    look = [LOOKS["adam"], LOOKS["adaxw"], LOOKS["adax"]]
    colour = alt.Color(
        "line:N", legend=None, scale=alt.Scale(domain=list(NAMES.values()), range=[x.light for x in look])
    )
    ticks = [10.0**e for e in range(-1, 8)]
    x = alt.X(
        "step:Q", title="step at which a word first appears", scale=alt.Scale(domain=[0, record["steps"]])
    )
    y = alt.Y(
        "size:Q",
        title="size of its first update, in units of lr",
        scale=alt.Scale(type="log", domain=[0.05, 1e7]),
        axis=alt.Axis(values=ticks, format="~g", labelOverlap=False),
    )
    line = alt.Chart(data(points)).mark_line(point=alt.OverlayMarkDef(size=18)).encode(x=x, y=y, color=colour)
    names = (
        alt.Chart(data(ends))
        .mark_text(align="right", dy=-12, dx=2, fontSize=12)
        .encode(x=x, y=y, text="line:N", color=colour)
    )
    return layered(line, names)


def late_activation_words(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return title and subtitle of the figure."""
    return {
        "text": "AdaX as published: large first updates of late words",
        "subtitle": [
            record["title"] + "; b2·T = 35",
            "Median over the words that are new in a span of steps",
        ],
    }


# -- the second moment on CIFAR-10 ---------------------------------------------------------------


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


def second_moment_words(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return title and subtitle of the figure, with n."""
    n = len({run.spec["seed"] for run in runs})
    text = f"CIFAR-10: sqrt(v), v normalised, in the mean over the parameters and over n = {n} seeds, 95% interval."
    return {"text": "How large is the second moment?", "subtitle": textwrap.wrap(text, 78)}
