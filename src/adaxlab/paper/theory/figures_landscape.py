"""The landscape figure: paths of three methods over the contour lines of a surface with three minima."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from adaxlab.paper.theory import landscape as surface
from adaxlab.paper.theory.contours import contour
from adaxlab.paper.theory.figure_style import AXIS, INK, Figure, Record
from adaxlab.report.encoding import data as rows
from adaxlab.report.palette import LOOKS

_TIPS = [
    (math.sin(k * math.pi / 5) * r, -math.cos(k * math.pi / 5) * r)
    for k in range(10)
    for r in ((1.0, 0.4)[k % 2],)
]
STAR = "M" + "L".join(f"{x:.3f},{y:.3f}" for x, y in _TIPS) + "Z"


def landscape(record: Record) -> Figure:
    data = record["landscape"]
    lines = _surface()
    panels = [_panel(row, lines) for row in data["rows"]]
    tuned = ", ".join(
        f"{row['label']} {100 * row['tuned_shares']['deepest']:.0f}% (lr {row['tuned_lr']:.2g})"
        for row in data["rows"]
    )
    caption = (
        "The Mueller-Brown surface (stars are its minima, the deepest on the upper left), exact gradients, "
        f"{data['steps']:,} steps from three starting points. "
        f"The rates are in the paper's proportion, not tuned; shares are of {data['starts']} random starts. With "
        f"the best of {data['rates']} rates for each "
        f"method the deepest minimum is reached from: {tuned}."
    )
    return Figure(
        "landscape",
        "Three methods on a surface with three minima",
        caption,
        alt.hconcat(*panels, spacing=22),
        ["sgdm", "adam", "adax"],
        "None of them knows where the deepest is: which one is reached depends on the start and on lr",
    )


def _surface() -> list[dict[str, Any]]:
    """Return the contour lines, with levels closer together near the minima."""
    (x0, x1), (y0, y1) = surface.BOX
    x, y = np.linspace(x0, x1, 110), np.linspace(y0, y1, 98)
    z = surface.height(np.stack(np.meshgrid(x, y), axis=-1))
    out = []
    levels = [*np.arange(-1.4, -0.15, 0.15), *np.arange(0.0, 1.3, 0.3), 2.0]
    for k, level in enumerate(levels):
        for c, chain in enumerate(contour(x, y, z, float(level))):
            out += [
                {"line": f"{k}-{c}", "x": round(px, 3), "y": round(py, 3), "i": i}
                for i, (px, py) in enumerate(chain)
            ]
    return out


def _panel(row: dict[str, Any], lines: list[dict[str, Any]]) -> Any:
    colour = LOOKS[row["label"].lower()].light
    (x0, x1), (y0, y1) = surface.BOX
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[x0, x1], nice=False))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[y0, y1], nice=False))

    def points(where: Sequence[Sequence[float]], **how: Any) -> Any:
        return (
            alt.Chart(rows({"x": a, "y": b} for a, b in where))
            .mark_point(filled=True, opacity=1, **how)
            .encode(x=x, y=y)
        )

    ground = (
        alt.Chart(rows(lines))
        .mark_line(strokeWidth=0.8, color=AXIS, clip=True)
        .encode(x=x, y=y, detail="line:N", order="i:Q")
    )
    walked = [
        {"start": s, "i": i, "x": a, "y": b}
        for s, path in enumerate(row["paths"])
        for i, (a, b) in enumerate(path)
    ]
    paths = (
        alt.Chart(rows(walked))
        .mark_line(strokeWidth=1.7, color=colour, clip=True)
        .encode(x=x, y=y, detail="start:N", order="i:Q")
    )
    minima = points(list(surface.MINIMA.values()), shape=STAR, size=70, color=INK)
    begins = points([path[0] for path in row["paths"]], size=60, color=colour)
    found = [100 * row["shares"][k] for k in ("deepest", "second", "third")]
    title = alt.Title(
        f"{row['label']}, lr = {row['lr']:g}",
        subtitle="deepest {:.0f}%, second {:.0f}%, third {:.0f}% of starts".format(*found),
        fontSize=13,
        subtitleFontSize=11.5,
        offset=6,
    )
    return alt.layer(ground, paths, begins, minima).properties(
        width=250, height=250 * (y1 - y0) / (x1 - x0), title=title
    )
