"""The figure of the GPU benchmark: the time of one optimizer step beside torch's fused AdamW, model by model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from adaxlab.report.encoding import data
from adaxlab.report.palette import LOOKS
from adaxlab.report.theme import TOKENS

BASE = "torch AdamW fused"
SHOWN = (BASE, "AdaXW fused", "AdaXW fused, frozen", "AdaXW fused, bf16 state")
WIDTH, ROW = 430, 21


def gpu_steps(record: Mapping[str, Any]) -> alt.VConcatChart:
    """A panel per model: the median step as a bar with its quartiles, and the least time that its bytes need."""
    rows = [r for r in record["rows"] if r["gradients"] == "fixed" and r["row"] in SHOWN]
    models = list(dict.fromkeys(r["model"] for r in rows))
    panels = [_panel([r for r in rows if r["model"] == model]) for model in models]
    return alt.VConcatChart(vconcat=panels, spacing=14)


def words(record: Mapping[str, Any]) -> dict[str, Any]:
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
