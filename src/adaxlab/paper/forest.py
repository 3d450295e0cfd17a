"""The forest plot of docs/reproduction.md: every claim about a final score that three or more seeds judge, except those
of the memory study, which has a page and a figure of its own.

A row is a claim: the mean of its paired differences (or the score here minus the paper's), its plain 95% interval, the
values for which the claim is true, the paper's own difference on the same data, n, and the verdict as a mark and a
colour. Panels are in the unit of the tables, each with an axis of its own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt

from adaxlab.claim import ENOUGH, LEAST, VERDICTS, Claim
from adaxlab.finding import edges, runs_of
from adaxlab.judge import Judged, examined
from adaxlab.paper import memory_finals
from adaxlab.paper.claims import FAMILIES, runs_under
from adaxlab.report import names
from adaxlab.report.encoding import data
from adaxlab.report.palette import Look
from adaxlab.report.theme import TOKENS

WIDTH, ROW, LABELS = 166, 18, 184
UNITS = {
    "accuracy": "test accuracy, points",
    "top-1": "top-1 accuracy, points",
    "IoU": "IoU, points",
    "test loss": "test loss, nats per word",
}
"""The measures that are final scores, with the unit of a difference."""
MARKS = {
    VERDICTS[True]: Look("#0072b2", "#56b4e9", shape="circle"),
    VERDICTS[False]: Look("#c13a05", "#ff8a5c", shape="diamond"),
    VERDICTS[None]: Look("#6b7380", "#a9b0ba", shape="circle"),
}
"""How a verdict is drawn; the mark of an inconclusive one is hollow."""
CIFAR = "CIFAR-10, the paper's own data"
TINY = "Tiny-ImageNet, a stand-in for ImageNet"
CAMVID = "CamVid, a stand-in for PASCAL VOC2012"
TEXT = "{}, a stand-in for One Billion Word"
PAPERS, EQUAL = "the paper's learning rates", "equal tuning"
PANELS = {
    "cifar10 paper": (CIFAR, "here minus the paper's value"),
    "cifar10/table2": (CIFAR, PAPERS),
    "cifar10/fresh": (CIFAR, f"{EQUAL}, ten new seeds"),
    "cifar10/tuned": (CIFAR, f"{EQUAL}, seeds 0 to 4"),
    "cifar10 settings": (CIFAR, "two settings of one method"),
    "cifar10/adamnx": (CIFAR, f"AdamNX, {EQUAL}, 60 epochs"),
    "imagenet/tiny": (TINY, PAPERS),
    "imagenet/tuned": (TINY, EQUAL),
    "voc/camvid": (CAMVID, PAPERS),
    "voc/tuning": (CAMVID, EQUAL),
    "voc/eight": (CAMVID, f"{EQUAL}, eight new seeds"),
    "language/ptb": (TEXT.format("Penn Treebank"), EQUAL),
    "language/ptb-gap": (TEXT.format("Penn Treebank"), f"{EQUAL}, finer learning rates"),
    "language/enwik8": (TEXT.format("Words of enwik8"), EQUAL),
}
"""The panels in order, by study: the data, and the terms of the comparison; others follow."""
PARTS = {
    "cifar10.adamnx-decay": "weight decay 0.01 vs 0.05",
    "cifar10.adamnx-mean": "debiased mean vs AdaX's",
    "cifar10.adamnx-eps": "plain eps 1e-8 vs AdaX's",
}
"""Labels of claims whose rows differ in one part of a method; they are in the panel of their study."""


@dataclass(frozen=True)
class Line:
    """A row of the plot, in the unit of its panel."""

    id: str
    label: str
    panel: str
    unit: str
    mean: float
    low: float
    high: float
    true: tuple[float, float]
    """The values for which the claim is true; infinite where it has one limit."""
    paper: float | None
    """The paper's difference, on the same data."""
    n: int
    verdict: str


def lines(records: Path) -> list[Line]:
    """The rows, panel by panel; claims that fewer than three seeds judge have none."""
    found: list[Line] = []
    elsewhere = {claim.id for claim in (*memory_finals.GPT_CLAIMS, *memory_finals.CIFAR_CLAIMS)}
    for claims in FAMILIES.values():
        for each, row in examined(claims, runs_under(records, claims)):
            if each.claim.id in elsewhere:
                continue
            line = _line(each, row["verdict"])
            if line and any((line.panel, line.label) == (one.panel, one.label) for one in found):
                line = replace(line, label=f"{line.label} (by {each.claim.margin:g})")
            found += [line] if line else []
    order = [*PANELS, *(line.panel for line in found)]
    return sorted(found, key=lambda line: order.index(line.panel))


