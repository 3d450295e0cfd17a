"""Common parts of the charts: rows of data, the encoding of a series on each channel, axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from adaxlab.report.palette import Look

WIDTH, HEIGHT, ROW = 460, 270, 38
Chart = alt.LayerChart | None
Looks = Mapping[str, Look]

# An x-shaped mark for divergence; Vega's `cross` is a plus sign.
CROSS = "M-1,-.7L-.7,-1L0,-.3L.7,-1L1,-.7L.3,0L1,.7L.7,1L0,.3L-.7,1L-1,.7L-.3,0Z"


def layered(*layers: alt.Chart, height: int = HEIGHT) -> alt.LayerChart:
    """A layered view of the common width."""
    chart = alt.LayerChart(layer=list(layers))
    chart.width, chart.height = WIDTH, height
    return chart


def row(label: str, **values: Any) -> dict[str, Any]:
    """A row of data; floats are rounded to six significant digits."""
    return {"optimizer": label} | {
        k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in values.items()
    }


def data(rows: Iterable[Mapping[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=list(rows))


def _legend(points: bool = False) -> alt.Legend:
    """A legend of strokes, or of filled shapes if points distinguish the methods."""
    look: dict[str, Any] = {"symbolSize": 300, "symbolStrokeWidth": 2.4}
    if points:
        look = {"symbolSize": 90, "symbolStrokeWidth": 0, "symbolDash": [1, 0]}
    return alt.Legend(
        orient="top", title=None, columns=5, symbolType="stroke", symbolOpacity=1, labelLimit=200, **look
    )


def colour(looks: Looks, labels: Sequence[str], legend: bool = True, points: bool = False) -> alt.Color:
    """The colours of the light theme, which the page and the dark images replace; no legend if rows are named."""
    scale = alt.Scale(domain=list(labels), range=[looks[name].light for name in labels])
    return alt.Color("optimizer:N", scale=scale, legend=_legend(points) if legend else None)


def dash(looks: Looks, labels: Sequence[str], legend: bool = True) -> alt.StrokeDash:
    """The dash patterns; without a legend if points have one, because its symbols would have dashed outlines."""
    scale = alt.Scale(domain=list(labels), range=[list(looks[name].dash) for name in labels])
    return alt.StrokeDash("optimizer:N", scale=scale, legend=_legend() if legend else None)


def shape(looks: Looks, labels: Sequence[str]) -> alt.Shape:
    scale = alt.Scale(domain=list(labels), range=[looks[name].shape for name in labels])
    return alt.Shape("optimizer:N", scale=scale, legend=None)


def names(order: Sequence[str]) -> alt.Y:
    """A y axis with one row per optimizer, in the given order."""
    axis = alt.Axis(grid=False, labelFontSize=12, labelLimit=200, labelOverlap=False)
    return alt.Y(
        "optimizer:N",
        sort=list(order),
        title=None,
        axis=axis,
        scale=alt.Scale(paddingInner=0.3, paddingOuter=0.2),
    )


def values(title: str, **scale: Any) -> Callable[[str], alt.X]:
    """Return a function that creates the value axis of a field, with grid lines and without an axis line."""
    axis = alt.Axis(grid=True, domain=False, ticks=False, tickCount=5, labelFlush=False)
    return lambda field: alt.X(f"{field}:Q", title=title, scale=alt.Scale(nice=True, **scale), axis=axis)


def log_ticks(values: Iterable[float]) -> list[float]:
    """Round tick values for a logarithmic axis: powers of ten, with values in between if there are few.

    >>> log_ticks([0.0005, 0.03])
    [0.001, 0.01]
    >>> log_ticks([0.011, 0.06])
    [0.02, 0.05]
    """
    positive = [v for v in values if v > 0]
    if not positive:
        return []
    low, high = min(positive), max(positive)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5)):
        ticks = [float(f"{s}e{d}") for d in decades for s in steps]
        inside = [t for t in ticks if low * 0.999 <= t <= high * 1.001]
        if len(inside) >= 2:
            stride = math.ceil(len(inside) / 7)
            return inside[::stride]
    return [low, high] if high > low else [low]
