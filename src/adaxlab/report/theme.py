"""Background, colours and fonts of the charts: a Vega configuration for image files, and one with CSS variables for the
page.

The page's charts use CSS variables such as `var(--ink)` instead of colours, so that the style sheet sets the colours
for light, dark and print. Charts are not redrawn when the reader changes the theme.
"""

from __future__ import annotations

from typing import Any

from adaxlab.report.palette import PAPER

# vl-convert includes Liberation Sans, so images need no installed fonts; the widths of legends still vary with them.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"

TOKENS: dict[str, dict[str, str]] = {
    "light": {
        "paper": PAPER["light"],
        "ink": "#1b1f24",
        "soft": "#59616b",
        "grid": "#e8eaed",
        "axis": "#b4bac2",
    },
    "dark": {
        "paper": PAPER["dark"],
        "ink": "#eceef1",
        "soft": "#a4abb5",
        "grid": "#2a2e36",
        "axis": "#565d68",
    },
}


def tokens(theme: str) -> dict[str, str]:
    """The colours of a theme: `light`, `dark`, or `page` (CSS variables)."""
    if theme == "page":
        return {name: f"var(--{name})" for name in TOKENS["light"]}
    return TOKENS[theme]


def config(theme: str) -> dict[str, Any]:
    """Vega-Lite's `config` of a theme.

    >>> config("page")["axis"]["labelColor"], config("dark")["background"]
    ('var(--soft)', '#16181d')
    """
    c = tokens(theme)
    font = PAGE_FONT if theme == "page" else FONT
    return {
        "background": "transparent" if theme == "page" else c["paper"],
        "font": font,
        "aria": theme == "page",  # an image file is one image to a screen reader, and half the size without
        "padding": 2 if theme == "page" else 12,
        "view": {"stroke": None},
        "axis": {
            "labelColor": c["soft"],
            "titleColor": c["soft"],
            "labelFontSize": 11,
            "titleFontSize": 11.5,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "labelPadding": 5,
            "gridColor": c["grid"],
            "domainColor": c["axis"],
            "tickColor": c["axis"],
            "ticks": False,
            "domain": False,
            "labelOverlap": "greedy",
        },
        "axisX": {"grid": False, "domain": True, "ticks": True, "tickSize": 4},
        "axisY": {"tickCount": 5},
        "legend": {
            "labelColor": c["ink"],
            "titleColor": c["soft"],
            "labelFontSize": 12,
            "symbolSize": 120,
            "symbolStrokeWidth": 2.4,
            "columnPadding": 14,
        },
        "title": {
            "anchor": "start",
            "color": c["ink"],
            "subtitleColor": c["soft"],
            "fontSize": 15,
            "fontWeight": "bold",
            "subtitleFontSize": 12,
            "subtitlePadding": 5,
            "offset": 12,
        },
        "line": {"strokeJoin": "round"},  # a strokeWidth here would overrule those that charts encode
        "text": {"color": c["soft"], "fontSize": 11},
        "rule": {"color": c["axis"]},
    }
