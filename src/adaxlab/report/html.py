"""HTML elements. Every text from a record is escaped with `esc`."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adaxlab.report.embed import variable
from adaxlab.report.palette import Look

_SHAPES = {
    "circle": "M15 6m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0Z",
    "square": "M11.8 2.8h6.4v6.4h-6.4Z",
    "diamond": "M15 1.4l3.8 4.6l-3.8 4.6l-3.8-4.6Z",
    "triangle-up": "M15 1.8l4.2 7.4h-8.4Z",
    "triangle-down": "M15 10.2l4.2-7.4h-8.4Z",
    "triangle-right": "M19.2 6l-7.4 4.2v-8.4Z",
    "triangle-left": "M10.8 6l7.4 4.2v-8.4Z",
    "cross": "M13.7 2h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7Z",
}
BADGES = {
    "failed": "✕",
    "better": "▲",
    "worse": "▼",
    "inconclusive": "≈",
    "diverged": "✕",
    "supported": "✓",
    "contradicted": "✕",
}


def esc(value: Any) -> str:
    return html.escape(str(value), quote=True)


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return (
        text.replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def swatch(look: Look) -> str:
    """The line, dash and point of a series as a small image."""
    dash = (
        ""
        if len(look.dash) == 2 and look.dash[1] == 0
        else f' stroke-dasharray="{" ".join(map(str, look.dash))}"'
    )
    colour = f"var({variable(look)})"
    return (
        f'<svg class="swatch" viewBox="0 0 30 12" aria-hidden="true">'
        f'<path d="M0 6H30" fill="none" style="stroke:{colour}"{dash} stroke-width="2.2"/>'
        f'<path d="{_SHAPES.get(look.shape, _SHAPES["circle"])}" style="fill:{colour}"/></svg>'
    )


def badge(verdict: str, words: str) -> str:
    kind = verdict.lower().replace(" ", "-")
    mark = BADGES.get(verdict.lower(), "")
    return f'<span class="badge {esc(kind)}">{f"<b aria-hidden=true>{mark}</b> " if mark else ""}{esc(words)}</span>'


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "", attributes: Sequence[str] = ()
) -> str:
    """A table of HTML cells; on small screens each row is a card with the column heads as labels."""
    cells = "".join(f'<th scope="col">{h}</th>' for h in head)
    body = []
    extra = list(attributes)
    for i, row in enumerate(rows):
        tds = "".join(f'<td data-head="{h}">{c}</td>' for h, c in zip(head, row, strict=True))
        body.append(f"<tr{' ' + extra[i] if i < len(extra) else ''}>{tds}</tr>")
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{cells}</tr></thead><tbody>{"".join(body)}</tbody>'
        "</table></div>"
    )


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    return (
        '<dl class="pairs">'
        + "".join(f"<div><dt>{esc(k)}</dt><dd>{esc(v)}</dd></div>" for k, v in rows)
        + "</dl>"
    )


def whisker(mean: float, low: float, high: float, span: tuple[float, float], look: Look) -> str:
    """Mean and interval as a small image; all rows of a table have the same scale."""
    width = (span[1] - span[0]) or 1.0
    a, m, b = (4 + 112 * (v - span[0]) / width for v in (low, mean, high))
    colour = f"var({variable(look)})"
    return (
        f'<svg class="whisker" viewBox="0 0 120 14" aria-hidden="true"><path class="rail" d="M4 7H116"/>'
        f'<path d="M{a:.1f} 7H{b:.1f}" style="stroke:{colour}" stroke-width="5" opacity=".35"/>'
        f'<circle cx="{m:.1f}" cy="7" r="3.6" style="fill:{colour}"/></svg>'
    )


def figure(number: int, title: str, caption: str, spec: Mapping[str, Any]) -> str:
    """A chart with title and caption; the page's script draws it. Charts of several views take a whole row."""
    wide = "" if spec.get("width") == "container" else " wide"
    return (
        f'<figure class="card{wide}" id="figure-{number}"><div class="top"><h3>{esc(title)}</h3>'
        f'<span class="save"><button type="button" data-save="svg" data-figure="{number}" '
        f'title="Save this chart as SVG">SVG</button><button type="button" data-save="png" data-figure="{number}" '
        f'title="Save this chart as PNG">PNG</button></span></div>'
        f'<div class="chart" data-figure="{number}" role="img" aria-label="{esc(title)}. {esc(caption)}"></div>'
        f"<figcaption>{esc(caption)}</figcaption>"
        f'<script type="application/json" id="spec-{number}">{script_json(spec)}</script></figure>'
    )