def _line(each: Judged, verdict: str) -> Line | None:
    claim = each.claim
    unit = UNITS.get(claim.measures[0]) if len(claim.measures) == 1 else None
    seen = each.findings[0].seen if each.findings else None
    if unit is None or seen is None or seen.n < LEAST:
        return None
    theirs, center = claim.paper if isinstance(claim.paper, float) else None, 0.0
    if claim.rule == "equals_paper":
        assert isinstance(claim.paper, tuple)
        center, theirs = claim.paper[0], 0.0
    mean, low, high = (round(value - center, 6) for value in (seen.mean, seen.low, seen.high))
    return Line(
        claim.id, _label(each), _panel(claim), unit, mean, low, high, _true(claim), theirs, seen.n, verdict
    )


def _true(claim: Claim) -> tuple[float, float]:
    """The values of a line for which its claim is true.

    >>> from adaxlab.claim import Claim
    >>> _true(Claim("x", "", "", "", "not_worse", "accuracy", "a", "b", margin=0.5))
    (-0.5, inf)
    """
    if claim.rule == "equals_paper":
        assert isinstance(claim.paper, tuple)
        return -claim.paper[1], claim.paper[1]
    limits = edges(claim.rule, claim.margin)
    return (limits[0], limits[1]) if len(limits) == 2 else (limits[0], math.inf)


def _panel(claim: Claim) -> str:
    family = claim.study.partition("/")[0]
    if claim.rule == "equals_paper":
        return f"{family} paper"
    if claim.b and _method(claim.a) == _method(claim.b) and claim.id not in PARTS:
        return f"{family} settings"
    return claim.study


# -- words ----------------------------------------------------------------------------------------------------------


def _parts(name: str) -> tuple[str, str]:
    """The method of a claim's row and its settings.

    >>> _parts("adaxw eps 1e-3"), _parts("sgdm-5e-4"), _parts("adax@b2T=3"), _parts("table2: adamw")
    (('AdaX-W', 'eps 1e-3'), ('SGDM', 'L2 5e-4'), ('AdaX', 'b2·T 3'), ('AdamW', ''))
    """
    row = re.sub(r"^sgdm-", "sgdm L2 ", name.rpartition(": ")[2])
    row = row.replace("-b2T50", "@b2T=50")
    head, _, settings = row.partition(" ")
    title, _, variant = names.title(head).partition(", ")
    return title, settings or variant.replace(" = ", " ")


def _method(name: str) -> str:
    return _parts(name)[0]


def _label(each: Judged) -> str:
    """What is subtracted from what: the methods, or two settings of one."""
    claim = each.claim
    if claim.id in PARTS:
        return PARTS[claim.id]
    (one, first), (two, second) = _parts(claim.a), _parts(claim.b) if claim.b else ("", "")
    if not two:
        return ", ".join(filter(None, (one, first)))
    if one == two:
        first, second = (
            words or f"lr {_lr(each, name):g}" for words, name in ((first, claim.a), (second, claim.b))
        )
        shared = f"{first.partition(' ')[0]} "
        return f"{one}, {first} vs {second.removeprefix(shared)}"
    return " vs ".join(", ".join(filter(None, part)) for part in ((one, first), (two, second)))


def _lr(each: Judged, name: str) -> float:
    runs = runs_of(each.runs, each.study, name)
    return runs[0].spec["options"]["lr"]


def words(found: Sequence[Line]) -> dict[str, Any]:
    """Title and subtitle of the figure."""
    return {
        "text": "Claims about final scores, by data set",
        "subtitle": [
            f"{len(found)} claims with n ≥ {LEAST} seeds; n below {ENOUGH} is provisional.",
            "Mark and line: how much better the first method is than the",
            "second (paired by seed), with its 95% interval.",
            "Shaded: where the claim is true. Tick: the paper's difference.",
            "The verdict also corrects for the number of claims (Holm).",
        ],
    }


# -- the chart ------------------------------------------------------------------------------------------------------


def chart(found: Sequence[Line]) -> alt.VConcatChart:
    """A panel per study under the legend of the verdicts."""
    panels = [
        _plot([line for line in found if line.panel == panel])
        for panel in dict.fromkeys(line.panel for line in found)
    ]
    return alt.VConcatChart(vconcat=[_legend(), *panels], spacing=10)


def _legend() -> alt.LayerChart:
    """The three marks in one line from the left edge."""
    places = data([{"verdict": verdict, "at": 122 * i} for i, verdict in enumerate(MARKS)])
    line = alt.Scale(domain=[0, LABELS + WIDTH], range=[4 - LABELS, WIDTH + 4], nice=False)
    x = alt.X("at:Q", title=None, axis=None, scale=line)
    text = alt.Chart(places).mark_text(align="left", dx=10, fontSize=12.5, color=TOKENS["light"]["ink"])
    made = alt.LayerChart(layer=[_marks(places).encode(x=x), text.encode(x=x, text="verdict:N")])
    made.width, made.height = WIDTH, 14
    return made


