"""The HTML page: one file with its style sheet, script and data, which opens without a network."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from adaxlab.errors import LabError
from adaxlab.report import html, sections
from adaxlab.report.embed import as_dict, prepare, variable
from adaxlab.report.html import esc
from adaxlab.report.palette import LOOKS, Look, looks
from adaxlab.report.sections import Section
from adaxlab.report.series import studies
from adaxlab.report.theme import TOKENS
from adaxlab.store import RunRecord, exported

# Nothing may be fetched, from anywhere; Vega compiles its expressions, hence unsafe-eval.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
_EXTRA = {
    "light": {
        "desk": "#f6f7f8",
        "focus": "#1a5fd0",
        "good": "#12643a",
        "good-bg": "#e0f3e7",
        "bad": "#9c2a10",
    }
    | {"bad-bg": "#fbe6e0", "open": "#5c4a00", "open-bg": "#f8efcf"},
    "dark": {"desk": "#0e1014", "focus": "#8ab4ff", "good": "#8fe0b0", "good-bg": "#12301f", "bad": "#ffab91"}
    | {"bad-bg": "#3a1a12", "open": "#f0dc8c", "open-bg": "#322b10"},
}


def render(
    records: Sequence[Any],
    title: str = "Optimizer comparison",
) -> str:
    """The page as text: a pure function of its arguments."""
    if not records:
        raise LabError(
            "no runs to report; create some with `adax compare digits`, or give the folder that contains them"
        )
    every = studies(records)
    labels = dict.fromkeys(label for study in every for label in study.names)
    known = {**looks(labels), **every[0].looks}
    count = 0

    def draw(name: str, caption: str, chart: Any) -> str:
        nonlocal count
        count += 1
        return html.figure(count, name, caption, prepare(as_dict(chart), known))

    made = sorted((Section.of(study) for study in every), key=lambda section: section.failed)
    body = sections.contents(made) if len(made) > 1 else ""
    for section in made:
        body += sections.study_section(section, known, draw, len(made) == 1)
    return _document(title, _meta(records, len(every)), known, body, _download(records))


def _document(title: str, meta: str, known: Mapping[str, Look], body: str, data: str) -> str:
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}"><meta name="color-scheme" content="light dark">
<title>{esc(title)}</title><link rel="icon" href="data:,">
<style>{_colours(known)}{_asset("page.css")}</style></head>
<body><a class="skip" href="#main">Skip to the results</a>
<header><div class="wrap"><div><h1>{esc(title)}</h1><p class="meta">{meta}</p></div>
<button type="button" id="theme">Theme</button></div></header>
{_switches(known)}<main id="main">{body}{data}</main>
<footer><div class="wrap">Made by adaxopt from run records. The file is self-contained and works offline.</div></footer>
<div id="tip" role="status"></div>
<script type="application/json" id="looks">{html.script_json(list(known))}</script>
<script>{_library()}</script>
<script>{_asset("page.js")}</script></body></html>
"""


def _switches(known: Mapping[str, Look]) -> str:
    chips = "".join(
        f'<button type="button" class="chip" data-index="{i}" aria-pressed="true" '
        f'title="Click to show or hide; Shift-click to show only this one">{html.swatch(look)}{esc(label)}</button>'
        for i, (label, look) in enumerate(known.items())
    )
    return (
        f'<nav class="bar" aria-label="Optimizers shown"><div class="wrap"><div class="chips">{chips}'
        '<button type="button" class="all">Show all</button></div></div></nav>'
    )


def _meta(records: Sequence[Any], count: int) -> str:
    seeds = {r.spec.get("seed") for r in records if r.spec.get("purpose") != "tune"}
    parts = [f"{len(records)} run{'s' * (len(records) != 1)}", f"{count} stud{'ies' if count != 1 else 'y'}"]
    parts += [f"{len(seeds)} seed{'s' * (len(seeds) != 1)}"] if seeds else []
    return " · ".join(parts)


def _colours(known: Mapping[str, Look]) -> str:
    """The CSS variables of both themes; print is always light."""

    def block(theme: str) -> str:
        pairs = TOKENS[theme] | _EXTRA[theme]
        css = "".join(f"--{name}:{colour};" for name, colour in pairs.items())
        every = {**LOOKS, **known}.values()
        return css + "".join(f"{variable(look)}:{look.on(theme)};" for look in every)

    light, dark = block("light"), block("dark")
    return (
        f":root{{color-scheme:light;{light}}}@media (prefers-color-scheme:dark){{:root{{color-scheme:dark;{dark}}}}}"
        f":root[data-theme=light]{{color-scheme:light;{light}}}:root[data-theme=dark]{{color-scheme:dark;{dark}}}"
        f"@media print{{:root,:root[data-theme]{{color-scheme:light;{light}}}}}"
    )


@cache
def _asset(name: str) -> str:
    return resources.files("adaxlab.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from vl-convert."""
    import vl_convert

    text = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return text.replace("</script", "<\\/script")


# -- the data of the page ------------------------------------------------------------------------------------------


def _download(records: Sequence[RunRecord]) -> str:
    """The compressed runs and buttons to save them as JSON lines (the format of `adax runs export`) or as two CSV
    tables, which the page creates on request."""
    packed = base64.b64encode(gzip.compress(exported(records).encode(), mtime=0)).decode()
    buttons = "".join(
        f'<button type="button" data-download="{kind}">{words}</button>'
        for kind, words in (("runs", "Runs (CSV)"), ("curves", "Curves (CSV)"), ("json", "Everything (JSON)"))
    )
    return (
        '<section id="data"><div class="wrap"><h2>Data</h2><p class="note">Runs: one line per run, with its settings '
        "and result. Curves: one line per evaluation. Everything: JSON lines, which <code>adax report</code> and the "
        f'other commands read.</p><div class="chips">{buttons}</div></div>'
        f'<script type="application/octet-stream" id="records">{packed}</script></section>'
    )
