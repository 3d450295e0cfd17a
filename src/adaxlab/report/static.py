"""The charts of a report as SVG files, for light and dark backgrounds, without a browser or a network."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaxlab import files, stats
from adaxlab.errors import LabError
from adaxlab.report.embed import as_dict, entitle, swap
from adaxlab.report.judged import judged
from adaxlab.report.palette import LOOKS, Look, looks
from adaxlab.report.series import studies
from adaxlab.report.theme import TOKENS, config

THEMES = ("light", "dark")


def save_charts(
    records: Sequence[Any],
    folder: Path,
    themes: Sequence[str] = THEMES,
    baseline: str | None = None,
    rule: stats.DecisionRule | None = None,
    only: Container[str] | None = None,
) -> list[Path]:
    """Write the charts of every study, or `only` those named, as `<study>-<chart>[-dark].svg`; return the paths."""
    from adaxlab.report.charts import figures

    if not records:
        raise LabError(
            "no runs to draw; create some with `adax compare digits`, or give the folder that contains them"
        )
    out: list[Path] = []
    for each in studies(records):
        study = replace(each, written=each.titles)
        for figure in figures(study, judged(study, baseline, rule)):
            name = f"{slug(study.name)}-{figure.name}"
            if only is not None and name not in only:
                continue
            words = {"text": figure.title, "subtitle": textwrap.wrap(figure.caption, 78)}
            chart = entitle(as_dict(figure.chart), study.titles)
            out += save_chart(chart, folder / name, words, themes, study.names, study.looks)
    return out


def save_chart(
    chart: Any,
    stem: Path,
    title: str | Mapping[str, Any] = "",
    themes: Sequence[str] = THEMES,
    labels: Sequence[str] = (),
    known: Mapping[str, Look] | None = None,
) -> list[Path]:
    """One chart as `<stem>[-dark].svg`; `title` (text, or Vega-Lite's with a subtitle) is written above it."""
    import vl_convert

    out = []
    for theme in themes:
        spec = paint(chart, theme, title, labels, known)
        path = stem.with_name(f"{stem.name}{'-dark' if theme == 'dark' else ''}.svg")
        files.put(path, _stable(vl_convert.vegalite_to_svg(spec)).encode())
        out.append(path)
    return out


def paint(
    chart: Any,
    theme: str,
    title: str | Mapping[str, Any] = "",
    labels: Sequence[str] = (),
    known: Mapping[str, Look] | None = None,
) -> dict[str, Any]:
    """The chart in a theme: its configuration, its title, and the palette's colours."""
    spec = as_dict(chart)
    if title:
        spec["title"] = title
    if theme == "dark":
        every = {**LOOKS, **looks(labels), **(known or {})}
        words = {look.light: look.dark for look in every.values()}
        words |= {colour: TOKENS["dark"][name] for name, colour in TOKENS["light"].items()}
        spec = swap(spec, words)
    spec["config"] = config(theme)
    return spec


def _stable(svg: str) -> str:
    """The SVG with its clip paths numbered from 0; the renderer's numbers depend on what the process drew before."""
    names: dict[str, str] = {}
    return re.sub(r"\bclip\d+\b", lambda m: names.setdefault(m.group(), f"clip{len(names)}"), svg)


def slug(name: str) -> str:
    """A name for a file.

    >>> slug("CIFAR-10 / ResNet 20")
    'cifar-10-resnet-20'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "study"