def _marks(rows: alt.InlineData) -> alt.Chart:
    """Points by verdict: colour, shape, and hollow where it is inconclusive."""
    verdicts, paper = list(MARKS), TOKENS["light"]["paper"]
    fills = [paper if verdict == VERDICTS[None] else look.light for verdict, look in MARKS.items()]
    shapes = alt.Scale(domain=verdicts, range=[look.shape for look in MARKS.values()])
    points = alt.Chart(rows).mark_point(size=72, strokeWidth=1.8, opacity=1, fillOpacity=1)
    return points.encode(
        stroke=_stroke(),
        fill=alt.Fill("verdict:N", scale=alt.Scale(domain=verdicts, range=fills), legend=None),
        shape=alt.Shape("verdict:N", scale=shapes, legend=None),
    )


def _stroke() -> alt.Stroke:
    scale = alt.Scale(domain=list(MARKS), range=[look.light for look in MARKS.values()])
    return alt.Stroke("verdict:N", scale=scale, legend=None)


def _plot(found: Sequence[Line]) -> alt.LayerChart:
    ink = TOKENS["light"]
    low, high = _domain(found)
    rows = [
        {
            "id": line.id,
            "mean": line.mean,
            "low": line.low,
            "high": line.high,
            "paper": line.paper,
            "from": max(low, line.true[0]),
            "to": min(high, line.true[1]),
            "n": f"n = {line.n}",
            "verdict": line.verdict,
        }
        for line in found
    ]
    labels = json.dumps({line.id: line.label for line in found}, ensure_ascii=False)
    axis = alt.Axis(
        grid=False, labelFontSize=12, labelLimit=LABELS, labelOverlap=False, labelColor=ink["ink"],
        labelExpr=f"{labels}[datum.value]", minExtent=LABELS, maxExtent=LABELS,
    )  # fmt: skip
    y = alt.Y("id:N", sort=[line.id for line in found], title=None, axis=axis)
    scale = alt.Scale(domain=[low, high], nice=False, zero=False)
    below = alt.Axis(grid=True, domain=False, ticks=False, tickCount=5, labelFontSize=11.5)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title=None, scale=scale, axis=below)

    shown = data(rows)
    layers = [
        alt.Chart(shown).mark_bar(color=ink["grid"], height=ROW - 3).encode(y=y, x=x("from"), x2="to:Q"),
        alt.Chart(data([{"zero": 0}]))
        .mark_rule(strokeDash=[4, 3], strokeWidth=1.2, color=ink["axis"])
        .encode(x=x("zero")),
        alt.Chart(shown).mark_rule(strokeWidth=2.2).encode(y=y, x=x("low"), x2="high:Q", stroke=_stroke()),
        alt.Chart(shown)
        .transform_filter("isValid(datum.paper)")
        .mark_tick(thickness=2, size=15, color=ink["ink"])
        .encode(y=y, x=x("paper")),
        _marks(shown).encode(y=y, x=x("mean")),
        alt.Chart(shown)
        .mark_text(align="left", dx=6, fontSize=11.5, color=ink["soft"])
        .encode(y=y, x=alt.value(WIDTH), text="n:N"),
    ]
    made = alt.LayerChart(layer=layers)
    made.width, made.height = WIDTH, ROW * len(found)
    where, terms = _title(found[0].panel)
    made.title = alt.TitleParams(
        text=where, subtitle=", ".join(filter(None, (terms, found[0].unit))), fontSize=12.5,
        subtitleFontSize=12, subtitlePadding=2, anchor="start", frame="group", dx=-LABELS, offset=5,
    )  # fmt: skip
    return made


def _title(panel: str) -> tuple[str, str]:
    """The data of a panel and its terms; a study that PANELS does not name has the data of its family.

    >>> _title("voc/tuning"), _title("voc/new")[1]
    (('CamVid, a stand-in for PASCAL VOC2012', 'equal tuning'), 'study voc/new')
    """
    family = panel.partition("/")[0]
    return PANELS.get(panel) or next(
        (where, f"study {panel}") for key, (where, _) in PANELS.items() if key.startswith(family)
    )


def _domain(found: Sequence[Line]) -> tuple[float, float]:
    """The span of everything that is drawn, with room for the marks."""
    ends = [0.0]
    for line in found:
        ends += [line.low, line.high, *(edge for edge in line.true if math.isfinite(edge))]
        ends += [line.paper] if line.paper is not None else []
    room = 0.05 * (max(ends) - min(ends))
    return round(min(ends) - room, 6), round(max(ends) + room, 6)
