"""Prepare a chart for the page: colours become CSS variables, the width follows the page, optimizers can be hidden."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from adaxlab.errors import LabError
from adaxlab.report.palette import LOOKS, Look, looks
from adaxlab.report.theme import TOKENS, config

FIELD = "optimizer"
_CHILDREN = ("layer", "hconcat", "vconcat", "concat")
_CHANNELS = ("color", "fill", "stroke", "strokeDash", "shape")


def as_dict(chart: Any) -> dict[str, Any]:
    """An Altair chart or a Vega-Lite dict as a new dict, without schema address and configuration."""
    if isinstance(chart, Mapping):
        spec = copy.deepcopy(dict(chart))
    elif hasattr(chart, "to_dict"):
        spec = chart.to_dict()
    else:
        raise LabError(f"figure of type {type(chart).__name__}: must be an Altair chart or a Vega-Lite dict")
    for unwanted in ("$schema", "config"):
        spec.pop(unwanted, None)
    for part in _walk(spec):
        if isinstance(part, dict) and isinstance(part.get("data"), dict) and "url" in part["data"]:
            raise LabError(
                f"figure reads {part['data']['url']!r}: a page is offline, put the rows into the chart"
            )
    labels = labels_in(spec)
    if labels:
        _dress(spec, labels)
    return spec


def _dress(spec: Mapping[str, Any], labels: list[str]) -> None:
    """Apply the palette to colour encodings of `optimizer` that have no scale."""
    scale = {"domain": labels, "range": [look.light for look in looks(labels).values()]}
    for part in _walk(spec):
        encoding = part.get("encoding") if isinstance(part, Mapping) else None
        for channel in ("color", "fill", "stroke"):
            given = encoding.get(channel) if isinstance(encoding, Mapping) else None
            if isinstance(given, dict) and given.get("field") == FIELD and "scale" not in given:
                given["scale"] = copy.deepcopy(scale)


def labels_in(spec: Mapping[str, Any]) -> list[str]:
    """The optimizers in a chart's rows, in order."""
    found: dict[str, None] = {}
    for part in _walk(spec):
        if isinstance(part, Mapping) and isinstance(part.get(FIELD), str) and "field" not in part:
            found[part[FIELD]] = None
    return list(found)


def prepare(spec: Mapping[str, Any], known: Mapping[str, Look]) -> dict[str, Any]:
    """Return the spec that the page draws; the given spec is not modified."""
    out = recolour(copy.deepcopy(dict(spec)), known)
    out.pop("title", None)
    out["config"] = config("page")
    if _switch(out, False):
        out["params"] = [*out.get("params", []), {"name": "hidden", "value": []}]
    if not any(k in out for k in ("hconcat", "vconcat", "concat", "facet", "repeat")):
        out["width"] = "container"
        out["autosize"] = {"type": "fit-x", "contains": "padding"}
    return out


def recolour(spec: Any, known: Mapping[str, Look]) -> Any:
    """Replace all colours of the light palette and the light theme by CSS variables."""
    every = [*LOOKS.values(), *known.values()]
    variables = {look.light: f"var({variable(look)})" for look in every}
    variables |= {colour: f"var(--{name})" for name, colour in TOKENS["light"].items()}
    return swap(spec, variables)


def variable(look: Look) -> str:
    """The CSS variable of a series colour."""
    return f"--c{look.light[1:]}-{look.dark[1:]}"


def swap(node: Any, words: Mapping[str, str]) -> Any:
    """`node` with every colour in `words` replaced; data rows are unchanged."""
    if isinstance(node, dict):
        return {k: v if k in ("values", "datasets") else swap(v, words) for k, v in node.items()}
    if isinstance(node, list):
        return [swap(v, words) for v in node]
    return words.get(node.lower(), node) if isinstance(node, str) and node.startswith("#") else node


def entitle(spec: Mapping[str, Any], titles: Mapping[str, str]) -> dict[str, Any]:
    """The chart with titles for optimizers in its legends and on its axes; its rows keep their names."""
    out = copy.deepcopy(dict(spec))
    words = f"{json.dumps(dict(titles))}[datum.value] || datum.label"
    for part in _walk(out):
        if not isinstance(part, dict) or part.get("field") != FIELD:
            continue
        for guide in ("legend", "axis"):
            if isinstance(part.get(guide), dict):
                part[guide]["labelExpr"] = words
    return out


def _switch(view: dict[str, Any], inherited: bool) -> bool:
    """Filter every view that encodes `optimizer` by the signal `hidden`, and remove its legend. Return whether there is
    such a view."""
    encoding = view.get("encoding", {})
    mine = inherited or any(isinstance(c, dict) and c.get("field") == FIELD for c in encoding.values())
    for channel in _CHANNELS:
        if isinstance(encoding.get(channel), dict) and encoding[channel].get("field") == FIELD:
            encoding[channel]["legend"] = None
    children = [child for key in _CHILDREN for child in view.get(key, [])]
    if isinstance(view.get("spec"), dict):
        children.append(view["spec"])
    if children:
        found = [_switch(child, mine) for child in children]
        return any(found)
    if mine:
        view["transform"] = [*view.get("transform", []), {"filter": f"indexof(hidden, datum.{FIELD}) < 0"}]
    return mine


def _walk(node: Any) -> Iterator[Any]:
    yield node
    if isinstance(node, Mapping):
        for value in node.values():
            yield from _walk(value)
    elif isinstance(node, list):
        for value in node:
            yield from _walk(value)
